"""``check_propensity`` must fail estimators that break the contract, each by its own check."""

import numpy as np
import pandas as pd
import pytest

from skultr.propensity import InterventionHarvesting
from skultr.testing import check_propensity


class Harvesting(InterventionHarvesting):
    """Fast, and a place to break one thing at a time."""

    def __init__(self, *, n_bootstrap=0):
        super().__init__(n_bootstrap=n_bootstrap)


class WithoutTable(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        super().fit(X, y, sample_weight, **roles)
        del self.examination_
        return self


class AboveOne(Harvesting):
    def predict(self, X, **roles):
        return 2 * super().predict(X, **roles)


class RelativeToTheRows(Harvesting):
    def predict(self, X, **roles):
        found = super().predict(X, **roles)
        return found / (2 + len(found))


class CountsHidden(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        if hasattr(X, "groupby") and "session" in X:
            sample_weight = X.groupby("session")["doc"].transform("size").to_numpy(dtype=float)
        return super().fit(X, y, sample_weight, **roles)


class NeverZero(Harvesting):
    def predict(self, X, **roles):
        return np.maximum(super().predict(X, **roles), 0.01)


class ZeroWhereUnknown(Harvesting):
    def predict(self, X, **roles):
        position = np.asarray(X["position"], dtype=float)
        known = position <= 3
        found = super().predict(X.assign(position=np.where(known, position, 1)), **roles)
        return np.where(known, found, 0.0)


class ReadsAnnotation(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        if hasattr(X, "assign") and "relevance" in X:
            sample_weight = 1.0 + X["relevance"].to_numpy()
        return super().fit(X, y, sample_weight, **roles)


class FirstRowsCountTwice(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        weight = np.where(np.arange(len(y)) < len(y) // 2, 2.0, 1.0)
        return super().fit(X, y, weight, **roles)


class LongIdsCountMore(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        weight = pd.Series(X["qid"]).astype(str).str.len().to_numpy()
        return super().fit(X, y, weight.astype(float), **roles)


class IgnoresImpressions(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        X = X.drop(columns="impressions", errors="ignore")
        return super().fit(X, y, **{**roles, "impressions": None})


class DropsRowsOfOthers(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        if not isinstance(X, pd.DataFrame | np.ndarray):
            X, y = X[:1_000], y[:1_000]
        return super().fit(X, y, sample_weight, **roles)


class IgnoresKeywords(Harvesting):
    def fit(self, X, y, sample_weight=None, **roles):
        return super().fit(X, y, sample_weight)


class Unseeded(Harvesting):
    def predict(self, X, **roles):
        return super().predict(X, **roles) * np.random.default_rng().uniform(0.9, 1)


class LosesItsScale(Harvesting):
    def __setstate__(self, state):
        super().__setstate__(state)
        self._largest = 2 * self._largest


@pytest.mark.parametrize(
    ("estimator", "check", "message"),
    [
        (WithoutTable, "examination", "must be a DataFrame with a column 'examination'"),
        (AboveOne, "predict", r"expected numbers in \(0, 1\]"),
        (RelativeToTheRows, "predict", "depends on the other rows"),
        (CountsHidden, "rows_that_were_not_shown", "changed the estimate"),
        (NeverZero, "rows_that_were_not_shown", "must be 0"),
        (ZeroWhereUnknown, "unknown_position", "must raise a ValueError or get"),
        (ReadsAnnotation, "annotation_is_not_read", "fit read the annotation"),
        (FirstRowsCountTwice, "row_order", "shuffled rows gave another estimate"),
        (LongIdsCountMore, "relabelled_ids", "other ids gave another estimate"),
        (IgnoresImpressions, "impressions", "aggregated log gave another estimate"),
        (IgnoresKeywords, "impressions", "the keyword 'impressions' is not the column"),
        (DropsRowsOfOthers, "frames_and_arrays", "another estimate than pandas"),
        (IgnoresKeywords, "keywords_win", "a keyword does not win"),
        (Unseeded, "same_seed", "gave different propensities"),
        (LosesItsScale, "pickle", "pickle changed the propensities"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_broken_estimators_fail(estimator, check, message):
    with pytest.raises(AssertionError, match=message):
        dict(check_propensity(estimator(), generate_only=True))[f"check_{check}"]()


def test_propensities_that_no_ranker_takes_fail():
    with pytest.raises(ValueError, match="propensity"):
        dict(check_propensity(AboveOne(), generate_only=True))["check_serves_a_ranker"]()
