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
    asked = sys.argv[1:2]
    if asked and asked[0] in pages():
        sys.exit(run(asked[0], sys.argv[2:]))
    print(__doc__, *pages(), sep="\n")
    sys.exit(1 if asked else 0)
