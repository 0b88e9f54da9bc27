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
from ._thresholds import (
    ENOUGH_CLICKS,
    FEW_CONFIRM,
    FROM_ZERO,
    IN_A_ROW,
    MUCH,
    MUCH_LONGER,
)
from ._ubi_attributes import check_attributes, read_attribute
from ._ubi_fates import (
    AGAIN,
    COLLIDED,
    NAMES,
    NOTHING_SHOWN,
    OTHER_ACTION,
    TAKEN,
    give_fates,
    n_of,
)
from ._ubi_records import NO_ORDINAL, NO_TIME, OF_DOC, OF_PAGE, Records

#: Names of actions that show documents, whatever their pages look like.
_SHOWS = re.compile("impress|view|show|display|expos|render|seen", re.IGNORECASE)
#: The user of pages that name none, where others do.
_UNKNOWN = "unknown"

#: What events may say otherwise than their page, and what to do then.
_WHERE_EVENTS_DIFFER = {
    "user": "If result pages are stored and served again, their query_id is not one page; if "
    'a server writes the query records, pass user="session_id" or "user_id".',
    "text": "If a query_id stands for a visit and not for one search, correct the records.",
    "application": "Ordinals count from the base of the events'.",
}


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
    attributes: tuple[str, ...]
    not_shown: str
    keep: Callable[[str], bool] | None

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of event by plain name of its action, and the column of the log it becomes."""
        kinds = dict.fromkeys(map(plain, self.impressions), "impression")
        kinds |= dict.fromkeys(map(plain, self.clicks), "click")
        return kinds | {plain(name): f"outcome_{name}" for name in self.outcomes}


class PageReader:
    """The log and what its report says: each step gives fates to events, or says what it did."""

    def __init__(self, records: Records, rules: Rules) -> None:
        self.rules = rules
        self.texts = records.texts
        check_attributes(rules.attributes, self.texts, records.names)
        self.applications = [*self.texts["application"], ""]  # -1 is one without a name
        # Texts that differ in capitals and blanks alone are one query.
        self.normal, self.code_of_text = normal_texts(self.texts["text"])
        queries = records.columns("query")
        docs = queries.pop("hits")
        self.queries = pd.DataFrame(queries)
        # One row per hit: its record, and its place in the list from 0.
        record = np.repeat(self.queries.index, self.queries["n_hits"])
        self.hits = pd.DataFrame({"record": record, "doc": docs})
        self.hits["place"] = self.hits.groupby("record").cumcount()
        self.events = pd.DataFrame(records.columns("event"))
        for table in (self.events, self.queries):
            # A text of blanks is none.
            has_text = self.code_of_text[table["text"]] >= 0
            table["text"] = table["text"].where(has_text, -1)
            table["fate"] = np.int8(-1)
        self.columns = ["click", *(f"outcome_{name}" for name in rules.outcomes)]
        self.notes: list[str] = []
        self.doubts: list[str] = []

    def read(self) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
        """The log, what its report says, and what is likely wrong and what to do about it."""
        # 1. What was recorded, of which page, and what says what was shown.
        self.leave_out()
        rows = self.rows_of_events()
        pages, hits = self.make_pages()
        rows = self.place_rows(rows, pages, hits)
        rows = self.choose_source(rows, pages)
        likely = self.likely_impressions(rows, pages, hits)
        if likely and self.rules.source == "auto":
            source = _only_source(pages)
            otherwise = f"; if not, pass impressions={source!r}" if source else ""
            self.doubts.append(f"{likely}{otherwise}.")
        # 2. Where documents stood.
        self.find_bases(rows, pages)
        self.find_indices(rows, pages)
        shown = self.show(rows, pages, hits)
        shown, lost = self.separate(shown, pages)
        if shown.empty:
            hint = f" {likely}." if likely else ""
            raise ValueError(self.nothing_shown() + hint)
        # 3. Which of them were clicked.
        interactions = rows[rows["role"] >= 2].copy()
        shown = self.click(interactions, pages, shown, lost)
        return self.reading(rows, pages, shown)

    def note(self, n, what, text):
        """Say of how many things something holds, if it does of any."""
        if n:
            self.notes.append(f"{n_of(n, what)} {text}")

    def tell(self, note, is_doubtful):
        """Say something, as a doubt if it is one."""
        told = self.doubts if is_doubtful else self.notes
        told.append(note)

    def without(self, rows, out, fate):
        """The other rows; the events of those that are out have this fate."""
        give_fates(self.events, {fate: rows.index[out]})
        return rows[~out]

    # Records --------------------------------------------------------------------------
    def leave_out(self):
        """Records that are there twice, of clients to leave out, or without a query_id."""
        events = self.events
        queries = self.queries
        for table in (events, queries):
            # As in an index, the last record of an id stands. Records that have lost their
            # query_id may be equal and not the same.
            is_equal = table.pop("key").duplicated(keep="last") & (table["query_id"] >= 0)
            give_fates(table, {"the same record again": is_equal})
        if self.rules.keep is not None:
            out = [not self.rules.keep(client) for client in self.texts["client"]]
            out = np.array([*out, False])  # the last one is that of code -1, no client
            is_out = out[queries["client"]]
            # Events that name no client are of the client of their query.
            pages = queries["query_id"][is_out & (queries["query_id"] >= 0)]
            on_page = (events["client"] < 0) & events["query_id"].isin(pages)
            give_fates(queries, {"left out by keep": is_out})
            give_fates(events, {"left out by keep": out[events["client"]] | on_page})
        give_fates(queries, {"no query_id": queries["query_id"] < 0})

    def rows_of_events(self):
        """Events with a page, a document and a role: 1 is an impression, 2 a click, from 3 on the
        outcomes. The index is the number of the event."""
        kinds = self.rules.kinds
        role_of_kind = {kind: role for role, kind in enumerate(["impression", *self.columns], 1)}
        roles = [role_of_kind.get(kinds.get(plain(name)), 0) for name in self.texts["action"]]
        role_of_action = np.array([*roles, 0], dtype=np.int32)  # the last: no action
        # From here on, a query_id is a page.
        events = self.events.rename(columns={"query_id": "page"})
        events["role"] = role_of_action[events["action"]]
        give_fates(
            events,
            {
                "no action_name": events["action"] < 0,
                OTHER_ACTION: events["role"] == 0,
                "no query_id": events["page"] < 0,
                "no object_id": events["doc"] < 0,
            },
        )
        # Events of other actions are kept, in case that they are the impressions.
        is_other = events["fate"] == NAMES.index(OTHER_ACTION)
        is_complete = (events["page"] >= 0) & (events["doc"] >= 0)
        others = events[is_other & is_complete]
        self.others = others[["action", "page", "doc", "ordinal", "text"]]
        # The rows hold all else.
        kept = [name for name in events if name.startswith((OF_PAGE, OF_DOC))]
        self.told = events[["page", *kept]]
        self.events = events[["action", "fate"]].copy()
        rows = events[events["fate"] < 0]
        return rows.drop(columns=["action", "client", "fate", *kept])

    # Pages ----------------------------------------------------------------------------
    def make_pages(self):
        """What query records say of each page, and the hit lists: where each document of a page
        stood first, from 0 over all pages of a search."""
        queries = self.queries
        queries["start"], unknown = _starts(queries, self.rules.page_size)
        known = queries[queries["fate"] < 0]
        # The first record with a text and hits; then with a text.
        ordered = known.assign(no_text=known["text"] < 0, no_hits=known["n_hits"] == 0)
        ordered = ordered.sort_values(["no_text", "no_hits", "time"])
        best = ordered.drop_duplicates("query_id").rename_axis("record").reset_index()
        # A row for each query_id, also of those that events alone name.
        pages = best.set_index("query_id")[["text", "application", "user", "filters", "record"]]
        pages = pages.reindex(range(len(self.texts["query_id"])), fill_value=-1)
        # A page of several requests begins where the first one does.
        start = known.groupby("query_id")["start"].min()
        pages["start"] = start.reindex(pages.index, fill_value=0)
        self.requests = _requests(known)
        lists = known[known["n_hits"] > 0].sort_values("time", kind="stable")
        self.note_pages(int(unknown[known.index].sum()), self.n_unlike(lists))
        return pages, self.first_hits(lists)

    def first_hits(self, lists):
        """Where each document stood first in the first list of each query_id and start."""
        taken = lists.drop_duplicates(["query_id", "start"])[["query_id", "start"]]
        taken = taken.rename(columns={"query_id": "page"})
        hits = self.hits.merge(taken, left_on="record", right_index=True)
        hits["place"] += hits["start"]
        hits = _in_order(hits[hits["doc"] >= 0], "page", "doc", "place")
        return hits.drop_duplicates(["page", "doc"])

    def n_unlike(self, lists):
        """Number of lists that differ from the first one of their query_id and start."""
        request = ["query_id", "start"]
        several = lists[lists.duplicated(request, keep=False)]
        hits = self.hits[self.hits["record"].isin(several.index)]
        content = hits.groupby("record")["doc"].agg(tuple).reindex(several.index)
        first = content.groupby([several[name] for name in request]).transform("first")
        return int((content != first).sum())

    def note_pages(self, n_unknown, n_unlike):
        """What query records lack, or say twice."""
        for name in self.rules.filters:
            # Filters are texts such as "brand=acme, size=4".
            is_there = any(f", {name}=" in f", {text}" for text in self.texts["filters"])
            if not is_there:
                self.doubts.append(
                    f"No query record has {name!r} in its query_attributes: check filters."
                )
        self.note(
            n_unlike,
            "hit list",
            "differed from that of an earlier record of the query_id; the earlier one was taken.",
        )
        if n_unknown:
            self.doubts.append(
                f"{n_unknown:,} query records are of a later page and do not say how many results "
                "came before, so that their positions begin at 1. Pass page_size."
            )

    def place_rows(self, rows, pages, hits):
        """Rows of pages with a text, with their place in the hit list; completes the pages."""
        for name in ("text", "application", "user"):
            # What no query record says is the most frequent value of the events.
            is_unknown = _of_page(pages, name, rows) < 0
            found = rows[is_unknown & (rows[name] >= 0)]
            best = _most_frequent(found["page"], found[name])
            pages.loc[best.index, name] = best
            if name == "text" and len(best):
                self.notes.append(
                    f"{len(best):,} pages have no query record with a text: their user_query is "
                    "that of their events."
                )
        # A page without a text is of no query.
        no_text = _of_page(pages, "text", rows) < 0
        rows = self.without(rows, no_text, "no query record and no user_query")
        self.note_differences(rows, pages)
        # Who counted the ordinals: the application of the event, else of its page.
        # An event that names its application counts as that one does.
        own = rows["application"]
        other = _of_page(pages, "application", rows)
        place = _looked_up(hits, "place", rows)
        writer = own.where(own >= 0, other)
        rows = rows.assign(writer=writer, place=place)
        return rows.drop(columns=["application", "text", "user"])

    def note_differences(self, rows, pages):
        """Events that do not say what their page says: is a query_id more than one page?"""
        for name, advice in _WHERE_EVENTS_DIFFER.items():
            found = rows[name].to_numpy()
            taken = _of_page(pages, name, rows)
            what = name
            if name == "text":
                what = "user_query"
                found = self.code_of_text[found]
                taken = self.code_of_text[taken]
            # An event that says nothing contradicts nothing.
            differs = (found >= 0) & (found != taken)
            n = int(differs.sum())
            if not n:
                continue
            verb = "has" if n == 1 else "have"
            note = (
                f"{n_of(n, 'event')} {verb} another {what} than the page, whose {what} was taken. "
                f"{advice}"
            )
            are_many = n > MUCH.value * len(found)
            self.tell(note, is_doubtful=are_many and name != "application")

    def choose_source(self, rows, pages):
        """Rows without the impressions of applications whose hit lists say what was shown."""
        pages["by_hits"] = self.rules.source == "hits"
        if self.rules.source == "auto":
            # An application with one impression that says where it stood is read by events.
            has_place = (rows["ordinal"] >= 0) | (rows["place"] >= 0)
            usable = rows[(rows["role"] == 1) & has_place]
            by_events = _of_page(pages, "application", usable)
            pages["by_hits"] = ~pages["application"].isin(by_events)
        # One source per application: an impression beside its hit lists would count twice.
        by_hits = _of_page(pages, "by_hits", rows)
        out = (rows["role"] == 1) & by_hits
        rows = self.without(rows, out, "impression of an application read by hit lists")
        return rows.assign(by_hits=by_hits[~out])

    def likely_impressions(self, rows, pages, hits):
        """What to pass if other actions are the impressions; an empty text if none looks so."""
        shown = rows[rows["role"] == 1]
        clicked = rows[rows["role"] == 2].drop_duplicates(["page", "doc"])
        others = self.placed_others(shown, pages, hits)
        # By application, because each may record in its own way.
        n_shown = _by_application(pages, shown)
        n_clicked = _by_application(pages, clicked)
        names = self.texts["action"]
        likely = []
        by_writer = [_of_page(pages, "application", others), "action"]
        for (application, action), documents in others.groupby(by_writer):
            # What was shown is more than what was clicked, and than strays beside impressions.
            strays = MUCH.value * n_shown.get(application, 0)
            enough = max(n_clicked.get(application, 0), strays)
            looks_so = _SHOWS.search(names[action]) or _are_in_a_row(documents)
            if len(documents) > enough and looks_so:
                likely.append(documents)
        if not likely:
            return ""
        found = {}
        for action, documents in pd.concat(likely).groupby("action", sort=False):
            on_pages = n_of(documents["page"].nunique(), "page")
            found[names[action]] = f"({n_of(len(documents), 'document')} on {on_pages})"
        numbers = ", ".join(f"{name!r} {number}" for name, number in found.items())
        # What is impressions already stays so.
        known = [name for name in names if self.rules.kinds.get(plain(name)) == "impression"]
        return (
            f"Events that were not read look like impressions: {numbers}. If they say what was "
            f"shown, pass impressions={[*known, *found]}"
        )

    def placed_others(self, shown, pages, hits):
        """Documents of other actions that stood somewhere (``at``), and were not shown."""
        others = self.others.drop_duplicates(["action", "page", "doc"])
        ordinal = others["ordinal"]
        at = ordinal.where(ordinal >= 0, _looked_up(hits, "place", others))
        text_of_page = _of_page(pages, "text", others)
        has_text = (others["text"] >= 0) | (text_of_page >= 0)
        is_new = ~_key(others).isin(_key(shown))
        return others.assign(at=at)[(at >= 0) & has_text & is_new]

    # Positions ------------------------------------------------------------------------
    def find_bases(self, rows, pages):
        """The ordinal of the first position by application, 0 or 1 unless it was given.

        ``support`` holds shifts against base 0: of the pages of an application, or of clicks from
        their place, where hit lists say what was shown; and what it is that stands there.
        """
        self.base = np.ones(len(self.applications), dtype=np.int64)
        self.support = {}
        says_where = (rows["role"] == 1) | rows["by_hits"]
        leading = rows[says_where & (rows["ordinal"] >= 0)]
        # The lowest ordinal of each page, as if the ordinals of all pages restarted.
        first = leading.groupby("page").agg({"ordinal": "min", "writer": "first"})
        lowest = first["ordinal"]
        start = pages["start"][first.index]
        shift = lowest - start.where(lowest >= start, 0)
        for code, shifts in shift.groupby(first["writer"]):
            share_of_0 = (shifts == 0).mean()
            self.base[code] = 1 if share_of_0 < FROM_ZERO.value else 0
            self.support[code] = (shifts, "pages begin there")
        # Where hit lists say what was shown, clicks stand at their place or one after it.
        placed = leading[leading["by_hits"] & (leading["place"] >= 0)]
        placed = placed[_of_page(pages, "start", placed) == 0]
        shift = placed["ordinal"] - placed["place"]
        what = "clicks and outcomes stand at their place in the hit list"
        for code, shifts in shift.groupby(placed["writer"]):
            n_from_0 = (shifts == 0).sum()
            n_from_1 = (shifts == 1).sum()
            self.base[code] = 1 if n_from_0 < n_from_1 else 0
            self.support[code] = (shifts, what)
        self.take_given_bases(self.rules.ordinal_base)

    def take_given_bases(self, given):
        """Bases that were passed, by application or for all, in place of those that were found."""
        if isinstance(given, Mapping):
            unknown = {*given} - {*self.applications}
            if unknown:
                raise ValueError(
                    f"ordinal_base names the applications {sorted(unknown)}, which the records "
                    f"do not have; found {sorted(self.applications)}."
                )
            for name, base in given.items():
                self.base[self.applications.index(name)] = base
        elif given is not None:
            self.base[:] = given

    def find_indices(self, rows, pages):
        """Add the index from 0 over all pages of a search that each ordinal means; -1 if none."""
        ordinal = rows["ordinal"]
        base = self.base[rows["writer"]]
        is_known = (ordinal >= 0) & (ordinal >= base)
        rows["index"] = np.where(is_known, ordinal - base, -1)
        # Ordinals restart on a later page if they begin before its start; else they go on.
        start = self.starts_of(rows, pages)
        later = (start > 0) & (rows["index"] >= 0)
        leading = (rows["role"] == 1) | rows["by_hits"]
        leading_index = rows["index"].where(later & leading)
        lowest = leading_index.groupby([rows["page"], start]).transform("min")
        restarts = later & (lowest < start)
        rows["index"] += np.where(restarts, start, 0)
        n_pages = rows["page"][restarts].nunique()
        if n_pages:
            self.notes.append(
                f"Ordinals restart on {n_of(n_pages, 'later page')}: the number of earlier "
                "results was added."
            )
        below = (ordinal >= 0) & (ordinal < base)
        none = ordinal == NO_ORDINAL
        for wrong, what in ((below, "lies below the base"), (none, "is no whole number from 0")):
            n_events = int(wrong.sum())
            if n_events:
                self.notes.append(
                    f"The ordinal {what} in {n_of(n_events, 'event')} and was not used."
                )

    def starts_of(self, rows, pages):
        """Results before the page of each event: by its place in the hit list, else by its time,
        where the records of a query_id request several pages."""
        # Where a query_id is one request, it says where the page begins.
        start = pd.Series(_of_page(pages, "start", rows), rows.index)
        several = rows[rows["page"].isin(self.requests["page"])]
        with_time = several[several["time"] < NO_TIME]
        if len(with_time):
            start.update(_last_before(with_time, self.requests, "time"))
        with_place = several[several["place"] >= 0]
        if len(with_place):
            by_place = self.requests.assign(place=self.requests["start"]).drop(columns="time")
            start.update(_last_before(with_place, by_place, "place"))
        return start.astype(np.int64)

    def show(self, rows, pages, hits):
        """Documents by page: where they stood (``at``), place, event (-1 for a hit)."""
        places_of_clicks = rows["place"][rows["by_hits"]]
        rows = rows[rows["role"] == 1]
        # By the ordinal, and without one by the hit list.
        index = rows["index"]
        rows = rows.assign(at=index.where(index >= 0, rows["place"]))
        rows = self.without(rows, rows["at"] < 0, "no position")
        # Of a document that was shown twice, the first place.
        rows = _in_order(rows, "page", "doc", "at")
        again = rows.duplicated(["page", "doc"])
        first_at = rows["at"].where(~again).ffill()
        self.note(
            (rows["at"] != first_at).sum(),
            "repeated impression",
            "of a document stood further down its page than another; the higher place was taken.",
        )
        rows = self.without(rows, again, AGAIN)
        self.note(
            (rows["index"] < 0).sum(),
            "impression",
            "without an ordinal: the place in the hit list was taken.",
        )
        self.note_disagreement(rows, hits)
        shown = rows.rename_axis("event").reset_index()
        shown = shown[["page", "doc", "at", "place", "event"]]
        by_hits = self.hits_shown(pages, hits, places_of_clicks)
        return pd.concat([shown, by_hits], ignore_index=True)

    def note_disagreement(self, rows, hits):
        """Ordinals that hit lists do not confirm."""
        is_listed = rows["page"].isin(hits["page"])
        self.note(
            (is_listed & (rows["place"] < 0)).sum(),
            "impression",
            "of a document that is not in the hit list of its page.",
        )
        known = rows[(rows["index"] >= 0) & (rows["place"] >= 0)]
        n = int((known["index"] != known["place"]).sum())
        if n:
            self.notes.append(
                f"The ordinals of {n:,} of {n_of(len(known), 'impression')} differ from their "
                "places in the hit lists. Ordinals were taken where no two of a page are equal."
            )

    def hits_shown(self, pages, hits, places_of_clicks):
        """The hit lists of applications without impression events."""
        size = self.rules.page_size
        page = pages.loc[hits["page"]]
        is_shown = page["by_hits"] & (page["text"] >= 0)
        hits = hits[is_shown.to_numpy()]
        if size is not None:
            hits = hits[hits["place"] - hits["start"] < size]
        elif len(hits):
            # Lists that are longer than what users saw make skipped documents of unseen ones.
            deepest = max(places_of_clicks, default=-1) + 1
            longest = hits["place"].max() + 1
            is_enough = len(places_of_clicks) >= ENOUGH_CLICKS.value
            self.tell(
                f"Hit lists hold up to {longest:,} documents, but the deepest click or outcome "
                f"stands at {deepest:,}. If pages show fewer documents, pass page_size.",
                is_doubtful=is_enough and longest > MUCH_LONGER.value * deepest,
            )
        return hits[["page", "doc", "place"]].assign(at=hits["place"], event=-1)

    def separate(self, shown, pages):
        """One document per position: by the hit list on pages where ordinals collide; and the
        documents that were left out."""
        collisions = shown["page"][shown.duplicated(["page", "at"])]
        collided = shown["page"].isin(collisions)
        listed = collided & (shown["place"] >= 0)
        pages["by_place"] = pages.index.isin(shown["page"][listed])
        without_list = shown[collided & ~_of_page(pages, "by_place", shown)]
        rest = shown.drop(without_list.index)
        # On pages with a list, all documents that it holds stand where it says.
        is_listed = listed[rest.index]
        rest["at"] = rest["at"].where(~is_listed, rest["place"])
        # Documents that the hit list does not hold give way to those that it holds, ...
        is_shared = rest.duplicated(["page", "at"], keep=False)
        gives_way = is_shared & (rest["place"] < 0)
        # ... and of the others the first one stays.
        again = rest[~gives_way].duplicated(["page", "at"])
        gives_way |= again.reindex(rest.index, fill_value=False)
        shown = rest[~gives_way]
        gone = rest[gives_way]
        self.give_shown(without_list, COLLIDED)
        self.give_shown(gone, TAKEN)
        self.give_shown(shown, "shown")
        n_left_out = without_list["page"].nunique()
        n_by_place = int(pages["by_place"].sum())
        self.note(
            n_left_out + n_by_place,
            "page",
            f"had two documents at one ordinal: on {n_by_place:,} the places in the hit list were "
            f"taken, and {n_left_out:,} without a hit list were left out.",
        )
        return shown, pd.concat([without_list, gone])

    def give_shown(self, documents, fate):
        """Give the impressions of documents their fate; those of hit lists have no event."""
        events = documents["event"]
        give_fates(self.events, {fate: events[events >= 0]})

    def nothing_shown(self):
        """What there was instead of shown documents."""
        actions = ["without an action_name", *self.texts["action"]]
        label = self.events["action"] + 1
        # Numbers by action, for the user to compare with his own names.
        n_by_action = label.value_counts().sort_index()
        found = ", ".join(f"{n:,} {actions[i]}" for i, n in n_by_action.items())
        names = [plain(name) for name in self.rules.impressions]
        is_impression = np.array([plain(action) in names for action in actions])
        fates = self.events["fate"][is_impression[label]]
        n_by_fate = fates.value_counts().sort_index()
        reasons = ", ".join(f"{n:,} {NAMES[fate]}" for fate, n in n_by_fate.items())
        n_hits = self.queries["n_hits"]
        n_lists = int((n_hits > 0).sum())
        expected = " or ".join(map(repr, self.rules.impressions))
        return (
            "No document was shown on any page, and clicks without impressions say nothing. Found "
            f"{n_of(len(label), 'event')} ({found or 'none'}; impressions left out: "
            f"{reasons or 'none'}), {n_of(len(n_hits), 'query record')} and "
            f"{n_of(n_lists, 'hit list')}. Expected events with action_name {expected} (name "
            "others in impressions=), a "
            "query_id, event_attributes.object.object_id and event_attributes.position.ordinal; "
            "or query records with a query_id, user_query and query_response_hit_ids, where "
            f'impressions= is "auto" or "hits" (found {self.rules.source!r}).'
        )

    # Clicks ---------------------------------------------------------------------------
    def click(self, rows, pages, shown, lost):
        """The shown documents with a column for clicks and each outcome, once per document."""
        again = rows.duplicated(["page", "doc", "role"])
        rows = self.without(rows, again, AGAIN)
        # Documents that were clicked, and not shown, join their page if they may.
        missing = rows[_looked_up(shown, "at", rows) < 0]
        places = shown[["page", "doc", "at", "event"]]
        shown = self.add_documents(missing, pages, places, lost)
        rows = rows.assign(at=_looked_up(shown, "at", rows))
        rows = rows[rows["at"] >= 0]
        added = rows.index.isin(missing.index)
        give_fates(
            self.events,
            {
                "its document was added to the page": rows.index[added],
                "clicked": rows.index[rows["role"] == 2],
                "outcome": rows.index,
            },
        )
        for role, name in enumerate(self.columns, start=2):
            clicked = _key(rows[rows["role"] == role])
            is_clicked = _key(shown).isin(clicked)
            shown[name] = is_clicked.astype(np.int8)
        is_known = rows["index"] >= 0
        moved = is_known & (rows["index"] != rows["at"]) & ~added
        by_place = _of_page(pages, "by_place", rows)
        self.note(
            (moved & ~by_place).sum(),
            "click",
            "(or outcomes) had another ordinal than the impression of the document; that of the "
            "impression was taken.",
        )
        return shown

    def add_documents(self, rows, pages, shown, lost):
        """The shown documents and, on pages with some, those that were clicked beside them."""
        on_page = rows["page"].isin(shown["page"])
        rows = self.without(rows, ~on_page, NOTHING_SHOWN)
        was_lost = _key(rows).isin(_key(lost))
        rows = self.without(rows, was_lost, "its impression was left out")
        if self.rules.not_shown == "drop":
            give_fates(self.events, {"its document was not shown": rows.index})
            return shown.copy()
        # By the place in the hit list where its page is read by places, else by the ordinal.
        by_place = _of_page(pages, "by_place", rows) | rows["by_hits"]
        takes_place = np.where(by_place, rows["place"] >= 0, rows["index"] < 0)
        at = rows["place"].where(takes_place, rows["index"])
        rows = rows.assign(at=at)
        # The interaction of a document that says where it stood.
        new = rows[rows["at"] >= 0]
        new = _in_order(new, "page", "doc", "at").drop_duplicates(["page", "doc"])
        new = new[["page", "doc", "at"]].assign(event=-1)
        has_place = _key(rows).isin(_key(new))
        # Documents that were shown keep their places.
        joined = pd.concat([shown, new], ignore_index=True)
        joined = joined[~joined.duplicated(["page", "at"])].copy()
        is_lost = _looked_up(joined, "at", rows) < 0
        lost = {"no position": rows.index[~has_place], TAKEN: rows.index[is_lost]}
        give_fates(self.events, lost)
        self.note(
            len(joined) - len(shown),
            "clicked document",
            "without an impression joined the page at the place of the click (or outcome); "
            'not_shown="drop" drops such clicks.',
        )
        return joined

    # Results --------------------------------------------------------------------------
    def reading(self, rows, pages, shown):
        """The log, what the report says, and the doubts."""
        # Rows of a page in the order in which they were shown.
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
            n_without = (user[in_log] < 0).sum()
            self.note(n_without, "page", f"of {in_log.sum():,} named no user.")
        for name in self.columns:
            log[name] = shown[name].to_numpy()
        for name in self.rules.attributes:
            log[name], doubts = read_attribute(name, shown, self.texts, self.told, self.queries)
            self.doubts += doubts
        # How positions were found stands before all else that was noted.
        with_ordinal = in_log[rows["page"]] & (rows["ordinal"] >= 0)
        writers = np.unique(rows["writer"][with_ordinal])
        by_hits = np.unique(pages["application"][in_log & pages["by_hits"]])
        from_hits = [self.applications[code] for code in by_hits]
        decisions = [self.base_note(code) for code in writers]
        for name in from_hits:
            where = f" in {name}" if name else ""
            decisions.append(f"What was shown{where} is what the hit lists hold.")
        self.notes[:0] = decisions
        found = {
            "counts": self.counts(),
            "ordinal_base": {self.applications[code]: int(self.base[code]) for code in writers},
            "from_hits": from_hits,
            "queries": queries,
            "notes": self.notes,
        }
        return pd.DataFrame(log), found, self.doubts

    def close_queries(self, pages, in_log):
        """Give the query records that are open their fates."""
        queries = self.queries
        page = queries["query_id"].to_numpy()
        record = pages["record"].to_numpy()[page]
        text_of_page = pages["text"].to_numpy()[page]
        same_text = self.code_of_text[queries["text"]] == self.code_of_text[text_of_page]
        place = queries[["from", "page"]].to_numpy()
        another_place = (place != place[record]).any(axis=1)
        # The first rule that holds decides.
        give_fates(
            queries,
            {
                "no user_query": queries["text"] < 0,
                NOTHING_SHOWN: ~in_log[page],
                "query of a page": record == queries.index,
                "further page of a query_id": (queries["n_hits"] > 0) & another_place,
                "another record of its query_id, with another user_query": ~same_text,
                "another record of its query_id": same_text,
            },
        )

    def query_table(self, pages):
        """Code of the qid of each page of the log, and the queries in the order of the codes."""
        # What makes two searches one query.
        keys = pages[["text", "filters", "application"]].copy()
        keys["text"] = self.code_of_text[keys["text"]]
        several = keys.loc[keys["application"] >= 0, "application"].nunique() > 1
        if not several:  # pages that name none are of the only one
            keys["application"] = keys["application"].max()
        # The last one is that of code -1, no application and no filters.
        before = [f"{name}: " if several else "" for name in self.texts["application"]] + [""]
        after = [f" [{filters}]" for filters in self.texts["filters"]] + [""]
        different = keys.drop_duplicates()
        names = [
            before[application] + self.normal[text] + after[filters]
            for text, filters, application in different.itertuples(index=False)
        ]
        named = keys.merge(different.assign(qid=np.array(names, dtype=object)), how="left")
        codes, qids = pd.factorize(named["qid"].to_numpy(dtype=object))
        code = pd.Series(codes, keys.index)
        # As most users typed it.
        typed = _most_frequent(code, pages["text"])
        application = keys["application"].groupby(code).first()
        queries = {
            "qid": qids,
            "user_query": [self.texts["text"][i] for i in typed],
            "application": [self.applications[i] for i in application],
            "pages": np.bincount(codes),
        }
        return code, pd.DataFrame(queries)

    def base_note(self, code):
        """What ordinals count from; a doubt if few pages confirm a base that was found."""
        name = self.applications[code]
        given = self.rules.ordinal_base
        whose = f" of {name}" if name else ""
        note = f"Ordinals{whose} count from {self.base[code]}"
        is_given = given is not None and (not isinstance(given, Mapping) or name in given)
        if is_given:
            return f"{note}, as ordinal_base says."
        nothing = (pd.Series(dtype=int), "pages begin there")
        shifts, what = self.support.get(code, nothing)
        n = int((shifts == self.base[code]).sum())
        note += f": {n:,} of {len(shifts):,} {what}."
        if n < FEW_CONFIRM.value * len(shifts):
            self.doubts.append(
                f"{note} Check where the clients begin to count, and pass ordinal_base."
            )
        return note

    def counts(self):
        """Numbers of records as (record, action, fate, n)."""
        actions = [*self.texts["action"], ""]  # the last one is that of code -1
        counts = []
        for record, table in (("event", self.events), ("query", self.queries.assign(action=-1))):
            for (action, fate), n in table.groupby(["action", "fate"]).size().items():
                counts.append((record, actions[action], NAMES[fate], n))
        return counts


def _starts(queries, page_size):
    """Results before each record's page, and whether a later page has no size to tell."""
    page = queries["page"]
    size = queries["size"]
    size = size.where(size > 0, page_size or -1)
    # Pages count from 0 where an application has pages 0, and not just a stray one.
    is_0 = (page == 0).where(page >= 0).astype(float)
    share = is_0.groupby(queries["application"]).transform("mean")
    first = np.where(share >= FROM_ZERO.value, 0, 1)
    # A record says how many results came before, or which page of what size it is.
    later = (queries["from"] < 0) & (page > first)
    is_unknown = later & (size < 0)
    by_page = later & ~is_unknown
    before = (page - first) * size
    start = queries["from"].clip(0).where(~by_page, before)
    return start.astype(np.int64), is_unknown


