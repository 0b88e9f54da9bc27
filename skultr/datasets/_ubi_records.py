"""Records of User Behavior Insights as tables of codes, from files of JSON lines and from frames.

A source is read in blocks: pieces of a file, or some rows of a frame. A block becomes documents of
JSON, and these become columns of codes, where -1 is null. Large files are read by worker
processes, since parsing JSON costs more than all else. A log of ten million events needs some
forty bytes per event."""

from __future__ import annotations

import gzip
import json
import math
import os
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from io import BufferedReader
from itertools import chain, islice
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
#: Records without a time come last.
NO_TIME = np.iinfo(np.int64).max

#: Bytes of a piece of a file: one worker reads it at a time.
_PIECE = 1 << 22
#: Documents that are read at a time.
_BATCH = 500
#: Rows of a frame that are read at a time.
_ROWS = 20_000
#: Bytes of a file from which on worker processes pay for their start.
_LARGE = 1 << 27
#: Endings of files that are some eight times as large in memory.
_COMPRESSED = (".gz", ".zip", ".parquet", ".pq")

#: Where a page of results begins, by the names that applications have for it.
_PAGING = {
    "from": ("from", "start", "offset"),
    "page": ("page", "page_number", "pageNumber"),
    "size": ("size", "page_size", "pageSize", "per_page", "rows", "limit", "hits_per_page"),
}
#: Beginnings of the columns of further attributes: those of a page, and those of a document.
OF_PAGE = "of page "
OF_DOC = "of document "
#: Names in records that are no further attributes.
_KNOWN = {
    "_id",
    "_index",
    "_source",
    "action_name",
    "application",
    "client_id",
    "event_attributes",
    "object",
    "object_detail",
    "object_id",
    "position",
    "position.ordinal",
    "query_attributes",
    "query_id",
    "query_response_hit_ids",
    "query_response_object_ids",
    "timestamp",
    "user_query",
}
#: Columns that say which record of an index a row is, and what equal records are equal in.
_KEYS = ("_index", "_id", "timestamp")
#: Actions of OpenSearch's bulk format.
_ACTIONS = {"index", "create", "update", "delete"}


@dataclass(frozen=True)
class Fields:
    """Which fields are read beside those that every log needs."""

    user: str | None
    filters: tuple[str, ...]
    attributes: tuple[str, ...]

    def places(self, kind: str) -> dict[str, list[tuple[str, ...]]]:
        """For each column of the records of a kind the places of its value, the best first."""
        own = f"{kind}_attributes"
        places = {
            "application": [("application",)],
            "query_id": [("query_id",)],
            "client": [("client_id",)],
            "user": [] if self.user is None else [(self.user,), (own, self.user)],
            "text": [("user_query",)],
            "time": [("timestamp",)],
        }
        for name in self.attributes:
            path = tuple(_in_object(name).split("."))
            places[f"{OF_PAGE}{name}"] = [(own, *path), path]
            if kind == "event":
                # Version 1.3.0 has a place of its own for what a client adds.
                detail = (own, "object", "object_detail", *path)
                places[f"{OF_DOC}{name}"] = [(own, "object", *path), detail]
        if kind == "event":
            return places | {
                "action": [("action_name",)],
                "doc": [(own, "object", "object_id")],
                "ordinal": [(own, "position", "ordinal")],
            }
        return places | {
            "application": [("application",), (own, "application")],
            "attributes": [(own,)],
            # Before 1.3.0 the list had the second name.
            "hits": [("query_response_hit_ids",), ("query_response_object_ids",)],
        }


@dataclass
class Part:
    """Coded columns of one block by kind of record; codes count within the part."""

    columns: dict[str, dict[str, NDArray[Any]]]
    texts: dict[str, list[str]]
    names: set[str] = field(default_factory=set)
    n_lines: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)


