"""The pictures of the report in the documentation are those of today's report."""

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["check", "check_no"])
def test_pictures_show_the_report(name, monkeypatch, tmp_path, capsys):
    image = pytest.importorskip("PIL.Image", reason="pip install skultr[docs]")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    pictures = importlib.import_module("check_pictures")
    today = pictures.digest(pictures.write_report(tmp_path, name))
    for end in pictures.SIZES:
        with image.open(DOCS / "_static" / f"{name}{end}.png") as picture:
            drawn = picture.text["report"]
        assert drawn == today, "draw it again: python docs/_ext/check_pictures.py"
