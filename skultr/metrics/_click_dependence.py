"""CMIP where clicks of randomised lists replace grades.

It is the covariance of a model's scores and logged positions given relevance, which clicks show
with an error whose moments are known. Arrays of sums have one row per query; columns and rows of
the last two axes are: score, position, and the powers 1 to 3 of relevance.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from scipy.special import binom
from scipy.stats import rankdata, t
from sklearn.isotonic import IsotonicRegression

from .._base._typing import Floats, Ints
from .._log._segments import TINY
from ._thresholds import (
    CUBE_SHOWS,
    FEWEST_IMPRESSIONS,
    LARGEST_REST,
    LINE_SHOWS,
    SQUARE_SHOWS,
)

#: Largest power of relevance. Products of two powers need twice as many impressions.
_DEGREE = int(FEWEST_IMPRESSIONS.value) // 2
#: The powers 0 to 6, as a column.
_POWERS = np.arange(2 * _DEGREE + 1)[:, None]
#: Smallest share of a variance that relevance leaves unexplained: guards quotients against 0.
_SMALLEST_SHARE = 0.01


def information_by_clicks(
    pred: Floats, logging: Floats, clicks: Floats, examined: Floats, query: Ints
) -> tuple[float, float, float]:
    """CMIP in nats, its standard error and p-value, of documents with at least six impressions.

    ``examined`` is that of :func:`elementary_polynomials`.
    """
    moments = _moments(clicks, examined)
    weight = _weight_of_queries(examined[1], query)
    # Scores and positions become click rates, on which relevance acts almost linearly.
    rates = [_as_click_rates(values, moments[1], weight) for values in (pred, logging)]
    columns = np.column_stack([*rates, *moments[1 : _DEGREE + 1]])
    sums = _sums(columns, moments, query, weight)
    rho, error = _partial_correlation(sums, clicks)
    # CMIP of a normal distribution: -1/2 log(1 - ρ²).
    square = min(rho**2, 1 - _SMALLEST_SHARE)
    # What noise alone explains is none: a search must not choose the noisiest estimate.
    beyond_noise = max(square - error**2, 0.0)
    value = -0.5 * np.log1p(-beyond_noise)
    # Delta method: the derivative of the value by ρ is ρ / (1 - ρ²). It is 0 at 0, where the error
    # is not: hence half of the squared error beside ρ².
    error_of_value = np.sqrt(square + error**2 / 2) * error / (1 - square)
    n_errors = abs(rho) / max(error, TINY)
    p_value = 2 * t.sf(n_errors, len(sums) - 1)
    return float(value), float(error_of_value), float(p_value)


def _weight_of_queries(exposure, query):
    """Weight of each document, the same in a query: served more often, it counts more, up to
    fourfold."""
    weight = (1 + np.median(exposure) / exposure) ** -2
    mean = np.bincount(query, weight) / np.bincount(query)
    return mean[query]


def _partial_correlation(sums, clicks):
    """Partial correlation ρ of scores and positions given relevance, and its standard error.

    Given r, r² and r³ if clicks show so much, else given r and r², else given r alone.
    """
    for degree, shows in ((3, CUBE_SHOWS), (2, SQUARE_SHOWS)):
        (rho, spread), (error, unsure) = _jackknife(partial(_partial, degree=degree), sums)
        if spread > shows.value * unsure:
            return rho, error
    # Two levels of relevance have no square beside the line, and need none.
    largest_square = max(spread, 0) + 2 * unsure
    no_square = largest_square <= LARGEST_REST.value * sums[:, 3, 3].sum()
    (rho, spread), (error, unsure) = _jackknife(partial(_partial, degree=1), sums)
    if no_square and spread > LINE_SHOWS.value * unsure:
        return rho, error
    raise ValueError(
        f"{clicks.mean():.2g} clicks per document on the randomised lists do not show how "
        "relevance varies; expected 50 impressions of each of a thousand documents, or "
        "so. Randomise more sessions, or pass grades."
    )


# Moments of clicks --------------------------------------------------------------------
def elementary_polynomials(shown: Floats, examination: Floats, document: Ints) -> Floats:
    """Elementary symmetric polynomials 0 to 6 of the examination of all impressions of a document.

    Of rows with so many impressions; shape (7, n_documents). Examination counts relative to the
    largest.
    """
    # Without impressions the product is 1.
    n_documents = document.max() + 1
    total = np.zeros((len(_POWERS), n_documents))
    total[0] = 1
    rows = pd.DataFrame({"document": document, "o": examination, "n": shown})[shown > 0]
    cells = rows.groupby(["document", "o"], as_index=False)["n"].sum()
    cells["o"] /= cells["o"].max() or 1.0
    # The polynomials are the coefficients of the product of (1 + o z)^n over the cells of a
    # document. All its terms are positive, so that none cancel, as power sums do. Each round
    # multiplies by one cell of every document.
    round_ = cells.groupby("document").cumcount()
    for _, cell in cells.groupby(round_):
        n = cell["n"].to_numpy()
        o = cell["o"].to_numpy()
        factor = binom(n, _POWERS) * o**_POWERS
        old = total[:, cell["document"]]
        coefficients = []
        for m in range(len(old)):
            terms = old[: m + 1] * factor[m::-1]
            coefficients.append(terms.sum(axis=0))
        total[:, cell["document"]] = coefficients
    return total


def _moments(clicks, examined):
    """Unbiased estimates of the powers 0 to 6 of relevance r, one row each.

    Of c independent clicks with the chances r o_i, c (c - 1) ... (c - m + 1) / m! has the mean
    e_m(o) r^m.
    """
    return binom(clicks, _POWERS) / examined


def _as_click_rates(values, rate, weight):
    """Monotone mean click rate at each value, of variance 1: so transformed, scores and positions
    depend on relevance almost linearly."""
    rank = rankdata(values)
    # Bins of equal counts: up to ten of at least 20 documents.
    n_bins = int(np.clip(len(rank) // 20, 2, 10))
    bin_ = (rank - 0.5) * n_bins // len(rank)
    _, bin_ = np.unique(bin_, return_inverse=True)
    mass = np.bincount(bin_, weight)
    place = np.bincount(bin_, weight * rank) / mass
    mean_rate = np.bincount(bin_, weight * rate) / mass
    # Rates fall with positions and rise with scores.
    rises = weight @ (rate * (rank - rank.mean())) >= 0
    monotone = IsotonicRegression(increasing=rises).fit(place, mean_rate, mass)
    rates = np.interp(rank, place, monotone.predict(place))
    # Rounding leaves a variance of constants.
    return rates / rates.std() if rates.min() < rates.max() else np.zeros(len(rates))


# Regression with errors in the variables ----------------------------------------------
def _sums(columns, moments, query, weight):
    """Weighted sums of products of columns within each query, without the noise of clicks."""
    size = np.bincount(query)
    sums = np.column_stack([np.bincount(query, column) for column in columns.T])
    mean = sums / size[:, None]
    within = columns - mean[query]
    products = within[:, :, None] * within[:, None, :]
    # The product of two estimated powers has another mean than the power of their sum: the
    # difference is noise, of which centring within n documents keeps 1 - 1/n.
    powers = moments[1 : _DEGREE + 1].T
    exponent = np.arange(1, _DEGREE + 1)
    expected = moments[np.add.outer(exponent, exponent)].transpose(2, 0, 1)
    noise = powers[:, :, None] * powers[:, None, :] - expected
    kept = 1 - 1 / size[query]
    products[:, 2:, 2:] -= kept[:, None, None] * noise
    # Sums of one query each, for the jackknife.
    total = np.zeros((len(size), *products.shape[1:]))
    np.add.at(total, query, weight[:, None, None] * products)
    return total


def _partial(sums, degree):
    """Correlation of scores and positions given a polynomial of relevance, and the variance of its
    last power given the lower ones."""
    own = sums[..., :2, :2]
    cross = sums[..., :2, 2 : 2 + degree]
    # Two levels of relevance have no square of their own: hence the pseudoinverse.
    powers = sums[..., 2 : 2 + degree, 2 : 2 + degree]
    inverse = np.linalg.pinv(powers, hermitian=True)
    # Schur complement: what relevance leaves of the covariance of scores and positions.
    rest = own - cross @ inverse @ np.swapaxes(cross, -1, -2)
    variances = np.maximum(rest, _SMALLEST_SHARE * own)[..., [0, 1], [0, 1]]
    size = np.sqrt(variances.prod(axis=-1))
    correlation = _quotient(rest[..., 0, 1], size)
    variance_of_last = _quotient(1.0, inverse[..., -1, -1])
    return correlation, variance_of_last


def _quotient(numerator, denominator):
    """The quotient, and 0 where the denominator is 0."""
    return np.divide(
        numerator, denominator, out=np.zeros_like(denominator), where=denominator != 0
    )


def _jackknife(statistics, sums):
    """Functions of sums over queries, and their standard errors."""
    total = sums.sum(axis=0)
    n_queries = len(sums)
    # Each query left out in turn.
    without_one = np.array(statistics(total - sums))
    deviation = without_one - without_one.mean(axis=1, keepdims=True)
    spread = (deviation**2).sum(axis=1)
    return statistics(total), np.sqrt((n_queries - 1) / n_queries * spread)
