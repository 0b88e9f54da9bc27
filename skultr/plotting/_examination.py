"""Estimated examination of bias factors or of many users, and the true one if it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import cycle
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from scipy.special import ndtri

from .._base._typing import ArrayLike
from .._log._estimator import steps_of
from ..identifiability._bias_features import factor_labels
from ._axes import (
    TRUTH,
    Display,
    factor_text,
    factor_to_either_side,
    fitted_value,
    method_colors,
    position_ticks,
    shades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

#: Up to this number of bias factors, examination is drawn as curves with one tick per factor.
_MAX_CURVE = 60
#: Inches that the name of a factor takes on the axis, if names are turned.
_NAME = 0.17
#: Up to this number of named users, their names fit into the axes.
_NAMES_INSIDE = 6
_MARKERS = "osD^vP"
_TRUTH_LINE = {"color": TRUTH, "linestyle": "--", "zorder": 3, "label": "truth"}


@dataclass(eq=False, repr=False)
class ExaminationDisplay(Display):
    """Plot of estimated examination curves, with intervals and the truth.

    Create it with :meth:`from_estimator` or :meth:`from_estimators`.

    Parameters
    ----------
    tables : dict of str to DataFrame
        Name of the model to a table like ``examination_``: indexed by bias factor, with the
        column ``examination`` and optionally ``standard_error``, that of the logarithm of
        examination. A single table may be indexed by user and bias factor.
    truth : Series or DataFrame, default=None
        True examination, indexed by bias factor; for users a frame of users by bias factors.

    {attributes}
    lines_ : dict of str to matplotlib.lines.Line2D
        The curve of each model, or of each user if users have their own curves.
    truth_line_ : matplotlib.lines.Line2D, matplotlib.collections.LineCollection or None

    See Also
    --------
    IdentifiabilityDisplay : Whether the log determines examination and relevance at all.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.plotting import ExaminationDisplay
    >>> position = pd.Index([1, 2, 3], name="bias")
    >>> estimate = {"examination": [1.0, 0.52, 0.35], "standard_error": [0.0, 0.05, 0.08]}
    >>> display = ExaminationDisplay.from_estimator(
    ...     pd.DataFrame(estimate, index=position), truth=[1, 1 / 2, 1 / 3], name="DLA"
    ... )
    >>> display.lines_["DLA"].get_ydata()
    array([1.  , 0.52, 0.35])
    """

    _: KW_ONLY
    tables: Mapping[str, pd.DataFrame]
    truth: pd.Series | pd.DataFrame | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: object,
        *,
        truth: ArrayLike | Mapping[Any, float] | pd.Series | pd.DataFrame | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the examination that one fitted model estimated.

        Parameters
        ----------
        estimator : fitted estimator with ``examination_``, or DataFrame
            A ranker or propensity estimator, a pipeline that ends in one, a search over one; or
            the table itself. If the pipeline has an ``IdentifiabilityRepair``, its codes are
            replaced by the original bias factors. If users have their own curves, each user has a
            line; for ``UserClusters``, each cluster.
        truth : array-like, mapping, Series or DataFrame, default=None
            True examination of positions 1, 2, ..., or by bias factor. For users, an array of
            shape (n_users, n_positions) whose row u belongs to user u, a frame of users by bias
            factors, or a Series by both. The truth is multiplied by one number to match the
            estimates.
        name : str, default=None
            Name in the legend; by default that of the class.
        {ax}
        {plot_params}

        {display}
        """
        table = _table_of(estimator)
        if name is None:
            name = "estimate" if table is estimator else type(steps_of(estimator)[-1]).__name__
        return cls.from_estimators({name: table}, truth=truth, ax=ax, **plot_params)

    @classmethod
    def from_comparison(
        cls,
        estimator: object,
        *,
        truth: ArrayLike | Mapping[Any, float] | pd.Series | None = None,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the curves that a ranker compared, such as those of a table and a network.

        Parameters
        ----------
        estimator : fitted ranker with ``examination_comparison_``
            Or a pipeline that ends in one, or a search over one.
        {truth}
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        TypeError
            If the estimator has compared no curves.
        """
        ranker = steps_of(estimator)[-1]
        curves = getattr(ranker, "examination_comparison_", None)
        if curves is None:
            raise TypeError(
                f"{type(ranker).__name__} has no examination_comparison_; expected a fitted "
                "ranker that compared two curves, such as DLARanker with examination='auto' on a "
                "log whose documents moved too little to know the curve."
            )
        # One table for each curve; standard errors are those of the curve "table".
        names = [name for name in curves if name != "standard_error"]
        tables = {name: curves[[name]].set_axis(["examination"], axis=1) for name in names}
        if "standard_error" in curves:
            tables["table"] = tables["table"].assign(standard_error=curves["standard_error"])
        return cls.from_estimators(tables, truth=truth, ax=ax, **plot_params)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, object],
        *,
        truth: ArrayLike | Mapping[Any, float] | pd.Series | pd.DataFrame | None = None,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the examination that several fitted models estimated.

        Parameters
        ----------
        estimators : dict of str to estimator or DataFrame
            Name to model; each as in :meth:`from_estimator`. A model with curves of users must be
            the only one.
        {truth}
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        TypeError
            If a model has no ``examination_``.
        ValueError
            If there is no model, if models and truth share no bias factor, or if one of several
            models has curves of users.
        """
        if not isinstance(estimators, Mapping) or not estimators:
            raise ValueError(
                "estimators must map names to fitted models, such as {'DLA': ranker}; got "
                f"{estimators!r}."
            )
        tables = {name: _table_of(estimator) for name, estimator in estimators.items()}
        # Curves of users have colours of their own, and leave none for other models.
        by_user = [name for name, table in tables.items() if is_of_users(table)]
        if by_user and len(tables) > 1:
            raise ValueError(
                f"{by_user[0]!r} has one curve per user; expected it alone, got {len(tables)} "
                "models. Draw each model on its own axes (ax=...)."
            )
        if truth is not None:
            read = _read_truth_of_users if by_user else _read_truth
            truth = read(truth, tables)
        return cls(tables=tables, truth=truth).plot(ax, **plot_params)

    def plot(self, ax: Axes | None = None, *, confidence_level: float = 0.95) -> Self:
        """Draw the display.

        With up to 60 bias factors, curves are relative to the first factor that all models share,
        because click models determine examination only up to one factor. With more bias factors,
        each curve and the truth are drawn in decreasing order.

        Each user has a line, coloured by the mean position examined. Up to 20 users are named and
        have intervals.

        Parameters
        ----------
        {ax}
        confidence_level : float in (0, 1), default=0.95
            Level of the intervals, which are drawn where standard errors are known.

        {display}
        """
        if not (isinstance(confidence_level, Real) and 0 < confidence_level < 1):
            raise ValueError(
                f"confidence_level must be a number between 0 and 1, got {confidence_level!r}."
            )
        quantile = float(ndtri((1 + confidence_level) / 2))
        self._open(ax, (self._own_width(), 4.4))
        self.lines_: dict[Any, Line2D] = {}
        self.truth_line_: Line2D | LineCollection | None = None
        first, *_ = self.tables.values()
        if is_of_users(first):
            self._plot_users(first, quantile)
            return self
        curves = {name: table["examination"] for name, table in self.tables.items()}
        longest = max(map(len, curves.values()))
        if longest <= _MAX_CURVE:
            self._plot_curves(curves, quantile)
        else:
            self._plot_sorted(curves)
        self.ax_.legend(frameon=False)
        return self

    def _own_width(self):
        """Inches of a figure of its own: room for the names of factors that are no numbers."""
        numbers = [pd.api.types.is_numeric_dtype(table.index) for table in self.tables.values()]
        longest = max(map(len, self.tables.values()))
        if all(numbers) or longest > _MAX_CURVE or is_of_users(next(iter(self.tables.values()))):
            return 6.4
        # The axes are about three quarters of a figure.
        return max(6.4, _NAME * longest / 0.75)

    # Few bias factors -----------------------------------------------------------------
    def _plot_curves(self, curves, quantile):
        """Curves of models, relative to the first factor that all of them have."""
        truth = [] if self.truth is None else [self.truth]
        # Curves are known up to a factor: relative to one that all of them have.
        every = [*curves.values(), *truth]
        reference = _common_factors(every)[0]
        place = _places(pd.concat(every).index.unique().sort_values())
        colors = method_colors(curves)
        markers = cycle(_MARKERS)
        for name, curve in curves.items():
            # An infinite error marks a factor that the log does not connect with the first.
            relative = (curve / curve[reference]).sort_index()
            error = _errors(self.tables[name], relative.index)
            style = {"color": colors[name], "marker": next(markers), "markersize": 5}
            self._draw_curve(name, place, relative, error, quantile, label=name, **style)
            self._mark_unknown(place, relative[np.isposinf(error)], colors[name])
        for given in truth:
            given = (given / given[reference]).sort_index()
            (self.truth_line_,) = self.ax_.plot(place[given.index], given, **_TRUTH_LINE)
        self._label_factors(place, reference)

    def _draw_curve(self, key, place, curve, error, quantile, *, color, bars=True, **style):
        """Draw a curve, and its interval from standard errors of its log."""
        x = place[curve.index].to_numpy()
        y = curve.to_numpy()
        (self.lines_[key],) = self.ax_.plot(x, y, color=color, **style)
        there = np.isfinite(error)
        if not there.any():
            return
        # Intervals of logarithms are skewed and never reach 0.
        spread = factor_to_either_side(error, quantile)
        low = y / spread
        high = y * spread
        style = {"color": color, "alpha": 0.18, "linewidth": 0, "zorder": 1}
        self.ax_.fill_between(x, low, high, where=there, **style)
        if bars:
            # A band is invisible if the neighbours have no interval, and hard to see under others.
            style = {"color": color, "linewidth": 1.2, "alpha": 0.6}
            self.ax_.vlines(x[there], low[there], high[there], **style)

    def _mark_unknown(self, place, unknown, color):
        """Hollow points for factors that are not connected with the first; any value fits them."""
        if len(unknown):
            labels = [line.get_label() for line in self.ax_.lines]
            style = {"linestyle": "", "marker": "o", "color": color, "markerfacecolor": "white"}
            label = "not determined by the log"
            # Once in the legend: matplotlib leaves out labels that begin with "_".
            style["label"] = f"_{label}" if label in labels else label
            self.ax_.plot(place[unknown.index], unknown, zorder=4, **style)

    def _label_factors(self, place, reference):
        """Names and ticks of the factors, and the height of the axes."""
        are_positions = pd.api.types.is_integer_dtype(place.index) and place.index.min() == 1
        if are_positions:
            xlabel = "position"
            reference = f"position {reference}"
        else:
            xlabel = "bias factor"
            reference = factor_text(reference)
        # One huge interval must not flatten the curves.
        highest = np.clip(self.ax_.dataLim.ymax, 1.0, 3.0)
        self.ax_.set(
            xlabel=xlabel,
            ylabel=f"examination relative to {reference}",
            ylim=(0, 1.06 * highest),
        )
        self._write_title(f"How likely users look, by {xlabel}")
        if pd.api.types.is_integer_dtype(place.index):
            self.ax_.set_xticks(position_ticks(place.to_numpy()))
        elif not pd.api.types.is_numeric_dtype(place.index):
            self._name_factors(place)

    def _name_factors(self, place):
        """A tick with the name of each factor, or of every so many where these are too many."""
        inches = self._inches()[0]
        step = int(np.ceil(_NAME * len(place) / inches))
        shown = place.iloc[::step]
        labels = [factor_text(factor) for factor in shown.index]
        style = {}
        if sum(map(len, labels)) > 11 * inches:  # more letters than fit side by side
            style = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
        self.ax_.set_xticks(shown.to_numpy(), labels, **style)

    # Users ----------------------------------------------------------------------------
    def _plot_users(self, table, quantile):
        """One curve per user, coloured by the mean position that the user examines."""
        curves = table["examination"].unstack().sort_index(axis=1).dropna(how="all")
        if curves.empty:
            raise ValueError(
                "The log determines the examination of no user, so that no curve can be drawn."
            )
        # `UserClusters` sorts its clusters by this mean, which is 0 where nothing is examined.
        positions = curves.columns.to_numpy()
        depth = (curves * positions).sum(axis=1) / curves.sum(axis=1)
        depth = depth.fillna(0.0).sort_values(kind="stable")
        # Of more than 20 users, neither names nor intervals could be told apart.
        if len(depth) <= 20:
            self._plot_named_users(table, curves, depth, quantile)
        else:
            self._plot_many_users(table, curves, depth)
        # The table has one scale for all users, so that the curve of a user need not start at 1.
        self._label_factors(_places(curves.columns), curves.columns.min())
        self._write_title(f"How likely each {curves.index.name or 'user'} looks")

    def _plot_named_users(self, table, curves, depth, quantile):
        """Curves with intervals, and with the names of users in the legend."""
        place = _places(curves.columns)
        # The bright end of the colour map is hard to see on white.
        colors = shades("viridis", len(depth), 0.82)
        style = {"marker": "o", "markersize": 3, "bars": False}
        for user, color in zip(depth.index, colors, strict=True):
            curve = curves.loc[user]
            error = _errors(table.loc[user], curve.index)
            self._draw_curve(
                user, place, curve, error, quantile, color=color, label=str(user), **style
            )
        if self.truth is not None:
            truth = _scaled_to(table, self.truth.reindex(curves.index))
            self.truth_line_ = _draw_truth(self.ax_, truth, linewidths=1.0, alpha=0.75)
        outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "fontsize": 8}
        style = outside if len(depth) > _NAMES_INSIDE else {}
        self.ax_.legend(frameon=False, title=curves.index.name, **style)

    def _plot_many_users(self, table, curves, depth):
        """Thin curves without names; the colour tells how deep a user reads."""
        place = _places(curves.columns)
        x = place.to_numpy()
        colors = _colors_by_depth(self.ax_, depth)
        for user, color in zip(depth.index, colors, strict=True):
            (self.lines_[user],) = self.ax_.plot(
                x,
                curves.loc[user].to_numpy(),
                color=color,
                linewidth=0.8,
                alpha=0.5,
                label=f"_{user}",
            )
        if self.truth is not None:
            truth = _scaled_to(table, self.truth.reindex(curves.index))
            self.truth_line_ = _draw_truth(self.ax_, truth, linewidths=0.4, alpha=0.4)
            self.ax_.legend(frameon=False)

    # Many bias factors ----------------------------------------------------------------
    def _plot_sorted(self, curves):
        for name, color in method_colors(curves).items():
            (self.lines_[name],) = self.ax_.plot(*_falling(curves[name]), color=color, label=name)
        if self.truth is not None:
            (self.truth_line_,) = self.ax_.plot(*_falling(self.truth), **_TRUTH_LINE)
        self.ax_.set(
            xscale="log",
            xlabel="bias factors, most examined first",
            ylabel="examination relative to the most examined",
        )
        # 100 is easier to read than 10 to the power of 2.
        self.ax_.xaxis.set_major_formatter("{x:,.0f}")
        self._write_title("How likely users look, by bias factor")


