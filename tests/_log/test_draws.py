"""Draws of queries in engines: the same ids everywhere, and curves that say what they read."""

import hashlib
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skultr._log._counted import CellCount
from skultr._log._drawn_ids import with_draw
from skultr._log._roles import open_frame
from skultr.exceptions import AssumptionWarning, NotIdentifiableError
from skultr.propensity import (
    InterventionHarvesting,
    PowerLawPropensity,
    RegressionEMPropensity,
    _draws,
)

from .test_counted import ENGINES, make_log

COLUMNS = ["qid", "session", "doc", "position", "click"]
LARGE = make_log(40_000, n_queries=800)[COLUMNS]
CURVES = {
    "harvesting": InterventionHarvesting(n_bootstrap=10, random_state=0),
    "embedding": RegressionEMPropensity(relevance="embedding", random_state=0),
}


@pytest.fixture
def begins_at(monkeypatch):
    """A function: from its call on, draws begin with so many rows, and end at some error."""

    def begin(n_rows):
        first = _draws.ROWS_OF_FIRST_DRAW._replace(value=n_rows)
        monkeypatch.setattr(_draws, "ROWS_OF_FIRST_DRAW", first)
        error = _draws.LARGEST_ERROR._replace(value=0.02)
        monkeypatch.setattr(_draws, "LARGEST_ERROR", error)

    return begin


