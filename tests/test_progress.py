"""What long work says of itself: nothing by default, lines when asked, the same results."""

import json
import logging
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import skultr
from skultr import ClickDataset, DLARanker
from skultr._base._progress import Steps, progress, working
from skultr.click_models import DBNModel
from skultr.datasets import load_letor, read_ubi
from skultr.propensity import InterventionHarvesting
from skultr.rankers import EnsembleRanker, IPSRanker, LambdaMARTRanker, NaiveRanker

from ._worlds import shuffled_log


@pytest.fixture(scope="module")
def log():
    return shuffled_log(30, 300, n_documents=10, n_features=4)[1:]


@pytest.fixture
def lines(caplog, monkeypatch):
    """The lines, of which none is left out."""
    monkeypatch.setattr("skultr._base._progress._EVERY", 0.0)
    skultr.show_progress()
    yield lambda: [record.getMessage() for record in caplog.records if record.name == "skultr"]
    skultr.show_progress(False)


WORKS = {
    "network": (DLARanker(max_epochs=2, random_state=0), "DLARanker: epoch 2 of at most 2"),
    "trees": (LambdaMARTRanker(n_estimators=5, random_state=0), "round 5 of at most 5"),
    "table": (
        DLARanker(relevance="embedding", random_state=0),
        "Newton step 1 of at most",
    ),
    "EM": (DBNModel(), "DBNModel: step of EM 2 of at most"),
    "bootstrap": (InterventionHarvesting(n_bootstrap=7, random_state=0), "resample 7/7, 0 s left"),
    "members": (
        EnsembleRanker(
            [("ips", IPSRanker(max_epochs=2)), ("naive", NaiveRanker(max_epochs=2))],
            random_state=0,
        ),
        "EnsembleRanker: member 1/2: NaiveRanker: epoch 1 of at most 2",
    ),
}


def values_of(estimator, X):
    if hasattr(estimator, "predict"):
        return estimator.predict(X)
    return estimator.examination_.to_numpy(float)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", WORKS)
def test_silent_by_default_and_the_same_results_with_lines(work, log, capfd, caplog, lines):
    X, clicks = log
    estimator, line = WORKS[work]
    skultr.show_progress(False)
    silent = values_of(estimator.fit(X, clicks), X)
    assert lines() == []
    assert capfd.readouterr() == ("", "")
    skultr.show_progress()
    told = values_of(estimator.fit(X, clicks), X)
    assert any(line in each for each in lines()), lines()
    assert all(each.startswith(type(estimator).__name__) for each in lines())
    assert capfd.readouterr().out == ""
    np.testing.assert_array_equal(silent, told)


def test_writing_a_dataset_reports(log, lines, tmp_path):
    X, clicks = log
    ClickDataset.from_parquet(X.assign(click=clicks), path=tmp_path / "clicks")
    assert any("ClickDataset: part of the rows 1" in line for line in lines())
    assert any("ClickDataset: file of lists" in line for line in lines())


def test_readers_report(lines, tmp_path):
    queries = {"query_id": "1", "user_query": "hub", "query_response_hit_ids": ["a", "b"]}
    event = {"query_id": "1", "action_name": "click"}
    event["event_attributes"] = {"object": {"object_id": "a"}, "position": {"ordinal": 1}}
    path = tmp_path / "ubi.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in (queries, event)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read_ubi(path)
    assert any(f"read_ubi: part of {path} 1" in line for line in lines())
    assert any("read_ubi: result pages" in line for line in lines())
    (tmp_path / "train.txt").write_text("1 qid:1 1:2\n")
    load_letor(tmp_path)
    assert any("load_letor: scanned file 1/1" in line for line in lines())


