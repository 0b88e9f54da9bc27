"""Confusion matrix of estimated and true relevance of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._log._pickles import if_fitted
from .._typing import ArrayLike, Column, Floats, Ints
from ._axes import figure_of, make_axes, steps_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


#: Largest number of levels of relevance that a matrix is drawn for.
_MAX_LEVELS = 20


class RelevanceDisplay:
    """Confusion matrix of relevance estimated from clicks, against true relevance.

    True relevance has few levels, those of the grades. Each estimate is rounded to the nearest
    level. A row of the matrix shows the estimated levels of the documents of one true level: on
    the diagonal the estimate is right, and left of the diagonal it is too low. Create it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    confusion_matrix : ndarray of shape (n_levels, n_levels)
        Number of documents by true (row) and estimated (column) level.
    levels : ndarray of shape (n_levels,)
        Relevance of each level, in increasing order.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    im_ : matplotlib.image.AxesImage
    text_ : ndarray of shape (n_levels, n_levels) of matplotlib.text.Text
        The shares in the cells.

    See Also
    --------
    ExaminationDisplay : Estimated examination.

    Notes
    -----
    Estimates from clicks are off by the same factor as the propensities. If no position is
    examined by every user, scale the estimates before you draw them.

    References
    ----------
    Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased learning
    to rank. Figure 3.

    Examples
    --------
    >>> from skultr.plotting import RelevanceDisplay
    >>> truth, estimate = [0.1, 0.1, 0.5, 1.0], [0.12, 0.4, 0.45, 1.3]
    >>> RelevanceDisplay.from_predictions(truth, estimate).confusion_matrix
    array([[1, 1, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """

    ax_: Axes
    figure_: Figure
    im_: AxesImage
    text_: NDArray[np.object_] | None

    def __init__(self, confusion_matrix: Ints, *, levels: Floats) -> None:
        self.confusion_matrix = confusion_matrix
        self.levels = levels

    @classmethod
    def from_estimator(
        cls,
        estimator: object,
        truth: pd.Series | Mapping[Any, float],
        *,
        levels: ArrayLike | None = None,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the labels that a fitted ranker estimated for the documents of its log.

        Parameters
        ----------
        estimator : fitted ranker with ``labels_``, or DataFrame
            An :class:`~skultr.rankers.IPSRanker` or :class:`~skultr.UserAwareIPSRanker`, a
            pipeline that ends in one, a search over one; or a table such as
            :func:`~skultr.propensity.relevance_labels` returns, with the columns ``doc`` and
            ``label``.
        truth : Series or mapping
            P(relevant) by ``doc``. Documents without true relevance are left out.
        levels : array-like of shape (n_levels,), default=None
            As in :meth:`from_predictions`.
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        **plot_params
            Passed to :meth:`plot`.

        Returns
        -------
        display : RelevanceDisplay

        Raises
        ------
        TypeError
            If the estimator has no labels, or ``truth`` is not indexed by document.
        ValueError
            If no document has both an estimate and a true relevance.
        """
        labels = _labels_of(estimator)
        if not isinstance(truth, Mapping | pd.Series):
            raise TypeError(
                f"truth must be a Series or mapping of doc to P(relevant), got "
                f"{type(truth).__name__}. If estimates and truth are in one order, use "
                "RelevanceDisplay.from_predictions(truth, labels['label'])."
            )
        known = labels["doc"].map(dict(truth.items())).astype(float)
        there = known.notna()
        if not there.any():
            raise ValueError(
                f"truth has none of the {len(labels)} documents of the labels, such as "
                f"{labels['doc'].iloc[0]!r}; expected P(relevant) by the ids of the column 'doc'."
            )
        estimate = labels.loc[there, "label"]
        return cls.from_predictions(known[there], estimate, levels=levels, ax=ax, **plot_params)

    @classmethod
    def from_predictions(
        cls,
        y_true: Column,
        y_pred: Column,
        *,
        levels: ArrayLike | None = None,
        ax: Axes | None = None,
        **plot_params: Any,
    ) -> Self:
        """Draw estimated against true relevance.

        Parameters
        ----------
        y_true : array-like of shape (n_documents,)
            True relevance.
        y_pred : array-like of shape (n_documents,)
            Estimated relevance on the same scale; it may exceed the range of ``y_true``.
        levels : array-like of shape (n_levels,), default=None
            Values to which true and estimated relevance are rounded. By default the distinct
            values of ``y_true``, at most 20.
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        **plot_params
            Passed to :meth:`plot`.

        Returns
        -------
        display : RelevanceDisplay

        Raises
        ------
        ValueError
            If values are missing, or ``y_true`` has more than 20 values and ``levels`` is None.
        """
        y_true, y_pred = _read_relevance("y_true", y_true), _read_relevance("y_pred", y_pred)
        check_consistent_length(y_true, y_pred)
        levels = _read_levels(levels, y_true)
        matrix = np.zeros((len(levels), len(levels)), dtype=int)
        np.add.at(matrix, (_nearest(levels, y_true), _nearest(levels, y_pred)), 1)
        return cls(matrix, levels=levels).plot(ax, **plot_params)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        display_labels: Sequence[str] | None = None,
        include_values: bool = True,
        cmap: str | Colormap = "Blues",
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            By default, axes of a new figure.
        display_labels : array-like of shape (n_levels,), default=None
            Names of the levels, such as grades; by default the relevance of each level.
        include_values : bool, default=True
            Whether to write the shares into the cells, in percent of the row.
        cmap : str or matplotlib colormap, default="Blues"

        Returns
        -------
        display : RelevanceDisplay
        """
        self.ax_ = make_axes(ax, "RelevanceDisplay", (4.8, 4.4))
        self.figure_ = figure_of(self.ax_)
        total = self.confusion_matrix.sum(axis=1, keepdims=True)
        share = self.confusion_matrix / np.maximum(total, 1)
        self.im_ = self.ax_.imshow(share, cmap=cmap, vmin=0, vmax=1)
        self.text_ = self._write_shares(share) if include_values else None
        names = display_labels
        if names is None:
            names = [f"{level:.3g}" for level in self.levels]
        ticks = range(len(self.levels))
        self.ax_.set_xticks(ticks, names)
        self.ax_.set_yticks(ticks, names)
        self.ax_.set(xlabel="estimated relevance", ylabel="true relevance")
        return self

    def _write_shares(self, share):
        texts = np.empty(share.shape, dtype=object)
        for (row, column), value in np.ndenumerate(share):
            dark = np.mean(self.im_.cmap(self.im_.norm(value))[:3]) < 0.6
            texts[row, column] = self.ax_.text(
                column,
                row,
                "0" if value == 0 else f"{100 * value:.0f} %" if value >= 0.005 else "< 1 %",
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=9 if len(share) <= 8 else 6,
            )
        return texts


def _labels_of(estimator):
    """The table of relevance labels of a fitted ranker."""
    labels = estimator
    if not isinstance(estimator, pd.DataFrame):
        model = steps_of(estimator)[-1]
        if not hasattr(model, "labels_") and hasattr(model, "fit"):
            check_is_fitted(model)
        labels = if_fitted(model, "labels_")
    if not isinstance(labels, pd.DataFrame) or not {"doc", "label"} <= set(labels.columns):
        raise TypeError(
            f"{type(estimator).__name__} has no labels of documents; expected a fitted IPSRanker "
            "or UserAwareIPSRanker, or a DataFrame with the columns 'doc' and 'label', as "
            "relevance_labels returns it."
        )
    return labels


def _read_relevance(name, values):
    values = column_or_1d(values, dtype=float)
    bad = ~np.isfinite(values)
    if bad.any() or not len(values):
        found = (
            f"{bad.sum()} of {len(values)} values missing or infinite" if len(values) else "none"
        )
        raise ValueError(f"{name} must hold the relevance of each document as a number; {found}.")
    return values


def _read_levels(levels, y_true):
    if levels is None:
        # Probabilities that differ by rounding only are one level.
        levels = np.unique(y_true.round(9))
        if len(levels) > _MAX_LEVELS:
            raise ValueError(
                f"y_true has {len(levels)} distinct values; expected at most {_MAX_LEVELS}. Pass "
                "levels=, at most 20 values to round to, such as numpy.linspace(0, 1, 6)."
            )
        return levels
    levels = column_or_1d(levels, dtype=float)
    if not len(levels) or len(levels) > _MAX_LEVELS or not (np.diff(levels) > 0).all():
        raise ValueError(
            f"levels must be 1 to {_MAX_LEVELS} increasing numbers, got {levels.tolist()[:25]}."
        )
    return levels


def _nearest(levels, values):
    """Index of the level that is nearest to each value."""
    return np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
