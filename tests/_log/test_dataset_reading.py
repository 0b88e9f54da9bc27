"""A log on disk holds what a log in memory holds, whatever the rows, and refuses the same."""

import copy
import datetime
import multiprocessing
import os
import pickle
import shutil
import signal
import warnings

import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer

from skultr import ClickDataset
from skultr._log._clicklog import sort_into_lists
from skultr._log._reader import read
from skultr.exceptions import ClickDataWarning
from skultr.rankers import NaiveRanker

ROWS = ("doc", "version", "query", "user", "position", "bias", "clicks", "weight")
FEATURES = ["bm25", "age"]


def a_log(n_queries=12, n_pages=6, n_places=4, seed=0):
    """Pages of queries, some of them equal; rows in random order."""
    rng = np.random.default_rng(seed)
    n = n_queries * n_pages * n_places
    log = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries) * 7, n_pages * n_places),
            "session": np.repeat(np.arange(n_queries * n_pages), n_places),
            "position": np.tile(np.arange(1, n_places + 1), n_queries * n_pages),
        }
    )
    order = rng.integers(0, 2, n_queries * n_pages).repeat(n_places)
    log["doc"] = (log["position"] + order) % n_places + 10
    log["bm25"] = np.float32(log["qid"] * 0.37 + log["doc"])
    log["age"] = np.float32(log["doc"] ** 2 % 11 + log["qid"])
    log["click"] = rng.integers(0, 2, n)
    return log.sample(frac=1, random_state=seed, ignore_index=True)


def as_days(values):
    return [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(value)) for value in values]


def unshown(log):
    """Some rows were candidates that nobody saw."""
    log = log.astype({"position": float})
    log.loc[log["position"] == 4, "position"] = np.nan
    log.loc[log["position"].isna(), "click"] = 0
    return log


@pytest.fixture(params=[1 << 19, 50], ids=["one part", "parts"], autouse=True)
def _parts(request, monkeypatch):
    """Logs are read at once, or in parts of 50 rows."""
    monkeypatch.setattr("skultr._log._dataset_frames.BATCH", request.param)


