"""Curves of single users, pulled toward the curve of all as far as their clicks warrant."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, polygamma, xlogy

from .._log._segments import TINY

__all__ = ["shrink"]

#: Prior of how users differ, worth about one user: in all factors alike, and in how steeply
#: they fall, as standard deviations of log examination; and the spread of their log variances.
_ALIKE, _STEEPNESS, _SPREAD = 0.2, 0.5, 2.0
#: Cells that say how users differ; more say it no better.
_MAX_CELLS = 50_000


def shrink(log_examination, noise, clicks, bias, common, common_error, strength="auto"):
    r"""Empirical-Bayes estimate of the curves of users.

    A user's ratio to the common curve at a factor is taken as drawn from a gamma distribution of
    mean 1 and shape :math:`a_k`, and the clicks :math:`c` as Poisson with that ratio times the
    clicks :math:`e` that the common curve :math:`\theta` expects:

    .. math::
        \hat\rho_{uk} = \frac{c_{uk} + a_k}{e_{uk} + a_k}, \qquad
        \frac{1}{a_k} = \sigma^2 + \tau^2 \theta_k^2 .

    The further a factor lies below the first, the more users differ there: by
    :math:`\tau` in how steeply they fall, and by :math:`\sigma` anywhere.

    Counts, not logarithms: most users have no click at most positions, and the logarithm of their
    estimates is then no number that a normal distribution describes.

    Parameters
    ----------
    log_examination, noise : ndarray of shape (n_factors,)
        Estimates of the (user, bias) factors, and their standard errors; where either is not
        finite, nothing is known. An estimate of no click is that of half a click.
    clicks : ndarray of shape (n_factors,)
        Clicks under each factor.
    bias : ndarray of shape (n_factors,), int
        Which entry of ``common`` a factor belongs to.
    common, common_error : ndarray of shape (n_bias,)
        Log examination of all users together, and its standard error.
    strength : "auto" or float, default="auto"
        The shape :math:`a` of all factors: clicks that the common curve is worth. By default
        :math:`\sigma` and :math:`\tau` are those of the greatest marginal likelihood.

    Returns
    -------
    log_examination, standard_error : ndarray of shape (n_factors,)
    """
    center = common[bias]
    clicks, expected = _counts(log_examination - center, noise, clicks)
    if isinstance(strength, str):
        shape = _likeliest_shape(clicks, expected, bias, center)
    else:
        shape = np.full(len(bias), float(strength))
    pull = shape / (expected + shape)  # 1 where nothing is known of the user
    error = np.sqrt(polygamma(1, clicks + shape) + (pull * common_error[bias]) ** 2)
    return center + np.log((clicks + shape) / (expected + shape)), error


def _counts(gap, noise, clicks):
    """Clicks, and clicks that the common curve expects, as many as a Poisson number would be.

    An estimate less certain than its number of clicks says counts as fewer of them, and a more
    certain one as more: where most impressions are clicked, clicks vary less than their number.
    """
    known = np.isfinite(gap) & np.isfinite(noise) & (noise > 0)
    counted = np.maximum(clicks, 0.5)
    share = np.where(known, 1 / (counted * np.where(known, noise, 1.0) ** 2), 0.0)
    return clicks * share, counted * share * np.exp(-np.where(known, gap, 0.0))


def _likeliest_shape(clicks, expected, bias, center):
    """Shape of the users' ratios at the factor of each cell, with the ratios integrated out."""
    of_bias = np.bincount(bias, clicks)
    # A user with most of the clicks is the common curve: that they agree says nothing.
    say = 1 - clicks / np.maximum(of_bias, TINY)[bias]
    told = np.flatnonzero((expected > 0) & (say > 0) & np.isfinite(center))
    told = told[:: len(told) // _MAX_CELLS + 1]
    say, clicks, expected = say[told], clicks[told], expected[told]

    def loss(log_variances):
        shape = _shape(log_variances, center[told])
        rate = shape + expected
        likelihood = gammaln(clicks + shape) - gammaln(shape)
        likelihood += xlogy(shape, shape / rate) + xlogy(clicks, expected / rate)
        prior = ((log_variances - start) / _SPREAD) ** 2
        return 0.5 * prior.sum() - say @ likelihood

    start = 2 * np.log([_ALIKE, _STEEPNESS])
    found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 0.01, "fatol": 0.01})
    return _shape(found.x, center)


def _shape(log_variances, center):
    alike, steepness = np.exp(log_variances)
    return 1 / (alike + steepness * np.nan_to_num(center) ** 2)
