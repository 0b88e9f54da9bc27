"""Frames and Parquet files of records: nested structs, objects, JSON text, or names with dots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals.stable.v2 as nw
from joblib import Parallel, delayed

from ._ubi_records import Fields, Part, coded_part, is_missing, value_at

#: Rows coded at a time, and the number of rows from which worker processes pay for their start.
_BLOCK, _LARGE = 100_000, 500_000
_NO_FIELD = (
    "{} has the columns {}. Expected those of UBI: query_id, user_query, action_name, "
    "event_attributes, ..."
)
#: Columns that say which record of an index a row is, and what equal records are equal in.
_KEYS = ("_index", "_id", "timestamp")


def frame_parts(frame: Any, kind: str | None, fields: Fields) -> Iterator[Part]:
    """Parts of a frame of any engine that Narwhals reads."""
    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise TypeError(
            f"Found a {type(frame).__module__}.{type(frame).__name__}; expected a path, a list of "
            "paths, or a frame that Narwhals reads, such as pandas.DataFrame(records)."
        ) from error
    wanted = [name for name in table.collect_schema().names() if _is_read(name, fields)]
    if not wanted:
        raise ValueError(_NO_FIELD.format("The frame", table.collect_schema().names()[:20]))
    table = table.select(wanted)
    table = table.collect() if isinstance(table, nw.LazyFrame) else table
    for start in range(0, len(table), _BLOCK):
        yield _part(table[start : start + _BLOCK], kind, fields)


def parquet_parts(
    path: str, kind: str | None, fields: Fields, n_jobs: int | None
) -> Iterator[Part]:
    """Parts of a Parquet file, of which only the fields that are needed are read."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            f"Reading {path} needs PyArrow: pip install pyarrow. Or read the file with another "
            "package and pass the frame."
        ) from error
    try:
        opened = parquet.ParquetFile(path)
    except ValueError as error:  # of PyArrow
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from error
    with opened as file:
        wanted = [name for name in _names(file.schema_arrow) if _is_read(name, fields)]
        if not wanted:
            raise ValueError(_NO_FIELD.format(path, file.schema_arrow.names[:20]))
        n_groups, n_rows = file.num_row_groups, file.metadata.num_rows
    n_jobs = 1 if n_rows < _LARGE or n_groups == 1 else -1 if n_jobs is None else n_jobs
    groups = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="n_jobs")(
        delayed(_row_group)(path, group, wanted, kind, fields) for group in range(n_groups)
    )
    for parts in groups:
        yield from parts


def _names(fields, begin=""):
    """Names of columns, and those within structs, joined by dots."""
    from pyarrow.types import is_struct

    for field in fields:
        name = begin + field.name
        if is_struct(field.type):
            yield from _names(field.type, f"{name}.")
        else:
            yield name


def _row_group(path, group, wanted, kind, fields):
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return [
            _part(nw.from_native(pa.Table.from_batches([batch])), kind, fields)
            for batch in file.iter_batches(_BLOCK, row_groups=[group], columns=wanted)
        ]


def _is_read(name, fields):
    """Whether a column, or a leaf of one, holds or lies within a field."""
    paths = [path for group in (fields.events, fields.queries) for path in group.values()]
    needed = [".".join(path) for places in paths for path in places] + list(_KEYS)
    return any(
        f"{name}.".startswith(f"{each}.") or f"{each}.".startswith(f"{name}.") for each in needed
    )


def _part(table, kind, fields):
    action = _texts_at(table, ("action_name",))
    is_event = [not is_missing(value) for value in action]
    if kind == "event":
        is_event = [True] * len(table)
    rows = {True: [], False: []}
    for row, event in enumerate(is_event):
        rows[event].append(row)
    columns = []
    for event, places in ((True, fields.events), (False, fields.queries)):
        part = table if len(rows[event]) == len(table) else table[rows[event]]
        values = {name: _values(part, paths, name) for name, paths in places.items()}
        columns.append(values | {"key": _keys(part)})
    return coded_part(*columns, fields.filters)


def _values(table, paths, name):
    """The value of each row at the first path where it has one."""
    if not len(table) or not paths:
        return [None] * len(table)
    if name == "attributes":
        return _attributes(table, paths[0][0])
    values = _texts_at(table, paths[0])
    for path in paths[1:]:
        values = [
            other if is_missing(value) else value
            for value, other in zip(values, _texts_at(table, path), strict=True)
        ]
    return values


def _attributes(table, name):
    """Objects of attributes, also from columns whose names begin with theirs and a dot."""
    if name in table.columns:
        return table[name].to_list()
    parts = [column for column in table.columns if column.startswith(f"{name}.")]
    keys = [column.removeprefix(f"{name}.") for column in parts]
    values = [table[column].to_list() for column in parts]
    if not parts:
        return [None] * len(table)
    return [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]


def _texts_at(table, path):
    """Values at a path, by the longest name of a column that begins it."""
    for end in range(len(path), 0, -1):
        name = ".".join(path[:end])
        if name in table.columns:
            return _within(table[name], path[end:])
    return [None] * len(table)


def _within(series, path):
    while path and series.dtype == nw.Struct:
        names = [each.name for each in series.dtype.fields]
        if path[0] not in names:
            return [None] * len(series)
        series, path = series.struct.field(path[0]), path[1:]
    values = series.to_list()
    return [value_at(value, path) for value in values] if path else values


def _keys(table):
    """A text per row that equal records share: the id that the index gave, else the content."""
    columns = {name: table[name].to_list() for name in table.columns}
    ids = columns.get("_id")
    if ids is None or any(map(is_missing, ids)):
        return list(map(repr, zip(*columns.values(), strict=True)))
    return [f"{name}/{key}" for name, key in zip(columns.get("_index", ids), ids, strict=True)]
