"""Each number of ``skultr/propensity/_thresholds.py`` that decides something, on both sides."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr._log._roles import open_frame
from skultr.exceptions import AssumptionWarning, UnstableWeightsWarning
from skultr.propensity import InterventionHarvesting, _draws, _known_curve, _learned
from skultr.propensity._comparisons import Comparisons, Curves, Entries, gradient_noise
from skultr.propensity._curves import _where_resamples_suffice, resamples
from skultr.propensity._harvesting import _warn_about_unequal_orders
from skultr.propensity._source import warn_about_weights
from skultr.propensity._thresholds import (
    FEW_CLICKS_OF_A_FACTOR,
    FEW_CLICKS_OF_A_USER,
    FEW_DOCUMENTS,
    FEW_HEAVY_CLICKS,
    KNOWN,
    LARGEST_ERROR,
    LARGEST_RELATIVE_ERROR,
    LEAST_CLUSTERS,
    LEAST_GAIN,
    MOST_DRAWN,
    MOST_ERRORS,
    MOST_HEAVY_SHARE,
    MOST_IN_PLACE,
    MOST_PAIRED,
    MOST_RESAMPLED,
    RARE,
    RARE_FACTOR,
    RELEVANT,
    ROWS_OF_FIRST_DRAW,
    SHARE_OF_HEAVY_CLICKS,
    SMALL_SAMPLE,
    SMALL_SHARE,
)

EPS = 1e-6


def warns(category, call, *args, **kwargs):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return any(issubclass(each.category, category) for each in told)


def _orders(n, excess):
    """Two documents of one arm in ``n`` pages each, more often in one order by a share."""
    more = n * (1 + excess) / 2
    doc = np.array([0, 0, 1, 1])
    impressions = np.array([more, n - more, n - more, more])
    zeros = np.zeros(4, int)
    return zeros, zeros, doc, np.array([1, 2, 1, 2]), impressions


@pytest.mark.parametrize(("times", "expected"), [(0.99, False), (1.01, True)])
def test_orders_of_large_experiments_may_be_unequal_by_a_hundredth(times, expected):
    # The share of pairs in place is half of 1 + excess², so that the excess is its root.
    excess = np.sqrt(MOST_IN_PLACE.value * times)
    assert warns(AssumptionWarning, _warn_about_unequal_orders, *_orders(1e9, excess)) == expected


@pytest.mark.parametrize(("times", "expected"), [(0.9, False), (1.1, True)])
def test_orders_of_small_experiments_may_be_unequal_by_six_errors(times, expected):
    # n² excess² - n pairs in excess of n², with an error of sqrt(2 n²).
    n = 200
    excess = np.sqrt((times * MOST_ERRORS.value * np.sqrt(2) + 1) / n)
    assert warns(AssumptionWarning, _warn_about_unequal_orders, *_orders(n, excess)) == expected


@pytest.mark.parametrize("n_factors", [MOST_RESAMPLED.value, MOST_RESAMPLED.value + 1])
def test_fifty_factors_are_resampled(n_factors):
    cells = SimpleNamespace(factors=np.arange(n_factors))
    estimator = InterventionHarvesting()
    estimator._compares_pairs = lambda cells: pytest.fail("resampled")
    if n_factors > MOST_RESAMPLED.value:
        assert estimator._drawn(cells, None) is None
    else:
        with pytest.raises(pytest.fail.Exception, match="resampled"):
            estimator._drawn(cells, None)


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [(0, 1.0), (2_000_000 - 1, 1.0), (2_000_000, 0.5), (20_000_000, 0.05)],
)
def test_a_million_rows_are_drawn_first_and_all_where_that_is_more_than_half(n_rows, expected):
    assert (ROWS_OF_FIRST_DRAW.value, MOST_DRAWN.value) == (1_000_000, 0.5)
    lazy = open_frame(pl.LazyFrame({"qid": [1]}))
    assert _draws.first_share(SimpleNamespace(rows=lazy, n_rows=n_rows)) == expected
    # What no engine can draw is read whole.
    eager = open_frame(pl.DataFrame({"qid": [1]}))
    assert _draws.first_share(SimpleNamespace(rows=eager, n_rows=n_rows)) == 1.0


@pytest.mark.parametrize(
    ("share", "excess", "expected"),
    [
        (0.01, 1.001, 0.02),
        (0.01, 2.0, 0.01 * 1.2 * 4),
        (0.01, np.inf, 0.16),
        (0.25, 1.1, 0.5),
        (0.26, 1.1, 1.0),
    ],
)
def test_the_next_draw_is_as_large_as_the_errors_ask_for(share, excess, expected):
    assert _draws.next_share(share, excess) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("examination", "error", "expected"),
    [
        (0.9, 0.0055, False),  # .00495
        (0.9, 0.0056, True),  # .00504
        (0.01, 0.099, False),
        (0.01, 0.101, True),
        (np.nan, np.nan, True),
        (0.5, np.inf, True),
    ],
)
def test_errors_beyond_a_two_hundredth_or_a_tenth_ask_for_more_queries(
    examination, error, expected
):
    assert (LARGEST_ERROR.value, LARGEST_RELATIVE_ERROR.value) == (0.005, 0.1)
    columns = {"examination": [1.0, examination], "standard_error": [0.0, error]}
    table = pd.DataFrame(columns | {"clicks": [100.0, 10.0]})
    assert (_draws.excess_of_error(table) > 1) is expected


@pytest.mark.parametrize(("clicks", "expected"), [(0.99, False), (1.01, True)])
def test_factors_of_a_thousandth_of_the_clicks_ask_for_more_queries(clicks, expected):
    assert RARE_FACTOR.value == 0.001
    columns = {"examination": [1.0, 0.5], "standard_error": [0.0, np.inf]}
    table = pd.DataFrame(columns | {"clicks": [1000.0 - clicks, clicks]})
    assert (_draws.excess_of_error(table) > 1) is expected


class _Factors(SimpleNamespace):
    def __len__(self):
        return self.n


@pytest.mark.parametrize(("n_factors", "expected"), [(200, True), (201, False)])
def test_two_hundred_factors_are_compared_in_pairs(n_factors, expected):
    assert MOST_PAIRED.value == 200
    cells = SimpleNamespace(factors=_Factors(n=n_factors, user=None))
    assert InterventionHarvesting()._compares_pairs(cells) is expected
    cells.factors.user = np.zeros(n_factors)
    assert InterventionHarvesting()._compares_pairs(cells)
    cells.factors.user = None
    assert InterventionHarvesting(method="pivot")._compares_pairs(cells)


@pytest.mark.parametrize(("n_queries", "n_clusters"), [(29, 100), (30, 30)])
def test_documents_are_resampled_if_queries_are_fewer_than_thirty(n_queries, n_clusters):
    assert LEAST_CLUSTERS.value == 30
    cells = SimpleNamespace(doc_query=np.arange(100) % n_queries, n_docs=100)
    cluster, _ = resamples(cells, 1, 0)
    assert len(np.unique(cluster)) == n_clusters


@pytest.mark.parametrize(("n_docs", "by_documents"), [(29, False), (30, True)])
def test_errors_come_from_thirty_documents_and_more(n_docs, by_documents):
    """One click of each document under each of two factors; all clicks of a page are alike."""
    cell = np.arange(2 * n_docs)
    doc = np.repeat(np.arange(n_docs), 2)
    bias = cell % 2
    entries = Entries(
        key=bias * 2 + 1 - bias,
        cell=cell,
        weight=np.ones(len(cell)),
        clicks=np.ones(len(cell)),
        impressions=np.ones(len(cell)) * 2,
        doc=doc,
    )
    comparisons = Comparisons(
        n_groups=1, n_bias=2, place_of_factor=np.arange(2), entries=lambda: [entries]
    )
    clicks = comparisons.totals()
    curves = Curves(np.zeros((1, 2)), clicks, np.zeros_like(clicks), 0)
    error = curves.standard_error(comparisons)[0, 1]
    # Each document has one click at both: documents do not differ at all.
    assert (error < 1e-6) == by_documents
    assert gradient_noise(doc, entries.key, np.ones(len(cell)), (1, 2)).max() == 0


@pytest.mark.parametrize(("n_docs", "clicks", "larger"), [(99, 10, 1), (100, 9, 1), (100, 10, 0)])
def test_the_larger_error_counts_with_few_documents_or_clicks(n_docs, clicks, larger):
    assert (FEW_DOCUMENTS.value, FEW_CLICKS_OF_A_FACTOR.value) == (100, 10)
    cells = SimpleNamespace(
        factors=SimpleNamespace(user=None), n_docs=n_docs, clicks_of_factors=np.array([clicks])
    )
    drawn, formula = np.array([0.1]), np.array([0.2])
    error = _where_resamples_suffice(drawn, formula, cells)
    assert error[0] == (0.2 if larger else 0.1)


@pytest.mark.parametrize(("clicks", "n_users"), [(99, 1), (100, 2)])
def test_users_of_few_clicks_are_one_user_in_training(clicks, n_users):
    assert FEW_CLICKS_OF_A_USER.value == 100
    factors = _Factors(n=3, user=np.array(["a", "b", "c"]), bias=np.ones(3))
    cells = SimpleNamespace(
        factors=factors, clicks=np.array([99, clicks, 1]), by_factor=lambda values: values
    )
    assert len(np.unique(_learned._factors_of_training(cells))) == n_users


@pytest.mark.parametrize(("error", "expected"), [(0.249, True), (0.251, False)])
def test_documents_that_moved_suffice_up_to_an_error_of_a_quarter(error, expected):
    assert KNOWN.value == 0.25
    clicks = np.array([100.0, 100.0])
    table = SimpleNamespace(
        is_connected=True,
        rough_error=lambda first: np.full(2, error),
        fit=SimpleNamespace(cells=SimpleNamespace(clicks_of_factors=clicks)),
    )
    assert _known_curve.is_known(table) is expected


@pytest.mark.parametrize(("times", "expected"), [(0.99, False), (1.01, True)])
def test_curves_that_differ_by_less_than_a_fifth_are_alike(times, expected):
    gap = RELEVANT.value * times * np.array([1.0, -1.0])
    assert _known_curve._matters(gap, np.array([10.0, 10.0])) is expected


@pytest.mark.parametrize(("surplus", "expected"), [(10.8, False), (10.9, True)])
def test_a_curve_is_contradicted_by_what_chance_does_once_in_a_thousand(surplus, expected):
    assert RARE.value == 0.001  # 10.83 with one degree of freedom
    gap = np.array([1.0, -1.0])
    table = SimpleNamespace(log_examination=gap, information=np.eye(2) * surplus / 2)
    log = SimpleNamespace(bias=np.array([0, 1]), clicks=np.array([5.0, 5.0]))
    _, is_contradicted = _known_curve._by_documents(log, table, np.zeros(2))
    assert is_contradicted is expected


@pytest.mark.parametrize(
    ("gain", "gap", "expected"),
    [(2.49, 1.0, False), (2.51, 1.0, True), (1e6, RELEVANT.value / 2, False)],
)
def test_scores_contradict_a_curve_by_twice_the_gain_per_factor_where_it_matters(
    gain, gap, expected, monkeypatch
):
    assert LEAST_GAIN.value == 5
    log = SimpleNamespace(bias=np.array([0, 1]), version=np.array([0, 1]))
    log.sample = lambda n: log
    choice = SimpleNamespace(
        rows=np.arange(2), clicks=np.array([1.0, 1.0]), n_clicks=1.0,
        best_weights=lambda *args: np.ones(1),
        loss=lambda scores: gain * bool(np.any(scores)),
    )  # fmt: skip
    known = SimpleNamespace(
        choice=choice,
        log_examination=np.ones(2),
        scores=np.ones((2, 1)),
        mix=lambda scores: (np.zeros(2), np.array([gap, -gap]), None),
    )
    monkeypatch.setattr(_known_curve, "FreeEffects", lambda *args: known)
    monkeypatch.setattr(_known_curve, "replace", lambda log, **fields: log)
    _, is_contradicted = _known_curve._by_scores(log, np.ones(2), np.zeros(2))
    assert is_contradicted == expected


class _Weighted(SimpleNamespace):
    """A log of clicks with propensities; each query has so many of them."""

    def by_query(self, values):
        return np.ones(self.n_queries)


def _log(light, heavy, propensity, n_queries=1):
    clicks = np.append(np.ones(light), np.ones(heavy))
    propensities = np.append(np.ones(light), np.full(heavy, propensity))
    return _Weighted(clicks=clicks, propensity=propensities, n_queries=n_queries)


@pytest.mark.parametrize(
    ("light", "heavy", "expected"),
    [
        (1_000, 10, True),  # ten clicks
        (1_000, 11, False),
        (100_000, 100, True),  # a thousandth
        (100_000, 102, False),
        (191, 10, True),  # a twentieth
        (185, 10, False),
    ],
)
def test_a_warning_is_due_if_a_handful_of_clicks_carries_half_of_the_weight(
    light, heavy, expected
):
    assert FEW_HEAVY_CLICKS.value == 10
    assert SHARE_OF_HEAVY_CLICKS.value == 0.001
    assert MOST_HEAVY_SHARE.value == 0.05
    # The heavy ones carry a bit more than half.
    log = _log(light, heavy, heavy / light * (1 - EPS))
    asked = (log, log.propensity)
    assert warns(UnstableWeightsWarning, warn_about_weights, *asked, queries=False) is expected


@pytest.mark.parametrize(
    ("n_queries", "share", "expected"),
    [(21, 0.6, True), (19, 0.6, False), (1_000, 0.69, True), (1_000, 0.71, False)],
)
def test_a_warning_is_due_if_the_effective_sample_is_small(n_queries, share, expected):
    """Two kinds of clicks, as many of each, of the weights 1 and w, have the share
    (1 + w)² / 2 (1 + w²) of effective clicks."""
    assert (SMALL_SHARE.value, SMALL_SAMPLE.value) == (0.7, 5)
    w = (1 - 2 * np.sqrt(share * (1 - share))) / (2 * share - 1)
    n = round(100 / share / 2)  # 100 effective clicks: 5 for each of 20 queries
    log = _log(n, n, w, n_queries)
    assert warns(UnstableWeightsWarning, warn_about_weights, log, log.propensity) is expected
