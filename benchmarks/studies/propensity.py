"""How good, how honest and how fast are estimates of examination? By hand:

    python -m benchmarks.studies.propensity PART [...]

- ``accuracy``: largest error against 1 / k, relative to position 1, over 200,000 sessions;
- ``coverage``: how often nominal 95 % intervals hold the truth, over 200 small logs;
- ``users``: error of the curves of users with few sessions: own, common, and shrunk;
- ``weights``: error by how documents are weighted in the comparison of two positions;
- ``speed``: a million sessions of ten rows, beside plain pandas for the same estimate;
- ``real``: estimates on the logs in the folder that SKULTR_DATA names.
"""

import os
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
)
from skultr.simulation import (
    MixturePolicy,
    PositionBasedUser,
    ShufflePolicy,
    SwapPolicy,
    UserPopulation,
    production_scores,
    simulate_clicks,
)

N_POSITIONS = 10
CURVE = 1 / np.arange(1, N_POSITIONS + 1)
RANKERS, SWAPS = MixturePolicy(), SwapPolicy()
#: Name -> (the policy of the log that it needs, the estimator).
ESTIMATORS = {
    "randomized, pivot swaps": (SWAPS, RandomizedPropensity(arm="arm")),
    "randomized, adjacent swaps": (SwapPolicy("adjacent"), RandomizedPropensity(arm="arm")),
    "randomized, shuffles": (ShufflePolicy(), RandomizedPropensity()),
    "harvesting, all pairs": (RANKERS, InterventionHarvesting(random_state=0)),
    "harvesting, all pairs, formula": (RANKERS, InterventionHarvesting(n_bootstrap=0)),
    "harvesting, adjacent chain": (
        RANKERS,
        InterventionHarvesting(method="adjacent-chain", random_state=0),
    ),
    "harvesting, pivot": (RANKERS, InterventionHarvesting(method="pivot", random_state=0)),
    "regression-EM, per document": (RANKERS, RegressionEMPropensity(relevance="embedding")),
}
#: The same, without standard errors.
UNSURE = {
    "regression-EM, network": (RANKERS, RegressionEMPropensity(random_state=0)),
    "dual learning, network": (RANKERS, DualLearningPropensity(random_state=0)),
    "dual learning, per document": (
        RANKERS,
        DualLearningPropensity(relevance="embedding", variant="published"),
    ),
}
#: Of the README of the data: a position-based model fitted by EM.
REAL = {
    "yandex_wscd_clicks": (1, 0.79, 0.65, 0.53, 0.41, 0.36, 0.33, 0.27, 0.27, 0.25),
    "sogou_deepclick_clicks": (1, 1, 0.96, 0.77, 0.54, 0.40, 0.29, 0.25, 0.21, 0.20),
    "trec2014_session_clicks": (1, 0.64, 0.45, 0.31, 0.23, 0.16, 0.13, 0.10, 0.09, 0.07),
}


def world(n_queries, n_rankers=3, seed=0):
    """Documents, and the scores of rankers that were trained on different labels."""
    documents = make_ltr(n_queries, n_features=10, random_state=seed)
    scores = [production_scores(documents, random_state=ranker) for ranker in range(n_rankers)]
    return documents, np.column_stack(scores)


def simulate(documents, scores, policy, n_sessions, seed, **settings):
    several = getattr(policy, "several_rankers", False)
    settings = {"user": PositionBasedUser(CURVE), "features": False, **settings}
    return simulate_clicks(
        documents,
        scores=scores if several else scores[:, 0],
        policy=policy,
        n_sessions=n_sessions,
        random_state=seed,
        **settings,
    )


def accuracy(n_sessions=200_000, n_seeds=5):
    """Largest error over the positions; mean and worst over seeds."""
    documents, scores = world(1_000)
    rows = {}
    for name, (policy, estimator) in {**ESTIMATORS, **UNSURE}.items():
        errors = []
        network = getattr(estimator, "relevance", None) == "network"
        for seed in range(n_seeds):
            X, clicks, _ = simulate(documents, scores, policy, n_sessions, seed, features=network)
            estimator.fit(X, clicks)
            errors.append(np.abs(estimator.examination_["examination"] - CURVE))
        errors = np.array(errors)
        rows[name] = {
            "mean": errors[:, 1:].mean(),
            "largest, mean over seeds": errors.max(axis=1).mean(),
            "largest, worst seed": errors.max(),
        }
    print(pd.DataFrame(rows).T.round(4).to_string())


