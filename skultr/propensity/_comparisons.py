"""Examination by pairwise comparison of the bias factors under which documents were shown.

A document (or an arm of an experiment) has one relevance r under all factors, with the click rate
r o_k under factor k. The ratio of its click rates under two factors is therefore o_k / o_l. With
c_dk clicks and n_dk impressions of document d, the pairwise log likelihood of b = log o is

    l(b) = Σ_{k ≠ l} C_kl log(o_k / (o_k + o_l)),    C_kl = Σ_d w_dkl c_dk / n_dk,

the Bradley-Terry model of a tournament in which each click under k counts against l. Two numbers
per pair of factors, C_kl and C_lk, hold all of it, so that hundreds of resamples and thousands of
users are solved as one batch of small problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import pandas as pd
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, gammaln, polygamma, xlogy

from .._log._segments import TINY, encode
from .._models._solve import gram, maximise, minimised, warn_unless_converged
from ._thresholds import LEAST_CLUSTERS

#: Numbers in a batch of problems; limits memory to some tens of MB.
_BATCH = 4_000_000
#: Entries of the documents that are compared at once; some hundred bytes each.
_ENTRIES = 500_000


@dataclass(frozen=True, eq=False)
class Entries:
    """One entry per (document, bias factor, other bias factor) of some documents, if shown under
    both factors."""

    key: np.ndarray  # (n_entries,), (group, factor, other) flat
    cell: np.ndarray  # (n_entries,)
    weight: np.ndarray  # (n_entries,), of one click of the cell: w_dkl / n_dk
    clicks: np.ndarray  # (n_entries,)
    impressions: np.ndarray  # (n_entries,)
    doc: np.ndarray  # (n_entries,)


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Sums over the entries of all documents.

    Only factors of the same group (user) are compared. Documents may be arms of an experiment.
    With one group, bias factors that nothing compares have no place here: one long list can add
    thousands of them.
    """

    n_groups: int
    n_bias: int
    place_of_factor: np.ndarray  # (n_factors,), into (n_groups, n_bias) flat; -1: no place
    #: The entries, some documents at a time: those of all documents need far more memory than the
    #: cells, and are made anew for each sum.
    entries: Callable[[], Iterable[Entries]]

    @classmethod
    def of(cls, cells, variant):
        """All comparisons in a log."""
        bias, group, n_groups = _codes(cells.factors)
        if cells.factors.user is None:
            # If nothing is compared, the first one stands for itself.
            compared = np.unique(bias[_compared_factors(cells, group)])
            if not len(compared):
                compared = np.zeros(1, np.intp)
            n_bias = len(compared)
            bias = pd.Index(compared).get_indexer(bias)
        else:  # a user whose documents did not move has the common curve, whoever compares it
            n_bias = int(bias.max(initial=-1)) + 1
        # -1: nothing compares the factor, which has no place among the curves.
        place = np.where(bias >= 0, group * n_bias + bias, -1)

        def entries():
            for docs, part in cells.parts():
                first_doc = docs.start or 0
                for rows in _documents_together(part.doc):
                    some = part.take(rows)
                    found = _entries_of(some, first_doc, bias, group, n_bias, variant)
                    if len(found.key):
                        yield found

        return cls(n_groups, n_bias, place, entries)

    def of_factors(self, values):
        """Values by group and bias factor as values of each factor; NaN where not compared."""
        values = values.reshape(-1, self.n_groups * self.n_bias)
        # A factor without a place has -1, the last column.
        unknown = np.full((len(values), 1), np.nan)
        return np.hstack([values, unknown])[:, self.place_of_factor]

    def totals(self):
        """Weighted clicks C_kl under factor k against factor l, summed over documents."""
        return self._sums[0]

    def exposure(self):
        """Impressions under factor k of documents that l shares, and those times the weight of a
        click, shape (n_groups, 2, n_bias, n_bias)."""
        return np.stack(self._sums[1:], axis=1)

    @cached_property
    def _sums(self):
        """Weighted clicks, impressions and weighted impressions by (group, factor, other)."""
        shape = self.n_groups, self.n_bias, self.n_bias
        sums = np.zeros((3, np.prod(shape)))
        for each in self.entries():
            columns = (each.weight * each.clicks, each.impressions, each.weight * each.impressions)
            for total, values in zip(sums, columns, strict=True):
                total += np.bincount(each.key, values, len(total))
        return sums.reshape(3, *shape)

    def effective_docs(self):
        """Effective number of documents per factor, (Σ c)² / Σ c² over their clicks c."""
        n_factors = self.n_groups * self.n_bias
        total = np.zeros(n_factors)
        squares = np.zeros(n_factors)
        for each in self.entries():
            # A cell has an entry for each other factor; its clicks count once.
            _, first = np.unique(each.cell, return_index=True)
            factor = each.key[first] // self.n_bias
            clicks = each.clicks[first]
            total += np.bincount(factor, clicks, minlength=n_factors)
            squares += np.bincount(factor, clicks**2, minlength=n_factors)
        n_docs = np.divide(total**2, squares, out=np.zeros(n_factors), where=squares > 0)
        return n_docs.reshape(self.n_groups, self.n_bias)

    def gradient_noise(self, lost):
        """Covariance of the gradient of each group by single clicks, as if these were independent,
        and by documents, given P(lost) of each comparison; shapes (n_groups, n_bias, n_bias)."""
        shape = (self.n_groups, self.n_bias)
        by_clicks, by_docs = np.zeros((2, *shape, self.n_bias))
        for each in self.entries():
            pull = each.weight * lost[each.key]
            by_clicks += gradient_noise(each.cell, each.key, pull * each.clicks**0.5, shape)
            by_docs += gradient_noise(each.doc, each.key, pull * each.clicks, shape)
        return by_clicks, by_docs

    def resampled(self, cluster, draws):
        """The totals of resamples, batch by batch."""
        shape = (self.n_groups * self.n_bias**2, int(cluster.max()) + 1)
        by_cluster = self._by_cluster(cluster, shape)
        draws = iter(draws)
        # As many resamples together as memory allows.
        n_at_once = max(1, _BATCH // max(shape))
        while batch := list(islice(draws, n_at_once)):
            totals = by_cluster @ np.column_stack(batch)
            yield totals.T.reshape(-1, self.n_bias, self.n_bias)

    def _by_cluster(self, cluster, shape):
        """What one draw of a cluster adds to each total, a sparse matrix."""
        parts = []
        for each in self.entries():
            clicks = each.weight * each.clicks
            places = (each.key, cluster[each.doc])
            # Sums of the part: far fewer than its entries.
            parts.append(coo_array((clicks, places), shape).tocsr().tocoo())
        if not parts:
            return csr_array(shape)
        data = np.concatenate([part.data for part in parts])
        row, column = np.concatenate([part.coords for part in parts], axis=1)
        return coo_array((data, (row, column)), shape).tocsr()


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of a batch of tournaments, as :func:`solve` finds them."""

    log_examination: np.ndarray  # (n_problems, n_bias)
    clicks: np.ndarray  # (n_problems, n_bias, n_bias)
    added: np.ndarray  # (n_problems, n_bias, n_bias)
    first: int

    def standard_error(self, comparisons):
        """Standard errors of log examination per group and factor.

        With the Laplacian L of :func:`curvature` and the gradients u_d of the documents, the
        covariance is the sandwich L^-1 (Σ_d u_d u_d') L^-1. Below 30 effective documents of a
        factor, the gradients of single clicks replace u_d, as if clicks were Poisson, which is
        conservative.
        """
        is_unknown = np.isnan(self.log_examination)
        b = np.where(is_unknown, 0.0, self.log_examination)
        lost = 1 - win_probability(b).ravel()
        compared = np.where(self.clicks.ravel() > 0, lost, 0.0)
        click_noise, doc_noise = comparisons.gradient_noise(compared)
        added_noise = self._noise_of_half_clicks(lost)
        inverse = np.linalg.inv(curvature(self.clicks, b) + _anchors(self.clicks))
        # A factor is compared with the first one, so that the one with fewer documents decides.
        n_docs = comparisons.effective_docs()
        n_docs = np.minimum(n_docs, n_docs[:, [self.first]])
        variance = np.where(
            n_docs >= LEAST_CLUSTERS.value,
            _sandwich_diagonal(inverse, added_noise + doc_noise),
            _sandwich_diagonal(inverse, added_noise + click_noise),
        )
        variance[:, self.first] = 0.0  # exactly, without rounding
        return np.where(is_unknown, np.nan, np.sqrt(np.maximum(variance, 0.0)))

    def _noise_of_half_clicks(self, lost):
        """Covariance of the gradient of the half clicks that were added."""
        shape = self.log_examination.shape
        added = np.flatnonzero(self.added)
        # `added` is half of the weight of a click, whose variance is half a click.
        weight = self.added.ravel()[added] / 0.5
        size = weight * lost[added] * 0.5**0.5
        return gradient_noise(added // shape[1], added, size, shape)


def _sandwich_diagonal(inverse, noise):
    """Diagonal of L^-1 Σ L^-1 for each problem, (n_problems, n_bias)."""
    return ((inverse @ noise) * inverse).sum(axis=2)


def solve(totals, method, exposure):
    r"""Maximum-likelihood examination curves of a batch of tournaments.

    The likelihood is that of :math:`P(\text{a click of the pair } k, l \text{ fell on } k) =
    o_k / (o_k + o_l)`.
    """
    first = first_compared(exposure)
    # A comparison that the method leaves out has no clicks.
    clicks = np.where(_compared(totals, method, first), totals, 0.0)
    added = _half_clicks(clicks, exposure)
    clicks = clicks + added
    # Factors are known relative to the first one as far as clicks connect them.
    component = _components(clicks, "weak")
    b = penalised_curves(clicks, _anchors(clicks)).at
    is_connected = component == component[:, [first]]
    log_examination = np.where(is_connected, b - b[:, [first]], np.nan)
    return Curves(log_examination, clicks, added, first)


# Reading --------------------------------------------------------------------------------
def _codes(factors):
    """Codes of bias factors and of groups, and the number of groups."""
    _, bias = np.unique(factors.bias, return_inverse=True)
    if factors.user is None:
        return bias, np.zeros(len(bias), dtype=np.intp), 1
    group, users = encode(factors.user)
    return bias, group, len(users)


def _compared_factors(cells, group):
    """True for each factor under which a document was shown that another of its group shares."""
    is_compared = np.zeros(cells.n_factors, dtype=bool)
    for _, part in cells.parts():
        own = group[part.factor]
        # Cells of a document are neighbours.
        is_next = (part.doc[1:] == part.doc[:-1]) & (own[1:] == own[:-1])
        is_compared[part.factor[1:][is_next]] = True
        is_compared[part.factor[:-1][is_next]] = True
    return is_compared


def _documents_together(doc):
    """Cells of documents that have about so many entries together, as slices."""
    n_cells = np.bincount(doc)
    ends = np.cumsum(n_cells)
    # Each cell of a document is compared with all others, at most.
    n_entries = np.cumsum(n_cells**2)
    first = 0
    while first < len(n_cells):
        before = n_entries[first - 1] if first else 0
        # As many documents as fit, but one at least.
        last = max(int(np.searchsorted(n_entries, before + _ENTRIES, side="right")), first + 1)
        yield slice(ends[first - 1] if first else 0, ends[last - 1])
        first = last


def _entries_of(cells, first_doc, bias, group, n_bias, variant):
    """The entries of cells of some documents, which count from ``first_doc``."""
    group = group[cells.factor]
    first, second = _cells_together(cells.doc, group)
    # Each pair counts in both directions.
    own, other = np.concatenate([[first, second], [second, first]], axis=1)
    bias = bias[cells.factor]
    shown = cells.weight
    # w_dkl / n_dk, with w = 1 as published, else w = n m / (n + m).
    if variant == "published":
        weight = 1 / shown[own]
    else:
        weight = shown[other] / (shown[own] + shown[other])
    return Entries(
        key=(group[own] * n_bias + bias[own]) * n_bias + bias[other],
        cell=own,
        weight=weight,
        clicks=cells.clicks[own],
        impressions=shown[own],
        doc=cells.doc[own] + first_doc,
    )


def _cells_together(doc, group):
    """All pairs of cells of the same document and group; cells are sorted by both."""
    # Cells of a document are neighbours: pairs at distance 1, 2, ... until no two belong together.
    pairs = [np.empty((2, 0), dtype=np.intp)]
    for gap in range(1, len(doc)):
        is_together = (doc[gap:] == doc[:-gap]) & (group[gap:] == group[:-gap])
        cell = np.flatnonzero(is_together)
        if not len(cell):
            break
        pairs.append(np.stack([cell, cell + gap]))
    return np.concatenate(pairs, axis=1)


# Solving --------------------------------------------------------------------------------
def first_compared(exposure):
    """The first factor that is compared with another in any group: the common reference."""
    is_compared = (exposure[:, 0] > 0).any(axis=(0, 2))
    return int(is_compared.argmax())


def _compared(totals, method, first):
    """Mask of the comparisons that a method uses, or True for all."""
    place = np.arange(totals.shape[-1])
    if method == "all-pairs":
        return True
    if method == "pivot":
        return (place[:, None] == first) | (place == first)
    # A factor without a click would break the chain. The chain skips it, and it is compared with
    # its clicked neighbour only.
    clicked = totals.sum(axis=2) > 0
    last = np.maximum.accumulate(np.where(clicked, place, -1), axis=1)
    nothing = np.full((len(totals), 1), -1)
    before = np.concatenate([nothing, last[:, :-1]], axis=1)
    first_clicked = clicked.argmax(axis=1)[:, None]
    before = np.where(before < 0, first_clicked, before)
    link = before[:, :, None] == place
    return link | link.transpose(0, 2, 1)


def _half_clicks(clicks, exposure):
    """Half a click per factor whose maximum-likelihood ratio to others would be 0 or infinite.

    That happens if one side of a comparison has no click and no chain of other comparisons bounds
    the ratio (Ford 1957); bounded ratios are not changed. As any click, half a click counts in
    all comparisons of its document: in each as often as documents of the factor are in it.
    """
    added = np.zeros_like(clicks)
    other = clicks.transpose(0, 2, 1)
    is_one_sided = (clicks == 0) & (other > 0)
    problems = np.flatnonzero(is_one_sided.any(axis=(1, 2)))
    if len(problems):
        # Within a strong component, other comparisons bound the ratio.
        component = _components(clicks[problems], "strong")
        apart = component[:, :, None] != component[:, None, :]
        unbounded = apart & is_one_sided[problems]
        # Problems are resamples of the groups, in turn.
        exposure_each = exposure[problems % len(exposure)]
        shown = np.where(unbounded, exposure_each[:, 0], 0.0)
        weighted = np.where(unbounded, exposure_each[:, 1], 0.0)
        most_shown = shown.max(axis=2, keepdims=True)
        added[problems] = 0.5 * weighted / np.maximum(most_shown, TINY)
    return added


def _components(clicks, connection):
    """Connected component of each factor of each problem, shape (n_problems, n_bias)."""
    problem, factor, other = np.nonzero(clicks)
    n_bias = clicks.shape[-1]
    size = len(clicks) * n_bias
    # All problems are one graph, in blocks that nothing connects.
    edges = (problem * n_bias + factor, problem * n_bias + other)
    graph = coo_array((np.ones(len(problem)), edges), (size, size))
    _, labels = connected_components(graph, connection=connection)
    return labels.reshape(len(clicks), n_bias)


def penalised_curves(clicks, precision, center=0.0, start=None):
    """Log examination per problem and factor that maximises the penalised pairwise likelihood.

    For each problem Newton's method maximises, with prior precision P and center m,

        Σ_{k ≠ l} C_kl log σ(b_k - b_l) - (b - m)' P (b - m) / 2.
    """
    center = np.broadcast_to(center, clicks.shape[:2])
    both = clicks + clicks.transpose(0, 2, 1)

    def objective(b):
        win = win_probability(b)
        away = b - center
        pull = (precision @ away[:, :, None])[:, :, 0]
        value = (clicks * np.log(win)).sum(axis=(1, 2)) - 0.5 * (pull * away).sum(axis=1)
        gradient = (clicks - both * win).sum(axis=2) - pull
        return value, gradient, _laplacian(both * win * win.transpose(0, 2, 1)) + precision

    def steps(curvature, gradient):
        return np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]

    start = center if start is None else start
    # What the last step may still gain: twice the log-likelihood, which is about as large as the
    # clicks are many, to the digits that doubles have.
    tol = 1e-14 * (1 + clicks.sum(axis=(1, 2)))
    # Longer steps of log examination than 2 overshoot where few clicks bend the likelihood.
    found = maximise(objective, start, solve=steps, tol=tol, longest=2.0)
    warn_unless_converged(found, "Examination by pairwise comparison")
    return found


def win_probability(b):
    """P(a click of a pair fell on its first factor), shape (n_problems, n_bias, n_bias)."""
    return expit(b[:, :, None] - b[:, None, :])


def curvature(clicks, b):
    """Laplacian of the graph of factors: minus the Hessian of the pairwise log likelihood.

    The weight of the edge (k, l) is (C_kl + C_lk) p (1 - p) with p = o_k / (o_k + o_l).
    """
    win = win_probability(b)
    both = clicks + clicks.transpose(0, 2, 1)
    return _laplacian(both * win * win.transpose(0, 2, 1))


def _laplacian(weight):
    laplacian = -weight
    place = np.arange(weight.shape[-1])
    laplacian[:, place, place] += weight.sum(axis=2)
    return laplacian


def _anchors(clicks):
    """Prior precision that fixes the first factor of each connected component.

    Gradients of the likelihood sum to 0 within a component, so that the size of the precision
    does not change the estimate.
    """
    component = _components(clicks, "weak").ravel()
    _, first = np.unique(component, return_index=True)
    is_first = np.zeros(len(component))
    is_first[first] = 1.0
    # As precise as the factor with the most clicks, so that the matrix is well conditioned.
    largest = clicks.sum(axis=2).max(axis=1, keepdims=True)
    precision = is_first.reshape(clicks.shape[:2]) * np.where(largest > 0, largest, 1.0)
    return precision[:, :, None] * np.eye(clicks.shape[-1])


def gradient_noise(source, key, size, shape):
    """Covariance of the gradient per group, shape (n_groups, n_bias, n_bias).

    An entry adds its ``size`` to the gradient of its own factor and takes it from the other one's;
    entries of one ``source`` (a document, or a cell) depend on each other.
    """
    n_groups, n_bias = shape
    factor, other = np.divmod(key, n_bias)
    group = factor // n_bias
    # A source in two groups counts as two sources, because groups have blocks of their own.
    _, source = np.unique(source * n_groups + group, return_inverse=True)
    # One row per source: what it adds to the gradient at each factor.
    n_sources = int(source.max(initial=-1)) + 1
    rows = np.concatenate([source, source])
    columns = np.concatenate([factor, group * n_bias + other])
    sizes = np.concatenate([size, -size])
    moves = coo_array((sizes, (rows, columns)), (n_sources, n_groups * n_bias)).tocsr()
    if n_groups == 1:
        return gram(moves, np.ones(n_sources))[None]
    # Groups share no source, so that only their own blocks are filled.
    noise = (moves.T @ moves).tocoo()
    group, row = np.divmod(noise.row, n_bias)
    covariance = np.zeros((n_groups, n_bias, n_bias))
    covariance[group, row, noise.col % n_bias] = noise.data
    return covariance


# Users by pairwise comparison -----------------------------------------------------------
#: Differences between users are estimated from at most so many; more do not change the estimate.
_MOST_USERS = 2_000
#: Prior mean of the log variances, of steepness and of single factors.
_PRIOR_MEAN = np.log([0.5**2, 0.3**2])
#: Prior standard deviation of log variances, here and in :func:`shrink`: hardly informative.
_PRIOR_SPREAD = 2.0


def pooled_curves(comparisons, totals, common, common_error, strength="auto"):
    r"""Penalised maximum-likelihood curves of log examination, one per user, with their errors.

    The curve :math:`\theta_u` of user u maximises

    .. math::
        \sum_{k \neq l} s_k s_l\, C_{ukl} \log
        \frac{e^{\theta_{uk}}}{e^{\theta_{uk}} + e^{\theta_{ul}}}
        - \tfrac12 (\theta_u - m)^\top T^{-1} (\theta_u - m), \qquad
        T = \tau^2 \theta \theta^\top + \sigma^2 I, \quad
        m = \theta - \tfrac12 \operatorname{diag} T .

    The scale :math:`s_k s_l` turns the totals into numbers of independent clicks, see
    :func:`_factor_scale`. The common curve :math:`\theta` is the logarithm of mean examination;
    examination is log-normal over users, so that its median is m. Users differ in steepness
    (:math:`\tau`), one random slope per user that clicks at the top determine for deeper
    positions too, and by one random effect per factor (:math:`\sigma`). Both maximise the
    marginal likelihood in Laplace's approximation, with a weak prior. Shrinking the logarithm of
    each user's own estimate instead fails if most users have no click at most positions: their
    own estimates hardly exist.
    """
    unknown = np.isnan(common)
    center = np.nan_to_num(common)
    center_error = np.nan_to_num(common_error)
    clicks = _independent_clicks(comparisons, totals, center)
    # Curves are relative to the first factor, which is fixed.
    first = first_compared(comparisons.exposure())
    free = ~unknown & (np.arange(len(common)) != first)
    fall = np.where(free, center - center[first], 0.0)
    n_clicks = clicks.sum(axis=(1, 2))
    share = n_clicks / max(n_clicks.sum(), TINY)
    if isinstance(strength, str):
        covariance = _estimated_covariance(clicks, share, center, fall, free)
        center = _median(center, covariance, share)
    else:
        # A given strength: factors differ independently, with its inverse as variance.
        covariance = _covariance((0.0, 1 / strength), fall, free)
    precision = np.linalg.inv(covariance)
    curves = np.empty_like(totals[:, 0])
    errors = np.empty_like(curves)
    # Batch by batch, because each user has a matrix of factors by factors.
    step = max(1, _BATCH // totals[0].size)
    for start in range(0, len(totals), step):
        some = slice(start, start + step)
        curves[some] = penalised_curves(clicks[some], precision, center).at
        inverse = np.linalg.inv(curvature(clicks[some], curves[some]) + precision)
        own_variance = np.diagonal(inverse, axis1=1, axis2=2)
        # The error of the common curve comes in as far as a curve is pulled toward it.
        common_part = inverse @ precision @ center_error
        errors[some] = np.where(free, np.sqrt(own_variance + common_part**2), 0.0)
    return np.where(unknown, np.nan, curves), np.where(unknown, np.nan, errors)


def _estimated_covariance(clicks, share, center, fall, free):
    """Covariance T of the curves of users, shape (n_bias, n_bias), by marginal likelihood.

    A user who contributes most clicks dominates the common curve, so agreement is no evidence of
    homogeneity. The weight of a user is therefore the share of the clicks that others have.
    """
    users = np.flatnonzero(share > 0)
    most = max(1, min(_MOST_USERS, _BATCH // clicks[0].size))
    if len(users) > most:
        users = np.random.default_rng(0).choice(users, most, replace=False)
    clicks = clicks[users]
    weight = 1 - share[users]
    curves = np.tile(center, (len(users), 1))

    def loss(log_variances):
        nonlocal curves
        covariance = _covariance(np.exp(log_variances), fall, free)
        precision = np.linalg.inv(covariance)
        median = _median(center, covariance, share)
        found = penalised_curves(clicks, precision, median, start=curves)
        curves = found.at
        # Marginal log likelihood of each user by Laplace's approximation, with the Laplacian L:
        # l(θ) - (θ - m)' T^-1 (θ - m) / 2 - log det(L + T^-1) / 2 - log det(T) / 2.
        _, log_det_bend = np.linalg.slogdet(curvature(clicks, curves) + precision)
        _, log_det_prior = np.linalg.slogdet(covariance)
        marginal = found.value - 0.5 * (log_det_bend + log_det_prior)
        penalty = ((log_variances - _PRIOR_MEAN) ** 2).sum() / (2 * _PRIOR_SPREAD**2)
        return penalty - weight @ marginal

    # Starts: users who hardly differ, who differ as in our simulations, and more. The likelihood
    # may have a maximum where only one of the variances is large.
    deviations = (0.05, 0.25, 1.0)
    grid = [np.log([tau**2, sigma**2]) for tau in deviations for sigma in deviations]
    start = min(grid, key=loss)
    # Outside of these bounds, users are alike, or have nothing in common.
    bound = (np.log(0.01**2), np.log(3.0**2))
    options = {
        "initial_simplex": start + np.array([[0, 0], [1, 0], [0, 1]]),
        "maxfev": 200,
        # A tenth of a log variance changes curves less than their noise.
        "xatol": 0.1,
        "fatol": 0.01,
    }
    found = minimised(
        loss,
        start,
        "How much users differ",
        method="Nelder-Mead",
        bounds=[bound, bound],
        options=options,
    )
    return _covariance(np.exp(found), fall, free)


def _median(common, covariance, share):
    """Median curve of log examination over users whose mean examination is the common curve.

    A log-normal variable has the median mean * exp(-variance / 2). The common curve is a mean over
    the users weighted by their shares p_u of the clicks. It varies with them, so that the variance
    of a user around it is only 1 - Σ p_u² of the full one.
    """
    return common - 0.5 * (share.sum() - (share**2).sum()) * np.diag(covariance)


def _covariance(variances, fall, free):
    """T = τ² θ θ' + σ² I, from the variances (τ², σ²)."""
    steepness, own = variances
    # A factor that is fixed has nearly no variance; none would have no inverse.
    own = np.where(free, own, 1e-9)
    return steepness * np.outer(fall, fall) + np.diag(own)


def _independent_clicks(comparisons, totals, center):
    """Totals on the scale of independent clicks, s_k s_l C_ukl.

    One click is counted, in part, in several comparisons, so that the Laplacian of the totals is
    not their information. The noise of the gradient is estimated from single clicks, as if they
    were independent, and from documents. The smaller of the two is used, because gradients of
    documents also contain the differences between users.
    """
    # All users together, at the common curve.
    lost = np.tile(1 - win_probability(center[None]).ravel(), comparisons.n_groups)
    cell_noise, doc_noise = comparisons.gradient_noise(lost)
    noise = np.diag(np.minimum(cell_noise.sum(axis=0), doc_noise.sum(axis=0)))
    information = curvature(totals.sum(axis=0, keepdims=True), center[None])[0]
    scale = _factor_scale(information, noise)
    return totals * np.outer(scale, scale)


def _factor_scale(information, noise):
    """Scale s such that s_k s_l C_kl has the information i_k**2 / noise_k about factor k.

    With the Laplacian of the totals, whose diagonal is i and whose other entries are -W_kl, a
    gradient with the variance noise_k determines b_k with the precision i_k**2 / noise_k. The
    scaled totals have the information s_k Σ_l W_kl s_l. The fixed point of the iteration is

        s_k Σ_l W_kl s_l = i_k**2 / noise_k.

    There is none where one factor's information is more than that of the others together: the
    iteration then goes on for ever. Twenty rounds come within some hundredths of the fixed point
    where there is one, and go a part of the way elsewhere.
    """
    own = np.diag(information)
    between = np.diag(own) - information
    precision = _ratio(own, noise)  # per unit of information
    scale = np.sqrt(precision)
    for _ in range(20):
        scale = np.sqrt(scale * precision / _ratio(between @ scale, own))
    return scale


def _ratio(numerator, denominator):
    """Quotient, 1 where either is 0."""
    known = (numerator > 0) & (denominator > 0)
    return np.divide(numerator, denominator, out=np.ones_like(denominator), where=known)


# Users by their counts ------------------------------------------------------------------
def shrink(log_examination, noise, clicks, bias, common, common_error, strength="auto"):
    r"""Empirical-Bayes estimate of log examination per (user, bias) factor, with its error.

    The model of the clicks :math:`c_{uk}` of user u under factor k, where the common curve
    :math:`\theta` (log examination) expects :math:`e_{uk}` clicks, is

    .. math::
        c_{uk} \mid \rho_{uk} \sim \mathrm{Poisson}(\rho_{uk} e_{uk}), \qquad
        \rho_{uk} \sim \mathrm{Gamma}(\text{mean } 1, \text{shape } a_k), \qquad
        \frac{1}{a_k} = \sigma^2 + \tau^2 \theta_k^2 .

    Users differ by :math:`\tau` in the steepness of their curves and by :math:`\sigma` at each
    factor, so that they differ most at factors with little examination. Both maximise the
    marginal likelihood, and the estimate is the posterior mean of the ratio:

    .. math::
        (\hat\sigma, \hat\tau) = \arg\max \sum_{u, k} w_{uk} \log
        \frac{\Gamma(c_{uk} + a_k)}{\Gamma(a_k)}
        \frac{a_k^{a_k} e_{uk}^{c_{uk}}}{(a_k + e_{uk})^{a_k + c_{uk}}}
        - \text{prior}(\sigma, \tau), \qquad
        \hat\rho_{uk} = \frac{c_{uk} + a_k}{e_{uk} + a_k} .

    Counts are modelled instead of log estimates because most users have no click at most
    positions; the logarithm of their estimates is far from normal there.
    """
    center = common[bias]
    clicks, expected = _counts(log_examination - center, noise, clicks)
    if isinstance(strength, str):
        shape = _estimated_shape(clicks, expected, bias, center)
    else:
        shape = float(strength)
    pull = shape / (expected + shape)  # 1 without data of the user
    # The log of a gamma variable has the trigamma function of its shape as variance.
    variance = polygamma(1, clicks + shape) + (pull * common_error[bias]) ** 2
    ratio = (clicks + shape) / (expected + shape)
    return center + np.log(ratio), np.sqrt(variance)


def _counts(gap, noise, clicks):
    """Effective Poisson counts: clicks, and clicks that the common curve expects, per factor.

    The log of a Poisson count c has the variance 1 / c. An estimate with the standard error s and
    c clicks is therefore treated as 1 / s² clicks: both counts are multiplied by 1 / (c s²). That
    exceeds 1 where most impressions are clicked, because such clicks vary less than Poisson.
    """
    known = np.isfinite(gap) & np.isfinite(noise) & (noise > 0)
    # A factor without a click counts as half of one.
    counted = np.maximum(clicks, 0.5)
    # Any number stands where nothing is known; it counts as no clicks.
    noise = np.where(known, noise, 1.0)
    gap = np.where(known, gap, 0.0)
    share = np.where(known, 1 / (counted * noise**2), 0.0)
    return clicks * share, counted * share * np.exp(-gap)


def _estimated_shape(clicks, expected, bias, center):
    """Shape a_k per factor, by maximum marginal likelihood of sigma and tau."""
    # A user who contributes most clicks dominates the common curve, so agreement is no evidence
    # of homogeneity: the weight is the share of the clicks that others have.
    total = np.bincount(bias, clicks)
    weight = 1 - clicks / np.maximum(total, TINY)[bias]
    some = np.flatnonzero((expected > 0) & (weight > 0) & np.isfinite(center))
    # Some 50,000 cells at most: more do not change two variances.
    some = some[:: len(some) // 50_000 + 1]
    weight = weight[some]
    clicks = clicks[some]
    expected = expected[some]

    def loss(log_variances):
        shape = _shape(log_variances, center[some])
        rate = shape + expected
        likelihood = gammaln(clicks + shape) - gammaln(shape)
        likelihood += xlogy(shape, shape / rate) + xlogy(clicks, expected / rate)
        prior = ((log_variances - start) / _PRIOR_SPREAD) ** 2
        return 0.5 * prior.sum() - weight @ likelihood

    # The prior means of sigma and tau, with the weight of about one user.
    start = 2 * np.log([0.2, 0.5])
    options = {"xatol": 0.01, "fatol": 0.01}
    found = minimised(loss, start, "How much users differ", method="Nelder-Mead", options=options)
    return _shape(found, center)


def _shape(log_variances, center):
    """Shape a_k of the gamma prior, of variance σ² + τ² θ_k² around 1."""
    variance, steepness = np.exp(log_variances)
    return 1 / (variance + steepness * np.nan_to_num(center) ** 2)
