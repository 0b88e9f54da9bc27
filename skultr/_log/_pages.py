"""Result pages of rows to predict: the shown rows, list by list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base._typing import Bools, Ints, Table
from ._reader import read
from ._segments import offsets_from_sorted, rectangles


@dataclass(frozen=True, eq=False)
class ServedLists:
    """The shown rows of X, list by list from the top down."""

    rows: np.ndarray  # (n_shown,)
    position: np.ndarray  # (n_shown,)
    bias: np.ndarray  # (n_shown,)
    offsets: np.ndarray  # (n_lists + 1,)

    def __iter__(self) -> Iterator[tuple[Ints, Bools]]:
        """Rectangles (place, inside), lists by ranks: index of ``rows``, True for real rows."""
        for _, place in rectangles(self.offsets):
            yield place, place >= 0


def read_lists(X: Table, roles: Mapping[str, Any]) -> ServedLists:
    """The result pages of rows to predict, from the columns of X and keywords."""
    read_rows = read(X, roles=roles, reads=("qid", "session", "position", "bias"))
    list_, position, bias = read_rows.list_, read_rows.position, read_rows["bias"]
    rows = np.flatnonzero(position > 0)
    rows = rows[np.lexsort((position[rows], list_[rows]))]
    position = position[rows]
    bias = position if bias is None else bias[rows]
    return ServedLists(rows, position, bias, offsets_from_sorted(list_[rows]))
