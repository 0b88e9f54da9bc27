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

        Click rates are the labels. Rows have their number in place of a bias factor, by which
        losses find what else is known of them.
        """
        offsets = offsets_from_sorted(self.query)
        rows = np.arange(len(self.query))
        return replace(
            log,
            version=self.version,
            query_of_list=self.query[offsets[:-1]],
            user=np.zeros_like(self.query),
            position=rows - np.repeat(offsets[:-1], np.diff(offsets)) + 1,
            bias=rows,
            clicks=self.label * self.weight,
            weight=self.weight,
            propensity=None,
            offsets=offsets,
        )


def find_candidates(
    log: ClickLog,
    clicks: Floats,
    traffic_exponent: float = 1.0,
    propensity: Floats | None = None,
) -> Candidates:
    """The candidates of the queries with at least one impression."""
    place, key = encode(pair_codes(log.query, log.doc, log.n_docs))

    def total(values):
        return np.bincount(place, values, minlength=len(key))

    rest = log.candidates
    pair_of_rest = pair_codes(rest.query, log.doc_of_version[rest.version], log.n_docs)
    never = ~np.isin(pair_of_rest, key)
    n_never = np.count_nonzero(never)
    query, doc = np.divmod(key, log.n_docs)
    pair, version, share = log.versions_of(query, doc)
    query = np.concatenate([query[pair], rest.query[never]])
    version = np.concatenate([version, rest.version[never]])
    shown = np.arange(len(query)) < len(pair)

    def values_of(documents, others):
        return np.concatenate([documents[pair], np.broadcast_to(others, n_never)])

    propensity = np.ones(log.n_rows) if propensity is None else propensity
    of_doc = total(log.weight)
    impressions = values_of(of_doc, 0.0)
    examination = values_of(of_doc / total(log.weight / propensity), 1.0)
    label = values_of(total(clicks) / of_doc, 0.0)
    # Every page of a query could have shown a candidate that was never shown.
    pages = _pages(log)
    weight = np.where(shown, impressions, pages[query])
    # By page impressions, not row impressions: selection decides how many rows are shown.
    weight *= np.maximum(pages, TINY)[query] ** (traffic_exponent - 1.0)
    # Versions of a document divide its weight.
    place = encode(pair_of_rest[never])[0]
    weight *= np.concatenate([share, 1 / np.bincount(place)[place]])
    order = np.lexsort((version, ~shown, query))
    order = order[weight[order] > 0]
    rate = log.clicks.sum() / max(log.weight @ propensity, TINY)
    chance = ClickChance(impressions[order], examination[order], float(rate))
    return Candidates(
        query[order], version[order], shown[order], label[order], weight[order], chance
    )


def _pages(log):
    """Page impressions per query; a page counts as often as its most frequent row."""
    of_list = np.maximum.reduceat(log.weight, log.offsets[:-1])
    query = log.query[log.offsets[:-1]]
    return np.bincount(query, of_list, minlength=len(log.query_ids))
