"""The base class of rankers that need the examination probability of every row."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from .._log._factors import examination_table
from .._log._reader import read
from .._log._roles import is_frame, read_role, without_columns
from .._sklearn import Interval
from .._typing import ArrayLike, Estimator, Floats, Table
from ..exceptions import AssumptionWarning, warn_user
from ..propensity._known import PowerLawPropensity
from ..propensity._source import PROPENSITY_CONSTRAINT, columns_of_source, row_propensities
from ..propensity._weights import debias_clicks, require_positive, warn_about_weights
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

__all__ = ["PropensityRanker", "with_positions"]


@dataclass(kw_only=True, eq=False, repr=False)
class PropensityRanker(BaseRanker):
    """Base class of rankers that need the examination probability of every row."""

    propensity: ArrayLike | Estimator | None = None
    clip: float | None = None

    #: True if the fit divides clicks by propensities.
    _divides = True

    _parameter_constraints = {
        "propensity": PROPENSITY_CONSTRAINT,
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    }

    def _read_features(self, X, *, reset):
        read = columns_of_source(self.propensity)
        if read and is_frame(X):
            X = without_columns(nw.from_native(X, eager_only=True), read).to_native()
        return super()._read_features(X, reset=reset)

    def _fit_propensity(self, X, y, sample_weight, roles):
        roles = with_positions(X, roles)
        propensity, estimator = row_propensities(
            self.propensity,
            X,
            y,
            sample_weight,
            roles,
            default=_assumed_curve,
            random_state=self.random_state,
        )
        if estimator is not None:
            self.propensity_ = estimator
        return {**roles, "propensity": propensity}

    def _fold(self, log: ClickLog) -> ClickLog:
        # After subclasses averaged them.
        if log.propensity is not None:
            require_positive(log)
        return super()._fold(log)

    @property
    def _least_propensity(self) -> float | None:
        """Bound that smaller propensities are raised to."""
        return self.clip

    def _divisors(self, log: ClickLog) -> Floats:
        """Propensity that the clicks of each row are divided by."""
        clip = self._least_propensity
        return log.propensity if clip is None else np.maximum(log.propensity, clip)

    def _debiased_clicks(self, log: ClickLog, normalize: bool = False) -> Floats:
        """Clicks over propensities, one number per row; sets the diagnostics of the weights."""
        self.examination_ = examination_table(log, log.propensity)
        clip = self._least_propensity
        if self._divides:
            warn_about_weights(log, clip=clip)
        debiased = debias_clicks(log, clip=clip, normalize=normalize)
        self.effective_sample_size_ = debiased.effective_sample_size
        self.largest_weight_ = debiased.largest_weight
        self.clipped_share_ = debiased.clipped_share
        return debiased.clicks


def with_positions(X: Table, roles: dict[str, Any]) -> dict[str, Any]:
    """The roles; without a position, the order of the rows of a query is their position."""
    if read_role(X, "position", roles["position"]) is not None:
        return roles
    rows = read(X, roles=roles, reads=("qid", "session", "position", "bias"))
    # The reader has warned about this order; with explicit positions it does not warn again.
    return {**roles, "qid": rows.query_ids[rows.query], "position": rows.position.astype(float)}


def _assumed_curve():
    warn_user(
        "No propensities given: examination is assumed to fall as 1 / position. Pass "
        "propensity=, or add the column 'propensity'.",
        AssumptionWarning,
    )
    return PowerLawPropensity(eta=1.0)
