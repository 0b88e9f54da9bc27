"""The house stands as its plan says: docs/architecture.md is read, not repeated."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "skultr"
_ROW = re.compile(r"^\| (\d+) \| (.+?) \|")


def _layers():
    layers = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if match := _ROW.match(line):
            for name in re.findall(r"`([\w/]+\.py)`", match[2]):
                layers[name] = int(match[1])
    return layers


def _modules():
    return sorted(
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    )


def _imports(name):
    """Files of the package that a file imports, anywhere in it."""
    path = PACKAGE / name
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1]
            target = base.joinpath(*(node.module or "").split("."))
            found |= {_file(target, alias.name) for alias in node.names}
    return found


def _file(target, name):
    for candidate in (target.with_suffix(".py"), target / f"{name}.py", target / "__init__.py"):
        if candidate.is_file():
            return str(candidate.relative_to(PACKAGE))
    raise AssertionError(f"cannot find {name} in {target}")


def test_plan_names_every_file():
    assert sorted(_layers()) == _modules()


@pytest.mark.parametrize("name", _modules())
def test_file_imports_only_from_layers_above(name):
    layers = _layers()
    for imported in _imports(name):
        assert not imported.endswith("__init__.py") or layers[name] == max(layers.values()), (
            f"{name} imports the package {imported}: name the file, whose layer is known"
        )
        if not imported.endswith("__init__.py"):
            assert layers[imported] < layers[name], f"{name} imports {imported}"


@pytest.mark.parametrize("name", _modules())
def test_file_is_short(name):
    assert len((PACKAGE / name).read_text().splitlines()) <= 540


def test_private_scikit_learn_names_stay_in_one_file():
    private = re.compile(r"from sklearn(\.\w+)*\._|from sklearn.* import .*\b_\w+")
    guilty = [
        name
        for name in _modules()
        if name != "_constraints.py" and private.search((PACKAGE / name).read_text())
    ]
    assert not guilty


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    code = (
        "import sys, skultr, skultr.metrics, skultr.simulation\n"
        "from skultr.propensity import InterventionHarvesting, PowerLawPropensity\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
