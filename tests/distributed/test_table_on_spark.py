"""debiased_table on PySpark: the same table as in memory, and it stays there."""

import numpy as np
import pytest

from skultr.propensity import InterventionHarvesting, debiased_table

from .._log.test_aggregate_spark import to_spark
from ..propensity.test_debiased_table import (
    CASES,
    CURVE,
    assert_like_labels,
    make_log,
    of_positions,
)

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]  # raised within PySpark


@pytest.mark.parametrize("case", CASES)
def test_spark_agrees_with_the_labels_in_memory(spark, case):
    log = make_log()
    frame = to_spark(spark, log)
    found = debiased_table(frame, CURVE, **CASES[case])
    assert type(found) is type(frame)
    table = assert_like_labels(found, log, of_positions(log), **CASES[case])
    assert sorted(table.groupby("qid")["group"].unique().explode()) == list(range(12))


def test_spark_with_curves_of_users_and_with_a_column(spark):
    log = make_log(strings=False)
    estimator = InterventionHarvesting(user="user").fit(log, "click")
    of_rows = estimator.predict(log)
    assert_like_labels(debiased_table(to_spark(spark, log), estimator), log, of_rows)
    frame = to_spark(spark, log.assign(propensity=of_rows))
    assert_like_labels(debiased_table(frame), log, of_rows)


def test_spark_names_faults(spark):
    log = make_log().assign(propensity=lambda log: np.where(log["position"] > 1, 0.0, 1.0))
    with pytest.raises(ValueError, match="who clicked a row has examined it"):
        debiased_table(to_spark(spark, log))
    with pytest.raises(ValueError, match="positions up to 4"):
        debiased_table(to_spark(spark, log.drop(columns="propensity")), CURVE[:3])
