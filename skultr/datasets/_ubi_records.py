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
from ._thresholds import LARGEST_ORDINAL, ZERO_BYTES

#: The code of null.
_ABSENT = -1
#: The code of an ordinal that is no whole number from 0.
NO_ORDINAL = -2

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
    # The end of the path: this is the value.
    if not path:
        return record
    record = _mapping(record)
    # The next name alone, as most records have it, and then the longest joined names first.
    for end in (1, *range(len(path), 1, -1)):
        name = ".".join(path[:end])
        if name not in record:
            continue
        found = value_at(record[name], path[end:])
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
    # Numbers have no dictionary.
    coded_events["ordinal"] = _ordinals(events["ordinal"])
    coded_events["time"] = _times(events["time"])
    # Attributes are parsed once, and read for filters and for the place of the page.
    attributes = [_mapping(value) for value in queries["attributes"]]
    queries["filters"] = [_filters(each, filters) for each in attributes]
    coded_queries = _coded(queries, tables)
    coded_queries["time"] = _times(queries["time"])
    for name, keys in (("from", _OFFSETS), ("page", _PAGES), ("size", _SIZES)):
        coded_queries[name] = _ordinals([_first(each, keys) for each in attributes])
    # Hit lists end to end, and the length of each.
    hits = [_list(value) for value in queries["hits"]]
    coded_queries["n_hits"] = np.array([len(each) for each in hits], dtype=np.int32)
    coded_queries["hits"] = _codes(list(chain.from_iterable(hits)), tables, "doc")
    texts = {}
    for name, table in tables.items():
        _, _, *known = table  # the first two are null and the empty text
        texts[name] = [_writable(text) for text in known]
    return Part(coded_events, coded_queries, texts)


def _coded(columns, tables):
    """The columns of texts as codes, and the hashes of the keys."""
    coded = {}
    for name, values in columns.items():
        if name in _CODED and name != "hits":
            coded[name] = _codes(values, tables, name)
    coded["key"] = _hashes(columns["key"])
    return coded


def _codes(values, tables, name):
    """Codes of texts; -1 for null, empty and what is neither text nor number."""
    types = set(map(type, values))
    if not types <= {str}:
        # Most columns hold texts alone, and are not touched.
        values = [_as_text(value) for value in values]
    table = tables.setdefault(name, {None: _ABSENT, "": _ABSENT})
    # A new text gets the number of those before it.
    codes = [table.setdefault(value, len(table) - 2) for value in values]
    return np.array(codes, dtype=np.int32)


def _as_text(value):
    """A text; numbers as JSON writes them, whole floats as integers; None for all else."""
    if type(value) is str:
        return value
    # A bool is an int to Python.
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal):
        # An id that is no number is none.
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else str(float(value))
    return str(value) if isinstance(value, UUID) else None


def _writable(text):
    """The text without the halves of surrogate pairs, which JSON may hold and files may not."""
    # Most texts are ASCII, which needs no check.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _hashes(keys):
    """One number per key; two of them are equal with probability 2^-64."""
    values = np.array([_writable(key) for key in keys], dtype=object)
    return pd.util.hash_array(values, categorize=False)


def _ordinals(values):
    """Whole numbers from 0; -1 where there is none, NO_ORDINAL where there is something else."""
    types = set(map(type, values))
    numbers = values if types <= {int} else [_number(value) for value in values]
    try:
        # One call for the column; most ordinals are whole numbers already.
        found = np.array(numbers, dtype=np.float64)
    except OverflowError:  # a whole number that no float holds
        found = np.array([_number(value) for value in values], dtype=np.float64)
    is_within = (found >= 0) & (found <= LARGEST_ORDINAL.value)
    good = is_within & (found == np.floor(found))
    other = np.where(np.isnan(found), _ABSENT, NO_ORDINAL)
    return np.where(good, found, other).astype(np.int32)


def _number(value):
    """The number; NaN for null, -1 for what is no number."""
    if is_missing(value):
        return np.nan
    # What is something, and no number, is told from what is missing.
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
    texts = pd.Series(texts, dtype=object)
    # With and without a zone; without one, time is that of UTC.
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    found = times.dt.as_unit("us").astype("int64").to_numpy()
    # Without a time a record comes last, and not first, as pandas has it.
    found = np.where(times.isna(), NO_TIME, found)
    is_number = [number is not None for number in numbers]
    found[is_number] = [int(number * 1e3) for number in numbers if number is not None]
    return found


