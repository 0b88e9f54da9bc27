"""A scalar ranker trained on the labels that a model of vectors makes of the clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._log._segments import TINY
from .._typing import Floats, Ints

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

__all__ = ["doubly_robust_labels", "relevance_of", "spread_within"]

#: Mean of modelled relevance. Its level is not identified; it sets the size of the correction.
_MEAN_RELEVANCE = 0.2
#: Modelled relevance and click rates are at least this.
_LEAST = 1e-4
#: Largest weight of a correction, in medians.
_LARGEST_WEIGHT = 3.0


def relevance_of(log_relevance: Floats, weight: Floats) -> Floats:
    """Relevance in (0, 1] of logarithms known up to a constant; its geometric mean is 0.2.

    Parameters
    ----------
    log_relevance : ndarray of shape (n_rows,)
    weight : ndarray of shape (n_rows,)
        Impressions of each row.

    Returns
    -------
    relevance : ndarray of shape (n_rows,)
    """
    center = weight @ log_relevance / max(weight.sum(), TINY)
    return np.exp(np.clip(log_relevance - center + np.log(_MEAN_RELEVANCE), np.log(_LEAST), 0.0))


def doubly_robust_labels(log: ClickLog, relevance: Floats, rate: Floats) -> Floats:
    r"""Modelled relevance, corrected by how clicks differ from modelled clicks.

    :math:`\rho + w (c - \hat c)` with :math:`w = \min(\rho / \hat c, 3 m)`, m the median of
    :math:`\rho / \hat c`. No label is negative, because :math:`w \hat c \le \rho`. If the modelled
    clicks are right, the mean label is :math:`\rho`; if only their ratio to relevance is, the mean
    label is the relevance that the clicks show, but for the bound on w.

    Parameters
    ----------
    log : ClickLog
    relevance : ndarray of shape (n_rows,)
        Modelled relevance :math:`\rho` of the document of each row.
    rate : ndarray of shape (n_rows,)
        Modelled click rate :math:`\hat c` of each row.

    Returns
    -------
    labels : ndarray of shape (n_rows,)
        Times impressions; 0 for rows that were not shown.
    """
    rows = log.shown & (log.weight > 0)
    rate = np.clip(rate, _LEAST, 1.0)
    ratio = relevance / rate
    ratio = np.minimum(ratio, _LARGEST_WEIGHT * np.median(ratio[rows]))
    labels = log.weight * relevance + ratio * (log.clicks - log.weight * rate)
    return np.where(rows, np.maximum(labels, 0.0), 0.0)  # the last digits may be below 0


def spread_within(scores: Floats, segment: Ints) -> float:
    """Standard deviation of scores around the mean of their segment; 1 if all are equal.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
    segment : ndarray of shape (n_rows,), int
        Codes from 0, such as of queries.
    """
    counts = np.maximum(np.bincount(segment), 1)
    mean = np.bincount(segment, scores) / counts
    spread = float(np.sqrt(np.mean((scores - mean[segment]) ** 2)))
    return spread if spread > TINY else 1.0
