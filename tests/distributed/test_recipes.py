"""The recipes of the guide, on local clusters of two processes, against the simulated truth."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import InterventionHarvesting, debiased_table
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

pytestmark = [
    pytest.mark.scale,
    # Raised within Dask, distributed, LightGBM, XGBoost and PySpark, some as messages of workers.
    pytest.mark.filterwarnings("ignore"),
]
RECIPES = Path(__file__).parents[2] / "examples" / "distributed" / "recipes.py"
N_POSITIONS = 10


class World(NamedTuple):
    """Paths of a log and its documents, other queries with grades, and estimated examination."""

    log: str
    documents: str
    features: list
    test: pd.DataFrame
    propensity: InterventionHarvesting


@pytest.fixture(scope="module")
def recipes():
    pytest.importorskip("xgboost", reason="XGBoost is not installed")
    spec = importlib.util.spec_from_file_location("recipes", RECIPES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    documents = make_ltr(n_queries=400, n_documents=10, n_features=20, random_state=0)
    train, test = train_test_queries(documents, test_size=0.25, random_state=0)
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=30_000,
        n_positions=N_POSITIONS,
        policy=PlackettLucePolicy(temperature=0.1),
        user=PositionBasedUser(1 / np.arange(1, N_POSITIONS + 1)),
        features=False,
        random_state=0,
    )
    log = log.assign(click=clicks)
    folder = tmp_path_factory.mktemp("world")
    paths = str(folder / "log.parquet"), str(folder / "documents.parquet")
    log.to_parquet(paths[0], row_group_size=100_000)
    train.to_parquet(paths[1])
    features = [name for name in train if name.startswith("feature")]
    return World(*paths, features, test, InterventionHarvesting().fit(log, "click"))


def gain_of_debiasing(world, log, train):
    """nDCG on other queries of a learner on debiased labels, less that on click rates."""
    found = []
    for propensity in (world.propensity, np.ones(N_POSITIONS)):
        scores = train(debiased_table(log, propensity))(world.test[world.features])
        found.append(ndcg_score(world.test["relevance"], scores, qid=world.test["qid"]))
    return found[0] - found[1]


def scores_of(booster):
    import xgboost

    return lambda rows: booster.predict(xgboost.DMatrix(rows.to_numpy()), validate_features=False)


def test_lightgbm_on_dask(recipes, world, client):
    import dask.dataframe as dd

    documents = dd.read_parquet(world.documents)

    def train(table):
        return recipes.lightgbm_on_dask(table, documents, world.features, client).predict

    log = dd.read_parquet(world.log, split_row_groups=True)
    assert gain_of_debiasing(world, log, train) > 0.01


def test_xgboost_on_dask(recipes, world, client):
    import dask.dataframe as dd

    documents = dd.read_parquet(world.documents)

    def train(table):
        return scores_of(recipes.xgboost_on_dask(table, documents, world.features, client))

    log = dd.read_parquet(world.log, split_row_groups=True)
    assert gain_of_debiasing(world, log, train) > 0.01


def test_xgboost_on_spark(recipes, world, spark):
    documents = spark.read.parquet(world.documents)

    def train(table):
        return scores_of(recipes.xgboost_on_spark(table, documents, world.features))

    log = spark.read.parquet(world.log)
    assert gain_of_debiasing(world, log, train) > 0.01
