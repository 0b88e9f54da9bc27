"""Propensities as divisors or as an offset, and the choice between them by held-out clicks."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr._log._clicklog import make_click_log
from skultr._torch._joint import compared
from skultr._torch._lists import softmax_loss
from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning, UnstableWeightsWarning
from skultr.metrics import IPSScorer
from skultr.propensity import relevance_labels
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.simulation import PositionBasedUser, simulate_clicks

from .._worlds import FEATURES, random_lists

CURVE = 1 / np.arange(1, 21)


def _log(n_sessions, n_queries=120, seed=0):
    documents = make_ltr(n_queries, n_features=10, random_state=seed)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=20,
        user=PositionBasedUser(1.0),
        random_state=seed,
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


def test_choice_is_in_the_attributes():
    log, clicks = _log(4_000)
    ranker = IPSRanker(propensity=CURVE, max_epochs=8, random_state=0).fit(log, clicks)
    choice = ranker.choice_
    assert list(choice.index) == ["offset, clip=0.1", "offset", "divide", "naive"]
    naive = choice.loc["naive"]
    within = naive["excess"] <= naive["standard_error"]
    kept = "naive" if within else choice["loss"].idxmin()
    name = ranker.correction_ + ("" if ranker.clip_ is None else f", clip={ranker.clip_:g}")
    assert kept == ("naive" if ranker.clip_ == 1 else name)
    assert (choice["excess"] >= 0).all()
    np.testing.assert_allclose(choice["excess"], choice["loss"] - choice["loss"].min())
    raised = ranker.labels_["label"] * ranker.labels_["impressions"] / ranker.labels_["clicks"]
    assert raised.max() <= (np.inf if ranker.clip_ is None else 1 / ranker.clip_ + 1e-9)


@pytest.mark.parametrize(
    ("correction", "clip", "compared"),
    [
        ("auto", 0.2, ["offset, clip=0.2", "divide, clip=0.2"]),
        ("auto", None, ["offset", "divide"]),
        ("divide", "auto", ["divide, clip=0.1", "divide", "naive"]),
        ("offset", "auto", ["offset, clip=0.1", "offset", "naive"]),
    ],
)
def test_what_is_compared(correction, clip, compared):
    log, clicks = _log(1_500)
    settings = {"correction": correction, "clip": clip, "max_epochs": 1, "random_state": 0}
    ranker = IPSRanker(propensity=CURVE, **settings).fit(log, clicks)
    assert list(ranker.choice_.index) == compared


def test_bound_that_raises_nothing_is_not_compared():
    log, clicks = _log(1_500)
    gentle = CURVE**0.5  # at least 0.22
    ranker = IPSRanker(propensity=gentle, max_epochs=1, random_state=0).fit(log, clicks)
    assert list(ranker.choice_.index) == ["offset", "divide", "naive"]


@pytest.mark.parametrize("settings", [{"early_stopping": False}, {"validation_fraction": 0.02}])
def test_without_held_out_queries_it_is_the_clipped_offset(settings):
    log, clicks = _log(1_500)
    settings = {"max_epochs": 2, "random_state": 0, "propensity": CURVE, **settings}
    ranker = IPSRanker(**settings).fit(log, clicks)
    assert (ranker.correction_, ranker.clip_) == ("offset", 0.1)
    assert not hasattr(ranker, "choice_")
    if not ranker.early_stopping:
        explicit = IPSRanker(correction="offset", clip=0.1, **settings).fit(log, clicks)
        np.testing.assert_array_equal(ranker.predict(log), explicit.predict(log))


@pytest.mark.parametrize("settings", [{"loss": "mse"}, {"estimator": Ridge()}])
def test_offset_is_a_listwise_loss(settings):
    log, clicks = random_lists()
    settings = {"propensity": [1, 0.5, 0.25], "max_epochs": 1, **settings}
    with pytest.raises(ValueError, match="correction='offset' is a loss of the network"):
        IPSRanker(correction="offset", **settings).fit(log, clicks)
    ranker = IPSRanker(**settings).fit(log, clicks)
    assert (ranker.correction_, ranker.clip_) == ("divide", None)


def _held_out(told, n_lists=400, scale=50.0):
    """Expected clicks of lists in random order, examined 1 / k, and two scorings of them."""
    rng = np.random.default_rng(0)
    position = np.array([rng.permutation(5) + 1 for _ in range(n_lists)]).ravel()
    relevance = rng.uniform(0.1, 0.9, 5 * n_lists)
    clicks = scale * relevance / position
    roles = {"qid": np.repeat(np.arange(n_lists), 5), "position": position}
    roles |= {"propensity": told(position), "impressions": np.full(len(clicks), scale)}
    document = np.arange(len(clicks), dtype=np.float32)[:, None]
    log = make_click_log(document, document, clicks / scale, roles=roles)
    # What features tell of the position can make up for part of a wrong examination.
    undoing = np.log(relevance) + 0.6 * np.log(1 / position / told(position))
    undoing += 0.3 * rng.normal(size=len(undoing))
    row = log.features[log.doc, 0].astype(int)  # the log is sorted by position
    return compared(log, {"relevance": np.log(relevance[row]), "undoing": undoing[row]})


def test_scores_that_undo_a_wrong_examination_are_not_chosen():
    table = _held_out(lambda position: 1.0 / position**2)
    assert table["loss"].idxmin() == "relevance"
    assert table.loc["relevance", "examination_exponent"] == pytest.approx(0.5, abs=0.01)
    assert table.loc["relevance", "score_weight"] == pytest.approx(1, abs=0.01)


def test_right_examination_is_taken_as_it_is():
    table = _held_out(lambda position: 1.0 / position)
    assert (table["examination_exponent"] == 1).all()
    assert table["loss"].idxmin() == "relevance"
    assert table.loc["relevance", "score_weight"] == pytest.approx(1, abs=0.01)


# ------------------------------------------------------------------------------ the weights
def test_small_effective_sample_is_noticed():
    """Two clicks per query with propensities 1 and 0.1: Σw = 11, Σw² = 101, 1.2 per query."""
    rows = pd.DataFrame({"qid": np.repeat(np.arange(30), 2), "position": [1, 2] * 30})
    rows["f0"] = np.linspace(0, 1, 60)
    settings = {"propensity": [1.0, 0.1], "estimator": Ridge()}
    with pytest.warns(UnstableWeightsWarning, match=r"60 clicks as noisy as 36: 1\.2 per query"):
        ranker = IPSRanker(**settings).fit(rows, np.ones(60))
    assert ranker.effective_sample_size_ == pytest.approx(30 * 11**2 / 101)
    rows["impressions"] = 10.0  # 12 effective clicks per query
    IPSRanker(**settings).fit(rows, np.ones(60))
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
