"""Identifiability Matters (Chen et al., ICML 2024): its tables and figures, redrawn.

When do clicks determine relevance at all? The bias factors of a log (positions, or positions times
contexts) are joined where one document was shown under both; relevance can be recovered if and
only if this graph is connected. If it is not, a few documents are shown elsewhere (intervention),
or similar factors share one examination (merging).

    python -m benchmarks papers/identifiability --quick
    python -m benchmarks papers/identifiability --table 1 --figure 3a 3b
    python -m benchmarks papers/identifiability --table 1 --sets dataset_fully_simulation
    python -m benchmarks papers/identifiability --table 2 3 4 6 --letor Yahoo_letor
    python -m benchmarks papers/identifiability --table 5 --log sessions.parquet

``--sets`` is the folder of the published sets, with K=1, ..., K=4. ``--log`` is a click log of
your own: ``session``, ``qid``, ``doc``, ``position``, ``click``, and two columns whose names begin
with "vertical" for the kinds of results (without them: the result above, and the clicks above).
``--sessions`` is how often each page is served; in table 5, the sessions of the made log.

All takes minutes at full size, but for tables 2 and 6; ``--list`` says how long.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from .._study import Exhibit, Page
from . import _identifiability_claims as claims
from . import _identifiability_studies as studies
from ._identifiability_worlds import STANDS_FOR

PROGRAM = "Published: measured with the published program, which divides relevance by 2^5 - 1."


# --------------------------------------------------------------------------------------
# Published figures
# --------------------------------------------------------------------------------------
def _mcc(value):
    return (value, None, None, None, None, None)


TABLE_1 = {
    (1, "DLA"): _mcc(0.9999),
    (2, "DLA"): _mcc(0.64),
    (2, "Regression-EM"): _mcc(0.57),
    (2, "Two-Tower"): _mcc(0.83),
    (2, "DLA + merging"): _mcc(0.975),
    (2, "DLA + intervention"): _mcc(0.9999),
    (2, "Regression-EM + intervention"): _mcc(0.94),
    (3, "DLA + merging"): _mcc(0.959),
    (4, "DLA + merging"): _mcc(0.738),
}
FIGURE_3B = {key: value[:1] for key, value in TABLE_1.items() if key[1].startswith("DLA")}
FIGURE_4B = {"4 & 5": (0.975,), "3 & 5": (0.85,), "2 & 5": (0.75,), "1 & 5": (0.71,)}
SIZES = {
    "queries": (28_719, 32_968),
    "documents": (700_153, 3_406_167),
    "features": (700, 220),
    "relevance levels": (5, 5),
}
GRAPHS = {
    "nodes": (48_894, 48_919),
    "edges": (59_811_898, 5_972),
    "components": (28_958, 47_976),
    "nodes in the top 1": (15_684, 101),
    "nodes in the top 2": (98, 7),
    "nodes in the top 3": (96, 5),
}
TABLE_5 = {
    "(v1, v2, position)": (20_704, 2_900),
    "(v1, position)": (None, 1_106),
    "(v2, position)": (None, 87),
    "position only": (None, 1),
}


def _beside(table):
    """Published numbers of the two sets, also beside the made set that stands for each."""
    sets = ("Yahoo!", "Istella-S")
    found = {(name, size): (two[i],) for size, two in table.items() for i, name in enumerate(sets)}
    made = {
        (name, size): found[sets_name, size]
        for name, sets_name in STANDS_FOR.items()
        for size in table
    }
    return found | made


# --------------------------------------------------------------------------------------
# Which rows an exhibit shows
# --------------------------------------------------------------------------------------
def _methods_of_dla(rows):
    """Figure 3b: DLA and its repairs; at K = 1 there is nothing to repair."""
    names = ("DLA", "DLA + merging", "DLA + intervention")
    whole = rows[(rows["method"] == "DLA") & (rows["K"] == 1)]
    repaired = [whole.assign(method=name) for name in names[1:]]
    return pd.concat([rows[rows["method"].isin(names)], *repaired], ignore_index=True)


def _set_of(number):
    """Rows of the first or second made set; all rows of the reader's own set."""

    def keep(rows):
        own = rows[rows["documents"] == list(STANDS_FOR)[number]]
        return rows if own.empty else own

    return keep


def _table_2(rows):
    return rows[~rows["method"].str.contains("random")]


