"""Which rows are one list, and which lists are one: seen through the ``fit`` of a ranker."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skultr.click_models import DCTRModel
from skultr.rankers._ranker import BaseRanker


class Recorder(BaseRanker):
    """A ranker that keeps the lists it should learn from."""

    _parameter_constraints = {}

    def _fit(self, log, task):
        self.log_ = log


def folded(log, clicks=None):
    """The distinct lists of a log."""
    clicks = np.arange(len(log)) % 2 if clicks is None else clicks
    return Recorder().fit(log, clicks).log_


def one_list(session=0, **roles):
    """Three documents of a query in their order."""
    roles = {"qid": 0, "position": [1, 2, 3], "bias": 1, **roles}
    return pd.DataFrame({"session": session, "doc": [0, 1, 2], "f0": [0.0, 1.0, 2.0], **roles})


def two_lists(**second):
    return pd.concat([one_list(0), one_list(1, **second)], ignore_index=True)


def test_sessions_may_be_numbered_within_each_query():
    """More queries than numbers of sessions: (query, session) pairs must not be mixed up."""
    n_queries, n_sessions = 7, 2
    log = pd.concat(
        [
            one_list(session, qid=query, doc=3 * query + np.arange(3), f0=query + np.arange(3))
            for query in range(n_queries)
            for session in range(n_sessions)
        ],
        ignore_index=True,
    )
    made = folded(log)
    assert made.n_lists == n_queries
    np.testing.assert_array_equal(made.weight, n_sessions)
    np.testing.assert_array_equal(made.query[made.offsets[:-1]], np.arange(n_queries))


def test_equal_lists_are_one():
    assert folded(two_lists()).n_lists == 1


@pytest.mark.parametrize(
    "second",
    [{"position": [1, 2, 4]}, {"bias": [1, 1, 2]}, {"doc": [0, 2, 1], "f0": [0.0, 2.0, 1.0]}],
    ids=["gap", "bias", "order"],
)
def test_lists_that_differ_in_one_respect_stay_apart(second):
    made = folded(two_lists(**second))
    assert made.n_lists == 2
    np.testing.assert_array_equal(made.weight, 1)


def test_clicks_that_a_sample_weight_leaves_out_are_not_lost():
    log = two_lists()
    weight = np.where(log["session"] == 0, 1.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DCTRModel().fit(log, np.ones(len(log)), sample_weight=weight)


@pytest.mark.parametrize("position", [2**53, 2**60])
def test_positions_that_a_double_does_not_tell_apart_are_refused(position):
    log = one_list(position=[1, 2, position])
    with pytest.raises(ValueError, match="position"):
        DCTRModel().fit(log, [1, 0, 1])
