"""Records of User Behavior Insights as coded columns: what each door makes of its blocks.

A door reads documents of JSON (`_ubi_lines.py`) or rows of frames (`_ubi_frames.py`) block by
block and hands the values of each field to :func:`coded_part`. Texts become codes of a dictionary
at once, so that a log of ten million events needs some forty bytes per event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._progress import progress

#: Larger ordinals are taken for mistakes: tables by position would fill memory.
_MAX_ORDINAL = 1_000_000
#: Null, and the code of an ordinal that is none.
_ABSENT, NO_ORDINAL = -1, -2

_OFFSETS = ("from", "start", "offset")
_PAGES = ("page", "page_number", "pageNumber")
_SIZES = ("size", "page_size", "pageSize", "per_page", "rows", "limit", "hits_per_page")
#: Records without a time come last.
_NO_TIME = np.iinfo(np.int64).max


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
    if path[0] in record:
        return value_at(record[path[0]], path[1:])
    for end in range(len(path), 1, -1):
        name = ".".join(path[:end])
        if name in record:
            return value_at(record[name], path[end:])
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


# --------------------------------------------------------------------------------------
# Values to codes
# --------------------------------------------------------------------------------------
#: Columns of codes; those of the hits count in the dictionary of the documents.
_CODED = ("application", "action", "query_id", "client", "user", "text", "doc", "filters", "hits")


def coded_part(
    events: dict[str, list[Any]], queries: dict[str, list[Any]], filters: tuple[str, ...]
) -> Part:
    """The values of a block as codes; ``key`` is the text that names a record."""
    tables: dict[str, dict[Any, int]] = {}
    coded_events = _coded(events, tables)
    coded_events["ordinal"] = _ordinals(events["ordinal"])
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
    codes = np.where(good, found, np.where(np.isnan(found), _ABSENT, NO_ORDINAL))
    return codes.astype(np.int32)


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
    found = np.where(times.isna(), _NO_TIME, found)
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


# --------------------------------------------------------------------------------------
# Parts to one table
# --------------------------------------------------------------------------------------
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
    def events(self) -> dict[str, NDArray[Any]]:
        return self._whole("events")

    @property
    def queries(self) -> dict[str, NDArray[Any]]:
        return self._whole("queries")

    @property
    def texts(self) -> dict[str, list[str]]:
        """The dictionaries, which are let go."""
        return {domain: list(self._tables.pop(domain)) for domain in [*self._tables]}

    def _whole(self, kind):
        """The columns of all parts, which are let go."""
        parts = self._parts[kind]
        names = [*parts[0]] if parts else []
        whole = {}
        for name in names:
            whole[name] = np.concatenate([part.pop(name) for part in parts])
        return whole


def _recoded(columns, recode):
    return {
        name: recode["doc" if name == "hits" else name][values] if name in _CODED else values
        for name, values in columns.items()
    }
