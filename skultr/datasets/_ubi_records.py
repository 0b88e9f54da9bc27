"""Records of User Behavior Insights as coded columns, from files of JSON lines and from frames.

A door reads documents of JSON or rows of frames block by block and hands the values of each field
to :func:`coded_part`. Texts become codes of a dictionary at once, so that a log of ten million
events needs some forty bytes per event. Large files are read in pieces by worker processes, since
parsing JSON costs more than all else."""

from __future__ import annotations

import gzip
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from io import BufferedReader
from itertools import chain
from typing import Any
from uuid import UUID

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .._base._progress import progress

#: Larger ordinals are taken for mistakes: tables by position would fill memory.
_MAX_ORDINAL = 1_000_000
#: Null, and the code of an ordinal that is none.
_ABSENT, NO_ORDINAL = -1, -2

_OFFSETS = ("from", "start", "offset")
_PAGES = ("page", "page_number", "pageNumber")
_SIZES = ("size", "page_size", "pageSize", "per_page", "rows", "limit", "hits_per_page")
#: Records without a time come last.
NO_TIME = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Fields:
    """Which fields are read: for each column the places of its value, in order of precedence."""

    user: str | None
    filters: tuple[str, ...]

    @property
    def events(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        attributes = "event_attributes"
        return {
            "application": (("application",),),
            "action": (("action_name",),),
            "query_id": (("query_id",),),
            "client": (("client_id",),),
            "user": _user_places(self.user, attributes),
            "text": (("user_query",),),
            "doc": ((attributes, "object", "object_id"),),
            "ordinal": ((attributes, "position", "ordinal"),),
            "time": (("timestamp",),),
        }

    @property
    def queries(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        attributes = "query_attributes"
        return {
            "application": (("application",), (attributes, "application")),
            "query_id": (("query_id",),),
            "client": (("client_id",),),
            "user": _user_places(self.user, attributes),
            "text": (("user_query",),),
            "attributes": ((attributes,),),
            "time": (("timestamp",),),
            # Before 1.3.0 the list had the second name.
            "hits": (("query_response_hit_ids",), ("query_response_object_ids",)),
        }


def _user_places(user, attributes):
    return () if user is None else ((user,), (attributes, user))


@dataclass
class Part:
    """Coded columns of one block; codes count within the part, -1 is null."""

    events: dict[str, NDArray[Any]]
    queries: dict[str, NDArray[Any]]
    texts: dict[str, list[str]]
    n_lines: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)


def value_at(record: Any, path: Sequence[str]) -> Any:
    """The value under a path: in nested objects, JSON text, or names joined by dots."""
    if not path:
        return record
    record = _mapping(record)
    for end in (1, *range(len(path), 1, -1)):
        name = ".".join(path[:end])
        found = value_at(record[name], path[end:]) if name in record else None
        if found is not None:
            return found
    return None


def is_missing(value: Any) -> bool:
    """Whether a value is null in some engine, or an empty text."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or value is pd.NA or (type(value) is str and not value)


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text; None if it is malformed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Values to codes ----------------------------------------------------------------------
#: Columns of codes; those of the hits count in the dictionary of the documents.
_CODED = ("application", "action", "query_id", "client", "user", "text", "doc", "filters", "hits")


def coded_part(
    events: dict[str, list[Any]], queries: dict[str, list[Any]], filters: tuple[str, ...]
) -> Part:
    """The values of a block as codes; ``key`` is the text that names a record."""
    tables: dict[str, dict[Any, int]] = {}
    coded_events = _coded(events, tables)
    coded_events["ordinal"] = _ordinals(events["ordinal"])
    coded_events["time"] = _times(events["time"])
    attributes = [_mapping(value) for value in queries["attributes"]]
    queries["filters"] = [_filters(each, filters) for each in attributes]
    coded_queries = _coded(queries, tables)
    coded_queries["time"] = _times(queries["time"])
    for name, keys in (("from", _OFFSETS), ("page", _PAGES), ("size", _SIZES)):
        coded_queries[name] = _ordinals([_first(each, keys) for each in attributes])
    hits = [_list(value) for value in queries["hits"]]
    coded_queries["n_hits"] = np.array([len(each) for each in hits], dtype=np.int32)
    coded_queries["hits"] = _codes([hit for each in hits for hit in each], tables, "doc")
    texts = {name: [_writable(text) for text in [*table][2:]] for name, table in tables.items()}
    return Part(coded_events, coded_queries, texts)


def _coded(columns, tables):
    coded = {
        name: _codes(values, tables, name)
        for name, values in columns.items()
        if name in _CODED and name != "hits"
    }
    return coded | {"key": _hashes(columns["key"])}


def _codes(values, tables, name):
    """Codes of texts; -1 for null, empty and what is neither text nor number."""
    if not set(map(type, values)) <= {str}:
        values = [_as_text(value) for value in values]
    table = tables.setdefault(name, {None: _ABSENT, "": _ABSENT})
    return np.array([table.setdefault(value, len(table) - 2) for value in values], dtype=np.int32)


def _as_text(value):
    """A text; numbers as JSON writes them, whole floats as integers; None for all else."""
    if type(value) is str:
        return value
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else str(float(value))
    return str(value) if isinstance(value, UUID) else None


def _writable(text):
    """The text without the halves of surrogate pairs, which JSON may hold and files may not."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _hashes(keys):
    values = np.array([_writable(key) for key in keys], dtype=object)
    return pd.util.hash_array(values, categorize=False)


def _ordinals(values):
    """Whole numbers from 0; -1 where there is none, NO_ORDINAL where there is something else."""
    numbers = values if set(map(type, values)) <= {int} else list(map(_number, values))
    try:
        found = np.array(numbers, dtype=np.float64)
    except OverflowError:  # a whole number that no float holds
        found = np.array(list(map(_number, values)), dtype=np.float64)
    good = (found >= 0) & (found <= _MAX_ORDINAL) & (found == np.floor(found))
    return np.where(good, found, np.where(np.isnan(found), _ABSENT, NO_ORDINAL)).astype(np.int32)


def _number(value):
    """The number; NaN for null, -1 for what is no number."""
    if is_missing(value):
        return np.nan
    if isinstance(value, bool | np.bool_ | np.ndarray):
        return -1.0
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return -1.0


def _times(values):
    """Microseconds since 1970 of ISO 8601 texts, times and numbers of milliseconds."""
    numbers = [_milliseconds(value) for value in values]
    texts = [
        value if number is None and isinstance(value, str | date) else None
        for value, number in zip(values, numbers, strict=True)
    ]
    times = pd.to_datetime(
        pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce"
    )
    found = times.dt.as_unit("us").astype("int64").to_numpy()
    found = np.where(times.isna(), NO_TIME, found)
    known = [number is not None for number in numbers]
    found[known] = [int(number * 1e3) for number in numbers if number is not None]
    return found


def _milliseconds(value):
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating | str
    ):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < 9e12 else None  # up to the year 2255


