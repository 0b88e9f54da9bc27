"""Small logs that tests share."""

from functools import cache

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin

from skultr._log._cells import Cells
from skultr.datasets import make_ltr
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

FEATURES = ["f0", "f1", "f2"]
#: P(examined) at the positions of lists of three.
EXAMINATION = np.array([1.0, 0.6, 0.3])


def shuffled_log(n_queries, n_sessions, *, temperature=0.1, **documents):
    """Made documents, and a log of lists in random orders near that of a ranker, and its clicks.

    ``documents`` are keywords of `make_ltr`.
    """
    documents = make_ltr(n_queries, random_state=0, **documents)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(temperature),
        random_state=0,
    )
    return documents, log, clicks


def small_log(n_queries=6, n_documents=4, n_sessions=3, seed=0):
    """A raw log: every session shows a query's documents in the same order."""
    rng = np.random.default_rng(seed)
    n_rows = n_queries * n_documents
    documents = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=FEATURES)
    documents["qid"] = np.repeat(np.arange(n_queries), n_documents)
    documents["doc"] = np.arange(n_rows)
    documents["position"] = np.tile(np.arange(1, n_documents + 1), n_queries)
    documents["relevance"] = rng.integers(0, 3, n_rows)
    log = pd.concat([documents] * n_sessions, ignore_index=True)
    log["session"] = np.repeat(np.arange(n_queries * n_sessions), n_documents)
    clicks = rng.integers(0, 2, len(log)).astype(float)
    return log, clicks


def random_lists(n_sessions=200, n_queries=3, n_documents=4, n_shown=3, seed=0):
    """A raw log of random orders, so that lists differ within a query and recur."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_queries * n_documents, 3))
    rows = []
    for session in range(n_sessions):
        query = int(rng.integers(n_queries))
        for place, chosen in enumerate(rng.permutation(n_documents)[:n_shown]):
            doc = query * n_documents + int(chosen)
            rows.append((session, query, doc, place + 1, *features[doc]))
    log = pd.DataFrame(rows, columns=["session", "qid", "doc", "position", *FEATURES])
    return log, rng.integers(0, 2, len(log)).astype(float)


def pages_by_chance(rng, n_pages, *, n_queries=30, n_docs=8, n_shown=5):
    """Pages of queries in an order by chance, with clicks of a position-based model."""
    a, b = rng.normal(size=(2, n_queries, n_docs))
    query = np.repeat(rng.integers(n_queries, size=n_pages), n_shown)
    order = np.argsort(rng.random((n_pages, n_docs)), axis=1)[:, :n_shown].ravel()
    position = np.tile(np.arange(1, n_shown + 1), n_pages)
    click = rng.random(len(query)) < 1 / (1 + np.exp(-b[query, order])) / position
    return pd.DataFrame(
        {
            "qid": query,
            "session": np.repeat(np.arange(n_pages), n_shown),
            "doc": order,
            "position": position,
            "a": a[query, order],
            "b": b[query, order],
            "click": click.astype(int),
        }
    )


def lists_of_three(n_queries=40, seed=0):
    """Aggregated lists of three shown documents and a candidate, and their relevance."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "qid": np.repeat([f"q{i}" for i in range(n_queries)], 4),
            "session": np.repeat(np.arange(n_queries) % 2, 4),
            "position": np.tile([1.0, 2.0, 3.0, np.nan], n_queries),
            "impressions": np.repeat(rng.integers(1, 11, n_queries), 4),
            "bm25": rng.normal(size=4 * n_queries),
        }
    )
    relevance = 0.3 * np.exp(0.5 * np.clip(X["bm25"] + 0.5 * rng.normal(size=len(X)), -2, 2))
    return X, relevance.to_numpy()


def examined(X):
    """P(examined) of each row of such lists."""
    position = X["position"].fillna(1).astype(int)
    return np.where(X["position"].isna(), 0.0, EXAMINATION[position - 1])


def top_k_log(n_queries=150, strength=1.0, seed=0, n_sessions=15_000, candidates=True):
    """The top 5 of a ranker that used a signal which no feature shows.

    Returns documents, log, clicks and the examination of the five positions.
    """
    documents, log, clicks, curve = _top_k_log(n_queries, strength, seed, n_sessions, candidates)
    return documents.copy(), log.copy(), clicks.copy(), curve


@cache
def _top_k_log(n_queries, strength, seed, n_sessions, candidates):
    documents = make_ltr(n_queries, n_features=15, random_state=seed)
    scores = hidden_signal_scores(
        production_scores(documents, fraction=0.1, random_state=seed),
        documents["relevance"],
        strength=strength,
        random_state=seed,
    )
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=5,
        scores=scores,
        user=PositionBasedUser(1.0),
        gain="binary",
        candidates=candidates,
        random_state=seed,
    )
    return documents, log.drop(columns="relevance"), clicks.astype(float), truth.examination


class Linear(RegressorMixin, BaseEstimator):
    """Scores by the column ``bm25`` (or the first one), times a factor."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        if hasattr(X, "columns") and hasattr(X, "__getitem__"):
            return self.factor * np.asarray(X["bm25"], dtype=float)
        column = X[:, [0]]
        column = column.toarray() if sparse.issparse(column) else np.asarray(column)
        return self.factor * column.ravel().astype(float)


def random_cells(n_rows, n_docs, n_factors, fall=0.0):
    """Cells of documents that were shown anywhere, clicked less at later factors."""
    rng = np.random.default_rng(0)
    doc, factor = rng.integers(n_docs, size=n_rows), rng.integers(n_factors, size=n_rows)
    clicks = (rng.random(n_rows) < 0.3 / (1 + factor) ** fall).astype(float)
    return Cells.from_rows(doc, factor, clicks, np.ones(n_rows), n_docs, n_factors)
