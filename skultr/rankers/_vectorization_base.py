"""Base vectors: the network of the embeddings, or bias factors, under which documents are shown;
the most probable one of a query; and its correction by labelled documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import log_softmax
from torch import nn
from torch.nn.functional import cross_entropy

from .._base._typing import Floats, Ints
from .._log._reader import first_rows
from .._log._segments import TINY, encode, pair_codes
from .._torch._net import NeuralEstimator
from .._torch._networks import n_outputs_of, scoring_network

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._torch._lists import ListBatch


class BaseModule(nn.Module):
    """Means, then log variances, of the embeddings under which documents are shown; or a logit
    for each bias factor."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: ListBatch) -> torch.Tensor:
        """Outputs of shape (n_rows, 2 * n_components), or (n_rows, n_factors)."""
        return self.network[1](batch.features)


class BaseLoss(nn.Module):
    r"""Gaussian of the observation embeddings under which documents with given features are shown.

    Minimises, over impressions,
    :math:`\frac12 \sum \|\mu(x) - o(t)\|^2 / \sigma^2(x) + \log \sigma^2(x)` for the learned
    :math:`o(t)`, which are fixed (Chen et al. 2022, eq. 10). The loss depends on the impressions
    of a document only through the ``mean`` and the ``variance`` of their embeddings, so that each
    document is one row, whose place serves as its bias factor.
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


class FactorLoss(nn.Module):
    r"""Cross-entropy :math:`-\sum \log P(T = t \mid x)` of the bias factors of documents.

    It estimates the :math:`P(T \mid X)` of equation 6 of Chen et al. (2022), over impressions.
    """

    def forward(self, outputs: torch.Tensor, batch: ListBatch) -> torch.Tensor:
        """The loss of a batch of lists of one row."""
        surprise = cross_entropy(outputs, batch.bias.long(), reduction="none")
        return (surprise * batch.weight[:, 0]).sum() / len(batch)


def fit_base(
    learner: NeuralEstimator,
    scale: nn.Module,
    log: ClickLog,
    observation: Floats,
    *,
    by_factor: bool = False,
) -> None:
    """Train the network of base vectors on the shown rows of a log, with scaled features.

    Its outputs are means and log variances of the embeddings, or logits of the bias factors. All
    documents start with those of all impressions.
    """
    documents, place = _documents(log, by_factor)
    if by_factor:
        criterion = FactorLoss()
        share = np.bincount(log.bias, log.weight, len(observation))
        start = np.log(share / share.sum())
    else:
        criterion = BaseLoss(*_moments(place, log.weight, observation[log.bias]))
        mean, variance = _moments(np.zeros_like(place), log.weight, observation[log.bias])
        start = np.concatenate([mean[0], np.log(np.maximum(variance[0], 1e-6))])
    network = scoring_network(
        n_outputs_of(scale, log.features),
        len(start),
        hidden_layer_sizes=learner.hidden_layer_sizes,
    )
    with torch.no_grad():
        network[-1].weight.mul_(0.1)
        network[-1].bias.copy_(torch.from_numpy(start))
    held_out = learner._held_out_queries(log, log.weight)
    part = held_out[documents.query].astype(int)
    unit = np.bincount(part, documents.weight) / np.maximum(np.bincount(part), 1)
    learner._train(
        BaseModule(nn.Sequential(scale, network)),
        criterion,
        replace(documents, weight=documents.weight / unit[part]),
        documents.clicks,
        click_only=False,
        task=None,
        held_out=held_out,
    )


def _documents(log, by_factor=False):
    """A list for each version that a query showed (``by_factor``: under each bias factor), with
    its number, or the factor, as bias factor; and the list of each row."""
    codes = pair_codes(log.version, log.query, len(log.query_ids))
    if by_factor:
        codes = pair_codes(codes, log.bias, len(log.bias_values))
    place, key = encode(codes)
    n = np.arange(len(key))
    first = first_rows(place, len(key))
    documents = replace(
        log,
        version=log.version[first],
        query_of_list=log.query[first],
        user=np.zeros_like(n),
        position=np.ones_like(n),
        bias=log.bias[first] if by_factor else n,
        clicks=np.zeros(len(n)),
        weight=np.bincount(place, log.weight),
        propensity=None,
        production=None,
        offsets=np.arange(len(n) + 1),
    )
    return documents, place


def _moments(place, weight, values):
    """Weighted mean and variance of vectors by place, each of shape (n_places, n_components)."""
    total = np.bincount(place, weight)
    mean, square = (
        np.stack([np.bincount(place, weight * column) / total for column in part.T], axis=1)
        for part in (values, values**2)
    )
    return mean, np.maximum(square - mean**2, 0.0)


def most_likely_vectors(query: Ints, n_queries: int, mean: Floats, log_variance: Floats) -> Floats:
    """Base vector of each query (eq. 8): means of its rows, weighted by 1 / variance."""
    vectors = np.empty((n_queries, mean.shape[1]))
    for place, (means, logs) in enumerate(zip(mean.T, log_variance.T, strict=True)):
        # Relative to the least variance of the query, so that no weight overflows.
        least = np.full(n_queries, np.inf)
        np.minimum.at(least, query, logs)
        weights = np.exp(least[query] - logs)
        vectors[:, place] = np.bincount(query, weights * means) / np.bincount(query, weights)
    return vectors


def most_probable_factors(query: Ints, n_queries: int, logits: Floats) -> Ints:
    """The bias factor of each query that maximises the product of P(T | x) of its rows (eq. 6)."""
    total = [np.bincount(query, each, n_queries) for each in log_softmax(logits, axis=1).T]
    return np.argmax(total, axis=0)


#: Numbers of documents that the prior of a correction weighs, with infinity for no correction.
_PRIOR_DOCUMENTS = np.append(10.0 ** np.arange(1, 4.1, 0.5), np.inf)
#: The scores explain at least this share of the standard deviation of the grades.
_LEAST_CORRELATION = 0.3


def correction_by_labels(
    scores: Floats, relevance: Floats, grade: Floats, query: Ints
) -> tuple[float, Floats]:
    """a and v with which a times the scores plus the product of v and the relevance embeddings
    comes closest to the grades, within queries; see :meth:`VectorizationRanker.fit_base_vectors`.

    v is the posterior mean under a normal prior of the products of the labelled documents,
    averaged over its width: there is no correction with probability 1/2.
    """
    counts = np.bincount(query)
    columns = np.column_stack([grade, scores, relevance]).astype(float)
    means = np.stack([np.bincount(query, column) / counts for column in columns.T], axis=1)
    g, s, r = np.split(columns - means[query], [1, 2], axis=1)
    g = g[:, 0]
    s = s[:, 0]
    n = len(query) - len(counts)
    if not np.abs(g).max(initial=0.0) > TINY:
        raise ValueError(
            f"The grades of {len(grade)} documents of {len(counts)} queries differ within no "
            "query; expected some query with documents of two grades, which a base vector can "
            "order. Label more documents of these queries."
        )
    least = _LEAST_CORRELATION * np.sqrt(g @ g / (s @ s or 1.0))
    scale = max((s @ g) / max(s @ s, TINY), least)
    rest = g - scale * s
    size, axes = np.linalg.eigh(r.T @ r / n)
    known = size > 1e-9 * max(size[-1], TINY)
    axes = axes[:, known] / np.sqrt(size[known])
    z = axes.T @ (r.T @ rest)
    v = z / (n + _PRIOR_DOCUMENTS[:, None])
    fit = n * np.log(rest @ rest - v @ z + TINY)
    evidence = -0.5 * (fit + len(z) * np.log1p(n / _PRIOR_DOCUMENTS))
    weight = np.exp(evidence - evidence.max())
    weight[-1] *= len(weight) - 1
    return scale, axes @ (weight @ v) / weight.sum()
