"""Estimators without networks: a click model, a propensity, and the simulator that feeds them."""

import numpy as np
import pandas as pd

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.propensity import InterventionHarvesting, RegressionEMPropensity
from skultr.simulation import (
    EYE_TRACKING,
    MixturePolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    production_scores,
    simulate_clicks,
)

from ._work import OURS, Work

N_POSITIONS, EM_STEPS = 10, 50
EM = f"NumPy, {EM_STEPS} steps of EM"


def _log(size, policy, full):
    """Sessions of ten rows, served by several rankers or at random."""
    documents = make_ltr(size(tiny=20, quick=500, full=2_000), n_features=10, random_state=0)
    several = getattr(policy, "several_rankers", False)
    scores = [production_scores(documents, random_state=seed) for seed in range(1 + several)]
    X, clicks, _ = simulate_clicks(
        documents,
        n_sessions=size(tiny=200, quick=full // 5, full=full),
        policy=policy,
        scores=np.column_stack(scores) if several else scores[0],
        user=PositionBasedUser(1 / np.arange(1, N_POSITIONS + 1)),
        features=False,
        random_state=0,
    )
    return X, clicks.astype(float)


def position_based(size):
    X, clicks = _log(size, PlackettLucePolicy(), full=200_000)
    return {OURS: lambda: PBMModel().fit(X, clicks), EM: lambda: plain_em(X, clicks)}


def personal(size):
    X, clicks = _log(size, MixturePolicy(), full=200_000)
    estimator = RegressionEMPropensity(relevance="embedding")
    return {OURS: lambda: estimator.fit(X, clicks), EM: lambda: plain_em(X, clicks)}


def plain_em(X, clicks, n_steps=EM_STEPS):
    """Relevance of documents and examination of positions, by EM over all rows as arrays."""
    pairs = pd.MultiIndex.from_frame(X[["qid", "doc"]])
    doc, position = pairs.factorize()[0], X["position"].to_numpy() - 1
    shown = np.bincount(doc), np.bincount(position)
    relevance, examination = (np.full(len(n), 0.5) for n in shown)
    for _ in range(n_steps):
        r, o = relevance[doc], examination[position]
        miss = 1 - r * o
        relevant = np.where(clicks > 0, 1.0, r * (1 - o) / miss)
        examined = np.where(clicks > 0, 1.0, o * (1 - r) / miss)
        relevance = np.bincount(doc, relevant) / shown[0]
        examination = np.bincount(position, examined) / shown[1]
    return relevance, examination


PIVOT = "pandas, the same formula"


def harvesting(size):
    X, clicks = _log(size, MixturePolicy(), full=200_000)
    estimator = InterventionHarvesting(method="pivot", n_bootstrap=0)
    return {OURS: lambda: estimator.fit(X, clicks), PIVOT: lambda: pandas_pivot(X, clicks)}


def pandas_pivot(X, clicks):
    """What one would write: join the click rates at a position with those at the first."""
    log = X[["qid", "doc", "position"]].assign(click=clicks)
    cells = log.groupby(["qid", "doc", "position"], as_index=False)["click"].agg(["sum", "count"])
    first = cells[cells["position"] == 1]
    pairs = cells.merge(first, on=["qid", "doc"], suffixes=("", "_first"))
    total = pairs["count"] + pairs["count_first"]
    own = (pairs["sum"] * pairs["count_first"] / total).groupby(pairs["position"]).sum()
    other = (pairs["sum_first"] * pairs["count"] / total).groupby(pairs["position"]).sum()
    return own / other


ARRAYS = "NumPy arrays"


def simulator(size):
    documents = make_ltr(size(tiny=20, quick=500, full=1_000), n_features=10, random_state=0)
    documents = documents.sort_values("qid", kind="stable", ignore_index=True)
    scores = production_scores(documents, random_state=0)
    n_sessions = size(tiny=100, quick=50_000, full=300_000)

    def ours():
        simulate_clicks(
            documents,
            n_sessions=n_sessions,
            scores=scores,
            policy=PlackettLucePolicy(0.1),
            features=False,
            random_state=0,
        )

    return {OURS: ours, ARRAYS: lambda: plain_simulator(documents, scores, n_sessions)}


def plain_simulator(documents, scores, n_sessions):
    """Position-based clicks on Plackett-Luce rankings; queries have equally many documents."""
    rng = np.random.default_rng(0)
    n_queries = documents["qid"].nunique()
    chance = 0.1 + 0.9 * (2.0 ** documents["relevance"].to_numpy() - 1) / 15
    query = rng.integers(0, n_queries, n_sessions)
    utility = scores.reshape(n_queries, -1)[query] / 0.1
    utility = utility + rng.gumbel(size=utility.shape)
    shown = np.argsort(-utility, axis=1)[:, :N_POSITIONS]
    rows = query[:, None] * utility.shape[1] + shown
    clicks = rng.random(rows.shape) < chance[rows] * EYE_TRACKING
    columns = {
        "session": np.repeat(np.arange(n_sessions), N_POSITIONS),
        "qid": documents["qid"].to_numpy()[rows.ravel()],
        "doc": documents["doc"].to_numpy()[rows.ravel()],
        "position": np.tile(np.arange(1, N_POSITIONS + 1), n_sessions),
    }
    return pd.DataFrame(columns), clicks.ravel()


_EM_NOTE = (
    "the peer takes 50 plain steps, ours go on until they converge; PyClick loops over sessions "
    "in Python and is slower by orders of magnitude"
)
WORKS = (
    Work("estimation/pbm", "PBMModel, to convergence", position_based, {EM: None}, note=_EM_NOTE),
    Work(
        "estimation/regression-em",
        "RegressionEMPropensity, one number per document",
        personal,
        {EM: None},
        note=_EM_NOTE,
    ),
    Work("estimation/harvesting", "InterventionHarvesting, pivot", harvesting, {PIVOT: None}),
    Work("estimation/simulator", "simulate_clicks, Plackett-Luce", simulator, {ARRAYS: None}),
)
