"""Documents with trusted labels and those with the cheap labels of a judge, by query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Column, Floats, Ints, Table
from .._log._reader import Rows
from .._log._roles import (
    column_names,
    is_frame,
    numbers,
    read_column,
    read_role,
    without_column,
)
from ..exceptions import AssumptionWarning, warn_user
from ._ranking import refuse_where
from ._thresholds import NOT_AT_RANDOM
from ._two_judges import JudgedQueries, errors_of_defined

#: Rankings drawn at random that say how far cheap labels follow trusted ones within queries.
_N_RANDOM_RANKINGS = 8


class Documents(Protocol):
    """What is read of :class:`~skultr.metrics._scorers.AnnotatedDocuments`."""

    read: Rows
    rows: Ints
    relevance: Floats
    qid: NDArray[Any]

    def code_of(self, rows: Ints) -> Ints:
        """Code of the document of each row."""


class Labelled(NamedTuple):
    """Labels and queries of some documents, as metrics by query read them."""

    relevance: Floats
    qid: NDArray[Any]


def take_judge(X: Table, judge: Column | str) -> tuple[Table, Floats]:
    """X without the column of the judge, which is no feature; and the labels of the rows."""
    given = judge
    if isinstance(judge, str):
        _refuse_clicks(judge == "click")
        given = read_column(X, judge)
        X = without_column(X, judge)
    values = read_role(X, "judge", given)
    labels = numbers("judge", values)
    missing = np.isnan(labels)
    refuse_where(
        ~missing & ~((labels >= 0) & np.isfinite(labels)),
        "judge is negative or infinite",
        "expected labels that are finite and at least 0, or missing where there is none",
    )
    if missing.all():
        raise ValueError(
            f"The judge labelled none of the {len(labels)} rows: all values are missing. Expected "
            "labels in nearly all queries. If you merged them, compare the spelling of the ids."
        )
    if is_frame(X) and "click" in column_names(X):
        clicks = read_role(X, "click")
        known = labels[~missing]
        # Labels that are all 0 say nothing, and so do no clicks.
        _refuse_clicks(np.ptp(known) > 0 and np.array_equal(known, clicks[~missing]))
    return X, labels


def refuse_annotation_as_judge(judge: Column | str | None, y: Column | str | None) -> None:
    """Raise an error if the judge is the annotation."""
    annotation = "relevance" if y is None else y
    if isinstance(judge, str) and isinstance(annotation, str) and judge == annotation:
        raise ValueError(
            f"judge and the annotation are one column, {judge!r}; expected trusted labels of some "
            "queries as relevance (y of compare_rankers), and cheap labels of all as judge."
        )


def refuse_undefined(values: pd.DataFrame) -> None:
    """Raise an error if the judge's metric is undefined in all queries."""
    if values.isna().all(axis=None):
        raise ValueError(
            f"The metric is undefined in all {len(values)} queries by the judge's labels, as "
            "without a relevant document; expected a value in some. Check the labels, or pass "
            "no_relevant=0."
        )


def is_defined_as_often(queries: JudgedQueries) -> bool:
    """Whether the judge's metric is defined as often in trusted queries as in others.

    Labels that are all 0 leave a metric undefined, which looks like no difference: a
    warning says so.
    """
    errors = abs(errors_of_defined(queries))
    if errors <= NOT_AT_RANDOM.value:
        return True
    is_defined = ~np.isnan(queries.cheap).any(axis=1)
    trusted_share = is_defined[queries.is_trusted].mean()
    other_share = is_defined[~queries.is_trusted].mean()
    warn_user(
        f"The judge's metric is defined in {trusted_share:.0%} of trusted and {other_share:.0%} "
        f"of other queries, {errors:.1f} standard errors apart: were missing labels filled with "
        "0? The judge does not count here. Expected the judge's labels in nearly all queries, and "
        "missing values where there are none.",
        AssumptionWarning,
    )
    return False


def _refuse_clicks(is_clicks):
    if is_clicks:
        raise ValueError(
            "The judge's labels are the clicks; expected labels of documents, as from a language "
            "model. Clicks depend on what was shown and where: make judgments of them first "
            "(skultr.serving.click_judgments)."
        )


class JudgedDocuments:
    """The documents of two judges, whose queries are counted together."""

    def __init__(self, trusted: Documents, cheap: Documents) -> None:
        self._trusted = trusted
        self._cheap = cheap
        query = trusted.read.query
        self._trusted_queries = np.unique(query[trusted.rows])
        self._cheap_queries = np.unique(query[cheap.rows])
        #: Codes of the queries with labels of either judge.
        self.queries: Ints = np.union1d(self._trusted_queries, self._cheap_queries)
        self._both = np.intersect1d(self._trusted_queries, self._cheap_queries)
        if not len(self._both):
            raise ValueError(
                f"The judge labelled {len(self._cheap_queries)} queries, and none of the "
                f"{len(self._trusted_queries)} with trusted labels: how far to trust the judge is "
                "not known. Expected the judge's labels in nearly all queries, also in those with "
                "trusted labels."
            )

    def judged(
        self, trusted: pd.DataFrame, cheap: pd.DataFrame, cluster: Ints | None = None
    ) -> JudgedQueries:
        """Metrics of the queries of each judge, in the order of their codes, as those of all."""
        return JudgedQueries(
            self._at(trusted, self._trusted_queries),
            self._at(cheap, self._cheap_queries),
            np.isin(self.queries, self._trusted_queries),
            cluster,
        )

    def random_rankings(self, value: Callable[[Any, Floats], pd.Series]) -> tuple[Floats, Floats]:
        """Metrics of random rankings of the queries that both judged, by each of them."""
        trusted = self._of_both(self._trusted)
        cheap = self._of_both(self._cheap)
        # The same score for both judges: documents have one code.
        documents = [self._cheap.code_of(rows) for rows in (trusted[0], cheap[0])]
        # Always the same rankings: the score of a candidate does not depend on chance.
        rng = np.random.RandomState(0)
        n_codes = max(code.max() for code in documents) + 1
        found: tuple[list[pd.Series], list[pd.Series]] = ([], [])
        for _ in range(_N_RANDOM_RANKINGS):
            scores = rng.normal(size=n_codes)
            for values, labelled, code in zip(
                found, (trusted[1], cheap[1]), documents, strict=True
            ):
                values.append(value(labelled, scores[code]))
        return np.column_stack(found[0]), np.column_stack(found[1])

    def _of_both(self, documents):
        """Rows and labels of the documents of queries that both judged."""
        kept = np.isin(documents.read.query[documents.rows], self._both)
        return documents.rows[kept], Labelled(documents.relevance[kept], documents.qid[kept])

    def _at(self, values, queries):
        """Values of some queries in rows of all; NaN elsewhere."""
        everywhere = np.full((len(self.queries), values.shape[1]), np.nan)
        everywhere[np.searchsorted(self.queries, queries)] = values.to_numpy()
        return everywhere
