"""Tables of relevance over shards of documents: each Newton step adds small matrices of shards.

The losses of :mod:`._bipartite` are sums over documents, given the factors. A shard contributes
its loss, gradient, curvature and the matrix that eliminating its documents subtracts: numbers,
vectors and matrices of the size of the factors, whatever the number of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .._log._cells import Cells
from .._log._segments import TINY
from .._log._shards import CellShards
from .._typing import Floats, Ints
from ._bipartite import MAX_DENSE, Problem, is_held, newton
from ._tabular import ErrorSums, TabularFit, shift_of_scale, starting_logits, steps_to

__all__ = ["ShardedFit", "fit_shards"]


@dataclass(frozen=True, eq=False)
class ShardedFit:
    """What :func:`fit_shards` found.

    Parameters
    ----------
    factor_logits : ndarray of shape (n_factors,)
        Up to one constant per component.
    component : ndarray of shape (n_factors,), int
        Equal where documents connect factors.
    n_iter : int
    converged : bool
    errors : ErrorSums
    """

    factor_logits: Floats
    component: Ints
    n_iter: int
    converged: bool
    errors: ErrorSums

    def standard_error(self, reference: int) -> Floats:
        """As :meth:`TabularFit.standard_error`, shape (n_factors,)."""
        return self.errors.standard_error(reference)


@dataclass(frozen=True, eq=False)
class _SumOfSystems:
    """The :class:`~._bipartite.System` of all shards."""

    value: float
    gradient: Floats
    diagonal: Floats
    joint: Floats

    def eliminated_product(self, values: Floats) -> Floats:
        return self.joint @ values

    def eliminated(self, free: Ints) -> Floats:
        return self.joint[np.ix_(free, free)]

    def affordable_iterations(self, free: Ints) -> int:
        return 0  # the matrix is there

    def product_of(self, free: Ints) -> Callable[[Floats], Floats]:
        joint = self.eliminated(free)
        return lambda x: joint @ x


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Shards as a table reads them: with half clicks, and without links that bound nothing."""

    shards: CellShards
    added: Floats
    labels: Ints | None = None

    def __iter__(self) -> Iterator[Cells]:
        for cells in self.shards:
            rate = cells.by_doc(cells.clicks) / np.maximum(cells.by_doc(cells.weight), TINY)
            added = self.added[cells.factor] * cells.weight * rate[cells.doc]
            whole = replace(cells, clicks=cells.clicks + added)
            yield whole if self.labels is None else self._without_one_way_links(whole)

    def _without_one_way_links(self, cells):
        """See the function of this name in :mod:`._tabular`."""
        labels, clicked = self.labels, cells.clicks > 0
        key = cells.doc * (int(labels.max()) + 1) + labels[cells.factor]
        have_clicks = (self.shards.clicks_of_factors > 0) | (self.added > 0)
        both = (cells.by_doc(cells.clicks) > 0)[cells.doc] & have_clicks[cells.factor]
        keep = ~both | np.isin(key, key[clicked])
        return cells if keep.all() else cells.take(keep)


@dataclass(frozen=True, eq=False)
class _ShardedProblem:
    """A sum over cells in shards, as :func:`~._bipartite.newton` minimises it."""

    cells: _Prepared
    loss: str
    n_factors: int

    def _problems(self):
        return (Problem(cells, "product", self.loss) for cells in self.cells)

    @property
    def bounds(self) -> tuple[float, float]:
        return next(self._problems()).bounds

    @cached_property
    def gauge(self) -> Ints | None:
        if self.bounds[1] == 0.0:
            return None
        return _components(self.cells, self.n_factors)

    @cached_property
    def largest_weight(self) -> float:
        return max(problem.largest_weight for problem in self._problems())

    def solved(self, b: Floats, a: list[Floats] | None) -> tuple[list[Floats], _SumOfSystems]:
        documents, value = [], 0.0
        gradient, diagonal = np.zeros((2, self.n_factors))
        joint = np.zeros((self.n_factors, self.n_factors))
        every = np.arange(self.n_factors)
        for number, problem in enumerate(self._problems()):
            own, system = problem.solved(b, None if a is None else a[number])
            documents.append(own)
            value += system.value
            gradient += system.gradient
            diagonal += system.diagonal
            joint += system.eliminated(every)
        return documents, _SumOfSystems(value, gradient, diagonal, joint)


