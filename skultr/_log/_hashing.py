"""Hashes of arrays by the 64-bit finaliser of SplitMix (Steele, Lea & Flood 2014), equal rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._base._typing import Ints
from ._segments import equal_keys

#: Rows that are hashed at a time, so that they stay in a processor's cache.
_ROWS = 1 << 14


def equal_rows(features: NDArray[Any]) -> tuple[Ints, Ints]:
    """Code of each row (equal rows have equal codes), and the first row of each code.

    The order of the codes depends on the values alone.
    """
    # With 128 bits, two of a billion different vectors collide with probability below 1e-20.
    return equal_keys(row_hashes(features))


def row_hashes(features: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Two hashes of each row, shape (2, n_rows); rows with equal features have equal hashes."""
    hashes = np.zeros((2, len(features)), dtype=np.uint64)
    for start in range(0, len(features), _ROWS):
        _hash_rows(features[start : start + _ROWS], hashes[:, start : start + _ROWS])
    return hashes


def sums_of_rows(features: NDArray[np.float32]) -> NDArray[np.uint64]:
    """One number per row, in a hundredth of the time of ``equal_rows`` on few rows.

    Equal rows have equal numbers. Different rows nearly always have different ones, but not as
    surely as by ``equal_rows``: rows with equal numbers must still be compared.
    """
    columns = np.arange(1, features.shape[1] + 1, dtype=np.uint64)
    factors = mix(columns) | np.uint64(1)
    return np.concatenate(
        [
            _bits(features[start : start + _ROWS]) @ factors
            for start in range(0, max(len(features), 1), _ROWS)
        ]
    )


def _bits(features: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Bits of numbers, equal for -0.0 and 0.0 and for all kinds of NaN."""
    values = features + np.float32(0)
    missing = np.isnan(values)
    if missing.any():
        values[missing] = np.nan
    return values.view(np.uint32)


def _hash_rows(features, hashes):
    """Set two hashes of each row, shape (2, n_rows)."""
    columns = _bits(np.ascontiguousarray(features.T))
    bits, memory = np.empty(len(features), dtype=np.uint64), np.empty_like(hashes)
    for number, column in enumerate(columns, start=1):
        bits[:] = column
        hashes[0] ^= bits
        bits += np.uint64(number)
        hashes[1] += bits
        _mix_in_place(hashes, memory)


def match_rows(known: NDArray[Any], rows: NDArray[Any]) -> tuple[Ints, Ints]:
    """Place of the first row of ``known`` that equals each of ``rows``, -1 if there is none."""
    codes, _ = equal_rows(np.concatenate([known, rows]))
    of_known, of_rows = codes[: len(known)], codes[len(known) :]
    n_codes = codes.max(initial=-1) + 1
    place = np.full(n_codes, -1)
    place[of_known[::-1]] = np.arange(len(known))[::-1]
    return place[of_rows], np.bincount(of_known, minlength=n_codes)[of_rows]


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix's finaliser of an array of uint64: every input bit affects every output bit."""
    value = value.copy()
    _mix_in_place(value, np.empty_like(value))
    return value


def _mix_in_place(value, memory):
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
        whole = np.asarray(column).astype(np.int64, copy=False)
        value = mix(value ^ whole.view(np.uint64))
    return value


def equal_columns(features: NDArray[Any], y: NDArray[Any] | None) -> list[Any]:
    """Numbers of the columns that are equal to y; none if y is constant."""
    if y is None or not len(y) or y.min() == y.max():
        return []
    head = slice(0, 1000)
    first = y.astype(np.float32)
    candidates = np.flatnonzero((features[head] == first[head, None]).all(axis=0))
    return [column for column in candidates if (features[:, column] == first).all()]
