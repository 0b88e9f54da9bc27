"""`make benchmarks`: each work runs, its ratios and claims are arithmetic, the page shows them."""

import csv
import platform
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config

from benchmarks._machine import PACKAGES, describe_machine
from benchmarks._study import Settings, main
from benchmarks.speed import PAGE
from benchmarks.speed._page import TOPICS, exhibit, works
from benchmarks.speed._work import OURS, TINY, Seconds, Work, growth, ratios

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks" / "speed"
WORKS = [work for topic in TOPICS for work in works(topic)]


def test_names_tell_works_and_their_topics():
    assert len({work.name for work in WORKS}) == len(WORKS)
    assert len({work.title for work in WORKS}) == len(WORKS)
    assert all(work.name.startswith(f"{topic}/") for topic in TOPICS for work in works(topic))


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_all_contenders_run(work):
    # Workers of a search are threads here: processes take long to start.
    with warnings.catch_warnings(), parallel_config("threading"):
        warnings.simplefilter("ignore")
        contenders = work.contenders(TINY.size)
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

    found = ratios(Work("topic/work", "", contenders, {"a": None, "b": None}), TINY)
    assert calls[:6] == [OURS, "a", "b"] * 2
    assert set(found["a"]) == {1.5}
    assert set(found["b"]) == {0.5}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells")
def test_growth_is_that_of_the_call():
    work = Work("topic/work", "", lambda size: {OURS: lambda: bytearray(64 << 20)}, {})
    assert growth(work, TINY, OURS) == pytest.approx(64 << 20, rel=0.2)


# --------------------------------------------------------------------------------------
# The exhibit
# --------------------------------------------------------------------------------------
def _rows(memory, work="a/work"):
    """Rows of one work: a ratio of 2, and MiB of ours and the peer."""
    times = [{"measure": "time", "peer": "peer", "ratio": 2.0, "lower": 1.5, "upper": 5.5}]
    grown = [{"measure": name, "bytes": n << 20} for name, n in memory.items()]
    return pd.DataFrame([{"work": work, "seed": 0, **row} for row in times + grown])


def _answers(shown, rows):
    kept = shown.keep(rows)
    means = kept.set_index(["title", "peer"]).drop(columns="seed").astype(float)
    gaps = [claim.gaps(means, kept) for claim in shown.claims]
    return kept, [None if np.isnan(gap) else gap > 0 for gap in gaps]


@pytest.mark.parametrize(
    ("goal", "memory_goal", "expected"),
    [
        (None, None, []),
        (2.0, None, [True]),
        (1.9, None, [False]),
        (2.0, 2.9, [True, False]),
        (2.0, 3.0, [True, True]),
    ],
)
def test_goals_are_claims_about_time_and_memory(goal, memory_goal, expected):
    work = Work("a/work", "title", None, {"peer": goal}, memory_goal=memory_goal)
    kept, answers = _answers(exhibit("a", "A", [work]), _rows({OURS: 300, "peer": 100}))
    numbers = ["ratio", "lower", "upper", "memory"]
    assert kept[numbers].to_numpy().tolist() == [[2.0, 1.5, 5.5, 3.0]]
    assert answers == expected


@pytest.mark.parametrize("memory", [{OURS: 300, "peer": 1}, {}])
def test_little_memory_has_no_ratio_and_answers_no_claim(memory):
    work = Work("a/work", "title", None, {"peer": None}, memory_goal=1.0)
    kept, answers = _answers(exhibit("a", "A", [work]), _rows(memory))
    assert kept["memory"].isna().all()
    assert answers == [None]


def test_memory_may_be_what_a_work_is_about():
    work = Work("a/work", "title", None, {"peer": 1.0}, unit="memory")
    shown = exhibit("a", "A", [work])
    kept, answers = _answers(shown, _rows({OURS: 3, "peer": 1}))
    assert kept["ratio"].tolist() == [3.0]
    assert answers == [False]
    cells = shown.study.cells(Settings(quick=True))
    assert [cell["measure"] for cell in cells] == [OURS, "peer"]


