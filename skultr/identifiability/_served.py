"""Result lists that carry out interventions: lists of the log with two documents swapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._log._clicklog import make_click_log
from .._log._faults import count_of
from .._log._pairs import Pairs, read_documents
from .._typing import Bools, Ints
from ..exceptions import ClickDataWarning, NotIdentifiableWarning, warn_user
from ._bias_features import column_values, factor_codes, plain
from ._verdict import MAX_NAMED

#: Columns that must be unique together among shown rows.
_LIST = ("qid", "session", "position")


def read_lists(
    X: Any, graph: Any, values: Mapping[str, NDArray[Any]], shown: Bools
) -> ServedLists | None:
    """The lists of a frame; None without queries or positions, or if a list repeats a position."""
    frame = nw.from_native(X, eager_only=True)
    if "qid" not in frame.columns or "position" not in frame.columns:
        return None
    keys = {name: frame[name].to_numpy() for name in _LIST if name in frame.columns}
    if pd.DataFrame(keys)[shown].duplicated().any():
        warn_user(
            "Some queries show two rows at one position, so that their rows are no result lists, "
            "and intervened_lists_ is None. Name each result page in a column 'session', or "
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


def warn_about_impossible(impossible: list[int], interventions: pd.DataFrame) -> None:
    """Warn of the interventions that no list of the log can carry out."""
    if not impossible:
        return
    table = interventions.iloc[impossible[:MAX_NAMED]]
    named = [
        " ".join(f"{name} {plain(value)!r}" for name, value in row.items())
        for row in table.drop(columns="cost").to_dict("records")
    ]
    more = ", ..." if len(impossible) > MAX_NAMED else ""
    warn_user(
        f"{len(impossible)} of {count_of(len(interventions), 'intervention')} cannot be carried "
        f"out by swapping two documents of a list of the log: {'; '.join(named)}{more}. "
        "intervened_lists_ leaves them out; serve longer lists for them.",
        ClickDataWarning,
    )


def warn_until_served(graph: Any, *, served: bool) -> None:
    """Warn that a repair by interventions takes effect when its lists were served."""
    what = "the lists of intervened_lists_" if served else "the swaps of interventions_"
    warn_user(
        f"The log is not identifiable: its {graph.n_factors} bias factors fall into "
        f"{graph.n_components} components, and strategy='intervene' merges nothing. Serve {what}, "
        "append their clicks to the log and fit again; until then a ranker that is trained on "
        "this log compares documents of different components by chance.",
        NotIdentifiableWarning,
    )


class ServedLists:
    """Distinct lists of a log, indexed by a document and the factor it was shown under."""

    def __init__(self, X: Any, doc: Ints, factor: Ints, factors: pd.DataFrame) -> None:
        shown = factor >= 0
        roles = {"doc": doc, "doc_scope": "global", "bias": np.where(shown, factor, np.nan)}
        nothing = np.empty((len(doc), 0), dtype=np.float32)
        self.log = make_click_log(X, nothing, shown.astype(float), roles=roles).fold()
        self.factors = factors
        # The log codes documents anew, and -1 as the first of them.
        self._shift = int((doc < 0).any())
        self._length = np.maximum.reduceat(self.log.position, self.log.offsets[:-1])
        rows = np.flatnonzero(self.log.shown)
        key = self._key(self.log.doc[rows] - self._shift, self.log.bias[rows])
        order = np.lexsort((-self.log.weight[rows], key))
        self._rows, self._keys = rows[order], key[order]

    def longest(self, doc: Ints, factor: Ints) -> Ints:
        """Last position of the longest list that shows each document under each factor."""
        length = self._length[self.log.list_[self._rows]]
        starts = np.searchsorted(self._keys, self._key(doc, factor))
        keys, first = np.unique(self._keys, return_index=True)
        longest = np.maximum.reduceat(length, first)
        return longest[np.searchsorted(keys, self._keys[starts])]

    def swapped(
        self, doc: Ints, start: Ints, to: Ints, pairs: Pairs
    ) -> tuple[pd.DataFrame, list[int]]:
        """Table of the lists to serve (columns ``intervention``, ``qid``, ``doc``, ``position``
        and other bias columns), and the interventions that no list of the log can carry out."""
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
        """Rows of the most frequent list that permits the swap, and the two rows to swap."""
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
            if not placed:  # the document keeps its position, and its context changes
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
        """Values of another bias column: changed on the page if constant there, else swapped."""
        values = self.factors[name]
        old, new = values.iloc[self.log.bias[rows]].reset_index(drop=True), values.iloc[to]
        if old.nunique() == 1:
            return pd.Series([new] * len(old))
        swapped = old.copy()
        swapped.iloc[second] = old.iloc[first]
        swapped.iloc[first] = new
        return swapped
