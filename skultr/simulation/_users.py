"""Users as samplers: from shown documents with known relevance to clicks."""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from .._browsing import EYE_TRACKING, pbm_click_probability, power_law_examination

__all__ = ["PositionBasedUser", "relevance_probability"]


def relevance_probability(grade, *, noise=0.1, max_grade=4):
    """P(found relevant | examined) of a document of a grade.

    ε + (1 − ε) (2^y − 1) / (2^y_max − 1): the best grade is always found relevant, and the worst
    with probability ε. With the defaults: 0.1, 0.16, 0.28, 0.52, 1.

    Parameters
    ----------
    grade : array-like
        Grades y in [0, ``max_grade``].
    noise : float in [0, 1], default=0.1
        ε, the click noise.
    max_grade : float, default=4
        The best grade of the scale (of the scale, not of the documents at hand).

    Returns
    -------
    probability : ndarray of the shape of ``grade``

    Raises
    ------
    ValueError
        If a grade lies outside the scale, or ``noise`` outside [0, 1].

    References
    ----------
    O. Chapelle, D. Metzler, Y. Zhang and P. Grinspan (2009). Expected reciprocal rank for graded
    relevance. CIKM. With the noise of Q. Ai, K. Bi, C. Luo, J. Guo and W. B. Croft (2018).
    Unbiased learning to rank with unbiased propensity estimation. SIGIR.

    Examples
    --------
    >>> from skultr.simulation import relevance_probability
    >>> relevance_probability([0, 1, 2, 3, 4])
    array([0.1 , 0.16, 0.28, 0.52, 1.  ])
    """
    grade = np.asarray(grade, dtype=float)
    if not (isinstance(noise, Real) and 0 <= noise <= 1):
        raise ValueError(f"noise must be a number in [0, 1], got {noise!r}.")
    if not (isinstance(max_grade, Real) and 0 < max_grade < np.inf):
        raise ValueError(f"max_grade must be a finite number above 0, got {max_grade!r}.")
    bad = ~((grade >= 0) & (grade <= max_grade))
    if bad.any():
        raise ValueError(
            f"A grade is {grade[bad].flat[0]:g}; expected grades from 0 to max_grade="
            f"{max_grade:g}. Pass the largest grade of your scale as max_grade=."
        )
    return noise + (1 - noise) * np.expm1(np.log(2) * grade) / np.expm1(np.log(2) * max_grade)


@dataclass(frozen=True, eq=False)
class PositionBasedUser:
    """A user who examines each position with a probability of its own.

    The user clicks what they examine and find relevant; the two are independent of each other
    and of the rest of the list. That is what position-based models assume, so that they are well
    specified on such a log: users whose attention depends on what they clicked before, or who
    trust the ranking, are another world.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        P(examined) at positions 1, 2, ... The string stands for :data:`EYE_TRACKING` (ten
        positions); a number η for the power law (1/k)^η at any depth. A curve that is given by
        position must reach as deep as the lists: nothing is assumed beyond its end.

    References
    ----------
    M. Richardson, E. Dominowska and R. Ragno (2007). Predicting clicks: estimating the
    click-through rate for new ads. WWW.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import PositionBasedUser
    >>> user = PositionBasedUser(examination=[1.0, 0.5])
    >>> relevance = np.tile([0.2, 0.8], (100_000, 1))
    >>> clicks = user.click(relevance, np.random.default_rng(0))
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.2, 0.4]
    """

    examination: object = "eye-tracking"

    def __post_init__(self):
        curve = self._curve()
        if isinstance(curve, float):
            bad = not 0 <= curve < np.inf
        else:
            bad = curve.ndim != 1 or not len(curve) or not ((curve >= 0) & (curve <= 1)).all()
        if bad:
            raise ValueError(
                "examination must be 'eye-tracking', one probability in [0, 1] a position, or a "
                f"number of at least 0, the exponent of a power law; got {self.examination!r}."
            )

    def examination_at(self, n_positions):
        """P(examined) at positions 1, ..., ``n_positions``.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)

        Raises
        ------
        ValueError
            If the examination is known for fewer positions.
        """
        curve = self._curve()
        if isinstance(curve, float):
            return power_law_examination(n_positions, curve)
        if n_positions > len(curve):
            raise ValueError(
                f"The examination is given for {len(curve)} positions, but the lists have "
                f"n_positions={n_positions}. Pass examination= with a probability for each, or a "
                "number, the exponent of a power law; or show fewer positions."
            )
        return curve[:n_positions]

    def click(self, relevance_probability, rng):
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(found relevant | examined) of what each position shows; 0 where it shows nothing.
        rng : numpy.random.Generator

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        examination = self.examination_at(relevance_probability.shape[1])
        probability = pbm_click_probability(relevance_probability, examination)
        return rng.random(probability.shape) < probability

    def _curve(self):
        """The exponent of the power law as a float, or the curve as an array."""
        if isinstance(self.examination, str):
            # Any other string becomes an array that no check lets pass.
            known = self.examination == "eye-tracking"
            return np.array(EYE_TRACKING if known else [np.nan])
        if isinstance(self.examination, Real):
            return float(self.examination)
        return np.array(self.examination, dtype=float)
