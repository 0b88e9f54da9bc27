r"""The Type-II Tobit likelihood: a label is observed only if a second variable is positive.

.. math::
    y = x\beta + e, \qquad s = [x\omega + \epsilon > 0], \qquad
    (e / \tau, \epsilon) \text{ normal, of unit variances and correlation } \gamma .

A row with :math:`s = 1` contributes :math:`\log \frac1\tau \varphi(e / \tau) +
\log\Phi((x\omega + \gamma e / \tau) / \sqrt{1 - \gamma^2})` to the log-likelihood, a row with
:math:`s = 0` contributes :math:`\log\Phi(-x\omega)`. For a given :math:`\gamma` the sum is
concave in :math:`\theta = 1 / \tau`, :math:`\delta = \beta / \tau` and :math:`\omega` (Olsen
1978), so that Newton's method finds the maximum from any start; :math:`\gamma` has a profile
likelihood.

Olsen (1978). Note on the uniqueness of the maximum likelihood estimator for the Tobit model.
Econometrica. Amemiya (1984). Tobit models: a survey. Journal of Econometrics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtri

from .._typing import ArrayLike, Bools, Floats

__all__ = [
    "GammaProfile",
    "ProbitFit",
    "SelectedRows",
    "TobitFit",
    "TobitModel",
    "fit_probit",
    "fit_tobit",
    "mills_ratio",
    "profile_gamma",
]

#: Correlations that ``profile_gamma`` tries: at 1 the likelihood has no density.
GAMMA_BOUND = 0.98
_GRID = np.linspace(-0.9, 0.9, 13)
#: Half of the 95 % quantile of a chi-squared variable with one degree of freedom.
_DROP = 1.9207294103470444
#: Newton's method stops when a step would gain less mean log-likelihood per row than this.
_TOLERANCE = 1e-12
_MAX_ITER = 100
#: Curvature added for directions that the rows do not determine, relative to each parameter's.
_JITTER = 1e-10


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Rows of features, of which the selected ones have a label.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features), float64
    label : ndarray of shape (n_rows,)
        Not used where ``selected`` is False.
    selected : ndarray of shape (n_rows,), bool
    weight : ndarray of shape (n_rows,)
    """

    features: Floats
    label: Floats
    selected: Bools
    weight: Floats

    @cached_property
    def design(self) -> Floats:
        """The features and a column of ones."""
        return np.column_stack([self.features, np.ones(len(self.features))])

    @cached_property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Designs and weights of the selected rows, then of the others."""
        rows = self.selected
        return self.design[rows], self.weight[rows], self.design[~rows], self.weight[~rows]

    @cached_property
    def standard(self) -> _Standard:
        """The same rows with standardised features and labels, for Newton's method."""
        rows, weight = self.selected, self.weight
        center, spread, features = _standardise(self.features, weight)
        label_center, label_spread, known = _standardise(self.label[rows], weight[rows])
        label = np.full(len(rows), np.nan)
        label[rows] = known
        standard = SelectedRows(features, label, rows, weight)
        return _Standard(standard, center, spread, float(label_center), float(label_spread))


@dataclass(frozen=True)
class TobitModel:
    r"""Constants of the likelihood.

    Parameters
    ----------
    gamma : float in (-1, 1)
        Correlation of the two errors.
    scale : float, "estimate" or "published", default="estimate"
        :math:`\tau`, or how it is determined. ``"published"`` is equation 9 of Zhao et al. (2023):
        :math:`\tau = 1` and :math:`-e^2` where the likelihood has :math:`-e^2 / 2`.
    penalty : float or ndarray of shape (n_features,), default=0
        :math:`\alpha` in the penalty :math:`\frac12 \sum_j \alpha_j (\delta_j^2 + \omega_j^2)`,
        without the intercepts, on the mean log-likelihood per row.
    """

    gamma: float
    scale: float | Literal["estimate", "published"] = "estimate"
    penalty: float | Floats = 0.0

    @property
    def square(self) -> float:
        """Factor q of the squared standardised error."""
        return 1.0 if self.scale == "published" else 0.5

    @property
    def fixed_theta(self) -> float | None:
        """Inverse scale; None if it is estimated."""
        if self.scale == "estimate":
            return None
        return 1.0 if self.scale == "published" else 1.0 / self.scale


