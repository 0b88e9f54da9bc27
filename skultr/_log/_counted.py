"""A log in any engine: checked once, and counted there by any key.

Lists, cells, pairs of the graph and labels depend on a log through sums over its rows. The engine
adds them up, and only the distinct keys are collected. A frame in memory goes the same way, with
codes in place of ids.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from ..exceptions import python_value
from ._click_units import ClickFacts, PageFacts, are_counts, as_known_rates
from ._drawn_ids import with_draw
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
from ._roles import OUTCOME, ROLES, kind_of, numbers, open_frame, read_scope, refuse_index
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
#: Roles that must hold numbers.
_NUMERIC = (*CODES, "impressions", "propensity", "production")
#: Bits of the hash of a row: sums over half a million rows fit into 64 bits in every engine.
_HASH_BITS = 44


def is_in_engine(X: Any) -> bool:
    """True if X is a frame of an engine: lazy Polars, DuckDB, Dask, PySpark, ..."""
    # The common case, a frame in memory, is told without wrapping it.
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
    arguments = {"sample_weight": sample_weight, **roles}
    given = [name for name, value in arguments.items() if not isinstance(value, str | None)]
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
    n_rows: int
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
        needs = [*needs]
        # Columns that the caller names have no role, and may be called anything.
        named = [name for name in (click, sample_weight) if name is not None]
        frame, schema, reads = _opened(X, [*dict.fromkeys([*needs, *reads])], needs, named)
        called = repr(click) if called is None else called
        # Which rows count, and as what.
        columns = _columns_of(schema, reads, sample_weight)
        if click is not None:
            columns["click"] = _number(click)
            rates = _tell_clicks_apart(frame, columns, schema, rates, called)
        # Of columns without a role, such as bias factors, no value may be missing.
        own = [name for name in reads if name not in ROLES and name not in optional]
        more = map(missing_value, own)
        n_rows, scale = _check_rows(frame, columns, schema, called, more)
        # Rates become clicks by all that a row stands for; numbers of clicks have counted its
        # impressions already.
        weight = _weight_of(frame, columns, schema)
        clicks = _clicks_of(columns, scale, weight if rates else columns.get("sample_weight"))
        return cls(frame, n_rows, schema, columns, clicks, weight)

    @cached_property
    def scope(self) -> str | None:
        """Scope of the ids of documents, or None if the log does not have it."""
        if "doc_scope" not in self.schema:
            return None
        # One or two values, whatever the log has of rows.
        found = distinct(self.frame, "doc_scope")
        return read_scope(None, found.to_numpy()) if len(found) else "query"

    def key(self, name: str) -> nw.Expr:
        """A column of shown rows to group by: positions and bias factors are integers."""
        column = self.columns[name]
        return column.cast(nw.Int64) if name in CODES else column

    def rows(self, values: Mapping[str, nw.Expr], *, shown: bool = True) -> Any:
        """Some values of the rows that were shown (or of all), with ``_click`` and ``_weight``."""
        frame = self.frame
        # Without any of these columns all rows were shown, and no engine need filter.
        tells_shown = {*CODES, "impressions"} & {*self.schema}
        if shown and (tells_shown or "sample_weight" in self.columns):
            frame = frame.filter(self.columns["shown"])
        selected = {}
        if self.clicks is not None:
            selected["_click"] = self.clicks
        if self.weight is not None:
            selected["_weight"] = self.weight
        selected.update(values)  # which may have another weight
        return frame.select(*(each.alias(name) for name, each in selected.items()))

    def count(self, keys: Collection[str]) -> Count:
        """The shown rows by some of the columns that were read."""
        rows = self.rows({name: self.key(name) for name in keys})
        # In memory, integers are grouped faster than texts.
        rows, ids = code_ids(rows, keys)
        count = count_by(rows, keys, ids=ids)
        check_counts(count.weight, count.clicks)
        return count


def _opened(X, reads, needs, named):
    """The frame and its schema, with numbers in plain types; and those columns that it has."""
    frame = open_frame(X)
    schema = frame.collect_schema()
    refuse_index(X, [name for name in (*reads, *named) if name not in schema])
    require_columns(schema, [*needs, *named])
    reads = [name for name in reads if name in schema]
    # Types before values: text in place of numbers would fail in the words of each engine.
    numeric = [name for name in _NUMERIC if name in reads]
    numeric = [*numeric, *named]
    check_numbers(schema, numeric)
    if isinstance(frame, nw.DataFrame):
        frame = _in_plain_types(frame, numeric, reads)
        schema = frame.schema
    if frame.implementation.is_polars():  # one query plan over all columns is faster
        frame = frame.lazy()
    return frame, schema, reads


def _number(name):
    """A column of numbers; NaN counts as missing."""
    return nw.col(name).cast(nw.Float64).fill_nan(None)


def _columns_of(schema, reads, sample_weight):
    """The columns that are read, with those that say which rows were ``served`` and ``shown``.

    A sample weight tells both apart.
    """
    columns = {name: _column(name, schema[name]) for name in reads}
    columns.setdefault("impressions", nw.lit(1.0))  # a row of a log that counts none is one
    # A comparison with a missing value is null in engines, and such a row was not served.
    served = (columns["impressions"] > 0).fill_null(False)
    # A row without a position (without a bias factor, if that is all) was not shown.
    place = next((name for name in CODES if name in columns), None)
    if place is not None:
        served = served & ~columns[place].is_null()
    columns["shown"] = served
    columns["served"] = served
    if sample_weight is not None:
        weight = _number(sample_weight)
        columns["sample_weight"] = weight
        columns["shown"] = served & (weight > 0)  # a weight of 0 excludes a row on purpose
    return columns


def _tell_clicks_apart(frame, columns, schema, rates, called):
    """Whether clicks are rates; numbers of clicks get the name ``n_clicks``, too.

    Faults of numbers of clicks are looked for under this name.
    """
    rates = rates or not _are_counts(frame, columns, schema, called)
    if not rates:
        columns["n_clicks"] = columns["click"]
    return rates


def _weight_of(frame, columns, schema):
    """Impressions of each row times its sample weight, relative to their mean; None for 1."""
    weight = None
    if "sample_weight" in columns:
        weight = columns["sample_weight"]
        # A common factor of all sample weights changes nothing.
        weight = weight / _mean_weight(frame, columns, weight)
    if "impressions" not in schema:
        return weight
    impressions = columns["impressions"].cast(nw.Float64)
    return impressions if weight is None else impressions * weight


def _clicks_of(columns, scale, times):
    """Clicks of each row: rates, divided by ``scale``, times what they are rates of."""
    clicks = columns.get("click")
    if clicks is None:
        return None
    # Most logs have no grades, and no expression grows without need.
    if scale != 1:
        clicks = clicks / scale
    return clicks if times is None else _whole_if_close(clicks * times)


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


def _in_plain_types(frame, counted, reads):
    """A frame in memory whose numbers and ids are of types that every operation takes.

    Arrow has no remainder, and no arithmetic of half precision; objects may be no numbers.
    """
    plain = {}  # values by column, where they change
    for name in counted:
        if not _is_plain_number(frame[name]):
            values = as_array(frame[name].to_numpy())
            plain[name] = numbers(f"The role {name!r}", values)
    for name in reads:
        is_float_id = name in IDS and frame[name].dtype.is_float()
        if is_float_id and not _is_plain_number(frame[name]):
            plain[name] = as_index_values(as_array(frame[name].to_numpy()))
    new = (
        nw.new_series(name, values, backend=frame.implementation) for name, values in plain.items()
    )
    return nw.maybe_reset_index(frame).with_columns(*new) if plain else frame


def _is_plain_number(column):
    """Whether a column holds integers, booleans or floats of single or double precision."""
    dtype = column.dtype
    # Columns of pandas that Arrow holds lack the operations that Arrow lacks.
    if column.implementation.is_pandas() and isinstance(column.to_native().dtype, pd.ArrowDtype):
        return False
    return dtype.is_integer() or dtype in (nw.Boolean, nw.Float32, nw.Float64)


def _raise(errors):
    """Raise all errors at once, if there are any."""
    # Some callers pass a generator.
    errors = list(errors)
    if len(errors) == 1:
        raise ValueError(errors[0])
    if errors:
        raise ValueError(all_at_once(errors))


def _column(name, dtype):
    """A column of which NaN counts as missing; positions and the like are numbers."""
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
    is_number = (known.click >= 0) & (known.click < np.inf)
    is_weight = (known.impressions >= 0) & (known.impressions < np.inf)
    # A missing value is wrong as well: a comparison with it is null.
    is_wrong = ~(is_number & is_weight).fill_null(False)
    n_wrong = is_wrong.cast(nw.Int64).sum().alias("n_wrong")
    n_wrong, *facts = collect(frame.select(n_wrong, *facts)).row(0)
    if n_wrong is None or n_wrong:  # no rows, or faults, which are told of them
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
    """Number of rows, and scale of click rates (1 but for grades); faults of the log, and
    ``more``, are reported."""
    # Which ids may have lost digits depends on the type of their column.
    kinds = {name: _kind(schema[name]) if name in IDS else "" for name in columns}
    faults = [*find_faults(kinds, known={"impressions"} - set(schema)), *more]
    n_rows, largest, counts = _count_faults(frame, columns, faults)
    if not n_rows:
        NO_ROWS.report()
    # An example of each fault that there is takes one more query.
    found = [
        (fault, _message_of(fault, n, frame.filter(wrong), columns, schema, called))
        for fault, n, wrong in counts
    ]
    # Errors first, all in one; a log that has any is not worth a warning.
    _raise(message for fault, message in found if fault.is_error)
    for fault, message in found:
        tell(fault.severity, message)
    # Clicks above 1 that are no numbers of clicks are grades, which are scaled to [0, 1].
    if largest is None or largest <= 1:
        return n_rows, 1.0
    GRADES.report(0, float(largest), None, called)
    return n_rows, float(largest)


def _count_faults(frame, columns, faults):
    """Number of rows; the largest click, None if clicks are no rates; and those faults that rows
    have, each with their number and a condition on them. All in one pass over the log."""
    values = Columns(columns, nw.Expr.is_null)
    wrong = [fault.wrong(values).fill_null(False) for fault in faults]
    expressions = [nw.len().alias("n")]
    expressions += [each.cast(nw.Int64).sum().alias(str(i)) for i, each in enumerate(wrong)]
    is_rate = "click" in columns and "n_clicks" not in columns
    if is_rate:
        expressions.append(columns["click"].max().alias("largest"))
    numbers = collect(frame.select(*expressions)).row(0)
    largest = numbers[-1] if is_rate else None
    found = []
    for fault, count, rows in zip(faults, numbers[1 : len(wrong) + 1], wrong, strict=True):
        if count:
            found.append((fault, int(count), rows))
    n_rows = int(numbers[0])  # pandas has one type for all columns of a row
    return n_rows, largest, found


def _message_of(fault, n_rows, wrong_rows, columns, schema, called):
    """The sentence of a fault, with the ids of one of its rows: rows of engines have no number."""
    name = fault.reads[0]
    ids = [role for role in ("qid", "doc") if role in schema]
    # A row in the order of the engine, which may be another one each time.
    row = collect(wrong_rows.select(*ids, columns[name].alias("_value")).head(1))
    # As Python writes values: np.int64(3) would be no help in a message.
    *example, value = map(python_value, row.row(0))
    where = ", ".join(f"{role} {each!r}" for role, each in zip(ids, example, strict=True))
    if ids:
        where = f"such as in {where}"
    return fault.message(n_rows, value, where, called if name in ("click", "n_clicks") else None)


def _kind(dtype):
    """Kind of the values as NumPy calls it, as far as faults of ids ask for it."""
    if dtype.is_float():
        return "f" if dtype == nw.Float32 else "d"
    # Only signed integers can be -1, which looks like padding.
    return "i" if dtype.is_signed_integer() else "O"


def _mean_weight(frame, columns, weight):
    """Mean sample weight of the shown impressions: weights count relative to it."""
    impressions = columns["impressions"].cast(nw.Float64)
    rows = frame.filter(columns["shown"])
    weighted = (impressions * weight).sum().alias("weighted")
    sums = collect(rows.select(weighted, impressions.sum().alias("impressions")))
    # Without rows that were shown, which is an error that others raise, sums are null or 0.
    return float(sums["weighted"][0] or 1.0) / float(sums["impressions"][0] or 1.0)


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
        # Without impressions and sample weights each row is one impression.
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


def code_ids(rows: Any, names: Collection[str]) -> tuple[Any, dict[str, Any]]:
    """Rows in memory with codes in place of ids that are no integers, and these ids."""
    if isinstance(rows, nw.LazyFrame):
        return rows, {}
    columns = {}
    ids = {}
    for name in rows.columns:
        column = rows[name]
        is_number = column.dtype.is_integer() or column.dtype == nw.Boolean
        if is_number or name not in names:
            columns[name] = column.to_numpy()
        else:
            columns[name], ids[name] = encode_ids(column)
    return nw.from_dict(columns, backend=rows.implementation), ids


def count_by(
    rows: Any, keys: Iterable[str], *more: nw.Expr, ids: Mapping[str, Any] | None = None
) -> Count:
    """Number of rows of each distinct key, and sums of their ``_click`` and ``_weight``."""
    names = rows.collect_schema().names()
    sums = [nw.col(name).sum() for name in ("_click", "_weight") if name in names]
    n_rows = nw.len().alias("_n")
    table = rows.group_by(*keys).agg(n_rows, *sums, *more)
    return Count(collect(table), ids or {})


def distinct(rows: Any, name: str) -> nw.Series[Any]:
    """The distinct values of a column."""
    # By a group-by, because Narwhals' unique() numbers all rows in DuckDB.
    return collect(rows.select(name).group_by(name).agg(nw.len().alias("_n")))[name]


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
    #: Rows of the log (about, of drawn queries): an upper limit of the number of cells.
    n_rows: int

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
        documents_by = ["qid"]
        needs = by
        if documents:
            documents_by = ["qid", "doc"]
            needs = [*by, "doc"]
        # That two rows of a result page have one position is not looked at: it needs the pages.
        log = EngineLog.of(X, click, [*CHECKED, *mean], needs=needs, optional=optional)
        require_columns(schema, features)
        # Documents without a query are those of one query.
        ids = [name for name in documents_by if name in schema]
        keys = list(dict.fromkeys([*ids, *by]))
        rows = _rows_of_cells(log, keys, mean, features)
        for name in optional:  # a cell without this key is none
            rows = rows.filter(~nw.col(name).is_null())
        return cls(rows, keys, features, mean, log.scope, log.n_rows)

    @property
    def whole(self) -> str:
        """The column of what is never divided: queries, or documents where ids are global."""
        return "qid" if self.scope != "global" and "qid" in self.keys else "doc"

    def drawn(self, share: float, seed: int, more: Collection[Any] = ()) -> CellCount:
        """The count of a share of the queries (of the documents, where their ids are global), and
        of those with the ids ``more``."""
        rows = with_draw(self.rows, self.whole, share, seed)
        is_drawn = nw.col("_is_drawn")
        if more:
            is_drawn = is_drawn | nw.col(self.whole).is_in(more)
        rows = rows.filter(is_drawn).drop("_is_drawn")
        return replace(self, rows=rows, n_rows=round(share * self.n_rows))

    def ids_with_other_factors(self, known: Iterable[int]) -> list[Any]:
        """Ids of the queries (or documents) with rows under bias factors that are not known."""
        factor = next((name for name in CODES if name in self.keys), None)
        if factor is None:
            return []
        found = distinct(self.rows, factor).to_list()
        others = sorted({*found} - {*known})
        if not others:
            return []
        rows = self.rows.filter(nw.col(factor).is_in(others))
        return distinct(rows, self.whole).to_list()

    def cells(self, shard: tuple[int, int] | None = None, *, in_order: bool = False) -> Any:
        """A log of one row per cell (of one shard of several), and click rates."""
        table = self._table(shard)
        if in_order:
            table = table.sort(*self.keys)
        n_cells = len(table)
        if shard is None and not n_cells:
            NO_ROW_SHOWN.report()
        return self._log_of(table)

    def coded_cells(self) -> tuple[Any, Floats, dict[str, Any]]:
        """As :meth:`cells`, with codes in place of texts of queries and documents, and these."""
        table, ids = code_ids(self._table(None), ("qid", "doc"))
        if not len(table):
            NO_ROW_SHOWN.report()
        return *self._log_of(table), ids

    def _log_of(self, table):
        """The log of a table of counts, and click rates."""
        count = Count(table, {})
        weight = count.weight
        n_cells = len(weight)
        columns = {name: table[name] for name in [*self.keys, *self.features]}
        columns["impressions"] = weight
        # Each cell is a list of its own: which of them shared a page is not known.
        columns["session"] = np.arange(n_cells)
        if self.scope is not None:
            columns["doc_scope"] = np.full(n_cells, self.scope, dtype=object)
        for name in self.mean:
            columns[name] = _mean_of_documents(count, name)
        # Without clicks the cells are wanted for what was shown.
        clicks = np.zeros(n_cells) if count.clicks is None else count.clicks
        # Sums of rates may be a rounding error above the impressions.
        rate = np.minimum(clicks / weight, 1.0)
        return frame_of(columns).to_native(), as_known_rates(rate)

    def _table(self, shard):
        """The counted rows of the log, or of one shard."""
        rows = self.rows
        keys = list(self.keys)
        if self.features:  # an equal document with other features is another cell
            rows = with_versions(rows, self.features)
            keys.append("_version")
        if shard is not None:
            number, n_shards = shard
            # A document must not be in two shards.
            rows = with_hashes(rows, [self.whole])
            rows = rows.filter(nw.col("_hash0") % n_shards == number)
        sums = [nw.col(f"_{name}").sum() for name in self.mean]
        values = [one_value(rows, name) for name in self.features]
        return count_by(rows, keys, *sums, *values).table


def _rows_of_cells(log, keys, mean, features):
    """The shown rows with the keys of their cells, features, and what is averaged (``_NAME``)."""
    values = {name: log.key(name) for name in keys}
    # A role may be a key and be averaged: its sum stands under a name of its own.
    values |= {f"_{name}": log.columns[name].cast(nw.Float64) for name in mean}
    values |= {name: nw.col(name) for name in features}
    return log.rows(values)


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
    # By document, whatever else its cells differ in.
    total = np.bincount(doc, count.table[f"_{name}"].to_numpy())
    n_rows = np.bincount(doc, count.table["_n"].to_numpy())
    return (total / n_rows)[doc]


# Frames of engines ----------------------------------------------------------------------
def collect(frame: Any) -> nw.DataFrame[Any]:
    """The frame in memory; Polars streams, which needs less memory and no more time."""
    if not isinstance(frame, nw.LazyFrame):
        return frame
    if frame.implementation.is_polars():
        return frame.collect(engine="streaming")
    return frame.collect()


def in_engine_of(frame: Any, small: nw.DataFrame[Any]) -> Any:
    """A small table that was collected from a frame, back in the engine of the frame."""
    kind = frame.implementation
    native = small.to_native()
    if not isinstance(frame, nw.LazyFrame):
        return small
    if kind.is_duckdb():
        return nw.from_native(_in_duckdb(frame.to_native(), native))
    if kind.is_dask():  # an optional package
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
    else:  # by PyArrow, without a Python object per text
        if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
            series = series.cast(nw.String)
        values = series.to_pandas()
    with naming_ids(f"The column {series.name!r}", values):
        codes, ids = pd.factorize(values)
    is_text = isinstance(ids.dtype, pd.StringDtype | pd.ArrowDtype)
    order = ids.argsort() if is_text else sorting_order(np.asarray(ids))
    # Codes in the order of the ids; that of a missing id, -1, is the last element.
    new_code = np.full(len(order) + 1, -1)
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
    new = [nw.new_series(name, values, backend=kind) for name, values in hashes.items()]
    return nw.maybe_reset_index(frame).with_columns(*new)


def value_bits(series: nw.Series[Any]) -> Ints:
    """A whole number for each value, equal where the values are: itself, its bits or its code."""
    dtype = series.dtype
    if dtype.is_integer() and not series.is_null().any():
        return series.to_numpy().astype(np.int64, copy=False)
    if dtype.is_numeric():
        values = series.cast(nw.Float64).to_numpy() + 0.0  # one zero, and one NaN
        return np.where(np.isnan(values), np.nan, values).view(np.int64)
    if kind_of(series) == "list":
        cells = list(map(_hashable, series.to_list()))
        return pd.factorize(pd.Series(cells, dtype=object))[0]
    return encode_ids(series)[0]


def _hashable(cell):
    """Lists and what is in them as tuples, because lists have no hash; all else as it is."""
    if isinstance(cell, dict):
        cell = list(cell.items())
    return tuple(map(_hashable, cell)) if isinstance(cell, list | tuple | np.ndarray) else cell


def _shifted(columns):
    """Two hashes of rows of integers, by name."""
    shift = np.uint64(64 - _HASH_BITS)
    hashes = {}
    for number in range(2):
        # The number of the hash enters first, so that the two differ.
        salt = np.full(len(columns[0]), number, dtype=np.int64)
        hashed = hash_columns([salt, *columns]) >> shift
        hashes[f"_hash{number}"] = hashed.view(np.int64)
    return hashes


def _hashes_polars(names):
    import polars as pl

    hashes = []
    for salt in range(2):
        # Twice, because Polars combines the columns of a struct by shifts and exclusive or.
        hashed = pl.struct(names).hash(salt).hash(salt)
        shifted = hashed // 2 ** (64 - _HASH_BITS)
        hashes.append(shifted.cast(pl.Int64).alias(f"_hash{salt}"))
    return hashes


def _hashes_sql(names):
    # Names are quoted as SQL asks for it.
    names = ['"' + name.replace('"', '""') + '"' for name in names]
    # The second hash is one of the columns in another order, with a constant before them.
    orders = (", ".join(names), ", ".join(["1", *names[::-1]]))
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
