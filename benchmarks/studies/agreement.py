"""Do the intervals and verdicts of ``compare_judgments`` hold?

Queries of ten documents with grades 0 to 4, in two orders that know a little of them; position-
based users, or users who trust the top; traffic by query is equal, or log-normal. ``people`` rate
with errors of their own in each document. The ``model`` has larger errors, which are correlated
within queries: it likes a feature of documents that does not matter, and is upside down in a tenth
of the queries. Truths are those of 4,000 queries, with click probabilities in place of clicks.

- ``clicks``, ``kept``, ``pairs``, ``kappa``: share of intervals of 95 % that hold the truth. They
  are those of the model's agreement with clicks, its share of the people's agreement, and its
  agreement and kappa with people. ``bias``: the estimate of the first, less the truth.
- ``first``: share of queries that are upside down among the first tenth of ``per_query``;
  ``found``: share of them with the verdict "contradict"; ``false``: share of wrong verdicts among
  these, and ``never``: share of logs with any, where judgments are the true grades.
- ``stand_ins``: verdicts on a judge that copies people in a share of the queries, and throws dice
  in the others.

An hour of one core with 200 runs, of which ``--cell pbm`` takes ten minutes.
"""

from functools import lru_cache

import numpy as np
import pandas as pd

from skultr.evaluation import compare_judgments
from skultr.evaluation._judged_pairs import PairWeights, queries_by_clicks, read_clicks
from skultr.propensity import InterventionHarvesting

from .._study import Page, measured

CURVE = 1 / np.arange(1, 11)
#: P(click | examined, not relevant) at the first position that trust adds.
TRUST = 0.35
N_TRUTH = 4_000


