import subprocess
import sys

import pytest
from matplotlib import pyplot

from skultr.plotting import _axes


class ADisplay(_axes.Display):
    pass


def test_importing_does_not_import_matplotlib_or_torch():
    code = (
        "import sys, skultr.plotting; "
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'torch')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'needs matplotlib.*pip install "skultr\[plot\]"'):
        ADisplay()._open(None, None)


def test_axes_are_taken_or_made():
    figure, ax = pyplot.subplots()
    display = ADisplay()
    display._open(ax, (2, 2))
    assert display.ax_ is ax
    assert [side for side, spine in ax.spines.items() if spine.get_visible()] == ["left", "bottom"]
    display._open(None, (2, 3))
    assert display.figure_ is not figure
    assert display.figure_.get_size_inches().tolist() == [2, 3]


def test_methods_keep_their_colors():
    colors = _axes.method_colors(["IPSRanker", "mine", "DLA", "naive", "yours"])
    assert colors["DLA"] == _axes.method_colors(["DLARanker"])["DLARanker"]
    assert len(set(colors.values())) == 5
    many = _axes.method_colors([f"model {i}" for i in range(30)])
    assert colors["DLA"] not in many.values()
    with pytest.raises(TypeError, match="expected a list of names"):
        _axes.method_colors("DLA")
    assert len(_axes.palette(100)) == 100
