"""Propensities over all pages of a query, also those that did not show a document."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skultr._log._clicklog import make_click_log
from skultr.propensity._source import (
    average_propensities,
    debias_clicks,
    examples_of,
    over_all_pages,
)
from skultr.rankers import LambdaMARTRanker

from .._worlds import random_lists


def _log():
    """A read log of 100 pages of two rows: document 2 is on a tenth of them, at the bottom."""
    X = pd.DataFrame({"qid": 1, "session": [0, 0, 1, 1, 2, 2], "doc": [0, 1, 1, 0, 0, 2]})
    X["position"] = [1, 2] * 3
    X["impressions"] = np.repeat([60.0, 30.0, 10.0], 2)
    X["propensity"] = np.tile([0.8, 0.4], 3)
    rate = np.array([0.5, 0.1, 0.3, 0.2, 0.6, 0.2])
    log = make_click_log(X, X[["doc"]].to_numpy(np.float32), rate)
    return average_propensities(log)


def _labels(log, clip):
    """Label and weight of each document."""
    clicks = debias_clicks(log, clip=clip).clicks
    given = replace(log, clicks=clicks)
    version, labels = examples_of(given, lambda part: np.maximum(part.propensity, clip or 0))
    order = np.argsort(version)
    return labels.label[order], labels.weight[order]


def test_examination_under_the_policy_by_hand():
    log = over_all_pages(_log())
    expected = [(0.8 * 70 + 0.4 * 30) / 100, (0.4 * 60 + 0.8 * 30) / 100, 0.4 * 10 / 100]
    np.testing.assert_allclose(log.propensity, np.take(expected, log.doc))
    np.testing.assert_allclose(np.bincount(log.doc, log.weight), 100)


def test_without_a_bound_labels_and_weights_are_the_user_aware_ones():
    log = _log()
    aware = _labels(log, None)
    np.testing.assert_allclose(_labels(over_all_pages(log), None), aware)
    # Clicks per examination, and examinations.
    examined = np.array([68.0, 48.0, 4.0])
    clicks = np.array([0.5 * 60 + 0.2 * 30 + 0.6 * 10, 0.1 * 60 + 0.3 * 30, 0.2 * 10])
    np.testing.assert_allclose(aware, [clicks / examined, examined])


def test_the_bound_is_of_all_pages():
    label, weight = _labels(over_all_pages(_log()), 0.2)
    # 2 clicks over 100 pages that count as examined 0.2 times; 4 examinations before.
    assert label[2] == pytest.approx(2 / 20)
    assert weight[2] == pytest.approx(20)
    plain, _ = _labels(_log(), 0.2)
    assert plain[2] == pytest.approx(2 / 4)


def test_doubly_robust_labels_fill_in_the_pages_that_did_not_show_it():
    log = over_all_pages(_log())
    modelled = np.full(log.n_rows, 0.6)
    found = debias_clicks(log, clip=0.2, relevance=modelled).clicks[log.doc == 2].sum() / 100
    # 4 of 20 examinations have 2 clicks, and 16 those of the model.
    assert found == pytest.approx((2 + 16 * 0.6) / 20)


def test_trees_with_pages_that_show_some_documents():
    log, clicks = random_lists(n_sessions=900, n_queries=30, n_documents=6, n_shown=3)
    settings = {"propensity": [1.0, 0.5, 0.2], "traffic_exponent": 1.0, "n_estimators": 20}
    settings |= {"random_state": 0, "early_stopping": False}
    scores = {}
    for debiasing in ("user-aware", "policy-aware"):
        for clip in (None, 1.0):
            ranker = LambdaMARTRanker(debiasing=debiasing, clip=clip, **settings)
            scores[debiasing, clip] = ranker.fit(log, clicks).predict(log)
    same = scores["policy-aware", None], scores["user-aware", None]
    np.testing.assert_allclose(*same, atol=1e-6)
    other = scores["policy-aware", 1.0], scores["user-aware", 1.0]
    assert np.abs(np.subtract(*other)).max() > 1e-6
