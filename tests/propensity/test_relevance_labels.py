"""Labels without a ranker."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr.propensity import PowerLawPropensity, relevance_labels
from skultr.rankers import IPSRanker

from .._worlds import random_lists

CURVE = [1.0, 0.5, 0.25]


@pytest.mark.parametrize(("cls", "user_aware"), [(IPSRanker, False), (UserAwareIPSRanker, True)])
def test_labels_are_those_of_the_ranker(cls, user_aware):
    X, clicks = random_lists()
    ranker = cls(propensity=CURVE, estimator=Ridge(), clip=0.4).fit(X, clicks)
    labels = relevance_labels(X, clicks, propensity=CURVE, user_aware=user_aware, clip=0.4)
    pd.testing.assert_frame_equal(labels, ranker.labels_)


def test_frames_sources_and_weights():
    X, clicks = random_lists()
    expected = relevance_labels(X, clicks, propensity=CURVE)
    of_rows = np.array(CURVE)[X["position"] - 1]
    for found in (
        relevance_labels(pl.from_pandas(X), clicks, propensity=CURVE),
        relevance_labels(X.assign(propensity=of_rows), clicks),
        relevance_labels(X.drop(columns=["f0", "f1"]), clicks, propensity=CURVE),
    ):
        pd.testing.assert_frame_equal(found, expected)
    doubled = relevance_labels(X, clicks, sample_weight=np.full(len(X), 2.0), propensity=CURVE)
    np.testing.assert_allclose(doubled["label"], expected["label"])
    np.testing.assert_allclose(doubled["impressions"], 2 * expected["impressions"])


def test_what_is_missing_is_named():
    X, clicks = random_lists()
    with pytest.raises(ValueError, match="No propensities given"):
        relevance_labels(X, clicks)
    with pytest.raises(ValueError, match="column 'doc'"):
        relevance_labels(X.drop(columns="doc"), clicks, propensity=CURVE)
    with pytest.raises(ValueError, match="two answers"):
        relevance_labels(X.assign(propensity=0.5), clicks, propensity=PowerLawPropensity())
    with pytest.raises(ValueError, match="clip"):
        relevance_labels(X, clicks, propensity=CURVE, clip=2.0)
