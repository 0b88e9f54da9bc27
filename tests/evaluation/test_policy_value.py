"""Expected clicks of rankings from the log of another ranking: exact where a world is small."""

from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy.stats import t as student
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from skultr import ClickDataset
from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import (
    _click_table,
    _policy_methods,
    _policy_verdict,
    plan_experiment,
    policy_difference,
    policy_value,
)
from skultr.propensity import PowerLawPropensity
from skultr.rankers import NaiveRanker
from skultr.simulation import CascadeUser, DBNUser, PlackettLucePolicy, simulate_clicks

EXAMINATION = np.array([0.9, 0.6, 0.3])
N_DOCS, N_PLACES = 4, 3


def world(n_queries=40, n_pages=60, seed=0, orders=None):
    """Counted pages of three places, filled with four documents in random orders."""
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.1, 0.9, (n_queries, N_DOCS))
    pages = np.zeros((n_queries, N_DOCS, N_PLACES))
    for query in range(n_queries):
        for _ in range(n_pages):
            order = (
                rng.permutation(N_DOCS) if orders is None else orders[rng.integers(len(orders))]
            )
            pages[query, order[:N_PLACES], np.arange(N_PLACES)] += 1
    query, doc, place = np.nonzero(pages)
    X = pd.DataFrame(
        {"qid": query, "doc": doc, "position": place + 1, "impressions": pages[query, doc, place]}
    )
    unseen = pd.MultiIndex.from_product([range(n_queries), range(N_DOCS)], names=["qid", "doc"])
    X = pd.concat([X, unseen.to_frame(index=False)], ignore_index=True)
    X["impressions"] = X["impressions"].fillna(1.0)
    return X, relevance


def of_rows(table, X):
    return table[X["qid"], X["doc"]]


def chance(X, relevance, examination=EXAMINATION):
    """P(click) of each row under the position-based user."""
    place = X["position"].fillna(1).astype(int) - 1
    return of_rows(relevance, X) * examination[place] * X["position"].notna()


def draw(X, probability, rng):
    return rng.binomial(X["impressions"].astype(int), probability) / X["impressions"]


def truth(relevance, scores, examination=EXAMINATION):
    """Clicks per page if all queries are asked equally often."""
    order = np.argsort(-scores, axis=1)[:, :N_PLACES]
    return float((np.take_along_axis(relevance, order, axis=1) @ examination).mean())


class GivenModel:
    """A click model that knows the world, up to one factor per document."""

    def __init__(self, relevance, factor=1.0):
        self.relevance = np.clip(relevance * factor, 0, 1)

    def predict_click(self, X, *, conditional, qid, session, doc, position):
        X = pd.DataFrame(X).assign(**({} if position is None else {"position": position}))
        return chance(X, self.relevance).to_numpy()


def options(method, relevance, factor=1.0):
    given = {"pbm": {"propensity": EXAMINATION}, "item-position": {}, "dr": {}}
    model = {"model": GivenModel(relevance, factor)}
    return {"method": method, **given.get(method, model)}


@pytest.fixture
def untested(monkeypatch):
    """Estimates also where the log contradicts the method."""
    monkeypatch.setattr(_policy_methods, "doubt_of_method", lambda *_: "")
    monkeypatch.setattr(_policy_verdict, "doubt_of_formula", lambda *_: "")


# Right where the assumption holds ---------------------------------------------------------------
@pytest.mark.parametrize("method", ["pbm", "item-position", "direct"])
def test_expected_clicks_give_the_truth(method):
    # The estimators are linear in the clicks, so that this is exact unbiasedness.
    X, relevance = world()
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, *relevance.shape))
    y, how = chance(X, relevance), options(method, relevance)
    expected = [truth(relevance, scores) for scores in (a, b)]
    for scores, value in zip((a, b), expected, strict=True):
        found = policy_value(X, y, of_rows(scores, X), **how)
        assert_allclose(found.value, value)
        assert found.support == 1
        assert_allclose(found.logged, (y * X["impressions"]).sum() / 40 / 60)
    difference = policy_difference(X, y, of_rows(a, X), of_rows(b, X), **how)
    assert_allclose(difference.value, expected[0] - expected[1])


