"""What a click log holds, under any names of columns: roles, faults, and the code that trains."""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._base._texts import visible_text
from .._base._typing import AnyFrame, Frame
from .._log._click_units import divided, impressions_of_counts
from .._log._counted import collect, value_bits
from .._log._estimator import DROP, RENAME, errors_of
from .._log._faults import ADD_ONE, IDS, faults_in, torn_lists
from .._log._lookalikes import (
    FeatureSample,
    features_that_name,
    orders_lists,
    outcomes_of,
    rows_to_look_at,
)
from .._log._roles import FIT_ROLES, OUTCOME, as_numbers, is_role, numbers, open_frame
from .._log._segments import encode, offsets_from_sorted, pair_codes
from .._log._units import units_in
from ..identifiability import IdentifiabilityGraph

#: Rows that are looked at; of longer logs, whole queries are drawn.
_ROWS = 1_000_000
#: What code needs before it can train, in words.
_NEEDED = {
    "qid": "the query",
    "doc": "the document",
    "position": "its rank on the page",
    "click": "whether it was clicked",
}
#: Words for 1 and for 0.
_WORDS = {"yes": "no", "true": "false", "y": "n", "t": "f", "ja": "nein", "oui": "non"}
#: Kinds of columns of text.
_TEXT = nw.String | nw.Categorical | nw.Enum
#: Lines of code, for pandas and for Polars: what reads a file, by its suffix, makes words into
#: clicks or outcomes, asks for roles, and ranks candidates.
_LINES = {
    ".parquet": ("log = pd.read_parquet({0!r})", "log = pl.read_parquet({0!r})"),
    ".csv": ("log = pd.read_csv({0!r})", "log = pl.read_csv({0!r}, infer_schema_length=None)"),
    **dict.fromkeys(
        (".ndjson", ".jsonl"),
        (
            "log = pd.read_json({0!r}, lines=True)",
            "log = pl.read_ndjson({0!r}, infer_schema_length=None)",
        ),
    ),
    "word": (
        "log[{0!r}] = log[{0!r}] == {1!r}",
        "log = log.with_columns(pl.col({0!r}) == {1!r})",
    ),
    "rest": ("# Complete this line. The other columns are {0}.",) * 2,
    "rank": (
        """\
candidates = log.drop_duplicates(["qid", "doc"])  # or others: their qid and features
candidates = candidates.assign(score=ranker.predict(candidates))
scores = candidates.groupby("qid")["score"]
candidates = candidates.assign(rank=scores.rank(ascending=False, method="first"))""",
        """\
candidates = log.unique(["qid", "doc"])  # or others: their qid and features
candidates = candidates.with_columns(score=ranker.predict(candidates))
rank = pl.col("score").rank("ordinal", descending=True).over("qid")
candidates = candidates.with_columns(rank=rank)""",
    ),
}
#: Names that columns of a role often have, those that say most first.
_NAMES = {
    "qid": "qid query_text query search_term search_query user_query keywords keyword search_text "
    "term phrase query_string query_id queryid search_phrase q",
    "session": "session session_id page_view_id pageview_id search_id serp_id request_id "
    "impression_id list_id page_id query_id view_id pageview page_view search_session_id "
    "event_group",
    "doc": "doc doc_id docid document document_id sku product_id product item_id item asin url "
    "object_id listing_id article_id result_id hit_id hotel_id video_id doc_url product_sku page "
    "page_url landing_page",
    "position": "position pos rank slot item_position display_position ordinal serp_rank "
    "display_rank result_rank position_shown ranking place index",
    "click": "click clicked is_click is_clicked was_clicked clicks n_clicks click_count "
    "click_bool has_click ctr click_rate clicked_flag click_flag",
    "user": "user user_id userid customer customer_id visitor visitor_id client_id member_id "
    "account_id uid user_hash shopper_id",
    "impressions": "impressions n_impressions impression_count views n_views shows",
    "production": "production production_score ltr_score model_score ranker_score ranking_score "
    "served_score logged_score old_score",
    "propensity": "propensity examination exam_probability",
    "relevance": "relevance grade judgment relevance_label human_label annotation",
}
_OUTCOME = re.compile(
    "cart|purchas|order|bought|conver|dwell|book|revenue|checkout|sale|basket|wishlist|favou?rite"
)


