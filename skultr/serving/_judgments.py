"""Judgments for search engines and evaluation tools, from labels of clicks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._base._sklearn import StrOptions, validate_params
from .._base._typing import Frame
from .._log._roles import is_frame
from ..exceptions import ClickDataWarning, warn_user
from ..metrics._scorers import id_text

#: The label of the best documents: this quantile, over queries, of the highest label of a query.
_BEST = 0.95
#: Columns that the lower and upper grade of a pair are read from.
_ENDS = {"lower": ["lower"] * 2, "within": ["lower", "upper"], "ignore": ["label"] * 2}


@validate_params(
    {
        "format": [StrOptions({"opensearch", "trec", "quepid"})],
        "grades": [tuple, list, np.ndarray, Mapping, None],
        "interval": [StrOptions({*_ENDS})],
        "name": [str],
    },
    prefer_skip_nested_validation=True,
)
def export_judgments(
    labels: Frame,
    format: Literal["opensearch", "trec", "quepid"],
    *,
    grades: Sequence[float] | Mapping[float, float] | None = None,
    interval: Literal["lower", "within", "ignore"] = "lower",
    queries: Mapping[Any, Any] | Frame | None = None,
    name: str = "skultr",
) -> str:
    r"""Judgments as the text of a file: one grade per pair of a query and a document.

    Parameters
    ----------
    labels : DataFrame of shape (n_pairs, n_columns)
        What :func:`~skultr.propensity.relevance_labels` returns with ``interval=True``.
    format : {"opensearch", "trec", "quepid"}
        Body of ``PUT _plugins/_search_relevance/judgments`` (JSON); qrels ``qid 0 docno grade``;
        or CSV ``query,docid,rating``, which OpenSearch Dashboards reads too.
    grades : sequence of numbers, mapping or None, default=None
        Rising grades, with the same limits in all queries. A mapping holds the lowest label of
        each grade: ``{0: 0, 0.05: 1, 0.2: 2, 0.4: 3}``. A sequence such as (0, 1, 2, 3) finds the
        limits: the last grade is that of the best documents (95 % quantile over queries of the
        highest label), and the gain in nDCG, :math:`2^g - 1` of grade number g counted from 0, is
        proportional to the label. None is (0, 1, 2, 3), for OpenSearch with decimals in between
        (without them if ``interval="within"``).
    interval : {"lower", "within", "ignore"}, default="lower"
        ``"lower"`` writes the grade of the lower end of the 95 % interval, so that a document with
        few clicks is not rated highly by chance. ``"within"`` writes only pairs whose interval
        lies within one grade, and warns how many it leaves out, which most tools take for
        irrelevant. ``"ignore"`` writes the grade of the label.
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
        To be written with ``encoding="utf-8"``.

    Raises
    ------
    ValueError
        If a column is missing, a label not finite, a pair there twice, an id empty or not fit for
        the format, or if no pair is left.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.serving import export_judgments
    >>> labels = pd.DataFrame({"qid": "usb hub", "doc": ["B01", "B02"], "label": [0.6, 0.2],
    ...                        "lower": [0.5, 0.12], "upper": [0.7, 0.3]})
    >>> print(export_judgments(labels, "quepid"), end="")
    query,docid,rating
    usb hub,B01,3
    usb hub,B02,1
    """
    table = _read(labels, ["label", *_ENDS[interval]])
    graded = _scale(grades, table, format == "opensearch" and interval != "within")
    low, high = (graded(table[end]) for end in _ENDS[interval])
    sure = table.assign(grade=low, text=_texts(queries, table["qid"]))[low == high]
    if len(sure) < len(table):
        message = (
            f"The 95 % interval of {len(table) - len(sure)} of {len(table)} pairs spans several "
            "grades: they are left out. Fewer grades or a longer log leave out less, 'lower' none."
        )
        if sure.empty:
            raise ValueError(message)
        warn_user(message, ClickDataWarning)
    pairs = sure.groupby(["text", "doc"], sort=False)["grade"].max().to_dict()
    return _WRITERS[format](pairs, name)


def _read(labels, numbers):
    """The labels as a pandas frame, with ids as text."""
    frame = nw.from_native(labels, eager_only=True) if is_frame(labels) else None
    missing = [c for c in ("qid", "doc", *numbers) if frame is None or c not in frame.columns]
    if frame is None or missing or not len(frame):
        raise ValueError(
            f"labels has no {'column ' + missing[0] if missing else 'rows'}; expected the table "
            "of relevance_labels(..., interval=True)."
        )
    ids = {role: [id_text(id_, role) for id_ in frame[role].to_list()] for role in ("qid", "doc")}
    values = {name: frame[name].cast(nw.Float64).to_numpy() for name in numbers}
    table = pd.DataFrame({**ids, **values})
    pair = table[["qid", "doc"]]
    for wrong, what in [
        (pair.duplicated(), "there twice"),
        (~np.isfinite(table[numbers]).all(axis=1), "not finite"),
    ]:
        if wrong.any():
            first = tuple(pair[wrong].iloc[0])
            raise ValueError(f"{wrong.sum()} labels are {what}, such as {first}. Drop these rows.")
    return table


def _scale(grades, table, not_rounded):
    """A function from labels to grades."""
    best = table.groupby("qid")["label"].max().quantile(_BEST) or np.inf  # no clicks: grade 0
    if grades is None and not_rounded:
        return lambda label: np.log2(1 + 7 * np.clip(label / best, 0, 1))
    given = (0, 1, 2, 3) if grades is None else grades
    if isinstance(given, Mapping):
        cuts, given = np.array(sorted(given), dtype=float), [given[cut] for cut in sorted(given)]
        if not np.isfinite(cuts).all():
            raise ValueError(f"grades have the limits {cuts.tolist()}; expected numbers.")
    else:
        gain = 2.0 ** np.arange(len(given)) - 1
        cuts = np.append(0, best * (gain[1:] + gain[:-1]) / 2 / gain[-1:])
    values = np.array(given, dtype=float)
    if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"grades are {list(given)}; expected two or more that rise.")
    # What lies below all limits has the first grade.
    return lambda label: values[np.maximum(np.searchsorted(cuts, label, side="right") - 1, 0)]


def _texts(queries, qid):
    """What is written for the query of each pair."""
    if queries is None:
        return qid
    if is_frame(queries):
        frame = nw.from_native(queries, eager_only=True)
        if not {"qid", "user_query"} <= {*frame.columns}:
            raise ValueError(f"queries has columns {frame.columns}; expected qid and user_query.")
        queries = dict(zip(frame["qid"].to_list(), frame["user_query"].to_list(), strict=True))
    given = queries if isinstance(queries, Mapping) else {}
    texts = {id_text(query, "qid"): text for query, text in given.items()}
    if unknown := [query for query in qid.unique() if query not in texts]:
        raise ValueError(f"queries has no text for {unknown[0]!r}; expected one for each qid.")
    return qid.map({query: id_text(texts[query], "queries") for query in qid.unique()})


def _opensearch(pairs, name):
    if not 0 < len(name) <= 50 or set(name) & set('"\\<>'):
        raise ValueError(
            f'name is {name!r}; OpenSearch expects 1 to 50 characters, none of " \\ < >.'
        )
    ratings: dict[str, list] = {}
    for (query, doc), grade in pairs.items():
        ratings.setdefault(query, []).append({"docId": doc, "rating": f"{grade:.3f}"})
    body = {
        "name": name,
        "description": "Relevance of documents from clicks, corrected for examination.",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": each} for query, each in ratings.items()],
    }
    return json.dumps(body, ensure_ascii=False)


def _quepid(pairs, name):
    def field(text):  # csv.writer leaves "\r" unquoted where lines end in "\n"
        return f'"{text.replace(chr(34), 2 * chr(34))}"' if set(text) & set(',"\r\n') else text

    rows = (f"{field(query)},{field(doc)},{grade:g}\n" for (query, doc), grade in pairs.items())
    return "".join(["query,docid,rating\n", *rows])


def _trec(pairs, name):
    for ids, grade in pairs.items():
        split = [id_ for id_ in ids if id_.split() != [id_]]
        if split or grade < 0 or grade % 1:
            raise ValueError(
                f"qrels cannot hold {(*split, grade)}: expected ids without white space (number "
                "topics with queries={qid: number}, rename documents) and whole grades from 0."
            )
    return "".join(f"{query} 0 {doc} {grade:.0f}\n" for (query, doc), grade in pairs.items())


_WRITERS = {"opensearch": _opensearch, "quepid": _quepid, "trec": _trec}
