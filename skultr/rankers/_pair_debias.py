"""Pairwise debiasing: ratios of bias for clicks and for missing clicks."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from .._log._factors import examination_table, lists_per_unit, warn_unless_identifiable
from .._sklearn import Interval
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._torch._lists import ListBatch

__all__ = ["PairDebiasLoss", "PairDebiasModule", "PairDebiasRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class PairDebiasRanker(NeuralEstimator, BaseRanker):
    r"""Pairwise debiasing, the idea of unbiased LambdaMART, with a network.

    Each clicked row :math:`i` is compared with each row :math:`j` of the list that was not
    clicked. Clicks and missing clicks have a ratio of bias each, :math:`t^+` and :math:`t^-`, and
    the loss divides by both (Hu et al. 2019):

    .. math::
        L = \sum_{c_i = 1, c_j = 0} \frac{L_{ij}}{t^+_i\, t^-_j}, \qquad
        L_{ij} = \log(1 + e^{s_j - s_i}) .

    The ratios are estimated meanwhile: a bias factor whose pairs cause more loss has more bias,

    .. math::
        t^+_k = \left[\frac{\sum_{i \text{ at } k} \sum_j L_{ij} / t^-_j}
                           {\sum_{i \text{ at } 1} \sum_j L_{ij} / t^-_j}\right]^{1 / (p + 1)},
        \qquad
        t^-_k = \left[\frac{\sum_{j \text{ at } k} \sum_i L_{ij} / t^+_i}
                           {\sum_{j \text{ at } 1} \sum_i L_{ij} / t^+_i}\right]^{1 / (p + 1)},

    relative to the most frequent factor (usually position 1), as running means over batches and
    for each impression, so that rarely shown factors do not look unbiased.

    **Its limit.** The method assumes that a missing click is as much a sign of irrelevance as a
    click is of relevance. Under a position-based model most clicks are missing because nobody
    looked; :math:`t^-` then absorbs relevance, and the ranker can end below the naive one. It is
    here for comparison; see Notes for figures, and prefer :class:`DLARanker` or
    :class:`AffineRanker`.

    Parameters
    ----------
    p : float, default=2.0
        Regularisation: the larger, the closer all ratios are to 1. Published implementations take
        0, with which the two ratios can run apart.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Its training.
    traffic_exponent
        A query weighs as much as its number of impressions to this power.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the mean loss of a weighted pair.
    device, random_state, verbose
        Device of the training, seed and verbosity.

    Attributes
    ----------
    position_ratios_ : DataFrame
        Bias factor (index ``bias``) to ``t_plus`` and ``t_minus``, with ``impressions`` and
        ``clicks``; both are 1 for the reference, and for a factor that stood in no pair.
    examination_ : DataFrame
        ``t_plus`` as ``examination``, relative to the first factor, with ``impressions`` and
        ``clicks``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the scoring network.
    net_ : skorch.NeuralNet
        The net that trained ``network_``.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch.
    n_iter_ : int
        Number of epochs run.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    See Also
    --------
    PRSRanker : Pairs weighted by known propensities.

    Notes
    -----
    Sessions that saw the same list are one list: the expected number of its sessions in which
    :math:`i` was clicked and :math:`j` was not is the product of their rates, clicks of a list
    being taken as independent.

    nDCG@10 on 2,000 queries of ``make_ltr``, 200,000 sessions, ten positions of a fixed ranking:
    under trust bias 0.683 (p = 0: 0.663), where pairs without debiasing reach 0.687, the naive
    softmax 0.685 and dual learning 0.780 (means of five logs); under position bias 0.710 (p = 0:
    0.658) against 0.718, 0.723 and 0.807 (three logs). The default was the best of p = 0, 0.5, 1
    and 2 on three other logs of both kinds.

    References
    ----------
    Hu, Wang, Peng & Li (2019). Unbiased LambdaMART: an unbiased pairwise learning-to-rank
    algorithm. WWW.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import PairDebiasRanker
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = PairDebiasRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> list(ranker.position_ratios_.columns)
    ['t_plus', 't_minus', 'impressions', 'clicks']
    """

    p: float = 2.0

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        "p": [Interval(Real, 0, None, closed="left")],
    }

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=True)
        rows = log.shown
        reference = int(np.bincount(log.bias[rows], log.weight[rows]).argmax())
        training, _ = log.tempered(self.traffic_exponent)
        with self._seeded():
            network = self._network(log.shown_features())
            module = PairDebiasModule(network, len(log.bias_values), reference, self.p)
            loss = PairDebiasLoss(lists_per_unit(training, _pairs_won(training)))
            self._train(module, loss, training, training.clicks, click_only=True, task=task)
        self._remember_ratios(log)

    def _remember_ratios(self, log):
        plus, minus = self.net_.module_.ratios.double().cpu().numpy()
        self.examination_ = examination_table(log, plus[log.bias])
        table = self.examination_.drop(columns="examination")
        table.insert(0, "t_plus", plus)
        table.insert(1, "t_minus", minus)
        self.position_ratios_ = table


def _pairs_won(log):
    """How many pairs each row wins by its clicks."""
    missing = np.where(log.shown, 1 - log.click_rate, 0.0)
    others = np.bincount(log.list_, missing, minlength=log.n_lists)[log.list_] - missing
    return log.clicks * others


#: How much of the running means a batch leaves.
_DECAY = 0.95


#: A factor without clicks has a ratio of 0; pairs of it must not weigh infinitely.
_LEAST_RATIO = 1e-3


class PairDebiasModule(ListScores):
    r"""Scores from a network; ratios :math:`t^+` and :math:`t^-` from the losses of pairs.

    While it trains, each batch moves two running means a bias factor, the loss that an impression
    under this factor causes by its clicks and by its missing clicks:

    .. math::
        t^+_k = \left[\frac{\ell^+_k}{\ell^+_1}\right]^{1 / (p + 1)}, \quad
        \ell^+_k = \frac{1}{n_k} \sum_{i \text{ at } k} \sum_j \frac{m_{ij} L_{ij}}{t^-_j}, \qquad
        t^-_k = \left[\frac{\ell^-_k}{\ell^-_1}\right]^{1 / (p + 1)}, \quad
        \ell^-_k = \frac{1}{n_k} \sum_{j \text{ at } k} \sum_i \frac{m_{ij} L_{ij}}{t^+_i}.

    Sums and impressions are averaged apart, so that a batch without the reference harms nothing.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
    reference : int
        Code of the factor whose ratios are 1.
    p : float
        Regularisation.
    """

    def __init__(self, network: nn.Sequential, n_factors: int, reference: int, p: float) -> None:
        super().__init__(network)
        self.reference = reference
        self.p = p
        # Rows: by click, by missing click.
        self.register_buffer("ratios", torch.ones(2, n_factors))
        self.register_buffer("losses", torch.zeros(2, n_factors))
        self.register_buffer("impressions", torch.zeros(n_factors))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Scores and the ratios of each row by click and by missing click: (n_lists, width)."""
        scores = super().forward(batch)
        if self.training:
            self._learn_ratios(scores.detach(), batch)
        return scores, *(batch.pad(ratio[batch.bias]) for ratio in self.ratios)

    @torch.no_grad()
    def _learn_ratios(self, scores, batch):
        losses = pair_losses(scores, batch)
        plus, minus = (_inverse(batch.pad(ratio[batch.bias]), batch) for ratio in self.ratios)
        by_row = (losses * minus[:, None, :]).sum(dim=2), (losses * plus[:, :, None]).sum(dim=1)
        seen = torch.zeros_like(self.losses)
        for sums, values in zip(seen, by_row, strict=True):
            sums.index_add_(0, batch.bias, values[batch.mask])
        shown = torch.zeros_like(self.impressions)
        shown.index_add_(0, batch.bias, batch.weight[batch.mask])
        # Means of a rare factor wait for its next batch, or they would fade to nothing.
        here = shown > 0
        self.losses.copy_(torch.where(here, self.losses.lerp(seen, 1 - _DECAY), self.losses))
        mixed = self.impressions.lerp(shown, 1 - _DECAY)
        self.impressions.copy_(torch.where(here, mixed, self.impressions))
        mean = self.losses / self.impressions
        ratios = (mean / mean[:, [self.reference]]) ** (1 / (self.p + 1))
        # Nothing is known of a factor that stood in no pair, nor of any where the reference did
        # not. One that lost all its pairs is known: it was hardly clicked.
        known = ratios.isfinite() & (self.losses.sum(dim=0) > 0)
        self.ratios.copy_(torch.where(known, ratios.clamp(min=_LEAST_RATIO), self.ratios))


