"""Where documents stood: the number of the first position, later pages, colliding ordinals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: An application counts from 0 if such a share of its pages does: a stray 0 decides nothing.
LEAST_SHARE = 0.05
_PLACED = "clicks and outcomes stand at their place in the hit list"


@dataclass
class Shown:
    """Documents on pages: index from 0, place in the hit list and event; -1 for none."""

    page: NDArray[Any]  # (n_rows,)
    doc: NDArray[Any]  # (n_rows,)
    at: NDArray[Any]  # (n_rows,)
    place: NDArray[Any]  # (n_rows,)
    event: NDArray[Any]  # (n_rows,)

    def take(self, rows: NDArray[Any]) -> Shown:
        """Some of the rows."""
        return Shown(*(values[rows] for values in vars(self).values()))

    def joined(self, other: Shown) -> Shown:
        """These rows, then others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Shown(*(np.concatenate(pair) for pair in pairs))

    def shared(self, *, spare_first: bool = False) -> NDArray[np.bool_]:
        """True where another document stands at the position of the page."""
        cells = pd.Series(self.page.astype(np.int64) << 32 | self.at)
        return cells.duplicated(keep="first" if spare_first else False).to_numpy()


def new(values: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a sorted value is not that before it."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def lookup(keys: NDArray[Any], values: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Value of each wanted key among sorted keys; -1 if it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=values.dtype)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], -1)


def bases_of(
    ordinal: NDArray[Any],
    place: NDArray[Any],
    page: NDArray[Any],
    application: NDArray[Any],
    by_hits: NDArray[np.bool_],
    starts: NDArray[Any],
    n_applications: int,
) -> tuple[NDArray[np.int64], dict[int, tuple[int, int, str]]]:
    """The ordinal of the first position, 0 or 1, by application (the last: of unknown ones); and
    how many pages begin there (or clicks stand at their place), of all that count, and what
    counted.

    ``by_hits``: rows of clicks and outcomes, where the base is that under which most stand at
    their place in the hit list.
    """
    lowest = pd.Series(ordinal).groupby(page).min()
    start = starts[lowest.index]
    lowest -= np.where(lowest >= start, start, 0)  # as if all pages restarted
    of_page = pd.Series(application).groupby(page).first()
    base = np.ones(n_applications, dtype=np.int64)
    support: dict[int, tuple[int, int, str]] = {}
    for code, values in lowest.groupby(of_page):
        base[code] = int((values == 0).mean() < LEAST_SHARE)
        support[int(code)] = int((values == base[code]).sum()), len(values), "pages begin there"
    placed = by_hits & (place >= 0) & (starts[page] == 0)
    shift = pd.Series(ordinal[placed] - place[placed])
    for code, values in shift.groupby(application[placed]):
        base[code] = int((values == 0).sum() < (values == 1).sum())
        support[int(code)] = int((values == base[code]).sum()), len(values), _PLACED
    return base, support


def indices_of(
    ordinal: NDArray[Any],
    base: NDArray[Any],
    page: NDArray[Any],
    starts: NDArray[Any],
    leading: NDArray[np.bool_],
) -> tuple[NDArray[Any], int]:
    """Index from 0 over all pages of a search, -1 if unknown; number of pages that restarted."""
    index = np.where((ordinal >= 0) & (ordinal >= base), ordinal - base, -1).astype(np.int32)
    start = starts[page]
    later = (start > 0) & (index >= 0)
    lowest = np.full(len(starts), np.iinfo(np.int64).max)
    np.minimum.at(lowest, page[later & leading], index[later & leading])
    # Ordinals restart on a later page if they begin before its start; else they go on.
    restarts = later & (lowest[page] < start)
    index[restarts] += start[restarts].astype(np.int32)
    return index, len(np.unique(page[restarts]))


def separated(
    shown: Shown, n_ids: int
) -> tuple[Shown, NDArray[np.bool_], NDArray[np.bool_], dict[str, NDArray[Any]]]:
    """One document per position: by the hit list on pages where ordinals collide; these pages,
    those of them with a hit list, and the rows that were left out, by reason."""
    collided = np.zeros(n_ids, dtype=bool)
    collided[shown.page[shown.shared()]] = True
    if not collided.any():
        return shown, collided, collided, {}
    by_place = np.zeros(n_ids, dtype=bool)
    by_place[shown.page[shown.place >= 0]] = True
    by_place &= collided
    unknown = (collided & ~by_place)[shown.page]
    lost = {"two documents at one ordinal of its page": shown.take(unknown)}
    shown = shown.take(~unknown)
    placed = by_place[shown.page] & (shown.place >= 0)
    shown.at = np.where(placed, shown.place, shown.at)
    # Documents that the hit list does not hold give way to those that it holds.
    taken = shown.shared() & (shown.place < 0)
    rest = shown.take(~taken)
    twice = rest.shared(spare_first=True)
    lost["its position is taken by another document"] = shown.take(taken).joined(rest.take(twice))
    return rest.take(~twice), collided, by_place, lost
