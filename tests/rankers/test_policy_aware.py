"""Propensities over all pages of a query, also those that did not show a document."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from skultr._log._clicklog import make_click_log
from skultr.exceptions import UnstableWeightsWarning
from skultr.propensity._source import (
    average_propensities,
    examples_of_kinds,
    shares_of_pages,
)
from skultr.rankers import LambdaMARTRanker

from .._worlds import random_lists


@cache
def _log():
    """A read log of 100 pages of two rows: document 2 is on a tenth of them, at the bottom."""
    X = pd.DataFrame({"qid": 1, "session": [0, 0, 1, 1, 2, 2], "doc": [0, 1, 1, 0, 0, 2]})
    X["position"] = [1, 2] * 3
    X["impressions"] = np.repeat([60.0, 30.0, 10.0], 2)
    X["propensity"] = np.tile([0.8, 0.4], 3)
    rate = np.array([0.5, 0.1, 0.3, 0.2, 0.6, 0.2])
    log = make_click_log(X, X[["doc"]].to_numpy(np.float32), rate)
    return average_propensities(log)


#: Clicks of each document of that log, by hand.
CLICKS = np.array([0.5 * 60 + 0.2 * 30 + 0.6 * 10, 0.1 * 60 + 0.3 * 30, 0.2 * 10])


def _labels(clip, debiasing="policy-aware", **parameters):
    """Label and weight of each document, as trees learn from them."""
    log = _log()
    ranker = LambdaMARTRanker(debiasing=debiasing, **parameters)
    ranker.clip_ = clip
    version, labels, _ = examples_of_kinds(log, ranker._kinds_of_clicks(log), log.query, 1.0)
    order = np.argsort(version)
    return labels.label[order], labels.weight[order]


def test_shares_of_pages_by_hand():
    log = _log()
    np.testing.assert_allclose(shares_of_pages(log), np.take([1.0, 0.9, 0.1], log.doc))


def test_without_a_bound_labels_and_weights_are_the_user_aware_ones():
    # Clicks per examination, and examinations.
    examined = np.array([68.0, 48.0, 4.0])
    for debiasing in ("user-aware", "policy-aware"):
        np.testing.assert_allclose(_labels(None, debiasing), [CLICKS / examined, examined])


def test_the_bound_is_of_all_pages():
    label, weight = _labels(0.2)
    # 2 clicks over 100 pages that count as examined 0.2 times; 4 examinations before.
    assert label[2] == pytest.approx(2 / 20)
    assert weight[2] == pytest.approx(20)
    # The others are examined more often.
    np.testing.assert_allclose(label[:2], CLICKS[:2] / [68, 48])
    plain, _ = _labels(0.2, "user-aware")
    assert plain[2] == pytest.approx(2 / 4)


def test_doubly_robust_labels_fill_in_the_pages_that_did_not_show_it():
    label, weight = _labels(0.2, correction="doubly_robust")
    # The log has one query: clicks per examination of all documents stand for the model.
    modelled = CLICKS.sum() / (68 + 48 + 4)
    # 4 of 20 examinations have 2 clicks, and 16 those of the model.
    assert label[2] == pytest.approx((2 + 16 * modelled) / 20)
    assert weight[2] == pytest.approx(20)


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
@pytest.mark.filterwarnings("ignore:LambdaMARTRanker gives all documents .* the same score")
def test_weights_that_all_pages_bound_are_no_reason_to_warn():
    """Each query has a click at propensity 1, and one at .1 that a tenth of its pages showed."""
    X = pd.DataFrame({"qid": np.repeat(np.arange(30), 4), "session": np.repeat(np.arange(60), 2)})
    X["doc"] = [0, 1, 0, 2] * 30
    X["position"] = [1, 2] * 60
    X["impressions"] = [9.0, 9.0, 1.0, 1.0] * 30
    clicks = [0, 0, 1, 1] * 30
    X["f0"] = np.linspace(0, 1, 120)
    settings = {"propensity": [1.0, 0.1], "n_estimators": 2, "early_stopping": False}
    with pytest.warns(UnstableWeightsWarning, match="60 clicks carry the information of 36"):
        LambdaMARTRanker(debiasing="user-aware", clip=0.1, **settings).fit(X, clicks)
    # .1 over a tenth of the pages bounds both weights to 1.
    LambdaMARTRanker(debiasing="policy-aware", clip=0.1, **settings).fit(X, clicks)


@pytest.mark.parametrize("traffic_exponent", [0.0, 0.5, 1.0])
def test_trees_with_pages_that_show_some_documents(traffic_exponent):
    """Queries of 4 and of 8 documents, of which pages show three: none counts for more."""
    log, clicks = random_lists(n_sessions=900, n_queries=30, n_documents=8, n_shown=3)
    is_kept = (log["qid"] % 2 == 0) | (log["doc"] % 8 < 4)
    log = log[is_kept]
    clicks = clicks[is_kept]
    settings = {"propensity": [1.0, 0.5, 0.2], "traffic_exponent": traffic_exponent}
    settings |= {"n_estimators": 20, "random_state": 0, "early_stopping": False}
    scores = {}
    for debiasing in ("user-aware", "policy-aware"):
        for clip in (None, 1.0):
            ranker = LambdaMARTRanker(debiasing=debiasing, clip=clip, **settings)
            scores[debiasing, clip] = ranker.fit(log, clicks).predict(log)
    same = scores["policy-aware", None], scores["user-aware", None]
    np.testing.assert_allclose(*same, atol=1e-6)
    other = scores["policy-aware", 1.0], scores["user-aware", 1.0]
    assert np.abs(np.subtract(*other)).max() > 1e-6
