"""What a click log holds, under any names of columns: roles, faults, and the code that trains."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from html import escape
from string import Template
from typing import Any, Literal

import narwhals.stable.v2 as nw
import pandas as pd

from .._base._progress import Steps, working
from .._base._texts import visible_text
from .._base._typing import AnyFrame, Frame
from .._log._counted import collect
from .._log._estimator import errors_of
from .._log._roles import FIT_ROLES, is_role, open_frame
from ._log_columns import LogTable
from ._log_files import Files, are_files, called, open_files
from ._log_verdict import LEVELS, judge
from ._role_names import NAMES, first_named
from ._thresholds import MOST_ROWS
from ._training_code import ENGINES, training_code


@dataclass(frozen=True, eq=False, repr=False)
class LogReport:
    """What :func:`~skultr.describe_log` found; its text is the report.

    Attributes
    ----------
    source : str
        What was read.
    rename : dict of str to str
        The log's own names of columns, and the roles that these probably have.
    roles : DataFrame
        For each column that got a role ``role``, ``confidence`` (high, medium or low) and
        ``reason``. Roles that ``rename`` gave, and columns that have the name of their role, are
        not in it.
    n_rows, n_queries, n_pages, n_documents : int
        What was read: rows, queries, result pages, and pairs of query and document; 0 where their
        columns are not known. Paid slots that are named so do not count.
    columns : DataFrame
        For each column ``role``, ``type``, ``missing`` (share of the rows), ``varies`` (share of
        the documents in which it changes) and ``change`` (median relative change there).
    clicks : DataFrame
        Impressions, clicks and click rate by position.
    outcomes : list of str
        Columns that the click decides: they are no features.
    faults, remarks : list of str
        What a fit would refuse, and what it would warn of.
    level : str
        ``"yes"``: a model can be trained; ``"barely"``: with care; ``"no"``: the clicks determine
        no relevance; ``"faulty"``: fit would refuse the log; ``"open"``: a role is not known.
    headline, meaning : str
        The verdict in plain words.
    steps : list of str
        What to do.
    suspicions : list of str
        What may be wrong though no fit refuses it: bots, repeated pages, paid slots.
    examination : DataFrame
        By position, how often users look there relative to the first one: ``examination`` and
        its 95 % interval, ``low`` and ``high``. Empty where the clicks do not determine it.
    verdict : str
        The same in the terms of :class:`~skultr.identifiability.IdentifiabilityGraph`.
    code : str
        The lines that read the file, train a ranker and rank candidates. While a column of
        ``qid``, ``doc``, ``position`` or ``click`` is not known: the line that renames them, to
        complete.
    """

    source: str
    rename: dict[str, str] = field(default_factory=dict)
    roles: pd.DataFrame = field(default_factory=pd.DataFrame)
    n_rows: int = 0
    n_queries: int = 0
    n_pages: int = 0
    n_documents: int = 0
    columns: pd.DataFrame = field(default_factory=pd.DataFrame)
    clicks: pd.DataFrame = field(default_factory=pd.DataFrame)
    outcomes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    level: str = "faulty"
    headline: str = LEVELS["faulty"][1]
    meaning: str = ""
    steps: list[str] = field(default_factory=list)
    suspicions: list[str] = field(default_factory=list)
    examination: pd.DataFrame = field(default_factory=pd.DataFrame)
    verdict: str = ""
    code: str = ""

    def _counts(self):
        """What was read, in words."""
        counts = {
            "rows": self.n_rows,
            "queries": self.n_queries,
            "result pages": self.n_pages,
            "pairs of query and document": self.n_documents,
        }
        return ", ".join(f"{n:,} {noun}" for noun, n in counts.items() if n)

    def _curves(self):
        """Clicks and examination by position."""
        if self.examination.empty or self.clicks.empty:
            return self.clicks
        return self.clicks.join(self.examination)

    def _details(self):
        """What follows the verdict and the curves: texts, lists and tables, by heading."""
        return {
            "Faults to mend before training": self.faults,
            "What may be wrong": self.suspicions,
            "Remarks": self.remarks,
            "Roles": _sentences(self.roles),
            "Columns": self.columns,
            "Does the log determine relevance?": self.verdict,
            "Code": self.code,
        }

    def __str__(self) -> str:
        verdict = [self.headline, self.meaning, *(f"- {step}" for step in self.steps)]
        parts = {
            self.source: self._counts(),
            "Verdict": "\n".join(line for line in verdict if line),
            "Clicks by position": self._curves(),
            **self._details(),
        }
        text = "\n\n".join(f"{title}\n{_text(part)}" for title, part in parts.items() if len(part))
        return visible_text(text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = {"Clicks by position": _bars(self._curves())}
        parts |= {title: _html(part) for title, part in self._details().items() if len(part)}
        steps = "".join(f"<li>{marked(step)}</li>" for step in self.steps)
        verdict = (
            f'<section class="verdict"><p class="soft">{escape(self.source)}<br>{self._counts()}'
            f"</p><h1>{self.headline}</h1><p>{escape(self.meaning)}</p><ol>{steps}</ol></section>\n"
        )
        return verdict + sections(parts)

    def page(self) -> str:
        """The report as the text of an HTML file that needs no other."""
        return document(self.source, self._repr_html_(), self.level)

    def to_json(self) -> str:
        """The report as JSON, in ASCII: all attributes, and tables as lists of rows."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in found.items():
            if isinstance(value, pd.DataFrame):
                label = {"columns": "name", "roles": "name"}.get(name, "position")
                rows = value.rename_axis(label).reset_index().to_json(orient="records")
                found[name] = json.loads(rows)
        return json.dumps(found, indent=2)


