"""Pages: their queries and hit lists, positions of documents, and one fate for every record."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: An application counts from 0 if such a share of its pages does: a stray 0 decides nothing.
LEAST_SHARE = 0.05
_PLACED = "clicks and outcomes stand at their place in the hit list"
#: Fates of records that are in the log; all others were left out.
USED = {
    "impression": "shown",
    "click": "clicked",
    "outcome": "outcome",
    "added": "its document was added to the page",
    "query": "query of a page",
    "further page": "further page of a query_id",
}


@dataclass
class Pages:
    """What is known of each `query_id`, by its code; -1 is unknown."""

    text: NDArray[Any]  # (n_ids,), as typed
    application: NDArray[Any]  # (n_ids,)
    user: NDArray[Any]  # (n_ids,)
    filters: NDArray[Any]  # (n_ids,)
    start: NDArray[Any]  # (n_ids,), results on earlier pages
    record: NDArray[Any]  # (n_ids,), the query record that the text comes from


@dataclass
class Hits:
    """Documents in the order served: page, document, place from 0 over all pages of a search."""

    page: NDArray[Any]
    doc: NDArray[Any]
    place: NDArray[Any]
    start: NDArray[Any]
    keys: NDArray[Any]
    n_docs: int

    def place_of(self, page: NDArray[Any], doc: NDArray[Any]) -> NDArray[Any]:
        """Place of documents on pages; -1 where the list of the page does not hold it."""
        return lookup(self.keys, self.place, page.astype(np.int64) * self.n_docs + doc)


def pages_of(
    queries: dict[str, NDArray[Any]],
    texts: dict[str, list[str]],
    fates: Fates,
    page_size: int | None,
) -> tuple[Pages, Hits, int, int]:
    """Pages and hit lists of the open query records.

    Also the number of records of a later page that do not say how many results came before, and
    of those whose hit list is not that of an earlier record.
    """
    n_ids, n_docs = len(texts.get("query_id", [])), len(texts.get("doc", []))
    is_open = np.flatnonzero(fates.open)
    start, unknown = _starts(queries, page_size)
    no_text = queries["text"] < 0
    # The first record with a text and hits; then with a text.
    order = is_open[
        np.lexsort((queries["time"][is_open], queries["n_hits"][is_open] == 0, no_text[is_open]))
    ]
    ids, first = np.unique(queries["query_id"][order], return_index=True)
    record = np.full(n_ids, -1)
    record[ids] = order[first]
    columns = {
        name: np.where(record >= 0, queries[name][record], -1) if len(no_text) else record.copy()
        for name in ("text", "application", "user", "filters")
    }
    page_start = np.full(n_ids, np.iinfo(np.int64).max)
    np.minimum.at(page_start, queries["query_id"][is_open], start[is_open])
    page_start[record < 0] = 0
    pages = Pages(**columns, start=page_start, record=record)
    order, unlike = _first_lists(queries, start, is_open)
    hits = _hits(queries, start, order, n_docs)
    return pages, hits, int(unknown[is_open].sum()), unlike


def _starts(queries, page_size):
    """Results before each record's page, and whether a later page has no size to tell."""
    page, size = queries["page"], queries["size"]
    size = np.where(size > 0, size, page_size or -1)
    # Pages count from 0 where an application has pages 0, and not just a stray one.
    is_0 = pd.Series(np.where(page >= 0, page == 0, np.nan))
    is_0 = is_0.groupby(queries["application"]).transform("mean").to_numpy()
    first = np.where(is_0 >= LEAST_SHARE, 0, 1)
    later = (queries["from"] < 0) & (page > first)
    start = np.where(queries["from"] >= 0, queries["from"], 0)
    start = np.where(later & (size > 0), (page - first) * size, start)
    return start, later & (size < 0)


