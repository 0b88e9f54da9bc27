"""Newton's method for sums over (document, bias factor) cells of a loss of a[doc] + b[factor].

The Hessian of such a sum is that of a bipartite graph: documents are eliminated exactly, and what
is left has the size of the bias factors.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit, log_expit, xlogy

from .._log._cells import Cells
from .._log._components import factor_components

__all__ = ["MAX_DENSE", "SMALLEST", "Problem", "eliminated", "newton"]


#: Smallest probability: the logarithm of a document without a click stays finite.
SMALLEST = 1e-6


_MAX_LOGIT = 20.0


#: Factors up to which the system that is left is solved densely.
MAX_DENSE = 1_500


_LEAST_DAMPING, _SLIGHT_DAMPING, _MOST_DAMPING = 1e-10, 1e-4, 1e6


#: Gains, in units of log-likelihood and as a share of it, that no estimate would show.
_LEAST_GAIN, _LEAST_SHARE = 1e-6, 1e-9


#: Times that a step is solved anew because factors meet their bounds.
_MAX_ROUNDS = 4


_MAX_INNER = 40


_LONGEST_STEP = 4.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A sum over cells of a loss of a[doc] + b[factor], every a and b within bounds."""

    cells: Cells
    link: str
    loss: str

    @cached_property
    def gauge(self):
        """Component of each factor, whose mean logarithm stays what it was; None where the bound
        of 1 on probabilities may have to move it."""
        if self.bounds[1] == 0.0:
            return None
        return factor_components(self.cells.doc, self.cells.factor, self.cells.n_factors)[1]

    @property
    def bounds(self):
        return _BOUNDS[self.link, self.loss]

    @cached_property
    def saturated(self):
        """The smallest value of each cell by itself.

        What is above it has the size of the noise; with billions of impressions, the whole value
        would hide in its last digits what a weak link says.
        """
        if self.loss == "squares":
            return 0.0
        clicks, weight = self.cells.clicks, np.maximum(self.cells.weight, 1e-300)
        if self.loss == "poisson":
            return clicks - xlogy(clicks, clicks / weight)
        off = self.cells.weight - clicks
        return -xlogy(clicks, clicks / weight) - xlogy(off, off / weight)

    def at(self, a, b):
        """Value, gradient and curvature of each cell."""
        cells = self.cells
        function = _LOSSES[self.link, self.loss]
        value, *slopes = function(a[cells.doc] + b[cells.factor], cells.clicks, cells.weight)
        return value - self.saturated, *slopes

    def pressed(self, a, b):
        """Which documents, and which factors, are held by a bound against their gradient."""
        _, gradient, curvature = self.at(a, b)
        sums = (self.cells.by_doc, a), (self.cells.by_factor, b)
        # A gradient of a hundredth of its own noise presses on nothing.
        return [
            np.isin(x, self.bounds) & (np.abs(by(gradient)) > 0.01 * np.sqrt(by(curvature)))
            for by, x in sums
        ]

    def best_documents(self, b, a):
        """The best value of each document given the factors; ``a`` is where to begin."""
        if self.loss == "likelihood":
            return self._best_by_newton(b, a)
        cells, examination = self.cells, np.exp(b)[self.cells.factor]
        of_clicks = examination if self.loss == "squares" else 1.0
        clicks = cells.by_doc(cells.clicks * of_clicks)
        expected = cells.by_doc(cells.weight * examination * of_clicks)
        ratio = np.divide(clicks, expected, out=np.ones_like(clicks), where=expected > 0)
        with np.errstate(divide="ignore"):
            return np.clip(np.log(ratio), *self.bounds)

    def _best_by_newton(self, b, a):
        """One convex problem a document: Newton's method between ever closer brackets."""
        cells = self.cells
        low, high = (np.full(cells.n_docs, bound) for bound in self.bounds)
        for _ in range(_MAX_INNER):
            _, gradient, curvature = self.at(a, b)
            slope = cells.by_doc(gradient)
            low, high = np.where(slope < 0, a, low), np.where(slope > 0, a, high)
            bend = cells.by_doc(curvature)
            new = a - np.divide(slope, bend, out=np.zeros_like(a), where=bend > 0)
            # A step out of the bracket stops at the bound, if it is the true one, or halfway.
            inner = (low > self.bounds[0], high < self.bounds[1])
            new = np.where((new < low) & inner[0] | (new > high) & inner[1], (low + high) / 2, new)
            new = np.clip(new, low, high)
            moved = np.abs(new - a).max(initial=0.0)
            a = new
            if moved <= 1e-10:
                break
        return a


