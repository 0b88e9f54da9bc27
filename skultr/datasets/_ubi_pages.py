"""The rules: which events are impressions and clicks of which page, and where documents stood.

Records, pages and rows are frames of codes, where -1 is unknown. A page is the code of a
``query_id``, and the number of its row; an application beside all of a table is its last one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._texts import normal_text
from ._ubi_records import NO_ORDINAL, NO_TIME, Records

#: From this share of events on that contradict their page the user is warned.
_MUCH = 0.1
#: Below this share of pages that begin at the base that was found the user is warned.
_LEAST_CONFIRMED = 0.5
#: Hit lists so many times as long as the deepest of so many clicks hold more than was seen.
_MUCH_LONGER, _ENOUGH_CLICKS = 2, 100
#: An application counts from 0 if such a share of its pages does: a stray 0 decides nothing.
_LEAST_SHARE = 0.05
#: Names of actions that show documents, whatever their pages look like.
_SHOWS = re.compile("impress|view|show|display|expos|render|seen", re.IGNORECASE)
#: Impressions stand in a row on such a share of pages.
_MOST_IN_A_ROW = 0.5
#: The user of pages that name none, where others do.
_UNKNOWN = "unknown"

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
_AGAIN = "the same document again on its page"
_TAKEN = "its position is taken by another document"
_COLLIDED = "two documents at one ordinal of its page"
_NOTHING = "nothing shown on its page"
#: The same of records that were left out, in the order of the rules.
_LEFT_OUT = {
    "the same record again": "that are there again (by _id, else by content)",
    "left out by keep": "of clients that keep= leaves out",
    "no action_name": "without an action_name",
    "action that was not asked for": "with another action",
    "no query_id": "without a query_id",
    "no object_id": "without an object_id",
    "no query record and no user_query": "without a query record and without a user_query",
    "impression of an application read by hit lists": "that are impressions, where the hit lists "
    "were taken",
    "no position": "without a usable ordinal and without a place in the hit list",
    _AGAIN: "that say the same of a document of the page again",
    _COLLIDED: "of pages with two documents at one ordinal, without a hit list",
    _TAKEN: "at the place of another document of the page",
    "no user_query": "without a user_query",
    "its impression was left out": "that are clicks or outcomes whose impression was left out",
    _NOTHING: "of pages on which nothing was shown",
    "its document was not shown": "that are clicks or outcomes of a document that was not shown",
    "another record of its query_id": "beside the record that was taken for the query_id",
    "another record of its query_id, with another user_query": "beside the record that was taken "
    "for the query_id, with another user_query",
}
#: What became of records, in the words of the report.
FATES = _USED | _LEFT_OUT
_NAMES = [*FATES]


@dataclass(frozen=True)
class Rules:
    """The parameters of :func:`skultr.datasets.read_ubi` that decide."""

    clicks: tuple[str, ...]
    outcomes: tuple[str, ...]
    source: str  # of what was shown: "auto", "events" or "hits"
    impressions: tuple[str, ...]
    page_size: int | None
    ordinal_base: int | Mapping[str, int] | None
    filters: tuple[str, ...]
    not_shown: str
    keep: Callable[[str], bool] | None


class PageReader:
    """The log and what its report says: each step gives fates to events, or says what it did."""

    def __init__(self, records: Records, rules: Rules) -> None:
        self.rules = rules
        self.texts = records.texts
        self.applications = [*self.texts["application"], ""]  # -1 is one without a name
        self.normal, self.code_of_text = normal_texts(self.texts["text"])
        queries = records.columns("queries")
        self.hits = queries.pop("hits")
        self.events, self.queries = map(pd.DataFrame, (records.columns("events"), queries))
        for table in (self.events, self.queries):  # a text of blanks is none
            table["text"] = table["text"].where(self.code_of_text[table["text"]] >= 0, -1)
            table["fate"] = np.int8(-1)
        self.columns = ["click", *(f"outcome_{name}" for name in rules.outcomes)]
        self.notes: list[str] = []
        self.doubts: list[str] = []

    def read(self) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
        """The log, what its report says, and what is likely wrong and what to do about it."""
        self.leave_out()
        rows = self.rows_of_events()
        pages, hits = self.make_pages()
        rows = self.place_rows(rows, pages, hits)
        rows = self.choose_source(rows, pages)
        likely = self.likely_impressions(rows, pages, hits)
        if likely and self.rules.source == "auto":
            source = _only_source(pages)
            self.doubts.append(f"{likely}{source and f'; if not, pass impressions={source!r}'}.")
        self.find_bases(rows, pages)
        self.find_indices(rows, pages)
        shown, lost = self.separate(self.show(rows, pages, hits), pages)
        if shown.empty:
            raise ValueError(self.nothing_shown() + (likely and f" {likely}."))
        shown = self.click(rows[rows["role"] >= 2].copy(), pages, shown, lost)
        return self.reading(rows, pages, shown)

    def note(self, n, what, text):
        """Say of how many things something holds, if it does of any."""
        if n:
            self.notes.append(f"{n_of(n, what)} {text}")

    def without(self, rows, out, fate):
        """The other rows; the events of those that are out have this fate."""
        _give(self.events, rows.index[out], fate)
        return rows[~out]

    # Records --------------------------------------------------------------------------
    def leave_out(self):
        """Records that are there twice, of clients to leave out, or without a query_id."""
        for table in (self.events, self.queries):
            # As in an index, the last record of an id stands. Records that have lost their
            # query_id may be equal and not the same.
            again = table.pop("key").duplicated(keep="last") & (table["query_id"] >= 0)
            _give(table, again, "the same record again")
        if self.rules.keep is not None:
            out = np.array([*(not self.rules.keep(each) for each in self.texts["client"]), False])
            for table in (self.events, self.queries):
                _give(table, out[table["client"]], "left out by keep")
            # Events that name no client are of the client of their query.
            pages = self.queries["query_id"][out[self.queries["client"]]]
            on_page = self.events["query_id"].isin(pages[pages >= 0])
            _give(self.events, (self.events["client"] < 0) & on_page, "left out by keep")
        _give(self.queries, self.queries["query_id"] < 0, "no query_id")

    def rows_of_events(self):
        """Events with a page, a document and a role: 1 is an impression, 2 a click, from 3 on the
        outcomes. The index is the number of the event."""
        roles = dict.fromkeys(map(plain, self.rules.impressions), 1)
        roles |= dict.fromkeys(map(plain, self.rules.clicks), 2)
        roles |= {plain(name): 3 + i for i, name in enumerate(self.rules.outcomes)}
        codes = [roles.get(plain(action), 0) for action in self.texts["action"]]
        events = self.events
        events["role"] = np.array([*codes, 0], dtype=np.int32)[events["action"]]
        is_other = (events["fate"] < 0) & (events["role"] == 0) & (events["action"] >= 0)
        is_other &= (events["query_id"] >= 0) & (events["doc"] >= 0)
        others = events.loc[is_other, ["action", "query_id", "doc", "ordinal", "text"]]
        self.others = others.rename(columns={"query_id": "page"})
        for out, fate in (
            (events["action"] < 0, "no action_name"),
            (events["role"] == 0, "action that was not asked for"),
            (events["query_id"] < 0, "no query_id"),
            (events["doc"] < 0, "no object_id"),
        ):
            _give(events, out, fate)
        self.events = events[["action", "fate"]].copy()  # the rows hold all else
        rows = events[events["fate"] < 0].drop(columns=["action", "client", "fate"])
        return rows.rename(columns={"query_id": "page"})

    # Pages ----------------------------------------------------------------------------
    def make_pages(self):
        """What query records say of each page, and the hit lists: where each document of a page
        stood first, from 0 over all pages of a search."""
        queries = self.queries
        queries["start"], unknown = _starts(queries, self.rules.page_size)
        known = queries[queries["fate"] < 0]
        # The first record with a text and hits; then with a text.
        best = known.iloc[
            np.lexsort((known["time"], known["n_hits"] == 0, known["text"] < 0))
        ].drop_duplicates("query_id")
        pages = best.rename_axis("record").reset_index().set_index("query_id")
        pages = pages[["text", "application", "user", "filters", "record"]]
        pages = pages.reindex(range(len(self.texts["query_id"])), fill_value=-1)
        start = known.groupby("query_id")["start"].min()
        pages["start"] = start.reindex(pages.index, fill_value=0)
        self.requests = _requests(known)
        hits, n_unlike = self.first_lists(known)
        self.note_pages(int(unknown[known.index].sum()), n_unlike)
        return pages, hits

    def first_lists(self, known):
        """The first list of each query_id and start, and the number of records unlike it."""
        lists = known[known["n_hits"] > 0]
        lists = lists.iloc[np.argsort(lists["time"], kind="stable")]
        n_hits = self.queries["n_hits"].to_numpy()
        begin = np.cumsum(n_hits) - n_hits
        several = lists[lists.duplicated(["query_id", "start"], keep=False)]
        content = pd.Series(
            [self.hits[begin[row] : begin[row] + n_hits[row]].tobytes() for row in several.index],
            several.index,
            dtype=object,
        )
        first = content.groupby([several["query_id"], several["start"]]).transform("first")
        record = np.repeat(self.queries.index, n_hits)
        start = self.queries["start"].to_numpy()[record]
        hits = pd.DataFrame(
            {
                "page": self.queries["query_id"].to_numpy()[record],
                "doc": self.hits,
                "place": start + np.arange(len(record)) - begin[record],
                "start": start,
            }
        )
        taken = record.isin(lists.drop_duplicates(["query_id", "start"]).index)
        hits = hits[taken & (hits["doc"] >= 0)]
        hits = hits.iloc[np.lexsort((hits["place"], hits["doc"], hits["page"]))]
        return hits.drop_duplicates(["page", "doc"]), int((content != first).sum())

    def note_pages(self, n_unknown, n_unlike):
        for name in self.rules.filters:
            if not any(f", {name}=" in f", {text}" for text in self.texts["filters"]):
                self.doubts.append(
                    f"No query record has {name!r} in its query_attributes: check filters."
                )
        self.note(
            n_unlike,
            "hit list",
            "of query records unlike that of an earlier record of the query_id, which was taken.",
        )
        if n_unknown:
            self.doubts.append(
                f"{n_unknown:,} query records are of a later page and do not say how many results "
                "came before: their positions begin at 1. Pass page_size."
            )

    def place_rows(self, rows, pages, hits):
        """Rows of pages with a text, with their place in the hit list; completes the pages."""
        for name in ("text", "application", "user"):
            # What no query record says is the most frequent value of the events.
            found = rows[(_of_page(pages, name, rows) < 0) & (rows[name] >= 0)]
            best = _most_frequent(found["page"], found[name])
            pages.loc[best.index, name] = best
            if name == "text" and len(best):
                self.notes.append(
                    f"{len(best):,} pages have no query record with a text: their user_query is "
                    "that of their events."
                )
        no_text = _of_page(pages, "text", rows) < 0
        rows = self.without(rows, no_text, "no query record and no user_query")
        self.note_differences(rows, pages)
        # Who counted the ordinals: the application of the event, else of its page.
        own = rows["application"]
        other = _of_page(pages, "application", rows)
        place = _looked_up(hits, "place", rows)
        rows = rows.assign(writer=own.where(own >= 0, other), place=place)
        return rows.drop(columns=["application", "text", "user"])

    def note_differences(self, rows, pages):
        """Events that do not say what their page says: is a query_id more than one page?"""
        for name, what, advice in (
            (
                "user",
                "user",
                "If result pages are stored and served again, their query_id is not one page; if "
                'a server writes the query records, pass user="session_id" or "user_id".',
            ),
            (
                "text",
                "user_query",
                "If a query_id stands for a visit and not for one search, correct the records.",
            ),
            ("application", "application", "Ordinals count from the base of the events'."),
        ):
            found = rows[name].to_numpy()
            taken = _of_page(pages, name, rows)
            if name == "text":
                found = self.code_of_text[found]
                taken = self.code_of_text[taken]
            if n := int(((found >= 0) & (found != taken)).sum()):
                note = (
                    f"{n_of(n, 'event')} {'has' if n == 1 else 'have'} another {what} than the "
                    f"page, whose {what} was taken. {advice}"
                )
                doubtful = name != "application" and n > _MUCH * len(found)
                (self.doubts if doubtful else self.notes).append(note)

    def choose_source(self, rows, pages):
        """Rows without the impressions of applications whose hit lists say what was shown."""
        pages["by_hits"] = self.rules.source == "hits"
        if self.rules.source == "auto":
            usable = (rows["role"] == 1) & ((rows["ordinal"] >= 0) | (rows["place"] >= 0))
            by_events = _of_page(pages, "application", rows[usable])
            pages["by_hits"] = ~pages["application"].isin(by_events)
        by_hits = _of_page(pages, "by_hits", rows)
        out = (rows["role"] == 1) & by_hits
        rows = self.without(rows, out, "impression of an application read by hit lists")
        return rows.assign(by_hits=by_hits[~out])

    def likely_impressions(self, rows, pages, hits):
        """What to pass if other actions are the impressions; an empty text if none looks so."""
        others = self.others.drop_duplicates(["action", "page", "doc"])
        at = others["ordinal"].where(others["ordinal"] >= 0, _looked_up(hits, "place", others))
        has_text = (others["text"] >= 0) | (_of_page(pages, "text", others) >= 0)
        shown, clicked = (rows[rows["role"] == role] for role in (1, 2))
        others = others.assign(at=at)[(at >= 0) & has_text & ~_key(others).isin(_key(shown))]
        n_shown, n_clicked = (
            each.groupby(_of_page(pages, "application", each))["page"].size()
            for each in (shown, clicked.drop_duplicates(["page", "doc"]))
        )
        names = self.texts["action"]
        found = {}
        by_writer = [_of_page(pages, "application", others), "action"]
        for (application, action), each in others.groupby(by_writer):
            # What was shown is more than what was clicked, and than strays beside impressions.
            enough = max(n_clicked.get(application, 0), _MUCH * n_shown.get(application, 0))
            alike = _SHOWS.search(names[action]) or _are_in_a_row(each)
            if len(each) > enough and alike:
                found.setdefault(names[action], []).append(each)
        if not found:
            return ""
        numbers = ", ".join(f"{name!r} ({_documents(each)})" for name, each in found.items())
        known = [name for name in names if plain(name) in map(plain, self.rules.impressions)]
        return (
            f"Events that were not read look like impressions: {numbers}. If they say what was "
            f"shown, pass impressions={[*known, *found]}"
        )

    # Positions ------------------------------------------------------------------------
    def find_bases(self, rows, pages):
        """The ordinal of the first position by application, 0 or 1 unless it was given.

        ``support`` holds shifts against base 0: of the pages of an application, or of clicks from
        their place, where hit lists say what was shown; and what it is that stands there.
        """
        self.base = np.ones(len(self.applications), dtype=np.int64)
        self.support = {}
        leading = rows[((rows["role"] == 1) | rows["by_hits"]) & (rows["ordinal"] >= 0)]
        first = leading.groupby("page").agg({"ordinal": "min", "writer": "first"})
        start = pages["start"][first.index]
        shift = first["ordinal"] - start.where(first["ordinal"] >= start, 0)  # as if all restarted
        for code, shifts in shift.groupby(first["writer"]):
            self.base[code] = int((shifts == 0).mean() < _LEAST_SHARE)
            self.support[code] = shifts, "pages begin there"
        placed = leading[leading["by_hits"] & (leading["place"] >= 0)]
        placed = placed[_of_page(pages, "start", placed) == 0]
        for code, shifts in (placed["ordinal"] - placed["place"]).groupby(placed["writer"]):
            self.base[code] = int((shifts == 0).sum() < (shifts == 1).sum())
            self.support[code] = shifts, "clicks and outcomes stand at their place in the hit list"
        given = self.rules.ordinal_base
        if isinstance(given, Mapping):
            if unknown := {*given} - {*self.applications}:
                raise ValueError(
                    f"ordinal_base names the applications {sorted(unknown)}, which the records "
                    f"do not have; found {sorted(self.applications)}."
                )
            self.base[[self.applications.index(name) for name in given]] = list(given.values())
        elif given is not None:
            self.base[:] = given

    def find_indices(self, rows, pages):
        """Add the index from 0 over all pages of a search that each ordinal means; -1 if none."""
        ordinal = rows["ordinal"]
        base = self.base[rows["writer"]]
        rows["index"] = np.where((ordinal >= 0) & (ordinal >= base), ordinal - base, -1)
        start = self.starts_of(rows, pages)
        later = (start > 0) & (rows["index"] >= 0)
        leading = (rows["role"] == 1) | rows["by_hits"]
        lowest = (
            rows["index"].where(later & leading).groupby([rows["page"], start]).transform("min")
        )
        # Ordinals restart on a later page if they begin before its start; else they go on.
        restarts = later & (lowest < start)
        rows["index"] += np.where(restarts, start, 0)
        if n := rows["page"][restarts].nunique():
            self.notes.append(
                f"Ordinals restart on {n_of(n, 'later page')}: the number of earlier results was "
                "added."
            )
        below = (ordinal >= 0) & (ordinal < base)
        none = ordinal == NO_ORDINAL
        for wrong, what in ((below, "lies below the base"), (none, "is no whole number from 0")):
            if n := int(wrong.sum()):
                self.notes.append(f"The ordinal {what} in {n_of(n, 'event')} and was not used.")

    def starts_of(self, rows, pages):
        """Results before the page of each event: by its place in the hit list, else by its time,
        where the records of a query_id request several pages."""
        start = pd.Series(_of_page(pages, "start", rows), rows.index)
        several = rows[rows["page"].isin(self.requests["page"])]
        by_place = self.requests.assign(place=self.requests["start"]).drop(columns="time")
        known = several[several["time"] < NO_TIME]
        for events, requests, on in (
            (known, self.requests, "time"),
            (several[several["place"] >= 0], by_place, "place"),
        ):
            if len(events):
                start.update(_last_before(events, requests, on))
        return start.astype(np.int64)

    def show(self, rows, pages, hits):
        """Documents by page: where they stood (``at``), place, event (-1 for a hit)."""
        places_of_clicks = rows["place"][rows["by_hits"]]
        rows = rows[rows["role"] == 1]
        rows = rows.assign(at=rows["index"].where(rows["index"] >= 0, rows["place"]))
        rows = self.without(rows, rows["at"] < 0, "no position")
        rows = rows.iloc[np.lexsort((rows["at"], rows["doc"], rows["page"]))]
        again = rows.duplicated(["page", "doc"])
        self.note(
            (rows["at"] != rows["at"].where(~again).ffill()).sum(),
            "repeated impression",
            "of a document stood further down its page than the first place, which was taken.",
        )
        rows = self.without(rows, again, _AGAIN)
        self.note(
            (rows["index"] < 0).sum(),
            "impression",
            "without an ordinal: the place in the hit list was taken.",
        )
        self.note_disagreement(rows, hits)
        shown = rows.rename_axis("event").reset_index()[["page", "doc", "at", "place", "event"]]
        by_hits = self.hits_shown(pages, hits, places_of_clicks)
        return pd.concat([shown, by_hits], ignore_index=True)

    def note_disagreement(self, rows, hits):
        """Ordinals that hit lists do not confirm."""
        self.note(
            (rows["page"].isin(hits["page"]) & (rows["place"] < 0)).sum(),
            "impression",
            "of a document that is not in the hit list of its page.",
        )
        known = rows[(rows["index"] >= 0) & (rows["place"] >= 0)]
        if n := int((known["index"] != known["place"]).sum()):
            self.notes.append(
                f"The ordinals of {n:,} of {n_of(len(known), 'impression')} are not their places "
                "in the hit lists, and were taken where no two of a page are equal."
            )

    def hits_shown(self, pages, hits, places_of_clicks):
        """The hit lists of applications without impression events."""
        size = self.rules.page_size
        page = pages.loc[hits["page"]]
        hits = hits[(page["by_hits"] & (page["text"] >= 0)).to_numpy()]
        if size is not None:
            hits = hits[hits["place"] - hits["start"] < size]
        elif len(hits):
            deepest = max(places_of_clicks, default=-1) + 1
            enough = len(places_of_clicks) >= _ENOUGH_CLICKS
            longest = hits["place"].max() + 1
            doubtful = enough and longest > _MUCH_LONGER * deepest
            (self.doubts if doubtful else self.notes).append(
                f"Hit lists hold up to {longest:,} documents, the deepest click or outcome "
                f"stands at {deepest:,}: if pages show fewer, pass page_size."
            )
        return hits[["page", "doc", "place"]].assign(at=hits["place"], event=-1)

    def separate(self, shown, pages):
        """One document per position: by the hit list on pages where ordinals collide; and the
        documents that were left out."""
        collided = shown["page"].isin(shown["page"][shown.duplicated(["page", "at"])])
        listed = collided & (shown["place"] >= 0)
        pages["by_place"] = pages.index.isin(shown["page"][listed])
        unknown = shown[collided & ~_of_page(pages, "by_place", shown)]
        rest = shown.drop(unknown.index)
        rest["at"] = rest["at"].where(~listed[rest.index], rest["place"])
        # Documents that the hit list does not hold give way to those that it holds.
        taken = rest.duplicated(["page", "at"], keep=False) & (rest["place"] < 0)
        taken |= rest[~taken].duplicated(["page", "at"]).reindex(rest.index, fill_value=False)
        shown = rest[~taken]
        gone = rest[taken]
        for documents, fate in ((unknown, _COLLIDED), (gone, _TAKEN), (shown, "shown")):
            _give(self.events, documents["event"][documents["event"] >= 0], fate)
        n = unknown["page"].nunique()
        n_by_place = int(pages["by_place"].sum())
        self.note(
            n + n_by_place,
            "page",
            f"had two documents at one ordinal: on {n_by_place:,} the places in the hit list were "
            f"taken, and {n:,} without a hit list were left out.",
        )
        return shown, pd.concat([unknown, gone])

    def nothing_shown(self):
        """What there was instead of shown documents."""
        actions = ["without an action_name", *self.texts["action"]]
        label = self.events["action"] + 1
        found = [f"{n:,} {actions[i]}" for i, n in label.value_counts().sort_index().items()]
        names = [*map(plain, self.rules.impressions)]
        is_impression = np.array([plain(action) in names for action in actions])
        fates = self.events["fate"][is_impression[label]].value_counts().sort_index()
        reasons = [f"{n:,} {_NAMES[fate]}" for fate, n in fates.items()]
        n_hits = self.queries["n_hits"]
        return (
            "No document was shown on any page, and clicks without impressions say nothing. Found "
            f"{n_of(len(label), 'event')} ({', '.join(found) or 'none'}; impressions left out: "
            f"{', '.join(reasons) or 'none'}), {n_of(len(n_hits), 'query record')} and "
            f"{n_of(int((n_hits > 0).sum()), 'hit list')}. Expected events with action_name "
            f"{' or '.join(map(repr, self.rules.impressions))} (name others in impressions=), a "
            "query_id, event_attributes.object.object_id and event_attributes.position.ordinal; "
            "or query records with a query_id, user_query and query_response_hit_ids, where "
            f'impressions= is "auto" or "hits" (found {self.rules.source!r}).'
        )

    # Clicks ---------------------------------------------------------------------------
    def click(self, rows, pages, shown, lost):
        """The shown documents with a column for clicks and each outcome, once per document."""
        rows = self.without(rows, rows.duplicated(["page", "doc", "role"]), _AGAIN)
        missing = rows[_looked_up(shown, "at", rows) < 0]
        shown = self.add_documents(missing, pages, shown[["page", "doc", "at"]], lost)
        rows = rows.assign(at=_looked_up(shown, "at", rows))
        rows = rows[rows["at"] >= 0]
        added = rows.index.isin(missing.index)
        _give(self.events, rows.index[added], "its document was added to the page")
        _give(self.events, rows.index[rows["role"] == 2], "clicked")
        _give(self.events, rows.index, "outcome")
        for role, name in enumerate(self.columns, start=2):
            clicked = _key(rows[rows["role"] == role])
            shown[name] = _key(shown).isin(clicked).astype(np.int8)
        moved = (rows["index"] >= 0) & (rows["index"] != rows["at"]) & ~added
        self.note(
            (moved & ~_of_page(pages, "by_place", rows)).sum(),
            "click",
            "(or outcomes) with another ordinal than the impression of the document, which was "
            "taken.",
        )
        return shown

    def add_documents(self, rows, pages, shown, lost):
        """The shown documents and, on pages with some, those that were clicked beside them."""
        rows = self.without(rows, ~rows["page"].isin(shown["page"]), _NOTHING)
        rows = self.without(rows, _key(rows).isin(_key(lost)), "its impression was left out")
        if self.rules.not_shown == "drop":
            _give(self.events, rows.index, "its document was not shown")
            return shown.copy()
        by_place = _of_page(pages, "by_place", rows) | rows["by_hits"]
        place_first = np.where(by_place, rows["place"] >= 0, rows["index"] < 0)
        rows = rows.assign(at=rows["place"].where(place_first, rows["index"]))
        # The interaction of a document that says where it stood.
        new = rows[rows["at"] >= 0]
        new = new.iloc[np.lexsort((new["at"], new["doc"], new["page"]))]
        new = new.drop_duplicates(["page", "doc"])[["page", "doc", "at"]]
        _give(self.events, rows.index[~_key(rows).isin(_key(new))], "no position")
        joined = pd.concat([shown, new], ignore_index=True)
        joined = joined[~joined.duplicated(["page", "at"])].copy()
        _give(self.events, rows.index[_looked_up(joined, "at", rows) < 0], _TAKEN)
        self.note(
            len(joined) - len(shown),
            "clicked document",
            "without an impression joined the page where the click (or outcome) says; "
            'not_shown="drop" drops such clicks.',
        )
        return joined

    # Results --------------------------------------------------------------------------
    def reading(self, rows, pages, shown):
        """The log, what the report says, and the doubts."""
        shown = shown.sort_values(["page", "at"])
        page = shown["page"].to_numpy()
        in_log = pages.index.isin(page)
        self.close_queries(pages, in_log)
        qid, queries = self.query_table(pages[in_log])
        log = {
            "session": _category(page, self.texts["query_id"]),
            "qid": pd.Categorical.from_codes(qid[page], queries["qid"]),
            "doc": _category(shown["doc"].to_numpy(), self.texts["doc"]),
            "position": (shown["at"].to_numpy() + 1).astype(np.int32),
        }
        user = pages["user"].to_numpy()
        if user[page].max() >= 0:
            log["user"] = _category(user[page], self.texts["user"])
            self.note((user[in_log] < 0).sum(), "page", f"of {in_log.sum():,} named no user.")
        log |= {name: shown[name].to_numpy() for name in self.columns}
        from_hits = np.unique(pages["application"][in_log & pages["by_hits"]])
        from_hits = [self.applications[code] for code in from_hits]
        bases = np.unique(rows["writer"][in_log[rows["page"]] & (rows["ordinal"] >= 0)])
        self.notes[:0] = [
            *map(self.base_note, bases),
            *(
                f"What was shown{name and f' in {name}'} is what the hit lists hold."
                for name in from_hits
            ),
        ]
        found = {
            "counts": self.counts(),
            "ordinal_base": {self.applications[code]: int(self.base[code]) for code in bases},
            "from_hits": from_hits,
            "queries": queries,
            "notes": self.notes,
        }
        return pd.DataFrame(log), found, self.doubts

    def close_queries(self, pages, in_log):
        """Give the query records that are open their fates."""
        queries = self.queries[self.queries["fate"] < 0]
        page = pages.loc[queries["query_id"]]
        record = page["record"].to_numpy()
        text = self.code_of_text[queries["text"]]
        taken = self.code_of_text[page["text"]]
        place = self.queries[["from", "page"]].to_numpy()
        another = (place[queries.index] != place[record]).any(axis=1)
        for rows, fate in (
            (queries["text"] < 0, "no user_query"),
            (~in_log[queries["query_id"]], _NOTHING),
            (record == queries.index, "query of a page"),
            ((queries["n_hits"] > 0) & another, "further page of a query_id"),
            (text != taken, "another record of its query_id, with another user_query"),
            (text == taken, "another record of its query_id"),
        ):
            _give(self.queries, queries.index[rows], fate)

    def query_table(self, pages):
        """Code of the qid of each page of the log, and the queries in the order of the codes."""
        keys = pages[["text", "filters", "application"]].copy()
        keys["text"] = self.code_of_text[keys["text"]]
        several = keys["application"][keys["application"] >= 0].nunique() > 1
        if not several:  # pages that name none are of the only one
            keys["application"] = keys["application"].max()

        def qid(text, filters, application):
            name = self.normal[text]
            name += f" [{self.texts['filters'][filters]}]" if filters >= 0 else ""
            named = several and application >= 0
            return f"{self.applications[application]}: {name}" if named else name

        different = keys.drop_duplicates()
        names = pd.Series([qid(*key) for key in different.itertuples(index=False)], dtype=object)
        names = keys.merge(different.assign(qid=names.to_numpy()), how="left")["qid"]
        codes, names = pd.factorize(names.to_numpy(dtype=object))
        code = pd.Series(codes, keys.index)
        typed = _most_frequent(code, pages["text"])
        application = keys["application"].groupby(code).first()
        queries = pd.DataFrame(
            {
                "qid": names,
                "user_query": [self.texts["text"][i] for i in typed],
                "application": [self.applications[i] for i in application],
                "pages": np.bincount(codes),
            }
        )
        return code, queries

    def base_note(self, code):
        """What ordinals count from; a doubt if few pages confirm a base that was found."""
        name = self.applications[code]
        given = self.rules.ordinal_base
        note = f"Ordinals{name and f' of {name}'} count from {self.base[code]}"
        if given is not None and (not isinstance(given, Mapping) or name in given):
            return f"{note}, as ordinal_base says."
        shifts, what = self.support.get(code, (pd.Series(dtype=int), "pages begin there"))
        n = int((shifts == self.base[code]).sum())
        note += f": {n:,} of {len(shifts):,} {what}."
        if n < _LEAST_CONFIRMED * len(shifts):
            self.doubts.append(
                f"{note} Check where the clients begin to count, and pass ordinal_base."
            )
        return note

    def counts(self):
        """Numbers of records as (record, action, fate, n)."""
        actions = [*self.texts["action"], ""]
        return [
            (record, actions[action], _NAMES[fate], n)
            for record, table in (
                ("event", self.events),
                ("query", self.queries.assign(action=-1)),
            )
            for (action, fate), n in table.groupby(["action", "fate"]).size().items()
        ]


def _starts(queries, page_size):
    """Results before each record's page, and whether a later page has no size to tell."""
    page = queries["page"]
    size = queries["size"]
    size = size.where(size > 0, page_size or -1)
    # Pages count from 0 where an application has pages 0, and not just a stray one.
    is_0 = (page == 0).where(page >= 0).astype(float)
    share = is_0.groupby(queries["application"]).transform("mean")
    first = np.where(share >= _LEAST_SHARE, 0, 1)
    later = (queries["from"] < 0) & (page > first)
    start = queries["from"].clip(0).where(~later | (size < 0), (page - first) * size)
    return start.astype(np.int64), later & (size < 0)


