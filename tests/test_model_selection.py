import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import cross_val_score

from skultr.model_selection import QueryKFold, QueryShuffleSplit, train_test_queries

SPLITTERS = [
    QueryKFold(3),
    QueryKFold(3, shuffle=True, random_state=0),
    QueryShuffleSplit(4, random_state=0),
]


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    qid = rng.choice([f"q{i}" for i in range(12)], 100)
    return pd.DataFrame({"qid": qid, "bm25": rng.standard_normal(100)})


def engines(frame):
    yield frame
    yield pytest.importorskip("polars").from_pandas(frame)
    yield pytest.importorskip("pyarrow").Table.from_pandas(frame)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_queries_are_never_cut(frame, splitter):
    for train, test in splitter.split(frame):
        assert not set(frame["qid"].iloc[train]) & set(frame["qid"].iloc[test])
        assert len(train) + len(test) == len(frame)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_one_split_whatever_holds_the_queries(frame, splitter):
    splits = [list(splitter.split(X)) for X in engines(frame)]
    matrix = frame[["bm25"]].to_numpy()
    splits.append(list(splitter.split(matrix, groups=frame["qid"])))
    splits.append(list(splitter.split(sparse.csr_array(matrix), qid=frame["qid"])))
    for other in splits:
        for (train, test), (train_0, test_0) in zip(other, splits[0], strict=True):
            assert_array_equal(train, train_0)
            assert_array_equal(test, test_0)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_row_order_is_irrelevant(frame, splitter):
    shuffled = frame.sample(frac=1, random_state=1)
    for (_, test), (_, other) in zip(splitter.split(frame), splitter.split(shuffled), strict=True):
        assert set(frame["qid"].iloc[test]) == set(shuffled["qid"].iloc[other])


@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_number_of_splits(frame, splitter):
    assert splitter.get_n_splits() == len(list(splitter.split(frame)))


def test_folds_are_balanced_by_rows():
    lengths = np.array([50, 20, 20, 10, 30, 20])
    frame = pd.DataFrame({"qid": np.repeat(np.arange(6), lengths)})
    assert [len(test) for _, test in QueryKFold(3).split(frame)] == [50, 50, 50]


def test_mixed_ids():
    frame = pd.DataFrame({"qid": [1, "a", (2, 3), 1]})
    tests = [test for _, test in QueryKFold(3).split(frame)]
    assert sorted(np.concatenate(tests)) == [0, 1, 2, 3]


@pytest.mark.parametrize("keyword", ["qid", "groups"])
@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_queries_are_routed_without_a_request(frame, splitter, keyword):
    X, y = frame[["bm25"]].to_numpy(), np.arange(100.0)
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            DummyRegressor(), X, y, cv=splitter, params={keyword: frame["qid"].to_numpy()}
        )
    assert_array_equal(scores, cross_val_score(DummyRegressor(), frame, y, cv=splitter))


@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_errors(splitter):
    with pytest.raises(ValueError, match="no column 'qid' and neither groups= nor qid="):
        next(splitter.split(np.zeros((4, 1))))
    with pytest.raises(ValueError, match="no rows"):
        next(splitter.split(pd.DataFrame({"qid": []})))
    with pytest.raises(ValueError, match="'qid' is missing in 1 row, first in row 2"):
        next(splitter.split(pd.DataFrame({"qid": ["a", "b", None, "c"]})))
    with pytest.raises(ValueError, match="Cannot split 1 quer"):
        next(splitter.split(pd.DataFrame({"qid": [1, 1, 1, 1]})))


def test_fewer_queries_than_folds():
    with pytest.raises(ValueError, match="Cannot split 2 queries into n_splits=3 folds"):
        next(QueryKFold(3).split(pd.DataFrame({"qid": [1, 2, 2]})))


# --------------------------------------------------------------------------------------
# train_test_queries
# --------------------------------------------------------------------------------------
def test_every_type_comes_back(frame):
    clicks = np.arange(100)
    for X in engines(frame):
        arrays = (clicks, X, list(clicks), sparse.csr_array(clicks[:, None]), X["bm25"])
        parts = train_test_queries(*arrays, random_state=0)
        assert [type(part) for part in parts] == [type(a) for a in arrays for _ in range(2)]
        train, test = parts[:2]
        assert sorted([*train, *test]) == list(clicks)
        assert_array_equal(parts[4], train)
        assert_array_equal(parts[7].toarray().ravel(), test)
        assert_array_equal(np.asarray(parts[2]["qid"]), frame["qid"].to_numpy()[train])
        assert_array_equal(np.asarray(parts[9]), frame["bm25"].to_numpy()[test])
        assert not set(frame["qid"][train]) & set(frame["qid"][test])


def test_sizes_count_queries(frame):
    _, test = train_test_queries(frame, random_state=0)
    assert test["qid"].nunique() == 12 / 4
    train, test = train_test_queries(frame, test_size=2, random_state=0)
    assert (train["qid"].nunique(), test["qid"].nunique()) == (10, 2)
    train, test = train_test_queries(frame, train_size=0.5, random_state=0)
    assert (train["qid"].nunique(), test["qid"].nunique()) == (6, 6)


def test_qid_keyword(frame):
    train, _ = train_test_queries(np.arange(100), qid=frame["qid"], random_state=0)
    same, _ = train_test_queries(frame, random_state=0)
    assert_array_equal(train, same.index)


def test_errors_of_train_test_queries(frame):
    with pytest.raises(ValueError, match="nothing to split"):
        train_test_queries()
    with pytest.raises(ValueError, match=r"\[100, 3\] rows"):
        train_test_queries(frame, [1, 2, 3])
    with pytest.raises(ValueError, match="no column 'qid'"):
        train_test_queries(np.zeros((4, 1)))
