"""Readers of published logs of real clicks that their owners hand out: TianGong-ST, Baidu-ULTR."""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from .._base._progress import progress, working
from .._base._sklearn import validate_params
from ..exceptions import ClickDataWarning, warn_user
from ._letor import paths_of

#: Columns of a document in a part of Baidu-ULTR.
_N_COLUMNS = 32
#: Columns of the files of the University of Amsterdam: what becomes of the log, and features.
_COLUMNS = ("query_no", "query_id", "url_md5", "position", "click", "media_type")
_FEATURES = (
    "bm25",
    "bm25_title",
    "bm25_abstract",
    "tf_idf",
    "tf",
    "idf",
    "ql_jelinek_mercer_short",
    "ql_jelinek_mercer_long",
    "ql_dirichlet",
    "document_length",
    "title_length",
    "abstract_length",
)
_EMBEDDING = "query_document_embedding"
_IDS = {"qid": "category", "doc": "category"}


@validate_params(
    {"path": [str, PathLike], "grades": [str, PathLike, None]}, prefer_skip_nested_validation=True
)
def load_tiangong_st(
    path: str | PathLike[str], *, grades: str | PathLike[str] | None = None
) -> pd.DataFrame:
    """Read the sessions of TianGong-ST: result pages and clicks of a Chinese search engine.

    TianGong-ST [1]_ holds 147,155 search sessions of 18 days of Sogou, with 40,596 queries, and
    grades from 0 to 4 by assessors for the last queries of 2,000 sessions. It is handed out on
    application at http://www.thuir.cn/tiangong-st, for research; skultr does not ship it.

    Parameters
    ----------
    path : str or path-like
        The file of the sessions, ``sogousessiontrack2020.xml``, also with ``.gz`` appended.
    grades : str or path-like, default=None
        The file of the grades, ``sogou_st_human_labels.txt``.

    Returns
    -------
    log : pandas.DataFrame
        One row per document of each result page: ``session`` (the page, from 0), ``qid`` and
        ``doc`` (ids, as categoricals), ``position`` and ``click`` (0 or 1). With ``grades`` also
        ``relevance``, missing for documents without a grade. A grade holds for a query and a
        document on all pages. If assessors graded them in several sessions, it is the mean. The
        file also holds texts, and labels by click models; both are left out.

    Raises
    ------
    ValueError
        If

        - a file is cut off, of another kind or in another encoding,
        - there is no result, or one without query, document or position,
        - a line of the grades has not five columns, or a grade that is not from 0 to 4, or
        - no grade belongs to a query and document of the sessions.

    FileNotFoundError
        If there is no such file.

    Warns
    -----
    ClickDataWarning
        If there are clicks on ranks that no result of their page has. They are left out.

    See Also
    --------
    load_baidu_ultr : A larger log, with features.
    fetch_trec_sessions : A small log, downloaded.

    References
    ----------
    .. [1] J. Chen, J. Mao, Y. Liu, M. Zhang and S. Ma (2019). TianGong-ST: a new dataset with
       large-scale refined real-world web search sessions. CIKM.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from skultr.datasets import load_tiangong_st
    >>> result = '<result rank="{}"><docid>{}</docid></result>'
    >>> results = result.format(1, "d7") + result.format(2, "d9")
    >>> page = f"<query_id>q3</query_id><results>{results}</results>"
    >>> clicked = "<clicked><click><rank>2</rank></click></clicked>"
    >>> session = f'<session num="1"><interaction num="1">{page}{clicked}</interaction></session>'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "sogousessiontrack2020.xml"
    ...     _ = path.write_text(f"<sessions>{session}</sessions>")
    ...     load_tiangong_st(path)
       session qid doc  position  click
    0        0  q3  d7         1      0
    1        0  q3  d9         2      1
    """
    with working("load_tiangong_st"):
        with _opened(path, "the sessions of TianGong-ST") as file:
            # Row by row: a file of gigabytes need not be in memory.
            log = _as_log(_rows_of_xml(file))
        if grades is None:
            return log
        with _opened(grades, "the grades of TianGong-ST") as file:
            # A merge of categoricals is one of texts.
            log = log.merge(_mean_grades(file), how="left", on=[*_IDS]).astype(_IDS)
            if log["relevance"].isna().all():
                raise ValueError("no line is of a query and document of the sessions")
        return log


