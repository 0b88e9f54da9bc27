"""Does a planned experiment reach its half-width, with half the traffic of uniform swaps?

``python tests/benchmarks/bench_plan_experiment.py [--runs 100] [--looks]``

Each run draws a log, plans from it, draws the experiment, and reads both together. 300 queries of
20 documents, position-based users. Worlds: production rankers trained on 1 % or 50 % of the
labels (weak, strong), 4,000 sessions (few clicks), 20 positions, traffic 1 / rank (skewed), and a
log of one ranker, which knows no examination; all others have a second ranker in 10 % of the
sessions. ``difference``: production against another ranker.

Columns: share of runs whose largest reported half-width is at most the promised one
(``reached``), whose errors are within it at all positions (``right``); largest reported
half-width over the promised one; sessions and clicks lost over those of uniform swaps with the
first position (of an A/B test, also read together with the log).

``--looks`` prints how often equal rankers have a winner within 20 daily looks at an interleaved
log of 100 sessions a day, with the p-value of one look and with ``sequential=True``.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.evaluation import (
    Interleaver,
    interleaving_outcome,
    plan_experiment,
    policy_difference,
)
from skultr.propensity import InterventionHarvesting
from skultr.simulation import (
    MixturePolicy,
    PositionBasedUser,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

DOCUMENTS = make_ltr(300, n_features=10, random_state=0)
N_QUERIES = DOCUMENTS["qid"].nunique()
WORLDS = {  # share of labels, exponent of examination and of traffic, positions, sessions, width
    "weak production": (0.01, 1.0, 0.0, 10, 20_000, 0.04),
    "strong production": (0.5, 1.0, 0.0, 10, 20_000, 0.04),
    "few clicks": (0.1, 1.0, 0.0, 10, 4_000, 0.06),
    "20 positions": (0.1, 0.7, 0.0, 20, 30_000, 0.05),
    "skewed traffic": (0.1, 1.0, 1.0, 10, 20_000, 0.05),
    "one ranker": (0.1, 1.0, 0.0, 10, 20_000, 0.04),
}


def log_of(scores, policy, n_sessions, seed, user, n_positions, weights, **kwargs):
    X, clicks, _ = simulate_clicks(
        DOCUMENTS,
        scores=scores,
        policy=policy,
        n_sessions=int(np.ceil(n_sessions)),
        random_state=seed,
        user=user,
        n_positions=n_positions,
        query_weights=weights,
        features=False,
        **kwargs,
    )
    return X, clicks


def examination(name, seed):
    """One run of a world."""
    fraction, exponent, skew, n_positions, n_sessions, width = WORLDS[name]
    user, weights = PositionBasedUser(exponent), np.arange(1, N_QUERIES + 1) ** -skew
    world = (user, n_positions, weights)
    scores = np.column_stack(
        [production_scores(DOCUMENTS, fraction=fraction, random_state=i) for i in range(2)]
    )
    one = name == "one ranker"
    policy = None if one else MixturePolicy([0.9, 0.1])
    X, clicks = log_of(scores[:, 0] if one else scores, policy, n_sessions, seed, *world)
    plan = plan_experiment(X, clicks, half_width=width)
    served = plan.policy(DOCUMENTS["qid"])
    more, new = log_of(scores[:, 0], served, plan.sessions, 1000 + seed, *world)
    more["session"] += n_sessions
    both = pd.concat([X, more.drop(columns="arm")])
    found = InterventionHarvesting(n_bootstrap=0).fit(both, np.append(clicks, new)).examination_
    half = ((found["upper"] - found["lower"]) / 2).max()
    truth = user.examination_at(n_positions)
    error = (found["examination"] - truth / truth[0]).abs().max()
    uniform = plan.alternatives.loc["uniform swaps with the first position"]
    return {
        "reached": half <= width,
        "right": error <= width,
        "half-width": half / width,
        "sessions": plan.sessions / uniform["sessions"],
        "clicks lost": plan.clicks_lost / uniform["clicks_lost"],
    }


def difference(seed, width=0.03, n_sessions=20_000):
    """One run: production against a ranker trained on other labels."""
    scores = np.column_stack(
        [
            production_scores(DOCUMENTS, fraction=f, random_state=i)
            for i, f in enumerate((0.05, 0.1))
        ]
    )
    world = (PositionBasedUser(1.0), 10, np.ones(N_QUERIES))
    X, clicks = log_of(scores[:, 0], None, n_sessions, seed, *world, candidates=True)
    by_doc = pd.DataFrame(scores, index=DOCUMENTS["doc"])
    a, b = (by_doc[i].loc[X["doc"]].to_numpy() for i in (0, 1))
    plan = plan_experiment(
        X, clicks, target="difference", scores_a=a, scores_b=b, half_width=width
    )
    served, three = plan.policy(DOCUMENTS["qid"]), scores[:, [0, 0, 1]]
    more, new = log_of(three, served, plan.sessions, 1000 + seed, *world, candidates=True)
    more["session"] += n_sessions
    both, y = pd.concat([X, more]), np.append(clicks, new)
    a, b = (by_doc[i].loc[both["doc"]].to_numpy() for i in (0, 1))
    found = policy_difference(both, y, a, b, method="item-position")
    half = (found.interval[1] - found.interval[0]) / 2
    test = plan.alternatives.loc["A/B test, half of the pages each"]
    return {
        "reached": half <= width,
        "right": abs(found.value - true_difference(scores)) <= width,
        "half-width": half / width,
        "sessions": plan.sessions / test["sessions"],
        "clicks lost": plan.clicks_lost / test["clicks_lost"],
    }


def true_difference(scores):
    """Expected clicks per page of the first ranking minus those of the second."""
    values = []
    for of in scores.T:
        ranked = DOCUMENTS[["qid"]].assign(score=of)
        ranked["rank"] = ranked.groupby("qid")["score"].rank(ascending=False, method="first")
        clicks = relevance_probability(DOCUMENTS["relevance"]) / ranked["rank"]
        values.append(clicks[ranked["rank"] <= 10].sum() / N_QUERIES)
    return values[0] - values[1]


def looks(seed, better, n_queries=400, n_days=20, per_day=100):
    """Whether any daily look, and the last one, finds a winner; by kind of p-value."""
    rng, n_rows = np.random.default_rng(seed), n_queries * 10
    X = pd.DataFrame({"qid": np.arange(n_rows) // 10, "doc": np.arange(n_rows)})
    relevance = rng.choice([0.1, 0.16, 0.28, 0.52, 1.0], n_rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    scores = {n: relevance + rng.normal(0, 0.3 + d, n_rows) for n, d in (("a", better), ("b", 0))}
    drawn = Interleaver(n_positions=5, random_state=seed)
    log = drawn.interleave(X, scores, n_days * per_day)
    click = PositionBasedUser(1.0).click(relevance[log["doc"]].reshape(-1, 5), rng).ravel()
    row, day = {}, log["session"].to_numpy() // per_day
    for sequential in (False, True):
        p = []
        for last in range(n_days):
            X, y = log[day <= last], click[day <= last]
            p.append(interleaving_outcome(X, y, sequential=sequential).pairs["p_value"][0])
        won = np.array(p) <= 0.05
        kind = "sequential" if sequential else "one look"
        row[f"{kind}: any"], row[f"{kind}: last"] = won.any(), won[-1]
        row[f"{kind}: days"] = won.argmax() + 1 if won.any() else np.nan
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--looks", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.looks:
        studies = {f"noise + {more}": [looks, more] for more in (0.0, 0.2)}
        work = {
            name: [of[0](seed, of[1]) for seed in range(args.runs)] for name, of in studies.items()
        }
        print(pd.DataFrame({name: pd.DataFrame(rows).mean() for name, rows in work.items()}).T)
    else:
        for name in WORLDS:
            rows = pd.DataFrame([examination(name, seed) for seed in range(args.runs)])
            print(f"{name:18}", rows.astype(float).mean().round(3).to_dict(), flush=True)
        rows = pd.DataFrame([difference(seed) for seed in range(args.runs)])
        print(f"{'difference':18}", rows.astype(float).mean().round(3).to_dict())
