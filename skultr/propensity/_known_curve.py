"""What a log tells of examination: where documents moved, where none did, and whether it
contradicts a curve that was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import chi2

from .._base._progress import working
from .._base._typing import Floats
from .._log._cells import examination_table
from .._models._free_effects import FreeEffects
from .._models._table_curve import TableCurve, table_curve
from ..exceptions import AssumptionWarning, ClickDataWarning, NotIdentifiableError, warn_user
from ._thresholds import KNOWN, LEAST_GAIN, RARE, RELEVANT

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


class LearnedCurve(NamedTuple):
    """Examination by bias factor, and where it comes from."""

    log_examination: Floats  # (n_factors,)
    table: pd.DataFrame  # that of ``examination_``
    comparison: pd.DataFrame | None  # with a network's; None where documents that moved suffice

    def propensity(self, log: ClickLog) -> Floats:
        """Propensity of each row of a log with the same bias factors, at most 1."""
        # Clicks under a factor that hardly anybody examined would weigh thousands of others.
        examination = np.maximum(np.exp(self.log_examination), 1e-4)
        return examination[log.bias]


def learned_curve(
    log: ClickLog,
    network: Callable[[], Floats],
    *,
    source: Literal["auto", "table", "network"] = "auto",
    is_converged: Callable[[], bool] = lambda: True,
) -> LearnedCurve:
    """Examination by comparisons within documents, and by a network where the log has none.

    ``network`` trains one and returns log examination, shape (n_factors,). It is not called where
    documents that moved determine the curve. Where a network did not converge, a difference of
    both curves says nothing.
    """
    # What changes between two versions may be why a document moved, and why it was clicked.
    log = replace(log, doc_of_version=np.arange(log.n_versions), doc_ids=None)
    # Documents that moved, first: they need no model of relevance.
    table = table_curve(log)
    if source == "table":
        _require_connected(log, table)
    elif source == "network" or not is_known(table):
        return _combined(log, table, network(), is_converged())
    # The table alone: given, or precise enough.
    log_examination = _rounded(table.log_examination, table.log_examination.max())
    error = table.fit.standard_error(0)
    result = examination_table(log, np.exp(log_examination)[log.bias], error)
    return LearnedCurve(log_examination, result, None)


def dual_examination(log: ClickLog, like: Any) -> Floats:
    """Log examination that dual learning finds, by a network with the settings of a ranker.

    A ranker without a network gets the default one. Shape (n_factors,).
    """
    from .._torch._joint import DualLearner, fit_dual  # imports torch

    with working("examination"):
        log_examination = fit_dual(DualLearner.like(like), log)
    warn_about_unknown(log, log_examination)
    return log_examination


def warn_about_unknown(log: ClickLog, log_examination: Floats) -> None:
    """Warn of bias factors without examination; without any clicks, reading has warned."""
    unknown = log.bias_values[np.isnan(log_examination)]
    if not 0 < len(unknown) < len(log_examination):
        return
    occur = " occurs" if len(unknown) == 1 else "s occur"
    warn_user(
        f"{len(unknown)} bias factor{occur} in no "
        f"list with a click, such as {unknown[:3].tolist()}: the log does not determine "
        "their examination, which is NaN in examination_.",
        ClickDataWarning,
    )


def with_counts_of(examination: pd.DataFrame, clicks: ClickLog) -> pd.DataFrame:
    """A table of examination, with impressions and clicks of a further log added."""
    # Any examination: only the counts are read.
    further = examination_table(clicks, np.ones(len(clicks.clicks)))
    counts = examination[["impressions", "clicks"]] + further[["impressions", "clicks"]]
    return examination.assign(**counts)


def is_known(table: TableCurve) -> bool:
    """True if documents that moved determine the examination of all factors with clicks."""
    clicks = table.fit.cells.clicks_of_factors
    if not (table.is_connected and clicks.any()):
        return False
    # Errors relative to the factor with the most clicks are the smallest ones.
    reference = int(clicks.argmax())
    error = np.where(clicks > 0, table.rough_error(reference), 0.0)
    return bool(clicks @ error**2 <= KNOWN.value**2 * clicks.sum())


def _require_connected(log, table):
    if not table.is_connected:
        n_components = len(np.unique(table.component))
        raise NotIdentifiableError(
            "examination='table', but no clicked document connects all "
            f"{len(log.bias_values)} bias factors: they fall into "
            f"{n_components} components, which no document compares. "
            "Serve some documents at several positions, as IdentifiabilityRepair plans it, or "
            "use examination='auto', which uses the network there."
        )


def _rounded(log_examination, largest):
    """Relative to the largest. The last digits depend on the order of the rows, and would change a
    training."""
    return np.round(log_examination - largest, 5)


def _combined(log, table, network, is_converged):
    """The curve of the table where it is precise, and that of the network elsewhere."""
    combined = table.combined(network)
    if is_converged and combined.p_value < RARE.value:
        _warn_if_confounded(log, table, network)
    known = np.isfinite(network)
    # Relative to the largest that the network knows, as predictions are.
    found = _rounded(combined.log_examination, combined.log_examination[known].max())
    shown = np.where(known, found, np.nan)
    # The network learned from the clicks of the table: its agreement with it is no evidence.
    # Its errors are at least those of counting.
    clicks = np.bincount(log.bias, log.clicks, minlength=len(network))
    error = np.maximum(combined.standard_error, _error_of_counting(clicks))
    result = examination_table(log, np.exp(shown)[log.bias], error)
    # Of other components than the first, documents tell no ratio to the first factor.
    on_one_scale = table.component == table.component[0]
    by_documents = np.where(on_one_scale, _relative(table.log_examination), np.nan)
    comparison = pd.DataFrame(
        {
            "table": by_documents,
            "standard_error": table.fit.standard_error(0),
            "network": _relative(network),
            "combined": _relative(shown),
        },
        index=result.index,
    )
    return LearnedCurve(found, result, comparison)


def _error_of_counting(clicks):
    """Standard errors of log click counts relative to the first; a count of 0 is half a click."""
    variance = 1 / np.maximum(clicks, 0.5)
    error = np.sqrt(variance + variance[0])
    error[0] = 0.0
    return error


def _relative(log_examination):
    """Examination relative to the first known factor."""
    known = log_examination[np.isfinite(log_examination)]
    return np.exp(log_examination - known[0])


def _warn_if_confounded(log, table: TableCurve, network):
    """Warn if a network and documents that moved show curves that differ by more than a little."""
    clicks = np.bincount(log.bias, log.clicks, minlength=len(network))
    # Factors that the network does not know have no say.
    clicks = np.where(np.isfinite(network), clicks, 0.0)
    gap = _gap_within_components(table, network, clicks)
    spread = _spread(gap, clicks)
    if spread < RELEVANT.value:
        return
    # The two factors whose ratio differs most are told.
    least = int(np.argmin(gap))
    most = int(np.argmax(gap))
    names = log.bias_values
    moved = table.log_examination
    moved_ratio = np.exp(moved[least] - moved[most])
    network_ratio = np.exp(network[least] - network[most])
    warn_user(
        "The production ranker used signals that the features lack: examination by the network "
        f"differs by {np.expm1(spread):.0%} on average, more than by chance, from examination by "
        f"documents that moved. Bias factor {names[least]:g} is examined {moved_ratio:.2g} times "
        f"as often as {names[most]:g} according to the documents that moved, and "
        f"{network_ratio:.2g} times according to the network. The ranker uses the former where "
        "documents moved, and the network elsewhere. Both are in examination_comparison_; see "
        "ExaminationDisplay. Another possible cause is examination that depends on more than the "
        "bias factor, such as clicks above: then add what it depends on to the role 'bias'.",
        AssumptionWarning,
    )


def _gap_within_components(table, network, clicks):
    """Log examination by the network less that of documents that moved; 0 without clicks.

    No document compares two components: each has its mean over the clicks taken off.
    """
    gap = np.where(clicks > 0, network - table.log_examination, 0.0)
    total = np.maximum(np.bincount(table.component, clicks), 1e-12)
    mean = np.bincount(table.component, clicks * gap) / total
    return np.where(clicks > 0, gap - mean[table.component], 0.0)


def _spread(gap, clicks):
    """Root mean square of a gap of log examination over the clicks."""
    return np.sqrt((clicks @ gap**2) / clicks.sum())


# Against a curve that was given ---------------------------------------------------------
def told_curve(log: ClickLog) -> Floats | None:
    """Propensity of each bias factor, shape (n_factors,).

    None if rows of one factor differ, or if one is never examined: it has no ratio to others.
    """
    curve = np.ones(len(log.bias_values))
    for part in log.chunks():
        curve[part.bias] = part.propensity
    if not curve.all():
        return None
    for part in log.chunks():
        # Propensities of files may have the digits of single precision.
        if not np.allclose(curve[part.bias], part.propensity, rtol=1e-6):
            return None
    return curve


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
    # Wald's test of the curve that was told.
    surplus = gap @ (table.information @ gap)
    n_compared = np.count_nonzero(clicks) - 1
    p_value = chi2.sf(surplus, max(n_compared, 1))
    return gap, bool(p_value < RARE.value) and _matters(gap, clicks)


def _by_scores(log, scores, told):
    # Queries are left out of larger logs: 400,000 rows tell enough, in a second.
    log = log.sample(400_000)
    log = replace(log, propensity=np.exp(told)[log.bias])
    known = FreeEffects(log, scores[log.version][:, None])
    choice = known.choice
    if not len(choice.rows):
        return np.full(len(told), np.nan), False
    # Log-likelihood with free examination less that with the curve, both with a scale of scores.
    free, ratio, _ = known.mix(known.scores)
    scale = choice.best_weights(known.scores, known.log_examination)
    fixed = known.scores @ scale + known.log_examination
    gain = choice.n_clicks * (choice.loss(fixed) - choice.loss(free))
    factor = log.bias[choice.rows]
    clicks = np.bincount(factor, choice.clicks, minlength=len(told))
    n_rows = np.bincount(factor, minlength=len(told))
    ratio[n_rows == 0] = np.nan
    ratio = _centered(ratio, clicks)
    n_free = max(np.count_nonzero(clicks) - 1, 1)
    return ratio, 2 * gain > LEAST_GAIN.value * n_free and _matters(ratio, clicks)


def _centered(values, clicks):
    """Values less their mean over the clicks."""
    known = np.isfinite(values) & (clicks > 0)
    if not known.any():
        return values
    return values - np.average(values[known], weights=clicks[known])


def _matters(gap, clicks):
    known = np.isfinite(gap)
    return bool(_spread(gap[known], clicks[known]) > RELEVANT.value)
