"""Which click models hold up when the ranking changes, and which metrics tell in advance?

The study of Deffayet et al. (SIGIR 2023) in its shape and at a fraction of its size. By hand:

``python -m benchmarks.studies.off_policy [--runs 0 1 2] [--sessions 30000]
[--models PBM UBM ...] [--configurations PBM/NoisyOracle ...] [--save results.csv]
[--load results.csv ...]``

Sixteen configurations, as in the paper: four users, clicks logged under NoisyOracle or
LambdaMART, and tested under the other one or under Uniform. Seven click models are trained on
each log, and measured by nDCG of their relevance against the labels, perplexity on new sessions
of the logging policy (ind) and of the test policy (ood), and CMIP. Three tables:

(a) all models under NoisyOracle, tested under Uniform: Figure 2 in numbers;
(b) adjusted R² of predicting the ood perplexity from other metrics: Table 1;
(c) regret of choosing by the metrics, 1,000 times the ood perplexity lost: Table 2; beside it
    that of a model at random and of the same model always, and what CMIP in front of a rule gains.
    Intervals are by clusters: the eight pairs of user and logging policy.

What differs from the paper: 1,000 documents of ``make_ltr`` in lists of 10 (25 on a carousel page)
in place of 58,880 of MSLR-WEB10K, 300 sessions a query (30,000 in all) in place of about 850,
LambdaMART learned from 800 other queries, models by EM where there is one, 3 runs in place of 10,
and 20 repetitions of the 2-fold validation in place of 1,000. Perplexity is conditional on the
clicks above. Each run has its own documents; (b) is about deviations from the mean of a run, and
also by linear regression, because 21 rows are few for trees.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t
from sklearn import config_context
from sklearn.linear_model import LinearRegression
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
FURTHER = ("DCM", "CCM")
METRICS = ("ind", "ndcg", "cmip")
CONFIGURATION = ["user", "logging", "test"]
N_DOCUMENTS, N_TRAINING_QUERIES, N_REPETITIONS = 1_000, 800, 20

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

#: Rules, and the same with CMIP in front.
WITH_CMIP = {
    "PPL": "top-4 CMIP: PPL",
    "nDCG": "top-4 CMIP: nDCG",
    "top-4 PPL: nDCG": "top-4 CMIP, top-4 PPL: nDCG",
    "top-4 nDCG: PPL": "top-4 CMIP, top-4 nDCG: PPL",
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
    neural = {"batch_size": 512, "random_state": seed}
    return model.set_params(**neural) if name in ("NCM", "CACM") else model


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


def r_squared(results, of):
    """Adjusted R² ``of(X, y)``, one row a configuration and one column a subset of metrics."""
    subsets = [list(s) for n in (1, 2, 3) for s in itertools.combinations(METRICS, n)]
    table = {}
    # Runs differ in their documents, and so in all that is measured; models are compared in one.
    columns = [*METRICS, "ood"]
    mean = results.groupby([*CONFIGURATION, "run"])[columns].transform("mean")
    results = results.assign(**(results[columns] - mean))
    for configuration, rows in results.groupby(CONFIGURATION, sort=False):
        y = rows["ood"].to_numpy()
        table[configuration] = {", ".join(s): of(rows[s].to_numpy(), y) for s in subsets}
    table = pd.DataFrame(table).T.rename_axis(CONFIGURATION)
    table.loc[("mean", "", "")] = table.mean()
    return table.round(3)


def of_trees(X, y):
    """Of decision trees, each fitted to one half and tested on the other."""
    rng, found = np.random.default_rng(0), []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for _ in range(N_REPETITIONS):
            first, second = np.array_split(rng.permutation(len(y)), 2)
            predicted = np.empty(len(y))
            for train, test in ((first, second), (second, first)):
                tree = DecisionTreeRegressor(random_state=0).fit(X[train], y[train])
                predicted[test] = tree.predict(X[test])
            found.append(_adjusted(y, predicted, X.shape[1]))
    return np.mean(found)


def of_a_line(X, y):
    """Of linear regression on all rows at once."""
    return _adjusted(y, LinearRegression().fit(X, y).predict(X), X.shape[1])


def _adjusted(y, predicted, n_metrics):
    unexplained = ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    return 1 - unexplained * (len(y) - 1) / (len(y) - n_metrics - 1)


def losses(results, cmip="cmip"):
    """Mean loss of each strategy over all choices from 5, 6 or all models, one row a log."""
    lost = {}
    for log, rows in results.groupby([*CONFIGURATION, "run"]):
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
                found["params"] = candidates
                best = ood[candidates].min()
                of_log.append(
                    [ood[candidates][s(found)] - best for s in STRATEGIES.values()]
                    + [ood[candidates].mean() - best]
                )
        # The same model always has to be there: all models are the candidates.
        always = ood - ood.min()
        lost[log] = np.r_[np.mean(of_log, axis=0), always]
    columns = [*STRATEGIES, "a model at random", *(f"always {m}" for m in rows["model"])]
    index = pd.MultiIndex.from_tuples(lost, names=[*CONFIGURATION, "run"])
    return 1000 * pd.DataFrame(list(lost.values()), index, columns)


def clustered(losses):
    """Mean and half of its 95 % interval, by the pairs of user and logging policy."""
    # Tests and runs of one pair share the user, the ranker's kind and most of the models' errors.
    of_pair = losses.groupby(["user", "logging"]).mean()
    n = len(of_pair)
    half = t.ppf(0.975, n - 1) * of_pair.std() / np.sqrt(n) if n > 1 else np.nan
    return pd.DataFrame({"mean": of_pair.mean(), "+-": half}).round(2)


def gains(losses):
    """What CMIP in front of a rule saves, and in how many of the pairs."""
    saved = pd.DataFrame(
        {f"{without} -> {with_cmip}": losses[without] - losses[with_cmip]
         for without, with_cmip in WITH_CMIP.items()}
    )  # fmt: skip
    of_pair = saved.groupby(["user", "logging"]).mean()
    return clustered(saved).assign(better=(of_pair > 0).sum(), pairs=len(of_pair))


def gains_by_user(losses):
    return pd.DataFrame(
        {f"{without} -> {with_cmip}": (losses[without] - losses[with_cmip]).groupby("user").mean()
         for without, with_cmip in WITH_CMIP.items()}
    ).round(2)  # fmt: skip


def report(results):
    n = len(results.groupby(CONFIGURATION))
    print(f"{n} configurations, {results['run'].nunique()} runs\n")
    print(f"(a) logged under NoisyOracle, tested under Uniform\n{figure_2(results)}\n")
    print(f"(b) adjusted R² of the ood perplexity, by trees\n{r_squared(results, of_trees)}\n")
    print(f"(b) the same by linear regression\n{r_squared(results, of_a_line)}\n")
    for column, name in (("cmip", "the classifier"), ("cmip_knn", "nearest neighbours")):
        lost = losses(results, column)
        print(f"(c) regret, 1,000 times the ood perplexity lost; CMIP by {name}")
        print(f"{clustered(lost)}\n")
        print(f"(c) saved by CMIP in front\n{gains(lost)}\n{gains_by_user(lost)}\n")
    seconds = results.drop_duplicates(["user", "logging", "run", "model"])
    print("seconds of a fit\n" + seconds.groupby("model", sort=False)["seconds"].mean().round(1)
          .to_string())  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    every = [f"{user}/{logging}" for user in USERS for logging in POLICIES]
    parser.add_argument("--configurations", nargs="+", default=every, choices=every)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS + FURTHER)
    parser.add_argument("--sessions", type=int, default=30_000, help="of lists of ten")
    parser.add_argument("--runs", type=int, nargs="+", default=[0, 1, 2], help="their seeds")
    parser.add_argument("--save", type=Path, help="CSV, written after each log")
    parser.add_argument("--load", type=Path, nargs="+", help="CSVs of earlier calls: tables only")
    args = parser.parse_args()
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.max_rows", 100)
    if args.load:
        report(pd.concat(map(pd.read_csv, args.load), ignore_index=True))
        return
    found = []
    for run, name in itertools.product(args.runs, args.configurations):
        start = time.perf_counter()
        found.append(measure(*name.split("/"), run, args.sessions, args.models))
        print(f"run {run}, {name}: {time.perf_counter() - start:.0f} s", flush=True)
        if args.save:
            pd.concat(found).to_csv(args.save, index=False)
    report(pd.concat(found, ignore_index=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
