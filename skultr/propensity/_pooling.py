"""Curves of users by comparison, each pulled toward the curve of all users."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit

from .._log._segments import TINY
from ._comparisons import (
    BATCH,
    curvature,
    first_compared,
    gradient_noise,
    likeliest,
    win_probability,
)

__all__ = ["pooled_curves"]

#: Variance that lets nothing move.
_FIXED = 1e-9
#: Users who say how users differ; more would say the same.
_MOST_USERS = 2_000
#: Variances of steepness and of single factors: one that is likely before a log is seen, and how
#: far, as a standard deviation of its logarithm, logs differ from it.
_USUAL, _UNSURE = np.log([0.5**2, 0.3**2]), 2.0
_LEAST, _LARGEST = np.log(0.01**2), np.log(3.0**2)
_GRID = [np.log([tau**2, sigma**2]) for tau in (0.05, 0.25, 1.0) for sigma in (0.05, 0.25, 1.0)]
_MOST_TRIALS, _MOST_ROUNDS = 30, 20


def pooled_curves(comparisons, totals, common, common_error, strength="auto"):
    r"""The likeliest curves of users who differ as normal variables do.

    For each user u, over the curve :math:`\theta_u` of log examination:

    .. math::
        \max_{\theta_u} \; \kappa \sum_{k \neq l} C_{ukl} \log
        \frac{e^{\theta_{uk}}}{e^{\theta_{uk}} + e^{\theta_{ul}}}
        - \tfrac12 (\theta_u - m)^\top T^{-1} (\theta_u - m), \qquad
        T = \tau^2 \theta \theta^\top + \sigma^2 I, \quad
        m = \theta - \tfrac12 \operatorname{diag} T .

    The common curve :math:`\theta` is that of mean examination, of which m is the median. Users
    differ in how steeply their curves fall (:math:`\tau`), so that what one did at the top
    tells of the depths, and at each factor on its own (:math:`\sigma`). Both are the likeliest
    with the curves integrated out, in Laplace's approximation. Pulling the logarithm of each
    user's own estimate, as one would for many clicks, fails where most users have no click at
    most positions: such estimates hardly exist.

    Parameters
    ----------
    comparisons : Comparisons
    totals : ndarray of shape (n_users, n_bias, n_bias)
        Clicks under each factor that count against each other one.
    common, common_error : ndarray of shape (n_bias,)
        Log examination of all users together, and its standard error.
    strength : "auto" or float, default="auto"
        A number stands for T = I / strength, around the common curve.

    Returns
    -------
    log_examination, standard_error : ndarray of shape (n_users, n_bias)
        NaN where the common curve is.
    """
    unknown = np.isnan(common)
    center, center_error = np.nan_to_num(common), np.nan_to_num(common_error)
    clicks = _independent_clicks(comparisons, totals, center)
    # What curves are relative to stays.
    first = first_compared(comparisons.mean_worth())
    free = ~unknown & (np.arange(len(common)) != first)
    fall = np.where(free, center - center[first], 0.0)
    told = clicks.sum(axis=(1, 2))
    share = told / max(told.sum(), TINY)
    if isinstance(strength, str):
        covariance = _likeliest_covariance(clicks, share, center, fall, free)
        center = _median(center, covariance, share)
    else:
        covariance = _covariance((0.0, 1 / strength), fall, free)
    precision = np.linalg.inv(covariance)
    curves, errors = np.empty_like(totals[:, 0]), np.empty_like(totals[:, 0])
    step = max(1, BATCH // totals[0].size)
    for start in range(0, len(totals), step):
        some = slice(start, start + step)
        curves[some] = likeliest(clicks[some], precision, center)
        inverse = np.linalg.inv(curvature(clicks[some], curves[some]) + precision)
        of_common = inverse @ precision @ center_error
        of_clicks = np.diagonal(inverse, axis1=1, axis2=2)
        errors[some] = np.sqrt(of_clicks + of_common**2) * free
    return np.where(unknown, np.nan, curves), np.where(unknown, np.nan, errors)


def _likeliest_covariance(clicks, share, center, fall, free):
    """How users differ, given what all of them clicked.

    A user with nearly all clicks is the common curve, and would seem to say that users differ
    little: users count by the share of the clicks that others have.
    """
    users = np.flatnonzero(share > 0)
    most = max(1, min(_MOST_USERS, BATCH // clicks[0].size))
    if len(users) > most:
        users = np.random.default_rng(0).choice(users, most, replace=False)
    clicks, count = clicks[users], 1 - share[users]
    curves = np.tile(center, (len(users), 1))

    def loss(log_variances):
        nonlocal curves
        covariance = _covariance(np.exp(log_variances), fall, free)
        median = _median(center, covariance, share)
        curves = likeliest(clicks, np.linalg.inv(covariance), median, start=curves)
        surprise = ((log_variances - _USUAL) ** 2).sum() / (2 * _UNSURE**2)
        return surprise - count @ _log_evidence(clicks, curves, median, covariance)

    start = min(_GRID, key=loss)
    found = minimize(
        loss,
        start,
        method="Nelder-Mead",
        bounds=[(_LEAST, _LARGEST)] * 2,
        options={
            "initial_simplex": start + np.array([[0, 0], [1, 0], [0, 1]]),
            "maxfev": _MOST_TRIALS,
            "xatol": 0.1,
            "fatol": 0.01,
        },
    )
    return _covariance(np.exp(found.x), fall, free)


def _median(common, covariance, share):
    """The median of users whose mean is the common curve, as log-normal variables have it.

    The fewer users have the clicks, the nearer is each of them to the mean.
    """
    return common - 0.5 * (share.sum() - (share**2).sum()) * np.diag(covariance)


def _log_evidence(clicks, curves, center, covariance):
    """Log likelihood of each user's clicks with the curve integrated out."""
    gap, precision = curves - center, np.linalg.inv(covariance)
    fit = (clicks * log_expit(curves[:, :, None] - curves[:, None, :])).sum(axis=(1, 2))
    pull = np.einsum("ui,ij,uj->u", gap, precision, gap)
    width = np.linalg.slogdet(curvature(clicks, curves) + precision)[1]
    return fit - 0.5 * (pull + width + np.linalg.slogdet(covariance)[1])


