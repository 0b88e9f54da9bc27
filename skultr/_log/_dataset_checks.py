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
_COUNTS = _Column("codes", high=_LARGEST)
_QUERIES = {
    "id": _IDS,
    "impressions": _COUNTS,
    "merged_lists": _COUNTS,
    "detailed_lists": _COUNTS._replace(may_be_missing=True),
}
_CANDIDATES = {
    "query": _Column("codes", high="queries"),
    "version": _Column("codes", high="versions"),
    "production": _ROWS["production"],
}
_VERSIONS = {
    "doc": _Column("codes", high="versions"),
    "features": _Column("features", may_be_missing=True),
}
_DOCUMENTS = {
    "id": _Column("codes", high="document_ids"),
    "query": _Column("codes", high="queries", may_be_missing=True),
}
#: The columns of each table.
TABLES = {
    "queries": _QUERIES,
    "candidates": _CANDIDATES,
    "factors": {"bias": _IDS},
    "users": {"id": _IDS},
    "versions": _VERSIONS,
    "documents": _DOCUMENTS,
    "document_ids": {"id": _IDS},
}
# Of the columns of rows, those that are constant stand in the manifest.
_ROWS_OF_COPY = {name: column._replace(may_be_missing=True) for name, column in _ROWS.items()}
for _copy in COPIES:
    TABLES[f"{_copy}_rows"] = _ROWS_OF_COPY
    TABLES[f"{_copy}_lists"] = _LISTS
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
    size = path.stat().st_size
    if n_bytes is not None and size != n_bytes:
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
    needed = {f"{name}.arrow" for name in {*TABLES} - _MAY_BE_MISSING}
    lacking = sorted(needed - {*files})
    if lacking:
        raise ValueError(f"it does not name {lacking[0]}")
    _check_facts(facts, files)
    copies = _dict(facts, "copies")
    if "merged" not in copies or not {*copies} <= {*COPIES}:
        raise ValueError(f"its copies are {[*copies]!r:.80}; expected merged and perhaps detailed")
    for name in copies:
        _check_copy(name, _dict(copies, name), files)


def _dict(found, name):
    if not isinstance(found.get(name), dict):
        raise ValueError(f"its entry {name} is {found.get(name)!r:.40}")
    return found[name]


def _count(found, name, high=_LARGEST):
    """A number of things."""
    number = found.get(name)
    if type(number) is not int or not 0 <= number <= high:  # True is an int, too
        raise ValueError(f"its number {name} is {number!r:.40}")
    return number


def _check_entry(name, entry, known):
    """Raise unless what is said of a file may be so."""
    _count(entry, "crc32")
    n_rows = _count(entry, "rows")
    n_bytes = _count(entry, "bytes")
    if n_rows > n_bytes:  # no column takes less than one byte per row
        raise ValueError(f"{name} would have {n_rows:,} rows in {n_bytes:,} bytes")
    columns = _dict(entry, "columns")
    if not _needed(known) <= {*columns} <= {*known}:
        raise ValueError(f"{name} has the columns {[*columns]!r:.80}; expected {[*known]}")


def _needed(known):
    """Names of the columns that no table may lack."""
    return {name for name, column in known.items() if not column.may_be_missing}


def _check_facts(facts, files):
    """Raise unless names are names, and numbers of things those of rows."""
    # Names: each feature is there once, and roles are known.
    names = facts.get("feature_names")
    if not _are_texts(names) or len({*names}) < len(names):
        raise ValueError(f"feature_names is {names!r:.40}; expected names")
    roles = facts.get("roles")
    if not _are_texts(roles) or not all(map(is_role, roles)):
        raise ValueError(f"roles is {roles!r:.40}; expected names of roles")
    click = facts.get("click")
    if not isinstance(click, str):
        raise ValueError(f"click is {click!r:.40}; expected a name")
    # Numbers: those of the tables.
    n_queries = _count(facts, "n_queries")
    n_rows = files["queries.arrow"]["rows"]
    if n_queries < 1 or n_queries != n_rows:
        raise ValueError(f"n_queries is {n_queries}, and queries.arrow has {n_rows} rows")
    n_documents = _count(facts, "n_documents")
    n_versions = files["versions.arrow"]["rows"]
    if not 1 <= n_documents <= n_versions:
        raise ValueError(f"n_documents is {n_documents}, and versions.arrow has {n_versions} rows")
    _check_ids(n_documents, files)


