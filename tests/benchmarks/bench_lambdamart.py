"""LambdaMARTRanker beside LightGBM's position debiasing and XGBoost's ``lambdarank_unbiased``.

By hand, with the extra ``benchmark``:
``python tests/benchmarks/bench_lambdamart.py [accuracy | speed] [--seeds 5]``.

A position-based world with eye-tracking examination. All get the same sessions, trees, learning
rate and leaves, and one thread. The peers take single sessions with 0/1 clicks (their objectives
know no impressions); ours take the distinct lists of the same sessions. Every fit runs in a
process of its own, for its peak memory beyond what the process began with.
"""

import argparse
import multiprocessing
import os
import resource
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightgbm
import numpy as np
import pandas as pd

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import InterventionHarvesting, RegressionEMPropensity
from skultr.rankers._lambdamart import LambdaMARTRanker
from skultr.rankers._learners import LambdaObjective, SoftmaxObjective
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    production_scores,
    simulate_clicks,
)

POLICIES = {"stochastic": PlackettLucePolicy(), "deterministic": DeterministicPolicy()}
RATE, LEAVES = 0.1, 31
OURS, PEERS = "user-aware", ("LightGBM, position", "XGBoost, unbiased")


# --------------------------------------------------------------------------------------
# Peers
# --------------------------------------------------------------------------------------
def fit_lightgbm(log, clicks, features, rounds, *, position=None, reg_lambda=0.0):
    data = lightgbm.Dataset(log[features], clicks, group=_sizes(log), position=position)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "learning_rate": RATE,
        "num_leaves": LEAVES,
        "lambda_l2": reg_lambda,
        "verbosity": -1,
        "num_threads": 1,
        "seed": 0,
    }
    return lightgbm.train(settings, data, rounds).predict


def fit_xgboost(log, clicks, features, rounds, *, unbiased=True):
    import xgboost

    data = xgboost.DMatrix(log[features], clicks)
    data.set_group(_sizes(log))
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": unbiased,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "eta": RATE,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": LEAVES,
        "nthread": 1,
        "seed": 0,
    }
    booster = xgboost.train(settings, data, rounds)
    return lambda X: booster.predict(xgboost.DMatrix(X))


def _sizes(log):
    return log.groupby("session", sort=False).size().to_numpy()


# --------------------------------------------------------------------------------------
# Accuracy
# --------------------------------------------------------------------------------------
def contenders(whole, sessions, train, features, truth, policy, rounds):
    """Name -> function that trains and returns a function from features to scores."""
    log, clicks = sessions
    fixed = {
        "n_estimators": rounds,
        "learning_rate": RATE,
        "num_leaves": LEAVES,
        "early_stopping": False,
        "n_jobs": 1,
        "random_state": 0,
    }

    def ours(*data, **settings):
        return lambda: LambdaMARTRanker(**{**fixed, **settings}).fit(*data).predict

    known = {"propensity": truth.examination}
    table = {
        "LightGBM, naive": lambda: fit_lightgbm(log, clicks, features, rounds),
        PEERS[0]: lambda: fit_lightgbm(
            log, clicks, features, rounds, position=log["position"] - 1
        ),
        f"{PEERS[0]}, reg_lambda 50": lambda: fit_lightgbm(
            log, clicks, features, rounds, position=log["position"] - 1, reg_lambda=50.0
        ),
        "XGBoost, naive": lambda: fit_xgboost(log, clicks, features, rounds, unbiased=False),
        PEERS[1]: lambda: fit_xgboost(log, clicks, features, rounds),
        "none": ours(*whole, debiasing="none"),
        "lightgbm": ours(*whole, debiasing="lightgbm"),
        "ips": ours(*whole, debiasing="ips", **known),
        OURS: ours(*whole, **known),
        f"{OURS}, reg_lambda 0": ours(*whole, reg_lambda=0.0, **known),
        f"{OURS}, lambda": ours(*whole, loss="lambda", **known),
        f"{OURS}, default training": lambda: (
            LambdaMARTRanker(random_state=0, **known).fit(*whole).predict
        ),
    }
    for source in _estimators(policy):
        name = f"{OURS}, {type(source).__name__}"
        table[name] = ours(*whole, propensity=source)
    place = train.groupby("qid").cumcount() + 1
    oracle = train.assign(position=place, impressions=100.0)
    table["skyline"] = ours(oracle, truth.relevance_probability, debiasing="none")
    return table


def _estimators(policy):
    """Estimators of the curve; a deterministic log has no swaps to harvest."""
    sources = [RegressionEMPropensity(random_state=0)]
    if policy == "stochastic":
        sources.append(InterventionHarvesting(n_bootstrap=0))
    return sources


