"""Means over queries by two judges: few queries with trusted labels, many with cheap ones.

The estimate is that of prediction-powered inference, with a weight that is tuned to the data
(Angelopoulos, Duchi and Zrnic, 2023, "PPI++"): the mean of the trusted metric, less ``weight``
times what the cheap metric of the trusted queries is above that of all. In words of sampling it is
the regression estimator of double sampling (Cochran, 1977, chapter 12).

Arrays have one row per query and one column per mean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from .._base._typing import Bools, Floats, Ints
from ._query_means import resampled_counts
from ._thresholds import FEWEST_TRUSTED

#: Squares of deviations that are a smaller share of those of values are rounding.
_ROUNDING = 1e-12


class TwoJudges(NamedTuple):
    """Means by two judges, with bootstrap-t intervals; arrays of one value per mean."""

    value: Floats
    lower: Floats
    upper: Floats
    #: Standard errors, and the degrees of freedom of Student's quantiles.
    error: Floats
    freedom: Floats
    #: Two-sided, that the mean is 0: the largest level at which the interval still holds 0.
    p_value: Floats
    #: What the cheap metric counts; 0: the judge says nothing.
    weight: Floats
    #: Standard errors by which the judge tells trusted queries from all.
    apart: Floats
    #: Clusters (or queries) with trusted labels that do not have the most frequent value.
    n_differing: Ints

    def helps(self, lower: Floats, upper: Floats) -> Bools:
        """Where these intervals may stand in place of those of the trusted labels alone."""
        is_known = self.n_differing >= FEWEST_TRUSTED.value
        # A weight of 0 leaves the trusted labels, and chance of resamples.
        is_known &= self.weight > 0
        return is_known & (self.upper - self.lower < upper - lower)


class JudgedQueries(NamedTuple):
    """Metrics of queries by two judges; NaN where a metric is undefined or there is no label."""

    trusted: Floats
    cheap: Floats
    #: Whether the query has trusted labels, also if the metric is undefined by them.
    is_trusted: Bools
    #: What was drawn independently; None: each query.
    cluster: Ints | None = None


def two_judges(
    queries: JudgedQueries, level: float, n_resamples: int, rng: np.random.RandomState
) -> TwoJudges:
    """Means of the trusted metric over all queries, from labels of two judges.

    Trusted queries (or clusters) must be a random draw from all. Each resample tunes its weight
    anew, so that the interval knows that the weight is an estimate.
    """
    sample = _sample(queries)
    found = _regress(_means(sample), sample)
    tail = (1 - level) / 2
    t = _resampled_t(sample, found, n_resamples, rng)
    # Resamples of few queries vary too little: Student's quantiles are the least.
    freedom = sample.n_equal - 1 - found.is_tuned
    student = stats.t.ppf(1 - tail, freedom)
    low = np.minimum(np.quantile(t, tail, axis=0), -student)
    high = np.maximum(np.quantile(t, 1 - tail, axis=0), student)
    value = sample.mean + found.shift
    error = np.sqrt(found.variance)
    return TwoJudges(
        value=value,
        lower=value - high * error,
        upper=value - low * error,
        error=error,
        freedom=freedom,
        p_value=_p_value(value, error, freedom, t),
        weight=found.weight,
        apart=_errors_apart(sample),
        n_differing=sample.n_differing,
    )


def errors_of_defined(queries: JudgedQueries) -> float:
    """Standard errors by which the cheap metric is defined more often in trusted queries than in
    all: undefined ones count as a difference of 0, so that a mean over all is then off."""
    is_defined = ~np.isnan(queries.cheap).any(axis=1)
    column = is_defined[:, None].astype(float)
    return float(_errors_apart(_sample(queries._replace(cheap=column))).item())


def mean_by_two_judges(queries: JudgedQueries, trusted: Floats, cheap: Floats) -> float:
    """The mean of one ranker, with a weight that is the same for all rankers.

    Candidates of a search are compared by differences of their means. A weight of each candidate's
    own adds its error to them. This one is how far the cheap metric of random rankings follows the
    trusted one within queries, which depends on the labels alone: ``trusted`` and ``cheap``, of
    shape (n_queries_of_both, n_rankings).
    """
    sample = _sample(queries)
    # Less the mean of the query, which is the same for all rankers.
    trusted = trusted - trusted.mean(axis=1, keepdims=True)
    cheap = cheap - cheap.mean(axis=1, keepdims=True)
    # Where a metric is undefined, a query has a size of 0.
    product = np.nansum(trusted * cheap)
    square = np.nansum(cheap**2)
    slope = max(product, 0.0) / square if square > 0 else 0.0
    # Each mean is over the queries where its metric is defined.
    is_defined = ~np.isnan(queries.trusted[queries.is_trusted]).any(axis=1)
    is_judged = ~np.isnan(queries.cheap).any(axis=1)
    weight = slope * is_judged.mean() / is_defined.mean()
    return float((sample.mean - weight * sample.gap).item())


# From queries to what was drawn ---------------------------------------------------------
class _Sample(NamedTuple):
    """Trusted units (clusters or queries), and what the others add."""

    #: Mean of the trusted metric by trusted labels alone.
    mean: Floats
    #: (n_trusted_units, n_means): the trusted metric, less its mean; and the cheap one, so that
    #: the mean of trusted - weight * cheap, plus weight * other, is what the estimate adds.
    trusted: Floats
    cheap: Floats
    #: What units without trusted labels have of the cheap metric, and its variance.
    other: Floats
    other_variance: Floats
    #: Variance of the cheap metric of a trusted unit, if they are a random draw from all.
    drawn_variance: Floats
    #: Number of trusted units of equal size that tell as much.
    n_equal: float
    n_differing: Ints

    @property
    def gap(self):
        """What the cheap metric of trusted queries is above that of all."""
        return self.cheap.mean(axis=0) - self.other


def _sample(queries):
    """Queries as trusted units and others. Where a metric is undefined, a query counts as one of
    a size of 0: dropping it would make trusted queries differ from the others."""
    trusted, cheap, is_trusted, cluster = queries
    unit = np.arange(len(trusted)) if cluster is None else cluster
    _, unit = np.unique(unit, return_inverse=True)
    n_units = unit.max() + 1
    is_defined = ~np.isnan(trusted).any(axis=1)
    mean = trusted[is_defined].mean(axis=0)
    has_cheap = ~np.isnan(cheap).any(axis=1)
    mean_of_cheap = cheap[has_cheap].mean(axis=0)
    deviation = np.where(is_defined[:, None], trusted - mean, 0.0)
    cheap_deviation = np.where(has_cheap[:, None], cheap - mean_of_cheap, 0.0)
    cheap_deviation /= has_cheap.mean()

    def summed(values, rows):
        return _sums(values[rows], unit[rows], n_units)

    is_trusted_unit = np.bincount(unit, is_trusted) > 0
    n_trusted_units = is_trusted_unit.sum()
    n_other_units = n_units - n_trusted_units
    everyone = np.ones(len(unit), dtype=bool)
    all_cheap = summed(cheap_deviation, everyone) / len(unit)
    trusted_cheap = summed(cheap_deviation, is_trusted) / is_trusted.sum()
    # All units tell how much one varies, those without trusted labels may be few.
    variance = (all_cheap**2).sum(axis=0) / max(n_units - 1, 1)
    scale = n_trusted_units * (len(unit) / is_trusted.sum() - 1)
    size = np.bincount(unit, is_defined)
    share = n_trusted_units / is_defined.sum()
    return _Sample(
        mean=mean,
        trusted=share * summed(deviation, is_defined)[is_trusted_unit],
        cheap=n_trusted_units * (trusted_cheap - all_cheap)[is_trusted_unit],
        other=all_cheap[~is_trusted_unit].sum(axis=0),
        other_variance=n_other_units * variance,
        drawn_variance=scale**2 * variance,
        n_equal=size.sum() ** 2 / (size**2).sum(),
        n_differing=_n_differing(trusted[is_defined], unit[is_defined]),
    )


def _sums(values, unit, n_units):
    """Sums of rows by unit."""
    sums = np.zeros((n_units, values.shape[1]))
    np.add.at(sums, unit, values)
    return sums


def _n_differing(values, unit):
    """Units with a value other than the most frequent one: of differences, that is a tie."""
    numbers = []
    for column in values.T:
        # Metrics are of the size of 1: what differs less is rounding.
        _, code = np.unique(np.round(column, 12), return_inverse=True)
        most_frequent = np.bincount(code).argmax()
        numbers.append(len(np.unique(unit[code != most_frequent])))
    return np.array(numbers)


# The estimate ---------------------------------------------------------------------------
class _Regression(NamedTuple):
    weight: Floats
    #: What the estimate adds to the trusted mean.
    shift: Floats
    variance: Floats
    is_tuned: Bools


def _means(sample):
    """Means of the values and of their products, which hold all that the estimate needs."""
    return _products(sample).mean(axis=0)


def _products(sample):
    """Values and products of two by trusted unit, (n_trusted_units, 5, n_means)."""
    trusted = sample.trusted
    cheap = sample.cheap
    return np.stack([trusted, cheap, trusted**2, cheap**2, trusted * cheap], axis=1)


def _regress(means, sample, other=None):
    """The estimate from means of :func:`_products`, also of resamples, which come first."""
    n = len(sample.trusted)
    trusted, cheap, trusted_2, cheap_2, product = np.moveaxis(means, -2, 0)
    other = sample.other if other is None else other
    # Sums of squares and products of deviations; rounding may leave less than 0.
    trusted_square = n * np.maximum(trusted_2 - trusted**2, 0)
    cheap_square = n * np.maximum(cheap_2 - cheap**2, 0)
    product_sum = n * (product - trusted * cheap)
    # The weight of the smallest variance. A judge that contradicts trusted labels is no help.
    per_square = max(n - 1, 1) * n
    total = cheap_square + per_square * sample.other_variance
    varies = cheap_square > _ROUNDING * n * cheap_2
    is_tuned = varies & (product_sum > 0)
    weight = np.divide(product_sum, total, out=np.zeros_like(total), where=is_tuned)
    gap = cheap - other
    rest = np.maximum(trusted_square - 2 * weight * product_sum + weight**2 * cheap_square, 0)
    # The further trusted queries are from all, the more the error of the weight counts.
    ratio = np.divide(gap**2, cheap_square, out=np.zeros_like(gap), where=is_tuned)
    freedom = np.maximum(sample.n_equal - 1 - is_tuned, 1e-9)
    own = rest / n**2 * sample.n_equal / freedom * (1 + n * ratio)
    variance = own + weight**2 * sample.other_variance
    return _Regression(weight, trusted - weight * gap, variance, is_tuned)


def _resampled_t(sample, found, n_resamples, rng):
    """Studentised estimates of resamples of trusted units, each with a weight of its own."""
    n = len(sample.trusted)
    products = _products(sample)
    flat = products.reshape(n, -1)
    parts = []
    for counts in resampled_counts(n, n_resamples, rng):
        means = (counts @ flat / n).reshape(-1, *products.shape[1:])
        # The mean of the many others is close to normal.
        noise = rng.normal(size=(len(counts), 1))
        other = sample.other + np.sqrt(sample.other_variance) * noise
        resampled = _regress(means, sample, other)
        # As in `bootstrap`, the sample's own variance counts as one further query.
        variance = (n * resampled.variance + found.variance) / (n + 1)
        error = np.sqrt(variance)
        lead = resampled.shift - found.shift
        parts.append(np.divide(lead, error, out=np.zeros_like(lead), where=error > 0))
    return np.concatenate(parts)


def _errors_apart(sample):
    """Standard errors by which the cheap metric of trusted queries is above that of all."""
    n = len(sample.cheap)
    own = sample.cheap.var(axis=0) * n / max(n - 1, 1)
    # Few queries of a skewed metric may vary too little by chance.
    variance = np.maximum(own, sample.drawn_variance)
    error = np.sqrt(variance / n + sample.other_variance)
    return np.divide(sample.gap, error, out=np.zeros_like(error), where=error > 0)


def _p_value(value, error, freedom, t):
    """Twice the share of resamples beyond, at least Student's: dual to the interval."""
    known = error > 0
    observed = np.divide(value, error, out=np.zeros_like(value), where=known)
    is_beyond = np.where(observed > 0, t >= observed, t <= observed)
    share = (1 + 2 * is_beyond.sum(axis=0)) / (len(t) + 1)
    student = 2 * stats.t.sf(np.abs(observed), freedom)
    return np.clip(np.maximum(share, student), 0, 1)
