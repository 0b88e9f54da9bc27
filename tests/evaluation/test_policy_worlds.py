"""`policy_difference` in a few cells of the grid of benchmarks/studies/policy_grid.py, and what it
is told of the log beside its clicks."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from benchmarks.studies.policy_grid import (
    N_DOCS,
    N_QUERIES,
    USERS,
    pairs,
    users_with_habits,
    world,
)
from skultr.evaluation import policy_difference, policy_value
from skultr.evaluation._logged_pages import LoggedPages

CELLS = [
    ("position-based", "swaps 30 %", "good"),
    ("position-based", "Plackett-Luce .5", "poor"),
    ("trust", "daily orders", "good"),
    ("DBN .5", "Plackett-Luce .5", "good"),
    ("DBN .8", "swaps 30 %", "good"),
    ("half look at two", "swaps with the first 10 %", "poor"),
    ("two devices", "Plackett-Luce .5", "good"),
    ("cascade", "daily orders", "good"),
]


@pytest.fixture(scope="module")
def grid():
    """What is said of the rankings, by cell: a table like the study's, of half its queries."""
    rows = []
    for user, order, production in CELLS:
        cell = {"user": user, "order": order, "production": production}
        cell["queries"] = N_QUERIES // 2
        rows += [{**cell, **row} for row in pairs(cell, None, 3)]
    return pd.DataFrame(rows)


def test_no_winner_is_wrong_and_intervals_hold_the_truth(grid):
    assert len(grid) == 4 * len(CELLS)
    assert grid["wrong"].sum() == 0
    assert grid["covers"].mean() >= 90


def test_winners_are_found_where_the_formula_is_right(grid):
    known = grid[grid["user"].isin(["position-based", "half look at two", "two devices"])]
    known = known[known["new"] != "20 % new"]
    assert known["of 1 %"].mean() >= 60


def test_documents_that_were_never_shown_decide_nothing(grid):
    assert grid.loc[grid["new"] == "20 % new", "commits"].sum() == 0


@pytest.fixture(scope="module")
def devices():
    cell = {"user": "two devices", "order": "Plackett-Luce .5", "production": "good"}
    log, old, new, truth = world(cell, 5)
    scores = new["worse"][log["qid"], log["doc"]], old[log["qid"], log["doc"]]
    return log, scores, truth["worse"]


def test_a_column_with_another_depth_must_be_a_context(devices):
    log, scores, truth = devices
    found = policy_difference(log, "click", *scores)
    assert found.verdict.startswith("cannot tell: how deep users read depends on the column")
    assert "Pass context='device'" in found.verdict
    found = policy_difference(log, "click", *scores, context="device", queries="log")
    assert abs(found.value - truth) < 4 * found.standard_error
    by_array = policy_difference(
        log, "click", *scores, context=log["device"].to_numpy(), queries="log"
    )
    assert by_array.value == found.value


def _two_depths(powers, shares, values, n_pages=6_000):
    """A log of which the users of each device see the position j with chance 1 / j to a power."""
    rng, n_positions = np.random.default_rng(0), 10
    relevance = 1 / (1 + np.exp(-rng.normal(-0.7, 1, (40, 12))))
    query = rng.integers(40, size=n_pages)
    order = rng.permuted(np.tile(np.arange(12), (n_pages, 1)), axis=1)[:, :n_positions]
    device = rng.choice(len(powers), size=n_pages, p=shares)
    position = np.arange(1, n_positions + 1)
    chance = position ** -np.array(powers)[device][:, None] * relevance[query[:, None], order]
    log = pd.DataFrame(
        {
            "qid": np.repeat(query, n_positions),
            "session": np.repeat(np.arange(n_pages), n_positions),
            "doc": order.ravel(),
            "position": np.tile(position, n_pages),
            "device": np.repeat(np.array(values)[device], n_positions),
            "click": (rng.random(chance.shape) < chance).astype(int).ravel(),
        }
    )
    other = relevance + rng.normal(scale=0.2, size=relevance.shape)
    return log, relevance[log["qid"], log["doc"]], other[log["qid"], log["doc"]]


@pytest.mark.parametrize(
    ("powers", "shares", "values", "named"),
    [
        # At position 10 .135 and .050: each is less than .25 away from their mean.
        ([0.87, 1.3], [0.5, 0.5], ["desk", "phone"], ("'desk'", "'phone'")),
        ([1.0, 0.8, 1.2], [0.4, 0.3, 0.3], ["a", "b", "c"], ("'b'", "'c'")),
        ([1.35, 0.95], [0.3, 0.7], [0, 1], ("1", "0")),
        ([1.0, 1.0], [0.5, 0.5], ["desk", "phone"], None),
        ([1.0, 1.1], [0.5, 0.5], ["desk", "phone"], None),
    ],
)
def test_devices_are_compared_with_each_other_not_with_their_mean(powers, shares, values, named):
    log, a, b = _two_depths(powers, shares, values)
    verdict = policy_difference(log, "click", a, b).verdict
    if named is None:
        assert "device" not in verdict
        assert "a gets more than b" in verdict
    else:
        assert verdict.startswith("cannot tell: how deep users read depends on the column")
        deeper, other = named
        assert f"(examination at {deeper} is that at {other} times" in verdict
        assert verdict.endswith("Pass context='device'.")


