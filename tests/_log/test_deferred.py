"""Columns that are read part by part behave as arrays, or refuse."""

import numpy as np
import pytest

from skultr._log import _deferred
from skultr._log._deferred import DeferredArray, RowMap
from skultr._log._stored_log import _list_of_row

LENGTHS = np.array([2, 5, 1, 1, 4, 3, 6])
OFFSETS = np.concatenate(([0], np.cumsum(LENGTHS)))
N = int(OFFSETS[-1])
VALUES = np.random.default_rng(0).random(N)


def columns():
    of_array = DeferredArray.of_array(VALUES, float)
    list_ = _list_of_row(OFFSETS)
    lists = np.array([4, 0, 0, 6])
    row_map = RowMap(OFFSETS[:-1][lists], np.concatenate(([0], np.cumsum(LENGTHS[lists]))))
    rows = np.concatenate([np.arange(OFFSETS[i], OFFSETS[i + 1]) for i in lists])
    of_row = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    return {
        "array": (of_array, VALUES),
        "list": (list_, of_row),
        "selected": (of_array.at(row_map), VALUES[rows]),
        "sum": (of_array + list_, VALUES + of_row),
        "mask": (of_array > 0.5, VALUES > 0.5),
        "constant": (DeferredArray.constant(N, 3.0, float), np.full(N, 3.0)),
    }


READS = {
    "last": lambda x: x[-1],
    "negative": lambda x: x[np.array([[-1, 0], [-2, 3]])],
    "reversed": lambda x: x[::-1],
    "step": lambda x: x[1::3],
    "slice": lambda x: x[3:-2],
    "empty": lambda x: x[5:2],
    "no rows": lambda x: x[[]],
    "mask": lambda x: x[np.arange(len(x)) % 2 == 0],
    "column": lambda x: x[:, None],
    "ellipsis": lambda x: x[...],
    "product": lambda x: x @ np.arange(len(x)),
    "reduceat": lambda x: np.maximum.reduceat(x, [0, 3, 8]),
    "lexsort": lambda x: np.lexsort((x, np.arange(len(x)) % 2)),
    "joined": lambda x: np.concatenate([x, [1.0]]),
    "in place": lambda x: np.add(np.ones(len(x)), x, out=np.zeros(len(x))),
    "where": lambda x: np.where(x > 0.5, x, 0),
    "counts": lambda x: np.bincount(np.arange(len(x)) % 4, x, minlength=6),
    "none": lambda x: x == None,  # noqa: E711
    "largest": lambda x: x.max(),
    "outer": lambda x: x + np.ones((2, 1)),
}


@pytest.mark.parametrize("read", READS)
def test_a_column_reads_as_an_array(read, monkeypatch):
    monkeypatch.setattr(_deferred, "PART", 4)
    for name, (column, values) in columns().items():
        found, expected = READS[read](column), READS[read](values)
        np.testing.assert_allclose(
            np.asarray(found, dtype=float), np.asarray(expected, dtype=float), err_msg=name
        )


REFUSED = {
    "truth": (ValueError, bool),
    "beyond the end": (IndexError, lambda x: x[np.array([0, len(x)])]),
    "before the start": (IndexError, lambda x: x[-len(x) - 1]),
    "short mask": (IndexError, lambda x: x[np.ones(3, dtype=bool)]),
    "many weights": (ValueError, lambda x: np.bincount(x.astype(int), np.ones(len(x) + 1))),
    "another length": (ValueError, lambda x: x + np.ones(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_refuses_what_an_array_refuses(name):
    error, read = REFUSED[name]
    for column, _ in columns().values():
        with pytest.raises(error):
            read(column)
