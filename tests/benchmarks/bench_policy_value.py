r"""Does `policy_difference` predict which of two rankings gets more clicks, and by how much?

    python tests/benchmarks/bench_policy_value.py [--pairs 8] [--queries 300] [--sessions 30000] \
        [--documents 12]

Pairs of rankers near production, on the log of production, under five users and two policies:
Plackett-Luce, and always the same page. Queries of each log are a sample of those that the truth
is computed for, without clicks drawn. Prints for each method the share of pairs on which it
commits (p < 0.05), among all and among those that differ by 1 % of the clicks or more; how often
the sign is then right; the coverage of its 95 % intervals where it tells at all; root mean squared
error, bias and mean standard error. "pbm" is given the curve of the position-based user. With
``--documents 6`` every page has all documents of its query, only in another order.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import policy_difference
from skultr.simulation import (
    CarouselUser,
    CascadeUser,
    DBNUser,
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    relevance_probability,
    simulate_clicks,
)

N_POSITIONS = 6
EXAMINATION = np.array([0.9, 0.7, 0.55, 0.45, 0.38, 0.33])
USERS = {
    "position-based": PositionBasedUser(EXAMINATION),
    "trust": TrustBiasUser(EXAMINATION),
    "cascade": CascadeUser(),
    "DBN": DBNUser(),
    "carousel": CarouselUser(n_columns=3),
}
POLICIES = {"stochastic": PlackettLucePolicy(1.0), "deterministic": DeterministicPolicy()}
METHODS = {
    "item-position": {"method": "item-position"},
    "pbm": {"method": "pbm", "propensity": EXAMINATION},
    "direct": {"method": "direct"},
}


def clicks_per_page(documents, scores, user, relevance):
    """The truth: expected clicks on the page of each query, mean over queries."""
    order = np.lexsort((-scores, documents["qid"])).reshape(documents["qid"].nunique(), -1)
    return float(user.click_probability(relevance[order[:, :N_POSITIONS]]).sum(axis=1).mean())


def rankers(documents, rng):
    """Scores of production and of two rankers that share most of its errors."""
    grade = documents["relevance"].to_numpy(dtype=float)
    production = grade + rng.normal(0, 1.5, len(grade))
    new = [
        0.6 * production + 0.4 * (grade + rng.normal(0, rng.uniform(0.3, 3), len(grade)))
        for _ in range(2)
    ]
    return production, *new


def pair(seed, user, policy, n_queries, n_sessions, n_documents=12):
    """One row per method: what it says of one pair of rankers, beside the truth."""
    rng = np.random.default_rng(seed)
    world = make_ltr(4_000, n_documents=n_documents, n_features=2, random_state=0)
    production, a, b = rankers(world, rng)
    relevance = relevance_probability(world["relevance"], noise=0.1)
    of_a, of_b = (clicks_per_page(world, scores, user, relevance) for scores in (a, b))
    drawn = world["qid"].isin(rng.choice(4_000, n_queries, replace=False)).to_numpy()
    documents = world[drawn].assign(a=a[drawn], b=b[drawn])
    X, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=N_POSITIONS,
        policy=policy,
        scores=production[drawn],
        user=user,
        candidates=True,
        random_state=seed,
    )
    scores = X.pop("a").to_numpy(float), X.pop("b").to_numpy(float)
    X = X.drop(columns=["relevance"])
    model = PBMModel().fit(X, clicks)
    rows = []
    for name, options in METHODS.items():
        given = {"model": model} if name == "direct" else {}
        found = policy_difference(X, clicks, *scores, **options, **given)
        truth = of_a - of_b
        rows.append(
            {
                "method": name,
                "value": found.value,
                "error": found.value - truth,
                "standard error": found.standard_error,
                "large": abs(truth) >= 0.01 * found.logged,
                "tells": not np.isnan(found.value),
                "commits": found.p_value < 0.05,
                "right": found.value * truth > 0,
                "covers": found.interval[0] <= truth <= found.interval[1],
                "support": found.support,
                "clicks": found.effective_sample_size,
            }
        )
    return rows


def summary(table):
    """One line per user, policy and method."""
    lines = []
    for name, of in table.groupby(["policy", "user", "method"], sort=False):
        tells, commits = of[of["tells"]], of[of["commits"]]
        lines.append(
            {
                **dict(zip(("policy", "user", "method"), name, strict=True)),
                "tells": of["tells"].mean(),
                "commits": of["commits"].mean(),
                "of 1 %": of.loc[of["large"], "commits"].mean(),
                "sign right": commits["right"].mean(),
                "covers": tells["covers"].mean(),
                "rmse": np.sqrt((tells["error"] ** 2).mean()),
                "bias": tells["error"].mean(),
                "se": tells["standard error"].mean(),
                "support": of["support"].mean(),
                "clicks": of["clicks"].mean(),
            }
        )
    return pd.DataFrame(lines).set_index(["policy", "user", "method"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--sessions", type=int, default=30_000)
    parser.add_argument("--documents", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [
        {"policy": policy, "user": user, **row}
        for policy in POLICIES
        for user in USERS
        for seed in range(options.pairs)
        for row in pair(
            seed,
            USERS[user],
            POLICIES[policy],
            options.queries,
            options.sessions,
            options.documents,
        )
    ]
    print(summary(pd.DataFrame(rows)).round(3).to_string())


if __name__ == "__main__":
    main()
