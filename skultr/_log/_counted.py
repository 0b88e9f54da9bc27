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
from importlib.util import find_spec
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from ..exceptions import python_value
from ._click_units import ClickFacts, PageFacts, are_counts, as_known_rates
from ._faults import (
    GRADES,
    IDS,
    NO_ROW_SHOWN,
    NO_ROWS,
    Columns,
    all_at_once,
    check_clicked,
    find_faults,
    missing_value,
    tell,
)
from ._reader import pairs_of_codes
from ._roles import OUTCOME, ROLES, numbers, open_frame, read_scope, refuse_index
from ._segments import (
    ROUNDING,
    as_array,
    as_index_values,
    encode,
    hash_columns,
    naming_ids,
    sorting_order,
)

#: Roles whose faults are reported, whatever is counted.
CHECKED = ("qid", "session", "doc", "user", "position", "bias", "impressions")
#: Roles that hold whole numbers, whatever type a column with missing values has.
CODES = ("position", "bias")
#: Bits of the hash of a row: sums over half a million rows fit into 64 bits in every engine.
_HASH_BITS = 44


def is_in_engine(X: Any) -> bool:
    """True if X is a frame of an engine: lazy Polars, DuckDB, Dask, PySpark, ..."""
    if nw.dependencies.is_into_dataframe(X):
        return False
    return isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame)


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
    """A log without faults: its columns, clicks and weight (None: 1) by row, as expressions."""

    frame: Any
    schema: nw.Schema
    columns: dict[str, nw.Expr]
    clicks: nw.Expr | None
    weight: nw.Expr | None

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

        Beside ``impressions``, numbers of clicks and click rates are told apart, unless the clicks
        are known to be ``rates``.
        """
        frame = open_frame(X)
        schema = frame.collect_schema()
        named = [name for name in (click, sample_weight) if name is not None]
        reads = [*dict.fromkeys([*needs, *reads])]
        refuse_index(X, [name for name in (*reads, *named) if name not in schema])
        require_columns(schema, [*needs, *named])
        reads = [name for name in reads if name in schema]
        counted = (*CODES, "impressions", "propensity", "production")
        counted = [*(name for name in counted if name in reads), *named]
        check_numbers(schema, counted)
        if isinstance(frame, nw.DataFrame):
            frame = _in_plain_types(frame, counted, [name for name in reads if name in IDS])
            schema = frame.schema
        if frame.implementation.is_polars():
            frame = frame.lazy()
        called = repr(click) if called is None else called
        clicks, weight = (
            None if name is None else nw.col(name).cast(nw.Float64).fill_nan(None)
            for name in (click, sample_weight)
        )
        columns = {name: _column(name, schema[name]) for name in reads}
        columns.setdefault("impressions", nw.lit(1.0))
        shown = (columns["impressions"] > 0).fill_null(False)
        place = next((name for name in CODES if name in columns), None)
        if place is not None:
            shown = shown & ~columns[place].is_null()
        columns |= {"shown": shown, "served": shown}
        if weight is not None:  # a sample weight of 0 excludes a row on purpose
            columns |= {"sample_weight": weight, "shown": shown & (weight > 0)}
        if clicks is not None:
            columns["click"] = clicks
            rates = rates or not _are_counts(frame, columns, schema, called)
            columns |= {} if rates else {"n_clicks": clicks}
        own = [name for name in reads if name not in ROLES and name not in optional]
        scale = _check_rows(frame, columns, schema, called, map(missing_value, own))
        if weight is not None:
            weight = weight / _mean_weight(frame, columns, weight)
        if "impressions" in schema:
            known = columns["impressions"].cast(nw.Float64)
            weight = known if weight is None else known * weight
        if clicks is not None:
            clicks = clicks if scale == 1 else clicks / scale
            times = weight if rates else columns.get("sample_weight")
            clicks = clicks if times is None else _whole_if_close(clicks * times)
        return cls(frame, schema, columns, clicks, weight)

    @cached_property
    def scope(self) -> str | None:
        """Scope of the ids of documents, or None if the log does not have it."""
        if "doc_scope" not in self.schema:
            return None
        found = collect(self.frame.select("doc_scope").unique())["doc_scope"]
        return read_scope(None, found.to_numpy()) if len(found) else "query"

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

    def count(self, keys: Iterable[str]) -> Count:
        """The shown rows by some of the columns that were read."""
        rows, ids = code_ids(self.rows({name: self.key(name) for name in keys}), keys)
        count = count_by(rows, keys, ids=ids)
        check_counts(count.weight, count.clicks)
        return count


def unit_of_several(X: Any, click: str) -> str | None:
    """What the column of clicks of a log without faults holds, "clicks" or "click rates"; None if
    no row stands for several impressions."""
    frame = nw.from_native(X)
    schema = frame.collect_schema()
    if "impressions" not in schema:
        return None
    columns = {
        "click": nw.col(click).cast(nw.Float64).fill_nan(None),
        "impressions": _column("impressions", schema["impressions"]),
    }
    facts = _facts_of(frame, columns)
    if facts is None:
        return None
    if are_counts(facts, _asks_pages(frame, columns, schema), repr(click)):
        return "clicks"
    return "click rates" if facts.impressions > 1 else None


def require_columns(schema: nw.Schema, names: Iterable[str]) -> None:
    """Raise an error with the names of columns that a frame lacks."""
    lacking = [name for name in names if name not in schema]
    if lacking:
        raise ValueError(
            f"X lacks the columns {lacking}; found {list(schema)}. Rename yours to their roles "
            "('qid', 'doc', 'position', ...); columns of clicks and of bias factors may have any "
            "name that you pass."
        )


def check_numbers(schema: nw.Schema, names: Iterable[str]) -> None:
    """Refuse columns that must hold numbers, and hold text, times, lists or records."""
    text = nw.String | nw.Categorical | nw.Enum | nw.Binary
    times = nw.Date | nw.Datetime | nw.Duration | nw.Time
    _raise(
        f"The role {name!r} must hold numbers, got {schema[name]} values. Convert the column, or "
        "rename it if it holds something else."
        for name in names
        if isinstance(schema.get(name), text | times | nw.List | nw.Array | nw.Struct)
    )


def _in_plain_types(frame, counted, ids):
    """A frame in memory whose numbers and ids are of types that every operation takes.

    Arrow has no remainder, and no arithmetic of half precision; objects may be no numbers.
    """
    plain = {}
    for name in counted:
        if not _is_plain_number(frame[name]):
            values = as_array(frame[name].to_numpy())
            plain[name] = numbers(f"The role {name!r}", values)
    for name in ids:
        dtype = frame[name].dtype
        if dtype.is_float() and not _is_plain_number(frame[name]):
            plain[name] = as_index_values(as_array(frame[name].to_numpy()))
    new = (
        nw.new_series(name, values, backend=frame.implementation) for name, values in plain.items()
    )
    return nw.maybe_reset_index(frame).with_columns(*new) if plain else frame


def _is_plain_number(column):
    """Whether a column holds integers, booleans or floats of single or double precision."""
    dtype = column.dtype
    if column.implementation.is_pandas() and isinstance(column.to_native().dtype, pd.ArrowDtype):
        return False
    return dtype.is_integer() or dtype in (nw.Boolean, nw.Float32, nw.Float64)


def _raise(errors):
    """Raise all errors at once, if there are any."""
    errors = list(errors)
    if errors:
        raise ValueError(all_at_once(errors) if len(errors) > 1 else errors[0])


def _column(name, dtype):
    column = nw.col(name)
    if name in (*CODES, "impressions") and not dtype.is_integer():
        return column.cast(nw.Float64).fill_nan(None)
    return column.fill_nan(None) if dtype.is_float() else column


def _are_counts(frame, columns, schema, called):
    """Whether the column ``click`` of a log holds numbers of clicks of several impressions."""
    facts = _facts_of(frame, columns) if "impressions" in schema else None
    if facts is None:
        return False
    return are_counts(facts, _asks_pages(frame, columns, schema), called)


def _facts_of(frame, columns):
    """What clicks and impressions are like, in one pass; None without rows, or with wrong ones."""
    known = Columns(columns, nw.Expr.is_null)
    facts = ClickFacts.expressions(known)
    valid = (known.click >= 0) & (known.impressions >= 0)
    valid = valid & (known.click < np.inf) & (known.impressions < np.inf)
    wrong = (~valid.fill_null(False)).cast(nw.Int64).sum().alias("wrong")
    wrong, *facts = collect(frame.select(wrong, *facts)).row(0)
    if wrong is None or wrong:  # faults of the rows are told of them
        return None
    return ClickFacts(*facts)


def _asks_pages(frame, columns, schema):
    """A function that asks the pages of a log whether 1 is a click in all impressions."""

    def in_all():
        roles = [name for name in (*IDS, *CODES) if name in schema]
        rows = frame.select(
            *roles, columns["click"].alias("click"), columns["impressions"].alias("impressions")
        )
        return PageFacts.of(rows).in_all()

    return in_all


def _check_rows(frame, columns, schema, called, more):
    """Scale of click rates (1 but for grades); faults of the log, and ``more``, are reported."""
    kinds = {name: _kind(schema[name]) if name in IDS else "" for name in columns}
    faults = [*find_faults(kinds, known={"impressions"} - set(schema)), *more]
    expressions = Columns(columns, nw.Expr.is_null)
    wrong = [fault.wrong(expressions).fill_null(False) for fault in faults]
    counts = [each.cast(nw.Int64).sum().alias(str(i)) for i, each in enumerate(wrong)]
    rates = "click" in columns and "n_clicks" not in columns
    largest = columns["click"].max() if rates else nw.len()
    counts = frame.select(nw.len().alias("n"), largest.alias("largest"), *counts)
    n_rows, largest, *counts = collect(counts).row(0)
    if not n_rows:
        NO_ROWS.report()
    ids = [name for name in ("qid", "doc") if name in schema]
    found = []
    for fault, rows, count in zip(faults, wrong, counts, strict=True):
        if not count:
            continue
        name = fault.reads[0]
        row = collect(frame.filter(rows).select(*ids, columns[name].alias("_value")).head(1))
        *example, value = map(python_value, row.row(0))
        where = ", ".join(f"{name} {each!r}" for name, each in zip(ids, example, strict=True))
        where = f"such as in {where}" if ids else ""
        name = called if name in ("click", "n_clicks") else None
        found.append((fault, fault.message(int(count), value, where, name)))
    _raise(message for fault, message in found if fault.is_error)
    for fault, message in found:
        tell(fault.severity, message)
    if not rates or largest <= 1:
        return 1.0
    GRADES.report(0, float(largest), None, called)
    return float(largest)


def _kind(dtype):
    """Kind of the values as NumPy calls it, as far as faults of ids ask for it."""
    if dtype.is_float():
        return "f" if dtype == nw.Float32 else "d"
    return "i" if dtype.is_signed_integer() else "O"


def _mean_weight(frame, columns, weight):
    """Mean sample weight of the shown impressions: weights count relative to it."""
    impressions = columns["impressions"].cast(nw.Float64)
    rows = frame.filter(columns["shown"])
    sums = rows.select((impressions * weight).sum().alias("w"), impressions.sum().alias("n"))
    total = collect(sums)
    return float(total["w"][0] or 1.0) / float(total["n"][0] or 1.0)


def _whole_if_close(clicks):
    """As :func:`~skultr._log._segments.whole_if_close`, as an expression."""
    whole = clicks.round()
    return nw.when((clicks - whole).abs() <= clicks * ROUNDING).then(whole).otherwise(clicks)


# The count ----------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Count:
    """Rows by distinct key, in memory: numbers of rows ``_n``, sums, and ``ids`` of coded keys."""

    table: nw.DataFrame[Any]
    ids: Mapping[str, pd.Index]

    @cached_property
    def weight(self) -> Floats:
        """Impressions of each key."""
        name = "_weight" if "_weight" in self.table.columns else "_n"
        return self.table[name].to_numpy().astype(float)

    @cached_property
    def clicks(self) -> Floats | None:
        """Clicks of each key; None if the log has none."""
        if "_click" not in self.table.columns:
            return None
        return self.table["_click"].to_numpy().astype(float)

    def codes(self, name: str) -> tuple[Ints, Any]:
        """Codes of a key, and the sorted ids that they stand for."""
        if name in self.ids:
            return self.table[name].to_numpy(), self.ids[name]
        return encode_ids(self.table[name])


def code_ids(rows: Any, names: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """Rows in memory with codes in place of ids that are no integers, and these ids."""
    if isinstance(rows, nw.LazyFrame):
        return rows, {}
    texts = [n for n in names if not (rows[n].dtype.is_integer() or rows[n].dtype == nw.Boolean)]
    coded = {name: encode_ids(rows[name]) for name in texts}
    columns = {
        name: coded[name][0] if name in coded else rows[name].to_numpy() for name in rows.columns
    }
    rows = nw.from_dict(columns, backend=rows.implementation)
    return rows, {name: ids for name, (_, ids) in coded.items()}


def count_by(
    rows: Any, keys: Iterable[str], *more: nw.Expr, ids: Mapping[str, Any] | None = None
) -> Count:
    """Number of rows of each distinct key, and sums of their ``_click`` and ``_weight``."""
    names = rows.collect_schema().names()
    sums = [nw.col(name).sum() for name in ("_click", "_weight") if name in names]
    return Count(collect(rows.group_by(*keys).agg(nw.len().alias("_n"), *sums, *more)), ids or {})


def check_counts(weight: NDArray[Any], clicks: NDArray[Any] | None) -> None:
    """Report no row or click among shown cells."""
    if not len(weight):
        NO_ROW_SHOWN.report()
    if clicks is not None:
        check_clicked(weight, clicks)


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

    @classmethod
    def of(
        cls,
        X: Any,
        click: str | None,
        by: Iterable[str],
        *,
        documents: bool = True,
        optional: Iterable[str] = (),
        mean: Iterable[str] = (),
        features: Iterable[str] = (),
    ) -> CellCount:
        """The count of a log by query, document, ``features`` and the columns ``by``."""
        schema = open_frame(X).collect_schema()
        # Roles that X lacks tell no cells apart.
        by = [name for name in dict.fromkeys(by) if name not in ROLES or name in schema]
        mean = [each for each in mean if each in schema]
        optional = [*optional]
        features = [*features]
        ids = [name for name in ("qid", "doc")[: 1 + documents] if name in schema]
        needs = [*by, *["doc"] * documents]
        # That two rows of a result page have one position is not looked at: it needs the pages.
        log = EngineLog.of(X, click, [*CHECKED, *mean], needs=needs, optional=optional)
        require_columns(schema, features)
        keys = list(dict.fromkeys([*ids, *by]))
        values = {name: log.key(name) for name in keys}
        values |= {f"_{name}": log.columns[name].cast(nw.Float64) for name in mean}
        rows = log.rows(values | {name: nw.col(name) for name in features})
        for name in optional:
            rows = rows.filter(~nw.col(name).is_null())
        return cls(rows, keys, features, mean, log.scope)

    @cached_property
    def n_rows(self) -> int:
        """Number of shown rows, an upper limit of the number of cells."""
        return int(collect(self.rows.select(nw.len())).item())

    def cells(self, shard: tuple[int, int] | None = None, *, in_order: bool = False) -> Any:
        """A log of one row per cell (of one shard of several), and click rates."""
        rows = self.rows
        keys = list(self.keys)
        if self.features:
            rows = with_versions(rows, self.features)
            keys = [*keys, "_version"]
        if shard is not None:  # by query, or by id where ids are global
            whole = self.scope != "global" and "qid" in keys
            rows = with_hashes(rows, ["qid" if whole else "doc"])
            rows = rows.filter(nw.col("_hash0") % shard[1] == shard[0])
        sums = (nw.col(f"_{name}").sum() for name in self.mean)
        count = count_by(rows, keys, *sums, *(one_value(rows, name) for name in self.features))
        table = count.table.sort(*self.keys) if in_order else count.table
        count = Count(table, {})
        weight = count.weight
        clicks = count.clicks
        if shard is None and not len(weight):
            NO_ROW_SHOWN.report()
        new = {"impressions": weight, "session": np.arange(len(weight))}
        if self.scope is not None:
            new["doc_scope"] = np.full(len(weight), self.scope, dtype=object)
        new |= {name: _mean_of_documents(count, name) for name in self.mean}
        X = frame_of({name: table[name] for name in [*self.keys, *self.features]} | new)
        clicks = np.zeros(len(weight)) if clicks is None else clicks
        # Sums of rates may be a rounding error above the impressions.
        return X.to_native(), as_known_rates(np.minimum(clicks / weight, 1.0))


def frame_of(columns: Mapping[str, Any]) -> nw.DataFrame[Any]:
    """A frame of columns, the first of which is no array and says of which kind it is."""
    backend = next(iter(columns.values())).implementation
    series = {
        name: nw.new_series(name, each, backend=backend) if isinstance(each, np.ndarray) else each
        for name, each in columns.items()
    }
    # pandas would align the columns by their row labels.
    return nw.from_dict({name: nw.maybe_reset_index(each) for name, each in series.items()})


def _mean_of_documents(count, name):
    """Mean of a role over the rows of each document of a query, for each of its cells."""
    doc, ids = count.codes("doc")
    if "qid" in count.table.columns:
        doc, *_ = pairs_of_codes(count.codes("qid")[0], doc, len(ids))
    total, n = (np.bincount(doc, count.table[each].to_numpy()) for each in (f"_{name}", "_n"))
    return (total / n)[doc]


# Frames of engines ----------------------------------------------------------------------
def collect(frame: Any) -> nw.DataFrame[Any]:
    """The frame in memory; Polars streams, which needs less memory and no more time."""
    if not isinstance(frame, nw.LazyFrame):
        return frame
    return (
        frame.collect(engine="streaming") if frame.implementation.is_polars() else frame.collect()
    )


def in_engine_of(frame: Any, small: nw.DataFrame[Any]) -> Any:
    """A small table that was collected from a frame, back in the engine of the frame."""
    kind = frame.implementation
    native = small.to_native()
    if not isinstance(frame, nw.LazyFrame):
        return small
    if kind.is_duckdb():
        return nw.from_native(_in_duckdb(frame.to_native(), native))
    if kind.is_dask():
        import dask.dataframe as dd

        return nw.from_native(dd.from_pandas(native, npartitions=1))
    if kind.is_spark_like():
        return nw.from_native(frame.to_native().sparkSession.createDataFrame(native))
    return small.lazy()


def _in_duckdb(relation, table):
    """The table as lists of one row, unnested: a relation knows no other way to its connection."""
    import duckdb

    lists = [
        duckdb.ConstantExpression(table[name].to_pylist()).alias(name)
        for name in table.column_names
    ]
    rows = relation.limit(0).aggregate("count(*) AS n").select(*lists)
    return rows.project(", ".join(f'unnest("{name}") AS "{name}"' for name in table.column_names))


# Ids ----------------------------------------------------------------------------------
def encode_ids(series: nw.Series[Any]) -> tuple[Ints, Any]:
    """Code of each id (-1 where it is missing), and the distinct ids, sorted."""
    kind = series.implementation
    dtype = series.dtype
    if dtype.is_integer() and not series.is_null().any():
        return encode(series.to_numpy())
    if kind.is_pandas():
        values = series.to_native()
    elif find_spec("pyarrow"):  # there is no Python object per text
        is_text = isinstance(dtype, nw.String | nw.Categorical | nw.Enum)
        values = (series.cast(nw.String) if is_text else series).to_pandas()
    else:
        values = series.to_numpy()
    with naming_ids(f"The column {series.name!r}", values):
        codes, ids = pd.factorize(values)
    is_text = isinstance(ids.dtype, pd.StringDtype | pd.ArrowDtype)
    order = ids.argsort() if is_text else sorting_order(np.asarray(ids))
    new_code = np.full(len(order) + 1, -1)  # that of a missing id is the last element
    new_code[order] = np.arange(len(order))
    return new_code[codes], ids.take(order)


def decode(name: str, ids: pd.Index, codes: Ints, backend: Any) -> nw.Series[Any]:
    """The ids that codes stand for, as a column of frames of that kind."""
    return nw.new_series(name, pd.Series(ids.take(codes)), backend=backend)


# Hashes of rows -----------------------------------------------------------------------
def with_versions(rows: Any, features: list[str]) -> Any:
    """Rows with ``_version``, a hash of their features."""
    rows = with_hashes(rows, features)
    return rows.with_columns(nw.col("_hash0").alias("_version")).drop("_hash0", "_hash1")


def with_hashes(frame: Any, names: list[str]) -> Any:
    """A frame with two hashes of some columns, ``_hash0`` and ``_hash1``, by its engine."""
    kind = frame.implementation
    native = frame.to_native()
    if kind.is_polars():
        return nw.from_native(native.with_columns(*_hashes_polars(names)))
    if kind.is_duckdb():
        return nw.from_native(native.project(", ".join(["*", *_hashes_sql(names)])))
    if kind.is_spark_like():
        return nw.from_native(native.selectExpr("*", *_hashes_spark(names)))
    if kind.is_dask():
        meta = native._meta.assign(_hash0=np.int64(0), _hash1=np.int64(0))
        return nw.from_native(native.map_partitions(_hashes_pandas, names, meta=meta))
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"A log of several lists in a {type(native).__module__}.{type(native).__name__} "
            "cannot be hashed; expected a frame in memory, or one of Polars, DuckDB, Dask or "
            "PySpark. Collect it first."
        )
    hashes = _shifted([value_bits(frame[name]) for name in names])
    new = (nw.new_series(name, values, backend=kind) for name, values in hashes.items())
    return nw.maybe_reset_index(frame).with_columns(*new)


def value_bits(series: nw.Series[Any]) -> Ints:
    """A whole number for each value, equal where the values are: itself, its bits or its code."""
    dtype = series.dtype
    if dtype.is_integer() and not series.is_null().any():
        return series.to_numpy().astype(np.int64, copy=False)
    if dtype.is_numeric():
        values = series.cast(nw.Float64).to_numpy() + 0.0  # one zero, and one NaN
        return np.where(np.isnan(values), np.nan, values).view(np.int64)
    if isinstance(dtype, nw.List | nw.Array):
        cells = [None if cell is None else tuple(cell) for cell in series.to_list()]
        return pd.factorize(pd.Series(cells, dtype=object))[0]
    return encode_ids(series)[0]


def _shifted(columns):
    """Two hashes of rows of integers, by name."""
    shift = np.uint64(64 - _HASH_BITS)
    salt = np.ones(len(columns[0]), dtype=np.int64)
    return {
        f"_hash{i}": (hash_columns([i * salt, *columns]) >> shift).view(np.int64) for i in range(2)
    }


def _hashes_polars(names):
    import polars as pl

    # Hashed twice, because Polars combines the columns of a struct by shifts and exclusive or.
    hashes = (pl.struct(names).hash(salt).hash(salt) for salt in range(2))
    return [
        (h // 2 ** (64 - _HASH_BITS)).cast(pl.Int64).alias(f"_hash{i}")
        for i, h in enumerate(hashes)
    ]


def _hashes_sql(names):
    names = ['"' + name.replace('"', '""') + '"' for name in names]
    orders = ", ".join(names), ", ".join(["1", *names[::-1]])
    return [
        f"CAST(hash(hash({columns})) >> {64 - _HASH_BITS} AS BIGINT) AS _hash{i}"
        for i, columns in enumerate(orders)
    ]


def _hashes_spark(names):
    # Each column by itself: xxhash64 passes over null, whichever column holds it.
    columns = ", ".join(f"xxhash64(`{name.replace('`', '``')}`)" for name in names)
    return [
        f"shiftrightunsigned(xxhash64({salt}, {columns}), {64 - _HASH_BITS}) AS _hash{salt}"
        for salt in range(2)
    ]


def _hashes_pandas(frame, names):
    columns = [
        pd.util.hash_pandas_object(frame[name], index=False).to_numpy().view(np.int64)
        for name in names
    ]
    return frame.assign(**_shifted(columns))
