"""Query records to pages: the text, the application and the hit list of each `query_id`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ._ubi_fates import USED, Fates
from ._ubi_positions import LEAST_SHARE, lookup, new


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
