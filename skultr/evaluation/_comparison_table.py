"""What a comparison found: cells, means with paired intervals, a figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from .._base._optional import optional
from ._thresholds import LEAST_UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What a log is, and what a cell is.
LOG = ("seed", "user", "production")
CELL = (*LOG, "method")
#: The method that is the ranker that served the log.
PRODUCTION = "production"
#: What an interval takes for drawn independently: columns that have one value in each.
UNITS = {"seed": ("seed",), "log": LOG}
#: What a method is judged by: all candidates of the test queries, and those that production shows.
_VALUES = ("ndcg", "ndcg_shown")


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonTable:
    """Result of :func:`run_comparison`: methods on the same simulated logs.

    Parameters
    ----------
    cells_ : pandas.DataFrame of shape (n_logs * n_methods, 10)
        ``seed``, ``user`` and ``production`` of the log, and ``method``; ``ndcg`` of all
        candidates of the test queries, and ``ndcg_shown`` of the documents that production has
        at the top, the mean over queries with a relevant document, NaN where the method failed;
        ``fit_seconds`` (of the clock); ``warnings``, the number of different warnings of ``fit``
        and ``predict``, and ``warning_types``, their classes; ``error``, empty unless it failed.
    k : int
        Ranks that count.
    n_positions : int
        Documents that production shows.
    """

    cells_: pd.DataFrame
    k: int = 10
    n_positions: int = 10

    def __repr__(self) -> str:
        n_methods = self.cells_["method"].nunique()
        n_failed = (self.cells_["error"] != "").sum()
        return (
            f"ComparisonTable(n_methods={n_methods}, n_logs={len(self.cells_) // n_methods}, "
            f"n_failed={n_failed}, k={self.k})"
        )

    def table(
        self,
        baseline: str = PRODUCTION,
        *,
        by: str | Iterable[str] = (),
        unit: str = "seed",
        confidence_level: float = 0.95,
    ) -> pd.DataFrame:
        """Mean nDCG of each method, and its paired difference to a baseline.

        Parameters
        ----------
        baseline : str, default="production"
            The method that all others are compared with on the same logs.
        by : str or iterable of str, default=()
            ``"production"``, ``"user"``, ``"seed"`` or several: one part of the table for each of
            their values. By default all logs are one part.
        unit : {"seed", "log"}, default="seed"
            What the interval takes for drawn independently. The logs of one seed share documents
            and test queries, and differ in what you chose, users and production rankers.
        confidence_level : float, default=0.95
            Of each interval.

        Returns
        -------
        table : pandas.DataFrame
            The columns of ``by``, and ``method``; ``ndcg`` and ``ndcg_shown``, means over the logs
            on which the method did not fail; ``difference``, the mean over units of the mean of
            their pairs, from ``lower`` to ``upper``; ``difference_shown``, ``lower_shown`` and
            ``upper_shown``, the same of ``ndcg_shown``; ``n_pairs``, the logs on which neither the
            method nor the baseline failed, and ``n_units``, those with a pair; ``n_failed``, mean
            ``fit_seconds``, and ``warned``, the share of logs with a warning.

        Raises
        ------
        ValueError
            If ``baseline`` is no method, ``by`` or ``unit`` names something else, or the level is
            outside (0, 1).

        Notes
        -----
        Intervals are Student's, of the mean of paired differences over units. NaN says that one
        cannot tell: there are fewer than three units, or the difference is the same in all.

        Of draws of 3, 5 or 10 from 60 seeds (three users, one or two production rankers),
        intervals of 95 % by seed held the mean over the 60 in .90 to .96, and by log in .83 to
        .99: too few behind weak production, where the logs of one seed are alike
        (``benchmarks/studies/paired_intervals.py``). Intervals are not corrected for the number
        of methods.
        """
        by = [by] if isinstance(by, str) else list(by)
        self._check(baseline, by, unit, confidence_level)
        groups = self.cells_.groupby(by, sort=False) if by else [((), self.cells_)]
        parts = []
        for names, cells in groups:
            part = _compared(cells, baseline, unit, confidence_level)
            for place, name in enumerate(by):
                part.insert(place, name, names[place])
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def plot(
        self,
        baseline: str = PRODUCTION,
        *,
        unit: str = "seed",
        confidence_level: float = 0.95,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the paired differences to a baseline, with their intervals.

        Filled marks are of all candidates, hollow ones of the documents that production shows;
        small dots are the logs. Methods are sorted by their difference.

        Parameters
        ----------
        baseline, unit, confidence_level
            See :meth:`table`.
        ax : matplotlib axes, default=None
            By default, axes of a new figure.

        Returns
        -------
        ax : matplotlib.axes.Axes
            ``ax.figure`` is the figure.

        Raises
        ------
        ValueError
            As from :meth:`table`.
        ImportError
            Without matplotlib.
        """
        table = self.table(baseline, unit=unit, confidence_level=confidence_level)
        return _draw(self, table[table["method"] != baseline], baseline, ax)

    def _check(self, baseline, by, unit, confidence_level):
        methods = list(self.cells_["method"].unique())
        if baseline not in methods:
            raise ValueError(f"baseline={baseline!r} is no method; expected one of {methods}.")
        unknown = [name for name in by if name not in LOG]
        if unknown or len({*by}) < len(by):
            raise ValueError(f"by={by} is not among {list(LOG)}, each at most once.")
        if unit not in UNITS:
            raise ValueError(f"unit={unit!r} is unknown; expected one of {list(UNITS)}.")
        if not 0 < confidence_level < 1:
            raise ValueError(
                f"confidence_level is {confidence_level}; expected a number between 0 and 1."
            )


