"""Modules: the scoring network, and the scaling of its input; its random numbers, its outputs for
each row.

A matrix product picks its kernel by the shapes of the matrices, and kernels round differently: in
one large matrix the last bits of a row depend on the number of rows, on its place among them, and
on the number of threads. To predict, blocks of :data:`ROWS` rows, the last one padded, and layers
padded to a multiple of 16 outputs are always computed by the same kernel, in every
place alike.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from .._base._threads import few_threads
from .._base._typing import Floats

if TYPE_CHECKING:
    from ._lists import ListBatch


#: Standardised features are clipped at this value: no extreme one can dominate the network.
MAX_DEVIATION = 8.0
#: Values that are scaled at a time.
_PART_VALUES = 1 << 18


def scoring_network(
    n_features: int,
    n_out: int = 1,
    *,
    hidden_layer_sizes: Sequence[int] = (),
    dropout: float = 0.0,
    normalization: str | None = None,
) -> nn.Sequential:
    """A multilayer perceptron with ELU units; linear if ``hidden_layer_sizes`` is empty."""
    normalize = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, None: None}[normalization]
    layers = []
    width = n_features
    for size in hidden_layer_sizes:
        layers.append(Linear(width, size))
        if normalize is not None:
            layers.append(normalize(size))
        layers.append(nn.ELU())
        if dropout:
            layers.append(Dropout(dropout))
        width = size
    # No activation on top: scores have no bounds.
    layers.append(Linear(width, n_out))
    return nn.Sequential(*layers)


class ListScores(nn.Module):
    """Scores of a batch of lists as a rectangle (n_lists, width)."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: ListBatch) -> torch.Tensor:
        """Scores of a ``ListBatch``, shape (n_lists, width); 0 at padding."""
        # Features of a batch are scaled already: the first part of the network is the scaling.
        scores = self.network[1](batch.features)
        if scores.numel() != len(batch.features):
            raise ValueError(
                f"The network gave outputs of shape {tuple(scores.shape)} for "
                f"{len(batch.features)} documents; expected one score per document, "
                f"({len(batch.features)}, 1). Check the last layer of the module."
            )
        return batch.pad(scores.reshape(-1))


class SideBySide(nn.Module):
    """The concatenated outputs of several networks with the same inputs."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(n_rows, n_inputs) to (n_rows, sum of outputs)."""
        return torch.cat([network(inputs) for network in self.networks], dim=1)


class ScaleFeatures(nn.Module):
    r"""Signed logarithm, standardisation, and clipping at 8 standard deviations.

    :math:`x \mapsto \mathrm{clip}((\mathrm{sign}(x) \log(1 + |x|) - m) / s, -8, 8)` with the mean
    m and standard deviation s of the training documents, which are stored with the network. Raw
    ranking features include both probabilities and counts of up to a million; without scaling the
    counts alone would determine what a network learns.

    A missing value becomes 0, the mean. Behind the features stands one column, 1 where the value
    is missing and else 0, for each feature that has missing values in training.
    """

    def __init__(self, features: NDArray[Any], *, indicators: bool = True) -> None:
        super().__init__()
        center, variance, missing = _moments(features)
        scale = variance.sqrt()
        # A feature that varies by rounding alone is constant; one that is 0 everywhere, too.
        constant = scale <= 1e-6 * center.abs().clamp(min=1e-30)
        self.register_buffer("center", center.float())
        self.register_buffer("scale", scale.masked_fill(constant, 1.0).float())
        self.register_buffer("indicated", torch.nonzero(missing & indicators)[:, 0])

    @property
    def n_outputs(self) -> int:
        """Number of columns that the network gets."""
        return len(self.center) + len(self.indicated)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scaled features and indicators, shape (n_rows, n_outputs)."""
        scaled = _signed_log(features).sub_(self.center).div_(self.scale)
        scaled = scaled.clamp_(-MAX_DEVIATION, MAX_DEVIATION).nan_to_num_(nan=0.0)
        if not len(self.indicated):
            return scaled
        # A missing value and the mean are the same number; the indicator tells them apart.
        missing = features.index_select(1, self.indicated).isnan()
        return torch.cat([scaled, missing.to(scaled.dtype)], dim=1)


class ScaledFeatures(np.ndarray):
    """Features of documents, scaled already; so are parts of them."""

    #: The module that scaled them.
    scaling: nn.Module

    @classmethod
    def of(cls, scaled: NDArray[np.float32], scaling: nn.Module) -> ScaledFeatures:
        """Features that ``scaling`` has scaled, as a view."""
        found = scaled.view(cls)
        found.scaling = scaling
        return found

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, ScaledFeatures) and hasattr(obj, "scaling"):
            self.scaling = obj.scaling


def n_outputs_of(scaling: nn.Module, features: NDArray[Any]) -> int:
    """Number of columns that a scaling (or identity) makes of features."""
    n_features = features.shape[1]
    if isinstance(features, ScaledFeatures):
        return n_features
    return getattr(scaling, "n_outputs", n_features)


def precision_of(network: nn.Module) -> torch.dtype:
    """The type of a network's weights."""
    return next((weight.dtype for weight in network.parameters()), torch.float32)