def _milliseconds(value):
    """A number of milliseconds since 1970, up to the year 2255; None for all else."""
    # Texts may hold digits: "1733790000000".
    is_bool = isinstance(value, bool | np.bool_)
    if is_bool or not isinstance(value, int | float | np.integer | np.floating | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < 9e12 else None


def _mapping(value):
    """An object, its JSON text, or a map, which is a list of pairs; else an empty one."""
    if isinstance(value, str):
        value = parsed(value)
    if isinstance(value, list):
        value = _mapping_of_pairs(value)
    return value if isinstance(value, dict) else {}


def _mapping_of_pairs(value):
    """The object that a list of pairs stands for, as Arrow gives a map; None if it is no such."""
    # Arrow gives {"key": ..., "value": ...}, and Python (key, value).
    pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2:
            return None
    return {key: item for key, item in pairs if type(key) is str}


def _list(value):
    """A list, or its JSON text; else an empty one."""
    if isinstance(value, str):
        value = parsed(value)
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _filters(attributes, names):
    """The chosen attributes as one text, such as ``brand=acme, in_stock=true``."""
    # In the order of the parameter, so that equal filters are equal texts.
    chosen = []
    for name in names:
        value = _bare(value_at(attributes, (name,)))
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        chosen.append(f"{name}={text}")
    return ", ".join(chosen)


def _bare(value, depth=9):
    """A filter as equal filters are written by every engine; None if it chooses nothing."""
    if not depth:  # of an object that holds itself there would be no end
        return "nested too deep"
    # Frames hold NumPy's types where JSON has Python's.
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return _bare_mapping(value, depth - 1)
    if isinstance(value, list | tuple):
        items = [_bare(each, depth - 1) for each in value]
        return [item for item in items if item is not None] or None
    return _bare_scalar(value)


def _bare_mapping(value, depth):
    """An object without what is null, in one order: engines with columns for all keys fill in
    nulls, and each has its own order."""
    bare = {}
    for key in sorted(value, key=str):
        item = _bare(value[key], depth)
        if item is not None:
            bare[str(key)] = item
    return bare or None


def _bare_scalar(value):
    """A text, a number or a bool as JSON writes it; whole floats as integers."""
    if isinstance(value, bool | str):
        return None if value == "" else value
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float) else str(value)


def _first(attributes, names):
    """The first attribute of some names that has a value."""
    for name in names:
        value = attributes.get(name)
        if not is_missing(value):
            return value
    return None


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
        # Parts come in the order of the file, so that the last record of an id is the last one
        # here.
        for part in progress(parts, f"part of {name}"):
            # Parts count codes by themselves; here they get those of the whole log.
            new_codes = {domain: self._recode(domain, new) for domain, new in part.texts.items()}
            self._parts["events"].append(_recoded(part.events, new_codes))
            self._parts["queries"].append(_recoded(part.queries, new_codes))
            for fault, lines in part.faults.items():
                n, places = self.faults.get(fault, (0, []))
                n_more = 5 - len(places)  # five examples of each fault are told
                places += [f"{name}, line {before + line}" for line in lines[:n_more]]
                self.faults[fault] = (n + len(lines), places)
            # Lines count over the whole file.
            before += part.n_lines
        self.n_lines += before

    def _recode(self, domain, new):
        """The code in all parts of each text of one part, and -1 for its code -1."""
        # A text of blanks is no id.
        table = self._tables.setdefault(domain, {})
        codes = []
        for text in new:
            codes.append(_ABSENT if text.isspace() else table.setdefault(text, len(table)))
        codes.append(_ABSENT)  # the last one, so that -1 stays -1
        return np.array(codes, dtype=np.int32)

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
        columns = {}
        for name in [*parts[0]]:  # one by one, so that a column is never held twice in memory
            columns[name] = np.concatenate([part.pop(name) for part in parts])
        return columns


def _recoded(columns, new_codes):
    """The columns of a part with the codes of all parts."""
    recoded = {}
    for name, values in columns.items():
        domain = "doc" if name == "hits" else name
        recoded[name] = new_codes[domain][values] if name in _CODED else values
    return recoded


#: Bytes of a piece of a file: one worker reads it at a time.
_PIECE = 1 << 24
#: Bytes of a file from which on worker processes pay for their start.
_LARGE = 1 << 27
#: Lines parsed together.
_BLOCK = 500
_ACTIONS = {"index", "create", "update", "delete"}


def line_parts(path: str, kind: str | None, fields: Fields, n_jobs: int | None) -> Iterator[Part]:
    """Parts of a file of JSON lines, in order."""
    is_compressed = path.lower().endswith((".gz", ".zip"))
    # Unpacked, JSON is about eight times as large.
    large = _LARGE // 8 if is_compressed else _LARGE
    if os.path.getsize(path) < large:
        n_jobs = 1
    elif n_jobs is None:
        n_jobs = -1
    # Workers read plain files by themselves, and get the bytes of compressed ones.
    pieces = _unpacked_pieces(path) if is_compressed else _places(path)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="2*n_jobs")
    return parallel(delayed(_read_piece)(piece, kind, fields) for piece in pieces)


