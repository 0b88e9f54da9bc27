"""The production ranker's scores, and logging policies: one ranker, experiments, shared
traffic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils import check_random_state

from .._base._sklearn import HasMethods, Interval, StrOptions, seeded_clone, validate_params
from .._base._typing import Floats, Frame, Ints, RandomState
from .._log._roles import feature_columns, read_features, read_role
from .._log._segments import encode, offsets_from_sorted, pad, sort_in_segment
from ._users import POSITIVE, PROBABILITY, Constrained, as_floats

# Memory must not grow with the number of sessions:
#: random numbers that are drawn at a time,
_DRAWS_AT_ONCE = 2**20
#: and pages that are shuffled or clicked at a time.
PAGES_AT_ONCE = 65_536


# The production ranker ----------------------------------------------------------------
@validate_params(
    {
        "fraction": [Interval(Real, 0, 1, closed="right")],
        "estimator": [HasMethods(["fit", "predict"]), StrOptions({"lambdamart"}), None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def production_scores(
    documents: Frame,
    *,
    fraction: float = 0.01,
    estimator: BaseEstimator | str | None = None,
    candidates: Frame | None = None,
    random_state: RandomState = None,
) -> Floats:
    """Scores of a production ranker, trained on the labels of a few queries.

    They stand for the ranker that served the users while the log was written: clearly better than
    chance, and clearly worse than a ranker that learns from the clicks can be.

    The ranker is better on the queries that it was trained on. With 1 % of the queries that does
    not matter for a log. But do not report the quality of these scores on queries that include the
    training queries. If the labels of your test queries must not influence the log, leave these
    queries out of ``documents``.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        Roles ``qid`` and ``relevance``; every column without a role is a feature.
    fraction : float in (0, 1], default=0.01
        Share of the queries, drawn at random, whose labels the ranker is trained on. At least
        one query is drawn, and more until one of them has two different grades.
    estimator : regressor, lightgbm.LGBMRanker or 'lambdamart', default=None
        Ranker whose clone is fitted to the grades. The default is ridge regression on quantiles
        of the features, which are robust to the tails of raw counts. ``'lambdamart'`` is
        LightGBM's ranker with 100 trees of 31 leaves and learning rate 0.1, in one thread. It
        needs whole grades, and its scores have no unit.
    candidates : frame with the same features, default=None
        Documents to score instead of ``documents``, such as those of held-out queries.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    scores : ndarray of shape (n_documents,) or (n_candidates,)
        Higher is ranked higher. Unit, with the default estimator: grades.

    Raises
    ------
    ValueError
        If a role is missing, there are no features, or no query has two different grades.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import production_scores
    >>> documents = make_ltr(200, random_state=0)
    >>> scores = production_scores(documents, fraction=0.05, random_state=0)
    >>> scores.shape
    (4000,)
    """
    random_state = check_random_state(random_state)
    relevance = required(documents, "relevance")
    query = encode(required(documents, "qid"))[0]
    if not feature_columns(documents):
        raise ValueError(
            "documents has no feature column to train a production ranker on. Add the features, "
            "or pass scores= to simulate_clicks."
        )
    features = read_features(documents)
    chosen = _draw_training_queries(query, relevance, fraction, random_state)
    rows = np.flatnonzero(np.isin(query, chosen))
    # Trained on the rows of few queries, so that it is not perfect.
    learner = seeded_clone(_production_estimator(estimator, len(rows)), random_state)
    _fit_estimator(learner, features, relevance, query, rows)
    # Documents that were not ranked for training may be scored, too.
    scored = features if candidates is None else read_features(candidates)
    return np.asarray(learner.predict(scored), dtype=np.float64)


@validate_params(
    {
        "scores": ["array-like"],
        "relevance": ["array-like"],
        "strength": [Interval(Real, 0, None, closed="left")],
        "correlation": [Interval(Real, -1, 1, closed="both")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def hidden_signal_scores(
    scores: ArrayLike,
    relevance: ArrayLike,
    *,
    strength: float = 1.0,
    correlation: float = 0.5,
    random_state: RandomState = None,
) -> Floats:
    """Scores of a ranker that also used a signal which is not among the features.

    Shown documents then differ from others in ways that the features do not explain. This is when
    selection bias does harm.

    Parameters
    ----------
    scores : array-like of shape (n_documents,)
        Scores from the features, such as :func:`production_scores`.
    relevance : array-like of shape (n_documents,)
        Grades.
    strength : float, default=1.0
        Standard deviation of the signal, in standard deviations of the scores; 0 ranks by the
        scores alone.
    correlation : float in [-1, 1], default=0.5
        Correlation of the signal with relevance over all documents.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    scores : ndarray of shape (n_documents,)
        Unit: standard deviations of ``scores``.

    Raises
    ------
    ValueError
        If the lengths differ, or the scores or grades are all the same.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import hidden_signal_scores, production_scores
    >>> documents = make_ltr(200, random_state=0)
    >>> scores = production_scores(documents, random_state=0)
    >>> hidden_signal_scores(scores, documents["relevance"], random_state=0).shape
    (4000,)
    """
    score = _standardized("scores", scores, np.shape(relevance))
    grade = _standardized("relevance", relevance, np.shape(relevance))
    # What the signal holds beside relevance.
    noise = check_random_state(random_state).standard_normal(len(score))
    # A signal of variance 1 that has this correlation with relevance.
    signal = correlation * grade + np.sqrt(1 - correlation**2) * noise
    return score + strength * signal


def _standardized(name, given, shape):
    """The column with mean 0 and variance 1; refused unless it is flat, of this shape, and
    varies."""
    column = np.asarray(given, dtype=float)
    spread = np.ptp(column) if column.size else 0.0
    # A constant has no unit to bring the scores to.
    if column.ndim != 1 or column.shape != shape or not spread > 0:
        raise ValueError(
            f"{name} has the shape {column.shape} and the range {spread:g}; expected one "
            f"number per document, {shape}, that are not all the same."
        )
    return (column - column.mean()) / column.std()


@validate_params(
    {
        "variance": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def noisy_oracle_scores(
    documents: Frame,
    *,
    variance: float = 0.5,
    random_state: RandomState = None,
) -> Floats:
    """Scores of a nearly perfect production ranker: the grades plus Gaussian noise.

    Each document draws its noise once, so that the ranker is wrong about the same documents in
    every session. On its log, position and relevance nearly coincide: the hardest case for
    separating relevance from examination.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        Role ``relevance``.
    variance : float, default=0.5
        Variance of the noise, in squared grades.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    scores : ndarray of shape (n_documents,)
        Unit: grades.

    Raises
    ------
    ValueError
        If there is no ``relevance``, or a grade is missing.

    References
    ----------
    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.1.3.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import noisy_oracle_scores
    >>> documents = make_ltr(200, random_state=0)
    >>> scores = noisy_oracle_scores(documents, random_state=0)
    >>> round(float((scores - documents["relevance"]).var()), 1)
    0.5
    """
    relevance = required(documents, "relevance")
    noise = check_random_state(random_state).normal(size=len(relevance))
    return relevance + np.sqrt(variance) * noise


def required(documents: Frame, role: str) -> NDArray[Any]:
    """A role of documents, which they must have; each grade a number of at least 0."""
    values = read_role(documents, role)
    if values is None:
        raise ValueError(
            f"documents has no column {role!r}; expected the roles 'qid', 'doc' and 'relevance', "
            "beside any features, one row per query-document pair. Rename the one that holds it."
        )
    if not len(values):
        raise ValueError("documents is empty; expected at least one row.")
    if role == "relevance":
        _refuse_what_is_no_grade(values)
    return values


def _refuse_what_is_no_grade(values):
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"relevance is missing or no grade in {int(bad.sum())} of {len(bad)} rows, first "
            f"{values[row]:g} in row {row}; expected a grade of at least 0 in every row. Drop "
            "the documents that were not annotated."
        )


def _draw_training_queries(query, relevance, fraction, random_state):
    """Random queries, as many as needed for one with documents of two grades."""
    # A query of one grade has no pair to learn an order from.
    n_grades = pd.Series(relevance).groupby(query).nunique().to_numpy()
    # In random order, at least until one has something to rank.
    order = random_state.permutation(len(n_grades))
    # Places of queries with an order, of which the first bounds the draw from below.
    two_grades = np.flatnonzero(n_grades[order] > 1)
    if not len(two_grades):
        raise ValueError(
            "No query has documents of two different grades: there is nothing to rank. Expected "
            "graded documents, or pass scores= to simulate_clicks."
        )
    n_needed = two_grades[0] + 1
    n_wanted = round(fraction * len(order))
    return order[: max(n_wanted, n_needed)]


def _production_estimator(estimator, n_rows):
    """The learner that was asked for; by default ridge regression on quantiles of features."""
    if estimator is None:
        # Quantiles, because features of rankings have heavy tails; more than rows there are none.
        quantiles = QuantileTransformer(n_quantiles=min(n_rows, 100), subsample=None)
        return make_pipeline(quantiles, SimpleImputer(), Ridge(alpha=10.0))
    if isinstance(estimator, str):
        return LGBMRanker(
            n_estimators=100, num_leaves=31, learning_rate=0.1, n_jobs=1, verbosity=-1
        )
    return estimator


def _fit_estimator(estimator, features, relevance, query, rows):
    if not isinstance(estimator, LGBMRanker):
        estimator.fit(features.iloc[rows], relevance[rows])
        return
    # LightGBM wants queries in one block.
    rows = rows[np.argsort(query[rows], kind="stable")]
    group = np.diff(offsets_from_sorted(query[rows]))
    estimator.fit(features.iloc[rows], relevance[rows].astype(int), group=group)


# Policies -----------------------------------------------------------------------------
class Policy(Constrained, ABC):
    """Base class of logging policies: who ranked the documents that the users of a log saw.

    A policy of your own derives from it and writes :meth:`rank`. One that experiments overrides
    :meth:`rank_with_arms` as well, which also says what was left to chance.

    Attributes
    ----------
    several_rankers : bool
        Set it to True on the class if ``rank`` takes scores of shape (n_documents, n_rankers),
        one column per ranker, as :class:`MixturePolicy` does.

    Examples
    --------
    A policy that shows the worst documents first:

    >>> import numpy as np
    >>> from skultr.simulation import DeterministicPolicy, Policy
    >>> class WorstFirst(Policy):
    ...     def rank(self, scores, offsets, query, n_positions, rng):
    ...         return DeterministicPolicy().rank(-scores, offsets, query, n_positions, rng)
    >>> scores, offsets = np.array([0.1, 0.9, 0.5, 0.2]), np.array([0, 3, 4])
    >>> WorstFirst().rank(scores, offsets, np.array([0, 1]), 2, np.random.default_rng(0))
    array([[ 0,  2],
           [ 3, -1]], dtype=int32)
    """

    several_rankers: ClassVar[bool] = False

    @abstractmethod
    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows.

        Parameters
        ----------
        scores : ndarray of shape (n_documents,)
            Scores of the production ranker, query by query. Of shape (n_documents, n_rankers) if
            ``several_rankers``.
        offsets : ndarray of shape (n_queries + 1,)
            Query q owns the rows ``offsets[q]`` to ``offsets[q + 1] - 1``.
        query : ndarray of shape (n_sessions,), int
            Query of each session, from 0.
        n_positions : int
        rng : numpy.random.Generator
            The only source of randomness.

        Returns
        -------
        rows : ndarray of shape (n_sessions, n_positions), int
            -1 behind the end of a list that is shorter.
        """

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.floating[Any]] | None]:
        """Rows of the documents that each session shows, and the arm of each randomised row.

        Parameters
        ----------
        scores, offsets, query, n_positions, rng
            As for :meth:`rank`.

        Returns
        -------
        rows : ndarray of shape (n_sessions, n_positions), int
            As from :meth:`rank`.
        arm : ndarray of shape (n_sessions, n_positions), float, or None
            Rows of a session with the same number exchanged their documents at random. NaN means
            that nothing was left to chance. None (the default) means no experiment.
        """
        return self.rank(scores, offsets, query, n_positions, rng), None


