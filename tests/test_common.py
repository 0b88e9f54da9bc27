"""scikit-learn's own checks over every public estimator, and ours over every ranker."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skultr.testing import check_ranker

from ._discovery import public_click_models, public_estimators, public_rankers

_LISTWISE = (
    "the check drops and repeats rows of one list: a list with a row less or more shows other "
    "documents at other positions and is another list; training is stochastic besides"
)
_UNIDENTIFIED = (
    "the check's log shows every document in one place: relevance is not determined, and where "
    "the embedding starts depends on the number of positions, which the check changes"
)
_CANDIDATES = (
    "a row of weight 0 is a candidate that was not shown, from which this ranker learns; the "
    "check takes it for no row"
)
_WEIGHT_REASONS = {
    "CACMModel": _LISTWISE,
    "CCMModel": _LISTWISE,
    "CascadeModel": _LISTWISE,
    "DBNModel": _LISTWISE,
    "DCMModel": _LISTWISE,
    "AffineRanker": _LISTWISE,
    "CLDRanker": _CANDIDATES,
    "HeckmanRanker": _CANDIDATES,
    "RankAggRanker": _CANDIDATES,
    "DLARanker": _LISTWISE,
    "DistilledRanker": _UNIDENTIFIED,
    "IPSRanker": _LISTWISE,
    "NCMModel": _LISTWISE,
    "NaiveRanker": _LISTWISE,
    "PBMModel": _LISTWISE,
    "PRSRanker": _LISTWISE,
    "RDCTRModel": _LISTWISE,
    "UBMModel": _LISTWISE,
    "PairDebiasRanker": _LISTWISE,
    "UserAwareIPSRanker": _LISTWISE,
    "VectorizationRanker": _LISTWISE,
}
#: Click models have another score, minus perplexity.
_NOT_OF_CLICK_MODELS = {"check_rank_and_score"}
#: Which rows were clicked together is lost in an aggregated log.
_OF_WHOLE_LISTS = {
    (name, "check_impressions")
    for name in (
        "CACMModel",
        "CCMModel",
        "CascadeModel",
        "DBNModel",
        "DCMModel",
        "NCMModel",
        "UBMModel",
    )
}
_OTHER_REASONS = {
    "RankAggRanker": {
        "check_methods_subset_invariance": "a score is a rank among the candidates of the query"
    },
    "VectorizationRanker": {
        "check_methods_subset_invariance": (
            "a score depends on the candidates of the query, through the base vector; the check "
            "knows no queries, and a subset of its rows is another query"
        )
    },
}


def _expected_failures(estimator):
    name = type(estimator).__name__
    expected = dict(_OTHER_REASONS.get(name, {}))
    if name in _WEIGHT_REASONS:
        for data in ("dense", "sparse"):
            check = f"check_sample_weight_equivalence_on_{data}_data"
            expected[check] = _WEIGHT_REASONS[name]
    return expected


@pytest.mark.filterwarnings("ignore")  # the checks know no roles, and every default warns
@parametrize_with_checks(
    public_estimators(), expected_failed_checks=_expected_failures, xfail_strict=True
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{type(ranker).__name__}-{name}")
        for ranker in public_rankers()
        for name, check in check_ranker(ranker, generate_only=True)
    ],
)
def test_ranker_checks(check):
    check()


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{type(model).__name__}-{name}")
        for model in public_click_models()
        for name, check in check_ranker(model, generate_only=True)
        if name not in _NOT_OF_CLICK_MODELS and (type(model).__name__, name) not in _OF_WHOLE_LISTS
    ],
)
def test_click_model_checks(check):
    check()


def test_click_models_are_discovered():
    names = {type(model).__name__ for model in public_click_models()}
    assert {"DCTRModel", "PBMModel", "UBMModel", "DBNModel", "CCMModel"} <= names


def test_rankers_are_discovered():
    names = {type(ranker).__name__ for ranker in public_rankers()}
    assert {"NaiveRanker", "IPSRanker", "DLARanker", "DistilledRanker"} <= names


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda e: type(e).__name__)
def test_constructor_is_no_longer_than_that_of_a_network(estimator):
    """Or the docstring says why."""
    longest = 23  # about as many as MLPRegressor has
    n_parameters = len(estimator.get_params(deep=False))
    reason = f"There are more than {longest} parameters, because"
    assert n_parameters <= longest or reason in " ".join(type(estimator).__doc__.split())