# Input --------------------------------------------------------------------------------
def _by_factor(table, steps):
    """The table indexed by the bias factors of the log, if an earlier step recoded them."""
    for step in steps:
        factors = getattr(step, "factors_", None)
        if isinstance(factors, pd.DataFrame) and "code" in factors and len(factors):
            known = np.flatnonzero(factors["code"].isin(table.index))
            values = factor_labels(factors.drop(columns="code"), known).tolist()
            index = pd.Index(values, tupleize_cols=False, name="bias")
            return table.loc[factors["code"].iloc[known]].set_axis(index)
    return table


def _table_of(estimator):
    """The table of examination of a fitted model."""
    table = estimator
    if not isinstance(estimator, pd.DataFrame):
        # The last step has the curve, and an earlier one may have recoded the factors.
        *before, model = steps_of(estimator)
        table = fitted_value(model, "examination_")
        if isinstance(table, pd.DataFrame) and not is_of_users(table):
            table = _by_factor(table, before)
        elif hasattr(model, "cluster_curves_"):
            table = model.cluster_curves_.stack().to_frame("examination")
    if not isinstance(table, pd.DataFrame) or "examination" not in table:
        raise TypeError(
            f"{type(estimator).__name__} has no table of examination; expected a fitted model "
            "with examination_, such as DLARanker, or a DataFrame with the column 'examination', "
            "indexed by bias factor."
        )
    return table