def world(rng, n_queries, pages, traffic, users="pbm"):
    """A log of counts with its clicks, click rates when examined, and judgments."""
    shape = (n_queries, 10)
    grade = rng.choice(5, shape, p=[0.4, 0.25, 0.15, 0.12, 0.08])
    rate = 0.04 + 0.11 * grade
    visits = np.full(n_queries, pages)
    if traffic == "uneven":
        visits = np.maximum(pages * rng.lognormal(-0.72, 1.2, n_queries), 2).astype(int)
    parts = []
    for half in (visits // 2, visits - visits // 2):
        score = 0.4 * grade + rng.normal(size=shape)
        place = (-score).argsort(axis=1).argsort(axis=1)
        seen = rate + (TRUST * CURVE[place] * (1 - rate) if users == "trust" else 0)
        clicks = rng.binomial(half[:, None], CURVE[place] * seen)
        parts.append(rows(shape, position=place + 1, impressions=half[:, None], click=clicks))
    log = pd.concat(parts, ignore_index=True)
    people = (grade + rng.normal(0, 0.7, shape)).round().clip(0, 4)
    liked = rng.normal(size=shape)
    model = (grade + rng.normal(0, 0.8, shape) + 0.8 * liked).round().clip(0, 4)
    is_wrong = rng.random(n_queries) < 0.1
    model[is_wrong] = 4 - model[is_wrong]
    judgments = {
        "model": rows(shape, relevance=model),
        "people": rows(shape, relevance=people),
        "right": rows(shape, relevance=grade),
    }
    return log, rate, judgments, is_wrong


def rows(shape, **columns):
    """One row per document."""
    query, doc = np.indices(shape)
    values = {name: np.broadcast_to(x, shape).ravel() for name, x in columns.items()}
    return pd.DataFrame({"qid": query.ravel(), "doc": doc.ravel(), **values})


@lru_cache
def truths(pages, traffic):
    """What ``compare_judgments`` estimates, by click probabilities of many queries."""
    rng = np.random.default_rng([48, pages, len(traffic)])
    log, rate, judgments, _ = world(rng, N_TRUTH, pages, traffic)
    clicks = read_clicks(log, "click", CURVE)
    weights = PairWeights.of_clicks(clicks)
    chance = rows(rate.shape, rate=rate).astype({"qid": str, "doc": str})
    table = clicks.merge(chance, on=["qid", "doc"])
    table["clicks"] = table["rate"] * table["examinations"]
    for name in ("model", "people"):
        table[name] = judgments[name]["relevance"].to_numpy()[
            table["qid"].astype(int) * 10 + table["doc"].astype(int)
        ]
    queries = queries_by_clicks(table, ["model", "people"], weights)
    lead = {name: queries["lead", name].sum() for name in ("model", "people")}
    both = {name: judgments[name] for name in ("people", "model")}
    pair = compare_judgments(both, n_resamples=9).table.loc[0]
    return {
        "clicks": (1 + lead["model"] / queries["size"].sum()) / 2,
        "kept": lead["model"] / lead["people"],
        "pairs": pair["agreement"],
        "kappa": pair["kappa"],
    }


def agreement(cell, settings, seed):
    """Whether intervals hold the truth, and queries that contradict come first."""
    rng = np.random.default_rng([480, seed])
    log, _, judgments, is_wrong = world(
        rng, cell["queries"], cell["pages"], cell["traffic"], cell["users"]
    )
    # Users are position-based; harvesting estimates their curve, or they trust the top.
    curve = InterventionHarvesting() if cell["users"] == "estimated" else CURVE
    found = compare_judgments(
        {name: judgments[name] for name in ("people", "model")},
        log,
        "click",
        propensity=curve,
        baseline="people",
        n_resamples=999,
        random_state=seed,
    )
    table = found.table[found.table["kind"] == "all"].set_index(["judge", "reference"])
    truth = truths(cell["pages"], cell["traffic"])
    by_clicks = table.loc[("model", "clicks")]
    by_people = table.loc[("model", "people")]
    kept = found.stand_ins.iloc[0]
    yield {
        "clicks": holds(by_clicks["lower"], truth["clicks"], by_clicks["upper"]),
        "kept": holds(kept["lower"], truth["kept"], kept["upper"]),
        "pairs": holds(by_people["lower"], truth["pairs"], by_people["upper"]),
        "kappa": holds(by_people["kappa_lower"], truth["kappa"], by_people["kappa_upper"]),
        "bias": by_clicks["agreement"] - truth["clicks"],
        "width": by_clicks["upper"] - by_clicks["lower"],
        **contradictions(found.per_query, is_wrong),
    }


def holds(lower, value, upper):
    """1 if the interval holds the value; None without an interval."""
    return float(lower <= value <= upper) if np.isfinite([lower, upper]).all() else None


def contradictions(per_query, is_wrong):
    """How well the queries that are upside down are found by clicks."""
    mine = per_query[(per_query["judge"] == "model") & (per_query["reference"] == "clicks")]
    wrong = is_wrong[mine["qid"].astype(int)]
    said = (mine["verdict"] == "contradict").to_numpy()
    n_wrong = max(wrong.sum(), 1)
    return {
        "first": wrong[: wrong.sum()].mean() if wrong.any() else None,
        "found": (said & wrong).sum() / n_wrong,
        "false": (said & ~wrong).sum() / said.sum() if said.any() else 0.0,
    }


def never(cell, settings, seed):
    """Whether a query contradicts though judgments are the true grades."""
    rng = np.random.default_rng([482, seed])
    log, _, judgments, _ = world(rng, cell["queries"], cell["pages"], "uneven")
    found = compare_judgments(judgments["right"], log, "click", propensity=CURVE, n_resamples=9)
    said = found.per_query["verdict"] == "contradict"
    yield {"any": float(said.any()), "share": float(said.mean())}


def dice(cell, settings, seed):
    """The same of judgments that know nothing: all verdicts on queries are wrong."""
    rng = np.random.default_rng([483, seed])
    log, rate, _, _ = world(rng, cell["queries"], cell["pages"], "uneven")
    judged = rows(
        rate.shape, relevance=rng.permuted(np.tile(np.arange(10), (len(rate), 1)), axis=1)
    )
    log["click"] = rng.binomial(log["impressions"], CURVE[log["position"] - 1] * 0.2)
    found = compare_judgments(judged, log, "click", propensity=CURVE, n_resamples=999)
    p_value = found.per_query["p_value"]
    row = found.table.loc[0]
    yield {
        "any": float((found.per_query["verdict"] != "cannot tell").any()),
        "p 0.05": (p_value <= 0.05).mean(),
        "p 0.001": (p_value <= 0.001).mean(),
        "agreement": float(row["verdict"] != "cannot tell"),
    }


def stand_ins(cell, settings, seed):
    """Verdicts on a judge that copies people in a share of the queries."""
    rng = np.random.default_rng([481, seed])
    log, rate, judgments, _ = world(rng, cell["queries"], cell["pages"], "uneven")
    people = judgments["people"]["relevance"].to_numpy().reshape(rate.shape)
    copies = rng.random(len(people)) < cell["copied"]
    model = np.where(copies[:, None], people, rng.permuted(people, axis=1))
    found = compare_judgments(
        {"model": rows(rate.shape, relevance=model), "people": judgments["people"]},
        log,
        "click",
        propensity=CURVE,
        baseline="people",
        n_resamples=9,
    )
    verdict = found.stand_ins["verdict"].iloc[0]
    yield {name: float(verdict == name) for name in ("may stand in", "cannot tell", "may not")}


PAGE = Page(
    "studies/agreement",
    "Agreement of clicks and judgments",
    (
        measured(
            agreement,
            "Share of intervals of 95 % that hold the truth, and queries found",
            ("clicks", "kept", "pairs", "kappa", "bias", "width", "first", "found", "false"),
            over={
                "queries": (50, 300),
                "pages": (20, 500),
                "traffic": ("equal", "uneven"),
                "users": ("pbm", "estimated", "trust"),
            },
            runs=200,
        ),
        measured(
            never,
            "Logs and queries with a contradiction, where judgments are right",
            ("any", "share"),
            over={"queries": (50, 300), "pages": (20, 500)},
            runs=200,
        ),
        measured(
            dice,
            "Logs and queries with a verdict, where judgments know nothing",
            ("any", "p 0.05", "p 0.001", "agreement"),
            over={"queries": (50, 300), "pages": (20, 500)},
            runs=200,
        ),
        measured(
            stand_ins,
            "Verdicts on a judge that copies people in a share of the queries",
            ("may stand in", "cannot tell", "may not"),
            over={"copied": (0.5, 0.8, 1.0), "queries": (50, 300), "pages": (20, 500)},
            runs=200,
        ),
    ),
)