def _compared(cells, baseline, unit, confidence_level):
    """One row for each method; see ComparisonTable.table."""
    by_method = cells.groupby("method", sort=False)
    table = by_method[list(_VALUES)].mean()
    for name in _VALUES:
        suffix = name.removeprefix("ndcg")
        pairs = _differences(cells, baseline, name)
        units = pairs.groupby(level=list(UNITS[unit])).mean()
        lower, upper = _interval(units, confidence_level)
        table[f"difference{suffix}"] = units.mean()
        table[f"lower{suffix}"] = lower
        table[f"upper{suffix}"] = upper
    table["n_pairs"] = pairs.notna().sum()
    table["n_units"] = units.notna().sum()
    table["n_failed"] = by_method["error"].agg(lambda errors: (errors != "").sum())
    table["fit_seconds"] = by_method["fit_seconds"].mean()
    table["warned"] = by_method["warnings"].agg(lambda numbers: (numbers > 0).mean())
    return table.reset_index()


def _differences(cells, baseline, value):
    """Differences to the baseline, one row for each log, one column for each method."""
    wide = cells.pivot(index=list(LOG), columns="method", values=value)
    return wide.sub(wide[baseline], axis=0)[list(cells["method"].unique())]


def _interval(units, confidence_level):
    """Ends of Student's intervals for means of columns; NaN where one cannot tell."""
    n_units = units.notna().sum()
    error = units.std(ddof=1) / np.sqrt(n_units)
    # Where all differences are the same, the error is rounding, and tells nothing.
    is_rounding = error <= 1e-12 * units.abs().max()
    known = (n_units >= LEAST_UNITS.value) & ~is_rounding & error.notna()
    width = error * stats.t.ppf((1 + confidence_level) / 2, n_units.clip(lower=2) - 1)
    width = width.where(known)
    return units.mean() - width, units.mean() + width


# Figure -------------------------------------------------------------------------------


def _draw(comparison, table, baseline, ax):
    from ..plotting import method_colors

    colors = method_colors(comparison.cells_["method"].unique())
    table = table.sort_values("difference", na_position="first").reset_index(drop=True)
    if ax is None:
        ax = _new_axes(len(table))
    # The two marks of a method lie above and below its line; lines are 1 apart.
    marks = {"ndcg": (0.15, "all candidates"), "ndcg_shown": (-0.15, "shown by production")}
    for value, (shift, label) in marks.items():
        suffix = value.removeprefix("ndcg")
        logs = _differences(comparison.cells_, baseline, value)
        for place, row in table.iterrows():
            color = colors[row["method"]]
            on_logs = logs[row["method"]]
            ax.plot(on_logs, [place + shift] * len(on_logs), ".", color=color, alpha=0.3, ms=4)
            mean = row[f"difference{suffix}"]
            ends = [[mean - row[f"lower{suffix}"]], [row[f"upper{suffix}"] - mean]]
            fill = color if value == "ndcg" else "white"
            style = {"fmt": "o", "ms": 7, "color": color, "mfc": fill, "capsize": 3}
            ax.errorbar(mean, place + shift, xerr=ends, zorder=3, **style)
        # The entry of the legend has no colour of a method.
        fill = "black" if value == "ndcg" else "white"
        ax.plot([], [], "o", color="black", mfc=fill, label=label)
    ax.axvline(0, color="black", lw=0.8)
    failed = table["difference"].isna().map({True: " (failed)", False: ""})
    ax.set_yticks(range(len(table)), table["method"] + failed)
    ax.set_ylim(-0.6, len(table) - 0.4)
    n_logs = len(comparison.cells_[list(LOG)].drop_duplicates())
    ax.set_xlabel(f"nDCG@{comparison.k} minus that of {baseline}, paired over {n_logs} logs")
    ax.spines[["top", "right"]].set_visible(False)
    # Above the axes, where no interval can lie under it.
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return ax


def _new_axes(n_methods):
    plt = optional("matplotlib.pyplot", "plot")
    figure = plt.figure(figsize=(7, 1.4 + 0.55 * n_methods), layout="constrained")
    return figure.subplots()
