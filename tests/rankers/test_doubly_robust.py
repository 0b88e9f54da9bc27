"""The doubly robust correction: its labels, its model, and the rankers that take it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skultr import DLARanker, UserAwareIPSRanker
from skultr._log._clicklog import make_click_log
from skultr._torch._lists import LOSSES
from skultr.propensity._source import debias_clicks, doubly_robust_labels, examples_of
from skultr.rankers import IPSRanker, LambdaMARTRanker, RegressionEMRanker, TwoTowerRanker
from skultr.rankers._correction import modelled_relevance
from skultr.rankers._direct_method import cross_fitted_relevance, with_examinations
from skultr.rankers._propensity_ranker import PropensityRanker

from .._worlds import random_lists

#: Examination and relevance of four documents, each always shown at its own position.
EXAMINATION = np.array([1.0, 0.5, 0.1, 0.02])
RELEVANCE = np.array([0.3, 0.9, 0.6, 0.8])
#: Bound that the last two documents are below.
BOUND = 0.25


def _log(rate, impressions, propensity=EXAMINATION):
    """A read log of pages of four documents, of a query each, with some click rates."""
    n_pages = np.size(rate) // 4
    X = pd.DataFrame({"qid": np.repeat(np.arange(n_pages), 4)})
    X["session"] = X["qid"]
    X["position"] = np.tile([1, 2, 3, 4], n_pages)
    X["impressions"] = impressions
    X["propensity"] = np.tile(propensity, n_pages)
    features = np.arange(len(X), dtype=np.float32)[:, None]
    return make_click_log(X, features, np.ravel(rate))


def _labels(propensity, relevance, clip, n_draws=4_000, impressions=50):
    """Labels per impression of pages drawn anew, shape (n_draws, 4)."""
    chance = np.tile(EXAMINATION * RELEVANCE, (n_draws, 1))
    rate = np.random.default_rng(0).binomial(impressions, chance) / impressions
    log = _log(rate, impressions, propensity)
    if relevance is not None:
        relevance = np.tile(relevance, n_draws)
    found = debias_clicks(log, clip=clip, relevance=relevance)
    return found.clicks.reshape(n_draws, 4) / impressions


def _mean_error(labels):
    """Error of the mean label in standard errors; these are at least those of one click."""
    error = np.maximum(labels.std(axis=0), 1e-3) / np.sqrt(len(labels))
    return (labels.mean(axis=0) - RELEVANCE) / error


# ------------------------------------------------------------------------------ the labels
@pytest.mark.parametrize("clip", [None, BOUND, 1.0])
def test_without_relevance_labels_are_those_of_inverse_propensities(clip):
    log = _log([0.2, 0.4, 0.1, 0.0], 10.0)
    found = debias_clicks(log, clip=clip, relevance=np.zeros(4))
    np.testing.assert_array_equal(found.clicks, debias_clicks(log, clip=clip).clicks)


@pytest.mark.parametrize("clip", [None, BOUND, 1.0])
@pytest.mark.parametrize("normalize", [False, True])
def test_labels_by_the_formula_and_none_is_negative(clip, normalize):
    rate = np.array([0.2, 0.0, 0.0, 0.3])
    modelled = np.array([1.0, 0.7, 1.0, 0.4])
    log = _log(rate, 10.0)
    divisor = np.maximum(EXAMINATION, clip or 0)
    expected = 10 * (modelled + (rate - EXAMINATION * modelled) / divisor)
    if normalize:
        expected *= rate.sum() / (rate / divisor).sum()
    found = debias_clicks(log, clip=clip, normalize=normalize, relevance=modelled)
    np.testing.assert_allclose(found.clicks, expected, atol=1e-6)
    assert (found.clicks >= 0).all()
    # What says how even weights are is of the clicks, not of the model.
    assert found[1:] == debias_clicks(log, clip=clip, normalize=normalize)[1:]


def test_labels_are_click_rates_where_all_is_examined():
    rate = np.array([0.2, 0.4, 0.1, 0.0])
    log = _log(rate, 10.0, np.ones(4))
    found = debias_clicks(log, clip=0.5, relevance=RELEVANCE)
    np.testing.assert_allclose(found.clicks, 10 * rate, atol=1e-6)


def test_a_bound_that_none_is_below_leaves_no_room_for_the_model():
    log = _log([0.2, 0.4, 0.1, 0.1], 10.0)
    found = debias_clicks(log, clip=0.02, relevance=RELEVANCE)
    np.testing.assert_allclose(found.clicks, debias_clicks(log).clicks, rtol=1e-6)


def test_labels_are_unbiased_if_the_model_is_right_or_no_bound_binds():
    """A mean of independent draws is within five standard errors but for one in 10⁶."""
    right_model = _mean_error(_labels(EXAMINATION, RELEVANCE, BOUND))
    assert np.abs(right_model).max() < 5
    wrong_model = np.full(4, 0.5)
    right_divisor = _mean_error(_labels(EXAMINATION, wrong_model, None))
    assert np.abs(right_divisor).max() < 5
    # With neither, the bias of the two documents below the bound is known: (1 - o / b) (r̂ - r).
    labels = _labels(EXAMINATION, wrong_model, BOUND)
    bias = (1 - EXAMINATION / np.maximum(EXAMINATION, BOUND)) * (wrong_model - RELEVANCE)
    assert np.abs(_mean_error(labels - bias)).max() < 5
    assert np.abs(bias[2:]).min() > 0.05
    # Those of inverse propensities with the same bound lose more.
    lost = (1 - EXAMINATION / np.maximum(EXAMINATION, BOUND)) * RELEVANCE
    assert np.abs(_mean_error(_labels(EXAMINATION, None, BOUND) + lost)).max() < 5
    assert (np.abs(bias[2:]) < lost[2:]).all()


def test_a_wrong_curve_is_not_repaired_by_the_right_model():
    """Examination is not observed: what the model expects of clicks needs the curve as well."""
    told = np.array([1.0, 0.5, 0.2, 0.04])
    labels = _labels(told, RELEVANCE, BOUND)
    # r̂ + (o r - ô r̂) / b of the last two, with r̂ = r
    expected = RELEVANCE + (EXAMINATION - told) * RELEVANCE / np.maximum(told, BOUND)
    assert np.abs(_mean_error(labels - expected + RELEVANCE)).max() < 5
    assert np.abs(expected - RELEVANCE)[2:].min() > 0.05


def test_variance_with_the_right_model_is_that_of_the_bound():
    """The variance of a sample variance is about 2 σ⁴ / n, but that of few clicks is larger: for a
    Poisson mean m it is σ⁴ (2 + 1 / m) / n, with m = 50 o r at least 0.8."""
    n_draws = 4_000
    robust = _labels(EXAMINATION, RELEVANCE, BOUND, n_draws).var(axis=0)
    plain = _labels(EXAMINATION, None, None, n_draws).var(axis=0)
    chance = EXAMINATION * RELEVANCE
    noise = chance * (1 - chance) / 50
    error = np.sqrt((2 + 1 / (50 * chance)) / n_draws)
    expected_robust = noise / np.maximum(EXAMINATION, BOUND) ** 2
    expected_plain = noise / EXAMINATION**2
    assert np.all(np.abs(robust / expected_robust - 1) < 5 * error)
    assert np.all(np.abs(plain / expected_plain - 1) < 5 * error)
    # Of the document that is examined once in 50 times: 1 / 12.5² of the variance.
    assert robust[3] < plain[3] / 100


def test_expected_clicks_may_be_those_of_trust():
    """Clicks a r + b of trusting users: labels are unbiased for any model if divided by a.

    Some labels are negative. A mean of independent draws is within five standard errors but for
    one in 10⁶.
    """
    trusted = np.array([0.9, 0.5, 0.2, 0.1])
    believed = np.array([0.1, 0.05, 0.02, 0.0])
    n_draws = 4_000
    chance = np.tile(trusted * RELEVANCE + believed, n_draws)
    log = _log(np.random.default_rng(0).binomial(10, chance) / 10, 10.0)
    for relevance in (RELEVANCE, np.full(4, 0.1)):
        modelled = np.tile(relevance, n_draws)
        rate = np.tile(trusted * relevance + believed, n_draws)
        labels = doubly_robust_labels(log, modelled, rate, np.tile(1 / trusted, n_draws))
        assert labels.min() < 0
        assert np.abs(_mean_error(labels.reshape(n_draws, 4) / 10)).max() < 5


# ------------------------------------------------------------------------------ the model
def _kinds(n_queries=40, impressions=2_000.0):
    """A log of two kinds of documents, of relevance 0.2 and 0.6, in random order; its rates."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"qid": np.repeat(np.arange(n_queries), 8)})
    X["session"] = np.repeat(np.arange(2 * n_queries), 4)
    X["position"] = np.tile([1, 2, 3, 4], 2 * n_queries)
    X["kind"] = rng.permuted(np.tile([0.0, 0.0, 1.0, 1.0], (2 * n_queries, 1)), axis=1).ravel()
    X["other"] = rng.normal(size=len(X))
    X["impressions"] = impressions
    truth = 0.2 + 0.4 * X["kind"].to_numpy()
    chance = EXAMINATION[X["position"] - 1] * truth
    return X, rng.binomial(int(impressions), chance) / impressions, truth


