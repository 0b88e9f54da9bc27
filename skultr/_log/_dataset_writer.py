"""From a log in parts to tables on disk, through a log in memory for each file of queries.

1. Each part of the log is checked, and its rows go to one of many files by their query.
2. Each file, small enough for memory, is read as any log in memory, and its equal lists are
   merged: a :class:`ClickLog` with codes of its own.
3. The codes of all files become those of one log, and the rows are written to where the order of
   the queries puts them.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._progress import progress
from .._base._typing import Ints
from ..exceptions import ClickDataWarning, python_value, warn_user
from ._click_units import ClickFacts, PageFacts, are_counts, divided
from ._clicklog import BY_ROW, MAY_BE_NONE, NOBODY, ClickLog, NeverShown, sort_into_lists
from ._counted import EngineLog, check_counts, check_numbers
from ._dataset_frames import Manifest, import_pyarrow
from ._faults import GRADES, IDS, NO_ROWS, check, count_of
from ._joined_logs import Union
from ._offsets import is_far
from ._reader import Rows
from ._roles import ROLES, check_team, feature_names, read_scope, refuse_infinity
from ._segments import encode, hash_columns, offsets_from_counts, offsets_from_sorted, row_hashes

if TYPE_CHECKING:
    import pyarrow as pa

#: Files that the rows are spread over: a log of 100 million rows gives files of 1.5 million,
#: each of which fits into memory.
N_FILES = 64
_NUMBERS = ("position", "bias", "impressions", "propensity", "production")
#: Columns of the rows on disk; those that are constant are numbers in the manifest.
_ON_DISK = (*BY_ROW, *MAY_BE_NONE)
#: The schema of a table, and its rows in parts.
_Source = tuple["pa.Schema", Iterator["pa.Table"]]


def write_log(
    schema: pa.Schema,
    parts: Iterator[pa.Table],
    documents: _Source | None,
    *,
    click: str,
    scratch: Path,
    out: Path,
) -> None:
    """Write a log, with the features of its rows or of ``documents``, into the folder ``out``."""
    # 1. and 2. Rows to files, by query, and each file as a log in memory.
    rows = _SpreadRows(schema, click, documents is None, scratch)
    files = _spread(rows, parts)
    # 3. One code for equal ids, and the rows in the order of the queries.
    union = _union_of(files)
    features = rows.features
    if documents is not None:
        features = _Features(_feature_names(documents[0]))
    # Features may exceed memory: they are written into a file that is mapped.
    table_shape = (len(union.doc_of_version), len(features.names))
    table = _scratch_array(scratch / "features.array", np.float32, table_shape)
    if documents is not None:
        _read_documents(documents, union, features, table)
    copies = [_Copy("merged", files, union, scratch)]
    if any(file.differs for file in files):
        copies.append(_Copy("detailed", files, union, scratch))
    _place_rows(files, union, copies, table if documents is None else None)
    features.warn()
    # The tables, and what the manifest says of them.
    manifest = Manifest(out, {"click": click}, {})
    _save_queries(manifest, files, union, copies)
    _save_candidates(manifest, files, union)
    manifest.save("factors", {"bias": union.bias_values})
    manifest.save("users", {"id": union.user_ids})
    _save_versions(manifest, union.doc_of_version, table)
    _save_documents(manifest, union.doc_ids)
    manifest.facts |= {
        "n_queries": len(union.query_ids),
        "n_documents": int(union.doc_of_version[-1]) + 1,
        "copies": {copy.name: copy.write(manifest) for copy in copies},
        "roles": [name for name in schema.names if name in ROLES],
        "feature_names": features.names,
    }
    manifest.write()


def _spread(rows: _SpreadRows, parts: Iterator[pa.Table]) -> list[_File]:
    """The rows of all parts, in files by query, each of which is read as a log."""
    for part in parts:
        rows.add(part)
    # A query is whole in one file, and only one file is in memory at a time.
    files = []
    for path in progress(rows.close(), "file of lists"):
        files.append(_File(path, *rows.read(path)))
    # Whether any row was shown, or clicked, only all files together tell.
    rows.check_counts(files)
    return files


def _union_of(files: list[_File]) -> Union:
    """The ids of all files in one order."""
    hashes = [file.hashes for file in files]
    # Without hashes, no document is in two files.
    shared = None if hashes[0] is None else hashes
    return Union([file.log for file in files], shared)


def _place_rows(files, union, copies, table):
    """Put the rows of each file into the copies, and its features into a table, if one is
    given."""
    for number, file in enumerate(files):
        # One file in memory at a time.
        logs = file.load()
        if table is not None:
            table[union.codes("version", number)] = logs[0].features
        # The merged log is the first one, and the detailed one the last, which may be the same.
        for copy, log in zip(copies, (logs[0], logs[-1]), strict=False):
            copy.place(union.recoded(log, number))


def _save_queries(manifest, files, union, copies):
    """Write the queries, with the rows of each before lists were merged, and its lists."""
    # Codes of a file become those of the union.
    n_raw = np.zeros(len(union.query_ids), dtype=np.int64)
    for number, file in enumerate(files):
        n_raw[union.codes("query", number)] = file.n_raw
    table = {"id": union.query_ids, "impressions": n_raw}
    for copy in copies:
        table[f"{copy.name}_lists"] = np.diff(copy.first_list)
    manifest.save("queries", table)


def _save_candidates(manifest, files, union):
    """Write the candidates that were not shown; without any, there is no table."""
    # The candidates stay in memory: there is one row per query and document, not per page.
    by_file = [union.recoded(file.log, number).candidates for number, file in enumerate(files)]
    query = np.concatenate([each.query for each in by_file])
    version = np.concatenate([each.version for each in by_file])
    production = None
    if by_file[0].production is not None:
        production = np.concatenate([each.production for each in by_file])
    candidates = NeverShown.of_rows(query, version, production, len(union.doc_of_version))
    if not len(candidates.query):
        return
    table = {name: values for name, values in candidates._asdict().items() if values is not None}
    manifest.save("candidates", table)


class _SpreadRows:
    """Rows of a log, checked, in files by query: roles, clicks, and features as lists."""

    def __init__(self, schema: pa.Schema, click: str, with_features: bool, folder: Path) -> None:
        names = schema.names
        needed = ["qid", "position", click]
        if not with_features:  # the table of documents has them, by doc
            needed.append("doc")
        lacking = [name for name in needed if name not in names]
        if lacking:
            raise ValueError(
                f"The log lacks the columns {lacking}; found {names}. Rename your columns to "
                "'qid', 'doc' and 'position', and name the column of clicks with click=."
            )
        empty = nw.from_native(schema.empty_table())
        check_numbers(empty.schema, [*_NUMBERS, click])
        self.click = click
        self.folder = folder
        self.scope = "query"
        self.roles = [name for name in (*IDS, *_NUMBERS) if name in names]
        self.features = _Features(_feature_names(schema, click) if with_features else [])
        #: What the values of y are like so far, and whether they are numbers of clicks.
        self.facts = ClickFacts.of(*np.zeros((2, 0)))
        self.has_counts = False
        self._files: dict[int, Any] = {}
        self._reported: set[str] = set()
        self._scopes: set[Any] = set()

    def add(self, part: pa.Table) -> None:
        """Check the rows of a part, and append them to their files."""
        pa = import_pyarrow()
        columns = {name: _plain(part[name]) for name in self.roles}
        columns["click"] = part[self.click].cast(pa.float64())
        clicks = _floats(columns["click"])
        impressions = np.ones(len(part))
        if "impressions" in columns:
            impressions = _floats(columns["impressions"])
        with np.errstate(invalid="ignore"):  # the checks below report what is missing
            facts = ClickFacts.of(clicks, impressions)
        # Whether clicks are rates or numbers, only the whole log tells.
        self._check(part, rates=facts.largest <= 1)
        self.facts = self.facts.joined(facts)
        # Sort the rows by file, and write one slice to each; a query is in one file.
        file_of_row = (_hashes(columns["qid"]) % np.uint64(N_FILES)).astype(np.uint8)
        order = np.argsort(file_of_row, kind="stable")
        rows = pa.table(columns).take(pa.array(order))
        if self.features.names:
            values = self.features.read(part)[order]
            flat = pa.array(values.reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(flat, len(self.features.names))
            rows = rows.append_column("features", lists)
        n_rows = np.bincount(file_of_row, minlength=N_FILES)
        first_row = offsets_from_counts(n_rows)
        for number in np.flatnonzero(n_rows):
            file = self._file(int(number), rows.schema)
            file.write_table(rows.slice(first_row[number], n_rows[number]))

    def close(self) -> list[Path]:
        """Close the files; returns those that have rows."""
        if not self._files:
            NO_ROWS.report()
        for file in self._files.values():
            file.close()
        files = sorted(self.folder.glob("*.rows"))
        #: The grade that counts as one click.
        self.scale = 1.0
        if "impressions" in self.roles:
            # y is a rate or a number of clicks: all of its values together tell.
            self.has_counts = are_counts(self.facts, lambda: self._in_all(files), repr(self.click))
        elif self.facts.largest > 1:
            self.scale = float(self.facts.largest)
            GRADES.report(0, self.scale, None, repr(self.click))
        return files

    def _in_all(self, files):
        """Whether y = 1 says that a row was clicked in all of its impressions."""
        facts = PageFacts()
        for path in files:
            table = _table_of(path)
            names = [name for name in table.column_names if name != "features"]
            frame = nw.from_native(table.select(names))
            facts = facts.joined(PageFacts.of(frame))
        return facts.in_all()

    def read(self, path: Path) -> tuple[ClickLog, Ints]:
        """The log of a file, which is deleted, and the number of its rows by query."""
        table = _table_of(path)
        path.unlink()
        values = {}
        for name in self.roles:
            values[name] = _ids(table[name]) if name in IDS else _floats(table[name])
        rows = Rows(None, len(table), values, self.scope)
        clicks = _floats(table["click"])
        if self.has_counts:
            impressions = values["impressions"]
            called = {"n_clicks": repr(self.click)}
            # Numbers of clicks are at most those of impressions.
            check({"n_clicks": clicks, "impressions": impressions}, called=called)
            rows.rate = divided(clicks, impressions)
        else:
            rows.rate = clicks / self.scale
        # Rows of a file have other numbers than those of the log: errors name none.
        rows.check_one_row_per_position(numbered=False)
        features = np.empty((len(table), 0), dtype=np.float32)
        if self.features.names:
            flat = table["features"].combine_chunks().flatten().to_numpy()
            features = flat.reshape(len(table), -1)
        del table  # the other columns are copied: memory holds them once
        log = sort_into_lists(rows, features, candidates=True)
        return log, np.bincount(rows.query)

    def check_counts(self, files: list[_File]) -> None:
        """Report a log that shows no row or no click, or clicked rows only."""
        n_shown, weight, clicks = np.sum([file.sums for file in files], axis=0)
        # Means tell as much as rows do, and each stands for all rows without memory.
        mean = np.array([weight, clicks]) / max(n_shown, 1)
        weight_of_row = np.broadcast_to(mean[0], int(n_shown))
        clicks_of_row = np.broadcast_to(mean[1], int(n_shown))
        check_counts(weight_of_row, clicks_of_row)

    def _check(self, part, rates):
        """Check the rows of a part; a warning that another part gave is not repeated."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EngineLog.of(part, self.click, self.roles, rates=rates)
        for warning in caught:
            message = str(warning.message)
            # Messages begin with numbers that differ from part to part, and end with the remedy.
            remedy = message[-40:]
            if remedy not in self._reported:
                self._reported.add(remedy)
                warn_user(message, warning.category)
        if "doc_scope" in part.column_names:
            self._scopes |= set(part["doc_scope"].unique().to_pylist())
            self.scope = read_scope(None, np.array([*self._scopes], dtype=object))

    def _file(self, number, schema):
        if number not in self._files:
            path = self.folder / f"{number:03d}.rows"
            self._files[number] = import_pyarrow().ipc.new_stream(str(path), schema)
        return self._files[number]


