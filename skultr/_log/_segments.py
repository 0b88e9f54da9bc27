"""Flat lists, rows of many lists (or queries) laid end to end in one array, and hashes of rows.

Conventions, decided here once:

- A *segment* is a run of rows with one code; ``offsets`` of shape (n_segments + 1,) says where
  each begins, so that segment ``i`` is ``rows[offsets[i]:offsets[i + 1]]``.
- Positions and ranks count from 1.
- Ties keep the order of the rows (stable sort).
- An empty segment has no rank.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Bools, Floats, Ints

#: Replaces 0 as a divisor or in a logarithm: smaller than any weight, with a finite inverse.
TINY = 1e-300
#: Largest relative error of a number of clicks that was divided and multiplied again.
ROUNDING = 1e-15


def as_array(values: Any) -> NDArray[Any]:
    """An array of one value per row; a plain list keeps its values as they are.

    NumPy would turn ``[1, "1"]`` into two equal strings, and tuples into columns. Masked values
    become missing, and numbers get the byte order of the machine.
    """
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind in "iuf":
            values = values.astype(float).filled(np.nan)
        else:
            values = values.astype(object).filled(None)
    if not (hasattr(values, "dtype") or hasattr(values, "__array__")):
        return pd.Series(values).to_numpy()
    values = np.asarray(values)
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def as_index_values(values: NDArray[Any]) -> NDArray[Any]:
    """The values in a type of which pandas has an index: it has none of half precision."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


def whole_if_close(clicks: Floats) -> Floats:
    """Numbers of clicks, whole where they are so up to the rounding of a rate."""
    # A rate times its impressions is 2.9999999999999996 where three clicks were divided. With
    # whole numbers, sums do not depend on their order, and counted logs give what raw logs give.
    whole = np.rint(clicks)
    if (whole == clicks).all():
        return clicks
    is_close = np.abs(clicks - whole) <= ROUNDING * clicks
    return np.where(is_close, whole, clicks)


def encode(ids: NDArray[Any], what: str = "A column of ids") -> tuple[Ints, NDArray[Any]]:
    """Codes of ids, in the sorted order of the ids; ``what`` they are, for the error.

    Sorted order (not order of appearance) makes all that is computed from the codes independent
    of the order of the rows. Ids of mixed types are ordered by type name, then by text.
    """
    ids = as_index_values(np.asarray(ids))
    if ids.dtype.kind in "iu" and len(ids):
        low = int(ids.min())
        high = int(ids.max())
        # A table is quicker than hashing, if it is short: up to a few entries per id, and up to
        # two million (which a cache holds) also with more of them.
        n_large = min(32 * len(ids), 1 << 21)
        longest = max(4 * len(ids), n_large) + 1024
        if high - low <= longest:
            return _encode_narrow(ids, low, high)
    with naming_ids(what, ids):
        codes, uniques = pd.factorize(ids, use_na_sentinel=False)
    # pandas codes ids in the order in which it meets them.
    order = sorting_order(uniques)
    new_code = np.empty(len(order), dtype=np.intp)
    new_code[order] = np.arange(len(order))
    return new_code[codes], np.asarray(uniques)[order]


@contextmanager
def naming_ids(what: str, ids: Sequence[Any]) -> Iterator[None]:
    """Context in which an id that has no hash is an error that shows it."""
    try:
        yield
    except TypeError as error:
        example = next((value for value in ids if not _is_hashable(value)), ids[0])
        raise ValueError(
            f"{what} holds values that cannot be ids, such as {example!r} ({error}); expected "
            "numbers, text or other hashable values. Write them as text, or number them."
        ) from error


def _is_hashable(value):
    """Whether a value has a hash; a tuple has one only if its parts do."""
    if isinstance(value, tuple):
        return all(map(_is_hashable, value))
    return isinstance(value, Hashable)


def _encode_narrow(ids, low, high):
    """Codes of integers between two numbers, by a table instead of hashes."""
    low = ids.dtype.type(low)
    # Modulo the width of the type, so that no difference overflows.
    unsigned = f"u{ids.dtype.itemsize}"
    offset = (ids - low).view(unsigned).astype(np.intp)
    used = np.zeros(high - low + 1, dtype=bool)
    used[offset] = True
    code = np.cumsum(used, dtype=np.intp) - 1
    values = np.flatnonzero(used).astype(ids.dtype) + low
    return code[offset], values


