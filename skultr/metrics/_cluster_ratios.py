"""Ratios of two sums over clusters: intervals and p-values, for one look at the data or all.

``lead`` and ``size`` are the sums of each cluster, whose ratio is asked for.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from .._typing import Floats

#: Effective number of clusters up to which there is no interval and no p-value.
_LEAST = 10
#: Sum of squared leads (sessions won, if they are independent) at which intervals for all looks
#: are narrowest, divided by what makes it so at the level 5 %.
_MIXTURE = 1000 / 8.8
_TINY = 1e-300


def quantile_of_lead(lead: Floats, level: float, sequential: bool) -> float:
    """Standard errors that the sum of leads exceeds with this probability; at any look."""
    if not sequential:
        return float(norm.isf(level / 2))
    if (squares := (lead**2).sum()) <= 1e-3:
        return np.inf
    ratio = 1 + squares / _MIXTURE
    return float(np.sqrt(ratio / (ratio - 1) * np.log(ratio / level**2)))


def p_value_of_lead(lead: Floats, sequential: bool) -> float:
    """Two-sided p-value of no lead: the level whose quantile the sum reaches."""
    squares = (lead**2).sum()
    if not sequential:
        return float(2 * norm.sf(abs(lead.sum()) / np.sqrt(max(squares, _TINY))))
    ratio = 1 + squares / _MIXTURE
    return float(min(1.0, np.sqrt(ratio) * np.exp(-(lead.sum() ** 2) / (2 * _MIXTURE * ratio))))


def least_squared_size(size: Floats, z: float) -> float:
    """The square of the sum of sizes above which there are enough clusters."""
    return float(max(_LEAST, z**2) * (size**2).sum())


def ratio_interval(lead: Floats, size: Floats, z: float, unknown: float) -> tuple[float, float]:
    r"""Ends of all :math:`\theta` whose :math:`\sum_g (S_g - \theta m_g)` is within z errors of 0.

    In too few clusters they are ``unknown`` away from 0.
    """
    total = size.sum()
    if total**2 <= least_squared_size(size, z):
        return -unknown, unknown
    a = total**2 - z**2 * (size**2).sum()
    b = lead.sum() * total - z**2 * (lead * size).sum()
    c = lead.sum() ** 2 - z**2 * (lead**2).sum()
    half = np.sqrt(max(b**2 - a * c, 0.0))
    return (b - half) / a, (b + half) / a
