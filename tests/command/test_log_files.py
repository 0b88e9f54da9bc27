"""Logs as lakes hold them: folders, parts, compressed files, other separators, and no logs."""

import gzip
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skultr import describe_log
from skultr.__main__ import main


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    pages, shown = 60, 4
    doc = np.concatenate([rng.permutation(6)[:shown] for _ in range(pages)])
    position = np.tile(np.arange(shown) + 1, pages)
    return pl.DataFrame(
        {
            "qid": np.repeat(rng.integers(5, size=pages), shown),
            "session": np.repeat(np.arange(pages), shown),
            "doc": doc,
            "position": position,
            "price": doc + 0.5,
            "click": (rng.random(len(doc)) < 0.8 / position).astype(int),
        }
    )


def _write(log, path):
    """Write a table in the format of its ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name
    if name.endswith((".parquet", ".pq")):
        log.write_parquet(path)
    elif name.endswith(".arrow"):
        log.write_ipc(path)
    elif ".csv" in name or ".tsv" in name or ".txt" in name:
        text = log.write_csv(separator="\t" if ".tsv" in name else ";" if ".txt" in name else ",")
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    else:
        log.write_ndjson(path)


def _run_reading(code):
    """The log that the first lines of the code read."""
    reading = code.partition("ranker =")[0].replace(
        "from skultr.rankers import EnsembleRanker", ""
    )
    space = {}
    exec(reading, space)
    return space["log"]


ONE = (
    "a.parquet",
    "a.pq",
    "a.csv",
    "a.csv.gz",
    "a.tsv",
    "a.tsv.gz",
    "a.txt",
    "a.jsonl",
    "a.arrow",
)


@pytest.mark.parametrize("reader", ["polars", "pandas"])
@pytest.mark.parametrize("name", ONE)
def test_a_file_is_read_and_so_does_its_code(name, reader, log, tmp_path, monkeypatch):
    _write(log, tmp_path / name)
    if reader == "pandas":
        monkeypatch.setitem(sys.modules, "polars", None)
    report = describe_log(tmp_path / name)
    monkeypatch.undo()
    assert (report.n_rows, report.n_pages, report.faults) == (240, 60, [])
    read = _run_reading(report.code)
    assert isinstance(read, pl.DataFrame if reader == "polars" else pd.DataFrame)
    assert read["price"].sum() == log["price"].sum()


@pytest.mark.parametrize("reader", ["polars", "pandas"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_decides_the_encoding(encoding, reader, log, tmp_path, monkeypatch):
    """What spreadsheets write as text: UTF-16 behind its mark, with tabs."""
    text = "\ufeff" + log.rename({"price": "Größe"}).write_csv(separator="\t")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(text.encode(encoding))
    if reader == "pandas":
        monkeypatch.setitem(sys.modules, "polars", None)
    one = describe_log(tmp_path / "a.txt")
    both = describe_log(tmp_path / "*.txt")
    monkeypatch.undo()
    assert (one.n_rows, both.n_rows) == (240, 480)
    for report in (one, both):
        read = _run_reading(report.code)
        assert isinstance(read, pl.DataFrame if reader == "polars" else pd.DataFrame)
        assert read["Größe"].sum() == len(read) / 240 * log["price"].sum()


#: Values of cells that no ranker reads, and of a block of numbers, which rankers do.
RECORDS = [{"brand": "a", "size": size % 3} for size in range(240)]
WORDS = [["new"] * (size % 3) for size in range(240)]
UNEVEN = [[1.0] * (size % 3) for size in range(240)]
PAIRS = [["red", "new"]] * 240
ITEMS = [[{"sku": 1}, {"sku": 2}]] * 240
BLOCK = np.random.default_rng(0).normal(size=(240, 3)).tolist()


@pytest.mark.parametrize("reader", ["polars", "pandas"])
@pytest.mark.parametrize("cells", [RECORDS, WORDS, UNEVEN, PAIRS, ITEMS, BLOCK])
def test_cells_of_several_values_are_named_and_ignored(cells, reader, log, tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    log.with_columns(pl.Series("meta", cells)).write_parquet(path)
    if reader == "pandas":
        monkeypatch.setitem(sys.modules, "polars", None)
    report = describe_log(path)
    monkeypatch.undo()
    said = [remark for remark in report.remarks if "'meta' hold records" in remark]
    is_ignored = cells is not BLOCK
    assert len(said) == is_ignored
    assert report.columns.loc["meta", "role"] == ("ignored" if is_ignored else "feature")
    assert report.columns.loc["price", "role"] == "feature"
    # The code must leave them out as well.
    assert ("'meta'" in report.code) == is_ignored


def test_a_missing_list_may_be_a_nan(log):
    frame = log.to_pandas()
    lists = pd.Series([*map(np.array, BLOCK[1:]), np.nan], dtype=object)
    report = describe_log(frame.assign(meta=lists))
    assert report.columns.loc["meta", "role"] == "feature"
    assert report.columns.loc["meta", "missing"] == 1 / 240


def test_cells_of_several_values_are_no_id(log):
    with pytest.raises(ValueError, match="The column 'meta' holds values that cannot be ids"):
        describe_log(log.with_columns(pl.Series("meta", RECORDS)), rename={"meta": "user"})


def test_zstandard_is_read(log, tmp_path):
    text = log.write_csv().encode()
    (tmp_path / "a.csv.zst").write_bytes(pa.compress(text, codec="zstd", asbytes=True))
    assert describe_log(str(tmp_path / "a.csv.zst")).n_rows == 240


@pytest.mark.parametrize("reader", ["polars", "pandas"])
@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_a_folder_of_spark_is_read(ending, reader, log, tmp_path, monkeypatch):
    folder = tmp_path / "log"
    for part in range(3):
        _write(log[part * 80 : (part + 1) * 80], folder / f"part-0000{part}.snappy.{ending}")
    (folder / "_SUCCESS").touch()
    (folder / f".part-00000.snappy.{ending}.crc").write_bytes(b"crc")
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / f"part-9.{ending}").write_text("half")
    if ending == "csv":
        (folder / "part-00003.snappy.csv").touch()  # Spark's part without rows
    if reader == "pandas":
        monkeypatch.setitem(sys.modules, "polars", None)
    report = describe_log(folder)
    monkeypatch.undo()
    assert report.n_rows == 240
    assert len(_run_reading(report.code)) == 240


def test_names_of_folders_are_columns(log, tmp_path):
    for day in ("2026-01-01", "2026-01-02"):
        _write(log, tmp_path / "log" / f"day={day}" / "part-0.parquet")
    report = describe_log(tmp_path / "log")
    assert report.n_rows == 480
    assert "day" in report.columns.index
    assert "hive_partitioning=True" in report.code


def test_patterns_and_lists_name_the_same_files(log, tmp_path, capsys):
    paths = [tmp_path / f"part-{part}.parquet" for part in range(3)]
    for part, path in enumerate(paths):
        _write(log[part * 80 : (part + 1) * 80], path)
    assert main(["check", str(tmp_path / "part-*.parquet")]) != 2
    by_pattern = capsys.readouterr().out
    assert "part-*.parquet" in by_pattern
    assert main(["check", *map(str, paths)]) != 2
    by_list = capsys.readouterr().out
    assert "and 2 more" in by_list
    assert len(_run_reading(describe_log(paths[:2]).code)) == 160
    assert len(_run_reading(describe_log(str(tmp_path / "part-*.parquet")).code)) == 240


def _mixed(folder, log):
    _write(log, folder / "a.parquet")
    _write(log, folder / "b.csv")


def _of_two_schemas(folder, log):
    _write(log, folder / "a.parquet")
    _write(log.with_columns(price=pl.lit("dear")), folder / "b.parquet")


def _without_log(folder, log):
    folder.mkdir()
    (folder / "_SUCCESS").touch()


def _torn(folder, log):
    folder.mkdir()
    (folder / "a.parquet").write_text("no Parquet at all")


def _empty(folder, log):
    folder.mkdir()
    (folder / "a.parquet").touch()


@pytest.mark.parametrize(
    ("make", "found", "cure"),
    [
        (_mixed, "1 of .parquet, 1 of .csv", "'FOLDER/*.parquet'"),
        (_of_two_schemas, "price", "the same columns and types"),
        (_without_log, "no file of a log", "expected .parquet"),
        (_torn, "PAR1", "Expected files as their endings say"),
        (_empty, "is empty (0 bytes)", "Export it again"),
    ],
)
def test_what_is_no_log_says_what_was_found_and_what_to_do(
    make, found, cure, log, tmp_path, capfd
):
    make(tmp_path / "log", log)
    assert main(["check", str(tmp_path / "log")]) == 2
    message = capfd.readouterr().err
    assert found in message
    assert cure in message
    assert message.count("\n") == 1


def test_files_that_are_not_there_are_named(tmp_path, capsys):
    assert main(["check", str(tmp_path / "a.parquet")]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "a.xlsx")]) == 2
    assert "ends with '.xlsx'; expected .parquet" in capsys.readouterr().err
