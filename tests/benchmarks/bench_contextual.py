"""Position x 5,000 context types: does merging recover what the log alone does not determine?

    python tests/benchmarks/bench_contextual.py [--seeds 5] [--queries 12500] [--contexts 5000]

Every query is served by the production ranker, a share of them (--twice) a second time by a noisy
one, and every query-document pair has a context type that multiplies its chance of being examined
(contextual position-based model). Nearly every (position, context) is a component of its own.
Three ways to one relevance a document, then one student for all: click rates as they are, dual
learning, and dual learning after merging. Prints training MCC and click error, and nDCG on
queries that were never served, means and standard deviations over seeds.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

from skultr import DLARanker, IdentifiabilityRepair
from skultr.datasets import make_ltr
from skultr.identifiability import IdentifiabilityGraph
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import DistilledRanker
from skultr.simulation import (
    ContextualPositionBasedUser,
    production_scores,
    relevance_probability,
)

BIAS = ["position", "context"]


def world(seed, n_queries, n_contexts, n_impressions, twice):
    """A log with one row a (list, position), click rates, the truth, and held-out documents."""
    rng = np.random.default_rng(seed)
    documents = make_ltr(n_queries, n_documents=12, n_features=30, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.2, random_state=seed)
    train = train.reset_index(drop=True)
    scores = production_scores(train, fraction=0.01, random_state=seed)
    user = ContextualPositionBasedUser(n_contexts=n_contexts, random_state=seed)
    context = rng.integers(n_contexts, size=len(train))
    queries = train["qid"].unique()
    again = rng.choice(queries, round(twice * len(queries)), replace=False)
    lists = [served(train, scores, train["qid"].notna(), 0)]
    noisy = scores + rng.gumbel(scale=0.3, size=len(scores))
    lists.append(served(train, noisy, train["qid"].isin(again), 1))
    rows = pd.concat(lists)
    relevance = relevance_probability(train["relevance"])
    examination = user.examination_table(10)
    probability = (
        relevance[rows["row"]] * examination[context[rows["row"]], rows["position"].to_numpy() - 1]
    )
    rate = rng.binomial(n_impressions, probability) / n_impressions
    log = train.iloc[rows["row"]].reset_index(drop=True)
    log = log.assign(
        position=rows["position"].to_numpy(),
        session=rows["list"].to_numpy(),
        context=context[rows["row"]],
        impressions=n_impressions,
    )
    vectors = {
        (position, kind): user.context_vectors[kind]
        for position in range(1, 11)
        for kind in range(n_contexts)
    }
    return log, rate, relevance[rows["row"]], probability, vectors, test


def served(train, scores, chosen, number):
    """The ten best documents of each chosen query."""
    table = pd.DataFrame({"qid": train["qid"], "score": scores, "row": np.arange(len(train))})
    table = table[chosen.to_numpy()].sort_values(["qid", "score"], ascending=[True, False])
    table["position"] = table.groupby("qid").cumcount() + 1
    table["list"] = number
    return table[table["position"] <= 10]


def evaluate(log, rate, relevance, probability, test, seed):
    """Training MCC and click error of an embedding, and nDCG of its student on new queries."""
    features = [name for name in log if name.startswith("feature")]
    teacher = DLARanker(relevance="embedding", random_state=seed)
    student = LGBMRegressor(n_estimators=200, num_leaves=63, learning_rate=0.1, verbosity=-1)
    start = time.perf_counter()
    ranker = DistilledRanker(teacher, student, random_state=seed).fit(log, rate)
    seconds = time.perf_counter() - start
    # The student's teacher knows documents by number, in the order of their ids.
    codes = np.unique(log["doc"], return_inverse=True)[1]
    rows = log[features].to_numpy()
    learned, unique = ranker.teacher_.predict(rows, doc=codes), ~log["doc"].duplicated()
    expected = ranker.teacher_.predict_click(rows, doc=codes, bias=log["bias"])
    score = ranker.predict(test[features])
    return {
        "MCC": np.corrcoef(learned[unique], relevance[unique])[0, 1],
        "click MSE": np.mean((expected - probability) ** 2),
        "nDCG@5": ndcg_score(test["relevance"], score, qid=test["qid"], k=5),
        "nDCG@10": ndcg_score(test["relevance"], score, qid=test["qid"], k=10),
        "seconds": seconds,
    }


def run(seed, args):
    log, rate, relevance, probability, vectors, test = world(
        seed, args.queries, args.contexts, args.impressions, args.twice
    )
    graph = IdentifiabilityGraph.from_log(log.assign(click=rate * log["impressions"]), bias=BIAS)
    start = time.perf_counter()
    repair = IdentifiabilityRepair(BIAS, bias_features=vectors).fit(log, rate)
    merged = repair.transform(log)
    seconds = time.perf_counter() - start
    print(
        f"seed {seed}: {log.groupby(['qid', 'session']).ngroups} lists, {graph.n_factors} factors "
        f"in {graph.n_components} components; {merged['bias'].nunique()} after merging "
        f"({seconds:.1f} s)",
        flush=True,
    )
    plain = log.drop(columns="context")
    codes = log["position"] * args.contexts + log["context"]
    logs = {
        "no debias": plain.assign(bias=0),
        "DLA": plain.assign(bias=codes),
        "DLA, position only": plain.assign(bias=log["position"]),
        "DLA + merging": merged,
    }
    for name, each in logs.items():
        yield name, evaluate(each, rate, relevance, probability, test, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=12_500, help="a fifth is held out")
    parser.add_argument("--twice", type=float, default=1.0, help="share of queries served twice")
    parser.add_argument("--contexts", type=int, default=5_000)
    parser.add_argument("--impressions", type=int, default=100_000, help="of every list")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(args.seeds):
        for name, values in run(seed, args):
            rows.append({"method": name, **values})
            print("  ", name, {key: round(float(v), 5) for key, v in values.items()}, flush=True)
    table = pd.DataFrame(rows).groupby("method", sort=False)
    print("\nmean over seeds\n", table.mean().round(4).to_string())
    print("\nstandard deviation\n", table.std().round(4).to_string())


if __name__ == "__main__":
    main()
