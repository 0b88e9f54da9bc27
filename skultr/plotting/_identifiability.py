"""What a log determines: its graph of bias factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd

from .._base._typing import ArrayLike, Column, Frame, Simulated
from ..identifiability._graph import IdentifiabilityGraph
from ._axes import Display, factor_text, factor_to_either_side, outwards, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Up to this number of bias factors, they are drawn one by one.
_MAX_NODES = 60
#: So many components at most, the largest, have a bar, or a line of the legend.
_MAX_OWN = 8


@dataclass(eq=False, repr=False)
class IdentifiabilityDisplay(Display):
    """Plot of the components of a click log; relevance is identifiable if there is one.

    Create it with :meth:`from_log` or :meth:`from_graph`.

    - Up to 60 bias factors are drawn one by one on a circle. Each component has a colour, and
      lines connect factors that share documents.
    - More are drawn as bars: the eight largest components and all others together, with their
      shares of the impressions and of the factors.

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
    >>> print(display.ax_.get_title())
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
        links = None
        weak = None
        # Lines between many factors would hide each other, and take long to find.
        if graph.n_factors <= _MAX_NODES:
            links = _shared_documents(graph.pairs)
            if weak_links and graph.pairs.clicks is not None and graph.n_factors > 1:
                a, b, variance, _ = graph._links()
                weak = pd.DataFrame(
                    {"factor_a": a, "factor_b": b, "standard_error": np.sqrt(variance)}
                )
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
        n_factors = len(self.labels)
        n_components = len(self.components)
        factors = f"{n_factors:,} bias factor" if n_factors == 1 else f"{n_factors:,} bias factors"
        if n_components == 1:
            verdict = f"Identifiable: {factors} in one component"
        else:
            verdict = f"NOT identifiable: {factors} in {n_components:,} components"
        if n_factors > _MAX_NODES:
            self._plot_bars(ax)
        else:
            self._plot_circle(ax)
        self._write_title(verdict)
        return self

    # One by one -----------------------------------------------------------------------
    def _plot_circle(self, ax):
        self._open(ax, (6.4, 5.4), hidden=("left", "right", "bottom", "top"))
        labels = np.asarray(self.labels)
        lengths = [len(_short(name)) for name in self.names]
        # By component, clockwise from the top, with an empty place behind each component.
        order = np.argsort(labels, kind="stable")
        angles = np.empty(len(order))
        n_places = len(order) + labels.max() + 1
        turn = (np.arange(len(order)) + labels[order]) / n_places
        angles[order] = np.pi / 2 - 2 * np.pi * turn
        places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        reach = self._reach(max(lengths))
        self.ax_.set(xticks=[], yticks=[])
        # matplotlib does not count texts for the limits of the axes.
        self.ax_.update_datalim([(-reach, -reach), (reach, reach)])
        self.ax_.margins(0)
        self.ax_.set_aspect("equal", adjustable="datalim")
        colors = np.array(palette(len(self.components)))[labels]
        notes = [self._meaning()]
        notes += self._draw_links(places, colors)
        notes += self._draw_weak_links(places, labels)
        self.points_ = self.ax_.scatter(*places.T, s=90, c=colors, edgecolors="white", zorder=3)
        for name, angle, place in zip(self.names, angles, places, strict=True):
            # Short names stand upright; long ones point outwards, and do not lie on each other.
            style = {"ha": "center"} if max(lengths) <= 3 else outwards(angle)
            # In points, so that no name lies on its factor in small axes.
            beyond = {"xytext": tuple(12 * place), "textcoords": "offset points"}
            style |= {"va": "center", "fontsize": 8, "zorder": 4}
            self.ax_.annotate(_short(name), place, **beyond, **style)
        self._write_notes(notes)

    def _reach(self, n_letters):
        """Half of the width of the axes, in radii of the circle: room for names around it."""
        # Title and notes leave about two thirds of the height; letters are 8 points high.
        half = 72 / 2 * min(self._inches() * (1.0, 0.67))
        names = 24 if n_letters <= 3 else 16 + 4.8 * n_letters
        return half / max(half - names, 0.3 * half)

    def _meaning(self):
        """What the verdict means for whoever compares positions, in one sentence."""
        if len(self.components) == 1:
            return "The clicks relate all bias factors to each other."
        return "The clicks cannot compare bias factors of different components."

    def _write_notes(self, notes):
        """What the drawing means, below it, and the shares of components in their colours."""
        text = self._in_lines("\n".join(notes), 8)
        if len(self.components) == 1:
            self.ax_.set_xlabel(text, fontsize=8, color="0.35")
            return
        # A legend without points of its own: all factors are one scatter.
        shares = self.components["impressions_share"][:_MAX_OWN]
        for share, color in zip(shares, palette(len(shares)), strict=True):
            label = f"{_percent(share)} of impressions"
            self.ax_.scatter([], [], s=60, color=color, label=label)
        # In the circle it would lie on names.
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2}
        legend = self.ax_.legend(frameon=False, fontsize=8, title=text, title_fontsize=8, **below)
        legend.get_title().set(color="0.35", ha="center")

    def _draw_links(self, places, colors):
        """Lines between factors that share documents; returns what they mean, if there are any."""
        from matplotlib.collections import LineCollection

        if self.links is None or not len(self.links):
            return []
        a = self.links["factor_a"].to_numpy()
        b = self.links["factor_b"].to_numpy()
        # The more documents two factors share, the wider the line.
        strength = np.sqrt(self.links["n_documents"].to_numpy(dtype=float))
        # Pale if many lines cross, so that their density remains visible.
        alpha = float(np.clip(4 / np.sqrt(len(a)), 0.12, 0.5))
        widths = 0.5 + 2.5 * strength / strength.max()
        ends = np.stack([places[a], places[b]], axis=1)
        lines = LineCollection(ends, alpha=alpha, zorder=1, colors=colors[a], linewidths=widths)
        self.ax_.add_collection(lines)
        return ["Lines: shared documents (the more, the wider)"]

    def _draw_weak_links(self, places, labels):
        """Dashed lines with the uncertainty of the ratio; returns what they mean, if any."""
        if self.weak_links is None:
            return []
        a = self.weak_links["factor_a"].to_numpy(dtype=int)
        b = self.weak_links["factor_b"].to_numpy(dtype=int)
        error = self.weak_links["standard_error"].to_numpy(dtype=float)
        # Weak is a link whose 95 % interval of the ratio spans a factor of 2 to either side.
        spread = factor_to_either_side(error, 1.96)
        is_weak = (labels[a] == labels[b]) & (spread >= 2)
        weak = np.flatnonzero(is_weak)
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
        for link in weak:
            ends = places[[a[link], b[link]]]
            self.ax_.plot(*ends.T, linestyle=(0, (3, 2)), color="0.15", linewidth=1.5, zorder=2)
            # A factor of 100 and more is as good as none.
            text = f"×÷ {spread[link]:.2g}" if spread[link] < 100 else "unknown"
            style = {"ha": "center", "va": "center", "fontsize": 8, "bbox": box, "zorder": 5}
            self.ax_.text(*ends.mean(axis=0), text, **style)
        note = "Dashed: ratio of examinations known only to within this factor (95 %)"
        return [note] if len(weak) else []

    # Many -----------------------------------------------------------------------------
    def _plot_bars(self, ax):
        rows = _bar_rows(self.components)
        self._open(ax, (7.2, 1.6 + 0.55 * len(rows)), hidden=("top", "right", "bottom"))
        # The first row is on top; its two bars lie beside each other.
        place = np.arange(len(rows))[::-1]
        bars = (
            ("impressions_share", 0.2, palette(1)[0], "share of the impressions"),
            ("factors_share", -0.2, "#b8bdc2", "share of the bias factors"),
        )
        for column, shift, color, label in bars:
            share = rows[column].to_numpy()
            bar = self.ax_.barh(place + shift, share, height=0.36, color=color, label=label)
            self.ax_.bar_label(bar, [*map(_percent, share)], padding=3, fontsize=8, color="0.3")
        self.ax_.set(xlim=(0, 1.12), xticks=[], yticks=place, yticklabels=rows["name"])
        self.ax_.tick_params(axis="y", length=0)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2}
        legend = self.ax_.legend(frameon=False, title=self._meaning(), title_fontsize=8, **below)
        legend.get_title().set_color("0.35")


