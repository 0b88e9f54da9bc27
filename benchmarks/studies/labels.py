"""Are labels from clicks ever worse than the click rate, or than the ranker that served?

By hand: ``python -m benchmarks.studies.labels [--seeds 3] [--sessions 2000 20000 200000]``.

Position-based users and users who stop (DBN), strong production (trees on the labels of all
queries) and weak (of 2 % of them), lists by Plackett-Luce at two temperatures, 200 queries of
20 documents, the top 10 shown. Printed are nDCG@5 of the labels of the documents that were shown,
``_p`` with the role ``production`` in the log, and for position-based users the share of
documents whose relevance lies in the 95 % interval. 3 minutes of one core with 3 seeds.
"""

import argparse
import itertools
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.propensity import relevance_labels
from skultr.simulation import (
    DBNUser,
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    relevance_probability,
    simulate_clicks,
)

USERS = {"pbm": PositionBasedUser(), "dbn": DBNUser()}
SHARES = {"strong": 1.0, "weak": 0.02}
PEERS = ["production", "click rate", "empirical"]


def serve(seed, user, production, temperature, n_sessions):
    """The log, its clicks, and the documents with their production scores."""
    docs = make_ltr(n_queries=200, n_features=20, random_state=seed)
    features = [name for name in docs if name.startswith("feature_")]
    order = np.random.default_rng(seed).permutation(docs["qid"].unique())
    known = docs[docs["qid"].isin(order[: max(3, round(SHARES[production] * len(order)))])]
    trees = lgb.LGBMRegressor(
        n_estimators=200 if production == "strong" else 30,
        num_leaves=15,
        min_child_samples=5,
        verbose=-1,
        n_jobs=1,
    )
    trees.fit(known[features], known["relevance"])
    docs = docs.assign(production=trees.predict(docs[features]))
    policy = PlackettLucePolicy(temperature=temperature) if temperature else DeterministicPolicy()
    log, clicks, truth = simulate_clicks(
        docs.drop(columns="production"),
        n_sessions=n_sessions,
        policy=policy,
        user=USERS[user],
        random_state=seed,
        scores=docs["production"],
        features=False,
    )
    return log, clicks, truth, docs[["qid", "doc", "relevance", "production"]]


def measure(*world):
    """nDCG@5 of each kind of label, and the coverage of the intervals, of one log."""
    log, clicks, truth, docs = serve(*world)
    served = log.merge(docs[["qid", "doc", "production"]], on=["qid", "doc"])
    of_users = world[1] == "pbm"
    examination = truth.examination if of_users else 0.9 ** np.arange(10)
    tables = {"labels": relevance_labels(log, clicks, propensity=examination, interval=True)}
    tables["labels_p"] = relevance_labels(served, clicks, propensity=examination, interval=True)
    shown = tables["labels"][["qid", "doc", "clicks", "impressions"]].merge(docs)
    rows = shown[["qid", "doc"]]
    models = {
        "empirical": PBMModel(prior="empirical").fit(log, clicks),
        "PBM": PBMModel().fit(log, clicks),
        "PBM_p": PBMModel().fit(served, clicks),
    }
    labels = {
        "production": shown["production"],
        "click rate": shown["clicks"] / shown["impressions"],
        **{name: model.predict(rows) for name, model in models.items()},
        **{name: table["label"] for name, table in tables.items()},
    }
    grade, query = shown["relevance"].to_numpy(), shown["qid"].to_numpy()
    found = {
        name: float(ndcg_score(grade, np.asarray(label, float), qid=query, k=5))
        for name, label in labels.items()
    }
    if of_users:
        true = relevance_probability(grade)
        first = true * examination[0]
        for name in ("labels", "labels_p"):
            found[f"cover {name}"] = _coverage(tables[name], true)
        for name in ("PBM", "PBM_p"):
            found[f"cover {name}"] = _coverage(
                models[name]._row_parameters(rows, None, None), first
            )
    return found


def _coverage(table, true):
    lower, upper = np.asarray(table["lower"]), np.asarray(table["upper"])
    return float(np.mean((lower <= true) & (true <= upper)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sessions", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.1, 0.5])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    pd.set_option("display.width", 250, "display.max_columns", 40)
    rows, names = [], ["user", "production is", "T", "sessions"]
    for cell in itertools.product(USERS, SHARES, given.temperatures, given.sessions):
        found = pd.DataFrame([measure(10 + seed, *cell) for seed in range(given.seeds)])
        rows.append({**dict(zip(names, cell, strict=True)), **found.mean()})
    table = pd.DataFrame(rows)
    covers = [name for name in table if name.startswith("cover")]
    print(table.drop(columns=covers).round(3).to_string(index=False))
    print(table.loc[table["user"] == "pbm", [*names, *covers]].round(3).to_string(index=False))
    best = table[PEERS].max(axis=1)
    ours = ["PBM", "PBM_p", "labels", "labels_p"]
    regret = table[ours].rsub(best, axis=0)
    rated = table[ours].rsub(table[PEERS[1:]].max(axis=1), axis=0)
    print("\nregret to the best of production, click rate and prior='empirical'")
    print(regret.agg(["max", "mean"]).round(3).to_string())
    print("regret to the better of click rate and prior='empirical'")
    print(rated.agg(["max", "mean"]).round(3).to_string())


if __name__ == "__main__":
    main()
