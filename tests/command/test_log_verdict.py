"""The verdict of ``skultr check``: its colour, its words, its exit status and its code."""

import ast
import importlib
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr import IdentifiabilityRepair, describe_log
from skultr.__main__ import main
from skultr.command._report import _COLOURS


def _pages(n_pages=400, moves=True, shown=5):
    """Pages of a query's documents: in an order that varies, or in one order."""
    rng = np.random.default_rng(0)
    order = [rng.permutation(shown) if moves else np.arange(shown) for _ in range(n_pages)]
    doc = np.concatenate(order)
    position = np.tile(np.arange(1, shown + 1), n_pages)
    log = pd.DataFrame({"qid": np.repeat(rng.integers(8, size=n_pages), shown)})
    log["session"] = np.repeat(np.arange(n_pages), shown)
    log["user"] = log["session"] % 100
    log["doc"] = doc
    log["position"] = position
    log["price"] = 1.5 * doc
    log["click"] = (rng.random(len(doc)) < 0.9 / position * (1 + doc) / shown).astype(int)
    return log


LOGS = {
    "yes": _pages(),
    "no": _pages(moves=False),
    "open": _pages().rename(columns={"doc": "col_1"})[["qid", "position", "click", "price"]],
    "faulty": _pages().assign(click=1),
}


@pytest.mark.parametrize(("level", "status"), [("yes", 0), ("no", 3), ("open", 1), ("faulty", 3)])
def test_the_exit_status_and_the_colour_are_those_of_the_verdict(level, status, tmp_path, capsys):
    LOGS[level].to_parquet(tmp_path / "log.parquet")
    page = tmp_path / "page.html"
    assert main(["check", str(tmp_path / "log.parquet"), "--html", str(page)]) == status
    report = describe_log(LOGS[level])
    assert report.level == level
    # The verdict comes before all else, in the terminal and on the page.
    printed = capsys.readouterr().out
    assert printed.splitlines()[3:5] == ["Verdict", report.headline]
    html = page.read_text()
    assert html.index(report.headline) < html.index("<h2>")
    assert all(f"--level:{colour}" in html for colour in _COLOURS[level])
    green = _COLOURS["yes"][0]
    assert (f"--level:{green}" in html) == (level == "yes")


def test_functions_that_the_verdict_names_exist():
    said = " ".join(describe_log(LOGS["yes"]).steps)
    named = re.findall(r"`skultr\.(\w+)\.(\w+)`", said)
    assert ("evaluation", "policy_difference") in named
    for module, function in named:
        assert callable(getattr(importlib.import_module(f"skultr.{module}"), function))


def test_an_order_that_never_changes_is_told_in_plain_words():
    report = describe_log(LOGS["no"])
    assert report.meaning.startswith("Each document was always shown at one place")
    assert any("Swap neighbours" in step for step in report.steps)
    assert report.examination.empty
    assert report.code.startswith("# CAUTION: these clicks do not separate place from quality")
    assert "CAUTION" not in describe_log(LOGS["yes"]).code


def test_places_that_share_no_document_are_named():
    """The first two places exchange documents, and so do the other three."""
    log = _pages(moves=False)
    turned = (log["session"] % 2 == 1) & (log["position"] <= 2)
    log.loc[turned, "position"] = 3 - log.loc[turned, "position"]
    turned = (log["session"] % 3 == 1) & (log["position"] > 2)
    log.loc[turned, "position"] = 8 - log.loc[turned, "position"]
    report = describe_log(log)
    assert report.level == "no"
    assert "1, 2" in report.meaning


def test_few_clicks_ask_for_care():
    log = _pages()
    rare = log["position"] == 5
    log.loc[rare, "click"] = 0
    log.loc[log.index[rare][:1], "click"] = 1
    report = describe_log(log)
    assert report.level == "barely"
    assert report.code.startswith("# With care")


@pytest.mark.parametrize(("n_clicks", "level"), [(99, "barely"), (100, "yes")])
def test_a_log_of_few_clicks_asks_for_care(n_clicks, level):
    log = _pages(4_000)[["qid", "doc", "session", "click"]].assign(position=1)
    log["session"] = np.arange(len(log))
    log["click"] = (log["session"] < n_clicks).astype(int)
    report = describe_log(log)
    assert report.level == level
    why = "There are few clicks (99)" if level == "barely" else "All documents were shown at one"
    assert report.meaning.startswith(why)


def test_examination_has_its_interval():
    examination = describe_log(_pages(3_000)).examination
    pd.testing.assert_frame_equal(examination, describe_log(_pages(3_000)).examination)
    true = 1 / np.arange(1, 6)
    inside = (examination["low"] <= true) & (true <= examination["high"])
    assert inside.mean() >= 0.8
    assert "looked at (95 %)" in describe_log(LOGS["yes"]).page()


