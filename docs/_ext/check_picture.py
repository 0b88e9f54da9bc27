"""Draws ``docs/_static/check.png``, the report of ``skultr check``, in Chromium:
``python docs/_ext/check_picture.py``.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from skultr import describe_log

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "_static" / "check.png"
#: Where the log comes from, as in the gallery.
sys.path.insert(0, str(DOCS.parent / "examples" / "7_engines"))
#: Pixels that the pages of the docs show: the verdict, and the curve.
WIDTH, HEIGHT = 980, 700
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


def page():
    """The report on the first pages of a small shop."""
    from german_shop import PAGE, open_german_shop, search_shop

    log = search_shop(open_german_shop(60), 3_000, n_bots=0).log
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        # The report calls the file as it was named.
        os.chdir(folder)
        try:
            log[log["Platz"] <= PAGE].to_csv("klicks.csv", index=False)
            return describe_log("klicks.csv").page()
        finally:
            os.chdir(before)


def digest(html):
    """What tells one page from another, but for numbers: their last digits differ by processor."""
    words = re.sub(r"[-\d.,]+", "", html)
    return hashlib.sha256(words.encode()).hexdigest()


def drawn_from():
    """The digest of the page that the picture shows."""
    with Image.open(PICTURE) as picture:
        return picture.text["page"]


def draw():
    """Write the picture, with the digest of its page."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)))
    html = page()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "page.html").write_text(html, encoding="utf-8")
        size = f"--window-size={WIDTH},{HEIGHT}"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", size]
        shot = Path(folder) / "shot.png"
        address = (Path(folder) / "page.html").as_uri()
        subprocess.run([browser, *options, f"--screenshot={shot}", address], check=True)
        about = PngInfo()
        about.add_text("page", digest(html))
        with Image.open(shot) as picture:
            picture.convert("RGB").quantize(64).save(PICTURE, optimize=True, pnginfo=about)


if __name__ == "__main__":
    draw()
