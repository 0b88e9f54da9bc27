import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skultr.exceptions import ClickDataWarning, MissingRoleWarning
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity, UserClusters
from skultr.rankers import UserAwareIPSRanker

N_POSITIONS = 4
ETAS = (2.0, 0.8, 0.0)


def by_user(**options):
    return RegressionEMPropensity(user="user", relevance="embedding", **options)


def log_of_users(n_users=30, n_sessions=12_000, etas=ETAS, seed=0):
    """Shuffled lists of a few documents; user u examines with the exponent ``etas[u % ...]``."""
    rng = np.random.default_rng(seed)
    query = rng.integers(5, size=n_sessions)
    user = rng.integers(n_users, size=n_sessions)
    place = np.argsort(rng.random((n_sessions, N_POSITIONS)), axis=1)
    doc = query[:, None] * N_POSITIONS + place
    relevance = rng.uniform(0.3, 0.9, 5 * N_POSITIONS)
    eta = np.array(etas)[user % len(etas)]
    examined = np.arange(1.0, N_POSITIONS + 1) ** -eta[:, None]
    X = pd.DataFrame(
        {
            "qid": np.repeat(query, N_POSITIONS),
            "session": np.repeat(np.arange(n_sessions), N_POSITIONS),
            "user": np.array([f"u{name:02}" for name in range(n_users)])[
                np.repeat(user, N_POSITIONS)
            ],
            "doc": doc.ravel(),
            "position": np.tile(np.arange(1, N_POSITIONS + 1), n_sessions),
            "bm25": relevance[doc.ravel()],
        }
    )
    clicks = rng.random((n_sessions, N_POSITIONS)) < examined * relevance[doc]
    return X, clicks.ravel().astype(float)


@pytest.fixture(scope="module")
def log():
    return log_of_users()


@pytest.fixture(scope="module")
def clusters(log):
    return UserClusters(3, propensity=by_user(), random_state=0).fit(*log)


def test_recovers_the_groups_in_the_order_of_how_far_they_look(clusters):
    kind = clusters.labels_.index.str[1:].astype(int) % len(ETAS)
    assert (clusters.labels_.to_numpy() == kind).mean() > 0.95
    curves = clusters.cluster_curves_
    assert curves.index.tolist() == [0, 1, 2]
    assert curves.columns.tolist() == [1, 2, 3, 4]
    truth = np.arange(1.0, N_POSITIONS + 1) ** -np.array(ETAS)[:, None]
    np.testing.assert_allclose(curves, truth, atol=0.08)


def test_users_weigh_as_their_impressions():
    X, clicks = log_of_users(n_users=6, etas=(2.0, 2.0, 2.0, 1.0, 0.0, 0.0))
    weight = np.where(X["user"] == "u03", 1.0, 50.0)
    found = UserClusters(2, propensity=by_user(), random_state=0).fit(X, clicks, weight)
    curves = found.propensity_.examination_["examination"].unstack("bias")
    heavy = curves.loc[found.labels_[found.labels_ == found.labels_["u03"]].index]
    heavy = heavy.drop("u03").mean()
    # The light user hardly moves the mean of their cluster.
    center = found.cluster_curves_.loc[found.labels_["u03"]]
    assert np.abs(center - heavy).max() < 0.05 < np.abs(curves.loc["u03"] - heavy).max()


def test_transform_replaces_users(log, clusters):
    X = log[0]
    out = clusters.transform(X)
    assert out.columns.tolist() == X.columns.tolist()
    assert out["user"].tolist() == clusters.labels_[X["user"]].tolist()
    pd.testing.assert_frame_equal(out.drop(columns="user"), X.drop(columns="user"))
    assert X["user"].iloc[0].startswith("u")
    assert clusters.n_features_in_ == 1


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_frames(log, clusters, library):
    module = pytest.importorskip(library)
    X, clicks = log
    frame = module.from_pandas(X) if library == "polars" else module.Table.from_pandas(X)
    other = clone(clusters).fit(frame, clicks)
    pd.testing.assert_series_equal(other.labels_, clusters.labels_)
    out = other.transform(frame)
    assert type(out) is type(frame)
    expected = clusters.transform(X)["user"].tolist()
    found = out["user"].to_pylist() if library == "pyarrow" else out["user"].to_list()
    assert found == expected


