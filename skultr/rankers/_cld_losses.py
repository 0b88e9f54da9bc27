"""Losses of causal likelihood decomposition: sums of terms of relevance and of selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid, softplus
from torch.special import log_ndtr

from .._base._typing import Bools, Floats
from .._log._segments import TINY, pair_codes
from .._torch._lists import ScaledLoss, list_log_softmax, log_exposure
from .._torch._networks import stream
from ._tobit import selected_terms

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._torch._lists import ListBatch
    from ._tobit import Candidates


#: Parts of the likelihood: columns of ``likelihood_``.
TERMS = ("relevance", "shown", "never_shown")
#: Lower bound of divisors that are 0 at padding, and in lists without a click.
_LEAST_DIVISOR = 1e-12


class SelectionModule(nn.Module):
    """Scores of relevance and of selection, from two networks."""

    def __init__(self, network: nn.Sequential, selection: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.selection = selection
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Two rectangles (n_lists, width) of scores, and the logarithm of the scale."""
        relevance = self.network[1](batch.features).reshape(-1)
        selection = self.selection(batch.features).reshape(-1)
        return batch.pad(relevance), batch.pad(selection), self.log_scale


class _TermLoss(ScaledLoss):
    """Base of losses that are sums of terms, which it adds up until the epoch is recorded.

    ``terms`` returns four sums: the three of the likelihood, and the second one for gamma = 0. On
    validation lists the loss is that of the labels *given* that the rows were shown: minus the
    first two terms, plus the fourth. The terms of selection alone are left out, because they are
    larger: with them, training went on while selection improved and relevance overfitted. Without
    ``selects`` the first term is all.

    ``weight_of_labels`` is what the terms of relevance weigh, in which a penalty is measured.
    """

    def __init__(self, scale: float, shown: Bools, gamma: float = 0.0, selects: bool = True):
        super().__init__(scale)
        self.gamma = gamma
        self.selects = selects
        self.register_buffer("shown", torch.from_numpy(shown))  # by row of the log
        self.sums = 0.0
        self.n_lists = 0
        self.epochs = []

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Minus the mean log-likelihood per row, given scores of relevance and selection."""
        terms = self.terms(outputs, batch) * self.scale
        if not self.selects:
            terms = terms * terms.new_tensor([1.0, 0.0, 0.0, 0.0])
        # Validation sees P(labels | shown): selection alone is taken off again.
        labels, shown, not_shown, alone = terms
        if not self.training:
            return (alone - labels - shown) / len(batch)
        self.sums = self.sums + terms[:3].detach()
        self.n_lists += len(batch)
        return -(labels + shown + not_shown) / len(batch)

    def shown_in(self, batch: ListBatch) -> torch.Tensor:
        """True for rows that were shown, a rectangle."""
        return batch.pad(self.shown[batch.bias])

    def sums_of(self, batch, label, chosen, selection):
        """The four sums, of the terms of each row."""
        shown = self.shown_in(batch)
        weight = batch.weight
        return torch.stack(
            [
                label[shown].sum(),
                (weight * chosen)[shown].sum(),
                (weight * log_ndtr(-selection))[batch.mask & ~shown].sum(),
                (weight * log_ndtr(selection))[shown].sum(),
            ]
        )

    def end_epoch(self) -> None:
        """Keep the mean terms per row of the epoch."""
        self.epochs.append((self.sums / self.n_lists).tolist())
        self.sums = 0.0
        self.n_lists = 0


class TobitLoss(_TermLoss):
    """Minus the Type-II Tobit likelihood (``rankers/_tobit.py``) of labels, standardised.

    ``noise`` is the known variance of each label.
    """

    def __init__(
        self,
        scale: float,
        shown: Bools,
        gamma: float,
        fixed: float | Literal["published"] | None,
        center: float,
        spread: float,
        noise: Floats | None = None,
    ) -> None:
        super().__init__(scale, shown, gamma)
        self.fixed = fixed
        self.center = center
        self.spread = spread
        noise = np.zeros(len(shown)) if noise is None else noise / spread**2
        self.register_buffer("noise", torch.from_numpy(noise).float())

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over rows: labels, selection if shown, if not shown, and if shown for gamma = 0."""
        relevance, selection, log_scale = outputs
        rate = batch.clicks / batch.weight.clamp(min=_LEAST_DIVISOR)
        label = (rate - self.center) / self.spread
        published = self.fixed == "published"
        if self.fixed is not None:
            # A parameter that is not trained: the scale in units of the standardised labels.
            scale = 1.0 if published else self.fixed
            log_scale = log_scale.new_tensor(math.log(scale / self.spread))
        noise = batch.pad(self.noise[batch.bias])
        density, chosen = selected_terms(
            relevance, selection, log_scale, self.gamma, label, noise, published
        )
        # The density of a label in its own unit, not in that of standardised labels.
        unit = 0.0 if published else math.log(self.spread)
        return self.sums_of(batch, batch.weight * (density - unit), chosen, selection)

    def weight_of_labels(self, rows: Candidates) -> float:
        """The weight of the rows shown, times the curvature of a standardised label's term."""
        weight = float(rows.weight[rows.shown].sum())
        if self.fixed is None:
            return weight
        if self.fixed == "published":
            return 2 * self.spread**2 * weight  # a scale of 1, and twice the square
        return (self.spread / self.fixed) ** 2 * weight


