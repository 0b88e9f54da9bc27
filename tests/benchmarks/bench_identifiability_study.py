"""The fully synthetic study of identifiability: what repairs bring where clicks do not suffice.

By hand: ``python tests/benchmarks/bench_identifiability_study.py [--seeds 10] [--study all]``.
10,000 documents known by their ids, 1,150 pages of ten served a million times each, positions in
K = 1, ..., 4 components; every model starts at random. Three studies:

- ``methods``: correlation (MCC) of estimated and true relevance over documents, nDCG@10 of the
  logged pages, squared error of the click probabilities, time of the fit.
- ``pairs``: K = 2, every pair of positions that could be merged.
- ``swaps``: how often the swapped pages must be served, chosen at the least cost or at random.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd

from skultr import DLARanker
from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityRepair
from skultr.metrics import ndcg_score
from skultr.rankers import RegressionEMRanker, TwoTowerRanker
from skultr.simulation import make_disconnected_log

N_IMPRESSIONS = 1_000_000
METHODS = {"DLA": DLARanker, "Regression-EM": RegressionEMRanker, "Two-Tower": TwoTowerRanker}
#: How often each swapped page is served.
SERVED = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
WANTED = 0.99


# The world --------------------------------------------------------------------------------
def make_log(n_components, seed):
    X, clicks, truth = make_disconnected_log(
        n_components, n_impressions=N_IMPRESSIONS, random_state=seed
    )
    return X.assign(session=0), clicks, truth


def serve(X, clicks, swaps, truth, n_impressions, seed):
    """The log with the clicks on some more pages."""
    relevance = truth.relevance_probability.loc[swaps["doc"]].to_numpy()
    probability = relevance * truth.examination[swaps["position"].to_numpy() - 1]
    new_clicks = np.random.default_rng([7, seed]).binomial(n_impressions, probability)
    log = pd.concat([X, swaps.assign(impressions=n_impressions)], ignore_index=True)
    return log, np.concatenate([clicks, new_clicks / n_impressions])


def plan_swaps(X, clicks, cost, seed):
    """The pages to serve, and what of them the plan asks for: one (document, position) a swap."""
    repair = IdentifiabilityRepair(strategy="intervene", cost=cost, random_state=seed)
    repair.fit(X, clicks)
    lists = repair.intervened_lists_.rename(columns={"intervention": "session"})
    lists["session"] += 1
    asked = repair.interventions_.rename(columns={"to": "position"})[["doc", "position"]]
    asked.insert(0, "session", np.arange(1, len(asked) + 1))
    return lists, lists.merge(asked)


# What is measured -------------------------------------------------------------------------
def fit(name, log, clicks, seed):
    # Not the seed of the log: the start must know nothing of the grades.
    ranker = METHODS[name](relevance="embedding", variant="published", random_state=1_000 + seed)
    start = time.perf_counter()
    ranker.fit(log, clicks)
    return ranker, time.perf_counter() - start


def correlation(ranker, truth):
    estimate = ranker.relevance_
    return np.corrcoef(estimate, truth.relevance_probability.loc[estimate.index])[0, 1]


def quality(ranker, log, logged, truth):
    """``log``: the pages of the study, with the bias codes that the ranker was trained with."""
    score = ranker.predict(logged)
    error = ranker.predict_click(log) - truth.click_probability
    return {
        "MCC": correlation(ranker, truth),
        "nDCG@10": ndcg_score(logged["relevance"], score, qid=logged["qid"], k=10),
        "click MSE": np.mean(error**2),
    }


# The studies ------------------------------------------------------------------------------
def study_methods(seeds):
    """Every method on every log, as it is and repaired."""
    rows = []
    for n_components in (1, 2, 3, 4):
        for seed in range(seeds):
            X, clicks, truth = make_log(n_components, seed)
            logs = {"none": (X, clicks)}
            if n_components > 1:
                merge = IdentifiabilityRepair().fit(X, clicks)
                logs["merge"] = merge.transform(X), clicks
                swaps, _ = plan_swaps(X, clicks, "variance", seed)
                logs["intervene"] = serve(X, clicks, swaps, truth, N_IMPRESSIONS, seed)
            # One bias factor: click rates.
            cases = [("no debias", "DLA", "none", (X.assign(bias=1), clicks))]
            cases += [(name, name, *item) for name in METHODS for item in logs.items()]
            for method, name, repair, (log, y) in cases:
                ranker, seconds = fit(name, log, y, seed)
                key = {"K": n_components, "method": method, "repair": repair}
                found = quality(ranker, log.iloc[: len(X)], X, truth)
                rows.append({**key, **found, "seconds": seconds})
    runs = pd.DataFrame(rows)
    table = runs.groupby(["K", "method", "repair"], sort=False).agg(
        MCC=("MCC", "mean"),
        std=("MCC", "std"),
        least=("MCC", "min"),
        nDCG=("nDCG@10", "mean"),
        nDCG_std=("nDCG@10", "std"),
        click_MSE=("click MSE", "mean"),
        seconds=("seconds", "mean"),
        longest=("seconds", "max"),
    )
    formats = {"click_MSE": "{:.1e}".format, "seconds": "{:.3f}".format}
    formats["longest"] = formats["seconds"]
    print(table.to_string(float_format="{:.4f}".format, formatters=formats), flush=True)


def study_pairs(seeds):
    """MCC of DLA at K = 2 after merging each of the pairs that lie in both components."""
    found = []
    for seed in range(seeds):
        X, clicks, truth = make_log(2, seed)
        first, second = truth.components
        for a in first:
            for b in second:
                log = X.assign(bias=X["position"].replace(b, a))
                mcc = correlation(fit("DLA", log, clicks, seed)[0], truth)
                found.append((a, b, mcc))
    runs = pd.DataFrame(found, columns=["merged", "with", "MCC"])
    print(runs.groupby(["merged", "with"])["MCC"].mean().unstack().round(4).to_string())
    print(f"chosen by IdentifiabilityRepair: {merged_pair()}", flush=True)


def merged_pair():
    X, clicks, _ = make_log(2, 0)
    return sorted(IdentifiabilityRepair().fit(X, clicks).merges_.loc[0, ["from", "into"]])


def study_swaps(seeds):
    """MCC of DLA by the number of times that each swapped page is served."""
    found = []
    for n_components in (2, 3, 4):
        for seed in range(seeds):
            X, clicks, truth = make_log(n_components, seed)
            for cost in ("variance", "random"):
                lists, asked = plan_swaps(X, clicks, cost, seed)
                for rows, swaps in (("pages", lists), ("swap alone", asked)):
                    for served in SERVED:
                        log, y = serve(X, clicks, swaps, truth, served, seed)
                        mcc = correlation(fit("DLA", log, y, seed)[0], truth)
                        found.append((n_components, rows, cost, seed, served, mcc))
    runs = pd.DataFrame(found, columns=["K", "rows", "cost", "seed", "served", "MCC"])
    by = ["K", "rows", "cost"]
    table = runs.groupby([*by, "served"], sort=False)["MCC"].agg(["mean", "std"]).unstack()
    print(table["mean"].round(4).to_string(), "\nstandard deviation", sep="\n")
    print(table["std"].round(4).to_string())
    needed = runs.groupby([*by, "seed"], sort=False).apply(_times_needed, include_groups=False)
    needed = needed.groupby(by, sort=False).agg(["median", "max"])
    print(f"\nserved until MCC stays above {WANTED}", needed.to_string(), sep="\n", flush=True)


def _times_needed(runs):
    """The least number of servings from which on the correlation is as wanted."""
    too_low = np.flatnonzero(runs["MCC"].to_numpy() < WANTED)
    after = too_low[-1] + 1 if len(too_low) else 0
    return SERVED[after] if after < len(SERVED) else np.inf


STUDIES = {"methods": study_methods, "pairs": study_pairs, "swaps": study_swaps}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--study", default="all", choices=["all", *STUDIES])
    args = parser.parse_args()
    # The logs are not identifiable: that is the point.
    warnings.simplefilter("ignore", NotIdentifiableWarning)
    for name in STUDIES if args.study == "all" else [args.study]:
        start = time.perf_counter()
        print(f"\n{name}: {args.seeds} seeds", flush=True)
        STUDIES[name](args.seeds)
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
