"""Judgments and clicks by document, and how far one orders the pairs of a query as another does.

Each source is a table with one row per document of a query: ``qid`` and ``doc`` as text, and
``relevance``, or ``clicks``, ``impressions`` and ``examinations``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.stats import kendalltau, norm

from .._base._progress import progress
from .._base._texts import id_text
from .._base._typing import Floats
from .._log._faults import count_of
from .._log._reader import in_memory, read, take_clicks
from .._log._roles import FIT_ROLES, as_numbers, is_frame
from .._log._segments import TINY, as_array, encode, offsets_from_sorted
from ..exceptions import python_value
from ..propensity._source import RowsOfLog, no_propensities, propensities

#: What names a document.
_KEYS = ["qid", "doc"]


# Sources ------------------------------------------------------------------------------
def read_judge(frame: Any, name: str) -> pd.DataFrame:
    """One row per judged document; those without a rating are not judged."""
    if not is_frame(frame):
        raise ValueError(
            f"The judgments {name!r} are a {type(frame).__name__}; expected a frame with the "
            "columns qid, doc and relevance, as skultr.serving.read_judgments returns it."
        )
    frame = nw.from_native(frame, eager_only=True)
    missing = [column for column in (*_KEYS, "relevance") if column not in frame.columns]
    if missing:
        raise ValueError(
            f"The judgments {name!r} have the columns {frame.columns}; expected qid, doc and "
            f"relevance. Missing: {missing}."
        )
    relevance = _ratings(as_array(frame["relevance"]), name)
    judged = np.flatnonzero(~np.isnan(relevance))
    table = _ids_as_text(frame["qid"], frame["doc"], judged)
    table["relevance"] = relevance[judged]
    # Several rows of one document, as in a log, are one if they say the same.
    table = table.drop_duplicates()
    twice = table.duplicated(_KEYS, keep=False)
    if twice.any():
        example = table[twice].sort_values(_KEYS, kind="stable").head(2)
        some, other = (python_value(tuple(row)) for row in example.to_numpy())
        raise ValueError(
            f"The judgments {name!r} give one document of one query several ratings: "
            f"{some} and {other}. Expected one; take their mean, or pass each annotator as "
            "judgments of their own."
        )
    return table


def _ratings(raw, name):
    """Ratings as numbers from 0, NaN where nobody judged."""
    try:
        relevance = as_numbers(raw)
    except (TypeError, ValueError) as error:
        given = pd.Series(raw, dtype=object).dropna()
        is_number = pd.to_numeric(given, errors="coerce").notna()
        # Complex numbers convert, and are no ratings.
        example = python_value((given if is_number.all() else given[~is_number]).iloc[0])
        raise ValueError(
            f"The judgments {name!r} hold the rating {example!r}; expected numbers from 0, the "
            "better the higher. Map grades in words to numbers."
        ) from error
    # Other readers take a negative grade for "not judged", or for an error.
    wrong = relevance[np.isinf(relevance) | (relevance < 0)]
    if len(wrong):
        raise ValueError(
            f"The judgments {name!r} hold the rating {wrong[0]:g} in {count_of(len(wrong), 'row')}"
            "; expected finite numbers from 0, and a missing value where nobody judged."
        )
    return relevance


def read_clicks(X: Any, y: Any, propensity: Any) -> pd.DataFrame:
    """One row per document that users may have examined."""
    X, y = in_memory(X, y)
    X, y, _ = take_clicks(X, y, "compare_judgments")
    found, _ = propensities(propensity, RowsOfLog(X, y, None, {}), default=no_propensities)
    purposes = {"qid": "to say which query a row belongs to", "doc": "to find its judgments"}
    roles = {"propensity": found}
    rows = read(X, y, roles=roles, reads=FIT_ROLES, need=purposes, caller="compare_judgments")
    shown = np.flatnonzero(rows.shown)
    table = _ids_as_text(rows["qid"], rows["doc"], shown)
    table["clicks"] = rows.clicks[shown]
    table["impressions"] = rows.weight[shown]
    table["examinations"] = rows.weight[shown] * rows["propensity"][shown]
    table = table.groupby(_KEYS, sort=False).sum().reset_index()
    unseen = table["examinations"] <= 0
    if (table["clicks"] > 0)[unseen].any():
        raise ValueError(
            "A document was clicked and has propensity 0 in all rows; expected examination above "
            "0 where users click."
        )
    return table[~unseen]


def _ids_as_text(qid, doc, rows):
    """Ids of these rows as text, in which files of judgments have them."""
    columns = {}
    for role, values in (("qid", qid), ("doc", doc)):
        code, ids = encode(as_array(values)[rows], role)
        texts = [id_text(each, role) for each in ids.tolist()]
        columns[role] = np.array(texts, dtype=object)[code]
    return pd.DataFrame(columns)


# Pairs of documents -------------------------------------------------------------------
class PairWeights(NamedTuple):
    """How far click rates of two documents tell them apart.

    The rates of two documents differ with variance 2 spread, and by chance with noise / h, where
    1/h is the sum of 1/examinations of both. A pair weighs the inverse of this sum (random
    effects).
    """

    spread: float
    noise: float

    @classmethod
    def of_clicks(cls, table: pd.DataFrame) -> PairWeights:
        """Both by the method of moments (DerSimonian & Laird 1986), of documents of a query."""
        query, _ = encode(table["qid"].to_numpy())
        examinations = table["examinations"].to_numpy()
        clicks = table["clicks"].to_numpy()
        total = np.bincount(query, examinations)
        mean = np.bincount(query, clicks) / total
        rate = clicks / examinations
        share = examinations / total[query]
        # Squares about the mean of the query, less those of the noise of clicks.
        squares = examinations * (rate - mean[query]) ** 2
        by_chance = rate * (1 - share)
        size = (examinations * (1 - share)).sum()
        spread = (squares - by_chance).sum() / max(size, TINY)
        noise = clicks.sum() / examinations.sum()
        return cls(max(spread, 0.0), max(noise, TINY))

    def __call__(self, examinations: Floats) -> Floats:
        """Weight of each pair, 0 of a document with itself."""
        inverse = 1 / examinations
        variance = 2 * self.spread + self.noise * (inverse[:, None] + inverse)
        weight = self.noise / variance
        np.fill_diagonal(weight, 0.0)
        return weight


def orders(values: Floats) -> Floats:
    """1 where the document of the row is above that of the column, -1 where it is below."""
    return np.sign(values[:, None] - values)


def _orders_by_other_clicks(clicks, impressions, rate):
    """The same by all impressions but one, which was clicked, of the document of the row.

    Of n impressions of a document with click rate p, E[c f(c - 1, n)] is n p E[f(c', n)], where c'
    are clicks of n - 1 impressions: a click is ordered as that of another user would be.
    """
    # Rates of the other impressions; there are none where the document was shown once.
    share_left = np.maximum(1 - 1 / impressions, 0)
    share_clicked = (clicks - 1) / np.maximum(clicks, 1)
    is_known = share_left > 0
    other_rate = rate * share_clicked / np.where(is_known, share_left, 1)
    order = np.sign(other_rate[:, None] - rate)
    return np.where(is_known[:, None], order, 0.0)


def queries_by_clicks(
    shared: pd.DataFrame, judges: list[str], weights: PairWeights
) -> pd.DataFrame:
    """Size of the evidence in each query, and the lead of each judge with its standard error.

    Of the clicks on two documents that were examined alike, (1 + lead / size) / 2 is the share on
    the one that the judge prefers.
    """
    found = []
    for qid, columns in _queries(shared):
        clicks = columns["clicks"]
        examinations = columns["examinations"]
        rate = clicks / examinations
        weight = weights(examinations)
        # Rates of the query stand for those of documents with few clicks.
        mean = clicks.sum() / examinations.sum()
        expected = (clicks + mean) / (examinations + 1)
        variance = expected / examinations
        row = {"qid": qid, "n_docs": len(rate), "size": rate @ weight.sum(axis=1)}
        for judge in judges:
            # Both are linear in the clicks, whose variance is that of a Poisson number.
            preferred = weight * orders(columns[judge])
            influence = preferred.sum(axis=1)
            row["lead", judge] = rate @ influence
            row["error", judge] = np.sqrt(influence**2 @ variance)
        by_clicks = weight * _orders_by_other_clicks(clicks, columns["impressions"], rate)
        row["lead", "clicks"] = rate @ by_clicks.sum(axis=1)
        found.append(row)
    return _table_of_queries(found)


def queries_by_judge(shared: pd.DataFrame, judges: list[str], reference: str) -> pd.DataFrame:
    """The same where another judge is the reference: queries have the size 1, z is Kendall's."""
    found = []
    for qid, columns in _queries(shared):
        rating = columns[reference]
        right = orders(rating)
        n_ordered = np.abs(right).sum()
        row = {"qid": qid, "n_docs": len(rating), "size": float(n_ordered > 0)}
        for judge in judges:
            given = columns[judge]
            alike = orders(given) * right
            row["lead", judge] = alike.sum() / max(n_ordered, 1)
            row["z", judge] = _kendall_z(given, rating)
        found.append(row)
    return _table_of_queries(found)


def _table_of_queries(rows):
    """One row per query, with its columns also if there is none."""
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["qid", "n_docs", "size"])


def _kendall_z(some, others):
    """Kendall's test of no association, exact in short queries, as a normal quantile."""
    test = kendalltau(some, others)
    if np.isnan(test.statistic):  # all documents are alike to one of them
        return 0.0
    return float(np.sign(test.statistic) * norm.isf(max(test.pvalue, TINY) / 2))


def _queries(shared):
    """Each query that has two or more documents: its id, and the columns of its documents."""
    shared = shared.sort_values("qid", kind="stable")
    columns = {name: shared[name].to_numpy() for name in shared}
    code, ids = encode(columns["qid"])
    ends = offsets_from_sorted(code)
    sizes = np.diff(ends)
    for query in progress(np.flatnonzero(sizes > 1).tolist(), "query"):
        rows = slice(ends[query], ends[query + 1])
        yield ids[query], {name: values[rows] for name, values in columns.items()}
