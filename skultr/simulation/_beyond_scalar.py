"""Users whose P(click) is not examination times relevance, which most methods assume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._models._browsing import (
    TIANGONG_CLICK_MATRIX,
    matrix_click_probability,
    trust_affine,
    trust_click_probability,
)
from .._typing import Floats, Ints
from ._given import are_probabilities, as_floats, curve_at, cut
from ._protocols import User
from ._users import PositionBasedUser


@dataclass(frozen=True, eq=False)
class TrustBiasUser(PositionBasedUser):
    """A user who trusts the ranking: irrelevant documents at the top are clicked as well.

    Position k is examined with probability θ_k. An examined document is clicked with probability
    ε⁺_k if it is relevant and ε⁻_k if it is not; ε⁻ is large at the top of the page. With
    relevance r, P(click) = θ_k (ε⁺_k r + ε⁻_k (1 − r)) = α_k r + β_k: an affine function of
    relevance at each position. Because of β_k the click rates of two positions are not
    proportional, and a model that divides by an examination probability is misspecified.

    The truth of :func:`simulate_clicks` has ``alpha`` and ``beta``, of shape (n_positions,);
    its ``examination`` is θ. The study by Chen et al. uses relevance from 0 to 1, which is
    ``simulate_clicks(noise=0.0)``.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        θ, P(examined) by position; see :class:`PositionBasedUser`.
    trust_positive : array-like of shape (n_positions,) or float, default=None
        ε⁺, P(clicked | examined, relevant) by position, or one number for all positions. By
        default 1 − (k + 1) / 100 at position k: 0.98, 0.97, 0.96, ...
    trust_negative : array-like of shape (n_positions,) or float, default=None
        ε⁻, P(clicked | examined, not relevant), at most ε⁺. By default 0.65 / k: 0.65, 0.325,
        0.217, ...

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1], ε⁻ lies above ε⁺, or a curve is not known as deep as
        the lists. The default ε⁺ ends at position 98; at later positions it would be below ε⁻.

    Notes
    -----
    With ``trust_positive=1.0`` and ``trust_negative=0.0`` this is :class:`PositionBasedUser`,
    click for click.

    References
    ----------
    A. Agarwal, X. Wang, C. Li, M. Bendersky and M. Najork (2019). Addressing trust bias for
    unbiased learning-to-rank. WWW.

    A. Vardasbi, H. Oosterhuis and M. de Rijke (2020). When inverse propensity scoring does not
    work: affine corrections for unbiased learning to rank. CIKM.

    M. Chen, C. Liu, Z. Liu and J. Sun (2022). Scalar is not enough: vectorization-based unbiased
    learning to rank. KDD. Equations 12 to 14.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import TrustBiasUser
    >>> alpha, beta = TrustBiasUser().affine_at(4)
    >>> alpha.round(3), beta.round(3)
    (array([0.224, 0.393, 0.357, 0.268]), array([0.442, 0.198, 0.104, 0.055]))

    An irrelevant document at the top is clicked more often than a relevant one at position 4:

    >>> clicks = TrustBiasUser().click(
    ...     np.tile([0.0, 0.0, 0.0, 1.0], (100_000, 1)), np.random.default_rng(0)
    ... )
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.44, 0.2, 0.1, 0.32]
    """

    trust_positive: ArrayLike | None = None
    trust_negative: ArrayLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trust_positive", "trust_negative"):
            self._check_trust(name)
        given = [as_floats(curve) for curve in (self.trust_positive, self.trust_negative)]
        # Compared as deep as both curves are known: the lists may be shorter.
        self._trust_at(min([len(curve) for curve in given if curve.ndim], default=1))

    def _check_trust(self, name: str) -> None:
        given = getattr(self, name)
        curve = as_floats(given)
        if given is not None and (curve.ndim > 1 or not are_probabilities(curve)):
            raise ValueError(
                f"{name} must be one probability in [0, 1] per position, one for all positions, "
                f"or None for the default curve; got {given!r}."
            )

    def affine_at(self, n_positions: int) -> tuple[Floats, Floats]:
        """α and β at positions 1, ..., ``n_positions``, where P(click) = α_k r + β_k.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        alpha, beta : ndarray of shape (n_positions,)

        Raises
        ------
        ValueError
            If the examination or the trust is known for fewer positions.
        """
        return trust_affine(self.examination_at(n_positions), *self._trust_at(n_positions))

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``alpha`` and ``beta`` of :meth:`affine_at`; see :meth:`User.truth_at`."""
        alpha, beta = self.affine_at(n_positions)
        return {"alpha": alpha, "beta": beta}

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) = α_k r + β_k at each position; see :meth:`User.click_probability`."""
        n_positions = relevance_probability.shape[1]
        return trust_click_probability(
            relevance_probability, self.examination_at(n_positions), *self._trust_at(n_positions)
        )

    def _trust_at(self, n_positions: int) -> tuple[Floats, Floats]:
        """ε⁺ and ε⁻ at positions 1, ..., n_positions."""
        position = np.arange(1, n_positions + 1)
        positive, negative = 1 - (position + 1) / 100, 0.65 / position
        if self.trust_positive is not None:
            positive = curve_at("trust_positive", self.trust_positive, n_positions)
        if self.trust_negative is not None:
            negative = curve_at("trust_negative", self.trust_negative, n_positions)
        below = positive < negative
        if below.any():
            k = int(below.argmax())
            raise ValueError(
                f"At position {k + 1} trust_positive is {positive[k]:g} and trust_negative "
                f"{negative[k]:g}; expected trust_positive to be at least trust_negative, or "
                "irrelevant documents would be clicked more often than relevant ones. Pass both "
                "curves, or show fewer positions."
            )
        return positive, negative


@dataclass(frozen=True, eq=False)
class ClickMatrixUser(User):
    """A user whose P(click) comes from a table of grades and positions.

    No assumption connects grade and position: each pair has its own click rate, for example the
    rate counted on a real log. If the table has rank one, P(click) is examination times
    relevance; the table of TianGong-ST has rank five, so that a model with one number per
    position is misspecified.

    This user reads the *grades* of the documents, from 0, in place of the relevance
    probabilities. ``noise``, ``max_grade`` and ``gain`` of :func:`simulate_clicks`, and
    ``truth.relevance_probability``, therefore have no effect on the clicks (but the grades must
    not exceed ``max_grade``). The truth has ``click_matrix``, of shape (n_grades, n_positions).

    Parameters
    ----------
    matrix : 'tiangong' or array-like of shape (n_grades, n_positions), default='tiangong'
        P(click) of a document of grade 0, 1, ... at position 1, 2, ... The string means
        :data:`TIANGONG_CLICK_MATRIX` (5 grades, 10 positions).

    Raises
    ------
    ValueError
        If the matrix does not hold probabilities, or is 0 everywhere; in :func:`simulate_clicks`
        also if the matrix has no row for a grade, or fewer columns than the lists have
        positions.

    Notes
    -----
    On TianGong-ST the click rate does not rise with the grade at most positions (at the first:
    0.59, 0.50, 0.54, 0.61, 0.74). A ranker that orders by grade is then not the best predictor of
    clicks, and the clicks at a single position order the grades wrongly, although they have no
    position bias.

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

    def __post_init__(self) -> None:
        matrix = self._matrix()
        table = matrix.ndim == 2 and bool(matrix.size)
        if not table or not are_probabilities(matrix) or not matrix.any():
            raise ValueError(
                "matrix must be 'tiangong' or a table of shape (n_grades, n_positions) of "
                "probabilities in [0, 1] that are not all 0; got "
                + (
                    f"the shape {matrix.shape} with other values."
                    if table
                    else f"{self.matrix!r}."
                )
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
        curve = np.abs(np.linalg.svd(self._matrix(), full_matrices=False)[2][0])
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
        bad = ~((grade >= 0) & (grade < n_grades) & (grade == np.floor(grade)))
        if bad.any():
            raise ValueError(
                f"A grade is {grade[bad].flat[0]:g}, but the click matrix has {n_grades} rows: "
                f"expected whole grades from 0 to {n_grades - 1}. Pass matrix= with a row for "
                "each grade of your documents, or round or shift their relevance to its rows."
            )
        return grade.astype(np.int64)

    def click_probability(self, grade: Ints) -> Floats:
        """P(click) by position; 0 where the grade is -1. See :meth:`User.click_probability`."""
        return matrix_click_probability(grade, self.click_matrix_at(grade.shape[1]))

    def _cut(self, values: Floats, n_positions: int) -> Floats:
        return cut("The click matrix", values, n_positions, "a matrix with more columns")

    def _matrix(self) -> Floats:
        if isinstance(self.matrix, str):
            # Every other string becomes a table that the check refuses.
            return np.array(TIANGONG_CLICK_MATRIX if self.matrix == "tiangong" else [[]])
        return as_floats(self.matrix)
