"""Batches of lists, gathered from flat arrays in one step, and losses over them.

Every loss has the signature ``loss(scores, clicks, weight, mask)``, with tensors of shape
(n_lists, width), and returns the *sum* over the lists. The caller divides by a constant of the
whole log. ``clicks`` are (debiased) numbers of clicks and may be fractional or exceed ``weight``,
the number of impressions. Cells where ``mask`` is False hold no row and enter neither the loss nor
its normaliser.

All losses except ``lambda`` are linear in the clicks. They are therefore unbiased if the clicks
are, and equal on a folded log and on the raw one.

Sums over pairs: a pair has a winner i and a loser j of one list, a weight w_ij and the loss log(1
+ e^(s_j - s_i)). Winners are few, because clicks are few. A batch of short lists is one rectangle
of all its pairs. Otherwise lists of similar length are taken together, with their winners only,
and in blocks of a bounded number of pairs, so that one long list among short ones costs its own
pairs and no more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.data import Dataset

from .._base._typing import Bools, Floats, Ints
from .._log._clicklog import SAMPLE

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Least divisor and least argument of a logarithm.
_TINY = 1e-12

#: Numbers of the lists of a batch.
Indices: TypeAlias = Sequence[int] | torch.Tensor


@dataclass(frozen=True, eq=False)
class ListBatch:
    """A batch of lists: flat rows for the network, padded rectangles for the loss.

    The network receives no padding. A long list among short ones then costs nothing extra, and
    padding does not enter batch normalisation.
    """

    features: torch.Tensor  # (n_rows, n_features)
    bias: torch.Tensor  # (n_rows,)
    mask: torch.Tensor  # (n_lists, width)
    clicks: torch.Tensor  # (n_lists, width)
    weight: torch.Tensor  # (n_lists, width)

    def __len__(self) -> int:
        return len(self.mask)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Flat values (n_rows,) as a rectangle (n_lists, width); 0 at padding."""
        return _padded(values, self.mask)


def _padded(values, mask):
    """Flat values as a rectangle of the shape of the mask, which says where there is one."""
    # Without padding the rectangle is the same memory.
    if len(values) == mask.numel():
        return values.reshape(mask.shape)
    return values.new_zeros(mask.shape).masked_scatter_(mask, values)


class ScaledRows:
    """Features (n_versions, n_features) that are scaled when a batch needs them."""

    def __init__(self, scale: torch.nn.Module, features: NDArray[np.float32]) -> None:
        self.scale = scale
        self.features = features
        self.device = next((each.device for each in scale.buffers()), torch.device("cpu"))

    def index_select(self, dim: int, rows: torch.Tensor) -> torch.Tensor:
        """Scaled features of some rows."""
        return self._scaled(self.features[rows.cpu().numpy()])

    def split(self, n_rows: int) -> Iterator[torch.Tensor]:
        """Scaled features of consecutive rows."""
        for start in range(0, len(self.features), n_rows):
            # A copy, because a memory-mapped or read-only array cannot back a tensor.
            yield self._scaled(self.features[start : start + n_rows].copy())

    def _scaled(self, rows):
        with torch.no_grad():
            return self.scale(torch.from_numpy(rows).to(self.device))


