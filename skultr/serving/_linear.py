"""Linear scores as models of Elasticsearch and OpenSearch LTR, and of Solr."""

from __future__ import annotations

import copy
import json
from typing import NamedTuple

import numpy as np
import torch
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

from .._base._typing import Floats
from .._torch._networks import Dropout, Linear, SideBySide
from ..rankers._score_formula import ScoreFormula, score_formula
from ._served_model import ServedModel
from ._tree_formats import Upload, plugin_body, solr_body

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
#: Layers that keep a network linear.
_LINEAR = {nn.Sequential, nn.ModuleList, SideBySide, nn.Identity, nn.Dropout, nn.Linear}
_LINEAR |= {Dropout, Linear}


class NetworkScores(NamedTuple):
    """Scores by a network, which may be linear."""

    served: ServedModel
    formula: ScoreFormula


def network_of(served: ServedModel) -> NetworkScores | None:
    """The network or the coefficients of a model; None if it has neither."""
    formula = score_formula(served.ranker)
    return None if formula is None else NetworkScores(served, formula)


def linear_of(served: ServedModel) -> NetworkScores | None:
    """The same if the network is linear in the features, each taken off a constant and scaled."""
    scores = network_of(served)
    if scores is None or not {type(part) for part in scores.formula.network.modules()} <= _LINEAR:
        return None
    return scores


def write_linear(scores: NetworkScores, upload: Upload) -> str:
    """Body with a ``model/linear`` for the plugins of Elasticsearch and OpenSearch."""
    weights, scaled = _columns(scores, upload)
    norms = {
        name: {"standard": {"mean": center, "standard_deviation": spread}}
        for name, (center, spread) in scaled.items()
    }
    more = {"feature_normalizers": norms} if norms else {}
    return plugin_body(upload, "linear", json.dumps(weights, ensure_ascii=False), **more)


def write_solr_linear(scores: NetworkScores, upload: Upload) -> str:
    """A ``LinearModel`` for Solr's model store."""
    weights, scaled = _columns(scores, upload)
    kind = "org.apache.solr.ltr.norm.StandardNormalizer"
    norms = {
        name: {"norm": {"class": kind, "params": {"avg": str(center), "std": str(spread)}}}
        for name, (center, spread) in scaled.items()
    }
    features = [{"name": name, **norms.get(name, {})} for name in upload.names]
    # Weights are numbers: Solr refuses texts here.
    return solr_body(upload, "LinearModel", features, {"weights": weights})


def columns_scaled(served: ServedModel, formula: ScoreFormula) -> tuple[Floats, Floats]:
    """What is taken off each feature before the network, and what it is then divided by."""
    offsets = np.zeros(len(served.names))
    offsets[served.offsets.columns] = served.offsets.values
    steps = [*map(_scaler, served.transformers), (offsets, 1)]
    center, spread = np.zeros(len(offsets)), np.ones(len(offsets))
    for own_center, own_spread in [*steps, *map(_scaler, formula.transformers)]:
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


def _columns(scores, upload):
    """Weight by feature; and its center and spread, where these do something.

    The intercept is left out, and of a probability this is the logit: the order is the same. The
    engines read float32; these are its shortest decimals.
    """
    network = copy.deepcopy(scores.formula.network).cpu().double().eval()
    n_features = len(upload.names)
    with torch.inference_mode():
        units = torch.eye(n_features + 1, n_features, dtype=torch.float64)
        values = network(units).mean(dim=1).numpy()
    weight = scores.formula.scale * (values[:-1] - values[-1])
    columns = (weight, *columns_scaled(scores.served, scores.formula))
    weight, *scaling = ([float(str(np.float32(each))) for each in column] for column in columns)
    pairs = zip(upload.names, zip(*scaling, strict=True), strict=True)
    scaled = {name: pair for name, pair in pairs if pair != (0.0, 1.0)}
    return dict(zip(upload.names, weight, strict=True)), scaled
