"""Reduce a log of impressions to its distinct lists, in the engine that holds the log.

The engine (Polars, DuckDB, Dask, Spark, ...) runs every pass over the impressions; the table that
is collected has the size of the *distinct* lists, and is processed as codes and arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._typing import AnyFrame, Floats, Frame
from ..exceptions import python_value
from ._engine import (
    check_counts,
    check_numbers,
    check_rows,
    code_ids,
    collect,
    encode_ids,
    fault_columns,
    scope_of,
    with_hashes,
)
from ._faults import (
    IDS,
    ONE_ROW_PER_POSITION,
    ONE_USER_PER_SESSION,
    count_of,
)
from ._hashing import hash_columns
from ._roles import ROLES
from ._segments import encode

#: Replaces a missing position (or bias) in a group key.
_MISSING = -(2**31)
#: Roles that are values of documents, not counts of impressions.
_OF_DOCUMENTS = ("production", "relevance")
#: Hashes of rows, whose sums over a list identify what it shows.
_HASHES = ["_hash0", "_hash1"]


def aggregate_clicks(
    impressions: AnyFrame, documents: Frame | None = None, *, click: str = "click"
) -> tuple[Any, Floats]:
    """Distinct lists of a log of impressions, with click rates and numbers of impressions.

    Training on the result gives exactly the model that the raw log gives, at a cost that grows
    with the number of distinct lists. The passes over the log run in the engine that holds it.

    Parameters
    ----------
    impressions : frame
        One row per document of each served list: a pandas, Polars (eager or lazy), PyArrow,
        DuckDB, Dask or PySpark frame with the clicks and the columns ``qid``, ``doc`` (integers
        or strings) and ``position`` (from 1; missing where the row is a candidate that was not
        shown). Optional columns are ``session`` (the served list; without it each query of each
        user is one list), ``user`` (one per session), ``bias``, ``impressions`` (number of
        impressions of the row) and ``doc_scope``, which is copied to the result. Columns without
        a role are ignored.
    documents : eager frame, default=None
        Features of each ``doc``, and optionally ``production`` and ``relevance``, to join to the
        result. With a column ``qid`` the join is on both. Documents that are not in the log are
        ignored.
    click : str, default="click"
        Name of the column of clicks. Without a column ``impressions`` it holds values between 0
        and 1 (larger ones are graded relevance and divided by their maximum); else the *number*
        of clicks of each row, between 0 and ``impressions``.

    Returns
    -------
    X : eager frame
        One row per document of each distinct list: the role columns of the log, ``session`` (the
        number of the list) and ``impressions``, then ``relevance`` and features; sorted by query,
        list and position. An eager frame is returned as its own kind, a lazy Polars frame as
        Polars, any other as what its engine collects to (pandas for Dask, PyArrow for DuckDB and
        Spark).
    click_rate : ndarray of shape (n_rows,)
        Clicks over impressions, the ``y`` of ``fit(X, click_rate)``.

    Raises
    ------
    ValueError
        A column or id is missing, clicks or positions are out of range, a list has two rows at
        one position, a session has several users, or ``documents`` is missing a logged document
        or contains it twice.

    Notes
    -----
    *Lists.* Sessions in which a query showed the same documents (under the same ``bias``, to the
    same ``user``) at the same positions are one list. Losses that are linear in the clicks given
    the list do not change. The result does not contain which clicks fell into the same session:
    click models of sequences (cascade, DBN, UBM) need the raw log.

    *Never-shown rows* (no position) are kept once per query (and user), in its first list, with
    their number of rows as ``impressions`` and click rate 0.

    *Cost.* The engine sums two hashes of each row by session, and groups by these sums: the cost
    is that of two group-bys and a join, however long a list is. Two different lists of a query
    have the same sums with probability 2^-88; this would raise an error.

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
    lists = _read_lists(log, collect(_by_list(log)))
    row = _in_order(log, lists)
    X = _result(log, lists, row)
    if documents is not None:
        X = _with_features(X, documents, lists, row)
    weight = lists.weight[row]
    rate = np.divide(lists.clicks[row], weight, out=np.zeros(len(row)), where=lists.shown[row])
    return X.to_native(), rate


