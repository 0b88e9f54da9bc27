"""Differences between rankers: their means with intervals, and query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ._axes import draw_legend, figure_of, make_axes, palette

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


class ComparisonDisplay:
    """Differences between rankers on annotated queries.

    Left: the mean difference of each comparison with its interval, filled where rankers differ
    and hollow where the queries cannot tell. Right: the differences of all queries, from the
    largest loss to the largest gain. Create it with :meth:`from_result`.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_comparisons, 14)
    per_query : pandas.DataFrame of shape (n_queries, n_rankers)
    metric : str
        As in :class:`~skultr.evaluation.RankerComparison`.

    Attributes
    ----------
    axes_ : ndarray of shape (2,) of matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    intervals_ : list of matplotlib.container.ErrorbarContainer
        One per comparison.
    lines_ : list of matplotlib.lines.Line2D
        The differences of all queries, one line per comparison.

    See Also
    --------
    skultr.evaluation.compare_rankers : Makes the result.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import compare_rankers
    >>> from skultr.plotting import ComparisonDisplay
    >>> X = make_ltr(n_queries=50, random_state=0)
    >>> rankers = {"old": X["feature_000"], "new": X["feature_000"] + X["relevance"]}
    >>> display = ComparisonDisplay.from_result(compare_rankers(rankers, X, random_state=0))
    >>> [label.get_text() for label in display.axes_[0].get_yticklabels()]
    ['new - old']
    """

    axes_: Any
    figure_: Figure
    intervals_: list[ErrorbarContainer]
    lines_: list[Line2D]

    def __init__(self, table: pd.DataFrame, per_query: pd.DataFrame, metric: str) -> None:
        self.table = table
        self.per_query = per_query
        self.metric = metric

    @classmethod
    def from_result(cls, result: Any, *, axes: Any = None) -> Self:
        """Draw the result of a comparison.

        Parameters
        ----------
        result : RankerComparison
            The result of :func:`~skultr.evaluation.compare_rankers`.
        axes : sequence of two matplotlib axes, default=None
            See :meth:`plot`.

        Returns
        -------
        display : ComparisonDisplay

        Raises
        ------
        TypeError
            If it is not such a result.
        """
        if not hasattr(result, "table") or not hasattr(result, "per_query"):
            raise TypeError(
                f"result is a {type(result).__name__}; expected the result of compare_rankers."
            )
        return cls(result.table, result.per_query, result.metric).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, default=None
            For the means and the queries; by default, axes of a new figure.

        Returns
        -------
        display : ComparisonDisplay
        """
        rows = list(self.table.itertuples())
        names = [f"{row.ranker} - {row.baseline}" for row in rows]
        if axes is None:
            height = 2.2 + 0.4 * len(rows)
            figure = make_axes(None, "ComparisonDisplay", (10.0, height)).figure
            figure.clear()
            axes = figure.subplots(1, 2)
        self.axes_ = np.asarray(axes, dtype=object).ravel()
        if len(self.axes_) != 2:
            raise ValueError(
                f"axes holds {len(self.axes_)} axes; expected two, for the means and the queries."
            )
        left, right = self.axes_
        self.figure_ = figure_of(left)
        colors = palette(len(rows))
        self.intervals_ = [
            _draw_interval(left, place, row, color)
            for place, (row, color) in enumerate(zip(rows, colors, strict=True))
        ]
        self.lines_ = [
            self._draw_queries(right, row, name, color)
            for row, name, color in zip(rows, names, colors, strict=True)
        ]
        left.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        left.set_yticks(range(len(rows)), names, parse_math=False)
        left.set_ylim(len(rows) - 0.5, -0.5)
        left.set_xlabel(f"difference in {self.metric}, mean", parse_math=False)
        right.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        right.set_xlabel("queries, from the largest loss")
        right.set_ylabel(f"difference in {self.metric}", parse_math=False)
        draw_legend(right, self.lines_)
        for ax in self.axes_:
            ax.spines[["top", "right"]].set_visible(False)
        return self

    def _draw_queries(self, ax, row, name, color):
        difference = np.sort(self.per_query[row.ranker] - self.per_query[row.baseline])
        place = np.arange(1, len(difference) + 1)
        (line,) = ax.plot(place, difference, color=color, drawstyle="steps-mid", label=name)
        return line


def _draw_interval(ax: Axes, place: int, row: Any, color: Any) -> ErrorbarContainer:
    error = None
    if np.isfinite(row.lower):
        error = [[row.difference - row.lower], [row.upper - row.difference]]
    face = "white" if row.verdict == "cannot tell" else color
    style = {"color": color, "markerfacecolor": face, "capsize": 3}
    return ax.errorbar([row.difference], [place], xerr=error, fmt="o", **style)
