"""Does the likelihood of held-out clicks find the ranker that annotation would, and how surely?

    python -m benchmarks studies/click_likelihood [--seeds 2] [--coverage 200]

Ten logs: five kinds of production (1 % of the labels; trees on 5 % or on all of them), temperature
and number of sessions, and ``--seeds`` of each. Users examine position k with probability 1 / k.
Nine rankers learn from half of the queries, and each scorer judges them by the clicks of the other
half: ClickLikelihoodScorer (as it is; on scores standardised by query; and on a curve that
InterventionHarvesting estimates), IPSScorer (as it is; self-normalised; clipped) and raw clicks.
The truth is nDCG@10 on 500 further, annotated queries. For each scorer:

- ``picks best``: share of logs in which its pick is the ranker of best nDCG, or within .002;
- ``regret``: the nDCG that its pick loses to that ranker, mean and largest;
- ``rho``: Spearman's correlation of its values with nDCG, mean;
- over pairs of rankers whose nDCG differs by more than .01, the difference of their values in the
  direction of the truth divided by its standard deviation over groups of queries: the median, and
  the shares of pairs above 2 (surely right), below 0 (wrong) and below -2 (surely wrong);
- ``noise``: median of that standard deviation over the absolute difference.

Before that, the share of 95 % intervals that hold the value of many queries. About 3 minutes.
"""

import argparse
import itertools
import warnings

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.frozen import FrozenEstimator

from skultr import DLARanker
from skultr.datasets import make_ltr
from skultr.metrics import ClickLikelihoodScorer, IPSScorer, ndcg_score
from skultr.propensity import InterventionHarvesting
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    production_scores,
    simulate_clicks,
)

from .._documents import tree_scores

POSITIONS = np.arange(1, 21)
EXAMINATION = 1.0 / POSITIONS
#: Share of the labels that production knows, temperature, sessions.
KINDS = [
    (0.01, 0.1, 3_000),
    (0.01, 1.0, 6_000),
    (0.05, 0.1, 3_000),
    (0.05, 1.0, 6_000),
    (1.0, 0.1, 3_000),
]
N_GROUPS = 15