def fit_shards(
    shards: CellShards, loss: str, *, start: Floats | None = None, max_iter: int = 200
) -> ShardedFit:
    """As :func:`fit_tabular` with the product link, for cells that do not fit into memory.

    Each Newton step reads every shard once. In memory are one shard, a number per document, and
    a few matrices of shape (n_factors, n_factors).

    Parameters
    ----------
    shards : CellShards
    loss : {"likelihood", "squares", "poisson"}
    start, max_iter
        See :func:`fit_tabular`.

    Returns
    -------
    fit : ShardedFit

    Raises
    ------
    ValueError
        With more than 1,500 bias factors.
    """
    n_factors = shards.n_factors
    if n_factors > MAX_DENSE:
        raise ValueError(
            f"The cells of the log do not fit into memory, and it has {n_factors} bias factors; "
            f"expected at most {MAX_DENSE}. Merge factors, or take the log of a sample of queries."
        )
    component = _components(shards, n_factors)
    cells = _Prepared(shards, _half_clicks(shards))
    labels = _comparable(cells, n_factors)
    if loss == "poisson" and len(np.unique(labels)) > 1:
        cells = replace(cells, labels=labels)
    b, n_iter = starting_logits(start, n_factors), 0
    for step in steps_to(loss):
        problem = _ShardedProblem(cells, step, n_factors)
        a, b, n_more, converged = newton(problem, b, max_iter, 1e-7)
        n_iter += n_more
    errors = _errors(problem, a, b, loss, labels, n_iter, converged)
    return ShardedFit(_on_one_scale(cells, a, b), component, n_iter, converged, errors)


def _errors(problem, a, b, loss, labels, n_iter, converged):
    """The sums over documents that standard errors follow from."""
    found = None
    _, system = problem.solved(b, a)
    held = is_held(problem, b, system.gradient, system.diagonal)
    for own, cells in zip(a, problem.cells, strict=True):
        docs, _ = Problem(cells, "product", loss).held_by_bound(own, b)
        fit = TabularFit(own, b, n_iter, converged, loss, "product", cells, docs, held)
        sums = ErrorSums.of(fit, labels)
        found = sums if found is None else found + sums
    return found


def _on_one_scale(parts, a, b):
    """The factors on the scale of the function of this name in :mod:`._tabular`."""
    component = _components(parts, len(b))
    highest = np.full((2, int(component.max()) + 1), -np.inf)
    np.maximum.at(highest[1], component, b)
    for own, cells in zip(a, parts, strict=True):
        np.maximum.at(highest[0], component[cells.factor], own[cells.doc])
    return b - shift_of_scale(*highest, is_one=len(highest[0]) == 1)[component]


def _half_clicks(shards):
    """Clicks to add per expected click of each factor, as ``Cells.with_half_clicks`` does."""
    expected = np.zeros(shards.n_factors)
    for cells in shards:
        rate = cells.by_doc(cells.clicks) / np.maximum(cells.by_doc(cells.weight), TINY)
        expected += cells.by_factor(cells.weight * rate[cells.doc])
    unclicked = (shards.clicks_of_factors == 0) & (expected > 0)
    return np.divide(0.5, expected, out=np.zeros(len(expected)), where=unclicked)


def _components(parts, n_factors):
    """Connected component of each factor, from the factors that documents link."""
    links = csr_array((n_factors, n_factors))
    for cells in parts:
        shown = cells.matrix(np.ones(len(cells.doc)))
        links = links + shown.T @ shown
    return connected_components(links, directed=False)[1]


def _comparable(parts, n_factors):
    """Component of each factor within which clicks bound all ratios of examinations."""
    links = csr_array((n_factors, n_factors))
    for cells in parts:
        shown = cells.matrix(np.ones(len(cells.doc)))
        clicked = cells.take(np.flatnonzero(cells.clicks > 0))
        links = links + shown.T @ clicked.matrix(np.ones(len(clicked.doc)))
    return connected_components(links, connection="strong")[1]