@dataclass(frozen=True, eq=False, repr=False)
class LogReport:
    """What :func:`~skultr.describe_log` found; its text is the report.

    Attributes
    ----------
    source : str
        What was read.
    rename : dict of str to str
        The log's own names of columns, and the roles that these probably have.
    n_rows, n_queries, n_pages, n_documents : int
        What was read: rows, queries, result pages, and pairs of query and document; 0 where their
        columns are not known.
    columns : DataFrame
        For each column ``role``, ``type``, ``missing`` (share of the rows), ``varies`` (share of
        the documents in which it changes) and ``change`` (median relative change there).
    clicks : DataFrame
        Impressions, clicks and click rate by position.
    outcomes : list of str
        Columns that the click decides: they are no features.
    faults, remarks : list of str
        What a fit would refuse, and what it would warn of.
    verdict : str
        Whether the log determines relevance; see
        :class:`~skultr.identifiability.IdentifiabilityGraph`.
    code : str
        The lines that read the file, train a ranker and rank candidates. While a column of
        ``qid``, ``doc``, ``position`` or ``click`` is not known: the line that renames them, to
        complete.
    """

    source: str
    rename: dict[str, str] = field(default_factory=dict)
    n_rows: int = 0
    n_queries: int = 0
    n_pages: int = 0
    n_documents: int = 0
    columns: pd.DataFrame = field(default_factory=pd.DataFrame)
    clicks: pd.DataFrame = field(default_factory=pd.DataFrame)
    outcomes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    verdict: str = ""
    code: str = ""

    def _parts(self):
        """Headings, and text, lists of remarks or tables; none that is empty."""
        counts = {
            "rows": self.n_rows,
            "queries": self.n_queries,
            "result pages": self.n_pages,
            "pairs of query and document": self.n_documents,
        }
        parts = {
            self.source: ", ".join(f"{n:,} {noun}" for noun, n in counts.items() if n),
            "Columns": self.columns,
            "Clicks by position": self.clicks,
            "Faults: fit would refuse the log": self.faults,
            "Remarks": self.remarks,
            "Does the log determine relevance?": self.verdict,
            "Code": self.code,
        }
        return {title: part for title, part in parts.items() if len(part)}

    def __str__(self) -> str:
        text = "\n\n".join(f"{title}\n{_text(part)}" for title, part in self._parts().items())
        return visible_text(text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return sections({title: _html(part) for title, part in self._parts().items()})

    def page(self) -> str:
        """The report as the text of an HTML file that needs no other."""
        return document(self.source, self._repr_html_(), "no" if self.faults else "yes")


def _text(part):
    if isinstance(part, pd.DataFrame):
        return part.to_string(formatters=_FORMATS, na_rep="")
    return part if isinstance(part, str) else "\n".join(f"- {line}" for line in part)


def _html(part):
    if isinstance(part, pd.DataFrame):
        return f'<div class="wide">{part.to_html(border=0, formatters=_FORMATS, na_rep="")}</div>'
    if isinstance(part, str):
        return f"<pre>{escape(part)}</pre>"
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in part)}</ul>"


def _percent(value):
    """A share in percent, a blank for what is unknown or none."""
    return "" if pd.isna(value) or value == 0 else f"{value:.2%}"


#: How the columns of tables are written.
_FORMATS: Any = {
    **dict.fromkeys(("missing", "varies", "change"), _percent),
    "click rate": "{:.2%}".format,
}


