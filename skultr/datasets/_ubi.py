"""Reader of click logs that search engines write: OpenSearch's User Behavior Insights (UBI)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from numbers import Integral
from os import PathLike, fspath
from typing import Literal, TypeAlias

import pandas as pd

from .._base._progress import working
from .._base._sklearn import Interval, StrOptions, validate_params
from .._base._typing import AnyFrame
from ..exceptions import ClickDataWarning, warn_user
from ._thresholds import MUCH
from ._ubi_fates import FATES, counted, n_of
from ._ubi_pages import PageReader, Rules, plain
from ._ubi_records import Fields, Records, read_parts

#: What read_ubi reads: files, or a frame.
Source: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]] | AnyFrame"


@validate_params(
    {
        "clicks": [str, list, tuple],
        "outcomes": [str, list, tuple],
        "impressions": [str, list, tuple],
        "page_size": [Interval(Integral, 1, None, closed="left"), None],
        "ordinal_base": [Interval(Integral, 0, None, closed="left"), Mapping, None],
        "user": [StrOptions({"client_id", "user_id", "session_id"}), None],
        "filters": [str, list, tuple],
        "attributes": [str, list, tuple],
        "not_shown": [StrOptions({"add", "drop"})],
        "keep": [callable, None],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def read_ubi(
    queries: Source,
    events: Source | None = None,
    *,
    clicks: str | Sequence[str] = ("click", "click_through", "item_click"),
    outcomes: str | Sequence[str] = (),
    impressions: str | Sequence[str] = "auto",
    page_size: int | None = None,
    ordinal_base: int | Mapping[str, int] | None = None,
    user: Literal["client_id", "user_id", "session_id"] | None = "client_id",
    filters: str | Sequence[str] = (),
    attributes: str | Sequence[str] = (),
    not_shown: Literal["add", "drop"] = "add",
    keep: Callable[[str], bool] | None = None,
    n_jobs: int | None = None,
) -> tuple[pd.DataFrame, UBIReport]:
    """Read the click log of a search engine: User Behavior Insights (UBI) of OpenSearch.

    UBI writes two indices. A record of ``ubi_queries`` is a search: its ``query_id``, what was
    typed (``user_query``) and the documents found (``query_response_hit_ids``). A record of
    ``ubi_events`` says what a user did with a result: ``action_name`` (``impression``, ``click``,
    ...), ``query_id``, and in ``event_attributes`` the document (``object.object_id``) and where
    it stood (``position.ordinal``). Version 1.3.0 is read, and older names of fields.

    Parameters
    ----------
    queries : str, path-like, list of these, or DataFrame
        The query records, or both indices if ``events`` is None. Possible are

        - JSON lines, also as ``.gz`` or ``.zip``: plain ndjson; bulk ndjson (a line
          ``{"index": {...}}`` before each document); or lines with the name of the index and a
          tab before the document;
        - Parquet files (``.parquet``, ``.pq``);
        - frames of any engine that Narwhals reads, with one record per row.

        In Parquet and frames, attributes may be structs, maps, objects, JSON text, or columns such
        as ``event_attributes.object.object_id``.
    events : str, path-like, list of these, or DataFrame, default=None
        The events.
    clicks : str or list of str, default=("click", "click_through", "item_click")
        Values of ``action_name`` that are clicks, in any case.
    outcomes : str or list of str, default=()
        Further values of ``action_name``, such as ``"add_to_cart"``: each becomes a column of the
        log, ``outcome_add_to_cart``, from which rankers can learn.
    impressions : {"auto", "events", "hits"}, str or list of str, default="auto"
        What says which documents were shown:

        - ``"events"``: the ``impression`` events.
        - ``"hits"``: the hit lists.
        - ``"auto"``: the events of each application that has any, and the hit lists of the others.
        - Values of ``action_name``, such as ``"view"`` or ``["impression", "view"]``: the events
          of these actions alone.

    page_size : int, default=None
        Number of results of a page. Needed if hit lists are longer than what was shown, or if
        ``query_attributes`` name a page by its number only.
    ordinal_base : int or dict of str to int, default=None
        The ordinal of the first position: one number, or one for each application (that of the
        events, because clients count ordinals). None finds it for each application: it is 0 if
        at least 5 % of the pages begin at 0, and else 1. If hit lists say what was shown, it is
        found from the ordinals of clicks on them.
    user : {"client_id", "user_id", "session_id"} or None, default="client_id"
        The field that becomes the role ``user``; None leaves it out.
    filters : str or list of str, default=()
        Keys of ``query_attributes`` that change what is found, such as ``"brand"``. Searches with
        different values are then different queries.
    attributes : str or list of str, default=()
        Further attributes of events or searches that become columns of the log under their own
        names, such as ``["device", "price"]``; names within objects are joined by dots. An
        attribute of the ``object`` (or of its ``object_detail``) is that of the impression of the
        document. An attribute of ``event_attributes``, ``query_attributes`` or of the record
        itself is that of the page: of its first query record that has a value, or else of its
        first event. Numbers, true and false become floats. If any value is a text, the column is
        a categorical.
    not_shown : {"add", "drop"}, default="add"
        What happens to clicks (and outcomes) on documents without an impression, if their page
        has impressions of others: add the document where it was clicked, or drop the click.
    keep : callable, default=None
        Says which clients to keep. It is called with each ``client_id``; records of clients for
        which it returns False are left out. For example,
        ``keep=lambda client: "bot" not in client`` leaves out crawlers. Records without a
        ``client_id`` are kept, unless their search was left out.
    n_jobs : int, default=None
        Number of processes that read large files; None uses all cores.

    Returns
    -------
    log : pandas.DataFrame
        One row per document shown on a result page, with pages in the order in which they occur
        first. Ids are categoricals. Columns:

        - ``session``: the ``query_id``;
        - ``qid``: the query in lower case with single spaces, Unicode NFKC, then the filters. If
          there are several applications, the name of the application stands in front;
        - ``doc``: the ``object_id``;
        - ``position``: from 1;
        - ``user``: if any is known; "unknown" in rows without one;
        - ``click``, and ``outcome_…`` for each of the ``outcomes``: 0 or 1;
        - each of the ``attributes``, missing where nothing says it.

    report : UBIReport
        What was read, what was left out and why; print ``report.summary()``.

    Raises
    ------
    ValueError
        If there is no record of UBI, no document was shown on any page, or no record has one of
        the ``attributes``.
    FileNotFoundError
        If a file is missing.

    Warns
    -----
    ClickDataWarning
        If something is likely wrong. ``report.warnings`` holds the same texts. Cases:

        - a tenth of the query records, or of the events of an action (impressions, clicks, each
          outcome), could not be used;
        - events of another action look like impressions;
        - few pages begin at the ordinal taken for the first;
        - nothing was clicked;
        - lines hold no record;
        - many events have another user or query than their page;
        - hit lists are far longer than what was clicked;
        - no query record has a filter.

    See Also
    --------
    skultr.propensity.relevance_labels : Judgments from the log.
    skultr.identifiability.IdentifiabilityGraph : Whether the log determines relevance.

    Notes
    -----
    *Pages.* A page is a ``query_id``, never a ``session_id``, which is a visit. Its text is that
    of its first query record with hits or, without a record, that of its events. Repeated
    impressions and clicks of a document count once per page.

    *Positions* go on over the pages of a search if ``query_attributes`` has ``from``, ``start`` or
    ``offset``, or ``page`` and a size. If a ``query_id`` has several requests, an event is
    assigned to one of them by its place in the hit list, or else by its time. If two documents of
    a page have one ordinal, their places in its hit list are taken instead.

    References
    ----------
    User Behavior Insights 1.3.0: https://o19s.github.io/ubi/

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from skultr.datasets import read_ubi
    >>> search = {"query_id": "q-1", "client_id": "c-9", "user_query": "Portable  charger"}
    >>> def event(action, doc, ordinal):
    ...     at = {"object": {"object_id": doc}, "position": {"ordinal": ordinal}}
    ...     return {"action_name": action, "query_id": "q-1", "event_attributes": at}
    >>> records = [search, event("impression", "B01", 0), event("impression", "B02", 1)]
    >>> records += [event("click", "B02", 1)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ubi.ndjson")
    ...     _ = path.write_text("\\n".join(map(json.dumps, records)))
    ...     log, report = read_ubi(path)
    >>> log
      session               qid  doc  position user  click
    0     q-1  portable charger  B01         1  c-9      0
    1     q-1  portable charger  B02         2  c-9      1
    >>> report.ordinal_base
    {'': 0}
    >>> report
    UBIReport(n_pages=1, n_rows=2, n_clicks=1, events_left_out=0)
    """
    # Each column once.
    named = tuple(dict.fromkeys(_names(attributes, "attributes")))
    fields = Fields(user, _names(filters, "filters"), named)
    # Which indices say what was shown, and by which actions.
    source, shown_by = _what_was_shown(impressions)
    rules = Rules(
        clicks=_names(clicks, "clicks"),
        outcomes=_names(outcomes, "outcomes"),
        source=source,
        impressions=shown_by,
        page_size=page_size,
        ordinal_base=ordinal_base,
        filters=fields.filters,
        attributes=fields.attributes,
        not_shown=not_shown,
        keep=keep,
    )
    _check_actions(rules)
    _check_base(ordinal_base)
    _check_attributes(rules)
    records = Records()
    with working("read_ubi"):
        # One source may hold both kinds of records.
        _take(records, queries, None if events is None else "query", fields, n_jobs)
        if events is not None:
            _take(records, events, "event", fields, n_jobs)
        return _read(records, rules)


# Parameters ---------------------------------------------------------------------------
def _names(value, parameter):
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{parameter}={value!r}; expected names.")
    return names


def _what_was_shown(impressions):
    """Where what was shown is read from, and the actions that are impressions."""
    if isinstance(impressions, str) and impressions in ("auto", "events", "hits"):
        return impressions, ("impression",)
    return "events", _names(impressions, "impressions")


def _check_actions(rules):
    for parameter in ("impressions", "clicks"):
        if not getattr(rules, parameter):
            raise ValueError(f"{parameter} is empty; expected at least one action_name.")
    # An action with two meanings would be counted twice.
    names = [plain(name) for name in rules.impressions + rules.clicks + rules.outcomes]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        shown_by = ", ".join(map(repr, rules.impressions))
        raise ValueError(
            f"The actions {sorted(twice)} have several meanings; expected each in one place of "
            f"impressions= ({shown_by}), clicks= and outcomes=."
        )


def _check_attributes(rules):
    columns = {"session", "qid", "doc", "position", "user", *rules.kinds.values()}
    taken = sorted(columns.intersection(rules.attributes))
    if taken:
        raise ValueError(
            f"attributes={list(rules.attributes)} names {taken}, which are columns of the log "
            "already; expected other names."
        )


def _check_base(base):
    if not isinstance(base, Mapping):
        return
    for name, value in base.items():
        is_number = isinstance(value, Integral) and value >= 0
        if not isinstance(name, str) or not is_number:
            raise ValueError(
                f"ordinal_base={dict(base)}; expected the names of applications and whole numbers "
                "from 0."
            )


# Reading ------------------------------------------------------------------------------
def _take(records, source, kind, fields, n_jobs):
    """Read one source: files or frames."""
    sources = source if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ValueError("The list of files is empty; expected at least one.")
    for one in sources:
        name = fspath(one) if isinstance(one, str | PathLike) else "the frame"
        records.extend(read_parts(one, kind, fields, n_jobs), name)


def _read(records, rules):
    """The log of records, and the report on it; warns of what the report doubts."""
    faults = []
    where = []
    for fault, (n, places) in records.faults.items():
        faults.append(("line", "", fault, n))
        where += [f"{place}: {fault}." for place in places]
    # Files of another kind have lines, and no record.
    if not records.n_records:
        found = "; ".join(where) or "nothing"
        raise ValueError(
            f"There is no record of UBI: found {records.n_lines:,} lines ({found}). Expected "
            'documents with "action_name" (events) or "user_query" (queries), one per line; '
            "jq -c '.[]' makes lines of a JSON array, and jq -c '.hits.hits[]' of the answer to a "
            "search."
        )
    # The rules decide about every record, and say so.
    log, found, doubts = PageReader(records, rules).read()
    found["counts"] = counted(found["counts"] + faults)
    size = (log["session"].nunique(), len(log), int(log["click"].sum()))
    losses = _losses(found["counts"], rules)
    report = UBIReport(**found, losses=losses, faulty_lines=where, size=size)
    # First what was lost, then what is doubtful.
    report.warnings = [*_warnings(report, rules), *doubts]
    for warning in report.warnings:
        warn_user(warning, ClickDataWarning)
    return log, report


#: What became of records that were not asked for, or say again what is known.
_HARMLESS = (
    "no action_name",
    "action that was not asked for",
    "the same document again on its page",
    "the same record again",
    "left out by keep",
    "impression of an application read by hit lists",
)
#: Query records that say nothing of any page; the others stand beside one, or had no results.
_LOST_QUERIES = ("no query_id", "no user_query")


def _losses(counts, rules):
    """How many records of each kind and action the log has and lost, and why."""
    kinds = rules.kinds
    kind = counts["action"].map(lambda name: kinds.get(plain(name)))
    # Query records have no action.
    rows = counts.assign(kind=kind.mask(counts["record"] == "query", "query"))
    # What was not asked for, or is there again, is no loss.
    rows = rows[rows["kind"].notna() & ~rows["fate"].isin(_HARMLESS)]
    if rules.source == "hits":
        rows = rows[rows["kind"] != "impression"]
    # A query record that was not used is a loss only if nothing else stands for its page.
    may_be_lost = (rows["kind"] != "query") | rows["fate"].isin(_LOST_QUERIES)
    rows = rows.assign(lost=rows["n"].where(~rows["used"] & may_be_lost, 0))
    groups = rows.groupby(["kind", "action"])
    losses = groups[["n", "lost"]].sum().reset_index()
    losses["share"] = losses["lost"] / losses["n"]
    losses["reasons"] = [_reasons(each[each["lost"] > 0]) for _, each in groups]
    # In the order of the parameters, queries last.
    order = [*dict.fromkeys(kinds.values()), "query"]
    by_kind = losses["kind"].map(order.index).argsort(kind="stable")
    return losses.iloc[by_kind].reset_index(drop=True)


def _reasons(rows):
    """Numbers of records by what became of them, in words, most frequent first."""
    # A stable order, so that equal numbers stay as the rules are.
    numbers = rows.groupby("fate")["n"].sum().sort_values(ascending=False, kind="stable")
    return ", ".join(f"{n:,} {_WORDS.get(fate, fate)}" for fate, n in numbers.items())


def _advice(rows):
    """What to do about what became of most records."""
    fate = rows.groupby("fate")["n"].sum().idxmax()
    return _ADVICE.get(fate, "")


def _warnings(report, rules):
    """Records that should be in the log and are not, and a log without clicks."""
    # A log without a click is the worst that can happen: it comes first.
    if not report.n_clicks:
        yield _no_clicks(report, rules)
    for row in report.losses.itertuples():
        is_told = row.kind == "click" and not report.n_clicks  # just above
        if row.share >= MUCH.value and not is_told:
            with_action = report.counts[report.counts["action"] == row.action]
            lost = with_action[~with_action["used"] & ~with_action["fate"].isin(_HARMLESS)]
            yield f"{_loss(row)} {_advice(lost)}".strip()
    n_lines = report.n_records("line")
    if n_lines:
        where = " ".join(report.faulty_lines)
        yield f"{n_lines:,} lines hold no record and were left out: {where}"


def _loss(row):
    """One row of the losses as a sentence."""
    kind = "query records" if row.kind == "query" else f"events {row.action!r}"
    return (
        f"{row.lost:,} of {row.n:,} {kind} ({100 * row.share:.0f} %) could not be used: "
        f"{row.reasons}."
    )


def _no_clicks(report, rules):
    """Why nothing was clicked: clicks that were left out, or none that were found."""
    events = report.counts[report.counts["record"] == "event"]
    names = events["action"].map(plain)
    clicks = events[names.isin([plain(name) for name in rules.clicks])]
    if len(clicks):
        # Reasons that are losses say more than repetitions do.
        harmful = clicks[~clicks["fate"].isin(_HARMLESS)]
        if len(harmful):
            clicks = harmful
        reasons = _reasons(clicks)
        advice = _advice(clicks)
        return f"Nothing was clicked, because no click could be used: {reasons}. {advice}".strip()
    # What was read otherwise can be no click.
    read = [plain(name) for name in ("", *rules.impressions, *rules.outcomes)]
    others = events.loc[~names.isin(read), "action"].unique()
    if not len(others):
        return (
            f"Nothing was clicked: no event has an action_name of {list(rules.clicks)}, nor any "
            "other that may be a click. Pass the events of clicks as well."
        )
    return (
        f"Nothing was clicked: no event has an action_name of {list(rules.clicks)}. The other "
        f"actions found are {list(others)}; name those that are clicks in clicks=."
    )


class UBIReport:
    """What :func:`read_ubi` read, what it left out and why, and what it decided.

    Every record has one fate, so that the counts add up to what was read.

    Attributes
    ----------
    counts : DataFrame
        One row per kind of ``record`` ("event", "query" or "line"), ``action`` (the
        ``action_name`` of events) and ``fate``: whether it was ``used``, and the number ``n`` of
        such records. Lines are those that hold no record.
    losses : DataFrame
        One row per ``kind`` ("impression", "click", ``"outcome_…"``, "query") and ``action``:
        the number ``n`` of records, how many of them were ``lost``, their ``share``, and the
        ``reasons`` in words. Repetitions, and clients that were left out, do not count.
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
        losses: pd.DataFrame,
        ordinal_base: Mapping[str, int],
        from_hits: list[str],
        queries: pd.DataFrame,
        notes: list[str],
        faulty_lines: list[str],
        size: tuple[int, int, int],
    ) -> None:
        self.counts = counts
        self.losses = losses
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
        # Every record has one fate: these numbers add up to what was read.
        rows = self.counts[self.counts["record"] == record]
        if used is not None:
            rows = rows[rows["used"] == used]
        return int(rows["n"].sum())

    def summary(self) -> str:
        """The report in plain English, one fact per line."""
        lines = []
        for title, facts in self._chapters():
            lines.append(title)
            lines += [f"  {fact}" for fact in facts]
        return "\n".join(lines)

    def _chapters(self):
        """Titles, and the facts under each."""
        pages = n_of(self.n_pages, "result page")
        queries = n_of(len(self.queries), "query", "queries")
        shown = n_of(self.n_rows, "shown document")
        yield f"The log has {pages} of {queries}: {shown}, {self.n_clicks:,} of them clicked.", []
        if self.warnings:
            yield "Check first:", self.warnings
        lost = [_loss(row) for row in self.losses.itertuples() if row.lost]
        yield "Lost by kind:" if lost else "Nothing was lost of any kind.", lost
        yield "How the records were read:", self.notes
        for record, what in (("event", "event"), ("query", "query record"), ("line", "line")):
            for used in (True, False):
                if self.n_records(record, used=used):
                    yield self._title(record, what, used), self._fates(record, used)
        if self.faulty_lines:
            yield "The first lines without a record:", self.faulty_lines

    def _title(self, record, what, used):
        """How many of the records of a kind were used, or left out; "of all" is not said."""
        n = self.n_records(record, used=used)
        total = self.n_records(record)
        number = n_of(total, what)
        if n < total:
            number = f"{n:,} of {number}"
        verb = "was" if n == 1 else "were"
        return f"{number} {verb} {'used' if used else 'left out'}:"

    def _fates(self, record, used):
        """One line per fate, most frequent first: number, fate, the actions, what to do."""
        rows = self.counts[(self.counts["record"] == record) & (self.counts["used"] == used)]
        totals = rows.groupby("fate")["n"].sum().sort_values(ascending=False, kind="stable")
        # Numbers stand flush right.
        width = len(f"{totals.max():,}")
        for fate, n in totals.items():
            line = f"{n:>{width},}  {_WORDS.get(fate, fate)}"
            if fate == "action that was not asked for":
                line += f": {_actions(rows[rows['fate'] == fate])}"
            # Advice is on what clients send; query records are the server's.
            if record != "query" and fate in _ADVICE:
                line += f". {_ADVICE[fate]}"
            yield line

    def __repr__(self) -> str:
        return (
            f"UBIReport(n_pages={self.n_pages}, n_rows={self.n_rows}, n_clicks={self.n_clicks}, "
            f"events_left_out={self.n_records('event', used=False)})"
        )

    def _repr_html_(self) -> str:
        # Lines are as long as their sentences.
        summary = f'<pre style="white-space: pre-wrap">{escape(self.summary())}</pre>'
        table = self.counts.to_html(index=False)
        return f"{summary}<details><summary>Counts by action</summary>{table}</details>"