def repeated(key: Ints) -> Bools:
    """True for a row whose key occurs in an earlier row."""
    # That no key recurs, as in most logs, a table tells much faster than hashing, if it is short.
    is_short = key.max(initial=0) < 4 * len(key) + 1_000_000
    if is_short and np.bincount(key).max(initial=0) <= 1:
        return np.zeros(len(key), dtype=bool)
    return pd.Series(key).duplicated().to_numpy()


def rows_where(mask: Bools) -> slice | Ints:
    """Index of the rows where a mask is True: a slice, which copies nothing, if all are."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def pair_codes(first: Ints, second: Ints, n_second: int) -> NDArray[np.int64]:
    """One code per pair of codes, in 64 bits: a product of narrow codes may exceed theirs."""
    return np.asarray(first, dtype=np.int64) * n_second + second


def equal_keys(keys: Sequence[NDArray[Any]]) -> tuple[Ints, Ints]:
    """Code of the keys of each row, the last one sorted by first, and the first row of each."""
    order = np.lexsort(keys)
    # Equal keys are neighbours: a code begins where one of the keys changes.
    this = order[1:]
    before = order[:-1]
    changes = [key[this] != key[before] for key in keys]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = np.any(changes, axis=0)
    codes = np.empty(len(order), dtype=np.intp)
    # In the order of the rows, not of the keys.
    codes[order] = np.cumsum(begins) - 1
    return codes, order[begins]


def sorting_order(ids: Any) -> Ints:
    """The order that sorts distinct ids; ids of mixed types by type name, then by text."""
    if ids.dtype != object:
        return np.argsort(ids, kind="stable")
    values = ids.tolist()
    try:
        # Much quicker on text than NumPy.
        order = sorted(range(len(values)), key=values.__getitem__)
    except TypeError:  # mixed types have no order
        keys = [(type(value).__name__, str(value)) for value in values]
        order = sorted(range(len(keys)), key=keys.__getitem__)
    return np.array(order, dtype=np.intp)


def offsets_from_counts(counts: NDArray[Any]) -> Ints:
    """Offsets of segments of the given lengths, shape (n_segments + 1,)."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def offsets_from_sorted(codes: NDArray[Any]) -> Ints:
    """Offsets of the runs of equal values in an array whose equal values are adjacent."""
    codes = np.asarray(codes)
    if not len(codes):
        return np.zeros(1, dtype=np.int64)
    starts = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    return np.concatenate(([0], starts, [len(codes)])).astype(np.int64)


def largest_by_code(codes: Ints, values: Floats, n_codes: int) -> Floats:
    """Largest value of each code, at least 0, shape (n_codes,)."""
    largest = np.zeros(n_codes)
    np.maximum.at(largest, codes, values)
    return largest


def sort_in_segment(codes: NDArray[Any], scores: NDArray[Any]) -> Ints:
    """Row order that sorts by segment, then by falling score; ties keep the order of the rows."""
    return np.lexsort((-np.asarray(scores), codes))


def rank_in_segment(codes: NDArray[Any], scores: NDArray[Any]) -> Ints:
    """Rank (from 1) of each row in its segment by falling score; ties by row order."""
    order = sort_in_segment(codes, scores)
    offsets = offsets_from_sorted(np.asarray(codes)[order])
    first = np.repeat(offsets[:-1], np.diff(offsets))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - first + 1
    return ranks


def pad(offsets: Ints, width: int | None = None) -> Ints:
    """Row numbers of each segment as a rectangle, -1 where a segment is shorter."""
    lengths = np.diff(offsets)
    if width is None:
        width = int(lengths.max(initial=0))
    column = np.arange(width)
    rows = offsets[:-1, None] + column
    return np.where(column < lengths[:, None], rows, -1)