def _bars(table):
    """Clicks by position as a table with bars, and examination with its interval."""
    if table.empty:
        return ""
    has_curve = "examination" in table
    heads = ["position", "shown", "clicked", ""]
    if has_curve:
        heads.append("looked at (95 %)")
    head = "".join(f"<th>{name}</th>" for name in heads)
    most = max(table["click rate"].max(), 1e-9)
    body = ""
    for position, row in table.iterrows():
        width = f"{100 * row['click rate'] / most:.1f}%"
        cells = [
            f'<td class="number">{position}</td>',
            f'<td class="number">{row["impressions"]:,.0f}</td>',
            f'<td class="number">{row["click rate"]:.1%}</td>',
            f'<td class="bars"><span class="bar" style="width:{width}"></span></td>',
        ]
        if has_curve:
            cells.append(f'<td class="number">{_interval(row)}</td>')
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<div class="wide"><table class="curve"><tr>{head}</tr>{body}</table></div>'


def _interval(row):
    """Examination as percent of the first position, and its interval."""
    if pd.isna(row["examination"]):
        return ""
    if row["low"] == row["high"]:
        return f"{row['examination']:.0%}"
    return f"{row['examination']:.0%} ({100 * row['low']:.0f} to {100 * row['high']:.0f})"


def _sentences(roles):
    """What a table of roles says, a sentence each."""
    return [
        f"{name!r} is the {row.role} ({row.confidence} confidence): {row.reason}."
        for name, row in zip(roles.index, roles.itertuples(), strict=True)
    ]


def _text(part):
    if isinstance(part, pd.DataFrame):
        return part.to_string(formatters=_FORMATS, na_rep="")
    return part if isinstance(part, str) else "\n".join(f"- {line}" for line in part)


def _html(part):
    if isinstance(part, pd.DataFrame):
        return f'<div class="wide">{part.to_html(border=0, formatters=_FORMATS, na_rep="")}</div>'
    if isinstance(part, str):
        return f"<pre>{escape(part)}</pre>"
    return f"<ul>{''.join(f'<li>{marked(line)}</li>' for line in part)}</ul>"


def marked(text: str) -> str:
    """A text as HTML, in which what stands between backticks is code."""
    # Every second part stood between backticks.
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _percent(value):
    """A share in percent, a blank for what is unknown or none."""
    return "" if pd.isna(value) or value == 0 else f"{value:.2%}"


#: How the columns of tables are written.
_FORMATS: Any = {
    **dict.fromkeys(("missing", "varies", "change"), _percent),
    "click rate": "{:.2%}".format,
    **dict.fromkeys(("examination", "low", "high"), "{:.2f}".format),
}


