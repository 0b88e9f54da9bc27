"""Any estimator as the learner: LightGBM's rankers, regressors, pipelines, and what is refused."""

import pickle

import numpy as np
import pytest
from lightgbm import LGBMRanker, LGBMRegressor
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr.rankers._learners import LambdaObjective, PairObjective, fit_learner

QUICK = {"n_estimators": 30, "n_jobs": 1, "verbosity": -1}


def _data(n_queries=60, length=12, seed=0):
    """Labels are noiseless fractions that depend on the first feature, by a shift a query."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries), length)
    features = rng.normal(size=(len(query), 4)).astype(np.float32)
    labels = expit(2 * features[:, 0] + rng.normal(size=n_queries)[query])
    return features, labels, rng.uniform(1, 5, len(query)), query


def _concordance(score, labels, query):
    """Share of the pairs of a query that are in the right order."""
    same = query[:, None] == query
    better = same & (labels[:, None] > labels)
    return (score[:, None] > score)[better].mean()


@pytest.mark.parametrize(
    "estimator",
    [
        LGBMRanker(**QUICK),
        LGBMRanker(**QUICK, objective="rank_xendcg"),
        LGBMRegressor(**QUICK),
        HistGradientBoostingRegressor(max_iter=30),
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(StandardScaler(), LGBMRanker(**QUICK)),
        make_pipeline(Ridge()),
    ],
    ids=lambda estimator: str(estimator)[:40],
)
def test_learners_order_documents_by_fractional_labels(estimator):
    features, labels, weight, query = _data()
    fitted = fit_learner(estimator, features, labels, weight, query, random_state=0)
    assert fitted is not estimator
    assert not hasattr(estimator, "n_features_in_")
    assert _concordance(fitted.predict(features), labels, query) > 0.9


def test_regressors_get_the_weights():
    features, labels, weight, query = _data()
    fitted = fit_learner(Ridge(), features, labels, weight, query, random_state=0)
    expected = Ridge().fit(features, labels, sample_weight=weight)
    np.testing.assert_array_equal(fitted.predict(features), expected.predict(features))
    in_pipeline = fit_learner(
        make_pipeline(StandardScaler(), Ridge()), features, labels, weight, query, random_state=0
    )
    scaled = StandardScaler().fit_transform(features)
    expected = Ridge().fit(scaled, labels, sample_weight=weight).predict(scaled)
    np.testing.assert_allclose(in_pipeline.predict(features), expected)


def test_pipeline_with_a_memory(tmp_path):
    features, labels, weight, query = _data()
    pipeline = make_pipeline(StandardScaler(), Ridge(), memory=str(tmp_path))
    fitted = fit_learner(pipeline, features, labels, weight, query, random_state=0)
    pipeline.memory = None
    expected = fit_learner(pipeline, features, labels, weight, query, random_state=0)
    np.testing.assert_allclose(fitted.predict(features), expected.predict(features))


def test_rankers_see_queries_in_any_order_of_the_rows():
    features, labels, weight, query = _data()
    ranker = LGBMRanker(**QUICK)
    expected = fit_learner(ranker, features, labels, weight, query, random_state=0)
    order = np.random.default_rng(0).permutation(len(query))
    shuffled = fit_learner(
        ranker, features[order], labels[order], weight[order], query[order], random_state=0
    )
    np.testing.assert_array_equal(shuffled.predict(features), expected.predict(features))
    one_query = fit_learner(ranker, features, labels, weight, 0 * query, random_state=0)
    assert not np.allclose(one_query.predict(features), expected.predict(features))


@pytest.mark.parametrize("objective", [None, "rank_xendcg"])
def test_a_query_longer_than_lightgbm_allows(objective):
    features, labels, weight, query = _data(n_queries=1, length=20_000)
    ranker = LGBMRanker(**{**QUICK, "n_estimators": 5}, objective=objective)
    fitted = fit_learner(ranker, features, labels, weight, query, random_state=0)
    first = np.argsort(-fitted.predict(features))[:100]
    assert labels[first].mean() > labels.mean() + 0.2


def test_the_fitted_ranker_is_what_the_user_asked_for():
    features, labels, weight, query = _data()
    ranker = LGBMRanker(**QUICK, lambdarank_truncation_level=2)
    fitted = fit_learner(ranker, features, labels, weight, query, random_state=0)
    assert fitted.objective is None
    same = LGBMRanker(**QUICK, objective=LambdaObjective(2))
    expected = fit_learner(same, features, labels, weight, query, random_state=0)
    np.testing.assert_array_equal(fitted.predict(features), expected.predict(features))
    deeper = fit_learner(LGBMRanker(**QUICK), features, labels, weight, query, random_state=0)
    assert not np.allclose(fitted.predict(features), deeper.predict(features))


def test_pairs_teach_a_ranker_and_stay_out_of_its_pickle():
    features, labels, weight, query = _data()
    i, j = np.divmod(np.arange(len(query) * 12), 12)
    j += 12 * (i // 12)
    better = labels[i] > labels[j]
    objective = PairObjective(i[better], j[better], np.ones(better.sum()))
    shuffle = np.random.default_rng(0).permutation(len(query))
    fitted = fit_learner(
        LGBMRanker(**QUICK),
        features[shuffle],
        np.zeros(len(query)),
        weight,
        query[shuffle],
        random_state=0,
        objective=objective.reordered(shuffle),
    )
    assert _concordance(fitted.predict(features), labels, query) > 0.9
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(features), fitted.predict(features))
    assert b"PairObjective" not in pickle.dumps(fitted)


def test_few_rows_and_constant_features_are_no_error():
    ranker = LGBMRanker(**QUICK)
    labels, query = np.array([0.1, 0.9, 0.5]), np.zeros(3, dtype=int)
    for features in (np.arange(3.0)[:, None], np.ones((3, 2))):
        fitted = fit_learner(ranker, features, labels, np.ones(3), query, random_state=0)
        assert np.ptp(fitted.predict(features)) == 0


def test_seeds_reach_what_has_none():
    features, labels, weight, query = _data()
    sampled = LGBMRanker(**QUICK, subsample=0.5, subsample_freq=1)
    first, same, other = (
        fit_learner(sampled, features, labels, weight, query, random_state=seed).predict(features)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    pipeline = make_pipeline(StandardScaler(), SGDRegressor())
    fitted = fit_learner(pipeline, features, labels, weight, query, random_state=7)
    assert fitted[-1].random_state == 7
    own = make_pipeline(StandardScaler(), SGDRegressor(random_state=3))
    fitted = fit_learner(own, features, labels, weight, query, random_state=7)
    assert fitted[-1].random_state == 3


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (KNeighborsRegressor(), "KNeighborsRegressor takes no sample_weight"),
        (make_pipeline(StandardScaler(), KNeighborsRegressor()), "takes no sample_weight"),
        (LogisticRegression(), "LogisticRegression is a classifier"),
    ],
)
def test_what_cannot_learn_says_so(estimator, message):
    with pytest.raises(ValueError, match=message):
        fit_learner(estimator, *_data(), random_state=0)


def test_regressors_cannot_learn_from_pairs():
    features, labels, weight, query = _data()
    pairs = PairObjective(np.array([0]), np.array([1]), np.ones(1))
    with pytest.raises(ValueError, match="Ridge cannot learn from pairs"):
        fit_learner(Ridge(), features, labels, weight, query, random_state=0, objective=pairs)
