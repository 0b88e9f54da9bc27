"""Fits scale features in memory of their own, and nowhere else."""

import subprocess
import sys

import numpy as np
import pytest

from skultr.rankers import (
    DLARanker,
    NaiveRanker,
    PairDebiasRanker,
    RegressionEMRanker,
    TwoTowerRanker,
)

from .._worlds import FEATURES, random_lists

RANKERS = [NaiveRanker, DLARanker, RegressionEMRanker, TwoTowerRanker, PairDebiasRanker]


def world():
    log, clicks = random_lists(n_sessions=300, n_queries=20)
    roles = {name: log[name] for name in ("qid", "session", "doc", "position")}
    return log, clicks, log[FEATURES].to_numpy().copy(), roles


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("scale_features", [True, False])
def test_features_scaled_in_place_give_the_same_model(ranker, scale_features, monkeypatch):
    log, clicks, _, _ = world()
    settings = {"max_epochs": 3, "random_state": 0, "scale_features": scale_features}
    ours = ranker(**settings).fit(log, clicks).predict(log)
    monkeypatch.setattr(ranker, "_scaled_in_place", lambda self, log: log)
    apart = ranker(**settings).fit(log, clicks).predict(log)
    np.testing.assert_allclose(ours, apart, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_leaves_what_it_was_given(ranker, dtype):
    log, clicks, features, roles = world()
    features = features.astype(dtype)
    before, frame = features.copy(), log.copy()
    settings = {"max_epochs": 1, "random_state": 0}
    by_array = ranker(**settings).fit(features, clicks, **roles)
    by_frame = ranker(**settings).fit(log, clicks)
    np.testing.assert_array_equal(features, before)
    assert log.equals(frame)
    np.testing.assert_allclose(
        by_array.predict(features), by_frame.predict(log), rtol=1e-5, atol=1e-6
    )


MEASURE = """
import sys, warnings
import numpy as np
import pandas as pd
from skultr import rankers

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

n_rows, n_features = 100_000, 136
rng = np.random.default_rng(0)
values = rng.standard_normal((n_rows, n_features), dtype=np.float32)
X = pd.DataFrame(values, columns=[f"f{i}" for i in range(n_features)], copy=False)
X.insert(0, "qid", np.arange(n_rows) // 10)
X.insert(1, "position", np.arange(n_rows) % 10 + 1)
clicks = (rng.random(n_rows) < 0.2).astype(float)
ranker = rankers.NaiveRanker(max_epochs=1, early_stopping=False, random_state=0)
ranker.fit(X.iloc[:500], clicks[:500])  # imports
before = peak()
ranker.fit(X, clicks)
print((peak() - before) / values.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_fit_adds_little_more_than_one_copy_of_the_features():
    run = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=120
    )
    assert float(run.stdout) < 2.0  # 1.5 where features are many; 4 with a copy for each step
