from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from skorch.callbacks import Callback
from skorch.history import History

from skultr._torch._net import _Patience
from skultr.rankers import IPSRanker, NaiveRanker

from .._worlds import random_lists, top_k_log


@pytest.mark.parametrize("start", [1.0, -1.0])
def test_early_stopping_on_either_side_of_zero(start):
    """Losses that rise by less than the threshold do not pass for better ones."""
    net = SimpleNamespace(history=History(), verbose=0)
    stop = _Patience("valid_loss", patience=3)
    stop.on_train_begin(net)

    def train(n_epochs):
        for epoch in range(1, n_epochs + 1):
            net.history.new_epoch()
            net.history.record("epoch", epoch)
            net.history.record("valid_loss", start + 5e-5 * abs(start) * (epoch - 1))
            stop.on_epoch_end(net)

    with pytest.raises(KeyboardInterrupt):
        train(10)
    assert (stop.best_epoch_, len(net.history)) == (1, 4)


@pytest.mark.parametrize("loss", ["softmax", "pairwise", "lambda", "bce", "mse"])
def test_a_constant_is_trained_where_the_loss_determines_it(loss):
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    ranker = IPSRanker(loss=loss, propensity=curve, max_epochs=3, random_state=0)
    is_trained = ranker.fit(log, clicks).network_[1][-1].bias.any()
    assert is_trained == (loss in ("bce", "mse"))


class Weights(Callback):
    """Writes down the last bias of the network after every step, and after every epoch."""

    def __init__(self):
        self.after_steps, self.after_epochs = [], []

    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            self.after_steps.append(_last_weights(net))

    def on_epoch_end(self, net, **kwargs):
        self.after_epochs.append(_last_weights(net))


def _last_weights(net):
    return net.module_.network[1][-1].weight.detach().clone()


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_network_is_the_mean_of_those_after_each_step(early_stopping):
    """Step s weighs as much as s (s + 1), which is nearly its square."""
    log, clicks = random_lists(n_queries=12)
    seen = Weights()
    ranker = NaiveRanker(
        max_epochs=3,
        batch_size=4,
        early_stopping=early_stopping,
        random_state=0,
        net_params={"callbacks": [("seen", seen)]},
    ).fit(log, clicks)
    n_steps = len(seen.after_steps) // 3
    for n_epochs, found in enumerate(seen.after_epochs, start=1):
        step = np.arange(1, n_epochs * n_steps + 1)
        weights = torch.stack(seen.after_steps[: len(step)])
        share = torch.from_numpy(step * (step + 1) / (step * (step + 1)).sum()).float()
        torch.testing.assert_close(found, torch.tensordot(share, weights, 1))
    assert any(torch.equal(_last_weights(ranker.net_), each) for each in seen.after_epochs)


