"""Directives that show what ``make papers`` wrote.

``scoreboard``, ``decided``, ``verdicts``, ``exhibits``; ``settings`` for claims in settings of
ours, and ``elsewhere`` for sets passed with ``--letor``.

They read ``docs/papers/results``, so that no page has a figure that was typed by hand.
"""

import csv
import re
from collections import Counter
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[1] / "papers" / "results"
#: More lines than this are read in the CSV file, not on a page.
MOST_LINES = 64
#: Sizes of the scoreboard, in its own units: where bars begin, the longest bar, and a line.
LEFT = 132
BAR_WIDTH = 560
LINE = 34
#: Each verdict with its colour, which is told from the others without red and green too.
VERDICTS = {
    "holds": "#2a9d8f",
    "contradicted": "#d1495b",
    "undecided": "#edae49",
    "not judged": "#b8b8b8",
}


def read(paper, name):
    """Rows of a CSV file of results, as dicts of text."""
    with (RESULTS / paper / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Verdicts(SphinxDirective):
    """``.. verdicts:: PAPER``: one line for each exhibit: its verdict and its command."""

    required_arguments = 1

    def run(self):
        paper = self.arguments[0]
        header = ["Exhibit", "What it shows", "Claims", "Verdict", "Runs", "Hours", "Command"]
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 10 26 20 12 6 6 20", ""]
        lines += list_row(header)
        for row in read(paper, "verdicts"):
            link = f":ref:`{row['exhibit']} <{_label(paper, row['exhibit'])}>`"
            command = f"``{row['command']}``"
            numbers = [row["claims"], row["verdict"], row["runs"], _short(row["hours"])]
            lines += list_row([link, row["title"], *numbers, command])
        return parsed(self, lines)


class Decided(SphinxDirective):
    """``.. decided:: PAPER PAPER ...``: how many claims of each are decided, and of all.

    Claims without a run that can tell are not judged, which is not the same as undecided.
    """

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        lines = [".. list-table::", "   :header-rows: 1", ""]
        header = ["Paper", "Claims", "Hold", "Contradicted", "Undecided", "Not judged", "Decided"]
        lines += list_row(header)
        total = Counter()
        for paper in self.arguments[0].split():
            self.env.note_dependency(str(RESULTS / paper / "claims.csv"))
            counts = _counts(paper)
            lines += list_row([f"``{paper}``", *_counted(counts)])
            total += counts
        return parsed(self, lines + list_row(["All", *_counted(total)]))


def _counts(paper):
    """How many claims have each verdict, asked as the paper asks them."""
    return Counter(_verdict(claim) for claim in read(paper, "claims") if of_paper(claim))


def of_paper(claim):
    """Whether nothing in the question is ours."""
    return claim["setting"] == "paper"


def _counted(counts):
    """All claims, each verdict, and the share that is decided."""
    n = counts.total()
    each = [counts[word] for word in VERDICTS]
    return [n, *each, f"{(each[0] + each[1]) / n:.0%}"]


def _verdict(claim):
    return "not judged" if claim["runs"] == "0" else claim["verdict"]


class Scoreboard(SphinxDirective):
    """``.. scoreboard:: PAPER PAPER ...``: what ``decided`` counts, as bars."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        papers = self.arguments[0].split()
        for paper in papers:
            self.env.note_dependency(str(RESULTS / paper / "claims.csv"))
        return [nodes.raw("", _bars({paper: _counts(paper) for paper in papers}), format="html")]


def _bars(counts):
    """An SVG with a bar of claims for each paper, as long as its number of claims."""
    claim = BAR_WIDTH / max(each.total() for each in counts.values())
    height = LINE * (len(counts) + 1)
    said = "; ".join(f"{paper}: {_in_words(each)}" for paper, each in counts.items())
    lines = [
        f'<svg class="scoreboard" viewBox="0 0 {LEFT + BAR_WIDTH + 10} {height}" role="img"'
        f' aria-label="{said}" style="max-width: 720px; width: 100%" fill="currentColor"'
        ' font-size="13">'
    ]
    for i, (paper, each) in enumerate(counts.items()):
        lines += _bar(paper, each, LINE * i, claim)
    lines += _legend(LINE * len(counts))
    return "\n".join([*lines, "</svg>"])


def _bar(paper, counts, y, claim):
    """A paper's line at the height ``y``; a claim is ``claim`` wide."""
    lines = [f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{paper}</text>']
    x = LEFT
    for verdict, color in VERDICTS.items():
        width = claim * counts[verdict]
        if width:
            middle = x + width / 2
            lines += [
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" fill="{color}"/>',
                f'<text x="{middle:.1f}" y="{y + 18}" text-anchor="middle" fill="#1b1f24">'
                f"{counts[verdict]}</text>",
            ]
        x += width
    return lines


def _legend(y):
    lines = []
    for i, (verdict, color) in enumerate(VERDICTS.items()):
        x = LEFT + 130 * i
        lines.append(f'<rect x="{x}" y="{y + 4}" width="14" height="14" fill="{color}"/>')
        lines.append(f'<text x="{x + 20}" y="{y + 16}">{verdict}</text>')
    return lines


def _in_words(counts):
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


class Settings(SphinxDirective):
    """``.. settings:: PAPER``: how many claims hold in each setting, that of the paper first."""

    required_arguments = 1

    def run(self):
        by_setting = {}
        for claim in read(self.arguments[0], "claims"):
            by_setting.setdefault(claim["setting"], Counter())[_verdict(claim)] += 1
        lines = [".. list-table::", "   :header-rows: 1", ""]
        lines += list_row(["Setting", "Claims", "Hold", "Contradicted", "Undecided"])
        for setting, counts in by_setting.items():
            n = counts.total()
            each = [counts[word] for word in ("holds", "contradicted", "undecided")]
            lines += list_row([setting, n, *each])
        return parsed(self, lines)


class Elsewhere(SphinxDirective):
    """``.. elsewhere:: PAPER``: verdicts on made documents beside those on other sets.

    ``results/PAPER/elsewhere/SET.csv`` is the ``claims.csv`` of a run with ``--letor``.
    """

    required_arguments = 1

    def run(self):
        paper = self.arguments[0]
        files = sorted((RESULTS / paper / "elsewhere").glob("*.csv"))
        sets = {"Made documents": read(paper, "claims")}
        sets |= {file.stem: read(f"{paper}/elsewhere", file.stem) for file in files}
        found = {
            name: {
                (claim["exhibit"], claim["claim"]): claim for claim in claims if of_paper(claim)
            }
            for name, claims in sets.items()
        }
        asked = dict.fromkeys(key for file in files for key in found[file.stem])
        lines = [".. list-table::", "   :header-rows: 1", ""]
        lines += list_row(["Exhibit", "Claim", *sets])
        for key in asked:
            cells = [_verdict_with_gap(claims.get(key)) for claims in found.values()]
            lines += list_row([key[0].capitalize(), key[1], *cells])
        return parsed(self, lines)


def _key(claim):
    return claim["exhibit"], claim["claim"]


def _verdict_with_gap(claim):
    """Empty for a claim that a set was not asked about."""
    if claim is None:
        return ""
    return f"{_verdict(claim)}; {_gap(claim)}, {claim['runs']} runs"


class Exhibits(SphinxDirective):
    """``.. exhibits:: PAPER``: each exhibit with its verdict, figure, table and command."""

    required_arguments = 1

    def run(self):
        paper = self.arguments[0]
        claims = read(paper, "claims")
        return [
            node
            for row in read(paper, "verdicts")
            for node in self._exhibit(
                paper, row, [claim for claim in claims if claim["exhibit"] == row["exhibit"]]
            )
        ]

    def _exhibit(self, paper, row, claims):
        name = row["exhibit"]
        file = name.replace(" ", "_")
        title = f"{name.capitalize()}. {row['title']}"
        lines = [f".. _{_label(paper, name)}:", "", f".. rubric:: {title}", ""]
        lines += [f"**{row['verdict'].capitalize()}.** {row['claims']}.", ""]
        lines += _claims(claims)
        runs = "One run" if row["runs"] == "1" else f"{row['runs']} runs"
        # Without hours it shows older runs than those of the command.
        source = ", by" if row["hours"] else " of older code; with today's:"
        lines += [f"{runs}{source} ``{row['command']}``. {row['note']}", ""]
        lines += [f".. image:: results/{paper}/{file}.png", f"   :alt: {title}", ""]
        lines += _table(read(paper, file))
        return parsed(self, lines)


def _claims(claims):
    """The claims of the paper; in settings of ours behind a drop-down."""
    ours = [claim for claim in claims if not of_paper(claim)]
    lines = _claim_table([claim for claim in claims if of_paper(claim)], ["Claim"])
    if ours:
        lines += [".. dropdown:: The same claims in settings of ours", ""]
        lines += ["   " + line for line in _claim_table(ours, ["Claim", "Setting"])]
    return lines


def _claim_table(claims, names):
    """Sentence (and setting), verdict, deciding gap with interval, runs, the reason if known."""
    if not claims:
        return []
    widths = "38 12 20 6 24" if len(names) == 1 else "30 14 12 20 6 18"
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    lines += list_row([*names, "Verdict", "Deciding gap", "Runs", "Why not"])
    for claim in claims:
        told = [claim[name.lower()] for name in names]
        why = claim["why"] if claim["verdict"] == "contradicted" else ""
        lines += list_row([*told, _verdict(claim), _gap(claim), claim["runs"], why])
    return [*lines, ""]


def _gap(claim):
    """The gap with its interval; one that was decided exactly has none."""
    text = _short(claim["gap"]) if claim["gap"] else ""
    if not claim["low"] or float(claim["level"]) == 1:
        return text
    return f"{text} ({_short(claim['low'])} to {_short(claim['high'])})"


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
    return f"{float(number):.3g}" if number else ""


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
    """Register them."""
    app.add_directive("verdicts", Verdicts)
    app.add_directive("exhibits", Exhibits)
    app.add_directive("decided", Decided)
    app.add_directive("scoreboard", Scoreboard)
    app.add_directive("settings", Settings)
    app.add_directive("elsewhere", Elsewhere)
    return {"parallel_read_safe": True}
