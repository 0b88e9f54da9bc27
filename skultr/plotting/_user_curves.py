"""Examination curves of many users, or of clusters of users, in one plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from .._typing import Floats
from ._axes import TRUTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D


#: Up to this number of users, curves have names and intervals.
_MAX_NAMED = 20
#: Smallest distance between names, as a share of the height of the axes.
_NAME_HEIGHT = 0.047


def is_of_users(table: pd.DataFrame) -> bool:
    """Whether a table of examination has one curve per user (or cluster)."""
    return isinstance(table.index, pd.MultiIndex) and table.index.nlevels == 2


def read_truth_of_users(truth: Any, table: pd.DataFrame) -> pd.DataFrame | None:
    """True examination as a frame of users by bias factors; None if it is not given."""
    if truth is None or isinstance(truth, pd.DataFrame):
        return truth
    if isinstance(truth, Mapping | pd.Series):
        return pd.Series(dict(truth.items())).unstack()
    truth, users = np.asarray(truth, dtype=float), table.index.unique(0)
    numbered = pd.api.types.is_integer_dtype(users) and users.min() >= 0
    if truth.ndim != 2 or not numbered or users.max() >= len(truth):
        listed = ", ".join(map(str, users[:5])) + (", ..." if len(users) > 5 else "")
        raise ValueError(
            f"truth has the shape {truth.shape}, but the table has curves of the users {listed}; "
            "expected an array of shape (n_users, n_positions) whose row u belongs to user u, or "
            "a DataFrame with users as index and bias factors as columns."
        )
    return pd.DataFrame(truth, columns=np.arange(1, truth.shape[1] + 1))


def draw_user_curves(
    ax: Axes, table: pd.DataFrame, truth: pd.DataFrame | None, quantile: float
) -> tuple[dict[Any, Line2D], LineCollection | None]:
    """Draw one line per user, coloured by the mean position that the user examines."""
    curves = table["examination"].unstack().sort_index(axis=1).dropna(how="all")
    if curves.empty:
        raise ValueError(
            "The log determines the examination of no user, so that no curve can be drawn."
        )
    depth = _mean_position(curves).sort_values(kind="stable")
    few = len(depth) <= _MAX_NAMED
    colors = _colors_by_rank(depth) if few else _colors_by_depth(ax, depth)
    x = curves.columns.to_numpy()
    style = {"marker": "o", "markersize": 3} if few else {"linewidth": 0.8, "alpha": 0.5}
    lines, top = {}, 1.0
    for user in depth.index:
        y = curves.loc[user].to_numpy()
        (lines[user],) = ax.plot(x, y, color=colors[user], **style)
        top = max(top, np.nanmax(y))
        if few and "standard_error" in table:
            error = table.loc[user, "standard_error"].reindex(x).to_numpy(dtype=float)
            top = max(top, draw_interval(ax, x, y, error, quantile, colors[user], bars=False))
    drawn = None
    if truth is not None:
        truth = _scaled_to(table, truth.reindex(curves.index))
        drawn = _draw_truth(ax, truth, few)
        top = max(top, truth.to_numpy()[~truth.isna()].max())
    ax.set_ylim(0, 1.06 * min(top, 3.0 if top > 3 else top))
    if few:
        _name_curves(ax, curves.loc[depth.index], colors)
    ax.set_xlabel("position" if x.min() == 1 else "bias factor")
    # The table has one scale for all users, so that the curve of a user need not start at 1.
    ax.set_ylabel(f"examination relative to position {x.min()}")
    if len(x) <= 15:
        ax.set_xticks(x)
    return lines, drawn


def draw_interval(
    ax: Axes,
    x: NDArray[Any],
    y: Floats,
    error: Floats,
    quantile: float,
    color: Any,
    *,
    bars: bool = True,
) -> float:
    """Draw the interval of a curve from the standard error of its log; returns its upper end."""
    there = np.isfinite(error)
    if not there.any():
        return 0.0
    # Intervals of logarithms are skewed and never reach 0.
    spread = np.exp(np.minimum(quantile * error, 50.0))
    low, high = y / spread, y * spread
    ax.fill_between(x, low, high, where=there, color=color, alpha=0.18, linewidth=0, zorder=1)
    if bars:
        # A band is invisible if the neighbours have no interval, and hard to see under others.
        ax.vlines(x[there], low[there], high[there], color=color, linewidth=1.2, alpha=0.6)
    return float(np.max(high[there]))


def _mean_position(curves):
    """Mean position that each user examines, by which ``UserClusters`` sorts its clusters."""
    examined = curves.fillna(0.0)
    total = examined.sum(axis=1).where(lambda s: s > 0, 1.0)
    return examined.mul(curves.columns.to_numpy(), axis=1).sum(axis=1) / total


def _colors_by_rank(depth):
    from matplotlib import colormaps

    # The bright end of the colour map is hard to see on white.
    return dict(
        zip(depth.index, colormaps["viridis"](np.linspace(0, 0.82, len(depth))), strict=True)
    )


def _colors_by_depth(ax, depth):
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(depth.min(), depth.max()), "viridis")
    ax.figure.colorbar(scale, ax=ax, label=f"mean position that a {depth.index.name} examines")
    return dict(zip(depth.index, scale.to_rgba(depth.to_numpy()), strict=True))


def _scaled_to(table, truth):
    """The truth times one number that makes it equal to the table at the first factor.

    Equal on average over users, weighted by clicks, because tables are relative to the mean user.
    """
    curves = table["examination"].unstack()
    common = truth.columns.intersection(curves.columns)
    ratio = np.log(curves[common] / truth[common])
    ratio = ratio.where(np.isfinite(ratio)).dropna(axis=1, how="all")
    if ratio.empty:
        raise ValueError(
            "truth and estimates have no user and bias factor in common whose examination is "
            f"above 0: the table has users such as {curves.index[0]!r} and bias factors such as "
            f"{curves.columns[0]!r}; expected a truth by the same ids."
        )
    ratio = ratio[ratio.columns.min()].dropna()
    weight = 1.0
    if "clicks" in table:
        weight = table["clicks"].unstack().loc[ratio.index, ratio.name] + 1e-9
    return truth * np.exp(np.average(ratio, weights=weight * np.ones(len(ratio))))


def _draw_truth(ax, truth, few):
    from matplotlib.collections import LineCollection

    x = truth.columns.to_numpy()
    paths = [np.column_stack([x, y]) for y in truth.dropna().to_numpy()]
    style = {"linewidths": 1.0 if few else 0.4, "alpha": 0.75 if few else 0.4}
    lines = LineCollection(
        paths, colors=TRUTH, linestyles=(0, (3, 2)), zorder=3, label="truth", **style
    )
    ax.add_collection(lines)
    return lines


def _name_curves(ax, curves, colors):
    """Write the names right of the ends of the curves, in their order and without overlap."""
    ends = curves.ffill(axis=1).iloc[:, -1].sort_values(kind="stable")
    top = ax.get_ylim()[1]
    # The heights closest to the ends that keep names apart are an isotonic regression.
    steps = np.arange(len(ends)) * _NAME_HEIGHT * top
    bounds = {"y_min": 0.0, "y_max": max(top - steps[-1], 0.0)}
    heights = isotonic_regression(ends.to_numpy() - steps, **bounds) + steps
    last, width = curves.columns.max(), np.ptp(curves.columns.to_numpy())
    near, far = last + 0.015 * width, last + 0.06 * width
    for (user, end), height in zip(ends.items(), heights, strict=True):
        ax.plot([near, far], [end, height], color=colors[user], linewidth=0.7, clip_on=False)
        ax.text(far + 0.01 * width, height, str(user), color=colors[user], va="center", fontsize=9)
    ax.text(
        far + 0.01 * width,
        heights[-1] + 1.2 * _NAME_HEIGHT * top,
        curves.index.name,
        va="center",
        fontsize=9,
    )
    ax.set_xlim(right=last + 0.05 * width)
