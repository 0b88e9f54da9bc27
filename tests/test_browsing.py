from itertools import product

import numpy as np
import pytest

from skultr._browsing import (
    EYE_TRACKING,
    TIANGONG_CLICK_MATRIX,
    matrix_click_probability,
    pbm_click_probability,
    power_law_examination,
    trust_affine,
    trust_click_probability,
)


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


# --------------------------------------------------------------------------------------
# Trust bias
# --------------------------------------------------------------------------------------
def enumerate_trust_patterns(relevance, examination, positive, negative):
    """P(click pattern) of a list, by summing over what was examined, relevant, and clicked."""
    n = len(relevance)
    table = {}
    for events in product(product((0, 1), repeat=3), repeat=n):
        probability = 1.0
        for k, (examined, relevant, clicked) in enumerate(events):
            probability *= examination[k] if examined else 1 - examination[k]
            probability *= relevance[k] if relevant else 1 - relevance[k]
            chance = examined * (positive[k] if relevant else negative[k])
            probability *= chance if clicked else 1 - chance
        clicks = tuple(clicked for _, _, clicked in events)
        table[clicks] = table.get(clicks, 0.0) + probability
    return table


TRUST = (
    np.array([0.68, 0.61, 0.48]),
    np.array([0.98, 0.97, 0.6]),
    np.array([0.65, 0.325, 0.0]),
)


def test_trust_clicks_are_the_enumerated_events():
    relevance = np.array([0.1, 0.52, 1.0])
    p = trust_click_probability(relevance, *TRUST)
    table = enumerate_trust_patterns(relevance, *TRUST)
    assert sum(table.values()) == pytest.approx(1)
    for clicks, probability in table.items():
        c = np.array(clicks)
        assert np.prod(np.where(c, p, 1 - p)) == pytest.approx(probability)


def test_trust_affine_gives_the_rates_of_the_worst_and_the_best():
    alpha, beta = trust_affine(*TRUST)
    for relevance in (np.zeros(3), np.ones(3)):
        table = enumerate_trust_patterns(relevance, *TRUST)
        marginal = np.array(list(table.values())) @ np.array(list(table))
        np.testing.assert_allclose(alpha * relevance + beta, marginal)


def test_without_trust_bias_the_model_is_position_based():
    relevance, examination = np.random.default_rng(0).random((50, 4)), np.array([0.9, 0.7, 0.3, 0])
    np.testing.assert_array_equal(
        trust_click_probability(relevance, examination, np.ones(4), np.zeros(4)),
        pbm_click_probability(relevance, examination),
    )


# --------------------------------------------------------------------------------------
# Click matrices
# --------------------------------------------------------------------------------------
def test_matrix_by_hand():
    matrix = np.arange(1, 7).reshape(3, 2) / 10
    grade = np.array([[0, 1], [2, 2], [1, -1], [-1, -1]])
    expected = [[matrix[g, k] if g >= 0 else 0.0 for k, g in enumerate(row)] for row in grade]
    np.testing.assert_array_equal(matrix_click_probability(grade, matrix), expected)


def test_matrix_of_rank_one_is_position_based():
    relevance, examination = np.array([0.1, 0.52, 1.0]), np.array([0.68, 0.61])
    grade = np.array(list(product(range(3), repeat=2)))
    np.testing.assert_allclose(
        matrix_click_probability(grade, np.outer(relevance, examination)),
        pbm_click_probability(relevance[grade], examination),
    )


def test_tiangong_has_the_published_singular_values():
    matrix = np.array(TIANGONG_CLICK_MATRIX)
    assert matrix.shape == (5, 10)
    assert 0 < matrix.min() < matrix.max() < 1
    np.testing.assert_allclose(
        np.linalg.svd(matrix, compute_uv=False), [1.399, 0.151, 0.069, 0.057, 0.033], atol=5e-4
    )
    # Singular values know neither the order of the grades nor that of the positions, and they
    # hardly feel a wrong digit in the tail: each row adds up with the position as its weight.
    np.testing.assert_allclose(matrix[:, 0], [0.590531, 0.496226, 0.541645, 0.611413, 0.742062])
    np.testing.assert_allclose(
        matrix @ np.arange(1, 11), [1.5012, 1.278394, 1.355621, 2.278389, 2.415923]
    )
