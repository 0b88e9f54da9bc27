"""The page of benchmarks: an exhibit of ratios for each topic, whose claims are the goals."""

from functools import partial
from importlib import import_module

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from .._study import Claim, Exhibit, Page, Study
from ._work import OURS, measure

#: Modules of this folder with a tuple ``WORKS``, in the order of the page.
TOPICS = {
    "serving": "Scores at serving time",
    "training": "Epochs, trees and memory of fits",
    "logs": "Passes over a log",
    "estimation": "Estimators without networks",
    "evaluation": "Metrics",
    "searches": "Searches over parameters",
}
#: Ratios of less memory than this are ratios of page sizes.
LEAST_BYTES = 16 << 20
#: (color, what the legend says) where a goal is met, is not met, and where there is none.
LOOKS = {
    True: ("#0072b2", "goal met"),
    False: ("#d55e00", "goal not met"),
    None: ("#888888", "no goal"),
}


def works(topic):
    """Works of a topic, in the order of the page."""
    return import_module(f".{topic}", __package__).WORKS


def exhibit(topic, title, its_works):
    """Ratios of a topic: median and quartiles over rounds, memory, and goals in brackets."""
    pairs = [(work, peer, goal) for work in its_works for peer, goal in work.goals.items()]
    goals = {(w.title, peer): (goal, None, None, w.memory_goal) for w, peer, goal in pairs}
    notes = [f"{w.title}: {w.note}" for w in its_works if w.note and not any(w.goals.values())]
    return Exhibit(
        topic,
        title,
        Study(topic, measure, partial(_cells, its_works), 1, full_runs=1, alone=True, again=True),
        ("title", "peer"),
        ("ratio", "lower", "upper", "memory"),
        published=goals,
        claims=tuple(claim for pair in pairs for claim in _claims(*pair)),
        keep=partial(_compared, its_works),
        draw=partial(_figure, title),
        level=None,
        tolerance=0,
        note=". ".join(notes),
    )


def _cells(its_works, settings):
    """Times of each work; memory where it has a goal or is what counts, and at full size."""
    full = settings.size(quick=False, full=True)
    cells = []
    for work in its_works:
        measures = [] if work.unit == "memory" else ["time"]
        if work.unit == "memory" or work.memory_goal or (work.memory and full):
            measures += [OURS, *work.goals]
        cells += [{"work": work.name, "measure": name} for name in measures]
    return cells


def _claims(work, peer, goal):
    """What the goals of a work say about one of its peers."""
    asked = [("ratio", goal, ""), ("memory", work.memory_goal, " of memory")]
    return [
        Claim(
            f"{work.title}: at most {largest:g} times {peer}{what}",
            partial(_left, (work.title, peer), metric, largest),
            work.note,
            exact=True,
        )
        for metric, largest, what in asked
        if largest is not None
    ]


def _left(pair, metric, largest, means, rows):
    """What is left of a goal; NaN where nothing was measured."""
    found = means[metric].get(pair, np.nan) if metric in means else np.nan
    return np.nextafter(largest, np.inf) - found


def _compared(its_works, rows):
    """One row for each work, peer and run: the ratios of time and of memory."""
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, "ratio", "lower", "upper", "bytes"])))
    by_name, found = {work.name: work for work in its_works}, []
    for (name, seed), part in rows.groupby(["work", "seed"], sort=False):
        work = by_name[name]
        grown = dict(part.loc[part["measure"] != "time", ["measure", "bytes"]].itertuples(False))
        times = part[part["measure"] == "time"].set_index("peer")
        for peer in work.goals:
            row = {"title": work.title, "peer": peer, "seed": seed}
            if work.unit == "memory":
                row["ratio"] = _ratio(grown, peer, least=1)
            else:
                if peer in times.index:
                    row |= times.loc[peer, ["ratio", "lower", "upper"]].to_dict()
                row["memory"] = _ratio(grown, peer)
            found.append(row)
    names = ["title", "peer", "seed", "ratio", "lower", "upper", "memory"]
    return pd.DataFrame(found, columns=names)


def _ratio(grown, peer, least=LEAST_BYTES):
    """Ratio of the memory of both; NaN where it was not measured or is too little to tell."""
    ours, other = grown.get(OURS, 0), grown.get(peer, 0)
    return ours / other if min(ours, other) >= least else np.nan


def _figure(title, rows, table):
    """One line for each work and peer: ratio with quartiles on a log scale, and its goal."""
    wide = table.pivot_table("ours", ["title", "peer"], "metric", sort=False, observed=True)
    wide = wide.reindex(columns=["ratio", "lower", "upper"])
    goals = table[table["metric"] == "ratio"].set_index(["title", "peer"])["published"]
    place = -np.arange(len(wide))
    figure, axis = plt.subplots(figsize=(9, 1.4 + 0.24 * len(wide)), layout="constrained")
    for i, (pair, row) in enumerate(wide.iterrows()):
        goal = goals.get(pair, np.nan)
        color, label = LOOKS[None if np.isnan(goal) else bool(row["ratio"] <= goal)]
        spread = np.abs(row[["lower", "upper"]].fillna(row["ratio"]) - row["ratio"])
        spread = spread.to_numpy()[:, None]
        axis.errorbar(row["ratio"], place[i], xerr=spread, fmt="o", ms=5, color=color, label=label)
        axis.plot(goal, place[i], "|", ms=11, mew=2, color="black", label="goal")
    axis.axvline(1, color="black", lw=0.8, alpha=0.5)
    axis.set_yticks(place, [" / ".join(pair) for pair in wide.index], fontsize=8)
    axis.set_ylim(place[-1] - 0.8, 0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("ours / peer, with quartiles")
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(title, fontsize=11)
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside upper right", ncols=4, fontsize=8)
    return figure


PAGE = Page(
    "speed",
    "Time and memory beside the plainest code",
    tuple(exhibit(topic, title, works(topic)) for topic, title in TOPICS.items()),
)
