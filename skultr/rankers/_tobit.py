r"""The Type-II Tobit likelihood: a label is observed only if a second variable is positive.

.. math::
    y = x\beta + e + c, \qquad s = [x\omega + \epsilon > 0], \qquad
    (e / \tau, \epsilon) \text{ normal, of unit variances and correlation } \gamma,

with :math:`c` an error of chance in the label of row *i*, of known variance :math:`v_i`, such as
that of a click rate over few impressions: selection cannot know of it. With
:math:`\tau_i^2 = \tau^2 + v_i`, :math:`\gamma_i = \gamma \tau / \tau_i` and
:math:`e_i = (y - x\beta) / \tau_i`, a row with :math:`s = 1` contributes
:math:`\log \frac1{\tau_i} \varphi(e_i) + \log\Phi((x\omega + \gamma_i e_i) /
\sqrt{1 - \gamma_i^2})` to the log-likelihood, a row with :math:`s = 0` contributes
:math:`\log\Phi(-x\omega)`. For given :math:`\gamma` and :math:`\tau` the sum is concave, and
without :math:`v` it has one maximum for a given :math:`\gamma` (Olsen 1978): Newton's method finds
it from any start. :math:`\gamma` has a profile likelihood, see ``_tobit_gamma.py``.

Olsen (1978). Note on the uniqueness of the maximum likelihood estimator for the Tobit model.
Econometrica. Amemiya (1984). Tobit models: a survey. Journal of Econometrics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from .._typing import Floats
from ._newton import maximise
from ._probit import bend, gram, mills_ratio, ridge
from ._selected_rows import SelectedRows

#: Newton's method changes the logarithm of the scale by no more in one step.
_LONGEST_STEP = 1.0


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
        :math:`\alpha` in the penalty :math:`\frac12 \sum_j \alpha_j (\beta_j^2 / \sigma^2 +
        \omega_j^2)`, without the intercepts, on the mean log-likelihood per row. :math:`\sigma` is
        the scale if that is given, else the standard deviation of the labels.
    """

    gamma: float
    scale: float | Literal["estimate", "published"] = "estimate"
    penalty: float | Floats = 0.0

    @property
    def square(self) -> float:
        """Factor q of the squared standardised error."""
        return 1.0 if self.scale == "published" else 0.5

    @property
    def fixed_scale(self) -> float | None:
        """The scale; None if it is estimated."""
        if self.scale == "estimate":
            return None
        return 1.0 if self.scale == "published" else float(self.scale)


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

    def standard(self, rows: SelectedRows) -> Floats:
        """The parameters (beta, omega, log tau) in the units of ``rows.standard``."""
        units = rows.standard
        beta = units.inward(self.coef, self.intercept)
        beta[-1] -= units.label_center
        omega = units.inward(self.selection_coef, self.selection_intercept)
        scale = self.scale / units.label_spread
        return np.concatenate([beta / units.label_spread, omega, [np.log(scale)]])


def fit_tobit(rows: SelectedRows, model: TobitModel, start: TobitFit | None = None) -> TobitFit:
    """Maximise the likelihood for a given correlation.

    Parameters
    ----------
    rows : SelectedRows
        With at least one selected row and one other.
    model : TobitModel
    start : TobitFit, default=None
        A similar fit.

    Returns
    -------
    fit : TobitFit
    """
    units = rows.standard
    model = replace(model, penalty=model.penalty / units.spread**2)
    fixed = model.fixed_scale
    log_scale = None if fixed is None else np.log(fixed / units.label_spread)
    at = _start(units.rows, log_scale) if start is None else start.standard(rows)
    if log_scale is None:
        result = maximise(
            lambda at: tobit_likelihood(units.rows, model, at),
            at,
            longest_last_step=_LONGEST_STEP,
        )
        at = result.at
    else:
        result = maximise(_with_scale(units.rows, model, log_scale), at[:-1])
        at = np.append(result.at, log_scale)
    half = len(at) // 2
    coef, intercept = units.outward(at[:half] * units.label_spread)
    # The density of a label in its own unit, not in that of standardised labels.
    unit = np.log(units.label_spread) * rows.weight[rows.selected].sum() / rows.weight.sum()
    return TobitFit(
        coef,
        intercept + units.label_center,
        *units.outward(at[half:-1]),
        float(np.exp(at[-1]) * units.label_spread),
        float(result.value - unit),
        np.array(result.terms) - [unit, 0.0, 0.0],
        result.n_iter,
        result.converged,
    )


