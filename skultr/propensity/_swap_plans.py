"""Plans of swaps of documents, which would determine examination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from .._base._typing import Floats, Ints
from .._log._segments import TINY
from ..simulation._policies import SHUFFLE, Layout
from ._harvesting import harvested
from ._thresholds import LEAST_CLUSTERS


class Precision(NamedTuple):
    """Expected half-width of each position, and those that 95 % of experiments reach.

    The largest of the latter is the 95 % quantile of the largest half-width of simulated
    experiments; the others are as many standard deviations above the expected ones.
    """

    expected: Floats
    promised: Floats


@dataclass(frozen=True, eq=False)
class SwapModel:
    """P(click) = relevance of the document of a query (pair) x examination of the position."""

    query: Ints  # (n_pairs,)
    pages: Floats  # (n_queries,)
    shown: Floats  # (n_pairs, n_positions)
    relevance: Floats  # (n_pairs,)
    doubt: Floats  # (n_pairs,)
    examination: Floats  # (n_positions,)
    error: Floats  # (n_positions,)
    source: str

    @classmethod
    def of_counts(cls, query, pages, shown, clicks, given=None):
        """The model of counts by pair and position, and of examination if it is ``given``."""
        if given is None:
            examination, error, source = _estimated(shown, clicks, query)
        else:
            examination = given
            error = np.zeros(len(given))
            source = "Examination was given."
        usual = _usual_relevance(shown, clicks, examination)
        # Clicks that a document of usual relevance would have got, and their variance.
        due = shown @ examination * usual
        noise = due - shown @ examination**2 * usual**2
        clicked = clicks.sum(axis=1)
        # How far relevance scatters around the usual one, by moments; documents count as much as
        # they tell. Its inverse is the shape of a gamma prior.
        weight = 1 / np.maximum(noise + due**2 / 2, TINY)
        spread = (weight * ((clicked - due) ** 2 - noise)).sum() / (weight * due**2).sum()
        # Chance may let it vanish or explode where clicks are few.
        shape = 1 / np.clip(spread, 1e-3, 10)
        relevance = usual * (clicked + shape) / (due + shape)
        return cls(
            query=query,
            pages=pages,
            shown=shown,
            relevance=np.minimum(relevance, 1),
            doubt=relevance * usual * (shape + noise) / (due + shape) ** 2,
            examination=examination,
            error=error,
            source=source,
        )

    @property
    def sessions(self) -> float:
        """Pages of the log."""
        return float(self.pages.sum())

    def clicks(self, moves: Floats) -> float:
        """Expected clicks per page if documents of the log had moved with P(from, to)."""
        return float(self.relevance @ self.shown @ moves @ self.examination) / self.sessions

    def precision(self, moves: Floats, sessions: float) -> Precision:
        r"""Half-widths of the 95 % intervals of examination relative to the first position, after
        the log and so many further pages with these moves.

        The covariance is the sandwich :math:`L^{-1} (\sum_d u_d u_d^\top) L^{-1}` over documents,
        as in ``Curves``, here with expected clicks. All half-widths are infinite if these
        impressions do not connect all positions.
        """
        # Impressions of the log, and of pages whose documents moved.
        shown = self.shown + self.shown @ moves * (sessions / self.sessions)
        # Documents that stayed at one position compare nothing.
        moved = (shown > 0).sum(axis=1) > 1
        o = self.examination
        n = shown[moved]
        relevance = self.relevance[moved, None]
        clicks = n * relevance * o
        pulls = _pulls(n, o)
        # L: the Laplacian of the graph of positions, relative to the first.
        laplacian = _laplacian(clicks, pulls, o)[1:, 1:]
        is_finite = np.isfinite(laplacian).all()
        if not is_finite or np.linalg.matrix_rank(laplacian) < len(laplacian):
            unknown = np.full(len(o), np.inf)
            return Precision(unknown, unknown)
        inverse = np.pad(np.linalg.inv(laplacian), ((1, 0), (1, 0)))
        # Variance by document, of clicks that are 0 or 1, and that of Poisson clicks.
        by_doc = np.zeros_like(n)
        poisson = np.zeros(len(o))
        for k, pull in enumerate(pulls):
            influence = (pull.sum(axis=1, keepdims=True) * inverse[k] - pull @ inverse) ** 2
            rate = np.minimum(relevance * o[k], 1)
            by_doc += clicks[:, [k]] * (1 - rate) * influence
            poisson += clicks[:, k] @ influence
        variance = by_doc.sum(axis=0)
        # Few documents tell nothing about how much they differ: then clicks are Poisson.
        n_docs = clicks.sum(axis=0) ** 2 / (clicks**2).sum(axis=0)
        enough = np.minimum(n_docs, n_docs[0]) >= LEAST_CLUSTERS.value
        share_of_doc = np.where(enough, by_doc / np.maximum(variance, TINY), 0.0)
        variance = np.where(enough, variance, poisson)
        return self._promise(variance, share_of_doc, inverse)

    def _promise(self, variance, share_of_doc, inverse):
        """Half-widths of these variances of log examination, and what 95 % of experiments reach.

        The reported half-width varies with the sandwich, and with examination, whose estimates
        from the log and from the whole share the log's information: in proportion by chance, as
        the root by what the log does not know, because more clicks tell more.
        """
        o = self.examination
        expected = 1.96 * o * np.sqrt(variance)
        # How far a half-width moves with one standard error of examination.
        error_of_log = self.error**2
        between = np.abs(error_of_log - variance)
        change = np.sqrt(between / np.maximum(np.diag(inverse), TINY))
        unknown_to_log = np.clip(1 - variance / np.maximum(error_of_log, TINY), 0, 1)
        change *= 1 - unknown_to_log / 2
        # Half of the sandwich's: a half-width is a root of its variance.
        by_sandwich = share_of_doc.T @ share_of_doc / 2
        by_examination = inverse * np.outer(change, change)
        covariance = by_sandwich + by_examination
        # Simulated experiments: normal deviations of all half-widths together.
        root = np.linalg.cholesky(covariance[1:, 1:] + _RIDGE * np.eye(len(o) - 1))
        # A fixed seed, so that equal plans are equal.
        normal = np.random.default_rng(0).standard_normal((1_000, len(root)))
        reported = expected[1:] * (1 + normal @ root.T)
        widest = reported.max(axis=1)
        deviation = expected * np.sqrt(np.diag(covariance))
        # As many deviations above the expected one as the position that comes nearest needs.
        away = (np.quantile(widest, 0.95) - expected[1:]) / deviation[1:]
        return Precision(expected, expected + away.min() * deviation)


def _usual_relevance(shown, clicks, examination):
    """Mean relevance at the positions where each document was shown; at the last, if nowhere."""
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    mean = rate / examination
    mean = np.append(mean, mean[-1])
    impressions = shown.sum(axis=1)
    # A document that was never shown counts once at the place below the last position.
    weight = np.column_stack([shown, impressions == 0])
    return weight @ mean / np.maximum(impressions, 1)


def _pulls(n, examination):
    """By position k: weight of each document's clicks there, against each other position l.

    The weight of a document shown n_k and n_l times is n_l / (n_k + n_l), and P(a click of the
    pair k, l was at l) is o_l / (o_k + o_l).
    """
    lost = examination / (examination + examination[:, None])
    pulls = []
    for k in range(len(examination)):
        # Shares are 0 where the document was never shown at both.
        n_here = n[:, [k]]
        share = n / np.maximum(n + n_here, TINY)
        weight = np.where(n_here > 0, share, 0.0)
        weight[:, k] = 0
        pulls.append(weight * lost[k])
    return pulls


def _laplacian(clicks, pulls, examination):
    """Information of expected clicks on log examination, (n_positions, n_positions)."""
    lost = examination / (examination + examination[:, None])
    pulled = np.array([clicks[:, k] @ pull for k, pull in enumerate(pulls)])
    edge = pulled * lost.T
    edge += edge.T
    return np.diag(edge.sum(axis=1)) - edge


#: Keeps the information regular where nothing is compared.
_RIDGE = 1e-9
#: Prior of log examination, as a share of the fall of log click rates: part of the fall is that
#: of relevance, because production ranks what is relevant first.
_SHARE_OF_FALL = 2 / 3
#: Its standard deviation, as a share of the same fall.
_SPREAD_OF_FALL = 1 / 6


def _estimated(shown, clicks, query):
    """Log and prior combined: examination, the error of its logarithm, and words."""
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    fall = np.log(rate / rate[0])
    # A fall of nothing would make the prior a certainty.
    precision = np.maximum(np.abs(fall) * _SPREAD_OF_FALL, 0.01) ** -2.0
    pair, place = np.nonzero(shown)
    n_shown = shown[pair, place]
    found, error = harvested(
        query[pair], pair, place + 1, n_shown, clicks[pair, place], shown.shape[1]
    )
    # The first position has the error 0.
    told = np.where(np.isnan(found), 0.0, np.maximum(error, 1e-3) ** -2.0)
    both = told + precision
    share = told / both
    by_log = np.nan_to_num(found)
    by_prior = _SHARE_OF_FALL * fall
    examination = np.exp(share * by_log + (1 - share) * by_prior)
    return examination, np.append(0.0, both[1:] ** -0.5), _source_in_words(share)


def _source_in_words(share):
    """Where examination is from, by the share that the log has in what is known of a position."""
    vague = np.flatnonzero(share[1:] < 0.5) + 2
    if not vague.size:
        return "Examination is that of the log."
    more = ", ..." if len(vague) > 5 else ""
    return (
        "The log determines examination only roughly at the positions "
        f"{', '.join(map(str, vague[:5]))}{more}: "
        f"{_SHARE_OF_FALL:.0%} of the fall of their click rates (in logarithms) is taken for "
        "examination. Plan again from the first days of the experiment."
    )


#: Sessions after which more tell nothing.
ENDLESS = 1e12


def layouts(n_positions: int) -> list[Layout]:
    """Swaps of all pairs of one distance (1, 2, 3, 5, 8, ...) that fit on one page; shuffle."""
    found = []
    for gap in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        # A page swaps a position once, so that each distance takes two layouts.
        for first in (0, gap):
            pairs = _disjoint_pairs(first, gap, n_positions)
            if pairs:
                found.append(pairs)
    return [*found, SHUFFLE]


def _disjoint_pairs(first, gap, n_positions):
    """Pairs (i, i + gap) from a first position on: every other block of ``gap`` positions."""
    starts = range(first, n_positions - gap)
    return [(i, i + gap) for i in starts if (i - first) // gap % 2 == 0]


def moves_of(shares: Floats, served: list[Layout], n_positions: int) -> Floats:
    """P(from, to), if the share ``shares[l]`` of all pages has the layout l."""
    moves = np.eye(n_positions)
    for share, pairs in zip(shares, served, strict=True):
        # Half of the pages exchange the two, half leave them.
        for i, j in pairs:
            _tie(moves, i, j, -share / 2)
        # A shuffle moves to any position.
        if pairs == SHUFFLE:
            moves += share * (1 / n_positions - np.eye(n_positions))
    return moves


def _tie(table, i, j, amount):
    """Add an amount to both cells of a pair on the diagonal, and take it off the two beside."""
    table[i, i] += amount
    table[j, j] += amount
    table[i, j] -= amount
    table[j, i] -= amount


def least(reaches: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number between two, to 1 %, that reaches; the higher one if none does."""
    while high > 1.01 * low:
        middle = np.sqrt(low * high)
        if reaches(middle):
            high = middle
        else:
            low = middle
    return float(high)


