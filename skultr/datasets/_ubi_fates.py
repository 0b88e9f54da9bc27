"""One fate for every record: what it was used for, or why it was left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Fates of records that are in the log; all others were left out.
USED = {
    "impression": "shown",
    "click": "clicked",
    "outcome": "outcome",
    "added": "its document was added to the page",
    "query": "query of a page",
    "further page": "further page of a query_id",
}


class Fates:
    """The fate of each of n records, given once: later rules decide only what is left."""

    def __init__(self, n: int) -> None:
        self._codes = np.full(n, -1, dtype=np.int8)
        self._names: list[str] = []

    @property
    def open(self) -> NDArray[np.bool_]:
        return self._codes < 0

    def give(self, rows: NDArray[np.bool_] | NDArray[np.intp], name: str) -> None:
        """Decide rows, a mask or row numbers, that are still open."""
        if name not in self._names:
            self._names.append(name)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = rows[self._codes[rows] < 0]
        self._codes[rows] = self._names.index(name)

    def count(
        self, labels: NDArray[np.integer], *, open_too: bool = False
    ) -> dict[tuple[int, str], int]:
        """Number of records by a label of theirs and fate."""
        if open_too:
            self.give(self.open, "of other reasons")
        if self.open.any():
            raise AssertionError("a record has no fate")
        cells, n = np.unique(
            labels.astype(np.int64) * len(self._names) + self._codes if len(labels) else labels,
            return_counts=True,
        )
        return {
            (int(cell) // len(self._names), self._names[int(cell) % len(self._names)]): int(k)
            for cell, k in zip(cells, n, strict=True)
        }


def counted(rows: list[tuple[str, str, str, int]]) -> pd.DataFrame:
    """The table of counts from (record, action, fate, n)."""
    counts = pd.DataFrame(rows, columns=["record", "action", "fate", "n"])
    counts.insert(2, "used", counts["fate"].isin(USED.values()))
    order = ["record", "used", "action", "n", "fate"]
    return counts.sort_values(order, ascending=[True, False, True, False, True], ignore_index=True)


def n_of(n: int, what: str, several: str | None = None) -> str:
    """A number of things in words."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"
