"""Cells of a log that do not fit into memory: on disk, in shards of documents.

Relevance belongs to a document, and all rows of a document are in one shard, so that estimates of
examination need sums over shards alone (map and reduce).
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .._typing import Floats
from ._cells import Cells, Factors, read_cells
from ._counted import CellCount, EngineLog
from ._faults import NO_CLICKS, NO_ROW_SHOWN

__all__ = ["CellShards", "count_or_shard", "number_of_shards"]

#: Cells that are collected at once; about 3 GB while the engine hands them over.
MAX_CELLS = 30_000_000


@dataclass(frozen=True, eq=False)
class CellShards:
    """Cells in files; each has all cells of some documents, and the factors are shared.

    Parameters
    ----------
    folder : TemporaryDirectory
        Deleted with the object.
    files : list of Path
    factors : Factors
    """

    folder: TemporaryDirectory[str]
    files: list[Path]
    factors: Factors

    @property
    def n_factors(self) -> int:
        """Number of bias factors."""
        return len(self.factors)

    def __iter__(self) -> Iterator[Cells]:
        for file in self.files:
            cells: Cells = pickle.loads(file.read_bytes())
            code = np.searchsorted(self.factors.bias, cells.factors.bias)
            yield replace(
                cells,
                factor=code[cells.factor],
                n_factors=self.n_factors,
                factors=self.factors,
            )

    @cached_property
    def _totals(self):
        return sum(
            np.stack([cells.by_factor(cells.clicks), cells.by_factor(cells.weight)])
            for cells in self
        )

    @property
    def clicks_of_factors(self) -> Floats:
        """Clicks by factor, shape (n_factors,)."""
        return self._totals[0]

    @property
    def weight_of_factors(self) -> Floats:
        """Impressions by factor, shape (n_factors,)."""
        return self._totals[1]


def count_or_shard(X: Any, click: str, by: list[str]) -> tuple[Any, Any]:
    """Cells of a log in an engine: a log in memory and click rates, or shards and None.

    Parameters
    ----------
    X, click, by
        See :func:`~skultr._log._counted.count_cells_of`; ``by`` names one bias column.

    Returns
    -------
    X : frame in memory, or CellShards if the log has more than ``MAX_CELLS`` cells
    click_rate : ndarray of shape (n_cells,) or None
    """
    count = EngineLog.of(X, click).count_of(by)
    n_shards = number_of_shards(count)
    return count.cells() if n_shards == 1 else (_shard(count, n_shards), None)


def number_of_shards(count: CellCount) -> int:
    """Number of shards such that each has at most ``MAX_CELLS`` cells; 1 if all have."""
    n_shards = -(-count.n_rows // MAX_CELLS)
    if n_shards <= 1:
        return 1
    # There are fewer cells than rows: how many fewer, one shard says.
    n_cells = n_shards * len(count.cells((0, n_shards))[1])
    return 1 if n_cells <= 0.9 * MAX_CELLS else n_shards


def _shard(count, n_shards):
    folder = TemporaryDirectory(prefix="skultr-")
    files, factors = [], set()
    for number in range(n_shards):
        X, rate = count.cells((number, n_shards))
        if not len(rate):
            continue
        with warnings.catch_warnings():  # of a part of the log
            warnings.simplefilter("ignore")
            cells, _ = read_cells(X, rate)
        cells = replace(cells, doc_query=None, doc_row=None, doc_ids=None)
        factors.update(cells.factors.bias.tolist())
        files.append(Path(folder.name, f"{number}.pickle"))
        files[-1].write_bytes(pickle.dumps(cells, protocol=5))
    if not files:
        NO_ROW_SHOWN.report(0, None, None)
    shards = CellShards(folder, files, Factors(np.array(sorted(factors)), None))
    if not shards.clicks_of_factors.any():
        NO_CLICKS.report(0, None, None)
    return shards
