"""Passes over a log: aggregation and the identifiability graph beside bare group-bys."""

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from skultr import ClickDataset, aggregate_clicks
from skultr.rankers import NaiveRanker

from .. import bench_aggregate as aggregate
from .. import bench_dataset as dataset
from .. import bench_identifiability as identifiability
from ._work import OURS, Work


def aggregation(engine, kind):
    """A Parquet file of lists of ten of that kind."""

    def contenders(size):
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder)
        path = str(Path(folder) / "log.parquet")
        n_rows = size(tiny=2_000, quick=200_000, full=1_000_000)
        aggregate.write_log(path, n_rows, kind)
        return {
            OURS: lambda: aggregate_clicks(_read(engine, path)),
            BARE: lambda: _bare(engine, _read(engine, path)),
        }

    return contenders


BARE = "group-by by hand"


def _read(engine, path):
    if engine == "duckdb":
        import duckdb

        duckdb.execute("set threads = 1")
    return aggregate.read(engine, path)


def _bare(engine, log):
    if engine == "duckdb":
        rows = aggregate.bare_duckdb(log)
        return rows.read_all() if hasattr(rows, "read_all") else rows
    return aggregate.bare_polars(log)


CELLS = "Polars group-by of the cells"


def graph(text):
    """As many pairs of document and factor as impressions, the hardest case."""

    def contenders(size):
        log = identifiability.ids_log(size(tiny=2_000, quick=200_000, full=2_000_000), text)
        return {
            OURS: lambda: identifiability.graph_of(log),
            CELLS: lambda: identifiability.bare_cells(log),
        }

    return contenders


MEMORY = "the same fit from a frame in memory"
READ = "reading the Parquet files into a frame, with the features joined"


def dataset_files(size):
    """A folder with Parquet files of lists of ten in random order, and of their documents."""
    folder = Path(tempfile.mkdtemp()) / "world"
    atexit.register(shutil.rmtree, folder.parent)
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
            aggregation(f"{engine}-lazy" if engine == "polars" else engine, "random"),
            {BARE: None},
            note="the group-by by hand checks nothing",
        )
        for engine, title in (("polars", "Polars"), ("duckdb", "DuckDB"))
    ),
    Work(
        "logs/graph-integers",
        "IdentifiabilityGraph, integers",
        graph(False),
        {CELLS: None},
    ),
    Work("logs/graph-text", "IdentifiabilityGraph, text", graph(True), {CELLS: None}),
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
