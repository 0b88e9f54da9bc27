"""Rankers chosen by the clicks that they would get."""

import pickle
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import ClickDataset
from skultr.click_models import PBMModel
from skultr.evaluation import PolicyValueScorer, policy_value
from skultr.exceptions import ClickDataWarning
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.propensity import PowerLawPropensity

from .._worlds import Linear

EXAMINATION = 0.9 / np.arange(1, 4)  # a power law, so that one can be fitted, too
ROLES = ["qid", "session", "doc", "position", "impressions"]


class Features(Ridge):
    """Ridge regression on what is no role."""

    def fit(self, X, y):
        return super().fit(self._features(X), y)

    def predict(self, X):
        return super().predict(self._features(X))

    def _features(self, X):
        return np.column_stack([np.asarray(X[name]) for name in ("bm25", "noise")])


def world(n_queries=60, seed=0):
    """Pages of three documents in every order, each shown 20 times; ``bm25`` knows relevance."""
    rng = np.random.default_rng(seed)
    orders = np.array([*permutations(range(3))])
    query, page, place = (of.ravel() for of in np.mgrid[:n_queries, :6, :3])
    doc = orders[page, place]
    relevance = rng.uniform(0.1, 0.9, (n_queries, 3))[query, doc]
    X = pd.DataFrame(
        {
            "qid": [f"q{number}" for number in query],
            "session": page,
            "doc": [f"d{number}" for number in doc],
            "position": place + 1,
            "impressions": 20.0,
            "bm25": 1e-3 * relevance,
            "noise": np.sin(17.0 * query + 5 * doc),
        }
    )
    return X, rng.binomial(20, relevance * EXAMINATION[place]) / 20


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gain": "dcg", "k": 2},
        {"method": "pbm", "propensity": EXAMINATION},
        {"method": "pbm", "propensity": PowerLawPropensity()},
        # A prior lifts the worst documents, and the default method would tell that it does.
        {"method": "direct", "model": PBMModel(prior=None)},
    ],
    ids=str,
)
def test_the_score_is_the_value_of_the_predictions(options):
    X, y = world()
    for sign in (1, -1):
        expected = policy_value(X, y, sign * X["bm25"], **options).value
        assert PolicyValueScorer(**options)(Linear(sign), X, y) == expected
    assert PolicyValueScorer(**options)(Linear(1), X.assign(click=y), "click") > expected


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search(library, n_jobs):
    X, y = world()
    folds = [
        policy_value(X.iloc[test], y[test], X["bm25"].iloc[test]).value
        for _, test in QueryKFold(3).split(X)
    ]
    frame = pytest.importorskip("polars").from_pandas(X) if library == "polars" else X
    search = GridSearchCV(
        Linear(), {"factor": [-1, 1]}, cv=QueryKFold(3), scoring=PolicyValueScorer(), n_jobs=n_jobs
    ).fit(frame, y)
    assert search.best_params_ == {"factor": 1}
    assert_allclose(search.best_score_, np.mean(folds))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_search_over_a_pipeline(library):
    X, y = world()
    frame = pytest.importorskip("polars").from_pandas(X) if library == "polars" else X
    search = GridSearchCV(
        make_pipeline(OnFeatures(StandardScaler()), Features()),
        {"onfeatures": [OnFeatures(StandardScaler()), "passthrough"]},
        cv=QueryKFold(3),
        scoring=PolicyValueScorer(),
        error_score="raise",
    ).fit(frame, y)
    # Without scaling, the penalty hides a feature whose unit is large.
    assert search.best_index_ == 0
    assert search.cv_results_["mean_test_score"][1] < search.best_score_


def test_fitted_and_frozen_parts_are_used_as_they_are():
    X, y = world()
    fitted = PBMModel().fit(X, y)
    rows = X["qid"].isin([f"q{number}" for number in range(20)])
    scores = [
        PolicyValueScorer("direct", model=model)(Linear(), X[rows], y[rows])
        for model in (fitted, FrozenEstimator(fitted), PBMModel())
    ]
    assert scores[0] == scores[1] != scores[2]


