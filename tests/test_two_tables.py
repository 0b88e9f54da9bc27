"""Features of documents in a frame of their own: the same models as from joined rows."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skultr import DLARanker
from skultr.metrics import ClickLikelihoodScorer
from skultr.model_selection import QueryKFold
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import EnsembleRanker, IPSRanker, LambdaMARTRanker, NaiveRanker

from ._worlds import FEATURES, random_lists

QUICK = {"max_epochs": 2, "random_state": 0}
RANKERS = [
    NaiveRanker(**QUICK),
    DLARanker(**QUICK),
    IPSRanker(propensity=[1.0, 0.5, 0.3], **QUICK),
    LambdaMARTRanker(propensity=[1.0, 0.5, 0.3], n_estimators=5, random_state=0),
]


@pytest.fixture(scope="module")
def tables():
    joined, _ = random_lists(n_sessions=300, n_queries=20)
    chance = np.where(joined["f0"] > 0, 0.9, 0.1) / joined["position"]
    clicks = (np.random.default_rng(0).random(len(joined)) < chance).astype(float)
    log = joined.drop(columns=FEATURES).assign(click=clicks)
    documents = joined[["qid", "doc", *FEATURES]].drop_duplicates()
    return joined, clicks, log, documents


@pytest.mark.parametrize("ranker", RANKERS, ids=repr)
def test_two_tables_are_one(ranker, tables):
    joined, clicks, log, documents = tables
    one = clone(ranker).fit(joined, clicks)
    two = clone(ranker).fit(log, "click", documents=documents.sample(frac=1.0, random_state=0))
    assert two.feature_names_in_.tolist() == FEATURES
    assert_array_equal(two.predict(joined), one.predict(joined))
    # Rows to predict may leave the features out too.
    assert_array_equal(two.predict(log.drop(columns="click")), one.predict(joined))


def test_other_frames_and_ids_of_documents_alone(tables):
    joined, clicks, log, documents = tables
    one = clone(RANKERS[0]).fit(joined, clicks)
    more = pd.concat([documents, documents.assign(doc=documents["doc"] + 10_000)])
    two = clone(RANKERS[0]).fit(
        pl.from_pandas(log), "click", documents=pl.from_pandas(more.drop(columns="qid"))
    )
    assert_array_equal(two.predict(joined), one.predict(joined))


def test_a_pickle_leaves_the_table_out(tables):
    joined, _, log, documents = tables
    ranker = clone(RANKERS[0]).fit(log, "click", documents=documents)
    loaded = pickle.loads(pickle.dumps(ranker))
    assert_array_equal(loaded.predict(joined), ranker.predict(joined))
    with pytest.raises(ValueError, match="0 feature columns"):
        loaded.predict(log[["qid", "doc"]])


def test_searches_and_partial_fit_take_the_table(tables):
    joined, clicks, log, documents = tables
    settings = {"learning_rate": [0.01, 0.1]}
    cv, scoring = QueryKFold(3), ClickLikelihoodScorer(propensity=[1.0, 0.5, 0.3])
    search = GridSearchCV(NaiveRanker(**QUICK), settings, cv=cv, scoring=scoring)
    rows = log.drop(columns="click")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs on six lists teach little
        two = clone(search).fit(rows, clicks, documents=documents)
        one = clone(search).fit(joined, clicks)
    name = "mean_test_score"
    assert_allclose(two.cv_results_[name], one.cv_results_[name])
    ranker = clone(RANKERS[0]).fit(log, "click", documents=documents)
    ranker.partial_fit(log, "click", documents=documents)
    again = clone(RANKERS[0]).fit(joined, clicks).partial_fit(joined, clicks)
    assert_array_equal(ranker.predict(joined), again.predict(joined))


def test_an_ensemble_and_propensities_of_features(tables):
    joined, clicks, log, documents = tables
    production = np.arange(len(documents)) * 1.0
    scored = documents.assign(production=production)
    members = [("naive", NaiveRanker(**QUICK)), ("trees", clone(RANKERS[3]))]
    members[1][1].set_params(propensity=None)
    ensemble = EnsembleRanker(members, propensity=[1.0, 0.5, 0.3], random_state=0)
    two = clone(ensemble).fit(log, "click", documents=scored)
    rows = joined.merge(scored[["qid", "doc", "production"]], on=["qid", "doc"])
    one = clone(ensemble).fit(rows, clicks)
    assert_allclose(two.weights_["weight"], one.weights_["weight"])
    assert_array_equal(two.predict(rows), one.predict(rows))
    network = RegressionEMPropensity(relevance="network", **QUICK)
    two = clone(network).fit(log, "click", documents=documents)
    one = clone(network).fit(joined, clicks)
    assert_allclose(two.examination_["examination"], one.examination_["examination"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda log, docs: (log, docs.iloc[1:]), r"documents is missing 1 of 80 documents"),
        (lambda log, docs: (log, docs.assign(doc=docs["doc"].astype(str))), "object|str.*values"),
        (lambda log, docs: (log, pd.concat([docs, docs[:2]])), "documents has 2 rows whose qid"),
        (lambda log, docs: (log, docs.drop(columns="doc")), "expected 'doc', the ids"),
        (lambda log, docs: (log.drop(columns="doc"), docs), "nothing links the rows"),
        (lambda log, docs: (log.assign(doc_scope="global"), docs), "Drop 'qid' from documents"),
    ],
)
def test_faults(change, message, tables):
    log, documents = change(*tables[2:])
    with pytest.raises(ValueError, match=message):
        clone(RANKERS[0]).fit(log, "click", documents=documents)


def test_arrays_and_other_types(tables):
    _, clicks, log, documents = tables
    with pytest.raises(TypeError, match="X is an array"):
        clone(RANKERS[0]).fit(np.zeros((len(log), 1)), clicks, documents=documents)
    with pytest.raises(TypeError, match="documents is a dict"):
        clone(RANKERS[0]).fit(log, "click", documents={})
