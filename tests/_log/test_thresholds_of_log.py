"""Each number that decides something, on both sides."""

import numpy as np
import pytest

from skultr._log._units import units_in


def _findings(reads, n_without_order):
    """Sentences on a ranking of 30 queries, some of which have one score for all documents."""
    query = np.repeat(np.arange(30), 4)
    scores = np.random.default_rng(0).normal(size=len(query))
    scores[query < n_without_order] = 0.0
    return [message for _, message in units_in(reads, scores, query, "'new'")]


@pytest.mark.parametrize(("n_without_order", "is_told"), [(2, False), (3, True)])
def test_rankings_that_lack_scores_are_told(n_without_order, is_told):
    found = _findings("scores", n_without_order)
    assert any("is chance" in each for each in found) == is_told


@pytest.mark.parametrize(("n_without_order", "is_told"), [(26, False), (27, True)])
def test_rankers_that_learned_nothing_are_told(n_without_order, is_told):
    found = _findings("fitted", n_without_order)
    assert any("nothing that orders them was learned" in each for each in found) == is_told
