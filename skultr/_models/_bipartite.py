"""Newton's method for losses of a[doc] + b[factor], summed over (document, bias factor) cells.

The sum to minimise is F(a, b) = Σ_k loss_k(a[doc_k] + b[factor_k]). With h_k the curvature of
cell k, its Hessian is

    [ A   C ]      A = diag(sums of h over documents),  C[d, f] = sum of h over the cells
    [ C'  D ],     D = diag(sums of h over factors),              of document d and factor f.

A is diagonal, so that documents are eliminated exactly. The system D - C' A^-1 C that remains has
one row per bias factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit, log_expit, xlogy

from .._base._progress import progress
from .._base._threads import few_threads
from .._base._typing import Bools, Floats, Ints
from .._log._cells import Cells
from .._log._segments import TINY

#: Smallest probability: the logarithm of a document without a click stays finite.
SMALLEST = 1e-6
_MAX_LOGIT = 20.0
#: Up to the first number of factors the system that remains is solved densely, up to the second
#: where conjugate gradients would cost more.
_FEW_FACTORS, MAX_DENSE = 100, 1_500
#: Seconds of a multiplication of sparse matrices, of one in a factorisation, and of an iteration
#: beside its products: only their ratios matter.
_SPARSE_COST, _DENSE_COST, _ITERATION_COST = 2e-9, 1e-10, 5e-5
_LEAST_DAMPING, _SLIGHT_DAMPING, _MOST_DAMPING = 1e-10, 1e-4, 1e6
#: Gains too small to change an estimate, in units of log-likelihood and as a share of it.
_LEAST_GAIN, _LEAST_SHARE = 1e-6, 1e-9
#: A step is solved again at most so often because further factors reach their bounds.
_MAX_ROUNDS = 4
_MAX_INNER = 40
_MAX_ITERATIONS = 300
_LONGEST_STEP = 4.0


@dataclass(frozen=True, eq=False)
class Problem:
    """The sum over cells of a loss of a[doc] + b[factor], with bounds on every a and b.

    Each step reads every part of the cells once.
    """

    cells: Cells
    link: str
    loss: str

    @cached_property
    def gauge(self) -> Ints | None:
        """Connected component of each factor, shape (n_factors,); None if the cap may move scales.

        Within a component the scale is free, so steps keep the mean log examination fixed. With
        probabilities capped at 1 the cap may have to shift the scale.
        """
        return None if self.bounds[1] == 0.0 else self.cells.component_of_factors

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest value of every a and b."""
        return _BOUNDS[self.link, self.loss]

    @cached_property
    def largest_weight(self) -> float:
        """Impressions of the cell that has the most."""
        return max(float(part.weight.max(initial=0.0)) for _, part in self.cells.parts())

    @cached_property
    def _in_memory(self):
        return CellLoss(self.cells, self.link, self.loss)

    def _parts(self):
        if self.cells.n_parts == 1:  # it keeps its smallest loss
            return [(slice(None), self._in_memory)]
        parts = self.cells.parts()
        return ((docs, CellLoss(part, self.link, self.loss)) for docs, part in parts)

    def solved(self, b: Floats, a: Floats | None) -> tuple[Floats, System]:
        """The best documents given the factors, found from ``a``, and the system there."""
        a = np.full(self.cells.n_docs, -1.0) if a is None else a
        best, systems = [], None
        for docs, part in self._parts():
            best.append(part.best_documents(b, a[docs]))
            system = System.of(part, best[-1], b)
            systems = system if systems is None else systems + system
        assert systems is not None
        return np.concatenate(best), systems

    def held_by_bound(self, a: Floats, b: Floats) -> tuple[Bools, Bools]:
        """Documents and factors whose estimate sits on a bound although the gradient points
        outside: two masks."""
        held, slopes = [], np.zeros((2, len(b)))
        for docs, part in self._parts():
            _, *of_cells = part.at(a[docs], b)
            held.append(self._is_held(a[docs], *map(part.cells.by_doc, of_cells)))
            slopes += [part.cells.by_factor(each) for each in of_cells]
        return np.concatenate(held), self._is_held(b, *slopes)

    def _is_held(self, x, gradient, curvature):
        # A gradient below a hundredth of its own noise counts as 0.
        return np.isin(x, self.bounds) & (np.abs(gradient) > 0.01 * np.sqrt(curvature))


