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
from .._typing import ArrayLike, Bools, Column, Floats, Ints, Predictor, Table
from ..exceptions import python_value
from ..metrics._scorers import predict_within

#: What a log may pass as keywords.
ROLES = ("qid", "session", "doc", "position", "impressions", "doc_scope")

#: Scores of one document may differ by this part, as those of float32 in batches do.
_SAME = 1e-5


@dataclass(frozen=True, eq=False)
class LoggedPages:
    """The shown rows of a log. A slot is a position of a query, a pair a document of a query."""

    X: Table
    y: Floats
    sample_weight: Column | None
    roles: Mapping[str, Any]
    rows: Rows
    pair: Ints  # of each row of X, also of rows that were not shown
    row: Ints  # rows of X that were shown
    slot: Ints  # of each shown row
    weight: Floats  # impressions of each shown row
    rate: Floats  # clicks per impression of each shown row
    pair_query: Ints
    slot_query: Ints  # rising
    slot_position: Ints
    slot_pages: Floats  # pages of the query that had this position

    @cached_property
    def query_pages(self) -> Floats:
        """Pages of each query."""
        pages = np.zeros(len(self.rows.query_ids))
        np.maximum.at(pages, self.slot_query, self.slot_pages)
        return pages

    @cached_property
    def cells(self) -> tuple[Ints, Ints]:
        """Sorted keys of the pairs at slots that the log has, and the cell of each shown row."""
        cell, keys = encode(self.key(self.pair[self.row], self.slot))
        return keys, cell

    @cached_property
    def has_pages(self) -> bool:
        """True if rows of one list are one page, not counts of several."""
        seen = self.rows.list_[self.row] * len(self.slot_query) + self.slot
        return len(np.unique(seen)) == len(seen)

    def key(self, pair: Ints, slot: Ints) -> Ints:
        """One number per pair at a slot."""
        return pair * len(self.slot_query) + slot

    def by_position(self, values: Floats) -> Floats:
        """Mean of values of shown rows over the impressions at the position of each slot."""
        place, _ = encode(self.slot_position)
        total, weight = (np.bincount(place[self.slot], self.weight * of) for of in (values, 1.0))
        return (total / weight)[place]

    def mean_per_page(
        self, by_query: Floats, influence: Floats | float = 0.0, variance: float = 0.0
    ) -> tuple[float, float]:
        """Mean per page, and its standard error from the variance between queries.

        ``influence`` of each query on what was fitted, and a further ``variance``, are of sums.
        """
        pages = self.query_pages
        value = by_query.sum() / pages.sum()
        residual = by_query + influence - value * pages
        n_queries = max(np.count_nonzero(pages), 2)  # of one, no error is told
        variance += n_queries / (n_queries - 1) * (residual**2).sum()
        return float(value), float(np.sqrt(variance) / pages.sum())

    def moved(self) -> float:
        """Share of impressions at which a document was not at its usual position."""
        keys, cell = self.cells
        shown = np.bincount(cell, self.weight)
        usual = np.zeros(len(self.pair_query))
        np.maximum.at(usual, keys // len(self.slot_query), shown)
        return float(1 - usual.sum() / shown.sum())

    def rank_by(self, scores: Predictor | ArrayLike, k: int | None, name: str) -> Pages:
        """The pages on which the documents of each query stand by falling score."""
        if isinstance(scores, type):
            raise TypeError(f"{name} is the class {scores.__name__}; expected a fitted ranker.")
        if hasattr(scores, "predict"):
            scores = predict_within(scores, self.X, self.rows["qid"], self.rows["doc"])
        score = self._pair_scores(scores, name)
        # Equal scores: an order that depends on the document only, not on where the log put it.
        chance = mix(np.arange(len(score), dtype=np.uint64))
        pair = np.lexsort((chance, -score, self.pair_query))
        query = self.pair_query[pair]
        rank = np.arange(len(pair)) - np.searchsorted(query, query)
        slot = np.searchsorted(self.slot_query, query) + rank
        fits = slot < np.searchsorted(self.slot_query, query, side="right")
        if k is not None:
            fits[fits] = self.slot_position[slot[fits]] <= k
        return Pages(self, pair[fits], slot[fits], np.zeros(fits.sum(), dtype=int))

    def _pair_scores(self, scores, name):
        scores = as_array(scores)
        n_rows, kind = self.rows.n_rows, scores.dtype.kind
        missing = int(np.isnan(scores).sum()) if kind == "f" else 0
        if scores.shape != (n_rows,) or kind not in "biuf" or missing:
            raise ValueError(
                f"{name} has the shape {scores.shape}, type {scores.dtype} and NaN in {missing} "
                f"rows; expected one number per row of X, that is ({n_rows},), and no NaN."
            )
        scores = scores.astype(float)
        of_pair = scores[first_rows(self.pair, len(self.pair_query))]
        first = of_pair[self.pair]
        differs = ~np.isclose(scores, first, rtol=_SAME, atol=0)
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
    """Pairs at slots: the pages of ranking 0, or of the rankings 0 and 1 one after the other."""

    log: LoggedPages
    pair: Ints
    slot: Ints
    ranking: Ints

    @property
    def key(self) -> Ints:
        """One number per pair at a slot."""
        return self.log.key(self.pair, self.slot)

    def by_query(self, values: Floats) -> Floats:
        """Sums of values of rows over each query."""
        query = self.log.slot_query[self.slot]
        return np.bincount(query, values, minlength=len(self.log.query_pages))

    def changed(self, other: Pages) -> Bools:
        """True at rows of these pages, and then of another ranking's, that the other lacks."""
        return np.concatenate([~np.isin(self.key, other.key), ~np.isin(other.key, self.key)])

    def and_of(self, other: Pages) -> Pages:
        """These pages, and those of another ranking as number 1."""
        names = ("pair", "slot")
        joined = (np.concatenate([getattr(self, of), getattr(other, of)]) for of in names)
        return Pages(self.log, *joined, np.repeat([0, 1], [len(self.slot), len(other.slot)]))

    def cell(self) -> tuple[Ints, Bools]:
        """Cell of the log of each row, and whether there is one."""
        keys, _ = self.log.cells
        place = np.minimum(np.searchsorted(keys, self.key), len(keys) - 1)
        return place, keys[place] == self.key

    def predicted(self, model: Any) -> Floats:
        """P(click) of each row by a click model."""
        log = self.log
        row = first_rows(log.pair, len(log.pair_query))[self.pair]
        doc = log.rows["doc"]
        return model.predict_click(
            safe_indexing(log.X, row),
            conditional=False,
            qid=log.rows["qid"][row],
            session=self.ranking,
            doc=None if doc is None else doc[row],
            position=log.slot_position[self.slot],
        )


def read_pages(
    X: Table,
    y: Column | str | None,
    sample_weight: Column | None,
    roles: Mapping[str, Any],
    caller: str,
) -> LoggedPages:
    """The log by pairs and slots, after its checks; ``roles`` are those passed as keywords."""
    unknown = sorted({*roles} - {*ROLES})
    if unknown:
        raise TypeError(f"Got the unknown argument {unknown[0]!r}; expected roles: {ROLES}.")
    roles = dict.fromkeys(ROLES) | dict(roles)
    X, y, _ = take_clicks(X, y, caller)
    if read_role(X, "bias", None) is not None:
        raise ValueError(
            f"X has a column 'bias', and {caller} does not know which bias factors another "
            "ranking would have; expected a log whose bias is its position. Drop the column."
        )
    reads = ["qid", "doc", "position", "impressions", "doc_scope"]
    if read_role(X, "session", roles.get("session")) is not None:
        reads.append("session")  # without, rows may be counts of several pages
    need = {
        "qid": "to rank the documents of a query",
        "position": "to compare where rankings put them",
    }
    rows = read(X, y, sample_weight, roles, reads=reads, need=need, caller=caller)
    document = rows.documents().code
    pair, pairs = encode(rows.query * (int(document.max()) + 1) + document)
    row = np.flatnonzero(rows.shown)
    position, positions = encode(rows.position[row])
    slot, slots = encode(rows.query[row] * len(positions) + position)
    slot_query, place = np.divmod(slots, len(positions))
    return LoggedPages(
        X=X,
        y=y,
        sample_weight=sample_weight,
        roles=roles,
        rows=rows,
        pair=pair,
        row=row,
        slot=slot,
        weight=rows.weight[row],
        rate=rows.rate[row],
        pair_query=rows.query[first_rows(pair, len(pairs))],
        slot_query=slot_query,
        slot_position=positions[place],
        slot_pages=np.bincount(slot, rows.weight[row]),
    )
