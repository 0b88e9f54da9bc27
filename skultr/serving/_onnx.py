"""Scores of networks and linear models as an ONNX model, with the scaling of features inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from .._torch._networks import MAX_DEVIATION, Dropout, Linear, ScaleFeatures, SideBySide
from ._linear import NetworkScores, columns_scaled
from ._tree_formats import Upload

#: Old enough for engines in use; LayerNormalization, of opset 17, is written out.
_OPSET, _IR_VERSION = 14, 7
#: ONNX's numbers of float32 and float64.
_FLOAT, _DOUBLE = 1, 11


def write_onnx(scores: NetworkScores, upload: Upload) -> bytes:
    """ONNX model of ``features`` (batch, n_features) to ``score`` (batch, 1), both float32."""
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise ImportError("onnx is missing: pip install skultr[serving]") from error

    formula = scores.formula
    graph = _Graph(helper, formula.network)
    values = graph.add("Cast", "features", to=_DOUBLE)
    center, spread = columns_scaled(scores.served, formula)
    if center.any() or (spread != 1).any():
        values = graph.rounded(graph.add("Div", graph.add("Sub", values, center), spread))
    values = graph.add("ReduceMean", graph.module(formula.network, values), axes=[1])
    values = graph.add("Add", graph.add("Mul", values, formula.scale), formula.shift)
    if formula.is_probability:
        values = graph.add("Sigmoid", values)
    graph.add("Cast", values, output="score", to=_FLOAT)
    given, gives = (
        helper.make_tensor_value_info(name, _FLOAT, ["batch", width])
        for name, width in (("features", len(upload.names)), ("score", 1))
    )
    model = helper.make_model(
        helper.make_graph(graph.nodes, upload.name, [given], [gives], graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="skultr",
        producer_version=version("skultr"),
    )
    helper.set_model_props(model, {"feature_names": json.dumps(upload.names, ensure_ascii=False)})
    checker.check_model(model)
    return model.SerializeToString()


class _Graph:
    """Nodes that compute in float64, and their constants."""

    def __init__(self, helper, network):
        self.helper, self.nodes, self.constants = helper, [], []
        self.is_single = next(network.parameters()).dtype != torch.float64

    def add(self, operator, *inputs, output=None, **attributes):
        """The name of what a new node computes; inputs are names, arrays or numbers."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, names, [output], **attributes))
        return output

    def rounded(self, values):
        """The name of the values in the precision of the network."""
        if not self.is_single:
            return values
        return self.add("Cast", self.add("Cast", values, to=_FLOAT), to=_DOUBLE)

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
        value, name = np.asarray(value, dtype=np.float64), f"constant_{len(self.constants)}"
        numbers = value.ravel().tolist()
        self.constants.append(self.helper.make_tensor(name, _DOUBLE, value.shape, numbers))
        return name


def _sequential(graph, module, values):
    for layer in module:
        values = graph.module(layer, values)
    return values


def _side_by_side(graph, module, values):
    return graph.add("Concat", *(graph.module(each, values) for each in module.networks), axis=1)


def _linear(graph, layer, values):
    product = graph.add("MatMul", values, layer.weight.T)
    return product if layer.bias is None else graph.add("Add", product, layer.bias)


def _scale_features(graph, scaling, values):
    size = graph.add("Abs", values)
    above = graph.add("Add", size, 1.0)
    # log(1 + x) loses the digits of a small x: the second term adds what 1 + x rounds off.
    lost = graph.add("Sub", graph.add("Sub", above, 1.0), size)
    log = graph.add("Sub", graph.add("Log", above), graph.add("Div", lost, above))
    # Rounded as in training: of a narrow feature far from 0 few digits are left.
    log = graph.rounded(graph.add("Mul", log, graph.add("Sign", values)))
    gap = graph.rounded(graph.add("Sub", log, scaling.center))
    scaled = graph.rounded(graph.add("Div", gap, scaling.scale))
    clipped = graph.add("Clip", scaled, -MAX_DEVIATION, MAX_DEVIATION)
    missing = graph.add("IsNaN", values)
    filled = graph.add("Where", missing, 0.0, clipped)
    if not len(scaling.indicated):
        return filled
    flags = graph.add("Cast", missing, to=_DOUBLE)
    # A product with a matrix of zeros and ones picks the columns.
    chosen = torch.eye(len(scaling.center))[:, scaling.indicated.cpu()]
    return graph.add("Concat", filled, graph.add("MatMul", flags, chosen), axis=1)


def _elu(graph, layer, values):
    below = graph.add("Sub", graph.add("Exp", graph.add("Min", values, 0.0)), 1.0)
    return graph.add("Add", graph.add("Max", values, 0.0), graph.add("Mul", below, layer.alpha))


def _silu(graph, layer, values):
    # Not by Sigmoid: older releases of onnxruntime join it and the product in float32 alone.
    above = graph.add("Add", graph.add("Exp", graph.add("Neg", values)), 1.0)
    return graph.add("Div", values, above)


def _layer_norm(graph, layer, values):
    values = graph.add("Sub", values, graph.add("ReduceMean", values, axes=[-1]))
    square = graph.add("ReduceMean", graph.add("Mul", values, values), axes=[-1])
    return _normalized(graph, layer, values, graph.add("Add", square, layer.eps))


def _batch_norm(graph, layer, values):
    values = graph.add("Sub", values, layer.running_mean)
    return _normalized(graph, layer, values, layer.running_var.cpu().double() + layer.eps)


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
