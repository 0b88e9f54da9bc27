"""Rows of results, the machine they come from, and the figure of all ratios."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ._work import OURS

#: met -> color and what the legend says.
LOOKS = {
    "yes": ("#0072b2", "goal met"),
    "no": ("#d55e00", "goal not met"),
    "": ("#888888", "no goal"),
}
COLUMNS = [
    "topic", "work", "title", "peer", "unit", "ratio", "lower", "upper", "memory", "goal",
    "memory_goal", "met", "size", "note",
]  # fmt: skip
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "lightgbm", "polars", "duckdb")
#: Ratios of less memory than this are ratios of page sizes.
LEAST_BYTES = 16 << 20
#: Not a property of the machine: it may differ between two runs.
LOAD = "busy cores at the start"


def row(work, peer, ratios, grown, size):
    """What was measured: median and quartiles of the ratio, and the ratio of memory."""
    lower, middle, upper = np.quantile(ratios, [0.25, 0.5, 0.75])
    found = {"ratio": middle, "lower": lower, "upper": upper, "memory": _memory(grown, peer)}
    return judged({"work": work.name, "peer": peer, "size": size.name, **found}, work)


def judged(measured, work):
    """The whole line: what was measured, with what the registry says now."""
    goal = work.goals[measured["peer"]]
    kept = [
        found <= largest
        for found, largest in ((measured["ratio"], goal), (measured["memory"], work.memory_goal))
        if largest is not None and not np.isnan(found)
    ]
    met = ("yes" if all(kept) else "no") if kept else ""
    said = {
        name: getattr(work, name) for name in ("topic", "title", "unit", "memory_goal", "note")
    }
    line = {**measured, **said, "goal": goal, "met": met}
    return {name: line[name] for name in COLUMNS}


def _memory(grown, peer):
    """Ratio of the memory of both; NaN where it was not measured or is too little to tell."""
    ours, other = grown.get(OURS), grown.get(peer)
    if not ours or not other or min(ours, other) < LEAST_BYTES:
        return np.nan
    return ours / other


def sentence(row):
    """``1.18 x bare torch (goal 1.05: no)``."""
    text = f"{row['ratio']:.3g} x {row['peer']}"
    text += "" if np.isnan(row["memory"]) else f", memory {row['memory']:.3g} x"
    return text + (f" (goal {row['goal']:g}: {row['met']})" if row["goal"] is not None else "")


def write(rows, out, works):
    """Write ``ratios.csv`` and ``machine.csv``; works that were not run stay."""
    machine, path = describe_machine(), out / "ratios.csv"
    lines = {(row["work"], row["peer"]): row for row in rows}
    if path.exists() and _same(machine, out / "machine.csv"):
        lines = {(row["work"], row["peer"]): row for row in _measured(path)} | lines
    pairs = [(work, (work.name, peer)) for work in works for peer in work.goals]
    found = [judged(lines[key], work) for work, key in pairs if key in lines]
    table = pd.DataFrame(found, columns=COLUMNS)
    table.to_csv(path, index=False, float_format="%.3g")
    machine.to_csv(out / "machine.csv", index=False)


def _measured(path):
    """What the file holds that the registry does not know."""
    columns = ["work", "peer", "size", "ratio", "lower", "upper", "memory"]
    return pd.read_csv(path)[columns].to_dict("records")


def _same(machine, path):
    """Whether the file at ``path`` describes this machine and these versions."""
    if not path.exists():
        return False
    old = pd.read_csv(path, dtype=str)
    new, old = (table[table["what"] != LOAD].reset_index(drop=True) for table in (machine, old))
    return new.equals(old)


# --------------------------------------------------------------------------------------
# The machine
# --------------------------------------------------------------------------------------
def describe_machine():
    """What the ratios may depend on, as a frame of text; no name of a host and no path."""
    values = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        LOAD: f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "",
        "memory": _memory_of_machine(),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    values |= {name: _version(name) for name in PACKAGES}
    return pd.DataFrame({"what": list(values), "value": list(values.values())})


def _processor():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _memory_of_machine():
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return ""
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# --------------------------------------------------------------------------------------
# The figure
# --------------------------------------------------------------------------------------
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
