"""Are judgments from clicks better than OpenSearch's COEC and than the click rate?

By hand: ``python -m benchmarks.studies.judgments [--seeds 3] [--sessions 2000 20000 200000]``.

Weak and strong production (trees on the labels of 2 % of the queries, or of all), three kinds of
users (position-based; those who stop, DBN; those who trust the top), lists by Plackett-Luce at two
temperatures; 200 queries of 20 documents, the top 10 shown. Judged are the documents that were
shown:

- ``ndcg@5``, ``ndcg@10``: order within queries.
- ``rho``: rank correlation with the true grades over all pairs, since grades are compared between
  queries.
- ``tau``: 16 rankers of different quality are compared by nDCG@10 as OpenSearch computes it (gain
  2^rating - 1, 0 without a rating); rank correlation of their order with the true one, by what
  ``export_judgments`` writes: ratings for OpenSearch (``labels``), grades 0 to 3 (``grades``), and
  only grades that an interval lies within (``within``).
- ``cover``: share of intervals that hold the true P(click) at the first position. ``share``: of
  pairs whose interval lies within one grade; ``right``: of these with the true one; ``over``: of
  pairs whose lower end has a higher grade than the truth.

``labels`` are ``relevance_labels(log, clicks, propensity=UBMModel(), interval=True)``, ``lower``
the lower ends of their intervals, ``EM`` labels with
``propensity=RegressionEMPropensity(relevance="embedding")``. 4 minutes of one core with 3 seeds.
"""

import argparse
import itertools
import json
import warnings

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from skultr.click_models import UBMModel
from skultr.metrics import ndcg_score
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.serving import export_judgments
from skultr.simulation import TrustBiasUser, noisy_oracle_scores, relevance_probability

from .labels import USERS, serve

VARIANCES = np.linspace(0.2, 6.0, 16)  # of the noise of rankers that are compared
USERS["trust"] = TrustBiasUser()


def coec(log, clicks):
    """OpenSearch's clicks over expected clicks of each (qid, doc).

    The expected clicks of an impression are the click rate of the smallest ordinal that the pair
    ever had, whatever its own. Ordinals count from 0 here; with a base of 1 OpenSearch reads no
    rate of the last one, and all pairs that were only there get 0.
    """
    rows = log[["qid", "doc"]].assign(click=clicks, ordinal=log["position"] - 1)
    rate = rows.groupby("ordinal")["click"].mean()
    pairs = rows.groupby(["qid", "doc"]).agg(
        clicks=("click", "sum"), impressions=("click", "size"), lowest=("ordinal", "min")
    )
    expected = pairs["impressions"] * pairs["lowest"].map(rate)
    return (pairs["clicks"] / expected.where(expected > 0)).fillna(0.0).round(3)


def measure(seed, user, *world):
    """All measures of one log."""
    log, clicks, truth, docs = serve(seed, user, *world)
    table, by_em = (
        relevance_labels(log, clicks, propensity=source, interval=True)
        for source in (UBMModel(), RegressionEMPropensity(relevance="embedding"))
    )
    shown = table[["qid", "doc", "clicks", "impressions"]].merge(docs)
    rates = coec(log, clicks).loc[pd.MultiIndex.from_frame(shown[["qid", "doc"]])].to_numpy()
    scores = {
        "labels": table["label"].to_numpy(),
        "lower": table["lower"].to_numpy(),
        "EM": by_em["label"].to_numpy(),
        "COEC": rates,
        "click rate": (shown["clicks"] / shown["impressions"]).to_numpy(),
    }
    grade, query = shown["relevance"].to_numpy(), shown["qid"].to_numpy()
    found = {}
    for name, score in scores.items():
        for k in (5, 10):
            found[f"ndcg@{k} {name}"] = ndcg_score(grade, score, qid=query, k=k)
        found[f"rho {name}"] = spearmanr(grade, score).statistic
    lower, upper = (grades_of(table, table[end]) for end in ("lower", "upper"))
    right = grades_of(table, _clicks_at_the_top(user, grade, truth))
    ratings = {
        "labels": ratings_of(table),
        "grades": lower,
        "within": np.where(lower == upper, lower, 0),
        # A rating of 50 is a gain of 10^15: COEC of pairs whose expected clicks are nearly 0.
        "COEC": np.minimum(rates, 50.0),
        "click rate": scores["click rate"],
    }
    compare = _Rankers(docs, shown)
    found |= {f"tau {name}": compare(rating) for name, rating in ratings.items()}
    true, sure = _clicks_at_the_top(user, grade, truth), lower == upper
    for name, of in {"labels": table, "EM": by_em}.items():
        found[f"cover {name}"] = np.mean((of["lower"] <= true) & (true <= of["upper"]))
    found |= {"share": sure.mean(), "over": np.mean(lower > right)}
    found["right"] = np.mean((lower == right)[sure]) if sure.any() else np.nan
    return found


