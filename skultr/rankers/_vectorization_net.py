"""Networks of click logits that are inner products of vectors of documents and bias factors, and
the convex hull of the latter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.spatial import ConvexHull
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import softplus

from .._base._typing import Floats
from .._log._segments import TINY, encode, pair_codes
from .._torch._net import NeuralEstimator
from .._torch._networks import Linear, ListScores, SideBySide, n_outputs_of, scoring_network

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._log._clicklog import ClickLog
    from .._torch._lists import ListBatch


#: Click rates are kept above the first in logarithms; above the second the likelihood is a line.
_LEAST_RATE, _LARGEST_RATE = 1e-6, 0.99


class VectorModule(ListScores):
    r"""Products :math:`r(x)^\top o(t)`, with r from a network and o from a table."""

    def __init__(self, network: nn.Sequential, start: torch.Tensor) -> None:
        super().__init__(network)
        self.observation = nn.Parameter(start)

    def embedding(self) -> torch.Tensor:
        """Observation embeddings, shape (n_factors, n_components)."""
        return self.observation

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
        return batch.pad((relevance * self.embedding()[batch.bias]).sum(dim=1))

    def frozen_at_first(self) -> list[nn.Parameter]:
        """Parameters that are fixed at first: the embeddings, and the biases of the last layer.

        While all embeddings are equal, a bias shifts all rows of a list equally. Its gradient then
        consists of rounding errors, which an adaptive step size would scale up to full steps.
        """
        layers = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)]
        constants = [layer.bias for layer in layers[-1:] if layer.bias is not None]
        return [self.observation, *constants]


class PositiveVectorModule(VectorModule):
    """Products of positive vectors, for click rates."""

    def __init__(self, network: nn.Sequential, rate: float, shape: tuple[int, int]) -> None:
        # An untrained network has outputs near 0, where softplus is log 2.
        start = max(rate, _LEAST_RATE) / (shape[1] * np.log(2))
        scale, outputs = network
        super().__init__(
            nn.Sequential(scale, nn.Sequential(outputs, nn.Softplus())),
            torch.full(shape, float(np.log(np.expm1(start)))),
        )

    def embedding(self) -> torch.Tensor:
        """Observation embeddings, shape (n_factors, n_components)."""
        return softplus(self.observation)

    def frozen_at_first(self) -> list[nn.Parameter]:
        """The embeddings."""
        return [self.observation]


def binomial_loss(
    rates: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Negative log-likelihood :math:`-\sum_i c_i \log p_i + (w_i - c_i) \log(1 - p_i)`.

    Rates above 0.99, also above 1, are continued by a straight line, so that they have a gradient.
    """
    inside = rates.clamp(_LEAST_RATE, _LARGEST_RATE)
    excess = (rates - _LARGEST_RATE).clamp(min=0.0) / (1 - _LARGEST_RATE)
    loss = -clicks * inside.log() + (weight - clicks) * (excess - torch.log1p(-inside))
    return loss[mask].sum()


class FreezeObservation(Callback):
    """Keeps the observation embeddings fixed in the first steps of a training.

    Early stopping begins after them, because until then the model is a different one.
    """

    def __init__(self, n_epochs: int, n_steps: int | None = None) -> None:
        self.n_epochs = n_epochs
        self.n_steps = n_steps

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        self.n_done_ = 0
        self.is_free_ = False
        self.frozen_ = [weight for weight in net.module_.frozen_at_first() if weight.requires_grad]

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
        self.is_free_ = done or epoch >= self.n_epochs
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
    table = np.concatenate(observations, axis=1) / len(networks)
    n_factors, d = observations[0].shape
    triangle = np.linalg.qr(outputs * np.sqrt(weight)[:, None], mode="r")
    axes = np.linalg.svd(triangle @ table.T)[2][:d].T
    axes = np.pad(axes, ((0, 0), (0, d - axes.shape[1])))
    left, _, right = np.linalg.svd(axes.T @ observations[0])
    axes = axes @ left @ right
    linear = Linear(table.shape[1], d, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.from_numpy(axes.T @ table / np.sqrt(n_factors)))
    return nn.Sequential(SideBySide(*networks), linear), axes * np.sqrt(n_factors)


def constant_base(n_features: int, observation: Floats) -> nn.Linear:
    """A network that gives every document the mean embedding, with variance 1."""
    n_components = observation.shape[1]
    base = Linear(n_features, 2 * n_components)
    with torch.no_grad():
        base.weight.zero_()
        base.bias.zero_()
        base.bias[:n_components] = torch.from_numpy(observation.mean(axis=0))
    return base


