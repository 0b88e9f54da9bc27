"""All documents that a query could have shown, whether shown or not: one row per candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._base._typing import Bools, Floats, Ints
from .._log._segments import TINY, encode, offsets_from_sorted, pair_codes

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: The share of the variance of the rarest clicks (Poisson's) that is left at any rate.
_LEAST_SHARE = 0.05


class ClickChance(NamedTuple):
    """What chance does to labels that are clicks over propensities, per impression."""

    trials: Floats  # (n_candidates,)
    examination: Floats  # (n_candidates,)
    rate: float

    @property
    def variance(self) -> Floats:
        """Variance of each label if its document has the typical rate; 0 where never shown."""
        inverse = 1 / self.examination
        per_trial = self.rate * np.maximum(inverse - self.rate, _LEAST_SHARE * inverse)
        return np.divide(
            per_trial, self.trials, out=np.zeros(len(self.trials)), where=self.trials > 0
        )

    def draw(self, rows: Bools, relevance: Floats, random: np.random.Generator) -> Floats:
        """Labels of some rows whose documents have given rates."""
        trials = np.maximum(np.rint(self.trials[rows]), 1).astype(int)
        examination = self.examination[rows]
        clicks = random.binomial(trials, np.clip(relevance * examination, 0.0, 1.0))
        return clicks / (trials * examination)


class Candidates(NamedTuple):
    """One row per (query, version), sorted by query; shown documents come first within a query.

    Versions of a document share its label.
    """

    query: Ints  # (n_candidates,)
    version: Ints  # (n_candidates,)
    shown: Bools  # (n_candidates,)
    label: Floats  # (n_candidates,)
    weight: Floats  # (n_candidates,), impressions; of the query where never shown
    chance: ClickChance

    def as_log(self, log: ClickLog) -> ClickLog:
        """The candidates of each query as one list of a click log, for training in batches.

        Click rates are the labels, and all rows that were shown have one bias factor.
        """
        offsets = offsets_from_sorted(self.query)
        first = np.repeat(offsets[:-1], np.diff(offsets))
        return replace(
            log,
            version=self.version,
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


def find_candidates(
    log: ClickLog,
    clicks: Floats,
    traffic_exponent: float = 1.0,
    propensity: Floats | None = None,
) -> Candidates:
    """The candidates of the queries with at least one impression."""
    place, key = encode(pair_codes(log.query, log.doc, log.n_docs))
    query, doc = np.divmod(key, log.n_docs)

    def total(values):
        return np.bincount(place, np.where(log.shown, values, 0.0), minlength=len(key))

    impressions = total(log.weight)
    shown = impressions > 0
    # How often the log repeats a candidate that was never shown carries no information: every
    # page could have shown it, and a log may list it only once per query.
    pages = _pages(log)
    weight = np.where(shown, impressions, pages[query])
    # By page impressions, not row impressions: selection decides how many rows are shown.
    weight *= np.maximum(pages, TINY)[query] ** (traffic_exponent - 1.0)
    label = np.divide(total(clicks), impressions, out=np.zeros(len(key)), where=shown)
    propensity = np.ones(log.n_rows) if propensity is None else propensity
    examination = np.divide(
        impressions, total(log.weight / propensity), out=np.ones(len(key)), where=shown
    )
    # A document that was never shown divides its weight among all of its versions.
    counts = np.where(shown[place], np.where(log.shown, log.weight, 0.0), 1.0)
    pair, version, share = log.versions_of(query, doc, counts)
    query, shown, label, weight = query[pair], shown[pair], label[pair], weight[pair] * share
    impressions, examination = impressions[pair], examination[pair]
    order = np.lexsort((version, ~shown, query))
    order = order[weight[order] > 0]
    seen = log.shown
    rate = log.clicks[seen].sum() / max(log.weight[seen] @ propensity[seen], TINY)
    chance = ClickChance(impressions[order], examination[order], float(rate))
    return Candidates(
        query[order], version[order], shown[order], label[order], weight[order], chance
    )


def _pages(log):
    """Page impressions per query; a page counts as often as its most frequent row."""
    of_list = np.maximum.reduceat(np.where(log.shown, log.weight, 0.0), log.offsets[:-1])
    query = log.query[log.offsets[:-1]]
    return np.bincount(query, of_list, minlength=len(log.query_ids))
