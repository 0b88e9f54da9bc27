"""Searches: two workers beside one, and a search beside its fits one by one."""

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skultr.metrics import RankingScorer
from skultr.model_selection import QueryKFold
from skultr.rankers import NaiveRanker

from ._work import OURS, Work

ONE, ALONE = "the same search, n_jobs=1", "its fits, one by one"
LENGTH = 10


class World:
    """A log with labels, and the search over learning rates."""

    def __init__(self, size):
        rng = np.random.default_rng(0)
        n_rows = LENGTH * size(tiny=40, quick=2_000, full=10_000)
        n_features = size(tiny=5, quick=50, full=100)
        values = rng.standard_normal((n_rows, n_features), dtype=np.float32)
        self.X = pd.DataFrame(values, columns=[f"feature_{i}" for i in range(n_features)])
        self.X.insert(0, "qid", np.arange(n_rows) // LENGTH)
        self.X.insert(1, "position", np.arange(n_rows) % LENGTH + 1)
        self.X.insert(2, "relevance", rng.integers(0, 5, n_rows).astype(float))
        self.clicks = (rng.random(n_rows) < 0.2).astype(float)
        self.rates = np.geomspace(1e-4, 1e-2, size(tiny=1, quick=2, full=4)).tolist()
        self.ranker = NaiveRanker(max_epochs=2, early_stopping=False, random_state=0)
        self.folds = QueryKFold(size(tiny=2, quick=3, full=3))

    def search(self, n_jobs):
        grid = {"learning_rate": self.rates}
        scoring = RankingScorer("ndcg", k=10)
        search = GridSearchCV(
            self.ranker, grid, cv=self.folds, scoring=scoring, n_jobs=n_jobs, refit=False
        )
        return search.fit(self.X, self.clicks)

    def fits(self):
        folds = list(self.folds.split(self.X, self.clicks))
        for rate in self.rates:
            for train, _ in folds:
                ranker = clone(self.ranker).set_params(learning_rate=rate)
                ranker.fit(self.X.iloc[train], self.clicks[train])


def workers(size):
    world = World(size)
    return {OURS: lambda: world.search(2), ONE: lambda: world.search(1)}


def alone(size):
    world = World(size)
    return {OURS: lambda: world.search(1), ALONE: world.fits}


WORKS = (
    Work(
        "searches/two-workers",
        "GridSearchCV, n_jobs=2, wall time",
        workers,
        {ONE: 0.625},
        unit="wall time",
        memory=False,
        note="needs two idle cores, and searches long enough for the start of the workers",
    ),
    Work(
        "searches/overhead",
        "GridSearchCV, n_jobs=1",
        alone,
        {ALONE: 1.1},
        note="the search also scores each fit on its fold",
    ),
)
