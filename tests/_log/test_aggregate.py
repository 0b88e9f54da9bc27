"""aggregate_clicks against an oracle of dictionaries, in every engine."""

import subprocess
import sys
import warnings
from collections import defaultdict
from functools import cache
from itertools import permutations
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skultr import aggregate_clicks
from skultr._log._clicklog import make_click_log
from skultr.exceptions import ClickDataWarning, MissingRoleWarning

with warnings.catch_warnings():
    # Raised within Dask on import for some versions of its dependencies.
    warnings.simplefilter("ignore")
    import dask
    import dask.dataframe as dd


def to_arrow(log):
    return pa.Table.from_pandas(log, preserve_index=False)


def to_nullable(log):
    with np.errstate(invalid="ignore"):  # older pandas tries integers for infinity, too
        return log.convert_dtypes()


def to_dask(log):
    return dd.from_pandas(log, npartitions=3)


ENGINES = {
    "pandas": lambda log: log,
    "pandas-nullable": to_nullable,
    "pandas-object": lambda log: log.astype(
        {name: object for name in ("qid", "doc") if name in log and not is_number(log[name])}
    ),
    "polars": pl.from_pandas,
    "polars-nan": lambda log: pl.from_pandas(log, nan_to_null=False),
    "polars-lazy": lambda log: pl.from_pandas(log).lazy(),
    "pyarrow": to_arrow,
    "duckdb": lambda log: duckdb.from_arrow(to_arrow(log)),
    "dask": to_dask,
}
EAGER = ("pandas", "polars", "pyarrow")
_ROOT = Path(__file__).parents[2]


def is_number(series):
    return pd.api.types.is_numeric_dtype(series)


@pytest.fixture(autouse=True)
def synchronous_dask():
    with dask.config.set(scheduler="synchronous"):
        yield


# --------------------------------------------------------------------------------------
# The oracle: a dictionary of lists, each a tuple of places
# --------------------------------------------------------------------------------------
def plain(value):
    """A hashable value that is equal however an engine types it; None where missing."""
    if pd.isna(value):
        return None
    return value if isinstance(value, str) else float(value)


def records(frame):
    frame = frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()
    return [
        {name: plain(value) for name, value in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False, name=None)
    ]


def oracle(log):
    """Clicks and impressions of the places of each list, and the never-shown rows."""
    sessions, never = defaultdict(list), defaultdict(float)
    for row in records(log):
        group = (row["qid"], row.get("user"))
        weight = row.get("impressions", 1.0)
        if row["position"] is None or weight == 0:
            never[*group, row["doc"]] += weight
            continue
        place = (row["position"], row["doc"], row.get("bias"))
        sessions[*group, row.get("session")].append((place, row["click"], weight))
    lists = defaultdict(lambda: np.zeros(2))
    for (qid, user, _), places in sessions.items():
        shown = tuple(sorted({place for place, _, _ in places}))
        for place, click, weight in places:
            lists[qid, user, shown, place] += (click, weight)
    return {key: tuple(value) for key, value in lists.items()}, dict(never)


def as_oracle(X, click_rate):
    """The result of aggregate_clicks in the form of the oracle."""
    lists, never = defaultdict(list), {}
    for row, rate in zip(records(X), click_rate, strict=True):
        group = (row["qid"], row.get("user"))
        if row["position"] is None or row["impressions"] == 0:
            assert rate == 0
            assert (*group, row["doc"]) not in never
            never[*group, row["doc"]] = row["impressions"]
            continue
        place = (row["position"], row["doc"], row.get("bias"))
        counts = (rate * row["impressions"], row["impressions"])
        lists[*group, row["session"]].append((place, counts))
    found = {}
    for (qid, user, _), places in lists.items():
        shown = tuple(sorted(place for place, _ in places))
        for place, counts in places:
            assert (qid, user, shown, place) not in found
            found[qid, user, shown, place] = counts
    return found, never