def test_lines_of_nested_work_tell_all_of_it(lines):
    with working("outer"):
        for _ in progress(range(2), "fold"):
            epochs = Steps("epoch", most=1_000)
            epochs.advance(999)
            epochs.advance()
    assert lines()[:4] == [
        "outer, 0 s so far",
        "outer: fold: epoch 999 of at most 1,000, 0 s so far",
        "outer: fold: epoch 1,000 of at most 1,000, 0 s so far",
        "outer: fold 1/2, 0 s left",
    ]
    assert lines()[4].startswith("outer: fold 1/2: epoch 999 of at most 1,000, 0 s left")


def test_work_that_is_left_early_leaves_nothing_behind(lines):
    def fail():
        with working("failing"):
            return [1 / each for each in progress([1, 0], "step")]

    with pytest.raises(ZeroDivisionError):
        fail()
    for _ in progress(iter([1, 2]), "step"):
        break
    with working("next"):
        pass
    assert lines()[-2:] == ["next, 0 s so far", "next: done in 0 s"]


def test_a_line_a_second_at_most(caplog):
    skultr.show_progress()
    try:
        time.sleep(1.01)
        assert [*progress(range(10_000), "step")] == list(range(10_000))
    finally:
        skultr.show_progress(False)
    assert 1 <= len(caplog.records) <= 3
    assert "step 1/10,000" in caplog.records[0].getMessage()


def test_time_left_is_that_of_the_steps_that_were_done(monkeypatch):
    clock = iter([0.0, 30.0, 36.0, 200.0])  # the start, a step, two questions
    monkeypatch.setattr("skultr._base._progress.time.monotonic", lambda: next(clock))
    steps = Steps("resample", total=4)
    steps.count()
    assert steps.left() == 84  # three steps of 30 seconds, 6 of which have passed
    assert steps.left() == 0


def test_only_true_or_false():
    with pytest.raises(TypeError, match="True or False, got 'yes'"):
        skultr.show_progress("yes")
    assert logging.getLogger("skultr").level == logging.WARNING


LOGGING = """
import contextlib, io, logging
import skultr
from skultr._base import _progress

_progress._EVERY = 0.0

def work():
    with _progress.working("work"):
        pass

logging.basicConfig(level=logging.INFO)
work()  # has not been asked
skultr.show_progress()
work()
skultr.show_progress(False)
work()
logging.basicConfig(level=logging.WARNING, force=True)
logging.getLogger("skultr").setLevel(logging.INFO)
work()  # what the guide tells services
skultr.show_progress(False)
logging.getLogger().handlers.clear()
skultr.show_progress()
printed = io.StringIO()
with contextlib.redirect_stderr(printed):
    work()
assert printed.getvalue() == "skultr: work, 0 s so far\\nskultr: work: done in 0 s\\n"
logging.basicConfig(level=logging.WARNING)
work()  # not twice
"""


def run(script, **variables):
    env = {name: value for name, value in os.environ.items() if name != "SKULTR_PROGRESS"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_programs_that_configure_logging(tmp_path):
    script = tmp_path / "service.py"
    script.write_text(LOGGING)
    lines = ["INFO:skultr:work, 0 s so far", "INFO:skultr:work: done in 0 s"]
    assert run(script).stderr.splitlines() == 3 * lines


SEARCH = """
from joblib import Parallel, delayed
import skultr
{on}

def fit(number):
    from skultr._base._progress import progress, working

    with working("fit"):
        return sum(progress(range(number), "step"))

if __name__ == "__main__":
    assert Parallel(n_jobs=2)(delayed(fit)(number) for number in (3, 4)) == [3, 6]
"""


@pytest.mark.parametrize("how", ["off", "call", "1", "0", "false"])
def test_worker_processes(tmp_path, how):
    script = tmp_path / "search.py"
    script.write_text(SEARCH.format(on="skultr.show_progress()" if how == "call" else ""))
    ran = run(script, **({} if how in ("off", "call") else {"SKULTR_PROGRESS": how}))
    assert ran.stdout == ""
    of_skultr = [line for line in ran.stderr.splitlines() if line.startswith("skultr: ")]
    expected = {"skultr: fit, 0 s so far"} if how in ("call", "1") else set()
    assert set(of_skultr) == expected, ran.stderr
