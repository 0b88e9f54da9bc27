"""A log on disk as a :class:`ClickLog`, its files, and any log as frames: rows, cells, places."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._progress import Steps
from .._base._typing import Floats, Ints
from ..exceptions import is_meant
from ._cells import Cells
from ._click_units import as_known_rates
from ._clicklog import NOBODY, ClickLog, NeverShown
from ._dataset_checks import check_file, check_manifest, check_values, read_batch
from ._documents import id_columns
from ._roles import LogOnDisk, open_frame, wrapped
from ._segments import encode, offsets_from_counts, pair_codes, row_hashes

if TYPE_CHECKING:
    import pyarrow as pa


class FramesOfLog(LogOnDisk):
    """A log with a method ``log`` as the frames that readers of rows, cells and places take."""

    def to_frame(self) -> tuple[pd.DataFrame, Floats]:
        """All rows of the log in memory, equal lists merged, for code that reads frames.

        ``estimator.fit(*dataset.to_frame())`` gives what ``estimator.fit(dataset)`` gives, up to
        rounding errors. Estimators that need more than clicks and impressions of documents and
        bias factors, and scorers, read a dataset through it.

        Returns
        -------
        X : DataFrame of shape (n_rows, n_columns)
            Roles and features, one row per document of each distinct list. ``session`` is the
            number of the list, ``impressions`` how often it was served. Lists end with those
            candidates of their query that they do not show.
        click_rate : ndarray of shape (n_rows,)
            Clicks per impression.
        """
        log = self.log()
        X, rate = rows_of(log, self.roles, self.feature_names)
        if not len(log.candidates.query):
            return X, rate
        others, list_ = _candidates_of_lists(log)
        rest, rest_rate = rows_of(others, self.roles, self.feature_names)
        rest["session"] = list_
        # A row without a position was not shown.
        rest[rest.columns.intersection(["position", "bias"])] = np.nan
        # A stable order: of each list, the rows that were shown stay first.
        session = np.append(X["session"], rest["session"])
        order = np.argsort(session, kind="stable")
        X = pd.concat([X, rest]).iloc[order].reset_index(drop=True)
        rate = np.append(rate, rest_rate)[order]
        return X, as_known_rates(rate)

    def to_cells(self, by: Sequence[str]) -> tuple[pd.DataFrame, Floats]:
        """Clicks and impressions of each document, as a log of one row per cell."""
        by = [name for name in by if name in self.roles]
        return cells_of(self.log(detailed="user" in by), by)

    def to_places(self) -> pd.DataFrame:
        """The distinct positions, bias factors and users, one row each."""
        return places_of(self.log(detailed="user" in self.roles), self.roles)[0]


#: Types of columns that are one number in all rows; those of others are floats.
_CONSTANT_TYPES = {"version": np.int32, "user": np.int32, "bias": np.int32, "position": np.int64}


def open_log(manifest: Manifest, detailed: bool) -> ClickLog:
    """The log of a folder, mapped from its files; ``detailed`` if lists with other clicks or users
    stay apart."""
    copies = manifest.facts["copies"]
    name = "detailed" if detailed and "detailed" in copies else "merged"
    # Columns that are missing, then those of one value, then those in the file.
    rows = {"propensity": None, "production": None}
    rows |= _constant_columns(copies[name])
    rows |= manifest.load(f"{name}_rows")
    lengths = manifest.load(f"{name}_lists")["n_rows"]
    queries = manifest.load("queries")
    query = np.arange(len(queries["id"]), dtype=np.int32)
    versions = manifest.load("versions")
    no_features = np.empty((len(versions["doc"]), 0), dtype=np.float32)
    candidates = NOBODY
    if "candidates.arrow" in manifest.files:
        candidates = NeverShown(**manifest.load("candidates"))
    return ClickLog(
        **rows,
        features=versions.get("features", no_features),
        doc_of_version=versions["doc"],
        offsets=offsets_from_counts(lengths),
        query_of_list=np.repeat(query, queries[f"{name}_lists"]),
        query_ids=queries["id"],
        bias_values=manifest.load("factors")["bias"],
        user_ids=manifest.load("users")["id"],
        doc_ids=load_doc_ids(manifest),
        candidates=candidates,
        all_lists_differ=name == "merged",
    )


def _constant_columns(copy):
    """The columns of a copy that are one number in all rows, without memory."""
    columns = {}
    for name, value in copy["constants"].items():
        # One number that stands for all rows.
        number = np.array(value, dtype=_CONSTANT_TYPES.get(name, np.float64))
        columns[name] = np.broadcast_to(number, copy["n_rows"])
    return columns


def load_doc_ids(manifest: Manifest) -> pd.Index | None:
    """Index of the documents, as a log in memory has it."""
    if "documents.arrow" not in manifest.files:
        return None
    ids = pd.Index(manifest.load("document_ids")["id"], name="doc", tupleize_cols=False)
    codes = manifest.load("documents")
    if "query" not in codes:
        return ids
    queries = pd.Index(manifest.load("queries")["id"], tupleize_cols=False)
    return pd.MultiIndex([queries, ids], [codes["query"], codes["id"]], names=["qid", "doc"])


def rows_of(
    log: ClickLog, roles: Iterable[str], names: Sequence[str]
) -> tuple[pd.DataFrame, Floats]:
    """All rows of a log with its ``roles`` and features of these ``names``, and click rates."""
    columns: dict[str, Any] = {
        "qid": log.query_ids[log.query],
        "session": log.list_,
        **id_columns(log.doc_ids, log.doc),
        "position": log.position,
    }
    if "bias" in roles:
        columns["bias"] = log.bias_values[log.bias]
    if "user" in roles:
        columns["user"] = log.user_ids[log.user]
    columns["impressions"] = log.weight
    if log.propensity is not None:
        columns["propensity"] = log.propensity
    if log.production is not None:
        columns["production"] = log.production
    features = pd.DataFrame(log.features[log.version], columns=list(names), copy=False)
    X = pd.concat([pd.DataFrame(columns), features], axis=1)
    return X, as_known_rates(log.click_rate)


def _candidates_of_lists(log):
    """The candidates that each list does not show, as rows without clicks, and their lists."""
    # Each candidate of a query, in each of its lists, ...
    lists = pd.DataFrame({"query": log.query_of_list, "list_": np.arange(log.n_lists)})
    pairs = lists.merge(pd.DataFrame(log.candidates._asdict()), on="query")
    # ... but for those lists that show the document.
    doc = log.doc_of_version[pairs["version"]]
    candidate = pair_codes(pairs["list_"], doc, log.n_docs)
    shown = pair_codes(log.list_, log.doc, log.n_docs)
    pairs = pairs[~np.isin(candidate, shown)]
    version = pairs["version"].to_numpy()
    list_ = pairs["list_"].to_numpy()
    # What else is known of them is that of the first row of the list.
    rows = log.take_rows(log.offsets[list_], list_)
    if log.production is not None:
        rows = replace(rows, production=pairs["production"].to_numpy())
    return replace(rows, version=version, clicks=np.zeros(len(version))), list_


def cells_of(log: ClickLog, by: Iterable[str]) -> tuple[pd.DataFrame, Floats]:
    """One row per cell of a log, a document under values of ``by``, and click rates."""
    # Estimates that read a log through its cells alone read such a frame as they read the log.
    tables = {name: _codes(log, name) for name in by}
    factor, sizes = _combined(tables)
    cells = Cells.from_rows(log.doc, factor, log.clicks, log.weight, log.n_docs, prod(sizes))
    doc_ids = log.doc_ids
    if doc_ids is None:  # a hash of its features names a document
        hashes = row_hashes(log.features)[1]
        doc_ids = pd.Index(hashes.view(np.int64))
    columns = {
        "qid": log.query_ids[log.query_of_doc][cells.doc],
        **id_columns(doc_ids, cells.doc),
        **_split(tables, cells.factor, sizes),
        "impressions": cells.weight,
        "session": np.arange(len(cells.doc)),
    }
    # Sums of rates may be a rounding error above the impressions.
    rate = np.minimum(cells.clicks / cells.weight, 1.0)
    return pd.DataFrame(columns, copy=False), rate


def places_of(log: ClickLog, roles: Iterable[str]) -> tuple[pd.DataFrame, Ints]:
    """The distinct positions, bias factors and users of a log, and the place of each row."""
    # Every log has positions.
    names = ["position", *(name for name in ("bias", "user") if name in roles)]
    tables = {name: _codes(log, name) for name in names}
    code, sizes = _combined(tables)
    number, found = encode(code)
    return pd.DataFrame(_split(tables, found, sizes)), number


def _combined(tables):
    """One code for the codes of several columns, and the number of values of each."""
    codes = [code for code, _ in tables.values()]
    sizes = [len(values) for _, values in tables.values()]
    return np.ravel_multi_index(codes, sizes), sizes


def _split(tables, code, sizes):
    """The values that a code of :func:`_combined` stands for, by column."""
    codes = np.unravel_index(code, sizes)
    return {name: tables[name][1][own] for name, own in zip(tables, codes, strict=True)}


def _codes(log: ClickLog, name: str) -> tuple[Any, NDArray[Any]]:
    """Codes of a column by row, and the values that they stand for."""
    if name == "user":
        return log.user, log.user_ids
    if name == "bias":
        return log.bias, log.bias_values
    # Positions are their own codes.
    last = int(log.position.max(initial=0))
    return log.position, np.arange(last + 1.0)


# Tables of Arrow, a manifest of them, and the tables that they come from --------------

#: Version of the files; a folder of another version is refused.
FORMAT = 3
#: Sums of files up to this size, in bytes, are compared whenever a log is opened: larger ones
#: take seconds.
SMALL = 1 << 24
#: Rows of a part of a log that is read: enough that Arrow's cost per part does not count.
BATCH = 1 << 19


def import_pyarrow() -> Any:
    """PyArrow with its parts, which take a moment to import and serve logs on disk alone."""
    import pyarrow
    import pyarrow.dataset
    import pyarrow.ipc

    return pyarrow


#: Files whose values were checked, with their manifests.
_checked: set[tuple[Any, ...]] = set()


class Manifest:
    """The tables of a folder: size, sum and types of each file, and facts about the log."""

    def __init__(self, folder: Path, facts: dict[str, Any], files: dict[str, Any]) -> None:
        self.folder = folder
        self.facts = facts
        self.files = files

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder, whose files are all there and have their size."""
        path = folder / "meta.json"
        # Also a link to nowhere exists.
        if not os.path.lexists(path):
            if any(folder.glob("*.arrow")):
                raise _damaged(folder, "meta.json is missing")
            raise FileNotFoundError(
                f"There is no ClickDataset in {str(folder)!r}. Make it with "
                "ClickDataset.from_parquet(log, path=...)."
            )
        with _damage_told(folder):
            check_file(path)
            if path.stat().st_size > SMALL:
                raise ValueError("meta.json is too large for a manifest")
            found = _json_in(path)
            # The sum does not cover itself.
            version = found["format"]
            sum_ = found.pop("crc32", None)
        if version != FORMAT and sum_ in (None, _sum_of(found)):
            raise ValueError(
                f"The dataset in {str(folder)!r} has format {version!r:.40}; this version of "
                f"skultr reads format {FORMAT}. Make it again from the log."
            )
        with _damage_told(folder):
            if sum_ != _sum_of(found):
                raise ValueError("meta.json has another sum than it states")
            check_manifest(found)
            for name, file in found["files"].items():
                check_file(folder / name, file["bytes"])
        return cls(folder, found["facts"], found["files"])

    @property
    def stated(self) -> dict[str, Any]:
        """What ``meta.json`` holds, but for its own sum."""
        return {"format": FORMAT, "facts": self.facts, "files": self.files}

    def write(self) -> None:
        """Write the manifest into its folder."""
        found = {**self.stated, "crc32": _sum_of(self.stated)}
        (self.folder / "meta.json").write_text(json.dumps(found, indent=1))

    def verify(self, most_bytes: float = np.inf) -> None:
        """Compare the sums of files of at most so many bytes."""
        for name, file in self.files.items():
            if file["bytes"] > most_bytes:
                continue
            path = self.folder / name
            with _damage_told(self.folder):
                check_file(path, file["bytes"])
                if _sum_of_file(path) != file["crc32"]:
                    raise ValueError(
                        f"the bytes of {name} have another sum than when it was written"
                    )

    def save(self, name: str, columns: Mapping[str, Any]) -> None:
        """Write arrays of one length as one batch; a matrix becomes a column of lists."""
        pa = import_pyarrow()
        # One batch, so that each column is one piece of the file that can be mapped.
        arrays = {key: _to_arrow(pa, values) for key, values in columns.items()}
        batch = pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])
        path = self.folder / f"{name}.arrow"
        # Not compressed, so that it can be mapped.
        with pa.ipc.new_file(str(path), batch.schema) as writer:
            writer.write_batch(batch)
        self.files[path.name] = {
            "bytes": path.stat().st_size,
            "crc32": _sum_of_file(path),
            "rows": batch.num_rows,
            "columns": {key: str(values.type) for key, values in arrays.items()},
        }

    def load(self, name: str) -> dict[str, NDArray[Any]]:
        """The columns of a table: numbers are mapped from the file, ids are in memory."""
        pa = import_pyarrow()
        path = self.folder / f"{name}.arrow"
        stated = self.files[f"{name}.arrow"]
        with _damage_told(self.folder, f"{path.name}: "):
            check_file(path, stated["bytes"])
            batch = read_batch(pa, path, stated["rows"], stated["columns"])
            columns = {key: _to_numpy(pa, batch.column(key)) for key in batch.schema.names}
            # Values are checked once for each file and manifest, because every fit and every fold
            # loads the tables again.
            file = path.stat()
            identity = (str(path), file.st_ino, file.st_size, file.st_mtime_ns)
            key = (*identity, _sum_of(self.stated))
            if key not in _checked:
                check_values(name, columns, self.facts, self.files)
                _checked.add(key)
        return columns