class PairDebiasLoss(nn.Module):
    r"""Logistic loss of pairs, weighted by :math:`1 / (t^+_i t^-_j)`.

    On validation lists the mean loss of a pair: a sum would move with the ratios.

    Parameters
    ----------
    scale : float
        Constant factor of the loss, the same for the whole log.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (scores, ratios by click, ratios by missing click)."""
        scores, plus, minus = outputs
        plus, minus = _inverse(plus, batch), _inverse(minus, batch)
        weights = plus[:, :, None] * minus[:, None, :]
        loss = (pair_losses(scores, batch) * weights).sum()
        if self.training:
            return loss * (self.scale / len(batch))
        total = (_pairs(batch) * weights).sum()
        return loss / total.clamp(min=1e-30)


def pair_losses(scores: torch.Tensor, batch: ListBatch) -> torch.Tensor:
    """Loss of each pair times how often it occurred; clicked rows down, missing clicks across."""
    return _pairs(batch) * softplus(scores[:, None, :] - scores[:, :, None])


def _pairs(batch):
    """In how many sessions of a list row i was clicked and row j was not, shape (n, w, w).

    The product of rates times sessions: the clicks of a list are taken as independent.
    """
    missing = torch.where(batch.mask, 1 - batch.clicks / batch.weight.clamp(min=1e-30), 0.0)
    pairs = batch.clicks[:, :, None] * missing[:, None, :]
    itself = torch.eye(pairs.shape[1], dtype=torch.bool, device=pairs.device)
    return pairs.masked_fill(itself, 0.0)


def _inverse(ratios, batch):
    return torch.where(batch.mask, 1 / ratios.clamp(min=_LEAST_RATIO), 0.0)
