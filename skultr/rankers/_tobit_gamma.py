r"""What a log says about the correlation of the errors of the Type-II Tobit model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.linalg import lstsq
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr, ndtri

from .._typing import Floats
from ._probit import mills_ratio
from ._selected_rows import SelectedRows
from ._tobit import TobitFit, TobitModel, TobitTerms, fit_tobit, tobit_likelihood

if TYPE_CHECKING:
    from ._candidates import ClickChance


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
