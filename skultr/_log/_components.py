"""Connected components of bias factors, which decide whether a log determines relevance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from .._base._typing import Bools, Ints


def factor_components(doc: Ints, factor: Ints, n_factors: int) -> tuple[int, Ints]:
    """Component of each bias factor; a document links the factors it was shown under."""
    labels = bipartite_components(doc, factor, int(doc.max(initial=-1)) + 1, n_factors)[1]
    found, labels = np.unique(labels, return_inverse=True)
    return len(found), labels


def bipartite_components(
    doc: Ints, factor: Ints, n_docs: int, n_factors: int
) -> tuple[Ints, Ints]:
    """Component of each document and of each bias factor in their bipartite graph.

    Two factors are connected here exactly if they are connected in the graph that links every two
    factors of a document, whose size would be quadratic in the factors of a document.
    """
    size = n_docs + n_factors
    # Floats, because repeated pairs are summed: small integers could overflow to 0, which is no
    # edge.
    graph = coo_array((np.ones(len(doc)), (doc, n_docs + factor)), (size, size))
    labels = connected_components(graph, directed=False)[1]
    return labels[:n_docs], labels[n_docs:]


def comparable_components(
    doc: Ints, factor: Ints, clicked: Bools, n_docs: int, n_factors: int
) -> tuple[Ints, Ints]:
    """Component of each document and factor, within which clicks bound all ratios of examinations.

    A document with clicks under factor a that was shown under factor b without clicks bounds the
    ratio o_a / o_b from below, and not from above. The maximum-likelihood estimate of a ratio is
    finite exactly within the strong components of the directed graph with an edge from factor to
    document for "was shown under" and one from document to factor for "was clicked under" (the
    condition of Ford 1957 for paired comparisons).
    """
    size = n_docs + n_factors
    node = n_docs + factor
    start, end = np.concatenate([node, doc[clicked]]), np.concatenate([doc, node[clicked]])
    graph = coo_array((np.ones(len(start)), (start, end)), (size, size))
    labels = connected_components(graph, connection="strong")[1]
    return labels[:n_docs], labels[n_docs:]


def weighted_graph(n_nodes: int, a: Ints, b: Ints, weight: NDArray[Any]) -> csr_array:
    """Sparse matrix of a weighted graph, for SciPy's spanning trees and shortest paths.

    Node numbers have 32 bits, because SciPy before 1.17 accepts no others there.
    """
    ends = a.astype(np.int32), b.astype(np.int32)
    return csr_array(coo_array((weight, ends), (n_nodes, n_nodes)))