class Records:
    """All parts of a log as one table of events and one of query records."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, int]] = {}
        self._parts: dict[str, list[dict[str, NDArray[Any]]]] = {"event": [], "query": []}
        self.faults: dict[str, tuple[int, list[str]]] = {}
        self.names: set[str] = set()
        self.n_lines = 0

    def extend(self, parts: Iterable[Part], name: str) -> None:
        """Take the parts of one file or frame, in order."""
        before = self.n_lines
        # Parts come in the order of the file, so that the last record of an id is the last one
        # here.
        for part in progress(parts, f"part of {name}"):
            # Parts count codes by themselves; here they get those of the whole log.
            codes = {domain: self._recode(domain, new) for domain, new in part.texts.items()}
            for kind, columns in part.columns.items():
                for column, values in columns.items():
                    domain = "doc" if column == "hits" else column
                    if domain in codes:
                        columns[column] = codes[domain][values]
                self._parts[kind].append(columns)
            # Lines count over the whole file.
            lines_before = self.n_lines - before
            for fault, lines in part.faults.items():
                n, places = self.faults.get(fault, (0, []))
                n_more = 5 - len(places)  # five examples of each fault are told
                places += [f"{name}, line {lines_before + line}" for line in lines[:n_more]]
                self.faults[fault] = (n + len(lines), places)
            self.n_lines += part.n_lines
            self.names |= part.names

    def _recode(self, domain, new):
        """The code in all parts of each text of one part, and -1 for its code -1."""
        table = self._tables.setdefault(domain, {})
        # A text of blanks is no id.
        codes = [_ABSENT if text.isspace() else table.setdefault(text, len(table)) for text in new]
        # The last one, so that -1 stays -1.
        return np.array([*codes, _ABSENT], dtype=np.int32)

    @property
    def n_records(self) -> int:
        return sum(len(part["key"]) for parts in self._parts.values() for part in parts)

    @property
    def texts(self) -> dict[str, list[str]]:
        """The dictionaries, which are let go."""
        return {domain: list(self._tables.pop(domain)) for domain in [*self._tables]}

    def columns(self, kind: str) -> dict[str, NDArray[Any]]:
        """The columns of the records of a kind, which are let go."""
        parts = self._parts[kind]
        # One by one, so that a column is never held twice in memory.
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def read_parts(
    source: Any, kind: str | None, fields: Fields, n_jobs: int | None
) -> Iterator[Part]:
    """Parts of a file or a frame, in order."""
    is_large = False
    if not isinstance(source, str | os.PathLike):
        blocks = _rows(source, fields)
    else:
        path = os.fspath(source)
        ending = os.path.splitext(path)[1].lower()
        # Which files of a folder belong to the log, only the user knows.
        if os.path.isdir(path):
            raise ValueError(
                f"{path} is a folder. Expected files: pass a list of those in it, such as "
                f"sorted(pathlib.Path({path!r}).glob('*.parquet'))."
            )
        large = _LARGE // 8 if ending in _COMPRESSED else _LARGE
        is_large = os.path.getsize(path) >= large
        blocks = _batches(path, fields) if ending in (".parquet", ".pq") else _pieces(path)
    if not is_large:
        n_jobs = 1
    elif n_jobs is None:
        n_jobs = -1
    parallel = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="2*n_jobs")
    return parallel(delayed(_part)(block, kind, fields) for block in blocks)


# Files to pieces: whole lines, and never an action without its document ---------------
def _pieces(path):
    """The bytes of each piece of a file."""
    with _reading(path, "unpacked", "unpack it and pass the files that are in it"):
        for file in _members(path):
            while piece := file.read(_PIECE):
                line = file.readline()
                piece += line
                # An action and its document stay in one piece.
                line = file.readline()
                piece += line
                while _is_action(parsed(line)):
                    line = file.readline()
                    piece += line
                yield piece


def _members(path):
    """The files in a file, which is open as long as they are read."""
    if path.lower().endswith(".gz"):
        with gzip.open(path) as file:
            yield file
    elif path.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                # Folders, and the copies of names that macOS adds, hold no records.
                if not name.endswith("/") and not name.startswith("__MACOSX"):
                    with archive.open(name) as file:
                        yield BufferedReader(file)
    else:
        with open(path, "rb") as file:
            yield file


@contextmanager
def _reading(path, how, instead):
    """Errors of what reads a damaged file, as one sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        found = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be {how} ({found}). Write it again, or {instead}."
        ) from error