def _mapping(value):
    """An object, its JSON text, or a map, which is a list of pairs; else an empty one."""
    value = parsed(value) if isinstance(value, str) else value
    if isinstance(value, list):
        pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
        if all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
            value = {key: item for key, item in pairs if type(key) is str}
    return value if isinstance(value, dict) else {}


def _list(value):
    value = parsed(value) if isinstance(value, str) else value
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _filters(attributes, names):
    """The chosen attributes as one text, such as ``brand=acme, in_stock=true``."""
    chosen = {name: _bare(value_at(attributes, (name,))) for name in names}
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in chosen.items()
        if value is not None
    )


def _bare(value, depth=9):
    """A filter as equal filters are written by every engine; None if it chooses nothing."""
    if not depth:
        return "nested too deep"
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, dict):
        items = ((str(key), _bare(value[key], depth - 1)) for key in sorted(value, key=str))
        return {key: item for key, item in items if item is not None} or None
    if isinstance(value, list | tuple):
        return [item for each in value if (item := _bare(each, depth - 1)) is not None] or None
    if isinstance(value, bool | str):
        return value if value != "" else None
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float) else str(value)


def _first(attributes, names):
    return next((attributes[name] for name in names if not is_missing(attributes.get(name))), None)


# Parts to one table -------------------------------------------------------------------
class Records:
    """All parts of a log as one table of events and one of query records."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, int]] = {}
        self._parts: dict[str, list[dict[str, NDArray[Any]]]] = {"events": [], "queries": []}
        self.faults: dict[str, tuple[int, list[str]]] = {}
        self.n_lines = 0

    def extend(self, parts: Iterable[Part], name: str) -> None:
        """Take the parts of one file or frame, in order."""
        before = 0
        for part in progress(parts, f"part of {name}"):
            recode = {domain: self._recode(domain, new) for domain, new in part.texts.items()}
            self._parts["events"].append(_recoded(part.events, recode))
            self._parts["queries"].append(_recoded(part.queries, recode))
            for fault, lines in part.faults.items():
                n, places = self.faults.get(fault, (0, []))
                places += [f"{name}, line {before + line}" for line in lines[: 5 - len(places)]]
                self.faults[fault] = (n + len(lines), places)
            before += part.n_lines
        self.n_lines += before

    def _recode(self, domain, new):
        table = self._tables.setdefault(domain, {})
        codes = [_ABSENT if text.isspace() else table.setdefault(text, len(table)) for text in new]
        return np.array([*codes, _ABSENT], dtype=np.int32)  # so that -1 stays -1

    @property
    def n_records(self) -> int:
        return sum(len(part["key"]) for parts in self._parts.values() for part in parts)

    @property
    def texts(self) -> dict[str, list[str]]:
        """The dictionaries, which are let go."""
        return {domain: list(self._tables.pop(domain)) for domain in [*self._tables]}

    def columns(self, kind: str) -> dict[str, NDArray[Any]]:
        """The columns of the "events" or "queries" of all parts, which are let go."""
        parts = self._parts[kind]
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def _recoded(columns, recode):
    return {
        name: recode["doc" if name == "hits" else name][values] if name in _CODED else values
        for name, values in columns.items()
    }


#: Bytes of a piece, and the size from which worker processes pay for their start.
_PIECE = 1 << 24
_LARGE = 1 << 27
#: Lines parsed together.
_BLOCK = 500
_ACTIONS = {"index", "create", "update", "delete"}


def line_parts(path: str, kind: str | None, fields: Fields, n_jobs: int | None) -> Iterator[Part]:
    """Parts of a file of JSON lines, in order."""
    compressed = path.lower().endswith((".gz", ".zip"))
    if os.path.getsize(path) < (_LARGE // 8 if compressed else _LARGE):
        n_jobs = 1
    n_jobs = -1 if n_jobs is None else n_jobs
    pieces = _unpacked_pieces(path) if compressed else _places(path)
    return Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="2*n_jobs")(
        delayed(_read_piece)(piece, kind, fields) for piece in pieces
    )


# Pieces: whole lines, and never an action without its document ------------------------
def _places(path):
    """Path, start and end of each piece of a file, so that workers read it themselves."""
    with open(path, "rb") as file:
        start = 0
        size = os.fstat(file.fileno()).st_size
        while start < size:
            file.seek(start + _PIECE)
            file.readline()
            _whole_record(file)
            end = min(file.tell(), size)
            yield path, start, end
            start = end


def _unpacked_pieces(path):
    """The bytes of each piece of a compressed file."""
    with _reading(path, "unpacked", "unpack it and pass the files that are in it"):
        for file in _members(path):
            while piece := file.read(_PIECE):
                yield piece + file.readline() + _whole_record(file)


@contextmanager
def _reading(
    path, how="read as Parquet", instead="read it with another package and pass the frame"
):
    """Errors of what reads a damaged file, as one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be {how} ({' '.join(str(error).split())}). Write it again, or "
            f"{instead}."
        ) from error


