"""From a log in parts to arrays on disk: one pass over the log, then a file of queries at a time.

1. Each part of the log is checked, and its rows go to one of many files by their query, with ids
   as numbers in the order in which they were met (:class:`SpreadRows`).
2. The ids are sorted, which gives the final codes of queries, documents and users.
3. Each file, small enough for memory, becomes a :class:`ClickLog` whose equal lists are merged.
4. Its rows are written to where the order of the queries puts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from .._progress import progress
from ..exceptions import python_value
from ._clicklog import ClickLog
from ._dataset_documents import DocumentCodes, save_ids, write_documents
from ._dataset_rows import SpreadRows
from ._engine import check_counts, look_like_rates, warn_about_rates
from ._faults import GRADES, ONE_ROW_PER_POSITION
from ._roles import ROLES
from ._segments import offsets_from_counts, offsets_from_sorted

if TYPE_CHECKING:
    import pyarrow as pa


#: Version of the files; a folder of another version is refused.
FORMAT = 1
_WHOLE = (np.uint8, np.uint16, np.uint32)


def write_log(
    schema: pa.Schema,
    parts: Iterator[pa.Table],
    documents: tuple[pa.Schema, Iterator[pa.Table]] | None,
    *,
    click: str,
    scratch: Path,
    out: Path,
) -> None:
    """Write a log as arrays into the folder ``out``.

    Parameters
    ----------
    schema : pyarrow.Schema
    parts : iterator of pyarrow.Table
        The rows of the log, in any order.
    documents : (schema, parts) or None
        Features of the documents, one row each; by default they are columns of the log.
    click : str
        Name of the column of clicks.
    scratch, out : Path
        Folders that exist and are empty.
    """
    rows = SpreadRows(schema, click, documents is None, scratch)
    for part in progress(parts, "part of the rows"):
        rows.add(part)
    rows.close()
    codes = DocumentCodes(rows)
    lists = _Lists(rows, codes, scratch)
    lists.write(out)
    features = write_documents(rows, codes, documents, out)
    roles = [name for name in schema.names if name in ROLES]
    names = {"click": click, "feature_names": features, "roles": roles}
    meta = {"format": FORMAT, **names, **lists.meta}
    (out / "meta.json").write_text(json.dumps(meta, indent=1))


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
        self.merged = _Copy("merged", n, rows.has_bias, scratch)
        self.detailed = _Copy("detailed", n, rows.has_bias, scratch)
        for file in progress(rows.files(), "file of lists"):
            self._fold(file)
        self._check_counts()

    @property
    def meta(self):
        copies = [self.merged] if self._are_equal else [self.merged, self.detailed]
        return {
            "n_impressions": self.rows.n_rows,
            "copies": {each.name: each.meta for each in copies},
        }

    @property
    def _are_equal(self):
        return int(self.merged.n_lists.sum()) == int(self.detailed.n_lists.sum())

    def write(self, out):
        """Write the columns, in the order of the queries."""
        self.merged.write(out)
        if not self._are_equal:
            self.detailed.write(out)
        np.save(out / "query_impressions.npy", self.n_raw)
        np.save(out / "bias_values.npy", self.bias_values)
        save_ids(out, "query_ids", self.codes.query_ids)
        save_ids(out, "user_ids", self.user_ids)

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
        self.merged.add(merged, file.stem)
        differ = merged.n_lists == log.n_lists
        self.detailed.add(merged if differ else log.fold(users=True, patterns=True), file.stem)
        file.unlink()

    def _read(self, file):
        """The rows of a file as a log, and the query of each raw row."""
        rows = self.rows.read(file)
        names = rows.dtype.names
        query = self.rows.query.ranks(rows["query"])
        doc = self.codes.of_rows(rows, query)
        weight = rows["impressions"] if "impressions" in names else np.ones(len(rows))
        shown = rows["position"] > 0
        position = np.where(shown, rows["position"], -1).astype(np.int64)
        clicks = np.where(shown, rows["click"] / self.scale, 0.0)
        factor = rows["bias"] if self.rows.has_bias else position
        bias = np.where(shown, np.searchsorted(self.bias_values, factor), -1)
        # Rows that were not shown are last in their list, by document.
        place = np.where(shown, position, np.iinfo(np.int64).max)
        order = np.lexsort((doc, place, rows["list"], query))
        columns = {
            "version": doc,
            "query": query,
            "user": self.rows.user.ranks(rows["user"])
            if "user" in names
            else np.zeros_like(query),
            "position": position,
            "bias": bias,
            "clicks": clicks,
            "weight": weight,
            "shown": shown,
        }
        for name in ("propensity", "production"):
            columns[name] = rows[name] if name in names else None
        columns = {name: of if of is None else of[order] for name, of in columns.items()}
        if columns["propensity"] is not None:
            columns["propensity"] = np.where(columns["shown"], columns["propensity"], 1.0)
        list_ = rows["list"][order]
        new = (columns["query"][1:] != columns["query"][:-1]) | (list_[1:] != list_[:-1])
        offsets = offsets_from_sorted(np.concatenate(([0], np.cumsum(new))))
        log = ClickLog(
            **columns,
            features=np.empty((0, 0), dtype=np.float32),
            doc_of_version=np.arange(len(self.codes)),
            offsets=offsets,
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
        shown = self.merged.ranges["bias"].high > 0
        largest = self.merged.ranges["clicks"].high
        check_counts(np.ones(int(shown)), np.array([largest]))
        if self.has_rates:
            warn_about_rates(repr(self.rows.click))


class _Copy:
    """Columns of lists on their way to disk."""

    def __init__(self, name: str, n_queries: int, has_bias: bool, scratch: Path) -> None:
        self.name, self.has_bias, self.scratch = name, has_bias, scratch
        self.n_rows, self.n_lists = (np.zeros(n_queries, dtype=np.int64) for _ in range(2))
        self.ranges: dict[str, _Range] = {}
        self.files: list[Path] = []

    @property
    def meta(self):
        return {
            "n_rows": int(self.n_rows.sum()),
            "all_shown": bool(self.ranges["bias"].low > 0),
            "constants": {
                name: float(each.low) for name, each in self.ranges.items() if each.is_constant
            },
        }

    def add(self, log: ClickLog, stem: str) -> None:
        """Add the lists of a file of queries."""
        query = log.query[log.offsets[:-1]]
        self.n_rows += np.bincount(log.query, minlength=len(self.n_rows))
        self.n_lists += np.bincount(query, minlength=len(self.n_lists))
        values = {
            # 0 where a row was not shown.
            **{name: getattr(log, name) + 1 for name in ("bias", "position")},
            **{name: getattr(log, name) for name in ("doc", "user", "clicks", "weight")},
        }
        if not self.has_bias:
            del values["position"]  # it is the bias factor
        for name in ("propensity", "production"):
            if getattr(log, name) is not None:
                values[name] = getattr(log, name)
        for name, column in values.items():
            self.ranges[name] = self.ranges.get(name, _Range()).of(column)
        path = self.scratch / f"{self.name}-{stem}.npz"
        np.savez(path, query=query, lengths=np.diff(log.offsets), **values)
        self.files.append(path)

    def write(self, out: Path) -> None:
        """Write the columns, in the order of the queries."""
        folder = out / self.name
        folder.mkdir()
        first_row, first_list = (
            offsets_from_counts(counts) for counts in (self.n_rows, self.n_lists)
        )
        n_rows, n_lists = int(first_row[-1]), int(first_list[-1])
        columns = {
            name: open_memmap(folder / f"{name}.npy", "w+", each.narrowest, (n_rows,))
            for name, each in self.ranges.items()
            if not each.is_constant
        }
        lengths = open_memmap(folder / "lengths.npy", "w+", np.int32, (n_lists,))
        for file in self.files:
            with np.load(file) as folded:
                query_of_list = folded["query"]
                place = _places(query_of_list, first_list)
                lengths[place] = folded["lengths"]
                of_row = np.repeat(query_of_list, folded["lengths"])
                row = _places(of_row, first_row)
                for name, column in columns.items():
                    column[row] = folded[name]
            file.unlink()
        for column in (*columns.values(), lengths):
            column.flush()
        np.save(folder / "query_lists.npy", self.n_lists)


class _Range:
    """What the values of a column are, so that the narrowest type for them is known."""

    def __init__(self, low: float = np.inf, high: float = -np.inf, kind: int = 0) -> None:
        self.low, self.high, self.kind = low, high, kind

    def of(self, values: NDArray[Any]) -> _Range:
        """With the values of another part."""
        kind = 0  # whole numbers
        if values.dtype.kind == "f" and (values % 1 != 0).any():
            kind = 1 if (values.astype(np.float32) == values).all() else 2
        low, high = min(self.low, values.min()), max(self.high, values.max())
        return _Range(low, high, max(kind, self.kind))

    @property
    def is_constant(self) -> bool:
        return bool(self.low == self.high)

    @property
    def narrowest(self) -> np.dtype:
        """Type that holds all values exactly."""
        if self.kind:
            return np.dtype(np.float32 if self.kind == 1 else np.float64)
        fits = [each for each in _WHOLE if self.low >= 0 and self.high <= np.iinfo(each).max]
        return np.dtype(fits[0] if fits else np.float64)


def _places(sorted_query, first):
    """Place of each item: those of a query follow each other from its first place."""
    offsets = offsets_from_sorted(sorted_query)
    starts = first[:-1][sorted_query[offsets[:-1]]] if len(sorted_query) else offsets[:-1]
    return np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(len(sorted_query))