def normal_texts(texts: list[str]) -> tuple[list[str], NDArray[Any]]:
    """Normalized texts, and the code of each text's; -1 for blanks, and for no text (last)."""
    table = {"": -1}
    codes = [table.setdefault(normal_text(text), len(table) - 1) for text in texts]
    return list(table)[1:], np.array([*codes, -1])


def n_of(n: int, what: str, several: str | None = None) -> str:
    """A number of things in words."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def counted(rows: list[tuple[str, str, str, int]]) -> pd.DataFrame:
    """The table of counts from (record, action, fate, n)."""
    counts = pd.DataFrame(rows, columns=["record", "action", "fate", "n"])
    counts.insert(2, "used", counts["fate"].isin([*_USED]))
    order = ["record", "used", "action", "n", "fate"]
    return counts.sort_values(order, ascending=[True, False, True, False, True], ignore_index=True)


def _give(table, rows, fate):
    """Decide records, a mask or numbers, that have no fate yet: later rules take what is left."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    rows = rows[table["fate"].to_numpy()[rows] < 0]
    table.loc[rows, "fate"] = _NAMES.index(fate)


def _of_page(pages, name, rows):
    """What the page of each row has in a column."""
    return pages[name].to_numpy()[rows["page"]]


def _key(rows):
    """One number per page and document."""
    return pd.Index(rows["page"].to_numpy(np.int64) << 32 | rows["doc"].to_numpy())


