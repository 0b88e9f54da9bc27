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

#: Why an integer weight is not as many copies of a row in scikit-learn's check, whose rows have no
#: roles: all are one list, at positions in row order, so that a copy changes that list. The test
#: below shows that weights are copies wherever the list and position of each row are named.
_WEIGHTS = {
    "AffineRanker": "a copy of a row stands at the next position, with other trust parameters",
    "CACMModel": "its examination network reads the rows above, and a copy is one more of them",
    "CLDRanker": "a copy stands at a position of another propensity, and a row of weight 0 is a "
    "candidate that was not shown, from which this ranker learns",
    "CascadeModel": "rows below the first click are not examined, and a copy may be that click",
    "DBNModel": "a copy of the last click tells that its first copy did not satisfy",
    "DCMModel": "continuation depends on the position of a click, and copies shift the positions",
    "DCTRModel": "its prior counts impressions, of which a copy is one more; weights are relative "
    "to their mean",
    "DLARanker": "a copy of a row stands at the next position, whose examination is one more "
    "parameter",
    "DistilledRanker": "its teacher is a DLARanker, see there; the student, which splits no 15 "
    "rows, scores all by the mean relevance, of unknown scale",
    "EnsembleRanker": "a copy of a row stands at the next position, whose propensity is smaller",
    "HeckmanRanker": "a row of weight 0 is a candidate that was not shown, from which this ranker "
    "learns; the check takes it for no row",
    "IPSRanker": "a copy of a row stands at the next position, whose propensity is smaller",
    "NCMModel": "its recurrent network reads the list from the top, and a copy is one more step",
    "NaiveRanker": "a copy is one more candidate in the softmax over a list, a weight is not "
    "(with loss='bce' or 'mse' the check passes)",
    "PBMModel": "a copy of a row stands at the next position, with another examination",
    "PRSRanker": "a copy of a row stands at the next position, and pairs are weighted by the "
    "ratio of the propensities of their positions",
    "PairDebiasRanker": "a copy stands at the next position, with another ratio of bias, and "
    "forms pairs with all rows",
    "RDCTRModel": "click rates are counted by document and position, and copies stand at other "
    "positions",
    "RankAggRanker": "its member HeckmanRanker learns from a row of weight 0, see there",
    "UBMModel": "examination depends on the distance to the last click, and copies lie between",
    "UserAwareIPSRanker": "with one user it is an IPSRanker, see there",
    "VectorizationRanker": "a copy of a row stands at the next position, which has another vector",
}
_SUBSETS = {
    "RankAggRanker": "a score is a rank among the candidates of the query, and a subset of the "
    "rows has other candidates",
    "VectorizationRanker": "a score depends on the candidates of the query, through the base "
    "vector, and a subset of the rows has other candidates",
}


def _expected_failures(estimator):
    name = type(estimator).__name__
    expected = {}
    if name in _SUBSETS:
        expected["check_methods_subset_invariance"] = _SUBSETS[name]
    if name in _WEIGHTS:
        for data in ("dense", "sparse"):
            check = f"check_sample_weight_equivalence_on_{data}_data"
            expected[check] = _WEIGHTS[name]
    return expected


@pytest.mark.filterwarnings("ignore")  # the checks know no roles, and every default warns
@parametrize_with_checks(
    public_estimators(), expected_failed_checks=_expected_failures, xfail_strict=True
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(_WEIGHTS))
def test_impressions_are_copies_where_list_and_position_are_named(name):
    """The data of scikit-learn's check, each row a list, without rows of weight 0."""
    rng = np.random.RandomState(42)
    X = rng.rand(15, 30)
    y = rng.randint(0, 3, size=15) / 2  # rates: whole numbers beside impressions are counts
    weight = rng.randint(1, 5, size=15)
    copies, position = np.repeat(np.arange(15), weight), np.arange(15) % 4 + 1
    estimator = next(each for each in public_estimators() if type(each).__name__ == name)
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


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda e: type(e).__name__)
def test_constructor_is_no_longer_than_that_of_a_network(estimator):
    """Or the docstring says why."""
    longest = 23  # about as many as MLPRegressor has
    n_parameters = len(estimator.get_params(deep=False))
    reason = f"There are more than {longest} parameters, because"
    assert n_parameters <= longest or reason in " ".join(type(estimator).__doc__.split())