def _read_truth(truth, tables):
    """The truth as a Series by bias factor."""
    if isinstance(truth, Mapping | pd.Series):
        # Tuples stay tuples, as in the tables, instead of becoming a MultiIndex.
        factors = pd.Index(list(truth.keys()), tupleize_cols=False)
        return pd.Series([float(value) for _, value in truth.items()], index=factors)
    truth = np.asarray(truth, dtype=float)
    if truth.ndim != 1:
        raise ValueError(
            f"truth has the shape {truth.shape}; expected one examination per position, or a "
            "mapping or Series by bias factor."
        )
    for name, table in tables.items():
        if 0 in table.index:
            # Codes count from 0, so that position 1 would be compared with the second factor.
            raise ValueError(
                f"truth is an array of positions 1, 2, ..., but {name!r} has a bias factor 0, so "
                "that its factors are codes. Pass the pipeline with the IdentifiabilityRepair "
                "that wrote them, or a Series of the truth by code."
            )
    return pd.Series(truth, index=np.arange(1, len(truth) + 1))


def _common_factors(curves):
    """Bias factors with an examination above 0 in all curves, sorted."""
    common = curves[0].index
    # What is 0 somewhere cannot be what curves are divided by.
    for curve in curves:
        common = common.intersection(curve.index[curve.to_numpy(dtype=float) > 0])
    if not len(common):
        raise ValueError(
            "No bias factor has an examination above 0 in every table (and the truth), so that "
            "they cannot be compared. If truth is an array, it is that of positions 1, 2, ...: "
            "for other factors pass a Series with the index of examination_."
        )
    return common.sort_values()


