"""Reduce a log of impressions to its distinct lists, in the engine that holds the log.

The engine (Polars, DuckDB, Dask, Spark, ...) runs every pass over the impressions; the table that
is collected has the size of the *distinct* lists, and is processed as codes and arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._base._typing import AnyFrame, Floats, Frame, Ints
from ..exceptions import ClickDataWarning, python_value, warn_user
from ._click_units import lists_of_counted
from ._counted import (
    CODES,
    EngineLog,
    check_counts,
    code_ids,
    collect,
    count_by,
    decode,
    frame_of,
    one_value,
    value_bits,
    with_hashes,
    with_versions,
)
from ._documents import FeatureTable
from ._faults import IDS, ONE_ROW_PER_POSITION, ONE_USER_PER_SESSION, PAGES_NOT_KNOWN
from ._reader import name_documents
from ._roles import ROLES, feature_names, is_role, is_row_number, open_frame
from ._segments import encode, hash_columns, pair_codes
from ._thresholds import HARDLY_MERGED, LARGE_LOG

#: Replaces a missing position (or bias) in a group key, because some engines drop null keys.
_MISSING = -(2**31)
#: Roles that are values of documents, not counts of impressions.
_OF_DOCUMENTS = ("production", "relevance")
#: Hashes of rows, whose sums over a list identify what it shows.
_HASHES = ["_hash0", "_hash1"]


def aggregate_clicks(
    impressions: AnyFrame, documents: Frame | None = None, *, click: str = "click"
) -> tuple[Any, Floats]:
    """Merge equal result lists of a log into one list each, with click rates and impressions.

    Training on the result gives exactly the model that the raw log gives, at a cost that grows
    with the number of distinct lists. The passes over the log run in the engine that holds it.

    Parameters
    ----------
    impressions : frame
        One row per document of each served list: a pandas, Polars (eager or lazy), PyArrow,
        DuckDB, Dask or PySpark frame with the clicks and the columns ``qid``, ``doc`` (integers
        or strings) and ``position`` (from 1; missing where the row is a candidate that was not
        shown). Optional columns are ``session`` (the served list; see Notes for logs without),
        ``user`` (one per session), ``bias``, ``impressions`` (number of impressions of the row)
        and ``doc_scope``, which is copied to the result. Columns without a role are the features
        of the row, if there are no ``documents``: lists are then equal only if their features are,
        so drop columns that differ in every session, such as times. Outcomes (``outcome_...``) are
        left out, unless ``click`` names one.
    documents : eager frame, default=None
        Features of each ``doc``, and optionally ``production`` and ``relevance``, to join to the
        result. With a column ``qid`` the join is on both. Documents that are not in the log are
        ignored, and so are columns of ``impressions`` without a role: features that change from
        session to session must be in ``impressions``, all others need less memory here.
    click : str, default="click"
        Name of the column of clicks. With a column ``impressions`` it holds the number of clicks
        of each row, at most its impressions, or the click rate. Without one it holds values from
        0 to 1; larger values are graded relevance, and are divided by their maximum.

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

    *Without sessions* the rows of a query (of a user) are one list if they stand at distinct
    positions and have as many impressions each: it was served so often. Otherwise its pages are
    not known, as in a table by query, document and position, and each row is a list of its own.

    *Never-shown rows* (no position) are kept once per query (and user), in its first list. Their
    ``impressions`` are their number of rows, and their click rate is 0.

    *Cost.* The engine sums two hashes of each row by session, and groups by these sums: the cost
    is that of two group-bys and a join, however long a list is. Two different lists of a query
    have the same sums with probability 2^-88; this would raise an error.

    *Logs without equal lists.* Where pages vary from session to session, hardly any lists are
    equal, and the result has the size of the log, with a warning.

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
    log = open_frame(impressions, "impressions")
    names = log.collect_schema().names()
    extra = [name for name in ("propensity", *_OF_DOCUMENTS) if name in names]
    if extra:
        raise ValueError(
            f"impressions has the columns {extra}, which cannot be added up over impressions. "
            "Pass 'production' and 'relevance' with documents=; join known propensities to the "
            "result."
        )
    features = feature_names(names, {click}) if documents is None else []
    # Column names of pandas may be numbers.
    odd = [name for name in features if not isinstance(name, str)]
    if odd:
        raise ValueError(
            f"impressions has the columns {odd}, whose names are no text; expected text, by which "
            "engines know columns: impressions.columns = impressions.columns.map(str)."
        )
    log = EngineLog.of(impressions, click, needs=["qid", "doc", "position"])
    X, click_rate = _merged(log, features, documents)
    _warn_unless_merged(log.n_rows, len(click_rate))
    return X, click_rate


