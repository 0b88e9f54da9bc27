import bz2
import gzip
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr import aggregate_clicks
from skultr.datasets import letor_splits, load_letor, make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.simulation import simulate_clicks

LINES = "2 qid:10 1:0.5 3:1e3 # a comment\n0 qid:10 2:-1\n1 qid:7 1:1 2:2 3:3\n"


def write(folder, text, name="train.txt"):
    path = folder / name
    path.write_text(text)
    return path


def parquet(folder, name="set.parquet", **columns):
    frame = pd.DataFrame({"qid": [1, 1, 2], "label": [0, 2, 1], "f0": [0.1, 0.2, 0.3]})
    frame = frame.assign(**columns)
    frame.to_parquet(folder / name)
    return folder / name


# --------------------------------------------------------------------------------------
# svmlight
# --------------------------------------------------------------------------------------
def test_svmlight(tmp_path):
    documents = load_letor(write(tmp_path, LINES))
    expected = pd.DataFrame(
        {
            "qid": [10, 10, 7],
            "doc": [0, 1, 2],
            "relevance": [2, 0, 1],
            "feature_001": np.float32([0.5, 0, 1]),
            "feature_002": np.float32([0, -1, 2]),
            "feature_003": np.float32([1e3, 0, 3]),
        }
    )
    pd.testing.assert_frame_equal(documents, expected)


@pytest.mark.parametrize(("suffix", "module"), [(".gz", gzip), (".bz2", bz2)])
def test_compressed_svmlight(tmp_path, suffix, module):
    path = tmp_path / f"train.txt{suffix}"
    with module.open(path, "wt") as file:
        file.write(LINES)
    pd.testing.assert_frame_equal(load_letor(str(path)), load_letor(write(tmp_path, LINES)))


def test_the_suffix_of_a_compressed_file_may_be_in_capitals(tmp_path):
    path = tmp_path / "TRAIN.TXT.GZ"
    path.write_bytes(gzip.compress(LINES.encode()))
    assert load_letor(path).equals(load_letor(write(tmp_path, LINES)))


@pytest.mark.parametrize("module", [gzip, bz2])
@pytest.mark.parametrize("is_whole", [True, False])
def test_files_that_cannot_be_unpacked(tmp_path, module, is_whole):
    path = tmp_path / ("train.txt.gz" if module is gzip else "train.txt.bz2")
    path.write_bytes(LINES.encode() if is_whole else module.compress(LINES.encode())[:25])
    with pytest.raises(ValueError, match=r"Could not unpack .*train\.txt.*Is it whole"):
        load_letor(path)


def test_windows_and_blank_lines(tmp_path):
    lines = LINES.replace("\n", "\r\n")
    assert load_letor(write(tmp_path, f"\r\n{lines}  \r\n\r\n")).equals(
        load_letor(write(tmp_path, LINES))
    )


def test_rows_are_made_dense_by_and_by(tmp_path, monkeypatch):
    monkeypatch.setattr("skultr.datasets._letor._ROWS", 2)
    paths = [write(tmp_path, LINES), write(tmp_path, LINES.replace("3:3", "4:4"), "more.txt")]
    values = load_letor(paths).filter(like="feature").to_numpy().tolist()
    assert values == [
        [0.5, 0, 1000, 0], [0, -1, 0, 0], [1, 2, 3, 0],
        [0.5, 0, 1000, 0], [0, -1, 0, 0], [1, 2, 0, 4],
    ]  # fmt: skip


def test_several_files_are_one_set(tmp_path):
    first, *rest = LINES.splitlines(keepends=True)
    paths = [write(tmp_path, first, "a.txt"), write(tmp_path, "".join(rest), "b.svm")]
    pd.testing.assert_frame_equal(load_letor(paths), load_letor(write(tmp_path, LINES)))


def test_feature_ids_from_zero(tmp_path):
    documents = load_letor(write(tmp_path, "1 qid:1 0:5 1:6\n"))
    assert documents.filter(like="feature").iloc[0].to_dict() == {
        "feature_000": 5,
        "feature_001": 6,
    }


