"""Regression-EM and dual learning as estimators of examination, and known curves."""

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning, NotIdentifiableError, NotIdentifiableWarning
from skultr.propensity import (
    DualLearningPropensity,
    PowerLawPropensity,
    RegressionEMPropensity,
)
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    UserPopulation,
    simulate_clicks,
)

LEARNED = [RegressionEMPropensity, DualLearningPropensity]


@pytest.fixture(scope="module")
def swapped():
    """A log with swaps, examination 1 / k, and features."""
    documents = make_ltr(n_queries=200, n_features=10, random_state=0)
    return simulate_clicks(
        documents,
        n_sessions=40_000,
        n_positions=5,
        policy=PlackettLucePolicy(),
        user=PositionBasedUser(1.0),
        random_state=0,
    )


@pytest.fixture(scope="module")
def personal():
    """Three kinds of users, the same queries for all."""
    documents = make_ltr(n_queries=100, n_features=10, random_state=0)
    return simulate_clicks(
        documents,
        n_sessions=40_000,
        n_positions=5,
        policy=PlackettLucePolicy(),
        user=UserPopulation(etas=[2.0, 1.0, 0.0], never_asked=None),
        features=False,
        random_state=0,
    )


# ------------------------------------------------------------------------------ the truth
@pytest.mark.parametrize("cls", LEARNED)
@pytest.mark.parametrize("variant", ["published", "default"])
def test_embedding_finds_the_curve(cls, variant, swapped):
    X, clicks, _ = swapped
    table = cls(relevance="embedding", variant=variant).fit(X, clicks).examination_
    np.testing.assert_allclose(table["examination"], 1 / np.arange(1, 6), atol=0.03)
    assert table["component"].nunique() == 1
    if variant == "published":  # has no standard errors with so few clicks a document
        return
    gap = np.log(table["examination"]) - np.log(1 / np.arange(1, 6))
    assert (np.abs(gap) <= 4 * table["standard_error"] + 1e-9).all()
    assert (table["lower"] <= table["examination"]).all()
    assert (table["examination"] <= table["upper"]).all()


@pytest.mark.parametrize("cls", LEARNED)
def test_network_finds_the_curve(cls, swapped):
    X, clicks, _ = swapped
    table = cls(max_epochs=10, random_state=0).fit(X, clicks).examination_
    np.testing.assert_allclose(table["examination"], 1 / np.arange(1, 6), atol=0.03)
    assert table["standard_error"].isna().all()


def test_curves_of_users(personal):
    X, clicks, truth = personal
    estimator = RegressionEMPropensity(user="user", relevance="embedding").fit(X, clicks)
    curves = estimator.examination_["examination"].unstack().to_numpy()
    np.testing.assert_allclose(curves / curves[:, :1], truth.examination_table, atol=0.08)
    assert estimator.examination_.index.names == ["user", "bias"]
    assert estimator.average_examination_.index.name == "bias"
    of_row = truth.examination_table[X["user"], X["position"] - 1]
    np.testing.assert_allclose(estimator.predict(X), of_row, atol=0.06)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
@pytest.mark.parametrize("relevance", ["embedding", "network"])
@pytest.mark.parametrize("n_sessions", [1, 30])
def test_users_of_few_sessions_do_not_ruin_the_estimate(relevance, n_sessions):
    documents = make_ltr(n_queries=100, n_features=10, random_state=0)
    population = UserPopulation(etas=np.repeat([1.5, 1.0, 0.5], 100), decay=1.0, never_asked=None)
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=300 * n_sessions,
        n_positions=5,
        policy=PlackettLucePolicy(),
        user=population,
        random_state=0,
    )
    estimator = RegressionEMPropensity(user="user", relevance=relevance, random_state=0)
    estimator.set_params(max_epochs=20).fit(X, clicks)
    found, own = estimator.examination_, estimator.examination_.index.to_frame()
    expected = truth.examination_table[own["user"], own["bias"] - 1]
    common = estimator.average_examination_["examination"].reindex(own["bias"]).to_numpy()
    deep = (own["bias"] > 1).to_numpy()
    error = np.abs(found["examination"] - expected)[deep].mean()
    # One session a user says next to nothing, of the common curve neither.
    of_common = np.abs(common - expected)[deep].mean()
    assert error < of_common * (1.6 if n_sessions == 1 else 0.9)
    assert estimator.predict(X).min() > 0.01


