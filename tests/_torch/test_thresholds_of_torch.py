"""Both sides of each number that decides something about a user's training.

That relevance alone explains the clicks in a share of it, ``RELEVANCE_FIRST``, is held by
``test_joint.py``.
"""

from types import SimpleNamespace

import pytest

from skultr._torch._net import AdamW
from skultr._torch._thresholds import (
    CLICKS_PER_FEATURE,
    FEW_QUERIES,
    LARGEST_PENALTY,
    QUERIES_PER_FEATURE,
    STEPS_OF_300_QUERIES,
    WHOLE_DECAY,
)
from skultr.rankers import NaiveRanker


class _Lists(SimpleNamespace):
    """Lists of so many queries and features; all are one step."""

    def __len__(self):
        return 1


def _n_steps(n_queries, n_features=1):
    lists = _Lists(n_queries=n_queries, n_features=n_features)
    return NaiveRanker()._epochs(lists, batch_size=1, validation=None)


@pytest.mark.parametrize(("n_queries", "n_steps"), [(300, 1), (1_200, 2)])
def test_steps_are_those_of_300_queries_times_a_root(n_queries, n_steps):
    assert _n_steps(n_queries) == STEPS_OF_300_QUERIES.value * n_steps


def test_few_queries_are_learned_as_long_as_300():
    assert _n_steps(FEW_QUERIES.value - 1) == _n_steps(300)
    assert _n_steps(FEW_QUERIES.value) < _n_steps(300) / 2


def test_a_training_is_shorter_where_queries_per_feature_are_few():
    supported = 300 // QUERIES_PER_FEATURE.value
    assert _n_steps(300, supported) == _n_steps(300)
    assert _n_steps(300, 2 * supported) == _n_steps(300) / 2


@pytest.mark.parametrize("n_queries", [10, 300, 1_200])
def test_weights_without_a_gradient_fall_to_55_percent(n_queries):
    lists = _Lists(n_queries=n_queries, n_features=1)
    step_size = 0.003
    decay = NaiveRanker()._decay(lists, AdamW, step_size)
    kept = (1 - step_size * decay) ** _n_steps(n_queries)
    assert kept == pytest.approx(0.55, abs=0.002)
    assert NaiveRanker()._decay(lists, None, step_size) == 0
    assert 0.5 < WHOLE_DECAY.value < 0.7


def test_few_clicks_per_feature_have_a_penalty():
    enough = 7 * CLICKS_PER_FEATURE.value
    assert NaiveRanker()._penalty(7, enough) == 0
    assert NaiveRanker()._penalty(7, enough / 2) == pytest.approx(7 / enough)
    assert NaiveRanker(weight_decay=0.0)._penalty(7, enough / 2) == 0


@pytest.mark.parametrize("n_clicks", [0, 1, 50])
def test_the_penalty_has_a_bound(n_clicks):
    assert NaiveRanker()._penalty(100, n_clicks) == LARGEST_PENALTY.value
    assert 0 < NaiveRanker()._penalty(100, 2_000) < LARGEST_PENALTY.value
