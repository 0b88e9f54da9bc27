"""Learning-to-rank documents with the scales and tails of LETOR, from a known model."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils import check_random_state

from .._base._sklearn import Interval, validate_params
from .._base._typing import ArrayLike, RandomState


@validate_params(
    {
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "n_documents": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "n_informative": [Interval(Integral, 1, None, closed="left"), None],
        "grades": ["array-like"],
        "nonlinearity": [Interval(Real, 0, 1, closed="both")],
        "noise": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_ltr(
    n_queries: int = 1000,
    n_documents: int | tuple[int, int] = 20,
    n_features: int = 100,
    *,
    n_informative: int | None = None,
    grades: ArrayLike = (0.50, 0.25, 0.15, 0.07, 0.03),
    nonlinearity: float = 0.85,
    noise: float = 0.65,
    random_state: RandomState = None,
) -> pd.DataFrame:
    """Make queries, documents, LETOR-like features and graded relevance.

    The model, from cause to effect:

    1. Every document has up to 8 standard normal *latent factors*, whose variance is mostly
       within queries, and every query has 2 factors of its own.
    2. *Relevance* is a weighted sum of the document factors and of a nonlinear part: an
       interaction, a saturation, a threshold, a factor that is best in the middle, a
       conjunction, and a factor whose weight changes sign with the query. Two things are added:
       noise, and a shift of the whole query (its difficulty; some queries have nothing relevant).
       The result is cut into grades of the given proportions over the whole set.
    3. Each *informative feature* is one latent factor plus noise, on one of eight kinds of
       scale: counts with lognormal tails (up to 10⁶), probabilities, scores like tf-idf,
       mostly-zero values, flags, plain normal scores, small ratios, and logarithms of counts.
       One in ten is based on a query factor and is constant within a query.
    4. Of the other features, a quarter are noisy *copies* of informative ones, a tenth nearly
       *constant*, and the rest pure *noise* on the same scales, some constant within a query.
       The columns come in random order.

    A linear ranker can learn a part of this; trees and networks learn more. Networks need the
    features on a log scale, as with real LETOR sets.

    Parameters
    ----------
    n_queries : int, default=1000
    n_documents : int or (int, int), default=20
        Documents per query. With a pair (min, max), the number for each query is drawn uniformly
        from min to max, inclusive.
    n_features : int, default=100
    n_informative : int, default=None
        Number of features based on a latent factor, at most ``n_features``. The default is 40 % of
        them.
    grades : array-like of shape (n_grades,), default=(0.50, 0.25, 0.15, 0.07, 0.03)
        Proportion of each grade 0, 1, ... over the whole set, summing to 1.
    nonlinearity : float in [0, 1], default=0.85
        Share of the nonlinear part in the variance of noiseless relevance.
    noise : float, default=0.65
        Standard deviation of the noise on relevance, relative to that of its noiseless part.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same documents in every call.

    Returns
    -------
    documents : pandas.DataFrame
        One row per query-document pair, sorted by ``qid``: ``qid`` (int, from 0), ``doc`` (int,
        unique over all queries), ``relevance`` (int, from 0) and the features ``feature_000``,
        ``feature_001``, ... (float32).

    Raises
    ------
    ValueError
        If ``n_documents`` is no number or range from 1, if ``n_informative`` exceeds
        ``n_features``, or if ``grades`` are no proportions that sum to 1.

    See Also
    --------
    load_letor : Read real documents.
    skultr.simulation.simulate_clicks : Show these documents to users.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> documents = make_ltr(50, (5, 15), 12, random_state=0)
    >>> documents.columns[:5].tolist()
    ['qid', 'doc', 'relevance', 'feature_000', 'feature_001']
    >>> documents["relevance"].value_counts(normalize=True).sort_index().round(2).tolist()
    [0.5, 0.25, 0.15, 0.07, 0.03]
    """
    n_informative = _check_informative(n_informative, n_features)
    grades = _check_grades(grades)
    seed = check_random_state(random_state).randint(2**31 - 1, size=4)
    rng = np.random.default_rng(seed)
    lengths = _draw_lengths(n_documents, n_queries, rng)
    qid = np.repeat(np.arange(n_queries), lengths)
    # Latent factors cause relevance, ...
    # Eight of documents; fewer if there are fewer informative features.
    n_factors = min(8, n_informative)
    document, query = _draw_factors(qid, n_queries, n_factors, rng)
    utility = _utility(document, query, nonlinearity)
    utility += noise * rng.standard_normal(len(qid))
    # A shift, with this standard deviation, makes a query easy or hard.
    difficulty = 1.2 * rng.standard_normal(n_queries)
    utility += difficulty[qid]
    roles = {"qid": qid, "doc": np.arange(len(qid)), "relevance": _cut(utility, grades)}
    # ... and they cause features.
    values = _draw_features(document, query, qid, n_features, n_informative, rng)
    names = [f"feature_{j:03d}" for j in range(n_features)]
    # One row per feature in memory: the frame takes the transpose without a copy.
    features = pd.DataFrame(values.T, columns=names, copy=False)
    return pd.concat([pd.DataFrame(roles), features], axis=1)


# Checks of parameters -----------------------------------------------------------------
def _check_informative(n_informative, n_features):
    if n_informative is None:
        return max(1, round(0.4 * n_features))  # as the docstring says
    if n_informative > n_features:
        raise ValueError(
            f"n_informative={n_informative} exceeds n_features={n_features}; expected at most "
            "as many informative features as there are features."
        )
    return n_informative


def _check_grades(grades):
    grades = np.asarray(grades, dtype=float)
    # Proportions that were written with six decimals sum to 1 up to their rounding.
    sum_to_1 = abs(grades.sum() - 1) <= 1e-6
    if grades.ndim != 1 or not (grades >= 0).all() or not sum_to_1:
        raise ValueError(
            f"grades must be one proportion per grade, each at least 0 and all summing to 1, got "
            f"{grades.tolist()}."
        )
    return grades


def _draw_lengths(n_documents, n_queries, rng):
    """Documents of each query, shape (n_queries,)."""
    if isinstance(n_documents, Integral):
        return np.full(n_queries, n_documents)
    bounds = np.asarray(n_documents)
    are_two_numbers = bounds.shape == (2,) and bounds.dtype.kind in "iu"
    if not are_two_numbers or not 1 <= bounds[0] <= bounds[1]:
        raise ValueError(
            f"n_documents must be a whole number from 1 or a pair (min, max) of such numbers "
            f"with min <= max, got {n_documents!r}."
        )
    return rng.integers(bounds[0], bounds[1], size=n_queries, endpoint=True)


# Relevance ----------------------------------------------------------------------------
def _draw_factors(qid, n_queries, n_factors, rng):
    """Latent factors of documents and of queries, both of shape (n_factors, n_rows)."""
    within = rng.standard_normal((n_factors, len(qid)), dtype=np.float32)
    between = rng.standard_normal((n_factors, n_queries), dtype=np.float32)
    query = rng.standard_normal((2, n_queries), dtype=np.float32)  # two factors
    # Documents of one query have correlation 0.2.
    document = np.sqrt(0.8) * within + np.sqrt(0.2) * between[:, qid]
    return document, query[:, qid]


def _utility(document, query, nonlinearity):
    """Noiseless relevance with mean 0 and variance 1, shape (n_rows,)."""
    n_factors = len(document)
    # Factors matter less and less: the first is the most relevant one.
    weights = 1 / np.sqrt(1 + np.arange(n_factors))
    linear = weights @ document

    def z(factor):
        """A factor of documents; where there are few, one serves several parts."""
        return document[factor % n_factors]

    match = z(0) * z(1)  # of both the title and the body
    links = np.tanh(3 * (z(2) + 0.5))  # more of them help only up to a point
    authority = np.where(z(3) > 0.7, 1.0, 0.0)  # some sites stand out from the rest
    freshness = z(4) * np.tanh(2 * query[0])  # wanted by some queries only
    length = -((z(5) - 0.3) ** 2)  # neither too short nor too long
    quality = np.where((z(6) > 0) & (z(7) > 0), 1.0, 0.0)  # complete and legible
    parts = (1.2 * match, links, authority, 1.2 * freshness, length, quality)
    curved = sum(_standardize(part) for part in parts)
    # The variance of relevance, 1, is divided between both.
    linear = np.sqrt(1 - nonlinearity) * _standardize(linear)
    return linear + np.sqrt(nonlinearity) * _standardize(curved)


def _standardize(values):
    """The values with mean 0 and variance 1; constants become 0."""
    # In double precision, as the sums of float32 over many rows lose digits.
    scale = values.std(dtype=float)
    centred = values - values.mean(dtype=float)
    return centred / (scale if scale > 0 else 1.0)


def _cut(utility, grades):
    """Grades by rank of utility, so that their proportions are exact to one document."""
    upper = np.round(np.cumsum(grades) * len(utility)).astype(np.int64)
    upper[-1] = len(utility)  # whatever the rounding of the sum
    n_of_grade = np.diff(upper, prepend=0)
    relevance = np.empty(len(utility), dtype=np.int64)
    order = np.argsort(utility, kind="stable")
    relevance[order] = np.repeat(np.arange(len(grades)), n_of_grade)
    return relevance


# Features -----------------------------------------------------------------------------
def _draw_features(document, query, qid, n_features, n_informative, rng):
    """Features in random order, shape (n_features, n_rows), float32."""
    # Of the other features a quarter are copies, a tenth are nearly constant, and the rest is
    # noise.
    n_other = n_features - n_informative
    n_copies = n_other // 4
    n_constant = n_other // 10
    kinds = rng.integers(len(_SCALES), size=n_features)
    # Every scale occurs among the informative features, whatever the draw.
    kinds[:n_informative] = rng.permutation(np.arange(n_informative) % len(_SCALES))
    place = rng.permutation(n_features)
    values = np.empty((n_features, len(qid)), dtype=np.float32)
    # Of ten informative features, nine are of the document and one is of the query.
    n_of_queries = n_informative // 10
    n_of_documents = n_informative - n_of_queries
    factors = [document[j % len(document)] for j in range(n_of_documents)]
    factors += [query[j % len(query)] for j in range(n_of_queries)]
    for j in range(n_features):
        scale = _SCALES[kinds[j]]
        if j < n_informative:
            # The noise that a feature adds to its latent factor, which has variance 1.
            noise = 0.35 * _noise(qid, j >= n_of_documents, rng)
            column = scale(factors[j] + noise, rng)
        elif j < n_informative + n_copies:
            column = _copy(values[place[j % n_informative]], rng)
        elif j < n_informative + n_copies + n_constant:  # nearly so
            column = rng.random(len(qid), dtype=np.float32) < 0.005
        else:  # noise, on one of the scales
            column = scale(_noise(qid, j % 10 == 0, rng), rng)
        values[place[j]] = column
    return values


def _noise(qid, by_query, rng):
    """Standard normal numbers: one draw per row, or one per query."""
    if by_query:
        n_queries = int(qid[-1]) + 1
        return rng.standard_normal(n_queries, dtype=np.float32)[qid]
    return rng.standard_normal(len(qid), dtype=np.float32)


def _copy(values, rng):
    """The values times lognormal noise (standard deviation 0.15 of the log), rescaled."""
    noise = rng.standard_normal(len(values), dtype=np.float32)
    factor = np.exp(0.15 * noise)
    return np.float32(rng.uniform(0.1, 10)) * values * factor


# Scales of features: each makes values from latent numbers, and draws its own parameters.
def _counts(latent, rng):
    mean = rng.uniform(1, 6)
    tail = rng.uniform(1, 2)
    return np.floor(np.minimum(np.exp(mean + tail * latent), 1e6))


def _probabilities(latent, rng):
    slope = rng.uniform(0.5, 2)
    return expit(slope * (latent - rng.uniform(-1, 1)))


def _scores_like_tf_idf(latent, rng):
    return np.float32(rng.uniform(2, 40)) * np.logaddexp(0, 1.5 * latent)


def _mostly_zero(latent, rng):
    scale = np.float32(rng.uniform(0.1, 20))
    return scale * np.maximum(latent - rng.uniform(0.3, 1.2), 0)


def _flags(latent, rng):
    return latent > rng.uniform(-0.8, 0.8)


def _normal(latent, rng):
    mean = np.float32(rng.uniform(-5, 5))
    return mean + np.float32(rng.uniform(0.5, 5)) * latent


def _tiny_ratios(latent, rng):
    return np.float32(10 ** rng.uniform(-5, -2)) * np.exp(0.7 * latent)


def _logarithms_of_counts(latent, rng):
    return np.log1p(np.exp(rng.uniform(1, 4) + latent))


_SCALES = (
    _counts,
    _probabilities,
    _scores_like_tf_idf,
    _mostly_zero,
    _flags,
    _normal,
    _tiny_ratios,
    _logarithms_of_counts,
)
