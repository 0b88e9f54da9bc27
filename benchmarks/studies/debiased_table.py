"""What labels of documents cost in an engine, and in memory.

By hand, with ``POLARS_MAX_THREADS=2`` in the environment:
``python -m benchmarks.studies.debiased_table [--millions 10 30]``.

A log of 100,000 queries with ten documents each, in Parquet, in row groups of a million rows; the
table is written to Parquet. One process per line, because memory is the peak beyond the imports.
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from skultr.propensity import debiased_table, relevance_labels

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


def measure(run, path, out):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    run(str(path), str(out))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 2**20
    print(f"{run.__name__:17} {wall:6.1f} s, {cpu:6.1f} s of CPU time, {peak:.1f} GB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[10, 30])
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for millions in parser.parse_args().millions:
            path, out = Path(folder) / f"{millions}.parquet", Path(folder) / "out.parquet"
            write_log(path, millions)
            print(f"{millions} million rows")
            for run in (in_duckdb, in_polars, in_pandas, labels_in_pandas):
                process = spawn.Process(target=measure, args=(run, path, out))
                process.start()
                process.join()


if __name__ == "__main__":
    main()
