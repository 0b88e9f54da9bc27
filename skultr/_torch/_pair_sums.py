"""Sums over the pairs of rows of a list, in memory that does not grow with the square of a list.

A pair has a winner i and a loser j of one list, a weight w_ij and the loss log(1 + e^(s_j - s_i)).
Winners are few, because clicks are few. A batch of short lists is one rectangle of all its pairs.
Otherwise lists of similar length are taken together, with their winners only, and in blocks of a
bounded number of pairs, so that one long list among short ones costs its own pairs and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

#: Flat cells of a rectangle (n_lists, width): winners (n, n_winners) and losers (n, n_losers);
#: None is the whole rectangle.
Cells: TypeAlias = torch.Tensor | None

#: Up to this number of pairs a whole batch is one block: choosing winners would cost more.
_FEW_PAIRS = 1 << 15
#: Pairs of a block, whose arrays of 1 MiB stay in a processor's cache.
_BLOCK_PAIRS = 1 << 18


def sum_of_pairs(
    scores: torch.Tensor,
    mask: torch.Tensor,
    wins: torch.Tensor,
    losses: torch.Tensor,
    weigh: Callable[..., torch.Tensor] | None = None,
    of: tuple[torch.Tensor, ...] = (),
) -> torch.Tensor:
    r"""Sum over pairs of :math:`a_i b_j u_{ij} \log(1 + e^{s_j - s_i})`; gradient in s only."""
    return _SumOfPairs.apply(scores, mask, wins, losses, weigh, of)


def loss_by_row(
    scores: torch.Tensor, mask: torch.Tensor, wins: torch.Tensor, losses: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Loss of each row as winner, and as loser: two tensors of shape (n_lists, width).

    They are :math:`\sum_j b_j L_{ij}` of each row i with :math:`a_i \ne 0` (0 of the others) and
    :math:`\sum_i a_i L_{ij}` of each row j, with :math:`L_{ij} = \log(1 + e^{s_j - s_i})`.
    """
    won, lost = torch.zeros_like(scores), torch.zeros_like(scores)
    for first, second in _blocks(mask, wins):
        loss = F.softplus(-_differences(scores, first, second))
        _clear_itself(loss, first, second)
        _add(won, first, torch.matmul(loss, _take(losses, second)[:, :, None])[:, :, 0])
        _add(lost, second, torch.matmul(_take(wins, first)[:, None, :], loss)[:, 0])
    return won, lost


class _SumOfPairs(torch.autograd.Function):
    """The gradient is summed beside the loss: no pair is kept for the backward pass."""

    @staticmethod
    def forward(ctx, scores, mask, wins, losses, weigh, of):
        total, gradient = scores.new_zeros(()), torch.zeros_like(scores)
        for first, second in _blocks(mask, wins):
            weight = _take(wins, first)[:, :, None] * _take(losses, second)[:, None, :]
            if weigh is not None:
                weight *= weigh(*(_differences(x, first, second) for x in of))
            _clear_itself(weight, first, second)
            behind = -_differences(scores, first, second)
            total += torch.dot(weight.flatten(), F.softplus(behind).flatten())
            if ctx.needs_input_grad[0]:
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
    if n_lists * width * width <= _FEW_PAIRS:
        yield None, None
        return
    cells = torch.arange(n_lists * width, device=mask.device).view(n_lists, width)
    lengths, winner = mask.sum(dim=1), (wins != 0) & mask
    n_winners = winner.sum(dim=1)
    # Lists whose lengths have equal logarithms (rounded up, to base 2) are padded together.
    classes = torch.log2(lengths.clamp(min=1).double()).ceil()
    for size in classes.unique():
        lists = torch.nonzero((classes == size) & (n_winners > 0)).flatten()
        if len(lists):
            longest, most = int(lengths[lists].max()), int(n_winners[lists].max())
            first = winner[lists].byte().argsort(dim=1, descending=True, stable=True)[:, :most]
            first = cells[lists].gather(1, first)
            yield from _split(first, cells[lists, :longest])


def _split(
    first: torch.Tensor, second: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A block in blocks of at most ``_BLOCK_PAIRS`` pairs, or of one winner."""
    n_winners = max(1, _BLOCK_PAIRS // second.shape[1])
    n_lists = max(1, n_winners // first.shape[1])
    for some, others in zip(first.split(n_lists), second.split(n_lists), strict=True):
        for winners in some.split(n_winners, dim=1):
            yield winners, others