def ratings_of(labels):
    """What OpenSearch reads, shape (n_pairs,)."""
    body = json.loads(export_judgments(labels, "opensearch"))
    return np.array([float(r["rating"]) for of in body["judgmentRatings"] for r in of["ratings"]])


def grades_of(labels, values):
    """Grades 0 to 3 of ``values`` on the scale of the labels, shape (n_pairs,)."""
    text = export_judgments(labels.assign(lower=values), "trec")
    return np.array([int(line.split()[3]) for line in text.splitlines()])


def _clicks_at_the_top(user, grade, truth):
    relevance = relevance_probability(grade)
    if user == "trust":
        alpha, beta = USERS[user].affine_at(1)
        return alpha[0] * relevance + beta[0]
    return relevance * (truth.examination[0] if user == "pbm" else 1.0)


class _Rankers:
    """Rankers of different quality, compared by ratings."""

    def __init__(self, docs, shown):
        self.query = docs["qid"].to_numpy()
        pairs = pd.MultiIndex.from_frame(docs[["qid", "doc"]])
        self.place = pairs.get_indexer(pd.MultiIndex.from_frame(shown[["qid", "doc"]]))
        self.scores = [
            noisy_oracle_scores(docs, variance=variance, random_state=seed)
            for seed, variance in enumerate(VARIANCES)
        ]
        self.true = self._quality(docs["relevance"].to_numpy())

    def __call__(self, ratings):
        of_all = np.zeros(len(self.query))
        of_all[self.place] = ratings
        return kendalltau(self.true, self._quality(of_all)).statistic

    def _quality(self, ratings):
        return [ndcg_score(ratings, score, qid=self.query, k=10) for score in self.scores]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sessions", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.1, 0.5])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    pd.set_option("display.width", 250, "display.max_columns", 40)
    rows, names = [], ["user", "production is", "T", "sessions"]
    for cell in itertools.product(USERS, ["strong", "weak"], given.temperatures, given.sessions):
        logs = pd.DataFrame([measure(10 + seed, *cell) for seed in range(given.seeds)])
        better = {
            f"{measure} wins": logs[f"{measure} labels"]
            - logs[[f"{measure} COEC", f"{measure} click rate"]].max(axis=1)
            for measure in ("ndcg@5", "ndcg@10", "rho", "tau")
        }
        errors = {f"{name} error": of.std() / len(of) ** 0.5 for name, of in better.items()}
        means = {**logs.mean(), **pd.DataFrame(better).mean(), **errors}
        rows.append({**dict(zip(names, cell, strict=True)), **means})
    table = pd.DataFrame(rows)
    for measured in (
        ["ndcg@5"],
        ["ndcg@10"],
        ["rho"],
        ["tau"],
        ["cover", "share", "right", "over"],
    ):
        columns = [name for name in table if name.split()[0] in measured]
        print(table[[*names, *columns]].round(3).to_string(index=False), end="\n\n")
    print("least and mean lead of labels over the better of COEC and click rate")
    wins = [name for name in table if name.endswith("wins")]
    print(table[wins].agg(["min", "mean"]).round(3).to_string())


if __name__ == "__main__":
    main()
