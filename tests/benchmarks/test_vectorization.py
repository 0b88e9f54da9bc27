"""The vectorization paper, redrawn: its exhibits, published figures, claims, and one small run."""

import numpy as np
import pandas as pd
import pytest

from benchmarks._study import main
from benchmarks.papers.vectorization import BASELINES, PAGE


def paper():
    return PAGE


def exhibit(name):
    return next(exhibit for exhibit in paper().exhibits if exhibit.name == name)


def test_every_table_and_figure_is_there():
    assert [exhibit.name for exhibit in paper().exhibits] == [
        "table 1",
        "table 2",
        "table 3",
        "figure 1",
        "figure 4a",
        "figure 4b",
        "figure 4c",
        "figure 5a",
        "figure 5b",
        "figure 5c",
    ]


@pytest.mark.parametrize(
    ("name", "row", "metric", "value"),
    [
        ("table 1", ("made", "Vectorization"), "nDCG@10", 0.747),
        ("table 1", ("made, second set", "DLA"), "nDCG@1", 0.599),
        ("table 1", ("Istella-S", "Affine"), "nDCG@3", 0.605),
        ("table 2", ("made", "RegressionEM"), "nDCG@5", 0.686),
        ("table 3", "Vectorization", "seconds per batch", 0.136),
        ("figure 1", 2, "singular value", 0.151),
    ],
)
def test_published_figures(name, row, metric, value):
    found = exhibit(name)
    assert found.published[row][found.metrics.index(metric)] == value


def means(values, by, metric="nDCG@10"):
    index = pd.MultiIndex.from_tuples(values, names=by)
    return pd.DataFrame({metric: list(values.values())}, index=index)


@pytest.mark.parametrize(("vector", "holds"), [(0.70, True), (0.66, False)])
def test_vectorization_must_be_ahead_on_every_set(vector, holds):
    values = {(d, m): 0.65 for d in ("a", "b") for m in BASELINES}
    values[("b", "DLA")] = 0.68
    values |= {("a", "Vectorization"): 0.71, ("b", "Vectorization"): vector}
    claim = exhibit("table 1").claims[0]
    assert claim.holds(means(values, ["documents", "method"]), None) is holds


@pytest.mark.parametrize(("best", "holds"), [(2, True), (4, False)])
def test_the_best_length_under_trust_bias(best, holds):
    values = {("made", d, "Vectorization"): 0.7 + 0.02 * (d == best) for d in range(1, 6)}
    values |= {("made", d, "Affine"): 0.7 for d in range(1, 6)}
    claim = exhibit("figure 4c").claims[0]
    assert claim.holds(means(values, ["documents", "d", "method"]), None) is holds


@pytest.mark.parametrize(("base", "holds"), [(0.70, True), (0.68, False)])
def test_base_vectors_are_near_the_best_position(base, holds):
    values = {("matrix", k, "observation embedding"): 0.6 + 0.01 * k for k in range(1, 11)}
    values |= {("matrix", k, "base vector"): base for k in range(1, 11)}
    claim = exhibit("figure 5c").claims[1]
    assert claim.holds(means(values, ["user", "position", "along"]), None) is holds


def test_one_small_run(tmp_path):
    options = ["--quick", "--jobs", "1", "--queries", "60", "--sessions", "2000"]
    options += ["--figure", "1", "5a", "5c", "--out", str(tmp_path)]
    assert main(paper(), options) == 0
    verdicts = pd.read_csv(tmp_path / "vectorization" / "verdicts.csv").set_index("exhibit")
    assert verdicts.loc["figure 1", "verdict"] == "reproduced"
    table = pd.read_csv(tmp_path / "vectorization" / "figure_5c.csv")
    assert len(table) == 2 * 10 * 2
    assert (tmp_path / "vectorization" / "figure_5a.png").stat().st_size > 5_000


@pytest.mark.parametrize(("ordered", "holds"), [(True, True), (False, False)])
def test_near_grades_must_lie_near(ordered, holds):
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 5, 200)
    place = grade if ordered else rng.permutation(grade)
    rows = pd.DataFrame({"along": "document", "grade": grade, "o1": place, "o2": 0.0})
    assert exhibit("figure 5a").claims[0].holds(None, rows) is holds
