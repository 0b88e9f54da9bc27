"""Every page can be imported, and the commands that the documentation quotes exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import pages

#: Packages of the extra 'benchmark' that no other extra has.
PEERS = {"psutil", "xgboost"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages())
def test_what_a_page_imports_exists(page):
    try:
        import_module(f"benchmarks.{page.replace('/', '.')}")
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        pytest.skip(f"{error.name} is a peer that only the extra 'benchmark' installs")


def test_commands_that_the_documentation_quotes_exist():
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*/*.rst")]
    text = "\n".join(path.read_text() for path in texts)
    quoted = re.findall(r"`python -m benchmarks (\S+?)(?: --only ([\w ]+?))?(?: --[^`]*)?`", text)
    assert len(quoted) > 20
    assert {page for page, _ in quoted} <= {*pages()}
    for page, exhibits in quoted:
        if exhibits:
            found = import_module(f"benchmarks.{page.replace('/', '.')}").PAGE
            assert found.chosen(exhibits.split())
    scripts = re.findall(r"\bbenchmarks/studies/\w+\.py", text)
    assert len(scripts) > 5
    assert not [script for script in scripts if not (ROOT / script).is_file()]