def test_a_difference_and_its_plan_by_hand():
    # Twelve queries with all orders of three documents, each so often, and expected clicks. The
    # rankings are a page from the top and from the bottom: the document in the middle stays.
    n, shown, rng = 12, np.zeros((3, 3)), np.random.default_rng(0)
    for order, times in zip(permutations(range(3)), 1_000 * np.arange(1, 7), strict=True):
        shown[list(order), range(3)] += times
    relevance = np.sort(rng.uniform(0.1, 0.9, (n, 3)))
    query, doc, place = np.indices((n, 3, 3)).reshape(3, -1)
    X = pd.DataFrame({"qid": query, "doc": doc, "position": place + 1})
    X["impressions"], y = shown[doc, place], relevance[query, doc] * EXAMINATION[place]
    found = policy_difference(X, y, doc, -doc, method="item-position")
    gained = (relevance[:, 2] - relevance[:, 0]) * (EXAMINATION[0] - EXAMINATION[2])
    value, error = gained.mean(), np.sqrt(gained.var(ddof=1) / n)
    half = student.ppf(0.975, n - 1) * error
    assert_allclose(found[:2], [value, error])
    assert_allclose(found.interval, [value - half, value + half])
    assert_allclose(found.p_value, 2 * student.sf(value / error, n - 1))
    # Each page has a click rate p of the cell, known from m impressions: (sum p)^2 / sum(p / m).
    changed = np.ix_(range(n), [0, 2], [0, 2])
    p = (relevance[..., None] * EXAMINATION)[changed]
    effective = p.sum() ** 2 / (p / shown[np.ix_([0, 2], [0, 2])]).sum()
    assert_allclose(found.effective_sample_size, effective)
    rankings = {"scores_a": "doc", "scores_b": -doc}  # a column, and numbers
    plan = plan_experiment(X, y, half_width=0.3, target="difference", **rankings)
    assert_allclose(plan.precision["estimate"], value, rtol=0.01)
    assert_allclose(plan.precision["expected"], half, rtol=1e-3)


def test_known_probabilities_over_all_pages_of_a_policy():
    # Every page that a policy may show, as often as it shows it.
    rng = np.random.default_rng(0)
    pages = list(permutations(range(N_DOCS), N_PLACES))
    share = rng.dirichlet(np.ones(len(pages)))
    rows = [
        (query, number, doc, place + 1, 1e6 * share[number])
        for query in range(12)
        for number, page in enumerate(pages)
        for place, doc in enumerate(page)
    ]
    X = pd.DataFrame(rows, columns=["qid", "session", "doc", "position", "impressions"])
    place = X.groupby(["qid", "doc", "position"])["impressions"].transform("sum") / 1e6
    relevance, scores = rng.uniform(0.1, 0.9, (2, 12, N_DOCS))
    y = chance(X, relevance)
    found = policy_value(X, y, of_rows(scores, X), method="item-position", probability=place)
    assert_allclose(found.value, truth(relevance, scores))


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize("method", ["pbm", "item-position"])
def test_variance_is_that_of_theory(method):
    X, relevance = world(n_queries=12, n_pages=40)
    scores = np.random.default_rng(1).normal(size=relevance.shape)
    p = chance(X, relevance)
    order = np.argsort(-scores, axis=1)[:, :N_PLACES]
    shown, expected = X["position"].notna(), 0.0
    for query in range(12):
        for place, doc in enumerate(order[query]):
            rows = (X["qid"] == query) & (X["doc"] == doc) & shown
            if method == "item-position":
                rows &= X["position"] == place + 1
            n, of = X.loc[rows, "impressions"], p[rows]
            exposure = n if method == "item-position" else n * of / relevance[query, doc]
            new = 1 if method == "item-position" else EXAMINATION[place]
            expected += (new / exposure.sum() / 12) ** 2 * (n * of * (1 - of)).sum()
    rng, how = np.random.default_rng(2), options(method, relevance)
    values = [policy_value(X, draw(X, p, rng), of_rows(scores, X), **how).value for _ in range(80)]
    assert abs(np.mean(values) - truth(relevance, scores)) < 4 * np.sqrt(expected / 80)
    # 80 draws know a variance up to 16 %.
    assert_allclose(np.var(values, ddof=1), expected, rtol=0.45)


@pytest.mark.parametrize("method", ["pbm", "item-position", "direct", "dr"])
def test_intervals_of_the_difference_cover(method):
    # Queries are drawn too: 40 runs know a coverage of 95 % up to 3.5 points. Intervals of half
    # the width would cover 67 %.
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(40):
        X, relevance = world(n_queries=40, n_pages=30, seed=seed)
        a, b = (relevance + rng.normal(0, of, relevance.shape) for of in (0.3, 1.0))
        fitted = relevance * rng.uniform(0.8, 1.25, relevance.shape)  # errors without direction
        how = options(method, fitted)
        found = policy_difference(
            X, draw(X, chance(X, relevance), rng), of_rows(a, X), of_rows(b, X), **how
        )
        if not np.isnan(found.value):  # the test of the method rejects 5 %
            covered.append(found.interval[0] <= _EXPECTED <= found.interval[1])
    assert len(covered) > 33
    assert np.mean(covered) >= 0.85


