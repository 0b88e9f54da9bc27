"""A log that no memory holds: making the dataset, one epoch and a click model under a limit.

Sessions show ten of the twenty documents of a query in random order, so that hardly two lists are
equal; a million documents have 50 features. With 1e7 ``--sessions`` there are 100 million
impressions, the files take 5 GB in the folder for temporary files, and the run an hour. Each fit
runs in a process of its own, whose memory (without mapped files) is limited to 4 GiB. Arrow's own
allocator would reserve one of them: set ARROW_DEFAULT_MEMORY_POOL=system.
"""

import resource
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skultr import ClickDataset, DLARanker
from skultr.click_models import PBMModel
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker

from .._study import Page, cost, measured

PER_QUERY, WIDTH, N_FEATURES, CHUNK = 20, 10, 50, 500_000


def write_log(folder: Path, n_sessions: int, n_docs: int) -> None:
    """Parquet files of a simulated log and of its documents."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n_docs, N_FEATURES), dtype=np.float32)
    direction = rng.standard_normal(N_FEATURES) / np.sqrt(N_FEATURES)
    relevance = 1 / (1 + np.exp(1 - 2 * features @ direction))
    examination = np.arange(1, WIDTH + 1) ** -0.8
    (folder / "log").mkdir(parents=True)
    columns = {f"f{i}": features[:, i] for i in range(N_FEATURES)}
    documents = pa.table({"doc": np.arange(n_docs, dtype=np.int32), **columns})
    pq.write_table(documents, folder / "documents.parquet")
    of_query = relevance.reshape(-1, PER_QUERY).astype(np.float32)
    for part, first in enumerate(range(0, n_sessions, CHUNK)):
        n = min(CHUNK, n_sessions - first)
        query = rng.integers(0, n_docs // PER_QUERY, n, dtype=np.int32)
        score = rng.random((n, PER_QUERY), dtype=np.float32) + 0.5 * of_query[query]
        shown = np.argsort(-score, axis=1)[:, :WIDTH]
        doc = (query[:, None] * PER_QUERY + shown).astype(np.int32)
        click = rng.random((n, WIDTH)) < relevance[doc] * examination
        table = pa.table(
            {
                "qid": np.repeat(query, WIDTH),
                "session": np.repeat(np.arange(first, first + n), WIDTH),
                "doc": doc.ravel(),
                "position": np.tile(np.arange(1, WIDTH + 1, dtype=np.int8), n),
                "click": click.ravel().astype(np.int8),
            }
        )
        pq.write_table(table, folder / "log" / f"part-{part:03d}.parquet")


def make(folder: Path) -> None:
    path = folder / "dataset"
    ClickDataset.from_parquet(folder / "log", folder / "documents.parquet", path=path)


def _world(settings) -> Path:
    """The folder of the log, written where it is missing."""
    n_sessions = settings.n_sessions(quick=10_000, full=1_000_000)
    folder = Path(tempfile.gettempdir()) / f"dataset-{n_sessions}"
    if not folder.exists():
        write_log(folder, n_sessions, min(n_sessions, 1_000_000))
    return folder


#: Models that are fitted to the dataset.
MODELS = {
    "PBM": PBMModel(prior=None),
    "DLA": DLARanker(max_epochs=1, examination="network", random_state=0),
    # The members of the ensemble.
    "naive": NaiveRanker(max_epochs=1, random_state=0),
    "IPS": IPSRanker(correction="divide", clip=0.1, max_epochs=1, random_state=0),
    "trees": LambdaMARTRanker(clip=0.1, num_leaves=7, random_state=0),
}


def steps(cell, settings, seed):
    """Making the dataset, then a fit under the limit: each in the memory of its own."""
    folder = _world(settings)
    if not (folder / "dataset").exists():
        yield {"step": "make", **cost(lambda: make(folder))}
    resource.setrlimit(resource.RLIMIT_DATA, (4 * 2**30,) * 2)
    model = MODELS[cell["model"]]
    yield {"step": "fit", **cost(lambda: model.fit(ClickDataset(folder / "dataset")))}


def equal(cell, settings, seed):
    """Largest difference of the scores of models from a small dataset and from memory."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "world"
        write_log(folder, 10_000, 10_000)
        make(folder)
        dataset = ClickDataset(folder / "dataset")
        documents = pd.read_parquet(folder / "documents.parquet")
        log = pd.read_parquet(folder / "log").merge(documents, on="doc")
        clicks = log.pop("click")
        model = MODELS[cell["model"]]
        one, other = (model.fit(*data).predict(log) for data in ((dataset,), (log, clicks)))
        return [{"difference": np.abs(one - other).max()}]


OVER = {"over": {"model": MODELS}, "runs": 1}
PAGE = Page(
    "studies/dataset",
    "A log that no memory holds",
    (
        measured(
            steps,
            "What each step takes",
            ("seconds", "CPU seconds", "GiB"),
            by=("step",),
            alone=True,
            **OVER,
        ),
        measured(equal, "Difference from the same log in memory", ("difference",), **OVER),
    ),
)
