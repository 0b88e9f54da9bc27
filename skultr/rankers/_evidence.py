"""What clicks of held-out queries say of scores, whatever examination may be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse.linalg import cg
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from .._base._sklearn import seeded_clone, silent_clone
from .._base._typing import Floats, Ints
from .._log._segments import TINY, largest_by_code, mix, pair_codes
from .._models._solve import GroupedLogit
from ..exceptions import ClickDataWarning, UnstableWeightsWarning, warn_user
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

#: Standard errors by which held-out clicks must confirm a correction: with a curve that documents
#: which moved determine, or that was given, and with one that was learned with relevance.
KNOWN_CURVE, LEARNED_CURVE = 1.0, 2.0
#: Least propensity of a correction, as a share of the largest one, unless held-out clicks confirm
#: firmly that it needs no bound. Without a bound an error of the curve, or a few clicks of rows
#: that hardly anybody examined, undo what production knew.
BOUND = 0.1
#: The clicks of fewer queries confirm nothing.
LEAST_QUERIES = 10
#: Relative difference of losses that is rounding.
_ROUNDING = 1e-5


class Confirmation(NamedTuple):
    """Whether held-out clicks confirm a correction of clicks by propensities."""

    evidence: float  # a z-score; NaN: too few clicks to test; infinite: nothing is corrected
    table: pd.DataFrame | None
    log_examination: Floats  # (n_factors,)
    is_unbounded: bool = False  # small propensities are confirmed, too

    def least(self, propensity: Floats) -> float | None:
        """Lower bound on propensities, which are known up to a factor."""
        return None if self.is_unbounded else BOUND * float(propensity.max())

    def refuses(self, anyway: str, *, is_learned: bool) -> bool:
        """True, with a warning, if clicks could have confirmed the correction and did not.

        The warning names the parameter that corrects ``anyway``.
        """
        least = LEARNED_CURVE if is_learned else KNOWN_CURVE
        if not self.evidence < least:
            return False
        warn_user(
            "Held-out clicks do not confirm the correction of position bias: the z-score for "
            "better predictions of clicks at the same position is "
            f"{self.evidence:.2f}, expected at least {least:.2f}. The ranker is trained without "
            "the correction. Log more sessions, or vary the order of results "
            f"(IdentifiabilityRepair shows where). To correct anyway, pass {anyway}.",
            ClickDataWarning,
        )
        return True


#: What is known without a test.
UNTESTED = Confirmation(np.nan, None, np.empty(0))


def confirmation(
    log: ClickLog,
    judges: tuple[Any, Any],
    random: np.random.RandomState,
    *,
    clicks: ClickLog | None = None,
    assumed: bool = False,
) -> Confirmation:
    """Compare a naive and a debiased ranker by clicks that neither has seen.

    The propensities of the log are those of the second ranker. If they are ``assumed``, they are
    only a start: the examination that its held-out scores ask for takes their place, once. The
    second must explain clicks within positions better than the first: a curve that takes
    relevance for examination makes scores that explain nothing there. The debiased ranker raises
    small propensities to a bound. A third one does not; it is preferred if it is better than the
    naive one by two standard errors, and not worse than the second by one. Where the target of
    the log is another outcome, its ``clicks`` judge.
    """
    if clicks is not None:
        log = replace(clicks, features=log.features, propensity=log.propensity)
    # Propensities are known up to a factor, and judges bound them.
    most = max(float(log.propensity.max(initial=0.0)), TINY)
    log, n_factors = replace(log, propensity=log.propensity / most).sample(), len(log.bias_values)
    rows = np.maximum(np.bincount(log.bias, minlength=n_factors), 1)
    curve = np.bincount(log.bias, np.log(np.maximum(log.propensity, TINY)), n_factors) / rows
    if log.propensity.min() == log.propensity.max():
        return Confirmation(np.inf, None, curve, is_unbounded=True)
    part = parts_of_queries(log, 2, random)
    if part is None:
        return Confirmation(np.nan, None, curve)
    seed = random.randint(2**31 - 1)
    naive, debiased = (seeded_clone(each, seed) for each in judges)
    naive_scores = cross_fitted(log, [naive], part)
    if assumed:
        log = replace(log, propensity=np.exp(curve)[log.bias])
        curve = curve + HeldOut(log, cross_fitted(log, [debiased], part)).effects()
        log = replace(log, propensity=np.exp(curve - curve.max())[log.bias])
    ways = {"corrected": debiased}
    if log.propensity.min() < BOUND * (1 - 1e-9):  # else the bound bounds nothing
        ways["unbounded"] = clone(debiased).set_params(clip=None)
    held_out = HeldOut(
        log, np.column_stack([naive_scores, cross_fitted(log, [*ways.values()], part)])
    )
    if not held_out.scores.any():  # too few documents to learn from
        return Confirmation(np.nan, None, curve)
    losses = pd.DataFrame(held_out.losses(), index=pd.Index(["naive", *ways], name="correction"))
    gains, loss = losses.loc["naive"] - losses, losses.sum(axis=1)
    table = pd.DataFrame({"loss": loss, "excess": loss - loss.min()}).assign(
        standard_error=np.linalg.norm(gains, axis=1)
    )
    evidence = {way: evidence_of(gains.loc[way], loss["naive"]) for way in ways}
    is_unbounded = evidence.get("unbounded", 0.0) >= LEARNED_CURVE
    if is_unbounded:
        gain = losses.loc["corrected"] - losses.loc["unbounded"]
        is_unbounded = evidence_of(gain, loss["naive"]) > -KNOWN_CURVE
    way = "unbounded" if is_unbounded else "corrected"
    return Confirmation(evidence[way], table, curve, is_unbounded)


def evidence_of(gain: Floats, loss: float) -> float:
    """z-score over queries of a gain in ``loss``; where scores explain nothing, it is rounding."""
    return float(np.sum(gain) / max(float(np.linalg.norm(gain)), _ROUNDING * loss, TINY))


def cross_fitted(
    log: ClickLog, rankers: Sequence[Any], part: Ints, n_jobs: int | None = None
) -> NDArray[np.float64]:  # (n_rows, n_rankers)
    """Scores of the rows by rankers that were fitted to the other parts of the queries.

    They are standardised over the candidates of each query.
    """
    candidates, place = candidates_of(log)
    query, version = np.divmod(candidates, log.n_versions)
    work = [(m, k) for m in range(len(rankers)) for k in range(part.max() + 1)]
    found = Parallel(n_jobs=n_jobs)(
        delayed(_fitted_elsewhere)(
            rankers[m], log, np.flatnonzero(part != k), log.features[version[here]], query[here]
        )
        for m, k in work
        for here in [part[query] == k]
    )
    scores = np.zeros((len(query), len(rankers)))
    for (m, k), values in zip(work, found, strict=True):
        scores[part[query] == k, m] = values
    return np.column_stack([standardized(column, query) for column in scores.T])[place]


def _fitted_elsewhere(ranker, log, others, features, query):
    ranker = silent_clone(ranker)
    patience = ranker.get_params(deep=False).get("n_iter_no_change")
    if isinstance(patience, Integral) and patience > 1:
        # Epochs or trees beyond the best one are half of the time, and are thrown away.
        ranker.set_params(n_iter_no_change=(int(patience) + 1) // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to the whole log warns
        return scores_of(fit_member(ranker, log.part_of(others)), features, query)


def fit_member(ranker: Any, log: ClickLog) -> Any:
    """The ranker fitted to the log, with its propensities if it takes them."""
    source = ranker.get_params(deep=False).get("propensity", False)
    takes = source is None or isinstance(source, str)
    with warnings.catch_warnings():
        # Held-out clicks judge the members.
        warnings.simplefilter("ignore", UnstableWeightsWarning)
        return fit_to_log(ranker, log if takes else log.without_propensity())


def scores_of(ranker: Any, features: NDArray[Any], query: Ints) -> Floats:
    """Scores of a ranker, higher is better, for documents of several queries.

    The features were read already.
    """
    if isinstance(ranker, BaseRanker):
        hooks = type(ranker).predict, type(ranker)._scores_within
        if hooks == (BaseRanker.predict, BaseRanker._scores_within):  # they would read them again
            return ranker._scores_of_features(features)
        return ranker._scores_within(features, query)
    return -ranker.rank(features, qid=query)  # other rankers need not have scores


def candidates_of(log: ClickLog) -> tuple[Ints, Ints]:
    """Codes of the pairs of query and version in a log, sorted, and the place of each row."""
    key = pair_codes(log.query, log.version, log.n_versions)
    return np.unique(key, return_inverse=True)


def parts_of_queries(log: ClickLog, n_parts: int, random: np.random.RandomState) -> Ints | None:
    """Part of each query, with as many queries with clicks in each; None if these are few."""
    clicked = np.bincount(log.query, log.clicks, len(log.query_ids)) > 0
    if clicked.sum() < max(LEAST_QUERIES, n_parts):
        return None
    # A sum over clicks and impressions by position, so that parts depend neither on ids nor on
    # which equal pages were merged.
    content = np.zeros(len(clicked), dtype=np.uint64)
    for rows in log.chunks():
        place = mix(rows.position.astype(np.uint64))
        counts = [each.astype(np.uint64) for each in (rows.clicks, rows.weight)]
        np.add.at(content, rows.query, place * counts[0] + mix(place) * counts[1])
    seed = np.uint64(random.randint(2**31 - 1))
    part, order = np.empty(len(clicked), dtype=int), np.lexsort([mix(content ^ seed), ~clicked])
    part[order] = np.arange(len(order)) % n_parts
    return part


def standardized(
    scores: NDArray[np.float64], query: Ints, rounding: float = 1e-6
) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1 in each query; 0 where they are constant."""
    apart, spread, _ = _within(scores, query, rounding)
    return apart / spread[query]