def _expected_difference():
    """What the pairs of rankings of the test above differ by, over all queries."""
    rng = np.random.default_rng(1)
    relevance = rng.uniform(0.1, 0.9, (400_000, N_DOCS))
    a, b = (relevance + rng.normal(0, of, relevance.shape) for of in (0.3, 1.0))
    return truth(relevance, a) - truth(relevance, b)


_EXPECTED = _expected_difference()


def test_pairs_cancel():
    X, relevance = world()
    y = draw(X, chance(X, relevance), np.random.default_rng(0))
    a = np.random.default_rng(1).normal(size=relevance.shape)
    b = a.copy()
    best = np.argsort(-a, axis=1)
    for query in range(20):  # half of the queries, the first two places
        b[query, best[query, :2]] = b[query, best[query, 1::-1]]
    a, b = of_rows(a, X), of_rows(b, X)
    found = policy_difference(X, y, a, b, method="pbm", propensity=EXAMINATION)
    alone = policy_value(X, y, a, method="pbm", propensity=EXAMINATION)
    other = policy_value(X, y, b, method="pbm", propensity=EXAMINATION)
    assert_allclose(found.value, alone.value - other.value)
    assert found.standard_error < alone.standard_error / 2
    assert found.effective_sample_size < alone.effective_sample_size / 2
    b = np.where(X["qid"] < 20, a, b)
    assert policy_difference(X, y, a, b, method="pbm", propensity=EXAMINATION).value == 0
    same = policy_difference(X, y, a, 2 * a + 1)
    assert (same.value, same.interval, same.p_value) == (0, (0, 0), 1)
    assert "same pages" in same.verdict


# Users that a position-based model does not know ------------------------------------------------
def trusting(X, relevance):
    """P(click) of users who trust the order: they click more on what is above."""
    trust = np.array([0.6, 0.3, 0.1])[X["position"].fillna(1).astype(int) - 1]
    return (trust + (1 - trust) * of_rows(relevance, X)) * chance(X, np.ones_like(relevance))


def test_quality_that_matters_less_below_is_found_in_counts(monkeypatch):
    """The opposite of trust, in counts whose first rounds take it for chance."""
    rng, position = np.random.default_rng(4), np.arange(1, 9)
    quality = rng.uniform(0, 0.9, (40, 8))

    def chance(r):
        return (0.5 + (r - 0.5) * (1 - 0.7 * (1 - 1 / position))) / position**0.7

    query = np.repeat(np.arange(40), 600)
    base = quality + rng.normal(0, 0.5, quality.shape)
    order = np.argsort(-(base[query] + rng.gumbel(0, 0.4, (len(query), 8))), axis=1)
    clicks = rng.random(order.shape) < chance(np.take_along_axis(quality[query], order, 1))
    rows = {
        "qid": np.repeat(query, 8),
        "doc": order.ravel(),
        "position": np.tile(position, 24_000),
    }
    cells = pd.DataFrame(rows).assign(rate=clicks.ravel()).groupby(list(rows))["rate"]
    X = cells.agg(["size", "mean"]).reset_index().rename(columns={"size": "impressions"})
    best = policy_value(X, "mean", quality[X["qid"], X["doc"]], queries="log")
    # The error has the whole difference that quality makes by position, which is 4 % of the value
    # of the best first and 16 % of that of the worst first. What is left are the errors of the
    # draw, 0.6 % and 2 %: a curve without that difference is beyond four of them.
    monkeypatch.setattr(_click_table.ClickTable, "_without_trust", lambda table: table._curve)
    for sign in (1, -1):  # best first, worst first
        found = policy_value(X, "mean", sign * quality[X["qid"], X["doc"]], queries="log")
        truth = chance(sign * -np.sort(sign * -quality, axis=1)).sum() / 40
        assert abs(found.value - truth) < 4 * found.standard_error
        assert found.standard_error < 0.03 * truth
        if sign == 1:
            assert found.value == best.value
            assert best.interval[0] < truth < best.interval[1]


