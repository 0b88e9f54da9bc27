"""The reports of the command ``skultr``: HTML files that need no other."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

_COLOURS = {"yes": "#1b6e3c", "barely": "#8a5a00", "level": "#8a5a00", "no": "#b3261e"}
_STYLE = """
:root{--ink:#1c2430;--soft:#5b6675;--line:#dde2e8;--back:#f5f7f9;--bar:#2b6cb0}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
 font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.25rem}
h1{font-size:1.5rem;line-height:1.25;margin:.3rem 0 .6rem}
h2{font-size:1.15rem;margin:0 0 .6rem}
section{background:#fff;border:1px solid var(--line);border-radius:8px;padding:1rem 1.2rem;
 margin:0 0 1rem}
.verdict{border-left:8px solid var(--level)}
.verdict h1{color:var(--level)}
td:first-child code{white-space:nowrap}
.soft{overflow-wrap:anywhere;color:var(--soft)}
p{margin:.4rem 0}
ol,ul{margin:.4rem 0;padding-left:1.3rem}
li{margin:.3rem 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .7rem .28rem 0;border-bottom:1px solid var(--line);text-align:left;
 vertical-align:top}
th{color:var(--soft);font-weight:600}
.number{text-align:right;white-space:nowrap}
pre,code{font:.88rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--back);padding:.7rem .8rem;
 border-radius:6px;margin:.5rem 0}
code{overflow-wrap:anywhere}
.bar{display:block;height:.8rem;background:var(--bar);border-radius:2px;min-width:1px}
svg{display:block;width:100%;height:auto;max-width:40rem;font-size:14px;fill:var(--soft)}
@media(max-width:32rem){svg{font-size:24px} main{padding:.6rem}}
"""


#: By level: whether the log supports judgments, and what that means.
_VERDICTS = {
    "yes": (
        "This log supports judgments.",
        "The clicks tell how far users look, and so what they like.",
    ),
    "barely": (
        "This log supports judgments only roughly.",
        "The clicks tell little of how far users look at some positions. Labels of documents that "
        "always stood there may be off by more than their intervals say.",
    ),
    "level": (
        "This log tells no document from another.",
        "All judgments have one grade: the clicks are too few, or the documents equally good.",
    ),
    "no": (
        "This log does not support judgments.",
        "Too few documents were shown at several positions, so that the clicks cannot tell what "
        "users like from where they look. Judgments and model rest on an assumed curve, which the "
        "names of their files say. They show the formats, not the truth.",
    ),
}
_VARY = (
    "Vary the order for a little traffic: exchange the first document with one below it, drawn "
    'at random, on a few pages in a hundred. `IdentifiabilityRepair(strategy="intervene")` lists '
    "which exchanges are enough. Then run this again on the new log."
)
_UPLOAD = "Upload `judgments.json` and compare your search configurations by it."
_STEPS = {
    "yes": [_UPLOAD],
    "barely": [
        "Use the judgments to compare configurations, not to tune a few documents.",
        "Collect more pages. " + _VARY,
    ],
    "level": [
        "Do not upload the judgments: they compare nothing.",
        "Collect more pages, or give `--grades 0 1`. Then run this again.",
    ],
    "no": ["Do not tune your search by these files.", _VARY],
}
_OF_MODEL = {
    True: "Held-out clicks prefer the model to the order served: upload it, and test it on a part "
    "of the traffic before all of it.",
    False: "Held-out clicks do not clearly prefer the model to the order served: keep the order "
    "served, and add features or clicks. `EnsembleRanker` weighs both.",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """What the command found, in the order of the page."""

    source: str  # what was read, as the user named it
    level: str  # a key of _VERDICTS
    read: list[str]  # and left out; a line with blanks in front belongs to the one before it
    graph: str  # the summary of the identifiability graph
    examination: pd.DataFrame  # by position: examination, lower and upper, NaN where unknown
    grades: pd.Series  # number of judgments by grade
    remarks: list[str]  # what was not judged, and why
    model: list[str]  # what the model is, or why there is none
    better: bool | None  # whether held-out clicks prefer the model; None if unknown
    files: list[tuple[str, str]]  # name of each file and what it is for
    warnings: list[str]  # of the steps

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return _VERDICTS[self.level][0]

    @property
    def steps(self) -> list[str]:
        """What to do next."""
        steps = list(_STEPS[self.level])
        if self.level != "no" and self.better is not None:
            steps.append(_OF_MODEL[self.better])
        return steps


def page(found: Findings) -> str:
    """The report as the text of an HTML file."""
    headline, meaning = map(escape, _VERDICTS[found.level])
    how_far = (
        "Assumed, not estimated: how often each position is looked at falls as 1 / √position. The "
        "clicks of this log do not determine it."
        if found.level == "no"
        else "How often each position is looked at, relative to the first, with 95 % intervals, "
        "estimated from documents that moved."
    )
    parts = {
        "What to do next": _list(found.steps, "ol"),
        "What was read": _outline(found.read),
        "Does the log determine relevance?": "<p>What tells attention from relevance are "
        f"documents that were shown at several positions.</p><pre>{escape(found.graph)}</pre>",
        "How far users look": f"<p>{how_far}</p>"
        + _chart(found.examination, is_estimated=found.level != "no"),
        "Judgments": _grades(found.grades) + _list(found.remarks),
        "Model": _list(found.model),
        "Files": _files(found.files),
        "Warnings": _list(found.warnings),
    }
    verdict = f"<h1>{headline}</h1><p>{meaning}</p>"
    verdict = f'<section class="verdict"><p class="soft">{escape(found.source)}</p>{verdict}'
    return document(found.source, f"{verdict}</section>\n{sections(parts)}", found.level)


def document(source: str, body: str, level: str) -> str:
    """The text of an HTML file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>skultr: {escape(source)}</title><style>{_STYLE}"
        f":root{{--level:{_COLOURS[level]}}}</style></head>\n"
        f"<body><main>{body}</main></body></html>\n"
    )


