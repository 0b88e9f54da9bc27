"""``skultr check`` on the shop of the guide, whose columns are German."""

import sys
from pathlib import Path

import numpy as np
import pytest

from skultr import describe_log

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "7_engines"))
import german_shop  # noqa: E402


@pytest.fixture(scope="module")
def visits():
    # Bots of so small a log search more often than in the guide.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(german_shop, "SEARCHES_OF_BOT", 0.06)
        shop = german_shop.open_german_shop(60, random_state=1)
        return german_shop.search_shop(shop, 4_000, n_bots=1, random_state=1)


@pytest.fixture(scope="module")
def report(visits, tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    german_shop.write_days(visits.log, lake)
    return describe_log(lake)


def test_roles_of_the_shop_are_found(report):
    assert report.rename == {
        "Suche": "qid",
        "Suchvorgang": "session",
        "Artikel": "doc",
        "Platz": "position",
        "Kunde": "user",
        "Klick": "click",
        "Punkte": "production",
        "Warenkorb": "outcome_warenkorb",
        "Kauf": "outcome_kauf",
    }
    roles = report.columns["role"]
    assert {*roles.index[roles == "feature"]} == {*german_shop.FEATURES}
    assert report.faults == []


def test_slots_bots_and_the_second_page_are_told(visits, report):
    said = "\n".join([*report.suspicions, *report.remarks])
    assert f"{visits.log['gesponsert'].sum():,} rows are paid slots, by 'gesponsert'" in said
    assert all(bot in said for bot in visits.bots)
    assert "Clicks rise at position 11: a new page" in said
    assert "gaps" not in said
    assert report.examination.loc[11, "examination"] > report.examination.loc[10, "high"]


def test_clicks_are_drawn_from_looks_and_appeal(visits):
    """Of results that people saw; the error of the mean of n clicks is at most 1 / (2 √n)."""
    log = visits.log
    is_result = (log["gesponsert"] == 0) & ~log["Kunde"].isin(visits.bots)
    looks = german_shop.examination(log["Platz"].to_numpy(), log["Gerät"])
    for is_second in (False, True):
        chosen = is_result & ((log["Platz"] > german_shop.PAGE) == is_second)
        expected = (looks * visits.appeal)[chosen].mean()
        assert abs(log["Klick"][chosen].mean() - expected) < 2 / np.sqrt(chosen.sum())
