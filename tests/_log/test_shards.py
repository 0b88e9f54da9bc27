"""Cells beyond memory, in shards on disk: the same results as from the same log in memory."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skultr import ClickDataset
from skultr._log import _shards
from skultr._log._clicklog import ClickLog
from skultr._log._counted import CellCount, count_of
from skultr._models import _document_posterior, _sharded_relevance
from skultr.click_models import PBMModel
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import DLARanker, RegressionEMRanker, TwoTowerRanker

from .test_counted import ENGINES, make_log, quietly


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("variant", ["default", "published"])
@pytest.mark.parametrize("n_sessions", [600, 5_000])
@pytest.mark.parametrize("kind", ["connected", "in parts", "without clicks", "one way"])
def test_cells_beyond_memory_give_the_same_curve(kind, n_sessions, variant, engine, monkeypatch):
    log = make_log(n_sessions)[["qid", "session", "doc", "position", "click"]]
    few = log["doc"] < "d2"
    if kind == "in parts":
        log = log[few == (log["position"] < 3)]
    elif kind == "without clicks":
        log["click"] = log["click"].where(log["position"] < 4, 0)
    elif kind == "one way":
        log = log[few | (log["position"] > 2)]
        log["click"] = log["click"].where(~few | (log["position"] < 3), 0)
    estimator = RegressionEMPropensity(relevance="embedding", variant=variant)
    expected = quietly(clone(estimator).fit, log, "click")
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 5)
    monkeypatch.setattr(RegressionEMPropensity, "_table_estimate", None)
    found = quietly(clone(estimator).fit, ENGINES[engine](log), "click")
    # Newton's steps end below 1e-7; where nothing bounds a ratio their order decides the rest.
    rtol = 1e-7 if kind == "one way" else 1e-8
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=rtol, check_dtype=False
    )


SHARDED = {
    "pbm": PBMModel(),
    "pbm without a prior": PBMModel(prior=None),
    "pbm with an empirical prior": PBMModel(prior="empirical"),
    "pbm with a prior": PBMModel(prior=(1.0, 2.0)),
    "regression-em": RegressionEMRanker(relevance="embedding", random_state=0),
    "regression-em, to the letter": RegressionEMRanker(
        relevance="embedding", variant="published", random_state=0
    ),
    "dual, to the letter": DLARanker(relevance="embedding", variant="published", random_state=0),
    "additive": TwoTowerRanker(relevance="embedding", link="additive", random_state=0),
}


def assert_equal_tables(found, expected, log, name, rtol=1e-8):
    """Newton's steps end below 1e-7, and an optimiser of a prior raises rounding."""
    least = {"pbm": 1e-4, "pbm with an empirical prior": 1e-4, "to the letter": 1e-6}
    rtol = max(rtol, least.get(name.split(", ")[-1], 0.0))
    tables = ["documents_"] if "pbm" in name else ["relevance_"]
    for table in ("examination_", *tables):
        ours, theirs = getattr(found, table), getattr(expected, table)
        if table == "relevance_":
            ours, theirs = ours.to_frame(), theirs.to_frame()
        pd.testing.assert_frame_equal(ours, theirs, rtol=rtol, atol=1e-9, check_dtype=False)
    np.testing.assert_allclose(found.predict(log), expected.predict(log), rtol=rtol, atol=1e-9)
    if "pbm" not in name:
        np.testing.assert_allclose(
            found.predict_click(log), expected.predict_click(log), rtol=rtol, atol=1e-9
        )


ROLES = [None, "production", "bias", "few", "in parts", "without clicks"]
#: Models and roles in one of two engines by turns: the test above compares all engines.
BY_TURNS = [
    (name, role, ("polars", "duckdb")[(row + column) % 2])
    for row, name in enumerate(SHARDED)
    for column, role in enumerate(ROLES)
]


@pytest.mark.parametrize(("name", "role", "engine"), BY_TURNS)
def test_tables_of_cells_beyond_memory_are_equal(name, role, engine, monkeypatch):
    log = make_log(600 if role == "few" else 4_000)
    log = log[["qid", "session", "doc", "position", "click"]]
    if role == "production":
        log["production"] = np.sin(np.arange(len(log)))
    elif role == "bias":
        log["bias"] = log["position"] + 10 * (log["session"] % 2)
    elif role == "in parts":
        log = log[(log["doc"] < "d2") == (log["position"] < 3)]
    elif role == "without clicks":
        log["click"] = log["click"].where(log["position"] < 4, 0)
    expected = quietly(clone(SHARDED[name]).fit, log, "click")
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 5)
    monkeypatch.setattr(CellCount, "cells", only_shards(CellCount.cells))
    found = quietly(clone(SHARDED[name]).fit, ENGINES[engine](log), "click")
    # Where nothing compares two parts, the steps of Newton's method decide their ratio.
    assert_equal_tables(found, expected, log, name, 1e-5 if role == "in parts" else 1e-8)
    assert found.n_iter_ > 0


