"""What the door says of a log: outcomes among the features, and features that are named as roles.

    python tests/benchmarks/bench_door.py [--logs 50] [--renamed 200]

Each log is simulated with its own number of queries, documents and pages, sharpness of the served
order and kinds of features: normal, heavy-tailed, counts, flags, rare flags and brands. Outcomes
are carts, purchases or dwell times after 2 to 60 % of the clicks, some with rare rows that were
not clicked. A renamed log has one feature under the name of a role that the log lacks; it must be
named by an error or a warning of `fit`. A flag that is called `relevance` passes for grades. 1
minute of one core.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skultr.rankers import NaiveRanker

#: Roles that a log may lack, so that a feature may have their name.
FREE = ("user", "impressions", "production", "relevance", "propensity", "bias", "team")
FREE += ("doc_scope", "click")


def draw_log(rng):
    """A log of one row per shown document, and its clicks."""
    n_queries, n_docs, n_shown = rng.integers(30, 120), rng.integers(8, 25), rng.integers(4, 11)
    n_shown = min(n_shown, n_docs)
    n_pages = int(rng.integers(300, 1_500))
    features = {name: draw(rng, (n_queries, n_docs)) for name, draw in KINDS.items()}
    relevance = 1 / (1 + np.exp(2 - features["normal"] - 0.5 * features["flag"]))
    score = features["normal"] + rng.normal(size=(n_queries, n_docs))
    sharpness = rng.uniform(0.3, 3)
    query = rng.integers(n_queries, size=n_pages)
    noisy = sharpness * score[query] + rng.gumbel(size=(n_pages, n_docs))
    doc = np.argsort(-noisy, axis=1)[:, :n_shown].ravel()
    query, position = np.repeat(query, n_shown), np.tile(np.arange(n_shown) + 1, n_pages)
    examined = rng.random(len(doc)) < position ** -rng.uniform(0.3, 1.5)
    clicks = (examined & (rng.random(len(doc)) < relevance[query, doc])).astype(float)
    X = pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), n_shown),
            "qid": query,
            "doc": doc,
            "position": position,
            **{name: values[query, doc] for name, values in features.items()},
        }
    )
    if rng.random() < 0.3:
        X = X.drop(columns="doc")
    return X, clicks


KINDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "price": lambda rng, shape: np.exp(rng.normal(3, 1, shape)).round(2),
    "sold": lambda rng, shape: rng.poisson(np.exp(rng.normal(1, 1.5, shape))),
    "flag": lambda rng, shape: (rng.random(shape) < 0.4).astype(int),
    "rare": lambda rng, shape: (rng.random(shape) < 0.01).astype(int),
    "share": lambda rng, shape: rng.beta(2, 3, shape),
    "stars": lambda rng, shape: rng.normal(4, 0.5, shape).clip(1, 5).round(1),
}


def plant_outcome(X, clicks, rng):
    """The log with an outcome, and its name."""
    after = clicks * (rng.random(len(X)) < rng.choice([0.02, 0.05, 0.1, 0.3, 0.6]))
    if rng.random() < 0.3:  # some carts are filled elsewhere
        after = np.maximum(after, rng.random(len(X)) < 0.1 * after.mean())
    kind = str(rng.choice(["cart", "basket_value", "dwell", "gap"]))
    if kind == "basket_value":
        after = after * np.exp(rng.normal(3, 1, len(X))).round(2)
    if kind in ("dwell", "gap"):
        after = np.where(after > 0, rng.gamma(2, 30, len(X)), np.nan if kind == "gap" else 0.0)
    return X.assign(**{kind: after}), kind


def said_of(X, clicks):
    """All warnings and the error of a fit, as texts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            NaiveRanker(estimator=HistGradientBoostingRegressor(max_iter=2)).fit(X, clicks)
        except ValueError as error:
            return [str(error), *(str(warning.message) for warning in caught)]
    return [str(warning.message) for warning in caught]


def outcomes_found(n_logs, seed=0):
    """Number of logs in which a planted outcome was named, and of clean logs with an alarm."""
    found = alarms = 0
    for i in range(n_logs):
        rng = np.random.default_rng([seed, i])
        X, clicks = draw_log(rng)
        alarms += any("outcome" in text for text in said_of(X, clicks))
        X, name = plant_outcome(X, clicks, rng)
        said = any(f"'{name}'" in text and "outcome" in text for text in said_of(X, clicks))
        found += said
    return found, alarms


def silent_losses(n_logs, seed=1):
    """Pairs of role and kind of feature for which nothing was said."""
    silent = []
    for i in range(n_logs):
        rng = np.random.default_rng([seed, i])
        X, clicks = draw_log(rng)
        role, kind = FREE[i % len(FREE)], str(rng.choice(list(KINDS)))
        said = said_of(X.rename(columns={kind: role}), clicks)
        if not any(role in text for text in said):
            silent.append((role, kind))
    return silent


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--renamed", type=int, default=200)
    options = parser.parse_args()
    found, alarms = outcomes_found(options.logs)
    print(f"outcomes named: {found} of {options.logs}; clean logs with an alarm: {alarms}")
    silent = silent_losses(options.renamed)
    print(f"renamed logs of which nothing was said: {len(silent)} of {options.renamed}: {silent}")
