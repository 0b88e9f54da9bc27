"""How good and how honest are estimates of examination?"""

import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
)
from skultr.simulation import (
    MixturePolicy,
    PositionBasedUser,
    ShufflePolicy,
    SwapPolicy,
    UserPopulation,
    production_scores,
    simulate_clicks,
)

from .._study import Page, measured

N_POSITIONS = 10
CURVE = 1 / np.arange(1, N_POSITIONS + 1)
RANKERS, SWAPS = MixturePolicy(), SwapPolicy()
#: Name -> (the policy of the log that it needs, the estimator).
ESTIMATORS = {
    "randomized, pivot swaps": (SWAPS, RandomizedPropensity(arm="arm")),
    "randomized, adjacent swaps": (SwapPolicy("adjacent"), RandomizedPropensity(arm="arm")),
    "randomized, shuffles": (ShufflePolicy(), RandomizedPropensity()),
    "harvesting, all pairs": (RANKERS, InterventionHarvesting(random_state=0)),
    "harvesting, all pairs, formula": (RANKERS, InterventionHarvesting(n_bootstrap=0)),
    "harvesting, adjacent chain": (
        RANKERS,
        InterventionHarvesting(method="adjacent-chain", random_state=0),
    ),
    "harvesting, pivot": (RANKERS, InterventionHarvesting(method="pivot", random_state=0)),
    "regression-EM, per document": (RANKERS, RegressionEMPropensity(relevance="embedding")),
}
#: The same, without standard errors.
UNSURE = {
    "regression-EM, network": (RANKERS, RegressionEMPropensity(random_state=0)),
    "dual learning, network": (RANKERS, DualLearningPropensity(random_state=0)),
    "dual learning, per document": (
        RANKERS,
        DualLearningPropensity(relevance="embedding", variant="published"),
    ),
}


def world(n_queries, n_rankers=3, seed=0):
    """Documents, and the scores of rankers that were trained on different labels."""
    documents = make_ltr(n_queries, n_features=10, random_state=seed)
    scores = [production_scores(documents, random_state=ranker) for ranker in range(n_rankers)]
    return documents, np.column_stack(scores)


def simulate(documents, scores, policy, n_sessions, seed, **settings):
    several = getattr(policy, "several_rankers", False)
    settings = {"user": PositionBasedUser(CURVE), "features": False, **settings}
    return simulate_clicks(
        documents,
        scores=scores if several else scores[:, 0],
        policy=policy,
        n_sessions=n_sessions,
        random_state=seed,
        **settings,
    )


def accuracy(cell, settings, seed):
    """Mean and largest error over the positions, over 200,000 sessions."""
    documents, scores = world(1_000)
    for name, (policy, estimator) in {**ESTIMATORS, **UNSURE}.items():
        network = getattr(estimator, "relevance", None) == "network"
        n_sessions = settings.n_sessions(quick=20_000, full=200_000)
        X, clicks, _ = simulate(documents, scores, policy, n_sessions, seed, features=network)
        error = np.abs(estimator.fit(X, clicks).examination_["examination"] - CURVE)
        yield {"estimator": name, "error": error[1:].mean(), "largest": error.max()}


def coverage(cell, settings, seed):
    """Share of the positions whose interval holds the truth, in a small log."""
    documents, scores = world(300)
    for name, (policy, estimator) in ESTIMATORS.items():
        X, clicks, _ = simulate(documents, scores, policy, 20_000, seed)
        table = estimator.fit(X, clicks).examination_.iloc[1:]
        held = (table["lower"] <= CURVE[1:]) & (CURVE[1:] <= table["upper"])
        for position, holds in held.items():
            yield {"estimator": name, "position": int(position), "holds": float(holds)}


def users(cell, settings, seed, n_users=200):
    """Mean error of the curves of users, by how many sessions they have."""
    documents, scores = world(1_000)
    etas = np.random.default_rng(0).normal(1.0, 0.4, n_users).clip(0, 2.5)
    truth = (1 / np.arange(1, N_POSITIONS + 1)) ** etas[:, None]
    policy, estimator = ESTIMATORS[cell["estimator"]]
    user = UserPopulation(examination=truth, decay=1.0)
    n_sessions = n_users * cell["sessions per user"]
    X, clicks, _ = simulate(documents, scores, policy, n_sessions, seed, user=user)
    return [user_errors(estimator, X, clicks, truth)]


def user_errors(estimator, X, clicks, truth):
    """Mean absolute error of examination, relative to position 1 of each user."""
    found = {}
    for name, strength in {"unpooled": 0, "shrunk": "auto"}.items():
        estimator.set_params(user="user", user_shrinkage=strength, n_bootstrap=0)
        estimator.fit(X, clicks)
        curves = estimator.examination_["examination"].unstack("bias")
        common = estimator.average_examination_["examination"]
        held = estimator.examination_
        found[name] = curves.reindex(range(len(truth))).fillna(common)
    estimator.set_params(user=None, user_shrinkage="auto")
    found["common"] = pd.DataFrame(np.tile(common, (len(truth), 1)))
    place = held.index
    own = truth[place.get_level_values("user"), place.get_level_values("bias") - 1]
    held = ((held["lower"] <= own) & (own <= held["upper"]))[place.get_level_values("bias") > 1]
    errors = {
        # An unpooled curve without a bound may be anything; count it as at most 1.
        name: np.abs(np.minimum(curves, 1.0) - truth).to_numpy()[:, 1:].mean()
        for name, curves in found.items()
    }
    return {**errors, "shrunk: truth in interval": held.mean()}


TRAFFIC = {"even": np.ones(500), "1 / rank": 1 / np.arange(1, 501)}


def weights(cell, settings, seed):
    """Mean squared error of log examination by the weight of documents."""
    documents, scores = world(500)
    traffic = TRAFFIC[cell["traffic"]]
    estimator = InterventionHarvesting(variant=cell["variant"], n_bootstrap=0)
    X, clicks, _ = simulate(documents, scores, RANKERS, 20_000, seed, query_weights=traffic)
    curve = estimator.fit(X, clicks).examination_["examination"]
    return [{"squared": np.mean(np.log(curve / CURVE)[1:] ** 2)}]


PERSONAL = ("randomized, shuffles", "randomized, pivot swaps", "harvesting, all pairs")
PERSONAL += ("regression-EM, per document",)
PAGE = Page(
    "studies/propensity",
    "Estimates of examination",
    (
        measured(
            accuracy,
            "Errors against 1 / k, relative to position 1",
            ("error", "largest"),
            over={"user": ("position-based",)},
            by=("estimator",),
        ),
        measured(
            coverage,
            "Share of the intervals that hold the truth",
            ("holds",),
            over={"user": ("position-based",)},
            by=("estimator", "position"),
            runs=200,
        ),
        measured(
            users,
            "Errors of the curves of users",
            ("unpooled", "shrunk", "common", "shrunk: truth in interval"),
            over={"estimator": PERSONAL, "sessions per user": (20, 100, 500, 2_500)},
            runs=3,
        ),
        measured(
            weights,
            "Squared error of log examination",
            ("squared",),
            over={"traffic": TRAFFIC, "variant": ("published", "default")},
            runs=20,
        ),
    ),
)
