"""Scores of networks and linear models: for Elasticsearch, OpenSearch and Solr, and as ONNX."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

from .._base._optional import optional
from .._base._typing import Floats
from .._torch._net import NeuralEstimator
from .._torch._networks import MAX_DEVIATION, Dropout, Linear, ScaleFeatures, SideBySide
from ..rankers._click_ranker import ClickRanker
from ..rankers._distilled import DistilledRanker
from ..rankers._heckman import HeckmanRanker
from ..rankers._learner_ranker import LearnerRanker
from ..rankers._ranker import BaseRanker
from ..rankers._vectorization import VectorizationRanker
from ._served_model import ServedModel, terms_of
from ._trees import Upload, floor_single, plugin_body, scaled_trees, solr_body, trees_of

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
_LINEAR = {
    nn.Sequential,
    nn.ModuleList,
    SideBySide,
    nn.Identity,
    nn.Dropout,
    nn.Linear,
    Dropout,
    Linear,
}
#: What computes scores by the formula; a click model, or a class of the user, has its own.
_KNOWN = {
    BaseRanker.predict,
    ClickRanker.predict,
    VectorizationRanker.predict,
    NeuralEstimator._score,
    LearnerRanker._score,
    HeckmanRanker._score,
    DistilledRanker._score,
}


class NetworkScores(NamedTuple):
    r"""Scores :math:`a + b \bar g(x)`, with the mean :math:`\bar g` of a network's outputs."""

    served: ServedModel
    # The function g, whose outputs are averaged.
    network: nn.Module
    # The numbers a and b of the formula.
    shift: float = 0.0
    scale: float = 1.0
    # Whether the score is the logistic function of that.
    is_probability: bool = False
    transformers: tuple[Any, ...] = ()  # of the ranker's own, before the network

    def columns_scaled(self) -> tuple[Floats, Floats]:
        """What is taken off each feature before the network, and what it is then divided by."""
        served = self.served
        n_features = len(served.names)
        offsets = np.zeros(n_features)
        offsets[served.offsets.columns] = served.offsets.values
        # In the order in which a request passes them: steps of the pipeline, offsets, own scalers.
        steps = [*map(_scaler, served.transformers), (offsets, 1)]
        steps += map(_scaler, self.transformers)
        # (x - a) / b, of which the next step takes off c and divides by d: (x - a - b c) / (b d).
        center = np.zeros(n_features)
        spread = np.ones(n_features)
        for own_center, own_spread in steps:
            center = center + spread * own_center
            spread = spread * own_spread
        return center, spread


def network_of(served: ServedModel) -> NetworkScores | None:
    """The network or the coefficients of a model; None if its scores come from something else.

    Of a ranker whose scores depend on the whole query it is that of the student.
    """
    ranker = served.ranker
    # A class of the user's may override either, and its formula is then unknown; trees of a
    # library have neither.
    methods = {getattr(type(ranker), name, None) for name in ("predict", "_score")}
    if not methods <= _KNOWN:
        return None
    estimator = getattr(ranker, "student_", getattr(ranker, "estimator_", None))
    if estimator is not None:
        return _estimator_scores(served, estimator)
    # Its coefficients are of features that it scaled itself.
    if isinstance(ranker, HeckmanRanker) and ranker._is_linear():
        layer = _layer(ranker.coef_, ranker.intercept_)
        return NetworkScores(served, nn.Sequential(ranker._scaling, layer))
    if isinstance(ranker, VectorizationRanker):
        return NetworkScores(served, ranker.student_network_)
    return NetworkScores(served, ranker.network_, *ranker._units, ranker._gives_probabilities)


def _estimator_scores(served, estimator):
    """The scores of a linear regressor, or of a Pipeline that ends in one; None of others."""
    steps = list(estimator) if isinstance(estimator, Pipeline) else [estimator]
    steps = [step for step in steps if step not in (None, "passthrough")]
    *transformers, regressor = steps
    # Linear regressors of scikit-learn have both; a kernel machine may have the first alone.
    coef = getattr(regressor, "coef_", None)
    intercept = getattr(regressor, "intercept_", None)
    if coef is None or intercept is None:
        return None
    layer = _layer(coef, intercept)
    # Coefficients may also be those of a logarithm, or of features that were centred.
    # Five draws that a formula other than x b + b_0 hardly gets right all.
    rows = np.random.default_rng(0).normal(size=(5, np.size(coef)))
    linear = layer(torch.from_numpy(rows)).detach().numpy()[:, 0]
    predicted = np.ravel(regressor.predict(rows))
    if not np.allclose(predicted, linear, rtol=1e-4, atol=1e-5):
        return None
    return NetworkScores(served, layer, transformers=tuple(transformers))


