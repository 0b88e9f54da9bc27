"""Examination by comparison: what units shown under two bias factors say of the two.

A unit has one relevance wherever it is shown, so that its click rates under two factors are to
each other as their examinations. Summed over units, that is a tournament: each click under one
factor counts against the other. Few numbers a pair of factors carry all of it, so that hundreds
of resamples and thousands of users are solved as one batch of small problems.
"""

from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from .._log._segments import TINY, encode

__all__ = [
    "BATCH",
    "Comparisons",
    "Curves",
    "curvature",
    "first_compared",
    "gradient_noise",
    "likeliest",
    "solve",
    "win_probability",
]

#: Units from which on what they say against each other tells how noisy they are.
_LEAST_UNITS = 30
#: Numbers in a batch of problems; bounds memory.
BATCH = 4_000_000
_MAX_STEPS, _LONGEST_STEP, _TOL = 100, 2.0, 1e-9


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Entries (unit, bias factor, other bias factor) for units that were shown under both.

    Only factors of one group (user) are compared.

    Parameters
    ----------
    n_groups, n_bias : int
    place_of_factor : ndarray of shape (n_factors,), int
        Flat index of each factor of the cells into an array of shape (n_groups, n_bias).
    key : ndarray of shape (n_entries,), int
        Flat index of (group, factor, other) into an array of shape (n_groups, n_bias, n_bias).
    cell : ndarray of shape (n_entries,), int
        Cell of the cells that an entry takes its clicks from.
    worth : ndarray of shape (n_entries,)
        What one click of the cell counts in this comparison.
    clicks, impressions : ndarray of shape (n_entries,)
        Number of clicks and of impressions of the cell.
    unit : ndarray of shape (n_entries,), int
    """

    n_groups: int
    n_bias: int
    place_of_factor: np.ndarray
    key: np.ndarray
    cell: np.ndarray
    worth: np.ndarray
    clicks: np.ndarray
    impressions: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(cls, cells, pair_weight):
        """The comparisons that a log makes.

        Parameters
        ----------
        cells : Cells
        pair_weight : {"impressions", "equal"}
            How much a unit with n and m impressions under two factors counts in their comparison:
            n m / (n + m), which is the least variance if the factors do not differ (Mantel &
            Haenszel 1959), or 1.

        Returns
        -------
        comparisons : Comparisons
        """
        bias, n_bias, group, n_groups = _codes(cells.factors)
        place = group * n_bias + bias
        bias, group = bias[cells.factor], group[cells.factor]
        first, second = _cells_together(cells.doc, group)
        own, other = np.concatenate([[first, second], [second, first]], axis=1)
        shown = cells.weight
        if pair_weight == "equal":
            worth = 1 / shown[own]
        else:
            worth = shown[other] / (shown[own] + shown[other])
        return cls(
            n_groups=n_groups,
            n_bias=n_bias,
            place_of_factor=place,
            key=(group[own] * n_bias + bias[own]) * n_bias + bias[other],
            cell=own,
            worth=worth,
            clicks=cells.clicks[own],
            impressions=shown[own],
            unit=cells.doc[own],
        )

    def totals(self):
        """Clicks under each factor that count against each other one, of all units.

        Returns
        -------
        totals : ndarray of shape (n_groups, n_bias, n_bias)
        """
        return self._sums(self.worth * self.clicks)

    def mean_worth(self):
        """What a click of each comparison counts, of the same shape; 0 where there is none."""
        shown = self._sums(self.impressions)
        worth = self._sums(self.worth * self.impressions)
        return np.divide(worth, shown, out=np.zeros_like(shown), where=shown > 0)

    def effective_units(self):
        """How many units with equal clicks would carry those of each factor.

        Returns
        -------
        n_units : ndarray of shape (n_groups, n_bias)
        """
        n_factors = self.n_groups * self.n_bias
        first = np.unique(self.cell, return_index=True)[1]
        factor, clicks = self.key[first] // self.n_bias, self.clicks[first]
        total = np.bincount(factor, clicks, minlength=n_factors).astype(float)
        squares = np.bincount(factor, clicks**2, minlength=n_factors).astype(float)
        n_units = np.divide(total**2, squares, out=np.zeros(n_factors), where=squares > 0)
        return n_units.reshape(self.n_groups, self.n_bias)

    def resampled(self, cluster, draws):
        """The totals of resamples, batch by batch.

        Parameters
        ----------
        cluster : ndarray of shape (n_units,), int
        draws : iterable of ndarray of shape (n_clusters,)
            How often each cluster of units was drawn.

        Yields
        ------
        totals : ndarray of shape (n_draws * n_groups, n_bias, n_bias)
        """
        shape = (self.n_groups * self.n_bias**2, int(cluster.max()) + 1)
        entries = (self.worth * self.clicks, (self.key, cluster[self.unit]))
        by_cluster = coo_array(entries, shape).tocsr()
        draws = iter(draws)
        while batch := list(islice(draws, max(1, BATCH // max(shape)))):
            totals = by_cluster @ np.column_stack(batch)
            yield totals.T.reshape(-1, self.n_bias, self.n_bias)

    def _sums(self, values):
        n_bias = self.n_bias
        sums = np.bincount(self.key, values, minlength=self.n_groups * n_bias**2)
        return sums.astype(float, copy=False).reshape(self.n_groups, n_bias, n_bias)


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of a batch of tournaments, as :func:`solve` finds them.

    Parameters
    ----------
    log_examination : ndarray of shape (n_problems, n_bias)
        Relative to the first factor that is compared at all; NaN where nothing links a factor to
        it.
    clicks : ndarray of shape (n_problems, n_bias, n_bias)
        The totals that decided it.
    added : ndarray of shape (n_problems, n_bias, n_bias)
        The part of them that no one clicked.
    first : int
        The factor that the others are relative to.
    """

    log_examination: np.ndarray
    clicks: np.ndarray
    added: np.ndarray
    first: int

    def standard_error(self, comparisons):
        """Standard errors of the curves of a log, one a group.

        From how far the units contradict each other (the sandwich formula); where fewer than 30
        units carry the clicks of a factor, as if clicks were Poisson, which is never less than
        what they warrant.

        Parameters
        ----------
        comparisons : Comparisons
            Of which ``clicks`` is the total.

        Returns
        -------
        standard_error : ndarray of shape (n_groups, n_bias)
        """
        b = np.where(np.isnan(self.log_examination), 0.0, self.log_examination)
        lost = 1 - win_probability(b).ravel()
        log = comparisons
        kept = self.clicks.ravel()[log.key] > 0
        pull = log.worth * lost[log.key] * kept
        guessed = self._noise_of_added(lost)
        of_units = guessed + gradient_noise(log.unit, log.key, pull * log.clicks, b.shape)
        of_clicks = guessed + gradient_noise(log.cell, log.key, pull * log.clicks**0.5, b.shape)
        inverse = np.linalg.inv(curvature(self.clicks, b) + _ties_of_roots(self.clicks))
        n_units = log.effective_units()
        n_units = np.minimum(n_units, n_units[:, [self.first]])
        noise = np.where(
            n_units >= _LEAST_UNITS,
            np.einsum("gij,gjk,gik->gi", inverse, of_units, inverse),
            np.einsum("gij,gjk,gik->gi", inverse, of_clicks, inverse),
        )
        noise[:, self.first] = 0.0  # but for rounding
        return np.where(np.isnan(self.log_examination), np.nan, np.sqrt(np.maximum(noise, 0.0)))

    def _noise_of_added(self, lost):
        """Of half a click of a factor that has none."""
        key = np.flatnonzero(self.added)
        pull = self.added.ravel()[key] / 0.5 * lost[key]
        factor = key // self.clicks.shape[-1]
        return gradient_noise(factor, key, pull * 0.5**0.5, self.clicks.shape[:2])


