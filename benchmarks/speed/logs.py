"""Passes over a log: aggregation and the identifiability graph beside bare group-bys."""

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from skultr import ClickDataset, aggregate_clicks
from skultr.identifiability import IdentifiabilityGraph
from skultr.rankers import NaiveRanker

from ..studies import dataset
from ._work import OURS, Work

LENGTH = 10


def aggregation(engine, group_by):
    """A Parquet file of lists of ten documents in random order."""

    def contenders(size):
        path = _folder() / "log.parquet"
        _write_log(path, size(tiny=2_000, quick=200_000, full=1_000_000))
        return {
            OURS: lambda: aggregate_clicks(READERS[engine](str(path))),
            BARE: lambda: group_by(READERS[engine](str(path))),
        }

    return contenders


BARE = "group-by by hand"
READERS = {"polars": pl.scan_parquet, "duckdb": duckdb.read_parquet}


def _folder():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


def _write_log(path, n_rows):
    """Sessions that show 10 of the 20 documents of a query."""
    rng, n_sessions = np.random.default_rng(0), n_rows // LENGTH
    n_queries = max(2, n_sessions // 20)
    qid = rng.integers(0, n_queries, n_sessions)
    order = rng.random((n_sessions, 2 * LENGTH), dtype=np.float32)
    rank = np.argsort(order, axis=1)[:, :LENGTH]
    columns = {
        "qid": np.repeat(qid, LENGTH),
        "session": np.repeat(np.arange(n_sessions), LENGTH),
        "doc": (qid[:, None] * 2 * LENGTH + rank).ravel(),
        "position": np.tile(np.arange(1, LENGTH + 1), n_sessions),
    }
    click = (rng.random(n_sessions * LENGTH) < 0.1).astype(np.int8)
    pq.write_table(pa.table({**columns, "click": click}), path)


def in_polars(log):
    """Hash each row, sum the hashes by session, group by the sums."""
    keys = ["qid", "list", "doc", "position"]
    rows = log.with_columns(list=pl.struct("doc", "position").hash())
    lists = rows.group_by("qid", "session").agg(pl.col("list").sum())
    rows = rows.drop("list").join(lists, on=["qid", "session"])
    counts = rows.group_by(keys).agg(pl.len(), pl.col("click").cast(pl.Int64).sum())
    return counts.sort("qid", "list", "position").collect(engine="streaming")


def in_duckdb(log):
    """The same in SQL."""
    duckdb.execute("set threads = 1")
    return log.query(
        "log",
        """
        with lists as (select qid, session, sum(hash(doc, position) >> 20)::bigint as list
                       from log group by qid, session)
        select qid, list, doc, position, count(*) as n, sum(click) as clicks
        from log join lists using (qid, session)
        group by qid, list, doc, position order by qid, list, position
        """,
    ).to_arrow_table()


CELLS = "Polars group-by of the cells"


def graph(text):
    """As many pairs of document and factor as impressions, the hardest case."""

    def contenders(size):
        log = _log_of_pairs(size(tiny=2_000, quick=200_000, full=2_000_000), text).lazy()
        bias = ["position", "device"]
        cells = log.group_by("qid", "doc", *bias).agg(pl.len(), pl.col("click").sum())
        return {
            OURS: lambda: IdentifiabilityGraph.from_log(log, bias=bias),
            CELLS: lambda: cells.collect(engine="streaming"),
        }

    return contenders


def _log_of_pairs(n_rows, text):
    """A Polars frame with about as many (document, factor) pairs as rows."""
    rng, n_docs = np.random.default_rng(0), max(1, n_rows // 10)
    doc = pl.Series("doc", rng.integers(0, n_docs, n_rows))
    log = pl.DataFrame(
        {
            "qid": doc % max(1, n_docs // 10),
            "doc": doc,
            "position": rng.integers(1, 51, n_rows),
            "device": rng.integers(0, 100, n_rows),
            "click": (rng.random(n_rows) < 0.1).astype(np.int8),
        }
    )
    url = pl.format("https://example.org/document/{}", "doc")
    return log.with_columns(url.alias("doc")) if text else log


MEMORY = "the same fit from a frame in memory"
READ = "reading the Parquet files into a frame, with the features joined"


def dataset_files(size):
    """A folder with Parquet files of lists of ten in random order, and of their documents."""
    folder = _folder() / "world"
    n_sessions = size(tiny=200, quick=20_000, full=100_000)
    dataset.write_log(folder, n_sessions, size(tiny=200, quick=10_000, full=20_000))
    return folder


def _frame(folder):
    documents = pd.read_parquet(folder / "documents.parquet")
    return pd.read_parquet(folder / "log").merge(documents, on="doc")


def making_a_dataset(size):
    folder, count = dataset_files(size), itertools.count()

    def ours():
        log, documents = folder / "log", folder / "documents.parquet"
        ClickDataset.from_parquet(log, documents, path=folder / f"dataset{next(count)}")

    return {OURS: ours, READ: lambda: _frame(folder)}


def fit_from_disk(size):
    folder = dataset_files(size)
    dataset.make(folder)

    def fit(*data):
        NaiveRanker(max_epochs=1, random_state=0).fit(*data)

    def from_memory():
        fit(_frame(folder), "click")

    return {OURS: lambda: fit(ClickDataset(folder / "dataset")), MEMORY: from_memory}


WORKS = (
    *(
        Work(
            f"logs/aggregate-{engine}",
            f"aggregate_clicks, random lists, {title}",
            aggregation(engine, group_by),
            {BARE: None},
            note="the group-by by hand checks nothing",
        )
        for engine, title, group_by in (
            ("polars", "Polars", in_polars),
            ("duckdb", "DuckDB", in_duckdb),
        )
    ),
    Work(
        "logs/graph-integers",
        "IdentifiabilityGraph, integers",
        graph(False),
        {CELLS: 2.5},
    ),
    Work("logs/graph-text", "IdentifiabilityGraph, text", graph(True), {CELLS: 2.5}),
    Work(
        "logs/dataset-make",
        "ClickDataset.from_parquet",
        making_a_dataset,
        {READ: None},
        note="the peer checks, sorts and merges nothing",
    ),
    Work(
        "logs/dataset-fit",
        "NaiveRanker.fit(ClickDataset), one epoch",
        fit_from_disk,
        {MEMORY: None},
        memory_goal=1.0,
        note="the peer reads the files into a frame first",
    ),
)
