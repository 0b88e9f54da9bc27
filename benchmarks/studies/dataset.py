"""A log that no memory holds: making the dataset, one epoch and a click model under a limit.

Sessions show ten of the twenty documents of a query in random order, so that hardly two lists are
equal; a million documents have 50 features. With 1e7 ``--sessions`` there are 100 million
impressions, the files take 5 GB in the folder for temporary files, and the run an hour. Each fit
runs in a process of its own, whose memory (without mapped files) is limited to 4 GiB. Arrow's own
allocator would reserve one of them: set ARROW_DEFAULT_MEMORY_POOL=system.

``--only shop`` is a smaller log: 8 million rows with ids of text, 400,000 documents of 40
features. Its dataset and an epoch run under a limit of 900 MB above the imports, if freed memory
goes back to the system: set MALLOC_ARENA_MAX=2 and MALLOC_MMAP_THRESHOLD_=1048576 as well.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skultr import ClickDataset, DLARanker
from skultr.click_models import PBMModel
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker

from .._study import Page, cost, measured

PER_QUERY, WIDTH, N_FEATURES, CHUNK = 20, 10, 50, 500_000


def write_log(
    folder: Path,
    n_sessions: int,
    n_docs: int,
    n_features: int = N_FEATURES,
    chunk: int = CHUNK,
) -> None:
    """Parquet files of a simulated log and of its documents."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n_docs, n_features), dtype=np.float32)
    direction = rng.standard_normal(n_features) / np.sqrt(n_features)
    relevance = 1 / (1 + np.exp(1 - 2 * features @ direction))
    examination = np.arange(1, WIDTH + 1) ** -0.8
    (folder / "log").mkdir(parents=True)
    columns = {f"f{i}": features[:, i] for i in range(n_features)}
    documents = pa.table({"doc": np.arange(n_docs, dtype=np.int32), **columns})
    pq.write_table(documents, folder / "documents.parquet")
    of_query = relevance.reshape(-1, PER_QUERY).astype(np.float32)
    for part, first in enumerate(range(0, n_sessions, chunk)):
        n = min(chunk, n_sessions - first)
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


def write_shop(folder: Path, n_sessions: int) -> None:
    """The log of 400,000 documents, half as many as sessions, with ids of text."""
    write_log(folder, n_sessions, n_sessions // 2, n_features=40, chunk=n_sessions // 8)
    for file in [*(folder / "log").iterdir(), folder / "documents.parquet"]:
        table = pq.read_table(file)
        for name in {"qid", "session", "doc"} & {*table.column_names}:
            text = pc.binary_join_element_wise(name, table[name].cast("string"), "")
            table = table.set_column(table.column_names.index(name), name, text)
        pq.write_table(table, file)


def shop(cell, settings, seed):
    """Costs of a dataset and of an epoch of DLARanker, with at most 900 MB above the imports."""
    imported = _data()
    n_sessions = settings.n_sessions(quick=8_000, full=800_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "world"
        # In another process, whose memory is not counted.
        code = f"from {__name__} import *; write_shop(Path({str(folder)!r}), {n_sessions})"
        subprocess.run([sys.executable, "-c", code], check=True)
        resource.setrlimit(resource.RLIMIT_DATA, (imported + 900_000_000,) * 2)
        yield {"step": "make", **cost(lambda: make(folder))}
        model = DLARanker(max_epochs=1, random_state=0)
        yield {"step": "epoch", **cost(lambda: model.fit(ClickDataset(folder / "dataset")))}


def _data() -> int:
    """Bytes of data of this process, as the limit counts them."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmData:"))
    return 1024 * int(line.split()[1])


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
        measured(
            shop,
            "A shop's log within 900 MB",
            ("seconds", "CPU seconds", "GiB"),
            over={"model": ("DLA",)},
            by=("step",),
            runs=1,
            alone=True,
        ),
        measured(equal, "Difference from the same log in memory", ("difference",), **OVER),
    ),
)
