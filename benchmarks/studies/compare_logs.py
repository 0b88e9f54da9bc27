"""Does ``compare_logs`` alarm when something changed, and only then?

Pairs of logs of 10 results, 200 queries of even traffic and 3 features, of which the logit of
relevance is a part. Production is this logit plus normal noise of .5, 1 or 2. Pages are in the
order of Plackett-Luce (``shuffled``), or one pair of neighbours is swapped on a tenth of them
(``swaps``). Users examine position k with probability 1/k (``position-based``), trust positions,
or stop when satisfied (``DBN``). A simulator of its own: nothing of the package makes the logs.

``unchanged``: share of pairs with an alarm, where only the sessions differ. ``traffic`` says where
queries are from: ``same``; ``long tail``, 20,000 queries whose traffic falls as 1 / rank; or
``fresh``, other queries of the same kind in each log.

``changed``: share of pairs with an alarm, with one of ``examination``, and with one of what
changed, at 20,000 pages:

- ``less reading``: examination from position 3 on is 20 % lower; ``steeper``: 1/k^1.2;
- ``relevance``: a tenth of the documents have another relevance, drawn afresh;
- ``production``: another ranker of the same kind serves;
- ``feature``: one feature is .1 standard deviations higher;
- ``new queries``: a tenth of the queries are others, with other documents.
"""

import numpy as np
import pandas as pd

from skultr.evaluation import compare_logs

from .._study import Page, measured

N_DOCS, N_FEATURES = 10, 3
RANKS = np.arange(1, N_DOCS + 1)
USERS = ("position-based", "trust", "DBN")
ORDERS = ("shuffled", "swaps")
#: What an alarm should name.
NAMES = {
    "less reading": "examination",
    "steeper": "examination",
    "feature": "location",
    "new queries": "new queries",
}
CHANGES = (*NAMES, "relevance", "production")


def world(rng, n_queries):
    """Logits of relevance, scores of production and features."""
    logit = rng.normal(-1.2, 1.2, (n_queries, N_DOCS))
    features = rng.normal(size=(*logit.shape, N_FEATURES)) + 0.5 * logit[..., None]
    return {"logit": logit, "production": served(rng, logit), "features": features}


def served(rng, logit):
    """Scores of a ranker."""
    return logit + rng.normal(0, rng.choice([0.5, 1.0, 2.0]), logit.shape)


def pages_of(rng, scores, order):
    """The documents of each page, from the top down."""
    if order == "shuffled":
        return np.argsort(-(scores / 0.5 + rng.gumbel(size=scores.shape)), axis=1)
    found = np.argsort(-scores, axis=1)
    page = np.flatnonzero(rng.random(len(found)) < 0.1)
    first = rng.integers(0, N_DOCS - 1, len(page))
    found[page, first], found[page, first + 1] = found[page, first + 1], found[page, first]
    return found


def clicks_of(rng, relevance, users, examination):
    """Clicks on pages of relevance."""
    drawn = rng.random(relevance.shape)
    if users == "position-based":
        return drawn < relevance * examination
    if users == "trust":
        seen, feigned = np.linspace(0.95, 0.6, N_DOCS), 0.4 / RANKS
        return drawn < examination * (seen * relevance + feigned * (1 - relevance))
    # Users go on with probability .9, or as much less as the examination says.
    go_on = 0.9 * np.append(1.0, (examination * RANKS)[1:] / (examination * RANKS)[:-1])
    reads, clicks = np.ones(len(relevance), dtype=bool), np.zeros(relevance.shape, dtype=bool)
    for k in range(N_DOCS):
        reads &= (k == 0) | (rng.random(len(reads)) < go_on[k])
        clicks[:, k] = reads & (drawn[:, k] < relevance[:, k])
        reads &= ~(clicks[:, k] & (rng.random(len(reads)) < 0.8 * relevance[:, k]))
    return clicks


