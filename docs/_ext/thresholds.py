"""Directive ``thresholds FOLDER``: the numbers of a folder that decide something about data."""

from importlib import import_module

from paper_results import list_row, parsed
from sphinx.util.docutils import SphinxDirective

from skultr._base._threshold import Threshold

HEADER = ["Value", "It is", "Why", "Measured by"]


class Thresholds(SphinxDirective):
    """``.. thresholds:: rankers``: the table of ``skultr/rankers/_thresholds.py``."""

    required_arguments = 1

    def run(self):
        module = import_module(f"skultr.{self.arguments[0]}._thresholds")
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 8 40 40 12", ""]
        lines += list_row(HEADER)
        for each in vars(module).values():
            if isinstance(each, Threshold):
                # A reason is plain text: bars would be a substitution, |Z|.
                reason = each.reason.replace("|", r"\|")
                lines += list_row([f"{each.value:g}", each.decides, reason, each.study])
        return parsed(self, lines)


def setup(app):
    """Register it."""
    app.add_directive("thresholds", Thresholds)
    return {"parallel_read_safe": True}