@dataclass(frozen=True, eq=False)
class CellLoss:
    """The losses of cells in memory as functions of documents and factors."""

    cells: Cells
    link: str
    loss: str

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest value of every a and b."""
        return _BOUNDS[self.link, self.loss]

    @cached_property
    def saturated(self) -> Floats | float:
        """The smallest loss that each cell can have by itself, shape (n_cells,).

        It is subtracted, and the difference has the size of the noise. With billions of
        impressions, the information of a weak link would be lost in the last digits of the
        undiminished loss.
        """
        if self.loss == "squares":
            return 0.0
        clicks, weight = self.cells.clicks, np.maximum(self.cells.weight, TINY)
        if self.loss == "poisson":
            return clicks - xlogy(clicks, clicks / weight)
        off = self.cells.weight - clicks
        return -xlogy(clicks, clicks / weight) - xlogy(off, off / weight)

    def at(self, a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
        """Loss, gradient and curvature of each cell, three arrays of shape (n_cells,)."""
        cells = self.cells
        function = _LOSSES[self.link, self.loss]
        value, *slopes = function(a[cells.doc] + b[cells.factor], cells.clicks, cells.weight)
        return value - self.saturated, *slopes

    def best_documents(self, b: Floats, a: Floats) -> Floats:
        """The best value of each document given the factors, shape (n_docs,); starts at ``a``."""
        if self.loss == "likelihood":
            return self._best_by_newton(b, a)
        cells, examination = self.cells, np.exp(b)[self.cells.factor]
        of_clicks = examination if self.loss == "squares" else 1.0
        clicks = cells.by_doc(cells.clicks * of_clicks)
        expected = cells.by_doc(cells.weight * examination * of_clicks)
        ratio = np.divide(clicks, expected, out=np.ones_like(clicks), where=expected > 0)
        with np.errstate(divide="ignore"):
            return np.clip(np.log(ratio), *self.bounds)

    def _best_by_newton(self, b: Floats, a: Floats) -> Floats:
        """Newton's method inside a shrinking bracket, one convex problem per document."""
        cells = self.cells
        low, high = (np.full(cells.n_docs, bound) for bound in self.bounds)
        for _ in range(_MAX_INNER):
            _, gradient, curvature = self.at(a, b)
            slope = cells.by_doc(gradient)
            low, high = np.where(slope < 0, a, low), np.where(slope > 0, a, high)
            total = cells.by_doc(curvature)
            new = a - np.divide(slope, total, out=np.zeros_like(a), where=total > 0)
            # A step that leaves the bracket ends at the bound of the problem, where that is the
            # end of the bracket, and else in the middle of the bracket.
            inner = (low > self.bounds[0], high < self.bounds[1])
            new = np.where((new < low) & inner[0] | (new > high) & inner[1], (low + high) / 2, new)
            new = np.clip(new, low, high)
            moved = np.abs(new - a).max(initial=0.0)
            a = new
            if moved <= 1e-10:
                break
        return a


@dataclass(frozen=True, eq=False)
class System:
    """Value and derivatives of a problem with respect to the factors, documents at their best.

    ``diagonal`` is D, the curvature of each factor, and ``joint`` C' A^-1 C: of one part as its
    factors, which are computed where a step needs them, and of several as a matrix.
    """

    value: float
    gradient: Floats
    diagonal: Floats
    joint: Joint

    @classmethod
    def of(cls, part: CellLoss, a: Floats, b: Floats) -> System:
        """The system of a part at its documents and all factors."""
        value, gradient, curvature = part.at(a, b)
        sums = map(part.cells.by_factor, (gradient, curvature))
        return cls(float(value.sum()), *sums, Joint(part, a, curvature))

    def __add__(self, other: System) -> System:
        return System(
            self.value + other.value,
            self.gradient + other.gradient,
            self.diagonal + other.diagonal,
            self.joint + other.joint,
        )


class Joint:
    """C' A^-1 C, by which eliminating the documents of a part changes the system.

    A document on a bound does not move: its entry of A^-1 is 0.
    """

    def __init__(self, part: CellLoss, a: Floats, curvature: Floats) -> None:
        self._part, self._a, self._curvature = part, a, curvature

    @cached_property
    def _coupling(self):
        return self._part.cells.matrix(self._curvature)

    @cached_property
    def _inverse_a(self):
        low, high = self._part.bounds
        total = self._part.cells.by_doc(self._curvature)
        moves = (self._a > low) & (self._a < high) & (total > 0)
        return np.divide(1.0, total, out=np.zeros(len(total)), where=moves)

    def __matmul__(self, values: Floats) -> Floats:
        return self._coupling.T @ (self._inverse_a * (self._coupling @ values))

    def __add__(self, other: Joint) -> _DenseJoint:
        return _DenseJoint(self.dense()) + other

    def dense(self, free: Ints | slice = slice(None)) -> Floats:
        """The matrix of some factors."""
        return eliminated(self._coupling[:, free], self._inverse_a)

    def affordable_iterations(self, free: Ints) -> int:
        """Iterations of conjugate gradients for the cost of a dense solution; 0 if it is cheap."""
        return _affordable_iterations(self._coupling[:, free])

    def product_of(self, free: Ints) -> Callable[[Floats], Floats]:
        """The matrix of some factors as a function of a vector."""
        coupling = self._coupling[:, free]
        transposed = coupling.T.tocsr()
        return lambda x: transposed @ (self._inverse_a * (coupling @ x))