def typical_spread(scores: NDArray[np.float64], query: Ints, rounding: float = 1e-6) -> float:
    """Standard deviation of scores within a query, the median over queries where they vary.

    Infinite if they never do.
    """
    _, spread, largest = _within(scores, query, rounding)
    varies = np.isfinite(spread)
    return float(np.median(spread[varies] * largest[varies])) if varies.any() else np.inf


def _within(scores, query, rounding):
    """Deviations from the mean of the query, their standard deviation by query (infinite where
    scores are constant), both over the largest score of the query; and this."""
    n = np.maximum(np.bincount(query), 1)
    largest = largest_by_code(query, np.abs(scores), len(n))
    # Relative to the largest, so that nothing overflows.
    scores = scores / np.where(largest > 0, largest, 1.0)[query]
    apart = scores - (np.bincount(query, scores) / n)[query]
    spread = np.sqrt(np.bincount(query, apart**2) / n)
    return apart, np.where(spread > rounding, spread, np.inf), largest


class HeldOut:
    """Clicks of a log, and scores of its rows that did not learn from them.

    Each bias factor has an effect of its own on clicks: whatever examination may be, it is in the
    effects, so that a wrong curve can neither feign nor hide what a score explains.
    """

    def __init__(self, log: ClickLog, scores: NDArray[np.float64]) -> None:
        self.scores = scores  # (n_rows, n_scores)
        self.choice = GroupedLogit.of_log(log)
        self.log_examination = np.log(np.maximum(log.propensity, TINY))
        self.bias, self.n_factors = log.bias, len(log.bias_values)
        query = log.query[self.choice.rows[self.choice.starts]]
        self._query = np.unique(query, return_inverse=True)[1]

    def losses(self) -> list[Floats]:
        """Loss per click of each score alone, with its best weight, divided by query."""
        return [
            np.bincount(self._query, self.choice.list_losses(self.mix(score[:, None])[0]))
            / self.choice.n_clicks
            for score in self.scores.T
        ]

    def effects(self) -> Floats:
        """The likeliest effect of each bias factor given the scores, relative to propensities."""
        return self.mix(self.scores)[1]

    def mix(
        self,
        scores: NDArray[np.float64],
        center: Floats | float = 0.0,
        strength: Floats | float = 0.0,
    ) -> tuple[Floats, Floats, Floats]:
        """The likeliest logits of rows, with effects of bias factors and weights of scores."""
        n, n_scores = self.n_factors, scores.shape[1]
        effects, weights = self.choice.likeliest_mix(
            scores,
            self.bias,
            self.log_examination,
            np.append(np.zeros(n), np.broadcast_to(center, n_scores)),
            strength,
        )
        return scores @ weights + effects[self.bias] + self.log_examination, effects, weights

    def by_query(self, values: Floats) -> Floats:
        """Sums of values of used rows over each query with a click."""
        return np.bincount(self._query, np.add.reduceat(values, self.choice.starts))

    def within(self, score: Floats, share: Floats) -> Floats:
        """A score of rows less what effects of bias factors explain of it: (n_used,)."""
        choice, factor = self.choice, self.bias[self.choice.rows]
        score = score[choice.rows]
        score = score - np.add.reduceat(share * score, choice.starts)[choice.list_]
        information = choice.information(share, factor, self.n_factors)
        aim = np.bincount(factor, choice.expected(share) * score, self.n_factors)
        slope, _ = cg(information, aim, rtol=1e-8)
        return score - slope[factor] + (information.coupling @ slope)[choice.list_]
