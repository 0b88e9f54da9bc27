"""How much of the gap between naive and skyline do IPS and dual learning close?

By hand: ``python tests/benchmarks/bench_recovery.py [--seeds 5] [--world main|all]``.
Prints one row a world and number of sessions: means over seeds, with the standard error.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import quickstart

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.simulation import PlackettLucePolicy, PositionBasedUser

#: World -> (keywords of make_ltr, keywords of simulate_clicks).
WORLDS = {
    "main": ({}, {}),
    "few features": ({"n_features": 15}, {}),
    "few queries": ({"n_queries": 250}, {}),
    "long lists": ({"n_documents": 60, "n_queries": 1250}, {}),
    "1 / position": ({}, {"user": PositionBasedUser(examination=1.0)}),
    "1 / position^2": ({}, {"user": PositionBasedUser(examination=2.0)}),
    "no bias": ({}, {"user": PositionBasedUser(examination=np.full(10, 0.5))}),
    "no click noise": ({}, {"noise": 0.0}),
    "skewed traffic": ({"n_queries": 1000}, {"zipf": 1.0}),
    "stochastic policy": ({}, {"policy": PlackettLucePolicy(temperature=0.2)}),
}


def measure(world, n_sessions, seed):
    data, clicks = WORLDS[world]
    documents = make_ltr(**{"n_queries": 2500, **data}, random_state=seed)
    clicks = dict(clicks)
    if "zipf" in clicks:
        queries = documents["qid"].unique()
        share = 1.0 / np.arange(1, len(queries) + 1) ** clicks.pop("zipf")
        clicks["query_weights"] = dict(zip(queries, share, strict=True))
    scores, test, examination = quickstart.run(documents, n_sessions, seed, **clicks)
    mean = {
        name: ndcg_score(test["relevance"], score, qid=test["qid"], k=10)
        for name, score in scores.items()
    }
    mean["examination error"] = (examination["DLA"] - examination["true"]).abs().max()
    return mean


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--world", default="main", choices=["all", *WORLDS])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1_000_000, 100_000])
    args = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    for world in WORLDS if args.world == "all" else [args.world]:
        for n_sessions in args.sessions:
            start = time.perf_counter()
            runs = pd.DataFrame([measure(world, n_sessions, s) for s in range(args.seeds)])
            mean, error = runs.mean(), runs.sem()
            gap = mean["skyline"] - mean["naive"]
            print(
                f"{world:18s} {n_sessions:>9,d} sessions  "
                + "  ".join(
                    f"{name} {mean[name]:.4f} ± {error[name]:.4f}"
                    for name in ("production", "naive", "IPS", "DLA", "skyline")
                )
                + f"  gap {gap:.3f}"
                + f"  closed: IPS {(mean['IPS'] - mean['naive']) / gap:.0%}"
                f" DLA {(mean['DLA'] - mean['naive']) / gap:.0%}"
                f"  examination error mean {mean['examination error']:.3f}"
                f" worst {runs['examination error'].max():.3f}"
                f"  ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