def only_shards(cells):
    def cells_of_shard(count, shard=None, **settings):
        assert shard is not None, "all cells were collected at once"
        return cells(count, shard, **settings)

    return cells_of_shard


@pytest.mark.parametrize("role", [None, "production"])
def test_a_posterior_reads_the_same_sums_of_shards(role, monkeypatch):
    log = make_log(6_000)[["qid", "session", "doc", "position", "click"]]
    if role is not None:
        log[role] = np.sin(np.arange(len(log)))
    seen = []

    def posterior_of(exposures, *, query, place):
        sums = exposures.clicks, exposures.examinations, exposures.error
        relevance = np.linspace(0.1, 0.9, len(query))
        seen.append(np.stack([*sums, exposures.per_skip(relevance), query, place]))
        return original(exposures, query=query, place=place)

    original = _document_posterior.posterior_of
    monkeypatch.setattr(_document_posterior, "posterior_of", posterior_of)
    monkeypatch.setattr(_sharded_relevance, "posterior_of", posterior_of)
    PBMModel().fit(log, "click")
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 5)
    PBMModel().fit(pl.from_pandas(log).lazy(), "click")
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", [*SHARDED, "curve"])
@pytest.mark.parametrize("role", [None, "production", "bias", "never shown", "features", "some"])
def test_a_dataset_is_counted_in_shards(name, role, tmp_path, monkeypatch):
    log = make_log(6_000)
    log = log[["qid", "session", "doc", "position", "click", *["f0", "f1"] * (role == "features")]]
    if role == "production":
        log["production"] = np.sin(np.arange(len(log)))
    elif role == "bias":
        log["bias"] = log["position"] + 10 * (log["session"] % 2)
    elif role == "never shown":
        more = log[log["position"] == 4][:50].assign(doc="never", position=np.nan, click=0)
        log = pd.concat([log, more], ignore_index=True)
    dataset = ClickDataset.from_parquet(log, path=tmp_path / "clicks")
    if role == "some":
        dataset = dataset[::2]
        log = log[log["qid"].isin(dataset.query_ids)]
    models = {**SHARDED, "curve": RegressionEMPropensity(relevance="embedding")}
    expected = quietly(clone(models[name]).fit, dataset)
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 5)
    monkeypatch.setattr(ClickLog, "cells", property(only_small(ClickLog.cells)))
    found = quietly(clone(models[name]).fit, dataset)
    shown = log[log["position"].notna()].drop(columns="click")
    if name == "curve":
        pd.testing.assert_frame_equal(found.examination_, expected.examination_, rtol=1e-8)
    else:
        assert_equal_tables(found, expected, shown, name)
        if role == "features":  # documents are found by their features
            by_features = shown.drop(columns="doc")[:20]
            if "pbm" in name:
                np.testing.assert_allclose(found.predict(by_features), found.predict(shown[:20]))


def test_partial_fit_keeps_counts_in_memory(monkeypatch):
    lazy = pl.from_pandas(make_log()[["qid", "session", "doc", "position", "click"]]).lazy()
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 5)
    with pytest.raises(ValueError, match=r"where PBMModel\.partial_fit keeps them\. Call fit"):
        PBMModel().partial_fit(lazy, "click")


def only_small(cells):
    def cells_of_part(log):
        assert len(log.query_ids) <= 4, "all cells were counted at once"
        return cells.func(log)

    return cells_of_part


@pytest.mark.parametrize("name", ["pbm without a prior", "regression-em"])
def test_shards_of_documents_with_global_ids(name, monkeypatch):
    log = make_log(5_000)[["qid", "session", "doc", "position", "click"]]
    log["doc_scope"] = "global"
    expected = quietly(clone(SHARDED[name]).fit, log, "click")
    monkeypatch.setattr(_shards, "number_of_shards", lambda count: 3)
    lazy = pl.from_pandas(log).lazy()
    assert_equal_tables(quietly(clone(SHARDED[name]).fit, lazy, "click"), expected, log, name)
    with pytest.raises(ValueError, match=r"prior='logged' reads. Set prior='empirical'"):
        quietly(PBMModel().fit, lazy, "click")


def test_the_number_of_shards_follows_from_the_cells(monkeypatch):
    log = make_log(400, n_queries=200)[["qid", "session", "doc", "position", "click"]]
    n_cells = len(log.drop_duplicates(["qid", "doc", "position"]))
    count = count_of(pl.from_pandas(log).lazy(), "click", ["position"])
    assert count.n_rows == len(log)
    monkeypatch.setattr(_shards, "MAX_CELLS", len(log))
    assert _shards.number_of_shards(count) == 1
    monkeypatch.setattr(_shards, "MAX_CELLS", n_cells // 3)
    assert _shards.number_of_shards(count) == -(-len(log) // (n_cells // 3))
    parts = [count.cells((number, 7))[0] for number in range(7)]
    assert sum(len(part) for part in parts) == n_cells
    queries = [set(part["qid"]) for part in parts]
    assert len(set.union(*queries)) == sum(map(len, queries))