def sessions_for(model: SwapModel, moves: Floats, half_width: float) -> float:
    """Sessions after which all positions are known within ``half_width``."""
    return least(lambda n: model.precision(moves, n).promised.max() <= half_width, 1, ENDLESS)


def cheapest_shares(
    model: SwapModel, served: list[Layout], half_width: float, sessions: float
) -> Floats | None:
    """Shares of layouts that lose the fewest clicks in so many sessions; None if none suffice.

    What swaps tell is linear in their number as long as each is read alone, and the variances are
    convex in it. How much less variance the estimator has, which reads all swaps and the log
    together, is found from one solution to the next.
    """
    n_positions = len(model.examination)
    info, cost = _information_and_cost(model, served, sessions)
    shares = np.full(len(cost), 1 / len(served))
    best = None
    cheapest = np.inf
    # Seven rounds: later ones find no cheaper shares. They need not agree, because the best
    # shares of any round are returned, by their precision and not by the solver's.
    for _ in range(7):
        moves = moves_of(shares, served, n_positions)
        reached = model.precision(moves, sessions).promised[1:]
        # Sessions that these shares need, relative to those that there are, about; 2 % more than
        # there are is as near as the approximation is.
        needed = (reached.max() / half_width) ** 2
        if needed <= 1.02 and cost @ shares * needed < cheapest:
            best = shares
            cheapest = cost @ shares * needed
        # How much smaller variance must get, by what the estimator reached.
        limit = _variance(shares, info) * (half_width / reached) ** 2
        shares = _cheapest_within(limit, info, cost, shares)
    return best