def _first_lists(queries, start, is_open):
    """Records with the first list that is not empty of each query_id and start.

    Also the number of records whose list is another one.
    """
    order = is_open[queries["n_hits"][is_open] > 0]
    order = order[np.argsort(queries["time"][order], kind="stable")]
    lists = pd.DataFrame({"id": queries["query_id"][order], "start": start[order]})
    several = lists[lists.duplicated(keep=False)].copy()
    ends = np.cumsum(queries["n_hits"])
    several["hits"] = [
        queries["hits"][ends[row] - queries["n_hits"][row] : ends[row]].tobytes()
        for row in order[several.index]
    ]
    first = several.groupby(["id", "start"])["hits"].transform("first")
    return order[~lists.duplicated().to_numpy()], int((several["hits"] != first).sum())


def _hits(queries, start, order, n_docs):
    """The lists of some records, each document where it stood first."""
    n_hits, offset = queries["n_hits"], np.cumsum(queries["n_hits"]) - queries["n_hits"]
    index = _ranges(n_hits[order])
    page = np.repeat(queries["query_id"][order], n_hits[order])
    doc = queries["hits"][np.repeat(offset[order], n_hits[order]) + index]
    begin = np.repeat(start[order], n_hits[order])
    place = (begin + index).astype(np.int32)
    key = page.astype(np.int64) * n_docs + doc
    # A document stands where it stood first.
    sort = np.lexsort((place, key))
    sort = sort[doc[sort] >= 0]
    sort = sort[new(key[sort])]
    return Hits(page[sort], doc[sort], place[sort], begin[sort], key[sort], n_docs)


def _ranges(lengths):
    """0, 1, ... for each length, joined."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def close_queries(
    queries: dict[str, NDArray[Any]],
    fates: Fates,
    pages: Pages,
    in_log: NDArray[np.bool_],
    same_text: NDArray[Any],
) -> None:
    """Give the query records that are open their fates."""
    is_open = np.flatnonzero(fates.open)
    ids = queries["query_id"][is_open]
    chosen = pages.record[ids] == is_open
    unlike = same_text[queries["text"][is_open]] != same_text[pages.text[ids]]
    further = (queries["n_hits"][is_open] > 0) & _new_start(queries, is_open, pages)
    fates.give(is_open[queries["text"][is_open] < 0], "no user_query")
    fates.give(is_open[~in_log[ids]], "nothing shown on its page")
    fates.give(is_open[chosen], USED["query"])
    fates.give(is_open[further], USED["further page"])
    fates.give(is_open[unlike], "another record of its query_id, with another user_query")
    fates.give(is_open, "another record of its query_id")


def _new_start(queries, rows, pages):
    differs = np.zeros(len(rows), dtype=bool)
    record = pages.record[queries["query_id"][rows]]
    for name in ("from", "page"):
        differs |= queries[name][rows] != queries[name][record]
    return differs


#: The user of pages that name none, where others do.
_UNKNOWN = "unknown"


def normal_texts(texts: list[str]) -> tuple[list[str], NDArray[Any]]:
    """Normalized texts, and the code of each text's; -1 for blanks, and for no text (last)."""
    table = {"": -1}
    codes = [table.setdefault(_normalized(text), len(table) - 1) for text in texts]
    return list(table)[1:], np.array([*codes, -1])


