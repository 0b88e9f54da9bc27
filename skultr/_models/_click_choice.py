"""Where the clicks of a group fell, given how many there were: P(row i) = softmax(logits)_i.

The number of clicks of a group drops out, and with it whatever its rows share. Where groups are
lists, with logits s + log o, scores of any scale, also of rankers that predict no clicks, can be
compared by this likelihood. Where they are documents under several bias factors, with logits
log n + log o, it determines examination whatever relevance is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from .._base._typing import Bools, Floats, Ints
from .._log._segments import TINY
from ._solve import Eliminated

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Bound on log examination ratios, whose estimate for a factor without clicks is minus infinity.
_MAX_LOG_RATIO = 12.0


@dataclass(frozen=True, eq=False)
class ClickChoice:
    """Conditional likelihood of the clicks of each list, or other group, given their number.

    Only lists with a click have a likelihood; the arguments of all methods have one value for
    each row of the log that the lists were made from, if nothing else is said.
    """

    rows: Ints | slice  # (n_used,), those of the log in a list with a click, sorted by list
    list_: Ints  # (n_used,), from 0 without a gap
    starts: Ints  # (n_lists,), first of the used rows of each list
    clicks: Floats  # (n_used,), weighted
    total: Floats  # (n_lists,), clicks of each list
    #: (n_used,), added to all logits: log exposure, see :meth:`of_log`.
    offset: Floats | None = None

    @classmethod
    def from_rows(cls, list_: Ints, clicks: Floats, shown: Bools | None = None) -> ClickChoice:
        """The clicked lists among rows that were ``shown``, by default all of them."""
        counted = np.bincount(list_, weights=clicks) > 0
        used = counted[list_] if shown is None else counted[list_] & shown
        rows = np.flatnonzero(used)
        rows = rows[np.argsort(list_[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(list_[rows], prepend=-1))
        sizes = np.diff(np.append(starts, len(rows)))
        clicks = np.asarray(clicks, dtype=float)[rows]
        total = np.add.reduceat(clicks, starts) if len(starts) else np.zeros(0)
        return cls(rows, np.repeat(np.arange(len(starts)), sizes), starts, clicks, total)

    @classmethod
    def of_log(cls, log: ClickLog) -> ClickChoice:
        """The clicked lists of a log, with pages of one row joined, and log exposure as offset."""
        log = log.comparable()
        choice = cls.from_rows(log.list_, log.clicks)
        return replace(choice, offset=np.log(np.maximum(log.weight[choice.rows], TINY)))

    @property
    def n_clicks(self) -> float:
        """(Weighted) number of clicks."""
        return float(self.total.sum())

    def list_losses(self, logits: Floats) -> Floats:
        """Negative log-likelihood of the clicks of each list, shape (n_lists,), in nats."""
        log_shares = self.log_shares(logits[self.rows])
        return -np.add.reduceat(self.clicks * log_shares, self.starts)

    def loss(self, logits: Floats) -> float:
        """Mean negative log-likelihood per click, in nats."""
        return float(self.list_losses(logits).sum() / self.n_clicks)

    def shares(self, logits: Floats) -> Floats:
        """Probability that a click of the list falls on each used row, shape (n_used,)."""
        return np.exp(self.log_shares(logits[self.rows]))

    def expected(self, shares: Floats) -> Floats:
        """Clicks that shares of used rows lead to expect, shape (n_used,)."""
        return self.total[self.list_] * shares

    def information(self, shares: Floats, code: Ints, n_codes: int) -> Eliminated:
        """Information about one effect per ``code`` of the used rows on their logits.

        A list has each code at most once, or not all is known of the diagonal.
        """
        offsets = np.append(self.starts, len(code))
        mean = csr_array((shares, code, offsets), (len(self.total), n_codes))
        own = np.bincount(code, self.expected(shares), n_codes)
        return Eliminated(own, mean, self.total)

    def best_weights(
        self,
        scores: NDArray[np.float64],  # (n_rows, n_scores) or (n_different, n_scores)
        log_examination: Floats,  # (n_rows,)
        *,
        center: Floats | float = 0.0,  # w_0
        strength: float = 0.0,  # λ, in units of the log-likelihood of all clicks
        place: Ints | None = None,  # (n_used,), index of different scores; by default the rows
    ) -> Floats:  # (n_scores,)
        r"""Non-negative weights of several scores that make the clicks most likely.

        Minimises :math:`-\sum_i c_i \log \mathrm{softmax}(\sum_m w_m s_m + \log o)_i + \tfrac12
        \lambda \lVert w - w_0 \rVert^2`, which is convex.
        """
        offset = log_examination[self.rows]
        if place is None:
            scores, place = scores[self.rows], slice(None)
        center = np.broadcast_to(np.asarray(center, dtype=float), (scores.shape[1],))
        scale = max(self.n_clicks, TINY)

        def objective(weights):
            log_shares = self.log_shares((scores @ weights)[place] + offset)
            surplus = self.expected(np.exp(log_shares)) - self.clicks
            if not isinstance(place, slice):
                surplus = np.bincount(place, surplus, len(scores))
            away = weights - center
            loss = -(self.clicks @ log_shares) + 0.5 * strength * (away @ away)
            return loss / scale, (scores.T @ surplus + strength * away) / scale

        start = np.maximum(center, 0.5 / scores.shape[1])
        bounds = [(0.0, None)] * scores.shape[1]
        return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x

    def likeliest_examination(
        self,
        relevance: Floats,  # (n_rows,), g
        factor: Ints,  # (n_rows,)
        start: Floats,  # (n_factors,)
        weight: float | None = 1.0,  # w; None estimates it too, at least 0
    ) -> Floats:  # (n_factors,)
        r"""Maximum-likelihood log examination by bias factor, given relevance.

        Maximises :math:`\sum_i c_i \log \mathrm{softmax}(w g + h)_i` in :math:`h`, which
        is determined up to a constant, between -12 and 12; NaN for a factor that occurs in no
        list with a click.
        """
        if not len(self.clicks):
            return np.full(len(start), np.nan)
        g, factor, n = relevance[self.rows], factor[self.rows], len(start)
        # The scale of the scores does not matter, only that they do not overflow.
        g = g - np.maximum.reduceat(g, self.starts)[self.list_]

        def objective(point):
            scaled = g * (point[n] if weight is None else weight)
            log_shares = self.log_shares(scaled + point[:n][factor])
            surplus = self.expected(np.exp(log_shares)) - self.clicks
            gradient = np.bincount(factor, surplus, minlength=n)
            if weight is None:
                gradient = np.append(gradient, surplus @ g)
            return -(self.clicks @ log_shares) / self.n_clicks, gradient / self.n_clicks

        bounds = [(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)] * n + [(0.0, None)] * (weight is None)
        start = np.append(start, [1.0] * (weight is None))
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:n]
        return np.where(np.bincount(factor, minlength=n) > 0, found, np.nan)

    def log_shares(self, logits: Floats) -> Floats:
        """Log probability that a click of the list falls on each used row, given their logits."""
        logits = logits if self.offset is None else logits + self.offset
        highest = np.maximum.reduceat(logits, self.starts)[self.list_]
        logits = logits - highest
        return logits - np.log(np.add.reduceat(np.exp(logits), self.starts))[self.list_]