def assert_same(result, expected):
    for got, wanted in zip(result, expected, strict=True):
        assert got.keys() == wanted.keys()
        for key, value in wanted.items():
            np.testing.assert_allclose(got[key], value, rtol=1e-12, atol=1e-12)


# --------------------------------------------------------------------------------------
# Logs
# --------------------------------------------------------------------------------------
def make_log(seed=0, lists="random", strings=True, never=True, n_sessions=60):
    """A log of 5 queries; ``lists``: deterministic, arms (two rankings) or random."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(n_sessions):
        query = int(rng.integers(5))
        docs = np.arange(3 + query) + 10 * query
        if lists == "arms" and session % 2:
            docs = docs[[1, 0, *range(2, len(docs))]]
        elif lists == "random" and query:
            docs = rng.permutation(docs)[: rng.integers(1, len(docs) + 1)]
        for position, doc in enumerate(docs, start=1):
            rows.append((query, session, doc, position, int(rng.random() < 0.4)))
        if never and query % 2:
            rows.append((query, session, 10 * query + 9, np.nan, 0))
    log = pd.DataFrame(rows, columns=["qid", "session", "doc", "position", "click"])
    if strings:
        log["qid"] = "q" + log["qid"].astype(str)
        log["doc"] = "d" + log["doc"].astype(str)
    return log.sample(frac=1, random_state=seed).reset_index(drop=True)


def with_user(log):
    return log.assign(user=log["session"] % 3)


def with_bias(log):
    """Each session on one of two devices, and a third bias factor in some places."""
    device = np.where(log["session"] % 5 == 0, 100, 0)
    return log.assign(bias=(log["position"] + device).where(log["position"].notna()))


def with_impressions(log):
    weight = np.random.default_rng(1).integers(0, 5, len(log))
    return log.assign(impressions=weight, click=np.minimum(log["click"] * 2, weight))


LOGS = {
    "deterministic": make_log(lists="deterministic"),
    "all-shown": make_log(lists="deterministic", never=False),
    "arms": make_log(lists="arms"),
    "random": make_log(),
    "integers": make_log(strings=False, never=False),
    "user": with_user(make_log()),
    "bias": with_bias(make_log(lists="arms")),
    "bias-user": with_bias(with_user(make_log())),
    "impressions": with_impressions(make_log()),
    "fractional": with_impressions(make_log()).assign(
        impressions=lambda log: log["impressions"] * 1.25
    ),
    "no-session": make_log(lists="deterministic").drop(columns="session"),
    "no-session-user": with_user(make_log(lists="deterministic")).drop(columns="session"),
}


#: What the oracle and pandas say of each log, once for all engines.
of_oracle = cache(lambda name: oracle(LOGS[name]))
of_pandas = cache(lambda name: aggregate_clicks(LOGS[name]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LOGS)
def test_engines_agree_with_the_oracle(name, engine):
    X, click_rate = aggregate_clicks(ENGINES[engine](LOGS[name]))
    assert_same(as_oracle(X, click_rate), of_oracle(name))

    expected, expected_rate = of_pandas(name)
    X = X if isinstance(X, pd.DataFrame) else X.to_pandas()
    pd.testing.assert_frame_equal(X.astype(expected.dtypes), expected)
    np.testing.assert_allclose(click_rate, expected_rate, rtol=1e-12)


@pytest.mark.parametrize("name", LOGS)
def test_result_is_ordered_and_typed(name):
    X, click_rate = aggregate_clicks(pl.from_pandas(LOGS[name]))
    order = ["qid", *(["user"] if "user" in X.columns else []), "session"]
    assert X.equals(X.sort(*order, "position", nulls_last=True, maintain_order=True))
    assert X["session"].unique().sort().to_list() == list(range(X["session"].n_unique()))
    assert X["position"].dtype == pl.Int64
    assert X["impressions"].dtype == (pl.Float64 if name == "fractional" else pl.Int64)
    assert click_rate.dtype == float
    assert ((click_rate >= 0) & (click_rate <= 1)).all()


@pytest.mark.parametrize("engine", EAGER)
def test_eager_frames_keep_their_kind(engine):
    log = ENGINES[engine](LOGS["random"])
    assert type(aggregate_clicks(log)[0]) is type(log)


def test_row_order_is_irrelevant():
    log = LOGS["bias-user"]
    X, click_rate = aggregate_clicks(log)
    again, rate = aggregate_clicks(log.iloc[::-1])
    pd.testing.assert_frame_equal(X, again)
    np.testing.assert_array_equal(click_rate, rate)


@pytest.mark.parametrize("engine", ENGINES)
def test_large_integer_ids_are_exact(engine):
    log = make_log(strings=False, never=False)
    log["doc"] += 2**62
    X, _ = aggregate_clicks(ENGINES[engine](log))
    docs = X["doc"].to_pylist() if isinstance(X, pa.Table) else list(X["doc"])
    assert set(docs) == set(log["doc"])


@pytest.mark.parametrize("engine", ["pandas", "polars", "pyarrow", "duckdb"])
def test_ids_at_the_ends_of_their_type(engine):
    log = make_log(never=False)
    numbers = log["doc"].str[1:].astype("int64")
    unsigned = log.assign(doc=numbers.astype("uint64") + np.uint64(2**64 - 100))
    smallest = log.assign(doc=numbers - numbers.min() + np.iinfo(np.int64).min)
    empty = log.assign(doc=log["doc"].replace("d10", ""))
    sizes = {len(aggregate_clicks(ENGINES[engine](each))[1]) for each in (unsigned, smallest)}
    assert sizes == {len(aggregate_clicks(log)[1])}
    assert_same(as_oracle(*aggregate_clicks(ENGINES[engine](empty))), oracle(empty))


@pytest.mark.parametrize("kind", ["category", "float", "int32"])
def test_other_types_of_ids(kind):
    log = make_log(strings=kind == "category", never=False)
    typed = log.astype({"doc": kind, "qid": kind})
    for frame in (typed, pl.from_pandas(typed)):
        assert_same(as_oracle(*aggregate_clicks(frame)), oracle(log))


def test_boolean_clicks_under_another_name():
    log = make_log()
    other = log.rename(columns={"click": "clicked"}).astype({"clicked": bool})
    result = aggregate_clicks(pl.from_pandas(other), click="clicked")
    assert_same(as_oracle(*result), oracle(log))


def test_few_queries_with_several_lists():
    """Only those are spread, by a filter."""
    swapped = make_log(lists="arms").query("qid == 'q1'")
    log = pd.concat([make_log(lists="deterministic").query("qid != 'q1'"), swapped])
    for engine in ENGINES:
        assert_same(as_oracle(*aggregate_clicks(ENGINES[engine](log))), oracle(log))


def long_log(n_sessions=100, length=1_000):
    """Short lists of many queries, and a query with two orders of one long list."""
    short = make_log(n_sessions=n_sessions, never=False)
    docs = np.arange(length)
    long = pd.DataFrame(
        {
            "qid": "long",
            "session": np.repeat([n_sessions, n_sessions + 1], length),
            "doc": np.concatenate([docs, docs[::-1]]).astype(str),
            "position": np.tile(docs + 1.0, 2),
            "click": 0,
        }
    )
    return pd.concat([short, long], ignore_index=True)


@pytest.fixture(scope="module")
def long_log_of_oracle():
    log = long_log()
    return log, oracle(log)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_long_list_beside_short_ones(engine, long_log_of_oracle):
    log, expected = long_log_of_oracle
    assert_same(as_oracle(*aggregate_clicks(ENGINES[engine](log))), expected)


_PEAK = """
import resource, sys
from tests._log.test_aggregate import ENGINES, aggregate_clicks, long_log

