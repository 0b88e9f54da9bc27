"""Propensities of counts: the days add up to the whole log."""

import pickle

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


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_partial_fit_goes_on_after_fit_and_in_its_own_pickles(estimator, days):
    fitted, begun = clone(estimator).fit(*days[0]), clone(estimator).partial_fit(*days[0])
    loaded = [pickle.loads(pickle.dumps(each)) for each in (fitted, begun)]
    with pytest.raises(ValueError, match="Start with partial_fit"):
        loaded[0].partial_fit(*days[1])
    tables = [each.partial_fit(*days[1]).examination_ for each in (fitted, begun, loaded[1])]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])


def test_documents_without_ids_add_up_by_their_features(days, tmp_path):
    days = [(X.drop(columns=["doc", "segment"]), y) for X, y in days]
    estimator = InterventionHarvesting(n_bootstrap=0)
    X, y = pd.concat([X for X, _ in days]), np.concatenate([y for _, y in days])
    whole = clone(estimator).fit(X, y).examination_
    stored = [
        ClickDataset.from_parquet(X.assign(click=y), path=tmp_path / str(n))
        for n, (X, y) in enumerate(days)
    ]
    for first, second in (days, [(each,) for each in stored]):
        added = clone(estimator).fit(*first).partial_fit(*second).examination_
        pd.testing.assert_frame_equal(added, whole, check_dtype=False)


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
