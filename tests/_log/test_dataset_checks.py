"""A folder of a stranger is a dataset as it was written, or one sentence: it ends nothing.

The sums of each folder are right, as an attacker would make them.
"""

import json
import os
import shutil
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pytest
from sklearn.linear_model import Ridge

from skultr import ClickDataset
from skultr._log import _dataset_frames
from skultr.exceptions import is_meant
from skultr.rankers import NaiveRanker

from .test_dataset_reading import a_log


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    log = a_log().assign(
        qid=lambda log: "q" + log["qid"].astype(str), doc=lambda log: log["doc"].astype(str)
    )
    log.loc[log["position"] == 4, "position"] = np.nan
    log.loc[log["position"].isna(), "click"] = 0
    path = tmp_path_factory.mktemp("written") / "clicks"
    return ClickDataset.from_parquet(log, path=path).path


@pytest.fixture
def folder(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "clicks"))


# What attackers do -----------------------------------------------------------------------
def restate(folder, change=lambda meta: None):
    """Write sizes, sums, rows and types of the files as they are into the manifest."""
    meta = json.loads((folder / "meta.json").read_bytes())
    del meta["crc32"]
    for name, stated in meta["files"].items():
        path = folder / name
        if path.is_file() and not name.startswith("/"):
            stated["bytes"] = path.stat().st_size
            stated["crc32"] = zlib.crc32(path.read_bytes())
    change(meta)
    meta["crc32"] = zlib.crc32(json.dumps(meta, sort_keys=True).encode())
    (folder / "meta.json").write_text(json.dumps(meta))


def write(folder, name, columns, compression=None, n_batches=1, states=True):
    """Write a table, and state it."""
    path = folder / f"{name}.arrow"
    batch = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), batch.schema, options=options) as file:
        for _ in range(n_batches):
            file.write_batch(batch)

    def change(meta):
        if states:
            stated = meta["files"][path.name]
            stated["rows"] = batch.num_rows
            stated["columns"] = {key: str(array.type) for key, array in columns.items()}

    restate(folder, change)


def columns_of(folder, name):
    with pa.ipc.open_file(str(folder / f"{name}.arrow")) as file:
        batch = file.get_batch(0)
        return {key: batch.column(key) for key in batch.schema.names}


def column(name, key, change, **how):
    """Attack: another column, by a function of its values or of the Arrow array."""

    def attack(folder):
        columns = columns_of(folder, name)
        found = change(columns[key])
        columns[key] = found if isinstance(found, pa.Array) else pa.array(found)
        write(folder, name, columns, **how)

    return attack


def filled(value):
    return lambda array: np.full(len(array), value, dtype=array.to_numpy().dtype)


def with_first(value):
    def change(array):
        values = array.to_numpy().copy()
        values[0] = value
        return values

    return change


def meta(change):
    return lambda folder: restate(folder, change)


def facts(**values):
    return meta(lambda found: found["facts"].update(values))


def constant(**values):
    return meta(lambda found: found["facts"]["copies"]["detailed"]["constants"].update(values))


def file_named(name):
    entry = {"bytes": 0, "crc32": 0, "rows": 0, "columns": {}}
    return meta(lambda found: found["files"].update({name: entry}))


def replaced(name, make):
    """Attack: something else in the place of a file."""

    def attack(folder):
        path = folder / name
        size = path.stat().st_size
        path.rename(folder.parent / "moved")
        make(path)
        if name != "meta.json":
            restate(folder, lambda found: found["files"][name].update(bytes=size))

    return attack


def far_offsets(folder):
    """Offsets of ids, beyond the file: where they are in the file, since Arrow writes no such."""
    path, ids = folder / "queries.arrow", columns_of(folder, "queries")["id"]
    offsets = np.frombuffer(ids.buffers()[1], _type_of_offsets(ids))[: len(ids) + 1]
    far = offsets + (offsets > 0) * offsets.dtype.type(2**30)
    path.write_bytes(path.read_bytes().replace(offsets.tobytes(), far.tobytes()))
    restate(folder)


def _type_of_offsets(texts):
    """pandas writes one or the other, by its release."""
    return np.int64 if pa.types.is_large_string(texts.type) else np.int32


def no_utf8(array):
    ends = np.arange(len(array) + 1, dtype=_type_of_offsets(array))
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"\xff" * len(array))]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def wide(array):
    values = pa.array(np.zeros(len(array) * 10_000, np.float32))
    return pa.FixedSizeListArray.from_arrays(values, 10_000)


