"""The simulator in NumPy clicks as designed, and its study counts margins and warnings right."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from benchmarks._study import Settings
from benchmarks.studies._numpy_worlds import (
    ATTRACTION,
    DOCUMENTS,
    GRADES,
    ORDERS,
    PRODUCTION,
    SATISFACTION,
    SESSIONS,
    USERS,
    Cell,
    cells,
    world_of,
)
from benchmarks.studies.names import METHODS, PAGE, beside_the_better, names, per_ranker, told

LEVELS = (DOCUMENTS, PRODUCTION, ORDERS, USERS, SESSIONS)
LOG = Cell("made", "weak", "one order", "position-based", 2_000)
#: Lists with the best document first. Of 8,000 sessions, errors of rates are below .02.
GRADE = np.tile(GRADES[::-1], (8_000, 2))


def rates(user, device=0):
    """Click rates by position (lines) and grade (columns), where each list has one grade."""
    rng = np.random.default_rng(0)
    return np.array(
        [
            USERS[user](np.full((8_000, 10), grade), np.full(8_000, device), rng).mean(axis=0)
            for grade in GRADES
        ]
    ).T


def test_logs_are_balanced_and_the_others_have_weak_production():
    main, other = cells(), cells(set="other")
    assert (len(set(main)), len(set(other))) == (36, 24)
    assert {log.production for log in other} == {"weak"}
    for column, levels in zip(zip(*main, strict=True), LEVELS, strict=True):
        counts = Counter(column)
        assert set(counts) == set(levels)
        assert max(counts.values()) - min(counts.values()) <= 2


def test_a_position_based_user_clicks_by_the_product_of_examination_and_attraction():
    expected = ATTRACTION / np.arange(1, 11)[:, None]
    np.testing.assert_allclose(rates("position-based"), expected, atol=0.02)


def test_a_phone_is_steeper_than_a_desktop():
    desktop, phone = rates("two devices", 0)[:, -1], rates("two devices", 1)[:, -1]
    np.testing.assert_allclose(desktop, 0.9 * np.arange(1, 11) ** -0.5, atol=0.02)
    np.testing.assert_allclose(phone, 0.9 * np.arange(1, 11) ** -1.8, atol=0.02)


def test_trust_adds_clicks_to_what_does_not_attract_at_the_top():
    added = rates("trusting") - rates("position-based")
    assert added[0, 0] > 0.5
    assert added[0, 0] > added[0, -1]
    assert np.abs(added[-1]).max() < 0.02


def test_the_matrix_is_no_product_of_grade_and_position():
    found = rates("click matrix")
    decay = found[3] / found[0]
    assert decay[-1] > 2 * decay[0]


def test_a_cascade_ends_with_its_first_click():
    clicks = USERS["cascade"](GRADE, np.zeros(len(GRADE)), np.random.default_rng(0))
    assert clicks.sum(axis=1).max() == 1
    # Nobody comes to position 2 who has clicked at 1.
    expected = (1 - ATTRACTION[4]) * ATTRACTION[3]
    assert clicks[:, 1].mean() == pytest.approx(expected, abs=0.02)


def test_satisfied_users_leave_and_others_may_go_on():
    clicks = USERS["satisfied"](GRADE, np.zeros(len(GRADE)), np.random.default_rng(0))
    assert clicks.sum(axis=1).max() > 1
    stays = 0.9 * (1 - ATTRACTION[4] * SATISFACTION[4])
    assert clicks[:, 1].mean() == pytest.approx(stays * ATTRACTION[3], abs=0.02)


@pytest.mark.parametrize("user", ["cascade", "two devices"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_table_has_the_impressions_and_clicks_of_the_sessions(order, user):
    world = world_of(LOG._replace(order=order, user=user), 0)
    log = world.log
    assert log.groupby("session")["impressions"].first().sum() == 2_000
    assert (log["click"] * log["impressions"]).sum() == pytest.approx(world.clicks.sum())
    assert not log.duplicated(["session", "position"]).any()
    assert not log.duplicated(["session", "doc"]).any()
    assert ("user" in log) == (user == "two devices")
    lists = log.groupby("qid")["session"].nunique()
    assert (lists.max() == 1) == (order == "one order" and user == "cascade")
    assert set(log["qid"]).isdisjoint(world.test["qid"])
    assert "relevance" not in log


def test_production_is_as_strong_as_its_name():
    found = {}
    for name in PRODUCTION:
        world = world_of(LOG._replace(production=name), 0)
        for part, documents in (("log", world.train), ("test", world.test)):
            columns = documents[["production", "relevance"]]
            found[name, part] = columns.corr().iloc[0, 1]
    assert found["weak", "test"] + 0.05 < found["medium", "test"] < found["strong", "test"]
    # It remembers the labels of the log, and knows other queries as the strong one does.
    assert found["memorised", "log"] > 0.85
    assert found["memorised", "test"] == pytest.approx(found["strong", "test"], abs=0.1)
    assert found["hidden signal", "test"] > found["medium", "test"] + 0.05


def test_the_same_cell_is_the_same_log():
    first, second = (world_of(LOG, 0).log for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert not first.equals(world_of(LOG, 1).log)


@pytest.mark.parametrize(
    "name", ["naive", "ensemble, production", "LightGBM, position", "skyline, network"]
)
def test_a_tiny_fit_has_its_row(name):
    (row,) = names(LOG._asdict() | {"ranker": name}, Settings(tiny=True), 0)
    assert row["error"] == ""
    assert 0 < row["shown"] <= 1
    assert row["all"] != row["shown"]


def test_a_fit_that_fails_says_why_and_is_counted(monkeypatch):
    def fail(*_):
        raise ValueError("no clicks")

    monkeypatch.setattr("benchmarks.studies.names.scores_of", fail)
    (row,) = names(LOG._asdict() | {"ranker": "IPS"}, Settings(tiny=True), 0)
    assert row["error"] == "ValueError: no clicks"
    naive = fit("naive", 0.5)
    table = per_ranker(pd.DataFrame([naive, naive | row | {"ranker": "IPS"}]))
    assert table.set_index("ranker")["failed"].to_dict() == {"naive": 0, "IPS": 1}


def fit(ranker, value, *, production="weak", told=0.0, seconds=1.0):
    return {
        **LOG._replace(production=production)._asdict(),
        "ranker": ranker,
        "seed": 0,
        "all": value,
        "shown": value / 2,
        "told": told,
        "CPU seconds": seconds,
        "error": "",
    }


def test_margins_are_those_over_naive_of_the_same_log():
    rows = pd.DataFrame(
        [
            fit("naive", 0.5),
            fit("DLA", 0.4, told=1.0, seconds=3.0),
            fit("naive", 0.6, production="strong"),
            fit("DLA", 0.8, production="strong"),
        ]
    )
    table = per_ranker(rows).set_index("ranker").loc["DLA"]
    expected = {
        "mean": 0.05,
        "worst": -0.1,
        "below -.03": 0.5,
        "weak, medium": -0.1,
        "other production": 0.2,
        "shown, mean": 0.025,
        "naive fits": 2.0,
    }
    assert table[list(expected)].to_dict() == pytest.approx(expected)
    found = told(rows).set_index(["ranker", "ends"])["told"]
    assert found["DLA", "below -.03"] == 1
    assert found["all single rankers", "above .03"] == 0


def test_an_ensemble_is_compared_with_the_better_of_naive_and_production():
    values = {"naive": 0.5, "production": 0.6, "ensemble": 0.55, "ensemble, production": 0.62}
    table = beside_the_better(pd.DataFrame([fit(*each) for each in values.items()]))
    assert table["mean"].tolist() == pytest.approx([-0.05, 0.02])
    assert table["at least -.005"].tolist() == [0, 1]


def test_user_aware_is_fitted_where_there_are_two_devices():
    jobs = PAGE.exhibits[0].study.cells(Settings())
    fitted = {name: {job["user"] for job in jobs if job["ranker"] == name} for name in METHODS}
    assert fitted.pop("user-aware") == {"two devices"}
    assert all("cascade" in users for users in fitted.values())