class _DenseJoint(Joint):
    """The same of several parts, as a matrix."""

    def __init__(self, matrix):
        self._matrix = matrix

    def __matmul__(self, values: Floats) -> Floats:
        return self._matrix @ values

    def __add__(self, other: Joint) -> _DenseJoint:
        return _DenseJoint(self._matrix + other.dense())

    def dense(self, free: Ints | slice = slice(None)) -> Floats:
        return self._matrix[free][:, free]

    def affordable_iterations(self, free: Ints) -> int:
        return 0  # the matrix is there


def newton(
    problem: Problem, b: Floats, max_iter: int, tol: float
) -> tuple[Floats, Floats, int, bool]:
    """Minimise a problem by damped Newton steps of the factors."""
    b = np.clip(b, *problem.bounds)
    a, here = problem.solved(b, None)
    damping = _LEAST_DAMPING
    # The loss has the size of the noise, about one half per cell; it is 0 for noise-free clicks.
    least_gain = _LEAST_GAIN * min(1.0, problem.largest_weight)
    for n_iter in progress(range(1, max_iter + 1), "Newton step", most=max_iter):
        new_b = np.clip(b + _step(problem, b, here, damping), *problem.bounds)
        new_a, there = problem.solved(new_b, a)
        value = there.value
        moved, gained = np.abs(new_b - b).max(initial=0.0), here.value - value
        # A step that was shortened by damping is no evidence of convergence.
        bold = damping <= _SLIGHT_DAMPING
        if not gained > 0:
            if damping > _MOST_DAMPING or (bold and moved <= tol):
                return a, b, n_iter, True  # any further descent is below rounding
            damping *= 100.0
            continue
        a, b, here = new_a, new_b, there
        if bold and (moved <= tol or gained <= max(least_gain, _LEAST_SHARE * abs(value))):
            return a, b, n_iter, True
        damping = max(damping / 10.0, _LEAST_DAMPING)
    return a, b, max_iter, False


def _step(problem: Problem, b: Floats, here: System, damping: float) -> Floats:
    """One damped Newton step s of the factors, with the documents eliminated.

    It solves, with g the gradient with respect to the factors (that of documents is 0, because
    they are at their best) and A, C, D as at the head of this file,

        (D (1 + damping) - C' A^-1 C) s = -g.

    A factor whose gradient points out of its bounds stays, with s = 0; a factor that would leave
    them stops at the bound. With t the steps of these fixed factors (0 elsewhere), the free ones
    solve their rows of the system with the right side -(g + (D - C' A^-1 C) t).
    """
    low, high = problem.bounds
    gradient, diagonal = here.gradient, here.diagonal
    held = ((b <= low) & (gradient > 0)) | ((b >= high) & (gradient < 0))
    free = ~held & (diagonal > 0)
    step = np.zeros(len(b))
    for _ in range(_MAX_ROUNDS):
        stopped = np.where(free, 0.0, step)
        pull = diagonal * stopped - here.joint @ stopped
        with few_threads(np.count_nonzero(free) ** 3 / 6):
            step[free] = _solve_factors(
                here, np.flatnonzero(free), -(gradient + pull)[free], damping
            )
        # If only one or two documents hold a factor, the quadratic is a poor model far away.
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        if problem.gauge is not None:
            step -= _means(step, problem.gauge)
        # Factors that would cross a bound stop there, and the others are solved for again.
        crossing = free & ((b + step < low) | (b + step > high))
        if not crossing.any():
            break
        step[crossing] = np.clip(b + step, low, high)[crossing] - b[crossing]
        free &= ~crossing
    return step


def _means(values: Floats, labels: Ints) -> Floats:
    """The mean of the values of each label, shape of ``values``."""
    return (np.bincount(labels, values) / np.bincount(labels))[labels]


