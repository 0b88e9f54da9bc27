import itertools
from functools import partial
from math import log2

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import average_precision_score as sklearn_average_precision_score
from sklearn.metrics import dcg_score as sklearn_dcg_score
from sklearn.metrics import ndcg_score as sklearn_ndcg_score

from skultr.metrics import (
    average_precision_score,
    dcg_score,
    err_score,
    ndcg_score,
    precision_score,
    reciprocal_rank_score,
)
from tests._discovery import public_metrics

err_4 = partial(err_score, max_grade=4)
METRICS = {**public_metrics(), "err": err_4}
WITHOUT_DCG = {name: metric for name, metric in METRICS.items() if name != "dcg"}


def every(metrics):
    return pytest.mark.parametrize("metric", metrics.values(), ids=metrics.keys())


def one_query(metric, y_true, y_score, **options):
    return metric(y_true, y_score, qid=np.zeros(len(y_true), dtype=int), **options)


# Ranked: relevance 0, 2, 0, 1.
RELEVANCE, SCORES = [1, 2, 0, 0], [-4, 3, 9, 0.5]


@pytest.mark.parametrize(
    ("metric", "options", "expected"),
    [
        (dcg_score, {}, 3 / log2(3) + 1 / log2(5)),
        (dcg_score, {"k": 2}, 3 / log2(3)),
        (dcg_score, {"k": 1}, 0),
        (dcg_score, {"k": 99}, 3 / log2(3) + 1 / log2(5)),
        (dcg_score, {"gain": "linear"}, 2 / log2(3) + 1 / log2(5)),
        (ndcg_score, {}, (3 / log2(3) + 1 / log2(5)) / (3 / log2(2) + 1 / log2(3))),
        (ndcg_score, {"k": 3}, (3 / log2(3)) / (3 / log2(2) + 1 / log2(3))),
        (ndcg_score, {"k": 2, "gain": "linear"}, (2 / log2(3)) / (2 + 1 / log2(3))),
        (ndcg_score, {"k": 1}, 0),
        (err_score, {}, 3 / 4 / 2 + (1 - 3 / 4) * 1 / 4 / 4),
        (err_score, {"k": 2}, 3 / 4 / 2),
        (err_score, {"max_grade": 4}, 3 / 16 / 2 + (1 - 3 / 16) * 1 / 16 / 4),
        (average_precision_score, {}, (1 / 2 + 2 / 4) / 2),
        (average_precision_score, {"k": 3}, (1 / 2) / 2),
        (average_precision_score, {"threshold": 2}, 1 / 2),
        (reciprocal_rank_score, {}, 1 / 2),
        (reciprocal_rank_score, {"k": 1}, 0),
        (precision_score, {}, 2 / 4),
        (precision_score, {"k": 3}, 1 / 3),
        (precision_score, {"k": 8}, 2 / 8),
        (precision_score, {"k": 3, "threshold": 3, "no_relevant": 1}, 1),
    ],
)
@pytest.mark.parametrize("ties", ["average", "stable"])
def test_value(metric, options, expected, ties):
    assert_allclose(one_query(metric, RELEVANCE, SCORES, ties=ties, **options), expected)


@pytest.mark.parametrize(
    ("metric", "options", "average", "stable"),
    [
        # Relevance 2, 0 tied, then 1.
        (dcg_score, {}, 3 / 2 * (1 + 1 / log2(3)) + 1 / 2, 3 + 1 / 2),
        (dcg_score, {"k": 1}, 3 / 2, 3),
        (err_score, {}, 3 / 4 * (1 + 1 / 2) / 2 + 1 / 4 / 4 / 3, 3 / 4 + 1 / 4 / 4 / 3),
        (average_precision_score, {}, ((1 + 1 / 2) / 2 + 2 / 3) / 2, (1 + 2 / 3) / 2),
        (reciprocal_rank_score, {}, (1 + 1 / 2) / 2, 1),
        (reciprocal_rank_score, {"k": 1}, 1 / 2, 1),
        (precision_score, {"k": 1}, 1 / 2, 1),
        (precision_score, {"k": 2}, 1 / 2, 1 / 2),
    ],
)
def test_ties(metric, options, average, stable):
    assert_allclose(one_query(metric, [2, 0, 1], [1, 1, 0], **options), average)
    assert_allclose(one_query(metric, [2, 0, 1], [1, 1, 0], ties="stable", **options), stable)


