"""Propensities as divisors or an offset, their bound, and the share of the loss without them."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr._log._clicklog import make_click_log
from skultr._torch._lists import softmax_loss
from skultr.click_models import DCMModel
from skultr.datasets import make_ltr
from skultr.exceptions import UnstableWeightsWarning
from skultr.rankers import (
    DLARanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    RegressionEMRanker,
    TwoTowerRanker,
)
from skultr.rankers._correction import Correction, mixed_clicks
from skultr.simulation import PositionBasedUser, simulate_clicks

from .._worlds import random_lists

CURVE = 1 / np.arange(1, 21)


def _log(n_sessions, n_queries=120, production=True, eta=1.0):
    documents = make_ltr(n_queries, n_features=10, random_state=0)
    noise = np.random.default_rng(0).normal(size=len(documents))
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=20,
        scores=documents["relevance"] + noise if production else noise,
        user=PositionBasedUser(eta),
        random_state=0,
    )
    return log, clicks


def _gradient(scores, clicks, exposure=1.0):
    weight = np.broadcast_to(exposure, clicks.shape).copy()
    scores = torch.tensor(scores, requires_grad=True)
    mask = torch.ones(clicks.shape, dtype=torch.bool)
    softmax_loss(
        scores.expand(clicks.shape), torch.tensor(clicks), torch.tensor(weight), mask
    ).backward()
    return scores.grad.numpy()


# ------------------------------------------------------------------------------ the offset
def test_offset_is_right_in_expectation():
    """Over all orders, expected clicks o(k) r ask for exp(s) = r; clicks alone for another s."""
    relevance = np.array([0.9, 0.3, 0.6])
    place = np.array(list(itertools.permutations(range(3))))  # (order, document)
    served = np.array([6.0, 1, 1, 1, 1, 2])[:, None]  # most often the first order
    examination = np.array([1.0, 0.5, 0.1])[place]
    clicks = served * examination * relevance
    truth = np.log(relevance)
    gradient = _gradient(truth, clicks, served * examination)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    divided = _gradient(truth, clicks / examination)
    np.testing.assert_allclose(divided, 0, atol=1e-12)
    assert np.abs(_gradient(truth, clicks)).max() > 0.5


def test_no_click_weighs_more_than_another_in_the_offset():
    """The gradient of one click is at most 1, of a divided one up to 1 / o."""
    clicks, examination = np.array([[0.0, 0.0, 1.0]]), np.array([[1.0, 0.5, 0.001]])
    scores = np.zeros(3)
    assert np.abs(_gradient(scores, clicks, examination)).max() <= 1
    divided = _gradient(scores, clicks / examination)
    assert np.abs(divided).max() == pytest.approx(1000 * 2 / 3)


# ------------------------------------------------------------------------------ the form
@pytest.mark.parametrize(("impressions", "form"), [(50.0, "divide"), (30.0, "offset")])
@pytest.mark.parametrize("naive_weight", [0.0, 0.5])
def test_form_follows_the_clicks_per_query(impressions, form, naive_weight):
    """40 queries of four rows with 0.8 clicks per impression, all examined alike."""
    document = np.arange(160, dtype=np.float32)[:, None]
    roles = {"qid": np.repeat(np.arange(40), 4), "position": np.tile([1, 2, 3, 4], 40)}
    roles |= {"propensity": np.full(160, 0.5), "impressions": np.full(160, impressions)}
    log = make_click_log(document, document, np.full(160, 0.8), roles=roles)
    found = Correction.of(log, form="auto", least=0.05, naive_weight=naive_weight)
    assert found == Correction(form, 0.05, naive_weight)  # from 100 clicks per query on
    other = "offset" if form == "divide" else "divide"
    given = Correction.of(log, form=other, least=None, naive_weight=naive_weight)
    assert given == Correction(other, None, naive_weight)


def test_few_queries_are_corrected_as_many_are():
    log, clicks = _log(500, n_queries=8)
    ranker = IPSRanker(propensity=CURVE, max_epochs=1, random_state=0).fit(log, clicks)
    assert (ranker.correction_, ranker.clip_) == ("offset", 0.1)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_many_clicks_are_divided_by_given_and_learned_curves():
    log, clicks = _log(1_500, n_queries=20, production=False)
    log, clicks = log.assign(impressions=200.0), 200.0 * clicks
    for propensity in (CURVE, None):
        ranker = IPSRanker(propensity=propensity, max_epochs=1, random_state=0)
        assert ranker.fit(log, clicks).correction_ == "divide"
    learned = DLARanker(max_epochs=1, random_state=0).fit(log, clicks)
    assert learned._correction.form == "divide"


@pytest.mark.parametrize("settings", [{"loss": "mse"}, {"estimator": Ridge()}])
def test_offset_is_a_listwise_loss(settings):
    log, clicks = random_lists()
    settings = {"propensity": [1, 0.5, 0.25], "max_epochs": 1, **settings}
    with pytest.raises(ValueError, match="correction='offset' is a loss of the network"):
        IPSRanker(correction="offset", **settings).fit(log, clicks)
    ranker = IPSRanker(**settings).fit(log, clicks)
    assert ranker.correction_ == "divide"


def test_examination_that_follows_clicks_is_no_offset_but_its_mean_is():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="do not depend on the clicks of a page"):
        IPSRanker(propensity=DCMModel(), correction="offset", max_epochs=1).fit(log, clicks)
    ranker = UserAwareIPSRanker(propensity=DCMModel(), correction="offset", max_epochs=1)
    assert ranker.fit(log, clicks).correction_ == "offset"


# ------------------------------------------------------------------------------ the bound
@pytest.mark.parametrize(
    "ranker",
    [
        IPSRanker(correction="divide", max_epochs=3),
        IPSRanker(correction="offset", naive_weight=0.3, max_epochs=3),
        UserAwareIPSRanker(max_epochs=3),
        LambdaMARTRanker(n_estimators=10),
        LambdaMARTRanker(debiasing="ips", naive_weight=0.3, n_estimators=10),
    ],
    ids=repr,
)
def test_a_factor_of_all_propensities_changes_nothing(ranker):
    """Click rates of pages in random order are examination up to a factor."""
    log, clicks = _log(1_500, n_queries=40, production=False)
    own, rates = (
        clone(ranker).set_params(propensity=factor * CURVE, random_state=0).fit(log, clicks)
        for factor in (1.0, 1 / 16)
    )
    assert rates.clip_ == pytest.approx(own.clip_ / 16)
    np.testing.assert_allclose(rates.predict(log), own.predict(log), rtol=1e-3, atol=1e-4)


def test_the_bound_is_relative_to_the_largest_propensity_that_divides():
    X = pd.DataFrame({"qid": 1, "session": [0, 0, 1, 1], "doc": list("abba")})
    X["position"], X["f0"] = [1, 2, 1, 2], [0.0, 1.0, 1.0, 0.0]
    X["impressions"], X["propensity"] = 10.0, [0.8, 0.2, 0.8, 0.2]
    rate = [0.6, 0.1, 0.2, 0.1]
    for make, largest in ((IPSRanker, 0.8), (UserAwareIPSRanker, 0.5)):
        found = [make(estimator=Ridge(), clip=clip).fit(X, rate).clip_ for clip in (0.5, 1.0)]
        assert found == pytest.approx([largest / 2, largest])
        assert make(estimator=Ridge(), clip=None).fit(X, rate).clip_ is None


def test_a_bound_of_one_divides_all_clicks_alike():
    log, clicks = random_lists()
    settings = {"max_epochs": 3, "random_state": 0}
    naive = NaiveRanker(**settings).fit(log, clicks)
    for form in ("divide", "offset"):
        ranker = IPSRanker(propensity=[0.8, 0.4, 0.2], clip=1, correction=form, **settings)
        scores = ranker.fit(log, clicks).predict(log)
        np.testing.assert_allclose(np.ptp(scores - naive.predict(log)), 0, atol=1e-4)
        assert ranker.clipped_share_ == pytest.approx(
            clicks[log["position"] > 1].sum() / clicks.sum()
        )


# ------------------------------------------------------------------------------ the naive share
NETWORK = {"max_epochs": 3, "random_state": 0}
CORRECTED = [
    IPSRanker(propensity=CURVE),
    IPSRanker(propensity=CURVE, correction="divide"),
    IPSRanker(),
    IPSRanker(propensity=CURVE, loss="mse"),
    UserAwareIPSRanker(propensity=CURVE),
    UserAwareIPSRanker(propensity=CURVE, loss="lambda"),
]


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("ranker", CORRECTED, ids=repr)
def test_all_naive_is_the_naive_ranker_and_none_the_default(ranker, early_stopping):
    log, clicks = random_lists(n_queries=6)
    settings = {**NETWORK, "early_stopping": early_stopping}
    naive = NaiveRanker(loss=ranker.loss, estimator=ranker.estimator, **settings)
    ranker = clone(ranker).set_params(**settings)
    scores = [
        clone(ranker).set_params(naive_weight=weight).fit(log, clicks).predict(log)
        for weight in (0.0, 0.5, 1.0)
    ]
    np.testing.assert_array_equal(scores[2], naive.fit(log, clicks).predict(log))
    np.testing.assert_array_equal(scores[0], ranker.fit(log, clicks).predict(log))
    apart = [np.abs(each - scores[1]).max() for each in (scores[0], scores[2])]
    assert min(apart) > 0


@pytest.mark.parametrize("loss", ["softmax", "lambda"])
@pytest.mark.parametrize("debiasing", ["user-aware", "ips"])
def test_trees_that_are_all_naive_are_those_without_debiasing(debiasing, loss):
    # With a quarter of the sessions the trees of both ends differ by noise alone.
    log, clicks = _log(6_000, n_queries=40, production=False)
    settings = {"n_estimators": 40, "early_stopping": False, "loss": loss, "random_state": 0}
    none = LambdaMARTRanker(debiasing="none", **settings).fit(log, clicks).predict(log)
    settings |= {"debiasing": debiasing, "propensity": CURVE}
    default = LambdaMARTRanker(**settings).fit(log, clicks).predict(log)
    corrected, mixed, naive = (
        LambdaMARTRanker(naive_weight=weight, **settings).fit(log, clicks).predict(log)
        for weight in (0.0, 0.5, 1.0)
    )
    np.testing.assert_array_equal(naive, none)
    np.testing.assert_array_equal(corrected, default)
    closeness = [np.corrcoef(mixed, each)[0, 1] for each in (corrected, naive)]
    assert min(closeness) > np.corrcoef(corrected, naive)[0, 1]


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("make", [DLARanker, RegressionEMRanker, TwoTowerRanker])
def test_rankers_that_learn_examination_can_be_all_naive(make):
    """The curve is learned all the same; scores order documents as the naive ranker does."""
    log, clicks = random_lists(n_sessions=600)
    naive = NaiveRanker(**NETWORK).fit(log, clicks)
    ranker = make(naive_weight=1, **NETWORK).fit(log, clicks)
    np.testing.assert_array_equal(ranker.rank(log), naive.rank(log))
    default = make(**NETWORK).fit(log, clicks)
    np.testing.assert_array_equal(
        ranker.examination_["examination"], default.examination_["examination"]
    )
    assert np.abs(ranker.predict(log) - default.predict(log)).max() > 0


def _read(n_shown, n_queries):
    """A read log of pages of so many rows with propensities, and clicks that are all rates."""
    frame, _ = random_lists(n_sessions=60, n_queries=n_queries, n_shown=n_shown)
    rng = np.random.default_rng(0)
    frame["position"] = rng.integers(1, 4, len(frame)) if n_shown == 1 else frame["position"]
    frame["propensity"] = np.array([1.0, 0.5, 0.2])[frame["position"] - 1]
    rate = rng.random(len(frame))
    features = frame[["f0", "f1", "f2"]].to_numpy(np.float32)
    return make_click_log(frame, features, rate).fold()


def _loss(target, log, scores):
    """Cross-entropy of where the clicks of each list fell, as the network would be told."""
    log = target.on(log, 1.0)
    logits = scores[log.version] + np.log(log.weight)
    total = np.logaddexp.reduceat(logits, log.offsets[:-1])
    return -float(log.clicks @ (logits - np.repeat(total, np.diff(log.offsets))))


@pytest.mark.parametrize("n_queries", [1, 5])
@pytest.mark.parametrize("n_shown", [3, 1])
@pytest.mark.parametrize("naive_weight", [0.25, 0.9])
def test_loss_of_a_mixture_is_the_mean_of_both(naive_weight, n_shown, n_queries):
    """Also where pages of one row are compared with each other."""
    log = _read(n_shown, n_queries)
    corrected, mixed, naive = (
        Correction("offset", 0.3, weight).target(log) for weight in (0.0, naive_weight, 1.0)
    )
    for seed in range(3):
        scores = np.random.default_rng(seed).normal(size=log.n_versions)
        of_both = [_loss(target, log, scores) for target in (corrected, naive)]
        expected = (1 - naive_weight) * of_both[0] + naive_weight * of_both[1]
        assert _loss(mixed, log, scores) == pytest.approx(expected, rel=1e-5)
        assert of_both[0] != pytest.approx(of_both[1], rel=1e-3)


def test_loss_of_a_mixture_by_hand():
    """One page of two rows, of which the second is examined half as often, and scores of 0."""
    X = pd.DataFrame({"qid": 1, "session": 0, "position": [1, 2], "propensity": [1.0, 0.5]})
    log = make_click_log(X, np.array([[0.0], [1.0]], np.float32), np.array([0.0, 1.0]))
    target = Correction("offset", None, 0.25).target(log)
    expected = 0.75 * np.log(3) + 0.25 * np.log(2)  # P(second) = 0.5 / 1.5 and 1 / 2
    assert _loss(target, log, np.zeros(2)) == pytest.approx(expected)


def test_clicks_of_a_mixture_are_shares_of_equal_sums():
    clicks, divided = np.array([1.0, 0.0, 3.0]), np.array([1.0, 0.0, 15.0])
    half = mixed_clicks(clicks, divided, 0.5)
    np.testing.assert_allclose(half / half.sum(), (clicks / 4 + divided / 16) / 2)
    assert clicks.sum() < half.sum() < divided.sum()
    np.testing.assert_array_equal(mixed_clicks(clicks, divided, 1.0), clicks)
    np.testing.assert_array_equal(mixed_clicks(clicks, divided, 0.0), divided)
    np.testing.assert_array_equal(mixed_clicks(0 * clicks, 0 * divided, 0.5), 0 * clicks)


@pytest.mark.parametrize("value", [-0.1, 1.1, None, "auto"])
@pytest.mark.parametrize("make", [IPSRanker, LambdaMARTRanker, DLARanker])
def test_a_share_that_is_none_is_refused(make, value):
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="'naive_weight' parameter"):
        make(naive_weight=value).fit(log, clicks)


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
# ------------------------------------------------------------------------------ the weights
def test_small_effective_sample_is_noticed():
    """Two clicks per query with propensities 1 and 0.1: Σw = 11, Σw² = 101, 1.2 per query."""
    rows = pd.DataFrame({"qid": np.repeat(np.arange(30), 2), "position": [1, 2] * 30})
    rows["f0"] = np.linspace(0, 1, 60)
    settings = {"propensity": [1.0, 0.1], "estimator": Ridge()}
    with pytest.warns(UnstableWeightsWarning, match=r"60 clicks carry .* of 36, 1\.2 per query"):
        ranker = IPSRanker(**settings).fit(rows, np.ones(60))
    assert ranker.effective_sample_size_ == pytest.approx(30 * 11**2 / 101)
    rows["impressions"] = 10.0  # 12 effective clicks per query
    IPSRanker(**settings).fit(rows, np.full(60, 10))
    # As an offset, propensities weigh nothing.
    offset = {"correction": "offset", "clip": None, "max_epochs": 1, "early_stopping": False}
    IPSRanker(propensity=[1.0, 0.1], **offset).fit(rows.drop(columns="impressions"), np.ones(60))
