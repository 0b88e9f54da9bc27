"""Estimators on frames of engines: the same results as on the same log in memory."""

import warnings
from functools import lru_cache

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from skultr.click_models import DCTRModel, PBMModel, RDCTRModel, UBMModel
from skultr.identifiability import IdentifiabilityRepair
from skultr.metrics import IPSScorer
from skultr.propensity import (
    ContextualPropensity,
    DualLearningPropensity,
    InterventionHarvesting,
    PowerLawPropensity,
    RandomizedPropensity,
    RegressionEMPropensity,
    relevance_labels,
)
from skultr.rankers import DLARanker, NaiveRanker, RegressionEMRanker, TwoTowerRanker

from .test_aggregate import to_arrow, to_dask

ENGINES = {
    "polars": lambda log: pl.from_pandas(log).lazy(),
    "duckdb": lambda log: duckdb.from_arrow(to_arrow(log)),
    "dask": to_dask,
}
PROPENSITIES = {
    "power law": PowerLawPropensity(),
    "power law of users": PowerLawPropensity(eta={"u0": 0.5, "u1": 1.0, "u2": 2.0}),
    "randomized": RandomizedPropensity(n_bootstrap=10, random_state=0),
    "randomized arms": RandomizedPropensity(arm="arm", n_bootstrap=10, random_state=0),
    "harvesting": InterventionHarvesting(n_bootstrap=10, random_state=0),
    "harvesting of users": InterventionHarvesting(user="user", n_bootstrap=0),
    "embedding": RegressionEMPropensity(relevance="embedding"),
    "embedding of devices": RegressionEMPropensity(relevance="embedding", user="device"),
    "network": RegressionEMPropensity(max_epochs=2, random_state=0),
    "dual embedding": DualLearningPropensity(relevance="embedding", variant="published"),
    "dual network": DualLearningPropensity(max_epochs=2, random_state=0),
    "context": ContextualPropensity(context=["mobile"], max_epochs=2, random_state=0),
}


def make_log(n_sessions=600, n_queries=12, n_docs=5, seed=0):
    """Shuffled lists of four of five documents, with users, devices and features."""
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(n_docs), (n_sessions, 1)), axis=1)[:, :4]
    query = rng.integers(n_queries, size=n_sessions)
    user = rng.integers(3, size=n_sessions)
    doc = (query[:, None] * n_docs + order).ravel()
    position = np.tile(np.arange(1, 5), n_sessions)
    relevance = rng.uniform(0.2, 0.9, n_queries * n_docs)
    features = rng.normal(size=(n_queries * n_docs, 2))
    chance = relevance[doc] * position ** -np.repeat(0.5 + 0.5 * user, 4)
    return pd.DataFrame(
        {
            "qid": np.repeat([f"q{q}" for q in query], 4),
            "session": np.repeat(np.arange(n_sessions), 4),
            "user": np.repeat([f"u{u}" for u in user], 4),
            "doc": [f"d{d % n_docs}" for d in doc],
            "position": position,
            "f0": features[doc, 0],
            "f1": features[doc, 1],
            "arm": np.repeat(rng.integers(2, size=n_sessions), 4),
            "device": np.repeat(rng.choice(["phone", "desk"], n_sessions), 4),
            "mobile": np.repeat(rng.integers(2, size=n_sessions).astype(float), 4),
            "click": (rng.random(len(doc)) < chance).astype(int),
        }
    )


LOG = make_log()
MODELS = {
    "regression-em": RegressionEMRanker(relevance="embedding", random_state=0),
    "dual": DLARanker(relevance="embedding", variant="published", random_state=0),
    "additive": TwoTowerRanker(relevance="embedding", link="additive", random_state=0),
    "pbm": PBMModel(),
    "pbm without a prior": PBMModel(prior=None),
    "pbm with an empirical prior": PBMModel(prior="empirical"),
    "dctr": DCTRModel(),
    "rdctr": RDCTRModel(),
}


def quietly(fit, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*args, **kwargs)


def columns_for(name, log=LOG):
    """The columns of the log that this estimator takes for features, and all others."""
    return log.drop(columns=["mobile", "device"] if "network" in name else ["f0", "f1"])


