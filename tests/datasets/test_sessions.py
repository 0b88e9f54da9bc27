"""The log that is downloaded: the files, what becomes of them, and what it says where it fails."""

import hashlib
import os
import re
from pathlib import Path

import pandas as pd
import pytest

from skultr.datasets import _sessions, fetch_trec_sessions

PAGE = "\t[1, 1, 1]\t"
FILES = {
    "train_per_query_quid.txt": f"9\t7\t[40, 41, 42]{PAGE}[0, 1, 0]\n"
    f"9\t8\t[50, 41, 50]{PAGE}[1, 0, 0]\n",
    "valid_per_query_quid.txt": f"3\t7\t[41, 40, 43]{PAGE}[0, 0, 0]\n",
    "test_per_query_quid.txt": f"4\t5\t[60, 61, 62]{PAGE}[0, 0, 1]\n",
}


def checksums(files):
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder in the place of the host."""
    folder = tmp_path / "host"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(_sessions, "_SOURCE", f"file://localhost{folder}/")
    monkeypatch.setattr(_sessions, "_SHA256", checksums(FILES))
    return folder


def test_one_row_per_document_of_each_page(source, tmp_path):
    log = fetch_trec_sessions(data_home=tmp_path / "home")
    assert log.columns.tolist() == ["session", "qid", "doc", "position", "click"]
    assert (log.dtypes == "int64").all()
    assert log["session"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert log["qid"].tolist() == [7, 7, 7, 8, 8, 8, 7, 7, 7, 5, 5, 5]
    assert log["doc"].tolist() == [40, 41, 42, 50, 41, 50, 41, 40, 43, 60, 61, 62]
    assert log["position"].tolist() == [1, 2, 3] * 4
    assert log["click"].tolist() == [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_is_downloaded_once(source, tmp_path):
    first = fetch_trec_sessions(data_home=str(tmp_path))
    for file in source.iterdir():
        file.unlink()
    again = fetch_trec_sessions(data_home=tmp_path, download_if_missing=False)
    pd.testing.assert_frame_equal(first, again)


def test_default_folder_is_the_data_home_of_scikit_learn(source, tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    fetch_trec_sessions()
    assert {file.name for file in (tmp_path / "home" / "trec_sessions_2014").iterdir()} == {*FILES}


def test_nothing_is_downloaded_unasked(source, tmp_path):
    with pytest.raises(OSError, match=r"does not exist, and download_if_missing is False.*True"):
        fetch_trec_sessions(data_home=tmp_path, download_if_missing=False)
    assert not list((tmp_path / "trec_sessions_2014").iterdir())


def test_without_a_connection(source, tmp_path):
    (source / "valid_per_query_quid.txt").unlink()
    with pytest.raises(OSError, match=r"Could not download file:.*valid_per.*Try again") as caught:
        fetch_trec_sessions(data_home=tmp_path)
    assert f"to {tmp_path / 'trec_sessions_2014'}." in str(caught.value)


def test_another_file_is_refused(source, tmp_path):
    (source / "train_per_query_quid.txt").write_text("<html>moved</html>")
    with pytest.raises(OSError, match="SHA256 checksum of train_per_query_quid"):
        fetch_trec_sessions(data_home=tmp_path)
    assert not list((tmp_path / "trec_sessions_2014").iterdir())


def test_a_damaged_file_is_downloaded_again(source, tmp_path):
    log = fetch_trec_sessions(data_home=tmp_path)
    (tmp_path / "trec_sessions_2014" / "test_per_query_quid.txt").write_text("")
    with pytest.warns(UserWarning, match="differs from expected"):
        again = fetch_trec_sessions(data_home=tmp_path)
    pd.testing.assert_frame_equal(log, again)


def test_source_is_one_commit():
    assert re.search("/[0-9a-f]{40}/", _sessions._SOURCE)


def test_checksums_and_figures_of_the_docstring(tmp_path, monkeypatch):
    """The files, written from a table of the same pages, as no test has a connection."""
    path = Path(os.environ.get("SKULTR_DATA", ""), "trec2014_session_clicks.parquet")
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the folder that SKULTR_DATA names")
    table = pd.read_parquet(path)
    pages = table.groupby(["split", "session"], observed=True).agg(
        {"user_session": "first", "qid": "first", "doc": list, "click": list}
    )
    texts = {
        f"{split}_per_query_quid.txt": "".join(
            f"{page.user_session}\t{page.qid}\t{page.doc}\t{[1] * 10}\t{page.click}\n"
            for page in pages.loc[split].itertuples()
        )
        for split in ("train", "valid", "test")
    }
    assert checksums(texts) == _sessions._SHA256
    assert [len(text) for text in texts.values()] == [369_322, 46_539, 46_790]
    monkeypatch.setattr(_sessions, "_SOURCE", f"file://localhost{tmp_path}/")
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    log = fetch_trec_sessions(data_home=tmp_path)
    expected = table.sort_values(["session", "position"], ignore_index=True)
    pd.testing.assert_frame_equal(log, expected[log.columns], check_dtype=False)
    assert (log["session"].nunique(), log["qid"].nunique()) == (3596, 2544)
    assert (len(log), log["click"].sum()) == (35_960, 1610)
    twice = log[log.duplicated(["session", "doc"])]
    assert twice["session"].nunique() == 101
    rates = log.groupby("position")["click"].mean().round(3).astype(str)
    assert f"[{', '.join(rates)}]" in fetch_trec_sessions.__doc__
