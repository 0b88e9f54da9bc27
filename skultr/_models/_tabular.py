"""Click models with one number a document and one a bias factor.

The published recipes for such models (alternating least squares, expectation maximisation,
gradient descent) approach their answer at a rate that the weakest link between bias factors
decides: where a single document joins two groups of factors, 100,000 rounds are not enough. All
of them minimise a sum over cells, and Newton's method reaches their fixed point in a handful of
steps, however weak the link.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, solve
from scipy.sparse import diags_array
from scipy.special import expit

from .._log._cells import Cells
from .._log._components import bipartite_components, comparable_components
from ._bipartite import MAX_DENSE, SMALLEST, Problem, eliminated, newton

__all__ = ["TabularFit", "fit_factors", "fit_tabular", "has_few_clicks"]


#: Clicks of the mean document from which on standard errors cover what they should.
_LEAST_CLICKS = {"likelihood": 10.0, "squares": 30.0, "poisson": 0.0}


#: Each loss is the start of the next, until the one that was asked for: least squares are not
#: convex, and the likelihood within bounds is slow from afar.
_STEPS = {"product": ("poisson", "likelihood", "squares"), "additive": ("likelihood",)}


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
    bounded_docs, bounded_factors : ndarray of bool
        Which of them a bound keeps from where the clicks would have them.
    """

    doc_logits: np.ndarray
    factor_logits: np.ndarray
    n_iter: int
    converged: bool
    loss: str
    link: str
    cells: Cells
    bounded_docs: np.ndarray
    bounded_factors: np.ndarray

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
        return np.exp(np.minimum(logits, 0.0)) if self.link == "product" else expit(logits)

    def standard_error(self, reference):
        """Standard error of ``factor_logits`` relative to that of the factor ``reference``.

        From the Fisher information (of a likelihood) or the sandwich formula (of least squares),
        with all documents estimated beside the factors. NaN (not computed) where a bound of 1
        decides the factor or the documents that carry it, where documents have too few clicks
        for the loss (10 on average for the binomial likelihood, 30 for least squares), and for
        more than 1,500 factors. Infinite for factors that no clicked documents tie to the
        reference.

        Returns
        -------
        standard_error : ndarray of shape (n_factors,)
        """
        cells = self.cells
        few = has_few_clicks(cells.doc, cells.clicks, _LEAST_CLICKS[self.loss])
        if few or cells.n_factors > MAX_DENSE:
            error = np.full(cells.n_factors, np.nan)
            error[reference] = 0.0
            return error
        return _standard_error(self, reference)

    def own_error(self):
        """Standard error of each of ``factor_logits`` if the other factors were known.

        From the information about the factor that is left when the documents are estimated with
        it, and the noise of that (the sandwich formula). It takes no factor for a reference and
        no dense matrix; infinite for a factor that shares no clicked document with another.

        Returns
        -------
        standard_error : ndarray of shape (n_factors,)
        """
        bend, variance = _bend_and_noise(self)
        cells = self.cells
        total = cells.by_doc(bend)[cells.doc]
        share = np.divide(bend, total, out=np.ones_like(bend), where=total > 0)
        information = cells.by_factor(bend * (1 - share))
        others = cells.by_doc(variance)[cells.doc] - variance
        noise = cells.by_factor((1 - share) ** 2 * variance + share**2 * others)
        return np.divide(
            np.sqrt(noise),
            information,
            out=np.full(cells.n_factors, np.inf),
            where=information > 0,
        )


