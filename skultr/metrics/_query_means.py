"""Means over queries, and ratios of sums over clusters: intervals, tests, what they could detect.

Arrays of means have one row per query (or cluster of queries) and one column per mean; ``lead``
and ``size`` are the sums of each cluster, whose ratio is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats
from scipy.stats import norm

from .._base._progress import progress
from .._base._typing import Column, Floats, Ints, Table
from .._log._roles import read_column, read_role
from .._log._segments import TINY, encode
from ._ranking import refuse_where
from ._thresholds import FEWEST_CLUSTERS

#: A column whose standard error is a smaller share of its largest value is constant: what is left
#: is rounding.
_ROUNDING = 1e-12


def cluster_of(X: Table, cluster: Column | str, unit: Ints, name: str) -> Ints:
    """Code of the cluster of each unit (query, list), from a column of X or values by row."""
    given = read_column(X, cluster) if isinstance(cluster, str) else cluster
    values = read_role(X, "cluster", given)
    code, _ = encode(values)
    # The cluster of a unit is that of its first row; the others must have the same.
    _, first_row = np.unique(unit, return_index=True)
    group = code[first_row]
    refuse_where(
        pd.isna(values) | (group[unit] != code),
        f"cluster is missing or has several values in one {name}",
        f"expected one value in all rows of a {name}. Give gaps ids of their own, and clusters "
        f"that share a {name} one id.",
    )
    return group


def by_cluster(values: Floats, cluster: Ints | None) -> tuple[Floats, Floats, float]:
    """Values of clusters with the mean of the rows: sums over the mean size, whose signs are
    flipped, and those whose standard error is that of the ratio of sums to sizes; and the number
    of clusters of equal size that tell as much."""
    if cluster is None:
        return values, values, len(values)
    sums = pd.DataFrame(values).groupby(cluster).sum().to_numpy()
    _, size = np.unique(cluster, return_counts=True)
    size = size[:, None]
    share = len(sums) / len(values)
    mean = values.mean(axis=0)
    # Linear approximation of the ratio: its deviations are those of sums less the mean of sizes.
    linear = mean + share * (sums - size * mean)
    n_equal = len(values) ** 2 / (size**2).sum()
    return share * sums, linear, n_equal


def bootstrap(
    values: Floats, n_equal: float, level: float, n_resamples: int, rng: np.random.RandomState
) -> tuple[Floats, Floats]:
    """Ends of bootstrap-t intervals of means over queries, at least as wide as Student's; NaN
    where a column does not vary, and for a single query. ``n_equal`` is what :func:`by_cluster`
    returns."""
    mean = values.mean(axis=0)
    # Quantiles of the studentised means of resamples.
    tail = (1 - level) / 2
    error, varies = _standard_errors(values)
    low = np.full(len(mean), np.nan)
    high = np.full(len(mean), np.nan)
    if varies.any():
        standardized = (values - mean)[:, varies] / error[varies]
        t = _resampled_t(standardized, n_resamples, rng)
        # Resamples of few queries vary too little: Student's quantiles are the least.
        student = stats.t.ppf(1 - tail, n_equal - 1)
        lowest = np.quantile(t, tail, axis=0)
        highest = np.quantile(t, 1 - tail, axis=0)
        low[varies] = np.minimum(lowest, -student)
        high[varies] = np.maximum(highest, student)
    return mean - high * error, mean - low * error


def sign_flips(difference: Floats, n_resamples: int, rng: np.random.RandomState) -> Floats:
    """Two-sided p-values of mean differences under random flips of the signs of queries, or under
    all where there are fewer. (SciPy's permutation test took 8 times as long for each column.)"""
    n_queries = len(difference)
    total = difference.sum(axis=0)
    size = np.abs(difference).sum(axis=0)
    # Sums that differ by rounding are equal.
    reached = np.abs(total) - _ROUNDING * size
    n_reach = np.zeros(len(total))
    for n_flips in progress(_batches(n_resamples, n_queries), "batch of sign flips"):
        kept = rng.randint(2, size=(n_flips, n_queries), dtype=np.int8).astype(float)
        # Twice the sum of those that keep their sign, less the sum of all.
        flipped = 2 * kept @ difference - total
        n_reach += (np.abs(flipped) >= reached).sum(axis=0)
    p_value = (n_reach + 1) / (n_resamples + 1)
    # Flips of ties change nothing. Where few queries differ, all flips are taken, one per number
    # whose bits are the signs.
    n_differing = (difference != 0).sum(axis=0)
    for column in np.flatnonzero(n_differing <= np.log2(n_resamples)):
        values = difference[:, column]
        differing = values[values != 0]
        bit = np.arange(len(differing))
        kept = np.arange(2 ** len(differing))[:, None] >> bit & 1
        flipped = 2 * kept @ differing - total[column]
        p_value[column] = np.mean(np.abs(flipped) >= reached[column])
    return p_value


def detectable(difference: Floats, level: float, power: float) -> Floats:
    """Smallest true means that a test of this level would find with probability ``power``: that
    of a t-test, which sign flips reach where enough queries differ."""
    error, varies = _standard_errors(difference)
    quantiles = stats.t.ppf([1 - level / 2, power], len(difference) - 1)
    # With n queries that differ, two of 2^n flips reach the largest sum.
    n_differing = (difference != 0).sum(axis=0)
    smallest_p = 2.0 ** (1 - n_differing)
    return np.where(varies & (smallest_p <= level), quantiles.sum() * error, np.nan)


def holm_adjusted(p_value: Floats) -> Floats:
    """P-values adjusted by Holm's step-down procedure (1979), for any dependence."""
    order = np.argsort(p_value, kind="stable")
    # The smallest of n p-values counts n times, the next n - 1 times.
    n_left = np.arange(len(order), 0, -1)
    steps = np.maximum.accumulate(p_value[order] * n_left)
    return np.minimum(steps, 1)[np.argsort(order)]


def _standard_errors(values):
    """Standard errors of the means of columns, and whether a column varies at all."""
    n = len(values)
    unknown = np.full(values.shape[1], np.nan)
    error = values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else unknown
    largest = np.abs(values).max(axis=0)
    return error, error > _ROUNDING * largest


def _resampled_t(centred, n_resamples, rng):
    """Means of resamples of rows whose means are 0, with standard errors of 1, over their own."""
    n = len(centred)
    parts = []
    for counts in resampled_counts(n, n_resamples, rng):
        mean = counts @ centred / n
        spread = counts @ centred**2 / n - mean**2
        variance = np.maximum(spread, 0) / (n - 1)
        # That of the sample, 1, counts as one further query: of few queries that differ among
        # many ties a resample may have none, and would have no variance.
        parts.append(mean / np.sqrt((n * variance + 1) / (n + 1)))
    return np.concatenate(parts)


def resampled_counts(n: int, n_resamples: int, rng: np.random.RandomState) -> Iterator[Floats]:
    """How often each of n rows was drawn, (n_resamples of a batch, n)."""
    for size in progress(_batches(n_resamples, n), "batch of resamples"):
        drawn = rng.randint(n, size=(size, n))
        # One count of all resamples.
        cell = drawn + n * np.arange(size)[:, None]
        counts = np.bincount(cell.ravel(), minlength=size * n)
        yield counts.reshape(size, n).astype(float)


def _batches(n_resamples, n_queries):
    """Numbers of resamples that are computed at a time, which bounds the memory."""
    # Two million cells (resamples times queries), 16 MB of floats.
    size = max(1, 2**21 // n_queries)
    return [min(size, n_resamples - start) for start in range(0, n_resamples, size)]


# Ratios of sums over clusters ---------------------------------------------------------
#: Sum of squared leads (sessions won, if they are independent) at which intervals for all looks
#: are narrowest, divided by what makes it so at the level 5 %.
_MIXTURE = 1000 / 8.8


def quantile_of_lead(lead: Floats, level: float, sequential: bool) -> float:
    """Standard errors that the sum of leads exceeds with this probability; at any look."""
    if not sequential:
        return float(norm.isf(level / 2))
    squares = (lead**2).sum()
    # Nearly no lead was seen: nothing can be said yet, and the root below has no bound.
    if squares <= 1e-3:
        return np.inf
    # Boundary of a mixture of martingales over all sizes of the lead (Robbins).
    ratio = 1 + squares / _MIXTURE
    square = ratio / (ratio - 1) * np.log(ratio / level**2)
    return float(np.sqrt(square))


def p_value_of_lead(lead: Floats, sequential: bool) -> float:
    """Two-sided p-value of no lead: the level whose quantile the sum reaches."""
    total = lead.sum()
    squares = (lead**2).sum()
    if not sequential:
        z = abs(total) / np.sqrt(max(squares, TINY))
        return float(2 * norm.sf(z))
    # The inverse of the mixture of likelihood ratios.
    ratio = 1 + squares / _MIXTURE
    exponent = -(total**2) / (2 * _MIXTURE * ratio)
    return float(min(1.0, np.sqrt(ratio) * np.exp(exponent)))


def least_squared_size(size: Floats, z: float) -> float:
    """The square of the sum of sizes above which there are enough clusters."""
    # Below z² clusters of equal size the interval has no ends.
    n_needed = max(FEWEST_CLUSTERS.value, z**2)
    return float(n_needed * (size**2).sum())


def ratio_interval(lead: Floats, size: Floats, z: float, unknown: float) -> tuple[float, float]:
    r"""Ends of all :math:`\theta` whose :math:`\sum_g (S_g - \theta m_g)` is within z errors of 0;
    ``unknown`` away from 0 in too few clusters."""
    total = size.sum()
    if total**2 <= least_squared_size(size, z):
        return -unknown, unknown
    # Fieller: the ends are the roots of a θ² - 2 b θ + c.
    a = total**2 - z**2 * (size**2).sum()
    b = lead.sum() * total - z**2 * (lead * size).sum()
    c = lead.sum() ** 2 - z**2 * (lead**2).sum()
    # Rounding may leave a root of less than 0.
    discriminant = max(b**2 - a * c, 0.0)
    half = np.sqrt(discriminant)
    return (b - half) / a, (b + half) / a


def ratio_of_sums(numerator: Floats, denominator: Floats, query: Ints) -> tuple[float, float]:
    """The ratio v of two sums, and its standard error sqrt(n / (n - 1) Σ_q e_q²) / Σ denominator
    with e_q = Σ_{rows of q} (numerator - v denominator) over n queries; NaN for one."""
    total = denominator.sum()
    value = numerator.sum() / total
    # Linear approximation of a ratio, by query.
    residual = np.bincount(query, numerator - value * denominator)
    n_queries = len(residual)
    if n_queries < 2:
        return float(value), np.nan
    spread = n_queries / (n_queries - 1) * (residual**2).sum()
    variance = spread / total**2
    return float(value), float(np.sqrt(variance))
