"""aggregate_clicks on PySpark: the same results as everywhere."""

import os
import re
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skultr import aggregate_clicks

from .test_aggregate import LOGS, as_oracle, assert_same, make_documents, make_log, oracle

pytestmark = [
    pytest.mark.scale,
    # Raised within PySpark and Py4J, which nothing here can change.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("PySpark needs Java")
    session = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    yield session
    session.stop()


def to_spark(spark, log):
    """The log in Spark, with nulls (not NaN) where values are missing."""
    rows = log.astype(object).where(log.notna(), None)
    kinds = {"i": "bigint", "f": "double"}
    schema = ", ".join(f"{name} {kinds.get(log[name].dtype.kind, 'string')}" for name in log)
    return spark.createDataFrame(rows.values.tolist(), schema)


@pytest.mark.parametrize("name", LOGS)
def test_spark_agrees_with_the_oracle_and_with_pandas(spark, name):
    X, click_rate = aggregate_clicks(to_spark(spark, LOGS[name]))
    assert_same(as_oracle(X, click_rate), oracle(LOGS[name]))
    expected, expected_rate = aggregate_clicks(LOGS[name])
    pd.testing.assert_frame_equal(X.to_pandas().astype(expected.dtypes), expected)
    np.testing.assert_allclose(click_rate, expected_rate, rtol=1e-12)


def test_spark_with_documents_and_nan_positions(spark):
    log = LOGS["random"]
    X, _ = aggregate_clicks(spark.createDataFrame(log), make_documents(log))
    expected, _ = aggregate_clicks(log, make_documents(log))
    pd.testing.assert_frame_equal(X.to_pandas().astype(expected.dtypes), expected)


@pytest.mark.parametrize("role", ["qid", "doc", "session"])
def test_spark_names_missing_ids(spark, role):
    log = make_log(never=False)
    log[role] = log[role].astype(object)
    log.loc[0, role] = None
    with pytest.raises(ValueError, match=f"'{role}' is missing"):
        aggregate_clicks(to_spark(spark, log))


def test_recipe_of_the_cookbook(spark):
    page = Path(__file__).parents[2] / "docs" / "user_guide" / "cookbook.rst"
    section = page.read_text().split("\nSpark\n=====\n")[1]
    recipe = re.search(r"code-block:: python\n\n(.*?)\n\n(?=\S)", section, re.DOTALL).group(1)
    pages = spark.createDataFrame(
        [("tent", "p1", ["a", "b"], ["b"]), ("tent", "p2", ["b", "a"], [])],
        "query string, page string, shown array<string>, clicked array<string>",
    )
    names = {"pages": pages}
    exec(textwrap.dedent(recipe), names)
    rows = names["log"].select("session", "doc", "position", "click").collect()
    first, second = [("p1", "a", 1, 0), ("p1", "b", 2, 1)], [("p2", "a", 2, 0), ("p2", "b", 1, 0)]
    assert sorted(tuple(row) for row in rows) == first + second
    X, _ = aggregate_clicks(names["log"])
    assert len(X) == 4
