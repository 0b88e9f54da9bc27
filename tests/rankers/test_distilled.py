import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy.special import expit
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor

from skultr.exceptions import AssumptionWarning, NotIdentifiableWarning
from skultr.rankers import (
    DistilledRanker,
    DLARanker,
    EnsembleRanker,
    IPSRanker,
    NaiveRanker,
    RegressionEMRanker,
    TwoTowerRanker,
)

from .._worlds import FEATURES, random_lists, small_log

CURVE = np.array([1.0, 0.5, 0.25])


def _world():
    """Click rates without noise; relevance logistic in the features."""
    log, _ = random_lists(n_sessions=300, n_queries=30, n_documents=5)
    relevance = expit(log[FEATURES].to_numpy() @ [1.0, -1.0, 0.5] - 0.5)
    return log, relevance * CURVE[log["position"] - 1], relevance


class _Recorder(RegressorMixin, BaseEstimator):
    """Keeps what a student is taught."""

    def fit(self, X, y, sample_weight=None):
        self.taught_ = X, y, sample_weight
        return self

    def predict(self, X):
        return X[:, 0]


@pytest.mark.parametrize(
    "teacher",
    [
        None,
        RegressionEMRanker(relevance="embedding"),
        TwoTowerRanker(relevance="embedding"),
        TwoTowerRanker(relevance="embedding", link="additive"),
    ],
)
def test_student_learns_relevance_weighted_by_impressions(teacher):
    log, rate, relevance = _world()
    log = log.assign(impressions=1 + log["session"] % 3)
    ranker = DistilledRanker(teacher, _Recorder(), random_state=0).fit(log, rate)
    features, taught, weight = ranker.student_.taught_
    by_doc = log.assign(r=relevance).groupby("doc")
    np.testing.assert_allclose(features, by_doc[FEATURES].first().to_numpy(), rtol=1e-6)
    np.testing.assert_array_equal(weight, by_doc["impressions"].sum())
    truth = by_doc["r"].first().to_numpy()
    if getattr(teacher, "link", "product") == "product":
        np.testing.assert_allclose(taught / taught[0], truth / truth[0], rtol=1e-3)
    else:
        assert np.corrcoef(taught, truth)[0, 1] > 0.9
    assert (ranker.predict(log) == log["f0"].astype(np.float32)).all()


def test_trees_recover_the_order_of_relevance():
    log, rate, relevance = _world()
    student = LGBMRegressor(n_estimators=50, min_child_samples=5, n_jobs=1, verbosity=-1)
    score = DistilledRanker(student=student, random_state=0).fit(log, rate).predict(log)
    assert pd.Series(score).corr(pd.Series(relevance), method="spearman") > 0.8


def test_default_is_the_setting_of_the_paper():
    teacher = DistilledRanker(student=LinearRegression()).fit(*random_lists()).teacher_
    assert (type(teacher), teacher.relevance) == (DLARanker, "embedding")
    student = DistilledRanker().fit(*random_lists()).student_.get_params()
    assert (student["n_estimators"], student["num_leaves"], student["learning_rate"]) == (
        500,
        255,
        0.1,
    )


def test_unseen_documents_are_scored_by_their_features():
    log, rate, _ = _world()
    ranker = DistilledRanker(student=LinearRegression(), random_state=0).fit(log, rate)
    unseen = pd.DataFrame([[2.0, -2, 1], [-2, 2, -1]], columns=FEATURES)
    good, bad = ranker.predict(unseen.assign(doc=[1000, 1001], qid=0))
    assert good > bad
    assert ranker.rank(unseen.assign(qid=0)).tolist() == [1, 2]


def test_never_shown_candidates_teach_nothing():
    log, rate, _ = _world()
    never = log.iloc[:2].assign(doc=[1000, 1001], position=np.nan, f0=99.0)
    both = pd.concat([log, never], ignore_index=True)
    ranker = DistilledRanker(student=_Recorder()).fit(both, np.append(rate, [0, 0]))
    features, _, weight = ranker.student_.taught_
    assert features[:, 0].max() < 99
    assert weight.sum() == len(log)


@pytest.mark.parametrize(
    "teacher",
    [
        NaiveRanker(max_epochs=2),
        IPSRanker(max_epochs=2),
        DLARanker(max_epochs=2),
        RegressionEMRanker(max_epochs=2),
        DistilledRanker(student=LinearRegression()),
    ],
    ids=lambda teacher: type(teacher).__name__,
)
def test_any_ranker_may_teach(teacher):
    log, clicks = random_lists()
    log["propensity"] = 1 / log["position"]
    ranker = DistilledRanker(teacher, LinearRegression(), random_state=0).fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()
    expected = clone(ranker.teacher_).fit(log, clicks).predict(log)
    score = ranker.teacher_.predict(log[FEATURES].to_numpy())
    np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)


