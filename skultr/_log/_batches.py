"""Tables on disk or in an engine as Arrow batches, read once from beginning to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw

from ._dataset_files import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a batch.
BATCH = 1 << 19


def open_table(table: Any, scratch: Path) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema of Parquet files or of any frame, and its rows in parts that fit into memory.

    A lazy frame of Polars is written to ``scratch`` first, in parts, by its engine.
    """
    pa = import_pyarrow()
    ds = pa.dataset
    if isinstance(table, list | tuple | str | Path):
        table = _open_files(ds, table)
    if not isinstance(table, ds.Dataset):
        table = _of_frame(pa, ds, table, scratch)
    if isinstance(table, pa.RecordBatchReader):
        return table.schema, _joined(pa, table)
    columns = table.schema.names
    batches = table.to_batches(columns=columns, batch_size=BATCH, batch_readahead=2)
    return table.schema, _joined(pa, batches)


def _open_files(ds, paths):
    several = list(paths) if isinstance(paths, list | tuple) else [paths]
    lost = [str(each) for each in several if not Path(each).exists()]
    if lost:
        raise FileNotFoundError(
            f"There is no file or folder {lost[0]!r}; expected Parquet files or folders of them."
        )
    source = [str(each) for each in several] if len(several) > 1 else str(several[0])
    return ds.dataset(source, format="parquet", partitioning="hive")


def _of_frame(pa, ds, frame, scratch):
    """A dataset or a reader of a frame."""
    read = nw.from_native(frame, pass_through=True)
    if isinstance(frame, pa.Table | pa.RecordBatchReader):
        return frame if isinstance(frame, pa.RecordBatchReader) else ds.dataset(frame)
    if not isinstance(read, nw.DataFrame | nw.LazyFrame):
        raise TypeError(
            f"A log or documents of type {type(frame).__module__}.{type(frame).__name__} cannot "
            "be read; expected Parquet files, a pyarrow.dataset.Dataset, a frame of pandas, "
            "Polars or PyArrow, a lazy frame of Polars, or a relation of DuckDB."
        )
    if isinstance(read, nw.DataFrame):
        if read.implementation.is_pandas():
            # With its index, a frame of selected rows would have one more column.
            try:
                return ds.dataset(pa.Table.from_pandas(frame, preserve_index=False))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ValueError(
                    f"{' '.join(map(str, error.args))}. Expected values of one type in each "
                    "column: convert the column."
                ) from error
        return ds.dataset(read.to_arrow())
    if read.implementation.is_duckdb():
        return pa.RecordBatchReader.from_stream(frame)
    if read.implementation.is_polars():
        copy = scratch / "frame.parquet"
        frame.sink_parquet(copy)
        return ds.dataset(str(copy), format="parquet")
    raise TypeError(
        f"A {read.implementation} frame cannot be read in parts; write it to Parquet first, and "
        "pass the folder."
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
