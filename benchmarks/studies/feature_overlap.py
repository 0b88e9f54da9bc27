"""Does ``feature_overlap`` foresee that dual learning errs in its examination by more than 0.1?

100 small logs of five kinds, and 20 of a sixth, whose production knew more than the features.
Shown are the area under the ROC curve without and with the sixth kind, its bootstrap interval, and
what lies below some bounds.
"""

import time

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from skultr import DLARanker
from skultr.datasets import make_ltr
from skultr.identifiability import feature_overlap
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    UniformPolicy,
    production_scores,
    simulate_clicks,
)

from .._documents import tree_scores
from .._study import Exhibit, Page, Study

KINDS = ["disjoint", "partly", "overlapping", "weak production", "strong production"]
#: Production that was trained on the labels of the documents that it serves.
KNEW_MORE = "production that knew more"
N_LOGS, N_KNEW_MORE = 100, 20
#: Queries with labels that a strong production ranker was trained on, beside those served.
N_LABELLED = 800
POLICIES = {
    "fixed": DeterministicPolicy(),
    "T 0.1": PlackettLucePolicy(temperature=0.1),
    "T 1": PlackettLucePolicy(temperature=1.0),
    "random": UniformPolicy(),
}
#: Positions with fewer clicks do not count: their examination is noise.
LEAST_CLICKS = 100
ERROR = 0.1


# The logs -----------------------------------------------------------------------------
def make_log(seed):
    """A log, its clicks, its true examination, and what it is."""
    rng = np.random.default_rng(seed)
    n_positions, eta = int(rng.choice([5, 8, 10])), float(rng.choice([0.5, 1.0, 1.5]))
    about = {
        "seed": seed,
        "kind": KINDS[seed % len(KINDS)] if seed < N_LOGS else KNEW_MORE,
        "n_positions": n_positions,
        "eta": eta,
        "n_queries": int(rng.choice([100, 150, 200])),
    }
    examination = 1 / np.arange(1, n_positions + 1) ** eta
    make = _production if "production" in about["kind"] else _pages
    log, clicks = make(about, examination, rng)
    return log, clicks, examination, about


def _pages(about, examination, rng):
    """One order for each query; features that tell the position, in part, or not."""
    shape = about["n_queries"], about["n_positions"]
    n_impressions, width = int(rng.choice([100, 300])), int(rng.choice([2, 4, 10]))
    x = rng.normal(size=(*shape, width))
    relevance = 1 / (1 + np.exp(-1.5 * x[..., 0] + 1))
    position = np.arange(shape[1])
    if about["kind"] == "partly" and rng.random() < 0.5:
        # A feature that follows the position, with noise.
        about["shift"] = float(10 ** rng.uniform(-0.5, 1.3))
        leak = about["shift"] * position / shape[1] + rng.normal(size=shape)
        features = np.concatenate([x, leak[..., None]], axis=2)
    else:
        # A block of columns for each position, and an indicator, or a block drawn at random.
        share = {"disjoint": 1.0, "overlapping": 0.0}.get(about["kind"])
        about["share"] = float(rng.choice([0.5, 0.8, 0.9])) if share is None else share
        random = rng.integers(0, shape[1], shape)
        block = np.eye(shape[1])[np.where(rng.random(shape) < about["share"], position, random)]
        blocks = (block[..., None] * x[..., None, :]).reshape(*shape, -1)
        features = np.concatenate([blocks, block], axis=2)
    about["n_features"], n_rows = features.shape[2], relevance.size
    log = pd.DataFrame(features.reshape(n_rows, -1)).add_prefix("feature_")
    log["qid"] = np.repeat(np.arange(shape[0]), shape[1])
    log["doc"], log["position"] = np.arange(n_rows), np.tile(position + 1, shape[0])
    log["impressions"] = n_impressions
    clicks = rng.binomial(n_impressions, relevance * examination) / n_impressions
    return log, clicks.ravel()


