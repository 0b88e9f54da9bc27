"""Newton's method, and the likelihood of where the clicks of a group fell."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax
from sklearn.exceptions import ConvergenceWarning

from skultr._models._solve import GroupedLogit, maximise, minimised, solve_within


def _logistic(design, hits):
    """Objective of a logistic regression."""

    def objective(point):
        p = expit(design @ point)
        value = log_expit(np.where(hits, 1, -1) * (design @ point)).sum()
        return value, design.T @ (hits - p), (design * (p * (1 - p))[:, None]).T @ design

    return objective


@pytest.fixture
def design():
    return np.column_stack([np.ones(200), np.random.default_rng(0).normal(size=(200, 2))])


@pytest.fixture
def hits(design):
    return np.random.default_rng(1).random(200) < expit(design @ [-0.5, 1.0, 2.0])


def test_maximum_is_where_the_gradient_is_zero(design, hits):
    objective = _logistic(design, hits)
    found = maximise(objective, np.zeros(3))
    assert found.converged
    np.testing.assert_allclose(objective(found.at)[1], 0, atol=1e-5)
    best = minimize(lambda at: -objective(at)[0], np.zeros(3), tol=1e-10)
    np.testing.assert_allclose(found.at, best.x, atol=1e-4)
    assert found.value == pytest.approx(-best.fun)


def test_quadratic_needs_one_step():
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    top = np.array([1.0, -2.0])

    def objective(at):
        away = at - top
        return -0.5 * away @ matrix @ away, -matrix @ away, matrix

    found = maximise(objective, np.zeros(2))
    np.testing.assert_allclose(found.at, top, atol=1e-8)
    assert (found.n_iter, found.converged) == (1, True)
    # With a bound at -1 on the second, the first is best where its own slope is 0.
    bounds = np.full(2, -1.0), np.full(2, np.inf)
    found = maximise(objective, np.zeros(2), bounds=bounds)
    np.testing.assert_allclose(found.at, [0.5, -1.0], atol=1e-8)
    assert found.converged


@pytest.mark.parametrize(("slope", "warns"), [(1e-4, False), (5e-3, True), (0.1, True)])
def test_a_search_that_stopped_on_a_slope_is_inexact_and_on_a_plain_is_none(slope, warns):
    """SciPy calls a line search that gains no more than rounding a failure."""

    def loss(at):
        return slope * at[0], np.array([slope])

    stopped = {"jac": True, "method": "BFGS", "options": {"maxiter": 0}}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        minimised(loss, np.array([0.5]), "This estimate", **stopped)
    said = [str(each.message) for each in found if each.category is ConvergenceWarning]
    assert len(said) == warns
    assert all("This estimate did not converge" in each for each in said)


def test_flat_direction_stays_where_it_was(design, hits):
    twice = np.column_stack([design, design[:, 2]])
    found = maximise(_logistic(twice, hits), np.array([0.0, 0.0, 0.3, 0.1]))
    alone = maximise(_logistic(design, hits), np.zeros(3))
    assert found.converged
    assert found.at[2] - found.at[3] == pytest.approx(0.2, abs=1e-4)
    assert found.at[2] + found.at[3] == pytest.approx(alone.at[2], abs=1e-4)


def test_separated_clicks_do_not_converge(design):
    found = maximise(_logistic(design, design[:, 1] > 0), np.zeros(3))
    assert not found.converged
    assert found.value == pytest.approx(0, abs=1e-6)


def test_problems_side_by_side_are_those_alone(design, hits):
    objectives = [_logistic(design, each) for each in (hits, ~hits)]

    def both(points):
        found = [own(at) for own, at in zip(objectives, points, strict=True)]
        return [np.stack(each) for each in zip(*found, strict=True)]

    def steps(curvature, gradient):
        return np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]

    found = maximise(both, np.zeros((2, 3)), solve=steps)
    assert found.converged
    for objective, at in zip(objectives, found.at, strict=True):
        np.testing.assert_allclose(at, maximise(objective, np.zeros(3)).at, atol=1e-6)


def test_a_function_without_a_value_does_not_hold_up_the_one_beside_it(design, hits):
    objective = _logistic(design, hits)
    n_calls = 0

    def both(points):
        nonlocal n_calls
        n_calls += 1
        assert n_calls < 1_000, "the search for a shorter step does not end"
        found = [objective(at) for at in points]
        values, gradients, curvatures = (np.stack(each) for each in zip(*found, strict=True))
        values[1] = np.nan
        return values, gradients, curvatures

    def steps(curvature, gradient):
        return np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]

    found = maximise(both, np.zeros((2, 3)), solve=steps)
    assert not found.converged
    np.testing.assert_allclose(found.at[0], maximise(objective, np.zeros(3)).at, atol=1e-6)
    np.testing.assert_array_equal(found.at[1], 0.0)


def test_step_within_bounds_is_the_best_one():
    rng = np.random.default_rng(0)
    for _ in range(20):
        half, gradient = rng.normal(size=(4, 4)), 3 * rng.normal(size=4)
        low, high = -rng.random(4), rng.random(4)
        curvature = half @ half.T
        step = solve_within(curvature, gradient, low, high)
        slope = gradient - curvature @ step
        assert ((low - 1e-9 <= step) & (step <= high + 1e-9)).all()
        # Where the slope is not 0, it points out of the bounds.
        assert ((step <= low + 1e-9) | (slope > -1e-5)).all()
        assert ((step >= high - 1e-9) | (slope < 1e-5)).all()


# Where clicks fell --------------------------------------------------------------------
LIST = np.array([0, 1, 0, 0, 2, 1, 2, 0])  # in any order; list 2 has no click
CLICKS = np.array([1.0, 0.5, 0.0, 2.0, 0.0, 1.5, 0.0, 1.0])
FACTOR = np.array([0, 0, 1, 2, 1, 1, 0, 3])
LOGITS = np.linspace(-1, 2, 8)


def _log_likelihood(logits):
    return sum(
        CLICKS[row] * np.log(np.exp(logits[row]) / np.exp(logits[LIST[row] == LIST]).sum())
        for row in range(8)
    )


def test_loss_is_that_of_drawing_the_rows_of_clicks():
    choice = GroupedLogit.from_rows(LIST, CLICKS)
    assert choice.n_clicks == 6
    assert choice.loss(LOGITS) * 6 == pytest.approx(-_log_likelihood(LOGITS))
    assert choice.list_losses(LOGITS).sum() == pytest.approx(-_log_likelihood(LOGITS))


def test_shares_and_information_by_enumeration():
    """The information is the covariance of the clicks of each effect, one click at a time."""
    choice = GroupedLogit.from_rows(LIST, CLICKS)
    shares = choice.shares(LOGITS)
    covariance = np.zeros((4, 4))
    for each in (0, 1):
        rows = np.flatnonzero(each == LIST)
        chance = np.exp(LOGITS[rows]) / np.exp(LOGITS[rows]).sum()
        np.testing.assert_allclose(shares[choice.list_ == each], chance)
        drawn = np.eye(4)[FACTOR[rows]]
        mean = chance @ drawn
        for p, row in zip(chance, drawn, strict=True):
            covariance += CLICKS[rows].sum() * p * np.outer(row - mean, row - mean)
    known = choice.information(shares, FACTOR[choice.rows], 4)
    np.testing.assert_allclose(known.dense(), covariance, atol=1e-12)
    np.testing.assert_allclose(known @ np.eye(4), covariance, atol=1e-12)
    np.testing.assert_allclose(known.diagonal, np.diag(covariance))


def test_gradient_and_information_are_the_slopes_of_the_loss():
    choice, step = GroupedLogit.from_rows(LIST, CLICKS), 1e-5

    def gradient(effect):
        surplus = choice.clicks - choice.expected(choice.shares(LOGITS + effect[FACTOR]))
        return np.bincount(FACTOR[choice.rows], surplus, 4)

    known = choice.information(choice.shares(LOGITS), FACTOR[choice.rows], 4)
    for k, unit in enumerate(step * np.eye(4)):
        up, down = (_log_likelihood(LOGITS + sign * unit[FACTOR]) for sign in (1, -1))
        assert gradient(np.zeros(4))[k] == pytest.approx((up - down) / (2 * step), abs=1e-6)
        bend = (gradient(-unit) - gradient(unit)) / (2 * step)
        np.testing.assert_allclose(known.dense()[k], bend, atol=1e-6)


def test_information_of_parts_adds_up():
    choice = GroupedLogit.from_rows(LIST, CLICKS)
    whole = choice.information(choice.shares(LOGITS), FACTOR[choice.rows], 4)
    halves = [LIST == 0, LIST > 0]
    parts = []
    for rows in halves:
        part = GroupedLogit.from_rows(LIST[rows], CLICKS[rows])
        shares = part.shares(LOGITS[rows])
        parts.append(part.information(shares, FACTOR[rows][part.rows], 4))
    np.testing.assert_allclose((parts[0] + parts[1]).dense(), whole.dense(), atol=1e-12)


def test_likeliest_weights_are_where_no_step_helps():
    rng = np.random.default_rng(0)
    list_, scores = np.repeat(np.arange(300), 4), rng.normal(size=(1200, 3))
    seen = -0.5 * np.tile(np.arange(4.0), 300)
    chance = scores @ [1.0, 0.3, -0.5] + seen + rng.gumbel(size=1200)
    clicks = (chance.reshape(300, 4) == chance.reshape(300, 4).max(axis=1)[:, None]).ravel() * 1.0
    choice = GroupedLogit.from_rows(list_, clicks)
    best = choice.best_weights(scores, seen)
    # No weight is negative. The free one is -.5, six standard errors of 300 choices below 0.
    assert best[2] == 0

    def loss(weights):
        logits = (scores @ weights + seen).reshape(300, 4)
        return -(clicks.reshape(300, 4) * log_softmax(logits, axis=1)).sum()

    # By another solver and formula, whose numeric gradients leave errors of a few 1e-4.
    expected = minimize(loss, np.ones(3), bounds=[(0, None)] * 3).x
    np.testing.assert_allclose(best, expected, atol=1e-3)

    def value(weights):
        return -choice.list_losses(scores @ weights + seen).sum()

    for step in np.vstack([1e-3 * np.eye(3), -1e-3 * np.eye(3)]):
        assert value(np.maximum(best + step, 0)) <= value(best)


@pytest.mark.parametrize("n_factors", [4, 200])
def test_likeliest_mix_is_where_no_step_helps(n_factors):
    """Few factors are solved by least squares, many by iterations."""
    rng = np.random.default_rng(0)
    list_, scores = np.repeat(np.arange(300), 4), rng.normal(size=(1200, 2))
    factor = rng.integers(n_factors, size=1200)
    chance = scores @ [1.0, -0.5] - 0.5 * factor / n_factors + rng.gumbel(size=1200)
    clicks = (chance.reshape(300, 4) == chance.reshape(300, 4).max(axis=1)[:, None]).ravel() * 1.0
    choice, offset = GroupedLogit.from_rows(list_, clicks), rng.normal(size=1200) / 10
    center = np.append(np.zeros(n_factors), [0.4, 0.4])
    best = np.concatenate(choice.likeliest_mix(scores, factor, offset, center, 50.0))
    strength = np.append(np.full(n_factors, 1 / 9), [50.0, 50.0])

    def value(x):
        logits = scores @ x[n_factors:] + x[factor] + offset
        return -choice.list_losses(logits).sum() - 0.5 * strength @ (x - center) ** 2

    for place in [0, 1, 2, 3, n_factors, n_factors + 1]:
        for step in (1e-2, -1e-2):
            moved = best.copy()
            moved[place] += step
            assert value(moved) <= value(best) or (moved[place] < 0 and place >= n_factors)


@pytest.mark.parametrize("n_factors", [4, 150])
def test_a_mix_of_no_scores_is_effects_and_their_prior(n_factors):
    rng = np.random.default_rng(0)
    factor, clicks = rng.integers(n_factors, size=1200), (rng.random(1200) < 0.3).astype(float)
    choice = GroupedLogit.from_rows(np.repeat(np.arange(300), 4), clicks)
    none, center = np.empty((1200, 0)), np.zeros(n_factors)
    effects, weights = choice.likeliest_mix(none, factor, np.zeros(1200), center)
    surplus = choice.clicks - choice.expected(choice.shares(effects[factor]))
    slope = np.bincount(factor[choice.rows], surplus, n_factors) - effects / 9
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    assert len(weights) == 0


def test_more_scores_than_are_factors_elsewhere():
    rng = np.random.default_rng(0)
    scores, clicks = rng.normal(size=(2000, 120)), np.tile([1.0, 0, 0, 0], 500)
    choice = GroupedLogit.from_rows(np.repeat(np.arange(500), 4), clicks)
    best = choice.best_weights(scores, np.zeros(2000))
    surplus = choice.clicks - choice.expected(choice.shares(scores @ best))
    slope = scores[choice.rows].T @ surplus
    np.testing.assert_allclose(slope[best > 0], 0, atol=1e-4)
    assert (slope[best == 0] <= 1e-4).all()


def test_examination_of_factors_without_a_click_is_at_its_bound():
    factor = np.tile([0, 1, 2], 50)
    clicks = np.tile([1.0, 1.0, 0.0], 50)
    choice = GroupedLogit.from_rows(np.repeat(np.arange(50), 3), clicks)
    found = choice.likeliest_examination(np.zeros(150), factor, np.zeros(4))
    assert found[0] == pytest.approx(found[1])
    assert found[2] < found[0] - 10
    assert np.isnan(found[3])  # of no list


def test_thousands_of_factors_have_the_solution_of_few():
    rng = np.random.default_rng(0)
    list_, factor = np.repeat(np.arange(4000), 3), rng.integers(2000, size=12_000)
    few = GroupedLogit.from_rows(list_, (rng.random(12_000) < 0.4).astype(float))
    start = np.zeros(2000)
    found = few.likeliest_examination(start[factor], factor, start)
    surplus = few.clicks - few.expected(few.shares(np.nan_to_num(found)[factor]))
    slope = np.bincount(factor[few.rows], surplus, 2000)
    inside = np.abs(np.nan_to_num(found)) < 11.9
    np.testing.assert_allclose(slope[inside], 0, atol=1e-3)


def test_without_clicks_nothing_is_estimated():
    choice = GroupedLogit.from_rows(LIST, np.zeros(8))
    assert np.isnan(choice.likeliest_examination(LOGITS, FACTOR, np.zeros(4))).all()
    np.testing.assert_allclose(choice.best_weights(LOGITS[:, None], np.zeros(8)), 0.5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1e4, 1e5, 1e6, 1e9])
def test_scores_of_any_size_have_a_best_weight(unit):
    """Without curvature, as exponentials vanish, a step is long but does not overflow."""
    scores = np.random.default_rng(1).normal(size=(2000, 1))
    choice = GroupedLogit.from_rows(np.repeat(np.arange(500), 4), np.tile([1.0, 0, 0, 0], 500))
    best = choice.best_weights(scores, np.zeros(2000))
    np.testing.assert_allclose(unit * choice.best_weights(unit * scores, np.zeros(2000)), best)