def test_a_dataset(tmp_path):
    X, y = world()
    dataset = ClickDataset.from_parquet(X.assign(click=20 * y), path=tmp_path / "log")
    assert_allclose(
        PolicyValueScorer()(Linear(), dataset), PolicyValueScorer()(Linear(), X, y), rtol=1e-6
    )


def test_metadata_is_routed_without_a_request():
    X, y = world()
    scorer = PolicyValueScorer()
    frames = cross_validate(Linear(), X, y, cv=QueryKFold(3), scoring=scorer)
    with sklearn.config_context(enable_metadata_routing=True):
        roles = {role: X[role].to_numpy() for role in ROLES}
        features = X[["bm25"]].to_numpy()
        arrays = cross_validate(
            Linear(), features, y, cv=QueryKFold(3), scoring=scorer, params=roles
        )
    assert_allclose(arrays["test_score"], frames["test_score"])
    assert_allclose(scorer(Linear(), features, y, **roles), scorer(Linear(), X, y))
    heavy = np.where(X["qid"] < "q3", 2.0, 1.0)
    weighted = scorer(Linear(), X, y, sample_weight=heavy)
    assert_allclose(weighted, policy_value(X, y, X["bm25"], sample_weight=heavy).value)
    assert weighted != scorer(Linear(), X, y)


def test_where_the_clicks_cannot_tell():
    X, y = world()
    few = X["qid"].isin(["q0", "q1"])
    with pytest.warns(
        ClickDataWarning, match="score is NaN: cannot tell: the effective number of"
    ):
        assert np.isnan(PolicyValueScorer()(Linear(), X[few], y[few]))
    one = X["session"] == 0  # documents never move
    X, y = X[one], y[one]
    search = GridSearchCV(
        Linear(), {"factor": [1, -1]}, cv=QueryKFold(2), scoring=PolicyValueScorer(), refit=False
    )
    with pytest.warns(UserWarning, match="cannot tell|non-finite"):
        search.fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()


def test_pickle_clone_and_repr():
    X, y = world()
    scorer = PolicyValueScorer("pbm", propensity=EXAMINATION, gain="dcg", k=2)
    search = sklearn.clone(GridSearchCV(Linear(), {"factor": [1]}, scoring=scorer))
    for copy in (pickle.loads(pickle.dumps(scorer)), search.scoring):
        assert repr(copy) == repr(scorer)
        assert copy(Linear(), X, y) == scorer(Linear(), X, y)
    assert repr(PolicyValueScorer(k=3)).startswith("PolicyValueScorer(method=")
    assert "k=3" in repr(PolicyValueScorer(k=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ips"}, "'method' parameter of PolicyValueScorer"),
        ({"k": 0}, "'k' parameter"),
        ({"k": [1, 5]}, "'k' parameter"),
        ({"gain": "ndcg"}, "'gain' parameter"),
        ({"propensity": "positions"}, "'propensity' parameter"),
        ({"model": 3}, "'model' parameter"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        PolicyValueScorer(**options)


def test_wrong_logs_and_predictions():
    X, y = world()
    scorer = PolicyValueScorer()

    class Holes(Linear):
        def predict(self, X):
            return np.where(np.arange(len(X)) == 3, np.nan, super().predict(X))

    class Short(Linear):
        def predict(self, X):
            return super().predict(X)[1:]

    for ranker in (Holes(), Short()):
        with pytest.raises(ValueError, match="one number per row"):
            scorer(ranker, X, y)
    with pytest.raises(ValueError, match="policy_value requires y"):
        scorer(Linear(), X)
    with pytest.raises(ValueError, match="no column 'qid'"):
        scorer(Linear(), X.drop(columns="qid"), y)
    with pytest.raises(TypeError, match="unknown argument 'relevance'"):
        scorer(Linear(), X, y, relevance=y)
    with pytest.raises(ValueError, match="model"):
        PolicyValueScorer("direct")(Linear(), X, y)
