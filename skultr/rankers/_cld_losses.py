"""Losses of relevance and selection, learned together: Type-II Tobit by rows, or random pairs.

Batches hold all candidates of some queries, those that were shown first; clicks over weight are
the (debiased) labels. Rows have their number in place of a bias factor.
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

from .._base._typing import Bools, Floats
from .._torch._losses import list_log_softmax
from .._torch._stream import stream

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._torch._lists import ListBatch


TERMS = ("relevance", "shown", "never_shown")


class SelectionModule(nn.Module):
    """Scores of relevance and of selection, from two networks."""

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
    """Base of losses that are sums of terms, which it adds up until the epoch is recorded.

    ``shown`` tells of each row of the log whether it was shown.

    ``terms`` returns four sums: the three of the likelihood, and the second one for gamma = 0. On
    validation lists the loss is that of the labels *given* that the rows were shown: minus the
    first two terms, plus the fourth. The terms of selection alone are left out, because they are
    larger: with them, training went on while selection improved and relevance overfitted.
    """

    def __init__(self, scale, shown):
        super().__init__()
        self.scale = scale
        self.register_buffer("shown", torch.from_numpy(shown))
        self.sums, self.n_lists = 0.0, 0

    def forward(self, outputs, batch):
        """Minus the mean log-likelihood per row, given scores of relevance and selection."""
        labels, shown, not_shown, alone = self.terms(outputs, batch) * self.scale
        if not self.training:
            return (alone - labels - shown) / len(batch)
        self.sums = self.sums + torch.stack([labels, shown, not_shown]).detach()
        self.n_lists += len(batch)
        return -(labels + shown + not_shown) / len(batch)

    def shown_in(self, batch):
        """True for rows that were shown, a rectangle."""
        return batch.pad(self.shown[batch.bias])

    def take_means(self):
        """Mean terms per row since the last call."""
        means = (self.sums / self.n_lists).tolist()
        self.sums, self.n_lists = 0.0, 0
        return means


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
        super().__init__(scale, shown)
        self.gamma, self.fixed, self.center, self.spread = gamma, fixed, center, spread
        noise = None if noise is None else torch.from_numpy(noise / spread**2).float()
        self.register_buffer("noise", noise)

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over rows: labels, selection if shown, if not shown, and if shown for gamma = 0."""
        relevance, selection, log_scale = outputs
        label = (batch.clicks / batch.weight.clamp(min=1e-12) - self.center) / self.spread
        shown = self.shown_in(batch)
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
            0.0 if self.noise is None else batch.pad(self.noise[batch.bias]),
        )
        # The constants that tobit_terms omits: of the density, and of the unit of the labels.
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
    noise: torch.Tensor | float = 0.0,
) -> tuple[torch.Tensor, ...]:
    r"""Log-likelihood terms of each row, without constants; 0 where a term does not apply.

    With relevance :math:`f`, selection :math:`g`, the known part :math:`v` of the variance of the
    label (``noise``), :math:`\tau_i^2 = \tau^2 + v`, :math:`\gamma_i = \gamma \tau / \tau_i` and
    :math:`e = (y - f) / \tau_i` they are

    .. math::
        -\frac{e^2}{2} - \log\tau_i, \qquad
        \log\Phi\Bigl(\frac{g + \gamma_i e}{\sqrt{1 - \gamma_i^2}}\Bigr), \qquad
        \log\Phi(-g), \qquad \log\Phi(g);

    the third applies to rows that were not shown, the others to shown rows. In the ``published``
    form (Zhao et al. 2023, equation 9) the first is :math:`-e^2`, with a constant :math:`\tau`.
    """
    variance = (2 * log_scale).exp()
    spread = (variance + noise).sqrt()
    gamma_of_row = gamma * variance.sqrt() / spread
    error = torch.where(shown, label - relevance, 0.0) / spread
    index = (selection + gamma_of_row * error) / (1 - gamma_of_row**2).sqrt()
    of_label = -(error**2) if published else -(error**2) / 2 - spread.log()
    return (
        torch.where(shown, of_label, 0.0),
        torch.where(shown, log_ndtr(index), 0.0),
        torch.where(shown, 0.0, log_ndtr(-selection)),
        torch.where(shown, log_ndtr(selection), 0.0),
    )


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

    def __init__(
        self, scale: float, shown: Bools, selection: bool = True, gamma: float = 0.0
    ) -> None:
        super().__init__(scale, shown)
        self.selection, self.gamma = selection, gamma

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over rows: clicks, selection if shown, if not shown, and if shown for gamma = 0."""
        relevance, selection, _ = outputs
        shown = self.shown_in(batch)
        clicks = batch.clicks.masked_fill(~shown, 0.0)
        log_share = list_log_softmax(relevance + batch.weight.clamp(min=1e-12).log(), shown)
        total = clicks.sum(dim=1, keepdim=True)
        error = expected_error(log_share, clicks / total.clamp(min=1e-12)).masked_fill(~shown, 0.0)
        index = (selection + self.gamma * error * (total > 0)) / math.sqrt(1 - self.gamma**2)
        not_shown = batch.mask & ~shown
        terms = torch.stack(
            [
                (clicks * log_share).sum(),
                (batch.weight * log_ndtr(index))[shown].sum(),
                (batch.weight * log_ndtr(-selection))[not_shown].sum(),
                (batch.weight * log_ndtr(selection))[shown].sum(),
            ]
        )
        return terms if self.selection else terms * terms.new_tensor([1.0, 0.0, 0.0, 0.0])


def expected_error(log_share: torch.Tensor, clicks: torch.Tensor) -> torch.Tensor:
    r"""Expected standardised Gumbel error of each document, given its share of the clicks.

    If utilities have Gumbel errors, the error of the document chosen has the mean
    :math:`-\log p` above that of all documents, and that of a document not chosen
    :math:`p \log p / (1 - p)`, with :math:`p` the probability of the choice. The mean over the
    clicks is divided by :math:`\pi / \sqrt 6`, the standard deviation.
    """
    share = log_share.exp().clamp(max=1 - 1e-6)
    error = (1 - clicks) * share * log_share / (1 - share) - clicks * log_share
    return error * (math.sqrt(6) / math.pi)


class PairLoss(_TermLoss):
    """Minus the pairwise objective (Zhao et al. 2023, equation 12), estimated on random pairs.

    Each row is paired with one random row of its query that was shown and one that was not. Each
    pair is weighted by the number of rows that it was drawn from, so that the expected sum is the
    sum over all pairs, divided by the number of other rows. Memory is linear in the rows.
    """

    def __init__(
        self,
        scale: float,
        shown: Bools,
        variant: str,
        selection: bool = True,
        gamma: float = 0.0,
    ) -> None:
        super().__init__(scale, shown)
        self.variant, self.selection, self.gamma = variant, selection, gamma

    def terms(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """Sums over drawn pairs: preferences, selection if shown, if not shown, and for h = 0."""
        relevance, selection, _ = outputs
        shown = self.shown_in(batch)
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
            # Each pair is drawn from both of its rows.
            weight = 0.5 * sessions[:, None] * count
            total = total + torch.stack([(weight * term)[count > 0].sum() for term in terms])
        return total if self.selection else total * total.new_tensor([1.0, 0.0, 0.0, 0.0])

    def _partners(self, mask, n_shown, n_rows):
        """Column of a random partner of each row, and the number of rows it was drawn from.

        Once for partners that were shown, once for partners that were not.
        """
        place = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
        first, n_shown, n_rows = place < n_shown[:, None], n_shown[:, None], n_rows[:, None]
        for own, start, size in ((first, 0, n_shown), (~first, n_shown, n_rows - n_shown)):
            count = (size - own.long()) * mask
            step = (self._uniform(mask) * count).long().clamp(max=(count - 1).clamp(min=0))
            # Among rows of its own kind, a row draws an offset from itself of at least 1.
            partner = torch.where(own, (place - start + 1 + step) % size.clamp(min=1), step)
            yield (start + partner).clamp(max=mask.shape[1] - 1), count

    def _uniform(self, mask):
        if self.training:
            return torch.rand(mask.shape, generator=stream(mask.device), device=mask.device)
        # Validation draws the same pairs in each epoch, or epochs could not be compared.
        generator = torch.Generator().manual_seed(0)
        return torch.rand(mask.shape, generator=generator).to(mask.device)


def pair_terms(
    one: Sequence[torch.Tensor], other: Sequence[torch.Tensor], variant: str, gamma: float = 0.0
) -> tuple[torch.Tensor, ...]:
    r"""Terms of pairs of rows; a row is (relevance, selection, label, shown).

    Let :math:`\Delta` be the relevance of the winner, which has the higher label, minus that of
    the loser. The preference is :math:`|y_i - y_j| \log\sigma(\Delta)`. A shown row adds
    :math:`\log\sigma(g + h)`, any other :math:`\log\sigma(-g)`. The variants differ in
    :math:`h`:

    - ``published``: :math:`h = \Delta` for winner and loser, and a row that was not shown loses
      to one that was;
    - ``preference``: the same, but a row that was not shown does not lose;
    - ``default``: :math:`h = \gamma e / \sqrt 2` for the winner and :math:`-\gamma e / \sqrt 2`
      for the loser, with :math:`e` the expected difference of their errors given who won: an
      error that made the winner better than its features also made its selection more likely.
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
    # The paper has no pairs with equal labels. They have no preference, but were selected.
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

    It is :math:`H(p) / p` with :math:`p = \sigma(\text{difference})` and the entropy
    :math:`H(p) = -p \log p - (1 - p) \log(1 - p)`.
    """
    # For very negative differences the second term, the product of a huge and a tiny number, is 1.
    left = difference.clamp(min=-15.0)
    return softplus(-difference) + (-left).exp() * softplus(left)


class RecordTerms(Callback):
    """Keeps the mean terms of the likelihood of each epoch."""

    def __init__(self, criterion: _TermLoss | None = None) -> None:
        self.criterion = criterion

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        self.epochs_ = []

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        self.epochs_.append(self.criterion.take_means())
