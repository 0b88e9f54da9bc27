import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import brier_score_loss, mean_squared_error

from skultr.metrics import click_mse, mean_correlation_coefficient, relevance_mse

RNG = np.random.default_rng(0)
TRUE, FOUND = RNG.random((2, 40))
WEIGHT = RNG.integers(0, 5, 40)


def test_mean_squared_errors():
    for weight in (None, WEIGHT):
        expected = mean_squared_error(TRUE, FOUND, sample_weight=weight)
        assert_allclose(click_mse(TRUE, FOUND, sample_weight=weight), expected)
        assert_allclose(relevance_mse(TRUE, FOUND, sample_weight=weight), expected)
    clicks = RNG.integers(0, 2, 40)
    assert_allclose(click_mse(clicks, FOUND), brier_score_loss(clicks, FOUND))
    assert relevance_mse([0.5], [2.5]) == 4  # clicks over propensities exceed 1


def test_correlation():
    """The definition, by hand and repeated by weights; it does not see scale."""
    expected = np.corrcoef(TRUE, FOUND)[0, 1]
    assert_allclose(mean_correlation_coefficient(TRUE, FOUND), expected)
    assert_allclose(mean_correlation_coefficient(TRUE, 7 * FOUND - 3), expected)
    repeated = [np.repeat(each, WEIGHT) for each in (TRUE, FOUND)]
    weighted = mean_correlation_coefficient(TRUE, FOUND, sample_weight=WEIGHT)
    assert_allclose(weighted, np.corrcoef(*repeated)[0, 1])
    assert mean_correlation_coefficient(TRUE, -TRUE) == pytest.approx(-1)
    assert mean_correlation_coefficient(TRUE, np.full(40, 0.1)) == 0
    assert mean_correlation_coefficient([0, 1], [0.3, 0.4]) <= 1


@pytest.mark.parametrize("metric", [click_mse, relevance_mse, mean_correlation_coefficient])
def test_columns_of_frames(metric):
    value = metric(TRUE, FOUND)
    for kind in (list, pd.Series, pl.Series):
        assert metric(kind(TRUE), kind(FOUND)) == value


@pytest.mark.parametrize("metric", [click_mse, relevance_mse, mean_correlation_coefficient])
@pytest.mark.parametrize(
    ("true", "found", "weight", "message"),
    [
        ([0.1, np.nan], [0.1, 0.2], None, "y_true must be"),
        ([0.1, 0.2], [0.1, np.inf], None, "must be .* first inf in row 1"),
        ([0.1, 0.2], [0.1], None, "of one length"),
        ([], [], None, "empty"),
        ([0.1, 0.2], [0.1, 0.2], [1, -1], "at least 0"),
        ([0.1, 0.2], [0.1, 0.2], [0, 0], "sample_weight is 0 in every row"),
        (["a", "b"], [0.1, 0.2], None, "must hold numbers"),
    ],
)
def test_bad_input(metric, true, found, weight, message):
    with pytest.raises(ValueError, match=message):
        metric(true, found, sample_weight=weight)


def test_what_each_does_not_take():
    with pytest.raises(ValueError, match=r"y_prob must be in \[0, 1\]"):
        click_mse([0.1, 0.2], [0.1, 1.2])
    with pytest.raises(ValueError, match=r"0\.3 for 2 documents"):
        mean_correlation_coefficient([0.3, 0.3], [0.1, 0.2])


def test_correlation_of_rows_that_count():
    """Rows of weight 0 do not vary for the others; scale is no matter, however small or large."""
    with pytest.raises(ValueError, match="for 2 documents"):
        mean_correlation_coefficient([0.3, 0.3, 0.7], [1, 2, 3], sample_weight=[1, 1, 0])
    with pytest.raises(ValueError, match="for 1 document,"):
        mean_correlation_coefficient([0.3], [1])
    for value in (0.1, 1e-170, 0.0):
        assert (
            mean_correlation_coefficient(
                [0.1, 0.2, 0.7], [value] * 2 + [1], sample_weight=[1, 3, 0]
            )
            == 0
        )
    expected = mean_correlation_coefficient(TRUE, FOUND)
    for scale in (1e-170, 1e-300, 1e200, 1e308):
        assert mean_correlation_coefficient(TRUE, FOUND * scale) == pytest.approx(expected)
        weight = np.full(40, scale)
        assert mean_correlation_coefficient(TRUE, FOUND, sample_weight=weight) == pytest.approx(
            expected
        )
