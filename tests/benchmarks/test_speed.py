"""`make benchmarks`: each work runs, its files say what they should, and the page shows them."""

import csv
import platform
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from joblib import parallel_config

from benchmarks import speed
from benchmarks.speed import _report, _work
from benchmarks.speed._work import OURS, SIZES, Seconds, Work

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks"
WORKS = _work.works()


def test_names_tell_works_apart():
    names = [work.name for work in WORKS]
    assert len(set(names)) == len(names)
    assert {work.topic for work in WORKS} == set(_work.TOPICS)
    assert all(_work.find(work.name).title == work.title for work in WORKS)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_all_contenders_run(work):
    # Workers of a search are threads here: processes take long to start.
    with warnings.catch_warnings(), parallel_config("threading"):
        warnings.simplefilter("ignore")
        contenders = work.contenders(SIZES["tiny"])
        assert list(contenders) == [OURS, *work.goals]
        for contender in contenders.values():
            contender()


def test_contenders_take_turns_and_may_time_themselves():
    calls = []

    def contenders(size):
        return {
            OURS: lambda: calls.append(OURS) or Seconds(3),
            "a": lambda: calls.append("a") or Seconds(2),
            "b": lambda: calls.append("b") or Seconds(6),
        }

    work = Work("topic/work", "", contenders, {"a": None, "b": None})
    found = _work.ratios(work, SIZES["tiny"])
    assert calls[:6] == [OURS, "a", "b"] * 2
    assert set(found["ratios"]["a"]) == {1.5}
    assert set(found["ratios"]["b"]) == {0.5}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells")
def test_growth_is_that_of_the_call():
    work = Work("topic/work", "", lambda size: {OURS: lambda: bytearray(64 << 20)}, {})
    assert _work.growth(work, SIZES["tiny"], OURS) == pytest.approx(64 << 20, rel=0.2)


@pytest.mark.parametrize(
    ("goal", "memory_goal", "met"),
    [(None, None, ""), (2.0, None, "yes"), (1.9, None, "no"), (2.0, 2.9, "no"), (2.0, 3.0, "yes")],
)
def test_a_goal_is_met_in_time_and_memory(goal, memory_goal, met):
    work = Work("topic/work", "title", None, {"peer": goal}, memory_goal=memory_goal)
    grown = {OURS: 300 << 20, "peer": 100 << 20}
    row = _report.row(work, "peer", [1.0, 2.0, 9.0], grown, SIZES["tiny"])
    assert [row[name] for name in ("ratio", "lower", "upper", "memory")] == [2.0, 1.5, 5.5, 3.0]
    assert row["met"] == met


def test_little_memory_has_no_ratio():
    work = Work("topic/work", "title", None, {"peer": None})
    row = _report.row(work, "peer", [1.0], {OURS: 300 << 20, "peer": 1 << 20}, SIZES["tiny"])
    assert pd.isna(row["memory"])


def test_rows_of_other_works_stay_unless_the_machine_changed(tmp_path):
    first, second = (Work(f"a/{n}", n, None, {"peer": 2.0}) for n in ("first", "second"))

    def written(work, ratio):
        row = _report.row(work, "peer", [ratio], {}, SIZES["tiny"])
        _report.write([row], tmp_path, [first, second])
        table = pd.read_csv(tmp_path / "ratios.csv")
        return list(zip(table["title"], table["ratio"], table["met"], strict=True))

    assert written(second, 1.0) == [("second", 1.0, "yes")]
    assert written(first, 2.0) == [("first", 2.0, "yes"), ("second", 1.0, "yes")]
    second = Work("a/second", "new title", None, {"peer": 0.5})
    assert written(first, 3.0) == [("first", 3.0, "no"), ("new title", 1.0, "no")]
    machine = pd.read_csv(tmp_path / "machine.csv")
    machine.assign(value="other").to_csv(tmp_path / "machine.csv", index=False)
    assert written(first, 4.0) == [("first", 4.0, "no")]


def test_a_work_that_fails_stops_no_other(tmp_path, capsys, monkeypatch):
    real = speed._ask

    def ask(work, what, size):
        if work.name == "evaluation/ndcg":
            raise subprocess.CalledProcessError(-6, "work", stderr="Aborted\n")
        return real(work, what, size)

    monkeypatch.setattr(speed, "_ask", ask)
    names = ["evaluation/ndcg", "evaluation/cmip"]
    assert speed.main(["--tiny", "--only", *names, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "evaluation/ndcg" in said.out
    assert "FAILED: Aborted" in said.out
    assert said.err == "failed: evaluation/ndcg\n"
    table = pd.read_csv(tmp_path / "ratios.csv")
    assert table.columns.tolist() == _report.COLUMNS
    assert table["work"].tolist() == ["evaluation/cmip"]
    assert (tmp_path / "ratios.png").stat().st_size > 10_000


def test_unknown_names_are_refused():
    with pytest.raises(SystemExit, match="there is no serving/aray"):
        speed.main(["--only", "serving/aray"])


# --------------------------------------------------------------------------------------
# The page
# --------------------------------------------------------------------------------------
def _rows(name):
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_every_topic_and_no_work_that_is_gone():
    text = (DOCS / "benchmarks.rst").read_text(encoding="utf-8")
    assert re.findall(r"^\.\. ratios:: (\w+)$", text, re.MULTILINE) == list(_work.TOPICS)
    rows = {(row["work"], row["peer"], row["title"]) for row in _rows("ratios")}
    assert rows <= {(work.name, peer, work.title) for work in WORKS for peer in work.goals}


def test_the_machine_is_described_without_its_name():
    values = {row["what"]: row["value"] for row in _rows("machine")}
    assert {"processor", "cores", "memory", "system", "Python", *_report.PACKAGES} <= set(values)
    assert not [value for value in values.values() if "/" in value or value == platform.node()]


def test_the_page_builds(tmp_path):
    pytest.importorskip("sphinx")
    source = tmp_path / "source"
    source.mkdir()
    (source / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        "extensions = ['speed_results']\nroot_doc = 'benchmarks'\n"
    )
    (source / "benchmarks.rst").write_text((DOCS / "benchmarks.rst").read_text())
    (source / "benchmarks").symlink_to(RESULTS)
    build = [sys.executable, "-m", "sphinx", "-qWb", "text", str(source), str(tmp_path / "out")]
    subprocess.run(build, check=True)
    text = (tmp_path / "out" / "benchmarks.txt").read_text()
    words = set(text.split())
    assert all(word in words for row in _rows("ratios") for word in row["title"].split())
    assert _rows("machine")[0]["value"] in text