# The log, with keys that every engine groups alike ------------------------------------
@dataclass(frozen=True, eq=False)
class _Log:
    """The impressions: ids, keys without nulls, ``_click`` and ``_weight``.

    For a frame in memory, ids are codes, and ``ids`` holds the distinct ids that these stand for;
    otherwise ``ids`` is empty.
    """

    frame: nw.DataFrame | nw.LazyFrame
    schema: nw.Schema
    scope: str
    click: str
    ids: dict

    def has(self, role):
        return role in self.schema

    @property
    def shown(self):
        return self.frame.filter(nw.col("position") != _MISSING)

    @property
    def group(self):
        return [name for name in ("qid", "user") if self.has(name)]

    @property
    def place(self):
        return [name for name in ("doc", "position", "bias") if self.has(name)]


def _read(impressions, click):
    frame = nw.from_native(impressions)
    schema = frame.collect_schema()
    _check_columns(schema, click)
    if frame.implementation.is_polars():
        frame = frame.lazy()
    clicks = nw.col(click).cast(nw.Float64).fill_nan(None)
    reads = (*IDS, "position", "bias", "impressions")
    columns = fault_columns(schema, reads, clicks, rates="impressions" not in schema)
    scale = check_rows(frame, columns, schema, {"click": repr(click), "n_clicks": repr(click)})
    ids = [name for name in IDS if name in schema]
    shown = columns["shown"]
    values = {
        # A row without an impression was not shown.
        "position": _key(columns, "position", shown),
        "_click": clicks if scale == 1 else clicks / scale,
    }
    if "bias" in schema:
        values["bias"] = _key(columns, "bias", shown)
    if "impressions" in schema:
        values["_weight"] = columns["impressions"].cast(nw.Float64)
    rows = frame.select(*ids, *(value.alias(name) for name, value in values.items()))
    rows, known = code_ids(rows, ids)
    return _Log(rows, schema, scope_of(frame), repr(click), known)


def _check_columns(schema, click):
    lacking = [name for name in ("qid", "doc", "position", click) if name not in schema]
    if lacking:
        raise ValueError(
            f"impressions lacks the columns {lacking}; found {list(schema)}. Rename your columns "
            "to 'qid', 'doc' and 'position', and name the column of clicks with click=."
        )
    extra = [name for name in ("propensity", "production", "relevance") if name in schema]
    if extra:
        raise ValueError(
            f"impressions has the columns {extra}, which cannot be added up over impressions. "
            "Pass 'production' and 'relevance' with documents=; join known propensities to the "
            "result."
        )
    check_numbers(schema, ["position", "bias", click, "impressions"])


def _key(columns, name, shown):
    """A number to group by; never null, because some engines drop null keys."""
    return nw.when(shown).then(columns[name]).otherwise(nw.lit(_MISSING)).fill_null(_MISSING)


# Counts by list, in the engine --------------------------------------------------------
def _by_list(log):
    """Clicks and impressions by list, document and place."""
    frame, keys = log.frame, [*log.group, *log.place]
    names = frame.collect_schema().names()
    counts = [nw.col(name).sum() for name in ("_click", "_weight") if name in names]
    if log.has("session"):
        frame = _with_lists(log)
        keys += _HASHES
        counts.append(nw.col("_length").max())
    return frame.group_by(*keys).agg(nw.len().alias("_n"), *counts)


def _with_lists(log):
    """The rows, with the length of their list and the sums of two hashes over it.

    The sums depend on what the list shows, not on the order of the rows; they are 0 in rows that
    were never shown.
    """
    shown = nw.col("position") != _MISSING
    # The user enters, so that a session of several users differs from any session of one user.
    frame = with_hashes(log.frame, [*log.group[1:], *log.place])
    frame = frame.with_columns(
        *(nw.when(shown).then(nw.col(name)).otherwise(0) for name in _HASHES),
        shown.cast(nw.Int64).alias("_length"),
    )
    sums = [nw.col(name).sum() for name in (*_HASHES, "_length")]
    if isinstance(frame, nw.DataFrame):
        frame = frame.with_columns(*(each.over("qid", "session") for each in sums))
    else:
        session = ["qid", "session"]
        sums = frame.group_by(*session).agg(*sums)
        # DuckDB's sums have 128 bits.
        names = (*_HASHES, "_length")
        sums = sums.with_columns(*(nw.col(name).cast(nw.Int64) for name in names))
        frame = frame.drop(*_HASHES, "_length").join(sums, on=session, how="left")
    in_list = [nw.when(shown).then(nw.col(name)).otherwise(0) for name in _HASHES]
    return frame.with_columns(*(each.fill_null(0) for each in in_list))