def _looked_up(table, name, rows):
    """The value that the page and document of each row have in a table; -1 if it lacks them."""
    values = pd.Series(table[name].to_numpy(), _key(table))
    return values.reindex(_key(rows), fill_value=-1).to_numpy()


def _most_frequent(keys, values):
    """The value that is most frequent with each key; of several the largest."""
    counts = pd.DataFrame({"key": keys, "value": values}).value_counts().reset_index()
    counts = counts.sort_values(["key", "count", "value"], ascending=[True, False, True])
    return counts.drop_duplicates("key").set_index("key")["value"]


def _category(codes, texts):
    """A categorical of the texts that occur; code -1 is "unknown"."""
    if codes.min() < 0:
        texts = texts if _UNKNOWN in texts else [*texts, _UNKNOWN]
        codes = np.where(codes < 0, texts.index(_UNKNOWN), codes)
    used, codes = np.unique(codes, return_inverse=True)
    return pd.Categorical.from_codes(codes, [texts[code] for code in used])


def _requests(known):
    """Page, start and time of the records of each query_id that requests several pages, if their
    times tell these apart."""
    requests = known[["query_id", "start", "time"]].rename(columns={"query_id": "page"})
    requests = requests.drop_duplicates()
    several = requests.groupby("page")["start"].transform("nunique") > 1
    unclear = requests.duplicated(["page", "time"], keep=False) | (requests["time"] == NO_TIME)
    unclear = unclear.groupby(requests["page"]).transform("any")
    return requests[several & ~unclear]


