"""Linear scores as models of Elasticsearch and OpenSearch LTR, and of Solr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

from .._torch._networks import ScaleFeatures, SideBySide
from .._torch._stream import Dropout, Linear
from .._typing import Floats
from ..rankers._score_formula import score_formula

if TYPE_CHECKING:
    from ._served_model import ServedModel

__all__ = ["LinearScores", "columns_scaled", "linear_of", "write_linear", "write_solr_linear"]

#: What each scaler takes off a column, and what it then divides the column by.
_SCALERS = {
    StandardScaler: lambda s: (s.mean_ if s.with_mean else 0, s.scale_ if s.with_std else 1),
    MinMaxScaler: lambda s: (s.data_min_ - s.feature_range[0] / s.scale_, 1 / s.scale_),
    MaxAbsScaler: lambda s: (0, s.scale_),
    RobustScaler: lambda s: (
        s.center_ if s.with_centering else 0,
        s.scale_ if s.with_scaling else 1,
    ),
}


class LinearScores(NamedTuple):
    """Scores Σ weight · (x - center) / spread by feature, without an intercept."""

    names: tuple[str, ...]
    weight: Floats
    center: Floats
    spread: Floats


def linear_of(served: ServedModel) -> LinearScores | None:
    """The linear scores of a model; None if its ranker has neither a network nor coefficients.

    The intercept is left out. Where a score is a probability, this is its logit. Neither changes
    the order of documents.

    Raises
    ------
    ValueError
        If the scores are no linear function of the features, or of features scaled one by one.
    """
    formula = score_formula(served.ranker)
    if formula is None:
        return None
    slopes = _slopes(formula.network, np.eye(len(served.names)), type(served.ranker).__name__)
    scaled = columns_scaled(served, formula.transformers)
    return LinearScores(served.names, formula.scale * slopes.mean(axis=0), *scaled)


def write_linear(scores: LinearScores, *, name: str) -> str:
    """A ``model/linear``, the body of ``_ltr/_featureset/<set>/_createmodel``."""
    weights, scaled = _columns(scores)
    normalizers = {
        feature: {"standard": {"mean": center, "standard_deviation": spread}}
        for feature, (center, spread) in scaled.items()
    }
    model: dict[str, Any] = {"type": "model/linear"}
    if normalizers:
        model["feature_normalizers"] = normalizers
    model["definition"] = json.dumps(weights, ensure_ascii=False)
    return json.dumps({"model": {"name": name, "model": model}}, ensure_ascii=False)


def write_solr_linear(scores: LinearScores, *, name: str) -> str:
    """A ``LinearModel``, the body of ``/solr/<collection>/schema/model-store``."""
    weights, scaled = _columns(scores)
    norms = {
        feature: {
            "class": "org.apache.solr.ltr.norm.StandardNormalizer",
            "params": {"avg": str(center), "std": str(spread)},
        }
        for feature, (center, spread) in scaled.items()
    }
    named = [
        {"name": each, "norm": norms[each]} if each in norms else {"name": each}
        for each in weights
    ]
    model = {
        "class": "org.apache.solr.ltr.model.LinearModel",
        "name": name,
        "features": named,
        "params": {"weights": weights},  # numbers, which Solr takes as no text here
    }
    return json.dumps(model, ensure_ascii=False)


def columns_scaled(served: ServedModel, further: tuple[Any, ...]) -> tuple[Floats, Floats]:
    """What is taken off each feature in front of the formula, and what it is then divided by.

    Parameters
    ----------
    served : ServedModel
    further : tuple of transformers
        Those of the formula, which follow the offsets of the ranker.

    Raises
    ------
    ValueError
        If a transformer does anything else.
    """
    center, spread = np.zeros(len(served.names)), np.ones(len(served.names))
    offsets = np.zeros(len(served.names))
    offsets[served.offsets.columns] = served.offsets.values
    steps = [*map(_scaler, served.transformers), (offsets, 1), *map(_scaler, further)]
    for own_center, own_spread in steps:
        center, spread = center + spread * own_center, spread * own_spread
    return center, spread


def _scaler(transformer):
    if type(transformer) not in _SCALERS or getattr(transformer, "clip", False):
        raise ValueError(
            f"The step {transformer!r} before the model cannot be written into it: expected "
            f"{', '.join(kind.__name__ for kind in _SCALERS)}, without clip. Let the engine "
            "compute what the step computes, or leave it out: networks scale their features."
        )
    return _SCALERS[type(transformer)](transformer)


def _columns(scores):
    """Weight of each feature, and center and spread where these do something.

    The engines read float32; these are its shortest decimals.
    """
    weight, center, spread = (
        [float(str(np.float32(value))) for value in column] for column in scores[1:]
    )
    scaled = dict(zip(scores.names, zip(center, spread, strict=True), strict=True))
    scaled = {name: numbers for name, numbers in scaled.items() if numbers != (0.0, 1.0)}
    return dict(zip(scores.names, weight, strict=True)), scaled


def _slopes(module, slopes, ranker):
    """Slopes of a module's outputs, shape (n_out, n_features), from those of its inputs."""
    kind = type(module)
    if kind is nn.Sequential:
        for layer in module:
            slopes = _slopes(layer, slopes, ranker)
        return slopes
    if kind in (nn.Identity, nn.Dropout, Dropout):
        return slopes
    if kind in (nn.Linear, Linear):
        return module.weight.detach().cpu().double().numpy() @ slopes
    if kind is SideBySide:
        return np.concatenate([_slopes(part, slopes, ranker) for part in module.networks])
    if kind is ScaleFeatures:
        raise ValueError(
            f"{ranker} takes a signed logarithm of its features (scale_features=True), which no "
            "normalizer of a linear model computes. Export as 'onnx', or train with "
            "scale_features=False behind OnFeatures(StandardScaler())."
        )
    raise ValueError(
        f"The scores of {ranker} are no linear function of its features: its network has the "
        f"layer {module}. Export as 'onnx', or train with hidden_layer_sizes=() and "
        "scale_features=False."
    )
