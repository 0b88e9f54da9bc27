"""Reduce a log of impressions to its distinct cells, in the engine that holds the log.

The engine (Polars, DuckDB, Dask, Spark, ...) runs every pass over the impressions; what is
collected has the size of the *distinct* lists. Behind the collection all is codes and arrays.
"""

import warnings
from dataclasses import dataclass

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from ._clicklog import ROLES
from ._segments import encode
from .exceptions import ClickDataWarning

__all__ = ["aggregate_clicks"]

#: Stands for a missing position (or bias) in a group key: some engines drop null keys.
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
        One row for each document of each served list: a pandas, Polars (eager or lazy), PyArrow,
        DuckDB, Dask or PySpark frame with the columns

        - ``qid``, ``doc``: ids (integers or strings);
        - ``position``: rank from 1; missing where the row is a candidate that was not shown;
        - ``session`` (optional): the served list. Without it every query (of every ``user``) is
          taken as one list, always the same;
        - ``bias``, ``user`` (optional). A session belongs to one user;
        - ``impressions`` (optional): how many impressions the row stands for;
        - the clicks.

        Columns without a role are ignored: features belong to ``documents``.
    documents : eager frame, default=None
        Features, and perhaps ``relevance``, of each ``doc``, joined to the result. With a column
        ``qid`` the join is on both. May hold documents that are not in the log.
    click : str, default="click"
        Name of the column of clicks: between 0 and 1 in each row or, where the rows stand for
        several ``impressions``, the *number* of clicks, between 0 and ``impressions``.

    Returns
    -------
    X : eager frame
        One row a distinct cell, with the columns ``qid``, ``session``, ``doc``, ``position``,
        ``bias`` and ``user`` where the log has them, ``impressions``, ``relevance`` and features
        where ``documents`` has them; sorted by query, list and position. Of the same kind as an
        eager input; Polars for a lazy Polars frame, else what the engine collects to (pandas
        for Dask, PyArrow for DuckDB and Spark).
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
    same ``user``) at the same positions are one list; column ``session`` of the result numbers
    the lists. Whatever is linear in the clicks given the list is unchanged; which clicks fell
    into the same session is lost, and click models of that (cascade, DBN, UBM) need the raw log.

    *Never-shown rows* (no position) are kept once a query (and user), with their number of rows
    as ``impressions`` and click rate 0, in the first list of the query.

    A query whose sessions all showed one list costs a group-by. The others are spread to one
    column a position first, which takes memory in pandas and PyArrow; use Polars, DuckDB, Dask
    or Spark where their logs are long.

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

    key, group = cells.position[row], cells.group[row]
    list_ = np.unique(group * (number.max(initial=0) + 1) + number, return_inverse=True)[1]
    order = np.lexsort((cells.doc[row], np.where(key == _MISSING, np.inf, key), list_))
    row, list_, weight, clicks = row[order], list_[order], weight[order], clicks[order]
    X = _result(log, cells.frame[row], list_, weight)
    if documents is not None:
        X = nw.concat([X, _features(documents, cells, row, X)], how="horizontal")
    rate = np.divide(clicks, weight, out=np.zeros(len(row)), where=weight > 0)
    return X.to_native(), np.where(cells.position[row] == _MISSING, 0.0, rate)


# --------------------------------------------------------------------------------------
# The log, with keys that every engine groups alike
# --------------------------------------------------------------------------------------
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
    keys = [name for name in ("position", "bias") if name in schema]
    values = [nw.col(click).cast(nw.Float64).alias("_click")]
    if "impressions" in schema:
        values.append(nw.col("impressions").cast(nw.Float64).alias("_weight"))
    frame = frame.select(*ids, *(_key(name, schema[name]) for name in keys), *values)
    frame = frame.with_columns(*_faults(schema))
    if "impressions" in schema:
        # As in a click log that is not aggregated: without an impression nothing was shown.
        frame = frame.with_columns(_where(nw.col("_weight") > 0, "position", _MISSING))
    if "bias" in schema:
        frame = frame.with_columns(_where(nw.col("position") != _MISSING, "bias", _MISSING))
    group = [name for name in ("qid", "user") if name in schema]
    return _Log(frame, schema, group, click)


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
        if name in schema and isinstance(schema[name], nw.String):
            raise ValueError(f"The column {name!r} holds strings; expected numbers. Convert it.")


