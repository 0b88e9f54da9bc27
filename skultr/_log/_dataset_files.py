"""Files of a log on disk: tables of Arrow, a manifest of them, and the tables they come from."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

#: Version of the files; a folder of another version is refused.
FORMAT = 3
#: Sums of files up to this size are compared whenever a log is opened.
_SMALL = 1 << 24
_PART = 1 << 22
#: Rows of a batch.
BATCH = 1 << 19


def import_pyarrow() -> Any:
    """PyArrow, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.ipc
    except ImportError as error:
        raise ImportError(
            "A ClickDataset needs PyArrow, which is not installed: pip install pyarrow."
        ) from error
    return pyarrow


class Manifest:
    """The tables of a folder: size, sum and types of each file, and facts about the log."""

    def __init__(self, folder: Path, facts: dict[str, Any], files: dict[str, Any]) -> None:
        self.folder, self.facts, self.files = folder, facts, files

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder, whose files are all there and have their size."""
        path = folder / "meta.json"
        if not path.exists():
            if any(folder.glob("**/*.arrow")):
                raise _damaged(folder, "meta.json is missing")
            raise FileNotFoundError(
                f"There is no ClickDataset in {str(folder)!r}. Make it with "
                "ClickDataset.from_parquet(log, path=...)."
            )
        try:
            found = json.loads(path.read_bytes())
            version, sum_ = found["format"], found.pop("crc32", None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder, "meta.json is no manifest") from error
        if version != FORMAT and sum_ in (None, _sum_of(found)):
            raise ValueError(
                f"The dataset in {str(folder)!r} has format {version}; this version of skultr "
                f"reads format {FORMAT}. Make it again from the log."
            )
        if sum_ != _sum_of(found):
            raise _damaged(folder, "meta.json has another sum than it states")
        for name, file in found["files"].items():
            if not (folder / name).exists():
                raise _damaged(folder, f"{name} is missing")
            if (size := (folder / name).stat().st_size) != file["bytes"]:
                raise _damaged(folder, f"{name} has {size:,} bytes in place of {file['bytes']:,}")
        return cls(folder, found["facts"], found["files"])

    def write(self) -> None:
        """Write the manifest into its folder."""
        found = {"format": FORMAT, "facts": self.facts, "files": self.files}
        text = json.dumps({**found, "crc32": _sum_of(found)}, indent=1)
        (self.folder / "meta.json").write_text(text)

    def verify(self, most_bytes: float = np.inf) -> None:
        """Compare the sums of files of at most so many bytes."""
        for name, file in self.files.items():
            if file["bytes"] <= most_bytes and _sum_of_file(self.folder / name) != file["crc32"]:
                raise _damaged(
                    self.folder, f"the bytes of {name} have another sum than when it was written"
                )

    def verify_small(self) -> None:
        """Compare the sums of small files, which takes no time."""
        self.verify(_SMALL)

    def save(self, name: str, columns: Mapping[str, Any]) -> None:
        """Write arrays of one length as one batch; a matrix becomes a column of lists."""
        pa = import_pyarrow()
        arrays = {key: _to_arrow(pa, values) for key, values in columns.items()}
        batch = pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])
        path = self.folder / f"{name}.arrow"
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
        source = pa.memory_map(str(self.folder / f"{name}.arrow"))
        batch = pa.ipc.open_file(source).get_batch(0)
        return {key: _to_numpy(pa, batch.column(key)) for key in batch.schema.names}


def _to_arrow(pa, values):
    values = np.asarray(values)
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    if values.dtype.kind in "iuf":
        return pa.array(values)
    # An index finds the type of all values: nanoseconds, and integers beyond 2**63.
    return pa.array(pd.Index(values.tolist(), tupleize_cols=False))


def _to_numpy(pa, column):
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy()
    ids = np.empty(len(column), dtype=object)
    ids[:] = column.to_pylist()
    return ids


def _damaged(folder, what):
    return ValueError(
        f"The dataset in {str(folder)!r} is damaged or was copied in part: {what}. Copy the whole "
        "folder again, or make it again from the log."
    )


def _sum_of(found):
    return zlib.crc32(json.dumps(found, sort_keys=True).encode())


def _sum_of_file(path):
    found = 0
    with path.open("rb") as file:
        while part := file.read(_PART):
            found = zlib.crc32(part, found)
    return found


# Tables of a log, read once from beginning to end ------------------------------------
def open_table(table: Any, scratch: Path) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema of Parquet files or of any frame, and its rows in parts that fit into memory.

    A lazy frame of Polars is written to ``scratch`` first, in parts, by its engine.
    """
    pa = import_pyarrow()
    if isinstance(table, list | tuple | str | Path):
        table = _open_files(pa, table)
    elif not isinstance(table, pa.dataset.Dataset | pa.RecordBatchReader):
        table = _open_frame(pa, table, scratch)
    if isinstance(table, pa.RecordBatchReader):
        return table.schema, _joined(pa, table)
    columns = table.schema.names
    batches = table.to_batches(columns=columns, batch_size=BATCH, batch_readahead=2)
    return table.schema, _joined(pa, batches)


def _open_files(pa, paths):
    several = [str(each) for each in (paths if isinstance(paths, list | tuple) else [paths])]
    lost = [each for each in several if not Path(each).exists()]
    if lost:
        raise FileNotFoundError(
            f"There is no file or folder {lost[0]!r}; expected Parquet files or folders of them."
        )
    source = several if len(several) > 1 else several[0]
    return pa.dataset.dataset(source, format="parquet", partitioning="hive")


def _open_frame(pa, frame, scratch):
    """A dataset or a reader of a frame."""
    read = nw.from_native(frame, pass_through=True)
    if isinstance(read, nw.DataFrame):
        # With its index, a frame of pandas would have one more column.
        try:
            return pa.dataset.dataset(nw.maybe_reset_index(read).to_arrow())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{' '.join(map(str, error.args))}. Expected values of one type in each column: "
                "convert the column."
            ) from error
    kind = read.implementation if isinstance(read, nw.LazyFrame) else None
    if kind == nw.Implementation.DUCKDB:
        return pa.RecordBatchReader.from_stream(frame)
    if kind == nw.Implementation.POLARS:
        frame.sink_parquet(scratch / "frame.parquet")
        return _open_files(pa, scratch / "frame.parquet")
    raise TypeError(
        f"A log or documents of type {type(frame).__module__}.{type(frame).__name__} cannot be "
        "read in parts; expected Parquet files, a pyarrow.dataset.Dataset, a frame of pandas, "
        "Polars or PyArrow, a lazy frame of Polars, or a relation of DuckDB. Write it to Parquet "
        "first, and pass the folder."
    )


def _joined(pa, batches):
    """Tables of about :data:`BATCH` rows; files may hold many small batches."""
    waiting, n_rows = [], 0
    for batch in batches:
        waiting.append(batch)
        n_rows += batch.num_rows
        if n_rows >= BATCH:
            yield pa.Table.from_batches(waiting)
            waiting, n_rows = [], 0
    if n_rows:
        yield pa.Table.from_batches(waiting)