def fitted(estimator, X):
    """The estimator, fitted to a log, and the warnings of a draw."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        estimator = clone(estimator).fit(X, "click")
    return estimator, [each for each in told if "were read" in str(each.message)]


def drawn_ids(frame, name, share, seed=0):
    rows = with_draw(open_frame(frame), name, share, seed)
    rows = rows.collect().to_pandas()
    return {*rows[name][rows["_is_drawn"].astype(bool)]}


# The draw -----------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["text", "numbers"])
@pytest.mark.parametrize("name", ["qid", 'my "id"'])
def test_each_engine_draws_the_same_ids(name, kind, engine):
    ids = np.arange(-20, 2_000)
    if kind == "text":
        ids = np.array([f"Größe {each}'" for each in ids], dtype=object)
    frame = ENGINES[engine](pd.DataFrame({name: np.repeat(ids, 2)}))
    limit = f"{round(0.2 * 16**8):08x}"
    hashes = (hashlib.md5(f"3:{each}".encode()).hexdigest() for each in ids)
    expected = {each for each, hashed in zip(ids, hashes, strict=True) if hashed < limit}
    assert drawn_ids(frame, name, 0.2, seed=3) == expected
    assert len(expected) == pytest.approx(0.2 * len(ids), rel=0.15)
    # A larger share contains the smaller one; another seed draws others.
    assert expected < drawn_ids(frame, name, 0.3, seed=3)
    assert expected != drawn_ids(frame, name, 0.2, seed=4)


def test_a_count_draws_whole_queries():
    count = CellCount.of(pl.from_pandas(LARGE).lazy(), "click", ["position"])
    drawn, _ = count.drawn(0.1, 0).cells()
    every, _ = count.cells()
    drawn, every = (each.to_pandas().drop(columns="session") for each in (drawn, every))
    queries = drawn["qid"].unique()
    assert 40 < len(queries) < 160
    in_queries = every[every["qid"].isin(queries)]
    keys = ["qid", "doc", "position"]
    drawn, in_queries = (each.sort_values(keys, ignore_index=True) for each in (drawn, in_queries))
    pd.testing.assert_frame_equal(drawn, in_queries)


# Curves --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CURVES)
def test_a_curve_of_some_queries_is_that_of_all_within_its_errors(name, begins_at):
    begins_at(30_000)
    every, told = fitted(CURVES[name], LARGE)
    assert not told
    assert not hasattr(every, "share_of_queries_")
    tables = []
    for engine in ENGINES.values():
        found, told = fitted(CURVES[name], engine(LARGE))
        assert found.share_of_queries_ == 30_000 / len(LARGE)
        (told,) = told
        assert told.category is AssumptionWarning
        assert told.filename == __file__
        assert f"read {found.share_of_queries_:.2%} of the queries" in str(told.message)
        assert found.roles_["qid"] == f"qid ({found.share_of_queries_:.2%} of them were read)"
        tables.append(found.examination_)
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], rtol=1e-9, check_dtype=False)
    error = tables[0]["standard_error"] * tables[0]["examination"]
    assert error.max() <= _draws.LARGEST_ERROR.value
    gap = (tables[0]["examination"] - every.examination_["examination"]).abs()
    assert 0 < gap.max() < 4 * error.max()
    assert tables[0]["impressions"].sum() < 0.6 * every.examination_["impressions"].sum()


@pytest.mark.parametrize("name", CURVES)
def test_a_log_of_few_rows_is_read_whole(name, begins_at):
    begins_at(len(LARGE))
    found, told = fitted(CURVES[name], ENGINES["duckdb"](LARGE))
    assert not told
    assert not hasattr(found, "share_of_queries_")
    # To the last bit what the cells in memory give.
    cells, rate = CellCount.of(ENGINES["duckdb"](LARGE), "click", ["position"]).cells()
    expected = clone(CURVES[name]).fit(cells, rate)
    pd.testing.assert_frame_equal(found.examination_, expected.examination_, check_exact=True)


def test_more_queries_are_drawn_until_errors_are_small(begins_at):
    begins_at(2_000)
    few = ENGINES["duckdb"](LARGE)
    found, _ = fitted(CURVES["harvesting"], few)
    assert found.share_of_queries_ > 2.5 * 2_000 / len(LARGE)
    # What is said of a draw that was too small is not said: here that factors lack clicks.
    rows = LARGE["position"] < 4
    scarce = LARGE.assign(click=LARGE["click"].where(rows | (LARGE["session"] % 4 == 0), 0))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        clone(CURVES["harvesting"]).fit(ENGINES["duckdb"](scarce), "click")
    assert not [each for each in told if "no click" in str(each.message)]


def test_all_queries_are_read_where_few_compare_anything(begins_at):
    """Documents move in one query only, which the first draw misses."""
    begins_at(2_000)
    still = LARGE.assign(doc=LARGE["qid"] + LARGE["position"].astype(str))
    moves = still["qid"] == "q17"
    log = still.assign(doc=np.where(moves, LARGE["doc"], still["doc"]))
    found, told = fitted(InterventionHarvesting(n_bootstrap=0), ENGINES["duckdb"](log))
    assert not told
    expected = InterventionHarvesting(n_bootstrap=0).fit(log, "click")
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=1e-9, check_dtype=False
    )
    with pytest.raises(NotIdentifiableError, match="no document was shown under two"):
        InterventionHarvesting().fit(ENGINES["duckdb"](still), "click")


@pytest.mark.parametrize("engine", ENGINES)
def test_queries_of_factors_that_no_draw_has_are_read(engine, begins_at):
    begins_at(30_000)
    rare = LARGE[LARGE["qid"] == "q1"].assign(position=LARGE["position"] + 10, session=-1)
    rare = rare.drop_duplicates("position")
    log = pd.concat([LARGE, rare], ignore_index=True)
    found, told = fitted(CURVES["harvesting"], ENGINES[engine](log))
    assert told
    assert [*found.examination_.index] == [1, 2, 3, 4, 11, 12, 13, 14]
    # All rows of the query were read, and not those that are rare alone.
    without, _ = fitted(CURVES["harvesting"], ENGINES[engine](LARGE))
    more = found.examination_["impressions"] - without.examination_["impressions"].reindex(
        found.examination_.index, fill_value=0
    )
    assert (more.loc[:4] == (LARGE["qid"] == "q1").sum() / 4).all()


@pytest.mark.parametrize("random_state", [0, 1])
def test_the_seed_draws_other_queries(random_state, begins_at):
    begins_at(30_000)
    estimator = clone(CURVES["harvesting"])
    default, _ = fitted(estimator.set_params(random_state=None), ENGINES["polars"](LARGE))
    seeded, _ = fitted(estimator.set_params(random_state=random_state), ENGINES["polars"](LARGE))
    equal = default.examination_["clicks"].equals(seeded.examination_["clicks"])
    assert equal == (random_state == 0)


def test_documents_with_global_ids_are_drawn_whole(begins_at):
    begins_at(30_000)
    log = LARGE.assign(doc=LARGE["qid"] + LARGE["doc"], doc_scope="global")
    found, (told,) = fitted(CURVES["harvesting"], ENGINES["polars"](log))
    assert "of the documents of the log" in str(told.message)
    assert "of them were read" in found.roles_["doc"]


def test_curves_of_users_and_given_curves_read_all(begins_at):
    begins_at(2_000)
    log = make_log(2_000, n_queries=50)
    lazy = ENGINES["polars"](log[["user", *COLUMNS]])
    for estimator in (
        InterventionHarvesting(user="user", n_bootstrap=0),
        PowerLawPropensity(),
    ):
        found, told = fitted(estimator, lazy)
        assert not told
        by_user = [*found.examination_.index.names] == ["user", "bias"]
        table = found.average_examination_ if by_user else found.examination_
        assert table["impressions"].sum() == len(log)


def test_later_logs_are_added_to_all_queries_or_to_none(begins_at):
    lazy = ENGINES["duckdb"](LARGE)
    begins_at(30_000)
    drawn, _ = fitted(CURVES["harvesting"], lazy)
    with pytest.raises(ValueError, match="of which it drew some queries"):
        drawn.partial_fit(lazy, "click")
    # partial_fit itself reads all, and knows documents by their ids.
    first, second = LARGE[: len(LARGE) // 2], LARGE[len(LARGE) // 2 :]
    added = clone(CURVES["harvesting"]).partial_fit(ENGINES["duckdb"](first), "click")
    added.partial_fit(second, "click")
    begins_at(len(LARGE))
    whole = clone(CURVES["harvesting"]).fit(ENGINES["duckdb"](first), "click")
    whole.partial_fit(ENGINES["polars"](second), "click")
    expected = clone(CURVES["harvesting"]).fit(LARGE, "click").examination_
    for found in (added, whole):
        pd.testing.assert_frame_equal(found.examination_, expected, rtol=1e-9, check_dtype=False)


def test_pairs_of_factors_are_compared_in_shards(monkeypatch):
    from skultr._log import _cells, _joined_logs

    log = ENGINES["duckdb"](LARGE[:40_000])
    estimator = InterventionHarvesting(n_bootstrap=10, random_state=0)
    expected = clone(estimator).fit(log, "click").examination_
    monkeypatch.setattr(_cells, "MAX_CELLS", 2_000)
    monkeypatch.setattr(_cells, "PART_ROWS", 1_000)
    monkeypatch.setattr(_joined_logs, "number_of_shards", lambda count: 4)
    found = clone(estimator).fit(log, "click").examination_
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
