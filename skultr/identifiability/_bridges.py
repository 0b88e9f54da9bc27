"""What the graph hangs on: documents whose removal disconnects it, and weak links between
factors."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import DisjointSet
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from .._base._threads import few_threads
from .._base._typing import Bools, Floats, Ints
from .._log._cells import factor_components, weighted_graph
from .._log._segments import equal_keys, mix
from .._models._solve import gram


def articulation_documents(doc: Ints, factor: Ints, factor_labels: Ints) -> tuple[Ints, Ints]:
    """Documents whose removal splits a component of factors, and into how many parts.

    By the depth-first search of Hopcroft and Tarjan (1973): a node separates from the rest each
    subtree below it of which no node is adjacent to one that was found before it.
    """
    kept, doc, factor, twice = documents_with_other_factors(doc, factor)
    n_docs = len(kept)
    n_nodes = len(kept) + len(factor_labels)
    # Searches begin at factors: a document has always a part above it.
    starts = n_docs + np.unique(factor_labels, return_index=True)[1]
    doc, factor = _two_forests(doc, n_docs + factor, starts, n_nodes)
    ends = np.concatenate((doc, factor)), np.concatenate((factor, doc))
    graph = csr_array(coo_array((np.ones(2 * len(doc)), ends), (n_nodes, n_nodes)))
    neighbours = memoryview(graph.indices)
    edge = graph.indptr[:-1].tolist()
    last = graph.indptr[1:].tolist()
    number = [0] * n_nodes
    lowest = [0] * n_nodes
    n_parts = [1] * n_nodes
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
    rows = np.concatenate((doc, root))
    cols = np.concatenate((factor, starts))
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
    first = np.add.reduceat(hashes, start)
    second = np.add.reduceat(mix(hashes), start)
    several = np.flatnonzero(degree > 1)
    code, own = equal_keys((second[several], first[several]))
    at = np.argsort(own)
    row = several[own[at]]
    alone = np.bincount(code)[at] == 1
    pairs = np.repeat(np.bincount(row, minlength=len(start)) > 0, degree)
    return doc[start[row]], np.repeat(np.arange(len(row)), degree[row]), factor[pairs], ~alone


#: Most factors of a component: its resistances are a dense matrix (of 32 MB).
MAX_EXACT = 2000


def weak_links(
    doc: Ints, factor: Ints, conductance: Floats, n_factors: int
) -> tuple[Ints, Ints, Floats, Ints]:
    """Minimum spanning tree of the factors under effective resistance, weakest link first: two
    factors, resistance (infinite between components) and factors on the smaller side of each."""
    rows = conductance > 0
    labels = factor_components(doc[rows], factor[rows], n_factors)[1]
    degree = np.bincount(doc[rows], minlength=int(doc.max(initial=-1)) + 1)
    rows &= (degree > 1)[doc]  # a document links factors if it has two such pairs
    doc = doc[rows]
    factor = factor[rows]
    conductance = conductance[rows]
    nodes = members_of(labels)
    pairs = members_of(labels[factor])
    trees = [
        _spanning_tree(nodes[component], doc[rows], factor[rows], conductance[rows])
        for component, rows in pairs.items()
    ]
    trees.append(_links_between(labels, np.bincount(factor, conductance, minlength=n_factors)))
    a, b, variance = (np.concatenate(columns) for columns in zip(*trees, strict=True))
    order = np.argsort(variance, kind="stable")
    sides = DisjointSet(range(n_factors))
    n_smaller = []
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
    # Any factor may be the ground.
    try:
        inner = cho_solve(cho_factor(laplacian[1:, 1:]), np.eye(len(laplacian) - 1))
    except LinAlgError:
        # The conductances differ by more than the precision of floats.
        inner = pinvh(laplacian[1:, 1:])
    inverse = np.pad(inner, ((1, 0), (1, 0)))
    diagonal = inverse.diagonal()
    resistance = diagonal[:, None] + diagonal - inverse - inverse.T
    return np.maximum(resistance, np.finfo(float).tiny) * ~np.eye(len(diagonal), dtype=bool)


def members_of(labels: Ints) -> dict[int, Ints]:
    """Items of each label, both ascending."""
    return pd.Series(labels).groupby(labels).indices


def _spanning_tree(nodes, doc, factor, conductance):
    """Minimum spanning tree of one component: factors a, b and their effective resistance."""
    if len(nodes) > MAX_EXACT:
        raise ValueError(
            f"One component links {len(nodes):,} bias factors, and weak links compare every two "
            f"of them; expected at most {MAX_EXACT:,}. Use coarser bias factors (fewer bias "
            "columns, or values in groups)."
        )
    doc = np.unique(doc, return_inverse=True)[1]
    factor = np.searchsorted(nodes, factor)
    with few_threads(len(nodes) ** 3 / 2):
        graph = effective_resistance(doc, factor, conductance)
    tree = minimum_spanning_tree(graph).tocoo()
    a = np.minimum(tree.row, tree.col)
    b = np.maximum(tree.row, tree.col)
    return nodes[a], nodes[b], tree.data


def first_by(values: Floats, labels: Ints) -> Ints:
    """The item of each label with the largest value."""
    order = np.lexsort((-values, labels))
    return order[np.searchsorted(labels[order], np.arange(labels.max(initial=-1) + 1))]


def _links_between(labels, strength):
    """Links without information: from the strongest factor to those of the other components."""
    strongest = first_by(strength, labels)
    hub = int(np.argmax(np.bincount(labels, strength)))
    others = np.delete(strongest, hub)
    return np.full(len(others), strongest[hub]), others, np.full(len(others), np.inf)
