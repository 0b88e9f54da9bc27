import numpy as np
import pandas as pd
import pytest

from skultr.datasets import load_result_lists
from skultr.identifiability import IdentifiabilityGraph
from skultr.simulation import make_disconnected_log

PAGES = "4 7 3 9\n2 3 5 -1\n"
GRADES = "4 0 4 2\n2 4 1 0\n"


def write(folder, pages=PAGES, grades=GRADES, split="train"):
    (folder / f"{split}.init_list").write_text(pages)
    (folder / f"{split}.labels").write_text(grades)
    return folder


def test_lists_of_a_folder(tmp_path):
    expected = pd.DataFrame(
        {
            "qid": [4, 4, 4, 2, 2],
            "doc": [7, 3, 9, 3, 5],
            "position": [1, 2, 3, 1, 2],
            "doc_scope": "global",
            "relevance": [0, 4, 2, 4, 1],  # without the row that pads the second page
        }
    )
    pd.testing.assert_frame_equal(load_result_lists(write(tmp_path)), expected)
    pd.testing.assert_frame_equal(
        load_result_lists(str(write(tmp_path, split="valid")), split="valid"), expected
    )
    text = load_result_lists(write(tmp_path, "\nq1\t7 3\n", "q1 0  4"))
    assert text["qid"].tolist() == ["q1", "q1"]


def test_names_of_queries_stay_apart(tmp_path):
    names = load_result_lists(write(tmp_path, "01 1\n1 2\n", "01 0\n1 0\n"))["qid"]
    assert names.tolist() == ["01", "1"]
    long = str(10**20)
    assert load_result_lists(write(tmp_path, f"{long} 1", f"{long} 0"))["qid"].tolist() == [long]


def test_what_is_written_is_read(tmp_path):
    X = make_disconnected_log(3, n_documents=200, n_queries=25, n_links=12, random_state=0).X
    texts = (
        "\n".join(f"{qid} {' '.join(map(str, page[column]))}" for qid, page in X.groupby("qid"))
        for column in ("doc", "relevance")
    )
    lists = load_result_lists(write(tmp_path, *texts))
    pd.testing.assert_frame_equal(lists, X[lists.columns], check_dtype=False)
    assert IdentifiabilityGraph.from_log(lists).n_components == 3


@pytest.mark.parametrize(
    ("pages", "grades", "message"),
    [
        ("1 2 x", "1 0 0", "line 1: .*Expected a query and then whole numbers"),
        ("1 2 3\n", "1 0 0\n2 0 0\n", "have 1 and 2 lists"),
        ("1 2 3\n", "2 0 0\n", "query '1' with 2 documents against '2' with 2 grades"),
        ("1 2 3\n", "1 0\n", "'1' with 2 documents against '1' with 1 grades"),
        ("1 2 3\n", "1 0 -1\n", "the grade -1 for query"),
        ("1 2 3\n2 3 2\n", "1 0 1\n2 1 4\n", r"Document 2 has the grades \[0, 4\]"),
        ("", "", "has no lists"),
        ("1\n", "1\n", "has no lists"),
        ("1 -1 -1\n", "1 0 0\n", "shows no document"),
        (f"1 {10**20}\n", "1 0\n", "line 1: .*Expected a query and then whole numbers"),
    ],
)
def test_bad_files(tmp_path, pages, grades, message):
    with pytest.raises(ValueError, match=message):
        load_result_lists(write(tmp_path, pages, grades))


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"test\.init_list"):
        load_result_lists(write(tmp_path), split="test")
    assert np.isfinite(load_result_lists(tmp_path)["relevance"]).all()
