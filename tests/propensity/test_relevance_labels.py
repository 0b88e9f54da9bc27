"""Labels without a ranker."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge

from skultr import ClickDataset, UserAwareIPSRanker
from skultr.click_models import DBNModel, DCTRModel, PBMModel, UBMModel
from skultr.exceptions import NotIdentifiableWarning
from skultr.propensity import PowerLawPropensity, relevance_labels
from skultr.rankers import DLARanker, IPSRanker, NaiveRanker

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
        relevance_labels(X, clicks, propensity=pd.Series(CURVE)),
    ):
        pd.testing.assert_frame_equal(found, expected)
    equal = relevance_labels(X, clicks, sample_weight=np.full(len(X), 2.0), propensity=CURVE)
    pd.testing.assert_frame_equal(equal, expected)  # a common factor changes nothing


def test_what_is_missing_is_named():
    X, clicks = random_lists()
    with pytest.raises(ValueError, match="No propensities given"):
        relevance_labels(X, clicks)
    with pytest.raises(ValueError, match="column 'doc'"):
        relevance_labels(X.drop(columns="doc"), clicks, propensity=CURVE)
    with pytest.raises(ValueError, match="expected one of them"):
        relevance_labels(X.assign(propensity=0.5), clicks, propensity=PowerLawPropensity())
    with pytest.raises(ValueError, match="clip"):
        relevance_labels(X, clicks, propensity=CURVE, clip=2.0)


class _WithErrors(BaseEstimator):
    """A known curve, and an error of the last position."""

    def __init__(self, error=np.nan):
        self.error = error

    def fit(self, X, y, sample_weight=None, **roles):
        self.examination_ = pd.DataFrame(
            {"examination": CURVE, "standard_error": [0.0, 0.1, self.error]},
            index=pd.Index([1, 2, 3], name="bias"),
        )
        return self

    def predict(self, X):
        return np.array(CURVE)[np.asarray(X["position"]) - 1]


def test_an_error_of_examination_that_is_not_known_adds_nothing_to_intervals():
    X, clicks = random_lists()
    missing, none, one = (
        relevance_labels(X, clicks, propensity=_WithErrors(error), interval=True)
        for error in (np.nan, 0.0, 1.0)
    )
    pd.testing.assert_frame_equal(missing, none)
    width = none["upper"] - none["lower"]
    assert (one["upper"] - one["lower"] > width + 1e-6).any()


@pytest.mark.parametrize("model", [PBMModel(), UBMModel()])
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.from_pandas])
def test_click_model_in_place_of_propensities(model, frame):
    X, clicks = random_lists()
    X = X.drop(columns=["f0", "f1"]).assign(doc="d" + (X["doc"] % 7).astype(str), click=clicks)
    X = X.assign(cart=0, page="text")  # other columns of the log are not read
    labels = relevance_labels(frame(X), "click", propensity=model, interval=True)
    counts = relevance_labels(X, "click", propensity=[1.0] * 3)
    columns = ["qid", "doc", "clicks", "impressions"]
    pd.testing.assert_frame_equal(labels[columns], counts[columns])
    documents = model.fit(X[["session", "qid", "doc", "position"]], clicks).documents_
    expected = documents.loc[pd.MultiIndex.from_frame(labels[["qid", "doc"]])]
    names = ["relevance", "lower", "upper", "effective_sample", "prior_mean"]
    np.testing.assert_allclose(labels[["label", *names[1:]]], expected[names])


@pytest.mark.parametrize("model", [PBMModel(), DBNModel(), DCTRModel()])
def test_click_models_label_without_intervals(model):
    X, clicks = random_lists()
    labels = relevance_labels(X, clicks, propensity=model)
    counts = relevance_labels(X, clicks, propensity=[1.0] * 3)
    pd.testing.assert_frame_equal(labels.drop(columns="label"), counts.drop(columns="label"))
    documents = model.fit(X, clicks).documents_
    expected = documents["relevance"].loc[pd.MultiIndex.from_frame(labels[["qid", "doc"]])]
    np.testing.assert_array_equal(labels["label"], expected)


def test_click_model_reads_a_dataset(tmp_path):
    X, clicks = random_lists()
    dataset = ClickDataset.from_parquet(X.assign(click=clicks), path=tmp_path / "clicks")
    found = relevance_labels(dataset, propensity=UBMModel(), interval=True)
    expected = relevance_labels(X, clicks, propensity=UBMModel(), interval=True)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:The position determines y")
def test_click_model_labels_what_no_document_connects():
    X = pd.DataFrame({"session": np.repeat(range(50), 2), "qid": 1, "doc": ["a", "b"] * 50})
    X = X.assign(position=[1, 2] * 50)
    with pytest.warns(NotIdentifiableWarning):
        labels = relevance_labels(X, [1, 0] * 50, propensity=UBMModel(), interval=True)
    assert np.isfinite(labels["label"]).all()


def test_click_models_that_give_no_intervals_are_refused():
    X, clicks = random_lists()
    with pytest.raises(ValueError, match=r"no intervals; expected UBMModel\(\) or PBMModel\(\)"):
        relevance_labels(X, clicks, propensity=DBNModel(), interval=True)
    for ranker in (NaiveRanker(), DLARanker()):  # one that predicts clicks, too
        with pytest.raises(ValueError, match="predicts relevance"):
            relevance_labels(X, clicks, propensity=ranker, interval=True)
    with pytest.raises(ValueError, match=r"clip=0\.1"):
        relevance_labels(X, clicks, propensity=UBMModel(), interval=True, clip=0.1)
    with pytest.raises(ValueError, match="expected one of them"):
        relevance_labels(X.assign(propensity=0.5), clicks, propensity=UBMModel(), interval=True)
    with pytest.raises(ValueError, match="is the class UBMModel"):
        relevance_labels(X, clicks, propensity=UBMModel, interval=True)
