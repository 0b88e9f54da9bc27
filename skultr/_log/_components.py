"""Which bias factors hang together: the question that decides whether relevance can be found."""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

__all__ = ["bipartite_components", "comparable_components", "factor_components", "weighted_graph"]


def factor_components(doc, factor, n_factors):
    """Component of each bias factor, where a document links the factors it was shown under.

    Parameters
    ----------
    doc, factor : ndarray of shape (n_rows,), int
        Codes of the shown rows; they may recur.
    n_factors : int
        A factor without a row is a component of its own.

    Returns
    -------
    n_components : int
    labels : ndarray of shape (n_factors,)
    """
    labels = bipartite_components(doc, factor, int(doc.max(initial=-1)) + 1, n_factors)[1]
    found, labels = np.unique(labels, return_inverse=True)
    return len(found), labels


def bipartite_components(doc, factor, n_docs, n_factors):
    """Components of the graph of documents and bias factors.

    Two factors are connected here exactly if they are in the graph that joins all factors of a
    document with each other, whose size is quadratic in the factors of a document.

    Returns
    -------
    document_labels : ndarray of shape (n_docs,)
    factor_labels : ndarray of shape (n_factors,)
    """
    size = n_docs + n_factors
    # Floats, because repeated pairs are added up: small integers would overflow to no edge.
    graph = coo_array((np.ones(len(doc)), (doc, n_docs + factor)), (size, size))
    labels = connected_components(graph, directed=False)[1]
    return labels[:n_docs], labels[n_docs:]


def comparable_components(doc, factor, clicked, n_docs, n_factors):
    """Components in which clicks bound every ratio of examinations from both sides.

    A document that was clicked under one factor and only shown under another says that the first
    is not infinitely worse, and nothing of the other direction: ratios have a finite likeliest
    value exactly within the strong components of "was shown under" and "was clicked under" (the
    condition of Ford 1957 for paired comparisons).

    Parameters
    ----------
    doc, factor : ndarray of shape (n_pairs,), int
    clicked : ndarray of shape (n_pairs,), bool
    n_docs, n_factors : int

    Returns
    -------
    document_labels : ndarray of shape (n_docs,)
    factor_labels : ndarray of shape (n_factors,)
    """
    size = n_docs + n_factors
    node = n_docs + factor
    start, end = np.concatenate([node, doc[clicked]]), np.concatenate([doc, node[clicked]])
    graph = coo_array((np.ones(len(start)), (start, end)), (size, size))
    labels = connected_components(graph, connection="strong")[1]
    return labels[:n_docs], labels[n_docs:]


def weighted_graph(n_nodes, a, b, weight):
    """Edges as the sparse matrix of a graph, for SciPy's searches of trees and paths.

    Before SciPy 1.17 these take nodes that are numbered in 32 bits only.

    Parameters
    ----------
    n_nodes : int
    a, b : ndarray of shape (n_edges,), int
        Ends of the edges.
    weight : ndarray of shape (n_edges,)

    Returns
    -------
    graph : csr_array of shape (n_nodes, n_nodes)
    """
    ends = a.astype(np.int32), b.astype(np.int32)
    return csr_array(coo_array((weight, ends), (n_nodes, n_nodes)))
