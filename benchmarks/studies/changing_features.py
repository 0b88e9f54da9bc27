"""Rankers where features of a document change between impressions.

``worlds``: one feature that decides the clicks and is drawn anew for each page (``price``,
``stock``), each day (``day price``), or never; or changes without effect (``jitter``). 150 queries
of 16 documents, pages of 8, users of the position-based model.

``shop``: relevance by quality, price of the day, stock, the user's affinity to one of 80 brands,
and the brand. 200 queries of 40 documents, pages of 10, a quarter of the users look at a second
page. In ``active`` users differ in how often they click, and those who click often have a higher
affinity to all. In ``strong`` production depends 2.5 times as much on the same features.

nDCG on the truth of fresh candidates, in the shop of other queries. LightGBM is its ranker with
debiasing by position (``lambdarank``, 100 trees).
"""

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.special import expit

from skultr.metrics import ndcg_score
from skultr.rankers import DLARanker, EnsembleRanker, IPSRanker, LambdaMARTRanker

from .._study import Page, measured

#: Effect of the changing feature on the logit of relevance.
EFFECTS = {"price": -1.5, "stock": 2.5, "day price": -1.0, "static": -1.0, "jitter": 0.8}
N_DAYS = 20
#: Production's weight on the features of relevance, and the spread of users' activity.
SHOPS = {"plain": (1.0, 0.0), "active": (1.0, 0.8), "strong": (2.5, 0.0)}
#: Examination of positions 1 to 20; 11 to 20 are the second page.
OF_SHOP = np.append(np.arange(1, 11) ** -0.9, 0.6 * np.arange(1, 11) ** -0.7)


def make_world(kind, n_pages, seed, n_queries=150, n_docs=16, n_shown=8):
    """A log, candidates with the feature of another moment, and their relevance."""
    rng = np.random.default_rng(seed)
    shown, good = rng.normal(size=(2, n_queries, n_docs))
    query = rng.choice(n_queries, n_pages, p=rng.dirichlet(np.full(n_queries, 2.0)))
    own = rng.normal(size=(n_queries, n_docs))
    moment = rng.normal(size=(n_pages, n_docs))
    if kind == "day price":
        day = np.arange(n_pages) * N_DAYS // n_pages
        moment = own[query] + rng.normal(size=(N_DAYS, n_queries, n_docs))[day, query]
        later = own + rng.normal(size=own.shape)
    elif kind == "price":
        later = own
    elif kind == "stock":
        moment, later = (rng.random(of.shape) < 0.7 for of in (moment, own))
    elif kind == "static":
        moment, later = own[query], own
    else:  # the value of a document, measured with an error that nobody sees
        moment, later = own[query] + 1e-4 * moment, own
    relevance = 1.2 * good + 0.4 * shown - 1
    score = 0.8 * shown[query] + 0.7 * rng.gumbel(size=moment.shape)
    order = np.argsort(-score, axis=1)[:, :n_shown]
    page = np.arange(n_pages)[:, None]
    chance = expit(relevance[query[:, None], order] + EFFECTS[kind] * moment[page, order])
    clicks = rng.random(order.shape) < chance / np.arange(1, n_shown + 1)
    log = _rows(query, order, {"shown": shown[query], "good": good[query], "value": moment})
    log = log.assign(click=clicks.ravel().astype(int))
    every = np.tile(np.arange(n_docs), (n_queries, 1))
    features = {"shown": shown, "good": good, "value": later}
    candidates = _rows(np.arange(n_queries), every, features)
    return log, candidates, expit(relevance + EFFECTS[kind] * later).ravel()


def make_shop(kind, n_pages, seed):
    """A log, and candidates of other queries with their relevance."""
    rng = np.random.default_rng(seed)
    production, activity = SHOPS[kind]
    query, features, relevance = _catalogue(rng, n_pages, 200, activity)
    signal = 0.5 * features["quality"] + 0.5 * features["text"]
    signal = signal - 0.3 * features["price"] + 0.3 * features["affinity"]
    score = production * signal + 0.8 * rng.gumbel(size=relevance.shape)
    order = np.argsort(-score, axis=1)[:, :20]
    page = np.arange(n_pages)[:, None]
    clicks = rng.random(order.shape) < OF_SHOP * relevance[page, order]
    log = _rows(query, order, features).assign(click=clicks.ravel().astype(int))
    looks_on = rng.random(n_pages) < 0.25
    log = log[(log["position"] <= 10) | looks_on[log["session"]]]
    query, features, relevance = _catalogue(rng, 300, 300, activity)
    every = np.tile(np.arange(40), (300, 1))
    return log, _rows(query, every, features), relevance.ravel()


