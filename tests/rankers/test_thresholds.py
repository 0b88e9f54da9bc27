"""Each number that decides something, on both sides."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skultr.exceptions import ClickDataWarning
from skultr.rankers import EnsembleRanker, IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.rankers._candidates import DistinctCandidates
from skultr.rankers._ensemble import _bounded, _put_in_front
from skultr.rankers._thresholds import SHARE_OF_PRODUCTION


def _log(n_queries, n_clicks, *, n_documents=4):
    """Documents that moved between all positions; each query has as many clicks."""
    rng = np.random.default_rng(0)
    rows = []
    for query in range(n_queries):
        features = rng.normal(size=(n_documents, 2))
        for turn in range(n_documents):
            for place in range(n_documents):
                document = (turn + place) % n_documents
                rows.append((query, turn, document, place + 1, *features[document]))
    log = pd.DataFrame(rows, columns=["qid", "session", "doc", "position", "a", "b"])
    log["impressions"] = 1_000
    return log, np.full(len(log), n_clicks / n_documents**2)


@pytest.mark.parametrize(("n_clicks", "form"), [(99, "offset"), (101, "divide")])
def test_clicks_are_divided_where_they_are_many(n_clicks, form):
    log, clicks = _log(6, n_clicks)
    ranker = IPSRanker(propensity=[1.0] * 4, max_epochs=1, random_state=0)
    assert ranker.fit(log, clicks / 1_000).correction_ == form


@pytest.mark.parametrize("n_clicks", [4.9, 5.1])
def test_few_clicks_are_told(n_clicks, recwarn):
    log, clicks = _log(10, n_clicks)
    IPSRanker(propensity=[1.0] * 4, max_epochs=1, random_state=0).fit(log, clicks / 1_000)
    told = [each for each in recwarn if "clicks per query with clicks" in str(each.message)]
    assert len(told) == (n_clicks < 5)
    assert all(each.category is ClickDataWarning for each in told)


@pytest.mark.parametrize("n_candidates", [40, 41])
def test_only_the_first_of_many_candidates_are_ranked_anew(n_candidates):
    served = np.arange(n_candidates, 0.0, -1.0)
    query = np.zeros(n_candidates, dtype=int)
    parts = np.arange(n_candidates, dtype=float)[:, None]  # the reverse of production
    _put_in_front(parts, served, query, DistinctCandidates(slice(None), slice(None)), 10)
    best = int(parts[:, 0].argmax())
    assert best == (9 if n_candidates > 40 else n_candidates - 1)


@pytest.mark.parametrize(("n_clicked", "n_leaves"), [(12_499, 4), (12_500, 5)])
def test_trees_have_a_leaf_for_so_many_documents_with_clicks(n_clicked, n_leaves):
    assert LambdaMARTRanker()._leaves(n_clicked) == n_leaves


@pytest.mark.parametrize(("found", "kept"), [(0.89, 0.89), (0.9, 0.9), (0.91, 0.9), (1.0, 0.9)])
def test_production_has_nine_tenths_of_the_weight_at_most(found, kept):
    weights, error = _bounded(np.array([1 - found, found]), np.ones(2), np.array([0.5, 0.5]))
    np.testing.assert_allclose(weights, [1 - kept, kept])
    assert (error < 1).all() == (found > kept)


@pytest.mark.parametrize("n_queries", [9, 10])
def test_few_queries_weigh_nothing(n_queries):
    log, clicks = _log(n_queries, 20)
    ranker = NaiveRanker(max_epochs=1)
    log["production"] = -log["doc"].to_numpy(dtype=float)
    ensemble = EnsembleRanker([("naive", ranker)], propensity=[1.0] * 4, random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ensemble.fit(log, clicks / 1_000)
    assert bool(told) == (n_queries < 10)
    weight = ensemble.weights_.loc["production", "weight"]
    assert (weight == SHARE_OF_PRODUCTION.value) == (n_queries < 10)
