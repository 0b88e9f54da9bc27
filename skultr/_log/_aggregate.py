"""Reduce a log of impressions to its distinct cells, in the engine that holds the log.

The engine (Polars, DuckDB, Dask, Spark, ...) runs every pass over the impressions; what is
collected has the size of the *distinct* lists. Behind the collection all is codes and arrays.
"""

from dataclasses import dataclass

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from ..exceptions import ClickDataWarning, warn_user
from ._roles import ROLES
from ._segments import encode, rank_in_segment

__all__ = ["aggregate_clicks"]


#: Stands for a missing position (or bias) in a group key.
_MISSING = -(2**31)


#: Rows that an eager engine spreads by position at a time, and queries named in one filter.
_CHUNK = 2_000_000


_MAX_NAMED = 100_000


def aggregate_clicks(impressions, documents=None, *, click="click"):
    """Reduce a log of impressions to distinct lists with click rates and impression counts.

    The result trains exactly like the raw log, at a cost that grows with the number of distinct
    lists. The passes over the log run in the engine that holds it.

    Parameters
    ----------
    impressions : frame
        A row for each document of each served list: a pandas, Polars (eager or lazy), PyArrow,
        DuckDB, Dask or PySpark frame with the clicks and the columns ``qid``, ``doc`` (integers
        or strings) and ``position`` (from 1; missing where the row is a candidate that was not
        shown). Optional are ``session`` (the served list; without it each query of each user is
        one list), ``user`` (one a session), ``bias``, and ``impressions`` (how many impressions
        the row stands for). Columns without a role are ignored.
    documents : eager frame, default=None
        Features, and perhaps ``relevance``, of each ``doc``, joined to the result. With a column
        ``qid`` the join is on both. May hold documents that are not in the log.
    click : str, default="click"
        Name of the column of clicks: between 0 and 1 in each row or, where the rows stand for
        several ``impressions``, the *number* of clicks, between 0 and ``impressions``.

    Returns
    -------
    X : eager frame
        One row a distinct cell: the role columns of the log, ``session`` (the number of the list)
        and ``impressions``, then ``relevance`` and features; sorted by query, list and position.
        Of the same kind as an eager input; Polars for a lazy Polars frame, else what the engine
        collects to (pandas for Dask, PyArrow for DuckDB and Spark).
    click_rate : ndarray of shape (n_rows,)
        Clicks over impressions, the ``y`` of ``fit(X, click_rate)``.

    Raises
    ------
    ValueError
        Columns or ids are missing, clicks or positions are out of range, a list has two rows at
        one position, a session has several users, or ``documents`` lacks a document of the log
        or has it twice.

    Notes
    -----
    *Lists.* Sessions in which a query showed the same documents (under the same ``bias``, to the
    same ``user``) at the same positions are one list. Whatever is linear in the clicks given the
    list is unchanged. Which clicks fell into the same session is lost: click models of that
    (cascade, DBN, UBM) need the raw log.

    *Never-shown rows* (no position) are kept once a query (and user), in its first list, with
    their number of rows as ``impressions`` and click rate 0.

    A query whose sessions all showed one list costs a group-by. The others are spread to one
    column a position, in parts if the frame is in memory; a lazy frame leaves that to its engine.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr import aggregate_clicks
    >>> log = pd.DataFrame({
    ...     "qid": ["q"] * 6,
    ...     "session": [1, 1, 2, 2, 3, 3],
    ...     "doc": ["a", "b", "a", "b", "b", "a"],
    ...     "position": [1, 2, 1, 2, 1, 2],
    ...     "click": [1, 0, 0, 0, 1, 0],
    ... })
    >>> X, click_rate = aggregate_clicks(log)
    >>> X
      qid  session doc  position  impressions
    0   q        0   a         1            2
    1   q        0   b         2            2
    2   q        1   b         1            1
    3   q        1   a         2            1
    >>> click_rate
    array([0.5, 0. , 1. , 0. ])
    """
    log = _read(impressions, click)
    cells = _read_cells(log)
    several = _queries_with_several_lists(log, cells)
    row, number, weight, clicks = _lists(log, cells, several)

    list_ = np.unique(cells.group[row] * (number.max() + 1) + number, return_inverse=True)[1]
    last = np.where(cells.shown, cells.position, np.inf)[row]
    order = np.lexsort((cells.doc[row], last, list_))
    row, list_, weight, clicks = row[order], list_[order], weight[order], clicks[order]
    X = _result(cells.frame[row], list_, weight)
    if documents is not None:
        X = _with_features(X, documents, cells, row)
    rate = np.divide(clicks, weight, out=np.zeros(len(row)), where=cells.shown[row])
    return X.to_native(), rate