def count_lists_of(X: Any, click: str, features: Iterable[str] = ()) -> tuple[Any, Floats]:
    """Distinct lists of a log with features and click rates; ``click`` as ``fit`` reads it."""
    log = EngineLog.of(X, click, needs=["qid", "doc", "position"])
    return _merged(log, features, None)


def _merged(log, features, documents):
    """The lists of a checked log as a frame, and click rates."""
    # 1. The engine counts; 2. codes make lists of the counts; 3. the lists become a frame.
    lists = _Lists(log, list(features))
    row = lists.in_order()
    table = lists.table(row)
    if documents is not None:
        table = _with_features(table, documents, lists, row)
    clicks = lists.clicks[row]
    weight = lists.weight[row]
    rate = np.zeros(len(row))
    np.divide(clicks, weight, out=rate, where=lists.shown[row])
    return table.to_native(), np.minimum(rate, 1.0)  # sums of rates may be rounded up


def _warn_unless_merged(n_rows, n_merged):
    """Warn of a large log that merging made hardly smaller."""
    if n_rows < LARGE_LOG.value or n_merged < HARDLY_MERGED.value * n_rows:
        return
    warn_user(
        f"aggregate_clicks merged {n_rows:,} rows into {n_merged:,}: nearly all lists of the log "
        "are distinct, and the result holds them all in memory. To train rankers, make a "
        "ClickDataset of the log, which they read in batches. Propensities, relevance_labels and "
        "debiased_table count in the engine of the log, without aggregate_clicks.",
        ClickDataWarning,
    )


def _rows_of(log, features):
    """All rows of a log, with keys without nulls and, beside features, a hash of them."""
    values = {name: log.columns[name] for name in IDS if name in log.schema}
    for name in CODES:
        if name in log.schema:
            # A row without an impression was not shown.
            where_shown = nw.when(log.columns["shown"]).then(log.columns[name])
            key = where_shown.otherwise(nw.lit(_MISSING))
            values[name] = key.fill_null(_MISSING).cast(nw.Int64)
    for name in features:
        values[name] = nw.col(name)
    rows = log.rows(values, shown=False)
    return with_versions(rows, features) if features else rows


def _with_lists(rows, place):
    """The rows with the length of their list and sums of two hashes over it, 0 if never shown."""
    shown = nw.col("position") != _MISSING
    # Sums do not depend on the order in which an engine reads rows.
    rows = with_hashes(rows, place)
    # Of each row, what it adds to its list: nothing, if it was not shown.
    in_list = []
    for name in _HASHES:
        value = nw.when(shown).then(nw.col(name)).otherwise(0)
        in_list.append(value.alias(name))
    rows = rows.with_columns(*in_list, shown.cast(nw.Int64).alias("_length"))
    # The sums over the session.
    names = (*_HASHES, "_length")
    session = ("qid", "session")
    totals = [nw.col(name).sum() for name in names]
    if isinstance(rows, nw.DataFrame):
        rows = rows.with_columns(*(total.over(*session) for total in totals))
    else:
        sums = rows.group_by(*session).agg(*totals)
        # DuckDB's sums have 128 bits.
        sums = sums.with_columns(*(nw.col(name).cast(nw.Int64) for name in names))
        rows = rows.drop(*names).join(sums, on=session, how="left")
    return rows.with_columns(*(each.fill_null(0) for each in in_list))


