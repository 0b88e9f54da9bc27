"""Formulas of users, also given clicks; what users click on is tested in tests/simulation."""

from itertools import product

import numpy as np
import pytest

from skultr._models._browsing import (
    EYE_TRACKING,
    TIANGONG_CLICK_MATRIX,
    chain_click_probability,
    contextual_examination,
    matrix_click_probability,
    pbm_click_probability,
    ubm_click_probability,
    ubm_conditional_click_probability,
)


def test_pbm_broadcasts_over_sessions():
    relevance = np.arange(6).reshape(2, 3) / 6
    expected = relevance * np.array([[1.0, 0.5, 0.25]] * 2)
    np.testing.assert_array_equal(
        pbm_click_probability(relevance, np.array([1.0, 0.5, 0.25])), expected
    )


def test_eye_tracking_falls_over_ten_positions():
    assert len(EYE_TRACKING) == 10
    assert all(np.diff(EYE_TRACKING) < 0)
    assert 0 < min(EYE_TRACKING) < max(EYE_TRACKING) < 1


# --------------------------------------------------------------------------------------
# Click matrices
# --------------------------------------------------------------------------------------
def test_matrix_by_hand():
    matrix = np.arange(1, 7).reshape(3, 2) / 10
    grade = np.array([[0, 1], [2, 2], [1, -1], [-1, -1]])
    expected = [[matrix[g, k] if g >= 0 else 0.0 for k, g in enumerate(row)] for row in grade]
    np.testing.assert_array_equal(matrix_click_probability(grade, matrix), expected)


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


# Users who read down, and users who look around their last click -------------------------
CHAINS = {
    "cascade": (1.0, 0.0),
    "DCM": (1.0, np.array([0.7, 0.5, 0.3, 0.2])),
    "DBN": (0.9, 0.9 * np.array([0.8, 0.4, 0.6, 0.1])),
    "every row": (np.array([0.9, 0.8, 0.3, 1.0]), np.array([0.2, 0.4, 0.6, 0.7])),
}
ATTRACTION = np.array([0.3, 0.6, 0.9, 0.2])
PAIRS = np.random.default_rng(0).uniform(0.1, 0.9, (4, 4))


def chain_patterns(attraction, after_skip, after_click):
    """P(click pattern), by following every path of clicks and stops."""
    n = len(attraction)
    after_skip, after_click = np.broadcast_to(after_skip, n), np.broadcast_to(after_click, n)
    table = dict.fromkeys(product((0, 1), repeat=n), 0.0)

    def follow(clicks, probability):
        k = len(clicks)
        if k == n:
            table[clicks] += probability
            return
        for click in (0, 1):
            chance = probability * (attraction[k] if click else 1 - attraction[k])
            on = after_click[k] if click else after_skip[k]
            follow((*clicks, click), chance * on)
            table[(*clicks, click, *[0] * (n - k - 1))] += chance * (1 - on)

    follow((), 1.0)
    # The last row has no next one: whether the user would go on is both summed, in two places.
    return np.array(list(table)), np.array(list(table.values()))


def ubm_patterns(relevance, examination):
    patterns = np.array(list(product((0, 1), repeat=len(relevance))))
    probability = np.ones(len(patterns))
    for row, clicks in enumerate(patterns):
        last = 0
        for k, click in enumerate(clicks):
            chance = relevance[k] * examination[k, last]
            probability[row] *= chance if click else 1 - chance
            last = k + 1 if click else last
    return patterns, probability


@pytest.mark.parametrize("user", CHAINS)
def test_chains_are_the_enumerated_events(user):
    patterns, probability = chain_patterns(ATTRACTION, *CHAINS[user])
    attraction = np.tile(ATTRACTION, (len(patterns), 1))
    assert probability.sum() == pytest.approx(1, abs=1e-12)
    marginal = chain_click_probability(ATTRACTION[None], *CHAINS[user])[0]
    np.testing.assert_allclose(marginal, probability @ patterns, atol=1e-12)
    chance = chain_click_probability(attraction, *CHAINS[user], patterns > 0)
    product_ = np.where(patterns, chance, 1 - chance).prod(axis=1)
    np.testing.assert_allclose(product_, probability, atol=1e-12)


def test_ubm_is_the_enumerated_events():
    patterns, probability = ubm_patterns(ATTRACTION, PAIRS)
    marginal = ubm_click_probability(ATTRACTION[None], PAIRS)[0]
    np.testing.assert_allclose(marginal, probability @ patterns, atol=1e-12)
    relevance = np.tile(ATTRACTION, (len(patterns), 1))
    chance = ubm_conditional_click_probability(relevance, PAIRS, patterns > 0)
    product_ = np.where(patterns, chance, 1 - chance).prod(axis=1)
    np.testing.assert_allclose(product_, probability, atol=1e-12)


def test_position_that_nobody_examines_stays_so_in_any_context():
    """Also where everything else is examined, although 0^0 is 1."""
    examination = contextual_examination(np.array([0.8, 0.0]), np.array([0.0, 1.0, -1.0]))
    np.testing.assert_allclose(examination, [[0.8, 0.0], [0.64, 0.0], [1.0, 0.0]])
