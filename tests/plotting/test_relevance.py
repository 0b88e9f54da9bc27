import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import UserAwareIPSRanker
from skultr.plotting import RelevanceDisplay
from skultr.preprocessing import OnFeatures

GRADES = [0.1, 0.325, 0.55, 0.775, 1.0]


def shares(display):
    return [[text.get_text() for text in row] for row in display.text_]


def test_estimates_count_as_the_nearest_level():
    truth = [0.1, 0.1, 0.1, 0.5, 1.0, 1.0]
    estimate = [-0.3, 0.29, 0.31, 0.55, 0.74, 7.0]
    display = RelevanceDisplay.from_predictions(truth, estimate)
    assert_array_equal(display.confusion_matrix, [[2, 1, 0], [0, 1, 0], [0, 1, 1]])
    assert_allclose(display.levels, [0.1, 0.5, 1.0])
    assert_allclose(display.im_.get_array(), [[2 / 3, 1 / 3, 0], [0, 1, 0], [0, 0.5, 0.5]])
    assert shares(display) == [["67 %", "33 %", "0"], ["0", "100 %", "0"], ["0", "50 %", "50 %"]]
    assert display.ax_.get_ylabel() == "true relevance"
    assert display.ax_.get_xlabel() == "estimated relevance"


def test_a_perfect_estimate_is_the_diagonal():
    truth = np.random.default_rng(0).choice(GRADES, 200)
    noise = np.random.default_rng(1).normal(0, 1e-12, 200)
    display = RelevanceDisplay.from_predictions(truth + noise, truth)
    assert_array_equal(display.confusion_matrix, np.diag(np.bincount((truth * 4).astype(int))))
    labels = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert labels == ["0.1", "0.325", "0.55", "0.775", "1"]


def test_levels_that_nothing_reaches_and_tiny_shares():
    truth = np.repeat([0.0, 1.0], 500)
    display = RelevanceDisplay.from_predictions(
        truth, np.where(np.arange(1000) == 3, 1.0, truth), levels=[0, 0.5, 1]
    )
    assert_array_equal(display.confusion_matrix, [[499, 0, 1], [0, 0, 0], [0, 0, 500]])
    assert shares(display) == [["100 %", "0", "< 1 %"], ["0", "0", "0"], ["0", "0", "100 %"]]


def test_drawn_again_with_other_names():
    _, ax = pyplot.subplots()
    display = RelevanceDisplay.from_predictions([0, 1], [0, 1], ax=ax)
    assert display.ax_ is ax
    again = display.plot(display_labels=["bad", "good"], cmap="Reds")
    assert again is display
    assert display.ax_ is not ax
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["bad", "good"]
    assert display.im_.get_cmap().name == "Reds"


def test_text_can_be_read_on_every_color():
    display = RelevanceDisplay.from_predictions([0, 1], [0, 1])
    colors = [[text.get_color() for text in row] for row in display.text_]
    assert colors == [["white", "black"], ["black", "white"]]


def log():
    return pd.DataFrame(
        {
            "qid": [1, 1, 2, 2],
            "doc": ["a", "b", "c", "d"],
            "position": [1, 2, 1, 2],
            "impressions": 100,
            "bm25": [0.3, 0.1, 0.2, 0.6],
        }
    )


def test_a_fitted_ranker_wherever_it_is():
    ranker = UserAwareIPSRanker(propensity=[1.0, 0.5], estimator=Ridge())
    pipeline = make_pipeline(OnFeatures(StandardScaler()), ranker)
    rate = [0.9, 0.05, 0.5, 0.5]
    ranker.fit(log(), rate)
    pipeline.fit(log(), rate)
    truth = pd.Series({"a": 1.0, "b": 0.1, "c": 0.1, "e": 0.5})  # of d nothing is known
    search = type("Search", (), {"best_estimator_": pipeline})()
    for estimator in (ranker, pipeline, search, ranker.labels_):
        display = RelevanceDisplay.from_estimator(estimator, truth)
        assert_array_equal(display.confusion_matrix, [[2, 0], [0, 1]])
    display = RelevanceDisplay.from_estimator(ranker, dict(truth), levels=[0.1, 0.4, 1.0])
    assert_array_equal(display.confusion_matrix, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])


def test_bad_input():
    with pytest.raises(NotFittedError):
        RelevanceDisplay.from_estimator(UserAwareIPSRanker(), {"a": 1.0})
    with pytest.raises(TypeError, match="Ridge has no labels of documents"):
        RelevanceDisplay.from_estimator(Ridge().fit([[0.0], [1.0]], [0, 1]), {"a": 1.0})
    with pytest.raises(TypeError, match="DataFrame has no labels of documents"):
        RelevanceDisplay.from_estimator(pd.DataFrame({"doc": ["a"]}), {"a": 1.0})
    labels = pd.DataFrame({"doc": ["a", "b"], "label": [0.5, 0.2]})
    with pytest.raises(TypeError, match=r"truth must be a Series or mapping.*got list"):
        RelevanceDisplay.from_estimator(labels, [0.5, 0.2])
    with pytest.raises(ValueError, match="none of the 2 documents of the labels, such as 'a'"):
        RelevanceDisplay.from_estimator(labels, {1: 0.5})
    with pytest.raises(ValueError, match=r"30 distinct values.*levels="):
        RelevanceDisplay.from_predictions(np.linspace(0, 1, 30), np.zeros(30))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        RelevanceDisplay.from_predictions([0, 1], [0])
    with pytest.raises(ValueError, match=r"y_pred must hold .* 1 of 2 values missing or infinite"):
        RelevanceDisplay.from_predictions([0, 1], [0, np.nan])
    with pytest.raises(ValueError, match=r"y_true must hold .* none"):
        RelevanceDisplay.from_predictions([], [])
    for levels in ([], [1, 0], [0, 0, 1], range(30)):
        with pytest.raises(ValueError, match="levels must be 1 to 20 increasing numbers"):
            RelevanceDisplay.from_predictions([0, 1], [0, 1], levels=levels)