def infinite(array):
    values = array.flatten().to_numpy().copy()
    values[3] = np.inf
    return pa.FixedSizeListArray.from_arrays(pa.array(values), array.type.list_size)


def many_lists(folder):
    write(folder, "merged_lists", {"n_rows": pa.array(np.ones(10**6, np.int16))}, "zstd")


def cut(folder):
    path = folder / "detailed_rows.arrow"
    path.write_bytes(path.read_bytes()[:-40])
    restate(folder)


def content(text):
    return lambda folder: (folder / "meta.json").write_bytes(text)


ROWS = "detailed_rows"
ATTACKS = {
    # The manifest.
    "a file elsewhere": (file_named("../../../etc/passwd"), "none of a dataset"),
    "a device": (file_named("/dev/zero"), "none of a dataset"),
    "a name with an escape": (file_named("\x1b[31m.arrow"), r"'\\x1b\[31m.arrow'"),
    "brackets": (content(b"[" * 200_000), "is no manifest"),
    "a list": (content(b"[1]"), "is no manifest"),
    "digits": (content(b'{"format": ' + b"1" * 6_000 + b"}"), "is no manifest"),
    "no text": (content(b"\xff\xfe{}"), "is no manifest"),
    "17 megabytes": (content(b"[" + b"[]," * 6_000_000 + b"[]]"), "is too large"),
    "a pipe for meta.json": (replaced("meta.json", os.mkfifo), "no regular file"),
    "a device for meta.json": (
        replaced("meta.json", lambda path: path.symlink_to("/dev/zero")),
        "no regular file",
    ),
    "no facts": (meta(lambda found: found.update(facts={})), "feature_names is None"),
    "facts of text": (meta(lambda found: found.update(facts="x")), "facts"),
    "files gone": (meta(lambda found: found.update(files={})), "does not name"),
    "names that are none": (facts(feature_names=[1, None]), "feature_names"),
    "names of one feature": (facts(feature_names=["a"]), "features are 2; expected 1"),
    "no roles": (facts(roles=["nothing"]), "roles"),
    "more queries": (facts(n_queries=13), "n_queries is 13"),
    "most documents": (facts(n_documents=10**12), "n_documents"),
    "a fraction of documents": (facts(n_documents=1.5), "n_documents"),
    "rows of nothing": (
        meta(lambda found: found["facts"]["copies"]["detailed"].update(n_rows=10**12)),
        "n_rows",
    ),
    "a constant of text": (constant(weight="x"), "constants|constant weight"),
    "a constant too many": (constant(evil=1.0), "constants"),
    "a constant beyond its table": (constant(user=7.0), "constant user"),
    "a constant beside its column": (constant(clicks=1.0), "constants"),
    "rows beyond the bytes": (
        meta(lambda found: found["files"]["users.arrow"].update(rows=10**9)),
        "1,000,000,000 rows in",
    ),
    # Files.
    "a pipe": (replaced("users.arrow", os.mkfifo), "no regular file"),
    "a folder": (replaced("users.arrow", os.mkdir), "no regular file"),
    "a device through a link": (
        replaced("users.arrow", lambda path: path.symlink_to("/dev/zero")),
        "no regular file",
    ),
    "a link out": (
        replaced("users.arrow", lambda path: path.symlink_to(path.parent.parent / "moved")),
        "a link out of the folder",
    ),
    "the end cut": (cut, "the end of the file is missing"),
    # Tables.
    "offsets beyond the file": (far_offsets, "ffset"),
    "text that is none": (column("queries", "id", no_utf8), "UTF8"),
    "ids that are dicts": (
        column("queries", "id", lambda ids: pa.array([{"a": 1}] * len(ids))),
        "column id has type",
    ),
    "ids by codes": (
        column("queries", "id", lambda ids: ids.dictionary_encode()),
        "column id has type",
    ),
    "one id": (column("queries", "id", lambda ids: pa.array(["q"] * len(ids))), "in order"),
    "another type than stated": (
        column(ROWS, "version", lambda array: array.cast("int64"), states=False),
        "expected those of meta.json",
    ),
    "unsigned codes": (column(ROWS, "version", lambda a: a.cast("uint32")), "has type uint32"),
    "compressed rows": (
        column("versions", "features", wide, compression="zstd"),
        "rows are compressed",
    ),
    "compressed lists": (many_lists, "1,000,000 rows in"),
    "no part": (column(ROWS, "version", lambda array: array, n_batches=0), "expected record"),
    "two parts": (column(ROWS, "version", lambda array: array, n_batches=2), "expected None"),
    "missing values": (
        column(ROWS, "version", lambda array: pa.array([None] * len(array), "int32")),
        "values are missing",
    ),
    # Values.
    "negative versions": (column(ROWS, "version", filled(-1)), "version has values from -1"),
    "far versions": (column(ROWS, "version", with_first(2**31 - 2)), "version has values"),
    "negative bias": (column(ROWS, "bias", filled(-1)), "bias has values from -1"),
    "far bias": (column(ROWS, "bias", filled(2**15 - 1)), "bias has values"),
    "position 0": (column(ROWS, "position", with_first(0)), "position has values from 0"),
    "clicks that are no number": (column(ROWS, "clicks", with_first(np.nan)), "clicks has"),
    "infinite clicks": (column(ROWS, "clicks", with_first(np.inf)), "clicks has values"),
    "more clicks than impressions": (column(ROWS, "clicks", filled(1e9)), "more clicks than"),
    "infinite features": (column("versions", "features", infinite), "features are infinite"),
    "documents in disorder": (
        column("versions", "doc", lambda array: array.to_numpy()[::-1].copy()),
        "by steps of one",
    ),
    "long lists": (column("detailed_lists", "n_rows", filled(30_000)), "rows in lists"),
    "negative lists": (column("detailed_lists", "n_rows", filled(-3)), "n_rows has values"),
    "lists of nobody": (
        column("queries", "detailed_lists", with_first(10**11)),
        "lists of detailed",
    ),
    "negative impressions": (column("queries", "impressions", filled(-1)), "impressions has"),
    "candidates of no query": (
        column("candidates", "query", with_first(12)),
        "query has values from 0 to 12",
    ),
    "ids of no document": (column("documents", "id", with_first(-1)), "id has values from -1"),
}


