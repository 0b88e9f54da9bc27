import numpy as np
import pytest
import torch

from skultr._log._clicklog import make_click_log
from skultr._log._roles import read_features
from skultr._torch._lists import ListDataset, list_log_softmax

from .._worlds import small_log, top_k_log


def dataset(frame, clicks):
    log = make_click_log(frame, read_features(frame).to_numpy(), clicks)
    return ListDataset(log, torch.from_numpy(log.features.copy()))


def same_length():
    _, frame, clicks, _ = top_k_log(n_queries=20, n_sessions=100)
    return dataset(frame, clicks)


def test_lists_of_one_length_have_no_padding():
    data = same_length()
    lists = torch.tensor([7, 0, 3, 12])
    batch, _ = data.__getitems__(lists)
    assert batch.mask.all()
    assert len(batch) == len(lists)
    alone, _ = data[7]
    assert torch.equal(batch.clicks[:1], alone.clicks)
    values = torch.rand(len(batch.bias))
    assert torch.equal(batch.pad(values)[batch.mask], values)


def test_lists_of_several_lengths_are_padded():
    frame, clicks = small_log()
    keep = np.ones(len(frame), dtype=bool)
    keep[1] = False
    data = dataset(frame[keep].reset_index(drop=True), np.asarray(clicks)[keep])
    batch, target = data.__getitems__(range(len(data)))
    assert not batch.mask.all()
    assert target is batch.clicks
    assert not batch.clicks[~batch.mask].any()
    padded = batch.pad(torch.ones(len(batch.bias)))
    assert torch.equal(padded, batch.mask.float())


@pytest.mark.parametrize("as_given", [list, torch.tensor, np.array])
def test_numbers_of_lists_come_in_any_container(as_given):
    data = same_length()
    batch, _ = data.__getitems__(as_given([2, 1]))
    alone, _ = data[2]
    assert torch.equal(batch.features[: len(alone.features)], alone.features)


def test_softmax_without_padding_is_that_with_padding():
    scores = torch.randn(5, 4, requires_grad=True)
    wider = torch.nn.functional.pad(scores, (0, 2))
    mask = torch.zeros(5, 6, dtype=torch.bool)
    mask[:, :4] = True
    found = list_log_softmax(scores, torch.ones(5, 4, dtype=torch.bool))
    torch.testing.assert_close(found, list_log_softmax(wider, mask)[:, :4])
    assert not list_log_softmax(wider, mask)[:, 4:].any()
