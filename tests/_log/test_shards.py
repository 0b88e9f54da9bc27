"""Cells beyond memory, in parts: the same results as from the same log in memory."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skultr import ClickDataset
from skultr._log import _cells, _joined_logs
from skultr._log._cells import Cells
from skultr._log._counted import CellCount
from skultr._models import _document_posterior
from skultr.click_models import PBMModel
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import DLARanker, RegressionEMRanker, TwoTowerRanker

from .test_counted import ENGINES, make_log, quietly


@pytest.fixture
def in_parts(monkeypatch):
    """A function: from its call on, logs have several shards, and cells several parts."""

    def begin():
        monkeypatch.setattr(_cells, "MAX_CELLS", 9)
        monkeypatch.setattr(_cells, "PART_ROWS", 7)
        monkeypatch.setattr(_joined_logs, "number_of_shards", lambda count: 5)
        monkeypatch.setattr(CellCount, "cells", only_shards(CellCount.cells))

    return begin


def only_shards(cells):
    def cells_of_shard(count, shard=None, **settings):
        assert shard is not None, "all cells were collected at once"
        return cells(count, shard, **settings)

    return cells_of_shard


def test_cells_in_parts_are_those_in_memory(in_parts):
    rng = np.random.default_rng(0)
    doc, factor = rng.integers(10, size=200), rng.integers(4, size=200)
    rows = doc, factor, rng.random(200).round(), rng.random(200)
    expected = Cells.from_rows(*rows)
    in_parts()
    found = Cells.from_rows(*rows)
    assert expected.n_parts == 1 < found.n_parts == len([*found.parts()])
    for name in ("doc", "factor", "clicks", "weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    group = np.array([0, 0, 1, 1])
    np.testing.assert_array_equal(found.pooled(group).clicks, expected.pooled(group).clicks)
    assert all(len(part.doc) <= 9 or part.n_docs == 1 for _, part in found.parts())


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        *((engine, "connected") for engine in ENGINES),
        *(("polars", kind) for kind in ("in parts", "without clicks", "one way")),
    ],
)
@pytest.mark.parametrize("variant", ["default", "published"])
@pytest.mark.parametrize("n_sessions", [600, 5_000])
def test_cells_beyond_memory_give_the_same_curve(kind, n_sessions, variant, engine, in_parts):
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
    in_parts()
    found = quietly(clone(estimator).fit, ENGINES[engine](log), "click")
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=1e-8, check_dtype=False
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


#: Where nothing compares two parts, 1e-6 pseudo-impressions decide the ratio x of a model without
#: a prior: a log posterior of -1e-6 (x - mean)² / 2. EM cannot tell apart what changes it by less
#: than rounding, 2e-16 times some 10,000 of it: |x - mean| < sqrt(2 * 2e-12 / 1e-6) = 2e-3.
FLAT = 2e-3


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


@pytest.mark.parametrize("name", SHARDED)
@pytest.mark.parametrize("role", [None, "production", "bias", "few", "in parts", "without clicks"])
def test_tables_of_cells_beyond_memory_are_equal(name, role, in_parts):
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
    in_parts()
    engine = ENGINES["duckdb" if role is None else "polars"]
    found = quietly(clone(SHARDED[name]).fit, engine(log), "click")
    is_flat = role == "in parts" and name == "pbm without a prior"
    assert_equal_tables(found, expected, log, name, FLAT if is_flat else 1e-8)
    assert found.n_iter_ > 0


@pytest.mark.parametrize("role", [None, "production"])
def test_a_posterior_reads_the_same_sums_of_parts(role, monkeypatch, in_parts):
    log = make_log(6_000)[["qid", "session", "doc", "position", "click"]]
    if role is not None:
        log[role] = np.sin(np.arange(len(log)))
    seen = []

    def other_documents(clicks, examinations, *known):
        seen.append(np.stack([clicks, examinations]))
        return original(clicks, examinations, *known)

    original = _document_posterior._other_documents
    monkeypatch.setattr(_document_posterior, "_other_documents", other_documents)
    PBMModel().fit(log, "click")
    n_calls = len(seen)
    in_parts()
    PBMModel().fit(pl.from_pandas(log).lazy(), "click")
    np.testing.assert_allclose(seen[n_calls], seen[0], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", [*SHARDED, "curve"])
@pytest.mark.parametrize("role", [None, "production", "bias", "never shown", "features", "some"])
def test_a_dataset_is_counted_in_parts(name, role, tmp_path, in_parts):
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
    in_parts()
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


def test_partial_fit_adds_shards(in_parts):
    log = make_log()[["qid", "session", "doc", "position", "click"]]
    model = PBMModel(prior=(1.0, 2.0))
    expected = clone(model).fit(log, "click")
    in_parts()
    half = log["session"] % 2 == 0
    for rows in (half, ~half):
        model.partial_fit(pl.from_pandas(log[rows]).lazy(), "click")
    pd.testing.assert_frame_equal(model.documents_, expected.documents_, check_dtype=False)


@pytest.mark.parametrize("name", ["pbm", "pbm without a prior", "regression-em"])
def test_shards_of_documents_with_global_ids(name, in_parts):
    log = make_log(5_000)[["qid", "session", "doc", "position", "click"]]
    log["doc_scope"] = "global"
    expected = quietly(clone(SHARDED[name]).fit, log, "click")
    in_parts()
    lazy = pl.from_pandas(log).lazy()
    assert_equal_tables(quietly(clone(SHARDED[name]).fit, lazy, "click"), expected, log, name)


def test_the_number_of_shards_follows_from_the_cells(monkeypatch):
    log = make_log(400, n_queries=200)[["qid", "session", "doc", "position", "click"]]
    n_cells = len(log.drop_duplicates(["qid", "doc", "position"]))
    count = CellCount.of(pl.from_pandas(log).lazy(), "click", ["position"])
    assert count.n_rows == len(log)
    monkeypatch.setattr(_cells, "MAX_CELLS", len(log))
    assert _joined_logs.number_of_shards(count) == 1
    monkeypatch.setattr(_cells, "MAX_CELLS", n_cells // 3)
    assert _joined_logs.number_of_shards(count) == -(-len(log) // (n_cells // 3))
    parts = [count.cells((number, 7))[0] for number in range(7)]
    assert sum(len(part) for part in parts) == n_cells
    queries = [set(part["qid"]) for part in parts]
    assert len(set.union(*queries)) == sum(map(len, queries))
