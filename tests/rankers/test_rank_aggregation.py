"""RankAggRanker: mean ranks, and members of every kind."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skultr._base._sklearn import seeded_clone
from skultr.exceptions import MissingRoleWarning
from skultr.metrics import RankingScorer
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.propensity import ContextualPropensity, RandomizedPropensity
from skultr.rankers import (
    DistilledRanker,
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    NaiveRanker,
    RankAggRanker,
    VectorizationRanker,
)
from tests._worlds import top_k_log

#: Ridge regression warns where the weighted features of few clicks are nearly collinear.
LEAST = LinearRegression()


def test_mean_ranks():
    documents, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    heckman = HeckmanRanker(hidden_layer_sizes=())
    members = [("ips", IPSRanker(estimator=LEAST, propensity=curve)), ("h", heckman)]
    ranker = RankAggRanker(members, weights=[3, 1]).fit(log, clicks)
    ranks = [
        pd.Series(-member.fit(log, clicks).predict(documents)).groupby(documents["qid"]).rank()
        for _, member in members
    ]
    expected = -(3 * ranks[0] + ranks[1]) / 4
    np.testing.assert_allclose(ranker.predict(documents), expected)
    features = documents[[name for name in documents if name.startswith("feature")]]
    np.testing.assert_allclose(ranker.predict(features, qid=documents["qid"]), expected)
    np.testing.assert_array_equal(
        ranker.rank(documents), (-expected).groupby(documents["qid"]).rank(method="first")
    )
    assert ranker.named_estimators_["h"].mills_collinearity_ > 0


def test_mean_scores():
    documents, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    heckman = HeckmanRanker(hidden_layer_sizes=())
    members = [("ips", IPSRanker(estimator=LEAST, propensity=curve)), ("h", heckman)]
    ranker = RankAggRanker(members, weights=[3, 1], average="scores").fit(log, clicks)
    scores = [
        pd.Series(member.fit(log, clicks).predict(documents))
        .groupby(documents["qid"])
        .transform(lambda x: (x - x.mean()) / x.std(ddof=0))
        for _, member in members
    ]
    np.testing.assert_allclose(ranker.predict(documents), (3 * scores[0] + scores[1]) / 4)
    # A query of one candidate, and members without a preference, have no standing.
    assert ranker.predict(documents[:1]) == [0.0]
    same = documents.assign(**dict.fromkeys(documents.filter(like="feature"), 0.0))
    np.testing.assert_array_equal(ranker.predict(same), 0)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("kind", ["nested", "vectorization"])
def test_members_that_look_at_the_whole_query(kind):
    documents, log, clicks, curve = top_k_log(n_queries=10, n_sessions=500)
    inner = {
        "nested": RankAggRanker(
            [
                ("ips", IPSRanker(estimator=LEAST, propensity=curve)),
                ("h", HeckmanRanker()),
            ]
        ),
        "vectorization": VectorizationRanker(max_epochs=3, random_state=0),
    }[kind]
    outer = RankAggRanker([("inner", inner)]).fit(log, clicks)
    member = outer.named_estimators_["inner"]
    features = documents.filter(like="feature").to_numpy()
    scores = pd.Series(member.predict(features, qid=documents["qid"]))
    expected = -(-scores).groupby(documents["qid"]).rank()
    np.testing.assert_allclose(outer.predict(documents), expected)
    # In another order of queries, and of rows.
    mixed = documents.sample(frac=1, random_state=0)
    np.testing.assert_allclose(outer.predict(mixed), expected[mixed.index])


class Foreign(BaseEstimator):
    """A ranker that shares the contract of ``skultr.testing``, and no code."""

    def fit(self, X, y, **roles):
        return self

    def rank(self, X, *, qid):
        return pd.Series(-X[:, 0]).groupby(qid).rank(method="first").to_numpy(int)


def test_members_from_elsewhere():
    documents, log, clicks, _ = top_k_log(n_queries=10, n_sessions=500)
    ranker = RankAggRanker([("foreign", Foreign())]).fit(log, clicks)
    first = documents.filter(like="feature").iloc[:, 0]
    expected = (-first).groupby(documents["qid"]).rank(method="first")
    np.testing.assert_array_equal(ranker.rank(documents), expected)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, list], ids=str)
def test_predict_of_any_kind_of_features(kind):
    documents, log, clicks, curve = top_k_log(n_queries=10, n_sessions=500)
    X = documents.filter(like="feature").to_numpy()
    roles = {name: log[name] for name in ("qid", "doc", "session", "position")}
    ranker = RankAggRanker([("h", HeckmanRanker()), ("i", IPSRanker(propensity=curve))])
    ranker.fit(log.filter(like="feature").to_numpy(), clicks, **roles)
    np.testing.assert_allclose(
        ranker.predict(kind(X), qid=documents["qid"]), ranker.predict(X, qid=documents["qid"])
    )
    assert ranker.predict(kind(X[:1])).shape == (1,)  # a row is one query, whichever
    with pytest.warns(MissingRoleWarning, match="no query ids"):
        ranker.predict(kind(X[:2]))


@pytest.mark.parametrize(
    "propensity",
    [ContextualPropensity(context=["ctx"]), RandomizedPropensity(arm="ctx")],
    ids=lambda propensity: type(propensity).__name__,
)
@pytest.mark.parametrize("nested", [False, True])
def test_propensities_that_read_a_column(propensity, nested):
    _, log, clicks, curve = top_k_log(n_queries=10, n_sessions=500)
    members = [("ips", IPSRanker(estimator=LEAST, propensity=propensity))]
    members = [("inner", RankAggRanker(members))] if nested else members
    log["ctx"] = log["qid"] % 3
    message = f"propensity of the member '{members[0][0]}' is a {type(propensity).__name__}"
    with pytest.raises(ValueError, match=message):
        RankAggRanker(members).fit(log, clicks)
    # What the message advises.
    known = np.append(curve, 1.0)[log["position"].fillna(6).astype(int) - 1]
    log = log.drop(columns="ctx").assign(propensity=known)
    ranker = RankAggRanker([("ips", IPSRanker(estimator=LEAST, propensity="column"))])
    expected = IPSRanker(estimator=LEAST, propensity="column").fit(log, clicks).rank(log)
    np.testing.assert_array_equal(ranker.fit(log, clicks).rank(log), expected)


def test_one_member_keeps_its_order():
    documents, log, clicks, _ = top_k_log(n_queries=20, n_sessions=500)
    alone = NaiveRanker(estimator=LEAST)
    np.testing.assert_array_equal(
        RankAggRanker([("naive", alone)]).fit(log, clicks).rank(documents),
        alone.fit(log, clicks).rank(documents),
    )


def test_parameters_of_members():
    ranker = RankAggRanker([("ips", IPSRanker()), ("h", HeckmanRanker())])
    ranker.set_params(ips__clip=0.1, h=HeckmanRanker(debias=True))
    assert ranker.get_params()["ips__clip"] == 0.1
    assert clone(ranker).get_params()["h__debias"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimators": []}, "at least one"),
        ({"estimators": [IPSRanker()]}, "pair"),
        ({"estimators": [("a", IPSRanker()), ("a", NaiveRanker())]}, "different strings"),
        ({"estimators": [(1, IPSRanker())]}, "strings"),
        ({"estimators": [("a__b", IPSRanker())]}, "must not contain __"),
        ({"estimators": [("weights", IPSRanker())]}, "conflict with constructor"),
        ({"estimators": [("a", Ridge())]}, "expected a ranker"),
        ({"estimators": [("a", IPSRanker)]}, r"Use IPSRanker\(\)"),
        ({"weights": [1.0]}, "expected 2 numbers"),
        ({"weights": [0, 0]}, "not all 0"),
        ({"weights": ["much", "more"]}, "expected 2 numbers"),
        ({"weights": [[1], [1, 2]]}, "expected 2 numbers"),
        ({"weights": [np.inf, 1]}, "expected 2 numbers"),
    ],
)
def test_bad_members(settings, message):
    _, log, clicks, _ = top_k_log(n_queries=10, n_sessions=100)
    with pytest.raises(ValueError, match=message):
        RankAggRanker(**settings).fit(log, clicks)


@pytest.mark.parametrize(
    ("ranker", "member"), [(RankAggRanker(), "ips"), (EnsembleRanker(), "network")]
)
def test_parameters_of_default_members(ranker, member):
    """They are found, set and cloned as those of members that were passed."""
    names = [name for name, _ in ranker._members()]
    assert set(names) < set(ranker.get_params())
    assert ranker.get_params()[f"{member}__clip"] == ranker.get_params()[member].clip
    assert clone(ranker).estimators is None
    other = clone(ranker).set_params(**{f"{member}__clip": 0.3, "random_state": 1})
    assert [name for name, _ in other.estimators] == names
    assert clone(other).get_params()[f"{member}__clip"] == 0.3
    assert ranker.get_params()[f"{member}__clip"] != 0.3
    replaced = clone(ranker).set_params(**{member: NaiveRanker()})
    assert isinstance(dict(replaced.estimators)[member], NaiveRanker)
    with pytest.raises(ValueError, match="Invalid parameter 'dla'"):
        clone(ranker).set_params(dla__clip=0.3)


def test_a_seed_leaves_the_default_members_as_they_are():
    ranker = seeded_clone(DistilledRanker(EnsembleRanker()), 7)
    assert (ranker.random_state, ranker.teacher.random_state) == (7, 7)
    assert ranker.teacher.estimators is None
    steps = seeded_clone(make_pipeline(OnFeatures(PCA()), NaiveRanker()), 7)
    assert {steps[0].transformer.random_state, steps[1].random_state} == {7}


def test_a_search_over_a_default_member():
    _, log, clicks, _ = top_k_log(n_queries=20, n_sessions=300)
    ranker = RankAggRanker().set_params(ips__estimator=Ridge())
    search = GridSearchCV(
        RankAggRanker(),
        {"ips__estimator": [Ridge()], "heckman__debias": [False, True]},
        cv=QueryKFold(2),
        scoring=RankingScorer(),
        error_score="raise",
    )
    log = log.assign(relevance=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(log, clicks)
    assert dict(search.best_estimator_.estimators)["ips"].estimator.alpha == 1.0
    assert ranker.get_params()["ips__estimator__alpha"] == 1.0
