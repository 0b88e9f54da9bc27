"""Ranking metrics of one rectangle of ranked lists: a value per query, without checks.

In every function ``relevance`` (n_queries, width) is in rank order and 0 beyond the end of a
list; ``leads`` is True where a run of equal scores begins (and beyond the end); ``cutoffs`` is a
list of k, None for all ranks. Each returns (n_queries, len(cutoffs)), with NaN where no document
is relevant (DCG: 0).
"""

from __future__ import annotations

import numpy as np

from .._log._segments import offsets_from_counts, rectangles
from .._typing import Bools, Floats, Ints


def dcg_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, gain: str
) -> Floats:
    """Discounted cumulative gain of each query, shape (n_queries, n_cutoffs)."""
    gains = _average_runs(_gains(relevance, gain), leads)
    return _sum_to_cutoffs(gains, _discounts(gains.shape[1]), cutoffs)


def ndcg_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, gain: str
) -> Floats:
    """DCG divided by the DCG of the ideal order; NaN without a relevant document."""
    gains = _gains(relevance, gain)
    discounts = _discounts(gains.shape[1])
    ideal = _sum_to_cutoffs(np.sort(gains, axis=1)[:, ::-1], discounts, cutoffs)
    value = _sum_to_cutoffs(_average_runs(gains, leads), discounts, cutoffs)
    return np.divide(value, ideal, out=np.full_like(value, np.nan), where=ideal > 0)


def precision_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, threshold: float
) -> Floats:
    """Share of relevant documents among the first k (without k, in the list)."""
    relevant = (relevance >= threshold).astype(float)
    hits = _sum_to_cutoffs(_average_runs(relevant, leads), np.ones(relevant.shape[1]), cutoffs)
    denominators = np.column_stack(
        [lengths if k is None else np.full(len(lengths), k) for k in cutoffs]
    )
    return _undefined_without(relevant, hits / denominators)


def average_precision_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, threshold: float
) -> Floats:
    """Mean of the precision at the ranks of the relevant documents."""
    relevant = (relevance >= threshold).astype(float)
    ranks = np.arange(1, relevant.shape[1] + 1)
    found = np.cumsum(relevant, axis=1)
    if not leads.all():
        # In a run of n documents with m relevant ones, a relevant document at place i of the run
        # has (i - 1)(m - 1)/(n - 1) other relevant documents of the run above it on average.
        start, size, run = _runs(leads)
        n_relevant = np.add.reduceat(relevant.ravel(), start)
        before = (found - relevant).ravel()[start]
        others = np.maximum(n_relevant - 1, 0) / np.maximum(size - 1, 1)
        place = np.arange(relevant.size) - start[run]
        found = (before[run] + place * others[run] + 1).reshape(relevant.shape)
    terms = _average_runs(relevant, leads) * found
    total = _sum_to_cutoffs(terms, 1 / ranks, cutoffs)
    return _undefined_without(relevant, total / np.maximum(relevant.sum(axis=1), 1)[:, None])


def err_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, max_grade: float
) -> Floats:
    """Expected reciprocal of the rank at which the user stops."""
    stop = _gains(relevance, "exponential") / 2.0**max_grade
    return _undefined_without(relevance, _expected_inverse_stop(stop, leads, cutoffs))


def reciprocal_rank_per_query(
    relevance: Floats, leads: Bools, lengths: Ints, cutoffs: list[int | None], *, threshold: float
) -> Floats:
    """Reciprocal rank of the first relevant document."""
    stop = (relevance >= threshold).astype(float)
    return _undefined_without(stop, _expected_inverse_stop(stop, leads, cutoffs))


def _gains(relevance, gain):
    return relevance if gain == "linear" else np.exp2(relevance) - 1


def _discounts(width):
    return 1 / np.log2(1 + np.arange(1, width + 1))


def _sum_to_cutoffs(terms, discounts, cutoffs):
    return np.column_stack([terms[:, :k] @ discounts[:k] for k in cutoffs])


def _undefined_without(relevant, values):
    values[~(relevant > 0).any(axis=1)] = np.nan
    return values


# --------------------------------------------------------------------------------------
# Ties: runs of equal scores
# --------------------------------------------------------------------------------------
def _runs(leads):
    """Flat start and size of each run, and the run of each cell."""
    flat = leads.ravel()
    start = np.flatnonzero(flat)
    return start, np.diff(start, append=flat.size), np.cumsum(flat) - 1


def _average_runs(values, leads):
    """Expected value at each rank: the mean over its run (McSherry & Najork 2008)."""
    if leads.all():
        return values
    start, size, run = _runs(leads)
    return (np.add.reduceat(values.ravel(), start) / size)[run].reshape(values.shape)


def _expected_inverse_stop(stop, leads, cutoffs):
    """Expected 1 / rank of the stop of a user who scans down; 0 without a stop."""
    survival = np.cumprod(1 - stop, axis=1)
    if not leads.all():
        survival = _average_survival(stop, survival, leads, _widest(cutoffs, stop.shape[1]))
    before = np.ones_like(survival)
    before[:, 1:] = survival[:, :-1]
    ranks = np.arange(1, stop.shape[1] + 1)
    return _sum_to_cutoffs(before - survival, 1 / ranks, cutoffs)


def _widest(cutoffs, width):
    return min(width, max(width if k is None else k for k in cutoffs))


def _average_survival(stop, survival, leads, k):
    """Survival after each rank up to k, averaged over the order within runs."""
    start, size, _ = _runs(leads)
    # The product up to the start of a run does not depend on the order within earlier runs.
    before = np.ones_like(stop)
    before[:, 1:] = survival[:, :-1]
    before, result, stay = before.ravel(), survival.ravel().copy(), 1 - stop.ravel()
    tied = (size > 1) & (start % stop.shape[1] < k)
    start, offsets = start[tied], offsets_from_counts(size[tied])
    for runs, place in rectangles(offsets):
        cells = start[runs, None] + np.where(place >= 0, place - offsets[runs, None], 0)
        expected = _expected_products(stay[cells], place >= 0, min(k, place.shape[1]))
        filled = (place >= 0)[:, : expected.shape[1]]
        cells = cells[:, : expected.shape[1]]
        result[cells[filled]] = (before[start[runs], None] * expected)[filled]
    return result.reshape(stop.shape)


def _expected_products(values, present, n_factors):
    """Mean product of i values of a row over all subsets of i values, i = 1, ..., n_factors.

    This is the elementary symmetric polynomial e_i divided by its number of terms. The recursion
    keeps means instead of sums, so that it stays in [0, 1] and cannot overflow.
    """
    factors = np.arange(n_factors + 1)
    mean = np.zeros((len(values), n_factors + 1))
    mean[:, 0] = 1
    for t in range(1, values.shape[1] + 1):
        # A share of i / t of the subsets of i among t values contains the t-th value.
        share = np.minimum(factors / t, 1)
        updated = (1 - share) * mean
        updated[:, 1:] += share[1:] * values[:, t - 1, None] * mean[:, :-1]
        mean = np.where(present[:, t - 1, None], updated, mean)
    return mean[:, 1:]
