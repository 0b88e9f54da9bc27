"""Worlds of robustness.py and reverse.py: documents, users, production rankers, policies, sizes of
log."""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, cycle, islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

from skultr import aggregate_clicks
from skultr.datasets import load_letor, make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.simulation import (
    ClickMatrixUser,
    DBNUser,
    DeterministicPolicy,
    PlackettLucePolicy,
    Policy,
    PositionBasedUser,
    SwapPolicy,
    TrustBiasUser,
    UserPopulation,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

from .._documents import feature_columns

#: Training queries of each set; the others are for the test, at most ``MOST_TEST_QUERIES``.
DOCUMENTS = {
    "made": 300,
    "mq2008": 400,
    "lightgbm": 160,
    "clueweb": 40,
    "mslr": 110,
    "letor": 500,
}
FILES = {
    "mq2008": "mq2008",
    "lightgbm": "lightgbm_lambdarank",
    "clueweb": "clueweb09_webis",
    "mslr": "mslr_sample",
}
#: Documents of the grid.
GRID = ("made", "mq2008", "lightgbm", "clueweb")
MOST_TEST_QUERIES = 500
USERS = {
    "eta 1": PositionBasedUser(1.0),
    "eta 2": PositionBasedUser(2.0),
    "trust": TrustBiasUser(),
    "DBN": DBNUser(),
    "matrix": ClickMatrixUser(),
    "ten users": UserPopulation(10),
}
#: Documents of the other cells.
OTHERS = ("made", "mq2008", "lightgbm")
#: Twenty documents per query are all shown, but to users whose behaviour is known for ten.
SHORT_LISTS, TEN_POSITIONS = ("made", "lightgbm"), ("trust", "matrix")
PRODUCTION = ("1 %", "10 %", "all labels", "hidden signal")
POLICIES = {
    "fixed": DeterministicPolicy(),
    "T .1": PlackettLucePolicy(0.1),
    "T 1": PlackettLucePolicy(1.0),
}
#: A kind of production of the other cells alone.
MORE_FEATURES = "more features"


@dataclass(frozen=True)
class DailyPolicy(Policy):
    """Each day another order of each query: scores with noise, in their standard deviations."""

    n_days: int = 20
    noise: float = 0.5

    def rank(self, scores, offsets, query, n_positions, rng):
        """Rows of the documents that each session shows: those of a random day."""
        day = rng.integers(self.n_days, size=len(query))
        rows = np.empty((len(query), n_positions), np.int32)
        for today in range(self.n_days):
            noisy = scores + self.noise * rng.standard_normal(len(scores))
            is_today = day == today
            rows[is_today] = DeterministicPolicy().rank(
                noisy, offsets, query[is_today], n_positions
            )
        return rows


#: Policies of the other cells, and of reverse.py.
SWAPS, DAILY = "neighbour swaps", "daily orders"
OTHER_POLICIES = {SWAPS: SwapPolicy("adjacent"), DAILY: DailyPolicy()}
SESSIONS = (2_000, 20_000, 200_000, 1_000_000)
#: Sessions of the cells of the regular subset.
REGULAR = (*[200_000] * 2, *[2_000, 20_000] * 17, *[2_000] * 4)


# --------------------------------------------------------------------------------------
# The grid
# --------------------------------------------------------------------------------------
class Cell(NamedTuple):
    documents: str
    user: str
    production: str
    policy: str
    sessions: int


def cells(subset, letor=False):
    """Cells of a subset of the grid; with ``letor`` the same cells on documents from a file."""
    grid = [Cell(*levels) for levels in product(GRID, USERS, PRODUCTION, POLICIES, SESSIONS)]
    sizes = REGULAR if subset == "regular" else islice(cycle(SESSIONS), len(grid))
    chosen = balanced(grid, sizes)
    return list(dict.fromkeys(c._replace(documents="letor") for c in chosen)) if letor else chosen


def balanced(grid, sizes):
    """One cell for each size of log, so that any beginning has all pairs of levels alike often.

    Each is the free cell that shares the fewest pairs of levels with those before it.
    """
    grid = [grid[i] for i in np.random.default_rng(0).permutation(len(grid))]
    levels = np.array([[str(level) for level in cell] for cell in grid])
    size = np.array([cell.sessions for cell in grid])
    shared, chosen = np.zeros(len(grid)), []
    for n_sessions in sizes:
        # Infinite: not of this size, or taken.
        cost = np.where(size == n_sessions, shared, np.inf)
        best = int(cost.argmin())
        same = levels == levels[best]
        for first, second in combinations(same.T, 2):
            shared += first & second
        shared += same.sum(axis=1) / 10
        shared[best] = np.inf
        chosen.append(grid[best])
    return chosen


def other_cells():
    """Four kinds that are not in the grid, each with 20,000 sessions.

    Weak production on one order: features tell what was examined, and nothing guards them.
    Production that is good, but never saw a label of the queries that it serves. Production of
    features of which the rankers see a quarter. And swaps of neighbours.
    """
    orders, kinds = ("fixed", "T 1"), ("1 %", "10 %", "hidden signal")
    found = [
        *product(OTHERS, ("eta 1", "eta 2", "trust", "matrix"), ("1 %",), ("fixed",)),
        *product(OTHERS, ("eta 1", "trust"), ("clean",), orders),
        *product(OTHERS, ("eta 1", "DBN"), (MORE_FEATURES,), orders),
        *product(OTHERS, ("eta 1",), kinds, (SWAPS,)),
    ]
    return [Cell(*levels, 20_000) for levels in found]


# --------------------------------------------------------------------------------------
# Documents
# --------------------------------------------------------------------------------------
def documents_of(name, seed, data=None, letor=None):
    """Documents of training and test queries; None where the file is not there."""
    if name == "made":
        documents = make_ltr(DOCUMENTS[name] + MOST_TEST_QUERIES, n_features=20, random_state=seed)
    else:
        path = letor if name == "letor" else Path(data or "no folder") / f"{FILES[name]}.parquet"
        if name != "letor" and not Path(path).exists():
            return None
        documents = load_letor(path)
    documents["qid"] = pd.factorize(documents["qid"])[0]
    documents["doc"] = np.arange(len(documents))
    n_queries = documents["qid"].nunique()
    n_train = min(DOCUMENTS[name], n_queries * 2 // 3)
    train, test = train_test_queries(documents, test_size=n_queries - n_train, random_state=seed)
    return train, test[test["qid"].isin(test["qid"].unique()[:MOST_TEST_QUERIES])]


def production(kind, known, train, test, seed):
    """Scores of the ranker that serves, in standard deviations, for both parts.

    It has learned labels of ``known`` queries.
    """
    both = pd.concat([train, test])
    fraction = {"1 %": 0.01, "all labels": 1.0, "clean": 1.0}.get(kind, 0.1)
    trees = LGBMRegressor(
        n_estimators=200, num_leaves=15, min_child_samples=5, verbosity=-1, n_jobs=1
    )
    scores = production_scores(
        known,
        fraction=fraction,
        estimator=None if kind == "1 %" else trees,
        candidates=both,
        random_state=seed,
    )
    if kind == "hidden signal":
        scores = hidden_signal_scores(scores, both["relevance"], random_state=seed)
    scores = scores / scores[: len(train)].std()
    return scores[: len(train)], scores[len(train) :]


# --------------------------------------------------------------------------------------
# A world
# --------------------------------------------------------------------------------------
class World:
    """The log of a cell, and documents of other queries to test on."""

    def __init__(self, cell, seed, train, test):
        known = train
        if cell.production == "clean":  # queries that are neither in the log nor tested
            known, test = train_test_queries(test, test_size=0.5, random_state=seed)
        served, self.served = production(cell.production, known, train, test, seed)
        top = train["relevance"].max()
        impressions, self.clicks, _ = simulate_clicks(
            # Grades of all sets from 0 to 4: what users click has the same range everywhere.
            train.assign(relevance=(train["relevance"] * 4 / top).round().astype(int)),
            n_sessions=cell.sessions,
            n_positions=_depth(cell),
            policy=(POLICIES | OTHER_POLICIES)[cell.policy],
            scores=served,
            user=USERS[cell.user],
            features=False,
            random_state=seed,
        )
        self.impressions = impressions.drop(columns="arm", errors="ignore")
        self.features = feature_columns(train)[:: 4 if cell.production == MORE_FEATURES else 1]
        self._documents = train[["qid", "doc", *self.features]]
        self._served = pd.Series(served, train["doc"])
        self._relevance = test["relevance"], test["qid"]
        self.test = test[["qid", *self.features]].assign(production=self.served)

    @cached_property
    def lists(self):
        """Distinct lists and click rates, for rankers that know impressions."""
        log, rate = aggregate_clicks(self.impressions.assign(click=self.clicks), self._documents)
        return self._with_production(log), rate

    def _with_production(self, log):
        return log.assign(production=self._served.loc[log["doc"]].to_numpy())

    def lists_and_candidates(self):
        """The same with a row for each document that no session showed."""
        log, rate = self.lists
        hidden = self._documents[~self._documents["doc"].isin(log["doc"])]
        hidden = self._with_production(
            hidden.assign(session=log["session"].max() + 1, impressions=1)
        )
        log = pd.concat([log, hidden], ignore_index=True)
        if "user" in log:
            log["user"] = log["user"].fillna(0).astype(int)
        return log, np.concatenate([rate, np.zeros(len(hidden))])

    def sessions(self):
        """Features, clicks, rows of each session, and positions from 0, for other libraries."""
        features = self._documents[self.features].to_numpy(dtype=np.float32)
        row = pd.Index(self._documents["doc"]).get_indexer(self.impressions["doc"])
        length = np.bincount(self.impressions["session"])
        return features[row], self.clicks, length, self.impressions["position"].to_numpy() - 1

    def shown_first(self, scores):
        """The scores of the ten documents that production puts first; the others behind these."""
        place = pd.Series(self.served).groupby(self.test["qid"].to_numpy()).rank(ascending=False)
        scores = np.asarray(scores, dtype=float)
        return np.where(place <= 10, scores, scores.min() - place)

    def ndcg(self, scores):
        """nDCG@10 of scores of the test documents, by query that has a relevant one."""
        relevance, query = self._relevance
        found = ndcg_score(relevance, scores, qid=query, k=10, per_query=True)
        return found["ndcg@10"].dropna()


def _depth(cell):
    every = cell.documents in SHORT_LISTS and cell.user not in TEN_POSITIONS
    return 20 if every else 10
