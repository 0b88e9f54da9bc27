"""Estimators on frames of PySpark: the same results as on the same log in memory."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skultr._log import _joined_logs
from skultr.click_models import PBMModel
from skultr.identifiability import IdentifiabilityRepair
from skultr.propensity import (
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
    relevance_labels,
)

from .test_aggregate_spark import pytestmark, spark, to_spark
from .test_counted import ENGINES, LOG, quietly
from .test_draws import CURVES, LARGE, begins_at, fitted

__all__ = ["begins_at", "pytestmark", "spark"]

COLUMNS = ["qid", "session", "user", "doc", "position", "arm", "click"]


@pytest.mark.parametrize(
    "estimator",
    [
        RegressionEMPropensity(relevance="embedding"),
        InterventionHarvesting(user="user", n_bootstrap=0),
        RandomizedPropensity(n_bootstrap=0),
        RandomizedPropensity(arm="arm", n_bootstrap=0),
        PBMModel(),
    ],
    ids=str,
)
def test_spark_counts_what_memory_counts(estimator, spark):
    log = LOG[COLUMNS[:5] + COLUMNS[6:]] if isinstance(estimator, PBMModel) else LOG[COLUMNS]
    expected = quietly(clone(estimator).fit, log, "click")
    found = quietly(clone(estimator).fit, to_spark(spark, log), "click")
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=1e-9, check_dtype=False
    )
    rtol = 1e-5 if isinstance(estimator, PBMModel) else 1e-9  # an optimiser raises rounding
    np.testing.assert_allclose(found.predict(log), expected.predict(log), rtol=rtol)


def test_spark_in_shards(spark, monkeypatch):
    log = LOG[COLUMNS]
    estimator = RegressionEMPropensity(relevance="embedding")
    expected = quietly(clone(estimator).fit, log, "click")
    monkeypatch.setattr(_joined_logs, "number_of_shards", lambda count: 3)
    found = quietly(clone(estimator).fit, to_spark(spark, log), "click")
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=1e-8, check_dtype=False
    )


def test_spark_counts_labels_and_pairs(spark):
    log = LOG[COLUMNS]
    curve = [1.0, 0.5, 0.3, 0.2]
    expected = quietly(relevance_labels, log, "click", propensity=curve)
    found = quietly(relevance_labels, to_spark(spark, log), "click", propensity=curve)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)
    log = log[(log["doc"] < "d2") == (log["position"] < 3)]
    repair = IdentifiabilityRepair()
    expected = quietly(clone(repair).fit, log, "click")
    found = quietly(clone(repair).fit, to_spark(spark, log), "click")
    pd.testing.assert_frame_equal(found.merges_, expected.merges_, rtol=1e-9)


@pytest.mark.parametrize("name", CURVES)
def test_spark_draws_the_queries_that_others_draw(name, spark, begins_at):
    begins_at(30_000)
    expected, _ = fitted(CURVES[name], ENGINES["duckdb"](LARGE))
    found, told = fitted(CURVES[name], to_spark(spark, LARGE))
    assert told
    assert found.share_of_queries_ == expected.share_of_queries_
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=1e-9, check_dtype=False
    )