def _last_before(events, requests, on):
    """The start of the last request of the page that is not after each event; NaN without one."""
    left = events[["page", on]].rename_axis("event").reset_index().sort_values(on)
    left[on] = left[on].astype(np.int64)
    right = requests.assign(**{on: requests[on].astype(np.int64)}).sort_values(on)
    found = pd.merge_asof(left, right[["page", on, "start"]], on=on, by="page")
    return found.set_index("event")["start"]


def _only_source(pages):
    """The source of what was shown that all pages have; an empty text if they differ."""
    by_hits = pages["by_hits"][pages["text"] >= 0]
    return "" if by_hits.nunique() > 1 else "hits" if by_hits.all() else "events"


def _documents(parts):
    """How many documents on how many pages events name, in words."""
    n_pages = sum(each["page"].nunique() for each in parts)
    return f"{n_of(sum(map(len, parts)), 'document')} on {n_of(n_pages, 'page')}"


def _are_in_a_row(documents):
    """Whether most pages have several documents in places that follow one another."""
    at = documents.groupby("page")["at"].agg(["min", "max", "nunique"])
    in_a_row = (at["nunique"] > 1) & (at["max"] - at["min"] < at["nunique"])
    return in_a_row.mean() >= _MOST_IN_A_ROW


def plain(action: str) -> str:
    """The name of an action as names are compared."""
    return action.casefold().strip()
