"""Means over queries by few trusted labels and many cheap ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skultr.metrics._query_means import bootstrap
from skultr.metrics._two_judges import JudgedQueries, two_judges

LEVEL = 0.95


def world(rng, n_trusted, n_queries, correlation):
    """Differences of a mean of 0, and those of a judge of another scale and mean."""
    truth = rng.normal(size=n_queries)
    noise = rng.normal(size=n_queries)
    cheap = correlation * truth + np.sqrt(1 - correlation**2) * noise
    trusted = np.where(np.arange(n_queries) < n_trusted, truth, np.nan)
    return JudgedQueries(trusted[:, None], 0.5 * cheap[:, None] + 3, ~np.isnan(trusted))


def intervals(make, n_runs, n_resamples=299):
    """Means, ends and widths over those of the trusted labels alone, of many samples."""
    rows = []
    for seed in range(n_runs):
        queries = make(np.random.default_rng(seed))
        rng = np.random.RandomState(seed)
        found = two_judges(queries, LEVEL, n_resamples, rng)
        trusted = queries.trusted[queries.is_trusted]
        alone = bootstrap(trusted, len(trusted), LEVEL, n_resamples, rng)
        width = (alone[1] - alone[0]).item()
        ratio = (found.upper - found.lower).item() / width
        rows.append([found.value.item(), found.lower.item(), found.upper.item(), ratio])
    return np.array(rows).T


@pytest.mark.parametrize("correlation", [0.0, 0.7, 0.95])
@pytest.mark.parametrize("n_trusted", [20, 100])
def test_intervals_hold_the_mean_of_all(n_trusted, correlation):
    value, lower, upper, ratio = intervals(
        lambda rng: world(rng, n_trusted, 3_000, correlation), n_runs=200
    )
    covered = (lower <= 0) & (upper >= 0)
    assert covered.mean() > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)
    # An estimate without bias, and of the width that theory gives.
    assert abs(value.mean()) < 3 * value.std() / np.sqrt(200)
    theory = np.sqrt(1 - correlation**2 * (1 - n_trusted / 3_000))
    assert_allclose(ratio.mean(), theory, rtol=0.1)


def test_resamples_know_that_the_weight_is_an_estimate():
    """Few of 50 queries differ, and decide the weight, which varies with them."""

    def make(rng):
        truth = np.where(rng.random(500) < 0.7, 0.0, rng.exponential(size=500) - 0.2)
        error = rng.exponential(size=500) - 1
        cheap = 0.95 * truth / np.sqrt(0.3 * 1.64 - 0.24**2) + np.sqrt(1 - 0.95**2) * error
        is_trusted = np.arange(500) < 50
        trusted = np.where(is_trusted, truth - 0.24, np.nan)
        return JudgedQueries(trusted[:, None], cheap[:, None], is_trusted)

    _, lower, upper, ratio = intervals(make, n_runs=1_000)
    # At least what they say. Of 6,000 other samples .973 were covered: four standard errors of
    # 1,000 more. With one weight for all resamples it is .92, as far below.
    assert np.mean((lower <= 0) & (upper >= 0)) > LEVEL
    # The typical one is less than half as wide: the median of 6,000 is .42.
    assert np.median(ratio) < 0.5


def test_p_value_is_dual_to_the_interval():
    for seed in range(30):
        queries = world(np.random.default_rng(seed), 30, 500, 0.7)
        shifted = queries._replace(trusted=queries.trusted + 0.25)
        found = two_judges(shifted, LEVEL, 999, np.random.RandomState(seed))
        holds_0 = (found.lower <= 0) & (found.upper >= 0)
        assert (found.p_value >= 0.04).item() or not holds_0.item()
        assert (found.p_value <= 0.06).item() or holds_0.item()


def test_clusters_that_are_trusted_in_part():
    """Two of the five queries of each of 30 needs have trusted labels."""
    need = np.repeat(np.arange(80), 5)
    is_trusted = (need < 30) & (np.arange(400) % 5 < 2)

    def make(rng):
        truth = rng.normal(0, 1, 80)[need] + rng.normal(0, 0.3, 400)
        cheap = truth + rng.normal(0, 0.3, 400)
        trusted = np.where(is_trusted, truth, np.nan)[:, None]
        return JudgedQueries(trusted, cheap[:, None], is_trusted, need)

    _, lower, upper, _ = intervals(make, n_runs=200)
    assert np.mean((lower <= 0) & (upper >= 0)) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)
    _, lower, upper, _ = intervals(lambda rng: make(rng)._replace(cluster=None), n_runs=200)
    assert np.mean((lower <= 0) & (upper >= 0)) < 0.9  # queries of a need are alike


def test_several_means_are_found_as_one_by_one():
    first = world(np.random.default_rng(0), 40, 500, 0.7)
    second = world(np.random.default_rng(1), 40, 500, 0.2)
    both = JudgedQueries(
        np.hstack([first.trusted, second.trusted]),
        np.hstack([first.cheap, second.cheap]),
        first.is_trusted,
    )
    found = two_judges(both, LEVEL, 199, np.random.RandomState(0))
    for column, queries in enumerate((first, second)):
        alone = two_judges(queries, LEVEL, 199, np.random.RandomState(0))
        for name in ("value", "lower", "upper", "p_value", "weight"):
            assert_allclose(getattr(found, name)[column], getattr(alone, name).item())


@pytest.mark.parametrize("scale", [1e-3, 10.0])
def test_the_scale_and_mean_of_the_judge_change_nothing(scale):
    queries = world(np.random.default_rng(0), 40, 500, 0.7)
    expected = two_judges(queries, LEVEL, 199, np.random.RandomState(0))
    other = queries._replace(cheap=scale * queries.cheap - 5)
    found = two_judges(other, LEVEL, 199, np.random.RandomState(0))
    assert_allclose(found.upper, expected.upper)
    assert_allclose(found.weight * scale, expected.weight)


def test_resamples_in_which_the_judge_finds_no_difference():
    """Of 12 queries the judge sees a difference in one, which a third of the resamples lack."""
    trusted = np.full(300, np.nan)
    trusted[:12] = np.linspace(-0.1, 0.3, 12)
    cheap = np.zeros(300)
    cheap[::12] = 0.1
    queries = JudgedQueries(trusted[:, None], cheap[:, None], ~np.isnan(trusted))
    with np.errstate(all="raise"):
        found = two_judges(queries, LEVEL, 499, np.random.RandomState(0))
    assert found.lower < found.value < found.upper


def test_a_random_draw_is_not_told_from_all():
    """Also where few of 20 queries differ, so that their own spread is small by chance."""
    apart = {"drawn": [], "best": []}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        cheap = np.where(rng.random(500) < 0.6, 0.0, rng.exponential(size=500))
        for name, values in (("drawn", cheap), ("best", -np.sort(-cheap))):
            is_trusted = np.arange(500) < 20
            trusted = np.where(is_trusted, values, np.nan)[:, None]
            queries = JudgedQueries(trusted, values[:, None], is_trusted)
            found = two_judges(queries, LEVEL, 1, np.random.RandomState(0))
            apart[name].append(abs(found.apart.item()))
    assert max(apart["drawn"]) < 4
    assert np.mean(np.array(apart["drawn"]) > 1.96) < 0.1
    assert min(apart["best"]) > 4


def test_one_trusted_query_tells_nothing():
    queries = world(np.random.default_rng(0), 1, 50, 0.7)
    found = two_judges(queries, LEVEL, 99, np.random.RandomState(0))
    assert not found.helps(np.array([-1e9]), np.array([1e9])).item()
    assert np.isnan(found.lower).item()
