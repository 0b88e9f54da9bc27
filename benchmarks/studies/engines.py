"""Cost of estimates from a log in an engine, beside the engine's own group-by of its cells.

    python -m benchmarks.studies.engines [millions of impressions ...] [--folder DIR]

Logs of ten positions are written to Parquet once, in files of at most 100 million rows: 20,000
queries of equal traffic, 12 documents each, in random order, so that the cells stop growing at
2.4 million. Each line is one process of its own: seconds of wall clock, CPU seconds, their ratio
to those of the bare group-by, and the peak of its memory (with the engine).
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
PART = 100_000_000
GROUP = "SELECT qid, doc, position, sum(click), count(*) FROM {} GROUP BY qid, doc, position"


def write_part(path, n_impressions, seed):
    import pyarrow as pa
    import pyarrow.parquet as pq

    relevance = np.random.default_rng(0).uniform(0.05, 0.9, (N_QUERIES, N_DOCS))
    rng = np.random.default_rng(seed + 1)
    examination = 1 / np.arange(1, N_POSITIONS + 1)
    writer, unfinished = None, path.with_suffix(".unfinished")
    first = seed * n_impressions // N_POSITIONS
    for start in range(first, first + n_impressions // N_POSITIONS, CHUNK):
        n = min(CHUNK, first + n_impressions // N_POSITIONS - start)
        query = rng.integers(N_QUERIES, size=n, dtype=np.int32)
        order = np.argsort(rng.random((n, N_DOCS), dtype=np.float32), axis=1)[:, :N_POSITIONS]
        chance = relevance[query[:, None], order] * examination
        table = pa.table(
            {
                "qid": np.repeat(query, N_POSITIONS),
                "session": np.repeat(np.arange(start, start + n, dtype=np.int32), N_POSITIONS),
                "doc": order.ravel().astype(np.int8),
                "position": np.tile(np.arange(1, N_POSITIONS + 1, dtype=np.int8), n),
                "click": (rng.random(chance.shape, dtype=np.float32) < chance)
                .astype(np.int8)
                .ravel(),
            }
        )
        writer = writer or pq.ParquetWriter(
            unfinished,
            table.schema,
            use_dictionary=["qid", "doc", "position", "click"],
            column_encoding={"session": "DELTA_BINARY_PACKED"},
        )
        writer.write_table(table)
    writer.close()
    unfinished.rename(path)


def parts_of(folder, millions):
    """Files of a log of so many millions of impressions, written where they are missing."""
    rows = min(millions * 1_000_000, PART)
    paths = []
    for seed in range(-(-millions * 1_000_000 // rows)):
        paths.append(folder / f"engines-{rows // 1_000_000}M-{seed}.parquet")
        if not paths[-1].exists():
            write_part(paths[-1], rows, seed)
    return [str(path) for path in paths]


def frame_of(engine, paths):
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(paths)
    import duckdb

    return duckdb.read_parquet(paths)


def group_by(engine, paths):
    if engine == "polars":
        import polars as pl

        keys = frame_of(engine, paths).group_by("qid", "doc", "position")
        return keys.agg(pl.col("click").sum(), pl.len()).collect(engine="streaming")
    import duckdb

    return duckdb.sql(GROUP.format(f"read_parquet({paths})")).to_arrow_table()


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
    if name in ("harvesting", "curve with intervals"):
        # 100 resamples of queries for intervals, or none.
        n_bootstrap = 100 if name == "curve with intervals" else 0
        estimator = InterventionHarvesting(n_bootstrap=n_bootstrap, random_state=0)
    else:
        estimator = RegressionEMPropensity(relevance="embedding")
    return lambda X: estimator.fit(X, "click").examination_


def in_shards(name):
    """Where the work is to be done in shards, let only a million cells fit into memory."""
    from skultr._log import _cells

    if name.endswith("in shards"):
        _cells.MAX_CELLS = _cells.PART_ROWS = 1_000_000


def run(engine, name, *paths):
    paths = list(paths)
    frame = frame_of(engine, paths)
    work = None if name == "group-by" else work_of(name)
    start, cpu = time.perf_counter(), time.process_time()
    if work is None:
        group_by(engine, paths)
    else:
        work(frame)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, peak]))


WORKS = ("group-by", "curve", "harvesting", "PBM", "table", "labels", "graph")
WORKS += ("curve in shards", "PBM in shards", "table in shards")


def main(millions, works, engines, folder):
    print(f"{'impressions':>12} {'engine':8} {'work':20} {'wall':>7} {'CPU':>7} {'ratio':>6}  GiB")
    for n in millions:
        paths = parts_of(folder, n)
        for engine in engines:
            peer = None
            for name in works:
                call = [sys.executable, __file__, "--one", engine, name, *paths]
                done = subprocess.run(call, capture_output=True, text=True, check=True)
                wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
                peer = peer or cpu
                print(
                    f"{n:>10} M {engine:8} {name:20} {wall:7.1f} {cpu:7.1f} {cpu / peer:6.1f}"
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
        parser.add_argument("--engines", nargs="*", default=["polars", "duckdb"])
        parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
        given = parser.parse_args()
        main(given.millions, given.works, given.engines, given.folder)