def solve(totals, method, worth):
    r"""The likeliest examination curves, given who won which comparison.

    .. math::
        P(\text{a click of the pair } k, l \text{ fell on } k) = \frac{o_k}{o_k + o_l}.

    Parameters
    ----------
    totals : ndarray of shape (n_problems, n_bias, n_bias)
        Clicks under each factor that count against each other one.
    method : {"all-pairs", "adjacent-chain", "pivot"}
        Which pairs are compared. Where they form a tree, the answer is a product of ratios.
    worth : ndarray of shape (n_groups, n_bias, n_bias)
        What a click counts in each comparison; problem i is of group ``i % n_groups``.

    Returns
    -------
    curves : Curves
    """
    first = first_compared(worth)
    clicks = np.where(_compared(totals, method, first), totals, 0.0)
    added = _half_clicks(clicks, worth)
    clicks = clicks + added
    component = _components(clicks, "weak")
    b = likeliest(clicks, _ties_of_roots(clicks))
    linked = component == component[:, [first]]
    return Curves(np.where(linked, b - b[:, [first]], np.nan), clicks, added, first)


# Reading --------------------------------------------------------------------------------
def _codes(factors):
    values, bias = np.unique(factors.bias, return_inverse=True)
    if factors.user is None:
        return bias, len(values), np.zeros(len(bias), dtype=np.intp), 1
    group, users = encode(factors.user)
    return bias, len(values), group, len(users)


