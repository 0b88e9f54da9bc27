"""Ranking by purchases: with the curve of clicks, with a curve of their own, or by clicks.

A shop with 200 queries of 12 documents, 8 of them shown, by a ranker of noisy appeal, in nearly
the same order each time. Users click what appeals to them, among what they examine, and buy 8 % of
what they click, more of what other features tell. Measured are purchases
per examined document among the first three of 100 new queries, relative to the best order, and the
root mean square error of log examination over clicks.
"""

import time

import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.rankers import DLARanker, IPSRanker, LambdaMARTRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    relevance_probability,
    simulate_clicks,
)

from .._study import Page, measured

N_TRAIN, N_TEST, N_DOCS, N_SHOWN = 200, 100, 12, 8
STEEPNESS = 2.0
USER = PositionBasedUser(STEEPNESS)
PURCHASE = "outcome_purchase"
RANKERS = {
    "IPS": lambda: IPSRanker(random_state=0),
    "DLA": lambda: DLARanker(random_state=0),
    "LambdaMART": lambda: LambdaMARTRanker(random_state=0),
}
TARGETS = {
    "clicks": "click",
    "purchases, their own curve": None,
    "purchases, the curve of clicks": PURCHASE,
    "clicks + 20 purchases": {"click": 1.0, PURCHASE: 20.0},
}


def make_shop(seed):
    """Documents with ``appeal`` P(click | examined) and ``buys`` P(purchase | click)."""
    documents = make_ltr(
        n_queries=N_TRAIN + N_TEST, n_documents=N_DOCS, n_features=10, random_state=seed
    )
    rng = np.random.default_rng(seed)
    names = [name for name in documents if name.startswith("feature_")]
    taste = documents[names].to_numpy() @ rng.normal(size=len(names))
    taste = (taste - taste.mean()) / taste.std()
    return documents.assign(
        appeal=relevance_probability(documents["relevance"]),
        buys=0.24 / (1 + np.exp(1.5 - 1.5 * taste)),
    )


def serve(documents, n_sessions, seed):
    """The log of the shop, with clicks and purchases."""
    rng = np.random.default_rng(seed)
    training = documents[documents["qid"] < documents["qid"].unique()[N_TRAIN]]
    noise = rng.normal(0, 0.5, len(training))
    log, clicks, _ = simulate_clicks(
        training.drop(columns=["appeal", "buys"]),
        n_sessions=n_sessions,
        n_positions=N_SHOWN,
        scores=training["relevance"] + noise,
        policy=PlackettLucePolicy(temperature=0.3),
        user=USER,
        random_state=seed,
    )
    log["click"] = clicks
    buys = log[["qid", "doc"]].merge(documents[["qid", "doc", "buys"]])["buys"].to_numpy()
    log[PURCHASE] = (clicks == 1) & (rng.random(len(log)) < buys)
    return log.drop(columns="relevance", errors="ignore")


def fit(ranker, log, target):
    if target is None:  # as if the purchases were all there is
        return ranker.fit(log.drop(columns="click"), log[PURCHASE].to_numpy(dtype=float))
    return ranker.fit(log, target)


def value_at(ranker, documents, k=3):
    """Purchases per examination among the first k, relative to the best order."""
    new = documents[documents["qid"] >= documents["qid"].unique()[N_TRAIN]]
    features = new.drop(columns=["appeal", "buys", "relevance"])
    table = pd.DataFrame({"qid": new["qid"], "value": new["appeal"] * new["buys"]})
    table["rank"] = ranker.rank(features)
    best = table.groupby("qid")["value"].nlargest(k).sum()
    return table.loc[table["rank"] <= k, "value"].sum() / best


def error_of(ranker, log):
    """Root mean square error of log examination, relative to position 1, over clicks."""
    table = getattr(ranker, "examination_", None)
    if table is None:
        return np.nan
    found = np.log(table["examination"] / table["examination"].iloc[0])
    clicks = log.groupby("position")["click"].sum()
    gap = found + STEEPNESS * np.log(found.index)
    return float(np.sqrt(np.average(gap**2, weights=clicks)))


def outcomes(cell, settings, seed):
    """One row for each target."""
    documents = make_shop(seed)
    log = serve(documents, cell["sessions"], seed)
    for target, y in TARGETS.items():
        start = time.process_time()
        ranker = fit(RANKERS[cell["ranker"]](), log, y)
        yield {
            "learned from": target,
            "purchases": int(log[PURCHASE].sum()),
            "value": value_at(ranker, documents),
            "error": error_of(ranker, log),
            "CPU seconds": time.process_time() - start,
        }


PAGE = Page(
    "studies/outcomes",
    "Ranking by purchases",
    (
        measured(
            outcomes,
            "Purchases per examined document",
            ("value", "error", "purchases", "CPU seconds"),
            over={"sessions": (5_000, 40_000), "ranker": RANKERS},
            by=("learned from",),
            runs=6,
        ),
    ),
)