aggregate_clicks(ENGINES[sys.argv[1]](long_log(length=2)))
log = ENGINES[sys.argv[1]](long_log(300, 2_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
aggregate_clicks(log)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory in kB")
@pytest.mark.parametrize("engine", ["pandas", "polars-lazy", "pyarrow", "duckdb"])
def test_memory_does_not_grow_with_the_longest_list(engine):
    """5,000 rows; a column per position would be 2,000 columns of the sessions."""
    command = [sys.executable, "-c", _PEAK, engine]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT)
    assert int(out.stdout) < 50 * 1024


def test_columns_of_differing_dictionaries():
    """As PyArrow reads them from several row groups."""
    log = LOGS["random"]
    parts = [log[:50], log[50:60], log[60:]]
    kinds = {"qid": "category", "doc": "category"}
    table = pa.concat_tables([to_arrow(part.astype(kinds)) for part in parts])
    assert table["doc"].num_chunks == 3
    for frame in (table, duckdb.from_arrow(table), pl.from_arrow(table)):
        assert_same(as_oracle(*aggregate_clicks(frame)), oracle(log))


@pytest.mark.parametrize("engine", ENGINES)
def test_scope_of_documents_is_passed_on(engine):
    log = LOGS["random"].assign(doc_scope="global")
    X, _ = aggregate_clicks(ENGINES[engine](log))
    X = X if isinstance(X, pd.DataFrame) else X.to_pandas()
    assert (X["doc_scope"] == "global").all()
    bare = aggregate_clicks(LOGS["random"])[0]
    assert X.drop(columns="doc_scope").astype(bare.dtypes).equals(bare)


@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb", "dask"])
def test_all_orders_of_a_list_are_told_apart(engine):
    """The sums of hashes of 5,040 lists of the same seven documents all differ."""
    orders = np.array(list(permutations(range(7))))
    n, length = orders.shape
    log = pd.DataFrame(
        {
            "qid": 1,
            "session": np.repeat(np.arange(n), length),
            "doc": orders.ravel(),
            "position": np.tile(np.arange(1, length + 1), n),
            "click": np.tile(np.arange(length) == 0, n).astype(int),
        }
    )
    X, _ = aggregate_clicks(ENGINES[engine](log))
    assert len(X) == len(log)
    X = X if isinstance(X, pd.DataFrame) else X.to_pandas()
    found = X.sort_values(["session", "position"])["doc"].to_numpy().reshape(n, length)
    assert set(map(tuple, found.tolist())) == set(map(tuple, orders.tolist()))


@st.composite
def small_logs(draw):
    rows = []
    for session in range(draw(st.integers(1, 6))):
        query = draw(st.integers(0, 1))
        docs = draw(st.lists(st.sampled_from("abc"), max_size=3))
        positions = draw(
            st.lists(st.integers(1, 4), min_size=len(docs), max_size=len(docs), unique=True)
        )
        for doc, position in zip(docs, positions, strict=True):
            bias = draw(st.integers(0, 1))
            rows.append(
                (query, session, session % 2, doc, position, bias, draw(st.integers(0, 1)))
            )
        for doc in draw(st.lists(st.sampled_from("de"), max_size=2)):
            rows.append((query, session, session % 2, doc, None, None, 0))
    columns = ["qid", "session", "user", "doc", "position", "bias", "click"]
    log = pd.DataFrame(rows or [(0, 0, 0, "a", 1, 0, 1)], columns=columns)
    keep = draw(st.sets(st.sampled_from(["user", "bias"])))
    return log.astype({"position": float, "bias": float}).drop(columns=keep)


@settings(max_examples=30, deadline=None)
@given(small_logs())
def test_small_random_logs(log):
    assume(log["click"].any())  # of rows that were shown
    expected = oracle(log)
    for engine in ("pandas", "polars"):
        assert_same(as_oracle(*aggregate_clicks(ENGINES[engine](log))), expected)


# --------------------------------------------------------------------------------------
# Trains like the raw log
# --------------------------------------------------------------------------------------
def make_documents(log):
    docs = log[["doc"]].drop_duplicates().sort_values("doc", ignore_index=True)
    rng = np.random.default_rng(3)
    return docs.assign(
        relevance=rng.integers(0, 3, len(docs)),
        production=rng.normal(size=len(docs)),
        f=rng.normal(size=len(docs)),
    )


def test_numbers_of_rows_in_a_file_are_no_feature(tmp_path):
    log = LOGS["random"]
    documents = make_documents(log)
    expected = aggregate_clicks(log, documents)[0]
    log.sample(frac=1, random_state=0).to_parquet(tmp_path / "log.parquet")
    documents.sample(frac=1, random_state=0).to_parquet(tmp_path / "documents.parquet")
    of_file = pl.read_parquet(tmp_path / "documents.parquet")
    assert "__index_level_0__" in of_file.columns
    X, _ = aggregate_clicks(pl.scan_parquet(tmp_path / "log.parquet"), of_file)
    assert sorted(X.columns) == sorted(expected.columns)


@pytest.mark.parametrize("name", ["deterministic", "arms", "random", "bias-user", "integers"])
def test_folds_to_the_same_lists_as_the_raw_log(name):
    log = LOGS[name]
    documents = make_documents(log)
    X, click_rate = aggregate_clicks(log, documents)
    raw = log.merge(documents, on="doc")

    def fold(X, y):
        features = X[["f"]].to_numpy(dtype=np.float32)
        folded = make_click_log(X, features, y).fold(users=True)
        lists = defaultdict(list)
        for row in range(folded.n_rows):
            query, user = folded.query[row], folded.user[row]
            place = (folded.position[row], folded.doc[row], folded.bias[row])
            lists[query, user, folded.list_[row]].append((place, row))
        out = defaultdict(lambda: np.zeros(2))
        for (query, user, _), places in lists.items():
            shown = tuple(place for place, _ in places)
            for place, row in places:
                out[query, user, shown, place] += (folded.clicks[row], folded.weight[row])
        weight = X.get("impressions", pd.Series(1, index=X.index))[X["position"].isna()]
        return out, {"never shown": weight.groupby(X["qid"]).sum().to_numpy()}

    assert_same(fold(X, click_rate), fold(raw, raw["click"].to_numpy()))


def test_fold_of_shown_rows_is_identical():
    log = LOGS["integers"]
    documents = make_documents(log)
    X, click_rate = aggregate_clicks(log, documents)
    raw = log.merge(documents, on="doc")
    one = make_click_log(X, X[["f"]].to_numpy(dtype=np.float32), click_rate).fold(users=True)
    two = make_click_log(raw, raw[["f"]].to_numpy(dtype=np.float32), raw["click"]).fold(users=True)
    assert one.n_lists == two.n_lists
    for name in ("doc", "query", "list_", "position", "offsets", "weight"):
        np.testing.assert_array_equal(np.sort(getattr(one, name)), np.sort(getattr(two, name)))
    np.testing.assert_allclose(np.sort(one.clicks), np.sort(two.clicks))


# --------------------------------------------------------------------------------------
# Documents
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("documents_engine", EAGER)
@pytest.mark.parametrize("engine", ["pandas", "polars-lazy", "pyarrow", "duckdb", "dask"])
def test_documents_join_whatever_their_kind(engine, documents_engine):
    log = LOGS["random"]
    documents = make_documents(log).sample(frac=1, random_state=0)
    more = pd.DataFrame({"doc": ["unused"], "relevance": [0], "production": [0.0], "f": [0.0]})
    documents = pd.concat([documents, more])
    X, _ = aggregate_clicks(ENGINES[engine](log), ENGINES[documents_engine](documents))
    bare, _ = aggregate_clicks(ENGINES[engine](log))
    assert type(X) is type(bare)
    X = X if isinstance(X, pd.DataFrame) else X.to_pandas()
    assert list(X.columns[-4:]) == ["impressions", "production", "relevance", "f"]
    by_doc = documents.set_index("doc")
    for name in ("f", "production", "relevance"):
        np.testing.assert_array_equal(X[name], by_doc.loc[X["doc"], name])


def test_documents_join_on_query_too():
    log = make_log().assign(doc=lambda log: log["doc"].str[-1])
    documents = log[["qid", "doc"]].drop_duplicates()
    documents["f"] = (documents["qid"] + documents["doc"]).map(lambda s: int(s[1:]) * 1.0)
    X, _ = aggregate_clicks(pl.from_pandas(log), documents)
    assert X["f"].to_list() == [int(q[1:] + d) for q, d in zip(X["qid"], X["doc"], strict=True)]


def test_documents_faults():
    log = LOGS["random"]
    documents = make_documents(log)
    with pytest.raises(
        ValueError, match=r"is missing 2 of \d+ documents of the log \(such as 'd0'"
    ):
        aggregate_clicks(log, documents[2:])
    with pytest.raises(
        ValueError, match=r"has 1 rows whose doc another row has too, such as 'd0'"
    ):
        aggregate_clicks(log, pd.concat([documents, documents[:1]]))
    with pytest.raises(ValueError, match="expected 'doc', the ids"):
        aggregate_clicks(log, documents.drop(columns="doc"))
    with pytest.raises(ValueError, match=r"\['position'\], which are roles of the log"):
        aggregate_clicks(log, documents.assign(position=1))


# --------------------------------------------------------------------------------------
# Features of impressions
# --------------------------------------------------------------------------------------
def with_features(log):
    """A feature of the document, a price with gaps that changes, and one of text."""
    by_doc = log["doc"].astype(str).str[-1].astype(int)
    price = by_doc + np.where(log["session"] % 7 == 0, 0.5, 0.0)
    return log.assign(
        quality=by_doc * 0.1,
        price=np.where(by_doc == 2, np.nan, price),
        brand=np.where(by_doc == 1, None, "b" + by_doc.astype(str)),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["deterministic", "random", "bias-user"])
def test_features_of_rows_are_part_of_what_a_list_shows(name, engine):
    log = with_features(LOGS[name])
    features = ["quality", "price", "brand"]
    X, click_rate = aggregate_clicks(ENGINES[engine](log))
    expected, expected_rate = aggregate_clicks(log)
    X = X if isinstance(X, pd.DataFrame) else X.to_pandas()
    assert list(X.columns) == list(expected.columns)
    assert list(X.columns[-3:]) == features
    for column in expected:
        assert [*map(plain, X[column])] == [*map(plain, expected[column])]
    np.testing.assert_allclose(click_rate, expected_rate, rtol=1e-12)

    def by_version(frame):
        ids = [str((*map(plain, row),)) for row in frame[["doc", *features]].to_numpy()]
        return frame.drop(columns=features).assign(doc=ids)

    assert_same(as_oracle(by_version(X), click_rate), oracle(by_version(log)))


def test_features_of_impressions_train_like_the_raw_log():
    log = with_features(LOGS["random"]).drop(columns="brand").fillna({"price": 0.0})
    X, click_rate = aggregate_clicks(pl.from_pandas(log).lazy())
    X, names = X.to_pandas(), ["quality", "price"]
    one, two = (
        make_click_log(frame, frame[names].to_numpy(dtype=np.float32), y).fold(users=True)
        for frame, y in ((X, click_rate), (log, log["click"]))
    )
    assert one.clicks.sum() == pytest.approx(two.clicks.sum())
    assert one.n_impressions == two.n_impressions
    assert len(one.features) == len(two.features) > one.n_docs


def test_features_that_change_within_a_list_need_sessions():
    log = with_features(LOGS["deterministic"]).drop(columns="session")
    with pytest.warns(MissingRoleWarning, match="in a column 'session'"):
        X, _ = aggregate_clicks(log)
    assert not X[X["position"].notna()].duplicated(["session", "position"]).any()
    assert X["session"].nunique() > log["qid"].nunique()


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_whose_pages_are_not_known_are_counted_with_a_warning(engine):
    log = make_log(never=False)
    with pytest.warns(MissingRoleWarning, match="its pages are not known"):
        found = aggregate_clicks(ENGINES[engine](log.drop(columns="session")))
    keys = ["qid", "doc", "position"]
    counted = log.groupby(keys, as_index=False).agg(n=("click", "size"), clicks=("click", "sum"))
    counted = counted.rename(columns={"n": "impressions"})
    table = pd.DataFrame(records(found[0])).assign(rate=found[1])
    table = table.sort_values(keys).reset_index(drop=True)
    expected = counted.sort_values(keys)
    np.testing.assert_allclose(table["impressions"], expected["impressions"])
    np.testing.assert_allclose(table["rate"] * table["impressions"], expected["clicks"])
    again, rate = aggregate_clicks(ENGINES[engine](counted), click="clicks")
    pd.testing.assert_frame_equal(pd.DataFrame(records(again)), pd.DataFrame(records(found[0])))
    np.testing.assert_allclose(rate, found[1])


def _polars_hashes_lists():
    """Older releases of Polars do not hash arrays in cells, and panic."""
    try:
        pl.Series([[1]], dtype=pl.Array(pl.Int64, 1)).hash()
    except BaseException as error:
        if "not supported" not in str(error):
            raise
        return False
    return True


def test_lists_in_cells_are_features():
    log = pl.from_pandas(LOGS["random"])
    number = pl.col("session") % 2
    log = log.with_columns(v=pl.concat_list(number, number).list.to_array(2))
    of_polars = [log, log.lazy()] if _polars_hashes_lists() else []
    for frame in (*of_polars, duckdb.from_arrow(log.to_arrow()), log.to_arrow()):
        X, _ = aggregate_clicks(frame)
        X = X if isinstance(X, pl.DataFrame) else pl.from_arrow(X)
        assert X["v"].to_list() == [[v[0]] * 2 for v in X["v"].to_list()]
        assert set(X["v"].arr.first()) == {0, 1}


# --------------------------------------------------------------------------------------
# Faults of the log
# --------------------------------------------------------------------------------------
FAULTS = {
    "no-doc": (lambda log: log.drop(columns="doc"), r"lacks the columns \['doc'\]"),
    "no-click": (lambda log: log.drop(columns="click"), r"lacks the columns \['click'\]"),
    "propensity": (lambda log: log.assign(propensity=0.5), "cannot be added up"),
    "text": (lambda log: log.assign(position="1"), "'position' must hold numbers"),
    "empty": (lambda log: log[:0], "no rows"),
    "null-click": (
        lambda log: put(log, "click", np.nan),
        "Input 'click' contains NaN or infinity: found .* in 1 row, such as in qid 'q",
    ),
    "negative-click": (lambda log: put(log, "click", -1), "'click' holds negative values"),
    "more-clicks": (lambda log: log.assign(click=3, impressions=2), "0 and 'impressions'"),
    "null-weight": (
        lambda log: put(log.assign(impressions=1.0), "impressions", np.nan),
        "impressions must be finite and at least 0",
    ),
    "negative-weight": (lambda log: log.assign(impressions=-1), "impressions must be finite"),
    "from-0": (lambda log: log.assign(position=log["position"] - 1), "counts from 0, add 1"),
    "half": (lambda log: log.assign(position=log["position"] / 2), "a whole number from 1"),
    "infinite": (lambda log: put(log, "position", np.inf), "a whole number from 1"),
    "null-qid": (lambda log: put(log, "qid", None), "'qid' is missing in 1 row, such as in"),
    "null-doc": (lambda log: put(log, "doc", None), "'doc' is missing in 1 row"),
    "null-session": (lambda log: put(log, "session", np.nan), "'session' is missing in 1 row"),
    "null-user": (lambda log: put(with_user(log), "user", np.nan), "'user' is missing in 1 row"),
    "null-bias": (lambda log: put(log.assign(bias=1), "bias", np.nan), "bias is missing in 1 row"),
    "half-bias": (lambda log: put(log.assign(bias=1), "bias", 0.5), "found 0.5 in 1 row"),
    "one-place": (lambda log: log.assign(position=1), "Two rows of one list are at position 1"),
    "twice": (lambda log: pd.concat([log, log]), "Two rows of one list are at position"),
    "not-shown": (lambda log: log.assign(position=np.nan, click=0), "No row was shown"),
    "scope": (lambda log: log.assign(doc_scope="page"), "doc_scope holds"),
    "users": (
        lambda log: log.assign(user=log["position"].astype(int)),
        "sessions have rows of several users",
    ),
}


def put(log, name, value):
    """The log with a value in its first row."""
    dtype = float if is_number(log[name]) else object
    log = log.assign(**{name: log[name].astype(dtype)})
    log.loc[0, name] = value
    return log


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault, engine):
    spoil, message = FAULTS[fault]
    log = spoil(make_log(never=False))
    with pytest.raises(ValueError, match=message):
        aggregate_clicks(ENGINES[engine](log))


