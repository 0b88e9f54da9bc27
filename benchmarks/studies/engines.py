"""Cost of estimates from a log in an engine, beside the engine's own group-by of its cells.

Logs of ten positions are written to Parquet once, in files of at most 100 million rows: 20,000
queries of equal traffic, 12 documents each, in random order, so that the cells stop growing at
2.4 million. They are kept in the folder for temporary files.
"""

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from skultr._log import _cells
from skultr.click_models import PBMModel
from skultr.identifiability import IdentifiabilityGraph
from skultr.propensity import InterventionHarvesting, RegressionEMPropensity, relevance_labels
from skultr.rankers import RegressionEMRanker

from .._study import Page, cost, measured

N_QUERIES, N_DOCS, N_POSITIONS, CHUNK = 20_000, 12, 10, 250_000
PART = 100_000_000
GROUP = "SELECT qid, doc, position, sum(click), count(*) FROM log GROUP BY qid, doc, position"


def write_part(path, n_impressions, seed):
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


def parts_of(millions):
    """Files of a log of so many millions of impressions, written where they are missing."""
    rows, folder = min(millions * 1_000_000, PART), Path(tempfile.gettempdir())
    paths = []
    for seed in range(-(-millions * 1_000_000 // rows)):
        paths.append(folder / f"engines-{rows // 1_000_000}M-{seed}.parquet")
        if not paths[-1].exists():
            write_part(paths[-1], rows, seed)
    return [str(path) for path in paths]


def group_by(frame):
    """The engine's own pass over the cells."""
    if isinstance(frame, pl.LazyFrame):
        keys = frame.group_by("qid", "doc", "position")
        return keys.agg(pl.col("click").sum(), pl.len()).collect(engine="streaming")
    return frame.query("log", GROUP).to_arrow_table()


def labels(frame):
    curve = 1 / np.arange(1, N_POSITIONS + 1)
    return relevance_labels(frame, "click", propensity=curve, interval=True)


def _fits(estimator):
    return lambda frame: estimator.fit(frame, "click")


READERS = {"polars": pl.scan_parquet, "duckdb": duckdb.read_parquet}
WORKS = {
    "group-by": group_by,
    "curve": _fits(RegressionEMPropensity(relevance="embedding")),
    "harvesting": _fits(InterventionHarvesting(n_bootstrap=0)),
    # 100 resamples of queries for intervals.
    "curve with intervals": _fits(InterventionHarvesting(n_bootstrap=100, random_state=0)),
    "PBM": _fits(PBMModel()),
    "table": _fits(RegressionEMRanker(relevance="embedding", random_state=0)),
    "labels": labels,
    "graph": lambda frame: IdentifiabilityGraph.from_log(frame).is_connected,
}
IN_SHARDS = ("curve in shards", "PBM in shards", "table in shards")


def engines(cell, settings, seed):
    """One work; in shards, only a million cells fit into memory."""
    frame = READERS[cell["engine"]](parts_of(cell["millions"]))
    if cell["work"] in IN_SHARDS:
        _cells.MAX_CELLS = _cells.PART_ROWS = 1_000_000
    work = WORKS[cell["work"].removesuffix(" in shards")]
    return [cost(lambda: work(frame))]


PAGE = Page(
    "studies/engines",
    "Estimates from a log in an engine",
    (
        measured(
            engines,
            "What each takes, beside the group-by of the cells",
            ("seconds", "CPU seconds", "GiB"),
            over={"millions": (10, 100), "engine": READERS, "work": (*WORKS, *IN_SHARDS)},
            runs=1,
            alone=True,
        ),
    ),
)
