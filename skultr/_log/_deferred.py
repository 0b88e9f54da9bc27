"""Arrays that are read or computed part by part, because they do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from .._typing import Ints

#: Rows that are held in memory at a time.
PART = 1 << 20

Rows = slice | NDArray[Any]


class DeferredArray(NDArrayOperatorsMixin):
    """A column of a log that is read when it is indexed; arithmetic with it is deferred too.

    Sums, counts and extremes go through the column part by part. Whatever else NumPy is asked to
    do gets the whole column in memory, so that every function works, at the price of memory.

    Parameters
    ----------
    length : int
    dtype : dtype
    take : callable
        ``take(rows)`` gives the values of a slice or of an array of row numbers.
    """

    def __init__(self, length: int, dtype: DTypeLike, take: Callable[[Rows], Any]) -> None:
        self.length = length
        self.dtype = np.dtype(dtype)
        self.take = take

    @classmethod
    def of_array(cls, values: NDArray[Any], dtype: DTypeLike) -> DeferredArray:
        """The values of an array, such as a memory map, as another type."""
        dtype = np.dtype(dtype)
        return cls(len(values), dtype, lambda rows: values[rows].astype(dtype))

    @classmethod
    def constant(cls, length: int, value: Any, dtype: DTypeLike) -> DeferredArray:
        """The same value in every row."""
        values = np.broadcast_to(np.array(value, dtype=dtype), length)
        found = cls(length, dtype, lambda rows: values[rows].copy())
        found.value = values[0] if length else None
        return found

    #: The value of all rows, if it is known to be the same.
    value: Any = None

    @property
    def shape(self) -> tuple[int]:
        """Number of rows."""
        return (self.length,)

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.length

    ndim = 1

    def __len__(self) -> int:
        return self.length

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        out = np.empty(self.length, dtype=self.dtype if dtype is None else dtype)
        for rows in self.parts():
            out[rows] = self.take(rows)
        return out

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice) and rows == slice(None):
            return self
        if isinstance(rows, DeferredArray):
            if rows.dtype == bool and rows.value and rows.length == self.length:
                return self
            rows = np.asarray(rows)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.length)
            if step == 1:
                return self.take(slice(start, max(start, stop)))
            rows = np.arange(start, stop, step)
        if rows is None or rows is ... or isinstance(rows, tuple):
            return np.asarray(self)[rows]
        rows = _row_numbers(np.asarray(rows), self.length)
        return self.take(rows[None])[0] if rows.ndim == 0 else self.take(rows)

    def __bool__(self) -> bool:
        raise ValueError("A column has no truth value; use column.any() or column.all().")

    def __iter__(self) -> Iterator[Any]:
        for rows in self.parts():
            yield from self.take(rows)

    def parts(self) -> Iterator[slice]:
        """Slices of at most :data:`PART` rows that cover all rows."""
        for start in range(0, self.length, PART):
            yield slice(start, min(start + PART, self.length))

    def mapped(self, function: Callable[[Any], Any], dtype: DTypeLike) -> DeferredArray:
        """Values of a function of each row."""
        found = DeferredArray(self.length, dtype, lambda rows: function(self.take(rows)))
        if self.value is not None:
            found.value = function(np.array([self.value]))[0]
        return found

    def at(self, row_map: RowMap) -> DeferredArray:
        """The rows that a map selects."""
        found = DeferredArray(len(row_map), self.dtype, lambda rows: self.take(row_map(rows)))
        found.value = self.value
        return found

    # What NumPy asks for ------------------------------------------------------------------
    def astype(self, dtype: DTypeLike, copy: bool = True) -> DeferredArray:
        """The values as another type."""
        return self.mapped(lambda values: values.astype(dtype), dtype)

    def sum(self) -> Any:
        """Sum over the rows."""
        if self.value is not None:
            return self.value * self.length
        return sum((self.take(rows).sum() for rows in self.parts()), start=self.dtype.type(0))

    def mean(self) -> Any:
        """Mean over the rows."""
        return self.sum() / self.length

    def any(self) -> bool:
        """True if a row is not 0."""
        if self.value is not None:
            return bool(self.value)
        return any(bool(self.take(rows).any()) for rows in self.parts())

    def all(self) -> bool:
        """True if no row is 0."""
        if self.value is not None:
            return bool(self.value)
        return all(bool(self.take(rows).all()) for rows in self.parts())

    def max(self, initial: Any = None) -> Any:
        """Largest value."""
        return self._extreme(np.max, initial)

    def min(self, initial: Any = None) -> Any:
        """Smallest value."""
        return self._extreme(np.min, initial)

    def _extreme(self, of, initial):
        found = [] if initial is None else [initial]
        if self.value is not None:
            return of([*found, self.value])
        return of([*found, *(of(self.take(rows)) for rows in self.parts())])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = method == "__call__" and ufunc.nout == 1 and not kwargs and ufunc.signature is None
        if not (plain and all(_is_row_wise(each, self.length) for each in inputs)):
            return getattr(ufunc, method)(*map(_in_memory, inputs), **_each_in_memory(kwargs))
        return _row_wise(ufunc, inputs, self.length)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        row_wise = all(_is_row_wise(each, self.length) for each in args)
        if function is np.where and len(args) == 3 and not kwargs and row_wise:
            return _row_wise(np.where, args, self.length)
        if function is np.bincount:
            return _bincount(*args, **kwargs)
        if function is np.count_nonzero and len(args) == 1 and not kwargs:
            return sum(int(np.count_nonzero(self.take(rows))) for rows in self.parts())
        return function(*map(_in_memory, args), **_each_in_memory(kwargs))


class RowMap:
    """Rows of some lists of a log, by their new number.

    Parameters
    ----------
    starts : ndarray of shape (n_lists,), int
        First row of each list in the log.
    offsets : ndarray of shape (n_lists + 1,), int
        First new row of each list, and the number of new rows.
    """

    def __init__(self, starts: Ints, offsets: Ints) -> None:
        self.starts = starts
        self.offsets = offsets

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __call__(self, rows: Rows) -> NDArray[np.intp]:
        """Numbers of the rows in the log."""
        if isinstance(rows, slice):
            first = int(np.searchsorted(self.offsets, rows.start, "right")) - 1
            last = int(np.searchsorted(self.offsets, rows.stop, "left"))
            ends = self.offsets[first : last + 1].clip(rows.start, rows.stop)
            shift = self.starts[first:last] - self.offsets[first:last]
            rows, shift = np.arange(rows.start, rows.stop), np.repeat(shift, np.diff(ends))
            return rows + shift
        of = np.searchsorted(self.offsets, rows, "right") - 1
        return rows + self.starts[of] - self.offsets[of]


def lookup(table: NDArray[Any], codes: Any) -> Any:
    """``table[codes]``, deferred if the codes are."""
    if isinstance(codes, DeferredArray):
        return codes.mapped(lambda some: table[some], table.dtype)
    return table[codes]


def largest_by(codes: Any, values: Any, n_codes: int) -> NDArray[np.float64]:
    """Largest value of the rows of each code, 0 where there is none or it is negative."""
    largest = np.zeros(n_codes)
    parts = codes.parts() if isinstance(codes, DeferredArray) else [slice(None)]
    for rows in parts:
        np.maximum.at(largest, codes[rows], values[rows])
    return largest


def _row_numbers(rows, length):
    """Numbers from 0 of the rows that an index or a mask selects, as NumPy reads them."""
    if rows.dtype == bool:
        if rows.shape != (length,):
            raise IndexError(f"A mask of shape {rows.shape} for a column of {length} rows.")
        return np.flatnonzero(rows)
    if not rows.size:
        return rows.astype(np.intp)
    low, high = rows.min(), rows.max()
    if low < -length or high >= length:
        raise IndexError(f"Rows {low} to {high} of a column of {length} rows.")
    return np.where(rows < 0, rows + length, rows) if low < 0 else rows


def _is_row_wise(value, length):
    return _is_one(value) or getattr(value, "shape", None) == (length,)


def _is_one(value):
    # NumPy's own functions would read a whole column, or a list of columns, to answer.
    return not isinstance(value, DeferredArray | list | tuple) and np.ndim(value) == 0


def _row_wise(function, inputs, length):
    """The function of deferred columns, arrays and numbers, row by row."""

    def part(value, rows):
        if isinstance(value, DeferredArray):
            return value.take(rows)
        return value if _is_one(value) else value[rows]

    def take(rows):
        return function(*(part(each, rows) for each in inputs))

    found = DeferredArray(length, take(slice(0, min(length, 1))).dtype, take)
    deferred = [each for each in inputs if isinstance(each, DeferredArray)]
    rest_is_known = all(_is_one(each) or isinstance(each, DeferredArray) for each in inputs)
    if rest_is_known and all(each.value is not None for each in deferred):
        known = (each.value if isinstance(each, DeferredArray) else each for each in inputs)
        found.value = function(*known)
    return found


def _bincount(x, weights=None, minlength=0):
    if not isinstance(x, DeferredArray):
        x = DeferredArray.of_array(x, x.dtype)
    if weights is not None and len(weights) != len(x):
        raise ValueError(f"{len(weights)} weights for a column of {len(x)} rows.")
    total = np.zeros(minlength, dtype=np.intp if weights is None else float)
    for rows in x.parts():
        of_part = None if weights is None else weights[rows]
        found = np.bincount(x.take(rows), of_part, minlength=len(total))
        found[: len(total)] += total
        total = found
    return total


def _in_memory(value):
    if isinstance(value, DeferredArray):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_in_memory, value))
    return value


def _each_in_memory(values):
    return {name: _in_memory(value) for name, value in values.items()}
