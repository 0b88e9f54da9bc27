"""What labels of documents cost in an engine, and in memory.

Run it with ``POLARS_MAX_THREADS=2`` in the environment.
A log of 100,000 queries with ten documents each, in Parquet, in row groups of a million rows; the
table is written to Parquet.
"""

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from skultr.propensity import debiased_table, relevance_labels

from .._study import Page, cost, measured

CURVE = 1 / np.arange(1, 11)


def write_log(path, millions):
    """A log whose documents were shuffled at every impression."""
    rng, writer, n_lists = np.random.default_rng(0), None, 100_000
    for part in range(millions):
        position = np.tile(np.arange(1, 11, dtype=np.int32), n_lists)
        columns = {
            "qid": np.repeat(rng.integers(100_000, size=n_lists), 10),
            "session": np.repeat(np.arange(part * n_lists, (part + 1) * n_lists), 10),
            "doc": rng.permuted(np.tile(np.arange(10), (n_lists, 1)), axis=1).ravel(),
            "position": position,
            "click": (rng.random(10 * n_lists) < 0.3 / position).astype(np.int8),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def in_duckdb(path, out):
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET memory_limit = '2GB'")
    debiased_table(connection.read_parquet(path), CURVE).write_parquet(out)


def in_polars(path, out):
    debiased_table(pl.scan_parquet(path), CURVE).sink_parquet(out)


def in_pandas(path, out):
    debiased_table(pd.read_parquet(path), CURVE).to_parquet(out)


def labels_in_pandas(path, out):
    log = pd.read_parquet(path)
    clicks = log.pop("click").to_numpy()
    relevance_labels(log, clicks, propensity=CURVE).to_parquet(out)


WORKS = {work.__name__: work for work in (in_duckdb, in_polars, in_pandas, labels_in_pandas)}


def tables(cell, settings, seed):
    """One work on a log that was written for it."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "log.parquet", Path(folder) / "out.parquet"
        write_log(path, cell["millions"])
        return [cost(lambda: WORKS[cell["work"]](str(path), str(out)))]


PAGE = Page(
    "studies/debiased_table",
    "Labels of documents in an engine, and in memory",
    (
        measured(
            tables,
            "What each takes",
            ("seconds", "CPU seconds", "GiB"),
            over={"millions": (10, 30), "work": WORKS},
            runs=1,
            alone=True,
        ),
    ),
)