# The engines follow each other, and share what was fitted in memory.
@lru_cache(maxsize=1)
def propensity_in_memory(name):
    """A log, and the propensity that was fitted to it."""
    log = columns_for(name)
    if "network" in name:
        log = log.drop(columns="arm")
    return log, quietly(clone(PROPENSITIES[name]).fit, log, "click")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PROPENSITIES)
def test_a_propensity_counts_in_the_engine(name, engine):
    log, expected = propensity_in_memory(name)
    found = quietly(clone(PROPENSITIES[name]).fit, ENGINES[engine](log), "click")
    tolerance = 1e-4 if "network" in name or name == "context" else 1e-9
    pd.testing.assert_frame_equal(
        found.examination_, expected.examination_, rtol=tolerance, check_dtype=False
    )
    np.testing.assert_allclose(found.predict(log), expected.predict(log), rtol=tolerance)
    assert found.n_features_in_ == expected.n_features_in_


@lru_cache(maxsize=1)
def table_in_memory(name, role):
    """A log with a column of the role, and the table of counts that was fitted to it."""
    log = LOG.drop(columns=["device", "f0", "f1", "arm", "mobile"])
    added = {
        "production": np.sin(np.arange(len(log))),
        "bias": log["position"] + 10 * (log["user"] == "u1"),
        "impressions": 1 + np.arange(len(log)) % 3,
        "doc_scope": "global",
    }
    if role is not None:
        log[role] = added[role]
    if role == "doc_scope":
        log["doc"] = log["qid"] + log["doc"]
    return log, quietly(clone(MODELS[name]).fit, log, "click")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("role", [None, "production", "bias", "impressions", "doc_scope"])
def test_a_table_counts_in_the_engine(name, role, engine):
    log, expected = table_in_memory(name, role)
    found = quietly(clone(MODELS[name]).fit, ENGINES[engine](log), "click")
    # The optimiser of the prior raises the rounding of mean scores to its tolerance.
    rtol = 1e-5 if (name, role) == ("pbm", "production") else 1e-9
    np.testing.assert_allclose(found.predict(log), expected.predict(log), rtol=rtol, atol=1e-10)
    if name != "dctr":
        pd.testing.assert_frame_equal(
            found.examination_, expected.examination_, rtol=1e-9, check_dtype=False
        )


def test_candidates_of_a_table_from_an_engine_may_have_features():
    log = LOG[["qid", "session", "doc", "position", "click"]]
    model = PBMModel().fit(pl.from_pandas(log).lazy(), "click")
    np.testing.assert_array_equal(model.predict(LOG), model.predict(log))


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (UBMModel(), r"reads which clicks fell .* skultr\.aggregate_clicks do not keep"),
        (NaiveRanker(), r"Reduce it first with skultr\.aggregate_clicks"),
        (PBMModel(solver="gradient"), r"Reduce it first with skultr\.aggregate_clicks"),
    ],
)
def test_models_that_need_more_than_counts_say_so(model, remedy):
    with pytest.raises(TypeError, match=f"X is a lazy frame .*{remedy}"):
        model.fit(pl.from_pandas(LOG).lazy(), "click")


