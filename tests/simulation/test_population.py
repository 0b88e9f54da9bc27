import tracemalloc

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr
from skultr.simulation import (
    PositionBasedUser,
    UniformPolicy,
    UserPopulation,
    simulate_clicks,
)
from skultr.simulation._users import draw_sessions


@pytest.fixture(scope="module")
def documents():
    return make_ltr(60, (3, 15), 4, random_state=0)


def simulate(documents, user, n_sessions=400, **arguments):
    arguments = {"features": False, "random_state": 0, "scores": documents["doc"], **arguments}
    return simulate_clicks(documents, user=user, n_sessions=n_sessions, **arguments)


def users_of_sessions(X):
    return X.groupby("session").agg(user=("user", "first"), qid=("qid", "first"))


# --------------------------------------------------------------------------------------
# The population
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("n_users", "some"), [(5, {2: 1}), (10, {0: 2.5, 3: 1.5, 9: 0}), (20, {1: 2.4, 10: 1.1})]
)
def test_users_of_the_paper(n_users, some):
    users = UserPopulation(n_users)
    table = users.examination_table(7)
    assert table.shape == (n_users, 7)
    for user, eta in some.items():
        np.testing.assert_allclose(table[user], [k**-eta for k in range(1, 8)])
    assert (np.diff(table[:, 6]) > 0).all()  # from the most to the least biased user
    np.testing.assert_allclose(users.user_weights[:-1] / users.user_weights[1:], 1.25)
    assert users.user_weights.sum() == pytest.approx(1)
    mean = sum(w * row for w, row in zip(users.user_weights, table, strict=True))
    np.testing.assert_allclose(users.examination_at(7), mean)


def test_exponents_and_tables_of_ones_own():
    np.testing.assert_allclose(
        UserPopulation([0, 1, 3], decay=1).examination_table(2), [[1, 1], [1, 0.5], [1, 0.125]]
    )
    table = np.array([[0.9, 0.3, 0.1], [1.0, 0.8, 0.0]])
    users = UserPopulation(examination=table, decay=0.5)
    np.testing.assert_array_equal(users.examination_table(2), table[:, :2])
    np.testing.assert_allclose(users.user_weights, [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="given for 3 positions"):
        users.examination_table(4)


@pytest.mark.parametrize("decay", [1.25, 0.8])
def test_thousands_of_users_do_not_overflow(decay):
    users = UserPopulation(np.zeros(5_000), decay=decay)
    assert users.user_weights.sum() == pytest.approx(1)
    X, _, _ = simulate(make_ltr(2, 2, 1, random_state=0), users, 20)
    assert X["user"].between(0, 4_999).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"etas": 7}, "etas must be 5, 10 or 20"),
        ({"etas": 1.5}, "etas must be 5, 10 or 20"),
        ({"etas": []}, "etas must be"),
        ({"etas": [1, -1]}, "etas must be"),
        ({"etas": [1, np.nan]}, "etas must be"),
        ({"etas": "all"}, "etas must be"),
        ({"decay": 0}, "decay"),
        ({"decay": np.inf}, "decay"),
        ({"never_asked": 1}, "never_asked"),
        ({"never_asked": -0.1}, "never_asked"),
        ({"never_asked": "half"}, "never_asked"),
        ({"random_state": 0.5}, "random_state"),
        ({"examination": [0.5, 0.2]}, r"shape \(2,\)"),
        ({"examination": [[0.5, 1.2]]}, r"shape \(1, 2\) with other values"),
        ({"examination": [[np.nan]]}, "with other values"),
        ({"examination": [[1, 1], [1]]}, "examination must be a table"),
    ],
)
def test_bad_population(arguments, message):
    with pytest.raises(ValueError, match=message):
        UserPopulation(**arguments)