LOGS = {
    "integers": lambda log: log,
    "text": lambda log: log.assign(qid="q" + log["qid"].astype(str), doc=log["doc"].astype(str)),
    "categories": lambda log: log.assign(
        qid=log["qid"].astype(str).astype("category"), doc=log["doc"].astype("category")
    ),
    "dates": lambda log: log.assign(qid=as_days(log["qid"])),
    "time stamps": lambda log: log.assign(qid=pd.to_datetime(as_days(log["qid"]))),
    "time zones": lambda log: log.assign(
        qid=pd.to_datetime(as_days(log["qid"])).tz_localize("Asia/Tokyo")
    ),
    "float ids": lambda log: log.assign(qid=log["qid"].astype(float)),
    "bool ids": lambda log: log.assign(
        doc=log["doc"] > 11, bm25=(log["doc"] > 11) * 1.0, age=0.0
    ).drop_duplicates(["session", "doc"]),
    "unsigned": lambda log: log.assign(qid=log["qid"].astype(np.uint64)),
    "no doc": lambda log: log.drop(columns="doc"),
    "global docs": lambda log: log.assign(
        doc_scope="global", bm25=log["doc"] * 0.3, age=log["doc"] * 1.0
    ),
    "users": lambda log: log.assign(user="u" + (log["session"] % 3).astype(str)),
    "one session per query": lambda log: log[log["session"] % 6 == 0].drop(columns="session"),
    "text sessions": lambda log: log.assign(session=log["session"].map("s{}".format)),
    "bias": lambda log: log.assign(bias=log["position"] * 10 + log["session"] % 2),
    "negative bias": lambda log: log.assign(bias=log["position"] - 3),
    "never shown": unshown,
    "never shown, bias": lambda log: unshown(log).assign(bias=lambda log: log["position"] % 2),
    "propensities": lambda log: log.assign(propensity=1 / (log["position"] + log["session"] % 2)),
    "production": lambda log: log.assign(production=-log["bm25"]),
    "grades": lambda log: log.assign(click=log["click"] * (log["doc"] % 3)),
    "rates": lambda log: log.assign(click=log["click"] / 4),
    "bool clicks": lambda log: log.assign(click=log["click"].astype(bool)),
    "float clicks": lambda log: log.assign(click=log["click"].astype(float)),
    "annotation": lambda log: log.assign(relevance=2),
    "small numbers": lambda log: log.astype(
        {"position": "int8", "click": "uint8", "bm25": "float16", "age": "int16"}
    ),
    "far positions": lambda log: log.assign(position=log["position"] + 2**31),
    "large ids": lambda log: log.assign(qid=log["qid"] + 2**60),
    "hashes": lambda log: log.assign(qid=log["qid"].astype(np.uint64) * np.uint64(2**56 + 1)),
    "hashes of 64 bits": lambda log: log.assign(
        qid=log["qid"].astype(np.uint64) + np.uint64(2**63)
    ),
    "two users in a session": lambda log: log.assign(user=log["position"]),
    "changing features": lambda log: log.assign(bm25=log["session"] // 5 * 1.0),
    "changing features of global docs": lambda log: log.assign(
        doc_scope="global", bm25=log["session"] // 5 * 1.0, age=log["doc"] * 1.0
    ),
    "one feature": lambda log: log.drop(columns="age"),
}


def in_memory(log, click="click"):
    features = [name for name in FEATURES if name in log]
    if "relevance" in log:
        log = log.drop(columns="relevance")
    values = np.ascontiguousarray(log[features].to_numpy(np.float32))
    roles = {"production": log.get("production")}
    X = log.drop(columns=[click])
    roles = {k: v for k, v in roles.items() if k in X}
    return sort_into_lists(read(X, log[click], None, roles), values, candidates=True)


def assert_equal_logs(found, expected):
    """The same rows, whatever the order of pages and the codes of documents without ids."""
    # Lists of time stamps hold other objects, by their unit and by the release of pandas.
    assert pd.Index(found.query_ids).equals(pd.Index(expected.query_ids))
    assert found.bias_values.tolist() == expected.bias_values.tolist()
    assert found.user_ids.tolist() == expected.user_ids.tolist()
    if expected.doc_ids is None:
        assert found.doc_ids is None
    else:
        assert found.doc_ids.tolist() == expected.doc_ids.tolist()
        for some, others in zip(found.candidates, expected.candidates, strict=True):
            np.testing.assert_array_equal(some, others)
    pd.testing.assert_frame_equal(rows_of(found), rows_of(expected), check_dtype=False)


def rows_of(log):
    log = log.fold(users=True, patterns=True)
    table = pd.DataFrame({name: getattr(log, name) for name in ROWS})
    table["list"] = log.list_
    table["propensity"] = 0.0 if log.propensity is None else log.propensity
    if log.doc_ids is None:
        table = table.drop(columns=["doc", "version"])
    features = pd.DataFrame(log.features[log.version])
    return pd.concat([table, features], axis=1)


@pytest.mark.parametrize("name", LOGS)
def test_log_on_disk_is_that_in_memory(name, tmp_path):
    log = LOGS[name](a_log())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ClickDataset.from_parquet(log, path=tmp_path / "clicks").log()
        assert_equal_logs(found, in_memory(log))


def test_candidates_of_a_frame_have_their_own_scores(tmp_path):
    log = unshown(a_log()).assign(production=lambda log: -log["bm25"])
    X, _ = ClickDataset.from_parquet(log, path=tmp_path / "clicks").to_frame()
    assert X["position"].isna().any()
    np.testing.assert_array_equal(X["production"], -X["bm25"])


@pytest.mark.parametrize("read", [ClickDataset.to_frame, NaiveRanker().fit])
def test_queries_that_show_nothing_are_refused(tmp_path, read):
    log = a_log().astype({"position": float})
    nothing = log["qid"] > 0
    log.loc[nothing, ["position", "click"]] = np.nan, 0
    dataset = ClickDataset.from_parquet(log, path=tmp_path / "clicks")
    with pytest.raises(ValueError, match="No row was shown: every position is missing"):
        read(dataset[1:])


def test_impressions_count_clicks(tmp_path):
    # aggregate_clicks and from_parquet read a number of clicks; fit reads a rate.
    log = a_log().assign(impressions=lambda log: 2 + log["session"] % 3)
    log["click"] *= 2
    found = ClickDataset.from_parquet(log, path=tmp_path / "clicks").log()
    expected = in_memory(log.assign(click=log["click"] / log["impressions"]))
    pd.testing.assert_frame_equal(rows_of(found), rows_of(expected), check_dtype=False)


def test_rates_and_numbers_of_clicks_give_the_same(tmp_path):
    counts = a_log().assign(impressions=4, click=lambda log: 3 * log["click"])
    rates = counts.assign(click=counts["click"] / 4)
    found = [
        ClickDataset.from_parquet(log, path=tmp_path / name).log()
        for name, log in (("counts", counts), ("rates", rates))
    ]
    assert_equal_logs(*found)
    assert found[0].clicks.sum() == counts["click"].sum()


def test_pages_with_one_number_of_impressions_hold_rates(tmp_path):
    log = a_log().assign(impressions=4)
    with pytest.warns(ClickDataWarning, match="is read as click rates"):
        found = ClickDataset.from_parquet(log, path=tmp_path / "pages").log()
    assert_equal_logs(found, in_memory(log))
    assert found.clicks.sum() == 4 * log["click"].sum()


def test_weights_below_one_are_no_numbers_of_impressions(tmp_path):
    halves = a_log().assign(impressions=0.5, click=lambda log: log["click"] / 3)
    found = ClickDataset.from_parquet(halves, path=tmp_path / "weighted").log()
    assert_equal_logs(found, in_memory(halves))


def test_zero_impressions_are_never_shown(tmp_path):
    log = a_log().assign(impressions=lambda log: (log["position"] < 4).astype(int))
    log["click"] *= log["impressions"]
    found = ClickDataset.from_parquet(log, path=tmp_path / "clicks").log()
    assert_equal_logs(found, in_memory(log))


def files(log, folder):
    """Several files of several row groups, unsorted."""
    folder.mkdir()
    for number in range(3):
        table = pa.Table.from_pandas(log.iloc[number::3], preserve_index=False)
        pa.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=7)
    return folder


