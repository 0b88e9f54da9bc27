"""A user whose clicks come from a table of grades and positions, which a log may give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._base._typing import Column, Floats, Frame, Ints
from .._log._reader import read, take_clicks
from .._log._roles import read_role
from .._log._segments import TINY
from .._models._browsing import TIANGONG_CLICK_MATRIX, matrix_click_probability
from ._users import User, are_probabilities, as_floats, cut


@dataclass(frozen=True, eq=False)
class ClickMatrixUser(User):
    """A user whose P(click) comes from a table of grades and positions.

    No assumption connects grade and position: each pair has its own click rate, for example the
    rate counted on a real log. If the table has rank one, P(click) is examination times
    relevance; the table of TianGong-ST has rank five, so that a model with one number per
    position is misspecified.

    This user reads the *grades* of the documents, from 0, in place of the relevance
    probabilities. ``noise`` and ``gain`` of :func:`simulate_clicks`, and
    ``truth.relevance_probability``, therefore have no effect on the clicks. Nor has ``max_grade``,
    but the grades must not exceed it. The truth has ``click_matrix``, of shape
    (n_grades, n_positions).

    Parameters
    ----------
    matrix : 'tiangong' or array-like of shape (n_grades, n_positions), default='tiangong'
        P(click) of a document of grade 0, 1, ... at position 1, 2, ... The string means
        :data:`TIANGONG_CLICK_MATRIX` (5 grades, 10 positions). :meth:`from_log` counts the matrix
        of your own users.

    Attributes
    ----------
    counts : DataFrame or None
        What :meth:`from_log` counted, by ``grade`` and ``position`` (index): ``impressions``,
        ``clicks``, ``click_rate`` and its ``standard_error``. None for a matrix that was given.

    Raises
    ------
    ValueError
        If the matrix does not hold probabilities, or is 0 everywhere. In :func:`simulate_clicks`
        also if the matrix has no row for a grade, or fewer columns than the lists have
        positions.

    Notes
    -----
    On TianGong-ST the click rate does not rise with the grade at most positions (at the first:
    0.59, 0.50, 0.54, 0.61, 0.74). This has two consequences. A ranker that orders by grade is not
    the best predictor of clicks. And clicks at a single position order the grades wrongly,
    although they have no position bias.

    References
    ----------
    M. Chen, C. Liu, Z. Liu and J. Sun (2022). Scalar is not enough: vectorization-based unbiased
    learning to rank. KDD. Equation 11 and Figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import ClickMatrixUser
    >>> user = ClickMatrixUser([[0.4, 0.1], [0.9, 0.2]])
    >>> grade = np.tile([0, 1], (100_000, 1))
    >>> user.click(grade, np.random.default_rng(0)).mean(axis=0).round(2).tolist()
    [0.4, 0.2]
    >>> ClickMatrixUser().examination_at(5).round(3)
    array([1.   , 0.208, 0.168, 0.072, 0.037])
    """

    matrix: ArrayLike = "tiangong"
    counts: pd.DataFrame | None = field(default=None, init=False, repr=False)

    @classmethod
    def from_log(
        cls, X: Frame, y: Column | str, *, sample_weight: Column | None = None
    ) -> ClickMatrixUser:
        r"""The user whose matrix holds the click rates of a log by grade and position (Fig. 1).

        Parameters
        ----------
        X : DataFrame of shape (n_rows, n_columns)
            A click log with the roles ``position`` and ``relevance`` (whole grades from 0), and
            ``impressions`` if rows stand for several. Rows without a grade are not counted, nor
            are rows that were not shown.
        y : array-like of shape (n_rows,) or str
            Click (0 or 1), or click rate if a row has several impressions; or its column of X.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.

        Returns
        -------
        user : ClickMatrixUser
            Its ``counts`` have the standard error :math:`\sqrt{p (1 - p) / n}` of each click rate
            of n independent impressions, with p = (clicks + 1) / (n + 2), so that none is 0. For
            pairs that were never shown, ``counts`` have NaN. Their P(click) is the click rate of
            the position times the ratio of the grade's clicks to those of average documents.

        Raises
        ------
        ValueError
            If a role is missing, a grade is no whole number, or a grade (or position) below the
            largest has no row.

        Examples
        --------
        >>> import pandas as pd
        >>> from skultr.simulation import ClickMatrixUser
        >>> log = pd.DataFrame({"position": [1, 2, 1, 2], "relevance": [0, 1, 1, 0],
        ...                     "impressions": [100, 100, 50, 50], "rate": [0.2, 0.3, 0.6, 0.1]})
        >>> ClickMatrixUser.from_log(log, "rate").matrix
        array([[0.2, 0.1],
               [0.6, 0.3]])
        """
        caller = "ClickMatrixUser.from_log"
        X, y, _ = take_clicks(X, y, caller)
        if any(read_role(X, role) is None for role in ("position", "relevance")):
            raise ValueError(
                f"{caller} needs a frame with the columns 'position' and 'relevance'; one is not "
                "in X. Add it, or rename the column that holds the positions or the grades."
            )
        rows = read(X, y, sample_weight, reads=("position", "relevance", "impressions"))
        # Rows of graded documents that were shown.
        used = rows.shown & ~np.isnan(rows["relevance"])
        grade = rows["relevance"][used]
        position = rows.position[used]
        if not used.any() or (grade % 1).any():
            broken = grade[grade % 1 > 0]
            wrong = f"the grade {broken[0]:g}" if used.any() else "no graded row"
            raise ValueError(
                f"{caller} found {wrong}; expected whole grades from 0 in the column 'relevance' "
                "of rows that were shown. Merge the grades into the log, or round them."
            )
        # A cell is a pair of a grade and a position; its counts are sums over rows.
        counts = _counts_of_cells(
            grade.astype(int), position, rows.weight[used], rows.clicks[used]
        )
        # Two tables, (n_grades, n_positions), as pairs are sorted by grade and then by position.
        shown, clicks = counts.to_numpy().T.reshape(2, *counts.index.levshape)
        # Pairs that were never shown have no rate.
        with np.errstate(invalid="ignore"):
            rate = clicks / shown
            position_rate = clicks.sum(axis=0) / shown.sum(axis=0)
        # Theirs is that of the grade, relative to average documents at the same positions.
        grade_ratio = clicks.sum(axis=1) / np.maximum(shown @ position_rate, TINY)
        guess = np.clip(np.outer(grade_ratio, position_rate), 0, 1)
        # P(click) of a pair that the log knows is its rate.
        user = cls(np.where(shown > 0, rate, guess))
        # Laplace's rule, so that a rate of 0 or 1 has an error, too.
        p = (counts["clicks"] + 1) / (counts["impressions"] + 2)
        # Of no impression there is no error: NaN, and no division by 0.
        n_shown = counts["impressions"].where(shown.ravel() > 0)
        error = np.sqrt(p * (1 - p) / n_shown)
        counts = counts.assign(click_rate=rate.ravel(), standard_error=error)
        object.__setattr__(user, "counts", counts)
        return user

    def __post_init__(self) -> None:
        # A table of zeros has no leading factor.
        matrix = self._matrix()
        if matrix.ndim != 2 or not are_probabilities(matrix) or not matrix.any():
            raise ValueError(
                "matrix must be 'tiangong' or a table of shape (n_grades, n_positions) of "
                "probabilities in [0, 1] that are not all 0; got the shape "
                f"{matrix.shape} with values such as {matrix.ravel()[:3].tolist()}."
            )

    def click_matrix_at(self, n_positions: int) -> Floats:
        """P(click) by grade at positions 1, ..., ``n_positions``.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        matrix : ndarray of shape (n_grades, n_positions)

        Raises
        ------
        ValueError
            If the matrix has fewer positions.
        """
        return self._cut(self._matrix(), n_positions)

    def examination_at(self, n_positions: int) -> Floats:
        """Position factor of the best approximation of rank one, relative to its largest value.

        The approximation is that in least squares, with equal weight for all grades and
        positions of the whole matrix. If the matrix has rank one, this *is* the examination, up
        to its scale. Otherwise there is no examination, and this is a reference, not a truth.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)

        Raises
        ------
        ValueError
            If the matrix has fewer positions.
        """
        # The leading singular vector of a matrix without negative values has one sign.
        # M = sum_i s_i u_i v_i', of which s_1 u_1 v_1' is nearest to M (Eckart and Young).
        _, _, right = np.linalg.svd(self._matrix(), full_matrices=False)
        curve = np.abs(right[0])
        return self._cut(curve / curve.max(), n_positions)

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``click_matrix`` of :meth:`click_matrix_at`; see :meth:`User.truth_at`."""
        return {"click_matrix": self.click_matrix_at(n_positions)}

    def read_grades(self, grade: ArrayLike) -> Ints:
        """Rows of the matrix that belong to the grades of documents.

        Parameters
        ----------
        grade : array-like of shape (n_documents,)

        Returns
        -------
        row : ndarray of shape (n_documents,), int

        Raises
        ------
        ValueError
            If a grade is not a whole number, or the matrix has no row for it.
        """
        grade = np.asarray(grade, dtype=float)
        n_grades = len(self._matrix())
        is_row = (grade >= 0) & (grade < n_grades)
        # NaN is no row of the matrix either: it compares as False.
        bad = ~is_row | (grade != np.floor(grade))
        if bad.any():
            raise ValueError(
                f"A grade is {grade[bad].flat[0]:g}, but the click matrix has {n_grades} rows: "
                f"expected whole grades from 0 to {n_grades - 1}. Pass matrix= with a row for "
                "each grade of your documents, or round or shift their grades to these rows."
            )
        return grade.astype(np.int64)

    def click_probability(self, grade: Ints) -> Floats:
        """P(click) by position; 0 where the grade is -1. See :meth:`User.click_probability`."""
        return matrix_click_probability(grade, self.click_matrix_at(grade.shape[1]))

    def _cut(self, values: Floats, n_positions: int) -> Floats:
        return cut("The click matrix", values, n_positions, "a matrix with more columns")

    def _matrix(self) -> Floats:
        return as_floats(self.matrix, {"tiangong": TIANGONG_CLICK_MATRIX})


def _counts_of_cells(grade, position, impressions, clicks):
    """Impressions and clicks of all pairs of a grade and a position, which must have no gap."""
    cells = pd.DataFrame(
        {"grade": grade, "position": position, "impressions": impressions, "clicks": clicks}
    )
    counts = cells.groupby(["grade", "position"]).sum()
    known = {}
    for name, first in (("grade", 0), ("position", 1)):
        values = counts.index.unique(name).sort_values()
        # Grades begin with 0 and positions with 1, and none may be skipped.
        gaps = np.flatnonzero(values != np.arange(len(values)) + first)
        if len(gaps):
            raise ValueError(
                f"No graded row of the log has the {name} {gaps[0] + first}; expected each {name} "
                f"up to {values[-1]}. Join it with a neighbour, or grade more rows."
            )
        known[name] = values
    pairs = pd.MultiIndex.from_product(known.values(), names=[*known])
    return counts.reindex(pairs, fill_value=0.0)