def test_dual_learning_of_users_needs_an_embedding(personal):
    X, clicks, _ = personal
    with pytest.raises(ValueError, match="Set relevance='embedding'"):
        DualLearningPropensity(user="user").fit(X.assign(f0=1.0), clicks)
    DualLearningPropensity(user="user", relevance="embedding").fit(X, clicks)


def test_users_by_any_column(personal):
    X, clicks, _ = personal
    by_role = RegressionEMPropensity(user="user", relevance="embedding").fit(X, clicks)
    renamed = X.rename(columns={"user": "device"})
    by_name = RegressionEMPropensity(user="device", relevance="embedding").fit(renamed, clicks)
    np.testing.assert_array_equal(by_role.predict(X), by_name.predict(renamed))
    assert by_name.columns_read() == {"device"}


def test_users_who_share_no_document_have_the_level_of_the_common_curve():
    rng = np.random.default_rng(0)
    n = 8_000
    user, level = rng.integers(0, 2, n), np.array([1.0, 0.3])
    swapped = rng.integers(0, 2, n)
    X = pd.DataFrame(
        {
            "qid": np.repeat(user, 2),
            "session": np.repeat(np.arange(n), 2),
            "user": np.repeat(np.array(["ann", "bob"])[user], 2),
            "doc": np.column_stack([swapped, 1 - swapped]).ravel() + 2 * np.repeat(user, 2),
            "position": np.tile([1, 2], n),
        }
    )
    chance = level[np.repeat(user, 2)] * np.tile([1.0, 0.5], n) * np.where(X["doc"] % 2, 0.8, 0.4)
    clicks = (rng.random(2 * n) < chance).astype(float)
    estimator = RegressionEMPropensity(user="user", relevance="embedding")
    with pytest.warns(NotIdentifiableWarning, match=r"No document connects .* 1 user, such as"):
        curves = estimator.fit(X, clicks).examination_["examination"].unstack()
    np.testing.assert_allclose(curves, [[1.0, 0.5], [1.0, 0.5]], atol=0.1)


# ---------------------------------------------------------------------------- standard errors
def test_bootstrap_agrees_with_the_information(swapped):
    X, clicks, _ = swapped
    X = X[["session", "qid", "doc", "position"]]
    analytic = RegressionEMPropensity(relevance="embedding").fit(X, clicks).examination_
    drawn = RegressionEMPropensity(relevance="embedding", n_bootstrap=100, random_state=0)
    drawn = drawn.fit(X, clicks).examination_
    # A hundred draws know a standard error to 7 %.
    ratio = drawn["standard_error"][1:] / analytic["standard_error"][1:]
    assert ratio.between(0.6, 1.5).all()


@pytest.mark.parametrize("cls", LEARNED)
def test_network_is_drawn_anew(cls, swapped):
    X, clicks, _ = swapped
    few = X["qid"] < 40
    estimator = cls(n_bootstrap=3, max_epochs=2, random_state=0).fit(X[few], clicks[few])
    assert (estimator.examination_["standard_error"][1:] > 0).all()


# ----------------------------------------------------------------------------------- bad input
@pytest.fixture
def deterministic():
    X = pd.DataFrame({"qid": [1, 1], "doc": ["a", "b"], "position": [1, 2], "impressions": 50.0})
    return X.assign(f0=[0.0, 1.0]), np.array([0.5, 0.2])


@pytest.mark.parametrize("cls", LEARNED)
def test_log_without_swaps(cls, deterministic):
    X, rate = deterministic
    with pytest.raises(NotIdentifiableError, match=r"No document.*2 bias factors.*intervene"):
        cls(relevance="embedding").fit(X, rate)
    with pytest.warns(NotIdentifiableWarning, match="Only the network"):
        cls(max_epochs=2, early_stopping=False, random_state=0).fit(X, rate)