def test_contexts_add_up():
    # With expected clicks and no difference between the contexts, they change nothing.
    rng = np.random.default_rng(0)
    X, y, a, b = _exact(rng)
    alone = policy_difference(X, y, a, b, method="item-position")
    X = X.assign(device=np.where(X["session"] % 2, "phone", "desk"))
    found = policy_difference(X, y, a, b, method="item-position", context="device")
    assert_allclose(found.value, alone.value, rtol=0.1)
    assert_allclose(found.logged, alone.logged)


def _exact(rng, n_queries=30, n_pages=200):
    """Pages in random orders, expected clicks of position-based users, and two rankings."""
    relevance = rng.uniform(0.1, 0.9, (n_queries, 3))
    order = rng.permuted(np.tile(np.arange(3), (n_queries * n_pages, 1)), axis=1)
    X = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries), 3 * n_pages),
            "session": np.repeat(np.arange(n_queries * n_pages), 3),
            "doc": order.ravel(),
            "position": np.tile([1, 2, 3], n_queries * n_pages),
        }
    )
    y = relevance[X["qid"], X["doc"]] / X["position"].to_numpy()
    other = rng.normal(size=relevance.shape)
    return X, y, relevance[X["qid"], X["doc"]], other[X["qid"], X["doc"]]


def test_equal_pages_may_be_one_with_impressions():
    X, chance, a, b = _exact(np.random.default_rng(0))
    y = np.random.default_rng(1).binomial(1, chance)
    expected = [policy_difference(X, y, a, b, queries=name) for name in ("new", "log")]
    text = X.drop(columns="session").assign(y=y).astype(str).agg(":".join, axis=1)
    pages = text.groupby(X["session"]).sum()
    once = ~X["session"].map(pages.duplicated())
    X["impressions"] = X["session"].map(pages.map(pages.value_counts()))
    clicks = y * X["impressions"].to_numpy()
    new, log = (
        policy_difference(X[once], clicks[once], a[once], b[once], queries=name)
        for name in ("new", "log")
    )
    assert_allclose(new[:2], expected[0][:2])
    assert new.verdict == expected[0].verdict
    assert_allclose(log[0], expected[1][0])
    # A variance of n pages is corrected by n / (n - 1), and a query has fewer pages that differ.
    # Impressions that were forgotten would make the error more than twice as large.
    least = X[once].groupby("qid").size().min() / 3
    assert_allclose(log[1], expected[1][1], rtol=1 / (least - 1))


def test_a_context_without_clicks_has_none():
    X, y, a, b = _exact(np.random.default_rng(0))
    phone = X["session"] % 2 == 1
    given = {"method": "pbm", "propensity": [1, 1 / 2, 1 / 3], "context": phone}
    found = policy_difference(X, np.where(phone, 0, y), a, b, **given)
    both = policy_difference(X, y, a, b, **given)
    assert_allclose(found.value, both.value / 2, rtol=0.1)


def test_documents_are_as_often_away_in_all_contexts_as_in_their_mean():
    # One page of 200 of each device has its first two documents exchanged: 2 rows of 600.
    X = pd.DataFrame(
        np.indices((20, 2, 200, 3)).reshape(4, -1).T, columns=["qid", "device", "page", "doc"]
    )
    X["session"] = np.arange(len(X)) // 3
    swapped = np.array([2, 1, 3])[X["doc"]]
    X["position"] = np.where(X.pop("page") == 0, swapped, X["doc"] + 1)
    found = policy_difference(X, 1 / X["position"], X["doc"], -X["doc"], context="device")
    assert "usual position in 99.7% of the impressions" in found.verdict


def test_names_in_the_verdict():
    X, y, a, b = _exact(np.random.default_rng(0))
    found = policy_difference(X, y, a, b, names=("new", "old"))
    assert found.verdict.startswith("new gets more than old: ")
    assert policy_difference(X, y, b, a, names=("new", "old")).verdict.startswith("old gets more")


def test_many_candidates_widen_the_interval():
    X, y, a, b = _exact(np.random.default_rng(0))
    one, ten = (policy_difference(X, y, a, b, n_candidates=n) for n in (1, 10))
    widths = [found.interval[1] - found.interval[0] for found in (one, ten)]
    # Quantiles of Student's t at .025 and .0025 with 29 degrees of freedom, of which queries that
    # change little leave some fewer.
    assert_allclose(widths[1] / widths[0], 3.038 / 2.045, rtol=0.03)
    assert_allclose(ten.p_value, min(10 * one.p_value, 1))