def test_json_holds_what_the_report_says(tmp_path, capsys):
    LOGS["yes"].to_parquet(tmp_path / "log.parquet")
    assert main(["check", str(tmp_path / "log.parquet"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    report = describe_log(tmp_path / "log.parquet")
    assert found["level"] == "yes"
    assert found["headline"] == report.headline
    assert found["n_pages"] == 400
    assert [row["position"] for row in found["clicks"]] == [1, 2, 3, 4, 5]
    assert found["examination"][0]["examination"] == 1
    assert {row["name"] for row in found["columns"]} == {*LOGS["yes"]}


@pytest.mark.parametrize("engine", ["opensearch", "elasticsearch", "solr", "vespa", "onnx"])
def test_the_code_writes_a_model_for_the_engine(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = describe_log(LOGS["yes"].assign(brand="a"), engine=engine)
    code = report.code.replace("LambdaMARTRanker()", "LambdaMARTRanker(n_estimators=2)")
    exec(code, {"log": LOGS["yes"].assign(brand="a")})
    (model,) = tmp_path.iterdir()
    assert model.stat().st_size


def test_an_engine_that_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="expected one of python, opensearch"):
        describe_log(LOGS["yes"], engine="lucene")


# What may be wrong ------------------------------------------------------------------------
def _suspicion(log, words):
    return [each for each in describe_log(log).suspicions if words in each]


@pytest.mark.parametrize(("pages_of_bot", "is_told"), [(200, False), (201, True)])
def test_users_of_very_many_pages_may_be_bots(pages_of_bot, is_told):
    log = _pages(600)
    # 100 users of four pages, and one of the others.
    log["user"] = np.where(log["session"] < 400, log["session"] % 100, 100)
    log = log[log["session"] < 400 + pages_of_bot].drop(columns="price")
    if pages_of_bot > 200:
        more = _pages(601).query("session == 600")
        log = pd.concat([log, more.assign(user=100)])
    found = _suspicion(log, "may be bots")
    assert bool(found) == is_told
    assert not found or "such as 100." in found[0]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_the_code_leaves_out_bots_by_a_line_to_uncomment(library):
    bots = [7_001, 7_002]
    log = _pages(800)
    log["customer"] = np.where(log["session"] < 300, log["session"], bots[0])
    log.loc[log["session"] >= 600, "customer"] = bots[1]
    log = library(log.drop(columns="user"))
    code = describe_log(log).code
    (line,) = (each for each in code.splitlines() if each.startswith("# log = "))
    space = {"log": log, "pl": pl}
    rename = next(each for each in code.splitlines() if ".rename(" in each)
    exec(f"{rename}\n{line.removeprefix('# ')}", space)
    assert len(space["log"]) == 300 * 5
    assert not {*space["log"]["user"]} & {*bots}


@pytest.mark.parametrize(("n_repeated", "is_told"), [(20, False), (40, True)])
def test_pages_that_a_user_saw_twice_are_counted(n_repeated, is_told):
    log = _pages(400, shown=8)
    log["user"] = log["session"]
    again = log[log["session"] < n_repeated]
    log = pd.concat([log, again.assign(session=again["session"] + 1_000)])
    assert bool(_suspicion(log, "repeat a page")) == is_told


@pytest.mark.parametrize(("jump", "is_told"), [(0.9, False), (1.6, True)])
def test_a_rise_far_down_is_a_second_page(jump, is_told):
    rng = np.random.default_rng(0)
    log = _pages(4_000, shown=10)
    rate = np.r_[0.5 / np.arange(1, 7), jump * 0.5 / 6 * np.ones(4)]
    log["click"] = (rng.random(len(log)) < rate[log["position"] - 1]).astype(int)
    assert bool(_suspicion(log, "rise at position 7: a new page")) == is_told


def test_a_rise_at_the_top_is_a_paid_slot():
    rng = np.random.default_rng(0)
    log = _pages(2_000)
    rate = np.array([0.2, 0.5, 0.3, 0.2, 0.1])
    log["click"] = (rng.random(len(log)) < rate[log["position"] - 1]).astype(int)
    assert _suspicion(log, "may be paid or pinned slots")


@pytest.mark.parametrize("is_paid", [True, False])
def test_a_flag_of_the_top_rows_is_a_paid_slot(is_paid):
    log = _pages()
    n_paid = log["session"] % 3
    log["boosted"] = (log["position"] <= n_paid).astype(int) if is_paid else log["doc"] % 2
    found = _suspicion(log, "'boosted' is 1 at the top of pages alone")
    assert bool(found) == is_paid


@pytest.mark.parametrize("name", ["sponsorisé", "col_7"])
def test_a_flag_between_results_is_told_if_its_name_says_paid(name):
    log = _pages()
    log[name] = log["position"].isin([1, 4]) & (log["session"] % 2 == 0)
    found = _suspicion(log, f"{name!r} is named as paid slots")
    assert bool(found) == (name == "sponsorisé")
    if found:
        # No ranker reads the flag after what is advised.
        bias = found[0].partition("IdentifiabilityRepair(bias=")[2].partition(")")[0]
        repair = IdentifiabilityRepair(bias=ast.literal_eval(bias))
        repaired = repair.fit_transform(log, log["click"])
        assert name not in repaired
        assert repaired["bias"].nunique() > log["position"].nunique()


# What stands at a place, whatever it is ---------------------------------------------------
def test_a_column_that_the_position_decides_is_no_feature():
    log = _pages().assign(row=lambda log: 1 + log["position"] // 3)
    report = describe_log(log)
    assert report.columns.loc["row", "role"] == "of the position"
    assert any("one value per position ('row')" in each for each in report.remarks)
    assert "'row'" in next(line for line in report.code.splitlines() if "drop" in line)
    # Few rows, and chance may say so.
    assert describe_log(log[:195]).columns.loc["row", "role"] == "feature"
    # One row that differs, and it says more than the place.
    log.loc[7, "row"] += 1
    assert describe_log(log).columns.loc["row", "role"] == "feature"


def test_a_feature_of_documents_that_never_moved_stays_a_feature():
    log = _pages(moves=False)
    assert log.groupby("position")["price"].nunique().max() == 1
    assert describe_log(log).columns.loc["price", "role"] == "feature"


# Paid slots, and the score of production ---------------------------------------------------
def _with_slots():
    """Pages whose first place is a paid slot two times in three, of which one click in three is
    lost; the rest stand in the order of a score."""
    log = _pages(1_000)
    is_paid = (log["position"] == 1) & (log["session"] % 3 > 0)
    lost = is_paid & (np.random.default_rng(1).random(len(log)) < 0.6)
    log["click"] = log["click"].where(~lost, 0)
    log["punkte"] = -log["position"] - log["session"] % 7 + 5.0 * is_paid * (log["doc"] - 4)
    return log.assign(gesponsert=is_paid.astype(int))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_named_slots_are_left_out_here_and_by_the_code(library):
    log = library(_with_slots())
    report = describe_log(log)
    (remark,) = (each for each in report.remarks if "paid slots" in each)
    n_paid = int(log["gesponsert"].sum())
    assert remark.startswith(f"{n_paid:,} rows are paid slots, by 'gesponsert': left out")
    assert report.n_rows == len(log) - n_paid
    assert report.columns.loc["gesponsert", "role"] == "paid slot"
    # Pages that begin below a slot are not torn.
    assert not any("gaps" in each for each in report.remarks)
    code = report.code.replace("EnsembleRanker", "NaiveRanker")
    code = code.replace("NaiveRanker()", "NaiveRanker(max_epochs=1)")
    space = {"log": log}
    exec(code, space)
    assert len(space["log"]) == report.n_rows
    assert "gesponsert" not in space["log"].columns
    assert "gesponsert" not in space["ranker"].feature_names_in_


def test_slots_pull_down_the_first_place():
    """Without them the second place is looked at half as often as the first."""
    log = _with_slots()
    hidden = log.rename(columns={"gesponsert": "flag"}).drop(columns="punkte")
    told, naive = (describe_log(each).examination for each in (log, hidden))
    assert told.loc[2, "low"] < 0.5 < told.loc[2, "high"]
    assert naive.loc[2, "low"] > 0.5


@pytest.mark.parametrize("name", ["punkte", "col_7"])
def test_the_score_that_orders_the_pages_is_found_below_the_slots(name):
    report = describe_log(_with_slots().rename(columns={"punkte": name}))
    assert report.rename[name] == "production"
    assert (
        report.roles.loc[name, "reason"] == "orders the rows of each page; its name says nothing"
    )


def test_a_flag_of_the_query_is_no_bias_factor():
    """It is constant on pages, and on all pages of a query, too."""
    log = _pages().assign(of_query=lambda log: log["qid"] % 2, of_page=lambda log: log["user"] % 2)
    (remark,) = (each for each in describe_log(log).remarks if "may be bias factors" in each)
    assert "'of_page'" in remark
    assert "'of_query'" not in remark
