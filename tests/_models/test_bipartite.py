"""Documents and factors that are held by a bound."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from skultr._log._cells import Cells
from skultr._models import _solve
from skultr._models._tabular import Problem, fit_tabular


@pytest.mark.parametrize(("clicks", "held"), [(50.0, False), (50.09, False), (50.11, True)])
def test_what_presses_by_a_hundredth_of_its_noise_is_held(clicks, held):
    """100 impressions at examination 1/2 of a document that is relevant for certain.

    The gradient of its least squares is (100 / 2 - clicks) / 2, and its noise the root of the
    curvature, sqrt(100 / 4) = 5: the bound holds it above 50 + 2 * 0.01 * 5 = 50.1 clicks.
    """
    one = np.array([0])
    cells = Cells.from_rows(one, one, np.array([clicks]), np.array([100.0]))
    docs, factors = Problem(cells, "product", "squares").held_by_bound(
        np.array([0.0]), np.log(np.array([0.5]))
    )
    assert docs.tolist() == [held]
    assert factors.tolist() == [False]  # within its bounds


def test_document_with_more_clicks_than_examination_allows_is_held_by_the_bound():
    """Document 0 is clicked at both places alike, where the others say that one is half."""
    doc, factor = np.divmod(np.arange(10), 2)
    rate = np.where(factor == 0, 0.8, 0.4)
    rate[:2] = 0.9
    fit = fit_tabular(doc, factor, 1_000 * rate, np.full(10, 1_000.0), loss="squares")
    assert fit.bounded_docs.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("loss", ["likelihood", "poisson"])
def test_many_factors_are_solved_by_the_cheaper_method(loss, monkeypatch):
    """Documents under few of 300 factors: conjugate gradients, and the estimate is the same."""
    rng = np.random.default_rng(0)
    doc, factor = rng.integers(400, size=8_000), rng.integers(300, size=8_000)
    rate = rng.beta(1, 3, 400)[doc] * rng.uniform(0.1, 1, 300)[factor]
    rows = doc, factor, rng.binomial(50, rate).astype(float), np.full(8_000, 50.0)
    with monkeypatch.context() as patch:
        patch.setattr(_solve, "FEW_FACTORS", 300)
        dense = fit_tabular(*rows, loss=loss)
    monkeypatch.setattr(_solve, "solve_scaled", None)
    cheap = fit_tabular(*rows, loss=loss)
    np.testing.assert_allclose(cheap.factor_logits, dense.factor_logits, rtol=1e-6, atol=1e-7)


def test_a_chain_of_factors_is_solved_by_sparse_factors(monkeypatch):
    """Each document links two neighbours: conjugate gradients would need a step per link."""
    n = 200
    doc = np.repeat(np.arange(n - 1), 2)
    factor = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1).ravel()
    truth = np.random.default_rng(0).uniform(0.3, 1, n)
    monkeypatch.setattr(_solve, "solve_scaled", None)
    fit = fit_tabular(doc, factor, 1e4 * 0.5 * truth[factor], np.full(len(doc), 1e4))
    found = np.exp(fit.factor_logits - fit.factor_logits[0])
    np.testing.assert_allclose(found, truth / truth[0], rtol=1e-5)


@pytest.mark.parametrize("degree", [2, 60])
def test_a_system_of_more_factors_than_a_dense_matrix_takes(degree, monkeypatch):
    """Groups of neighbours in a ring, with information from 1e-3 to 1e3, and a weak prior."""
    rng, n = np.random.default_rng(degree), 400
    place = (rng.integers(n, size=(4 * n, 1)) + rng.integers(degree, size=(4 * n, degree))) % n
    share = rng.gamma(0.5, size=place.shape) + 1e-6
    share *= (10 ** rng.uniform(-3, 3, 4 * n) / share.sum(axis=1))[:, None]
    offsets = np.arange(0, share.size + 1, degree)
    coupling = csr_array((share.ravel(), place.ravel(), offsets), shape=(4 * n, n))
    own = coupling.sum(axis=0) + 1e-4
    matrix = _solve.Eliminated(own, coupling, 1 / share.sum(axis=1))
    right = rng.normal(size=n) * own
    expected = np.linalg.solve(matrix.dense(), right)
    monkeypatch.setattr(_solve, "MAX_DENSE", 0)
    error = np.abs(matrix.solve(right) - expected).max() / np.abs(expected).max()
    assert error < 1e-4
    # Without sparse factors a chain is not solved.
    monkeypatch.setattr(_solve, "_LONGEST_ROW", 0)
    is_solved = np.abs(matrix.solve(right) - expected).max() < 1e-3 * np.abs(expected).max()
    assert is_solved == (degree > 2)