def _mean_grades(file) -> pd.DataFrame:
    """The mean grade of each pair of query and document, over the sessions where it was graded."""
    # A line is: number, session, query, document, grade.
    lines = [line.decode().split() for line in file]
    lines = [fields for fields in lines if fields]
    have_grades = all(len(fields) == 5 and 0 <= float(fields[4]) <= 4 for fields in lines)
    if not lines or not have_grades:
        raise ValueError("a line has no grade from 0 to 4 in the last of five columns")
    # Several people and sessions may have graded a pair.
    table = pd.DataFrame(lines, columns=["number", "session", *_IDS, "relevance"])
    table["relevance"] = table["relevance"].astype(float)
    return table.groupby([*_IDS])["relevance"].mean().reset_index()


def _rows_of_xml(file) -> Iterator[tuple[object, ...]]:
    """Page, query, document, position and click of each result."""
    n_lost = 0
    for page, (_, element) in enumerate(ElementTree.iterparse(file)):
        # Inner elements end before the page that holds them: they are read with it.
        if element.tag != "interaction":
            continue
        # An interaction is one result page.
        query = element.findtext("query_id", "").strip()
        clicks = element.iterfind("clicked/click/rank")
        clicked = {str(click.text).strip() for click in clicks}
        # Clicks may name ranks that no result has.
        shown = set()
        for result in element.iterfind("results/result"):
            rank = str(result.get("rank")).strip()
            shown.add(rank)
            doc = result.findtext("docid", "").strip()
            yield page, query, doc, rank, rank in clicked
        n_lost += len(clicked - shown)
        element.clear()  # what has been read is not kept
    if n_lost:
        warn_user(
            "Clicks of TianGong-ST were left out, because no result of their page has their rank: "
            f"{n_lost:,}. Is the file as it was handed out?",
            ClickDataWarning,
        )


