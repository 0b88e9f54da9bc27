"""Newton's method, and the matrices that are left where parameters were eliminated.

With one parameter per group (a document, a list) and one per factor, the Hessian of a sum over
cells of a group and a factor is

    [ A   C ]      A = diag(sums of the curvature over groups),  C[g, f] = that of the cells
    [ C'  D ],     D = diag(sums of the curvature over factors),             of g and f.

A is diagonal, so that groups are eliminated exactly: D - C' A^-1 C remains, with one row per
factor. Where relevance drops out because the number of clicks of each group is given, the
information has the same form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, cg

from .._base._typing import Floats, Ints

#: Up to the first number of factors a system is solved densely, up to the second where conjugate
#: gradients would cost more.
FEW_FACTORS, MAX_DENSE = 100, 1_500
#: Seconds of a multiplication of sparse matrices, of one in a factorisation, and of an iteration
#: beside its products: only their ratios matter.
_SPARSE_COST, _DENSE_COST, _ITERATION_COST = 2e-9, 1e-10, 5e-5
_MAX_ITERATIONS = 300
#: Numbers of a block of a dense matrix, and the share of numbers other than 0 up to which a matrix
#: stays sparse: most documents of long lists have few of the factors.
_BLOCK, _SPARSE = 4_000_000, 0.1
#: Most steps of Newton's method.
_MAX_ITER = 100
#: Share of its full gain by which a step must raise the value, and its shortest part.
_LEAST_GAIN, _SHORTEST = 1e-4, 1e-10
#: Curvature added for directions that are not determined, relative to each parameter's.
_JITTER = 1e-10


class Maximum(NamedTuple):
    """Where Newton's method stopped."""

    at: Floats  # (..., n_parameters)
    value: Any  # (...)
    history: list[Any]  # what the objective returned beside value, gradient and curvature
    n_iter: int
    converged: bool


def maximise(
    objective: Callable[[Floats], Any],
    start: Floats,
    *,
    solve: Callable[[Any, Floats], Floats] | None = None,
    tol: Floats | float = 1e-12,
    longest: Floats | float = np.inf,
) -> Maximum:
    """Maximise one smooth function by damped Newton steps, or several side by side.

    ``objective`` returns value, gradient, minus the Hessian (or anything that ``solve`` takes) and
    what is to be kept; outside its domain the value is minus infinity. It has converged where the
    next step s would gain g's / 2 < tol / 2. No parameter moves by more than ``longest`` at once.
    """
    solve, at = solve or solve_scaled, start
    value, gradient, curvature, *kept = objective(at)
    history = [kept]
    for n_iter in range(_MAX_ITER):
        step = solve(curvature, gradient)
        gain = (gradient * step).sum(axis=-1)
        moving = gain >= tol
        if not moving.any():
            return Maximum(at, value, history, n_iter, True)
        length = moving / np.maximum(np.max(np.abs(step) / longest, axis=-1), 1.0)
        while True:
            new = objective(at + length[..., None] * step)
            short = moving & ~(new[0] >= value + _LEAST_GAIN * length * gain)
            if not short.any():
                break
            length = np.where(short, length / 2, length)
            length = np.where(length < _SHORTEST, 0.0, length)  # only rounding errors are left
            moving = moving & (length > 0)
        if not moving.any():
            return Maximum(at, value, history, n_iter, bool(np.all(gain < 1e4 * tol)))
        at = at + length[..., None] * step
        value, gradient, curvature, *kept = new
        history.append(kept)
    return Maximum(at, value, history, _MAX_ITER, False)


