"""The examination that a ranker is finally fitted with: a table's, completed by a network's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from .._base._typing import Floats
from .._log._cells import examination_table
from .._models._table_curve import TableCurve, table_curve
from ..exceptions import AssumptionWarning, NotIdentifiableError, warn_user

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: A difference of two curves is worth a warning if chance explains it with this probability at
#: most, and if log examination differs by this much on average over the clicks.
_RARE, _RELEVANT = 1e-3, np.log(1.15)
#: Digits of log examination that are kept.
_DIGITS = 5


class FinalCurve(NamedTuple):
    """Examination by bias factor, and where it comes from."""

    log_examination: Floats  # (n_factors,)
    table: pd.DataFrame
    comparison: pd.DataFrame | None
    is_determined: bool
    is_compared: bool


def final_curve(log: ClickLog, network: Floats | None, *, is_converged: bool = True) -> FinalCurve:
    """Examination by comparisons within documents, and by a network where the log has none."""
    if network is None:
        table = table_curve(log)
        _refuse_unconnected(table, log)
        return _of_table(log, table)
    table = table_curve(log)
    combined = table.combined(network)
    if is_converged and combined.p_value < _RARE:
        _warn_if_confounded(log, table, network)
    known = np.isfinite(network)
    found = combined.log_examination - combined.log_examination[known].max()
    # The last digits depend on the order of the rows, and would change the training.
    found = np.round(found, _DIGITS)
    shown = np.where(known, found, np.nan)
    # The network learned from the clicks of the table: its agreement with it is no evidence.
    error = np.maximum(combined.standard_error, _counting_error(log))
    result = examination_table(log, np.exp(shown)[log.bias], error)
    on_one_scale = table.component == table.component[0]
    comparison = pd.DataFrame(
        {
            "table": np.where(on_one_scale, _relative(table.log_examination), np.nan),
            "standard_error": table.standard_error(0),
            "network": _relative(network),
            "combined": _relative(shown),
        },
        index=result.index,
    )
    is_compared = len(np.unique(table.component)) < len(network)
    return FinalCurve(found, result, comparison, table.is_connected, is_compared)


def _of_table(log, table):
    found = np.round(table.log_examination - table.log_examination.max(), _DIGITS)
    result = examination_table(log, np.exp(found)[log.bias], table.standard_error(0))
    return FinalCurve(found, result, None, True, True)


def _counting_error(log):
    """Standard error of log examination relative to the first factor, if relevance were known."""
    clicks = np.bincount(log.bias, log.clicks, minlength=len(log.bias_values))
    variance = 1 / np.maximum(clicks, 0.5)
    return np.where(np.arange(len(clicks)) == 0, 0.0, np.sqrt(variance + variance[0]))


def _relative(log_examination):
    """Examination relative to the first known factor."""
    known = log_examination[np.isfinite(log_examination)]
    return np.exp(log_examination - known[0])


def _refuse_unconnected(table, log):
    if table.is_connected:
        return
    n_components = len(np.unique(table.component))
    raise NotIdentifiableError(
        f"examination='table', but no clicked document connects all {len(log.bias_values)} bias "
        f"factors: they fall into {n_components} components, which comparisons within documents "
        "leave open. Serve some documents at several positions, as IdentifiabilityRepair plans "
        "it, or use examination='auto', which asks the network there."
    )


def _warn_if_confounded(log, table: TableCurve, network):
    clicks = np.bincount(log.bias, log.clicks, minlength=len(network))
    clicks = np.where(np.isfinite(network), clicks, 0.0)
    gap = np.where(clicks > 0, network - table.log_examination, 0.0)
    total = np.maximum(np.bincount(table.component, clicks), 1e-12)
    gap -= (np.bincount(table.component, clicks * gap) / total)[table.component]
    spread = np.sqrt((clicks @ gap**2) / clicks.sum())
    if spread < _RELEVANT:
        return
    least, most = np.argmin(np.where(clicks > 0, gap, 0)), np.argmax(np.where(clicks > 0, gap, 0))
    names = log.bias_values
    ratios = [np.exp(curve[least] - curve[most]) for curve in (table.log_examination, network)]
    warn_user(
        "Production knew more than the features: the network explains clicks by examination that "
        "differs from examination by comparing the same documents at several positions, by "
        f"{np.expm1(spread):.0%} on average and by more than chance. Bias factor {names[least]:g} "
        f"is examined {ratios[0]:.2g} times as often as {names[most]:g} by the documents that "
        f"moved, and {ratios[1]:.2g} times by the network. The ranker uses the former where "
        "documents moved, and the network elsewhere. Both are in examination_comparison_; see "
        "ExaminationDisplay. The same happens if examination depends on more than the bias factor "
        "(such as clicks above): then add what it depends on to the role 'bias'.",
        AssumptionWarning,
    )