# --------------------------------------------------------------------------------------
# Who asks what
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("never_asked", "n_zero"), [(0.5, 30), (0, 0), (0.99, 59), (0.12, 7)])
def test_share_of_queries_never_asked(never_asked, n_zero):
    users = UserPopulation(20, never_asked=never_asked)
    table = users.draw_query_weights(np.full(60, 1 / 60), np.random.default_rng(0))
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert ((table == 0).sum(axis=1) == n_zero).all()
    if never_asked < 0.9:  # no two users ask alike
        assert len(np.unique(table.round(12), axis=0)) == 20
    if never_asked == 0.5:
        # Which queries is chance: each of 20 users leaves one out with 1/2. That all or none
        # leave one of 60 out has probability 60 * 2 / 2**20, a ten-thousandth.
        left_out = (table == 0).sum(axis=0)
        assert 0 < left_out.min() < left_out.max() < 20


def test_weights_of_the_queries_asked_are_uniform():
    users = UserPopulation([0.0])
    table = users.draw_query_weights(np.full(40_000, 1 / 40_000), np.random.default_rng(0))
    asked = np.sort(table[table > 0]) / table.max()
    assert np.abs(asked - np.linspace(0, 1, len(asked))).max() < 1.63 / np.sqrt(len(asked))


def test_base_weights_multiply():
    base = np.array([0.0, 0.5, 0.2, 0.3])
    rng = np.random.default_rng
    alike = UserPopulation(5, never_asked=None).draw_query_weights(base, rng(0))
    np.testing.assert_array_equal(alike, np.tile(base, (5, 1)))
    plain = UserPopulation(5, never_asked=0.4).draw_query_weights(np.full(3, 1 / 3), rng(0))
    weighted = UserPopulation(5, never_asked=0.4).draw_query_weights(base, rng(0))
    assert (weighted[:, 0] == 0).all()
    assert ((weighted == 0).sum(axis=1) == 2).all()  # nobody's query is not one left out
    expected = plain * base[1:]
    np.testing.assert_allclose(weighted[:, 1:], expected / expected.sum(axis=1, keepdims=True))


def test_own_seed_keeps_the_users(documents):
    habits = [
        simulate(documents, UserPopulation(5, random_state=own), random_state=seed).truth
        for own, seed in [(1, 0), (1, 5), (2, 0), (None, 0), (None, 5), (None, 0)]
    ]
    same = [[np.array_equal(a.query_weights, b.query_weights) for a in habits] for b in habits]
    expected = np.eye(6, dtype=bool)
    expected[[0, 1, 3, 5], [1, 0, 5, 3]] = True
    np.testing.assert_array_equal(same, expected)


def test_draws_never_leave_the_own_queries():
    habits = np.array([[0, 0, 1.0, 0], [1.0, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1.0]])
    user, query = draw_sessions(np.full(4, 0.25), habits, 4_000, np.random.default_rng(0))
    assert (habits[user, query] > 0).all()

    class Edge:
        """The ends of the range of the random numbers."""

        def __init__(self, value):
            self.value = value

        def choice(self, n, size, p):
            return np.arange(n)

        def random(self, size):
            return np.full(size, self.value)

    for value in (0.0, 1 - 2**-53):
        user, query = draw_sessions(np.full(4, 0.25), habits, 4, Edge(value))
        assert (habits[user, query] > 0).all()


def test_shares_of_sessions_match_the_truth():
    documents = make_ltr(6, 3, 2, random_state=0)
    n = 100_000
    X, _, truth = simulate(documents, UserPopulation(5), n)
    counts = users_of_sessions(X).groupby(["user", "qid"]).size()
    # There may be a query that no user has.
    counts = counts.unstack(fill_value=0).reindex(columns=range(6), fill_value=0).to_numpy()
    p = truth.user_weights[:, None] * truth.query_weights
    assert (counts[p == 0] == 0).all()
    assert np.count_nonzero(p) == 15
    z = (counts - n * p)[p > 0] / np.sqrt(n * p * (1 - p))[p > 0]
    assert np.abs(z).max() < 4.5
    z = (counts.sum(axis=1) / n - truth.user_weights) * np.sqrt(n) / 0.5
    assert np.abs(z).max() < 4.5