def sections(parts: dict[str, str]) -> str:
    """HTML under headings, without empty parts."""
    return "".join(
        f"<section><h2>{escape(title)}</h2>{body}</section>\n"
        for title, body in parts.items()
        if body
    )


def _list(items: list[str], tag: str = "ul") -> str:
    """Items as a list; text between backticks is code."""
    body = "".join(f"<li>{_marked(item)}</li>" for item in items)
    return f"<{tag}>{body}</{tag}>" if items else ""


def _outline(lines: list[str]) -> str:
    """Paragraphs, each with the list of the indented lines after it."""
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and parts:
            parts[-1][1].append(line.strip())
        else:
            parts.append((line, []))
    return "".join(f"<p>{_marked(title)}</p>{_list(items)}" for title, items in parts)


def _marked(text: str) -> str:
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _grades(grades: pd.Series) -> str:
    if grades.empty:
        return ""
    body = "".join(
        f'<tr><td class="number">{grade}</td><td class="number">{count:,}</td>'
        f'<td style="width:70%"><span class="bar" style="width:{100 * share:.1f}%">'
        "</span></td></tr>"
        for grade, count, share in zip(grades.index, grades, grades / grades.max(), strict=True)
    )
    return (
        '<div class="wide"><table><tr><th class="number">grade</th><th class="number">pairs</th>'
        f"<th></th></tr>{body}</table></div>"
    )


def _files(files: list[tuple[str, str]]) -> str:
    body = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_marked(what)}</td></tr>"
        for name, what in files
    )
    return f'<div class="wide"><table>{body}</table></div>'


# The curve ------------------------------------------------------------------------------
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 280, 58, 14, 14, 34


def _chart(curve: pd.DataFrame, *, is_estimated: bool) -> str:
    """Examination by position as an SVG, with bars for intervals."""
    highest = 1.1 * max(1.0, curve["examination"].max())
    across = (_WIDTH - _LEFT - _RIGHT) / max(curve.index.max() - 0.5, 1.0)

    def x(at):
        return f"{_LEFT + across * (at - 0.5):.1f}"

    def y(at):
        return f"{_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(at, highest) / highest):.1f}"

    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(tick)}" y2="{y(tick)}" '
        f'stroke="#e3e7ec"/><text x="{_LEFT - 8}" y="{y(tick)}" dy="5" text-anchor="end">'
        f"{tick:.1f}</text>"
        for tick in np.arange(0, highest, 0.2)
    )
    labels = "".join(
        f'<text x="{x(at)}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{at}</text>'
        for at in curve.index[:: -(-len(curve) // 15)]
    )
    bars = "".join(
        f'<line x1="{x(at)}" x2="{x(at)}" y1="{y(low)}" y2="{y(high)}" stroke="#2b6cb0" '
        'stroke-width="2.5"/>'
        for at, low, high in curve[["lower", "upper"]].dropna().itertuples()
    )
    places = [(x(at), y(value)) for at, value in curve["examination"].items()]
    fill = "#2b6cb0" if is_estimated else "#fff"
    dots = "".join(
        f'<circle cx="{left}" cy="{top}" r="4" fill="{fill}" stroke="#2b6cb0" stroke-width="2"/>'
        for left, top in places
    )
    points = " ".join(map(",".join, places))
    dashes = "" if is_estimated else ' stroke-dasharray="6 5"'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Examination by position">'
        f'{grid}{labels}<polyline points="{points}" fill="none" stroke="#2b6cb0"{dashes}/>'
        f"{bars}{dots}</svg>"
    )
