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
    # Each document once, with as much weight as all of its impressions.
    documents, place = _documents(log, by_factor)
    if by_factor:
        criterion = FactorLoss()
        # Every document starts at P(t) of the log.
        share = np.bincount(log.bias, log.weight, len(observation))
        start = np.log(share / share.sum())
    else:
        shown_under = observation[log.bias]
        criterion = BaseLoss(*_moments(place, log.weight, shown_under))
        everywhere = np.zeros_like(place)
        mean, variance = _moments(everywhere, log.weight, shown_under)
        # With a single bias factor the variance is 0, which has no logarithm.
        log_variance = np.log(np.maximum(variance[0], 1e-6))
        start = np.concatenate([mean[0], log_variance])
    network = scoring_network(
        n_outputs_of(scale, log.features),
        len(start),
        hidden_layer_sizes=learner.hidden_layer_sizes,
    )
    with torch.no_grad():
        # Small weights, so that features change little of the start at first.
        network[-1].weight.mul_(0.1)
        network[-1].bias.copy_(torch.from_numpy(start))
    held_out = learner._held_out_queries(log, log.weight)
    # Mean weight 1 in the training part and in the held-out part.
    part = held_out[documents.query].astype(int)
    mean_weight = np.bincount(part, documents.weight) / np.maximum(np.bincount(part), 1)
    documents = replace(documents, weight=documents.weight / mean_weight[part])
    learner._train(
        BaseModule(nn.Sequential(scale, network)),
        criterion,
        documents,
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
    n_documents = len(key)
    number = np.arange(n_documents)
    first = first_rows(place, n_documents)
    documents = replace(
        log,
        version=log.version[first],
        query_of_list=log.query[first],
        user=np.zeros_like(number),
        position=np.ones_like(number),
        bias=log.bias[first] if by_factor else number,
        clicks=np.zeros(n_documents),
        weight=np.bincount(place, log.weight),
        propensity=None,
        production=None,
        offsets=np.arange(n_documents + 1),  # one row per list
    )
    return documents, place


def _moments(place, weight, values):
    """Weighted mean and variance of vectors by place, each of shape (n_places, n_components)."""
    total = np.bincount(place, weight)

    def mean_of(vectors):
        columns = [np.bincount(place, weight * column) / total for column in vectors.T]
        return np.stack(columns, axis=1)

    # Var = E[v^2] - E[v]^2
    mean = mean_of(values)
    variance = mean_of(values**2) - mean**2
    return mean, np.maximum(variance, 0.0)  # rounding may leave less than 0


def most_likely_vectors(query: Ints, n_queries: int, mean: Floats, log_variance: Floats) -> Floats:
    """Base vector of each query (eq. 8): means of its rows, weighted by 1 / variance."""
    vectors = np.empty((n_queries, mean.shape[1]))
    for component in range(mean.shape[1]):
        logs = log_variance[:, component]
        # Relative to the least variance of the query, so that no weight overflows.
        least = np.full(n_queries, np.inf)
        np.minimum.at(least, query, logs)
        weights = np.exp(least[query] - logs)
        total = np.bincount(query, weights * mean[:, component])
        vectors[:, component] = total / np.bincount(query, weights)
    return vectors


def most_probable_factors(query: Ints, n_queries: int, logits: Floats) -> Ints:
    """The bias factor of each query that maximises the product of P(T | x) of its rows (eq. 6)."""
    log_chance = log_softmax(logits, axis=1)
    # The logarithm of a product is a sum over the candidates of the query.
    total = [np.bincount(query, factor, n_queries) for factor in log_chance.T]
    return np.argmax(total, axis=0)


#: Numbers of documents that the prior of a correction weighs: 10 to 10,000 in five steps and two
#: between each, with infinity for no correction.
_PRIOR_DOCUMENTS = np.append(10.0 ** np.arange(1, 4.1, 0.5), np.inf)


def correction_by_labels(
    scores: Floats, relevance: Floats, grade: Floats, query: Ints
) -> tuple[float, Floats]:
    """Scale of the scores and vector of the correction that come closest to the grades.

    The scale times the scores, plus the product of the vector and the relevance embeddings, is
    compared with the grades within queries; see :meth:`VectorizationRanker.fit_base_vectors`.
    The vector is the posterior mean under a normal prior of the products of the labelled
    documents, averaged over its width: there is no correction with probability 1/2.
    """
    columns = np.column_stack([grade, scores, relevance]).astype(float)
    columns = _within_queries(columns, query)
    grade = columns[:, 0]
    scores = columns[:, 1]
    relevance = columns[:, 2:]
    n_queries = len(np.bincount(query))
    n_free = len(query) - n_queries
    if not np.abs(grade).max(initial=0.0) > TINY:
        raise ValueError(
            f"The grades of {len(query)} documents of {n_queries} queries differ within no "
            "query; expected some query with documents of two grades, which a base vector can "
            "order. Label more documents of these queries."
        )
    # 1. The scale a: least squares, not below what the least correlation would give.
    square = scores @ scores
    # The scores explain at least this share of the standard deviation of the grades.
    least = 0.3 * np.sqrt(grade @ grade / (square or 1.0))
    scale = max((scores @ grade) / max(square, TINY), least)
    rest = grade - scale * scores
    # 2. Directions in which the embeddings of the labelled documents vary, in units of their size.
    size, axes = np.linalg.eigh(relevance.T @ relevance / n_free)
    # Directions with less than this share of the largest variance are rounding errors.
    varies = size > 1e-9 * max(size[-1], TINY)
    axes = axes[:, varies] / np.sqrt(size[varies])
    # 3. Ridge regression of the rest, for each width of the prior.
    covariance = axes.T @ (relevance.T @ rest)
    coefs = covariance / (n_free + _PRIOR_DOCUMENTS[:, None])
    # 4. Evidence for each width: how well it explains the rest, and how much it could explain.
    residual = n_free * np.log(rest @ rest - coefs @ covariance + TINY)
    freedom = len(covariance) * np.log1p(n_free / _PRIOR_DOCUMENTS)
    evidence = -0.5 * (residual + freedom)
    weight = np.exp(evidence - evidence.max())
    weight[-1] *= len(weight) - 1  # no correction is as probable as all widths together
    return scale, axes @ (weight @ coefs) / weight.sum()


def _within_queries(columns, query):
    """Columns less their means in each query."""
    counts = np.bincount(query)
    means = [np.bincount(query, column) / counts for column in columns.T]
    return columns - np.stack(means, axis=1)[query]
