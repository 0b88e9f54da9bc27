import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import binom
from sklearn.base import clone

from skultr._log._cells import read_cells
from skultr._models._tabular import fit_tabular
from skultr.exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    NotIdentifiableError,
    NotIdentifiableWarning,
)
from skultr.propensity import (
    InterventionHarvesting,
    RandomizedPropensity,
    _comparisons,
    _harvesting,
    _swap_plans,
)
from skultr.propensity._comparisons import Comparisons, solve
from skultr.simulation import (
    MixturePolicy,
    ShufflePolicy,
    SwapPolicy,
)

from .conftest import CURVE, simulate

METHODS = ["all-pairs", "adjacent-chain", "pivot"]


def _cells(n_documents=200, n_positions=5, n_shown=3, seed=0, exact=False):
    """An aggregated log with truth: each document under some positions, unevenly often."""
    rng = np.random.default_rng(seed)
    doc = np.repeat(np.arange(n_documents), n_shown)
    position = np.concatenate([rng.permutation(n_positions)[:n_shown] for _ in range(n_documents)])
    impressions = rng.integers(1, 200, len(doc))
    chance = rng.uniform(0.1, 0.9, n_documents)[doc] * CURVE[position]
    clicks = chance * impressions if exact else rng.binomial(impressions, chance)
    X = pd.DataFrame(
        {
            "qid": doc // 2,
            "session": np.arange(len(doc)),
            "doc": doc,
            "position": position + 1,
            "impressions": impressions,
        }
    )
    return X, clicks / impressions


def _problem(seed, n_bias=5):
    """A tournament in which some pairs never met, and some sides never won."""
    rng = np.random.default_rng(seed)
    skill = np.exp(rng.normal(size=n_bias))
    clicks = rng.poisson(rng.choice([1, 30]) * skill[:, None] * np.ones((n_bias, n_bias)))
    met = rng.random((n_bias, n_bias)) < 0.8
    return np.where((met | met.T) & ~np.eye(n_bias, dtype=bool), clicks, 0).astype(float)


