"""What rankers warn of before they learn: clicks that contradict told examination, pages of one
row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import chi2

from .._base._typing import Floats
from .._models._click_choice import ClickChoice
from .._models._table_curve import table_curve
from ..exceptions import ClickDataWarning, warn_user

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

#: The curves differ if twice the gain of the log-likelihood per bias factor exceeds this; 1 is
#: expected where the curve is right and the scores are, more as scores are estimated.
_LEAST_GAIN = 5.0
#: Probability that a comparison within documents is a false alarm.
_RARE = 1e-3
#: Differences of log examination below this, on average over the clicks, do little harm.
_RELEVANT = np.log(1.25)
#: Queries are left out so that no more rows than this are read.
_MAX_ROWS = 400_000


class Implied(NamedTuple):
    """What the clicks say about examination."""

    log_ratio: Floats  # (n_factors,), implied over told examination; NaN if unknown
    is_contradiction: bool


def told_curve(log: ClickLog) -> Floats | None:
    """Propensity of each bias factor, shape (n_factors,).

    None if rows of one factor differ, or if one is never examined: it has no ratio to others.
    """
    propensity, bias = log.propensity, log.bias
    curve = np.ones(len(log.bias_values))
    curve[bias] = propensity
    if not curve.all():
        return None
    return curve if np.allclose(curve[bias], propensity, rtol=1e-6) else None


def implied_examination(log: ClickLog, scores: Floats, told: Floats) -> Implied:
    """Examination that the clicks ask for, relative to what was told.

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
    return Implied(gap, is_rare and _matters(gap, clicks))


def _by_scores(log, scores, told):
    log = log.sample(_MAX_ROWS)
    choice = ClickChoice.of_log(log)
    n_factors = len(log.bias_values)
    if not len(choice.rows):
        return Implied(np.full(n_factors, np.nan), False)
    relevance = scores[log.version]

    def loss(curve):
        examination = curve[log.bias]
        weight = choice.best_weights(relevance[:, None], examination)[0]
        return choice.loss(weight * relevance + examination)

    found = choice.likeliest_examination(relevance, log.bias, told - told.mean(), None)
    gain = choice.n_clicks * (loss(told) - loss(np.where(np.isnan(found), told, found)))
    clicks = np.bincount(log.bias[choice.rows], choice.clicks, minlength=n_factors)
    ratio = found - told
    ratio = _centered(ratio, clicks)
    n_free = max(np.count_nonzero(clicks) - 1, 1)
    return Implied(ratio, 2 * gain > _LEAST_GAIN * n_free and _matters(ratio, clicks))


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