def tobit_likelihood(
    rows: SelectedRows, model: TobitModel, at: Floats
) -> tuple[float, Floats, Floats, Floats]:
    """Value, gradient, curvature (minus the Hessian) and terms, as means over rows.

    Parameters
    ----------
    rows : SelectedRows
    model : TobitModel
    at : ndarray of shape (2 * n_features + 3,)
        Coefficients of the label and its intercept, those of the selection, and log tau.

    Returns
    -------
    value : float
        Penalised.
    gradient, curvature : ndarray
    terms : ndarray of shape (3,)
        Labels, selection of selected rows and selection of the others.
    """
    chosen, weight, others, other_weight = rows.parts
    total, n_columns = rows.weight.sum(), chosen.shape[1]
    row = TobitTerms.of(rows, model, at)
    other = -(others @ at[n_columns:-1])
    other_ratio = mills_ratio(other)
    terms = np.array([weight @ row.label, weight @ row.selection, other_weight @ log_ndtr(other)])
    by_beta, by_omega, by_scale = row.slopes()
    gradient = np.concatenate(
        [
            chosen.T @ (weight * by_beta),
            chosen.T @ (weight * by_omega) - others.T @ (other_weight * other_ratio),
            [weight @ by_scale],
        ]
    )
    bends = {name: weight * values for name, values in row.bends().items()}
    omega = gram(chosen, bends["omega"]) + gram(others, other_weight * bend(other, other_ratio))
    mixed = gram(chosen, bends["beta omega"])
    last = np.concatenate([chosen.T @ bends["beta scale"], chosen.T @ bends["omega scale"]])
    curvature = np.block(
        [
            [np.block([[gram(chosen, bends["beta"]), mixed], [mixed.T, omega]]), last[:, None]],
            [last[None, :], np.array([[bends["scale"].sum()]])],
        ]
    )
    penalties = _penalties(rows, model, at)
    value = terms.sum() / total - 0.5 * at @ (penalties * at)
    gradient = gradient / total - penalties * at
    return value, gradient, curvature / total + np.diag(penalties), terms / total


