"""What computes the scores of a ranker that has a network or coefficients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import nn

from .._torch._net import NeuralEstimator
from ._click_ranker import ClickRanker
from ._heckman import HeckmanRanker
from ._ips import LearnerRanker
from ._members import DistilledRanker
from ._ranker import BaseRanker
from ._vectorization import VectorizationRanker

#: What computes scores by the formula; a click model, or a class of the user, has its own.
_KNOWN = {
    *(kind.predict for kind in (BaseRanker, ClickRanker, VectorizationRanker)),
    *(kind._score for kind in (NeuralEstimator, LearnerRanker, HeckmanRanker, DistilledRanker)),
}


class ScoreFormula(NamedTuple):
    r"""A score :math:`a + b \bar g(x)`, with the mean :math:`\bar g` of a network's outputs."""

    network: nn.Module
    shift: float = 0.0
    scale: float = 1.0
    is_probability: bool = False
    transformers: tuple[Any, ...] = ()


def score_formula(ranker: Any) -> ScoreFormula | None:
    """The formula of the scores of a fitted ranker; None if they come from something else.

    Of a ranker whose scores depend on the whole query it is that of the student.
    """
    if not {type(ranker).predict, getattr(type(ranker), "_score", None)} <= _KNOWN:
        return None
    estimator = getattr(ranker, "student_", getattr(ranker, "estimator_", None))
    if estimator is not None:
        return _of_estimator(estimator)
    if isinstance(ranker, HeckmanRanker) and ranker._is_linear():
        layer = _layer(ranker.coef_, ranker.intercept_)
        return ScoreFormula(nn.Sequential(ranker._scaling, layer))
    if isinstance(ranker, VectorizationRanker):
        return ScoreFormula(ranker.student_network_)
    return ScoreFormula(ranker.network_, *ranker._units, ranker._gives_probabilities)


def _of_estimator(estimator):
    """The formula of a linear regressor, or of a Pipeline that ends in one."""
    steps = list(estimator) if isinstance(estimator, Pipeline) else [estimator]
    steps = [step for step in steps if step not in (None, "passthrough")]
    coef, intercept = (getattr(steps[-1], name, None) for name in ("coef_", "intercept_"))
    if coef is None or intercept is None:
        return None
    layer = _layer(coef, intercept)
    rows = np.random.default_rng(0).normal(size=(5, np.size(coef)))
    linear = layer(torch.from_numpy(rows)).detach().numpy()[:, 0]
    # Coefficients may also be those of a logarithm, or of features that were centred.
    if not np.allclose(np.ravel(steps[-1].predict(rows)), linear, rtol=1e-4, atol=1e-5):
        return None
    return ScoreFormula(layer, transformers=tuple(steps[:-1]))


def _layer(coef, intercept):
    layer = nn.utils.skip_init(nn.Linear, np.size(coef), 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.ravel(coef).astype(float)))
        layer.bias.fill_(float(np.squeeze(intercept)))
    return layer
