"""Networks whose products of vectors explain clicks: module, loss, frozen start, merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import softplus

from .._base._typing import Floats
from .._torch._joint import FIRST_EPOCHS
from .._torch._networks import Linear, ListScores, SideBySide

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._torch._lists import ListBatch


#: Click rates are at least this in logarithms, which have no value at 0.
_LEAST_RATE = 1e-6
#: Above this rate the likelihood is continued by a line: its slope at 1 is infinite.
_LARGEST_RATE = 0.99


class VectorModule(ListScores):
    r"""Products :math:`r(x)^\top o(t)`, with r from a network and o from a table.

    Both are positive, for click rates, if there is a ``rate``: the table begins where products of
    an untrained network have it.
    """

    def __init__(
        self, network: nn.Sequential, start: torch.Tensor, rate: float | None = None
    ) -> None:
        self.is_positive = rate is not None
        if rate is not None:
            # An untrained network has outputs near 0, where softplus is log 2.
            entry = max(rate, _LEAST_RATE) / (start.shape[1] * np.log(2))
            before_softplus = float(np.log(np.expm1(entry)))
            start = torch.full_like(start, before_softplus)
            scale, relevance = network
            network = nn.Sequential(scale, nn.Sequential(relevance, nn.Softplus()))
        super().__init__(network)
        self.observation = nn.Parameter(start)

    def embedding(self) -> torch.Tensor:
        """Observation embeddings, shape (n_factors, n_components)."""
        return softplus(self.observation) if self.is_positive else self.observation

    def table(self) -> Floats:
        """The same as an ndarray of float64."""
        return self.embedding().detach().double().cpu().numpy()

    def forward(self, batch: ListBatch) -> torch.Tensor:
        """Products of shape (n_lists, width); 0 at padding."""
        relevance = self.network[1](batch.features)
        expected = (len(batch.features), self.observation.shape[1])
        if relevance.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(relevance.shape)} for "
                f"{expected[0]} documents; expected n_components={expected[1]} numbers per "
                f"document, {expected}. Check the last layer of the module."
            )
        observation = self.embedding()[batch.bias]
        return batch.pad((relevance * observation).sum(dim=1))

    def frozen_at_first(self) -> list[nn.Parameter]:
        """Parameters that are fixed at first: the embeddings, and the bias of the last layer.

        While all embeddings are equal, a bias shifts all rows of a list equally. Its gradient then
        consists of rounding errors, which an adaptive step size would scale up to full steps.
        """
        frozen = [self.observation]
        layers = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)]
        # Behind a softplus a bias does not shift rows equally.
        if layers and not self.is_positive and layers[-1].bias is not None:
            frozen.append(layers[-1].bias)
        return frozen


def binomial_loss(
    rates: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Negative log-likelihood :math:`-\sum_i c_i \log p_i + (w_i - c_i) \log(1 - p_i)`.

    Rates above 0.99, also above 1, are continued by a straight line, so that they have a gradient.
    """
    inside = rates.clamp(_LEAST_RATE, _LARGEST_RATE)
    excess = (rates - _LARGEST_RATE).clamp(min=0.0)
    by_click = -inside.log()
    by_miss = excess / (1 - _LARGEST_RATE) - torch.log1p(-inside)
    loss = clicks * by_click + (weight - clicks) * by_miss
    return loss[mask].sum()


class FreezeObservation(Callback):
    """Keeps the observation embeddings fixed in the first epochs, or steps if a number is given.

    These are at most half of the training. Early stopping begins after them, because until then
    the model is a different one.
    """

    def __init__(self, n_epochs: int | None = None, n_steps: int | None = None) -> None:
        self.n_epochs = n_epochs
        self.n_steps = n_steps

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        self.n_done_ = 0
        self.is_free_ = False
        self.n_frozen_ = net.max_epochs // 2
        if self.n_steps is None:
            self.n_frozen_ = min(self._most_epochs(net), self.n_frozen_)
        self.frozen_ = [weight for weight in net.module_.frozen_at_first() if weight.requires_grad]

    def _most_epochs(self, net):
        if self.n_epochs is not None:
            return self.n_epochs
        return FIRST_EPOCHS if "early_stopping" in dict(net.callbacks_) else net.max_epochs

    def on_epoch_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        stop = dict(net.callbacks_).get("early_stopping")
        if not self.is_free_ and stop is not None:
            stop.on_train_begin(net)

    def on_batch_begin(self, net: NeuralNet, training: bool = False, **kwargs: Any) -> None:
        if not training:
            return
        epoch = len(net.history) - 1  # skorch has opened the record of this epoch already
        done = self.n_steps is not None and self.n_done_ >= self.n_steps
        embeddings, *constants = self.frozen_
        for bias in constants:  # one step later, when the embeddings are no longer equal
            bias.requires_grad_(self.is_free_)
        self.is_free_ = done or epoch >= self.n_frozen_
        embeddings.requires_grad_(self.is_free_)
        self.n_done_ += 1


def merge_networks(
    networks: Sequence[nn.Module],
    outputs: Floats,
    observations: Sequence[Floats],
    weight: Floats,
) -> tuple[nn.Sequential, Floats]:
    r"""One model whose products are closest to the mean products of several.

    The mean of m products of d components has rank m d at most. The best approximation of rank d
    over weighted documents and all bias factors is its projection onto the first d right singular
    vectors: one linear map of the embeddings of all networks, beside one table. The vectors are
    rotated toward the first table, because singular vectors have no sign.
    """
    n_factors, n_components = observations[0].shape
    # The mean product is outputs @ table.T, shape (n_documents, n_factors).
    table = np.concatenate(observations, axis=1) / len(networks)
    # Its singular vectors, by the small triangle of a QR decomposition of the many documents.
    triangle = np.linalg.qr(outputs * np.sqrt(weight)[:, None], mode="r")
    _, _, singular = np.linalg.svd(triangle @ table.T)
    axes = singular[:n_components].T
    # Fewer factors than components: the rest is 0.
    axes = np.pad(axes, ((0, 0), (0, n_components - axes.shape[1])))
    # The rotation closest to the first table (Procrustes).
    left, _, right = np.linalg.svd(axes.T @ observations[0])
    axes = axes @ left @ right
    # Both sides share the scale, as entries of about 1 do in the tables.
    unit = np.sqrt(n_factors)
    linear = Linear(table.shape[1], n_components, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.from_numpy(axes.T @ table / unit))
    return nn.Sequential(SideBySide(*networks), linear), axes * unit