# What was collected -------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Lists:
    """The rows of the result in any order: codes of their ids, their list and their counts.

    ``place`` is the rank of the position among all distinct positions, of which "never shown" is
    the first if it occurs.
    """

    table: nw.DataFrame
    ids: dict
    codes: dict
    shown: np.ndarray
    place: np.ndarray
    weight: np.ndarray
    clicks: np.ndarray
    list_: np.ndarray


def _read_lists(log, table):
    codes, ids = {}, {}
    for name in (*log.group, "doc"):
        known = name in log.ids
        coded = (table[name].to_numpy(), log.ids[name]) if known else encode_ids(table[name])
        codes[name], ids[name] = coded
    position = table["position"].to_numpy().astype(np.int64)
    shown, place = position != _MISSING, encode(position)[0]
    weight, clicks = (
        table[name].to_numpy().astype(float)
        for name in ("_weight" if log.has("impressions") else "_n", "_click")
    )
    check_counts(weight[shown], clicks[shown], log.click if log.has("impressions") else None)
    list_ = _number_lists(table, ids, codes, shown, place)
    return _Lists(table, ids, codes, shown, place, weight, clicks, list_)


def _number_lists(table, ids, codes, shown, place):
    """Number of the list of each row, by query and user; never-shown rows are in the first one."""
    group = codes["qid"]
    if "user" in codes:
        group = encode(group * len(ids["user"]) + codes["user"])[0]
    if _HASHES[0] not in table.columns:
        return group
    listed = np.zeros(int(group.max()) + 1, dtype=bool)
    listed[group[shown]] = True
    rows = np.flatnonzero(shown | ~listed[group])
    high, low = (table[name].to_numpy() for name in _HASHES)
    hashes, known = encode(((high << 20) ^ low)[rows])
    code, lists = encode(group[rows] * len(known) + hashes)
    # Lists are ordered by what they show, first row first, so that no engine determines the order.
    of_group = lists // len(known)
    shows = (place * len(ids["doc"]) + codes["doc"])[rows]
    first = np.full(len(lists), np.iinfo(np.int64).max)
    np.minimum.at(first, code, shows)
    content = np.zeros(len(lists), dtype=np.uint64)
    bias = [table["bias"].to_numpy()[rows]] if "bias" in table.columns else []
    np.add.at(content, code, hash_columns([shows, *bias]))
    order = np.lexsort((content, first, of_group))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    list_ = np.searchsorted(of_group, np.arange(len(listed)))[group]
    list_[rows] = number[code]
    return list_


def _in_order(log, lists):
    """The rows by query, list and position, rows never shown last, by document.

    Raises an error if two rows of a list have the same position.
    """
    n_places, n_docs = int(lists.place.max()) + 1, len(lists.ids["doc"])
    place = np.where(lists.shown, lists.place, n_places + lists.codes["doc"])
    key = lists.list_ * (n_places + n_docs) + place
    row = np.argsort(key)
    twice = np.flatnonzero(key[row[1:]] == key[row[:-1]])
    if len(twice):
        _refuse_place(lists, row[twice[0]])
    if "_length" in lists.table.columns:
        # If a row recurs within a session, the session is longer than its list.
        length = np.bincount(lists.list_, lists.shown)[lists.list_]
        longer = lists.shown & (lists.table["_length"].to_numpy() != length)
        if longer.any():
            _refuse_users(log)
            _refuse_place(lists, np.argmax(longer * lists.table["_n"].to_numpy()))
    return row


