"""What the pages of the papers show of the committed results."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

DOCS = Path(__file__).parents[2] / "docs"


def shown(tmp_path, content):
    """A page as text, and the lines of its tables, by directives that read ``tmp_path``."""
    pytest.importorskip("sphinx")
    (tmp_path / "conf.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        f"import paper_results\npaper_results.RESULTS = Path({str(tmp_path / 'results')!r})\n"
        "extensions = ['paper_results', 'sphinx_design']\n"
    )
    (tmp_path / "index.rst").write_text(f"Counts\n======\n\n{content}\n")
    out = tmp_path / "out"
    build = [sys.executable, "-m", "sphinx", "-qb", "text", str(tmp_path), str(out)]
    subprocess.run(build, check=True)
    return (out / "index.txt").read_text(encoding="utf-8")


@pytest.fixture
def results(tmp_path):
    """The committed results of vectorization, where rows of table 1 were not kept."""
    folder = tmp_path / "results" / "vectorization"
    committed = DOCS / "papers" / "results" / "vectorization"
    shutil.copytree(committed, folder, ignore=shutil.ignore_patterns("elsewhere"))
    for name, column, value in [("claims", "runs", 0), ("verdicts", "hours", "")]:
        table = pd.read_csv(folder / f"{name}.csv", keep_default_na=False)
        table[column] = table[column].mask(table["exhibit"] == "table 1", value)
        if name == "verdicts":
            table.loc[table["exhibit"] == "table 1", "verdict"] = "not yet judged"
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_claims_that_were_not_judged_are_not_counted_as_undecided(tmp_path, results):
    text = shown(tmp_path, ".. decided:: vectorization\n\n.. exhibits:: vectorization")
    claims = pd.read_csv(results / "claims.csv")
    missing = int((claims["runs"] == 0).sum())
    (counts,) = (line for line in text.splitlines() if line.startswith("| All "))
    n, holds, contradicted, undecided, not_judged, decided = (
        cell.strip() for cell in counts.strip("|").split("|")[1:]
    )
    assert (int(n), int(not_judged)) == (len(claims), missing)
    assert missing == (claims["exhibit"] == "table 1").sum() > 0
    done = int(holds) + int(contradicted)
    assert done + int(undecided) + missing == len(claims)
    assert decided == f"{done / len(claims):.0%}"
    text = " ".join(text.split())
    assert text.count("| not judged |") == missing
    assert text.count("**Not yet judged.**") == text.count("runs of older code") == 1


def test_verdicts_on_other_sets_stand_beside_those_on_made_documents(tmp_path, results):
    claims = pd.read_csv(results / "claims.csv")
    some = claims[claims["exhibit"] == "table 2"].assign(verdict="holds", runs=7)
    (results / "elsewhere").mkdir()
    some.to_csv(results / "elsewhere" / "Some set.csv", index=False)
    text = " ".join(shown(tmp_path, ".. elsewhere:: vectorization").split())
    assert "Some set" in text
    assert text.count("7 runs") == len(some)
    assert "Table 1" not in text


def test_claims_in_settings_of_ours_are_counted_apart(tmp_path, results):
    claims = pd.read_csv(results / "claims.csv")
    n_ours = 3
    claims.loc[: n_ours - 1, ["setting", "verdict", "runs"]] = ["a world of ours", "holds", 7]
    claims.to_csv(results / "claims.csv", index=False)
    text = shown(tmp_path, ".. decided:: vectorization\n\n.. settings:: vectorization")
    (counts,) = (line for line in text.splitlines() if line.startswith("| All "))
    assert int(counts.strip("|").split("|")[1]) == len(claims) - n_ours
    (ours,) = (line for line in text.splitlines() if "a world of ours" in line)
    assert [int(cell) for cell in ours.strip("|").split("|")[1:]] == [n_ours, n_ours, 0, 0]


def test_the_scoreboard_draws_each_verdict(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    paper_results = pytest.importorskip("paper_results")
    drawn = paper_results._bars({"one": Counter(holds=3, undecided=1), "two": Counter(holds=8)})
    root = ElementTree.fromstring(drawn)
    bars = [each for each in root.iter("rect") if each.get("height") == "26"]
    assert [float(bar.get("width")) for bar in bars] == [210, 70, 560]
    assert root.get("aria-label") == "one: 3 holds, 1 undecided; two: 8 holds"
