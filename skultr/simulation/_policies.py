"""The production ranker's scores, and logging policies that turn scores into result pages."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
from lightgbm import LGBMRanker
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils import check_random_state

from .._log._roles import feature_columns, read_features, read_role
from .._log._segments import encode, offsets_from_sorted, pad, sort_in_segment
from .._sklearn import HasMethods, Interval, StrOptions, validate_params
from .._typing import Floats, Frame, Ints, RandomState
from ._protocols import Policy

#: Random numbers drawn at a time, so that memory does not grow with the number of sessions.
_CHUNK = 2**20


# --------------------------------------------------------------------------------------
# The production ranker
# --------------------------------------------------------------------------------------
@validate_params(
    {
        "documents": "no_validation",
        "fraction": [Interval(Real, 0, 1, closed="right")],
        "estimator": [HasMethods(["fit", "predict"]), StrOptions({"lambdamart"}), None],
        "candidates": "no_validation",
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

    The ranker that served the users while the log was written: clearly better than chance, and
    clearly worse than a ranker that learns from the clicks can be.

    The ranker ranks the queries that it was trained on better than others. With 1 % of the
    queries that does not matter for a log. But do not report the quality of these scores on
    queries that include the training queries, and leave your test queries out of ``documents`` if
    their labels must not influence the log.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        Roles ``qid`` and ``relevance``; every column without a role is a feature.
    fraction : float in (0, 1], default=0.01
        Share of the queries, drawn at random, whose labels the ranker is trained on. At least
        one query is drawn, and more until one of them has two different grades.
    estimator : regressor, lightgbm.LGBMRanker or 'lambdamart', default=None
        Cloned and fitted to the grades. By default ridge regression on quantiles of the
        features, which are robust to the tails of raw counts. ``'lambdamart'`` is LightGBM's
        ranker with 100 trees of 31 leaves and learning rate 0.1, in one thread; it needs grades
        that are whole numbers, and its scores have no unit.
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
    relevance = _required(documents, "relevance")
    query = encode(_required(documents, "qid"))[0]
    if not feature_columns(documents):
        raise ValueError(
            "documents has no feature column to train a production ranker on. Add the features, "
            "or pass scores= to simulate_clicks."
        )
    features = read_features(documents)
    chosen = _draw_training_queries(query, relevance, fraction, random_state)
    rows = np.flatnonzero(np.isin(query, chosen))
    learner = _production_estimator(estimator, len(rows))
    _seed(learner, random_state)
    _fit_estimator(learner, features, relevance, query, rows)
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

    The documents that such a ranker showed and those that it did not show then differ in ways
    that the features do not explain, which is when selection bias does harm.

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
    values = []
    for name, given in (("scores", scores), ("relevance", relevance)):
        column = np.asarray(given, dtype=float)
        spread = np.ptp(column) if column.size else 0.0
        if column.ndim != 1 or column.shape != np.shape(relevance) or not spread > 0:
            raise ValueError(
                f"{name} has the shape {column.shape} and the range {spread:g}; expected one "
                f"number per document, {np.shape(relevance)}, that are not all the same."
            )
        values.append((column - column.mean()) / column.std())
    score, grade = values
    noise = check_random_state(random_state).standard_normal(len(score))
    signal = correlation * grade + np.sqrt(1 - correlation**2) * noise
    return score + strength * signal


@validate_params(
    {
        "documents": "no_validation",
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
    relevance = _required(documents, "relevance")
    noise = check_random_state(random_state).normal(size=len(relevance))
    return relevance + np.sqrt(variance) * noise


def _required(documents, role):
    values = read_role(documents, role)
    if values is None:
        raise ValueError(
            f"documents has no column {role!r}; expected the roles 'qid', 'doc' and 'relevance' "
            "and the features, one row per query-document pair. Rename the column that holds it."
        )
    if not len(values):
        raise ValueError("documents is empty; expected at least one row.")
    if role == "relevance" and not (np.isfinite(values) & (values >= 0)).all():
        bad = int(np.argmin(np.isfinite(values) & (values >= 0)))
        raise ValueError(
            f"relevance is {values[bad]:g} in row {bad}; expected a grade of at least 0 in every "
            "row. Drop the documents that were not annotated."
        )
    return values


def _draw_training_queries(query, relevance, fraction, random_state):
    n_queries = int(query.max()) + 1
    lowest, highest = np.full(n_queries, np.inf), np.full(n_queries, -np.inf)
    np.minimum.at(lowest, query, relevance)
    np.maximum.at(highest, query, relevance)
    order = random_state.permutation(n_queries)
    two_grades = np.flatnonzero((lowest < highest)[order])
    if not len(two_grades):
        raise ValueError(
            "No query has documents of two different grades: there is nothing to rank. Expected "
            "graded documents, or pass scores= to simulate_clicks."
        )
    return order[: max(round(fraction * n_queries), two_grades[0] + 1)]


def _production_estimator(estimator, n_rows):
    if estimator is None:
        quantiles = QuantileTransformer(n_quantiles=min(n_rows, 100), subsample=None)
        return make_pipeline(quantiles, Ridge(alpha=10.0))
    if isinstance(estimator, str):
        return LGBMRanker(
            n_estimators=100, num_leaves=31, learning_rate=0.1, n_jobs=1, verbosity=-1
        )
    return clone(estimator)


def _fit_estimator(estimator, features, relevance, query, rows):
    if not isinstance(estimator, LGBMRanker):
        estimator.fit(features.iloc[rows], relevance[rows])
        return
    rows = rows[np.argsort(query[rows], kind="stable")]  # LightGBM wants queries in one block
    group = np.diff(offsets_from_sorted(query[rows]))
    estimator.fit(features.iloc[rows], relevance[rows].astype(int), group=group)


def _seed(estimator, random_state):
    """Set every ``random_state`` that is None, also inside a pipeline."""
    for name, value in sorted(estimator.get_params().items()):
        if name.split("__")[-1] == "random_state" and value is None:
            estimator.set_params(**{name: random_state.randint(2**31 - 1)})


# --------------------------------------------------------------------------------------
# Policies
# --------------------------------------------------------------------------------------
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
        code = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        order = sort_in_segment(code, scores).astype(np.int32)
        place = pad(offsets, n_positions)
        shown = np.where(place >= 0, order[np.maximum(place, 0)], np.int32(-1))
        return shown[query]


@dataclass(frozen=True)
class PlackettLucePolicy(Policy):
    """Every session draws its ranking: better documents probably stand higher.

    The document at each position is drawn from those that remain, with probability proportional
    to exp(score / temperature) (Plackett 1975; Luce 1959). Sorting by score / temperature +
    Gumbel noise has exactly this distribution (Yellott 1977).

    Parameters
    ----------
    temperature : float, default=0.1
        In units of the scores, which are not scaled: near 0 the policy is deterministic, with
        large values uniform. The unit of :func:`production_scores` are grades.

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

    def __post_init__(self) -> None:
        if not (isinstance(self.temperature, Real) and 0 < self.temperature < np.inf):
            raise ValueError(
                f"temperature must be a finite number above 0, got {self.temperature!r}. For "
                "temperature 0 use DeterministicPolicy()."
            )

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
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order) and (width := int(lengths[order[start]])):
        sessions = order[start : start + max(1, _CHUNK // width)]
        top = _race(utilities, offsets[query[sessions]], lengths[sessions], n_positions, rng)
        rows[sessions, : top.shape[1]] = top
        start += len(sessions)
    return rows


def _race(utilities, first, lengths, n_positions, rng):
    """Rows of the first ``n_positions`` documents of each session, in order of arrival.

    Document i arrives at T_i ~ Exp(rate exp(u_i)), and is first with the probability of
    Plackett-Luce, exp(u_i) / sum_j exp(u_j). log T_i = log E_i - u_i with E_i ~ Exp(1).
    """
    column = np.arange(lengths.max())
    inside = column < lengths[:, None]
    rows = np.where(inside, first[:, None] + column, 0)
    with np.errstate(divide="ignore"):  # an exponential draw of exactly 0 arrives at -inf
        arrival = np.log(rng.standard_exponential(rows.shape)) - utilities[rows]
    arrival[~inside] = np.inf
    top = _smallest(arrival, n_positions)
    winners = np.take_along_axis(rows, top, axis=1)
    return np.where(top < lengths[:, None], winners, -1)


def _smallest(values, k):
    """Columns of the k smallest values of each row, in rising order."""
    if 2 * k >= values.shape[1]:
        return np.argsort(values, axis=1)[:, :k]
    part = np.argpartition(values, k, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, part, axis=1), axis=1)
    return np.take_along_axis(part, order, axis=1)
