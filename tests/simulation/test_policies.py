from itertools import permutations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skultr.datasets import make_ltr
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    UniformPolicy,
    _policies,
    hidden_signal_scores,
    production_scores,
)

OFFSETS = np.array([0, 3, 3, 8])  # three queries, the second without documents
POLICIES = [DeterministicPolicy(), PlackettLucePolicy(0.5), UniformPolicy()]


def rng(seed=0):
    return np.random.default_rng(seed)


def test_deterministic_order_and_ties():
    scores = np.array([0.5, 0.9, 0.5, 1, 2, 3, 4, 5.0])
    rows = DeterministicPolicy().rank(scores, OFFSETS, np.array([2, 0, 1]), 4)
    assert rows.tolist() == [[7, 6, 5, 4], [1, 0, 2, -1], [-1] * 4]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n_positions", [1, 2, 4, 9])
def test_lists_are_distinct_documents_of_the_query(policy, n_positions):
    query = rng().integers(3, size=500)
    rows = policy.rank(rng(1).normal(size=8), OFFSETS, query, n_positions, rng(2))
    assert rows.shape == (500, n_positions)
    for q, row in zip(query, rows, strict=True):
        n_shown = min(n_positions, OFFSETS[q + 1] - OFFSETS[q])
        assert (row[n_shown:] == -1).all()
        assert len(set(row[:n_shown])) == n_shown
        assert all(OFFSETS[q] <= document < OFFSETS[q + 1] for document in row[:n_shown])


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_plackett_luce_frequencies_match_enumeration(temperature):
    scores, n_sessions = np.array([0.2, 0.0, 0.5]), 200_000
    policy = PlackettLucePolicy(temperature)
    rows = policy.rank(scores, np.array([0, 3]), np.zeros(n_sessions, dtype=int), 3, rng())
    strength = np.exp(scores / temperature)
    for order in permutations(range(3)):
        p, left = 1.0, strength.sum()
        for document in order:
            p *= strength[document] / left
            left -= strength[document]
        frequency = np.mean((rows == order).all(axis=1))
        assert abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / n_sessions)


def test_top_of_a_long_list_has_the_same_distribution():
    # Ten of fifty documents take the way of the partial sort.
    scores, n_sessions = np.linspace(0, 1, 50), 100_000
    rows = PlackettLucePolicy(0.2).rank(
        scores, np.array([0, 50]), np.zeros(n_sessions, dtype=int), 10, rng()
    )
    p = np.exp(scores / 0.2) / np.exp(scores / 0.2).sum()
    frequency = np.bincount(rows[:, 0], minlength=50) / n_sessions
    assert np.all(np.abs(frequency - p) < 5 * np.sqrt(p / n_sessions))
    second = np.sum(p[:, None] * p / (1 - p[:, None]) * (1 - np.eye(50)), axis=0)
    frequency = np.bincount(rows[:, 1], minlength=50) / n_sessions
    assert np.all(np.abs(frequency - second) < 5 * np.sqrt(second / n_sessions))


def test_uniform_ignores_scores():
    rows = UniformPolicy().rank(
        np.array([0.0, 100.0, 5.0]), np.array([0, 3]), np.zeros(60_000, dtype=int), 3, rng()
    )
    for order in permutations(range(3)):
        frequency = np.mean((rows == order).all(axis=1))
        assert abs(frequency - 1 / 6) < 5 * np.sqrt(5 / 36 / 60_000)


def test_low_temperature_is_deterministic():
    scores, query = rng().normal(size=8), rng(1).integers(3, size=50)
    np.testing.assert_array_equal(
        PlackettLucePolicy(1e-4).rank(scores, OFFSETS, query, 5, rng(2)),
        DeterministicPolicy().rank(scores, OFFSETS, query, 5),
    )


def test_chunks_cover_every_session(monkeypatch):
    monkeypatch.setattr(_policies, "_DRAWS_AT_ONCE", 7)
    query = rng().integers(3, size=101)
    rows = UniformPolicy().rank(np.zeros(8), OFFSETS, query, 9, rng(1))
    np.testing.assert_array_equal((rows >= 0).sum(axis=1), np.diff(OFFSETS)[query])


@pytest.mark.parametrize("temperature", [0, -1, np.inf, np.nan, "hot"])
def test_bad_temperature(temperature):
    with pytest.raises(ValueError, match="temperature"):
        PlackettLucePolicy(temperature)


# --------------------------------------------------------------------------------------
# production_scores
# --------------------------------------------------------------------------------------
def test_production_ranker_beats_chance_and_improves_with_labels():
    documents = make_ltr(400, random_state=0)
    within = documents["relevance"] - documents.groupby("qid")["relevance"].transform("mean")

    def quality(fraction):
        scores = production_scores(documents, fraction=fraction, random_state=0)
        return np.corrcoef(scores, within)[0, 1]

    assert 0.1 < quality(0.01) < quality(0.5)


def test_production_ranker_sees_only_its_queries():
    documents = make_ltr(200, 10, 8, random_state=0)
    scores = production_scores(documents, fraction=0.05, random_state=0)
    changed = 0
    for first in range(0, 200, 20):
        other = documents.copy()
        block = other["qid"].between(first, first + 19)
        other.loc[block, "relevance"] = 4 - other.loc[block, "relevance"]
        changed += not np.array_equal(
            scores, production_scores(other, fraction=0.05, random_state=0)
        )
    assert 1 <= changed < 10  # ten queries were drawn; blocks without one make no difference


def test_production_ranker_draws_on_until_there_is_something_to_learn():
    documents = make_ltr(100, 5, 4, random_state=0)
    documents["relevance"] = (documents.index == 17).astype(int)
    assert np.ptp(production_scores(documents, random_state=0)) > 0


def test_production_scores_follow_the_rows():
    documents = make_ltr(50, (1, 9), 6, random_state=0)
    order = rng().permutation(len(documents))
    shuffled = production_scores(documents.iloc[order], random_state=0)
    expected = production_scores(documents, random_state=0)[order]
    np.testing.assert_allclose(shuffled, expected, rtol=1e-5)  # features are float32


def test_own_estimator_is_seeded_and_left_unfitted():
    documents = make_ltr(50, 5, 6, random_state=0)
    forest = RandomForestRegressor(3)
    one, two = (
        production_scores(documents, fraction=0.5, estimator=forest, random_state=0)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    assert not hasattr(forest, "estimators_")
    assert forest.random_state is None


def test_production_scores_bad_input():
    documents = make_ltr(5, 5, 3, random_state=0)
    with pytest.raises(ValueError, match="no column 'relevance'"):
        production_scores(documents.drop(columns="relevance"))
    with pytest.raises(ValueError, match="no feature column"):
        production_scores(documents[["qid", "doc", "relevance"]])
    with pytest.raises(ValueError, match="two different grades"):
        production_scores(documents.assign(relevance=1))
    with pytest.raises(ValueError, match="nan in row 0"):
        production_scores(documents.assign(relevance=np.nan))
    with pytest.raises(ValueError, match="fraction"):
        production_scores(documents, fraction=0)
    with pytest.raises(ValueError, match="empty"):
        production_scores(documents[:0])


@pytest.mark.parametrize(
    ("scores", "relevance"), [([], []), ([1.0, 2.0], [1, 1]), ([1.0], [0, 1])], ids=str
)
def test_hidden_signal_of_nothing(scores, relevance):
    with pytest.raises(ValueError, match="expected one number per document"):
        hidden_signal_scores(scores, relevance)
