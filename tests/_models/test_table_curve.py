"""Examination from the same documents under several bias factors."""

import numpy as np
import pytest

from skultr._log._cells import Cells
from skultr._models._table_curve import table_of_cells


def _random_cells(n_rows, n_docs, n_factors):
    rng = np.random.default_rng(0)
    doc, factor = rng.integers(n_docs, size=n_rows), rng.integers(n_factors, size=n_rows)
    clicks = (rng.random(n_rows) < 0.3).astype(float)
    return Cells.from_rows(doc, factor, clicks, np.ones(n_rows), n_docs, n_factors)


def test_information_is_the_curvature_of_the_likelihood():
    cells = _random_cells(400, 20, 4)
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
    cells = _random_cells(200_000, 100, 5_000)
    table = table_of_cells(cells)
    assert table.is_connected
    same = table.combined(table.log_examination)
    np.testing.assert_allclose(np.ptp(same.log_examination - table.log_examination), 0, atol=1e-6)
    assert same.p_value == pytest.approx(1)
