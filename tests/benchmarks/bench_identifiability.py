"""Time and memory of IdentifiabilityGraph. Run by hand:

    python tests/benchmarks/bench_identifiability.py log [--millions 100] [--documents 2]
    python tests/benchmarks/bench_identifiability.py pairs [--millions 10]
    python tests/benchmarks/bench_identifiability.py ids [--millions 10]

``log``: a Parquet file of that many impressions (10 positions x 3 devices, rankings that swap
neighbours), read through each engine in a process of its own, whose peak memory is printed.
``pairs``: random distinct (document, factor) pairs in arrays, for 10, 5,000 and 50,000 factors,
and a chain, the deepest graph there is. Both print the ratio to brute force (the clique graph in
networkx) in rows a second, on a case small enough for it, in the same run.
``ids``: as many distinct pairs as impressions, of documents whose ids are integers or text; the
ratio is to a bare group-by of Polars over the same cells, in processor seconds of one thread.
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
ENGINES = ("polars", "duckdb")
SHAPES = ("10", "5000", "50000", "chain")
SMALL = 20_000


# --------------------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------------------
def write_log(path, n_rows, n_queries):
    """Sessions of ten rows, a few queries much more frequent than others, a part at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    devices = np.array(["phone", "desktop", "tablet"])
    for first in range(0, n_rows // LENGTH, 500_000):
        n_sessions = min(500_000, n_rows // LENGTH - first)
        query = rng.zipf(1.15, n_sessions) % n_queries
        rank = np.tile(np.arange(LENGTH), (n_sessions, 1))
        swapped = np.flatnonzero(rng.random(n_sessions) < 0.3)
        place = rng.integers(0, LENGTH - 1, len(swapped))
        rank[swapped, place], rank[swapped, place + 1] = place + 1, place
        device = devices[np.repeat(rng.integers(0, 3, n_sessions), LENGTH)]
        table = pa.table(
            {
                "qid": np.repeat(query, LENGTH),
                "doc": (query[:, None] * LENGTH + rank).ravel(),
                "position": np.tile(np.arange(1, LENGTH + 1, dtype=np.int8), n_sessions),
                "device": pa.array(device).dictionary_encode(),
                "click": (rng.random(rank.size) < 0.1).astype(np.int8),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def random_pairs(shape, n_pairs):
    """Documents and factors of about that many distinct pairs."""
    if shape == "chain":
        n = n_pairs // 2
        return np.repeat(np.arange(n), 2), np.column_stack(
            [np.arange(n), np.arange(1, n + 1)]
        ).ravel()
    rng = np.random.default_rng(0)
    n_draws = int(1.2 * n_pairs) if shape == "10" else n_pairs
    return rng.integers(0, max(1, n_pairs // 3), n_draws), rng.integers(0, int(shape), n_draws)


# --------------------------------------------------------------------------------------
# Brute force
# --------------------------------------------------------------------------------------
def brute_force(doc, factor):
    """Components and edges of the clique graph, and its bridges by biconnectivity, in networkx."""
    import networkx as nx

    start = time.perf_counter()
    graph, members = nx.Graph(), {}
    for x, t in zip(doc.tolist(), factor.tolist(), strict=True):
        graph.add_node(t)
        members.setdefault(x, set()).add(t)
    for factors in members.values():
        graph.add_edges_from((a, b) for a in factors for b in factors if a < b)
    n_components = nx.number_connected_components(graph)
    seconds = time.perf_counter() - start

    start = time.perf_counter()
    both = nx.Graph((("doc", x), t) for x, factors in members.items() for t in factors)
    bridges = sum(isinstance(node, tuple) for node in nx.articulation_points(both))
    return n_components, graph.number_of_edges(), bridges, seconds, time.perf_counter() - start


# --------------------------------------------------------------------------------------
# One run, in a process of its own
# --------------------------------------------------------------------------------------
def run_log(engine, path):
    """Print seconds, peak memory in GB, and what was found."""
    from skultr.identifiability import IdentifiabilityGraph

    if engine == "polars":
        import polars

        log = polars.scan_parquet(path)
    else:
        import duckdb

        log = duckdb.read_parquet(path)
    start = time.perf_counter()
    graph = IdentifiabilityGraph.from_log(log, bias=["position", "device"])
    seconds = time.perf_counter() - start
    n_impressions = int(graph.pairs.impressions.sum())
    print(seconds, peak(), n_impressions, graph.n_pairs, graph.n_components)


def run_pairs(shape, n_pairs):
    """Print seconds of each step, peak memory in GB, and what was found."""
    from skultr.identifiability import IdentifiabilityGraph

    doc, factor = random_pairs(shape, n_pairs)
    start = time.perf_counter()
    graph = IdentifiabilityGraph(doc, factor)
    times = [time.perf_counter() - start]
    memory = peak()
    results = []
    for step in (lambda: len(graph.bridges()), lambda: graph.n_edges):
        start = time.perf_counter()
        results.append(step())
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    if shape != "chain":
        graph.weak_links(1)
    times.append(time.perf_counter() - start)
    print(*times, memory, peak(), graph.n_pairs, graph.n_components, *results)


def run_ids(what, n_rows, text):
    """Print processor seconds and peak memory in GB, of the graph or a bare group-by."""
    log = ids_log(n_rows, text)
    run = {"graph": graph_of, "bare": bare_cells}[what]
    graph_of(log.head(100))  # imports
    start = time.process_time()
    run(log)
    print(time.process_time() - start, peak())


def ids_log(n_rows, text):
    """A Polars frame with about as many (document, factor) pairs as rows."""
    import polars as pl

    rng = np.random.default_rng(0)
    n_docs = max(1, n_rows // 10)
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


def graph_of(log):
    """The graph of that log, read by Polars."""
    from skultr.identifiability import IdentifiabilityGraph

    return IdentifiabilityGraph.from_log(log.lazy(), bias=["position", "device"])


def bare_cells(log):
    """Impressions and clicks of each cell, the pass that a graph cannot do without."""
    import polars as pl

    cells = log.lazy().group_by("qid", "doc", "position", "device")
    return cells.agg(pl.len(), pl.col("click").sum()).collect(engine="streaming")


def peak():
    """Peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def child(*arguments):
    """The numbers that a run prints."""
    command = [sys.executable, __file__, "--run", *map(str, arguments)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr.strip().splitlines()[-1])
    return [float(word) for word in out.stdout.split()]


# --------------------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------------------
def bench_log(n_rows, n_queries):
    """All engines on one file, and brute force on a small one."""
    import polars

    with tempfile.TemporaryDirectory() as folder:
        small, large = (str(Path(folder) / f"{name}.parquet") for name in ("small", "large"))
        write_log(small, SMALL, n_queries)
        rows = polars.read_parquet(small)
        factor = rows["position"].to_numpy().astype(int) * 10
        factor += rows["device"].cast(polars.Categorical).to_physical().to_numpy()
        expected, *_, seconds, _ = brute_force(rows["doc"].to_numpy(), factor)
        assert expected == child("log", "polars", small)[-1]
        brute = SMALL / seconds
        print(f"networkx: {seconds:.2f} s for {SMALL:,} impressions, {brute:,.0f} a second")
        write_log(large, n_rows, n_queries)
        print("engine    seconds  peak GB  impressions      pairs  ratio")
        for engine in ENGINES:
            seconds, memory, n, n_pairs, _ = child("log", engine, large)
            ratio = n / seconds / brute
            print(
                f"{engine:<8} {seconds:8.1f} {memory:8.2f} {n:12,.0f} {n_pairs:10,.0f} "
                f"{ratio:6.0f}",
                flush=True,
            )


def bench_pairs(n_pairs):
    """All shapes, each with brute force on a small case of the same shape."""
    print(
        "factors        pairs  graph s  peak GB bridges s  edges s  links s  peak GB "
        " ratio: graph  bridges"
    )
    for shape in SHAPES:
        components, edges, bridges, *brute = brute_force(*random_pairs(shape, SMALL))
        assert [components, bridges, edges] == child("pairs", shape, SMALL)[-3:]
        graph, by_loss, in_all, links, early, late, n, *_ = child("pairs", shape, n_pairs)
        ratios = [
            n / own / (SMALL / other) for own, other in zip((graph, by_loss), brute, strict=True)
        ]
        print(
            f"{shape:<8} {n:11,.0f} {graph:8.2f} {early:8.2f} {by_loss:9.2f} {in_all:8.2f} "
            f"{links:8.2f} {late:8.2f} {ratios[0]:13.0f} {ratios[1]:8.0f}",
            flush=True,
        )


def bench_ids(n_rows):
    """The graph beside a bare group-by, by the type of ids."""
    print("ids       graph s  bare s  ratio  graph GB  bare GB")
    for text in (0, 1):
        bare, graph = (child("ids", what, n_rows, text) for what in ("bare", "graph"))
        print(
            f"{'text' if text else 'integers':<8} {graph[0]:8.2f} {bare[0]:7.2f} "
            f"{graph[0] / bare[0]:6.2f} {graph[1]:9.2f} {bare[1]:8.2f}",
            flush=True,
        )


def main():
    """Choose the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("log", "pairs", "ids"))
    parser.add_argument("--millions", type=float)
    parser.add_argument("--documents", type=float, default=2, help="millions of documents")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        what, which, size, *rest = args.run
        if what == "ids":
            return run_ids(which, int(size), int(*rest))
        return run_log(which, size) if what == "log" else run_pairs(which, int(size))
    if args.what in (None, "pairs"):
        bench_pairs(int((args.millions or 10) * 1e6))
    if args.what in (None, "ids"):
        bench_ids(int((args.millions or 10) * 1e6))
    if args.what in (None, "log"):
        bench_log(int((args.millions or 100) * 1e6), int(args.documents * 1e6) // LENGTH)


if __name__ == "__main__":
    main()
