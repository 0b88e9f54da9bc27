"""Codes and features of the documents of a log on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from .._base._progress import progress
from .._base._typing import Ints
from ..exceptions import python_value
from ._dataset_files import Manifest
from ._dataset_rows import FeatureRanges, SpreadRows, feature_names, read_feature_rows
from ._faults import count_of
from ._hashing import mix
from ._segments import encode

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of features that are copied at a time.
_ROWS = 1 << 16


class DocumentCodes:
    """Final codes of queries, documents and their versions, in the order of a log in memory.

    ``ids`` are sorted ids of documents (None where documents are equal rows of features), and
    ``doc_id``, ``doc_query`` rank and query of each document (None with global ids).
    """

    def __init__(self, rows: SpreadRows) -> None:
        self.rows = rows
        self.query_ids = rows.query.ids
        if not rows.has_docs:
            self._of_features()
        else:
            self.ids = rows.doc.ids
            self.doc_query, self.doc_id = None, np.arange(len(self.ids))
            if rows.scope == "query":
                self._of_pairs()
        self.doc_of_version, self._keys = np.arange(len(self)), None
        if "hash" in rows.row_type.names:
            self._find_versions()

    def __len__(self) -> int:
        return len(self.doc_id)

    def of_rows(self, rows: NDArray[Any], query: Ints) -> Ints:
        """Final code of the document of each row."""
        if self.ids is None:
            return np.searchsorted(self.hashes, rows["doc"])
        return self.of_ids(
            self.rows.doc.ranks(np.ascontiguousarray(rows["doc"]).view(np.int64)), query
        )

    def of_ids(self, id_: Ints, query: Ints | None) -> Ints:
        """Final code of documents by the rank of their id, and their query."""
        if self.doc_query is None:
            return id_
        if self._of_id is not None:
            return self._of_id[id_]
        return np.searchsorted(self.pairs, query * len(self.ids) + id_)

    def versions(self, rows: NDArray[Any], doc: Ints) -> Ints:
        """Final code of the version of each row, given its document."""
        if self._keys is None:
            return doc
        return self._order[np.searchsorted(self._keys, _version_keys(doc, rows["hash"]))]

    def _find_versions(self):
        """Versions are the distinct vectors of a document, sorted by document and hash."""
        doc, hashes = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        for file in self.rows.files("features"):
            found = self.rows.read(file)
            of_file = self.of_rows(found, self.rows.query.ranks(found["query"]))
            some = _distinct(of_file, found["hash"])
            doc, hashes = np.append(doc, some[0]), np.append(hashes, some[1])
        doc, hashes = _distinct(doc, hashes)
        if len(doc) > len(self):
            keys = _version_keys(doc, hashes)
            self.doc_of_version, self._order = doc, np.argsort(keys)
            self._keys = keys[self._order]

    def _of_features(self):
        """Documents are equal rows of features, coded in the order of their hashes."""
        files = self.rows.files()
        found = [np.unique(self.rows.read(file)["doc"]) for file in files]
        self.hashes = np.unique(np.concatenate(found))
        self.ids, self.doc_query, self.doc_id = None, None, np.arange(len(self.hashes))

    def _of_pairs(self):
        """Ids identify documents of their query."""
        found = []
        for file in self.rows.files():
            rows = self.rows.read(file)
            query = self.rows.query.ranks(rows["query"])
            id_ = self.rows.doc.ranks(np.ascontiguousarray(rows["doc"]).view(np.int64))
            found.append(encode(query * len(self.ids) + id_)[1])
        self.pairs = np.sort(np.concatenate(found))
        self.doc_query, self.doc_id = np.divmod(self.pairs, len(self.ids))
        self._of_id = None
        if len(self.pairs) == len(self.ids):  # each id has one query: a table, no search
            self._of_id = np.empty(len(self.ids), dtype=np.intp)
            self._of_id[self.doc_id] = np.arange(len(self.ids))

    def name(self, code: int) -> Any:
        """Id of a document, for messages."""
        if self.ids is None:
            return int(code)
        return python_value(self.ids[self.doc_id[code]])


def write_documents(
    rows: SpreadRows,
    codes: DocumentCodes,
    documents: tuple[pa.Schema, Iterator[pa.Table]] | None,
    manifest: Manifest,
    scratch: Path,
) -> list[str]:
    """Write the features of the versions, and what codes stand for; returns names of features."""
    names = rows.features if documents is None else feature_names(documents[0])
    doc = codes.doc_of_version.astype(np.int32)
    target = scratch_array(scratch / "features", np.float32, (len(doc), len(names)))
    if documents is None:
        _of_log(rows, codes, target)
    else:
        _of_table(rows, codes, documents, names, target)
    manifest.save("versions", {"doc": doc} | ({"features": target} if names else {}))
    if codes.ids is not None:
        ids = {"id": codes.doc_id, "query": codes.doc_query}
        manifest.save(
            "documents", {name: of.astype(np.int32) for name, of in ids.items() if of is not None}
        )
        manifest.save("document_ids", {"id": codes.ids})
    return names


def scratch_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of zeros in a file, so that it may exceed memory."""
    if 0 in shape:
        return np.zeros(shape, dtype=dtype)
    return np.memmap(path, dtype, "w+", shape=shape)