class TobitFit(NamedTuple):
    r"""A maximum of the likelihood.

    Parameters
    ----------
    coef, selection_coef : ndarray of shape (n_features,)
        :math:`\beta` and :math:`\omega`.
    intercept, selection_intercept : float
    scale : float
        :math:`\tau`.
    value : float
        Penalised mean log-likelihood per row.
    terms : ndarray of shape (n_iter + 1, 3)
        The parts of the mean log-likelihood per row: labels, selection of selected rows and
        selection of the others; before each step and at the end.
    n_iter : int
        Number of Newton steps.
    converged : bool
    """

    coef: Floats
    intercept: float
    selection_coef: Floats
    selection_intercept: float
    scale: float
    value: float
    terms: Floats
    n_iter: int
    converged: bool

    @property
    def start(self) -> Floats:
        """The parameters (delta, omega, theta), in which the likelihood is concave."""
        theta = 1.0 / self.scale
        delta = np.append(self.coef, self.intercept) * theta
        return np.concatenate([delta, self.selection_coef, [self.selection_intercept, theta]])


class ProbitFit(NamedTuple):
    """A maximum of the likelihood of the selection alone.

    Parameters
    ----------
    coef : ndarray of shape (n_features,)
    intercept : float
    converged : bool
    """

    coef: Floats
    intercept: float
    converged: bool


class GammaProfile(NamedTuple):
    r"""The likelihood as a function of the correlation.

    Parameters
    ----------
    fit : TobitFit
        At the maximum-likelihood correlation.
    gamma : float
    interval : tuple of float
        95 % confidence interval, if rows are independent and the model is correct: the profile
        log-likelihood is within 1.92 of its maximum. Its ends lie between -0.98 and 0.98.
    curve : ndarray of shape (n_tried, 2)
        Correlation and profile log-likelihood, sorted by correlation.
    """

    fit: TobitFit
    gamma: float
    interval: tuple[float, float]
    curve: Floats


def mills_ratio(value: ArrayLike) -> Floats:
    r"""The inverse Mills ratio :math:`\varphi / \Phi`, to machine precision."""
    with np.errstate(over="ignore"):  # for large values erfcx is infinite, and the ratio 0
        return np.sqrt(2 / np.pi) / erfcx(-np.asarray(value) / np.sqrt(2))


def fit_tobit(rows: SelectedRows, model: TobitModel, start: Floats | None = None) -> TobitFit:
    """Maximise the likelihood for a given correlation.

    Parameters
    ----------
    rows : SelectedRows
        With at least one selected row and one other.
    model : TobitModel
    start : ndarray, default=None
        ``TobitFit.start`` of a similar fit.

    Returns
    -------
    fit : TobitFit
    """
    standard = rows.standard
    model = replace(model, penalty=model.penalty / standard.spread**2)
    theta = model.fixed_theta
    theta = None if theta is None else theta * standard.label_spread
    start = _start(standard.rows, theta) if start is None else standard.inward(start)
    if theta is None:
        result = _newton(lambda at: _tobit(standard.rows, model, at), start, positive=True)
        at = result.at
    else:
        result = _newton(_with_scale(standard.rows, model, theta), start[:-1])
        at = np.append(result.at, theta)
    # The density of a label in its own unit, not in that of standardised labels.
    unit = np.log(standard.label_spread) * rows.weight[rows.selected].sum() / rows.weight.sum()
    return TobitFit(
        *standard.outward(at),
        float(result.value - unit),
        np.array(result.terms) - [unit, 0.0, 0.0],
        result.n_iter,
        result.converged,
    )