def _falling(curve):
    """Ranks, and the curve in decreasing order, relative to its largest value."""
    # Ranks count from 1, as the axis is logarithmic.
    rank = np.arange(1, len(curve) + 1)
    falling = np.sort(curve.to_numpy(dtype=float))[::-1]
    return rank, falling / curve.max()


def _places(factors):
    """Coordinate of each factor: its value if factors are numbers, else 0, 1, 2, ..."""
    numbers = pd.api.types.is_numeric_dtype(factors)
    return pd.Series(factors if numbers else np.arange(len(factors)), index=factors)


def _errors(table, factors):
    """Standard errors of the log of examination; NaN where they are not known."""
    # Tables of a truth, or without errors, have none.
    known = table.get("standard_error", pd.Series(dtype=float))
    # In the order of the curve, which may have other factors.
    return known.reindex(factors).to_numpy(dtype=float)


def is_of_users(table: pd.DataFrame) -> bool:
    """Whether a table of examination has one curve per user (or cluster)."""
    return isinstance(table.index, pd.MultiIndex) and table.index.nlevels == 2


def _read_truth_of_users(truth, tables):
    """The truth as a frame of users, those of the only table, by bias factors."""
    if isinstance(truth, pd.DataFrame):
        return truth
    if isinstance(truth, Mapping | pd.Series):
        return pd.Series(dict(truth.items())).unstack()
    (table,) = tables.values()
    truth = np.asarray(truth, dtype=float)
    users = table.index.unique(0)
    # Only numbers of users can be rows of an array.
    numbered = pd.api.types.is_integer_dtype(users) and users.min() >= 0
    if truth.ndim != 2 or not numbered or users.max() >= len(truth):
        listed = ", ".join(map(str, users[:5]))
        if len(users) > 5:
            listed += ", ..."
        raise ValueError(
            f"truth has the shape {truth.shape}, but the table has curves of the users {listed}; "
            "expected an array of shape (n_users, n_positions) whose row u belongs to user u, or "
            "a DataFrame with users as index and bias factors as columns."
        )
    return pd.DataFrame(truth, columns=np.arange(1, truth.shape[1] + 1))


