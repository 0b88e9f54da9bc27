"""CLDRanker where chance in clicks is most of what labels vary by, in a world of known truth."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skultr import CLDRanker
from skultr._log._clicklog import sort_into_lists
from skultr._log._reader import read
from skultr.exceptions import ClickDataWarning, NotIdentifiableWarning
from skultr.rankers._tobit import (
    GAMMAS,
    ClickChance,
    GammaProfile,
    SelectedRows,
    TobitModel,
    find_candidates,
    fit_tobit,
    profile_gamma,
)
from tests._worlds import top_k_log

#: Of relevance in units of its error, and of selection.
BETA, OMEGA, UNIT = np.array([1, -0.5, 0.3, 0]), np.array([0.8, 0.2, -0.4, 0.5]), 0.08
PROPENSITY = 1 / np.arange(1, 21)
ROWS = {"loss": "pointwise", "hidden_layer_sizes": (), "scale_features": False, "alpha": 0.0}


def world(impressions, rho, seed):
    """500 queries of 20, each document behind a threshold of its own, at random positions."""
    rng = np.random.default_rng(seed)
    X, error = rng.normal(size=(10_000, 4)), rng.normal(size=10_000)
    other = rho * error + np.sqrt(1 - rho**2) * rng.normal(size=10_000)
    relevance = np.clip(0.5 + UNIT * (X @ BETA + error), 0, 1)
    log = pd.DataFrame(X, columns=list("abcd"))
    log["qid"], log["doc"] = np.arange(10_000) // 20, np.arange(10_000)
    shown = X @ OMEGA - 0.8 + other > 0
    place = pd.Series(np.where(shown, rng.random(10_000), np.nan)).groupby(log["qid"]).rank()
    log["position"], log["impressions"] = place, impressions
    clicks = rng.binomial(impressions, relevance / place.fillna(1)) / impressions
    return log, np.where(shown, clicks, 0.0)


def squared_error(log, clicks, **settings):
    known = {"propensity": PROPENSITY[: int(log["position"].max())]}
    ranker = CLDRanker(**known, **ROWS, **settings).fit(log, clicks)
    return np.mean((ranker.coef_ / UNIT - BETA) ** 2)


def test_coefficients_with_the_true_correlation():
    """One scale for all rows had an RMSE of .097; the noise by row has .022."""
    by_row, one_scale = [], []
    for seed in range(3):
        log, clicks = world(200, 0.5, seed)
        by_row.append(squared_error(log, clicks, gamma=0.5))
        one_scale.append(squared_error(log, clicks, gamma=0.5, scale=0.2))
    assert np.sqrt(np.mean(by_row)) < 0.035
    assert np.sqrt(np.mean(one_scale)) > 2 * np.sqrt(np.mean(by_row))


def test_little_is_lost_by_the_default_where_selection_knew_nothing():
    """20 impressions: one scale for all rows had .25 with the default, .075 without."""
    logs = [world(20, 0.0, seed) for seed in range(3)]
    default, none = (
        np.sqrt(np.mean([squared_error(*log, **settings) for log in logs]))
        for settings in ({}, {"gamma": 0.0})
    )
    assert none < 0.09
    # In ten other draws .08 with a standard deviation of .018.
    assert default < 0.14


# How far the error of the estimate may lie above that of the better of two, with three standard
# deviations of ten other draws: 1.1 + 3 * .12 and 1.75 + 3 * .3.
@pytest.mark.parametrize(("impressions", "rho", "ratio"), [(20, 0.0, 1.5), (200, 0.5, 2.7)])
def test_interval_covers_or_a_warning_says_that_nothing_is_known(impressions, rho, ratio):
    """Of 5 logs; studies/cld.py click_noise has 40. The estimate is better than the worse of two:
    none, which loses where selection knew much, and the likeliest, where it knew nothing."""
    good, errors = 0, []
    for seed in range(5):
        log, clicks = world(impressions, rho, seed)
        known = {"propensity": PROPENSITY[: int(log["position"].max())], **ROWS}
        ranker = CLDRanker(gamma="estimate", **known)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ranker.fit(log, clicks)
        warned = [each for each in caught if each.category is NotIdentifiableWarning]
        low, high = ranker.gamma_interval_
        determined = low > -0.98 and high < 0.98 and high - low <= 1
        best = ranker.gamma_profile_["log_likelihood"].idxmax()
        assert low <= best <= high
        assert determined == (not warned)
        good += not determined or low <= rho <= high
        found = [ranker, *(CLDRanker(gamma=each, **known).fit(log, clicks) for each in (0, best))]
        errors.append([np.mean((each.coef_ / UNIT - BETA) ** 2) for each in found])
    # Where 95 % are, fewer than 3 of 5 have a chance of .1 %.
    assert good >= 3
    estimate, none, likeliest = np.sqrt(np.mean(errors, axis=0))
    assert estimate < ratio * min(none, likeliest)
    assert estimate < 0.95 * max(none, likeliest)


def test_a_log_that_contradicts_the_model_leaves_the_mean_of_the_prior():
    fit = fit_tobit(rows_of(0, np.zeros(4_000)), TobitModel(0.0))
    bound = GammaProfile(fit, 80 * GAMMAS)
    assert bound.gamma == pytest.approx(0.1, abs=0.005)
    assert not bound.is_known
    inside = GammaProfile(fit, -200 * (GAMMAS - 0.8) ** 2)
    assert inside.gamma == pytest.approx(0.8, abs=0.1)
    assert inside.interval == pytest.approx((0.702, 0.898), abs=0.004)
    assert inside.is_known


def test_chance_is_the_variance_of_labels():
    """Clicks over propensities, drawn anew: 30 impressions at position 1 and 50 at position 4."""
    rng = np.random.default_rng(0)
    rate, trials, examination = 0.3, np.array([30, 50]), np.array([1.0, 0.25])
    clicks = rng.binomial(trials, rate * examination, size=(200_000, 2))
    labels = (clicks / examination).sum(axis=1) / trials.sum()
    inverse = (trials / examination).sum() / trials.sum()
    chance = ClickChance(np.array([80.0, 0.0]), np.array([1 / inverse, 1.0]), rate)
    np.testing.assert_allclose(chance.variance, [labels.var(), 0.0], rtol=0.02)
    draws = [chance.draw(np.array([True, False]), np.array([rate]), rng) for _ in range(20_000)]
    assert np.mean(draws) == pytest.approx(rate, abs=0.003)
    assert np.var(draws) == pytest.approx(chance.variance[0], rel=0.05)


def test_chance_of_the_candidates_of_a_log():
    frame = pd.DataFrame(
        {
            "qid": 0,
            "doc": [7, 8, 9, 8, 7],
            "session": [0, 0, 0, 1, 1],
            "position": [1, 2, np.nan, 1, 2],
            "impressions": [30, 30, 30, 10, 10],
            "x": [1.0, 2.0, 3.0, 2.0, 1.0],
        }
    )
    rows = read(frame, [0.5, 0.2, 0, 0.5, 0.1], None, {})
    log = sort_into_lists(rows, frame[["x"]].to_numpy(), candidates=True)
    propensity = np.where(log.position == 2, 0.5, 1.0)
    rows = find_candidates(log, log.clicks / propensity, 1.0, propensity)
    assert rows.chance.trials.tolist() == [40, 40, 0]
    np.testing.assert_allclose(rows.chance.examination, [40 / 50, 40 / 70, 1])
    assert rows.chance.rate == pytest.approx((15 + 6 + 5 + 1) / (30 + 15 + 10 + 5))


def rows_of(seed, noise):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4_000, 2))
    errors = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 4_000)
    label = X @ [0.5, -0.3] + 0.7 * errors[:, 0] + np.sqrt(noise) * rng.normal(size=4_000)
    selected = X @ [0.9, 0.5] - 0.3 + errors[:, 1] > 0
    label = np.where(selected, label, np.nan)
    return SelectedRows(X, label, selected, np.ones(4_000), noise, np.arange(4_000))


def test_scale_is_that_without_chance():
    noise = np.random.default_rng(1).choice([0.0, 1.0, 4.0], 4_000)
    fits = [fit_tobit(rows_of(seed, noise), TobitModel(0.5)) for seed in range(5)]
    assert np.mean([fit.scale for fit in fits]) == pytest.approx(0.7, abs=0.03)
    coef = np.mean([fit.coef for fit in fits], axis=0)
    np.testing.assert_allclose(coef, [0.5, -0.3], atol=0.04)


def test_nothing_but_chance():
    """Labels vary less than chance alone: the scale goes to 0, and the fit ends."""
    rows = rows_of(0, np.zeros(4_000))
    fit = fit_tobit(replace(rows, noise=np.full(4_000, 100.0)), TobitModel(0.5))
    assert fit.converged
    assert fit.scale < 0.01
    assert np.isfinite(fit.coef).all()


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
def test_rates_without_their_impressions_are_reported():
    """Taken for single clicks they vary less than chance alone would make them."""
    log, clicks = world(200, 0.5, 0)
    known = {"propensity": PROPENSITY[: int(log["position"].max())]}
    with pytest.warns(ClickDataWarning, match="no more than chance"):
        ranker = CLDRanker(**known, **ROWS).fit(log.drop(columns="impressions"), clicks)
    # That of the labels without chance is more than .08.
    assert ranker.scale_ < 1e-3
    for settings in ({}, {"scale": 0.2}, {"gamma": 0.0}):
        X = log if not settings else log.drop(columns="impressions")
        CLDRanker(**known, **ROWS, **settings).fit(X, clicks)  # warnings are errors here


def test_interval_knows_which_rows_belong_together():
    """Four copies of each row are no more rows than three, if they are of one query."""
    rows = rows_of(0, np.full(4_000, 0.3))

    def copies(n):
        columns = rows.label, rows.selected, rows.weight, rows.noise, rows.query
        return SelectedRows(
            np.tile(rows.features, (n, 1)), *(np.tile(each, n) for each in columns)
        )

    once, three, four, wrong = (
        profile_gamma(each, TobitModel(0.0)).interval
        for each in (rows, copies(3), copies(4), replace(copies(4), query=None))
    )
    # The same but for rounding to the grid. Rows that nothing belongs to are held to be
    # independent at least, so that theirs may be wider.
    np.testing.assert_allclose(four, three, atol=0.005)
    assert four[1] - four[0] < once[1] - once[0] + 0.03
    # Four times the rows halve an interval, one near the bounds somewhat more.
    assert wrong[1] - wrong[0] < 0.6 * (once[1] - once[0])


def test_a_scale_that_is_given_is_that_of_whole_labels():
    """As published: chance by row does not enter."""
    _, log, clicks, curve = top_k_log(n_queries=40)
    many = log.assign(impressions=1000)
    settings = {"propensity": curve, "traffic_exponent": 0.0, **ROWS}
    forms = [(log, clicks), (many, 1000 * clicks)]
    one, other = (CLDRanker(scale=0.4, **settings).fit(*form).predict(log) for form in forms)
    np.testing.assert_allclose(one, other, atol=1e-8)
    one, other = (CLDRanker(**settings).fit(*form).predict(log) for form in forms)
    assert np.abs(one - other).max() > 1e-3