def _is_action(document):
    """Whether a document is a line of OpenSearch's bulk format that says what the next one is."""
    if type(document) is not dict or len(document) != 1:
        return False
    ((action, target),) = document.items()
    return action in _ACTIONS and type(target) is dict


# Tables to blocks of rows -------------------------------------------------------------
def _rows(frame, fields):
    """Blocks of rows of a frame of any engine that Narwhals reads."""
    try:
        # Any engine; a lazy one collects only the columns that are read.
        table = nw.from_native(frame).lazy()
    except TypeError as error:
        raise TypeError(
            f"Found a {type(frame).__module__}.{type(frame).__name__}; expected a path, a list of "
            "paths, or a frame that Narwhals reads, such as pandas.DataFrame(records)."
        ) from error
    names = table.collect_schema().names()
    table = table.select(_wanted(names, names, "The frame", fields)).collect()
    for start in range(0, len(table), _ROWS):
        yield table[start : start + _ROWS]


def _batches(path, fields):
    """Blocks of rows of a Parquet file, of which only the fields that are needed are read."""
    from pyarrow import Table, parquet

    how = (path, "read as Parquet", "read it with another package and pass the frame")
    with _reading(*how):
        schema = parquet.read_schema(path)
    wanted = _wanted([*_leaves(schema)], schema.names, path, fields)
    with _reading(*how), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=wanted):
            yield Table.from_batches([batch])


def _leaves(columns, begin=""):
    """Names of columns, and those within structs, joined by dots."""
    from pyarrow.types import is_struct

    for column in columns:
        name = begin + column.name
        if is_struct(column.type):
            yield from _leaves(column.type, f"{name}.")
        else:
            yield name


def _wanted(names, columns, source, fields):
    """Those names that hold a field, or lie within one."""
    paths = [(key,) for key in _KEYS]
    for kind in ("event", "query"):
        paths += chain.from_iterable(fields.places(kind).values())
    if fields.attributes:
        # An attribute may stand anywhere, and where one is not found the others are told.
        return names
    # With a dot at the end, so that ``user`` does not hold ``user_query``.
    needed = [".".join([*path, ""]) for path in paths]
    found = []
    for name in names:
        own = f"{name}."
        if any(own.startswith(other) or other.startswith(own) for other in needed):
            found.append(name)
    if not found:
        raise ValueError(
            f"{source} has the columns {columns[:20]}. Expected those of UBI: query_id, "
            "user_query, action_name, event_attributes, ..."
        )
    return found


# Blocks to documents ------------------------------------------------------------------
def _part(block, kind, fields):
    """The coded records of a block: the bytes of lines, or rows of a table."""
    part = Part({}, {})
    if isinstance(block, bytes):
        lines = _lines(block)
        part.n_lines = len(lines)
        rows = _of_lines(lines)
    else:
        rows = _of_rows(nw.from_native(block))
        kind = kind or "query"  # if it has no action
    values = _values_of_rows(rows, kind, fields, part)
    # Texts become codes here, in the worker: it returns small arrays.
    tables = defaultdict(lambda: {None: _ABSENT, "": _ABSENT})
    for each, found in values.items():
        keys = _hashes(found.pop("key"))
        part.columns[each] = _coded(found, fields, tables) | {"key": keys}
    for name, table in tables.items():
        _, _, *texts = table  # the first two are null and the empty text
        part.texts[name] = [writable(text) for text in texts]
    return part


def _values_of_rows(rows, kind, fields, part):
    """The values of documents by kind and column; the part takes what is said of them."""
    columns = {each: fields.places(each) for each in ("event", "query")}
    values = {each: {name: [] for name in ("key", *columns[each])} for each in columns}
    # A document lives no longer than its batch: where many live, Python looks for garbage long.
    while batch := list(islice(rows, _BATCH)):
        documents = _classified_batch(batch, kind, values, part.faults)
        for each, found in documents.items():
            for name, places in columns[each].items():
                values[each][name] += _values(found, places)
        if fields.attributes:
            part.names.update(*map(_attribute_names, chain(*documents.values())))
    return values