def by_pandas(log, folder):
    """A file with the numbers of its rows, because these are not 0, 1, 2, ..."""
    log.sample(frac=1, random_state=1).to_parquet(folder)
    return folder


def by_dask(log, folder):
    """Files of partitions; Dask writes the numbers of rows unless it is told not to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask calls what pandas has deprecated
        dask.dataframe.from_pandas(log, npartitions=3).to_parquet(folder)
    return folder


def hive(log, folder):
    pa.dataset.write_dataset(
        pa.Table.from_pandas(log, preserve_index=False),
        folder,
        format="parquet",
        partitioning=["qid"],
        partitioning_flavor="hive",
    )
    return folder


SOURCES = {
    "folder": files,
    "list of files": lambda log, folder: sorted(files(log, folder).glob("*.parquet")),
    "text path": lambda log, folder: str(files(log, folder)),
    "pandas file": by_pandas,
    "dask": by_dask,
    "hive": hive,
    "dataset": lambda log, folder: pa.dataset.dataset(str(files(log, folder))),
    "pyarrow": lambda log, folder: pa.Table.from_pandas(log, preserve_index=False),
    "polars": lambda log, folder: pl.from_pandas(log),
    "lazy polars": lambda log, folder: pl.from_pandas(log).lazy(),
    "scanned polars": lambda log, folder: pl.scan_parquet(files(log, folder) / "*.parquet"),
    "duckdb": lambda log, folder: duckdb.from_df(log),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ids", ["integers", "text"])
def test_every_source_gives_the_same_log(source, ids, tmp_path):
    log = LOGS[ids](a_log())
    expected = ClickDataset.from_parquet(log, path=tmp_path / "expected")
    given = SOURCES[source](log, tmp_path / "given")
    found = ClickDataset.from_parquet(given, path=tmp_path / "found")
    assert set(found.feature_names) == set(expected.feature_names)
    assert_equal_logs(found.log(), expected.log())


@pytest.mark.parametrize("ids", ["integers", "text", "categories", "global docs"])
@pytest.mark.parametrize("keys", [["qid", "doc"], ["doc"]])
def test_documents_of_a_table(ids, keys, tmp_path):
    log = LOGS[ids](a_log()).assign(bm25=lambda log: np.float32(log["doc"].astype(int) * 2))
    log["age"] = np.float32(log["doc"].astype(int) ** 0.5)
    keys = [name for name in keys if name == "doc" or ids != "global docs"]
    documents = log[[*keys, *FEATURES]].drop_duplicates(keys).sample(frac=1, random_state=0)
    kept = log["doc"] != documents["doc"].iloc[0]  # the log lacks one
    found = ClickDataset.from_parquet(
        log[kept].drop(columns=FEATURES), documents, path=tmp_path / "clicks"
    )
    assert_equal_logs(found.log(), in_memory(log[kept]))


def wrong(**columns):
    return lambda log: log.assign(**columns)


def missing(name):
    return lambda log: log.assign(**{name: log[name].astype(object).where(log.index != 5)})


FAULTS = {
    "text positions": wrong(position="first"),
    "text clicks": wrong(click="yes"),
    "text feature": wrong(bm25="high"),
    "position 0": lambda log: log.assign(position=log["position"] - 1),
    "position 1.5": lambda log: log.assign(position=log["position"] * 1.5),
    "infinite position": wrong(position=np.inf),
    "huge position": wrong(position=1e18),
    "negative clicks": wrong(click=-1),
    "missing clicks": missing("click"),
    "missing qid": missing("qid"),
    "missing doc": missing("doc"),
    "missing session": missing("session"),
    "infinite feature": wrong(bm25=np.inf),
    "large feature": wrong(bm25=1e300),
    "two at one position": lambda log: log.drop(columns="session"),
    "negative impressions": wrong(impressions=-1),
    "missing impressions": wrong(impressions=np.nan),
    "propensity 2": wrong(propensity=2.0),
    "mixed ids": lambda log: log.assign(
        doc=log["doc"].astype(object).where(log.index % 2 == 0, "a")
    ),
    "nothing shown": wrong(position=np.nan, click=0),
    "no rows": lambda log: log.iloc[:0],
    "unknown scope": wrong(doc_scope="session"),
    "two scopes": lambda log: log.assign(
        doc_scope=np.where(log["position"] > 1, "query", "global")
    ),
    "bias 0.5": wrong(bias=0.5),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_refused_as_in_memory_and_leaves_nothing(name, tmp_path):
    log = FAULTS[name](a_log())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name != "mixed ids":  # which a file cannot hold
            with pytest.raises((ValueError, TypeError)):
                NaiveRanker(max_epochs=1).fit(log, "click")
        with pytest.raises((ValueError, TypeError)) as error:
            ClickDataset.from_parquet(log, path=tmp_path / "clicks")
    assert any(word in str(error.value) for word in ("xpected", "must", "Give"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("columns", "text"),
    [({"production": np.inf}, "finite score"), ({"doc": None}, "'doc' is missing")],
)
def test_faults_of_columns_that_few_read(columns, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        ClickDataset.from_parquet(a_log().assign(**columns), path=tmp_path / "clicks")


DOCUMENTS = {
    "missing": (lambda docs: docs.iloc[1:], "is missing 1 of"),
    "twice": (lambda docs: docs.iloc[[0, *range(len(docs))]], "several rows with the same"),
    "no id": (lambda docs: docs.drop(columns="doc"), "must have the column 'doc'"),
    "text": (lambda docs: docs.assign(bm25="high"), "'bm25' has type"),
    "infinite": (
        lambda docs: docs.assign(bm25=np.inf),
        "too large for float32 in the feature column 'bm25'",
    ),
    "digits": (lambda docs: docs.assign(doc=docs["doc"].astype(str)), "type of 'doc'"),
    "letters": (lambda docs: docs.assign(doc="d" + docs["doc"].astype(str)), "type of 'doc'"),
    "fractions": (lambda docs: docs.assign(doc=docs["doc"] + 0.5), "type of 'doc'"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_faults_of_documents(name, tmp_path):
    change, text = DOCUMENTS[name]
    log = a_log()
    documents = change(log[["qid", "doc", *FEATURES]].drop_duplicates(["qid", "doc"]))
    with pytest.raises(ValueError, match=text):
        ClickDataset.from_parquet(log.drop(columns=FEATURES), documents, path=tmp_path / "clicks")
    assert not list(tmp_path.iterdir())


def test_types_of_ids_that_are_equal(tmp_path):
    log = a_log()
    documents = log[["qid", "doc", *FEATURES]].drop_duplicates(["qid", "doc"])
    for number, dtype in enumerate(["float64", "int8", "category", "uint64"]):
        found = ClickDataset.from_parquet(
            log.drop(columns=FEATURES),
            documents.astype({"doc": dtype}),
            path=tmp_path / f"{number}",
        )
        assert_equal_logs(found.log(), in_memory(log))


def test_column_of_clicks_and_files_must_exist(tmp_path):
    with pytest.raises(ValueError, match=r"lacks the columns \['clicked'\]"):
        ClickDataset.from_parquet(a_log(), click="clicked", path=tmp_path / "clicks")
    with pytest.raises(FileNotFoundError, match="expected Parquet files"):
        ClickDataset.from_parquet(tmp_path / "no.parquet", path=tmp_path / "clicks")
    with pytest.raises(FileNotFoundError, match="Make it with"):
        ClickDataset(tmp_path / "clicks")
    assert not list(tmp_path.iterdir())


def test_values_that_float32_cannot_tell_apart_are_warned_of(tmp_path):
    stamps = a_log().assign(age=lambda log: 1.7e9 + log["doc"] * 60 + log["qid"])
    with pytest.warns(ClickDataWarning, match=r"\['age'\] are much larger .*Subtract"):
        ClickDataset.from_parquet(stamps, path=tmp_path / "clicks")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a constant loses nothing
        ClickDataset.from_parquet(a_log().assign(age=1.7e9), path=tmp_path / "constant")


def test_ids_keep_their_nanoseconds(tmp_path):
    log = a_log()
    times = pd.Timestamp("2020-01-01") + pd.to_timedelta(log["qid"], unit="ns")
    found = ClickDataset.from_parquet(log.assign(qid=times), path=tmp_path / "clicks")
    assert pd.Index(found.query_ids).equals(pd.Index(times.sort_values().unique()))


def test_a_query_is_there_once(tmp_path):
    dataset = ClickDataset.from_parquet(a_log(), path=tmp_path / "clicks")
    with pytest.raises(ValueError, match=r"1 of 3 selected queries .* without replacement"):
        dataset[[0, 4, 0]]


def test_a_dataset_is_that_of_its_path_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = ClickDataset.from_parquet(a_log(), path="some clicks")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert dataset.log().features.shape == (48, 2)
    shutil.rmtree(dataset.path)
    with pytest.raises(FileNotFoundError):
        dataset.log()
    ClickDataset.from_parquet(a_log(n_places=3), path=dataset.path)
    with pytest.raises(ValueError, match="was written anew since it was opened"):
        dataset.log()


def test_dataset_is_small_to_send_and_opens_elsewhere(tmp_path):
    dataset = ClickDataset.from_parquet(a_log(), path=tmp_path / "clicks")
    for part in (dataset, dataset[:5], dataset[[3, 1]], dataset[dataset.query_ids > 20]):
        sent = pickle.dumps(part)
        assert len(sent) < 2000 + 8 * len(part)
        again = pickle.loads(sent)
        assert again.query_ids.tolist() == part.query_ids.tolist()
        assert repr(again) == repr(part)
        assert again.n_impressions == part.n_impressions == part.query_impressions.sum()
    holder = FunctionTransformer(kw_args={"dataset": dataset})
    assert clone(holder).kw_args["dataset"].shape == dataset.shape
    assert copy.deepcopy(dataset).shape == dataset.shape


def _make(arguments):
    log, path = arguments
    try:
        return ClickDataset.from_parquet(log, path=path).n_impressions
    except OSError as error:
        return type(error).__name__


def test_two_processes_may_write_and_read(tmp_path):
    log = a_log()
    paths = [tmp_path / "same", tmp_path / "same", tmp_path / "other"]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.map(_make, [(log, path) for path in paths], chunksize=1)
    assert found.count(len(log)) >= 2
    assert {path.name for path in tmp_path.iterdir()} == {"same", "other"}
    for path in paths:
        assert_equal_logs(ClickDataset(path).log(), in_memory(log))


def _as_another_process(write_log, path, kind):
    """Writing a log, in the last moment of which something else appears at its path."""

    def written(*args, **kwargs):
        write_log(*args, **kwargs)
        if kind == "link":
            path.symlink_to(path.parent / "nowhere")
        else:
            path.mkdir()
            (path / kind).touch()

    return written


@pytest.mark.parametrize("kind", ["link", "meta.json"])
def test_the_slower_of_two_processes_is_told(kind, tmp_path, monkeypatch):
    from skultr._log import _dataset

    path = tmp_path / "clicks"
    slow = _as_another_process(_dataset.write_log, path, kind)
    monkeypatch.setattr(_dataset, "write_log", slow)
    with pytest.raises(FileExistsError, match="clicks' exists already"):
        ClickDataset.from_parquet(a_log(), path=path)
    assert [*tmp_path.iterdir()] == [path]


def test_ids_may_be_hashes_of_64_bits(tmp_path):
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    log = pd.DataFrame(
        {
            "qid": np.array([low, low, high, high]),
            "doc": np.array([low, high, low + 1, high - 1]),
            "position": [1, 2, 1, 2],
            "click": [1, 0, 0, 1],
        }
    )
    documents = pd.DataFrame({"doc": log["doc"], "f": [1.0, 2.0, 3.0, 4.0]})
    found = ClickDataset.from_parquet(log, documents, path=tmp_path / "clicks")
    assert found.query_ids.tolist() == [low, high]
    pairs = [(low, low), (low, high), (high, low + 1), (high, high - 1)]
    assert found.log().doc_ids.tolist() == pairs
    np.testing.assert_array_equal(found.log().features[:, 0], [1.0, 2.0, 3.0, 4.0])


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "deleted": lambda path: path.unlink(),
    "flipped": lambda path: path.write_bytes(
        bytes(
            byte ^ 0x40 if place == path.stat().st_size * 3 // 4 else byte
            for place, byte in enumerate(path.read_bytes())
        )
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_named(damage, tmp_path, monkeypatch):
    log = a_log().assign(user=lambda log: log["session"] % 2)
    made = ClickDataset.from_parquet(log, path=tmp_path / "made")
    assert made.verify() is made
    names = sorted(path.name for path in made.path.iterdir())
    assert len(names) == 11
    for name in names:
        copied = tmp_path / f"{damage} {name}"
        shutil.copytree(made.path, copied)
        DAMAGES[damage](copied / name)
        sentence = f"is damaged or was copied in part: .*{name}"
        with pytest.raises(ValueError, match=sentence):
            ClickDataset(copied).log()
        monkeypatch.setattr("skultr._log._dataset.SMALL", 0)  # as if files were large
        with pytest.raises(ValueError, match=sentence):
            ClickDataset(copied).verify()
        monkeypatch.undo()


def test_files_are_tables_of_other_tools(tmp_path):
    dataset = ClickDataset.from_parquet(a_log(), path=tmp_path / "clicks")
    log = dataset.log(detailed=False)
    rows = pl.read_ipc(dataset.path / "merged_rows.arrow")
    assert rows["version"].to_list() == log.version.tolist()
    assert rows.schema["version"] == pl.Int32
    assert rows.schema["clicks"] == pl.Float32
    versions = pl.read_ipc(dataset.path / "versions.arrow")
    np.testing.assert_array_equal(versions["features"].to_numpy(), log.features)


def _die(path):
    from skultr._log import _dataset

    def killed(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    _dataset.write_log = killed
    ClickDataset.from_parquet(a_log(), path=path)


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=_die, args=(tmp_path / "x",))
    process.start()
    process.join()
    assert len(list(tmp_path.iterdir())) == 1
    ClickDataset.from_parquet(a_log(), path=tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
