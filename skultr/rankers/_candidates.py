"""All documents that a query could have shown, whether it did or not: one row a candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._log._segments import TINY, encode, offsets_from_sorted
from .._typing import Bools, Floats, Ints

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

__all__ = ["Candidates", "find_candidates"]


class Candidates(NamedTuple):
    """One row a (query, document); within a query those that were shown come first.

    Parameters
    ----------
    query, doc : ndarray of shape (n_candidates,), int
        Codes of the log.
    shown : ndarray of shape (n_candidates,), bool
        Whether any session of the query showed the document.
    label : ndarray of shape (n_candidates,)
        (Debiased) clicks an impression; 0 where never shown.
    weight : ndarray of shape (n_candidates,)
        Impressions; of a document that was never shown, the impressions of the query's pages,
        each of which could have shown it.
    """

    query: Ints
    doc: Ints
    shown: Bools
    label: Floats
    weight: Floats

    def as_log(self, log: ClickLog) -> ClickLog:
        """The candidates of each query as one list of a click log, for training in batches.

        Click rates are the labels, and all rows that were shown have one bias factor.
        """
        offsets = offsets_from_sorted(self.query)
        first = np.repeat(offsets[:-1], np.diff(offsets))
        return replace(
            log,
            doc=self.doc,
            query=self.query,
            user=np.zeros_like(self.query),
            position=np.where(self.shown, np.arange(len(self.query)) - first + 1, -1),
            bias=np.where(self.shown, 0, -1),
            clicks=self.label * self.weight,
            weight=self.weight,
            shown=self.shown,
            propensity=None,
            offsets=offsets,
            bias_values=np.zeros(1, dtype=int),
        )


def find_candidates(log: ClickLog, clicks: Floats, traffic_exponent: float = 1.0) -> Candidates:
    """The candidates of the queries that were served at all.

    Parameters
    ----------
    log : ClickLog
    clicks : ndarray of shape (n_rows,)
        (Debiased) number of clicks of each row.
    traffic_exponent : float in [0, 1], default=1.0
        A query weighs as if its number of pages were raised to it.

    Returns
    -------
    candidates : Candidates
    """
    place, key = encode(log.query * len(log.features) + log.doc)
    query, doc = np.divmod(key, len(log.features))

    def total(values):
        return np.bincount(place, np.where(log.shown, values, 0.0), minlength=len(key))

    impressions = total(log.weight)
    shown = impressions > 0
    # How often a candidate row was written down says nothing: pages could have shown it, and
    # a log may keep it once a query.
    pages = _pages(log)
    weight = np.where(shown, impressions, pages[query])
    # Pages, not rows: how many rows were shown is what selection is about.
    weight *= np.maximum(pages, TINY)[query] ** (traffic_exponent - 1.0)
    label = np.divide(total(clicks), impressions, out=np.zeros(len(key)), where=shown)
    order = np.lexsort((doc, ~shown, query))
    order = order[weight[order] > 0]
    return Candidates(query[order], doc[order], shown[order], label[order], weight[order])


def _pages(log):
    """Impressions of the pages of each query: those of the row of a page that has the most."""
    of_list = np.maximum.reduceat(np.where(log.shown, log.weight, 0.0), log.offsets[:-1])
    query = log.query[log.offsets[:-1]]
    return np.bincount(query, of_list, minlength=len(log.query_ids))
