"""Are labels from clicks ever worse than the click rate, or than the ranker that served?

Position-based users and users who stop (DBN), strong production (trees on the labels of all
queries) and weak (of 2 % of them), lists by Plackett-Luce at two temperatures, 200 queries of
20 documents, the top 10 shown. nDCG@5 of the labels of the documents that were shown, ``_p`` with
the role ``production`` in the log, and for position-based users the share of documents whose
relevance lies in the 95 % interval.

``intervals`` are those of few clicks: 100 queries of 10 documents whose log odds of relevance have
mean -1.2 and standard deviation 1.2, shown 2 to 40 times each, where production knows the log odds
up to a standard deviation of 1 (weak) or .2 (strong); with the true curve, one that ``PBMModel``
or ``InterventionHarvesting`` estimates from the log, and in other worlds: searches as frequent
as one over their rank, neighbours swapped in a tenth of the lists, one order, or documents of two
kinds (relevant with a chance of about .67 or .08). ``few`` are documents with fewer than five
examinations; ``over`` lie below their interval; ``exact`` is the width of Clopper & Pearson's
interval of clicks among examinations.

``shops`` are those of a shop: 1,500 queries of 40 products, searches by Zipf's law, the top 12
shown after noise, relevance that production's score explains in part, and a known curve.
"""

import numpy as np
import pandas as pd
from scipy.stats import beta

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.propensity import InterventionHarvesting, relevance_labels
from skultr.simulation import (
    DBNUser,
    PlackettLucePolicy,
    PositionBasedUser,
    relevance_probability,
    simulate_clicks,
)

from .._documents import tree_scores
from .._study import Exhibit, Page, Study, grid, measured

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


CURVE = 1 / np.arange(1, 11)
SOURCES = {
    "known": lambda: CURVE,
    "PBMModel": PBMModel,
    "harvested": lambda: InterventionHarvesting(n_bootstrap=0),
}
NOISE = {"weak": 1.0, "strong": 0.2}
IMPRESSIONS = (2, 4, 10, 40)


def small_log(rng, production, impressions, world):
    """Rows of a log of 100 queries of 10 documents, and their relevance, shape (100, 10)."""
    odds = rng.normal(-1.2, 1.2, (100, 10))
    if world == "two kinds":
        kinds = rng.beta(6, 3, odds.shape), rng.beta(1, 12, odds.shape)
        relevance = np.where(rng.random(odds.shape) < 0.3, *kinds)
        odds = np.log(relevance / (1 - relevance))
    score = odds + rng.normal(0, NOISE[production], odds.shape)
    traffic = 1 / np.arange(1.0, 101) ** (world == "zipf")
    query = rng.choice(100, 100 * impressions, p=traffic / traffic.sum())
    noise = 0.0 if world in ("swaps", "one order") else 0.5
    order = np.argsort(-score[query] + noise * rng.gumbel(size=(len(query), 10)), axis=1)
    if world == "swaps":
        moved = np.flatnonzero(rng.random(len(query)) < 0.1)
        first = rng.integers(0, 9, len(moved))
        above, below = order[moved, first], order[moved, first + 1]
        order[moved, first], order[moved, first + 1] = below, above
    relevance = 1 / (1 + np.exp(-odds))
    clicks = rng.random(order.shape) < relevance[query[:, None], order] * CURVE
    rows = {
        "qid": np.repeat(query, 10),
        "session": np.repeat(np.arange(len(query)), 10),
        "doc": order.ravel(),
        "position": np.tile(np.arange(1, 11), len(query)),
        "click": clicks.ravel().astype(int),
    }
    return pd.DataFrame(rows), relevance


def intervals(cell, settings, seed):
    """Coverage and width of the intervals of one log; nothing where the curve has gaps."""
    rng = np.random.default_rng(1_000 + seed)
    log, relevance = small_log(rng, cell["production"], cell["impressions"], cell["world"])
    try:
        table = relevance_labels(log, "click", propensity=SOURCES[cell["curve"]](), interval=True)
    except ValueError:  # no click compares a position
        return
    true = relevance[table["qid"], table["doc"]]
    clicks, examined = (table[name].to_numpy() for name in ("clicks", "effective_sample"))
    skips = np.maximum(examined - clicks, 0.0)
    exact = np.where(skips > 0, beta.ppf(0.975, clicks + 1, np.maximum(skips, 1e-9)), 1.0)
    exact -= np.nan_to_num(beta.ppf(0.025, clicks, skips + 1))
    few = examined < 5
    yield {
        "cover": coverage(table, true),
        "few": coverage(table[few], true[few]) if few.any() else np.nan,
        "over": np.mean(true < table["lower"]),
        "width": np.mean(table["upper"] - table["lower"]),
        "exact": np.mean(exact),
        "error": np.sqrt(np.mean((table["label"] - true) ** 2)),
    }


def shops(cell, settings, seed):
    """Coverage of the intervals of one shop's log, without and with the role ``production``."""
    rng = np.random.default_rng(seed)
    text, image, price = rng.gamma(3, 3, (3, 1_500, 40)) - 9
    brand, noise, known = rng.normal(0, (0.6, 0.3, 0.3), (1_500, 40, 3)).transpose(2, 0, 1)
    taste = 0.12 * text + 0.1 * image - 0.04 * price + brand + noise
    liked = taste - np.quantile(taste, 0.8, axis=1, keepdims=True)
    relevance = 0.02 + 0.9 / (1 + np.exp(-1.5 * liked))
    score = 0.12 * text + 0.03 * image - 0.03 * price + known
    traffic = 1 / (np.arange(1_500) + 5) ** 0.8
    query = rng.choice(1_500, cell["sessions"], p=traffic / traffic.sum())
    order = np.argsort(-score[query] - rng.gumbel(0, cell["noise"], (len(query), 40)), axis=1)
    shown = order[:, :12]
    place = query[:, None], shown
    curve = np.arange(1, 13) ** -0.9
    rows = {
        "qid": np.repeat(query, 12),
        "session": np.repeat(np.arange(len(query)), 12),
        "doc": shown.ravel(),
        "position": np.tile(np.arange(1, 13), len(query)),
        "click": (rng.random(shown.shape) < curve * relevance[place]).astype(int).ravel(),
        "production": score[place].ravel(),
    }
    served = pd.DataFrame(rows)
    found = {}
    for name, log in {"cover": served.drop(columns="production"), "cover _p": served}.items():
        table = relevance_labels(log, "click", propensity=curve, interval=True)
        found[name] = coverage(table, relevance[table["qid"], table["doc"]])
    yield found


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
        measured(
            intervals,
            "Intervals of few clicks",
            ("cover", "few", "over", "width", "exact", "error"),
            over={
                "world": ("own", "zipf", "swaps", "one order", "two kinds"),
                "curve": SOURCES,
                "production": NOISE,
                "impressions": IMPRESSIONS,
            },
            runs=20,
        ),
        measured(
            shops,
            "Intervals in a shop's log",
            ("cover", "cover _p"),
            over={"sessions": (2_000, 5_000, 25_000), "noise": (0.05, 0.25, 1.0)},
            runs=10,
        ),
    ),
)