def fit_probit(rows: SelectedRows, penalty: float = 0.0) -> ProbitFit:
    r"""Maximise the likelihood of the selection alone.

    Parameters
    ----------
    rows : SelectedRows
    penalty : float

    Returns
    -------
    fit : ProbitFit
    """
    standard = rows.standard
    chosen, weight, others, other_weight = standard.rows.parts
    total = rows.weight.sum()
    ridge = _ridge(chosen.shape[1], penalty / standard.spread**2)

    def objective(omega):
        index, other = chosen @ omega, -(others @ omega)
        value = weight @ log_ndtr(index) + other_weight @ log_ndtr(other)
        ratio, other_ratio = mills_ratio(index), mills_ratio(other)
        gradient = chosen.T @ (weight * ratio) - others.T @ (other_weight * other_ratio)
        curvature = _gram(chosen, weight * _kappa(index, ratio))
        curvature += _gram(others, other_weight * _kappa(other, other_ratio))
        value = value / total - 0.5 * omega @ (ridge * omega)
        return value, gradient / total - ridge * omega, curvature / total + np.diag(ridge), None

    start = np.zeros(chosen.shape[1])
    start[-1] = _threshold(rows)
    result = _newton(objective, start)
    return ProbitFit(*standard.index_outward(result.at), result.converged)


def profile_gamma(rows: SelectedRows, model: TobitModel) -> GammaProfile:
    r"""Maximum-likelihood correlation, with a confidence interval.

    With :math:`L` the maximum of the mean log-likelihood per row for a given correlation, and
    weights :math:`w`, the profile log-likelihood and the interval are

    .. math::
        \ell(\gamma) = \frac{(\sum w)^2}{\sum w^2}\, L(\gamma), \qquad
        \{\gamma : \ell(\gamma) \ge \max \ell - \tfrac12 \chi^2_{1;\,0.95}\} .

    Parameters
    ----------
    rows : SelectedRows
    model : TobitModel
        Its ``gamma`` is not used.

    Returns
    -------
    profile : GammaProfile
    """
    # Effective number of rows (Kish 1965): if few rows have most of the weight, there is less
    # information.
    n_rows = rows.weight.sum() ** 2 / (rows.weight @ rows.weight)
    fits = {}

    def value(gamma):
        if gamma not in fits:
            nearest = min(fits, key=lambda known: abs(known - gamma), default=None)
            start = None if nearest is None else fits[nearest].start
            fits[gamma] = fit_tobit(rows, replace(model, gamma=gamma), start)
        return n_rows * fits[gamma].value

    for gamma in sorted(_GRID, key=abs):
        value(gamma)
    middle = max(_GRID, key=value)
    step = _GRID[1] - _GRID[0]
    bounds = np.clip((middle - step, middle + step), -GAMMA_BOUND, GAMMA_BOUND)
    minimize_scalar(lambda gamma: -value(gamma), bounds=bounds, options={"xatol": 1e-4})
    best = max(fits, key=value)
    interval = tuple(_end_of_interval(value, best, end) for end in (-GAMMA_BOUND, GAMMA_BOUND))
    curve = np.array([(gamma, value(gamma)) for gamma in sorted(fits)])
    return GammaProfile(fits[best], float(best), interval, curve)


def _end_of_interval(value, best, end):
    floor = value(best) - _DROP
    if abs(end - best) < 1e-9 or value(end) >= floor:
        return float(end)
    return float(brentq(lambda gamma: value(gamma) - floor, best, end, xtol=1e-3))


