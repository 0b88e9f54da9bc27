"""Which swaps would tell examination: clicks by relevance and examination, and plans of swaps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from .._base._typing import Floats, Ints
from .._log._segments import TINY
from ..exceptions import NotIdentifiableError
from ..simulation._policies import SHUFFLE, Layout
from ._harvesting import InterventionHarvesting

#: Prior of log examination, as a share of the fall of log click rates: mean, standard deviation.
_PRIOR = 2 / 3, 1 / 6
#: Quantile of a 95 % interval.
_QUANTILE = 1.96
#: Standard deviations of the reported half-width between the expected and the promised one.
_ASSURANCE = 2.5
#: Below so many effective documents errors are those of Poisson clicks, as in ``Curves``.
_LEAST_DOCS = 30


class Precision(NamedTuple):
    """Expected half-width of each position, and the one that 95 % of experiments reach."""

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
        rate = clicks.sum(axis=0) / shown.sum(axis=0)
        if given is None:
            examination, error, source = _estimated(shown, clicks, query)
        else:
            examination, error = given, np.zeros(len(given))
            source = "Examination was given."
        # Relevance: gamma prior around the mean at the positions where a document was shown.
        mean = np.append(rate / examination, (rate / examination)[-1])
        usual = np.column_stack([shown, shown.sum(axis=1) == 0]) @ mean
        usual /= np.maximum(shown.sum(axis=1), 1)
        clicked, due = clicks.sum(axis=1), shown @ examination * usual
        spread = ((clicked - due) ** 2 - due).sum() / (due**2).sum()
        shape = 1 / np.clip(spread, 1e-3, 10)
        relevance = usual * (clicked + shape) / (due + shape)
        return cls(
            query=query,
            pages=pages,
            shown=shown,
            relevance=np.minimum(relevance, 1),
            doubt=relevance * usual / (due + shape),
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
        shown = self.shown + self.shown @ moves * (sessions / self.sessions)
        o, moved = self.examination, (shown > 0).sum(axis=1) > 1
        n, relevance = shown[moved], self.relevance[moved, None]
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
        # Relative variance of the reported half-width: that of the sandwich, and that of
        # examination, whose estimates from the log and from the whole share the log's information.
        spread = (by_doc**2).sum(axis=0) / np.maximum(variance**2, TINY) / 2 * enough
        variance = np.where(enough, variance, poisson)
        spread += np.abs(self.error**2 - variance) / 2
        expected = _QUANTILE * o * np.sqrt(variance)
        return Precision(expected, expected * (1 + _ASSURANCE * np.sqrt(spread)))


def _estimated(shown, clicks, query):
    """Log and prior combined: examination, the error of its logarithm, and words."""
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    fall = np.log(rate / rate[0])
    precision = np.maximum(np.abs(fall) * _PRIOR[1], 0.01) ** -2.0
    found, error = _harvested(shown, clicks, query)
    told = error**-2.0
    share = told / (told + precision)
    source = "Examination is that of the log."
    if (vague := np.flatnonzero(share[1:] < 0.5) + 2).size:
        some = ", ".join(map(str, vague[:5])) + ", ..." * (len(vague) > 5)
        source = (
            f"The log tells little of examination at the positions {some}: {_PRIOR[0]:.0%} of the "
            "fall of their click rates (in logarithms) is taken for examination. Plan again from "
            "the first days of the experiment."
        )
    examination = np.exp(share * found + (1 - share) * _PRIOR[0] * fall)
    return examination, np.append(0.0, (told + precision)[1:] ** -0.5), source


def _harvested(shown, clicks, query):
    """Log examination from documents at several positions, and its error; infinite without."""
    pair, place = np.nonzero(shown)
    counted = pd.DataFrame({"qid": query[pair], "doc": pair, "position": place + 1})
    counted["session"], counted["impressions"] = np.arange(len(pair)), shown[pair, place]
    estimator, positions = InterventionHarvesting(n_bootstrap=0), np.arange(1, shown.shape[1] + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the prior stands in for what it warns of
            estimator.fit(counted, clicks[pair, place] / shown[pair, place])
    except NotIdentifiableError:
        return np.zeros(len(positions)), np.full(len(positions), np.inf)
    table = estimator.examination_.reindex(positions)
    known = table["examination"].notna() & table["examination"].notna().iloc[0]
    error = np.where(known, np.maximum(table["standard_error"], 1e-3), np.inf)
    return np.where(known, np.log(table["examination"]), 0.0), error


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
