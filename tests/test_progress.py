"""What long work shows of itself: nothing by default, bars when asked, the same results."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stderr
from functools import partialmethod

import numpy as np
import pytest
from joblib import Parallel, delayed
from tqdm.auto import tqdm

import skultr
from skultr import ClickDataset, DLARanker
from skultr._base import _progress
from skultr._base._progress import Steps, progress, working
from skultr.click_models import DBNModel
from skultr.command._run import main
from skultr.datasets import load_letor, read_ubi
from skultr.propensity import InterventionHarvesting
from skultr.rankers import EnsembleRanker, LambdaMARTRanker, NaiveRanker

from ._worlds import shuffled_log


@pytest.fixture(scope="module")
def log():
    return shuffled_log(30, 300, n_documents=10, n_features=4)[1:]


@pytest.fixture
def bars(capfd, monkeypatch):
    """The lines that bars drew since the last call, one of each step."""
    every_step = partialmethod(tqdm.__init__, mininterval=0, miniters=1)
    monkeypatch.setattr(tqdm, "__init__", every_step)
    skultr.show_progress(True)

    def lines():
        drawn = capfd.readouterr().err.replace("\x1b[A", "")
        return [line for line in re.split("[\r\n]+", drawn) if line.strip()]

    yield lines
    skultr.show_progress(False)


#: Work, and a line of it. An estimate, "<00:00", stands where all steps are alike and known.
WORKS = {
    "network": (
        NaiveRanker(max_epochs=2, random_state=0),
        r"NaiveRanker: epoch: 100%\|█+\| 2/2 \[00:00<00:00, .*\]",
    ),
    "early stopping": (
        NaiveRanker(max_epochs=2, early_stopping=True, random_state=0),
        r"NaiveRanker: epoch: 2 of at most 2 \[00:00\]",
    ),
    "trees": (
        LambdaMARTRanker(n_estimators=5, random_state=0),
        r"LambdaMARTRanker: round: 5 of at most 5 \[00:00\]",
    ),
    "all trees": (
        LambdaMARTRanker(n_estimators=5, early_stopping=False, random_state=0),
        r"LambdaMARTRanker: round: 100%\|█+\| 5/5 \[00:00<00:00, .*\]",
    ),
    "table": (
        DLARanker(relevance="embedding", random_state=0),
        r"DLARanker: Newton step: 1 of at most \d+ \[00:00\]",
    ),
    "EM": (DBNModel(), r"DBNModel: step of EM: 2 of at most \d+ \[00:00\]"),
    "bootstrap": (
        InterventionHarvesting(n_bootstrap=7, random_state=0),
        r"InterventionHarvesting: resample: 100%\|█+\| 7/7 \[00:00<00:00, .*\]",
    ),
}


def values_of(estimator, X):
    if hasattr(estimator, "predict"):
        return estimator.predict(X)
    return estimator.examination_.to_numpy(float)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", WORKS)
def test_silent_by_default_and_the_same_results_with_bars(work, log, capfd, bars):
    X, clicks = log
    estimator, line = WORKS[work]
    skultr.show_progress(False)
    silent = values_of(estimator.fit(X, clicks), X)
    assert capfd.readouterr() == ("", "")
    skultr.show_progress(True)
    told = values_of(estimator.fit(X, clicks), X)
    drawn = bars()
    assert any(re.fullmatch(line, each.strip()) for each in drawn), drawn
    assert all(each.startswith(type(estimator).__name__) for each in drawn)
    assert capfd.readouterr().out == ""
    np.testing.assert_array_equal(silent, told)


@pytest.mark.filterwarnings("ignore")
def test_an_ensemble_is_not_estimated(log, bars):
    X, clicks = log
    EnsembleRanker(random_state=0).fit(X, clicks)
    drawn = bars()
    members = [line.strip() for line in drawn if "member" in line]
    assert members[0] == "EnsembleRanker: member:   0%|          | 0/3 [00:00]"
    assert re.match(r"EnsembleRanker: member: 100%\|█+\| 3/3 ", members[-1])
    # Neither members nor their epochs: those of one tell nothing of the whole.
    assert any("epoch" in line for line in drawn)
    assert not [line for line in drawn if "<" in line]


def test_a_bar_of_steps_within_steps(bars):
    with working("outer"):
        for _ in progress(range(2), "fold"):
            with working("inner"):
                for _ in progress(iter("ab"), "part"):
                    pass
    drawn = [re.sub(r" \[.*", "", line).strip() for line in bars()]
    inner = [f"outer: inner: part: {n}it" for n in range(3)]
    assert drawn == [
        "outer: fold:   0%|          | 0/2",
        *inner,
        "outer: fold:  50%|█████     | 1/2",
        *inner,
        "outer: fold: 100%|██████████| 2/2",
    ]


def test_work_that_is_left_early_leaves_nothing_behind(bars):
    def fail():
        with working("failing"):
            return [1 / each for each in progress([1, 0], "step")]

    with pytest.raises(ZeroDivisionError):
        fail()
    for _ in progress(iter([1, 2]), "step"):
        break
    bars()
    with working("next"):
        assert [*progress([1], "step")] == [1]
    assert bars()[0].startswith("next: step:   0%|")
    assert not tqdm._instances


def test_a_counter_is_pickled_without_its_bar(bars):
    steps = Steps("epoch", 2)
    copy = pickle.loads(pickle.dumps(steps))
    copy.count()
    copy.close()
    steps.close()
    assert "1/2" not in "".join(bars())


def test_names_of_files_move_no_cursor(bars):
    assert [*progress("a", "part of \x1b[2Jevil")] == ["a"]
    assert "part of \\x1b[2Jevil" in bars()[0]


def test_writing_a_dataset_counts_rows_and_files(log, bars, tmp_path):
    X, clicks = log
    frame = X.assign(click=clicks)
    documents = frame[["qid", "doc", *frame.columns[frame.columns.str.startswith("f")]]]
    frame.to_parquet(tmp_path / "log.parquet")
    ClickDataset.from_parquet(
        tmp_path / "log.parquet",
        documents.drop_duplicates(["qid", "doc"]),
        path=tmp_path / "clicks",
    )
    drawn = bars()
    assert any(line.startswith("ClickDataset: row:   0%") for line in drawn), drawn
    assert any(f"/{len(frame)} [00:00" in line for line in drawn), drawn
    assert any("ClickDataset: document:   0%" in line for line in drawn)
    assert any("ClickDataset: file of lists: 100%" in line for line in drawn)


def test_readers_count(bars, tmp_path):
    queries = {"query_id": "1", "user_query": "hub", "query_response_hit_ids": ["a", "b"]}
    event = {"query_id": "1", "action_name": "click"}
    event["event_attributes"] = {"object": {"object_id": "a"}, "position": {"ordinal": 1}}
    path = tmp_path / "ubi.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in (queries, event)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read_ubi(path)
    assert any(line.startswith(f"read_ubi: part of {path}: 1it") for line in bars())
    (tmp_path / "train.txt").write_text("1 qid:1 1:2\n")
    load_letor(tmp_path)
    assert any("load_letor: scanned file: 100%" in line for line in bars())


def test_only_true_false_or_none():
    with pytest.raises(TypeError, match="True, False or None, got 'yes'"):
        skultr.show_progress("yes")
    assert _progress._Shown.asked is False


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


class Writer:
    """What a program may put in place of a stream."""

    def write(self, text):
        return len(text)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO, Writer, lambda: None])
@pytest.mark.parametrize("show", [None, True, False])
def test_bars_are_where_a_person_watches(stream, show, monkeypatch):
    monkeypatch.setattr(_progress._Shown, "asked", show)
    monkeypatch.setattr(sys, "stderr", stream())
    is_shown = stream is Terminal if show is None else show
    assert _progress._is_shown() == (is_shown and sys.stderr is not None)


@pytest.mark.parametrize("answers", [True, False])
def test_a_notebook_that_a_program_runs_is_quiet(answers, monkeypatch):
    class Shell:
        class kernel:
            _allow_stdin = answers

    class IPython:
        get_ipython = Shell

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert _progress._is_watched() == answers


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_command_draws_bars_on_a_terminal(stream, log, tmp_path, monkeypatch):
    X, clicks = log
    for part in (0, 1):
        X.assign(click=clicks)[part::2].to_csv(tmp_path / f"part-{part}.csv", index=False)
    monkeypatch.setattr(_progress._Shown, "asked", False)
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    main(["check", str(tmp_path)])
    drawn = sys.stderr.getvalue()
    if stream is Terminal:
        assert "\rdescribe_log: step:   0%|          | 0/4 [00:00]" in drawn
        assert "describe_log: pass over the log: 0 of at most 3 [00:00]" in drawn
    else:
        assert drawn == ""
    assert "step" not in sys.stdout.getvalue()


SEARCH = """
from joblib import Parallel, delayed
import skultr
{on}

