"""Logs with one row per page, as of feeds and bandits: rows of a query are compared instead."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from skultr._log._clicklog import make_click_log
from skultr.exceptions import ClickDataWarning
from skultr.rankers import (
    AffineRanker,
    DLARanker,
    EnsembleRanker,
    IPSRanker,
    NaiveRanker,
    PairDebiasRanker,
    PRSRanker,
    RegressionEMRanker,
    TwoTowerRanker,
    VectorizationRanker,
)

FEATURES = ["a", "b", "c", "d"]
EXAMINATION = np.array([1.0, 0.6, 0.4])
N_DOCUMENTS = 10


def world(n_queries, n_pages=20_000, seed=0):
    """Documents with their relevance, and a log of pages that show one of them each.

    The more relevant a document, the less often it is shown: impressions alone mislead.
    """
    rng = np.random.default_rng(seed)
    shape = n_queries, N_DOCUMENTS
    features = rng.normal(size=(*shape, len(FEATURES)))
    relevance = expit(features @ np.array([1.0, -1.0, 0.5, 0.5]) - 1)
    query = rng.integers(n_queries, size=n_pages)
    chance = np.exp(-2 * relevance).cumsum(axis=1)
    doc = (rng.random((n_pages, 1)) * chance[query, -1:] > chance[query]).sum(axis=1)
    position = rng.integers(1, len(EXAMINATION) + 1, size=n_pages)
    log = pd.DataFrame(features[query, doc], columns=FEATURES)
    log = log.assign(qid=query, doc=doc, session=np.arange(n_pages), position=position)
    log["click"] = rng.binomial(1, relevance[query, doc] * EXAMINATION[position - 1])
    documents = pd.DataFrame(features.reshape(-1, len(FEATURES)), columns=FEATURES)
    query, doc = np.divmod(np.arange(relevance.size), N_DOCUMENTS)
    return documents.assign(qid=query, doc=doc), relevance, log


def correlation(ranker, documents, relevance):
    """Mean over queries of the correlation of scores with relevance."""
    scores = ranker.predict(documents).reshape(relevance.shape)
    return np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(scores, relevance, strict=True)])


@pytest.mark.parametrize(
    "ranker",
    [
        NaiveRanker(),
        IPSRanker(),
        IPSRanker(propensity=EXAMINATION, correction="divide", clip=None),
        IPSRanker(propensity=EXAMINATION, correction="offset", clip=None),
        DLARanker(),
        DLARanker(examination="network"),
        RegressionEMRanker(),
        RegressionEMRanker(examination="table"),
        TwoTowerRanker(),
        AffineRanker(),
        VectorizationRanker(n_networks=1),
        EnsembleRanker(),
    ],
    ids=repr,
)
def test_rankers_learn_from_pages_of_one_row(ranker):
    documents, relevance, log = world(30)
    ranker.set_params(random_state=0).fit(log, "click")
    assert correlation(ranker, documents, relevance) > 0.85


@pytest.mark.filterwarnings("ignore:early_stopping needs")
@pytest.mark.parametrize("ranker", [IPSRanker(), DLARanker(), RegressionEMRanker()], ids=repr)
def test_one_query_is_enough(ranker):
    documents, relevance, log = world(1)
    ranker.set_params(random_state=0).fit(log, "click")
    assert correlation(ranker, documents, relevance) > 0.9


def test_dual_learning_finds_the_examination():
    _, _, log = world(30)
    ranker = DLARanker(examination="network", random_state=0).fit(log, "click")
    found = ranker.examination_["examination"]
    np.testing.assert_allclose(found, EXAMINATION, atol=0.08)


def test_rows_are_joined_only_where_pages_have_one_row():
    frame = pd.DataFrame(
        {
            "qid": [0, 0, 0, 1, 1, 2],
            "session": [0, 1, 2, 3, 3, 4],
            "doc": [0, 1, 0, 3, 4, 5],
            "position": [1, 1, 2, 1, 2, 1],
            "impressions": [3, 2, 1, 5, 5, 4],
        }
    )
    features = frame[["doc"]].to_numpy(dtype=np.float32)
    log = make_click_log(frame, features, np.ones(6))
    joined = log.comparable()
    np.testing.assert_array_equal(joined.offsets, [0, 3, 5, 6])
    np.testing.assert_array_equal(joined.weight[3:], 1)
    np.testing.assert_array_equal(joined.weight[:3], log.weight[:3])
    pages = log.select_queries(np.array([False, True, True]))
    same = pages.comparable()
    np.testing.assert_array_equal(same.offsets, pages.offsets)
    np.testing.assert_array_equal(same.weight, 1)


def test_rows_are_compared_within_pages_where_a_document_changes():
    frame = pd.DataFrame(
        {
            "qid": [0, 0, 0, 0, 1, 1, 1, 1, 2, 2],
            "session": [0, 0, 1, 1, 2, 2, 3, 3, 4, 5],
            "doc": [0, 1, 0, 1, 2, 3, 2, 3, 4, 4],
            "position": [1, 2, 1, 2, 1, 2, 2, 1, 1, 1],
        }
    )
    # Document 0 of query 0 changes, and so does that of query 2, whose pages have one row.
    features = np.array([[1, 2, 3, 2, 4, 5, 4, 5, 6, 7]], dtype=np.float32).T
    log = make_click_log(frame, features, np.ones(10))
    groups = log.compared_groups()
    np.testing.assert_array_equal(groups[log.query == 0], [0, 0, 1, 1])
    assert set(groups[log.query == 1]) == {2}
    assert set(groups[log.query == 2]) == {3}


PAIRWISE = [
    (IPSRanker(loss="pairwise"), "loss='softmax'"),
    (NaiveRanker(loss="lambda"), "loss='softmax'"),
    (PRSRanker(), "IPSRanker"),
    (PairDebiasRanker(), "DLARanker"),
]


@pytest.mark.parametrize(("ranker", "instead"), PAIRWISE, ids=repr)
def test_rankers_by_pairs_of_a_page_warn(ranker, instead):
    _, _, log = world(20, n_pages=1_000)
    with pytest.warns(ClickDataWarning, match=f"100% of the clicks fell.*otherwise use {instead}"):
        ranker.fit(log, "click")


@pytest.mark.parametrize("ranker", [ranker for ranker, _ in PAIRWISE], ids=repr)
def test_no_warning_where_pages_have_several_rows(ranker):
    _, _, log = world(20, n_pages=1_000)
    log["position"] = log.index % 3 + 1
    log["session"] = log["qid"] * 1_000 + log.groupby(["qid", "position"]).cumcount()
    log = log.drop_duplicates(["session", "doc"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*of the clicks fell on pages of one row")
        ranker.fit(log, "click")