def _refuse_users(log):
    """Raise an error if a session has several users."""
    if not log.has("user"):
        return
    users = log.shown.select("qid", "session", "user").unique()
    users = users.group_by("qid", "session").agg(nw.len().alias("n")).filter(nw.col("n") > 1)
    users = collect(users)
    if len(users):
        example = users["qid"][0]
        example = log.ids["qid"][int(example)] if log.ids else example
        where = f"such as in query {python_value(example)!r}"
        ONE_USER_PER_SESSION.report(len(users), None, where)


def _refuse_place(lists, row):
    position = int(lists.table["position"].to_numpy()[row])
    query = lists.ids["qid"][int(lists.codes["qid"][row])]
    ONE_ROW_PER_POSITION.report(2, position, f"query {python_value(query)!r}")


# The result ---------------------------------------------------------------------------
def _result(log, lists, row):
    """The role columns of the result, with the ids of the log."""
    table, weight = lists.table, lists.weight[row]
    backend = table.implementation
    columns = {}
    for name in ROLES:
        if name in log.ids and name in lists.codes:
            columns[name] = log.ids[name][lists.codes[name][row]]
        elif name != "session" and name in table.columns:
            columns[name] = table[name][row]
    computed = {
        "session": lists.list_[row],
        "impressions": weight.astype(np.int64) if not (weight % 1).any() else weight,
    }
    if log.has("doc_scope"):
        computed["doc_scope"] = np.full(len(row), log.scope, dtype=object)
    for name, values in computed.items():
        columns[name] = nw.new_series(name, values, backend=backend)
    # pandas would align the columns by their row labels.
    X = nw.from_dict(
        {name: nw.maybe_reset_index(columns[name]) for name in ROLES if name in columns}
    )
    keys = [nw.col(name).cast(nw.Int64) for name in ("position", "bias") if name in columns]
    if not lists.shown.all():
        keys = [nw.when(nw.col("position") != _MISSING).then(key) for key in keys]
    return X.with_columns(*keys)


def _with_features(X, documents, lists, row):
    """The result with the relevance and features of each row, in its kind of frame."""
    documents = nw.from_native(documents, eager_only=True)
    columns = documents.columns
    keys = [name for name in ("qid", "doc") if name in columns]
    wrong = [name for name in columns if name in ROLES and name not in (*keys, *_OF_DOCUMENTS)]
    if "doc" not in keys or wrong:
        raise ValueError(
            "documents must have the column 'doc', and may have 'qid', 'production', 'relevance' "
            f"and features; "
            f"found {columns} (of the log: {wrong})."
        )
    twice = documents.select(keys).is_duplicated()
    if twice.any():
        example = ", ".join(map(repr, documents.select(keys).filter(twice).row(0)))
        raise ValueError(
            f"documents has {int(twice.sum())} rows that share their {' and '.join(keys)} with "
            f"another (such as {example}); expected one row each."
        )
    codes = {
        name: pd.Index(lists.ids[name].to_numpy()).get_indexer(documents[name].to_numpy())
        for name in keys
    }
    table = pd.DataFrame(codes).assign(row=np.arange(len(twice)))
    wanted = pd.DataFrame({name: lists.codes[name][row] for name in keys})
    place = wanted.merge(table, how="left")["row"].to_numpy()
    if np.isnan(place).any():
        lost = np.unique(lists.codes["doc"][row[np.isnan(place)]])
        example = python_value(lists.ids["doc"].to_numpy()[lost[0]])
        raise ValueError(
            f"documents is missing {len(lost)} of {count_of(len(lists.ids['doc']), 'doc')} of the "
            f"log (such as {example!r}); expected one row for each. Types of 'doc': "
            f"{X.schema['doc']} in the log, {documents.schema['doc']} in documents."
        )
    names = [name for name in _OF_DOCUMENTS if name in columns]
    names += [name for name in columns if name not in ROLES]
    values = nw.maybe_reset_index(documents.select(names)[place.astype(np.intp)])
    if values.implementation is not X.implementation:
        arrays = {name: values[name].to_numpy() for name in names}
        values = nw.from_dict(arrays, backend=X.implementation)
    return nw.concat([X, values], how="horizontal") if names else X