def test_n_features_gives_files_the_same_columns(tmp_path):
    short = load_letor(write(tmp_path, "1 qid:1 1:5\n"), n_features=3)
    full = load_letor(write(tmp_path, LINES))
    assert list(short.columns) == list(full.columns)
    assert load_letor(write(tmp_path, "1 qid:1\n0 qid:1\n"), n_features=2).shape == (2, 5)
    with pytest.raises(ValueError, match="have 3 features"):
        load_letor(write(tmp_path, LINES), n_features=2)


def test_fractional_labels_stay(tmp_path):
    documents = load_letor(write(tmp_path, "0.5 qid:1 1:5\n1 qid:1 1:4\n"))
    assert documents["relevance"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:0.5\n0 1:0.2\n", "query id"),
        ("1 qid:1 1:0.5\n0 1:0.2\n", "query id|as svmlight"),
        ("-1 qid:1 1:0.5\n", "label of row 0 is -1"),
        ("nan qid:1 1:0.5\n", "label of row 0 is nan"),
        ("1 qid:1 1:0.5\n1 qid:1 1:inf\n", "'feature_001' is infinite in 1 of 2"),
        ("1 qid:1 a:0.5\n", "as svmlight"),
        ("1 qid:1 2:0.5 1:3\n", "as svmlight"),
        ("1 qid:99999999999999999999 1:3\n", "as svmlight"),
        ("1 qid:1 2000000:1\n", "feature id 2000000"),
        ("1 qid:1 2000000000:1\n", "feature id 2000000000"),
        ("1 qid:1 00017179869184:1\n", "feature id 1717986918"),
        ("one qid:1 1:1\n", "as svmlight"),
        ("", "has no rows|as svmlight"),
        ("# nothing\n", "has no rows|as svmlight"),
    ],
)
def test_malformed_svmlight(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_letor(write(tmp_path, text))


token = st.one_of(
    st.sampled_from(["qid:1", "qid:", "qid:x", "1:2", "2:3", ":", "1:", "0:1", "#", "nan", "-1"]),
    st.text(alphabet="0123456789:.eE-+ qid#\t", max_size=12),
    st.integers(-(2**70), 2**70).map("qid:{}".format),
    st.tuples(st.integers(-5, 2**34), st.floats()).map("{0[0]}:{0[1]}".format),
)
line = st.lists(token, max_size=5).map(" ".join)
plausible = st.tuples(st.integers(0, 4), st.integers(0, 3), line).map(
    "{0[0]} qid:{0[1]} {0[2]}".format
)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(line, plausible), max_size=4).map("\n".join).map(str.encode) | st.binary()
)
def test_any_text_is_read_or_refused(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzz.txt"
        path.write_bytes(content)
        try:
            documents = load_letor(path)
        except ValueError:
            return
    assert not documents.duplicated(["qid", "doc"]).any()
    assert (documents["relevance"] >= 0).all()
    assert np.isfinite(documents.filter(like="feature").to_numpy()).all()


def test_docids_in_comments_are_the_documents(tmp_path):
    lines = (
        "2 qid:10032 1:0.05 2:1 #docid = GX029-35-5894638 inc = 0.01 prob = 0.139\n"
        "0 qid:10032 1:0.27 2:0 #docid = GX030-77-6315042 inc = 1 prob = 0.341\n"
        "1 qid:1 1:0.1 #docid = 244338\n"
        "1 qid:2 1:0.1\t#docid=244338\n"
    )
    docs = load_letor(write(tmp_path, lines))["doc"]
    assert docs.tolist() == ["GX029-35-5894638", "GX030-77-6315042", "244338", "244338"]
    with pytest.raises(ValueError, match=r"'#docid = ...' in 4 of 5 rows"):
        load_letor(write(tmp_path, lines + "0 qid:2 1:0.4\n"))


def test_docids_link_the_documents_to_a_click_log(tmp_path):
    lines = "".join(f"{d % 3} qid:{q} 1:{d}.5 #docid = D{d}\n" for q in range(3) for d in range(5))
    documents = load_letor(write(tmp_path, lines))
    log, clicks, _ = simulate_clicks(documents, n_sessions=50, random_state=0)
    impressions = log[["session", "qid", "doc", "position"]].assign(click=clicks)
    X, _ = aggregate_clicks(impressions, documents)
    assert (X["feature_001"] == X["doc"].str[1:].astype(int) + 0.5).all()


def test_docids_of_other_code_pages_stay_apart(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes("1 qid:1 1:1 #docid = ü\n1 qid:1 1:2 #docid = ö\n".encode("latin-1"))
    assert load_letor(path)["doc"].tolist() == [r"\xfc", r"\xf6"]


def test_only_docid_is_the_document(tmp_path):
    assert load_letor(write(tmp_path, "1 qid:1 1:1 #olddocid = x\n"))["doc"].tolist() == [0]


@pytest.mark.parametrize(
    "form",
    [
        "{grade} qid:{q} # {doc} Tent of 2\n",
        "{grade}\tqid:{q} #\t{doc}\tTent\n",
        "{grade} qid:{q} 1:0.5 2:3 #{doc}\n",
        "{grade} qid:{q} 1:0.5 # doc_id: {doc} Tent\n",
    ],
)
def test_judgement_lists_keep_their_ids(form, tmp_path):
    rows = [(4, 1, "7001"), (2, 1, "7002"), (0, 2, "7003")]
    lines = "".join(form.format(grade=grade, q=q, doc=doc) for grade, q, doc in rows)
    documents = load_letor(write(tmp_path, f"# qid:1: tent\n# qid:2: stove\n{lines}"))
    assert documents["doc"].tolist() == ["7001", "7002", "7003"]


@pytest.mark.parametrize(
    ("comments", "docs", "doubt"),
    [
        (["red tent", "tarp", "gas stove"], ["red", "tarp", "gas"], "such as 'red', though some"),
        (["a tent", "a tarp", "a stove"], [0, 1, 2], "comes again in its query in 2 of 3 rows"),
        (["7001 tent", "7002 tarp", ""], [0, 1, 2], "in 2 of 3 rows, and none in the others"),
    ],
)
def test_comments_that_may_be_no_ids_are_told(comments, docs, doubt, tmp_path):
    lines = "".join(f"1 qid:1 1:{k} # {comment}\n" for k, comment in enumerate(comments))
    with pytest.warns(ClickDataWarning, match=doubt):
        assert load_letor(write(tmp_path, lines))["doc"].tolist() == docs


def test_marks_of_missing_features_stay_finite(tmp_path):
    lines = "1 qid:1 1:1.797693134862315708e+308\n0 qid:1 1:-1e300\n"
    largest = np.finfo(np.float32).max
    assert load_letor(write(tmp_path, lines))["feature_001"].tolist() == [largest, -largest]


def test_the_null_version_of_letor_is_named(tmp_path):
    with pytest.raises(ValueError, match="take MIN or QueryLevelNorm"):
        load_letor(write(tmp_path, "1 qid:1 1:0.5 2:NULL\n"))


# --------------------------------------------------------------------------------------
# Folders of published sets
# --------------------------------------------------------------------------------------
LAYOUTS = {
    "MSLR": "MSLR-WEB10K/Fold{fold}/{split}.txt",
    "LETOR 4": "MQ2008/Fold{fold}/{split}.txt",
    "LETOR 3": "OHSUMED/QueryLevelNorm/Fold{fold}/{split}set.txt",
    "Yahoo!": "ltrc_yahoo/set{fold}.{split}.txt",
    "Istella": "istella-letor/full/{split}.txt",
    "Istella-S": "istella-s-letor/sample/{split}.txt.gz",
    "Parquet": "fold_{fold}/{split}-00000-of-00001.parquet",
}
WORDS = {
    "MSLR": ("train", "vali", "test"),
    "LETOR 4": ("train", "vali", "test"),
    "LETOR 3": ("training", "validation", "test"),
    "Yahoo!": ("train", "valid", "test"),
    "Istella": ("train", "test"),
    "Istella-S": ("train", "vali", "test"),
    "Parquet": ("train", "validation", "test"),
}


def unpack(folder, layout):
    """Two folds, where the layout has folds, whose query ids tell fold and split."""
    folds = (1, 2) if "{fold}" in LAYOUTS[layout] else (1,)
    for fold in folds:
        for number, split in enumerate(WORDS[layout]):
            path = folder / LAYOUTS[layout].format(fold=fold, split=split)
            path.parent.mkdir(parents=True, exist_ok=True)
            qid = 100 * fold + 10 * number
            text = f"2 qid:{qid} 1:1\n0 qid:{qid} {2 + number}:{fold}\n1 qid:{qid + 1} 1:3\n"
            if path.suffix == ".parquet":
                frame = pd.DataFrame({"qid": [qid, qid, qid + 1], "label": [2, 0, 1], "f": 0.5})
                frame.to_parquet(path)
            elif path.suffix == ".gz":
                path.write_bytes(gzip.compress(text.encode()))
            else:
                path.write_text(text)
    (folder / "README.txt").write_text("Documents, not a file of them.")
    return len(folds)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_as_the_sets_unpack(tmp_path, layout):
    n_folds = unpack(tmp_path, layout)
    splits = ["train", "validation", "test"] if len(WORDS[layout]) == 3 else ["train", "test"]
    for fold in range(1, n_folds + 1):
        chosen = fold if n_folds > 1 else None
        assert list(letor_splits(tmp_path, fold=chosen)) == splits
        parts = [load_letor(tmp_path, fold=chosen, split=split) for split in splits]
        for number, part in enumerate(parts):
            first = 100 * fold + 10 * number
            assert part["qid"].tolist() == [first, first, first + 1]
            # svmlight leaves out zeros: no split shows all features, and each gets all columns.
            assert list(part.columns) == list(parts[0].columns)
        if layout != "Parquet":
            assert parts[0].shape[1] == 3 + 1 + len(splits)
        together = load_letor(tmp_path, fold=chosen)
        assert together["qid"].tolist() == [qid for part in parts for qid in part["qid"]]
        assert together["doc"].tolist() == list(range(3 * len(parts)))
        both = load_letor(tmp_path, fold=chosen, split=["test", "train"])
        assert both["qid"].tolist() == [*parts[-1]["qid"], *parts[0]["qid"]]


def test_a_fold_may_be_the_folder_itself(tmp_path):
    unpack(tmp_path, "MSLR")
    fold = tmp_path / "MSLR-WEB10K" / "Fold2"
    assert load_letor(fold, split="test")["qid"].tolist() == [220, 220, 221]
    assert load_letor(str(fold), fold=2, split="train", n_features=9).shape == (3, 12)


def test_splits_that_share_a_query_are_not_mixed(tmp_path):
    for split in ("train", "test"):
        write(tmp_path, LINES, f"{split}.txt")
    with pytest.raises(ValueError, match=r"query 10 is in the splits 'train' and 'test'"):
        load_letor(tmp_path)
    assert load_letor(tmp_path, split="test")["qid"].tolist() == [10, 10, 7]


def test_folders_that_leave_a_choice(tmp_path):
    unpack(tmp_path, "MSLR")
    with pytest.raises(ValueError, match=r"holds the folds 1, 2; .* Pass fold=1"):
        load_letor(tmp_path, split="train")
    with pytest.raises(ValueError, match=r"fold=7, but .* holds the folds 1, 2"):
        load_letor(tmp_path, fold=7)
    with pytest.raises(ValueError, match=r"holds the splits \['train', 'validation', 'test'\]"):
        load_letor(tmp_path, fold=1, split="S1")
    with pytest.raises(ValueError, match=r"split=\[\]"):
        load_letor(tmp_path, fold=1, split=[])
    unpack(tmp_path, "LETOR 4")
    with pytest.raises(ValueError, match=r"2 files of the split 'train': MQ2008.Fold1"):
        load_letor(tmp_path, fold=1)


def test_folders_without_a_split(tmp_path):
    with pytest.raises(ValueError, match="that were found: none"):
        load_letor(tmp_path)
    write(tmp_path, LINES, "part.txt")
    with pytest.raises(ValueError, match=r"that were found: part.txt"):
        load_letor(tmp_path)
    write(tmp_path, LINES, "train.txt")
    with pytest.raises(ValueError, match=r"fold=1, but .* holds no folds"):
        load_letor(tmp_path, fold=1)
    with pytest.raises(ValueError, match="is not a folder"):
        letor_splits(tmp_path / "train.txt")


def test_feature_ids_from_zero_in_one_split_count_in_all(tmp_path):
    write(tmp_path, "1 qid:1 1:5 2:6\n", "train.txt")
    write(tmp_path, "1 qid:2 0:7\n", "test.txt")
    columns = ["feature_000", "feature_001", "feature_002"]
    for keywords in ({}, {"n_features": 3}):
        train = load_letor(tmp_path, split="train", **keywords)
        test = load_letor(tmp_path, split="test", **keywords)
        assert train.columns.tolist()[3:] == test.columns.tolist()[3:] == columns
        assert train[columns].to_numpy().tolist() == [[0, 5, 6]]
        assert test[columns].to_numpy().tolist() == [[7, 0, 0]]


def test_a_split_named_twice_is_read_once(tmp_path):
    unpack(tmp_path, "Istella")
    assert load_letor(tmp_path, split=["test", "test"])["qid"].tolist() == [110, 110, 111]


def test_an_empty_split_is_an_error(tmp_path):
    write(tmp_path, LINES, "train.txt")
    write(tmp_path, "\n# nothing\n", "test.txt")
    with pytest.raises(ValueError, match=r"test\.txt has no rows"):
        load_letor(tmp_path, split="test")
    assert len(load_letor(tmp_path, split="train")) == 3


def test_folders_that_mix_formats(tmp_path):
    write(tmp_path, LINES, "train.txt")
    parquet(tmp_path, "test.parquet")
    for split in ("train", "test", None):
        with pytest.raises(ValueError, match="mixes svmlight and Parquet"):
            load_letor(tmp_path, split=split)


def test_hidden_files_do_not_count(tmp_path):
    write(tmp_path, LINES, "train.txt")
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "__MACOSX" / "._train.txt").write_bytes(b"\0\5\26\7")
    assert letor_splits(tmp_path) == {"train": tmp_path / "train.txt"}


def test_folders_of_parquet_parts_count_as_files(tmp_path):
    for number, split in enumerate(("train", "test")):
        (tmp_path / f"{split}.parquet").mkdir()
        parquet(tmp_path / f"{split}.parquet", "part-00000.parquet", qid=[number] * 3)
        (tmp_path / f"{split}.parquet" / "_SUCCESS").touch()
    assert load_letor(tmp_path)["qid"].tolist() == [0, 0, 0, 1, 1, 1]
    assert load_letor(tmp_path / "test.parquet")["qid"].tolist() == [1, 1, 1]


def test_parquet_splits_may_name_their_grades_and_splits_differently(tmp_path):
    parquet(tmp_path, "train.parquet", split="train")
    test = pd.read_parquet(parquet(tmp_path, "test.parquet", qid=[8, 8, 9]))
    test.rename(columns={"label": "relevance"}).to_parquet(tmp_path / "test.parquet")
    documents = load_letor(tmp_path)
    assert documents["qid"].tolist() == [1, 1, 2, 8, 8, 9]
    assert documents["relevance"].notna().all()
    assert "split" not in documents


def test_empty_file_beside_a_file_with_ids(tmp_path):
    (tmp_path / "a.txt").write_text("1 qid:9 1:4 #docid = A\n")
    (tmp_path / "b.txt").write_text("")
    alone = load_letor(tmp_path / "a.txt")
    for names in ("ab", "ba"):
        found = load_letor([tmp_path / f"{name}.txt" for name in names])
        pd.testing.assert_frame_equal(found, alone)


def test_parquet_splits_with_other_columns_are_an_error(tmp_path):
    parquet(tmp_path, "train.parquet")
    parquet(tmp_path, "test.parquet", qid=[8, 8, 9], f9=1.0)
    with pytest.raises(ValueError, match=r"differ in their columns \['f9'\]"):
        load_letor(tmp_path)


# --------------------------------------------------------------------------------------
# Parquet
# --------------------------------------------------------------------------------------
def test_parquet_without_doc(tmp_path):
    documents = load_letor(parquet(tmp_path))
    assert list(documents.columns) == ["qid", "doc", "relevance", "f0"]
    assert documents["doc"].tolist() == [0, 1, 2]
    assert documents["relevance"].tolist() == [0, 2, 1]


def test_made_documents_survive_a_round_trip(tmp_path):
    documents = make_ltr(5, 4, 6, random_state=0)
    documents.to_parquet(tmp_path / "made.parquet")
    pd.testing.assert_frame_equal(load_letor(tmp_path / "made.parquet"), documents)


def test_unique_docs_are_kept(tmp_path):
    assert load_letor(parquet(tmp_path, doc=["a", "b", "c"]))["doc"].tolist() == ["a", "b", "c"]


def test_docs_that_recur_in_other_queries_are_kept(tmp_path):
    # The document of a row is the pair of query and id, as in a click log.
    assert load_letor(parquet(tmp_path, doc=[5, 6, 5]))["doc"].tolist() == [5, 6, 5]


def test_rows_of_one_pair_stay_apart(tmp_path):
    docs = load_letor(parquet(tmp_path, doc=["a", "a", "a"]))["doc"]
    assert docs.tolist() == ["a", "a/2", "a"]


def test_docs_that_collide_once_told_apart_are_an_error(tmp_path):
    path = parquet(tmp_path, qid=[1, 1, 1], doc=["a", "a", "a/2"])
    with pytest.raises(ValueError, match="'a/2' is taken"):
        load_letor(path)


@pytest.mark.parametrize(
    ("split", "rows"), [(None, [0, 1, 2]), ("a", [0, 2]), (["b", "a"], [0, 1, 2])]
)
def test_split_selects_rows_and_is_no_feature(tmp_path, split, rows):
    documents = load_letor(parquet(tmp_path, split=["a", "b", "a"]), split=split)
    assert "split" not in documents
    assert documents["f0"].tolist() == [[0.1, 0.2, 0.3][row] for row in rows]


def test_several_parquet_files(tmp_path):
    paths = [parquet(tmp_path), parquet(tmp_path, "more.pq", qid=[3, 3, 4])]
    assert load_letor(paths)["qid"].tolist() == [1, 1, 2, 3, 3, 4]
    with pytest.raises(ValueError, match="differ in their columns"):
        load_letor([paths[0], parquet(tmp_path, "other.pq", f9=1.0)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"f0": [1.0, np.inf, 2.0]}, "'f0' is infinite in 1 of 3 rows, first in row 1"),
        ({"f1": ["x", "y", "z"]}, "'f1' has type"),
        ({"label": [0, -1, 1]}, "label of row 1 is -1"),
        ({"label": [0, None, 1]}, "label of row 1 is nan"),
        ({"label": ["a", "b", "c"]}, "labels have type"),
        ({"qid": [1, None, 2]}, "qid is missing in 1 of 3"),
        ({"doc": ["a", None, "b"]}, "doc is missing in 1 of 3"),
        ({"relevance": [0, 1, 2]}, "mean the same"),
    ],
)
def test_bad_parquet(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        load_letor(parquet(tmp_path, **columns))


@pytest.mark.parametrize("name", ["qid", "label"])
def test_missing_column(tmp_path, name):
    path = parquet(tmp_path)
    pd.read_parquet(path).drop(columns=name).to_parquet(path)
    with pytest.raises(ValueError, match=f"no column '{name}'"):
        load_letor(path)


def test_bad_splits(tmp_path):
    with pytest.raises(ValueError, match=r"\['c'\] is not in the file, which has \['a', 'b'\]"):
        load_letor(parquet(tmp_path, split=["a", "b", "a"]), split="c")
    with pytest.raises(ValueError, match="no column 'split'"):
        load_letor(parquet(tmp_path), split="a")
    with pytest.raises(ValueError, match="not of an svmlight file"):
        load_letor(write(tmp_path, LINES), split="a")


def test_bad_paths(tmp_path):
    with pytest.raises(ValueError, match="neither a folder nor svmlight"):
        load_letor("clicks.csv")
    with pytest.raises(ValueError, match=r"^letr does not exist, and is neither"):
        load_letor("letr")
    with pytest.raises(ValueError, match="fold=1 selects files of a folder"):
        load_letor(write(tmp_path, LINES), fold=1)
    with pytest.raises(ValueError, match="mixes"):
        load_letor(["a.txt", "b.parquet"])
    with pytest.raises(ValueError, match="at least one path"):
        load_letor([])
    with pytest.raises(ValueError, match=r"n_features.* range \[1, 65535\]"):
        load_letor(write(tmp_path, LINES), n_features=10**9)
    with pytest.raises(ValueError, match="n_features= is for svmlight"):
        load_letor(parquet(tmp_path), n_features=3)
    for name in ("absent.txt", "absent.parquet"):
        with pytest.raises(FileNotFoundError):
            load_letor(tmp_path / name)


# --------------------------------------------------------------------------------------
# Real sets
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "n_rows", "n_queries", "n_features", "split"),
    [
        ("mq2008", 15_211, 784, 46, "S1"),
        ("mslr_sample", 17_869, 163, 136, "re_train"),
        ("clueweb09_webis", 26_646, 61, 42, "Fold1"),
        ("lightgbm_lambdarank", 3_773, 251, 300, "train"),
    ],
)
def test_real_sets(name, n_rows, n_queries, n_features, split):
    folder = os.environ.get("SKULTR_DATA")
    if not folder or not (path := Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"{name}.parquet is not in the folder that SKULTR_DATA names ({folder})")
    documents = load_letor(path)
    assert documents.shape == (n_rows, 3 + n_features)
    assert documents["qid"].nunique() == n_queries
    assert not documents.duplicated(["qid", "doc"]).any()
    assert 0 < len(load_letor(path, split=split)) < n_rows


