"""The base classes of rankers that need the examination probability of every row, and what they
warn of: clicks that contradict given propensities, pages of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator

from .._base._sklearn import Interval
from .._base._typing import ArrayLike, Estimator, Floats
from .._log._cells import examination_table
from .._log._estimator import NotPickled, if_fitted
from .._log._roles import is_frame, without_columns
from ..exceptions import AssumptionWarning, ClickDataWarning, python_value, warn_user
from ..identifiability._graph import warn_unless_identifiable
from ..propensity._curves import PowerLawPropensity
from ..propensity._known_curve import (
    dual_examination,
    implied_examination,
    learned_curve,
    told_curve,
    with_counts_of,
)
from ..propensity._source import (
    PROPENSITY_CONSTRAINT,
    RowsOfDataset,
    RowsOfLog,
    average_propensities,
    columns_of_source,
    debias_clicks,
    has_users,
    propensities,
    require_positive,
    shares_of_pages,
    warn_about_weights,
)
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


class TakesPropensities(BaseRanker):
    """Base class of rankers with a parameter ``propensity``."""

    propensity_ = NotPickled("which may hold curves of users", when=has_users)

    #: True if propensities are read at all.
    _uses_propensities = True
    #: True if no propensities were given, so that they are learned from the clicks.
    _curve_is_learned = False
    #: The curve that was learned from the first log.
    _curve = None

    @property
    def _tells_users_apart(self) -> bool:
        return self._reads_users or self._uses_propensities  # which may be of users

    def _read_features(self, X, *, reset):
        read = columns_of_source(self.propensity)
        if read and is_frame(X):
            X = without_columns(nw.from_native(X, eager_only=True), read).to_native()
        return super()._read_features(X, reset=reset)

    @property
    def _learns_examination(self) -> bool:
        """True while propensities are learned from the clicks of the log."""
        return self._curve_is_learned

    def _propensities(self, rows: RowsOfLog | RowsOfDataset, *, fit: bool) -> Floats | None:
        if not self._uses_propensities:
            return None
        rows.place()
        # A further log is read with the curve of the first.
        fitted = None if fit else if_fitted(self, "propensity_")
        if fitted is not None:
            return rows.predict(fitted)
        is_learned = self.propensity is None and rows.column is None
        if fit:
            self._curve_is_learned = is_learned
        elif is_learned != self._curve_is_learned:
            self._refuse_other_source(is_learned)
        if is_learned:
            return None
        found, estimator = propensities(self.propensity, rows, random_state=self.random_state)
        if estimator is not None:
            self.propensity_ = estimator
        return found

    def _refuse_other_source(self, is_learned):
        """Raise the error of a log that has propensities while the first had none, or not."""
        if is_learned:
            raise ValueError(
                "The first log has the role 'propensity', and this log has not. Add the column "
                "'propensity' to it, or pass propensity=."
            )
        raise ValueError(
            "This log has the role 'propensity', and the first log had not: its propensities were "
            "learned, and stay. Drop the column: X.drop(columns='propensity')."
        )

    def _with_examination(self, log: ClickLog) -> ClickLog:
        self._learn_curve(log)
        return self._with_propensities(log)

    def _learn_curve(self, log):
        """Set the curve of the first log, if it has to be learned."""
        if not self._curve_is_learned or self._curve is not None:
            return
        clicks = log
        if self._click_log is not None:
            # y is another outcome: examination is that of the clicks.
            clicks = replace(self._click_log, features=log.features)
        warn_unless_identifiable(clicks, network=True)
        self._curve = learned_curve(clicks, lambda: dual_examination(clicks, self))
        if self._curve.comparison is not None:
            self.examination_comparison_ = self._curve.comparison

    def _with_propensities(self, log: ClickLog) -> ClickLog:
        if self._curve is None:
            return log
        return replace(log, propensity=self._curve.propensity(log))


@dataclass(kw_only=True, eq=False, repr=False)
class PropensityRanker(TakesPropensities):
    """Base class of rankers that need the examination probability of every row."""

    propensity: ArrayLike | Estimator | Mapping[Any, Estimator] | None = None
    clip: float | None = None

    #: Curve that the log was read with, if propensities are those of bias factors.
    _told = None

    #: True if rows of a document have the mean of their propensities.
    _averages = False
    #: True if pages that did not show a document count as well, as pages that nobody examined.
    _counts_all_pages = False
    #: The bound on propensities; None without.
    clip_ = None

    _parameter_constraints = {
        "propensity": PROPENSITY_CONSTRAINT,
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    }

    @property
    def _corrects(self):
        return self._uses_propensities

    def _check_against(self, log):
        """Compare a curve that does not come from the log with what its clicks ask for."""
        told = vars(self).pop("_told", None)
        # An estimator that learned its curve from this log has nothing to contradict.
        fitted = getattr(self, "propensity_", PowerLawPropensity())
        if told is None or not isinstance(fitted, PowerLawPropensity | FrozenEstimator):
            return
        log_ratio, is_contradiction = implied_examination(log, self._score(log.features), told)
        implied = told * np.exp(log_ratio)
        known = np.flatnonzero(np.isfinite(implied))
        if not len(known):
            return
        # Both are relative to the first factor of which the clicks say something.
        first = known[0]
        self.examination_comparison_ = pd.DataFrame(
            {"told": told / told[first], "implied": implied / implied[first]},
            index=pd.Index(log.bias_values, name="bias"),
        )
        if is_contradiction:
            _warn_about_contradiction(self.examination_comparison_, log_ratio)

    def _fold(self, log: ClickLog) -> ClickLog:
        return super()._fold(log if self._uses_propensities else log.without_propensity())

    def _with_examination(self, log: ClickLog) -> ClickLog:
        if not self._uses_propensities:
            return log
        self._learn_curve(log)
        known = super()._with_propensities(log)
        if self._curve is None and "_told" not in vars(self):
            # A given curve is compared with the clicks after the fit.
            self._told = told_curve(known)
        self._set_examination(known)
        known = self._averaged(known)
        if self.clip is not None and "clip_" not in vars(self):
            # Propensities are known up to a factor.
            self.clip_ = self.clip * float(known.propensity.max(initial=0.0))
        return known

    def _with_propensities(self, log: ClickLog) -> ClickLog:
        if not self._uses_propensities:
            return log
        return self._averaged(super()._with_propensities(log))

    def _set_examination(self, log):
        if self._curve is None:
            self.examination_ = examination_table(log, log.propensity)
        elif "examination_" not in vars(self):
            self.examination_ = self._curve.table
        else:
            self.examination_ = with_counts_of(self.examination_, self._click_log or log)

    def _averaged(self, log):
        """The log with propensities that clicks can be divided by."""
        if self._averages:
            # Lists of different users then have equal propensities, and can be merged.
            log = super()._fold(average_propensities(log))
        require_positive(log)
        return log

    def _divisors(self, log: ClickLog) -> Floats:
        """Propensity that the clicks of each row are divided by, of a log of whole queries."""
        least = self.clip_ or 0.0
        if self._counts_all_pages:
            # Examination over all pages is the propensity times a share: the bound of the former.
            least = least / shares_of_pages(log)
        return np.maximum(log.propensity, least)

    def _debiased_clicks(self, log: ClickLog, relevance: Floats | None = None) -> Floats:
        """Clicks over propensities, one number per row; sets the diagnostics of the weights.

        With modelled relevance of the rows they are doubly robust.
        """
        divisor = log.by_chunk(self._divisors, whole_queries=True)
        warn_about_weights(log, divisor)
        debiased = debias_clicks(log, divisor=divisor, relevance=relevance)
        return self._describe(log, debiased)

    def _describe(self, log, debiased):
        """The debiased clicks, of which the diagnostics are set."""
        self.effective_sample_size_ = debiased.effective_sample_size
        self.largest_weight_ = debiased.largest_weight
        self.clipped_share_ = debiased.clipped_share
        return debiased.clicks


def _warn_about_contradiction(curves, log_ratio):
    # The two factors between which both curves differ most.
    low = curves.index[int(np.nanargmin(log_ratio))]
    high = curves.index[int(np.nanargmax(log_ratio))]
    told = curves["told"][low] / curves["told"][high]
    implied = curves["implied"][low] / curves["implied"][high]
    warn_user(
        "The clicks contradict the propensities: bias factor "
        f"{python_value(low)} is examined {told:.2g} times as often as "
        f"{python_value(high)} according to the propensities, and {implied:.2g} times "
        "according to the clicks. Either the propensities are wrong, and the ranker may be near "
        "random; or the production ranker used signals that the features lack; or users do not "
        "browse as assumed (trust in the top: AffineRanker; reading from the top: click models). "
        "Both curves are in examination_comparison_; see ExaminationDisplay.from_comparison. "
        "Estimate the propensities, or leave propensity=None if documents were shown at several "
        "positions.",
        AssumptionWarning,
    )


def warn_about_one_row_pages(log: ClickLog, subject: str, instead: str) -> None:
    """Warn if most clicks of some queries fell on pages of one row, where nothing is compared."""
    # The log joins the rows of such queries; without them all lists stay as they are.
    if log.comparable().n_lists == log.n_lists:
        return
    clicks = np.bincount(log.list_, log.clicks, minlength=log.n_lists)
    has_one_row = np.diff(log.offsets) == 1
    share = clicks[has_one_row].sum() / clicks.sum()
    warn_user(
        f"{share:.0%} of the clicks fell on pages of one row, from which {subject} learns "
        "nothing: it compares rows of the same page. Expected pages of several rows. If pages "
        "had more, give all rows of a page the same value in the column 'session'; otherwise use "
        f"{instead}.",
        ClickDataWarning,
    )
