"""Result lists that carry out interventions: which to serve, with which two documents swapped."""

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._log._clicklog import make_click_log
from .._log._pairs import read_documents
from ..exceptions import ClickDataWarning, warn_user
from ._bias_features import column_values, factor_codes, plain
from ._verdict import MAX_NAMED

__all__ = ["ServedLists", "read_lists", "warn_about_impossible"]

#: What at most one shown row of a log may have.
_LIST = ("qid", "session", "position")


def read_lists(X, graph, values, shown):
    """The lists of a frame; None where it has no queries or positions, or they are no lists.

    Parameters
    ----------
    X : frame
    graph : IdentifiabilityGraph
        Of X.
    values : dict of str to ndarray of shape (n_rows,)
        Its bias columns.
    shown : ndarray of shape (n_rows,), bool

    Returns
    -------
    lists : ServedLists or None
    """
    frame = nw.from_native(X, eager_only=True)
    if "qid" not in frame.columns or "position" not in frame.columns:
        return None
    keys = {name: frame[name].to_numpy() for name in _LIST if name in frame.columns}
    if pd.DataFrame(keys)[shown].duplicated().any():
        warn_user(
            "Some queries show two rows at one position, so that their rows are no result lists: "
            "there is no intervened_lists_. Name each result page in a column 'session', or "
            "reduce the log with skultr.aggregate_clicks.",
            ClickDataWarning,
        )
        return None
    factor = np.where(shown, factor_codes(graph.factors, values), -1)
    pairs = graph.pairs
    if pairs.doc_ids is None:
        codes, first = read_documents(frame, set(values))
        doc = pd.Index(pairs.doc_rows).get_indexer(first[codes])
    else:
        ids = [column_values(X, name) for name in pairs.doc_ids.names]
        ids = ids[0] if len(ids) == 1 else pd.MultiIndex.from_arrays(ids)
        doc = pairs.doc_ids.get_indexer(ids)
    return ServedLists(X, doc, factor, graph.factors)


def warn_about_impossible(impossible, interventions):
    """Name the interventions that no list of the log can carry out."""
    if not impossible:
        return
    table = interventions.iloc[impossible[:MAX_NAMED]]
    named = [
        " ".join(f"{name} {plain(value)!r}" for name, value in row.items())
        for row in table.drop(columns="cost").to_dict("records")
    ]
    more = ", ..." if len(impossible) > MAX_NAMED else ""
    warn_user(
        f"{len(impossible)} of {len(interventions)} interventions cannot be carried out by "
        f"swapping two documents of a list of the log: {'; '.join(named)}{more}. They are not in "
        "intervened_lists_; serve longer lists for them.",
        ClickDataWarning,
    )


class ServedLists:
    """The distinct lists of a log, found by a document and the factor it was shown under.

    Parameters
    ----------
    X : frame
        Roles ``qid`` and ``position``, of which a list has each at most once.
    doc : ndarray of shape (n_rows,), int
        Codes of documents, all of which occur in shown rows; -1 for those that do not.
    factor : ndarray of shape (n_rows,), int
        Codes of bias factors; -1 where the row was not shown.
    factors : DataFrame of shape (n_factors, n_columns)
        Values of the factors.
    """

    def __init__(self, X, doc, factor, factors):
        shown = factor >= 0
        roles = {"doc": doc, "doc_scope": "global", "bias": np.where(shown, factor, np.nan)}
        nothing = np.empty((len(doc), 0), dtype=np.float32)
        self.log = make_click_log(X, nothing, shown.astype(float), roles=roles).fold()
        self.factors = factors
        # Codes of the log count -1 too.
        self._shift = int((doc < 0).any())
        self._length = np.maximum.reduceat(self.log.position, self.log.offsets[:-1])
        rows = np.flatnonzero(self.log.shown)
        key = self._key(self.log.doc[rows] - self._shift, self.log.bias[rows])
        order = np.lexsort((-self.log.weight[rows], key))
        self._rows, self._keys = rows[order], key[order]

    def longest(self, doc, factor):
        """Last position of the longest list that shows each document under each factor."""
        length = self._length[self.log.list_[self._rows]]
        starts = np.searchsorted(self._keys, self._key(doc, factor))
        keys, first = np.unique(self._keys, return_index=True)
        longest = np.maximum.reduceat(length, first)
        return longest[np.searchsorted(keys, self._keys[starts])]

    def swapped(self, doc, start, to, pairs):
        """The lists to serve for some interventions.

        Parameters
        ----------
        doc, start, to : ndarray of shape (n_interventions,), int
        pairs : Pairs
            Of the log.

        Returns
        -------
        lists : DataFrame
            Columns ``intervention``, ``qid``, ``doc``, ``position`` and the other bias columns.
        impossible : list of int
            Interventions that no list of the log can carry out.
        """
        lists, impossible = [], []
        for number, swap in enumerate(zip(doc, start, to, strict=True)):
            rows, moved, partner = self._find(*swap)
            if rows is None:
                impossible.append(number)
            else:
                table = self._swap(rows, moved, partner, swap[2], pairs)
                table.insert(0, "intervention", number)
                lists.append(table)
        empty = ["intervention", "qid", "doc", "position", *self._other_columns()]
        lists = pd.concat(lists, ignore_index=True) if lists else pd.DataFrame(columns=empty)
        return lists, impossible

    def _key(self, doc, factor):
        return doc.astype(np.int64) * len(self.factors) + factor

    def _other_columns(self):
        return [name for name in self.factors if name not in ("qid", "doc", "position")]

    def _find(self, doc, start, to):
        """Rows of the most frequent list where the swap is possible, and the two to swap."""
        key = doc * len(self.factors) + start
        found = self._rows[slice(*np.searchsorted(self._keys, [key, key + 1]))]
        placed = "position" in self.factors
        if placed:
            position = int(self.factors["position"].iloc[to])
            found = found[self._length[self.log.list_[found]] >= position]
        for row in found:
            rows = np.arange(*self.log.offsets[self.log.list_[row] + np.arange(2)])
            rows = rows[self.log.shown[rows]]
            at = self.log.position[rows] == position if placed else self.log.bias[rows] == to
            if at.any():
                return rows, row, rows[int(at.argmax())]
            if not placed:  # the document stays where it is, and its context changes
                return rows, row, row
        return None, None, None

    def _swap(self, rows, moved, partner, to, pairs):
        log = self.log
        first, second = np.searchsorted(rows, [moved, partner])
        position = log.position[rows].copy()
        position[[first, second]] = position[[second, first]]
        documents = pairs.name_documents(log.doc[rows] - self._shift)
        table = pd.DataFrame(
            {
                "qid": log.query_ids[log.query[rows]],
                "doc": documents.iloc[:, -1].to_numpy(),
                "position": position,
            }
        )
        for name in self._other_columns():
            table[name] = self._context(name, rows, first, second, to)
        return table.sort_values("position", kind="stable")

    def _context(self, name, rows, first, second, to):
        """Values of another bias column: of the page where it has one, else of the document."""
        values = self.factors[name]
        old, new = values.iloc[self.log.bias[rows]].reset_index(drop=True), values.iloc[to]
        if old.nunique() == 1:
            return pd.Series([new] * len(old))
        swapped = old.copy()
        swapped.iloc[second] = old.iloc[first]
        swapped.iloc[first] = new
        return swapped
