"""A log in any engine: checked once, and counted there by any key.

Lists, cells, pairs of the graph and labels depend on a log through sums over its rows. The engine
adds them up, and only the distinct keys are collected. A frame in memory goes the same way, with
codes in place of ids.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._base._typing import Floats, Ints
from ._engine import (
    CODES,
    check_numbers,
    check_rows,
    collect,
    encode_ids,
    fault_columns,
    is_in_engine,
    scope_of,
    with_hashes,
)
from ._faults import NO_ROW_SHOWN, Fault
from ._reader import pairs_of_codes
from ._roles import OUTCOME, ROLES
from ._segments import ROUNDING

#: Roles whose faults are reported, whatever is counted.
CHECKED = ("qid", "session", "doc", "user", "position", "bias", "impressions")


def check_given(X: Any, y: Any, sample_weight: Any, roles: Mapping[str, Any], caller: str) -> None:
    """Refuse arrays of values by row beside a frame of an engine, whose rows have no order."""
    kind = f"{type(X).__module__}.{type(X).__name__}"
    if not isinstance(y, str):
        raise TypeError(
            f"X is a lazy frame ({kind}), whose rows have no order, and y is a "
            f"{type(y).__name__}; {caller} expects the name of the column of clicks, as in fit(X, "
            "'click'), or a frame in memory: reduce X first with skultr.aggregate_clicks(X)."
        )
    if y.startswith(OUTCOME):
        raise TypeError(
            f"X is a lazy frame ({kind}), in which clicks are counted, and y={y!r} is another "
            "outcome. Collect X, or pass the column of clicks."
        )
    given = {"sample_weight": sample_weight, **roles}
    given = [k for k, value in given.items() if not isinstance(value, str | None)]
    if given:
        raise TypeError(
            f"X is a lazy frame ({kind}), whose rows have no order, and {caller} got an array of "
            f"{', '.join(given)}; expected columns of X. Add them as columns (a sample weight "
            "multiplies 'impressions'), or reduce X first with skultr.aggregate_clicks(X)."
        )


def counted(
    X: Any, y: Any, sample_weight: Any, roles: Mapping[str, Any], caller: str, count: Any
) -> tuple[Any, Any]:
    """X and y; of a frame of an engine what ``count(X, y)`` collects of it: cells or lists."""
    if not is_in_engine(X):
        return X, y
    check_given(X, y, sample_weight, roles, caller)
    return count(X, y)


# The log, checked ---------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class EngineLog:
    """A log without faults: its columns, clicks and weight (None: 1) by row, as expressions.

    ``counts`` names the column of numbers of clicks in messages; None where clicks are rates.
    """

    frame: Any
    schema: nw.Schema
    columns: dict[str, nw.Expr]
    clicks: nw.Expr | None
    weight: nw.Expr | None
    counts: str | None

    @classmethod
    def of(
        cls,
        X: Any,
        click: str | None,
        reads: Iterable[str] = CHECKED,
        *,
        needs: Iterable[str] = (),
        optional: Iterable[str] = (),
        sample_weight: str | None = None,
        rates: bool = False,
        called: str | None = None,
    ) -> EngineLog:
        """The log of a frame of any kind; an error with the faults that its rows have.

        Columns of ``reads`` that X lacks are left out, those of ``needs`` are an error; columns
        without a role that are not ``optional`` must have a value in every row that was shown.
        With ``rates``, clicks are rates even where rows have ``impressions``.
        """
        frame = nw.from_native(X)
        schema = frame.collect_schema()
        named = [name for name in (click, sample_weight) if name is not None]
        require_columns(schema, [*needs, *named])
        reads = [name for name in dict.fromkeys([*needs, *reads]) if name in schema]
        numbers = [name for name in (*CODES, "impressions", "propensity") if name in reads]
        check_numbers(schema, [*numbers, *named])
        if frame.implementation.is_polars():
            frame = frame.lazy()
        rates = rates or "impressions" not in schema
        clicks, weight = (
            None if name is None else nw.col(name).cast(nw.Float64).fill_nan(None)
            for name in (click, sample_weight)
        )
        columns = fault_columns(schema, reads, clicks, weight, rates=rates)
        own = [name for name in reads if name not in ROLES and name not in optional]
        called = repr(click) if called is None else called
        names = {"click": called, "n_clicks": called}
        scale = check_rows(frame, columns, schema, names, [_missing_value(name) for name in own])
        if "impressions" in schema:
            known = columns["impressions"].cast(nw.Float64)
            weight = known if weight is None else known * weight
        if clicks is not None and rates:
            clicks = clicks if scale == 1 else clicks / scale
            clicks = clicks if weight is None else _whole_if_close(clicks * weight)
        return cls(frame, schema, columns, clicks, weight, None if rates else called)

    @cached_property
    def scope(self) -> str | None:
        """Scope of the ids of documents, or None if the log does not have it."""
        return scope_of(self.frame) if "doc_scope" in self.schema else None

    def key(self, name: str) -> nw.Expr:
        """A column of shown rows to group by: positions and bias factors are integers."""
        column = self.columns[name]
        return column.cast(nw.Int64) if name in CODES else column

    def rows(self, values: Mapping[str, nw.Expr], *, shown: bool = True) -> Any:
        """Some values of the rows that were shown (or of all), with ``_click`` and ``_weight``."""
        places = {"sample_weight"} & {*self.columns} | {*CODES, "impressions"} & {*self.schema}
        frame = self.frame.filter(self.columns["shown"]) if shown and places else self.frame
        sums = {"_click": self.clicks, "_weight": self.weight}
        values = {name: each for name, each in sums.items() if each is not None} | dict(values)
        return frame.select(*(each.alias(name) for name, each in values.items()))


def require_columns(schema: nw.Schema, names: Iterable[str]) -> None:
    """Raise an error with the names of columns that a frame lacks."""
    lacking = [name for name in names if name not in schema]
    if lacking:
        raise ValueError(
            f"X lacks the columns {lacking}; found {list(schema)}. Rename yours to their roles "
            "('qid', 'doc', 'position', ...); columns of clicks and of bias factors may have any "
            "name that you pass."
        )


def _missing_value(name):
    return Fault(
        f"{name} missing",
        (name, "shown"),
        ValueError,
        f"The column {name!r} is missing in {{rows}}, {{where}}; expected a value in every row "
        "that was shown. Fill it (with a separate value such as 'unknown'), or drop these rows.",
        lambda c: c.shown & c.missing(name),
    )


def _whole_if_close(clicks):
    """As :func:`~skultr._log._segments.whole_if_close`, as an expression."""
    whole = clicks.round()
    is_whole = (clicks - whole).abs() <= clicks * ROUNDING
    return nw.when(is_whole).then(whole).otherwise(clicks)


# The count ----------------------------------------------------------------------------
def code_ids(rows: Any, names: Iterable[str]) -> tuple[Any, dict[str, nw.Series[Any]]]:
    """Rows in memory with codes in place of ids that are no integers, and these ids."""
    if isinstance(rows, nw.LazyFrame):
        return rows, {}
    texts = [n for n in names if not (rows[n].dtype.is_integer() or rows[n].dtype == nw.Boolean)]
    coded = {name: encode_ids(rows[name]) for name in texts}
    columns = {name: rows[name].to_numpy() for name in rows.columns if name not in coded}
    columns |= {name: codes for name, (codes, _) in coded.items()}
    ids = {name: ids for name, (_, ids) in coded.items()}
    return nw.from_dict(columns, backend=rows.implementation), ids


def codes_of(table: nw.DataFrame[Any], ids: Mapping[str, Any], name: str) -> tuple[Ints, Any]:
    """Codes of a column that was counted by, and what they stand for, sorted."""
    return (table[name].to_numpy(), ids[name]) if name in ids else encode_ids(table[name])


def count_by(rows: Any, keys: Iterable[str], *more: nw.Expr) -> nw.DataFrame[Any]:
    """Number of rows ``_n`` of each distinct key and sums of their ``_click`` and ``_weight``."""
    names = rows.collect_schema().names()
    sums = [nw.col(name).sum() for name in ("_click", "_weight") if name in names]
    return collect(rows.group_by(*keys).agg(nw.len().alias("_n"), *sums, *more))


def totals_of(table: nw.DataFrame[Any]) -> tuple[Floats, Floats | None]:
    """Weight and clicks of each key; without clicks None."""
    weight = table["_weight" if "_weight" in table.columns else "_n"].to_numpy().astype(float)
    return weight, table["_click"].to_numpy().astype(float) if "_click" in table.columns else None


def with_versions(rows: Any, features: list[str]) -> Any:
    """Rows with ``_version``, a hash of their features."""
    rows = with_hashes(rows, features)
    return rows.with_columns(nw.col("_hash0").alias("_version")).drop("_hash0", "_hash1")


def one_value(rows: Any, name: str) -> nw.Expr:
    """The value of a column that is constant within each key."""
    if rows.implementation.is_dask():
        return nw.col(name).max()
    with warnings.catch_warnings():  # Narwhals may still rename it; max() has no lists
        warnings.simplefilter("ignore", nw.exceptions.NarwhalsUnstableWarning)
        return nw.col(name).any_value()


# Cells --------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class CellCount:
    """A group-by of the shown rows of a log: by what, and what is summed beside clicks."""

    rows: Any
    keys: list[str]
    features: list[str]
    mean: list[str]
    scope: str | None

    @cached_property
    def n_rows(self) -> int:
        """Number of shown rows, an upper limit of the number of cells."""
        return int(collect(self.rows.select(nw.len())).item())

    @property
    def shards_have_whole_queries(self) -> bool:
        """True if documents are dealt to shards by their query; else by their id."""
        return self.scope != "global" and "qid" in self.keys

    def cells(self, shard: tuple[int, int] | None = None, *, in_order: bool = False) -> Any:
        """A log of one row per cell, and click rates; engines return cells in any order.

        With ``shard`` (its number, and that of all shards) only the documents whose query (or
        id, where ids are global) has the hash of the shard.
        """
        rows, keys = self.rows, list(self.keys)
        if self.features:
            rows, keys = with_versions(rows, self.features), [*keys, "_version"]
        if shard is not None:
            rows = with_hashes(rows, ["qid" if self.shards_have_whole_queries else "doc"])
            rows = rows.filter(nw.col("_hash0") % shard[1] == shard[0])
        sums = (nw.col(f"_{name}").sum() for name in self.mean)
        table = count_by(rows, keys, *sums, *(one_value(rows, name) for name in self.features))
        return self._as_log(table.sort(*self.keys) if in_order else table, shard is None)

    def _as_log(self, table, is_whole):
        weight, clicks = totals_of(table)
        if is_whole and not len(weight):
            NO_ROW_SHOWN.report(0, None, None)
        columns = {name: table[name] for name in [*self.keys, *self.features]}
        new = {"impressions": weight, "session": np.arange(len(weight))}
        if self.scope is not None:
            new["doc_scope"] = np.full(len(weight), self.scope, dtype=object)
        new |= {name: _mean_of_documents(table, name) for name in self.mean}
        backend = table.implementation
        columns |= {k: nw.new_series(k, values, backend=backend) for k, values in new.items()}
        X = nw.from_dict({name: nw.maybe_reset_index(each) for name, each in columns.items()})
        clicks = np.zeros(len(weight)) if clicks is None else clicks
        # Sums of rates may be a rounding error above the impressions.
        return X.to_native(), np.minimum(clicks / weight, 1.0)


def _mean_of_documents(table, name):
    """Mean of a role over the rows of each document of a query, for each of its cells."""
    doc, ids = encode_ids(table["doc"])
    if "qid" in table.columns:
        doc, *_ = pairs_of_codes(encode_ids(table["qid"])[0], doc, len(ids))
    total, n = (np.bincount(doc, table[each].to_numpy()) for each in (f"_{name}", "_n"))
    return (total / n)[doc]


def count_of(
    X: Any,
    click: str | None,
    by: Iterable[str],
    *,
    documents: bool = True,
    optional: Iterable[str] = (),
    mean: Iterable[str] = (),
    features: Iterable[str] = (),
) -> CellCount:
    """What has to be counted for :func:`count_cells_of`; faults of the log are reported."""
    schema = nw.from_native(X).collect_schema()
    by = [name for name in dict.fromkeys(by) if name not in ROLES or name in schema]
    mean, optional, features = [name for name in mean if name in schema], [*optional], [*features]
    ids = [name for name in ("qid", "doc")[: 1 + documents] if name in schema]
    needs = [*by, *["doc"] * documents]
    reads = [*CHECKED, *mean]
    log = EngineLog.of(X, click, reads, needs=needs, optional=optional, rates=True)
    require_columns(schema, features)
    keys = list(dict.fromkeys([*ids, *by]))
    values = {name: log.key(name) for name in keys}
    values |= {f"_{name}": log.columns[name].cast(nw.Float64) for name in mean}
    rows = log.rows(values | {name: nw.col(name) for name in features})
    for name in optional:
        rows = rows.filter(~nw.col(name).is_null())
    return CellCount(rows, keys, features, mean, log.scope)


def count_cells_of(
    X: Any, click: str | None, by: Iterable[str], *, in_order: bool = False, **settings: Any
) -> tuple[Any, Floats]:
    """Log of one row per cell with click rates, counted in the engine that holds the log.

    Faults of rows are reported but one: that two rows of a result page have one position would
    need the pages.

    Parameters
    ----------
    X : frame of any kind that Narwhals reads
    click : str or None
        Column of clicks, or of click rates where rows have ``impressions``, as ``fit(X, click)``
        reads it in memory. None: all click rates are 0.
    by : iterable of str
        Columns that tell cells apart, beside ``qid`` and ``doc``; roles that X lacks are left out.
    in_order : bool, default=False
        Whether the cells are sorted.
    documents : bool, default=True
        Whether cells are those of documents; else only of queries.
    optional : iterable of str, default=()
        Columns of ``by`` without a role in which a value may be missing: such rows are left out.
    mean : iterable of str, default=()
        Roles of which the mean over the rows of a document is a column of the result.
    features : iterable of str, default=()
        Columns that the result has, too; they tell cells apart.

    Returns
    -------
    X : frame in memory
        ``qid``, ``doc``, ``doc_scope`` if X has them, the columns of ``by``, ``mean`` and
        ``features``, ``impressions``, and ``session``, the number of the row: no result page.
    click_rate : ndarray of shape (n_cells,)
    """
    return count_of(X, click, by, **settings).cells(in_order=in_order)
