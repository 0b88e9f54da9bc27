"""What the graph hangs on: documents whose removal disconnects it, and weak links between
factors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import DisjointSet
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.exceptions import ConvergenceWarning

from .._base._threads import few_threads
from .._base._typing import Bools, Floats, Ints
from .._log._cells import factor_components, weighted_graph
from .._log._segments import equal_keys, mix
from .._models._solve import gram
from ..exceptions import warn_user

#: Products per block of the clique graph; this bounds the memory and does not change the result.
_BLOCK = 1 << 24


def articulation_documents(doc: Ints, factor: Ints, factor_labels: Ints) -> tuple[Ints, Ints]:
    """Documents whose removal splits a component of factors, and into how many parts.

    By the depth-first search of Hopcroft and Tarjan (1973): a node separates from the rest each
    subtree below it of which no node is adjacent to one that was found before it.
    """
    kept, doc, factor, twice = documents_with_other_factors(doc, factor)
    n_docs, n_nodes = len(kept), len(kept) + len(factor_labels)
    # Searches begin at factors: a document has always a part above it.
    starts = n_docs + np.unique(factor_labels, return_index=True)[1]
    doc, factor = _two_forests(doc, n_docs + factor, starts, n_nodes)
    ends = np.concatenate((doc, factor)), np.concatenate((factor, doc))
    graph = csr_array(coo_array((np.ones(2 * len(doc)), ends), (n_nodes, n_nodes)))
    neighbours = memoryview(graph.indices)
    edge, last = graph.indptr[:-1].tolist(), graph.indptr[1:].tolist()
    number, lowest, n_parts = [0] * n_nodes, [0] * n_nodes, [1] * n_nodes
    n_found = 0
    path = starts.tolist()
    while path:
        node = path[-1]
        if not number[node]:
            n_found += 1
            number[node] = lowest[node] = n_found
        if edge[node] < last[node]:
            other = neighbours[edge[node]]
            edge[node] += 1
            if number[other]:
                lowest[node] = min(lowest[node], number[other])
            else:
                path.append(other)
            continue
        path.pop()
        if path:
            above = path[-1]
            lowest[above] = min(lowest[above], lowest[node])
            n_parts[above] += lowest[node] >= number[above]
    n_parts = np.array(n_parts[:n_docs], dtype=np.intp)
    found = np.flatnonzero((n_parts > 1) & ~twice)
    return kept[found], n_parts[found]


def _two_forests(doc, factor, starts, n_nodes):
    """The pairs of a breadth-first forest, and of a spanning forest of all others: a graph that
    hangs on the same documents (Eppstein et al., "Sparsification", J. ACM 44, 1997)."""
    root = np.full(len(starts), n_nodes)
    rows, cols = np.concatenate((doc, root)), np.concatenate((factor, starts))
    graph = weighted_graph(n_nodes + 1, rows, cols, np.ones(len(rows)))
    above = breadth_first_order(graph, n_nodes, directed=False)[1]
    is_tree = (above[doc] == factor) | (above[factor] == doc)
    rest = weighted_graph(n_nodes, doc[~is_tree], factor[~is_tree], np.ones((~is_tree).sum()))
    forest = minimum_spanning_tree(rest).tocoo()
    return np.append(doc[is_tree], forest.row), np.append(factor[is_tree], forest.col)


def documents_with_other_factors(doc: Ints, factor: Ints) -> tuple[Ints, Ints, Ints, Bools]:
    """One document for each distinct set of two or more factors (its code, ascending), their pairs
    renumbered, and whether another document has the same factors."""
    start = np.flatnonzero(np.concatenate(([True], doc[1:] != doc[:-1])))
    degree = np.diff(np.append(start, len(doc)))
    hashes = mix(factor.astype(np.uint64))
    # With sums of 128 bits, no collision of two different sets is expected.
    first, second = np.add.reduceat(hashes, start), np.add.reduceat(mix(hashes), start)
    several = np.flatnonzero(degree > 1)
    code, own = equal_keys((second[several], first[several]))
    at = np.argsort(own)
    row, alone = several[own[at]], np.bincount(code)[at] == 1
    keep = np.zeros(len(start), dtype=bool)
    keep[row] = True
    pairs = np.repeat(keep, degree)
    new_doc = np.repeat(np.arange(len(row)), degree[row])
    return doc[start[row]], new_doc, factor[pairs], ~alone


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
    doc_code = np.empty(len(kept), dtype=np.intp)
    doc_code[doc] = factor_labels[factor]
    complete = np.unique(doc_code[degree == size[doc_code]])
    n_edges = int((size[complete] * (size[complete] - 1) // 2).sum())
    rest = ~np.isin(doc_code[doc], complete)
    # Half the number of off-diagonal entries of AᵀA, for the matrix A of documents by factors.
    doc, factor, n_factors = doc[rest], factor[rest], len(factor_labels)
    # Only the sparsity pattern matters; integers could overflow to an entry of zero.
    ones = np.ones(len(doc), dtype=np.float32)
    by_doc = csr_array(coo_array((ones, (doc, factor)), (len(kept), n_factors)))
    by_factor = csr_array(by_doc.T)
    work = np.bincount(factor, np.bincount(doc)[doc], minlength=n_factors)
    number = (np.cumsum(work) // _BLOCK).astype(np.intp)
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(number)) + 1, [n_factors]))
    n_entries = sum(
        (by_factor[first:last] @ by_doc).nnz for first, last in pairwise(bounds.tolist())
    )
    return n_edges + (n_entries - len(np.unique(factor))) // 2


#: Resistances are exact in components of up to so many factors (a dense matrix of 32 MB).
MAX_EXACT = 2000
#: Random projections of larger components: the relative error of a standard error is
#: 1/sqrt(2 * 64) = 9 %.
_N_PROJECTIONS = 64
#: Limits of conjugate gradients: number of steps, and of products in all (minutes).
_MAX_ITER = 1000
_MAX_PRODUCTS = 200_000_000_000
_TOLERANCE = 1e-6
#: Numbers of a block of differences.
_CELLS = 1 << 24


def weak_links(
    doc: Ints, factor: Ints, conductance: Floats, n_factors: int, rng: Any
) -> tuple[Ints, Ints, Floats, Ints]:
    """Minimum spanning tree of the factors under effective resistance, weakest link first: two
    factors, resistance (infinite between components) and factors on the smaller side of each."""
    rows = conductance > 0
    labels = factor_components(doc[rows], factor[rows], n_factors)[1]
    degree = np.bincount(doc[rows], minlength=int(doc.max(initial=-1)) + 1)
    rows &= (degree > 1)[doc]  # a document links factors if it has two such pairs
    doc, factor, conductance = doc[rows], factor[rows], conductance[rows]
    trees = [
        _spanning_tree(nodes, doc[rows], factor[rows], conductance[rows], rng)
        for nodes, rows in _by_component(labels, factor)
    ]
    strength = np.bincount(factor, conductance, minlength=n_factors)
    trees.append(_links_between(labels, strength))
    a, b, variance = (np.concatenate(columns) for columns in zip(*trees, strict=True))
    order = np.argsort(variance, kind="stable")
    sides, n_smaller = DisjointSet(range(n_factors)), []
    for ends in zip(a[order].tolist(), b[order].tolist(), strict=True):
        n_smaller.append(min(map(sides.subset_size, ends)))
        sides.merge(*ends)
    weakest = order[::-1]
    return a[weakest], b[weakest], variance[weakest], np.array(n_smaller[::-1], dtype=np.intp)


def effective_resistance(doc: Ints, factor: Ints, conductance: Floats) -> Floats:
    """Effective resistance between all factors of one connected component.

    Eliminating the documents (Schur complement) leaves a network of factors alone, in which t and
    t' have the conductance

        w_tt' = sum_x c_xt c_xt' / sum_s c_xs,

    where c_xt is that of the pair of document x and factor t. With the Laplacian
    L = diag(sum_t' w_tt') - W and its inverse M on all factors but one (where M is 0), the
    resistance is R_ab = M_aa + M_bb - 2 M_ab.
    """
    matrix = csr_array((conductance, (doc, factor)))
    joined = gram(matrix, 1.0 / matrix.sum(axis=1))
    np.fill_diagonal(joined, 0.0)
    # Sums of conductances, because differences of large numbers would lose the weak links.
    laplacian = np.diag(joined.sum(axis=1)) - joined
    inverse = np.zeros_like(laplacian)
    # Any factor may be the ground.
    try:
        inner = cho_solve(cho_factor(laplacian[1:, 1:]), np.eye(len(laplacian) - 1))
    except LinAlgError:
        # The conductances differ by more than the precision of floats.
        inner = pinvh(laplacian[1:, 1:])
    inverse[1:, 1:] = inner
    diagonal = inverse.diagonal()
    resistance = diagonal[:, None] + diagonal - inverse - inverse.T
    return np.maximum(resistance, np.finfo(float).tiny) * ~np.eye(len(diagonal), dtype=bool)


def _by_component(labels, factor):
    """Factors and pairs of each component with at least two factors."""
    nodes, pairs = (pd.Series(each).groupby(each).indices for each in (labels, labels[factor]))
    for component, members in nodes.items():
        if len(members) > 1:
            yield members, pairs[component]


def _spanning_tree(nodes, doc, factor, conductance, rng):
    """Minimum spanning tree of one component: factors a, b and their effective resistance."""
    doc = np.unique(doc, return_inverse=True)[1]
    factor = np.searchsorted(nodes, factor)
    if len(nodes) <= MAX_EXACT:
        with few_threads(len(nodes) ** 3 / 2):
            graph = effective_resistance(doc, factor, conductance)
    else:
        graph = _resistance_of_candidates(doc, factor, conductance, rng)
    tree = minimum_spanning_tree(graph).tocoo()
    a, b = np.minimum(tree.row, tree.col), np.maximum(tree.row, tree.col)
    return nodes[a], nodes[b], tree.data


def first_by(values: Floats, labels: Ints) -> Ints:
    """The item of each label with the largest value."""
    order = np.lexsort((-values, labels))
    return order[np.searchsorted(labels[order], np.arange(labels.max(initial=-1) + 1))]


def _links_between(labels, strength):
    """Links without information: from the strongest factor to those of the other components."""
    strongest = first_by(strength, labels)
    mass = np.bincount(labels, strength)
    hub = int(np.argmax(mass))
    others = np.delete(strongest, hub)
    return np.full(len(others), strongest[hub]), others, np.full(len(others), np.inf)


# Many factors: random projections -----------------------------------------------------
def _resistance_of_candidates(doc, factor, conductance, rng):
    """Approximate resistances between each document's strongest factor and its others, sparse.

    Spielman & Srivastava, "Graph sparsification by effective resistances", SIAM Journal on
    Computing 40 (2011): the columns of Q W^½ B L⁺, for random signs Q, have the resistances as
    squared distances.
    """
    place = _projected(doc, factor, conductance, rng)
    hub = factor[first_by(conductance, doc)][doc]
    n_factors = len(place)
    key = np.minimum(hub, factor) * n_factors + np.maximum(hub, factor)
    a, b = np.divmod(np.unique(key[hub != factor]), n_factors)
    distance = np.empty(len(a))
    step = _CELLS // _N_PROJECTIONS
    for first in range(0, len(a), step):
        rows = slice(first, first + step)
        distance[rows] = ((place[a[rows]] - place[b[rows]]) ** 2).sum(axis=1)
    distance = np.maximum(distance, np.finfo(float).tiny)
    return weighted_graph(n_factors, a, b, distance)


def _projected(doc, factor, conductance, rng):
    """Position of each factor in the space of the random projections."""
    n_docs, n_factors = int(doc.max()) + 1, int(factor.max()) + 1
    matrix = csr_array(coo_array((conductance, (doc, factor)), (n_docs, n_factors)))
    doc_clicks, factor_clicks = matrix.sum(axis=1), matrix.sum(axis=0)
    transposed = csr_array(matrix.T)
    back = csr_array(transposed.multiply(1.0 / doc_clicks))
    diagonal = np.bincount(factor, conductance * (1.0 - conductance / doc_clicks[doc]))
    # The diagonal stays above rounding error for a factor with nearly all clicks of its documents.
    diagonal = np.maximum(diagonal, 1e-12 * factor_clicks)

    right = np.empty((n_factors, _N_PROJECTIONS))
    root = np.sqrt(conductance / _N_PROJECTIONS)
    for column in range(_N_PROJECTIONS):
        current = root * rng.choice([-1.0, 1.0], size=len(root))
        right[:, column] = back @ np.bincount(doc, current) - np.bincount(factor, current)

    def laplacian(vectors):
        """The Laplacian times all columns at once: they are one system for SciPy."""
        vectors = vectors.reshape(right.shape)
        return (factor_clicks[:, None] * vectors - back @ (matrix @ vectors)).ravel()

    operator = LinearOperator((right.size, right.size), matvec=laplacian, dtype=float)
    scaling = diags_array(np.repeat(1.0 / diagonal, _N_PROJECTIONS))
    affordable = _MAX_PRODUCTS // (2 * _N_PROJECTIONS * len(conductance))
    max_iter = min(affordable, _MAX_ITER)
    solution, failed = cg(operator, right.ravel(), rtol=_TOLERANCE, maxiter=max_iter, M=scaling)
    if failed:
        warn_user(
            f"The resistances of {n_factors} bias factors did not converge within {max_iter} "
            "steps: the standard errors of weak links are inexact. The bias factors are connected "
            "through long chains of documents; log rankings that vary more.",
            ConvergenceWarning,
        )
    return solution.reshape(right.shape)