def coverage(n_logs=200, n_sessions=20_000):
    """Share of the intervals that hold the truth: over all positions, and least and most."""
    documents, scores = world(300)
    rows = {}
    for name, (policy, estimator) in ESTIMATORS.items():
        held = []
        for seed in range(n_logs):
            X, clicks, _ = simulate(documents, scores, policy, n_sessions, seed)
            table = estimator.fit(X, clicks).examination_.iloc[1:]
            held.append((table["lower"] <= CURVE[1:]) & (CURVE[1:] <= table["upper"]))
        held = np.mean(held, axis=0)
        rows[name] = {"mean": held.mean(), "least": held.min(), "most": held.max()}
    print(pd.DataFrame(rows).T.round(3).to_string())


def users(n_users=200, n_seeds=3):
    """Mean error of the curves of users, by how many sessions they have."""
    documents, scores = world(1_000)
    rng = np.random.default_rng(0)
    etas = rng.normal(1.0, 0.4, n_users).clip(0, 2.5)
    truth = (1 / np.arange(1, N_POSITIONS + 1)) ** etas[:, None]
    rows = {}
    for name in (
        "randomized, shuffles",
        "randomized, pivot swaps",
        "harvesting, all pairs",
        "regression-EM, per document",
    ):
        policy, estimator = ESTIMATORS[name]
        for n_sessions in (20, 100, 500, 2_500):
            errors = []
            for seed in range(n_seeds):
                X, clicks, _ = simulate(
                    documents,
                    scores,
                    policy,
                    n_sessions * n_users,
                    seed,
                    user=UserPopulation(examination=truth, decay=1.0),
                )
                errors.append(user_errors(estimator, X, clicks, truth))
            rows[name, n_sessions] = pd.DataFrame(errors).mean()
    print(pd.DataFrame(rows).T.rename_axis(["", "sessions a user"]).round(4).to_string())


