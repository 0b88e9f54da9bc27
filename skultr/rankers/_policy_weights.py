"""Weights of rows by how likely the logging policy showed their documents where they stood."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from .._base._progress import working
from .._base._typing import Floats
from .._torch._joint import DualLearner, fit_policy
from ..propensity._source import distinct_pairs
from ._thresholds import LARGEST_WEIGHT, MOST_FACTORS, PRIOR_IMPRESSIONS

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._torch._net import NeuralEstimator


def weighted_by_policy(log: ClickLog, ranker: NeuralEstimator) -> ClickLog:
    r"""The log with clicks and impressions of each row times :math:`P(t) / \pi(t \mid d)`.

    That is the share of its bias factor t in all impressions over the chance that the logging
    policy showed the document d under it. All documents then have the same bias factors, as if
    pages had been shuffled. Weights are at most 10, before they are scaled so that the impressions
    keep their sum.
    """
    with working("logging policy"):
        chance = chance_of_factor(log, by_features(log, ranker))
    share = np.bincount(log.bias, log.weight, minlength=len(log.bias_values))
    share /= share.sum()
    weight = np.minimum(share[log.bias] / chance, LARGEST_WEIGHT.value)
    weight *= log.weight.sum(dtype=float) / (weight @ log.weight)
    return replace(log, clicks=log.clicks * weight, weight=log.weight * weight)


def chance_of_factor(log: ClickLog, prior: NDArray[np.float64]) -> Floats:
    """Chance of each row's bias factor given its document and query, shape (n_rows,).

    ``prior`` has that by the features, (n_rows,); it counts as ten impressions.
    """
    # Documents of a query, and their impressions: in all, and under the factor of the row.
    _, document = distinct_pairs(log.query, log.version)
    n_shown = np.bincount(document, log.weight)[document]
    _, cell = distinct_pairs(document, log.bias)
    n_here = np.bincount(cell, log.weight)[cell]
    n_prior = PRIOR_IMPRESSIONS.value
    return (n_here + n_prior * prior) / (n_shown + n_prior)


def by_features(log: ClickLog, ranker: NeuralEstimator) -> Floats:
    """Chance of each row's bias factor given the features of its page, shape (n_rows,).

    By a logistic regression on what a network thinks of the document, relative to its page.
    """
    n_factors = len(log.bias_values)
    if n_factors == 1 or n_factors > MOST_FACTORS.value:
        share = np.bincount(log.bias, log.weight, minlength=n_factors)
        return share[log.bias] / share.sum()
    learner = DualLearner.like(ranker)
    policy = fit_policy(learner, log)
    score = learner._outputs(policy, log.features)[:, 0][log.version]
    # Scores of a listwise loss have a scale, and no level: that of the page is taken off.
    mean = np.bincount(log.list_, score) / log.lengths
    score = (score - mean[log.list_])[:, None]
    regression = make_pipeline(SplineTransformer(n_knots=5), LogisticRegression(max_iter=300))
    regression.fit(score, log.bias, logisticregression__sample_weight=log.weight)
    chance = regression.predict_proba(score)
    # Classes are the factors that occur: a further log may lack one.
    column = np.searchsorted(regression.classes_, log.bias)
    return chance[np.arange(log.n_rows), column]
