import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal

from skultr.exceptions import ClickDataWarning
from skultr.metrics import CMIPScorer, cmip_score
from skultr.plotting import DebiasednessDisplay


class Column:
    """A model whose scores are a column of X."""

    def __init__(self, name):
        self.name = name

    def predict(self, X):
        return np.asarray(X[self.name], dtype=float)


def documents(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, n), rng.uniform(1, 10, n), rng.normal(size=n)


def log():
    """Two queries of 40 documents, each shown twice; the last five are not annotated."""
    rng = np.random.default_rng(0)
    first = pd.DataFrame({"doc": np.arange(80), "qid": np.repeat([7, 3], 40)})
    first["position"] = np.tile(np.arange(1, 41), 2)
    first["relevance"] = np.where(first["doc"] < 75, first["doc"] % 2, np.nan)
    first["score"] = rng.normal(size=80) - 0.1 * first["position"]
    second = first.assign(position=first["position"] + 2)
    X = pd.concat(
        [first.assign(session=0, impressions=3), second.assign(session=1, impressions=1)]
    )
    return X.sample(frac=1, random_state=0).reset_index(drop=True)


def test_from_predictions_draws_each_document_in_the_colour_of_its_grade():
    grade, logged, score = documents()
    _, ax = pyplot.subplots()
    display = DebiasednessDisplay.from_predictions(
        score, logged, grade, cmip_estimator="knn", ax=ax, name="model"
    )
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    for value in range(3):
        points = display.points_[value].get_offsets()
        assert_allclose(points, np.c_[logged, score][grade == value])
    assert len({tuple(p.get_facecolor()[0]) for p in display.points_.values()}) == 3
    expected = cmip_score(score, logged, grade, estimator="knn", random_state=0)
    assert display.cmip == expected
    assert f"CMIP = {abs(expected):.2f} " in ax.get_title()
    assert ax.get_title().startswith("model hardly")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["grade 0", "grade 1", "grade 2"]


def test_lines_are_means_along_the_logged_positions():
    logged = np.arange(1.0, 81)
    display = DebiasednessDisplay.from_predictions(
        3 * logged, logged, np.ones(80), cmip_estimator="knn"
    )
    x, y = display.lines_[1].get_data()
    assert_allclose(x, np.arange(5.5, 80, 10))
    assert_allclose(y, 3 * x)


def test_a_grade_of_few_documents_has_no_line():
    grade, logged, score = documents()
    grade = np.where(np.arange(300) < 19, 5, np.minimum(grade, 1))
    with pytest.warns(ClickDataWarning, match="19 documents left out"):
        display = DebiasednessDisplay.from_predictions(score, logged, grade, cmip_estimator="knn")
    assert set(display.points_) == {0, 1, 5}
    assert set(display.lines_) == {0, 1}


def test_from_estimator_takes_each_annotated_document_once_at_its_mean_position():
    X = log()
    display = DebiasednessDisplay.from_estimator(Column("score"), X, cmip_estimator="knn")
    assert len(display.documents) == 75
    truth = X[X["session"] == 0].set_index("doc").loc[np.arange(75)]
    found = display.documents.sort_values("score")
    truth = truth.sort_values("score")
    assert_allclose(found["score"], truth["score"])
    assert_allclose(found["logged"], truth["position"] + 0.5)
    assert_array_equal(found["grade"], truth["relevance"])
    scorer = CMIPScorer(estimator="knn")
    assert_allclose(display.cmip, -scorer(Column("score"), X))


def test_a_column_for_the_logging_policy():
    X = log().assign(production=lambda X: -(X["doc"] % 7.0))
    display = DebiasednessDisplay.from_estimator(
        Column("score"), X.drop(columns="position"), logging="production", cmip_estimator="knn"
    )
    assert display.ax_.get_xlabel() == "production"
    assert set(display.documents["logged"]) == set(-np.arange(7.0))
    scorer = CMIPScorer(logging="production", estimator="knn")
    assert display.cmip == -scorer(Column("score"), X)


def test_drawn_again_with_other_names():
    grade, logged, score = documents()
    display = DebiasednessDisplay.from_predictions(score, logged, grade, cmip_estimator="knn")
    before = display.ax_
    assert display.plot(logging_name="BM25", cmap=pyplot.get_cmap("plasma")) is display
    assert display.ax_ is not before
    assert display.ax_.get_xlabel() == "BM25"
    assert display.ax_.get_title().startswith("the model hardly")


@pytest.mark.parametrize("role", ["qid", "position", "relevance"])
def test_missing_role(role):
    with pytest.raises(ValueError, match=f"no column '{role}'.*DebiasednessDisplay needs"):
        DebiasednessDisplay.from_estimator(Column("score"), log().drop(columns=role))


def test_nothing_annotated():
    X = log()
    X["relevance"] = X["relevance"].where(X["doc"] < 0)
    with pytest.raises(ValueError, match="annotated"):
        DebiasednessDisplay.from_estimator(Column("score"), X)
