import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skultr._log._segments import encode, offsets_from_sorted, rank_in_segment


@pytest.mark.parametrize(
    ("ids", "codes", "uniques"),
    [
        ([3, 1, 3, 2], [2, 0, 2, 1], [1, 2, 3]),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        ([2.5, -1.0], [1, 0], [-1.0, 2.5]),
        ([], [], []),
    ],
)
def test_encode_sorts_ids(ids, codes, uniques):
    got, ids = encode(np.array(ids))
    assert got.tolist() == codes
    assert ids.tolist() == uniques


def test_encode_takes_ids_of_mixed_types():
    ids = np.empty(5, dtype=object)
    ids[:] = ["1", 1, ("a", 2), "a", 1]
    codes, uniques = encode(ids)
    assert [uniques[code] for code in codes] == ids.tolist()


@given(st.lists(st.integers(0, 3)))
def test_offsets_from_sorted_are_runs(codes):
    codes = np.sort(np.array(codes, dtype=int))
    runs = [len(list(run)) for _, run in itertools.groupby(codes)]
    np.testing.assert_array_equal(np.diff(offsets_from_sorted(codes)), runs)


def test_rank_counts_from_one_and_keeps_ties_in_row_order():
    ranks = rank_in_segment(np.array([1, 0, 1, 0, 1]), np.array([5, 1, 7, 2, 5]))
    assert ranks.tolist() == [2, 2, 1, 1, 3]
