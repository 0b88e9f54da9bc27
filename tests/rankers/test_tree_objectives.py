"""Gradients against finite differences and plain double loops; laws of the losses."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.special import expit

from skultr.rankers._learners import LambdaObjective, PairObjective, SoftmaxObjective

GROUP = np.array([1, 7, 3, 4, 2, 12])
STARTS = np.cumsum(GROUP) - GROUP


def _problem(seed=0):
    rng = np.random.default_rng(seed)
    n_rows = GROUP.sum()
    label = rng.random(n_rows) * (rng.random(n_rows) < 0.7)
    return label, rng.normal(size=n_rows), rng.uniform(0.2, 9, n_rows)


def _softmax_loss(label, score, weight):
    loss = 0.0
    for start, length in zip(STARTS, GROUP, strict=True):
        rows = slice(start, start + length)
        share = weight[rows] * np.exp(score[rows])
        loss -= (weight[rows] * label[rows] * np.log(share / share.sum())).sum()
    return loss


def _ranks(score):
    """Ranks from 1 in each query; ties in the order of the rows."""
    rank = np.empty(len(score), dtype=int)
    for start, length in zip(STARTS, GROUP, strict=True):
        order = sorted(range(start, start + length), key=lambda row: (-score[row], row))
        rank[order] = np.arange(1, length + 1)
    return rank


def _pair_loss(score, rank, wins, level):
    """The loss over (winner, loser, weight), with the ranks given."""
    loss = 0.0
    for i, j, weight in wins:
        if min(rank[i], rank[j]) <= (level or np.inf):
            change = abs(1 / np.log2(1 + rank[i]) - 1 / np.log2(1 + rank[j]))
            loss += weight * change * np.log1p(np.exp(score[j] - score[i]))
    return loss


def _all_pairs(label, weight):
    for start, length in zip(STARTS, GROUP, strict=True):
        for i in range(start, start + length):
            for j in range(start, start + length):
                if i != j:
                    harmonic = 2 * weight[i] * weight[j] / (weight[i] + weight[j])
                    yield i, j, harmonic * label[i]


def _differences(loss, score, step):
    """First and second derivatives in each score."""
    gradient, hessian = np.empty(len(score)), np.empty(len(score))
    for row in range(len(score)):
        up, down = score.copy(), score.copy()
        up[row] += step
        down[row] -= step
        up, here, down = loss(up), loss(score), loss(down)
        gradient[row] = (up - down) / (2 * step)
        hessian[row] = (up - 2 * here + down) / step**2
    return gradient, hessian


def test_softmax_against_finite_differences():
    label, score, weight = _problem()
    gradient, hessian = SoftmaxObjective()(label, score, weight, GROUP)
    expected = _differences(lambda s: _softmax_loss(label, s, weight), score, 1e-4)
    np.testing.assert_allclose(gradient, expected[0], atol=1e-6)
    np.testing.assert_allclose(hessian, expected[1], atol=1e-5)
    per_click = _softmax_loss(label, score, weight) / (label @ weight)
    assert SoftmaxObjective().loss(label, score, weight, GROUP) == pytest.approx(per_click)


def test_softmax_is_least_at_the_labels_however_unevenly_documents_were_shown():
    label, _, weight = _problem()
    label = label + 0.1
    gradient, _ = SoftmaxObjective()(label, np.log(label), weight, GROUP)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_softmax_survives_any_score_and_queries_that_weigh_nothing():
    label, score, weight = _problem()
    weight[1:8] = 0.0
    for objective in (SoftmaxObjective(), LambdaObjective()):
        for derivative in objective(label, score * 1e4, weight, GROUP):
            assert np.isfinite(derivative).all()
            np.testing.assert_array_equal(derivative[1:8], 0)
    assert np.isfinite(SoftmaxObjective().loss(label, score * 1e4, weight, GROUP))


@pytest.mark.parametrize("level", [None, 1, 2, 5, 30])
def test_lambda_against_a_double_loop(level):
    label, score, weight = _problem()
    rank = _ranks(score)
    wins = list(_all_pairs(label, weight))
    gradient, hessian = LambdaObjective(level)(label, score, weight, GROUP)
    expected = _differences(lambda s: _pair_loss(s, rank, wins, level), score, 1e-4)
    np.testing.assert_allclose(gradient, expected[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(hessian, expected[1], rtol=1e-4, atol=1e-4)


def test_ties_rank_in_the_order_of_the_rows():
    label, _, weight = _problem()
    score = np.zeros(len(label))
    wins = list(_all_pairs(label, weight))
    gradient, _ = LambdaObjective(3)(label, score, weight, GROUP)
    expected = _differences(lambda s: _pair_loss(s, _ranks(score), wins, 3), score, 1e-4)
    np.testing.assert_allclose(gradient, expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [None, 2])
def test_given_pairs_against_a_loop(level):
    _, score, _ = _problem()
    rng = np.random.default_rng(1)
    winner, loser, pair_weight = [], [], rng.random(40)
    for query in rng.choice(np.flatnonzero(GROUP > 1), 40):
        i, j = rng.choice(GROUP[query], 2, replace=False) + STARTS[query]
        winner.append(i)
        loser.append(j)
    objective = PairObjective(np.array(winner), np.array(loser), pair_weight, level)
    gradient, hessian = objective(None, score, None, GROUP)
    wins = list(zip(winner, loser, pair_weight, strict=True))
    expected = _differences(lambda s: _pair_loss(s, _ranks(score), wins, level), score, 1e-4)
    np.testing.assert_allclose(gradient, expected[0], atol=1e-6)
    np.testing.assert_allclose(hessian, expected[1], atol=1e-5)


@pytest.mark.parametrize("level", [None, 3])
def test_all_pairs_given_are_the_lambda_loss(level):
    label, score, weight = _problem()
    winner, loser, pair_weight = map(np.array, zip(*_all_pairs(label, weight), strict=True))
    given = PairObjective(winner, loser, pair_weight, level)(label, score, weight, GROUP)
    both = LambdaObjective(level)(label, score, weight, GROUP)
    np.testing.assert_allclose(given, both, rtol=1e-4, atol=1e-5)


def test_pairs_follow_their_rows():
    label, score, _ = _problem()
    # Queries stay where they are, rows move within.
    lists = zip(STARTS, GROUP, strict=True)
    order = np.concatenate([start + np.arange(length)[::-1] for start, length in lists])
    winner, loser = np.array([1, 8, 20]), np.array([3, 10, 28])
    objective = PairObjective(winner, loser, np.array([1.0, 2.0, 3.0]))
    moved = objective.reordered(order)(label, score[order], None, GROUP)
    np.testing.assert_allclose(moved, np.array(objective(label, score, None, GROUP))[:, order])


@pytest.mark.parametrize("objective", [SoftmaxObjective(), LambdaObjective()])
def test_losses_are_linear_in_the_labels(objective):
    label, score, weight = _problem()
    other = _problem(seed=1)[0]
    parts = np.array(objective(label, score, weight, GROUP))
    parts += objective(other, score, weight, GROUP)
    both = objective(label + other, score, weight, GROUP)
    np.testing.assert_allclose(both, parts, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", [SoftmaxObjective(), LambdaObjective()])
def test_no_weight_is_equal_weight(objective):
    label, score, _ = _problem()
    np.testing.assert_allclose(
        objective(label, score, None, GROUP), objective(label, score, np.ones(29), GROUP)
    )


def test_lambda_prefers_the_better_of_two_whatever_ranks_first():
    label = np.array([0.2, 0.6])
    for score in ([1.0, -1.0], [-1.0, 1.0]):
        gradient, hessian = LambdaObjective()(label, np.array(score), None, [2])
        # Least where the odds are those of the labels.
        expected = np.sign(expit(score[0] - score[1]) - 0.25)
        assert np.sign(gradient[0]) == -np.sign(gradient[1]) == expected
        assert (hessian > 0).all()


def test_a_query_of_any_length_in_linear_memory():
    n_rows = 30_000
    rng = np.random.default_rng(0)
    label, score = rng.random(n_rows), rng.normal(size=n_rows)
    tracemalloc.start()
    for objective in (SoftmaxObjective(), LambdaObjective()):
        gradient, _ = objective(label, score, None, [n_rows])
        assert abs(gradient.sum()) < 1e-3 * np.abs(gradient).sum()
    assert tracemalloc.get_traced_memory()[1] < 200 * 8 * n_rows
    tracemalloc.stop()


@pytest.mark.parametrize(
    "objective",
    [
        SoftmaxObjective(),
        LambdaObjective(7),
        PairObjective(np.array([1]), np.array([2]), np.array([1.5])),
    ],
)
def test_pickled_objectives_are_the_same(objective):
    label, score, weight = _problem()
    again = pickle.loads(pickle.dumps(objective))
    np.testing.assert_array_equal(
        again(label, score, weight, GROUP), objective(label, score, weight, GROUP)
    )
