"""Scores of a model against the logged positions of the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from .._typing import Column, Frame, Predictor, RandomState
from ..metrics._click_scorers import annotated_documents
from ..metrics._dependence import CMIPEstimator, cmip_score
from ._axes import figure_of, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


#: A line has at most so many points, and each is the mean of at least so many documents.
_N_POINTS, _FEWEST = 8, 10


class DebiasednessDisplay:
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

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
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

    ax_: Axes
    figure_: Figure
    points_: dict[Any, PathCollection]
    lines_: dict[Any, Line2D]

    def __init__(self, documents: pd.DataFrame, *, cmip: float) -> None:
        self.documents = documents
        self.cmip = cmip

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
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        **plot_params
            Passed to :meth:`plot`.

        Returns
        -------
        display : DebiasednessDisplay

        Raises
        ------
        ValueError
            If X lacks a role or the column, no shown document is annotated, or no two documents
            share a grade.
        """
        owner = cls(pd.DataFrame(), cmip=np.nan)  # errors name its class
        if logging is not None:
            plot_params.setdefault("logging_name", logging)
        return cls.from_predictions(
            *annotated_documents(owner, estimator, X, logging=logging),
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
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        **plot_params
            Passed to :meth:`plot`.

        Returns
        -------
        display : DebiasednessDisplay

        Raises
        ------
        ValueError
            For the same reasons as :func:`skultr.metrics.cmip_score`.
        """
        cmip = cmip_score(
            y_pred, y_logging, y_true, estimator=cmip_estimator, random_state=random_state
        )
        columns = {"score": y_pred, "logged": y_logging, "grade": y_true}
        documents = pd.DataFrame({name: np.asarray(of) for name, of in columns.items()})
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
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        name : str, default=None
            Name of the model, for the title.
        logging_name : str, default="mean logged position"
            Label of the horizontal axis.
        cmap : str or matplotlib colormap, default="viridis"
            Colours of the grades.
        s, alpha : float
            Size and opacity of the documents.

        Returns
        -------
        display : DebiasednessDisplay
        """
        self.ax_ = make_axes(ax, "DebiasednessDisplay", (5.2, 4.2))
        self.figure_ = figure_of(self.ax_)
        grades = np.unique(self.documents["grade"])
        self.points_, self.lines_ = {}, {}
        # The best grade is drawn last, on top.
        for grade, color in zip(grades, _colors(cmap, len(grades)), strict=True):
            of = self.documents[self.documents["grade"] == grade]
            self.points_[grade] = self.ax_.scatter(
                of["logged"], of["score"], s=s, alpha=alpha, color=color, linewidths=0
            )
            if len(of) >= 2 * _FEWEST:
                label = f"grade {grade:g}"
                mean = _means_along(of["logged"].to_numpy(), of["score"].to_numpy())
                (self.lines_[grade],) = self.ax_.plot(*mean, color=color, lw=2.2, label=label)
        title = f"CMIP = {self.cmip:.2f}"
        self.ax_.set_title(f"{name}: {title}" if name else title)
        self.ax_.set(xlabel=logging_name, ylabel="score of the model")
        self.ax_.spines[["top", "right"]].set_visible(False)
        if self.lines_:
            self.ax_.legend(frameon=False, fontsize="small")
        return self


def _means_along(x, y):
    """Means of x and y in groups of equally many documents, by increasing x; shape (2, n)."""
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, min(_N_POINTS, len(x) // _FEWEST))
    return np.array([[x[g].mean(), y[g].mean()] for g in groups]).T


def _colors(cmap, n):
    from matplotlib import colormaps

    cmap = colormaps[cmap] if isinstance(cmap, str) else cmap
    return cmap(np.linspace(0, 0.9, n))
