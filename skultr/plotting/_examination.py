"""Estimated examination of bias factors or of many users, and the true one if it is known."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.isotonic import isotonic_regression

from .._base._typing import ArrayLike, Floats
from ..identifiability._bias_features import factor_labels
from ._axes import TRUTH, Display, factor_text, fitted_value, method_colors, shades, steps_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

#: Up to this number of bias factors, examination is drawn as curves with one tick per factor.
_MAX_CURVE = 60
_MARKERS = "osD^vP"


class ExaminationDisplay(Display):
    """Curves of the examination that models estimated, with intervals and the truth.

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
        The curve (or points) of each model, or of each user if users have their own curves.
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

    lines_: dict[Any, Line2D]
    truth_line_: Line2D | LineCollection | None

    def __init__(
        self, *, tables: Mapping[str, pd.DataFrame], truth: pd.Series | pd.DataFrame | None = None
    ) -> None:
        self.tables = tables
        self.truth = truth

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
            factors, or a Series by both; it is multiplied by one number to match the estimates.
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
        truth : array-like of shape (n_positions,), mapping or Series, default=None
            True examination of positions 1, 2, ..., or by bias factor.
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
                "ranker that compared two curves, such as DLARanker with examination='auto'."
            )
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
        truth : array-like of shape (n_positions,), mapping or Series, default=None
            True examination of positions 1, 2, ..., or by bias factor.
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        TypeError
            If a model has no ``examination_``.
        ValueError
            If there is no model, if models and truth have no bias factor in common, or if one of
            several models has curves of users.
        """
        if not isinstance(estimators, Mapping) or not estimators:
            raise ValueError(
                "estimators must map names to fitted models, such as {'DLA': ranker}; got "
                f"{estimators!r}."
            )
        tables = {name: _table_of(estimator) for name, estimator in estimators.items()}
        of_users = [name for name, table in tables.items() if is_of_users(table)]
        if of_users and len(tables) > 1:
            raise ValueError(
                f"{of_users[0]!r} has one curve per user; expected it alone, got {len(tables)} "
                "models. Draw each model on its own axes (ax=...)."
            )
        if of_users:
            truth = read_truth_of_users(truth, tables[of_users[0]])
        else:
            truth = _read_truth(truth, tables)
        return cls(tables=tables, truth=truth).plot(ax, **plot_params)

    def plot(self, ax: Axes | None = None, *, confidence_level: float = 0.95) -> Self:
        """Draw the display.

        With up to 60 bias factors, curves relative to the first factor that all models have in
        common (click models determine examination up to one factor only). With more, points: the
        estimates, scaled to the truth, against the truth; or, without a truth, the estimates in
        decreasing order.

        Each user has a line, coloured by the mean position examined. Up to 20 users are named at
        the ends of their lines and have intervals.

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
        self._open(ax, (6.4, 4.4))
        self.ax_.spines[["top", "right"]].set_visible(False)
        first, *_ = self.tables.values()
        if is_of_users(first):
            found = draw_user_curves(self.ax_, first, self.truth, quantile)
            self.lines_, self.truth_line_ = found
            if self.truth is not None:
                self.ax_.legend(frameon=False)
            return self
        self._plot_models(quantile)
        for handle in self.ax_.legend(frameon=False).legend_handles:
            # The markers of a cloud are too small and pale to be recognised in a legend.
            handle.set(alpha=1, markersize=6)
        return self

    def _plot_models(self, quantile):
        curves = {name: table["examination"] for name, table in self.tables.items()}
        known = list(curves.values()) + ([] if self.truth is None else [self.truth])
        common = _common_factors(known)
        self.lines_, self.truth_line_ = {}, None
        if max(map(len, curves.values())) <= _MAX_CURVE:
            self._plot_curves(curves, common[0], quantile)
        elif self.truth is not None:
            self._plot_against_truth(curves)
        else:
            self._plot_sorted(curves)

    # Few bias factors -----------------------------------------------------------------
    def _plot_curves(self, curves, reference, quantile):
        truth = [] if self.truth is None else [self.truth]
        factors = pd.concat([*curves.values(), *truth]).index.unique().sort_values()
        colors = method_colors(curves)
        place = _places(factors)
        top = 1.0
        for number, (name, curve) in enumerate(curves.items()):
            curve = curve.sort_index()
            relative = (curve / curve[reference]).to_numpy()
            x, marker = place[curve.index].to_numpy(), _MARKERS[number % len(_MARKERS)]
            style = {"color": colors[name], "marker": marker, "markersize": 5}
            (self.lines_[name],) = self.ax_.plot(x, relative, label=name, **style)
            high = self._plot_interval(name, curve.index, x, relative, quantile, colors[name])
            top = max(top, np.nanmax(relative), high)
        for given in truth:
            given = (given / given[reference]).sort_index()
            style = {"color": TRUTH, "linestyle": "--", "zorder": 3, "label": "truth"}
            (self.truth_line_,) = self.ax_.plot(place[given.index], given, **style)
            top = max(top, given.max())
        self._label_factors(place, reference)
        # One huge interval must not flatten the curves.
        self.ax_.set_ylim(0, 1.06 * min(top, 3.0))

    def _plot_interval(self, name, index, x, relative, quantile, color):
        """Draw the interval of a curve; returns its upper end."""
        table = self.tables[name]
        if "standard_error" not in table:
            return 0.0
        error = table.loc[index, "standard_error"].to_numpy(dtype=float)
        self._mark_unknown(x[np.isposinf(error)], relative[np.isposinf(error)], color)
        return draw_interval(self.ax_, x, relative, error, quantile, color)

    def _mark_unknown(self, x, y, color):
        """Hollow points for factors that are not connected with the first; any value fits them."""
        if len(x):
            labels = [line.get_label() for line in self.ax_.lines]
            style = {"linestyle": "", "marker": "o", "color": color, "markerfacecolor": "white"}
            label = "not determined by the log"
            self.ax_.plot(x, y, label="_" * (label in labels) + label, zorder=4, **style)

    def _label_factors(self, place, reference):
        positions = pd.api.types.is_integer_dtype(place.index) and place.index.min() == 1
        self.ax_.set_xlabel("position" if positions else "bias factor")
        reference = f"position {reference}" if positions else factor_text(reference)
        self.ax_.set_ylabel(f"examination relative to {reference}")
        if len(place) <= 15 or not _is_numeric(place.index):
            labels = [factor_text(factor) for factor in place.index]
            crowded = sum(map(len, labels)) > 70
            rotation = (
                {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
            )
            self.ax_.set_xticks(place.to_numpy(), labels, **rotation)

    # Many bias factors ----------------------------------------------------------------
    def _plot_against_truth(self, curves):
        colors = method_colors(curves)
        ends = low, high = self.truth[self.truth > 0].min(), self.truth.max()
        for name, curve in curves.items():
            known, estimate = self.truth.align(curve, join="inner")
            usable = (known > 0) & (estimate > 0)
            known, estimate = known[usable], estimate[usable]
            shift = np.log(known) - np.log(estimate)
            # The median, because some factors are off by orders of magnitude.
            estimate = estimate * np.exp(shift.median())
            correlation = np.corrcoef(np.log(known), np.log(estimate))[0, 1]
            label = f"{name} (correlation of logs {correlation:.2f})"
            # Rasterised and transparent: 50,000 points overlap, and a PDF stays small.
            (self.lines_[name],) = self.ax_.plot(
                known,
                estimate,
                "o",
                color=colors[name],
                alpha=float(np.clip(300 / len(known), 0.08, 0.7)),
                markersize=float(np.clip(60 / np.sqrt(len(known)), 1.0, 5.0)),
                markeredgewidth=0,
                rasterized=True,
                label=label,
            )
            low, high = min(low, estimate.quantile(0.001)), max(high, estimate.quantile(0.999))
        style = {"color": TRUTH, "linestyle": "--", "zorder": 3, "label": "truth"}
        (self.truth_line_,) = self.ax_.plot(ends, ends, **style)
        self.ax_.set(
            xscale="log",
            yscale="log",
            xlabel="true examination",
            ylabel="estimated examination, scaled to the truth",
            ylim=(low / 1.3, high * 1.3),
        )

    def _plot_sorted(self, curves):
        colors = method_colors(curves)
        for name, curve in curves.items():
            falling = np.sort(curve.to_numpy(dtype=float))[::-1] / curve.max()
            rank = np.arange(1, len(falling) + 1)
            (self.lines_[name],) = self.ax_.plot(rank, falling, color=colors[name], label=name)
        self.ax_.set(
            xscale="log",
            xlabel="bias factors, most examined first",
            ylabel="examination relative to the most examined",
        )


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
    if truth is None:
        return None
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
                f"truth is an array, hence of positions 1, 2, ..., but {name!r} has a bias factor "
                "0: these are codes. Pass the pipeline with the IdentifiabilityRepair that wrote "
                "them, or a Series of the truth by code."
            )
    return pd.Series(truth, index=np.arange(1, len(truth) + 1))