# Experiments ----------------------------------------------------------------------------
def _swapped(n_sessions=3_000, share_top=0.5, seed=0):
    """Lists a, b, c in which the first changes places with b or c, of different relevance."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(n_sessions):
        partner = int(rng.integers(1, 3))
        shown = [0, 1, 2]
        if rng.random() < share_top:
            shown[0], shown[partner] = shown[partner], shown[0]
        for place, doc in enumerate(shown):
            arm = partner if place in (0, partner) else np.nan
            rows.append((session, 1, "abc"[doc], place + 1, arm, [0.9, 0.3, 0.6][doc]))
    X = pd.DataFrame(rows, columns=["session", "qid", "doc", "position", "arm", "relevance"])
    clicks = (rng.random(len(X)) < X["relevance"] * CURVE[X["position"] - 1]).astype(float)
    return X.drop(columns="relevance"), clicks


def test_swaps_give_the_ratio_of_each_pair():
    X, clicks = _swapped()
    found = RandomizedPropensity(arm="arm").fit(X, clicks).examination_["examination"]
    rate = pd.Series(clicks).groupby([X["arm"], X["position"]]).mean()
    assert found[2] == pytest.approx(rate[1, 2] / rate[1, 1])
    assert found[3] == pytest.approx(rate[2, 3] / rate[2, 1])


def test_rows_left_in_place_are_no_evidence_and_have_a_propensity():
    X, clicks = _swapped()
    estimator = RandomizedPropensity(arm="arm").fit(X, clicks)
    changed = np.where(X["arm"].isna(), 1 - clicks, clicks)
    again = RandomizedPropensity(arm="arm").fit(X, changed)
    pd.testing.assert_frame_equal(estimator.examination_, again.examination_)
    assert (estimator.predict(X) > 0).all()
    assert estimator.columns_read() == {"arm"}


def test_shuffles_give_the_ratio_of_click_rates_and_its_error(world):
    X, clicks = simulate(world, ShufflePolicy(), 3_000)
    X["qid"] = 1  # few queries: the noise is that of the clicks
    table = RandomizedPropensity().fit(X, clicks).examination_
    by_position = pd.Series(clicks).groupby(X["position"])
    np.testing.assert_allclose(table["examination"], by_position.mean() / by_position.mean()[1])
    count = by_position.sum()
    expected = np.sqrt(1 / count[1] + 1 / count)
    np.testing.assert_allclose(table["standard_error"][1:], expected[1:], rtol=1e-6)


def test_shorter_lists_do_not_confound_shuffles():
    rng = np.random.default_rng(0)
    rows = []
    for session in range(6_000):  # queries of short lists have the better documents
        length, relevance = ((2, 0.9), (4, 0.2))[session % 2]
        doc = rng.permutation(length) + 10 * length
        rows += [(session, length, d, k + 1, relevance * CURVE[k]) for k, d in enumerate(doc)]
    X = pd.DataFrame(rows, columns=["session", "qid", "doc", "position", "chance"])
    clicks = (rng.random(len(X)) < X["chance"]).astype(float)
    table = RandomizedPropensity().fit(X.drop(columns="chance"), clicks).examination_
    np.testing.assert_allclose(np.log(table["examination"] / CURVE[:4]), 0, atol=0.2)
    rate = pd.Series(clicks).groupby(X["position"]).mean()
    assert rate[3] / rate[1] < 0.2  # what plain click rates would say


@pytest.mark.parametrize("policy", [SwapPolicy(), SwapPolicy("adjacent"), ShufflePolicy(0.5)])
def test_experiments_find_the_truth_within_their_errors(world, policy):
    X, clicks = simulate(world, policy, 100_000)
    table = RandomizedPropensity(arm="arm").fit(X, clicks).examination_
    score = np.log(table["examination"] / CURVE)[1:] / table["standard_error"][1:]
    assert np.abs(score).max() < 3.5
    assert np.abs(table["examination"] - CURVE).max() < 0.04


def test_positions_outside_the_experiment_are_named_and_unknown():
    X, clicks = _swapped()
    X["arm"] = X["arm"].where(X["arm"] == 1)
    estimator = RandomizedPropensity(arm="arm")
    with pytest.warns(NotIdentifiableWarning, match="1 of 3 bias factors.*: 3"):
        estimator.fit(X, clicks)
    assert estimator.predict(X[X["position"] < 3]).min() > 0
    with pytest.raises(ValueError, match=r"examination of .* is unknown"):
        estimator.predict(X)


def test_arms_that_link_nothing_are_an_error():
    X, clicks = _swapped(200)
    with pytest.raises(NotIdentifiableError, match=r"no arm of a query.*3 bias factors.*'place'"):
        RandomizedPropensity(arm="place").fit(X.assign(place=X["position"]), clicks)
    with (
        pytest.warns(ClickDataWarning, match="The log has no click"),
        pytest.raises(NotIdentifiableError, match="without a click"),
    ):
        RandomizedPropensity(arm="arm").fit(X, 0 * clicks)


def test_an_arm_that_is_no_column_or_never_set_is_an_error():
    X, clicks = _swapped(20)
    with pytest.raises(ValueError, match="no column 'test'"):
        RandomizedPropensity(arm="test").fit(X, clicks)
    with pytest.raises(ValueError, match="No row that was shown was randomised"):
        RandomizedPropensity(arm="arm").fit(X.assign(arm=np.nan), clicks)


@pytest.mark.parametrize("share_top", [0.0, 0.05])
def test_lists_that_hardly_moved_are_suspicious(share_top):
    X, clicks = _swapped(share_top=share_top)
    with pytest.warns(AssumptionWarning, match="Not all orders look equally likely"):
        RandomizedPropensity(arm="arm").fit(X, clicks)
    with pytest.warns(AssumptionWarning, match="name the column"):
        RandomizedPropensity().fit(X.drop(columns="arm"), clicks)


def test_a_coin_that_is_not_fair_is_suspicious_and_harvested():
    X, clicks = _swapped(10_000, share_top=0.3)
    with pytest.warns(AssumptionWarning, match="which allows that"):
        RandomizedPropensity(arm="arm").fit(X, clicks)
    rows = X["arm"].notna()
    table = InterventionHarvesting(n_bootstrap=0).fit(X[rows], clicks[rows]).examination_.iloc[1:]
    assert (np.abs(np.log(table["examination"] / CURVE[1:3]) / table["standard_error"]) < 4).all()


def test_fair_experiments_of_any_size_are_not_suspicious():
    n_warned = 0
    for seed in range(60):
        X, clicks = _swapped(2 + seed**2 // 10, seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                RandomizedPropensity(arm="arm").fit(X, clicks)
            except NotIdentifiableError:  # hardly a click
                continue
        n_warned += any(issubclass(each.category, AssumptionWarning) for each in caught)
    assert n_warned == 0


def _warns_at(n_sessions, n_moved):
    """Whether one pair that changed places in ``n_moved`` of its sessions looks suspicious."""
    kept = n_sessions - n_moved
    X = pd.DataFrame(
        {
            "qid": 1,
            "session": [0, 0, 1, 1],
            "doc": ["a", "b", "b", "a"],
            "position": [1, 2, 1, 2],
            "impressions": [kept, kept, n_moved, n_moved],
        }
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RandomizedPropensity().fit(X, [0.5, 0.2, 0.4, 0.3])
    return any(issubclass(each.category, AssumptionWarning) for each in caught)


def test_a_fair_coin_is_suspicious_in_one_of_five_hundred_experiments():
    """The warning comes six standard errors above the mean of a fair coin.

    Where m of n impressions moved, 2 (m (m - 1) + (n - m) (n - m - 1)) pairs of impressions are
    at one place. A fair coin makes n (n - 1) of them, with the standard error sqrt(2 n (n - 1)).
    """
    n = 400
    moved = np.arange(n // 2)
    pairs = 2 * (moved * (moved - 1) + (n - moved) * (n - moved - 1))
    most = int(np.flatnonzero(pairs - n * (n - 1) > 6 * np.sqrt(2 * n * (n - 1)))[-1])
    assert _warns_at(n, most)
    assert not _warns_at(n, most + 1)
    assert 0.001 < 2 * binom.cdf(most, n, 0.5) < 0.003
    assert binom.cdf(most, n, 0.4) > 0.8


def test_lists_of_different_lengths_are_not_suspicious():
    rng = np.random.default_rng(0)
    shown = [(s, d, k + 1) for s in range(400) for k, d in enumerate(rng.permutation(2 + s % 2))]
    X = pd.DataFrame(shown, columns=["session", "doc", "position"])
    X["doc"] = X["doc"].where(X.groupby("session")["doc"].transform("size") == 3, X["doc"] + 5)
    clicks = (rng.random(len(X)) < CURVE[X["position"] - 1]).astype(float)
    RandomizedPropensity().fit(X.assign(qid=1), clicks)


def test_arms_that_follow_the_position_are_suspicious():
    X, clicks = _swapped()
    with pytest.warns(AssumptionWarning, match="arm="):
        RandomizedPropensity().fit(
            X[X["position"] < 3].assign(doc=X["position"]), clicks[X["position"] < 3]
        )


# Harvesting -----------------------------------------------------------------------------
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["default", "published"])
def test_expected_clicks_give_the_truth(method, variant):
    X, rate = _cells(exact=True)
    harvesting = InterventionHarvesting(method=method, variant=variant, n_bootstrap=0)
    np.testing.assert_allclose(harvesting.fit(X, rate).examination_["examination"], CURVE[:5])


def _weighted_rates(X, rate, first, second, variant):
    """Sums of weighted click rates at two positions, over documents shown at both."""
    at_first, at_second = (
        X.assign(rate=rate)[X["position"] == place].set_index("doc") for place in (first, second)
    )
    docs = at_first.index.intersection(at_second.index)
    n, m = at_first.loc[docs, "impressions"], at_second.loc[docs, "impressions"]
    weight = 1.0 if variant == "published" else n * m / (n + m)
    return (weight * at_first.loc[docs, "rate"]).sum(), (
        weight * at_second.loc[docs, "rate"]
    ).sum()


@pytest.mark.parametrize("variant", ["default", "published"])
def test_pivot_and_chain_are_ratios_of_weighted_rates(variant):
    X, rate = _cells()
    pivot, chain = (
        InterventionHarvesting(method=method, variant=variant, n_bootstrap=0)
        .fit(X, rate)
        .examination_["examination"]
        for method in ("pivot", "adjacent-chain")
    )
    product = 1.0
    for k in range(2, 6):
        own, first = _weighted_rates(X, rate, k, 1, variant)
        assert pivot[k] == pytest.approx(own / first)
        own, before = _weighted_rates(X, rate, k, k - 1, variant)
        product *= own / before
        assert chain[k] == pytest.approx(product)


def test_all_pairs_maximise_the_likelihood_of_where_clicks_fell():
    X, rate = _cells()
    won = np.zeros((5, 5))
    for k, m in zip(*np.triu_indices(5, 1), strict=True):
        won[k, m], won[m, k] = _weighted_rates(X, rate, k + 1, m + 1, "published")

    def loss(theta):
        return (won * np.logaddexp(0, theta[None, :] - theta[:, None])).sum()

    best = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-9}).x
    harvesting = InterventionHarvesting(variant="published", n_bootstrap=0).fit(X, rate)
    found = np.log(harvesting.examination_["examination"])
    np.testing.assert_allclose(found, best - best[0], atol=1e-6)


def test_the_binomial_likelihood_of_the_paper_says_nearly_the_same():
    X, rate = _cells()
    doc, factor, clicks, weight = [], [], [], []
    for pair, (k, m) in enumerate(zip(*np.triu_indices(5, 1), strict=True)):
        shared = np.intersect1d(X["doc"][X["position"] == k + 1], X["doc"][X["position"] == m + 1])
        doc += [pair, pair]
        factor += [k, m]
        clicks += _weighted_rates(X, rate, k + 1, m + 1, "published")
        weight += [len(shared), len(shared)]
    fit = fit_tabular(*map(np.array, (doc, factor, clicks, weight)))
    harvesting = InterventionHarvesting(variant="published", n_bootstrap=0).fit(X, rate)
    relative = fit.examination / fit.examination[0]
    np.testing.assert_allclose(harvesting.examination_["examination"], relative, atol=0.005)


@pytest.mark.parametrize("method", METHODS)
def test_harvesting_finds_the_truth(world, method):
    X, clicks = simulate(world, MixturePolicy(), 100_000)
    harvesting = InterventionHarvesting(method=method, n_bootstrap=0)
    table = harvesting.fit(X, clicks).examination_
    score = np.log(table["examination"] / CURVE)[1:] / table["standard_error"][1:]
    assert np.abs(score).max() < 3.5
    assert np.abs(table["examination"] - CURVE).max() < 0.04


def test_single_impressions_do_not_bias():
    # Each document once at each of two positions; plain likelihoods fail here.
    rng = np.random.default_rng(0)
    n_documents = 20_000
    doc = np.repeat(np.arange(n_documents), 2)
    position = np.tile([1, 2], n_documents)
    clicks = rng.random(len(doc)) < rng.uniform(0, 0.6, n_documents)[doc] / position
    X = pd.DataFrame(
        {"qid": doc, "session": np.arange(len(doc)), "doc": doc, "position": position}
    )
    table = InterventionHarvesting(n_bootstrap=0).fit(X, clicks).examination_
    error = table.loc[2, "standard_error"]
    assert abs(np.log(table.loc[2, "examination"] / 0.5)) < 4 * error
    assert error < 0.03


def test_uneven_traffic_is_what_the_weight_is_for(world):
    errors = {"published": [], "default": []}
    for seed in range(5):
        X, clicks = simulate(
            world, MixturePolicy(), 10_000, seed, query_weights=1 / np.arange(1, 201) ** 1.2
        )
        for variant, found in errors.items():
            harvesting = InterventionHarvesting(variant=variant, n_bootstrap=0)
            curve = harvesting.fit(X, clicks).examination_["examination"]
            found.append(np.log(curve / CURVE)[1:] ** 2)
    assert np.mean(errors["default"]) < 0.5 * np.mean(errors["published"])


@pytest.mark.parametrize(
    ("policy", "estimator"),
    [
        (SwapPolicy(), RandomizedPropensity(arm="arm")),
        (ShufflePolicy(), RandomizedPropensity()),
        (MixturePolicy(), InterventionHarvesting(n_bootstrap=0)),
        (MixturePolicy(), InterventionHarvesting(method="pivot", n_bootstrap=60, random_state=0)),
    ],
    ids=["swaps", "shuffles", "harvesting", "pivot, resampled"],
)
def test_intervals_cover(world, policy, estimator):
    held = []
    for seed in range(40):
        X, clicks = simulate(world, policy, 5_000, seed, n_positions=4)
        table = estimator.fit(X, clicks).examination_.iloc[1:]
        held += ((table["lower"] <= CURVE[1:4]) & (CURVE[1:4] <= table["upper"])).tolist()
    assert 0.88 <= np.mean(held) <= 0.995


# What is missing ------------------------------------------------------------------------
def test_a_log_without_swaps_says_what_is_missing(world):
    X, clicks = simulate(world, None, 2_000)
    with pytest.raises(NotIdentifiableError) as error:
        InterventionHarvesting().fit(X, clicks)
    for words in (
        "no document was shown under two of the 10 bias factors",
        "2000 documents",
        "IdentifiabilityRepair(strategy='intervene')",
        "RegressionEMPropensity",
    ):
        assert words in str(error.value)


def test_swaps_without_a_click_say_so():
    X, rate = _cells()
    with (
        pytest.warns(ClickDataWarning, match="The log has no click"),
        pytest.raises(NotIdentifiableError, match=r"200 documents.*no click.*'pivot'"),
    ):
        InterventionHarvesting(method="pivot").fit(X, 0 * rate)


def test_a_first_position_that_never_changed_is_left_out():
    X, rate = _cells()
    top = {"qid": 0, "session": [900], "doc": 900, "position": 1, "impressions": 50}
    below = X.assign(position=X["position"] + 1)
    fixed = pd.concat([below, pd.DataFrame(top)], ignore_index=True)
    with pytest.warns(NotIdentifiableWarning, match="1 of 6 bias factors.*: 1"):
        table = (
            InterventionHarvesting(n_bootstrap=9, random_state=0)
            .fit(fixed, np.append(rate, 0.4))
            .examination_
        )
    alone = InterventionHarvesting(n_bootstrap=0).fit(X, rate).examination_["examination"]
    np.testing.assert_allclose(table["examination"][1:], alone)


@pytest.mark.parametrize("method", METHODS)
def test_a_silent_position_does_not_spoil_deeper_ones(method):
    X, rate = _cells(2_000)
    silent = np.where(X["position"] == 3, 0.0, rate)
    harvesting = InterventionHarvesting(method=method, n_bootstrap=0)
    with pytest.warns(ClickDataWarning, match="no click under 1 of 5 bias factors: 3"):
        table = harvesting.fit(X, silent).examination_
    assert table.loc[3, "examination"] < 0.001
    np.testing.assert_allclose(table["examination"][[4, 5]], CURVE[3:5], rtol=0.1)
    assert (table["standard_error"][[4, 5]] < 0.1).all()
    assert 1 < table.loc[3, "standard_error"] < 2  # half a click


def test_sessions_reach_the_half_width():
    def precision(_, sessions):
        return _swap_plans.Precision(sessions**-0.5, np.array([sessions**-0.5]))

    model = SimpleNamespace(precision=precision)
    assert _swap_plans.sessions_for(model, None, 0.1) == pytest.approx(100, rel=0.011)
    assert _swap_plans.sessions_for(model, None, 2.0) < 1.01
    assert _swap_plans.sessions_for(model, None, 1e-9) == _swap_plans.ENDLESS


# Solving --------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_curves_stand_at_the_top_of_the_likelihood(seed):
    totals = _problem(seed)[None]
    curves = solve(totals, "all-pairs", np.ones((1, 2, 5, 5)))
    b = np.nan_to_num(curves.log_examination[0])
    linked = np.isfinite(curves.log_examination[0])
    clicks = curves.clicks[0][np.ix_(linked, linked)]
    win = 1 / (1 + np.exp(b[linked][None, :] - b[linked][:, None]))
    gradient = (clicks - (clicks + clicks.T) * win).sum(axis=1)
    # The last step gains less than 1e-14 of the log-likelihood per click: its root is 1e-7.
    np.testing.assert_allclose(gradient, 0, atol=1e-7 * clicks.sum())
    assert b[0] == 0


def test_a_batch_is_its_problems_one_by_one():
    totals = np.stack([_problem(seed) for seed in range(12)])
    exposure = np.ones((1, 2, 5, 5))
    for method in METHODS:
        batch = solve(totals, method, exposure).log_examination
        alone = [solve(one[None], method, exposure).log_examination[0] for one in totals]
        np.testing.assert_allclose(batch, alone, atol=1e-9)


def test_resampled_totals_are_those_of_drawn_units(monkeypatch):
    X, rate = _cells(60)
    cells, _ = read_cells(X, rate)
    comparisons = Comparisons.of(cells, "published")
    (entries,) = comparisons.entries()
    draws = [np.random.default_rng(seed).integers(0, 3, 60).astype(float) for seed in range(7)]
    monkeypatch.setattr(_comparisons, "_BATCH", 2 * 60)  # two draws at a time
    batches = list(comparisons.resampled(np.arange(60), draws))
    assert [len(batch) for batch in batches] == [2, 2, 2, 1]
    for total, times in zip(np.concatenate(batches), draws, strict=True):
        drawn = entries.weight * entries.clicks * times[entries.doc]
        expected = np.bincount(entries.key, drawn, minlength=25).reshape(5, 5)
        np.testing.assert_allclose(total, expected)


@pytest.mark.parametrize("user", [None, "user"])
@pytest.mark.parametrize("n_bootstrap", [0, 10])
def test_documents_are_compared_some_at_a_time(user, n_bootstrap, monkeypatch):
    X, rate = _cells(200)
    X["user"] = X["qid"] % 2
    estimator = InterventionHarvesting(user=user, n_bootstrap=n_bootstrap, random_state=0)
    together = clone(estimator).fit(X, rate).examination_
    monkeypatch.setattr(_comparisons, "_ENTRIES", 100)  # four documents of five positions
    apart = clone(estimator).fit(X, rate).examination_
    pd.testing.assert_frame_equal(apart, together, rtol=1e-12)


def test_factors_that_nothing_compares_take_no_place():
    """Every table of factors by factors is of those that documents moved between."""
    X, rate = _cells(60)
    deep = {"qid": 10_000, "session": 10_000, "doc": np.arange(500), "impressions": 1}
    deep = pd.DataFrame(deep | {"position": np.arange(6, 506)})
    more = pd.concat([X, deep], ignore_index=True)
    clicks = np.concatenate([rate, np.ones(500)])
    without, _ = read_cells(X, rate)
    cells, _ = read_cells(more, clicks)
    some, every = (Comparisons.of(each, "default") for each in (without, cells))
    assert every.totals().shape == some.totals().shape
    assert (every.totals() == some.totals()).all()
    places = every.of_factors(np.arange(every.n_bias, dtype=float)[None])[0]
    compared = np.isin(cells.factors.bias, without.factors.bias)
    assert (np.isfinite(places) == compared).all()


# Real logs ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "em", "tolerance"),
    [
        ("yandex_wscd_clicks", (1, 0.79, 0.65, 0.53, 0.41, 0.36, 0.33, 0.27, 0.27, 0.25), 0.1),
        ("sogou_deepclick_clicks", (1, 1, 0.96, 0.77, 0.54, 0.40, 0.29, 0.25, 0.21, 0.20), 0.4),
    ],
)
def test_real_logs_resemble_what_em_finds(name, em, tolerance):
    folder = os.environ.get("SKULTR_DATA")
    if folder is None or not (Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"{name}.parquet is not in the folder that SKULTR_DATA names ({folder})")
    log = pd.read_parquet(Path(folder) / f"{name}.parquet")
    X = log.loc[log["position"] <= 10, ["session", "qid", "doc", "position"]]
    clicks = log.loc[log["position"] <= 10, "click"].astype(float)
    table = InterventionHarvesting(random_state=0).fit(X, clicks).examination_
    np.testing.assert_allclose(table["examination"], em, atol=tolerance)
    assert table["examination"].notna().all()


def _moved(n_positions, n_queries, seed=0):
    """A log of documents that stood at random positions, which are examined as 1 / sqrt(k)."""
    rng = np.random.default_rng(seed)
    rank = rng.permuted(np.tile(np.arange(n_positions), (n_queries * 4, 1)), axis=1)
    query = np.repeat(np.arange(n_queries), 4)
    relevance = rng.beta(2, 2, size=(n_queries, n_positions))[query]
    clicks = rng.random(rank.shape) < relevance / np.sqrt(rank + 1)
    X = pd.DataFrame({"qid": np.repeat(query, n_positions), "position": rank.ravel() + 1})
    X["session"] = np.repeat(np.arange(len(query)), n_positions)
    return X.assign(doc=np.tile(np.arange(n_positions), len(query))), clicks.ravel().astype(int)


@pytest.mark.parametrize(("n_positions", "n_bootstrap"), [(50, 200), (51, 0)])
def test_errors_of_many_factors_come_from_the_formula(n_positions, n_bootstrap):
    X, clicks = _moved(n_positions, 30)
    found = InterventionHarvesting(random_state=0).fit(X, clicks).examination_
    same = InterventionHarvesting(n_bootstrap=n_bootstrap, random_state=0).fit(X, clicks)
    pd.testing.assert_frame_equal(found, same.examination_)


@pytest.mark.parametrize("n_positions", [60, 240])
def test_formula_covers_many_positions(n_positions):
    """The errors of all positions in some logs: half of them, and 95 %, within their intervals."""
    z = []
    for seed in range(600 // n_positions):
        X, clicks = _moved(n_positions, 100, seed)
        table = InterventionHarvesting().fit(X, clicks).examination_.iloc[1:]
        truth = -0.5 * np.log(table.index.to_numpy())
        z.append((np.log(table["examination"]) - truth) / table["standard_error"])
    assert np.mean(np.abs(z) < 1.96) == pytest.approx(0.95, abs=0.04)
    assert np.mean(np.abs(z) < 0.674) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("n_bootstrap", [0, 20])
@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")  # no click there
def test_intervals_cover_at_a_last_position_of_one_click_or_none(n_bootstrap):
    """Half a click counts in all comparisons, and resamples of no click say nothing of it."""
    n_positions, n_queries, n_lists = 15, 15, 15
    curve, estimator = 1 / np.arange(1, n_positions + 1) ** 0.7, InterventionHarvesting()
    estimator.set_params(n_bootstrap=n_bootstrap, random_state=0)
    query, held, clicked = np.repeat(np.arange(n_queries), n_lists), [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        relevance = rng.beta(1, 3, (n_queries, n_positions))[query]
        order = np.argsort(-np.log(relevance) - rng.gumbel(size=relevance.shape), axis=1)
        rank = np.argsort(order, axis=1)
        X = pd.DataFrame({"qid": np.repeat(query, n_positions), "position": rank.ravel() + 1})
        X["session"], X["doc"] = (each.ravel() for each in np.indices(rank.shape))
        clicks = rng.random(rank.shape) < relevance * curve[rank]
        last = estimator.fit(X, clicks.ravel().astype(int)).examination_.iloc[-1]
        held.append(last["lower"] <= curve[-1] <= last["upper"])
        clicked.append(last["clicks"])
    assert np.mean(clicked) < 2
    # 3.3 standard errors of a share of 200 that is 0.95.
    assert np.mean(held) == pytest.approx(0.95, abs=3.3 * np.sqrt(0.95 * 0.05 / len(held)))


@pytest.mark.parametrize("n_bootstrap", [0, 30])
def test_documents_as_a_whole_tell_what_pairs_tell(n_bootstrap, monkeypatch):
    """Estimates of the two likelihoods differ by less than their errors, which are alike."""
    X, clicks = _moved(12, 200)
    estimator = InterventionHarvesting(n_bootstrap=n_bootstrap, random_state=0)
    pairs = estimator.fit(X, clicks).examination_.iloc[1:]
    limit = _harvesting.MOST_PAIRED._replace(value=11)
    monkeypatch.setattr(_harvesting, "MOST_PAIRED", limit)
    whole = estimator.fit(X, clicks).examination_.iloc[1:]
    apart = np.log(whole["examination"] / pairs["examination"]) / pairs["standard_error"]
    assert 0 < np.abs(apart).max() < 1
    assert (whole["standard_error"] / pairs["standard_error"]).between(0.7, 1.4).all()


def test_many_factors_that_nothing_compares_are_nan_or_an_error():
    X, clicks = _moved(3, 100)
    alone = X.assign(qid=X["qid"] + 1_000, session=X["session"] + 1_000, doc=X.index)
    alone["position"] += 10 + 3 * (alone["session"] - 1_000)
    with pytest.warns(NotIdentifiableWarning, match="1200 of 1203 bias factors"):
        table = (
            InterventionHarvesting()
            .fit(pd.concat([X, alone]), np.append(clicks, clicks))
            .examination_["examination"]
        )
    np.testing.assert_allclose(table.iloc[:3], [1, 0.71, 0.58], atol=0.1)
    assert table.iloc[3:].isna().all()
    with pytest.raises(NotIdentifiableError, match="no document was shown under two of the 1200"):
        InterventionHarvesting().fit(alone, clicks)