def _normalized(text):
    """A query as equal queries are written: Unicode NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def query_table(
    pages: Pages,
    rows: NDArray[np.intp],
    texts: dict[str, list[str]],
    normal: tuple[list[str], NDArray[Any]],
) -> tuple[NDArray[Any], pd.DataFrame]:
    """Code of the qid of each page, and the table of queries in the order of the codes."""
    applications = [*texts["application"], ""]
    keys = pd.DataFrame(
        {
            "text": normal[1][pages.text[rows]],
            "filters": pages.filters[rows],
            "application": pages.application[rows],
        }
    )
    several = keys.loc[keys["application"] >= 0, "application"].nunique() > 1
    if not several:  # pages that name none are of the only one
        keys["application"] = keys["application"].max()
    group = keys.groupby(list(keys.columns), sort=False).ngroup().to_numpy()

    def qid(text, filters, application):
        name = normal[0][text]
        name += f" [{texts['filters'][filters]}]" if filters >= 0 else ""
        return f"{applications[application]}: {name}" if several and application >= 0 else name

    names = [qid(*row) for row in keys.iloc[_firsts(group)].to_numpy()]
    of_group, names = pd.factorize(np.array(names, dtype=object))
    code = of_group[group]
    typed = pd.DataFrame({"code": code, "text": pages.text[rows]}).value_counts().reset_index()
    typed = typed.sort_values(["code", "count", "text"], ascending=[True, False, True])
    spelling = typed.drop_duplicates("code")["text"]
    queries = pd.DataFrame(
        {
            "qid": names,
            "user_query": [texts["text"][i] for i in spelling],
            "application": [applications[i] for i in keys["application"].iloc[_firsts(code)]],
            "pages": np.bincount(code, minlength=len(names)),
        }
    )
    code_of = np.full(len(pages.start), -1)
    code_of[rows] = code
    return code_of, queries


def _firsts(codes):
    """Row of the first occurrence of each code."""
    return np.unique(codes, return_index=True)[1]


def category(codes: NDArray[Any], texts: list[str]) -> pd.Categorical:
    """A categorical of the texts that occur; code -1 is "unknown"."""
    if codes.min(initial=0) < 0:
        texts = texts if _UNKNOWN in texts else [*texts, _UNKNOWN]
        codes = np.where(codes < 0, texts.index(_UNKNOWN), codes)
    used = np.zeros(len(texts), dtype=bool)
    used[codes] = True
    new = np.cumsum(used) - 1
    return pd.Categorical.from_codes(
        new[codes], [text for text, there in zip(texts, used, strict=True) if there]
    )


@dataclass
class Shown:
    """Documents on pages: index from 0, place in the hit list and event; -1 for none."""

    page: NDArray[Any]  # (n_rows,)
    doc: NDArray[Any]  # (n_rows,)
    at: NDArray[Any]  # (n_rows,)
    place: NDArray[Any]  # (n_rows,)
    event: NDArray[Any]  # (n_rows,)

    def take(self, rows: NDArray[Any]) -> Shown:
        """Some of the rows."""
        return Shown(*(values[rows] for values in vars(self).values()))

    def joined(self, other: Shown) -> Shown:
        """These rows, then others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Shown(*(np.concatenate(pair) for pair in pairs))

    def shared(self, *, spare_first: bool = False) -> NDArray[np.bool_]:
        """True where another document stands at the position of the page."""
        cells = pd.Series(self.page.astype(np.int64) << 32 | self.at)
        return cells.duplicated(keep="first" if spare_first else False).to_numpy()


