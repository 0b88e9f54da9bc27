"""Directive ``published-settings``: what ``variant="published"`` sets, read from the classes."""

import inspect

from paper_results import list_row, parsed
from sphinx.util.docutils import SphinxDirective

HEADER = ["Class", "In place of defaults"]


class PublishedSettings(SphinxDirective):
    """``.. published-settings::``: the network that all share, then a table of the rest."""

    def run(self):
        from skultr import click_models, rankers
        from skultr._torch._shared_parameters import PUBLISHED_NETWORK

        lines = ["*The network*: " + in_code(PUBLISHED_NETWORK) + ".", ""]
        lines += [".. list-table::", "   :header-rows: 1", "   :widths: 30 70", ""]
        lines += list_row(HEADER)
        for module in (rankers, click_models):
            for name in module.__all__:
                cls = getattr(module, name)
                if inspect.isclass(cls) and hasattr(cls, "_published"):
                    settings = cls(variant="published")._published
                    link = f":class:`~{module.__name__}.{name}`"
                    lines += list_row([link, in_words(settings, PUBLISHED_NETWORK)])
        return parsed(self, [*lines, ""])


def in_words(settings, network):
    """Settings of a class, with "the network" for those that all networks share."""
    if not settings.keys() >= network.keys():
        return in_code(settings)
    own = {name: value for name, value in settings.items() if network.get(name, ...) != value}
    return ", ".join(filter(None, ["the network", in_code(own)]))


def in_code(settings):
    """Parameters and their values as code."""
    shown = (item for item in settings.items() if not item[0].startswith("_"))
    return ", ".join(f"``{name}={value!r}``" for name, value in shown)


def setup(app):
    """Register it."""
    app.add_directive("published-settings", PublishedSettings)
    return {"parallel_read_safe": True}
