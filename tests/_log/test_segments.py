import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skultr._log._segments import (
    encode,
    mix,
    offsets_from_sorted,
    pad,
    rank_in_segment,
    rectangles,
)


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


def test_mix_is_the_generator_of_steele_lea_and_flood_2014():
    states = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.lists(st.integers(0, 3)))
def test_offsets_from_sorted_are_runs(codes):
    codes = np.sort(np.array(codes, dtype=int))
    runs = [len(list(run)) for _, run in itertools.groupby(codes)]
    np.testing.assert_array_equal(np.diff(offsets_from_sorted(codes)), runs)


def test_rank_counts_from_one_and_keeps_ties_in_row_order():
    ranks = rank_in_segment(np.array([1, 0, 1, 0, 1]), np.array([5, 1, 7, 2, 5]))
    assert ranks.tolist() == [2, 2, 1, 1, 3]


def test_pad_marks_what_a_segment_lacks():
    offsets = np.array([0, 2, 2, 5])
    assert pad(offsets).tolist() == [[0, 1, -1], [-1, -1, -1], [2, 3, 4]]
    assert pad(offsets, 4).tolist() == [[0, 1, -1, -1], [-1] * 4, [2, 3, 4, -1]]
    assert pad(offsets, 1).tolist() == [[0], [-1], [2]]
    assert pad(np.array([0])).shape == (0, 0)


@given(st.lists(st.integers(0, 9)), st.integers(1, 40))
def test_rectangles_hold_each_row_once_and_are_at_least_half_full(lengths, max_cells):
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=int)])
    seen = []
    for segments, rows in rectangles(offsets, max_cells):
        assert rows.size <= max_cells or len(segments) == 1
        assert 2 * np.count_nonzero(rows >= 0) >= rows.size
        for segment, row in zip(segments, rows, strict=True):
            expected = np.arange(offsets[segment], offsets[segment + 1])
            assert row[: len(expected)].tolist() == expected.tolist()
            assert (row[len(expected) :] == -1).all()
        seen += segments.tolist()
    assert sorted(seen) == np.flatnonzero(lengths).tolist()


def test_flat_lists_need_no_torch():
    """Nor does this file with all that it imports."""
    code = (
        "import sys; import skultr._log._segments, tests._log.test_segments, tests.conftest; "
        "assert 'torch' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