def test_zero_weights_leave_rows_out():
    log, rate, _ = _world()
    kept = (log["doc"] >= 10).to_numpy()
    ranker = DistilledRanker(student=LinearRegression(), random_state=0)
    weighted = clone(ranker).fit(log, rate * kept, sample_weight=kept.astype(float))
    expected = clone(ranker).fit(log[kept], rate[kept])
    ratio = weighted.predict(log) / expected.predict(log)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


def test_seeds_reach_teacher_and_student_that_have_none():
    log, clicks = random_lists()
    ranker = DistilledRanker(DLARanker(max_epochs=1), SGDRegressor(), random_state=3)
    first, second = clone(ranker).fit(log, clicks), clone(ranker).fit(log, clicks)
    np.testing.assert_array_equal(first.predict(log), second.predict(log))
    assert first.teacher_.random_state == second.teacher_.random_state is not None
    own = DistilledRanker(DLARanker(max_epochs=1, random_state=7), SGDRegressor(random_state=8))
    own.fit(log, clicks)
    assert (own.teacher_.random_state, own.student_.random_state) == (7, 8)
    assert ranker.teacher.random_state is None  # what was passed stays as it was


def test_warning_of_the_teacher_points_at_the_user():
    log, clicks = small_log()
    ranker = DistilledRanker(student=LinearRegression())
    with pytest.warns(NotIdentifiableWarning, match="4 components") as caught:
        ranker.fit(log, clicks)
    assert [warning.filename for warning in caught] == [__file__]


def test_what_cannot_teach_or_learn_says_so():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="'teacher' parameter of DistilledRanker"):
        DistilledRanker(teacher=LinearRegression()).fit(log, clicks)
    with pytest.raises(ValueError, match="sample_weight"):
        DistilledRanker(student=KNeighborsRegressor()).fit(log, clicks)
    with pytest.raises(ValueError, match="0 feature columns"):
        DistilledRanker().fit(log.drop(columns=FEATURES), clicks)
    with pytest.raises(NotFittedError):
        DistilledRanker().predict(log)


def _ensemble():
    """A teacher of one member whose weights come fast."""
    return EnsembleRanker([("naive", NaiveRanker(max_epochs=1))], propensity=CURVE)


def _served_by_a_hidden_signal():
    """A log whose clicks follow the score of production, which no feature knows."""
    log, _ = random_lists(n_sessions=600, n_queries=30, n_documents=5)
    score = np.random.default_rng(0).normal(size=log["doc"].max() + 1)[log["doc"]]
    rng = np.random.default_rng(1)
    clicks = rng.binomial(1, expit(3 * score) * CURVE[log["position"] - 1])
    # The score of a document varies from page to page.
    return log.assign(production=score + rng.normal(0, 0.5, len(log))), clicks


def test_the_teacher_gets_the_score_of_production():
    log, clicks = _served_by_a_hidden_signal()
    ranker = DistilledRanker(_ensemble(), _Recorder(), random_state=0)
    with pytest.warns(AssumptionWarning, match="gives the production ranker the weight"):
        ranker.fit(log, clicks)
    assert ranker.teacher_.weights_["weight"]["production"] > 0.3
    assert ranker.roles_["production"] == "production"
    _, taught, _ = ranker.student_.taught_
    mean = log.groupby("doc")[[*FEATURES, "qid", "production"]].mean()
    expected = ranker.teacher_.predict(
        mean[FEATURES].to_numpy(), qid=mean["qid"], production=mean["production"]
    )
    assert np.corrcoef(taught, expected)[0, 1] > 0.93  # merged pages count once
    assert mean["production"].corr(pd.Series(taught, mean.index)) > 0.7


def test_a_student_that_has_the_score_as_a_feature_is_not_warned_of(recwarn):
    log, clicks = _served_by_a_hidden_signal()
    log["own_score"] = log.groupby("doc")["production"].transform("mean")
    DistilledRanker(_ensemble(), LinearRegression(), random_state=0).fit(log, clicks)
    assert not [each for each in recwarn if "production ranker" in str(each.message)]


def test_other_teachers_do_not_read_the_score_of_production():
    log, clicks = _served_by_a_hidden_signal()
    ranker = DistilledRanker(NaiveRanker(max_epochs=1), LinearRegression(), random_state=0)
    assert ranker.fit(log, clicks).roles_["production"] == "ignored role"