def user_errors(estimator, X, clicks, truth):
    """Mean absolute error of examination, relative to position 1 of each user."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of users without a click somewhere: many
        for name, strength in {"unpooled": 0, "shrunk": "auto"}.items():
            estimator.set_params(user="user", user_shrinkage=strength, n_bootstrap=0)
            estimator.fit(X, clicks)
            curves = estimator.examination_["examination"].unstack("bias")
            common = estimator.average_examination_["examination"]
            held = estimator.examination_
            found[name] = curves.reindex(range(len(truth))).fillna(common)
        estimator.set_params(user=None, user_shrinkage="auto")
    found["common"] = pd.DataFrame(np.tile(common, (len(truth), 1)))
    place = held.index
    own = truth[place.get_level_values("user"), place.get_level_values("bias") - 1]
    held = ((held["lower"] <= own) & (own <= held["upper"]))[place.get_level_values("bias") > 1]
    errors = {
        # An unpooled curve without a bound may be anything; count it as at most 1.
        name: np.abs(np.minimum(curves, 1.0) - truth).to_numpy()[:, 1:].mean()
        for name, curves in found.items()
    }
    return {**errors, "shrunk: truth in interval": held.mean()}


def weights(n_seeds=20):
    """Root mean squared error of log examination by the weight of documents."""
    documents, scores = world(500)
    traffic = {"even": np.ones(500), "1 / rank": 1 / np.arange(1, 501)}
    rows = {}
    for traffic_name, query_weights in traffic.items():
        for variant in ("published", "default"):
            estimator = InterventionHarvesting(variant=variant, n_bootstrap=0)
            errors = []
            for seed in range(n_seeds):
                X, clicks, _ = simulate(
                    documents, scores, RANKERS, 20_000, seed, query_weights=query_weights
                )
                curve = estimator.fit(X, clicks).examination_["examination"]
                errors.append(np.log(curve / CURVE)[1:])
            rows[traffic_name, variant] = {"rmse": np.sqrt(np.mean(np.square(errors)))}
    print(pd.DataFrame(rows).T.round(4).to_string())


def speed(n_sessions=1_000_000):
    """Seconds and gigabytes beyond the log, and plain pandas for the same estimate."""
    documents, scores = world(20_000)
    X, clicks, _ = simulate(documents, scores, RANKERS, n_sessions, 0)
    X["user"] = (X["session"] % 100).astype(int)
    rows = {}
    settings = {
        "no errors": {"n_bootstrap": 0},
        "200 resamples": {},
        "100 users, 200 resamples": {"user": "user"},
    }
    for name, parameters in settings.items():
        estimator = InterventionHarvesting(random_state=0, **parameters)
        rows[name] = measured(lambda estimator=estimator: estimator.fit(X, clicks))
    ten = X.assign(user=X["session"] % 10)
    personal = RegressionEMPropensity(user="user", relevance="embedding")
    rows["regression-EM per document, ten users"] = measured(lambda: personal.fit(ten, clicks))
    rows["pandas, point estimate, pivot"] = measured(lambda: pandas_pivot(X, clicks))
    X, clicks, _ = simulate(documents, scores, SWAPS, n_sessions, 0)
    rows["randomized, swaps"] = measured(lambda: RandomizedPropensity(arm="arm").fit(X, clicks))
    rows["pandas, ratios of click rates"] = measured(lambda: pandas_swaps(X, clicks))
    print(pd.DataFrame(rows).T.round(2).to_string())


def pandas_pivot(X, clicks):
    """What one would write: join the click rates at a position with those at the first."""
    log = X[["qid", "doc", "position"]].assign(click=clicks)
    cells = log.groupby(["qid", "doc", "position"], as_index=False)["click"].agg(["sum", "count"])
    first = cells[cells["position"] == 1]
    pairs = cells.merge(first, on=["qid", "doc"], suffixes=("", "_first"))
    total = pairs["count"] + pairs["count_first"]
    own = (pairs["sum"] * pairs["count_first"] / total).groupby(pairs["position"]).sum()
    other = (pairs["sum_first"] * pairs["count"] / total).groupby(pairs["position"]).sum()
    return own / other


def pandas_swaps(X, clicks):
    log = X[["position", "arm"]].assign(click=clicks).dropna()
    rate = log.groupby(["arm", "position"])["click"].mean().unstack()
    return [rate.loc[k, k] / rate.loc[k, 1] for k in rate.index]


def measured(run):
    import psutil

    process, peak, done = psutil.Process(), [0], threading.Event()

    def watch():
        while not done.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss)

    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return {"seconds": seconds, "GB beyond the log": max(0, peak[0] - before) / 1e9}


def real():
    """Estimates on real logs; no truth is known."""
    folder = os.environ.get("SKULTR_DATA")
    if not folder:
        sys.exit("Set SKULTR_DATA to the folder that holds the logs.")
    for name, reference in REAL.items():
        log = pd.read_parquet(Path(folder) / f"{name}.parquet")
        log = log[log["position"] <= N_POSITIONS]
        columns = [log[role] for role in ("session", "qid", "doc", "position")]
        X = pd.concat(columns, axis=1)
        table = {"EM (README)": pd.Series(reference, index=range(1, N_POSITIONS + 1))}
        for method in ("all-pairs", "pivot", "adjacent-chain"):
            harvesting = InterventionHarvesting(method=method, random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotIdentifiableWarning)
                found = harvesting.fit(X, log["click"].astype(float)).examination_
            table[method] = found["examination"]
            table[f"{method} lower"], table[f"{method} upper"] = found["lower"], found["upper"]
        print(name, pd.DataFrame(table).T.round(2).to_string(), sep="\n")


PARTS = {part.__name__: part for part in (accuracy, coverage, users, weights, speed, real)}

if __name__ == "__main__":
    chosen = sys.argv[1:]
    if not chosen or not set(chosen) <= set(PARTS):
        sys.exit(f"Name one or more of the parts: {', '.join(PARTS)}.")
    for part in chosen:
        print(f"== {part}", flush=True)
        PARTS[part]()
