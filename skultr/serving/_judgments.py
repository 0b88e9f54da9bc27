"""Judgments for search engines and evaluation tools, from labels of clicks."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._log._faults import count_of
from .._log._roles import is_frame
from .._sklearn import StrOptions, validate_params
from .._typing import Frame
from ..exceptions import ClickDataWarning, warn_user

__all__ = ["export_judgments"]

#: The label of the best documents: this quantile, over queries, of the highest label of a query.
_BEST = 0.95


@validate_params(
    {
        "labels": "no_validation",
        "format": [StrOptions({"opensearch", "trec", "quepid"})],
        "grades": [tuple, list, np.ndarray, Mapping],
        "interval": [StrOptions({"lower", "within", "ignore"})],
        "queries": "no_validation",
        "name": [str],
    },
    prefer_skip_nested_validation=True,
)
def export_judgments(
    labels: Frame,
    format: Literal["opensearch", "trec", "quepid"],
    *,
    grades: Sequence[float] | Mapping[float, float] = (0, 1, 2, 3),
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
    grades : sequence of numbers or mapping, default=(0, 1, 2, 3)
        Rising grades, with the same limits in all queries, so that queries can be compared. A
        mapping holds the lowest label of each: ``{0: 0, 0.05: 1, 0.2: 2, 0.4: 3}``. For a
        sequence the gain :math:`2^g - 1` that nDCG gives to grade number g is proportional to the
        label, and the last grade is that of the best documents (95 % quantile over queries of the
        highest label); limits are the middles between gains.
    interval : {"lower", "within", "ignore"}, default="lower"
        ``"lower"`` writes the grade of the lower end of the 95 % interval; ``"within"`` only pairs
        whose interval lies within one grade, all others are irrelevant to most tools; ``"ignore"``
        the grade of the label.
    queries : mapping or DataFrame, default=None
        What is written for a ``qid``: a mapping, or a frame with the columns ``qid`` and
        ``user_query`` (``report.queries`` of :func:`~skultr.datasets.read_ubi`). Engines look up
        the text of the query as typed; topics of TREC have no white space: number them. By default
        ``qid`` itself. Pairs of several ``qid`` with one text become one.
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

    Warns
    -----
    ClickDataWarning
        If pairs are left out, and how many: by ``"within"``, or because several ``qid`` of one
        text have different grades.

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
    query, doc, label, lower, upper = _read(labels, interval)
    cuts, values = _scale(grades, label, query)
    if lower.min() < cuts[0]:
        raise ValueError(f"A label is {lower.min():g}; expected {cuts[0]:g} or more, see grades.")
    low, high = (np.searchsorted(cuts, end, side="right") - 1 for end in (lower, upper))
    texts = _texts(queries, query)
    found: dict[tuple[str, str], set[float]] = {}
    for i in np.flatnonzero(low == high):
        found.setdefault((texts[query[i]], doc[i]), set()).add(values[low[i]])
    pairs = {pair: min(grade) for pair, grade in found.items() if len(grade) == 1}
    unsure, disagree = int(np.sum(low != high)), len(found) - len(pairs)
    if unsure or disagree:
        message = (
            f"{len(pairs)} of {count_of(len(doc), 'pair')} are judged. The 95 % interval of "
            f"{unsure} spans several grades (fewer grades judge more, interval='lower' all), and "
            f"{disagree} have different grades under several qid of the same text."
        )
        if not pairs:
            raise ValueError(message)
        warn_user(message, ClickDataWarning)
    return _WRITERS[format](pairs, name)


def _read(labels, interval):
    """Ids as text, label, and the two ends that its grade is read at."""
    ends = {"ignore": ["label"] * 2, "lower": ["lower"] * 2, "within": ["lower", "upper"]}
    columns = ["qid", "doc", "label", *ends[interval]]
    frame = nw.from_native(labels, eager_only=True) if is_frame(labels) else None
    missing = [of for of in columns if frame is None or of not in frame.columns]
    if frame is None or missing or not len(frame):
        raise ValueError(
            f"labels has no {'column ' + missing[0] if missing else 'rows'}; expected the table "
            "of relevance_labels(..., interval=True)."
        )
    query, doc = ([_text(id_, of) for id_ in frame[of].to_list()] for of in columns[:2])
    (pair, n_rows), *_ = Counter(zip(query, doc, strict=True)).most_common(1)
    if n_rows > 1:
        raise ValueError(f"labels has {n_rows} rows of {pair}; expected one row per pair.")
    numbers = [frame[of].cast(nw.Float64).to_numpy() for of in columns[2:]]
    wrong = ~np.isfinite(sum(numbers))
    if wrong.any():
        raise ValueError(
            f"The label or interval is not finite in {count_of(int(wrong.sum()), 'row')}, such as "
            f"{query[wrong.argmax()], doc[wrong.argmax()]}; expected numbers. Drop these rows."
        )
    return query, doc, *numbers


def _text(id_, of):
    if pd.isna(id_) or not str(id_).strip():
        raise ValueError(f"{of} holds {id_!r}; expected an id. Drop these rows.")
    # Frames with gaps turn whole numbers into floats.
    return f"{id_:.0f}" if isinstance(id_, float) and id_ % 1 == 0 else str(id_)


def _scale(grades, label, query):
    """The lowest label of each grade, and the grades."""
    if isinstance(grades, Mapping):
        cuts, values = np.array(sorted(grades), dtype=float), [grades[of] for of in sorted(grades)]
    else:
        values, highest = list(grades), pd.Series(label).groupby(query).max()
        gain = 2.0 ** np.arange(len(values)) - 1
        best = highest.quantile(_BEST) or np.inf  # without any click all have the first grade
        cuts = np.append(0, best * (gain[1:] + gain[:-1]) / 2 / gain[-1:])
    numbers = np.array(values, dtype=float)
    if len(values) < 2 or not np.isfinite(numbers).all() or (np.diff(numbers) <= 0).any():
        raise ValueError(f"grades are {values}; expected two or more that rise.")
    return cuts, numbers.tolist()


def _texts(queries, query):
    """What is written for each query."""
    if is_frame(queries):
        frame = nw.from_native(queries, eager_only=True)
        queries = dict(zip(*(frame[of].to_list() for of in ("qid", "user_query")), strict=True))
    given = queries if isinstance(queries, Mapping) else {}
    texts = {_text(q, "qid"): text for q, text in given.items()}
    if queries is None:
        texts = {q: q for q in query}
    missing = [q for q in query if q not in texts]
    if missing:
        raise ValueError(f"queries has no text for {missing[0]!r}; expected one for each qid.")
    return {q: _text(texts[q], "queries") for q in query}


def _opensearch(pairs, name):
    if not 0 < len(name) <= 50 or set(name) & set('"\\<>'):
        raise ValueError(
            f'name is {name!r}; OpenSearch expects 1 to 50 characters, none of them " \\ < >.'
        )
    ratings: dict[str, list] = {}
    for (query, doc), grade in pairs.items():
        ratings.setdefault(query, []).append({"docId": doc, "rating": f"{grade:.3f}"})
    body = {
        "name": name,
        "description": "Relevance of documents from clicks, corrected for examination.",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": of} for query, of in ratings.items()],
    }
    return json.dumps(body, ensure_ascii=False)


def _quepid(pairs, name):
    writer = csv.writer(text := io.StringIO(), lineterminator="\n")
    writer.writerow(["query", "docid", "rating"])
    writer.writerows((*pair, f"{grade:g}") for pair, grade in pairs.items())
    return text.getvalue()


def _trec(pairs, name):
    for pair, grade in pairs.items():
        for id_ in pair:
            if id_.split() != [id_]:
                raise ValueError(
                    f"The id {id_!r} has white space, at which readers of qrels split. Number the "
                    "topics with queries={qid: number, ...}, and rename documents."
                )
        if grade < 0 or grade % 1:
            raise ValueError(f"A grade is {grade:g}; qrels expect whole numbers from 0.")
    return "".join(f"{query} 0 {doc} {of:.0f}\n" for (query, doc), of in pairs.items())


_WRITERS = {"opensearch": _opensearch, "quepid": _quepid, "trec": _trec}
