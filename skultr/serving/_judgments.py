"""Judgments of search engines and evaluation tools: written to compare rankings by, and read."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._base._comments import Comments, ids_of
from .._base._sklearn import StrOptions, validate_params
from .._base._texts import id_text, normal_text
from .._base._typing import Frame
from .._log._faults import count_of
from .._log._judgment_tables import OF_CLICKS
from .._log._roles import as_numbers, is_frame
from .._log._segments import as_array
from ..exceptions import ClickDataWarning, warn_user
from ._thresholds import BEST_DOCUMENTS


@validate_params(
    {
        "format": [StrOptions({"opensearch", "trec", "quepid"})],
        "grades": [tuple, list, np.ndarray, Mapping, None],
        "name": [str],
    },
    prefer_skip_nested_validation=True,
)
def export_judgments(
    judgments: Frame,
    format: Literal["opensearch", "trec", "quepid"],
    *,
    grades: Sequence[float] | Mapping[float, float] | None = None,
    queries: Mapping[Any, Any] | Frame | None = None,
    name: str = "skultr",
) -> str:
    r"""Judgments to compare rankings by, as the text of a file: one grade per query and document.

    Parameters
    ----------
    judgments : DataFrame of shape (n_pairs, n_columns)
        What :func:`click_judgments` returns, whose unrated pairs are left out; or human judgments
        with the columns ``qid``, ``doc`` and ``relevance``, as :func:`read_judgments` returns
        them. Pairs without a rating are left out, as not judged; a pair that is there twice with
        one rating counts once. Labels of :func:`~skultr.propensity.relevance_labels` are
        refused: they prefer production to better rankings. For another use than comparing, rename
        ``label`` to ``relevance``.
    format : {"opensearch", "trec", "quepid"}
        Body of ``PUT _plugins/_search_relevance/judgments`` (JSON); qrels ``qid 0 docno grade``;
        or CSV ``query,docid,rating``, which OpenSearch Dashboards reads too. The description in
        OpenSearch says what the judgments are, how many pairs are unrated, and, of those from
        clicks, how much of the ratings is prior; the other formats have no place for it.
    grades : sequence of numbers, mapping or None, default=None
        Rising grades, with the same limits in all queries. A mapping holds the lowest rating of
        each grade: ``{0: 0, 0.05: 1, 0.2: 2, 0.4: 3}``. A sequence such as (0, 1, 2, 3) finds the
        limits: the last grade is that of the best documents (95 % quantile over queries of the
        highest rating), and the gain in nDCG, :math:`2^g - 1` of grade number g counted from 0,
        is proportional to the rating. None is (0, 1, 2, 3), for OpenSearch with decimals in
        between, and above for better documents. Human judgments are written as they are, unless a
        mapping gives them another scale: ``{0: 0, 1: 1, 10: 2, 100: 3}``. A sequence is refused
        for them.
    queries : mapping or DataFrame, default=None
        What is written for a ``qid``, by default ``qid`` itself: a mapping, or a frame with the
        columns ``qid`` and ``user_query`` (``report.queries`` of
        :func:`~skultr.datasets.read_ubi`). Engines look up queries by their text as typed; TREC
        expects numbers. A document of several ``qid`` with one text has its highest grade.
    name : str, default="skultr"
        Name of the judgments in OpenSearch.

    Returns
    -------
    text : str
        To be written with ``encoding="utf-8"``. Queries and ids are unchanged, because engines
        look them up. Spreadsheets read those that begin with ``=``, ``+``, ``-`` or ``@`` as
        formulas: import a CSV file there as text.

    Raises
    ------
    ValueError
        If a column is missing, the table is one of labels, a rating infinite or no number, a
        grade below 0 (it would be read as not judged), a pair there with two ratings, an id empty
        or not fit for the format, ``grades`` a sequence for human judgments, or no pair rated.

    See Also
    --------
    click_judgments : Judgments from a log.
    read_judgments : The way back.
    skultr.evaluation.policy_difference : Compares rankings where judgments cannot tell.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.serving import click_judgments, export_judgments
    >>> X = pd.DataFrame({"qid": "usb hub", "doc": ["B01", "B02"], "position": [1, 2],
    ...                   "impressions": 100})
    >>> judged = click_judgments(X, [0.6, 0.05], propensity=[1.0, 0.5])
    >>> print(export_judgments(judged, "quepid"), end="")
    query,docid,rating
    usb hub,B01,3
    usb hub,B02,1
    """
    frame = nw.from_native(judgments if is_frame(judgments) else pd.DataFrame(), eager_only=True)
    _refuse_labels(frame)
    is_of_clicks = {OF_CLICKS, "relevance"} <= {*frame.columns}
    if not is_of_clicks:
        _refuse_scale_of_clicks(grades)
    described = ""
    if "relevance" in frame.columns and len(frame):
        described = _in_words(frame) if is_of_clicks else _in_words_of_people(frame)
        frame = _rated(frame, described)
    table = _read(frame, ["relevance"])
    grade_of = _scale(grades, table, format == "opensearch", not is_of_clicks)
    table["grade"] = grade_of(table["relevance"])
    _refuse_negative(table)
    table["text"] = _texts(queries, table["qid"])
    # Several qid may have one text: an engine knows it once.
    pairs = table.groupby(["text", "doc"], sort=False)["grade"].max().to_dict()
    return _FORMATS[format][0](pairs, name, described)


def _refuse_labels(frame):
    """Labels to train by say where production put a document: no ranking may be judged by them."""
    if "label" in frame.columns and "relevance" not in frame.columns:
        raise ValueError(
            "judgments has the column 'label' and no 'relevance': labels of relevance_labels are "
            "to train by, and as judgments they prefer production to better rankings. Compare by "
            "skultr.serving.click_judgments(log, 'click', propensity=...). For another use, "
            "rename the column to 'relevance'."
        )


def _refuse_scale_of_clicks(grades):
    """Limits between grades are found for click rates; people have chosen theirs."""
    if grades is not None and not isinstance(grades, Mapping):
        raise ValueError(
            f"grades is the sequence {np.asarray(grades).tolist()}, whose limits are found for "
            "judgments from clicks; these have a scale of their own. Leave grades out to write "
            "the ratings as they are, or pass a mapping from the lowest rating of each grade: "
            "grades={0: 0, 1: 1, 10: 2, 100: 3}."
        )


def _refuse_negative(table):
    """Readers take a negative grade for a pair that nobody judged."""
    wrong = table[table["grade"] < 0]
    if len(wrong):
        row = wrong.iloc[0]
        raise ValueError(
            f"The grade is {row['grade']:g} in {count_of(len(wrong), 'pair')}, such as "
            f"{(row['qid'], row['doc'])}: below 0 it is read as not judged. Expected grades from "
            "0. Map ratings to them with a mapping: grades={-1: 0, 0: 1, 1: 2}; or give pairs "
            "that nobody judged no rating."
        )


def _rated(frame, described):
    """The pairs that have a rating."""
    is_rated = ~np.isnan(_numbers(frame["relevance"]))
    if not is_rated.any():
        raise ValueError(
            f"No pair is rated. {described} Expected documents that somebody judged, or pages on "
            "which users examined them."
        )
    return frame.filter(is_rated.tolist())


def _in_words_of_people(frame):
    """What other judgments are, and how many pairs nobody judged."""
    described = "Ratings of documents for queries, written by skultr."
    n_unrated = np.count_nonzero(np.isnan(_numbers(frame["relevance"])))
    return f"{described} Not judged, and left out: {n_unrated:,}." if n_unrated else described


def _in_words(frame):
    """What judgments from clicks are, and how much of them is prior, in up to 250 characters."""
    prior_share = frame[OF_CLICKS].cast(nw.Float64).to_numpy()
    is_rated = np.isfinite(prior_share)
    n_unrated = np.count_nonzero(~is_rated)
    prior = np.mean(prior_share[is_rated]) if is_rated.any() else 0.0
    return (
        f"Judgments from clicks to compare rankings by (skultr click_judgments). Rated pairs: "
        f"{is_rated.sum():,}. Unrated, with under one examination: {n_unrated:,}. Prior, the mean "
        f"of the query: {prior:.0%} of a rating on average."
    )


@validate_params(
    {"text": [str], "format": [StrOptions({"opensearch", "trec", "quepid", "ranklib"})]},
    prefer_skip_nested_validation=True,
)
def read_judgments(
    text: str,
    format: Literal["opensearch", "trec", "quepid", "ranklib"],
    *,
    queries: Mapping[Any, Any] | Frame | None = None,
) -> pd.DataFrame:
    r"""Judgments of people, or of :func:`export_judgments`, from the text of a file.

    Parameters
    ----------
    text : str
        The text itself: ``Path("judgments.json").read_text(encoding="utf-8")``.
    format : {"opensearch", "trec", "quepid", "ranklib"}
        What OpenSearch's Search Relevance Workbench imports, or what
        ``GET _plugins/_search_relevance/judgments/ID`` returns (JSON; ratings are text or
        numbers); qrels of TREC ``qid 0 docno grade``; or CSV whose first line names the columns
        ``query``, ``docid`` and ``rating``, as Quepid exports a case (the space that it puts
        before ``-``, ``=``, ``+`` or ``@`` is removed); or the judgement list of RankLib and the
        LTR plugins, ``grade qid:1 # docid title``, with or without features. There lines
        ``# qid:1: text`` name the queries. Without any, a text after the documents that is the
        same for all documents of each query, and another for each query, is taken for the query,
        as Quepid exports it for LTR: titles differ between documents. Otherwise the number is the
        query. Other fields and columns are ignored.
    queries : mapping or DataFrame, default=None
        As for :func:`export_judgments`: the text of each ``qid`` of the log, such as
        ``report.queries`` of :func:`~skultr.datasets.read_ubi`. Texts are compared in lower case
        with single spaces (Unicode NFKC), as ``read_ubi`` writes them. Of several texts of one
        ``qid`` a document has its highest rating. None takes the query of the file as ``qid``.

    Returns
    -------
    judgments : pandas.DataFrame
        One row per pair of a query and a document: ``qid`` (text, or the keys of ``queries``),
        ``doc`` (text) and ``relevance`` (the rating, from 0). Merge it into documents that are to
        be scored; those without a rating have none, and metrics leave them out.

    Raises
    ------
    ValueError
        If the text is not of this format or damaged, a pair has two ratings, or no pair is rated.
        If it is a book of Quepid, with a column for each rater: the message has the code that
        reads one of them.

    Warns
    -----
    ClickDataWarning
        If pairs without a rating, or with a negative one (not judged, in qrels), are left out, or
        queries that are not in ``queries``. If a list of OpenSearch is not completed. If texts in
        a judgement list may be queries or titles, or only some queries have a text.

    See Also
    --------
    export_judgments : Writes them, also in another format than they were read from.
    skultr.metrics.RankingScorer : Scores rankers by them.
    skultr.evaluation.compare_rankers : Compares rankers by them.

    Examples
    --------
    >>> from skultr.serving import export_judgments, read_judgments
    >>> judged = read_judgments("query,docid,rating\nusb hub,B01,3\nusb hub,B02,1\n", "quepid")
    >>> judged
           qid  doc  relevance
    0  usb hub  B01        3.0
    1  usb hub  B02        1.0
    >>> print(export_judgments(judged, "trec", queries={"usb hub": 1}), end="")
    1 0 B01 3
    1 0 B02 1
    """
    _, read, expected = _FORMATS.get(format, _RANKLIB)
    hint = _hint_of_file(text)
    try:
        table = pd.DataFrame(
            read(text.removeprefix("\ufeff")),  # the mark that spreadsheets write
            columns=["qid", "doc", "relevance"],
        )
        table["relevance"] = pd.to_numeric(table["relevance"])
        is_rated = table["relevance"] >= 0
        rated = table[is_rated].drop_duplicates()
    except _DAMAGED as error:
        raise ValueError(
            f"The text holds no judgments in the format {format!r} ({type(error).__name__}: "
            f"{error}). Expected {expected}.{hint}"
        ) from error
    if rated.empty:
        raise ValueError(f"No pair has a rating from 0. Expected {expected}.{hint}")
    n_left_out = len(table) - int(is_rated.sum())
    if n_left_out:
        warn_user(
            f"{n_left_out} of {len(table)} pairs have no rating, or a negative one: they are left "
            "out, as not judged.",
            ClickDataWarning,
        )
    rated = _read(nw.from_native(rated, eager_only=True), ["relevance"])
    return rated if queries is None else _of_queries(rated, queries)


#: What readers of a format raise on a text that is not of it.
_DAMAGED = (
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    csv.Error,
)


def _hint_of_file(text):
    """What to do if the text is the name of a file: a short line that is no JSON."""
    if text[:1] in "{[" or "\n" in text or len(text) >= 256:
        return ""
    return f" If {text!r} is a file, pass its text: Path({text!r}).read_text(encoding='utf-8')."


def _of_queries(rated, queries):
    """The judgments by the ids of a log, whose texts are those of the judgments."""
    names = _named(queries)
    # Both sides in one form, because people type what logs hold in lower case.
    texts = [normal_text(str(text)) for text in names.values()]
    known = pd.DataFrame({"qid": [*names], "text": texts})
    rated["text"] = rated["qid"].map(normal_text)
    is_known = rated["text"].isin(known["text"])
    lost = rated.loc[~is_known, "qid"].unique()
    if len(lost):
        warn_user(
            f"{len(lost)} of {rated['qid'].nunique()} queries of the judgments, such as "
            f"{lost[0]!r}, are not in queries: their ratings are left out.",
            ClickDataWarning,
        )
    pairs = rated.drop(columns="qid").merge(known, on="text").groupby(["qid", "doc"], sort=False)
    return pairs["relevance"].max().reset_index()


def _read(frame, numbers):
    """Ratings as a pandas frame, with ids as text."""
    missing = [column for column in ("qid", "doc", *numbers) if column not in frame.columns]
    if missing or not len(frame):
        raise ValueError(
            f"judgments has no {'column ' + missing[0] if missing else 'rows'}; expected the "
            "table of click_judgments, or the columns qid, doc and relevance."
        )
    columns = {}
    for role in ("qid", "doc"):
        columns[role] = [id_text(each, role) for each in frame[role].to_list()]
    for name in numbers:
        columns[name] = _numbers(frame[name])
    # A pair that is there twice, with one rating, was judged once.
    table = pd.DataFrame(columns).drop_duplicates(ignore_index=True)
    _check_pairs(table, numbers)
    return table


def _numbers(column):
    """A column as numbers, NaN where there is none."""
    try:
        return as_numbers(as_array(column))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The column {column.name!r} of judgments holds something else than numbers ({error})."
            " Map grades in words to numbers."
        ) from error


def _check_pairs(table, numbers):
    """Raise a ValueError that shows the first pair of each fault of ratings."""
    pairs = table[["qid", "doc"]]
    # A pair with two grades has none, and no grade follows from a rating that is none.
    faults = {
        "pairs are there twice": pairs.duplicated(),
        "ratings are not finite": ~np.isfinite(table[numbers]).all(axis=1),
    }
    for what, wrong in faults.items():
        if wrong.any():
            example = tuple(pairs[wrong].iloc[0])
            raise ValueError(f"{wrong.sum()} {what}, such as {example}. Keep one row, or none.")


def _scale(grades, table, may_have_decimals, is_human):
    """A function from ratings to grades."""
    if grades is None and is_human:
        return np.asarray
    highest = table.groupby("qid")["relevance"].max()
    best = highest.quantile(BEST_DOCUMENTS.value) or np.inf  # no clicks: grade 0
    if grades is None and may_have_decimals:
        # The grade g whose gain 2^g - 1 is proportional to the rating, 7 for the best documents.
        # Not cut there: noisy ratings are above it more often, and would be lower on average.
        return lambda rating: np.log2(1 + 7 * rating / best).round(3)
    limits, values = _limits((0, 1, 2, 3) if grades is None else grades, best)

    def grade_of(rating):
        # A rating on a limit has the grade that begins there.
        number = np.searchsorted(limits, rating, side="right") - 1
        return values[np.maximum(number, 0)]  # what lies below all limits has the first grade

    return grade_of


def _limits(given, best):
    """The lowest rating of each grade, and the grades; the best documents have the last."""
    if isinstance(given, Mapping):
        limits = np.array(sorted(given), dtype=float)
        given = [given[limit] for limit in sorted(given)]
        if not np.isfinite(limits).all():
            raise ValueError(f"grades have the limits {limits.tolist()}; expected numbers.")
    else:
        # Limits lie in the middle between the gains of two grades.
        gain = 2.0 ** np.arange(len(given)) - 1
        limits = np.append(0, best * (gain[1:] + gain[:-1]) / 2 / gain[-1:])
    values = np.array(given, dtype=float)
    if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"grades are {list(given)}; expected two or more that rise.")
    return limits, values


def _named(queries):
    """The text of each query, by its id."""
    if is_frame(queries):
        frame = nw.from_native(queries, eager_only=True)
        if not {"qid", "user_query"} <= {*frame.columns}:
            raise ValueError(f"queries has columns {frame.columns}; expected qid and user_query.")
        return dict(zip(frame["qid"].to_list(), frame["user_query"].to_list(), strict=True))
    if not isinstance(queries, Mapping):
        raise ValueError(f"queries is a {type(queries).__name__}; expected a mapping or a frame.")
    return queries


def _texts(queries, qid):
    """What is written for the query of each pair."""
    if queries is None:
        return qid
    texts = {id_text(query, "qid"): text for query, text in _named(queries).items()}
    shown = {}
    for query in qid.unique():
        if query not in texts:
            raise ValueError(f"queries has no text for {query!r}; expected one for each qid.")
        shown[query] = id_text(texts[query], "queries")
    return qid.map(shown)


# Formats ------------------------------------------------------------------------------
def _opensearch(pairs, name, described):
    if not 0 < len(name) <= 50 or set(name) & set('"\\<>'):
        raise ValueError(
            f'name is {name!r}; OpenSearch expects 1 to 50 characters, none of " \\ < >.'
        )
    ratings: dict[str, list] = {}
    for (query, doc), grade in pairs.items():
        rating = np.format_float_positional(grade, min_digits=3)
        ratings.setdefault(query, []).append({"docId": doc, "rating": rating})
    body = {
        "name": name,
        "description": described,
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": each} for query, each in ratings.items()],
    }
    return json.dumps(body, ensure_ascii=False)


def _from_opensearch(text):
    body = json.loads(text)
    lists = [hit["_source"] for hit in body["hits"]["hits"]] if "hits" in body else [body]
    if len(lists) != 1:
        raise ValueError(f"it holds {len(lists)} lists of judgments; ask for one by its id")
    judged = lists[0]["judgmentRatings"]
    _warn_of_status(lists[0].get("status", _COMPLETED))
    return [
        (query["query"], rating.get("docId"), rating.get("rating"))
        for query in judged
        for rating in query["ratings"]
    ]


#: What OpenSearch says of a list that has all its ratings.
_COMPLETED = "COMPLETED"


def _warn_of_status(status):
    if status != _COMPLETED:
        warn_user(
            f"The status of these judgments in OpenSearch is {status!r}, not {_COMPLETED!r}: "
            "ratings may be missing. Get the list again when it is completed; after an error, "
            "create it anew.",
            ClickDataWarning,
        )


def _quepid(pairs, name, described):
    def field(text):  # csv.writer leaves "\r" unquoted where lines end in "\n"
        if not set(text) & set(',"\r\n'):
            return text
        doubled = text.replace('"', '""')
        return f'"{doubled}"'

    lines = ["query,docid,rating\n"]
    for (query, doc), grade in pairs.items():
        rating = np.format_float_positional(grade, trim="-")
        lines.append(f"{field(query)},{field(doc)},{rating}\n")
    return "".join(lines)


#: Quepid's guard against formulas of spreadsheets, before queries and, in newer versions, ids.
_GUARD = re.compile(r"^ (?=[-=+@])")


def _from_quepid(text):
    reader = csv.DictReader(io.StringIO(text), strict=True)
    _refuse_book(reader.fieldnames or [])
    rows = [*reader]
    if wide := [row[None] for row in rows if None in row]:
        raise ValueError(f"a line has {wide[0]} beyond the columns of the first line")
    return [(_unguarded(row["query"]), _unguarded(row["docid"]), row["rating"]) for row in rows]


def _refuse_book(columns):
    """A book of Quepid has the ratings of several people, of whom the caller chooses one."""
    raters = [column for column in columns if column not in ("query", "docid")]
    if "rating" in columns or len(columns) - len(raters) < 2 or not raters:
        return
    raise ValueError(
        f"it has no column 'rating', and {raters} as a book of Quepid has for its raters. "
        "Read one of them: book = pd.read_csv(io.StringIO(text), dtype=str, "
        f"keep_default_na=False); read_judgments(book.rename(columns={{{raters[0]!r}: 'rating'}})"
        ".to_csv(index=False), 'quepid'). compare_judgments compares raters"
    )


def _unguarded(text):
    # Lines of queries without a rating end early: no document.
    return None if text is None else _GUARD.sub("", text)


def _trec(pairs, name, described):
    for ids, grade in pairs.items():
        # Fields are separated by white space, and nothing quotes them.
        split = [id_ for id_ in ids if id_.split() != [id_]]
        if split or grade % 1:
            raise ValueError(
                f"qrels cannot hold {(*split, grade)}: expected ids without white space (number "
                "topics with queries={qid: number}, rename documents) and whole grades from 0."
            )
    return "".join(f"{query} 0 {doc} {grade:.0f}\n" for (query, doc), grade in pairs.items())


def _from_trec(text):
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if wrong := [line for line in lines if len(line) != 4]:
        raise ValueError(
            f"{' '.join(wrong[0])!r} has {len(wrong[0])} fields; no topic and no document may "
            "contain a space: number the topics, and pass queries={qid: number}"
        )
    return [(query, doc, grade) for query, _, doc, grade in lines]


_HEADER = re.compile(r"#\s*qid:([^\s:]+)\s*:\s*(.*)")
_JUDGED = re.compile(r"(\S+)\s+qid:(\S+)([^#]*)(.*)")
#: The weight of a query after its text, as some tools write it in all headers.
_WEIGHT = re.compile(r"\*\d+(\.\d+)?$")
#: What follows an id without a blank between: a separator, or the end of quotes.
_AFTER_ID = ",;:|\"'"
_QUOTED = re.compile('"(.*)"')


def _from_ranklib(text):
    lines = [line.strip() for line in text.splitlines()]
    rows = _judged_rows(lines)
    if not rows:
        return []
    comments = Comments()
    for number, _, comment in rows:
        comments.add(number, comment)
    ids, doubt = ids_of([comments], "The text")
    if not ids:
        raise ValueError(doubt or "its lines have no ids of documents")
    if doubt:
        warn_user(doubt, ClickDataWarning)
    docs = ids[0]
    queries = _queries_of_headers(lines) or _queries_after_documents(rows, docs)
    nameless = {number for number, _, _ in rows} - {*queries}
    if queries and nameless:
        warn_user(
            f"{len(nameless)} queries have no line '# qid:...: text', such as qid "
            f"{min(nameless)!r}, which is taken for the query.",
            ClickDataWarning,
        )
    pairs = zip(rows, docs, strict=True)
    return [(queries.get(number, number), doc, grade) for (number, grade, _), doc in pairs]


def _judged_rows(lines):
    """Number of the query, grade and comment, which may hold the document, of each judged line."""
    rows = []
    for place, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        match = _JUDGED.match(line)
        if match is None:
            raise ValueError(f"line {place} is {line!r}")
        grade, number, _, comment = match.groups()
        rows.append((number, grade, comment[1:]))  # without the number sign
    return rows


def _queries_of_headers(lines):
    """The text of each query, by the number that lines ``# qid:1: text`` give it."""
    matches = [_HEADER.match(line) for line in lines]
    headers = [match.groups() for match in matches if match]
    # In some headers alone it is part of the text, as in "2*4".
    if all(_WEIGHT.search(text) for _, text in headers):
        headers = [(qid, _WEIGHT.sub("", text)) for qid, text in headers]
    return dict(headers)


