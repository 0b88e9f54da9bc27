"""Pairs of a click and a missing click, with ratios of bias learned from the pairs' losses."""

import torch
from torch import nn
from torch.nn.functional import softplus

from ._networks import ListScores

__all__ = ["PairDebiasLoss", "PairDebiasModule"]

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

    def __init__(self, network, n_factors, reference, p):
        super().__init__(network)
        self.reference = reference
        self.p = p
        # Rows: by click, by missing click.
        self.register_buffer("ratios", torch.ones(2, n_factors))
        self.register_buffer("losses", torch.zeros(2, n_factors))
        self.register_buffer("impressions", torch.zeros(n_factors))

    def forward(self, batch):
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
        One constant for the whole log.
    """

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, outputs, batch):
        """The loss of (scores, ratios by click, ratios by missing click)."""
        scores, plus, minus = outputs
        plus, minus = _inverse(plus, batch), _inverse(minus, batch)
        weights = plus[:, :, None] * minus[:, None, :]
        loss = (pair_losses(scores, batch) * weights).sum()
        if self.training:
            return loss * (self.scale / len(batch))
        total = (_pairs(batch) * weights).sum()
        return loss / total.clamp(min=1e-30)


def pair_losses(scores, batch):
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
