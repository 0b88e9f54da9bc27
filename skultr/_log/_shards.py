"""A log in an engine whose cells are too many to be collected at once: shard by shard."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base._progress import progress
from .._base._typing import Floats
from . import _cells
from ._cells import Cells, cells_of_log
from ._clicklog import ClickLog, make_click_log
from ._counted import CellCount, count_of
from ._faults import NO_CLICKS, NO_ROW_SHOWN
from ._joined_logs import joined


def number_of_shards(count: CellCount) -> int:
    """Number of shards such that each has at most ``MAX_CELLS`` cells; 1 if all have."""
    n_shards = -(-count.n_rows // _cells.MAX_CELLS)
    if n_shards <= 1:
        return 1
    # There are fewer cells than rows: how many fewer, one shard says.
    n_cells = n_shards * len(count.cells((0, n_shards))[1])
    return 1 if n_cells <= 0.9 * _cells.MAX_CELLS else n_shards


def log_of_count(
    count: CellCount, read: Callable[[Any, Floats], ClickLog]
) -> tuple[ClickLog, Any, Any]:
    """The log of the cells of a count, and the last frame and click rates that it was read from.

    ``read(X, click_rate)`` is the log of a frame of cells; frames of shards share no document.
    """
    n_shards = number_of_shards(count)
    if n_shards == 1:
        X, rate = count.cells(in_order=True)
        return read(X, rate), X, rate
    logs = []
    with warnings.catch_warnings():  # of a part of the log
        warnings.simplefilter("ignore")
        for number in progress(range(n_shards), "shard"):
            X, rate = count.cells((number, n_shards))
            if len(rate):
                logs.append(read(X, rate))
    if not logs:
        NO_ROW_SHOWN.report()
    log = joined(logs)
    if not log.clicks.any():
        NO_CLICKS.report()
    return log, X, rate


def cells_of_count(X: Any, click: str, by: list[str]) -> tuple[Cells | Any, Floats | None]:
    """A frame of cells and click rates; cells and None where the frame would be too large."""
    count = count_of(X, click, by)
    if number_of_shards(count) == 1:
        return count.cells()

    def read(X, rate):
        return make_click_log(X, np.empty((len(rate), 0), dtype=np.float32), rate)

    return cells_of_log(log_of_count(count, read)[0]), None
