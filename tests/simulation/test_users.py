import numpy as np
import pytest

from skultr.simulation import EYE_TRACKING, PositionBasedUser, relevance_probability


def test_relevance_probability_of_the_grades():
    expected = [0.1 + 0.9 * (2**y - 1) / 15 for y in range(5)]
    np.testing.assert_allclose(relevance_probability(range(5)), expected)
    np.testing.assert_allclose(relevance_probability([0, 1], noise=0, max_grade=1), [0, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grade": [5]}, "grade is 5"),
        ({"grade": [-1]}, "grade is -1"),
        ({"grade": [np.nan]}, "grade is nan"),
        ({"grade": [1], "noise": 1.5}, "noise"),
        ({"grade": [1], "max_grade": 0}, "max_grade"),
    ],
)
def test_bad_grades(arguments, message):
    with pytest.raises(ValueError, match=message):
        relevance_probability(**arguments)


@pytest.mark.parametrize(
    ("examination", "expected"),
    [
        ("eye-tracking", EYE_TRACKING[:3]),
        ([0.9, 0.2, 0.1], [0.9, 0.2, 0.1]),
        (np.array([1.0, 1.0, 0.0, 0.3]), [1, 1, 0]),
        (1, [1, 1 / 2, 1 / 3]),
        (0.0, [1, 1, 1]),
    ],
)
def test_examination(examination, expected):
    np.testing.assert_allclose(PositionBasedUser(examination).examination_at(3), expected)


def test_click_rate_is_examination_times_relevance():
    relevance, n = np.array([0.1, 0.52, 1.0]), 200_000
    clicks = PositionBasedUser().click(np.tile(relevance, (n, 1)), np.random.default_rng(0))
    p = relevance * EYE_TRACKING[:3]
    assert np.all(np.abs(clicks.mean(axis=0) - p) < 5 * np.sqrt(p * (1 - p) / n))


def test_examination_ends_where_it_is_known():
    with pytest.raises(ValueError, match="given for 10 positions"):
        PositionBasedUser().examination_at(11)
    assert len(PositionBasedUser(1.5).examination_at(100)) == 100


@pytest.mark.parametrize(
    "bad", ["power-law", [], [0.5, 1.1], [-0.1], [np.nan], [[0.5]], -1, np.inf]
)
def test_bad_examination(bad):
    with pytest.raises(ValueError, match="examination must be"):
        PositionBasedUser(bad)