# The log, with keys that every engine groups alike ------------------------------------
@dataclass(frozen=True, eq=False)
class _Log:
    """The impressions: ids, keys without nulls, ``_click``, ``_weight`` and counts of faults."""

    frame: nw.DataFrame | nw.LazyFrame
    schema: nw.Schema
    group: list
    click: str

    def has(self, role):
        return role in self.schema

    @property
    def shown(self):
        return self.frame.filter(nw.col("position") != _MISSING)


def _read(impressions, click):
    frame = nw.from_native(impressions)
    schema = frame.collect_schema()
    _check_columns(schema, click)
    if frame.implementation.is_polars():
        frame = frame.lazy()
    ids = [name for name in ("qid", "user", "session", "doc") if name in schema]
    keys = [_key(name, schema[name]) for name in ("position", "bias") if name in schema]
    values = [nw.col(click).cast(nw.Float64).alias("_click")]
    if "impressions" in schema:
        values.append(nw.col("impressions").cast(nw.Float64).alias("_weight"))
    frame = frame.select(*ids, *keys, *values).with_columns(*_faults(schema))
    if "impressions" in schema:
        # As in a click log that is not aggregated: without an impression nothing was shown.
        frame = frame.with_columns(_where(nw.col("_weight") > 0, "position", _MISSING))
    if "bias" in schema:
        frame = frame.with_columns(_where(nw.col("position") != _MISSING, "bias", _MISSING))
    return _Log(frame, schema, [name for name in ids if name in ("qid", "user")], click)


def _check_columns(schema, click):
    lacking = [name for name in ("qid", "doc", "position", click) if name not in schema]
    if lacking:
        raise ValueError(
            f"impressions lacks the columns {lacking}; found {list(schema)}. Rename your columns "
            "to 'qid', 'doc' and 'position', and name the column of clicks with click=."
        )
    extra = [name for name in ("propensity", "relevance") if name in schema]
    if extra:
        raise ValueError(
            f"impressions has the columns {extra}, which cannot be added up over impressions. "
            "Pass 'relevance' with documents=; join known propensities to the result."
        )
    for name in ("position", "bias", click, "impressions"):
        if isinstance(schema.get(name), nw.String):
            raise ValueError(f"The column {name!r} holds strings; expected numbers. Convert it.")


def _key(name, dtype):
    if dtype.is_integer():
        return nw.col(name).cast(nw.Int64).fill_null(_MISSING)
    return nw.col(name).cast(nw.Float64).fill_nan(None).fill_null(_MISSING)


def _where(condition, name, otherwise, dtype=None):
    """The column where the condition holds, else a value.

    Never a null: pandas would turn integers into floats, and some engines drop null group keys.
    """
    value = nw.col(name) if dtype is None else nw.col(name).cast(dtype)
    return nw.when(condition).then(value).otherwise(nw.lit(otherwise, dtype)).alias(name)


