"""Scores of a model against where the logging policy put the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from .._typing import Column, Frame, Predictor, RandomState
from ..metrics._click_scorers import annotated_documents
from ..metrics._dependence import cmip_score
from ._axes import figure_of, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = ["DebiasednessDisplay"]

#: A line has this many points at most, each the mean of at least as many documents as below.
_N_POINTS, _FEWEST = 8, 10


class DebiasednessDisplay:
    """What a model thinks of documents, against where the logging policy put them, by grade.

    Of a model that is debiased, the cloud of each grade is flat: among documents that deserve
    the same, it makes no difference where the old ranker put them. Lines that fall show scores
    that copy the old ranking, and so does a large CMIP in the title. Make it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    documents : DataFrame
        One row a document: ``score``, ``logged`` and ``grade``.
    cmip : float
        Conditional mutual information of ``score`` and ``logged`` given ``grade``.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    points_ : dict of grade to matplotlib.collections.PathCollection
        The documents of each grade.
    lines_ : dict of grade to matplotlib.lines.Line2D
        Their mean score along the logged positions; of grades with some documents only.

    See Also
    --------
    skultr.metrics.cmip_score : The number.
    skultr.metrics.CMIPScorer : The number as a scorer, for searches.

    Notes
    -----
    Flat clouds do not make a good model: random scores have them too. Look at nDCG beside it.

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
        cmip_estimator: Literal["classifier", "knn"] = "classifier",
        random_state: RandomState = 0,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw what a fitted ranker or click model thinks of the documents of a log.

        Parameters
        ----------
        estimator : fitted ranker or click model
            With ``predict(X)`` giving a score a row.
        X : frame of shape (n_rows, n_columns)
            A click log with the roles ``qid``, ``position`` and ``relevance``, which may be
            missing in some rows. Annotated documents (``doc``, or equal features in a query)
            count once, at their mean position over the ``impressions`` of all their rows, as for
            :class:`~skultr.metrics.CMIPScorer`. Those that were never shown are left out.
        logging : str, default=None
            Column of X with the logging policy's own score of the document, in place of its
            position.
        cmip_estimator : {"classifier", "knn"}, default="classifier"
            As ``estimator`` of :func:`skultr.metrics.cmip_score`.
        random_state : int, RandomState instance or None, default=0
            Of the estimate of CMIP.
        ax : matplotlib axes, default=None
            By default those of a new figure.
        **plot_params
            For :meth:`plot`.

        Returns
        -------
        display : DebiasednessDisplay

        Raises
        ------
        ValueError
            As :class:`~skultr.metrics.CMIPScorer`: if X lacks a role or the column, no document
            that was shown is annotated, or no two documents share a grade.
        """
        owner = cls(None, cmip=None)  # errors tell who needs the role
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
        cmip_estimator: Literal["classifier", "knn"] = "classifier",
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
            By default those of a new figure.
        **plot_params
            For :meth:`plot`.

        Returns
        -------
        display : DebiasednessDisplay

        Raises
        ------
        ValueError
            As :func:`skultr.metrics.cmip_score`.
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
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            By default those of a new figure.
        name : str, default=None
            Of the model, for the title.
        logging_name : str, default="mean logged position"
            What the logging policy is told by, below the horizontal axis.
        cmap : str or matplotlib colormap, default="viridis"
            Of the grades.
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
        # The best grade on top, and no colour as light as paper.
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
    """Means of y and x in groups of as many documents, in the order of x."""
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, min(_N_POINTS, len(x) // _FEWEST))
    return np.array([[x[g].mean(), y[g].mean()] for g in groups]).T


def _colors(cmap, n):
    from matplotlib import colormaps

    cmap = colormaps[cmap] if isinstance(cmap, str) else cmap
    return cmap(np.linspace(0, 0.9, n))
