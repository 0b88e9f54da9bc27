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
from ._thresholds import MOST_FACTORS


def articulation_documents(doc: Ints, factor: Ints, factor_labels: Ints) -> tuple[Ints, Ints]:
    """Documents whose removal splits a component of factors, and into how many parts.

    By the depth-first search of Hopcroft and Tarjan (1973): a node separates from the rest each
    subtree below it of which no node is adjacent to one that was found before it.
    """
    # Documents with the same factors replace each other: one stands for all of them.
    kept, doc, factor, twice = documents_with_other_factors(doc, factor)
    n_docs = len(kept)
    n_nodes = len(kept) + len(factor_labels)
    # Nodes are documents, then factors. Searches begin at factors: a document has always a part
    # above it.
    _, first = np.unique(factor_labels, return_index=True)
    starts = n_docs + first
    doc, factor = _two_forests(doc, n_docs + factor, starts, n_nodes)
    ends = np.concatenate((doc, factor)), np.concatenate((factor, doc))
    graph = csr_array(coo_array((np.ones(2 * len(doc)), ends), (n_nodes, n_nodes)))
    n_parts = _parts_without(graph, starts.tolist(), n_nodes)
    n_parts = np.array(n_parts[:n_docs], dtype=np.intp)
    found = np.flatnonzero((n_parts > 1) & ~twice)
    return kept[found], n_parts[found]


def _parts_without(graph, path, n_nodes):
    """Number of parts into which the component of each node falls without it.

    ``path`` holds the nodes where searches begin, and then those from one of them to the current
    one. ``lowest`` is the lowest number of a node that is adjacent to the subtree of a node.
    """
    neighbours = memoryview(graph.indices)
    edge = graph.indptr[:-1].tolist()
    last = graph.indptr[1:].tolist()
    number = [0] * n_nodes  # 0: not found yet
    lowest = [0] * n_nodes
    n_parts = [1] * n_nodes
    n_found = 0
    while path:
        node = path[-1]
        if not number[node]:
            n_found += 1
            number[node] = n_found
            lowest[node] = n_found
        # Go on along the next edge of the node.
        if edge[node] < last[node]:
            other = neighbours[edge[node]]
            edge[node] += 1
            # Found before: the subtree is adjacent to it. Else go down.
            if number[other]:
                lowest[node] = min(lowest[node], number[other])
            else:
                path.append(other)
            continue
        # All edges are done: back to the node above.
        path.pop()
        if path:
            above = path[-1]
            lowest[above] = min(lowest[above], lowest[node])
            if lowest[node] >= number[above]:
                n_parts[above] += 1
    return n_parts


def _two_forests(doc, factor, starts, n_nodes):
    """The pairs of a breadth-first forest, and of a spanning forest of all others: a graph that
    hangs on the same documents (Eppstein et al., "Sparsification", J. ACM 44, 1997)."""
    # One more node is above all starts, so that one search finds the whole forest.
    root = np.full(len(starts), n_nodes)
    rows = np.concatenate((doc, root))
    cols = np.concatenate((factor, starts))
    graph = weighted_graph(n_nodes + 1, rows, cols, np.ones(len(rows)))
    _, above = breadth_first_order(graph, n_nodes, directed=False)
    # A pair is in the forest if one end is above the other.
    is_tree = (above[doc] == factor) | (above[factor] == doc)
    others = np.flatnonzero(~is_tree)
    rest = weighted_graph(n_nodes, doc[others], factor[others], np.ones(len(others)))
    forest = minimum_spanning_tree(rest).tocoo()
    return np.append(doc[is_tree], forest.row), np.append(factor[is_tree], forest.col)


def documents_with_other_factors(doc: Ints, factor: Ints) -> tuple[Ints, Ints, Ints, Bools]:
    """One document for each distinct set of two or more factors (its code, ascending), their pairs
    renumbered, and whether another document has the same factors."""
    is_first = np.concatenate(([True], doc[1:] != doc[:-1]))
    start = np.flatnonzero(is_first)
    degree = np.diff(np.append(start, len(doc)))
    # A set of factors is the sum of hashes of its members, whatever their order.
    hashes = mix(factor.astype(np.uint64))
    # With sums of 128 bits, no collision of two different sets is expected.
    first = np.add.reduceat(hashes, start)
    second = np.add.reduceat(mix(hashes), start)
    several = np.flatnonzero(degree > 1)
    code, own = equal_keys((second[several], first[several]))
    # One document for each set, in the order of the documents.
    in_order = np.argsort(own)
    row = several[own[in_order]]
    has_twin = np.bincount(code)[in_order] > 1
    is_kept = np.bincount(row, minlength=len(start)) > 0
    pairs = np.repeat(is_kept, degree)
    number = np.repeat(np.arange(len(row)), degree[row])
    return doc[start[row]], number, factor[pairs], has_twin


