"""Time and memory of aggregate_clicks beside a bare group-by of the same engine. Run by hand:

    python tests/benchmarks/bench_aggregate.py [--millions 4] [--kinds random long]

Each run has a process of its own on the same Parquet file. "bare" is what one would write by hand
in that engine, without any check: hash each row, sum the hashes by session, group by the sums
(without sessions to tell apart, in the kind "deterministic", that is one ranking per query). In
the kind "mixed" a tenth of the queries shows two rankings; in "random" every session shows a
random ranking of 10 out of 20 documents of its query; "long" is "random" and one query with two
lists of 2,000. Seconds are of the processor, the peak is that of the process.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LENGTH, LONG = 10, 2_000
ENGINES = ("polars-lazy", "polars", "duckdb", "pyarrow", "pandas")
KINDS = ("deterministic", "mixed", "random", "long")


def write_log(path, n_rows, kind):
    """Sessions of ten rows, written a part at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    n_sessions, writer = n_rows // LENGTH, None
    n_queries = max(2, n_sessions // 20)
    for first in range(0, n_sessions, 200_000):
        session = np.arange(first, min(first + 200_000, n_sessions))
        qid = rng.integers(0, n_queries, len(session))
        rank = np.tile(np.arange(LENGTH), (len(session), 1))
        if kind == "mixed":
            swap = (qid % 10 == 0) & (session % 2 == 0)
            rank[swap, 0], rank[swap, 1] = 1, 0
        elif kind != "deterministic":
            order = rng.random((len(session), 2 * LENGTH), dtype=np.float32)
            rank = np.argsort(order, axis=1)[:, :LENGTH]
        columns = {
            "qid": np.repeat(qid, LENGTH),
            "session": np.repeat(session, LENGTH),
            "doc": (qid[:, None] * 2 * LENGTH + rank).ravel(),
            "position": np.tile(np.arange(1, LENGTH + 1), len(session)),
        }
        if kind == "long" and first == 0:
            docs = 2 * LENGTH * n_queries + np.arange(LONG)
            long = {
                "qid": np.full(2 * LONG, n_queries),
                "session": np.repeat([n_sessions, n_sessions + 1], LONG),
                "doc": np.concatenate([docs, docs[::-1]]),
                "position": np.tile(np.arange(1, LONG + 1), 2),
            }
            columns = {name: np.concatenate([columns[name], long[name]]) for name in columns}
        columns["click"] = (rng.random(len(columns["qid"])) < 0.1).astype(np.int8)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


# --------------------------------------------------------------------------------------
# The group-by that one would write by hand
# --------------------------------------------------------------------------------------
def bare_polars(log):
    """In Polars."""
    import polars as pl

    keys = ["qid", "list", "doc", "position"]
    rows = log.lazy().with_columns(list=pl.struct("doc", "position").hash())
    lists = rows.group_by("qid", "session").agg(pl.col("list").sum())
    rows = rows.drop("list").join(lists, on=["qid", "session"])
    counts = rows.group_by(keys).agg(pl.len(), pl.col("click").cast(pl.Int64).sum())
    return counts.sort("qid", "list", "position").collect(engine="streaming")


def bare_duckdb(log):
    """In DuckDB."""
    return log.query(
        "log",
        """
        with lists as (select qid, session, sum(hash(doc, position) >> 20)::bigint as list
                       from log group by qid, session)
        select qid, list, doc, position, count(*) as n, sum(click) as clicks
        from log join lists using (qid, session)
        group by qid, list, doc, position order by qid, list, position
        """,
    ).arrow()


def bare_pandas(log):
    """In pandas."""
    import pandas as pd

    hashes = pd.util.hash_pandas_object(log[["doc", "position"]], index=False)
    list_ = hashes.astype("int64").groupby([log["qid"], log["session"]]).transform("sum")
    groups = log.assign(list=list_).groupby(["qid", "list", "doc", "position"], sort=False)
    counts = groups["click"].agg(["size", "sum"]).reset_index()
    return counts.sort_values(["qid", "list", "position"])


def bare_pyarrow(log):
    """In PyArrow, which has no hash: an integer of document and position stands for it."""
    import pyarrow.compute as pc

    mixed = pc.multiply(pc.add(pc.multiply(log["doc"], 2**20), log["position"]), 0x9E3779B97F4A7C1)
    rows = log.append_column("hash", pc.bit_wise_xor(mixed, pc.shift_right(mixed, 31)))
    lists = rows.group_by(["qid", "session"]).aggregate([("hash", "sum")])
    rows = log.join(lists, ["qid", "session"])
    keys = ["qid", "hash_sum", "doc", "position"]
    counts = rows.group_by(keys).aggregate([("click", "sum"), ([], "count_all")])
    order = [(name, "ascending") for name in ("qid", "hash_sum", "position")]
    return counts.sort_by(order)


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


def run(what, engine, path):
    """Print seconds, peak memory in GB and number of rows of one engine."""
    from skultr import aggregate_clicks

    log = read(engine, path)
    function = globals()[f"bare_{engine.split('-')[0]}"] if what == "bare" else aggregate_clicks
    start = time.process_time()
    found = function(log)
    seconds = time.process_time() - start
    if hasattr(found, "read_all"):  # DuckDB gives a stream of batches
        found = found.read_all()
        seconds = time.process_time() - start
    n_rows = len(found) if what == "bare" else len(found[1])
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, n_rows)


def child(*arguments):
    """The numbers that a run prints, or None and what went wrong."""
    command = [sys.executable, __file__, "--run", *arguments]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        print(*arguments[:2], "failed:", out.stderr.strip().splitlines()[-1:])
        return None
    return [float(word) for word in out.stdout.split()]


def main():
    """Write the logs, run everything in its own process, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=4)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run(*args.run)
    print(f"{args.millions:g} million rows")
    print("kind          engine       seconds  ratio to bare  peak GB  bare GB    rows out")
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "log.parquet")
            write_log(path, int(args.millions * 1e6), kind)
            for engine in args.engines:
                bare, own = child("bare", engine, path), child("skultr", engine, path)
                if bare and own:
                    print(
                        f"{kind:<13} {engine:<11} {own[0]:8.2f} {own[0] / bare[0]:14.2f} "
                        f"{own[1]:8.2f} {bare[1]:8.2f} {own[2]:11,.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