def test_a_document_missing_in_one_session_and_twice_in_another():
    """The counts of the cells alone would look like a deterministic list."""
    log = pd.DataFrame(
        {
            "qid": 1,
            "session": [1, 1, 2, 2],
            "doc": ["a", "a", "b", "b"],
            "position": [1, 1, 2, 2],
            "click": 1,
        }
    )
    with pytest.raises(ValueError, match="Two rows of one list"):
        aggregate_clicks(log)


def test_repeated_rows_without_session_are_impressions():
    log = make_log(lists="deterministic", never=False).drop(columns="session")
    X, _ = aggregate_clicks(log)
    assert X["impressions"].sum() == len(log)
    assert X["session"].nunique() == log["qid"].nunique()


def test_clicks_that_look_wrong_are_warned_about():
    log = LOGS["deterministic"]
    with pytest.warns(ClickDataWarning, match="have a click but no position"):
        aggregate_clicks(log.assign(click=log["click"].where(log["position"].notna(), 1)))
    with pytest.warns(ClickDataWarning, match="read as graded relevance"):
        graded = aggregate_clicks(log.assign(click=2 * log["click"]))
    assert_same(as_oracle(*graded), oracle(log))


@pytest.mark.parametrize("engine", ENGINES)
def test_rates_and_numbers_of_clicks_give_the_same(engine):
    log = LOGS["deterministic"]
    counts = log.assign(impressions=10, click=np.where(log["position"].notna(), 3, 0))
    rates = counts.assign(click=counts["click"] / 10)
    found = [as_oracle(*aggregate_clicks(ENGINES[engine](each))) for each in (counts, rates)]
    assert_same(*found)


