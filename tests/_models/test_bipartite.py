"""Documents and factors that are held by a bound."""

import numpy as np
import pytest

from skultr._log._cells import Cells
from skultr._models._bipartite import Problem
from skultr._models._tabular import fit_tabular


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
