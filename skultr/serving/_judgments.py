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
        "interval": [StrOptions({"within", "lower", "ignore"})],
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
    interval: Literal["within", "lower", "ignore"] = "within",
    queries: Mapping[Any, Any] | Frame | None = None,
    name: str = "skultr",
) -> str:
    r"""Judgments as the text of a file: a grade for each pair of a query and a document.

    Parameters
    ----------
    labels : DataFrame of shape (n_pairs, n_columns)
        What :func:`~skultr.propensity.relevance_labels` returns with ``interval=True``.
    format : {"opensearch", "trec", "quepid"}
        - ``"opensearch"``: body of ``PUT _plugins/_search_relevance/judgments`` (JSON).
        - ``"quepid"``: CSV ``query,docid,rating``. The dashboard of OpenSearch's Search Relevance
          Workbench reads it too; its older versions fail where a query or id holds a comma.
        - ``"trec"``: lines ``qid 0 docno grade`` (qrels), without white space in ids.
    grades : sequence of numbers or mapping, default=(0, 1, 2, 3)
        Rising grades, with the same limits for all queries, so that they can be compared.

        - A sequence of G + 1 grades: the gain :math:`2^g - 1` that nDCG gives grade number g
          is proportional to the label, and grade number G belongs to the best documents (95 %
          quantile over queries of the highest label). Limits are the middles between two gains.
        - A mapping from the lowest label of each grade: ``{0: 0, 0.05: 1, 0.2: 2, 0.4: 3}``.
    interval : {"within", "lower", "ignore"}, default="within"
        - ``"within"``: only pairs whose 95 % interval lies within one grade. Tools take a document
          without a judgment for irrelevant, or ask for one.
        - ``"lower"``: all pairs, with the grade of the lower end of the interval.
        - ``"ignore"``: all pairs, with the grade of the label.
    queries : mapping or DataFrame, default=None
        What is written for each ``qid``: a mapping, or a frame with the columns ``qid`` and
        ``user_query`` such as ``report.queries`` of :func:`~skultr.datasets.read_ubi`. Engines
        look judgments up by the text of the query; for ``"trec"`` it is the number of the topic.
        By default ``qid`` itself. The pairs of several ``qid`` with one text are merged.
    name : str, default="skultr"
        Name of the judgments in OpenSearch: at most 50 characters, no quotes, backslashes, < or >.

    Returns
    -------
    text : str
        In the order of ``labels``. Write it with ``encoding="utf-8"``.

    Raises
    ------
    ValueError
        If a column is missing, a label not finite, a pair there twice, an id empty or not fit for
        the format, or if no pair is left.

    Warns
    -----
    ClickDataWarning
        If pairs are left out, and how many: their intervals span several grades, or several
        ``qid`` of one text disagree.

    Notes
    -----
    OpenSearch's nDCG has the gain :math:`2^{\text{rating}} - 1`: on a scale of 0, 1, 10, 100 all
    gain lies in the last grade.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.serving import export_judgments
    >>> labels = pd.DataFrame({"qid": "usb hub", "doc": ["B01", "B02"], "label": [0.6, 0.2],
    ...                        "lower": [0.5, 0.18], "upper": [0.7, 0.23]})
    >>> print(export_judgments(labels, "quepid"), end="")
    query,docid,rating
    usb hub,B01,3
    usb hub,B02,2
    """
    query, doc, label, lower, upper = _read(labels, interval)
    cuts, values = _scale(grades, label, query)
    if min(lower) < cuts[0]:
        raise ValueError(
            f"A label is {min(lower):g}, below the lowest grade, which begins at {cuts[0]:g}. "
            "Begin grades at a lower label."
        )
    low, high = (np.searchsorted(cuts, end, side="right") - 1 for end in (lower, upper))
    texts = _texts(queries, query)
    found: dict[str, dict[str, set]] = {}
    for i in np.flatnonzero(low == high):
        found.setdefault(texts[query[i]], {}).setdefault(doc[i], set()).add(values[low[i]])
    disagree = sum(len(grade) > 1 for of in found.values() for grade in of.values())
    judgments = {
        text: {doc: min(grade) for doc, grade in of.items() if len(grade) == 1}
        for text, of in found.items()
    }
    n_left = sum(map(len, judgments.values()))
    _warn_or_raise(len(doc), int(np.sum(low != high)), disagree, n_left)
    return _WRITERS[format]({text: of for text, of in judgments.items() if of}, name)


