"""Outputs of a network that depend on nothing but the row: computed in blocks of one shape.

A matrix product picks its kernel by the shapes of the matrices, and kernels round differently: in
one large matrix the last bits of a row depend on the number of rows, on its place among them, and
on the number of threads. Blocks of :data:`ROWS` rows, the last one padded, and layers padded to a
multiple of :data:`_UNITS` outputs are always computed by the same kernel, in every place alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from .._base._threads import few_threads
from .._base._typing import Floats
from ._networks import SideBySide
from ._stream import Dropout, Linear

#: Rows of a block: a request of 100 documents fills one, and one stays in the cache.
ROWS = 128
#: Width of the registers that a kernel fills; the columns that remain have kernels of their own.
_UNITS = 16

Step = Callable[[torch.Tensor], torch.Tensor]


def outputs_of_rows(network: nn.Module, features: NDArray[np.float32]) -> Floats:
    """Outputs of a network on the CPU, in its precision, each determined by its row to the bit."""
    n_rows, n_features = features.shape
    dtype = next((weight.dtype for weight in network.parameters()), torch.float32)
    block = torch.zeros(ROWS, n_features, dtype=dtype)
    rows, outputs = block.numpy(), None
    with few_threads(blas=False), torch.inference_mode():
        steps, _, n_out = _steps(network, n_features, n_features)
        for start in range(0, max(n_rows, 1), ROWS):
            part = features[start : start + ROWS]
            rows[: len(part)] = part
            values = block
            for step in steps:
                values = step(values)
            if outputs is None:
                outputs = np.empty((n_rows, n_out or values.shape[1]))
            outputs[start : start + ROWS] = values.numpy()[: len(part), : outputs.shape[1]]
    return outputs


def _steps(module, width, used):
    """Functions that compute a module, one after another."""
    kind = type(module)
    if kind is nn.Sequential:
        steps = []
        for layer in module:
            more, width, used = _steps(layer, width, used)
            steps += more
        return steps, width, used
    if kind in (nn.Identity, nn.Dropout, Dropout):
        return [], width, used
    if kind in (nn.Linear, Linear):
        return _linear(module, width)
    if kind is nn.ELU:
        return [lambda values: F.elu(values, module.alpha)], width, used
    if kind is SideBySide:
        return _side_by_side(module, width, used)
    module.eval()
    n = used if used != width else None
    return [lambda values: module(values[:, :n].contiguous())], None, None


def _linear(layer, width):
    """A linear layer whose inputs and outputs are padded with zeros."""
    n_out, n_in = layer.weight.shape
    padded = -(-n_out // _UNITS) * _UNITS
    weight, bias = layer.weight, layer.bias
    width = n_in if width is None else width
    if (padded, width) != (n_out, n_in):
        weight = F.pad(weight, (0, width - n_in, 0, padded - n_out))
        bias = None if bias is None else F.pad(bias, (0, padded - n_out))
    return [lambda values: F.linear(values, weight, bias)], padded, n_out


def _side_by_side(module, width, used):
    plans = [_steps(network, width, used) for network in module.networks]

    def side_by_side(values):
        parts = []
        for steps, _, n_out in plans:
            part = values
            for step in steps:
                part = step(part)
            parts.append(part[:, :n_out])
        return torch.cat(parts, dim=1)

    n_out = [plan[2] for plan in plans]
    total = None if None in n_out else sum(n_out)
    return [side_by_side], total, total