#: What became of records in the words of the summary, for one record and for many, where these
#: are not their own.
_WORDS = FATES | {
    "neither a query nor an event": "that are neither a query nor an event",
    "no JSON object": "that are no JSON object",
}
#: What to do where records are left out.
_ADVICE = {
    "action that was not asked for": "Name those that count in impressions=, clicks= or "
    "outcomes=.",
    "left out by keep": "Let keep= return True for clients that are people.",
    "no query_id": "Send the query_id with every event and query record.",
    "no object_id": "Send event_attributes.object.object_id with impressions and clicks.",
    "no position": "Send event_attributes.position.ordinal with impressions and clicks.",
    "no query record and no user_query": "Pass the query records of the same days.",
    "two documents at one ordinal of its page": "Check how the client counts positions.",
    "its position is taken by another document": "Check that the client counts positions over "
    "all pages of a query_id, and names documents alike in all events.",
    "nothing shown on its page": "If only some pages have impressions, read the others apart.",
    "neither a query nor an event": "Pass other indices apart, or not at all.",
    "no JSON object": "Write the file again.",
}


def _actions(rows, most=6):
    """The most frequent actions, with their numbers; so many fit a line."""
    rows = rows.sort_values("n", ascending=False, kind="stable")
    names = [f"{name} {n:,}" for name, n in zip(rows["action"], rows["n"], strict=True)]
    n_more = len(names) - most
    if n_more > 0:
        names[most:] = [f"{n_more} more in report.counts"]
    return ", ".join(names)
