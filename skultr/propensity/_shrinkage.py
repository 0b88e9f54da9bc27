"""Curves of single users, shrunk toward the common curve by empirical Bayes."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, polygamma, xlogy

from .._log._segments import TINY

#: Prior of the standard deviations of users' log examination, with the weight of about one user:
#: sigma (equal for all factors), tau (in steepness), and the spread of their log variances.
_SIGMA, _TAU, _SPREAD = 0.2, 0.5, 2.0
#: The variances are estimated from at most so many cells; more do not change them.
_MAX_CELLS = 50_000


def shrink(log_examination, noise, clicks, bias, common, common_error, strength="auto"):
    r"""Empirical-Bayes estimate of log examination per (user, bias) factor, with its error.

    The model of the clicks :math:`c_{uk}` of user u under factor k, where the common curve
    :math:`\theta` (log examination) expects :math:`e_{uk}` clicks, is

    .. math::
        c_{uk} \mid \rho_{uk} \sim \mathrm{Poisson}(\rho_{uk} e_{uk}), \qquad
        \rho_{uk} \sim \mathrm{Gamma}(\text{mean } 1, \text{shape } a_k), \qquad
        \frac{1}{a_k} = \sigma^2 + \tau^2 \theta_k^2 .

    Users differ by :math:`\tau` in the steepness of their curves and by :math:`\sigma` at each
    factor, so that they differ most at factors with little examination. Both maximise the
    marginal likelihood, and the estimate is the posterior mean of the ratio:

    .. math::
        (\hat\sigma, \hat\tau) = \arg\max \sum_{u, k} w_{uk} \log
        \frac{\Gamma(c_{uk} + a_k)}{\Gamma(a_k)}
        \frac{a_k^{a_k} e_{uk}^{c_{uk}}}{(a_k + e_{uk})^{a_k + c_{uk}}}
        - \text{prior}(\sigma, \tau), \qquad
        \hat\rho_{uk} = \frac{c_{uk} + a_k}{e_{uk} + a_k} .

    Counts are modelled instead of log estimates because most users have no click at most
    positions; the logarithm of their estimates is far from normal there.
    """
    center = common[bias]
    clicks, expected = _counts(log_examination - center, noise, clicks)
    if isinstance(strength, str):
        shape = _estimated_shape(clicks, expected, bias, center)
    else:
        shape = np.full(len(bias), float(strength))
    pull = shape / (expected + shape)  # 1 without data of the user
    error = np.sqrt(polygamma(1, clicks + shape) + (pull * common_error[bias]) ** 2)
    return center + np.log((clicks + shape) / (expected + shape)), error


def _counts(gap, noise, clicks):
    """Effective Poisson counts: clicks, and clicks that the common curve expects, per factor.

    The log of a Poisson count c has the variance 1 / c. An estimate with the standard error s and
    c clicks is therefore treated as 1 / s² clicks: both counts are multiplied by 1 / (c s²). That
    exceeds 1 where most impressions are clicked, because such clicks vary less than Poisson.
    """
    known = np.isfinite(gap) & np.isfinite(noise) & (noise > 0)
    counted = np.maximum(clicks, 0.5)
    share = np.where(known, 1 / (counted * np.where(known, noise, 1.0) ** 2), 0.0)
    return clicks * share, counted * share * np.exp(-np.where(known, gap, 0.0))


def _estimated_shape(clicks, expected, bias, center):
    """Shape a_k per factor, by maximum marginal likelihood of sigma and tau."""
    of_bias = np.bincount(bias, clicks)
    # A user who contributes most clicks dominates the common curve, so agreement is no evidence
    # of homogeneity: the weight is the share of the clicks that others have.
    weight = 1 - clicks / np.maximum(of_bias, TINY)[bias]
    some = np.flatnonzero((expected > 0) & (weight > 0) & np.isfinite(center))
    some = some[:: len(some) // _MAX_CELLS + 1]
    weight, clicks, expected = weight[some], clicks[some], expected[some]

    def loss(log_variances):
        shape = _shape(log_variances, center[some])
        rate = shape + expected
        likelihood = gammaln(clicks + shape) - gammaln(shape)
        likelihood += xlogy(shape, shape / rate) + xlogy(clicks, expected / rate)
        prior = ((log_variances - start) / _SPREAD) ** 2
        return 0.5 * prior.sum() - weight @ likelihood

    start = 2 * np.log([_SIGMA, _TAU])
    found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 0.01, "fatol": 0.01})
    return _shape(found.x, center)


def _shape(log_variances, center):
    variance, steepness = np.exp(log_variances)
    return 1 / (variance + steepness * np.nan_to_num(center) ** 2)