def _key(name, dtype):
    if dtype.is_integer():
        return nw.col(name).cast(nw.Int64).fill_null(_MISSING)
    return nw.col(name).cast(nw.Float64).fill_nan(None).fill_null(_MISSING)


def _where(condition, name, otherwise):
    return nw.when(condition).then(nw.col(name)).otherwise(nw.lit(otherwise)).alias(name)


def _faults(schema):
    """Columns that are 1 where a row has a click, weight or session that cannot be."""
    largest = nw.col("_weight") if "impressions" in schema else nw.lit(1.0)
    fine = {"_bad_click": (nw.col("_click") >= 0) & (nw.col("_click") <= largest)}
    if "impressions" in schema:
        fine["_bad_weight"] = (nw.col("_weight") >= 0) & (nw.col("_weight") < float("inf"))
    if "session" in schema:
        fine["_bad_session"] = ~nw.col("session").is_null()
        if schema["session"].is_float():
            fine["_bad_session"] = ~nw.col("session").fill_nan(None).is_null()
    # `<=` is False for NaN (or, with `>=`, never both True); a null compares as null.
    return [(~good.fill_null(False)).cast(nw.Int64).alias(name) for name, good in fine.items()]


def _collect(frame):
    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


# --------------------------------------------------------------------------------------
# Distinct cells
# --------------------------------------------------------------------------------------
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
    keys = [*log.group, "doc", "position", *(["bias"] if log.has("bias") else [])]
    sums = ["_click", *(name for name in log.frame.collect_schema() if name.startswith("_bad"))]
    aggregates = [nw.len().alias("_n")]
    if log.has("impressions"):
        sums.append("_weight")
    if log.has("session"):
        aggregates.append(nw.col("session").n_unique().alias("_n_sessions"))
    aggregates += [nw.col(name).sum() for name in sums]
    frame = _collect(log.frame.group_by(*keys).agg(*aggregates))
    _check_cells(log, frame)

    ids, codes = {"user": np.zeros(1)}, {"user": np.zeros(len(frame), dtype=np.intp)}
    for name in (*log.group, "doc"):
        codes[name], ids[name] = encode(frame[name].to_numpy())
    n_rows = frame["_n"].to_numpy().astype(np.int64)
    cells = _Cells(
        frame=frame,
        ids=ids,
        group=codes["qid"] * len(ids["user"]) + codes["user"],
        qid=codes["qid"],
        doc=codes["doc"],
        position=frame["position"].to_numpy().astype(np.int64),
        bias=_numbers(frame["bias"]) if log.has("bias") else np.zeros(len(frame)),
        weight=_numbers(frame["_weight"]) if log.has("impressions") else n_rows.astype(float),
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
    for name in (*log.group, "doc"):
        values = pd.isna(frame[name].to_numpy())
        if values.any():
            _refuse(log, frame, values, f"{name!r} is missing", "expected an id in every row")
    limit = "'impressions'" if log.has("impressions") else "1"
    wrong = {
        "_bad_session": ("'session' is missing", "expected an id in every row"),
        "_bad_weight": ("'impressions' is missing, negative or infinite", "expected counts"),
        "_bad_click": (
            f"{log.click!r} is missing or outside of 0 to {limit}",
            "expected the clicks; a row that stands for several impressions and clicks needs "
            "its number of impressions in a column 'impressions'",
        ),
    }
    for name, (found, expected) in wrong.items():
        if name in frame.columns and (frame[name] > 0).any():
            _refuse(log, frame, frame[name].to_numpy(), found, expected)
    position = _numbers(frame["position"])
    bad = (position != _MISSING) & ((position < 1) | (position % 1 != 0))
    if bad.any():
        found = f"'position' is {position[bad][0]:g}"
        expected = "expected whole numbers from 1, or missing where a row was not shown"
        _refuse(log, frame, bad, found, f"{expected}. If your log counts from 0, add 1")
    if log.has("bias"):
        bad = (position != _MISSING) & (_numbers(frame["bias"]) == _MISSING)
        if bad.any():
            expected = "expected the code of a bias factor where a row was shown"
            _refuse(log, frame, bad, "'bias' is missing", expected)


def _refuse(log, frame, faults, found, expected):
    """Raise a ValueError; ``faults`` counts the bad rows of a cell, or marks bad cells."""
    counts = frame["_n"].to_numpy() * faults if faults.dtype == bool else faults
    cell = int(np.argmax(counts > 0))
    example = ", ".join(f"{name} {frame[name].to_list()[cell]!r}" for name in (*log.group, "doc"))
    raise ValueError(
        f"In {int(counts.sum())} rows of impressions {found} (such as {example}); {expected}."
    )


def _warn_about_clicks(log, cells):
    lost = cells.clicks[~cells.shown].sum()
    if lost > 0:
        warnings.warn(
            f"{lost:g} clicks are on rows without a position (or impression): never-shown rows "
            "have click rate 0. Check the column 'position'.",
            ClickDataWarning,
            stacklevel=4,
        )
    counts = cells.weight.max() > 1 and not (cells.weight % 1).any()
    if log.has("impressions") and counts and (cells.clicks % 1).any():
        warnings.warn(
            f"impressions are whole numbers and {log.click!r} is not: it looks like a click "
            "rate. Expected the number of clicks; multiply the rate by the impressions.",
            ClickDataWarning,
            stacklevel=4,
        )


# --------------------------------------------------------------------------------------
# Which cells are one list
# --------------------------------------------------------------------------------------
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
    n_sessions = _count_sessions(log, cells)[cells.group[rows]]
    n_distinct = cells.frame["_n_sessions"].to_numpy()[rows]
    # One list exactly if every cell was in every session once, one cell a position.
    odd = clash | (cells.n_rows[rows] != n_sessions) | (n_distinct != n_sessions)
    several[cells.qid[rows[odd]]] = True
    return several


def _count_sessions(log, cells):
    """Number of sessions with a shown row, by group code."""
    n_sessions = nw.col("session").n_unique().alias("_n_sessions")
    counts = _collect(log.shown.group_by(*log.group).agg(n_sessions))
    total = np.zeros(len(cells.ids["qid"]) * len(cells.ids["user"]), dtype=np.int64)
    total[cells.group_code(_codes(counts, cells.ids))] = counts["_n_sessions"].to_numpy()
    if log.has("user"):
        by_query = _collect(log.shown.group_by("qid").agg(n_sessions))
        query = _codes(by_query, cells.ids)["qid"]
        by_user = total.reshape(len(cells.ids["qid"]), -1).sum(axis=1)[query]
        shared = by_user != by_query["_n_sessions"].to_numpy()
        if shared.any():
            raise ValueError(
                f"{int((by_user - by_query['_n_sessions'].to_numpy()).sum())} sessions have rows "
                f"of several users (such as in query {cells.ids['qid'][query[shared][0]]!r}); a "
                "session belongs to one user. Add the user to the session id."
            )
    return total


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
    sizes = np.bincount(cells.qid[cells.shown], cells.n_rows[cells.shown], cells.qid.max() + 1)
    if isinstance(log.frame, nw.DataFrame):
        part = np.cumsum(sizes[queries]) // _CHUNK
        for chunk in np.split(queries, np.flatnonzero(np.diff(part)) + 1):
            yield _named(log, cells, chunk), chunk
    elif len(queries) > _MAX_NAMED or sizes[queries].sum() > 0.5 * sizes.sum():
        yield log.shown, queries  # A filter would cost more than it spares.
    else:
        yield _named(log, cells, queries), queries


def _named(log, cells, queries):
    return log.shown.filter(nw.col("qid").is_in(cells.ids["qid"][queries].tolist()))


def _spread_lists(log, cells, frame, queries):
    """As :func:`_lists`, for the queries whose sessions showed several lists."""
    known = np.flatnonzero(cells.shown & np.isin(cells.qid, queries))
    positions = np.unique(cells.position[known])
    lists = _collect(_spread(log, frame, positions, cells.ids["doc"]))
    codes = _codes(lists, cells.ids)
    kept = np.flatnonzero(np.isin(codes["qid"], queries))
    lists, codes = lists[kept], {name: code[kept] for name, code in codes.items()}

    def matrix(stem):
        return np.column_stack([_numbers(lists[f"{stem}{p}"]) for p in positions])

    doc_index = pd.Index(cells.ids["doc"])
    doc = np.column_stack([doc_index.get_indexer(lists[f"doc{p}"].to_numpy()) for p in positions])
    bias = matrix("bias") if log.has("bias") else np.zeros(doc.shape)
    n_rows, clicks = matrix("_n"), matrix("_click")
    weight = matrix("_weight") if log.has("impressions") else n_rows
    group = cells.group_code(codes)
    listed, column = np.nonzero(doc >= 0)
    place = {
        "group": group[listed],
        "doc": doc[listed, column],
        "position": positions[column],
        "bias": bias[listed, column],
    }
    row = _find_cells(cells, known, place)
    crowded = n_rows[listed, column] != _numbers(lists["_n_sessions"])[listed]
    if crowded.any():
        _refuse_clash(cells, row[crowded][0], "Each (qid, session) must be one result page")
    number = _number_lists(group, doc, bias)[listed]
    return row, number, weight[listed, column], clicks[listed, column]


def _spread(log, frame, positions, docs):
    """The lists of a frame: one row each, with columns a position, in the frame's engine."""
    nothing, reduction = _no_doc(docs)
    doc, dtype = nw.col("doc"), log.schema["doc"]
    if isinstance(dtype, nw.Categorical | nw.Enum):
        doc = doc.cast(nw.String)
    elif dtype.is_integer() and not isinstance(dtype, nw.UInt64):
        doc = doc.cast(nw.Int64)
    columns, listed, added = [], [], []
    for p in positions.tolist():
        here = nw.col("position") == p
        columns.append(nw.when(here).then(doc).otherwise(nw.lit(nothing)).alias(f"doc{p}"))
        columns.append(nw.when(here).then(nw.lit(1)).otherwise(nw.lit(0)).alias(f"_n{p}"))
        listed.append(getattr(nw.col(f"doc{p}"), reduction)())
        added.append(f"_n{p}")
        if log.has("bias"):
            columns.append(_where(here, "bias", _MISSING).alias(f"bias{p}"))
            listed.append(nw.col(f"bias{p}").max())
        for name in ("_click", *(["_weight"] if log.has("impressions") else [])):
            columns.append(_where(here, name, 0.0).alias(f"{name}{p}"))
            added.append(f"{name}{p}")
    stems = ("doc", "bias") if log.has("bias") else ("doc",)
    keys = [*log.group, *(f"{stem}{p}" for stem in stems for p in positions.tolist())]
    sums = [nw.col(name).sum() for name in added]
    sessions = (
        frame.select(*log.group, "session", *columns)
        .group_by(*log.group, "session")
        .agg(*listed, *sums)
    )
    return sessions.group_by(*keys).agg(nw.len().alias("_n_sessions"), *sums)


def _no_doc(docs):
    """A value that is no doc, and the reduction that prefers any doc to it.

    (A null would turn integers of pandas into floats, and be lost as a group key elsewhere.)
    """
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
    return (int(low) - 1, "max") if low > bounds.min else (int(high) + 1, "min")


def _find_cells(cells, known, place):
    """Row in ``cells`` of each place of a list."""
    table = pd.DataFrame({name: getattr(cells, name)[known] for name in place})
    table["row"] = known
    return pd.DataFrame(place).merge(table, how="left")["row"].to_numpy()


def _number_lists(group, doc, bias):
    """Number of each list in its group, by content: no engine decides the order."""
    order = np.lexsort((*bias.T[::-1], *doc.T[::-1], group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    number = np.empty(len(group), dtype=np.int64)
    sizes = np.diff(starts, append=len(group))
    number[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    return number


# --------------------------------------------------------------------------------------
# The result
# --------------------------------------------------------------------------------------
def _result(log, frame, list_, weight):
    """The role columns, with the ids as the engine returned them."""
    backend = frame.implementation

    def column(name, values):
        return nw.new_series(name, values, backend=backend)

    counts = weight.astype(np.int64) if not (weight % 1).any() else weight
    shown = nw.col("position") != _MISSING
    everywhere = bool((frame["position"] != _MISSING).all())
    columns = {"qid": frame["qid"], "session": column("session", list_), "doc": frame["doc"]}
    for name in ("position", "bias", "user"):
        if name in frame.columns:
            columns[name] = frame[name]
    columns["impressions"] = column("impressions", counts)
    frame = _reset(nw.from_dict({name: _reset(value) for name, value in columns.items()}))
    keys = [name for name in ("position", "bias") if name in frame.columns]
    frame = frame.with_columns(nw.col(name).cast(nw.Int64) for name in keys)
    if everywhere:
        return frame
    nullable = [nw.when(shown).then(nw.col(name)).alias(name) for name in keys]
    return frame.with_columns(*nullable)


def _reset(native):
    """Without the row labels of pandas, which would align rows."""
    return nw.maybe_reset_index(native)


def _features(documents, cells, row, X):
    """Relevance and features of each row of the result, in its kind of frame."""
    documents = nw.from_native(documents, eager_only=True)
    keys = [name for name in ("qid", "doc") if name in documents.columns]
    roles = [name for name in ROLES if name in documents.columns]
    wrong = sorted(set(roles) - {"qid", "doc", "relevance"})
    if "doc" not in keys or wrong:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'relevance' and features; "
            f"found {documents.columns} (of the log: {wrong})."
        )
    twice = documents.select(keys).is_duplicated()
    if twice.any():
        example = ", ".join(map(repr, documents.select(keys).filter(twice).row(0)))
        raise ValueError(
            f"documents has {int(twice.sum())} rows that share their {' and '.join(keys)} with "
            f"another (such as {example}); expected one row each."
        )
    place = _document_rows(documents, keys, cells)
    place = place[row]
    missing = place < 0
    if missing.any():
        lost = np.unique(cells.doc[row[missing]])
        raise ValueError(
            f"documents lacks {len(lost)} of {len(cells.ids['doc'])} docs of the log (such as "
            f"{cells.ids['doc'][lost[0]]!r}); expected a row for each. Types of 'doc': "
            f"{X.schema['doc']} in the log, {documents.schema['doc']} in documents."
        )
    names = [name for name in documents.columns if name == "relevance"]
    names += [name for name in documents.columns if name not in ROLES]
    values = _reset(documents.select(names)[place])
    if values.implementation is X.implementation:
        return values
    arrays = {name: values[name].to_numpy() for name in names}
    return nw.from_dict(arrays, backend=X.implementation)


def _document_rows(documents, keys, cells):
    """Row in ``documents`` of each cell, -1 where there is none."""
    codes = _codes(documents.select(keys), cells.ids)
    n_docs = len(cells.ids["doc"])
    in_query = "qid" in keys
    wanted = cells.doc + n_docs * cells.qid * in_query
    found = codes["doc"] + (n_docs * codes["qid"] if in_query else 0)
    useful = codes["doc"] >= 0
    if in_query:
        useful &= codes["qid"] >= 0
    found = np.where(useful, found, -1 - np.arange(len(found)))
    return pd.Index(found).get_indexer(wanted)
