import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.collections import LineCollection

from skultr.identifiability import IdentifiabilityGraph
from skultr.plotting import IdentifiabilityDisplay
from skultr.simulation import make_disconnected_log


def texts(display):
    return [text.get_text() for text in display.ax_.texts]


def title(display):
    return display.ax_.get_title()


def notes(display):
    """What is written below the drawing."""
    legend = display.ax_.get_legend()
    return display.ax_.get_xlabel() if legend is None else legend.get_title().get_text()


def n_lines(display):
    found = [c for c in display.ax_.collections if isinstance(c, LineCollection)]
    return sum(len(c.get_segments()) for c in found)


def dashed(display):
    return [line for line in display.ax_.lines if line.get_linestyle() == "--"]


@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_ten_positions(n_components):
    X, clicks, truth = make_disconnected_log(n_components, random_state=0)
    X = X.assign(click=np.round(clicks * X["impressions"]))
    display = IdentifiabilityDisplay.from_log(X)
    if n_components == 1:
        assert title(display) == "Identifiable: 10 bias factors in one component"
    else:
        assert title(display) == f"NOT identifiable: 10 bias factors in {n_components} components"
    assert texts(display)[:10] == [str(position) for position in range(1, 11)]
    # Within a component every pair of positions shares a document here.
    assert n_lines(display) == sum(len(p) * (len(p) - 1) // 2 for p in truth.components)
    assert not dashed(display)  # a million impressions a row
    legend = display.ax_.get_legend()
    found = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    assert found == sorted(
        [f"{10 * len(part)} % of impressions" for part in truth.components if n_components > 1],
        reverse=True,
    )
    assert display.figure_ is display.ax_.figure


def test_links_and_their_width():
    graph = IdentifiabilityGraph(doc=[0, 0, 1, 1, 2, 2, 3], bias=[1, 2, 1, 2, 2, 3, 4])
    display = IdentifiabilityDisplay.from_graph(graph)
    links = display.links.set_index(["factor_a", "factor_b"])["n_documents"]
    assert links.to_dict() == {(0, 1): 2, (1, 2): 1}
    (lines,) = [c for c in display.ax_.collections if isinstance(c, LineCollection)]
    assert lines.get_linewidths()[0] > lines.get_linewidths()[1]
    places = display.points_.get_offsets()
    for segment, (a, b) in zip(lines.get_segments(), links.index, strict=True):
        np.testing.assert_allclose(segment, places[[a, b]])


def test_weak_link():
    graph = IdentifiabilityGraph(
        doc=[0, 0, 1, 1, 2, 2],
        bias=["a", "b", "b", "c", "c", "d"],
        impressions=[10_000] * 6,
        clicks=[900, 900, 3, 1, 900, 900],
    )
    display = IdentifiabilityDisplay.from_graph(graph)
    weakest = graph.weak_links()["standard_error"].max()
    assert f"×÷ {np.exp(1.96 * weakest):.2g}" in texts(display)
    assert len(dashed(display)) == 1
    assert "Dashed" in notes(display)
    assert not dashed(IdentifiabilityDisplay.from_graph(graph, weak_links=False))


def test_link_without_a_click_is_unknown():
    graph = IdentifiabilityGraph(
        [0, 0, 1, 1], [1, 2, 2, 3], impressions=[99] * 4, clicks=[50, 50, 0, 0]
    )
    assert "unknown" in texts(IdentifiabilityDisplay.from_graph(graph))


def test_clicks_are_not_needed():
    X = make_disconnected_log(2, random_state=0).X
    assert IdentifiabilityDisplay.from_log(X).weak_links is None


def test_factors_of_several_columns():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "qid": 1,
            "doc": rng.integers(20, size=300),
            "position": rng.integers(1, 5, size=300),
            "device": rng.choice(["phone", "a rather long name of a device"], size=300),
            "click": rng.integers(2, size=300),
        }
    )
    display = IdentifiabilityDisplay.from_log(X, bias=["position", "device"])
    names = texts(display)[:8]
    assert "1 · phone" in names
    assert "1 · a rather long…" in names
    assert max(map(len, names)) == 18