def row_parts(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of consecutive rows whose values stay in a processor's cache."""
    # At least one row, however many columns it has.
    step = max(1, _PART_VALUES // max(1, n_columns))
    return (slice(start, start + step) for start in range(0, n_rows, step))


def _moments(features):
    """Mean and variance of the signed logarithm by column, in float64 (Chan et al. 1979).

    Missing values are left out; the third result is True for columns that have some.
    """
    n = torch.zeros(features.shape[1], dtype=torch.float64)
    mean = torch.zeros_like(n)
    squares = torch.zeros_like(n)
    missing = torch.zeros_like(n).bool()
    for rows in row_parts(*features.shape):
        # A copy, because a memory-mapped or read-only array cannot back a tensor.
        part = torch.tensor(features[rows], dtype=torch.float32)
        part = _signed_log(part).double()
        there = ~part.isnan()
        if there.all():
            n_part = torch.full_like(n, len(part))
            own = part.mean(dim=0)
            spread = ((part - own) ** 2).sum(dim=0)
        else:
            missing |= ~there.all(dim=0)
            n_part = there.sum(dim=0).double()
            own = part.nanmean(dim=0).nan_to_num(nan=0.0)
            spread = ((part - own) ** 2).nansum(dim=0)
        # The moments of both, from those before and those of the part.
        gap = own - mean
        n_before = n
        n = n + n_part
        divisor = n.clamp(min=1)
        mean = mean + gap * (n_part / divisor)
        squares = squares + spread + gap**2 * (n_before * n_part / divisor)
    return mean, squares / n.clamp(min=1), missing


def _signed_log(values: torch.Tensor) -> torch.Tensor:
    return values.abs().log1p_().copysign_(values)


class _Stream:
    """Generators of one seed, one for each device."""

    def __init__(self, seed):
        self.seed = seed
        self.generators = {}

    def on(self, device):
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


#: The stream of the training that the current thread runs. No module holds it: a copied or
#: unpickled network takes part in the training that runs it.
_OWN: ContextVar[_Stream | None] = ContextVar("stream", default=None)
#: Held while an estimator draws from torch's random stream, which all threads share. Reentrant,
#: because an estimator may train another one inside its own training.
_GLOBAL = threading.RLock()


def stream(device: torch.device | str = "cpu") -> torch.Generator | None:
    """The generator of the training that runs in this thread; else torch's global one."""
    device = torch.device(device)
    own = _OWN.get()
    if own is not None:
        return own.on(device)
    return torch.default_generator if device.type == "cpu" else None


@contextmanager
def own_stream(seed: int) -> Iterator[None]:
    """Context in which :func:`stream` draws from generators of this seed."""
    token = _OWN.set(_Stream(seed))
    try:
        yield
    finally:
        _OWN.reset(token)


@contextmanager
def global_stream(seed: int, device: torch.device | str) -> Iterator[None]:
    """Context in which :func:`stream` and torch's global stream draw from this seed.

    For what draws from the global stream, such as a module of the user. The stream is restored at
    the end, and other threads in such a context wait.
    """
    # The stream of the processor is restored in any case, that of a GPU if it is used.
    devices = [device] if torch.device(device).type == "cuda" else []
    token = _OWN.set(None)
    try:
        with _GLOBAL, torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield
    finally:
        _OWN.reset(token)


class Linear(nn.Linear):
    """A linear layer whose initial weights are drawn from :func:`stream`."""

    def reset_parameters(self) -> None:
        """Draw the weights as ``torch.nn.Linear`` does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5), generator=stream())
        if self.bias is not None:
            bound = 1 / math.sqrt(max(self.in_features, 1))
            nn.init.uniform_(self.bias, -bound, bound, generator=stream())


class GRU(nn.GRU):
    """A recurrent layer whose initial weights are drawn from :func:`stream`."""

    def reset_parameters(self) -> None:
        """Draw the weights as ``torch.nn.GRU`` does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=stream())


class Dropout(nn.Dropout):
    """Dropout that draws from :func:`stream`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """In training, each element is 0 with probability p, or divided by 1 - p."""
        if not self.training:
            return input
        # torch's own dropout takes no generator.
        kept = torch.empty_like(input).bernoulli_(1 - self.p, generator=stream(input.device))
        return input * kept.div_(1 - self.p)


#: Rows of a block: a request of 100 documents fills one, and one stays in the cache.
ROWS = 128

Step = Callable[[torch.Tensor], torch.Tensor]


def outputs_of_rows(network: nn.Module, features: NDArray[np.float32]) -> Floats:
    """Outputs of a network on the CPU, in its precision, each determined by its row to the bit."""
    n_rows, n_features = features.shape
    # One block is filled again and again: the last one keeps rows of the one before, unread.
    block = torch.zeros(ROWS, n_features, dtype=precision_of(network))
    rows = block.numpy()
    outputs = None
    with few_threads(blas=False), torch.inference_mode():
        # A plan, made once: which functions compute the network, with padded weights.
        steps, _, n_out = _steps(network, n_features, n_features)
        for start in range(0, max(n_rows, 1), ROWS):
            part = features[start : start + ROWS]
            rows[: len(part)] = part
            values = _computed(steps, block)
            if outputs is None:
                outputs = np.empty((n_rows, n_out or values.shape[1]))
            found = values.numpy()[: len(part), : outputs.shape[1]]
            outputs[start : start + ROWS] = found
    return outputs


def _computed(steps, values):
    """What the functions of ``_steps`` make of values."""
    return reduce(lambda found, step: step(found), steps, values)


def _steps(module, width, used):
    """Functions that compute a module, one after another; columns of their result, and how many
    of them are outputs (None: all that come).

    The values that they get have ``width`` columns, of which the module reads ``used``.
    """
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
    # Any other module: without the columns that padding added.
    module.eval()
    n_inputs = used if used != width else None
    return [lambda values: module(values[:, :n_inputs].contiguous())], None, None


def _linear(layer, width):
    """A linear layer whose inputs and outputs are padded with zeros."""
    weight = layer.weight
    bias = layer.bias
    n_out, n_in = weight.shape
    # A kernel fills registers of 16 numbers; the columns that remain have kernels of their own.
    padded = -(-n_out // 16) * 16  # the next multiple
    if width is None:
        width = n_in
    if (padded, width) != (n_out, n_in):
        weight = F.pad(weight, (0, width - n_in, 0, padded - n_out))
        if bias is not None:
            bias = F.pad(bias, (0, padded - n_out))
    return [lambda values: F.linear(values, weight, bias)], padded, n_out


def _side_by_side(module, width, used):
    plans = [_steps(network, width, used) for network in module.networks]

    def side_by_side(values):
        # Without the padding of each.
        parts = [_computed(steps, values)[:, :n_out] for steps, _, n_out in plans]
        return torch.cat(parts, dim=1)

    n_out = [n for _, _, n in plans]
    total = None if None in n_out else sum(n_out)
    return [side_by_side], total, total