def _production(about, examination, rng):
    """Documents of ``make_ltr``, ordered by a ranker that learned from few or from many labels."""
    policy = str(rng.choice(list(POLICIES), p=[0.4, 0.3, 0.2, 0.1]))
    about |= {"policy": policy, "n_features": int(rng.choice([5, 20, 60]))}
    documents = make_ltr(
        n_queries=about["n_queries"] + N_LABELLED,
        n_documents=about["n_positions"] * int(rng.choice([1, 2])),
        n_features=about["n_features"],
        random_state=about["seed"],
    )
    served = documents["qid"] < about["n_queries"]
    labelled, documents = documents[~served], documents[served].reset_index(drop=True)
    if about["kind"] == "weak production":
        scores = production_scores(documents, fraction=0.02, random_state=about["seed"])
    else:
        labelled = documents if about["kind"] == KNEW_MORE else labelled
        scores = tree_scores(labelled, documents)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=20_000 if policy == "fixed" else 5_000,
        policy=POLICIES[policy],
        n_positions=about["n_positions"],
        user=PositionBasedUser(about["eta"]),
        scores=scores,
        random_state=about["seed"],
    )
    return log, clicks.astype(float)


# One row ------------------------------------------------------------------------------
def overlap(cell, settings, seed):
    """Overlap of a log, and the error of dual learning on it, the mean of two seeds."""
    log, clicks, examination, about = make_log(seed)
    start = time.perf_counter()
    result = feature_overlap(log)
    about |= {"overlap": result.overlap, "least_pair": result.pairs["overlap"].min()}
    about["seconds_overlap"] = time.perf_counter() - start
    errors = []
    for random_state in range(2):
        ranker = DLARanker(examination="network", random_state=random_state).fit(log, clicks)
        table = ranker.examination_
        curve = table["examination"].to_numpy() / table["examination"].iloc[0]
        error = np.abs(curve - examination / examination[0])
        errors.append(float(error[table["clicks"].to_numpy() >= LEAST_CLICKS].max()))
    about |= {"error": float(np.mean(errors)), "errs": float(np.mean(errors) > ERROR)}
    return [about | {"seconds": time.perf_counter() - start}]


# The answer ---------------------------------------------------------------------------
def areas(rows):
    """Area under the ROC curve, and its 95 % bootstrap interval over logs."""
    five = rows[rows["kind"] != KNEW_MORE]
    made = five[~five["kind"].str.contains("production")]
    found = []
    for name, part in {"five kinds": five, "made features": made, "six kinds": rows}.items():
        samples = (part.sample(frac=1, replace=True, random_state=seed) for seed in range(1_000))
        low, high = np.nanquantile([area(some) for some in samples], [0.025, 0.975])
        found.append({"logs": name, "area": area(part), "from": low, "to": high, "seed": 0})
    return pd.DataFrame(found)


def area(table):
    several = table["errs"].nunique() > 1
    return roc_auc_score(table["errs"], -table["overlap"]) if several else np.nan


def below(rows):
    """Whether logs err, by the bound that their overlap is below."""
    bounds = (0.05, 0.1, 0.15, 0.2, 0.3, 1.01)
    five = rows[rows["kind"] != KNEW_MORE]
    return pd.concat([five[five["overlap"] < b].assign(**{"overlap below": b}) for b in bounds])


STUDY = Study("overlap", overlap, quick_runs=12, full_runs=N_LOGS + N_KNEW_MORE)
PAGE = Page(
    "studies/feature_overlap",
    "Does feature_overlap foresee that dual learning errs?",
    (
        Exhibit("kinds", "By kind", STUDY, ("kind",), ("overlap", "error", "errs")),
        Exhibit(
            "areas",
            "Area under the ROC curve",
            STUDY,
            ("logs",),
            ("area", "from", "to"),
            keep=areas,
        ),
        Exhibit(
            "below", "Share that errs", STUDY, ("overlap below",), ("errs", "error"), keep=below
        ),
    ),
)
