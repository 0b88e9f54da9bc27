"""Newton's method, matrices with parameters eliminated, and the likelihood of where clicks fell.

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
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.optimize import lsq_linear, minimize
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg, spilu
from sklearn.exceptions import ConvergenceWarning

from .._base._typing import Bools, Floats, Ints
from .._log._segments import TINY
from ..exceptions import warn_user

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

#: Up to so many factors a system is solved densely, which takes the cube of the number: hundreds
#: of factors take seconds, and iterations a tenth.
FEW_FACTORS = 100
#: Up to so many, where iterations fail, and where errors need the inverse, once.
MAX_DENSE = 1_500
#: A matrix is factorised if groups have so many factors at most (a mean over their numbers).
_LONGEST_ROW = 300
#: A permutation that keeps factors short, and pivots on the diagonal of a symmetric matrix.
_SYMMETRIC: dict[str, Any] = {
    "permc_spec": "MMD_AT_PLUS_A",
    "diag_pivot_thresh": 0.0,
    "options": {"SymmetricMode": True},
}
#: Numbers of a block of a dense matrix: 32 MB.
_BLOCK = 4_000_000
#: Share of numbers other than 0 up to which a matrix stays sparse: most documents of long lists
#: have few of the factors.
_SPARSE = 0.1
#: Most steps of Newton's method.
_MAX_ITER = 100
#: Curvature added for directions that are not determined, relative to each parameter's.
_JITTER = 1e-10
#: Least curvature: where exponentials of large scores vanish, squares of a step must not overflow.
_FLAT = 1e-100


class Maximum(NamedTuple):
    """Where Newton's method stopped."""

    at: Floats  # (..., n_parameters)
    value: Any  # (...)
    history: list[Any]  # what the objective returned beside value, gradient and curvature
    n_iter: int
    converged: bool


#: Share of a value that is rounding.
_ROUNDING = 1e-15
#: Share of its full gain by which a step must raise the value (Armijo's rule).
_ARMIJO = 1e-4
#: A step that must be shorter than this share of itself finds no ascent.
_SHORTEST = 1e-10


def maximise(
    objective: Callable[[Floats], Any],
    start: Floats,
    *,
    solve: Callable[..., Floats] | None = None,
    bounds: tuple[Floats, Floats] | tuple[()] = (),
    tol: Floats | float = 1e-12,
    longest: Floats | float = np.inf,
    still: float = 0.01,
) -> Maximum:
    """Maximise one smooth function by damped Newton steps, or several side by side.

    ``objective`` returns value, gradient, minus the Hessian (or anything that ``solve`` takes) and
    what is to be kept. Outside its domain the value is minus infinity. The method has converged if

    - the next step s would gain g's / 2 < tol / 2 (in log-likelihood: move no parameter by more
      than tol^½ standard errors), or change no digit, and
    - it would move no parameter by more than ``still``. Without this, separated clicks would pass:
      they leave hardly any gain, but steps that never shrink.

    No parameter leaves its ``bounds``, or moves by more than ``longest`` at once.
    """
    solve = solve or (solve_within if bounds else solve_scaled)
    at = start
    value, gradient, curvature, *kept = objective(at)
    history = [kept]
    for n_iter in range(_MAX_ITER):
        # Each function has a step of its own: those that gain nothing do not move.
        step = solve(curvature, gradient, *(bound - at for bound in bounds))
        gain = (gradient * step).sum(axis=-1)
        size = np.abs(step)
        # A step that moves the largest parameter by less than this share of it is rounding.
        moving = (gain >= tol) & (size.max(axis=-1) > 1e-9 * np.abs(at).max(axis=-1))
        if not moving.any():
            return Maximum(at, value, history, n_iter, bool((size <= still).all()))
        length = moving / np.maximum(np.max(size / longest, axis=-1), 1.0)
        length, new = _ascend(objective, at, step, gain, length, value, tol)
        if not (length > 0).any():
            return Maximum(at, value, history, n_iter, False)
        at = at + length[..., None] * step
        value, gradient, curvature, *kept = new
        history.append(kept)
    return Maximum(at, value, history, _MAX_ITER, False)


