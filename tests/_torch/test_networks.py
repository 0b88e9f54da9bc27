import numpy as np
import pytest
import torch

from skultr._torch import _networks
from skultr._torch._networks import ScaledFeatures, ScaleFeatures, scoring_network


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


@pytest.mark.parametrize("part_values", [7, 100, 1 << 18])
def test_statistics_in_one_pass_are_those_of_two(part_values, monkeypatch):
    monkeypatch.setattr(_networks, "_PART_VALUES", part_values)
    rng = np.random.default_rng(0)
    features = rng.lognormal(0, 3, (101, 3)).astype(np.float32) * [1, -1, 1e4]
    features[:, 2] += 1e6  # the mean is much larger than the deviation
    features = features.astype(np.float32)
    features.flags.writeable = False  # as a memory map
    logs = np.sign(features) * np.log1p(np.abs(features.astype(float)))
    scaling = ScaleFeatures(features)
    np.testing.assert_allclose(scaling.center, logs.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scaling.scale, logs.std(axis=0), rtol=1e-4)


def test_scaling_leaves_its_input_as_it_is():
    features = torch.randn(20, 2)
    before = features.clone()
    ScaleFeatures(features.numpy())(features)
    assert torch.equal(features, before)


def test_parts_of_scaled_features_are_scaled():
    scaling = torch.nn.Identity()
    features = ScaledFeatures.of(np.zeros((5, 2), dtype=np.float32), scaling)
    for part in (features[1:3], features[np.array([0, 4])], features.copy()):
        assert part.scaling is scaling
