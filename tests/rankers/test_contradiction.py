"""Told propensities that the clicks of the log contradict."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning
from skultr.rankers import (
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    UserAwareIPSRanker,
)
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    simulate_clicks,
)

LEAST = LinearRegression()
POSITIONS = np.arange(1, 11)
RIGHT, WRONG = 1.0 / POSITIONS, 1.0 / POSITIONS**2


@pytest.fixture(scope="module", params=["fixed order", "documents moved"])
def world(request):
    documents = make_ltr(n_queries=100, n_features=20, random_state=0)
    fixed = request.param == "fixed order"
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=4000,
        n_positions=10,
        user=PositionBasedUser(1.0),
        policy=DeterministicPolicy() if fixed else PlackettLucePolicy(),
        random_state=0,
    )
    return fixed, log, clicks


def _warns(ranker, log, clicks):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker.fit(log, clicks)
    return any("contradict the propensities" in str(each.message) for each in caught)


def test_wrong_curve_warns_and_shows_the_right_one(world):
    fixed, log, clicks = world
    ranker = IPSRanker(propensity=WRONG, clip=None, max_epochs=20, random_state=0)
    with pytest.warns(AssumptionWarning, match="The clicks contradict the .* top: AffineRanker"):
        ranker.fit(log, clicks)
    curves = ranker.examination_comparison_
    np.testing.assert_allclose(curves["told"], WRONG)
    # Without moved documents the scores of a misled ranker give the direction only.
    away = np.abs(np.log(curves["implied"] / RIGHT)).iloc[1:5]
    assert away.max() < (0.9 if fixed else 0.3)


def test_right_curve_is_silent(world):
    _, log, clicks = world
    assert not _warns(IPSRanker(propensity=RIGHT, max_epochs=20, random_state=0), log, clicks)


@pytest.mark.parametrize("cls", [UserAwareIPSRanker, LambdaMARTRanker])
@pytest.mark.parametrize(("told", "expected"), [(RIGHT, False), (WRONG, True)])
def test_averaged_propensities_are_compared_before_they_are_averaged(world, cls, told, expected):
    fixed, log, clicks = world
    if fixed:
        pytest.skip("trees remember the clicks that they were fitted to")
    few = {"n_estimators": 20} if cls is LambdaMARTRanker else {"max_epochs": 3}
    assert _warns(cls(propensity=told, random_state=0, **few), log, clicks) == expected


def test_propensities_that_are_not_used_are_not_judged(world):
    _, log, clicks = world
    log = log.assign(propensity=WRONG[log["position"] - 1])
    ranker = HeckmanRanker(hidden_layer_sizes=(), random_state=0)
    assert not _warns(ranker, log, clicks)
    assert _warns(ranker.set_params(debias=True), log, clicks)


def test_members_that_share_a_curve_say_it_once(world):
    _, log, clicks = world
    members = [(name, LambdaMARTRanker(n_estimators=20)) for name in "ab"]
    ranker = EnsembleRanker(members, propensity=WRONG, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker.fit(log, clicks)
    assert ["contradict" in str(each.message) for each in caught].count(True) == 1


def test_ensemble_is_silent_about_a_curve_that_it_estimated_itself():
    documents = make_ltr(n_queries=60, n_features=8, random_state=0)
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=3000, user=PositionBasedUser(2.0), random_state=0
    )
    members = [("naive", NaiveRanker(estimator=LEAST)), ("ips", IPSRanker(estimator=LEAST))]
    assert not _warns(EnsembleRanker(members, random_state=0), log, clicks)
    assert _warns(
        EnsembleRanker(members, propensity=1 - POSITIONS / 11, random_state=0), log, clicks
    )
