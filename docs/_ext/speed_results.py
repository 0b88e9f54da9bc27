"""Directives that show what ``make benchmarks`` wrote: ``ratios TOPIC`` and ``machine``.

Both read ``docs/benchmarks``, so that no page has a ratio that was typed by hand.
"""

import csv
from pathlib import Path

from paper_results import list_row, parsed
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[1] / "benchmarks"
HEADER = ["Work", "Peer", "Ratio (quartiles)", "Memory", "Goal", "Met"]


def read(name):
    """Rows of a CSV file of results, as dicts of text."""
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Ratios(SphinxDirective):
    """``.. ratios:: TOPIC``: the table of a topic, and the notes of its works."""

    required_arguments = 1

    def run(self):
        self.env.note_dependency(str(RESULTS / "ratios.csv"))
        rows = [row for row in read("ratios") if row["topic"] == self.arguments[0]]
        if not rows:
            return parsed(self, ["Not measured on this machine."])
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 38 26 18 8 12 6", ""]
        lines += list_row(HEADER)
        for row in rows:
            lines += list_row(_cells(row))
        notes = {row["title"]: row["note"] for row in rows if row["note"]}
        lines += ["", *(f"- {title}: {note}." for title, note in notes.items()), ""]
        return parsed(self, lines)


class Machine(SphinxDirective):
    """``.. machine::``: where the ratios come from."""

    def run(self):
        self.env.note_dependency(str(RESULTS / "machine.csv"))
        lines = [".. list-table::", ""]
        for row in read("machine"):
            lines += list_row([row["what"], row["value"]])
        return parsed(self, lines)


def _cells(row):
    """The cells of one work and peer."""
    ratio = f"{_short(row['ratio'])} ({_short(row['lower'])} to {_short(row['upper'])})"
    ratio += " of memory" if row["unit"] == "memory" else ""
    ratio += " of wall time" if row["unit"] == "wall time" else ""
    goal = _short(row["goal"])
    goal += f", memory {_short(row['memory_goal'])}" if row["memory_goal"] else ""
    met = "**no**" if row["met"] == "no" else row["met"]
    return [row["title"], row["peer"], ratio, _short(row["memory"]), goal, met]


def _short(text):
    """Two decimals below 10, one below 100; nothing for nothing."""
    if not text:
        return ""
    number = float(text)
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{digits}f}"


def setup(app):
    """Register both."""
    app.add_directive("ratios", Ratios)
    app.add_directive("machine", Machine)
    return {"parallel_read_safe": True}
