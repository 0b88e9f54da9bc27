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
from ._reader import Rows
from ._roles import ROLES, check_team, feature_names, is_far, read_scope, refuse_infinity
from ._segments import encode, hash_columns, offsets_from_counts, offsets_from_sorted, row_hashes

if TYPE_CHECKING:
    import pyarrow as pa

#: Files that the rows are spread over: a log of 100 million rows gives files of 1.5 million.
N_FILES = 64
_NUMBERS = ("position", "bias", "impressions", "propensity", "production")
#: Columns of the rows on disk; those that are constant are numbers in the manifest.
_ON_DISK = (*BY_ROW, *MAY_BE_NONE)
#: Rows of features that are copied at a time.
_ROWS = 1 << 16
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
    rows = _SpreadRows(schema, click, documents is None, scratch)
    for part in progress(parts, "part of the rows"):
        rows.add(part)
    files = [_File(path, *rows.read(path)) for path in progress(rows.close(), "file of lists")]
    rows.check_counts(files)
    hashes = [file.hashes for file in files]
    union = Union([file.log for file in files], None if hashes[0] is None else hashes)
    n_queries = len(union.query_ids)
    n_versions = len(union.doc_of_version)
    features = rows.features if documents is None else _Features(_feature_names(documents[0]))
    names = features.names
    target = _scratch_array(scratch / "features.array", np.float32, (n_versions, len(names)))
    if documents is not None:
        _read_documents(documents, union, features, target)
    n_raw = np.zeros(n_queries, dtype=np.int64)
    several = any(file.differs for file in files)
    copies = [_Copy(name, files, union, scratch) for name in ("merged", "detailed")[: 1 + several]]
    for number, file in enumerate(files):
        logs = file.load()
        n_raw[union.codes("query", number)] = file.n_raw
        if documents is None:
            target[union.codes("version", number)] = logs[0].features
        for copy, log in zip(copies, (logs[0], logs[-1]), strict=False):
            copy.place(union.recoded(log, number))
    features.warn()
    manifest = Manifest(out, {"click": click}, {})
    n_lists = {f"{copy.name}_lists": np.diff(copy.first_list) for copy in copies}
    manifest.save("queries", {"id": union.query_ids, "impressions": n_raw} | n_lists)
    rest = [union.recoded(file.log, number).candidates for number, file in enumerate(files)]
    columns = (
        None if some[0] is None else np.concatenate(some) for some in zip(*rest, strict=True)
    )
    rest = NeverShown.of_rows(*columns, n_versions)
    if len(rest.query):
        known = {name: values for name, values in rest._asdict().items() if values is not None}
        manifest.save("candidates", known)
    manifest.save("factors", {"bias": union.bias_values})
    manifest.save("users", {"id": union.user_ids})
    doc = union.doc_of_version.astype(np.int32)
    manifest.save("versions", {"doc": doc} | ({"features": target} if names else {}))
    _save_documents(manifest, union.doc_ids)
    manifest.facts |= {
        "n_queries": n_queries,
        "n_documents": int(doc[-1]) + 1,
        "copies": {copy.name: copy.write(manifest) for copy in copies},
        "roles": [name for name in schema.names if name in ROLES],
        "feature_names": names,
    }
    manifest.write()


