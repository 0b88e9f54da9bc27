import pytest
import torch

from skultr._torch._networks import ScaleFeatures, scoring_network


def test_linear_without_hidden_layers():
    network = scoring_network(3, hidden_layer_sizes=())
    assert [type(layer).__name__ for layer in network] == ["Linear"]


@pytest.mark.parametrize(
    ("normalization", "name"), [("layer", "LayerNorm"), ("batch", "BatchNorm1d")]
)
def test_layers(normalization, name):
    network = scoring_network(
        3, 2, hidden_layer_sizes=(4, 5), dropout=0.1, normalization=normalization
    )
    block = ["Linear", name, "ELU", "Dropout"]
    assert [type(layer).__name__ for layer in network] == [*block, *block, "Linear"]
    assert network(torch.zeros(7, 3)).shape == (7, 2)


def test_scaling_tames_tails_and_constants():
    column = torch.logspace(-3, 9, 200)
    features = torch.stack([column, -column, torch.full((200,), 1e6), torch.zeros(200)], dim=1)
    scaled = ScaleFeatures(features.numpy())(features)
    assert scaled.abs().max() <= 8
    torch.testing.assert_close(scaled[:, :2].mean(dim=0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled[:, 2:], torch.zeros(200, 2), atol=1e-3, rtol=0)


def test_scaling_keeps_order():
    features = torch.randn(100, 1) * 100
    scaled = ScaleFeatures(features.numpy())(features).squeeze()
    assert (scaled.argsort() == features.squeeze().argsort()).all()