def _queries_after_documents(rows, docs):
    """The text of each query, by its number, where it follows the documents as in Quepid's lists.

    Documents of a query differ in their titles, and not in the text of the query.
    """
    texts: dict[str, set] = {}
    for (number, _, comment), doc in zip(rows, docs, strict=True):
        after = comment.partition(doc)[2].lstrip(_AFTER_ID)
        texts.setdefault(number, set()).add(after.strip())
    are_titles = any(len(each) > 1 for each in texts.values())
    names = {number: min(each) for number, each in texts.items()}
    if are_titles or not any(names.values()):
        return {}
    # With one document in each query, a title is as constant; and two queries have two texts.
    pairs = {(row[0], doc) for row, doc in zip(rows, docs, strict=True)}
    is_each_another = len({*names.values()}) == len(names)
    if len(pairs) > len(names) and is_each_another and all(names.values()):
        return _without_quotes(names)
    number = min(names, key=lambda each: not names[each])
    warn_user(
        f"The text after the documents, such as {names[number]!r} of qid {number!r}, may be that "
        "of the query, or a title: the numbers are taken for the queries. For a case of Quepid, "
        f"read its CSV with format='quepid'; otherwise add a line '# qid:{number}: text' for each "
        "query.",
        ClickDataWarning,
    )
    return {}


def _without_quotes(names):
    """Texts without quotes that all of them have; in some alone they are part of the text."""
    matches = [_QUOTED.fullmatch(name) for name in names.values()]
    if not all(matches):
        return names
    return dict(zip(names, (match[1] for match in matches), strict=True))


#: What is read and not written: how, and what a text of it holds.
_RANKLIB = (None, _from_ranklib, "lines grade qid:1 # docid title, and # qid:1: text of the query")
#: How a format is written and read, and what a text of it holds.
_FORMATS = {
    "opensearch": (
        _opensearch,
        _from_opensearch,
        '{"judgmentRatings": [{"query": "...", "ratings": [{"docId": "...", "rating": "3.0"}]}]}',
    ),
    "quepid": (
        _quepid,
        _from_quepid,
        "CSV with the first line query,docid,rating, and quotes around texts with commas",
    ),
    "trec": (_trec, _from_trec, "lines qid 0 docno grade"),
}