def fitted_to(folder):
    """A ranker, after both copies of the log were opened."""
    dataset = ClickDataset(folder)
    dataset.log()
    return NaiveRanker(estimator=Ridge()).fit(dataset)


@pytest.mark.parametrize("name", ATTACKS)
def test_what_skultr_did_not_write_is_refused_in_one_sentence(name, folder):
    attack, text = ATTACKS[name]
    attack(folder)
    with pytest.raises(
        ValueError, match=f"(?s)is damaged or was copied in part: .*{text}"
    ) as info:
        fitted_to(folder)
    assert is_meant(info.value)
    assert "\n" not in str(info.value)
    assert len(str(info.value)) < 500
    assert "\x1b" not in str(info.value)


@pytest.mark.parametrize("seed", range(60))
def test_changed_bytes_are_refused_or_harmless(seed, folder):
    rng = np.random.default_rng(seed)
    path = sorted(folder.glob("*.arrow"))[seed % 10]
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[rng.integers(8, len(content), 1 + seed % 4)] = rng.integers(256)
    path.write_bytes(content.tobytes())
    restate(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ranker, error = fitted_to(folder), None
        except ValueError as caught:
            ranker, error = None, caught
    assert is_meant(error) if ranker is None else np.isfinite(ranker.estimator_.coef_).all()


def test_folders_as_written_open_through_links_to_the_folder(folder, tmp_path):
    restate(folder)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, tmp_path / "link"):
        assert ClickDataset(path).log().n_rows > 0
        assert ClickDataset(path).doc_ids is not None


def test_values_are_looked_at_once_for_each_file(folder, monkeypatch):
    looked = []
    check = _dataset_frames.check_values
    monkeypatch.setattr(
        _dataset_frames,
        "check_values",
        lambda name, *rest: looked.append(name) or check(name, *rest),
    )
    dataset = ClickDataset(folder)
    for queries in (slice(0, 4), slice(4, 8), slice(0, 9)):
        dataset[queries].log()
    assert len(looked) == len({*looked}) == 9
    column(ROWS, "version", filled(-1))(folder)
    with pytest.raises(ValueError, match="version has values from -1"):
        ClickDataset(folder).log()


def test_all_rows_may_be_at_one_far_position(tmp_path):
    log = a_log(n_places=1).assign(position=2**31 + 5)
    log = pd.concat([log, log.assign(doc=0, session=log["session"] + 10**6)])
    dataset = ClickDataset.from_parquet(log, path=tmp_path / "clicks")
    assert dataset.log().position[0] == 2**31 + 5