# What was collected -------------------------------------------------------------------
class _Lists:
    """Clicks and impressions by list, document (with its features: ``what``) and place."""

    def __init__(self, log: EngineLog, features: list[str]) -> None:
        self.log = log
        rows = _rows_of(log, features)
        in_memory = None
        if features and isinstance(rows, nw.DataFrame):
            # Features in memory are taken from the first row that has them.
            in_memory = rows.select(features)
            rows = rows.drop(features).with_row_index("_row")
        # Texts become codes once, so that engines group by integers.
        self.rows, ids = code_ids(rows, [name for name in IDS if name in log.schema])
        self.count = self._counted(features, ids)
        self.codes = {}
        for name in ("qid", "user", "doc"):
            if name in self.count.table.columns:
                self.codes[name] = self.count.codes(name)
        self.weight = self.count.weight
        self.clicks = self.count.clicks
        self.position = self.count.table["position"].to_numpy().astype(np.int64)
        self.shown = self.position != _MISSING
        self.place, _ = encode(self.position)
        # A log without a click has nothing to learn from.
        check_counts(self.weight[self.shown], self.clicks[self.shown])
        self.what, _ = self.codes["doc"]
        if features:
            self._tell_versions(features, in_memory)

    def _counted(self, features, ids):
        """Clicks and impressions by query, list (if sessions are known), document and place."""
        names = self.rows.collect_schema()
        # The user enters, so that a session of several users differs from any of one user.
        columns = ("user", "doc", "position", "bias", "_version")
        place = [name for name in columns if name in names]
        keys = ["qid", *place]
        more = []
        if "_row" in names:
            more.append(nw.col("_row").min())
        more += [one_value(self.rows, name) for name in features if name in names]
        rows = self.rows
        if "session" in self.log.schema:
            rows = _with_lists(rows, place)
            keys += _HASHES
            more.append(nw.col("_length").max())
        return count_by(rows, keys, *more, ids=ids)

    def _tell_versions(self, features, in_memory):
        """Set the features of each row, and tell documents with several vectors apart."""
        table = self.count.table
        if in_memory is not None:
            table = in_memory[table["_row"].to_numpy()]
        self.features = table.select(features)
        bits = hash_columns([value_bits(self.features[name]) for name in features])
        version, versions = encode(bits)
        self.what, _ = encode(pair_codes(self.what, version, len(versions)))

    def numbers(self) -> Ints:
        """Number of the list of each row, by query and user; never-shown rows are in the first."""
        group, _ = self.codes["qid"]
        if "user" in self.codes:
            user, users = self.codes["user"]
            group, _ = encode(pair_codes(group, user, len(users)))
        if _HASHES[0] in self.count.table.columns:
            return self._numbers_of_sessions(group)
        # Without sessions, rows with equal impressions at distinct positions are one list.
        rows = (group, self.position, self.weight, self.shown)
        number = lists_of_counted(*rows, *self._bias(), self.what)
        if "impressions" not in self.log.schema and number.max() > group.max():
            PAGES_NOT_KNOWN.report()
        return number

    def _bias(self):
        """The column of bias factors, if the log has one."""
        table = self.count.table
        return [table["bias"].to_numpy()] if "bias" in table.columns else []

    def _numbers_of_sessions(self, group):
        """The same by the hashes of sessions, within groups of query and user."""
        is_shown_somewhere = np.bincount(group, self.shown) > 0
        # Candidates make a list only where nothing was shown.
        rows = np.flatnonzero(self.shown | ~is_shown_somewhere[group])
        high, low = (self.count.table[name].to_numpy() for name in _HASHES)
        # Both sums as one number of 64 bits.
        hashes, known = encode(((high << 20) ^ low)[rows])
        code, lists = encode(pair_codes(group[rows], hashes, len(known)))
        # Lists are ordered by what they show, first row first: no engine determines the order.
        group_of_list = lists // len(known)
        n_what = int(self.what.max()) + 1
        shows = pair_codes(self.place, self.what, n_what)[rows]
        first = np.full(len(lists), np.iinfo(np.int64).max)
        # What stands first in a list, and a hash of all that it shows.
        np.minimum.at(first, code, shows)
        content = np.zeros(len(lists), dtype=np.uint64)
        bias = [values[rows] for values in self._bias()]
        np.add.at(content, code, hash_columns([shows, *bias]))
        order = np.lexsort((content, first, group_of_list))
        number = np.argsort(order)
        # All rows are in the first list of their group, but for those that were shown.
        first_list = np.searchsorted(group_of_list, np.arange(len(is_shown_somewhere)))
        list_ = first_list[group]
        list_[rows] = number[code]
        return list_

    def in_order(self) -> Ints:
        """The rows by query, list (which is set) and position, rows never shown last."""
        self.list_ = self.numbers()
        n_places = int(self.place.max()) + 1
        n_docs = int(self.what.max()) + 1
        # Rows never shown have no position: documents tell them apart.
        place = np.where(self.shown, self.place, n_places + self.what)
        key = pair_codes(self.list_, place, n_places + n_docs)
        row = np.argsort(key)
        twice = np.flatnonzero(key[row[1:]] == key[row[:-1]])
        if len(twice):
            self._refuse_place(row[twice[0]])
        if "_length" in self.count.table.columns:
            # If a row recurs within a session, the session is longer than its list.
            n_shown = np.bincount(self.list_, self.shown)
            length = self.count.table["_length"].to_numpy()
            longer = self.shown & (length != n_shown[self.list_])
            if longer.any():
                self._refuse_users()
                # The row with most rows of the log is the one that recurs.
                n_rows = np.where(longer, self.count.table["_n"].to_numpy(), 0)
                self._refuse_place(np.argmax(n_rows))
        return row

    def _refuse_place(self, row):
        query = python_value(self._column("qid")[int(row)])
        ONE_ROW_PER_POSITION.report(2, int(self.position[row]), f"query {query!r}")

    def _refuse_users(self):
        """Raise an error if a session has several users."""
        if "user" not in self.codes:
            return
        shown = self.rows.filter(nw.col("position") != _MISSING)
        users = shown.select("qid", "session", "user").unique()
        n_users = users.group_by("qid", "session").agg(nw.len().alias("n"))
        several = collect(n_users.filter(nw.col("n") > 1))
        if not len(several):
            return
        query = several["qid"][0]
        ids = self.count.ids.get("qid")
        if ids is not None:  # the engine counted codes
            query = ids[int(query)]
        where = f"such as in query {python_value(query)!r}"
        ONE_USER_PER_SESSION.report(len(several), None, where)

    def _column(self, name):
        """Values of a key, as the log has them."""
        ids = self.count.ids.get(name)
        if ids is None:
            return self.count.table[name]
        return decode(name, ids, self.codes[name][0], self.count.table.implementation)

    def table(self, row: Ints) -> nw.DataFrame[Any]:
        """Roles and features of some rows, in this order."""
        counted = self.count.table.columns
        found = {}
        for name in ("qid", "doc", *CODES, "user"):
            if name in counted:
                found[name] = self._column(name)[row]
        found["session"] = self.list_[row]
        weight = self.weight[row]
        has_fractions = (weight % 1).any()
        found["impressions"] = weight if has_fractions else weight.astype(np.int64)
        if self.log.scope is not None:
            found["doc_scope"] = np.full(len(row), self.log.scope, dtype=object)
        # Roles stand in one order, then features.
        columns = {name: found[name] for name in ROLES if name in found}
        if "_version" in counted:
            for name in self.features.columns:
                columns[name] = self.features[name][row]
        # In the kind of frame that the engine collects to.
        X = frame_of(columns)
        return X if self.shown.all() else _without_missing(X)