class _SpreadRows:
    """Rows of a log, checked, in files by query: roles, clicks, and features as lists."""

    def __init__(self, schema: pa.Schema, click: str, with_features: bool, folder: Path) -> None:
        names = schema.names
        needed = ["qid", "position", click, *(() if with_features else ("doc",))]
        if lacking := [name for name in needed if name not in names]:
            raise ValueError(
                f"The log lacks the columns {lacking}; found {names}. Rename your columns to "
                "'qid', 'doc' and 'position', and name the column of clicks with click=."
            )
        self.schema = nw.from_native(schema.empty_table()).schema
        check_numbers(self.schema, [*_NUMBERS, click])
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
        counts = columns.get("impressions", pa.array(np.ones(len(part))))
        with np.errstate(invalid="ignore"):
            facts = ClickFacts.of(_floats(columns["click"]), _floats(counts))
        self._check(part, rates=facts.largest <= 1)  # whether they are, the whole log tells
        self.facts = self.facts.joined(facts)
        file = (_hashes(columns["qid"]) % np.uint64(N_FILES)).astype(np.uint8)
        order = np.argsort(file, kind="stable")
        rows = pa.table(columns).take(pa.array(order))
        if self.features.names:
            values = pa.array(self.features.read(part)[order].reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(values, len(self.features.names))
            rows = rows.append_column("features", lists)
        counts = np.bincount(file, minlength=N_FILES)
        for number, start in enumerate(offsets_from_counts(counts)[:-1]):
            if counts[number]:
                self._file(number, rows.schema).write_table(rows.slice(start, counts[number]))

    def close(self) -> list[Path]:
        """Close the files; returns those that have rows."""
        if not self._files:
            NO_ROWS.report()
        for file in self._files.values():
            file.close()
        files = sorted(self.folder.glob("*.rows"))
        self.scale = 1.0
        if "impressions" in self.roles:
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
            names = [n for n in table.column_names if n != "features"]
            facts = facts.joined(PageFacts.of(nw.from_native(table.select(names))))
        return facts.in_all()

    def read(self, path: Path) -> tuple[ClickLog, Ints]:
        """The log of a file, which is deleted, and the number of its rows by query."""
        table = _table_of(path)
        path.unlink()
        values = {
            name: _ids(table[name]) if name in IDS else _floats(table[name]) for name in self.roles
        }
        rows = Rows(None, len(table), values, self.scope)
        clicks = _floats(table["click"])
        counts = values.get("impressions")
        rows.rate = clicks / self.scale
        if self.has_counts:
            called = {"n_clicks": repr(self.click)}
            check({"n_clicks": clicks, "impressions": counts}, called=called)
            rows.rate = divided(clicks, counts)
        rows.check_one_row_per_position(numbered=False)
        features = np.empty((len(table), 0), dtype=np.float32)
        if self.features.names:
            features = table["features"].combine_chunks().flatten().to_numpy()
            features = features.reshape(len(table), -1)
        del table
        return sort_into_lists(rows, features, candidates=True), np.bincount(rows.query)

    def check_counts(self, files: list[_File]) -> None:
        """Report a log that shows no row or no click, or clicked rows only."""
        n_shown, weight, clicks = np.sum([file.sums for file in files], axis=0)
        mean = np.array([weight, clicks]) / max(n_shown, 1)
        check_counts(*(np.broadcast_to(each, int(n_shown)) for each in mean))

    def _check(self, part, rates):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EngineLog.of(part, self.click, self.roles, rates=rates)
        for warning in caught:  # the same in the next part is no news
            message = str(warning.message)
            if message[-40:] not in self._reported:
                self._reported.add(message[-40:])
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
        self.low = np.full(len(names), np.inf)
        self.high = np.full(len(names), -np.inf)

    def read(self, part: pa.Table) -> NDArray[np.float32]:
        """Features of a part (n_rows, n_features); an error for what is no finite number."""
        values = np.empty((part.num_rows, len(self.names)), dtype=np.float32)
        for place, name in enumerate(self.names):
            try:
                exact = _floats(part[name])
            except (ValueError, TypeError, NotImplementedError) as error:
                raise ValueError(
                    f"The feature column {name!r} has type {part[name].type}; expected numbers. A "
                    f"column is a feature unless its name is a role ({', '.join(ROLES)}) or that "
                    "of the clicks: rename it, encode it as numbers, or leave it out."
                ) from error
            self.low[place] = np.fmin.reduce(exact, initial=self.low[place])
            self.high[place] = np.fmax.reduce(exact, initial=self.high[place])
            with np.errstate(over="ignore"):
                values[:, place] = exact
        refuse_infinity(values, self.names, self.n_read)
        self.n_read += part.num_rows
        return values

    def warn(self) -> None:
        """Warn of features of which float32 would lose digits."""
        varies = self.low < self.high
        far = np.flatnonzero(varies & is_far(*np.where(varies, [self.low, self.high], 0)))
        if len(far):
            warn_user(
                f"The values of the features {[self.names[place] for place in far]} are much "
                f"larger than their range (the first has {self.low[far[0]]:g} to "
                f"{self.high[far[0]]:g}), and float32, in which a dataset holds features, keeps "
                "few of their digits. Subtract a constant from such a column, such as its "
                "smallest value, in the log and wherever you predict.",
                ClickDataWarning,
            )


class _File:
    """The log of a file of queries, merged, in a file; and what its codes stand for."""

    def __init__(self, path: Path, log: ClickLog, n_raw: Ints) -> None:
        self.sums = [
            float(log.n_rows),
            *(float(each.sum(dtype=float)) for each in (log.weight, log.clicks)),
        ]
        self.path = path
        self.n_raw = n_raw
        logs = [log.fold()]
        self.differs = logs[0].n_lists < log.n_lists
        if self.differs:
            logs.append(log.fold(users=True, patterns=True))
        # Documents of a query are in one file.
        self.hashes = None if isinstance(log.doc_ids, pd.MultiIndex) else row_hashes(log.features)
        #: The log without its rows, and what is known of the columns of each copy.
        nothing = np.zeros(0, dtype=int)  # a slice would keep the rows in memory
        self.log = replace(
            log._columns(nothing, np.zeros(1, dtype=int), nothing), features=log.features[nothing]
        )
        self.counts = [_counts_of(each) for each in (logs[0], logs[-1])]
        logs[1:] = [replace(each, features=self.log.features) for each in logs[1:]]
        with path.open("wb") as file:
            pickle.dump([replace(each, doc_ids=None, candidates=NOBODY) for each in logs], file)

    def load(self) -> list[ClickLog]:
        """The merged log, and the detailed one if it is another; the file is deleted."""
        logs = pickle.loads(self.path.read_bytes())
        self.path.unlink()
        return logs


def _counts_of(log: ClickLog) -> tuple[Ints, Ints, dict[str, tuple[float, float, np.dtype]]]:
    """Rows and lists by query, and range and type of each column, of a log with its own codes."""
    n = len(log.query_ids)
    columns = {name: getattr(log, name) for name in _ON_DISK if log.n_rows}
    return (
        np.bincount(log.query_of_list, np.diff(log.offsets), n),
        np.bincount(log.query_of_list, minlength=n),
        {name: _range_of(column) for name, column in columns.items() if column is not None},
    )


class _Copy:
    """A copy of the log on its way to disk, in the order of the queries.

    Equal lists are merged. Models of which rows were clicked together, or of users, read a second
    copy, in which only lists with equal clicks and users are. Where both are equal, there is one.
    """

    def __init__(self, name: str, files: list[_File], union: Union, scratch: Path) -> None:
        self.name = name
        counts = [file.counts[name == "detailed"] for file in files]
        n_rows, n_lists = np.zeros((2, len(union.query_ids)), dtype=np.int64)
        for number, (rows, lists, _) in enumerate(counts):
            query = union.codes("query", number)
            n_rows[query] = rows
            n_lists[query] = lists
        self.first_row, self.first_list = map(offsets_from_counts, (n_rows, n_lists))
        self.lengths = np.empty(int(self.first_list[-1]), dtype=np.int32)
        # Codes are those of the union.
        n_codes = {
            "version": len(union.doc_of_version),
            "bias": len(union.bias_values),
            "user": len(union.user_ids),
        }
        self.columns = {}
        self.constants = {}
        columns = [ranges for *_, ranges in counts if ranges]
        for name in columns[0]:
            lows, highs, types = zip(*(each[name] for each in columns), strict=True)
            low = min(lows)
            high = max(highs)
            dtype = np.result_type(*types)
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
        log = log.fold(users=detailed, patterns=detailed)
        self.lengths[_places(log.query_of_list, self.first_list)] = np.diff(log.offsets)
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
    exact = low == high or (column.astype(np.float32) == column).all()
    return low, high, np.dtype(np.float32 if exact else np.float64)


def _narrowest(high, least):
    """The narrowest type of whole numbers up to one, with a sign, from ``least`` on."""
    return np.result_type(least, np.min_scalar_type(-1 - int(high)))


def _places(sorted_query, first):
    """Place of each item: those of a query follow each other from its first place."""
    offsets = offsets_from_sorted(sorted_query)
    starts = first[:-1][sorted_query[offsets[:-1]]]
    return np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(len(sorted_query))


def _scratch_array(path, dtype, shape):
    """An array of zeros in a file, so that it may exceed memory."""
    return np.memmap(path, dtype, "w+", shape=shape) if all(shape) else np.zeros(shape, dtype)


# Documents ----------------------------------------------------------------------------
def _read_documents(source, union, features, target):
    """Features of a table with one row per document; other documents are ignored."""
    (schema, parts), ids = source, union.doc_ids
    keys = [name for name in ("qid", "doc") if name in schema.names]
    if "doc" not in keys:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'relevance' and features; "
            f"found {schema.names}."
        )
    code = None
    if ids.nlevels < len(keys):
        keys = ["doc"]  # ids are global
    elif ids.nlevels > len(keys):
        code = ids.codes[1]
        ids = ids.levels[1]
    table = target if code is None else np.empty((len(ids), target.shape[1]), dtype=np.float32)
    seen = np.zeros(len(ids), dtype=bool)
    for part in progress(parts, "part of the documents"):
        index = [pd.Index(_plain(part[key]).to_pandas(), tupleize_cols=False) for key in keys]
        place = ids.get_indexer(index[0] if len(keys) == 1 else pd.MultiIndex.from_arrays(index))
        rows = np.flatnonzero(place >= 0)
        twice = seen[place[rows]] | pd.Series(place[rows]).duplicated().to_numpy()
        if twice.any():
            raise ValueError(
                f"documents has several rows with the same {' and '.join(keys)}, such as "
                f"{python_value(ids[place[rows[np.argmax(twice)]]])!r}; expected one row each."
            )
        seen[place[rows]] = True
        table[place[rows]] = features.read(part)[rows]
    if not seen.all():
        raise ValueError(
            f"documents is missing {int((~seen).sum())} of {count_of(len(ids), 'document')} of "
            f"the log (such as {python_value(ids[np.argmin(seen)])!r}); expected one row for "
            f"each. The type of 'doc' in documents is {schema.field('doc').type}."
        )
    for start in range(0, len(target) if code is not None else 0, _ROWS):
        rows = slice(start, start + _ROWS)
        target[rows] = table[code[rows]]


def _save_documents(manifest, ids):
    """Write what the codes of documents stand for."""
    if ids is None:
        return
    codes = {"id": np.arange(len(ids))}
    if ids.nlevels > 1:
        codes = {"id": ids.codes[1], "query": ids.codes[0]}
        ids = ids.levels[1]
    manifest.save("documents", {name: code.astype(np.int32) for name, code in codes.items()})
    manifest.save("document_ids", {"id": ids.to_numpy()})


# Columns ------------------------------------------------------------------------------
def _feature_names(schema, click=None):
    """Names of the columns that are neither a role nor the clicks."""
    if "team" in schema.names:
        check_team(nw.from_native(schema.empty_table()).schema["team"])
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
        code, ids = encode(_objects(coded.dictionary.to_pylist()), "A role of ids")
        codes = code[coded.indices.to_numpy(zero_copy_only=False)]
    return pd.Categorical.from_codes(codes, pd.Index(ids, dtype=object, tupleize_cols=False))


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
    return pd.util.hash_array(ids.categories.to_numpy(), categorize=False)[ids.codes]
