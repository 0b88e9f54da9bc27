"""Draws of ids, such as those of whole queries, by the engine that holds a log."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import narwhals.stable.v2 as nw

#: Digits of the hash of an id that decide whether it is drawn.
_HEX_DIGITS = 8


def with_draw(rows: Any, name: str, share: float, seed: int) -> Any:
    """Rows of an engine with ``_is_drawn``: whether the id in a column is in a share of all ids.

    The MD5 hash of the seed and the id as text decides, so that a larger share contains a smaller
    one, and engines draw the same ids if these are text or whole numbers: each engine writes
    times in another way.
    """
    kind = rows.implementation
    native = rows.to_native()
    # Hashes as hexadecimal digits: those below a limit are the share.
    limit = f"{round(share * 16**_HEX_DIGITS):0{_HEX_DIGITS}x}"
    if kind.is_polars():
        return nw.from_native(native.with_columns(_draw_polars(name, limit, seed)))
    if kind.is_duckdb():
        column = '"' + name.replace('"', '""') + '"'
        drawn = f"md5(concat('{seed}:', CAST({column} AS VARCHAR))) < '{limit}' AS _is_drawn"
        return nw.from_native(native.project(f"*, {drawn}"))
    if kind.is_spark_like():
        column = f"`{name.replace('`', '``')}`"
        drawn = f"md5(concat('{seed}:', cast({column} AS string))) < '{limit}' AS _is_drawn"
        return nw.from_native(native.selectExpr("*", drawn))
    meta = native._meta.assign(_is_drawn=True)
    return nw.from_native(native.map_partitions(_draw_pandas, name, limit, seed, meta=meta))


def can_draw(rows: Any) -> bool:
    """Whether :func:`with_draw` knows the engine of a frame."""
    kind = rows.implementation
    is_known = kind.is_polars() or kind.is_duckdb() or kind.is_spark_like() or kind.is_dask()
    return is_known and isinstance(rows, nw.LazyFrame)


def _draw_polars(name, limit, seed):
    import polars as pl

    def are_drawn(ids):
        return ids.is_in(_drawn_among(ids.unique(), limit, seed))

    # Batch by batch, as the streaming engine reads them.
    text = pl.col(name).cast(pl.String)
    drawn = text.map_batches(are_drawn, return_dtype=pl.Boolean, is_elementwise=True)
    return drawn.alias("_is_drawn")


def _draw_pandas(frame, name, limit, seed):
    ids = frame[name]
    return frame.assign(_is_drawn=ids.isin(_drawn_among(ids.unique(), limit, seed)))


def _drawn_among(ids, limit, seed):
    """Those of some distinct ids that are drawn, a list."""
    # MD5 mixes the digits, and is no secret here.
    hashes = (md5(f"{seed}:{each}".encode(), usedforsecurity=False).hexdigest() for each in ids)
    return [each for each, hashed in zip(ids, hashes, strict=True) if hashed < limit]