# Data of the plot ---------------------------------------------------------------------
def _shared_documents(pairs):
    """Pairs of factors that share documents, with their number of shared documents."""
    shown = pairs.matrix()
    # Each pair once.
    shared = np.triu((shown.T @ shown).toarray(), k=1)
    a, b = np.nonzero(shared)
    return pd.DataFrame({"factor_a": a, "factor_b": b, "n_documents": shared[a, b].astype(int)})


def _bar_rows(components):
    """Names and shares of the bars: the largest components, then all others."""
    table = components[["n_factors", "impressions_share"]].reset_index(drop=True)
    table["factors_share"] = table["n_factors"] / table["n_factors"].sum()
    own = table[:_MAX_OWN]
    rest = table[_MAX_OWN:]
    names = []
    for number, n_factors in own["n_factors"].items():
        noun = "factor" if n_factors == 1 else "factors"
        names.append(f"component {number}:\n{n_factors:,} {noun}")
    others = rest.sum().to_frame().T.assign(name=f"{len(rest):,} others")
    # Without others, no row of them.
    return pd.concat([own.assign(name=names), others[: len(rest)]], ignore_index=True)


def _short(name):
    return name if len(name) <= 18 else name[:17] + "…"


def _percent(share):
    if 0 < share < 0.001:
        return "< 0.1 %"
    # From 10 % on, as rounded, without decimals.
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
