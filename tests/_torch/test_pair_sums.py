import pytest
import torch
from torch.nn.functional import softplus

from skultr._torch import _lists as losses
from skultr._torch._lists import loss_by_row, sum_of_pairs


def _lists(lengths, share_clicked=0.3, dtype=torch.float64):
    """Scores, mask, weights as winner and as loser, and one more number per row."""
    rng = torch.Generator().manual_seed(0)
    lengths = torch.tensor(lengths)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    scores, more = (torch.randn(mask.shape, generator=rng, dtype=dtype) for _ in range(2))
    clicked = torch.rand(mask.shape, generator=rng) < share_clicked
    wins, losses = (torch.rand(mask.shape, generator=rng, dtype=dtype) * mask for _ in range(2))
    return scores, mask, wins * clicked, losses, more


def _every_pair(scores, mask):
    """Loss of all pairs of a row and another row of its list, shape (n_lists, width, width)."""
    loss = softplus(scores[:, None, :] - scores[:, :, None])
    other = ~torch.eye(mask.shape[1], dtype=torch.bool)
    return loss * (mask[:, :, None] & mask[:, None, :] & other)


LENGTHS = {
    "one rectangle": [5, 3, 1],
    "a long list among short ones": [4] * 9 + [300],
    "several lengths": [1, 2, 70, 130, 129, 64, 300],
}


@pytest.fixture(params=LENGTHS.values(), ids=LENGTHS)
def lists(request):
    return _lists(request.param)


@pytest.fixture(params=[1 << 18, 1000, 7])
def block(request, monkeypatch):
    monkeypatch.setattr(losses, "_BLOCK_PAIRS", request.param)


@pytest.mark.parametrize("weighed", [False, True])
def test_equals_the_sum_over_every_pair(lists, weighed, block):
    scores, mask, wins, losses, more = lists
    weigh, of = (torch.abs, (more,)) if weighed else (None, ())
    weight = wins[:, :, None] * losses[:, None, :]
    if weighed:
        weight = weight * (more[:, :, None] - more[:, None, :]).abs()
    found = []
    for total in (
        lambda s: 2 * sum_of_pairs(s, mask, wins, losses, weigh, of),
        lambda s: 2 * (weight * _every_pair(s, mask)).sum(),
    ):
        leaf = scores.clone().requires_grad_()
        value = total(leaf)
        value.backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*found)


def test_rows_have_the_loss_of_their_pairs(lists, block):
    scores, mask, wins, losses, _ = lists
    won, lost = loss_by_row(scores, mask, wins, losses)
    every = _every_pair(scores, mask)
    torch.testing.assert_close(won * wins, wins * (every * losses[:, None, :]).sum(dim=2))
    torch.testing.assert_close(lost * mask, (every * wins[:, :, None]).sum(dim=1))


def _pairs_of_blocks(mask, wins):
    blocks = list(losses._blocks(mask, wins))
    return [first.numel() * second.shape[1] for first, second in blocks]


def test_long_list_among_short_ones_costs_its_own_pairs():
    """A rectangle of the batch would hold 64 times 2,000 squared pairs."""
    _, mask, wins, _, _ = _lists([10] * 63 + [2000], share_clicked=0.2)
    pairs = _pairs_of_blocks(mask, wins)
    assert sum(pairs) <= (wins[-1] > 0).sum() * 2000 + 63 * 100


def test_blocks_of_long_lists_are_bounded():
    _, mask, wins, _, _ = _lists([2000] * 20, share_clicked=0.2, dtype=torch.float32)
    assert max(_pairs_of_blocks(mask, wins)) <= 1 << 18


def test_lists_without_a_winner_have_no_pairs():
    scores, mask, wins, losses, _ = _lists([300, 200])
    assert _pairs_of_blocks(mask, 0 * wins) == []
    leaf = scores.requires_grad_()
    sum_of_pairs(leaf, mask, 0 * wins, losses).backward()
    assert (leaf.grad == 0).all()


def test_no_pair_is_kept_for_the_backward_pass():
    scores, mask, wins, losses, _ = _lists([300] * 4)
    kept = []

    def remember(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        sum_of_pairs(scores.requires_grad_(), mask, wins, losses).backward()
    assert max(kept) <= mask.numel()
