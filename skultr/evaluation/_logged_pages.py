"""What a log showed, by query and position, and the pages that another ranking would show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._log._hashing import mix
from .._log._reader import Rows, first_rows, read, take_clicks
from .._log._roles import read_role
from .._log._segments import as_array, encode
from .._sklearn import safe_indexing
from .._typing import ArrayLike, Bools, Column, Floats, Ints, Table
from ..exceptions import python_value

__all__ = ["LoggedPages", "Pages", "read_pages"]

#: Scores of one document may differ by this much of its score, as float32 in batches do.
_SAME = 1e-5


@dataclass(frozen=True, eq=False)
class LoggedPages:
    """The shown rows of a log. A slot is a position of a query, a pair a document of a query.

    Attributes
    ----------
    X, y, roles, rows
        The log as it came, and as it was read.
    pair : ndarray of shape (n_rows,)
        Pair of each row of X, also of rows that were not shown.
    row : ndarray of shape (n_shown,)
        Rows of X that were shown; ``weight`` and ``rate`` (clicks per impression) are theirs.
    slot : ndarray of shape (n_shown,)
    pair_query : ndarray of shape (n_pairs,)
    slot_query, slot_position, slot_pages : ndarray of shape (n_slots,)
        ``slot_pages`` is the number of pages of the query that had this position.
    """

    X: Table
    y: Floats
    sample_weight: Column | None
    roles: Mapping[str, Any]
    rows: Rows
    pair: Ints
    row: Ints
    weight: Floats
    rate: Floats
    slot: Ints
    pair_query: Ints
    slot_query: Ints
    slot_position: Ints
    slot_pages: Floats

    @cached_property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.rows.query_ids)

    @cached_property
    def query_pages(self) -> Floats:
        """Pages of each query, shape (n_queries,)."""
        pages = np.zeros(self.n_queries)
        np.maximum.at(pages, self.slot_query, self.slot_pages)
        return pages

    @cached_property
    def cells(self) -> tuple[Ints, Ints]:
        """Sorted keys of (pair, slot) that the log has, and the cell of each shown row."""
        cell, keys = encode(self.key(self.pair[self.row], self.slot))
        return keys, cell

    def key(self, pair: Ints, slot: Ints) -> Ints:
        """One number per pair at a slot."""
        return pair * len(self.slot_query) + slot

    def by_position(self, values: Floats) -> Floats:
        """Mean of ``values`` (n_shown,) over the impressions at the position of each slot."""
        position, _ = encode(np.concatenate([self.slot_position[self.slot], self.slot_position]))
        of_row, of_slot = np.split(position, [len(self.slot)])
        total = np.bincount(of_row, self.weight * values)
        return (total / np.bincount(of_row, self.weight))[of_slot]

    def moved(self) -> float:
        """Share of impressions at which a document was not at its usual position."""
        keys, cell = self.cells
        shown = np.bincount(cell, self.weight)
        usual = np.zeros(len(self.pair_query))
        np.maximum.at(usual, keys // len(self.slot_query), shown)
        return float(1 - usual.sum() / shown.sum())

    def predicted(self, model: Any) -> Floats:
        """P(click) of each shown row by a click model, not conditional on clicks."""
        given = {name: self.roles[name] for name in ("qid", "session", "doc", "position")}
        clicks = model.predict_click(self.X, conditional=False, **given)
        return np.asarray(clicks, dtype=float)[self.row]

    def rank_by(self, scores: ArrayLike, k: int | None, name: str) -> Pages:
        """The pages on which the documents of each query stand by falling score."""
        score = self._pair_scores(scores, name)
        # Equal scores: an order that depends on the document only, not on where the log put it.
        chance = mix(np.arange(len(score), dtype=np.uint64))
        order = np.lexsort((chance, -score, self.pair_query))
        query = self.pair_query[order]
        rank = np.arange(len(order)) - np.searchsorted(query, query)
        slot = np.searchsorted(self.slot_query, query) + rank
        fits = slot < np.searchsorted(self.slot_query, query, side="right")
        pair, slot = order[fits], slot[fits]
        if k is not None:
            top = self.slot_position[slot] <= k
            pair, slot = pair[top], slot[top]
        return Pages(self, pair, slot, np.zeros(len(pair), dtype=int))

    def _pair_scores(self, scores, name):
        scores = as_array(scores)
        if scores.shape != (self.rows.n_rows,) or scores.dtype.kind not in "biuf":
            raise ValueError(
                f"{name} has the shape {scores.shape} and type {scores.dtype}; expected one "
                f"number per row of X, that is ({self.rows.n_rows},)."
            )
        scores = scores.astype(float)
        missing = np.isnan(scores)
        if missing.any():
            raise ValueError(
                f"{name} is NaN in {int(missing.sum())} of {len(scores)} rows, first in row "
                f"{int(missing.argmax())}; expected a score in every row."
            )
        of_pair = scores[first_rows(self.pair, len(self.pair_query))]
        first = of_pair[self.pair]
        differs = (scores != first) & ~(np.abs(scores - first) <= _SAME * np.abs(first))
        if differs.any():
            row = int(np.argmax(differs))
            raise ValueError(
                f"{name} has different scores for one document of the query "
                f"{python_value(self.rows['qid'][row])!r}, such as {first[row]:g} and "
                f"{scores[row]:g} in row {row}; expected one score per query and document. For "
                "rankings that depend on the user, make the user's group a part of the qid."
            )
        return of_pair


@dataclass(frozen=True, eq=False)
class Pages:
    """Pairs at slots, of the ranking number 0 or 1."""

    log: LoggedPages
    pair: Ints
    slot: Ints
    ranking: Ints

    @property
    def key(self) -> Ints:
        """One number per pair at a slot."""
        return self.log.key(self.pair, self.slot)

    @property
    def query(self) -> Ints:
        """Query of each row of the pages."""
        return self.log.slot_query[self.slot]

    def cell(self) -> tuple[Ints, Bools]:
        """Cell of the log of each row, and whether there is one."""
        keys, _ = self.log.cells
        place = np.minimum(np.searchsorted(keys, self.key), len(keys) - 1)
        return place, keys[place] == self.key

    def predicted(self, model: Any) -> Floats:
        """P(click) of each row of the pages by a click model."""
        log = self.log
        row = first_rows(log.pair, len(log.pair_query))[self.pair]
        roles = {name: log.rows[name] for name in ("qid", "doc")}
        clicks = model.predict_click(
            safe_indexing(log.X, row),
            conditional=False,
            session=self.ranking,  # one page per query
            position=log.slot_position[self.slot],
            **{name: None if of is None else of[row] for name, of in roles.items()},
        )
        return np.asarray(clicks, dtype=float)


def read_pages(
    X: Table, y: Column | str | None, sample_weight: Column | None, roles: Mapping[str, Any]
) -> LoggedPages:
    """The log by pairs and slots, after its checks."""
    X, y, _ = take_clicks(X, y, "policy_value")
    if read_role(X, "bias", None) is not None:
        raise ValueError(
            "X has a column 'bias', and policy_value does not know which bias factors another "
            "ranking would have; expected a log whose bias is its position. Drop the column."
        )
    reads = ["qid", "doc", "position", "impressions", "doc_scope"]
    if read_role(X, "session", roles.get("session")) is not None:
        reads.append("session")  # without, rows may be counts of several pages
    need = {
        "qid": "to rank the documents of a query",
        "position": "to compare where rankings put them",
    }
    rows = read(X, y, sample_weight, roles, reads=reads, need=need, caller="policy_value")
    document = rows.documents().code
    pair, keys = encode(rows.query * (int(document.max()) + 1) + document)
    row = np.flatnonzero(rows.shown)
    slot, slots = encode(_slot_key(rows, row))
    first = first_rows(slot, len(slots))
    return LoggedPages(
        X=X,
        y=y,
        sample_weight=sample_weight,
        roles=roles,
        rows=rows,
        pair=pair,
        row=row,
        weight=rows.weight[row],
        rate=rows.rate[row],
        slot=slot,
        pair_query=rows.query[first_rows(pair, len(keys))],
        slot_query=rows.query[row[first]],
        slot_position=rows.position[row[first]],
        slot_pages=np.bincount(slot, rows.weight[row]),
    )


def _slot_key(rows, row):
    position, values = encode(rows.position[row])
    return rows.query[row] * len(values) + position
