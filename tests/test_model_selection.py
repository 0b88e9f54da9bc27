import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import cross_val_score

from skultr.model_selection import (
    LayoutSplit,
    QueryKFold,
    QueryShuffleSplit,
    train_test_queries,
)

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
    yield pa.Table.from_pandas(frame)


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
# LayoutSplit
# --------------------------------------------------------------------------------------
LAYOUT_ROLES = ["qid", "session", "doc", "position"]
LAYOUT_SPLITTERS = [
    LayoutSplit(3, random_state=0),
    LayoutSplit(2, test_size=0.2, random_state=0),
    LayoutSplit(held_out="far"),
]


def pages(*layouts, qid="q", start=0):
    """Rows of result pages: each layout is the text of its documents, from the top down."""
    return pd.DataFrame(
        [
            {"qid": qid, "session": f"s{start + page}", "doc": doc, "position": position}
            for page, layout in enumerate(layouts)
            for position, doc in enumerate(layout, start=1)
        ]
    )


@pytest.fixture
def layout_log():
    rng = np.random.default_rng(0)
    parts = [
        pages(*rng.choice(["abcd", "abdc", "bacd", "dcbe"], 25), qid=f"q{q}", start=100 * q)
        for q in range(5)
    ]
    log = pd.concat([*parts, pages("ab", "ab", qid="alone", start=900)], ignore_index=True)
    return log.assign(bm25=rng.standard_normal(len(log)))


def layout_of_page(log):
    """Query and documents of each page, from the top down."""
    log = log.sort_values("position")
    return log.groupby("session").agg(qid=("qid", "first"), docs=("doc", "".join))


@pytest.mark.parametrize("splitter", LAYOUT_SPLITTERS, ids=repr)
def test_layouts_are_never_cut_and_both_sets_have_some(layout_log, splitter):
    splits = list(splitter.split(layout_log))
    assert len(splits) == splitter.get_n_splits()
    for train, test in splits:
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(layout_log)))
        known, new = (
            set(layout_of_page(layout_log.iloc[rows]).itertuples(index=False, name=None))
            for rows in (train, test)
        )
        assert not known & new
        assert {qid for qid, _ in new} == {f"q{q}" for q in range(5)}
        assert {qid for qid, _ in known} == {*(f"q{q}" for q in range(5)), "alone"}


@pytest.mark.parametrize("splitter", LAYOUT_SPLITTERS, ids=repr)
def test_one_layout_split_whatever_holds_the_log(layout_log, splitter):
    expected = list(splitter.split(layout_log))
    shuffled = layout_log.sample(frac=1, random_state=1)
    roles = {role: layout_log[role] for role in LAYOUT_ROLES}
    matrix = layout_log[["bm25"]].to_numpy()
    found = [list(splitter.split(X)) for X in engines(layout_log)]
    found.append(list(splitter.split(matrix, **roles)))
    found.append(list(splitter.split(sparse.csr_array(matrix), **roles)))
    for splits in found:
        for some, others in zip(splits, expected, strict=True):
            assert_array_equal(some[1], others[1])
    for (_, test), (_, other) in zip(expected, splitter.split(shuffled), strict=True):
        assert {*shuffled.index[other]} == {*test}


def test_far_layouts_are_held_out_first():
    log = pages(*["abcd"] * 6, *["abdc"] * 2, *["dcba"] * 2, *["abce"] * 2)
    expected = {"abcd": 0, "abdc": 2, "dcba": 8, "abce": 1}  # e came from below position 4
    by_distance = sorted(expected, key=expected.get)[::-1]
    for n_held_out, share in [(1, 0.1), (1, 0.24), (2, 0.26), (2, 0.4), (3, 0.42), (3, 0.99)]:
        splitter = LayoutSplit(test_size=share, held_out="far")
        ((_, test),) = splitter.split(log)
        assert {*layout_of_page(log.iloc[test])["docs"]} == {*by_distance[:n_held_out]}


