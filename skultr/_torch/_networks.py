"""Modules: the scoring network, and the scaling of its input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ._stream import Dropout, Linear

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
    layers, width = [], n_features
    for size in hidden_layer_sizes:
        layers.append(Linear(width, size))
        if normalize is not None:
            layers.append(normalize(size))
        layers.append(nn.ELU())
        if dropout:
            layers.append(Dropout(dropout))
        width = size
    layers.append(Linear(width, n_out))
    return nn.Sequential(*layers)


class ListScores(nn.Module):
    """Scores of a batch of lists as a rectangle (n_lists, width)."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: ListBatch) -> torch.Tensor:
        """Scores of a ``ListBatch``, shape (n_lists, width); 0 at padding."""
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
    scaled_already = isinstance(features, ScaledFeatures)
    return (
        features.shape[1] if scaled_already else getattr(scaling, "n_outputs", features.shape[1])
    )


def row_parts(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of consecutive rows whose values stay in a processor's cache."""
    step = max(1, _PART_VALUES // max(1, n_columns))
    return (slice(start, start + step) for start in range(0, n_rows, step))


def _moments(features):
    """Mean and variance of the signed logarithm by column, in float64 (Chan et al. 1979).

    Missing values are left out; the third result is True for columns that have some.
    """
    n = torch.zeros(features.shape[1], dtype=torch.float64)
    mean, squares, missing = torch.zeros_like(n), torch.zeros_like(n), torch.zeros_like(n).bool()
    for rows in row_parts(*features.shape):
        # A copy, because a memory-mapped or read-only array cannot back a tensor.
        part = _signed_log(torch.tensor(features[rows], dtype=torch.float32)).double()
        there = ~part.isnan()
        if there.all():
            n_part, own = torch.full_like(n, len(part)), part.mean(dim=0)
            spread = ((part - own) ** 2).sum(dim=0)
        else:
            missing |= ~there.all(dim=0)
            n_part, own = there.sum(dim=0).double(), part.nanmean(dim=0).nan_to_num(nan=0.0)
            spread = ((part - own) ** 2).nansum(dim=0)
        gap, n_before, n = own - mean, n, n + n_part
        share = n_part / n.clamp(min=1)
        mean = mean + gap * share
        squares = squares + spread + gap**2 * (n_before * n_part / n.clamp(min=1))
    return mean, squares / n.clamp(min=1), missing


def _signed_log(values: torch.Tensor) -> torch.Tensor:
    return values.abs().log1p_().copysign_(values)
