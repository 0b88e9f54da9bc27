"""Reduce a log of impressions to its distinct lists, in the engine that holds the log.

The engine (Polars, DuckDB, Dask, Spark, ...) runs every pass over the impressions; the table that
is collected has the size of the *distinct* lists, and is processed as codes and arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._base._typing import AnyFrame, Floats, Frame, Ints
from ..exceptions import python_value
from ._counted import (
    CHECKED,
    EngineLog,
    code_ids,
    codes_of,
    count_by,
    one_value,
    totals_of,
    with_versions,
)
from ._engine import check_counts, collect, value_bits, with_hashes
from ._faults import IDS, ONE_ROW_PER_POSITION, ONE_USER_PER_SESSION
from ._feature_table import FeatureTable
from ._hashing import hash_columns
from ._reader import pairs_of_codes
from ._roles import ROLES, feature_names, is_role
from ._segments import encode

#: Replaces a missing position (or bias) in a group key, because some engines drop null keys.
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
        a role are the features of the row, if there are no ``documents``: lists are then equal
        only if their features are, so drop columns that differ in every session, such as times.
        Outcomes (``outcome_...``) are left out, unless ``click`` names one.
    documents : eager frame, default=None
        Features of each ``doc``, and optionally ``production`` and ``relevance``, to join to the
        result. With a column ``qid`` the join is on both. Documents that are not in the log are
        ignored, and so are columns of ``impressions`` without a role: features that change from
        session to session must stand in ``impressions``, all others take less here.
    click : str, default="click"
        Name of the column of clicks. Without a column ``impressions`` it holds values between 0
        and 1 (larger ones are graded relevance and divided by their maximum); else the *number*
        of clicks of each row, between 0 and ``impressions``.

    Returns
    -------
    X : eager frame
        One row per document of each distinct list: the role columns of the log, ``session`` (the
        number of the list) and ``impressions``, then ``relevance`` and the features; sorted by
        query, list and position. An eager frame is returned as its own kind, a lazy Polars frame
        as Polars, any other as what its engine collects to (pandas for Dask, PyArrow for DuckDB
        and Spark).
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
    *Lists.* Sessions in which a query showed the same documents with the same features (under the
    same ``bias``, to the same ``user``) at the same positions are one list. Losses that are
    linear in the clicks given the list do not change. The result does not contain which clicks
    fell into the same session: click models of sequences (cascade, DBN, UBM) need the raw log.

    *Never-shown rows* (no position) are kept once per query (and user), in its first list, with
    their features and number of rows as ``impressions`` and click rate 0.

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
    names = nw.from_native(impressions).collect_schema().names()
    extra = [name for name in ("propensity", *_OF_DOCUMENTS) if name in names]
    if extra:
        raise ValueError(
            f"impressions has the columns {extra}, which cannot be added up over impressions. "
            "Pass 'production' and 'relevance' with documents=; join known propensities to the "
            "result."
        )
    features = feature_names(names, {click}) if documents is None else []
    return _count_lists(impressions, click, features, documents)


def count_lists_of(X: Any, click: str, features: Iterable[str] = ()) -> tuple[Any, Floats]:
    """Distinct lists of a log with features and click rates; ``click`` as ``fit`` reads it."""
    return _count_lists(X, click, list(features), rates=True)


def _count_lists(X, click, features, documents=None, *, rates=False):
    log = EngineLog.of(X, click, CHECKED, needs=["qid", "doc", "position"], rates=rates)
    rows = _Rows.of(log, features)
    lists = rows.lists()
    row = lists.in_order()
    table = _result(lists, row)
    if documents is not None:
        table = _with_features(table, documents, lists, row)
    weight = lists.weight[row]
    rate = np.divide(lists.clicks[row], weight, out=np.zeros(len(row)), where=lists.shown[row])
    return table.to_native(), np.minimum(rate, 1.0)  # sums of rates may be rounded up


# The log, with keys that every engine groups alike ------------------------------------
@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows of a log, with keys without nulls, and features or the number of the row.

    ``ids`` are what the codes of a frame in memory stand for, and ``first`` its features.
    """

    log: EngineLog
    frame: Any
    ids: dict
    features: list
    first: Any

    @classmethod
    def of(cls, log, features):
        shown, first = log.columns["shown"], None
        values = {name: log.columns[name] for name in IDS if name in log.schema}
        for name in ("position", "bias"):
            if name in log.schema:
                # A row without an impression was not shown.
                key = nw.when(shown).then(log.columns[name]).otherwise(nw.lit(_MISSING))
                values[name] = key.fill_null(_MISSING).cast(nw.Int64)
        of_rows = {name: nw.col(name) for name in features}
        frame = log.rows(values | of_rows, shown=False)
        if features and isinstance(frame, nw.DataFrame):
            first = with_versions(nw.maybe_reset_index(frame.select(features)), features)
            numbers = np.arange(len(frame)), first["_version"].to_numpy()
            new = zip(("_row", "_version"), numbers, strict=True)
            new = [nw.new_series(k, each, backend=frame.implementation) for k, each in new]
            frame = nw.maybe_reset_index(frame.drop(features)).with_columns(*new)
        elif features:
            frame = with_versions(frame, features)
        frame, ids = code_ids(frame, [name for name in IDS if name in values])
        return cls(log, frame, ids, features, first)

    def names(self, *names):
        return [name for name in names if name in self.frame.collect_schema()]

    def lists(self):
        """Clicks and impressions by list, document and place."""
        frame = self.frame
        keys = self.names("qid", "user", "doc", "position", "bias", "_version")
        if self.first is None:
            more = [one_value(frame, name) for name in self.features]
        else:
            more = [nw.col("_row").min()]
        if "session" in self.log.schema:
            # The user enters, so that a session of several users differs from any of one user.
            frame = _with_lists(frame, keys[1:])
            keys = keys + _HASHES
            more.append(nw.col("_length").max())
        return _Lists(self, count_by(frame, keys, *more))

    def refuse_users(self):
        """Raise an error if a session has several users."""
        if "user" not in self.log.schema:
            return
        users = self.frame.filter(nw.col("position") != _MISSING).select("qid", "session", "user")
        users = users.unique().group_by("qid", "session").agg(nw.len().alias("n"))
        users = collect(users.filter(nw.col("n") > 1))
        if len(users):
            example = users["qid"][0]
            example = self.ids["qid"][int(example)] if "qid" in self.ids else example
            where = f"such as in query {python_value(example)!r}"
            ONE_USER_PER_SESSION.report(len(users), None, where)