def _classified_batch(batch, kind, values, faults):
    """The documents of a batch by kind; takes their keys, and notes what is no document."""
    documents = {"event": [], "query": []}
    for number, line, document, index, ids in batch:
        if type(document) is not dict:
            faults.setdefault("no JSON object", []).append(number)
            continue
        found, document, key = _classified(document, line, index, ids, kind)
        if found is None:
            faults.setdefault("neither a query nor an event", []).append(number)
        else:
            documents[found].append(document)
            values[found]["key"].append(key)
    return documents


def _lines(piece):
    """The lines of a piece; an error if their bytes are no UTF-8."""
    if piece.count(0) > ZERO_BYTES.value * len(piece):
        raise ValueError(
            "A file of records is UTF-16 or UTF-32; expected JSON lines in UTF-8. Convert it, for "
            "example with iconv -f UTF-16 -t UTF-8."
        )
    # Without the mark that some editors put before UTF-8, and the end of the last line.
    text = piece.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
    return text.split(b"\n")


def _of_lines(lines):
    """Number, line, value, index and ids of each line that is neither blank nor an action."""
    action = {}
    batches = (lines[start : start + _BATCH] for start in range(0, len(lines), _BATCH))
    found = chain.from_iterable(map(_parsed_lines, batches))
    for number, (line, (document, index)) in enumerate(zip(lines, found, strict=True), start=1):
        if index is None and _is_action(document):
            # What it says holds for the next document.
            action = next(iter(document.values()))
        elif type(document) is dict:
            yield number, line, document, index, action
            action = {}
        elif line.strip():
            yield number, line, document, index, action


def _parsed_lines(lines):
    """The value of each line, None if it is malformed, and the index named before a tab."""
    if all(line.startswith(b"{") for line in lines):
        # One call for all lines costs half as much as one for each. Lines that are malformed make
        # it fail, or make another number of values.
        values = parsed(b"[" + b",\n".join(lines) + b"]")
        if type(values) is list and len(values) == len(lines):
            return [(value, None) for value in values]
    return [_parsed_line(line) for line in lines]


def _parsed_line(line):
    """The value of one line, and the index named before a tab."""
    name, tab, rest = line.partition(b"\t")
    name = name.strip()
    # A tab may also stand within a document, or behind blanks.
    if tab and name and not line.startswith(b"{"):
        return parsed(rest), name.decode("utf-8", "replace")
    return parsed(line), None


def _of_rows(table):
    """The same of rows, whose documents are what a line of JSON would be."""
    # Attributes in columns of their own (``query_attributes.from``) are one object, as they were.
    places = []
    for name in table.columns:
        whole, _, rest = name.partition(".")
        places.append((name, "") if whole in table.columns else (whole, rest))
    # By column, because pandas is slow where it iterates over rows of text.
    columns = [table[name].to_list() for name in table.columns]
    for values in zip(*columns, strict=True):
        document = {}
        for (name, part), value in zip(places, values, strict=True):
            if not is_missing(value):
                within = document.setdefault(name, {}) if part else document
                within[part or name] = value
        yield 0, None, document, None, document


def _classified(document, line, index, ids, kind):
    """Kind of a document, the document itself, and the text in which equal records are equal."""
    # A hit of a search holds the document.
    if type(document.get("_source")) is dict:
        ids = document
        document = document["_source"]
    index = index or ids.get("_index")
    found = _kind_of(document, index, kind)
    # Ids are unique within an index; without one, records are equal if they hold the same.
    id_ = ids.get("_id")
    if id_ not in (None, ""):
        return found, document, f"{index}/{id_}"
    if line is None:
        return found, document, repr(document)
    return found, document, line.decode("utf-8", "backslashreplace")


def _kind_of(document, index, kind):
    """Kind of a document: by its action, its index, what was asked for, and its text."""
    # Indices are called ubi_events, my-queries, ...
    name = index.lower() if type(index) is str else ""
    if "action_name" in document or "event" in name:
        return "event"
    if "quer" in name:
        return "query"
    if kind is None and "user_query" in document:
        return "query"
    return kind


def _attribute_names(document):
    """Names of the attributes of a document, also of those that nothing asks for."""
    names = [*document]
    for own in ("event_attributes", "query_attributes"):
        attributes = _mapping(document.get(own))
        item = _mapping(attributes.get("object"))
        names += [*attributes, *item, *_mapping(item.get("object_detail"))]
    return set(map(_in_object, names)) - _KNOWN


