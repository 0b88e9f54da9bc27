"""Scores of networks and linear models as an ONNX model, with the scaling of features inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._torch._networks import MAX_DEVIATION, ScaleFeatures, SideBySide
from .._torch._stream import Dropout, Linear
from ._linear import columns_scaled

if TYPE_CHECKING:
    from ..rankers._score_formula import ScoreFormula
    from ._served_model import ServedModel

__all__ = ["write_onnx"]

#: Old enough for the engines in use: LayerNormalization (17) and Gelu (20) are written out.
_OPSET, _IR_VERSION = 14, 7
#: ONNX's numbers of float32 and float64.
_FLOAT, _DOUBLE = 1, 11


def write_onnx(served: ServedModel, formula: ScoreFormula, *, name: str = "skultr") -> bytes:
    """ONNX model that maps ``features`` (batch, n_features) to ``score`` (batch, 1), in float32.

    Parameters
    ----------
    served : ServedModel
    formula : ScoreFormula
        That of its ranker.
    name : str
        Name of the graph.

    Returns
    -------
    model : bytes
        The score of a row with NaN is NaN.

    Raises
    ------
    ValueError
        If a step in front of the ranker, or a layer of its network, cannot be written.
    """
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise ImportError(
            "The format 'onnx' needs the package onnx, which is not installed. Run: "
            "pip install skultr[serving]"
        ) from error
    from .. import __version__

    graph = _Graph(helper, formula.network)
    values = graph.add("Cast", "features", to=_DOUBLE)
    center, spread = columns_scaled(served, formula.transformers)
    if center.any() or (spread != 1).any():
        values = graph.rounded(graph.add("Div", graph.add("Sub", values, center), spread))
    values = graph.module(formula.network, values)
    values = graph.add("ReduceMean", values, axes=[1], keepdims=1)
    values = graph.add("Add", graph.add("Mul", values, formula.scale), formula.shift)
    if formula.is_probability:
        values = graph.add("Sigmoid", values)
    graph.add("Cast", values, to=_FLOAT, output="score")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info("features", _FLOAT, ["batch", len(served.names)])],
            [helper.make_tensor_value_info("score", _FLOAT, ["batch", 1])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="skultr",
        producer_version=__version__,
    )
    ranker = type(served.ranker).__name__
    helper.set_model_props(
        model, {"feature_names": json.dumps(list(served.names)), "ranker": ranker}
    )
    checker.check_model(model)
    return model.SerializeToString()


class _Graph:
    """Nodes of a graph that computes in float64, and their constants."""

    def __init__(self, helper, network):
        self.helper, self.nodes, self.constants = helper, [], []
        self.is_single = next(network.parameters()).dtype != torch.float64

    def add(self, operator, *inputs, output=None, **attributes):
        """The name of the output of a new node; inputs are names, arrays or numbers."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, names, [output], **attributes))
        return output

    def rounded(self, values):
        """The name of the values in the precision of the network."""
        if not self.is_single:
            return values
        return self.add("Cast", self.add("Cast", values, to=_FLOAT), to=_DOUBLE)

    def _constant(self, value):
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        value = np.asarray(value, dtype=np.float64)
        name = f"constant_{len(self.constants)}"
        tensor = self.helper.make_tensor(name, _DOUBLE, value.shape, value.tobytes(), raw=True)
        self.constants.append(tensor)
        return name

    def module(self, module, values):
        """The name of what a module makes of values."""
        if type(module) not in _LAYERS:
            known = ", ".join(sorted({kind.__name__ for kind in _LAYERS}))
            raise ValueError(
                f"The network has the layer {module}, which has no ONNX operators here; expected "
                f"{known}. Train with a module of these layers."
            )
        return _LAYERS[type(module)](self, module, values)


def _sequential(graph, module, values):
    for layer in module:
        values = graph.module(layer, values)
    return values


def _side_by_side(graph, module, values):
    parts = [graph.module(network, values) for network in module.networks]
    return graph.add("Concat", *parts, axis=1)


def _linear(graph, layer, values):
    product = graph.add("MatMul", values, layer.weight.T)
    return product if layer.bias is None else graph.add("Add", product, layer.bias)


def _scale_features(graph, scaling, values):
    size = graph.add("Abs", values)
    above = graph.add("Add", size, 1.0)
    # log(1 + x) loses the digits of a small x: the second term adds what 1 + x rounds off.
    lost = graph.add("Sub", graph.add("Sub", above, 1.0), size)
    log = graph.add("Sub", graph.add("Log", above), graph.add("Div", lost, above))
    signed = graph.rounded(graph.add("Mul", log, graph.add("Sign", values)))
    # Rounded as training did: a narrow feature far from 0 has few digits left here.
    apart = graph.rounded(graph.add("Sub", signed, scaling.center))
    scaled = graph.rounded(graph.add("Div", apart, scaling.scale))
    return graph.add("Clip", scaled, -MAX_DEVIATION, MAX_DEVIATION)


def _elu(graph, layer, values):
    below = graph.add("Sub", graph.add("Exp", graph.add("Min", values, 0.0)), 1.0)
    return graph.add("Add", graph.add("Max", values, 0.0), graph.add("Mul", below, layer.alpha))


def _layer_norm(graph, layer, values):
    values = graph.add("Sub", values, graph.add("ReduceMean", values, axes=[-1]))
    square = graph.add("ReduceMean", graph.add("Mul", values, values), axes=[-1])
    values = graph.add("Div", values, graph.add("Sqrt", graph.add("Add", square, layer.eps)))
    return _weighted(graph, layer, values)


def _batch_norm(graph, layer, values):
    spread = torch.sqrt(layer.running_var.double() + layer.eps)
    values = graph.add("Div", graph.add("Sub", values, layer.running_mean), spread)
    return _weighted(graph, layer, values)


def _weighted(graph, layer, values):
    for operator, weight in (("Mul", layer.weight), ("Add", layer.bias)):
        if weight is not None:
            values = graph.add(operator, values, weight)
    return values


def _same(graph, layer, values):
    return values


def _node(operator):
    return lambda graph, layer, values: graph.add(operator, values)


#: What writes each layer, in evaluation.
_LAYERS: dict[type[nn.Module], Callable[[_Graph, Any, str], str]] = {
    nn.Sequential: _sequential,
    SideBySide: _side_by_side,
    ScaleFeatures: _scale_features,
    nn.Identity: _same,
    nn.Dropout: _same,
    Dropout: _same,
    nn.Linear: _linear,
    Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.ELU: _elu,
    nn.ReLU: _node("Relu"),
    nn.Tanh: _node("Tanh"),
    nn.Sigmoid: _node("Sigmoid"),
    nn.SiLU: lambda graph, _, values: graph.add("Mul", values, graph.add("Sigmoid", values)),
}