# Pieces: whole lines, and never an action without its document ------------------------
def _places(path):
    """Path, start and end of each piece of a file, so that workers read it themselves."""
    with open(path, "rb") as file:
        start = 0
        # The size when it was opened: a log may grow while it is read.
        size = os.fstat(file.fileno()).st_size
        while start < size:
            # To the next end of a line, and on to the end of a record.
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
                rest_of_line = file.readline()
                yield piece + rest_of_line + _whole_record(file)


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
        found = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be {how} ({found}). Write it again, or {instead}."
        ) from error


def _members(path):
    """The files in a compressed file."""
    if path.lower().endswith(".gz"):
        with gzip.open(path) as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            # Folders, and the copies of names that macOS adds, hold no records.
            if name.endswith("/") or name.startswith("__MACOSX"):
                continue
            with archive.open(name) as file:
                yield BufferedReader(file)


def _whole_record(file):
    """Lines up to the next one that is no action: a piece that ends there ends a record."""
    # At the end of the file, a line is empty, and no action.
    lines = [file.readline()]
    # An action and its document stay in one piece.
    while _is_action(parsed(lines[-1])):
        lines.append(file.readline())
    return b"".join(lines)


def _is_action(document):
    """Whether a document is a line of OpenSearch's bulk format that says what the next one is."""
    if type(document) is not dict or len(document) != 1:
        return False
    ((action, target),) = document.items()
    return action in _ACTIONS and type(target) is dict


# Lines to records ---------------------------------------------------------------------
def _read_piece(piece, kind, fields):
    """The part of a piece, which is bytes, or a path, a start and an end."""
    lines = _lines_of(piece)
    reader = _Reader(fields)
    faults = {}
    action = {}  # what the line before says of the document
    for number, (line, (document, index)) in enumerate(_documents_of(lines), start=1):
        if type(document) is not dict:
            if line.strip():
                faults.setdefault("no JSON object", []).append(number)
            continue
        if len(document) == 1 and index is None and _is_action(document):
            action = next(iter(document.values()))
            continue
        found, document, key = _classified(document, index, action, kind)
        action = {}
        if found is None:
            faults.setdefault("neither a query nor an event", []).append(number)
        else:
            reader.add(found, document, key or line.decode("utf-8", "backslashreplace"))
    # Texts become codes here, in the worker: it returns small arrays.
    part = reader.part()
    part.n_lines = len(lines)
    part.faults = faults
    return part


def _lines_of(piece):
    """The lines of a piece; an error if their bytes are no UTF-8."""
    if isinstance(piece, tuple):
        path, start, end = piece
        with open(path, "rb") as file:
            file.seek(start)
            piece = file.read(end - start)
    if piece.count(0) > ZERO_BYTES.value * len(piece):
        raise ValueError(
            "A file of records is UTF-16 or UTF-32; expected JSON lines in UTF-8. Convert it, for "
            "example with iconv -f UTF-16 -t UTF-8."
        )
    # Without the mark that some editors put before UTF-8, and the end of the last line.
    text = piece.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
    return text.split(b"\n")


def _documents_of(lines):
    """Each line, with its document and the index that it names."""
    for start in range(0, len(lines), _BLOCK):
        block = lines[start : start + _BLOCK]
        yield from zip(block, _documents(block), strict=True)


