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

#: Most rounds of curve, spread and queries.
_ROUNDS = 100
#: A parameter that all documents share is learned from at most so many of them.
_MAX_DOCS = 20_000
#: Range of the logarithm of the squared coefficient of variation of relevance.
_LOG_SPREADS = (-6.0, 4.0)
#: Range of the logarithm of the clicks that the prior of a query stands for.
_LOG_SHAPES_OF_QUERIES = (-4.0, 12.0)
#: Powers of the prior mean that the squared coefficient of variation may be.
_POWERS = (-1.5, 1.5)
#: Least prior mean: its logarithm stays finite.
_LEAST_MEAN = 1e-6
#: What the ends of intervals are averaged over: logarithms of the squared coefficient of variation
#: and powers of the prior mean, one row each.
_GRID = np.stack(
    np.meshgrid(np.linspace(-4, 2, 25), np.linspace(-3, 0.5, 8)),
    axis=-1,
).reshape(-1, 2)
#: Means and standard deviations of both a priori. Relevance is taken to vary much, and at high
#: places relatively less, until clicks say otherwise.
_USUAL = np.array([0.0, -1.25])
_UNUSUAL = np.array([1.0, 0.5])
#: Probability of a relevance below 1 under which the other tail is approximated.
_RARE = 1e-8
#: Probabilities below the ends of a 95 % interval.
_ENDS = (0.025, 0.975)
#: Standard errors from the mean of a normal distribution to one of these ends.
_NORMAL_95 = 1.96


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
        n_pairs = np.maximum(np.bincount(query), 1)
        mean = np.bincount(query, score, n_queries) / n_pairs
        return LoggedPlaces(query, doc, impressions, mean[query] - score, pair)
    # The number of lists: of impressions at the position where most of them have a document.
    depth = int(log.position.max(initial=0)) + 1
    cell, cells = encode(pair_codes(log.query, log.position, depth))
    shown = np.bincount(cell, log.weight, minlength=len(cells))
    lists = largest_by_code(cells // depth, shown, n_queries)[query]
    lists = np.maximum(lists, impressions)
    # The mean position: where it was shown, and else below the deepest.
    below = largest_by_code(log.query, log.position + 1.0, n_queries)[query]
    total = np.bincount(pair, log.weight * log.position, minlength=len(key))
    total = total + (lists - impressions) * below
    place = np.where(lists > 0, total / np.maximum(lists, TINY), below)
    return LoggedPlaces(query, doc, impressions, place, pair)


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

    reader = _Examined(cells, examination)
    c = reader.clicks
    e = reader.examinations
    query = encode(query)[0]
    level = _levels(place, c)
    # Factor of the query of each document, and the squared error of it.
    scale = np.ones_like(e)
    unsure = np.zeros_like(e)
    likely = np.ones_like(e)
    # Share of a round that is taken, and what the last round changed.
    step = 1.0
    change = np.zeros_like(e)
    # Relevance varies by exp(-1 / 2), as much at every place.
    power = [-1.0, 0.0]
    for _ in range(_ROUNDS):
        # The curve of the prior mean, given the factors of queries.
        curve = _curve(level, place, c, e * scale)
        last = likely
        mean = np.clip(curve * scale, _LEAST_MEAN, 1.0)
        # The spread about it, with the variance of clicks that are 0 or 1.
        ratio = reader.per_skip(mean)
        clicks = c * ratio
        examinations = e * ratio
        spread, power = _spread(clicks, examinations, mean, unsure, power, reader.shown)
        # The factors of queries, given both.
        factor, error_of_factor = _other_documents(
            clicks, examinations, curve, mean * spread, query
        )
        scale = scale + step * (factor - scale)
        unsure = unsure + step * (error_of_factor - unsure)
        mean = np.clip(curve * scale, _LEAST_MEAN, 1.0)
        # The most likely relevance, by which the rounds are compared.
        strength = 1 / (mean * (spread + unsure))
        likely = np.minimum((clicks + strength * mean) / (examinations + strength), 1.0)
        before = change
        change = likely - last
        # The change of relevance at which the rounds end: far below any standard error.
        if np.abs(change).max(initial=0.0) < 1e-4 * step:
            break
        # Spread and queries explain the same clicks, and may undo each other's rounds for ever.
        # Of a change that is -r times the one before, half a step leaves (1 - r) / 2, which is
        # less than r where r is above a third.
        if change @ before < -(before @ before) / 3:
            step = step / 2
    else:
        warn_user(
            f"The prior of the relevance of documents did not converge in {_ROUNDS} rounds: the "
            "log has too few clicks, or shows too few places, to determine it. Log more sessions.",
            ConvergenceWarning,
        )
    ratio = reader.per_skip(likely)
    clicks = c * ratio
    examinations = e * ratio
    found = _mean_below_one(clicks + strength * mean, examinations + strength)
    # Intervals know less: neither the spread nor the curve.
    unsure = unsure + _error_of_curve(level, place, c, e, curve)
    spread = _expected_spread(clicks, examinations, mean, unsure, reader.shown)
    strength = 1 / (mean * (spread + unsure))
    lower, upper = _ends_below_one(clicks + strength * mean, examinations + strength)
    lower = np.clip(lower, TINY, found)
    upper = np.maximum(upper, found)
    if error is not None:
        # The prior mean comes from the same curve of examination.
        apart = reader.mean_of(_NORMAL_95, error)
        lower = found * np.exp(-np.hypot(np.log(found / lower), apart))
        upper = np.minimum(found * np.exp(np.hypot(np.log(upper / found), apart)), 1.0)
    return DocumentPosterior(found, lower, upper, e, mean)


class _Examined:
    """Clicks and examinations of documents, summed over the parts of the cells."""

    def __init__(self, cells: Cells, examination: Floats) -> None:
        self.cells = cells
        self.examination = examination
        self.clicks = self._summed(lambda part: part.clicks)  # c_d
        self.examinations = self._summed(self._examined)  # E_d
        self._divisor = np.maximum(self.examinations, TINY)
        # A click is 0 or 1: that of a single impression has one variance, whatever the spread.
        single = self._summed(lambda part: part.weight * examination[part.factor] ** 2)
        #: Share of the spread that the clicks of each document show.
        self.shown = 1 - single / self._divisor**2

    def _summed(self, value):
        return self.cells.of_documents(lambda _, part: part.by_doc(value(part)))

    def _examined(self, part):
        return part.weight * self.examination[part.factor]

    def per_skip(self, relevance: Floats) -> Floats:
        """One over P(skip), its mean over the examinations of each document."""

        def raised(docs, part):
            examination = self.examination[part.factor]
            # Largest probability of a click for which the variance is corrected.
            click = np.minimum(relevance[docs][part.doc] * examination, 0.95)
            return part.by_doc(part.weight * examination / (1 - click))

        mean = self.cells.of_documents(raised) / self._divisor
        return np.where(self.examinations > 0, mean, 1.0)

    def mean_of(self, factor: float, by_factor: Floats) -> Floats:
        """A factor times values of bias factors, the mean over the examinations of documents."""
        total = self._summed(lambda part: factor * self._examined(part) * by_factor[part.factor])
        return total / self._divisor


def _mean_below_one(shape, rate):
    """Mean of gamma distributions cut at 1: few clicks do not make a click certain."""
    below = gammainc(shape, rate)
    cut = shape / rate * gammainc(shape + 1, rate) / np.maximum(below, TINY)
    # Far above 1 the density rises exponentially up to it.
    near = 1 - 1 / np.maximum(shape - rate, 2.0)
    return np.where(below > _RARE, cut, near)


def _ends_below_one(shape, rate):
    """Ends of the 95 % intervals of gamma distributions cut at 1."""
    below = np.maximum(gammainc(shape, rate), _RARE)
    return [np.minimum(gammaincinv(shape, p * below) / rate, 1.0) for p in _ENDS]


def _levels(place, clicks):
    """Level of each document: in order of their place, of about equally many clicks.

    Single documents at the end of the order, examined too rarely for a click, would have a prior
    mean of 0.
    """
    value, code = np.unique(place, return_inverse=True)
    by_value = np.bincount(code, clicks, len(value))
    total = by_value.sum()
    # Least number of levels of a log of few clicks, if there are as many clicks.
    least = min(int(total), 8)
    # Clicks of each level of the prior mean: its standard error is then a tenth.
    n_levels = max(int(total / 100.0), least, 1)
    # Share of the clicks above the middle of each place.
    share = (np.cumsum(by_value) - by_value / 2) / max(total, TINY)
    level = np.minimum(share * n_levels, n_levels - 1).astype(np.intp)
    return encode(level)[0][code]


def _centres(level, place, examinations):
    """Mean place of the examinations of each level."""
    weight = examinations + TINY
    return np.bincount(level, weight * place) / np.bincount(level, weight)


def _curve(level, place, clicks, examinations):
    """Mean relevance at each place: it falls with the place, linearly in its logarithm."""
    c = np.bincount(level, clicks)
    e = np.bincount(level, examinations)
    # Half an examination at the average: the logarithm of a level without clicks is finite.
    average = (c.sum() + 0.5) / (e.sum() + 0.5)
    rate = (c + 0.5 * average) / (e + 0.5)
    falling = isotonic_regression(rate, sample_weight=e + TINY, increasing=False)
    centres = _centres(level, place, examinations)
    return np.exp(np.interp(place, centres, np.log(falling)))


def _error_of_curve(level, place, clicks, examinations, curve):
    """Squared relative error of the curve: of the clicks of a level, and beyond the outer levels,
    where it is flat, by how much it would have changed at its mean slope."""
    centres = _centres(level, place, examinations)
    fall = np.log(curve.max() / curve.min())
    outside = place - np.clip(place, centres.min(), centres.max())
    beyond = outside / max(np.ptp(centres), TINY)
    noise = 1 / (np.bincount(level, clicks)[level] + 0.5)
    return noise + (fall * beyond) ** 2


def _spread(clicks, examinations, mean, unsure, start, shown):
    """Squared coefficient of variation of relevance about its prior mean, a power of the mean, and
    the logarithm of its factor and the power, found from a ``start``."""
    relative, some = _telling(clicks, examinations, mean, unsure, shown)
    expected = some.mean * some.examinations
    n = max(len(expected), 1)

    def loss(point):
        factor, power = point
        variance = some.shown * np.exp(factor + power * some.relative)
        shape = 1 / (variance + some.unsure)
        # A power far from 0 needs evidence, and keeps the logs of few clicks in range.
        likelihood = _log_marginal(some.clicks, some.examinations, some.mean, shape)
        value = 0.5 * power**2 - likelihood
        by_shape = digamma(shape + some.clicks) - digamma(shape) - np.log1p(expected / shape)
        by_shape = by_shape + (expected - some.clicks) / (shape + expected)
        slope = variance * shape**2 * by_shape
        by_power = slope @ some.relative + power
        return value / n, np.array([slope.sum(), by_power]) / n

    found = minimised(
        loss,
        start,
        "The spread of relevance",
        jac=True,
        bounds=[_LOG_SPREADS, _POWERS],
        # Of a round among many, the next of which starts here.
        options={"ftol": 1e-12, "gtol": 1e-6},
    )
    return _spread_at(found, relative), found


def _spread_at(point, relative):
    """Squared coefficient of variation at each relative prior mean."""
    factor, power = point
    return np.exp(np.clip(factor + power * relative, *_LOG_SPREADS))


class _Telling(NamedTuple):
    """What the likelihood of the spread reads of documents."""

    clicks: Floats
    examinations: Floats
    mean: Floats
    unsure: Floats  # squared relative error of the prior mean, as far as clicks show it
    relative: Floats  # log prior mean less its average
    shown: Floats


def _telling(clicks, examinations, mean, unsure, shown):
    """Logarithm of the prior mean, less its average over clicks; and what the likelihood of the
    spread reads of documents whose clicks show something of it, or of as many as are needed."""
    log_mean = np.log(mean)
    relative = log_mean - np.average(log_mean, weights=clicks + TINY)
    # Documents whose clicks show less of the spread than this share show nothing of it.
    some = np.flatnonzero(shown > 0.01)
    some = some[:: -(-len(some) // _MAX_DOCS) or 1]
    columns = clicks, examinations, mean, shown * unsure, relative, shown
    return relative, _Telling(*(values[some] for values in columns))


def _expected_spread(clicks, examinations, mean, unsure, shown):
    """Posterior mean of the squared coefficient of variation of relevance about its prior mean."""
    relative, some = _telling(clicks, examinations, mean, unsure, shown)
    log_likelihood = []
    for point in _GRID:
        variance = some.shown * _spread_at(point, some.relative) + some.unsure
        value = _log_marginal(some.clicks, some.examinations, some.mean, 1 / variance)
        log_likelihood.append(value)
    log_prior = -0.5 * (((_GRID - _USUAL) / _UNUSUAL) ** 2).sum(axis=1)
    posterior = softmax(np.array(log_likelihood) + log_prior)
    expected = 0.0
    for probability, point in zip(posterior, _GRID, strict=True):
        expected = expected + probability * _spread_at(point, relative)
    return expected


def _other_documents(clicks, examinations, curve, variance, query):
    """Factor of the query on the prior mean, and its squared error, from its other documents.

    A document counts by what it tells of the query: much examined, it tells of itself.
    """
    share = 1 / (1 + examinations * variance)
    observed = clicks * share
    expected = examinations * curve * share
    by_query = np.bincount(query, observed)
    means = np.bincount(query, expected)
    # The shape k of the factors of queries, of maximum marginal likelihood.
    some = slice(None, None, -(-len(means) // _MAX_DOCS))
    ones = np.ones(len(means[some]))

    def loss(log_shape):
        return -_log_marginal(by_query[some], means[some], ones, np.exp(log_shape))

    found = minimize_scalar(loss, bounds=_LOG_SHAPES_OF_QUERIES, method="bounded")
    shape = float(np.exp(found.x))
    # Without the document itself; below 0 is rounding.
    others = np.maximum(by_query[query] - observed, 0.0)
    expected_of_others = np.maximum(means[query] - expected, 0.0)
    return (others + shape) / (expected_of_others + shape), 1 / (others + shape)


def _log_marginal(clicks, examinations, mean, shape):
    """Log likelihood of Poisson clicks whose rate has a gamma prior, up to a constant."""
    strength = shape / mean
    return np.sum(
        gammaln(shape + clicks)
        - gammaln(shape)
        + shape * np.log(strength)
        - (shape + clicks) * np.log(strength + examinations)
    )
