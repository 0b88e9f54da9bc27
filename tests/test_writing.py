"""Folders beside a place: what is written there, and what is deleted."""

import multiprocessing
import os
import signal
import threading

import pytest

from skultr._base._writing import folder_beside


def _die(path):
    with folder_beside(path) as folder:
        (folder / "part").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_write_left_is_deleted_by_the_next(tmp_path):
    path = tmp_path / "m[1]*.zip"
    process = multiprocessing.get_context("fork").Process(target=_die, args=(path,))
    process.start()
    process.join()
    assert len([*tmp_path.iterdir()]) == 1
    with folder_beside(path) as folder:
        assert [*tmp_path.iterdir()] == [folder]
    assert not [*tmp_path.iterdir()]


def _look_like_ours(folder):
    """Folders that only look like ours, and a file in each."""
    for name, lock in {"old": None, "empty": "", "locked": "my lock"}.items():
        each = folder / f".m.zip-{name}"
        each.mkdir()
        (each / "mine").write_text("mine")
        if lock is not None:
            (each / "lock").write_text(lock)
    os.mkfifo(folder / ".m.zip-fifo")
    (folder / ".m.zip-pipe").mkdir()
    os.mkfifo(folder / ".m.zip-pipe" / "lock")


def test_folders_of_others_stay(tmp_path):
    _look_like_ours(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with folder_beside(tmp_path / "m.zip"):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_names_of_patterns_are_names(tmp_path):
    with folder_beside(tmp_path / "abc") as other, folder_beside(tmp_path / "*") as folder:
        assert other.is_dir()
        assert folder.is_dir()


def test_a_write_waits_for_those_that_look_whether_it_was_left(tmp_path, monkeypatch):
    """Another process may lock the new file, to read it, before its owner does."""
    fcntl = pytest.importorskip("fcntl")
    lock_file = fcntl.flock
    looks = []

    def flock(file, how):
        if not looks:
            other = open(file.name, "rb")  # noqa: SIM115
            lock_file(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            looks.append(threading.Timer(0.2, other.close))
            looks[0].start()
        lock_file(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder_beside(tmp_path / "m.zip") as folder:
        assert (folder / "lock").read_bytes()
    looks[0].join()


def test_a_write_in_progress_is_left_alone(tmp_path):
    with folder_beside(tmp_path / "m.zip") as first:
        with folder_beside(tmp_path / "m.zip"):
            pass
        assert first.is_dir()


@pytest.mark.parametrize("name", ["x" * 250, "ü" * 125])
def test_names_may_be_long(name, tmp_path):
    with folder_beside(tmp_path / name) as folder:
        (folder / "part").write_text("whole")
        (folder / "part").replace(tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == [name]