def _catalogue(rng, n_pages, n_queries, activity, n_docs=40, n_users=500):
    """Query of each page, features of its documents at that moment, and their relevance."""
    taste = np.random.default_rng(99)  # brands are the same in the log and in the test
    value, looks = taste.normal(0, 0.5, 80), taste.normal(size=(80, 4))
    popular = taste.dirichlet(np.full(80, 0.3))
    quality, text, base = rng.normal(size=(3, n_queries, n_docs))
    brand = rng.choice(80, (n_queries, n_docs), p=popular)
    query = np.arange(n_queries)
    if n_pages > n_queries:
        query = rng.choice(n_queries, n_pages, p=rng.dirichlet(np.ones(n_queries)))
    user = rng.integers(n_users, size=n_pages)
    active = activity * rng.normal(size=n_users)[user][:, None]
    wishes = rng.normal(size=(n_users, 4))[user][:, None]
    day = np.arange(n_pages) * N_DAYS // n_pages
    features = {
        "quality": quality[query],
        "text": text[query],
        "price": base[query] + 0.6 * rng.normal(size=(N_DAYS, n_queries, n_docs))[day, query],
        "stock": rng.random((n_pages, n_docs)) < 0.8,
        "affinity": (wishes * looks[brand[query]]).sum(2) / 2 + active,
        "brand": brand[query],
    }
    logit = features["quality"] + 0.6 * features["text"] + value[brand[query]] + active
    logit = logit + 0.7 * features["affinity"] - 0.7 * features["price"]
    return query, features, expit(logit + 2 * (features["stock"] - 0.8) - 1.5)


def _rows(query, order, features):
    """One row per place of each page, of which ``features`` has the values of all candidates."""
    n_pages, n_shown = order.shape
    page = np.arange(n_pages)[:, None]
    rows = pd.DataFrame(
        {
            "qid": np.repeat(query, n_shown),
            "session": np.repeat(np.arange(n_pages), n_shown),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, n_shown + 1), n_pages),
            **{name: values[page, order].ravel() for name, values in features.items()},
        }
    )
    if "brand" in rows:
        rows["brand"] = pd.Categorical(rows["brand"], categories=range(80))
    return rows


def lightgbm_position(log, candidates, leaves):
    """Scores of LightGBM's ranker, which corrects clicks by position."""
    features = [name for name in log if name not in ("qid", "session", "doc", "position", "click")]
    pages = log.groupby("session", sort=False).size().to_numpy()
    position = log["position"].to_numpy() - 1
    data = lgb.Dataset(log[features], log["click"], group=pages, position=position)
    settings = {"objective": "lambdarank", "num_leaves": leaves, "verbose": -1, "num_threads": 1}
    return lgb.train(settings, data, 100).predict(candidates[features])


def rankers(seed):
    """Rankers that take categories, by name."""
    trees = [
        ("naive", LambdaMARTRanker(debiasing="none")),
        ("debiased", LambdaMARTRanker(debiasing="user-aware", clip=0.1)),
    ]
    learner = lgb.LGBMRanker(num_leaves=7, n_jobs=1, verbosity=-1)
    return {
        "LambdaMART": LambdaMARTRanker(random_state=seed),
        "IPS, LGBMRanker": IPSRanker(estimator=learner, random_state=seed),
        "ensemble of trees": EnsembleRanker(trees, random_state=seed),
    }


def networks(seed):
    """Rankers that take numbers alone."""
    return {
        "DLA": DLARanker(random_state=seed),
        "ensemble": EnsembleRanker(random_state=seed),
    }


def _scores(log, candidates, fitted):
    for leaves in (7, 31):
        yield f"LightGBM, {leaves} leaves", lightgbm_position(log, candidates, leaves)
    for name, ranker in fitted.items():
        yield name, ranker.fit(log, "click").predict(candidates)


def worlds(cell, settings, seed):
    n_pages = settings.n_sessions(quick=2_500, full=6_000)
    log, candidates, truth = make_world(cell["world"], n_pages, seed)
    fitted = {**rankers(seed), **networks(seed)}
    return _measured(log, candidates.drop(columns="session"), truth, fitted, k=5)


def shop(cell, settings, seed):
    log, candidates, truth = make_shop(cell["shop"], cell["pages"], seed)
    told = LambdaMARTRanker(propensity=OF_SHOP, random_state=seed)
    fitted = {**rankers(seed), "LambdaMART, true curve": told}
    return _measured(log, candidates.drop(columns="session"), truth, fitted, k=10)


def _measured(log, candidates, truth, fitted, k):
    qid = candidates["qid"].to_numpy()
    candidates = candidates.drop(columns="position")
    for method, score in _scores(log, candidates, fitted):
        yield {"method": method, "ndcg": ndcg_score(truth, score, qid=qid, k=k, gain="linear")}


ROWS = {"metrics": ("ndcg",), "by": ("method",), "runs": 3}
PAGE = Page(
    "studies/changing_features",
    "Features that change between impressions",
    (
        measured(worlds, "One feature that changes: nDCG@5", over={"world": EFFECTS}, **ROWS),
        measured(
            shop,
            "A shop: nDCG@10",
            over={"shop": SHOPS, "pages": (3_000, 10_000)},
            **ROWS,
        ),
    ),
)
