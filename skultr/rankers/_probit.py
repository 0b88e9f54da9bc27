"""The probit model of what was selected, and functions of the normal distribution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

from .._typing import ArrayLike, Floats
from ._newton import maximise
from ._selected_rows import SelectedRows


class ProbitFit(NamedTuple):
    """A maximum of the likelihood of the selection alone."""

    coef: Floats  # (n_features,)
    intercept: float
    converged: bool


def fit_probit(rows: SelectedRows, penalty: float = 0.0) -> ProbitFit:
    r"""Maximise the likelihood of the selection alone."""
    standard = rows.standard
    chosen, weight, others, other_weight = standard.rows.parts
    total = rows.weight.sum()
    penalties = ridge(penalty / standard.spread**2)

    def objective(omega):
        index, other = chosen @ omega, -(others @ omega)
        value = weight @ log_ndtr(index) + other_weight @ log_ndtr(other)
        ratio, other_ratio = mills_ratio(index), mills_ratio(other)
        gradient = chosen.T @ (weight * ratio) - others.T @ (other_weight * other_ratio)
        curvature = gram(chosen, weight * bend(index, ratio))
        curvature += gram(others, other_weight * bend(other, other_ratio))
        value = value / total - 0.5 * omega @ (penalties * omega)
        gradient = gradient / total - penalties * omega
        return value, gradient, curvature / total + np.diag(penalties), None

    start = np.zeros(chosen.shape[1])
    start[-1] = rows.threshold
    result = maximise(objective, start)
    return ProbitFit(*standard.outward(result.at), result.converged)


def mills_ratio(value: ArrayLike) -> Floats:
    r"""The inverse Mills ratio :math:`\varphi / \Phi`, to machine precision."""
    with np.errstate(over="ignore"):  # for large values erfcx is infinite, and the ratio 0
        return np.sqrt(2 / np.pi) / erfcx(-np.asarray(value) / np.sqrt(2))


def bend(index: Floats, ratio: Floats) -> Floats:
    """Minus the second derivative of log_ndtr; clipped, because rounding can leave [0, 1]."""
    return np.clip(ratio * (index + ratio), 0.0, 1.0)


def gram(design: Floats, weight: Floats) -> Floats:
    """Weighted sum of the outer products of the rows of a design."""
    return design.T @ (design * weight[:, None])


def ridge(penalty: Floats) -> Floats:
    """Penalties of the coefficients, and 0 for the intercept."""
    return np.append(penalty, 0.0)
