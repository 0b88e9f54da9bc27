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

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator
from scipy.linalg import lstsq
from scipy.special import erfcx, ndtr, ndtri, softmax

from .._base._typing import Bools, Floats, Ints
from .._log._segments import TINY, encode, offsets_from_sorted, pair_codes
from .._models._solve import maximise
from ..exceptions import ClickDataWarning, warn_user
from ._thresholds import PLAUSIBLE_GAMMA, WIDE_INTERVAL

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


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
    def label_spread(self) -> float:
        """Standard deviation of the labels; 1 if they do not vary."""
        rows = self.selected
        return float(_standardise(self.label[rows], self.weight[rows])[1])

    @cached_property
    def standard(self) -> StandardRows:
        """The same rows with standardised features and labels, for Newton's method."""
        rows = self.selected
        weight = self.weight
        center, spread, features = _standardise(self.features, weight)
        label_center, label_spread, known = _standardise(self.label[rows], weight[rows])
        # The label of a row that was not selected is unknown.
        label = np.full(len(rows), np.nan)
        label[rows] = known
        noise = None if self.noise is None else self.noise / label_spread**2
        standard = SelectedRows(features, label, rows, weight, noise, self.query)
        return StandardRows(standard, center, spread, float(label_center), float(label_spread))


class StandardRows(NamedTuple):
    """Rows with standardised features and known labels, and the conversion of parameters."""

    rows: SelectedRows
    center: Floats  # (n_features,)
    spread: Floats  # (n_features,)
    label_center: float
    label_spread: float

    def model(self, model: TobitModel) -> TobitModel:
        """The model of the standardised rows with the same penalised likelihood.

        A coefficient is multiplied by the spread of its feature, and its penalty is divided by the
        square of that spread.
        """
        return replace(model, penalty=model.penalty / self.spread**2)

    def outward(self, at: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept of an index, in the features as they came."""
        coef = at[:-1] / self.spread
        return coef, float(at[-1] - coef @ self.center)


def _standardise(values, weight):
    """Weighted mean and standard deviation of columns, and the standardised columns.

    A constant column becomes 0.
    """
    total = weight.sum()
    center = weight @ values / total
    deviation = values - center
    spread = np.sqrt(weight @ deviation**2 / total)
    # Deviations of a constant are rounding errors, which would be scaled up.
    is_constant = spread <= 1e-12 * np.abs(center)
    spread = np.where(is_constant, 1.0, spread)
    return center, spread, np.where(is_constant, 0.0, deviation / spread)


#: Below minus this, a series replaces torch's logarithm of the normal distribution function.
_FAR = 100.0


def _log_ndtr(index):
    """The logarithm of the normal distribution function, with exact derivatives far out."""
    # Beyond 20 the logarithm is 0 to all digits.
    near = torch.special.log_ndtr(index.clamp(-_FAR, 20.0))
    # Of torch's own derivatives, differences of large numbers would be left: the series
    # log Phi(t) = -t^2 / 2 - log(-t) - log(2 pi) / 2 + log(1 - t^-2 + 3 t^-4).
    far = index.clamp(max=-_FAR)
    correction = torch.log1p(-(far**-2) + 3 * far**-4)
    tail = correction - far**2 / 2 - (-far).log()
    return torch.where(index < -_FAR, tail - 0.5 * math.log(2 * math.pi), near)


def mills_ratio(value: Floats) -> Floats:
    r"""The inverse Mills ratio :math:`\varphi / \Phi`, to machine precision."""
    return math.sqrt(2 / math.pi) / erfcx(value * -math.sqrt(0.5))


def selected_terms(
    relevance: torch.Tensor,
    selection: torch.Tensor,
    log_scale: torch.Tensor,
    gamma: torch.Tensor | float,
    label: torch.Tensor,
    noise: torch.Tensor | float = 0.0,
    published: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Log density of the label of each selected row, and of its selection given the label.

    See the head of this file, with :math:`x\beta` for ``relevance``, :math:`x\omega` for
    ``selection`` and :math:`v` for ``noise``. In the ``published`` form (Zhao et al. 2023,
    equation 9) the first is :math:`-e^2`, with a constant :math:`\tau`.
    """
    # tau_i: the error of relevance and chance in clicks. Selection knows of the former alone.
    variance = (2 * log_scale).exp()
    spread = (variance + noise).sqrt()
    gamma = gamma * variance.sqrt() / spread
    # e = (y - x beta) / tau_i, and the index is (x omega + gamma e) / sqrt(1 - gamma^2).
    error = (label - relevance) / spread
    index = (selection + gamma * error) / (1 - gamma**2).sqrt()
    if published:
        return -(error**2), _log_ndtr(index)
    constant = 0.5 * math.log(2 * math.pi)
    density = -(error**2) / 2 - spread.log() - constant
    return density, _log_ndtr(index)


@dataclass(frozen=True)
class TobitModel:
    r"""Constants of the likelihood.

    The penalty is :math:`\frac12 \sum_j \alpha_j (\beta_j^2 / \sigma^2 + \omega_j^2)` on the mean
    log-likelihood per row, without the intercepts, with :math:`\sigma` the scale if that is given,
    else the standard deviation of the labels.
    """

    gamma: float  # correlation of the two errors
    #: tau, or how it is determined; "published" is equation 9 of Zhao et al. (2023)
    scale: float | Literal["estimate", "published"] = "estimate"
    penalty: float | Floats = 0.0  # alpha

    @property
    def fixed_scale(self) -> float | None:
        """The scale; None if it is estimated."""
        if self.scale == "estimate":
            return None
        return 1.0 if self.scale == "published" else float(self.scale)


class TobitFit(NamedTuple):
    """A maximum of the likelihood."""

    coef: Floats  # (n_features,)
    intercept: float
    selection_coef: Floats  # (n_features,)
    selection_intercept: float
    scale: float
    value: float  # penalised mean log-likelihood per row
    terms: Floats  # (n_iter + 1, 3), parts of it: before each step and at the end
    n_iter: int
    converged: bool
    at: Floats  # (beta, omega, log tau) of the standardised rows


def fit_tobit(rows: SelectedRows, model: TobitModel, start: TobitFit | None = None) -> TobitFit:
    """Maximise the likelihood for a given correlation, from another fit to the rows if any."""
    units = rows.standard
    model = units.model(model)
    spread = units.label_spread
    # P(selected) = Phi(intercept) is the maximum without features.
    share = rows.weight[rows.selected].sum() / rows.weight.sum()
    # Coefficients and intercept of the label, those of the selection, and log tau.
    if start is None:  # the maximum without features
        at = np.zeros(2 * rows.design.shape[1] + 1)
        at[-2] = ndtri(np.clip(share, 1e-3, 1 - 1e-3))  # finite where all rows are selected
    else:
        at = start.at.copy()
    n_free = len(at)
    longest = np.full(len(at), np.inf)
    # Newton's method changes the logarithm of the scale by no more in one step: far from the
    # maximum its parabola may ask for a scale that no float holds.
    longest[-1] = 1.0
    if model.fixed_scale is not None:
        n_free = n_free - 1
        at[-1] = np.log(model.fixed_scale / spread)
    fixed = at[n_free:]

    def likelihood(free):
        return tobit_likelihood(units.rows, model, np.append(free, fixed), n_free)

    found = maximise(
        likelihood,
        at[:n_free],
        longest=longest[:n_free],
        # A scale of 0 and selection by the features alone are estimates, with a step for ever.
        still=np.inf,
    )
    at[:n_free] = found.at
    # Back to features and labels as they came.
    beta, omega = np.split(at[:-1], 2)
    coef, intercept = units.outward(beta * spread)
    selection_coef, selection_intercept = units.outward(omega)
    # The density of a label in its own unit, not in that of standardised labels.
    unit = 0.0 if model.scale == "published" else np.log(spread) * share
    return TobitFit(
        coef=coef,
        intercept=intercept + units.label_center,
        selection_coef=selection_coef,
        selection_intercept=selection_intercept,
        scale=float(np.exp(at[-1]) * spread),
        value=float(found.value - unit),
        terms=np.concatenate(found.history) - [unit, 0.0, 0.0],
        n_iter=found.n_iter,
        converged=found.converged,
        at=at,
    )


def tobit_likelihood(
    rows: SelectedRows, model: TobitModel, at: Floats, n_free: int | None = None
) -> tuple[float, Floats, Floats, Floats]:
    """Penalised value, gradient, curvature (minus the Hessian) and terms, as means over rows.

    ``at`` holds coefficients and intercept of the label, those of the selection, log tau, and the
    correlation if that is not the model's. The first ``n_free`` have derivatives; by default all.
    """
    if n_free is None:
        n_free = len(at)
    gradient = np.zeros(n_free)
    curvature = np.zeros((n_free, n_free))
    terms = []
    point = np.append(at, model.gamma)
    for row_terms, weight, indices in _parts(rows, model):
        values = [torch.from_numpy(design @ point[place]) for place, design in indices]
        # Indices are in the order of their parameters, of which the first are free.
        n_indices = sum(place.start < n_free for place, _ in indices)
        free = [value.requires_grad_() for value in values[:n_indices]]
        found = row_terms(*values)
        terms += [weight @ term.detach().numpy() for term in found]
        _add_derivatives(gradient, curvature, found, free, weight, indices[:n_indices])
    # Means over rows, less the penalty.
    total = rows.weight.sum()
    penalties = _penalties(rows, model, at)[:n_free]
    at = at[:n_free]
    terms = np.array(terms) / total
    value = terms.sum() - 0.5 * at @ (penalties * at)
    return value, gradient / total - penalties * at, curvature / total + np.diag(penalties), terms


def _add_derivatives(gradient, curvature, found, free, weight, indices):
    """Add slopes and curvature of a sum of terms by the parameters of its indices.

    An index is a design times its parameters: by the chain rule, derivatives by indices, row by
    row, become those by parameters.
    """
    # The sum over rows has, row by row, the derivatives of each row's own term.
    slopes = torch.autograd.grad(sum(found).sum(), free, create_graph=True)
    for n, (slope, (place, design)) in enumerate(zip(slopes, indices, strict=True)):
        gradient[place] += design.T @ (weight * slope.detach().numpy())
        # The Hessian is symmetric: blocks up to the diagonal are enough.
        bends = torch.autograd.grad(slope.sum(), free[: n + 1], retain_graph=True)
        for bend, (other, its_design) in zip(bends, indices, strict=False):
            block = design.T @ (its_design * (weight * bend.numpy())[:, None])
            curvature[place, other] -= block
            if other != place:
                curvature[other, place] -= block.T


def _penalties(rows, model, at):
    """Penalty on the square of each parameter; none on intercepts, log tau and correlation."""
    n_columns = rows.design.shape[1]
    # In units of the scale, or of the labels where it is estimated.
    unit = rows.label_spread if model.fixed_scale is None else np.exp(at[2 * n_columns])
    penalty = np.broadcast_to(model.penalty, n_columns - 1)
    return np.concatenate([penalty / unit**2, [0.0], penalty, [0.0, 0.0, 0.0]])


def _parts(rows, model, label=None):
    """Selected rows, then the others: their terms as a function of indices, their weights, and
    of each index the parameters and the design that make it; by default with the own labels."""
    chosen, weight, others, other_weight = rows.parts
    if label is None:
        label = rows.label[rows.selected]
    noise = np.zeros(len(label)) if rows.noise is None else rows.noise[rows.selected]
    known = (torch.from_numpy(label), torch.from_numpy(noise), model.scale == "published")
    # Places of the parameters: two of them have the same value in all rows.
    n_columns = chosen.shape[1]
    beta = slice(0, n_columns)
    omega = slice(n_columns, 2 * n_columns)
    log_scale = slice(2 * n_columns, 2 * n_columns + 1)
    gamma = slice(2 * n_columns + 1, 2 * n_columns + 2)
    ones = np.ones((len(chosen), 1))
    yield (
        lambda *indices: selected_terms(*indices, *known),
        weight,
        [(beta, chosen), (omega, chosen), (log_scale, ones), (gamma, ones)],
    )
    yield lambda index: [_log_ndtr(-index)], other_weight, [(omega, others)]


#: Correlations that ``profile_gamma`` tries: at 1 the likelihood has no density.
GAMMA_BOUND = 0.98
#: Correlations for which the model is fitted; evenly spaced as Fisher's z.
_GRID = np.tanh(np.linspace(-1.0, 1.0, 17) * np.arctanh(GAMMA_BOUND))
#: Correlations between them, for which the likelihood and its slope are interpolated.
GAMMAS = np.linspace(-GAMMA_BOUND, GAMMA_BOUND, 981)


class GammaProfile(NamedTuple):
    """The likelihood as a function of the correlation, and an estimate of it."""

    fit: TobitFit  # with the likeliest correlation
    curve: Floats  # log-likelihood of each of GAMMAS

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the correlation."""
        # Half of the 95 % quantile of a chi-squared variable with one degree of freedom.
        inside = GAMMAS[self.curve >= self.curve.max() - 1.9207294103470444]
        return float(inside[0]), float(inside[-1])

    @property
    def is_known(self) -> bool:
        """True if the interval leaves out the bounds, and most of the correlations between."""
        low, high = self.interval
        reaches_bound = max(-low, high) >= GAMMA_BOUND
        return not reaches_bound and high - low <= WIDE_INTERVAL.value

    @property
    def likeliest(self) -> float:
        """The maximum-likelihood correlation."""
        return float(GAMMAS[self.curve.argmax()])

    @property
    def gamma(self) -> float:
        r"""The posterior mean; that of the prior if a correlation near the bounds is likeliest.

        The prior is half-Cauchy, :math:`1 / (1 + (\gamma / 0.05)^2)` for :math:`\gamma \ge 0`:
        most production rankers knew little of relevance beyond the features, some knew much.
        """
        # With a scale of 0.05 the mean of the half-Cauchy prior is 0.10.
        log_posterior = np.where(GAMMAS >= 0, -np.log1p((GAMMAS / 0.05) ** 2), -np.inf)
        # A likelihood that is largest near the bounds is that of labels that contradict the
        # model: errors that are skew themselves, or selection by rank.
        if abs(self.likeliest) <= PLAUSIBLE_GAMMA.value:
            log_posterior = log_posterior + self.curve
        return float(GAMMAS @ softmax(log_posterior))


def profile_gamma(
    rows: SelectedRows, model: TobitModel, chance: ClickChance | None = None
) -> GammaProfile:
    r"""Likelihood of each correlation, with a confidence interval.

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
    scores = {}

    def fit(gamma):
        # From the fit of the nearest correlation, which is few steps away.
        nearest = min(fits, key=lambda known: abs(known - gamma), default=None)
        at_gamma = replace(model, gamma=gamma)
        fits[gamma] = fit_tobit(rows, at_gamma, fits.get(nearest))
        scores[gamma] = _GammaScore(rows, at_gamma, fits[gamma])

    # 1. Fits on a grid, from 0 outwards.
    for gamma in sorted(_GRID, key=abs):
        fit(gamma)
    value = np.array([fits[gamma].value for gamma in _GRID])
    slope = np.array([scores[gamma].mean for gamma in _GRID])
    # 2. Less what the skewness of clicks adds.
    if chance is not None:
        skew = [_skew(rows, gamma, chance, fits[gamma], scores[gamma]) for gamma in _GRID]
        integral = PchipInterpolator(_GRID, skew).antiderivative()
        value = value - integral(_GRID) + integral(0.0)
        slope = slope - skew
    # 3. Between the grid: as a function of Fisher's z, the likelihood is nearly a parabola.
    by_z = CubicHermiteSpline(np.arctanh(_GRID), value, slope * (1 - _GRID**2))
    curve = by_z(np.arctanh(GAMMAS))
    likeliest = GAMMAS[curve.argmax()]
    fit(likeliest)
    # 4. Overdispersion, by the curvature of the model at the maximum of its own likelihood.
    own_maximum = max(fits, key=lambda gamma: fits[gamma].value)
    # The sum over rows, of as many as are independent of each other.
    size = rows.weight.sum() / _overdispersion(rows, scores[own_maximum])
    return GammaProfile(fits[likeliest], size * curve)


def _skew(rows, gamma, chance, fit, score):
    """Mean score per unit of weight with binomial chance, less that with normal chance."""
    units = rows.standard
    chosen = rows.selected
    features = rows.features[chosen]
    weight = rows.weight[chosen]
    n_chosen = len(weight)
    # The fitted model, from which labels with either chance are drawn.
    relevance = features @ fit.coef + fit.intercept
    chance_of_choice = ndtr(features @ fit.selection_coef + fit.selection_intercept)
    spread = np.sqrt(rows.noise[chosen])
    random = np.random.default_rng(0)  # the same draws for every correlation

    def mean_score(label):
        standard = (label - units.label_center) / units.label_spread
        return weight @ next(score.of_rows(standard))

    total = 0.0
    # Few draws of all labels: the error of one averages out over the many rows of a log.
    n_draws = 4
    for _ in range(n_draws):
        # The error of selection, given that the row was selected; then that of relevance.
        error = -ndtri(random.random(n_chosen) * chance_of_choice)
        error = gamma * error + np.sqrt(1 - gamma**2) * random.normal(size=n_chosen)
        true = relevance + fit.scale * error
        rate = np.clip(true, 0.0, 1 / chance.examination[chosen])
        binomial = chance.draw(chosen, rate, random) - rate
        normal = spread * random.normal(size=n_chosen)
        total += mean_score(true + binomial)
        total -= mean_score(true + normal)
    return total / (n_draws * rows.weight.sum())


def _overdispersion(rows, score):
    """Variance of the score of gamma by the differences between queries, over that by the model.

    The score is that at the maximum, where the curvature is that of the model. At least what
    weights that have nothing to do with the errors would do (Kish 1965): a few heavy rows show
    little of their own differences.
    """
    weight = rows.weight
    least = float(weight @ weight / weight.sum())
    if score.information <= 0:
        return least
    selected_score, other_score = score.of_rows()
    by_row = np.empty(len(weight))
    by_row[rows.selected] = selected_score
    by_row[~rows.selected] = other_score
    query = np.arange(len(weight)) if rows.query is None else rows.query
    # Scores of one query may depend on each other: their sum is one observation.
    by_query = np.bincount(query, weight * by_row)
    return max(least, float(by_query @ by_query / (score.information * weight.sum())))


class _GammaScore:
    """The derivative with respect to gamma that the other parameters do not explain.

    ``direction`` is that of all parameters in which gamma moves by 1; ``mean`` and ``information``
    are the means of the derivative along it, and of minus the second one.
    """

    def __init__(self, rows, model, fit):
        self.rows = rows.standard.rows
        self.model = rows.standard.model(model)
        self.at = np.append(fit.at, model.gamma)
        _, gradient, curvature, _ = tobit_likelihood(self.rows, self.model, self.at)
        # The others that are free: not gamma, and not log tau if the scale is given.
        n_free = len(self.at) - (1 if model.fixed_scale is None else 2)
        # By the information matrix: I_gg - I_go I_oo^-1 I_og.
        cross = curvature[:n_free, -1]
        explained, *_ = lstsq(curvature[:n_free, :n_free], cross)
        self.direction = np.zeros(len(self.at))
        self.direction[:n_free] = -explained
        self.direction[-1] = 1.0
        self.mean = float(gradient @ self.direction)
        self.information = float(curvature[-1, -1] - cross @ explained)

    def of_rows(self, label=None):
        """Score of each selected row, by default with its own label, then of each other row."""
        for row_terms, weight, indices in _parts(self.rows, self.model, label):
            # The derivative by a step along the direction, of which each row has its own.
            step = torch.zeros(len(weight), dtype=torch.float64, requires_grad=True)
            moved = []
            for place, design in indices:
                index = torch.from_numpy(design @ self.at[place])
                slope = torch.from_numpy(design @ self.direction[place])
                moved.append(index + step * slope)
            (score,) = torch.autograd.grad(sum(row_terms(*moved)).sum(), step)
            yield score.numpy()


class ClickChance(NamedTuple):
    """What chance does to labels that are clicks over propensities, per impression."""

    trials: Floats  # (n_candidates,)
    examination: Floats  # (n_candidates,)
    rate: float

    @property
    def variance(self) -> Floats:
        """Variance of each label if its document has the typical rate; 0 where never shown."""
        inverse = 1 / self.examination
        # r (1 - p r) / p, for one impression at propensity p.
        # The share of the variance of the rarest clicks (Poisson's) that is left at any rate:
        # where the mean rate is that of all examined rows, the variance would be 0, and the label
        # exact.
        per_trial = self.rate * np.maximum(inverse - self.rate, 0.05 * inverse)
        never = np.zeros(len(self.trials))
        return np.divide(per_trial, self.trials, out=never, where=self.trials > 0)

    def draw(self, rows: Bools, relevance: Floats, random: np.random.Generator) -> Floats:
        """Labels of some rows whose documents have given rates."""
        # Tempered impressions are no whole numbers, and a binomial needs at least one trial.
        trials = np.maximum(np.rint(self.trials[rows]), 1).astype(int)
        examination = self.examination[rows]
        clicks = random.binomial(trials, np.clip(relevance * examination, 0.0, 1.0))
        return clicks / (trials * examination)


class Candidates(NamedTuple):
    """One row per (query, version), sorted by query; shown documents come first within a query.

    Those of :meth:`by_page` have a row for each page.
    """

    query: Ints  # (n_candidates,)
    version: Ints  # (n_candidates,)
    shown: Bools  # (n_candidates,)
    label: Floats  # (n_candidates,)
    weight: Floats  # (n_candidates,), impressions; of the query where never shown
    chance: ClickChance
    list_: Ints  # (n_candidates,), ascending: the query, or a list of the log

    def by_page(self, log: ClickLog, clicks: Floats, traffic_exponent: float) -> Candidates:
        """The rows of the lists of the log, with debiased clicks, and those never shown once.

        The latter are in the first list of their query, with the weight of one page.
        """
        never = ~self.shown
        pages = np.maximum(_pages(log), TINY)
        query = self.query[never]
        list_ = np.append(log.list_, np.searchsorted(log.query_of_list, query))
        order = np.argsort(list_, kind="stable")
        weight = log.weight * pages[log.query] ** (traffic_exponent - 1.0)

        def joined(shown_rows, never_rows):
            return np.append(shown_rows, never_rows)[order]

        return self._replace(
            query=joined(log.query, query),
            version=joined(log.version, self.version[never]),
            shown=order < log.n_rows,
            label=joined(clicks / log.weight, self.label[never]),
            weight=joined(weight, self.weight[never] / pages[query]),
            list_=list_[order],
        )

    def as_log(self, log: ClickLog) -> ClickLog:
        """The candidates of each query or page as a list of a click log, to train in batches.

        Click rates are the labels. Rows have their number in place of a bias factor, by which
        losses find what else is known of them.
        """
        offsets = offsets_from_sorted(self.list_)
        starts = offsets[:-1]
        rows = np.arange(len(self.query))
        return replace(
            log,
            version=self.version,
            query_of_list=self.query[starts],
            user=np.zeros_like(self.query),
            position=rows - np.repeat(starts, np.diff(offsets)) + 1,
            bias=rows,
            clicks=self.label * self.weight,
            weight=self.weight,
            propensity=None,
            offsets=offsets,
        )


def find_candidates(
    log: ClickLog,
    clicks: Floats,
    traffic_exponent: float = 1.0,
    propensity: Floats | None = None,
) -> Candidates:
    """The candidates of the queries with at least one impression."""
    if propensity is None:
        propensity = np.ones(log.n_rows)
    # 1. Documents that were shown, each version once per query.
    place, key = encode(pair_codes(log.query, log.version, log.n_versions))
    query, version = np.divmod(key, log.n_versions)

    def total(values):
        return np.bincount(place, values, minlength=len(key))

    # Means over the rows of a document: harmonic for examination, as labels divide by it.
    impressions = total(log.weight)
    examination = impressions / total(log.weight / propensity)
    label = total(clicks) / impressions
    # 2. Candidates of which no version was shown.
    rest = log.candidates
    pair_of_rest = pair_codes(rest.query, log.doc_of_version[rest.version], log.n_docs)
    pair_of_shown = pair_codes(query, log.doc_of_version[version], log.n_docs)
    never = ~np.isin(pair_of_rest, pair_of_shown)

    def followed_by(values, number):
        return np.concatenate([values, np.full(np.count_nonzero(never), number)])

    query = np.concatenate([query, rest.query[never]])
    version = np.concatenate([version, rest.version[never]])
    shown = np.arange(len(query)) < len(key)
    impressions = followed_by(impressions, 0.0)
    examination = followed_by(examination, 1.0)
    label = followed_by(label, 0.0)
    # 3. Weights. Every page of a query could have shown a candidate that was never shown.
    pages = _pages(log)
    weight = np.where(shown, impressions, pages[query])
    # By page impressions, not row impressions: selection decides how many rows are shown.
    weight *= np.maximum(pages, TINY)[query] ** (traffic_exponent - 1.0)
    # Versions of a document that was never shown divide its weight.
    versions_of, _ = encode(pair_of_rest[never])
    weight[~shown] /= np.bincount(versions_of)[versions_of]
    # 4. By query, documents that were shown first; queries without impressions are left out.
    order = np.lexsort((version, ~shown, query))
    order = order[weight[order] > 0]
    # Clicks per examination, over the whole log.
    rate = log.clicks.sum() / max(log.weight @ propensity, TINY)
    chance = ClickChance(impressions[order], examination[order], float(rate))
    return Candidates(
        query=query[order],
        version=version[order],
        shown=shown[order],
        label=label[order],
        weight=weight[order],
        chance=chance,
        list_=query[order],
    )


def is_selection(rows: Candidates, consequence: str = "") -> bool:
    """Whether some candidates were never shown; a warning if all were shown."""
    if not rows.shown.all():
        return True
    warn_user(
        f"Every candidate was shown: there is no selection to correct{consequence}. If the log "
        "omits the candidates that were not shown, add them to each query as rows without a "
        "position.",
        ClickDataWarning,
    )
    return False


def _pages(log):
    """Page impressions per query; a page counts as often as its most frequent row."""
    list_weight = np.maximum.reduceat(log.weight, log.offsets[:-1])
    return np.bincount(log.query_of_list, list_weight, minlength=len(log.query_ids))