@every(METRICS)
@given(
    relevance=arrays(int, 4, elements=st.integers(0, 4)),
    scores=arrays(int, 4, elements=st.integers(0, 2)),
    k=st.sampled_from([1, 2, 3, 4, 9]),
)
@settings(max_examples=40, deadline=None)
def test_average_ties_are_the_mean_over_all_orders(metric, relevance, scores, k):
    values = [
        one_query(metric, relevance[order], scores[order], ties="stable", k=k, no_relevant=0)
        if metric is not dcg_score
        else one_query(metric, relevance[order], scores[order], ties="stable", k=k)
        for order in map(list, itertools.permutations(range(4)))
    ]
    options = {} if metric is dcg_score else {"no_relevant": 0}
    found = one_query(metric, relevance, scores, k=k, **options)
    assert_allclose(found, np.mean(values), atol=1e-12)


@every(METRICS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_row_order_is_irrelevant(metric, seed):
    rng = np.random.default_rng(seed)
    qid = rng.integers(0, 6, 40)
    relevance, scores = rng.integers(0, 5, 40), rng.integers(0, 4, 40)
    relevance[0] = 4
    order = rng.permutation(40)
    expected = metric(relevance, scores, qid=qid, k=[1, 3, 50], per_query=True)
    found = metric(relevance[order], scores[order], qid=qid[order], k=[1, 3, 50], per_query=True)
    pd.testing.assert_frame_equal(found, expected)


@every(METRICS)
def test_lists_of_many_lengths_equal_their_own_values(metric):
    rng = np.random.default_rng(0)
    lengths = np.array([1, 1, 2, 3, 7, 64, 65, 300])
    qid = rng.permutation(np.repeat(np.arange(len(lengths)), lengths))
    relevance = rng.integers(0, 5, len(qid))
    scores = rng.choice([-np.inf, 0, 1, 2.5, 7], len(qid))
    table = metric(relevance, scores, qid=qid, k=5, per_query=True)
    assert table["n_documents"].tolist() == lengths.tolist()
    for query in np.flatnonzero(table.iloc[:, 0].notna()):
        rows = qid == query
        assert_allclose(
            one_query(metric, relevance[rows], scores[rows], k=5), table.iloc[query, 0]
        )


@every(METRICS)
@pytest.mark.parametrize("ids", [["b", "a"], [2, 1], [(2, "x"), (1, "y")], [3, "a"]])
def test_any_interleaved_ids(metric, ids):
    qid = np.empty(4, dtype=object)
    qid[:] = [ids[0], ids[1], ids[0], ids[1]]
    table = metric([1, 0, 0, 2], [1, 2, 0, 1], qid=qid, per_query=True)
    first = one_query(metric, [1, 0], [1, 0])
    second = one_query(metric, [0, 2], [2, 1])
    found = dict(zip(table.index, table.iloc[:, 0], strict=True))
    assert_allclose([found[ids[0]], found[ids[1]]], [first, second])
    assert_allclose(metric([1, 0, 0, 2], [1, 2, 0, 1], qid=qid), (first + second) / 2)


@every(WITHOUT_DCG)
def test_no_relevant(metric):
    y_true, y_score, qid = [1, 0, 0], [1, 2, 3], ["a", "b", "b"]
    value = metric([1], [1], qid=["a"])
    assert_allclose(metric(y_true, y_score, qid=qid), value)
    assert_allclose(metric(y_true, y_score, qid=qid, no_relevant=0), value / 2)
    assert_allclose(metric(y_true, y_score, qid=qid, no_relevant=1), (value + 1) / 2)
    table = metric(y_true, y_score, qid=qid, per_query=True)
    assert table.iloc[:, 0].isna().tolist() == [False, True]


@every(WITHOUT_DCG)
def test_all_skipped_is_nan_with_a_reason(metric):
    with pytest.warns(UndefinedMetricWarning, match="none of the 2 queries has a relevant"):
        assert np.isnan(metric([0, 0], [1, 2], qid=[1, 2]))
    assert metric([0, 0], [1, 2], qid=[1, 2], no_relevant=0) == 0


def test_dcg_counts_queries_without_a_relevant_document():
    assert dcg_score([1, 0], [1, 1], qid=[1, 2]) == 1 / 2


@every(METRICS)
def test_single_documents(metric):
    expected = {dcg_score: 15, err_4: 15 / 16}.get(metric, 1)
    found = metric([4, 4], [0, 1], qid=[1, 2])
    # A metric whose best value is not 1 is named above, with its value for a document of grade 4.
    assert_allclose(found, expected, err_msg="add the value of one document to `expected`")


@every(METRICS)
def test_shape_of_the_answer(metric):
    y_true, y_score, qid = [1, 0, 2], [1, 2, 3], [1, 1, 2]
    assert type(metric(y_true, y_score, qid=qid, k=2)) is float
    values = metric(y_true, y_score, qid=qid, k=[1, 2])
    assert values.shape == (2,)
    assert values[1] == metric(y_true, y_score, qid=qid, k=2)
    table = metric(y_true, y_score, qid=qid, k=[1, 2], per_query=True)
    assert [name.split("@")[-1] for name in table.columns] == ["1", "2", "n_documents"]
    assert table.index.name == "qid"
    assert metric(y_true, y_score, qid=qid, per_query=True).shape == (2, 2)


@every(METRICS)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_of_frames(metric, library):
    data = {"y": [1, 0, 2], "s": [1.0, 2.0, 3.0], "q": ["b", "b", "a"]}
    frame = {"pandas": pd.DataFrame, "polars": "DataFrame", "pyarrow": "table"}[library]
    if isinstance(frame, str):
        frame = getattr(pytest.importorskip(library), frame)
    frame = frame(data)
    expected = metric(data["y"], data["s"], qid=data["q"])
    assert metric(frame["y"], frame["s"], qid=frame["q"]) == expected


# --------------------------------------------------------------------------------------
# Against others
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [None, 1, 5, 99])
def test_agrees_with_scikit_learn(k):
    rng = np.random.default_rng(0)
    relevance, scores = rng.integers(0, 5, (30, 20)), rng.integers(0, 8, (30, 20))
    qid = np.repeat(np.arange(30), 20)
    for own, other in ((ndcg_score, sklearn_ndcg_score), (dcg_score, sklearn_dcg_score)):
        found = own(relevance.ravel(), scores.ravel(), qid=qid, k=k, gain="linear")
        assert_allclose(found, other(relevance, scores, k=k))


