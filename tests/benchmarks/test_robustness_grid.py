"""The grid of users, production rankers and sessions: its users, weights, marks and claims."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("lightgbm", reason="production of all labels")

from benchmarks._claims import CONTRADICTED, HOLDS, decide
from benchmarks._exhibit import summarize
from benchmarks._study import Settings
from benchmarks.studies.robustness_grid import (
    CELL,
    CELLS,
    CLAIMS,
    CORRECTED,
    METHODS,
    PRODUCTION,
    ROBUST,
    STRONG,
    USERS,
    ComparingUser,
    World,
    after_last_click,
    cells,
    draw_grid,
    fits,
    per_method,
)


def test_two_documents_that_are_compared():
    """Chances by hand: a page of two has one pair, compared until satisfied or passed.

    With weights A, B and G of the upper one, the lower one and going on, and A' of the upper one
    once it was clicked, the lower one is clicked after the upper one with the chance h that solves
    h = (B + A' (1 - s) h) / (A' + B + G), where s is the chance that the upper one satisfies.
    """
    user = ComparingUser()
    n_pages = 200_000
    clicks = user.click(np.tile([3, 1], (n_pages, 1)), np.random.default_rng(0))

    upper, lower = np.exp(3 + 4 / 1), np.exp(1 + 4 / 2)
    again = np.exp(3 + 4 / 1 - 4)
    on = np.exp(6.6)
    # Grade 3 of 4: (2³ - 1) / (2⁴ - 1).
    satisfied = 0.6 * 7 / 15
    after_upper = lower / (again * satisfied + lower + on)
    expected = (lower + upper * (1 - satisfied) * after_upper) / (upper + lower + on)
    # The standard error of a rate p of n pages is at most sqrt(p / n): five of these.
    assert clicks[:, 1].mean() == pytest.approx(expected, abs=5 * np.sqrt(expected / n_pages))
    nothing = on / (upper + lower + on)
    found = (~clicks.any(axis=1)).mean()
    assert found == pytest.approx(nothing, abs=5 * np.sqrt(nothing / n_pages))


def test_places_past_the_end_are_not_clicked():
    grade = np.tile([4, 4, -1, -1], (1_000, 1))
    clicks = ComparingUser().click(grade, np.random.default_rng(0))
    assert clicks[:, :2].any(axis=0).all()
    assert not clicks[:, 2:].any()


def test_propensities_are_those_of_the_last_click_above():
    X = pd.DataFrame({"session": [0] * 4 + [1] * 4, "position": [1, 2, 3, 4] * 2})
    clicks = np.array([1, 0, 1, 0, 0, 0, 1, 1])
    going_on = pd.Series([0.6, 0.3, 0.2, 0.1], index=[1, 2, 3, 4])
    found = after_last_click(X, clicks, going_on)
    assert found.tolist() == [1, 0.6, 0.6, 0.2, 1, 1, 1, 0.2]


@pytest.mark.parametrize("user", USERS)
def test_lists_hold_all_sessions_of_a_user(user):
    world = World({"production": STRONG, "user": user, "sessions": 300}, Settings(), seed=0)
    X, rate = world.lists
    assert X["impressions"].sum() == len(world.impressions) == 3_000
    clicks = world.impressions["click"]
    assert (X["impressions"] * rate).sum() == pytest.approx(clicks.sum())
    assert clicks.sum() > 0


def test_strong_production_is_better_on_queries_of_which_it_saw_no_label():
    gain = {}
    for production in PRODUCTION:
        cell = {"production": production, "user": "position-based", "sessions": 100}
        world = World(cell, Settings(), seed=0)
        random = np.random.default_rng(0).random(len(world.test))
        gain[production] = world.ndcg(world.served) - world.ndcg(random)
    # Two means over 300 queries of values in [0, 1], whose standard deviation is at most 1 / 2:
    # four standard errors of their difference are 4 * sqrt(2 / 300) / 2 = .16.
    assert abs(gain["random order"]) < 0.16
    assert gain[STRONG] > 0.16


@pytest.mark.filterwarnings("ignore")
def test_a_run_has_a_row_for_each_method():
    (*_, cell) = cells(Settings(tiny=True))
    rows = pd.DataFrame(fits(cell, Settings(tiny=True), seed=0)).set_index("method")
    assert rows.index.tolist() == list(METHODS)
    assert rows["nDCG@10"].between(0, 1).all()
    lead = rows["nDCG@10"] - rows.loc["naive", "nDCG@10"]
    np.testing.assert_allclose(rows["over naive"], lead)


def test_larger_logs_are_left_out():
    sizes = {cell["sessions"] for cell in cells(Settings(quick=True, sessions=4_000))}
    assert sizes == {400, 4_000}
    full = {cell["sessions"] for cell in cells(Settings())}
    assert full > {cell["sessions"] for cell in cells(Settings(quick=True))}


def _rows(few_lead, other_lead, n_seeds=4):
    """Rows of three users: leads of the robust methods, elsewhere and where sessions are few."""
    rng = np.random.default_rng(0)
    rows = []
    for cell in cells(Settings(quick=True)):
        is_few = cell["production"] == STRONG and cell["sessions"] == 400
        for seed in range(n_seeds):
            naive = 0.6 + 0.1 * rng.random()
            for name in METHODS:
                lead = (few_lead if is_few else other_lead) * (name in CORRECTED)
                # The others are behind the robust ones everywhere.
                if name in CORRECTED and name not in ROBUST:
                    lead -= 0.01
                if name != "naive":
                    lead += 1e-4 * rng.standard_normal()
                row = {"method": name, "nDCG@10": naive + lead, "over naive": lead}
                rows.append({**cell, "seed": seed, **row})
    return pd.DataFrame(rows)


def _views(rows):
    metrics = ["nDCG@10", "over naive"]
    each = rows.groupby("seed")
    return [
        (part.groupby([*CELL, "method"], sort=False)[metrics].mean(), part) for _, part in each
    ]


def test_claims_hold_in_a_world_made_as_the_paper_says():
    views = _views(_rows(few_lead=-0.02, other_lead=0.03))
    verdicts = {claim.says: decide(claim, views)["verdict"] for claim in CLAIMS}
    ours = [claim.says for claim in CLAIMS if claim.setting != "paper"]
    assert {verdict for says, verdict in verdicts.items() if says not in ours} == {HOLDS}
    assert len(ours) == 1


def test_a_lead_where_sessions_are_few_contradicts():
    views = _views(_rows(few_lead=0.04, other_lead=0.03))
    verdicts = {claim.says: decide(claim, views)["verdict"] for claim in CLAIMS}
    for name in CORRECTED:
        says = f"{name} is no better than naive behind strong production with few sessions"
        assert verdicts[says] == CONTRADICTED


def test_leads_are_marked_and_counted():
    rows = _rows(few_lead=-0.02, other_lead=0.03)
    table = summarize(CELLS, rows)
    lead = table[table["metric"] == "over naive"].set_index([*CELL, "method"])["mark"]
    assert lead[STRONG, "comparing", 400, "DLA"] == "-"
    assert lead[STRONG, "comparing", 4_000, "DLA"] == "+"
    assert set(table.loc[table["metric"] == "nDCG@10", "mark"]) == {""}

    found = per_method(rows).set_index("method")
    assert "naive" not in found.index
    # Three users of 27 cells have strong production and few sessions.
    assert found.loc["DLA", "below naive"] == pytest.approx(3 / 27)
    assert found.loc["DLA", "above naive"] == pytest.approx(24 / 27)
    assert found.loc["DLA", "few, below naive"] == 1
    assert found.loc["DLA", "worst"] == pytest.approx(-0.02, abs=1e-3)
    assert len(draw_grid(rows, table).axes) == 9
