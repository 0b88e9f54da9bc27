import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skultr.plotting import EmbeddingDisplay


class Ranker(BaseEstimator):
    """What the display needs of a fitted ranker, in a basis of its own."""

    def __init__(self, relevance=None, observation=None, base=None, basis=None):
        self.relevance, self.observation, self.base = relevance, observation, base
        self.basis = basis

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return self.relevance is not None

    @property
    def observation_embedding_(self):
        away = np.linalg.inv(self.basis).T
        index = pd.RangeIndex(1, len(self.observation) + 1, name="bias")
        return pd.DataFrame(self.observation @ away, index=index)

    def relevance_embedding(self, X):
        return self.relevance[np.asarray(X["row"])] @ self.basis

    def base_vectors(self, X, *, qid=None):
        return pd.DataFrame(self.base @ np.linalg.inv(self.basis).T, index=np.unique(qid))


def ranker(d, n_factors=6, basis=None):
    rng = np.random.default_rng(d)
    observation = rng.normal(size=(n_factors, d)) + 1
    base = observation[:2].mean(axis=0) + 0.1 * rng.normal(size=(4, d))
    basis = np.eye(d) if basis is None else basis
    return Ranker(rng.normal(size=(40, d)) + 2, observation, base, basis)


def documents():
    row = np.arange(40)
    return pd.DataFrame({"row": row, "qid": row // 10, "relevance": row % 5})


def coordinates(display):
    parts = (display.relevance_embedding, display.observation_embedding, display.base_vectors)
    return [np.asarray(part) for part in parts]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_picture_does_not_depend_on_the_basis(d):
    display = EmbeddingDisplay.from_estimator(ranker(d), documents())
    basis = np.random.default_rng(9).normal(size=(d, d))
    other = EmbeddingDisplay.from_estimator(ranker(d, basis=basis), documents())
    for one, two in zip(coordinates(display), coordinates(other), strict=True):
        assert_allclose(one, two, atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_products_stay(d):
    model = ranker(d)
    display = EmbeddingDisplay.from_estimator(model, documents())
    found, factors, bases = coordinates(display)
    centered = model.relevance - model.relevance.mean(axis=0)
    assert_allclose(found @ factors.T, centered @ model.observation.T, atol=1e-9)
    assert_allclose(found @ bases.T, centered @ model.base.T, atol=1e-9)
    assert_allclose(factors.T @ factors / len(factors), np.eye(d), atol=1e-9)


def test_axes_are_the_mean_base_vector_and_then_the_spread():
    display = EmbeddingDisplay.from_estimator(ranker(4), documents())
    found, factors, bases = coordinates(display)
    mean = bases.mean(axis=0)
    assert mean[0] > 0
    assert_allclose(mean[1:], 0, atol=1e-9)
    spread = np.cov(found[:, 1:].T, bias=True)
    assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-9)
    assert (np.diff(np.diag(spread)) < 0).all()
    assert (factors[0, 1:] >= 0).all()
    share = spread[0, 0] / np.trace(spread)
    assert display.ax_.get_ylabel() == (
        f"across the mean base vector,\nfirst of 3 principal axes ({share:.0%} of their spread)"
    )


def test_what_is_drawn():
    data = documents()
    display = EmbeddingDisplay.from_estimator(ranker(2), data)
    found, factors, bases = coordinates(display)
    order = np.argsort(data["relevance"], kind="stable")
    assert_allclose(display.points_.get_offsets(), found[order])
    assert_allclose(display.points_.get_array(), data["relevance"][order])
    means = pd.DataFrame(found).groupby(data["relevance"]).mean()
    assert_allclose(display.means_.get_offsets(), means)
    assert len(np.unique(display.means_.to_rgba(np.arange(5)), axis=0)) == 5
    assert_allclose(display.base_points_.get_offsets(), display.arrow_scale_ * bases)
    assert list(display.arrows_) == [1, 2, 3, 4, 5, 6]
    tips = [arrow.xy for arrow in display.arrows_.values()]
    assert_allclose(tips, display.arrow_scale_ * factors)
    # The longest arrow ends just within the documents, of which one of 50 is farther away.
    reach = np.quantile(np.linalg.norm(found, axis=1), 0.98)
    assert_allclose(np.linalg.norm(tips, axis=1).max(), 0.9 * reach)
    assert [text.get_text() for text in display.text_] == list("123456")
    assert display.ax_.get_aspect() == 1.0
    assert display.figure_ is display.ax_.figure


def test_one_axis_is_drawn_as_a_line():
    display = EmbeddingDisplay.from_estimator(ranker(1), documents())
    heights = display.points_.get_offsets()[:, 1]
    below = [arrow.xy[1] for arrow in display.arrows_.values()]
    assert len(set(below)) == 6
    assert max(below) < heights.min()
    assert display.ax_.get_yticks().size == 0


def test_embeddings_of_one_factor_span_one_axis():
    model = ranker(2)
    model.observation = np.outer(np.arange(1, 7), [1.0, 1.0])
    display = EmbeddingDisplay.from_estimator(model, documents())
    found, factors, _ = coordinates(display)
    assert found.shape == (40, 1)
    centered = model.relevance - model.relevance.mean(axis=0)
    assert_allclose(found @ factors.T, centered @ model.observation.T, atol=1e-9)


def test_many_factors_have_no_names_and_many_grades_no_means():
    relevance = np.linspace(0, 1, 40)
    display = EmbeddingDisplay.from_estimator(
        ranker(2, n_factors=30), documents(), relevance=relevance
    )
    assert display.text_ == []
    assert len(display.arrows_) == 30
    assert display.means_ is None


def test_inside_a_pipeline_and_on_given_axes():
    model, data = ranker(2), documents()
    # What the step drops is read from X itself.
    select = FunctionTransformer(lambda X: X[["row"]])
    _, ax = pyplot.subplots()
    display = EmbeddingDisplay.from_estimator(make_pipeline(select, model), data, ax=ax)
    assert display.ax_ is ax
    alone = EmbeddingDisplay.from_estimator(model, data, cmap="cividis")
    assert_allclose(coordinates(display)[0], coordinates(alone)[0])
    assert display.plot() is display
    assert display.ax_ is not ax


def test_one_grade():
    display = EmbeddingDisplay.from_estimator(
        ranker(2), documents(), relevance=np.zeros(40), qid=documents()["qid"]
    )
    assert len(display.means_.get_offsets()) == 1


def test_bad_input():
    data = documents()
    with pytest.raises(NotFittedError):
        EmbeddingDisplay.from_estimator(Ranker(), data)
    with pytest.raises(TypeError, match="FunctionTransformer has no embeddings"):
        EmbeddingDisplay.from_estimator(FunctionTransformer(), data)
    with pytest.raises(ValueError, match="no column 'relevance'"):
        EmbeddingDisplay.from_estimator(ranker(2), data.drop(columns="relevance"))
    with pytest.raises(ValueError, match=r"'relevance' has shape \(3,\); expected one value"):
        EmbeddingDisplay.from_estimator(ranker(2), data, relevance=[0, 1, 2])
    with pytest.raises(ValueError, match="missing in 1 of 40 rows"):
        EmbeddingDisplay.from_estimator(
            ranker(2), data, relevance=data["relevance"].where(data["row"] > 0)
        )
