"""The base class of rankers whose learner is a network or any estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._base._sklearn import HasMethods
from .._base._typing import Estimator, Floats
from .._torch._net import NeuralEstimator
from ._learners import scores_of_learner, takes_columns, takes_missing
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._log._roles import Takes


@dataclass(kw_only=True, eq=False, repr=False)
class LearnerRanker(NeuralEstimator, BaseRanker):
    """Base class of rankers whose learner is a network, or any ``estimator``.

    Subclasses write ``_fit_network(log, task)`` and ``_fit_estimator(log, seed)``, which returns
    the fitted clone of ``estimator``.
    """

    estimator: Estimator | None = None

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict"]), None],
    }

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        if self.estimator is None:
            self._fit_network(log, task)
        else:
            # One seed from the state, whose later draws do not matter to the estimator.
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.estimator_ = self._fit_estimator(log, seed)

    @property
    def _takes(self) -> Takes:
        return "categories" if takes_columns(self.estimator) else "numbers"

    @property
    def _refuses_missing(self) -> str | None:
        if self.estimator is None:
            return super()._refuses_missing
        return takes_missing(self.estimator)

    @property
    def _learns_more_by(self) -> Literal["network"] | None:
        return "network" if self.estimator is None else None

    def _score(self, features: NDArray[np.float32]) -> Floats:
        if not hasattr(self, "estimator_"):
            return super()._score(features)
        return scores_of_learner(self.estimator_, features)
