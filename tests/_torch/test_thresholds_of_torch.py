"""Both sides of each number that decides something about a user's training.

That relevance alone explains the clicks in a share of it, ``RELEVANCE_FIRST``, is held by
``test_joint.py``.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skultr._torch._net import AdamW
from skultr._torch._thresholds import (
    CLICKS_PER_FEATURE,
    DOCUMENTS_PER_FEATURE,
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


def _log(n_features, n_clicks, impressions_per_click=4, n_documents=1):
    """What a penalty reads of a log."""
    return SimpleNamespace(
        doc=np.repeat(np.arange(n_documents), 2),
        features=np.zeros((1, n_features)),
        clicks=np.array([n_clicks / 2, n_clicks / 2]),
        weight=np.array([impressions_per_click * n_clicks]),
    )


def test_few_clicks_per_feature_have_a_penalty():
    enough = 7 * CLICKS_PER_FEATURE.value
    assert NaiveRanker()._penalty(_log(7, enough), click_only=True) == 0
    few = _log(7, enough / 2)
    assert NaiveRanker()._penalty(few, click_only=True) == pytest.approx(7 / enough)
    # A mean over four times as many terms.
    assert NaiveRanker()._penalty(few, click_only=False) == pytest.approx(7 / enough / 4)


def test_few_documents_per_feature_have_a_penalty_where_they_are_labels():
    enough = 20 * DOCUMENTS_PER_FEATURE.value
    many_clicks = 20 * CLICKS_PER_FEATURE.value
    for n_documents, expected in ((enough, 0.0), (enough / 2, 1 / DOCUMENTS_PER_FEATURE.value)):
        log = _log(20, many_clicks, n_documents=int(n_documents))
        assert NaiveRanker()._penalty(log, click_only=True) == 0
        found = NaiveRanker()._penalty(log, click_only=True, by_document=True)
        assert found == pytest.approx(expected)
    # The scarcer one decides.
    log = _log(20, many_clicks / 20, n_documents=int(enough / 2))
    found = NaiveRanker()._penalty(log, click_only=True, by_document=True)
    assert found == LARGEST_PENALTY.value == 0.1
    found = NaiveRanker()._penalty(log, click_only=True, by_document=True, noise=0.1)
    assert found == pytest.approx(
        0.1 * (20 / CLICKS_PER_FEATURE.value - 1 / CLICKS_PER_FEATURE.value)
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.0},
        {"net_params": {"optimizer__weight_decay": 0.1}},
        {"module": lambda n_inputs: torch.nn.Linear(n_inputs, 1)},
    ],
)
def test_who_decides_about_weights_has_no_penalty(settings):
    assert NaiveRanker(**settings)._penalty(_log(7, 50), click_only=True) == 0


@pytest.mark.parametrize("n_clicks", [0, 1, 50])
def test_the_penalty_has_a_bound(n_clicks):
    penalty = NaiveRanker()._penalty(_log(100, n_clicks), click_only=True)
    assert penalty == LARGEST_PENALTY.value
    assert 0 < NaiveRanker()._penalty(_log(100, 2_000), click_only=True) < penalty
