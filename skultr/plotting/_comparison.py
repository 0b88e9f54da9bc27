"""Models to choose from: differences between rankers, and scores against logged positions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from .._base._typing import Column, Frame, Predictor, RandomState
from ..metrics._click_scorers import annotated_documents
from ..metrics._dependence import CMIPEstimator, cmip_score
from ._axes import Display, draw_legend, palette, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.container import ErrorbarContainer
    from matplotlib.lines import Line2D


@dataclass(eq=False, repr=False)
class ComparisonDisplay(Display):
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

    table: pd.DataFrame
    per_query: pd.DataFrame
    metric: str

    @classmethod
    def from_result(cls, result: Any, *, axes: Any = None) -> Self:
        """Draw the result of a comparison.

        Parameters
        ----------
        result : RankerComparison
            The result of :func:`~skultr.evaluation.compare_rankers`.
        {axes}

        {display}

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

        {display}
        """
        n_rows, ranks = len(self.table), np.arange(1, len(self.per_query) + 1)
        self._open_two(axes, (10.0, 2.2 + 0.4 * n_rows), "the means and the queries")
        left, right = self.axes_
        self.intervals_: list[ErrorbarContainer] = []
        self.lines_: list[Line2D] = []
        for place, row in enumerate(self.table.itertuples()):
            color, name = palette(n_rows)[place], f"{row.ranker} - {row.baseline}"
            self.intervals_.append(_draw_interval(left, place, row, color))
            difference = np.sort(self.per_query[row.ranker] - self.per_query[row.baseline])
            style = {"color": color, "drawstyle": "steps-mid", "label": name}
            self.lines_ += right.plot(ranks, difference, **style)
        left.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        left.set_yticks(
            range(n_rows), [line.get_label() for line in self.lines_], parse_math=False
        )
        left.set_ylim(n_rows - 0.5, -0.5)
        left.set_xlabel(f"difference in {self.metric}, mean", parse_math=False)
        right.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        right.set_xlabel("queries, from the largest loss")
        right.set_ylabel(f"difference in {self.metric}", parse_math=False)
        draw_legend(right, self.lines_)
        for ax in self.axes_:
            ax.spines[["top", "right"]].set_visible(False)
        return self


def _draw_interval(ax: Axes, place: int, row: Any, color: Any) -> ErrorbarContainer:
    error = None
    if np.isfinite(row.lower):
        error = [[row.difference - row.lower], [row.upper - row.difference]]
    face = "white" if row.verdict == "cannot tell" else color
    style = {"color": color, "markerfacecolor": face, "capsize": 3}
    return ax.errorbar([row.difference], [place], xerr=error, fmt="o", **style)


#: A line has at most so many points, and each is the mean of at least so many documents.
_N_POINTS, _FEWEST = 8, 10


@dataclass(eq=False, repr=False)
class DebiasednessDisplay(Display):
    """Scores of a model against the logged positions of the documents, by grade.

    If a model is debiased, the cloud of each grade is flat: among documents of equal relevance,
    the score does not depend on where production put them. Falling lines, or a large CMIP in
    the title, show scores that copy the old ranking. Create it with :meth:`from_estimator` or
    :meth:`from_predictions`.

    Parameters
    ----------
    documents : DataFrame
        One row per document: ``score``, ``logged`` and ``grade``.
    cmip : float
        Conditional mutual information of ``score`` and ``logged`` given ``grade``.

    {attributes}
    points_ : dict of grade to matplotlib.collections.PathCollection
        The documents of each grade.
    lines_ : dict of grade to matplotlib.lines.Line2D
        Mean score against logged position, for each grade with at least 20 documents.

    See Also
    --------
    skultr.metrics.cmip_score : CMIP, with standard error and p-value.
    skultr.metrics.CMIPScorer : CMIP as a scorer, for searches.

    Notes
    -----
    Flat clouds do not imply a good model: random scores have them too. Check nDCG as well.

    References
    ----------
    Deffayet, Hager, Renders and de Rijke (2023). An offline metric for the debiasedness of click
    models. SIGIR. Figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.plotting import DebiasednessDisplay
    >>> rng = np.random.default_rng(0)
    >>> grade, logged = rng.integers(0, 3, 600), rng.uniform(1, 10, 600)
    >>> display = DebiasednessDisplay.from_predictions(
    ...     grade - logged, logged, grade, cmip_estimator="knn"
    ... )
    >>> display.cmip > 1
    True
    """

    documents: pd.DataFrame
    _: KW_ONLY
    cmip: float

    @classmethod
    def from_estimator(
        cls,
        estimator: Predictor,
        X: Frame,
        *,
        logging: str | None = None,
        cmip_estimator: CMIPEstimator = "classifier",
        random_state: RandomState = 0,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the scores of a fitted ranker or click model for the documents of a log.

        Parameters
        ----------
        estimator : fitted ranker or click model
            With a method ``predict(X)`` that returns one score per row.
        X : frame of shape (n_rows, n_columns)
            A click log with the roles ``qid``, ``position`` and ``relevance``, which may be
            missing in some rows. Annotated documents (``doc``, or equal features in a query)
            are drawn once, at their mean position weighted by the ``impressions`` of their rows,
            as for :class:`~skultr.metrics.CMIPScorer`. Documents never shown are left out.
        logging : str, default=None
            Column of X with the score of the document by the logging policy, instead of its
            position.
        cmip_estimator : {"classifier", "knn", "published"}, default="classifier"
            The ``estimator`` of :func:`skultr.metrics.cmip_score`.
        random_state : int, RandomState instance or None, default=0
            Seed of the estimate of CMIP.
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        ValueError
            If X lacks a role or the column, no shown document is annotated, or no two documents
            share a grade.
        """
        if logging is not None:
            plot_params.setdefault("logging_name", logging)
        return cls.from_predictions(
            *annotated_documents(cls.__name__, estimator, X, logging=logging),
            cmip_estimator=cmip_estimator,
            random_state=random_state,
            ax=ax,
            **plot_params,
        )

    @classmethod
    def from_predictions(
        cls,
        y_pred: Column,
        y_logging: Column,
        y_true: Column,
        *,
        cmip_estimator: CMIPEstimator = "classifier",
        random_state: RandomState = 0,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw scores of documents.

        Parameters
        ----------
        y_pred : array-like of shape (n_documents,)
            Scores of the model.
        y_logging : array-like of shape (n_documents,)
            Mean logged position of each document, or a score of the logging policy.
        y_true : array-like of shape (n_documents,)
            Grades of relevance.
        cmip_estimator, random_state
            As in :meth:`from_estimator`.
        {ax}
        {plot_params}

        {display}

        Raises
        ------
        ValueError
            For the same reasons as :func:`skultr.metrics.cmip_score`.
        """
        cmip = cmip_score(
            y_pred, y_logging, y_true, estimator=cmip_estimator, random_state=random_state
        )
        columns = map(np.asarray, (y_pred, y_logging, y_true))
        documents = pd.DataFrame(dict(zip(("score", "logged", "grade"), columns, strict=True)))
        return cls(documents, cmip=cmip).plot(ax, **plot_params)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        logging_name: str = "mean logged position",
        cmap: str | Colormap = "viridis",
        s: float = 9,
        alpha: float = 0.35,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        {ax}
        name : str, default=None
            Name of the model, for the title.
        logging_name : str, default="mean logged position"
            Label of the horizontal axis.
        cmap : str or matplotlib colormap, default="viridis"
            Colours of the grades.
        s, alpha : float
            Size and opacity of the documents.

        {display}
        """
        self._open(ax, (5.2, 4.2))
        grades = np.unique(self.documents["grade"])
        self.points_: dict[Any, PathCollection] = {}
        self.lines_: dict[Any, Line2D] = {}
        # The best grade is drawn last, on top.
        for grade, color in zip(grades, shades(cmap, len(grades), 0.9), strict=True):
            x, y = self.documents.loc[
                self.documents["grade"] == grade, ["logged", "score"]
            ].T.to_numpy()
            self.points_[grade] = self.ax_.scatter(
                x, y, s=s, alpha=alpha, color=color, linewidths=0
            )
            if len(x) >= 2 * _FEWEST:
                groups = np.array_split(
                    np.argsort(x, kind="stable"), min(_N_POINTS, len(x) // _FEWEST)
                )
                means = [[values[group].mean() for group in groups] for values in (x, y)]
                style = {"color": color, "lw": 2.2, "label": f"grade {grade:g}"}
                (self.lines_[grade],) = self.ax_.plot(*means, **style)
        title = f"CMIP = {self.cmip:.2f}"
        self.ax_.set_title(f"{name}: {title}" if name else title)
        self.ax_.set(xlabel=logging_name, ylabel="score of the model")
        if self.lines_:
            self.ax_.legend(frameon=False, fontsize="small")
        return self
