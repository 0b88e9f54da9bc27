"""The study of the penalty on weights: every ranker with every penalty, and equal trainings."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks._study import Settings
from benchmarks.papers import _cld_worlds
from benchmarks.studies import penalty
from skultr.rankers import IPSRanker


@pytest.mark.filterwarnings("ignore:The log ", "ignore:After weighting", "ignore:Every candidate")
@pytest.mark.parametrize("of", ["top", "whole"])
def test_gains_are_over_the_same_training_without_it(of, monkeypatch):
    monkeypatch.setattr(_cld_worlds, "N_TEST", {"quick": 20, "full": 20})
    settings = Settings(tiny=True)
    if of == "top":
        rows = [*penalty.gains_at_the_top({"log": "top 10"}, settings, 0)]
    else:
        cell = {"pages": 90, "features": 5, "order": "one order"}
        rows = [*penalty.gains_of_whole_pages(cell, settings, 0)]
    assert len(rows) == len(penalty.RANKERS) * (len(penalty.STRENGTHS) + 1)
    found = {(row["ranker"], row["penalty"]): row for row in rows}
    # The penalties were at work.
    assert len({row["nDCG@10"] for row in rows}) > 2 * len(penalty.RANKERS)
    for (ranker, _), row in found.items():
        without = found[ranker, "none"]
        assert row["gain"] == row["nDCG@10"] - without["nDCG@10"]
        assert row["clicks"] == without["clicks"] > 0


def test_penalties_are_multiples_of_the_default():
    trained = {name: penalty.with_penalty(IPSRanker, name)() for name in penalty.STRENGTHS}
    log = log_of(n_features=20, n_clicks=400)
    found = {name: ranker._penalty(log, click_only=True) for name, ranker in trained.items()}
    assert found["default"] == IPSRanker()._penalty(log, click_only=True) > 0
    assert found["none"] == 0
    assert found["three times"] == pytest.approx(3 * found["default"])


def test_one_penalty_is_there_with_many_clicks_too():
    trained = penalty.with_penalty(IPSRanker, penalty.EVERYWHERE)()
    log = log_of(n_features=20, n_clicks=4_000)
    assert trained._penalty(log, click_only=True) == 0.005
    assert trained._penalty(log, click_only=False) == 0.001
    assert IPSRanker()._penalty(log, click_only=True) == 0


def log_of(n_features, n_clicks):
    """What a penalty reads of a log of five impressions per click."""
    return SimpleNamespace(
        features=np.zeros((1, n_features)),
        clicks=np.array([n_clicks]),
        weight=np.array([5 * n_clicks]),
    )
