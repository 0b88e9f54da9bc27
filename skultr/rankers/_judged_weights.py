"""Held-out grades beside held-out clicks: the evidence that weighs members of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from .._log._segments import TINY
from .._models._free_effects import FreeEffects
from .._models._solve import GroupedLogit
from ._candidates import ROUNDING_OF_DOUBLE, candidates_of, standardized
from ._judged import Judged
from ._weights import HeldOutRows, scores_elsewhere

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Parts of the judged queries. They are few: with two, the member that is weighed would have
#: learned from half of what the member that predicts has.
_FOLDS = 5
#: Largest power of the likelihood of grades: in simulated logs it was 2 to 5, and queries whose
#: grades agree by chance must not outweigh all clicks.
_MOST_POWER = 10.0


class HeldOutGrades(NamedTuple):
    """Grades of judged queries, and scores by members that saw nothing of the query."""

    scores: NDArray[np.float64]  # (n_used, n_members)
    query: Ints  # (n_used,), of the log of clicks; those that are not in it follow
    grades: Floats  # (n_used,)


def cross_fitted_to_both(
    log: ClickLog,
    rankers: Sequence[Any],
    part: Ints,
    judged: Judged,
    random: np.random.RandomState,
    n_jobs: int | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # (n_rows, n_rankers), (n_judged, n_rankers)
    """Scores of the rows of the log and of judged documents; the last ranker learns from grades.

    A ranker that learns from clicks has seen no click of the query, the last one no grade.
    """
    candidates, place = candidates_of(log)
    query, version = np.divmod(candidates, log.n_versions)
    n_candidates = len(candidates)
    n_queries = len(log.query_ids)

    def features(here):
        """Those of candidates of the log, and of judged documents, which follow them."""
        shown = here[here < n_candidates]
        graded = here[here >= n_candidates] - n_candidates
        return np.concatenate([log.features[version[shown]], judged.features[graded]])

    # A judged query is a list of its own, also where the log has it: it may have other documents.
    both = np.concatenate([query, n_queries + judged.log.query])

    def rows(part_of_query, part_of_judged):
        parts = np.concatenate([part_of_query[query], part_of_judged[judged.log.query]])
        return HeldOutRows(both, parts, features)

    # 1. Parts of the clicks. A query without clicks is held out in each.
    *others, teacher = rankers
    is_in_log = judged.query_in_log >= 0
    dealt = np.arange(judged.n_queries) % (part.max() + 1)
    part_of_judged = np.where(is_in_log, part[judged.query_in_log], dealt)
    by_clicks = scores_elsewhere(log, others, part, rows(part, part_of_judged), n_jobs)
    # 2. Parts of the grades, of which queries that nobody judged are held out in each.
    fold = random.permutation(judged.n_queries) % _FOLDS
    fold_of_query = np.arange(n_queries) % _FOLDS
    fold_of_query[judged.query_in_log[is_in_log]] = fold[is_in_log]
    held_out = rows(fold_of_query, fold)
    by_grades = scores_elsewhere(judged.log, [teacher], fold, held_out, n_jobs)
    scores = np.column_stack([by_clicks, by_grades])
    return scores[:n_candidates][place], scores[n_candidates:]


def grades_of(judged: Judged, scores: NDArray[np.float64], n_queries: int) -> HeldOutGrades:
    """The grades and the scores of the members, without production."""
    # Queries that are not in the log are numbered after its own.
    new = n_queries + np.arange(judged.n_queries)
    code = np.where(judged.query_in_log >= 0, judged.query_in_log, new)
    return HeldOutGrades(scores, code[judged.log.query], judged.log.clicks.astype(float))


def with_production(held_out: HeldOutGrades, production: Floats) -> HeldOutGrades | None:
    """The grades with the score of production as a member, of documents that have one.

    None if nothing can be compared.
    """
    known = np.flatnonzero(~np.isnan(production))
    query = held_out.query[known]
    grades = held_out.grades[known]
    # Grades of zero all over a query say nothing.
    if not grades.any():
        return None
    _, code = np.unique(query, return_inverse=True)
    # Again standardised, because documents may be missing.
    columns = [standardized(column, code) for column in held_out.scores[known].T]
    served = standardized(production[known], code, ROUNDING_OF_DOUBLE)
    return HeldOutGrades(np.column_stack([*columns, served]), query, grades)


class ClicksAndGrades(FreeEffects):
    """Clicks and grades explained by scores, each in a unit and with a weight of its own.

    Grades are clicks of a list without bias: the likelihood of a judged query is
    :math:`\\prod_i \\mathrm{softmax}(a \\sum_m w_m z_m)_i^{g_i}`. Users and judges do not follow
    scores equally closely: scores are given in the unit in which the mixture ``share`` explains
    clicks best, and those of judged documents in the unit in which it explains grades best. Nor
    are they equally sure: a thousand clicks of one query may agree on what is true of it alone,
    and grades vary less than clicks. Both likelihoods get the power with which their information
    is what the differences between queries say.
    """

    def __init__(self, clicks: FreeEffects, held_out: HeldOutGrades, share: Floats) -> None:
        query = held_out.query
        grades = GroupedLogit.from_rows(np.unique(query, return_inverse=True)[1], held_out.grades)
        query_of_grades = query[grades.rows[grades.starts]]
        # 1. The unit and the power of each.
        logits, _, click_unit = clicks.mix(clicks.scores @ share[:, None])
        mixed = held_out.scores @ share[:, None]
        grade_unit = grades.best_weights(mixed, np.zeros(len(mixed)))
        power = _power(clicks.choice, clicks.scores, logits, clicks.query_of_list)
        # Clicks are at most draws of their own.
        power = min(power, 1.0)
        grade_power = _power(grades, held_out.scores, mixed @ grade_unit, query_of_grades)
        grade_power = min(grade_power, _MOST_POWER)
        # 2. Judged documents are rows behind those of the log. All have one bias factor, whose
        # effect is then that of their list, and changes nothing.
        n_rows = len(clicks.scores)
        self.scores = np.vstack([clicks.scores * click_unit, held_out.scores * grade_unit])
        self.choice = _joined(clicks.choice, power, grades, grade_power, n_rows)
        nothing = np.zeros(len(query), dtype=int)
        self.log_examination = np.append(clicks.log_examination, nothing)
        self.bias = np.append(clicks.bias, nothing)
        self.n_factors = clicks.n_factors
        queries = np.concatenate([clicks.query_of_list, query_of_grades])
        self._query = np.unique(queries, return_inverse=True)[1]


def _power(choice, scores, logits, query):
    """Power of a likelihood with which it tells as much of weights as its queries agree on.

    The information about the weights of all scores, over the sum of squares of the gradients of
    the queries, which is as large where a query is as many draws as it has clicks (or grades).
    """
    shares = choice.shares(logits)
    expected = choice.expected(shares)
    columns = scores[choice.rows]
    mean = np.add.reduceat(shares[:, None] * columns, choice.starts)
    columns = columns - mean[choice.list_]
    information = np.sum(expected[:, None] * columns**2)
    by_list = np.add.reduceat((choice.clicks - expected)[:, None] * columns, choice.starts)
    _, code = np.unique(query, return_inverse=True)
    gradients = np.zeros((code.max() + 1, scores.shape[1]))
    np.add.at(gradients, code, by_list)
    return information / max(np.sum(gradients**2), TINY)


def _joined(clicks, power, grades, grade_power, n_rows):
    """The lists with clicks and those with grades, whose rows follow the ``n_rows`` of the log."""
    pairs = [
        (clicks.rows, grades.rows + n_rows),
        (clicks.list_, grades.list_ + len(clicks.total)),
        (clicks.starts, grades.starts + len(clicks.rows)),
        (power * clicks.clicks, grade_power * grades.clicks),
        (power * clicks.total, grade_power * grades.total),
        (clicks.offset, np.zeros(len(grades.rows))),
    ]
    return GroupedLogit(*map(np.concatenate, pairs))