def _cells_together(unit, group):
    """Pairs of cells of one unit and group; cells are sorted by both."""
    first, second = [], []
    for gap in range(1, len(unit)):
        same = (unit[gap:] == unit[:-gap]) & (group[gap:] == group[:-gap])
        cell = np.flatnonzero(same)
        if not len(cell):
            break
        first.append(cell)
        second.append(cell + gap)
    empty = np.empty(0, dtype=np.intp)
    return np.concatenate([empty, *first]), np.concatenate([empty, *second])


# Solving --------------------------------------------------------------------------------
def first_compared(worth):
    """The first factor that is compared at all: of each problem, or scales would differ."""
    return int((worth > 0).any(axis=(0, 2)).argmax())


def _compared(totals, method, first):
    """Which comparisons a method reads."""
    n_bias = totals.shape[-1]
    place = np.arange(n_bias)
    if method == "all-pairs":
        return True
    if method == "pivot":
        return (place[:, None] == first) | (place == first)
    # A factor without a click would break the chain: it hangs on it by its side.
    clicked = totals.sum(axis=2) > 0
    last = np.maximum.accumulate(np.where(clicked, place, -1), axis=1)
    before = np.concatenate([np.full((len(totals), 1), -1), last[:, :-1]], axis=1)
    before = np.where(before < 0, clicked.argmax(axis=1)[:, None], before)
    link = before[:, :, None] == place
    return link | link.transpose(0, 2, 1)


def _half_clicks(clicks, worth):
    """Half a click a factor, where the likeliest ratio to others would be 0 or infinite.

    That is where one side was never clicked and no detour bounds the ratio (Ford 1957); what
    clicks bound is left alone. The half falls where the other sides were clicked.
    """
    added = np.zeros_like(clicks)
    other = clicks.transpose(0, 2, 1)
    doubtful = np.flatnonzero(((clicks == 0) & (other > 0)).any(axis=(1, 2)))
    if len(doubtful):
        component = _components(clicks[doubtful], "strong")
        apart = component[:, :, None] != component[:, None, :]
        zero = apart & (clicks[doubtful] == 0) & (other[doubtful] > 0)
        share = np.where(zero, other[doubtful], 0.0)
        share /= np.maximum(share.sum(axis=2, keepdims=True), TINY)
        added[doubtful] = 0.5 * share * worth[doubtful % len(worth)]
    return added