def normal_texts(texts: list[str]) -> tuple[list[str], NDArray[Any]]:
    """Normalized texts, and the code of each text's; -1 for blanks, and for no text (last)."""
    table = {"": -1}
    codes = [table.setdefault(normal_text(text), len(table) - 1) for text in texts]
    _, *normal = table
    return normal, np.array([*codes, -1])


def _of_page(pages, name, rows):
    """What the page of each row has in a column."""
    return pages[name].to_numpy()[rows["page"]]


def _in_order(rows, *names):
    """Rows sorted by columns, of which the first one comes first; ties stay as they are."""
    keys = [rows[name] for name in reversed(names)]
    return rows.iloc[np.lexsort(keys)]


def _key(rows):
    """One number per page and document, whose codes have 32 bits each."""
    page = rows["page"].to_numpy(np.int64)
    return pd.Index(page << 32 | rows["doc"].to_numpy())


def _looked_up(table, name, rows):
    """The value that the page and document of each row have in a table; -1 if it lacks them."""
    values = pd.Series(table[name].to_numpy(), _key(table))
    return values.reindex(_key(rows), fill_value=-1).to_numpy()


def _by_application(pages, rows):
    """Number of rows by the application of their page."""
    return rows.groupby(_of_page(pages, "application", rows))["page"].size()