def _faults(schema):
    """Columns that are 1 where a row has a click, weight or session that cannot be."""
    fine, largest = {}, nw.lit(1.0)
    if "impressions" in schema:
        largest = nw.col("_weight")
        fine["_bad_weight"] = (largest >= 0) & (largest < float("inf"))
    fine["_bad_click"] = (nw.col("_click") >= 0) & (nw.col("_click") <= largest)
    if "session" in schema:
        session, may_be_nan = nw.col("session"), schema["session"].is_float()
        fine["_bad_session"] = ~(session.fill_nan(None) if may_be_nan else session).is_null()
    # NaN fails one of two comparisons in every engine; a null compares as null.
    return [(~good.fill_null(False)).cast(nw.Int64).alias(name) for name, good in fine.items()]


def _collect(frame):
    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


# Distinct cells -----------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Cells:
    """Distinct (query, user, doc, position, bias), as collected, and their codes."""

    frame: nw.DataFrame
    ids: dict
    group: np.ndarray
    qid: np.ndarray
    doc: np.ndarray
    position: np.ndarray
    bias: np.ndarray
    weight: np.ndarray
    clicks: np.ndarray
    n_rows: np.ndarray

    @property
    def shown(self):
        return self.position != _MISSING

    def group_code(self, codes):
        """One code a (query, user), in the order of the queries."""
        return codes["qid"] * len(self.ids["user"]) + codes["user"]


def _read_cells(log):
    columns = log.frame.collect_schema().names()
    keys = [name for name in columns if name in (*log.group, "doc", "position", "bias")]
    sums = [nw.col(name).sum() for name in columns if name.startswith("_")]
    aggregates = [nw.len().alias("_n"), *sums]
    if log.has("session"):
        aggregates.append(nw.col("session").n_unique().alias("_n_sessions"))
    frame = _collect(log.frame.group_by(*keys).agg(*aggregates))
    _check_cells(log, frame)

    ids, codes = {"user": np.zeros(1)}, {"user": np.zeros(len(frame), dtype=np.intp)}
    for name in (*log.group, "doc"):
        codes[name], ids[name] = encode(frame[name].to_numpy())
    n_rows = _numbers(frame["_n"])
    cells = _Cells(
        frame=frame,
        ids=ids,
        group=codes["qid"] * len(ids["user"]) + codes["user"],
        qid=codes["qid"],
        doc=codes["doc"],
        position=frame["position"].to_numpy().astype(np.int64),
        bias=_numbers(frame["bias"]) if log.has("bias") else np.zeros(len(frame)),
        weight=_numbers(frame["_weight"]) if log.has("impressions") else n_rows,
        clicks=_numbers(frame["_click"]),
        n_rows=n_rows,
    )
    _warn_about_clicks(log, cells)
    return cells


def _numbers(series):
    return series.to_numpy().astype(float)


def _check_cells(log, frame):
    if not len(frame):
        raise ValueError("impressions has no rows; expected at least one.")
    position, n_rows = _numbers(frame["position"]), frame["_n"].to_numpy()
    shown, limit = position != _MISSING, "'impressions'" if log.has("impressions") else "1"
    bad = {f"_bad_{k}": n_rows * pd.isna(frame[k].to_numpy()) for k in (*log.group, "doc")}
    bad["_bad_position"] = n_rows * (shown & ((position < 1) | (position % 1 != 0)))
    if log.has("bias"):
        bias = _numbers(frame["bias"])
        bad["_bad_bias"] = n_rows * (shown & ((bias == _MISSING) | (bias % 1 != 0)))
    bad |= {name: frame[name].to_numpy() for name in frame.columns if name.startswith("_bad")}
    messages = {
        "_bad_position": "'position' is no whole number from 1; expected a rank, or a missing "
        "value where a row was not shown. If your log counts from 0, add 1",
        "_bad_bias": "'bias' is missing or no whole number; expected the code of a bias factor",
        "_bad_weight": "'impressions' is missing, negative or infinite; expected counts",
        "_bad_click": f"{log.click!r} is missing or outside of 0 to {limit}; expected the clicks. "
        "Rows of several impressions need their number in a column 'impressions'",
    }
    for name, counts in bad.items():
        if counts.any():
            cell = int(np.argmax(counts > 0))
            found = ", ".join(f"{k} {frame[k].to_list()[cell]!r}" for k in (*log.group, "doc"))
            missing = f"{name.removeprefix('_bad_')!r} is missing; expected an id in every row"
            raise ValueError(
                f"In {int(counts.sum())} rows of impressions (such as {found}) "
                f"{messages.get(name, missing)}."
            )


