"""Weights of the members of an ensemble, from clicks on queries that no member was fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from .._base._typing import Bools, Floats, Ints
from .._log._clicklog import ClickLog
from .._log._segments import TINY, pair_codes, rank_in_segment
from .._models._click_choice import ClickChoice

#: Strengths of the pull towards equal weights, in units of the log-likelihood per click.
_STRENGTHS = (*10.0 ** np.arange(1.5, -3.1, -0.5), 0.0)
#: Queries with more candidates than this multiple of the documents shown are only reranked.
_MANY = 3


class Weights(NamedTuple):
    """Weights of members that sum to 1, and their standard errors."""

    value: Floats  # (n_members,)
    standard_error: Floats  # (n_members,)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Clicks of a log, and scores of members for it, that are standardised within queries."""

    scores: NDArray[np.float64]  # (n_candidates, n_members), of pairs of query and version
    candidate: Ints  # (n_used,), of each row of a list with a click
    bias: Ints  # (n_used,)
    n_factors: int
    offset: Floats  # (n_used,)
    query: Ints  # (n_lists,)
    choice: ClickChoice  # of used rows

    @classmethod
    def of_log(cls, log: ClickLog, candidates: Ints, scores: NDArray[np.float64]) -> HeldOut:
        """The clicks of a log, and members' scores of the pairs :func:`candidates_of` it."""
        choice = ClickChoice.of_log(log)
        rows = choice.rows
        return cls(
            scores,
            np.searchsorted(
                candidates, pair_codes(log.query[rows], log.version[rows], log.n_versions)
            ).astype(np.int32),
            log.bias[rows],
            len(log.bias_values),
            np.log(log.propensity[rows]),
            log.query[rows[choice.starts]],
            replace(choice, rows=slice(None)),
        )

    def losses(self) -> Floats:
        """Loss of each member alone, with its best weight: nats per click, shape (n_members,)."""
        return np.array(
            [
                self.choice.loss((column @ self._best(column))[self.candidate] + self.offset)
                for column in np.hsplit(self.scores, self.scores.shape[1])
            ]
        )

    def weights(self, bounded: Ints) -> Weights:
        r"""The weights nearest to equal ones that the clicks do not refute.

        Along a path from equal weights to the most likely ones, the first whose loss is within
        one standard error of the loss at the end; the error is that of the difference, over
        queries.
        """
        n = self.scores.shape[1]
        scale = float(self._best(self.scores.sum(axis=1, keepdims=True))[0])
        path = [(np.eye(n), np.full(n, scale), np.inf)]
        path += [(*self._bounded(scale, s * self.choice.n_clicks, bounded), s) for s in _STRENGTHS]
        map_, point, _ = path[-1]
        end, end_losses = map_ @ point, self._query_losses(map_ @ point)
        if not end.sum() > TINY:
            return given_weights(np.ones(n))
        for map_, point, strength in path:  # noqa: B007
            behind = self._query_losses(map_ @ point) - end_losses
            if behind.sum() <= np.sqrt(len(behind)) * behind.std():
                break
        if np.isinf(strength) or not point.sum() > TINY:
            return given_weights(np.ones(n))
        return self._with_errors(map_, point, strength * self.choice.n_clicks)

    def evidence(self, members: Ints) -> float:
        r"""How firmly held-out clicks confirm the mean score of members, within positions.

        The score test of :math:`w = 0` in :math:`P(i) = \mathrm{softmax}(w s + h_{b})_i` with one
        free effect :math:`h` for each bias factor. Whatever examination may be, it is in
        :math:`h`, so that a wrong curve can neither feign nor hide evidence.
        """
        choice, factor, n = self.choice, self.bias, self.n_factors
        free = choice.likeliest_examination(np.zeros(len(factor)), factor, np.zeros(n))
        share = choice.shares(np.nan_to_num(free)[factor])
        expected = choice.expected(share)
        score = self.scores[:, members].mean(axis=1)[self.candidate]
        score = score - np.add.reduceat(share * score, choice.starts)[choice.list_]
        # Information of the effects, and between them and the score; then the score's residual.
        information = choice.information(share, factor, n)
        shared = np.bincount(factor, expected * score, minlength=n)
        slope, _ = cg(information, shared, rtol=1e-8)
        slope_of_list = information.coupling @ slope
        residual = score - slope[factor] + slope_of_list[choice.list_]
        by_query = self._by_query(residual * (choice.clicks - expected))
        return float(by_query.sum() / max(np.sqrt(by_query @ by_query), TINY))

    def _best(self, scores):
        return self.choice.best_weights(scores, self.offset, place=self.candidate)

    def _bounded(self, scale, strength, bounded):
        """The likeliest weights as map and point, with the bound on some members."""
        n = self.scores.shape[1]
        map_ = np.eye(n)
        others = np.setdiff1d(np.arange(n), bounded)
        point = self._likeliest(map_, scale, strength)
        if len(others) and (point[bounded] > point[others].mean()).any():
            # The problem is convex: the solution is where the bound holds with equality.
            map_ = map_[:, others]
            map_[bounded] = 1 / len(others)
            point = self._likeliest(map_, scale, strength)
        return map_, point

    def _likeliest(self, map_, scale, strength):
        return self.choice.best_weights(
            self.scores @ map_,
            self.offset,
            center=scale,
            strength=strength,
            place=self.candidate,
        )

    def _query_losses(self, weights):
        """Loss of each query with a click."""
        losses = self.choice.list_losses((self.scores @ weights)[self.candidate] + self.offset)
        return _sums(self.query, losses)

    def _with_errors(self, map_, point, strength):
        weights = map_ @ point
        choice = self.choice
        used = map_[:, point > 0]
        scores = self.scores @ used
        share = choice.shares((self.scores @ weights)[self.candidate] + self.offset)
        surplus = choice.clicks - choice.expected(share)
        hessian = scores.T @ (choice.information(share, self.candidate, len(scores)) @ scores)
        columns = scores[self.candidate].T
        gradient = np.column_stack([self._by_query(surplus * each) for each in columns])
        inverse = np.linalg.pinv(hessian + strength * np.eye(len(hessian)))
        # Of weights that sum to 1, by the delta method.
        total = weights.sum()
        to_share = used / total - np.outer(weights, used.sum(axis=0)) / total**2
        covariance = to_share @ inverse @ (gradient.T @ gradient) @ inverse @ to_share.T
        error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return Weights(weights / total, np.where(weights > 0, error, np.nan))

    def _by_query(self, values):
        """Sums over the used rows of each query."""
        return _sums(self.query, np.add.reduceat(values, self.choice.starts))