def test_memory_is_measured_where_it_has_a_goal_and_at_full_size():
    settings = [Settings(quick=True), Settings()]
    for goal, memory, expected in [
        (None, True, [1, 3]),
        (1.0, True, [3, 3]),
        (None, False, [1, 1]),
    ]:
        work = Work("a/work", "", None, {"peer": None}, memory=memory, memory_goal=goal)
        cells = exhibit("a", "A", [work]).study.cells
        assert [len(cells(asked)) for asked in settings] == expected


def test_works_are_measured_again_and_rows_of_others_stay(tmp_path):
    options = ["--tiny", "--out", str(tmp_path), "--cell"]
    assert main(PAGE, [*options, "evaluation/cmip"]) == 0
    table = pd.read_csv(tmp_path / "speed" / "evaluation.csv")
    assert table["title"].unique().tolist() == ["cmip_score, nearest neighbours"]
    assert pd.read_csv(tmp_path / "speed" / "verdicts.csv")["verdict"].tolist() == ["incomplete"]
    assert main(PAGE, [*options, "evaluation/ndcg"]) == 0
    again = pd.read_csv(tmp_path / "speed" / "evaluation.csv")
    assert again["title"].nunique() == 2
    assert again.tail(3)["ours"].tolist() == table["ours"].tolist()
    assert (tmp_path / "speed" / "evaluation.png").stat().st_size > 10_000
    assert main(PAGE, [*options, "evaluation/cmip"]) == 0
    assert len((tmp_path / "speed" / "evaluation.jsonl").read_text().splitlines()) == 3


# --------------------------------------------------------------------------------------
# The page
# --------------------------------------------------------------------------------------
def _read(name):
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_every_topic_and_no_work_that_is_gone():
    text = (DOCS / "benchmarks.rst").read_text(encoding="utf-8")
    assert re.findall(r"^\.\. ratios:: (\w+)$", text, re.MULTILINE) == list(TOPICS)
    for topic in TOPICS:
        rows = {(row["title"], row["peer"]) for row in _read(topic)}
        assert rows <= {(work.title, peer) for work in works(topic) for peer in work.goals}


def test_the_machine_is_described_without_its_name():
    for text in (describe_machine(), *(row["machine"] for row in _read("verdicts"))):
        assert all(f", {package} " in text for package in PACKAGES)
        assert re.search(r"\d+ cores, .*\d+ GiB, \w+ \w+, Python 3", text)
        assert "/" not in text
        assert platform.node() not in text.split(", ")


def test_committed_verdicts_are_those_of_today():
    """The columns that a run writes, and no goal that was not measured as an open one."""
    papers = DOCS / "papers/results/cmip/verdicts.csv"
    assert sorted(_read("verdicts")[0]) == sorted(pd.read_csv(papers).columns)
    assert not any("Undecided" in row["why"] for row in _read("verdicts"))


def test_the_page_builds(tmp_path):
    pytest.importorskip("sphinx")
    source = tmp_path / "source"
    source.mkdir()
    (source / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        "extensions = ['speed_results']\nroot_doc = 'benchmarks'\n"
    )
    (source / "benchmarks.rst").write_text((DOCS / "benchmarks.rst").read_text())
    (source / "benchmarks").symlink_to(DOCS / "benchmarks")
    build = [sys.executable, "-m", "sphinx", "-qWb", "text", str(source), str(tmp_path / "out")]
    subprocess.run(build, check=True)
    words = set((tmp_path / "out" / "benchmarks.txt").read_text().split())
    shown = [row["title"] for topic in TOPICS for row in _read(topic)]
    shown += [row["machine"] for row in _read("verdicts")]
    assert not {word for text in shown for word in text.split()} - words
