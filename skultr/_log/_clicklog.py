"""The door: from a frame (or arrays with keywords) and clicks to one frozen :class:`ClickLog`.

Everything a user can pass is checked and coded here, once. Nothing behind this file asks what
kind of frame came in, whether ids were strings, or in which order the rows were.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..exceptions import ClickDataWarning, python_value, warn_user
from ._checks import (
    bias_codes,
    check_clicks,
    check_impressions,
    check_positions,
    check_propensity,
    list_codes,
    query_codes,
    warn_about_lost_clicks,
)
from ._hashing import equal_rows, hash_columns, mix
from ._roles import CHUNK, FIT_ROLES, read_role
from ._segments import encode, offsets_from_counts, offsets_from_sorted

__all__ = ["ClickLog", "make_click_log"]


_BY_ROW = ("doc", "query", "user", "position", "bias", "clicks", "weight", "shown")


@dataclass(frozen=True, eq=False)
class ClickLog:
    """A click log as codes and arrays, sorted by query, list and position.

    Rows of never-shown candidates come last in their list, with ``shown`` False and
    ``bias`` and ``position`` -1.

    Parameters
    ----------
    features : ndarray of shape (n_docs, n_features), float32
        One row a distinct document.
    doc, query, user : ndarray of shape (n_rows,), int
        Codes of each row.
    position : ndarray of shape (n_rows,), int
        Rank at which the row was shown, from 1.
    bias : ndarray of shape (n_rows,), int
        Code of the bias factor, an index of ``bias_values``.
    clicks : ndarray of shape (n_rows,)
        Number of clicks, that is click rate times ``weight``.
    weight : ndarray of shape (n_rows,)
        Impressions times sample weight.
    shown : ndarray of shape (n_rows,), bool
    propensity : ndarray of shape (n_rows,) or None
        Known examination probabilities.
    offsets : ndarray of shape (n_lists + 1,)
        Where each list begins.
    query_ids, bias_values, user_ids : ndarray
        What the codes stand for.
    doc_ids : ndarray of shape (n_docs,) or None
        What the codes of documents stand for; None where documents are equal rows of features.
    """

    features: np.ndarray
    doc: np.ndarray
    query: np.ndarray
    user: np.ndarray
    position: np.ndarray
    bias: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray
    shown: np.ndarray
    propensity: np.ndarray | None
    offsets: np.ndarray
    query_ids: np.ndarray
    bias_values: np.ndarray
    user_ids: np.ndarray
    doc_ids: np.ndarray | None

    @property
    def n_rows(self):
        """Number of rows."""
        return len(self.doc)

    @property
    def n_lists(self):
        """Number of lists."""
        return len(self.offsets) - 1

    @cached_property
    def list_(self):
        """Number of the list of each row, shape (n_rows,)."""
        return np.repeat(np.arange(self.n_lists), np.diff(self.offsets))

    @property
    def shown_rows(self):
        """Index of the rows that were shown: a slice, and no copy, where all were."""
        return slice(None) if self.shown.all() else np.flatnonzero(self.shown)

    @cached_property
    def click_rate(self):
        """Clicks over impressions, shape (n_rows,); 0 where nothing was shown."""
        return np.divide(self.clicks, self.weight, out=np.zeros(self.n_rows), where=self.shown)

    def shown_features(self):
        """Features of the documents that were shown at all."""
        docs = np.unique(self.doc[self.shown])
        return self.features if len(docs) == len(self.features) else self.features[docs]

    def chunks(self, max_rows=1 << 19):
        """The log as logs of consecutive lists, views of at most ``max_rows`` or of one list.

        What is counted by row in such parts needs little memory beside the log.
        """
        first = 0
        while first < self.n_lists:
            end = int(np.searchsorted(self.offsets, self.offsets[first] + max_rows, "right")) - 1
            end = max(end, first + 1)
            yield self._columns(
                slice(self.offsets[first], self.offsets[end]),
                self.offsets[first : end + 1] - self.offsets[first],
            )
            first = end

    def take_rows(self, rows, list_):
        """The log of ``rows``, an index, cut into lists where ``list_`` changes."""
        return self._columns(rows, offsets_from_sorted(list_))

    def fold(self, users=False):
        """Merge lists that show the same documents in the same way; clicks and weights add up.

        With ``users``, lists that were served to different users stay apart.

        Objectives that are linear in the clicks given the list have the same value and the same
        gradient on the folded log, at a cost that grows with the number of *distinct* lists.
        """
        first, group = self._identical_lists(users)
        if len(first) == self.n_lists:
            return self._take_lists(first)
        lengths = np.diff(self.offsets)
        # The cell of a row: its place in the representative of its group of lists.
        new_offsets = np.concatenate(([0], np.cumsum(lengths[first])))
        place = np.arange(self.n_rows) - np.repeat(self.offsets[:-1], lengths)
        cell = np.repeat(new_offsets[group], lengths) + place
        n_cells = int(new_offsets[-1])
        folded = self._take_lists(first)
        return replace(
            folded,
            clicks=np.bincount(cell, weights=self.clicks, minlength=n_cells),
            weight=np.bincount(cell, weights=self.weight, minlength=n_cells),
        )

    def tempered(self, exponent):
        """The log with each query's weight raised to a power, as if its traffic were that.

        Parameters
        ----------
        exponent : float in [0, 1]
            1 keeps the impressions; 0 gives every query the same weight.

        Returns
        -------
        log : ClickLog
            Clicks and weights of a query share one factor, so that click rates stay.
        factor : ndarray of shape (n_rows,)
            The mean factor over impressions is 1.
        """
        rows = self.shown
        traffic = np.bincount(
            self.query[rows], weights=self.weight[rows], minlength=len(self.query_ids)
        )
        factor = np.where(traffic > 0, np.maximum(traffic, 1e-300) ** (exponent - 1.0), 0.0)
        factor *= traffic.sum() / (factor * traffic).sum()
        factor = factor[self.query]
        log = replace(self, clicks=self.clicks * factor, weight=self.weight * factor)
        return log, factor

    def select_queries(self, keep):
        """The lists of the queries where ``keep``, a bool array by query code, is True."""
        starts = self.query[self.offsets[:-1]]
        return self._take_lists(np.flatnonzero(keep[starts]))

    def _identical_lists(self, users):
        """First list and group number of each set of identical lists."""
        keys = np.column_stack(
            [
                self.query[self.offsets[:-1]].astype(np.uint64),
                *(np.add.reduceat(row, self.offsets[:-1]) for row in self._row_hashes(users)),
            ]
        )
        order = np.lexsort(keys.T[::-1])
        new = np.ones(len(order), dtype=bool)
        new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
        group = np.empty(len(order), dtype=np.intp)
        group[order] = np.cumsum(new) - 1
        return order[new], group

    def _row_hashes(self, users):
        """Two hashes of what a row shows and where; 128 bits, so that no collision is expected.

        The first leaves the propensity out: giving the same numbers in another way (by position,
        say) must not change the order of the lists, nor the model.
        """
        place = np.arange(self.n_rows) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        columns = [place, self.doc, self.position, self.bias]
        row = hash_columns([*columns, self.user] if users else columns)
        if self.propensity is None:
            return row, mix(row)
        return row, hash_columns([row.view(np.int64), self.propensity.view(np.int64)])

    def _take_lists(self, lists):
        lengths = np.diff(self.offsets)[lists]
        offsets = offsets_from_counts(lengths)
        rows = np.repeat(self.offsets[:-1][lists] - offsets[:-1], lengths)
        rows += np.arange(offsets[-1])
        return self._columns(rows, offsets)

    def _columns(self, rows, offsets):
        columns = {name: getattr(self, name)[rows] for name in _BY_ROW}
        if self.propensity is not None:
            columns["propensity"] = self.propensity[rows]
        return replace(self, **columns, offsets=offsets)


def make_click_log(X, features, y, sample_weight=None, roles=None):
    """Read the roles, check them against each other, sort: the one way to a :class:`ClickLog`.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        As the user gave it; only its role columns are read.
    features : ndarray of shape (n_rows, n_features), float32
        The validated features.
    y : ndarray of shape (n_rows,)
        Clicks or click rates; values above 1 are graded relevance.
    sample_weight : ndarray of shape (n_rows,), default=None
    roles : dict of str to array-like, default=None
        Keyword metadata, which wins over columns.

    Returns
    -------
    log : ClickLog

    Raises
    ------
    ValueError
        With the value found, what was expected and what to do.
    """
    given = roles or {}
    roles = {role: read_role(X, role, given.get(role)) for role in FIT_ROLES}
    has_session = roles["session"] is not None
    columns, list_, shared = _read_columns(features, y, sample_weight, roles)
    order = np.lexsort(
        (
            columns["doc"],
            np.where(columns["shown"], columns["position"], np.iinfo(np.int64).max),
            list_,
        )
    )
    offsets = offsets_from_sorted(list_[order])
    del list_
    for name in columns:  # one by one, so that the log is never held twice
        columns[name] = columns[name][order]
    del order
    # All users are one where none was named.
    columns.setdefault("user", np.zeros(len(features), dtype=np.intp))
    columns.setdefault("propensity", None)
    log = ClickLog(**columns, **shared, offsets=offsets)
    _check_one_row_a_position(log, has_session)
    if not log.clicks.any():
        warn_user(
            "The log has no click: there is nothing to learn from and every document will get "
            "about the same score. Check that y holds the clicks.",
            ClickDataWarning,
        )
    return log


def _read_columns(features, y, sample_weight, roles):
    """The columns of a log in the order of X, the list of each row, and what has no rows.

    Consumes ``roles``: what was read is not needed beside what it was turned into.
    """
    n_rows = len(features)
    rate = check_clicks(y)
    impressions = roles.pop("impressions")
    weight = check_impressions(impressions, sample_weight, n_rows)
    query, query_ids = query_codes(roles.pop("qid"), n_rows)
    list_ = list_codes(query, roles.pop("session"))
    position = check_positions(roles.pop("position"), list_)
    doc, doc_features, doc_ids = _documents(roles.pop("doc"), features)
    shown = (position > 0) & (weight > 0)
    if not shown.any():
        raise ValueError(
            "No row was shown: every position is missing or every impression count is 0. "
            "Expected at least one shown row to learn from."
        )
    # A sample weight of 0 leaves rows out on purpose.
    served = (position > 0) & (check_impressions(impressions, None, n_rows) > 0)
    warn_about_lost_clicks(rate, served)
    del impressions, served
    bias, bias_values = bias_codes(roles.pop("bias"), position, shown)
    propensity = check_propensity(roles.pop("propensity"), shown)

    columns = {
        "doc": doc,
        "query": query,
        "position": np.where(shown, position, -1),
        "bias": bias,
        "clicks": np.where(shown, rate * weight, 0.0),
        "weight": weight,
        "shown": shown,
    }
    if propensity is not None:
        columns["propensity"] = propensity
    user_ids = np.zeros(1, dtype=int)
    if roles["user"] is not None:
        columns["user"], user_ids = encode(roles.pop("user"))
    shared = {
        "features": doc_features,
        "query_ids": query_ids,
        "bias_values": bias_values,
        "user_ids": user_ids,
        "doc_ids": doc_ids,
    }
    return columns, list_, shared


def _check_one_row_a_position(log, has_session):
    shown = log.shown
    same = shown[1:] & shown[:-1] & (log.position[1:] == log.position[:-1])
    same[log.offsets[1:-1] - 1] = False
    if not same.any():
        return
    row = int(np.argmax(same))
    query = python_value(log.query_ids[log.query[row]])
    remedy = (
        "Each (qid, session) must be one result page."
        if has_session
        else "If a query was served several times, name each result page in a column 'session', "
        "or reduce the log with skultr.aggregate_clicks."
    )
    raise ValueError(
        f"Two rows of one list stand at position {log.position[row]} (query {query!r}); expected "
        f"one row a position. {remedy}"
    )


# --------------------------------------------------------------------------------------
# Distinct documents
# --------------------------------------------------------------------------------------
def _documents(doc, features):
    """Document code of each row, the features of the distinct documents, and their ids."""
    if doc is None:
        codes, first = equal_rows(features)
        return codes, features[first], None
    codes, ids = encode(doc)
    first = np.empty(len(ids), dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    distinct = features[first]
    for start in range(0, len(codes), CHUNK):
        rows = slice(start, start + CHUNK)
        differs = (features[rows] != distinct[codes[rows]]).any(axis=1)
        if differs.any():
            row = start + int(np.argmax(differs))
            raise ValueError(
                f"The document {python_value(ids[codes[row]])!r} has different features in rows "
                f"{first[codes[row]]} and {row}; expected one feature vector a doc. 'doc' names a "
                "query-document pair: make it unique by query, or drop the column, and rows with "
                "equal features are taken as one document."
            )
    return codes, distinct, ids