def test_equal_queries_of_one_cluster_count_once():
    X, y, a, b = _exact(np.random.default_rng(1))
    copies = [X.assign(qid=X["qid"] + 30 * n, session=X["session"] + 6000 * n) for n in range(4)]
    many = pd.concat(copies, ignore_index=True)
    repeated = [np.tile(values, 4) for values in (y, a, b)]
    alone = policy_difference(X, y, a, b)
    found = policy_difference(many, *repeated, cluster=many["qid"] % 30)
    naive = policy_difference(many, *repeated)
    assert_allclose(found.standard_error, alone.standard_error, rtol=0.05)
    assert_allclose(naive.standard_error, alone.standard_error / 2, rtol=0.05)


def test_errors_of_new_queries_of_unequal_traffic():
    # What queries differ by, and their mean by traffic: its error has no bias, even if one query
    # has a third of the traffic. The mean of 2,000 squares has a standard error of 2 %; without
    # the correction for the shares of traffic it is 31 % too low, with that of n - 1 alone 22 %.
    rng, pages = np.random.default_rng(0), np.array([40, 20, 20, 10, 10, 10, 5, 5])
    qid = np.repeat(np.arange(len(pages)), pages)
    X = pd.DataFrame({"qid": qid, "session": np.arange(len(qid)), "doc": qid, "position": 1})
    log = LoggedPages(X, np.arange(len(X)) % 2, None, {}, "test")
    errors = []
    for _ in range(2_000):
        value = rng.normal(size=len(pages))
        mean = log.per_page(value * pages)
        errors.append(log.error_per_page(log.over_pages((value - mean) * pages)))
    share = pages / pages.sum()
    assert_allclose(np.mean(np.square(errors)), (share**2).sum(), rtol=0.09)


def test_errors_of_clusters_that_cross_queries():
    # Four queries and three users, who have one page each: sums of rows, of columns, and alone.
    n_queries, n_users = 4, 3
    qid, user = (codes.ravel() for codes in np.indices((n_queries, n_users)))
    X = pd.DataFrame({"qid": qid, "session": np.arange(12), "doc": qid, "position": 1})
    log = LoggedPages(X, qid % 2, None, {}, "test", cluster=user, several=True)
    table = np.random.default_rng(0).normal(size=(n_queries, n_users))
    table -= table.mean()
    by = [(table.sum(axis=axis) ** 2).sum() * n / (n - 1) for axis, n in ((1, 4), (0, 3))]
    alone = (table**2).sum() * 12 / 11
    found = log.error_per_page(table.ravel()) * 12
    assert_allclose(found**2, by[1] + max(by[0] - alone, 0))
    assert_allclose(log.error_per_page(table.ravel(), 2.0) * 12, np.sqrt(found**2 + 2))
    own = log.error_per_page(table.ravel(), new=False) * 12
    assert_allclose(own**2, max(*by, (table**2).sum()))


def test_users_in_many_queries_are_clusters():
    held = []
    for seed in range(24):
        X, truth = users_with_habits(seed)
        both = (
            policy_difference(X, "click", "a", "b", queries="log", cluster=cluster)
            for cluster in ("user", None)
        )
        held.append([found.interval[0] < truth < found.interval[1] for found in both])
    with_users, without = np.sum(held, axis=0)
    # Of 24 at 95 %, fewer than 20 have a chance of 1 in 200.
    assert with_users >= 20
    assert without < 18


def test_what_clusters_of_users_need():
    X, _ = users_with_habits(0)
    log = (X, "click", "a", "b")
    found = policy_difference(*log, cluster="user")
    by_codes = policy_difference(*log, cluster=X["user"].str[1:].astype(int).to_numpy())
    assert by_codes.standard_error == pytest.approx(found.standard_error)
    few = policy_difference(*log, cluster=X["user"].str[-1].isin(list("123")))
    assert few.verdict.startswith("cannot tell: the effective number of queries or clusters")
    other = {"method": "pbm", "propensity": [1, 1 / 2, 1 / 3], "cluster": "user"}
    with pytest.raises(ValueError, match=r"expected one value per query, or method='dr'\."):
        policy_difference(*log, **other)


def test_candidates_are_of_no_cluster():
    X, _ = users_with_habits(0)
    first = X.drop_duplicates("session")
    candidates = first.assign(position=np.nan, doc="other", click=0, a=-9.0, b=-9.0, user="nobody")
    found, expected = (
        policy_difference(pd.concat(parts), "click", "a", "b", cluster="user")
        for parts in ([candidates, X], [X, candidates])
    )
    assert np.isfinite(found.value)
    assert found.standard_error == pytest.approx(expected.standard_error)