# --------------------------------------------------------------------------------------
# The log
# --------------------------------------------------------------------------------------
def test_columns_and_truth(documents):
    users = UserPopulation(10)
    X, clicks, truth = simulate(documents, users, features=True)
    assert X.columns[:6].tolist() == ["session", "user", "qid", "doc", "position", "relevance"]
    assert X["user"].dtype == np.int32
    assert (X.groupby("session")["user"].nunique() == 1).all()
    np.testing.assert_array_equal(truth.examination_table, users.examination_table(10))
    np.testing.assert_allclose(truth.examination, users.examination_at(10))
    np.testing.assert_array_equal(truth.user_weights, users.user_weights)
    assert truth.query_weights.shape == (10, 60)
    lean, same, _ = simulate(documents, users)
    pd.testing.assert_frame_equal(lean, X[["session", "user", "qid", "doc", "position"]])
    np.testing.assert_array_equal(same, clicks)


@pytest.mark.parametrize("user", [PositionBasedUser(), None])
def test_one_user_writes_no_column(documents, user):
    X, _, truth = simulate(documents, user)
    assert "user" not in X
    assert "user_weights" not in truth


def test_other_examination_same_sessions(documents):
    one, other = (simulate(documents, UserPopulation(np.full(5, eta))) for eta in (0.0, 2.5))
    pd.testing.assert_frame_equal(one.X, other.X)
    assert one.clicks.sum() > other.clicks.sum()


def test_other_habits_same_users(documents):
    sessions = [
        users_of_sessions(
            simulate(documents, UserPopulation(never_asked=never_asked, random_state=own)).X
        )
        for never_asked, own in [(0.5, None), (None, None), (0.2, 1)]
    ]
    for other in sessions[1:]:
        pd.testing.assert_series_equal(sessions[0]["user"], other["user"])
        assert not sessions[0]["qid"].equals(other["qid"])


def test_click_rates_match_the_table():
    documents = make_ltr(3, 4, 2, random_state=1)
    users = UserPopulation(5, never_asked=None)
    X, clicks, truth = simulate(documents, users, 80_000, n_positions=4, policy=UniformPolicy())
    cells = X.assign(click=clicks).groupby(["user", "doc", "position"])["click"]
    cells = cells.agg(["mean", "size"]).reset_index()
    # The exponents by hand, not from the table that drew the clicks.
    eta = np.array([2.5, 2, 1, 0.8, 0])[cells["user"]]
    p = truth.relevance_probability[cells["doc"]] * cells["position"] ** -eta
    error = (cells["mean"] - p) / np.sqrt(p * (1 - p) / cells["size"]).clip(lower=1e-12)
    error = error[(cells["size"] > 100) & (cells["size"] * p > 10) & (p < 1)]
    assert len(error) > 150
    assert np.abs(error).max() < 4.5
    assert 0.7 < np.mean(error**2) < 1.4


def test_marginal_click_rate_by_position_is_the_mean_curve(documents):
    # Where users do not differ in what they ask, one curve tells all; where they do, it does not.
    user = UserPopulation(5, never_asked=None)
    everything = documents.assign(relevance=4)
    X, clicks, truth = simulate(everything, user, 60_000)
    rate = X.assign(click=clicks).groupby("position")["click"].agg(["mean", "size"])
    o = truth.examination
    error = (rate["mean"] - o)[1:] / np.sqrt(o * (1 - o) / rate["size"])[1:]
    assert np.abs(error).max() < 4.5


def test_query_weights_by_id(documents):
    named = documents.assign(qid="q" + documents["qid"].astype(str))
    weights = dict.fromkeys(named["qid"], 0.0) | {"q3": 3.0, "q11": 1.0}
    X, _, truth = simulate(named, UserPopulation(never_asked=None), 4_000, query_weights=weights)
    queries = users_of_sessions(X)["qid"]
    assert set(queries) == {"q3", "q11"}
    assert abs((queries == "q3").mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4_000)
    ids = np.unique(named["qid"])  # the truth is in their sorted order
    np.testing.assert_allclose(truth.query_weights[:, ids == "q3"], 0.75)


def test_careless_population(documents):
    class Careless(UserPopulation):
        def draw_query_weights(self, query_weights, rng):
            return query_weights

    with pytest.raises(ValueError, match=r"draw_query_weights returned the shape \(60,\)"):
        simulate(documents, Careless(5))


def test_memory_is_that_of_the_log(documents):
    tracemalloc.start()
    X, clicks, _ = simulate(documents, UserPopulation(), 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * (X.memory_usage().sum() + clicks.nbytes)
