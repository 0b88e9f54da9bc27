"""Curves of a log whose cells grow with its rows: of some queries, and of all.

Queries are as frequent as Zipf's law says (exponent .6), 250 pages each on average, of ten of
their 20 documents in an order with noise; ids are text. Five million rows are written in about a
minute, once, to the folder for temporary files.
"""

import tempfile
import warnings
from pathlib import Path

import dask.dataframe as dd
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from skultr.propensity import InterventionHarvesting, _draws

from .._study import Page, cost, measured

ROWS_OF_PART = 5_000_000
N_POSITIONS = 10
N_DOCS = 20
#: On average.
PAGES_OF_QUERY = 25
EXAMINATION = 1 / np.arange(1, N_POSITIONS + 1)
TEXTS = """
    'q' || query AS qid, format('s{:09d}', page) AS session, 'q' || query || '-d' || number AS doc,
    position, click
"""


def write_part(path, number, n_queries):
    """The pages of one part; relevance and order are those of the log, clicks of the part."""
    rng = np.random.default_rng(7)
    relevance = rng.uniform(0.05, 0.95, (n_queries, N_DOCS)).astype(np.float32)
    order = (relevance + rng.normal(0, 0.3, relevance.shape)).astype(np.float32)
    rng = np.random.default_rng((7, number))
    n_pages = ROWS_OF_PART // N_POSITIONS
    frequency = np.cumsum(np.arange(1, n_queries + 1) ** -0.6)
    query = np.searchsorted(frequency, rng.random(n_pages) * frequency[-1])
    noise = rng.gumbel(0, 0.15, (n_pages, N_DOCS))
    shown = np.argsort(-order[query] - noise, axis=1)[:, :N_POSITIONS]
    click = rng.random(shown.shape) < relevance[query[:, None], shown] * EXAMINATION
    columns = {
        "query": np.repeat(query.astype(np.int32), N_POSITIONS),
        "page": np.repeat(np.arange(n_pages) + number * n_pages, N_POSITIONS),
        "number": shown.ravel().astype(np.int8),
        "position": np.tile(np.arange(1, N_POSITIONS + 1, dtype=np.int32), n_pages),
        "click": click.ravel().astype(np.int8),
    }
    unfinished = path.with_suffix(".unfinished")
    duckdb.from_arrow(pa.table(columns)).project(TEXTS).to_parquet(str(unfinished))
    unfinished.rename(path)


def parts_of(millions):
    """Files of a log of so many millions of rows, written where they are missing."""
    folder = Path(tempfile.gettempdir()) / f"cells-{millions}M"
    folder.mkdir(exist_ok=True)
    n_parts = millions * 1_000_000 // ROWS_OF_PART
    n_queries = millions * 1_000_000 // N_POSITIONS // PAGES_OF_QUERY
    for number in range(n_parts):
        path = folder / f"part-{number:02d}.parquet"
        if not path.exists():
            write_part(path, number, n_queries)
    return str(folder / "*.parquet")


READERS = {"duckdb": duckdb.read_parquet, "polars": pl.scan_parquet, "dask": dd.read_parquet}


def cells(cell, settings, seed):
    """A curve with intervals; of all queries, if a first draw has all rows."""
    frame = READERS[cell["engine"]](parts_of(cell["millions"]))
    if cell["queries"] == "all":
        _draws.ROWS_OF_FIRST_DRAW = _draws.ROWS_OF_FIRST_DRAW._replace(value=np.inf)
    estimator = InterventionHarvesting(random_state=seed)
    with warnings.catch_warnings(action="ignore"):
        found = cost(lambda: estimator.fit(frame, "click"))
    share = getattr(estimator, "share_of_queries_", 1.0)
    error = np.abs(estimator.examination_["examination"] - EXAMINATION).max()
    return [{**found, "share of queries": share, "largest error": error}]


PAGE = Page(
    "studies/cells",
    "Curves of a log whose cells grow with its rows",
    (
        measured(
            cells,
            "What a curve takes, and how far it is from the truth",
            ("seconds", "CPU seconds", "GiB", "share of queries", "largest error"),
            over={"millions": (5,), "engine": READERS, "queries": ("some", "all")},
            runs=1,
            alone=True,
        ),
    ),
)