def test_training_goes_on_from_the_last_step_and_not_from_the_mean():
    log, clicks = random_lists(n_queries=12)
    settings = {"max_epochs": 3, "batch_size": 4, "random_state": 0}
    averaged, single = Weights(), Weights()
    for seen, net_params in ((averaged, {}), (single, {"callbacks__average": None})):
        net_params = {"callbacks": [("seen", seen)], **net_params}
        ranker = NaiveRanker(**settings, net_params=net_params).fit(log, clicks)
    for found, expected in zip(averaged.after_steps, single.after_steps, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(_last_weights(ranker.net_), single.after_steps[-1])
    assert not torch.equal(averaged.after_epochs[-1], single.after_epochs[-1])


@pytest.mark.parametrize(("n_queries", "n_steps"), [(75, 100), (300, 200), (1200, 400)])
def test_steps_grow_with_the_square_root_of_the_queries(n_queries, n_steps):
    """Whatever the number of lists, and the size of a batch; the whole decay stays the same."""
    feature = np.random.default_rng(0).normal(size=(2 * n_queries, 1))
    first = np.random.default_rng(1).random(n_queries) < 0.5
    clicks = np.column_stack([first, ~first]).ravel()
    qid, position = np.repeat(np.arange(n_queries), 2), np.tile([1, 2], n_queries)
    for batch_size in ("auto", 20):
        ranker = NaiveRanker(batch_size=batch_size, hidden_layer_sizes=(), random_state=0)
        net = ranker.fit(feature, clicks, qid=qid, position=position).net_
        steps = ranker.n_iter_ * -(-n_queries // net.batch_size)
        assert steps == pytest.approx(n_steps, rel=0.1)
        decayed, free = net.optimizer_.param_groups[::-1]
        assert decayed["weight_decay"] * decayed["lr"] * n_steps == pytest.approx(0.6)
        assert free["weight_decay"] == 0.0


def test_steps_are_fewer_where_features_are_many():
    rng = np.random.default_rng(0)
    qid, position = np.repeat(np.arange(60), 2), np.tile([1, 2], 60)
    first = rng.random(60) < 0.5
    clicks = np.column_stack([first, ~first]).ravel()
    epochs = [
        NaiveRanker(batch_size=60, hidden_layer_sizes=(), random_state=0)
        .fit(rng.normal(size=(120, n_features)), clicks, qid=qid, position=position)
        .n_iter_
        for n_features in (5, 20, 40, 80)
    ]
    assert epochs == [89, 89, 45, 22]


@pytest.mark.parametrize(("n_rows", "penalty"), [(90, 6 / 90 - 0.01), (600, 0.0)])
def test_few_clicks_per_feature_give_ridge_regression(n_rows, penalty):
    """Squared errors here lack the factor of a half that the penalty has."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n_rows, 6))
    clicks = (rng.random(n_rows) < 0.5).astype(float)
    qid, position = np.repeat(np.arange(n_rows // 3), 3), np.tile([1, 2, 3], n_rows // 3)
    ranker = NaiveRanker(
        loss="mse",
        hidden_layer_sizes=(),
        scale_features=False,
        optimizer="adam",
        batch_size=n_rows,
        max_epochs=1_500,
        net_params={"callbacks__average": None},
        random_state=0,
    ).fit(features, clicks, qid=qid, position=position)
    found = ranker.network_[1][-1].weight.detach().numpy()[0]
    expected = Ridge(alpha=n_rows * penalty / 2).fit(features, clicks).coef_
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_only_training_losses_have_the_penalty():
    """Early stopping asks how well clicks are explained."""
    log, clicks = random_lists(n_sessions=50, n_queries=12)
    settings = {"early_stopping": True, "max_epochs": 1, "random_state": 0}
    settings |= {"optimizer": "adam", "learning_rate": 1e-9}
    penalised, free = (
        NaiveRanker(weight_decay=decay, **settings).fit(log, clicks).history_.loc[1]
        for decay in ("auto", 0.0)
    )
    assert penalised["train_loss"] > free["train_loss"] + 0.01
    assert penalised["valid_loss"] == pytest.approx(free["valid_loss"], abs=1e-6)


def test_other_optimizers_have_no_decay_unless_it_is_given():
    log, clicks = random_lists(n_queries=12)
    for optimizer in ("adam", torch.optim.SGD):
        net = NaiveRanker(optimizer=optimizer, max_epochs=1).fit(log, clicks).net_
        assert [group["weight_decay"] for group in net.optimizer_.param_groups] == [0.0]


def test_moments_of_batches_are_averaged_as_well():
    log, clicks = random_lists(n_queries=12)
    settings = {"normalization": "batch", "max_epochs": 3, "batch_size": 4, "random_state": 0}
    averaged, single = (
        NaiveRanker(**settings, net_params=net_params).fit(log, clicks).network_[1][1]
        for net_params in ({}, {"callbacks__average": None})
    )
    assert averaged.num_batches_tracked == single.num_batches_tracked > 0
    assert not torch.equal(averaged.running_var, single.running_var)
