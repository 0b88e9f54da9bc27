"""What merging gains by the number of components per bias factor.

Correlation (MCC) of learned with true relevance, by dual learning with one number per document,
on logs of two kinds:

- ``positions``: ten positions cut into 2 to 9 components, merged by their distance;
- ``contexts``: 10 positions in 100 contexts, whose examination differs as in the contextual
  position-based model; 1 to 22 % of the rows show a document of another page. Merged by the true
  vectors of the contexts, which is the best that bias features can be.

Compared: no repair from random starts (the mean over 4), no repair from examinations of 1, merged,
and click rates.
"""

import numpy as np
import pandas as pd

from skultr import DLARanker, IdentifiabilityRepair
from skultr.metrics import mean_correlation_coefficient
from skultr.simulation import ContextualPositionBasedUser, make_disconnected_log

from .._study import Page, measured

#: Positions of components that hold several; the other positions are alone.
PARTS = {
    0.2: [(1, 2, 3, 4), (5, 6, 7, 8, 9, 10)],
    0.4: [(1, 2, 3), (4, 5, 6), (7, 8), (9, 10)],
    0.5: [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)],
    0.6: [(1, 2), (3, 4), (5, 6), (7, 8)],
    0.7: [(1, 2), (3, 4), (5, 6)],
    0.8: [(1, 2), (3, 4)],
    0.9: [(1, 2)],
}
REPEATED = (0.013, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.22)
N_CONTEXTS, N_PAGES = 100, 600


def positions(n_impressions, seed):
    for parts in PARTS.values():
        alone = sorted(set(range(1, 11)).difference(*parts))
        X, clicks, truth = make_disconnected_log(
            components=[*parts, *([k] for k in alone)],
            n_documents=5_000,
            n_queries=N_PAGES,
            n_impressions=n_impressions,
            random_state=seed,
        )
        yield X, clicks, truth.relevance_probability.to_numpy(), IdentifiabilityRepair()


def contexts(n_impressions, seed):
    for repeated in REPEATED:
        rng = np.random.default_rng(seed)
        doc = np.arange(N_PAGES * 10).reshape(N_PAGES, 10)
        again = rng.random(doc.shape) < repeated
        doc[again] = rng.integers(doc.size, size=again.sum())
        context = rng.integers(N_CONTEXTS, size=doc.shape)
        user = ContextualPositionBasedUser(n_contexts=N_CONTEXTS, random_state=seed)
        relevance = 0.1 + 0.9 * (2.0 ** rng.integers(0, 5, doc.size) - 1) / 15
        chance = relevance[doc] * user.examination_table(10)[context, np.arange(10)]
        X = pd.DataFrame(
            {
                "qid": np.repeat(np.arange(N_PAGES), 10),
                "doc": doc.ravel(),
                "doc_scope": "global",
                "position": np.tile(np.arange(1, 11), N_PAGES),
                "context": context.ravel(),
                "impressions": n_impressions,
            }
        )
        clicks = rng.binomial(n_impressions, chance).ravel() / n_impressions
        vectors = user.context_vectors
        repair = IdentifiabilityRepair(
            ["position", "context"],
            bias_features=lambda factors, vectors=vectors: vectors[factors["context"]],
        )
        yield X, clicks, relevance, repair


WORLDS = {"positions": positions, "contexts": contexts}


def correlation(X, clicks, relevance, **settings):
    found = DLARanker(relevance="embedding", **settings).fit(X, clicks).relevance_
    return mean_correlation_coefficient(relevance[found.index], found)


def merging(cell, settings, seed):
    """Correlations with relevance, at all levels of one world."""
    n_impressions = settings.n_sessions(quick=100_000, full=1_000_000)
    for level, log in enumerate(WORLDS[cell["world"]](n_impressions, seed)):
        X, clicks, relevance, repair = log
        merged = repair.fit(X, clicks).transform(X)
        own = X.drop(columns="context", errors="ignore").assign(bias=factor_of(X))
        starts = [correlation(own, clicks, relevance, random_state=seed) for seed in range(4)]
        found = {
            "ratio": repair.graph_.n_components / repair.graph_.n_factors,
            "no repair": np.mean(starts),
            "from ones": correlation(own, clicks, relevance, examination_start="ones"),
            "merged": correlation(merged, clicks, relevance, random_state=0),
            "click rates": correlation(own.assign(bias=1), clicks, relevance),
        }
        yield {"level": level, **found, "gain": found["merged"] - found["no repair"]}


def factor_of(X):
    return 1_000 * X["position"] + X.get("context", 0)


PAGE = Page(
    "studies/merging",
    "What merging gains",
    (
        measured(
            merging,
            "Correlation of learned with true relevance",
            ("ratio", "no repair", "from ones", "merged", "click rates", "gain"),
            over={"world": WORLDS},
            by=("level",),
            runs=3,
        ),
    ),
)
