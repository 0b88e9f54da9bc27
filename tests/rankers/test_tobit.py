"""The Type-II Tobit likelihood against integrals and derivatives in 50 digits."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import norm

from skultr._models import _solve
from skultr.rankers._tobit import (
    GAMMA_BOUND,
    SelectedRows,
    TobitModel,
    fit_tobit,
    mills_ratio,
    profile_gamma,
    tobit_likelihood,
)

BETA, OMEGA = np.array([0.5, -0.3, 0.2]), np.array([0.3, 0.8, -0.5])
INTERCEPT, SELECTION_INTERCEPT, SCALE = 0.4, -0.5, 0.7


def tobit_world(n_rows, gamma, seed=0, omega=OMEGA):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, 3))
    errors = rng.multivariate_normal([0, 0], [[1, gamma], [gamma, 1]], n_rows)
    label = features @ BETA + INTERCEPT + SCALE * errors[:, 0]
    selected = features @ omega + SELECTION_INTERCEPT + errors[:, 1] > 0
    return SelectedRows(features, np.where(selected, label, np.nan), selected, np.ones(n_rows))


def truth(scale=SCALE):
    """Coefficients and the logarithm of the scale, as the likelihood takes them."""
    return np.concatenate([BETA, [INTERCEPT], OMEGA, [SELECTION_INTERCEPT, np.log(scale)]])


def parameters(fit):
    """Those of a fit."""
    return np.concatenate(
        [
            fit.coef,
            [fit.intercept],
            fit.selection_coef,
            [fit.selection_intercept, np.log(fit.scale)],
        ]
    )


# ------------------------------------------------------------------------ likelihood
def density_by_integral(label, index, selection, scale, gamma):
    """Of (label, selected): the bivariate normal density, integrated over the second error."""
    with mpmath.workdps(30):
        error = (mpmath.mpf(label) - index) / scale
        gamma = mpmath.mpf(gamma)
        spread = 1 - gamma**2

        def density(other):
            square = (error**2 - 2 * gamma * error * other + other**2) / spread
            return mpmath.exp(-square / 2) / (2 * mpmath.pi * mpmath.sqrt(spread) * scale)

        middle = gamma * error
        cuts = [-selection, max(-selection, middle), max(-selection, middle) + 20]
        return float(mpmath.log(mpmath.quad(density, cuts)))


@pytest.mark.parametrize("gamma", [-0.6, 0.0, 0.3, 0.95])
@pytest.mark.parametrize("noise", [0.0, 0.8])
def test_likelihood_is_the_integrated_normal_density(gamma, noise):
    """A label with an error of chance has a larger scale, and a smaller correlation."""
    rows = tobit_world(12, gamma)
    rows = replace(rows, noise=np.full(12, noise))
    index = rows.features @ BETA + INTERCEPT
    selection = rows.features @ OMEGA + SELECTION_INTERCEPT
    scale = np.sqrt(SCALE**2 + noise)
    expected = sum(
        density_by_integral(rows.label[i], index[i], selection[i], scale, gamma * SCALE / scale)
        if rows.selected[i]
        else float(mpmath.log(mpmath.ncdf(-selection[i])))
        for i in range(12)
    )
    value = tobit_likelihood(rows, TobitModel(gamma), truth())[0]
    assert value * 12 == pytest.approx(expected, abs=1e-10)


def precise_likelihood(rows, model, at):
    """The same formula in 50 digits, written row by row."""
    n_columns = rows.features.shape[1] + 1
    total, noise = mpmath.mpf(0), np.zeros(len(rows.label)) if rows.noise is None else rows.noise
    scale = mpmath.exp(at[-1])
    for row, label, selected, weight, variance in zip(
        rows.features, rows.label, rows.selected, rows.weight, noise, strict=True
    ):
        row = [mpmath.mpf(float(value)) for value in row] + [mpmath.mpf(1)]
        omega_index = mpmath.fdot(row, at[n_columns:-1])
        if not selected:
            total += weight * mpmath.log(mpmath.ncdf(-omega_index))
            continue
        spread = mpmath.sqrt(scale**2 + mpmath.mpf(float(variance)))
        gamma = mpmath.mpf(model.gamma) * scale / spread
        error = (mpmath.mpf(float(label)) - mpmath.fdot(row, at[:n_columns])) / spread
        if model.scale == "published":
            of_label = -(error**2)
        else:
            of_label = -mpmath.log(spread) - error**2 / 2 - mpmath.log(2 * mpmath.pi) / 2
        selection = (omega_index + gamma * error) / mpmath.sqrt(1 - gamma**2)
        total += weight * (of_label + mpmath.log(mpmath.ncdf(selection)))
    total /= mpmath.mpf(float(rows.weight.sum()))
    unit = mpmath.mpf(model.fixed_scale or rows.label_spread)
    penalty = sum((value / unit) ** 2 for value in at[: n_columns - 1])
    penalty += sum(value**2 for value in at[n_columns : 2 * n_columns - 1])
    return total - mpmath.mpf(model.penalty) / 2 * penalty


@pytest.mark.parametrize("scale", ["estimate", "published"])
@pytest.mark.parametrize("gamma", [0.0, 0.3, -0.9])
def test_gradient_and_curvature_are_those_of_fifty_digits(scale, gamma):
    world = tobit_world(60, 0.3, seed=1)
    # Three rows that were selected, and three that were not.
    six = np.concatenate([np.flatnonzero(world.selected == each)[:3] for each in (True, False)])
    noise = None if scale == "published" else np.linspace(0, 2, 6)
    rows = SelectedRows(
        world.features[six], world.label[six], world.selected[six], np.arange(1.0, 7.0), noise
    )
    model = TobitModel(gamma, scale, penalty=0.1)
    at = truth(1.0 if scale == "published" else SCALE)
    n_free = len(at) - (scale == "published")
    value, gradient, curvature, _ = tobit_likelihood(rows, model, at)
    with mpmath.workdps(50):
        precise = [mpmath.mpf(float(number)) for number in at]
        assert value == pytest.approx(float(precise_likelihood(rows, model, precise)), abs=1e-12)
        step = mpmath.mpf(10) ** -15

        def moved(*places):
            point = list(precise)
            for place, sign in places:
                point[place] += sign * step
            return precise_likelihood(rows, model, point)

        for i in range(n_free):
            slope = (moved((i, 1)) - moved((i, -1))) / (2 * step)
            assert gradient[i] == pytest.approx(float(slope), abs=1e-10)
            for j in {i, 0, n_free - 1}:
                corners = moved((i, 1), (j, 1)) - moved((i, 1), (j, -1))
                corners -= moved((i, -1), (j, 1)) - moved((i, -1), (j, -1))
                bend = corners / (4 * step**2)
                assert -curvature[i, j] == pytest.approx(float(bend), abs=1e-8)


def test_published_scale_is_equation_9():
    rows = tobit_world(50, 0.3)
    at, gamma = truth(1.0), 0.2
    error = rows.label - (rows.features @ BETA + INTERCEPT)
    index = rows.features @ OMEGA + SELECTION_INTERCEPT
    shown = rows.selected
    expected = (
        -np.sum(error[shown] ** 2)
        + np.sum(np.log(norm.cdf((index + gamma * error) / np.sqrt(1 - gamma**2)))[shown])
        + np.sum(np.log(1 - norm.cdf(index))[~shown])
    )
    value = tobit_likelihood(rows, TobitModel(gamma, "published"), at)[0]
    assert 50 * value == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("index", [-40.0, 40.0, -400.0])
def test_stable_far_out(index):
    """At |x omega| = 40 the distribution function itself is 0 or 1 in float64."""
    for selected in (True, False):
        rows = SelectedRows(np.array([[index]]), np.array([0.1]), np.array([selected]), np.ones(1))
        model = TobitModel(0.3, scale=1.0)
        at = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
        value, gradient, curvature, _ = tobit_likelihood(rows, model, at)
        with mpmath.workdps(400):
            precise = [mpmath.mpf(float(number)) for number in at]
            step = mpmath.mpf(10) ** -100
            expected = precise_likelihood(rows, model, precise)
            precise[2] += step
            slope = (precise_likelihood(rows, model, precise) - expected) / step
        assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-12)
        assert gradient[2] == pytest.approx(float(slope), rel=1e-10, abs=1e-10)
        assert np.isfinite(curvature).all()


def test_mills_ratio():
    points = np.array([-1e6, -40, -3.0, 0, 2.0, 40, 1e3])
    with mpmath.workdps(60):
        expected = [
            float(mpmath.npdf(x) / mpmath.ncdf(x)) if x > -50 else -x + 1 / x for x in points
        ]
    np.testing.assert_allclose(mills_ratio(points), expected, rtol=1e-9, atol=1e-300)


# ------------------------------------------------------------------------ fits
def fit_probit(rows, penalty=0.0):
    """Of the selection alone: without a correlation it is a part of its own."""
    fit = fit_tobit(rows, TobitModel(0.0, 1.0, penalty))
    return fit.selection_coef, fit.selection_intercept, fit.converged


def standard_errors(rows, model, fit):
    """Of beta and omega, from the information at the maximum."""
    k = len(fit.coef)
    curvature = tobit_likelihood(rows, model, parameters(fit))[2]
    errors = np.sqrt(np.diag(np.linalg.inv(curvature)) / len(rows.label))
    return errors[:k], errors[k + 1 : 2 * k + 1]


@pytest.mark.parametrize("seed", range(3))
def test_truth_is_recovered_where_least_squares_is_biased(seed):
    rows, model = tobit_world(20_000, 0.6, seed), TobitModel(0.6)
    fit = fit_tobit(rows, model)
    beta_error, omega_error = standard_errors(rows, model, fit)
    assert fit.converged
    # Five standard errors: one of these six differences exceeds that once in 300,000 logs.
    assert (np.abs(fit.coef - BETA) < 5 * beta_error).all()
    assert (np.abs(fit.selection_coef - OMEGA) < 5 * omega_error).all()
    assert fit.scale == pytest.approx(SCALE, rel=0.03)
    chosen = rows.design[rows.selected]
    squares, *_ = np.linalg.lstsq(chosen, rows.label[rows.selected])
    noise = SCALE * np.sqrt(np.diag(np.linalg.inv(chosen.T @ chosen)))[:3]
    assert (np.abs(squares[:3] - BETA) > 8 * noise).any()


def test_maximum_is_that_of_a_general_optimiser():
    rows = tobit_world(400, 0.5)
    rows = SelectedRows(rows.features, rows.label, rows.selected, 1.0 + np.arange(400) % 3)
    for model in (
        TobitModel(0.4, penalty=0.01),
        TobitModel(-0.4, 0.5),
        TobitModel(0.4, "published"),
    ):
        fit = fit_tobit(rows, model)
        scale = model.fixed_scale

        def cost(at, scale=scale, model=model):
            at = at if scale is None else np.append(at, np.log(scale))
            return -tobit_likelihood(rows, model, at)[0]

        start = truth(scale or SCALE)
        best = minimize(cost, start if scale is None else start[:-1], tol=1e-10)
        assert fit.value == pytest.approx(-best.fun, abs=1e-8)
        assert (np.diff([sum(terms) for terms in fit.terms]) > -1e-3).all()


@pytest.mark.parametrize("model", [TobitModel(0.5), TobitModel(0.5, scale=0.7)], ids=str)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("offset", "spread"), [(0.0, 1e6), (1e4, 1.0), (-2e5, 1e-4)])
def test_units_do_not_matter(model, unit, offset, spread):
    rows = tobit_world(2_000, 0.5)
    moved = replace(
        rows,
        features=rows.features * [1, spread, 1] + [0, offset, 0],
        label=rows.label * unit + 3 * unit,
    )
    scale = model.scale if model.scale == "estimate" else model.scale * unit
    moved_model = replace(model, scale=scale)
    fit, other = fit_tobit(rows, model), fit_tobit(moved, moved_model)
    assert other.converged
    assert other.n_iter <= fit.n_iter + 1
    np.testing.assert_allclose(other.coef * [1, spread, 1] / unit, fit.coef, rtol=1e-5)
    np.testing.assert_allclose(
        other.selection_coef * [1, spread, 1], fit.selection_coef, rtol=1e-5
    )
    index = moved.features @ other.coef + other.intercept
    expected = (rows.features @ fit.coef + fit.intercept + 3) * unit
    np.testing.assert_allclose(index, expected, atol=1e-5 * unit)
    assert other.scale == pytest.approx(fit.scale * unit)
    # The density of a label has the unit of one over the label.
    share = rows.selected.mean()
    assert other.value == pytest.approx(fit.value - share * np.log(unit))
    assert tobit_likelihood(moved, moved_model, parameters(other))[0] == pytest.approx(other.value)
    np.testing.assert_allclose(other.terms[-1].sum(), other.value)
    probit, moved_probit = fit_probit(rows), fit_probit(moved)
    assert moved_probit[2]
    np.testing.assert_allclose(moved_probit[0] * [1, spread, 1], probit[0], rtol=1e-5)
    again = fit_tobit(moved, moved_model, other)
    assert again.n_iter <= 1


def test_penalty_is_that_of_the_features_as_they_came():
    rows = tobit_world(500, 0.4)
    rows = replace(rows, features=rows.features * [1, 10, 0.1] + [0, 5, 0])
    model = TobitModel(0.4, penalty=0.05)
    fit = fit_tobit(rows, model)
    value, gradient, *_ = tobit_likelihood(rows, model, parameters(fit))
    assert value == pytest.approx(fit.value)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    coef, intercept, _ = fit_probit(rows, 0.05)
    sign = np.where(rows.selected, 1, -1)
    index = rows.features @ coef + intercept
    slope = (sign * mills_ratio(sign * index)) @ rows.features / len(index)
    np.testing.assert_allclose(slope, 0.05 * coef, atol=1e-6)


@pytest.mark.parametrize("penalty", [0.0, 0.001])
def test_constant_feature(penalty):
    rows = tobit_world(500, 0.4)
    more = replace(rows, features=np.column_stack([rows.features, np.full(500, 1e4 / 3)]))
    model = TobitModel(0.4, penalty=penalty)
    fit, other = fit_tobit(rows, model), fit_tobit(more, model)
    np.testing.assert_allclose(other.coef, [*fit.coef, 0], atol=1e-10)
    np.testing.assert_allclose(other.selection_coef, [*fit.selection_coef, 0], atol=1e-10)
    assert other.intercept == pytest.approx(fit.intercept)
    assert fit_probit(more, penalty)[0][-1] == 0


def test_steps_that_did_not_suffice_are_reported(monkeypatch):
    monkeypatch.setattr(_solve, "_MAX_ITER", 1)
    assert not fit_probit(tobit_world(500, 0.4))[2]
    assert not fit_tobit(tobit_world(500, 0.4), TobitModel(0.4)).converged


def test_gamma_zero_is_least_squares_and_a_probit():
    rows = tobit_world(2_000, 0.3)
    fit = fit_tobit(rows, TobitModel(0.0))
    squares, *_ = np.linalg.lstsq(rows.design[rows.selected], rows.label[rows.selected])
    # Newton's method ends where a step gains 1e-12 of the mean log-likelihood: 1e-6 times the
    # standard deviation of what one row tells of a coefficient, which is up to some units.
    near = 1e-5
    np.testing.assert_allclose(np.append(fit.coef, fit.intercept), squares, atol=near)
    coef, intercept, converged = fit_probit(rows)
    assert converged
    np.testing.assert_allclose(fit.selection_coef, coef, atol=near)
    assert fit.selection_intercept == pytest.approx(intercept, abs=near)


def test_gamma_is_estimated():
    profile = profile_gamma(tobit_world(100_000, 0.4), TobitModel(0.0))
    assert profile.gamma == pytest.approx(0.4, abs=0.05)
    low, high = profile.interval
    assert low < 0.4 < high < low + 0.15
    assert low < profile.likeliest < high


def test_interval_covers_the_truth():
    """In 40 worlds of 1,000 rows; 95 % would miss 2."""
    missed = 0
    for seed in range(40):
        low, high = profile_gamma(tobit_world(1_000, 0.4, seed), TobitModel(0.0)).interval
        missed += not low <= 0.4 <= high
    assert missed <= 6


def test_interval_covers_the_truth_with_unequal_weights():
    """1,000 rows that weigh as some 100 do; counted as 1,000 they miss 7 times of 20."""
    missed = 0
    for seed in range(20):
        rows = tobit_world(1_000, 0.4, seed)
        weight = np.exp(1.5 * np.random.default_rng(seed).normal(size=1_000))
        low, high = profile_gamma(replace(rows, weight=weight), TobitModel(0.0)).interval
        missed += not low <= 0.4 <= high
    assert missed <= 3


def test_interval_is_wide_where_little_is_known():
    """Without a feature that moves selection, only the shape of the errors tells of it.

    By chance one world of twelve has a shape that seems to tell: four of seven do in 1 of 1,000.
    """
    width = []
    for seed in range(7):
        rows = tobit_world(300, 0.4, seed, omega=np.zeros(3))
        low, high = profile_gamma(rows, TobitModel(0.0)).interval
        assert -GAMMA_BOUND <= low < high <= GAMMA_BOUND
        width.append(high - low)
    assert np.median(width) > 1.5


def test_separable_selection_needs_a_penalty_and_converges_with_it():
    features = np.linspace(-1, 1, 40)[:, None]
    selected = features[:, 0] > 0.5
    rows = SelectedRows(features, np.sin(40 * features[:, 0]), selected, np.ones(40))
    fit = fit_tobit(rows, TobitModel(0.3, penalty=1e-3))
    assert fit.converged
    assert np.isfinite(fit.selection_coef).all()


def test_probit_far_out():
    rows = SelectedRows(
        np.array([[-40.0], [40.0], [0.0]]), np.zeros(3), np.array([1, 0, 1]) > 0, np.ones(3)
    )
    coef, intercept, _ = fit_probit(rows, penalty=1e-3)
    gradient = coef[0] * 1e-3 * 3
    index = rows.features[:, 0] * coef[0] + intercept
    signs = np.where(rows.selected, 1, -1)
    assert (signs * mills_ratio(signs * index)) @ rows.features[:, 0] == pytest.approx(gradient)
    assert np.isfinite(log_ndtr(index)).all()
