"""Examples run where their notebooks are downloaded to: no checkout, and nothing but one extra."""

import ast
import importlib
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*/plot_*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES = [f"{script.parent.name}/{script.stem}" for script in SCRIPTS]


@pytest.fixture
def notebooks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    return importlib.import_module("notebooks")


def installed(extra):
    """Names of the distributions that an installation with an extra asks for."""
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]
    # XGBoost without its GPU code is another distribution of the same package.
    return {Requirement(each).name.lower().removesuffix("-cpu") for each in asked}


def imported(tree):
    """Packages that a script imports, by the first part of their names."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found - {*sys.stdlib_module_names, "skultr"}


#: Reading the metadata of all that is installed takes a second.
distributions = cache(packages_distributions)


def distribution(package):
    (name, *_) = distributions().get(package, [package])
    return name.lower().removesuffix("-cpu")


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_the_first_cells_bring_what_an_example_imports(script, notebooks):
    neighbours = notebooks.neighbours_of(script)
    needed = imported(ast.parse(script.read_text())) - {*neighbours}
    for neighbour in neighbours:
        beside = ast.parse(script.with_name(f"{neighbour}.py").read_text())
        needed |= imported(beside)
        assert not notebooks.neighbours_of(script.with_name(f"{neighbour}.py"))
    assert {distribution(name) for name in needed} <= installed("examples")
    code = notebooks.fetching(script)
    assert all(f"{name!r}" in code for name in neighbours)
    assert bool(code) == bool(neighbours)


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_no_example_reads_a_file_of_the_checkout(script):
    """Files come from a folder that the user names (``SKULTR_DATA``), or were written before."""
    tree = ast.parse(script.read_text())
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    paths = [node.value for node in texts if isinstance(node.value, str) and "../" in node.value]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not paths
    assert "__file__" not in names
    assert not re.search(r"\b(examples|tests|docs|benchmarks)/", ast.unparse(code_of(tree)))


def code_of(tree):
    """The script without its first docstring, which may name files."""
    return ast.Module(body=tree.body[1:], type_ignores=[])


def test_gallery_is_built_with_what_notebooks_are_told_to_install(notebooks):
    assert "skultr[examples]" in notebooks.INSTALL
    assert installed("examples") <= installed("docs")


def test_a_neighbour_is_fetched_unless_it_is_there(notebooks, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "urllib.request.urlretrieve",
        lambda url, name: asked.append((url, Path(name).write_text("found = 1"))),
    )
    monkeypatch.chdir(tmp_path)
    code = notebooks.fetching(ROOT / "examples" / "7_engines" / "plot_simulated_shop.py")
    for _ in range(2):
        exec(compile(code, "cell", "exec"), {})
    ((url, _),) = asked
    assert (ROOT / "examples" / url.removeprefix(f"{notebooks.PUBLISHED}/")).is_file()
    assert (tmp_path / "simulated_shop.py").is_file()


def test_cells_that_fetch_come_after_the_one_that_installs(notebooks):
    notebook = {"cells": [{"source": ["install"]}, {"source": ["title"]}], "nbformat": 4}
    found = notebooks.with_cell(notebook, "fetch")
    assert [cell["source"] for cell in found["cells"]] == [["install"], ["fetch"], ["title"]]
    assert found["nbformat"] == 4
