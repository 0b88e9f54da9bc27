"""CMIP where clicks of randomised lists replace grades: covariance of a model's scores and logged
positions given relevance, which clicks show with an error whose moments are known.

Arrays of sums have one row per query; columns and rows of the last two axes are: score, position,
and the powers 1 to 3 of relevance."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from scipy.special import binom
from scipy.stats import rankdata, t
from sklearn.isotonic import IsotonicRegression

from .._base._typing import Floats, Ints
from .._log._segments import TINY

#: Largest power of relevance; products of two powers need twice as many impressions.
_DEGREE = 3
FEWEST_IMPRESSIONS = 2 * _DEGREE
FEWEST_QUERIES = 10
#: Smallest sixth elementary polynomial of examination; 1 is six impressions at the best position.
LEAST_EXAMINED = 1e-3
_POWERS = np.arange(FEWEST_IMPRESSIONS + 1)[:, None]
#: Powers of relevance up to which scores are explained, if the variance of the last one, given the
#: others, is so many standard errors above 0. Measured: with clicks that show less, the square
#: does not hold the level, and the cube takes power.
_LEAST = {3: 2.0, 2: 1.0}
#: Largest share of the variance of the square that may be left beside the line where only the line
#: counts.
_LARGEST_REST = 0.1
#: Bins of equal counts, in which scores and positions are replaced by mean click rates.
_BINS, _FEWEST_IN_BIN = 10, 20
#: Smallest share of a variance that relevance leaves unexplained.
_SMALLEST_SHARE = 0.01


def information_by_clicks(
    pred: Floats, logging: Floats, clicks: Floats, examined: Floats, query: Ints
) -> tuple[float, float, float]:
    """CMIP in nats, its standard error and p-value, of documents with at least six impressions.

    ``examined`` is that of :func:`elementary_polynomials`.
    """
    moments = _moments(clicks, examined)
    # Queries that were served more often count more, up to fourfold.
    weight = (1 + np.median(examined[1]) / examined[1]) ** -2
    weight = (np.bincount(query, weight) / np.bincount(query))[query]
    columns = [_as_click_rates(values, moments[1], weight) for values in (pred, logging)]
    sums = _sums(np.column_stack([*columns, *moments[1 : _DEGREE + 1]]), moments, query, weight)
    for degree, least in _LEAST.items():
        (rho, spread), (error, unsure) = _jackknife(partial(_partial, degree=degree), sums)
        if spread > least * unsure:
            break
    else:
        # Two levels of relevance have no square beside the line.
        rest = max(spread, 0) + 2 * unsure
        (rho, spread), (error, unsure) = _jackknife(partial(_partial, degree=1), sums)
        if rest > _LARGEST_REST * sums[:, 3, 3].sum() or not spread > 2 * unsure:
            raise ValueError(
                f"{clicks.mean():.2g} clicks per document on the randomised lists do not show how "
                "relevance varies; expected 50 impressions of each of a thousand documents, or "
                "so. Randomise more sessions, or pass grades."
            )
    square = min(rho**2, 1 - _SMALLEST_SHARE)
    # What noise alone explains is none: a search must not choose the noisiest estimate.
    value = -0.5 * np.log1p(-max(square - error**2, 0.0))
    error_of_value = np.sqrt(square + error**2 / 2) * error / (1 - square)
    p_value = 2 * t.sf(abs(rho) / max(error, TINY), len(sums) - 1)
    return float(value), float(error_of_value), float(p_value)


def elementary_polynomials(shown: Floats, examination: Floats, document: Ints) -> Floats:
    """Elementary symmetric polynomials 0 to 6 of the examination of all impressions of a document.

    Of rows with so many impressions; shape (7, n_documents). Examination counts relative to the
    largest. Products of (1 + o z)^n have positive terms only, which power sums have not.
    """
    total = np.repeat(_POWERS == 0, document.max() + 1, axis=1).astype(float)
    cells = (
        pd.DataFrame({"document": document, "o": examination, "n": shown})[shown > 0]
        .groupby(["document", "o"], as_index=False)["n"]
        .sum()
    )
    cells["o"] /= cells["o"].max() or 1.0
    for _, cell in cells.groupby(cells.groupby("document").cumcount()):
        factor = binom(cell["n"].to_numpy(), _POWERS) * cell["o"].to_numpy() ** _POWERS
        old = total[:, cell["document"]]
        total[:, cell["document"]] = [
            (old[: m + 1] * factor[m::-1]).sum(axis=0) for m in range(len(old))
        ]
    return total


def _moments(clicks, examined):
    """Unbiased estimates of the powers 0 to 6 of relevance, one row each: of independent clicks
    with the chances r o_i, c (c - 1) ... (c - m + 1) / m! has the mean e_m(o) r^m."""
    return binom(clicks, _POWERS) / examined


def _as_click_rates(values, rate, weight):
    """Monotone mean click rate at each value: so transformed, scores and positions depend on
    relevance almost linearly."""
    rank = rankdata(values)
    n_bins = int(np.clip(len(rank) // _FEWEST_IN_BIN, 2, _BINS))
    part = np.unique((rank - 0.5) * n_bins // len(rank), return_inverse=True)[1]
    mass, place, mean = (np.bincount(part, weight * each) for each in (1.0, rank, rate))
    rises = weight @ (rate * (rank - rank.mean())) >= 0
    monotone = IsotonicRegression(increasing=rises).fit(place / mass, mean / mass, mass)
    rates = np.interp(rank, place / mass, monotone.predict(place / mass))
    return rates / (rates.std() or 1.0)


def _sums(columns, moments, query, weight):
    """Weighted sums of products of columns within each query, without the noise of clicks."""
    size = np.bincount(query)
    mean = np.column_stack([np.bincount(query, each) for each in columns.T]) / size[:, None]
    within = columns - mean[query]
    products = within[:, :, None] * within[:, None, :]
    powers = moments[1 : _DEGREE + 1].T
    order = np.add.outer(*[np.arange(1, _DEGREE + 1)] * 2)
    noise = powers[:, :, None] * powers[:, None, :] - moments[order].transpose(2, 0, 1)
    products[:, 2:, 2:] -= (1 - 1 / size[query])[:, None, None] * noise
    total = np.zeros((len(size), *products.shape[1:]))
    np.add.at(total, query, weight[:, None, None] * products)
    return total


def _partial(sums, degree):
    """Correlation of scores and positions given a polynomial of relevance, and the variance of its
    last power given the lower ones."""
    own = sums[..., :2, :2]
    cross = sums[..., :2, 2 : 2 + degree]
    inverse = np.linalg.pinv(sums[..., 2 : 2 + degree, 2 : 2 + degree], hermitian=True)
    rest = own - cross @ inverse @ np.swapaxes(cross, -1, -2)
    size = np.sqrt(np.maximum(rest, _SMALLEST_SHARE * own)[..., [0, 1], [0, 1]].prod(axis=-1))
    last = inverse[..., -1, -1]
    ratios = (rest[..., 0, 1], size), (np.ones_like(last), last)
    return [np.divide(*each, out=np.zeros_like(last), where=each[1] != 0) for each in ratios]


def _jackknife(statistics, sums):
    """Functions of sums over queries, and their standard errors."""
    total = sums.sum(axis=0)
    n_queries = len(sums)
    without = np.array(statistics(total - sums))
    spread = ((without - without.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return statistics(total), np.sqrt((n_queries - 1) / n_queries * spread)
