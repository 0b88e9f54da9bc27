"""The package shrinks: no folder holds more statements than it did, nor do all together.

``python tests/test_size.py`` prints the table of today, ready to paste.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "skultr"
#: The most that the table may add up to.
TOTAL = 22_275
#: Statements without docstrings, by folder, and by module at the root.
STATEMENTS = {
    "__init__.py": 30,
    "__main__.py": 4,
    "_base": 264,
    "_log": 3649,
    "_models": 1022,
    "_torch": 919,
    "click_models": 1112,
    "command": 662,
    "datasets": 1377,
    "evaluation": 1757,
    "exceptions.py": 47,
    "identifiability": 1572,
    "metrics": 1286,
    "model_selection.py": 174,
    "plotting": 727,
    "preprocessing.py": 164,
    "propensity": 1764,
    "rankers": 3296,
    "serving": 1022,
    "simulation": 896,
    "testing": 531,
}


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _statements(source):
    """Number of statements, without strings that stand alone: docstrings."""
    return sum(isinstance(n, ast.stmt) and not _is_text(n) for n in ast.walk(ast.parse(source)))


def _found():
    """Folders, and modules at the root, that hold Python."""
    names = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}
    return sorted(names)


def _count(name):
    path = PACKAGE / name
    files = path.rglob("*.py") if path.is_dir() else [path] * path.is_file()
    return sum(_statements(file.read_text()) for file in files)


def test_a_docstring_is_no_statement():
    source = '"""Text."""\nif a:\n    b = 1\ndef f():\n    """Text."""\n    return 2'
    assert _statements(source) == 4


@pytest.mark.parametrize("name", sorted({*_found(), *STATEMENTS}))
def test_nothing_has_grown(name):
    found, limit = _count(name), STATEMENTS.get(name, 0)
    assert found <= limit, (
        f"skultr/{name} has {found:,} statements; expected at most {limit:,}. Take away as many "
        "as came, or change the table here where a feature is worth its size: python "
        "tests/test_size.py prints it"
    )


def test_total():
    assert sum(STATEMENTS.values()) <= TOTAL


if __name__ == "__main__":
    table = {name: _count(name) for name in _found()}
    print("STATEMENTS = {", *(f'    "{name}": {n},' for name, n in table.items()), "}", sep="\n")
    print(f"# {sum(table.values()):,} together")
