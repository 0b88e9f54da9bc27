"""Click models with one number per document and one per bias factor.

The published recipes for such models (alternating least squares, expectation maximisation,
gradient descent) converge at a rate that depends on the weakest link between bias factors: if a
single document connects two groups of factors, 100,000 rounds are not enough. All of them
minimise a sum over cells, and Newton's method reaches their fixed point in a handful of steps,
however weak the link is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, solve
from scipy.sparse import diags_array
from scipy.special import expit, log_expit, xlogy
from sklearn.exceptions import ConvergenceWarning

from .._base._progress import progress
from .._base._published import HasPublishedVariant
from .._base._sklearn import StrOptions
from .._base._threads import few_threads
from .._base._typing import Bools, Floats, Ints
from .._log._cells import Cells
from .._log._segments import TINY
from ..exceptions import warn_user
from ._solve import MAX_DENSE, Eliminated, gram
from ._thresholds import CLICKS_FOR_ERRORS, FEW_CLICKS

#: Standard errors have their nominal coverage from this mean number of clicks per document.
_LEAST_CLICKS = {
    "likelihood": CLICKS_FOR_ERRORS.value,
    "squares": FEW_CLICKS.value,
    "poisson": 0.0,
}
#: Losses in the order of fitting: each solution starts the next, until the loss asked for. Least
#: squares are not convex, and the bounded likelihood converges slowly from a distant start.
_STEPS = {"product": ("poisson", "likelihood", "squares"), "additive": ("likelihood",)}


@dataclass(frozen=True, eq=False)
class TabularFit:
    """What :func:`fit_cells` found: log relevance (product link) or logits (additive link).

    Only differences of factors *within* a component of the log are determined.
    """

    doc_logits: np.ndarray  # (n_docs,), NaN for a document in no cell
    factor_logits: np.ndarray  # (n_factors,)
    n_iter: int
    converged: bool
    loss: str
    link: str
    cells: Cells
    # Where an estimate sits on a bound although the gradient points outside.
    bounded_docs: np.ndarray
    bounded_factors: np.ndarray

    @property
    def relevance(self) -> Floats:
        """Relevance of each document, in [0, 1]; NaN for a document in no cell."""
        return np.exp(self.doc_logits) if self.link == "product" else expit(self.doc_logits)

    @property
    def examination(self) -> Floats:
        """Examination of each factor up to a constant factor; odds with the additive link."""
        return np.exp(self.factor_logits)

    def click_probability(self, doc: Ints, factor: Ints) -> Floats:
        """P(click) of each row, given by the codes of its document and factor."""
        logits = self.doc_logits[doc] + self.factor_logits[factor]
        return np.exp(np.minimum(logits, 0.0)) if self.link == "product" else expit(logits)

    def parts(self) -> Iterator[TabularFit]:
        """The fit of each part of the cells."""
        for docs, cells in self.cells.parts():
            yield replace(
                self,
                doc_logits=self.doc_logits[docs],
                cells=cells,
                bounded_docs=self.bounded_docs[docs],
            )

    def standard_error(self, reference: int) -> Floats:
        """Standard error of ``factor_logits`` relative to that of the factor ``reference``.

        It is that of the sandwich formula (the Fisher information, if the loss is a likelihood),
        with all documents estimated together with the factors; see :func:`_sandwich_errors`.
        Infinite for factors that no clicked documents connect with the reference. NaN (not
        computed)

        - if the bound of 1 decides the factor, or the documents that carry most of its
          information,
        - if documents have too few clicks for the loss (10 on average for the binomial
          likelihood, 30 for least squares), and
        - for more than 1,500 factors.
        """
        cells = self.cells
        error = np.full(cells.n_factors, np.nan)
        if cells.n_factors <= MAX_DENSE and not cells.has_few_clicks(_LEAST_CLICKS[self.loss]):
            labels = cells.comparable(partial(_informative, link=self.link))
            sums = [_error_sums(part) for part in self.parts()]
            bread, meat, curvature, bounded_curvature = map(sum, zip(*sums, strict=True))
            # The reference is fixed at 0.
            same_label = np.flatnonzero(labels == labels[reference])
            joined = np.setdiff1d(same_label, [reference])
            error[:] = np.inf
            if len(joined):
                place = np.ix_(joined, joined)
                error[joined] = _sandwich_errors(bread[place], meat[place])
            # The bound decides where most information is from documents on it.
            mostly_bounded = bounded_curvature > 0.5 * curvature
            error[self.bounded_factors | mostly_bounded] = np.nan
        error[reference] = 0.0
        return error

    def own_error(self) -> Floats:
        r"""Standard error of each of ``factor_logits`` if the other factors were known.

        With :math:`h_k` the curvature and :math:`v_k` the variance of the gradient of cell k,
        :math:`q_k = h_k / \sum_{l \in \mathrm{doc}(k)} h_l` and sums over the cells of factor f,

        .. math:: \mathrm{se}_f = \frac{\sqrt{\sum_k (1 - q_k)^2 v_k + q_k^2
            \sum_{l \in \mathrm{doc}(k), l \ne k} v_l}}{\sum_k (1 - q_k) h_k}

        (the sandwich formula with the documents eliminated). It needs no reference factor and no
        dense matrix; infinite for a factor that shares no clicked document with another one.
        """
        information = 0.0
        noise = 0.0
        for part in self.parts():
            curvature, variance = _curvature_and_variance(part)
            cells = part.cells
            total = cells.by_doc(curvature)[cells.doc]
            share = np.divide(curvature, total, out=np.ones_like(total), where=total > 0)
            information = information + cells.by_factor(curvature * (1 - share))
            variance_of_others = cells.by_doc(variance)[cells.doc] - variance
            own = (1 - share) ** 2 * variance
            noise = noise + cells.by_factor(own + share**2 * variance_of_others)
        unknown = np.full(self.cells.n_factors, np.inf)
        return np.divide(np.sqrt(noise), information, out=unknown, where=information > 0)


def fit_tabular(
    doc: Ints,
    factor: Ints,
    clicks: Floats,
    weight: Floats,
    *,
    n_docs: int | None = None,
    n_factors: int | None = None,
    **settings: Any,
) -> TabularFit:
    """See :func:`fit_cells`; of rows of clicks, whose (doc, factor) pairs may be repeated."""
    cells = Cells.from_rows(doc, factor, clicks, weight, n_docs, n_factors)
    return fit_cells(cells, **settings)


def fit_cells(
    cells: Cells,
    *,
    loss: str = "likelihood",
    link: str = "product",
    start: Floats | None = None,  # (n_factors,), in (0, 1)
    max_iter: int = 300,  # logs of thousands of users or sparse factors need the most
    tol: float = 1e-7,
) -> TabularFit:
    r"""Fit one relevance per document and one examination per bias factor to clicks.

    .. math::
        P(c = 1 | d, t) = r_d\, o_t \quad\text{(product)}, \qquad
        P(c = 1 | d, t) = \sigma(g_d + h_t) \quad\text{(additive)}.

    ``loss`` is one of

    - ``"likelihood"``: binomial. Its optimum is the fixed point of regression-EM and the minimum
      of the two-tower cross-entropy.
    - ``"squares"`` of the click rates, weighted by impressions. Its optimum is the fixed point of
      alternating least squares, the tabular form of dual learning.
    - ``"poisson"``: the Poisson likelihood.

    The additive link supports ``"likelihood"`` only. If the log determines relevance, the
    examination of ``start`` does not matter; if not, it decides the result. Newton's method stops
    when no logarithm moves by more than ``tol``, or when the loss falls by too little to change
    an estimate.

    If the cells come in parts, each step reads each part once. In memory are one part, a number
    per document, and a few matrices of shape (n_factors, n_factors).

    With the product link both likelihoods are convex in the logarithms: the optimum is unique up
    to one constant per component. Probabilities stay within [1e-6, 1].

    *Few clicks per document.* The number of parameters grows with the number of documents. If
    documents have few impressions, the binomial likelihood and least squares are inconsistent:
    chance moves many documents to the bound of 1, which biases examination. The unbounded Poisson
    likelihood is consistent: profiling out the documents leaves the multinomial likelihood of the
    clicks over factors given each document's total, which does not involve relevance. It ignores
    what large click probabilities tell beyond that, which matters only where clicks abound.
    """
    if cells.n_parts > 1 and cells.n_factors > MAX_DENSE:
        raise ValueError(
            f"The cells of the log do not fit into memory, and then at most {MAX_DENSE} bias "
            f"factors are possible; it has {cells.n_factors}. Merge factors, or take the log of "
            "a sample of queries."
        )
    cells = cells.without_empty()
    if loss == "poisson":  # the other losses stay finite by their bounds
        cells = _without_one_way_links(cells)
    if start is None:
        start = np.random.default_rng(0).uniform(size=cells.n_factors)
    n_iter = 0
    # Below 1: on its upper bound a factor could not move.
    b = np.log(np.clip(start, SMALLEST, 1 - 1e-3))
    steps = _STEPS[link]
    for step in steps[: steps.index(loss) + 1]:
        read = _clicked(cells) if step == "poisson" else cells
        a, b, n_more, converged = newton(Problem(read, link, step), b, max_iter, tol)
        n_iter += n_more
    bounded_docs, bounded_factors = Problem(cells, link, loss).held_by_bound(a, b)
    if link == "product":
        a, b = _on_one_scale(cells, a, b)
    shown = cells.of_documents(lambda _, part: part.by_doc(part.weight) > 0)
    a = np.where(shown, a, np.nan)
    return TabularFit(a, b, n_iter, converged, loss, link, cells, bounded_docs, bounded_factors)


def fit_factors(
    logits: Floats,  # (n_versions,)
    version: Ints,  # (n_rows,)
    factor: Ints,  # (n_rows,)
    clicks: Floats,  # (n_rows,)
    weight: Floats,  # (n_rows,)
    *,
    link: str = "product",
    n_factors: int,
) -> Floats:  # (n_factors,)
    """Maximum-likelihood logits of bias factors, given those of versions of documents; NaN for a
    factor without impressions."""
    # The problem of best_documents with the roles of documents and factors exchanged.
    cells = Cells.from_rows(version, factor, clicks, weight, len(logits), n_factors)
    cells = Cells(cells.factor, cells.doc, cells.clicks, cells.weight, n_factors, len(logits))
    if link == "product":
        # At probability 1, a missing click costs infinity.
        logits = np.minimum(logits, -SMALLEST)
    start = np.full(n_factors, _START)
    best = Problem(cells, link, "likelihood").best_documents(logits, start)
    return np.where(cells.by_doc(cells.weight) > 0, best, np.nan)


def _clicked(cells: Cells) -> Cells:
    """The cells of documents and factors with clicks.

    Others are at their lower bound. They add next to nothing to the Poisson likelihood, but what
    they add depends on a scale that is free otherwise.
    """
    clicked_factor = cells.clicks_of_factors > 0

    def with_clicks(part):
        return part.take(_clicked_documents(part)[part.doc] & clicked_factor[part.factor])

    return cells.changed(with_clicks)


def _clicked_documents(cells: Cells) -> Bools:
    return cells.by_doc(cells.clicks) > 0


def _without_one_way_links(cells: Cells) -> Cells:
    """The cells without those that can only separate two groups of documents and factors.

    In such a cell nobody clicked, although its document and its factor have clicks elsewhere, and
    no other cells connect the two groups back. The Poisson likelihood of the cell then grows
    without bound as its expected clicks go to 0, which drives the two groups infinitely apart.
    """
    labels = cells.comparable(lambda part: part.clicks > 0)
    n_labels = int(labels.max(initial=0)) + 1
    if n_labels == 1:
        return cells
    clicked_factor = cells.clicks_of_factors > 0

    def connected(part):
        # A document belongs to the group in which it was shown and clicked.
        group = part.doc * n_labels + labels[part.factor]
        clicked_group = np.isin(group, group[part.clicks > 0])
        both = _clicked_documents(part)[part.doc] & clicked_factor[part.factor]
        return part.take(~both | clicked_group)

    return cells.changed(connected)


def _on_one_scale(cells: Cells, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The same products on a scale with relevance (and, if possible, examination) at most 1.

    Each component is shifted by the smallest amount that achieves this. If all factors are in
    one component, the largest examination is 1.
    """
    component = cells.component_of_factors
    n_components = int(component.max(initial=0)) + 1

    def component_of_documents(_, part):
        found = np.full(part.n_docs, n_components)  # of a document in no cell
        found[part.doc] = component[part.factor]
        return found

    docs = cells.of_documents(component_of_documents)
    highest_a, highest_b = np.full((2, n_components + 1), -np.inf)
    np.maximum.at(highest_a, docs, a)
    np.maximum.at(highest_b, component, b)
    # Adding any value between low and high to a, and subtracting it from b, keeps both below 0.
    low = highest_b
    high = -highest_a
    shift = low if n_components == 1 else np.maximum(low, 0.0)
    shift = np.where(np.isfinite(low), np.minimum(shift, high), 0.0)
    return a + shift[docs], b - shift[component]


