"""Losses over padded lists.

Every loss has the signature ``loss(scores, clicks, weight, mask)``, with tensors of shape
(n_lists, width), and returns the *sum* over the lists. The caller divides by a constant of the
whole log. ``clicks`` are (debiased) numbers of clicks and may be fractional or exceed ``weight``,
the number of impressions. Cells where ``mask`` is False hold no row and enter neither the loss nor
its normaliser.

All losses except ``lambda`` are linear in the clicks. They are therefore unbiased if the clicks
are, and equal on a folded log and on the raw one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from ._pair_sums import sum_of_pairs

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from ._lists import ListBatch


#: ``loss(scores, clicks, weight, mask)``, see above.
Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class ListLoss(nn.Module):
    """The mean loss per list of a batch, times a constant."""

    def __init__(self, loss: Loss, scale: float) -> None:
        super().__init__()
        self.loss = loss
        self.scale = scale

    def forward(self, scores: torch.Tensor, batch: ListBatch) -> torch.Tensor:
        """Loss (a scalar) of scores of shape (n_lists, width)."""
        loss = self.loss(scores, batch.clicks, batch.weight, batch.mask)
        return loss * (self.scale / len(batch))


def list_log_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log softmax over the rows of each list, shape (n_lists, width); 0 at padding."""
    if mask.all():
        return torch.log_softmax(scores, dim=1)
    scores = scores.masked_fill(~mask, -torch.inf)
    return torch.log_softmax(scores, dim=1).masked_fill(~mask, 0.0)


def softmax_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Listwise cross-entropy :math:`-\sum_i c_i \log \mathrm{softmax}(s)_i`."""
    return -(clicks * list_log_softmax(scores, mask)).sum()


def listwise(log: ClickLog) -> tuple[ClickLog, Loss]:
    """A log whose lists can be compared, and its loss: with an offset where pages were joined."""
    lists, exposure = log.comparable()
    if exposure is None:
        return log, softmax_loss
    return replace(lists, weight=exposure), exposure_loss


def exposure_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Listwise cross-entropy with exposure as an offset.

    :math:`-\sum_i c_i \log \mathrm{softmax}(s + \log w)_i`, with ``weight`` the expected number
    of examinations of each row. It is the likelihood of where the clicks of a list fell: no click
    weighs more than another, however seldom its row is examined.
    """
    return softmax_loss(scores + weight.clamp(min=1e-12).log(), clicks, weight, mask)


def bce_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Pointwise :math:`-\sum_i c_i \log\sigma(s_i) + (w_i - c_i) \log\sigma(-s_i)`.

    Only the clicks are debiased. If debiased clicks weighted both terms, rows without a click
    would not enter the loss.
    """
    loss = clicks * F.softplus(-scores) + (weight - clicks) * F.softplus(scores)
    return loss[mask].sum()


def mse_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Pointwise :math:`\sum_i w_i s_i^2 - 2 c_i s_i`: squared error up to a constant.

    The constant :math:`c_i^2 / w_i` has no gradient and is the only term not linear in the clicks.
    """
    return (weight * scores**2 - 2 * clicks * scores)[mask].sum()


def pairwise_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Logistic loss of every click against every other row of its list.

    :math:`\sum_i c_i \sum_{j \ne i} -\log\sigma(s_i - s_j)`, divided by the number of other rows.
    Pairs are weighted by the mean (debiased) clicks of their rows, not by clicks in one session.
    """
    others = (mask.sum(dim=1, keepdim=True) - 1).clamp(min=1)
    return sum_of_pairs(scores, mask, clicks * mask / others, mask.to(scores.dtype))


def lambda_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Pairwise logistic loss, weighted by the change of nDCG if the pair is swapped.

    :math:`\sum_{i,j: g_i > g_j} |\Delta\mathrm{nDCG}_{ij}| (-\log\sigma(s_i - s_j))` with the
    gains :math:`g_i = c_i / w_i`, the mean (debiased) clicks. :math:`|\Delta\mathrm{nDCG}|` is
    held fixed (no gradient), and lists are weighted by their impressions (Burges 2010; Wang et al.
    2018).
    """
    gains = (clicks / weight.clamp(min=1e-12)).masked_fill(~mask, 0.0)
    impressions = (weight * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(1)
    # The least gain of a list wins no pair.
    least = gains.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    wins = torch.where(mask & (gains > least), impressions / _ideal_dcg(gains), 0.0)
    discounts = _discounts(scores.detach(), mask)
    others = mask.to(scores.dtype)
    return sum_of_pairs(scores, mask, wins, others, _change_of_dcg, (gains, discounts))


def propensity_ratio_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Logistic loss of every click against every missing click, times the change of discount.

    :math:`\sum_{i,j} a_i b_j |d_i - d_j| (-\log\sigma(s_i - s_j))` with the discounts
    :math:`d = 1 / \log_2(1 + \mathrm{rank})` of the current scores held fixed (no gradient).
    ``clicks`` are the weights :math:`a` of clicks and ``weight`` those, :math:`b`, of missing
    clicks (Wang et al. 2021). A pair counts regardless of which row the model ranks higher.
    """
    discounts = _discounts(scores.detach(), mask)
    return sum_of_pairs(scores, mask, clicks * mask, weight * mask, torch.abs, (discounts,))


def _change_of_dcg(gain: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
    """Change of DCG if a row with more gain by ``gain`` swaps its place; 0 if it has less."""
    return gain.clamp(min=0) * discount.abs()


def _ideal_dcg(gains: torch.Tensor) -> torch.Tensor:
    """DCG of each list if its best gains come first, shape (n_lists, 1)."""
    best_first = gains.clamp(min=0).sort(dim=1, descending=True).values
    places = torch.arange(1, gains.shape[1] + 1, device=gains.device, dtype=gains.dtype)
    return (best_first / torch.log2(1 + places)).sum(dim=1, keepdim=True).clamp(min=1e-12)


def _discounts(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Discount of the rank that each row has by its score, shape (n_lists, width)."""
    falling = scores.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = falling.argsort(dim=1, stable=True) + 1
    return 1 / torch.log2(1 + rank.to(scores.dtype))


LOSSES = {
    "softmax": softmax_loss,
    "bce": bce_loss,
    "mse": mse_loss,
    "pairwise": pairwise_loss,
    "lambda": lambda_loss,
}
#: Losses that are 0 for a list without clicks.
CLICK_ONLY = frozenset({"softmax", "pairwise", "lambda"})
