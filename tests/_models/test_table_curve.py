"""Examination from the same documents under several bias factors."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from skultr._models import _table_curve
from skultr._models._table_curve import pair_curve, table_of_cells

from .._worlds import random_cells


def test_information_is_the_curvature_of_the_likelihood():
    cells = random_cells(400, 20, 4)
    table = table_of_cells(cells)

    def slope(log_examination):
        expected = cells.weight * np.exp(log_examination)[cells.factor]
        share = expected / cells.by_doc(expected)[cells.doc]
        return cells.by_factor(cells.by_doc(cells.clicks)[cells.doc] * share - cells.clicks)

    at, step = table.log_examination, 1e-5
    np.testing.assert_allclose(slope(at), 0, atol=1e-6)
    for direction in np.eye(4):
        curvature = (slope(at + step * direction) - slope(at - step * direction)) / (2 * step)
        np.testing.assert_allclose(table.information @ direction, curvature, atol=1e-6)
    np.testing.assert_allclose(table.information @ np.ones(4), 0, atol=1e-9)


def test_documents_under_thousands_of_factors_connect_them():
    # Each pair of factors shares less than a thousandth of a click, all of them many clicks.
    cells = random_cells(200_000, 100, 5_000)
    table = table_of_cells(cells)
    assert table.is_connected
    clicks = cells.by_factor(cells.clicks)
    most = int(clicks.argmax())
    known = np.sqrt(1 / clicks + 1 / clicks[most])  # with relevance known
    error = table.rough_error(most)
    assert error[most] == 0
    np.testing.assert_allclose(np.delete(error / known, most), 1, atol=0.01)
    same = table.combined(table.log_examination)
    np.testing.assert_allclose(np.ptp(same.log_examination - table.log_examination), 0, atol=1e-6)
    assert same.p_value == pytest.approx(1)


def test_curves_of_many_factors_are_those_of_few_with_errors_of_what_is_compared(monkeypatch):
    cells = random_cells(20_000, 100, 30)
    mean, spread = -np.log1p(np.arange(30)), np.full(30, 0.3)
    effects = csr_array(np.column_stack([np.arange(30) / 30, np.ones(30)]))

    def curves():
        table = table_of_cells(cells)
        return [
            *pair_curve(cells, effects, mean, np.array([1.0, 0.5]))[:2],
            *table.with_prior(mean, spread),
            *table.combined(mean, 3)[:2],
        ]

    few, few_error, prior, prior_error, joined, joined_error = curves()
    monkeypatch.setattr(_table_curve, "MAX_DENSE", 0)
    monkeypatch.setattr(_table_curve, "FEW_FACTORS", 0)
    many, many_error, *others = curves()
    np.testing.assert_allclose([many, others[0], others[2]], [few, prior, joined], atol=1e-5)
    # 100 documents with 200 impressions: their relevance costs hardly any precision.
    np.testing.assert_allclose(many_error, few_error, rtol=0.05)
    assert [few_error[0], prior_error[0], joined_error[3], others[1][0], others[3][3]] == [0] * 5
    np.testing.assert_allclose(others[1][1:], 0.3 * np.sqrt(2))  # of the prior alone
    assert np.isnan(np.delete(others[3], 3)).all()
    known = cells.by_factor(cells.clicks) + 0.3**-2
    np.testing.assert_allclose(prior_error[1:], np.sqrt(1 / known + 1 / known[0])[1:], rtol=0.05)


@pytest.mark.parametrize(("n_docs", "n_factors"), [(40, 60), (400, 60), (40, 90)])
def test_errors_of_many_pairs_count_that_effects_are_not_known(monkeypatch, n_docs, n_factors):
    # A quarter of the pairs share each effect of the prior, which is hardly known before the
    # clicks: pairs of different effects err by far more than their own deviation.
    cells = random_cells(3_000, n_docs, n_factors)
    effects = csr_array(np.eye(4)[np.arange(n_factors) % 4])

    def curve():
        return pair_curve(cells, effects, np.zeros(n_factors), np.full(4, 2.0))

    few = curve()
    monkeypatch.setattr(_table_curve, "FEW_FACTORS", 0)
    many = curve()
    np.testing.assert_allclose(many.log_examination, few.log_examination, atol=1e-4)
    np.testing.assert_allclose(many.standard_error, few.standard_error, rtol=0.1)


def test_a_network_that_is_too_steep_tells_as_much():
    table = table_of_cells(random_cells(100_000, 100, 8, fall=1.0))
    right, steep = (table.combined(factor * table.log_examination) for factor in (1, 2))
    np.testing.assert_allclose(np.ptp(steep.log_examination - right.log_examination), 0, atol=1e-3)
    np.testing.assert_allclose(steep.standard_error, right.standard_error, rtol=1e-3)
    assert steep.p_value < 1e-9 < right.p_value
