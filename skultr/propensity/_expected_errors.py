"""Half-widths that InterventionHarvesting will report of clicks that are still to come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._log._segments import TINY
from .._typing import Floats

__all__ = ["Precision", "expected_precision"]

#: Quantile of a 95 % interval.
_QUANTILE = 1.96
#: Standard deviations of the reported half-width between the expected and the promised one.
_ASSURANCE = 2.5
#: Below so many effective documents errors are those of Poisson clicks, as in ``Curves``.
_LEAST_DOCS = 30


class Precision(NamedTuple):
    """Expected half-width of each position, and the one that 95 % of experiments reach."""

    expected: Floats
    promised: Floats


def expected_precision(
    shown: Floats, relevance: Floats, examination: Floats, error: Floats
) -> Precision:
    r"""Half-widths of the 95 % intervals of examination relative to the first position.

    The covariance is the sandwich :math:`L^{-1} (\sum_d u_d u_d^\top) L^{-1}` over documents, as
    in ``Curves``, here with expected clicks. All half-widths are infinite if these impressions do
    not connect all positions.

    Parameters
    ----------
    shown : ndarray of shape (n_docs, n_positions)
        Impressions.
    relevance : ndarray of shape (n_docs,)
        P(click) at the first position.
    examination, error : ndarray of shape (n_positions,)
        Relative to the first position, and the standard error with which its logarithm is known.
    """
    o, moved = examination, (shown > 0).sum(axis=1) > 1
    n, relevance = shown[moved], relevance[moved, None]
    clicks = n * relevance * o
    lost = o / (o + o[:, None])  # P(a click of the pair k, l was at l)
    pulls = []  # of a click at k, from each other position
    for k in range(len(o)):
        weight = n / np.maximum(n + n[:, [k]], TINY) * (n[:, [k]] > 0)
        weight[:, k] = 0
        pulls.append(weight * lost[k])
    edge = np.array([clicks[:, k] @ pull for k, pull in enumerate(pulls)]) * lost.T
    edge += edge.T
    laplacian = (np.diag(edge.sum(axis=1)) - edge)[1:, 1:]
    if np.linalg.matrix_rank(laplacian) < len(laplacian):
        return Precision(*np.full((2, len(o)), np.inf))
    inverse = np.zeros_like(edge)
    inverse[1:, 1:] = np.linalg.inv(laplacian)
    by_doc, poisson = np.zeros_like(n), np.zeros(len(o))
    for k, pull in enumerate(pulls):
        influence = (pull.sum(axis=1, keepdims=True) * inverse[k] - pull @ inverse) ** 2
        by_doc += clicks[:, [k]] * (1 - np.minimum(relevance * o[k], 1)) * influence
        poisson += clicks[:, k] @ influence
    variance, n_docs = by_doc.sum(axis=0), clicks.sum(axis=0) ** 2 / (clicks**2).sum(axis=0)
    enough = np.minimum(n_docs, n_docs[0]) >= _LEAST_DOCS
    # Relative variance of the reported half-width: that of the sandwich, and that of examination,
    # whose estimates from the log and from the whole share the information of the log.
    spread = (by_doc**2).sum(axis=0) / np.maximum(variance**2, TINY) / 2 * enough
    variance = np.where(enough, variance, poisson)
    spread += np.abs(error**2 - variance) / 2
    expected = _QUANTILE * o * np.sqrt(variance)
    return Precision(expected, expected * (1 + _ASSURANCE * np.sqrt(spread)))
