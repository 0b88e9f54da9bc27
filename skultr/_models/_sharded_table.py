"""Tables of relevance over shards of documents: each Newton step adds small matrices of shards.

The losses of :mod:`._bipartite` are sums over documents, given the factors. A shard contributes
its loss, gradient, curvature and the matrix that eliminating its documents subtracts: numbers,
vectors and matrices of the size of the factors, whatever the number of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from .._log._cells import Cells
from .._log._segments import TINY
from .._log._shards import CellShards, components_of
from .._typing import Floats, Ints
from ._bipartite import MAX_DENSE, Problem, is_held, newton
from ._tabular import (
    ErrorSums,
    TabularFit,
    informative,
    shift_of_scale,
    starting_logits,
    steps_to,
)


@dataclass(frozen=True, eq=False)
class ShardedFit:
    """What :func:`fit_shards` found.

    Parameters
    ----------
    doc_logits : list of ndarray
        As :class:`TabularFit` has them, of the documents of each shard.
    factor_logits : ndarray of shape (n_factors,)
        Up to one constant per component.
    component : ndarray of shape (n_factors,), int
        Equal where documents connect factors.
    n_iter : int
    converged : bool
    link : str
    errors : ErrorSums
    """

    doc_logits: list[Floats]
    factor_logits: Floats
    component: Ints
    n_iter: int
    converged: bool
    link: str
    errors: ErrorSums

    @property
    def relevance(self) -> list[Floats]:
        """Relevance of the documents of each shard, in [0, 1]; NaN for one in no cell."""
        function = np.exp if self.link == "product" else expit
        return [function(own) for own in self.doc_logits]

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
    link: str
    loss: str
    n_factors: int

    def problems(self) -> Iterator[Problem]:
        return (Problem(cells, self.link, self.loss) for cells in self.cells)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        return next(self.problems()).bounds

    @cached_property
    def gauge(self) -> Ints | None:
        if self.bounds[1] == 0.0:
            return None
        return components_of(self.cells, self.n_factors)

    @cached_property
    def largest_weight(self) -> float:
        return max(problem.largest_weight for problem in self.problems())

    def solved(self, b: Floats, a: list[Floats] | None) -> tuple[list[Floats], _SumOfSystems]:
        documents, value = [], 0.0
        gradient, diagonal = np.zeros((2, self.n_factors))
        joint = np.zeros((self.n_factors, self.n_factors))
        every = np.arange(self.n_factors)
        for number, problem in enumerate(self.problems()):
            own, system = problem.solved(b, None if a is None else a[number])
            documents.append(own)
            value += system.value
            gradient += system.gradient
            diagonal += system.diagonal
            joint += system.eliminated(every)
        return documents, _SumOfSystems(value, gradient, diagonal, joint)


def fit_shards(
    shards: CellShards,
    loss: str,
    *,
    link: str = "product",
    start: Floats | None = None,
    half_clicks: bool = True,
    max_iter: int = 200,
) -> ShardedFit:
    """As :func:`fit_tabular`, for cells that do not fit into memory.

    Each Newton step reads every shard once. In memory are one shard, a number per document, and
    a few matrices of shape (n_factors, n_factors).

    Parameters
    ----------
    shards : CellShards
    loss : {"likelihood", "squares", "poisson"}
    link, start, max_iter
        See :func:`fit_tabular`.
    half_clicks : bool, default=True
        Whether a factor without clicks is given half a click, see ``Cells.with_half_clicks``.

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
    cells = prepared(shards, loss, link=link, half_clicks=half_clicks)
    b, n_iter = starting_logits(start, n_factors), 0
    for step in steps_to(loss, link):
        problem = _ShardedProblem(cells, link, step, n_factors)
        a, b, n_more, converged = newton(problem, b, max_iter, 1e-7)
        n_iter += n_more
    labels = _comparable(cells, n_factors, link)
    errors = _errors(problem, a, b, labels, n_iter, converged)
    if link == "product":
        a, b = _on_one_scale(cells, a, b)
    a = [
        np.where(part.by_doc(part.weight) > 0, own, np.nan)
        for own, part in zip(a, cells, strict=True)
    ]
    return ShardedFit(a, b, shards.component_of_factors, n_iter, converged, link, errors)


def prepared(
    shards: CellShards, loss: str, *, link: str = "product", half_clicks: bool = True
) -> Iterable[Cells]:
    """The shards as :func:`fit_shards` reads them."""
    added = _half_clicks(shards) if half_clicks else np.zeros(shards.n_factors)
    cells = _Prepared(shards, added)
    if loss == "poisson":
        labels = _comparable(cells, shards.n_factors, link)
        if len(np.unique(labels)) > 1:
            cells = replace(cells, labels=labels)
    return cells


def _errors(problem, a, b, labels, n_iter, converged):
    """The sums over documents that standard errors follow from."""
    found, loss, link = None, problem.loss, problem.link
    _, system = problem.solved(b, a)
    held = is_held(problem, b, system.gradient, system.diagonal)
    for own, part in zip(a, problem.problems(), strict=True):
        docs, _ = part.held_by_bound(own, b)
        fit = TabularFit(own, b, n_iter, converged, loss, link, part.cells, docs, held)
        sums = ErrorSums.of(fit, labels)
        found = sums if found is None else found + sums
    return found


def _on_one_scale(parts, a, b):
    """Documents and factors on the scale of the function of this name in :mod:`._tabular`."""
    component = components_of(parts, len(b))
    highest = np.full((2, int(component.max()) + 1), -np.inf)
    np.maximum.at(highest[1], component, b)
    for own, cells in zip(a, parts, strict=True):
        np.maximum.at(highest[0], component[cells.factor], own[cells.doc])
    shift = shift_of_scale(*highest, is_one=len(highest[0]) == 1)[component]
    moved = []
    for own, cells in zip(a, parts, strict=True):
        of_doc = np.zeros(len(own))
        of_doc[cells.doc] = shift[cells.factor]
        moved.append(own + of_doc)
    return moved, b - shift


def _half_clicks(shards):
    """Clicks to add per expected click of each factor, as ``Cells.with_half_clicks`` does."""
    expected = np.zeros(shards.n_factors)
    for cells in shards:
        rate = cells.by_doc(cells.clicks) / np.maximum(cells.by_doc(cells.weight), TINY)
        expected += cells.by_factor(cells.weight * rate[cells.doc])
    unclicked = (shards.clicks_of_factors == 0) & (expected > 0)
    return np.divide(0.5, expected, out=np.zeros(len(expected)), where=unclicked)


def _comparable(parts, n_factors, link):
    """Component of each factor within which clicks bound all ratios of examinations."""
    links = csr_array((n_factors, n_factors))
    for cells in parts:
        shown = cells.matrix(np.ones(len(cells.doc)))
        clicked = cells.take(np.flatnonzero(informative(cells, link)))
        links = links + shown.T @ clicked.matrix(np.ones(len(clicked.doc)))
    return connected_components(links, connection="strong")[1]