def log_of(rng, world, n_pages, users, order, examination=1 / RANKS, exponent=0.0, first=0):
    """A log as a frame."""
    n_queries = len(world["logit"])
    traffic = np.arange(1.0, n_queries + 1) ** -exponent
    query = rng.choice(n_queries, n_pages, p=traffic / traffic.sum())
    doc = pages_of(rng, world["production"][query], order)
    relevance = 1 / (1 + np.exp(-np.take_along_axis(world["logit"][query], doc, axis=1)))
    clicks = clicks_of(rng, relevance, users, examination)
    rows = np.repeat(query, N_DOCS), doc.ravel()
    log = pd.DataFrame(
        {
            "qid": first + world.get("qid", np.arange(n_queries))[rows[0]],
            "session": np.arange(n_pages).repeat(N_DOCS),
            "doc": rows[1],
            "position": np.tile(RANKS, n_pages),
            "click": clicks.ravel().astype(int),
        }
    )
    names = [f"feature_{i}" for i in range(N_FEATURES)]
    return pd.concat([log, pd.DataFrame(world["features"][rows], columns=names)], axis=1)


def change_of(rng, world_, change):
    """The world and the examination of the new log."""
    new, examination = {name: values.copy() for name, values in world_.items()}, 1 / RANKS
    if change == "less reading":
        examination = np.where(RANKS > 2, 0.8, 1.0) / RANKS
    elif change == "steeper":
        examination = RANKS**-1.2
    elif change == "production":
        new["production"] = served(rng, new["logit"])
    elif change == "feature":
        new["features"][..., 0] += 0.1 * new["features"][..., 0].std()
    elif change == "relevance":
        moved = rng.random(new["logit"].shape) < 0.1
        new["logit"][moved] = rng.normal(-1.2, 1.2, moved.sum())
    elif change == "new queries":
        n_queries = len(new["logit"])
        others, other = world(rng, n_queries), rng.random(n_queries) < 0.1
        for name, values in others.items():
            new[name][other] = values[other]
        new["qid"] = np.arange(n_queries) + n_queries * other
    return new, examination


def unchanged(cell, settings, seed):
    """Whether there is an alarm though nothing changed."""
    rng = np.random.default_rng([28, seed])
    tail = cell["traffic"] == "long tail"
    old = new = world(rng, 20_000 if tail else 200)
    more = {"exponent": float(tail)}
    if cell["traffic"] == "fresh":
        new, more = world(rng, 200) | {"qid": np.arange(200, 400)}, {}
        new["production"] = new["logit"] + rng.normal(0, 1, new["logit"].shape)
        old["production"] = old["logit"] + rng.normal(0, 1, old["logit"].shape)
    logs = [
        log_of(rng, each, cell["pages"], cell["users"], cell["order"], **more)
        for each in (old, new)
    ]
    table = compare_logs(*logs).table
    alarms = table["watched"][table["verdict"] == "alarm"]
    others = alarms[~alarms.isin(["new queries"])]
    yield {
        "any alarm": float(len(alarms) > 0),
        "but of new queries": float(len(others) > 0),
        "examination": float((alarms == "examination").any()),
    }


def changed(cell, settings, seed):
    """Whether there is an alarm, and of what."""
    rng = np.random.default_rng([29, seed])
    old = world(rng, 200)
    new, examination = change_of(rng, old, cell["change"])
    logs = [
        log_of(rng, old, cell["pages"], cell["users"], cell["order"]),
        log_of(rng, new, cell["pages"], cell["users"], cell["order"], examination),
    ]
    table = compare_logs(*logs).table
    alarms = table["watched"][table["verdict"] == "alarm"]
    named = NAMES.get(cell["change"])
    yield {
        "any alarm": float(len(alarms) > 0),
        "of what changed": float((alarms == named).any()) if named else None,
        "of examination": float((alarms == "examination").any()),
    }


PAGE = Page(
    "studies/compare_logs",
    "Alarms of compare_logs",
    (
        measured(
            unchanged,
            "Pairs of logs without a change, with an alarm",
            ("any alarm", "but of new queries", "examination"),
            over={
                "traffic": ("same", "long tail", "fresh"),
                "pages": (2_000, 20_000),
                "users": USERS,
                "order": ORDERS,
            },
            runs=100,
        ),
        measured(
            changed,
            "Pairs of logs with a change, with an alarm",
            ("any alarm", "of what changed", "of examination"),
            over={"change": CHANGES, "pages": (2_000, 20_000), "users": USERS, "order": ORDERS},
            runs=100,
        ),
    ),
)