def test_dr_finds_trust():
    X, relevance = world(n_queries=150, n_pages=200)
    y, rng = trusting(X, relevance), np.random.default_rng(0)
    rankings = [*rng.normal(size=(2, *relevance.shape)), relevance, -relevance]
    top = pd.DataFrame({"qid": np.repeat(range(150), 3), "position": np.tile([1, 2, 3], 150)})
    clicks = []
    for scores in rankings:
        top["doc"] = np.argsort(-scores, axis=1)[:, :N_PLACES].ravel()
        clicks.append(trusting(top, relevance).sum() / 150)
    a, b, best, worst = (of_rows(scores, X) for scores in rankings)
    # Clicks are expected ones. Trust of these users falls faster than as 1/d, which makes errors
    # of up to 0.9 %; a curve without trust is 3 % too high for the best ranking and 3.5 % too low
    # for the worst one, so that it overstates their difference by 40 %.
    for scores, expected in zip((a, b, best, worst), clicks, strict=True):
        assert_allclose(policy_value(X, y, scores).value, expected, rtol=0.015)
    extremes = policy_difference(X, y, best, worst, queries="log")
    assert_allclose(extremes.value, clicks[2] - clicks[3], rtol=0.15)
    found = policy_difference(X, y, a, b)
    assert found.interval[0] < clicks[0] - clicks[1] < found.interval[1]
    assert "counts without sessions" in found.verdict.lower()
    pbm = policy_value(X, y, of_rows(relevance, X), method="pbm", propensity=EXAMINATION)
    cannot_tell(pbm, "the log contradicts method='pbm'")


def test_errors_count_the_whole_difference_that_trust_makes(monkeypatch):
    X, relevance = world(n_queries=60, n_pages=100)
    y, a, b = trusting(X, relevance), of_rows(relevance, X), of_rows(-relevance, X)
    found = policy_difference(X, y, a, b, queries="log")
    curves = []

    def without_trust(table):
        curves.append(table)
        return table._curve

    monkeypatch.setattr(_click_table.ClickTable, "_without_trust", without_trust)
    known = policy_difference(X, y, a, b, queries="log")
    assert curves
    assert known.value == found.value
    assert found.standard_error > 1.2 * known.standard_error


@pytest.fixture(scope="module")
def cascade():
    """Pages of users who stop at the first click, and the clicks of two rankings."""
    documents = make_ltr(200, n_documents=5, n_features=2, random_state=0)
    rng = np.random.default_rng(0)
    X, clicks, _ = simulate_clicks(
        documents.assign(other=rng.normal(size=len(documents))),
        n_sessions=20_000,
        n_positions=5,
        policy=PlackettLucePolicy(1.0),
        user=CascadeUser(),
        random_state=0,
    )
    return X.drop(columns="relevance"), clicks, X["relevance"]


def test_users_who_stop_click_as_often_in_any_order(cascade):
    # Whoever reads all and stops at a click clicks as often in any order of the same documents.
    X, clicks, grade = cascade
    found = policy_difference(X, clicks, grade, X["other"])
    assert found.verdict.startswith("no difference seen")
    assert found.interval[0] < 0 < found.interval[1]
    pbm = {"method": "pbm", "propensity": [1, 0.6, 0.4, 0.3, 0.25]}
    cannot_tell(policy_difference(X, clicks, grade, X["other"], **pbm), "the log contradicts")
    counted = policy_difference(X.drop(columns="session"), clicks, grade, X["other"])
    assert "counts without sessions" in counted.verdict.lower()
    assert counted.value > 0.05


def test_the_error_of_the_chance_to_leave_is_in_that_of_the_difference(cascade, monkeypatch):
    X, clicks, grade = cascade
    scores = {"scores_a": grade, "scores_b": X["other"], "queries": "log"}
    found, fit = [policy_difference(X, clicks, **scores)], _click_table.fit_leaving

    def hardly_known(log, place):
        leaving = fit(log, place)
        return leaving._replace(influence=10 * leaving.influence)

    monkeypatch.setattr(_click_table, "fit_leaving", hardly_known)
    found.append(policy_difference(X, clicks, **scores))
    assert found[0].value == found[1].value
    # An error that left it out would stay the same.
    assert found[1].standard_error > 1.2 * found[0].standard_error


@pytest.mark.usefixtures("untested")
def test_dr_is_between_its_two_parts_where_documents_are_clicked_differently_by_position():
    errors, n = [], 120
    for seed in range(8):
        X, relevance = world(n_queries=n, n_pages=300, seed=seed)
        rng = np.random.default_rng(seed)
        odd = rng.uniform(0.5, 1.5, (n, N_DOCS, N_PLACES))
        table = np.clip(relevance[..., None] * EXAMINATION * odd, 0, 1)
        place = X["position"].fillna(1).astype(int) - 1
        y = draw(X, table[X["qid"], X["doc"], place] * X["position"].notna(), rng)
        scores = odd[:, :, 0]  # what a curve gets wrong adds up, rather than to nothing
        top = np.argsort(-scores, axis=1)[:, :N_PLACES]
        expected = table[np.arange(n)[:, None], top, np.arange(N_PLACES)].sum() / n
        found = [
            policy_value(X, y, of_rows(scores, X), **options(method, relevance)).value
            for method in ("dr", "pbm", "item-position")
        ]
        errors.append(np.array(found) - expected)
    errors = np.array(errors)
    dr, pbm, item_position = errors.mean(axis=0)
    assert pbm < dr < item_position
    # Nearer to that which is right, by four standard errors or more.
    assert dr - pbm > 2 * (item_position - dr)