# Standard errors ------------------------------------------------------------------------
def _error_sums(fit: TabularFit) -> tuple[Floats, Floats, Floats, Floats]:
    """Bread and meat of a fit in memory, curvature by factor, and that in documents on a bound."""
    cells = fit.cells
    curvature, variance = _curvature_and_variance(fit)
    # Documents without an informative cell tell nothing of ratios.
    used = cells.by_doc(_informative(cells, fit.link))[cells.doc] > 0
    curvature = np.where(used, curvature, 0.0)
    variance = np.where(used, variance, 0.0)
    bread, meat = _sandwich_parts(cells, curvature, variance)
    on_bound = np.where(fit.bounded_docs[cells.doc], curvature, 0.0)
    return bread, meat, cells.by_factor(curvature), cells.by_factor(on_bound)


def _informative(cells: Cells, link: str) -> Bools:
    """Mask of the cells with clicks, which bound a ratio of examinations."""
    clicked = cells.clicks > 0
    if link == "additive":
        # A document that was always clicked tells as little as one that never was.
        return clicked & (cells.clicks < cells.weight)
    return clicked


def _curvature_and_variance(fit: TabularFit) -> tuple[Floats, Floats]:
    """Expected curvature of the loss of each cell, and the variance of its gradient.

    The gradient of a cell is ``slope`` times its clicks plus a constant, so that its variance is
    slope² times that of the clicks.
    """
    cells = fit.cells
    p = fit.click_probability(cells.doc, cells.factor)
    p = np.minimum(p, 1 - SMALLEST)
    noise = cells.weight * p * (1 - p)  # variance of the clicks of a cell
    if fit.link == "additive":
        slope = np.ones_like(p)
        curvature = noise
    elif fit.loss == "squares":
        slope = p
        curvature = cells.weight * p**2
    elif fit.loss == "poisson":
        # Multinomial: the clicks of each document over its factors, given their total.
        share = cells.weight * np.exp(fit.factor_logits)[cells.factor]
        share /= np.maximum(cells.by_doc(share), TINY)[cells.doc]
        curvature = cells.by_doc(cells.clicks)[cells.doc] * share
        noise = curvature
        slope = np.ones_like(p)
    else:
        slope = 1 / (1 - p)
        curvature = cells.weight * p / (1 - p)
    return curvature, noise * slope**2


