"""Directives that show what ``make papers`` wrote: ``verdicts`` and ``exhibits``.

Both read ``docs/papers/results/PAPER``, so that no page has a figure that was typed by hand.
"""

import csv
import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[1] / "papers" / "results"
#: More lines than this are read in the CSV file, not on a page.
MOST_LINES = 64


def read(paper, name):
    """Rows of a CSV file of results, as dicts of text."""
    with (RESULTS / paper / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Verdicts(SphinxDirective):
    """``.. verdicts:: PAPER``: one line for each exhibit: its verdict and its command."""

    required_arguments = 1

    def run(self):
        rows = read(self.arguments[0], "verdicts")
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 12 36 14 10 28", ""]
        lines += list_row(["Exhibit", "What it shows", "Verdict", "Claims that hold", "Command"])
        for row in rows:
            link = f":ref:`{row['exhibit']} <{_label(self.arguments[0], row['exhibit'])}>`"
            command = f"``{row['command']}``"
            lines += list_row([link, row["title"], row["verdict"], row["holds"], command])
        return parsed(self, lines)


class Exhibits(SphinxDirective):
    """``.. exhibits:: PAPER``: each exhibit with its verdict, figure, table and command."""

    required_arguments = 1

    def run(self):
        paper = self.arguments[0]
        return [node for row in read(paper, "verdicts") for node in self._exhibit(paper, row)]

    def _exhibit(self, paper, row):
        name = row["exhibit"]
        file = name.replace(" ", "_")
        title = f"{name.capitalize()}. {row['title']}"
        lines = [f".. _{_label(paper, name)}:", "", f".. rubric:: {title}", ""]
        lines += [f"**{row['verdict'].capitalize()}.** {row['why']}", ""]
        if row["claims"]:
            lines += [f"Holds: {row['claims']}.", ""]
        runs = "one run" if row["runs"] == "1" else f"{row['runs']} runs"
        lines += [f"{runs.capitalize()}, by ``{row['command']}``.", ""]
        lines += [f".. image:: results/{paper}/{file}.png", f"   :alt: {title}", ""]
        lines += _table(read(paper, file))
        return parsed(self, lines)


def _table(rows):
    """The numbers behind a drop-down: ours, the interval, the published figure in brackets."""
    measures = ("metric", "ours", "runs", "interval", "published", "mark")
    by = [name for name in rows[0] if name not in measures]
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    wide = {}
    for row in rows:
        wide.setdefault(tuple(row[name] for name in by), {})[row["metric"]] = _cell(row)
    if len(wide) > MOST_LINES:
        return []
    lines = [".. dropdown:: The numbers: ours ± interval [published]", ""]
    table = [".. list-table::", "   :header-rows: 1", "", *list_row([*by, *metrics])]
    for key, cells in wide.items():
        table += list_row([*key, *(cells.get(metric, "") for metric in metrics)])
    return [*lines, *("   " + line for line in table), ""]


def _cell(row):
    text = _short(row["ours"]) + row.get("mark", "")
    text += f" ± {_short(row['interval'])}" if row["interval"] else ""
    return text + (f" [{_short(row['published'])}]" if row["published"] else "")


def _short(number):
    return f"{float(number):.3g}"


def list_row(cells):
    return [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(cells)]


def _label(paper, exhibit):
    return re.sub(r"\W+", "-", f"{paper}-{exhibit}")


def parsed(directive, lines):
    node = nodes.section()
    node.document = directive.state.document
    directive.state.nested_parse(StringList(lines, source=__file__), 0, node)
    return node.children


def setup(app):
    """Register both."""
    app.add_directive("verdicts", Verdicts)
    app.add_directive("exhibits", Exhibits)
    return {"parallel_read_safe": True}