def _members(path):
    if path.lower().endswith(".gz"):
        with gzip.open(path) as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and not name.startswith("__MACOSX"):
                with archive.open(name) as file:
                    yield BufferedReader(file)


def _whole_record(file):
    """Lines up to the next one that is no action: a piece that ends there ends a record."""
    lines = [file.readline()]
    while _is_action(parsed(lines[-1])):
        lines.append(file.readline())
    return b"".join(lines)


def _is_action(document):
    return (
        type(document) is dict
        and len(document) == 1
        and not _ACTIONS.isdisjoint(document)
        and type(next(iter(document.values()))) is dict
    )


# Lines to records ---------------------------------------------------------------------
def _read_piece(piece, kind, fields):
    if isinstance(piece, tuple):
        path, start, end = piece
        with open(path, "rb") as file:
            file.seek(start)
            piece = file.read(end - start)
    if 4 * piece.count(0) > len(piece):  # half of the bytes of UTF-16 are 0, in JSON none is
        raise ValueError(
            "A file of records is UTF-16 or UTF-32; expected JSON lines in UTF-8. Convert it, for "
            "example with iconv -f UTF-16 -t UTF-8."
        )
    lines = piece.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
    reader = _Reader(fields)
    faults = {}
    action = {}
    documents = chain.from_iterable(
        _documents(lines[start : start + _BLOCK]) for start in range(0, len(lines), _BLOCK)
    )
    for number, (document, index) in enumerate(documents, start=1):
        line = lines[number - 1]
        if type(document) is not dict:
            if line.strip():
                faults.setdefault("no JSON object", []).append(number)
        elif len(document) == 1 and index is None and _is_action(document):
            action = next(iter(document.values()))
        else:
            found, document, key = _classified(document, index, action, kind)
            action = {}
            if found is None:
                faults.setdefault("neither a query nor an event", []).append(number)
            else:
                reader.add(found, document, key or line.decode("utf-8", "backslashreplace"))
    part = reader.part()
    part.n_lines = len(lines)
    part.faults = faults
    return part


