"""The base class of rankers that need the examination probability of every row, and what they warn
of: clicks that contradict given propensities, pages of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.stats import chi2
from sklearn.frozen import FrozenEstimator

from .._base._sklearn import Interval
from .._base._typing import ArrayLike, Estimator, Floats
from .._log._cells import examination_table
from .._log._estimator import NotPickled, if_fitted
from .._log._roles import is_frame, without_columns
from .._models._table_curve import table_curve, table_of_cells
from ..exceptions import AssumptionWarning, ClickDataWarning, python_value, warn_user
from ..propensity._curves import PowerLawPropensity
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
    warn_about_weights,
)
from ._evidence import Confirmation, HeldOut, confirmation
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: A curve is taken from the log if it has so many clicks per bias factor, and if this is the
#: root mean square, over the clicks, of the standard errors of log examination.
_LEAST_CLICKS, _LARGEST_ERROR = 10, 0.4


class TakesPropensities(BaseRanker):
    """Base class of rankers with a parameter ``propensity``."""

    propensity_ = NotPickled("which may hold curves of users", when=has_users)

    #: True if propensities are read at all.
    _uses_propensities = True

    @property
    def _tells_users_apart(self) -> bool:
        return self._reads_users or self._uses_propensities  # which may be of users

    def _read_features(self, X, *, reset):
        read = columns_of_source(self.propensity)
        if read and is_frame(X):
            X = without_columns(nw.from_native(X, eager_only=True), read).to_native()
        return super()._read_features(X, reset=reset)

    def _propensities(self, rows: RowsOfLog | RowsOfDataset, *, fit: bool) -> Floats | None:
        if not self._uses_propensities:
            return None
        rows.place()
        fitted = None if fit else if_fitted(self, "propensity_")
        if fitted is not None:
            return rows.predict(fitted)
        found, estimator = propensities(
            self.propensity,
            rows,
            default=(lambda: _curve_of(rows.cells)) if fit else _no_propensity,
            random_state=self.random_state,
        )
        if estimator is not None:
            self.propensity_ = estimator
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class PropensityRanker(TakesPropensities):
    """Base class of rankers that need the examination probability of every row."""

    propensity: ArrayLike | Estimator | Mapping[Any, Estimator] | None = None
    clip: float | None = None

    #: Curve that the log was read with, if propensities are those of bias factors.
    _told = None
    #: True if rows of a document have the mean of their propensities.
    _averages = False
    #: Parameter with which held-out clicks are not asked.
    _anyway = "clip=0.1"

    _parameter_constraints = {
        "propensity": PROPENSITY_CONSTRAINT,
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    }

    def _check_against(self, log):
        """Compare a curve that does not come from the log with what its clicks ask for."""
        told = vars(self).pop("_told", None)
        fitted = getattr(self, "propensity_", PowerLawPropensity())
        if told is None or not isinstance(fitted, PowerLawPropensity | FrozenEstimator):
            return
        log_ratio, is_contradiction = implied_examination(log, self._score(log.features), told)
        curves = {"told": told, "implied": told * np.exp(log_ratio)}
        known = np.flatnonzero(np.isfinite(curves["implied"]))
        if not len(known):
            return
        self.examination_comparison_ = pd.DataFrame(
            {name: curve / curve[known[0]] for name, curve in curves.items()},
            index=pd.Index(log.bias_values, name="bias"),
        )
        if is_contradiction:
            _warn_about_contradiction(self.examination_comparison_, log_ratio)

    def _fold(self, log: ClickLog) -> ClickLog:
        if not self._uses_propensities:
            log = log.without_propensity()
        elif log.propensity is not None:
            if "_told" not in vars(self):  # the first log that is read, not that for validation
                self._told = told_curve(log)
            if self._averages:
                # Lists of different users then have equal propensities, and can be merged.
                log = average_propensities(log)
            require_positive(log)
        return super()._fold(log)

    def _confirmed(
        self, log: ClickLog, random: np.random.RandomState, judges: tuple[Any, Any]
    ) -> tuple[ClickLog, Confirmation | None]:
        """The log with the propensities that a correction takes, and what confirms it; None if
        clicks refuse it.

        Propensities that are no more than an assumption give way to those that held-out clicks
        ask for.
        """
        assumed = self.propensity is None and isinstance(
            getattr(self, "propensity_", None), PowerLawPropensity
        )
        found = confirmation(log, judges, random, clicks=self._click_log, assumed=assumed)
        if found.table is not None:
            self.choice_ = found.table
        if found.refuses(self._anyway, is_learned=assumed):
            return log, None
        if assumed:
            self._told = None
            curve = np.exp(found.log_examination - found.log_examination.max())
            log = replace(log, propensity=curve[log.bias])
        return log, found

    def _divisors(self, log: ClickLog) -> Floats:
        """Propensity that the clicks of each row are divided by."""
        return np.maximum(log.propensity, self._bound or 0.0)

    @property
    def _bound(self) -> float | None:
        """Lower bound on propensities, which held-out clicks may have chosen."""
        return getattr(self, "clip_", self.clip)

    def _debiased_clicks(self, log: ClickLog) -> Floats:
        """Clicks over propensities, one number per row; sets the diagnostics of the weights."""
        if not hasattr(self, "choice_"):  # held-out clicks know better
            warn_about_weights(log, clip=self._bound)
        return self._describe(log, debias_clicks(log, clip=self._bound))

    def _describe(self, log, debiased):
        """The debiased clicks, of which the diagnostics are set."""
        self.examination_ = examination_table(log, log.propensity)
        self.effective_sample_size_ = debiased.effective_sample_size
        self.largest_weight_ = debiased.largest_weight
        self.clipped_share_ = debiased.clipped_share
        clip, most = self._bound, log.propensity.max()
        if self.clipped_share_ == 1 and clip < 1 and log.propensity.min() < most:
            warn_user(
                f"clip={clip:g} is above all propensities, which are at most {most:.2g}: no click "
                "is corrected. Divide the propensities by the largest, or lower clip.",
                ClickDataWarning,
            )
        return debiased.clicks


def _warn_about_contradiction(curves, log_ratio):
    steep = curves.index[[int(np.nanargmin(log_ratio)), int(np.nanargmax(log_ratio))]]
    told, implied = (curves[name][steep[0]] / curves[name][steep[1]] for name in curves)
    warn_user(
        "The clicks contradict the propensities: bias factor "
        f"{python_value(steep[0])} is examined {told:.2g} times as often as "
        f"{python_value(steep[1])} according to the propensities, and {implied:.2g} times "
        "according to the clicks. Either the propensities are wrong, and the ranker may be near "
        "random; or the production ranker used signals that the features lack; or users do not "
        "browse as assumed (trust in the top: AffineRanker; reading from the top: click models). "
        "Both curves are in examination_comparison_; see ExaminationDisplay.from_comparison. "
        "Estimate the propensities, or leave propensity=None if documents were shown at several "
        "positions.",
        AssumptionWarning,
    )


def _no_propensity():
    raise ValueError(
        "The first log has the role 'propensity', and this log has not. Add the column "
        "'propensity' to it, or pass propensity=."
    )


def _curve_of(cells):
    """Estimator of the curve where documents that moved determine it; else an assumed one."""
    if _is_determined(cells):
        from ..propensity._learned import RegressionEMPropensity  # imports torch

        return RegressionEMPropensity(relevance="embedding")
    warn_user(
        "No propensities given, and too few clicked documents were shown at several positions to "
        "estimate them: examination is assumed to fall as 1 / position. Pass propensity=, or add "
        "the column 'propensity'.",
        AssumptionWarning,
    )
    return PowerLawPropensity(eta=1.0)


def _is_determined(cells):
    """True if comparisons within documents fix the curve more firmly than an assumption does."""
    clicks = cells.clicks_of_factors
    if np.count_nonzero(clicks) < 2 or clicks.sum() < _LEAST_CLICKS * np.count_nonzero(clicks):
        return False
    table = table_of_cells(cells)
    if not table.is_connected:
        return False
    error = np.where(clicks > 0, table.rough_error(int(clicks.argmax())), 0.0)
    return bool((clicks @ error**2) < _LARGEST_ERROR**2 * clicks.sum())


#: The curves differ if twice the gain of the log-likelihood per bias factor exceeds this; 1 is
#: expected where the curve is right and the scores are, more as scores are estimated.
_LEAST_GAIN = 5.0
#: Probability that a comparison within documents is a false alarm.
_RARE = 1e-3
#: Differences of log examination below this, on average over the clicks, do little harm.
_RELEVANT = np.log(1.25)
#: Queries are left out so that no more rows than this are read.
_MAX_ROWS = 400_000


def told_curve(log: ClickLog) -> Floats | None:
    """Propensity of each bias factor, shape (n_factors,).

    None if rows of one factor differ, or if one is never examined: it has no ratio to others.
    """
    curve = np.ones(len(log.bias_values))
    for part in log.chunks():
        curve[part.bias] = part.propensity
    is_curve = curve.all() and all(
        np.allclose(curve[part.bias], part.propensity, rtol=1e-6) for part in log.chunks()
    )
    return curve if is_curve else None


def implied_examination(log: ClickLog, scores: Floats, told: Floats) -> tuple[Floats, bool]:
    """Log examination that the clicks ask for, relative to what was told, NaN if it is unknown;
    and whether that contradicts what was told.

    Where the same documents were clicked at several positions they tell, without a model.
    Elsewhere it is the most likely examination given the scores, whose scale is free.
    """
    told = np.log(told)
    table = table_curve(log)
    if table.is_connected:
        return _by_documents(log, table, told)
    return _by_scores(log, scores, told)


def _by_documents(log, table, told):
    clicks = np.bincount(log.bias, log.clicks, minlength=len(told))
    gap = _centered(table.log_examination - told, clicks)
    surplus = gap @ (table.information @ gap)
    n_compared = np.count_nonzero(clicks) - 1
    is_rare = bool(chi2.sf(surplus, max(n_compared, 1)) < _RARE)
    return gap, is_rare and _matters(gap, clicks)


def _by_scores(log, scores, told):
    log = log.sample(_MAX_ROWS)
    known = HeldOut(replace(log, propensity=np.exp(told)[log.bias]), scores[log.version][:, None])
    choice, log_examination = known.choice, known.log_examination
    if not len(choice.rows):
        return np.full(len(told), np.nan), False
    free, ratio, _ = known.mix(known.scores)
    fixed = known.scores @ choice.best_weights(known.scores, log_examination) + log_examination
    gain = choice.n_clicks * (choice.loss(fixed) - choice.loss(free))
    factor = log.bias[choice.rows]
    clicks = np.bincount(factor, choice.clicks, minlength=len(told))
    ratio[np.bincount(factor, minlength=len(told)) == 0] = np.nan
    ratio = _centered(ratio, clicks)
    n_free = max(np.count_nonzero(clicks) - 1, 1)
    return ratio, 2 * gain > _LEAST_GAIN * n_free and _matters(ratio, clicks)


def _centered(values, clicks):
    known = np.isfinite(values) & (clicks > 0)
    return values - np.average(values[known], weights=clicks[known]) if known.any() else values


def _matters(gap, clicks):
    known = np.isfinite(gap)
    spread = np.sqrt((clicks[known] @ gap[known] ** 2) / clicks[known].sum())
    return bool(spread > _RELEVANT)


def warn_about_one_row_pages(log: ClickLog, subject: str, instead: str) -> None:
    """Warn if most clicks of some queries fell on pages of one row, where nothing is compared."""
    if log.comparable().n_lists == log.n_lists:
        return
    clicks = np.bincount(log.list_, log.clicks, minlength=log.n_lists)
    share = clicks[np.diff(log.offsets) == 1].sum() / clicks.sum()
    warn_user(
        f"{share:.0%} of the clicks fell on pages of one row, from which {subject} learns "
        "nothing: it compares rows of the same page. Expected pages of several rows. If pages "
        "had more, give all rows of a page the same value in the column 'session'; otherwise use "
        f"{instead}.",
        ClickDataWarning,
    )