def _colors_by_depth(ax, depth):
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    scale = ScalarMappable(Normalize(depth.min(), depth.max()), "viridis")
    # Whole positions, where the users differ by that much.
    whole = MaxNLocator(integer=True) if np.ptp(depth) >= 2 else None
    label = f"mean position that a {depth.index.name} examines"
    ax.figure.colorbar(scale, ax=ax, label=label, ticks=whole)
    return scale.to_rgba(depth.to_numpy())


def _scaled_to(table, truth):
    """The truth times one number that makes it equal to the table at the first factor.

    Equal on average over users, weighted by clicks, because tables are relative to the mean user.
    """
    curves = table["examination"].unstack()
    # Ratios of logs, at the first factor that some user shares.
    ratio = np.log(curves / truth.reindex_like(curves))
    ratio = ratio.where(np.isfinite(ratio)).dropna(axis=1, how="all")
    if ratio.empty:
        raise ValueError(
            "truth and estimates have no user and bias factor in common whose examination is "
            f"above 0: the table has users such as {curves.index[0]!r} and bias factors such as "
            f"{curves.columns[0]!r}; expected a truth by the same ids."
        )
    ratio = ratio[ratio.columns.min()].dropna()
    clicks = table.get("clicks", pd.Series(1.0, table.index)).unstack()
    # Users without clicks weigh next to nothing, but weights do not sum to 0.
    weights = clicks.loc[ratio.index, ratio.name] + 1e-9
    return truth * np.exp(np.average(ratio, weights=weights))


def _draw_truth(ax, truth, **style):
    from matplotlib.collections import LineCollection

    # One line per user, in one collection: hundreds of single lines are slow.
    x = truth.columns.to_numpy()
    paths = [np.column_stack([x, y]) for y in truth.dropna().to_numpy()]
    return ax.add_collection(
        LineCollection(
            paths, colors=TRUTH, linestyles=(0, (3, 2)), zorder=3, label="truth", **style
        )
    )