class _Reader:
    """Values of documents, by kind and column; a document lives no longer than its block."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.places = {"event": fields.events, "query": fields.queries}
        self.columns: dict[str, dict[str, list[Any]]] = {}
        for kind, places in self.places.items():
            self.columns[kind] = {column: [] for column in (*places, "key")}
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
        # The next block starts empty.
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
    """The value of one line, and the index named before a tab."""
    if line.startswith(b"{"):
        return parsed(line), None
    # A tab may also stand within a document that begins with a blank.
    name, tab, rest = line.partition(b"\t")
    name = name.strip()
    if tab and name:
        return parsed(rest), name.decode("utf-8", "replace")
    return parsed(line), None


def _classified(document, index, action, kind):
    """Kind of a document, the document itself and the id that its index gave it, if any."""
    if "_source" in document and type(document["_source"]) is dict:  # a hit of a search
        action = document
        document = document["_source"]
    # The line's own index, or that of the action before it.
    index = index or action.get("_index")
    id_ = action.get("_id")
    # Ids are unique within an index.
    key = None if id_ in (None, "") else f"{index}/{id_}"
    return _kind_of(document, index, kind), document, key


def _kind_of(document, index, kind):
    """Kind of a document: by its action, its index, what was asked for, and its text."""
    if "action_name" in document:
        return "event"
    # Indices are called ubi_events, my-queries, ...
    name = index.lower() if type(index) is str else ""
    if "event" in name:
        return "event"
    if "quer" in name:
        return "query"
    if kind is not None:
        return kind
    return "query" if "user_query" in document else None


def _values(documents, paths):
    """The value of each document at the first path where it has one."""
    if not paths:
        return [None] * len(documents)
    # All documents at once at the first place, and the few without a value at the others.
    values = _at_path(documents, paths[0])
    for path in paths[1:]:
        values = [
            value_at(document, path) if is_missing(value) else value
            for value, document in zip(values, documents, strict=True)
        ]
    return values


def _at_path(documents, path):
    """The value of each document at one path."""
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


#: Rows coded at a time.
_BLOCK_OF_ROWS = 20_000
#: Rows from which on worker processes pay for their start.
_MANY_ROWS = 500_000
_NO_FIELD = (
    "{} has the columns {}. Expected those of UBI: query_id, user_query, action_name, "
    "event_attributes, ..."
)
#: Columns that say which record of an index a row is, and what equal records are equal in.
_KEYS = ("_index", "_id", "timestamp")


def frame_parts(frame: Any, kind: str | None, fields: Fields) -> Iterator[Part]:
    """Parts of a frame of any engine that Narwhals reads."""
    try:
        # Any engine; a lazy one collects only the columns that are read.
        table = nw.from_native(frame)
    except TypeError as error:
        raise TypeError(
            f"Found a {type(frame).__module__}.{type(frame).__name__}; expected a path, a list of "
            "paths, or a frame that Narwhals reads, such as pandas.DataFrame(records)."
        ) from error
    names = table.collect_schema().names()
    wanted = [name for name in names if _is_read(name, fields)]
    if not wanted:
        raise ValueError(_NO_FIELD.format("The frame", names[:20]))
    # Only what is read comes into memory.
    table = table.select(wanted)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    for start in range(0, len(table), _BLOCK_OF_ROWS):
        yield _part(table[start : start + _BLOCK_OF_ROWS], kind, fields)


def parquet_parts(
    path: str, kind: str | None, fields: Fields, n_jobs: int | None
) -> Iterator[Part]:
    """Parts of a Parquet file, of which only the fields that are needed are read."""
    from pyarrow import parquet

    with _reading(path), parquet.ParquetFile(path) as file:
        # The file is closed before workers open it.
        schema = file.schema_arrow
        n_groups = file.num_row_groups
        n_rows = file.metadata.num_rows
    # Leaves of structs, so that the other ones are not read.
    wanted = [name for name in _names(schema) if _is_read(name, fields)]
    if not wanted:
        raise ValueError(_NO_FIELD.format(path, schema.names[:20]))
    if n_rows < _MANY_ROWS or n_groups == 1:
        n_jobs = 1
    elif n_jobs is None:
        n_jobs = -1
    parallel = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="n_jobs")
    read = delayed(_row_group)
    for parts in parallel(read(path, group, wanted, kind, fields) for group in range(n_groups)):
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

    parts = []
    with _reading(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_BLOCK_OF_ROWS, row_groups=[group], columns=wanted):
            table = nw.from_native(Table.from_batches([batch]))
            parts.append(_part(table, kind, fields))
    return parts


def _is_read(name, fields):
    """Whether a column, or a leaf of one, holds or lies within a field."""
    needed = [*_KEYS]
    for places in (*fields.events.values(), *fields.queries.values()):
        needed += [".".join(path) for path in places]
    # With a dot at the end, so that ``user`` does not hold ``user_query``.
    own = f"{name}."
    others = [f"{each}." for each in needed]
    return any(own.startswith(other) or other.startswith(own) for other in others)


def _part(table, kind, fields):
    """The rows as documents, which without an action are queries."""
    reader = _Reader(fields)
    columns = table.columns
    # Attributes in columns of their own (``query_attributes.from``) are one object, as they were.
    places = []
    for name in columns:
        whole, _, rest = name.partition(".")
        places.append((name, "") if whole in columns else (whole, rest))
    # By column, because pandas is slow where it iterates over rows of text.
    values_by_column = [table[name].to_list() for name in columns]
    for values in zip(*values_by_column, strict=True):
        # A row is what a line of JSON would be.
        document = _as_document(places, values)
        index = document.get("_index")
        ids = {"_id": document.get("_id")}
        found, document, key = _classified(document, index, ids, kind or "query")
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
