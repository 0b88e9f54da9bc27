"""Are judgments from clicks better than OpenSearch's COEC and than the click rate?

Weak and strong production (trees on the labels of 2 % of the queries, or of all), three kinds of
users (position-based; those who stop, DBN; those who trust the top), lists by Plackett-Luce at two
temperatures; 200 queries of 20 documents, the top 10 shown. Judged are the documents that were
shown:

- ``ndcg@5``, ``ndcg@10``: order within queries.
- ``rho``: rank correlation with the true grades over all pairs, since grades are compared between
  queries.
- ``tau``: 16 rankers of different quality are compared by nDCG@10 as OpenSearch computes it (gain
  2^rating - 1, 0 without a rating); rank correlation of their order with the true one, by lower
  ends of labels as ratings (``labels``), as grades 0 to 3 (``grades``), and only as grades that an
  interval lies within (``within``).
- ``cover``: share of intervals that hold the true P(click) at the first position. ``share``: of
  pairs whose interval lies within one grade; ``right``: of these with the true one; ``over``: of
  pairs whose lower end has a higher grade than the truth.

``labels`` are ``relevance_labels(log, clicks, propensity=UBMModel(), interval=True)``, ``lower``
the lower ends of their intervals, ``EM`` labels with
``propensity=RegressionEMPropensity(relevance="embedding")``. 4 minutes of one core with 3 seeds.

``yardstick``: does the better of two rankings win? Worlds, rankings and judges are those of
``_yardstick_worlds``.
"""

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from skultr.click_models import UBMModel
from skultr.metrics import ndcg_score
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.simulation import TrustBiasUser, noisy_oracle_scores, relevance_probability

from .._study import Exhibit, Page, Study, grid
from . import _yardstick_worlds as yardsticks
from . import labels as shops

VARIANCES = np.linspace(0.2, 6.0, 16)  # of the noise of rankers that are compared
USERS = {**shops.USERS, "trust": TrustBiasUser()}
PEERS = ("COEC", "click rate")
MEASURES = ("ndcg@5", "ndcg@10", "rho", "tau")


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


def judgments(cell, settings, seed):
    """All measures of one log."""
    log, clicks, truth, docs = shops.serve(cell, 10 + seed, USERS)
    user = cell["user"]
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
        found[f"cover {name}"] = shops.coverage(of, true)
    found |= {"share": sure.mean(), "over": np.mean(lower > right)}
    found["right"] = np.mean((lower == right)[sure]) if sure.any() else np.nan
    for measure in MEASURES:
        best = max(found[f"{measure} {name}"] for name in PEERS)
        found[f"{measure} wins"] = found[f"{measure} labels"] - best
    return [found]


def ratings_of(labels):
    """Lower ends as ratings whose gain 2^rating - 1 is proportional to them, 7 at the best."""
    return np.log2(1 + 7 * np.clip(labels["lower"].to_numpy() / _best(labels), 0, 1))


def grades_of(labels, values):
    """Grades 0 to 3 of ``values`` on the scale of the labels, shape (n_pairs,)."""
    limits = _best(labels) * np.array([0.5, 2.0, 5.0]) / 7
    return np.searchsorted(limits, values, side="right")


def _best(labels):
    """Label of the best documents of most queries."""
    return labels.groupby("qid")["label"].max().quantile(0.95)


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


def yardstick(cell, settings, seed):
    """Verdicts of each judge on pairs of rankings of one log, where production ranks in a way."""
    yield from yardsticks.verdicts(cell, seed)


def _worlds(settings):
    """All worlds, or a dozen in minutes."""
    worlds = dict(yardsticks.WORLDS)
    worlds["examined"] = settings.size(quick=(10,), full=worlds["examined"])
    return grid(**worlds)(settings)


YARDSTICK = Study("yardstick", yardstick, _worlds, quick_runs=1, full_runs=3)
STUDY = Study("judgments", judgments, grid(user=USERS, **shops.WORLDS), full_runs=3)
RANKED = ("labels", "lower", "EM", *PEERS, "wins")
RATED = ("labels", "grades", "within", *PEERS, "wins")
PAGE = Page(
    "studies/judgments",
    "Judgments from clicks",
    (
        *(
            Exhibit(name, title, STUDY, shops.BY, tuple(f"{name} {of}" for of in compared))
            for name, title, compared in (
                ("ndcg@5", "Order within queries", RANKED),
                ("ndcg@10", "Order within queries", RANKED),
                ("rho", "Rank correlation with the grades", RANKED),
                ("tau", "Order of 16 rankers by these ratings", RATED),
            )
        ),
        Exhibit(
            "intervals",
            "What intervals hold, and the grades that are sure",
            STUDY,
            shops.BY,
            ("cover labels", "cover EM", "share", "right", "over"),
        ),
        Exhibit(
            "yardstick",
            "The better of two rankings wins",
            YARDSTICK,
            (*yardsticks.WORLDS, "pair", "differ"),
            tuple(
                f"{verdict} {judge}"
                for judge in yardsticks.JUDGES
                for verdict in ("right", "wrong", "size")
            ),
        ),
    ),
)