def weak_links(
    doc: Ints, factor: Ints, conductance: Floats, n_factors: int
) -> tuple[Ints, Ints, Floats, Ints]:
    """Minimum spanning tree of the factors under effective resistance, weakest link first: two
    factors, resistance (infinite between components) and factors on the smaller side of each."""
    # A pair without information links nothing.
    rows = conductance > 0
    _, labels = factor_components(doc[rows], factor[rows], n_factors)
    degree = np.bincount(doc[rows], minlength=int(doc.max(initial=-1)) + 1)
    rows &= (degree > 1)[doc]  # a document links factors if it has two such pairs
    doc = doc[rows]
    factor = factor[rows]
    conductance = conductance[rows]
    # Trees of the components, and links between them.
    nodes = members_of(labels)
    trees = []
    for component, own in members_of(labels[factor]).items():
        tree = _spanning_tree(nodes[component], doc[own], factor[own], conductance[own])
        trees.append(tree)
    strength = np.bincount(factor, conductance, minlength=n_factors)
    trees.append(_links_between(labels, strength))
    a, b, variance = (np.concatenate(columns) for columns in zip(*trees, strict=True))
    # Strongest first, so that each link joins what stronger ones have joined.
    order = np.argsort(variance, kind="stable")
    sides = DisjointSet(range(n_factors))
    n_smaller = []
    for one, other in zip(a[order].tolist(), b[order].tolist(), strict=True):
        n_smaller.append(min(sides.subset_size(one), sides.subset_size(other)))
        sides.merge(one, other)
    weakest = order[::-1]
    n_smaller = np.array(n_smaller[::-1], dtype=np.intp)
    return a[weakest], b[weakest], variance[weakest], n_smaller


def effective_resistance(doc: Ints, factor: Ints, conductance: Floats) -> Floats:
    """Effective resistance between all factors of one connected component.

    Eliminating the documents (Schur complement) leaves a network of factors alone, in which t and
    t' have the conductance

        w_tt' = sum_x c_xt c_xt' / sum_s c_xs,

    where c_xt is that of the pair of document x and factor t. With the Laplacian
    L = diag(sum_t' w_tt') - W and its inverse M on all factors but one (where M is 0), the
    resistance is R_ab = M_aa + M_bb - 2 M_ab.
    """
    # Eliminate the documents.
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
    # The ground has M = 0.
    inverse = np.pad(inner, ((1, 0), (1, 0)))
    diagonal = inverse.diagonal()
    resistance = diagonal[:, None] + diagonal - inverse - inverse.T
    # A spanning tree takes 0 for no edge: two factors may be as good as one, but not a factor and
    # itself.
    resistance = np.maximum(resistance, np.finfo(float).tiny)
    np.fill_diagonal(resistance, 0.0)
    return resistance


def members_of(labels: Ints) -> dict[int, Ints]:
    """Items of each label, both ascending."""
    return pd.Series(labels).groupby(labels).indices


def _spanning_tree(nodes, doc, factor, conductance):
    """Minimum spanning tree of one component: factors a, b and their effective resistance."""
    if len(nodes) > MOST_FACTORS.value:
        raise ValueError(
            f"One component links {len(nodes):,} bias factors, and weak links compare every two "
            f"of them; expected at most {MOST_FACTORS.value:,}. Use coarser bias factors (fewer "
            "bias columns, or values in groups)."
        )
    _, doc = np.unique(doc, return_inverse=True)
    factor = np.searchsorted(nodes, factor)
    # The inverse takes n³ / 2 operations: below some size, threads cost more than they gain.
    with few_threads(len(nodes) ** 3 / 2):
        graph = effective_resistance(doc, factor, conductance)
    tree = minimum_spanning_tree(graph).tocoo()
    # The smaller code first, as everywhere.
    a = np.minimum(tree.row, tree.col)
    b = np.maximum(tree.row, tree.col)
    return nodes[a], nodes[b], tree.data


def first_by(values: Floats, labels: Ints) -> Ints:
    """The item of each label with the largest value."""
    order = np.lexsort((-values, labels))
    n_labels = labels.max(initial=-1) + 1
    first = np.searchsorted(labels[order], np.arange(n_labels))
    return order[first]


def _links_between(labels, strength):
    """Links without information: from the strongest factor to those of the other components."""
    strongest = first_by(strength, labels)
    # The component with the most information is the one that others are compared with.
    hub = int(np.argmax(np.bincount(labels, strength)))
    others = np.delete(strongest, hub)
    return np.full(len(others), strongest[hub]), others, np.full(len(others), np.inf)