def test_ten_parts_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2, 1, 11):
        write(tmp_path, f"1 qid:{number} 1:5\n", f"S{number}.txt")
    assert [*letor_splits(tmp_path)] == ["S1", "S2", "S10", "S11"]
    assert load_letor(tmp_path)["qid"].tolist() == [1, 2, 10, 11]
    with pytest.raises(ValueError, match="expected a path, or a list"):
        load_letor([3])


def test_parts_before_folds_are_read_by_their_names(tmp_path):
    for number in (2, 1):
        write(tmp_path, f"1 qid:{number} {number}:5\n", f"S{number}.txt")
    write(tmp_path, "A note, and no documents.", "README.txt")
    assert [*letor_splits(tmp_path)] == ["S1", "S2"]
    documents = load_letor(tmp_path)
    assert documents["qid"].tolist() == [1, 2]
    assert load_letor(tmp_path, split="S2").columns.tolist() == documents.columns.tolist()
    with pytest.raises(ValueError, match=r"holds the splits \['S1', 'S2'\]"):
        load_letor(tmp_path, split="train")
    (tmp_path / "Fold1").mkdir()
    write(tmp_path / "Fold1", "1 qid:1 1:5\n")
    assert [*letor_splits(tmp_path)] == ["train"]  # the folds are made of the parts
