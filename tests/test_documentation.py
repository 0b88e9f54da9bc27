"""The documentation names everything public."""

import re
from pathlib import Path

from ._discovery import public_names

ROOT = Path(__file__).parents[1]


def test_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.rst").read_text()
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing
