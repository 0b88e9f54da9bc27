"""Both sides of each number that decides something about a user's log."""

import numpy as np
import pytest

from skultr._log._cells import Cells
from skultr._models._tabular import LearnsRelevance, fit_cells
from skultr._models._thresholds import CLICKS_FOR_ERRORS, FEW_CLICKS


def _cells(clicks_per_document, n_docs=6):
    """Documents under two factors, the second of which gets a third as many clicks."""
    doc = np.repeat(np.arange(n_docs), 2)
    factor = np.tile([0, 1], n_docs)
    clicks = np.tile([0.75, 0.25], n_docs) * clicks_per_document
    weight = np.full(2 * n_docs, 2.0 * clicks_per_document)
    return Cells.from_rows(doc, factor, clicks, weight)


@pytest.mark.parametrize(("missing", "loss"), [(0, "likelihood"), (0.1, "poisson")])
def test_documents_of_few_clicks_are_compared_within_themselves(missing, loss):
    cells = _cells(FEW_CLICKS.value - missing)
    assert LearnsRelevance()._loss_of(cells) == loss


@pytest.mark.parametrize(
    ("loss", "least"), [("likelihood", CLICKS_FOR_ERRORS.value), ("squares", FEW_CLICKS.value)]
)
@pytest.mark.parametrize("missing", [0, 0.1])
def test_errors_need_so_many_clicks_per_document(loss, least, missing):
    error = fit_cells(_cells(least - missing), loss=loss).standard_error(0)
    assert np.isnan(error[1]) == bool(missing)