def fit(number):
    from skultr._base._progress import progress, working

    with working("fit"):
        return sum(progress(range(number), "step"))

if __name__ == "__main__":
    assert Parallel(n_jobs={n_jobs})(delayed(fit)(number) for number in (3, 4)) == [3, 6]
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("how", ["off", "pipe", "call", "1", "0"])
def test_processes_without_a_terminal(tmp_path, how, n_jobs):
    calls = {"pipe": "skultr.show_progress()", "call": "skultr.show_progress(True)"}
    script = tmp_path / "search.py"
    script.write_text(SEARCH.format(on=calls.get(how, ""), n_jobs=n_jobs))
    env = {name: value for name, value in os.environ.items() if name != "SKULTR_PROGRESS"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if how in "01":
        env["SKULTR_PROGRESS"] = how
    command = [sys.executable, "-W", "ignore", str(script)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout == ""
    # Worker processes draw nothing, because their bars would overwrite each other.
    is_drawn = how in ("call", "1") and n_jobs == 1
    assert ("fit: step:" in ran.stderr) == is_drawn, ran.stderr


def _drawn_by_a_worker(asks):
    """What a worker process draws, which may ask for bars itself."""
    if asks:
        skultr.show_progress(True)
    with redirect_stderr(io.StringIO()) as drawn:
        for _ in progress(range(2), "step"):
            pass
    return drawn.getvalue()


@pytest.mark.parametrize("asks", [False, True])
def test_a_worker_draws_only_what_it_asked_for(asks):
    skultr.show_progress(True)
    try:
        (drawn,) = Parallel(n_jobs=2)([delayed(_drawn_by_a_worker)(asks)])
    finally:
        skultr.show_progress(False)
    assert ("step" in drawn) is asks
