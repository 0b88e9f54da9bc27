import numpy as np
import pytest

from skultr.simulation import (
    EYE_TRACKING,
    ContextualPositionBasedUser,
    PositionBasedUser,
    relevance_probability,
)


def test_relevance_probability_of_the_grades():
    expected = [0.1 + 0.9 * (2**y - 1) / 15 for y in range(5)]
    np.testing.assert_allclose(relevance_probability(range(5)), expected)
    np.testing.assert_allclose(relevance_probability([0, 1], noise=0, max_grade=1), [0, 1])
    np.testing.assert_allclose(
        relevance_probability(range(5), gain="linear"), [0.1, 0.325, 0.55, 0.775, 1]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grade": [5]}, "grade is 5"),
        ({"grade": [-1]}, "grade is -1"),
        ({"grade": [np.nan]}, "grade is nan"),
        ({"grade": [1], "noise": 1.5}, "noise"),
        ({"grade": [1], "max_grade": 0}, "max_grade"),
        ({"grade": [1], "gain": "log"}, "gain"),
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


def test_examination_ends_where_it_is_known():
    with pytest.raises(ValueError, match="given for 10 positions"):
        PositionBasedUser().examination_at(11)
    assert len(PositionBasedUser(1.5).examination_at(100)) == 100


@pytest.mark.parametrize(
    "bad", ["power-law", "1.5", [], [0.5, 1.1], [-0.1], [np.nan], [[0.5]], -1, np.inf]
)
def test_bad_examination(bad):
    with pytest.raises(ValueError, match="examination must be"):
        PositionBasedUser(bad)


# --------------------------------------------------------------------------------------
# Contexts
# --------------------------------------------------------------------------------------
def test_contexts_are_drawn_as_documented():
    user = ContextualPositionBasedUser(random_state=0)
    assert user.context_vectors.shape == (5_000, 10)
    assert abs(user.context_vectors.mean()) < 5 * 0.35 / np.sqrt(50_000)
    assert abs(user.context_vectors.std() - 0.35) < 5 * 0.35 / np.sqrt(100_000)
    weights = np.concatenate(
        [
            ContextualPositionBasedUser(n_contexts=1, random_state=i, eta=2.0).weights
            for i in range(100)
        ]
    )
    assert weights.min() < -1.9 < 1.9 < weights.max()
    assert np.abs(weights).max() <= 2
    np.testing.assert_allclose(user.examination_at(10), EYE_TRACKING)


def test_examination_table_by_hand():
    user = ContextualPositionBasedUser(examination=1.0, n_contexts=40, scale=1.0, random_state=1)
    table = user.examination_table(3)
    for v, row in zip(user.context_vectors, table, strict=True):
        exponent = max(sum(a * b for a, b in zip(v, user.weights, strict=True)) + 1, 0)
        np.testing.assert_allclose(row, [1, 0.5**exponent, (1 / 3) ** exponent])
    assert (table[:, 1] == 1).any()  # a context in which everything is examined
    np.testing.assert_allclose(
        ContextualPositionBasedUser(eta=0, random_state=0).examination_table(10)[[0, -1]],
        np.tile(EYE_TRACKING, (2, 1)),
    )
    never = ContextualPositionBasedUser([1.0, 0.0], scale=9.0, random_state=0)
    assert (never.examination_table(2)[:, 1] == 0).all()


def test_same_seed_same_contexts():
    one, same, other = (
        ContextualPositionBasedUser(n_contexts=9, random_state=i) for i in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.examination_table(5), same.examination_table(5))
    assert not np.allclose(one.context_vectors, other.context_vectors)
    unseeded = ContextualPositionBasedUser(n_contexts=9)
    np.testing.assert_array_equal(unseeded.examination_table(5), unseeded.examination_table(5))


def test_without_contexts_users_are_position_based():
    user, relevance = ContextualPositionBasedUser(n_contexts=2), np.tile([0.2, 0.9, 1.0], (999, 1))
    neutral = user.click(relevance, np.random.default_rng(0))
    expected = PositionBasedUser().click(relevance, np.random.default_rng(0))
    np.testing.assert_array_equal(neutral, expected)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_contexts": 0},
        {"n_contexts": 2.0},
        {"n_features": -1},
        {"scale": -0.1},
        {"eta": np.inf},
        {"assign": "query"},
        {"random_state": "seed"},
        {"examination": [2.0]},
    ],
)
def test_bad_context_arguments(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        ContextualPositionBasedUser(**arguments)