def test_a_context_that_looks_like_pages_has_none():
    # Counts: in one context each document has a position of its own, as on a page.
    X, y, a, b = _exact(np.random.default_rng(0), n_pages=100)
    y = np.random.default_rng(1).binomial(1, y)
    counts = X.assign(click=y, a=a, b=b).groupby(["qid", "doc", "position"], as_index=False)
    moved = counts.agg(
        impressions=("click", "size"), **{c: (c, "mean") for c in ["click", "a", "b"]}
    )
    still = pd.DataFrame({"qid": np.repeat(100 + np.arange(600), 3), "doc": 600 * [0, 1, 2]})
    still = still.assign(position=still["doc"] + 1, impressions=400, a=-still["doc"])
    rate = np.random.default_rng(2).binomial(400, 600 * [0.3, 0.28, 0.26]) / 400
    X = pd.concat([moved.assign(market="x"), still.assign(market="y", click=rate, b=still["a"])])
    parts = LoggedPages(X, "click", None, {}, "test", context="market").parts()
    assert [part.has_pages for part in parts] == [False, False]
    assert np.isfinite(policy_difference(X, "click", "a", "b", context="market").value)


@pytest.mark.parametrize("name", ["context", "cluster"])
def test_groups_are_checked(name):
    X, y, a, b = _exact(np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"{name} differs within one result page"):
        policy_difference(X, y, a, b, **{name: np.arange(len(X)) % 2})
    with pytest.raises(ValueError, match="has the shape"):
        policy_difference(X, y, a, b, **{name: [1, 2]})
    missing = np.where(np.arange(len(X)) == 5, np.nan, 0.0)
    with pytest.raises(ValueError, match="1 missing values"):
        policy_difference(X, y, a, b, **{name: missing})
    with pytest.raises(ValueError, match="no column 'segment'"):
        policy_difference(X, y, a, b, **{name: "segment"})


def test_intervals_of_own_queries_and_of_others():
    """Over 30 logs: each holds its own truth, and that of others is wider."""
    rng, n_queries = np.random.default_rng(0), 60
    own, other, widths = [], [], []
    for _ in range(30):
        relevance = rng.uniform(0.1, 0.9, (n_queries, 3))
        order = rng.permuted(np.tile(np.arange(3), (n_queries * 40, 1)), axis=1)
        X = pd.DataFrame(
            {
                "qid": np.repeat(np.arange(n_queries), 120),
                "session": np.repeat(np.arange(n_queries * 40), 3),
                "doc": order.ravel(),
                "position": np.tile([1, 2, 3], n_queries * 40),
            }
        )
        chance = relevance[X["qid"], X["doc"]] / X["position"].to_numpy()
        y = (rng.random(len(X)) < chance).astype(int)
        # The first document first, or last; on average over queries they are equal.
        a, b = -X["doc"], X["doc"]
        truth = ((relevance[:, 0] - relevance[:, 2]) * (1 - 1 / 3)).mean()
        log, new = (policy_difference(X, y, a, b, queries=name) for name in ("log", "new"))
        own.append(log.interval[0] < truth < log.interval[1])
        other.append(new.interval[0] < 0 < new.interval[1])
        widths.append((new.interval[1] - new.interval[0]) / (log.interval[1] - log.interval[0]))
    # Of 30 at 95 %, fewer than 25 have a chance of 2 in 1,000.
    assert min(np.sum(own), np.sum(other)) >= 25
    assert np.mean(widths) > 2


def test_never_shown_documents_widen_to_both_ends():
    X, y, a, b = _exact(np.random.default_rng(0))
    # A fourth document of query 0 was never shown, and stands on top of ranking a.
    never = pd.DataFrame({"qid": [0], "session": [6000], "doc": [3], "position": [np.nan]})
    X = pd.concat([X, never], ignore_index=True)
    y, a, b = np.append(y, 0.0), np.append(a, 2.0), np.append(b, -9.0)
    found = policy_difference(X, y, a, b)
    assert "documents that the log never showed" in found.verdict
    assert 0.95 < found.support < 1
    without = policy_value(X, y, b)
    assert without.support == 1
    assert "never showed" not in without.verdict


def test_expected_clicks_of_users_by_enumeration():
    """The truth of the grid is the mean of its drawn clicks."""
    rng = np.random.default_rng(0)
    relevance = rng.uniform(0.1, 0.9, (4, N_DOCS))
    for user in USERS.values():
        pages = np.repeat(relevance, 20_000, axis=0)
        clicks = user.draw(pages, user.kind(len(pages), rng), rng).sum(axis=1).reshape(4, -1)
        error = clicks.std(axis=1) / np.sqrt(clicks.shape[1])
        assert (np.abs(clicks.mean(axis=1) - user.expected(relevance)) < 4 * error + 1e-3).all()
