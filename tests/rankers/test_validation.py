"""``fit(validation=)``: a log of one's own stops the training, and teaches nothing."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._testing import ignore_warnings

from skultr import ClickDataset
from skultr.click_models import DCTRModel
from skultr.exceptions import ClickDataWarning
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import (
    AffineRanker,
    DLARanker,
    IPSRanker,
    NaiveRanker,
    PairDebiasRanker,
    PRSRanker,
    RegressionEMRanker,
    TwoTowerRanker,
    UserAwareIPSRanker,
)
from tests._worlds import FEATURES, random_lists

pytestmark = pytest.mark.filterwarnings("ignore")

CURVE = [1.0, 0.6, 0.4]
RANKERS = [
    NaiveRanker(),
    NaiveRanker(loss="lambda"),
    IPSRanker(),
    IPSRanker(propensity=CURVE),
    IPSRanker(propensity=CURVE, loss="mse"),
    UserAwareIPSRanker(propensity=CURVE),
    DLARanker(),
    RegressionEMRanker(),
    TwoTowerRanker(examination="network"),
    PairDebiasRanker(),
]


@pytest.fixture(scope="module")
def logs():
    """A log to learn from, and one of other sessions."""
    log, clicks = random_lists(n_sessions=400, n_queries=8)
    later = (log["session"] >= 250).to_numpy()
    return (log[~later], clicks[~later]), (log[later], clicks[later])


def brief(ranker, **settings):
    settings = {"max_epochs": 2, "hidden_layer_sizes": (4,), "random_state": 0} | settings
    return clone(ranker).set_params(**settings)


@pytest.mark.parametrize("ranker", RANKERS, ids=repr)
def test_validation_gives_the_validation_loss_and_nothing_else(ranker, logs):
    training, (X, y) = logs
    fits = [brief(ranker).fit(*training, validation=(X, clicks)) for clicks in (y, 1 - y)]
    train, valid = ([fit.history_[name] for fit in fits] for name in ("train_loss", "valid_loss"))
    assert np.abs(valid[0] - valid[1]).max() > 1e-6
    if not hasattr(fits[0], "choice_"):  # else the two may have kept different corrections
        np.testing.assert_array_equal(*train)
    assert all("_validation" not in vars(fit) for fit in fits)
    assert hasattr(fits[0], "examination_") == hasattr(fits[1], "examination_")
    if hasattr(fits[0], "examination_"):
        assert fits[0].examination_["impressions"].sum() == len(training[0])


def test_no_query_is_held_out(logs):
    """One epoch on all queries, as without early stopping."""
    training, validation = logs
    one = brief(NaiveRanker(), max_epochs=1)
    stopped = clone(one).fit(*training, validation=validation)
    all_queries = one.fit(*training)
    for found, expected in zip(
        stopped.network_.parameters(), all_queries.network_.parameters(), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_best_epoch_for_the_validation_log_is_kept(logs):
    """Clicks that contradict those of training stop it at once."""
    (X, _), (later, _) = logs
    clicks = [(part["f0"] > 0).to_numpy(dtype=float) for part in (X, later)]
    ranker = brief(NaiveRanker(), max_epochs=30, n_iter_no_change=3, learning_rate=0.05)
    against = clone(ranker).fit(X, clicks[0], validation=(later, 1 - clicks[1]))
    along = clone(ranker).fit(X, clicks[0], validation=(later, clicks[1]))
    assert against.n_iter_ == 4
    assert along.n_iter_ > 10
    assert along.history_["valid_loss"].idxmin() > against.history_["valid_loss"].idxmin() == 1


@pytest.mark.parametrize("ranker", [NaiveRanker(), IPSRanker(), DLARanker()], ids=repr)
def test_frames_and_datasets_validate_alike(ranker, logs, tmp_path):
    (X, y), (later, clicks) = logs
    training, dataset = (
        ClickDataset.from_parquet(X.assign(click=y), path=tmp_path / name)
        for name, (X, y) in zip(("training", "later"), logs, strict=True)
    )
    expected = brief(ranker).fit(X, y, validation=(later, clicks)).history_
    named = later.assign(click=clicks), "click"
    for fit in (
        brief(ranker).fit(X, y, validation=named),
        brief(ranker).fit(X, y, validation=dataset),
        brief(ranker).fit(training, validation=dataset),
    ):
        np.testing.assert_allclose(fit.history_, expected, rtol=1e-6)


def test_validation_that_cannot_be_used_is_refused(logs):
    training, (X, y) = logs
    for ranker in (
        DCTRModel(),
        AffineRanker(),
        PRSRanker(propensity=CURVE),
        DLARanker(relevance="embedding"),
    ):
        with pytest.raises(TypeError, match="takes no validation with these parameters"):
            clone(ranker).fit(*training, validation=(X, y))
    with pytest.raises(TypeError, match=r"a pair \(X, y\), a frame with the column 'click'"):
        NaiveRanker().fit(*training, validation=X)
    with pytest.raises(ValueError, match="validation has no clicks"):
        NaiveRanker().fit(*training, validation=(X, np.zeros(len(X))))
    with pytest.raises(ValueError, match="feature names"):
        NaiveRanker().fit(*training, validation=(X.drop(columns="f1"), y))
    top = (training[0]["position"] < 3).to_numpy()
    with pytest.raises(ValueError, match=r"such as 3, were not in the log"):
        brief(DLARanker()).fit(training[0][top], training[1][top], validation=(X, y))


@ignore_warnings
def test_a_search_passes_the_validation_log_on(logs):
    (X, y), validation = logs
    search = GridSearchCV(
        brief(NaiveRanker()),
        {"learning_rate": [0.001, 0.1]},
        cv=QueryKFold(2),
        scoring=lambda ranker, *_: -ranker.history_["valid_loss"].min(),
        error_score="raise",
    ).fit(X, y, validation=validation)
    assert search.best_estimator_.predict(X[FEATURES]).shape == (len(X),)
    assert "valid_loss" in search.best_estimator_.history_


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_a_pipeline_transforms_the_validation_log_if_it_is_told_to(module, logs):
    """As if both logs had been transformed by hand."""
    (X, y), (later, clicks) = logs
    later = later.assign(click=clicks)
    steps = OnFeatures(StandardScaler()).fit(X)
    by_hand = steps.transform(later.drop(columns="click"))
    expected = brief(NaiveRanker()).fit(steps.transform(X), y, validation=(by_hand, clicks))
    if module == "polars":
        X, later = (pytest.importorskip("polars").from_pandas(each) for each in (X, later))
    ranker = make_pipeline(clone(steps), brief(NaiveRanker()), transform_input=["validation"])
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error", ClickDataWarning)
        found = ranker.fit(X, y, validation=later)[-1]
    np.testing.assert_allclose(found.history_, expected.history_, rtol=1e-6)


def test_a_validation_log_that_no_step_transformed_is_refused(logs):
    (X, y), validation = logs
    other = make_pipeline(OnFeatures(PCA(1)), brief(NaiveRanker()))
    message = r"validation cannot be read: .*feature names(.|\n)*transform_input=\['validation'\]"
    with pytest.raises(ValueError, match=message):
        other.fit(X, y, naiveranker__validation=validation)


def test_other_faults_of_a_validation_log_have_no_advice_on_pipelines(logs):
    training, (X, y) = logs
    with pytest.raises(ValueError, match="validation cannot be read") as caught:
        NaiveRanker().fit(*training, validation=(X.assign(position=-1), y))
    assert "Pipeline" not in str(caught.value)


def test_a_fault_of_a_validation_log_keeps_its_class(logs, monkeypatch):
    class Fault(ValueError):
        pass

    def raises(*args, reset):
        if not reset:
            raise Fault("Something else.")
        return read(*args, reset=reset)

    training, validation = logs
    read = NaiveRanker._read_rows
    monkeypatch.setattr(NaiveRanker, "_read_rows", raises)
    with pytest.raises(Fault, match="validation cannot be read: Something else"):
        NaiveRanker(max_epochs=1).fit(*training, validation=validation)


def test_a_frame_with_clicks_validates_as_its_pair(logs):
    training, (X, y) = logs
    fits = [
        brief(NaiveRanker()).fit(*training, validation=validation)
        for validation in ((X, y), X.assign(click=y))
    ]
    np.testing.assert_array_equal(*(fit.history_ for fit in fits))
