"""Users who examine each position with a probability of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from .._models._browsing import (
    EYE_TRACKING,
    contextual_examination,
    pbm_click_probability,
    power_law_examination,
)
from .._typing import Bools, Floats, Ints
from ._given import are_probabilities, as_floats, check_seed, cut
from ._protocols import User, draw_clicks


def relevance_probability(
    grade: ArrayLike,
    *,
    noise: float = 0.1,
    max_grade: float = 4,
    gain: str = "exponential",
) -> Floats:
    """P(found relevant | examined) of documents, from their grades.

    With grade y, click noise ε and best grade y_max:

    - exponential gain: ε + (1 − ε) (2^y − 1) / (2^y_max − 1), by default 0.1, 0.16, 0.28, 0.52, 1;
    - linear gain: ε + (1 − ε) y / y_max, by default 0.1, 0.325, 0.55, 0.775, 1;
    - binary gain: 1 if y > y_max / 2, else ε, by default 0.1, 0.1, 0.1, 1, 1.

    Parameters
    ----------
    grade : array-like
        Grades y in [0, ``max_grade``].
    noise : float in [0, 1], default=0.1
        ε, the click noise.
    max_grade : float, default=4
        The best grade of the scale, which the documents at hand need not reach.
    gain : {'exponential', 'linear', 'binary'}, default='exponential'
        How relevance grows with the grade. Studies of personalised bias use the linear gain
        (Niu et al., equation 12); studies of selection bias use the binary gain, with which
        grades 3 and 4 of 4 are relevant (Joachims et al. 2017).

    Returns
    -------
    probability : ndarray of the shape of ``grade``

    Raises
    ------
    ValueError
        If a grade lies outside the scale, ``noise`` outside [0, 1], or ``gain`` is unknown.

    References
    ----------
    O. Chapelle, D. Metzler, Y. Zhang and P. Grinspan (2009). Expected reciprocal rank for graded
    relevance. CIKM. With the noise of Q. Ai, K. Bi, C. Luo, J. Guo and W. B. Croft (2018).
    Unbiased learning to rank with unbiased propensity estimation. SIGIR.

    Z. Niu, L. Mei, L. Yang, Z. Zhao, Q. Yan, J. Mao and J.-R. Wen. Addressing personalized bias
    for unbiased learning to rank.

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
    if gain not in ("exponential", "linear", "binary"):
        raise ValueError(f"gain must be 'exponential', 'linear' or 'binary', got {gain!r}.")
    bad = ~((grade >= 0) & (grade <= max_grade))
    if bad.any():
        raise ValueError(
            f"A grade is {grade[bad].flat[0]:g}; expected grades from 0 to max_grade="
            f"{max_grade:g}. Pass the largest grade of your scale as max_grade=."
        )
    if gain == "linear":
        return noise + (1 - noise) * grade / max_grade
    if gain == "binary":
        return np.where(grade > max_grade / 2, 1.0, noise)
    return noise + (1 - noise) * np.expm1(np.log(2) * grade) / np.expm1(np.log(2) * max_grade)


