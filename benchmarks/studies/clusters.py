"""Trees on two worker processes, beside the same learner in one process.

Two million rows: 200,000 pages of ten from 5,000 queries of 20 documents with 20 features. Each
learner trains on the same debiased table, by the recipe of ``examples/distributed/recipes.py`` and
then alone. Dask's scheduler and workers are started by the commands that a user types; Spark needs
PySpark and Java.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import xgboost
from lightgbm import LGBMRanker

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import InterventionHarvesting, debiased_table
from skultr.serving import export_model
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

from .._study import Page, measured

RECIPES = Path(__file__).parents[2] / "examples" / "distributed" / "recipes.py"
N_POSITIONS = 10


def write_world(folder, settings, seed):
    """Parquet files of a log and of its documents; other documents with grades, and features."""
    n_queries = settings.size(quick=600, full=6_000)
    documents = make_ltr(n_queries, 20, n_features=20, random_state=seed)
    train, test = train_test_queries(documents, test_size=n_queries // 6, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=settings.n_sessions(quick=20_000, full=200_000),
        n_positions=N_POSITIONS,
        policy=PlackettLucePolicy(temperature=0.1),
        user=PositionBasedUser(1 / np.arange(1, N_POSITIONS + 1)),
        features=False,
        random_state=seed,
    )
    log = log.drop(columns="relevance", errors="ignore").assign(click=clicks)
    (folder / "log").mkdir()
    for part in range(8):
        own = log[log["session"] % 8 == part]
        own.to_parquet(folder / "log" / f"{part}.parquet", index=False)
    train = train.drop(columns="relevance")
    train.to_parquet(folder / "documents.parquet", index=False)
    return test, [name for name in train if name.startswith("feature")]


@contextmanager
def dask_cluster():
    """A scheduler and two workers, by Dask's own commands; gives the client."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        named = ["--scheduler-file", str(file), "--no-dashboard"]
        commands = [["scheduler", "--port", "0", *named]]
        commands.append(["worker", *named, "--nworkers", "2", "--nthreads", "1"])
        run = [sys.executable, "-m", "dask"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running = [subprocess.Popen([*run, *each], **quiet) for each in commands]
        try:
            with Client(scheduler_file=str(file), timeout=300) as client:
                client.wait_for_workers(2, timeout=300)
                yield client
        finally:
            for each in reversed(running):
                each.terminate()
                each.wait()


@contextmanager
def spark_session():
    """Spark on this machine, with a slot for each of two processes."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def on_dask(recipe, folder, curve, features):
    import dask.dataframe as dd

    with dask_cluster() as client:
        log = dd.read_parquet(folder / "log")
        documents = dd.read_parquet(folder / "documents.parquet")
        return recipe(debiased_table(log, curve), documents, features, client)


def on_spark(recipe, folder, curve, features):
    with spark_session() as spark:
        log = spark.read.parquet(str(folder / "log"))
        documents = spark.read.parquet(str(folder / "documents.parquet"))
        return recipe(debiased_table(log, curve), documents, features)


def lightgbm_alone(table, features):
    """The recipe's learner on one machine."""
    grade = (30 * table["label"].clip(0, 1)).round().astype(int)
    ranker = LGBMRanker(
        n_estimators=50,
        num_leaves=15,
        label_gain=[step / 30 for step in range(31)],
        n_jobs=1,
        verbose=-1,
    )
    sizes = table.groupby("group").size()
    return ranker.fit(table[features], grade, group=sizes, sample_weight=table["weight"])


def xgboost_alone(table, features):
    """The recipes' learner on one machine."""
    ranker = xgboost.XGBRanker(
        objective="rank:ndcg",
        ndcg_exp_gain=False,
        n_estimators=50,
        max_depth=4,
        learning_rate=0.1,
        n_jobs=1,
    )
    ranker.fit(table[features], table["label"], qid=table["group"])
    return ranker.get_booster()


#: Where it trains, the recipe, and the same learner on one machine.
LEARNERS = {
    "LightGBM on Dask": (on_dask, "lightgbm_on_dask", lightgbm_alone),
    "XGBoost on Dask": (on_dask, "xgboost_on_dask", xgboost_alone),
    "XGBoost on Spark": (on_spark, "xgboost_on_spark", xgboost_alone),
}


def scores_of(model, X):
    if isinstance(model, xgboost.Booster):
        return model.predict(xgboost.DMatrix(X))
    return model.predict(X)


def scores_of_export(model, X):
    """Scores of the text that an engine loads, by XGBoost."""
    body = json.loads(export_model(model, "xgboost+json+raw"))
    loaded = xgboost.Booster()
    loaded.load_model(bytearray(body["model"]["model"]["definition"], "utf-8"))
    return loaded.predict(xgboost.DMatrix(X), output_margin=True)


def trees(cell, settings, seed):
    """nDCG@10 on other queries, of two workers, of one process, and of click rates."""
    spec = importlib.util.spec_from_file_location("recipes", RECIPES)
    recipes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipes)
    train, recipe, alone = LEARNERS[cell["learner"]]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        test, features = write_world(folder, settings, seed)
        log = pd.read_parquet(folder / "log")
        documents = pd.read_parquet(folder / "documents.parquet")
        curve = InterventionHarvesting().fit(log, "click")
        models = {"two workers": train(getattr(recipes, recipe), folder, curve, features)}
    for name, propensity in {"one": curve, "click rates": np.ones(N_POSITIONS)}.items():
        table = debiased_table(log, propensity).merge(documents, on=["qid", "doc"])
        models[name] = alone(table.sort_values("group"), features)
    X = test[features].astype(np.float32)
    value = {}
    for name, model in models.items():
        value[name] = ndcg_score(test["relevance"], scores_of(model, X), qid=test["qid"], k=10)
    off = np.abs(scores_of_export(models["two workers"], X) - scores_of(models["two workers"], X))
    value["exported"] = float(off.max())
    return [value]


PAGE = Page(
    "studies/clusters",
    "Trees on two workers",
    (
        measured(
            trees,
            "nDCG@10 on other queries, and what an export changes of a score",
            ("two workers", "one", "click rates", "exported"),
            over={"learner": LEARNERS},
            runs=1,
        ),
    ),
)
