"""Newton's method for losses of a[doc] + b[factor], summed over (document, bias factor) cells.

The sum to minimise is F(a, b) = Σ_k loss_k(a[doc_k] + b[factor_k]). Documents are eliminated from
its Hessian, as at the head of ``_solve.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, xlogy

from .._base._progress import progress
from .._base._threads import few_threads
from .._base._typing import Bools, Floats, Ints
from .._log._cells import Cells
from .._log._segments import TINY
from ._solve import Eliminated

#: Smallest probability: the logarithm of a document without a click stays finite.
SMALLEST = 1e-6
_MAX_LOGIT = 20.0
_LEAST_DAMPING, _SLIGHT_DAMPING, _MOST_DAMPING = 1e-10, 1e-4, 1e6
#: Gains too small to change an estimate, in units of log-likelihood and as a share of it.
_LEAST_GAIN, _LEAST_SHARE = 1e-6, 1e-9
#: A step is solved again at most so often because further factors reach their bounds.
_MAX_ROUNDS = 4
_MAX_INNER = 40
_LONGEST_STEP = 4.0


class System(NamedTuple):
    """Value and derivatives of a problem with respect to the factors, documents at their best."""

    value: float
    gradient: Floats
    curvature: Eliminated

    def plus(self, other: System) -> System:
        """The system of the parts of both."""
        return System(*(mine + more for mine, more in zip(self, other, strict=True)))


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
        return _LOSSES[self.link, self.loss][1]

    @cached_property
    def largest_weight(self) -> float:
        """Impressions of the cell that has the most."""
        return max(float(part.weight.max(initial=0.0)) for _, part in self.cells.parts())

    def _parts(self):
        """Documents of each part of the cells, a slice, and the problem of these cells."""
        if self.cells.n_parts == 1:  # it keeps its smallest loss
            return [(slice(None), self)]
        return ((docs, replace(self, cells=part)) for docs, part in self.cells.parts())

    def solved(self, b: Floats, a: Floats) -> tuple[Floats, System]:
        """The best documents given the factors, found from ``a``, and the system there."""
        best, systems = [], None
        for docs, part in self._parts():
            best.append(part.best_documents(b, a[docs]))
            system = part._system(best[-1], b)
            systems = system if systems is None else systems.plus(system)
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

    # Of cells in memory ------------------------------------------------------------------
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
        function, _ = _LOSSES[self.link, self.loss]
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

    def _system(self, a, b):
        """The system at documents and factors."""
        value, gradient, curvature = self.at(a, b)
        cells, (low, high) = self.cells, self.bounds
        total = cells.by_doc(curvature)
        # A document on a bound does not move.
        moves = (a > low) & (a < high) & (total > 0)
        inverse = np.divide(1.0, total, out=np.zeros(len(total)), where=moves)
        left = Eliminated(cells.by_factor(curvature), cells.matrix(curvature), inverse)
        return System(float(value.sum()), cells.by_factor(gradient), left)


def newton(
    problem: Problem, b: Floats, max_iter: int, tol: float
) -> tuple[Floats, Floats, int, bool]:
    """Minimise a problem by damped Newton steps of the factors."""
    b = np.clip(b, *problem.bounds)
    a, here = problem.solved(b, np.full(problem.cells.n_docs, -1.0))
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
    they are at their best) and A, C, D as at the head of ``_solve.py``,

        (D (1 + damping) - C' A^-1 C) s = -g.

    A factor whose gradient points out of its bounds stays, with s = 0; a factor that would leave
    them stops at the bound. With t the steps of these fixed factors (0 elsewhere), the free ones
    solve their rows of the system with the right side -(g + (D - C' A^-1 C) t).
    """
    low, high = problem.bounds
    gradient, curvature = here.gradient, here.curvature
    held = ((b <= low) & (gradient > 0)) | ((b >= high) & (gradient < 0))
    free = ~held & (curvature.own > 0)
    step = np.zeros(len(b))
    for _ in range(_MAX_ROUNDS):
        right = -(gradient + curvature @ np.where(free, 0.0, step))
        with few_threads(np.count_nonzero(free) ** 3 / 6):
            step[free] = curvature.among(np.flatnonzero(free)).solve(right[free], damping)
        # If only one or two documents hold a factor, the quadratic is a poor model far away.
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        if problem.gauge is not None:
            total = np.bincount(problem.gauge, step)
            step -= (total / np.bincount(problem.gauge))[problem.gauge]
        # Factors that would cross a bound stop there, and the others are solved for again.
        crossing = free & ((b + step < low) | (b + step > high))
        if not crossing.any():
            break
        step[crossing] = np.clip(b + step, low, high)[crossing] - b[crossing]
        free &= ~crossing
    return step


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


_LOWEST = float(np.log(SMALLEST))
#: By link and loss: the function, and least and largest value of every a and b.
_LOSSES = {
    ("product", "likelihood"): (_product_likelihood, (_LOWEST, 0.0)),
    ("product", "poisson"): (_product_poisson, (_LOWEST, -_LOWEST)),
    ("product", "squares"): (_product_squares, (_LOWEST, 0.0)),
    ("additive", "likelihood"): (_additive_likelihood, (-_MAX_LOGIT, _MAX_LOGIT)),
}