def test_the_model_learns_from_clicks_per_examination():
    """And a click where one in a hundred looks does not count for a hundred."""
    X = pd.DataFrame({"qid": [1, 1, 1, 1], "session": [0, 0, 1, 1], "doc": [0, 1, 1, 0]})
    X["position"] = [1, 2, 1, 2]
    X["impressions"] = 100.0
    X["propensity"] = [1.0, 0.01, 1.0, 0.01]
    rate = np.array([0.5, 0.0, 0.2, 0.02])
    log = make_click_log(X, X[["doc"]].to_numpy(np.float32), rate)
    version, labels = examples_of(with_examinations(log))
    order = np.argsort(version)
    np.testing.assert_allclose(labels.label[order], [52 / 101, 20 / 101])
    np.testing.assert_allclose(labels.weight[order], 101)


def test_the_network_of_relevance_is_bounded_where_clicks_exceed_examinations():
    """One click of half an expected examination: relevance near 1 is likeliest, and no more."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"qid": np.repeat(np.arange(100), 4)})
    X["session"] = X["qid"]
    X["position"] = np.tile([1, 2, 3, 4], 100)
    X["impressions"] = 50.0
    X["propensity"] = np.tile([1.0, 0.5, 0.1, 0.01], 100)
    X["a"] = rng.normal(size=len(X))
    rate = rng.binomial(50, 0.5 * X["propensity"]) / 50
    log = make_click_log(X, X[["a"]].to_numpy(np.float32), rate)
    assert (log.clicks > log.weight * log.propensity).any()
    found = modelled_relevance(IPSRanker(random_state=0, max_epochs=20), log)
    # Nothing tells documents apart: a mean over 100 queries of four, nearly half of them of 50
    # clicks and more.
    assert found.mean() == pytest.approx(0.5, abs=0.05)


def test_no_model_has_seen_the_query_whose_relevance_it_tells():
    X, rate, _ = _kinds()
    log = make_click_log(X, X[["kind", "other"]].to_numpy(np.float32), rate)
    seen = []

    def fit(part):
        seen.append(np.unique(part.query))
        return np.bincount(part.version, minlength=part.n_versions).astype(float)

    # How often the other queries show the versions of a row: never, as all features differ.
    found = cross_fitted_relevance(log.fold(), fit, 0)
    np.testing.assert_array_equal(found, 0)
    assert len(seen) == 2
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(40))


def test_few_queries_have_one_number_and_what_is_no_probability_is_clipped():
    rate = np.array([0.3, 0.4, 0.1, 0.0])
    found = cross_fitted_relevance(_log(rate, 10.0), None, 0)
    np.testing.assert_allclose(found, rate.sum() / EXAMINATION.sum())
    X, rate, _ = _kinds()
    X["propensity"] = 1.0
    log = make_click_log(X, X[["kind", "other"]].to_numpy(np.float32), rate)
    found = cross_fitted_relevance(log, lambda part: np.linspace(-1, 2, part.n_versions), 0)
    assert found.min() == 0
    assert found.max() == 1


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize(
    "ranker",
    [
        IPSRanker(max_epochs=40),
        IPSRanker(estimator=Ridge(alpha=1e-3)),
        IPSRanker(estimator=LGBMRegressor(n_estimators=100, min_child_samples=5, verbosity=-1)),
        LambdaMARTRanker(min_child_samples=5, early_stopping=False),
    ],
    ids=["network", "Ridge", "LGBMRegressor", "LambdaMART"],
)
def test_documents_that_nobody_examined_have_the_labels_of_their_kind(ranker, monkeypatch):
    """Position 4 has 2 % examination and hardly a label of its own with a bound of 1."""
    X, rate, truth = _kinds()
    ranker = clone(ranker).set_params(
        propensity=EXAMINATION, correction="doubly_robust", clip=1.0, random_state=0
    )
    labels = _labels_of(ranker, X, rate, monkeypatch)
    below = X["position"].to_numpy() == 4
    # One number for both kinds is off by 0.2, their half distance. Trees also split where `other`
    # is extreme, and are then far off for single documents.
    error = np.sqrt(np.mean(np.square(labels - truth)[below]))
    assert error < 0.2 / 4
    plain = clone(ranker).set_params(correction="divide")
    assert _labels_of(plain, X, rate, monkeypatch)[below].max() < 0.1


def _labels_of(ranker, X, rate, monkeypatch):
    """The label of each row, by a hook at what a ranker divides."""
    found = []

    def describe(self, log, debiased):
        labels = debiased.clicks / log.weight
        # Rows of the log by their features, which are all different.
        found.append(pd.Series(labels, log.features[log.version, 1]))
        return debiased.clicks

    monkeypatch.setattr(PropensityRanker, "_describe", describe)
    ranker.fit(X, rate)
    return found[0].loc[X["other"].to_numpy(np.float32)].to_numpy()


# ------------------------------------------------------------------------------ the rankers
@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize(
    "ranker",
    [
        IPSRanker(max_epochs=3),
        IPSRanker(loss="mse", max_epochs=3),
        IPSRanker(estimator=Ridge()),
        UserAwareIPSRanker(max_epochs=3),
        LambdaMARTRanker(n_estimators=10),
        LambdaMARTRanker(n_estimators=10, debiasing="ips", naive_weight=0.5),
    ],
    ids=repr,
)
def test_without_a_bound_it_is_division(ranker):
    log, clicks = random_lists(n_sessions=600, n_queries=20)
    scores = [
        clone(ranker)
        .set_params(propensity=[1.0, 0.5, 0.05], clip=clip, correction=form, random_state=0)
        .fit(log, clicks)
        .predict(log)
        for form, clip in [("divide", None), ("doubly_robust", None), ("doubly_robust", 1.0)]
    ]
    np.testing.assert_array_equal(scores[1], scores[0])
    # Scores of few trees are small: another label moves them by a part of their range.
    assert np.abs(scores[2] - scores[0]).max() > 0.01 * np.ptp(scores[0])


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_queries", [4, 20])
def test_every_loss_takes_the_labels(loss, n_queries):
    log, clicks = random_lists(n_sessions=300, n_queries=n_queries)
    ranker = IPSRanker(
        propensity=[1.0, 0.2, 0.05],
        correction="doubly_robust",
        clip=0.5,
        loss=loss,
        max_epochs=2,
        random_state=0,
    )
    assert np.isfinite(ranker.fit(log, clicks).predict(log)).all()
    assert ranker.correction_ == "doubly_robust"


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("make", [DLARanker, RegressionEMRanker, TwoTowerRanker])
def test_rankers_that_learn_examination_take_it(make):
    log, clicks = random_lists(n_sessions=600, n_queries=20)
    settings = {"max_epochs": 2, "clip": 1.0, "random_state": 0}
    robust = make(correction="doubly_robust", **settings).fit(log, clicks)
    divided = make(correction="divide", **settings).fit(log, clicks)
    pd.testing.assert_frame_equal(robust.examination_, divided.examination_)
    assert np.abs(robust.predict(log) - divided.predict(log)).max() > 1e-4
    again = pickle.loads(pickle.dumps(robust))
    np.testing.assert_array_equal(again.predict(log), robust.predict(log))


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize("make", [IPSRanker, DLARanker])
@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_a_further_log_and_one_for_early_stopping(make):
    log, clicks = random_lists(n_sessions=600, n_queries=20)
    held_out, held_out_clicks = random_lists(n_sessions=200, n_queries=5, seed=1)
    ranker = make(correction="doubly_robust", max_epochs=2, clip=0.5, random_state=0)
    if make is IPSRanker:
        ranker.set_params(propensity=[1.0, 0.2, 0.05])
    ranker.fit(log, clicks, validation=(held_out, held_out_clicks))
    assert "valid_loss" in ranker.history_
    ranker.partial_fit(held_out, held_out_clicks)
    assert np.isfinite(ranker.predict(log)).all()
