"""Requests of one type of numbers are read at once, and give what any other way gives."""

import numpy as np
import pandas as pd
import pytest

from skultr._log import _roles
from skultr._log._roles import read_values

NUMBERS = np.array([[1.5, 2.0], [np.nan, -4.0], [3.0, 1e-3]])
CODES = pd.Categorical([7, 8, 7])
FRAMES = {
    "floats": pd.DataFrame(NUMBERS, columns=["a", "b"]),
    "float32": pd.DataFrame(NUMBERS.astype(np.float32), columns=["a", "b"]),
    "integers": pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}),
    "roles": pd.DataFrame({"qid": ["x", "y", "z"], "a": [1.0, 2.0, 3.0], "outcome_c": 1}),
    "two types": pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
    "flags": pd.DataFrame({"a": [True, False, True], "b": [0.5, 1.5, 2.5]}),
    "missing": pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
    "no rows": pd.DataFrame({"a": [1.0]})[:0],
}


@pytest.mark.parametrize("frame", FRAMES)
def test_the_same_values_either_way(frame, monkeypatch):
    X = FRAMES[frame]
    found = read_values(X)
    monkeypatch.setattr(_roles, "_SMALL", -1)
    expected = read_values(X)
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.values.dtype == np.float32
    assert found.values.flags.c_contiguous
    assert found.names == expected.names
    assert found.categories == expected.categories == {}


def test_values_are_a_copy():
    X = pd.DataFrame(NUMBERS.astype(np.float32), columns=["a", "b"])
    read_values(X).values[:] = 0
    np.testing.assert_array_equal(X, NUMBERS.astype(np.float32))


@pytest.mark.parametrize("more", [{}, {"b": [1, 2, 3]}, {"b": [0.5, 1.5, 2.5]}])
def test_categories_that_are_numbers_stay_categories(more):
    X = pd.DataFrame({"a": CODES, **more})
    assert read_values(X, "categories").categories == {"a": [7, 8]}
    with pytest.raises(ValueError, match="'a'"):
        read_values(X, "categories", {})  # a fit found none


def test_infinite_and_missing_values_are_refused():
    X = FRAMES["floats"]
    with pytest.raises(ValueError, match=r"infinity.*'b', row 1"):
        read_values(X.assign(b=[0, 1e300, 0.0]))
    with pytest.raises(ValueError, match="'a'"):
        read_values(X, why_no_missing="This takes no missing values")