def describe_log(
    log: AnyFrame | Frame | str | Path,
    click: str | None = None,
    *,
    rename: Mapping[str, str] | None = None,
) -> LogReport:
    """Report on a click log: roles of its columns, counts, faults, and code that trains on it.

    No fault of the log is an error here: the report names it. Of more than a million rows, whole
    queries are drawn, by the hash of their place.

    Parameters
    ----------
    log : frame or path
        One row per document of each result page, under any names of columns: pandas, Polars
        (eager or lazy), PyArrow, an engine that Narwhals reads, or the path of a Parquet, CSV or
        newline-delimited JSON file.
    click : str, default=None
        Name of the column of clicks; found by default.
    rename : dict of str to str, default=None
        The log's own names of columns, and their roles, such as ``{"artikel": "doc"}``. The
        roles of other columns are found by their names and values.

    Returns
    -------
    report : LogReport
        Text when printed, HTML in a notebook; ``report.rename`` is the dict for ``rename``.

    Raises
    ------
    ValueError
        If a path has none of these formats; if the records are those of User Behavior Insights,
        which :func:`~skultr.datasets.read_ubi` reads; if ``rename`` names a column that is not
        there, no role, or a role of two columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr import describe_log
    >>> log = pd.DataFrame({
    ...     "query_text": ["shoes"] * 4,
    ...     "search_id": ["a", "a", "b", "b"],
    ...     "sku": [1, 2, 2, 1],
    ...     "slot": [1, 2, 1, 2],
    ...     "is_click": [1, 0, 0, 1],
    ...     "price": [30.0, 80.0, 80.0, 30.0],
    ... })
    >>> report = describe_log(log)
    >>> report.rename
    {'query_text': 'qid', 'search_id': 'session', 'sku': 'doc', 'slot': 'position', \
'is_click': 'click'}
    >>> print(report.code)
    from skultr.rankers import EnsembleRanker
    <BLANKLINE>
    log = log.rename(columns={...})
    ranker = EnsembleRanker()
    ranker.fit(log, "click")
    candidates = log.drop_duplicates(["qid", "doc"])  # or others: their qid and features
    candidates = candidates.assign(score=ranker.predict(candidates))
    scores = candidates.groupby("qid")["score"]
    candidates = candidates.assign(rank=scores.rank(ascending=False, method="first"))
    """
    rename = {**(rename or {}), **({} if click is None else {click: "click"})}
    source = log if isinstance(log, str | Path) else f"{type(log).__module__}.{type(log).__name__}"
    if isinstance(log, pd.DataFrame):
        log = log.set_axis([*map(str, log.columns)], axis=1)
    try:
        frame = open_frame(_opened(log) if isinstance(log, str | Path) else log, "log")
        names = frame.collect_schema().names()
        if frame.implementation.is_polars():
            _refuse_unreadable(frame.collect_schema(), source)
        if {"event_attributes", "query_attributes"} & {*names}:
            raise ValueError(
                f"{source} holds records of User Behavior Insights (UBI), not rows of result "
                "pages: use the command skultr ubi, or skultr.datasets.read_ubi."
            )
        if (
            not {*names} >= {*rename}
            or not all(map(is_role, rename.values()))
            or {*rename.values()} & {*names} - {"click", *rename}
            or len({*rename.values()}) < len(rename)
        ):
            raise ValueError(
                f"rename is {rename}; expected roles ({', '.join(_NAMES)}, ...) by column, each "
                f"of one column. The columns are {names}."
            )
        qid = {role: name for name, role in rename.items()}.get("qid")
        frame, n_all = _in_memory(frame, qid or _first(names, "qid", lambda name: True))
    except BaseException as error:  # of whatever engine reads it
        # A panic of Polars is no Exception.
        is_of_engine = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, OSError | TypeError) or type(error) is ValueError or not is_of_engine:
            raise
        raise ValueError(f"{source} cannot be read: {error}") from error
    if not len(frame):
        return LogReport(str(source), faults=["The log has no rows."])
    report = _Table(frame, rename).report(str(source))
    if n_all > len(frame):
        report.remarks.append(f"The log has {n_all:,} rows; these are whole queries drawn of it.")
    return report


def _opened(path):
    """A file as a frame; lazy, if Polars is there."""
    suffix = Path(path).suffix.lower()
    if suffix not in _LINES:
        raise ValueError(
            f"{path} ends with {suffix!r}; expected .parquet, .csv, .ndjson or .jsonl. For UBI "
            "records of a search engine, use skultr ubi."
        )
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not (Path(path).is_file() or Path(path).is_dir()):  # a pipe or a device may have no end
        raise ValueError(f"{path} is no regular file; expected a file of a log.")
    try:
        import polars as pl
    except ImportError:
        readers = {".parquet": pd.read_parquet, ".csv": pd.read_csv}
        return readers.get(suffix, lambda path: pd.read_json(path, lines=True))(path)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The name of the file {path} is no text in UTF-8; rename it.") from error
    # Types from all rows: prices may begin as whole numbers.
    options = {} if suffix == ".parquet" else {"infer_schema_length": None}
    scan = getattr(pl, f"scan_{suffix[1:].replace('jsonl', 'ndjson')}")
    return scan(glob.escape(str(path)), **options)  # a name is no pattern of several


