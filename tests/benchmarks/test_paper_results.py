"""What the pages of the papers show of the committed results."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_claims_that_were_not_judged_are_not_counted_as_undecided(tmp_path):
    """Of vectorization, 12 claims are about runs whose rows were not kept."""
    pytest.importorskip("sphinx")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        "extensions = ['paper_results', 'sphinx_design']\n"
    )
    (tmp_path / "index.rst").write_text(
        "Counts\n======\n\n.. decided:: vectorization\n\n.. exhibits:: vectorization\n"
    )
    (tmp_path / "results").symlink_to(DOCS / "papers" / "results")
    out = tmp_path / "out"
    build = [sys.executable, "-m", "sphinx", "-qb", "text", str(tmp_path), str(out)]
    subprocess.run(build, check=True)
    text = (out / "index.txt").read_text(encoding="utf-8")
    (counts,) = (line for line in text.splitlines() if line.startswith("| All "))
    assert [cell.strip() for cell in counts.strip("|").split("|")] == [
        *("All", "18", "4", "1", "1", "12", "28%")
    ]
    text = " ".join(text.split())
    assert text.count("| not judged |") == 12
    assert text.count("**Not yet judged.**") == text.count("3 runs of older code") == 5
