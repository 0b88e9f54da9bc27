"""Requests that fail leave the model as it was, and rows may come in other types."""

import pickle

import numpy as np
import pandas as pd
import pytest

from skultr.rankers import LambdaMARTRanker

from ._worlds import random_lists

CURVE = [1.0, 0.5, 0.3]


@pytest.fixture
def trees():
    return LambdaMARTRanker(propensity=CURVE, n_estimators=5, random_state=0)


def test_a_request_that_fails_changes_nothing(trees):
    log, clicks = random_lists()
    log = log.assign(kind=pd.Categorical(np.where(log["f0"] > 0, "a", "b")))
    expected = trees.fit(log, clicks).predict(log)
    with pytest.raises(ValueError, match="feature names should match"):
        trees.predict(log.drop(columns="kind"))
    np.testing.assert_array_equal(trees.predict(log), expected)


def test_click_rates_in_single_precision_are_the_clicks(trees):
    log, clicks = random_lists()
    log = log.assign(click=0.3 * clicks)
    expected = trees.fit(log, "click").predict(log)
    found = trees.fit(log, log["click"].astype("float32")).predict(log)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_new_documents_bring_their_features_after_a_fit_with_documents(trees):
    log, clicks = random_lists()
    names = {"f0": 0, "f1": 1, "f2": 2}
    documents = log[["qid", "doc", *names]].drop_duplicates().rename(columns=names)
    rows = log.drop(columns=[*names])
    trees.fit(rows, clicks, documents=documents)
    new = documents.assign(doc=documents["doc"] + 1000)
    np.testing.assert_array_equal(trees.predict(new), trees.predict(documents))
    assert trees.roles_["doc"] == "doc"
    assert trees.roles_[0] == "feature"
    loaded = pickle.loads(pickle.dumps(trees))
    with pytest.raises(ValueError, match="Join the features of the documents"):
        loaded.predict(rows)
