from itertools import product

import numpy as np
import pytest

from skultr._models._browsing import (
    EYE_TRACKING,
    TIANGONG_CLICK_MATRIX,
    chain_click_probability,
    contextual_examination,
    draw_chain_clicks,
    draw_ubm_clicks,
    matrix_click_probability,
    pbm_click_probability,
    power_law_examination,
    trust_affine,
    trust_click_probability,
    ubm_click_probability,
    ubm_conditional_click_probability,
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


def test_ubm_without_memory_is_the_pbm():
    examination = np.array([0.9, 0.6, 0.4, 0.3])
    pairs = np.tile(examination[:, None], (1, 4))
    expected = pbm_click_probability(ATTRACTION[None], examination)
    np.testing.assert_allclose(ubm_click_probability(ATTRACTION[None], pairs), expected)
    clicks = np.array([[True, False, True, False]])
    chance = ubm_conditional_click_probability(ATTRACTION[None], pairs, clicks)
    np.testing.assert_allclose(chance, expected)


def test_draws_follow_the_formula():
    rng = np.random.default_rng(0)
    attraction = np.tile(ATTRACTION, (40_000, 1))
    for user, chances in CHAINS.items():
        patterns, probability = chain_patterns(ATTRACTION, *chances)
        _compare(draw_chain_clicks(attraction, *chances, rng), patterns, probability, user)
    patterns, probability = ubm_patterns(ATTRACTION, PAIRS)
    _compare(draw_ubm_clicks(attraction, PAIRS, rng), patterns, probability, "UBM")


def _compare(clicks, patterns, probability, user):
    code = 2 ** np.arange(4)
    drawn = np.bincount(clicks @ code, minlength=16)[patterns @ code] / len(clicks)
    error = 4.5 * np.sqrt(probability * (1 - probability) / len(clicks)) + 1e-12
    assert (np.abs(drawn - probability) <= error).all(), user


def test_position_that_nobody_examines_stays_so_in_any_context():
    """Also where everything else is examined, although 0^0 is 1."""
    examination = contextual_examination(np.array([0.8, 0.0]), np.array([0.0, 1.0, -1.0]))
    np.testing.assert_allclose(examination, [[0.8, 0.0], [0.64, 0.0], [1.0, 0.0]])
