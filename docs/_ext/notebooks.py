"""Notebooks of the gallery that run wherever they are downloaded to, without a checkout.

The first cell of each, ``first_notebook_cell`` of conf.py, installs skultr and what examples need.
Where an example imports a script beside it, another cell fetches that script.
"""

import ast
import json
from pathlib import Path

#: There is no release yet, so that the name on PyPI is nobody's.
INSTALL = """\
# Without an installed skultr: remove the # of the next line, and run it. No checkout is needed.
# %pip install --quiet "skultr[examples] @ git+https://github.com/skultr/skultr\""""
#: Where scripts of the gallery are published, one by one.
PUBLISHED = "https://raw.githubusercontent.com/skultr/skultr/main/examples"


def neighbours_of(script):
    """Scripts of its folder that a script imports, sorted."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return sorted(name for name in names if name and (script.parent / f"{name}.py").is_file())


def fetching(script):
    """The code that fetches what a script imports from its folder; empty if that is nothing."""
    neighbours = neighbours_of(script)
    if not neighbours:
        return ""
    lines = [
        "# What this example imports from a script beside it.",
        "from pathlib import Path",
        "from urllib.request import urlretrieve",
        "",
        f"for name in {neighbours!r}:",
        '    if not Path(f"{name}.py").is_file():',
        f'        urlretrieve(f"{PUBLISHED}/{script.parent.name}/{{name}}.py", f"{{name}}.py")',
    ]
    return "\n".join(lines)


def with_cell(notebook, code):
    """The notebook as a dict, with a cell of code after its first."""
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    first, *others = notebook["cells"]
    return {**notebook, "cells": [first, {**cell, "source": [code]}, *others]}


def complete_notebooks(app):
    """Cells that fetch, in the notebooks that need one, after the gallery was made."""
    for script in sorted(Path(app.srcdir, "auto_examples").glob("*/plot_*.py")):
        code = fetching(Path(app.srcdir, "..", "examples", script.parent.name, script.name))
        path = script.with_suffix(".ipynb")
        if code and path.is_file():
            notebook = json.loads(path.read_text(encoding="utf-8"))
            # A notebook that was not made anew has its cell.
            if [code] not in [cell["source"] for cell in notebook["cells"]]:
                path.write_text(json.dumps(with_cell(notebook, code), indent=1), encoding="utf-8")


def setup(app):
    # After sphinx_gallery, which listens with the default priority of 500.
    app.connect("builder-inited", complete_notebooks, priority=900)
    return {"parallel_read_safe": True}
