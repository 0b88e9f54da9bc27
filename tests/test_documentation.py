"""The documentation names everything public, and nothing that is gone."""

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

from ._discovery import public_estimators, public_names

ROOT = Path(__file__).parents[1]


def test_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.rst").read_text()
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing, f"docs/api.rst lacks {missing}"


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda each: type(each).__name__)
def test_the_question_mark_of_a_notebook_opens_a_page_of_the_api(estimator):
    text = (ROOT / "docs" / "api.rst").read_text()
    pages = [f"skultr.{name}.html" for name in re.findall(r"^   ~([\w.]+)$", text, re.MULTILINE)]
    link = estimator._get_doc_link()
    site, _, page = link.rpartition("/generated/")
    assert site == "https://skultr.readthedocs.io/en/latest"
    name = page.removeprefix("skultr.").removesuffix(".html")
    assert page in pages, f"docs/api.rst lacks the line '   ~{name}'"
    assert page.endswith(f".{type(estimator).__name__}.html")
    assert f'href="{link}"' in estimator._repr_html_()


def test_links_to_classes_and_functions_lead_to_pages_of_the_api():
    """A name under another path than that of its page is printed without a link."""
    text = (ROOT / "docs" / "api.rst").read_text()
    pages = {f"skultr.{name}" for name in re.findall(r"^   ~([\w.]+)$", text, re.MULTILINE)}
    patterns = ("docs/**/*.rst", "docs/**/*.csv", "skultr/**/*.py", "examples/**/*.py")
    built = {"_build", "auto_examples", "generated"}
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        if not built & {*path.parts}:
            named = {*re.findall(r":(?:class|func):`~?(skultr\.[\w.]+)", path.read_text())}
            # Comments on private code link to private names.
            public = {name for name in named if "._" not in name}
            assert public <= pages, path


def test_guide_gallery_or_papers_use_everything_public():
    pages = ("docs/user_guide/*.rst", "docs/contributing/*.rst", "examples/*/*.py")
    pages += ("benchmarks/papers/*.py",)
    text = "\n".join(page.read_text() for pattern in pages for page in ROOT.glob(pattern))
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing, f"neither a page of docs/user_guide nor an example uses {missing}"


def test_code_that_the_pages_only_show_names_what_exists():
    """Blocks that need a cluster, a service or a downloaded set; all other code is a doctest."""
    blocks = []
    for page in (ROOT / "docs").glob("**/*.rst"):
        if not {"_build", "auto_examples", "generated"} & {*page.parts}:
            found = re.findall(r"code-block:: python\n\n((?: +.*\n|\n)+)", page.read_text())
            blocks += [textwrap.dedent(block) for block in found]
    assert len(blocks) > 5
    for node in ast.walk(ast.parse("\n".join(blocks))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "skultr":
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), node.module


def test_guide_is_short_and_readme_is_plain():
    """Words with code of each page; reading ease by Flesch's formula on the README's prose."""
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs" / "user_guide").glob("*.rst"):
        words = len(page.read_text().split())
        assert words <= 2_200, f"{page.name}: {words} words; move measurements to docs/studies"
    assert len(readme.split()) <= 2_200

    prose = re.sub(r"^```.*?^```|^[#|!].*?$|\]\(.*?\)", "", readme, flags=re.DOTALL | re.MULTILINE)
    words = re.findall(r"[a-z][a-z'-]*", prose.lower())
    sentences = [part for part in re.split(r"[.?!]\s|\n\n", prose) if part.strip()]
    vowels = [re.findall(r"[aeiouy]+", re.sub(r"(es|ed|e)$", "", word)) for word in words]
    syllables = sum(max(1, len(groups)) for groups in vowels)
    ease = 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * syllables / len(words)
    assert ease >= 60, f"Flesch reading ease of README.md: {ease:.0f}"


def test_every_page_of_the_guide_has_a_figure_that_something_draws():
    """Of the gallery, by its script, or a file; the first page is itself one, drawn by CSS."""
    gallery = r"/auto_examples/(\w+)/images/sphx_glr_(plot_\w+)_\d{3}\.png"
    for page in (ROOT / "docs" / "user_guide").glob("*.rst"):
        text = page.read_text()
        figures = re.findall(r"^\.\. (?:figure|image):: (.+)$", text, re.M)
        assert figures or ".. container:: flow" in text, page.name
        for figure in figures:
            script = re.fullmatch(gallery, figure)
            source = (
                f"examples/{script[1]}/{script[2]}.py"
                if script
                else f"docs/_static/{figure.split('/')[-1]}"
            )
            assert (ROOT / source).is_file(), f"{page.name}: {figure}"
        pictures = re.findall(r"^\.\. (?:figure|image)::.*\n(?: +:.*\n)* +:alt: \S", text, re.M)
        assert len(pictures) == len(figures), f"{page.name}: a figure without :alt:"


def test_no_figure_is_on_two_pages():
    """Also none of the gallery; the README, which is no page of the site, has those of home."""
    shown_on = {}
    for page in [*(ROOT / "docs").rglob("*.rst"), *(ROOT / "docs").rglob("*.md")]:
        if not {"_build", "auto_examples", "generated"} & {*page.parts}:
            pattern = r"(?:figure|image):: (\S+)|!\[[^\]]*\]\(([^)]+)\)"
            for figure in map("".join, re.findall(pattern, page.read_text())):
                shown_on.setdefault(Path(figure).name, set()).add(page.name)
    assert len(shown_on) > 20
    assert not {figure: pages for figure, pages in shown_on.items() if len(pages) > 1}


def test_pages_begin_with_what_readers_came_for():
    """The scoreboard before the options of the command, and rankers with the one for most."""
    papers = (ROOT / "docs" / "papers" / "index.rst").read_text()
    assert papers.index(".. decided::") < papers.index("--quick")
    assert papers[: papers.index(".. decided::")].count("\n") < 12
    tables = re.findall(r"autosummary::\n(?: +:.*\n)+\n((?: +\S+\n)+)",
                        (ROOT / "docs" / "api.rst").read_text())  # fmt: skip
    first = [table.split()[0].split(".")[-1].lstrip("~") for table in tables]
    assert first[:3] == ["describe_log", "IdentifiabilityGraph", "EnsembleRanker"]


def test_logo_is_what_its_script_draws(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    logo = importlib.import_module("logo")
    drawn = {name: (ROOT / "docs" / "_static" / name).read_text() for name in logo.PICTURES}
    assert drawn == logo.PICTURES, "draw it again: python docs/_ext/logo.py"


def test_social_card_has_the_size_that_networks_ask_for(tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    logo = importlib.import_module("logo")
    logo.draw_card(tmp_path / "card.png")
    for card in (tmp_path / "card.png", ROOT / "docs" / "_static" / "card.png"):
        height, width, _ = pyplot.imread(card).shape
        assert (width, height) == logo.CARD == (1200, 630)


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
    assert not [path for path in paths if not any(ROOT.glob(path.replace("FOLDER", "*")))]