def _covariance(variances, fall, free):
    steepness, own = variances
    return steepness * np.outer(fall, fall) + np.diag(np.where(free, own, _FIXED))


def _independent_clicks(comparisons, totals, center):
    """Totals on the scale on which they tell as much as so many independent clicks.

    One click counts in several comparisons, and in part; two clicks on a document, under either
    factor, say nothing. Noise is that of clicks that fall independently, or what units
    contradict the common curve, if that is less: it holds how users differ, too.
    """
    log = comparisons
    lost = 1 - win_probability(center[None]).ravel()
    pull = log.worth * lost[log.key % lost.size]
    of_cells = gradient_noise(log.cell, log.key, pull * log.clicks**0.5, totals.shape[:2])
    of_units = gradient_noise(log.unit, log.key, pull * log.clicks, totals.shape[:2])
    noise = np.diag(np.minimum(of_cells.sum(axis=0), of_units.sum(axis=0)))
    information = curvature(totals.sum(axis=0, keepdims=True), center[None])[0]
    scale = _factor_scale(information, noise)
    return totals * np.outer(scale, scale)


def _factor_scale(information, noise):
    """Numbers s: with s_k s_l as weight of the comparison of k and l, both are equal."""
    told = np.diag(information)
    between = np.diag(told) - information
    worth = _ratio(told, noise)
    scale = np.sqrt(worth)
    for _ in range(_MOST_ROUNDS):
        scale = np.sqrt(scale * worth / _ratio(between @ scale, told))
    return scale


def _ratio(of, by):
    """Quotient, 1 where either is 0."""
    return np.divide(of, by, out=np.ones_like(by), where=(of > 0) & (by > 0))
