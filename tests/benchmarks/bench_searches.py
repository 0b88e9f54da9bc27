"""What a search costs with one worker and with two, against its fits alone; threads of each.

Usage: python tests/benchmarks/bench_searches.py [--candidates 20] [--rows 100000]

Each row is a process of its own. "CPU" adds up all processes of a search, and does not depend on
what else runs; the ratio of the walls needs two idle cores. "Peak" is the largest process,
beyond one that has imported the package and holds the log.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd

N_FEATURES, N_SPLITS = 100, 5


def main():
    """Print one row per way, and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--way", default=None)
    settings = parser.parse_args()
    if settings.way is not None:
        print(json.dumps(measure(settings.way, settings.rows, settings.candidates)))
        return
    found = {}
    for way in ("nothing", "fits", "1", "2"):
        command = [sys.executable, __file__, "--way", way, "--rows", str(settings.rows)]
        command += ["--candidates", str(settings.candidates)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[way] = json.loads(output.splitlines()[-1])
    found = pd.DataFrame(found).T
    found["peak"] -= found.loc["nothing", "peak"]
    print(found.drop(index="nothing").round(2).to_string())
    fits, one, two = (found.loc[way] for way in ("fits", "1", "2"))
    print(
        f"n_jobs=1 against the fits: CPU x {one.cpu / fits.cpu:.2f}, peak x "
        f"{one.peak / fits.peak:.2f}"
    )
    print(
        f"n_jobs=2 against n_jobs=1: wall x {two.wall / one.wall:.2f}, CPU x "
        f"{two.cpu / one.cpu:.2f}, peak x {two.peak / one.peak:.2f}"
    )


def measure(way, n_rows, n_candidates):
    """Seconds and MB of one way: the fits one after another, or a search with so many workers."""
    from joblib.externals.loky import get_reusable_executor
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    from skultr.metrics import RankingScorer
    from skultr.model_selection import QueryKFold
    from skultr.rankers import NaiveRanker

    warnings.simplefilter("ignore")
    X, y = make_log(n_rows)
    ranker = NaiveRanker(max_epochs=1, random_state=0)
    grid = {"learning_rate": [*np.geomspace(1e-3, 1e-2, n_candidates)]}
    wall, cpu = time.perf_counter(), cpu_seconds()
    splits, scorer = QueryKFold(N_SPLITS), RankingScorer("ndcg", k=10)
    if way == "fits":
        rows = next(splits.split(X, y))[0]
        X, y = X.iloc[rows], y[rows]
        for rate in np.repeat(grid["learning_rate"], N_SPLITS):
            clone(ranker).set_params(learning_rate=rate).fit(X, y)
    elif way != "nothing":
        search = GridSearchCV(
            ranker, grid, cv=splits, scoring=scorer, n_jobs=int(way), refit=False
        )
        search.fit(X, y)
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
