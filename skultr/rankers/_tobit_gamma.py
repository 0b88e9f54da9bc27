r"""What a log says about the correlation of the errors of the Type-II Tobit model."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, solve
from scipy.optimize import brentq, minimize_scalar

from .._typing import Floats
from ._probit import mills_ratio
from ._selected_rows import SelectedRows
from ._tobit import TobitFit, TobitModel, TobitTerms, fit_tobit, tobit_likelihood

__all__ = ["GAMMA_BOUND", "GammaProfile", "profile_gamma"]

#: Correlations that ``profile_gamma`` tries: at 1 the likelihood has no density.
GAMMA_BOUND = 0.98
_GRID = np.linspace(-0.9, 0.9, 13)
#: Half of the 95 % quantile of a chi-squared variable with one degree of freedom.
_DROP = 1.9207294103470444


class GammaProfile(NamedTuple):
    r"""The likelihood as a function of the correlation.

    Parameters
    ----------
    fit : TobitFit
        At the maximum-likelihood correlation.
    gamma : float
    interval : tuple of float
        95 % confidence interval: the profile log-likelihood is within 1.92 of its maximum. Its
        ends lie between -0.98 and 0.98.
    curve : ndarray of shape (n_tried, 2)
        Correlation and profile log-likelihood, sorted by correlation.
    """

    fit: TobitFit
    gamma: float
    interval: tuple[float, float]
    curve: Floats


def profile_gamma(rows: SelectedRows, model: TobitModel) -> GammaProfile:
    r"""Maximum-likelihood correlation, with a confidence interval.

    With :math:`L` the maximum of the weighted log-likelihood for a given correlation, the profile
    log-likelihood and the interval are

    .. math::
        \ell(\gamma) = \frac{L(\gamma)}{d}, \qquad d = \frac{\sum_q u_q^2}{I}, \qquad
        \{\gamma : \ell(\gamma) \ge \max \ell - \tfrac12 \chi^2_{1;\,0.95}\},

    where :math:`u_q` is the sum over the rows of a query of the derivatives with respect to
    :math:`\gamma` that the other parameters do not explain, and :math:`I` their information. The
    divisor is the variance by the differences between queries (sandwich) over that by the model.
    It is 1 if rows have weight 1 and the model is correct (Chandler and Bate 2007).

    Parameters
    ----------
    rows : SelectedRows
    model : TobitModel
        Its ``gamma`` is not used.

    Returns
    -------
    profile : GammaProfile

    References
    ----------
    Chandler & Bate (2007). Inference for clustered data using the independence loglikelihood.
    Biometrika.
    """
    fits = {}

    def mean(gamma):
        if gamma not in fits:
            nearest = min(fits, key=lambda known: abs(known - gamma), default=None)
            start = None if nearest is None else fits[nearest]
            fits[gamma] = fit_tobit(rows, replace(model, gamma=gamma), start)
        return fits[gamma].value

    for gamma in sorted(_GRID, key=abs):
        mean(gamma)
    middle = max(_GRID, key=mean)
    step = _GRID[1] - _GRID[0]
    bounds = np.clip((middle - step, middle + step), -GAMMA_BOUND, GAMMA_BOUND)
    minimize_scalar(lambda gamma: -mean(gamma), bounds=bounds, options={"xatol": 1e-4})
    best = max(fits, key=mean)
    size = rows.weight.sum() / _overdispersion(rows, replace(model, gamma=best), fits[best])
    drop = _DROP / size
    interval = tuple(_end_of_interval(mean, best, end, drop) for end in (-GAMMA_BOUND, GAMMA_BOUND))
    curve = np.array([(gamma, size * mean(gamma)) for gamma in sorted(fits)])
    return GammaProfile(fits[best], float(best), interval, curve)


def _end_of_interval(mean, best, end, drop):
    floor = mean(best) - drop
    if abs(end - best) < 1e-9 or mean(end) >= floor:
        return float(end)
    return float(brentq(lambda gamma: mean(gamma) - floor, best, end, xtol=1e-3))


def _overdispersion(rows, model, fit):
    """Variance of the score of gamma by the differences between queries, over that by the model.

    Where the curvature does not show what gamma is, the mean weight of a row.
    """
    standard = rows.standard.rows
    model = replace(model, penalty=model.penalty / rows.standard.spread**2)
    at = fit.standard(rows)
    curvature = tobit_likelihood(standard, model, at)[2]
    if model.fixed_scale is not None:
        curvature = curvature[:-1, :-1]
    slope, bend, cross = _by_gamma(standard, model, at)
    cross = cross[: len(curvature)]
    weight = rows.weight
    plain = (weight @ weight) / weight.sum()
    try:
        explained = solve(curvature, cross, assume_a="pos")
    except LinAlgError:
        return plain
    information = (bend - cross @ explained) * weight.sum()
    if information <= 0:
        return plain
    score = weight * (slope - _along(standard, model, at, explained))
    query = np.arange(len(score)) if rows.query is None else rows.query
    of_query = np.bincount(query, score)
    return float(of_query @ of_query / information)


def _by_gamma(rows, model, at):
    """Derivatives of rows with respect to gamma; minus the mean second ones, own and mixed."""
    row = TobitTerms.of(rows, model, at)
    chosen, weight, others, _ = rows.parts
    n_columns, total = chosen.shape[1], rows.weight.sum()
    unit = np.sqrt(row.share)  # of gamma_i, by gamma
    slope = np.zeros(len(rows.selected))
    slope[rows.selected] = row.ratio * row.by_gamma * unit
    step = 1e-5
    up, down = (
        tobit_likelihood(rows, replace(model, gamma=model.gamma + sign * step), at)[1]
        for sign in (1, -1)
    )
    cross = (down - up) / (2 * step)
    again = row.choice / row.root**3 + 3 * row.gamma * row.by_gamma / row.root**2
    bend = weight @ (unit**2 * (row.kappa * row.by_gamma**2 - row.ratio * again)) / total
    return slope, bend, cross


def _along(rows, model, at, direction):
    """Derivative of the log-likelihood of each row along a direction of the parameters."""
    row = TobitTerms.of(rows, model, at)
    chosen, _, others, _ = rows.parts
    n_columns = chosen.shape[1]
    beta, omega = direction[:n_columns], direction[n_columns : 2 * n_columns]
    scale = direction[2 * n_columns :].sum()  # 0 if the scale is fixed
    by_beta, by_omega, by_scale = row.slopes()
    slope = np.empty(len(rows.selected))
    slope[rows.selected] = (
        by_beta * (chosen @ beta) + by_omega * (chosen @ omega) + by_scale * scale
    )
    index = -(others @ at[n_columns:-1])
    slope[~rows.selected] = -mills_ratio(index) * (others @ omega)
    return slope
