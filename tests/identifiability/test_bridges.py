"""Bridges against removal one by one; edges of the clique graph against networkx."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr.identifiability import IdentifiabilityGraph

logs = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 12)), min_size=1, max_size=30)


def bridges(doc, factor):
    """Document -> number of parts without it."""
    table = IdentifiabilityGraph(doc, factor).bridges()
    return dict(zip(table["doc"], table["n_parts"], strict=True))


def removed_one_by_one(doc, factor):
    graph = IdentifiabilityGraph(doc, factor)
    parts = {}
    for x in np.unique(doc).tolist():
        rest = doc != x
        n = graph.n_factors
        if rest.any():
            left = IdentifiabilityGraph(doc[rest], factor[rest])
            n += left.n_components - left.n_factors  # factors of x alone are parts of their own
        if n > graph.n_components:
            parts[x] = n - graph.n_components + 1
    return parts


@settings(max_examples=200, deadline=None)
@given(logs)
def test_bridges_are_the_documents_whose_loss_disconnects(rows):
    doc, factor = np.array(rows).T
    assert bridges(doc, factor) == removed_one_by_one(doc, factor)


@pytest.mark.parametrize("seed", range(5))
def test_larger_random_logs(seed):
    rng = np.random.default_rng(seed)
    doc, factor = rng.integers(400, size=700), rng.integers(300, size=700)
    found = bridges(doc, factor)
    assert len(found) > 20
    assert found == removed_one_by_one(doc, factor)


def test_bridges_of_a_long_chain():
    n = 200_000
    doc = np.repeat(np.arange(n), 2)
    factor = np.column_stack([np.arange(n), np.arange(1, n + 1)]).ravel()
    found = bridges(doc, factor)
    assert len(found) == n
    assert set(found.values()) == {2}
    # Closed to a ring, it needs no document.
    assert not bridges(np.append(doc, [n, n]), np.append(factor, [0, n]))


def test_bridges_of_a_star():
    assert bridges(np.zeros(1000, int), np.arange(1000)) == {0: 1000}