def _layer(coef, intercept):
    """A linear layer in double precision, without the draw of weights that others begin with."""
    layer = nn.utils.skip_init(nn.Linear, np.size(coef), 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.ravel(coef).astype(float)))
        layer.bias.fill_(float(np.squeeze(intercept)))
    return layer


def linear_of(served: ServedModel) -> NetworkScores | None:
    """The same if the network is linear in the features, each taken off a constant and scaled."""
    scores = network_of(served)
    if scores is None:
        return None
    # Of modules inside modules, too: one activation makes a network nonlinear.
    layers = {type(part) for part in scores.network.modules()}
    return scores if layers <= _LINEAR else None


def write_linear(scores: NetworkScores, upload: Upload) -> str:
    """Body with a ``model/linear`` for the plugins of Elasticsearch and OpenSearch."""
    weights, scaled = _columns(scores, upload)
    # Engines compute (x - mean) / standard deviation before they weigh a feature.
    norms = {
        name: {"standard": {"mean": center, "standard_deviation": spread}}
        for name, (center, spread) in scaled.items()
    }
    more = {"feature_normalizers": norms} if norms else {}
    definition = json.dumps(weights, ensure_ascii=False)
    return plugin_body(upload, "linear", definition, **more)


def write_solr_linear(scores: NetworkScores, upload: Upload) -> str:
    """A ``LinearModel`` for Solr's model store."""
    weights, scaled = _columns(scores, upload)
    kind = "org.apache.solr.ltr.norm.StandardNormalizer"
    features = []
    for name in upload.names:
        feature = {"name": name}
        if name in scaled:
            center, spread = scaled[name]
            params = {"avg": str(center), "std": str(spread)}
            feature["norm"] = {"class": kind, "params": params}
        features.append(feature)
    # Weights are numbers: Solr refuses texts here.
    return solr_body(upload, "LinearModel", features, {"weights": weights})


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
    center, spread = scores.columns_scaled()  # an error if a step is no scaler
    n_features = len(center)
    network = copy.deepcopy(scores.network).cpu().double().eval()
    with torch.inference_mode():
        # One row per feature that is 1 alone, and a last one of zeros: the intercept.
        units = torch.eye(n_features + 1, n_features, dtype=torch.float64)
        values = network(units).mean(dim=1).numpy()
    # The network is linear: what a unit of feature j adds to the intercept is its weight.
    weight = scores.scale * (values[:-1] - values[-1])
    weights = {}
    scaled = {}
    for name, *numbers in zip(upload.names, weight, center, spread, strict=True):
        own_weight, *pair = [float(str(np.float32(each))) for each in numbers]
        weights[name] = own_weight
        # A scaler that changes nothing needs no place in the model.
        if pair != [0.0, 1.0]:
            scaled[name] = tuple(pair)
    return weights, scaled


# ONNX, with the scaling of features inside --------------------------------------------
#: ONNX's number of float32.
_FLOAT = 1
#: ONNX's number of float64.
_DOUBLE = 11

#: Factors, centers and parts; and factor and center of production.
ScoreSum = tuple[list[tuple[float, float, Any]], tuple[float, float]]


def sum_of(served: ServedModel) -> ScoreSum | None:
    """What ONNX is written from; None if a part of the score is neither network nor trees."""
    terms, production = terms_of(served)
    parts = []
    for factor, center, model in terms:
        # Networks first: a student may be either.
        part = network_of(model) or trees_of(model)
        parts.append((factor, center, part))
    if not all(part for _, _, part in parts):
        return None
    return parts, production