def swaps_of_neighbours(seed, n_pages=100):
    """A log of good rankings with swaps in 30 % of the pages, a worse one, and what it changes."""
    rng, n = np.random.default_rng(seed), 10
    quality = rng.normal(-0.5, 1.2, (150, n))
    relevance, noise = 1 / (1 + np.exp(-quality)), rng.normal(size=(2, 150, n))
    logged, worse = quality + 0.5 * noise[0], quality + 0.8 * noise[1]
    shown = np.zeros((150, n, n))
    for query, order in enumerate(np.argsort(-logged, axis=1)):
        pages = rng.multinomial(n_pages, [0.7, *np.full(n - 1, 0.3 / (n - 1))])
        shown[query, order, np.arange(n)] = pages[0]
        for place, times in enumerate(pages[1:]):
            swapped = order.copy()
            swapped[[place, place + 1]] = order[[place + 1, place]]
            shown[query, swapped, np.arange(n)] += times
    query, doc, place = np.nonzero(shown)
    X = pd.DataFrame({"qid": query, "doc": doc, "position": place + 1})
    X["impressions"] = shown[query, doc, place]
    examination = 1 / np.arange(1, n + 1)
    y = draw(X, relevance[query, doc] * examination[place], rng)
    values = [
        (np.take_along_axis(relevance, np.argsort(-scores, axis=1), axis=1) @ examination).mean()
        for scores in (worse, logged)
    ]
    return X, y, of_rows(worse, X), of_rows(logged, X), values[0] - values[1]


def test_swaps_of_neighbours_tell_positions_slowly_but_rightly():
    # Few documents connect distant positions: a fit that stops early takes all of the fall of
    # click rates for examination, and any other ranking for a gain.
    errors = []
    for seed in range(6):
        *log, expected = swaps_of_neighbours(seed)
        found = policy_difference(*log)
        assert not found.verdict.startswith("a gets more")
        errors.append((found.value - expected) / found.standard_error)
    assert np.abs(errors).max() < 4
    assert abs(np.mean(errors)) < 4 / np.sqrt(6)


def test_repeated_clicks_are_chance():
    # How many times a click counts is estimated, and at least 1. Each query leaves 12 - 4 degrees
    # of freedom: the estimate has a standard error of sqrt(2 / 3200) = .025, and standard errors
    # by it half of that, of which .05 are four.
    X, relevance = world(n_queries=400)
    rate = draw(X, chance(X, relevance), np.random.default_rng(0))
    a, b = of_rows(relevance, X), -of_rows(relevance, X)
    once = policy_difference(X, rate, a, b)
    assert once.interval[0] < truth(relevance, relevance) - truth(relevance, -relevance)
    for times in (2, 5, 1_000):
        many = policy_difference(X.assign(impressions=times * X["impressions"]), rate, a, b)
        assert_allclose(many[:2], once[:2], rtol=0.05)


@pytest.mark.filterwarnings("ignore:The position determines y:UserWarning")
def test_clicks_that_the_position_decides_refute_nothing():
    X, y = raw_log()
    scores = np.sin(X["x"]), np.cos(3 * X["x"])
    found = policy_difference(X, (X["position"] == 1).astype(y.dtype), *scores)
    assert found.verdict.startswith("no difference seen")
    assert abs(found.value) < 1e-3


def test_a_fit_that_does_not_converge_cannot_tell(monkeypatch):
    monkeypatch.setattr(_click_table, "_MOST_ROUNDS", 1)
    cannot_tell(policy_difference(*swaps_of_neighbours(0)[:4]), "did not converge")


def test_the_test_of_a_method_has_its_level():
    rejects = []
    for seed in range(20):
        X, relevance = world(n_queries=40, n_pages=100, seed=seed)
        y = draw(X, chance(X, relevance), np.random.default_rng(seed))
        found = policy_value(X, y, of_rows(relevance, X), method="pbm", propensity=EXAMINATION)
        rejects.append("contradicts" in found.verdict)
    assert np.mean(rejects) <= 0.2


