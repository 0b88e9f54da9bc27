import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose

from skultr.identifiability import factor_rank
from skultr.plotting import RankDisplay


def log(rates, impressions=10_000):
    rates = np.asarray(rates)
    row, factor = np.indices(rates.shape)
    columns = {"qid": 0, "relevance": row.ravel(), "position": factor.ravel() + 1}
    return pd.DataFrame(columns | {"impressions": impressions}), rates.ravel()


TRUST = [[0.3, 0.1, 0.05], [0.6, 0.5, 0.25], [0.8, 0.7, 0.35]]
PLAIN = [[0.3, 0.2, 0.1], [0.6, 0.4, 0.2], [0.9, 0.6, 0.3]]


def labels(display):
    return [text.get_text() for text in display.axes_[0].get_legend().get_texts()]


def test_values_floor_and_matrix():
    result = factor_rank(*log(TRUST), rows="relevance", random_state=0)
    display = RankDisplay.from_result(result)
    assert display.result is result
    values, rates = display.axes_
    assert values.get_yscale() == "log"
    assert_allclose(display.line_.get_ydata()[:2], result.singular_values["value"][:2])
    assert_allclose(display.floor_.get_ydata()[1], result.singular_values.at[2, "floor"])
    assert values.get_title(loc="left") == "2 products are needed"
    assert values.get_xlabel() == "number"
    assert values.get_ylabel() == "singular value of the click rates"
    assert labels(display) == ["needed", "not needed", "noise floor (95%)"]
    assert_allclose(display.im_.get_array(), TRUST, atol=1e-3)
    assert rates.get_xlabel() == "position"
    assert rates.get_ylabel() == "relevance"
    texts = [text.get_text() for text in display.text_]
    assert texts == [".30", ".10", ".050", ".60", ".50", ".25", ".80", ".70", ".35"]
    assert [text.get_text() for text in rates.get_xticklabels()] == ["1", "2", "3"]


def test_from_log_is_the_same():
    result = factor_rank(*log(TRUST), rows="relevance", random_state=0)
    display = RankDisplay.from_log(*log(TRUST), rows="relevance", random_state=0, cmap="Reds")
    assert_allclose(display.line_.get_ydata(), RankDisplay.from_result(result).line_.get_ydata())
    assert display.im_.get_cmap().name == "Reds"


@pytest.mark.parametrize(
    ("impressions", "title", "label"),
    [
        (10_000, "one product is enough", "not needed"),
        (10, "the log is too small to decide", "undetermined"),
    ],
)
def test_titles(impressions, title, label):
    display = RankDisplay.from_log(*log(PLAIN, impressions), rows="relevance", random_state=0)
    assert display.axes_[0].get_title(loc="left") == title
    assert label in labels(display)


def test_empty_cells_have_no_number_and_many_none():
    X, rate = log(PLAIN)
    X.loc[4, "impressions"] = 0
    rate[4] = 0
    display = RankDisplay.from_log(X, rate, rows="relevance", random_state=0)
    assert len(display.text_) == 8
    assert display.im_.get_array().mask.sum() == 1
    wide = np.outer([0.2, 0.9], np.linspace(1, 0.1, 70))
    display = RankDisplay.from_log(*log(wide), rows="relevance", n_resamples=19, random_state=0)
    assert display.text_ == []
    assert len(display.axes_[1].get_xticks()) <= 20


def test_drawn_again_on_given_axes():
    _, axes = pyplot.subplots(1, 2)
    display = RankDisplay.from_log(*log(TRUST), rows="relevance", random_state=0, axes=axes)
    assert list(display.axes_) == list(axes)
    assert display.plot() is display
    assert list(display.axes_) != list(axes)


def test_bad_input():
    with pytest.raises(TypeError, match=r"result is a DataFrame; .* RankDisplay.from_log"):
        RankDisplay.from_result(pd.DataFrame())
    with pytest.raises(ValueError, match="axes holds 1 axes; expected two"):
        RankDisplay.from_log(
            *log(TRUST), rows="relevance", random_state=0, axes=[pyplot.subplots()[1]]
        )
