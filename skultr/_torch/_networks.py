"""Modules: the scoring network, and the scaling of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from ._lists import ListBatch

__all__ = ["ListScores", "ScaleFeatures", "SideBySide", "scoring_network"]

#: Standardised features are clipped at this value: no extreme one can dominate the network.
_MAX_DEVIATION = 8.0


def scoring_network(
    n_features: int,
    n_out: int = 1,
    *,
    hidden_layer_sizes: Sequence[int] = (),
    dropout: float = 0.0,
    normalization: str | None = None,
) -> nn.Sequential:
    """A multilayer perceptron with ELU units; linear if ``hidden_layer_sizes`` is empty.

    Parameters
    ----------
    n_features, n_out : int
    hidden_layer_sizes : sequence of int
    dropout : float
        Probability of dropping a hidden unit.
    normalization : {"layer", "batch"} or None
        Applied before each activation.

    Returns
    -------
    network : torch.nn.Sequential, mapping (..., n_features) to (..., n_out)
    """
    normalize = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, None: None}[normalization]
    layers, width = [], n_features
    for size in hidden_layer_sizes:
        layers.append(nn.Linear(width, size))
        if normalize is not None:
            layers.append(normalize(size))
        layers.append(nn.ELU())
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = size
    layers.append(nn.Linear(width, n_out))
    return nn.Sequential(*layers)


class ListScores(nn.Module):
    """Scores of a batch of lists as a rectangle (n_lists, width).

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
        Only the second is applied, because batches are scaled already.
    """

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

    Parameters
    ----------
    features : Tensor of shape (n_docs, n_features)
        The training documents.
    """

    def __init__(self, features: torch.Tensor) -> None:
        super().__init__()
        center = _column_means(features, _signed_log)
        variance = _column_means(features, lambda x: (_signed_log(x) - center) ** 2)
        scale = variance.sqrt()
        constant = scale <= 1e-6 * center.abs().clamp(min=1e-30)
        self.register_buffer("center", center.float())
        self.register_buffer("scale", scale.masked_fill(constant, 1.0).float())

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scaled features, of the same shape."""
        scaled = _signed_log(features).sub_(self.center).div_(self.scale)
        return scaled.clamp_(-_MAX_DEVIATION, _MAX_DEVIATION)


def _column_means(
    features: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Mean of ``function(features)`` by column, in float64, without a full float64 copy."""
    total = sum(function(chunk.double()).sum(dim=0) for chunk in features.split(65_536))
    return total / len(features)


def _signed_log(values: torch.Tensor) -> torch.Tensor:
    return values.abs().log1p_().copysign_(values)
