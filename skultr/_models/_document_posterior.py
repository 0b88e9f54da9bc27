"""Relevance of documents given clicks and examination, with a prior from where they were put."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammainc, gammaincinv, gammaln, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import isotonic_regression

from .._base._typing import Floats, Ints
from .._log._cells import Cells
from .._log._clicklog import ClickLog
from .._log._segments import TINY, encode, largest_by_code, pair_codes
from ..exceptions import warn_user
from ._solve import minimised

#: Clicks of each level of the prior mean, and the least number of levels of a log of few clicks.
_CLICKS_PER_LEVEL, _LEAST_LEVELS = 100.0, 8
#: Most rounds of curve, spread and queries, and the change of relevance at which they end.
_ROUNDS, _TOL = 100, 1e-4
#: A parameter that all documents share is learned from at most so many of them.
_MAX_DOCS = 20_000
#: Logarithms of the squared coefficient of variation, and of the clicks that a prior stands for.
_LOG_SPREADS = (-6.0, 4.0)
_LOG_SHAPES_OF_QUERIES = (-4.0, 12.0)
#: Powers of the prior mean that the squared coefficient of variation may be.
_POWERS = (-1.5, 1.5)
_LEAST_MEAN = 1e-6
#: Logarithms of the squared coefficient of variation, and powers of the prior mean, that the ends
#: of intervals are averaged over; means and standard deviations of both a priori. Relevance is
#: taken to vary much, and at high places relatively less, until clicks say otherwise.
_GRID = np.stack(np.meshgrid(np.linspace(-4, 2, 25), np.linspace(-3, 0.5, 8)), axis=-1).reshape(
    -1, 2
)
_USUAL = np.array([0.0, -1.25])
_UNUSUAL = np.array([1.0, 0.5])
#: Documents whose clicks show less of the spread than this share show nothing of it.
_LEAST_SHOWN = 0.01
#: Largest probability of a click for which the variance is corrected.
_MAX_CLICK = 0.95
#: Probability of a relevance below 1 under which the other tail is approximated.
_RARE = 1e-8


class DocumentPosterior(NamedTuple):
    """Relevance of documents after their clicks."""

    mean: Floats  # (n_docs,)
    lower: Floats  # (n_docs,)
    upper: Floats  # (n_docs,)
    effective_sample: Floats  # (n_docs,)
    prior_mean: Floats  # (n_docs,)


class LoggedPlaces(NamedTuple):
    """Where production put each document of a query."""

    query: Ints  # (n_pairs,)
    doc: Ints  # (n_pairs,)
    impressions: Floats  # (n_pairs,)
    place: Floats  # (n_pairs,)
    pair: Ints  # (n_shown,)

    def of_documents(self, n_docs: int) -> tuple[Ints, Floats]:
        """Query and place of each document: those of the query that showed it most often."""
        order = np.lexsort((self.impressions, self.doc))
        query = np.zeros(n_docs, dtype=np.intp)
        place = np.zeros(n_docs)
        query[self.doc[order]] = self.query[order]  # the last one stays
        place[self.doc[order]] = self.place[order]
        return query, place


def logged_places(log: ClickLog) -> LoggedPlaces:
    """Where production put the documents of each query that were shown.

    By the role ``production``, if it was read: minus the score, less the mean of the query. Else
    by the mean position over the lists of the query, with the position below the deepest for
    lists without the document: a document that was rarely shown stood low.
    """
    n_docs = log.n_docs
    n_queries = len(log.query_ids)
    pair, key = encode(pair_codes(log.query, log.doc, n_docs))
    query, doc = np.divmod(key, n_docs)
    impressions = np.bincount(pair, log.weight, minlength=len(key))
    if log.production is not None:
        count = np.bincount(pair, minlength=len(key))
        score = np.bincount(pair, log.production, minlength=len(key)) / count
        mean = np.bincount(query, score, n_queries) / np.maximum(np.bincount(query), 1)
        return LoggedPlaces(query, doc, impressions, mean[query] - score, pair)
    # The number of lists: of impressions at the position where most of them have a document.
    depth = int(log.position.max(initial=0)) + 1
    cell, cells = encode(pair_codes(log.query, log.position, depth))
    shown = np.bincount(cell, log.weight, minlength=len(cells))
    lists = largest_by_code(cells // depth, shown, n_queries)
    below = largest_by_code(log.query, log.position + 1.0, n_queries)
    total = np.bincount(pair, log.weight * log.position, minlength=len(key))
    lists = np.maximum(lists[query], impressions)
    below = below[query]
    place = (total + (lists - impressions) * below) / np.maximum(lists, TINY)
    return LoggedPlaces(query, doc, impressions, np.where(lists > 0, place, below), pair)


def document_posterior(
    cells: Cells,
    examination: Floats,
    *,
    query: Ints,
    place: Floats,
    error: Floats | None = None,
) -> DocumentPosterior:
    r"""Posterior of the relevance of each document given examination.

    A document d of query q at place x has :math:`c_d \sim \text{Poisson}(r_d E_d)` clicks in
    :math:`E_d` examinations, and

    .. math:: r_d \sim \text{Gamma}(\text{mean } u_q f(x_d), \text{ shape } a), \qquad
              u_q \sim \text{Gamma}(\text{mean } 1, \text{ shape } k)

    The posterior is cut at :math:`r_d = 1`. The function f falls with the place, by isotonic
    regression over levels of 100 clicks; it, a, a power of the mean, and k are of maximum marginal
    likelihood. What is known of :math:`u_q` before the clicks of d are read comes from the *other*
    documents of the query. Clicks and examinations are both divided by the mean probability of a
    skip, so that the variance is the binomial one.

    The ends of the intervals have a wider prior: few clicks tell neither the spread, which is
    averaged over its posterior, nor f, whose squared relative error is added. An ``error`` of log
    examination, by factor, widens them further.
    """

    def examinations_of(part):
        return part.weight * examination[part.factor]

    def summed(value):
        return cells.of_documents(lambda _, part: part.by_doc(value(part)))

    c = summed(lambda part: part.clicks)
    e = summed(examinations_of)
    # A click is 0 or 1: that of a single impression has one variance, whatever the spread.
    single = summed(lambda part: part.weight * examination[part.factor] ** 2)
    shown = 1 - single / np.maximum(e, TINY) ** 2

    def per_skip(relevance):
        """One over P(skip), its mean over the examinations of each document."""

        def raised(docs, part):
            examined = examination[part.factor]
            click = np.minimum(relevance[docs][part.doc] * examined, _MAX_CLICK)
            return part.by_doc(part.weight * examined / (1 - click))

        return np.where(e > 0, cells.of_documents(raised) / np.maximum(e, TINY), 1.0)

    query = encode(query)[0]
    level = _levels(place, c)
    scale = np.ones_like(e)
    likely = np.ones_like(e)
    unsure = np.zeros_like(e)
    power = [-1.0, 0.0]
    for _ in range(_ROUNDS):
        curve = _curve(level, place, c, e * scale)
        last = likely
        mean = np.clip(curve * scale, _LEAST_MEAN, 1.0)
        ratio = per_skip(mean)
        spread, power = _spread(c * ratio, e * ratio, mean, unsure, power, shown)
        scale, unsure = _other_documents(c * ratio, e * ratio, curve, mean * spread, query)
        mean = np.clip(curve * scale, _LEAST_MEAN, 1.0)
        strength = 1 / (mean * (spread + unsure))
        likely = np.minimum((c * ratio + strength * mean) / (e * ratio + strength), 1.0)
        if np.abs(likely - last).max(initial=0.0) < _TOL:
            break
    else:
        warn_user(
            f"The prior of the relevance of documents did not converge in {_ROUNDS} rounds: few "
            "clicks, or few places of documents, hardly determine it. Log more sessions.",
            ConvergenceWarning,
        )
    ratio = per_skip(likely)
    shape = c * ratio + strength * mean
    rate = e * ratio + strength
    # Mean of gamma distributions cut at 1: few clicks do not make a click certain. Far above 1 the
    # density rises exponentially up to it.
    below = gammainc(shape, rate)
    cut = shape / rate * gammainc(shape + 1, rate) / np.maximum(below, TINY)
    found = np.where(below > _RARE, cut, 1 - 1 / np.maximum(shape - rate, 2.0))
    unsure = unsure + _error_of_curve(level, place, c, e, curve)
    spread = _expected_spread(c * ratio, e * ratio, mean, unsure, shown)
    strength = 1 / (mean * (spread + unsure))
    shape = c * ratio + strength * mean
    rate = e * ratio + strength
    below = np.maximum(gammainc(shape, rate), _RARE)
    lower, upper = (np.minimum(gammaincinv(shape, p * below) / rate, 1.0) for p in (0.025, 0.975))
    lower = np.clip(lower, TINY, found)
    upper = np.maximum(upper, found)
    if error is not None:
        # The prior mean comes from the same curve.
        apart = summed(
            lambda part: 1.96 * examinations_of(part) * error[part.factor]
        ) / np.maximum(e, TINY)
        lower = found * np.exp(-np.hypot(np.log(found / lower), apart))
        upper = np.minimum(found * np.exp(np.hypot(np.log(upper / found), apart)), 1.0)
    return DocumentPosterior(found, lower, upper, e, mean)


def _levels(place, clicks):
    """Level of each document: in order of their place, of about equally many clicks.

    Single documents at the end of the order, examined too rarely for a click, would have a prior
    mean of 0.
    """
    value, code = np.unique(place, return_inverse=True)
    by_value = np.bincount(code, clicks, len(value))
    total = by_value.sum()
    n_levels = max(int(total / _CLICKS_PER_LEVEL), min(int(total), _LEAST_LEVELS), 1)
    share = (np.cumsum(by_value) - by_value / 2) / max(total, TINY)
    return encode(np.minimum(share * n_levels, n_levels - 1).astype(np.intp))[0][code]


def _centres(level, place, examinations):
    """Mean place of the examinations of each level."""
    weight = examinations + TINY
    return np.bincount(level, weight * place) / np.bincount(level, weight)


def _curve(level, place, clicks, examinations):
    """Mean relevance at each place: it falls with the place, linearly in its logarithm."""
    c = np.bincount(level, clicks)
    e = np.bincount(level, examinations)
    average = (c.sum() + 0.5) / (e.sum() + 0.5)
    rate = (c + 0.5 * average) / (e + 0.5)
    falling = isotonic_regression(rate, sample_weight=e + TINY, increasing=False)
    return np.exp(np.interp(place, _centres(level, place, examinations), np.log(falling)))


def _error_of_curve(level, place, clicks, examinations, curve):
    """Squared relative error of the curve: of the clicks of a level, and beyond the outer levels,
    where it is flat, by how much it would have changed at its mean slope."""
    at = _centres(level, place, examinations)
    fall = np.log(curve.max() / curve.min())
    beyond = (place - np.clip(place, at.min(), at.max())) / max(np.ptp(at), TINY)
    return 1 / (np.bincount(level, clicks)[level] + 0.5) + (fall * beyond) ** 2


def _spread(clicks, examinations, mean, unsure, start, shown):
    """Squared coefficient of variation of relevance about its prior mean, a power of the mean, and
    the logarithm of its factor and the power, found from a ``start``."""
    relative, (c, e, m, v, at, shown) = _telling(clicks, examinations, mean, unsure, shown)
    n = max(len(m), 1)

    def loss(point):
        variance = shown * np.exp(point[0] + point[1] * at)
        shape = 1 / (variance + v)
        # A power far from 0 needs evidence, and keeps the logs of few clicks in range.
        value = 0.5 * point[1] ** 2 - _log_marginal(c, e, m, shape)
        slope = digamma(shape + c) - digamma(shape) - np.log1p(m * e / shape)
        slope = variance * shape**2 * (slope + (m * e - c) / (shape + m * e))
        return value / n, np.array([slope.sum(), slope @ at + point[1]]) / n

    found = minimised(
        loss,
        start,
        "The spread of relevance",
        jac=True,
        bounds=[_LOG_SPREADS, _POWERS],
        options={"ftol": 1e-12, "gtol": 1e-6},
    )
    return np.exp(np.clip(found[0] + found[1] * relative, *_LOG_SPREADS)), found


def _telling(clicks, examinations, mean, unsure, shown):
    """Logarithm of the prior mean, less its average over clicks; and what the likelihood of the
    spread reads of documents whose clicks show something of it, or of as many as are needed."""
    relative = np.log(mean) - np.average(np.log(mean), weights=clicks + TINY)
    some = np.flatnonzero(shown > _LEAST_SHOWN)
    some = some[:: -(-len(some) // _MAX_DOCS) or 1]
    columns = clicks, examinations, mean, shown * unsure, relative, shown
    return relative, [values[some] for values in columns]


def _expected_spread(clicks, examinations, mean, unsure, shown):
    """Posterior mean of the squared coefficient of variation of relevance about its prior mean."""
    relative, (c, e, m, v, at, shown) = _telling(clicks, examinations, mean, unsure, shown)

    def spread(point, at):
        return np.exp(np.clip(point[0] + point[1] * at, *_LOG_SPREADS))

    likely = np.array(
        [_log_marginal(c, e, m, 1 / (shown * spread(point, at) + v)) for point in _GRID]
    )
    share = softmax(likely - 0.5 * (((_GRID - _USUAL) / _UNUSUAL) ** 2).sum(axis=1))
    return sum(
        weight * spread(point, relative) for weight, point in zip(share, _GRID, strict=True)
    )


def _other_documents(clicks, examinations, curve, variance, query):
    """Factor of the query on the prior mean, and its squared error, from its other documents.

    A document counts by what it tells of the query: much examined, it tells of itself.
    """
    share = 1 / (1 + examinations * variance)
    c = clicks * share
    expected = examinations * curve * share
    by_query = np.bincount(query, c)
    means = np.bincount(query, expected)
    some = slice(None, None, -(-len(means) // _MAX_DOCS))
    observed = by_query[some]
    wanted = means[some]
    ones = np.ones(len(means[some]))
    found = minimize_scalar(
        lambda log_shape: -_log_marginal(observed, wanted, ones, np.exp(log_shape)),
        bounds=_LOG_SHAPES_OF_QUERIES,
        method="bounded",
    )
    prior = float(np.exp(found.x))
    others = np.maximum(by_query[query] - c, 0.0)
    least = np.maximum(means[query] - expected, 0.0)
    return (others + prior) / (least + prior), 1 / (others + prior)


def _log_marginal(clicks, examinations, mean, shape):
    """Log likelihood of Poisson clicks whose rate has a gamma prior, up to a constant."""
    strength = shape / mean
    return np.sum(
        gammaln(shape + clicks)
        - gammaln(shape)
        + shape * np.log(strength)
        - (shape + clicks) * np.log(strength + examinations)
    )
