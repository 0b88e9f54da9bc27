"""Rankers from the same clicks: ours beside LightGBM and XGBoost.

By hand, with the extra ``benchmark``: ``python tests/benchmarks/bench_peers.py [--seeds 3]``.
Every peer sees the same sessions. LightGBM and XGBoost take whole sessions with 0/1 clicks (their
ranking objectives know no impressions and no fractional labels), so they get a sample of them,
and ours get both the sample and the whole log, folded.
"""

import argparse
import resource
import time
import warnings

import lightgbm
import numpy as np
import pandas as pd
import xgboost

from skultr import DLARanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import production_scores, relevance_probability, simulate_clicks

ROUNDS = 100


def lightgbm_ranker(log, clicks, features, sizes, position=None):
    data = lightgbm.Dataset(log[features], clicks, group=sizes, position=position)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "verbosity": -1,
        "num_threads": 2,
        "seed": 0,
    }
    return lightgbm.train(settings, data, ROUNDS).predict


def xgboost_ranker(log, clicks, features, sizes):
    data = xgboost.DMatrix(log[features], clicks)
    data.set_group(sizes)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "nthread": 2,
        "seed": 0,
    }
    booster = xgboost.train(settings, data, ROUNDS)
    return lambda X: booster.predict(xgboost.DMatrix(X))


def contenders(whole, sample, features, truth):
    """Name -> function that trains and returns a function from features to scores."""
    log, clicks = sample
    sizes = np.full(len(log) // 10, 10)
    folded, rate = whole

    def ours(ranker, X, y):
        return lambda: ranker.fit(X, y).predict

    curve = truth.examination
    relevance = relevance_probability(folded["relevance"])
    return {
        "LightGBM lambdarank": lambda: lightgbm_ranker(log, clicks, features, sizes),
        "LightGBM lambdarank, position": lambda: lightgbm_ranker(
            log, clicks, features, sizes, log["position"] - 1
        ),
        "XGBoost lambdarank_unbiased": lambda: xgboost_ranker(log, clicks, features, sizes),
        "skultr naive, same sample": ours(NaiveRanker(random_state=0), log, clicks),
        "skultr DLA, same sample": ours(DLARanker(random_state=0), log, clicks),
        "skultr IPS, same sample": ours(IPSRanker(propensity=curve, random_state=0), log, clicks),
        "skultr DLA, whole log": ours(DLARanker(random_state=0), folded, rate),
        "skultr IPS, whole log": ours(IPSRanker(propensity=curve, random_state=0), folded, rate),
        "skultr skyline": ours(NaiveRanker(random_state=0), folded, relevance),
    }


def measure(seed, n_sessions, n_sample):
    documents = make_ltr(n_queries=2500, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.2, random_state=seed)
    scores = production_scores(train, random_state=seed)
    impressions, clicks, truth = simulate_clicks(
        train, n_sessions=n_sessions, scores=scores, features=False, random_state=seed
    )
    whole = aggregate_clicks(impressions.assign(click=clicks), train)
    # Sessions are in random order: the first ones are a random sample.
    chosen = (impressions["session"] < n_sample).to_numpy()
    log = impressions[chosen].merge(train.drop(columns="qid"), on="doc", how="left")
    log = log.sort_values(["session", "position"], ignore_index=True)
    ordered = impressions[chosen].assign(click=clicks[chosen])
    sample = log, ordered.sort_values(["session", "position"])["click"].to_numpy()
    features = [name for name in train if name.startswith("feature")]
    rows = {}
    for name, train_it in contenders(whole, sample, features, truth).items():
        start = time.perf_counter()
        predict = train_it()
        seconds = time.perf_counter() - start
        score = predict(test[features])
        rows[name] = (ndcg_score(test["relevance"], score, qid=test["qid"], k=10), seconds)
    return pd.DataFrame(rows, index=["ndcg@10", "seconds"]).T


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=50_000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = [measure(seed, args.sessions, args.sample) for seed in range(args.seeds)]
    table = pd.concat(runs).groupby(level=0, sort=False).agg(["mean", "sem"])
    table.columns = ["ndcg@10", "± (seeds)", "seconds", "± (seeds)"]
    print(f"{args.sessions:,d} sessions, sample {args.sample:,d}, {args.seeds} seeds")
    print(table.round(4).to_string())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of the process {peak:.2f} GiB")


if __name__ == "__main__":
    main()