def _table_of(path):
    """The rows of a file."""
    pa = import_pyarrow()
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_stream(source).read_all().combine_chunks()


class _Features:
    """Reads features as float32, and warns where these lose digits."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.n_read = 0
        # The range of each feature so far.
        self.low = np.full(len(names), np.inf)
        self.high = np.full(len(names), -np.inf)

    def read(self, part: pa.Table) -> NDArray[np.float32]:
        """Features of a part (n_rows, n_features); an error for what is no finite number."""
        values = np.empty((part.num_rows, len(self.names)), dtype=np.float32)
        for column, name in enumerate(self.names):
            exact = _feature(part, name)
            # fmin and fmax pass over missing values.
            self.low[column] = np.fmin.reduce(exact, initial=self.low[column])
            self.high[column] = np.fmax.reduce(exact, initial=self.high[column])
            with np.errstate(over="ignore"):  # what becomes infinite is refused below
                values[:, column] = exact
        refuse_infinity(values, self.names, self.n_read)
        self.n_read += part.num_rows
        return values

    def warn(self) -> None:
        """Warn of features of which float32 would lose digits."""
        varies = self.low < self.high
        # Constant columns, and those that are missing throughout, have no range to lose.
        low = np.where(varies, self.low, 0)
        high = np.where(varies, self.high, 0)
        far = np.flatnonzero(varies & is_far(low, high))
        if not len(far):
            return
        first = far[0]
        warn_user(
            f"The values of the features {[self.names[column] for column in far]} are much "
            f"larger than their range (the first has {self.low[first]:g} to "
            f"{self.high[first]:g}), and float32, in which a dataset holds features, keeps "
            "few of their digits. Subtract a constant from such a column, such as its "
            "smallest value, in the log and wherever you predict.",
            ClickDataWarning,
        )


def _feature(part, name):
    """A column as float64; an error if its values are no numbers."""
    try:
        return _floats(part[name])
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(
            f"The feature column {name!r} has type {part[name].type}; expected numbers. A "
            f"column is a feature unless its name is a role ({', '.join(ROLES)}) or that "
            "of the clicks: rename it, encode it as numbers, or leave it out."
        ) from error


class _File:
    """The log of a file of queries, merged, in a file; and what its codes stand for."""

    def __init__(self, path: Path, log: ClickLog, n_raw: Ints) -> None:
        weight = log.weight.sum(dtype=float)
        clicks = log.clicks.sum(dtype=float)
        #: Rows, impressions and clicks.
        self.sums = [float(log.n_rows), float(weight), float(clicks)]
        self.path = path
        self.n_raw = n_raw
        logs = [log.fold()]
        self.differs = logs[0].n_lists < log.n_lists
        if self.differs:
            logs.append(log.fold(users=True, patterns=True))
        #: Hashes by which documents are found in other files; None where a document belongs to
        #: its query, whose rows are all in this file.
        self.hashes = None if isinstance(log.doc_ids, pd.MultiIndex) else row_hashes(log.features)
        #: The log without its rows.
        nothing = np.zeros(0, dtype=int)  # a slice would keep the rows in memory
        without_rows = log._columns(nothing, np.zeros(1, dtype=int), nothing)
        self.log = replace(without_rows, features=log.features[nothing])
        #: What is known of the columns of the merged and of the detailed copy.
        self.counts = [_counts_of(logs[0]), _counts_of(logs[-1])]
        # The file holds features once, and ids not at all: the union has them.
        if self.differs:
            logs[1] = replace(logs[1], features=self.log.features)
        logs = [replace(each, doc_ids=None, candidates=NOBODY) for each in logs]
        with path.open("wb") as file:
            pickle.dump(logs, file)

    def load(self) -> list[ClickLog]:
        """The merged log, and the detailed one if it is another; the file is deleted."""
        logs = pickle.loads(self.path.read_bytes())
        self.path.unlink()
        return logs


def _counts_of(log: ClickLog) -> tuple[Ints, Ints, dict[str, tuple[float, float, np.dtype]]]:
    """Rows and lists by query, and range and type of each column, of a log with its own codes."""
    n_queries = len(log.query_ids)
    n_rows = np.bincount(log.query_of_list, log.lengths, n_queries)
    n_lists = np.bincount(log.query_of_list, minlength=n_queries)
    ranges = {}
    for name in _ON_DISK if log.n_rows else ():
        column = getattr(log, name)
        if column is not None:
            ranges[name] = _range_of(column)
    return n_rows, n_lists, ranges


class _Copy:
    """A copy of the log on its way to disk, in the order of the queries.

    Equal lists are merged. Models of which rows were clicked together, or of users, read a second
    copy, in which only lists with equal clicks and users are. Where both are equal, there is one.
    """

    def __init__(self, name: str, files: list[_File], union: Union, scratch: Path) -> None:
        self.name = name
        counts = [file.counts[name == "detailed"] for file in files]
        # Where the rows and lists of each query begin.
        n_rows = np.zeros(len(union.query_ids), dtype=np.int64)
        n_lists = np.zeros(len(union.query_ids), dtype=np.int64)
        for number, (rows, lists, _) in enumerate(counts):
            query = union.codes("query", number)
            n_rows[query] = rows
            n_lists[query] = lists
        self.first_row = offsets_from_counts(n_rows)
        self.first_list = offsets_from_counts(n_lists)
        #: Rows of each list.
        self.lengths = np.empty(int(self.first_list[-1]), dtype=np.int32)
        self.columns = {}
        self.constants = {}
        # A file that shows no row has no columns.
        ranges_of_files = [ranges for _, _, ranges in counts if ranges]
        for column in ranges_of_files[0]:
            ranges = [each[column] for each in ranges_of_files]
            self._make_room(column, ranges, union, scratch)

    def _make_room(self, name, ranges, union, scratch):
        """An array on disk for a column, or its value where it is constant."""
        lows, highs, types = zip(*ranges, strict=True)
        low = min(lows)
        high = max(highs)
        dtype = np.result_type(*types)
        # Files have codes of their own; those on disk are the union's.
        n_codes = {
            "version": len(union.doc_of_version),
            "bias": len(union.bias_values),
            "user": len(union.user_ids),
        }
        if name in n_codes:
            high = n_codes[name] - 1
            dtype = _narrowest(high, np.int16 if name == "bias" else np.int32)
        if low < high:
            path = scratch / f"{self.name}_{name}.array"
            self.columns[name] = _scratch_array(path, dtype, (int(self.first_row[-1]),))
        else:
            self.constants[name] = float(low)

    def place(self, log: ClickLog) -> None:
        """Put the lists of a file where their queries are, in the order of their codes."""
        detailed = self.name == "detailed"
        # Once more, because the order of equal lists depends on the codes of the union.
        log = log.fold(users=detailed, patterns=detailed)
        self.lengths[_places(log.query_of_list, self.first_list)] = log.lengths
        place = _places(log.query, self.first_row)
        for name, column in self.columns.items():
            column[place] = getattr(log, name)

    def write(self, manifest: Manifest) -> dict[str, Any]:
        """Write the tables; returns facts about them."""
        manifest.save(f"{self.name}_rows", self.columns)
        narrow = _narrowest(self.lengths.max(), np.int16)
        manifest.save(f"{self.name}_lists", {"n_rows": self.lengths.astype(narrow)})
        return {"n_rows": int(self.first_row[-1]), "constants": self.constants}


def _range_of(column):
    """Smallest and largest value of a column, and the narrowest type that holds all exactly."""
    low = column.min()
    high = column.max()
    if column.dtype.kind == "i":
        return low, high, _narrowest(high, np.int16)
    # A constant is in the manifest, whatever its type.
    exact = low == high or (column.astype(np.float32) == column).all()
    return low, high, np.dtype(np.float32 if exact else np.float64)


def _narrowest(high, least):
    """The narrowest type of whole numbers up to one, with a sign, from ``least`` on."""
    return np.result_type(least, np.min_scalar_type(-1 - int(high)))


def _places(sorted_query, first):
    """Place of each item: those of a query follow each other from its first place."""
    # How far each run moves, repeated for each of its items.
    offsets = offsets_from_sorted(sorted_query)
    query = sorted_query[offsets[:-1]]
    starts = first[:-1][query]
    shift = np.repeat(starts - offsets[:-1], np.diff(offsets))
    return shift + np.arange(len(sorted_query))


def _scratch_array(path, dtype, shape):
    """An array of zeros in a file, so that it may exceed memory."""
    if not all(shape):  # an empty file cannot be mapped
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "w+", shape=shape)


# Documents ----------------------------------------------------------------------------
def _read_documents(source, union, features, target):
    """Features of a table with one row per document; other documents are ignored."""
    schema, parts = source
    ids = union.doc_ids
    keys = [name for name in ("qid", "doc") if name in schema.names]
    if "doc" not in keys:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'relevance' and features; "
            f"found {schema.names}."
        )
    if ids.nlevels < len(keys):
        keys = ["doc"]  # ids are global: the query of a document says nothing more
    if ids.nlevels == len(keys):
        _fill(target, ids, keys, parts, features, schema)
        return
    # The log has pairs (qid, doc), and the table one row per doc: each pair copies that row.
    code = ids.codes[1]
    docs = ids.levels[1]
    by_doc = np.empty((len(docs), target.shape[1]), dtype=np.float32)
    _fill(by_doc, docs, keys, parts, features, schema)
    step = 1 << 16  # rows at a time, because the target may exceed memory
    for start in range(0, len(target), step):
        rows = slice(start, start + step)
        target[rows] = by_doc[code[rows]]


def _fill(table, ids, keys, parts, features, schema):
    """Put features into the rows of ``table`` of their ids; an error unless each is there once."""
    seen = np.zeros(len(ids), dtype=bool)
    for part in parts:
        # Documents that the log does not show are left out.
        place = ids.get_indexer(_index_of(part, keys))
        rows = np.flatnonzero(place >= 0)
        place = place[rows]
        twice = seen[place] | pd.Series(place).duplicated().to_numpy()
        if twice.any():
            repeated = ids[place[np.argmax(twice)]]
            raise ValueError(
                f"documents has several rows with the same {' and '.join(keys)}, such as "
                f"{python_value(repeated)!r}; expected one row each."
            )
        seen[place] = True
        table[place] = features.read(part)[rows]
    if not seen.all():
        n_lacking = int((~seen).sum())
        raise ValueError(
            f"documents is missing {n_lacking} of {count_of(len(ids), 'document')} of "
            f"the log (such as {python_value(ids[np.argmin(seen)])!r}); expected one row for "
            f"each. The type of 'doc' in documents is {schema.field('doc').type}."
        )


def _index_of(part, keys):
    """The ids of the rows of a part: doc, or pairs (qid, doc)."""
    columns = [pd.Index(_plain(part[key]).to_pandas(), tupleize_cols=False) for key in keys]
    return columns[0] if len(columns) == 1 else pd.MultiIndex.from_arrays(columns)


def _save_versions(manifest, doc_of_version, features):
    """Write the document and the features of each version; without features, no column."""
    table = {"doc": doc_of_version.astype(np.int32)}
    if features.shape[1]:
        table["features"] = features
    manifest.save("versions", table)


def _save_documents(manifest, ids):
    """Write what the codes of documents stand for."""
    if ids is None:
        return
    if ids.nlevels > 1:  # pairs (qid, doc)
        query, code = ids.codes
        table = {"id": code.astype(np.int32), "query": query.astype(np.int32)}
        ids = ids.levels[1]
    else:
        table = {"id": np.arange(len(ids), dtype=np.int32)}
    manifest.save("documents", table)
    manifest.save("document_ids", {"id": ids.to_numpy()})


# Columns ------------------------------------------------------------------------------
def _feature_names(schema, click=None):
    """Names of the columns that are neither a role nor the clicks."""
    if "team" in schema.names:
        empty = nw.from_native(schema.empty_table())
        check_team(empty.schema["team"])
    return feature_names(schema.names, [click])


def _plain(column):
    """A column without categories and time zones: time is that of UTC, as in memory."""
    types = import_pyarrow().types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        column = column.cast(import_pyarrow().timestamp(column.type.unit))
    if types.is_float16(column.type):
        column = column.cast("float32")
    return column


def _floats(column):
    """A column of numbers as float64, NaN where it is null."""
    return column.cast("float64").to_numpy()


def _ids(column):
    """Ids for the reader; those that are no whole numbers are coded, which is quicker."""
    if import_pyarrow().types.is_integer(column.type):
        return column.to_numpy()
    try:
        coded = column.combine_chunks().dictionary_encode()
    except NotImplementedError:  # lists, which are no ids, and types of extensions, such as UUIDs
        codes, ids = encode(_objects(column.to_pylist()), "A role of ids")
    else:
        # Arrow codes values in the order in which it meets them; ours are sorted.
        distinct = _objects(coded.dictionary.to_pylist())
        code, ids = encode(distinct, "A role of ids")
        codes = code[coded.indices.to_numpy(zero_copy_only=False)]
    categories = pd.Index(ids, dtype=object, tupleize_cols=False)
    return pd.Categorical.from_codes(codes, categories)


def _objects(values):
    """A flat array of Python objects, also of lists of one length."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _hashes(column):
    """A hash of each id."""
    ids = _ids(column)
    if isinstance(ids, np.ndarray):
        return hash_columns([ids])
    hashes = pd.util.hash_array(ids.categories.to_numpy(), categorize=False)
    return hashes[ids.codes]