def test_verdict_names_who_wins():
    X, relevance = world()
    y = chance(X, relevance)
    good, bad = of_rows(relevance, X), -of_rows(relevance, X)
    assert policy_difference(X, y, good, bad).verdict.startswith("a gets more than b: ")
    assert policy_difference(X, y, bad, good).verdict.startswith("b gets more than a: -")
    found = policy_value(X, y, good)
    assert found.verdict.startswith("the ranking gets more than the log")
    assert found.p_value < 0.01


# The same log in other forms --------------------------------------------------------------------
def raw_log(n_queries=12, n_pages=30):
    """Random pages; below 100 of a query one draw of 20 is too small to test assumptions."""
    rng = np.random.default_rng(0)
    rows = [
        (f"qué '{query}', \"x\"", session, f"d,{doc}", place + 1, query * 10 + doc)
        for query in range(n_queries)
        for session in range(n_pages)
        for place, doc in enumerate(rng.permutation(N_DOCS)[:N_PLACES])
    ]
    X = pd.DataFrame(rows, columns=["qid", "session", "doc", "position", "x"])
    return X, rng.binomial(1, EXAMINATION[X["position"] - 1] * 0.6).astype(float)


@pytest.mark.parametrize("method", ["pbm", "item-position", "direct"])
def test_forms_of_a_log(method):
    X, y = raw_log(n_pages=100)
    how = {"method": method}
    how |= {"pbm": {"propensity": EXAMINATION}, "direct": {"model": PBMModel()}}.get(method, {})
    scores = np.sin(X["x"].to_numpy())
    expected = policy_value(X, y, scores, **how)
    assert np.isfinite(expected.value)
    order = np.random.default_rng(0).permutation(len(X))
    forms = [
        policy_value(X.iloc[order], y[order], scores[order], **how),
        policy_value(pl.from_pandas(X), y, scores, **how),
        policy_value(X.assign(click=y), "click", scores, **how),
        policy_value(
            X[["x"]].to_numpy(),
            y,
            scores,
            **how,
            **{role: X[role] for role in ("qid", "session", "doc", "position")},
        ),
    ]
    if method != "direct":  # a click model reads pages
        counts = X.assign(y=y).groupby(["qid", "doc", "position", "x"], as_index=False)
        cells = counts.agg(y=("y", "mean"), impressions=("y", "size"))
        forms.append(policy_value(cells, "y", np.sin(cells["x"]), **how))
    for found in forms:
        assert_allclose(found[:2], expected[:2], rtol=1e-6)
        assert_allclose(found.effective_sample_size, expected.effective_sample_size)


def test_examination_as_a_role_or_an_estimator():
    X, y = raw_log()
    scores = np.sin(X["x"].to_numpy())
    expected = policy_value(X, y, scores, method="pbm", propensity=1 / np.arange(1, 4))
    role = X.assign(propensity=1 / X["position"])
    for found in (
        policy_value(role, y, scores, method="pbm"),
        policy_value(role, y, scores, method="pbm", propensity="column"),
        policy_value(X, y, scores, method="pbm", propensity=PowerLawPropensity()),
    ):
        assert_allclose(found[:2], expected[:2])
    # Up to one factor, examination does not matter.
    half = policy_value(X, y, scores, method="pbm", propensity=0.5 / np.arange(1, 4))
    assert_allclose(half[:2], expected[:2])


def test_a_dataset(tmp_path):
    X, y = raw_log()
    X["qid"] = X["qid"].str.replace("é", "e")
    dataset = ClickDataset.from_parquet(X.assign(click=y), path=tmp_path / "log")
    rows, clicks = dataset.to_frame()
    found = policy_value(dataset, None, np.sin(np.asarray(rows["x"], dtype=float)))
    expected = policy_value(rows, clicks, np.sin(np.asarray(rows["x"], dtype=float)))
    assert found == expected
    assert np.isfinite(found.value)


def test_a_model_is_fitted_where_it_is_not():
    X, y = raw_log()
    scores = np.sin(X["x"].to_numpy())
    found = policy_value(X, y, scores, method="direct", model=PBMModel())
    model = PBMModel().fit(X, y)
    for fitted in (model, FrozenEstimator(model)):
        assert policy_value(X, y, scores, method="direct", model=fitted) == found