@dataclass(frozen=True, eq=False)
class PositionBasedUser(User):
    """A user who examines each position with a probability of its own.

    The user clicks what they examine and find relevant: P(click) = o_k r, with examination o_k
    at position k and relevance probability r. Both events are independent of each other and of
    the rest of the list. Position-based models assume exactly this, so that they are well
    specified on such a log.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        P(examined) at positions 1, 2, ... The string means :data:`EYE_TRACKING` (ten
        positions); a number η means the power law (1/k)^η at any depth. A curve that is given
        by position must reach as deep as the lists: nothing is assumed beyond its end.

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

    examination: ArrayLike = "eye-tracking"

    def __post_init__(self) -> None:
        curve = self._curve()
        if isinstance(curve, float):
            good = 0 <= curve < np.inf
        else:
            good = curve.ndim == 1 and are_probabilities(curve)
        if not good:
            raise ValueError(
                "examination must be 'eye-tracking', one probability in [0, 1] per position, or a "
                f"number of at least 0, the exponent of a power law; got {self.examination!r}."
            )

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) at positions 1, ..., ``n_positions``; see :meth:`User.examination_at`."""
        curve = self._curve()
        if isinstance(curve, float):
            return power_law_examination(n_positions, curve)
        return cut("The examination", curve, n_positions, "the exponent of a power law")

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) = o_k r at each position; see :meth:`User.click_probability`."""
        examination = self.examination_at(relevance_probability.shape[1])
        return pbm_click_probability(relevance_probability, examination)

    def _curve(self) -> float | Floats:
        """The exponent of the power law as a float, or the curve as an array."""
        if isinstance(self.examination, str):
            # Every other string becomes an array that the check refuses.
            known = self.examination == "eye-tracking"
            return np.array(EYE_TRACKING if known else [])
        if isinstance(self.examination, Real):
            return float(self.examination)
        return as_floats(self.examination)


@dataclass(frozen=True, eq=False)
class ContextualPositionBasedUser(PositionBasedUser):
    """A user whose examination of a position depends on the context of the impression.

    The context is what surrounds a result: the device, the kind of result page, a picture beside
    the text. Each of ``n_contexts`` contexts has a vector v, and position k is examined with
    probability o_k^max(w · v + 1, 0): in some contexts users look further down than in others.
    Relevance does not depend on the context.

    With this user the log of :func:`simulate_clicks` has a column ``context``, the context of
    each impression, and the bias factor is the pair of position and context.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        o_k, P(examined) by position in the neutral context w · v = 0; see
        :class:`PositionBasedUser`.
    n_contexts : int, default=5000
        Number of contexts, all equally likely.
    n_features : int, default=10
        Length of the vectors v and w.
    scale : float, default=0.35
        Standard deviation of the elements of v, which are normal with mean 0.
    eta : float, default=1.0
        The elements of w are uniform over [-eta, eta]; with 0 the context has no effect.
    assign : {'impression', 'document'}, default='impression'
        Whether each impression draws a context, or each document of a query draws one and keeps
        it, as in Chen et al. (2024). Then a document that keeps its position is shown under a
        single bias factor and links nothing.
    random_state : int or None, default=None
        Seed of v and w, which are drawn when the user is made. The ``random_state`` of
        :func:`simulate_clicks` decides which impression has which context.

    Attributes
    ----------
    context_vectors : ndarray of shape (n_contexts, n_features)
        v of each context.
    weights : ndarray of shape (n_features,)
        w.

    References
    ----------
    Z. Fang, A. Agarwal and T. Joachims (2019). Intervention harvesting for context-dependent
    examination-bias estimation. SIGIR.

    M. Chen, C. Liu, Z. Liu, Z. Li and J. Sun (2024). Identifiability matters: revealing the
    hidden recoverable condition in unbiased learning to rank. ICML. Appendix C.2.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import ContextualPositionBasedUser, simulate_clicks
    >>> user = ContextualPositionBasedUser(n_contexts=3, random_state=0)
    >>> user.examination_at(4)
    array([0.68, 0.61, 0.48, 0.34])
    >>> user.examination_table(4).round(2)
    array([[0.45, 0.36, 0.22, 0.11],
           [0.72, 0.65, 0.53, 0.39],
           [0.56, 0.47, 0.33, 0.2 ]])
    >>> documents = make_ltr(50, n_features=4, random_state=0)
    >>> X, clicks, truth = simulate_clicks(
    ...     documents, scores=documents["relevance"], user=user, n_sessions=100, random_state=0
    ... )
    >>> X.columns[:6].tolist()
    ['session', 'qid', 'doc', 'position', 'context', 'relevance']
    """

    n_contexts: int = 5_000
    n_features: int = 10
    scale: float = 0.35
    eta: float = 1.0
    assign: str = "impression"
    random_state: int | None = None
    context_vectors: Floats = field(init=False, repr=False)
    weights: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check()
        # Drawn here, once: without a seed, each look at them would find other vectors.
        of_vectors, of_weights = np.random.default_rng(self.random_state).spawn(2)
        vectors = of_vectors.normal(0, self.scale, (self.n_contexts, self.n_features))
        weights = of_weights.uniform(-self.eta, self.eta, self.n_features)
        object.__setattr__(self, "context_vectors", vectors)
        object.__setattr__(self, "weights", weights)

    def _check(self) -> None:
        for name in ("n_contexts", "n_features"):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and 1 <= int(value) < 2**31):
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        for name in ("scale", "eta"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 <= float(value) < np.inf):
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.")
        if self.assign not in ("impression", "document"):
            raise ValueError(f"assign must be 'impression' or 'document', got {self.assign!r}.")
        check_seed(self.random_state)

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) in each context, by position; see :meth:`User.examination_table`."""
        effect = self.context_vectors @ self.weights
        return contextual_examination(self.examination_at(n_positions), effect)

    def draw_contexts(self, shown: Ints, rng: np.random.Generator) -> Ints:
        """Draw the context of each impression; see :meth:`User.draw_contexts`."""
        if self.assign == "impression":
            return super().draw_contexts(shown, rng)
        n_documents = int(shown.max(initial=-1)) + 1
        of_document = rng.integers(self.n_contexts, size=n_documents + 1, dtype=np.int32)
        return of_document[shown]

    def click_probability(
        self, relevance_probability: Floats, context: Ints | None = None
    ) -> Floats:
        """P(click) at each position in its context; see :meth:`User.click_probability`.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
        context : ndarray of shape (n_sessions, n_positions), int, default=None
            Context of each impression. None is the neutral context everywhere.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
        """
        if context is None:
            return super().click_probability(relevance_probability)
        n_positions = relevance_probability.shape[1]
        examination = self.examination_table(n_positions)[context, np.arange(n_positions)]
        return pbm_click_probability(relevance_probability, examination)

    def click(
        self,
        relevance_probability: Floats,
        rng: np.random.Generator,
        context: Ints | None = None,
    ) -> Bools:
        """Draw clicks with the probabilities of :meth:`click_probability`."""
        return draw_clicks(self.click_probability(relevance_probability, context), rng)
