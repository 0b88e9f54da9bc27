"""Are labels from clicks ever worse than the click rate, or than the ranker that served?

Position-based users and users who stop (DBN), strong production (trees on the labels of all
queries) and weak (of 2 % of them), lists by Plackett-Luce at two temperatures, 200 queries of
20 documents, the top 10 shown. nDCG@5 of the labels of the documents that were shown, ``_p`` with
the role ``production`` in the log, and for position-based users the share of documents whose
relevance lies in the 95 % interval.
"""

import numpy as np
import pandas as pd

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.propensity import relevance_labels
from skultr.simulation import (
    DBNUser,
    PlackettLucePolicy,
    PositionBasedUser,
    relevance_probability,
    simulate_clicks,
)

from .._documents import tree_scores
from .._study import Exhibit, Page, Study, grid

USERS = {"pbm": PositionBasedUser(), "dbn": DBNUser()}
SHARES = {"strong": 1.0, "weak": 0.02}
WORLDS = {"ranker": SHARES, "T": (0.1, 0.5), "sessions": (2_000, 20_000, 200_000)}
BY = ("user", *WORLDS)
PEERS, OURS = ["production", "click rate", "empirical"], ["PBM", "PBM_p", "labels", "labels_p"]
COVERS = tuple(f"cover {name}" for name in OURS)


def serve(cell, seed, users=USERS):
    """The log, its clicks, and the documents with their production scores."""
    docs = make_ltr(n_queries=200, n_features=20, random_state=seed)
    order = np.random.default_rng(seed).permutation(docs["qid"].unique())
    share = SHARES[cell["ranker"]]
    known = docs[docs["qid"].isin(order[: max(3, round(share * len(order)))])]
    docs = docs.assign(production=tree_scores(known, docs, 200 if share == 1 else 30))
    log, clicks, truth = simulate_clicks(
        docs.drop(columns="production"),
        n_sessions=cell["sessions"],
        policy=PlackettLucePolicy(temperature=cell["T"]),
        user=users[cell["user"]],
        random_state=seed,
        scores=docs["production"],
        features=False,
    )
    return log, clicks, truth, docs[["qid", "doc", "relevance", "production"]]


def labels(cell, settings, seed):
    """nDCG@5 of each kind of label, and the coverage of the intervals, of one log."""
    log, clicks, truth, docs = serve(cell, 10 + seed)
    served = log.merge(docs[["qid", "doc", "production"]], on=["qid", "doc"])
    of_users = cell["user"] == "pbm"
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
    scores = {
        "production": shown["production"],
        "click rate": shown["clicks"] / shown["impressions"],
        **{name: model.predict(rows) for name, model in models.items()},
        **{name: table["label"] for name, table in tables.items()},
    }
    grade, query = shown["relevance"].to_numpy(), shown["qid"].to_numpy()
    found = {
        name: ndcg_score(grade, np.asarray(score, float), qid=query, k=5)
        for name, score in scores.items()
    }
    found["regret"] = max(found[name] for name in PEERS) - found["labels"]
    if of_users:
        true = relevance_probability(grade)
        for name in ("labels", "labels_p"):
            found[f"cover {name}"] = coverage(tables[name], true)
        for name in ("PBM", "PBM_p"):
            table = models[name].documents_.loc[pd.MultiIndex.from_frame(rows)]
            found[f"cover {name}"] = coverage(table, true * examination[0])
    return [found]


def coverage(table, true):
    """Share of the intervals that hold the truth."""
    return np.mean((np.asarray(table["lower"]) <= true) & (true <= np.asarray(table["upper"])))


STUDY = Study("labels", labels, grid(user=USERS, **WORLDS), full_runs=3)
PAGE = Page(
    "studies/labels",
    "Labels from clicks",
    (
        Exhibit("quality", "nDCG@5", STUDY, BY, (*PEERS, *OURS, "regret")),
        Exhibit(
            "coverage",
            "Share of intervals that hold the truth",
            STUDY,
            BY,
            COVERS,
            cells=lambda cell: cell["user"] == "pbm",
            keep=lambda rows: rows[rows["user"] == "pbm"],
        ),
    ),
)
