"""Candidates that were never shown are no missing clicks, anywhere in the package."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skultr import CLDRanker, aggregate_clicks, propensity
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, MissingRoleWarning, NotIdentifiableWarning
from skultr.metrics import IPSScorer, RankingScorer
from skultr.model_selection import QueryKFold, train_test_queries
from skultr.rankers import (
    DLARanker,
    HeckmanRanker,
    IPSRanker,
    NaiveRanker,
    PRSRanker,
    RankAggRanker,
    TwoTowerRanker,
)
from skultr.simulation import PlackettLucePolicy, simulate_clicks

from ._discovery import public_rankers

QUICK = {"max_epochs": 3, "random_state": 0}


def _learners():
    """Public rankers that say that they learn from candidates; RankAggRanker by its members."""
    found = [each for each in public_rankers() if each._learns_from_never_shown]
    for each in found:
        known = each.get_params()
        each.set_params(**{name: value for name, value in QUICK.items() if name in known})
    return [each for each in found if not isinstance(each, RankAggRanker)]


LEARNERS = [
    CLDRanker(loss="pointwise", hidden_layer_sizes=()),
    HeckmanRanker(hidden_layer_sizes=()),
    *_learners(),
]
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skultr.exceptions.{category.__name__}")
    for category in (AssumptionWarning, MissingRoleWarning, NotIdentifiableWarning)
]


def top_k_log(n_sessions=600, temperature=0.05):
    documents = make_ltr(n_queries=30, n_documents=8, n_features=5, random_state=0)
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=3,
        policy=PlackettLucePolicy(temperature),
        candidates=True,
        random_state=0,
    )
    return documents, log, clicks.astype(float), truth


def scores(ranker, documents, log, clicks):
    ranker = clone(ranker)
    known = {"max_epochs": 3, "early_stopping": False, "random_state": 0, "n_estimators": 5}
    known["batch_size"] = 4096  # the order of lists knows what they did not show
    ranker.set_params(**{k: v for k, v in known.items() if k in ranker.get_params()})
    features = [name for name in documents if name.startswith("feature")]
    ranker.fit(log, clicks)
    # An embedding knows the documents that were shown.
    shown = documents["doc"].isin(log["doc"][log["position"].notna()])
    values = ranker.predict(documents.loc[shown, ["qid", "doc", *features]])
    return values - values.mean()  # no list shows a constant


def test_who_learns_from_candidates():
    learn = {type(each).__name__ for each in public_rankers() if each._learns_from_never_shown}
    assert {"CLDRanker", "HeckmanRanker", "RankAggRanker"} <= learn
    two = RankAggRanker([("naive", NaiveRanker()), ("ips", IPSRanker())])
    assert not two._learns_from_never_shown


@pytest.mark.parametrize(
    "ranker",
    [
        RankAggRanker([("naive", NaiveRanker(estimator=Ridge())), ("ips", IPSRanker())][:1]),
        NaiveRanker(loss="bce"),
        NaiveRanker(estimator=Ridge()),
        IPSRanker(loss="lambda"),
        IPSRanker(propensity=propensity.RegressionEMPropensity(relevance="embedding")),
        PRSRanker(),
        DLARanker(relevance="embedding"),
        TwoTowerRanker(relevance="embedding"),
    ],
    ids=lambda ranker: repr(ranker)[:60],
)
def test_candidates_change_nothing(ranker):
    documents, log, clicks, _ = top_k_log()
    shown = log["position"].notna().to_numpy()
    np.testing.assert_allclose(
        scores(ranker, documents, log, clicks),
        scores(ranker, documents, log[shown], clicks[shown]),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("ranker", LEARNERS, ids=repr)
def test_candidates_matter_to_those_who_learn_from_them(ranker):
    documents, log, clicks, _ = top_k_log()
    rng = np.random.default_rng(0)
    hidden = log["position"].isna().to_numpy()
    features = [name for name in log if name.startswith("feature")]
    moved = log.drop(columns="doc").copy()
    change = rng.normal(size=(hidden.sum(), len(features)))
    moved = moved.astype(dict.fromkeys(features, float))
    moved.loc[hidden, features] += change
    same = clone(ranker).fit(log, clicks).predict(documents[features])
    other = clone(ranker).fit(moved, clicks).predict(documents[features])
    assert not np.allclose(same, other, rtol=1e-3)


def _propensities():
    found = [getattr(propensity, name) for name in propensity.__all__]
    found = [item for item in found if inspect.isclass(item)]
    return [c for c in found if c.__name__ in {"InterventionHarvesting", "RegressionEMPropensity"}]


@pytest.mark.parametrize("estimator", _propensities())
def test_candidates_are_no_examination(estimator):
    _, log, clicks, _ = top_k_log(3_000, temperature=0.5)
    shown = log["position"].notna().to_numpy()
    settings = {"relevance": "embedding"} if "relevance" in estimator().get_params() else {}
    full = estimator(**settings).fit(log, clicks).examination_["examination"]
    part = estimator(**settings).fit(log[shown], clicks[shown]).examination_["examination"]
    pd.testing.assert_series_equal(full, part)


# ------------------------------------------------------------------ what else keeps them
def test_splits_keep_candidates_with_their_query():
    _, log, clicks, _ = top_k_log()
    for train, test in QueryKFold(3).split(log, clicks):
        assert len(train) + len(test) == len(log)
        assert not set(log["qid"].iloc[train]) & set(log["qid"].iloc[test])
    train, test = train_test_queries(log, random_state=0)
    hidden = sum(part["position"].isna().sum() for part in (train, test))
    assert hidden == log["position"].isna().sum()


def test_aggregation_keeps_candidates():
    documents, log, clicks, _ = top_k_log()
    table, rate = aggregate_clicks(log.drop(columns="relevance").assign(click=clicks), documents)
    hidden = table[table["position"].isna()]
    asked = documents[documents["qid"].isin(log["qid"])]
    assert set(table["doc"]) == set(asked["doc"])
    assert (rate[table["position"].isna().to_numpy()] == 0).all()
    assert not hidden.duplicated(["qid", "doc"]).any()


@pytest.mark.parametrize("ranker", LEARNERS, ids=repr)
def test_aggregated_log_is_the_raw_one(ranker):
    documents, log, clicks, _ = top_k_log()
    table, rate = aggregate_clicks(log.drop(columns="relevance").assign(click=clicks), documents)
    np.testing.assert_allclose(
        scores(ranker, documents, log, clicks),
        scores(ranker, documents, table, rate),
        rtol=1e-6,
        atol=1e-8,
    )


@pytest.mark.parametrize("ranker", LEARNERS, ids=repr)
def test_a_candidate_counts_once_a_query(ranker):
    """Weighted by the sessions of the query, however often, and with what weight, it is there."""
    documents, log, clicks, _ = top_k_log()
    once = log["position"].notna() | ~log.duplicated(["qid", "doc"])
    expected = scores(ranker, documents, log, clicks)
    kept = scores(ranker, documents, log[once], clicks[once.to_numpy()])
    np.testing.assert_allclose(kept, expected, rtol=1e-6, atol=1e-8)
    weighted = log.assign(impressions=np.where(log["position"].isna(), 7.0, 1.0))
    np.testing.assert_allclose(
        scores(ranker, documents, weighted, clicks), expected, rtol=1e-6, atol=1e-8
    )


def test_scorers_see_candidates():
    documents, log, clicks, truth = top_k_log()
    ranker = NaiveRanker(max_epochs=2, random_state=0).fit(log, clicks)
    lists = log.drop_duplicates(["qid", "doc"])
    value = RankingScorer(k=3)(ranker, lists, None)
    asked = documents[documents["qid"].isin(log["qid"])]
    assert value == pytest.approx(RankingScorer(k=3)(ranker, asked, None))
    # A candidate above the shown documents takes their place.
    shown = log["position"].notna().to_numpy()
    scorer = IPSScorer(propensity=truth.examination)
    assert scorer(ranker, log, clicks) < scorer(ranker, log[shown], clicks[shown])
