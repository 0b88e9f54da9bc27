"""Rankers from the same clicks, all of them: ours beside LightGBM and XGBoost.

Everybody gets every session. LightGBM and XGBoost take whole sessions with 0/1 clicks, because
their ranking objectives know no impressions and no fractional labels; ours take the same log
folded. The seconds of ours include the folding. Intervals and verdicts are over the held-out
queries of all seeds (``compare_rankers``, against LightGBM as it comes); "± (seeds)" also has what
training leaves to chance.
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
from skultr.evaluation import compare_rankers
from skultr.model_selection import train_test_queries
from skultr.rankers import EnsembleRanker, IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

ROUNDS = 100
BASELINE = "LightGBM lambdarank"


def lightgbm_ranker(log, clicks, features, sizes, position=None, **trees):
    data = lightgbm.Dataset(log[features], clicks, group=sizes, position=position)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "verbosity": -1,
        "num_threads": 2,
        "seed": 0,
        **trees,
    }
    return lightgbm.train(settings, data, ROUNDS).predict


def xgboost_ranker(log, clicks, features, sizes, **trees):
    data = xgboost.DMatrix(log[features], clicks)
    data.set_group(sizes)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "nthread": 2,
        "seed": 0,
        **trees,
    }
    booster = xgboost.train(settings, data, ROUNDS)
    return lambda X: booster.predict(xgboost.DMatrix(X))


def contenders(impressions, clicks, train, truth):
    """Name -> function that trains and returns a function from candidates to scores."""
    documents = train.drop(columns="production")
    features = [name for name in train if name.startswith("feature")]
    by_session = impressions.assign(click=clicks).sort_values(["session", "position"])
    log = by_session.merge(train[["doc", *features]], on="doc", how="left")
    sizes = np.full(len(log) // 10, 10)

    def peer(train_it, **settings):
        def fit():
            predict = train_it(log, log["click"], features, sizes, **settings)
            return lambda X: predict(X[features])

        return fit

    def ours(ranker, documents=documents, relevance=None):
        def fit():
            X, y = aggregate_clicks(impressions.assign(click=clicks), documents)
            return ranker.fit(X, y if relevance is None else relevance(X["relevance"])).predict

        return fit

    curve, position = truth.examination, log["position"] - 1
    return {
        "production": lambda: lambda X: X["production"],
        BASELINE: peer(lightgbm_ranker),
        "LightGBM lambdarank, position": peer(lightgbm_ranker, position=position),
        "LightGBM lambdarank, position, 7 leaves": peer(
            lightgbm_ranker, position=position, num_leaves=7
        ),
        "XGBoost lambdarank_unbiased": peer(xgboost_ranker),
        "XGBoost lambdarank_unbiased, depth 3": peer(xgboost_ranker, max_depth=3, eta=0.1),
        "skultr naive": ours(NaiveRanker(random_state=0)),
        "skultr DLA": ours(DLARanker(random_state=0)),
        "skultr LambdaMART": ours(LambdaMARTRanker(propensity=curve, random_state=0)),
        "skultr IPS": ours(IPSRanker(propensity=curve, random_state=0)),
        "skultr ensemble": ours(EnsembleRanker(random_state=0), train),
        "skultr skyline": ours(NaiveRanker(random_state=0), relevance=relevance_probability),
    }


def measure(seed, n_sessions, temperature):
    """Held-out queries with the scores of all rankers, and the seconds of each."""
    documents = make_ltr(n_queries=2500, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.2, random_state=seed)
    scores_of_production = production_scores(train, random_state=seed)
    policy = PlackettLucePolicy(temperature) if temperature else DeterministicPolicy()
    impressions, clicks, truth = simulate_clicks(
        train,
        n_sessions=n_sessions,
        policy=policy,
        scores=scores_of_production,
        features=False,
        random_state=seed,
    )
    test = test.assign(production=production_scores(train, candidates=test, random_state=seed))
    impressions = impressions.drop(columns=["relevance"], errors="ignore")
    scores, seconds = {}, {}
    train = train.assign(production=scores_of_production)
    for name, train_it in contenders(impressions, clicks, train, truth).items():
        start = time.perf_counter()
        predict = train_it()
        seconds[name] = time.perf_counter() - start
        scores[name] = predict(test)
    queries = test[["doc", "relevance"]].assign(qid=seed * len(documents) + test["qid"], seed=seed)
    return queries.assign(**scores), seconds


def tabulate(runs):
    """One row per ranker."""
    queries = pd.concat([test for test, _ in runs])
    seconds = pd.DataFrame([of for _, of in runs]).agg(["mean", "sem"]).T
    scores = {name: queries[name] for name in seconds.index}
    found = compare_rankers(scores, queries, baseline=BASELINE, random_state=0)
    of_seed = queries.groupby("qid")["seed"].first().loc[found.per_query.index]
    table = found.values.assign(sem=found.per_query.groupby(of_seed).mean().sem())
    pairs = found.table.set_index("ranker")[["difference", "p_adjusted", "verdict"]]
    table = table.join(pairs).join(seconds, rsuffix=" (seconds)")
    value = ["ndcg@10", "from", "to", "± (seeds)"]
    return table.set_axis([*value, "- LightGBM", "p", "verdict", "seconds", "± (seeds)"], axis=1)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--temperature", type=float, default=0.1, help="0: one fixed order")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    runs = [measure(seed, args.sessions, args.temperature) for seed in range(args.seeds)]
    print(f"{args.sessions:,d} sessions, T = {args.temperature:g}, {args.seeds} seeds")
    print(tabulate(runs).round(4).to_string(na_rep=""))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of the process {peak:.2f} GiB")
