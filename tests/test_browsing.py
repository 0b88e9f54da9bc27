from itertools import product

import numpy as np
import pytest

from skultr._browsing import EYE_TRACKING, pbm_click_probability, power_law_examination


def enumerate_click_patterns(relevance, examination):
    """P(click pattern) of a list, by summing over what was examined and found relevant."""
    n = len(relevance)
    table = {}
    for examined in product((0, 1), repeat=n):
        for relevant in product((0, 1), repeat=n):
            probability = 1.0
            for k in range(n):
                probability *= examination[k] if examined[k] else 1 - examination[k]
                probability *= relevance[k] if relevant[k] else 1 - relevance[k]
            clicks = tuple(e * r for e, r in zip(examined, relevant, strict=True))
            table[clicks] = table.get(clicks, 0.0) + probability
    return table


def test_pbm_is_the_marginal_of_the_enumerated_events():
    relevance, examination = np.array([0.1, 0.52, 1.0]), np.array([0.68, 0.61, 0.48])
    table = enumerate_click_patterns(relevance, examination)
    clicks = np.array(list(table))
    marginal = np.array(list(table.values())) @ clicks
    np.testing.assert_allclose(pbm_click_probability(relevance, examination), marginal)


def test_pbm_clicks_are_independent_within_a_list():
    relevance, examination = np.array([0.3, 0.6, 0.9]), np.array([0.9, 0.5, 0.2])
    p = pbm_click_probability(relevance, examination)
    for clicks, probability in enumerate_click_patterns(relevance, examination).items():
        c = np.array(clicks)
        assert np.prod(np.where(c, p, 1 - p)) == pytest.approx(probability)


def test_pbm_broadcasts_over_sessions():
    relevance = np.arange(6).reshape(2, 3) / 6
    expected = relevance * np.array([[1.0, 0.5, 0.25]] * 2)
    np.testing.assert_array_equal(
        pbm_click_probability(relevance, np.array([1.0, 0.5, 0.25])), expected
    )


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0, 2.5])
def test_power_law(eta):
    curve = power_law_examination(7, eta)
    assert curve[0] == 1
    np.testing.assert_allclose(curve, [(1 / k) ** eta for k in range(1, 8)])


def test_eye_tracking_falls_over_ten_positions():
    assert len(EYE_TRACKING) == 10
    assert all(np.diff(EYE_TRACKING) < 0)
    assert 0 < min(EYE_TRACKING) < max(EYE_TRACKING) < 1