def solve_scaled(curvature: Floats, gradient: Floats) -> Floats:
    """Newton step, with as much curvature added as makes it an ascent."""
    scale = np.sqrt(np.maximum(np.diag(curvature), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    curvature, gradient = curvature / np.outer(scale, scale), gradient / scale
    eye, jitter = np.eye(len(curvature)), _JITTER
    while True:
        try:
            return cho_solve(cho_factor(curvature + jitter * eye), gradient) / scale
        except LinAlgError:
            jitter *= 100


class Eliminated(LinearOperator):
    """The symmetric matrix D - C' A^-1 C of the factors, where groups are eliminated.

    ``own`` is D. C and A^-1 are kept as they are, and multiplied where a step needs that; of the
    sum over several parts of the groups only the product ``joint`` is kept, a dense matrix.
    """

    def __init__(
        self,
        own: Floats,
        coupling: csr_array | None,
        inverse: Floats | None,
        joint: Floats | None = None,
    ) -> None:
        super().__init__(dtype=np.dtype(float), shape=(len(own), len(own)))
        self.own, self.coupling, self.inverse = own, coupling, inverse
        if joint is not None:
            self.joint = joint

    @cached_property
    def joint(self) -> Floats:
        """C' A^-1 C, a dense matrix."""
        return gram(self.coupling, self.inverse)

    @cached_property
    def diagonal(self) -> Floats:
        """Diagonal of the matrix: the information about a factor if the others were known."""
        if self.coupling is None:
            return self.own - np.diag(self.joint)
        return self.own - self.coupling.power(2).T @ self.inverse

    def plus(self, diagonal: Floats) -> Eliminated:
        """The matrix with more on its diagonal."""
        joint = vars(self).get("joint")
        return Eliminated(self.own + diagonal, self.coupling, self.inverse, joint)

    def dense(self) -> Floats:
        """The matrix as an array."""
        return np.diag(self.own) - self.joint

    def among(self, factors: Ints) -> Eliminated:
        """Rows and columns of some factors."""
        own = self.own[factors]
        if self.coupling is None:
            return Eliminated(own, None, None, self.joint[np.ix_(factors, factors)])
        return Eliminated(own, self.coupling[:, factors], self.inverse)

    def solve(self, right: Floats, damping: float) -> Floats:
        """Solve (D (1 + damping) - C' A^-1 C) x = right."""
        size = len(right)
        damped = self.plus(damping * self.own)
        iterations = self._affordable_iterations() if size <= MAX_DENSE else _MAX_ITERATIONS
        if iterations:
            rtol = 1e-8 if size <= MAX_DENSE else 1e-4
            precondition = diags_array(1 / self.own)
            x, failed = cg(damped, right, rtol=rtol, maxiter=iterations, M=precondition)
            if size > MAX_DENSE or not failed:
                return x
        # Scaled to a unit diagonal, so that one damping suits frequent and rare factors.
        scale = 1 / np.sqrt(self.own)
        matrix = scale[:, None] * damped.dense() * scale
        try:
            return scale * cho_solve(cho_factor(matrix), scale * right)
        except LinAlgError:  # singular: a constant per component is free
            return scale * np.linalg.lstsq(matrix, scale * right, rcond=1e-13)[0]

    def _affordable_iterations(self):
        """Iterations of conjugate gradients for the cost of a dense solution; 0 if it is cheap."""
        size = len(self.own)
        if size <= FEW_FACTORS or self.coupling is None:
            return 0
        products = float((np.diff(self.coupling.indptr).astype(float) ** 2).sum())
        dense = _SPARSE_COST * (products + size**2) + _DENSE_COST * size**3
        return int(dense / (_ITERATION_COST + 2 * _SPARSE_COST * self.coupling.nnz))

    def _matvec(self, values):
        values = np.ravel(values)
        if self.coupling is None:
            return self.own * values - self.joint @ values
        return self.own * values - self._transposed @ (self.inverse * (self.coupling @ values))

    def _adjoint(self):
        return self

    @cached_property
    def _transposed(self):
        return self.coupling.T.tocsr()

    def __add__(self, other: Eliminated) -> Eliminated:
        return Eliminated(self.own + other.own, None, None, self.joint + other.joint)


def gram(matrix: csr_array, weight: Floats) -> Floats:
    """M' diag(w) M of a sparse matrix and weights of its rows, a dense matrix."""
    n_rows, n_columns = matrix.shape
    if matrix.nnz <= _SPARSE * n_rows * n_columns:
        return (matrix.T @ (diags_array(weight) @ matrix)).toarray()
    total = np.zeros((n_columns, n_columns))
    n_block = max(_BLOCK // n_columns, 1)
    for first in range(0, n_rows, n_block):
        block = matrix[first : first + n_block].toarray()
        total += block.T @ (weight[first : first + n_block, None] * block)
    return total
