"""Does a search by held-out clicks find the ranker that human annotation would?

Users examine position k with probability 1 / k. GridSearchCV chooses how strongly an IPSRanker
with trees corrects for that: propensities (1/k)^η for several η, 0 being the naive ranker. One
search scores each of them by nDCG against the annotation, by IPSScorer with the true
propensities (as it is, and self-normalised), and by the same scorer with propensity 1, which is
the DCG of the raw clicks. ``same`` is the share of searches in which a scorer picks what the
annotation picks, ``loss`` the nDCG that its pick loses.
"""

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.model_selection import GridSearchCV

from skultr.datasets import make_ltr
from skultr.metrics import IPSScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.rankers import IPSRanker
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

from .._study import Page, cost, measured

ETAS = (0.0, 0.5, 1.0, 1.5, 2.0)
POSITIONS = np.arange(1, 11)
EXAMINATION = 1.0 / POSITIONS


def picks(cell, settings, seed):
    """What each scorer picks, and what that loses."""
    X, clicks, _ = simulate_clicks(
        make_ltr(400, n_features=30, random_state=seed),
        user=PositionBasedUser(1.0),
        policy=PlackettLucePolicy(temperature=0.1),
        n_sessions=settings.n_sessions(quick=10_000, full=50_000),
        random_state=seed,
    )
    trees = LGBMRegressor(n_estimators=50, num_leaves=15, n_jobs=1, verbosity=-1)
    found = GridSearchCV(
        IPSRanker(estimator=trees, random_state=seed),
        {"propensity": [POSITIONS**-eta for eta in ETAS]},
        cv=QueryKFold(3),
        scoring={
            "nDCG": RankingScorer(),
            "IPS": IPSScorer(propensity=EXAMINATION),
            "self-normalised": IPSScorer(propensity=EXAMINATION, normalize=True),
            "raw clicks": IPSScorer(propensity=np.ones(10)),
        },
        refit=False,
    ).fit(X, clicks)
    ndcg = found.cv_results_["mean_test_nDCG"]
    for scorer in found.scorer_:
        pick = found.cv_results_[f"mean_test_{scorer}"].argmax()
        loss = ndcg.max() - ndcg[pick]
        yield {"scorer": scorer, "eta": ETAS[pick], "same": float(loss == 0), "loss": loss}


class _Stored:
    """Predictions that cost nothing, so that the scorer alone is timed."""

    def __init__(self, scores):
        self.scores = scores

    def predict(self, X):
        return self.scores


def million_rows(cell, settings, seed):
    """What the scorer takes."""
    rng = np.random.default_rng(0)
    n_sessions = 100_000
    X = pd.DataFrame(
        {
            "qid": np.repeat(rng.integers(5_000, size=n_sessions), 10),
            "session": np.repeat(np.arange(n_sessions), 10),
            "position": np.tile(POSITIONS, n_sessions),
        }
    )
    clicks = rng.random(len(X)) < 0.3 * EXAMINATION[X["position"] - 1]
    model = _Stored(rng.normal(size=len(X)))
    return [cost(lambda: IPSScorer(propensity=EXAMINATION).estimate(model, X, clicks))]


PAGE = Page(
    "studies/ips_scorer",
    "A search by held-out clicks",
    (
        measured(
            picks,
            "What each scorer picks",
            ("same", "loss", "eta"),
            over={"users": ("position-based",)},
            by=("scorer",),
            runs=10,
        ),
        measured(
            million_rows,
            "Cost of a million rows",
            ("seconds", "GiB"),
            over={"users": ("position-based",)},
            runs=1,
            alone=True,
        ),
    ),
)