# The likelihood -----------------------------------------------------------------------
def _tobit(rows, model, at):
    r"""Value, gradient, curvature (minus the Hessian) and terms at (delta, omega, theta).

    With :math:`e = \theta y - x\delta`, :math:`\rho = \sqrt{1 - \gamma^2}`,
    :math:`b = \gamma / \rho`, :math:`z = x\omega / \rho + b e`, :math:`m = \varphi / \Phi`,
    :math:`\kappa = m (z + m)` and :math:`q = 1/2`, a selected row (:math:`s = 1`) has

    .. math::
        \ell &= \log\theta - q e^2 + \log\Phi(z), \qquad g_e = b\, m(z) - 2 q e, \\
        \nabla_\delta \ell &= -x\, g_e, \quad \nabla_\omega \ell = x\, m(z) / \rho, \quad
        \nabla_\theta \ell = y\, g_e + 1 / \theta, \\
        H_{\delta\delta} &= a\, x x^\top, \quad H_{\delta\omega} = -d\, x x^\top, \quad
        H_{\omega\omega} = \kappa\, x x^\top / \rho^2, \quad
        H_{\delta\theta} = -a\, y x, \quad H_{\omega\theta} = d\, y x, \quad
        H_{\theta\theta} = a\, y^2 + 1 / \theta^2

    with :math:`a = 2 q + b^2 \kappa` and :math:`d = b \kappa / \rho`. Any other row has
    :math:`\ell = \log\Phi(-x\omega)`. Rows are weighted, and the sums divided by all weights.
    """
    chosen, weight, others, other_weight = rows.parts
    n_columns = chosen.shape[1]
    delta, omega, theta = at[:n_columns], at[n_columns:-1], at[-1]
    label = rows.label[rows.selected]
    root = np.sqrt(1 - model.gamma**2)
    slope = model.gamma / root
    error = theta * label - chosen @ delta
    index = (chosen @ omega) / root + slope * error
    other = -(others @ omega)
    total = rows.weight.sum()
    terms = (
        weight @ (np.log(theta) - model.square * error**2 - _constant(model)),
        weight @ log_ndtr(index),
        other_weight @ log_ndtr(other),
    )
    ratio, other_ratio = mills_ratio(index), mills_ratio(other)
    by_error = weight * (slope * ratio - 2 * model.square * error)
    inverse = weight.sum() / theta
    gradient = np.concatenate(
        [
            -(chosen.T @ by_error),
            chosen.T @ (weight * ratio) / root - others.T @ (other_weight * other_ratio),
            [by_error @ label + inverse],
        ]
    )
    kappa = weight * _kappa(index, ratio)
    of_error = 2 * model.square * weight + slope**2 * kappa
    mixed = kappa * slope / root
    by_label = np.concatenate([-(chosen.T @ (of_error * label)), chosen.T @ (mixed * label)])
    across = -_gram(chosen, mixed)
    curvature = np.block(
        [
            [_gram(chosen, of_error), across, by_label[:n_columns, None]],
            [
                across.T,
                _gram(chosen, kappa / root**2)
                + _gram(others, other_weight * _kappa(other, other_ratio)),
                by_label[n_columns:, None],
            ],
            [by_label[None, :], np.array([[of_error @ label**2 + inverse / theta]])],
        ]
    )
    ridge = _ridge(n_columns, model.penalty)
    ridge = np.concatenate([ridge, ridge, [0.0]])
    value = sum(terms) / total - 0.5 * at @ (ridge * at)
    gradient = gradient / total - ridge * at
    return value, gradient, curvature / total + np.diag(ridge), np.array(terms) / total


def _with_scale(rows, model, theta):
    """The likelihood as a function of (delta, omega)."""

    def objective(at):
        value, gradient, curvature, terms = _tobit(rows, model, np.append(at, theta))
        return value, gradient[:-1], curvature[:-1, :-1], terms

    return objective


def _constant(model):
    return 0.0 if model.scale == "published" else 0.5 * np.log(2 * np.pi)


def _kappa(index, ratio):
    """Minus the second derivative of log_ndtr; clipped, because rounding can leave [0, 1]."""
    return np.clip(ratio * (index + ratio), 0.0, 1.0)


def _gram(design, weight):
    return design.T @ (design * weight[:, None])


def _ridge(n_columns, penalty):
    ridge = np.zeros(n_columns)  # the intercept has no penalty
    ridge[:-1] = penalty
    return ridge


