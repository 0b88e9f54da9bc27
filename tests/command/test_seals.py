"""What the commands write replaces what they wrote before, and nothing else."""

import os
import sys
from pathlib import Path

import pytest

from skultr.__main__ import main

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "7_engines"))
from simulated_shop import FEATURES, open_shop, serve, write_ndjson, write_parquet

LOG = "qid,doc,position,click,f\n1,a,1,1,2\n1,b,2,0,1\n2,c,1,0,1\n2,d,2,1,3\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


@pytest.fixture(scope="module")
def shop():
    return open_shop(n_queries=10, n_products=6, random_state=0)


@pytest.fixture(scope="module")
def ubi(shop, tmp_path_factory):
    """Folder of the records of a shop."""
    folder = tmp_path_factory.mktemp("ubi")
    visits = serve(shop, 400, temperature=0.5, n_positions=5, random_state=0)
    write_ndjson(visits, folder / "ubi.ndjson")
    write_parquet(visits, folder / "ubi_queries.parquet", folder / "ubi_events.parquet")
    return folder


def _contents(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def _refused(arguments, words, capsys):
    assert main([*map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in line


SPELLINGS = {
    "itself": lambda log: log,
    "another spelling": lambda log: f"{log.parent}/../{log.parent.name}/./{log.name}",
    "symbolic link": lambda log: _linked(os.symlink, log),
    "hard link": lambda log: _linked(os.link, log),
}


def _linked(link, log):
    link(log, log.parent / "link.html")
    return log.parent / "link.html"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_check_keeps_the_log_that_it_reads(spelling, log, capsys):
    out = SPELLINGS[spelling](log)
    _refused(["check", log, "--html", out], [str(Path(out)), "is read"], capsys)
    assert log.read_text() == LOG


def test_check_replaces_its_own_pages_only(log, capsys):
    page = log.with_name("page.html")
    assert main(["check", str(log), "--html", str(page)]) != 2
    first = page.read_bytes()
    assert main(["check", str(log), "--html", str(page)]) != 2
    assert page.read_bytes() == first
    page.write_bytes(first.replace(b"<h2>", b"<h2>my note: ", 1))
    capsys.readouterr()
    _refused(["check", log, "--html", page], ["page.html is there already", "move"], capsys)
    assert b"my note" in page.read_bytes()
    assert {each.name for each in log.parent.iterdir()} == {"log.csv", "page.html"}


@pytest.mark.parametrize(
    "place", ["mine.html", "folder", "no/page.html", "fifo", "/dev/null", "nowhere"]
)
def test_check_writes_to_no_place_of_others(place, log, capsys):
    log.with_name("mine.html").write_text("<p>mine")
    log.with_name("folder").mkdir()
    os.mkfifo(log.with_name("fifo"))
    log.with_name("nowhere").symlink_to(log.parent / "missing")
    before = sorted(log.parent.iterdir())
    _refused(["check", log, "--html", log.parent / place], [place.split("/")[0]], capsys)
    assert sorted(log.parent.iterdir()) == before
    assert log.with_name("mine.html").read_text() == "<p>mine"


@pytest.mark.parametrize(
    "name", ["report.html", "judgments.csv", "log.parquet", "assumed-topics.csv"]
)
def test_ubi_keeps_files_of_others(name, ubi, tmp_path, capsys):
    (tmp_path / name).write_text("mine")
    words = [name, "move it away", "--out"]
    _refused(["ubi", ubi / "ubi.ndjson", "--out", tmp_path], words, capsys)
    assert _contents(tmp_path) == {name: b"mine"}


def test_ubi_names_all_files_that_are_in_the_way(ubi, tmp_path, capsys):
    for name in ("report.html", "judgments.json", "topics.csv", "log.csv"):
        (tmp_path / name).write_text("mine")
    words = ["report.html is there", "Also in the way: judgments.json, topics.csv."]
    _refused(["ubi", ubi / "ubi.ndjson", "--out", tmp_path], words, capsys)


@pytest.mark.parametrize("link", [os.link, os.symlink, None])
def test_ubi_keeps_what_it_reads(link, ubi, tmp_path, capsys):
    events = tmp_path / "log.parquet"
    events.write_bytes((ubi / "ubi_events.parquet").read_bytes())
    given = tmp_path / "given.parquet" if link else events
    if link:
        link(events, given)
    before = _contents(tmp_path)
    queries = ubi / "ubi_queries.parquet"
    arguments = ["ubi", "--queries", queries, "--events", given, "--out", tmp_path]
    _refused(arguments, ["log.parquet is a file that is read"], capsys)
    assert _contents(tmp_path) == before


def test_ubi_keeps_its_own_file_of_an_earlier_run_that_it_now_reads(ubi, shop, tmp_path, capsys):
    features = shop[["qid", "doc", *FEATURES]].rename(columns={"qid": "query"})
    assert main(["ubi", str(ubi / "ubi.ndjson"), "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    features.to_csv(tmp_path / "features.csv", index=False)
    os.link(tmp_path / "features.csv", tmp_path / "model.zip")
    before = _contents(tmp_path)
    given = ["--features", tmp_path / "features.csv"]
    words = ["model.zip is a file that is read"]
    _refused(["ubi", ubi / "ubi.ndjson", "--out", tmp_path, *given], words, capsys)
    assert _contents(tmp_path) == before


def test_ubi_keeps_what_people_changed(ubi, tmp_path, capsys):
    arguments = ["ubi", str(ubi / "ubi.ndjson"), "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert main(arguments) == 0  # its own files are no hindrance
    capsys.readouterr()
    with (tmp_path / "judgments.csv").open("a") as file:
        file.write("human,judgment,3\n")
    before = _contents(tmp_path)
    _refused(arguments, ["judgments.csv"], capsys)
    assert _contents(tmp_path) == before


def test_ubi_deletes_only_what_it_wrote_and_does_not_write_again(ubi, shop, tmp_path):
    features = shop[["qid", "doc", *FEATURES]].rename(columns={"qid": "query"})
    features.to_csv(tmp_path / "features.csv", index=False)
    out, ubi = tmp_path / "out", str(ubi / "ubi.ndjson")
    given = ["--features", str(tmp_path / "features.csv")]
    assert main(["ubi", ubi, "--out", str(out), *given]) == 0
    assert (out / "model.zip").exists()
    (out / "model.xgboost.json").write_text("mine")
    (out / "log.csv").write_text("mine")
    assert main(["ubi", ubi, "--out", str(out)]) == 0
    assert not (out / "model.zip").exists()
    assert (out / "model.xgboost.json").read_text() == (out / "log.csv").read_text() == "mine"


def test_a_run_that_was_killed_between_two_files_can_be_repeated(ubi, tmp_path, monkeypatch):
    arguments = ["ubi", str(ubi / "ubi.ndjson"), "--out", str(tmp_path)]
    assert main(arguments) == 0
    moves, replace = [], Path.replace

    def killed(path, target):
        moves.append(target)
        if len(moves) == 3:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            main([*arguments, "--grades", "0", "5"])
    assert main([*arguments, "--grades", "0", "2"]) == 0
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]
