"""A log that no memory holds: making the dataset, one epoch and a click model under a limit.

Usage: OMP_NUM_THREADS=1 python -m benchmarks.studies.dataset [--sessions 1e7] [--folder PATH]

Sessions show ten of the twenty documents of a query in random order, so that hardly two lists are
equal; a million documents have 50 features. With 1e7 sessions there are 100 million impressions,
the files take 5 GB, and the run an hour. Each fit runs in a process of its own, whose address
space is limited to 4 GB (``--limit``). Arrow's own allocator would reserve one of them, and is
told not to.

With ``--equal`` the log is small (1e4 sessions), and the models of the dataset and of the same log
in memory are compared bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

PER_QUERY, WIDTH, N_FEATURES, CHUNK = 20, 10, 50, 500_000


def write_log(folder: Path, n_sessions: int, n_docs: int) -> None:
    """Parquet files of a simulated log and of its documents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    from skultr import ClickDataset

    path = folder / "dataset"
    ClickDataset.from_parquet(folder / "log", folder / "documents.parquet", path=path)


def dla(folder: Path):
    from skultr import ClickDataset, DLARanker

    ranker = DLARanker(max_epochs=1, examination="network", random_state=0)
    return ranker.fit(ClickDataset(folder / "dataset")).examination_


def pbm(folder: Path):
    from skultr import ClickDataset
    from skultr.click_models import PBMModel

    return PBMModel(prior=None).fit(ClickDataset(folder / "dataset")).examination_


STEPS = {"make": make, "dla": dla, "pbm": pbm}


def run_alone(step: str, folder: Path, limit: float) -> None:
    """One step in this process, with its time, memory and examination as JSON."""
    if step != "make":
        resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
    warnings.simplefilter("ignore")
    wall, cpu = time.perf_counter(), time.process_time()
    found = STEPS[step](folder)
    result = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    if found is not None:
        result["examination"] = found["examination"].round(3).tolist()
    print(json.dumps(result))


def run(step: str, folder: Path, limit: float) -> None:
    arguments = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    arguments += ["--limit", str(limit)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{step:5s} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{step:5s} wall {found['wall']:7.1f} s, CPU {found['cpu']:7.1f} s, resident "
        f"{found['resident']:.2f} GiB {found.get('examination', '')}",
        flush=True,
    )


def compare(folder: Path) -> None:
    """Largest difference of the scores of models from the dataset and from memory."""
    import pandas as pd

    from skultr import ClickDataset, DLARanker
    from skultr.click_models import PBMModel

    dataset = ClickDataset(folder / "dataset")
    documents = pd.read_parquet(folder / "documents.parquet")
    log = pd.read_parquet(folder / "log").merge(documents, on="doc")
    clicks = log.pop("click")
    for model in (DLARanker(max_epochs=2, random_state=0), PBMModel(), PBMModel(prior=None)):
        scores = [model.fit(*data).predict(log) for data in ((dataset,), (log, clicks))]
        print(f"{model}: largest difference {np.abs(scores[0] - scores[1]).max():g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=float, default=1e6)
    parser.add_argument("--documents", type=float, default=1e6)
    parser.add_argument("--folder", type=Path, help="kept, and used again; by default temporary")
    parser.add_argument("--limit", type=float, default=4.0, help="GB of address space")
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--step", choices=STEPS)
    given = parser.parse_args()
    if given.step:
        run_alone(given.step, given.folder, given.limit)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "world"
        if not folder.exists():
            n_sessions = 1e4 if given.equal else given.sessions
            n_docs = 1e4 if given.equal else given.documents
            write_log(folder, int(n_sessions), int(n_docs))
        if not (folder / "dataset").exists():
            run("make", folder, given.limit)
        if given.equal:
            compare(folder)
            return
        for step in ("pbm", "dla"):
            run(step, folder, given.limit)


if __name__ == "__main__":
    main()
