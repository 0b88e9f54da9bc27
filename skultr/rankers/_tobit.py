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
it from any start. :math:`\gamma` has a profile likelihood, see :func:`profile_gamma`.

Olsen (1978). Note on the uniqueness of the maximum likelihood estimator for the Tobit model.
Econometrica. Amemiya (1984). Tobit models: a survey. Journal of Econometrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.linalg import lstsq
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from .._base._typing import ArrayLike, Bools, Floats, Ints
from .._models._solve import maximise

if TYPE_CHECKING:
    from ._candidates import ClickChance


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Rows of features, of which the selected ones have a label."""

    features: Floats  # (n_rows, n_features)
    label: Floats  # (n_rows,)
    selected: Bools  # (n_rows,)
    weight: Floats  # (n_rows,)
    noise: Floats | None = None  # (n_rows,), known part of the variance of each label
    query: Ints | None = None  # (n_rows,), rows of which may depend on each other

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
    def known(self) -> tuple[Floats, Floats]:
        """Labels of the selected rows, and the known part of their variances."""
        label = self.label[self.selected]
        return label, np.zeros(len(label)) if self.noise is None else self.noise[self.selected]

    @cached_property
    def label_spread(self) -> float:
        """Standard deviation of the labels; 1 if they do not vary."""
        rows = self.selected
        return float(_standardise(self.label[rows], self.weight[rows])[1])

    @property
    def threshold(self) -> float:
        """Intercept of a probit of the selection without features."""
        share = self.weight[self.selected].sum() / self.weight.sum()
        return float(ndtri(np.clip(share, 1e-3, 1 - 1e-3)))

    @cached_property
    def standard(self) -> StandardRows:
        """The same rows with standardised features and labels, for Newton's method."""
        rows, weight = self.selected, self.weight
        center, spread, features = _standardise(self.features, weight)
        label_center, label_spread, known = _standardise(self.label[rows], weight[rows])
        label = np.full(len(rows), np.nan)
        label[rows] = known
        noise = None if self.noise is None else self.noise / label_spread**2
        standard = SelectedRows(features, label, rows, weight, noise, self.query)
        return StandardRows(standard, center, spread, float(label_center), float(label_spread))


