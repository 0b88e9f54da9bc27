"""Files of JSON lines: bulk ndjson, plain ndjson, and lines that begin with an index and a tab.

Large files are read in pieces by worker processes, since parsing JSON costs more than all else.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

from joblib import Parallel, delayed

from ._ubi_records import Fields, Part, coded_part, parsed, value_at

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


# --------------------------------------------------------------------------------------
# Pieces: whole lines, and never an action without its document
# --------------------------------------------------------------------------------------
def _places(path):
    """Path, start and end of each piece of a file, so that workers read it themselves."""
    with open(path, "rb") as file:
        start, size = 0, os.fstat(file.fileno()).st_size
        while start < size:
            file.seek(start + _PIECE)
            file.readline()
            _whole_record(file)
            end = min(file.tell(), size)
            yield path, start, end
            start = end


def _unpacked_pieces(path):
    """The bytes of each piece of a compressed file."""
    try:
        for file in _members(path):
            while piece := file.read(_PIECE):
                yield piece + file.readline() + _whole_record(file)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be unpacked ({error}). Write it again, or unpack it and pass the "
            "files that are in it."
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


# --------------------------------------------------------------------------------------
# Lines to records
# --------------------------------------------------------------------------------------
def _read_piece(piece, kind, fields):
    if isinstance(piece, tuple):
        path, start, end = piece
        with open(path, "rb") as file:
            file.seek(start)
            piece = file.read(end - start)
    lines = piece.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    reader = _LineReader(kind, fields)
    for start in range(0, len(lines), _BLOCK):
        reader.read(lines[start : start + _BLOCK])
    part = coded_part(reader.columns["event"], reader.columns["query"], fields.filters)
    part.n_lines, part.faults = len(lines), reader.faults
    return part


class _LineReader:
    """Values of the records of consecutive lines, by kind and column."""

    def __init__(self, kind: str | None, fields: Fields) -> None:
        self.kind = kind
        self.places = {"event": fields.events, "query": fields.queries}
        self.columns: dict[str, dict[str, list[Any]]] = {
            name: {column: [] for column in (*places, "key")}
            for name, places in self.places.items()
        }
        self.faults: dict[str, list[int]] = {}
        self._action: dict[str, Any] = {}
        self._n_lines = 0

    def read(self, lines: list[bytes]) -> None:
        """Take the values of a block of lines; the documents live no longer than this."""
        found: dict[str, list[Any]] = {"event": [], "query": []}
        for line, (document, index) in zip(lines, _documents(lines), strict=True):
            self._n_lines += 1
            if type(document) is not dict:
                if line.strip():
                    self._fault("no JSON object")
            elif len(document) == 1 and index is None and _is_action(document):
                self._action = next(iter(document.values()))
            else:
                kind, document, key = _classified(document, index, self._action, self.kind)
                self._action = {}
                if kind is None:
                    self._fault("neither a query nor an event")
                    continue
                found[kind].append(document)
                self.columns[kind]["key"].append(key or line.decode("utf-8", "backslashreplace"))
        for kind, documents in found.items():
            for column, paths in self.places[kind].items():
                self.columns[kind][column] += _values(documents, paths)

    def _fault(self, name):
        self.faults.setdefault(name, []).append(self._n_lines)


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
        action, document = document, document["_source"]
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
        if all(values):
            break
        values = [
            value_at(document, path) if value in (None, "") else value
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
