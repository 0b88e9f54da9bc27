"""Frames of any engine: faults of a log, codes of ids, hashes of rows, and collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Ints
from ..exceptions import ClickDataWarning, python_value, warn_user
from ._faults import (
    GRADES,
    IDS,
    NO_ROW_SHOWN,
    NO_ROWS,
    Columns,
    Fault,
    all_at_once,
    check_clicked,
    find_faults,
)
from ._hashing import hash_columns
from ._roles import read_scope
from ._segments import encode, sorting_order

#: Bits of the hash of a row: sums over half a million rows fit into 64 bits in every engine.
_HASH_BITS = 44
#: Roles that hold whole numbers, whatever type a column with missing values has.
CODES = ("position", "bias")


def is_in_engine(X: Any) -> bool:
    """True if X is a frame of an engine: lazy Polars, DuckDB, Dask, PySpark, ..."""
    if nw.dependencies.is_into_dataframe(X):
        return False
    return isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame)


def collect(frame: Any) -> nw.DataFrame[Any]:
    """The frame in memory; Polars streams, which needs less memory and no more time."""
    if not isinstance(frame, nw.LazyFrame):
        return frame
    return (
        frame.collect(engine="streaming") if frame.implementation.is_polars() else frame.collect()
    )


def in_engine_of(frame: Any, small: nw.DataFrame[Any]) -> Any:
    """A small table that was collected from a frame, back in the engine of the frame."""
    kind, native = frame.implementation, small.to_native()
    if not isinstance(frame, nw.LazyFrame):
        return small
    if kind.is_duckdb():
        return nw.from_native(_in_duckdb(frame.to_native(), native))
    if kind.is_dask():
        import dask.dataframe as dd

        return nw.from_native(dd.from_pandas(native, npartitions=1))
    if kind.is_spark_like():
        return nw.from_native(frame.to_native().sparkSession.createDataFrame(native))
    return small.lazy()


def _in_duckdb(relation, table):
    """The table as lists of one row, unnested: a relation knows no other way to its connection."""
    import duckdb

    lists = [
        duckdb.ConstantExpression(table[name].to_pylist()).alias(name)
        for name in table.column_names
    ]
    rows = relation.limit(0).aggregate("count(*) AS n").select(*lists)
    return rows.project(", ".join(f'unnest("{name}") AS "{name}"' for name in table.column_names))


def scope_of(frame: Any) -> str:
    """Scope of the ids of documents, "query" or "global"."""
    if "doc_scope" not in frame.collect_schema():
        return "query"
    found = collect(frame.select("doc_scope").unique())["doc_scope"]
    return read_scope(None, found.to_numpy()) if len(found) else "query"


# Faults -------------------------------------------------------------------------------
def check_numbers(schema: nw.Schema, names: Iterable[str]) -> None:
    """Refuse columns of text that must hold numbers."""
    text = nw.String | nw.Categorical | nw.Enum
    errors = [
        f"The role {name!r} must hold numbers, got {schema[name]} values. Convert the column, or "
        "rename it if it holds something else."
        for name in names
        if isinstance(schema.get(name), text)
    ]
    if errors:
        raise ValueError(all_at_once(errors) if len(errors) > 1 else errors[0])


def fault_columns(
    schema: nw.Schema,
    reads: Iterable[str],
    click: nw.Expr | None = None,
    sample_weight: nw.Expr | None = None,
    *,
    rates: bool = False,
) -> dict[str, nw.Expr]:
    """Columns that the predicates of faults read: those named, weight, clicks and ``shown``."""
    columns = {name: _column(name, schema[name]) for name in reads if name in schema}
    columns.setdefault("impressions", nw.lit(1.0))
    shown = (columns["impressions"] > 0).fill_null(False)
    place = next((name for name in CODES if name in columns), None)
    if place is not None:
        shown = shown & ~columns[place].is_null()
    columns |= {"shown": shown, "served": shown}
    if sample_weight is not None:  # a sample weight of 0 excludes a row on purpose
        columns |= {"sample_weight": sample_weight, "shown": shown & (sample_weight > 0)}
    if click is not None:
        columns["click"] = click
        if not rates:
            columns["n_clicks"] = click
    return columns


def _column(name, dtype):
    column = nw.col(name)
    if name in (*CODES, "impressions") and not dtype.is_integer():
        return column.cast(nw.Float64).fill_nan(None)
    return column.fill_nan(None) if dtype.is_float() else column


def check_rows(
    frame: Any,
    columns: dict[str, nw.Expr],
    schema: nw.Schema,
    called: Mapping[str, str],
    more: Iterable[Fault] = (),
) -> float:
    """Report the faults of a log; the result is the scale of click rates (1 but for grades).

    ``called`` are names of columns in messages, and ``more`` faults beside those of all logs.
    """
    faults = [*_faults(columns, schema), *more]
    expressions = Columns(columns, nw.Expr.is_null)
    wrong = [fault.wrong(expressions).fill_null(False) for fault in faults]
    counts = [each.cast(nw.Int64).sum().alias(str(i)) for i, each in enumerate(wrong)]
    rates = "click" in columns and "n_clicks" not in columns
    largest = columns["click"].max() if rates else nw.len()
    counts = frame.select(nw.len().alias("n"), largest.alias("largest"), *counts)
    n_rows, largest, *counts = collect(counts).row(0)
    if not n_rows:
        NO_ROWS.report(0, None, None)
    ids = [name for name in ("qid", "doc") if name in schema]
    found = []
    for fault, rows, count in zip(faults, wrong, counts, strict=True):
        if not count:
            continue
        value = columns[fault.reads[0]].alias("_value")
        row = collect(frame.filter(rows).select(*ids, value).head(1)).row(0)
        *of, value = map(python_value, row)
        where = ", ".join(f"{name} {each!r}" for name, each in zip(ids, of, strict=True))
        where = f"such as in {where}" if ids else ""
        message = fault.message(int(count), value, where, called.get(fault.reads[0]))
        found.append((fault.severity, message))
    errors = [message for severity, message in found if not issubclass(severity, Warning)]
    if errors:
        raise ValueError(all_at_once(errors) if len(errors) > 1 else errors[0])
    for category, message in found:
        warn_user(message, category)
    if not rates or largest <= 1:
        return 1.0
    GRADES.report(0, float(largest), None, called.get("click"))
    return float(largest)


def _faults(columns, schema):
    kinds = {name: _kind(schema[name]) if name in IDS else "" for name in columns}
    return find_faults(kinds, known={"impressions"} - set(schema))


def _kind(dtype):
    """Kind of the values as NumPy calls it, as far as faults of ids ask for it."""
    return "f" if dtype.is_float() else "i" if dtype.is_signed_integer() else "O"


def check_counts(
    weight: NDArray[Any], clicks: NDArray[Any] | None, called: str | None = None
) -> None:
    """Report counts of shown cells without a row or clicks, and rates in a column of counts.

    ``called`` is the name of the column of numbers of clicks; None if it held click rates.
    """
    if not len(weight):
        NO_ROW_SHOWN.report(0, None, None)
    if clicks is None:
        return
    if called is not None and look_like_rates(weight, clicks):
        warn_about_rates(called)
    check_clicked(weight, clicks)


def look_like_rates(weight: NDArray[Any], clicks: NDArray[Any]) -> bool:
    """True if impressions of shown rows are whole numbers and numbers of clicks are not."""
    rounded = np.rint(clicks)
    if (rounded == clicks).all() or weight.max() <= 1 or (weight % 1).any():
        return False
    # Numbers of clicks that were computed as rate times impressions are whole up to rounding.
    return bool((np.abs(clicks - rounded) > 1e-6 * np.maximum(clicks, 1.0)).any())


def warn_about_rates(called: str) -> None:
    """Warn that a column holds click rates where numbers of clicks are expected."""
    warn_user(
        f"impressions are whole numbers and {called} is not: it looks like a click rate. "
        "Expected the number of clicks; multiply the rate by the impressions.",
        ClickDataWarning,
    )


# Ids ----------------------------------------------------------------------------------
def encode_ids(series: nw.Series[Any]) -> tuple[Ints, nw.Series[Any]]:
    """Code of each id (-1 where it is missing), and the distinct ids, sorted.

    There is no Python object per text.
    """
    kind, dtype = series.implementation, series.dtype
    if dtype.is_integer() and not series.is_null().any():
        codes, ids = encode(series.to_numpy())
        return codes, nw.new_series(series.name, ids, backend=kind)
    text = isinstance(dtype, nw.String | nw.Categorical | nw.Enum)
    if kind.is_polars() and text:
        codes, ids = _encode_polars(series.to_native())
    elif kind.is_pyarrow() and text:
        codes, ids = _encode_arrow(series.to_native())
    else:
        codes, ids = _encode_pandas(series.to_native() if kind.is_pandas() else series.to_pandas())
        if not kind.is_pandas():
            ids = nw.new_series(series.name, ids.to_numpy(), backend=kind).to_native()
    return codes, nw.from_native(ids, series_only=True)


def _encode_polars(series):
    import polars as pl

    series = series.cast(pl.String)
    codes = series.cast(pl.Categorical).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    # Codes of categories may be shared with other columns, so that some are unused here.
    first = np.full(codes.max(initial=-1) + 1, -1)
    first[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
    used = np.flatnonzero(first >= 0)
    ids = series.gather(first[used])
    order = ids.arg_sort().to_numpy()
    return _renumber(codes, used[order]), ids.gather(order)


def _encode_arrow(column):
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):  # dictionaries may differ between chunks
        column = column.cast(column.type.value_type)
    coded = column.combine_chunks().dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = pc.sort_indices(coded.dictionary)
    return _renumber(codes, order.to_numpy()), pa.chunked_array([coded.dictionary.take(order)])


def _encode_pandas(series):
    try:
        codes, ids = pd.factorize(series)
    except TypeError as error:
        raise ValueError(
            f"The column {series.name!r} holds values that cannot be ids, such as "
            f"{series.iloc[0]!r} ({error}); expected numbers, text or other hashable values."
        ) from error
    order = sorting_order(np.asarray(ids))
    return _renumber(codes, order), pd.Series(ids.take(order), name=series.name)


def _renumber(codes, order):
    """Codes renumbered such that ``order[i]`` becomes ``i``; -1 stays -1."""
    if not len(order):
        return codes.astype(np.int64)
    new_code = np.full(max(int(codes.max()), int(order.max())) + 2, -1)
    new_code[order] = np.arange(len(order))
    return new_code[codes]


# Hashes of rows -----------------------------------------------------------------------
def with_hashes(frame: Any, names: list[str]) -> Any:
    """A frame with two hashes of some of its columns, ``_hash0`` and ``_hash1``.

    Each engine has its own hash function, which is the same throughout a run.
    """
    kind, native = frame.implementation, frame.to_native()
    if kind.is_polars():
        return nw.from_native(native.with_columns(*_hashes_polars(names)))
    if kind.is_duckdb():
        return nw.from_native(native.project(", ".join(["*", *_hashes_sql(names)])))
    if kind.is_spark_like():
        return nw.from_native(native.selectExpr("*", *_hashes_spark(names)))
    if kind.is_dask():
        meta = native._meta.assign(_hash0=np.int64(0), _hash1=np.int64(0))
        return nw.from_native(native.map_partitions(_hashes_pandas, names, meta=meta))
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"A log of several lists in a {type(native).__module__}.{type(native).__name__} "
            "cannot be hashed; expected a frame in memory, or one of Polars, DuckDB, Dask or "
            "PySpark. Collect it first."
        )
    hashes = enumerate(_shifted([value_bits(frame[name]) for name in names]))
    new = (nw.new_series(f"_hash{i}", values, backend=kind) for i, values in hashes)
    return nw.maybe_reset_index(frame).with_columns(*new)


def value_bits(series: nw.Series[Any]) -> Ints:
    """A whole number for each value, equal where the values are: itself, its bits or its code."""
    dtype = series.dtype
    if dtype.is_integer() and not series.is_null().any():
        return series.to_numpy().astype(np.int64, copy=False)
    if dtype.is_numeric():
        values = series.cast(nw.Float64).to_numpy() + 0.0  # one zero, and one NaN
        return np.where(np.isnan(values), np.nan, values).view(np.int64)
    if isinstance(dtype, nw.List | nw.Array):
        cells = [None if cell is None else tuple(cell) for cell in series.to_list()]
        return pd.factorize(pd.Series(cells, dtype=object))[0]
    return encode_ids(series)[0]


def _shifted(columns):
    shift = np.uint64(64 - _HASH_BITS)
    salts = (np.full(len(columns[0]), salt) for salt in range(2))
    return [(hash_columns([salt, *columns]) >> shift).view(np.int64) for salt in salts]


def _hashes_polars(names):
    import polars as pl

    # Hashed twice, because Polars combines the columns of a struct by shifts and exclusive or.
    hashes = (pl.struct(names).hash(salt).hash(salt) for salt in range(2))
    return [
        (h // 2 ** (64 - _HASH_BITS)).cast(pl.Int64).alias(f"_hash{i}")
        for i, h in enumerate(hashes)
    ]


def _hashes_sql(names):
    names = ['"' + name.replace('"', '""') + '"' for name in names]
    orders = ", ".join(names), ", ".join(["1", *names[::-1]])
    return [
        f"CAST(hash(hash({columns})) >> {64 - _HASH_BITS} AS BIGINT) AS _hash{i}"
        for i, columns in enumerate(orders)
    ]


def _hashes_spark(names):
    # Each column by itself: xxhash64 passes over null, whichever column holds it.
    columns = ", ".join(f"xxhash64(`{name.replace('`', '``')}`)" for name in names)
    return [
        f"shiftrightunsigned(xxhash64({salt}, {columns}), {64 - _HASH_BITS}) AS _hash{salt}"
        for salt in range(2)
    ]


def _hashes_pandas(frame, names):
    columns = [
        pd.util.hash_pandas_object(frame[name], index=False).to_numpy().view(np.int64)
        for name in names
    ]
    return frame.assign(**{f"_hash{i}": values for i, values in enumerate(_shifted(columns))})
