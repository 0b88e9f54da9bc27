"""From any log to its distinct (document, bias factor) pairs, counted in the log's own engine.

Whether a log identifies relevance depends on these pairs alone. Only they are collected from the
engine: a log of hundreds of millions of impressions has a few million of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .._base._typing import ArrayLike, Column, Ints
from ._counted import EngineLog, code_ids, codes_of, count_by, require_columns, totals_of
from ._engine import check_counts, scope_of
from ._faults import NO_ROW_SHOWN, check, count_of
from ._hashing import equal_rows
from ._on_disk import LogOnDisk, refuse_arguments
from ._reader import as_clicks, pairs_of_codes, warn_without_queries
from ._roles import is_frame, read_features, without_roles
from ._segments import as_array, encode

#: Names of columns that are added for arrays.
_RATE, _SAMPLE_WEIGHT = "__skultr_rate", "__skultr_sample_weight"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Distinct (document, bias factor) pairs of the shown rows of a log, sorted by their codes.

    ``names`` are ``qid`` and ``doc`` of each document (or ``doc``, if ids are global) as codes and
    the sorted ids that they stand for; without ids, ``doc_rows`` is the first row of the log with
    the features of each document.
    """

    doc: np.ndarray  # (n_pairs,)
    factor: np.ndarray  # (n_pairs,)
    impressions: np.ndarray  # (n_pairs,)
    clicks: np.ndarray | None  # (n_pairs,); None if the log has none
    names: dict | None
    factors: pd.DataFrame  # (n_factors, n_columns), one column per bias column, sorted
    doc_rows: np.ndarray | None = None  # (n_documents,)

    @property
    def n_pairs(self) -> int:
        """Number of distinct pairs."""
        return len(self.doc)

    @property
    def n_factors(self) -> int:
        """Number of bias factors that were shown."""
        return len(self.factors)

    @property
    def n_documents(self) -> int:
        """Number of documents that were shown."""
        return int(self.doc[-1]) + 1

    @cached_property
    def doc_ids(self) -> pd.Index | None:
        """Index of the documents: of (qid, doc), or of doc if ids are global; None without ids.

        Computed at first access, because millions of ids of text take long.
        """
        if self.names is None:
            return None
        levels = {name: _index(ids, name) for name, (_, ids) in self.names.items()}
        codes = [codes for codes, _ in self.names.values()]
        if len(levels) == 1:
            return levels["doc"].take(codes[0])
        return pd.MultiIndex(list(levels.values()), codes, names=list(levels))

    def name_documents(self, documents: Ints) -> pd.DataFrame:
        """Table of some documents: ``qid`` and ``doc``, or the first row with their features."""
        if self.names is not None:
            return self.doc_ids[documents].to_frame(index=False)
        if self.doc_rows is not None:
            return pd.DataFrame({"row": self.doc_rows[documents]})
        return pd.DataFrame({"doc": documents})


def _index(ids, name):
    values = ids if isinstance(ids, np.ndarray) else _plain(ids.to_numpy())
    return pd.Index(values, name=name, tupleize_cols=False)


