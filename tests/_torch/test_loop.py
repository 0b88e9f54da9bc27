import pickle
from itertools import chain
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping
from torch.utils.data import DataLoader, Dataset

from skultr._torch import _net
from skultr._torch._net import BatchLoader, ClipGradients, ListNet, as_is
from skultr._torch._networks import global_stream
from skultr.rankers import CLDRanker, DLARanker, NaiveRanker, RegressionEMRanker, TwoTowerRanker

from .._worlds import random_lists, small_log, top_k_log

SETTINGS = {"max_epochs": 3, "batch_size": 4, "random_state": 0}


class Numbers(Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return torch.as_tensor(indices).tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_those_of_a_plain_loader(shuffle):
    def epochs(loader, **settings):
        torch.manual_seed(0)
        batches = loader(Numbers(), batch_size=5, shuffle=shuffle, **settings)
        return [list(batches), list(batches)], torch.rand(())

    assert len(BatchLoader(Numbers(), 5)) == len(list(BatchLoader(Numbers(), 5)))
    (ours, stream), (plain, other) = epochs(BatchLoader), epochs(DataLoader, collate_fn=as_is)
    assert ours == plain
    assert (ours[0] != ours[1]) == shuffle
    assert stream == other  # what comes after the training is drawn alike


@pytest.mark.parametrize("ranker", [NaiveRanker, DLARanker, RegressionEMRanker])
def test_loop_gives_the_model_and_history_of_skorchs_own(ranker):
    log, clicks = random_lists(n_queries=12)
    ours = ranker(**SETTINGS, dropout=0.2).fit(log, clicks)
    with (
        mock.patch.object(ListNet, "notify", NeuralNet.notify),
        mock.patch.object(_net, "own_stream", lambda seed: global_stream(seed, "cpu")),
        mock.patch.object(_net, "ClipGradients", GradientNormClipping),
    ):
        loader = {"iterator_train": DataLoader}
        plain = ranker(**SETTINGS, dropout=0.2, net_params=loader).fit(log, clicks)
    np.testing.assert_array_equal(ours.predict(log), plain.predict(log))
    histories = [ours.net_.history.to_list(), plain.net_.history.to_list()]
    for epoch in chain(*histories):
        del epoch["dur"]
    assert histories[0] == histories[1]


class Listener(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def on_batch_begin(self, net, batch=None, training=False, **kwargs):
        self.told.append(("begin", training, len(batch[0])))

    def on_grad_computed(self, net, named_parameters, **kwargs):
        names = [name for name, _ in named_parameters]
        assert names == [name for name, _ in net.module_.named_parameters()]
        self.told.append(("gradient", True, None))

    def on_batch_end(self, net, batch=None, training=False, loss=None, y_pred=None, **kwargs):
        prefix = "train" if training else "valid"
        assert net.history[-1, "batches", -1, f"{prefix}_loss"] == loss.item()
        assert len(y_pred) == len(batch[0])
        self.told.append(("end", training, len(batch[0])))


def test_callbacks_are_told_of_every_batch():
    _, log, clicks, _ = top_k_log(n_queries=30, n_sessions=400)
    listener = Listener()
    net_params = {"callbacks": [("listener", listener)]}
    ranker = NaiveRanker(**SETTINGS, early_stopping=True, net_params=net_params)
    ranker.fit(log, clicks)
    told = listener.told
    history = ranker.net_.history
    n_train, n_valid = (
        sum(epoch[f"{name}_batch_count"] for epoch in history) for name in ("train", "valid")
    )
    for what in ("begin", "end"):
        assert sum(each[:2] == (what, True) for each in told) == n_train
        assert sum(each[:2] == (what, False) for each in told) == n_valid
    assert sum(each[0] == "gradient" for each in told) == n_train
    assert [each[0] for each in told[:3]] == ["begin", "gradient", "end"]


def test_callbacks_that_ignore_batches_are_not_called_for_them():
    log, clicks = small_log()
    with mock.patch.object(Callback, "on_batch_end", autospec=True) as told:
        NaiveRanker(**SETTINGS, net_params={"callbacks": [Callback()]}).fit(log, clicks)
    told.assert_not_called()


@pytest.mark.parametrize(
    "net_params",
    [
        {"optimizer": torch.optim.RMSprop},
        {"optimizer__foreach": True},
        {"optimizer__fused": False},
        {"optimizer__betas": (0.5, 0.9)},
        {"callbacks__clip": None},
        {"callbacks__clip__gradient_clip_value": 0.01},
        {"iterator_train__drop_last": True, "iterator_train__shuffle": False},
        {"iterator_train": DataLoader},
        {"iterator_train__num_workers": 1},
        {"iterator_train__sampler": [3, 1, 2], "iterator_train__shuffle": False},
    ],
)
def test_net_params_reach_the_net(net_params):
    _, log, clicks, _ = top_k_log(n_queries=20, n_sessions=200)
    settings = {**SETTINGS, "early_stopping": False}
    ranker = NaiveRanker(**settings, net_params=net_params).fit(log, clicks)
    plain = NaiveRanker(**settings).fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()
    same = {
        "optimizer__foreach",
        "optimizer__fused",
        "iterator_train",
        "iterator_train__num_workers",
    }
    same |= {"callbacks__clip"}  # this log has small gradients
    np.testing.assert_equal(
        np.allclose(ranker.predict(log), plain.predict(log), rtol=1e-3, atol=1e-4),
        not net_params.keys().isdisjoint(same),
    )


class Twice(torch.optim.SGD):
    """Evaluates the loss twice in a step, as line searches do."""

    def step(self, closure=None):
        closure()
        return super().step(closure)


def test_optimizers_that_evaluate_the_loss_themselves():
    log, clicks = small_log()
    listener = Listener()
    ranker = NaiveRanker(
        **SETTINGS,
        early_stopping=False,
        optimizer=Twice,
        net_params={"callbacks": [("listener", listener)]},
    ).fit(log, clicks)
    told = [each[0] for each in listener.told]
    assert told.count("gradient") == 2 * told.count("begin")
    assert np.isfinite(ranker.history_).all(axis=None)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": torch.optim.LBFGS},
        {"optimizer": torch.optim.Rprop},
        {"net_params": {"optimizer": torch.optim.Rprop}},
    ],
)
def test_optimizers_without_decay(settings):
    log, clicks = small_log()
    assert np.isfinite(NaiveRanker(**SETTINGS, **settings).fit(log, clicks).predict(log)).all()
    with pytest.raises(TypeError, match="weight_decay"):
        NaiveRanker(**SETTINGS, **settings, weight_decay=0.1).fit(log, clicks)


