"""Two towers on rows that are weighted by the inverse of the logging policy."""

import itertools

import numpy as np
import pandas as pd
import pytest

from skultr._log._clicklog import make_click_log
from skultr._torch._net import NeuralEstimator
from skultr.rankers import TwoTowerRanker
from skultr.rankers import _policy_weights as weights

from .._worlds import FEATURES, random_lists, small_log

SHORT = {"max_epochs": 2, "random_state": 0}


def _orders(served):
    """A read log of three documents in their six orders, served so often each."""
    orders = list(itertools.permutations(range(3)))
    X = pd.DataFrame({"doc": np.ravel(orders), "qid": 1})
    X["session"] = np.repeat(np.arange(6), 3)
    X["position"] = np.tile([1, 2, 3], 6)
    X["impressions"] = np.repeat(np.asarray(served, dtype=float), 3)
    features = X[["doc"]].to_numpy(np.float32)
    return make_click_log(X, features, np.full(len(X), 0.5))


def _share(log):
    share = np.bincount(log.bias, log.weight)
    return (share / share.sum())[log.bias]


def test_chance_is_that_of_counts_and_of_ten_impressions_of_the_prior():
    log = _orders([60, 0.5, 0.5, 0.5, 0.5, 38])  # of the first document: 60.5 times at position 1
    found = weights.chance_of_factor(log, np.full(log.n_rows, 0.25))
    first = (log.doc == 0) & (log.position == 1)
    # But for the impression whose chance it is.
    np.testing.assert_allclose(found[first & (log.weight == 60)], (59.5 + 2.5) / (99 + 10))
    np.testing.assert_allclose(found[first & (log.weight == 0.5)], (60 + 2.5) / (99.5 + 10))


def test_shuffled_pages_stay_as_they_are(monkeypatch):
    log = _orders([20] * 6)
    monkeypatch.setattr(weights, "chance_by_features", lambda log, ranker: _share(log))
    found = weights.weighted_by_policy(log, TwoTowerRanker())
    np.testing.assert_allclose(found.weight, log.weight)
    np.testing.assert_allclose(found.clicks, log.clicks)


def test_pages_of_other_lengths_stay_as_they_are(monkeypatch):
    """Each document is shown once, and its own impression tells nothing of its chance."""
    lengths = np.tile([2, 10], 50)
    X = pd.DataFrame({"qid": np.repeat(np.arange(100), lengths)})
    X["session"] = X["qid"]
    X["position"] = X.groupby("qid").cumcount() + 1
    X["a"] = np.arange(len(X))
    log = make_click_log(X, X[["a"]].to_numpy(np.float32), np.full(len(X), 0.5))
    monkeypatch.setattr(weights, "chance_by_features", lambda log, ranker: _share(log))
    found = weights.weighted_by_policy(log, TwoTowerRanker())
    np.testing.assert_allclose(found.weight, log.weight)


def test_a_further_log_may_have_one_factor():
    log, clicks = random_lists(n_sessions=60, n_queries=3)
    ranker = TwoTowerRanker(policy_weights=True, link="additive", **SHORT).fit(log, clicks)
    top = (log["position"] == 1).to_numpy()
    before = ranker.predict(log)
    ranker.partial_fit(log[top], clicks[top])
    assert np.isfinite(ranker.predict(log)).all()
    assert (ranker.predict(log) != before).any()


def test_features_do_not_tell_of_a_factor_that_the_sample_lacks(monkeypatch):
    lengths = np.tile([2, 2, 3], 20)
    X = pd.DataFrame({"qid": np.repeat(np.arange(60), lengths)})
    X["session"] = X["qid"]
    X["position"] = X.groupby("qid").cumcount() + 1
    X["a"] = np.arange(len(X)) % 7
    log = make_click_log(X, X[["a"]].to_numpy(np.float32), np.full(len(X), 0.5))
    sample = log.select_queries(lengths == 2)
    monkeypatch.setattr(type(log), "sample", lambda self: sample)
    found = weights.chance_by_features(log, NeuralEstimator(random_state=0, max_epochs=1))
    third = log.bias == 2
    np.testing.assert_allclose(found[third], 20 / 140)
    assert (found[~third] != _share(log)[~third]).any()


