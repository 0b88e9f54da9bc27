"""``check_click_model`` must fail models that break the contract, each by its own check."""

import numpy as np
import pandas as pd
import pytest

from skultr.click_models import DCTRModel, UBMModel
from skultr.testing import check_click_model


class AboveOne(DCTRModel):
    def predict_click(self, X, y=None, **options):
        return 3 * super().predict_click(X, y, **options)


class ClicksHidden(DCTRModel):
    def predict_click(self, X, y=None, **options):
        return np.maximum(super().predict_click(X, y, **options), 0.01)


class FirstRowsCountLess(DCTRModel):
    def predict_click(self, X, y=None, **options):
        found = super().predict_click(X, y, **options)
        return found * np.linspace(0.5, 1, len(found))


class SeesClicksBelow(DCTRModel):
    def predict_click(self, X, y=None, *, conditional=True, **options):
        found = super().predict_click(X, y, conditional=conditional, **options)
        if y is None or not conditional:
            return found
        clicked = pd.Series(y).groupby(np.asarray(X["session"])).transform("sum").to_numpy()
        return found * (1 + clicked) / 4


class LowerWhenConditional(DCTRModel):
    def predict_click(self, X, y=None, *, conditional=True, **options):
        found = super().predict_click(X, y, conditional=conditional, **options)
        return found / 2 if conditional and y is not None else found


class TakesNoClickForAnyClick(UBMModel):
    def predict_click(self, X, y=None, *, conditional=True, **options):
        if not conditional:
            y = np.zeros(len(X), dtype=int)
        return super().predict_click(X, y, **options)


class Unseeded(DCTRModel):
    def sample(self, X, random_state=None, **roles):
        return super().sample(X, None, **roles)


class SamplesCoins(DCTRModel):
    def sample(self, X, random_state=None, **roles):
        return np.random.default_rng(random_state).integers(2, size=len(X))


class Perplexed(DCTRModel):
    def score(self, X, y, sample_weight=None, **roles):
        return -super().score(X, y, sample_weight, **roles)


class IgnoresImpressions(DCTRModel):
    def fit(self, X, y, sample_weight=None, **roles):
        X = X.drop(columns="impressions", errors="ignore")
        return super().fit(X, y, **{**roles, "impressions": None})


class KnowsPandasOnly(DCTRModel):
    def predict_click(self, X, y=None, **options):
        found = super().predict_click(X, y, **options)
        return found if isinstance(X, pd.DataFrame) else found / 2


class SameForAll(DCTRModel):
    def predict(self, X, **ids):
        return np.zeros(len(X))


@pytest.mark.parametrize(
    ("model", "check", "message"),
    [
        (AboveOne, "predict_click", "which is no probability"),
        (ClicksHidden, "predict_click", "not shown must be 0"),
        (FirstRowsCountLess, "predict_click_by_list", "depends on the order of rows"),
        (SeesClicksBelow, "clicks_below", "depends on clicks below"),
        (LowerWhenConditional, "first_row", "differ there"),
        (TakesNoClickForAnyClick, "sum_over_clicks_above", "not the sum over all ways"),
        (Unseeded, "sample", "the same seed drew other clicks"),
        (SamplesCoins, "sample", "but predict_click states"),
        (Perplexed, "score", "not minus the perplexity"),
        (IgnoresImpressions, "impressions_of_sessions", "are not repeated sessions"),
        (KnowsPandasOnly, "frames_and_arrays_of_lists", "predict_click"),
        (SameForAll, "clicks_matter", "the same score"),
    ],
)
def test_broken_models_fail(model, check, message):
    with pytest.raises(AssertionError, match=message):
        dict(check_click_model(model(), generate_only=True))[f"check_{check}"]()
