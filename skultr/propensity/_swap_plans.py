"""Which swaps and shuffles tell examination for the fewest clicks."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._typing import Floats
from ..simulation._policies import SHUFFLE, Layout
from ._swap_model import SwapModel

#: Least cost of a page of the experiment, as a share of its clicks: short experiments win ties.
_LEAST_COST = 1e-3
#: Keeps the information regular where nothing is compared.
_RIDGE = 1e-9
#: Smaller shares are left out in the next round of the solver.
_LEAST_SHARE = 0.005
#: Rounds of the solver; it may exceed the sessions by this factor.
_ROUNDS, _CLOSE = 6, 1.02


def layouts(n_positions: int) -> list[Layout]:
    """Swaps of all pairs of one distance (1, 2, 3, 5, 8, ...) that fit on one page; shuffle."""
    found, gap, following = [], 1, 2
    while gap < n_positions:
        for phase in (0, gap):
            upper = [i for i in range(phase, n_positions - gap) if (i - phase) // gap % 2 == 0]
            found.append([(i, i + gap) for i in upper])
        gap, following = following, gap + following
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


def sessions_for(model: SwapModel, moves: Floats, half_width: float) -> float:
    """Sessions after which all positions are known within ``half_width``."""
    sessions = model.sessions
    for _ in range(25):
        reached = model.precision(moves, sessions).promised.max()
        if abs(reached / half_width - 1) < 0.002 or not 1 <= sessions < 1e12:
            break
        sessions *= (reached / half_width) ** 2
    return sessions


def cheapest_shares(
    model: SwapModel, served: list[Layout], half_width: float, sessions: float
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
        reached = model.precision(moves_of(x, served, K), sessions).promised[1:]
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
        x = np.where(x < _LEAST_SHARE, 1e-9, x) / max(x.sum(), 1)
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
