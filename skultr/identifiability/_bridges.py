"""Documents whose removal disconnects the identifiability graph, and its number of edges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from .._log._hashing import mix
from .._typing import Bools, Ints

#: Products per block of the clique graph; this bounds the memory and does not change the result.
_BLOCK = 1 << 24


def articulation_documents(doc: Ints, factor: Ints, factor_labels: Ints) -> tuple[Ints, Ints]:
    """Documents whose removal splits a component of factors, and into how many parts.

    Tarjan and Vishkin's reduction (1985, SIAM Journal on
    Computing 14): biconnected components are the components of an auxiliary
    graph on the edges of any spanning tree. The time is O(n log n), whatever the depth of the
    graph; the logarithm comes from the interval minima.
    """
    kept, doc, factor, twice = documents_with_other_factors(doc, factor)
    if not len(kept):
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    n_docs, n_factors = len(kept), len(factor_labels)
    parent, low, high, before, size, u, v = _tree(doc, factor, n_docs, factor_labels)
    # From here on nodes are numbered in preorder; node w stands for the tree edge to its parent.
    apart = v >= u + size[u]
    inner = parent > 0
    beyond = (low < parent) | (high >= parent + size[parent])
    joined = np.flatnonzero(inner & beyond)
    rows = np.concatenate((u[apart], joined))
    cols = np.concatenate((v[apart], parent[joined]))
    n_nodes = n_docs + n_factors + 1
    graph = coo_array((np.ones(len(rows)), (rows, cols)), (n_nodes, n_nodes))
    block = connected_components(graph, directed=False)[1]

    # The top of a block is the parent of its first node. A document separates the blocks of which
    # it is the top from each other, and from the block that holds its own parent.
    first = np.zeros(n_nodes, dtype=np.int32)
    first[block[:0:-1]] = np.arange(n_nodes - 1, 0, -1)
    top = parent[first[first > 0]]
    n_parts = 1 + np.bincount(before[top], minlength=n_nodes)[:n_docs]
    found = np.flatnonzero((n_parts > 1) & ~twice)
    return kept[found], n_parts[found]


def _tree(doc, factor, n_docs, factor_labels):
    """A spanning tree under one root, with nodes numbered in preorder: parent, lowest and highest
    neighbour of the subtree, number before renumbering, size of the subtree, ends u < v of
    pairs."""
    n_factors = len(factor_labels)
    root = n_docs + n_factors
    # The root has one factor of each component as a child, so that it joins no two blocks.
    anchors = n_docs + np.unique(factor_labels, return_index=True)[1]
    ends = np.concatenate((doc, np.full(len(anchors), root)))
    others = np.concatenate((n_docs + factor, anchors))
    ones = np.ones(2 * len(ends), dtype=np.float64)
    at = (np.concatenate((ends, others)), np.concatenate((others, ends)))
    graph = csr_array(coo_array((ones, at), (root + 1, root + 1)))
    order, above = breadth_first_order(graph, root, directed=True)
    above[root] = root
    preorder, size = _preorder(order, above)

    before = np.empty(root + 1, dtype=np.int32)
    before[preorder] = np.arange(root + 1, dtype=np.int32)
    parent = preorder[above[before]]
    neighbour = preorder[graph.indices]
    start = graph.indptr[:-1]
    low = np.minimum.reduceat(neighbour, start)[before]
    high = np.maximum.reduceat(neighbour, start)[before]
    size = size[before]
    end = np.arange(root + 1, dtype=np.int32) + size
    low = _interval_reduce(np.minimum, low, end)
    high = _interval_reduce(np.maximum, high, end)
    u, v = preorder[doc], preorder[n_docs + factor]
    return parent, low, high, before, size, np.minimum(u, v), np.maximum(u, v)


def _preorder(order, above):
    """Preorder number and subtree size of each node, from a breadth-first order and parents."""
    n_nodes = len(order)
    place = np.empty(n_nodes, dtype=np.int32)
    place[order] = np.arange(n_nodes, dtype=np.int32)
    # Plain loops over the nodes take linear time even if the tree is a single path. Nodes are
    # taken in breadth-first order, in which parents ascend, so that memory is read in order.
    up = place[above[order]].tolist()
    size = [1] * n_nodes
    for node in range(n_nodes - 1, 0, -1):
        size[up[node]] += size[node]
    free = [1] * n_nodes
    for node in range(1, n_nodes):
        over = up[node]
        number = free[over]
        free[over] = number + size[node]
        free[node] = number + 1
    size = np.array(size, dtype=np.int32)
    # Afterwards, free is the first number beyond the subtree of each node.
    number = np.array(free, dtype=np.int32) - size
    return number[place], size[place]


def _interval_reduce(reduce, values, end):
    """``reduce`` over ``values[i:end[i]]`` for every i, by doubling, in linear memory."""
    # Of the largest power of two that is no longer than the interval.
    exponent = np.frexp(end - np.arange(len(values)))[1] - 1
    result, table = values.copy(), values.copy()
    order = np.argsort(exponent, kind="stable")
    bounds = np.searchsorted(exponent[order], np.arange(exponent.max() + 2))
    for power in range(1, len(bounds) - 1):
        half = 1 << (power - 1)
        table = reduce(table[:-half], table[half:])
        rows = order[bounds[power] : bounds[power + 1]]
        result[rows] = reduce(table[rows], table[end[rows] - 2 * half])
    return result


def documents_with_other_factors(doc: Ints, factor: Ints) -> tuple[Ints, Ints, Ints, Bools]:
    """One document for each distinct set of two or more factors (its code, ascending), their pairs
    renumbered, and whether another document has the same factors."""
    start = np.flatnonzero(np.concatenate(([True], doc[1:] != doc[:-1])))
    degree = np.diff(np.append(start, len(doc)))
    hashes = mix(factor.astype(np.uint64))
    # With sums of 128 bits, no collision of two different sets is expected.
    first, second = np.add.reduceat(hashes, start), np.add.reduceat(mix(hashes), start)
    several = np.flatnonzero(degree > 1)
    order = several[np.lexsort((several, second[several], first[several]))]
    new = np.ones(len(order), dtype=bool)
    same = (first[order[1:]] == first[order[:-1]]) & (second[order[1:]] == second[order[:-1]])
    new[1:] = ~same
    alone = np.append(new[1:], True)[new]  # the next document starts another set
    at = np.argsort(order[new])
    row = order[new][at]
    keep = np.zeros(len(start), dtype=bool)
    keep[row] = True
    pairs = np.repeat(keep, degree)
    new_doc = np.repeat(np.arange(len(row)), degree[row])
    return doc[start[row]], new_doc, factor[pairs], ~alone[at]


def n_clique_edges(doc: Ints, factor: Ints, factor_labels: Ints) -> int:
    """Number of pairs of factors that share a document: edges of the graph of cliques.

    The graph is never held in memory: its rows are computed block by block.
    """
    kept, doc, factor, _ = documents_with_other_factors(doc, factor)
    if not len(kept):
        return 0
    # A document shown under every factor of its component makes the component complete.
    size = np.bincount(factor_labels)
    degree = np.bincount(doc)
    of_doc = np.empty(len(kept), dtype=np.intp)
    of_doc[doc] = factor_labels[factor]
    complete = np.unique(of_doc[degree == size[of_doc]])
    n_edges = int((size[complete] * (size[complete] - 1) // 2).sum())
    rest = ~np.isin(of_doc[doc], complete)
    return n_edges + _count_products(doc[rest], factor[rest], len(kept), len(factor_labels))


def _count_products(doc, factor, n_docs, n_factors):
    """Half the number of off-diagonal entries of AᵀA, for the matrix A of documents by factors."""
    if not len(doc):
        return 0
    # Only the sparsity pattern matters; integers could overflow to an entry of zero.
    ones = np.ones(len(doc), dtype=np.float32)
    by_doc = csr_array(coo_array((ones, (doc, factor)), (n_docs, n_factors)))
    by_factor = csr_array(by_doc.T)
    work = np.bincount(factor, np.bincount(doc)[doc], minlength=n_factors)
    number = (np.cumsum(work) // _BLOCK).astype(np.intp)
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(number)) + 1, [n_factors]))
    n_entries = sum(
        (by_factor[first:last] @ by_doc).nnz for first, last in pairwise(bounds.tolist())
    )
    return (n_entries - len(np.unique(factor))) // 2