def _with_lists(frame, place):
    """The rows, with the length of their list and the sums of two hashes over it.

    The sums depend on what the list shows, not on the order of the rows; they are 0 in rows that
    were never shown.
    """
    shown = nw.col("position") != _MISSING
    frame = with_hashes(frame, place)
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
    """The rows of the result in any order: codes of their ids, their list and their counts."""

    rows: _Rows
    table: nw.DataFrame

    def __post_init__(self):
        log = self.rows.log
        check_counts(self.weight[self.shown], self.clicks[self.shown], log.counts)

    @cached_property
    def coded(self):
        """Codes of queries, users and documents, and what they stand for."""
        names = self.rows.names("qid", "user", "doc")
        return {name: codes_of(self.table, self.rows.ids, name) for name in names}

    @cached_property
    def position(self) -> Ints:
        return self.table["position"].to_numpy().astype(np.int64)

    @cached_property
    def shown(self):
        return self.position != _MISSING

    @cached_property
    def place(self):
        """Rank of the position among all, of which "never shown" is the first if it occurs."""
        return encode(self.position)[0]

    @cached_property
    def weight(self) -> Floats:
        return totals_of(self.table)[0]

    @cached_property
    def clicks(self) -> Floats:
        return totals_of(self.table)[1]

    @cached_property
    def features(self):
        """The features of each row; None if the log has none."""
        rows = self.rows
        if rows.first is None:
            return self.table.select(rows.features) if rows.features else None
        return rows.first.select(rows.features)[self.table["_row"].to_numpy()]

    @cached_property
    def what(self) -> Ints:
        """Code of the document with its features, by document; no engine determines the order."""
        doc = self.coded["doc"][0]
        if self.features is None:
            return doc
        hashes = hash_columns([value_bits(self.features[name]) for name in self.rows.features])
        version, versions = encode(hashes)
        return encode(doc * len(versions) + version)[0]

    @cached_property
    def list_(self) -> Ints:
        """Number of the list, by query and user; never-shown rows are in the first one."""
        group = self.coded["qid"][0]
        if "user" in self.coded:
            user, users = self.coded["user"]
            group = encode(group * len(users) + user)[0]
        if _HASHES[0] not in self.table.columns:
            return group
        listed = np.zeros(int(group.max()) + 1, dtype=bool)
        listed[group[self.shown]] = True
        rows = np.flatnonzero(self.shown | ~listed[group])
        high, low = (self.table[name].to_numpy() for name in _HASHES)
        hashes, known = encode(((high << 20) ^ low)[rows])
        code, lists = encode(group[rows] * len(known) + hashes)
        # Lists are ordered by what they show, first row first: no engine determines the order.
        of_group = lists // len(known)
        shows = (self.place * (int(self.what.max()) + 1) + self.what)[rows]
        first = np.full(len(lists), np.iinfo(np.int64).max)
        np.minimum.at(first, code, shows)
        content = np.zeros(len(lists), dtype=np.uint64)
        bias = [self.table["bias"].to_numpy()[rows]] if "bias" in self.table.columns else []
        np.add.at(content, code, hash_columns([shows, *bias]))
        order = np.lexsort((content, first, of_group))
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order))
        list_ = np.searchsorted(of_group, np.arange(len(listed)))[group]
        list_[rows] = number[code]
        return list_

    def in_order(self) -> Ints:
        """The rows by query, list and position, rows never shown last, by document.

        Raises an error if two rows of a list have the same position.
        """
        n_places, n_docs = int(self.place.max()) + 1, int(self.what.max()) + 1
        place = np.where(self.shown, self.place, n_places + self.what)
        key = self.list_ * (n_places + n_docs) + place
        row = np.argsort(key)
        twice = np.flatnonzero(key[row[1:]] == key[row[:-1]])
        if len(twice):
            self._refuse_place(row[twice[0]])
        if "_length" in self.table.columns:
            # If a row recurs within a session, the session is longer than its list.
            length = np.bincount(self.list_, self.shown)[self.list_]
            longer = self.shown & (self.table["_length"].to_numpy() != length)
            if longer.any():
                self.rows.refuse_users()
                self._refuse_place(np.argmax(longer * self.table["_n"].to_numpy()))
        return row

    def _refuse_place(self, row):
        codes, ids = self.coded["qid"]
        where = f"query {python_value(ids[int(codes[row])])!r}"
        ONE_ROW_PER_POSITION.report(2, int(self.position[row]), where)