def _in_object(name):
    """The name of an attribute without that of the object that it is in."""
    return name.removeprefix("object.").removeprefix("object_detail.")


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text; None if it is malformed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Documents to values ------------------------------------------------------------------
def _values(documents, places):
    """The value of each document at the first place where it has one."""
    if not places:
        return [None] * len(documents)
    first, *others = places
    values = documents
    # All documents at once at the first place, and the few without a value at the others.
    for name in first:
        values = [value.get(name) if type(value) is dict else None for value in values]
    # Of more than one name, some may be joined by dots, or stand in JSON text.
    if len(first) > 1 and type(None) in set(map(type, values)):
        others = places
    for place in others:
        values = [
            value_at(document, place) if is_missing(value) else value
            for value, document in zip(values, documents, strict=True)
        ]
    return values


def value_at(record: Any, path: Sequence[str]) -> Any:
    """The value under a path: in nested objects, JSON text, or names joined by dots."""
    # The end of the path: this is the value.
    if not path:
        return record
    record = _mapping(record)
    # The next name alone, as most records have it, and then the longest joined names first.
    for end in (1, *range(len(path), 1, -1)):
        found = record.get(".".join(path[:end]))
        if found is not None:
            found = value_at(found, path[end:])
        if found is not None:
            return found
    return None