@dataclass(frozen=True)
class DeterministicPolicy(Policy):
    """Every session of a query shows the same list: documents by falling score.

    Ties keep the order of the rows. Such a log confounds position and relevance: each document
    is shown at one position only.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import DeterministicPolicy
    >>> scores, offsets = np.array([0.1, 0.9, 0.5, 0.2]), np.array([0, 3, 4])
    >>> DeterministicPolicy().rank(scores, offsets, np.array([0, 1, 0]), 2)
    array([[ 1,  2],
           [ 3, -1],
           [ 1,  2]], dtype=int32)
    """

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator | None = None,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        lengths = np.diff(offsets)
        code = np.repeat(np.arange(len(lengths)), lengths)
        order = sort_in_segment(code, scores).astype(np.int32)
        # The list of each query, where the last value fills the places behind its end.
        order = np.append(order, np.int32(-1))
        # Sorted once for each query, and looked up for each session.
        lists = order[pad(offsets, n_positions)]
        return lists[query]


@dataclass(frozen=True)
class PlackettLucePolicy(Policy):
    """Every session draws its ranking; documents with higher scores are more likely at the top.

    The document at each position is drawn from those that remain, with probability proportional
    to exp(score / temperature) (Plackett 1975; Luce 1959). Sorting by score / temperature +
    Gumbel noise has exactly this distribution (Yellott 1977).

    Parameters
    ----------
    temperature : float, default=0.1
        In units of the scores, which are not scaled; those of :func:`production_scores` are
        grades. Near 0 the policy is deterministic (for 0 use :class:`DeterministicPolicy`), with
        large values it is uniform.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import PlackettLucePolicy
    >>> policy = PlackettLucePolicy(temperature=1.0)
    >>> scores, offsets = np.log([6.0, 3.0, 1.0]), np.array([0, 3])
    >>> sessions = np.zeros(100_000, dtype=int)
    >>> rows = policy.rank(scores, offsets, sessions, 2, np.random.default_rng(0))
    >>> [round(float(np.mean(rows[:, 0] == row)), 2) for row in range(3)]
    [0.6, 0.3, 0.1]
    """

    temperature: float = 0.1
    _constraints = {"temperature": POSITIVE}

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return _draw_rankings(scores / self.temperature, offsets, query, n_positions, rng)


