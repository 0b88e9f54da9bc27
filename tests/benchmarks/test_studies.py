"""Every page can be imported, and the commands that the documentation quotes exist."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.__main__ import pages

#: Packages of the extra 'benchmark' that no other extra has.
PEERS = {"psutil", "xgboost"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages())
def test_what_a_page_imports_exists(page):
    try:
        import_module(f"benchmarks.{page.replace('/', '.')}")
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        pytest.skip(f"{error.name} is a peer that only the extra 'benchmark' installs")


def test_commands_that_the_documentation_quotes_exist():
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*/*.rst")]
    text = "\n".join(path.read_text() for path in texts)
    quoted = re.findall(r"`python -m benchmarks (\S+?)(?: --only ([\w ]+?))?(?: --[^`]*)?`", text)
    assert len(quoted) > 20
    assert {page for page, _ in quoted} <= {*pages()}
    for page, exhibits in quoted:
        if exhibits:
            found = import_module(f"benchmarks.{page.replace('/', '.')}").PAGE
            assert found.chosen(exhibits.split())
    scripts = re.findall(r"\bbenchmarks/studies/\w+\.py", text)
    assert len(scripts) > 5
    assert not [script for script in scripts if not (ROOT / script).is_file()]


def test_margins_of_the_ensemble_are_counted_by_cell():
    pytest.importorskip("xgboost", reason="a peer of the study")
    from benchmarks.studies.robustness import CELL, REFERENCES, draw_cells, ensemble

    values = {"production": [0.5, 0.5], "naive": [0.6, 0.4], "ensemble": [0.58, 0.51]}
    error = dict.fromkeys([f"error over {name}" for name in REFERENCES], 0.01)
    cells = [dict.fromkeys(CELL, "a"), dict.fromkeys(CELL, "b")]
    rows = pd.DataFrame(
        {
            **cell,
            "seed": 0,
            "method": name,
            "ndcg": of[i],
            "shown": of[i],
            "silent": False,
            "CPU seconds": 1,
            **error,
        }
        for name, of in values.items()
        for i, cell in enumerate(cells)
    )

    found = ensemble(rows)
    np.testing.assert_allclose(found["margin"], [-0.02, 0.01])
    assert found["kept"].tolist() == [0, 1]
    production, naive = (axis.get_title() for axis in draw_cells(found, None).axes)
    assert "below in 0 of 2" in production
    assert "below in 1 of 2" in naive
