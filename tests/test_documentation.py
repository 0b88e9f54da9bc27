"""The documentation names everything public, and nothing that is gone."""

import ast
import importlib
import re
import textwrap
from pathlib import Path

import polars as pl

from ._discovery import public_names
from ._worlds import shuffled_log

ROOT = Path(__file__).parents[1]


def test_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.rst").read_text()
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing


def test_guide_gallery_or_papers_use_everything_public():
    pages = ("docs/user_guide/*.rst", "docs/contributing/*.rst", "examples/*/*.py")
    pages += ("benchmarks/papers/*.py",)
    text = "\n".join(page.read_text() for pattern in pages for page in ROOT.glob(pattern))
    missing = [n for n in public_names() if not re.search(rf"\b{n.split('.')[-1]}\b", text)]
    assert not missing


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


def test_landing_page_leads_from_a_parquet_file_to_a_ranking(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "index.rst").read_text()
    snippet = textwrap.dedent(re.search(r"code-block:: python\n\n(.*?)\n\S", page, re.DOTALL)[1])
    documents, log, clicks = shuffled_log(40, 400, n_features=5)
    names = {"qid": "query", "session": "page", "doc": "product", "position": "rank"}
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(log.assign(click=clicks).rename(columns=names)).write_parquet("clicks.parquet")
    candidates = documents.drop(columns="relevance").rename(columns=names)
    pl.DataFrame(candidates).write_parquet("candidates.parquet")

    result = {}
    exec(snippet, result)

    assert "dentifiable" in capsys.readouterr().out
    places = result["candidates"].group_by("qid").agg(pl.col("place").sort())["place"]
    assert all(each.to_list() == list(range(1, len(each) + 1)) for each in places)
