"""Roles of columns by what they hold: positions, pages, queries, documents and clicks.

A position counts the rows of each page. What is constant on pages, and shows the same documents
again, is a query. What occurs once per page, and again on others of the query, is a document. A
click is 0 or 1, and rarer further down.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._base._typing import Floats
from .._log._segments import encode, pair_codes
from ._role_names import is_called_page, name_fit
from ._thresholds import (
    CLEAR_LIFT,
    DEEPEST_POSITION,
    FEW_PER_PAGE,
    LEAST_FALL,
    LEAST_ROWS,
    PAGES_WHOLE,
    SAME_GRAIN,
)

#: Rows of which groups are compared: beyond, groups are drawn.
ROWS_TO_COMPARE = 100_000
#: Columns of which pairs are tried as pages: 66 pairs take a second.
MOST_OF_PAIRS = 12


class Proposal(NamedTuple):
    """A column for a role, why, and how sure that is."""

    name: str
    role: str
    reason: str
    confidence: str  # "high", "medium" or "low"
    #: Other columns that may have the role as well.
    others: tuple[str, ...] = ()


class Columns:
    """The columns that may have a role by their values.

    Parameters
    ----------
    codes : dict of str to array
        Codes of the distinct values of each column that may be an id.
    numbers : dict of str to array
        Values of each column of numbers.
    """

    def __init__(self, codes: dict[str, NDArray[np.int64]], numbers: dict[str, Floats]) -> None:
        self.codes = codes
        self.numbers = numbers
        self.n_values = {name: int(code.max()) + 1 for name, code in codes.items()}
        self.n_rows = len(next(iter(codes.values()), []))

    # Positions and pages ------------------------------------------------------------------
    def counters(self, names: Iterable[str]) -> dict[str, NDArray[np.int64]]:
        """Columns that count the rows of pages, and the code of the page of each row."""
        places = _without_none({name: self._places(name) for name in names})
        found = _without_none({name: self._pages(place) for name, place in places.items()})
        if not found:
            # Pairs come last: the number of the page counts the rows of a visit at one position.
            pairs = {name: self._pages_of_pairs(place) for name, place in places.items()}
            found = _without_none(pairs)
        # Numbers of pages count the rows of each position: of two that count, pages are more.
        deep = {name for name, page in found.items() if page.max() < places[name].max()}
        if len(deep) == len(found):
            return found
        return {name: page for name, page in found.items() if name not in deep}

    def _places(self, name):
        """Whole numbers from 0 of a column that may count the rows of pages, None of others."""
        values = self.numbers.get(name)
        if values is None or np.isnan(values).any() or (values % 1).any():
            return None
        low = values.min()
        if low not in (0, 1) or not 2 < values.max() - low + 2 <= DEEPEST_POSITION.value:
            return None
        place = (values - low).astype(np.int64)
        # Every page has a first row, and the deeper, the fewer: no gap at the top.
        shown = np.bincount(place)
        is_fewer = shown[1:] <= 1.02 * shown[:-1] + 3 * np.sqrt(shown[:-1])
        return place if is_fewer.mean() > 0.9 and place.max() > 1 else None

    def _pages(self, place):
        """The code of the page of each row, None if neither the order nor a column says it."""
        # In the order of the log, pages follow one another.
        starts = place == 0
        n_pages = int(starts.sum())
        counts_up = bool(starts[0]) and bool((starts[1:] | (np.diff(place) == 1)).all())
        if counts_up and 2 * n_pages < len(place):
            return np.cumsum(starts) - 1
        # A page has one first row, unless it was lost.
        names = [name for name, n in self.n_values.items() if 0.9 < n / n_pages < 1.5]
        whole = {name: self.wholeness(self.codes[name], place) for name in names}
        best = max(whole, key=whole.__getitem__, default=None)
        if best is not None and whole[best] >= PAGES_WHOLE.value:
            return self.codes[best]
        return None

    def _pages_of_pairs(self, place):
        """The page of each row by two columns, such as the query and the visit."""
        n_pages = int((place == 0).sum())
        # Columns of the page have at most as many values as there are pages; those of most first.
        names = [name for name, n in self.n_values.items() if 1 < n <= n_pages]
        names = sorted(names, key=self.n_values.__getitem__, reverse=True)[:MOST_OF_PAIRS]
        pairs = [self._pair(one, other) for one, other in combinations(names, 2)]
        whole = [self.wholeness(pair, place) for pair in pairs]
        if whole and max(whole) >= PAGES_WHOLE.value:
            return encode(pairs[int(np.argmax(whole))])[0]
        return None

    def _pair(self, one, other):
        return pair_codes(self.codes[one], self.codes[other], self.n_values[other])

    def wholeness(self, code: NDArray[np.int64], place: NDArray[np.int64]) -> float:
        """How far groups of rows are whole pages: each place once, and none missing above."""
        kept = self.some_groups(code)
        order = kept[np.lexsort((place[kept], code[kept]))]
        code = code[order]
        place = place[order]
        new_group = np.r_[True, code[1:] != code[:-1]]
        new_cell = new_group | np.r_[True, place[1:] != place[:-1]]
        last = np.r_[new_group[1:], True]
        n_groups = int(new_group.sum())
        # Groups of one row would be whole pages of one.
        if 1.5 * n_groups > len(code) or n_groups < 3:
            return 0.0
        n_cells = new_cell.sum()
        n_places = (place[last] + 1).sum()
        return float(n_cells / len(code) * n_cells / n_places)

    # Queries and documents ----------------------------------------------------------------
    def is_of_page(self, name: str, page: NDArray[np.int64]) -> bool:
        """Whether a column has one value per page."""
        code = self.codes[name]
        first = np.unique(page, return_index=True)[1]
        return bool((code == code[first][page]).mean() > 0.999)

    def documents(self, names: Iterable[str], page: NDArray[np.int64], n_places: int) -> list[str]:
        """Columns that differ between the rows of a page, and occur on other pages again."""
        found = []
        for name in names:
            n_values = self.n_values[name]
            if n_values < n_places or n_values > 0.9 * self.n_rows:
                continue
            n_cells = _n_distinct(pair_codes(page, self.codes[name], n_values))
            if n_cells > 0.98 * self.n_rows:
                found.append(name)
        return found

    def some_groups(self, code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of whole groups, as many as are enough to look at."""
        step = -(-self.n_rows // ROWS_TO_COMPARE)
        return np.flatnonzero(code % step == 0)

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two columns part the rows into the same groups."""
        n_pairs = _n_distinct(self._pair(one, other))
        return n_pairs == self.n_values[one] == self.n_values[other]

    def recurrence(
        self, query: NDArray[np.int64], doc: NDArray[np.int64], page: NDArray[np.int64]
    ) -> tuple[float, float]:
        """How often two rows of a query on two pages show one document, and the share of the rows
        whose document its query shows again."""
        cell, _ = encode(pair_codes(query, doc, int(doc.max()) + 1))
        n_of_cell = np.bincount(cell)
        n_of_query = np.bincount(query).astype(float)
        n_of_page = np.bincount(page).astype(float)
        n_pairs = (n_of_query**2).sum() - (n_of_page**2).sum()
        if n_pairs <= 0:
            return 0.0, 0.0
        n_same = (n_of_cell * (n_of_cell - 1.0)).sum()
        return float(n_same / n_pairs), float((n_of_cell[cell] > 1).mean())

    # Clicks ---------------------------------------------------------------------------------
    def clicks(
        self,
        names: Iterable[str],
        page: NDArray[np.int64],
        place: NDArray[np.int64],
        doc: NDArray[np.int64] | None,
    ) -> list[str]:
        """Columns of 0 and 1 that are rarer further down, or named so; those of most 1 first."""
        found = {}
        for name in names:
            values = self.numbers.get(name)
            if values is None or not np.isin(values, (0, 1)).all() or not 0 < values.mean() < 1:
                continue
            if self._is_decided(values, page, place, doc):
                continue
            # Bots that open all pages click as often at the bottom: then a known name is enough.
            if _fall(values, place) > LEAST_FALL.value or name_fit(name, "click") > 1:
                found[name] = values.mean()
        # What is 1 in most rows is rather what was seen.
        return sorted(found, key=lambda name: (found[name] > 0.5, -found[name]))

    def _is_decided(self, values, page, place, doc):
        """Whether 0 and 1 are decided by the page, the place or the document, as no click is."""
        groups = [page, place] if doc is None else [page, place, doc]
        if any(_explained(values, group) > 0.95 for group in groups):
            return True
        return stands_above(values, page, place)


def stands_above(
    values: Floats, page: NDArray[np.int64], place: NDArray[np.int64] | Floats
) -> bool:
    """Whether 1 stands above 0 on pages, as paid slots do, and clicks do not."""
    order = np.lexsort((place, page))
    rises = np.diff(values[order]) > 0
    is_same_page = np.diff(page[order]) == 0
    return bool((rises & is_same_page).sum() < 0.01 * values.sum())


def _n_distinct(code):
    return len(np.unique(code))


def _explained(values, group):
    """The share of the variance of values that lies between groups."""
    n_rows = np.bincount(group)
    mean = np.bincount(group, values) / np.maximum(n_rows, 1)
    return float(mean[group].var() / values.var())


def _fall(values, place):
    """How clearly values fall with the place, in standard errors."""
    depth = np.log1p(place)
    correlation = np.corrcoef(depth, values)[0, 1]
    return float(-correlation * np.sqrt(len(values)))


# Proposals ----------------------------------------------------------------------------------
class RoleFinder:
    """Proposes columns for roles, each from what the ones before it showed.

    Parameters
    ----------
    columns : Columns
    ids : list of str
        Columns that have no role yet, and may be an id.
    known : dict of str to str
        Columns that have a role already, by role.
    """

    def __init__(self, columns: Columns, ids: list[str], known: dict[str, str]) -> None:
        self.columns = columns
        self.ids = ids
        self.known = dict(known)
        self.found: list[Proposal] = []
        self.page: NDArray[np.int64] | None = None

    def proposals(self) -> list[Proposal]:
        """The proposals; those with ``others`` are open, and no role is taken."""
        if self.columns.n_rows < LEAST_ROWS.value or not self.columns.codes:
            return []
        self._find_position()
        if self.page is None:
            return self.found
        self._find_query_and_document()
        self._find_session()
        self._find_click()
        return self.found

    def _free(self, names):
        return [name for name in names if name not in self.known.values()]

    def _propose(self, role, names, reason):
        """Propose the column whose name fits best, or the only one; of several, none."""
        named = max(names, key=lambda name: name_fit(name, role), default=None)
        if named is None:
            return
        by_name = name_fit(named, role) > 0
        if by_name:
            self._take(Proposal(named, role, f"{reason}, and its name says so", "high"))
        elif len(names) == 1:
            self._take(Proposal(named, role, f"{reason}; its name says nothing", "medium"))
        else:
            self.found.append(Proposal(named, role, reason, "low", tuple(names)))

    def _take(self, proposal):
        self.found.append(proposal)
        self.known[proposal.role] = proposal.name

    def _find_position(self):
        """Set the place of each row from 0, and the page."""
        columns = self.columns
        given = self.known.get("position")
        names = self._free(columns.numbers) if given is None else [given]
        counters = columns.counters(names)
        if given is None and counters:
            self._propose("position", [*counters], "counts the rows of each page")
        name = self.known.get("position")
        if name not in counters:
            # Of several that count, all count the same pages.
            name = next(iter(counters), None)
        if name is None:
            return
        self.place = (columns.numbers[name] - columns.numbers[name].min()).astype(np.int64)
        self.page = counters[name]

    def may_be_user(self, name: str) -> bool:
        """Whether a column has one value per page, or none, and more than there are devices."""
        columns = self.columns
        if columns.n_values.get(name, 0) <= FEW_PER_PAGE.value:
            return False
        n_cells = _n_distinct(pair_codes(self.page, columns.codes[name], columns.n_values[name]))
        return n_cells <= 2 * (self.page.max() + 1)

    # Queries and documents -------------------------------------------------------------------
    def _find_query_and_document(self):
        """Propose the pair that recurs most: a query that shows its documents again."""
        queries, docs = self._may_be_query_or_document()
        best = {}
        for doc in docs:
            measured = {query: self._recurrence(query, doc) for query in queries}
            best[doc] = _most_recurrent(measured)
        doc = self._best_document(best)
        if doc is not None and "doc" not in self.known:
            self._propose("doc", [doc], "occurs once per page, and again on other pages")
        if doc is None or not best[doc]:
            self._find_single_query()
        elif "qid" not in self.known:
            self._find_repeated_query(doc, best[doc])

    def _may_be_query_or_document(self):
        """Columns that may be the query, and that may be the document; one if it is known."""
        columns = self.columns
        free = self._free(self.ids)
        self.on_page = [name for name in free if columns.is_of_page(name, self.page)]
        if "qid" in self.known:
            queries = [self.known["qid"]]
        else:
            n_pages = int(self.page.max()) + 1
            queries = [name for name in self.on_page if columns.n_values[name] <= 0.9 * n_pages]
        if "doc" in self.known:
            return queries, [self.known["doc"]]
        rest = [name for name in free if name not in self.on_page]
        longest_page = int(self.place.max()) + 1
        return queries, columns.documents(rest, self.page, longest_page)

    def _best_document(self, best):
        """The document that recurs most, of their rates of recurrence by query, or None."""
        if not best:
            return None
        n_values = self.columns.n_values
        # Without a query that comes again, documents come again under any.
        rates = {doc: max(found.values(), default=0.0) for doc, found in best.items()}
        least = SAME_GRAIN.value * max(rates.values())
        alike = [doc for doc in best if rates[doc] >= least]
        # A price or a title recurs with its document; of equally fine columns, the name decides.
        finest = max(n_values[doc] for doc in alike)
        alike = [doc for doc in alike if n_values[doc] >= SAME_GRAIN.value * finest]
        return max(alike, key=lambda doc: (name_fit(doc, "doc"), n_values[doc]))

    def _find_repeated_query(self, doc, rates):
        """Propose one of the queries that tell documents alike, by its name or its grain."""
        columns = self.columns
        alike = [
            query for query in rates if rates[query] >= SAME_GRAIN.value * max(rates.values())
        ]
        named = max(alike, key=lambda name: name_fit(name, "qid"))
        # Of a visit, or a user with one query, the query is the coarser.
        coarsest = min(alike, key=columns.n_values.__getitem__)
        # The text of the query and its number are equally good.
        if name_fit(named, "qid") or all(columns.are_equal(each, coarsest) for each in alike):
            alike = [named]
        elif rates[coarsest] > CLEAR_LIFT.value * self._rate_of_all(doc):
            alike = [coarsest]
        self._propose("qid", alike, "one per page, and its pages show the same documents")

    def _rate_of_all(self, doc):
        """How often two rows of any two pages show one document."""
        one = np.zeros(self.columns.n_rows, dtype=np.int64)
        return self.columns.recurrence(one, self.columns.codes[doc], self.page)[0]

    def _recurrence(self, query, doc):
        columns = self.columns
        kept = columns.some_groups(columns.codes[query])
        page = encode(self.page[kept])[0]
        return columns.recurrence(columns.codes[query][kept], columns.codes[doc][kept], page)

    def _find_single_query(self):
        """Propose a query where each has one page: of what is one page, what is named so."""
        if "qid" in self.known:
            return
        whole = [
            name
            for name in self.on_page
            if self.columns.wholeness(self.columns.codes[name], self.place) >= PAGES_WHOLE.value
        ]
        named = [name for name in whole if name_fit(name, "qid")]
        self._propose("qid", named or whole, "one per page; no query has two pages")

    def _find_session(self):
        """Propose what parts the pages of a query, unless each has one."""
        if "session" in self.known or "qid" not in self.known:
            return
        columns = self.columns
        query = columns.codes[self.known["qid"]]
        whole = {}
        for name in self._free(self.on_page):
            alone = columns.wholeness(columns.codes[name], self.place)
            pairs = pair_codes(query, columns.codes[name], columns.n_values[name])
            whole[name] = max(alone, columns.wholeness(pairs, self.place) - 0.01)
        if not whole or max(whole.values()) < PAGES_WHOLE.value:
            return
        best = [name for name in whole if whole[name] > max(whole.values()) - 0.005]

        def fit_of(name):
            """The name first; of two that say nothing, the one that parts all pages."""
            return name_fit(name, "session"), is_called_page(name), whole[name]

        # Nearly all part the rows into the same pages; two pages may have the same time.
        best = [max(best, key=fit_of)]
        if columns.wholeness(query, self.place) < PAGES_WHOLE.value or name_fit(
            best[0], "session"
        ):
            self._propose("session", best, "one per page, and parts the pages of a query")

    def _find_click(self):
        if "click" in self.known:
            return
        doc = self.known.get("doc")
        doc = None if doc is None else self.columns.codes[doc]
        names = self._free(self.columns.numbers)
        clicks = self.columns.clicks(names, self.page, self.place, doc)
        known = [name for name in clicks if name_fit(name, "click") > 1]
        clicks = known or self._clicks_of_chain(clicks, doc)
        self._propose("click", clicks, "0 or 1, and rarer further down the page")

    def _clicks_of_chain(self, names, doc):
        """The clicks, of what was seen, clicked and bought, each only where the one before was."""
        values = {name: self.columns.numbers[name] for name in names}
        inner = {}
        for name in names:
            inner[name] = [other for other in names if _is_within(values[other], values[name])]
        if doc is not None:
            # Whether a row was seen depends on its place, and on no document.
            cell, _ = encode(pair_codes(self.page_query(), doc, int(doc.max()) + 1))

            def is_chosen(name):
                """Whether no column is within it, or its rows depend on their documents."""
                return not inner[name] or _by_document(values[name], self.place, cell)

            names = [name for name in names if is_chosen(name)]
        # What followed a click is 1 only where it is.
        followed = {each for name in names for each in inner[name]}
        return [name for name in names if name not in followed]

    def page_query(self) -> NDArray[np.int64]:
        """The code of the query of each row; one, if it is not known."""
        name = self.known.get("qid")
        return np.zeros_like(self.place) if name is None else self.columns.codes[name]


def _by_document(values, place, cell):
    """Whether values depend on documents beyond their places, in standard errors above 3."""
    mean = np.bincount(place, values) / np.maximum(np.bincount(place), 1)
    rest = values - mean[place]
    sums = np.bincount(cell, rest)
    # Of independent rows, squares of sums are sums of squares.
    excess = (sums**2).sum() / (rest**2).sum() - 1
    return bool(excess > LEAST_FALL.value * np.sqrt(2 / len(sums)))


def _is_within(part, whole):
    """Whether a column is 1 only where another, which is 1 more often, is."""
    return bool((part <= whole).all() and part.sum() < whole.sum())


def _without_none(values):
    return {name: value for name, value in values.items() if value is not None}


def _most_recurrent(measured):
    """The rates of queries that matter, of their rate and share of recurrence."""
    most = max((share for _, share in measured.values()), default=0.0)
    # A visit has a few pages with the same documents: most of its rows do not come again.
    return {query: rate for query, (rate, share) in measured.items() if 2 * share >= most > 0}
