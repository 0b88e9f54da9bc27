"""What becomes of the records of a log: each has one fate, which the report tells in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

#: What becomes of a record that is in the log, in words for one record and for many.
_USED = {
    "shown": "as impressions: the document was shown",
    "clicked": "as clicks on a document that was shown",
    "outcome": "as outcomes of a document that was shown",
    "its document was added to the page": "as clicks or outcomes that added their document to "
    "the page",
    "query of a page": "as the query of a page",
    "further page of a query_id": "as a further page of the same query_id",
}
OTHER_ACTION = "action that was not asked for"
AGAIN = "the same document again on its page"
TAKEN = "its position is taken by another document"
COLLIDED = "two documents at one ordinal of its page"
NOTHING_SHOWN = "nothing shown on its page"
#: The same of records that were left out, in the order of the rules.
_LEFT_OUT = {
    "the same record again": "that are there again (by _id, else by content)",
    "left out by keep": "of clients that keep= leaves out",
    "no action_name": "without an action_name",
    OTHER_ACTION: "with another action",
    "no query_id": "without a query_id",
    "no object_id": "without an object_id",
    "no query record and no user_query": "without a query record and without a user_query",
    "impression of an application read by hit lists": "that are impressions, where the hit lists "
    "were taken",
    "no position": "without a usable ordinal and without a place in the hit list",
    AGAIN: "that say the same of a document of the page again",
    COLLIDED: "of pages with two documents at one ordinal, without a hit list",
    TAKEN: "at the place of another document of the page",
    "no user_query": "without a user_query",
    "its impression was left out": "that are clicks or outcomes whose impression was left out",
    NOTHING_SHOWN: "of pages on which nothing was shown",
    "its document was not shown": "that are clicks or outcomes of a document that was not shown",
    "another record of its query_id": "beside the record that was taken for the query_id",
    "another record of its query_id, with another user_query": "beside the record that was taken "
    "for the query_id, with another user_query",
}
#: What became of records, in the words of the report.
FATES = _USED | _LEFT_OUT
NAMES = [*FATES]


def give_fates(table: pd.DataFrame, fates: Mapping[str, Any]) -> None:
    """Decide records that have no fate yet: the first fate whose mask or numbers hold them."""
    for fate, rows in fates.items():
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        is_open = table["fate"].to_numpy()[rows] < 0
        table.loc[rows[is_open], "fate"] = NAMES.index(fate)


def counted(rows: list[tuple[str, str, str, int]]) -> pd.DataFrame:
    """The table of counts from (record, action, fate, n)."""
    counts = pd.DataFrame(rows, columns=["record", "action", "fate", "n"])
    counts.insert(2, "used", counts["fate"].isin([*_USED]))
    order = ["record", "used", "action", "n", "fate"]
    return counts.sort_values(order, ascending=[True, False, True, False, True], ignore_index=True)


def n_of(n: int, what: str, several: str | None = None) -> str:
    """A number of things in words."""
    plural = several or f"{what}s"
    return f"{n:,} {what if n == 1 else plural}"