def _read(labels, interval):
    """Query and document as text, label, and the ends of what its grade has to hold."""
    ends = ["label", "label"] if interval == "ignore" else ["lower", "upper"]
    columns = ["qid", "doc", "label", *ends]
    frame = nw.from_native(labels, eager_only=True) if is_frame(labels) else None
    missing = [name for name in columns if frame is None or name not in frame.columns]
    if frame is None or missing or not len(frame):
        raise ValueError(
            f"labels has {'no column ' + ', '.join(missing) if missing else 'no rows'}; expected "
            "the table of relevance_labels(..., interval=True)."
        )
    query, doc = ([_text(id_, name) for id_ in frame[name].to_list()] for name in ("qid", "doc"))
    (pair, n_rows), *_ = Counter(zip(query, doc, strict=True)).most_common(1)
    if n_rows > 1:
        raise ValueError(f"labels has {n_rows} rows of {pair}; expected one row per pair.")
    label, lower, upper = (frame[name].cast(nw.Float64).to_numpy() for name in columns[2:])
    wrong = ~np.isfinite(label + lower + upper)
    if wrong.any():
        raise ValueError(
            f"{count_of(int(wrong.sum()), 'label')} or intervals are not finite, the first of "
            f"{query[wrong.argmax()], doc[wrong.argmax()]}. Drop these rows."
        )
    return query, doc, label, lower, lower if interval == "lower" else upper


def _text(id_, name):
    """An id as text; whole numbers without the point that a frame with gaps gives them."""
    text = f"{id_:.0f}" if isinstance(id_, float) and id_ % 1 == 0 else str(id_)
    if id_ is None or id_ != id_ or not text.strip():
        raise ValueError(f"{name} holds {id_!r}; expected an id in every row. Drop these rows.")
    return text


def _scale(grades, label, query):
    """The lowest label of each grade, and the grades."""
    if isinstance(grades, Mapping):
        cuts, values = np.array(sorted(grades), dtype=float), [grades[k] for k in sorted(grades)]
    else:
        values, highest = list(grades), dict.fromkeys(query, 0.0)
        for of, value in zip(query, label, strict=True):
            highest[of] = max(highest[of], value)
        best = np.quantile(list(highest.values()), _BEST)
        gain = 2.0 ** np.arange(len(values)) - 1
        cuts = np.append(0.0, best * (gain[1:] + gain[:-1]) / 2 / max(gain[-1:], default=1))
    numbers = np.array(values, dtype=float)
    if len(values) < 2 or not np.isfinite(numbers).all() or (np.diff(numbers) <= 0).any():
        raise ValueError(f"grades has the grades {values}; expected two or more that rise.")
    return cuts, numbers.tolist()


def _texts(queries, query):
    """What is written for each query."""
    if is_frame(queries):
        frame = nw.from_native(queries, eager_only=True)
        queries = dict(zip(frame["qid"].to_list(), frame["user_query"].to_list(), strict=True))
    if queries is None:
        return dict(zip(query, query, strict=True))
    texts = {_text(qid, "qid"): _text(text, "queries") for qid, text in queries.items()}
    missing = [qid for qid in dict.fromkeys(query) if qid not in texts]
    if missing:
        raise ValueError(
            f"queries has no text for {missing[0]!r} and {len(missing) - 1} others of labels."
        )
    return texts


def _warn_or_raise(n_pairs, unsure, disagree, n_left):
    if not unsure and not disagree:
        return
    message = (
        f"{n_left} of {count_of(n_pairs, 'pair')} are judged. The 95 % interval of {unsure} spans "
        f"several grades, and {disagree} have different grades under queries of the same text. "
    )
    advice = "Fewer grades or a longer log judge more; interval='lower' judges all but the latter."
    if not n_left:
        raise ValueError(message + advice)
    warn_user(message + advice, ClickDataWarning)


def _opensearch(judgments, name):
    if not 0 < len(name) <= 50 or any(sign in name for sign in '"\\<>'):
        raise ValueError(
            f"name is {name!r}; OpenSearch expects 1 to 50 characters without quotes, "
            "backslashes, < and >."
        )
    body = {
        "name": name,
        "description": "Relevance of documents from clicks, corrected for examination.",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [
            {
                "query": query,
                "ratings": [{"docId": doc, "rating": f"{of[doc]:.3f}"} for doc in of],
            }
            for query, of in judgments.items()
        ],
    }
    return json.dumps(body, ensure_ascii=False)


def _quepid(judgments, name):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", "docid", "rating"])
    writer.writerows((q, doc, f"{of[doc]:g}") for q, of in judgments.items() for doc in of)
    return text.getvalue()


def _trec(judgments, name):
    lines = []
    for query, of in judgments.items():
        for doc, grade in of.items():
            for what, id_ in ("query", query), ("doc", doc):
                if len(id_.split()) > 1 or id_ != id_.strip():
                    raise ValueError(
                        f"The {what} {id_!r} has white space, at which TREC's format splits. "
                        "Number queries by queries={qid: number, ...}, and rename documents."
                    )
            if grade < 0 or grade % 1:
                raise ValueError(f"A grade is {grade:g}; TREC expects whole numbers from 0.")
            lines.append(f"{query} 0 {doc} {grade:.0f}\n")
    return "".join(lines)


_WRITERS = {"opensearch": _opensearch, "quepid": _quepid, "trec": _trec}
