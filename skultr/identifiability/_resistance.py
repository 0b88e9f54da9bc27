"""How precisely bias factors can be compared: effective resistance between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.exceptions import ConvergenceWarning

from .._log._components import factor_components, weighted_graph
from .._threads import few_threads
from .._typing import Floats, Ints
from ..exceptions import warn_user

#: Resistances are exact in components of up to so many factors (a dense matrix of 32 MB).
MAX_EXACT = 2000
#: Random projections of larger components: the relative error of a standard error is
#: 1/sqrt(2 * 64) = 9 %.
_N_PROJECTIONS = 64
#: Limits of conjugate gradients: number of steps, and of products in all (minutes).
_MAX_ITER = 1000
_MAX_PRODUCTS = 200_000_000_000
_TOLERANCE = 1e-6
#: Number of products up to which a sparse product is faster than dense blocks; cells of a block.
_SPARSE_WORK = 1 << 29
_CELLS = 1 << 24


def weak_links(
    doc: Ints, factor: Ints, conductance: Floats, n_factors: int, rng: Any
) -> tuple[Ints, Ints, Floats, Ints]:
    """Minimum spanning tree of the factors under effective resistance, weakest link first: two
    factors, resistance (infinite between components) and factors on the smaller side of each."""
    n_components, labels = factor_components(
        doc[conductance > 0], factor[conductance > 0], n_factors
    )
    doc, factor, conductance = _linking(doc, factor, conductance)
    trees = [
        _spanning_tree(nodes, doc[rows], factor[rows], conductance[rows], rng)
        for nodes, rows in _by_component(labels, n_components, factor)
    ]
    strength = np.bincount(factor, conductance, minlength=n_factors)
    trees.append(_links_between(labels, n_components, strength))
    a, b, variance = (np.concatenate(columns) for columns in zip(*trees, strict=True))
    order = np.argsort(variance, kind="stable")
    a, b, variance = a[order], b[order], variance[order]
    n_smaller = _smaller_sides(a, b, n_factors)
    return a[::-1], b[::-1], variance[::-1], n_smaller[::-1]


def effective_resistance(doc: Ints, factor: Ints, conductance: Floats) -> Floats:
    """Effective resistance between all factors of one connected component.

    Eliminating the documents (Schur complement) leaves a network of factors alone, in which t and
    t' have the conductance

        w_tt' = sum_x c_xt c_xt' / sum_s c_xs,

    where c_xt is that of the pair of document x and factor t. With the Laplacian
    L = diag(sum_t' w_tt') - W and its inverse M on all factors but one (where M is 0), the
    resistance is R_ab = M_aa + M_bb - 2 M_ab.
    """
    joined = _eliminate_documents(doc, factor, conductance)
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


def _linking(doc, factor, conductance):
    """Pairs with conductance, of documents that have at least two such pairs."""
    rows = conductance > 0
    degree = np.bincount(doc[rows], minlength=int(doc.max(initial=-1)) + 1)
    rows &= (degree > 1)[doc]
    return doc[rows], factor[rows], conductance[rows]


def _by_component(labels, n_components, factor):
    """Factors and pairs of each component with at least two factors."""
    by_label = np.argsort(labels, kind="stable")
    nodes = np.split(by_label, np.cumsum(np.bincount(labels, minlength=n_components))[:-1])
    of_pair = labels[factor]
    by_pair = np.argsort(of_pair, kind="stable")
    bounds = np.cumsum(np.bincount(of_pair, minlength=n_components))[:-1]
    for members, rows in zip(nodes, np.split(by_pair, bounds), strict=True):
        if len(members) > 1:
            yield members, rows


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


def _links_between(labels, n_components, strength):
    """Links without information: from the strongest factor to those of the other components."""
    order = np.lexsort((-strength, labels))
    strongest = order[np.searchsorted(labels[order], np.arange(n_components))]
    mass = np.bincount(labels, strength, minlength=n_components)
    hub = int(np.argmax(mass))
    others = np.delete(strongest, hub)
    return np.full(len(others), strongest[hub]), others, np.full(len(others), np.inf)


def _smaller_sides(a, b, n_factors):
    """Number of factors on the smaller side of each link, when links are added in this order."""
    above, size, smaller = list(range(n_factors)), [1] * n_factors, []

    def find(node):
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        small, large = sorted((find(one), find(other)), key=size.__getitem__)
        smaller.append(size[small])
        above[small] = large
        size[large] += size[small]
    return np.array(smaller, dtype=np.intp)


def _eliminate_documents(doc, factor, conductance):
    """Dense matrix W of the conductances between factors after eliminating the documents."""
    scaled = conductance / np.sqrt(np.bincount(doc, conductance))[doc]
    n_docs, n_factors = int(doc.max()) + 1, int(factor.max()) + 1
    matrix = csr_array(coo_array((scaled, (doc, factor)), (n_docs, n_factors)))
    degree = np.diff(matrix.indptr).astype(float)
    if degree @ degree < _SPARSE_WORK:
        return (matrix.T @ matrix).toarray()
    result, step = np.zeros((n_factors, n_factors)), max(1, _CELLS // n_factors)
    for first in range(0, n_docs, step):
        block = matrix[first : first + step].toarray()
        result += block.T @ block
    return result


# Many factors: random projections -----------------------------------------------------
def _resistance_of_candidates(doc, factor, conductance, rng):
    """Approximate resistances between each document's strongest factor and its others, sparse.

    Spielman & Srivastava, "Graph sparsification by effective resistances", SIAM Journal on
    Computing 40 (2011): the columns of Q W^½ B L⁺, for random signs Q, have the resistances as
    squared distances.
    """
    place = _projected(doc, factor, conductance, rng)
    strongest = np.lexsort((-conductance, doc))
    start = np.flatnonzero(np.concatenate(([True], np.diff(doc[strongest]) > 0)))
    hub = factor[strongest[start]][doc]
    n_factors = len(place)
    key = np.minimum(hub, factor) * n_factors + np.maximum(hub, factor)
    key = np.sort(key[hub != factor])
    a, b = np.divmod(key[np.append(True, key[1:] > key[:-1])], n_factors)
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
    of_doc, of_factor = matrix.sum(axis=1), matrix.sum(axis=0)
    transposed = csr_array(matrix.T)
    back = csr_array(transposed.multiply(1.0 / of_doc))
    diagonal = np.bincount(factor, conductance * (1.0 - conductance / of_doc[doc]))
    # The diagonal stays above rounding error for a factor with nearly all clicks of its documents.
    diagonal = np.maximum(diagonal, 1e-12 * of_factor)

    right = np.empty((n_factors, _N_PROJECTIONS))
    root = np.sqrt(conductance / _N_PROJECTIONS)
    for column in range(_N_PROJECTIONS):
        current = root * rng.choice([-1.0, 1.0], size=len(root))
        right[:, column] = back @ np.bincount(doc, current) - np.bincount(factor, current)

    def laplacian(vectors):
        return of_factor[:, None] * vectors - back @ (matrix @ vectors)

    affordable = _MAX_PRODUCTS // (2 * _N_PROJECTIONS * len(conductance))
    return _conjugate_gradients(laplacian, right, diagonal[:, None], min(affordable, _MAX_ITER))


def _conjugate_gradients(laplacian, right, diagonal, max_iter):
    """Solve for all columns at once, each with its own step sizes (SciPy's takes one column)."""
    solution, residual = np.zeros_like(right), right.copy()
    direction = scaled = residual / diagonal
    product = (residual * scaled).sum(axis=0)
    goal = _TOLERANCE**2 * product
    for _ in range(max_iter):
        image = laplacian(direction)
        step = product / np.maximum((direction * image).sum(axis=0), np.finfo(float).tiny)
        solution += step * direction
        residual -= step * image
        scaled = residual / diagonal
        before, product = product, (residual * scaled).sum(axis=0)
        if (product <= goal).all():
            return solution
        direction = scaled + product / np.maximum(before, np.finfo(float).tiny) * direction
    warn_user(
        f"The resistances of {len(right)} bias factors did not converge within {max_iter} steps: "
        "the standard errors of weak links are inexact. The bias factors are connected through "
        "long chains of documents; log rankings that vary more.",
        ConvergenceWarning,
    )
    return solution
