"""What all displays share: axes to draw on, colours, and the steps of a fitted model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import cycle
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._base._optional import optional
from .._base._shared_text import with_shared_text
from .._base._typing import Floats, Ints
from .._log._estimator import if_fitted, steps_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


#: Colour of the truth and other given values; estimates have the colours below.
TRUTH = "black"
#: Methods have the same colour in all plots of the package and its documentation.
_OF_METHODS = {
    "production": "#9aa0a6",
    "naive": "#d1495b",
    "ips": "#2e86ab",
    "dla": "#1b998b",
    "ensemble": "#edae49",
    "lambdamart": "#8c5e34",
    "user-aware": "#5b8e3e",
    "cld": "#c77dba",
    "heckman": "#6d597a",
    "vectorization": "#274690",
    "affine": "#e8833a",
    "skyline": "#3d3d3d",
}
_OF_OTHERS = ("#7251b5", "#b5838d", "#0f4c5c", "#a3b18a", "#bc6c25")
_PALETTE = ("dla", "ips", "naive", "ensemble", "heckman", "lambdamart", "user-aware", "cld")


#: Inches that a letter takes, by point of its size.
_LETTER = 0.0075
#: Up to this number of positions, each has a tick.
_EVERY_POSITION = 15

#: What the docstrings of several displays share.
_TEXTS = {
    "ax": """\
ax : matplotlib axes, default=None
    By default, axes of a new figure.""",
    "axes": """\
axes : sequence of two matplotlib axes, default=None
    See :meth:`plot`.""",
    "cmap": """\
cmap : str or matplotlib colormap, default="Blues"
    See :meth:`plot`.""",
    "weak_links": """\
weak_links : bool, default=True
    Whether to look for weak links, if factors are drawn one by one and the log has
    clicks.""",
    "truth": """\
truth : array-like of shape (n_positions,), mapping or Series, default=None
    True examination of positions 1, 2, ..., or by bias factor.""",
    "plot_params": """\
**plot_params
    Passed to :meth:`plot`.""",
    "attributes": """\
Attributes
----------
ax_ : matplotlib.axes.Axes
figure_ : matplotlib.figure.Figure""",
}


def method_colors(names: Iterable[str]) -> dict[str, str]:
    """Colour of each method, the same in all figures of skultr.

    Parameters
    ----------
    names : iterable of str
        Methods of one figure, such as "DLA" or "DLARanker". The known ones are "production",
        "naive", "IPS", "DLA", "ensemble", "LambdaMART", "user-aware", "CLD", "Heckman",
        "vectorization", "affine" and "skyline". Others get colours of their own.

    Returns
    -------
    colors : dict of str to str
        Name to hexadecimal colour, in the order of ``names``.

    Raises
    ------
    TypeError
        If ``names`` is one string.

    Examples
    --------
    >>> from skultr.plotting import method_colors
    >>> method_colors(["naive", "DLARanker"])
    {'naive': '#d1495b', 'DLARanker': '#1b998b'}
    """
    if isinstance(names, str):
        raise TypeError(f"names is the string {names!r}; expected a list of names.")
    # Methods that are not known get the other colours in turns.
    others = cycle(_OF_OTHERS)
    methods = {name: str(name).lower().removesuffix("ranker").strip() for name in names}
    return {name: _OF_METHODS.get(method) or next(others) for name, method in methods.items()}


def factor_to_either_side(errors: Floats, quantile: float) -> Floats:
    """How many times the ends of intervals are above and below, by standard errors of logs.

    Finite, and so drawn, however large the error is.
    """
    return np.exp(np.minimum(quantile * errors, 50.0))


class Display:
    """What displays share: a figure, and passages of their docstrings."""

    ax_: Axes
    figure_: Figure

    def __init_subclass__(cls) -> None:
        shared = with_shared_text(**_TEXTS, display=f"Returns\n-------\ndisplay : {cls.__name__}")
        methods = [getattr(member, "__func__", member) for member in vars(cls).values()]
        for described in (cls, *filter(inspect.isfunction, methods)):
            shared(described)

    def _open(self, ax, figsize, hidden=("top", "right")):
        """Take the axes to draw on, or make some, without the hidden sides of their frame."""
        # Axes of the user keep the size of their figure.
        self.ax_ = self._new_figure(figsize).subplots() if ax is None else ax
        for side in hidden:
            self.ax_.spines[side].set_visible(False)
        # To a type checker, it might be a SubFigure.
        self.figure_ = cast("Figure", self.ax_.figure)

    def _inches(self):
        """Width and height of the axes, before a layout makes room for labels."""
        return self.ax_.get_position().size * self.figure_.get_size_inches()

    def _in_lines(self, text, size):
        """The text in lines as wide as the axes, in letters of a size in points."""
        n_letters = max(10, int(self._inches()[0] / (_LETTER * size)))
        return "\n".join(line for part in text.split("\n") for line in wrap(part, n_letters))

    def _write_title(self, text, **style):
        self.ax_.set_title(self._in_lines(text, 12), **style)

    def _new_figure(self, figsize):
        return optional("matplotlib.pyplot", "plot").figure(figsize=figsize, layout="constrained")


def palette(n: int) -> list[str]:
    """``n`` colours; they repeat if there are fewer colours."""
    return [_OF_METHODS[_PALETTE[i % len(_PALETTE)]] for i in range(n)]


def shades(cmap: str | Colormap, n: int, end: float) -> Any:
    """``n`` colours from the beginning of a colour map to a share of it."""
    from matplotlib import colormaps

    return colormaps.get_cmap(cmap)(np.linspace(0, end, n))


def position_ticks(positions: Ints) -> Ints:
    """Places of ticks, whole numbers: all if they are few, else the first and round ones."""
    from matplotlib.ticker import MaxNLocator

    if len(positions) <= _EVERY_POSITION:
        return positions
    first = min(positions)
    round_ones = MaxNLocator(8, steps=[1, 5, 10], integer=True).tick_values(first, max(positions))
    # A round number beside the first would lie on it.
    shown = [tick for tick in round_ones if first + 1 < tick <= max(positions)]
    return np.array([first, *shown], dtype=int)


def outwards(angle: float) -> dict[str, Any]:
    """Style of a text that points away from the middle of a circle, and is not upside down."""
    # Top and bottom are on the right, whatever the cosine is rounded to.
    is_left = np.cos(angle) < -1e-9
    return {
        "ha": "right" if is_left else "left",
        "rotation_mode": "anchor",
        "rotation": np.degrees(angle) + (180 if is_left else 0),
    }


def factor_text(factor: Any) -> str:
    """A bias factor, which is a tuple where it has several columns."""
    return " · ".join(map(str, factor)) if isinstance(factor, tuple) else str(factor)


def fitted_value(estimator: Any, name: str) -> Any:
    """A fitted attribute of the model inside searches and pipelines; None if it has none."""
    model = steps_of(estimator)[-1]
    # What is not fitted lacks the attribute, and the error should say why.
    if not hasattr(model, name) and hasattr(model, "fit"):
        check_is_fitted(model)
    return if_fitted(model, name)
