"""Clicks of pages explained by scores, whatever examination may be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from .._base._typing import Floats
from .._log._clicklog import ClickLog
from .._log._segments import TINY
from ._solve import GroupedLogit


class FreeEffects:
    """Clicks of a log, given scores of its rows and a free effect of each bias factor.

    The effects hold examination, whatever it is. A wrong curve can therefore neither feign nor
    hide what a score explains.
    """

    def __init__(self, log: ClickLog, scores: NDArray[np.float64]) -> None:
        self.scores = scores  # (n_rows, n_scores)
        self.choice = GroupedLogit.of_log(log)
        self.log_examination = np.log(np.maximum(log.propensity, TINY))
        self.bias = log.bias
        self.n_factors = len(log.bias_values)
        #: Code in the log of the query of each list with a click, shape (n_lists,).
        self.query_of_list = log.query[self.choice.rows[self.choice.starts]]
        self._query = np.unique(self.query_of_list, return_inverse=True)[1]

    def losses(self) -> list[Floats]:
        """Loss per click of each score alone, with its best weight, divided by query."""
        losses = []
        for score in self.scores.T:
            logits, _, _ = self.mix(score[:, None])
            by_list = self.choice.list_losses(logits)
            losses.append(np.bincount(self._query, by_list) / self.choice.n_clicks)
        return losses

    def mix(
        self,
        scores: NDArray[np.float64],
        center: Floats | float = 0.0,
        strength: Floats | float = 0.0,
    ) -> tuple[Floats, Floats, Floats]:
        """The likeliest logits of rows, with effects of bias factors and weights of scores."""
        # A priori bias factors have no effect.
        no_effect = np.zeros(self.n_factors)
        center = np.append(no_effect, np.broadcast_to(center, scores.shape[1]))
        effects, weights = self.choice.likeliest_mix(
            scores, self.bias, self.log_examination, center, strength
        )
        logits = scores @ weights + effects[self.bias] + self.log_examination
        return logits, effects, weights

    def by_query(self, values: Floats) -> Floats:
        """Sums of values of used rows over each query with a click."""
        by_list = np.add.reduceat(values, self.choice.starts)
        return np.bincount(self._query, by_list)

    def within(self, score: Floats, share: Floats) -> Floats:
        """A score of rows less what effects of bias factors explain of it: (n_used,)."""
        choice = self.choice
        factor = self.bias[choice.rows]
        # Less the mean of each list, which the number of its clicks takes away.
        score = score[choice.rows]
        mean = np.add.reduceat(share * score, choice.starts)
        score = score - mean[choice.list_]
        # Weighted least squares on the effects of bias factors.
        information = choice.information(share, factor, self.n_factors)
        aim = np.bincount(factor, choice.expected(share) * score, self.n_factors)
        slope, _ = cg(information, aim, rtol=1e-8)
        mean_slope = information.coupling @ slope
        return score - slope[factor] + mean_slope[choice.list_]
