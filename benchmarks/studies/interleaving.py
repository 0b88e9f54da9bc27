"""Does interleaving find the winner of an A/B test, with a tenth of its traffic?

Pairs of rankers whose scores are relevance plus noise, of a different amount in the two: 400
queries of 10 documents, of which lists show 5. The truth is the exact difference of expected
clicks per list. An A/B test divides 20,000 sessions between the rankers; interleaving has a tenth.
For the test and each method: the share of pairs with the true sign; where the A/B test was
significant at 5 %, the share that agrees with its sign; and how often each was significant.

Better rankings satisfy users of the DBN sooner, so that they click less often: their A/B test
counts sessions with a click. ``level`` is the share of significant results between rankers
that are equal (noise of one amount, 60 queries, 1,000 sessions), with clusters by query and by
session, for even traffic and for 1 / rank.

``looks`` is the share of experiments between equal rankers (200 queries) in which one
who looks at team-draft lists ten times, after every 500 sessions, sees a winner at some look:
with p-values for one look, with ``sequential=True``, and at the last look alone.
"""

import numpy as np
import pandas as pd

from skultr.evaluation import Interleaver, interleaving_outcome
from skultr.simulation import (
    CascadeUser,
    DBNUser,
    PositionBasedUser,
    TrustBiasUser,
    clicks_on_lists,
)

from .._study import Page, measured

METHODS = ["team-draft", "balanced", "probabilistic"]
USERS = {
    "position-based": PositionBasedUser(1.0),
    "trust": TrustBiasUser(),
    "cascade": CascadeUser(),
    "DBN": DBNUser(),
}
N_DOCS, N_SHOWN = 10, 5


def world(n_queries, rng):
    """Candidates of queries, and P(found relevant) of each."""
    n_rows = n_queries * N_DOCS
    X = pd.DataFrame({"qid": np.arange(n_rows) // N_DOCS, "doc": np.arange(n_rows)})
    return X, rng.choice([0.1, 0.16, 0.28, 0.52, 1.0], n_rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])


def clicks_on(user, lists, rng):
    """Clicks on lists of relevance, or sessions with a click of users who may be satisfied."""
    clicks = user.click(lists, rng)
    return clicks.any(axis=1) if isinstance(user, DBNUser) else clicks.sum(axis=1)


def clicks_of_rows(user, log, relevance, rng):
    """Clicks on interleaved lists, from P(found relevant) of each document."""
    return clicks_on_lists(
        log.assign(relevance=relevance[log["doc"]]),
        user,
        noise=0,
        max_grade=1,
        gain="linear",
        random_state=int(rng.integers(2**31)),
    )


def truth(user, lists, rng):
    """Value of each list: exact, but for the DBN, whose clicks are drawn."""
    if isinstance(user, DBNUser):
        return clicks_on(user, np.repeat(lists, 2000, axis=0), rng).mean()
    return user.click_probability(lists).sum(axis=1).mean()


def pairs(cell, settings, seed):
    """Whether the A/B test and each method have the true sign, and are sure of it."""
    user, n_sessions = USERS[cell["user"]], settings.n_sessions(quick=20_000, full=20_000)
    rng = np.random.default_rng(seed)
    X, relevance = world(400, rng)
    amounts = 0.5 * np.exp(rng.normal(0, 0.2, 2))
    scores = {
        name: relevance + rng.normal(0, amount, len(X))
        for name, amount in zip("ab", amounts, strict=True)
    }
    lists = [
        np.take_along_axis(
            relevance.reshape(-1, N_DOCS),
            np.argsort(-scores[name].reshape(-1, N_DOCS), axis=1),
            axis=1,
        )[:, :N_SHOWN]
        for name in "ab"
    ]
    values = [truth(user, shown, np.random.default_rng(1)) for shown in lists]
    true = np.sign(values[1] - values[0])
    draws = [shown[rng.integers(400, size=n_sessions // 2)] for shown in lists]
    arms = [clicks_on(user, shown, rng) for shown in draws]
    lead = arms[1].mean() - arms[0].mean()
    error = np.sqrt(sum(arm.var() / len(arm) for arm in arms))
    test = np.sign(lead), bool(abs(lead) > 1.96 * error)
    found = {"A/B test": test}
    for method in METHODS:
        drawn = Interleaver(method, n_positions=N_SHOWN, random_state=seed)
        log = drawn.interleave(X, scores, n_sessions // 10)
        clicks = clicks_of_rows(user, log, relevance, rng)
        outcome = interleaving_outcome(log, clicks, cluster="session").pairs.iloc[0]
        found[method] = np.sign(outcome["preference"] - 0.5), outcome["p_value"] <= 0.05
    for method, (sign, sure) in found.items():
        yield {
            "method": method,
            "right sign": float(sign == true),
            "agrees where A/B sure": float(sign == test[0]) if test[1] else None,
            "significant": float(sure),
            "significant and wrong": float(sure and sign != true),
        }


def level(cell, settings, seed):
    """Whether equal rankers differ significantly, by cluster."""
    rng = np.random.default_rng(seed)
    X, relevance = world(60, rng)
    traffic = np.arange(1, 61) ** -TRAFFIC[cell["traffic"]]
    asked = rng.choice(60, 1000, p=traffic / traffic.sum())
    scores = {name: relevance + rng.normal(0, 0.3, len(X)) for name in "ab"}
    drawn = Interleaver(cell["method"], n_positions=N_SHOWN, random_state=seed)
    log = drawn.interleave(X, scores, asked)
    clicks = clicks_of_rows(USERS[cell["user"]], log, relevance, rng)
    outcomes = {by: interleaving_outcome(log, clicks, cluster=by) for by in ("qid", "session")}
    return [{by: float(found.pairs["p_value"][0] <= 0.05) for by, found in outcomes.items()}]


def looks(cell, settings, seed):
    """Whether equal rankers have a winner at some of ten looks."""
    rng = np.random.default_rng(seed)
    X, relevance = world(200, rng)
    scores = {name: relevance + rng.normal(0, 0.3, len(X)) for name in "ab"}
    log = Interleaver(n_positions=N_SHOWN, random_state=seed).interleave(X, scores, 5000)
    log["click"] = clicks_of_rows(USERS[cell["user"]], log, relevance, rng)
    p_values = np.array(
        [
            [
                interleaving_outcome(until, "click", sequential=sequential).pairs["p_value"][0]
                for sequential in (False, True)
            ]
            for until in (log[log["session"] < 500 * (look + 1)] for look in range(10))
        ]
    )
    once, sequential = (p_values <= 0.05).any(axis=0).astype(float)
    return [{"one look": once, "sequential": sequential, "last": float(p_values[-1, 0] <= 0.05)}]


TRAFFIC = {"even": 0.0, "1 / rank": 1.0}
PAGE = Page(
    "studies/interleaving",
    "Interleaving beside an A/B test",
    (
        measured(
            pairs,
            "Does interleaving find the winner?",
            ("right sign", "agrees where A/B sure", "significant", "significant and wrong"),
            over={"user": USERS},
            by=("method",),
            runs=50,
        ),
        measured(
            level,
            "Equal rankers that differ significantly",
            ("qid", "session"),
            over={"user": USERS, "method": METHODS, "traffic": TRAFFIC},
            runs=200,
        ),
        measured(
            looks,
            "Equal rankers with a winner at some look",
            ("one look", "sequential", "last"),
            over={"user": USERS},
            runs=75,
        ),
    ),
)