@pytest.mark.usefixtures("untested")
@pytest.mark.usefixtures("untested")
def test_a_page_counts_as_a_whole_for_sequential_users():
    # The difference of two rankings that change one place only also lies below that place.
    X, _ = raw_log()
    user = DBNUser(satisfaction=1.0)
    relevance = np.array([0.9, 0.1, 0.5, 0.5])

    class Model:
        def predict_click(self, X, *, conditional, qid, session, doc, position):
            rows = pd.DataFrame({"q": qid, "s": session, "d": doc, "p": position})
            found = np.zeros(len(rows))
            for _, page in rows.groupby(["q", "s"]):
                page = page.sort_values("p")
                of = relevance[page["d"].str[2:].astype(int)]
                found[page.index] = user.click_probability(of[None])[0]
            return found

    orders = np.array([[0, 2, 3, 1], [1, 2, 3, 0]])
    y = np.full(len(X), 0.5)
    doc = X["doc"].str[2:].astype(int)
    a, b = (-np.argsort(order)[doc] for order in orders)
    found = policy_difference(X, y, a, b, method="direct", model=Model())
    of_a, of_b = user.click_probability(relevance[orders[:, :3]]).sum(axis=1)
    assert_allclose(found.value, of_a - of_b)


def test_a_ranker_in_place_of_scores():
    X, y = raw_log()
    features = X.assign(z=np.sin(X["x"]))
    ranker = LinearRegression().fit(features[["x", "z"]], y)
    model = make_pipeline(ColumnTransformer([("keep", "passthrough", ["x", "z"])]), ranker)
    model.fit(features, y)
    scores = model.predict(features)
    assert policy_value(features, y, model) == policy_value(features, y, scores)
    found = policy_difference(features, y, model, "z")
    assert found == policy_difference(features, y, scores, features["z"])
    assert policy_value(features, y, "z") == policy_value(features, y, features["z"])
    with pytest.raises(ValueError, match="X has no column 'zz'"):
        policy_value(features, y, "zz")


def test_repr_is_short():
    X, relevance = world()
    found = policy_value(X, chance(X, relevance), of_rows(relevance, X))
    numbers, words = repr(found).splitlines()
    assert numbers.startswith(f"PolicyEstimate(value={found.value:.4g}, interval=(")
    assert found.verdict in words


# What a log cannot tell -------------------------------------------------------------------------
def cannot_tell(found, because):
    assert found.verdict.startswith("cannot tell: ")
    assert because in found.verdict
    assert np.isnan([found.value, found.standard_error, *found.interval, found.p_value]).all()


@pytest.mark.parametrize("method", ["dr", "direct", "pbm", "item-position"])
def test_a_log_that_moved_nothing_tells_only_of_itself(method):
    X, relevance = world(orders=[np.arange(N_DOCS)])
    X = X[X["doc"] < N_PLACES]
    y = draw(X, chance(X, relevance), np.random.default_rng(0))
    how = options(method, relevance)
    cannot_tell(policy_value(X, y, of_rows(relevance, X), **how), "usual position in 100.0%")
    a, b = of_rows(relevance, X), -of_rows(relevance, X)
    cannot_tell(policy_difference(X, y, a, b, **how), "usual position in 100.0%")
    if method != "direct":
        for gain in ("clicks", "dcg"):
            for k in (None, 2):
                found = policy_value(X, y, -X["doc"], gain=gain, k=k, **how)
                assert_allclose(found.value, found.logged)
                assert found.verdict.startswith("no difference seen")


def test_one_place_needs_no_test_of_positions():
    X, relevance = world()
    X = X[X["position"].isna() | (X["position"] == 1)]
    y, scores = chance(X, relevance), of_rows(relevance, X)
    for method in ("dr", "item-position"):
        found = policy_value(X, y, scores, method=method)
        assert_allclose(found.value, relevance.max(axis=1).mean() * 0.9)
        assert found.verdict.startswith("the ranking gets more")


def test_rankings_without_overlap():
    X, relevance = world(orders=[np.array([0, 1, 2, 3]), np.array([1, 0, 2, 3])])
    y = chance(X, relevance)
    last = X["doc"] == 3  # never shown, and now the first
    found = policy_value(X, y, last + 0.1 * X["doc"], method="pbm", propensity=EXAMINATION)
    cannot_tell(found, "of the documents that the ranking shows")
    swapped = np.array([2, 0, 3, 1])[X["doc"]]
    difference = policy_difference(X, y, -X["doc"], -swapped)
    cannot_tell(difference, "that the log never showed, so that a gets from -")
    assert 0 < difference.support < 0.9
    X, relevance = world(orders=[np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])])
    y, moved = chance(X, relevance), of_rows(np.tile([0, 3, 1, 2], (40, 1)), X)
    difference = policy_difference(X, y, -X["doc"], moved, method="item-position")
    cannot_tell(difference, "method='dr'")
    assert policy_difference(X, y, -X["doc"], moved).support == 1