class ListDataset(Dataset):
    """The rows of a click log as lists, ready for a ``DataLoader``; columns are not copied."""

    def __init__(
        self,
        log: ClickLog,
        features: torch.Tensor | ScaledRows,
        click_only: bool = False,
    ) -> None:
        # All columns live where the network does: no batch is copied from memory to a GPU.
        device = features.device
        if click_only:
            # Lists with a click: the others have no part in such a loss.
            keep = np.logical_or.reduceat(log.clicks != 0, log.offsets[:-1])
        else:
            keep = np.ones(log.n_lists, dtype=bool)
        self.features = features
        self.version = _tensor(log.version).to(device)
        self.bias = _tensor(log.bias).to(device)
        self.clicks = _tensor(log.clicks).to(device, torch.float32)
        self.weight = _tensor(log.weight).to(device, torch.float32)
        self._query = log.query_of_list[keep]
        self.lengths = torch.from_numpy(np.diff(log.offsets)[keep]).to(device)
        self.starts = torch.from_numpy(log.offsets[:-1][keep]).to(device)

    def of_queries(self, queries: Bools) -> ListDataset:
        """The lists of the queries for which ``queries``, (n_queries,), is True."""
        # Shallow: both parts share the columns, and hold numbers of lists alone.
        part = copy(self)
        kept = queries[self._query]
        part._query = self._query[kept]
        kept = torch.from_numpy(kept).to(self.lengths.device)
        part.lengths = self.lengths[kept]
        part.starts = self.starts[kept]
        return part

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_queries(self) -> int:
        """Number of queries with a list."""
        return len(np.unique(self._query))

    @property
    def n_features(self) -> int:
        """Number of features, before they are scaled if every batch is scaled."""
        features = self.features
        if isinstance(features, ScaledRows):
            features = features.features
        return features.shape[1]

    def __getitem__(self, index: int) -> tuple[ListBatch, torch.Tensor]:
        return self.__getitems__([index])

    def __getitems__(self, indices: Indices) -> tuple[ListBatch, torch.Tensor]:
        """The batch of these lists: a pair (ListBatch, target), as skorch unpacks it."""
        lists = torch.as_tensor(indices, device=self.lengths.device)
        lengths = self.lengths.index_select(0, lists)[:, None]
        # Rows of the lists, one after another: the network gets no padding.
        column = torch.arange(int(lengths.max()), device=lists.device)
        mask = column < lengths
        starts = self.starts.index_select(0, lists)
        rows = (starts[:, None] + column).masked_select(mask)
        # From rows to versions of documents, whose features are stored once.
        version = self.version.index_select(0, rows)
        clicks = _padded(self.clicks.index_select(0, rows), mask)
        weight = _padded(self.weight.index_select(0, rows), mask)
        batch = ListBatch(
            features=self.features.index_select(0, version),
            bias=self.bias.index_select(0, rows).long(),
            mask=mask,
            clicks=clicks,
            weight=weight,
        )
        return batch, clicks

    def rows(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Version, bias factor, clicks and weight of rows, of a part of the lists if too many."""
        # One list of each ``step``, so that about as many rows are left as a sample has.
        step = max(1, -(-int(self.lengths.sum()) // SAMPLE))
        lengths = self.lengths[::step]
        starts = self.starts[::step]
        # Number of each row of the part, plus how far its list stands from its place there.
        place = lengths.cumsum(0) - lengths
        shift = torch.repeat_interleave(starts - place, lengths)
        rows = shift + torch.arange(len(shift), device=shift.device)

        def some(column):
            return column.index_select(0, rows).cpu()

        return (
            some(self.version).numpy(),
            some(self.bias).numpy(),
            some(self.clicks).double().numpy(),
            some(self.weight).double().numpy(),
        )

    def outputs(self, network: torch.nn.Module) -> torch.Tensor:
        """Output of a network for each version, shape (n_versions,)."""
        with torch.inference_mode():
            # So many versions at a time, as layers need several times the memory of features.
            some = self.features.split(1 << 16)
            parts = [network(part).reshape(-1) for part in some]
        return torch.cat(parts)


def _tensor(column):
    """A tensor in the memory of an array, which may be a memory map: nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ")
        return torch.from_numpy(column)


#: ``loss(scores, clicks, weight, mask)``, see above.
Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class ScaledLoss(nn.Module):
    """A mean loss per list of a batch, times ``scale``, which is the same for the whole log."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale


class ListLoss(ScaledLoss):
    """The mean of a loss of scores."""

    def __init__(self, loss: Loss, scale: float) -> None:
        super().__init__(scale)
        self.loss = loss

    def forward(self, scores: torch.Tensor, batch: ListBatch) -> torch.Tensor:
        """Loss (a scalar) of scores of shape (n_lists, width)."""
        loss = self.loss(scores, batch.clicks, batch.weight, batch.mask)
        return loss * (self.scale / len(batch))


def list_log_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log softmax over the rows of each list, shape (n_lists, width); 0 at padding."""
    if mask.all():
        return torch.log_softmax(scores, dim=1)
    # Padding has probability 0; its logarithm is then put at 0, as 0 clicks times -inf are NaN.
    scores = scores.masked_fill(~mask, -torch.inf)
    return torch.log_softmax(scores, dim=1).masked_fill(~mask, 0.0)


def softmax_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Listwise cross-entropy :math:`-\sum_i c_i \log \mathrm{softmax}(s + \log w)_i`.

    With ``weight`` the expected number of examinations of each row (``ClickLog.comparable``), it
    is the likelihood of where the clicks of a list fell: no click weighs more than another,
    however seldom its row is examined.
    """
    return -(clicks * list_log_softmax(scores + log_exposure(weight), mask)).sum()


def log_exposure(weight: torch.Tensor) -> torch.Tensor:
    """The offset of the scores of rows whose exposure differs; 0 where it is 1."""
    return weight.clamp(min=_TINY).log()


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
    # Alone in its list a row has no pair; 1 keeps the division defined.
    n_others = (mask.sum(dim=1, keepdim=True) - 1).clamp(min=1)
    wins = clicks * mask / n_others
    losses = mask.to(scores.dtype)
    return sum_of_pairs(scores, mask, wins, losses)


def lambda_loss(
    scores: torch.Tensor, clicks: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    r"""Pairwise logistic loss, weighted by the change of nDCG if the pair is swapped.

    :math:`\sum_{i,j: g_i > g_j} |\Delta\mathrm{nDCG}_{ij}| (-\log\sigma(s_i - s_j))` with the
    gains :math:`g_i = c_i / w_i`, the mean (debiased) clicks. :math:`|\Delta\mathrm{nDCG}|` is
    held fixed (no gradient), and lists are weighted by their impressions (Burges 2010; Wang et al.
    2018).
    """
    gains = (clicks / weight.clamp(min=_TINY)).masked_fill(~mask, 0.0)
    # Impressions of a list: the mean over its rows.
    n_rows = mask.sum(dim=1, keepdim=True).clamp(1)
    impressions = (weight * mask).sum(dim=1, keepdim=True) / n_rows
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
    # sum_k g_(k) / log2(1 + k) over gains that fall; debiased ones may be below 0.
    best_first = gains.clamp(min=0).sort(dim=1, descending=True).values
    places = torch.arange(1, gains.shape[1] + 1, device=gains.device, dtype=gains.dtype)
    discounted = best_first / torch.log2(1 + places)
    return discounted.sum(dim=1, keepdim=True).clamp(min=_TINY)


def _discounts(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Discount of the rank that each row has by its score, shape (n_lists, width)."""
    # Padding comes last. The order of an order is the rank.
    known = scores.masked_fill(~mask, -torch.inf)
    falling = known.argsort(dim=1, descending=True, stable=True)
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


#: Flat cells of a rectangle (n_lists, width): winners (n, n_winners) and losers (n, n_losers);
#: None is the whole rectangle.
Cells: TypeAlias = torch.Tensor | None

#: Pairs of a block, whose arrays of 1 MiB stay in a processor's cache.
_BLOCK_PAIRS = 1 << 18


def sum_of_pairs(
    scores: torch.Tensor,
    mask: torch.Tensor,
    wins: torch.Tensor,
    losses: torch.Tensor,
    weigh: Callable[..., torch.Tensor] | None = None,
    values: tuple[torch.Tensor, ...] = (),
) -> torch.Tensor:
    r"""Sum over pairs of :math:`a_i b_j u_{ij} \log(1 + e^{s_j - s_i})`; gradient in s only."""
    return _SumOfPairs.apply(scores, mask, wins, losses, weigh, values)


def loss_by_row(
    scores: torch.Tensor, mask: torch.Tensor, wins: torch.Tensor, losses: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Loss of each row as winner, and as loser: two tensors of shape (n_lists, width).

    They are :math:`\sum_j b_j L_{ij}` of each row i with :math:`a_i \ne 0` (0 of the others) and
    :math:`\sum_i a_i L_{ij}` of each row j, with :math:`L_{ij} = \log(1 + e^{s_j - s_i})`.
    """
    won = torch.zeros_like(scores)
    lost = torch.zeros_like(scores)
    for first, second in _blocks(mask, wins):
        loss = F.softplus(-_differences(scores, first, second))
        _clear_itself(loss, first, second)
        # Rows of the matrix are winners, columns losers.
        by_winner = torch.matmul(loss, _take(losses, second)[:, :, None])
        by_loser = torch.matmul(_take(wins, first)[:, None, :], loss)
        _add(won, first, by_winner[:, :, 0])
        _add(lost, second, by_loser[:, 0])
    return won, lost


class _SumOfPairs(torch.autograd.Function):
    """The gradient is summed beside the loss: no pair is kept for the backward pass."""

    @staticmethod
    def forward(ctx, scores, mask, wins, losses, weigh, values):
        total = scores.new_zeros(())
        gradient = torch.zeros_like(scores)
        for first, second in _blocks(mask, wins):
            weight = _take(wins, first)[:, :, None] * _take(losses, second)[:, None, :]
            if weigh is not None:
                differences = [_differences(each, first, second) for each in values]
                weight *= weigh(*differences)
            _clear_itself(weight, first, second)
            behind = -_differences(scores, first, second)
            total += torch.dot(weight.flatten(), F.softplus(behind).flatten())
            if ctx.needs_input_grad[0]:
                # Each pair raises its winner by as much as it lowers its loser.
                slope = weight.mul_(behind.sigmoid_())
                _add(gradient, second, slope.sum(dim=1))
                _add(gradient, first, -slope.sum(dim=2))
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, outer):
        return outer * ctx.saved_tensors[0], None, None, None, None, None


def _take(values: torch.Tensor, cells: Cells) -> torch.Tensor:
    return values if cells is None else values.flatten()[cells]


def _add(sums: torch.Tensor, cells: Cells, values: torch.Tensor) -> None:
    if cells is None:
        sums += values
    else:
        sums.view(-1).index_add_(0, cells.flatten(), values.flatten())


def _differences(values: torch.Tensor, first: Cells, second: Cells) -> torch.Tensor:
    """Value of the winner minus that of the loser, shape (n, n_winners, n_losers)."""
    return _take(values, first)[:, :, None] - _take(values, second)[:, None, :]


def _clear_itself(pairs: torch.Tensor, first: Cells, second: Cells) -> None:
    """Set the pairs of a row and itself to 0, in place."""
    if first is None or second is None:
        pairs.diagonal(dim1=1, dim2=2).zero_()
    else:
        pairs.masked_fill_(first[:, :, None] == second[:, None, :], 0.0)


def _blocks(mask: torch.Tensor, wins: torch.Tensor) -> Iterator[tuple[Cells, Cells]]:
    """Blocks that hold every pair of a winner (``wins`` not 0) and another row of its list."""
    n_lists, width = mask.shape
    # Up to this number of pairs a whole batch is one block: choosing winners would cost more.
    if n_lists * width * width <= 1 << 15:
        yield None, None
        return
    cells = torch.arange(n_lists * width, device=mask.device).view(n_lists, width)
    lengths = mask.sum(dim=1)
    winner = (wins != 0) & mask
    n_winners = winner.sum(dim=1)
    # Lists whose lengths have equal logarithms (rounded up, to base 2) are padded together.
    # At most half of a rectangle is padding then.
    classes = torch.log2(lengths.clamp(min=1).double()).ceil()
    for size in classes.unique():
        lists = torch.nonzero((classes == size) & (n_winners > 0)).flatten()
        if len(lists):
            longest = int(lengths[lists].max())
            most = int(n_winners[lists].max())
            # The winners of each list first; lists with fewer are filled with rows that win 0.
            winners_first = winner[lists].byte().argsort(dim=1, descending=True, stable=True)
            first = cells[lists].gather(1, winners_first[:, :most])
            yield from _split(first, cells[lists, :longest])


def _split(
    first: torch.Tensor, second: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A block in blocks of at most ``_BLOCK_PAIRS`` pairs, or of one winner."""
    # First by lists, then, where one list has too many pairs, by its winners.
    n_winners = max(1, _BLOCK_PAIRS // second.shape[1])
    n_lists = max(1, n_winners // first.shape[1])
    for some, others in zip(first.split(n_lists), second.split(n_lists), strict=True):
        for winners in some.split(n_winners, dim=1):
            yield winners, others
