import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from skorch.callbacks import Callback
from skorch.history import History

from skultr import DLARanker
from skultr._torch._net import _Patience
from skultr.rankers import (
    AffineRanker,
    IPSRanker,
    NaiveRanker,
    PairDebiasRanker,
    PRSRanker,
    RegressionEMRanker,
    TwoTowerRanker,
)

from .._worlds import random_lists, top_k_log

#: Rankers whose last training has the penalty.
PENALISED = [
    NaiveRanker(),
    NaiveRanker(loss="pairwise"),
    NaiveRanker(loss="bce"),
    IPSRanker(propensity=[1.0, 0.5, 0.3]),
    DLARanker(),
    RegressionEMRanker(),
    TwoTowerRanker(),
    PairDebiasRanker(),
]
#: Those whose trainings have none.
FREE = [
    AffineRanker(),
    PRSRanker(propensity=[1.0, 0.5, 0.3]),
]


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


def test_few_clicks_per_feature_give_ridge_regression():
    """Squared errors here lack the factor of a half that the penalty has."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, 4))
    clicks = np.repeat([1.0, 0.0], 45)
    qid, position = np.repeat(np.arange(30), 3), np.tile([1, 2, 3], 30)
    ranker = NaiveRanker(
        loss="mse",
        hidden_layer_sizes=(),
        scale_features=False,
        optimizer="adam",
        batch_size=90,
        max_epochs=1_500,
        net_params={"callbacks__average": None},
        random_state=0,
    ).fit(features, clicks, qid=qid, position=position)
    found = ranker.network_[1][-1].weight.detach().numpy()[0]
    penalty = (4 / 45 - 1 / 100) * 45 / 90
    expected = Ridge(alpha=90 * penalty / 2).fit(features, clicks).coef_
    np.testing.assert_allclose(found, expected, atol=1e-5)
    without = Ridge(alpha=0.0).fit(features, clicks).coef_
    assert np.abs(without - expected).max() > 1e-3


# Some 30 clicks per feature, and 1,000.
@pytest.mark.parametrize(("n_sessions", "has_penalty"), [(60, True), (2_000, False)])
@pytest.mark.parametrize("ranker", PENALISED, ids=lambda ranker: type(ranker).__name__)
def test_rankers_have_the_penalty_where_clicks_are_few(ranker, n_sessions, has_penalty):
    """The first loss is larger by half of the squared weights of all layers, times the factor."""
    log, clicks = random_lists(n_sessions=n_sessions, n_queries=12)
    settings = {"max_epochs": 1, "batch_size": 10_000, "learning_rate": 1e-9, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, without = (
            clone(ranker).set_params(**settings, weight_decay=decay).fit(log, clicks)
            for decay in ("auto", 0.0)
        )
    more = found.history_["train_loss"][1] - without.history_["train_loss"][1]
    assert (found.net_.penalty > 0) == has_penalty
    layers = [each for each in without.net_.module_.network.parameters() if each.ndim > 1]
    squares = sum(float(each.detach().square().sum()) for each in layers)
    assert more == pytest.approx(found.net_.penalty / 2 * squares, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("ranker", FREE, ids=lambda ranker: type(ranker).__name__)
def test_rankers_for_which_it_gained_nothing_have_no_penalty(ranker):
    log, clicks = random_lists(n_sessions=60, n_queries=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(ranker).set_params(max_epochs=1, random_state=0).fit(log, clicks)
    assert fitted.net_.penalty == 0


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
def test_the_penalty_does_not_depend_on_units():
    """Neither on that of the propensities, nor on that of the sample weights."""
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=60)
    settings = {"correction": "divide", "clip": None, "max_epochs": 2, "random_state": 0}
    ranker = IPSRanker(propensity=curve, **settings).fit(log, clicks)
    assert ranker.net_.penalty > 0
    scores = ranker.predict(log)
    for factor, weight in ((0.1, 1.0), (1.0, 1_000.0)):
        other = IPSRanker(propensity=factor * curve, **settings)
        other.fit(log, clicks, sample_weight=np.full(len(log), weight))
        np.testing.assert_allclose(other.predict(log), scores, rtol=1e-4, atol=1e-5)


def test_a_further_log_has_no_penalty():
    """Weights that were learned are expected to stay where they are, not to be 0."""
    log, clicks = random_lists(n_sessions=60, n_queries=12)
    ranker = NaiveRanker(max_epochs=1, random_state=0).fit(log, clicks)
    assert ranker.net_.penalty > 0
    assert ranker.partial_fit(log, clicks).net_.penalty == 0


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


@pytest.mark.parametrize("verbose", [0, 1])
def test_losses_go_to_a_sink_of_the_user_whatever_verbose_says(verbose):
    log, clicks = random_lists(n_queries=12)
    lines = []
    net_params = {"callbacks__print_log__sink": lines.append}
    NaiveRanker(max_epochs=2, verbose=verbose, net_params=net_params).fit(log, clicks)
    assert any("train_loss" in line for line in lines)


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
