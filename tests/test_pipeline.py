"""The design's promise: a ranker in a Pipeline in a GridSearchCV over queries, nothing else."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import DLARanker, IdentifiabilityRepair
from skultr.exceptions import ClickDataWarning, MissingRoleWarning
from skultr.metrics import RankingScorer
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import NaiveRanker

from ._worlds import shuffled_log

GRID = {"dlaranker__learning_rate": [0.001, 0.05]}


@pytest.fixture(scope="module")
def world():
    # Random enough for every fold to determine relevance.
    documents, log, clicks = shuffled_log(30, 600, temperature=3.0, n_documents=8, n_features=12)
    log["device"] = np.where(log["session"] % 2, "phone", "desktop")
    return documents, log, clicks


def _search(**settings):
    ranker = make_pipeline(
        IdentifiabilityRepair(bias=["position", "device"]),
        OnFeatures(StandardScaler()),
        DLARanker(max_epochs=3, random_state=0),
    )
    return GridSearchCV(
        ranker, GRID, cv=QueryKFold(3), scoring=RankingScorer(), error_score="raise", **settings
    )


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize(
    "convert",
    [lambda frame: frame, pl.from_pandas, lambda frame: pa.Table.from_pandas(frame)],
    ids=["pandas", "polars", "pyarrow"],
)
def test_search_over_a_frame(world, convert, routing):
    documents, log, clicks = world
    with sklearn.config_context(enable_metadata_routing=routing):
        search = _search(n_jobs=2).fit(convert(log), clicks)
        features = [name for name in documents if name.startswith("feature")]
        candidates = documents[["qid", *features]]
        scores = search.predict(convert(candidates))
        # Serving needs the features alone.
        alone = search.predict(convert(documents[features]))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert scores.shape == (len(documents),)
    np.testing.assert_array_equal(scores, alone)


# Folds of so few documents have grades of less than twenty, which are merged.
def test_search_for_bias_columns(world):
    documents, log, clicks = world
    features = [name for name in documents if name.startswith("feature")]
    named = ColumnTransformer([("features", StandardScaler(), features)])
    search = _search().set_params(
        estimator__onfeatures__transformer=named,
        param_grid={"identifiabilityrepair__bias": ["position", ["position", "device"]]},
    )
    search.fit(log, clicks)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    for one in search.cv_results_["params"]:
        ranker = clone(search.estimator).set_params(**one).fit(log, clicks)
        assert ranker[-1].n_features_in_ == len(features)


def test_arrays_with_keywords_and_routing(world):
    log, clicks = world[1].drop(columns="device"), world[2]
    features = [name for name in log if name.startswith("feature")]
    roles = {
        name: log[name].to_numpy() for name in ("qid", "session", "doc", "position", "relevance")
    }
    ranker = DLARanker(max_epochs=3, random_state=0)
    grid = {"learning_rate": GRID["dlaranker__learning_rate"]}
    with sklearn.config_context(enable_metadata_routing=True):
        by_array = GridSearchCV(
            ranker, grid, cv=QueryKFold(3), scoring=RankingScorer(), error_score="raise"
        ).fit(log[features].to_numpy(), clicks, groups=roles["qid"], **roles)
    by_frame = GridSearchCV(ranker, grid, cv=QueryKFold(3), scoring=RankingScorer()).fit(
        log, clicks
    )
    np.testing.assert_allclose(
        by_array.cv_results_["mean_test_score"], by_frame.cv_results_["mean_test_score"]
    )


def test_progress_bar_nests_under_the_search(world, callbacks, capsys):
    _, log, clicks = world
    bar = callbacks.ProgressBar(max_propagation_depth=None)
    _search().set_callbacks(bar).fit(log, clicks)
    shown = capsys.readouterr().out
    assert "GridSearchCV" in shown
    assert "DLARanker" in shown


def test_scoring_needs_no_document_ids(world):
    _, log, clicks = world
    ranker = _search().estimator.fit(log, clicks)
    # Text columns, such as a bias factor's, do not tell documents apart.
    anonymous = RankingScorer()(ranker, log.drop(columns="doc"))
    np.testing.assert_allclose(anonymous, RankingScorer()(ranker, log))


def test_scoring_without_annotations_says_what_is_missing(world):
    _, log, clicks = world
    with pytest.raises(ValueError, match="relevance"):
        _search().fit(log.drop(columns="relevance"), clicks)


@pytest.mark.parametrize("convert", [lambda frame: frame, pl.from_pandas])
def test_score_takes_the_name_of_a_column(world, convert):
    """And its warning names scorers that need no annotation."""
    _, log, clicks = world
    log = convert(log.drop(columns="device").assign(click=clicks))
    plain = NaiveRanker(estimator=Ridge(solver="svd"))
    for model in (plain, make_pipeline(OnFeatures(StandardScaler()), clone(plain))):
        model.fit(log, "click")
        with pytest.warns(ClickDataWarning, match=r"without annotation, .* PolicyValueScorer"):
            found = model.score(log, "click")
        with pytest.warns(ClickDataWarning, match="may be clicks"):
            assert found == model.score(log, clicks)
    with pytest.raises(ValueError, match="no column 'clicked'"):
        plain.score(log, "clicked")


@pytest.mark.parametrize("n_rows", [200, 4_800])
def test_a_transformer_that_drops_the_roles(world, n_rows):
    """The error prints the pipeline that keeps them; a frame without queries gets a warning."""
    _, log, clicks = world
    log, clicks = log.drop(columns=["device", "doc", "session", "position"]), clicks[:n_rows]
    log = log[:n_rows]
    ranker = NaiveRanker(estimator=Ridge(solver="svd"))
    instead = (
        "make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(estimator=Ridge(solver='svd')))"
    )
    with pytest.raises(ValueError, match=re.escape(instead)):
        make_pipeline(StandardScaler(), ranker).fit(log, clicks)


def test_a_page_of_thousands_of_rows_has_lost_its_queries(world):
    _, log, clicks = world
    log = log.drop(columns=["device", "doc", "session", "position"])
    ranker = NaiveRanker(estimator=Ridge(solver="svd"))
    with pytest.raises(ValueError, match=r"one result page has 4800 rows.*qid=.*OnFeatures"):
        ranker.fit(log.drop(columns="qid"), clicks)
    with (
        pytest.warns(MissingRoleWarning, match=r"or pass qid=\.$"),
        pytest.warns(MissingRoleWarning, match="position"),
    ):
        ranker.fit(log.drop(columns="qid")[:2_000], clicks[:2_000])
    with pytest.warns(MissingRoleWarning, match="position"):
        ranker.fit(log.assign(qid=1), clicks)  # one query may have as many candidates


def test_search_through_the_dask_backend_of_joblib(world):
    distributed = pytest.importorskip("distributed")
    import joblib

    _, log, clicks = world
    expected = _search().fit(log, clicks)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        search = _search().fit(log, clicks)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


def test_ranker_with_pandas_index_that_is_not_a_range(world):
    log, clicks = world[1].drop(columns="device"), world[2]
    odd = log.set_index(pd.Index(np.arange(len(log))[::-1] * 3))
    a = DLARanker(max_epochs=2, random_state=0).fit(odd, clicks)
    b = DLARanker(max_epochs=2, random_state=0).fit(log, clicks)
    np.testing.assert_array_equal(a.predict(odd), b.predict(log))
