"""What scorers of held-out clicks are given: propensities, frames, arrays, searches, faults."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_validate

from skultr.exceptions import ClickDataWarning
from skultr.metrics import ClickLikelihoodScorer, IPSScorer
from skultr.model_selection import QueryKFold
from skultr.propensity import PowerLawPropensity

from .._worlds import EXAMINATION, Linear, examined, lists_of_three

ROLES = ["qid", "session", "position", "impressions"]

pytestmark = pytest.mark.parametrize("scorer", [IPSScorer, ClickLikelihoodScorer])


def world(n_queries=40, seed=0):
    """Aggregated lists of three shown documents and a candidate, and their click rates."""
    X, relevance = lists_of_three(n_queries, seed)
    return X, relevance * examined(X)


def test_order_of_the_rows_does_not_matter(scorer):
    X, rate = world()
    order = np.random.default_rng(1).permutation(len(X))
    scorer = scorer(propensity=EXAMINATION)
    found = scorer.estimate(Linear(), X.iloc[order], rate[order])
    assert_allclose(found, scorer.estimate(Linear(), X, rate), rtol=1e-5)


# Where propensities come from ----------------------------------------------------------------
def test_the_role_and_estimators(scorer):
    X, rate = world()
    power = 1 / np.arange(1, 4)
    expected = scorer(propensity=power)(Linear(), X, rate)
    role = X.assign(propensity=power[X["position"].fillna(1).astype(int) - 1])
    assert_allclose(scorer()(Linear(), role, rate), expected)
    assert_allclose(scorer(propensity="column")(Linear(), role, rate), expected)
    without_positions = role[role["position"].notna()].drop(columns="position")
    shown = rate[X["position"].notna()]
    found = scorer()(Linear(), without_positions, shown)
    if scorer is IPSScorer:  # which also ranks the candidates that were not shown
        assert np.isfinite(found)
    else:
        assert_allclose(found, expected)
    estimated = scorer(propensity=PowerLawPropensity(eta=1.0))
    assert_allclose(estimated(Linear(), X, rate), expected)


def test_a_frozen_estimator_is_not_fitted_again(scorer):
    X, rate = world()

    class FitsOnce(PowerLawPropensity):
        n_fits = 0

        def fit(self, X, y, sample_weight=None, **roles):
            FitsOnce.n_fits += 1
            return super().fit(X, y, sample_weight, **roles)

    fitted = FitsOnce(eta=1.0).fit(X, rate)
    found = scorer(propensity=FrozenEstimator(fitted))(Linear(), X, rate)
    assert_allclose(found, scorer(propensity=1 / np.arange(1, 4))(Linear(), X, rate))
    assert FitsOnce.n_fits == 1


def test_propensities_are_never_assumed(scorer):
    """The estimator that the message names reads any log, also one whose features are text."""
    named = r'RegressionEMPropensity\(relevance="embedding"\)'
    with pytest.raises(ValueError, match=f"{scorer.__name__} needs propensities.*{named}"):
        scorer()(Linear(), *world())


# Scores in place of an estimator ---------------------------------------------------------------
@pytest.mark.parametrize("scores", [lambda X: X["bm25"].to_numpy(), lambda X: "bm25"])
def test_scores_of_the_rows_are_a_ranking(scorer, scores):
    X, rate = world()
    scorer = scorer(propensity=EXAMINATION)
    assert_allclose(scorer.estimate(scores(X), X, rate), scorer.estimate(Linear(), X, rate))
    named = scorer.estimate(scores(X), X.assign(click=rate), "click")
    assert_allclose(named, scorer.estimate(Linear(), X, rate))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.5, 0.1], r"scores of the estimator have the shape \(2,\)"),
        ("elo", "no column 'elo'"),
        (["high"] * 160, "scores of the estimator must hold numbers"),
        (None, r"shape \(.*\).* Got a NoneType"),
    ],
)
def test_scores_that_are_none(scorer, scores, message):
    with pytest.raises(ValueError, match=message):
        scorer(propensity=EXAMINATION)(scores, *world())


# Frames, arrays, searches ---------------------------------------------------------------------
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_frames(scorer, library):
    module = pytest.importorskip(library)
    X, rate = world()
    other = module.from_pandas(X) if library == "polars" else module.Table.from_pandas(X)
    scorer = scorer(propensity=EXAMINATION)
    assert_allclose(scorer.estimate(Linear(), other, rate), scorer.estimate(Linear(), X, rate))


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_arrays_with_keywords(scorer, as_matrix):
    X, rate = world()
    scorer = scorer(propensity=EXAMINATION)
    roles = {role: X[role] for role in ROLES}
    found = scorer(Linear(), as_matrix(X[["bm25"]].to_numpy()), rate, **roles)
    assert_allclose(found, scorer(Linear(), X, rate))


def test_grid_search_over_frames(scorer):
    polars = pytest.importorskip("polars")
    X, rate = world()
    scoring = scorer(propensity=EXAMINATION)
    folds = [scoring(Linear(), X.iloc[test], rate[test]) for _, test in QueryKFold(3).split(X)]
    for frame in (X, polars.from_pandas(X)):
        search = GridSearchCV(Linear(), {"factor": [1e-6, 1.0]}, cv=QueryKFold(3), scoring=scoring)
        search.fit(frame, rate)
        assert_allclose(search.cv_results_["mean_test_score"][1], np.mean(folds))


def test_metadata_is_routed_without_a_request(scorer):
    X, rate = world()
    scoring = {"right": scorer(propensity=EXAMINATION), "raw": scorer(propensity=[1, 1, 1])}
    settings = {"cv": QueryKFold(3), "scoring": scoring}
    frames = cross_validate(Linear(), X, rate, **settings)
    with sklearn.config_context(enable_metadata_routing=True):
        params = {role: X[role].to_numpy() for role in ROLES}
        matrix = X[["bm25"]].to_numpy()
        arrays = cross_validate(Linear(), matrix, rate, **settings, params=params)
    for name in ("test_right", "test_raw"):
        assert_allclose(arrays[name], frames[name])


# Bad input ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.drop(columns="qid"), "no column 'qid'"),
        (lambda X: X.drop(columns="position"), "no column 'position'"),
        (lambda X: X.assign(propensity=0.5), "expected one of them"),
        (
            lambda X: X.assign(bm25=X["bm25"].where(X["bm25"] < 1)),
            "scores of the estimator are NaN in .* rows",
        ),
    ],
)
def test_logs_that_are_none(scorer, change, message):
    X, rate = world()
    with pytest.raises(ValueError, match=message):
        scorer(propensity=EXAMINATION)(Linear(), change(X), rate)


def test_no_clicks(scorer):
    X, _ = world()
    scorer = scorer(propensity=EXAMINATION)
    with pytest.warns(ClickDataWarning, match="The log has no click: whatever is learned"):
        estimate = scorer.estimate(Linear(), X, np.zeros(len(X)))
    assert np.isnan(estimate.value)
    assert estimate.n_clicks == 0


def test_clicks_on_rows_that_were_not_shown_do_not_count(scorer):
    X, rate = world()
    scorer = scorer(propensity=EXAMINATION)
    with pytest.warns(ClickDataWarning, match="40 rows have a click .*, first in row 3"):
        found = scorer(Linear(), X, np.where(X["position"].isna(), 1.0, rate))
    assert_allclose(found, scorer(Linear(), X, rate))


def test_predictions_of_the_wrong_shape(scorer):
    class Wide(Linear):
        def predict(self, X):
            return np.zeros((len(X), 2))

    with pytest.raises(ValueError, match=r"the estimator have the shape \(160, 2\).* Got a Wide"):
        scorer(propensity=EXAMINATION)(Wide(), *world())


def test_lists_that_a_split_has_cut_are_noticed(scorer):
    X, rate = world(n_queries=200)
    # The lists have four rows each; three of five lists, more than half, lack the second one.
    number, row = np.divmod(np.arange(len(X)), 4)
    kept = (row != 1) | (number % 5 >= 3)
    with pytest.warns(ClickDataWarning, match="lists of several rows have gaps: .* QueryKFold"):
        scorer(propensity=EXAMINATION)(Linear(), X[kept], rate[kept])