def fit_tabular(
    doc,
    factor,
    clicks,
    weight,
    *,
    loss="likelihood",
    link="product",
    start=None,
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
    loss : {"likelihood", "squares", "poisson"}, default="likelihood"
        The binomial likelihood (its optimum is the fixed point of regression-EM, and the minimum
        of the two-tower cross-entropy), least squares of the click rates, weighted by impressions
        (the fixed point of alternating least squares, the tabular form of dual learning), or the
        Poisson likelihood.
    link : {"product", "additive"}, default="product"
        The additive link knows the likelihood only.
    start : ndarray of shape (n_factors,), default=None
        Examination to begin with, in (0, 1); by default drawn uniformly, the same every time.
        Where the log determines relevance it does not matter; where it does not, it decides the
        answer.
    n_docs, n_factors : int, default=None
        By default the largest code plus one.
    max_iter : int, default=200
        Newton steps at most.
    tol : float, default=1e-7
        Stop when no logarithm moves by more; or earlier, when the loss falls by less than an
        estimate would show.

    Returns
    -------
    fit : TabularFit

    Notes
    -----
    With the product link both likelihoods are convex in the logarithms: one optimum, up to a
    constant a component. Probabilities stay within [1e-6, 1].

    *Few clicks a document.* Every document costs a parameter, and where documents have few
    impressions the binomial likelihood and least squares are inconsistent: chance presses many
    documents against the bound of 1, and examination with them. The Poisson likelihood without
    that bound is not: with the documents at their best it is the likelihood of where the clicks
    of each document fell, given their number, in which relevance does not appear. It wastes what
    large click probabilities tell beyond that, which only matters where clicks abound.
    """
    cells = Cells.from_rows(doc, factor, clicks, weight, n_docs, n_factors)
    if start is None:
        start = np.random.default_rng(0).uniform(size=cells.n_factors)
    if loss == "poisson":  # the others have bounds that hold them
        cells = _without_one_way_links(cells)
    start = np.log(np.clip(start, SMALLEST, 1 - 1e-3))
    n_iter, b = 0, start
    for step in _STEPS[link]:
        problem = Problem(cells, link, step)
        a, b, n_more, converged = newton(problem, b, max_iter, tol)
        n_iter += n_more
        if step == loss:
            break
    bounded = problem.pressed(a, b)
    if link == "product":
        a, b = _on_one_scale(cells, a, b)
    a = np.where(cells.by_doc(cells.weight) > 0, a, np.nan)
    return TabularFit(a, b, n_iter, converged, loss, link, cells, *bounded)


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
        NaN for a factor without impressions.
    """
    # The same problem as the best documents given the factors, with their places exchanged.
    rows = Cells(factor, np.arange(len(factor)), clicks, weight, n_factors, len(factor))
    if link == "product":
        logits = np.minimum(logits, -1e-6)  # with both parts at 1 a missing click would be fatal
    start = np.full(n_factors, -1.0)
    best = Problem(rows, link, "likelihood").best_documents(logits, start)
    return np.where(rows.by_doc(weight) > 0, best, np.nan)


def has_few_clicks(doc, clicks, least):
    """Whether documents that were clicked at all have fewer clicks than ``least`` on average."""
    return clicks.sum() < least * np.count_nonzero(np.bincount(doc, clicks))


def _without_one_way_links(cells):
    """The cells without those that only ever say that one side is worse than another.

    Their likelihood has its greatest value at infinity: the fewer clicks the model expects there,
    the better, however far apart that drives the two sides.
    """
    docs, factors = comparable_components(
        cells.doc, cells.factor, cells.clicks > 0, cells.n_docs, cells.n_factors
    )
    both = (cells.by_doc(cells.clicks) > 0)[cells.doc]
    both &= (cells.by_factor(cells.clicks) > 0)[cells.factor]
    keep = ~both | (docs[cells.doc] == factors[cells.factor])
    return cells if keep.all() else cells.take(keep)


def _on_one_scale(cells, a, b):
    """The same products, with relevance (and examination, where noise lets both) at most 1.

    Each component moves by as little as that takes; where all factors are one component, the
    best examined one is at 1.
    """
    docs, factors = bipartite_components(cells.doc, cells.factor, cells.n_docs, cells.n_factors)
    highest = np.full((2, max(docs.max(initial=0), factors.max(initial=0)) + 1), -np.inf)
    np.maximum.at(highest[0], docs, a)
    np.maximum.at(highest[1], factors, b)
    # Moving a up and b down by any value between the two keeps both below 0.
    low, high = highest[1], -highest[0]
    shift = low if (factors == factors[0]).all() else np.maximum(low, 0.0)
    shift = np.where(np.isfinite(low), np.minimum(shift, high), 0.0)
    return a + shift[docs], b - shift[factors]


# Standard errors ------------------------------------------------------------------------
def _standard_error(fit, reference):
    cells = fit.cells
    bend, variance = _bend_and_noise(fit)
    telling = cells.clicks > 0
    if fit.link == "additive":
        # A document that was always clicked says as little as one that never was.
        telling &= cells.clicks < cells.weight
    _, labels = comparable_components(
        cells.doc, cells.factor, telling, cells.n_docs, cells.n_factors
    )
    joined = np.flatnonzero(labels == labels[reference])
    joined = joined[joined != reference]  # grounded: the others relative to it
    error = np.full(cells.n_factors, np.inf)
    if len(joined):
        tied = np.bincount(cells.doc, telling, cells.n_docs)[cells.doc] > 0
        bend = bend * tied
        bread, meat = _bread_and_meat(cells, bend, variance * tied)
        place = np.ix_(joined, joined)
        error[joined] = _sandwich_errors(bread[place], meat[place])
    error[_bound_decides(fit, bend)] = np.nan
    error[reference] = 0.0
    return error


def _bend_and_noise(fit):
    """Of each cell: the curvature of its loss, and the variance of its gradient."""
    cells = fit.cells
    p = np.minimum(fit.click_probability(cells.doc, cells.factor), 1 - SMALLEST)
    noise = cells.weight * p * (1 - p)  # variance of the clicks of a cell
    # Of each cell: how its gradient depends on its clicks, and the mean curvature.
    if fit.link == "additive":
        slope, bend = np.ones_like(p), noise
    elif fit.loss == "squares":
        slope, bend = p, cells.weight * p**2
    elif fit.loss == "poisson":
        # Where the clicks of each document fell, given their number.
        share = cells.weight * np.exp(fit.factor_logits)[cells.factor]
        share /= np.maximum(cells.by_doc(share), 1e-300)[cells.doc]
        bend = noise = cells.by_doc(cells.clicks)[cells.doc] * share
        slope = np.ones_like(p)
    else:
        slope, bend = 1 / (1 - p), cells.weight * p / (1 - p)
    return bend, noise * slope**2


def _bound_decides(fit, bend):
    """Factors at a bound, or with most of their information from documents at one."""
    cells = fit.cells
    from_bounded = cells.by_factor(bend * fit.bounded_docs[cells.doc])
    return fit.bounded_factors | (from_bounded > 0.5 * cells.by_factor(bend))


def _bread_and_meat(cells, bend, variance):
    """Curvature of the factors after the documents are eliminated, and noise of its gradient."""
    curvature, total = cells.matrix(bend), cells.by_doc(bend)
    inverse_a = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    bread = -eliminated(curvature, inverse_a)
    # Summed, not subtracted: differences of large numbers would lose weak links.
    np.fill_diagonal(bread, 0.0)
    np.fill_diagonal(bread, -bread.sum(axis=1))
    return bread, _meat(cells, curvature, inverse_a, variance)


def _sandwich_errors(bread, meat):
    try:
        half = solve(bread, meat, assume_a="pos")
        variance = np.diag(solve(bread, half.T, assume_a="pos"))
    except LinAlgError:  # nothing ties them that rounding lets us see
        return np.full(len(bread), np.inf)
    return np.where(variance > 0, np.sqrt(np.abs(variance)), np.inf)


def _meat(cells, curvature, inverse_a, variance):
    """Covariance of the gradient of the factors after the documents are eliminated."""
    noise = cells.matrix(variance)
    cross = (noise.T @ (diags_array(inverse_a) @ curvature)).toarray()
    by_doc = inverse_a**2 * cells.by_doc(variance)
    own = np.diag(cells.by_factor(variance))
    return own - cross - cross.T + eliminated(curvature, by_doc)
