"""scikit-learn's own checks over every public estimator, and ours over everything public."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skultr.testing import check_click_model, check_propensity, check_ranker, check_user

from ._discovery import (
    public_click_models,
    public_estimators,
    public_propensities,
    public_rankers,
    public_users,
)

#: Checks of scikit-learn in which an integer weight is as many copies of a row. Their rows have
#: no roles: all are one list, at positions in row order, so that a copy is one more candidate and
#: moves the rows below it to other positions. Whoever reads lists may fail them. The test below
#: shows that weights are copies wherever the list and position of each row are named.
_COPIES_IN_ONE_LIST = [
    f"check_sample_weight_equivalence_on_{data}_data" for data in ("dense", "sparse")
]


def _reads_lists(estimator):
    """Rankers and click models."""
    return hasattr(estimator, "rank")


def expected_failures(estimator):
    """Checks of scikit-learn that an estimator may fail because of what it reads, and why."""
    may_fail = {}
    if _reads_lists(estimator):
        reason = "a copy of a row is one more row of its list, and moves the rows below"
        may_fail |= dict.fromkeys(_COPIES_IN_ONE_LIST, reason)
    if getattr(estimator, "_reads_whole_queries", False):
        reason = "a score depends on the candidates of the query, and a subset has others"
        may_fail["check_methods_subset_invariance"] = reason
    return may_fail


@pytest.mark.filterwarnings("ignore")  # the checks know no roles, and every default warns
@parametrize_with_checks(
    public_estimators(), expected_failed_checks=expected_failures, xfail_strict=False
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [each for each in public_estimators() if _reads_lists(each)],
    ids=lambda each: type(each).__name__,
)
def test_impressions_are_copies_where_list_and_position_are_named(estimator):
    """The data of scikit-learn's check, each row a list, without rows of weight 0."""
    rng = np.random.RandomState(42)
    X = rng.rand(15, 30)
    y = rng.randint(0, 3, size=15) / 2  # rates: whole numbers beside impressions are counts
    weight = rng.randint(1, 5, size=15)
    copies = np.repeat(np.arange(15), weight)
    position = np.arange(15) % 4 + 1
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    scores = [
        clone(estimator)
        .fit(
            X[rows],
            y[rows],
            impressions=given,
            session=np.arange(len(rows)),
            position=position[rows],
        )
        .predict(X)
        for rows, given in ((np.arange(15), weight.astype(float)), (copies, None))
    ]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-6)


def _checks(subjects, check):
    """Every check of every subject as a parameter of a test."""
    return [
        pytest.param(each, id=f"{subject}-{name}".replace(" ", ""))
        for subject in subjects
        for name, each in check(subject, generate_only=True)
    ]


# The logs of these checks are small on purpose.
@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize("check", _checks(public_rankers(), check_ranker))
def test_ranker_checks(check):
    check()


@pytest.mark.parametrize("check", _checks(public_click_models(), check_click_model))
def test_click_model_checks(check):
    check()


@pytest.mark.parametrize("check", _checks(public_propensities(), check_propensity))
def test_propensity_checks(check):
    check()


@pytest.mark.parametrize("check", _checks(public_users(), check_user))
def test_user_checks(check):
    check()


def _names(subjects):
    return {type(each).__name__ for each in subjects}


def test_everything_public_is_discovered():
    assert {"NaiveRanker", "IPSRanker", "DLARanker"} <= _names(public_rankers())
    assert {"DCTRModel", "PBMModel", "UBMModel"} <= _names(public_click_models())
    assert {"PowerLawPropensity", "RandomizedPropensity"} <= _names(public_propensities())
    assert {"PositionBasedUser", "UserPopulation"} <= _names(public_users())
