"""From any log to its distinct (document, bias factor) pairs, counted in the log's own engine.

Whether a log identifies relevance depends on these pairs alone. Only they are collected from the
engine: a log of hundreds of millions of impressions has a few million of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import ArrayLike, Column, Ints
from ._cells import Cells
from ._click_units import ClickRates, as_rates
from ._counted import EngineLog, is_in_engine, require_columns
from ._faults import NO_QUERIES, NO_ROW_SHOWN, check, missing_value
from ._reader import as_clicks, first_rows, name_documents
from ._roles import (
    LogOnDisk,
    is_frame,
    open_frame,
    read_features,
    refuse_arguments,
    refuse_index,
    without_roles,
)
from ._segments import as_array, encode, equal_rows, pair_codes, whole_if_close

#: Names of columns that are added for arrays.
_RATE = "__skultr_rate"
_SAMPLE_WEIGHT = "__skultr_sample_weight"


@dataclass(frozen=True, eq=False)
class Pairs(Cells):
    """Cells of a log, sorted, whose ``factors`` are a table with one column per bias column."""

    @property
    def impressions(self) -> np.ndarray:
        """Impressions of each pair."""
        return self.weight

    def name_documents(self, documents: Ints) -> pd.DataFrame:
        """Table of some documents: ``qid`` and ``doc``, or the first row with their features."""
        if self.doc_ids is not None:
            return self.doc_ids[documents].to_frame(index=False)
        if self.doc_row is not None:
            return pd.DataFrame({"row": self.doc_row[documents]})
        return pd.DataFrame({"doc": documents})


def read_pairs(
    X: Any,
    *,
    bias: str | list[str] | tuple[str, ...] | None = None,
    click: str | ArrayLike | None = "click",
    sample_weight: NDArray[Any] | None = None,
    called: str = "click",
) -> Pairs:
    """Distinct (document, bias factor) pairs of a log, as :class:`IdentifiabilityGraph` reads it.

    >>> log = pd.DataFrame({
    ...     "qid": 1, "doc": ["a", "a", "b"], "position": [1, 2, 1], "click": [1, 0, 1],
    ... })
    >>> pairs = read_pairs(log)
    >>> pairs.doc.tolist(), pairs.factor.tolist(), pairs.clicks.tolist()
    ([0, 0, 1], [0, 1, 0], [1.0, 0.0, 1.0])
    >>> pairs.factors["position"].tolist(), pairs.doc_ids.tolist()
    ([1, 2], [(1, 'a'), (1, 'b')])
    """
    # Only what a caller chose is refused beside a log that has its own clicks.
    by_default = isinstance(click, str) and click == "click"
    if isinstance(X, LogOnDisk):
        refuse_arguments({"click": None if by_default else click, "sample_weight": sample_weight})
        return _pairs_on_disk(X, bias)
    if not is_in_engine(X) and not is_frame(X):
        if not (hasattr(X, "X") and hasattr(X, "clicks")):  # a simulated log
            raise TypeError(
                f"X is a {type(X).__name__}; expected a frame (pandas, Polars, PyArrow, DuckDB, "
                "Dask, PySpark, ...) or a simulated log. From arrays: IdentifiabilityGraph(doc, "
                "bias)."
            )
        return read_pairs(X.X, bias=bias, click=X.clicks if by_default else click)
    return _read_frame(X, bias, click, sample_weight, called)


def _read_frame(X, bias, click, sample_weight, called):
    """The pairs of a frame, in memory or of an engine."""
    frame = open_frame(X)
    schema = frame.collect_schema()
    refuse_index(X, [name for name in ("qid", "doc", "position", "bias") if name not in schema])
    columns = bias_columns(schema, bias)
    in_engine = isinstance(frame, nw.LazyFrame)
    click = _found_click(X, schema, click, in_engine)
    # What the log must have, in one error for all that it lacks.
    needed = [*columns]
    if in_engine:  # in memory, documents without ids are equal rows of features
        needed.append("doc")
    if isinstance(click, str):
        needed.append(click)
    require_columns(schema, needed)
    doc_row = None
    if not in_engine:
        frame, doc_row = _with_arrays(frame, columns, click, sample_weight)
    # Clicks that came as an array were told apart from numbers of clicks when they were added.
    is_array = not isinstance(click, str | None)
    log = EngineLog.of(
        frame,
        _RATE if is_array else click,
        ["qid", "position", "impressions"],
        needs=["doc", *columns],
        sample_weight=None if sample_weight is None else _SAMPLE_WEIGHT,
        rates=is_array,
        called=called if is_array else None,
    )
    # The engine counts; of the rows themselves nothing is collected.
    pairs = _count_pairs(log, schema, columns)
    if doc_row is None:
        return pairs
    # Documents without ids are named by a row that has their features.
    return replace(pairs, doc_ids=None, doc_row=doc_row[pairs.doc_ids.to_numpy()])


def _found_click(X, schema, click, in_engine):
    """The name of the column of clicks, an array of clicks, or None for a log without any."""
    if isinstance(click, str) and click == "click" and click not in schema:
        return None  # the default of the parameter, and no wish
    if in_engine and not isinstance(click, str | None):
        raise ValueError(
            f"click is an array and X is a lazy frame ({type(X).__module__}.{type(X).__name__}), "
            "whose rows have no order; expected the name of a column of X."
        )
    return click


def _count_pairs(log, schema, columns):
    """The pairs of a checked log; ids name documents of a query unless they are global."""
    by_query = False
    if "doc" in schema and log.scope != "global":
        by_query = "qid" in schema
        if not by_query:
            NO_QUERIES.report(where="")
    documents = ["qid", "doc"] if by_query else ["doc"]
    count = log.count(dict.fromkeys([*documents, *columns]))
    # Then codes of documents and of each bias column, from the few rows that were collected.
    query = count.codes("qid") if by_query else None
    doc, doc_ids = name_documents(count.codes("doc"), query)
    factors = {name: count.codes(name) for name in columns}
    return _combine(doc, factors, count.weight, count.clicks, doc_ids)


def pairs_from_arrays(
    doc: Column, bias: Any, impressions: ArrayLike | None = None, clicks: ArrayLike | None = None
) -> Pairs:
    """Distinct pairs with their counts, from the arrays of :class:`IdentifiabilityGraph`."""
    doc = as_array(doc)
    bias = _bias_arrays(bias)
    n_rows = len(doc)
    # Impressions and clicks as one number per row, before anything is said of their values.
    weight = _floats("impressions", 1.0 if impressions is None else impressions, n_rows)
    if clicks is not None:
        clicks = _floats("clicks", clicks, n_rows)
    _check_arrays(doc, bias, weight)
    if clicks is not None:
        # Only now: whether clicks are rates depends on sound impressions.
        clicks = _number_of_clicks(doc, clicks, weight)
    rows = weight > 0  # what was shown
    if not rows.any():
        NO_ROW_SHOWN.report()
    # Codes of the rows that were shown, which alone make pairs.
    factors = {name: encode(values[rows]) for name, values in bias.items()}
    code, ids = name_documents(encode(doc[rows]), None)
    return _combine(code, factors, weight[rows], None if clicks is None else clicks[rows], ids)


def _number_of_clicks(doc, clicks, weight):
    """Clicks of rows that may be given as rates."""
    frame = pd.DataFrame({"doc": doc, "impressions": weight})
    rate = as_rates(frame, clicks, {}, "clicks")
    # Other values are at fault, which the check tells.
    if isinstance(rate, ClickRates):
        clicks = whole_if_close(rate * weight)
    check({"n_clicks": clicks, "impressions": weight}, called={"n_clicks": "clicks"})
    return clicks


def _pairs_on_disk(dataset, bias):
    """The pairs of a log on disk, counted part by part."""
    # A dataset keeps the places of rows as roles, and no other columns.
    columns = bias_columns(dataset.roles, bias)
    kept = [name for name in ("position", "bias", "user") if name in dataset.roles]
    lacking = [name for name in columns if name not in kept]
    if lacking:
        raise ValueError(
            f"The dataset lacks the bias columns {lacking}; of the places of rows a ClickDataset "
            f"has {kept}. Combine the columns to one number per bias factor, named 'bias', before "
            "you make the dataset."
        )
    X, click_rate = dataset.to_cells(columns)
    pairs = read_pairs(X, bias=columns, click=click_rate)
    if dataset.doc_ids is None:
        return replace(pairs, doc_ids=None)
    return pairs


# Rows given as arrays -----------------------------------------------------------------
def _bias_arrays(bias):
    """The columns of an array or frame of bias factors, by name."""
    if isinstance(bias, pd.DataFrame):
        return {name: as_array(bias[name]) for name in bias.columns}
    frame = nw.from_native(bias, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return {name: frame[name].to_numpy() for name in frame.columns}
    # A Series brings its own name; columns of a matrix are numbered.
    name = getattr(bias, "name", None)
    values = as_array(bias)
    if values.ndim == 2 and values.shape[1]:
        return {f"bias{i}": values[:, i] for i in range(values.shape[1])}
    if values.ndim != 1:
        raise ValueError(
            f"bias has shape {values.shape}; expected (n_rows,) or (n_rows, n_columns)."
        )
    return {"bias" if name is None else name: values}


def _check_arrays(doc, bias, weight):
    """Refuse arrays of several shapes, and values that no role can hold."""
    if doc.ndim != 1:
        raise ValueError(f"doc has shape {doc.shape}; expected (n_rows,).")
    for name, values in bias.items():
        if len(values) != len(doc):
            raise ValueError(
                f"bias has {len(values)} rows and doc has {len(doc)}; expected one bias factor "
                "for each document shown."
            )
        is_missing = pd.isna(values)
        if is_missing.any():
            where = f"first in row {int(is_missing.argmax())}"
            missing_value(name).report(int(is_missing.sum()), None, where)
    columns = {"doc": doc, "impressions": weight}
    if "position" in bias:
        columns["position"] = _floats("position", bias["position"], len(doc))
    check(columns)


def _floats(name, values, n_rows):
    """One number for each row, as floats."""
    values = np.asarray(values, dtype=float)
    if not values.ndim:
        return np.full(n_rows, values)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {values.shape}; expected one number for each row, ({n_rows},)."
        )
    return values


# What X has ---------------------------------------------------------------------------
def bias_columns(schema: Any, bias: Any) -> list[str]:
    """Names of the columns that make the bias factors."""
    if bias is None:
        return ["bias"] if "bias" in schema else ["position"]
    # Several columns make one factor: each combination of their values.
    columns = list(bias) if isinstance(bias, list | tuple) else [bias]
    are_names = all(isinstance(name, str) for name in columns)
    if not columns or not are_names or len(set(columns)) < len(columns):
        raise ValueError(
            f"bias is {bias!r}; expected the name of a column, or a list of different names."
        )
    if "doc" in columns:
        raise ValueError(
            "bias names the column 'doc'; a document cannot be its own bias factor. Expected "
            "columns that determine whether a user looks, such as 'position' or 'device'."
        )
    return columns


def _with_arrays(frame, columns, click, sample_weight):
    """The columns that are read, and given arrays; the first row of each document without id."""
    # pandas would align the new columns by the row labels.
    table = nw.maybe_reset_index(frame)
    new = {}
    doc_rows = None
    if "doc" not in frame.columns:
        # What tells where a row stood, or was clicked, says nothing of its document.
        no_features = [*columns, click] if isinstance(click, str) else columns
        new["doc"], doc_rows = read_documents(frame, no_features)
    if not isinstance(click, str | None):
        # As rates, so that the log need not tell the unit of an array that it did not name.
        clicks = as_clicks(frame, click)
        new[_RATE] = as_rates(frame.to_native(), clicks, {})
    if sample_weight is not None:
        new[_SAMPLE_WEIGHT] = sample_weight
    kind = table.implementation
    added = [nw.new_series(name, values, backend=kind) for name, values in new.items()]
    if added:
        table = table.with_columns(*added)
    return table, doc_rows


def read_documents(frame: Any, not_features: Iterable[str]) -> tuple[Ints, Ints]:
    """Codes of equal feature rows, and the first row of each code."""
    features = without_roles(frame, [*not_features])
    if not features.columns:
        raise ValueError(
            f"X has neither a column 'doc' nor feature columns; found {list(frame.columns)}. "
            "Rename the column of ids of documents to 'doc'."
        )
    values = read_features(features.to_native(), "anything").to_numpy()
    return equal_rows(values)


# Codes --------------------------------------------------------------------------------
def _combine(doc, bias, weight, clicks, doc_ids):
    """The distinct pairs of coded rows, sorted by document, then factor."""
    factor, factors = code_factors(bias)
    # Without clicks, impressions stand in their place, for sums of one shape.
    pairs = Pairs.from_rows(
        doc,
        factor,
        weight if clicks is None else clicks,
        weight,
        len(doc_ids),
        len(factors),
        factors=factors,
        doc_ids=doc_ids,
    )
    if clicks is None:  # what was added up in their place says nothing
        return replace(pairs, clicks=None)
    return pairs


def code_factors(bias: Mapping[str, tuple[Ints, Any]]) -> tuple[Ints, pd.DataFrame]:
    """Code of the bias factor of each row, and the table of factors, sorted."""
    code = None
    for own, ids in bias.values():
        if code is None:
            code = own
        else:
            # Compressed after each column, so that the number of combinations cannot overflow.
            code, _ = encode(pair_codes(code, own, len(ids)))
    n_factors = int(code.max(initial=-1)) + 1
    # The values of each factor are those of any of its rows.
    first = first_rows(code, n_factors)
    factors = {name: values_of(own[first], ids) for name, (own, ids) in bias.items()}
    return code, pd.DataFrame(factors)


def values_of(codes: Ints, ids: Any) -> pd.Series:
    """What codes stand for; whole floats as integers, which engines turn into floats."""
    ids = ids if isinstance(ids, np.ndarray) else ids.to_numpy()
    values = ids[codes]
    if ids.dtype.kind == "f":
        # Up to 2**53, floats hold every whole number.
        is_whole = (np.abs(ids) < 2**53) & (np.floor(ids) == ids)
        if is_whole.all():
            values = values.astype(np.int64)
    return pd.Series(values, dtype=values.dtype).infer_objects()
