"""What a simulation asks of a user; users who examine each position with its own probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._base._sklearn import Interval, StrOptions, validate_parameter_constraints
from .._base._typing import Bools, Floats, Ints
from .._models._browsing import (
    EYE_TRACKING,
    contextual_examination,
    pbm_click_probability,
    power_law_examination,
)


class _Range(Interval):
    """An interval without True and False, which scikit-learn takes for 1 and 0."""

    def is_satisfied_by(self, val: object) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)


#: Constraints that parameters of several users and policies have.
PROBABILITY = [_Range(Real, 0, 1, closed="both")]
NOT_NEGATIVE = [_Range(Real, 0, np.inf, closed="left")]
POSITIVE = [_Range(Real, 0, np.inf, closed="neither")]
COUNT = [_Range(Integral, 1, 2**31, closed="left")]
_SEED = [Integral, None]
#: Curves of examination that have a name.
_CURVES = {"eye-tracking": EYE_TRACKING}
#: Constraints of the parameters that turn grades into probabilities.
_OF_GRADES = {
    "noise": PROBABILITY,
    "max_grade": POSITIVE,
    "gain": [StrOptions({"exponential", "linear", "binary"})],
}


Checked = TypeVar("Checked")


class Constrained:
    """Mixin of dataclasses that refuse parameters outside the constraints of their class."""

    _constraints: ClassVar[dict[str, list[Any]]] = {}
    #: Parameters that may be arrays: whether a value is valid, and what it must be.
    _arrays: ClassVar[dict[str, tuple[Callable[[Any], bool], str]]] = {}

    def __post_init__(self) -> None:
        validate_parameter_constraints(self._constraints, vars(self), type(self).__name__)
        for name, (is_valid, expected) in self._arrays.items():
            given = getattr(self, name)
            if not is_valid(given):
                raise ValueError(f"{name} must be {expected}; got {given!r}.")


def as_floats(given: object, named: Mapping[Any, ArrayLike] = MappingProxyType({})) -> Floats:
    """The numbers as an array, or the array of that name or number; an empty array, which every
    check refuses, if they are none."""
    if isinstance(given, str | Integral) and given in named:
        given = named[given]
    try:
        # A text without a name is no number, even if it reads like one.
        return np.array(() if isinstance(given, str) else given, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def are_probabilities(values: Floats) -> bool:
    """True if there are values and all lie in [0, 1]."""
    inside = (values >= 0) & (values <= 1)
    return bool(values.size) and bool(inside.all())


def is_exponent_or_curve(values: Floats) -> bool:
    """True for one number of at least 0, or one probability per position."""
    if not values.ndim:
        return bool(0 <= values < np.inf)
    return values.ndim == 1 and are_probabilities(values)


class User(Constrained, ABC):
    """Base class of users: what is clicked, given what a page shows.

    A user of your own derives from it and writes :meth:`examination_at` and
    :meth:`click_probability`. Every row of a session is then clicked independently of the others,
    with the probability that ``click_probability`` states. If the clicks of a session depend on
    each other, override :meth:`click` as well. ``click_probability`` is then the probability
    before any click of the session is known. :func:`skultr.testing.check_user` checks the result.

    Everything else is optional:

    - *Another judgement than relevance*: :meth:`read_grades`, see :class:`ClickMatrixUser`.
    - *What the truth should say*: :meth:`truth_at`, :meth:`document_truth`, see
      :class:`DBNUser`.
    - *Pages that end early matter*: ``marks_empty``, see :class:`CarouselUser`.
    - *Contexts*: ``context_vectors`` and :meth:`examination_table`; also :meth:`draw_contexts` if
      contexts are not equally likely. ``click`` and ``click_probability`` then take the context of
      each impression as one more argument, see :class:`ContextualPositionBasedUser`.
    - *Several users in one*: ``user_weights`` and :meth:`examination_table`; also
      :meth:`draw_query_weights` if users ask different queries. ``click`` and
      ``click_probability`` then take the user of each session as one more argument, see
      :class:`UserPopulation`.

    Attributes
    ----------
    marks_empty : bool
        Set it to True on the class to get -1 instead of 0 where a page shows nothing.
    context_vectors : ndarray of shape (n_contexts, n_context_features) or None
        The contexts; None (the default) without contexts.
    user_weights : ndarray of shape (n_users,) or None
        P(user), which sums to 1; None (the default) where all sessions have the same user.

    Examples
    --------
    A user who looks at the first two positions only:

    >>> import numpy as np
    >>> from skultr.simulation import User
    >>> class HastyUser(User):
    ...     def examination_at(self, n_positions):
    ...         return np.where(np.arange(n_positions) < 2, 1.0, 0.0)
    ...
    ...     def click_probability(self, relevance_probability):
    ...         n_positions = relevance_probability.shape[1]
    ...         return relevance_probability * self.examination_at(n_positions)
    >>> clicks = HastyUser().click(np.full((100_000, 3), 0.5), np.random.default_rng(0))
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.5, 0.5, 0.0]
    """

    marks_empty: ClassVar[bool] = False
    context_vectors: Floats | None = None
    user_weights: Floats | None = None

    @abstractmethod
    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) at positions 1, ..., ``n_positions``.

        If examination depends on more than the position, the docstring of the user says which
        curve this is: that of the neutral context, the mean over users, or that of a page without
        clicks.

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

    @abstractmethod
    def click_probability(self, relevance_probability: NDArray[Any]) -> Floats:
        """P(click) at each position before any click of the session is known.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(found relevant | examined) of what each position shows, or what :meth:`read_grades`
            returned, if the user has it. Positions that show nothing have 0, or -1 with
            ``marks_empty`` or ``read_grades``. They are the last positions of a session.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
            In [0, 1]. Its value where nothing is shown is not read.
        """

    def click(self, relevance_probability: NDArray[Any], rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            As for :meth:`click_probability`.
        rng : numpy.random.Generator
            The only source of randomness.

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
            Their value where nothing is shown is not read.
        """
        return draw_clicks(self.click_probability(relevance_probability), rng)

    def read_grades(self, grade: Floats) -> NDArray[Any] | None:
        """Values by which this user judges documents, in place of the relevance probability.

        Parameters
        ----------
        grade : ndarray of shape (n_documents,)
            Column ``relevance`` of the documents.

        Returns
        -------
        judged : ndarray of shape (n_documents,) or None
            None (the default): the user judges by the relevance probability.
        """
        return None

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """Entries for the truth of :func:`simulate_clicks` about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : mapping of str to object
            Empty by default.
        """
        return {}

    def document_truth(self, relevance_probability: Floats) -> Mapping[str, Floats]:
        """Entries for the truth of :func:`simulate_clicks` about each document.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_documents,)

        Returns
        -------
        truth : mapping of str to ndarray of shape (n_documents,)
            Empty by default.
        """
        return {}

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) in each context, or by each user, at positions 1, ..., ``n_positions``.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_contexts or n_users, n_positions)
        """
        raise NotImplementedError(
            f"{type(self).__name__} has contexts or several users, but no examination_table: "
            "write examination_table(n_positions), one row per context or user."
        )

    def draw_contexts(self, shown: Ints, rng: np.random.Generator) -> Ints:
        """Draw the context of each impression; called once for all sessions of a log.

        Parameters
        ----------
        shown : ndarray of shape (n_sessions, n_positions), int
            Row of the document at each position, -1 where there is none.
        rng : numpy.random.Generator

        Returns
        -------
        context : ndarray of shape (n_sessions, n_positions), int
            Row of ``context_vectors``, by default uniformly distributed. Positions
            where nothing is shown have one too.
        """
        assert self.context_vectors is not None
        return rng.integers(len(self.context_vectors), size=shown.shape, dtype=np.int32)

    def draw_query_weights(self, query_weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw which queries each user asks: P(query | user).

        Parameters
        ----------
        query_weights : ndarray of shape (n_queries,)
            P(query) if all users asked alike.
        rng : numpy.random.Generator

        Returns
        -------
        query_weights : ndarray of shape (n_users, n_queries)
            Each row sums to 1. By default all users ask alike.
        """
        assert self.user_weights is not None
        return np.tile(query_weights, (len(self.user_weights), 1))


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
        If a grade lies outside the scale, if ``noise`` lies outside [0, 1], or if ``gain`` is
        unknown.

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
    scale = {"noise": noise, "max_grade": max_grade, "gain": gain}
    validate_parameter_constraints(_OF_GRADES, scale, "relevance_probability")
    # A grade above the largest would be a probability above 1; NaN is in no range.
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
    # 2^y - 1, exact for small y.
    gains = np.expm1(np.log(2) * grade)
    largest = np.expm1(np.log(2) * max_grade)
    return noise + (1 - noise) * gains / largest


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
    _arrays = {
        "examination": (
            lambda given: is_exponent_or_curve(as_floats(given, _CURVES)),
            "'eye-tracking', one probability in [0, 1] per position, or a number of at least 0, "
            "the exponent of a power law",
        )
    }

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) at positions 1, ..., ``n_positions``; see :meth:`User.examination_at`."""
        curve = as_floats(self.examination, _CURVES)
        if not curve.ndim:
            return power_law_examination(n_positions, curve)
        return cut("The examination", curve, n_positions, "the exponent of a power law")

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) = o_k r at each position; see :meth:`User.click_probability`."""
        examination = self.examination_at(relevance_probability.shape[1])
        return pbm_click_probability(relevance_probability, examination)


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
        it, as in Chen et al. (2024). With 'document', a document that keeps its position is shown
        under a single bias factor, and links nothing.
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
    _constraints = {
        "n_contexts": COUNT,
        "n_features": COUNT,
        "scale": NOT_NEGATIVE,
        "eta": NOT_NEGATIVE,
        "assign": [StrOptions({"impression", "document"})],
        "random_state": _SEED,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        # Drawn here, once: without a seed, each look at them would find other vectors.
        vectors_rng, weights_rng = np.random.default_rng(self.random_state).spawn(2)
        vectors = vectors_rng.normal(0, self.scale, (self.n_contexts, self.n_features))
        weights = weights_rng.uniform(-self.eta, self.eta, self.n_features)
        object.__setattr__(self, "context_vectors", vectors)
        object.__setattr__(self, "weights", weights)

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) in each context, by position; see :meth:`User.examination_table`."""
        # w' x of each context, which changes the exponent of the curve.
        effect = self.context_vectors @ self.weights
        return contextual_examination(self.examination_at(n_positions), effect)

    def draw_contexts(self, shown: Ints, rng: np.random.Generator) -> Ints:
        """Draw the context of each impression; see :meth:`User.draw_contexts`."""
        if self.assign == "impression":
            return super().draw_contexts(shown, rng)
        n_documents = int(shown.max(initial=-1)) + 1
        # One more, for the empty places, -1.
        # One draw per document, the same in all of its impressions.
        by_document = rng.integers(self.n_contexts, size=n_documents + 1, dtype=np.int32)
        return by_document[shown]

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
        # Examination by context and position.
        table = self.examination_table(n_positions)
        examination = table[context, np.arange(n_positions)]
        return pbm_click_probability(relevance_probability, examination)

    def click(
        self,
        relevance_probability: Floats,
        rng: np.random.Generator,
        context: Ints | None = None,
    ) -> Bools:
        """Draw clicks with the probabilities of :meth:`click_probability`."""
        return draw_clicks(self.click_probability(relevance_probability, context), rng)


#: Exponents of the power laws of Niu et al., sections 4.1 and 4.4, by number of users.
_OF_THE_PAPER = {
    5: (2.5, 2, 1, 0.8, 0),
    10: (2.5, 2.0, 1.8, 1.5, 1.2, 1.0, 0.8, 0.5, 0.2, 0),
    20: (
        *(2.5, 2.4, 2.2, 2, 1.9, 1.8, 1.6, 1.5, 1.4, 1.2),
        *(1.1, 1, 0.9, 0.8, 0.6, 0.5, 0.4, 0.2, 0.1, 0),
    ),
}


@dataclass(frozen=True, eq=False)
class UserPopulation(User):
    """Position-based users, each with an examination curve and a query distribution.

    If users ask different queries *and* look at result pages differently, examination is
    confounded with the query. One examination curve for all users, however well it is known, then
    leaves a bias in the relevance of each query (personalised bias). A user is one person, or a
    cluster of people who behave alike. Relevance is the same for all users.

    With this user the log of :func:`simulate_clicks` has the role column ``user``, numbered from
    0. The truth has ``examination_table``, ``user_weights`` and ``query_weights``, and its
    ``examination`` is the mean curve.

    Parameters
    ----------
    etas : {5, 10, 20} or array-like of shape (n_users,), default=10
        Exponents: user u examines position k with probability (1/k)^η_u. A number of users means
        the exponents of the paper, such as 2.5, 2, 1, 0.8, 0 for 5 users.
    decay : float, default=1.25
        Ratio of the expected sessions of a user to those of the next user. With the exponents of
        the paper, users who hardly look beyond the top have most sessions. With 1 all users have
        equally many.
    never_asked : float in [0, 1) or None, default=0.5
        Share of the queries that a user never asks, drawn for each user and rounded down. The
        weights of the other queries are uniform over (0, 1], times the ``query_weights`` of
        :func:`simulate_clicks`. None: all users ask alike, by ``query_weights`` alone.
    examination : array-like of shape (n_users, n_positions), default=None
        P(examined) by user and position; replaces ``etas``.
    random_state : int, default=None
        Seed of the queries that each user asks. By default the ``random_state`` of
        :func:`simulate_clicks` decides; pass an int to keep the same users in several logs.

    Attributes
    ----------
    user_weights : ndarray of shape (n_users,)
        P(user), the expected share of each user in the sessions.

    References
    ----------
    Z. Niu, L. Mei, L. Yang, Z. Zhao, Q. Yan, J. Mao and J.-R. Wen. Addressing personalized bias
    for unbiased learning to rank. Section 4.1, equations 10 and 11.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import UserPopulation, simulate_clicks
    >>> users = UserPopulation(5)
    >>> users.user_weights.round(2)
    array([0.3 , 0.24, 0.19, 0.15, 0.12])
    >>> users.examination_table(3).round(2)
    array([[1.  , 0.18, 0.06],
           [1.  , 0.25, 0.11],
           [1.  , 0.5 , 0.33],
           [1.  , 0.57, 0.42],
           [1.  , 1.  , 1.  ]])
    >>> documents = make_ltr(50, n_features=4, random_state=0)
    >>> X, clicks, truth = simulate_clicks(
    ...     documents, scores=documents["relevance"], user=users, n_sessions=100, random_state=0
    ... )
    >>> X.columns[:5].tolist()
    ['session', 'user', 'qid', 'doc', 'position']
    >>> truth.query_weights.shape, (truth.query_weights == 0).sum(axis=1).tolist()
    ((5, 50), [25, 25, 25, 25, 25])

    The examination probability of each impression, for an estimator that may know it:

    >>> propensity = truth.examination_table[X["user"], X["position"] - 1]
    """

    etas: ArrayLike = 10
    decay: float = 1.25
    never_asked: float | None = 0.5
    examination: ArrayLike | None = None
    random_state: int | None = None
    user_weights: Floats = field(init=False, repr=False)
    _constraints = {
        "decay": POSITIVE,
        "never_asked": [Interval(Real, 0, 1, closed="left"), None],
        "random_state": _SEED,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.examination is None:
            self._check_etas()
        else:
            self._check_examination()
        n_users = len(self._given())
        # Relative to the most active user, so that nothing overflows with thousands of users.
        most_active = 0 if self.decay >= 1 else n_users - 1
        exponent = np.arange(n_users) - most_active
        weights = float(self.decay) ** -exponent
        object.__setattr__(self, "user_weights", weights / weights.sum())

    def _check_etas(self) -> None:
        given = self._given()
        # A single number is refused unless it means a set of exponents of the paper.
        is_list = given.ndim == 1 and len(given) > 0
        if not is_list or not ((given >= 0) & (given < np.inf)).all():
            raise ValueError(
                "etas must be 5, 10 or 20, the users of the paper, or one exponent of at "
                f"least 0 per user; got {self.etas!r}."
            )

    def _check_examination(self) -> None:
        given = self._given()
        is_table = given.ndim == 2
        if not is_table or not are_probabilities(given):
            other_values = " with other values" if is_table and given.size else ""
            raise ValueError(
                "examination must be a table of shape (n_users, n_positions) of probabilities in "
                f"[0, 1]; got the shape {given.shape}{other_values}."
            )

    def _given(self) -> Floats:
        """The examination by user, or else the exponents."""
        if self.examination is not None:
            return as_floats(self.examination)
        return as_floats(self.etas, _OF_THE_PAPER)

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) by each user and position; see :meth:`User.examination_table`."""
        if self.examination is None:
            return power_law_examination(n_positions, self._given()[:, None])
        return cut(
            "The examination", self._given(), n_positions, "etas=, the exponents of power laws"
        )

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position, the mean over the sessions; see :meth:`User.examination_at`."""
        return self.user_weights @ self.examination_table(n_positions)

    def draw_query_weights(self, query_weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw which queries each user asks; see :meth:`User.draw_query_weights`.

        ``rng`` is not used if the population has a ``random_state``.
        """
        if self.never_asked is None:
            return super().draw_query_weights(query_weights, rng)
        if self.random_state is not None:
            rng = np.random.default_rng(self.random_state)
        # A query that nobody asks must not count among the queries that a user never asks.
        asked = np.flatnonzero(query_weights)
        # In (0, 1]: whoever asks a query asks it sometimes.
        shape = (len(self.user_weights), len(asked))
        # How often each user asks each query, before some are left out.
        weights = 1 - rng.random(shape)
        n_left_out = int(self.never_asked * len(asked))
        # Some queries of each user, drawn without replacement.
        order = rng.random(weights.shape).argsort(axis=1)
        left_out = order[:, :n_left_out]
        np.put_along_axis(weights, left_out, 0.0, axis=1)
        table = np.zeros((len(weights), len(query_weights)))
        table[:, asked] = weights * query_weights[asked]
        return table / table.sum(axis=1, keepdims=True)

    def click_probability(self, relevance_probability: Floats, user: Ints | None = None) -> Floats:
        """P(click) at each position of a user's page; see :meth:`User.click_probability`.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
        user : ndarray of shape (n_sessions,), int, default=None
            User of each session, from 0. None: the mean over users.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
        """
        n_positions = relevance_probability.shape[1]
        if user is None:
            examination = self.examination_at(n_positions)
        else:
            examination = self.examination_table(n_positions)[user]
        return pbm_click_probability(relevance_probability, examination)

    def click(
        self,
        relevance_probability: Floats,
        rng: np.random.Generator,
        user: Ints | None = None,
    ) -> Bools:
        """Draw clicks with the probabilities of :meth:`click_probability`.

        Without ``user`` each session draws its user by P(user).
        """
        if user is None:
            n_users = len(self.user_weights)
            user = rng.choice(n_users, size=len(relevance_probability), p=self.user_weights)
        return draw_clicks(self.click_probability(relevance_probability, user), rng)


