"""Click models with one number a document and one a bias factor, fitted by Newton's method.

The published recipes for such models (alternating least squares, expectation maximisation,
gradient descent) approach their answer at a rate that the weakest link between bias factors
decides: where a single document joins two groups of factors, 100,000 rounds are not enough. All
of them minimise a sum over cells of a function of ``a[doc] + b[factor]``, whose Hessian is that of
a bipartite graph: documents are eliminated exactly, and what is left has the size of the bias
factors. A handful of steps reach the fixed point of the recipe, however weak the link.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit, log_expit, xlogy

from ._components import bipartite_components, factor_components

__all__ = ["TabularFit", "fit_factors", "fit_tabular"]

#: Smallest probability: the logarithm of a document without a click stays finite.
_SMALLEST = 1e-6
_MAX_LOGIT = 20.0
#: Factors up to which the system that is left is solved densely, and has standard errors.
_MAX_DENSE = 1_500
_LEAST_DAMPING, _SLIGHT_DAMPING, _MOST_DAMPING = 1e-10, 1e-2, 1e6
#: Relative gain below which a step is lost in rounding.
_LEAST_GAIN = {"likelihood": 1e-9, "squares": 1e-7}
_MAX_INNER = 40
_LONGEST_STEP = 4.0


@dataclass(frozen=True, eq=False)
class Cells:
    """Distinct (document, bias factor) pairs, sorted by document, with their counts."""

    doc: np.ndarray
    factor: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray
    n_docs: int
    n_factors: int

    @classmethod
    def from_rows(cls, doc, factor, clicks, weight, n_docs=None, n_factors=None):
        """Add up rows of the same pair; rows without weight say nothing and are left out."""
        n_docs = int(doc.max(initial=-1)) + 1 if n_docs is None else n_docs
        n_factors = int(factor.max(initial=-1)) + 1 if n_factors is None else n_factors
        rows = weight > 0
        key, cell = np.unique(
            doc[rows].astype(np.int64) * n_factors + factor[rows], return_inverse=True
        )
        return cls(
            doc=key // n_factors,
            factor=key % n_factors,
            clicks=np.bincount(cell, clicks[rows], minlength=len(key)),
            weight=np.bincount(cell, weight[rows], minlength=len(key)),
            n_docs=n_docs,
            n_factors=n_factors,
        )

    def by_doc(self, values):
        """Sums of a value a cell by document."""
        return np.bincount(self.doc, values, minlength=self.n_docs)

    def by_factor(self, values):
        """Sums of a value a cell by bias factor."""
        return np.bincount(self.factor, values, minlength=self.n_factors)

    def matrix(self, values):
        """A value a cell as a sparse matrix (n_docs, n_factors)."""
        return csr_array((values, (self.doc, self.factor)), (self.n_docs, self.n_factors))


@dataclass(frozen=True, eq=False)
class TabularFit:
    """What :func:`fit_tabular` found.

    Parameters
    ----------
    doc_logits : ndarray of shape (n_docs,)
        Log relevance (product link) or logit of the document (additive link); NaN for a document
        without a cell.
    factor_logits : ndarray of shape (n_factors,)
        The same for bias factors. Only their differences *within* a component of the log are
        determined.
    n_iter : int
    converged : bool
    loss, link : str
    cells : Cells
    """

    doc_logits: np.ndarray
    factor_logits: np.ndarray
    n_iter: int
    converged: bool
    loss: str
    link: str
    cells: Cells

    @property
    def relevance(self):
        """Relevance of each document, within [0, 1]; NaN for a document without a cell."""
        return np.exp(self.doc_logits) if self.link == "product" else expit(self.doc_logits)

    @property
    def examination(self):
        """Examination of each factor, up to a constant; odds with the additive link."""
        return np.exp(self.factor_logits)

    def click_probability(self, doc, factor):
        """P(click) of rows given by codes."""
        logits = self.doc_logits[doc] + self.factor_logits[factor]
        return np.exp(logits) if self.link == "product" else expit(logits)

    def standard_error(self, reference):
        """Standard error of ``factor_logits`` relative to that of the factor ``reference``.

        From the Fisher information (of a likelihood) or the sandwich formula (of least squares),
        with the uncertainty of all documents in it. Infinite for factors that are not connected
        with the reference, and NaN (not computed) for logs of more than 1,500 factors.

        Returns
        -------
        standard_error : ndarray of shape (n_factors,)
        """
        if self.cells.n_factors > _MAX_DENSE:
            return np.full(self.cells.n_factors, np.nan)
        return _standard_error(self, reference)


def fit_tabular(
    doc,
    factor,
    clicks,
    weight,
    *,
    loss="likelihood",
    link="product",
    start=None,
    rng=None,
    n_docs=None,
    n_factors=None,
    max_iter=200,
    tol=1e-7,
):
    r"""Fit one relevance a document and one examination a bias factor to clicks.

    .. math::
        P(c = 1 | d, t) = r_d\, o_t \quad\text{(product)}, \qquad
        P(c = 1 | d, t) = \sigma(g_d + h_t) \quad\text{(additive)}.

    Parameters
    ----------
    doc, factor : ndarray of shape (n_rows,), int
        Codes of each row; pairs may recur.
    clicks, weight : ndarray of shape (n_rows,)
        Number of clicks and of impressions.
    loss : {"likelihood", "squares"}, default="likelihood"
        The binomial likelihood (its optimum is the fixed point of regression-EM, and the minimum
        of the two-tower cross-entropy) or least squares of the click rates, weighted by
        impressions (the fixed point of alternating least squares, the tabular form of dual
        learning).
    link : {"product", "additive"}, default="product"
        The additive link knows the likelihood only.
    start : ndarray of shape (n_factors,), default=None
        Examination to begin with, in (0, 1); by default drawn uniformly by ``rng``. Where the log
        determines relevance it does not matter; where it does not, it decides the answer.
    rng : numpy.random.Generator, default=None
        A fixed one by default.
    n_docs, n_factors : int, default=None
        By default the largest codes.
    max_iter : int, default=200
        Newton steps at most.
    tol : float, default=1e-7
        Stop when no logarithm moves by more.

    Returns
    -------
    fit : TabularFit

    Notes
    -----
    With the product link and the likelihood the problem is convex in the logarithms: one optimum,
    up to a constant a component. Probabilities stay within [1e-6, 1].
    """
    cells = Cells.from_rows(doc, factor, clicks, weight, n_docs, n_factors)
    if start is None:
        rng = np.random.default_rng(0) if rng is None else rng
        start = rng.uniform(size=cells.n_factors)
    start = np.log(np.clip(start, _SMALLEST, 1 - 1e-3))
    a, b, n_iter, converged = _newton(_Problem(cells, link, "likelihood"), start, max_iter, tol)
    if loss == "squares":
        # Not convex: from the likelihood's optimum, which is near, no random start goes astray.
        a, b, n_more, converged = _newton(_Problem(cells, link, loss), b, max_iter, tol)
        n_iter += n_more
    if link == "product":
        a, b = _as_probabilities(cells, a, b)
    a = np.where(cells.by_doc(cells.weight) > 0, a, np.nan)
    return TabularFit(a, b, n_iter, converged, loss, link, cells)


def fit_factors(logits, factor, clicks, weight, *, link="product", n_factors):
    """The likeliest bias factors, given the part of the documents.

    Parameters
    ----------
    logits : ndarray of shape (n_rows,)
        Log relevance (product link) or logit (additive link) of the document of each row.
    factor : ndarray of shape (n_rows,), int
    clicks, weight : ndarray of shape (n_rows,)
        Number of clicks and of impressions.
    link : {"product", "additive"}, default="product"
    n_factors : int

    Returns
    -------
    factor_logits : ndarray of shape (n_factors,)
    """
    # The same problem as the best documents given the factors, with their places exchanged.
    rows = Cells(factor, np.arange(len(factor)), clicks, weight, n_factors, len(factor))
    if link == "product":
        logits = np.minimum(logits, -1e-6)  # with both parts at 1 a missing click would be fatal
    start = np.full(n_factors, -1.0)
    return _Problem(rows, link, "likelihood").best_documents(logits, start)


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
    ("product", "squares"): _product_squares,
    ("additive", "likelihood"): _additive_likelihood,
}
_LOWEST = float(np.log(_SMALLEST))
_BOUNDS = {
    ("product", "likelihood"): (_LOWEST, 0.0),
    ("product", "squares"): (_LOWEST, 0.0),
    ("additive", "likelihood"): (-_MAX_LOGIT, _MAX_LOGIT),
}


def _as_probabilities(cells, a, b):
    """The same products, moved so that both parts stay below 1 where they can."""
    docs, factors = bipartite_components(cells.doc, cells.factor, cells.n_docs, cells.n_factors)
    n_labels = max(docs.max(initial=0), factors.max(initial=0)) + 1
    highest_a, highest_b = np.full(n_labels, -np.inf), np.full(n_labels, -np.inf)
    np.maximum.at(highest_a, docs, a)
    np.maximum.at(highest_b, factors, b)
    # Moving a up and b down by any value between the two keeps both below 0.
    shift = np.clip(0.0, highest_b, np.maximum(-highest_a, highest_b))
    shift[~np.isfinite(highest_a) | ~np.isfinite(highest_b)] = 0.0
    return np.minimum(a + shift[docs], 0.0), np.minimum(b - shift[factors], 0.0)


# Newton's method in the factors, each document at its best ------------------------------
@dataclass(frozen=True, eq=False)
class _Problem:
    """A sum over cells of a loss of a[doc] + b[factor], every a and b within bounds."""

    cells: Cells
    link: str
    loss: str

    @cached_property
    def gauge(self):
        """Component of each factor, whose mean logarithm stays what it was; None where the bound
        of 1 on probabilities may have to move it."""
        if self.link == "product":
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
        clicks, weight = self.cells.clicks, self.cells.weight
        off = weight - clicks
        return -xlogy(clicks, clicks / weight) - xlogy(off, off / weight)

    def at(self, a, b):
        """Value, gradient and curvature of each cell."""
        cells = self.cells
        function = _LOSSES[self.link, self.loss]
        value, *slopes = function(a[cells.doc] + b[cells.factor], cells.clicks, cells.weight)
        return value - self.saturated, *slopes

    def best_documents(self, b, a):
        """The best value of each document given the factors; ``a`` is where to begin."""
        if self.loss == "squares":
            cells, examination = self.cells, np.exp(b)[self.cells.factor]
            clicks = cells.by_doc(cells.clicks * examination)
            expected = cells.by_doc(cells.weight * examination**2)
            ratio = np.divide(clicks, expected, out=np.ones_like(clicks), where=expected > 0)
            with np.errstate(divide="ignore"):
                return np.clip(np.log(ratio), *self.bounds)
        return self._best_by_newton(b, a)

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


def _newton(problem, b, max_iter, tol):
    """Newton's method in the factors; returns documents, factors, steps, and whether it ended."""
    b = np.clip(b, *problem.bounds)
    a = problem.best_documents(b, np.full(problem.cells.n_docs, -1.0))
    damping, value = _LEAST_DAMPING, problem.at(a, b)[0].sum()
    for n_iter in range(1, max_iter + 1):
        step = _step(problem, a, b, damping)
        if problem.gauge is not None:
            step -= _means(step, problem.gauge)
        new_b = np.clip(b + step, *problem.bounds)
        new_a = problem.best_documents(new_b, a)
        new_value = problem.at(new_a, new_b)[0].sum()
        if not new_value <= value:
            if damping > _MOST_DAMPING:
                return a, b, n_iter, True  # no descent that rounding lets us see
            damping *= 100.0
            continue
        moved, gained = np.abs(new_b - b).max(), value - new_value
        a, b, value = new_a, new_b, new_value
        # A step that damping has shortened may gain little anywhere.
        ended = moved <= tol or gained <= _LEAST_GAIN[problem.loss] * abs(value)
        if ended and damping <= _SLIGHT_DAMPING:
            return a, b, n_iter, True
        damping = max(damping / 10.0, _LEAST_DAMPING)
    return a, b, max_iter, False