def _warn_about_clicks(log, cells):
    lost = cells.clicks[~cells.shown].sum()
    counts = cells.weight.max() > 1 and not (cells.weight % 1).any()
    message = (
        f"{lost:g} clicks are on rows without a position (or impression): never-shown rows have "
        "click rate 0. Check the column 'position'."
    )
    if log.has("impressions") and counts and (cells.clicks % 1).any():
        message = (
            f"impressions are whole numbers and {log.click!r} is not: it looks like a click "
            "rate. Expected the number of clicks; multiply the rate by the impressions."
        )
    elif not lost:
        return
    warn_user(message, ClickDataWarning)


# Which cells are one list -------------------------------------------------------------
def _queries_with_several_lists(log, cells):
    """Bool by query code: whether its sessions must be looked at one by one."""
    rows = np.flatnonzero(cells.shown)
    several = np.zeros(len(cells.ids["qid"]), dtype=bool)
    place = pd.DataFrame({"group": cells.group[rows], "position": cells.position[rows]})
    clash = place.duplicated().to_numpy()
    if not log.has("session"):
        if clash.any():
            _refuse_clash(cells, rows[clash][0], "Name each result page in a column 'session'")
        return several
    n_sessions = _count_sessions(log, cells)[cells.group[rows]].to_numpy()
    n_distinct = cells.frame["_n_sessions"].to_numpy()[rows]
    # One list exactly if every cell was in every session once, one cell a position.
    odd = clash | (cells.n_rows[rows] != n_sessions) | (n_distinct != n_sessions)
    several[cells.qid[rows[odd]]] = True
    return several


def _count_sessions(log, cells):
    """Number of sessions with a shown row, a Series by group code."""
    n_sessions = nw.col("session").n_unique().alias("_n_sessions")
    counts = _collect(log.shown.group_by(*log.group).agg(n_sessions))
    codes, number = _codes(counts, cells.ids), counts["_n_sessions"].to_numpy()
    if log.has("user"):
        queries = _collect(log.shown.group_by("qid").agg(n_sessions))
        query = _codes(queries, cells.ids)["qid"]
        surplus = np.bincount(codes["qid"], number)[query] - queries["_n_sessions"].to_numpy()
        if surplus.any():
            raise ValueError(
                "Some sessions have rows of several users (such as in query "
                f"{cells.ids['qid'][query[np.argmax(surplus)]]!r}); expected one user a session. "
                "Add the user to the session id."
            )
    return pd.Series(number, index=cells.group_code(codes))


def _codes(frame, ids):
    """Codes of the columns of a collected frame, by the ids of the cells; -1 for no id."""
    codes = {"user": np.zeros(len(frame), dtype=np.intp)}
    for name, values in ids.items():
        if name in frame.columns:
            codes[name] = pd.Index(values).get_indexer(frame[name].to_numpy())
    return codes


def _refuse_clash(cells, cell, remedy):
    raise ValueError(
        f"Two rows of one list stand at position {cells.position[cell]} (query "
        f"{cells.ids['qid'][cells.qid[cell]]!r}); expected one row a position. {remedy}."
    )


