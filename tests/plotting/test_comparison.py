import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skultr.evaluation import compare_rankers
from skultr.plotting import ComparisonDisplay


@pytest.fixture
def comparison():
    rng = np.random.default_rng(0)
    relevance, qid = rng.integers(0, 3, 300), np.arange(300) // 10
    noise = {"a": 3, "b": 3, "c": 1}
    rankers = {name: relevance + rng.normal(0, s, 300) for name, s in noise.items()}
    return compare_rankers(rankers, None, relevance, qid=qid, random_state=0)


def test_means_and_queries(comparison):
    display = ComparisonDisplay.from_result(comparison)
    means, queries = display.axes_
    assert [label.get_text() for label in means.get_yticklabels()] == ["b - a", "c - a", "c - b"]
    assert means.get_xlabel() == "difference in ndcg@10, mean"
    point, _, (bar,) = display.intervals_[1]
    row = comparison.table.iloc[1]
    assert point.get_xdata() == [row["difference"]]
    ends = bar.get_segments()[0][:, 0].astype(float)
    assert_allclose(ends, row[["lower", "upper"]].to_numpy(float))
    faces = [container[0].get_markerfacecolor() == "white" for container in display.intervals_]
    assert faces == (comparison.table["verdict"] == "cannot tell").tolist()
    assert faces[0] != faces[1]
    values = comparison.per_query
    assert_allclose(display.lines_[2].get_ydata(), np.sort(values["c"] - values["b"]))
    assert display.figure_ is means.figure is queries.figure
    plt.close(display.figure_)


def test_one_query_has_no_interval():
    one = compare_rankers({"a": [1, 0], "b": [0, 1]}, None, [1, 0], qid=[1, 1], random_state=0)
    display = ComparisonDisplay.from_result(one)
    assert not display.intervals_[0][2]
    plt.close(display.figure_)


def test_names_are_no_formulas():
    names = ["_old_1", "new $x_2$"]
    rankers = {names[0]: [1, 0, 1, 0], names[1]: [0, 1, 1, 0]}
    display = ComparisonDisplay.from_result(
        compare_rankers(rankers, None, [1, 0, 0, 1], qid=[1, 1, 2, 2], random_state=0)
    )
    label = display.axes_[0].get_yticklabels()[0]
    (text,) = display.axes_[1].get_legend().get_texts()
    for found in (label, text):
        assert found.get_text() == "new $x_2$ - _old_1"
        assert not found.get_parse_math()
    display = ComparisonDisplay.from_result(
        compare_rankers(rankers, None, [1, 0, 0, 1], qid=[1, 1, 2, 2], baseline=names[1])
    )
    (text,) = display.axes_[1].get_legend().get_texts()
    assert text.get_text() == "_old_1 - new $x_2$"
    plt.close("all")


def test_given_axes(comparison):
    figure, axes = plt.subplots(2, 1)
    display = ComparisonDisplay.from_result(comparison, axes=axes)
    assert display.axes_.tolist() == axes.tolist()
    with pytest.raises(ValueError, match="axes holds 1 axes; expected two"):
        display.plot(axes[0])
    plt.close(figure)


def test_other_results():
    with pytest.raises(
        TypeError, match="result is a dict; expected the result of compare_rankers"
    ):
        ComparisonDisplay.from_result({})