def _ascend(objective, at, step, gain, length, value, tol):
    """Length of each step, halved until it ascends (0 where it never does), and the objective
    there."""
    least = value - tol - _ROUNDING * np.abs(value)
    while True:
        new = objective(at + length[..., None] * step)
        value_there = new[0]
        needed = least + _ARMIJO * length * gain
        # Not "<": a value that is NaN is too small, too.
        is_short = (length > 0) & ~(value_there >= needed)
        if not is_short.any():
            return length, new
        halved = np.where(is_short, length / 2, length)
        length = np.where(length > _SHORTEST, halved, 0.0)


def warn_unless_converged(found: Maximum, subject: str) -> None:
    """Warn that an estimate is inexact if its solver stopped before the maximum."""
    if not found.converged:
        warn_user(
            f"{subject} did not converge in {found.n_iter} steps, and is inexact: the "
            "clicks hardly determine it. Log more sessions, or merge bias factors with "
            "IdentifiabilityRepair.",
            ConvergenceWarning,
        )


def minimised(
    loss: Callable[[Floats], float], start: Floats, subject: str, **settings: Any
) -> Floats:
    """Where a loss of few parameters is least, by SciPy, with a warning where it fails."""
    found = minimize(loss, start, **settings)
    # A line search that gains no more than rounding is a failure for SciPy: it is none where the
    # slope is less than a thousandth of the loss.
    flat = "jac" in found and np.abs(found.jac).max() < 1e-3 * max(abs(found.fun), 1.0)
    done = bool(found.success or flat)
    warn_unless_converged(Maximum(found.x, -found.fun, [], found.nit, done), subject)
    return found.x


