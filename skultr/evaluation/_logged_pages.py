"""The pages of a log, and those of other rankings of its documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from .._base._typing import ArrayLike, Bools, Column, Floats, Ints, Predictor, Table
from .._log._reader import first_rows, pairs_of_codes, read, take_clicks
from .._log._roles import column_names, is_frame, is_role, read_column, read_role
from .._log._segments import TINY, as_array, encode, largest_by_code, mix, pair_codes
from .._log._units import tell_units
from ..exceptions import python_value
from ..metrics._scorers import predict_within
from ..propensity._source import RowsOfLog
from ._thresholds import MOST_CONTEXTS, SAME_SCORE

#: What a log may pass as keywords.
ROLES = ("qid", "session", "doc", "position", "impressions", "doc_scope")


class LoggedPages(RowsOfLog):
    """The shown rows of a log. A slot is a position of a query, a pair a document of a query.

    ``pair`` is that of each row of X, ``slot``, ``weight`` (impressions) and ``rate`` (clicks per
    impression) are those of each row that was shown, and ``slot_pages`` the pages of the query
    that had the position of the slot. ``roles`` are those passed as keywords.
    """

    def __init__(
        self,
        X: Table,
        y: Column | str | None,
        sample_weight: Column | None,
        roles: Mapping[str, Any],
        caller: str,
        *,
        context: Column | str | None = None,
        cluster: Column | str | None = None,
        several: bool = False,
    ) -> None:
        unknown = sorted({*roles} - {*ROLES})
        if unknown:
            raise TypeError(f"Got the unknown argument {unknown[0]!r}; expected roles: {ROLES}.")
        X, y, _ = take_clicks(X, y, caller, roles)
        super().__init__(X, y, sample_weight, dict.fromkeys(ROLES) | dict(roles))
        if read_role(X, "bias", None) is not None:
            raise ValueError(
                f"X has a column 'bias', and {caller} does not know which bias factors another "
                "ranking would have; expected a log whose bias is its position. Drop the column."
            )
        reads = ["qid", "doc", "position", "impressions", "doc_scope"]
        if read_role(X, "session", self.roles["session"]) is not None:
            reads.append("session")  # without, rows may be counts of several pages
        need = {
            "qid": "to rank the documents of a query",
            "position": "to compare where rankings put them",
        }
        self.rows = rows = read(
            X, y, sample_weight, self.roles, reads=reads, need=need, caller=caller
        )
        # Documents, of all rows: a ranking may choose those that nobody saw.
        document = rows.documents().code
        self.pair, self.pair_query, _ = pairs_of_codes(
            rows.query, document, int(document.max()) + 1
        )
        self.inside = np.ones(rows.n_rows, dtype=bool)
        self.context = self._codes(context, "context", rows.choice, "result page")
        self._show(np.flatnonzero(rows.shown))
        self.page = rows.choice if self.has_pages else np.arange(rows.n_rows)
        order = np.argsort(~rows.shown, kind="stable")  # candidates may be of any cluster
        first = order[first_rows(self.page[order], int(self.page.max()) + 1)]
        self.page_query = rows.query[first]
        # Who knows what each page adds may have several clusters in a query.
        if several:
            cluster = self._codes(cluster, "cluster", self.page, "result page")
        else:
            cluster = self._codes(cluster, "cluster", rows.query, "query", ", or method='dr'")
        self.cluster = None if cluster is None else cluster[first]

    def _codes(self, values, name, group, group_name, otherwise=""):
        """Codes of a column of X or an array by row, which has one value in each group."""
        if values is None:
            return None
        values = read_column(self.X, values) if isinstance(values, str) else as_array(values)
        missing = pd.isna(values)
        if values.shape != (len(group),) or missing.any():
            raise ValueError(
                f"{name} has the shape {values.shape} and {missing.sum()} missing values; "
                f"expected one value per row of X, that is ({len(group)},), and none missing."
            )
        codes, _ = encode(values)
        # Candidates that nobody saw are on no page.
        shown = np.flatnonzero(self.rows.shown)
        group_of_shown = group[shown]
        first = first_rows(group_of_shown, int(group.max()) + 1)
        first_of_group = shown[first[group_of_shown]]
        differs = codes[shown] != codes[first_of_group]
        if differs.any():
            row = int(shown[differs.argmax()])
            raise ValueError(
                f"{name} differs within one {group_name} (such as in row {row}); expected one "
                f"value per {group_name}{otherwise}."
            )
        return codes

    def _show(self, row):
        """Keep these rows as what was shown."""
        rows = self.rows
        self.row = row
        self.weight = rows.weight[row]
        self.rate = rows.rate[row]
        position, positions = encode(rows.position[row])
        # Slots: positions of a query that some page of it had.
        self.slot, self.slot_query, place = pairs_of_codes(
            rows.query[row], position, len(positions)
        )
        self.slot_position = positions[place]
        self.slot_pages = np.bincount(self.slot, self.weight)

    def parts(self) -> list[LoggedPages]:
        """The pages of each context, with the queries, pairs and rows of X of the whole log."""
        if self.context is None:
            return [self]
        parts = []
        for code in np.unique(self.context[self.row]):
            part = copy(self)
            # What was computed for the whole log must not be found in a part.
            for name in ("query_pages", "page_weight", "shown_cells"):
                part.__dict__.pop(name, None)
            part.inside = self.context == code
            part._show(self.row[part.inside[self.row]])
            parts.append(part)
        return parts

    @cached_property
    def query_pages(self) -> Floats:
        """Pages of each query."""
        return largest_by_code(self.slot_query, self.slot_pages, len(self.rows.query_ids))

    @cached_property
    def shown_cells(self) -> tuple[Ints, Ints]:
        """Sorted keys of the pairs at slots that the log has, and the cell of each shown row."""
        cell, keys = encode(self.key(self.pair[self.row], self.slot))
        return keys, cell

    @cached_property
    def has_pages(self) -> bool:
        """True if rows of one list are one page, not counts of several."""
        seen = pair_codes(self.rows.choice[self.row], self.slot, len(self.slot_query))
        return len(np.unique(seen)) == len(seen)

    def page_columns(self) -> Iterator[tuple[str, Ints, Any]]:
        """Columns without a role that have few values, one per page: their codes by shown
        row, and the values."""
        page = self.rows.choice[self.row]
        first = first_rows(page, int(page.max()) + 1)
        if not self.has_pages or not is_frame(self.X):
            return
        for name in column_names(self.X):
            if is_role(name):
                continue
            values = read_column(self.X, name)[self.row]
            # Most features differ within one of the first pages: the other rows need no look.
            is_as_first = values[:1_000] == values[first[page[:1_000]]]
            if not is_as_first.all() or not (values == values[first[page]]).all():
                continue
            codes, few = encode(values)
            if 2 <= len(few) <= MOST_CONTEXTS.value:
                yield name, codes, few

    def key(self, pair: Ints, slot: Ints) -> Ints:
        """One number per pair at a slot."""
        return pair_codes(pair, slot, len(self.slot_query))

    def mean_by_position(self, values: Floats) -> Floats:
        """Mean of values of shown rows over the impressions at the position of each slot."""
        place, _ = encode(self.slot_position)
        place_of_row = place[self.slot]
        total = np.bincount(place_of_row, self.weight * values)
        weight = np.bincount(place_of_row, self.weight)
        return (total / weight)[place]

    def per_page(self, by_query: Floats) -> float:
        """Mean per page of sums over the pages of each query."""
        return float(by_query.sum() / self.query_pages.sum())

    @cached_property
    def page_weight(self) -> Floats:
        """Impressions of each page."""
        return largest_by_code(self.page[self.row], self.weight, len(self.page_query))

    def of_pages(self, by_row: Floats) -> Floats:
        """Sums of values of shown rows over each page."""
        return np.bincount(self.page[self.row], by_row, len(self.page_query))

    def of_queries(self, by_page: Floats) -> Floats:
        """Sums over each query."""
        return np.bincount(self.page_query, by_page, len(self.query_pages))

    def over_pages(self, by_query: Floats) -> Floats:
        """Sums over queries, in equal parts for each impression of their pages."""
        shown = self.page_weight
        per_impression = by_query / np.maximum(self.of_queries(shown), TINY)
        return shown * per_impression[self.page_query]

    def error_per_page(self, by_page: Floats, variance: float = 0.0, *, new: bool = True) -> float:
        """Standard error of a mean per page, from the influence of each page and a further
        variance, both of sums over pages.

        For ``new`` queries, those of the log are independent, or their clusters; where both cross,
        their variances add up, less that of what they share (Cameron, Gelbach & Miller, 2011). For
        the log's own queries pages are independent, or clusters of them, or pages of one query err
        together: whichever is worst.
        """
        total = self.query_pages.sum()
        traffic = self.over_pages(self.query_pages)

        def variance_of(group):
            sums, share = (np.bincount(group, values) for values in (by_page, traffic / total))
            # What a group takes from its own residual: with equal ones n / (n - 1).
            return (sums**2 / np.maximum(1 - 2 * share + share @ share, TINY)).sum()

        # The same page several times, told once, is not one of as many clicks.
        is_told_once = self.has_pages and np.isin(self.rate, (0, 1)).all()
        times = np.maximum(self.page_weight, 1) if is_told_once else 1
        pages = (by_page**2 / times).sum()
        # Within whole queries chance cancels, as documents are fitted to their clicks; what the
        # formula gets wrong does not.
        queries = variance_of(self.page_query)
        if self.cluster is None:
            variance += queries if new else max(queries, pages)
            return float(np.sqrt(variance) / total)
        clusters = variance_of(self.cluster)
        if new:
            # Queries and clusters, less what they share: queries within clusters. Less than
            # nothing, which small samples give, is nothing.
            both = pair_codes(self.page_query, self.cluster, int(self.cluster.max()) + 1)
            shared = variance_of(encode(both)[0])
            variance += clusters + max(queries - shared, 0.0)
        else:
            variance += max(clusters, queries, pages)
        return float(np.sqrt(variance) / total)

    def n_equal(self, weight: Floats) -> float:
        """Number of queries, or of clusters if fewer, of equal weight that are worth as much
        (Kish)."""
        # As many as are independent: never more than there are clusters.
        n_equal = _equal(weight)
        if self.cluster is not None:
            by_cluster = np.bincount(self.cluster, self.over_pages(weight))
            n_equal = min(n_equal, _equal(by_cluster))
        return float(n_equal)

    def moved(self) -> float:
        """Share of impressions at which a document was not at its usual position."""
        keys, cell = self.shown_cells
        # The usual position has the most impressions.
        shown = np.bincount(cell, self.weight)
        pair = keys // len(self.slot_query)
        usual = largest_by_code(pair, shown, len(self.pair_query))
        return float(1 - usual.sum() / shown.sum())

    def scores_of(self, scores: Predictor | ArrayLike | str, name: str) -> Floats:
        """Scores of the rows of X, after their checks."""
        if isinstance(scores, type):
            raise TypeError(f"{name} is the class {scores.__name__}; expected a fitted ranker.")
        scores = predict_within(scores, self.X, self.rows["qid"], self.rows["doc"])
        n_rows = self.rows.n_rows
        kind = scores.dtype.kind
        missing = int(np.isnan(scores).sum()) if kind == "f" else 0
        if scores.shape != (n_rows,) or kind not in "biuf" or missing:
            raise ValueError(
                f"{name} has the shape {scores.shape}, type {scores.dtype} and NaN in {missing} "
                f"rows; expected one number per row of X, that is ({n_rows},), and no NaN."
            )
        return scores.astype(float)

    def check_order(self, scores: Floats, called: str) -> None:
        """An error if scores of rows order the documents of no query; a warning if of some."""
        first = first_rows(self.pair, len(self.pair_query))
        tell_units("scores", scores[first], self.pair_query, called)

    def rank_by(self, scores: Predictor | ArrayLike | str, k: int | None, name: str) -> Pages:
        """The pages on which the documents of each query are ordered by falling score."""
        scores = self.scores_of(scores, name)
        # Rows of this context come first: a ranking may depend on it.
        order = np.argsort(~self.inside, kind="stable")
        row_of_pair = order[first_rows(self.pair[order], len(self.pair_query))]
        score = scores[row_of_pair]
        first = score[self.pair]
        differs = self.inside & ~np.isclose(scores, first, rtol=SAME_SCORE.value, atol=0)
        if differs.any():
            row = int(np.argmax(differs))
            raise ValueError(
                f"{name} has different scores for one document of the query "
                f"{python_value(self.rows['qid'][row])!r}, such as {first[row]:g} and "
                f"{scores[row]:g} in row {row}; expected one score per query and document. "
                "If a feature such as the price changes from page to page, give each document its "
                "last score: scores.groupby([X['qid'], X['doc']]).transform('last'). For rankings "
                "that depend on the device or the user's group, pass it as context=."
            )
        # Equal scores: an order that depends on the document only, not on where the log put it.
        chance = mix(np.arange(len(score), dtype=np.uint64))
        # Ranks of documents within queries, and the slots of these ranks, as far as pages go.
        pair = np.lexsort((chance, -score, self.pair_query))
        # A ranking fills the slots of the query from the top.
        query = self.pair_query[pair]
        rank = np.arange(len(pair)) - np.searchsorted(query, query)
        slot = np.searchsorted(self.slot_query, query) + rank
        fits = slot < np.searchsorted(self.slot_query, query, side="right")
        if k is not None:
            fits[fits] = self.slot_position[slot[fits]] <= k
        return Pages(self, pair[fits], slot[fits], np.zeros(fits.sum(), dtype=int))


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
        own = ~np.isin(self.key, other.key)
        others = ~np.isin(other.key, self.key)
        return np.concatenate([own, others])

    def and_of(self, other: Pages) -> Pages:
        """These pages, and those of another ranking as number 1."""
        return Pages(
            self.log,
            np.append(self.pair, other.pair),
            np.append(self.slot, other.slot),
            np.repeat([0, 1], [len(self.slot), len(other.slot)]),
        )

    def cell(self) -> tuple[Ints, Bools]:
        """Cell of the log of each row, and whether there is one."""
        keys, _ = self.log.shown_cells
        # A key beyond the last is compared with the last, and differs from it.
        place = np.minimum(np.searchsorted(keys, self.key), len(keys) - 1)
        return place, keys[place] == self.key


def _equal(weight):
    """Number of equal weights that are worth as much, (Σ w)² / Σ w²."""
    return weight.sum() ** 2 / max((weight**2).sum(), TINY)


def sums_above(values: Floats, page: Ints) -> Floats:
    """Sum of the values above each row on its page; the rows are sorted by page and position."""
    # Sums over all rows before, less those over the pages before.
    before = np.cumsum(values) - values
    starts = np.flatnonzero(np.diff(page, prepend=-1))
    return before - np.repeat(before[starts], np.diff(starts, append=len(page)))
