"""A log on disk as a :class:`ClickLog`, whose columns are read part by part."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._typing import Bools, Ints
from ._clicklog import BY_ROW, SAMPLE, ClickLog
from ._dataset_documents import load_ids
from ._deferred import DeferredArray, RowMap, lookup
from ._segments import offsets_from_counts


@dataclass(frozen=True, eq=False)
class StoredLog(ClickLog):
    """A log whose columns are :class:`DeferredArray`.

    Parameters
    ----------
    features_on_disk : bool
        True if the features are mapped from a file, False if they are in memory.
    all_lists_differ : bool
        True if no two lists are equal but for users and clicks: there is nothing to merge.
    """

    all_lists_differ: bool = False
    features_on_disk: bool = True

    @cached_property
    def list_(self) -> Any:
        """Number of the list of each row, deferred."""
        return _list_of_row(self.offsets)

    @property
    def shown_rows(self) -> Any:
        """Index of the rows that were shown; no copy if all were."""
        return slice(None) if self.shown.all() else np.flatnonzero(self.shown)

    @cached_property
    def shown_docs(self) -> Bools:
        """True for a document that was shown at least once."""
        return np.bincount(self.doc, self.shown, minlength=self.n_docs) > 0

    def shown_features(self) -> NDArray[Any]:
        """Features of the documents that were shown at least once."""
        seen = self.shown_docs
        return self.features if seen.all() else self.features[seen]

    def in_memory(self) -> ClickLog:
        """The same log with its columns in memory."""
        columns = {name: np.asarray(getattr(self, name)) for name in BY_ROW}
        for name in ("propensity", "production"):
            of = getattr(self, name)
            columns[name] = None if of is None else np.asarray(of)
        names = (
            "features",
            "doc_of_version",
            "offsets",
            "query_ids",
            "bias_values",
            "user_ids",
            "doc_ids",
        )
        return ClickLog(**columns, **{name: getattr(self, name) for name in names})

    def without_never_shown(self) -> ClickLog:
        """The log without the candidates that were never shown; in memory, if there are any."""
        return self if self.shown.all() else self.in_memory().without_never_shown()

    def fold(self, users: bool = False, patterns: bool = False) -> ClickLog:
        """The log with identical lists merged; in memory, if there are any."""
        if self.all_lists_differ:
            return self
        ways = (users, patterns)
        if ways not in self._folded:
            self._folded[ways] = self.in_memory().fold(*ways)
        return self._folded[ways]

    @cached_property
    def _folded(self):
        """Logs with merged lists, for the next fit that merges alike."""
        return {}

    def sample(self, max_rows: int = SAMPLE) -> ClickLog:
        """Whole queries of a log that is too long, in memory; otherwise the whole log."""
        part = super().sample(max_rows)
        return part.in_memory() if isinstance(part, StoredLog) else part

    def select_queries(self, keep: Bools) -> ClickLog:
        """The log of the queries for which ``keep``, a bool array by query code, is True."""
        return self._take_lists(np.flatnonzero(keep[self.query_of_list]))

    def with_values(self, role: str, known: NDArray[Any], values: NDArray[Any]) -> StoredLog:
        """The log with other bias factors or users: ``values`` in place of the ``known`` ones.

        Those that are not known must not occur.
        """
        column, names = getattr(self, role), f"{role}_{'values' if role == 'bias' else 'ids'}"
        found, code = np.unique(values, return_inverse=True)
        place = pd.Index(known).get_indexer(pd.Index(getattr(self, names)))
        # A row that was not shown has the bias factor -1, which is the last.
        table = np.append(np.where(place < 0, -1, code[place]), -1)
        merges = role == "bias" and len(found) < len(values)
        return replace(
            self,
            **{role: lookup(table, column), names: found},
            all_lists_differ=self.all_lists_differ and not merges,
        )

    def part_of(self, queries: Ints) -> ClickLog:
        """The log of some queries as it would be read without the others.

        Parameters
        ----------
        queries : ndarray of int
            Codes, sorted. Features of their documents are copied into memory.
        """
        keep = np.zeros(len(self.query_ids), dtype=bool)
        keep[queries] = True
        part = self.select_queries(keep)
        versions, version = _codes_that_occur(part.version, self.n_versions)
        docs, doc_of_version = np.unique(self.doc_of_version[versions], return_inverse=True)
        found, query = _codes_that_occur(part.query, len(self.query_ids))
        factors, bias = _codes_that_occur(part.bias, len(self.bias_values))
        users, user = _codes_that_occur(part.user, len(self.user_ids))
        part = replace(
            part,
            version=version,
            doc_of_version=doc_of_version,
            query=query,
            bias=bias,
            user=user,
            features=_read_only(self.features[versions]),
            features_on_disk=False,
            query_ids=self.query_ids[found],
            bias_values=self.bias_values[factors],
            user_ids=self.user_ids[users],
            doc_ids=None if self.doc_ids is None else self.doc_ids[docs],
        )
        return part._sorted() if self.all_lists_differ else part

    def _sorted(self):
        """The lists of each query in the order of their hashes, which depend on the codes."""
        hashes = [part._list_hashes() for part in self.chunks()]
        first, second = (np.concatenate(each) for each in zip(*hashes, strict=True))
        return self._take_lists(np.lexsort((second, first, self.query_of_list)))

    @cached_property
    def query_of_list(self) -> Ints:
        """Query of each list, shape (n_lists,)."""
        return self.query[self.offsets[:-1]]

    def _take_lists(self, lists):
        if len(lists) == self.n_lists and (lists == np.arange(self.n_lists)).all():
            return self
        offsets = offsets_from_counts(np.diff(self.offsets)[lists])
        row_map = RowMap(self.offsets[:-1][lists], offsets)
        columns = {name: _at(getattr(self, name), row_map) for name in BY_ROW}
        for name in ("propensity", "production"):
            of = getattr(self, name)
            columns[name] = None if of is None else _at(of, row_map)
        return replace(self, **columns, offsets=offsets)

    def _columns(self, rows, offsets):
        """Rows in memory, as a plain log."""
        columns = {name: getattr(self, name)[rows] for name in BY_ROW}
        for name in ("propensity", "production"):
            of = getattr(self, name)
            columns[name] = None if of is None else of[rows]
        names = ("features", "doc_of_version", "query_ids", "bias_values", "user_ids", "doc_ids")
        return ClickLog(
            **columns, offsets=offsets, **{name: getattr(self, name) for name in names}
        )


def open_log(folder: Path, detailed: bool = True) -> StoredLog:
    """The log in a folder that :func:`write_log` wrote.

    Only offsets and ids are read into memory.

    Parameters
    ----------
    folder : Path
    detailed : bool, default=True
        Whether lists with other clicks or users stay apart.
    """
    copies = json.loads((folder / "meta.json").read_text())["copies"]
    name = "detailed" if detailed and "detailed" in copies else "merged"
    meta, columns = copies[name], folder / name
    n_rows, constants = meta["n_rows"], meta["constants"]

    def column(name, dtype):
        if name in constants:
            return DeferredArray.constant(n_rows, constants[name], dtype)
        path = columns / f"{name}.npy"
        return DeferredArray.of_array(_mapped(path), dtype) if path.exists() else None

    offsets = offsets_from_counts(np.load(columns / "lengths.npy"))
    n_lists = np.load(columns / "query_lists.npy")
    query_of_list = np.repeat(np.arange(len(n_lists), dtype=np.int32), n_lists)
    query = lookup(query_of_list, _list_of_row(offsets)).astype(np.intp)
    bias_values = np.load(folder / "bias_values.npy")
    # On disk a row that was not shown has 0 here.
    factor = column("bias", np.intp)
    position = column("position", np.int64)
    of_factor = lookup(np.append(-1, bias_values), factor)
    features = _read_only(_mapped(folder / "features.npy"))
    return StoredLog(
        features=features,
        version=column("doc", np.intp),
        doc_of_version=np.arange(len(features)),
        query=query,
        user=column("user", np.intp),
        position=of_factor if position is None else position - 1,
        bias=factor - 1,
        clicks=column("clicks", np.float64),
        weight=column("weight", np.float64),
        shown=DeferredArray.constant(n_rows, True, bool) if meta["all_shown"] else factor > 0,
        propensity=column("propensity", np.float64),
        production=column("production", np.float64),
        offsets=offsets,
        query_ids=load_ids(folder, "query_ids"),
        bias_values=bias_values,
        user_ids=load_ids(folder, "user_ids"),
        doc_ids=load_doc_ids(folder),
        all_lists_differ=name == "merged",
    )


def _codes_that_occur(column, n_codes):
    """The codes of a column, sorted, and the column with their numbers; -1 stays."""
    seen = np.zeros(n_codes + 1, dtype=bool)
    for rows in column.parts():
        seen[column.take(rows)] = True
    seen[-1] = False
    codes = np.flatnonzero(seen)
    number = np.full(n_codes + 1, -1, dtype=np.intp)
    number[codes] = np.arange(len(codes))
    return codes, lookup(number, column)


def _at(column, row_map):
    """The rows of a column that a map selects; a column may have been replaced by an array."""
    if isinstance(column, DeferredArray):
        return column.at(row_map)
    return column[row_map(slice(0, len(row_map)))]


def _read_only(features):
    """The same array; no fit may scale in place what the next one reads."""
    features.flags.writeable = False
    return features


def _mapped(path):
    """An array on disk; pages are read when they are used, and never written back."""
    return np.load(path, mmap_mode="c").view(np.ndarray)


def _list_of_row(offsets):
    """Number of the list of each row, deferred."""

    def take(rows):
        if isinstance(rows, slice):
            first = int(np.searchsorted(offsets, rows.start, "right")) - 1
            last = int(np.searchsorted(offsets, rows.stop, "left"))
            ends = offsets[first : last + 1].clip(rows.start, rows.stop)
            return np.repeat(np.arange(first, last), np.diff(ends))
        return np.searchsorted(offsets, rows, "right") - 1

    return DeferredArray(int(offsets[-1]), np.intp, take)


def load_doc_ids(folder: Path) -> pd.Index | None:
    """Index of the documents, as a log in memory has it."""
    ids = load_ids(folder, "doc_ids")
    if ids is None:
        return None
    ids = pd.Index(ids, name="doc", tupleize_cols=False)
    if not (folder / "doc_query.npy").exists():
        return ids
    codes = [np.load(folder / f"{name}.npy") for name in ("doc_query", "doc_id")]
    queries = pd.Index(load_ids(folder, "query_ids"), tupleize_cols=False)
    return pd.MultiIndex([queries, ids], codes, names=["qid", "doc"])
