"""``python -m benchmarks [PAGE] [options]``: run a page; without one, say which there are."""

import sys
from importlib import import_module
from pathlib import Path

from ._study import main


def pages():
    """Names of all pages: ``papers/cld``, ``studies/cmip``, ..., ``speed``."""
    here = Path(__file__).parent
    files = [*here.glob("papers/[a-z]*.py"), *here.glob("studies/[a-z]*.py")]
    return [*sorted(f"{file.parent.name}/{file.stem}" for file in files), "speed"]


def run(name, argv):
    """Run a page; one whose summary is not a table of means has a ``main`` of its own."""
    module = import_module(f".{name.replace('/', '.')}", __package__)
    return module.main(argv) if hasattr(module, "main") else main(module.PAGE, argv)


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help", "--list"):
        print(__doc__, *pages(), sep="\n")
        sys.exit()
    page = sys.argv[1].replace("-", "_")
    if page not in pages():
        sys.exit(f"There is no page {sys.argv[1]}; the pages are {', '.join(pages())}.")
    sys.exit(run(page, sys.argv[2:]))