def _without_missing(X):
    """The frame with nulls where nothing was shown."""
    shown = nw.when(nw.col("position") != _MISSING)
    return X.with_columns(*(shown.then(nw.col(name)) for name in CODES if name in X.columns))


def _with_features(X, documents, lists, row):
    """The result with the values and features of each document, in its kind of frame."""
    table = FeatureTable(documents)
    documents = nw.from_native(documents, eager_only=True)
    names = _columns_of_documents(documents)
    query = lists.codes["qid"] if table.ids.nlevels == 2 else None
    # Documents by the pair (qid, doc) where the table has both.
    doc, ids = name_documents(lists.codes["doc"], query)
    if not names:
        return X
    place = table.places(ids)
    values = documents.select(names)[place[doc[row]]]
    # Rows are joined by their numbers.
    values = nw.maybe_reset_index(values)
    if values.implementation is not X.implementation:
        arrays = {name: values[name].to_numpy() for name in names}
        values = nw.from_dict(arrays, backend=X.implementation)
    return nw.concat([X, values], how="horizontal")


def _columns_of_documents(documents):
    """The values of documents, then their features; an error for roles of a log."""
    names = [name for name in _OF_DOCUMENTS if name in documents.columns]
    names += [name for name in documents.columns if not is_role(name)]
    others = [name for name in documents.columns if name not in {"qid", "doc", *names}]
    roles = [name for name in others if not is_row_number(name)]
    if roles:
        raise ValueError(
            f"documents has the columns {roles}, which are roles of the log; expected 'doc', "
            "'qid', 'production', 'relevance' and features. Rename or drop them."
        )
    return names