def read_pairs(
    X: Any,
    *,
    bias: str | list[str] | tuple[str, ...] | None = None,
    click: str | ArrayLike | None = "click",
    sample_weight: NDArray[Any] | None = None,
    called: str = "click",
) -> Pairs:
    """Distinct (document, bias factor) pairs of a log, with their impressions and clicks.

    ``click`` names the column with the *number* of clicks of each row, between 0 and its
    ``impressions``, or holds clicks (click rates) in memory, which are ``called`` so in messages;
    without such a column, clicks are unknown. In a frame in memory without ``doc``, rows with
    equal features are one document.

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
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.LazyFrame) and not is_frame(X):
        if hasattr(X, "X") and hasattr(X, "clicks"):
            return read_pairs(X.X, bias=bias, click=X.clicks if by_default else click)
        raise TypeError(
            f"X is a {type(X).__name__}; expected a frame (pandas, Polars, PyArrow, DuckDB, Dask, "
            "PySpark, ...) or a simulated log. From arrays: IdentifiabilityGraph(doc, bias)."
        )
    schema = frame.collect_schema()
    columns = bias_columns(schema, bias)
    if by_default and click not in schema:
        click = None
    of_rows, doc_rows = not isinstance(click, str | None), None
    in_engine = isinstance(frame, nw.LazyFrame)
    require_columns(schema, [*columns, *["doc"] * in_engine, *[click] * isinstance(click, str)])
    documents = _document_columns(schema, frame)
    if isinstance(frame, nw.DataFrame):
        frame, doc_rows = _with_arrays(frame, columns, click, sample_weight)
    elif of_rows:
        raise ValueError(
            f"click is an array and X is a lazy frame ({type(X).__module__}.{type(X).__name__}), "
            "whose rows have no order; expected the name of a column of X."
        )
    log = EngineLog.of(
        frame,
        _RATE if of_rows else click,
        ["position", "impressions"],
        needs=[*documents, *columns],
        sample_weight=None if sample_weight is None else _SAMPLE_WEIGHT,
        rates=of_rows,
        called=called if of_rows else None,
    )
    keys = list(dict.fromkeys([*documents, *columns]))
    rows, ids = code_ids(log.rows({name: log.key(name) for name in keys}), keys)
    table = count_by(rows, keys)
    del rows
    weight, clicks = totals_of(table)
    check_counts(weight, clicks, log.counts)
    coded = {name: codes_of(table, ids, name) for name in keys}
    del table
    doc, names = _documents({name: coded[name] for name in documents})
    factors = {name: coded[name] for name in columns}
    pairs = _combine(doc, names, factors, weight, clicks)
    if doc_rows is None:
        return pairs
    shown = pairs.names["doc"][1].to_numpy()
    return replace(pairs, names=None, doc_rows=doc_rows[shown])


def pairs_from_arrays(
    doc: Column, bias: Any, impressions: ArrayLike | None = None, clicks: ArrayLike | None = None
) -> Pairs:
    """Distinct pairs with their counts, from the arrays of :class:`IdentifiabilityGraph`."""
    doc, bias = as_array(doc), _bias_arrays(bias)
    weight = None if impressions is None else _floats("impressions", impressions, len(doc))
    clicks = None if clicks is None else _floats("clicks", clicks, len(doc))
    _check_arrays(doc, bias, weight, clicks)
    if weight is not None and not weight.all():
        rows = weight > 0
        doc, bias = doc[rows], {name: values[rows] for name, values in bias.items()}
        weight, clicks = weight[rows], None if clicks is None else clicks[rows]
    if not len(doc):
        NO_ROW_SHOWN.report(0, None, None)
    weight = np.ones(len(doc)) if weight is None else weight
    bias = {name: encode(values) for name, values in bias.items()}
    return _combine(*_documents({"doc": encode(doc)}), bias, weight, clicks)


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
    return replace(pairs, names=None) if dataset.doc_ids is None else pairs


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


def _check_arrays(doc, bias, weight, clicks):
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
            raise ValueError(
                f"{name} is missing in {count_of(int(missing.sum()), 'row')}, first in row "
                f"{int(missing.argmax())}; expected a value in every row. Use a separate value "
                "for unknown ones, and leave out the rows that were not shown."
            )
    columns = {"doc": doc, "impressions": np.ones(len(doc)) if weight is None else weight}
    if clicks is not None:
        columns["n_clicks"] = clicks
    if "position" in bias:
        columns["position"] = _floats("position", bias["position"], len(doc))
    check(columns, called={"n_clicks": "clicks"})


def _floats(name, values, n_rows):
    values = np.asarray(values, dtype=float)
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


def _document_columns(schema, frame):
    """The columns that together identify a document."""
    if "doc" not in schema or scope_of(frame) == "global":
        return ["doc"]
    if "qid" not in schema:
        warn_without_queries()
        return ["doc"]
    return ["qid", "doc"]


def _with_arrays(frame, columns, click, sample_weight):
    """The columns of a frame in memory that are read, with columns for given arrays.

    Where X has no ``doc``, also the first row of each document, else None.
    """
    used = {"doc", "qid", "position", "impressions", *columns}
    used |= {click} if isinstance(click, str) else set()
    names = [name for name in frame.columns if name in used]
    # pandas would align the new columns by the row labels.
    table = nw.maybe_reset_index(frame.select(names))
    new, doc_rows = {}, None
    if "doc" not in frame.columns:
        named = [*columns, click] if isinstance(click, str) else columns
        new["doc"], doc_rows = read_documents(frame, named)
    if not isinstance(click, str | None):
        new[_RATE] = as_clicks(frame, click)
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
def _documents(coded):
    """Code of the document of each row, and names of documents, from the codes of their ids."""
    doc, ids = coded["doc"]
    if "qid" not in coded:
        return doc, {"doc": (np.arange(len(ids)), ids)}
    query, queries = coded["qid"]
    doc, query, own = pairs_of_codes(query, doc, len(ids))
    return doc, {"qid": (query, queries), "doc": (own, ids)}


def _combine(doc, names, bias, weight, clicks):
    """The distinct pairs of coded rows, sorted by document, then factor."""
    factor, factors = code_factors(bias)

    def summed(values):
        # Linear time; sorting millions of pairs would dominate the cost.
        table = csr_array((values, (doc, factor)), (int(doc.max()) + 1, len(factors)))
        table.sum_duplicates()
        return table

    table = summed(weight)
    doc_of_pair = np.repeat(np.arange(table.shape[0], dtype=np.int32), np.diff(table.indptr))
    clicks = None if clicks is None else summed(clicks).data
    return Pairs(doc_of_pair, table.indices, table.data, clicks, names, factors)


def code_factors(bias: dict[str, tuple[Ints, Any]]) -> tuple[Ints, pd.DataFrame]:
    """Code of the bias factor of each row, and the table of factors, sorted."""
    code = None
    for own, ids in bias.values():
        # Compressed after each column, so that the number of combinations cannot overflow.
        code = own if code is None else encode(code * len(ids) + own)[0]
    first = np.empty(int(code.max(initial=-1)) + 1, dtype=np.intp)
    first[code] = np.arange(len(code))
    columns = {}
    for name, (own, ids) in bias.items():
        ids = ids if isinstance(ids, np.ndarray) else _plain(ids.to_numpy())
        columns[name] = pd.Series(ids[own[first]], dtype=ids.dtype).infer_objects()
    return code, pd.DataFrame(columns)


def _plain(values):
    """Whole floats as integers: engines hold integers as floats if some are missing."""
    whole = values.dtype.kind == "f" and (np.abs(values) < 2**53) & (np.floor(values) == values)
    return values.astype(np.int64) if np.all(whole) else values
