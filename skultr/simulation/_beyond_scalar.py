"""Users whose clicks are not examination times relevance: no one number a position explains them.

Both fit in with the other users of :func:`simulate_clicks`; they are apart because what they
break is what most of unbiased learning to rank assumes.
"""

from dataclasses import dataclass

import numpy as np

from .._models._browsing import (
    TIANGONG_CLICK_MATRIX,
    matrix_click_probability,
    trust_affine,
    trust_click_probability,
)
from ._users import PositionBasedUser

__all__ = ["ClickMatrixUser", "TrustBiasUser"]


@dataclass(frozen=True, eq=False)
class TrustBiasUser(PositionBasedUser):
    """A user who trusts the ranking: what stands high is clicked more than it deserves.

    Position k is examined with probability θ_k. What is examined and relevant is clicked with
    probability ε⁺_k, and what is examined and *not* relevant with ε⁻_k, which is high at the top
    of the page. With relevance r, P(click) = θ_k (ε⁺_k r + ε⁻_k (1 − r)) = α_k r + β_k: an affine
    function of relevance at each position. Because of β_k no examination curve makes the click
    rates of positions proportional, and a model that divides by one is misspecified.

    The truth of :func:`simulate_clicks` has ``alpha`` and ``beta``, of shape (n_positions,);
    its ``examination`` is θ. The study by Chen et al. takes relevance from 0 to 1, which is
    ``simulate_clicks(noise=0.0)``.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        θ, P(examined) by position; see :class:`PositionBasedUser`.
    trust_positive : array-like of shape (n_positions,) or float, default=None
        ε⁺, P(clicked | examined, relevant) by position, or one number for all. By default
        1 − (k + 1) / 100 at position k: 0.98, 0.97, 0.96, ...
    trust_negative : array-like of shape (n_positions,) or float, default=None
        ε⁻, P(clicked | examined, not relevant), at most ε⁺. By default 0.65 / k: 0.65, 0.325,
        0.217, ...

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1], ε⁻ lies above ε⁺, or a curve is not known as deep as
        the lists. The default ε⁺ ends at position 98, behind which it would fall below ε⁻.

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

    What is irrelevant is clicked more often at the top than what is relevant further down:

    >>> clicks = TrustBiasUser().click(
    ...     np.tile([0.0, 0.0, 0.0, 1.0], (100_000, 1)), np.random.default_rng(0)
    ... )
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.44, 0.2, 0.1, 0.32]
    """

    trust_positive: object = None
    trust_negative: object = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("trust_positive", "trust_negative"):
            self._check_trust(name)
        given = (self.trust_positive, self.trust_negative)
        # As deep as both are known: what the user is asked for later may be shorter.
        depth = min([len(curve) for curve in given if np.ndim(curve)], default=1)
        self._trust_at(depth)

    def _check_trust(self, name):
        given = getattr(self, name)
        if given is None:
            return
        try:
            curve = np.array(given, dtype=float)
        except (TypeError, ValueError):
            curve = np.empty(0)
        if curve.ndim > 1 or not curve.size or not ((curve >= 0) & (curve <= 1)).all():
            raise ValueError(
                f"{name} must be one probability in [0, 1] a position, one for all positions, or "
                f"None for the default curve; got {given!r}."
            )

    def affine_at(self, n_positions):
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

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : dict of str to ndarray
            ``alpha`` and ``beta``; see :meth:`affine_at`.
        """
        alpha, beta = self.affine_at(n_positions)
        return {"alpha": alpha, "beta": beta}

    def click(self, relevance_probability, rng):
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(relevant) of what each position shows. Where it shows nothing, any number may stand,
            and the click that is drawn there means nothing.
        rng : numpy.random.Generator

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        n_positions = relevance_probability.shape[1]
        probability = trust_click_probability(
            relevance_probability, self.examination_at(n_positions), *self._trust_at(n_positions)
        )
        return rng.random(probability.shape) < probability

    def _trust_at(self, n_positions):
        """ε⁺ and ε⁻ at positions 1, ..., n_positions."""
        position = np.arange(1, n_positions + 1)
        positive = self._trust_curve("trust_positive", 1 - (position + 1) / 100)
        negative = self._trust_curve("trust_negative", 0.65 / position)
        below = positive < negative
        if below.any():
            k = int(below.argmax())
            raise ValueError(
                f"At position {k + 1} trust_positive is {positive[k]:g} and trust_negative "
                f"{negative[k]:g}; expected trust_positive to be at least trust_negative, or what "
                "is not relevant would be clicked more than what is. Pass both curves, or show "
                "fewer positions."
            )
        return positive, negative

    def _trust_curve(self, name, default):
        """A curve as deep as its default."""
        given = getattr(self, name)
        if given is None:
            return default
        curve = np.array(given, dtype=float)
        if not curve.ndim:
            return np.full(len(default), curve)
        if len(default) > len(curve):
            raise ValueError(
                f"{name} is given for {len(curve)} positions, but the lists have n_positions="
                f"{len(default)}. Pass a probability for each, or one number for all; or show "
                "fewer positions."
            )
        return curve[: len(default)]


@dataclass(frozen=True, eq=False)
class ClickMatrixUser:
    """A user whose P(click) is read off a table of grades and positions.

    No assumption joins grade and position: each pair has a click rate of its own, for example one
    that was counted on a real log. If the table has rank one, this is a user of the examination
    hypothesis; the table of TianGong-ST has rank five, so that a model with one number a position
    cannot be right about it.

    This user reads the *grades* of :func:`simulate_clicks`, from 0, in place of the relevance
    probabilities: ``noise``, ``max_grade`` and ``gain`` have no effect on the clicks (the grades
    must lie within ``max_grade`` all the same), and ``truth.relevance_probability``, which they
    make, is not what this user clicks by. The truth has ``click_matrix``, of shape
    (n_grades, n_positions).

    Parameters
    ----------
    matrix : 'tiangong' or array-like of shape (n_grades, n_positions), default='tiangong'
        P(click) of a document of grade 0, 1, ... at position 1, 2, ... The string stands for
        :data:`TIANGONG_CLICK_MATRIX` (5 grades, 10 positions).

    Raises
    ------
    ValueError
        If the matrix does not hold probabilities, or is 0 everywhere; in :func:`simulate_clicks`
        also if a grade is not the number of one of its rows, or the lists are longer than its
        rows.

    Notes
    -----
    On TianGong-ST the click rate does not rise with the grade at most positions (at the first:
    0.59, 0.50, 0.54, 0.61, 0.74). The best predictor of clicks is then not a ranker that orders by
    grade, and clicks at a single position order the grades wrongly although no position bias
    stands between them.

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

    matrix: object = "tiangong"

    def __post_init__(self):
        matrix = self._matrix()
        fits = matrix.ndim == 2 and matrix.size
        if not fits or not ((matrix >= 0) & (matrix <= 1)).all() or not matrix.any():
            raise ValueError(
                "matrix must be 'tiangong' or a table of shape (n_grades, n_positions) of "
                "probabilities in [0, 1] that are not all 0; got "
                + (f"the shape {matrix.shape} with other values." if fits else f"{self.matrix!r}.")
            )

    def click_matrix_at(self, n_positions):
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
        return self._shown(self._matrix(), n_positions)

    def examination_at(self, n_positions):
        """What a model with one number a position would see, at best.

        The position factor of the matrix's best approximation of rank one (in least squares, all
        grades alike), relative to its largest value: the first position's, for TianGong-ST. If
        the matrix has rank one this *is* the examination, up to its scale. Otherwise there is
        none, and this is a point of comparison, not a truth.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)
            The first values of the curve for the whole matrix, whatever is shown.

        Raises
        ------
        ValueError
            If the matrix has fewer positions.
        """
        # The leading singular vector of a matrix without negative values has one sign.
        curve = np.abs(np.linalg.svd(self._matrix(), full_matrices=False)[2][0])
        return self._shown(curve / curve.max(), n_positions)

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : dict of str to ndarray
            ``click_matrix``; see :meth:`click_matrix_at`.
        """
        return {"click_matrix": self.click_matrix_at(n_positions)}

    def read_grades(self, grade):
        """Rows of the matrix that the grades of documents stand for.

        Parameters
        ----------
        grade : ndarray of shape (n_documents,)

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

    def click(self, grade, rng):
        """Draw the clicks of sessions.

        Parameters
        ----------
        grade : ndarray of shape (n_sessions, n_positions), int
            Grade of what each position shows; -1 where it shows nothing.
        rng : numpy.random.Generator

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        probability = matrix_click_probability(grade, self.click_matrix_at(grade.shape[1]))
        return rng.random(probability.shape) < probability

    def _shown(self, values, n_positions):
        """The columns of the first n_positions."""
        known = values.shape[-1]
        if n_positions > known:
            raise ValueError(
                f"The click matrix is given for {known} positions, but the lists have "
                f"n_positions={n_positions}. Pass matrix= with a column for each, or show fewer "
                "positions."
            )
        return values[..., :n_positions]

    def _matrix(self):
        if isinstance(self.matrix, str):
            # Any other string becomes a table that no check lets pass.
            return np.array(TIANGONG_CLICK_MATRIX if self.matrix == "tiangong" else [[]])
        try:
            return np.array(self.matrix, dtype=float)
        except (TypeError, ValueError):
            return np.empty(0)