@validate_params(
    {"path": [str, PathLike, list, tuple], "embeddings": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def load_baidu_ultr(
    path: str | PathLike[str] | Sequence[str | PathLike[str]], *, embeddings: bool = False
) -> pd.DataFrame:
    """Read parts of Baidu-ULTR: result pages and clicks of a Chinese search engine.

    Baidu-ULTR [1]_ holds 1.2 billion result pages in files ``part-00000.gz``, ..., which its
    authors hand out on request (https://github.com/ChuXiaokai/baidu_ultr_dataset). Researchers of
    the University of Amsterdam published four parts with features [2]_ as
    ``philipphager/baidu-ultr_uva-mlm-ctr`` on Hugging Face, for non-commercial use (CC BY-NC 4.0).
    skultr ships neither.

    Parameters
    ----------
    path : str, path-like or list of these
        One or more parts, which are read as one log:

        - A part as Baidu publishes it: text, also as ``.gz``, separated by tabs. A page is a line
          of query id, query and reformulation, then a line of 32 columns for each document
          (position, MD5 of the address, title, abstract, type, click, ...).
        - A part with features, ``part-1_split-0.feather`` (or ``.parquet``), with one row per
          document.

    embeddings : bool, default=False
        Whether to keep the column ``query_document_embedding`` of the files with features, 768
        numbers for each row: 10 GB for a part.

    Returns
    -------
    log : pandas.DataFrame
        One row per document of each result page: ``session`` (the page, from 0), ``qid`` and
        ``doc`` (ids, as categoricals), ``position``, ``click`` (0 or 1) and ``media_type`` (a
        code, a candidate for ``bias=``), then the features, if the file has any. What users did
        beyond clicks is left out. To read the expert annotation, which is a set of documents and
        no log, rename its columns and use :func:`load_letor`.

    Raises
    ------
    ValueError
        If

        - a file is cut off, of another kind or in another encoding,
        - a line has another number of columns, or a column is missing,
        - there is no document, or one without query, id, or position of at least 1, or
        - a click is neither 0 nor 1.

    FileNotFoundError
        If there is no such file.

    See Also
    --------
    load_tiangong_st : Search sessions with grades.

    References
    ----------
    .. [1] L. Zou et al. (2022). A large scale search dataset for unbiased learning to rank.
       NeurIPS.
    .. [2] P. Hager et al. (2024). Unbiased learning to rank meets reality: lessons from Baidu's
       large-scale search dataset. SIGIR.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from skultr.datasets import load_baidu_ultr
    >>> lines = [["9", "12", ""]]
    >>> lines += [["1", "a0", "5", "6", "3", "0", *["0"] * 26]]
    >>> lines += [["2", "b1", "7", "8", "3", "1", *["0"] * 26]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "part-00000"
    ...     _ = path.write_text("".join("\\t".join(line) + "\\n" for line in lines))
    ...     load_baidu_ultr(path)
       session qid doc  position  click  media_type
    0        0   9  a0         1      0           3
    1        0   9  b1         2      1           3
    """
    paths = paths_of(path)
    columns = [*_FEATURES, _EMBEDDING] if embeddings else _FEATURES
    parts = []
    with working("load_baidu_ultr"):
        for each in progress(paths, "file"):
            with _opened(each, "a part of Baidu-ULTR") as file:
                parts.append(_read_part(file, each, columns))
    # The number of its part tells pages of one number apart.
    log = pd.concat(parts, keys=range(len(parts)), names=["part", None])
    # Each part numbers its pages from 0.
    log["session"] = log.groupby(["part", "session"]).ngroup()
    return log.reset_index(drop=True).astype(_IDS)


def _read_part(file, path, columns):
    """A log, with those of the columns that the file has."""
    # Features come in files of their own kind; all else is text.
    kind = path.lower().rpartition(".")[2]
    if kind not in ("feather", "parquet"):
        return _as_log(_rows_of_text(file), "media_type")
    # Imported here: it takes a moment, and other files do not need it.
    from pyarrow import dataset

    # Only the columns that are needed are read: embeddings are nine tenths of a file.
    data = dataset.dataset(path, format=kind)
    found = data.schema.names
    lacking = sorted(set(_COLUMNS).difference(found))
    if lacking:
        raise ValueError(f"there is no column {', '.join(lacking)}")
    features = [name for name in columns if name in found]
    # Without the index that the writer kept: rows are joined by their numbers.
    table = data.to_table([*_COLUMNS, *features]).to_pandas(ignore_metadata=True)
    rows = table[[*_COLUMNS]].itertuples(index=False, name=None)
    return _as_log(rows, "media_type").join(table[features])


def _rows_of_text(file) -> Iterator[tuple[object, ...]]:
    """Page, query, document, position, click and type of each document."""
    query = None
    for number, line in enumerate(file):
        # A line of 3 columns begins a page, one of 32 is a document of it.
        n_columns = line.count(b"\t") + 1
        if n_columns == 3:
            page = number
            # The first column of a page is its query.
            query = line.split(b"\t", 1)[0].decode()
        elif n_columns != _N_COLUMNS or query is None:
            raise ValueError(
                f"line {number + 1} has {n_columns} columns; expected {_N_COLUMNS} of a document, "
                "after a line of 3 of its page"
            )
        else:
            # Title and abstract, which are long, are not split further.
            position, doc, _, _, kind, click, _ = line.split(b"\t", 6)
            yield page, query, doc.decode(), position, click, kind


# Both ---------------------------------------------------------------------------------
def _as_log(rows, *more):
    """A frame of rows of page, query, document, position, click and ``more`` numbers."""
    tables = {name: {} for name in ("session", *_IDS)}  # code of each id
    # Arrays of integers take a tenth of the memory of lists.
    columns = {name: array("q") for name in (*tables, "position", "click", *more)}
    for row in progress(rows, "row"):
        # Ids come first, then position, click and further numbers.
        numbers = _whole_numbers(row[3:])
        if numbers is None or not _are_ids(row[:3]):
            raise ValueError(f"the values of result {len(columns['click'])} are {row}")
        codes = _codes_of(tables, row[:3])
        for column, value in zip(columns.values(), (*codes, *numbers), strict=True):
            column.append(value)
    # A file of another kind may have no row.
    if not columns["click"]:
        raise ValueError("there is no result page")
    log = pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})
    for name in _IDS:
        log[name] = pd.Categorical.from_codes(columns[name], [*tables[name]])
    return log


def _codes_of(tables, ids):
    """The code of each id in its own table; a new id gets the number of those before it."""
    pairs = zip(tables.values(), ids, strict=True)
    return [table.setdefault(id_, len(table)) for table, id_ in pairs]


def _are_ids(values):
    """Whether no value is missing: None, an empty text or NaN, which differs from itself."""
    return all(value == value and value not in (None, "") for value in values)


def _whole_numbers(values):
    """A position, a click and more numbers; None unless all are whole, and are what they say."""
    try:
        numbers = [int(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None
    # A number with a fraction differs from its whole part; a text with one raises above.
    if not all(isinstance(value, str | bytes) or value in numbers for value in values):
        return None
    # Positions count from 1, and a click is 0 or 1.
    fits = max(map(abs, numbers)) < 2**63  # in the columns
    position, click, *_ = numbers
    return numbers if fits and position >= 1 and click in (0, 1) else None


@contextmanager
def _opened(path, what):
    """The bytes of a file, and errors of what reads them as one sentence."""
    # By its suffix alone: a file that was renamed is an error below.
    open_ = gzip.open if fspath(path).lower().endswith(".gz") else open
    try:
        with open_(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, EOFError, ValueError, SyntaxError, zlib.error) as error:
        found = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be read as {what} ({found}). Is it whole, as it was handed out, and "
            "packed as its suffix says?"
        ) from error