class TobitTerms(NamedTuple):
    r"""The log-likelihood of selected rows, and its derivatives with respect to their indices.

    With :math:`f = x\beta`, :math:`g = x\omega`, :math:`\lambda = \log\tau`, :math:`t = \tau_i`,
    :math:`\sigma = \tau^2 / t^2`, :math:`c = \gamma_i`, :math:`\rho = \sqrt{1 - c^2}`,
    :math:`e = (y - f) / t`, :math:`z = (g + c e) / \rho`, :math:`m = \varphi / \Phi`,
    :math:`\kappa = m (z + m)` and :math:`q = 1/2`,

    .. math::
        \ell = -\log t - q e^2 + \log\Phi(z), \qquad
        \frac{dt}{d\lambda} = t \sigma, \quad \frac{de}{d\lambda} = -e \sigma, \quad
        \frac{dc}{d\lambda} = c (1 - \sigma), \quad
        \frac{\partial z}{\partial c} = \frac{e + c g}{\rho^3} .

    Parameters
    ----------
    error, spread, share, gamma, root : ndarray of shape (n_selected,)
        :math:`e, t, \sigma, c` and :math:`\rho`.
    index, ratio, kappa : ndarray of shape (n_selected,)
        :math:`z, m(z)` and :math:`\kappa`.
    by_gamma, by_scale : ndarray of shape (n_selected,)
        Derivatives of :math:`z` with respect to :math:`c` and :math:`\lambda`.
    choice : ndarray of shape (n_selected,)
        :math:`g`.
    square : float
        :math:`q`.
    """

    error: Floats
    spread: Floats
    share: Floats
    gamma: Floats
    root: Floats
    index: Floats
    ratio: Floats
    kappa: Floats
    by_gamma: Floats
    by_scale: Floats
    choice: Floats
    square: float

    @classmethod
    def of(
        cls, rows: SelectedRows, model: TobitModel, at: Floats, label: Floats | None = None
    ) -> TobitTerms:
        """The terms at (beta, omega, log tau), of the labels of the rows or of others."""
        chosen, (known, noise) = rows.parts[0], rows.known
        label = known if label is None else label
        n_columns = chosen.shape[1]
        variance = np.exp(2 * at[-1])
        spread = np.sqrt(variance + noise)
        share = variance / spread**2
        gamma = model.gamma * np.sqrt(share)
        root = np.sqrt(1 - gamma**2)
        error = (label - chosen @ at[:n_columns]) / spread
        choice = chosen @ at[n_columns:-1]
        index = (choice + gamma * error) / root
        ratio = mills_ratio(index)
        by_gamma = (error + gamma * choice) / root**3
        by_scale = by_gamma * gamma * (1 - share) - gamma / root * error * share
        kappa = bend(index, ratio)
        return cls(
            error,
            spread,
            share,
            gamma,
            root,
            index,
            ratio,
            kappa,
            by_gamma,
            by_scale,
            choice,
            model.square,
        )

    @property
    def label(self) -> Floats:
        """Log density of each label."""
        constant = 0.0 if self.square == 1.0 else 0.5 * np.log(2 * np.pi)
        return -np.log(self.spread) - self.square * self.error**2 - constant

    @property
    def selection(self) -> Floats:
        """Log-likelihood of the selection of each row, given its label."""
        return log_ndtr(self.index)

    def slopes(self) -> tuple[Floats, Floats, Floats]:
        """Derivatives with respect to the indices of label and selection, and log tau."""
        slope, twice = self.gamma / self.root, 2 * self.square
        return (
            (twice * self.error - slope * self.ratio) / self.spread,
            self.ratio / self.root,
            self.share * (twice * self.error**2 - 1) + self.ratio * self.by_scale,
        )

    def bends(self) -> dict[str, Floats]:
        """Minus the second derivatives with respect to the same, by name."""
        gamma, root, ratio, kappa = self.gamma, self.root, self.ratio, self.kappa
        error, share, twice = self.error, self.share, 2 * self.square
        slope, rest = gamma / root, 1 - share
        drift = gamma * rest / root**3  # of gamma / root, by log tau
        # Of by_scale itself, by log tau.
        again = (gamma * rest * self.choice - error * share) / root**3
        again += 3 * slope * gamma / root * rest * self.by_gamma
        again = (again + self.by_gamma * (1 - 3 * share)) * gamma * rest
        again -= (drift * share + slope * share * (2 - 3 * share)) * error
        of_beta = ratio * (drift - share * slope) + 2 * twice * error * share
        return {
            "beta": (twice + slope**2 * kappa) / self.spread**2,
            "beta omega": -slope * kappa / root / self.spread,
            "omega": kappa / root**2,
            "beta scale": (of_beta - slope * kappa * self.by_scale) / self.spread,
            "omega scale": kappa * self.by_scale / root - ratio * gamma * drift,
            "scale": kappa * self.by_scale**2
            - ratio * again
            + 2 * share * rest
            - 2 * twice * error**2 * share * (1 - 2 * share),
        }


def _with_scale(rows, model, log_scale):
    """The likelihood as a function of (beta, omega)."""

    def objective(at):
        value, gradient, curvature, terms = tobit_likelihood(rows, model, np.append(at, log_scale))
        return value, gradient[:-1], curvature[:-1, :-1], terms

    return objective


def _penalties(rows, model, at):
    """Penalty of each parameter; in units of the scale, or of the labels where it is estimated."""
    unit = rows.label_spread if model.fixed_scale is None else np.exp(at[-1])
    penalty = np.broadcast_to(model.penalty, rows.features.shape[1])
    return np.concatenate([ridge(penalty / unit**2), ridge(penalty), [0.0]])


def _start(rows, log_scale):
    """Start of Newton's method: the maximum without features, for standardised labels."""
    at = np.zeros(2 * rows.design.shape[1] + 1)
    at[-2:] = rows.threshold, 0.0 if log_scale is None else log_scale
    return at