class _Reader:
    """Values of documents, by kind and column; a document lives no longer than its block."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.places = {"event": fields.events, "query": fields.queries}
        self.columns: dict[str, dict[str, list[Any]]] = {
            kind: {column: [] for column in (*places, "key")}
            for kind, places in self.places.items()
        }
        self._waiting: dict[str, list[Any]] = {"event": [], "query": []}

    def add(self, kind: str, document: dict[str, Any], key: str) -> None:
        """Take the values of a document, which the ``key`` names."""
        self.columns[kind]["key"].append(key)
        self._waiting[kind].append(document)
        if len(self._waiting[kind]) == _BLOCK:
            self._read(kind)

    def part(self) -> Part:
        """All that was taken, coded."""
        for kind in self.places:
            self._read(kind)
        return coded_part(self.columns["event"], self.columns["query"], self.fields.filters)

    def _read(self, kind):
        documents = self._waiting[kind]
        self._waiting[kind] = []
        for column, paths in self.places[kind].items():
            self.columns[kind][column] += _values(documents, paths)


def _documents(lines):
    """The value of each line, None if it is malformed, and the index named before a tab."""
    if all(line.startswith(b"{") for line in lines):
        # One call for all lines costs half as much as one for each. Lines that are malformed make
        # it fail, or make another number of values.
        values = parsed(b"[" + b",\n".join(lines) + b"]")
        if type(values) is list and len(values) == len(lines):
            return [(value, None) for value in values]
    return [_document(line) for line in lines]


def _document(line):
    name, tab, rest = (b"", b"", b"") if line.startswith(b"{") else line.partition(b"\t")
    if tab and name.strip():
        return parsed(rest), name.strip().decode("utf-8", "replace")
    return parsed(line), None


def _classified(document, index, action, kind):
    """Kind of a document, the document itself and the id that its index gave it, if any."""
    if "_source" in document and type(document["_source"]) is dict:  # a hit of a search
        action = document
        document = document["_source"]
    index = index or action.get("_index")
    key = action.get("_id")
    key = None if key in (None, "") else f"{index}/{key}"
    return _kind_of(document, index, kind), document, key


def _kind_of(document, index, kind):
    if "action_name" in document:
        return "event"
    name = index.lower() if type(index) is str else ""
    if "event" in name or "quer" in name:
        return "event" if "event" in name else "query"
    if kind is not None:
        return kind
    return "query" if "user_query" in document else None


def _values(documents, paths):
    """The value of each document at the first path where it has one."""
    if not paths:
        return [None] * len(documents)
    values = _at_path(documents, paths[0])
    for path in paths[1:]:
        values = [
            value_at(document, path) if is_missing(value) else value
            for value, document in zip(values, documents, strict=True)
        ]
    return values


def _at_path(documents, path):
    values = documents
    for name in path:
        values = [value.get(name) if type(value) is dict else None for value in values]
    if len(path) == 1:
        return values
    # JSON text and names joined by dots are rare.
    return [
        value_at(document, path) if value is None else value
        for value, document in zip(values, documents, strict=True)
    ]


#: Rows coded at a time, and the number of rows from which worker processes pay for their start.
_BLOCK_OF_ROWS, _MANY_ROWS = 20_000, 500_000
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
    for start in range(0, len(table), _BLOCK_OF_ROWS):
        yield _part(table[start : start + _BLOCK_OF_ROWS], kind, fields)


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
    with _reading(path), parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        n_groups = file.num_row_groups
        n_rows = file.metadata.num_rows
    wanted = [name for name in _names(schema) if _is_read(name, fields)]
    if not wanted:
        raise ValueError(_NO_FIELD.format(path, schema.names[:20]))
    n_jobs = 1 if n_rows < _MANY_ROWS or n_groups == 1 else -1 if n_jobs is None else n_jobs
    groups = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="n_jobs")(
        delayed(_row_group)(path, group, wanted, kind, fields) for group in range(n_groups)
    )
    for parts in groups:
        yield from parts


def _names(fields, begin=""):
    """Names of columns, and those within structs, joined by dots."""
    from pyarrow.types import is_struct

    for column in fields:
        name = begin + column.name
        if is_struct(column.type):
            yield from _names(column.type, f"{name}.")
        else:
            yield name


def _row_group(path, group, wanted, kind, fields):
    from pyarrow import Table, parquet

    with _reading(path), parquet.ParquetFile(path) as file:
        return [
            _part(nw.from_native(Table.from_batches([batch])), kind, fields)
            for batch in file.iter_batches(_BLOCK_OF_ROWS, row_groups=[group], columns=wanted)
        ]


def _is_read(name, fields):
    """Whether a column, or a leaf of one, holds or lies within a field."""
    paths = [path for group in (fields.events, fields.queries) for path in group.values()]
    needed = [".".join(path) for places in paths for path in places] + list(_KEYS)
    return any(
        f"{name}.".startswith(f"{each}.") or f"{each}.".startswith(f"{name}.") for each in needed
    )


def _part(table, kind, fields):
    """The rows as documents, which without an action are queries."""
    reader = _Reader(fields)
    columns = table.columns
    # Attributes in columns of their own (``query_attributes.from``) are one object, as they were.
    places = [
        (name, "") if whole in columns else (whole, rest)
        for name in columns
        for whole, _, rest in [name.partition(".")]
    ]
    # By column, because pandas is slow where it iterates over rows of text.
    for values in zip(*(table[name].to_list() for name in columns), strict=True):
        document = _as_document(places, values)
        ids = {"_id": document.get("_id")}
        found, document, key = _classified(document, document.get("_index"), ids, kind or "query")
        reader.add(found, document, key or repr(document))
    return reader.part()


def _as_document(places, values):
    """What a row holds, by place: a name, and that in the object there, if it is in one."""
    document = {}
    for (name, part), value in zip(places, values, strict=True):
        if not is_missing(value):
            within = document.setdefault(name, {}) if part else document
            within[part or name] = value
    return document
