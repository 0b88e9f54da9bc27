"""Each number that decides something, on both sides."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from skultr.evaluation import (
    ComparisonTable,
    _policy_verdict,
    compare_judgments,
    compare_logs,
    policy_difference,
)
from skultr.evaluation._compare_logs import _Logs
from skultr.evaluation._logged_pages import LoggedPages
from skultr.evaluation._plan_experiment import RankingTest, read_model
from skultr.evaluation._policy_estimate import Context, Worth
from skultr.evaluation._policy_methods import (
    METHODS,
    _doubt_of_moves,
    _doubt_of_pages,
    doubt_of_method,
)
from skultr.evaluation._second_judge import _warn_unless_drawn_at_random


def _pages(n_queries=20, n_pages=20, swapped=10, **columns):
    """Pages of two documents, in ``swapped`` of them in the other order."""
    query, page = np.divmod(np.arange(n_queries * n_pages), n_pages)
    first = np.where(page < swapped, 1, 0)
    log = pd.DataFrame(
        {
            "qid": np.repeat(query, 2),
            "session": np.repeat(np.arange(len(query)), 2),
            "doc": np.column_stack([first, 1 - first]).ravel(),
            "position": np.tile([1, 2], len(query)),
        }
    )
    rng = np.random.default_rng(0)
    log["click"] = (rng.random(len(log)) < 0.5 / log["position"]).astype(int)
    return log.assign(**{name: np.repeat(values, 2) for name, values in columns.items()})


# What a ranking is worth ------------------------------------------------------------------------
@pytest.mark.parametrize(("p_value", "is_doubted"), [(0.049, True), (0.051, False)])
def test_methods_disagree_at_the_level(p_value, is_doubted):
    beyond = student.isf(p_value / 2, 99)
    assert bool(doubt_of_method(beyond, 1.0, None, 100, "pbm")) == is_doubted


@pytest.mark.parametrize(("claimed", "is_doubted"), [(0.051, True), (0.049, False)])
def test_a_difference_that_the_test_would_not_see_is_doubted(claimed, is_doubted):
    difference = student.isf(claimed / 2, 99)
    assert bool(doubt_of_method(0.0, 1.0, difference, 100, "pbm")) == is_doubted


@pytest.mark.parametrize(
    ("name", "number", "says"),
    [
        ("support", 0.89, "90% are needed"),
        ("support", 0.91, ""),
        ("n_clicks", 49, "50 are needed"),
        ("n_clicks", 51, ""),
        ("n_queries", 9.9, "10 are needed"),
        ("n_queries", 10.1, ""),
    ],
)
def test_what_a_verdict_needs(name, number, says):
    X = _pages()
    y = X.pop("click")
    log = LoggedPages(X, y, None, {}, "test")
    method = METHODS["item-position"]({})
    scores = {"scores_a": X["doc"].to_numpy(float), "scores_b": -X["doc"].to_numpy(float)}
    contexts = [Context(log, scores, "clicks", None, method)]
    worth = Worth(log, contexts, method, {"queries": "new", "n_candidates": 1})
    worth.support, worth.n_clicks, worth.n_queries = 1.0, 100, 20
    setattr(worth, name, number)
    doubt = _policy_verdict._doubt_of_log(worth)
    assert says in doubt
    assert bool(doubt) == bool(says)


@pytest.mark.parametrize(("swapped", "is_told"), [(0.18, False), (0.22, True)])
def test_documents_must_have_moved(swapped, is_told):
    # Only one of 20 queries has swaps, in so many of its pages.
    rows = []
    for query in range(20):
        share = swapped if query == 0 else 0.0
        for document in (0, 1):
            for position in (1, 2):
                away = (document + 1) != position
                n = 1_000 * (share if away else 1 - share)
                if n:
                    rows.append((query, document, position, n, 0.5 / position))
    log = pd.DataFrame(rows, columns=["qid", "doc", "position", "impressions", "rate"])
    rate = log.pop("rate")
    found = policy_difference(log, rate, log["doc"], -log["doc"])
    assert ("usual position" not in found.verdict) == is_told


@pytest.mark.parametrize(("errors", "is_refuted"), [(2.5, False), (2.7, True)])
def test_clicks_that_refute_a_method(errors, is_refuted):
    table = SimpleNamespace(excess=lambda gains: (-0.1 * errors, 0.1))
    context = SimpleNamespace(table=table, gains=None, moved=lambda: np.array([errors]))
    log = SimpleNamespace(error_per_page=lambda moved: 1.0, query_pages=np.ones(1))
    assert bool(_doubt_of_pages([context])) == is_refuted
    assert bool(_doubt_of_moves(log, [context], "pbm")) == is_refuted


@pytest.mark.parametrize(
    ("apart", "error", "is_told"),
    [(0.24, 0.01, False), (0.26, 0.01, True), (0.4, 0.4 / 3.9, False), (0.4, 0.4 / 4.1, True)],
)
def test_users_who_read_to_another_depth(monkeypatch, apart, error, is_told):
    found = np.array([0.0, apart]), np.array([[0.0], [error]])
    monkeypatch.setattr(_policy_verdict, "_steeper", lambda *about: found)
    log = SimpleNamespace(page_columns=lambda: [("device", None, np.array(["a", "b"]))])
    assert bool(_policy_verdict._doubt_of_columns(log, None)) == is_told


@pytest.mark.parametrize(("half_width", "is_told"), [(0.24, False), (0.26, True)])
def test_wide_intervals_are_no_verdict(half_width, is_told):
    estimate = SimpleNamespace(half_width=2 * half_width, logged=2.0)
    assert bool(METHODS["dr"]({}).doubt(estimate)) == is_told


@pytest.mark.parametrize(("relative", "is_same"), [(0.5e-5, True), (2e-5, False)])
def test_scores_of_a_document_may_differ_by_rounding(relative, is_same):
    X = _pages()
    y = X.pop("click")
    scores = X["doc"] + 1.0
    scores[len(X) - 1] *= 1 + relative
    if is_same:
        policy_difference(X, y, scores, -scores)
        return
    with pytest.raises(ValueError, match="different scores for one document"):
        policy_difference(X, y, scores, -scores)


@pytest.mark.parametrize(("n_values", "is_context"), [(10, True), (11, False)])
def test_columns_of_few_values_may_be_contexts(n_values, is_context):
    X = _pages(device=np.arange(400) % n_values)
    log = LoggedPages(X.drop(columns="click"), X["click"], None, {}, "test")
    assert bool([*log.page_columns()]) == is_context


# Two logs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("apart", "counts"), [(0.26, 0.5), (0.27, 0.23)])
def test_of_two_curves_that_contradict_each_other_the_one_that_says_less_counts(
    monkeypatch, apart, counts
):
    # Errors of .05 and .1 √2: the two differ by .1323 by chance, and contradict beyond .2646.
    X = _pages()
    logs = _Logs(X, X, "click")
    by_cells = np.array([0.0, 0.5]), np.array([0.0, 0.05]), np.array([50.0, 50.0])
    by_moves = iter([np.zeros(2), np.array([0.0, 0.5 - apart])])
    monkeypatch.setattr(logs, "_by_cells", lambda: by_cells)
    monkeypatch.setattr(logs, "_by_moves", lambda *log: (next(by_moves), np.array([0.0, 0.1])))
    (row,) = logs.examination()
    assert row["change"] == pytest.approx(counts)


@pytest.mark.parametrize(("n_values", "is_watched"), [(30, True), (31, False)])
def test_columns_of_few_values_have_a_mix(n_values, is_watched):
    X = _pages(user=np.arange(400) % n_values)
    assert ("mix" in set(compare_logs(X, X).table["watched"])) == is_watched


@pytest.mark.parametrize(("n_others", "is_time"), [(1, True), (3, False)])
def test_time_moves_nearly_all_documents_alike(n_others, is_time):
    # Values grow by .05 from page to page, and by 1 from log to log; of others by 2.
    X = _pages(n_queries=100)
    document = 2 * X["qid"] + X["doc"]
    old = X.assign(age=document + 0.05 * (X["session"] % 20))
    new = old.assign(age=old["age"] + np.where(document < n_others, 2.0, 1.0))
    watched = compare_logs(old, new).table["watched"]
    assert ("passing time" in set(watched)) == is_time


@pytest.mark.parametrize(("left", "is_of_page"), [(0.09, True), (0.11, False)])
def test_pages_explain_what_time_moves(left, is_of_page):
    # Two rows per page: a part of the variance is between pages, the rest within.
    page = np.repeat(np.arange(100), 2)
    between = np.where(page % 2, 1.0, -1.0) * np.sqrt(1 - left)
    within = np.tile([1.0, -1.0], 100) * np.sqrt(left)
    assert _Logs._is_of_page(None, between + within, page) == is_of_page


# Plans ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("unseen", "is_promised"), [(0.079, True), (0.081, False)])
def test_plans_that_leave_places_unseen_promise_nothing(unseen, is_promised):
    X = _pages(swapped=20)
    y = X.pop("click")
    log = LoggedPages(X, y, None, {}, "test")
    doc = X["doc"].to_numpy(float)
    ranking_a = log.rank_by(doc, None, "a")
    ranking_b = log.rank_by(-doc, None, "b")
    test = RankingTest(log, read_model(log, None, None), ranking_a, ranking_b)
    # The log never shows ranking b; so many pages of it leave this share of it unseen (e^-n).
    n_pages = -np.log(unseen)
    _, promised = test.half_widths(np.full((20, 2), n_pages))
    assert np.isfinite(promised) == is_promised


# Comparisons on simulated logs ------------------------------------------------------------------
@pytest.mark.parametrize(("n_seeds", "has_interval"), [(2, False), (3, True)])
def test_few_seeds_have_no_interval(n_seeds, has_interval):
    cells = pd.DataFrame(
        {
            "seed": np.repeat(np.arange(n_seeds), 2),
            "user": "u",
            "production": "p",
            "method": ["production", "new"] * n_seeds,
            "ndcg": np.arange(2.0 * n_seeds) ** 2,
            "ndcg_shown": np.arange(2.0 * n_seeds) ** 2,
            "fit_seconds": 0.0,
            "warnings": 0,
            "error": "",
        }
    )
    table = ComparisonTable(cells).table().set_index("method")
    assert np.isfinite(table.loc["new", "lower"]) == has_interval


# Judges -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kept", "verdict"), [(0.79, "may not"), (0.81, "may stand in")])
def test_a_judge_must_keep_the_agreement_of_people(kept, verdict):
    """It copies them, but for a share of the queries where it rates all documents alike."""
    keys = pd.DataFrame({"qid": np.repeat(np.arange(1000), 2), "doc": np.tile([0, 1], 1000)})
    people = keys.assign(relevance=np.tile([0, 1], 1000))
    knows = np.arange(1000) < 1000 * kept
    model = keys.assign(relevance=np.where(np.repeat(knows, 2), people["relevance"], 0))
    position = np.where(np.arange(2000) % 4 < 2, [1, 2] * 1000, [2, 1] * 1000)
    log = keys.assign(position=position, impressions=100)
    clicks = np.tile([0.2, 0.4], 1000)
    # Queries vary in what is kept: the level is low, so that the bound alone decides.
    found = compare_judgments(
        {"model": model, "people": people},
        log,
        clicks,
        propensity=[1.0, 1.0],
        baseline="people",
        confidence_level=0.3,
        n_resamples=9,
    ).stand_ins
    assert found["verdict"][0] == verdict
    assert found["kept"][0] == pytest.approx(kept)


@pytest.mark.parametrize(("first", "n_frequent"), [(49, 2), (50, 1), (51, 1)])
def test_frequent_queries_have_half_of_the_impressions(first, n_frequent):
    log = pd.DataFrame({"qid": np.repeat(["a", "b", "c"], 2), "doc": [0, 1] * 3})
    log["position"] = [1, 2] * 3
    log["impressions"] = np.repeat([first, 30, 70 - first], 2)
    judged = log[["qid", "doc"]].assign(relevance=[0, 1] * 3)
    found = compare_judgments(judged, log, [0.5, 0.4] * 3, propensity=[1.0, 1.0], n_resamples=9)
    assert (found.per_query["kind"] == "frequent").sum() == n_frequent


# Two judges -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("errors", "is_told"), [(3.9, False), (4.1, True), (-4.1, True)])
def test_trusted_queries_that_a_judge_tells_from_all(errors, is_told):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _warn_unless_drawn_at_random(np.array([0.1, errors]))
    assert bool(told) == is_told