def candidates_of(log: ClickLog) -> Ints:
    """Codes of the pairs of query and version in a log, sorted."""
    return np.unique(pair_codes(log.query, log.version, log.n_versions))


def given_weights(share: NDArray[np.float64]) -> Weights:
    """Weights in the proportion of ``share``, shape (n_members,), that are not estimated."""
    return Weights(share / share.sum(), np.full(len(share), np.nan))


def standardized(
    scores: NDArray[np.float64], query: Ints, rounding: float = 1e-6
) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1 in each query; 0 where they are constant."""
    n = np.maximum(np.bincount(query), 1)
    largest = np.zeros(len(n))
    np.maximum.at(largest, query, np.abs(scores))
    # Relative to the largest, so that nothing overflows.
    scores = scores / np.where(largest > 0, largest, 1.0)[query]
    apart = scores - (np.bincount(query, scores) / n)[query]
    spread = np.sqrt(np.bincount(query, apart**2) / n)
    varies = spread > rounding
    return np.where(varies[query], apart / np.where(varies, spread, 1.0)[query], 0.0)


def shown_depth(log: ClickLog) -> int:
    """Number of documents that the log showed per query: the median over impressions.

    It is at least the number of rows of the longest page.
    """
    key = np.unique(pair_codes(log.query, log.doc, log.n_docs))
    n_shown = np.bincount(key // log.n_docs)
    impressions = np.bincount(log.query, log.weight)
    order = np.argsort(n_shown, kind="stable")
    share = np.cumsum(impressions[order]) / impressions.sum()
    median = n_shown[order][np.searchsorted(share, 0.5)]
    return int(max(median, log.position.max()))


def reranked(production: NDArray[np.float64], query: Ints, depth: int) -> tuple[Bools, Ints]:
    """Candidates that are ranked anew, and the rank of each by production.

    Each candidate is one row. They are all candidates of a query, or the first ``depth`` by
    production if there are more than three times as many: most of the others were never shown,
    and no click says how good a model is for them.
    """
    place = rank_in_segment(query, production)
    many = np.bincount(query) > _MANY * depth
    return ~many[query] | (place <= depth), place


def standardized_within(
    scores: NDArray[np.float64], query: Ints, inside: Bools, rounding: float = 1e-6
) -> NDArray[np.float64]:
    """Scores standardised over the rows ``inside``; the other rows have the least of these."""
    found = np.zeros(len(scores))
    found[inside] = standardized(scores[inside], query[inside], rounding)
    least = np.full(int(query.max(initial=-1)) + 1, np.inf)
    np.minimum.at(least, query[inside], found[inside])
    return np.where(inside, found, least[query])


def _sums(code, values):
    """Sums by code, for the codes that occur."""
    _, code = np.unique(code, return_inverse=True)
    return np.bincount(code, values)
