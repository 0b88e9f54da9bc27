"""The built site: no dead link, no other host, and pages that work in a browser, also on a phone.

Run by ``make site-test`` after ``make docs``. ``SKULTR_SITE`` names another build.
"""

import importlib
import os
import re
import shutil
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import matplotlib.pyplot as plt
import pytest

import skultr

SITE = Path(os.environ.get("SKULTR_SITE", Path(__file__).parents[2] / "docs" / "_build" / "html"))
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

#: One page of each kind, and a class with a long name.
PAGES = [
    "index.html",
    "user_guide/which_ranker.html",
    "generated/skultr.DLARanker.html",
    "generated/skultr.identifiability.IdentifiabilityGraph.html",
    "auto_examples/1_start/plot_naive_against_debiased.html",
]
#: Pixels: a laptop and a phone.
WIDTHS = [1400, 400]

#: What leaves the screen, and is in no box that scrolls: the theme may cut it off.
TOO_WIDE = """[...document.querySelectorAll(".bd-article *")].filter((element) => {
  if (element.closest("mjx-assistive-mml")) return false;  // for readers aloud
  for (let box = element.parentElement; !box.matches(".bd-article"); box = box.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
  return element.getBoundingClientRect().right > innerWidth + 1;
}).map((element) => element.outerHTML.slice(0, 100))"""

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason=f"no built site at {SITE}: run `make docs` first"
)