class BaseModule(nn.Module):
    """Means, then log variances, of the embeddings under which documents are shown."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: ListBatch) -> torch.Tensor:
        """Outputs of shape (n_rows, 2 * n_components)."""
        return self.network[1](batch.features)


class BaseLoss(nn.Module):
    r"""Gaussian of the observation embeddings under which documents with given features are shown.

    Minimises, over impressions,
    :math:`\frac12 \sum \|\mu(x) - o(t)\|^2 / \sigma^2(x) + \log \sigma^2(x)` for the learned
    :math:`o(t)`, which are fixed (Chen et al. 2022, eq. 10). The loss depends on the impressions
    of a document only through the ``mean`` and the ``variance`` of their embeddings, so that each
    document is one row, whose place stands as its bias factor.
    """

    def __init__(self, mean: Floats, variance: Floats) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("variance", variance)):
            self.register_buffer(name, torch.from_numpy(values).float())

    def forward(self, outputs: torch.Tensor, batch: ListBatch) -> torch.Tensor:
        """The loss of a batch of lists of one row."""
        mean, log_variance = outputs.chunk(2, dim=1)
        error = (mean - self.mean[batch.bias]) ** 2 + self.variance[batch.bias]
        loss = 0.5 * (error * torch.exp(-log_variance) + log_variance).sum(dim=1)
        return (loss * batch.weight[:, 0]).sum() / len(batch)


def fit_base(
    learner: NeuralEstimator, scale: nn.Module, log: ClickLog, observation: Floats
) -> None:
    """Train the network of base vectors on the shown rows of a log, with scaled features."""
    network = scoring_network(
        n_outputs_of(scale, log.features),
        2 * observation.shape[1],
        hidden_layer_sizes=learner.hidden_layer_sizes,
    )
    _start_at_marginal(network[-1], log, observation)
    documents, mean, variance = _documents(log, observation)
    held_out = learner._held_out_queries(log, log.weight)
    part = held_out[documents.query].astype(int)
    unit = np.bincount(part, documents.weight) / np.maximum(np.bincount(part), 1)
    learner._train(
        BaseModule(nn.Sequential(scale, network)),
        BaseLoss(mean, variance),
        replace(documents, weight=documents.weight / unit[part]),
        documents.clicks,
        click_only=False,
        task=None,
        held_out=held_out,
    )


def _documents(log, observation):
    """A list for each version that a query showed; mean and variance of its embeddings."""
    weight, values, n_queries = log.weight, observation[log.bias], len(log.query_ids)
    place, key = encode(pair_codes(log.version, log.query, n_queries))
    version, query = np.divmod(key, n_queries)
    total = np.bincount(place, weight)
    mean, square = (
        np.stack([np.bincount(place, weight * column) / total for column in part.T], axis=1)
        for part in (values, values**2)
    )
    n = np.arange(len(key))
    documents = replace(
        log,
        version=version,
        query_of_list=query,
        user=np.zeros_like(n),
        position=np.ones_like(n),
        bias=n,
        clicks=np.zeros(len(n)),
        weight=total,
        propensity=None,
        production=None,
        offsets=np.arange(len(n) + 1),
    )
    return documents, mean, np.maximum(square - mean**2, 0.0)


def _start_at_marginal(layer, log, observation):
    """Set the last layer so that every document starts with the Gaussian of all impressions."""
    values, weight = observation[log.bias], log.weight
    mean = np.average(values, axis=0, weights=weight)
    variance = np.average((values - mean) ** 2, axis=0, weights=weight)
    start = np.concatenate([mean, np.log(np.maximum(variance, 1e-6))])
    with torch.no_grad():
        layer.weight.mul_(0.1)
        layer.bias.copy_(torch.from_numpy(start))


#: Largest number of cells (points times facets) in memory at a time.
_MAX_CELLS = 1 << 22


class Hull:
    """The convex hull of points."""

    def __init__(self, points: Floats) -> None:
        self.center = points.mean(axis=0)
        _, size, axes = np.linalg.svd(points - self.center, full_matrices=False)
        self._axes = axes[size > 1e-6 * max(size[0], TINY)]
        flat = (points - self.center) @ self._axes.T
        if flat.shape[1] == 0:
            self._normals, self._bounds = np.empty((0, 0)), np.empty(0)
        elif flat.shape[1] == 1:  # Qhull begins at two dimensions
            self._normals = np.array([[1.0], [-1.0]])
            self._bounds = np.array([flat.max(), -flat.min()])
        else:
            facets = ConvexHull(flat, qhull_options="QJ Pp").equations
            self._normals, self._bounds = facets[:, :-1], -facets[:, -1]

    def pull_in(self, points: Floats) -> Floats:
        """The points; those outside move to the surface, straight toward the center of the hull.

        The center is the mean of the points that define the hull.
        """
        flat = (points - self.center) @ self._axes.T
        excess = np.ones(len(flat))
        chunk = max(1, _MAX_CELLS // max(len(self._bounds), 1))
        for start in range(0, len(flat), chunk):
            rows = slice(start, start + chunk)
            reach = flat[rows] @ self._normals.T / self._bounds
            excess[rows] = np.maximum(reach.max(axis=1, initial=0.0), 1.0)
        return self.center + (flat / excess[:, None]) @ self._axes
