"""Directives that show what ``make benchmarks`` wrote: ``ratios TOPIC`` and ``machine``.

Both read ``docs/benchmarks/speed``, so that no page has a ratio that was typed by hand.
"""

import csv
from pathlib import Path

from paper_results import list_row, parsed
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[1] / "benchmarks" / "speed"
HEADER = ["Work", "Peer", "Ratio (quartiles)", "Memory", "Goal", "Met"]


def read(name):
    """Rows of a CSV file of results, as dicts of text."""
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Ratios(SphinxDirective):
    """``.. ratios:: TOPIC``: figure and table of a topic, and what its verdict says."""

    required_arguments = 1

    def run(self):
        (topic,) = self.arguments
        self.env.note_dependency(str(RESULTS / f"{topic}.csv"))
        self.env.note_dependency(str(RESULTS / "verdicts.csv"))
        (verdict,) = (row for row in read("verdicts") if row["exhibit"] == topic)
        lines = [f".. image:: /benchmarks/speed/{topic}.png"]
        lines += [f"   :alt: {verdict['title']}: ratios, quartiles and goals, on a log scale.", ""]
        lines += [".. list-table::", "   :header-rows: 1", "   :widths: 38 26 18 8 12 6", ""]
        lines += list_row(HEADER)
        found = {}
        for row in read(topic):
            found.setdefault((row["title"], row["peer"]), {})[row["metric"]] = row
        for pair, measured in found.items():
            lines += list_row([*pair, *_cells(measured)])
        return parsed(self, [*lines, "", verdict["why"], ""])


class Machine(SphinxDirective):
    """``.. machine::``: where the ratios come from."""

    def run(self):
        self.env.note_dependency(str(RESULTS / "verdicts.csv"))
        topics = {}
        for row in read("verdicts"):
            topics.setdefault(row["machine"], []).append(row["exhibit"])
        lines = [f"- {', '.join(names)}: {machine}" for machine, names in topics.items()]
        return parsed(self, lines)


def _cells(measured):
    """The numbers of one work and peer: ratio, memory, goals, and whether they are met."""
    ratio = _short(measured["ratio"]["ours"])
    if "lower" in measured:
        ratio += f" ({_short(measured['lower']['ours'])} to {_short(measured['upper']['ours'])})"
    memory = _short(measured["memory"]["ours"]) if "memory" in measured else ""
    asked = [row for row in measured.values() if row["published"]]
    goal = ", ".join(
        f"memory {_short(row['published'])}"
        if row["metric"] == "memory"
        else _short(row["published"])
        for row in asked
    )
    met = all(float(row["ours"]) <= float(row["published"]) for row in asked)
    return [ratio, memory, goal, ("yes" if met else "**no**") if asked else ""]


def _short(text):
    """Two decimals below 10, one below 100."""
    number = float(text)
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{digits}f}"


def setup(app):
    """Register both."""
    app.add_directive("ratios", Ratios)
    app.add_directive("machine", Machine)
    return {"parallel_read_safe": True}
