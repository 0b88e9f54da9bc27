"""Formulas of vectorization: base vectors, and the labels of its student."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._base._typing import Floats, Ints
from .._log._segments import TINY, encode, pair_codes
from ..exceptions import NotIdentifiableWarning, warn_user

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Mean of modelled relevance. Its level is not identified; it sets the size of the correction.
_MEAN_RELEVANCE = 0.2
#: Modelled relevance and click rates are at least this.
_LEAST = 1e-4
#: Largest weight of a correction, in medians.
_LARGEST_WEIGHT = 3.0


def relevance_of(log_relevance: Floats, weight: Floats) -> Floats:
    """Relevance in (0, 1] of logarithms known up to a constant; its geometric mean is 0.2."""
    center = weight @ log_relevance / max(weight.sum(), TINY)
    return np.exp(np.clip(log_relevance - center + np.log(_MEAN_RELEVANCE), np.log(_LEAST), 0.0))


def doubly_robust_labels(log: ClickLog, relevance: Floats, rate: Floats) -> Floats:
    r"""Modelled relevance, corrected by how clicks differ from modelled clicks.

    :math:`\rho + w (c - \hat c)` with :math:`w = \min(\rho / \hat c, 3 m)`, m the median of
    :math:`\rho / \hat c`. No label is negative, because :math:`w \hat c \le \rho`. If the modelled
    clicks are right, the mean label is :math:`\rho`; if only their ratio to relevance is, the mean
    label is the relevance that the clicks show, but for the bound on w.
    """
    rate = np.clip(rate, _LEAST, 1.0)
    ratio = relevance / rate
    ratio = np.minimum(ratio, _LARGEST_WEIGHT * np.median(ratio))
    labels = log.weight * relevance + ratio * (log.clicks - log.weight * rate)
    return np.maximum(labels, 0.0)  # the last digits may be below 0


def spread_within(scores: Floats, segment: Ints) -> float:
    """Standard deviation of scores around the mean of their segment; 1 if all are equal."""
    counts = np.maximum(np.bincount(segment), 1)
    mean = np.bincount(segment, scores) / counts
    spread = float(np.sqrt(np.mean((scores - mean[segment]) ** 2)))
    return spread if spread > TINY else 1.0


def most_likely_vectors(query: Ints, n_queries: int, mean: Floats, log_variance: Floats) -> Floats:
    """Base vector of each query (eq. 8): means of its rows, weighted by 1 / variance."""
    vectors = np.empty((n_queries, mean.shape[1]))
    for place, (means, logs) in enumerate(zip(mean.T, log_variance.T, strict=True)):
        # Relative to the least variance of the query, so that no weight overflows.
        least = np.full(n_queries, np.inf)
        np.minimum.at(least, query, logs)
        weights = np.exp(least[query] - logs)
        vectors[:, place] = np.bincount(query, weights * means) / np.bincount(query, weights)
    return vectors


def impressions_of_versions(log: ClickLog) -> tuple[Ints, Floats]:
    """The versions that were shown, and the impressions of each."""
    impressions = np.bincount(log.version, log.weight, minlength=log.n_versions)
    versions = np.unique(log.version)
    return versions, impressions[versions]


def shown_candidates(log: ClickLog) -> tuple[Ints, Ints, Ints]:
    """Number of the candidate of each shown row, then query and version of each candidate.

    A candidate counts once, however many lists showed it. Queries are codes from 0 of those that
    showed any.
    """
    place, key = encode(pair_codes(log.query, log.version, log.n_versions))
    query, version = np.divmod(key, log.n_versions)
    return place, encode(query)[0], version


def warn_about_rank(n_components: int, n_factors: int) -> None:
    """Warn if vectors are longer than the clicks can determine."""
    if n_components > n_factors:
        warn_user(
            f"n_components={n_components}, but the log has {n_factors} bias "
            f"factor{'' if n_factors == 1 else 's'}: its clicks determine products of rank "
            f"{n_factors} at most, and further components are arbitrary. Use "
            f"n_components={n_factors} or less.",
            NotIdentifiableWarning,
        )
