"""The verdict on an identifiability graph, in plain words and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ._resistance import MAX_EXACT

#: Overlap from which features are taken to determine examination (bench_feature_overlap.py).
ENOUGH = 0.15
#: Largest number of factors and documents that a message names.
MAX_NAMED = 3
#: Largest number of components that are listed.
_MAX_LISTED = 6
#: Largest number of pairs for which bridges and weak links are computed: a few seconds.
_MAX_PAIRS = 1_000_000
#: Standard error of a log ratio above which a link is weak: a margin of 1.5 at 95 %.
_BARELY = 0.2
#: Share of impressions outside the largest group without weak links above which the verdict is
#: "barely".
_NOTABLE = 0.05


def name_some(names: Iterable[Any], total: int | None = None) -> str:
    """The first names as text, such as ``1, 2, 3, ...``."""
    names = list(names)
    total = len(names) if total is None else total
    text = ", ".join(_name(name) for name in names[:MAX_NAMED])
    return f"{text}, ..." if total > MAX_NAMED else text


def summary_lines(graph: Any, overlap: Any = None) -> list[str]:
    """The lines of ``IdentifiabilityGraph.summary``."""
    weak = _weak_part(graph)
    return [
        *_verdict(graph, weak),
        *_components(graph),
        *_features(graph, overlap),
        *_bridges(graph),
        *_links(graph, weak),
        *_remedy(graph, weak),
    ]


def summary_html(graph: Any) -> str:
    """The verdict and the largest components as an HTML table."""
    verdict, *rest = summary_lines(graph)
    colour = "#8a5a00" if "barely" in verdict else "#1b6e3c"
    if not graph.is_connected:
        colour = "#b3261e"
    notes = [line for line in rest if not line.startswith("  component")]
    table = graph.components.head(_MAX_LISTED).dropna(axis="columns", how="all")
    formats = {"impressions": "{:,.0f}".format}
    formats |= dict.fromkeys(("impressions_share", "clicks_share"), "{:.1%}".format)
    return (
        f'<div><strong style="color:{colour}">{escape(verdict)}</strong>'
        f"{table.to_html(formatters=formats, border=0)}"
        f"<p>{escape(' '.join(line.strip() for line in notes))}</p></div>"
    )


# The parts of a summary ---------------------------------------------------------------
def _verdict(graph, weak):
    factors = _count(graph.n_factors, "bias factor")
    if not graph.is_connected:
        return [
            f"NOT identifiable: {factors} fall into {graph.n_components:,} components.",
            "Relevance can be compared within a component only, however many clicks there are.",
        ]
    if graph.n_factors == 1:
        return ["Identifiable: there is one bias factor, so click rates compare documents fairly."]
    if weak is not None and weak.matters:
        return [f"Identifiable, but barely: {factors} form one component with weak links."]
    return [
        f"Identifiable: {factors} form one component, so that clicks determine the relevance of "
        f"all {_count(graph.n_documents, 'document')} up to one scale."
    ]


def _components(graph):
    if graph.is_connected:
        return []
    table = graph.components.head(_MAX_LISTED)
    lines = [
        f"  component {row.Index}: {_count(row.n_factors, 'factor')} ({row.examples}), "
        f"{_count(row.n_documents, 'document')}, "
        f"{100 * row.impressions_share:.1f} % of impressions"
        for row in table.itertuples()
    ]
    others = graph.n_components - len(table)
    if others:
        share = graph.components["impressions_share"].iloc[len(table) :].sum()
        lines.append(f"  {others:,} more, with {100 * share:.1f} % of impressions together")
    return lines


def _features(graph, overlap):
    """Whether features tell the examination of components apart, if this was computed."""
    if graph.is_connected or overlap is None:
        return []
    share = overlap.between(graph._factor_names(), graph.labels)
    verdict = "may do so" if share >= ENOUGH else "cannot do so either"
    return [
        f"Features leave {share:.2f} of what clicks say about the examination of components "
        f"(feature_overlap): a network {verdict}."
    ]


def _bridges(graph):
    if not graph.is_connected or graph.n_factors == 1:
        return []
    if graph.n_pairs > _MAX_PAIRS:
        return ["Bridges were not computed for a log of this size: see bridges()."]
    bridges = graph.bridges()
    if bridges.empty:
        return []
    names = bridges[[name for name in ("qid", "doc", "row") if name in bridges]]
    some = names.head(MAX_NAMED).itertuples(index=False, name=None)
    some = [name[0] if len(name) == 1 else name for name in some]
    ids = f"{' and '.join(names)} {name_some(some, len(bridges))}"
    if len(bridges) == 1:
        return [f"It is connected through one document alone ({ids}): see bridges()."]
    return [
        f"Removing any one of {len(bridges):,} documents ({ids}) would disconnect it: "
        "see bridges()."
    ]


def _links(graph, weak):
    if not graph.is_connected or graph.n_factors == 1:
        return []
    if not _is_small(graph):
        return ["Weak links were not computed for a log of this size: see weak_links()."]
    unknown = graph.pairs.clicks is None
    lines = ["Clicks are unknown: the standard errors of links are lower bounds."] * unknown
    if weak is None:
        return lines
    names = graph._factor_names().take(weak.side[:MAX_NAMED])
    who = f"The examination of {{{name_some(names, len(weak.side))}}} relative to the rest"
    if np.isinf(weak.error):
        lines.append(f"{who} is not known: no clicked document links them.")
    else:
        lines.append(f"{who} is known only to a factor of {np.exp(1.96 * weak.error):.3g} (95 %).")
    factors = _count(weak.n_factors, "factor")
    lines.append(
        f"In all, {factors} ({100 * weak.share:.2g} % of impressions) can be compared with the "
        f"others only to a factor above {np.exp(1.96 * _BARELY):.2g}: see weak_links()."
    )
    return lines


def _remedy(graph, weak):
    if not graph.is_connected:
        swaps = _count(graph.n_components - 1, "swap")
        return [
            'To do: IdentifiabilityRepair(strategy="merge") lets the most similar factors of '
            "different",
            f'  components share one examination; strategy="intervene" plans {swaps} to serve '
            "instead.",
        ]
    if weak is not None:
        return ["To do: collect clicks on documents that are shown on both sides of weak links."]
    return []


# Weak links ---------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Weak:
    """Factors behind weak links: the smaller side of the weakest one, and all outside the core."""

    side: np.ndarray
    error: float
    n_factors: int
    share: float

    @property
    def matters(self):
        return self.share >= _NOTABLE


def _is_small(graph):
    return graph.n_pairs <= _MAX_PAIRS and graph.n_factors <= MAX_EXACT


def _weak_part(graph):
    """Factors that are connected to the rest through weak links only, or None."""
    if not (graph.is_connected and _is_small(graph)):
        return None
    a, b, variance, _ = graph._links()
    if not len(a) or variance[0] <= _BARELY**2:
        return None
    ends = _without(a, b, np.arange(len(a)) > 0, graph.n_factors)
    one, other = (np.flatnonzero(ends == ends[end]) for end in (a[0], b[0]))
    groups = _without(a, b, variance <= _BARELY**2, graph.n_factors)
    impressions = np.bincount(graph.pairs.factor, graph.pairs.impressions)
    share = np.bincount(groups, impressions) / impressions.sum()
    core = int(np.argmax(share))
    return _Weak(
        side=min(one, other, key=len),
        error=float(np.sqrt(variance[0])),
        n_factors=int((groups != core).sum()),
        share=1.0 - share[core],
    )


def _without(a, b, keep, n_factors):
    """Component of each factor in the graph of the links to keep."""
    links = coo_array((np.ones(keep.sum()), (a[keep], b[keep])), (n_factors, n_factors))
    return connected_components(links, directed=False)[1]


# Words --------------------------------------------------------------------------------
def _name(value):
    if isinstance(value, tuple):
        return f"({', '.join(map(_name, value))})"
    return str(value)


def _count(n, noun):
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
