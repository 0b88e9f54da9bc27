"""The recipes of the guide, on local clusters of two processes, against the simulated truth."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from skultr import DLARanker
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import InterventionHarvesting, debiased_table
from skultr.serving import export_model
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

from ..serving import _engines

# Raised within Dask, distributed, LightGBM, XGBoost and PySpark, some as messages of workers.
pytestmark = pytest.mark.filterwarnings("ignore")
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


def in_dask(path):
    import dask.dataframe as dd

    return dd.read_parquet(path, split_row_groups=True)


def check_trees(world, log, train):
    """Debiased labels gain nDCG over click rates, on other queries; an engine gets the trees."""
    values = []
    for propensity in (world.propensity, np.ones(N_POSITIONS)):
        model = train(debiased_table(log, propensity))
        scores = own_scores(model, world.test[world.features])
        values.append(ndcg_score(world.test["relevance"], scores, qid=world.test["qid"]))
        check_export(model, world.test[world.features], scores)
    assert values[0] - values[1] > 0.01


def own_scores(model, X):
    import xgboost

    if isinstance(model, xgboost.Booster):
        return model.predict(xgboost.DMatrix(X))
    return model.predict(X)


def check_export(model, X, scores):
    """The document of an engine reads the trees as they were trained."""
    # Engines and XGBoost read float32.
    X = X.astype(np.float32)
    text = export_model(model, "xgboost+json")
    _, found = _engines.scores("xgboost+json", text, X.to_numpy(), [*X])
    np.testing.assert_allclose(found, own_scores(model, X), atol=1e-5)
    # The rows that were scored, up to those that rounding moves over a threshold.
    assert np.mean(np.abs(found - scores) < 1e-5) > 0.99


def test_lightgbm_on_dask(recipes, world, client):
    def train(table):
        return recipes.lightgbm_on_dask(table, documents, world.features, client)

    documents = in_dask(world.documents)
    check_trees(world, in_dask(world.log), train)


def test_xgboost_on_dask(recipes, world, client):
    def train(table):
        return recipes.xgboost_on_dask(table, documents, world.features, client)

    documents = in_dask(world.documents)
    check_trees(world, in_dask(world.log), train)


@pytest.mark.scale
def test_xgboost_on_spark(recipes, world, spark):
    def train(table):
        return recipes.xgboost_on_spark(table, documents, world.features)

    documents = spark.read.parquet(world.documents)
    check_trees(world, spark.read.parquet(world.log), train)


def check_dataset(world, dataset):
    """What one machine trains from the files of a cluster is what it trains from a frame."""
    log = pd.read_parquet(world.log)
    documents = pd.read_parquet(world.documents).drop(columns="relevance")
    assert dataset.feature_names == world.features
    ranker = DLARanker(max_epochs=1, early_stopping=False, random_state=0)
    expected = ranker.fit(log, "click", documents=documents).predict(documents)
    np.testing.assert_array_equal(ranker.fit(dataset).predict(documents), expected)


def test_dataset_from_dask(recipes, world, client, tmp_path):
    # In other partitions and with an index, as after a merge.
    log = in_dask(world.log).shuffle("session", npartitions=3)
    check_dataset(world, recipes.dataset_from_dask(log, in_dask(world.documents), tmp_path))


@pytest.mark.scale
def test_dataset_from_spark(recipes, world, spark, tmp_path):
    log = spark.read.parquet(world.log).repartition(3)
    documents = spark.read.parquet(world.documents)
    check_dataset(world, recipes.dataset_from_spark(log, documents, tmp_path))
