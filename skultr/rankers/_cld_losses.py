"""Relevance and selection learned together: Type-II Tobit by rows, or pairs drawn on the fly.

Batches hold all candidates of some queries, those that were shown first; clicks over weight are
the (debiased) labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid, softplus
from torch.special import log_ndtr

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._torch._lists import ListBatch

__all__ = [
    "TERMS",
    "PairLoss",
    "RecordTerms",
    "SelectionModule",
    "TobitLoss",
    "expected_gap",
    "pair_terms",
    "tobit_terms",
]


TERMS = ("relevance", "shown", "never_shown")


class SelectionModule(nn.Module):
    """Scores of relevance and of selection, each from a network of its own.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
        Batches come scaled, so that only the second is applied.
    selection : torch.nn.Module
        Another scoring network, of scaled features.
    log_scale : float, default=0.0
        Logarithm of the standard deviation of labels, a parameter.
    """

    def __init__(
        self, network: nn.Sequential, selection: nn.Module, log_scale: float = 0.0
    ) -> None:
        super().__init__()
        self.network = network
        self.selection = selection
        self.log_scale = nn.Parameter(torch.tensor(float(log_scale)))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Two rectangles (n_lists, width) of scores, and the logarithm of the scale."""
        relevance = batch.pad(self.network[1](batch.features).reshape(-1))
        return relevance, batch.pad(self.selection(batch.features).reshape(-1)), self.log_scale


class _TermLoss(nn.Module):
    """A loss made of sums, which are kept until the epoch is recorded.

    ``terms`` gives four: the three of the likelihood, and what the second would be if labels had
    no part in selection. On validation lists the loss is that of the labels *given* that they
    were shown, the first two less the fourth. How well selection is predicted would drown it,
    and a network of relevance went on to learn noise while selection improved.
    """

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.sums, self.n_lists = 0.0, 0

    def forward(self, outputs, batch):
        """Minus the log-likelihood of scores of relevance and selection, of a mean row."""
        labels, shown, not_shown, alone = self.terms(outputs, batch) * self.scale
        if not self.training:
            return (alone - labels - shown) / len(batch)
        self.sums = self.sums + torch.stack([labels, shown, not_shown]).detach()
        self.n_lists += len(batch)
        return -(labels + shown + not_shown) / len(batch)

    def take_means(self):
        """The terms since they were last taken, of a mean row."""
        means = (self.sums / self.n_lists).tolist()
        self.sums, self.n_lists = 0.0, 0
        return means


class TobitLoss(_TermLoss):
    """Minus the Type-II Tobit likelihood; see ``rankers/_tobit.py``.

    Parameters
    ----------
    scale : float
        One constant for the whole log.
    gamma : float in (-1, 1)
        Correlation of the errors.
    fixed : float, "published" or None
        Standard deviation of labels; None where it is learned.
    center, spread : float
        The network scores ``(label - center) / spread``.
    """

    def __init__(
        self,
        scale: float,
        gamma: float,
        fixed: float | Literal["published"] | None,
        center: float,
        spread: float,
    ) -> None:
        super().__init__(scale)
        self.gamma, self.fixed, self.center, self.spread = gamma, fixed, center, spread

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over rows: labels, selection where shown, where not, and shown without labels."""
        relevance, selection, log_scale = outputs
        label = (batch.clicks / batch.weight.clamp(min=1e-12) - self.center) / self.spread
        shown = batch.shown
        published = self.fixed == "published"
        if self.fixed is not None:
            scale = 1.0 if published else self.fixed
            log_scale = log_scale.new_tensor(math.log(scale / self.spread))
        terms = tobit_terms(
            relevance,
            selection,
            log_scale,
            label,
            shown,
            self.gamma,
            published,
        )
        # What standard labels and the density leave out; without it the term has no unit.
        constant = 0.0 if published else math.log(self.spread) + 0.5 * math.log(2 * math.pi)
        terms = (terms[0] - constant * shown, *terms[1:])
        return torch.stack([(batch.weight * term)[batch.mask].sum() for term in terms])


def tobit_terms(
    relevance: torch.Tensor,
    selection: torch.Tensor,
    log_scale: torch.Tensor,
    label: torch.Tensor,
    shown: torch.Tensor,
    gamma: float,
    published: bool = False,
) -> tuple[torch.Tensor, ...]:
    """The terms of each row, without constants; 0 where a term does not apply.

    In the ``published`` form (Zhao et al. 2023, equation 9) the square of the error is not
    halved, and the scale is a constant.
    """
    error = torch.where(shown, label - relevance, 0.0) / log_scale.exp()
    index = (selection + gamma * error) / math.sqrt(1 - gamma**2)
    of_label = -(error**2) if published else -(error**2) / 2 - log_scale
    return (
        torch.where(shown, of_label, 0.0),
        torch.where(shown, log_ndtr(index), 0.0),
        torch.where(shown, 0.0, log_ndtr(-selection)),
        torch.where(shown, log_ndtr(selection), 0.0),
    )


class PairLoss(_TermLoss):
    """Minus the pairwise objective (Zhao et al. 2023, equation 12), pairs drawn on the fly.

    Each row meets one row of its query that was shown and one that was not. Each meeting counts
    as often as there are such rows, so that the expected sum is that over all pairs, divided by
    the number of other rows; memory is that of the rows.

    Parameters
    ----------
    scale : float
        One constant for the whole log.
    variant : {"default", "preference", "published"}
        How preference and selection meet; see :func:`pair_terms`.
    selection : bool
        Whether anything was left out, so that selection can be learned.
    gamma : float in (-1, 1), default=0.0
        Correlation of the errors; read by the variant ``"default"``.
    """

    def __init__(
        self, scale: float, variant: str, selection: bool = True, gamma: float = 0.0
    ) -> None:
        super().__init__(scale)
        self.variant, self.selection, self.gamma = variant, selection, gamma

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over drawn pairs: preferences, selection where shown, where not, and without h."""
        relevance, selection, _ = outputs
        shown = batch.shown
        label = batch.clicks / batch.weight.clamp(min=1e-12)
        n_shown, n_rows = shown.sum(dim=1), batch.mask.sum(dim=1)
        sessions = batch.weight.amax(dim=1) / (n_rows - 1).clamp(min=1)
        total = 0.0
        for partner, count in self._partners(batch.mask, n_shown, n_rows):
            columns = [relevance, selection, label, shown]
            terms = pair_terms(
                columns,
                [values.gather(1, partner) for values in columns],
                self.variant,
                self.gamma,
            )
            # Each pair meets twice, once from either side.
            weight = 0.5 * sessions[:, None] * count
            total = total + torch.stack([(weight * term)[count > 0].sum() for term in terms])
        return total if self.selection else total * total.new_tensor([1.0, 0.0, 0.0, 0.0])

    def _partners(self, mask, n_shown, n_rows):
        """Place of a drawn partner of each row, and how many it was drawn from: shown, and not."""
        place = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
        first, n_shown, n_rows = place < n_shown[:, None], n_shown[:, None], n_rows[:, None]
        for own, start, size in ((first, 0, n_shown), (~first, n_shown, n_rows - n_shown)):
            count = (size - own.long()) * mask
            step = (self._uniform(mask) * count).long().clamp(max=(count - 1).clamp(min=0))
            # A row of the same kind counts on from its own place, and so never meets itself.
            partner = torch.where(own, (place - start + 1 + step) % size.clamp(min=1), step)
            yield (start + partner).clamp(max=mask.shape[1] - 1), count

    def _uniform(self, mask):
        if self.training:
            return torch.rand(mask.shape, device=mask.device)
        # Validation draws the same pairs in each epoch, or epochs could not be compared.
        generator = torch.Generator().manual_seed(0)
        return torch.rand(mask.shape, generator=generator).to(mask.device)


