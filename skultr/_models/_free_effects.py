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

    Whatever examination may be, it is in the effects, so that a wrong curve can neither feign nor
    hide what a score explains.
    """

    def __init__(self, log: ClickLog, scores: NDArray[np.float64]) -> None:
        self.scores = scores  # (n_rows, n_scores)
        self.choice = GroupedLogit.of_log(log)
        self.log_examination = np.log(np.maximum(log.propensity, TINY))
        self.bias = log.bias
        self.n_factors = len(log.bias_values)
        query = log.query[self.choice.rows[self.choice.starts]]
        self._query = np.unique(query, return_inverse=True)[1]

    def losses(self) -> list[Floats]:
        """Loss per click of each score alone, with its best weight, divided by query."""
        return [
            np.bincount(self._query, self.choice.list_losses(self.mix(score[:, None])[0]))
            / self.choice.n_clicks
            for score in self.scores.T
        ]

    def mix(
        self,
        scores: NDArray[np.float64],
        center: Floats | float = 0.0,
        strength: Floats | float = 0.0,
    ) -> tuple[Floats, Floats, Floats]:
        """The likeliest logits of rows, with effects of bias factors and weights of scores."""
        n = self.n_factors
        n_scores = scores.shape[1]
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
        choice = self.choice
        factor = self.bias[self.choice.rows]
        score = score[choice.rows]
        score = score - np.add.reduceat(share * score, choice.starts)[choice.list_]
        information = choice.information(share, factor, self.n_factors)
        aim = np.bincount(factor, choice.expected(share) * score, self.n_factors)
        slope, _ = cg(information, aim, rtol=1e-8)
        return score - slope[factor] + (information.coupling @ slope)[choice.list_]