def test_many_factors():
    # One component of 1,000 factors and half the impressions, pairs, and thousands alone.
    big = np.repeat(np.arange(1_000), 2)
    pairs = np.repeat(np.arange(1_000, 1_200), 1)
    alone = np.arange(1_200, 50_000)
    bias = np.concatenate([big, pairs, alone])
    doc = np.concatenate([np.roll(big, 1), 2_000 + np.arange(200) // 2, 10_000 + alone])
    weight = np.concatenate([np.full(2_000, 100.0), np.full(200, 10.0), np.full(48_800, 4.0)])
    graph = IdentifiabilityGraph(doc, bias, impressions=weight)
    assert graph.n_components == 1 + 100 + 48_800
    display = IdentifiabilityDisplay.from_graph(graph)
    assert title(display) == "NOT identifiable: 50,000 bias factors in 48,901 components"
    assert display.links is None
    rows = [label.get_text().replace("\n", " ") for label in display.ax_.get_yticklabels()]
    assert rows[0] == "component 0: 1,000 factors"
    assert rows[-2:] == ["component 7: 2 factors", "48,893 others"]
    widths = [bar.get_width() for bar in display.ax_.patches]
    n_rows = len(rows)
    np.testing.assert_allclose(sum(widths[:n_rows]), 1)  # of the impressions
    np.testing.assert_allclose(sum(widths[n_rows:]), 1)  # of the factors
    assert widths[0] == pytest.approx(200_000 / weight.sum())
    assert widths[n_rows] == pytest.approx(0.02)


def test_many_factors_all_alone():
    graph = IdentifiabilityGraph(np.arange(5_000), np.arange(5_000))
    display = IdentifiabilityDisplay.from_graph(graph)
    rows = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert rows == [*(f"component {i}:\n1 factor" for i in range(8)), "4,992 others"]


def test_many_connected_factors():
    factor = np.repeat(np.arange(100), 2)
    display = IdentifiabilityDisplay.from_graph(IdentifiabilityGraph(np.roll(factor, 1), factor))
    assert title(display) == "Identifiable: 100 bias factors in one component"
    assert len(display.ax_.get_yticklabels()) == 1


@pytest.mark.parametrize("n_factors", [1, 2, 60])
def test_extremes_of_single_drawing(n_factors):
    alone = IdentifiabilityDisplay.from_graph(
        IdentifiabilityGraph(np.arange(n_factors), np.arange(n_factors))
    )
    assert n_lines(alone) == 0
    assert "Lines" not in notes(alone)
    together = IdentifiabilityGraph(np.zeros(n_factors, dtype=int), np.arange(n_factors))
    display = IdentifiabilityDisplay.from_graph(together)
    assert n_lines(display) == n_factors * (n_factors - 1) // 2
    for each in (alone, display):
        each.figure_.canvas.draw()
        assert each.figure_.get_size_inches().max() <= 10.01


def test_axes_of_the_user_and_again():
    _, (ax, _) = pyplot.subplots(1, 2, figsize=(8, 3))
    display = IdentifiabilityDisplay.from_log(make_disconnected_log(2, random_state=0).X, ax=ax)
    assert display.ax_ is ax
    assert title(display).startswith("NOT identifiable: 10 bias\n")  # does not fit into one line
    again = display.plot()
    assert again is display
    assert again.ax_ is not ax
    assert n_lines(again) == 6 + 15


@pytest.mark.parametrize("sizes", [[10], [6, 4], [3, 3, 2, 2], [30, 1, 1, 1], [2] * 30, [1] * 60])
def test_components_are_apart_on_the_circle(sizes):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    share = np.full(len(sizes), 1 / len(sizes))
    components = pd.DataFrame({"n_factors": sizes, "impressions_share": share})
    names = [str(i) for i in range(len(labels))]
    display = IdentifiabilityDisplay(names=names, labels=labels, components=components).plot()
    places = np.asarray(display.points_.get_offsets())
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    # Members of a component are neighbours; there is twice as much room to the next component.
    step = 2 * np.sin(np.pi / (len(labels) + len(sizes)))
    apart = labels[:, None] != labels
    assert distance[apart].min(initial=np.inf) > 1.9 * step
    np.fill_diagonal(distance, np.inf)
    assert distance.min() > 0.99 * step