def pair_terms(
    one: Sequence[torch.Tensor], other: Sequence[torch.Tensor], variant: str, gamma: float = 0.0
) -> tuple[torch.Tensor, ...]:
    r"""Terms of pairs of rows, each given by (relevance, selection, label, shown).

    With :math:`\Delta` the relevance of the winner less that of the loser, a preference is
    :math:`\log\sigma(\Delta)`, times how much the labels differ, and a row that was shown
    :math:`\log\sigma(g + h)`. In the variant ``published`` :math:`h = \Delta` for winner and
    loser, and a row that was not shown loses to one that was. In ``preference`` it does not. By
    default :math:`h = \pm \gamma e / \sqrt 2`, with :math:`e` the expected difference of the
    errors given who won: what the winner is, beyond its features, made its selection likely too.

    Returns
    -------
    terms : tuple of four tensors
        Preference, selection of the shown and of the other rows of the pair, and that of the
        shown ones without :math:`h`.
    """
    relevance, selection, label, shown = one
    other_relevance, other_selection, other_label, other_shown = other
    both = shown & other_shown
    gap = torch.where(both, label - other_label, 0.0)
    side = gap.sign()
    if variant == "published":
        side = side + shown.to(side) - other_shown.to(side)
    difference = side * (relevance - other_relevance)
    shift = other_shift = difference
    if variant == "default":
        shift = gamma / math.sqrt(2) * side * expected_gap(difference)
        other_shift = -shift
    # Tied rows: the paper has no such pairs. They say nothing of relevance, but were selected.
    counts = (~both | (gap != 0)) if variant == "published" else torch.ones_like(both)
    preference = torch.where(both & (gap != 0), gap.abs() * logsigmoid(difference), 0.0)

    def selected(shift, other_shift):
        return torch.where(shown, logsigmoid(selection + shift), 0.0) + torch.where(
            other_shown, logsigmoid(other_selection + other_shift), 0.0
        )

    was_not = torch.where(shown, 0.0, logsigmoid(-selection)) + torch.where(
        other_shown, 0.0, logsigmoid(-other_selection)
    )
    return (
        preference,
        counts * selected(shift, other_shift),
        counts * was_not,
        counts * selected(0.0, 0.0),
    )


def expected_gap(difference: torch.Tensor) -> torch.Tensor:
    r"""E[d | d > -difference] of a standard logistic variable d.

    It is :math:`H(p) / p` for :math:`p = \sigma` (difference) and :math:`H` the entropy.
    """
    # Far left the second term is 1, the product of numbers that overflow and underflow.
    left = difference.clamp(min=-15.0)
    return softplus(-difference) + (-left).exp() * softplus(left)


class RecordTerms(Callback):
    """Keeps the means of the likelihood's terms by epoch.

    Parameters
    ----------
    criterion : _TermLoss
    """

    def __init__(self, criterion: _TermLoss | None = None) -> None:
        self.criterion = criterion

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        self.epochs_ = []

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        self.epochs_.append(self.criterion.take_means())
