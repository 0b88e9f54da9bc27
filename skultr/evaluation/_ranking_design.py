"""How often to serve two rankings in order to know the difference of their clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from .._log._segments import TINY
from .._typing import Floats
from ._interleaving import Interleaver
from ._interleaving_outcome import interleaving_outcome

__all__ = ["RankingTest", "by_ranking", "interleaved", "served_rows"]

#: Standard deviations of the reported half-width that a plan adds to the expected one. Their
#: formula leaves out errors of the log about how much queries differ: 2.3 reached it in 85 %.
_ASSURANCE = 4.0
#: Least pages of a query whose rankings the log does not have.
_LEAST_PAGES = 8
#: Expected share of clicks of pages that are not seen; policy_difference cannot tell above 0.05.
_MOST_UNSEEN = 0.02
#: In place of 0 in a denominator.
_NO_PAGE = 1e-6
#: Interleaved sessions that are simulated.
_SIMULATED = 20_000


class _Served(NamedTuple):
    """What two rankings show: one row per document on a page of each."""

    query: Floats
    ranking: Floats
    clicks: Floats  # P(click)
    pair: Floats
    sign: Floats  # 1 for a, -1 for b; 0 where both have the same document
    examination: Floats
    logged: Floats  # impressions of the document at this position in the log


def served_rows(log, model, a, b):
    """Rows of both rankings."""
    both = a.and_of(b)
    place = log.slot_position[both.slot].astype(int) - 1
    changed = np.concatenate([~np.isin(a.key, b.key), ~np.isin(b.key, a.key)])
    if not changed.any():
        raise ValueError(
            "scores_a and scores_b rank all documents in the same order: there is no difference "
            "to plan for. Pass two different rankings."
        )
    return _Served(
        query=log.slot_query[both.slot],
        ranking=both.ranking,
        clicks=np.minimum(model.relevance[both.pair] * model.examination[place], 1),
        pair=both.pair,
        sign=(1.0 - 2 * both.ranking) * changed,
        examination=model.examination[place],
        logged=model.shown[both.pair, place],
    )


def by_ranking(model, rows, values):
    """Sums by query and ranking."""
    key = rows.query * 2 + rows.ranking
    return np.bincount(key, values, minlength=2 * len(model.pages)).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class RankingTest:
    r"""What pages with each ranking tell of the difference.

    With P(click) c at the changed places and a share t of the traffic, a query adds
    :math:`t^2 \sum c (1 - c) / (E + n)` to the variance; E are the pages of the log that tell as
    much as n of the experiment.
    """

    share: Floats  # of each query
    noise: Floats  # sum of c (1 - c), by query and ranking
    logged: Floats  # E
    difference: float
    spread: Floats  # squared distance of the difference of each query from their mean
    quantile: float

    @classmethod
    def of(cls, model, rows):
        share = model.pages / model.sessions
        noise = rows.clicks * (1 - rows.clicks) * (rows.sign != 0)
        total = by_ranking(model, rows, noise)
        alone = by_ranking(model, rows, noise / np.maximum(rows.logged, TINY))
        weight = np.bincount(rows.pair, rows.sign * rows.examination, minlength=len(model.query))
        by_query = np.bincount(model.query, weight * model.relevance, minlength=len(share))
        difference = share @ by_query
        spread = (by_query - difference) ** 2
        spread += np.bincount(model.query, weight**2 * model.doubt, minlength=len(share))
        changes = share * by_ranking(model, rows, np.abs(rows.sign)).sum(axis=1)
        n_queries = max(changes.sum() ** 2 / (changes**2).sum(), 2.0)
        return cls(
            share=share,
            noise=total,
            logged=total / np.maximum(alone, TINY),
            difference=float(difference),
            spread=spread * len(share) / max(len(share) - 1, 1),
            quantile=student.ppf(0.975, n_queries - 1),
        )

    def half_widths(self, pages):
        """Expected half-width, and the one that 95 % of experiments reach."""
        chance = (self.noise / np.maximum(pages, _NO_PAGE)).sum(axis=1)
        variance = (self.share**2 * (self.spread + chance)).sum()
        of_variance = (self.share**4 * (4 * self.spread * chance + 2 * chance**2)).sum()
        half = self.quantile * np.sqrt(variance)
        due = self.share[:, None] * self.noise
        if ((due * np.exp(-pages)).sum(axis=0) > _MOST_UNSEEN * due.sum(axis=0)).any():
            return half, np.inf
        return half, half * (1 + _ASSURANCE * np.sqrt(of_variance) / variance / 2)

    def pages(self, sessions, price):
        """Pages with each ranking: the best for their number, which rises with ``price``."""
        most = sessions * self.share[:, None] * (self.noise > 0)
        least = np.minimum(most, _LEAST_PAGES) * (self.logged < _LEAST_PAGES)
        best = price * self.share[:, None] * np.sqrt(self.noise) - self.logged
        pages = np.clip(best, least, most)
        return (
            pages * np.minimum(1, most.max(axis=1) / np.maximum(pages.sum(axis=1), TINY))[:, None]
        )

    def fewest(self, sessions, half_width):
        """Fewest pages with each ranking that tell the difference, or those that tell most."""
        high = (sessions * self.share[:, None] + self.logged)[self.noise > 0]
        high = (high / (self.share[:, None] * np.sqrt(self.noise))[self.noise > 0]).max()
        tried = [self.pages(sessions, price) for price in np.geomspace(high / 1e5, high, 300)]
        reached = np.array([self.half_widths(self.logged + pages)[1] for pages in tried])
        enough = reached <= half_width
        return tried[enough.argmax() if enough.any() else reached.argmin()]

    def even_sessions(self, half_width):
        """Sessions of an A/B test; infinite if the queries alone differ too much."""
        low, high = 1.0, 1e12
        if self.half_widths(high * np.ones_like(self.noise))[1] > half_width:
            return np.inf
        for _ in range(60):
            middle = np.sqrt(low * high)
            reached = self.half_widths(middle / 2 * self.share[:, None] * np.ones(2))[1]
            low, high = (low, middle) if reached <= half_width else (middle, high)
        return high


def interleaved(log, model, a, b, certainty):
    """Sessions of team-draft lists that find a winner as surely, and their clicks per page.

    ``certainty`` is the difference in standard errors. None if 20,000 simulated sessions see none.
    """
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"qid": log.pair_query, "doc": np.arange(len(log.pair_query))})
    scores = {}
    for name, pages in (("a", a), ("b", b)):
        scores[name] = np.full(len(X), np.nan)
        scores[name][pages.pair] = -log.slot_position[pages.slot]
    held = np.isin(X["qid"], a.log.slot_query[a.slot])
    asked = rng.choice(len(model.pages), _SIMULATED, p=model.pages / model.sessions)
    depth = len(model.examination)
    lists = Interleaver(n_positions=depth, random_state=0).interleave(
        X[held], {name: of[held] for name, of in scores.items()}, asked
    )
    chance = model.relevance[lists["doc"]] * model.examination[lists["position"] - 1]
    found = interleaving_outcome(lists, rng.random(len(lists)) < chance, cluster="session")
    row = found.pairs.iloc[0]
    seen = abs(row["preference"] - 0.5) / max((row["upper"] - row["lower"]) / 2 / 1.96, TINY)
    if seen < 2:
        return None
    return _SIMULATED * (certainty / seen) ** 2, chance.sum() / _SIMULATED
