"""How precisely swaps tell examination, and which of them lose the fewest clicks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from .._log._segments import TINY
from .._typing import Floats
from ._log_model import LogModel

__all__ = [
    "SHUFFLE",
    "Layout",
    "Precision",
    "cheapest_shares",
    "half_widths",
    "layouts",
    "moves_of",
    "sessions_for",
]

#: Disjoint pairs of positions (from 0), each of which is swapped with probability 1/2.
Layout = list[tuple[int, int]]
#: All positions in random order.
SHUFFLE: Layout = []
#: Quantile of a 95 % interval.
_QUANTILE = 1.96
#: Standard deviations of the reported half-width that a plan adds to the expected one.
_ASSURANCE = 2.5
#: Below so many effective documents errors are those of Poisson clicks, as in ``Curves``.
_LEAST_DOCS = 30
#: Least cost of a page of the experiment, as a share of its clicks: short experiments win ties.
_LEAST_COST = 1e-3
#: Keeps the information regular where nothing is compared.
_RIDGE = 1e-9
#: Rounds of the solver; it may exceed the sessions by this factor.
_ROUNDS, _CLOSE = 6, 1.02


class Precision(NamedTuple):
    """Expected half-width of each position, and the one that 95 % of experiments reach."""

    expected: Floats
    promised: Floats


def half_widths(model: LogModel, shown: Floats) -> Precision:
    r"""Half-widths of the 95 % intervals that ``InterventionHarvesting`` will report.

    Its covariance is the sandwich :math:`L^{-1} (\sum_d u_d u_d^\top) L^{-1}` over documents,
    here with the expected clicks of the impressions ``shown``.
    """
    o, moved = model.examination, (shown > 0).sum(axis=1) > 1
    if not moved.any():
        return Precision(*np.full((2, len(o)), np.inf))
    n, relevance = shown[moved], model.relevance[moved, None]
    clicks = n * relevance * o
    lost = o / (o + o[:, None])  # P(a click of the pair k, l was at l)
    pulls = []  # of a click at k, from each other position
    for k in range(len(o)):
        weight = n / np.maximum(n + n[:, [k]], TINY) * (n[:, [k]] > 0)
        weight[:, k] = 0
        pulls.append(weight * lost[k])
    edge = np.array([clicks[:, k] @ pull for k, pull in enumerate(pulls)]) * lost.T
    edge += edge.T
    laplacian = (np.diag(edge.sum(axis=1)) - edge)[1:, 1:]
    if np.linalg.matrix_rank(laplacian) < len(laplacian):
        return Precision(*np.full((2, len(o)), np.inf))
    inverse = np.zeros_like(edge)
    inverse[1:, 1:] = np.linalg.inv(laplacian)
    by_doc, poisson = np.zeros_like(n), np.zeros(len(o))
    for k, pull in enumerate(pulls):
        influence = (pull.sum(axis=1, keepdims=True) * inverse[k] - pull @ inverse) ** 2
        by_doc += clicks[:, [k]] * (1 - np.minimum(relevance * o[k], 1)) * influence
        poisson += clicks[:, k] @ influence
    variance, n_docs = by_doc.sum(axis=0), clicks.sum(axis=0) ** 2 / (clicks**2).sum(axis=0)
    enough = np.minimum(n_docs, n_docs[0]) >= _LEAST_DOCS
    # Relative variance of the reported half-width: that of the sandwich, and that of examination,
    # whose estimates from the log and from the whole share the information of the log.
    spread = (by_doc**2).sum(axis=0) / np.maximum(variance**2, TINY) / 2 * enough
    variance = np.where(enough, variance, poisson)
    spread += np.abs(model.error**2 - variance) / 2
    expected = _QUANTILE * o * np.sqrt(variance)
    return Precision(expected, expected * (1 + _ASSURANCE * np.sqrt(spread)))


def sessions_for(model: LogModel, moves: Floats, half_width: float) -> float:
    """Sessions after which all positions are known within ``half_width``."""
    moved, sessions = model.shown @ moves / model.sessions, model.sessions
    for _ in range(25):
        reached = half_widths(model, model.shown + sessions * moved).promised.max()
        if abs(reached / half_width - 1) < 0.002 or not 1 <= sessions < 1e12:
            break
        sessions *= (reached / half_width) ** 2
    return sessions


def layouts(n_positions: int) -> list[Layout]:
    """Swaps of all pairs of one distance that fit on one page, and the shuffle."""
    found, gaps = [], [1, 2]
    while sum(gaps[-2:]) < n_positions:
        gaps.append(sum(gaps[-2:]))
    for gap in gaps:
        for phase in (0, gap):
            upper = [i for i in range(phase, n_positions - gap) if (i - phase) // gap % 2 == 0]
            found.append([(i, i + gap) for i in upper])
    return [pairs for pairs in found if pairs] + [SHUFFLE]


def moves_of(shares: Floats, served: list[Layout], n_positions: int) -> Floats:
    """P(from, to), if the share ``shares[l]`` of all pages has the layout l."""
    moves = np.eye(n_positions)
    for share, pairs in zip(shares, served, strict=True):
        for i, j in pairs:
            moves[[i, j, i, j], [i, j, j, i]] += np.array([-1, -1, 1, 1]) * share / 2
        if pairs == SHUFFLE:
            moves += share * (1 / n_positions - np.eye(n_positions))
    return moves


def cheapest_shares(
    model: LogModel, served: list[Layout], half_width: float, sessions: float
) -> Floats | None:
    """Shares of layouts that lose the fewest clicks in so many sessions; None if none suffice.

    What swaps tell is linear in their number as long as each is read alone, and the variances are
    convex in it. How much less variance the estimator has, which reads all swaps and the log
    together, is found from one solution to the next.
    """
    K = len(model.examination)
    info, cost = _information_and_cost(model, served)
    info *= sessions / model.sessions

    def variance(x):
        inverse = np.linalg.inv(np.tensordot(x, info, axes=1) + _RIDGE * np.eye(K - 1))
        return np.diag(inverse), -np.einsum("ka,mab,bk->km", inverse, info, inverse)

    x, best, least = np.full(len(cost), 1 / len(served)), None, np.inf
    for _ in range(_ROUNDS):
        moved = model.shown @ moves_of(x, served, K) * (sessions / model.sessions)
        reached = half_widths(model, model.shown + moved).promised[1:]
        limit = variance(x)[0] * (half_width / reached) ** 2
        within = {
            "type": "ineq",
            "fun": lambda x, limit=limit: 1 - variance(x)[0] / limit,
            "jac": lambda x, limit=limit: -variance(x)[1] / limit[:, None],
        }
        once = {"type": "ineq", "fun": lambda x: 1 - x.sum(), "jac": lambda x: -np.ones(len(x))}
        found = minimize(
            lambda x: cost @ x,
            x,
            jac=lambda x: cost,
            bounds=[(0, 1)] * len(cost),
            constraints=[within, once],
            method="SLSQP",
        )
        x = np.clip(found.x, 0, 1)
        x = np.where(x < 0.005, 1e-9, x) / max(x.sum(), 1)
        needed = sessions_for(model, moves_of(x, served, K), half_width)
        if needed <= _CLOSE * sessions and cost @ x * needed < least:
            best, least = x, cost @ x * needed
    return best


def _information_and_cost(model, served):
    """Of all pages of the log with each layout: information on log examination, clicks lost."""
    o, K = model.examination, len(model.examination)
    at = model.relevance @ model.shown
    info = np.zeros((len(served), K, K))
    for of, pairs in zip(info, served, strict=True):
        for i, j in pairs:
            edge = (at[i] + at[j]) / 2 * o[i] * o[j] / (o[i] + o[j])
            of[[i, j, i, j], [i, j, j, i]] += np.array([1, 1, -1, -1]) * edge
        if pairs == SHUFFLE:
            of += at.mean() * (np.diag(o) - np.outer(o, o) / o.sum())
    cost = np.array([at @ (np.eye(K) - moves_of([1.0], [of], K)) @ o for of in served])
    return info[:, 1:, 1:], cost / (at @ o) + _LEAST_COST