def make_log(seed, known, temperature, n_sessions, n_queries=300):
    """Two halves of a log, by query, and the annotated documents of 500 further queries."""
    documents = make_ltr(n_queries=n_queries + 500, n_features=20, random_state=seed)
    query = documents["qid"].astype("category").cat.codes.to_numpy()
    train, test = documents[query < n_queries], documents[query >= n_queries]
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(temperature=temperature),
        n_positions=20,
        user=PositionBasedUser(1.0),
        scores=_production(train, known, seed),
        random_state=seed,
    )
    ids = np.random.default_rng(seed).permutation(train["qid"].unique())
    held = log["qid"].isin(ids[: len(ids) // 2]).to_numpy()
    return (log[~held], clicks[~held]), (log[held], clicks[held]), test


def _production(train, known, seed):
    if known < 0.05:
        return production_scores(train, fraction=known, random_state=seed)
    ids = np.random.default_rng(seed).permutation(train["qid"].unique())
    known = train[train["qid"].isin(ids[: round(known * len(ids))])]
    return tree_scores(known, train)


def rankers():
    trees = {"num_leaves": 7, "random_state": 0}
    return {
        "naive": NaiveRanker(random_state=0),
        "naive trees": LambdaMARTRanker(propensity=np.ones(20), **trees),
        "DLA": DLARanker(random_state=0),
        **{
            f"IPS {clip}": IPSRanker(propensity=EXAMINATION, clip=clip, random_state=0)
            for clip in (None, 0.1, 0.3)
        },
        **{
            f"trees {clip}": LambdaMARTRanker(propensity=EXAMINATION, clip=clip, **trees)
            for clip in (None, 0.1, 0.3)
        },
    }


class Stored:
    """Predictions that were made before."""

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def predict(self, X):
        return self.scores


def scorers(estimated):
    return {
        "likelihood": ClickLikelihoodScorer(propensity=EXAMINATION),
        "likelihood, standardised": ClickLikelihoodScorer(propensity=EXAMINATION),
        "likelihood, estimated curve": ClickLikelihoodScorer(propensity=estimated),
        "IPS": IPSScorer(propensity=EXAMINATION),
        "IPS, self-normalised": IPSScorer(propensity=EXAMINATION, normalize=True),
        "IPS, clip .1": IPSScorer(propensity=EXAMINATION, clip=0.1),
        "raw clicks": IPSScorer(propensity=np.ones(20)),
    }


def values(scorer, scores, X, clicks, group):
    """Value of a ranker, and what each group of queries adds to its numerator and denominator."""
    found = scorer.estimate(Stored(scores), X, clicks)
    parts, sizes = np.empty(N_GROUPS), np.empty(N_GROUPS)
    fixed = scorer
    if isinstance(scorer, ClickLikelihoodScorer):
        if not found.scale:  # all gains are 0
            return found.value, np.zeros(N_GROUPS), np.ones(N_GROUPS)
        fixed = ClickLikelihoodScorer(propensity=scorer.propensity, scale=found.scale)
    for g in range(N_GROUPS):
        rows = group == g
        part = fixed.estimate(Stored(scores[rows]), X[rows], clicks[rows])
        # Sessions of the group for IPS, clicks for the others: what their means are over.
        over_clicks = isinstance(scorer, ClickLikelihoodScorer)
        sizes[g] = part.n_clicks if over_clicks else X["session"][rows].nunique()
        if getattr(scorer, "normalize", False):
            examined = EXAMINATION[X["position"][rows].to_numpy(dtype=int) - 1]
            sizes[g] = (clicks[rows] / examined).sum()
        parts[g] = part.value * sizes[g]
    return found.value, parts, sizes


def standardised(scores, qid):
    by_query = pd.Series(scores).groupby(np.asarray(qid))
    return ((scores - by_query.transform("mean")) / by_query.transform("std")).fillna(0).to_numpy()


def study(kind, seed):
    """One row for each scorer."""
    (X, clicks), (held, held_clicks), test = make_log(seed, *kind)
    harvested = FrozenEstimator(InterventionHarvesting(n_bootstrap=0).fit(X, clicks))
    group = pd.factorize(held["qid"])[0] % N_GROUPS
    truth, held_scores = {}, {}
    for name, ranker in rankers().items():
        ranker.fit(X, clicks)
        held_scores[name] = ranker.predict(held)
        truth[name] = ndcg_score(test["relevance"], ranker.predict(test), qid=test["qid"], k=10)
    truth = pd.Series(truth)
    rows = []
    for label, scorer in scorers(harvested).items():
        found = {}
        for name, scores in held_scores.items():
            if label.endswith("standardised"):
                scores = standardised(scores, held["qid"])
            found[name] = values(scorer, scores, held, held_clicks, group)
        value = pd.Series({name: of[0] for name, of in found.items()})
        regret = float(truth.max() - truth[value.idxmax()])
        rows.append(
            {
                "kind": kind,
                "seed": seed,
                "scorer": label,
                "regret": regret,
                "best": regret <= 0.002,
                "rho": spearmanr(value, truth).statistic,
                "pairs": np.array(list(_pairs(found, truth))),
            }
        )
    picks = {row["scorer"]: round(row["regret"], 3) for row in rows}
    print(f"{kind} seed {seed}, nDCG {truth.min():.3f} to {truth.max():.3f}: {picks}", flush=True)
    return rows


def _pairs(found, truth):
    """Difference in the direction of the truth, and its standard deviation, of clear pairs."""
    for a, b in itertools.combinations(found, 2):
        if abs(truth[a] - truth[b]) <= 0.01:
            continue
        (value_a, part_a, size_a), (value_b, part_b, size_b) = found[a], found[b]
        error = (part_a - value_a * size_a) / size_a.sum()
        error -= (part_b - value_b * size_b) / size_b.sum()
        deviation = np.sqrt(N_GROUPS / (N_GROUPS - 1) * (error**2).sum())
        yield (value_a - value_b) * np.sign(truth[a] - truth[b]), deviation


def summary(rows):
    table = {}
    for label, of in pd.DataFrame(rows).groupby("scorer", sort=False):
        difference, deviation = np.concatenate([pairs for pairs in of["pairs"] if len(pairs)]).T
        t = difference / np.maximum(deviation, 1e-12)
        table[label] = {
            "picks best": of["best"].mean(),
            "regret": of["regret"].mean(),
            "largest": of["regret"].max(),
            "rho": of["rho"].mean(),
            "median t": np.median(t),
            "t > 2": np.mean(t > 2),
            "t < 0": np.mean(t < 0),
            "t < -2": np.mean(t < -2),
            "noise": np.median(deviation / np.maximum(abs(difference), 1e-12)),
        }
    return pd.DataFrame(table).T


def coverage(n_repeats):
    """Share of intervals from 100 queries that hold the value of 3,000."""
    documents = make_ltr(n_queries=3_000, n_features=20, random_state=99)
    old = documents["relevance"] + np.random.default_rng(0).normal(0, 2, len(documents))
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=60_000,
        policy=PlackettLucePolicy(temperature=1.0),
        n_positions=10,
        user=PositionBasedUser(1.0),
        scores=old.to_numpy(),
        random_state=0,
    )
    noise = pd.DataFrame(
        np.random.default_rng(1).normal(size=(len(documents), 2)), index=documents["doc"]
    ).loc[log["doc"]]
    score = log["relevance"].to_numpy() + 2 * noise[0].to_numpy()
    other = log["relevance"].to_numpy() + 3 * noise[1].to_numpy()
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    code = pd.factorize(log["qid"])[0]
    rng, held = np.random.default_rng(0), {"value": [], "difference": []}
    whole = {
        "value": scorer.estimate(Stored(score), log, clicks),
        "difference": scorer.estimate(Stored(score), log, clicks, baseline=Stored(other)),
    }
    for _ in range(n_repeats):
        rows = np.isin(code, rng.choice(code.max() + 1, 100, replace=False))
        for name, baseline in (("value", None), ("difference", Stored(other[rows]))):
            found = scorer.estimate(
                Stored(score[rows]), log[rows], clicks[rows], baseline=baseline
            )
            error = found.value - whole[name].value
            held[name].append((error, found.standard_error))
    for name, of in held.items():
        error, deviation = np.array(of).T
        share = np.mean(abs(error) < 1.96 * deviation)
        print(
            f"{name} of 3,000 queries {whole[name].value:.4f}; of 100: mean error "
            f"{error.mean():.4f}, standard deviation {error.std():.4f}, mean standard error "
            f"{deviation.mean():.4f}, 95 % intervals that hold it {share:.3f}"
        )


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--coverage", type=int, default=200)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    coverage(options.coverage)
    cells = itertools.product(KINDS, range(options.seeds))
    rows = [row for kind, seed in cells for row in study(kind, seed)]
    print(summary(rows).round(3).to_string())
