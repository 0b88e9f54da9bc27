"""What a reader of engines' logs read, and what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

__all__ = ["UBIReport"]


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
        lines = [
            f"Read {self.n_records('event'):,} events and {self.n_records('query'):,} query "
            f"records: {self.n_pages:,} result pages of {len(self.queries):,} queries, "
            f"{self.n_rows:,} shown documents, {self.n_clicks:,} of them clicked."
        ]
        lines += (
            self.notes + self._of_kind("event", "Events") + self._of_kind("query", "Query records")
        )
        lines += self._of_kind("line", "Lines") + self.faulty_lines
        return "\n".join(lines)

    def _of_kind(self, record, title):
        rows = self.counts[self.counts["record"] == record]
        lines = []
        for used in (True, False):
            n = rows[rows["used"] == used].groupby("fate")["n"].sum()
            n = n.sort_values(ascending=False, kind="stable")
            if len(n):
                fates = ", ".join(f"{k:,} {fate}" for fate, k in n.items())
                lines.append(f"{title} {'used' if used else 'left out'}: {n.sum():,} ({fates}).")
        return lines

    def __repr__(self) -> str:
        return (
            f"UBIReport(n_pages={self.n_pages}, n_rows={self.n_rows}, n_clicks={self.n_clicks}, "
            f"events_left_out={self.n_records('event', used=False)})"
        )

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in self.summary().split("\n"))
        return f"<ul>{items}</ul>{self.counts.to_html(index=False)}"