def test_few_clicks_and_few_queries():
    X, relevance = world(n_queries=20, n_pages=60)
    scores = of_rows(relevance, X)
    cannot_tell(
        policy_value(X, chance(X, relevance) / 100, scores), "the effective number of clicks"
    )
    one = X["qid"] == 0
    large = X[one].assign(impressions=10_000 * X["impressions"])
    cannot_tell(
        policy_value(large, chance(large, relevance), scores[one]),
        "the effective number of queries",
    )
    large = X.assign(impressions=100 * X["impressions"])
    few = np.where(X["qid"] < 5, -scores, scores)  # the others show the same pages
    cannot_tell(
        policy_difference(large, chance(X, relevance), scores, few),
        "the effective number of queries is 5",
    )
    with pytest.warns(UserWarning, match="click"):
        cannot_tell(policy_value(X, np.zeros(len(X)), scores), "cannot tell")


# Bad input --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 4}, "k=4, but the log has positions 1 to 3"),
        ({"k": 0}, "'k' parameter"),
        ({"method": "ips"}, "'method' parameter"),
        ({"method": "pbm"}, "needs propensities"),
        ({"method": "direct"}, "a click model"),
        ({"method": "pbm", "propensity": [0.9, 0.5]}, "positions up to 3"),
        ({"method": "pbm", "propensity": [0.9, 0.5, 0.0]}, "got 0 at position 3"),
        ({"propensity": EXAMINATION}, "got .'propensity'."),
        ({"method": "item-position", "probability": np.zeros(400)}, "shape"),
        ({"model": PBMModel()}, "reads the log only, and got .'model'."),
        ({"method": "direct", "model": PBMModel}, "class"),
    ],
)
def test_wrong_arguments(change, message):
    X, relevance = world()
    with pytest.raises((TypeError, ValueError), match=message):
        policy_value(X, chance(X, relevance), of_rows(relevance, X), **change)


def test_wrong_scores_and_probabilities():
    X, relevance = world()
    y, scores = chance(X, relevance), of_rows(relevance, X)
    holes = np.where(X.index == 7, np.nan, scores)
    moving = np.where(X.index == 0, -1.0, scores)
    for wrong, message in [
        (scores[:-1], "one number per row"),
        (holes, "NaN in 1 rows"),
        (moving, "different scores for one document.*last"),
        (scores[:, None], "shape"),
        (np.full(len(X), "a"), "one number per row"),
    ]:
        with pytest.raises(ValueError, match=message):
            policy_value(X, y, wrong)
        with pytest.raises(ValueError, match=f"(?s)scores_b.*{message}"):
            policy_difference(X, y, scores, wrong)
    for p in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"in row 5, which was shown; expected a number"):
            policy_value(
                X, y, scores, method="item-position", probability=np.where(X.index == 5, p, 0.5)
            )
    model = GivenModel(relevance)
    model.relevance = 3 * relevance
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        policy_value(X, y, scores, method="direct", model=model)


def test_wrong_logs():
    X, relevance = world()
    y, scores = chance(X, relevance), of_rows(relevance, X)
    for role in ("qid", "position"):
        with pytest.raises(ValueError, match=f"no column '{role}'"):
            policy_value(X.drop(columns=role), y, scores)
    with pytest.raises(ValueError, match="bias"):
        policy_value(X.assign(bias=1), y, scores)
    with pytest.raises(TypeError, match="unknown argument 'query'"):
        policy_value(X, y, scores, query=X["qid"])
    with pytest.raises(ValueError, match="row"):
        policy_value(X[:0], y[:0], scores[:0])
    with pytest.raises(ValueError, match="NaN"):
        policy_value(X, np.where(X.index == 3, np.nan, y), scores)
    cannot_tell(policy_value(X[:1], X["impressions"][:1], [1.0]), "the effective number of clicks")
    deep = X[X["position"].isna() | (X["position"] > 1)]
    with pytest.raises(ValueError, match="positions 2 to 3"):
        policy_value(deep, y[deep.index], scores[deep.index], k=1)


@pytest.mark.filterwarnings("ignore:The log has no click")
def test_logs_and_rankers_that_are_none():
    X, relevance = world(n_queries=20, n_pages=60)
    scores = of_rows(relevance, X)
    cannot_tell(policy_value(X, np.zeros(len(X)), scores), "the log has no click")
    with pytest.raises(TypeError, match="scores is the class NaiveRanker; expected a fitted"):
        policy_value(X, chance(X, relevance), NaiveRanker)
    with pytest.raises(TypeError, match="X is None; expected a frame"):
        policy_value(None, [0, 1], scores)