def test_weighted_documents_have_the_same_factors(monkeypatch):
    """With many impressions the prior does not matter, and no weight is at its bound."""
    log = _orders([40_000, 9_000, 9_000, 12_000, 10_000, 20_000])
    monkeypatch.setattr(weights, "chance_by_features", lambda log, ranker: _share(log))
    found = weights.weighted_by_policy(log, TwoTowerRanker())
    shown = np.zeros((3, 3))
    np.add.at(shown, (found.doc, found.bias), found.weight)
    np.testing.assert_allclose(shown / shown.sum(axis=1, keepdims=True), 1 / 3, rtol=1e-3)
    assert found.weight.sum() == pytest.approx(log.weight.sum())
    np.testing.assert_allclose(found.clicks / found.weight, 0.5)


@pytest.mark.parametrize(("ratio", "kept"), [(9.9, 9.9), (10.1, 10.0), (1e6, 10.0)])
def test_no_row_weighs_more_than_ten_before_scaling(monkeypatch, ratio, kept):
    """One row is so many times less likely under the policy than its factor is on average."""
    log = _orders([10] * 6)
    share = _share(log)
    rare = np.arange(log.n_rows) == 0
    chance = np.where(rare, share / ratio, share)
    monkeypatch.setattr(weights, "chance_of_factor", lambda log, prior: chance)
    monkeypatch.setattr(weights, "chance_by_features", lambda log, ranker: share)
    found = weights.weighted_by_policy(log, TwoTowerRanker())
    weight = found.weight / log.weight
    np.testing.assert_allclose(weight[rare] / weight[~rare], kept)


@pytest.mark.parametrize(("n_factors", "is_predicted"), [(50, True), (51, False)])
def test_features_predict_at_most_fifty_factors(monkeypatch, n_factors, is_predicted):
    rng = np.random.default_rng(0)
    page = pd.DataFrame({"f0": rng.normal(size=n_factors), "qid": 1})
    page["position"] = np.arange(n_factors) + 1
    X = pd.concat([page, page.iloc[::-1].assign(qid=2)])
    log = make_click_log(X, X[["f0"]].to_numpy(np.float32), np.full(len(X), 0.5))
    asked = []

    def _fit_policy(learner, log):
        asked.append(log.n_rows)
        raise StopIteration

    monkeypatch.setattr(weights, "fit_policy", _fit_policy)
    if is_predicted:
        with pytest.raises(StopIteration):
            weights.chance_by_features(log, NeuralEstimator(random_state=0))
    else:
        found = weights.chance_by_features(log, NeuralEstimator(random_state=0))
        np.testing.assert_allclose(found, _share(log))
    assert bool(asked) == is_predicted


def test_features_tell_the_factor_where_they_decided_the_order():
    log, clicks = small_log(n_queries=100, n_documents=4, n_sessions=1)
    log = log.sort_values(["qid", "f0"], ascending=[True, False])
    log["position"] = np.tile([1, 2, 3, 4], 100)
    read = make_click_log(log, log[FEATURES].to_numpy(np.float32), clicks)
    found = weights.chance_by_features(read, NeuralEstimator(random_state=0))
    # By chance a quarter.
    assert found.mean() > 0.5
    assert ((found > 0) & (found <= 1)).all()


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("settings", [{"link": "additive"}, {"examination": "network"}, {}])
def test_ranker_with_weights(settings):
    log, clicks = random_lists(n_sessions=600, n_queries=10)
    # The first document of a query is mostly at the top.
    keep = (log["position"] == 1) | (log["doc"] % 4 != 0) | (np.arange(len(log)) % 5 == 0)
    log, clicks = log[keep], clicks[keep]
    plain = TwoTowerRanker(**SHORT, **settings).fit(log, clicks)
    ranker = TwoTowerRanker(policy_weights=True, **SHORT, **settings).fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()
    if settings:
        assert np.abs(ranker.predict(log) - plain.predict(log)).max() > 1e-6
    counts = ["impressions", "clicks"]
    pd.testing.assert_frame_equal(ranker.examination_[counts], plain.examination_[counts])


def test_of_one_factor_there_is_nothing_to_weigh():
    log, _ = random_lists(n_sessions=300, n_queries=10, n_shown=1)
    clicks = (np.arange(len(log)) % 3 == 0).astype(float)
    scores = [
        TwoTowerRanker(link="additive", policy_weights=each, **SHORT).fit(log, clicks).predict(log)
        for each in (False, True)
    ]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4, atol=1e-5)
