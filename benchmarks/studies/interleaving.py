"""Does interleaving find the winner of an A/B test, with a tenth of its traffic?

``python -m benchmarks.studies.interleaving [--pairs 50] [--sessions 20000]``
``python -m benchmarks.studies.interleaving --level`` or ``--looks``

Pairs of rankers whose scores are relevance plus noise, of a different amount in the two: 400
queries of 10 documents, of which lists show 5. The truth is the exact difference of expected
clicks per list. An A/B test divides ``--sessions`` between the rankers; interleaving has a tenth.
For the test and each method: the share of pairs with the true sign; where the A/B test was
significant at 5 %, the share that agrees with its sign; and how often each was significant.

Better rankings satisfy users of the DBN sooner, so that they click less often: their A/B test
counts sessions with a click. ``--level`` prints the share of significant results between rankers
that are equal (noise of one amount, 60 queries, 1,000 sessions, 200 runs), with clusters by query
and by session, for even traffic and for 1 / rank.

``--looks`` prints the share of 300 experiments between equal rankers (200 queries) in which one
who looks at team-draft lists ten times, after every 500 sessions, sees a winner at some look:
with p-values for one look, with ``sequential=True``, and at the last look alone.

Takes 35 seconds on one core; ``--level`` 4 minutes, ``--looks`` 2.
"""

import argparse

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


def compare(user, n_pairs, n_sessions):
    """One row per pair: signs and p-values of the truth, the A/B test and each method."""
    rows = []
    for pair in range(n_pairs):
        rng = np.random.default_rng(pair)
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
        values = [truth(user, of, np.random.default_rng(1)) for of in lists]
        row = {"truth": np.sign(values[1] - values[0])}
        arms = [clicks_on(user, of[rng.integers(400, size=n_sessions // 2)], rng) for of in lists]
        lead = arms[1].mean() - arms[0].mean()
        error = np.sqrt(sum(of.var() / len(of) for of in arms))
        row["A/B test"], row["A/B test sure"] = np.sign(lead), abs(lead) > 1.96 * error
        for method in METHODS:
            drawn = Interleaver(method, n_positions=N_SHOWN, random_state=pair)
            log = drawn.interleave(X, scores, n_sessions // 10)
            clicks = clicks_of_rows(user, log, relevance, rng)
            found = interleaving_outcome(log, clicks, cluster="session").pairs.iloc[0]
            row[method] = np.sign(found["preference"] - 0.5)
            row[f"{method} sure"] = found["p_value"] <= 0.05
        rows.append(row)
    return pd.DataFrame(rows)


def summarise(table):
    """Figures of one kind of user."""
    sure = table["A/B test sure"]
    for name in ["A/B test", *METHODS]:
        found = table[f"{name} sure"]
        yield {
            "of": name,
            "right sign": (table[name] == table["truth"]).mean(),
            "agrees where A/B sure": (table[name] == table["A/B test"])[sure].mean(),
            "significant": found.mean(),
            "significant and wrong": (found & (table[name] != table["truth"])).mean(),
        }


def level(user, method, steep, n_runs=200):
    """Share of significant results between equal rankers, by cluster."""
    found = []
    for run in range(n_runs):
        rng = np.random.default_rng(run)
        X, relevance = world(60, rng)
        traffic = np.arange(1, 61) ** -float(steep)
        asked = rng.choice(60, 1000, p=traffic / traffic.sum())
        scores = {name: relevance + rng.normal(0, 0.3, len(X)) for name in "ab"}
        log = Interleaver(method, n_positions=N_SHOWN, random_state=run).interleave(
            X, scores, asked
        )
        clicks = clicks_of_rows(user, log, relevance, rng)
        outcomes = {by: interleaving_outcome(log, clicks, cluster=by) for by in ("qid", "session")}
        found.append({by: of.pairs["p_value"][0] <= 0.05 for by, of in outcomes.items()})
    return pd.DataFrame(found).mean().to_dict()


def looks(n_runs=300):
    """Share of experiments between equal rankers with a winner at some of ten looks."""
    found = np.zeros((n_runs, 10, 2))
    for run in range(n_runs):
        rng = np.random.default_rng(run)
        X, relevance = world(200, rng)
        scores = {name: relevance + rng.normal(0, 0.3, len(X)) for name in "ab"}
        log = Interleaver(n_positions=N_SHOWN, random_state=run).interleave(X, scores, 5000)
        user = list(USERS.values())[run % len(USERS)]
        log["click"] = clicks_of_rows(user, log, relevance, rng)
        for look in range(10):
            until = log[log["session"] < 500 * (look + 1)]
            for sequential in (False, True):
                outcome = interleaving_outcome(until, "click", sequential=sequential)
                found[run, look, int(sequential)] = outcome.pairs["p_value"][0] <= 0.05
    once, sequential = found.any(axis=1).mean(axis=0)
    return {"one look": once, "sequential": sequential, "last": found[:, -1, 0].mean()}


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--level", action="store_true")
    parser.add_argument("--looks", action="store_true")
    options = parser.parse_args()
    if options.looks:
        print(looks())
        return
    if options.level:
        for (user, of), method in ((u, m) for u in USERS.items() for m in METHODS):
            for steep in (False, True):
                print(user, method, "1 / rank" if steep else "even", level(of, method, steep))
        return
    for user, of in USERS.items():
        table = compare(of, options.pairs, options.sessions)
        print(f"\n{user}, {options.pairs} pairs")
        print(pd.DataFrame(summarise(table)).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