def _common_factors(curves):
    """Bias factors with an examination above 0 in all curves, sorted."""
    common = curves[0].index
    for curve in curves:
        common = common.intersection(curve.index[curve.to_numpy(dtype=float) > 0])
    if not len(common):
        raise ValueError(
            "No bias factor has an examination above 0 in every table (and the truth), so that "
            "they cannot be compared. A truth that is an array is that of positions 1, 2, ...; "
            "pass a Series with the index of examination_ for other factors."
        )
    return common.sort_values()


def _is_numeric(index):
    return pd.api.types.is_numeric_dtype(index)


def _places(factors):
    """Coordinate of each factor: its value if factors are numbers, else 0, 1, 2, ..."""
    return pd.Series(factors if _is_numeric(factors) else np.arange(len(factors)), index=factors)


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
    # The bright end of the colour map is hard to see on white.
    colors = shades("viridis", len(depth), 0.82) if few else _colors_by_depth(ax, depth)
    colors = dict(zip(depth.index, colors, strict=True))
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
    ax.set_ylim(0, 1.06 * min(top, 3.0))
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


def _colors_by_depth(ax, depth):
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(depth.min(), depth.max()), "viridis")
    ax.figure.colorbar(scale, ax=ax, label=f"mean position that a {depth.index.name} examines")
    return scale.to_rgba(depth.to_numpy())


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