def test_users_do_not_link_positions(deterministic):
    X, rate = deterministic
    X = pd.concat([X.assign(user=0, session=0), X.assign(user=1, session=1)])
    with pytest.raises(NotIdentifiableError):
        RegressionEMPropensity(user="user", relevance="embedding").fit(X, np.tile(rate, 2))


def test_factor_apart_is_named():
    X = pd.DataFrame(
        {
            "qid": 1,
            "session": [0, 0, 0, 1, 1, 1],
            "doc": ["a", "b", "c", "b", "a", "c"],
            "position": [1, 2, 3, 1, 2, 3],
            "impressions": 100.0,
        }
    )
    rate = np.array([0.6, 0.2, 0.1, 0.4, 0.3, 0.1])
    estimator = RegressionEMPropensity(relevance="embedding")
    with pytest.warns(NotIdentifiableWarning, match=r"1 of 3 bias factors.*: 3\."):
        estimator.fit(X, rate)
    assert estimator.examination_["examination"].isna().tolist() == [False, False, True]
    assert estimator.examination_["component"].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"2 rows is unknown.*position.*3"):
        estimator.predict(X)


def test_position_without_click_spoils_no_other(swapped):
    X, clicks, _ = swapped
    silent = np.where(X["position"] == 3, 0, clicks)
    estimator = RegressionEMPropensity(relevance="embedding")
    with pytest.warns(ClickDataWarning, match=r"no click under 1 of 5 bias factors: 3\."):
        table = estimator.fit(X, silent).examination_
    others = [1, 2, 4, 5]
    np.testing.assert_allclose(table["examination"][others], 1 / np.array(others), atol=0.03)
    assert 0 < table.loc[3, "examination"] < 0.001
    assert (estimator.predict(X) > 0).all()


def test_users_without_the_role(swapped):
    X, clicks, _ = swapped
    with pytest.raises(ValueError, match="no column 'user'"):
        RegressionEMPropensity(user="user", relevance="embedding").fit(X, clicks)
    with pytest.raises(ValueError, match="no column 'device'"):
        RegressionEMPropensity(user="device", relevance="embedding").fit(X, clicks)


# -------------------------------------------------------------------------------- known curves
def test_power_law():
    X = pd.DataFrame({"qid": [1, 1, 1], "position": [1, 2, np.nan], "doc": [0, 1, 2]})
    estimator = PowerLawPropensity(2.0).fit(X, [1, 0, 0])
    np.testing.assert_array_equal(estimator.predict(X), [1.0, 0.25, 0.0])
    assert estimator.examination_["clicks"].tolist() == [1.0, 0.0]


def test_power_law_of_users():
    X = pd.DataFrame({"qid": 1, "session": ["a", "a", "b", "b"], "position": [1, 2, 1, 2]})
    X = X.assign(user=["x", "x", "y", "y"])
    estimator = PowerLawPropensity({"x": 0.0, "y": 1.0}).fit(X, [1, 0, 0, 0])
    np.testing.assert_array_equal(estimator.predict(X), [1.0, 1.0, 1.0, 0.5])
    with pytest.raises(ValueError, match=r"no value for 1 of 2 users, such as 'z'"):
        estimator.predict(X.assign(user=["x", "x", "z", "z"]))
    with pytest.raises(ValueError, match="no column 'user'"):
        estimator.predict(X.drop(columns="user"))
    with pytest.raises(ValueError, match="eta of the user 'x' is -1"):
        PowerLawPropensity({"x": -1}).fit(X, [1, 0, 0, 0])


def test_rankers_do_not_take_named_columns_for_features(personal):
    from sklearn.linear_model import Ridge

    from skultr import UserAwareIPSRanker

    X, clicks, _ = personal
    X = X.rename(columns={"user": "device"}).assign(f0=X["doc"] % 7)
    propensity = RegressionEMPropensity(user="device", relevance="embedding")
    ranker = UserAwareIPSRanker(propensity=propensity, estimator=Ridge()).fit(X, clicks)
    assert ranker.feature_names_in_.tolist() == ["f0"]
    assert len(ranker.predict(X[["f0"]])) == len(X)