def test_average_precision_agrees_with_scikit_learn_without_ties():
    rng = np.random.default_rng(0)
    relevant, scores = rng.integers(0, 2, 50), rng.standard_normal(50)
    expected = sklearn_average_precision_score(relevant, scores)
    assert_allclose(one_query(average_precision_score, relevant, scores), expected)


@pytest.mark.parametrize(
    ("metric", "options", "name"),
    [
        (ndcg_score, {"k": 5}, "ndcg_burges@5"),
        (ndcg_score, {"k": 5, "gain": "linear"}, "ndcg@5"),
        (average_precision_score, {}, "map"),
        (average_precision_score, {"k": 5}, "map@5"),
        (reciprocal_rank_score, {}, "mrr"),
        (reciprocal_rank_score, {"k": 2}, "mrr@2"),
        (precision_score, {"k": 5}, "precision@5"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_ranx(metric, options, name):
    ranx = pytest.importorskip("ranx")
    rng = np.random.default_rng(0)
    relevance, scores = rng.integers(0, 4, (6, 12)), rng.standard_normal((6, 12))
    relevance[:, 0] = 1

    def as_dict(values):
        return {
            f"q{q}": {f"d{d}": value.item() for d, value in enumerate(row)}
            for q, row in enumerate(values)
        }

    qrels = {
        query: {doc: grade for doc, grade in docs.items() if grade}
        for query, docs in as_dict(relevance).items()
    }
    expected = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(as_dict(scores)), name)
    found = metric(relevance.ravel(), scores.ravel(), qid=np.repeat(np.arange(6), 12), **options)
    assert_allclose(found, expected, rtol=1e-6)


def test_err_against_the_definition():
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, 12)
    expected, survival = 0, 1
    for rank, grade in enumerate(grades, start=1):
        stop = (2**grade - 1) / 2**3
        expected += survival * stop / rank
        survival *= 1 - stop
    assert_allclose(one_query(err_score, grades, -np.arange(12), max_grade=3), expected)


# --------------------------------------------------------------------------------------
# Laws
# --------------------------------------------------------------------------------------
def test_long_runs_of_ties_stay_exact():
    # One relevant among 2000 tied: its rank is uniform.
    relevance = np.zeros(2000)
    relevance[7] = 1
    expected = np.mean(1 / np.arange(1, 2001))
    for metric in (reciprocal_rank_score, average_precision_score):
        assert_allclose(one_query(metric, relevance, np.zeros(2000)), expected)
    assert_allclose(
        one_query(reciprocal_rank_score, relevance, np.zeros(2000), k=10),
        np.sum(1 / np.arange(1, 11)) / 2000,
    )


@every(METRICS)
def test_ideal_order_is_best(metric):
    rng = np.random.default_rng(0)
    relevance = rng.integers(0, 5, 60)
    qid = np.arange(60) % 4
    best = metric(relevance, relevance, qid=qid, k=5)
    for _ in range(5):
        assert metric(relevance, rng.standard_normal(60), qid=qid, k=5) <= best + 1e-12


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float32])
@every(METRICS)
def test_types_of_numbers(metric, dtype):
    relevance, scores = np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0])
    expected = one_query(metric, relevance, scores)
    assert_allclose(one_query(metric, relevance.astype(dtype), scores.astype(dtype)), expected)


