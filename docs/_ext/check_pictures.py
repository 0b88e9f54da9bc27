"""Draws the pictures of ``skultr check`` in ``docs/_static``, with the extra "site".

``python docs/_ext/check_pictures.py`` simulates two logs of a shop under its own names, runs
``skultr check --html`` on each, and takes the upper part of each report as two pictures: one for
pages as wide as a laptop, and one for phones, where the first could not be read. Each picture
holds the digest of its report, by which a test finds pictures that are out of date.
"""

import contextlib
import hashlib
import re
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path

from skultr.command._run import main
from skultr.datasets import make_ltr
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    simulate_clicks,
)

STATIC = Path(__file__).parents[1] / "_static"
#: Names of a German shop: the report finds roles by what columns hold.
NAMES = {"qid": "anfrage", "session": "seite", "doc": "artikel", "position": "rang"}
#: Where the order varied, and where each query has one order.
POLICIES = {"check": PlackettLucePolicy(), "check_no": DeterministicPolicy()}
#: Pixels by the end of the name: as wide as a report is, or a phone; down to its first positions.
SIZES = {"": {"width": 980, "height": 720}, "_phone": {"width": 400, "height": 640}}
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def write_log(path, policy):
    """6,000 result pages with their clicks."""
    documents = make_ltr(n_queries=60, n_documents=12, n_features=4, random_state=0)
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=6_000, policy=policy, user=PositionBasedUser(0.8), random_state=0
    )
    log = log.drop(columns="relevance", errors="ignore").rename(columns=NAMES)
    log.assign(klick=clicks).to_csv(path, index=False)


def write_report(folder, name):
    """The report on a log as HTML: its path."""
    log = Path(folder, name, "klicks.csv")
    log.parent.mkdir()
    write_log(log, POLICIES[name])
    report = log.with_suffix(".html")
    # A report names the file as it was given.
    with contextlib.chdir(log.parent):
        main(["check", log.name, "--html", str(report)])
    return report


def digest(report):
    """What tells reports apart, but for numbers: their last digits differ by processor."""
    words = re.sub(r"[-\d.,]+", "", report.read_text(encoding="utf-8"))
    return hashlib.sha256(words.encode()).hexdigest()


def take_pictures(reports):
    """The upper part of each report at each size."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if chromium is None:
        sys.exit("no Chromium: install it with the system's package manager")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for (name, report), (end, size) in product(reports.items(), SIZES.items()):
            # Two pixels for one, as phones have them.
            tab = browser.new_page(viewport=size, device_scale_factor=2 if end else 1)
            tab.goto(report.as_uri())
            picture = STATIC / f"{name}{end}.png"
            tab.screenshot(path=picture)
            about = PngInfo()
            about.add_text("report", digest(report))
            # Few colours are a third of the bytes.
            few = Image.open(picture).convert("RGB").quantize(48)
            few.save(picture, optimize=True, pnginfo=about)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        take_pictures({name: write_report(folder, name) for name in POLICIES})