def _check_ids(n_documents, files):
    """Raise unless all documents have ids, or none has."""
    if ("documents.arrow" in files) is not ("document_ids.arrow" in files):
        raise ValueError("it names one of documents.arrow and document_ids.arrow")
    n_rows = files.get("documents.arrow", {"rows": n_documents})["rows"]
    if n_rows != n_documents:
        raise ValueError(f"n_documents is {n_documents}, and documents.arrow has {n_rows} rows")


def _are_texts(found):
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


def _check_copy(name, copy, files):
    """Raise unless each column of the rows is there once, as one number or in the file."""
    rows = f"{name}_rows.arrow"
    constants = _dict(copy, "constants")
    if rows not in files or f"{name}_lists.arrow" not in files:
        raise ValueError(f"it does not name {rows} or its lists")
    if f"{name}_lists" not in files["queries.arrow"]["columns"]:
        raise ValueError(f"queries.arrow has no column {name}_lists")
    columns = files[rows]["columns"]
    # Each column is in the file or a constant, and not both.
    twice = {*columns} & {*constants}
    are_all = _needed(_ROWS) <= {*columns, *constants} <= {*_ROWS}
    if twice or not are_all:
        raise ValueError(f"its constants are {[*constants]!r:.80}, beside {[*columns]} in {rows}")
    _check_n_rows(name, copy, files)
    for each, value in constants.items():
        _check_constant(each, value, files)


def _check_n_rows(name, copy, files):
    """Raise unless a copy has as many rows as it says."""
    rows = files[f"{name}_rows.arrow"]
    # Without a column, the file has no rows; those that constants stand for take no bytes. More
    # rows than all files have bytes would only fill memory.
    n_bytes = sum(file["bytes"] for file in files.values())
    n_rows = _count(copy, "n_rows", n_bytes)
    stated = rows["rows"] if rows["columns"] else n_rows
    if n_rows == 0 or n_rows != stated:
        raise ValueError(f"n_rows of {name} is {n_rows}, and {name}_rows.arrow has {stated} rows")


