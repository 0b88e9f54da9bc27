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


#: Knots of the spline by which a network's score tells the place: a curve, which need not be
#: straight, of few numbers.
_KNOTS = 5
#: Steps of the regression. Its default of 100 does not suffice for scores that tell the place
#: nearly always.
_ITERATIONS = 300


def weighted_by_policy(log: ClickLog, ranker: NeuralEstimator) -> ClickLog:
    r"""The log with clicks and impressions of each row times :math:`P(t) / \pi(t \mid d)`.

    That is the share of its bias factor t in all impressions over the chance that the logging
    policy showed the document d under it. All documents then have the same bias factors, as if
    pages had been shuffled. Weights are at most 10, before they are scaled so that the impressions
    keep their sum.
    """
    with working("logging policy"):
        chance = chance_of_factor(log, chance_by_features(log, ranker))
    weight = np.minimum(_shares(log)[log.bias] / chance, LARGEST_WEIGHT.value)
    weight *= log.weight.sum(dtype=float) / (weight @ log.weight)
    return replace(log, clicks=log.clicks * weight, weight=log.weight * weight)


def chance_of_factor(log: ClickLog, prior: NDArray[np.float64]) -> Floats:
    """Chance of each row's bias factor given its document and query, shape (n_rows,).

    ``prior`` has that by the features, (n_rows,); it counts as ten impressions. The other
    impressions of the document tell the chance of one: its own would find itself likely.
    """
    # Documents of a query, and their impressions: in all, and under the factor of the row.
    _, document = distinct_pairs(log.query, log.doc)
    n_shown = np.bincount(document, log.weight)[document]
    _, cell = distinct_pairs(document, log.bias)
    n_here = np.bincount(cell, log.weight)[cell]
    own = np.minimum(log.weight, 1.0)
    n_prior = PRIOR_IMPRESSIONS.value
    return (n_here - own + n_prior * prior) / (n_shown - own + n_prior)


def chance_by_features(log: ClickLog, ranker: NeuralEstimator) -> Floats:
    """Chance of each row's bias factor given the features of its page, shape (n_rows,).

    By a logistic regression on what a network thinks of the document, relative to its page.
    """
    share = _shares(log)[log.bias]
    part = log.sample()
    n_factors = np.count_nonzero(_shares(part))
    if n_factors == 1 or n_factors > MOST_FACTORS.value:
        return share
    learner = DualLearner.like(ranker)
    policy = fit_policy(learner, log)
    regression = make_pipeline(
        SplineTransformer(n_knots=_KNOTS), LogisticRegression(max_iter=_ITERATIONS)
    )
    above = _above_page(part, learner, policy)
    regression.fit(above, part.bias, logisticregression__sample_weight=part.weight)
    chance = regression.predict_proba(_above_page(log, learner, policy))
    # Classes are the factors of the sample. Features do not tell of one that it lacks.
    factors = regression.classes_
    column = np.minimum(np.searchsorted(factors, log.bias), len(factors) - 1)
    is_known = factors[column] == log.bias
    return np.where(is_known, chance[np.arange(log.n_rows), column], share)


def _above_page(log, learner, policy):
    """Score of each row's document by the policy less the mean of its page, (n_rows, 1)."""
    # Scores of a listwise loss have a scale, and no level.
    score = learner._outputs(policy, log.features)[:, 0][log.version]
    mean_of_page = np.bincount(log.list_, score) / log.lengths
    return (score - mean_of_page[log.list_])[:, None]


def _shares(log):
    """Share of each bias factor in the impressions of a log, shape (n_factors,)."""
    shown = np.bincount(log.bias, log.weight, minlength=len(log.bias_values))
    return shown / shown.sum()