def new(values: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a sorted value is not that before it."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def lookup(keys: NDArray[Any], values: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Value of each wanted key among sorted keys; -1 if it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=values.dtype)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], -1)


def bases_of(
    ordinal: NDArray[Any],
    place: NDArray[Any],
    page: NDArray[Any],
    application: NDArray[Any],
    by_hits: NDArray[np.bool_],
    starts: NDArray[Any],
    n_applications: int,
) -> tuple[NDArray[np.int64], dict[int, tuple[int, int, str]]]:
    """The ordinal of the first position, 0 or 1, by application (the last: of unknown ones); and
    how many pages begin there (or clicks stand at their place), of all that count, and what
    counted.

    ``by_hits``: rows of clicks and outcomes, where the base is that under which most stand at
    their place in the hit list.
    """
    lowest = pd.Series(ordinal).groupby(page).min()
    start = starts[lowest.index]
    lowest -= np.where(lowest >= start, start, 0)  # as if all pages restarted
    of_page = pd.Series(application).groupby(page).first()
    base = np.ones(n_applications, dtype=np.int64)
    support: dict[int, tuple[int, int, str]] = {}
    for code, values in lowest.groupby(of_page):
        base[code] = int((values == 0).mean() < LEAST_SHARE)
        support[int(code)] = int((values == base[code]).sum()), len(values), "pages begin there"
    placed = by_hits & (place >= 0) & (starts[page] == 0)
    shift = pd.Series(ordinal[placed] - place[placed])
    for code, values in shift.groupby(application[placed]):
        base[code] = int((values == 0).sum() < (values == 1).sum())
        support[int(code)] = int((values == base[code]).sum()), len(values), _PLACED
    return base, support


def indices_of(
    ordinal: NDArray[Any],
    base: NDArray[Any],
    page: NDArray[Any],
    starts: NDArray[Any],
    leading: NDArray[np.bool_],
) -> tuple[NDArray[Any], int]:
    """Index from 0 over all pages of a search, -1 if unknown; number of pages that restarted."""
    index = np.where((ordinal >= 0) & (ordinal >= base), ordinal - base, -1).astype(np.int32)
    start = starts[page]
    later = (start > 0) & (index >= 0)
    lowest = np.full(len(starts), np.iinfo(np.int64).max)
    np.minimum.at(lowest, page[later & leading], index[later & leading])
    # Ordinals restart on a later page if they begin before its start; else they go on.
    restarts = later & (lowest[page] < start)
    index[restarts] += start[restarts].astype(np.int32)
    return index, len(np.unique(page[restarts]))


def separated(
    shown: Shown, n_ids: int
) -> tuple[Shown, NDArray[np.bool_], NDArray[np.bool_], dict[str, NDArray[Any]]]:
    """One document per position: by the hit list on pages where ordinals collide; these pages,
    those of them with a hit list, and the rows that were left out, by reason."""
    collided = np.zeros(n_ids, dtype=bool)
    collided[shown.page[shown.shared()]] = True
    if not collided.any():
        return shown, collided, collided, {}
    by_place = np.zeros(n_ids, dtype=bool)
    by_place[shown.page[shown.place >= 0]] = True
    by_place &= collided
    unknown = (collided & ~by_place)[shown.page]
    lost = {"two documents at one ordinal of its page": shown.take(unknown)}
    shown = shown.take(~unknown)
    placed = by_place[shown.page] & (shown.place >= 0)
    shown.at = np.where(placed, shown.place, shown.at)
    # Documents that the hit list does not hold give way to those that it holds.
    taken = shown.shared() & (shown.place < 0)
    rest = shown.take(~taken)
    twice = rest.shared(spare_first=True)
    lost["its position is taken by another document"] = shown.take(taken).joined(rest.take(twice))
    return rest.take(~twice), collided, by_place, lost


class Fates:
    """The fate of each of n records, given once: later rules decide only what is left."""

    def __init__(self, n: int) -> None:
        self._codes = np.full(n, -1, dtype=np.int8)
        self._names: list[str] = []

    @property
    def open(self) -> NDArray[np.bool_]:
        return self._codes < 0

    def give(self, rows: NDArray[np.bool_] | NDArray[np.intp], name: str) -> None:
        """Decide rows, a mask or row numbers, that are still open."""
        if name not in self._names:
            self._names.append(name)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = rows[self._codes[rows] < 0]
        self._codes[rows] = self._names.index(name)

    def count(
        self, labels: NDArray[np.integer], *, open_too: bool = False
    ) -> dict[tuple[int, str], int]:
        """Number of records by a label of theirs and fate."""
        if open_too:
            self.give(self.open, "of other reasons")
        if self.open.any():
            raise AssertionError("a record has no fate")
        cells, n = np.unique(
            labels.astype(np.int64) * len(self._names) + self._codes if len(labels) else labels,
            return_counts=True,
        )
        return {
            (int(cell) // len(self._names), self._names[int(cell) % len(self._names)]): int(k)
            for cell, k in zip(cells, n, strict=True)
        }


def counted(rows: list[tuple[str, str, str, int]]) -> pd.DataFrame:
    """The table of counts from (record, action, fate, n)."""
    counts = pd.DataFrame(rows, columns=["record", "action", "fate", "n"])
    counts.insert(2, "used", counts["fate"].isin(USED.values()))
    order = ["record", "used", "action", "n", "fate"]
    return counts.sort_values(order, ascending=[True, False, True, False, True], ignore_index=True)


def n_of(n: int, what: str, several: str | None = None) -> str:
    """A number of things in words."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"