def _check_constant(name, value, files):
    """Raise unless a value may stand in all rows of a column."""
    column = _ROWS[name]
    is_number = type(value) in (int, float)
    if not is_number or (column.kind == "codes" and value != value // 1):
        raise ValueError(f"the constant {name} is {value!r:.40}")
    _check_range(f"the constant {name}", column, value, value, files)


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
    # A file is: "ARROW1" and two bytes, a schema, a batch, an index, and "ARROW1" again.
    magic = b"ARROW1"
    n_before = 8
    source = pa.memory_map(str(path))
    place_of_end = source.size() - len(magic)
    if place_of_end < n_before or source.read_at(len(magic), place_of_end) != magic:
        raise ValueError("the end of the file is missing")
    source.seek(n_before)
    # The messages one by one: they may be others than the index at the end of the file names.
    messages = pa.ipc.MessageReader.open_stream(source)
    schema = pa.ipc.read_schema(_next(messages, "schema"))
    _check_schema(pa, schema, columns, TABLES[path.stem])
    message = _next(messages, "record batch")
    _check_body(message)
    batch = pa.ipc.read_record_batch(message, schema)
    if batch.num_rows != n_rows:
        raise ValueError(f"there are {batch.num_rows:,} rows in place of {n_rows:,}")
    # Offsets of texts and lists lie within the file.
    batch.validate(full=True)
    if any(column.null_count for column in batch.columns):
        raise ValueError("values are missing")
    # Rows after the only batch would be read by nobody.
    _next(messages, None)
    return batch


def _check_schema(pa, schema, columns, known):
    """Raise unless the columns are those of the manifest, and of the kinds of the table."""
    found = {field.name: str(field.type) for field in schema}
    if found != columns or len(schema) > len(columns):  # longer: one name occurs twice
        raise ValueError(f"the columns are {schema.names!r:.80}; expected those of meta.json")
    for field in schema:
        if not _is_of_kind(pa.types, field.type, known[field.name].kind):
            raise ValueError(f"the column {field.name} has type {field.type!s:.80}")


def _check_body(message):
    """Raise unless the rows of a batch can be used where they are mapped."""
    if _is_compressed(message.metadata):
        raise ValueError("the rows are compressed; expected bytes that can be mapped")
    body = message.body
    if body is not None and body.size and body.address % 8:
        raise ValueError("the rows begin within a word")


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
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    texts = (types.is_string, types.is_large_string, types.is_temporal)
    bytes_ = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(is_type(found) for is_type in (*numbers, *texts, *bytes_))


def _is_compressed(metadata):
    """Whether a message of a batch, whose form Arrow has verified, names a compression."""
    # PyArrow does not say. The message is a FlatBuffer: tables, each with an index of entries.
    content = bytes(metadata)

    def follow(place):
        """Where an offset, which counts from its own place, points to."""
        return place + struct.unpack_from("<I", content, place)[0]

    def entry(table, number):
        """Where the entry of a table is; 0 if it has none."""
        index = table - struct.unpack_from("<i", content, table)[0]
        (size,) = struct.unpack_from("<H", content, index)
        place = 4 + 2 * number  # after the sizes of index and table, of two bytes each
        if place >= size:
            return 0
        (within,) = struct.unpack_from("<H", content, index + place)
        return table + within if within else 0

    message = follow(0)
    batch = follow(entry(message, 2))  # ``Message.header``
    return entry(batch, 3) > 0  # ``RecordBatch.compression``


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
            is_sorted = (values[1:] > values[:-1]).all()
            if not is_sorted:
                raise ValueError(f"the column {each} is not in order, or has a value twice")
        elif column.kind == "features":
            _refuse_infinity(values)
        elif values.size:
            _check_range(f"the column {each}", column, values.min(), values.max(), files)
    _check_sums(name, columns, facts, files)


def _check_sums(name, columns, facts, files):
    """Raise unless a table fits the other ones."""
    # Such as "merged" and "rows".
    copy, _, part = name.partition("_")
    if name == "queries":
        for each in facts["copies"]:
            # In floats, because whole numbers of a damaged file may overflow.
            n_lists = int(columns[f"{each}_lists"].sum(dtype=float))
            _check_equal(f"lists of {each}", n_lists, files[f"{each}_lists.arrow"]["rows"])
    elif name == "versions":
        _check_versions(columns, facts)
    elif part == "lists":
        n_rows = int(columns["n_rows"].sum(dtype=float))
        _check_equal("rows in lists", n_rows, facts["copies"][copy]["n_rows"])
    elif part == "rows":
        rows = {**facts["copies"][copy]["constants"], **columns}
        # Sums of rates may be a rounding error of float32 above the impressions.
        if not np.all(rows["clicks"] <= rows["weight"] * (1 + 1e-6)):
            raise ValueError("rows have more clicks than impressions")


def _check_range(what, column, low, high, files):
    """Raise unless values from ``low`` to ``high`` are finite and within bounds."""
    most = column.high
    if isinstance(most, str):  # codes are numbers of rows of a table, which may be missing
        table = files.get(f"{most}.arrow", {"rows": 0})
        most = table["rows"] - 1
    low = float(low)
    high = float(high)
    is_within = column.low <= low <= high <= most  # not so if one is NaN
    if not (is_within and isfinite(low) and isfinite(high)):
        raise ValueError(
            f"{what} has values from {low:g} to {high:g}; expected {column.low:g} to {most:g}"
        )


def _refuse_infinity(features):
    step = 1 << 14  # rows whose mask a processor's cache holds
    for start in range(0, len(features), step):
        if np.isinf(features[start : start + step]).any():
            raise ValueError("features are infinite")


def _check_equal(what, found, expected):
    if found != expected:
        raise ValueError(f"the {what} are {found:,}; expected {expected:,}")


def _check_versions(columns, facts):
    doc = columns["doc"]
    features = columns.get("features")
    # Documents are 0, 1, 2, ..., each with one version or more.
    steps = np.diff(doc)
    has_gap = ((steps < 0) | (steps > 1)).any()
    if doc[0] != 0 or doc[-1] != facts["n_documents"] - 1 or has_gap:
        raise ValueError("the column doc does not rise by steps of one")
    n_features = 0 if features is None else features.shape[1]
    _check_equal("features", n_features, len(facts["feature_names"]))
