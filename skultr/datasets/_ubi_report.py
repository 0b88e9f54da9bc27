"""What a reader of engines' logs read, and what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

from ._ubi_fates import n_of


class UBIReport:
    """What :func:`read_ubi` read, what it left out and why, and what it decided.

    Every record has one fate, so that the counts add up to what was read.

    Attributes
    ----------
    counts : DataFrame
        One row per kind of ``record`` ("event", "query" or "line"), ``action`` (the
        ``action_name`` of events) and ``fate``: whether it was ``used``, and the number ``n`` of
        such records. Lines are those that hold no record.
    ordinal_base : dict of str to int
        The ordinal of the first position, by application ("" where records name none).
    from_hits : list of str
        Applications whose shown documents are those of the hit lists.
    queries : DataFrame
        ``qid`` of the log, ``user_query`` (as it was typed most often), ``application`` and the
        number of ``pages``.
    warnings : list of str
        What is likely wrong, and what to do: the texts of the warnings that were given.
    notes : list of str
        What was decided where records are missing or disagree.
    faulty_lines : list of str
        Where the first lines without a record are, and what is wrong with them.
    n_pages, n_rows, n_clicks : int
        Size of the log: result pages, shown documents, and clicked ones.

    See Also
    --------
    read_ubi : Returns the log and this report.
    """

    def __init__(
        self,
        counts: pd.DataFrame,
        ordinal_base: Mapping[str, int],
        from_hits: list[str],
        queries: pd.DataFrame,
        notes: list[str],
        faulty_lines: list[str],
        size: tuple[int, int, int],
    ) -> None:
        self.counts = counts
        self.ordinal_base = dict(ordinal_base)
        self.from_hits = from_hits
        self.queries = queries
        self.warnings: list[str] = []
        self.notes = notes
        self.faulty_lines = faulty_lines
        self.n_pages, self.n_rows, self.n_clicks = size

    def n_records(self, record: str, *, used: bool | None = None) -> int:
        """Number of records of a kind: all, those used, or those left out.

        Parameters
        ----------
        record : {"event", "query", "line"}
        used : bool, default=None
            None counts both.
        """
        rows = self.counts[self.counts["record"] == record]
        return int(rows["n"].sum() if used is None else rows.loc[rows["used"] == used, "n"].sum())

    def summary(self) -> str:
        """The report in plain English, one fact per line."""
        lines = []
        for title, facts in self._chapters():
            lines += [title, *(f"  {fact}" for fact in facts)]
        return "\n".join(lines)

    def _chapters(self):
        """Titles, and the facts under each."""
        yield (
            f"The log has {n_of(self.n_pages, 'result page')} of "
            f"{n_of(len(self.queries), 'query', 'queries')}: "
            f"{n_of(self.n_rows, 'shown document')}, "
            f"{self.n_clicks:,} of them clicked.",
            [],
        )
        if self.warnings:
            yield "Check first:", self.warnings
        yield "How the records were read:", self.notes
        for record, what in (("event", "event"), ("query", "query record"), ("line", "line")):
            for used, verb in ((True, "used"), (False, "left out")):
                if n := self.n_records(record, used=used):
                    of = self.n_records(record)
                    title = f"{n:,} of {n_of(of, what)} {'was' if n == 1 else 'were'} {verb}:"
                    yield (
                        (title if n < of else title.partition(" of ")[2]),
                        self._fates(record, used),
                    )
        if self.faulty_lines:
            yield "The first lines without a record:", self.faulty_lines

    def _fates(self, record, used):
        """One line per fate, most frequent first: number, fate, the actions, what to do."""
        rows = self.counts[(self.counts["record"] == record) & (self.counts["used"] == used)]
        totals = rows.groupby("fate")["n"].sum().sort_values(ascending=False, kind="stable")
        width = len(f"{totals.max():,}")
        for fate, n in totals.items():
            line = f"{n:>{width},}  {_WORDS.get(fate, fate)}"
            if fate == "action that was not asked for":
                line += f": {_actions(rows[rows['fate'] == fate])}"
            yield f"{line}. {_ADVICE[fate]}" if record != "query" and fate in _ADVICE else line

    def __repr__(self) -> str:
        return (
            f"UBIReport(n_pages={self.n_pages}, n_rows={self.n_rows}, n_clicks={self.n_clicks}, "
            f"events_left_out={self.n_records('event', used=False)})"
        )

    def _repr_html_(self) -> str:
        html = ""
        for title, facts in self._chapters():
            items = "".join(f"<li>{escape(fact.strip())}</li>" for fact in facts)
            html += f"<p><b>{escape(title)}</b></p>" + (f"<ul>{items}</ul>" if items else "")
        table = self.counts.to_html(index=False)
        return f"{html}<details><summary>Counts by action</summary>{table}</details>"


#: Fates in the words of the summary, for one record and for many, where they are not their own.
_WORDS = {
    "shown": "as impressions: the document was shown",
    "clicked": "as clicks on a document that was shown",
    "outcome": "as outcomes of a document that was shown",
    "its document was added to the page": "as clicks or outcomes that added their document to "
    "the page",
    "query of a page": "as the query of a page",
    "further page of a query_id": "as a further page of the same query_id",
    "no action_name": "without an action_name",
    "action that was not asked for": "with another action",
    "no query_id": "without a query_id",
    "no object_id": "without an object_id",
    "no user_query": "without a user_query",
    "the same document again on its page": "that say the same of a document of the page again",
    "the same record again": "that are there again (by _id, else by content)",
    "left out by keep": "of clients that keep= leaves out",
    "impression of an application read by hit lists": "that are impressions, where the hit lists "
    "were taken",
    "no position": "without a usable ordinal and without a place in the hit list",
    "no query record and no user_query": "without a query record and without a user_query",
    "two documents at one ordinal of its page": "of pages with two documents at one ordinal, "
    "without a hit list",
    "its position is taken by another document": "at the place of another document of the page",
    "its impression was left out": "that are clicks or outcomes whose impression was left out",
    "nothing shown on its page": "of pages on which nothing was shown",
    "its document was not shown": "that are clicks or outcomes of a document that was not shown",
    "another record of its query_id": "beside the record that was taken for the query_id",
    "another record of its query_id, with another user_query": "beside the record that was taken "
    "for the query_id, with another user_query",
    "neither a query nor an event": "that are neither a query nor an event",
    "no JSON object": "that are no JSON object",
}
#: What to do where records are left out.
_ADVICE = {
    "action that was not asked for": "Name those that count in clicks= or outcomes=.",
    "no query_id": "Send the query_id with every event.",
    "no object_id": "Send event_attributes.object.object_id with impressions and clicks.",
    "no position": "Send event_attributes.position.ordinal with impressions and clicks.",
    "no query record and no user_query": "Pass the query records of the same days.",
    "two documents at one ordinal of its page": "Check how the client counts positions.",
    "its position is taken by another document": "Check how the client counts positions.",
    "nothing shown on its page": "If only some pages have impressions, read the others apart.",
    "neither a query nor an event": "Pass other indices apart, or not at all.",
    "no JSON object": "Write the file again.",
}

#: The number of actions that a line names.
_MOST_ACTIONS = 6


def _actions(rows):
    """The most frequent actions, with their numbers."""
    rows = rows.sort_values("n", ascending=False, kind="stable")
    names = [f"{name} {n:,}" for name, n in zip(rows["action"], rows["n"], strict=True)]
    if len(names) > _MOST_ACTIONS:
        names[_MOST_ACTIONS:] = [f"{len(names) - _MOST_ACTIONS} more in report.counts"]
    return ", ".join(names)
