import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from skultr._log._offsets import find_offsets, take_off
from skultr.exceptions import ClickDataWarning
from skultr.rankers import HeckmanRanker, IPSRanker, LambdaMARTRanker

from .._worlds import top_k_log

CONTAINERS = {
    "pandas": lambda values: pd.DataFrame(values, columns=["a", "b"]),
    "polars": lambda values: pl.DataFrame({"a": values[:, 0], "b": values[:, 1]}),
    "array": np.asarray,
    "sparse": sparse.csr_matrix,
}


def without_offsets(X):
    features = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float32)
    return take_off(find_offsets(X, features), X, features)


@pytest.mark.parametrize("container", CONTAINERS)
def test_offsets_are_taken_off_before_rounding(container):
    values = np.array([[1e9 + 0.25, 3.0], [1e9 + 0.5, 700.0], [1e9 + 1.25, -2.0]])
    found = without_offsets(CONTAINERS[container](values))
    np.testing.assert_allclose(found[:, 0] - found[0, 0], [0, 0.25, 1.0])
    assert abs(found[0, 0]) < 0.01
    np.testing.assert_array_equal(found[:, 1], np.float32(values[:, 1]))


def test_columns_without_an_offset_keep_their_bits():
    """Range of a hundredth of the value or more, or both signs, or constant, or with a zero."""
    X = np.column_stack([[100.0, 101.1], [-1e-9, 1e-9], [7e8, 7e8], [0.0, 1e9], [0.0, 1e-3]])
    features = X.astype(np.float32)
    assert take_off(find_offsets(X, features), X, features) is features


def test_the_smallest_value_becomes_nearly_zero():
    X = np.array([[-5e6], [-5e6 + 3.0]])
    found = without_offsets(X)
    assert abs(found[0, 0]) <= 3.0 / 1024
    assert found[1, 0] - found[0, 0] == pytest.approx(3.0, abs=1e-6)


def test_rows_that_repeat_do_not_move_an_offset():
    X = 1e8 + np.random.default_rng(0).normal(size=(50, 1))
    again = np.concatenate([X[::-1], X, X])
    np.testing.assert_array_equal(without_offsets(again)[-50:], without_offsets(X))


def test_a_column_that_float64_cannot_tell_apart_warns():
    X = pd.DataFrame({"id": [2**62, 2**62 + 1, 2**62 + 2]})
    with pytest.warns(ClickDataWarning, match="Feature 0 varies"):
        assert not len(find_offsets(X, X.to_numpy().astype(np.float32)).columns)


@pytest.mark.parametrize(
    "ranker",
    [
        IPSRanker(max_epochs=3, random_state=0),
        LambdaMARTRanker(debiasing="user-aware", clip=None, n_estimators=10, random_state=0),
        HeckmanRanker(debias=True, hidden_layer_sizes=()),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_rankers_see_through_an_offset(ranker):
    documents, log, clicks, curve = top_k_log(n_queries=40)
    ranker.set_params(propensity=curve)
    features = [name for name in documents if name.startswith("feature")]
    scores = []
    for shift in (0.0, 2.0**29):  # a power of two, so that float64 loses little
        # Of one size, so that rounding leaves no feature constant.
        values = (documents[features] / documents[features].std()).astype(float).round(4)
        # Features that begin at 0 before the shift: after it, their smallest value is taken off.
        moved = documents.assign(**(values - values.min() + 1e-9 + shift))
        X = log.drop(columns=features).merge(moved[["doc", *features]], on="doc")
        assert (X["doc"].to_numpy() == log["doc"].to_numpy()).all()
        scores.append(ranker.fit(X, clicks).predict(moved))
    assert np.corrcoef(*scores)[0, 1] > 0.9
    assert len(ranker._offsets.columns) == len(features)
