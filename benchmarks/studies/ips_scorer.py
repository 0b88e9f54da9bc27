"""Does a search by held-out clicks find the ranker that human annotation would?

    python -m benchmarks.studies.ips_scorer [--seeds 10] [--sessions 50000]

Users examine position k with probability 1 / k. GridSearchCV chooses how strongly an IPSRanker
with trees corrects for that: propensities (1/k)^η for several η, 0 being the naive ranker. One
search scores each of them by nDCG against the annotation, by IPSScorer with the true
propensities (as it is, and self-normalised), and by the same scorer with propensity 1, which is
the DCG of the raw clicks. Prints how often each scorer picks what the annotation picks, and the
nDCG that its pick loses. Then the time that a million rows take.
"""

import argparse
import time

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.model_selection import GridSearchCV

from skultr.datasets import make_ltr
from skultr.metrics import IPSScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.rankers import IPSRanker
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

ETAS = (0.0, 0.5, 1.0, 1.5, 2.0)
POSITIONS = np.arange(1, 11)
EXAMINATION = 1.0 / POSITIONS


def search(seed, n_sessions):
    """Mean test score of each candidate by each scorer."""
    X, clicks, _ = simulate_clicks(
        make_ltr(400, n_features=30, random_state=seed),
        user=PositionBasedUser(1.0),
        policy=PlackettLucePolicy(temperature=0.1),
        n_sessions=n_sessions,
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
    scores = {
        name[len("mean_test_") :]: values
        for name, values in found.cv_results_.items()
        if name.startswith("mean_test_")
    }
    return pd.DataFrame(scores, index=pd.Index(ETAS, name="eta"))


class _Stored:
    """Predictions that cost nothing, so that the scorer alone is timed."""

    def __init__(self, scores):
        self.scores = scores

    def predict(self, X):
        return self.scores


def time_a_million_rows():
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
    start = time.perf_counter()
    found = IPSScorer(propensity=EXAMINATION).estimate(model, X, clicks)
    print(f"{len(X):,} rows: {time.perf_counter() - start:.2f} s, {found}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=50_000)
    options = parser.parse_args()
    time_a_million_rows()
    picks = []
    for seed in range(options.seeds):
        scores = search(seed, options.sessions)
        best = scores["nDCG"].idxmax()
        for scorer in scores:
            eta = scores[scorer].idxmax()
            loss = scores.loc[best, "nDCG"] - scores.loc[eta, "nDCG"]
            picks.append({"scorer": scorer, "eta": eta, "same": eta == best, "loss": loss})
        print(f"seed {seed}: " + ", ".join(f"{p['scorer']} {p['eta']}" for p in picks[-4:]))
    table = pd.DataFrame(picks).groupby("scorer", sort=False)
    print(table.agg(same=("same", "sum"), nDCG_lost=("loss", "mean"), worst=("loss", "max")))


if __name__ == "__main__":
    main()