def _to_arrow(pa, values):
    values = np.asarray(values)
    if values.ndim == 2:
        flat = pa.array(values.reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if values.dtype.kind in "iuf":
        return pa.array(values)
    # An index finds the type of all values: nanoseconds, and integers beyond 2**63.
    return pa.array(pd.Index(values.tolist(), tupleize_cols=False))


def _to_numpy(pa, column):
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy()
    # Ids are objects, as a log in memory has them.
    ids = np.empty(len(column), dtype=object)
    ids[:] = column.to_pylist()
    return ids


@contextmanager
def _damage_told(folder: Path, where: str = "") -> Iterator[None]:
    """Context in which whatever is wrong with the files is one error, in one sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:  # of JSON or Arrow, too
        text = str(error) if is_meant(error) else f"{type(error).__name__}: {error}"
        one_line = " ".join(f"{where}{text}".split())
        raise _damaged(folder, one_line.rstrip(".")) from error


def _damaged(folder, what):
    return ValueError(
        f"The dataset in {str(folder)!r} is damaged or was copied in part: {what}. Copy the whole "
        "folder again, or make it again from the log."
    )


def _json_in(path):
    """The dict in a file of JSON."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError("meta.json is no manifest") from error
    if not isinstance(found, dict) or "format" not in found:
        raise ValueError("meta.json is no manifest")
    return found


def _sum_of(found):
    return zlib.crc32(json.dumps(found, sort_keys=True).encode())


def _sum_of_file(path):
    found = 0
    n_bytes = 1 << 22  # at a time: a file may exceed memory
    with path.open("rb") as file:
        while part := file.read(n_bytes):
            found = zlib.crc32(part, found)
    return found


# Tables of a log, read once from beginning to end ------------------------------------
def open_table(table: Any, scratch: Path, what: str) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema of Parquet files or of any frame, and its rows in parts that fit into memory.

    A bar counts the rows, of which each is a ``what``.
    """
    pa = import_pyarrow()
    # Texts and paths are files; all else is a frame, a dataset or a reader.
    several = table if isinstance(table, list | tuple) else [table]
    if all(isinstance(each, str | Path) for each in several):
        table = _open_files(pa, several)
    elif not isinstance(table, pa.dataset.Dataset | pa.RecordBatchReader):
        table = _open_frame(pa, table, scratch)
    if isinstance(table, pa.RecordBatchReader):
        return table.schema, _joined(pa, table, what)
    # Two parts are read ahead: more of them would fill memory.
    batches = table.to_batches(columns=table.schema.names, batch_size=BATCH, batch_readahead=2)
    return table.schema, _joined(pa, batches, what, _n_rows(pa, table))


def _open_files(pa, paths):
    paths = [str(each) for each in paths]
    lost = [path for path in paths if not Path(path).exists()]
    if lost:
        raise FileNotFoundError(
            f"There is no file or folder {lost[0]!r}; expected Parquet files or folders of them."
        )
    source = paths if len(paths) > 1 else paths[0]  # a list must not hold a folder
    return pa.dataset.dataset(source, format="parquet", partitioning="hive")


def _open_frame(pa, frame, scratch):
    """A dataset or a reader of a frame."""
    read = wrapped(frame, pass_through=True)
    if isinstance(read, nw.DataFrame):
        # With its index, a frame of pandas would have one more column.
        read = nw.maybe_reset_index(read)
        try:
            return pa.dataset.dataset(read.to_arrow())
        except (pa.ArrowException, OverflowError, TypeError) as error:
            found = " ".join(map(str, error.args))
            raise ValueError(
                f"{found}. Expected values of one type in each column, which Arrow has: convert "
                "the column."
            ) from error
    # Lazy engines that can hand out rows in parts.
    kind = open_frame(frame).implementation if isinstance(read, nw.LazyFrame) else None
    if kind == nw.Implementation.DUCKDB:
        return pa.RecordBatchReader.from_stream(frame)
    if kind == nw.Implementation.POLARS:
        path = scratch / "frame.parquet"  # Polars has no reader of parts
        frame.sink_parquet(path)
        return _open_files(pa, [path])
    raise TypeError(
        f"A log or documents of type {type(frame).__module__}.{type(frame).__name__} cannot be "
        "read in parts; expected Parquet files, a pyarrow.dataset.Dataset, a frame of pandas, "
        "Polars or PyArrow, a lazy frame of Polars, or a relation of DuckDB. Write it to Parquet "
        "first, and pass the folder."
    )


def _n_rows(pa, table):
    """The number of rows, None for files that would have to be read for it."""
    is_parquet = isinstance(getattr(table, "format", None), pa.dataset.ParquetFileFormat)
    is_known = is_parquet or isinstance(table, pa.dataset.InMemoryDataset)
    return table.count_rows() if is_known else None


def _joined(pa, batches, what, n_all=None):
    """Tables of about :data:`BATCH` rows; files may hold many small batches."""
    waiting = []
    n_rows = 0  # of the batches that wait
    with closing(Steps(what, n_all)) as steps:
        for batch in batches:
            waiting.append(batch)
            n_rows += batch.num_rows
            if n_rows >= BATCH:
                yield pa.Table.from_batches(waiting)
                steps.count(n_rows)
                waiting = []
                n_rows = 0
        if n_rows:
            yield pa.Table.from_batches(waiting)