def _refuse_unreadable(schema, source):
    """Raise an error for columns that cannot get from Polars to arrays."""
    if named := [name for name in schema if "\0" in name]:
        raise ValueError(
            f"{source} has a column with the name {named[0]!r:.80}, which holds the character "
            "NUL: a file of text is probably in UTF-16; expected UTF-8. Convert it first, such as "
            "with iconv -f UTF-16 -t UTF-8."
        )
    if wide := [name for name, dtype in schema.items() if dtype in (nw.Int128, nw.UInt128)]:
        raise ValueError(
            f"{source} has whole numbers beyond 2**63 in the column {wide[0]!r:.80}, of which "
            "arrays would lose digits. If they are ids, write them as text, such as with a letter "
            "before the digits; if they are quantities, as decimal numbers (1e27)."
        )


def _in_memory(frame, qid):
    """At most a million rows of a frame, as whole queries, in memory; the number of all rows."""
    n_rows = collect(frame.select(nw.len())).item()
    if n_rows > _ROWS:
        if qid is None:
            frame = frame.head(_ROWS)
        else:
            counts = collect(frame.group_by(qid).agg(nw.len().alias("_n")))
            counts = counts.to_pandas().sort_values(qid, kind="stable", ignore_index=True)
            counts = counts.sample(frac=1, random_state=0)
            few = counts[counts["_n"].cumsum() <= _ROWS]
            frame = frame.filter(
                nw.col(qid).is_in((few if len(few) else counts[:1])[qid].tolist())
            )
    return collect(frame), n_rows


# HTML --------------------------------------------------------------------------------------
_COLOURS = {"yes": "#1b6e3c", "barely": "#8a5a00", "level": "#8a5a00", "no": "#b3261e"}
#: A report as an HTML file that needs no other.
_DOCUMENT = Template("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>skultr: $source</title><style>
:root{--ink:#1c2430;--soft:#5b6675;--line:#dde2e8;--back:#f5f7f9;--bar:#2b6cb0}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
 font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.25rem}
h1{font-size:1.5rem;line-height:1.25;margin:.3rem 0 .6rem}
h2{font-size:1.15rem;margin:0 0 .6rem}
section{background:#fff;border:1px solid var(--line);border-radius:8px;padding:1rem 1.2rem;
 margin:0 0 1rem}
.verdict{border-left:8px solid var(--level)}
.verdict h1{color:var(--level)}
td:first-child code{white-space:nowrap}
.soft{overflow-wrap:anywhere;color:var(--soft)}
p{margin:.4rem 0}
ol,ul{margin:.4rem 0;padding-left:1.3rem}
li{margin:.3rem 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .7rem .28rem 0;border-bottom:1px solid var(--line);text-align:left;
 vertical-align:top}
th{color:var(--soft);font-weight:600}
.number{text-align:right;white-space:nowrap}
pre,code{font:.88rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--back);padding:.7rem .8rem;
 border-radius:6px;margin:.5rem 0}
code{overflow-wrap:anywhere}
.bar{display:block;height:.8rem;background:var(--bar);border-radius:2px;min-width:1px}
svg{display:block;width:100%;height:auto;max-width:40rem}
@media(max-width:32rem){main{padding:.6rem}}
:root{--level:$level}
</style></head>
<body><main>$body</main></body></html>
""")


def document(source: str, body: str, level: str) -> str:
    """The text of an HTML file, whose characters all encodings of Unicode have."""
    text = _DOCUMENT.substitute(source=escape(source), level=_COLOURS[level], body=body)
    return visible_text(text)


def sections(parts: dict[str, str]) -> str:
    """HTML under headings, without empty parts."""
    return "".join(
        f"<section><h2>{escape(title)}</h2>{body}</section>\n"
        for title, body in parts.items()
        if body
    )


# Roles ------------------------------------------------------------------------------------
def _plain(name):
    """A name in lower case, with underscores between words."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name)).lower())


def _first(names, role, fits):
    """The column that probably has a role: by its name, and by its values."""
    plain = {_plain(name): name for name in reversed(names)}
    found = (plain[each] for each in _NAMES[role].split() if each in plain)
    return next((name for name in found if fits(name)), None)


