"""Singular values of the click rates of a log with their noise floor, and the click rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._typing import Column, Frame
from ..identifiability._factor_rank import factor_rank
from ._axes import figure_of, make_axes, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    from ..identifiability import FactorRank


#: Two axes, as ``plt.subplots`` gives them.
Pair: TypeAlias = "Sequence[Axes] | NDArray[Any]"
#: Up to this number of cells, click rates are written into them.
_MAX_WRITTEN = 120
#: Largest number of names along an axis.
_MAX_NAMED = 20
#: Singular values are drawn down to this share of the first.
_LOWEST = 1e-4


class RankDisplay:
    """Number of products of relevance and examination that explain the clicks of a log.

    Left: the singular values of the matrix of click rates, on a log scale, with the floor that
    noise alone reaches; a point is filled if the test finds that the product is needed. Right: the
    matrix. Create it with :meth:`from_log` or :meth:`from_result`.

    Parameters
    ----------
    result : FactorRank

    Attributes
    ----------
    axes_ : ndarray of shape (2,) of matplotlib.axes.Axes
        Axes of the singular values and of the matrix.
    figure_ : matplotlib.figure.Figure
    line_ : matplotlib.lines.Line2D
        The singular values.
    floor_ : matplotlib.lines.Line2D
        The noise floor.
    im_ : matplotlib.image.AxesImage
        The matrix.
    text_ : list of matplotlib.text.Text
        The click rates in its cells; empty if there are too many.

    See Also
    --------
    skultr.identifiability.factor_rank : The test.
    ExaminationDisplay : Examination, if one product is enough.

    Notes
    -----
    The test weights each cell by its precision, and the singular values do not. A product may
    therefore be needed although its singular value is below the floor.

    References
    ----------
    M. Chen et al. (2022). Scalar is not enough: Vectorization-based unbiased learning to rank.
    Figure 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.plotting import RankDisplay
    >>> log = pd.DataFrame({
    ...     "qid": 1, "relevance": [0, 0, 1, 1], "position": [1, 2, 1, 2], "impressions": 10_000,
    ... })
    >>> display = RankDisplay.from_log(log, [0.3, 0.1, 0.6, 0.5], rows="relevance", random_state=0)
    >>> print(display.axes_[0].get_title(loc="left"))
    2 products are needed
    """

    axes_: Pair
    figure_: Figure
    line_: Line2D
    floor_: Line2D
    im_: AxesImage
    text_: list[Text]

    def __init__(self, result: FactorRank) -> None:
        self.result = result

    @classmethod
    def from_log(
        cls,
        X: Frame,
        y: Column,
        *,
        axes: Pair | None = None,
        cmap: str | Colormap = "Blues",
        **params: Any,
    ) -> Self:
        """Test a click log and draw the result.

        Parameters
        ----------
        X : frame of shape (n_rows, n_columns)
            The click log.
        y : array-like of shape (n_rows,)
            Clicks, or clicks / impressions.
        axes : sequence of two matplotlib axes, default=None
            See :meth:`plot`.
        cmap : str or matplotlib colormap, default="Blues"
            See :meth:`plot`.
        **params
            Passed to :func:`~skultr.identifiability.factor_rank`, such as ``rows="relevance"``.

        Returns
        -------
        display : RankDisplay
        """
        return cls.from_result(factor_rank(X, y, **params), axes=axes, cmap=cmap)

    @classmethod
    def from_result(
        cls,
        result: FactorRank,
        *,
        axes: Pair | None = None,
        cmap: str | Colormap = "Blues",
    ) -> Self:
        """Draw the result of a test.

        Parameters
        ----------
        result : FactorRank
            The result of :func:`~skultr.identifiability.factor_rank`.
        axes : sequence of two matplotlib axes, default=None
            See :meth:`plot`.
        cmap : str or matplotlib colormap, default="Blues"
            See :meth:`plot`.

        Returns
        -------
        display : RankDisplay

        Raises
        ------
        TypeError
            If it is not such a result.
        """
        if not hasattr(result, "singular_values") or not hasattr(result, "matrix"):
            raise TypeError(
                f"result is a {type(result).__name__}; expected the result of factor_rank. Use "
                "RankDisplay.from_log(X, y) to draw a log."
            )
        return cls(result).plot(axes, cmap=cmap)

    def plot(self, axes: Pair | None = None, *, cmap: str | Colormap = "Blues") -> Self:
        """Draw the display.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, default=None
            For the singular values and the matrix; by default, axes of a new figure.
        cmap : str or matplotlib colormap, default="Blues"
            Colours of the logarithm of the click rate.

        Returns
        -------
        display : RankDisplay
        """
        self.axes_ = _two_axes(axes)
        self.figure_ = figure_of(self.axes_[0])
        self.line_, self.floor_ = self._draw_values(self.axes_[0])
        self.im_ = self._draw_matrix(self.axes_[1], cmap)
        self.text_ = self._write_rates(self.axes_[1])
        return self

    def _draw_values(self, ax):
        table, rank = self.result.singular_values, self.result.rank
        number, value = table.index.to_numpy(), table["value"].to_numpy()
        needed, noise = palette(3)[1:]
        shown = np.maximum(value, _LOWEST * value[0])
        (line,) = ax.plot(number, shown, color=needed, linewidth=1, zorder=2)
        for part, face, label in (
            (number <= rank, needed, "needed"),
            (
                number > rank,
                "white",
                "not needed" if self.result.is_conclusive else "undetermined",
            ),
        ):
            if part.any():
                ax.plot(
                    number[part],
                    shown[part],
                    "o",
                    color=needed,
                    markerfacecolor=face,
                    markersize=7,
                    zorder=3,
                    label=label,
                )
        floor = table["floor"].clip(lower=_LOWEST * value[0])
        (floor_line,) = ax.plot(
            number,
            floor,
            color=noise,
            linestyle=(0, (4, 2)),
            marker="_",
            label=f"noise floor ({1 - self.result.level:.0%})",
        )
        top = 2.2 * value[0]
        ax.set_yscale("log")
        ax.set_ylim(0.6 * min(shown.min(), np.nanmin(floor)), top)
        for x, y, exact in zip(number, shown, value, strict=True):
            ax.annotate(
                f"{exact:.3f}", (x, y), (6, 5), textcoords="offset points", fontsize=9, zorder=4
            )
        ax.set_xlim(0.6, number[-1] + 0.8)
        ax.set_xticks(number)
        ax.set(xlabel="number", ylabel="singular value of the click rates")
        ax.set_title(_title(self.result), loc="left", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="best", fontsize=9)
        return line, floor_line

    def _draw_matrix(self, ax, cmap):
        from matplotlib.colors import LogNorm

        matrix = self.result.matrix
        rates = matrix.to_numpy()
        positive = rates[rates > 0]
        norm = LogNorm(max(positive.min(), _LOWEST), max(positive.max(), 2 * _LOWEST))
        im = ax.imshow(np.ma.masked_invalid(rates), cmap=cmap, norm=norm, aspect="auto")
        ax.set_facecolor("0.9")  # cells without impressions
        _name_ticks(ax.set_xticks, matrix.columns)
        _name_ticks(ax.set_yticks, matrix.index)
        ax.set_xlabel(" · ".join(map(str, matrix.columns.names)))
        ax.set_ylabel(matrix.index.name)
        ax.set_title("click rate", loc="left", fontsize="medium")
        ax.figure.colorbar(im, ax=ax)
        return im

    def _write_rates(self, ax):
        rates = self.result.matrix.to_numpy()
        if rates.size > _MAX_WRITTEN:
            return []
        texts = []
        for (row, column), rate in np.ndenumerate(rates):
            if np.isnan(rate):
                continue
            dark = np.mean(self.im_.cmap(self.im_.norm(rate))[:3]) < 0.6
            text = _short(rate)
            color = "white" if dark else "black"
            style = {"ha": "center", "va": "center", "fontsize": 7, "color": color}
            texts.append(ax.text(column, row, text, **style))
        return texts


def _two_axes(axes):
    if axes is not None:
        axes = np.asarray(axes, dtype=object).ravel()
        if len(axes) != 2:
            raise ValueError(
                f"axes holds {len(axes)} axes; expected two, for the singular values and for the "
                "matrix."
            )
        return axes
    # make_axes first, for its message if matplotlib is missing.
    figure = make_axes(None, "RankDisplay", (10.5, 4.0)).figure
    figure.clear()
    return figure.subplots(1, 2, width_ratios=[1, 1.5])


def _title(result):
    if result.rank > 1:
        return f"{result.rank} products are needed"
    return "one product is enough" if result.is_conclusive else "the log is too small to tell"


def _name_ticks(set_ticks, labels):
    names = [
        " · ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in labels
    ]
    step = -(-len(names) // _MAX_NAMED)
    set_ticks(range(0, len(names), step), names[::step])


def _short(rate):
    """A rate without its leading zero, such as .68 or .002."""
    text = f"{rate:.2f}" if rate >= 0.095 else f"{rate:.3f}"
    return text.removeprefix("0")