def _sandwich_parts(cells: Cells, curvature: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Curvature of the factors with the documents eliminated, and covariance of the gradient.

    With A, C and D as in ``_solve.py`` the bread is B = D - C' A^-1 C. Eliminating the
    documents turns the gradient g of the cells into u_f = Σ_{k of f} g_k - Σ_d C[d, f] / A[d]
    Σ_{k of d} g_k. The meat M is the covariance of u: with N[d, f] the variance of the gradient
    summed over the cells of d and f, N_d and N_f its sums over documents and factors,

        M = diag(N_f) - N' A^-1 C - C' A^-1 N + C' A^-1 diag(N_d) A^-1 C.
    """
    coupling = cells.matrix(curvature)
    total = cells.by_doc(curvature)
    inverse_a = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    bread = -gram(coupling, inverse_a)
    # Rows of B sum to 0. The diagonal is taken from that: D minus the diagonal of C' A^-1 C would
    # be a small difference of large numbers, in which weak links are lost.
    np.fill_diagonal(bread, 0.0)
    np.fill_diagonal(bread, -bread.sum(axis=1))
    noise = cells.matrix(variance)
    cross = (noise.T @ (diags_array(inverse_a) @ coupling)).toarray()
    common = gram(coupling, inverse_a**2 * cells.by_doc(variance))
    meat = np.diag(cells.by_factor(variance)) - cross - cross.T + common
    return bread, meat


def _sandwich_errors(bread: Floats, meat: Floats) -> Floats:
    """Square roots of the diagonal of B^-1 M B^-1; infinite if B is singular."""
    try:
        half = solve(bread, meat, assume_a="pos")
        variance = np.diag(solve(bread, half.T, assume_a="pos"))
    except (LinAlgError, ValueError):  # what connects them is below rounding, or beyond float64
        return np.full(len(bread), np.inf)
    return np.where(variance > 0, np.sqrt(np.abs(variance)), np.inf)


@dataclass(kw_only=True, eq=False, repr=False)
class LearnsRelevance(HasPublishedVariant):
    r"""Mixin of estimators that learn relevance beside examination: as a network, or as a table.

    As tables they are one estimator, of :math:`P(c = 1) = r_d\, o_t` with a number for each
    document and each bias factor. By default it maximises

    - below 30 clicks per clicked document, on average, the likelihood of where the clicks of each
      document fell, given their number, in which relevance does not appear;
    - from there on the binomial likelihood of all clicks.

    ``variant="published"`` is the objective of the paper that the class stands for. Each spends a
    parameter per document, and is biased where documents have few clicks.
    """

    relevance: str = "network"

    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        "relevance": [StrOptions({"network", "embedding"})],
    }
    #: Loss of the published method; see :func:`fit_cells`.
    _published_loss = "likelihood"

    @property
    def _table_link(self):
        """How relevance and examination meet in the table."""
        return "product"

    def _fit_table(self, cells, start=None):
        """The table that explains the clicks of cells."""
        loss = self._loss_of(cells)
        fit = fit_cells(cells, loss=loss, link=self._table_link, start=start)
        if not fit.converged:
            warn_user(
                f"The embedding did not converge in {fit.n_iter} steps: the log has too few "
                "impressions per document and bias factor to determine it. Merge factors with "
                "IdentifiabilityRepair, or use relevance='network'.",
                ConvergenceWarning,
            )
        return fit

    def _loss_of(self, cells):
        if self._table_link == "additive":  # it has no conditional form
            return "likelihood"
        if self.variant == "published":
            return self._published_loss
        return "poisson" if cells.has_few_clicks(FEW_CLICKS.value) else "likelihood"


# Newton's method ----------------------------------------------------------------------
# For losses of a[doc] + b[factor]: the sum to minimise is F(a, b) = Σ_k loss_k(a[doc_k] +
# b[factor_k]). Documents are eliminated from its Hessian, as at the head of `_solve.py`.
#: Smallest probability: the logarithm of a document without a click stays finite.
SMALLEST = 1e-6
#: Where the search for a document begins: a probability of about a third.
_START = -1.0
#: Damping of a first step, relative to the curvature: next to none.
_LEAST_DAMPING = 1e-10


class System(NamedTuple):
    """Value and derivatives of a problem with respect to the factors, documents at their best."""

    value: float
    gradient: Floats
    curvature: Eliminated
    capped: Floats  # (n_factors,), number of cells of documents at their greatest value


@dataclass(frozen=True, eq=False)
class Problem:
    """The sum over cells of a loss of a[doc] + b[factor], with bounds on every a and b.

    Each step reads every part of the cells once.
    """

    cells: Cells
    link: str
    loss: str

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest value of every a and b."""
        return _LOSSES[self.link, self.loss][1]

    def _parts(self):
        """Documents of each part of the cells, a slice, and the problem of these cells."""
        if self.cells.n_parts == 1:  # it keeps its smallest loss
            return [(slice(None), self)]
        return ((docs, replace(self, cells=part)) for docs, part in self.cells.parts())

    def solved(self, b: Floats, a: Floats) -> tuple[Floats, System]:
        """The best documents given the factors, found from ``a``, and the system there."""
        best = []
        systems = []
        for docs, part in self._parts():
            found = part.best_documents(b, a[docs])
            best.append(found)
            systems.append(part._system(found, b))
        # Values, gradients and curvatures of parts are added.
        total = systems[0]
        for system in systems[1:]:
            total = System(*map(add, total, system))
        return np.concatenate(best), total

    def held_by_bound(self, a: Floats, b: Floats) -> tuple[Bools, Bools]:
        """Documents and factors whose estimate sits on a bound although the gradient points
        outside: two masks."""
        held_docs = []
        gradient_of_factors, curvature_of_factors = np.zeros((2, len(b)))
        for docs, part in self._parts():
            _, gradient, curvature = part.at(a[docs], b)
            cells = part.cells
            held = self._is_held(a[docs], cells.by_doc(gradient), cells.by_doc(curvature))
            held_docs.append(held)
            gradient_of_factors += cells.by_factor(gradient)
            curvature_of_factors += cells.by_factor(curvature)
        held_factors = self._is_held(b, gradient_of_factors, curvature_of_factors)
        return np.concatenate(held_docs), held_factors

    def _is_held(self, x, gradient, curvature):
        # A gradient below a hundredth of its own noise counts as 0.
        pulled = np.abs(gradient) > 0.01 * np.sqrt(curvature)
        return np.isin(x, self.bounds) & pulled

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
        clicks = self.cells.clicks
        weight = np.maximum(self.cells.weight, TINY)
        if self.loss == "poisson":
            return clicks - xlogy(clicks, clicks / weight)
        skips = self.cells.weight - clicks
        return -xlogy(clicks, clicks / weight) - xlogy(skips, skips / weight)

    def at(self, a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
        """Loss, gradient and curvature of each cell, three arrays of shape (n_cells,)."""
        cells = self.cells
        function, _ = _LOSSES[self.link, self.loss]
        logit = a[cells.doc] + b[cells.factor]
        value, gradient, curvature = function(logit, cells.clicks, cells.weight)
        return value - self.saturated, gradient, curvature

    def best_documents(self, b: Floats, a: Floats) -> Floats:
        """The best value of each document given the factors, shape (n_docs,); starts at ``a``."""
        if self.loss == "likelihood":
            return self._best_by_newton(b, a)
        # In closed form: a ratio of sums.
        cells = self.cells
        examination = np.exp(b)[self.cells.factor]
        factor = examination if self.loss == "squares" else 1.0
        clicks = cells.by_doc(cells.clicks * factor)
        expected = cells.by_doc(cells.weight * examination * factor)
        ratio = np.divide(clicks, expected, out=np.zeros_like(clicks), where=expected > 0)
        with np.errstate(divide="ignore"):
            return np.clip(np.log(ratio), *self.bounds)

    def _best_by_newton(self, b: Floats, a: Floats) -> Floats:
        """Newton's method inside a shrinking bracket, one convex problem per document."""
        cells = self.cells
        least, most = self.bounds
        low = np.full(cells.n_docs, least)
        high = np.full(cells.n_docs, most)
        # A document is exact to so much of its logarithm.
        exact = 1e-10
        # Whether the bounds of the problem were found to be no best values.
        below_best, above_best = np.zeros((2, cells.n_docs), dtype=bool)
        # In so many steps halving alone narrows the widest bracket, of 40, to the tolerance.
        for _ in range(40):
            _, gradient, curvature = self.at(a, b)
            # The sign of the slope tells on which side of a the best value is.
            slope = cells.by_doc(gradient)
            low = np.where(slope < 0, a, low)
            high = np.where(slope > 0, a, high)
            total = cells.by_doc(curvature)
            new = a - np.divide(slope, total, out=np.zeros_like(a), where=total > 0)
            # A step that leaves the bracket ends at the bound of the problem, where that is the
            # end of the bracket, and else in the middle of the bracket. So does a step from a
            # bound back inside: where probabilities reach 1 slopes are infinite, and steps 0.
            from_low = (a <= least + exact) & (slope < 0)
            from_high = (a >= most - exact) & (slope > 0)
            below_best |= from_low
            above_best |= from_high
            too_low = (new < low) & ((low > least) | below_best)
            too_high = (new > high) & ((high < most) | above_best)
            halved = from_low | from_high | too_low | too_high
            new = np.where(halved, (low + high) / 2, new)
            new = np.clip(new, low, high)
            moved = np.abs(new - a).max(initial=0.0)
            a = new
            if moved <= exact:
                break
        return a

    def _system(self, a, b):
        """The system at documents and factors."""
        value, gradient, curvature = self.at(a, b)
        cells = self.cells
        low, high = self.bounds
        total = cells.by_doc(curvature)
        # A document on a bound does not move.
        moves = (a > low) & (a < high) & (total > 0)
        inverse = np.divide(1.0, total, out=np.zeros(len(total)), where=moves)
        remaining = Eliminated(cells.by_factor(curvature), cells.matrix(curvature), inverse)
        capped = cells.by_factor((a >= high)[cells.doc])
        return System(float(value.sum()), cells.by_factor(gradient), remaining, capped)


def newton(
    problem: Problem, b: Floats, max_iter: int, tol: float
) -> tuple[Floats, Floats, int, bool]:
    """Minimise a problem by damped Newton steps of the factors."""
    low, high = problem.bounds
    # A factor without a click ends at its lower bound.
    b = np.where(problem.cells.clicks_of_factors > 0, b, -np.inf)
    b = np.clip(_below(b, high, problem.cells.component_of_factors), low, high)
    a, here = problem.solved(b, np.full(problem.cells.n_docs, _START))
    damping = _LEAST_DAMPING
    # Gain too small to change an estimate, in units of log-likelihood.
    least_gain = 1e-6 * _noise(problem.cells)
    for n_iter in progress(range(1, max_iter + 1), "Newton step", may_end_early=True):
        new_b = np.clip(b + _step(problem, b, here, damping), low, high)
        new_a, there = problem.solved(new_b, a)
        moved = np.abs(new_b - b).max(initial=0.0)
        gained = here.value - there.value
        # A step that was shortened by damping is no evidence of convergence.
        # Up to this damping a step is as long as Newton's, and tells whether there is more to
        # gain.
        is_bold = damping <= 1e-4
        if is_bold and moved <= tol:
            # Whether so short a step descends is decided by rounding, but it is exact: gradients
            # are known to more digits than losses.
            return new_a, new_b, n_iter, True
        if not gained > 0:
            # Where a step of more damping does not descend, descent is below rounding.
            if damping > 1e6:
                return a, b, n_iter, True
            damping *= 100.0
            continue
        a = new_a
        b = new_b
        here = there
        # The same as a share of the log-likelihood.
        too_little = max(least_gain, 1e-9 * abs(here.value))
        if is_bold and gained <= too_little:
            return a, b, n_iter, True
        damping = max(damping / 10.0, _LEAST_DAMPING)
    return a, b, max_iter, False


def _below(b: Floats, high: float, component: Ints) -> Floats:
    """Each component shifted below its bound: clipped, factors would lose their differences."""
    excess = np.zeros(len(b))
    np.maximum.at(excess, component, b - high)
    return b - excess[component]


def _noise(cells: Cells) -> float:
    """Size of the loss of a cell: about one half, and less only if no cell has an impression."""
    # The loss itself is no measure: it is 0 for clicks without noise.
    most = max(part.weight.max(initial=0.0) for _, part in cells.parts())
    return min(1.0, most)


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
    gradient = here.gradient
    curvature = here.curvature
    held = ((b <= low) & (gradient > 0)) | ((b >= high) & (gradient < 0))
    free = ~held & (curvature.own > 0)
    step = np.zeros(len(b))
    # A step is solved again at most so often because further factors reach their bounds.
    for _ in range(4):
        fixed = np.where(free, 0.0, step)
        right = -(gradient + curvature @ fixed)
        with few_threads(np.count_nonzero(free) ** 3 / 6):  # multiplications of a factorisation
            left = curvature.among(np.flatnonzero(free))
            step[free] = left.plus(damping * left.own).solve(right[free])
        # If only one or two documents hold a factor, the quadratic is a poor model far away.
        # No factor moves by more in one step.
        step = np.clip(step, -4.0, 4.0)
        step = _on_kept_scale(problem, here.capped, b, step, free)
        # Factors that would cross a bound stop there, and the others are solved for again.
        new = b + step
        crossing = free & ((new < low) | (new > high))
        if not crossing.any():
            break
        step[crossing] = np.clip(new, low, high)[crossing] - b[crossing]
        free &= ~crossing
    return step


def _on_kept_scale(
    problem: Problem, capped: Floats, b: Floats, step: Floats, free: Bools
) -> Floats:
    """Steps of factors, with their mean taken off in each component whose scale is free.

    If all its factors rise and all its documents fall, the loss stays the same: rounding would
    decide how far. With probabilities capped at 1, a cap that holds a document or a factor may
    have to shift the scale.
    """
    component = problem.cells.component_of_factors
    high = problem.bounds[1]
    if high == 0.0:
        at_cap = (capped > 0) | (~free & (b + step >= high))
        free = free & (np.bincount(component, at_cap) == 0)[component]
    total = np.bincount(component, np.where(free, step, 0.0))
    number = np.bincount(component, free)
    return np.where(free, step - (total / np.maximum(number, 1))[component], step)


# The loss of a cell as a function of its logit: value, gradient and a positive curvature ----
# With c clicks of w impressions and s = a[doc] + b[factor]:
#   product, likelihood   -c s - (w - c) log(1 - e^s)           binomial, p = e^s
#   product, poisson      w e^s - c s                           Poisson, mean w e^s
#   product, squares      (w e^s - c)^2 / (2 w)                 weighted squares of click rates
#   additive, likelihood  -c log σ(s) - (w - c) log σ(-s)       binomial, p = σ(s)
#: Least curvature per impression, and least probability of a skip: no step divides by 0.
_LEAST_CURVATURE = 1e-12


def _product_likelihood(
    logit: Floats, clicks: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    p = np.exp(logit)
    skips = weight - clicks
    skip = -np.expm1(logit)  # 1 - p, exact near p = 1
    # Where every impression was clicked, 0 times the infinite logarithm is 0.
    with np.errstate(divide="ignore"):
        log_skip = np.where(skips > 0, np.log(skip), 0.0)
    value = -clicks * logit - skips * log_skip
    skip = np.maximum(skip, _LEAST_CURVATURE)
    missed = skips * p / skip
    # Where every impression was clicked the curvature is 0; a part of the weight stands in.
    curvature = np.maximum(missed / skip, 0.01 * weight * p)
    return value, missed - clicks, curvature


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
    curvature = np.maximum(weight * p * (1 - p), _LEAST_CURVATURE * weight)
    return value, weight * p - clicks, curvature


_LOWEST = float(np.log(SMALLEST))
#: By link and loss: the function, and least and largest value of every a and b.
_LOSSES = {
    ("product", "likelihood"): (_product_likelihood, (_LOWEST, 0.0)),
    ("product", "poisson"): (_product_poisson, (_LOWEST, -_LOWEST)),
    ("product", "squares"): (_product_squares, (_LOWEST, 0.0)),
    # Bound on logits: a document that was always clicked has a finite one.
    ("additive", "likelihood"): (_additive_likelihood, (-20.0, 20.0)),
}
