"""The rules: which events are impressions and clicks of which page, and where documents stood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ._ubi_queries import (
    USED,
    Fates,
    Shown,
    bases_of,
    category,
    close_queries,
    indices_of,
    lookup,
    n_of,
    new,
    normal_texts,
    pages_of,
    query_table,
    separated,
)
from ._ubi_records import NO_ORDINAL, Records

#: From this share of events on that contradict their page the user is warned.
_MUCH = 0.1
#: Below this share of pages that begin at the base that was found the user is warned.
_LEAST_CONFIRMED = 0.5
#: Hit lists so many times as long as the deepest of so many clicks hold more than was seen.
_MUCH_LONGER, _ENOUGH_CLICKS = 2, 100


@dataclass(frozen=True)
class Rules:
    """The parameters of :func:`skultr.datasets.read_ubi` that decide."""

    clicks: tuple[str, ...]
    outcomes: tuple[str, ...]
    impressions: str
    page_size: int | None
    ordinal_base: int | Mapping[str, int] | None
    filters: tuple[str, ...]
    not_shown: str
    keep: Callable[[str], bool] | None


class PageReader:
    """The log and what its report says; each step gives fates, and leaves arrays for later ones.

    A page is the code of a query_id. Rows are the events that are impressions, clicks or outcomes
    and have a page and a document.
    """

    def __init__(self, records: Records, rules: Rules) -> None:
        self.rules = rules
        self.texts = records.texts
        self.events, self.queries = records.events, records.queries
        self.fates = Fates(len(self.events["key"]))
        self.query_fates = Fates(len(self.queries["key"]))
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.n_docs = len(self.texts["doc"])
        self.normal = normal_texts(self.texts["text"])
        for columns in (self.events, self.queries):  # a text of blanks is none
            columns["text"][self.normal[1][columns["text"]] < 0] = -1

    def read(self) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
        """The log, what its report says, and what is likely wrong and what to do about it."""
        self.leave_out()
        self.take_roles()
        self.make_pages()
        self.choose_source()
        self.find_bases()
        self.find_indices()
        self.show()
        self.click()
        return self.reading()

    # Records --------------------------------------------------------------------------
    def leave_out(self):
        """Records that are there twice, of clients to leave out, or without a query_id."""
        for columns, fates in ((self.events, self.fates), (self.queries, self.query_fates)):
            # As in an index, the last record of an id stands.
            again = pd.Series(columns.pop("key")).duplicated(keep="last").to_numpy()
            fates.give(again, "the same record again")
        if self.rules.keep is not None:
            self.leave_out_clients()
        self.query_fates.give(self.queries["query_id"] < 0, "no query_id")

    def leave_out_clients(self):
        name = "left out by keep"
        out = np.array([not self.rules.keep(client) for client in self.texts["client"]] + [False])
        self.fates.give(out[self.events["client"]], name)
        of_client = out[self.queries["client"]]
        self.query_fates.give(of_client, name)
        # Events that name no client are of the client of their query.
        page_out = np.zeros(len(self.texts["query_id"]) + 1, dtype=bool)
        page_out[self.queries["query_id"][of_client]] = True
        page_out[-1] = False
        self.fates.give((self.events["client"] < 0) & page_out[self.events["query_id"]], name)

    def take_roles(self):
        """Rows: role 1 is an impression, 2 a click, from 3 on the outcomes."""
        roles = {"impression": 1} | dict.fromkeys(map(_plain, self.rules.clicks), 2)
        roles |= {_plain(name): 3 + i for i, name in enumerate(self.rules.outcomes)}
        actions = [roles.get(_plain(action), 0) for action in self.texts["action"]]
        role = np.array([*actions, 0], dtype=np.int32)[self.events["action"]]
        self.fates.give(self.events["action"] < 0, "no action_name")
        self.fates.give(role == 0, "action that was not asked for")
        self.fates.give(self.events["query_id"] < 0, "no query_id")
        self.fates.give(self.events["doc"] < 0, "no object_id")
        self.event = np.flatnonzero(self.fates.open).astype(np.int32)
        self.role = role[self.event]
        self.page, self.doc, self.ordinal = (
            self.events[name][self.event] for name in ("query_id", "doc", "ordinal")
        )

    def keep_rows(self, kept):
        """Let go of rows that have a fate."""
        for name in ("event", "role", "page", "doc", "ordinal", "writer", "place"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[kept])

    # Pages ----------------------------------------------------------------------------
    def make_pages(self):
        self.pages, self.hits, unknown, unlike = pages_of(
            self.queries, self.texts, self.query_fates, self.rules.page_size
        )
        for name in self.rules.filters:
            if not any(f", {name}=" in f", {text}" for text in self.texts["filters"]):
                self.doubts.append(
                    f"No query record has {name!r} in its query_attributes: check filters."
                )
        if unlike:
            self.notes.append(
                f"{n_of(unlike, 'hit list')} of query records unlike that of an earlier record of "
                "the query_id, which was taken."
            )
        if unknown:
            self.notes.append(
                f"{unknown:,} query records are of a later page and do not say how many results "
                "came before: their positions begin at 1. Pass page_size."
            )
        n = [
            self.complete(getattr(self.pages, name), name)
            for name in ("text", "application", "user")
        ]
        if n[0]:
            self.notes.append(
                f"{n[0]:,} pages have no query record with a text: their user_query is that of "
                "their events."
            )
        known = self.pages.text[self.page] >= 0
        self.fates.give(self.event[~known], "no query record and no user_query")
        self.keep_rows(known)
        self.note_differences()
        # Who counted the ordinals: the application of the event, else of its page.
        writer = self.events["application"][self.event]
        self.writer = np.where(writer >= 0, writer, self.pages.application[self.page])
        self.events = {"action": self.events["action"]}  # the rows hold all else
        self.place = self.hits.place_of(self.page, self.doc)
        self.application = self.pages.application  # -1 is the last entry of tables by it

    def complete(self, values, name):
        """Fill what no query record says with the most frequent value of the events."""
        found = self.events[name][self.event]
        rows = (values[self.page] < 0) & (found >= 0)
        counts = pd.DataFrame({"page": self.page[rows], "value": found[rows]}).value_counts()
        best = counts.reset_index().sort_values(
            ["page", "count", "value"], ascending=[True, False, True]
        )
        best = best.drop_duplicates("page")
        values[best["page"]] = best["value"]
        return len(best)

    def note_differences(self):
        """Events that do not say what their page says: is a query_id more than one page?"""
        normal = self.normal[1]
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
            found, taken = self.events[name][self.event], getattr(self.pages, name)[self.page]
            if name == "text":
                found, taken = normal[found], normal[taken]
            if n := int(((found >= 0) & (found != taken)).sum()):
                note = (
                    f"{n_of(n, 'event')} {'has' if n == 1 else 'have'} another {what} than the "
                    f"page, whose {what} was taken. {advice}"
                )
                doubtful = name != "application" and n > _MUCH * len(found)
                (self.doubts if doubtful else self.notes).append(note)

    def choose_source(self):
        """Which applications show what events say, and which show the hit lists."""
        n = len(self.texts["application"]) + 1
        self.by_hits = np.full(n, self.rules.impressions == "hits")
        if self.rules.impressions == "auto":
            usable = (self.role == 1) & ((self.ordinal >= 0) | (self.place >= 0))
            self.by_hits[:] = True
            self.by_hits[self.application[self.page[usable]]] = False
        of_hits = (self.role == 1) & self.by_hits[self.application[self.page]]
        self.fates.give(self.event[of_hits], "impression of an application read by hit lists")
        self.keep_rows(~of_hits)

    # Positions ------------------------------------------------------------------------
    def find_bases(self):
        """The number of the first position, by application."""
        by_hits = self.by_hits[self.application[self.page]]
        self.leading = (self.role == 1) | by_hits
        rows = self.leading & (self.ordinal >= 0)
        names = [*self.texts["application"], ""]
        columns = (self.ordinal, self.place, self.page, self.writer, by_hits)
        self.base, self.support = bases_of(
            *(each[rows] for each in columns), self.pages.start, len(names)
        )
        given = self.rules.ordinal_base
        if isinstance(given, Mapping):
            if unknown := {*given} - {*names}:
                raise ValueError(
                    f"ordinal_base names the applications {sorted(unknown)}, which the records "
                    f"do not have; found {sorted(names)}."
                )
            self.base[[names.index(name) for name in given]] = list(given.values())
        elif given is not None:
            self.base[:] = given

    def find_indices(self):
        """The index from 0 that each row's ordinal means."""
        base = self.base[self.writer]
        self.index, n_restarts = indices_of(
            self.ordinal, base, self.page, self.pages.start, self.leading
        )
        if n_restarts:
            self.notes.append(
                f"Ordinals restart on {n_of(n_restarts, 'later page')}: the number of earlier "
                "results was added."
            )
        below = (self.ordinal >= 0) & (self.ordinal < base)
        none = self.ordinal == NO_ORDINAL
        for rows, what in ((below, "lies below the base"), (none, "is no whole number from 0")):
            if n := int(rows.sum()):
                self.notes.append(f"The ordinal {what} in {n_of(n, 'event')} and was not used.")

    def show(self):
        """Rows of the log: page, document, index from 0, and its event (-1 for a hit)."""
        rows = np.flatnonzero(self.role == 1)
        at = np.where(self.index[rows] >= 0, self.index[rows], self.place[rows])
        self.fates.give(self.event[rows[at < 0]], "no position")
        rows, at = rows[at >= 0], at[at >= 0]
        key = self.key(self.page[rows], self.doc[rows])
        order = np.lexsort((at, key))
        first = order[new(key[order])]
        self.fates.give(self.event[np.delete(rows, first)], _AGAIN)
        moved = at[order] != at[first][np.cumsum(new(key[order])) - 1]
        if n := int(moved.sum()):
            self.notes.append(
                f"{n_of(n, 'repeated impression')} of a document stood further down its page than "
                "the first place, which was taken."
            )
        rows, at = rows[first], at[first]
        n_by_place = int((self.index[rows] < 0).sum())
        if n_by_place:
            self.notes.append(
                f"{n_of(n_by_place, 'impression')} without an ordinal: the place in the hit list "
                "was taken."
            )
        shown = Shown(self.page[rows], self.doc[rows], at, self.place[rows], self.event[rows])
        self.note_disagreement(rows)
        self.separate(shown.joined(self.hits_shown()))

    def note_disagreement(self, rows):
        """Ordinals that hit lists do not confirm."""
        listed = np.zeros(len(self.pages.start), dtype=bool)
        listed[self.hits.page] = True
        if n := int((listed[self.page[rows]] & (self.place[rows] < 0)).sum()):
            self.notes.append(
                f"{n_of(n, 'impression')} of a document that is not in the hit list of its page."
            )
        known = (self.index[rows] >= 0) & (self.place[rows] >= 0)
        n = int((self.index[rows] != self.place[rows])[known].sum())
        if n:
            self.notes.append(
                f"The ordinals of {n:,} of {n_of(int(known.sum()), 'impression')} are not their "
                "places in the hit lists, and were taken where no two of a page are equal."
            )

    def hits_shown(self):
        """The hit lists of applications without impression events."""
        hits, size = self.hits, self.rules.page_size
        rows = self.by_hits[self.application[hits.page]] & (self.pages.text[hits.page] >= 0)
        if size is not None:
            rows &= hits.place - hits.start < size
        page, doc, place = hits.page[rows], hits.doc[rows], hits.place[rows]
        if size is None and len(page):
            clicks = self.place[self.by_hits[self.application[self.page]]]
            deepest, longest = clicks.max(initial=-1) + 1, place.max() + 1
            doubtful = len(clicks) >= _ENOUGH_CLICKS and longest > _MUCH_LONGER * deepest
            (self.doubts if doubtful else self.notes).append(
                f"Hit lists hold up to {longest:,} documents, the deepest click or outcome "
                f"stands at {deepest:,}: if pages show fewer, pass page_size."
            )
        return Shown(page, doc, place, place, np.full(len(page), -1, dtype=np.int32))

    def separate(self, shown):
        """One document per position."""
        self.shown, collided, self.by_place, lost = separated(shown, len(self.pages.start))
        for reason, rows in lost.items():
            self.fates.give(rows.event[rows.event >= 0], reason)
        lost_keys = [self.key(rows.page, rows.doc) for rows in lost.values()]
        self.lost = np.concatenate([np.zeros(0, dtype=np.int64), *lost_keys])
        self.fates.give(self.shown.event[self.shown.event >= 0], USED["impression"])
        if collided.any():
            self.notes.append(
                f"{n_of(int(collided.sum()), 'page')} had two documents at one ordinal: on "
                f"{int(self.by_place.sum()):,} the places in the hit list were taken, and "
                f"{int((collided & ~self.by_place).sum()):,} without a hit list were left out."
            )
        if not len(self.shown.page):
            self.fail()

    def fail(self):
        """Nothing was shown: say what there was instead."""
        labels = self.events["action"] + 1
        actions = ["without an action_name", *self.texts["action"]]
        found = [f"{n:,} {actions[label]}" for label, n in _counts(labels)]
        reasons = ", ".join(
            f"{n:,} {fate}"
            for (label, fate), n in self.fates.count(labels, open_too=True).items()
            if _plain(actions[label]) == "impression"
        )
        n_hits = self.queries["n_hits"]
        raise ValueError(
            "No document was shown on any page, and clicks without impressions say nothing. Found "
            f"{n_of(len(labels), 'event')} ({', '.join(found) or 'none'}; impressions left out: "
            f"{reasons or 'none'}), {n_of(len(n_hits), 'query record')} and "
            f"{n_of(int((n_hits > 0).sum()), 'hit list')}. Expected events with action_name "
            "'impression', a query_id, event_attributes.object.object_id and "
            "event_attributes.position.ordinal, or query records with a query_id, user_query and "
            f"query_response_hit_ids (impressions={self.rules.impressions!r})."
        )

    # Clicks ---------------------------------------------------------------------------
    def click(self):
        """Mark clicks and outcomes, once per page and document."""
        self.columns = np.zeros((1 + len(self.rules.outcomes), len(self.shown.page)), np.int8)
        rows = np.flatnonzero(self.role >= 2)
        key = self.key(self.page[rows], self.doc[rows])
        order = np.lexsort((self.role[rows], key))
        first = new(key[order]) | new(self.role[rows][order])
        self.fates.give(self.event[rows[order[~first]]], _AGAIN)
        rows = rows[np.sort(order[first])]
        added = self.add_rows(rows)
        at = self.row_of(rows)
        rows, at, added = rows[at >= 0], at[at >= 0], added[at >= 0]
        self.columns[self.role[rows] - 2, at] = 1
        self.fates.give(self.event[rows[added]], USED["added"])
        self.fates.give(self.event[rows[self.role[rows] == 2]], USED["click"])
        self.fates.give(self.event[rows], USED["outcome"])
        self.note_moved(rows, at, added)

    def row_of(self, rows):
        """Row of the log of each event; -1 if there is none."""
        keys = self.key(self.shown.page, self.shown.doc)
        order = np.argsort(keys, kind="stable")
        return lookup(keys[order], order, self.key(self.page[rows], self.doc[rows]))

    def add_rows(self, rows):
        """Add documents that were clicked and have no impression; True where that was done."""
        missing = rows[self.row_of(rows) < 0]
        no_page = ~np.isin(self.page[missing], self.shown.page)
        self.fates.give(self.event[missing[no_page]], "nothing shown on its page")
        missing = missing[~no_page]
        keys = self.key(self.page[missing], self.doc[missing])
        self.fates.give(
            self.event[missing[np.isin(keys, self.lost)]], "its impression was left out"
        )
        missing = missing[~np.isin(keys, self.lost)]
        if self.rules.not_shown == "drop":
            self.fates.give(self.event[missing], "its document was not shown")
            return np.zeros(len(rows), dtype=bool)
        page, index, place = self.page[missing], self.index[missing], self.place[missing]
        by_place = self.by_place[page] | self.by_hits[self.application[page]]
        index, place = np.where(by_place, place, index), np.where(by_place, index, place)
        at = np.where(index >= 0, index, place)
        # The interaction of a document that says where it stood.
        key = self.key(page, self.doc[missing])
        order = np.lexsort((at, at < 0, key))
        first = order[new(key[order])]
        first = first[at[first] >= 0]
        added = Shown(
            page[first], self.doc[missing[first]], at[first], place[first], first * 0 - 1
        )
        joined = self.shown.joined(added)
        free = ~joined.shared(spare_first=True)
        self.shown = joined.take(free)
        n_new = int(free[len(free) - len(first) :].sum())
        self.columns = np.pad(self.columns, ((0, 0), (0, n_new)))
        found = np.isin(rows, missing) & (self.row_of(rows) >= 0)
        lost = missing[self.row_of(missing) < 0]
        no_place = ~np.isin(self.key(self.page[lost], self.doc[lost]), key[first])
        self.fates.give(self.event[lost[no_place]], "no position")
        self.fates.give(self.event[lost], _TAKEN)
        if n_new:
            self.notes.append(
                f"{n_of(n_new, 'clicked document')} without an impression joined the page where "
                'the click (or outcome) says; not_shown="drop" drops such clicks.'
            )
        return found

    def note_moved(self, rows, at, added):
        """Say how many clicks stand elsewhere than the impression of their document."""
        moved = (self.index[rows] >= 0) & (self.index[rows] != self.shown.at[at]) & ~added
        moved &= ~self.by_place[self.page[rows]]
        if moved.any():
            self.notes.append(
                f"{n_of(int(moved.sum()), 'click')} (or outcomes) with another ordinal than the "
                "impression of the document, which was taken."
            )

    def key(self, page, doc):
        return page.astype(np.int64) * self.n_docs + doc

    # Results --------------------------------------------------------------------------
    def reading(self):
        order = np.lexsort((self.shown.at, self.shown.page))
        page = self.shown.page[order]
        in_log = np.zeros(len(self.pages.start), dtype=bool)
        in_log[page] = True
        close_queries(self.queries, self.query_fates, self.pages, in_log, self.normal[1])
        qid_of, queries = query_table(self.pages, np.flatnonzero(in_log), self.texts, self.normal)
        log = {
            "session": category(page, self.texts["query_id"]),
            "qid": pd.Categorical.from_codes(qid_of[page], queries["qid"]),
            "doc": category(self.shown.doc[order], self.texts["doc"]),
            "position": (self.shown.at[order] + 1).astype(np.int32),
        }
        if (user := self.pages.user[page]).max(initial=-1) >= 0:
            log["user"] = category(user, self.texts["user"])
            if n := int((self.pages.user[in_log] < 0).sum()):
                self.notes.append(f"{n_of(n, 'page')} of {in_log.sum():,} named no user.")
        outcomes = [f"outcome_{name}" for name in self.rules.outcomes]
        for name, values in zip(("click", *outcomes), self.columns, strict=True):
            log[name] = values[order]
        from_hits = [
            self.name_of(code)
            for code in np.unique(self.application[in_log])
            if self.by_hits[code]
        ]
        bases = np.unique(self.writer[in_log[self.page] & (self.ordinal >= 0)])
        self.notes[:0] = [
            *map(self.base_note, bases),
            *(
                f"What was shown{name and f' in {name}'} is what the hit lists hold."
                for name in from_hits
            ),
        ]
        found = {
            "counts": self.counts(),
            "ordinal_base": {self.name_of(code): int(self.base[code]) for code in bases},
            "from_hits": from_hits,
            "queries": queries,
            "notes": self.notes,
        }
        return pd.DataFrame(log), found, self.doubts

    def base_note(self, code):
        """What ordinals count from; a doubt if few pages confirm a base that was found."""
        name, given = self.name_of(code), self.rules.ordinal_base
        note = f"Ordinals{name and f' of {name}'} count from {self.base[code]}"
        if given is not None and (not isinstance(given, Mapping) or name in given):
            return f"{note}, as ordinal_base says."
        n, of, what = self.support.get(code, (0, 0, "pages begin there"))
        note += f": {n:,} of {of:,} {what}."
        if n < _LEAST_CONFIRMED * of:
            self.doubts.append(
                f"{note} Check where the clients begin to count, and pass ordinal_base."
            )
        return note

    def name_of(self, code):
        return self.texts["application"][code] if code >= 0 else ""

    def counts(self):
        actions = ["", *self.texts["action"]]
        rows = [
            ("event", actions[label], fate, n)
            for (label, fate), n in self.fates.count(self.events["action"] + 1).items()
        ]
        found = self.query_fates.count(np.zeros(len(self.queries["n_hits"]), dtype=int))
        rows += [("query", "", fate, n) for (_, fate), n in found.items()]
        return rows


_AGAIN = "the same document again on its page"
_TAKEN = "its position is taken by another document"


def _counts(codes):
    return zip(*(each.tolist() for each in np.unique(codes, return_counts=True)), strict=True)


def _plain(action):
    return action.casefold().strip()
