"""Propensities of 0, which average over users and never divide."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr.exceptions import ClickDataWarning
from skultr.metrics import IPSScorer
from skultr.propensity import relevance_labels
from skultr.rankers import IPSRanker, LambdaMARTRanker

from .._worlds import FEATURES


def _two_users(second):
    """A log of one query: the first user examines both positions, the second as given."""
    X = pd.DataFrame({"qid": 1, "doc": ["a", "b"] * 2, "position": [1, 2] * 2})
    X["user"] = X["session"] = [0, 0, 1, 1]
    X["propensity"] = [1.0, 0.8, 1.0, second]
    X["impressions"] = 100.0
    X[FEATURES[0]] = [0.0, 1.0] * 2
    return X, np.array([0.5, 0.4, 0.5, 0.0])


def test_user_who_never_examines_a_position_is_averaged():
    X, rate = _two_users(0.0)
    aware = UserAwareIPSRanker(estimator=Ridge()).fit(X, rate)
    assert aware.labels_["label"].tolist() == [0.5, 0.5]  # 40 clicks over 0.4 * 200
    labels = relevance_labels(X, rate)
    assert labels["label"].tolist() == [0.5, 0.5]
    LambdaMARTRanker(n_estimators=1, early_stopping=False).fit(X, rate)


@pytest.mark.parametrize("correction", ["auto", "divide", "offset"])
def test_users_who_stop_earlier_change_the_mean_only(correction):
    """0.8 in half of the impressions is 0.4 in all of them."""
    X, rate = _two_users(0.0)
    settings = {"correction": correction, "max_epochs": 2, "early_stopping": False}
    settings["random_state"] = 0
    aware = UserAwareIPSRanker(**settings).fit(X, rate)
    alike = X.assign(propensity=[1.0, 0.4, 1.0, 0.4])
    same = UserAwareIPSRanker(**settings).fit(alike, rate)
    np.testing.assert_array_equal(aware.predict(X), same.predict(X))


def test_expected_label_is_relevance_where_one_user_never_looks():
    """Theorem 3.1: E[clicks / (n mean propensity)] = r, with clicks of those who look."""
    X, _ = _two_users(0.0)
    relevance = np.array([0.5, 0.3] * 2)
    labels = relevance_labels(X, X["propensity"] * relevance)
    assert labels["label"].tolist() == pytest.approx([0.5, 0.3])
    assert labels["impressions"].tolist() == [200.0, 200.0]


def test_position_that_nobody_examines_is_no_contradiction():
    """Both documents moved: their mean propensity is 1 / 2, that of position 2 is 0."""
    X = pd.DataFrame({"qid": 1, "session": [0, 0, 1, 1], "doc": list("abba")})
    X["position"], X["propensity"] = [1, 2, 1, 2], [1.0, 0.0, 1.0, 0.0]
    X["impressions"], X[FEATURES[0]] = 10.0, [0.0, 1.0, 1.0, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = UserAwareIPSRanker(estimator=Ridge()).fit(X, [0.6, 0.0, 0.2, 0.0])
    assert not hasattr(ranker, "examination_comparison_")
    # 6 and 2 clicks over 20 impressions, half of them examined.
    assert ranker.labels_["label"].tolist() == [0.6, 0.2]


@pytest.mark.parametrize("fit", [UserAwareIPSRanker().fit, IPSRanker().fit, relevance_labels])
def test_click_at_propensity_0_is_refused(fit):
    X, _ = _two_users(0.0)
    message = r"propensity is 0 in 1 row with a click, first in row 3: who clicked a row has"
    with pytest.raises(ValueError, match=message):
        fit(X, [0.5, 0.4, 0.5, 0.01])


def test_click_at_propensity_0_of_a_row_that_was_not_shown_only_warns():
    X, _ = _two_users(0.0)
    X["position"] = X["position"].astype(float).mask(X["propensity"] == 0)
    with pytest.warns(ClickDataWarning, match="1 row has a click but no position"):
        labels = relevance_labels(X, [0.5, 0.4, 0.5, 0.01])
    assert labels["label"].tolist() == [0.5, 0.5]


def test_propensity_0_is_refused_where_it_divides():
    X, rate = _two_users(0.0)
    message = (
        r"propensity is 0 in 1 shown row, first at position 2 of query 1; expected .*"
        r"average over users: UserAwareIPSRanker, LambdaMARTRanker\(debiasing='user-aware'\), or "
    )
    for ranker in (IPSRanker(), LambdaMARTRanker(debiasing="ips")):
        with pytest.raises(ValueError, match=message):
            ranker.fit(X, rate)
    with pytest.raises(ValueError, match=message):
        relevance_labels(X, rate, user_aware=False)
    with pytest.raises(ValueError, match="propensity is 0 in 1 shown row, first in row 3"):
        IPSScorer()(Ridge().fit(X[["f0"]], rate), X, rate)


def test_mean_propensity_0_is_refused():
    X, rate = _two_users(0.0)
    X.loc[1, "propensity"] = rate[1] = 0.0
    message = "mean propensity over all impressions of a document in its query is 0 in [12] shown"
    for fit in (UserAwareIPSRanker(estimator=Ridge()).fit, relevance_labels):
        with pytest.raises(ValueError, match=message):
            fit(X, rate)


def test_negative_propensity_is_refused():
    X, rate = _two_users(-0.1)
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*found -0.1 in 1 row"):
        UserAwareIPSRanker(estimator=Ridge()).fit(X, rate)
