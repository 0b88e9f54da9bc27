"""Whether the files of a dataset are as they are written, before anything reads them.

Arrow trusts what it maps: an offset beyond a file ends the process, and so may a buffer that
unpacks to more than memory. So a manifest names the tables of :data:`TABLES` and no other file,
a table is mapped as it is or not at all, and its values are within the bounds that the sizes of
the other tables set. Each function raises a ValueError that says what is not so.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._roles import is_role

#: The names of the copies of a log; see :class:`~skultr._log._dataset_writer._Copy`.
COPIES = ("merged", "detailed")
#: The smallest number above 0.
_ABOVE_0 = float(np.nextafter(0, 1))
#: Whole numbers up to this are exact in float64, too.
_LARGEST = 2**53
#: Clicks may exceed impressions by a rounding error of their sum.
_ROUNDING = 1 + 1e-6
#: Rows of features that are looked at together, which a processor holds near.
_PART = 1 << 14
#: Bytes before the messages of an Arrow file, its last ones, and fewer bytes than any has.
_MAGIC, _END, _LEAST = 8, b"ARROW1", 16
#: Places in the tables of Arrow's format ``Message`` and ``RecordBatch``.
_HEADER, _COMPRESSION = 2, 3


class _Column(NamedTuple):
    """What the values of a column are."""

    kind: str  # ids, codes (whole numbers), numbers, or features
    low: float = 0
    high: float | str = inf  # or the table whose rows the codes are numbers of
    may_be_missing: bool = False


_ROWS = {
    "version": _Column("codes", high="versions"),
    "user": _Column("codes", high="users"),
    "position": _Column("codes", 1, _LARGEST),
    "bias": _Column("codes", high="factors"),
    "clicks": _Column("numbers"),
    "weight": _Column("numbers", _ABOVE_0),
    "propensity": _Column("numbers", _ABOVE_0, 1, may_be_missing=True),
    "production": _Column("numbers", -inf, may_be_missing=True),
}
_LISTS = {"n_rows": _Column("codes", 1)}
_IDS = _Column("ids")
#: The columns of each table.
TABLES = {
    "queries": {
        "id": _IDS,
        "impressions": _Column("codes", high=_LARGEST),
        "merged_lists": _Column("codes", high=_LARGEST),
        "detailed_lists": _Column("codes", high=_LARGEST, may_be_missing=True),
    },
    "candidates": {
        "query": _Column("codes", high="queries"),
        "version": _Column("codes", high="versions"),
        "production": _ROWS["production"],
    },
    "factors": {"bias": _IDS},
    "users": {"id": _IDS},
    "versions": {
        "doc": _Column("codes", high="versions"),
        "features": _Column("features", may_be_missing=True),
    },
    "documents": {
        "id": _Column("codes", high="document_ids"),
        "query": _Column("codes", high="queries", may_be_missing=True),
    },
    "document_ids": {"id": _IDS},
    # Columns of rows that are constant stand in the manifest.
    **{
        f"{copy}_rows": {
            name: column._replace(may_be_missing=True) for name, column in _ROWS.items()
        }
        for copy in COPIES
    },
    **{f"{copy}_lists": _LISTS for copy in COPIES},
}
#: Tables that a log may lack.
_MAY_BE_MISSING = {"candidates", "documents", "document_ids", "detailed_rows", "detailed_lists"}


def check_file(path: Path, n_bytes: int | None = None) -> None:
    """Raise unless a path is a file of its folder, and has so many bytes."""
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    if not path.is_file():  # a pipe or a device may have no end
        raise ValueError(f"{path.name} is no regular file")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise ValueError(f"{path.name} is a link out of the folder")
    if n_bytes is not None and (size := path.stat().st_size) != n_bytes:
        raise ValueError(f"{path.name} has {size:,} bytes in place of {n_bytes:,}")


# The manifest -------------------------------------------------------------------------
def check_manifest(found: dict[str, Any]) -> None:
    """Raise unless a manifest names known tables alone, and its facts and sizes fit each other."""
    facts = _dict(found, "facts")
    files = _dict(found, "files")
    known = {f"{name}.arrow": columns for name, columns in TABLES.items()}
    for name in files:
        if name not in known:
            raise ValueError(f"it names the file {name!r:.80}, which is none of a dataset")
        _check_entry(name, _dict(files, name), known[name])
    needed = {*TABLES} - _MAY_BE_MISSING
    if lacking := sorted({f"{name}.arrow" for name in needed} - {*files}):
        raise ValueError(f"it does not name {lacking[0]}")
    _check_facts(facts, files)
    copies = _dict(facts, "copies")
    if not {"merged"} <= {*copies} <= {*COPIES}:
        raise ValueError(f"its copies are {[*copies]!r:.80}; expected merged and perhaps detailed")
    for name in copies:
        _check_copy(name, _dict(copies, name), files)


def _dict(found, name):
    if not isinstance(found.get(name), dict):
        raise ValueError(f"its entry {name} is {found.get(name)!r:.40}")
    return found[name]


def _count(found, name, high=_LARGEST):
    """A number of things."""
    if type(found.get(name)) is not int or not 0 <= found[name] <= high:
        raise ValueError(f"its number {name} is {found.get(name)!r:.40}")
    return found[name]


def _check_entry(name, entry, known):
    """Raise unless what is said of a file may be so."""
    _count(entry, "crc32")
    if _count(entry, "rows") > _count(entry, "bytes"):
        raise ValueError(f"{name} would have {entry['rows']:,} rows in {entry['bytes']:,} bytes")
    columns = _dict(entry, "columns")
    needed = {each for each, column in known.items() if not column.may_be_missing}
    if not needed <= {*columns} <= {*known}:
        raise ValueError(f"{name} has the columns {[*columns]!r:.80}; expected {[*known]}")


def _check_facts(facts, files):
    names = facts.get("feature_names")
    roles = facts.get("roles")
    if not _are_texts(names) or len({*names}) < len(names):
        raise ValueError(f"feature_names is {names!r:.40}; expected names")
    if not _are_texts(roles) or not all(map(is_role, roles)):
        raise ValueError(f"roles is {roles!r:.40}; expected names of roles")
    if not isinstance(facts.get("click"), str):
        raise ValueError(f"click is {facts.get('click')!r:.40}; expected a name")
    if not 1 <= _count(facts, "n_queries") == files["queries.arrow"]["rows"]:
        raise ValueError(f"n_queries is {facts['n_queries']}, and queries.arrow has others")
    n_documents = _count(facts, "n_documents")
    if not 1 <= n_documents <= files["versions.arrow"]["rows"]:
        raise ValueError(f"n_documents is {n_documents}, and versions.arrow has fewer")
    if ("documents.arrow" in files) is not ("document_ids.arrow" in files):
        raise ValueError("it names one of documents.arrow and document_ids.arrow")
    if files.get("documents.arrow", {"rows": n_documents})["rows"] != n_documents:
        raise ValueError(f"n_documents is {n_documents}, and documents.arrow has others")


def _are_texts(found):
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


def _check_copy(name, copy, files):
    """Raise unless each column of the rows is there once, as one number or in the file."""
    rows = f"{name}_rows.arrow"
    constants = _dict(copy, "constants")
    if not {rows, f"{name}_lists.arrow"} <= {*files}:
        raise ValueError(f"it does not name {rows} or its lists")
    if f"{name}_lists" not in files["queries.arrow"]["columns"]:
        raise ValueError(f"queries.arrow has no column {name}_lists")
    columns = files[rows]["columns"]
    needed = {each for each, column in _ROWS.items() if not column.may_be_missing}
    if {*columns} & {*constants} or not needed <= {*columns, *constants} <= {*_ROWS}:
        raise ValueError(f"its constants are {[*constants]!r:.80}, beside {[*columns]} in {rows}")
    # Without a column, the file has no rows; those that constants stand for take no bytes.
    most = sum(file["bytes"] for file in files.values())
    n_rows = _count(copy, "n_rows", most)
    if not n_rows or (columns and n_rows != files[rows]["rows"]):
        raise ValueError(f"n_rows of {name} is {n_rows}, and {rows} has others")
    for each, value in constants.items():
        is_code = _ROWS[each].kind == "codes"
        if type(value) not in (int, float) or (is_code and value != value // 1):
            raise ValueError(f"the constant {each} is {value!r:.40}")
        _check_range(f"the constant {each}", _ROWS[each], value, value, files)


# Tables -------------------------------------------------------------------------------
def read_batch(pa: Any, path: Path, n_rows: int, columns: Mapping[str, str]) -> Any:
    """The only batch of a file, mapped, with so many rows and columns of these types.

    Parameters
    ----------
    pa : module pyarrow
    path : Path
        A regular file that has its size.
    n_rows : int
        Rows that the manifest states.
    columns : dict of str to str
        Names and types of the columns that the manifest states.
    """
    source = pa.memory_map(str(path))
    if source.size() < _LEAST or source.read_at(len(_END), source.size() - len(_END)) != _END:
        raise ValueError("the end of the file is missing")
    source.seek(_MAGIC)
    # The messages one by one: they may be others than the index at the end of the file names.
    messages = pa.ipc.MessageReader.open_stream(source)
    schema = pa.ipc.read_schema(_next(messages, "schema"))
    if {field.name: str(field.type) for field in schema} != columns or len(schema) > len(columns):
        raise ValueError(f"the columns are {schema.names!r:.80}; expected those of meta.json")
    known = TABLES[path.stem]
    for field in schema:
        if not _is_of_kind(pa.types, field.type, known[field.name].kind):
            raise ValueError(f"the column {field.name} has type {field.type!s:.80}")
    message = _next(messages, "record batch")
    if _is_compressed(message.metadata):
        raise ValueError("the rows are compressed; expected bytes that can be mapped")
    if message.body is not None and message.body.size and message.body.address % 8:
        raise ValueError("the rows begin within a word")
    batch = pa.ipc.read_record_batch(message, schema)
    if batch.num_rows != n_rows:
        raise ValueError(f"there are {batch.num_rows:,} rows in place of {n_rows:,}")
    batch.validate(full=True)
    if any(column.null_count for column in batch.columns):
        raise ValueError("values are missing")
    _next(messages, None)
    return batch


def _next(messages, kind):
    """The next message, which is of a kind; None if there is to be none."""
    try:
        message = messages.read_next_message()
    except StopIteration:
        message = None
    found = None if message is None else message.type
    if found != kind:
        raise ValueError(f"the next part of the file is {found}; expected {kind}")
    return message


def _is_of_kind(types, found, kind):
    if kind == "features":
        return types.is_fixed_size_list(found) and types.is_float32(found.value_type)
    if kind == "codes":
        return types.is_signed_integer(found)
    if kind == "numbers":
        return types.is_float32(found) or types.is_float64(found)
    if getattr(found, "extension_name", None) == "arrow.uuid":
        return True
    return any(
        is_(found)
        for is_ in (
            *(types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
            *(types.is_string, types.is_large_string, types.is_temporal),
            *(types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        )
    )


def _is_compressed(metadata):
    """Whether a message of a batch, whose form Arrow has verified, names a compression."""
    content = bytes(metadata)

    def follow(at):
        return at + struct.unpack_from("<I", content, at)[0]

    def entry(table, number):
        """Where the entry of a table is; 0 if it has none."""
        entries = table - struct.unpack_from("<i", content, table)[0]
        (size,) = struct.unpack_from("<H", content, entries)
        place = 4 + 2 * number
        within = struct.unpack_from("<H", content, entries + place)[0] if place < size else 0
        return within and table + within

    batch = follow(entry(follow(0), _HEADER))
    return entry(batch, _COMPRESSION) > 0


# Values -------------------------------------------------------------------------------
def check_values(
    name: str,
    columns: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    files: Mapping[str, Any],
) -> None:
    """Raise unless the values of a table are within bounds, and fit the manifest.

    Parameters
    ----------
    name : str
        Key of :data:`TABLES`.
    columns : dict of str to ndarray
        The table.
    facts, files : dict
        Of a manifest that was checked.
    """
    for each, values in columns.items():
        column = TABLES[name][each]
        if column.kind == "ids":
            if not (values[1:] > values[:-1]).all():
                raise ValueError(f"the column {each} is not in order, or has a value twice")
        elif column.kind == "features":
            _refuse_infinity(values)
        elif values.size:
            _check_range(f"the column {each}", column, values.min(), values.max(), files)
    _check_sums(name, columns, facts, files)


def _check_sums(name, columns, facts, files):
    """Raise unless a table fits the other ones."""
    copy, _, part = name.partition("_")
    if name == "queries":
        for each in facts["copies"]:
            n_lists = int(columns[f"{each}_lists"].sum(dtype=float))
            _check_equal(f"lists of {each}", n_lists, files[f"{each}_lists.arrow"]["rows"])
    elif name == "versions":
        _check_versions(columns, facts)
    elif part == "lists":
        n_rows = int(columns["n_rows"].sum(dtype=float))
        _check_equal("rows in lists", n_rows, facts["copies"][copy]["n_rows"])
    elif part == "rows":
        rows = {**facts["copies"][copy]["constants"], **columns}
        if not np.all(rows["clicks"] <= rows["weight"] * _ROUNDING):
            raise ValueError("rows have more clicks than impressions")


def _check_range(what, column, low, high, files):
    """Raise unless values from ``low`` to ``high`` are finite and within bounds."""
    most = column.high
    if isinstance(most, str):
        most = files[f"{most}.arrow"]["rows"] - 1 if f"{most}.arrow" in files else -1
    low = float(low)
    high = float(high)
    if not (column.low <= low <= high <= most and isfinite(low) and isfinite(high)):
        raise ValueError(f"{what} has values from {low:g} to {high:g}; expected others")


def _refuse_infinity(features):
    for start in range(0, len(features), _PART):
        if np.isinf(features[start : start + _PART]).any():
            raise ValueError("features are infinite")


def _check_equal(what, found, expected):
    if found != expected:
        raise ValueError(f"the {what} are {found:,}; expected {expected:,}")


def _check_versions(columns, facts):
    doc = columns["doc"]
    features = columns.get("features")
    steps = np.diff(doc)
    if doc[0] or doc[-1] != facts["n_documents"] - 1 or ((steps < 0) | (steps > 1)).any():
        raise ValueError("the column doc does not rise by steps of one")
    n_features = 0 if features is None else features.shape[1]
    _check_equal("features", n_features, len(facts["feature_names"]))