def draw_sessions(
    user_weights: Floats, query_weights: Floats, n_sessions: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw the user of each session by P(user), then its query by P(query | user)."""
    n_users, n_queries = query_weights.shape
    # Both draws at once: the user is the whole part of a number, and the query its fraction.
    user = rng.choice(n_users, size=n_sessions, p=user_weights)
    cumulated = query_weights.cumsum(axis=1)
    cumulated = cumulated / cumulated[:, -1:]
    # The rows of the table one after another increase: user u has the interval [u, u + 1).
    ends = (cumulated + np.arange(n_users)[:, None]).ravel()
    # Rounding must not reach the interval of the next user.
    drawn = user + rng.random(n_sessions)
    drawn = np.minimum(drawn, np.nextafter(user + 1.0, 0))
    place = ends.searchsorted(drawn, side="right")
    query = place - user * n_queries
    return user.astype(np.int32), query.astype(np.int32)


def cut(name: str, values: Floats, n_positions: int, instead: str = "one number") -> Floats:
    """The values of the first positions (last axis); an error if fewer are known."""
    known = values.shape[-1]
    if n_positions > known:
        raise ValueError(
            f"{name} is given for {known} positions, but the lists have n_positions="
            f"{n_positions}. Pass a value for each position, or {instead}; or show fewer "
            "positions."
        )
    return values[..., :n_positions]


def curve_at(name: str, given: object, n_positions: int, default: object = None) -> Floats:
    """One value per position, from a curve, by default that one, or one number for all."""
    curve = as_floats(default if given is None else given)
    if not curve.ndim:
        return np.full(n_positions, curve)
    return cut(name, curve, n_positions)


def draw_clicks(probability: Floats, rng: np.random.Generator) -> Bools:
    """Independent clicks with the given probabilities."""
    return rng.random(probability.shape) < probability


def checked_instance(name: str, value: object, base: type[Checked], default: Checked) -> Checked:
    """The policy or user, by default the given one; refused unless it derives from its base."""
    if value is None:
        return default
    if isinstance(value, base):
        return value
    # A class in place of its instance is the usual slip.
    found = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TypeError(
        f"{name} is {found}; expected an instance of a class derived from "
        f"skultr.simulation.{base.__name__}, which has the optional methods. "
        f"Write class Mine({base.__name__}): ... and pass {name}=Mine()."
    )