def _solve_factors(here: System, free: Ints, right: Floats, damping: float) -> Floats:
    """Solve (D (1 + damping) - C' A^-1 C) x = right for the ``free`` factors."""
    size, diagonal = len(right), here.diagonal[free]
    iterations = here.joint.affordable_iterations(free) if size <= MAX_DENSE else _MAX_ITERATIONS
    if iterations:
        of_free = here.joint.product_of(free)

        def product(x):
            return diagonal * (1 + damping) * x - of_free(x)

        system = LinearOperator((size, size), matvec=product, dtype=float)
        precondition = LinearOperator((size, size), matvec=lambda x: x / diagonal, dtype=float)
        rtol = 1e-8 if size <= MAX_DENSE else 1e-4
        x, failed = cg(system, right, rtol=rtol, maxiter=iterations, M=precondition)
        if size > MAX_DENSE or not failed:
            return x
    matrix = np.diag(diagonal * (1 + damping)) - here.joint.dense(free)
    # Scaled to a unit diagonal, so that one damping suits frequent and rare factors.
    scale = 1 / np.sqrt(diagonal)
    matrix = scale[:, None] * matrix * scale
    try:
        return scale * cho_solve(cho_factor(matrix), scale * right)
    except LinAlgError:  # singular: a constant per component is free
        return scale * np.linalg.lstsq(matrix, scale * right, rcond=1e-13)[0]


def _affordable_iterations(coupling: csr_array) -> int:
    """Iterations of conjugate gradients for the cost of a dense solution; 0 if it is cheap."""
    size = coupling.shape[1]
    if size <= _FEW_FACTORS:
        return 0
    products = float((np.diff(coupling.indptr).astype(float) ** 2).sum())
    dense = _SPARSE_COST * (products + size**2) + _DENSE_COST * size**3
    return int(dense / (_ITERATION_COST + 2 * _SPARSE_COST * coupling.nnz))


def eliminated(coupling: csr_array, inverse_a: Floats) -> Floats:
    """C' A^-1 C as a dense matrix, which eliminating the documents subtracts from D."""
    return (coupling.T @ (diags_array(inverse_a) @ coupling)).toarray()


# The loss of a cell as a function of its logit: value, gradient and a positive curvature ----
# With c clicks of w impressions and s = a[doc] + b[factor]:
#   product, likelihood   -c s - (w - c) log(1 - e^s)           binomial, p = e^s
#   product, poisson      w e^s - c s                           Poisson, mean w e^s
#   product, squares      (w e^s - c)^2 / (2 w)                 weighted squares of click rates
#   additive, likelihood  -c log σ(s) - (w - c) log σ(-s)       binomial, p = σ(s)
def _product_likelihood(
    logit: Floats, clicks: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    p = np.exp(logit)
    off = weight - clicks
    # Where every impression was clicked, 0 times the infinite logarithm is 0.
    with np.errstate(divide="ignore"):
        miss = np.where(off > 0, np.log(-np.expm1(logit)), 0.0)
    value = -clicks * logit - off * miss
    rest = np.maximum(-np.expm1(logit), 1e-12)
    missed = off * p / rest
    # Where every impression was clicked the curvature is 0; a part of the weight stands in.
    return value, missed - clicks, np.maximum(missed / rest, 0.01 * weight * p)


def _product_poisson(
    logit: Floats, clicks: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    expected = weight * np.exp(logit)
    return expected - clicks * logit, expected - clicks, expected


def _product_squares(
    logit: Floats, clicks: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    p = np.exp(logit)
    error = weight * p - clicks
    return 0.5 * error**2 / weight, error * p, weight * p**2


def _additive_likelihood(
    logit: Floats, clicks: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    p = expit(logit)
    value = -clicks * log_expit(logit) - (weight - clicks) * log_expit(-logit)
    return value, weight * p - clicks, np.maximum(weight * p * (1 - p), 1e-12 * weight)


_LOSSES = {
    ("product", "likelihood"): _product_likelihood,
    ("product", "poisson"): _product_poisson,
    ("product", "squares"): _product_squares,
    ("additive", "likelihood"): _additive_likelihood,
}
_LOWEST = float(np.log(SMALLEST))
_BOUNDS = {
    ("product", "likelihood"): (_LOWEST, 0.0),
    ("product", "poisson"): (_LOWEST, -_LOWEST),
    ("product", "squares"): (_LOWEST, 0.0),
    ("additive", "likelihood"): (-_MAX_LOGIT, _MAX_LOGIT),
}
