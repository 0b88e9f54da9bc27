"""Click rates of few rows by bias factors: maximum-likelihood fits of a given rank, residuals.

Two tables define a likelihood of the clicks of a log, given a matrix q of click rates.
:class:`RateTable` compares rows between documents, :class:`WithinDocuments` compares bias factors
within documents. Both give fits and tests the same three things: the score, the information, and
the contribution of each independent cluster of the log to the score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import lstsq
from scipy.special import xlog1py, xlogy

from .._base._typing import Floats
from .._models._solve import GroupedLogit, maximise, warn_unless_converged

#: Clicks that the prior adds to each cell: they keep rates above 0 and set those of empty cells.
_PRIOR = 0.5
#: Probabilities stay below 1 by at least this much.
_MARGIN = 1e-9
#: Longest step of a logarithm for which the quadratic approximation is used.
_LONGEST = 2.0
#: Share of the mean information that is added to the diagonal, which makes it invertible.
_HOLD = 1e-7
#: Fits end where a step is expected to gain less than half of this in log-likelihood.
_TOL = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class _Cells:
    """Clicks and impressions of a log, each in a cell of a matrix of rates."""

    cell: np.ndarray  # (n_cells,), row (or group) * n_factors + factor
    clicks: np.ndarray  # (n_cells,)
    weight: np.ndarray  # (n_cells,)
    cluster: np.ndarray | None  # by cell of the log, or by unit
    shape: tuple  # n_rows (or n_groups), n_factors
    center: np.ndarray | None = None  # (n_rows, n_factors)

    @cached_property
    def sums(self) -> list[Floats]:
        """Clicks and impressions, each of shape (n_rows, n_factors)."""
        size = self.shape[0] * self.shape[1]
        return [
            np.bincount(self.cell, values, size).reshape(self.shape)
            for values in (self.clicks, self.weight)
        ]


@dataclass(frozen=True, eq=False, kw_only=True)
class RateTable(_Cells):
    """Clicks and impressions by row and bias factor, as independent binomials."""

    def score(self, rate: Floats) -> tuple[float, Floats | None, Floats | None]:
        """Log-likelihood of a matrix of rates; its gradient and information in the log rates.

        For c clicks in n impressions of a cell with rate q and center m, each cell contributes

            value        c log q + (n - c) log(1 - q) + (log q - q / m) / 2
            gradient     (c - n q) / (1 - q) + (1 - q / m) / 2
            information  n q / (1 - q) + q / (2 m)
        """
        if not ((rate > 0) & (rate < 1 - _MARGIN)).all():
            return -np.inf, None, None
        clicks, weight = self.sums
        prior = _PRIOR * rate / self.center
        value = (xlogy(clicks, rate) + xlog1py(weight - clicks, -rate)).sum()
        value += (_PRIOR * np.log(rate) - prior).sum()
        gradient = (clicks - weight * rate) / (1 - rate) + _PRIOR - prior
        information = weight * rate / (1 - rate) + prior
        return value, gradient, information[:, :, None] * np.eye(self.shape[1])

    def saturated(self) -> Floats:
        """Maximum-likelihood matrix of rates of any rank."""
        clicks, weight = self.sums
        prior = _PRIOR / self.center
        # The gradient is 0 at the smaller root of a quadratic equation.
        clicks, missed = clicks + _PRIOR, np.maximum(weight - clicks, 0.0)
        root = np.sqrt((clicks - prior) ** 2 + missed * (2 * (clicks + prior) + missed))
        return 2 * clicks / (clicks + missed + prior + root)

    def contributions(self, rate: Floats) -> sparse.csr_array:
        """Gradient of the log-likelihood by cluster, shape (n_clusters, n_rows * n_factors)."""
        p = rate.ravel()[self.cell]
        residual = (self.clicks - self.weight * p) / (1 - p)
        cluster = self.cluster
        if cluster is None:
            cluster = np.arange(len(p))
            residual = np.sqrt(self.weight * p / (1 - p))
        return sparse.csr_array((residual, (cluster, self.cell)), (cluster.max() + 1, rate.size))

    def scaled(self, rate: Floats) -> Floats:
        """Rates on the scale of the clicks: unchanged here."""
        return rate

    def centered(self, rate: Floats, change: Floats) -> Floats:
        """Changes of the logarithms without a change of scale: unchanged here."""
        return change


@dataclass(frozen=True, eq=False, kw_only=True)
class WithinDocuments(_Cells):
    """Clicks of documents by bias factor, as multinomials given each document's total.

    The rates of a document are those of its group. This likelihood depends neither on the scale
    of a group's rates nor on the relevance of its documents.
    """

    unit: np.ndarray  # (n_cells,)

    def score(self, rate: Floats) -> tuple[float, Floats | None, Floats | None]:
        """Conditional log-likelihood of a matrix of rates, with gradient and information.

        A document d of group g has clicks c_dt in n_dt impressions, C_d = sum_t c_dt clicks in
        all, and the expected shares p_dt = n_dt q_gt / sum_s n_ds q_gs of them. With
        k = n_factors / 2 prior clicks per group, b_gt = q_gt / sum_s q_gs, and a_gt the same
        shares of the center,

            value           sum_d sum_t c_dt log p_dt + k sum_g sum_t a_gt log b_gt
            gradient_gt     sum_{d in g} (c_dt - C_d p_dt) + k (a_gt - b_gt)
            information_gts sum_{d in g} C_d (p_dt 1[t = s] - p_dt p_ds)
                            + k (b_gt 1[t = s] - b_gt b_gs)
        """
        if not (rate > 0).all():
            return -np.inf, None, None
        n_factors = self.shape[1]
        size = rate.size
        choice = self._choice
        prior = self.shape[1] * _PRIOR
        log_shares = self._log_shares(rate)
        target = self.center / self.center.sum(axis=1, keepdims=True)
        own = rate / rate.sum(axis=1, keepdims=True)
        value = choice.clicks @ log_shares + prior * (target * np.log(own)).sum()
        known = choice.information(np.exp(log_shares), self.cell[choice.rows], size)
        expected = known.own.reshape(self.shape)
        gradient = self.sums[0] - expected + prior * (target - own)
        information = (expected + prior * own)[:, :, None] * np.eye(n_factors)
        information -= prior * own[:, :, None] * own[:, None, :]
        # Documents of different groups share no column, so that only diagonal blocks are not 0.
        information -= np.einsum("gtgs->gts", known.joint.reshape(*self.shape, *self.shape))
        return value, gradient, information

    def saturated(self) -> Floats:
        """Maximum-likelihood matrix of rates of any rank, up to one scale per group."""

        def objective(log_rate):
            value, gradient, information = self.score(np.exp(log_rate).reshape(self.shape))
            return value, gradient.ravel(), information

        def newton_step(information, gradient):
            return solve_each(information, gradient.reshape(1, *self.shape)).ravel()

        start = np.log(self.center).ravel()
        found = maximise(objective, start, solve=newton_step, tol=_TOL, longest=_LONGEST)
        warn_unless_converged(found, "The matrix of click rates")
        return np.exp(found.at).reshape(self.shape)

    def contributions(self, rate: Floats) -> sparse.csr_array:
        """Gradient of the log-likelihood by cluster, shape (n_clusters, n_groups * n_factors)."""
        choice = self._choice
        surplus = choice.clicks - choice.expected(np.exp(self._log_shares(rate)))
        cluster = self.cluster[self.unit[choice.rows]]
        return sparse.csr_array(
            (surplus, (cluster, self.cell[choice.rows])), (self.cluster.max() + 1, rate.size)
        )

    def scaled(self, rate: Floats) -> Floats:
        """Rates scaled by group such that its expected clicks equal its observed clicks."""
        clicks, weight = self.sums
        return rate * (clicks.sum(axis=1) / (weight * rate).sum(axis=1))[:, None]

    def centered(self, rate: Floats, change: Floats) -> Floats:
        """Changes of the logarithms of rates, less their weighted mean in each group."""
        _, weight = self.sums
        share = weight * rate / (weight * rate).sum(axis=1, keepdims=True)
        return change - (share * change).sum(axis=-1, keepdims=True)

    @cached_property
    def _choice(self):
        """Where the clicks of each unit fall."""
        return GroupedLogit.from_rows(self.unit, self.clicks)

    def _log_shares(self, rate):
        """Logarithm of the share p_dt expected in each cell of a unit with clicks."""
        expected = self.weight * rate.ravel()[self.cell]
        return self._choice.log_shares(np.log(expected[self._choice.rows]))


@dataclass(frozen=True, eq=False)
class LowRankFit:
    """Maximum-likelihood matrix of a given rank."""

    left: np.ndarray  # (n_rows, rank)
    right: np.ndarray  # (n_factors, rank)
    value: float
    gradient: np.ndarray  # (n_rows, n_factors)
    information: np.ndarray  # (n_rows, n_factors, n_factors)

    @property
    def rate(self) -> Floats:
        """The matrix; up to one scale per row for :class:`WithinDocuments`."""
        return self.left @ self.right.T

    def residuals(self, gradients: Floats) -> Floats:
        """Standardised residuals: scores projected orthogonally to the matrices of this rank.

        With the information I and the slopes S of the logarithms of rates (see :func:`_slopes`),
        the residual of a gradient g is (g - I S (S' I S)^-1 S' g) / sqrt(diag I).
        """
        slopes = _slopes(self.left, self.right)
        weighted = np.einsum("gts,gsp->gtp", self.information, slopes)
        curvature = np.einsum("gtp,gtq->pq", slopes, weighted)
        along = np.einsum("gtp,ngt->pn", slopes, gradients)
        inside = np.einsum("gtp,pn->ngt", weighted, lstsq(curvature, along, cond=1e-10)[0])
        return (gradients - inside) / np.sqrt(np.einsum("gtt->gt", self.information))


def fit_low_rank(
    table: RateTable | WithinDocuments, rank: int, start: LowRankFit | None = None
) -> LowRankFit:
    """Maximum-likelihood matrix of rates of a given rank, by Fisher scoring.

    With gradient g and information I of the logarithms of rates, and their slopes S in the
    entries of ``left`` and ``right``, each step is (S' I S)^-1 S' g.
    """
    if start is None:
        # Rates stay so far below 1 that rounding cannot exceed it.
        left, right = _rank_one(table.center * min(1.0, 0.999 / table.center.max()))
        start = LowRankFit(left, right, *table.score(left @ right.T))
    fit = start if rank == 1 else _with_one_more(start)

    def fit_at(point):
        left, right = (part.reshape(-1, rank) for part in np.split(point, [fit.left.size]))
        return LowRankFit(left, right, *table.score(left @ right.T))

    def objective(point):
        fit = fit_at(point)
        if fit.gradient is None:
            return fit.value, None, None
        slopes = _slopes(fit.left, fit.right)
        return fit.value, np.einsum("gtp,gt->p", slopes, fit.gradient), (slopes, fit.information)

    def fisher_step(curvature, gradient):
        slopes, information = curvature
        matrix = np.einsum("gtp,gts,gsq->pq", slopes, information, slopes, optimize=True)
        return lstsq(matrix, gradient, cond=1e-10)[0]

    start = np.concatenate([fit.left.ravel(), fit.right.ravel()])
    found = maximise(objective, start, solve=fisher_step, tol=_TOL)
    warn_unless_converged(found, f"The matrix of click rates of rank {rank}")
    return fit_at(found.at)


def solve_each(information: Floats, gradients: Floats) -> Floats:
    """Newton steps I^-1 g of the logarithms, by gradient, shape (n, n_rows, n_factors)."""
    size = np.einsum("gtt->g", information) / information.shape[1]
    # The ridge decides the scale of a row where the information leaves it free, and no more.
    held = information + _HOLD * size[:, None, None]
    return np.moveaxis(np.linalg.solve(held, np.moveaxis(gradients, 0, -1)), -1, 0)


def with_center(table: Any) -> Any:
    """The table with prior clicks at the rates of its maximum-likelihood matrix of rank one."""
    clicks, weight = table.sums
    row_rate = (clicks.sum(axis=1) + _PRIOR) / (weight.sum(axis=1) + 1)
    factor_rate = (clicks.sum(axis=0) + _PRIOR) / (weight.sum(axis=0) + 1)
    crude = np.outer(row_rate, factor_rate) / (clicks.sum() / weight.sum())
    table = replace(table, center=crude * min(1.0, 0.9 / crude.max()))
    return replace(table, center=fit_low_rank(table, 1).rate)


def _rank_one(matrix):
    """Positive factors, as columns, of a matrix of rank about one."""
    logs = np.log(matrix)
    left = logs.mean(axis=1)
    return np.exp(left)[:, None], np.exp((logs - left[:, None]).mean(axis=0))[:, None]


def _slopes(left, right):
    """Slopes of the log rates in all entries of left and right.

    Of shape (n_rows, n_factors, n_parameters): d log q_gt / d left_gk = right_tk / q_gt, and
    d log q_gt / d right_tk = left_gk / q_gt.
    """
    n_rows = len(left)
    n_factors = len(right)
    by_left = np.einsum("gh,tk->gthk", np.eye(n_rows), right)
    by_right = np.einsum("ts,gk->gtsk", np.eye(n_factors), left)
    flat = [part.reshape(n_rows, n_factors, -1) for part in (by_left, by_right)]
    return np.concatenate(flat, axis=2) / (left @ right.T)[:, :, None]


def _with_one_more(fit):
    """The fit with one component more, still of size 0: the first singular vector of residuals."""
    # Of the precision of the rates.
    _, right = _rank_one(np.sqrt(np.einsum("gtt->gt", fit.information)) / fit.rate)
    residual = fit.residuals(fit.gradient[None])[0]
    v = np.linalg.svd(residual, full_matrices=False)[2][:1].T / right
    return replace(
        fit,
        left=np.hstack([fit.left, np.zeros((len(fit.left), 1))]),
        right=np.hstack([fit.right, v]),
    )