def _cheapest_within(limit, info, cost, start):
    """Shares of least cost whose variances are within a limit, and that add up to at most 1."""

    # SciPy keeps what these return at 0 or above.
    def precision_left(shares):
        return 1 - _variance(shares, info) / limit

    def slope_of_precision(shares):
        return -_slope_of_variance(shares, info) / limit[:, None]

    def pages_left(shares):
        return 1 - shares.sum()

    def slope_of_pages(shares):
        return -np.ones(len(shares))

    constraints = [
        {"type": "ineq", "fun": precision_left, "jac": slope_of_precision},
        {"type": "ineq", "fun": pages_left, "jac": slope_of_pages},
    ]
    bounds = [(0, 1)] * len(cost)
    # Where it stops early, the shares are judged by the caller all the same.
    found = minimize(
        lambda shares: cost @ shares,
        start,
        jac=lambda shares: cost,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
    )
    shares = np.clip(found.x, 0, 1)
    # Layouts of hardly any pages are left out in the next round; 0 would be no start for it.
    kept = np.where(shares < 0.005, 1e-9, shares)
    return kept / max(shares.sum(), 1)


def _variance(shares, info):
    """Variance of log examination at each position but the first."""
    return np.diag(_covariance(shares, info))


def _slope_of_variance(shares, info):
    """Its derivative by the share of each layout, (n_positions - 1, n_layouts)."""
    covariance = _covariance(shares, info)
    return -np.einsum("ka,mab,bk->km", covariance, info, covariance)


def _covariance(shares, info):
    information = np.tensordot(shares, info, axes=1)
    return np.linalg.inv(information + _RIDGE * np.eye(len(information)))


def _information_and_cost(model, served, sessions):
    """Information on log examination from so many pages of each layout, and the clicks lost."""
    o = model.examination
    n_positions = len(o)
    # Expected relevance of what stands at each position, over all these pages.
    at = model.relevance @ model.shown * (sessions / model.sessions)
    info = np.zeros((len(served), n_positions, n_positions))
    lost = []
    for each, pairs in zip(info, served, strict=True):
        for i, j in pairs:
            edge = (at[i] + at[j]) / 2 * o[i] * o[j] / (o[i] + o[j])
            _tie(each, i, j, edge)
        if pairs == SHUFFLE:
            each += at.mean() * (np.diag(o) - np.outer(o, o) / o.sum())
        stay_or_move = np.eye(n_positions) - moves_of([1.0], [pairs], n_positions)
        lost.append(at @ stay_or_move @ o)
    # Each page costs a little in itself, so that short experiments win ties.
    cost = np.array(lost) / (at @ o) + 1e-3
    return info[:, 1:, 1:], cost