def measure(seed, n_sessions, policy, rounds):
    documents = make_ltr(n_queries=2500, n_features=50, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.2, random_state=seed)
    scores = production_scores(train, random_state=seed)
    impressions, clicks, truth = simulate_clicks(
        train,
        n_sessions=n_sessions,
        policy=POLICIES[policy],
        scores=scores,
        features=False,
        random_state=seed,
    )
    whole = aggregate_clicks(impressions.assign(click=clicks), train)
    log = impressions.merge(train.drop(columns="qid"), on="doc", how="left")
    features = [name for name in train if name.startswith("feature")]
    rows = {}
    everything = contenders(whole, (log, clicks), train, features, truth, policy, rounds)
    for name, fit in everything.items():
        score, seconds, memory = _in_process(fit, test[features])
        rows[name] = ndcg_score(test["relevance"], score, qid=test["qid"], k=10), seconds, memory
        print(f"seed {seed} {name:44s} {rows[name][0]:.4f} {seconds:6.1f} s", flush=True)
    return pd.DataFrame(rows, index=["ndcg@10", "seconds", "MiB"]).T


def _in_process(fit, features):
    """Scores, seconds and peak memory of a fit in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_fit_and_send, args=(fit, features, sender))
    process.start()
    result = receiver.recv()
    process.join()
    return result


def _fit_and_send(fit, features, sender):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    predict = fit()
    seconds = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    sender.send((predict(features), seconds, memory))


def accuracy(args):
    runs = [measure(seed, args.sessions, args.policy, args.rounds) for seed in range(args.seeds)]
    table = pd.concat(runs, keys=range(args.seeds), names=["seed", "name"])
    by_name = table.groupby(level="name", sort=False)
    summary = by_name["ndcg@10"].agg(["mean", "std"]).round(4)
    for peer in PEERS:
        difference = (
            table["ndcg@10"]
            .unstack("seed")
            .sub(table.loc[(slice(None), peer), "ndcg@10"].droplevel("name"))
        )
        error = difference.std(axis=1) / np.sqrt(args.seeds)
        text = difference.mean(axis=1).map("{:+.4f}".format) + " ± " + error.map("{:.4f}".format)
        summary[f"minus {peer}"] = text
    summary = summary.join(by_name[["seconds", "MiB"]].mean().round(1))
    print(
        f"\nnDCG@10 of {args.seeds} seeds, {args.sessions:,d} sessions over 2,000 queries, "
        f"{args.policy} policy, {args.rounds} trees"
    )
    print(summary.to_string())


# --------------------------------------------------------------------------------------
# Speed
# --------------------------------------------------------------------------------------
def speed(args):
    rng = np.random.default_rng(0)
    print("ms a tree, one thread, 100 features, 31 leaves (objective alone)")
    for n_queries, length in ((2000, 20), (20_000, 10), (1000, 120)):
        n_rows = n_queries * length
        X = rng.normal(size=(n_rows, 100)).astype(np.float32)
        rate = np.clip(0.2 + 0.1 * X[:, 0] + 0.05 * rng.normal(size=n_rows), 0, 1)
        clicks = (rng.random(n_rows) < rate).astype(int)
        group = np.full(n_queries, length)
        times = {"LightGBM lambdarank": _time_trees(X, clicks, group, "lambdarank")}
        for name, loss in (("lambda", LambdaObjective()), ("softmax", SoftmaxObjective())):
            times[name] = _time_trees(X, rate, group, loss)
            start = time.perf_counter()
            for _ in range(10):
                loss(rate, X[:, 1].astype(float), None, group)
            times[f"({name})"] = (time.perf_counter() - start) * 100
        base = times["LightGBM lambdarank"]
        print(
            f"{n_queries:6d} x {length:3d}: "
            + ", ".join(f"{name} {ms:.1f} ({ms / base:.2f} x)" for name, ms in times.items())
        )


def _time_trees(X, labels, group, objective, n_trees=50):
    settings = {
        "objective": objective if isinstance(objective, str) else "none",
        "num_threads": 1,
        "force_col_wise": True,
        "metric": "None",
        "verbosity": -1,
    }
    booster = lightgbm.Booster(settings, lightgbm.Dataset(X, labels, group=group))
    fobj = None
    if not isinstance(objective, str):

        def fobj(scores, data):
            return objective(data.get_label(), scores, None, data.get_group())

    booster.update(fobj=fobj)
    start = time.perf_counter()
    for _ in range(n_trees):
        booster.update(fobj=fobj)
    return (time.perf_counter() - start) / n_trees * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["accuracy", "speed"], default="accuracy")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=40_000)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="stochastic")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    {"accuracy": accuracy, "speed": speed}[args.part](args)


if __name__ == "__main__":
    main()
