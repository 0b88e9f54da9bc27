"""Propensities of counts: the days add up to the whole log."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skultr import ClickDataset
from skultr.click_models import DCTRModel
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    PowerLawPropensity,
    RandomizedPropensity,
    RegressionEMPropensity,
)
from tests._worlds import FEATURES, random_lists

pytestmark = pytest.mark.filterwarnings("ignore")

ESTIMATORS = [
    RegressionEMPropensity(relevance="embedding"),
    RegressionEMPropensity(relevance="embedding", user="user"),
    RegressionEMPropensity(relevance="embedding", user="segment"),
    DualLearningPropensity(relevance="embedding"),
    InterventionHarvesting(random_state=0, n_bootstrap=20),
    InterventionHarvesting(method="adjacent-chain", n_bootstrap=0),
]


@pytest.fixture(scope="module")
def days():
    log, clicks = random_lists(n_sessions=600, n_queries=40)
    log["user"] = log["segment"] = log["session"] % 2
    day = np.where(log["qid"] < 10, 2, 1 + log["session"] // 2 % 2)
    return [(log[day == each], clicks[day == each]) for each in (1, 2)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_days_add_up_to_the_whole_log(estimator, days):
    X, y = pd.concat([X for X, _ in days]), np.concatenate([y for _, y in days])
    whole = clone(estimator).fit(X, y)
    added = clone(estimator).partial_fit(*days[0]).partial_fit(*days[1])
    pd.testing.assert_frame_equal(
        added.examination_, whole.examination_, rtol=1e-9, check_dtype=False
    )
    np.testing.assert_allclose(added.predict(X), whole.predict(X), rtol=1e-9)


def test_datasets_and_frames_add_up_alike(days, tmp_path):
    X, y = days[1]
    dataset = ClickDataset.from_parquet(
        X.drop(columns="segment").assign(click=y, segment=1.0), path=tmp_path / "day"
    )
    estimator = RegressionEMPropensity(relevance="embedding")
    frames = clone(estimator).partial_fit(*days[0]).partial_fit(X, y)
    mixed = clone(estimator).partial_fit(*days[0]).partial_fit(dataset)
    np.testing.assert_allclose(mixed.predict(X), frames.predict(X), rtol=1e-9)


def test_a_failure_changes_nothing(days):
    estimator = RegressionEMPropensity(relevance="embedding").partial_fit(*days[0])
    before = dict(vars(estimator))
    with pytest.raises(ValueError, match="y"):
        estimator.partial_fit(days[1][0], np.full(len(days[1][1]), np.nan))
    assert vars(estimator) == before
    fitted = RegressionEMPropensity(relevance="embedding").fit(*days[0])
    assert not hasattr(fitted, "_counts")
    with pytest.raises(ValueError, match="Start with partial_fit"):
        fitted.partial_fit(*days[1])


def test_logs_without_positions_are_under_one_factor(days):
    X, y = days[0]
    bare = [(each.drop(columns="position"), of) for each, of in days]
    estimator = InterventionHarvesting(n_bootstrap=0).partial_fit(*bare[0]).partial_fit(*bare[1])
    assert len(estimator.examination_) == 1
    np.testing.assert_array_equal(estimator.predict(X.drop(columns="position")), 1.0)
    with pytest.raises(ValueError, match="Only one of the logs has positions"):
        estimator.partial_fit(X, y)


def test_estimators_that_read_more_have_no_partial_fit():
    for estimator in (RegressionEMPropensity(), RandomizedPropensity(), PowerLawPropensity()):
        assert not hasattr(estimator, "partial_fit")


def test_frames_of_an_engine_add_up_too(days):
    days = [(X.drop(columns=["segment", *FEATURES]), y) for X, y in days]
    lazy = [pl.from_pandas(X.assign(click=y)).lazy() for X, y in days]
    for estimator in (
        RegressionEMPropensity(relevance="embedding"),
        RegressionEMPropensity(relevance="embedding", user="user"),
        DCTRModel(),
    ):
        frames = clone(estimator).partial_fit(*days[0]).partial_fit(*days[1])
        counted = clone(estimator).partial_fit(*days[0]).partial_fit(lazy[1], "click")
        X = days[1][0]
        np.testing.assert_allclose(counted.predict(X), frames.predict(X), rtol=1e-9)
