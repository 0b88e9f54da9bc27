"""What a search costs with one worker and with two, against its fits alone; threads of each.

Usage: python -m benchmarks.studies.searches [--candidates 20] [--rows 100000]

Each row is a process of its own. "CPU" adds up all processes of a search, and does not depend on
what else runs; the ratio of the walls needs two idle cores. "Peak" is the memory of the largest
process in MB. "fits" are the same fits without a search, "fits and scores" also score each fold.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

N_FEATURES, N_SPLITS = 100, 5
WAYS = ["fits", "fits and scores", "n_jobs=1", "n_jobs=2"]
#: The same of a ClickDataset, scored by the clicks that are held out.
DATASET_WAYS = ["dataset fits", "dataset n_jobs=1", "dataset n_jobs=2"]


def main():
    """Print one row per way, and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--way", choices=WAYS + DATASET_WAYS, default=None, help="of one process")
    settings = parser.parse_args()
    if settings.way is not None:
        print(json.dumps(measure(settings.way, settings.rows, settings.candidates)))
        return
    found = {}
    for way in WAYS + DATASET_WAYS:
        command = [sys.executable, __file__, "--way", way, "--rows", str(settings.rows)]
        command += ["--candidates", str(settings.candidates)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[way] = json.loads(output.splitlines()[-1])
    found = pd.DataFrame(found).T
    print(found.round(1).to_string())
    for way, other in [(2, 0), (2, 1), (3, 2), (5, 4), (6, 5)]:
        way, other = ([*WAYS, *DATASET_WAYS][number] for number in (way, other))
        ratio = found.loc[way] / found.loc[other]
        print(f"{way} against {other}:", ratio.round(2).to_dict())


def measure(way, n_rows, n_candidates):
    """Seconds and MB of one way: the fits one after another, or a search with so many workers."""
    from joblib.externals.loky import get_reusable_executor
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    from skultr import ClickDataset
    from skultr.metrics import ClickLikelihoodScorer, RankingScorer
    from skultr.model_selection import QueryKFold
    from skultr.rankers import NaiveRanker

    warnings.simplefilter("ignore")
    X, y = make_log(n_rows)
    splits, scorer = QueryKFold(N_SPLITS), RankingScorer("ndcg", k=10)
    if way in DATASET_WAYS:
        folder = Path(tempfile.mkdtemp()) / "log"
        log = X.drop(columns="relevance").assign(click=y, doc=np.arange(n_rows))
        X, y, scorer = ClickDataset.from_parquet(log, path=folder), None, ClickLikelihoodScorer()
        del log
    ranker = NaiveRanker(max_epochs=1, random_state=0)
    grid = {"learning_rate": [*np.geomspace(1e-3, 1e-2, n_candidates)]}
    wall, cpu = time.perf_counter(), cpu_seconds()
    if "fits" in way:
        for rate in grid["learning_rate"]:
            for train, test in splits.split(X, y):
                model = clone(ranker).set_params(learning_rate=rate)
                if way in DATASET_WAYS:
                    model.fit(X[train])
                    continue
                model.fit(X.iloc[train], y[train])
                if way == "fits and scores":
                    scorer(model, X.iloc[test])
    else:
        n_jobs = int(way.rpartition("=")[2])
        GridSearchCV(ranker, grid, cv=splits, scoring=scorer, n_jobs=n_jobs, refit=False).fit(X, y)
        get_reusable_executor().shutdown(wait=True)  # the system counts processes that ended
    return {
        "wall": time.perf_counter() - wall,
        "cpu": cpu_seconds() - cpu,
        "peak": max(usage().ru_maxrss, usage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024,
    }


def make_log(n_rows):
    """A log of lists of ten with random features, clicks and labels."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    X = pd.DataFrame(values, columns=[f"f{i}" for i in range(N_FEATURES)])
    X.insert(0, "qid", np.arange(n_rows) // 10)
    X.insert(1, "position", np.arange(n_rows) % 10 + 1)
    X.insert(2, "relevance", rng.integers(0, 5, n_rows).astype(float))
    return X, (rng.random(n_rows) < 0.2).astype(float)


def usage(who=resource.RUSAGE_SELF):
    """What the system counted for this process, or for its children that have ended."""
    return resource.getrusage(who)


def cpu_seconds():
    """CPU seconds of this process and of its children that have ended."""
    both = usage(), usage(resource.RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in both)


if __name__ == "__main__":
    main()