def _proposed(frame, numbers, rename):
    """The roles of columns that do not have their names yet; those of ``rename`` are given."""
    names = frame.columns
    roles = {name: name for name in names if is_role(name)}
    checks = {
        "doc": lambda name: _names_documents(name, frame[name].dtype),
        "position": lambda name: _within(numbers[name], 0, 10_000, whole=True),
        "impressions": lambda name: _within(numbers[name], 0, np.inf, whole=True),
        "propensity": lambda name: _within(numbers[name], 0, 1),
        "production": lambda name: numbers[name] is not None,
        "relevance": lambda name: _within(numbers[name], 0, 100),
    }
    counted = "impressions" in (*roles.values(), *rename.values()) or _first(
        names, "impressions", checks["impressions"]
    )
    # Beside impressions, clicks may be counted.
    checks["click"] = lambda name: _within(numbers[name], 0, np.inf if counted else 1)
    if "click" in roles and "click" in rename.values():
        roles["click"] = "outcome_click"
    roles |= rename
    for role in _NAMES:
        if role not in roles.values():
            free = [name for name in names if name not in roles]
            fits = checks.get(role, lambda name: not frame[name].dtype.is_float())
            name = _first(free, role, fits)
            if name is not None:
                roles[name] = role
    return roles


def _names_documents(name, dtype):
    """Whether a column may hold ids of documents; a page that is a number is one of results."""
    return not dtype.is_float() and (_plain(name) != "page" or isinstance(dtype, _TEXT))


def _within(values, low, high, *, whole=False):
    """Whether a column holds numbers, all between two, and whole ones if that is asked for."""
    known = np.empty(0) if values is None else values[~np.isnan(values)]
    within = len(known) and known.min() >= low and known.max() <= high
    return bool(within and not (whole and (known % 1).any()))


def _yes(column):
    """The word for 1 in a column of two words such as "yes" and "no", None in any other."""
    values = column.unique().to_list() if isinstance(column.dtype, _TEXT) else []
    words = {str(value).strip().lower(): value for value in values if len(values) == 2}
    return next((words[yes] for yes, no in _WORDS.items() if {*words} == {yes, no}), None)


def _counts_up(values):
    """Whether sorted pages, of more than two rows (else clicks count, too), count from 0 or 1."""
    starts = values == values.min()
    counts = 2 < 2 * starts.sum() < len(values) and (starts[1:] | (np.diff(values) == 1)).all()
    return bool(counts and starts[0] and values[0] in (0, 1))


