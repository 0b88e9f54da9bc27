"""Local clusters of two processes, which are gone when the tests of this folder are done."""

import os
import shutil
import sys

import pytest


@pytest.fixture(scope="package")
def client():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(host="127.0.0.1", silence_logs=50, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("PySpark needs Java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # else any python3 that comes first
        session = (
            sql.SparkSession.builder.master("local[2]")  # one slot per process of XGBoost
            .config("spark.ui.enabled", False)
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", 2)
            .getOrCreate()
        )
        yield session
        session.stop()
