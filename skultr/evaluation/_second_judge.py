"""What a second judge, of cheap labels, adds to a comparison of rankers by trusted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from .._base._typing import Floats, Ints
from ..exceptions import AssumptionWarning, warn_user
from ..metrics._judged_documents import JudgedDocuments, is_defined_as_often, refuse_undefined
from ..metrics._scorers import AnnotatedDocuments
from ..metrics._thresholds import FEWEST_TRUSTED, NOT_AT_RANDOM
from ..metrics._two_judges import two_judges


class Resampling(NamedTuple):
    """How intervals are made."""

    level: float
    n_resamples: int
    rng: np.random.RandomState


class SecondJudge:
    """The judge's metric of the rankers, and the queries of both judges."""

    def __init__(
        self, trusted: AnnotatedDocuments, cheap: AnnotatedDocuments, cluster: Ints | None
    ) -> None:
        self._documents = JudgedDocuments(trusted, cheap)
        self._cheap = cheap
        self._cluster = None if cluster is None else cluster[self._documents.queries]
        self._scores: dict[str, Floats] = {}

    def score(self, name: str, row_scores: Floats, are_given: bool) -> None:
        """Take the scores of a ranker for the documents that the judge labelled."""
        self._scores[name] = self._cheap.of_documents(row_scores, repr(name), are_given)

    def measure(
        self, value: Callable[[Any, Floats], pd.Series], trusted: pd.DataFrame
    ) -> pd.DataFrame:
        """The metric of each query by the judge's labels, where it is defined."""
        scores = self._scores
        cheap = pd.DataFrame({name: value(self._cheap, scores[name]) for name in scores})
        # Queries count where the metric is defined for all rankers, by each judge for itself.
        self._trusted = trusted.where(trusted.notna().all(axis=1))
        self._values = cheap.where(cheap.notna().all(axis=1))
        refuse_undefined(self._values)
        self._queries = self._documents.judged(self._trusted, self._values, self._cluster)
        self._is_comparable = is_defined_as_often(self._queries)
        return cheap.dropna()

    def improve_means(self, means: pd.DataFrame, how: Resampling) -> pd.DataFrame:
        """Means of rankers with the intervals of both judges, where those are narrower."""
        found = two_judges(self._queries, *how)
        if self._is_comparable:
            _warn_unless_drawn_at_random(found.apart)
        else:
            found = _without_judge(found)
        return _improved(means, found, "value", {})

    def improve_differences(
        self,
        table: pd.DataFrame,
        difference: Callable[..., Floats],
        first_level: float,
        how: Resampling,
    ) -> pd.DataFrame:
        """Differences with the intervals and p-values of both judges, where those are narrower."""
        queries = self._documents.judged(
            _differences(self._trusted, table, difference),
            _differences(self._values, table, difference),
            self._cluster,
        )
        found = two_judges(queries, *how)
        smallest = found.error * stats.t.ppf([[1 - first_level / 2], [0.8]], found.freedom).sum(0)
        columns = {"p_value": found.p_value, "detectable": smallest}
        if not self._is_comparable:
            found = _without_judge(found)
        improved = _improved(table, found, "difference", columns)
        cause = np.where(improved["judge_weight"] > 0, "", self._causes(queries, found))
        return improved.assign(judge_no_help=cause)

    def _causes(self, queries, found):
        """Why the judge is no help, if it is none, by difference."""
        if queries.is_trusted.all():
            return "it labelled no other queries"
        if not self._is_comparable:
            return "its metric is undefined in trusted queries more or less often than in others"
        fewest = int(FEWEST_TRUSTED.value)
        unit = "queries" if self._cluster is None else "clusters"
        return np.where(
            found.n_differing < fewest,
            f"fewer than {fewest} trusted {unit} differ",
            "its differences do not follow those of people",
        )


def _without_judge(found):
    """A weight of 0, with which rows stay those of the trusted labels."""
    return found._replace(weight=np.zeros_like(found.weight))


def _warn_unless_drawn_at_random(apart):
    """A judge that moves the mean to that of other queries would move it off the truth."""
    errors = np.abs(apart).max()
    if errors > NOT_AT_RANDOM.value:
        side = "above" if apart[np.abs(apart).argmax()] > 0 else "below"
        warn_user(
            "By the judge's labels, the metric of the queries with trusted labels is "
            f"{errors:.1f} standard errors {side} that of all queries: they were not drawn at "
            "random, and the intervals of both judges may miss the truth. Expected trusted labels "
            "of a random draw of the queries. Draw some more among the others, or compare without "
            "the judge.",
            AssumptionWarning,
        )


def _differences(values, table, difference):
    """Differences of the rankers of each row of the table."""
    a = values[[*table["ranker"]]].to_numpy()
    b = values[[*table["baseline"]]].to_numpy()
    return pd.DataFrame(difference(a, b))


def _improved(table, found, value, columns):
    """The table, with what both judges say in rows where their interval is narrower."""
    helps = found.helps(table["lower"].to_numpy(), table["upper"].to_numpy())
    width = table["upper"] - table["lower"]
    columns = {value: found.value, "lower": found.lower, "upper": found.upper, **columns}
    improved = table.assign(
        **{name: np.where(helps, new, table[name]) for name, new in columns.items()}
    )
    improved["judge_weight"] = np.where(helps, found.weight, 0.0)
    improved["width_ratio"] = (improved["upper"] - improved["lower"]) / width
    return improved
