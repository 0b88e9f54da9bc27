"""Which click models hold up when the ranking changes, and which metrics tell in advance?

The study of Deffayet et al. (SIGIR 2023) in its shape and at a fraction of its size. By hand:

``python tests/benchmarks/bench_off_policy.py [--runs 3] [--sessions 20000] [--save results.csv]
[--configurations PBM/NoisyOracle ...] [--load results.csv]``

Sixteen configurations, as in the paper: four users, clicks logged under NoisyOracle or
LambdaMART, and tested under the other one or under Uniform. Seven click models are trained on
each log, and measured by nDCG of their relevance against the labels, perplexity on new sessions
of the logging policy (ind) and of the test policy (ood), and CMIP. Three tables:

(a) DCTR and PBM under NoisyOracle: Figure 2 in numbers;
(b) adjusted R² of predicting the ood perplexity from other metrics: Table 1;
(c) regret of choosing by the metrics, 1,000 times the ood perplexity lost: Table 2.

What differs from the paper: 2,000 documents of ``make_ltr`` in lists of 10 (25 on a carousel page)
in place of 58,880 of MSLR-WEB10K, 100 sessions a query (here of 20,000) in place of about 850,
LambdaMART learned from 800 other queries, models by EM where there is one, 3 runs in place of 10,
and 100 repetitions of the 2-fold validation in place of 1,000. Perplexity is conditional on the
clicks above. Each run has its own documents.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeRegressor

from skultr import click_models
from skultr.datasets import make_ltr
from skultr.metrics import cmip_score, ndcg_score, perplexity_score
from skultr.model_selection import OffPolicySelection
from skultr.simulation import (
    CarouselUser,
    DBNUser,
    MixtureDBNUser,
    PlackettLucePolicy,
    PositionBasedUser,
    UniformPolicy,
    noisy_oracle_scores,
    production_scores,
    simulate_shift,
)

USERS = {
    "PBM": PositionBasedUser(1.0),
    "DBN": DBNUser(),
    "MixtureDBN": MixtureDBNUser(),
    "Carousel": CarouselUser(),
}
POLICIES = ("NoisyOracle", "LambdaMART")
MODELS = ("DCTR", "RDCTR", "PBM", "UBM", "DBN", "NCM", "CACM")
METRICS = ("ind", "ndcg", "cmip")
CONFIGURATION = ["user", "logging", "test"]
N_DOCUMENTS, N_TRAINING_QUERIES, N_REPETITIONS = 2_000, 800, 100

STRATEGIES = {
    "PPL": OffPolicySelection({}, by="ind"),
    "nDCG": OffPolicySelection({}, by="ndcg"),
    "top-4 nDCG: PPL": OffPolicySelection({"ndcg": 4}, by="ind"),
    "top-4 PPL: nDCG": OffPolicySelection({"ind": 4}, by="ndcg"),
    "CMIP": OffPolicySelection({}, by="cmip"),
    "top-4 CMIP: PPL": OffPolicySelection({"cmip": 4}, by="ind"),
    "top-4 CMIP: nDCG": OffPolicySelection({"cmip": 4}, by="ndcg"),
    "top-4 CMIP, top-4 nDCG: PPL": OffPolicySelection({"cmip": 4, "ndcg": 4}, by="ind"),
    "top-4 CMIP, top-4 PPL: nDCG": OffPolicySelection({"cmip": 4, "ind": 4}, by="ndcg"),
}


# Measuring ------------------------------------------------------------------------------
def measure(user, logging, run, n_sessions, models):
    """One row a model and test policy, of one log."""
    n_positions = 25 if user == "Carousel" else 10
    documents, others = make_documents(n_positions, run)
    scores = {
        "NoisyOracle": noisy_oracle_scores(documents, random_state=run),
        "LambdaMART": production_scores(
            others, fraction=1.0, estimator="lambdamart", candidates=documents, random_state=run
        ),
    }
    tests = {"Uniform": (UniformPolicy(), None)}
    for other in POLICIES:
        if other != logging:
            tests[other] = (PlackettLucePolicy(), scores[other])
    logs = {
        test: simulate_shift(
            documents,
            n_sessions=n_sessions * 10 // n_positions,
            n_positions=n_positions,
            scores=scores[logging],
            test_policy=policy,
            test_scores=test_scores,
            user=USERS[user],
            features=False,
            random_state=run,
        )
        for test, (policy, test_scores) in tests.items()
    }
    train, same, _ = logs["Uniform"]
    logged = train.X.groupby("doc")["position"].mean()
    shown = documents[documents["doc"].isin(logged.index)]
    rows = []
    for name in models:
        start = time.perf_counter()
        model = make_model(name, run).fit(train.X, train.clicks)
        seconds = time.perf_counter() - start
        scored = model.predict(shown[["qid", "doc"]])
        relevance = shown["relevance"]
        found = {
            "ndcg": ndcg_score(relevance, scored, qid=shown["qid"], k=10),
            "cmip": cmip(scored, logged, shown, "classifier"),
            "cmip_knn": cmip(scored, logged, shown, "knn"),
            "ind": perplexity(model, same),
            "seconds": seconds,
        }
        for test, (_, _, shifted) in logs.items():
            of = {"user": user, "logging": logging, "test": test, "run": run, "model": name}
            rows.append({**of, **found, "ood": perplexity(model, shifted)})
    return pd.DataFrame(rows)


def make_documents(n_positions, seed):
    """Documents of the log, and those of other queries for the production ranker."""
    n_queries = N_DOCUMENTS // n_positions
    documents = make_ltr(n_queries + N_TRAINING_QUERIES, n_positions, 30, random_state=seed)
    of_log = documents["qid"] < n_queries
    return documents[of_log], documents[~of_log]


def make_model(name, seed):
    model = getattr(click_models, f"{name}Model")()
    return model.set_params(random_state=seed) if name in ("NCM", "CACM") else model


def perplexity(model, log):
    probability = model.predict_click(log.X, log.clicks)
    return perplexity_score(log.clicks, probability, position=log.X["position"])


def cmip(scored, logged, shown, estimator):
    at = logged.loc[shown["doc"]]
    return cmip_score(scored, at, shown["relevance"], estimator=estimator, random_state=0)


# Tables ---------------------------------------------------------------------------------
def figure_2(results):
    columns = ["ndcg", "ind", "ood", "cmip", "cmip_knn"]
    of = results[(results["logging"] == "NoisyOracle") & (results["test"] == "Uniform")]
    return of.groupby(["user", "model"], sort=False)[columns].mean().round(4)


def r_squared(results, regressor, metrics=METRICS):
    """Adjusted R², one row a configuration and one column a subset of the metrics."""
    subsets = [s for n in (1, 2, 3) for s in itertools.combinations(metrics, n)]
    table = {}
    for configuration, rows in results.groupby(CONFIGURATION, sort=False):
        found = [_adjusted_r_squared(regressor, rows[list(s)], rows["ood"]) for s in subsets]
        table[configuration] = dict(zip([", ".join(s) for s in subsets], found, strict=True))
    table = pd.DataFrame(table).T.rename_axis(CONFIGURATION)
    table.loc[("mean", "", "")] = table.mean()
    return table.round(3)


def _adjusted_r_squared(regressor, X, y):
    n, p = X.shape
    total, found = ((y - y.mean()) ** 2).sum(), []
    for seed in range(N_REPETITIONS):
        halves = KFold(2, shuffle=True, random_state=seed)
        predicted = cross_val_predict(regressor, X, y, cv=halves)
        unexplained = ((y - predicted) ** 2).sum() / total
        found.append(1 - unexplained * (n - 1) / (n - p - 1))
    return np.mean(found)


def regret(results, cmip="cmip"):
    """Mean regret of each strategy, over all choices from 5, 6 or all of the models."""
    lost = []
    for _, rows in results.groupby([*CONFIGURATION, "run"]):
        score = {
            "ndcg": rows["ndcg"].to_numpy(),
            "ind": -rows["ind"].to_numpy(),
            "cmip": -rows[cmip].to_numpy(),
        }
        ood = rows["ood"].to_numpy()
        of_log = []
        for n in range(min(5, len(rows)), len(rows) + 1):
            for candidates in map(list, itertools.combinations(range(len(rows)), n)):
                found = {f"mean_test_{name}": of[candidates] for name, of in score.items()}
                best = ood[candidates].min()
                of_log.append([ood[candidates][s(found)] - best for s in STRATEGIES.values()])
        lost.append(np.mean(of_log, axis=0))
    lost = 1000 * pd.DataFrame(lost, columns=list(STRATEGIES))
    interval = 1.96 * lost.std() / np.sqrt(len(lost))
    return pd.DataFrame({"regret": lost.mean(), "+-": interval}).round(2)


def report(results):
    n = len(results.groupby(CONFIGURATION))
    print(f"{n} configurations, {results['run'].nunique()} runs\n")
    print(f"(a) logged under NoisyOracle, tested under Uniform\n{figure_2(results)}\n")
    print("(b) adjusted R² of the ood perplexity")
    print(f"decision tree\n{r_squared(results, DecisionTreeRegressor(random_state=0))}\n")
    linear = r_squared(results, LinearRegression())
    print(f"linear regression, mean\n{linear.iloc[-1].to_frame().T.to_string(index=False)}\n")
    print(f"(c) regret, 1,000 times the ood perplexity lost\n{regret(results)}\n")
    print(f"(c) with CMIP by nearest neighbours\n{regret(results, 'cmip_knn')}\n")
    seconds = results.drop_duplicates(["user", "logging", "run", "model"])
    print("seconds of a fit\n" + seconds.groupby("model", sort=False)["seconds"].mean().round(1)
          .to_string())  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    every = [f"{user}/{logging}" for user in USERS for logging in POLICIES]
    parser.add_argument("--configurations", nargs="+", default=every, choices=every)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--sessions", type=int, default=20_000, help="of lists of ten")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", type=Path, help="CSV, written after each log")
    parser.add_argument("--load", type=Path, help="CSV of an earlier call: only the tables")
    args = parser.parse_args()
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.max_rows", 100)
    if args.load:
        report(pd.read_csv(args.load))
        return
    found = []
    for run, name in itertools.product(range(args.runs), args.configurations):
        start = time.perf_counter()
        found.append(measure(*name.split("/"), run, args.sessions, args.models))
        print(f"run {run}, {name}: {time.perf_counter() - start:.0f} s", flush=True)
        if args.save:
            pd.concat(found).to_csv(args.save, index=False)
    report(pd.concat(found, ignore_index=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
