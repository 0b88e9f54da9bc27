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
    by_default = isinstance(click, str) and click == "click"
    if isinstance(X, LogOnDisk):
        refuse_arguments({"click": None if by_default else click, "sample_weight": sample_weight})
        return _pairs_on_disk(X, bias)
    if not is_in_engine(X) and not is_frame(X):
        if hasattr(X, "X") and hasattr(X, "clicks"):
            return read_pairs(X.X, bias=bias, click=X.clicks if by_default else click)
        raise TypeError(
            f"X is a {type(X).__name__}; expected a frame (pandas, Polars, PyArrow, DuckDB, Dask, "
            "PySpark, ...) or a simulated log. From arrays: IdentifiabilityGraph(doc, bias)."
        )
    frame = open_frame(X)
    schema = frame.collect_schema()
    refuse_index(X, [name for name in ("qid", "doc", "position", "bias") if name not in schema])
    columns = bias_columns(schema, bias)
    if by_default and click not in schema:
        click = None
    is_array = not isinstance(click, str | None)
    in_engine = isinstance(frame, nw.LazyFrame)
    if in_engine and is_array:
        raise ValueError(
            f"click is an array and X is a lazy frame ({type(X).__module__}.{type(X).__name__}), "
            "whose rows have no order; expected the name of a column of X."
        )
    named = [click] if isinstance(click, str) else []
    require_columns(schema, [*columns, *["doc"] * in_engine, *named])
    doc_row = None
    if not in_engine:
        frame, doc_row = _with_arrays(frame, columns, click, sample_weight)
    log = EngineLog.of(
        frame,
        _RATE if is_array else click,
        ["qid", "position", "impressions"],
        needs=["doc", *columns],
        sample_weight=None if sample_weight is None else _SAMPLE_WEIGHT,
        rates=is_array,
        called=called if is_array else None,
    )
    documents = ["doc"]
    if "doc" in schema and log.scope != "global":
        if "qid" in schema:
            documents = ["qid", "doc"]
        else:
            NO_QUERIES.report(where="")
    count = log.count(dict.fromkeys([*documents, *columns]))
    query = count.codes("qid") if "qid" in documents else None
    doc, doc_ids = name_documents(count.codes("doc"), query)
    factors = {name: count.codes(name) for name in columns}
    pairs = _combine(doc, factors, count.weight, count.clicks, doc_ids)
    if doc_row is None:
        return pairs
    return replace(pairs, doc_ids=None, doc_row=doc_row[doc_ids.to_numpy()])


def pairs_from_arrays(
    doc: Column, bias: Any, impressions: ArrayLike | None = None, clicks: ArrayLike | None = None
) -> Pairs:
    """Distinct pairs with their counts, from the arrays of :class:`IdentifiabilityGraph`."""
    doc = as_array(doc)
    bias = _bias_arrays(bias)
    weight = _floats("impressions", 1.0 if impressions is None else impressions, len(doc))
    clicks = None if clicks is None else _floats("clicks", clicks, len(doc))
    _check_arrays(doc, bias, weight)
    if clicks is not None:
        frame = pd.DataFrame({"doc": doc, "impressions": weight})
        rate = as_rates(frame, clicks, {}, "clicks")
        clicks = whole_if_close(rate * weight) if isinstance(rate, ClickRates) else clicks
        check({"n_clicks": clicks, "impressions": weight}, called={"n_clicks": "clicks"})
    rows = weight > 0
    if not rows.any():
        NO_ROW_SHOWN.report()
    bias = {name: encode(values[rows]) for name, values in bias.items()}
    doc, ids = name_documents(encode(doc[rows]), None)
    return _combine(doc, bias, weight[rows], None if clicks is None else clicks[rows], ids)


def _pairs_on_disk(dataset, bias):
    """The pairs of a log on disk, counted part by part."""
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
    return replace(pairs, doc_ids=None) if dataset.doc_ids is None else pairs


# Rows given as arrays -----------------------------------------------------------------
def _bias_arrays(bias):
    """The columns of an array or frame of bias factors, by name."""
    if isinstance(bias, pd.DataFrame):
        return {name: as_array(bias[name]) for name in bias.columns}
    frame = nw.from_native(bias, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return {name: frame[name].to_numpy() for name in frame.columns}
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
    if doc.ndim != 1:
        raise ValueError(f"doc has shape {doc.shape}; expected (n_rows,).")
    for name, values in bias.items():
        if len(values) != len(doc):
            raise ValueError(
                f"bias has {len(values)} rows and doc has {len(doc)}; expected one bias factor "
                "for each document shown."
            )
        missing = pd.isna(values)
        if missing.any():
            where = f"first in row {int(missing.argmax())}"
            missing_value(name).report(int(missing.sum()), None, where)
    columns = {"doc": doc, "impressions": weight}
    if "position" in bias:
        columns["position"] = _floats("position", bias["position"], len(doc))
    check(columns)


def _floats(name, values, n_rows):
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
    columns = list(bias) if isinstance(bias, list | tuple) else [bias]
    named = all(isinstance(name, str) for name in columns)
    if not columns or not named or len(set(columns)) < len(columns):
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
        named = [*columns, click] if isinstance(click, str) else columns
        new["doc"], doc_rows = read_documents(frame, named)
    if not isinstance(click, str | None):
        new[_RATE] = as_rates(frame.to_native(), as_clicks(frame, click), {})
    if sample_weight is not None:
        new[_SAMPLE_WEIGHT] = sample_weight
    new = [nw.new_series(k, values, backend=table.implementation) for k, values in new.items()]
    return table.with_columns(*new) if new else table, doc_rows


def read_documents(frame: Any, not_features: Iterable[str]) -> tuple[Ints, Ints]:
    """Codes of equal feature rows, and the first row of each code."""
    features = without_roles(frame, [*not_features])
    if not features.columns:
        raise ValueError(
            f"X has neither a column 'doc' nor feature columns; found {list(frame.columns)}. "
            "Rename the column of ids of documents to 'doc'."
        )
    return equal_rows(read_features(features.to_native(), "anything").to_numpy())


# Codes --------------------------------------------------------------------------------
def _combine(doc, bias, weight, clicks, doc_ids):
    """The distinct pairs of coded rows, sorted by document, then factor."""
    factor, factors = code_factors(bias)
    size = len(doc_ids), len(factors)
    found = weight if clicks is None else clicks
    pairs = Pairs.from_rows(doc, factor, found, weight, *size, factors=factors, doc_ids=doc_ids)
    return replace(pairs, clicks=None) if clicks is None else pairs


def code_factors(bias: Mapping[str, tuple[Ints, Any]]) -> tuple[Ints, pd.DataFrame]:
    """Code of the bias factor of each row, and the table of factors, sorted."""
    code = None
    for own, ids in bias.values():
        # Compressed after each column, so that the number of combinations cannot overflow.
        code = own if code is None else encode(pair_codes(code, own, len(ids)))[0]
    first = first_rows(code, int(code.max(initial=-1)) + 1)
    factors = {name: values_of(own[first], ids) for name, (own, ids) in bias.items()}
    return code, pd.DataFrame(factors)


def values_of(codes: Ints, ids: Any) -> pd.Series:
    """What codes stand for; whole floats as integers, which engines turn into floats."""
    ids = ids if isinstance(ids, np.ndarray) else ids.to_numpy()
    whole = ids.dtype.kind == "f" and (np.abs(ids) < 2**53) & (np.floor(ids) == ids)
    values = ids[codes].astype(np.int64) if np.all(whole) else ids[codes]
    return pd.Series(values, dtype=values.dtype).infer_objects()
