"""``check_ranker`` must fail rankers that break the contract."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skultr.rankers import NaiveRanker
from skultr.rankers._ranker import BaseRanker
from skultr.testing import check_ranker

LOG = pd.DataFrame(
    {
        **{"qid": [1, 1], "session": [1, 1], "doc": ["a", "b"], "position": [1, 2]},
        **{"f": [0.5, 0.1], "click": [1, 0]},
    }
)


class IgnoresImpressions(NaiveRanker):
    def _read_log(self, X, y, sample_weight, roles, **reading):
        log = super()._read_log(X, y, sample_weight, roles, **reading)
        return replace(log, weight=np.ones(log.n_rows), clicks=log.click_rate)


class IgnoresWeights(NaiveRanker):
    def _read_log(self, X, y, sample_weight, roles, **reading):
        return super()._read_log(X, y, None, roles, **reading)


class IgnoresKeywords(NaiveRanker):
    def _read_log(self, X, y, sample_weight, roles, **reading):
        in_frame = hasattr(X, "columns")
        return super()._read_log(X, y, sample_weight, {} if in_frame else roles, **reading)


class IgnoresClicks(NaiveRanker):
    def _weighted_clicks(self, log):
        return log.weight


class Constant(NaiveRanker):
    def _score(self, features):
        return np.zeros(len(features))


class RanksAtRandom(NaiveRanker):
    def rank(self, X, *, qid=None):
        return np.ones(len(X), dtype=int)


class CountsNeverShown(NaiveRanker):
    def _propensities(self, rows, *, fit):
        X, roles = rows.X, rows.roles
        if hasattr(X, "columns") and "position" in X.columns and roles["position"] is None:
            position = np.array(X["position"], dtype=float)
            position = np.where(np.isnan(position), 99, position)
            session = np.arange(len(position))
            rows.roles = {**roles, "position": position, "session": session}


class LosesItsModel(NaiveRanker):
    def partial_fit(self, X, y):
        return self.fit(X, y)  # which leaves nothing after an error


@pytest.mark.parametrize(
    "ranker",
    [
        IgnoresImpressions,
        IgnoresWeights,
        IgnoresKeywords,
        IgnoresClicks,
        Constant,
        RanksAtRandom,
        CountsNeverShown,
        LosesItsModel,
    ],
)
def test_broken_rankers_fail(ranker):
    # The searches and pickles are slow, and not what these break; the first failure is enough.
    slow = ("check_search", "check_pickle")
    checks = check_ranker(ranker(hidden_layer_sizes=()), generate_only=True)
    assert any(_fails(check) for name, check in checks if name not in slow)


class Least(BaseRanker):
    """The two methods and nothing else."""

    def _fit(self, log, task):
        features = log.features[log.version].astype(float)
        weighted = features.T * log.weight
        self.coef_ = np.linalg.pinv(weighted @ features) @ (weighted @ log.click_rate)

    def _score(self, features):
        return features.astype(float) @ self.coef_


def test_a_ranker_without_parameters_is_checked():
    checks = dict(check_ranker(Least(), generate_only=True))
    checks["check_impressions"]()


def test_scores_of_another_length_are_an_error():
    class Short(Least):
        def _score(self, features):
            return features[:1, 0]

    with pytest.raises(ValueError, match=r"Short._score returned the shape \(1,\); expected \(2"):
        Short().fit(LOG, "click").predict(LOG)


def test_a_missing_method_is_named():
    class Forgetful(BaseRanker):
        pass

    with pytest.raises(NotImplementedError, match=r"Forgetful has no _fit\(log, task\)"):
        Forgetful().fit(LOG, "click")
    Forgetful._fit = Least._fit
    with pytest.raises(NotImplementedError, match=r"Forgetful has no _score\(features\)"):
        Forgetful().fit(LOG, "click").predict(LOG)


class Shifts(NaiveRanker):
    _shifts = itertools.count()

    def _read_log(self, X, y, sample_weight, roles, **reading):
        self.shift_ = next(self._shifts)
        return super()._read_log(X, y, sample_weight, roles, **reading)

    def _score(self, features):
        return super()._score(features) + self.shift_


def test_scores_are_compared_up_to_a_constant():
    checks = dict(check_ranker(Shifts(hidden_layer_sizes=()), generate_only=True))
    checks["check_impressions"]()


def _fails(check):
    try:
        check()
    except (AssertionError, ValueError):
        return True
    return False