class ListwiseLoss(_TermLoss):
    r"""Minus the likelihood of which shown documents of a query were clicked, and of selection.

    A click chooses the document of highest utility :math:`f + \epsilon`, with Gumbel errors
    :math:`\epsilon`. Its probability is :math:`p_i \propto w_i e^{f_i}` over the documents shown,
    with :math:`w` their impressions. A document that is clicked more often than its features
    predict has a positive error, and if selection knew of it, was shown for that reason too: a
    shown document contributes :math:`\log\Phi((g + \gamma e) / \sqrt{1 - \gamma^2})`, with
    :math:`e` its standardised expected error, see :func:`expected_error`. Any other contributes
    :math:`\log\Phi(-g)`. With :math:`\gamma = 0` relevance has the softmax loss of
    :class:`IPSRanker`.
    """

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over rows: clicks, selection if shown, if not shown, and if shown for gamma = 0."""
        relevance, selection, _ = outputs
        shown = self.shown_in(batch)
        clicks = batch.clicks.masked_fill(~shown, 0.0)
        # log p of the softmax over the documents shown, with impressions as exposure.
        log_share = list_log_softmax(relevance + log_exposure(batch.weight), shown)
        # A list without a click says nothing about errors.
        total = clicks.sum(dim=1, keepdim=True)
        error = expected_error(log_share, clicks / total.clamp(min=_LEAST_DIVISOR))
        error = torch.where(shown & (total > 0), error, 0.0)
        index = (selection + self.gamma * error) / math.sqrt(1 - self.gamma**2)
        return self.sums_of(batch, clicks * log_share, log_ndtr(index), selection)

    def weight_of_labels(self, rows: Candidates) -> float:
        """The clicks of the rows shown."""
        return float(rows.weight[rows.shown] @ rows.label[rows.shown])


def expected_error(log_share: torch.Tensor, clicks: torch.Tensor) -> torch.Tensor:
    r"""Expected standardised Gumbel error of each document, given its share of the clicks.

    If utilities have Gumbel errors, the error of the document chosen has the mean
    :math:`-\log p` above that of all documents, and that of a document not chosen
    :math:`p \log p / (1 - p)`, with :math:`p` the probability of the choice. The mean over the
    clicks is divided by :math:`\pi / \sqrt 6`, the standard deviation.
    """
    # Below 1, so that 1 - p is no divisor of 0 in float32.
    share = log_share.exp().clamp(max=1 - 1e-6)
    error = (1 - clicks) * share * log_share / (1 - share) - clicks * log_share
    return error * (math.sqrt(6) / math.pi)


class PairLoss(_TermLoss):
    """Minus the pairwise objective (Zhao et al. 2023, equation 12), estimated on random pairs.

    Each row is paired with one random row of its list that was shown and one that was not. Each
    pair is weighted by the number of rows that it was drawn from, so that the expected sum is the
    sum over all pairs, with the smaller weight of the two rows. The default divides it by the
    number of other rows, and has the weight of the list. Memory is linear in the rows.
    """

    def __init__(
        self,
        scale: float,
        rows: Candidates,
        gamma: float = 0.0,
        selects: bool = True,
        variant: str = "default",
    ) -> None:
        super().__init__(scale, rows.shown, gamma, selects)
        self.variant = variant
        self.others = 1.0
        # Not clicks over weights: rounding would make preferences of ties.
        self.register_buffer("label", torch.from_numpy(rows.label).float())
        if variant == "default":
            return
        # The published objective is a mean over pairs, of which the kinds are counted here.
        preferred, tied, mixed = count_pairs(rows)
        n_others = mixed
        if variant == "program":
            n_others = mixed + tied
            self.others = min(1.0, preferred / max(tied + mixed, TINY))
        n_pairs = preferred + self.others * n_others
        self.scale *= float(rows.weight.sum()) / (n_pairs or 1.0)  # the mean of a pair

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over drawn pairs: preferences, selection if shown, if not shown, and for h = 0."""
        relevance, selection, _ = outputs
        shown = self.shown_in(batch)
        label = batch.pad(self.label[batch.bias])
        weight = batch.weight
        n_shown = shown.sum(dim=1)
        n_rows = batch.mask.sum(dim=1)
        if self.variant == "default":
            # The weight of the list, over the number of other rows of the pair.
            weight = weight.amax(dim=1, keepdim=True) / (n_rows[:, None] - 1).clamp(min=1)
            weight = weight.expand(batch.mask.shape)
        rows = [relevance, selection, label, shown]
        total = 0.0
        for partner, count in self._partners(batch.mask, n_shown, n_rows):
            partners = [values.gather(1, partner) for values in rows]
            terms = self.pair_terms(rows, partners)
            # Each pair is drawn from both of its rows.
            times = 0.5 * count * torch.minimum(weight, weight.gather(1, partner))
            has_partner = count > 0
            total = total + torch.stack([(times * term)[has_partner].sum() for term in terms])
        return total

    def pair_terms(
        self, one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        r"""Terms of pairs of rows; a row is (relevance, selection, label, shown).

        Let :math:`\Delta` be the relevance of the winner, which has the higher label, minus that
        of the loser. The preference is :math:`\log\sigma(\Delta)`, by default and for the program
        times :math:`|y_i - y_j|`. A shown row adds :math:`\log\sigma(g + h)`, any other
        :math:`\log\sigma(-g)`. The variants differ in :math:`h`:

        - ``default``: :math:`h = \gamma e / \sqrt 2` for the winner and
          :math:`-\gamma e / \sqrt 2` for the loser, with :math:`e` the expected difference of
          their errors given who won: an error that made the winner better than its features also
          made its selection more likely.
        - ``published``: :math:`h = \Delta` for winner and loser. A pair with a row that was not
          shown is there in both orders, with :math:`h = \Delta` and :math:`-\Delta`; ties are not.
        - ``program``: the same, but all pairs are there in both orders. One that is no preference
          counts ``others`` times.
        """
        relevance, selection, label, shown = one
        other_relevance, other_selection, other_label, other_shown = other
        # The winner has the higher label; a label of a row that was not shown is unknown.
        both = shown & other_shown
        gap = torch.where(both, label - other_label, 0.0)
        # log P(winner preferred) = log sigma(difference), with the sign of the winner.
        difference = relevance - other_relevance
        side = gap.sign()
        size = side.abs() if self.variant == "published" else gap.abs()

        def selected(shift, other_shift):
            one_term = logsigmoid(selection + shift)
            other_term = logsigmoid(other_selection + other_shift)
            return torch.where(shown, one_term, 0.0) + torch.where(other_shown, other_term, 0.0)

        if self.variant == "default":
            # h = gamma e / sqrt(2), with the sign of the winner.
            count = torch.ones_like(gap)
            shift = self.gamma / math.sqrt(2) * side * expected_gap(side * difference)
            chosen = selected(shift, -shift)
        else:
            # Weight of both orders of the pair: 1 for the preference, if there is one.
            others = torch.full_like(gap, self.others)
            if self.variant == "published":
                others = torch.where(both, 0.0, others)
            forth = torch.where(side > 0, 1.0, others)
            back = torch.where(side < 0, 1.0, others)
            count = forth + back
            chosen = forth * selected(difference, difference)
            chosen = chosen + back * selected(-difference, -difference)
        left_out = torch.where(shown, 0.0, logsigmoid(-selection))
        left_out = left_out + torch.where(other_shown, 0.0, logsigmoid(-other_selection))
        # A tie has size 0, and no preference.
        preference = size * logsigmoid(side * difference)
        return preference, chosen, count * left_out, count * selected(0.0, 0.0)

    def weight_of_labels(self, rows: Candidates) -> float:
        """The weight of all preferences; 0 for other variants, which are trained as they were."""
        if self.variant != "default":
            return 0.0
        # Pairs over the number of other rows of the list, shown or not.
        n_rows = np.bincount(rows.list_)
        heaviest = np.zeros(len(n_rows))
        np.maximum.at(heaviest, rows.list_, rows.weight)
        shown = rows.shown
        gaps = _sum_of_gaps(rows.list_[shown], rows.label[shown], len(n_rows))
        return float(gaps @ (heaviest / np.maximum(n_rows - 1, 1)))

    def _partners(self, mask, n_shown, n_rows):
        """Column of a random partner of each row, and the number of rows it was drawn from.

        Once for partners that were shown, once for partners that were not.
        """
        # Rows that were shown come first in their list.
        place = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
        first = place < n_shown[:, None]
        n_shown = n_shown[:, None]
        n_rows = n_rows[:, None]
        for own, start, size in ((first, 0, n_shown), (~first, n_shown, n_rows - n_shown)):
            # A row is no partner of its own.
            count = (size - own.long()) * mask
            step = (self._uniform(mask) * count).long()
            step = step.clamp(max=(count - 1).clamp(min=0))  # a draw may round up to the count
            # Among rows of its own kind, a row draws an offset from itself of at least 1.
            among_own = (place - start + 1 + step) % size.clamp(min=1)
            partner = start + torch.where(own, among_own, step)
            yield partner.clamp(max=mask.shape[1] - 1), count

    def _uniform(self, mask):
        if self.training:
            return torch.rand(mask.shape, generator=stream(mask.device), device=mask.device)
        # Validation draws the same pairs in each epoch, or epochs could not be compared.
        generator = torch.Generator().manual_seed(0)
        return torch.rand(mask.shape, generator=generator).to(mask.device)


def count_pairs(rows: Candidates) -> tuple[float, float, float]:
    """Weights of the pairs of rows of a list, each in both orders, by kind.

    Preferences, other pairs of rows that were shown (ties, and preferences in the other order),
    and pairs with a row that was not.
    """
    list_ = rows.list_[rows.shown]
    weight = rows.weight[rows.shown]
    label = rows.label[rows.shown].astype(np.float32)  # as the loss compares them
    _, number = np.unique(label, return_inverse=True)
    # Pairs of equal labels are ties; of the others each order is preferred once.
    shown = _weight_of_pairs(list_, weight)
    equal = _weight_of_pairs(pair_codes(list_, number, len(label)), weight)
    preferred = (shown - equal) / 2
    return preferred, shown - preferred, _weight_of_pairs(rows.list_, rows.weight) - shown


def _weight_of_pairs(group, weight):
    """Sum of the smaller weights of all pairs in the groups, each pair in both orders."""
    # Heaviest first: the weight of a row is the smaller one of its pairs with those before it.
    order = np.lexsort((-weight, group))
    group = group[order]
    n_before = np.arange(len(group)) - np.searchsorted(group, group)
    return 2 * float(weight[order] @ n_before)


def _sum_of_gaps(group, values, n_groups):
    """Sum of the differences of all pairs of values of each group, shape (n_groups,)."""
    order = np.lexsort((values, group))
    group = group[order]
    # The k-th smallest of m values is the larger one of k pairs, and the smaller one of the rest.
    size = np.bincount(group, minlength=n_groups)
    n_smaller = np.arange(len(group)) - np.searchsorted(group, group)
    n_larger = size[group] - 1 - n_smaller
    return np.bincount(group, (n_smaller - n_larger) * values[order], n_groups)


def expected_gap(difference: torch.Tensor) -> torch.Tensor:
    r"""E[d | d > -difference] of a standard logistic variable d.

    It is :math:`H(p) / p` with :math:`p = \sigma(\text{difference})` and the entropy
    :math:`H(p) = -p \log p - (1 - p) \log(1 - p)`.
    """
    # For very negative differences the second term, the product of a huge and a tiny number, is 1.
    left = difference.clamp(min=-15.0)
    return softplus(-difference) + (-left).exp() * softplus(left)


class RecordTerms(Callback):
    """Keeps the mean terms of the likelihood of each epoch."""

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        net.criterion_.end_epoch()