def test_documents_that_are_new_come_from_below_the_last_position():
    """Two of them at the top moved by 4 + 3, more than the ends of a page that change places."""
    log = pages(*["abcd"] * 6, *["dbca"] * 2, *["xycd"] * 2)
    ((_, test),) = LayoutSplit(test_size=0.1, held_out="far").split(log)
    assert {*layout_of_page(log.iloc[test])["docs"]} == {"xycd"}


@pytest.mark.parametrize("usual", ["abc", "bac", "cab"])
def test_the_commonest_layout_is_not_the_farthest(usual):
    log = pages(*[usual] * 9, usual[:2])
    ((train, test),) = LayoutSplit(held_out="far").split(log)
    assert (len(train), len(test)) == (27, 2)


def test_pages_of_which_nothing_was_shown():
    with pytest.raises(ValueError, match="shown"):
        next(LayoutSplit(1).split(pages("ab", "ba").assign(position=np.nan)))


def test_pages_count_by_their_impressions_and_candidates_follow_their_page():
    log = pages("ab", "ba", "cb").assign(impressions=[1, 1, 9, 9, 2, 2])
    splitter = LayoutSplit(test_size=0.2, held_out="far")
    ((_, test),) = splitter.split(log)
    assert_array_equal(test, [4, 5])  # 3 away from the commonest, "ba"; "ab" is 2 away
    ((_, test),) = LayoutSplit(test_size=0.3, held_out="far").split(log)
    assert_array_equal(test, [0, 1, 4, 5])
    candidates = log.assign(doc=[*"uvwxyz"], position=np.nan)[::2]
    empty = log.assign(doc=[*"UVWXYZ"], position=np.nan, session="never shown")
    whole = pd.concat([log, candidates, empty], ignore_index=True)
    ((train, test),) = splitter.split(whole)
    assert_array_equal(test, [4, 5, 8])
    assert {*range(9, 15)} <= {*train}


def test_without_ids_documents_are_equal_features():
    log = pages(*["abcd"] * 6, *["abdc"] * 2, *["dcba"] * 2, *["abce"] * 2)
    features = log.assign(f=log["doc"].map(ord)).drop(columns="doc")
    splitter = LayoutSplit(held_out="far")
    ((_, test),), ((_, other),) = splitter.split(log), splitter.split(features)
    assert_array_equal(test, other)


def test_layouts_are_routed_without_a_request(layout_log):
    X, y, splitter = (
        layout_log[["bm25"]].to_numpy(),
        np.arange(len(layout_log)),
        LAYOUT_SPLITTERS[0],
    )
    with sklearn.config_context(enable_metadata_routing=True):
        params = {role: layout_log[role].to_numpy() for role in LAYOUT_ROLES}
        scores = cross_val_score(DummyRegressor(), X, y, cv=splitter, params=params)
    expected = cross_val_score(DummyRegressor(), layout_log, y, cv=splitter)
    assert_array_equal(scores, expected)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (pages("ab", "ab"), "Each of the 1 queries was shown in one layout"),
        (pages("a"), "Each of the 1 queries was shown in one layout"),
        (pages("ab", "ba").drop(columns="session"), "no column 'session' .*LayoutSplit needs it"),
        (pages("ab", "ba").drop(columns="qid"), "no column 'qid' .*LayoutSplit needs it"),
        (pages("ab", "ba").drop(columns="position"), "no column 'position' .*LayoutSplit needs"),
        (pages("ab", "ba").assign(doc=["a", None, "b", "a"]), "'doc' is missing in 1 row"),
    ],
)
def test_logs_without_layouts(log, message):
    with pytest.raises(ValueError, match=message):
        next(LayoutSplit().split(log))


@pytest.mark.parametrize(
    "settings", [{"n_splits": 0}, {"test_size": 1.0}, {"test_size": 0}, {"held_out": "near"}]
)
def test_parameters_of_layout_splits(settings):
    with pytest.raises(ValueError, match=f"The '{next(iter(settings))}' parameter of LayoutSplit"):
        LayoutSplit(**settings)


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
