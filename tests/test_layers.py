"""The house stands as docs/architecture.md says: one order of folders, no cycle, no name twice."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from skultr._base._threshold import Threshold

PACKAGE = Path(__file__).parents[1] / "skultr"
#: A folder (or a file at the root) imports only from lines above its own.
ORDER = [
    {"_base"},
    {"exceptions"},
    {"datasets", "_log"},
    {"_models"},
    {"_torch", "simulation", "identifiability"},
    {"propensity"},
    {"metrics", "model_selection", "preprocessing"},
    {"rankers"},
    {"click_models", "plotting"},
    {"evaluation", "serving"},
    {"testing", "command"},
    {"__main__"},
]
RANK = {folder: rank for rank, folders in enumerate(ORDER) for folder in folders}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
NAMES = [path.relative_to(PACKAGE).as_posix() for path in FILES]


def _folder(name):
    return name.split("/")[0].removesuffix(".py")


@cache
def _imports(name):
    """Files that a file imports, anywhere in it; for a public folder its ``__init__``."""
    path, found = PACKAGE / name, []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            target = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                options = (
                    target.with_suffix(".py"),
                    target / f"{alias.name}.py",
                    target / "__init__.py",
                )
                file = next(p for p in options if p.is_file())
                found.append(file.relative_to(PACKAGE).as_posix())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_folder_imports_upward(name):
    for imported in _imports(name):
        here, there = _folder(name), _folder(imported)
        assert here == there or RANK[there] < RANK[here], f"{name} imports {imported}"


def test_the_house_has_few_rooms_and_arrows():
    """Rooms are folders and modules at the root; an arrow goes from a room to one it imports."""
    arrows = {(_folder(name), _folder(imported)) for name in NAMES for imported in _imports(name)}
    arrows = {(here, there) for here, there in arrows if here != there}
    assert len(RANK) <= 22
    assert len(arrows) <= 92


def test_the_picture_shows_the_house(monkeypatch):
    monkeypatch.syspath_prepend(PACKAGE.parent / "docs" / "_ext")
    house = importlib.import_module("house")
    assert [set(rooms) for rooms in house.FLOORS] == ORDER
    drawn = PACKAGE.parent / "docs" / "_static" / "house.svg"
    assert drawn.read_text() == house.house(), "draw it again: python docs/_ext/house.py"


def test_no_cycle_of_files():
    TopologicalSorter({name: set(_imports(name)) for name in NAMES}).prepare()


def test_no_file_name_twice():
    counts = Counter(path.name for path in FILES if path.name != "_thresholds.py")
    assert not [name for name, n in counts.items() if n > 1]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("/_thresholds.py")])
def test_every_threshold_says_what_it_decides(name):
    module = importlib.import_module("skultr." + name.removesuffix(".py").replace("/", "."))
    thresholds = [each for each in vars(module).values() if isinstance(each, Threshold)]
    assert thresholds
    assert all(each.decides and each.reason and each.study for each in thresholds)


@pytest.mark.parametrize("name", NAMES)
def test_file_is_short(name):
    assert len((PACKAGE / name).read_text().splitlines()) <= 900


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_an_of_without_its_noun(name):
    """What a value is of says too little: ``click_noise``, not ``of_clicks`` or ``of``."""
    tree = ast.parse((PACKAGE / name).read_text())
    guilty = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and (node.id == "of" or node.id.startswith("of_"))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            guilty += [node.name] * (ast.get_docstring(node) or "").startswith("Of ")
    assert not guilty


def test_private_scikit_learn_names_stay_in_one_file():
    private = re.compile(r"from sklearn(\.\w+)*\._|from sklearn.* import .*\b_\w+")
    guilty = [p.name for p in FILES if p.name != "_sklearn.py" and private.search(p.read_text())]
    assert not guilty


def test_importing_the_package_does_not_import_torch():
    code = (
        "import sys, skultr, skultr.metrics, skultr.simulation\n"
        "from skultr.click_models import DCMModel, DCTRModel\n"
        "from skultr.propensity import InterventionHarvesting, PowerLawPropensity\n"
        "from skultr.rankers import LambdaMARTRanker\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LAZY = [
    path.parent.name
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "= lazy_names(" in path.read_text()
]


@pytest.mark.parametrize("folder", LAZY)
def test_type_checkers_see_what_is_imported_lazily(folder):
    package = "skultr" if folder == "skultr" else f"skultr.{folder}"
    path = PACKAGE.parent.joinpath(*package.split("."), "__init__.py")
    (block,) = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = set()
    for node in block.body:
        for alias in node.names:
            # Without `as`, a checker takes the name for private.
            assert alias.asname == alias.name
            home = importlib.import_module(f".{node.module or alias.name}", package)
            public = getattr(importlib.import_module(package), alias.name)
            assert public is (getattr(home, alias.name) if node.module else home)
            seen.add(alias.name)
    assert seen == {*importlib.import_module(package).__all__} - {"__version__"}


def test_only_log_tells_kinds_of_logs_apart():
    kinds = {"ClickDataset", "LogOnDisk", "FramesOfLog", "ReadLog", "TransformedLog"}
    kinds |= {"EngineLog", "Cells"}
    guilty = []
    for path, name in zip(FILES, NAMES, strict=True):
        for node in ast.walk(ast.parse(path.read_text())):
            if _folder(name) == "_log" or not isinstance(node, ast.Call):
                continue
            called, *of = (ast.unparse(each) for each in [node.func, *node.args])
            asks = called == "isinstance" and kinds & {*re.findall(r"\w+", of[1])}
            if asks or called.endswith("is_in_engine"):
                guilty.append(f"{name}:{node.lineno}")
    assert not guilty
