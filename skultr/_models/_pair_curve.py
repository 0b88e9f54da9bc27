"""Examination by rank and last click, from comparisons within documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array, eye_array, hstack
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.exceptions import ConvergenceWarning

from .._base._typing import Floats
from .._log._cells import Cells
from .._log._segments import TINY
from ..exceptions import warn_user
from ._click_choice import ClickChoice
from ._solve import MAX_DENSE, maximise
from ._table_curve import relative_errors

#: Standard deviation of a pair about the sum of its effects: start, least and greatest.
_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 0.5, 0.02, 5.0
#: Most rounds of examination and spread, and the relative change of the spread that ends them.
_ROUNDS, _LEAST_CHANGE = 12, 0.02
#: Twice the log posterior that a last step may still gain: coefficients, which are standard normal
#: a priori, are then as exact as its root.
_TOL = 1e-8


class PairCurve(NamedTuple):
    """Log examination of pairs of factors."""

    log_examination: Floats  # (n_factors,)
    standard_error: Floats  # (n_factors,)
    effects: Floats  # (n_factors,), alone: log examination of a pair that was never shown
    spread: float
    n_iter: int


def pair_curve(cells: Cells, effects: csr_array, mean: Floats, spread: Floats) -> PairCurve:
    r"""Log examination as a sum of effects, plus what the log tells of each pair.

    .. math:: h = h_0 + Z \theta + \delta, \qquad \theta \sim N(0, \operatorname{diag}(s^2)),
              \quad \delta \sim N(0, \tau^2)

    It maximises the conditional likelihood of where the clicks of each document fell, in which
    relevance does not appear, times this prior. :math:`\tau` is learned, by MacKay's fixed point:
    pairs that follow no pattern are shrunk little, and few clicks tell little of a pair.
    """
    seen, factor = np.unique(cells.factor, return_inverse=True)
    choice = ClickChoice.from_rows(cells.doc, cells.clicks)
    factor, log_weight = factor[choice.rows], np.log(cells.weight[choice.rows])

    def information(shares):
        return choice.information(shares, factor, len(seen))

    def objective(point):
        log_shares = choice.log_shares(log_weight + (mean[seen] + design @ point)[factor])
        shares = np.exp(log_shares)
        surplus = np.bincount(factor, choice.clicks - choice.expected(shares), len(seen))
        value = choice.clicks @ log_shares - 0.5 * point @ point
        return value, design.T @ surplus - point, information(shares), shares

    def newton_step(known, gradient):
        if len(seen) <= MAX_DENSE:
            return solve(_precision(design, known), gradient, assume_a="pos")
        size = len(gradient), len(gradient)
        prior = LinearOperator(size, matvec=lambda x: design.T @ (known @ (design @ x)) + x)
        return cg(prior, gradient, rtol=1e-3)[0]

    n_effects = effects.shape[1]
    tau, point, n_iter = _SPREAD, np.zeros(n_effects + len(seen)), 0
    for _ in range(_ROUNDS):
        scale = np.concatenate([spread, np.full(len(seen), tau)])
        design = csr_array(hstack([effects[seen], eye_array(len(seen))]) @ diags_array(scale))
        found = maximise(objective, point, solve=newton_step, tol=_TOL)
        n_iter += found.n_iter
        known = information(found.history[-1][0])
        last, apart = tau, tau * found.at[n_effects:]
        own = known.diagonal * tau**2
        tau = np.sqrt((apart @ apart) / max(np.sum(own / (1 + own)), TINY))
        tau = float(np.clip(tau, _LEAST_SPREAD, _MOST_SPREAD))
        if abs(np.log(tau / last)) < _LEAST_CHANGE:
            break
        point = np.append(found.at[:n_effects], found.at[n_effects:] * last / tau)
    if not found.converged:
        warn_user(
            f"Examination by pairs of ranks did not converge in {found.n_iter} Newton steps, and "
            "is inexact: the clicks hardly determine it. Log more sessions, or use PBMModel.",
            ConvergenceWarning,
        )
    total = mean + effects @ (spread * found.at[:n_effects])
    result, error = total.copy(), np.full(len(total), np.hypot(last, spread.mean()))
    result[seen] = mean[seen] + design @ found.at
    error[seen] = _standard_error(known, design, last)
    return PairCurve(result, error, total, last, n_iter)


def _standard_error(known, design, spread):
    """Standard error of log examination relative to the first factor."""
    if len(known.own) > MAX_DENSE:
        error = 1 / np.sqrt(known.diagonal + spread**-2.0)
        error = np.hypot(error, error[0])
        error[0] = 0.0
        return error
    covariance = design @ (design @ np.linalg.inv(_precision(design, known))).T
    return relative_errors(covariance, 0)


def _precision(design, known):
    """Z' I Z + 1 of a sparse design Z and the information I about factors, a dense matrix."""
    matrix = design.T @ (design.T @ known.dense()).T
    return matrix + np.eye(len(matrix))
