"""Documents of the paper scripts, from files as their sets lay them out."""

import numpy as np
import pandas as pd
import pytest

from benchmarks._documents import read_letor, split_documents
from benchmarks._study import Settings

LINES = {
    "train": "2 qid:1 1:.5\n0 qid:1 1:.1 3:4\n1 qid:2 1:.7\n0 qid:2 1:.3\n",
    "test": "1 qid:9 2:.5\n0 qid:9 1:.1\n",
}


def split(path, n_train=10, n_test=10, queries=None):
    read_letor.cache_clear()
    settings = Settings(letor=path and str(path), queries=queries)
    return split_documents(settings, n_train, n_test, seed=0)


def test_made_documents_by_default():
    train, test = split(None, 12, 5)
    assert (train["qid"].nunique(), test["qid"].nunique()) == (12, 5)


@pytest.mark.parametrize("names", ["{}.txt", "set1.{}.txt", "Fold1/{}.txt"])
def test_the_split_of_the_files(tmp_path, names):
    for part, lines in LINES.items():
        path = tmp_path / names.format(part)
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines)
    train, test = split(tmp_path)
    assert (len(train), len(test)) == (4, 2)
    # The parts show features 1 and 3, and 1 and 2: both get all three.
    assert list(train) == list(test)
    assert train["doc"].is_unique
    assert train["feature_003"].tolist() == [0, 4, 0, 0]


def test_one_file_is_split_by_query(tmp_path):
    rows = [f"{q % 3} qid:{q} 1:{q}\n" for q in range(20) for _ in range(3)]
    (tmp_path / "all.txt").write_text("".join(rows))
    train, test = split(tmp_path / "all.txt", 100, 100)
    assert not set(train["qid"]) & set(test["qid"])
    assert (train["qid"].nunique(), test["qid"].nunique()) == (14, 6)
    assert split(tmp_path / "all.txt", 100, 100, queries=4)[0]["qid"].nunique() == 4


def test_a_parquet_file_with_a_column_split(tmp_path):
    frame = pd.DataFrame({"qid": [1, 1, 2, 2], "label": [0, 1, 2, 0], "f": np.arange(4.0)})
    frame["split"] = ["train", "train", "test", "test"]
    frame.to_parquet(tmp_path / "set.parquet")
    train, test = split(tmp_path / "set.parquet")
    assert (train["qid"].unique().tolist(), test["qid"].unique().tolist()) == ([1], [2])


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no file of a split"):
        split(tmp_path)
    (tmp_path / "test.txt").write_text(LINES["test"])
    with pytest.raises(ValueError, match="such as train"):
        split(tmp_path)
