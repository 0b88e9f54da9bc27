import math

import numpy as np
import pytest
import torch

from skultr._torch._lists import LOSSES, list_log_softmax

LINEAR = ["softmax", "bce", "mse", "pairwise"]


def _batch(seed=0, n_lists=3, width=4):
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_lists, width, generator=rng, dtype=torch.float64)
    lengths = torch.tensor([4, 2, 1])[:n_lists]
    mask = torch.arange(width) < lengths[:, None]
    weight = torch.rand(n_lists, width, generator=rng, dtype=torch.float64) * 5 + 1
    clicks = weight * torch.rand(n_lists, width, generator=rng, dtype=torch.float64)
    return scores, clicks * mask, weight * mask, mask


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_right(name):
    scores, clicks, weight, mask = _batch()
    loss = LOSSES[name]
    assert torch.autograd.gradcheck(
        lambda s: loss(s, clicks, weight, mask), scores.requires_grad_()
    )


@pytest.mark.parametrize("name", LOSSES)
def test_padding_is_not_seen(name):
    scores, clicks, weight, mask = _batch()
    loss = LOSSES[name]
    expected = loss(scores, clicks, weight, mask)
    dirty = scores.masked_fill(~mask, 1e3)
    torch.testing.assert_close(loss(dirty, clicks, weight, mask), expected)
    wider = [torch.nn.functional.pad(x, (0, 2)) for x in (scores, clicks, weight, mask)]
    torch.testing.assert_close(loss(*wider), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_finite_at_extreme_scores_and_without_clicks(name):
    scores, clicks, weight, mask = _batch()
    for extreme in (scores * 1e4, torch.zeros_like(scores)):
        for target in (clicks, torch.zeros_like(clicks)):
            leaf = extreme.clone().requires_grad_()
            LOSSES[name](leaf, target, weight, mask).backward()
            assert torch.isfinite(leaf.grad).all()
            assert (leaf.grad[~mask] == 0).all()


@pytest.mark.parametrize("name", LINEAR)
def test_linear_in_clicks(name):
    scores, clicks, weight, mask = _batch()
    loss = LOSSES[name]
    half = loss(scores, clicks / 2, weight / 2, mask)
    torch.testing.assert_close(half * 2, loss(scores, clicks, weight, mask))
    more = loss(scores, clicks + 1.0 * mask, weight, mask)
    even_more = loss(scores, clicks + 2.0 * mask, weight, mask)
    torch.testing.assert_close(
        even_more - more, more - loss(scores, clicks, weight, mask), rtol=1e-9, atol=1e-9
    )


def test_values_by_hand():
    scores = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    clicks, weight = torch.tensor([[2.0, 1.0]]).double(), torch.tensor([[3.0, 4.0]]).double()
    mask = torch.ones(1, 2, dtype=torch.bool)
    log_sigmoid = lambda x: -math.log(1 + math.exp(-x))  # noqa: E731
    expected = {
        # The weight is an exposure: the first row is 3 / 4 as likely to be clicked.
        "softmax": -2 * log_sigmoid(1 + math.log(3 / 4)) - log_sigmoid(-1 - math.log(3 / 4)),
        "bce": -2 * log_sigmoid(1) - 1 * log_sigmoid(-1) - (1 + 3) * log_sigmoid(0),
        "mse": 3 * 1**2 - 2 * 2 * 1,
        "pairwise": -2 * log_sigmoid(1) - 1 * log_sigmoid(-1),
        # gains 2/3 and 1/4; swapping changes nDCG by their gap times (1 - 1/log2(3)) / ideal.
        "lambda": -log_sigmoid(1)
        * (2 / 3 - 1 / 4)
        * (1 - 1 / math.log2(3))
        / (2 / 3 + 1 / 4 / math.log2(3))
        * (3 + 4)
        / 2,
    }
    for name, value in expected.items():
        assert LOSSES[name](scores, clicks, weight, mask).item() == pytest.approx(value), name


@pytest.mark.parametrize("name", ["softmax", "pairwise"])
def test_optimum_orders_by_clicks(name):
    clicks = torch.tensor([[5.0, 1.0, 3.0]])
    weight, mask = torch.full((1, 3), 9.0), torch.ones(1, 3, dtype=torch.bool)
    scores = torch.zeros(1, 3, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.05)
    for _ in range(500):
        optimizer.zero_grad()
        LOSSES[name](scores, clicks, weight, mask).backward()
        optimizer.step()
    shares = torch.softmax(scores, dim=1) if name == "softmax" else scores
    assert np.argsort(-scores.detach().numpy()[0]).tolist() == [0, 2, 1]
    if name == "softmax":
        torch.testing.assert_close(shares.detach(), clicks / 9, atol=1e-3, rtol=0)


def test_log_softmax_of_an_empty_list_is_finite_in_value_and_gradient():
    mask = torch.tensor([[True, True], [False, False]])
    scores = torch.randn(2, 2, requires_grad=True)
    value = list_log_softmax(scores, mask)
    value.sum().backward()
    assert torch.isfinite(value).all()