# The result ---------------------------------------------------------------------------
def _result(lists, row):
    """The role columns of the result with the ids of the log, and the features."""
    table, rows, weight = lists.table, lists.rows, lists.weight[row]
    columns = {}
    for name in rows.names("qid", "doc", "position", "bias", "user"):
        if name in rows.ids:
            columns[name] = rows.ids[name][lists.coded[name][0][row]]
        else:
            columns[name] = table[name][row]
    computed = {
        "session": lists.list_[row],
        "impressions": weight.astype(np.int64) if not (weight % 1).any() else weight,
    }
    if rows.log.scope is not None:
        computed["doc_scope"] = np.full(len(row), rows.log.scope, dtype=object)
    for name, values in computed.items():
        columns[name] = nw.new_series(name, values, backend=table.implementation)
    columns = {name: columns[name] for name in ROLES if name in columns}
    columns |= {name: lists.features[name][row] for name in rows.features}
    # pandas would align the columns by their row labels.
    X = nw.from_dict({name: nw.maybe_reset_index(each) for name, each in columns.items()})
    if lists.shown.all():
        return X
    keys = [nw.col(name) for name in ("position", "bias") if name in columns]
    return X.with_columns(*(nw.when(nw.col("position") != _MISSING).then(key) for key in keys))


def _with_features(X, documents, lists, row):
    """The result with the values and features of each document, in its kind of frame."""
    table = FeatureTable(documents)
    documents = nw.from_native(documents, eager_only=True)
    values = {name for name in documents.columns if not is_role(name)} | {*_OF_DOCUMENTS}
    of_log = [name for name in documents.columns if name not in values | {"qid", "doc"}]
    if of_log:
        raise ValueError(
            f"documents has the columns {of_log}, which are roles of the log; expected 'doc', "
            "'qid', 'production', 'relevance' and features. Rename or drop them."
        )
    doc, ids = lists.coded["doc"]
    ids = pd.Index(ids.to_numpy(), name="doc", tupleize_cols=False)
    if table.ids.nlevels == 2:
        query, queries = lists.coded["qid"]
        doc, query, own = pairs_of_codes(query, doc, len(ids))
        ids = pd.MultiIndex.from_arrays(
            [queries.to_numpy()[query], ids[own]], names=["qid", "doc"]
        )
    names = [name for name in _OF_DOCUMENTS if name in documents.columns]
    names += [name for name in documents.columns if name in values and name not in names]
    if not names:
        return X
    values = nw.maybe_reset_index(documents.select(names)[table.places(ids)[doc[row]]])
    if values.implementation is not X.implementation:
        arrays = {name: values[name].to_numpy() for name in names}
        values = nw.from_dict(arrays, backend=X.implementation)
    return nw.concat([X, values], how="horizontal")