class StandardRows(NamedTuple):
    """Rows with standardised features and known labels, and the conversion of parameters.

    A penalised likelihood is unchanged: a coefficient is multiplied by the spread of its
    feature, and its penalty is divided by the square of that spread.
    """

    rows: SelectedRows
    center: Floats  # (n_features,)
    spread: Floats  # (n_features,)
    label_center: float
    label_spread: float

    def inward(self, coef: Floats, intercept: float) -> Floats:
        """Coefficients and intercept of an index of the features, in standardised features."""
        return np.append(coef * self.spread, intercept + coef @ self.center)

    def outward(self, at: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept, in the features as they came."""
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
        return value, gradient, curvature / total + np.diag(penalties)

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
            longest=np.append(np.full(len(at) - 1, np.inf), _LONGEST_STEP),
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
        np.concatenate(result.history) - [unit, 0.0, 0.0],
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


#: Correlations that ``profile_gamma`` tries: at 1 the likelihood has no density.
GAMMA_BOUND = 0.98
_GRID = [-GAMMA_BOUND, *np.linspace(-0.9, 0.9, 13).tolist(), GAMMA_BOUND]
#: Half of the 95 % quantile of a chi-squared variable with one degree of freedom.
_DROP = 1.9207294103470444
#: Draws of all labels, for the mean score under binomial chance.
_N_DRAWS = 4


class GammaProfile(NamedTuple):
    r"""The likelihood as a function of the correlation."""

    fit: TobitFit
    gamma: float
    interval: tuple[float, float]
    curve: Floats  # (n_tried, 2)


def profile_gamma(
    rows: SelectedRows, model: TobitModel, chance: ClickChance | None = None
) -> GammaProfile:
    r"""Maximum-likelihood correlation, with a confidence interval.

    With :math:`L` the maximum of the weighted log-likelihood for a given correlation, the profile
    log-likelihood and the interval are

    .. math::
        \ell(\gamma) = \frac1d \Bigl[L(\gamma) - \int_0^\gamma b\Bigr], \qquad
        d = \max\Bigl(\frac{\sum_q u_q^2}{I}, \frac{\sum w^2}{\sum w}\Bigr), \qquad
        \{\gamma : \ell(\gamma) \ge \max \ell - \tfrac12 \chi^2_{1;\,0.95}\},

    where :math:`u_q` is the sum over the rows of a query of the derivatives with respect to
    :math:`\gamma` that the other parameters do not explain, and :math:`I` their information. The
    divisor is the variance by the differences between queries (sandwich) over that by the model.
    It is 1 if rows have weight 1 and the model is correct (Chandler and Bate 2007), and at least
    what weights :math:`w` do to independent rows (Kish 1965).

    The correlation shows in how skew the labels of selected rows are, and clicks are skew too:
    :math:`b` is the mean of :math:`\sum_q u_q` if the errors of chance are those of binomial
    clicks, less that if they are normal, as the likelihood has it. It is the mean of draws.
    """
    fits = {}

    def fit(gamma):
        if gamma not in fits:
            nearest = min(fits, key=lambda known: abs(known - gamma), default=None)
            start = None if nearest is None else fits[nearest]
            fits[gamma] = fit_tobit(rows, replace(model, gamma=gamma), start)
        return fits[gamma]

    for gamma in sorted(_GRID, key=abs):
        fit(gamma)
    skew = _integrated_skew(rows, model, chance, fits)

    def mean(gamma):
        return fit(gamma).value - skew(gamma)

    best = _best(mean)
    size = rows.weight.sum() / _overdispersion(rows, model, fits)
    drop = _DROP / size
    interval = tuple(_end_of_interval(mean, best, end, drop) for end in (_GRID[0], _GRID[-1]))
    curve = np.array([(gamma, size * mean(gamma)) for gamma in sorted(fits)])
    return GammaProfile(fits[best], best, interval, curve)


def _best(mean):
    """The maximum, refined beside the best correlation of the grid."""
    place = int(np.argmax([mean(gamma) for gamma in _GRID]))
    bounds = _GRID[max(place - 1, 0)], _GRID[min(place + 1, len(_GRID) - 1)]
    found = minimize_scalar(
        lambda gamma: -mean(float(gamma)), bounds=bounds, options={"xatol": 1e-4}
    )
    return max((float(found.x), *_GRID), key=mean)


def _end_of_interval(mean, best, end, drop):
    floor = mean(best) - drop
    if abs(end - best) < 1e-9 or mean(end) >= floor:
        return end
    return float(brentq(lambda gamma: mean(gamma) - floor, best, end, xtol=1e-3))


def _integrated_skew(rows, model, chance, fits):
    """Integral of b per unit of weight, as a function of the correlation."""
    if chance is None:
        return lambda gamma: 0.0
    slopes = [_skew(rows, replace(model, gamma=gamma), chance, fits[gamma]) for gamma in _GRID]
    integral = PchipInterpolator(_GRID, slopes).antiderivative()
    return lambda gamma: float(integral(gamma) - integral(0.0))


def _skew(rows, model, chance, fit):
    """Mean score per unit of weight with binomial chance, less that with normal chance."""
    score, units = _GammaScore.of(rows, model, fit), rows.standard
    chosen = rows.selected
    relevance = rows.features[chosen] @ fit.coef + fit.intercept
    choice = rows.features[chosen] @ fit.selection_coef + fit.selection_intercept
    spread, root = np.sqrt(rows.noise[chosen]), np.sqrt(1 - model.gamma**2)
    random = np.random.default_rng(0)  # the same draws for every correlation
    total = 0.0
    for _ in range(_N_DRAWS):
        # The error of selection, given that the row was selected.
        error = -ndtri(random.random(len(choice)) * ndtr(choice))
        error = model.gamma * error + root * random.normal(size=len(choice))
        true = relevance + fit.scale * error
        rate = np.clip(true, 0.0, 1 / chance.examination[chosen])
        clicks = chance.draw(chosen, rate, random) - rate
        for noise, sign in ((clicks, 1), (spread * random.normal(size=len(choice)), -1)):
            label = (true + noise - units.label_center) / units.label_spread
            total += sign * rows.weight[chosen] @ score.of_selected(label)
    return total / (_N_DRAWS * rows.weight.sum())


def _overdispersion(rows, model, fits):
    """Variance of the score of gamma by the differences between queries, over that by the model.

    At the maximum of the likelihood, where the curvature is that of the model. At least what
    weights that have nothing to do with the errors would do (Kish 1965): a few heavy rows show
    little of their own differences.
    """
    gamma = max(fits, key=lambda gamma: fits[gamma].value)
    score = _GammaScore.of(rows, replace(model, gamma=gamma), fits[gamma])
    weight = rows.weight
    least = float(weight @ weight / weight.sum())
    if score.information <= 0:
        return least
    of_rows = np.empty(len(weight))
    of_rows[rows.selected] = score.of_selected()
    of_rows[~rows.selected] = score.of_others()
    query = np.arange(len(weight)) if rows.query is None else rows.query
    of_query = np.bincount(query, weight * of_rows)
    return max(least, float(of_query @ of_query / (score.information * weight.sum())))


class _GammaScore(NamedTuple):
    """The derivative with respect to gamma that the other parameters do not explain.

    ``information`` is the mean of minus its own derivative; ``explained`` the direction of the
    other parameters that moves with gamma.
    """

    rows: SelectedRows
    model: TobitModel
    at: Floats
    explained: Floats
    information: float

    @classmethod
    def of(cls, rows, model, fit):
        at, units = fit.standard(rows), rows.standard
        rows, model = units.rows, replace(model, penalty=model.penalty / units.spread**2)
        curvature = tobit_likelihood(rows, model, at)[2]
        if model.fixed_scale is not None:
            curvature = curvature[:-1, :-1]
        row, weight = TobitTerms.of(rows, model, at), rows.parts[1]
        cross = cls._cross(rows, row)[: len(curvature)]
        explained = lstsq(curvature, cross)[0]
        again = row.choice / row.root**3 + 3 * row.gamma * row.by_gamma / row.root**2
        own = weight @ (row.share * (row.kappa * row.by_gamma**2 - row.ratio * again))
        information = own / rows.weight.sum() - cross @ explained
        padded = np.zeros(len(at))
        padded[: len(explained)] = explained
        return cls(rows, model, at, padded, float(information))

    @staticmethod
    def _cross(rows, row):
        """Minus the mean second derivatives with respect to gamma and the other parameters."""
        chosen, weight = rows.parts[:2]
        slope, weight = row.gamma / row.root, weight * np.sqrt(row.share)
        of_beta = row.ratio / row.root**3 - slope * row.kappa * row.by_gamma
        of_omega = row.kappa * row.by_gamma / row.root - row.ratio * row.gamma / row.root**3
        rest = 1 - row.share
        again = (row.gamma * rest * row.choice - row.error * row.share) / row.root**3
        again += 3 * slope * row.gamma / row.root * rest * row.by_gamma
        of_scale = row.kappa * row.by_scale * row.by_gamma
        of_scale = of_scale - row.ratio * (again + row.by_gamma * rest)
        parts = [
            chosen.T @ (weight * of_beta / row.spread),
            chosen.T @ (weight * of_omega),
            [weight @ of_scale],
        ]
        return np.concatenate(parts) / rows.weight.sum()

    def of_selected(self, label=None):
        """Of each selected row, by default with its own label."""
        row = TobitTerms.of(self.rows, self.model, self.at, label)
        chosen = self.rows.parts[0]
        half = chosen.shape[1]
        by_beta, by_omega, by_scale = row.slopes()
        return (
            row.ratio * row.by_gamma * np.sqrt(row.share)
            - by_beta * (chosen @ self.explained[:half])
            - by_omega * (chosen @ self.explained[half:-1])
            - by_scale * self.explained[-1]
        )

    def of_others(self):
        """Of each other row."""
        others = self.rows.parts[2]
        half = others.shape[1]
        ratio = mills_ratio(-(others @ self.at[half:-1]))
        return ratio * (others @ self.explained[half:-1])