class Page(HTMLParser):
    """What a page has: its anchors, what it links to, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = set(), set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")}
        if tag == "a" and attrs.get("href"):
            self.links.add(attrs["href"])
        elif tag == "link" and attrs.get("rel") not in ("canonical", "next", "prev"):
            self.loads.add(attrs.get("href"))
        if attrs.get("src"):
            self.loads.add(attrs["src"])


@cache
def pages():
    """All pages of the site by path."""
    return {path: Page(path) for path in SITE.rglob("*.html") if "_static" not in path.parts}


def is_external(url):
    return bool(urlsplit(url).scheme or urlsplit(url).netloc) and not url.startswith("data:")


def test_site_was_built():
    assert len(pages()) > 100
    assert all((SITE / page).is_file() for page in PAGES)


def test_no_page_asks_another_host():
    asked = {url for page in pages().values() for url in page.loads if is_external(url)}
    assert not asked


def test_no_style_sheet_asks_another_host():
    asking = re.compile(r"""(url\(|@import)\s*["']?(https?:)?//""")
    sheets = [*SITE.rglob("*.css")]
    assert sheets
    assert not [sheet for sheet in sheets if asking.search(sheet.read_text(encoding="utf-8"))]


def test_no_link_inside_the_site_is_dead():
    dead = [
        f"{path.relative_to(SITE)}: {url}"
        for path, page in pages().items()
        for url in page.links | page.loads
        if not is_external(url) and not url.startswith("data:") and is_dead(path, url)
    ]
    assert not dead


def is_dead(path, url):
    """Whether a file that a page names, or the place in it, does not exist."""
    parts = urlsplit(url)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target in pages() and anchor not in pages()[target].anchors


def test_header_has_version_source_and_install():
    text = (SITE / "generated/skultr.DLARanker.html").read_text(encoding="utf-8")
    header = text[text.index("<header") : text.index("</header>")]
    assert f"skultr {skultr.__version__}" in header
    assert 'href="https://github.com/skultr/skultr"' in header
    assert 'href="../install.html"' in header


def test_header_has_a_logo_for_light_and_for_dark_pages():
    text = (SITE / "index.html").read_text(encoding="utf-8")
    header = text[text.index("<header") : text.index("</header>")]
    for kind, name in (("light", "logo.svg"), ("dark", "logo_dark.svg")):
        (tag,) = re.findall(rf"<img[^>]*_static/{name}[^>]*>", header)
        assert f"only-{kind}" in tag
    assert re.search(r'<link rel="icon" href="_static/favicon\.svg"', text)


def test_every_page_has_a_card_for_chats():
    image = "https://skultr.readthedocs.io/en/latest/_static/card.png"
    written = [path for path in pages() if "_modules" not in path.parts]
    for path in written:
        text = path.read_text(encoding="utf-8")
        # Search and index have no text of their own.
        if path.name not in ("search.html", "genindex.html", "py-modindex.html"):
            assert f'property="og:image" content="{image}"' in text, path
            assert 'property="og:title"' in text, path
    assert (SITE / "_static" / "card.png").is_file()


def test_own_parameters_come_first_in_signatures():
    text = (SITE / "generated/skultr.DLARanker.html").read_text(encoding="utf-8")
    names = re.findall(r'sig-param.*?class="n"><span class="pre">(\w+)<', text)
    assert names.index("examination") < names.index("hidden_layer_sizes")


def test_thumbnail_is_the_first_panel(tmp_path, monkeypatch):
    pytest.importorskip("sphinx_gallery", reason="pip install skultr[docs]")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "_ext")
    thumbnails = importlib.import_module("thumbnails")
    for n_panels in (2, 1):  # the second call removes the panel of the first
        figure, _ = plt.subplots(1, n_panels, figsize=(8, 3))
        thumbnails.save_first_panel(figure, tmp_path / "panel.png")
        if n_panels == 2:
            height, width, _ = plt.imread(tmp_path / "panel.png").shape
            assert width < 2 * height
    assert not (tmp_path / "panel.png").exists()


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install skultr[site]")
    if CHROMIUM is None:
        pytest.skip("no Chromium: install it with the system's package manager")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_page_in_a_browser(browser, name, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    complaints = complaints_of(tab)
    tab.goto((SITE / name).as_uri())
    tab.evaluate("window.MathJax?.startup.promise")

    assert not complaints
    assert "\\(" not in tab.inner_text("body")
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    assert not tab.evaluate(TOO_WIDE)
    tab.close()


def complaints_of(tab):
    """A list that fills with errors of a page and with what it asks of other hosts."""
    found = []

    def hear(message):
        if message.type == "error":
            found.append(message.text)

    def see(request):
        if urlsplit(request.url).scheme not in ("file", "data", "blob", "about"):
            found.append(f"asked for {request.url}")

    tab.on("console", hear)
    tab.on("pageerror", lambda error: found.append(str(error)))
    tab.on("request", see)
    tab.on("requestfailed", lambda request: found.append(f"not found: {request.url}"))
    return found


def test_a_copied_block_has_no_prompts_and_no_output(browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    tab.goto((SITE / "user_guide/click_log.html").as_uri())
    blocks = tab.locator("div.highlight")
    assert tab.locator("div.highlight button.copybtn").count() == blocks.count() > 5
    for prompt, line in (("$ ", "skultr check"), (">>> ", "report = describe_log(served)")):
        block = blocks.filter(has_text=line).first
        assert prompt in block.inner_text()
        block.hover()
        block.locator("button.copybtn").click()
        copied = tab.evaluate("navigator.clipboard.readText()")
        assert line in copied
        assert not re.search(r"^(\$|>>>|\.\.\.) ", copied, re.M)
        assert "can be trained" not in copied  # what the code prints
    context.close()


def test_mathematics_is_typeset(browser):
    tab = browser.new_page()
    tab.goto((SITE / "generated/skultr.DLARanker.html").as_uri())
    tab.evaluate("window.MathJax.startup.promise")
    assert tab.locator("mjx-container").count() > 5
    tab.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_parameters_are_not_broken(browser, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto((SITE / "generated/skultr.DLARanker.html").as_uri())
    lines = tab.evaluate(
        """[...document.querySelectorAll("dl.field-list dl dt strong")]
        .filter((name) => !name.textContent.includes(" "))
        .map((name) => {
          const text = document.createRange();
          text.selectNodeContents(name);
          return text.getClientRects().length;
        })"""
    )
    assert len(lines) > 20
    assert max(lines) == 1
    tab.close()


@pytest.mark.parametrize("page", ["generated/skultr.DLARanker.html", "api.html"])
def test_pages_of_the_api_fold_on_a_phone(browser, page):
    heights = []
    for script in (True, False):
        tab = browser.new_context(
            viewport={"width": 400, "height": 900}, java_script_enabled=script
        ).new_page()
        tab.goto((SITE / page).as_uri())
        heights.append(tab.locator("body").bounding_box()["height"])
    assert heights[0] < 0.6 * heights[1]