@pytest.mark.parametrize("estimator", [PBMModel(), InterventionHarvesting()])
def test_arrays_by_row_are_refused_beside_an_engine(estimator):
    lazy = pl.from_pandas(LOG).lazy()
    with pytest.raises(TypeError, match="no order, and y is a Series"):
        estimator.fit(lazy, LOG["click"])
    with pytest.raises(TypeError, match="an array of sample_weight; expected columns of X"):
        estimator.fit(lazy, "click", np.ones(len(LOG)))
    with pytest.raises(TypeError, match="an array of qid; expected columns of X"):
        estimator.fit(lazy, "click", qid=LOG["qid"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (lambda log: log.assign(click=-1.0), "holds negative values"),
        (lambda log: log.assign(position=0), "must be a whole number from 1"),
        (lambda log: log.assign(position=np.nan, click=0.0), "No row was shown"),
        (lambda log: log.assign(doc=log["doc"].mask(log.index == 3)), "'doc' is missing in 1 row"),
        (lambda log: log.drop(columns="doc"), "'doc'"),
        (lambda log: log.drop(columns="click"), r"lacks the columns \['click'\]"),
    ],
)
def test_faults_are_found_in_the_engine(fault, match, engine):
    log = LOG[["qid", "session", "doc", "position", "click"]]
    with pytest.raises(ValueError, match=match):
        quietly(PBMModel().fit, ENGINES[engine](fault(log)), "click")
    with pytest.raises(ValueError, match=match):
        quietly(InterventionHarvesting().fit, ENGINES[engine](fault(log)), "click")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "settings",
    [
        {"propensity": [1.0, 0.5, 0.3, 0.2]},
        {"propensity": [1.0, 0.5, 0.3, 0.2], "interval": True},
        {"propensity": RegressionEMPropensity(relevance="embedding", user="user")},
        {"propensity": PowerLawPropensity(), "user_aware": False, "clip": 0.3},
        {"propensity": "column"},
    ],
    ids=str,
)
def test_labels_are_counted_in_the_engine(settings, engine):
    log = LOG.drop(columns=["f0", "f1", "mobile"])
    if settings["propensity"] == "column":
        log["propensity"] = 1 / (log["position"] + (log["user"] == "u1"))
    expected = quietly(relevance_labels, log, log["click"], **settings)
    named = quietly(relevance_labels, log, "click", **settings)
    pd.testing.assert_frame_equal(named, expected)
    found = quietly(relevance_labels, ENGINES[engine](log), "click", **settings)
    rtol = 1e-5 if "interval" in settings else 1e-9  # an optimiser raises rounding
    pd.testing.assert_frame_equal(found, expected, rtol=rtol, check_dtype=False)


def test_labels_by_a_network_are_refused_with_a_way_out():
    lazy = pl.from_pandas(LOG).lazy()
    with pytest.raises(TypeError, match=r"reads more of a log .*aggregate_clicks"):
        relevance_labels(lazy, "click", propensity=RegressionEMPropensity())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("y", ["click", None])
def test_a_repair_is_planned_from_counts_of_the_engine(y, engine):
    log = LOG.drop(columns=["f0", "f1"]).assign(screen=lambda log: log["position"] // 2)
    log = log[(log["doc"] < "d2") == (log["position"] < 3)]
    repair = IdentifiabilityRepair(["position", "device"], bias_features=["screen", "mobile"])
    log["mobile"] = (log["device"] == "phone").astype(float)
    expected = quietly(clone(repair).fit, log, y)
    found = quietly(clone(repair).fit, ENGINES[engine](log), y)
    pd.testing.assert_frame_equal(found.merges_, expected.merges_, rtol=1e-9)
    pd.testing.assert_frame_equal(found.factors_, expected.factors_, check_dtype=False)
    assert len(found.merges_) > 0
    changed = quietly(found.transform, log)
    pd.testing.assert_frame_equal(changed, quietly(expected.transform, log))


def test_a_repair_by_interventions_needs_lists():
    repair = IdentifiabilityRepair(strategy="intervene")
    with pytest.raises(TypeError, match=r"X is a lazy frame .*aggregate_clicks"):
        repair.fit(pl.from_pandas(LOG).lazy(), "click")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("propensity", [[1.0, 0.5, 0.3, 0.2], PowerLawPropensity()], ids=str)
def test_a_ranker_is_scored_on_lists_of_the_engine(propensity, engine):
    log = LOG.drop(columns=["device", "arm", "mobile"])
    ranker = quietly(NaiveRanker(max_epochs=1, random_state=0).fit, log, "click")
    scorer = IPSScorer(propensity=propensity)
    expected = scorer.estimate(ranker, log, "click")
    found = scorer.estimate(ranker, ENGINES[engine](log), "click")
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert scorer(ranker, ENGINES[engine](log), "click") == pytest.approx(expected.value, rel=1e-9)


def test_candidates_that_were_never_shown_are_ranked_in_memory_only():
    log = LOG.drop(columns=["device", "arm", "mobile"])
    is_candidate = log.index == 7
    log["position"] = log["position"].mask(is_candidate)
    log["click"] = log["click"].mask(is_candidate, 0)
    scorer = IPSScorer(propensity=[1.0, 0.5, 0.3, 0.2])
    with pytest.raises(ValueError, match="1 candidate that was never shown"):
        scorer.estimate(None, pl.from_pandas(log, nan_to_null=True).lazy(), "click")
