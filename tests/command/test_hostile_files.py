"""Files of strangers end no command, and no terminal obeys what stands in them."""

import os
import re
import subprocess
import sys

import pandas as pd
import polars as pl
import pytest

from skultr import describe_log
from skultr.__main__ import main

HEAD = "qid,session,doc,position,price,click\n"
LOG = HEAD + "".join(
    f"{query},{query},{doc},{doc},{query * doc % 7},{int(doc == 1)}\n"
    for query in range(1, 9)
    for doc in range(1, 5)
)
#: Sequences that terminals obey: of colours and titles, a bell, marks of direction, back, C1.
OBEYED = {
    "escape": "\x1b[31m",
    "title": "\x1b]0;pwned\x07",
    "C1": "\x9b31m",
    "back": "\x08\x08",
    "return": "\r",
    "delete": "\x7f",
    "direction": "\u202e",
    "line": "\u2028",
}
#: Exit codes of logs that were read, whatever the verdict.
READ = (0, 1, 3)
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


def check(path, *arguments):
    return main(["check", str(path), *map(str, arguments)])


def with_digits(column, digits):
    place = HEAD.strip().split(",").index(column)
    lines = [line.split(",") for line in LOG.strip().split("\n")[1:]]
    return HEAD + "".join(
        ",".join(digits if at == place else cell for at, cell in enumerate(line)) + "\n"
        for line in lines
    )


@pytest.mark.parametrize("name", OBEYED)
@pytest.mark.parametrize("where", ["column", "role", "id", "file", "option"])
def test_control_characters_are_escaped_in_what_is_printed(where, name, tmp_path, capsys):
    text = OBEYED[name]
    path, arguments = tmp_path / (f"a{text}.csv" if where == "file" else "a.csv"), []
    log = LOG
    if where == "column":
        log = log.replace("price", f"price{text}")
    elif where == "id":
        log = log.replace("\n1,", f"\nq{text},")
    elif where == "role":
        log, arguments = log.replace("qid", f"words{text}"), ["--rename", f"words{text}=qid"]
    elif where == "option":
        arguments = ["--rename", f"words{text}=qid"]
    path.write_bytes(log.encode())
    page = tmp_path / "page.html"
    code = check(path, "--html", page, *arguments)
    assert (code == 2) == (where == "option")
    printed = capsys.readouterr()
    assert not FORBIDDEN.search(printed.out + printed.err)
    if code in READ:
        assert not FORBIDDEN.search(page.read_bytes().decode())
    if where in ("column", "file"):
        shown = text[0].encode("unicode_escape").decode()
        assert shown in printed.out
        assert not FORBIDDEN.search(str(describe_log(path)))


def test_words_of_all_scripts_stay_as_they_are(tmp_path, capsys):
    names = ["größe", "価格", "قیمت", "🙂", "prix\u00a0net"]
    for name in names:
        (tmp_path / "a.csv").write_text(LOG.replace("price", name), encoding="utf-8")
        assert check(tmp_path / "a.csv") in READ
        assert name in capsys.readouterr().out


def test_terminals_without_unicode_get_escapes(tmp_path):
    (tmp_path / "a.csv").write_text(LOG.replace("price", "価格"), encoding="utf-8")
    command = [sys.executable, "-m", "skultr", "check", "a.csv"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode in READ, done.stderr
    assert rb"\u4fa1\u683c" in done.stdout


@pytest.mark.parametrize("kind", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("log", [LOG, LOG.replace("price", "価格")], ids=["latin", "kanji"])
def test_encodings_without_a_mark_are_one_sentence(log, kind, tmp_path, capfd):
    (tmp_path / "a.csv").write_bytes(log.encode(kind))
    assert check(tmp_path / "a.csv") == 2
    printed = capfd.readouterr()  # a panic of Polars writes past Python
    assert printed.out == ""
    assert re.search("^skultr check: error: .*UTF-16 .* expected the mark, or UTF-8", printed.err)
    assert printed.err.count("\n") == 1
    mended = tmp_path / "mended.csv"
    mended.write_text((tmp_path / "a.csv").read_bytes().decode(kind), encoding="utf-8")
    assert check(mended) in READ


def test_what_is_no_text_behind_its_mark_is_one_sentence(tmp_path, capfd):
    (tmp_path / "a.csv").write_bytes(LOG.encode("utf-16") + b"\x00")
    assert check(tmp_path / "a.csv") == 2
    printed = capfd.readouterr().err
    assert "a.csv cannot be read: 'utf-16" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("digits", ["9" * 27, "-" + "9" * 35, str(2**64 - 1)])
@pytest.mark.parametrize("column", ["qid", "doc", "position", "price", "click"])
def test_whole_numbers_beyond_64_bits_are_one_sentence(column, digits, tmp_path, capfd):
    (tmp_path / "a.csv").write_text(with_digits(column, digits))
    assert check(tmp_path / "a.csv") == 2
    found = capfd.readouterr().err
    # Releases of Polars whose files have no such numbers refuse them in their own words.
    wide = f"whole numbers beyond 2**63 in the column '{column}'"
    assert wide in found or f"as dtype `i64` at column '{column}'" in found
    assert found.count("\n") == 1


@pytest.mark.parametrize("digits", ["d" + "9" * 27, "9.9e26"])
def test_digits_as_the_message_proposes_are_read(digits, tmp_path):
    column = "qid" if digits.startswith("d") else "price"
    (tmp_path / "a.csv").write_text(with_digits(column, digits))
    assert check(tmp_path / "a.csv") in READ


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet"])
def test_pipes_and_devices_are_no_logs(suffix, tmp_path, capsys):
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    (tmp_path / f"device.{suffix}").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        assert check(tmp_path / f"{name}.{suffix}") == 2
        assert "is no regular file" in capsys.readouterr().err


def test_names_are_no_patterns(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(LOG)
    (tmp_path / "[a].csv").write_text(LOG.replace("price", "stock"))
    assert check(tmp_path / "[a].csv") in READ
    assert "stock" in capsys.readouterr().out


def test_files_whose_names_are_no_text_are_one_sentence(tmp_path, capsys):
    path = tmp_path / os.fsdecode(b"\xff.csv")
    path.write_text(LOG)
    assert check(path) == 2
    assert "is no text in UTF-8; rename it" in capsys.readouterr().err


def test_names_with_nul_in_tables_are_one_sentence(tmp_path, capfd):
    pl.DataFrame({"qid": [1, 2], "a\0b": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    assert check(tmp_path / "a.parquet") == 2
    assert "holds the character NUL" in capfd.readouterr().err


def test_a_panic_of_an_engine_is_an_error(monkeypatch):
    panic = type("PanicException", (BaseException,), {})

    def fails(frame, qid):
        raise panic("index out of bounds")

    monkeypatch.setattr("skultr.command._report._in_memory", fails)
    with pytest.raises(ValueError, match="cannot be read: index out of bounds"):
        describe_log(pd.DataFrame({"qid": [1]}))


def test_an_interrupt_while_reading_stays_one(monkeypatch):
    def interrupted(frame, qid):
        raise KeyboardInterrupt

    monkeypatch.setattr("skultr.command._report._in_memory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        describe_log(pd.DataFrame({"qid": [1]}))