def _lists(log, cells, several):
    """Cell, number of the list in its group, weight and clicks of each row of the result."""
    rows = np.flatnonzero(~(cells.shown & several[cells.qid]))
    parts = [(rows, np.zeros(len(rows), dtype=np.int64), cells.weight[rows], cells.clicks[rows])]
    queries = np.flatnonzero(several)
    if len(queries):
        for part in _parts(log, cells, queries):
            parts.append(_spread_lists(log, cells, *part))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _parts(log, cells, queries):
    """Queries with several lists and a frame that has them, a bounded part at a time if eager."""

    def named(part):
        return log.shown.filter(nw.col("qid").is_in(cells.ids["qid"][part].tolist()))

    sizes = np.bincount(cells.qid[cells.shown], cells.n_rows[cells.shown], cells.qid.max() + 1)
    if isinstance(log.frame, nw.DataFrame):
        number = np.cumsum(sizes[queries]) // _CHUNK
        for part in np.split(queries, np.flatnonzero(np.diff(number)) + 1):
            yield named(part), part
    elif len(queries) > _MAX_NAMED or sizes[queries].sum() > 0.5 * sizes.sum():
        yield log.shown, queries  # A filter would cost more than it spares.
    else:
        yield named(queries), queries


def _spread_lists(log, cells, frame, queries):
    """As :func:`_lists`, for the queries whose sessions showed several lists."""
    known = np.flatnonzero(cells.shown & np.isin(cells.qid, queries))
    positions = np.unique(cells.position[known])
    lists = _collect(_spread(log, frame, positions, cells.ids["doc"]))
    lists = lists[np.flatnonzero(np.isin(_codes(lists, cells.ids)["qid"], queries))]

    def matrix(stem, read=_numbers):
        return np.column_stack([read(lists[f"{stem}{p}"]) for p in positions])

    ids = pd.Index(cells.ids["doc"])
    doc = matrix("doc", lambda series: ids.get_indexer(series.to_numpy()))
    bias = matrix("bias") if log.has("bias") else np.zeros(doc.shape)
    n_rows = matrix("_n")
    weight = matrix("_weight") if log.has("impressions") else n_rows
    group = cells.group_code(_codes(lists, cells.ids))

    at = list_, column = np.nonzero(doc >= 0)
    place = {"group": group[list_], "doc": doc[at], "position": positions[column]}
    place = pd.DataFrame({**place, "bias": bias[at]})
    table = pd.DataFrame({name: getattr(cells, name)[known] for name in place})
    row = place.merge(table.assign(row=known), how="left")["row"].to_numpy()
    crowded = n_rows[at] != _numbers(lists["_n_sessions"])[list_]
    if crowded.any():
        _refuse_clash(cells, row[crowded][0], "Each (qid, session) must be one result page")
    return row, _number_lists(group, doc, bias)[list_], weight[at], matrix("_click")[at]


def _spread(log, frame, positions, docs):
    """The lists of a frame: one row each, with columns a position, in the frame's engine."""
    nothing, reduction = _no_doc(docs)
    dtype = log.schema["doc"]
    if isinstance(dtype, nw.Categorical | nw.Enum):
        dtype = nw.String()
    elif dtype.is_integer() and not isinstance(dtype, nw.UInt64):
        dtype = nw.Int64()
    summed = ["_click", "_weight"] if log.has("impressions") else ["_click"]
    columns, doc_keys, bias_keys, sums = [], [], [], []
    for p in positions.tolist():
        here = nw.col("position") == p
        columns.append(_where(here, "doc", nothing, dtype).alias(f"doc{p}"))
        columns.append(here.cast(nw.Int64).alias(f"_n{p}"))
        columns += [_where(here, name, 0.0).alias(f"{name}{p}") for name in summed]
        doc_keys.append(getattr(nw.col(f"doc{p}"), reduction)())
        sums += [nw.col(f"{name}{p}").sum() for name in ("_n", *summed)]
        if log.has("bias"):
            columns.append(_where(here, "bias", _MISSING).alias(f"bias{p}"))
            bias_keys.append(nw.col(f"bias{p}").max())
    stems = ("doc", "bias") if log.has("bias") else ("doc",)
    session, keys = [*log.group, "session"], [f"{k}{p}" for k in stems for p in positions.tolist()]
    sessions = frame.select(*session, *columns).group_by(*session)
    lists = sessions.agg(*doc_keys, *bias_keys, *sums).group_by(*log.group, *keys)
    return lists.agg(nw.len().alias("_n_sessions"), *sums)