def newton(problem, b, max_iter, tol):
    """Newton's method in the factors; returns documents, factors, steps, and whether it ended."""
    b = np.clip(b, *problem.bounds)
    a = problem.best_documents(b, np.full(problem.cells.n_docs, -1.0))
    damping, here = _LEAST_DAMPING, problem.at(a, b)
    # Values have the size of the noise, one half a cell in all; noise-free clicks have none.
    least_gain = _LEAST_GAIN * min(1.0, problem.cells.weight.max(initial=0.0))
    for n_iter in range(1, max_iter + 1):
        new_b = np.clip(b + _step(problem, a, b, here, damping), *problem.bounds)
        new_a = problem.best_documents(new_b, a)
        there = problem.at(new_a, new_b)
        value = there[0].sum()
        moved, gained = np.abs(new_b - b).max(initial=0.0), here[0].sum() - value
        # A step that damping has shortened may move and gain little anywhere.
        bold = damping <= _SLIGHT_DAMPING
        if not gained > 0:
            if damping > _MOST_DAMPING or (bold and moved <= tol):
                return a, b, n_iter, True  # no descent that rounding lets us see
            damping *= 100.0
            continue
        a, b, here = new_a, new_b, there
        if bold and (moved <= tol or gained <= max(least_gain, _LEAST_SHARE * abs(value))):
            return a, b, n_iter, True
        damping = max(damping / 10.0, _LEAST_DAMPING)
    return a, b, max_iter, False


def _step(problem, a, b, here, damping):
    """The Newton step of the factors, documents following them; ``here`` is the problem's at."""
    cells = problem.cells
    _, gradient, curvature = here
    low, high = problem.bounds
    gradient_b, diagonal_b = cells.by_factor(gradient), cells.by_factor(curvature)
    # A document at a bound stays there, and a factor does that is pressed against one.
    diagonal_a = cells.by_doc(curvature)
    moves = (a > low) & (a < high) & (diagonal_a > 0)
    inverse_a = np.divide(1.0, diagonal_a, out=np.zeros(cells.n_docs), where=moves)
    pressed = ((b <= low) & (gradient_b > 0)) | ((b >= high) & (gradient_b < 0))
    free = ~pressed & (diagonal_b > 0)
    coupling = cells.matrix(curvature)
    step = np.zeros(cells.n_factors)
    for _ in range(_MAX_ROUNDS):
        stopped = np.where(free, 0.0, step)
        pull = diagonal_b * stopped - coupling.T @ (inverse_a * (coupling @ stopped))
        step[free] = _solve_factors(
            coupling[:, np.flatnonzero(free)],
            inverse_a,
            diagonal_b[free],
            -(gradient_b + pull)[free],
            damping,
        )
        # Where a document or two are all that holds a factor, the quadratic says little far away.
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        if problem.gauge is not None:
            step -= _means(step, problem.gauge)
        # Factors that would cross a bound stop there, and the others answer to that.
        crossing = free & ((b + step < low) | (b + step > high))
        if not crossing.any():
            break
        step[crossing] = np.clip(b + step, low, high)[crossing] - b[crossing]
        free &= ~crossing
    return step


def _means(values, labels):
    """The mean of the values of each label, spread over them."""
    return (np.bincount(labels, values) / np.bincount(labels))[labels]


def _solve_factors(coupling, inverse_a, diagonal, right, damping):
    """Solve (D (1 + damping) - C' A^-1 C) x = right, D the diagonal of the bias factors."""
    if len(right) <= MAX_DENSE:
        system = np.diag(diagonal * (1 + damping)) - eliminated(coupling, inverse_a)
        # Scaled to a unit diagonal, so that one damping suits frequent and rare factors.
        scale = 1 / np.sqrt(diagonal)
        system = scale[:, None] * system * scale
        try:
            return scale * cho_solve(cho_factor(system), scale * right)
        except LinAlgError:  # a constant a component is free, and rounding may tip it
            return scale * np.linalg.lstsq(system, scale * right, rcond=1e-13)[0]
    transposed = coupling.T.tocsr()

    def product(x):
        return diagonal * (1 + damping) * x - transposed @ (inverse_a * (coupling @ x))

    size = len(right)
    system = LinearOperator((size, size), matvec=product, dtype=float)
    precondition = LinearOperator((size, size), matvec=lambda x: x / diagonal, dtype=float)
    return cg(system, right, rtol=1e-4, maxiter=300, M=precondition)[0]


def eliminated(coupling, inverse_a):
    """What documents leave among the factors: C' A^-1 C as a dense matrix."""
    return (coupling.T @ (diags_array(inverse_a) @ coupling)).toarray()


# The loss of a cell as a function of its logit s: value, gradient and a positive curvature --
def _product_likelihood(logit, clicks, weight):
    p = np.exp(logit)
    off = weight - clicks
    # Where every impression was clicked, 0 times the infinite logarithm is 0.
    with np.errstate(divide="ignore"):
        miss = np.where(off > 0, np.log(-np.expm1(logit)), 0.0)
    value = -clicks * logit - off * miss
    rest = np.maximum(-np.expm1(logit), 1e-12)
    missed = off * p / rest
    # The curvature is 0 where every impression was clicked: a part of the weight stands in.
    return value, missed - clicks, np.maximum(missed / rest, 0.01 * weight * p)


def _product_poisson(logit, clicks, weight):
    expected = weight * np.exp(logit)
    return expected - clicks * logit, expected - clicks, expected


def _product_squares(logit, clicks, weight):
    p = np.exp(logit)
    error = weight * p - clicks
    return 0.5 * error**2 / weight, error * p, weight * p**2


def _additive_likelihood(logit, clicks, weight):
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