def _means(values, labels):
    """The mean of the values of each label, spread over them."""
    return (np.bincount(labels, values) / np.bincount(labels))[labels]


def _step(problem, a, b, damping):
    """The Newton step of the factors, documents following them."""
    cells = problem.cells
    _, gradient, curvature = problem.at(a, b)
    low, high = problem.bounds
    gradient_b = cells.by_factor(gradient)
    diagonal_b = cells.by_factor(curvature)
    # A document at a bound stays there, and a factor does that is pressed against one.
    diagonal_a = cells.by_doc(curvature)
    moves = (a > low) & (a < high) & (diagonal_a > 0)
    inverse_a = np.divide(1.0, diagonal_a, out=np.zeros(cells.n_docs), where=moves)
    pressed = ((b <= low) & (gradient_b > 0)) | ((b >= high) & (gradient_b < 0))
    chosen = np.flatnonzero(~pressed & (diagonal_b > 0))
    step = np.zeros(cells.n_factors)
    step[chosen] = _solve_factors(
        cells.matrix(curvature)[:, chosen],
        inverse_a,
        diagonal_b[chosen],
        -gradient_b[chosen],
        damping,
    )
    # Where a document or two are all that holds a factor, the quadratic says little far away.
    return np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)


def _solve_factors(coupling, inverse_a, diagonal, right, damping):
    """Solve (D (1 + damping) - C' A^-1 C) x = right, D the diagonal of the bias factors."""
    if len(right) <= _MAX_DENSE:
        system = np.diag(diagonal * (1 + damping)) - _eliminated(coupling, inverse_a)
        # Scaled to a unit diagonal, so that one damping suits frequent and rare factors.
        scale = 1 / np.sqrt(diagonal)
        system = scale[:, None] * system * scale
        return scale * np.linalg.lstsq(system, scale * right, rcond=1e-13)[0]
    transposed = coupling.T.tocsr()

    def product(x):
        return diagonal * (1 + damping) * x - transposed @ (inverse_a * (coupling @ x))

    size = len(right)
    system = LinearOperator((size, size), matvec=product, dtype=float)
    precondition = LinearOperator((size, size), matvec=lambda x: x / diagonal, dtype=float)
    return cg(system, right, rtol=1e-4, maxiter=300, M=precondition)[0]


