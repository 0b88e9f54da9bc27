"""The documentation names everything public, and nothing that is gone."""

import re
from pathlib import Path

from ._discovery import public_names

ROOT = Path(__file__).parents[1]


def test_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.rst").read_text()
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing


def test_guide_or_gallery_uses_everything_public():
    pages = [*(ROOT / "docs" / "user_guide").glob("*.rst"), *(ROOT / "docs").glob("*/add_*.rst")]
    text = "\n".join(page.read_text() for page in [*pages, *(ROOT / "examples").glob("*/*.py")])
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing


def test_gallery_checks_its_claims():
    scripts = list((ROOT / "examples").glob("*/plot_*.py"))
    assert len(scripts) > 30
    assert not [
        script.name for script in scripts if not re.search(r"^ *assert ", script.read_text(), re.M)
    ]


def test_exemplary_passages_are_where_contributors_are_sent():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    passages = text[text.index("Ten passages") : text.index("**Language.**")]
    file, found = None, 0
    for token in re.findall(r"`([^`]+)`", passages):
        if "/" in token:
            file = (ROOT / token).read_text()
        else:
            assert re.search(rf"\b{token.split('.')[-1]}\b", file), token
            found += 1
    assert found >= 10


def test_contributors_are_sent_to_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"\b(?:skultr|tests|docs)/[\w/]*\w\.(?:py|rst|md)", text)
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).is_file()]