def _version_keys(doc, hashes):
    return mix(doc.astype(np.uint64)) ^ hashes


def _distinct(doc, hashes):
    order = np.lexsort((hashes, doc))
    doc, hashes = doc[order], hashes[order]
    new = np.ones(len(doc), dtype=bool)
    new[1:] = (doc[1:] != doc[:-1]) | (hashes[1:] != hashes[:-1])
    return doc[new], hashes[new]


def _of_log(rows, codes, target):
    """Features that the rows of the log had."""
    rows.ranges.warn()
    for file in rows.files("features"):
        found = rows.read(file)
        doc = codes.of_rows(found, rows.query.ranks(found["query"]))
        target[codes.versions(found, doc)] = found["row"]


def _of_table(rows, codes, documents, names, target):
    """Features of a table with one row per document; other documents are ignored."""
    schema, parts = documents
    keys = [name for name in ("qid", "doc") if name in schema.names]
    if "doc" not in keys:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'relevance' and features; "
            f"found {schema.names}."
        )
    by_pair = "qid" in keys or codes.doc_query is None
    table = target if by_pair else np.empty((len(codes.ids), len(names)), dtype=np.float32)
    if codes.doc_query is None:
        keys = ["doc"]  # ids are global
    seen, n_read, ranges = np.zeros(len(table), dtype=bool), 0, FeatureRanges(names)
    for part in progress(parts, "part of the documents"):
        place = _places(rows, codes, part, keys, by_pair)
        at = np.flatnonzero(place >= 0)
        _refuse_twice(codes, place[at], seen, keys)
        seen[place[at]] = True
        table[place[at]] = read_feature_rows(part, names, n_read, ranges)[at]
        n_read += part.num_rows
    ranges.warn()
    _refuse_missing(codes, seen if by_pair else seen[codes.doc_id], schema)
    if not by_pair:
        for start in range(0, len(target), _ROWS):
            part = slice(start, start + _ROWS)
            target[part] = table[codes.doc_id[part]]


def _places(rows, codes, part, keys, by_pair):
    """Row of the table of features for each row of the documents, -1 if the log lacks it."""
    place = rows.doc.find(part["doc"])
    if not by_pair or codes.doc_query is None:
        return place
    query = rows.query.find(part["qid"])
    known = (query >= 0) & (place >= 0)
    pair = np.where(known, query * len(codes.ids) + place, -1)
    at = np.minimum(np.searchsorted(codes.pairs, pair), len(codes) - 1)
    return np.where(codes.pairs[at] == pair, at, -1)


def _refuse_twice(codes, place, seen, keys):
    twice = seen[place] | pd.Series(place).duplicated().to_numpy()
    if twice.any():
        by_pair = len(seen) == len(codes)
        name = codes.name if by_pair else (lambda place: python_value(codes.ids[place]))
        raise ValueError(
            f"documents has several rows with the same {' and '.join(keys)}, such as "
            f"{name(int(place[np.argmax(twice)]))!r}; expected one row each."
        )


def _refuse_missing(codes, seen, schema):
    n_lost = int((~seen).sum())
    if n_lost:
        raise ValueError(
            f"documents is missing {n_lost} of {count_of(len(codes), 'document')} of the log "
            f"(such as doc {codes.name(int(np.argmin(seen)))!r}); expected one row for each. The "
            f"type of 'doc' in documents is {schema.field('doc').type}."
        )