def write_onnx(scores: ScoreSum, upload: Upload) -> bytes:
    """ONNX model of ``features`` (batch, n_features) to ``score`` (batch, 1), both float32.

    Production is one more input, (batch, 1), if it has a factor.
    """
    onnx = optional("onnx", "serving")
    helper = onnx.helper
    graph = _Graph(helper)
    inputs = _write_sum(graph, scores, len(upload.names))
    given = [
        helper.make_tensor_value_info(name, _FLOAT, ["batch", width])
        for name, width in inputs.items()
    ]
    gives = helper.make_tensor_value_info("score", _FLOAT, ["batch", 1])
    # One version per set of operators: that of ONNX itself, and 1 of "ai.onnx.ml", the trees.
    # Opset 14 is old enough for engines in use; LayerNormalization, of 17, is written out.
    domains = {node.domain: 14 if node.domain == "" else 1 for node in graph.nodes}
    model = helper.make_model(
        helper.make_graph(graph.nodes, upload.name, given, [gives], graph.constants),
        opset_imports=[helper.make_opsetid(*each) for each in domains.items()],
        ir_version=7,  # of the file, as it came with this opset
        producer_name="skultr",
        producer_version=version("skultr"),
    )
    names = json.dumps(upload.names, ensure_ascii=False)
    helper.set_model_props(model, {"feature_names": names})
    # Shapes and operators, so that an engine does not fail first.
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _write_sum(graph, scores, n_features):
    """Add the nodes of a sum of scores; the widths of its inputs."""
    parts, (factor_of_production, center_of_production) = scores
    inputs = {"features": n_features}
    total = []
    for factor, center, part in parts:
        # Each part gives b (g - a), with factor b and center a of its ensemble.
        write = _network_scores if isinstance(part, NetworkScores) else _tree_scores
        total.append(write(graph, part, factor, center))
    if factor_of_production:
        inputs["production"] = 1
        values = graph.add("Cast", "production", to=_DOUBLE)
        total.append(graph.scaled(values, factor_of_production, center_of_production))
    # Summed in float64, and rounded once.
    score = graph.add("Sum", *total)
    graph.add("Cast", score, output="score", to=_FLOAT)
    return inputs


class _Graph:
    """Nodes that compute in float64, and their constants."""

    is_single = False  # of the network that is written

    def __init__(self, helper):
        self.helper = helper
        self.nodes = []
        self.constants = []

    def add(self, operator, *inputs, output=None, **attributes):
        """The name of what a new node computes; inputs are names, arrays or numbers."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, names, [output], **attributes))
        return output

    def scaled(self, values, factor, center):
        """The name of ``factor`` times what the values are above ``center``."""
        centered = self.add("Sub", values, center)
        return self.add("Mul", centered, factor)

    def rounded(self, values):
        """The name of the values in the precision of the network."""
        if not self.is_single:
            return values
        single = self.add("Cast", values, to=_FLOAT)
        return self.add("Cast", single, to=_DOUBLE)

    def module(self, module, values):
        """The name of what a module makes of values."""
        write = _LAYERS.get(type(module))
        if write is None:
            known = ", ".join(sorted({kind.__name__ for kind in _LAYERS}))
            raise ValueError(
                f"The network has the layer {module}, which cannot be written; expected {known}. "
                "Train with a module of these layers."
            )
        return write(self, module, values)

    def _constant(self, value):
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        value = np.asarray(value, dtype=np.float64)
        name = f"constant_{len(self.constants)}"
        numbers = value.ravel().tolist()
        self.constants.append(self.helper.make_tensor(name, _DOUBLE, value.shape, numbers))
        return name


def _network_scores(graph, scores, factor, center_of_scores):
    """The nodes of a network's scores: scaling of features, network, shift and scale."""
    # The precision of training: each rounding that predict makes is made here, too.
    weights = next(scores.network.parameters())
    graph.is_single = weights.dtype != torch.float64
    values = graph.add("Cast", "features", to=_DOUBLE)
    center, spread = scores.columns_scaled()
    if center.any() or (spread != 1).any():
        centered = graph.add("Sub", values, center)
        values = graph.rounded(graph.add("Div", centered, spread))
    outputs = graph.module(scores.network, values)
    values = graph.add("ReduceMean", outputs, axes=[1])
    values = graph.add("Mul", values, scores.scale)
    values = graph.add("Add", values, scores.shift)
    if scores.is_probability:
        values = graph.add("Sigmoid", values)
    return graph.scaled(values, factor, center_of_scores)


def _tree_scores(graph, trees, factor, center):
    """The nodes of a sum of trees, whose columns stand one tree behind the other."""
    trees, constant = scaled_trees(factor, center, trees)
    # Column by column: the operator takes one list per column, for all trees.
    columns_of_trees = map(np.concatenate, zip(*trees, strict=True))
    feature, bound, missing_left, _, left, right, value, _ = columns_of_trees
    leaf = feature < 0
    node = np.concatenate([np.arange(len(tree.feature)) for tree in trees])
    # A tree begins where nodes count from 0 again; its number counts these beginnings.
    number = np.cumsum(node == 0) - 1
    columns = {
        "nodes_treeids": number,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(leaf, 0, feature),
        # x <= T in float32, of which the largest float32 up to T is the same rule.
        "nodes_values": np.where(leaf, 0, floor_single(bound)),
        "nodes_truenodeids": np.where(leaf, 0, left),
        "nodes_falsenodeids": np.where(leaf, 0, right),
        "nodes_missing_value_tracks_true": missing_left.astype(int),
        "target_treeids": number[leaf],
        "target_nodeids": node[leaf],
        "target_ids": np.zeros(leaf.sum(), dtype=int),
        "target_weights": value[leaf],
    }
    sums = graph.add(
        "TreeEnsembleRegressor",
        "features",
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        **{name: column.tolist() for name, column in columns.items()},
    )
    sums = graph.add("Cast", sums, to=_DOUBLE)
    return graph.add("Add", sums, constant)


