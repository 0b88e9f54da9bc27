"""Propensities as divisors or as an offset, and the choice between them by held-out clicks."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr._log._clicklog import make_click_log
from skultr._torch._lists import softmax_loss
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning, UnstableWeightsWarning
from skultr.metrics import IPSScorer
from skultr.propensity import relevance_labels
from skultr.rankers import (
    AffineRanker,
    DLARanker,
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    TwoTowerRanker,
    VectorizationRanker,
    _evidence,
)
from skultr.rankers._evidence import Confirmation, HeldOut
from skultr.rankers._ips import Correction, best_correction
from skultr.simulation import DeterministicPolicy, PositionBasedUser, simulate_clicks

from .._worlds import FEATURES, random_lists

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


# ------------------------------------------------------------------------------ the choice
def test_equal_propensities_leave_no_choice():
    log, clicks = random_lists()
    settings = {"max_epochs": 3, "random_state": 0}
    naive = NaiveRanker(**settings).fit(log, clicks)
    for propensity in ([1.0] * 3, [0.5] * 3):
        ips = IPSRanker(propensity=propensity, **settings).fit(log, clicks)
        assert (ips.correction_, ips.clip_) == ("divide", None)
        assert not hasattr(ips, "choice_")
        np.testing.assert_array_equal(ips.predict(log), naive.predict(log))


@pytest.mark.parametrize("make", [IPSRanker, UserAwareIPSRanker, LambdaMARTRanker])
def test_a_right_curve_is_confirmed(make):
    log, clicks = _log(6_000, production=False)
    ranker = make(propensity=CURVE, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClickDataWarning)
        ranker.fit(log, clicks)
    loss, error = ranker.choice_["loss"], ranker.choice_["standard_error"]
    assert loss["naive"] - loss["unbounded"] > 2 * error["unbounded"]
    assert ranker.clip_ is None
    if make is LambdaMARTRanker:
        assert ranker.debiasing_ == "user-aware"
    else:
        assert ranker.correction_ == "offset"


@pytest.mark.parametrize("make", [IPSRanker, LambdaMARTRanker])
def test_a_curve_that_undoes_relevance_is_refused(make):
    """Users read every result; a curve of 1/k² takes what the order knows for examination."""
    log, clicks = _log(6_000, eta=0.0)
    switch = 'debiasing="user-aware"' if make is LambdaMARTRanker else "clip=0.1"
    refused = rf"the correction of position bias.* is -?\d+\.\d\d, .* least 1\.00.*pass {switch}\."
    with pytest.warns(ClickDataWarning, match=refused):
        ranker = make(propensity=CURVE**2, random_state=0).fit(log, clicks)
    if make is LambdaMARTRanker:
        assert ranker.debiasing_ == "none"
        naive = LambdaMARTRanker(debiasing="none", random_state=0)
    else:
        assert (ranker.correction_, ranker.clip_) == ("divide", 1)
        naive = NaiveRanker(random_state=0)
    assert ranker.choice_.index.tolist() == ["naive", "corrected", "unbounded"]
    assert np.corrcoef(ranker.predict(log), naive.fit(log, clicks).predict(log))[0, 1] > 0.9


def test_a_correction_of_choice_is_not_compared():
    log, clicks = _log(1_500)
    for correction, clip, kept in (
        ("auto", 0.2, ("offset", 0.2)),
        ("auto", None, ("offset", None)),
        ("divide", None, ("divide", None)),
    ):
        settings = {"correction": correction, "clip": clip, "max_epochs": 1, "random_state": 0}
        ranker = IPSRanker(propensity=CURVE, **settings).fit(log, clicks)
        assert (ranker.correction_, ranker.clip_) == kept
        assert not hasattr(ranker, "choice_")


def test_few_queries_neither_confirm_nor_refuse():
    log, clicks = _log(500, n_queries=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClickDataWarning)
        ranker = IPSRanker(propensity=CURVE, max_epochs=1, random_state=0).fit(log, clicks)
    assert (ranker.correction_, ranker.clip_) == ("offset", 0.1)
    assert not hasattr(ranker, "choice_")


def test_many_clicks_are_divided():
    log, clicks = _log(1_500, n_queries=20)
    log = log.assign(impressions=200.0)
    ranker = IPSRanker(propensity=CURVE, clip=None, max_epochs=1, random_state=0)
    assert ranker.fit(log, 200.0 * clicks).correction_ == "divide"


@pytest.mark.parametrize(
    ("evidence", "impressions", "kept"),
    [
        (2.0, 50.0, ("divide", 0.05)),  # 4 x 0.8 x 50 = 160 clicks per query
        (1.9, 50.0, ("offset", 0.05)),
        (2.0, 30.0, ("offset", 0.05)),
        (np.nan, 50.0, ("offset", 0.05)),  # too few queries to test
    ],
)
def test_division_needs_firm_evidence_and_many_clicks(evidence, impressions, kept):
    """40 queries of four rows with 0.8 clicks per impression, all examined alike."""
    document = np.arange(160, dtype=np.float32)[:, None]
    roles = {"qid": np.repeat(np.arange(40), 4), "position": np.tile([1, 2, 3, 4], 40)}
    roles |= {"propensity": np.full(160, 0.5), "impressions": np.full(160, impressions)}
    log = make_click_log(document, document, np.full(160, 0.8), roles=roles)
    found = Confirmation(evidence, None, np.zeros(4))
    assert best_correction(log, found) == Correction(*kept)


def test_a_factor_of_all_propensities_changes_no_member_of_the_ensemble():
    log, clicks = _log(1_500, production=False)
    for factor in (1.0, 1 / 16):
        ranker = EnsembleRanker(propensity=factor * CURVE, random_state=0).fit(log, clicks)
        assert ranker.named_estimators_["trees"].clip == pytest.approx(0.1 * factor)


@pytest.mark.parametrize(("firm", "clip"), [(100.0, 0.1), (2.0, None)])
def test_a_factor_of_all_propensities_changes_nothing(monkeypatch, firm, clip):
    """Click rates of pages in random order are examination up to a factor."""
    monkeypatch.setattr(_evidence, "LEARNED_CURVE", firm)
    log, clicks = _log(5_000, production=False)
    own, rates = (
        IPSRanker(propensity=factor * CURVE, max_epochs=2, random_state=0).fit(log, clicks)
        for factor in (1.0, 1 / 16)
    )
    assert own.correction_ == rates.correction_ == "offset"
    assert own.clip_ == clip
    assert rates.clip_ == (clip and clip / 16)
    np.testing.assert_allclose(rates.predict(log), own.predict(log), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "ranker", [IPSRanker(clip=0.1), LambdaMARTRanker(debiasing="ips", clip=0.1)]
)
def test_a_bound_above_all_propensities_is_a_warning(ranker):
    log, clicks = _log(500)
    with pytest.warns(ClickDataWarning, match=r"clip=0\.1 is above all propensities.* most 0\.05"):
        ranker.set_params(propensity=0.05 * CURVE, random_state=0).fit(log, clicks)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_a_learned_curve_divides_where_a_given_one_does():
    log, clicks = _log(30_000, n_queries=60, production=False)
    given = IPSRanker(propensity=CURVE, max_epochs=1, random_state=0).fit(log, clicks)
    assert (given.correction_, given.clip_) == ("divide", None)
    learned = DLARanker(max_epochs=5, random_state=0).fit(log, clicks)
    assert learned._correction == Correction("divide", None)


def test_a_curve_that_is_no_more_than_assumed_gives_way_to_what_clicks_ask_for():
    """One order by chance: documents never move, and their features tell what was examined."""
    documents = make_ltr(200, n_features=6, random_state=0)
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=20_000,
        policy=DeterministicPolicy(),
        scores=np.random.default_rng(0).normal(size=len(documents)),
        user=PositionBasedUser(2.0),
        random_state=0,
    )
    with pytest.warns(AssumptionWarning, match="No propensities given"):
        ranker = LambdaMARTRanker(random_state=0).fit(log, clicks)
    learned = np.log(ranker.examination_["examination"].to_numpy()[:6])
    true = np.log(truth.examination[:6] / truth.examination[0])
    assert np.abs(learned - true).max() < np.abs(true / 2 - true).max() / 2  # half of it is 1/k


@pytest.mark.parametrize("settings", [{"loss": "mse"}, {"estimator": Ridge()}])
def test_offset_is_a_listwise_loss(settings):
    log, clicks = random_lists()
    settings = {"propensity": [1, 0.5, 0.25], "max_epochs": 1, **settings}
    with pytest.raises(ValueError, match="correction='offset' is a loss of the network"):
        IPSRanker(correction="offset", **settings).fit(log, clicks)
    ranker = IPSRanker(**settings).fit(log, clicks)
    assert (ranker.correction_, ranker.clip_) == ("divide", None)


def test_a_wrong_curve_neither_feigns_nor_hides_what_scores_explain():
    """Effects of positions are free: relevance is best with any curve, also with its own."""
    rng = np.random.default_rng(0)
    position = np.array([rng.permutation(5) + 1 for _ in range(400)]).ravel()
    relevance = rng.uniform(0.1, 0.9, 2000)
    clicks = 50 * relevance / position
    roles = {"qid": np.repeat(np.arange(400), 5), "position": position}
    document = np.arange(2000, dtype=np.float32)[:, None]
    undoing = np.log(relevance) - 0.6 * np.log(position) + 0.3 * rng.normal(size=2000)
    losses = []
    for told in (1 / position, 1 / position**2):
        roles |= {"propensity": told, "impressions": np.full(2000, 50.0)}
        log = make_click_log(document, document, clicks / 50, roles=roles)
        row = log.features[log.doc, 0].astype(int)  # the log is sorted by position
        held_out = HeldOut(log, np.column_stack([np.log(relevance), undoing])[row])
        losses.append([each.sum() for each in held_out.losses()])
        np.testing.assert_allclose(held_out.mix(held_out.scores[:, :1])[2], 1, atol=0.01)
    assert losses[0][0] < losses[0][1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_a_propensity_that_is_far_too_small_keeps_its_bound():
    """Clicks confirm the correction, and find it worse without the bound."""
    log, clicks = _log(45_000, n_queries=450, production=False)
    told = np.append(CURVE[:9], np.full(11, 0.001))
    ranker = LambdaMARTRanker(propensity=told, n_estimators=100, random_state=0).fit(log, clicks)
    loss, error = ranker.choice_["loss"], ranker.choice_["standard_error"]
    assert loss["naive"] - loss["unbounded"] > 2 * error["unbounded"]
    assert ranker.clip_ == 0.1


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_networks_of_several_outputs_are_judged():
    log, clicks = _log(1_500)
    ranker = VectorizationRanker(
        module=lambda n: torch.nn.Linear(n, 3), n_components=3, n_networks=1, max_epochs=2
    )
    assert np.isfinite(ranker.set_params(random_state=0).fit(log, clicks).predict(log)).all()


UNASKED = [
    AffineRanker(max_epochs=20, early_stopping=True),
    VectorizationRanker(n_networks=1, max_epochs=20, early_stopping=True),
    TwoTowerRanker(link="additive", max_epochs=20, early_stopping=True),
    DLARanker(examination="network", max_epochs=20, early_stopping=True),
]


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("default:Held-out clicks do not confirm")
@pytest.mark.parametrize("ranker", UNASKED, ids=lambda each: type(each).__name__)
def test_rankers_that_correct_in_any_case_warn_where_clicks_do_not_confirm_it(ranker):
    log, clicks = _log(6_000, production=False)
    by_chance = np.random.default_rng(0).permutation(clicks)
    unconfirmed = f"clicks do not confirm {type(ranker).__name__}: .* least 1"
    with pytest.warns(ClickDataWarning, match=unconfirmed):
        clone(ranker).set_params(random_state=0).fit(log, by_chance)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("error:Held-out clicks do not confirm")
def test_clicks_confirm_a_correction_without_a_word():
    log, clicks = _log(12_000, n_queries=240, production=False)
    settings = {"examination": "network", "max_epochs": 20, "early_stopping": True}
    ranker = DLARanker(**settings, random_state=0).fit(log, clicks)
    assert not hasattr(ranker, "_stopped_by")


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("error:Held-out clicks do not confirm")
def test_few_held_out_queries_confirm_nothing_and_warn_of_nothing():
    log, clicks = _log(500, n_queries=60)  # six are held out
    AffineRanker(max_epochs=2, early_stopping=True, random_state=0).fit(
        log, np.random.default_rng(0).permutation(clicks)
    )


# ------------------------------------------------------------------------------ the weights
def test_small_effective_sample_is_noticed():
    """Two clicks per query with propensities 1 and 0.1: Σw = 11, Σw² = 101, 1.2 per query."""
    rows = pd.DataFrame({"qid": np.repeat(np.arange(30), 2), "position": [1, 2] * 30})
    rows["f0"] = np.linspace(0, 1, 60)
    settings = {"propensity": [1.0, 0.1], "estimator": Ridge()}
    with pytest.warns(UnstableWeightsWarning, match=r"60 clicks carry .* of 36 \(1\.2 per query"):
        ranker = IPSRanker(**settings).fit(rows, np.ones(60))
    assert ranker.effective_sample_size_ == pytest.approx(30 * 11**2 / 101)
    rows["impressions"] = 10.0  # 12 effective clicks per query
    IPSRanker(**settings).fit(rows, np.full(60, 10))
    # As an offset, propensities weigh nothing.
    offset = {"correction": "offset", "clip": None, "max_epochs": 1, "early_stopping": False}
    IPSRanker(propensity=[1.0, 0.1], **offset).fit(rows.drop(columns="impressions"), np.ones(60))


# ------------------------------------------------------------------------------ propensity 0
def _two_users(second):
    """A log of one query: the first user examines both positions, the second as given."""
    X = pd.DataFrame({"qid": 1, "doc": ["a", "b"] * 2, "position": [1, 2] * 2})
    X["user"] = X["session"] = [0, 0, 1, 1]
    X["propensity"] = [1.0, 0.8, 1.0, second]
    X["impressions"] = 100.0
    X[FEATURES[0]] = [0.0, 1.0] * 2
    return X, np.array([0.5, 0.4, 0.5, 0.0])


def test_user_who_never_examines_a_position_is_averaged():
    X, rate = _two_users(0.0)
    aware = UserAwareIPSRanker(estimator=Ridge()).fit(X, rate)
    assert aware.labels_["label"].tolist() == [0.5, 0.5]  # 40 clicks over 0.4 * 200
    labels = relevance_labels(X, rate)
    assert labels["label"].tolist() == [0.5, 0.5]
    LambdaMARTRanker(n_estimators=1, early_stopping=False).fit(X, rate)


@pytest.mark.parametrize("correction", ["auto", "divide", "offset"])
def test_users_who_stop_earlier_change_the_mean_only(correction):
    """0.8 in half of the impressions is 0.4 in all of them."""
    X, rate = _two_users(0.0)
    settings = {"correction": correction, "max_epochs": 2, "early_stopping": False}
    settings["random_state"] = 0
    aware = UserAwareIPSRanker(**settings).fit(X, rate)
    alike = X.assign(propensity=[1.0, 0.4, 1.0, 0.4])
    same = UserAwareIPSRanker(**settings).fit(alike, rate)
    np.testing.assert_array_equal(aware.predict(X), same.predict(X))


def test_expected_label_is_relevance_where_one_user_never_looks():
    """Theorem 3.1: E[clicks / (n mean propensity)] = r, with clicks of those who look."""
    X, _ = _two_users(0.0)
    relevance = np.array([0.5, 0.3] * 2)
    labels = relevance_labels(X, X["propensity"] * relevance)
    assert labels["label"].tolist() == pytest.approx([0.5, 0.3])
    assert labels["impressions"].tolist() == [200.0, 200.0]


def test_position_that_nobody_examines_is_no_contradiction():
    """Both documents moved: their mean propensity is 1 / 2, that of position 2 is 0."""
    X = pd.DataFrame({"qid": 1, "session": [0, 0, 1, 1], "doc": list("abba")})
    X["position"], X["propensity"] = [1, 2, 1, 2], [1.0, 0.0, 1.0, 0.0]
    X["impressions"], X[FEATURES[0]] = 10.0, [0.0, 1.0, 1.0, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = UserAwareIPSRanker(estimator=Ridge()).fit(X, [0.6, 0.0, 0.2, 0.0])
    assert not hasattr(ranker, "examination_comparison_")
    # 6 and 2 clicks over 20 impressions, half of them examined.
    assert ranker.labels_["label"].tolist() == [0.6, 0.2]


@pytest.mark.parametrize("fit", [UserAwareIPSRanker().fit, IPSRanker().fit, relevance_labels])
def test_click_at_propensity_0_is_refused(fit):
    X, _ = _two_users(0.0)
    message = r"propensity is 0 in 1 row with a click, first in row 3: who clicked a row has"
    with pytest.raises(ValueError, match=message):
        fit(X, [0.5, 0.4, 0.5, 0.01])


def test_click_at_propensity_0_of_a_row_that_was_not_shown_only_warns():
    X, _ = _two_users(0.0)
    X["position"] = X["position"].astype(float).mask(X["propensity"] == 0)
    with pytest.warns(ClickDataWarning, match="1 row has a click but no position"):
        labels = relevance_labels(X, [0.5, 0.4, 0.5, 0.01])
    assert labels["label"].tolist() == [0.5, 0.5]


def test_propensity_0_is_refused_where_it_divides():
    X, rate = _two_users(0.0)
    message = (
        r"propensity is 0 in 1 shown row, first at position 2 of query 1; expected .*"
        r"average over users: UserAwareIPSRanker, LambdaMARTRanker\(debiasing='user-aware'\), or "
    )
    for ranker in (IPSRanker(), LambdaMARTRanker(debiasing="ips")):
        with pytest.raises(ValueError, match=message):
            ranker.fit(X, rate)
    with pytest.raises(ValueError, match=message):
        relevance_labels(X, rate, user_aware=False)
    with pytest.raises(ValueError, match="propensity is 0 in 1 shown row, first in row 3"):
        IPSScorer()(Ridge().fit(X[["f0"]], rate), X, rate)


def test_mean_propensity_0_is_refused():
    X, rate = _two_users(0.0)
    X.loc[1, "propensity"] = rate[1] = 0.0
    message = "mean propensity over all impressions of a document in its query is 0 in 2 shown"
    for fit in (UserAwareIPSRanker(estimator=Ridge()).fit, relevance_labels):
        with pytest.raises(ValueError, match=message):
            fit(X, rate)


def test_negative_propensity_is_refused():
    X, rate = _two_users(-0.1)
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*found -0.1 in 1 row"):
        UserAwareIPSRanker(estimator=Ridge()).fit(X, rate)
