"""From a log in parts to tables on disk: one pass over the log, then a file of queries at a time.

1. Each part of the log is checked, and its rows go to one of many files by their query, with ids
   as numbers in the order in which they were met (:class:`SpreadRows`).
2. The ids are sorted, which gives the final codes of queries, documents, versions and users.
3. Each file, small enough for memory, becomes a :class:`ClickLog` whose equal lists are merged.
4. Its rows are written to where the order of the queries puts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._base._progress import progress
from ..exceptions import python_value
from ._clicklog import ClickLog
from ._counted import check_counts, look_like_rates, warn_about_rates
from ._dataset_documents import DocumentCodes, scratch_array, write_documents
from ._dataset_files import Manifest
from ._dataset_rows import SpreadRows
from ._faults import GRADES, ONE_ROW_PER_POSITION
from ._roles import ROLES
from ._segments import offsets_from_counts, offsets_from_sorted

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of the rows on disk; those that are constant are numbers in the manifest.
_CODES = ("version", "user", "position", "bias")
_NUMBERS = ("clicks", "weight", "propensity", "production")


def write_log(
    schema: pa.Schema,
    parts: Iterator[pa.Table],
    documents: tuple[pa.Schema, Iterator[pa.Table]] | None,
    *,
    click: str,
    scratch: Path,
    out: Path,
) -> None:
    """Write a log, with the features of its rows or of ``documents``, into the folder ``out``."""
    rows = SpreadRows(schema, click, documents is None, scratch)
    for part in progress(parts, "part of the rows"):
        rows.add(part)
    rows.close()
    codes = DocumentCodes(rows)
    manifest = Manifest(out, {"click": click}, {})
    manifest.facts |= _Lists(rows, codes, scratch).write(manifest)
    manifest.facts["roles"] = [name for name in schema.names if name in ROLES]
    manifest.facts["feature_names"] = write_documents(rows, codes, documents, manifest, scratch)
    manifest.write()


class _Lists:
    """The lists of a log, one file of queries after the other.

    Equal lists are merged. Models of which rows were clicked together, or of users, read a second
    copy, in which only lists with equal clicks and users are. Where both are equal, there is one.
    """

    def __init__(self, rows: SpreadRows, codes: DocumentCodes, scratch: Path) -> None:
        self.rows, self.codes = rows, codes
        self.user_ids = rows.user.ids if len(rows.user.ids) else np.zeros(1, dtype=int)
        scale = rows.largest_click if "impressions" not in rows.row_type.names else 0.0
        self.scale = max(scale, 1.0)
        if self.scale > 1:
            GRADES.report(0, self.scale, None, repr(rows.click))
        n = len(codes.query_ids)
        self.n_raw = np.zeros(n, dtype=np.int64)
        self.bias_values = self._find_factors()
        self.has_rates = False
        self.merged, self.detailed = (_Copy(name, n, scratch) for name in ("merged", "detailed"))
        for file in progress(rows.files(), "file of lists"):
            self._fold(file)
        self._check_counts()

    def write(self, manifest: Manifest) -> dict[str, Any]:
        """Write the tables, in the order of the queries; returns facts about them."""
        copies = [self.merged]
        if self.merged.n_lists.sum() < self.detailed.n_lists.sum():
            copies.append(self.detailed)
        facts = {copy.name: copy.write(manifest) for copy in copies}
        manifest.save("queries", {"id": self.codes.query_ids, "impressions": self.n_raw})
        manifest.save("factors", {"bias": self.bias_values})
        manifest.save("users", {"id": self.user_ids})
        return {
            "n_queries": len(self.n_raw),
            "n_documents": len(self.codes),
            "copies": facts,
        }

    def _find_factors(self):
        """Bias factors that were shown."""
        name = "bias" if self.rows.has_bias else "position"
        found = []
        for file in self.rows.files():
            rows = self.rows.read(file)
            found.append(np.unique(rows[name][rows["position"] > 0]))
        return np.unique(np.concatenate(found)).astype(np.int64)

    def _fold(self, file):
        log, query_of_raw = self._read(file)
        if "impressions" in self.rows.row_type.names:
            self.has_rates |= look_like_rates(log.weight[log.shown], log.clicks[log.shown])
        self.n_raw += np.bincount(query_of_raw, minlength=len(self.n_raw))
        merged = log.fold()
        self.merged.add(merged)
        differ = merged.n_lists == log.n_lists
        self.detailed.add(merged if differ else log.fold(users=True, patterns=True))
        file.unlink()

    def _read(self, file):
        """The rows of a file as a log, and the query of each raw row."""
        rows = self.rows.read(file)
        names = rows.dtype.names
        query = self.rows.query.ranks(rows["query"])
        version = self.codes.versions(rows, self.codes.of_rows(rows, query))
        shown = rows["position"] > 0
        position = np.where(shown, rows["position"], -1)
        factor = rows["bias"] if self.rows.has_bias else position
        columns = {
            "version": version,
            "query": query,
            "user": np.zeros_like(query),
            "position": position,
            "bias": np.where(shown, np.searchsorted(self.bias_values, factor), -1),
            "clicks": np.where(shown, rows["click"] / self.scale, 0.0),
            "weight": rows["impressions"] if "impressions" in names else np.ones(len(rows)),
            "shown": shown,
        }
        if "user" in names:
            columns["user"] = self.rows.user.ranks(rows["user"])
        if "propensity" in names:
            columns["propensity"] = np.where(shown, rows["propensity"], 1.0)
        if "production" in names:
            columns["production"] = rows["production"]
        # Rows that were not shown are last in their list, by version.
        place = np.where(shown, position, np.iinfo(np.int64).max)
        order = np.lexsort((version, place, rows["list"], query))
        columns = {"propensity": None} | {name: of[order] for name, of in columns.items()}
        list_ = rows["list"][order]
        new = (columns["query"][1:] != columns["query"][:-1]) | (list_[1:] != list_[:-1])
        log = ClickLog(
            **columns,
            doc_of_version=self.codes.doc_of_version,
            features=np.empty((0, 0), dtype=np.float32),
            offsets=offsets_from_sorted(np.concatenate(([0], np.cumsum(new)))),
            query_ids=self.codes.query_ids,
            bias_values=self.bias_values,
            user_ids=self.user_ids,
            doc_ids=None,
        )
        self._check_places(log)
        return log, query

    def _check_places(self, log):
        same = (log.list_[1:] == log.list_[:-1]) & log.shown[1:]
        same &= log.position[1:] == log.position[:-1]
        if same.any():
            row = int(np.argmax(same))
            query = python_value(self.codes.query_ids[log.query[row]])
            position = int(log.position[row])
            ONE_ROW_PER_POSITION.report(int(same.sum()), position, f"query {query!r}")

    def _check_counts(self):
        shown = self.merged.ranges["bias"].high >= 0
        largest = self.merged.ranges["clicks"].high
        check_counts(np.ones(int(shown)), np.array([largest]))
        if self.has_rates:
            warn_about_rates(repr(self.rows.click))


class _Copy:
    """Rows of lists on their way to disk."""

    def __init__(self, name: str, n_queries: int, scratch: Path) -> None:
        self.name, self.scratch = name, scratch
        self.n_rows, self.n_lists = (np.zeros(n_queries, dtype=np.int64) for _ in range(2))
        self.ranges: dict[str, _Range] = {}
        self.files: list[tuple[Path, Path]] = []

    def add(self, log: ClickLog) -> None:
        """Add the lists of a file of queries."""
        self.n_rows += np.bincount(log.query, minlength=len(self.n_rows))
        query = log.query[log.offsets[:-1]]
        self.n_lists += np.bincount(query, minlength=len(self.n_lists))
        names = [name for name in (*_CODES, *_NUMBERS) if getattr(log, name) is not None]
        rows = np.empty(log.n_rows, [(name, getattr(log, name).dtype) for name in names])
        for name in names:
            column = rows[name] = getattr(log, name)
            self.ranges[name] = _Range.of(column, self.ranges.get(name))
        lists = np.empty(log.n_lists, [("query", np.int32), ("n_rows", np.int32)])
        lists["query"], lists["n_rows"] = query, np.diff(log.offsets)
        number = len(self.files)
        self.files.append(
            tuple(self.scratch / f"{self.name}-{kind}-{number}" for kind in ("rows", "lists"))
        )
        for path, table in zip(self.files[-1], (rows, lists), strict=True):
            table.tofile(path)
        self._row_type, self._list_type = rows.dtype, lists.dtype

    def write(self, manifest: Manifest) -> dict[str, Any]:
        """Write the tables, in the order of the queries; returns facts about them."""
        first_row, first_list = map(offsets_from_counts, (self.n_rows, self.n_lists))
        n_rows = int(first_row[-1])
        columns = {
            name: scratch_array(self.scratch / name, each.narrowest(name in _CODES), (n_rows,))
            for name, each in self.ranges.items()
            if each.low < each.high
        }
        lengths = np.empty(int(first_list[-1]), dtype=np.int32)
        for path_of_rows, path_of_lists in self.files:
            lists = np.fromfile(path_of_lists, self._list_type)
            lengths[_places(lists["query"], first_list)] = lists["n_rows"]
            place = _places(np.repeat(lists["query"], lists["n_rows"]), first_row)
            rows = np.fromfile(path_of_rows, self._row_type)
            for name, column in columns.items():
                column[place] = rows[name]
            path_of_rows.unlink()
        query = np.repeat(np.arange(len(self.n_rows), dtype=np.int32), self.n_rows)
        manifest.save(f"{self.name}_rows", {"query": query, **columns})
        manifest.save(f"{self.name}_lists", {"n_rows": lengths})
        return {
            "n_rows": n_rows,
            "constants": {
                name: float(each.low) for name, each in self.ranges.items() if name not in columns
            },
        }


class _Range(NamedTuple):
    """What the values of a column are, so that the narrowest type for them is known."""

    low: float
    high: float
    exact: bool

    @classmethod
    def of(cls, values: NDArray[Any], known: _Range | None) -> _Range:
        """That of values, and of others that are known."""
        exact = values.dtype.kind == "i" or bool((values.astype(np.float32) == values).all())
        found = cls(values.min(), values.max(), exact)
        if known is None:
            return found
        return cls(min(found.low, known.low), max(found.high, known.high), exact and known.exact)

    def narrowest(self, whole: bool) -> type:
        """Type that holds all values exactly."""
        if whole:
            return np.int32 if self.high <= np.iinfo(np.int32).max else np.int64
        return np.float32 if self.exact else np.float64


def _places(sorted_query, first):
    """Place of each item: those of a query follow each other from its first place."""
    offsets = offsets_from_sorted(sorted_query)
    starts = first[:-1][sorted_query[offsets[:-1]]] if len(sorted_query) else offsets[:-1]
    return np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(len(sorted_query))