def _table_6(rows):
    names = {"DLA": "DLA, start at 1", "DLA + merging": "DLA, start at 1 + merging"}
    rows = rows[rows["method"] != "DLA, positions only"]
    return rows.assign(method=rows["method"].replace(names))


# --------------------------------------------------------------------------------------
# Drawings of their own
# --------------------------------------------------------------------------------------
def _draw_swaps(rows, table):
    """What is missing from an MCC of 1, which the swaps bring near 0: mean, and all runs."""
    figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    for i, (swap, part) in enumerate(rows.groupby("swap", sort=False)):
        missing = (1 - part["MCC"]).groupby(part["clicks"]).agg(["mean", "min", "max"])
        axis.plot(missing.index, missing["mean"], "o-", ms=4, color=f"C{i}", label=swap)
        axis.fill_between(missing.index, missing["min"], missing["max"], color=f"C{i}", alpha=0.15)
    axis.set(xscale="log", yscale="log", xlabel="clicks", ylabel="1 - MCC")
    axis.grid(alpha=0.3)
    axis.legend(title="swap")
    axis.set_title("Figure 4a. Interventions (K = 2): mean and range of the runs", fontsize=11)
    return figure


def _draw_graphs(rows, table):
    """Positions on a circle, joined where a document was shown at both."""
    figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
    angle = np.pi / 2 - 2 * np.pi * np.arange(10) / 10
    place = np.column_stack([np.cos(angle), np.sin(angle)])
    for (K, part), axis in zip(rows.groupby("K"), axes, strict=False):
        edges = part["edge"].str.split("-", expand=True).astype(int).to_numpy() - 1
        for a, b in edges:
            axis.plot(*place[[a, b]].T, color="#8aa4b8", lw=1, zorder=1)
        axis.scatter(*place.T, s=190, color="white", edgecolor="#1f77b4", zorder=2)
        for number, (x, y) in enumerate(place, start=1):
            axis.text(x, y, number, ha="center", va="center", fontsize=9)
        axis.set(title=f"K = {K}", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
        axis.axis("off")
    figure.suptitle("Figure 5. Graphs of the logs: positions that share documents")
    return figure


# --------------------------------------------------------------------------------------
# Exhibits
# --------------------------------------------------------------------------------------
QUALITY = ("MCC", "nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "click MSE")
CONTEXTUAL = ("MCC", "train nDCG@5", "train nDCG@10", "click MSE", "test nDCG@5", "test nDCG@10")
NO_FIGURES = "The numbers of the published table are not at hand, so none stand beside ours."


def _chance(name, title, study, x, number, of, log_x=True):
    return Exhibit(
        name,
        title,
        study,
        ("documents", "chance by", x),
        ("chance",),
        claims=of,
        keep=_set_of(number),
        x=x,
        log_x=log_x,
        note="The formula of Example 2 takes impressions for independent draws: it is too high.",
    )


EXHIBITS = (
    Exhibit(
        "table 1",
        "Repairs of logs with K components",
        studies.COMPONENTS,
        ("K", "method"),
        QUALITY,
        published=TABLE_1,
        claims=claims.TABLE_1,
        note=f"{PROGRAM} DLA and regression-EM end in the same place here; unrepaired rows depend "
        "on how the random start is drawn.",
    ),
    Exhibit(
        "figure 3a",
        "DLA: clicks of a page and components",
        studies.CLICKS,
        ("K", "clicks"),
        ("MCC", "nDCG@10"),
        claims=claims.FIGURE_3A,
        x="clicks",
        log_x=True,
        note="About 1,000 clicks a page look better than more: chance puts some relevance at its "
        "bound of 1, which ties the components together.",
    ),
    Exhibit(
        "figure 3b",
        "DLA and its repairs by the number of components",
        studies.COMPONENTS,
        ("K", "method"),
        ("MCC",),
        published=FIGURE_3B,
        claims=claims.FIGURE_3B,
        keep=_methods_of_dla,
        x="K",
        note=PROGRAM,
    ),
    Exhibit(
        "figure 4a",
        "Interventions of least and of random cost (K = 2)",
        studies.SWAPPED,
        ("swap", "clicks"),
        ("MCC",),
        claims=claims.FIGURE_4A,
        draw=_draw_swaps,
    ),
    Exhibit(
        "figure 4b",
        "Which positions to merge (K = 2)",
        studies.MERGES,
        ("merged",),
        ("MCC",),
        published=FIGURE_4B,
        claims=claims.FIGURE_4B,
        note=f"{PROGRAM} The paper counts positions from 0: its 3 & 4 is 4 & 5 here.",
    ),
    Exhibit(
        "propositions",
        "How far merging moves components apart, and the bound of Propositions 2 and 4",
        studies.BOUNDS,
        ("K", "merged"),
        ("error", "bound"),
        claims=claims.PROPOSITIONS,
        note="Ours: the paper proves them. The bound takes the true examination, which only "
        "simulations know.",
    ),
    _chance(
        "figure 4c",
        "Chance of a connected log by contexts (paper: Yahoo!)",
        studies.BY_CONTEXTS,
        "contexts",
        0,
        claims.BY_CONTEXTS,
    ),
    _chance(
        "figure 4d",
        "Chance of a connected log by contexts (paper: Istella-S)",
        studies.BY_CONTEXTS,
        "contexts",
        1,
        claims.BY_CONTEXTS,
    ),
    Exhibit(
        "table 2",
        "Merging under thousands of contexts",
        studies.CONTEXTS,
        ("documents", "method"),
        CONTEXTUAL,
        claims=claims.TABLE_2,
        keep=_table_2,
        note=NO_FIGURES,
    ),
    Exhibit(
        "padding",
        "Table 2 with the padding of short lists read as one document",
        studies.PADDED,
        ("documents", "method"),
        (*CONTEXTUAL, "components"),
        claims=claims.PADDING,
        paired=("documents",),
        note="As the authors' program reads it. 5 % of the places are padding, which joins "
        "factors. Quality is that of real documents.",
    ),
    Exhibit(
        "table 3",
        "Sizes of the data sets",
        studies.SIZES,
        ("documents", "size"),
        ("number",),
        published=_beside(SIZES),
        panel="documents",
        log_x=True,
        note="The published sizes leave out queries without a relevant document.",
    ),
    Exhibit(
        "table 4",
        "Sizes of the graphs",
        studies.GRAPH,
        ("documents", "size"),
        ("number",),
        published=_beside(GRAPHS),
        claims=claims.TABLE_4,
        panel="documents",
        log_x=True,
        note="The published graphs count the padding of short lists as one document; ours do not.",
    ),
    Exhibit(
        "table 5",
        "Components of a log with kinds of results (TianGong-ST)",
        studies.LOG,
        ("bias factor",),
        ("factors", "components"),
        published=TABLE_5,
        claims=claims.TABLE_5,
        log_x=True,
        note="A made log, or the one of --log, in place of TianGong-ST.",
    ),
    Exhibit(
        "figure 5",
        "Graphs of the logs of K components",
        studies.LINKS,
        ("K", "edge"),
        ("components", "documents"),
        claims=claims.FIGURE_5,
        draw=_draw_graphs,
    ),
    Exhibit(
        "figure 6",
        "Examination relative to position 1",
        studies.CURVES,
        ("K", "curve", "position"),
        ("examination",),
        claims=claims.FIGURE_6,
        x="position",
        panel="K",
    ),
    Exhibit(
        "table 6",
        "Starts of examination: at 1 or random",
        studies.CONTEXTS,
        ("documents", "method"),
        CONTEXTUAL,
        claims=claims.TABLE_6,
        keep=_table_6,
        note=NO_FIGURES,
    ),
    _chance(
        "figure 7a",
        "Chance of a connected log by its size (paper: Yahoo!)",
        studies.BY_SIZE,
        "sampling ratio",
        0,
        claims.BY_SIZE,
    ),
    _chance(
        "figure 7b",
        "Chance of a connected log by its size (paper: Istella-S)",
        studies.BY_SIZE,
        "sampling ratio",
        1,
        claims.BY_SIZE,
    ),
    _chance(
        "figure 7c",
        "Chance of a connected log by features (paper: Yahoo!)",
        studies.BY_FEATURES,
        "features",
        0,
        claims.BY_FEATURES,
    ),
    _chance(
        "figure 7d",
        "Chance of a connected log by features (paper: Istella-S)",
        studies.BY_FEATURES,
        "features",
        1,
        claims.BY_FEATURES,
    ),
)

PAGE = Page("identifiability", "Identifiability Matters (Chen et al. 2024)", EXHIBITS)