def is_missing(value: Any) -> bool:
    """Whether a value is null in some engine, or an empty text."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or value is pd.NA or (type(value) is str and not value)


def _mapping(value):
    """An object, its JSON text, or a map, which is a list of pairs; else an empty one."""
    if isinstance(value, str):
        value = parsed(value)
    if isinstance(value, list):
        # Arrow gives {"key": ..., "value": ...}, and Python (key, value).
        pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
        value = dict(filter(_has_name, pairs)) if all(map(_is_pair, pairs)) else {}
    return value if isinstance(value, dict) else {}


def _is_pair(value):
    return type(value) is tuple and len(value) == 2


def _has_name(pair):
    return type(pair[0]) is str


def _list(value):
    """A list, or its JSON text; else an empty one."""
    if isinstance(value, str):
        value = parsed(value)
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _first(attributes, names):
    """The first attribute of some names that has a value."""
    for name in names:
        if name in attributes and not is_missing(attributes[name]):
            return attributes[name]
    return None


def _filters(attributes, names):
    """The chosen attributes as one text, such as ``brand=acme, in_stock=true``."""
    # In the order of the parameter, so that equal filters are equal texts.
    chosen = []
    for name in names:
        value = _bare(value_at(attributes, (name,)))
        if value is not None:
            is_text = isinstance(value, str)
            text = value if is_text else json.dumps(value, ensure_ascii=False)
            chosen.append(f"{name}={text}")
    return ", ".join(chosen)


def _bare(value, depth=9):
    """A value as equal ones are written by every engine; None if it says nothing."""
    if not depth:  # of an object that holds itself there would be no end
        return "nested too deep"
    # Frames hold NumPy's types where JSON has Python's.
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        # Engines with columns for all keys fill in nulls, and each has its own order.
        keys = sorted(value, key=str)
        items = _without_nulls((str(key), _bare(value[key], depth - 1)) for key in keys)
        return dict(items) or None
    if isinstance(value, list | tuple):
        items = _without_nulls((None, _bare(each, depth - 1)) for each in value)
        return [item for _, item in items] or None
    return _bare_scalar(value)


def _without_nulls(pairs):
    return [(key, item) for key, item in pairs if item is not None]


def _bare_scalar(value):
    """A text, a number or a bool as JSON writes it; whole floats as integers."""
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float) else str(value)


# Values to codes ----------------------------------------------------------------------
def _coded(values, fields, tables):
    """The columns of values of one kind of record as codes, whole numbers and times."""
    coded = {}
    if "attributes" in values:
        # Attributes are parsed once, and read for filters and for the place of the page.
        attributes = list(map(_mapping, values.pop("attributes")))
        values["filters"] = [_filters(each, fields.filters) for each in attributes]
        for name, keys in _PAGING.items():
            values[name] = [_first(each, keys) for each in attributes]
        # Hit lists end to end, and the length of each.
        hits = list(map(_list, values["hits"]))
        values["hits"] = list(chain.from_iterable(hits))
        coded["n_hits"] = np.array(list(map(len, hits)), dtype=np.int32)
    for name, found in values.items():
        if name in _NUMBERS:
            coded[name] = _NUMBERS[name](found)
        elif name.startswith((OF_PAGE, OF_DOC)):
            coded[name] = _codes(list(map(_json, found)), tables[name])
        else:
            # Hits are documents.
            coded[name] = _codes(found, tables["doc" if name == "hits" else name])
    return coded


def _json(value):
    """A value as JSON, which tells the text "7" from the number 7; None for null."""
    bare = _bare(value)
    return None if bare is None else json.dumps(bare)


def _codes(values, table):
    """Codes of texts; -1 for null, empty and what is neither text nor number."""
    if not set(map(type, values)) <= {str}:
        # Most columns hold texts alone, and are not touched.
        values = [_as_text(value) for value in values]
    # A new text gets the number of those before it.
    codes = [table.setdefault(value, len(table) - 2) for value in values]
    return np.array(codes, dtype=np.int32)


def _as_text(value):
    """A text; numbers as JSON writes them, whole floats as integers; None for all else."""
    match value:
        case str():
            return value
        case bool() | np.bool_():  # which is an int to Python
            return None
        case int() | np.integer() | UUID():
            return str(value)
        case float() | np.floating() | Decimal() if math.isfinite(value):
            return str(int(value)) if value == int(value) else str(float(value))
        case _:
            return None


def writable(text: str) -> str:
    """The text without the halves of surrogate pairs, which JSON may hold and files may not."""
    # Most texts are ASCII, which needs no check.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _hashes(keys):
    """One number per key; two of them are equal with probability 2^-64."""
    values = np.array([writable(key) for key in keys], dtype=object)
    return pd.util.hash_array(values, categorize=False)


def _ordinals(values):
    """Whole numbers from 0; -1 where there is none, NO_ORDINAL where there is something else."""
    numbers = _numbers(values)
    is_whole = (numbers >= 0) & (numbers <= LARGEST_ORDINAL.value) & (numbers == np.floor(numbers))
    ordinals = np.where(is_whole, numbers, NO_ORDINAL).astype(np.int32)
    is_null = [row for row in np.flatnonzero(~is_whole) if is_missing(values[row])]
    ordinals[is_null] = _ABSENT
    return ordinals


def _times(values):
    """Microseconds since 1970 of ISO 8601 texts, times and numbers of milliseconds."""
    # With and without a zone; without one, time is that of UTC.
    texts = [value if _may_be_time(value) else None for value in values]
    texts = pd.Series(texts, dtype=object)
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    found = times.dt.as_unit("us").astype("int64").to_numpy(copy=True)
    # Without a time a record comes last, and not first, as pandas has it.
    found[times.isna()] = NO_TIME
    # Milliseconds up to the year 2255, as numbers or as texts of digits.
    others = np.flatnonzero(times.isna())
    numbers = _numbers([values[row] for row in others])
    is_number = (numbers >= 0) & (numbers < 9e12)
    found[others[is_number]] = (1e3 * numbers[is_number]).astype(np.int64)
    return found


def _may_be_time(value):
    """Whether the value is a time, or a text of the characters of ISO 8601."""
    if isinstance(value, str):
        # pandas fails on halves of surrogate pairs, which JSON may hold.
        return value.isascii()
    return isinstance(value, date)


def _numbers(values):
    """Numbers, and those in texts; NaN for all else."""
    # A bool is an int to Python.
    bools = (bool, np.bool_)
    plain = [None if isinstance(value, bools) else value for value in values]
    try:
        numbers = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce")
    except OverflowError:  # a whole number that no float holds
        texts = pd.Series(map(str, plain), dtype=object)
        numbers = pd.to_numeric(texts, errors="coerce")
    return numbers.to_numpy(np.float64)


#: How the columns are read that hold no texts.
_NUMBERS = {"time": _times} | dict.fromkeys(("ordinal", *_PAGING), _ordinals)
