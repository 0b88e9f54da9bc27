"""Cost of estimates from a log in an engine, beside the engine's own group-by of its cells.

    python tests/benchmarks/bench_engines.py [millions of impressions ...] [--folder DIR]

Logs of ten positions are written to Parquet once: 20,000 queries of equal traffic, 12 documents
each, in random order, so that the cells stop growing at 2.4 million. Each line is one process of
its own: seconds of wall clock, CPU seconds, and the peak of its memory (with the engine).
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N_QUERIES, N_DOCS, N_POSITIONS, CHUNK = 20_000, 12, 10, 250_000
GROUP = "SELECT qid, doc, position, sum(click), count(*) FROM '{}' GROUP BY qid, doc, position"


def write_log(path, n_impressions):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    relevance = rng.uniform(0.05, 0.9, (N_QUERIES, N_DOCS))
    examination = 1 / np.arange(1, N_POSITIONS + 1)
    writer = None
    for start in range(0, n_impressions // N_POSITIONS, CHUNK):
        n = min(CHUNK, n_impressions // N_POSITIONS - start)
        query = rng.integers(N_QUERIES, size=n)
        order = np.argsort(rng.random((n, N_DOCS)), axis=1)[:, :N_POSITIONS]
        chance = relevance[query[:, None], order] * examination
        table = pa.table(
            {
                "qid": np.repeat(query, N_POSITIONS),
                "session": np.repeat(np.arange(start, start + n), N_POSITIONS),
                "doc": (query[:, None] * N_DOCS + order).ravel(),
                "position": np.tile(np.arange(1, N_POSITIONS + 1), n),
                "click": (rng.random(chance.shape) < chance).astype(np.int8).ravel(),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def frame_of(engine, path):
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(path)
    import duckdb

    return duckdb.read_parquet(str(path))


def group_by(engine, path):
    if engine == "polars":
        import polars as pl

        keys = frame_of(engine, path).group_by("qid", "doc", "position")
        return keys.agg(pl.col("click").sum(), pl.len()).collect(engine="streaming")
    import duckdb

    return duckdb.sql(GROUP.format(path)).to_arrow_table()


def work_of(name):
    """A function of a frame; packages are imported before the clock starts."""
    if name == "graph":
        from skultr.identifiability import IdentifiabilityGraph

        return lambda X: IdentifiabilityGraph.from_log(X).is_connected
    if name.startswith("PBM"):
        from skultr.click_models import PBMModel

        in_shards(name)
        return lambda X: PBMModel().fit(X, "click").examination_
    if name == "labels":
        from skultr.propensity import relevance_labels

        curve = 1 / np.arange(1, N_POSITIONS + 1)
        return lambda X: relevance_labels(X, "click", propensity=curve, interval=True)
    if name.startswith("table"):
        from skultr.rankers import RegressionEMRanker

        in_shards(name)
        ranker = RegressionEMRanker(relevance="embedding", random_state=0)
        return lambda X: ranker.fit(X, "click").relevance_
    from skultr.propensity import InterventionHarvesting, RegressionEMPropensity

    in_shards(name)
    if name == "harvesting":
        estimator = InterventionHarvesting(n_bootstrap=0)
    else:
        estimator = RegressionEMPropensity(relevance="embedding")
    return lambda X: estimator.fit(X, "click").examination_


def in_shards(name):
    """Where the work is to be done in shards, let only a million cells fit into memory."""
    from skultr._log import _cells

    if name.endswith("in shards"):
        _cells.MAX_CELLS = _cells.PART_ROWS = 1_000_000


def run(engine, name, path):
    frame = frame_of(engine, path)
    work = None if name == "group-by" else work_of(name)
    start, cpu = time.perf_counter(), time.process_time()
    if work is None:
        group_by(engine, path)
    else:
        work(frame)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, peak]))


WORKS = ("group-by", "curve", "harvesting", "PBM", "table", "labels", "graph")
WORKS += ("curve in shards", "PBM in shards", "table in shards")


def main(millions, works, folder):
    print(f"{'impressions':>12} {'engine':8} {'work':16} {'wall':>7} {'CPU':>7} {'ratio':>6}  GiB")
    for n in millions:
        path = folder / f"engines-{n}.parquet"
        if not path.exists():
            write_log(path, n * 1_000_000)
        for engine in ("polars", "duckdb"):
            peer = None
            for name in works:
                call = [sys.executable, __file__, "--one", engine, name, str(path)]
                done = subprocess.run(call, capture_output=True, text=True, check=True)
                wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
                peer = peer or cpu
                print(
                    f"{n:>10} M {engine:8} {name:16} {wall:7.1f} {cpu:7.1f} {cpu / peer:6.1f}"
                    f" {peak:5.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("millions", type=int, nargs="*", default=[10])
        parser.add_argument("--works", nargs="*", default=WORKS)
        parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
        given = parser.parse_args()
        main(given.millions, given.works, given.folder)
