"""Networks in pickles: the same tensors, in little more than their bytes."""

import pickle

import pytest
import torch
from torch import nn

from skultr._torch._networks import packed


def _back(**modules):
    return pickle.loads(pickle.dumps(packed(modules)))


class _Odd(nn.Module):
    """Tied weights, buffers of several types, a frozen weight, and weights of another type."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.coarse = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.turned = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
        self.register_buffer("count", torch.tensor([2**40]))
        self.register_buffer("known", torch.tensor([True, False]))
        self.register_buffer("missing", None)


def test_tensors_come_back_as_they_were():
    module = _Odd()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    again = _back(module=module)["module"]
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype
        assert torch.equal(module.state_dict()[name], before[name])
    assert again.tied.weight is again.first.weight
    assert isinstance(again.first.weight, nn.Parameter)
    learned = {name: each.requires_grad for name, each in module.named_parameters()}
    assert {name: each.requires_grad for name, each in again.named_parameters()} == learned
    assert not again.count.requires_grad


def test_modules_share_what_they_shared():
    network = nn.Linear(100, 50)
    again = _back(network=network, whole=nn.Sequential(nn.Identity(), network))
    assert again["whole"][1] is again["network"]


@pytest.mark.parametrize("layer", [nn.GRU(4, 3), nn.LSTM(4, 3, num_layers=2)])
def test_recurrent_layers_run_and_learn(layer):
    again, x = _back(layer=layer)["layer"], torch.ones(2, 4)
    output = again(x)[0]
    assert torch.equal(output, layer(x)[0])
    output.sum().backward()
    assert all(weight.grad is not None for weight in again.parameters())


def test_a_part_of_a_large_storage_is_pickled_alone():
    module = nn.Linear(10, 10, bias=False)
    module.weight = nn.Parameter(torch.zeros(1000, 10)[:10])
    assert len(pickle.dumps(packed({"module": module}))) < 400 + 1_000
    assert torch.equal(_back(module=module)["module"].weight, torch.zeros(10, 10))
