"""The figure of all ratios."""

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

#: met -> color and what the legend says.
LOOKS = {
    "yes": ("#0072b2", "goal met"),
    "no": ("#d55e00", "goal not met"),
    "": ("#888888", "no goal"),
}


def draw(out):
    """Write ``ratios.png`` from ``ratios.csv``; nothing if that is empty."""
    table = pd.read_csv(out / "ratios.csv", dtype={"met": str})
    if len(table):
        _figure(table).savefig(out / "ratios.png", dpi=120, bbox_inches="tight")


def _figure(table):
    """One line for each work and peer: ratio with quartiles on a log scale, and its goal."""
    met = table["met"].fillna("")
    topics = table["topic"].to_numpy()
    starts = np.r_[0, np.cumsum(topics[1:] != topics[:-1])]
    place = -(np.arange(len(table)) + 1.0 * starts)  # a gap between topics
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.24 * -place[-1]), layout="constrained")
    for key, (color, label) in LOOKS.items():
        rows = (met == key).to_numpy()
        part = table[rows]
        spread = np.abs(part[["lower", "upper"]].to_numpy().T - part["ratio"].to_numpy())
        axis.errorbar(
            part["ratio"], place[rows], xerr=spread, fmt="o", ms=5, color=color, label=label
        )
    axis.plot(table["goal"].astype(float), place, "|", ms=11, mew=2, color="black", label="goal")
    axis.axvline(1, color="black", lw=0.8, alpha=0.5)
    for topic in dict.fromkeys(topics):
        first = place[topics == topic][0]
        axis.text(0, first + 0.75, topic, transform=axis.get_yaxis_transform(), weight="bold")
    axis.set_yticks(place, [f"{row.title} / {row.peer}" for row in table.itertuples()], fontsize=8)
    axis.set_ylim(place[-1] - 0.8, 1.6)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("ours / peer, with quartiles")
    axis.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper right", ncols=4, fontsize=8)
    return figure