class PassesOn(torch.optim.AdamW):
    def __init__(self, params, **others):
        super().__init__(params, **others)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, PassesOn])
def test_weight_decay_replaces_the_default_of_the_optimizer(optimizer):
    log, clicks = small_log()
    ranker = NaiveRanker(**SETTINGS, optimizer=optimizer).fit(log, clicks)
    assert ranker.net_.optimizer_.param_groups[0]["weight_decay"] == 0.0


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
@pytest.mark.filterwarnings("ignore:The log does not determine", "ignore:The position determines")
@pytest.mark.parametrize(("n_lists", "size"), [(7, 4), (20, 4), (30, 6), (99, 8)])
def test_a_step_has_more_lists_in_a_large_log_and_is_longer(n_lists, size, monkeypatch):
    for name, value in {"_STEPS": 5, "_LEAST_LISTS": 4, "_MOST_LISTS": 8}.items():
        monkeypatch.setattr(_net, name, value)
    place = np.tile([1, 2], n_lists)
    X = pd.DataFrame(
        {
            "qid": np.arange(2 * n_lists) // 2,
            "position": place,
            "feature": np.sin(np.arange(2 * n_lists)),
        }
    )
    settings = {"early_stopping": False, "random_state": 0, "max_epochs": 1}

    def steps(ranker):
        net = ranker.fit(X, place == 1).net_
        return net.batch_size, sorted({group["lr"] for group in net.optimizer_.param_groups})

    found, rates = steps(RegressionEMRanker(**settings))
    assert (found, rates) == (size, pytest.approx([0.003 * (size / 4) ** 0.5]))
    found, rates = steps(TwoTowerRanker(**settings, examination="network"))
    assert (found, rates) == (size, pytest.approx([r * (size / 4) ** 0.5 for r in (0.003, 0.05)]))
    assert steps(NaiveRanker(**settings, batch_size=3)) == (3, [0.003])
    assert steps(NaiveRanker(**settings, batch_size=np.int64(3))) == (3, [0.003])
    assert steps(NaiveRanker(**settings, net_params={"batch_size": 3})) == (3, [0.003])
    own = TwoTowerRanker(**settings, examination="network", net_params={"lr": 0.1})
    assert steps(own) == (size, [0.05, 0.1])


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
def test_parameters_without_a_step_size_of_their_own_have_that_of_net_params():
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=200)
    ranker = CLDRanker(
        propensity=curve, gamma=0.1, loss="pointwise", net_params={"lr": 0.1}, max_epochs=1
    ).fit(log, clicks)
    assert {group["lr"] for group in ranker.net_.optimizer_.param_groups} == {0.1}


def test_a_fitted_net_remembers_no_epoch():
    log, clicks = small_log()
    net = NaiveRanker(**SETTINGS).fit(log, clicks).net_
    assert not net._listeners
    again = pickle.loads(pickle.dumps(net))
    assert again.history.to_list() == net.history.to_list()


@pytest.mark.parametrize("norm_type", [1, 2, "inf"])
@pytest.mark.parametrize("size", [0.01, 100.0])
def test_gradients_are_clipped_as_by_torch(norm_type, size):
    def clipped(callback):
        torch.manual_seed(0)
        parameters = [("a", torch.zeros(3, 2)), ("b", torch.zeros(4)), ("unused", torch.zeros(2))]
        for _, parameter in parameters[:2]:
            parameter.grad = size * torch.randn(parameter.shape)
        callback(5.0, gradient_clip_norm_type=norm_type).on_grad_computed(None, parameters)
        return [parameter.grad for _, parameter in parameters[:2]]

    for ours, theirs in zip(clipped(ClipGradients), clipped(GradientNormClipping), strict=True):
        assert torch.equal(ours, theirs)
