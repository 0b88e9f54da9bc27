"""Relevance of documents given clicks and examination, with a prior from where they were put."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, logit, ndtri
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning

from .._base._typing import Floats, Ints
from .._log._cells import Cells
from .._log._clicklog import ClickLog
from .._log._segments import TINY, encode, pair_codes
from ..exceptions import warn_user

#: Parameters that all documents share are learned from about so many of them.
_MAX_DOCS = 4_000
#: Documents that are held as nodes at once, and nodes of each.
_BLOCK, _NODES = 2_000, 48
#: Normal scores of places at which the slope of the curve changes.
_KNOTS = (-1.0, 0.0, 1.0)
#: Mean and standard deviation a priori of the parameters: the curve (its first mean is the click
#: rate per examination), the logarithm of the spread and its slope, and those of the spreads of
#: the two effects of queries.
_MEANS = np.array([0.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, np.log(0.5), np.log(0.3)])
_SPREADS = np.array([1.0, 0.7, 0.4, 0.4, 0.4, 0.6, 0.25, 0.5, 0.5])
_CURVE, _SPREAD, _QUERIES = slice(0, 5), slice(5, 7), slice(7, 9)
#: Standard deviation of log odds about the curve that is there in any case, so that nodes tell it.
_LEAST_SPREAD = 0.25
#: Standard deviation of log odds that nodes allow for before a prior is known.
_VAGUE = 1.5
#: Least curvature in units of the prior, most rounds and longest step, and the last one.
_LEAST_CURVATURE, _ROUNDS, _LONGEST, _SMALL_STEP = 0.5, 30, 2.0, 0.03
#: Step of numerical derivatives, in standard deviations of the prior.
_STEP = 0.02
#: Three points, and their weights, that have the moments of a standard normal up to the fifth.
_POINTS, _WEIGHTS = np.array([-1.0, 0.0, 1.0]) * np.sqrt(3), np.array([1, 4, 1]) / 6
_MOST = 1 - 1e-12


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
        query, place = np.zeros(n_docs, dtype=np.intp), np.zeros(n_docs)
        query[self.doc[order]] = self.query[order]  # the last one stays
        place[self.doc[order]] = self.place[order]
        return query, place


def logged_places(log: ClickLog) -> LoggedPlaces:
    """Where production put the documents of each query that were shown.

    By the role ``production``, if it was read: minus the score, less the mean of the query. Else
    by the mean position over the lists of the query, with the position below the deepest for
    lists without the document: a document that was rarely shown stood low.
    """
    n_docs, n_queries = log.n_docs, len(log.query_ids)
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
    lists = np.zeros(n_queries)
    np.maximum.at(lists, cells // depth, np.bincount(cell, log.weight, minlength=len(cells)))
    below = np.zeros(n_queries)
    np.maximum.at(below, log.query, log.position + 1.0)
    total = np.bincount(pair, log.weight * log.position, minlength=len(key))
    lists, below = np.maximum(lists[query], impressions), below[query]
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

    Of a document d of query q, at a place with the normal score z,

    .. math:: \operatorname{logit} r_d = f(z_d) + u_q + v_q z_d + \varepsilon_d

    with f linear between knots, and normal :math:`u_q, v_q` and :math:`\varepsilon_d`, whose
    standard deviation :math:`\tau` may change with z. The parameters have the greatest posterior
    density. What is known of d before its clicks are read comes from the *other* documents of its
    query, with the error of f added; :math:`\tau` is integrated over three points of its
    posterior. Clicks are binomial, of :math:`(\sum o)^2 / \sum o^2` impressions with the same
    examination. An ``error`` of log examination, by factor, widens the intervals.
    """

    def summed(value):
        return cells.of_documents(lambda _, part: part.by_doc(value(part)))

    def examined(part, power=1):
        return part.weight * examination[part.factor] ** power

    clicks, e, squares = (
        summed(value) for value in (lambda part: part.clicks, examined, lambda p: examined(p, 2))
    )
    evidence = _Evidence(
        clicks,
        np.maximum(e**2 / np.maximum(squares, TINY), clicks),
        np.where(e > 0, squares / np.maximum(e, TINY), 1.0),
        encode(query)[0],
        ndtri((rankdata(place) - 0.5) / len(place)),
    )
    rate = min((clicks.sum() + 0.5) / (e.sum() + 1.0), 0.9)
    some = np.flatnonzero(evidence.query % -(-len(clicks) // _MAX_DOCS) == 0)
    prior = _Prior.learned(evidence.at(some[:: -(-len(some) // _MAX_DOCS)]), logit(rate))
    found = np.empty((4, len(clicks)))
    order = np.argsort(evidence.query, kind="stable")
    starts = np.flatnonzero(np.diff(evidence.query[order], prepend=-1))
    blocks = np.unique(
        starts[np.searchsorted(starts, np.arange(0, len(order), _BLOCK), "right") - 1]
    )
    for rows in np.split(order, blocks[1:]):
        found[:, rows] = prior.posterior(evidence.at(rows))
    mean, lower, upper, prior_mean = found
    if error is not None:
        # The prior mean comes from the same curve.
        apart = summed(lambda part: 1.96 * examined(part) * error[part.factor]) / np.maximum(
            e, TINY
        )
        lower = mean * np.exp(-np.hypot(np.log(mean / lower), apart))
        upper = np.minimum(mean * np.exp(np.hypot(np.log(upper / mean), apart)), 1.0)
    return DocumentPosterior(mean, lower, upper, e, prior_mean)


class _Evidence(NamedTuple):
    """What the log tells of documents: clicks of impressions, each examined with a probability."""

    clicks: Floats  # (n_docs,)
    trials: Floats  # (n_docs,)
    examination: Floats  # (n_docs,)
    query: Ints  # (n_docs,), codes without gaps
    place: Floats  # (n_docs,), normal scores

    def at(self, rows):
        """The same of some documents."""
        part = _Evidence(*(values[rows] for values in self))
        return part._replace(query=encode(part.query)[0])

    def nodes(self, mean, spread):
        """Log odds of relevance, and the log likelihood there, two arrays of shape (n_nodes,
        n_docs): where it, times a normal density, is more than exp(-10) of its maximum."""
        rate = (self.clicks + 0.5) / (self.trials * self.examination + 1.0)
        likely = logit(np.clip(rate, 1e-9, 0.99))
        low, high = (
            np.minimum(mean - 4.5 * spread, likely),
            np.maximum(mean + 4.5 * spread, likely),
        )
        for _ in range(8):
            at = low + (high - low) * np.linspace(0, 1, _NODES)[:, None]
            click = np.minimum(expit(at) * self.examination, _MOST)
            value = self.clicks * log_expit(at) + (self.trials - self.clicks) * np.log1p(-click)
            density = value - 0.5 * ((at - mean) / spread) ** 2
            near = density > density.max(axis=0) - 10.0
            first, last = near.argmax(axis=0) - 1, _NODES - near[::-1].argmax(axis=0)
            if (first <= 0).all() and (last >= _NODES - 1).all():
                break
            step = (high - low) / (_NODES - 1)
            low, high = (
                low + np.maximum(first, 0) * step,
                low + np.minimum(last, _NODES - 1) * step,
            )
        return at, value


class _Prior(NamedTuple):
    """Parameters that all documents share."""

    parameters: Floats  # (9,)
    covariance: Floats  # (9, 9)

    @classmethod
    def learned(cls, evidence, level):
        """The parameters of greatest posterior density, by Newton's method."""
        means = _MEANS + level * np.eye(len(_MEANS))[0]
        queries = _Queries(evidence, means)
        point, steps = np.zeros(len(means)), _STEP * np.eye(len(means))

        def score(point):
            return queries.score(means + _SPREADS * point) * _SPREADS - point

        for _ in range(_ROUNDS):
            here = score(point)
            curvature = np.array([here - score(point + step) for step in steps]) / _STEP
            value, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
            inverse = vectors / np.maximum(value, _LEAST_CURVATURE) @ vectors.T
            step = inverse @ here
            point = point + step * min(1.0, _LONGEST / max(np.linalg.norm(step), TINY))
            if np.abs(step).max() < _SMALL_STEP:
                break
        else:
            warn_user(
                f"The prior of the relevance of documents did not converge in {_ROUNDS} rounds: "
                "few clicks, or few places of documents, hardly determine it. Log more sessions.",
                ConvergenceWarning,
            )
        return cls(means + _SPREADS * point, inverse * np.outer(_SPREADS, _SPREADS))

    def posterior(self, evidence):
        """Mean, ends of the 95 % interval and prior mean of documents, shape (4, n_docs)."""
        queries = _Queries(evidence, self.parameters)
        mean, unsure, spread = queries.others(self.parameters)
        unsure = unsure + _variance(queries.curve, self.covariance[_CURVE, _CURVE])
        doubt = np.sqrt(_variance(queries.effects, self.covariance[_SPREAD, _SPREAD]))
        variances = spread * np.exp(2 * doubt * _POINTS[:, None]) + unsure
        at, value = evidence.nodes(mean, np.sqrt(_WEIGHTS @ variances))
        value = np.exp(value - value.max(axis=0))
        density = sum(
            weight * np.exp(-0.5 * (at - mean) ** 2 / variance) / np.sqrt(variance)
            for weight, variance in zip(_WEIGHTS, variances, strict=True)
        )
        density *= value
        density /= density.sum(axis=0)
        below = np.cumsum(density, axis=0) - density / 2
        ends = (expit(_quantile(at, below, p)) for p in (0.025, 0.975))
        # The logistic of a normal variable is on average about that of its mean over this root.
        prior_mean = expit(mean / np.sqrt(1 + np.pi / 8 * (_WEIGHTS @ variances)))
        return np.array([(density * expit(at)).sum(axis=0), *ends, prior_mean])


class _Queries:
    """Documents and the effects of their queries."""

    def __init__(self, evidence, parameters):
        self.query, self.n = evidence.query, evidence.query.max(initial=-1) + 1
        z = evidence.place
        self.at, self.value = evidence.nodes(parameters[0] + parameters[1] * z, _VAGUE)
        self.effects = np.stack([np.ones_like(z), z])
        self.curve = np.stack([*self.effects, *(np.maximum(z - knot, 0) for knot in _KNOTS)])
        self.found = np.zeros((self.n, 2))

    def moments(self, mean, variance):
        """Mean and variance of log odds given the clicks and a normal prior."""
        density = self.value - 0.5 * (self.at - mean) ** 2 / variance
        density = np.exp(density - density.max(axis=0))
        density /= density.sum(axis=0)
        found = (density * self.at).sum(axis=0)
        return found, (density * (self.at - found) ** 2).sum(axis=0)

    def by_query(self, value):
        return np.bincount(self.query, value, self.n)

    def others(self, parameters):
        """Prior mean of log odds of each document and its variance, from the other documents of
        its query, and the variance about it; sets the effects of queries and their covariance.

        Effects are at the maximum of their posterior density, with its curvature (Laplace).
        """
        curve = parameters[_CURVE] @ self.curve
        spread = _LEAST_SPREAD**2 + np.exp(2 * (parameters[_SPREAD] @ self.effects))
        precision = np.exp(-2 * parameters[_QUERIES])
        for _ in range(20):
            mean = curve + (self.found[self.query].T * self.effects).sum(axis=0)
            likely, variance = self.moments(mean, spread)
            slope = (likely - mean) / spread
            bend = np.maximum(1 - variance / spread, 1e-9) / spread
            aim = np.stack([self.by_query(slope * effect) for effect in self.effects], axis=1)
            known = [[self.by_query(bend * a * b) for a in self.effects] for b in self.effects]
            self.covariance = np.linalg.inv(np.moveaxis(known, 2, 0) + np.diag(precision))
            step = (self.covariance @ (aim - self.found * precision)[:, :, None])[:, :, 0]
            self.found = self.found + np.clip(step, -1, 1)
            if np.abs(step).max(initial=0.0) < 1e-4:
                break
        told = np.einsum("id,dij,jd->d", self.effects, self.covariance[self.query], self.effects)
        unsure = 1 / np.maximum(1 / told - bend, 1e-9)
        return mean - slope * unsure, unsure, spread

    def score(self, parameters):
        """Slope of the log likelihood, by Fisher's identity: that of the joint density of clicks,
        documents and queries, averaged over their posterior."""
        mean, unsure, spread = self.others(parameters)
        likely, variance = self.moments(mean, spread + unsure)
        share = spread / (spread + unsure)
        apart = share * (likely - mean)
        excess = (share**2 * variance + apart**2 + share * unsure) / spread - 1
        squares = self.found**2 + self.covariance[:, [0, 1], [0, 1]]
        return np.concatenate(
            [
                self.curve @ (apart / spread),
                self.effects @ (excess * (1 - _LEAST_SPREAD**2 / spread)),
                (squares * np.exp(-2 * parameters[_QUERIES]) - 1).sum(axis=0),
            ]
        )


def _variance(design, covariance):
    """Variance of each column of a design, shape (n_docs,)."""
    return np.einsum("id,ij,jd->d", design, covariance, design)


def _quantile(at, below, p):
    """The node, between two of them, below which a document lies with probability p."""
    row = np.clip((below < p).sum(axis=0), 1, len(at) - 1)[None]
    (low,), (high,) = (np.take_along_axis(at, row - k, 0) for k in (1, 0))
    (under,), (over,) = (np.take_along_axis(below, row - k, 0) for k in (1, 0))
    share = np.clip((p - under) / np.maximum(over - under, TINY), 0, 1)
    return low + share * (high - low)