@dataclass(frozen=True)
class UniformPolicy(Policy):
    """Every session draws its documents and their order uniformly at random.

    The log is that of a randomised experiment: position and relevance are independent.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import UniformPolicy
    >>> sessions = np.zeros(3, dtype=int)
    >>> rng = np.random.default_rng(0)
    >>> UniformPolicy().rank(np.zeros(4), np.array([0, 4]), sessions, 4, rng).shape
    (3, 4)
    """

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return _draw_rankings(np.zeros(len(scores)), offsets, query, n_positions, rng)


def _draw_rankings(utilities, offsets, query, n_positions, rng):
    """Plackett-Luce rankings, drawn in chunks, longest lists first to need little padding."""
    rows = np.full((len(query), n_positions), -1, dtype=np.int32)
    lengths = np.diff(offsets)[query]
    # A rectangle is as wide as its longest list: those of about one length come together.
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        # The longest list of those that are left.
        width = int(lengths[order[start]])
        if not width:
            break
        sessions = order[start : start + max(1, _DRAWS_AT_ONCE // width)]
        top = _race(utilities, offsets[query[sessions]], lengths[sessions], n_positions, rng)
        rows[sessions, : top.shape[1]] = top
        start += len(sessions)
    return rows


def _race(utilities, first, lengths, n_positions, rng):
    """Rows of the first ``n_positions`` documents of each session, in order of arrival.

    Document i arrives at T_i ~ Exp(rate exp(u_i)), and is first with the probability of
    Plackett-Luce, exp(u_i) / sum_j exp(u_j). log T_i = log E_i - u_i with E_i ~ Exp(1).
    """
    # The documents of each session, in a rectangle.
    # Places behind the end of a list never arrive.
    column = np.arange(lengths.max())
    inside = column < lengths[:, None]
    rows = np.where(inside, first[:, None] + column, 0)
    draw = rng.standard_exponential(rows.shape)
    with np.errstate(divide="ignore"):  # a draw of exactly 0 arrives at -inf
        arrival = np.log(draw) - utilities[rows]
    arrival[~inside] = np.inf
    # Whoever arrives first stands at the top.
    top = np.argsort(arrival, axis=1)[:, :n_positions]
    ranked = np.take_along_axis(rows, top, axis=1)
    return np.where(top < lengths[:, None], ranked, -1)


#: Disjoint pairs of positions (from 0), each of which is swapped with probability 1/2.
Layout = list[tuple[int, int]]
#: All positions in random order.
SHUFFLE: Layout = []


class _Experiment(Policy):
    """Policies that change pages of ``production``, and say where in the column ``arm``.

    Subclasses write ``_change(rows, arm, query, rng)``, which changes rows and arm in place.
    """

    production = DeterministicPolicy()

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return self.rank_with_arms(scores, offsets, query, n_positions, rng)[0]

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Rows shown, and the arm of each; see :meth:`Policy.rank_with_arms`."""
        # A copy: the policy of production may keep its lists.
        rows = self.production.rank(scores, offsets, query, n_positions, rng).copy()
        arm = np.full(rows.shape, np.nan, dtype=np.float32)
        self._change(rows, arm, query, rng)
        return rows, arm


@dataclass(frozen=True)
class SwapPolicy(_Experiment):
    """Documents by falling score, but in some sessions two of them may be exchanged.

    This experiment measures examination at little cost to the users. Each session of the
    experiment draws one pair of positions, and exchanges the documents at the two with probability
    1/2. The same documents are then shown at both positions of a pair, equally often, so that
    their click rates differ by the examination alone.

    With this policy the log of :func:`simulate_clicks` has a column ``arm``: the deeper position
    of the pair on its two rows, *whether or not they were exchanged*, and NaN on all other rows.
    The column has no role. It is for estimators that read the experiment; a ranker would take it
    for a feature of the document.

    Parameters
    ----------
    swaps : {'pivot', 'adjacent'}, default='pivot'
        Pairs to draw from. 'pivot': the first position and position k. 'adjacent': positions
        k - 1 and k. With n documents shown, k is uniform over 2, ..., n. A list of one document is
        never part of the experiment.
    share : float in [0, 1], default=1.0
        Probability that a session is part of the experiment.

    References
    ----------
    T. Joachims, A. Swaminathan and T. Schnabel (2017). Unbiased learning-to-rank with biased
    feedback. WSDM. (Swaps with the first position.)

    N. Craswell, O. Zoeter, M. Taylor and B. Ramsey (2008). An experimental comparison of click
    position-bias models. WSDM. (Swaps of neighbours.)

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import SwapPolicy
    >>> scores, offsets, sessions = np.array([3.0, 2.0, 1.0]), np.array([0, 3]), np.zeros(3, int)
    >>> rng = np.random.default_rng(1)
    >>> rows, arm = SwapPolicy().rank_with_arms(scores, offsets, sessions, 3, rng)
    >>> rows
    array([[2, 1, 0],
           [0, 1, 2],
           [1, 0, 2]], dtype=int32)
    >>> arm
    array([[ 3., nan,  3.],
           [ 3., nan,  3.],
           [ 2.,  2., nan]], dtype=float32)

    In the second session the first and the third document could have been exchanged, but were not.
    """

    swaps: str = "pivot"
    share: float = 1.0
    _constraints = {"swaps": [StrOptions({"pivot", "adjacent"})], "share": PROBABILITY}

    def _change(self, rows, arm, query, rng):
        """The arm is the deeper position of the pair."""
        session = _draw_experiment(rows, self.share, rng)
        length = np.count_nonzero(rows[session] >= 0, axis=1)
        # Positions count from 1 here, and columns from 0.
        deeper = rng.integers(2, length, endpoint=True)
        # Position 1 is the partner of all pairs, the pivot; or each pair is of neighbours.
        upper = deeper - 1 if self.swaps == "adjacent" else np.ones_like(deeper)
        arm[session, upper - 1] = deeper
        arm[session, deeper - 1] = deeper
        # Half of the pairs stay: those that are not exchanged are the control group.
        swapped = rng.random(len(session)) < 0.5
        _exchange(rows, session[swapped], upper[swapped] - 1, deeper[swapped] - 1)


@dataclass(frozen=True)
class ShufflePolicy(_Experiment):
    """Documents by falling score, but some sessions show them in random order.

    Among shuffled lists of one length, examination is proportional to the click rate by position.
    A shuffle costs users more than a swap. Unlike :class:`UniformPolicy` it shows the documents
    with the best scores.

    With this policy the log of :func:`simulate_clicks` has a column ``arm``: 0 on all rows of a
    shuffled list, NaN on the other lists; see :class:`SwapPolicy`. A list of
    one document is never part of the experiment.

    Parameters
    ----------
    share : float in [0, 1], default=1.0
        Probability that a session is part of the experiment.

    References
    ----------
    X. Wang, M. Bendersky, D. Metzler and M. Najork (2016). Learning to rank with selection bias
    in personal search. SIGIR.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import ShufflePolicy
    >>> scores, offsets, sessions = np.arange(9.0), np.array([0, 9]), np.zeros(3, int)
    >>> rng = np.random.default_rng(3)
    >>> rows, arm = ShufflePolicy(share=0.5).rank_with_arms(scores, offsets, sessions, 3, rng)
    >>> rows
    array([[7, 6, 8],
           [7, 8, 6],
           [8, 7, 6]], dtype=int32)
    >>> arm
    array([[ 0.,  0.,  0.],
           [ 0.,  0.,  0.],
           [nan, nan, nan]], dtype=float32)
    """

    share: float = 1.0
    _constraints = {"share": PROBABILITY}

    def _change(self, rows, arm, query, rng):
        session = _draw_experiment(rows, self.share, rng)
        _shuffle(rows, arm, session, rng)


@dataclass(frozen=True, eq=False)
class MixturePolicy(Policy):
    """Several rankers share the traffic: one of them ranks each session.

    The log is that of an A/B test, or of a product whose ranker was replaced from time to time.
    If rankers disagree, a document is shown at several positions for a reason that does not
    depend on the user. Intervention harvesting needs that.

    Pass ``scores`` of shape (n_documents, n_rankers) to :func:`simulate_clicks`, one column per
    ranker. Every ranker shows documents by falling score. To make different rankers, call
    :func:`production_scores` with several seeds, and with several values of ``fraction`` for
    different quality.

    Parameters
    ----------
    weights : array-like of shape (n_rankers,) or (n_queries, n_rankers), default=None
        Shares of the traffic, or of the traffic of each query (by rising id), in any unit. By
        default all rankers have the same share.

    References
    ----------
    A. Agarwal, I. Zaitsev, X. Wang, C. Li, M. Najork and T. Joachims (2019). Estimating position
    bias without intrusive interventions. WSDM.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import MixturePolicy, production_scores, simulate_clicks
    >>> documents = make_ltr(200, random_state=0)
    >>> scores = np.column_stack(
    ...     [production_scores(documents, random_state=seed) for seed in range(3)]
    ... )
    >>> X, clicks, truth = simulate_clicks(
    ...     documents,
    ...     scores=scores,
    ...     policy=MixturePolicy([0.5, 0.25, 0.25]),
    ...     n_sessions=10_000,
    ...     features=False,
    ...     random_state=0,
    ... )
    >>> bool(X.groupby("doc")["position"].nunique().max() == 3)
    True
    """

    several_rankers: ClassVar[bool] = True

    weights: ArrayLike | None = None
    _arrays = {
        "weights": (
            lambda given: given is None or _are_shares(as_floats(given)),
            "the shares of the rankers in the traffic (or in that of each query), one finite "
            "number of at least 0 per ranker and not all 0",
        )
    }

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        # One column of scores per ranker.
        n_rankers = scores.shape[1]
        n_queries = len(offsets) - 1
        equal = np.ones(n_rankers)
        shares = equal if self.weights is None else as_floats(self.weights)
        if shares.shape[-1] != n_rankers:
            raise ValueError(
                f"MixturePolicy has {shares.shape[-1]} weights, but scores has {n_rankers} "
                "columns; expected one weight per ranker."
            )
        if shares.ndim == 2 and len(shares) != n_queries:
            raise ValueError(
                f"MixturePolicy has weights of {len(shares)} queries, but there are {n_queries}; "
                "expected one row per query."
            )
        shares = shares / shares.sum(axis=-1, keepdims=True)
        ranker = _draw_action(shares, query, rng)
        # Shares may sum to less than 1 by rounding, and a draw fall behind the last ranker.
        ranker = np.minimum(ranker, n_rankers - 1)
        each_query = np.arange(n_queries)
        lists = [
            DeterministicPolicy().rank(column, offsets, each_query, n_positions, rng)
            for column in scores.T
        ]
        return np.stack(lists)[ranker, query]


@dataclass(frozen=True, eq=False)
class LayoutPolicy(_Experiment):
    """Swaps and shuffles in shares of the pages of each query; others are as of production.

    The column ``arm`` numbers the pairs of positions of swaps; it is 0 on shuffled rows.
    """

    shares: Floats  # (n_queries, n_layouts)
    layouts: list[Layout]  # disjoint pairs of positions, from 0; or SHUFFLE
    depth: int  # positions that a shuffle reorders
    production: Policy

    def _change(self, rows, arm, query, rng):
        drawn = _draw_action(self.shares, query, rng)
        for number, pairs in enumerate(self.layouts):
            chosen = np.flatnonzero(drawn == number)
            if pairs == SHUFFLE:
                _shuffle(rows[:, : self.depth], arm[:, : self.depth], chosen, rng)
            for upper, deeper in pairs:
                if deeper >= rows.shape[1]:
                    continue
                # Pages that show a document at both positions.
                both = chosen[rows[chosen, deeper] >= 0]
                number_of_pair = upper * self.depth + deeper
                arm[both, upper] = number_of_pair
                arm[both, deeper] = number_of_pair
                swapped = rng.random(len(both)) < 0.5
                _exchange(rows, both[swapped], upper, deeper)


def _are_shares(values):
    """True for numbers of at least 0 that are not all 0, in each row of a table."""
    if values.ndim not in (1, 2):
        return False
    valid = np.isfinite(values) & (values >= 0)
    return valid.all() and values.any(axis=-1).all()


def _exchange(rows, session, one, other):
    """Exchange the documents at two positions of pages."""
    was_one = rows[session, one]
    rows[session, one] = rows[session, other]
    rows[session, other] = was_one


def _shuffle(rows, arm, session, rng):
    """Shuffle the pages of some sessions, each with its empty places at the end, as arm 0."""
    for start in range(0, len(session), PAGES_AT_ONCE):
        chunk = session[start : start + PAGES_AT_ONCE]
        page = rows[chunk]
        there = page >= 0
        arm[chunk] = np.where(there, 0, np.nan)
        # Random order, empty places last.
        key = np.where(there, rng.random(page.shape), np.inf)
        order = key.argsort(axis=1)
        rows[chunk] = np.take_along_axis(page, order, axis=1)


def _draw_action(shares: Floats, query: Ints, rng: np.random.Generator) -> Ints:
    """Number of the action of each session, from shares (by query); behind the last for none."""
    # Actions are intervals of [0, 1), one behind the other.
    ends = shares.cumsum(axis=-1)
    if ends.ndim == 2:
        ends = ends[query]
    drawn = rng.random((len(query), 1))
    return (drawn >= ends).sum(axis=1)


def _draw_experiment(rows: Ints, share: float, rng: np.random.Generator) -> Ints:
    """Sessions that are part of the experiment, each with at least two documents."""
    drawn = rng.random(len(rows)) < share
    length = np.count_nonzero(rows >= 0, axis=1)
    return np.flatnonzero(drawn & (length >= 2))
