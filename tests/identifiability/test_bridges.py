"""Bridges against removal one by one; edges of the clique graph against networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr._log._cells import factor_components
from skultr.identifiability import IdentifiabilityGraph
from skultr.identifiability._bridges import (
    articulation_documents,
    documents_with_other_factors,
    n_clique_edges,
)

logs = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 12)), min_size=1, max_size=30)


def read(rows):
    doc, factor = np.array(rows).T
    graph = IdentifiabilityGraph(doc, factor)
    return graph.pairs.doc, graph.pairs.factor, graph.labels


def clique_graph(doc, factor, n_factors):
    graph = nx.Graph()
    graph.add_nodes_from(range(n_factors))
    for x in np.unique(doc):
        members = factor[doc == x].tolist()
        graph.add_edges_from((a, b) for a in members for b in members if a < b)
    return graph


def removed_one_by_one(doc, factor, labels):
    n_components = labels.max() + 1
    parts = {}
    for x in np.unique(doc).tolist():
        rest = doc != x
        n = factor_components(doc[rest], factor[rest], len(labels))[0]
        if n > n_components:
            parts[x] = n - n_components + 1
    return parts


@settings(max_examples=200, deadline=None)
@given(logs)
def test_bridges_are_the_documents_whose_loss_disconnects(rows):
    doc, factor, labels = read(rows)
    documents, n_parts = articulation_documents(doc, factor, labels)
    found = dict(zip(documents.tolist(), n_parts.tolist(), strict=True))
    assert found == removed_one_by_one(doc, factor, labels)
    assert (np.diff(documents) > 0).all()


def test_edges_in_many_blocks(monkeypatch):
    monkeypatch.setattr("skultr.identifiability._bridges._BLOCK", 50)
    rng = np.random.default_rng(0)
    doc, factor, labels = read(
        np.column_stack([rng.integers(200, size=900), rng.integers(80, size=900)])
    )
    expected = clique_graph(doc, factor, len(labels)).number_of_edges()
    assert n_clique_edges(doc, factor, labels) == expected


def test_a_document_under_every_factor_costs_nothing():
    n = 200_000
    factor = np.arange(n)
    assert n_clique_edges(np.zeros(n, int), factor, np.zeros(n, int)) == n * (n - 1) // 2


def test_bridges_of_a_long_chain():
    n = 200_000
    doc = np.repeat(np.arange(n), 2)
    factor = np.column_stack([np.arange(n), np.arange(1, n + 1)]).ravel()
    documents, n_parts = articulation_documents(doc, factor, np.zeros(n + 1, int))
    assert len(documents) == n
    assert (n_parts == 2).all()
    # Closed to a ring, it needs no document.
    doc, factor = np.append(doc, [n, n]), np.append(factor, [0, n])
    assert not len(articulation_documents(doc, factor, np.zeros(n + 1, int))[0])


def test_bridges_of_a_star_and_of_nothing():
    doc, factor = np.zeros(1000, int), np.arange(1000)
    documents, n_parts = articulation_documents(doc, factor, np.zeros(1000, int))
    assert documents.tolist() == [0]
    assert n_parts.tolist() == [1000]
    alone = np.arange(3)
    assert not len(articulation_documents(alone, alone, alone)[0])
    assert n_clique_edges(alone, alone, alone) == 0


def test_equal_sets_of_factors_are_found_once():
    doc = np.array([0, 0, 1, 2, 2, 3, 3, 3, 4, 4])
    factor = np.array([0, 2, 1, 0, 2, 0, 1, 2, 1, 2])
    kept, new_doc, new_factor, twice = documents_with_other_factors(doc, factor)
    assert kept.tolist() == [0, 3, 4]
    assert new_doc.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert new_factor.tolist() == [0, 2, 0, 1, 2, 1, 2]
    assert twice.tolist() == [True, False, False]


@pytest.mark.parametrize("seed", range(5))
def test_larger_random_logs(seed):
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.integers(400, size=700), rng.integers(300, size=700)])
    doc, factor, labels = read(rows)
    documents, n_parts = articulation_documents(doc, factor, labels)
    found = dict(zip(documents.tolist(), n_parts.tolist(), strict=True))
    assert len(found) > 20
    assert found == removed_one_by_one(doc, factor, labels)