def _no_doc(docs):
    """A value that is no doc, and the reduction that prefers any doc to it."""
    low, high = docs[0], docs[-1]
    if isinstance(low, str):
        return ("", "max") if low else (high + "0", "min")
    if docs.dtype.kind == "f":
        return float(np.nextafter(low, -np.inf)), "max"
    if docs.dtype.kind not in "iu":
        raise ValueError(
            f"'doc' holds values such as {low!r}; expected integers or strings. Convert them."
        )
    bounds = np.iinfo(np.uint64 if docs.dtype == np.uint64 else np.int64)
    return (bounds.min, "max") if low > bounds.min else (int(high) + 1, "min")


def _number_lists(group, doc, bias):
    """Number of each list in its group, by content: no engine decides the order."""
    place = np.empty(len(group), dtype=np.int64)
    place[np.lexsort((*bias.T[::-1], *doc.T[::-1], group))] = np.arange(len(group))
    return rank_in_segment(group, -place) - 1


# The result ---------------------------------------------------------------------------
def _result(frame, list_, weight):
    """The role columns, with the ids as the engine returned them."""
    counts = weight.astype(np.int64) if not (weight % 1).any() else weight
    columns = {name: frame[name] for name in frame.columns if name in ROLES}
    for name, values in (("session", list_), ("impressions", counts)):
        columns[name] = nw.new_series(name, values, backend=frame.implementation)
    # The row labels of pandas would align the rows.
    X = nw.from_dict({k: nw.maybe_reset_index(columns[k]) for k in ROLES if k in columns})
    keys = [nw.col(name).cast(nw.Int64) for name in ("position", "bias") if name in columns]
    if (X["position"] == _MISSING).any():
        keys = [nw.when(nw.col("position") != _MISSING).then(key) for key in keys]
    return X.with_columns(*keys)


def _with_features(X, documents, cells, row):
    """The result with the relevance and features of each row, in its kind of frame."""
    documents = nw.from_native(documents, eager_only=True)
    columns = documents.columns
    keys = [name for name in ("qid", "doc") if name in columns]
    wrong = [name for name in columns if name in ROLES and name not in (*keys, "relevance")]
    if "doc" not in keys or wrong:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'relevance' and features; "
            f"found {columns} (of the log: {wrong})."
        )
    twice = documents.select(keys).is_duplicated()
    if twice.any():
        example = ", ".join(map(repr, documents.select(keys).filter(twice).row(0)))
        raise ValueError(
            f"documents has {int(twice.sum())} rows that share their {' and '.join(keys)} with "
            f"another (such as {example}); expected one row each."
        )
    codes = _codes(documents.select(keys), cells.ids)
    table = pd.DataFrame({name: codes[name] for name in keys}).assign(row=np.arange(len(twice)))
    wanted = pd.DataFrame({name: getattr(cells, name)[row] for name in keys})
    place = wanted.merge(table, how="left")["row"].to_numpy()
    if np.isnan(place).any():
        lost = np.unique(cells.doc[row[np.isnan(place)]])
        raise ValueError(
            f"documents lacks {len(lost)} of {len(cells.ids['doc'])} docs of the log (such as "
            f"{cells.ids['doc'][lost[0]]!r}); expected a row for each. Types of 'doc': "
            f"{X.schema['doc']} in the log, {documents.schema['doc']} in documents."
        )
    names = [name for name in ("relevance",) if name in columns]
    names += [name for name in columns if name not in ROLES]
    values = nw.maybe_reset_index(documents.select(names)[place.astype(np.intp)])
    if values.implementation is not X.implementation:
        arrays = {name: values[name].to_numpy() for name in names}
        values = nw.from_dict(arrays, backend=X.implementation)
    return nw.concat([X, values], how="horizontal") if names else X
