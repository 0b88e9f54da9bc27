"""Weights of the members of an ensemble, by clicks of queries that they were not fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from .._base._sklearn import silent_clone
from .._base._typing import Floats, Ints
from .._log._segments import mix
from .._models._free_effects import FreeEffects
from ._candidates import candidates_of, standardized
from ._members import fit_member, scores_of
from ._thresholds import LEAST_QUERIES

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows to be scored by what was fitted without the part of their query."""

    query: Ints  # (n_rows,), rows of a query belong together
    part: Ints  # (n_rows,)
    features: Callable[[Ints], NDArray[Any]]  # of the rows at some places


def cross_fitted(
    log: ClickLog, rankers: Sequence[Any], part: Ints, n_jobs: int | None = None
) -> NDArray[np.float64]:  # (n_rows, n_rankers)
    """Scores of the rows by rankers that were fitted to the other parts of the queries.

    They are standardised over the candidates of each query.
    """
    candidates, place = candidates_of(log)
    query, version = np.divmod(candidates, log.n_versions)
    rows = HeldOutRows(query, part[query], lambda here: log.features[version[here]])
    return scores_elsewhere(log, rankers, part, rows, n_jobs)[place]


def scores_elsewhere(
    log: ClickLog,
    rankers: Sequence[Any],
    part: Ints,
    rows: HeldOutRows,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:  # (n_rows, n_rankers)
    """Scores of rows by rankers fitted to queries of the log in other parts, standardised."""
    n_parts = part.max() + 1
    work = [(number, held_out) for number in range(len(rankers)) for held_out in range(n_parts)]
    places = [np.flatnonzero(rows.part == held_out) for held_out in range(n_parts)]

    def scored(number, held_out):
        """Work for one process: a ranker, without a part of the queries, scores this part."""
        here = places[held_out]
        others = np.flatnonzero(part != held_out)
        features = rows.features(here)
        return delayed(_fitted_elsewhere)(rankers[number], log, others, features, rows.query[here])

    found = Parallel(n_jobs=n_jobs)(scored(*each) for each in work)
    scores = np.zeros((len(rows.query), len(rankers)))
    for (number, held_out), values in zip(work, found, strict=True):
        scores[places[held_out], number] = values
    columns = [standardized(column, rows.query) for column in scores.T]
    return np.column_stack(columns)


def parts_of_queries(log: ClickLog, n_parts: int, random: np.random.RandomState) -> Ints | None:
    """Part of each query, with as many queries with clicks in each; None if these are few."""
    clicked = np.bincount(log.query, log.clicks, len(log.query_ids)) > 0
    if clicked.sum() < max(LEAST_QUERIES.value, n_parts):
        return None
    # A sum over clicks and impressions by position, so that parts depend neither on ids nor on
    # which equal pages were merged.
    content = np.zeros(len(clicked), dtype=np.uint64)
    for rows in log.chunks():
        by_click = mix(rows.position.astype(np.uint64))
        by_impression = mix(by_click)
        clicks = rows.clicks.astype(np.uint64)
        impressions = rows.weight.astype(np.uint64)
        np.add.at(content, rows.query, by_click * clicks + by_impression * impressions)
    seed = np.uint64(random.randint(2**31 - 1))
    # Dealt out like cards, those with clicks first.
    order = np.lexsort([mix(content ^ seed), ~clicked])
    part = np.empty(len(clicked), dtype=int)
    part[order] = np.arange(len(order)) % n_parts
    return part


def likeliest_weights(
    held_out: FreeEffects, share: Floats, unconfirmed: Floats, spread: float = 0.5
) -> tuple[Floats, Floats]:
    """Weights that sum to 1 and their standard errors over queries, each (n_members,).

    The most likely ones given a normal prior around ``share``, in units of the factor with which
    this mixture fits best, so that few clicks leave the mixture as it is. Where this factor is 0,
    ``unconfirmed`` takes the place of ``share``. Before the clicks are seen, the standard
    deviation of a weight is ``spread`` of its mean.
    """
    scores = held_out.scores
    # The mixture of the prior as one column, whose weight is the factor.
    _, _, factor = held_out.mix(scores @ share[:, None])
    scale = float(factor[0])
    # In logits for one standard deviation of scores. A mixture below a thousandth is one that
    # clicks do not confirm; with 0 the prior would have no spread.
    least = 1e-3
    if scale < least:
        scale = least
        share = unconfirmed
    # Strength: one over the variance of the prior.
    strength = (spread * scale * share) ** -2
    logits, _, weights = held_out.mix(scores, scale * share, strength)
    errors = _errors_of_shares(held_out, logits, weights, strength)
    return weights / weights.sum(), errors


def _errors_of_shares(held_out, logits, weights, strength):
    """Standard errors over queries of weights that sum to 1; NaN where a weight is 0."""
    choice = held_out.choice
    shares = choice.shares(logits)
    expected = choice.expected(shares)
    used = np.flatnonzero(weights > 0)
    # Scores less what free effects of bias factors and their query explain.
    columns = np.column_stack([held_out.within(held_out.scores[:, m], shares) for m in used])
    surplus = choice.clicks - expected
    gradient = np.column_stack([held_out.by_query(surplus * column) for column in columns.T])
    hessian = columns.T @ (expected[:, None] * columns) + np.diag(strength[used])
    # Of weights that sum to 1, by the delta method.
    total = weights.sum()
    to_share = np.eye(len(weights))[:, used] / total - weights[:, None] / total**2
    influence = gradient @ np.linalg.inv(hessian) @ to_share.T
    return np.where(weights > 0, np.linalg.norm(influence, axis=0), np.nan)


def _fitted_elsewhere(ranker, log, others, features, query):
    ranker = _halved(silent_clone(ranker))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to the whole log warns
        return scores_of(fit_member(ranker, log.part_of(others)), features, query)


def _halved(ranker):
    """A ranker that trains half as long: its scores are compared, and are then thrown away."""
    patience = ranker.get_params(deep=False).get("n_iter_no_change")
    if isinstance(patience, Integral) and patience > 1:
        # Trees beyond the best one are half of the time.
        ranker.set_params(n_iter_no_change=(int(patience) + 1) // 2)
    if hasattr(ranker, "_length"):
        ranker._length = ranker._length / 2
    return ranker
