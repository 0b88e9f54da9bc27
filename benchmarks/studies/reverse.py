"""Does a ranker that learns trust or examination beside relevance rank in reverse?

Three kinds of logs invite it, and each has twenty: users who *trust* the upper results; users
whose clicks are a *matrix* of grades and positions, where at most positions the best documents
are not clicked most; and production that has *memorised* the labels of the queries that it
serves, so that position is nearly relevance, for four kinds of users. Documents are made, MQ2008's
and MSLR's (those whose files are not in the folder SKULTR_DATA are left out). The order of a query
is always the same, another each day, or drawn by Plackett-Luce; logs have 2,000 to 20,000 pages.

``worst`` and ``below`` compare nDCG@10 on other queries with a random order: 0 is the aim of
``below``, the number of logs. ``over naive`` is the mean difference to `NaiveRanker`. That
relevance comes first in a training (``RELEVANCE_FIRST``) was chosen on seed 0 of ten of these logs
and three others.
"""

import os
import time
import warnings
from itertools import cycle, product
from pathlib import Path

import numpy as np

from skultr import VectorizationRanker
from skultr.rankers import AffineRanker, NaiveRanker, RegressionEMRanker

from .._study import Exhibit, Page, Study
from ._robustness_worlds import DAILY, FILES, Cell, World, documents_of

RANKERS = {
    "naive": NaiveRanker(),
    "regression-EM": RegressionEMRanker(examination="network"),
    "affine": AffineRanker(),
    "affine, likelihood": AffineRanker(loss="likelihood"),
    "vectorization": VectorizationRanker(),
    "vectorization, published": VectorizationRanker(student=None, n_networks=1),
}
#: Random orders whose mean nDCG@10 is that of chance.
N_RANDOM = 20
DATA = os.environ.get("SKULTR_DATA", "no folder")

DOCUMENTS = ("mslr", "mq2008", "made")
POLICIES = ("fixed", DAILY, "T 1")
#: Kind of log -> pairs of users and production.
KINDS = {
    "trust": tuple(product(("trust",), ("1 %", "10 %", "hidden signal"))),
    "matrix": tuple(product(("matrix",), ("1 %", "10 %", "hidden signal"))),
    "memorised": tuple(product(("trust", "matrix", "eta 1", "DBN"), ("all labels",))),
}
SESSIONS = (20_000, 2_000, 5_000)
N_LOGS = 20


def logs(settings):
    """Cells of the three kinds whose documents are there, twenty each where all are."""
    found = []
    for kind, pairs in KINDS.items():
        grid = [
            (documents, user, production, policy)
            for (user, production), documents, policy in product(pairs, DOCUMENTS, POLICIES)
        ]
        sizes = cycle(SESSIONS)
        order = np.random.default_rng(0).permutation(len(grid))[:N_LOGS]
        cells = [Cell(*grid[i], sessions=next(sizes)) for i in order]
        found += [{"kind": kind, **cell._asdict()} for cell in cells]
    return [cell for cell in found if _is_there(cell["documents"])]


def _is_there(name):
    return name not in FILES or (Path(DATA) / f"{FILES[name]}.parquet").exists()


def reverse(cell, settings, seed):
    """One row for each ranker, with its nDCG@10 minus that of chance and of the naive one."""
    cell = Cell(**{name: cell[name] for name in Cell._fields})
    world = World(cell, seed, *documents_of(cell.documents, seed, DATA))
    rng = np.random.default_rng(seed)
    chance = np.mean([world.ndcg(rng.random(len(world.test))).mean() for _ in range(N_RANDOM)])
    naive = None
    for name, ranker in RANKERS.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they say that the log does not tell
            scores = ranker.set_params(random_state=seed).fit(*world.lists).predict(world.test)
        ndcg = world.ndcg(scores).mean()
        naive = ndcg if naive is None else naive
        yield {
            "ranker": name,
            "nDCG@10": ndcg,
            "over chance": ndcg - chance,
            "over naive": ndcg - naive,
            "CPU seconds": time.process_time() - start,
        }


def worst(rows):
    """The measures of each ranker over the logs of each kind."""
    return (
        rows.groupby(["ranker", "kind"], sort=False)
        .agg(
            logs=("over chance", "size"),
            worst=("over chance", "min"),
            below=("over chance", lambda difference: (difference < 0).sum()),
            **{
                "over naive": ("over naive", "mean"),
                "CPU seconds": ("CPU seconds", "mean"),
            },
        )
        .reset_index()
        .assign(seed=0)
    )


STUDY = Study("reverse", reverse, logs, quick_runs=1, full_runs=2, hours=1.5)
PAGE = Page(
    "studies/reverse",
    "Rankers in reverse",
    (
        Exhibit(
            "reverse",
            "nDCG@10 minus chance and minus naive",
            STUDY,
            ("ranker", "kind"),
            ("logs", "worst", "below", "over naive", "CPU seconds"),
            keep=worst,
        ),
        Exhibit(
            "each",
            "Each log",
            STUDY,
            ("kind", "documents", "user", "production", "policy", "sessions", "ranker"),
            ("nDCG@10", "over chance", "over naive"),
        ),
    ),
)