def _components(clicks, connection):
    """Component of each factor of each problem."""
    problem, factor, other = np.nonzero(clicks)
    n_bias = clicks.shape[-1]
    size = len(clicks) * n_bias
    edges = (np.ones(len(problem)), (problem * n_bias + factor, problem * n_bias + other))
    labels = connected_components(coo_array(edges, (size, size)), connection=connection)[1]
    return labels.reshape(len(clicks), n_bias)


def likeliest(clicks, precision, center=0.0, start=None):
    """Curves of a batch of tournaments, by Newton's method.

    Parameters
    ----------
    clicks : ndarray of shape (n_problems, n_bias, n_bias)
        Clicks under each factor that count against each other one.
    precision : ndarray of shape (n_bias, n_bias) or (n_problems, n_bias, n_bias)
        How tightly the logarithms of examination are tied to their centers; it must tie at least
        one factor of each component.
    center : ndarray of shape (n_problems, n_bias), default=0
    start : ndarray of shape (n_problems, n_bias), default=None
        By default the center.

    Returns
    -------
    log_examination : ndarray of shape (n_problems, n_bias)
    """
    precision = np.broadcast_to(precision, clicks.shape)
    center = np.broadcast_to(center, clicks.shape[:2])
    b = np.array(center if start is None else start, dtype=float)
    running = np.arange(len(clicks))
    for _ in range(_MAX_STEPS):
        won, now, tie = clicks[running], b[running], precision[running]
        both = won + won.transpose(0, 2, 1)
        gradient = (won - both * win_probability(now)).sum(axis=2)
        gradient -= (tie @ (now - center[running])[:, :, None])[:, :, 0]
        step = np.linalg.solve(curvature(won, now) + tie, gradient[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1)
        b[running] += step * np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, TINY))[:, None]
        running = running[longest > _TOL]
        if not len(running):
            break
    return b


def win_probability(b):
    """P(a click of a pair fell on the first of the two), of shape (n_problems, n_bias, n_bias)."""
    return expit(b[:, :, None] - b[:, None, :])


def curvature(clicks, b):
    """Laplacian of the graph of factors, weighted by the information in each comparison."""
    win = win_probability(b)
    weight = (clicks + clicks.transpose(0, 2, 1)) * win * win.transpose(0, 2, 1)
    laplacian = -weight
    place = np.arange(clicks.shape[-1])
    laplacian[:, place, place] += weight.sum(axis=2)
    return laplacian


def _ties_of_roots(clicks):
    """Ties that hold the first factor of each component.

    Gradients sum to 0 within a component: however tight the tie, the root does not pull.
    """
    component = _components(clicks, "weak").ravel()
    roots = np.zeros(len(component))
    roots[np.unique(component, return_index=True)[1]] = 1.0
    largest = clicks.sum(axis=2).max(axis=1, keepdims=True)
    roots = roots.reshape(clicks.shape[:2]) * np.where(largest > 0, largest, 1.0)
    return roots[:, :, None] * np.eye(clicks.shape[-1])


def gradient_noise(source, key, size, shape):
    """Covariance of the gradients of shape ``shape``, of sources that move them independently."""
    n_groups, n_bias = shape
    factor, other = np.divmod(key, n_bias)
    group = factor // n_bias
    # A source of two groups is two, or the blocks of groups would mix.
    source = np.unique(source * n_groups + group, return_inverse=True)[1]
    rows = np.concatenate([source, source])
    columns = np.concatenate([factor, group * n_bias + other])
    n_sources = int(source.max(initial=-1)) + 1
    moves = coo_array(
        (np.concatenate([size, -size]), (rows, columns)), (n_sources, n_groups * n_bias)
    ).tocsr()
    noise = (moves.T @ moves).tocoo()
    group, row = np.divmod(noise.row, n_bias)
    covariance = np.zeros((n_groups, n_bias, n_bias))
    covariance[group, row, noise.col % n_bias] = noise.data
    return covariance