def test_set_output(log, clusters):
    polars = pytest.importorskip("polars")
    out = clone(clusters).set_output(transform="polars").fit_transform(*log)
    assert isinstance(out, polars.DataFrame)


def test_unknown_users_join_the_common_cluster(log, clusters):
    X = log[0].head(8).assign(user=["u00", "new"] * 4)
    with pytest.warns(ClickDataWarning, match="4 rows of users who are not in .*'new'"):
        code = clusters.transform(X)["user"]
    common = clusters.propensity_.average_examination_["examination"]
    nearest = ((clusters.cluster_curves_ - common) ** 2).sum(axis=1).argmin()
    assert code.tolist() == [clusters.labels_["u00"], nearest] * 4


def test_a_serving_frame_passes_through(clusters):
    X = pd.DataFrame({"qid": [1, 1], "bm25": [0.1, 0.2]})
    assert clusters.transform(X) is X


def test_works_before_a_ranker(log):
    X, clicks = log
    ranker = make_pipeline(
        UserClusters(3, propensity=by_user(), random_state=0),
        UserAwareIPSRanker(propensity=by_user(), max_epochs=2, random_state=0),
    ).fit(X, clicks)
    users = ranker[-1].propensity_.examination_.index.get_level_values("user").unique()
    assert users.tolist() == [0, 1, 2]
    scores = ranker.predict(X[["qid", "bm25"]])
    assert scores.shape == (len(X),)
    loaded = pickle.loads(pickle.dumps(ranker))
    with pytest.warns(ClickDataWarning, match="holds no users.*changes no prediction"):
        np.testing.assert_array_equal(loaded.predict(X), scores)


def test_a_pickle_holds_no_users(log, clusters):
    X = log[0].head(8)
    loaded = pickle.loads(pickle.dumps(clusters))
    with pytest.warns(ClickDataWarning, match="a pickle, which holds no users: those of 8 rows"):
        code = loaded.transform(X)["user"]
    assert set(code) == {clusters._nearest}
    pd.testing.assert_frame_equal(loaded.cluster_curves_, clusters.cluster_curves_)
    serving = X.drop(columns="user")
    assert loaded.transform(serving) is serving
    loaded.labels_ = pickle.loads(pickle.dumps(clusters.labels_))
    pd.testing.assert_frame_equal(loaded.transform(log[0]), clusters.transform(log[0]))


def test_users_who_are_all_alike_warn():
    X, clicks = log_of_users(n_users=4, n_sessions=2_000, etas=(1.0,))
    alike = by_user(user_shrinkage=1e6)  # weight of the common curve
    with pytest.warns(ClickDataWarning, match="4 users have only 1 distinct curve;"):
        found = UserClusters(2, propensity=alike).fit(X, clicks)
    assert set(found.labels_) == {0}
    assert len(found.cluster_curves_) == 1


def test_a_position_that_a_user_never_saw_takes_the_common_curve():
    X, clicks = log_of_users(n_users=4, n_sessions=2_000, etas=(1.0,))
    seen = ~((X["user"] == "u00") & (X["position"] == 4)).to_numpy()
    alone = by_user(user_shrinkage=0)
    found = UserClusters(4, propensity=alone, random_state=0).fit(X[seen], clicks[seen])
    own = found.cluster_curves_.loc[found.labels_["u00"]]
    common = found.propensity_.average_examination_["examination"]
    assert own[4] == pytest.approx(common[4])


def test_fewer_users_than_clusters():
    X, clicks = log_of_users(n_users=4, n_sessions=100)
    with pytest.raises(ValueError, match="4 users; expected at least n_clusters=10"):
        UserClusters().fit(X, clicks)


@pytest.mark.parametrize("propensity", [by_user().set_params(user=None), PowerLawPropensity()])
def test_a_propensity_that_knows_no_users(log, propensity):
    with pytest.raises(ValueError, match="does not estimate a curve for each user"):
        UserClusters(2, propensity=propensity).fit(*log)


def test_clicks_are_needed(log):
    with pytest.raises(ValueError, match="requires y to be passed"):
        UserClusters(2).fit(log[0])


def test_without_users_it_passes_through(log):
    X = log[0].drop(columns="user")
    with pytest.warns(MissingRoleWarning, match="groups nobody"):
        found = UserClusters().fit(X, log[1])
    assert found.transform(X) is X
    assert found.propensity_ is None
