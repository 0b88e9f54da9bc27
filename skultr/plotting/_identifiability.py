"""What a log determines: its graph of bias factors, and the singular values of its click rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .._base._typing import ArrayLike, Column, Frame, Simulated
from ..identifiability._bias_features import factor_labels
from ..identifiability._factor_rank import factor_rank
from ..identifiability._graph import IdentifiabilityGraph
from ._axes import Display, factor_text, palette, write_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.text import Text

    from ..identifiability import FactorRank

#: Up to this number of bias factors, they are drawn one by one.
_MAX_NODES = 60
#: Up to the first number of components each has a bar. Of more, the second number of components
#: has bars, and the others are grouped by number of factors.
_MAX_OWN, _N_TOP = 8, 5
_SIZE_CLASSES = (1, 2, 10, 100, 1_000, np.inf)
#: A link is weak if the 95 % interval of the examination ratio spans at least this factor.
_WEAK = 2.0
#: Radius of a factor and width of a letter, in units of the distance of neighbouring factors.
_RADIUS, _LETTER = 0.31, 0.22


@dataclass(eq=False, repr=False)
class IdentifiabilityDisplay(Display):
    """Components of the bias factors of a click log; relevance needs a single one.

    Create it with :meth:`from_log` or :meth:`from_graph`. Up to 60 bias factors are drawn one by
    one, each component as a ring, with lines between factors that share documents. More are drawn
    as bars: the largest components, and the others grouped by size, with their shares of the
    impressions and of the factors.

    Parameters
    ----------
    names : sequence of str of length n_factors
        Name of each bias factor.
    labels : array-like of shape (n_factors,), int
        Component of each factor, the largest first.
    components : DataFrame of shape (n_components, n_columns)
        Columns ``n_factors`` and ``impressions_share``.
    links : DataFrame, default=None
        Pairs of factors that share documents: codes ``factor_a`` and ``factor_b``, and
        ``n_documents``. Drawn if factors are drawn one by one.
    weak_links : DataFrame, default=None
        Codes ``factor_a`` and ``factor_b``, and the ``standard_error`` of the logarithm of the
        ratio of their examination. A link is drawn if the 95 % interval of the ratio spans a
        factor of at least 2 to either side.

    {attributes}

    See Also
    --------
    skultr.identifiability.IdentifiabilityGraph : The graph as tables.
    ExaminationDisplay : The examination that a model estimated.

    Examples
    --------
    >>> from skultr.plotting import IdentifiabilityDisplay
    >>> from skultr.simulation import make_disconnected_log
    >>> X, clicks, truth = make_disconnected_log(2, n_documents=300, n_queries=40, random_state=0)
    >>> display = IdentifiabilityDisplay.from_log(X)
    >>> print(display.ax_.get_title(loc="left"))
    NOT identifiable: 10 bias factors in 2 components
    """

    _: KW_ONLY
    names: Sequence[str]
    labels: ArrayLike
    components: pd.DataFrame
    links: pd.DataFrame | None = None
    weak_links: pd.DataFrame | None = None

    @classmethod
    def from_log(
        cls,
        X: Frame | Simulated,
        *,
        bias: str | Sequence[str] | None = None,
        click: str | Column = "click",
        weak_links: bool = True,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the components of the bias factors of a click log.

        Parameters
        ----------
        X : frame or SimulatedLog
            The log; see :meth:`skultr.identifiability.IdentifiabilityGraph.from_log`.
        bias : str or list of str, default=None
            Columns that make up the bias factor; by default ``bias`` if X has that column, else
            ``position``.
        click : str or array-like of shape (n_rows,), default="click"
            Column with the number of clicks, or the clicks of each row. Needed for weak links
            only.
        {weak_links}
        {ax}

        {display}
        """
        graph = IdentifiabilityGraph.from_log(X, bias=bias, click=click)
        return cls.from_graph(graph, weak_links=weak_links, ax=ax)

    @classmethod
    def from_graph(
        cls, graph: IdentifiabilityGraph, *, weak_links: bool = True, ax: Axes | None = None
    ) -> Self:
        """Draw an identifiability graph.

        Parameters
        ----------
        graph : IdentifiabilityGraph
        {weak_links}
        {ax}

        {display}
        """
        links = weak = None
        if graph.n_factors <= _MAX_NODES:
            links = _shared_documents(graph.pairs, graph.n_factors)
            if weak_links and graph.pairs.clicks is not None and graph.n_factors > 1:
                weak = _by_code(graph.weak_links(), graph.factors)
        display = cls(
            names=[factor_text(row) for row in graph.factors.itertuples(index=False, name=None)],
            labels=graph.labels,
            components=graph.components,
            links=links,
            weak_links=weak,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        {ax}

        {display}
        """
        n_factors, n_components = len(self.labels), len(self.components)
        verdict = f"{n_factors:,} bias factor{'s' * (n_factors != 1)}"
        if n_components == 1:
            verdict = f"Identifiable: {verdict} in one component"
        else:
            verdict = f"NOT identifiable: {verdict} in {n_components:,} components"
        if n_factors > _MAX_NODES:
            self._plot_bars(ax)
        else:
            self._plot_rings(ax, _Layout(np.asarray(self.labels), self.names))
        inches = self.ax_.get_position().width * self.figure_.get_figwidth()
        if inches < 0.085 * len(verdict):  # break the title before it reaches the next axes
            verdict = verdict.replace(": ", ":\n")
        self.ax_.set_title(verdict, loc="left", fontweight="bold")
        return self

    # One by one -----------------------------------------------------------------------
    def _plot_rings(self, ax, layout):
        self._open(ax, layout.figure_size, hidden=("left", "right", "bottom", "top"))
        self.ax_.set(xticks=[], yticks=[])
        # The limits are adjusted, so that axes, title and notes keep their place.
        self.ax_.update_datalim(np.transpose([layout.xlim, layout.ylim]))
        self.ax_.margins(0)
        self.ax_.set_aspect("equal", adjustable="datalim")
        notes = []
        colors = np.array(palette(len(self.components)))[np.asarray(self.labels)]
        if self._draw_links(layout, colors):
            notes.append("lines: shared documents (the more, the wider)")
        if self._draw_weak_links(layout):
            notes.append("dashed: ratio of examinations known only to within this factor (95 %)")
        self._draw_factors(layout, colors)
        if len(self.components) > 1:
            notes.append("%: share of impressions")
            style = {"ha": "center", "va": "top", "color": "0.35"}
            style["fontsize"] = layout.font_size(self.ax_)
            shares = self.components["impressions_share"]
            for place, share in zip(layout.captions, shares, strict=True):
                self.ax_.text(*place, _percent(share), **style)
        self.ax_.set_xlabel("\n".join(notes), fontsize=8, color="0.35")

    def _draw_links(self, layout, colors):
        """Lines between factors that share documents; returns whether there are any."""
        from matplotlib.collections import LineCollection

        if self.links is None or not len(self.links):
            return False
        a, b = (self.links[name].to_numpy() for name in ("factor_a", "factor_b"))
        strength = np.sqrt(self.links["n_documents"].to_numpy(dtype=float))
        width = (0.02 + 0.09 * strength / strength.max()) * layout.points_per_unit(self.ax_)
        lines = LineCollection(
            np.stack([layout.places[a], layout.places[b]], axis=1),
            colors=colors[a],
            linewidths=width,
            # Pale if many lines cross, so that their density remains visible.
            alpha=float(np.clip(4 / np.sqrt(len(a)), 0.12, 0.5)),
            zorder=1,
        )
        self.ax_.add_collection(lines)
        return True

    def _draw_weak_links(self, layout):
        """Dashed lines with the uncertainty of the ratio; returns whether there are any."""
        if self.weak_links is None:
            return False
        labels = np.asarray(self.labels)
        a, b = (self.weak_links[name].to_numpy(dtype=int) for name in ("factor_a", "factor_b"))
        error = self.weak_links["standard_error"].to_numpy(dtype=float)
        with np.errstate(over="ignore"):
            spread = np.exp(1.96 * error)
        weak = np.flatnonzero((labels[a] == labels[b]) & (spread >= _WEAK))
        for link in weak:
            ends = layout.places[[a[link], b[link]]]
            self.ax_.plot(*ends.T, linestyle=(0, (3, 2)), color="0.15", linewidth=1.5, zorder=2)
            text = f"×÷ {spread[link]:.2g}" if spread[link] < 100 else "unknown"
            self._label_link(text, ends, layout.centers[labels[a[link]]], layout)
        return bool(len(weak))

    def _label_link(self, text, ends, center, layout):
        """The uncertainty of a weak link: on the line, or beside it if it is too short."""
        place, align = ends.mean(axis=0), "center"
        outwards = place - center
        if np.hypot(*np.ptp(ends, axis=0)) < 1.01:
            distance = np.hypot(*outwards)
            # The link of two factors runs through the center; there is room to its right.
            outwards = outwards / distance if distance > 1e-9 else np.array([1.0, 0.0])
            place = place + 0.3 * outwards
            align = {1: "left", 0: "center", -1: "right"}[int(np.round(outwards[0]))]
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
        size = layout.font_size(self.ax_)
        self.ax_.text(*place, text, ha=align, va="center", fontsize=size, bbox=box, zorder=5)

    def _draw_factors(self, layout, colors):
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Circle

        discs = [Circle(place, _RADIUS) for place in layout.places]
        style = {"facecolors": colors, "edgecolors": "white", "linewidths": 1.0, "zorder": 3}
        self.ax_.add_collection(PatchCollection(discs, **style))
        size = layout.font_size(self.ax_)
        for name, place, angle in zip(self.names, layout.places, layout.angles, strict=True):
            style = {"ha": "center", "color": "white", "fontweight": "bold"}
            if layout.outside:
                left = np.cos(angle) < -1e-9
                place = place + 1.35 * _RADIUS * np.array([np.cos(angle), np.sin(angle)])
                style = {"ha": "right" if left else "left", "rotation_mode": "anchor"}
                style["rotation"] = np.degrees(angle) + 180 * left
            self.ax_.text(*place, _short(name), va="center", fontsize=size, zorder=4, **style)

    # Many -----------------------------------------------------------------------------
    def _plot_bars(self, ax):
        rows = _bar_rows(self.components)
        self._open(ax, (7.2, 1.6 + 0.55 * len(rows)), hidden=("top", "right", "bottom"))
        place = np.arange(len(rows))[::-1]
        bars = (
            ("impressions_share", 0.2, palette(1)[0], "share of the impressions"),
            ("factors_share", -0.2, "#b8bdc2", "share of the bias factors"),
        )
        for column, shift, color, label in bars:
            share = rows[column].to_numpy()
            self.ax_.barh(place + shift, share, height=0.36, color=color, label=label)
            for y, value in zip(place + shift, share, strict=True):
                style = {"va": "center", "fontsize": 8, "color": "0.3"}
                self.ax_.text(value + 0.01, y, _percent(value), **style)
        self.ax_.set_yticks(place, rows["name"])
        self.ax_.set(xlim=(0, 1.12), xticks=[])
        self.ax_.tick_params(axis="y", length=0)
        self.ax_.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2)


# Data of the plot ---------------------------------------------------------------------
def _shared_documents(pairs, n_factors):
    """Pairs of factors that share documents, with their number of shared documents."""
    shape = (int(pairs.doc.max()) + 1, n_factors)
    shown = csr_array((np.ones(len(pairs.doc)), (pairs.doc, pairs.factor)), shape)
    shared = np.triu((shown.T @ shown).toarray(), k=1)
    a, b = np.nonzero(shared)
    return pd.DataFrame({"factor_a": a, "factor_b": b, "n_documents": shared[a, b].astype(int)})


def _by_code(links, factors):
    """Links with the codes of their factors instead of their values."""
    values = factor_labels(factors, np.arange(len(factors))).tolist()
    codes = pd.Index(values, tupleize_cols=False)
    return links.assign(
        factor_a=codes.get_indexer(links["factor_a"]),
        factor_b=codes.get_indexer(links["factor_b"]),
    )


def _bar_rows(components):
    """Names and shares of the bars: the largest components, then groups of equal size."""
    table = components[["n_factors", "impressions_share"]].reset_index(drop=True)
    table["factors_share"] = table["n_factors"] / table["n_factors"].sum()
    own = table.index < (_MAX_OWN if len(table) <= _MAX_OWN else _N_TOP)
    if len(table) > _MAX_OWN:
        # A component of one factor has no bar of its own unless it has 1 % of the impressions.
        own &= (table["n_factors"] > 1) | (table["impressions_share"] >= 0.01)
    names = table["n_factors"].map(lambda n: f"{n:,} factor{'s' * (n != 1)}")
    names = [f"component {i}:\n{name}" for i, name in names[own].items()]
    rows = [table[own].assign(name=names)]
    for low, high in list(pairwise(_SIZE_CLASSES))[::-1]:
        members = table[~own & table["n_factors"].between(low, high, inclusive="left")]
        if len(members):
            sizes = f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,.0f}"
            sizes = f"{low:,} or more" if high == np.inf else sizes
            noun = ("other" if own.any() else "component") + "s" * (len(members) > 1)
            name = f"{len(members):,} {noun} of\n{sizes} factor{'s' * (high != 2)}"
            rows.append(members.sum().to_frame().T.assign(name=name))
    return pd.concat(rows, ignore_index=True)


class _Layout:
    """Coordinates of the factors: each component is a ring, and rings are laid out in rows.

    The unit is the distance between neighbours on a ring.
    """

    def __init__(self, labels, names):
        length = np.array([len(_short(name)) for name in names])
        self.outside = length.max() > 3  # longer names do not fit into a disc
        sizes = np.bincount(labels)
        # Neighbours on a ring have the distance 1.
        radii = np.where(sizes == 1, 0.0, 0.5 / np.sin(np.pi / sizes))
        reach = radii + _RADIUS + 0.25
        if self.outside:
            reach += pd.Series(_LETTER * length + 0.1).groupby(labels).max().to_numpy()
        self.centers = _lay_out(2 * reach, caption := 0.75)
        # Clockwise from the top.
        turn = pd.Series(labels).groupby(labels).cumcount().to_numpy() / sizes[labels]
        self.angles = np.where(sizes[labels] > 1, np.pi / 2 - 2 * np.pi * turn, 0.0)
        ring = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1)
        self.places = self.centers[labels] + radii[labels, None] * ring
        # Captions of one row are on one line, below the largest ring of the row.
        depth = pd.Series(reach).groupby(self.centers[:, 1]).transform("max").to_numpy()
        self.captions = self.centers - np.outer(depth - 0.1, [0, 1])
        low, high = (self.centers.T - reach).min(axis=1), (self.centers.T + reach).max(axis=1)
        low[1] -= caption
        # A minimum size, or a few factors would be drawn as huge discs.
        room = np.maximum(np.array([5.0, 2.5]) - (high - low), 0) / 2
        self.xlim, self.ylim = zip(low - room, high + room, strict=True)

    @property
    def figure_size(self):
        """Width and height of a new figure in inches."""
        width, height = np.ptp(self.xlim), np.ptp(self.ylim)
        scale = min(0.55, 10 / width, 6.5 / height)
        return max(5.6, scale * width), max(2.4, scale * height + 0.8)

    def points_per_unit(self, ax):
        """Points per unit of length, before the layout shrinks the axes."""
        size = ax.get_position().size * ax.figure.get_size_inches() * 72
        return float(min(size / [np.ptp(self.xlim), np.ptp(self.ylim)]))

    def font_size(self, ax):
        """Font size in points at which names fit."""
        return float(np.clip(0.38 * self.points_per_unit(ax), 3.5, 11))


def _lay_out(sizes, caption):
    """Centers of squares of the given sizes in rows, for the most compact layout found."""

    def waste(centers):
        width, height = np.ptp(centers, axis=0) + sizes.max() + [0, caption]
        return max(width / 10, height / 6)

    numbers = np.arange(len(sizes))
    layouts = [_in_rows(sizes, caption, np.array_split(numbers, n + 1)) for n in numbers]
    return min(layouts, key=waste)


def _in_rows(sizes, caption, rows):
    """Centers of squares in centered rows, each with a caption below."""
    centers, top = np.empty((len(sizes), 2)), 0.0
    for row in rows:
        edges, height = np.cumsum(sizes[row]), sizes[row].max()
        centers[row, 0] = edges - sizes[row] / 2 - edges[-1] / 2
        centers[row, 1] = top - height / 2
        top -= height + caption
    return centers


def _short(name):
    return name if len(name) <= 18 else name[:17] + "…"


def _percent(share):
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


#: Two axes, as ``plt.subplots`` gives them.
Pair: TypeAlias = "Sequence[Axes] | NDArray[Any]"
#: Up to this number of cells, click rates are written into them.
_MAX_WRITTEN = 120
#: Largest number of names along an axis.
_MAX_NAMED = 20
#: Singular values are drawn down to this share of the first.
_LOWEST = 1e-4


@dataclass(eq=False, repr=False)
class RankDisplay(Display):
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

    result: FactorRank

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
        {axes}
        {cmap}
        **params
            Passed to :func:`~skultr.identifiability.factor_rank`, such as ``rows="relevance"``.

        {display}
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
        {axes}
        {cmap}

        {display}

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

        {display}
        """
        parts = "the singular values and for the matrix"
        self._open_two(axes, (10.5, 4.0), parts, width_ratios=[1, 1.5])
        self.line_, self.floor_ = self._draw_values(self.axes_[0])
        self.im_ = self._draw_matrix(self.axes_[1], cmap)
        self.text_: list[Text] = []
        if self.result.matrix.size <= _MAX_WRITTEN:
            texts = write_cells(self.axes_[1], self.im_, _short_rate, fontsize=7)
            self.text_ = [text for text in texts.flat if text]
        return self

    def _draw_values(self, ax):
        table, rank = self.result.singular_values, self.result.rank
        number, value = table.index.to_numpy(), table["value"].to_numpy()
        needed, noise = palette(3)[1:]
        shown = np.maximum(value, _LOWEST * value[0])
        (line,) = ax.plot(number, shown, color=needed, linewidth=1, zorder=2)
        others = "not needed" if self.result.is_conclusive else "undetermined"
        parts = ((number <= rank, needed, "needed"), (number > rank, "white", others))
        for part, face, label in parts:
            if part.any():
                style = {"markerfacecolor": face, "markersize": 7, "zorder": 3, "label": label}
                ax.plot(number[part], shown[part], "o", color=needed, **style)
        floor = table["floor"].clip(lower=_LOWEST * value[0])
        style = {"color": noise, "linestyle": (0, (4, 2)), "marker": "_"}
        label = f"noise floor ({1 - self.result.level:.0%})"
        (floor_line,) = ax.plot(number, floor, label=label, **style)
        ax.set_yscale("log")
        ax.set_ylim(0.6 * min(shown.min(), np.nanmin(floor)), 2.2 * value[0])
        style = {"textcoords": "offset points", "fontsize": 9, "zorder": 4}
        for x, y, exact in zip(number, shown, value, strict=True):
            ax.annotate(f"{exact:.3f}", (x, y), (6, 5), **style)
        ax.set(xlim=(0.6, number[-1] + 0.8), xticks=number)
        ax.set(xlabel="number", ylabel="singular value of the click rates")
        title = (
            "one product is enough"
            if self.result.is_conclusive
            else "the log is too small to tell"
        )
        title = f"{rank} products are needed" if rank > 1 else title
        ax.set_title(title, loc="left", fontsize="medium")
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
        ax.set_xlabel(factor_text((*matrix.columns.names,)))
        ax.set_ylabel(matrix.index.name)
        ax.set_title("click rate", loc="left", fontsize="medium")
        ax.figure.colorbar(im, ax=ax)
        return im


def _name_ticks(set_ticks, labels):
    names = [*map(factor_text, labels)]
    step = -(-len(names) // _MAX_NAMED)
    set_ticks(range(0, len(names), step), names[::step])


def _short_rate(rate):
    """A rate without its leading zero, such as .68 or .002."""
    text = f"{rate:.2f}" if rate >= 0.095 else f"{rate:.3f}"
    return text.removeprefix("0")