def test_scores_of_the_old_ranker_are_no_counts():
    with pytest.raises(ValueError, match=r"\['production'\], which cannot be added up"):
        aggregate_clicks(LOGS["deterministic"].assign(production=1.0))


def test_not_a_frame():
    with pytest.raises(TypeError):
        aggregate_clicks({"qid": [1]})


@pytest.mark.parametrize("engine", ["pandas", "duckdb"])
@pytest.mark.parametrize("n_pages", [10, 12_500])
def test_a_log_that_is_hardly_merged_says_so(n_pages, engine):
    """12,500 sessions of eight rows, each another page, or one of ten."""
    page = np.repeat(np.arange(12_500) % n_pages, 8)
    log = pd.DataFrame(
        {
            "qid": page,
            "session": np.repeat(np.arange(12_500), 8),
            "doc": np.tile(np.arange(8), 12_500),
            "position": np.tile(np.arange(1, 9), 12_500),
            "click": np.tile([1, 0, 0, 0, 0, 0, 0, 0], 12_500),
        }
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        X, _ = aggregate_clicks(ENGINES[engine](log))
    assert len(X) == 8 * n_pages
    told = [str(each.message) for each in told]
    assert [each for each in told if "merged 100,000 rows into" in each] == (
        told if n_pages == 12_500 else []
    )
    assert len(told) == (n_pages == 12_500)
