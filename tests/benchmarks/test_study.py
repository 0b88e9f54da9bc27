"""The core of the paper scripts, on a study whose rows are arithmetic."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skultr
from benchmarks import _study
from benchmarks._claims import PAPER, decide
from benchmarks._documents import name_of, read_letor
from benchmarks._exhibit import _draw, decide_claims, summarize
from benchmarks._study import (
    Claim,
    Exhibit,
    Page,
    Settings,
    Study,
    _arguments,
    committed,
    grid,
    main,
)

CALLS = []


def run(cell, settings, seed):
    CALLS.append((cell["k"], seed))
    if cell["k"] == 13:
        raise ValueError("a bad cell")
    if cell["k"] == 14:
        os._exit(6)
    return [{"method": name, "score": cell["k"] + gain + 0.001 * seed} for name, gain in GAINS]


GAINS = (("A", 0.0), ("B", 0.1))


def lead(means, rows):
    """B over A in each cell."""
    wide = means["score"].unstack("method")
    return wide["B"] - wide["A"]


def paper(gaps=lead, cells=(1, 2), alone=False, again=False, setting=PAPER, **exhibit):
    CALLS.clear()
    cells = grid(k=cells)
    study = Study("study", run, cells=cells, alone=alone, again=again)
    exhibits = (
        Exhibit(
            "table 1",
            "A table",
            study,
            ("k", "method"),
            ("score",),
            claims=(Claim("B is ahead", gaps, why="of the weather", setting=setting),),
            **exhibit,
        ),
        Exhibit("figure 2a", "A figure", study, ("k", "method"), ("score",), x="k"),
    )
    return Page("demo", "A paper", exhibits)


def call(out, *options, **keywords):
    return main(paper(**keywords), ["--quick", "--jobs", "1", "--out", str(out), *options])


def verdict(out):
    table = pd.read_csv(out / "demo" / "verdicts.csv").set_index("exhibit")
    return table.loc["table 1", "verdict"], str(table.loc["table 1", "why"])


def test_tables_figures_and_verdicts_are_written(tmp_path):
    assert call(tmp_path) == 0
    table = pd.read_csv(tmp_path / "demo" / "table_1.csv")
    # Seeds 0, 1, 2 add 0, .001, .002.
    assert table["ours"].tolist() == pytest.approx([1.001, 1.101, 2.001, 2.101])
    assert table["interval"].iloc[0] == pytest.approx(4.302653 * 0.001 / 3**0.5)
    assert (tmp_path / "demo" / "figure_2a.png").stat().st_size > 1_000
    assert verdict(tmp_path)[0] == "in shape"


def test_a_stopped_study_goes_on_where_it_was(tmp_path):
    call(tmp_path, "--runs", "2")
    assert len(CALLS) == 4
    file = tmp_path / "demo" / "study.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:20])
    call(tmp_path, "--runs", "3")
    # One run was cut off, and two are new.
    assert len(CALLS) == 3
    assert pd.read_csv(tmp_path / "demo" / "table_1.csv")["runs"].eq(3).all()
    call(tmp_path, "--runs", "3")
    assert len(CALLS) == 0


def test_rows_of_another_size_are_not_taken(tmp_path):
    call(tmp_path, "--runs", "1")
    call(tmp_path, "--runs", "1", "--sessions", "500")
    assert len(CALLS) == 2
    sizes = [json.loads(line)["job"]["settings"]["sessions"] for line in _lines(tmp_path)]
    assert sizes == [None, None, 500, 500]


def test_rows_of_another_release_are_not_taken(tmp_path, monkeypatch):
    call(tmp_path, "--runs", "1")
    monkeypatch.setattr(skultr, "__version__", "99.0")
    call(tmp_path, "--runs", "1")
    assert len(CALLS) == 2


def _lines(out):
    return (out / "demo" / "study.jsonl").read_text().splitlines()


def test_a_claim_that_fails_is_named_with_its_reason(tmp_path):
    call(tmp_path, gaps=lambda means, rows: -lead(means, rows))
    assert verdict(tmp_path) == ("contradicted", "Does not hold: B is ahead (of the weather)")


@pytest.mark.parametrize(
    ("published", "expected"), [(1.003, "reproduced"), (1.2, "in shape"), (None, "in shape")]
)
def test_published_figures_decide_between_reproduced_and_in_shape(tmp_path, published, expected):
    call(tmp_path, published={(1, "A"): (published,)})
    assert verdict(tmp_path)[0] == expected


def test_panels_of_dots_have_one_list_of_rows():
    """Row B has no value of the second metric, and stays in its place."""
    rows = pd.DataFrame({"method": list("ABC") * 2, "seed": [0] * 3 + [1] * 3, "one": range(6)})
    rows["two"] = rows["one"].where(rows["method"] != "B")
    exhibit = replace(paper().exhibits[0], by=("method",), metrics=("one", "two"))
    left, right = _draw(exhibit, rows, summarize(exhibit, rows)).axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["A", "B", "C"]
    assert left.get_yticks().tolist() == [2, 1, 0]
    assert right.lines[0].get_ydata().tolist() == [2, 0]


def test_rows_are_marked_against_the_reference(tmp_path):
    # B is ahead of A by .1 in each run: the same gap has no spread, so no test is made.
    rows = pd.DataFrame(
        {"method": list("ABC") * 3, "seed": [0] * 3 + [1] * 3 + [2] * 3}
        | {"score": [0.5, 0.7, 0.51, 0.6, 0.81, 0.58, 0.4, 0.59, 0.42]}
    )
    exhibit = paper().exhibits[0]
    table = summarize(replace(exhibit, by=("method",), reference="A"), rows)
    assert table["mark"].tolist() == ["", "+", ""]


def test_paired_intervals_leave_out_what_a_run_shares():
    # Documents of the runs are worth 0, .2 and -.1; B is .1 ahead of A, and C .1 behind.
    rows = pd.DataFrame({"method": list("ABC") * 3, "seed": [0] * 3 + [1] * 3 + [2] * 3})
    level = rows["seed"].map({0: 0.5, 1: 0.7, 2: 0.4})
    rows["score"] = level + rows["method"].map({"A": 0.0, "B": 0.1, "C": -0.1})
    exhibit = replace(paper().exhibits[0], by=("method",))
    alone = summarize(exhibit, rows)["interval"]
    together = summarize(replace(exhibit, paired=()), rows)["interval"]
    # sd of 0, .2, -.1 is .1528; t with 2 degrees of freedom is 4.303.
    assert alone.tolist() == pytest.approx([4.302653 * 0.1527525 / 3**0.5] * 3)
    assert together.tolist() == pytest.approx([0.0] * 3, abs=1e-12)


def test_no_method_is_the_measure_of_the_others():
    """A is in the middle in each run; one odd run of E is no spread of the others."""
    scores = {"A": (0.5, 0.5, 0.5), "B": (0.6, 0.7, 0.65), "C": (0.52, 0.51, 0.56)}
    scores |= {"D": (0.4, 0.45, 0.3), "E": (0.1, -5.0, 0.2)}
    rows = [
        {"method": method, "seed": seed, "score": score}
        for method, runs in scores.items()
        for seed, score in enumerate(runs)
    ]
    exhibit = replace(paper().exhibits[0], by=("method",), paired=())
    intervals = summarize(exhibit, pd.DataFrame(rows)).set_index("method")["interval"]
    # The middle half of a run is A, C and D: .4733, .4867, .4533.
    spread = pd.Series([0.5 - 0.47333, 0.5 - 0.48667, 0.5 - 0.45333]).std()
    assert intervals["A"] == pytest.approx(4.302653 * spread / 3**0.5, rel=1e-3)
    assert intervals.drop("E").max() < 0.3 < intervals["E"]


def test_a_failed_run_leaves_the_others(tmp_path, capsys):
    assert call(tmp_path, cells=(1, 13)) == 1
    assert "a bad cell" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "demo" / "table_1.csv")["k"].eq(1).all()


def test_a_process_that_dies_ends_no_other(tmp_path, capsys):
    assert call(tmp_path, "--runs", "1", cells=(1, 14, 2), alone=True) == 1
    assert "its process ended with exit code 6" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "demo" / "table_1.csv")["k"].tolist() == [1, 1, 2, 2]


def test_cells_that_are_asked_for_run_alone(tmp_path):
    assert call(tmp_path, "--runs", "1", "--cell", "2") == 0
    assert CALLS == [(2, 0)]
    assert verdict(tmp_path) == ("incomplete", "1 run is missing: failed, or left out by --cell")
    with pytest.raises(SystemExit, match="no cell says 3"):
        call(tmp_path, "--cell", "3")


def test_a_study_may_be_measured_again(tmp_path):
    for _ in range(2):
        call(tmp_path, "--runs", "1", again=True)
        assert len(CALLS) == 2
    assert pd.read_csv(tmp_path / "demo" / "table_1.csv")["runs"].eq(1).all()


@pytest.mark.parametrize("gap", [None, float("nan"), pd.Series(dtype=float)])
def test_a_claim_that_rows_cannot_tell_is_undecided(tmp_path, gap):
    call(tmp_path, gaps=lambda means, rows: gap)
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv", keep_default_na=False)
    assert table.loc[0, "verdict"] == "undecided at this size"
    assert table.loc[0, "claims"] == "0 hold, 0 contradicted, 0 undecided of 1, 1 not judged"
    assert table.loc[0, "why"] == ""


def views(*gaps):
    return [(None, gap) for gap in gaps]


def decided(*gaps, level=0.95, looks=1, **claim):
    return decide(Claim("", lambda means, rows: rows, **claim), views(*gaps), level, looks)


def test_a_verdict_is_that_of_a_paired_t_interval():
    found = decided(0.1, 0.2, 0.3)
    # t with 2 degrees of freedom is 4.303, the standard error .1 / sqrt(3).
    assert found["low"] == pytest.approx(0.2 - 4.302653 * 0.1 / 3**0.5)
    assert found["high"] == pytest.approx(0.2 + 4.302653 * 0.1 / 3**0.5)
    assert (found["verdict"], found["runs"], found["level"]) == ("undecided", 3, 0.95)
    assert decided(0.1, 0.2, 0.3, level=0.9)["verdict"] == "holds"
    # A quarter of the errors for each of four looks.
    assert decided(0.1, 0.2, 0.3, level=0.9, looks=4)["level"] == pytest.approx(0.975)
    assert decided(0.1, 0.2, 0.3, level=0.9, looks=4)["verdict"] == "undecided"
    assert decided(-0.1, -0.2, -0.3, level=0.9)["verdict"] == "contradicted"


def test_every_gap_must_be_above_0_and_one_below_contradicts():
    both = [np.array([[0.1, 0.5]]), np.array([[0.2, 0.5]]), np.array([[0.3, 0.51]])]
    assert decided(*both)["verdict"] == "undecided"
    assert decided(*both)["gap"] == pytest.approx(0.2)
    assert decided(*both, level=0.9)["verdict"] == "holds"
    # Below 0 at 90 %, but not at the 95 % that two gaps ask for.
    assert decided(*(gap * [[-1, 1]] for gap in both), level=0.9)["verdict"] == "undecided"
    assert decided(*(gap * [[-1, 1]] for gap in both), level=0.8)["verdict"] == "contradicted"


def test_the_gap_that_contradicts_is_the_one_that_is_shown():
    """Not one that is smaller and unsure: an interval that covers 0 contradicts nothing."""
    unsure = [-0.9, 0.1, 0.2, -0.8]
    sure = [-0.1, -0.11, -0.12, -0.1]
    found = decided(*(np.array(pair) for pair in zip(unsure, sure, strict=True)))
    assert found["verdict"] == "contradicted"
    assert found["gap"] == pytest.approx(np.mean(sure))
    assert found["high"] < 0
    # Two gaps: half of the errors for each.
    assert found["level"] == pytest.approx(0.975)


def test_a_claim_in_a_setting_of_ours_is_no_part_of_the_verdict(tmp_path):
    call(tmp_path, "--runs", "3", gaps=lambda means, rows: -1.0, setting="a world of ours")
    claims = pd.read_csv(tmp_path / "demo" / "claims.csv")
    assert claims[["setting", "verdict"]].to_numpy().tolist() == [
        ["a world of ours", "contradicted"]
    ]
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv", keep_default_na=False)
    assert table.loc[0, "claims"] == "0 hold, 0 contradicted, 0 undecided of 0"
    assert table.loc[0, "verdict"] == "shown"


def test_gaps_are_matched_by_their_labels():
    runs = [pd.Series({"a": 0.1, "b": 9.0}), pd.Series({"b": 9.0, "a": 0.2})]
    assert decided(*runs, pd.Series({"a": 0.3, "b": 9.0}))["gap"] == pytest.approx(0.2)
    # One run did not tell: two are too few.
    assert decided(*runs, pd.Series({"b": 9.0}), level=0.5)["verdict"] == "undecided"


def test_two_runs_decide_nothing_and_one_decides_a_count():
    assert decided(0.2, 0.2)["verdict"] == "undecided"
    assert decided(0.2, exact=True)["verdict"] == "holds"
    assert decided(0.2, 0.0, exact=True)["verdict"] == "contradicted"
    assert decided(0.2, np.nan, exact=True)["verdict"] == "holds"
    assert decided(np.nan, exact=True)["verdict"] == "undecided"


def test_a_spread_over_runs_is_decided_by_the_jackknife():
    """Pseudo-values of a variance are those of its mean of squares; of a mean, the values."""
    values = np.array([0.1, 0.4, 0.6, 0.7, 1.1])
    without = [np.delete(values, i) for i in range(5)]
    mean = Claim("", lambda means, rows: rows.mean(), jackknife=True)
    found = decide(mean, views(values, *without))
    plain = decided(*values)
    assert [found[name] for name in ("gap", "low", "runs")] == pytest.approx(
        [plain[name] for name in ("gap", "low", "runs")]
    )
    spread = Claim("", lambda means, rows: rows.var(ddof=1), jackknife=True)
    assert decide(spread, views(values, *without))["gap"] == pytest.approx(values.var(ddof=1))


def test_open_claims_have_more_seeds_until_they_are_decided(tmp_path):
    # A lead of .1 with noise that 3 runs do not tell from 0, and 6 do.
    noise = dict(enumerate([0.2, -0.1, 0.02, -0.05, -0.05, -0.02] + [0.01] * 20))
    gaps = {"gaps": lambda means, rows: 0.1 + noise[rows["seed"].iloc[0]]}
    options = ("--runs", "3", "--until-decided")
    call(tmp_path, *options, **gaps)
    claims = pd.read_csv(tmp_path / "demo" / "claims.csv")
    assert claims[["verdict", "runs"]].to_numpy().tolist() == [["holds", 12]]
    assert claims["level"][0] == pytest.approx(1 - 0.05 / 4)
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv").set_index("exhibit")
    # The figure has no open claim.
    assert table["runs"].tolist() == [12, 3]
    assert table["command"].iloc[0].endswith('--quick --runs 3 --until-decided"')
    call(tmp_path, *options, "--hours", "0", **gaps)
    assert not CALLS
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv").set_index("exhibit")
    assert table["runs"].tolist() == [3, 3]
    call(tmp_path, *options, gaps=lambda means, rows: None)
    assert pd.read_csv(tmp_path / "demo" / "claims.csv")["runs"].tolist() == [0]


def test_a_number_of_seeds_that_the_hours_cut_off_is_no_look(tmp_path, monkeypatch):
    """Looks are after 3, 6, 12 and 24 runs, however often the command is stopped."""
    options = ("--table", "1", "--runs", "3", "--until-decided")
    looks = []
    for most in (4, 2, 0, 6, 100):  # seeds of two cells until the hours are spent
        monkeypatch.setattr(_study.time, "monotonic", lambda most=most: len(CALLS) > 2 * most)
        # No claim is decided by these.
        call(tmp_path, *options, "--hours", "0", gaps=lambda m, rows: (-1) ** rows["seed"].iloc[0])
        looks += pd.read_csv(tmp_path / "demo" / "claims.csv")["runs"].tolist()
    assert looks == [3, 6, 6, 12, 24]


def test_hours_are_those_of_all_cells(tmp_path):
    """Cells and seeds that took as long as each other are not one run."""
    call(tmp_path, "--runs", "2")
    file = tmp_path / "demo" / "rows" / "study.csv"
    pd.read_csv(file).assign(seconds=36.0).to_csv(file, index=False)
    call(tmp_path, "--judge")
    # Two cells, two seeds, and two rows of each.
    assert pd.read_csv(tmp_path / "demo" / "verdicts.csv")["hours"].tolist() == [0.04, 0.04]


def test_judging_again_keeps_out_seeds_with_cells_missing(tmp_path):
    call(tmp_path, cells=(1, 13))
    before = verdict(tmp_path)
    call(tmp_path, "--judge", cells=(1, 13))
    assert verdict(tmp_path) == before
    call(tmp_path / "two", "--runs", "4")
    folder = tmp_path / "two" / "demo"
    rows = pd.read_csv(folder / "rows" / "study.csv")
    rows[(rows["seed"] != 1) | (rows["k"] == 2)].to_csv(folder / "rows" / "study.csv", index=False)
    call(tmp_path / "two", "--judge")
    assert pd.read_csv(folder / "claims.csv")["runs"].tolist() == [3]
    assert verdict(tmp_path / "two")[1] == "1 run is missing: failed, or left out by --cell"


def test_what_has_no_rows_is_not_judged(tmp_path, capsys):
    assert call(tmp_path, "--judge") == 1
    assert "table 1: not judged, as " in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    call(tmp_path, "--table", "1")
    file = tmp_path / "demo" / "verdicts.csv"
    call(tmp_path, "--judge")
    assert "figure 2a: not judged, as " in capsys.readouterr().out
    pd.read_csv(file).assign(hours="", verdict="not yet judged").to_csv(file, index=False)
    before = file.read_text()
    call(tmp_path, "--judge")
    assert file.read_text() == before


def test_rows_are_judged_again_without_a_run(tmp_path):
    call(tmp_path, "--runs", "4", gaps=lambda means, rows: 1 / 3 - lead(means, rows))
    folder = tmp_path / "demo"
    before = {file.name: file.read_text() for file in folder.glob("*.csv")}
    (folder / "study.jsonl").unlink()
    call(tmp_path, "--judge", gaps=lambda means, rows: 1 / 3 - lead(means, rows))
    assert not CALLS
    assert {file.name: file.read_text() for file in folder.glob("*.csv")} == before
    assert verdict(tmp_path)[0] == "in shape"


def test_a_check_compares_seed_0_with_what_was_committed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_study, "RESULTS", tmp_path)
    assert call(tmp_path, "--check") == 1
    call(tmp_path, "--runs", "2")
    before = sorted(tmp_path.rglob("*"))
    assert call(tmp_path, "--check") == 0
    assert CALLS == [(1, 0), (2, 0)]
    assert capsys.readouterr().out.endswith("demo, study, seed 0: as in docs/papers/results\n")
    file = tmp_path / "demo" / "rows" / "study.csv"
    rows = pd.read_csv(file)
    rows.assign(score=rows["score"] + 0.1 * (rows["method"] == "B")).to_csv(file, index=False)
    assert call(tmp_path, "--check") == 1
    assert '(column name="score") values are different' in capsys.readouterr().out
    rows.iloc[1:].to_csv(file, index=False)
    assert call(tmp_path, "--check") == 1
    assert "DataFrame shape mismatch" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_a_check_has_the_size_of_the_committed_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(_study, "RESULTS", tmp_path)
    call(tmp_path, "--sessions", "70")
    sizes = []
    monkeypatch.setattr(_study, "_run_all", lambda study, jobs, *_: sizes.extend(jobs))
    assert main(paper(), ["--check"]) == 1
    assert [(job["settings"]["quick"], job["settings"]["sessions"]) for job in sizes] == [
        (True, 70),
        (True, 70),
    ]


def test_tiny_is_quick_where_nothing_is_smaller():
    sizes = {"quick": 2, "full": 3}
    asked = [Settings(), Settings(quick=True), Settings(tiny=True)]
    assert [one.size(**sizes) for one in asked] == [3, 2, 2]
    assert [one.size(tiny=1, **sizes) for one in asked] == [3, 2, 1]


def test_claims_wait_for_failed_runs(tmp_path):
    """These would raise: the row that they name is not there."""
    call(tmp_path, cells=(1, 13), reference=(13, "A"), gaps=lambda means, rows: means.loc[13])
    assert verdict(tmp_path) == (
        "incomplete",
        "3 runs are missing: failed, or left out by --cell",
    )
    claims = pd.read_csv(tmp_path / "demo" / "claims.csv")
    assert claims[["claim", "verdict", "runs"]].to_numpy().tolist() == [
        ["B is ahead", "undecided", 0]
    ]


def test_a_jackknife_without_runs_is_undecided():
    claim = Claim("", lambda means, rows: rows.mean(), jackknife=True)
    assert [decide(claim, [])[name] for name in ("verdict", "runs")] == ["undecided", 0]


def test_an_exhibit_that_is_asked_for_twice_is_shown_once(tmp_path):
    call(tmp_path, "--table", "1", "1", "--runs", "1")
    assert len(pd.read_csv(tmp_path / "demo" / "verdicts.csv")) == 1


@pytest.mark.parametrize("number", ["0", "-1", "few", "1.5"])
def test_a_number_of_runs_is_a_positive_whole_number(tmp_path, number, capsys):
    with pytest.raises(SystemExit):
        call(tmp_path, f"--runs={number}")
    assert "expected a whole number of at least 1" in capsys.readouterr().err


def test_a_folder_without_documents_is_refused_before_anything_runs(tmp_path, capsys):
    with pytest.raises(SystemExit):
        call(tmp_path, "--letor", str(tmp_path))
    assert "holds no file of a split, such as train.txt" in capsys.readouterr().err
    assert not CALLS


def test_several_files_of_documents_are_read_as_one_set(tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for qid, file in enumerate(files):
        Path(file).write_text(f"1 qid:{qid} 1:0.5\n0 qid:{qid} 1:0.1\n")
    found = _arguments(paper(), ["--letor", *files]).letor
    assert read_letor(found)["train"]["qid"].tolist() == [0, 0, 1, 1]
    assert name_of(found) == "a"
    assert _arguments(paper(), ["--letor", files[0]]).letor == files[0]
    with pytest.raises(SystemExit):
        _arguments(paper(), ["--letor", *files, str(tmp_path)])
    assert f"{tmp_path} is a folder; give one folder, or files alone" in capsys.readouterr().err


def test_list_says_at_which_size_the_times_are(tmp_path, capsys):
    assert call(tmp_path, "--list") == 0
    assert "Times are those of the full size" in capsys.readouterr().out


def test_list_says_what_was_judged(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_study, "RESULTS", tmp_path)
    call(tmp_path)
    call(tmp_path, "--list")
    assert capsys.readouterr().out.endswith("1 claims (1 holds).\n")
    call(tmp_path, gaps=lambda means, rows: None)
    call(tmp_path, "--list")
    assert capsys.readouterr().out.endswith("1 claims (1 not judged).\n")


def test_a_page_is_found_with_a_hyphen_and_an_unknown_one_is_refused():
    command = [sys.executable, "-m", "benchmarks"]
    done = subprocess.run(
        [*command, "papers/user-aware", "--list"], capture_output=True, text=True, check=True
    )
    assert "table 1" in done.stdout
    done = subprocess.run([*command, "papers/x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no page papers/x; the pages are papers/cld, ")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="give a folder that can be written to"):
        call(tmp_path / "file")


def test_a_stopped_command_says_that_it_goes_on(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_study, "_run_all", stop)
    assert call(tmp_path) == 130
    assert "goes on where it was" in capsys.readouterr().err


def test_one_exhibit_is_asked_for_and_others_keep_their_verdicts(tmp_path):
    call(tmp_path)
    call(tmp_path, "--table", "1", "--runs", "1")
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv")
    assert table["exhibit"].tolist() == ["table 1", "figure 2a"]
    assert table["runs"].tolist() == [1, 3]
    assert table["command"][0] == 'make papers PAPER=demo ARGS="--table 1 --quick --runs 1"'


def test_an_unknown_exhibit_names_those_that_exist(tmp_path):
    with pytest.raises(SystemExit, match="there is no table 9; there are table 1, figure 2a"):
        call(tmp_path, "--table", "9")


@pytest.mark.parametrize("option", ["--letor", "--sets", "--log"])
def test_an_absent_path_is_refused_before_anything_runs(tmp_path, option, capsys):
    with pytest.raises(SystemExit):
        call(tmp_path, option, str(tmp_path / "nowhere"))
    assert "there is no file or folder" in capsys.readouterr().err
    assert not CALLS


PAPERS = ["identifiability", "user_aware", "vectorization", "cld", "cmip"]


@pytest.mark.parametrize("name", PAPERS)
def test_committed_verdicts_follow_from_committed_rows(name):
    page = importlib.import_module(f"benchmarks.papers.{name}").PAGE
    folder = _study.RESULTS / page.name
    hours = pd.read_csv(folder / "verdicts.csv").set_index("exhibit")["hours"]
    assert hours.index.tolist() == [exhibit.name for exhibit in page.exhibits]
    claims = pd.read_csv(folder / "claims.csv", keep_default_na=False, na_values=[""])
    for exhibit in page.exhibits:
        if (name, exhibit.name) == ("cmip", "table 1"):
            continue  # some hundred thousand trees
        known = claims[claims["exhibit"] == exhibit.name].reset_index(drop=True)
        assert [claim.why for claim in exhibit.claims] == known["why"].fillna("").tolist()
        if np.isnan(hours[exhibit.name]):  # its rows were not kept
            assert set(known["verdict"]) <= {"undecided"}
            assert not known["runs"].any()
            assert committed(folder, exhibit) is None
            continue
        runs = committed(folder, exhibit)
        assert runs.seconds.notna().all(axis=None)
        assert hours[exhibit.name] == pytest.approx(runs.seconds.sum().sum() / 3600, abs=6e-4)
        found = decide_claims(exhibit, runs)
        assert [claim["claim"] for claim in found] == known["claim"].tolist()
        assert [claim["verdict"] for claim in found] == known["verdict"].tolist()
        for column in ("runs", "level", "gap", "low", "high"):
            numbers = [claim[column] for claim in found]
            assert numbers == pytest.approx(known[column].tolist(), abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("name", PAPERS)
def test_every_exhibit_has_a_claim_but_for_those_that_cannot_tell(name):
    module = importlib.import_module(f"benchmarks.papers.{name}")
    without = [exhibit.title for exhibit in module.PAGE.exhibits if not exhibit.claims]
    # The other table shows the same rows beside other published figures; the seconds are those of
    # another kind of processor.
    other = "Quality and relevance error of each estimator, beside the figures of Baidu-ULTR"
    assert without == {
        "identifiability": ["Sizes of the data sets"],
        "user_aware": [other],
        "vectorization": ["Seconds to rank a batch of 256 queries"],
    }.get(name, [])


def test_an_exhibit_without_claims_is_only_shown(tmp_path):
    call(tmp_path)
    table = pd.read_csv(tmp_path / "demo" / "verdicts.csv").set_index("exhibit")
    none, one = (f"{n} hold, 0 contradicted, 0 undecided of {n}" for n in (0, 1))
    assert table.loc["figure 2a", ["verdict", "claims"]].tolist() == ["shown", none]
    assert table.loc["table 1", ["verdict", "claims"]].tolist() == ["in shape", one]