def _sequential(graph, module, values):
    for layer in module:
        values = graph.module(layer, values)
    return values


def _side_by_side(graph, module, values):
    return graph.add("Concat", *(graph.module(each, values) for each in module.networks), axis=1)


def _linear(graph, layer, values):
    # x W' + b
    product = graph.add("MatMul", values, layer.weight.T)
    return product if layer.bias is None else graph.add("Add", product, layer.bias)


def _scale_features(graph, scaling, values):
    # Signed logarithm: sign(x) log(1 + |x|).
    size = graph.add("Abs", values)
    above = graph.add("Add", size, 1.0)
    # log(1 + x) loses the digits of a small x: the second term adds what 1 + x rounds off.
    lost = graph.add("Sub", graph.add("Sub", above, 1.0), size)
    log = graph.add("Log", above)
    log = graph.add("Sub", log, graph.add("Div", lost, above))
    # Rounded as in training: of a narrow feature far from 0 few digits are left.
    log = graph.rounded(graph.add("Mul", log, graph.add("Sign", values)))
    gap = graph.rounded(graph.add("Sub", log, scaling.center))
    scaled = graph.rounded(graph.add("Div", gap, scaling.scale))
    clipped = graph.add("Clip", scaled, -MAX_DEVIATION, MAX_DEVIATION)
    # Missing values go to the mean, which is 0 after scaling.
    missing = graph.add("IsNaN", values)
    filled = graph.add("Where", missing, 0.0, clipped)
    if not len(scaling.indicated):
        return filled
    flags = graph.add("Cast", missing, to=_DOUBLE)
    # A product with a matrix of zeros and ones picks the columns.
    chosen = torch.eye(len(scaling.center))[:, scaling.indicated.cpu()]
    indicators = graph.add("MatMul", flags, chosen)
    return graph.add("Concat", filled, indicators, axis=1)


def _elu(graph, layer, values):
    # max(x, 0) + alpha (exp(min(x, 0)) - 1)
    below = graph.add("Sub", graph.add("Exp", graph.add("Min", values, 0.0)), 1.0)
    above = graph.add("Max", values, 0.0)
    return graph.add("Add", above, graph.add("Mul", below, layer.alpha))


def _silu(graph, layer, values):
    # Not by Sigmoid: older releases of onnxruntime join it and the product in float32 alone.
    above = graph.add("Add", graph.add("Exp", graph.add("Neg", values)), 1.0)
    return graph.add("Div", values, above)


def _layer_norm(graph, layer, values):
    # (x - m) / sqrt(v + eps), with mean m and variance v of each row.
    mean = graph.add("ReduceMean", values, axes=[-1])
    values = graph.add("Sub", values, mean)
    squares = graph.add("Mul", values, values)
    variance = graph.add("ReduceMean", squares, axes=[-1])
    return _normalized(graph, layer, values, graph.add("Add", variance, layer.eps))


def _batch_norm(graph, layer, values):
    values = graph.add("Sub", values, layer.running_mean)
    # In evaluation a batch is normalized by the running moments, not by its own.
    variance = layer.running_var.cpu().double() + layer.eps
    return _normalized(graph, layer, values, variance)


def _normalized(graph, layer, values, variance):
    values = graph.add("Div", values, graph.add("Sqrt", variance))
    if layer.weight is not None:
        values = graph.add("Mul", values, layer.weight)
    return values if layer.bias is None else graph.add("Add", values, layer.bias)


#: What writes each layer, as it is in evaluation.
_LAYERS: dict[type[nn.Module], Callable[[_Graph, Any, str], str]] = {
    nn.Sequential: _sequential,
    SideBySide: _side_by_side,
    ScaleFeatures: _scale_features,
    **dict.fromkeys((nn.Identity, nn.Dropout, Dropout), lambda graph, _, values: values),
    **dict.fromkeys((nn.Linear, Linear), _linear),
    nn.LayerNorm: _layer_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.ELU: _elu,
    nn.ReLU: lambda graph, _, values: graph.add("Relu", values),
    nn.Tanh: lambda graph, _, values: graph.add("Tanh", values),
    nn.Sigmoid: lambda graph, _, values: graph.add("Sigmoid", values),
    nn.SiLU: _silu,
}