def solve_scaled(curvature: Floats, gradient: Floats) -> Floats:
    """Newton step, with as much curvature added as makes it an ascent."""
    # Parameters in units in which each has the curvature 1.
    scale = np.sqrt(np.maximum(np.diag(curvature), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    curvature = curvature / np.outer(scale, scale)
    gradient = gradient / scale
    eye = np.eye(len(curvature))
    jitter = _JITTER
    while True:
        try:
            factor = cho_factor(curvature + jitter * eye)
        except LinAlgError:
            jitter *= 100
        else:
            return cho_solve(factor, gradient) / scale


def solve_within(
    curvature: Floats | Eliminated | Scaled, gradient: Floats, low: Floats, high: Floats
) -> Floats:
    """The step s between ``low`` and ``high`` of the greatest g's - s'Hs / 2."""
    # Of many parameters: where a bound holds one, it stays, and the others are cut at theirs.
    free = np.where(gradient > 0, high > 0, low < 0)
    if isinstance(curvature, Eliminated):
        step = np.zeros(len(gradient))
        free = free & (curvature.own > 0)
        left = curvature.among(np.flatnonzero(free))
        step[free] = left.plus(_JITTER * left.own).solve(gradient[free])
        return np.clip(step, low, high)
    if isinstance(curvature, Scaled):
        free = free.astype(float)
        only = aslinearoperator(diags_array(free))
        inverse = diags_array(1 / np.maximum(curvature.diagonal, _FLAT))
        system = only @ curvature.operator @ only
        # Exact enough for a step, after which there are others.
        step, _ = cg(system, free * gradient, rtol=1e-3, M=inverse)
        return np.clip(step, low, high)
    # Of few: exactly.
    step = solve_scaled(curvature, gradient)
    if ((step >= low) & (step <= high)).all():
        return step
    size, axes = eigh(curvature)
    least = max(_JITTER * size[-1], _FLAT)
    root = np.sqrt(np.maximum(size, least))
    # Least squares of H^½ s - H^-½ g.
    target = axes.T @ gradient / root
    return lsq_linear(root[:, None] * axes.T, target, (low, high), method="bvls").x


class Scaled(NamedTuple):
    """A symmetric matrix that is only multiplied, and its diagonal."""

    operator: LinearOperator
    diagonal: Floats


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
        self.own = own
        self.coupling = coupling
        self.inverse = inverse
        self._transposed = None if coupling is None else coupling.T
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
        squares = self.coupling.copy().power(2)  # of a copy: power() joins double entries in place
        return self.own - squares.T @ self.inverse

    def plus(self, diagonal: Floats) -> Eliminated:
        """The matrix with more on its diagonal."""
        joint = vars(self).get("joint")  # if it was computed
        return Eliminated(self.own + diagonal, self.coupling, self.inverse, joint)

    def dense(self) -> Floats:
        """The matrix as an array."""
        return np.diag(self.own) - self.joint

    def among(self, factors: Ints) -> Eliminated:
        """Rows and columns of some factors."""
        own = self.own[factors]
        if self.coupling is None:
            joint = self.joint[np.ix_(factors, factors)]
            return Eliminated(own, None, None, joint)
        return Eliminated(own, self.coupling[:, factors], self.inverse)

    def solve(self, right: Floats) -> Floats:
        """Solution of the system, near 0 in directions that are free.

        Conjugate gradients need few iterations where the graph of factors is well connected. In a
        chain they need as many as it has links, but its factorisation is sparse.
        """
        size = len(right)
        if size <= FEW_FACTORS or self.coupling is None:
            return solve_scaled(self.dense(), right)
        # Most iterations of conjugate gradients: a well-connected graph of factors needs fewer.
        iterate = partial(cg, self, right, rtol=1e-8, maxiter=100)
        x, failed = iterate(M=diags_array(1 / self.own))
        if failed:
            factor = self._sparse_factor()
            if factor is not None:
                x, failed = iterate(x0=x, M=factor)
        if failed and size <= MAX_DENSE:
            return solve_scaled(self.dense(), right)
        return x

    def _sparse_factor(self):
        """The inverse by sparse factors, incomplete where they would be long; None where the
        matrix itself has too many numbers."""
        numbers = np.diff(self.coupling.indptr).astype(float)
        if numbers @ numbers > _LONGEST_ROW * numbers.sum():
            return None
        joint = self.coupling.T @ (diags_array(self.inverse) @ self.coupling)
        if joint.nnz > _BLOCK:
            return None
        # Scaled, so that one tolerance suits frequent and rare factors.
        scale = diags_array(1 / np.sqrt(self.own))
        matrix = eye_array(len(self.own)) - scale @ joint @ scale
        # The factors have at most so many times the numbers of the matrix.
        factors = spilu(csc_array(matrix), drop_tol=0.0, fill_factor=20.0, **_SYMMETRIC)

        def inverse(x):
            return scale @ factors.solve(scale @ x)

        return LinearOperator(self.shape, inverse)

    def _matvec(self, values):
        values = np.ravel(values)
        if self.coupling is None:
            return self.own * values - self.joint @ values
        by_group = self.inverse * (self.coupling @ values)
        return self.own * values - self._transposed @ by_group

    def __add__(self, other: Eliminated) -> Eliminated:
        return Eliminated(self.own + other.own, None, None, self.joint + other.joint)


def gram(matrix: csr_array | Floats, weight: Floats) -> Floats:
    """M' diag(w) M of a (sparse) matrix and weights of its rows, a dense matrix."""
    if isinstance(matrix, np.ndarray):
        return matrix.T @ (weight[:, None] * matrix)
    n_rows, n_columns = matrix.shape
    if matrix.nnz <= _SPARSE * n_rows * n_columns:
        return (matrix.T @ (diags_array(weight) @ matrix)).toarray()
    # A dense product is faster: in blocks, because the whole would not fit into memory.
    total = np.zeros((n_columns, n_columns))
    n_block = max(_BLOCK // n_columns, 1)
    for first in range(0, n_rows, n_block):
        rows = slice(first, first + n_block)
        block = matrix[rows].toarray()
        total += block.T @ (weight[rows, None] * block)
    return total


# Where the clicks of a group fell, given how many: P(row i) = softmax(logits)_i -------
# The number of clicks of a group drops out, and with it whatever its rows share. Where groups are
# lists, with logits s + log o, scores of any scale, also of rankers that predict no clicks, can be
# compared by this likelihood. Where they are documents under several bias factors, with logits
# log n + log o, it determines examination whatever relevance is.
#: Bound on log examination ratios, whose estimate for a factor without clicks is minus infinity.
_MAX_LOG_RATIO = 12.0


@dataclass(frozen=True, eq=False)
class GroupedLogit:
    """Conditional likelihood of the clicks of each list, or other group, given their number.

    Only lists with a click have a likelihood; the arguments of all methods have one value for
    each row of the log that the lists were made from, if nothing else is said.
    """

    rows: Ints | slice  # (n_used,), those of the log in a list with a click, sorted by list
    list_: Ints  # (n_used,), from 0 without a gap
    starts: Ints  # (n_lists,), first of the used rows of each list
    clicks: Floats  # (n_used,), weighted
    total: Floats  # (n_lists,), clicks of each list
    #: (n_used,), added to all logits: log exposure, see :meth:`of_log`.
    offset: Floats | None = None

    @classmethod
    def from_rows(cls, list_: Ints, clicks: Floats, shown: Bools | None = None) -> GroupedLogit:
        """The clicked lists among rows that were ``shown``, by default all of them."""
        has_click = np.bincount(list_, weights=clicks) > 0
        used = has_click[list_]
        if shown is not None:
            used = used & shown
        rows = np.flatnonzero(used)
        rows = rows[np.argsort(list_[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(list_[rows], prepend=-1))
        sizes = np.diff(np.append(starts, len(rows)))
        number = np.repeat(np.arange(len(starts)), sizes)  # without gaps
        clicks = np.asarray(clicks, dtype=float)[rows]
        total = np.add.reduceat(clicks, starts) if len(starts) else np.zeros(0)
        return cls(rows, number, starts, clicks, total)

    @classmethod
    def of_log(cls, log: ClickLog) -> GroupedLogit:
        """The clicked lists of a log, with pages of one row joined, and log exposure as offset."""
        log = log.comparable()
        choice = cls.from_rows(log.list_, log.clicks)
        exposure = np.maximum(log.weight[choice.rows], TINY)
        return replace(choice, offset=np.log(exposure))

    @property
    def n_clicks(self) -> float:
        """(Weighted) number of clicks."""
        return float(self.total.sum())

    def list_losses(self, logits: Floats) -> Floats:
        """Negative log-likelihood of the clicks of each list, shape (n_lists,), in nats."""
        log_shares = self.log_shares(logits[self.rows])
        return -np.add.reduceat(self.clicks * log_shares, self.starts)

    def loss(self, logits: Floats) -> float:
        """Mean negative log-likelihood per click, in nats."""
        return float(self.list_losses(logits).sum() / self.n_clicks)

    def shares(self, logits: Floats) -> Floats:
        """Probability that a click of the list falls on each used row, shape (n_used,)."""
        return np.exp(self.log_shares(logits[self.rows]))

    def expected(self, shares: Floats) -> Floats:
        """Clicks that shares of used rows lead to expect, shape (n_used,)."""
        return self.total[self.list_] * shares

    def information(self, shares: Floats, code: Ints, n_codes: int) -> Eliminated:
        """Information about one effect per ``code`` of the used rows on their logits."""
        offsets = np.append(self.starts, len(code))
        mean = csr_array((shares, code, offsets), (len(self.total), n_codes))
        own = np.bincount(code, self.expected(shares), n_codes)
        return Eliminated(own, mean, self.total)

    def best_weights(
        self,
        scores: NDArray[np.float64],  # (n_rows, n_scores)
        log_examination: Floats,  # (n_rows,)
    ) -> Floats:  # (n_scores,)
        r"""Non-negative weights of several scores that make the clicks most likely.

        Maximises :math:`\sum_i c_i \log \mathrm{softmax}(\sum_m w_m s_m + \log o)_i`, which is
        concave.
        """
        n = scores.shape[1]
        no_factor = np.zeros(len(self.list_), dtype=int)
        bounds = (np.zeros(n), np.full(n, np.inf))
        start = np.full(n, 0.5 / n)  # half of a mean of the scores
        offset = log_examination[self.rows]
        return self._likeliest(scores[self.rows], no_factor, offset, start, bounds).at

    def likeliest_examination(
        self,
        relevance: Floats,  # (n_rows,), g
        factor: Ints,  # (n_rows,)
        start: Floats,  # (n_factors,)
    ) -> Floats:  # (n_factors,)
        r"""Maximum-likelihood log examination by bias factor, given relevance.

        Maximises :math:`\sum_i c_i \log \mathrm{softmax}(g + h)_i` in :math:`h`, which
        is determined up to a constant, between -12 and 12; NaN for a factor that occurs in no
        list with a click.
        """
        relevance = self._below_highest(relevance[self.rows])
        factor = factor[self.rows]
        high = np.full(len(start), _MAX_LOG_RATIO)
        no_scores = np.empty((len(relevance), 0))
        found = self._likeliest(no_scores, factor, relevance, start, (-high, high))
        occurs = np.bincount(factor, minlength=len(start)) > 0
        return np.where(occurs, found.at, np.nan)

    def likeliest_mix(
        self,
        scores: NDArray[np.float64],  # (n_rows, n_scores), s
        factor: Ints,  # (n_rows,)
        log_examination: Floats,  # (n_rows,)
        center: Floats,  # (n_factors + n_scores,), a
        strength: Floats | float = 0.0,  # λ of the weights
    ) -> tuple[Floats, Floats]:  # (n_factors,), (n_scores,)
        r"""An effect of each factor on the logits, and non-negative weights of several scores.

        Maximises :math:`\sum_i c_i \log \mathrm{softmax}(h_b + \sum_m w_m s_m + \log o)_i -
        \tfrac12 \sum_j \lambda_j (x_j - a_j)^2` in :math:`x = (h, w)`, which is concave. The prior
        of effects has standard deviation 3, so that rare factors and those that no list compares
        stay at their ``center``, from which the search starts.
        """
        n_scores = scores.shape[1]
        n = len(center) - n_scores
        # First effects of factors, then weights of scores.
        low = np.repeat([-_MAX_LOG_RATIO, 0.0], [n, n_scores])
        high = np.repeat([_MAX_LOG_RATIO, np.inf], [n, n_scores])
        # Standard deviation, in logits, of the effect of a factor before the clicks are seen.
        strength = np.append(np.full(n, 3.0**-2), np.broadcast_to(strength, n_scores))
        found = self._likeliest(
            self._below_highest(scores[self.rows]),
            factor[self.rows],
            log_examination[self.rows],
            center,
            (low, high),
            center,
            strength,
        )
        return found.at[:n], found.at[n:]

    def _below_highest(self, scores):
        """Scores of used rows less the highest of their list: exponentials do not overflow."""
        return scores - np.maximum.reduceat(scores, self.starts)[self.list_]

    def _likeliest(self, scores, factor, offset, start, bounds, center=0.0, strength=0.0):
        """Effects h of factors, and then weights w of scores, within bounds, of the greatest
        likelihood of logits h_b + S w + offset, less λ (x - a)² / 2: a :class:`Maximum`.

        Without a factor that ``start`` has an effect of, all ``factor`` are 0.
        """
        n = len(start) - scores.shape[1]
        shape = start.shape * 2
        strength = np.broadcast_to(strength, start.shape)

        def by_factor(values):
            return np.bincount(factor, values, n)[:n]

        def objective(point):
            effects = np.append(point[:n], 0.0)[factor]
            weights = point[n:]
            log_shares = self.log_shares(effects + scores @ weights + offset)
            shares = np.exp(log_shares)
            # The prior pulls toward its center.
            moved = point - center
            pull = strength * moved
            value = self.clicks @ log_shares - 0.5 * pull @ moved
            expected = self.expected(shares)
            surplus = self.clicks - expected
            slope = np.append(by_factor(surplus), surplus @ scores) - pull
            # Information about factors, about scores, and about both.
            by_factors = self.information(shares, factor, max(n, 1)).plus(strength[:n])
            if n == len(start):
                return value, slope, by_factors if n > FEW_FACTORS else by_factors.dense()
            mean = np.add.reduceat(shares[:, None] * scores, self.starts)
            apart = scores - mean[self.list_]
            moves = expected[:, None] * apart
            own = apart.T @ moves + np.diag(strength[n:])
            cross = np.column_stack([by_factor(each) for each in moves.T])
            if n <= FEW_FACTORS:
                return value, slope, np.block([[by_factors.dense(), cross], [cross.T, own]])

            def product(x):
                effects = by_factors @ x[:n] + cross @ x[n:]
                weights = cross.T @ x[:n] + own @ x[n:]
                return np.append(effects, weights)

            diagonal = np.append(by_factors.diagonal, np.diag(own))
            operator = LinearOperator(shape, product, dtype=float)
            return value, slope, Scaled(operator, diagonal)

        # Twice the log-likelihood that a last step may still gain: effects are exact to 1e-5 of
        # their standard errors.
        return maximise(objective, start, bounds=bounds, tol=1e-10)

    def log_shares(self, logits: Floats) -> Floats:
        """Log probability that a click of the list falls on each used row, given their logits."""
        if self.offset is not None:
            logits = logits + self.offset
        logits = self._below_highest(logits)
        total = np.add.reduceat(np.exp(logits), self.starts)
        return logits - np.log(total)[self.list_]
