"""The code of the README runs as it stands, on a Parquet file with the columns that it names."""

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from ._worlds import shuffled_log

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.fixture
def parquet_log(tmp_path, monkeypatch):
    _, log, clicks = shuffled_log(60, 600, n_features=5)
    names = {"qid": "query", "session": "page", "doc": "product", "position": "rank"}
    log = log.drop(columns=["relevance"], errors="ignore").rename(columns=names)
    log.assign(click=clicks).to_parquet(tmp_path / "clicks.parquet")
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_snippet_runs_on_a_parquet_file(parquet_log, capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {}
    exec(compile(snippet, "README.md", "exec"), names)
    places = names["ranked"].groupby("qid")["place"].apply(sorted)
    assert all(each == list(range(1, len(each) + 1)) for each in places)
    assert "bias factors" in capsys.readouterr().out


def test_landing_page_has_the_same_snippet():
    page = (Path(__file__).parents[1] / "docs" / "index.rst").read_text()
    (options,) = re.findall(r"literalinclude:: \.\./README\.md\n((?: +:.*\n)+)", page)
    marks = re.findall(r":(start-after|end-before): (.*)", options)
    assert marks == [("start-after", "```python"), ("end-before", "```")]


def test_links_are_absolute_and_images_are_in_the_checkout():
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    files = re.findall(r"skultr/skultr/(?:blob/)?main/([\w./]+)", " ".join(targets))
    assert len(files) > 3
    assert all((Path(__file__).parents[1] / file).exists() for file in files)


def test_badges_are_static_and_true():
    """No badge asks a service for a state: licence and Pythons are those of pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    badges = [unquote(badge) for badge in re.findall(r"shields\.io/badge/([^)]+)", README)]
    licence, pythons, _ = badges
    assert licence.replace("--", "-").startswith(
        f"licence-{project['license'].replace('-', ' ', 1)}"
    )
    versions = [c.split()[-1] for c in project["classifiers"] if "Python :: 3." in c]
    assert pythons.startswith(f"python-{versions[0]} to {versions[-1]}-")
    assert len(badges) == README.count("shields.io") == 3


def test_pages_exist_in_the_documentation():
    root = Path(__file__).parents[1] / "docs"
    pages = re.findall(r"https://skultr\.readthedocs\.io/en/latest/([\w/]+)\.html", README)
    missing = [page for page in pages if not (root / f"{page}.rst").exists()]
    assert len(pages) > 5
    assert not missing