# --------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------
@every(METRICS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_true": [1, np.nan]}, "y_true contains NaN in 1 of 2 rows.*not annotated. Drop"),
        ({"y_true": [1, None]}, "y_true contains NaN"),
        ({"y_true": [1, -1]}, r"at least 0; it is not in 1 of 2 rows, first -1 in row 1"),
        ({"y_true": [1, np.inf]}, "must be finite"),
        ({"y_true": ["good", "bad"]}, "y_true must hold numbers"),
        ({"y_score": [np.nan, 1]}, "y_score contains NaN in 1 of 2 rows, first in row 0"),
        ({"y_score": [1, 2, 3]}, r"of one length.*y_score \(3,\)"),
        ({"qid": [1]}, r"of one length.*qid \(1,\)"),
        ({"qid": ["a", None]}, "qid is missing in 1 of 2 rows, first in row 1"),
        ({"y_score": [[1, 2]]}, "must be flat"),
        ({"y_true": [], "y_score": [], "qid": []}, "empty"),
        ({"k": 0}, "'k' parameter"),
        ({"k": [1, 0]}, "k holds 0; expected whole numbers of at least 1"),
        ({"k": []}, "empty list"),
        ({"ties": "random"}, "'ties' parameter"),
    ],
)
def test_errors(metric, changes, message):
    arguments = {"y_true": [1, 0], "y_score": [1, 2], "qid": [1, 1]} | changes
    with pytest.raises(ValueError, match=message):
        metric(**arguments)


def test_errors_of_single_metrics():
    for too_large in (1_001, 5_000):
        with pytest.raises(ValueError, match="too large for the exponential gain"):
            one_query(ndcg_score, [too_large, 0], [1, 2])
    assert one_query(ndcg_score, [1_000, 0], [2, 1]) == 1
    assert one_query(ndcg_score, [5000, 0], [2, 1], gain="linear") == 1
    with pytest.raises(ValueError, match="above max_grade=2"):
        one_query(err_score, [3, 0], [1, 2], max_grade=2)
    with pytest.raises(ValueError, match="'no_relevant' parameter"):
        one_query(ndcg_score, [1, 0], [1, 2], no_relevant=2)


@pytest.mark.parametrize("metric", [ndcg_score, dcg_score, average_precision_score, err_score])
def test_a_score_of_minus_infinity_does_not_tie_with_the_end_of_a_list(metric):
    """Shorter lists are filled up to the longest."""
    options = {"max_grade": 1} if metric is err_score else {}
    alone = metric([0, 1], [0.0, -np.inf], qid=[1, 1], **options)
    beside = metric(
        [0, 1, *[1] * 4],
        [0.0, -np.inf, *range(4)],
        qid=[1, 1, *[2] * 4],
        per_query=True,
        **options,
    )
    assert beside.iloc[0, 0] == pytest.approx(alone)
