"""Passes over a log: aggregation and the identifiability graph beside bare group-bys."""

import atexit
import shutil
import tempfile
from pathlib import Path

from skultr import aggregate_clicks

from .. import bench_aggregate as aggregate
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
)
