"""Codes and features of the documents of a log on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from .._progress import progress
from .._typing import Ints
from ..exceptions import python_value
from ._dataset_rows import FeatureRanges, SpreadRows, feature_names, read_feature_rows
from ._faults import count_of
from ._segments import encode

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows of features that are copied at a time.
_ROWS = 1 << 16


class DocumentCodes:
    """Final codes of queries and documents, in the order that a log in memory has.

    Parameters
    ----------
    rows : SpreadRows

    Attributes
    ----------
    query_ids : ndarray of shape (n_queries,)
    ids : ndarray or None
        Sorted ids of documents; None where documents are equal rows of features.
    doc_query, doc_id : ndarray of shape (n_docs,)
        Query and rank of the id of each document; ``doc_query`` is None with global ids.
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
    out: Path,
) -> list[str]:
    """Write the features of the documents, and what their codes stand for.

    Returns
    -------
    names : list of str
        Names of the features.
    """
    names = rows.features if documents is None else feature_names(documents[0])
    target = open_memmap(out / "features.npy", "w+", np.float32, (len(codes), len(names)))
    if documents is None:
        _of_log(rows, codes, target)
    else:
        _of_table(rows, codes, documents, names, target)
    target.flush()
    if codes.ids is not None:
        save_ids(out, "doc_ids", codes.ids)
        np.save(out / "doc_id.npy", codes.doc_id.astype(np.int32))
        if codes.doc_query is not None:
            np.save(out / "doc_query.npy", codes.doc_query.astype(np.int32))
    return names


def save_ids(folder: Path, name: str, ids: NDArray[Any]) -> None:
    """Write ids: numbers as they are, text as Parquet."""
    if ids.dtype.kind in "iuf":
        np.save(folder / f"{name}.npy", ids)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    # An index finds the type of all values: nanoseconds, and integers beyond 2**63.
    values = pa.array(pd.Index(ids.tolist(), tupleize_cols=False))
    pq.write_table(pa.table({name: values}), folder / f"{name}.parquet")


def load_ids(folder: Path, name: str) -> NDArray[Any] | None:
    """The ids that :func:`save_ids` wrote, None if there are none."""
    if (folder / f"{name}.npy").exists():
        return np.load(folder / f"{name}.npy")
    if not (folder / f"{name}.parquet").exists():
        return None
    import pyarrow.parquet as pq

    found = pq.read_table(folder / f"{name}.parquet")[name].to_pylist()
    ids = np.empty(len(found), dtype=object)
    ids[:] = found
    return ids


def _of_log(rows, codes, target):
    """Features that the rows of the log had; a document must have the same in all of them."""
    rows.ranges.warn()
    seen = np.zeros(len(codes), dtype=bool)
    hashes = np.zeros(len(codes), dtype=np.uint64)
    for file in rows.files("features"):
        found = rows.read(file)
        doc = codes.of_rows(found, rows.query.ranks(found["query"]))
        new = ~seen[doc]
        # In reverse, so that the first row of a document is the one that is kept.
        hashes[doc[new][::-1]] = found["hash"][new][::-1]
        seen[doc] = True
        differs = hashes[doc] != found["hash"]
        if differs.any():
            raise ValueError(
                f"The document {codes.name(doc[np.argmax(differs)])!r} has different features in "
                "different rows; expected one feature vector per document. Give different "
                "documents different ids, or leave the column 'doc' out: rows with equal "
                "features are then one document."
            )
        target[doc[new][::-1]] = found["row"][new][::-1]


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