def describe_log(
    log: AnyFrame | Frame | Files,
    click: str | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    engine: Literal["python", "opensearch", "elasticsearch", "solr", "vespa", "onnx"] = "python",
) -> LogReport:
    """Report on a click log: roles of its columns, counts, faults, and code that trains on it.

    A fault of the log is no error here: the report names it. If the log has more than a million
    rows, the report is based on a fixed random sample of its queries.

    Parameters
    ----------
    log : frame or path
        One row per document of each result page, under any names of columns: pandas, Polars
        (eager or lazy), PyArrow, an engine that Narwhals reads, or the path of a file: Parquet,
        CSV or another table of text, newline-delimited JSON (these two also as ``.gz`` and
        ``.zst``) or Arrow. Of several files, give a list, a folder, or a pattern such as
        ``"log/part-*.parquet"``. Text is in UTF-8, or in UTF-16 behind a byte order mark. Columns
        of records (structs) and of lists that are no block of numbers are named and ignored.
    click : str, default=None
        Name of the column of clicks; found by default.
    rename : dict of str to str, default=None
        The log's own names of columns, and their roles, such as ``{"artikel": "doc"}``. The
        roles of other columns are found by their values and names.
    engine : {"python", "opensearch", "elasticsearch", "solr", "vespa", "onnx"}, default="python"
        Where the model will run. The code trains a ranker that can run there, and writes it in
        the engine's format.

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
    >>> print(report.headline)
    A model can be trained on these clicks, with care.
    >>> print(report.code)
    # With care: at some places the clicks determine little. See the report.
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
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; expected one of {', '.join(ENGINES)}.")
    rename = dict(rename or {})
    # The column of clicks is one more that the user names.
    if click is not None:
        rename[click] = "click"
    files = log if are_files(log) else None
    source = f"{type(log).__module__}.{type(log).__name__}" if files is None else called(files)
    with working("describe_log"), closing(Steps("step", 4, alike=False)) as steps:
        try:
            frame, n_all = _read(log, rename, source)
        except BaseException as error:  # of whatever engine reads it
            if not _is_of_engine(error):
                raise
            raise ValueError(f"{source} cannot be read: {error}{_hint(files)}") from error
        if not len(frame):
            return LogReport(source, faults=["The log has no rows."])
        steps.count()
        report = _report_of(LogTable(frame, rename), source, files, engine, steps)
    if n_all > len(frame):
        report.remarks.append(f"The log has {n_all:,} rows; these are whole queries drawn of it.")
    return report


def _report_of(table, source, files, engine, steps):
    """The report of a log under its roles; the steps are roles, checks and verdict."""
    steps.count()
    # What a fit would say is taken from its own checks.
    log = table.renamed()
    errors = []
    mends = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Without all roles there is nothing to check.
        if not table.missing:
            errors, mends = errors_of(log, "click", {}, (*FIT_ROLES, "production"))
    steps.count()
    found = judge(table, log, errors)
    warned = dict.fromkeys(str(warning.message) for warning in caught)
    return LogReport(
        source=source,
        rename=table.rename,
        roles=table.reasons(),
        **table.counts(),
        columns=table.columns(),
        clicks=table.by_position(log),
        outcomes=table.outcomes,
        faults=table.faults(errors),
        remarks=[*table.remarks(log), *warned],
        level=found.level,
        headline=found.headline,
        meaning=found.meaning,
        steps=found.steps,
        suspicions=found.suspicions,
        examination=found.examination,
        verdict=found.details,
        code=training_code(table, mends, files, engine, found),
    )


# Reading ------------------------------------------------------------------------------------
def _read(log, rename, source):
    """A log in memory, after the checks of its columns, and the number of all its rows."""
    if are_files(log):
        log = open_files(log)
    elif isinstance(log, pd.DataFrame):
        log = log.set_axis([*map(str, log.columns)], axis=1)
    # Lazy frames stay lazy: columns are checked before rows are read.
    frame = open_frame(log, "log")
    names = frame.collect_schema().names()
    if frame.implementation.is_polars():
        _refuse_unreadable(frame.collect_schema(), source)
    if {"event_attributes", "query_attributes"} & {*names}:
        raise ValueError(
            f"{source} holds records of User Behavior Insights (UBI), not rows of result pages: "
            "use the command skultr ubi, or skultr.datasets.read_ubi."
        )
    _check_rename(rename, names)
    # Only whole queries can be drawn by the column of queries.
    query = next((name for name, role in rename.items() if role == "qid"), None)
    return _in_memory(frame, query or first_named(names, "qid", lambda name: True))


def _check_rename(rename, names):
    """Raise an error unless known columns get different roles that no other column has."""
    roles = {*rename.values()}
    # Another column may be the click in place of the one of this name.
    others = {*names} - {"click", *rename}
    is_fine = {*rename} <= {*names} and all(map(is_role, roles))
    if not is_fine or roles & others or len(roles) < len(rename):
        raise ValueError(
            f"rename is {rename}; expected roles ({', '.join(NAMES)}, ...) by column, each of "
            f"one column. The columns are {names}."
        )


def _hint(files):
    """What to do about files that no engine reads."""
    if files is None:
        return ""
    return (
        ". Expected files as their endings say, and of several the same columns and types: write "
        "them again by one program, or name those that agree."
    )


def _is_of_engine(error):
    """Whether an error is one of the engine that reads a log, not one of this package or of the
    system. A panic of Polars is no Exception."""
    if isinstance(error, OSError | TypeError) or type(error) is ValueError:
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _refuse_unreadable(schema, source):
    """Raise an error for columns that cannot get from Polars to arrays."""
    with_nul = [name for name in schema if "\0" in name]
    if with_nul:
        raise ValueError(
            f"{source} has a column with the name {with_nul[0]!r:.80}, which holds the character "
            "NUL: a file of text is probably in UTF-16 and does not begin with a byte order mark; "
            "expected the mark, or UTF-8. Convert it first, such as with iconv -f UTF-16LE -t "
            "UTF-8."
        )
    wide = [name for name, dtype in schema.items() if dtype in (nw.Int128, nw.UInt128)]
    if wide:
        raise ValueError(
            f"{source} has whole numbers beyond 2**63 in the column {wide[0]!r:.80}, of which "
            "arrays would lose digits. If they are ids, write them as text, such as with a letter "
            "before the digits; if they are quantities, as decimal numbers (1e27)."
        )


def _in_memory(frame, qid):
    """At most a million rows of a frame, as whole queries, in memory; the number of all rows."""
    with closing(Steps("pass over the log", 3, may_end_early=True)) as passes:
        n_rows = collect(frame.select(nw.len())).item()
        passes.count()
        if n_rows <= MOST_ROWS.value:
            return collect(frame), n_rows
        if qid is None:
            return collect(frame.head(MOST_ROWS.value)), n_rows
        counts = collect(frame.group_by(qid).agg(nw.len().alias("_n"))).to_pandas()
        passes.count()
        # The same draw in whatever order the engine counted.
        counts = counts.sort_values(qid, kind="stable", ignore_index=True)
        counts = counts.sample(frac=1, random_state=0)
        drawn = counts[counts["_n"].cumsum() <= MOST_ROWS.value]
        if not len(drawn):
            drawn = counts[:1]
        return collect(frame.filter(nw.col(qid).is_in(drawn[qid].tolist()))), n_rows


# HTML --------------------------------------------------------------------------------------
_GREEN = ("#1b6e3c", "#7fd6a0")
_AMBER = ("#8a5a00", "#f0c060")
_RED = ("#b3261e", "#ff9d94")
#: Colours of a level, on white and on dark ground.
_COLOURS = {
    "yes": _GREEN,
    "barely": _AMBER,
    "level": _AMBER,
    "chance": _AMBER,
    "open": _AMBER,
    "no": _RED,
    "faulty": _RED,
}
#: A report as an HTML file that needs no other.
_DOCUMENT = Template("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>skultr: $source</title><style>
:root{--ink:#1c2430;--soft:#5b6675;--line:#dde2e8;--back:#f5f7f9;--card:#fff;--bar:#2b6cb0;
 --level:$level;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#a3aebc;--line:#38424f;
 --back:#14181e;--card:#1d232b;--bar:#5b9bd8;--level:$level_on_dark}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
 font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.25rem}
h1{font-size:1.5rem;line-height:1.25;margin:.3rem 0 .6rem}
h2{font-size:1.15rem;margin:0 0 .6rem}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem 1.2rem;
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
.curve th,.curve td{vertical-align:middle;white-space:nowrap;text-align:right}
.bars{width:99%;min-width:5rem}
@media(prefers-color-scheme:dark){svg{background:#fff;border-radius:6px}}
@media(max-width:32rem){main{padding:.6rem}section{padding:.8rem .9rem}.bars{min-width:3rem}
 .curve th:nth-child(2),.curve td:nth-child(2){display:none}.curve{font-size:.92rem}}
</style></head>
<body><main>$body</main></body></html>
""")


def document(source: str, body: str, level: str) -> str:
    """The text of an HTML file, whose characters all encodings of Unicode have."""
    light, dark = _COLOURS[level]
    text = _DOCUMENT.substitute(source=escape(source), level=light, level_on_dark=dark, body=body)
    return visible_text(text)


def sections(parts: dict[str, str]) -> str:
    """HTML under headings, without empty parts."""
    return "".join(
        f"<section><h2>{escape(title)}</h2>{body}</section>\n"
        for title, body in parts.items()
        if body
    )
