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

from .._typing import ArrayLike, Column, Ints
from ._engine import (
    check_counts,
    check_numbers,
    check_rows,
    code_ids,
    collect,
    encode_ids,
    fault_columns,
    scope_of,
)
from ._faults import NO_ROW_SHOWN, Fault, check, count_of
from ._hashing import equal_rows
from ._on_disk import LogOnDisk, refuse_arguments
from ._reader import as_clicks, pairs_of_codes, warn_without_queries
from ._roles import ROLES, is_frame, read_features, without_columns
from ._segments import as_array, encode


@dataclass(frozen=True, eq=False)
class Pairs:
    """Distinct (document, bias factor) pairs of the shown rows of a log.

    Parameters
    ----------
    doc, factor : ndarray of shape (n_pairs,), int
        Codes of the document and the factor, without gaps; sorted by document, then factor.
    impressions : ndarray of shape (n_pairs,), float
    clicks : ndarray of shape (n_pairs,), float, or None
        Number of clicks; None if the log has none.
    names : dict of str to (ndarray of shape (n_documents,), Series or ndarray), or None
        ``qid`` and ``doc`` of each document, or ``doc`` if ids are global: codes, and the sorted
        ids that they stand for. None if documents are equal rows of features.
    factors : pandas.DataFrame of shape (n_factors, n_columns)
        Values that the codes of factors stand for, one column per bias column, sorted.
    doc_rows : ndarray of shape (n_documents,), int, or None
        First row of the log with the features of each document, if documents have no ids.
    """

    doc: np.ndarray
    factor: np.ndarray
    impressions: np.ndarray
    clicks: np.ndarray | None
    names: dict | None
    factors: pd.DataFrame
    doc_rows: np.ndarray | None = None

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
        """Table of some documents: ``qid`` and ``doc``, or the first ``row`` with their features.

        Parameters
        ----------
        documents : ndarray of shape (n_chosen,), int

        Returns
        -------
        table : DataFrame of shape (n_chosen, n_columns)
        """
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

    Rows without a position (if X has this column) or with 0 impressions are candidates that were
    never shown; they are left out.

    Parameters
    ----------
    X : frame, SimulatedLog or ClickDataset
        Any frame that Narwhals reads, in memory or lazy. The pairs are counted in its engine;
        only they are collected. A document is the pair of ``qid`` and ``doc``, or ``doc`` alone
        if the column ``doc_scope`` holds "global". In a frame in memory without ``doc``, rows with
        equal features are one document.
    bias : str or list of str, default=None
        Columns whose values together are the bias factor; by default ``bias`` if there is one,
        else ``position``.
    click : str or array-like of shape (n_rows,), default="click"
        Name of the column with the *number* of clicks of each row, between 0 and its
        ``impressions``; or clicks (click rates) in memory, as the ``y`` of ``fit``. Without
        such a column, clicks are unknown.
    sample_weight : ndarray of shape (n_rows,), default=None
        Multiplies ``impressions``; only for a frame in memory.
    called : str, default="click"
        Name of an array of clicks in messages.

    Returns
    -------
    pairs : Pairs

    Raises
    ------
    TypeError
        X is no log.
    ValueError
        A column is missing, an id or factor of a shown row is missing, clicks or impressions are
        out of range, or nothing was shown.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr._log._pairs import read_pairs
    >>> log = pd.DataFrame({
    ...     "qid": 1, "doc": ["a", "a", "b"], "position": [1, 2, 1], "click": [1, 0, 1],
    ... })
    >>> pairs = read_pairs(log)
    >>> pairs.doc.tolist(), pairs.factor.tolist(), pairs.clicks.tolist()
    ([0, 0, 1], [0, 1, 0], [1.0, 0.0, 1.0])
    >>> pairs.factors["position"].tolist(), pairs.doc_ids.tolist()
    ([1, 2], [(1, 'a'), (1, 'b')])
    """
    if isinstance(X, LogOnDisk):
        refuse_arguments({"click": None if isinstance(click, str) and click == "click" else click})
        refuse_arguments({"sample_weight": sample_weight})
        return _pairs_on_disk(X, bias)
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.LazyFrame) and not is_frame(X):
        if hasattr(X, "X") and hasattr(X, "clicks"):
            given = isinstance(click, str) and click == "click"
            return read_pairs(X.X, bias=bias, click=X.clicks if given else click)
        raise TypeError(
            f"X is a {type(X).__name__}; expected a frame (pandas, Polars, PyArrow, DuckDB, Dask, "
            "PySpark, ...) or a simulated log. From arrays: IdentifiabilityGraph(doc, bias)."
        )
    schema = frame.collect_schema()
    columns = _bias_columns(schema, bias)
    _check_columns(schema, columns, click)
    documents = _document_columns(schema, frame)
    doc_rows = None
    if isinstance(frame, nw.LazyFrame):
        _check_lazy(X, schema, click)
    else:
        frame, doc_rows = _with_arrays(frame, columns, click, sample_weight)
    counted, ids = _counted(frame, documents, columns, click, called)
    table = collect(counted)
    weight = table["_weight"].to_numpy().astype(float)
    clicks = table["_click"].to_numpy().astype(float) if "_click" in table.columns else None
    check_counts(weight, clicks, repr(click) if isinstance(click, str) else None)
    coded = {
        name: (table[name].to_numpy(), ids[name]) if name in ids else encode_ids(table[name])
        for name in table.columns
        if name not in ("_weight", "_click")
    }
    del table, counted
    bias = {name: coded.pop(f"_bias{i}") for i, name in enumerate(columns)}
    pairs = _combine(*_documents(coded), bias, weight, clicks)
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
    columns = _bias_columns(dataset.roles, bias)
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
    codes, index = pairs.doc_ids.to_numpy(), dataset.doc_ids
    if index is None:
        return replace(pairs, names=None)
    if not isinstance(index, pd.MultiIndex):
        return replace(pairs, names={"doc": (codes, index.to_numpy())})
    names = zip(index.names, index.codes, index.levels, strict=True)
    return replace(pairs, names={name: (of[codes], ids.to_numpy()) for name, of, ids in names})


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
def _bias_columns(schema, bias):
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


def _check_columns(schema, columns, click):
    lacking = [name for name in columns if name not in schema]
    if lacking:
        raise ValueError(
            f"X lacks the bias columns {lacking}; found {list(schema)}. Name the columns of the "
            "bias factor with bias=, or rename yours to 'position'."
        )
    if isinstance(click, str) and click != "click" and click not in schema:
        raise ValueError(
            f"X lacks the column of clicks {click!r}; found {list(schema)}. Pass its name, or "
            "leave click out if the log has none."
        )
    numeric = ["position", "impressions", *({"bias"} & set(columns))]
    check_numbers(schema, [*numeric, click] if isinstance(click, str) else numeric)


def _document_columns(schema, frame):
    """The columns that together identify a document."""
    if "doc" not in schema or scope_of(frame) == "global":
        return ["doc"]
    if "qid" not in schema:
        warn_without_queries()
        return ["doc"]
    return ["qid", "doc"]


def _check_lazy(X, schema, click):
    kind = f"{type(X).__module__}.{type(X).__name__}"
    if "doc" not in schema:
        raise ValueError(
            f"X is a lazy frame ({kind}) without a column 'doc'; found {list(schema)}. Rename "
            "the column of ids of documents to 'doc'; only a frame in memory can be searched for "
            "equal features."
        )
    if not isinstance(click, str | None):
        raise ValueError(
            f"click is an array and X is a lazy frame ({kind}), whose rows have no order; "
            "expected the name of a column of X."
        )


# The pairs, in the engine of X --------------------------------------------------------
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
        new["__skultr_rate"] = as_clicks(frame, click)
    if sample_weight is not None:
        new["__skultr_sample_weight"] = sample_weight
    new = [nw.new_series(k, values, backend=table.implementation) for k, values in new.items()]
    return table.with_columns(*new) if new else table, doc_rows


def read_documents(frame: Any, not_features: Iterable[str]) -> tuple[Ints, Ints]:
    """Codes of equal feature rows, and the first row of each code."""
    features = without_columns(frame, {*ROLES, *not_features})
    if not features.columns:
        raise ValueError(
            f"X has neither a column 'doc' nor feature columns; found {list(frame.columns)}. "
            "Rename the column of ids of documents to 'doc'."
        )
    return equal_rows(read_features(features.to_native(), "anything").to_numpy())


def _counted(frame, documents, columns, click, called):
    """Frame of the distinct pairs of shown rows with counts, and the ids of its coded columns."""
    schema = frame.collect_schema()
    read, scale = _read_columns(frame, schema, documents, columns, click, called)
    values = {"_weight": read["impressions"]}
    if "sample_weight" in read:
        values["_weight"] = values["_weight"] * read["sample_weight"]
    if "n_clicks" in read:
        values["_click"] = read["n_clicks"]
    elif "click" in read:
        values["_click"] = read["click"] * values["_weight"] / scale
    keys = {name: read[name] for name in documents}
    keys |= {f"_bias{i}": read[name] for i, name in enumerate(columns)}
    if not {"position", "impressions", "__skultr_sample_weight"}.isdisjoint(schema):
        frame = frame.filter(read["shown"])
    frame = frame.select(*(each.alias(name) for name, each in (keys | values).items()))
    ids = {}
    if frame.implementation.is_polars():
        frame = frame.lazy()
    elif isinstance(frame, nw.DataFrame):
        text = [
            k for k in keys if not (frame[k].dtype.is_numeric() or frame[k].dtype == nw.Boolean)
        ]
        frame, ids = code_ids(frame, text)
    return frame.group_by(*keys).agg(*(nw.col(name).sum() for name in values)), ids


def _read_columns(frame, schema, documents, columns, click, called):
    """Columns that are read, as expressions, and the scale of clicks; faults are reported."""
    reads = dict.fromkeys([*documents, "position", "impressions", *columns])
    clicks = nw.col("__skultr_rate") if "__skultr_rate" in schema else None
    if isinstance(click, str) and click in schema:
        clicks, called = nw.col(click).cast(nw.Float64).fill_nan(None), repr(click)
    weight = nw.col("__skultr_sample_weight") if "__skultr_sample_weight" in schema else None
    rates = "__skultr_rate" in schema or "impressions" not in schema
    read = fault_columns(schema, reads, clicks, weight, rates=rates)
    values = [_missing_value(name) for name in columns if name not in ("position", "bias")]
    scale = check_rows(frame, read, schema, {"click": called, "n_clicks": called}, values)
    return read, scale


def _missing_value(name):
    return Fault(
        f"{name} missing",
        (name, "shown"),
        ValueError,
        f"The bias column {name!r} is missing in {{rows}}, {{where}}; expected a value in every "
        "row that was shown. Fill it (with a separate value such as 'unknown'), or drop these "
        "rows.",
        lambda c: c.shown & c.missing(name),
    )


# Codes --------------------------------------------------------------------------------
def _documents(coded):
    """Code of the document of each row, and the names of the documents.

    Parameters
    ----------
    coded : dict of str to (ndarray of shape (n_rows,), ids)
        ``doc``, and ``qid`` if documents are pairs of both.
    """
    doc, ids = coded["doc"]
    if "qid" not in coded:
        return doc, {"doc": (np.arange(len(ids)), ids)}
    query, queries = coded["qid"]
    doc, query, own = pairs_of_codes(query, doc, len(ids))
    return doc, {"qid": (query, queries), "doc": (own, ids)}


def _combine(doc, names, bias, weight, clicks):
    """The distinct pairs of coded rows, sorted by document, then factor."""
    factor, factors = _code_factors(bias)

    def summed(values):
        # Linear time; sorting millions of pairs would dominate the cost.
        table = csr_array((values, (doc, factor)), (int(doc.max()) + 1, len(factors)))
        table.sum_duplicates()
        return table

    table = summed(weight)
    doc_of_pair = np.repeat(np.arange(table.shape[0], dtype=np.int32), np.diff(table.indptr))
    clicks = None if clicks is None else summed(clicks).data
    return Pairs(doc_of_pair, table.indices, table.data, clicks, names, factors)


def _code_factors(bias):
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
