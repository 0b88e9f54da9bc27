"""Time and memory of aggregate_clicks on a long log, engine by engine. Run by hand:

    python tests/benchmarks/bench_aggregate.py [--millions 20] [--kind deterministic]

Each engine runs in a process of its own on the same Parquet file; the peak memory is that of the
process. The ratio is to a bare group-by written by hand in Polars, which counts but neither
checks the log nor tells lists apart. In the kind "mixed" a tenth of the queries shows two
rankings; in "random" every session shows a random ranking of 5 out of its query's documents.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LENGTH = 10
N_QUERIES = 20_000
ENGINES = ("bare", "polars-lazy", "polars", "duckdb", "pyarrow", "pandas")


def write_log(path, n_rows, kind):
    """Sessions of ten rows (five if random), written a part at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    length = 5 if kind == "random" else LENGTH
    n_sessions, writer = n_rows // length, None
    for first in range(0, n_sessions, 200_000):
        session = np.arange(first, min(first + 200_000, n_sessions))
        qid = rng.zipf(1.3, len(session)) % N_QUERIES
        rank = np.tile(np.arange(length), (len(session), 1))
        if kind == "mixed":
            swap = (qid % 10 == 0) & (session % 2 == 0)
            rank[swap, 0], rank[swap, 1] = 1, 0
        elif kind == "random":
            rank = rng.permuted(rank, axis=1)
        table = pa.table(
            {
                "qid": np.repeat(qid, length),
                "session": np.repeat(session, length),
                "doc": (qid[:, None] * LENGTH + rank).ravel(),
                "position": np.tile(np.arange(1, length + 1), len(session)),
                "click": (rng.random(rank.size) < 0.1).astype(np.int8),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def bare(path):
    """The group-by that one would write by hand, in Polars."""
    import polars as pl

    clicks = pl.col("click").cast(pl.Int64).sum()
    return pl.scan_parquet(path).group_by("qid", "doc", "position").agg(pl.len(), clicks).collect()


def read(engine, path):
    """The log in an engine: eager ones read it whole."""
    if engine == "duckdb":
        import duckdb

        return duckdb.read_parquet(path)
    if engine == "pandas":
        import pandas as pd

        return pd.read_parquet(path)
    if engine == "pyarrow":
        import pyarrow.parquet as pq

        return pq.read_table(path)
    import polars as pl

    return pl.scan_parquet(path) if engine == "polars-lazy" else pl.read_parquet(path)


def run(engine, path):
    """Print seconds, peak memory in GB and number of cells of one engine."""
    if engine == "bare":
        import polars  # noqa: F401

        start = time.perf_counter()
        n_cells = len(bare(path))
    else:
        from skultr import aggregate_clicks

        log = read(engine, path)
        start = time.perf_counter()
        n_cells = len(aggregate_clicks(log)[1])
    seconds = time.perf_counter() - start
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, n_cells)


def main():
    """Write the log, run every engine in its own process, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=20)
    parser.add_argument("--kind", choices=("deterministic", "mixed", "random"), default="mixed")
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "PATH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run(*args.run)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "log.parquet")
        write_log(path, int(args.millions * 1e6), args.kind)
        print(f"{args.millions:g} million rows, {args.kind}")
        print(f"{'engine':<12} {'seconds':>8} {'ratio':>6} {'peak GB':>8} {'cells':>10}")
        base = None
        for engine in args.engines:
            command = [sys.executable, __file__, "--run", engine, path]
            out = subprocess.run(command, capture_output=True, text=True)
            if out.returncode:
                print(f"{engine:<12} failed: {out.stderr.strip().splitlines()[-1:]}")
                continue
            seconds, memory, n_cells = map(float, out.stdout.split())
            base = base or seconds
            ratio = seconds / base
            print(
                f"{engine:<12} {seconds:8.1f} {ratio:6.1f} {memory:8.2f} {n_cells:10.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