def _start(rows, theta):
    """Start of Newton's method: the maximum without features, for standardised labels."""
    at = np.zeros(2 * rows.design.shape[1] + 1)
    at[-2:] = _threshold(rows), theta or 1.0
    return at


def _threshold(rows):
    """Intercept of a probit without features."""
    share = rows.weight[rows.selected].sum() / rows.weight.sum()
    return ndtri(np.clip(share, 1e-3, 1 - 1e-3))


# Units --------------------------------------------------------------------------------
class _Standard(NamedTuple):
    """Rows with standardised features and known labels, and the conversion of parameters.

    The penalised likelihood is unchanged: a coefficient is multiplied by the spread of its
    feature, and its penalty is divided by the square of that spread.
    """

    rows: SelectedRows
    center: Floats
    spread: Floats
    label_center: float
    label_spread: float

    def inward(self, at):
        """``TobitFit.start`` in standardised units."""
        n_columns = len(self.center) + 1
        delta, omega, theta = at[:n_columns], at[n_columns:-1], at[-1]
        inside = []
        for coef in (delta, omega):
            inside += [coef[:-1] * self.spread, [coef[-1] + coef[:-1] @ self.center]]
        inside[1][0] -= theta * self.label_center
        return np.concatenate([*inside, [theta * self.label_spread]])

    def outward(self, at):
        """The first fields of ``TobitFit``: coefficients, intercepts and scale."""
        n_columns = len(self.center) + 1
        scale = self.label_spread / at[-1]
        coef, intercept = self.index_outward(at[:n_columns] * scale)
        intercept += self.label_center
        return coef, intercept, *self.index_outward(at[n_columns:-1]), float(scale)

    def index_outward(self, at):
        """Coefficients and intercept of one index of the features."""
        coef = at[:-1] / self.spread
        return coef, float(at[-1] - coef @ self.center)


def _standardise(values, weight):
    """Weighted mean and standard deviation of columns, and the standardised columns.

    A constant column becomes 0.
    """
    total = weight.sum()
    center = weight @ values / total
    values = values - center
    spread = np.sqrt(weight @ values**2 / total)
    constant = spread <= 1e-12 * np.abs(center)  # otherwise rounding errors would be scaled up
    spread = np.where(constant, 1.0, spread)
    return center, spread, np.where(constant, 0.0, values / spread)


# Newton's method ----------------------------------------------------------------------
class _Maximum(NamedTuple):
    at: Floats
    value: float
    terms: list[Any]
    n_iter: int
    converged: bool


def _newton(objective, start, *, positive=False):
    """Maximise a concave function by damped Newton steps.

    If ``positive`` is True, the last parameter stays positive.
    """
    at = start
    value, gradient, curvature, terms = objective(at)
    history = [terms]
    for n_iter in range(_MAX_ITER):
        step = _solve(curvature, gradient)
        decrement = gradient @ step
        if decrement < _TOLERANCE:
            return _Maximum(at, value, history, n_iter, True)
        length = 1.0
        if positive and step[-1] < 0:
            length = min(1.0, -0.9 * at[-1] / step[-1])
        new = objective(at + length * step)
        while not new[0] >= value + 1e-4 * length * decrement:
            length /= 2
            if length < 1e-10:  # only rounding errors are left
                return _Maximum(at, value, history, n_iter, decrement < 1e-8)
            new = objective(at + length * step)
        at = at + length * step
        value, gradient, curvature, terms = new
        history.append(terms)
    return _Maximum(at, value, history, _MAX_ITER, False)


def _solve(curvature, gradient):
    scale = np.sqrt(np.diag(curvature))
    scale = np.where(scale > 0, scale, 1.0)
    curvature, gradient = curvature / np.outer(scale, scale), gradient / scale
    eye, jitter = np.eye(len(curvature)), _JITTER
    while True:
        try:
            return cho_solve(cho_factor(curvature + jitter * eye), gradient) / scale
        except LinAlgError:
            jitter *= 100
