"""Each number that decides something, on both sides."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from torch import nn

from skultr.exceptions import ClickDataWarning
from skultr.rankers import (
    CLDRanker,
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
)
from skultr.rankers._candidates import DistinctCandidates
from skultr.rankers._distilled import _has_feature_like
from skultr.rankers._ensemble import _bounded, _put_in_front
from skultr.rankers._thresholds import SHARE_OF_JUDGED, SHARE_OF_PRODUCTION
from skultr.rankers._tobit import GAMMAS, GammaProfile, TobitFit


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


@pytest.mark.parametrize(("width", "is_known"), [(0.96, True), (1.04, False)])
def test_an_interval_of_gamma_as_wide_as_half_of_all_is_none(width, is_known):
    parabola = -7.68 * (GAMMAS / width) ** 2  # 1.92 below its maximum at half of the width
    assert GammaProfile(None, parabola).is_known == is_known


@pytest.mark.parametrize(("likeliest", "is_believed"), [(0.89, True), (0.91, False)])
def test_a_correlation_near_one_is_not_believed(likeliest, is_believed):
    peak = GammaProfile(None, -1e4 * (GAMMAS - likeliest) ** 2)
    assert (peak.gamma > 0.8) == is_believed


@pytest.mark.parametrize(("noise", "is_same"), [(0.13, True), (0.15, False)])
def test_a_feature_that_is_nearly_the_score_of_production_is_taken_for_it(noise, is_same):
    served = np.array([1.0, 1.0, -1.0, -1.0])
    feature = served + noise * np.array([1.0, -1.0, 1.0, -1.0])
    other = np.array([1.0, -1.0, -1.0, 1.0])
    for sign in (1, -1):
        features = np.column_stack([other, sign * feature])
        assert _has_feature_like(features, served) == is_same


@pytest.mark.parametrize(("share", "n_told"), [(0.009, 1), (0.011, 0)])
def test_a_scale_of_nearly_nothing_is_told(share, n_told, recwarn):
    ranker = CLDRanker(loss="pointwise", hidden_layer_sizes=())
    ranker.gamma_ = 0.2
    rows = SimpleNamespace(label=np.array([1.0, -1.0]), shown=np.array([True, True]))
    fit = TobitFit(np.ones(1), 0.0, np.ones(1), 0.0, share, 0.0, np.zeros((1, 3)), 0, True, None)
    network, selection = (nn.Sequential(nn.Identity(), nn.Linear(1, 1)) for _ in range(2))
    ranker._take_linear(fit, rows, nn.Sequential(nn.Identity(), network), selection)
    assert len(recwarn) == n_told


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


@pytest.mark.parametrize("n_judged", [9, 10])
def test_few_judged_queries_teach_nothing(n_judged):
    log, clicks = _log(12, 20)
    judged = log[["qid", "doc"]].drop_duplicates().assign(relevance=lambda rows: rows["doc"])
    ranker = EnsembleRanker([("naive", NaiveRanker(max_epochs=1))], propensity=[1.0] * 4)
    judgments = judged[judged["qid"] < n_judged]
    if n_judged < 10:
        with pytest.raises(ValueError, match="expected at least 10"):
            ranker.fit(log, clicks / 1_000, judgments=judgments)
    else:
        ranker.fit(log, clicks / 1_000, judgments=judgments)
        assert ranker.weights_["standard_error"].notna().any()


@pytest.mark.parametrize("n_queries", [9, 10])
def test_the_member_of_judgments_has_its_share_until_clicks_weigh(n_queries):
    log, clicks = _log(n_queries, 20)
    judged = pd.DataFrame({"qid": np.repeat(np.arange(100, 130), 4)})
    rng = np.random.default_rng(0)
    judged[["a", "b"]] = rng.normal(size=(120, 2))
    judged["relevance"] = judged["a"] > 0
    ranker = EnsembleRanker([("naive", NaiveRanker(max_epochs=1))], propensity=[1.0] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickDataWarning)
        ranker.fit(log, clicks / 1_000, judgments=judged.astype({"relevance": float}))
    weight = ranker.weights_.loc["judged", "weight"]
    assert (weight == SHARE_OF_JUDGED.value) == (n_queries < 10)