def _most_frequent(keys, values):
    """The value that is most frequent with each key; of several the largest."""
    # Sorted by number and value, so that ties do not depend on the order of the rows.
    pairs = pd.DataFrame({"key": keys, "value": values})
    counts = pairs.value_counts().reset_index()
    counts = counts.sort_values(["key", "count", "value"], ascending=[True, False, True])
    return counts.drop_duplicates("key").set_index("key")["value"]


def _category(codes, texts):
    """A categorical of the texts that occur; code -1 is "unknown"."""
    if codes.min() < 0:
        texts = texts if _UNKNOWN in texts else [*texts, _UNKNOWN]
        codes = np.where(codes < 0, texts.index(_UNKNOWN), codes)
    # Categories are the texts that occur, and no others.
    used, codes = np.unique(codes, return_inverse=True)
    return pd.Categorical.from_codes(codes, [texts[code] for code in used])


def _requests(known):
    """Page, start and time of the records of each query_id that requests several pages, if their
    times tell these apart."""
    requests = known[["query_id", "start", "time"]].rename(columns={"query_id": "page"})
    requests = requests.drop_duplicates()
    several = requests.groupby("page")["start"].transform("nunique") > 1
    # Two requests at one time, or one without, cannot be told apart by the times of events.
    is_shared = requests.duplicated(["page", "time"], keep=False)
    is_unclear = is_shared | (requests["time"] == NO_TIME)
    any_unclear = is_unclear.groupby(requests["page"]).transform("any")
    return requests[several & ~any_unclear]


def _last_before(events, requests, on):
    """The start of the last request of the page that is not after each event; NaN without one."""
    # Both sides of the merge need one type, and the order of what they are merged on.
    sides = [
        table[["page", on, *more]].astype({on: np.int64}).sort_values(on)
        for table, more in (
            (events.rename_axis("event").reset_index(), ["event"]),
            (requests, ["start"]),
        )
    ]
    return pd.merge_asof(*sides, on=on, by="page").set_index("event")["start"]


def _only_source(pages):
    """The source of what was shown that all pages have; an empty text if they differ."""
    by_hits = pages["by_hits"][pages["text"] >= 0]
    if by_hits.nunique() > 1:
        return ""
    return "hits" if by_hits.all() else "events"


def _are_in_a_row(documents):
    """Whether most pages have several documents in places that follow one another."""
    at = documents.groupby("page")["at"].agg(["min", "max", "nunique"])
    has_gap = at["max"] - at["min"] >= at["nunique"]
    in_a_row = (at["nunique"] > 1) & ~has_gap
    return in_a_row.mean() >= IN_A_ROW.value


def plain(action: str) -> str:
    """The name of an action as names are compared."""
    return action.casefold().strip()
