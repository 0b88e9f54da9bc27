"""What all displays share: axes to draw on, colours, and the steps of a fitted model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

__all__ = ["TRUTH", "colors_of", "draw_legend", "figure_of", "make_axes", "palette", "steps_of"]

#: Colour of the truth and other given values; estimates have the colours below.
TRUTH = "black"
#: Methods have the same colour in all plots of the package and its documentation.
_OF_METHODS = {
    "production": "#9aa0a6",
    "naive": "#d1495b",
    "ips": "#2e86ab",
    "dla": "#1b998b",
    "skyline": "#3d3d3d",
}
_PALETTE = (
    "#1b998b",
    "#2e86ab",
    "#d1495b",
    "#edae49",
    "#6d597a",
    "#8c5e34",
    "#5b8e3e",
    "#c77dba",
)


def make_axes(ax: Axes | None, caller: str, figsize: tuple[float, float] | None = None) -> Axes:
    """The axes to draw on: ``ax``, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} draws with matplotlib, which is not installed. Install it with "
            "`pip install matplotlib` or `pip install 'skultr[plot]'`."
        ) from error
    if ax is None:
        _, ax = plt.subplots(figsize=figsize, layout="constrained")
    return ax


def figure_of(ax: Axes) -> Figure:
    """The figure of the axes (for a type checker it might be a SubFigure)."""
    return cast("Figure", ax.figure)


def draw_legend(ax: Axes, lines: Sequence[Line2D]) -> Legend:
    """A legend with the labels of lines as they are: ``$`` and a first ``_`` mean nothing."""
    legend = ax.legend(lines, [" "] * len(lines), frameon=False)
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set(text=line.get_label(), parse_math=False)
    return legend


def palette(n: int) -> list[str]:
    """``n`` colours; they repeat if there are fewer colours."""
    return [_PALETTE[i % len(_PALETTE)] for i in range(n)]


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Name of each curve to its colour; a known method has its own, others take the rest."""
    found = {name: _OF_METHODS.get(_method(name)) for name in names}
    left = cycle(color for color in _PALETTE if color not in _OF_METHODS.values())
    return {name: color or next(left) for name, color in found.items()}


def steps_of(estimator: Any) -> list[Any]:
    """The estimators inside a search and its pipelines; the model itself is last."""
    if hasattr(estimator, "best_estimator_"):
        return steps_of(estimator.best_estimator_)
    if hasattr(estimator, "steps"):
        return [inner for _, step in estimator.steps for inner in steps_of(step)]
    return [estimator]


def _method(name):
    return str(name).lower().removesuffix("ranker").strip()
