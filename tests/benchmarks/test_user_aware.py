"""The script of the user-aware paper: its exhibits, published figures, and one small run."""

import numpy as np
import pandas as pd
import pytest

from benchmarks._study import Settings, main
from benchmarks.papers._user_aware_worlds import (
    confusion,
    known,
    labels_of,
    make_world,
    relevance_error,
)
from benchmarks.papers.user_aware import GRADES, PAGE, PLACES


def published(exhibit, row, metric):
    return exhibit.published[row][exhibit.metrics.index(metric)]


def exhibits():
    return {exhibit.name: exhibit for exhibit in PAGE.exhibits}


def held(name, means, rows=None):
    """Which claims of an exhibit have gaps above 0 in one run."""
    gaps = [claim.gaps(means, rows) for claim in exhibits()[name].claims]
    return [bool(np.size(gap)) and bool((np.ravel(gap) > 0).all()) for gap in gaps]


def means_of(name, row):
    """A table of means that a function of (row, metric) fills."""
    exhibit = exhibits()[name]
    metrics = list(exhibit.metrics)
    methods = list(exhibit.published)
    values = [[row(method, metric) for metric in metrics] for method in methods]
    return pd.DataFrame(values, index=methods, columns=metrics)


def test_the_tables_and_figures_of_the_paper():
    """But for drawings (figures 1, 2) and the private log (5b)."""
    names = ["table 1", "table 1-baidu", "figure 3", "figure 4", "table 2", "table 3", "figure 5a"]
    assert list(exhibits()) == names


def test_published_figures_are_those_of_the_paper():
    found = exhibits()
    assert published(found["table 1"], "user-aware", "nDCG@5") == 0.7056
    assert published(found["table 1"], "straightforward", "MSE") == 0.2226
    assert published(found["table 1-baidu"], "IPS-PBM", "ERR@10") == 0.3345
    assert published(found["table 2"], "naive", "20 users") == 0.6520
    assert published(found["table 3"], "CPBM", "linear") == 0.6736
    for exhibit in found.values():
        rows = (exhibit.published or {}).values()
        assert all(len(row) == len(exhibit.metrics) for row in rows)


@pytest.mark.parametrize("name", ["table 1", "table 1-baidu", "table 2", "table 3"])
def test_claims_hold_in_the_published_tables(name):
    exhibit = exhibits()[name]
    table = means_of(name, lambda method, metric: published(exhibit, method, metric))
    table = table.astype(float)
    assert all(held(name, table))


@pytest.mark.parametrize("name", ["table 1", "table 2", "table 3"])
def test_claims_can_fail(name):
    table = means_of(name, lambda method, metric: float(method == "PRS"))
    assert not any(held(name, table))


def test_claims_of_the_curves():
    """User-aware is .1 below ideal with 1 session per query, .01 with 100; IPS .05 throughout."""
    gaps = {"ideal": (0, 0), "user-aware": (0.1, 0.01), "straightforward": (0.2, 0.02)}
    gaps |= dict.fromkeys(("naive", "IPS-PBM", "PRS"), (0.05, 0.05))
    values = {
        ("MLP", method, size): 0.7 - gap
        for method, pair in gaps.items()
        for size, gap in zip((1.0, 100.0), pair, strict=True)
    }
    index = pd.MultiIndex.from_tuples(values, names=["model", "method", "sessions per query"])
    means = pd.DataFrame({"nDCG@5": [*values.values()]}, index)
    assert held("figure 4", means) == [True, True, True]
    means.loc[("MLP", "user-aware", 100.0)] = 0.4
    assert held("figure 4", means) == [False, False, False]


def test_small_logs_confirm_nothing():
    values = {("MLP", name, 1.0): 0.5 for name in ("ideal", "naive", "IPS-PBM", "PRS")}
    values |= {("MLP", "user-aware", 1.0): 0.6, ("MLP", "straightforward", 1.0): 0.5}
    index = pd.MultiIndex.from_tuples(values, names=["model", "method", "sessions per query"])
    means = pd.DataFrame({"nDCG@5": [*values.values()]}, index)
    assert not any(held("figure 4", means))


def test_claims_of_the_matrices_and_the_clusters():
    index = pd.MultiIndex.from_product([["IPS-PBM", "user-aware"], range(5)])
    index.names = ["method", "true grade"]
    means = pd.DataFrame(np.vstack([0.5 * np.eye(5), np.eye(5)]), index, GRADES)
    assert held("figure 3", means) == [True]
    means.loc["user-aware"] = 0.2
    assert held("figure 3", means) == [False]

    middle = [0.5, 1.0, *[0.5] * 8]
    curves = pd.DataFrame([np.arange(1, 11.0) ** -2, np.ones(10), middle], columns=PLACES)
    found = [held("figure 5a", curves.drop(i)) for i in range(3)]
    # Without the first cluster the first claim fails; the third examines the last place as often.
    assert found == [[False, True, True], [True, True, True], [True, True, False]]


def test_figures_run_end_to_end(tmp_path):
    sizes = ["--sessions", "1500", "--queries", "60", "--runs", "2", "--jobs", "1"]
    options = ["--figure", "5a", "--quick", *sizes, "--out", str(tmp_path)]
    assert main(PAGE, options) == 0
    table = pd.read_csv(tmp_path / "user-aware" / "figure_5a.csv")
    assert table["cluster"].unique().tolist() == [f"c{i}" for i in range(1, 11)]
    assert table.loc[table["metric"] == "same habit", "ours"].between(0, 1).all()
    assert (tmp_path / "user-aware" / "figure_5a.png").stat().st_size > 10_000


def test_a_world_measures_what_the_estimators_see():
    """Labels and matrices of a small world, against arithmetic on its own clicks."""
    world = make_world(Settings(quick=True, queries=30), 6_000, 0)
    propensities = known(world)
    labels = labels_of(world, "user-aware", propensities["user-aware"])
    log = world.log.assign(clicks=world.rate * world.log["impressions"])
    log["examined"] = world.own * log["impressions"]
    sums = log.groupby("doc")[["clicks", "examined"]].sum()
    expected = (sums["clicks"] / sums["examined"]).loc[labels["doc"]]
    np.testing.assert_allclose(labels["label"], expected)
    assert relevance_error(world, labels) < relevance_error(
        world, labels_of(world, "IPS-PBM", propensities["IPS-PBM"])
    )
    exact = labels.assign(label=labels["doc"].map(world.relevance))
    matrix = np.array([[row[f"as {j}"] for j in range(5)] for row in confusion(world, exact)])
    shown = np.unique(world.train.set_index("doc").loc[labels["doc"], "relevance"])
    np.testing.assert_array_equal(matrix[shown], np.eye(5)[shown])
