"""Curves of users by pairwise comparison, each shrunk toward the common curve."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit

from .._log._segments import TINY
from ._comparisons import (
    BATCH,
    curvature,
    first_compared,
    gradient_noise,
    penalised_curves,
    win_probability,
)

#: Prior variance of a factor that is fixed.
_FIXED = 1e-9
#: Differences between users are estimated from at most so many; more do not change the estimate.
_MOST_USERS = 2_000
#: Prior of the log variances (of steepness, of single factors): mean and standard deviation.
_PRIOR_MEAN, _PRIOR_SPREAD = np.log([0.5**2, 0.3**2]), 2.0
_LEAST, _LARGEST = np.log(0.01**2), np.log(3.0**2)
_GRID = [np.log([tau**2, sigma**2]) for tau in (0.05, 0.25, 1.0) for sigma in (0.05, 0.25, 1.0)]
_MOST_TRIALS, _MOST_ROUNDS = 30, 20


def pooled_curves(comparisons, totals, common, common_error, strength="auto"):
    r"""Penalised maximum-likelihood curves of log examination, one per user, with their errors.

    The curve :math:`\theta_u` of user u maximises

    .. math::
        \sum_{k \neq l} s_k s_l\, C_{ukl} \log
        \frac{e^{\theta_{uk}}}{e^{\theta_{uk}} + e^{\theta_{ul}}}
        - \tfrac12 (\theta_u - m)^\top T^{-1} (\theta_u - m), \qquad
        T = \tau^2 \theta \theta^\top + \sigma^2 I, \quad
        m = \theta - \tfrac12 \operatorname{diag} T .

    The scale :math:`s_k s_l` turns the totals into numbers of independent clicks, see
    :func:`_factor_scale`. The common curve :math:`\theta` is the logarithm of mean examination;
    examination is log-normal over users, so that its median is m. Users differ in steepness
    (:math:`\tau`), one random slope per user that clicks at the top determine for deeper
    positions too, and by one random effect per factor (:math:`\sigma`). Both maximise the
    marginal likelihood in Laplace's approximation, with a weak prior. Shrinking the logarithm of
    each user's own estimate instead fails if most users have no click at most positions: their
    own estimates hardly exist.
    """
    unknown = np.isnan(common)
    center, center_error = np.nan_to_num(common), np.nan_to_num(common_error)
    clicks = _independent_clicks(comparisons, totals, center)
    # Curves are relative to the first factor, which is fixed.
    first = first_compared(comparisons.mean_weight())
    free = ~unknown & (np.arange(len(common)) != first)
    fall = np.where(free, center - center[first], 0.0)
    n_clicks = clicks.sum(axis=(1, 2))
    share = n_clicks / max(n_clicks.sum(), TINY)
    if isinstance(strength, str):
        covariance = _estimated_covariance(clicks, share, center, fall, free)
        center = _median(center, covariance, share)
    else:
        covariance = _covariance((0.0, 1 / strength), fall, free)
    precision = np.linalg.inv(covariance)
    curves, errors = np.empty_like(totals[:, 0]), np.empty_like(totals[:, 0])
    step = max(1, BATCH // totals[0].size)
    for start in range(0, len(totals), step):
        some = slice(start, start + step)
        curves[some] = penalised_curves(clicks[some], precision, center)
        inverse = np.linalg.inv(curvature(clicks[some], curves[some]) + precision)
        of_common = inverse @ precision @ center_error
        of_clicks = np.diagonal(inverse, axis1=1, axis2=2)
        errors[some] = np.sqrt(of_clicks + of_common**2) * free
    return np.where(unknown, np.nan, curves), np.where(unknown, np.nan, errors)


def _estimated_covariance(clicks, share, center, fall, free):
    """Covariance T of the curves of users, shape (n_bias, n_bias), by marginal likelihood.

    A user who contributes most clicks dominates the common curve, so agreement is no evidence of
    homogeneity. The weight of a user is therefore the share of the clicks that others have.
    """
    users = np.flatnonzero(share > 0)
    most = max(1, min(_MOST_USERS, BATCH // clicks[0].size))
    if len(users) > most:
        users = np.random.default_rng(0).choice(users, most, replace=False)
    clicks, weight = clicks[users], 1 - share[users]
    curves = np.tile(center, (len(users), 1))

    def loss(log_variances):
        nonlocal curves
        covariance = _covariance(np.exp(log_variances), fall, free)
        median = _median(center, covariance, share)
        curves = penalised_curves(clicks, np.linalg.inv(covariance), median, start=curves)
        penalty = ((log_variances - _PRIOR_MEAN) ** 2).sum() / (2 * _PRIOR_SPREAD**2)
        return penalty - weight @ _log_evidence(clicks, curves, median, covariance)

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
    """Median curve of log examination over users whose mean examination is the common curve.

    A log-normal variable has the median mean * exp(-variance / 2). The common curve is a mean over
    the users weighted by their shares p_u of the clicks. It varies with them, so that the variance
    of a user around it is only 1 - Σ p_u² of the full one.
    """
    return common - 0.5 * (share.sum() - (share**2).sum()) * np.diag(covariance)


def _log_evidence(clicks, curves, center, covariance):
    """Marginal log likelihood per user, shape (n_users,), in Laplace's approximation.

    At the penalised maximum θ_u, with the Laplacian L of :func:`curvature`, it is

        l(θ_u) - (θ_u - m)' T^-1 (θ_u - m) / 2 - log det(L + T^-1) / 2 - log det(T) / 2.
    """
    gap, precision = curves - center, np.linalg.inv(covariance)
    fit = (clicks * log_expit(curves[:, :, None] - curves[:, None, :])).sum(axis=(1, 2))
    pull = np.einsum("ui,ij,uj->u", gap, precision, gap)
    width = np.linalg.slogdet(curvature(clicks, curves) + precision)[1]
    return fit - 0.5 * (pull + width + np.linalg.slogdet(covariance)[1])


def _covariance(variances, fall, free):
    steepness, own = variances
    return steepness * np.outer(fall, fall) + np.diag(np.where(free, own, _FIXED))


def _independent_clicks(comparisons, totals, center):
    """Totals on the scale of independent clicks, s_k s_l C_ukl.

    One click is counted, in part, in several comparisons, so that the Laplacian of the totals is
    not their information. The noise of the gradient is estimated from single clicks, as if they
    were independent, and from documents. The smaller of the two is used, because gradients of
    documents also contain the differences between users.
    """
    log = comparisons
    lost = 1 - win_probability(center[None]).ravel()
    pull = log.weight * lost[log.key % lost.size]
    of_cells = gradient_noise(log.cell, log.key, pull * log.clicks**0.5, totals.shape[:2])
    of_docs = gradient_noise(log.doc, log.key, pull * log.clicks, totals.shape[:2])
    noise = np.diag(np.minimum(of_cells.sum(axis=0), of_docs.sum(axis=0)))
    information = curvature(totals.sum(axis=0, keepdims=True), center[None])[0]
    scale = _factor_scale(information, noise)
    return totals * np.outer(scale, scale)


def _factor_scale(information, noise):
    """Scale s such that s_k s_l C_kl has the information i_k**2 / noise_k about factor k.

    With the Laplacian of the totals, whose diagonal is i and whose other entries are -W_kl, a
    gradient with the variance noise_k determines b_k with the precision i_k**2 / noise_k. The
    scaled totals have the information s_k Σ_l W_kl s_l. The fixed point of the iteration is

        s_k Σ_l W_kl s_l = i_k**2 / noise_k.
    """
    own = np.diag(information)
    between = np.diag(own) - information
    precision = _ratio(own, noise)  # per unit of information
    scale = np.sqrt(precision)
    for _ in range(_MOST_ROUNDS):
        scale = np.sqrt(scale * precision / _ratio(between @ scale, own))
    return scale


def _ratio(numerator, denominator):
    """Quotient, 1 where either is 0."""
    known = (numerator > 0) & (denominator > 0)
    return np.divide(numerator, denominator, out=np.ones_like(denominator), where=known)
