"""From any log to its distinct (document, bias factor) pairs, counted in the log's own engine.

Whether a log identifies relevance depends on these pairs alone. They are what leaves the engine:
a log of hundreds of millions of impressions has a few million of them.
"""

from dataclasses import dataclass, replace

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from ..exceptions import ClickDataWarning, warn_user
from ._clicklog import ClickLog
from ._hashing import equal_rows
from ._roles import ROLES, is_frame, read_features, without_columns
from ._segments import as_array, encode

__all__ = ["Pairs", "make_pairs", "pairs_from_arrays", "read_pairs"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Distinct (document, bias factor) pairs of the shown rows of a log.

    Parameters
    ----------
    doc, factor : ndarray of shape (n_pairs,), int
        Codes of the document and the factor; sorted by document, then factor. Every code is
        used.
    impressions : ndarray of shape (n_pairs,), float
    clicks : ndarray of shape (n_pairs,), float, or None
        Number of clicks; None where the log has none.
    doc_ids : ndarray of shape (n_documents,) or None
        The ids that the codes stand for, sorted; None where documents are equal feature rows.
    factors : pandas.DataFrame of shape (n_factors, n_columns)
        The values that the codes of factors stand for, one column a bias column, sorted.
    doc_rows : ndarray of shape (n_documents,), int, or None
        Without ids: the first row of the log that has the features of each document.
    n_recurring : int
        Documents whose id was shown by several queries.
    """

    doc: np.ndarray
    factor: np.ndarray
    impressions: np.ndarray
    clicks: np.ndarray | None
    doc_ids: np.ndarray | None
    factors: pd.DataFrame
    doc_rows: np.ndarray | None = None
    n_recurring: int = 0

    @property
    def n_pairs(self):
        """Number of distinct pairs."""
        return len(self.doc)

    @property
    def n_factors(self):
        """Number of bias factors that were shown."""
        return len(self.factors)

    @property
    def n_documents(self):
        """Number of documents that were shown."""
        return int(self.doc[-1]) + 1


def read_pairs(X, *, bias=None, click="click"):
    """Distinct (document, bias factor) pairs of a log, with their impressions and clicks.

    Rows without a position (where there is such a column) or with 0 impressions are candidates
    that were never shown; they are left out.

    Parameters
    ----------
    X : frame, ClickLog or SimulatedLog
        Any frame that Narwhals reads, in memory or lazy. The pairs are counted in its engine
        and they alone are collected. Documents are the values of ``doc``; a frame in memory
        without that column takes rows with equal features as one document.
    bias : str or list of str, default=None
        Columns whose values together are the bias factor; by default ``bias`` if there is one,
        else ``position``.
    click : str or array-like of shape (n_rows,), default="click"
        Name of the column with the *number* of clicks of each row, between 0 and its
        ``impressions``; or clicks (click rates) in memory, as the ``y`` of ``fit``. Without
        such a column, clicks are unknown.

    Returns
    -------
    pairs : Pairs

    Raises
    ------
    TypeError
        X is no log.
    ValueError
        Columns are missing, ids or factors of shown rows are missing, clicks or impressions
        are out of range, or nothing was shown.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr._log._pairs import read_pairs
    >>> log = pd.DataFrame({"doc": ["a", "a", "b"], "position": [1, 2, 1], "click": [1, 0, 1]})
    >>> pairs = read_pairs(log)
    >>> pairs.doc, pairs.factor, pairs.clicks
    (array([0, 0, 1]), array([0, 1, 0]), array([1., 0., 1.]))
    >>> pairs.factors["position"].tolist(), pairs.doc_ids.tolist()
    ([1, 2], ['a', 'b'])
    """
    if isinstance(X, ClickLog):
        return _pairs_of_click_log(X, bias)
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
    doc_rows = None
    if isinstance(frame, nw.LazyFrame):
        _check_lazy(X, schema, click)
    else:
        frame, doc_rows = _with_arrays(X, frame, columns, click)
    table = _collect(_counted(frame, schema, columns, click))
    _check_table(table, columns, click)
    if isinstance(click, str) and click in schema:
        _warn_about_rates(table["_weight"].to_numpy(), table["_click"].to_numpy())
    return _as_pairs(table, columns, doc_rows)


def pairs_from_arrays(doc, bias, impressions=None, clicks=None):
    """As :func:`read_pairs`, from the arrays of :class:`IdentifiabilityGraph`."""
    doc, bias = as_array(doc), _bias_arrays(bias)
    _check_rows(doc, bias)
    weight = _check_counts("impressions", impressions, np.inf, len(doc))
    clicks = _check_counts("clicks", clicks, 1.0 if weight is None else weight, len(doc))
    if weight is not None and not weight.all():
        rows = weight > 0
        doc, bias = doc[rows], {name: values[rows] for name, values in bias.items()}
        weight, clicks = weight[rows], None if clicks is None else clicks[rows]
    if not len(doc):
        raise ValueError(
            "doc has no row that was shown (it is empty, or all impressions are 0); expected at "
            "least one shown row."
        )
    return make_pairs(doc, bias, weight, clicks)


def make_pairs(doc, bias, impressions=None, clicks=None):
    """Reduce rows of arrays, already checked, to distinct pairs.

    Parameters
    ----------
    doc : ndarray of shape (n_rows,)
        Ids.
    bias : dict of str to ndarray of shape (n_rows,)
    impressions, clicks : ndarray of shape (n_rows,), default=None
        By default an impression a row, and unknown clicks.

    Returns
    -------
    pairs : Pairs
    """
    doc, doc_ids = _encode(doc)
    factor, factors = _encode_factors(bias)
    key = doc * len(factors) + factor
    weight = np.ones(len(key)) if impressions is None else impressions
    order = None
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")
        key = key[order]
        weight, clicks = weight[order], None if clicks is None else clicks[order]
    start = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    if len(start) < len(key):
        key, weight = key[start], np.add.reduceat(weight, start)
        clicks = None if clicks is None else np.add.reduceat(clicks, start)
    doc, factor = np.divmod(key, len(factors))
    return Pairs(doc, factor, weight, clicks, doc_ids, factors)


# Rows given as arrays -----------------------------------------------------------------
def _bias_arrays(bias):
    """The columns of the bias factor by name."""
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


def _check_rows(doc, bias):
    if doc.ndim != 1:
        raise ValueError(f"doc has shape {doc.shape}; expected (n_rows,).")
    for name, values in {"doc": doc, **bias}.items():
        if len(values) != len(doc):
            raise ValueError(
                f"bias has {len(values)} rows and doc has {len(doc)}; expected one bias factor "
                "for each document shown."
            )
        missing = pd.isna(values)
        if missing.any():
            raise ValueError(
                f"{name} is missing in {int(missing.sum())} rows, first in row "
                f"{int(missing.argmax())}; expected a value in every row. Give what is unknown a "
                "value of its own, and leave out the rows that were not shown."
            )


def _check_counts(name, values, largest, n_rows):
    if values is None:
        return None
    values = np.asarray(values, dtype=float)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {values.shape}; expected one number for each row, ({n_rows},)."
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= largest) & np.isfinite(values)))
    if len(bad):
        limit = "at least 0" if name == "impressions" else "between 0 and the row's impressions"
        raise ValueError(
            f"{name} must be finite numbers {limit}, got {values[bad[0]]:g} in row {bad[0]}."
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
            "what decides whether a user looked, such as 'position' or 'device'."
        )
    return columns


def _check_columns(schema, columns, click):
    lacking = [name for name in columns if name not in schema]
    if lacking:
        raise ValueError(
            f"X lacks the bias columns {lacking}; found {list(schema)}. Name the columns that "
            "make up the bias factor with bias=, or rename yours to 'position'."
        )
    if isinstance(click, str) and click != "click" and click not in schema:
        raise ValueError(
            f"X lacks the column of clicks {click!r}; found {list(schema)}. Pass its name, or "
            "leave click out where the log has none."
        )
    numeric = ["position", "impressions", *([click] if isinstance(click, str) else [])]
    for name in numeric:
        if isinstance(schema.get(name), nw.String):
            raise ValueError(f"The column {name!r} holds strings; expected numbers. Convert it.")


def _check_lazy(X, schema, click):
    kind = f"{type(X).__module__}.{type(X).__name__}"
    if "doc" not in schema:
        raise ValueError(
            f"X is a lazy frame ({kind}) without a column 'doc'; found {list(schema)}. Rename "
            "the column that names the query-document pair to 'doc'; only a frame in memory can "
            "be searched for equal features."
        )
    if not isinstance(click, str | None):
        raise ValueError(
            f"click is an array and X is a lazy frame ({kind}), whose rows have no order; "
            "expected the name of a column of X."
        )


# The pairs, in the engine of X --------------------------------------------------------
def _with_arrays(X, frame, columns, click):
    """The columns needed of a frame in memory, and what is computed from arrays: docs, clicks."""
    used = {"doc", "qid", "position", "impressions"}
    names = [name for name in frame.columns if name in used]
    names += [name for name in columns if name not in names]
    if isinstance(click, str) and click in frame.columns and click not in names:
        names.append(click)
    # The row labels of pandas would align the new columns.
    table = nw.maybe_reset_index(frame.select(names))
    new, doc_rows = {}, None
    if "doc" not in frame.columns:
        named = [*columns, click] if isinstance(click, str) else columns
        new["doc"], doc_rows = read_documents(frame, named)
    if not isinstance(click, str | None):
        new["_rate"] = _check_rates(click, len(frame))
    if new:
        backend = table.implementation
        table = table.with_columns(
            *(nw.new_series(name, values, backend=backend) for name, values in new.items())
        )
    return table, doc_rows


def read_documents(frame, not_features):
    """Codes of equal feature rows, and the first row of each code."""
    features = without_columns(frame, {*ROLES, *not_features})
    if not features.columns:
        raise ValueError(
            f"X has neither a column 'doc' nor feature columns; found {list(frame.columns)}. "
            "Rename the column that names the query-document pair to 'doc'."
        )
    return equal_rows(read_features(features.to_native()).to_numpy())


def _check_rates(click, n_rows):
    rate = np.asarray(as_array(click))
    if rate.shape != (n_rows,):
        raise ValueError(
            f"click has shape {rate.shape}; expected one value for each row of X, that is "
            f"({n_rows},), or the name of a column."
        )
    rate = rate.astype(float)
    bad = np.flatnonzero(~(np.isfinite(rate) & (rate >= 0)))
    if len(bad):
        raise ValueError(
            f"click must hold clicks or click rates in [0, 1], got {rate[bad[0]]:g} in row "
            f"{bad[0]}."
        )
    # Graded relevance, as everywhere in the package; whoever fits a model warns about it.
    return rate / max(rate.max(initial=0.0), 1.0)


def _counted(frame, schema, columns, click):
    """The distinct pairs of the shown rows, with counts and the number of faulty rows."""
    one = nw.lit(1.0)
    weight = nw.col("impressions").cast(nw.Float64) if "impressions" in schema else one
    values, fine = {"_weight": weight}, (weight >= 0) & (weight < float("inf"))
    if not isinstance(click, str | None):
        values["_click"] = nw.col("_rate") * weight
    elif click in schema:
        values["_click"] = clicks = nw.col(click).cast(nw.Float64)
        fine = fine & (clicks >= 0) & (clicks <= weight)
    # NaN fails one of two comparisons in every engine; a null compares as null.
    values["_bad"] = (~fine.fill_null(False)).cast(nw.Int64)
    keys = {"doc": _without_nan("doc", schema) if "doc" in schema else nw.col("doc")}
    keys |= {f"_bias{i}": _without_nan(name, schema) for i, name in enumerate(columns)}
    shown = _shown(schema)
    if shown is not None:
        frame = frame.filter(shown)
    if isinstance(frame, nw.DataFrame) and frame.implementation.is_polars():
        frame = frame.lazy()
    query = _query(frame, schema)
    columns = keys | values | ({} if query is None else {"qid": query})
    frame = frame.select(*(value.alias(name) for name, value in columns.items()))
    sums = [nw.col(name).sum() for name in values]
    if query is not None:
        sums += [query.min().alias("_first_qid"), query.max().alias("_last_qid")]
    return frame.group_by(*keys).agg(*sums)


def _query(frame, schema):
    """The column of query ids, where its least and greatest value can be asked for."""
    if "doc" not in schema or "qid" not in schema:
        return None
    kind = frame.implementation
    orders_text = kind.is_pandas() or kind.is_polars() or kind.is_duckdb()
    text = isinstance(schema["qid"], nw.String) and orders_text
    return nw.col("qid") if text or schema["qid"].is_integer() else None


def _shown(schema):
    """The rows that were shown; rows whose impressions are missing stay, to be refused."""
    shown = []
    if "position" in schema:
        shown.append(~_without_nan("position", schema).is_null())
    if "impressions" in schema:
        shown.append(~(nw.col("impressions").cast(nw.Float64) == 0).fill_null(False))
    return nw.all_horizontal(*shown, ignore_nulls=False) if shown else None


def _without_nan(name, schema):
    return nw.col(name).fill_nan(None) if schema[name].is_float() else nw.col(name)


def _collect(frame):
    if not isinstance(frame, nw.LazyFrame):
        return frame
    if frame.implementation.is_polars():
        return frame.collect(engine="streaming")
    return frame.collect()


# What was collected -------------------------------------------------------------------
def _check_table(table, columns, click):
    if not len(table):
        raise ValueError(
            "No row of X was shown: it is empty, or every position is missing or every "
            "impression count is 0. Expected at least one shown row."
        )
    keys = {"doc": "doc"} | {f"_bias{i}": name for i, name in enumerate(columns)}
    for key, name in keys.items():
        missing = int(table[key].is_null().sum())
        if missing:
            what = "an id" if name == "doc" else "the value of the bias factor"
            raise ValueError(
                f"The column {name!r} is missing in shown rows ({missing} of {len(table)} "
                f"distinct pairs); expected {what} in every row that was shown. Fill it (with a "
                "value of its own, such as 'unknown'), or drop these rows."
            )
    n_bad = int(table["_bad"].sum())
    if n_bad:
        where = repr(click) if isinstance(click, str) else "click"
        raise ValueError(
            f"{n_bad} shown rows of X have impressions that are missing, negative or infinite, "
            f"or clicks ({where}) that are missing or outside of 0 to the impressions of the row. "
            "Expected the number of clicks and, in the column 'impressions', how many "
            "impressions a row stands for."
        )


def _as_pairs(table, columns, doc_rows):
    bias = {name: _plain(table[f"_bias{i}"].to_numpy()) for i, name in enumerate(columns)}
    _check_positions(bias)
    weight = table["_weight"].to_numpy().astype(float)
    clicks = table["_click"].to_numpy().astype(float) if "_click" in table.columns else None
    pairs = make_pairs(_plain(table["doc"].to_numpy()), bias, weight, clicks)
    if doc_rows is not None:
        return replace(pairs, doc_ids=None, doc_rows=doc_rows[pairs.doc_ids])
    return replace(pairs, n_recurring=_n_recurring(table))


def _n_recurring(table):
    """Number of documents that several queries have shown."""
    if "_first_qid" not in table.columns:
        return 0
    first, last = table["_first_qid"].to_numpy(), table["_last_qid"].to_numpy()
    doc, query = pd.factorize(table["doc"].to_numpy())[0], pd.factorize(first)[0]
    several = np.zeros(doc.max() + 1, dtype=bool)
    several[doc[first != last]] = True
    some = np.empty(len(several), dtype=np.intp)
    some[doc] = query
    several[doc[some[doc] != query]] = True
    return int(several.sum())


def _plain(values):
    """Whole floats as integers: how engines hold integers where other rows miss theirs."""
    values = np.asarray(values)
    if values.dtype.kind == "f" and np.all(
        (np.abs(values) < 2**53) & (np.floor(values) == values)
    ):
        return values.astype(np.int64)
    return values


def _check_positions(bias):
    position = bias.get("position")
    if position is None:
        return
    position = position.astype(float)
    bad = np.flatnonzero(
        ~((position >= 1) & (np.floor(position) == position) & (position < 2**53))
    )
    if len(bad):
        raise ValueError(
            f"position must be a whole number from 1, or missing where a row was not shown; got "
            f"{position[bad[0]]:g}. If your log counts from 0, add 1."
        )


def _warn_about_rates(weight, clicks):
    # A count that was a rate times impressions is whole but for rounding.
    whole = np.abs(clicks - np.rint(clicks)) <= 1e-6 * np.maximum(clicks, 1.0)
    if weight.max() > 1 and not (weight % 1).any() and not whole.all():
        warn_user(
            "impressions are whole numbers and the clicks are not: they look like click rates. "
            "Expected the number of clicks; multiply the rates by the impressions.",
            ClickDataWarning,
        )


# Codes --------------------------------------------------------------------------------
def _encode(ids):
    """As :func:`encode`; integers in a narrow range by a table instead of a hash."""
    if ids.dtype.kind not in "iu" or not len(ids):
        return encode(ids)
    low, high = int(ids.min()), int(ids.max())
    if high - low > 4 * len(ids) + 1024:
        return encode(ids)
    offset = (ids - low).astype(np.intp)
    used = np.zeros(high - low + 1, dtype=bool)
    used[offset] = True
    code = np.cumsum(used, dtype=np.intp) - 1
    return code[offset], (np.flatnonzero(used) + low).astype(ids.dtype)


def _encode_factors(bias):
    """Code of each row's values, in their sorted order, and the values of each code."""
    code, parts = None, []
    for values in bias.values():
        own, ids = _encode(values)
        parts.append(ids)
        # Compressed after each column, so that the number of combinations cannot overflow.
        code = own if code is None else _encode(code * len(ids) + own)[0]
    first = np.empty(int(code.max(initial=-1)) + 1, dtype=np.intp)
    first[code] = np.arange(len(code))
    columns = {}
    for (name, values), ids in zip(bias.items(), parts, strict=True):
        columns[name] = pd.Series(values[first], dtype=ids.dtype).infer_objects()
    return code, pd.DataFrame(columns)


def _pairs_of_click_log(log, bias):
    if bias is not None:
        raise ValueError(
            f"bias is {bias!r} and X is a log whose factors are already coded; leave bias out."
        )
    rows = log.shown
    bias = {"bias": log.bias_values[log.bias[rows]]}
    pairs = make_pairs(log.doc[rows], bias, log.weight[rows], log.clicks[rows])
    return Pairs(pairs.doc, pairs.factor, pairs.impressions, pairs.clicks, None, pairs.factors)
