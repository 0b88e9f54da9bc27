import sys
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

FOLDER = Path(__file__).parents[2] / "examples" / "papers"


@pytest.fixture(autouse=True)
def _scripts_are_modules(monkeypatch):
    """The scripts import their neighbours, as Python lets a script do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [name for name, module in sys.modules.items() if _is_script(module)]:
        del sys.modules[name]


def _is_script(module):
    return Path(getattr(module, "__file__", None) or "/").parent == FOLDER