def _eliminated(coupling, inverse_a):
    return (coupling.T @ (diags_array(inverse_a) @ coupling)).toarray()


# Standard errors ------------------------------------------------------------------------
def _standard_error(fit, reference):
    cells = fit.cells
    p = np.clip(fit.click_probability(cells.doc, cells.factor), _SMALLEST, 1 - _SMALLEST)
    noise = cells.weight * p * (1 - p)  # variance of the clicks of a cell
    # Of each cell: how its gradient depends on its clicks, and the mean curvature.
    if fit.link == "additive":
        slope, bend = np.ones_like(p), noise
    elif fit.loss == "squares":
        slope, bend = p, cells.weight * p**2
    else:
        slope, bend = 1 / (1 - p), cells.weight * p / (1 - p)
    variance = noise * slope**2
    curvature = cells.matrix(bend)
    total = cells.by_doc(bend)
    inverse_a = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    system = np.diag(cells.by_factor(bend)) - _eliminated(curvature, inverse_a)
    labels = factor_components(cells.doc, cells.factor, cells.n_factors)[1]
    joined = np.flatnonzero(labels == labels[reference])
    joined = joined[joined != reference]  # grounded: the others relative to it
    error = np.full(cells.n_factors, np.inf)
    error[reference] = 0.0
    if len(joined):
        place = np.ix_(joined, joined)
        meat = _meat(cells, curvature, inverse_a, variance)[place]
        error[joined] = _sandwich_errors(system[place], meat)
    return error


def _sandwich_errors(bread, meat):
    try:
        covariance = np.linalg.solve(bread, np.linalg.solve(bread, meat).T)
    except np.linalg.LinAlgError:  # tied together by documents that were never clicked alone
        return np.full(len(bread), np.inf)
    return np.sqrt(np.maximum(np.diag(covariance), 0.0))


def _meat(cells, curvature, inverse_a, variance):
    """Covariance of the gradient of the factors after the documents are eliminated."""
    noise = cells.matrix(variance)
    cross = (noise.T @ (diags_array(inverse_a) @ curvature)).toarray()
    by_doc = inverse_a**2 * cells.by_doc(variance)
    own = np.diag(cells.by_factor(variance))
    return own - cross - cross.T + _eliminated(curvature, by_doc)
