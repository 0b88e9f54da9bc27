"""How often to serve two rankings in order to know the difference of their clicks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from .._log._segments import TINY
from .._typing import Floats
from ._interleaving import Interleaver
from ._interleaving_outcome import interleaving_outcome

__all__ = [
    "RankingDesign",
    "ab_sessions",
    "by_ranking",
    "interleaved",
    "served_rankings",
    "served_rows",
]

#: Standard deviations of the reported half-width that a plan adds to the expected one.
_ASSURANCE = 1.645
#: Least pages of a query whose rankings the log does not have.
_LEAST_PAGES = 3
#: Interleaved sessions that are simulated.
_SIMULATED = 20_000


class RankingDesign(NamedTuple):
    """Pages of each query with ranking a and b, and the precision that they give."""

    pages: Floats  # (n_queries, 2)
    difference: float
    expected: float
    promised: float


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


def served_rankings(model, rows, half_width, sessions):
    """Fewest pages with each ranking that tell the difference; None if all are not enough.

    With P(click) c at the changed places, the variance of a query is
    :math:`t^2 \\sum c (1 - c) / (E + n)`, E being pages of the log that tell as much.
    """
    share = model.pages / model.sessions
    noise = rows.clicks * (1 - rows.clicks) * (rows.sign != 0)
    total = by_ranking(model, rows, noise)
    missing = by_ranking(model, rows, noise / np.maximum(rows.logged, TINY))
    logged = total / np.maximum(missing, TINY)
    weight = np.bincount(rows.pair, rows.sign * rows.examination, minlength=len(model.query))
    by_query = np.bincount(model.query, weight * model.relevance, minlength=len(share))
    difference = share @ by_query
    spread = (by_query - difference) ** 2
    spread += np.bincount(model.query, weight**2 * model.doubt, minlength=len(share))
    changes = share * by_ranking(model, rows, np.abs(rows.sign)).sum(axis=1)
    n_queries = max(changes.sum() ** 2 / (changes**2).sum(), 2.0)
    z = student.ppf(0.975, n_queries - 1)
    spread *= len(share) / max(len(share) - 1, 1)
    most = (sessions * share)[:, None] * (total > 0)
    least = np.minimum(most, _LEAST_PAGES) * (logged < _LEAST_PAGES)

    def design(price):
        pages = np.clip(price * share[:, None] * np.sqrt(total) - logged, least, most)
        pages *= np.minimum(1, sessions * share / np.maximum(pages.sum(axis=1), TINY))[:, None]
        chance = (total / np.maximum(logged + pages, TINY)).sum(axis=1)
        variance = (share**2 * (spread + chance)).sum()
        noise = (share**4 * (4 * spread * chance + 2 * chance**2)).sum() / variance**2
        half = z * np.sqrt(variance)
        return RankingDesign(pages, difference, half, half * (1 + _ASSURANCE * np.sqrt(noise) / 2))

    low, high = 0.0, 1e3 * (sessions + model.sessions) / np.sqrt(total.max())
    if design(high).promised > half_width:
        return None, design(high).promised
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if design(middle).promised <= half_width else (middle, high)
    return design(high), half_width


def ab_sessions(model, rows, half_width):
    """Sessions of an A/B test, analysed by session, with this half-width."""
    share = model.pages / model.sessions
    mean = by_ranking(model, rows, rows.clicks)
    noise = by_ranking(model, rows, rows.clicks * (1 - rows.clicks))
    variance = share @ (noise + (mean - share @ mean) ** 2)
    return 2 * variance.sum() * (1.96 / half_width) ** 2


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
