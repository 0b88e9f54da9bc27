"""How often to serve two rankings in order to know the difference of their clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from .._log._segments import TINY
from .._typing import Floats
from ._doubts import LEAST_QUERIES
from ._interleaving import Interleaver
from ._interleaving_outcome import interleaving_outcome

#: Standard deviations of the reported half-width that a plan adds to the expected one. Their
#: formula leaves out errors of the log about how much queries differ: 2.3 reached it in 85 %.
_ASSURANCE = 4.0
#: Least pages of a query whose rankings the log does not have.
_LEAST_PAGES = 4
#: Expected share of clicks of pages that are not seen; policy_difference cannot tell above 0.1.
_MOST_UNSEEN = 0.02
#: In place of 0 in a denominator.
_NO_PAGE = 1e-6
#: Least cost of a page, as a share of the mean clicks of a page: the log's costs are uncertain.
_LEAST_COST = 0.1
#: Interleaved sessions that are simulated.
_SIMULATED = 20_000


@dataclass(frozen=True, eq=False)
class RankingTest:
    r"""What pages with each ranking tell of the difference.

    With P(click) c at the changed places and a share t of the traffic, a query adds
    :math:`t^2 \sum c (1 - c) / (E + n)` to the variance; E are the pages of the log that tell as
    much as n of the experiment.
    """

    share: Floats  # of each query in the traffic
    n_logged: Floats  # pages of each query in the log
    clicks: Floats  # per page, by query and ranking
    lost: Floats  # clicks of a page of the log minus those
    noise: Floats  # sum of c (1 - c), by query and ranking
    logged: Floats  # E
    difference: float
    spread: Floats  # squared distance of the difference of each query from their mean
    quantile: float

    @classmethod
    def of(cls, log, model, a, b):
        both, n = a.and_of(b), len(model.pages)
        changed = a.changed(b)
        if not changed.any():
            raise ValueError(
                "scores_a and scores_b rank all documents in the same order: there is no "
                "difference to plan for. Pass two different rankings."
            )

        def by_ranking(values):
            key = log.slot_query[both.slot] * 2 + both.ranking
            return np.bincount(key, values, minlength=2 * n).reshape(n, 2)

        place = log.slot_position[both.slot].astype(int) - 1
        clicks = np.minimum(model.relevance[both.pair] * model.examination[place], 1)
        noise = clicks * (1 - clicks) * changed
        alone = by_ranking(noise / np.maximum(model.shown[both.pair, place], TINY))
        weight = (1 - 2 * both.ranking) * changed * model.examination[place]
        weight = np.bincount(both.pair, weight, minlength=len(model.query))
        share, changes = model.pages / model.sessions, by_ranking(changed).sum(axis=1)
        by_query = np.bincount(model.query, weight * model.relevance, minlength=n)
        spread = (by_query - share @ by_query) ** 2
        spread += np.bincount(model.query, weight**2 * model.doubt, minlength=n)
        of_log = model.relevance * (model.shown @ model.examination)
        of_log = np.bincount(model.query, of_log, minlength=n)
        n_queries = (share @ changes) ** 2 / ((share * changes) ** 2).sum()
        if n_queries < LEAST_QUERIES:
            raise ValueError(
                f"The queries whose rankings differ are worth {n_queries:.1f} of equal weight, "
                f"and policy_difference needs {LEAST_QUERIES}. Pass a log with more queries."
            )
        return cls(
            share=share,
            n_logged=np.maximum(model.pages, TINY),
            clicks=by_ranking(clicks),
            lost=(of_log / np.maximum(model.pages, TINY))[:, None] - by_ranking(clicks),
            noise=by_ranking(noise),
            logged=by_ranking(noise) / np.maximum(alone, TINY),
            difference=float(share @ by_query),
            spread=spread * n / (n - 1),
            quantile=student.ppf(0.975, n_queries - 1),
        )

    def half_widths(self, pages: Floats, sessions: float = 0.0) -> tuple[float, float]:
        """Expected, and the one that 95 % of experiments reach, after the log and the experiment.

        ``pages`` are those with each ranking; in the rest of so many ``sessions`` the pages are as
        in the log.
        """
        rest = np.maximum(sessions * self.share - pages.sum(axis=1), 0)
        pages = pages + self.logged * (1 + rest / self.n_logged)[:, None]
        chance = (self.noise / np.maximum(pages, _NO_PAGE)).sum(axis=1)
        variance = (self.share**2 * (self.spread + chance)).sum()
        of_variance = (self.share**4 * (4 * self.spread * chance + 2 * chance**2)).sum()
        half = self.quantile * np.sqrt(variance)
        due = self.share[:, None] * self.noise
        if ((due * np.exp(-pages)).sum(axis=0) > _MOST_UNSEEN * due.sum(axis=0)).any():
            return half, np.inf
        return half, half * (1 + _ASSURANCE * np.sqrt(of_variance) / variance / 2)

    def cheapest_pages(self, sessions: float, half_width: float) -> Floats:
        """Pages with each ranking that tell the difference for the fewest clicks, or tell most."""
        most = sessions * self.share[:, None] * (self.noise > 0)
        least = np.minimum(most, _LEAST_PAGES) * (self.logged < _LEAST_PAGES)
        cost = np.maximum(self.lost, _LEAST_COST * self.clicks.mean())
        usual = self.share[:, None] * np.sqrt(self.noise / cost)  # the best are in proportion
        high = ((most + self.logged) / np.maximum(usual, TINY))[self.noise > 0].max()
        tried = []
        for price in np.geomspace(high / 1e5, high, 300):
            pages = np.clip(price * usual - self.logged, least, most)
            fits = most.max(axis=1) / np.maximum(pages.sum(axis=1), TINY)
            tried.append(pages * np.minimum(1, fits)[:, None])
        reached = np.array([self.half_widths(pages, sessions)[1] for pages in tried])
        enough = reached <= half_width
        return tried[enough.argmax() if enough.any() else reached.argmin()]

    def even_sessions(self, half_width: float) -> float:
        """Sessions of an A/B test, read together with the log."""
        each, (low, high) = self.share[:, None] / [2, 2], (1.0, 1e12)
        if (least := self.half_widths(high * each)[1]) > half_width:
            raise ValueError(
                f"No experiment reaches half_width={half_width:g}, because queries differ too "
                f"much: the least is {least:.3g}. Pass a larger half_width, or a log with more "
                "queries."
            )
        for _ in range(60):
            middle = np.sqrt(low * high)
            enough = self.half_widths(middle * each)[1] <= half_width
            low, high = (low, middle) if enough else (middle, high)
        return high


def interleaved(log, model, a, b, certainty):
    """Sessions of team-draft lists that find a winner as surely, and their clicks per page.

    ``certainty`` is the difference in standard errors. None if 20,000 simulated sessions see none.
    """
    rng, n_pairs = np.random.default_rng(0), len(model.query)
    X = pd.DataFrame({"qid": model.query, "doc": np.arange(n_pairs)})
    scores = {"a": np.full(n_pairs, np.nan), "b": np.full(n_pairs, np.nan)}
    for of, pages in zip(scores.values(), (a, b), strict=True):
        of[pages.pair] = -log.slot_position[pages.slot]
    held = model.pages[model.query] > 0
    asked = rng.choice(len(model.pages), _SIMULATED, p=model.pages / model.sessions)
    lists = Interleaver(n_positions=len(model.examination), random_state=0).interleave(
        X[held], {name: of[held] for name, of in scores.items()}, asked
    )
    chance = model.relevance[lists["doc"]] * model.examination[lists["position"] - 1]
    found = interleaving_outcome(lists, rng.random(len(lists)) < chance, cluster="session")
    row = found.pairs.iloc[0]
    seen = abs(row["preference"] - 0.5) / max((row["upper"] - row["lower"]) / 2 / 1.96, TINY)
    if seen < 2:
        return None
    return _SIMULATED * (certainty / seen) ** 2, chance.sum() / _SIMULATED
