"""A log in an engine as a small log in memory: clicks and impressions counted by the engine.

Estimates of examination, tables of relevance and labels depend on a log through its cells alone:
the clicks and impressions of each document under each bias factor (for each user). The engine
adds up the impressions of a cell, and what is collected is a log again, of one row per cell, that
every estimator in memory reads as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._typing import Floats
from ._aggregate import aggregate_clicks
from ._engine import (
    check_numbers,
    check_rows,
    collect,
    encode_ids,
    fault_columns,
    scope_of,
    with_hashes,
)
from ._faults import NO_ROW_SHOWN, Fault
from ._reader import pairs_of_codes
from ._roles import ROLES
from ._segments import ROUNDING

#: Roles whose faults are reported, whatever tells cells apart.
_CHECKED = ("qid", "session", "doc", "user", "position", "bias", "impressions")


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
    given = {"sample_weight": sample_weight, **roles}
    given = [k for k, value in given.items() if not isinstance(value, str | None)]
    if given:
        raise TypeError(
            f"X is a lazy frame ({kind}), whose rows have no order, and {caller} got an array of "
            f"{', '.join(given)}; expected columns of X. Add them as columns (a sample weight "
            "multiplies 'impressions'), or reduce X first with skultr.aggregate_clicks(X)."
        )


# Cells --------------------------------------------------------------------------------
def count_cells_of(
    X: Any,
    click: str | None,
    by: Iterable[str],
    *,
    documents: bool = True,
    optional: Iterable[str] = (),
    mean: Iterable[str] = (),
    features: Iterable[str] = (),
    in_order: bool = False,
) -> tuple[Any, Floats]:
    """Log of one row per cell, with click rates, counted in the engine that holds the log.

    The state of the engine and the result grow with the number of distinct cells, not of
    impressions. All faults of rows are reported but one: that two rows of a result page have the
    same position would need the pages.

    Parameters
    ----------
    X : frame of any kind that Narwhals reads, lazy or in memory
    click : str
        Name of the column of clicks, or of click rates where rows have ``impressions``, as
        ``fit(X, click)`` reads it in memory. None: all click rates are 0.
    by : iterable of str
        Columns that tell cells apart, beside ``qid`` and ``doc``. Roles that X lacks are left out.
    documents : bool, default=True
        Whether cells are those of documents; else only of queries.
    optional : iterable of str, default=()
        Columns of ``by`` without a role in which a value may be missing: such rows are left out.
    mean : iterable of str, default=()
        Roles of which the mean over the rows of a document is a column of the result.
    features : iterable of str, default=()
        Columns of numbers that have one value per document; the result has them too.
    in_order : bool, default=False
        Whether the cells are sorted; engines return them in any order.

    Returns
    -------
    X : frame in memory
        ``qid``, ``doc``, ``doc_scope`` if X has them, the columns of ``by`` and ``mean``,
        ``impressions``, and ``session``, the number of the row: a cell is no result page.
    click_rate : ndarray of shape (n_cells,)

    Raises
    ------
    ValueError
        If a column is missing or holds values that it must not, or no row was shown.
    """
    count = EngineLog.of(X, click).count_of(
        by, documents=documents, optional=optional, mean=mean, features=features
    )
    return count.cells(in_order=in_order)


@dataclass(frozen=True, eq=False)
class EngineLog:
    """A log in an engine and its columns."""

    frame: Any
    schema: nw.Schema
    click: str | None

    @classmethod
    def of(cls, X: Any, click: str | None) -> EngineLog:
        """The log of a frame of any kind; an error if it lacks ``click``."""
        frame = nw.from_native(X)
        schema = frame.collect_schema()
        if click is not None and click not in schema:
            raise ValueError(
                f"X has no column {click!r}: its columns are {list(schema)}. Add the column, or "
                "name another one."
            )
        numbers = ["position", "bias", "impressions", "propensity"]
        check_numbers(schema, numbers if click is None else [*numbers, click])
        if frame.implementation.is_polars():
            frame = frame.lazy()
        return cls(frame, schema, click)

    def count_of(
        self,
        by: Iterable[str],
        *,
        documents: bool = True,
        optional: Iterable[str] = (),
        mean: Iterable[str] = (),
        features: Iterable[str] = (),
    ) -> CellCount:
        """What has to be counted; faults of the log are reported. See :func:`count_cells_of`."""
        by = [name for name in dict.fromkeys(by) if name not in ROLES or name in self.schema]
        mean = [name for name in mean if name in self.schema]
        ids = [name for name in ("qid", "doc")[: 1 + documents] if name in self.schema]
        self._check_columns([*by, *features], documents)
        keys = [*ids, *(name for name in by if name not in ids)]
        read, scale = self._checked(keys, list(optional), mean)
        values = {"_weight": read["impressions"].cast(nw.Float64)}
        rate = nw.lit(0.0) if self.click is None else read["click"] / scale
        values["_click"] = _whole_if_close(rate * values["_weight"])
        values |= {f"_{name}": read[name].cast(nw.Float64) for name in mean}
        columns = {name: read.get(name, nw.col(name)) for name in keys}
        shown = read["shown"]
        for name in optional:
            shown = shown & ~nw.col(name).is_null()
        scope = None
        if "doc_scope" in self.schema:
            scope = scope_of(self.frame)
        return CellCount(self.frame.filter(shown), columns, values, list(features), mean, scope)

    def _check_columns(self, by, documents):
        lacking = [name for name in by if name not in self.schema]
        if lacking:
            raise ValueError(f"X lacks the columns {lacking}; found {list(self.schema)}.")
        if documents and "doc" not in self.schema:
            raise ValueError(
                f"X is a lazy frame without a column 'doc'; found {list(self.schema)}. Rename "
                "the column of ids of documents to 'doc'; only a frame in memory can be searched "
                "for equal features."
            )

    def _checked(self, by, optional, mean):
        """Columns that are read, as expressions, and the scale of click rates."""
        reads = dict.fromkeys([*_CHECKED, *by, *mean])
        reads = [name for name in reads if name in ROLES]
        click = None
        if self.click is not None:
            click = nw.col(self.click).cast(nw.Float64).fill_nan(None)
        read = fault_columns(self.schema, reads, click, rates=True)
        if "position" not in read and "bias" in read:
            read["shown"] = read["served"] = read["shown"] & ~read["bias"].is_null()
        own = [name for name in by if name not in ROLES and name not in optional]
        columns = read | {name: nw.col(name) for name in own}
        more = [_missing_value(name) for name in own]
        scale = check_rows(self.frame, columns, self.schema, {"click": repr(self.click)}, more)
        return read, scale


@dataclass(frozen=True, eq=False)
class CellCount:
    """A group-by of the shown rows of a log in an engine.

    Parameters
    ----------
    frame : narwhals.LazyFrame or narwhals.DataFrame
        The shown rows.
    keys, values : dict of str to narwhals.Expr
        What is grouped by, and what is summed.
    features, mean : list of str
        See :func:`count_cells_of`.
    scope : str or None
        Scope of the ids of documents, if the log has one.
    """

    frame: Any
    keys: dict[str, nw.Expr]
    values: dict[str, nw.Expr]
    features: list[str]
    mean: list[str]
    scope: str | None

    @cached_property
    def n_rows(self) -> int:
        """Number of shown rows, an upper limit of the number of cells."""
        return int(collect(self.frame.select(nw.len())).item())

    @property
    def shards_have_whole_queries(self) -> bool:
        """True if documents are dealt to shards by their query; else by their id."""
        return self.scope != "global" and "qid" in self.keys

    def cells(self, shard: tuple[int, int] | None = None, *, in_order: bool = False) -> Any:
        """A log of one row per cell, and click rates; see :func:`count_cells_of`.

        Parameters
        ----------
        shard : tuple of (int, int), default=None
            Number of the shard and of all shards; documents are dealt to shards by a hash of
            their query, or of their ids, where these are global.
        in_order : bool, default=False
        """
        frame, keys = self.frame, list(self.keys)
        if shard is not None:
            of = "qid" if self.shards_have_whole_queries else "doc"
            frame = with_hashes(frame, [of]).filter(nw.col("_hash0") % shard[1] == shard[0])
        columns = (each.alias(name) for name, each in (self.keys | self.values).items())
        rows = frame.select(*columns, *self.features)
        sums = [nw.col(name).sum() for name in self.values]
        of_documents = [nw.col(name).max() for name in self.features]
        counts = rows.group_by(*keys).agg(*sums, *of_documents, nw.len().alias("_n"))
        table = collect(counts)
        return self._as_log(table.sort(*keys) if in_order else table, shard is None)

    def _as_log(self, table, is_whole):
        weight, clicks = (table[name].to_numpy().astype(float) for name in ("_weight", "_click"))
        if is_whole and not len(weight):
            NO_ROW_SHOWN.report(0, None, None)
        columns = {name: table[name] for name in [*self.keys, *self.features]}
        backend = table.implementation
        new = {"impressions": weight, "session": np.arange(len(weight))}
        if self.scope is not None:
            new["doc_scope"] = np.full(len(weight), self.scope, dtype=object)
        new |= {name: _mean_of_documents(table, name) for name in self.mean}
        columns |= {k: nw.new_series(k, values, backend=backend) for k, values in new.items()}
        X = nw.from_dict({name: nw.maybe_reset_index(of) for name, of in columns.items()})
        # Sums of rates may be a rounding error above the impressions.
        return X.to_native(), np.minimum(clicks / weight, 1.0)


def _mean_of_documents(table, name):
    """Mean of a role over the rows of each document of a query, for each of its cells."""
    doc, ids = encode_ids(table["doc"])
    if "qid" in table.columns:
        doc, *_ = pairs_of_codes(encode_ids(table["qid"])[0], doc, len(ids))
    total, n = (np.bincount(doc, table[each].to_numpy()) for each in (f"_{name}", "_n"))
    return (total / n)[doc]


def _whole_if_close(clicks):
    """As :func:`~skultr._log._segments.whole_if_close`, as an expression."""
    whole = clicks.round()
    is_whole = (clicks - whole).abs() <= clicks * ROUNDING
    return nw.when(is_whole).then(whole).otherwise(clicks)


def _missing_value(name):
    return Fault(
        f"{name} missing",
        (name, "shown"),
        ValueError,
        f"The column {name!r} is missing in {{rows}}, {{where}}; expected a value in every row "
        "that was shown. Fill it (with a separate value such as 'unknown'), or drop these rows.",
        lambda c: c.shown & c.missing(name),
    )


# Lists --------------------------------------------------------------------------------
def count_lists_of(X: Any, click: str, features: Iterable[str] = ()) -> tuple[Any, Floats]:
    """Distinct result lists of a log, with click rates and features, counted in its engine.

    Parameters
    ----------
    X : frame of any kind that Narwhals reads, lazy or in memory
    click : str
        As in :func:`count_cells_of`.
    features : iterable of str, default=()
        Columns of X to join to the result, each with one value per document.

    Returns
    -------
    X : frame in memory
        See :func:`~skultr.aggregate_clicks`.
    click_rate : ndarray of shape (n_rows,)
    """
    log = EngineLog.of(X, click)
    frame, features = log.frame, list(features)
    kept = [name for name in (*_CHECKED, "doc_scope") if name in log.schema]
    documents = None
    if features:
        ids = [name for name in ("qid", "doc") if name in kept]
        documents = collect(frame.select(*ids, *features).unique()).to_native()
    clicks = nw.col(click).cast(nw.Float64)
    if "impressions" in log.schema:  # aggregate_clicks reads a number of clicks there
        clicks = clicks * nw.col("impressions")
    frame = frame.select(*kept, clicks.alias("_click_"))
    return aggregate_clicks(frame.to_native(), documents, click="_click_")
