"""A further log: networks train on, tables of counts become what all logs give together."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skultr import ClickDataset
from skultr.click_models import (
    CascadeModel,
    DBNModel,
    DCMModel,
    DCTRModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.exceptions import ClickDataWarning
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import (
    AffineRanker,
    DLARanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PairDebiasRanker,
    PRSRanker,
    RegressionEMRanker,
    TwoTowerRanker,
    UserAwareIPSRanker,
)
from tests._discovery import public_click_models, public_rankers
from tests._worlds import FEATURES, random_lists

pytestmark = pytest.mark.filterwarnings("ignore")

CURVE = [1.0, 0.6, 0.4]
QUICK = {"max_epochs": 2, "hidden_layer_sizes": (4,), "random_state": 0}
NETWORKS = [
    NaiveRanker(),
    NaiveRanker(loss="bce"),
    IPSRanker(),
    IPSRanker(propensity=CURVE, correction="divide", clip=None),
    UserAwareIPSRanker(propensity=CURVE),
    PRSRanker(propensity=CURVE),
    DLARanker(),
    DLARanker(examination="network"),
    RegressionEMRanker(),
    RegressionEMRanker(examination="network"),
    TwoTowerRanker(examination="network"),
    PairDebiasRanker(),
]
TABLES = [
    DCTRModel(),
    RDCTRModel(),
    PBMModel(),
    PBMModel(prior="empirical"),
    UBMModel(),
    CascadeModel(),
    DCMModel(),
    DBNModel(),
    RegressionEMRanker(relevance="embedding", random_state=0),
    DLARanker(relevance="embedding", random_state=0),
    TwoTowerRanker(relevance="embedding", random_state=0),
]


@pytest.fixture(scope="module")
def days():
    """Two days of one log: the second has queries, documents and a user that the first has not."""
    log, clicks = random_lists(n_sessions=400, n_queries=8)
    log["user"] = log["session"] // 100
    day = np.where(log["qid"] < 3, 2, 1 + log["session"] % 2)
    return [(log[day == each], clicks[day == each]) for each in (1, 2)]


@pytest.fixture(scope="module")
def both(days):
    return pd.concat([X for X, _ in days]), np.concatenate([y for _, y in days])


def tables_of(estimator):
    found = {name: of for name, of in vars(estimator).items() if name.endswith("_")}
    return {name: of for name, of in found.items() if isinstance(of, pd.DataFrame | pd.Series)}


def quick(ranker):
    return clone(ranker).set_params(**QUICK)


@pytest.mark.parametrize("estimator", TABLES, ids=repr)
def test_days_add_up_to_the_whole_log(estimator, days, both):
    whole = clone(estimator).fit(*both)
    added = clone(estimator)
    for day in days:
        assert added.partial_fit(*day) is added
    expected, found = tables_of(whole), tables_of(added)
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        same = pd.testing.assert_frame_equal
        if isinstance(table, pd.Series):
            same = pd.testing.assert_series_equal
        same(found[name], table, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(added.predict(both[0]), whole.predict(both[0]), rtol=1e-9)


@pytest.mark.parametrize("estimator", TABLES, ids=repr)
def test_a_table_goes_on_after_fit(estimator, days, both):
    fitted = clone(estimator).fit(*days[0])
    size = len(pickle.dumps(fitted))
    begun = clone(estimator).partial_fit(*days[0])
    assert size < len(pickle.dumps(begun))
    scores = [each.partial_fit(*days[1]).predict(both[0]) for each in (fitted, begun)]
    np.testing.assert_array_equal(*scores)


def test_documents_without_ids_add_up_by_their_features(days, both):
    days, both = ([(X.drop(columns="doc"), y) for X, y in logs] for logs in (days, [both]))
    whole = DCTRModel().fit(*both[0])
    added = DCTRModel().partial_fit(*days[0]).partial_fit(*days[1])
    pd.testing.assert_frame_equal(added.documents_, whole.documents_)


def test_documents_need_the_names_of_before(days):
    (X, y), (X_new, y_new) = days
    model = DCTRModel().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"by the values of the features.*by the pair"):
        model.partial_fit(X_new.drop(columns="doc"), y_new)
    moved = X.assign(f0=X["f0"] + 1)  # other versions of the same documents
    again = DCTRModel().partial_fit(X, y).partial_fit(X, y)
    pd.testing.assert_frame_equal(model.partial_fit(moved, y).documents_, again.documents_)
    with pytest.raises(ValueError, match="role 'production'"):
        PBMModel().partial_fit(X, y).partial_fit(X.assign(production=1.0), y)


@pytest.mark.parametrize("ranker", NETWORKS, ids=repr)
def test_networks_train_on(ranker, days):
    (X, y), more = days
    ranker = quick(ranker).fit(X, y)
    before = copy.deepcopy(ranker)
    ranker.partial_fit(*more)
    old, new = (each.network_.state_dict() for each in (before, ranker))
    scaling = [name for name in old if name.startswith("0.")]
    assert scaling
    for name in scaling:
        assert (new[name] == old[name]).all()
    assert any((new[name] != old[name]).any() for name in old)
    # Two epochs more, from where it was: a fresh network is farther away.
    assert ranker.n_iter_ == len(ranker.history_) == before.n_iter_ + 2
    pd.testing.assert_frame_equal(ranker.history_.iloc[:2], before.history_)
    assert ranker.history_.index.tolist() == [1, 2, 3, 4]
    scores = [each.predict(X[FEATURES]) for each in (before, ranker, quick(ranker).fit(*more))]
    assert np.corrcoef(scores[0], scores[1])[0, 1] > 0.95
    assert np.isfinite(scores[1]).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", ["auto", "network"])
def test_a_day_of_fewer_positions_keeps_what_is_known_of_the_others(name, days):
    (X, y), (more, clicks) = days
    ranker = quick(RegressionEMRanker(examination=name)).fit(X, y)
    before = ranker.examination_
    top = (more["position"] < 3).to_numpy()
    ranker.partial_fit(more[top], clicks[top])
    np.testing.assert_allclose(ranker.examination_.loc[3], before.loc[3])
    counts = before["impressions"] + [
        (more["position"][top] == place).sum() for place in (1, 2, 3)
    ]
    np.testing.assert_allclose(ranker.examination_["impressions"], counts)
    assert np.isfinite(ranker.predict_click(X)).all()


@pytest.mark.parametrize("ranker", [RegressionEMRanker(), PairDebiasRanker()], ids=repr)
def test_a_position_without_parameter_is_an_error_that_changes_nothing(ranker, days):
    (X, y), (more, clicks) = days
    top = (X["position"] < 3).to_numpy()
    ranker = quick(ranker).fit(X[top], y[top])
    before = dict(vars(ranker))
    with pytest.raises(ValueError, match=r"1 bias factor\(s\) of the log, such as 3, were not"):
        ranker.partial_fit(more, clicks)
    assert vars(ranker).keys() == before.keys()
    assert all(vars(ranker)[name] is value for name, value in before.items())


def test_a_training_that_fails_changes_nothing(days):
    ranker = quick(NaiveRanker()).fit(*days[0])
    scores = ranker.predict(days[0][0])
    ranker.set_params(
        learning_rate=1e30, optimizer="adagrad", net_params={"callbacks__clip": None}
    )
    before = dict(vars(ranker))
    X, y = days[1]
    with pytest.raises(ValueError, match="feature names"):
        ranker.partial_fit(X.drop(columns="f2"), y)
    with pytest.raises(ValueError, match="diverged"):
        ranker.partial_fit(X, y)
    assert vars(ranker).keys() == before.keys()
    np.testing.assert_array_equal(ranker.predict(days[0][0]), scores)


def test_a_log_without_clicks_warns_and_changes_no_network(days):
    ranker = quick(NaiveRanker()).fit(*days[0])
    scores = ranker.predict(days[0][0])
    with pytest.warns(ClickDataWarning, match="The log has no clicks"):
        ranker.partial_fit(days[1][0], np.zeros(len(days[1][1])))
    np.testing.assert_array_equal(ranker.predict(days[0][0]), scores)
    assert ranker.n_iter_ == 2


def test_propensities_of_the_first_log_stay(days):
    (X, y), (more, clicks) = days
    estimator = RegressionEMPropensity(relevance="embedding")
    ranker = quick(IPSRanker(propensity=estimator)).fit(X, y)
    fitted = ranker.propensity_
    assert ranker.partial_fit(more, clicks).propensity_ is fitted
    learned = quick(IPSRanker()).fit(X, y)
    before = learned.examination_["examination"]
    after = learned.partial_fit(more, clicks).examination_["examination"]
    np.testing.assert_array_equal(before, after)
    known = quick(IPSRanker()).fit(X.assign(propensity=1 / X["position"]), y)
    with pytest.raises(ValueError, match="this log has not"):
        known.partial_fit(more, clicks)


@pytest.mark.parametrize("estimator", [NaiveRanker(), DLARanker(), PBMModel()], ids=repr)
def test_datasets_and_frames_continue_each_other(estimator, days, tmp_path):
    if "random_state" in estimator.get_params():
        estimator = quick(estimator)
    datasets = [
        ClickDataset.from_parquet(X.assign(click=y), path=tmp_path / f"{day}")
        for day, (X, y) in enumerate(days)
    ]
    frames = clone(estimator).partial_fit(*days[0]).partial_fit(*days[1])
    mixed = clone(estimator).partial_fit(*days[0]).partial_fit(datasets[1])
    stored = clone(estimator).partial_fit(datasets[0]).partial_fit(datasets[1])
    X = days[1][0].drop(columns="user")
    for other in (mixed, stored):
        np.testing.assert_allclose(other.predict(X), frames.predict(X), rtol=1e-6)


def test_who_has_partial_fit():
    trees = NaiveRanker(estimator=object())
    for estimator in (AffineRanker(), trees, PBMModel(solver="gradient"), LambdaMARTRanker()):
        assert not hasattr(estimator, "partial_fit")
    found = [*public_rankers(), *public_click_models()]
    names = {type(each).__name__ for each in found if hasattr(each, "partial_fit")}
    assert names >= {type(each).__name__ for each in (*NETWORKS, *TABLES)}