def rectangles(offsets: Ints, max_cells: int = 1 << 19) -> Iterator[tuple[Ints, Ints]]:
    """Segments by similar length, as rectangles of row numbers: dense work in bounded memory."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    # Similar lengths together: rectangles have few empty cells.
    lengths = lengths[order]
    first = int(np.searchsorted(lengths, 1))  # empty segments have no rectangle
    while first < len(order):
        # Up to twice the length of the shortest, and no more segments than fit.
        last = int(np.searchsorted(lengths, 2 * lengths[first], side="right"))
        n_that_fit = max(1, max_cells // int(lengths[last - 1]))
        last = min(last, first + n_that_fit)
        column = np.arange(lengths[last - 1])
        segments = order[first:last]
        rows = offsets[segments, None] + column
        rows[column >= lengths[first:last, None]] = -1
        yield segments, rows
        first = last


# Hashes of rows, by the 64-bit finaliser of SplitMix (Steele, Lea & Flood 2014) -------
#: Rows that are hashed at a time, so that they stay in a processor's cache.
_ROWS = 1 << 14


def equal_rows(features: NDArray[Any]) -> tuple[Ints, Ints]:
    """Code of each row, in an order that depends on the values alone, and its first row."""
    # With 128 bits, two of a billion different vectors collide with probability below 1e-20.
    return equal_keys(row_hashes(features))


def row_hashes(features: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Two hashes of each row, shape (2, n_rows); rows with equal features have equal hashes."""
    hashes = np.zeros((2, len(features)), dtype=np.uint64)
    for start in range(0, len(features), _ROWS):
        rows = slice(start, start + _ROWS)
        _hash_rows(features[rows], hashes[:, rows])
    return hashes


def sums_of_rows(features: NDArray[np.float32]) -> NDArray[np.uint64]:
    """One number per row, equal for equal rows and nearly always different for others."""
    # In a hundredth of the time of ``equal_rows`` on few rows; equal numbers must be compared.
    numbers = np.arange(1, features.shape[1] + 1, dtype=np.uint64)
    # Odd factors: modulo 2^64, each feature alone can then be told from the sum.
    factors = mix(numbers) | np.uint64(1)
    sums = np.empty(len(features), dtype=np.uint64)
    for start in range(0, len(features), _ROWS):
        rows = slice(start, start + _ROWS)
        sums[rows] = _bits(features[rows]) @ factors
    return sums


def _bits(features: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Bits of numbers, equal for -0.0 and 0.0 and for all kinds of NaN."""
    values = features + np.float32(0)  # -0.0 + 0.0 is 0.0
    # There are many bit patterns of NaN.
    missing = np.isnan(values)
    if missing.any():
        values[missing] = np.nan
    return values.view(np.uint32)


def _hash_rows(features, hashes):
    """Set two hashes of each row, shape (2, n_rows)."""
    columns = _bits(np.ascontiguousarray(features.T))
    bits = np.empty(len(features), dtype=np.uint64)
    memory = np.empty_like(hashes)
    for number, column in enumerate(columns, start=1):
        bits[:] = column
        hashes[0] ^= bits
        # The second hash differs from the first one in how a feature enters.
        bits += np.uint64(number)
        hashes[1] += bits
        _mix_in_place(hashes, memory)


def match_rows(known: NDArray[Any], rows: NDArray[Any]) -> tuple[Ints, Ints]:
    """Place of the first row of ``known`` that equals each of ``rows``, -1 if there is none, and
    how many of ``known`` do."""
    n_known = len(known)
    codes, first = equal_rows(np.concatenate([known, rows]))
    place = np.where(first < n_known, first, -1)
    n_equal = np.bincount(codes[:n_known], minlength=len(first))
    codes_of_rows = codes[n_known:]
    return place[codes_of_rows], n_equal[codes_of_rows]


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix's finaliser of an array of uint64: every input bit affects every output bit."""
    value = value.copy()
    _mix_in_place(value, np.empty_like(value))
    return value


def _mix_in_place(value, memory):
    # Shifts and factors are those of the paper.
    value += np.uint64(0x9E3779B97F4A7C15)
    value ^= np.right_shift(value, np.uint64(30), out=memory)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= np.right_shift(value, np.uint64(27), out=memory)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= np.right_shift(value, np.uint64(31), out=memory)


def hash_columns(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """One uint64 per row from integer columns of equal length; the order of columns matters."""
    value = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = np.asarray(column).astype(np.int64, copy=False).view(np.uint64)
        value = mix(value ^ bits)
    return value


def equal_columns(features: NDArray[Any], y: NDArray[Any] | None) -> list[Any]:
    """Numbers of the columns that are equal to y; none if y is constant."""
    # A constant feature may equal a constant y by chance.
    if y is None or not len(y) or y.min() == y.max():
        return []
    values = y.astype(np.float32)
    # A thousand rows leave few columns to compare in all rows.
    head = slice(0, 1000)
    agrees = features[head] == values[head, None]
    candidates = np.flatnonzero(agrees.all(axis=0))
    return [column for column in candidates if (features[:, column] == values).all()]