# The log under its roles ------------------------------------------------------------------
class _Table:
    """A log in memory under its proposed roles."""

    def __init__(self, frame: nw.DataFrame[Any], rename: dict[str, str]) -> None:
        self.frame = frame
        self.numbers = {name: _as_floats(frame[name]) for name in frame.columns}
        self.roles = roles = _proposed(frame, self.numbers, rename)
        named = {role: name for name, role in roles.items()}
        self.clicks = self.numbers.get(named.get("click"))
        self.impressions = self.numbers.get(named.get("impressions"))
        self.query, self.doc, self.page = (
            self._codes(named.get("qid"), named.get(role)) for role in (None, "doc", "session")
        )
        self.page_starts = np.unique(self.page, return_index=True)[1]
        self.places = [] if "position" in named else self._free(self._counts)
        if len(self.places) == 1:
            roles[self.places[0]], named["position"] = "position", self.places[0]
        self.missing = [role for role in _NEEDED if role not in named]
        self.position = self.numbers.get(named.get("position"))
        self.starts_at_0 = self.position is not None and bool(np.nanmin(self.position) == 0)
        if self.starts_at_0:
            self.position = self.position + 1
        if "production" in named and not self._orders_pages(named["production"]):
            del roles[named["production"]]
        self.outcomes = self._outcomes()
        roles |= {name: f"{OUTCOME}{_plain(name)}" for name in self.outcomes if name not in roles}
        self.rename = {name: role for name, role in roles.items() if name != role}
        self.words = {
            role: yes
            for name, role in roles.items()
            if role not in IDS and (yes := _yes(frame[name])) is not None
        }
        features = [name for name in frame.columns if name not in roles]
        self.page_columns = [name for name in features if self._is_of_page(name)]
        self.times = [name for name in features if frame[name].dtype.is_temporal()]
        self.features = [n for n in features if n not in (*self.page_columns, *self.times)]

    def _codes(self, *names):
        """Codes of the distinct values of columns; None stands for one value."""
        code = np.zeros(len(self.frame), dtype=np.int64)
        for name in (name for name in names if name is not None):
            own, ids = encode(value_bits(self.frame[name]))
            code = encode(pair_codes(code, own, len(ids)))[0]
        return code

    def _free(self, fits):
        """Columns of numbers that have no role, and whose values fit."""
        free = {name: v for name, v in self.numbers.items() if name not in self.roles}
        known = {n: v for n, v in free.items() if v is not None and not np.isnan(v).all()}
        return [name for name, values in known.items() if fits(values)]

    def _counts(self, values):
        """Whether a column counts the rows of pages: in the order of the log, or in any."""
        return _counts_up(values) or _counts_up(values[np.lexsort((values, self.page))])

    def _orders_pages(self, name):
        """Whether pages stand in the order of a score, as of the ranker that served them."""
        scores = self.numbers[name]
        if self.position is None or scores is None or np.isnan(scores).any():
            return False
        shown = ~np.isnan(self.position)
        return orders_lists(scores[shown], self.page[shown], self.position[shown])

    def _outcomes(self):
        """Names of columns that the click decides, or that are named so and nearly are."""
        if self.clicks is None:
            return []
        clicked = self.clicks > 0
        group = self.doc if self.doc.any() else self.query
        return [
            name
            for name in self._free(lambda values: np.nanmin(values) >= 0)
            if self._is_click_rate(self.numbers[name])
            or (_OUTCOME.search(_plain(name)) and not self.numbers[name][~clicked].any())
            or outcomes_of(clicked, group, self.numbers[name][:, None])
        ]

    def _is_click_rate(self, values):
        """Whether values are clicks over impressions, which the clicks decide."""
        if self.impressions is None or not self.clicks.any():
            return False
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = self.clicks / self.impressions
        known = np.isfinite(rate) & np.isfinite(values)
        return bool(values[known].any() and np.allclose(values[known], rate[known], atol=1e-4))

    def _is_of_page(self, name):
        """Whether a column has one value per result page, on pages of several rows."""
        values = value_bits(self.frame[name])
        varies = len(self.page_starts) < len(values) and (values != values[0]).any()
        return bool(varies and (values == values[self.page_starts][self.page]).all())

    def report(self, source: str) -> LogReport:
        """The report of the log."""
        log = self._renamed()
        errors = []
        mends = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not self.missing:
                errors, mends = errors_of(log, "click", {}, (*FIT_ROLES, "production"))
        warned = dict.fromkeys(str(warning.message) for warning in caught)
        return LogReport(
            source,
            self.rename,
            len(self.frame),
            self._count_of(self.query, "qid"),
            self._count_of(self.page, "qid"),
            self._count_of(self.doc, "qid", "doc"),
            self._columns(),
            self._by_position(log),
            self.outcomes,
            self._faults(errors),
            [*self._remarks(log), *warned],
            "" if self.missing else self._verdict(log),
            self._code(mends, source),
        )

    def _count_of(self, code, *needs):
        """Number of codes; 0 where a role that they need is missing."""
        if {*needs} & {*self.missing}:
            return 0
        return int(code.max()) + 1

    def _faults(self, errors):
        """What must be mended before a fit: roles that are missing, errors, wrong units."""
        found = [self._missing_role(role) for role in self.missing]
        found += dict.fromkeys(map(str, errors))
        found += [message for unit, message in self.units if unit.is_error]
        if self.starts_at_0:
            found.append("Positions count from 0: add 1, as the code below does.")
        return found

    def _missing_role(self, role):
        """The sentence about a role that no column looks like."""
        maybe = []
        if role == "position":
            maybe = self.places
        elif role == "click":
            maybe = self._free(lambda values: np.isin(values, (0, 1)).all() and np.ptp(values) > 0)
        guesses = "".join(f"It may be {name!r}. " for name in maybe)
        return (
            f"No column looks like the role {role!r}, {_NEEDED[role]}. {guesses}"
            f"Give it: rename={{COLUMN: {role!r}}}, or --rename COLUMN={role}."
        )

    def _renamed(self):
        """The log with the names of roles, positions from 1 and clicks as numbers."""
        frame = self.frame.rename(self.rename).with_columns(
            **{role: nw.col(role) == yes for role, yes in self.words.items()}
        )
        if self.starts_at_0:
            frame = frame.with_columns(nw.col("position") + 1)
        if self.clicks is not None:
            frame = frame.with_columns(nw.col("click").cast(nw.Float64))
        return frame.to_native()

    def _remarks(self, log):
        per_page = [name for name in self.page_columns if name not in self.times]
        # More values are hours or ids; the repair refuses more than 256.
        few = [n for n in per_page if len(np.unique(value_bits(self.frame[n]))) <= 20]
        listed = ", ".join(map(repr, per_page))
        return [
            *(
                f"{name!r} is decided by the click: an outcome, never a feature (renamed)."
                for name in self.outcomes
            ),
            *(
                f"{name!r} counts the rows of each page: the position, by its values."
                for name in self.places
                if name in self.roles
            ),
            *(
                message
                for name, role in self.roles.items()
                if role.startswith(OUTCOME) and self.numbers[name] is not None
                for _, message in faults_in(
                    {"outcome": self.numbers[name]}, called={"outcome": repr(name)}
                )
            ),
            *(message for unit, message in self.units if not unit.is_error),
            *self._added_up(log),
            *self._torn(),
            *[f"Columns with one value per page ({listed}) are no features."] * bool(per_page),
            *[
                "Columns of the page with few values may be bias factors: "
                f"IdentifiabilityRepair(bias={['position', *few]})."
            ]
            * bool(few),
        ]

    def _rate(self, log):
        """Clicks per impression of each row, and whether y counts clicks; None with a fault."""
        if self.clicks is None:
            return None, False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                impressions = impressions_of_counts(log, self.clicks, {}, "'click'")
            except ValueError:
                return None, True
        return divided(self.clicks, impressions), impressions is not None

    def _added_up(self, log):
        """What is to be said of rows of several impressions."""
        if self.impressions is not None and (self.impressions > 1).any():
            unit = "numbers of clicks" if self._rate(log)[1] else "click rates"
            yield (
                f"The rows are already added up: they stand for {self.impressions.sum():,.0f} "
                f"impressions, and the clicks are read as {unit}."
            )

    @cached_property
    def units(self):
        """What the table of units says of the features."""
        features = {n: v for n in self.features if (v := self.numbers[n]) is not None}
        found = [*units_in("sample", self.sample)]
        if features and len(features) == len(self.features):  # text tells documents apart
            found += units_in("features", [*features.values()])
            found += units_in("documents", [*features.values()], [*features])
        return found

    @cached_property
    def sample(self):
        """Some rows of the features, and of the ids that are numbers."""
        rows = rows_to_look_at(len(self.frame))
        numbers = {n: v[rows] for n, v in self.numbers.items() if v is not None}
        return FeatureSample(
            {name: values for name, values in numbers.items() if name in self.features},
            {self.roles[n]: v for n, v in numbers.items() if self.roles.get(n) in IDS},
            in_order=True,
        )

    def _torn(self):
        """What is to be said of pages with gaps."""
        if self.position is None or "session" not in self.roles.values():
            return
        shown = ~np.isnan(self.position)
        codes = (encode(values[shown])[0] for values in (self.page, self.position))
        n_pages, n_torn, share, n_lost, _ = torn_lists(*codes)
        if n_torn:
            yield (
                f"{n_torn:,} of {n_pages:,} pages of several rows ({n_torn / n_pages:.1%}) have "
                f"gaps: at least {n_lost:,} rows ({share:.1%}) were lost, or were no results. "
                "Log the pages whole: a document that was seen and not logged has no clicks to "
                "learn from."
            )

    def _verdict(self, log):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return IdentifiabilityGraph.from_log(log, click="click").summary()
        except (TypeError, ValueError) as error:
            return f"Unknown: {error}"

    def _by_position(self, log):
        rate, _ = self._rate(log)
        if self.position is None or rate is None or (self.position % 1 > 0).any():
            return pd.DataFrame()
        weight = np.ones(len(rate)) if self.impressions is None else self.impressions
        table = pd.DataFrame(
            {"position": self.position, "impressions": weight, "clicks": rate * weight}
        )
        table = table[np.isfinite(table).all(axis=1)]
        table = table.groupby(table["position"].astype(int))[["impressions", "clicks"]].sum()
        table = table.round().astype(int)
        return table.assign(**{"click rate": table["clicks"] / table["impressions"]})[:20]

    # Columns ----------------------------------------------------------------------------
    def _columns(self):
        """What each column is; of features, how they vary within documents."""
        roles = dict.fromkeys(self.features, "feature") | dict.fromkeys(self.times, "time")
        roles |= dict.fromkeys(self.page_columns, "of the page") | self.roles
        order = np.argsort(self.doc, kind="stable")
        rows = {}
        for name in self.frame.columns:
            column = self.frame[name]
            values = self.numbers[name]
            missing = column.is_null() if values is None else np.isnan(values)
            known = name in self.features and not self.missing
            rows[name] = (
                roles[name],
                str(column.dtype).split("(")[0],
                float(missing.mean()),
                *(self._change(name, order) if known else (np.nan, np.nan)),
            )
        return pd.DataFrame.from_dict(
            rows, orient="index", columns=["role", "type", "missing", "varies", "change"]
        )

    def _change(self, name, order):
        """Share of documents in which a column changes, and the median relative change there."""
        values = self.numbers[name]
        starts = offsets_from_sorted(self.doc[order])
        numeric = values is not None
        values = values[order] if numeric else value_bits(self.frame[name])[order]
        least, most = (f.reduceat(values, starts[:-1]) for f in (np.fmin, np.fmax))
        changes = most > least
        if not changes.any():
            return 0.0, np.nan
        size = np.maximum(np.abs(least), np.abs(most))[changes]
        change = float(np.median((most - least)[changes] / size)) if numeric else np.nan
        return float(changes[np.diff(starts) > 1].mean()), change

    # Code ---------------------------------------------------------------------------------
    def _code(self, mends, source):
        """The lines that read and train: rename, what is no feature, the ranker, or labels."""
        polars = self.frame.implementation.is_polars()
        names = self.frame.columns
        text = [n for n in self.features if isinstance(self.frame[n].dtype, _TEXT)]
        few = [name for name in text if self.frame[name].n_unique() <= 1000]
        named = {found["name"] for found in features_that_name(self.sample)}
        drop = {*self.page_columns, *self.times, *text, *named} - set(
            few
        )  # a time may be of a page
        steps = [
            (_LINES.get(Path(source).suffix.lower()), source),
            (RENAME, self.rename | {f"<{_NEEDED[role]}>": role for role in self.missing}),
            (_LINES["rest"], [n for n in names if self.missing and n not in self.roles]),
            *((_LINES["word"], *words) for words in self.words.items()),
            (ADD_ONE, self.starts_at_0),
            *((mend,) for mend in mends),
            (DROP, [n for n in names if not self.missing and n in drop]),
        ]
        lines = [each[polars].format(*values) for each, *values in steps if each and all(values)]
        if self.missing:
            return "\n".join(lines)
        imports = {"from skultr.rankers import EnsembleRanker"}
        ranker = "EnsembleRanker()"
        if few:
            imports |= {
                "from sklearn.compose import make_column_transformer",
                "from sklearn.pipeline import make_pipeline",
                "from sklearn.preprocessing import OneHotEncoder",
                "from skultr.preprocessing import OnFeatures",
            }
            lines += [
                "encoder = OneHotEncoder(max_categories=30, sparse_output=False, "
                'handle_unknown="infrequent_if_exist")',
                f'features = make_column_transformer((encoder, {few!r}), remainder="passthrough", '
                "verbose_feature_names_out=False)",
            ]
            ranker = "make_pipeline(OnFeatures(features), EnsembleRanker())"
        lines += [f"ranker = {ranker}", 'ranker.fit(log, "click")', _LINES["rank"][polars]]
        if not {*self.features} - drop:
            imports = {
                "from skultr.click_models import UBMModel",
                "from skultr.propensity import relevance_labels",
            }
            lines[-3:] = [
                'labels = relevance_labels(log, "click", propensity=UBMModel(), interval=True)'
            ]
        imports |= {
            f"import {name}"
            for name in ("pandas as pd", "polars as pl")
            if f"{name[-2:]}." in "".join(lines)
        }
        return "\n".join([*sorted(imports), "", *lines])


def _as_floats(column):
    """A column as floats, None if it holds neither numbers nor two words for 1 and 0."""
    column = column if (yes := _yes(column)) is None else column == yes
    if column.dtype == nw.Object:  # such as whole numbers or decimals of Python
        try:
            return numbers("A column", column.to_numpy())
        except ValueError:
            return None
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        return None
    return as_numbers(column.to_numpy())
