"""What one long list costs beside short ones: time and memory of a fit with it and without.

By hand: ``OMP_NUM_THREADS=1 python tests/benchmarks/bench_long_lists.py [estimator ...]``.
4,000 lists of ten documents of 400 queries, and one list of 2,000 of a further query. Each fit
runs in a process of its own. A row has the seconds of a process and the peak memory in GiB of both
fits, and their ratios. By default all rankers with a loss of pairs are compared, and estimates of
examination by comparison. ``--solver`` compares instead the tabular fit by the number of factors.
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

SHORT, LONG, N_QUERIES, N_LISTS = 10, 2_000, 400, 4_000
EXAMINATION = 1 / np.arange(1, LONG + 1) ** 0.5
ESTIMATORS = {
    "NaiveRanker": ("rankers", {"max_epochs": 1, "early_stopping": False}),
    "PairDebiasRanker": ("rankers", {"max_epochs": 1, "early_stopping": False}),
    "PRSRanker": (
        "rankers",
        {"max_epochs": 1, "early_stopping": False, "propensity": EXAMINATION},
    ),
    "NaiveRanker pairwise": (
        "rankers",
        {"max_epochs": 1, "early_stopping": False, "loss": "pairwise"},
    ),
    "NaiveRanker lambda": (
        "rankers",
        {"max_epochs": 1, "early_stopping": False, "loss": "lambda"},
    ),
    "InterventionHarvesting": ("propensity", {}),
}


def log(n_long):
    """Rows of lists in random order, of which a long one is the last."""
    rng = np.random.default_rng(0)
    query = rng.integers(0, N_QUERIES, N_LISTS)
    order = np.argsort(rng.random((N_LISTS, SHORT + 2)), axis=1)[:, :SHORT]
    lists = [*(query[:, None] * (SHORT + 2) + order)]
    if n_long:
        lists.append(N_QUERIES * (SHORT + 2) + np.arange(n_long))
        query = np.append(query, N_QUERIES)
    lengths = [len(docs) for docs in lists]
    doc = np.concatenate(lists)
    features = rng.standard_normal((N_QUERIES * (SHORT + 2) + LONG, 20), dtype=np.float32)
    X = pd.DataFrame(features[doc], columns=[f"f{i}" for i in range(20)])
    X = X.assign(
        qid=np.repeat(query, lengths),
        doc=doc,
        session=np.repeat(np.arange(len(lists)), lengths),
        position=np.concatenate([np.arange(1, length + 1) for length in lengths]),
    )
    return X, (rng.random(len(X)) < 0.2).astype(float)


def fit(name, n_long):
    import importlib

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    package, parameters = ESTIMATORS[name]
    estimator = getattr(importlib.import_module(f"skultr.{package}"), name.split()[0])
    estimator = estimator(**parameters, random_state=0)
    X, clicks = log(n_long)
    start = time.process_time()
    estimator.fit(X, clicks)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([seconds, peak]))


def compare(names):
    print(f"{'':24}  seconds            ratio  GiB              ratio")
    for name in names:
        found = []
        for n_long in (0, LONG):
            command = [sys.executable, __file__, name, "--long", str(n_long)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
        (before, less), (after, more) = found
        print(
            f"{name:24}  {before:6.2f} -> {after:6.2f}  {after / before:6.2f}  "
            f"{less:5.2f} -> {more:5.2f}  {more / less:6.2f}",
            flush=True,
        )


def solver():
    """Seconds of a tabular fit to 400,000 cells of 20,000 documents, by the number of factors."""
    from skultr._models._tabular import fit_tabular

    rng = np.random.default_rng(0)
    for n_factors in (10, 100, 400, 1_000, 1_500, 1_600):
        doc, factor = rng.integers(0, 20_000, 400_000), rng.integers(0, n_factors, 400_000)
        rate = rng.beta(1, 3, 20_000)[doc] * rng.uniform(0.1, 1, n_factors)[factor]
        clicks, weight = rng.binomial(50, rate).astype(float), np.full(len(doc), 50.0)
        start = time.process_time()
        fit_tabular(doc, factor, clicks, weight, loss="poisson")
        print(f"{n_factors:5} factors: {time.process_time() - start:.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("estimators", nargs="*", default=list(ESTIMATORS))
    parser.add_argument("--long", type=int, default=None)
    parser.add_argument("--solver", action="store_true")
    options = parser.parse_args()
    if options.solver:
        solver()
    elif options.long is not None:
        fit(options.estimators[0], options.long)
    else:
        compare(options.estimators)
