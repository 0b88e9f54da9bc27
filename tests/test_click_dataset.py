"""Every estimator takes a log on disk, with the results of the same log in memory."""

import inspect
from functools import partial

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import ClickDataset
from skultr.click_models import DBNModel, PBMModel
from skultr.datasets import make_ltr
from skultr.identifiability import (
    IdentifiabilityGraph,
    IdentifiabilityRepair,
    feature_overlap,
)
from skultr.metrics import ClickLikelihoodScorer, IPSScorer, PerplexityScorer, RankingScorer
from skultr.model_selection import (
    OffPolicySelection,
    QueryKFold,
    QueryShuffleSplit,
    train_test_queries,
)
from skultr.preprocessing import OnFeatures
from skultr.propensity import (
    ContextualPropensity,
    PowerLawPropensity,
    RegressionEMPropensity,
    UserClusters,
    relevance_labels,
)
from skultr.rankers import (
    DLARanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    UserAwareIPSRanker,
)
from skultr.simulation import PlackettLucePolicy, simulate_clicks
from tests import _discovery
from tests._worlds import random_lists, small_log

EMBEDDING = RegressionEMPropensity(relevance="embedding")
OF_USERS = RegressionEMPropensity(user="user", relevance="embedding")


# Small logs and short training.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def log():
    """Pages of 30 queries for four users; some pages are equal."""
    documents = make_ltr(n_queries=30, n_features=4, random_state=0)
    X, clicks, _ = simulate_clicks(
        documents, n_sessions=900, n_positions=4, policy=PlackettLucePolicy(), random_state=0
    )
    X["user"] = X.groupby("session").ngroup() % 4
    return X, clicks


@pytest.fixture(scope="module")
def dataset(log, tmp_path_factory):
    return write(*log, tmp_path_factory)


def write(X, clicks, tmp_path_factory, **columns):
    path = tmp_path_factory.mktemp("datasets") / "clicks"
    return ClickDataset.from_parquet(X.assign(click=clicks, **columns), path=path)


def brief(estimator):
    estimator = clone(estimator)
    known = estimator.get_params()
    settings = {"max_epochs": 2, "random_state": 0, "n_clusters": 2, "n_bootstrap": 0}
    return estimator.set_params(**{k: v for k, v in settings.items() if k in known})


def name_of(estimator):
    return type(estimator).__name__ + ("-users" if getattr(estimator, "user", None) else "")


#: Why an estimator does not take every dataset.
REFUSALS = {
    "RandomizedPropensity-users": "has no column 'arm'",  # which belongs to rows
}
ESTIMATORS = [*_discovery.public_estimators(), *_discovery.public_propensities()]
ESTIMATORS = list({name_of(each): each for each in ESTIMATORS}.values())


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_fit_of_a_dataset_is_that_of_its_log(estimator, log, dataset):
    X, clicks = log
    name = name_of(estimator)
    if name in REFUSALS:
        with pytest.raises((TypeError, ValueError), match=REFUSALS[name]):
            clone(estimator).fit(dataset)
        return
    # With all queries, and with some: then the others must leave no trace.
    parts = [(X, clicks, dataset)]
    in_part = X["qid"].isin(dataset.query_ids[::2]).to_numpy()
    parts.append((X[in_part], clicks[in_part], dataset[::2]))
    for X_part, y_part, of_disk in parts:
        expected = brief(estimator).fit(X_part, y_part)
        found = brief(estimator).fit(of_disk)
        if hasattr(expected, "predict"):
            np.testing.assert_array_equal(
                found.predict(X_part),
                expected.predict(X_part),
                err_msg="memory and disk sum in another order: begin with log.fold(patterns=True)",
            )
        for attribute in ("n_features_in_", "feature_names_in_", "examination_", "labels_"):
            if hasattr(expected, attribute):
                assert_alike(getattr(found, attribute), getattr(expected, attribute))


def assert_alike(found, expected, rtol=1e-9):
    if isinstance(expected, pd.DataFrame | pd.Series):
        same = pd.testing.assert_frame_equal, pd.testing.assert_series_equal
        same[isinstance(expected, pd.Series)](
            found, expected, check_dtype=False, check_index_type=False, rtol=rtol
        )
    else:
        assert np.all(np.asarray(found) == np.asarray(expected))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_nothing_is_passed_beside_a_dataset(estimator, log, dataset):
    names = ["y", "sample_weight", "qid", "position"]
    known = inspect.signature(estimator.fit).parameters
    for name in [name for name in names if name in known]:
        with pytest.raises(TypeError, match=f"Got a ClickDataset and {name} too"):
            brief(estimator).fit(dataset, **{name: log[1]})


# Propensities ------------------------------------------------------------------------------
SOURCES = {
    "default": None,
    "curve": [1.0, 0.6, 0.4, 0.3],
    "power law": PowerLawPropensity(eta=0.7),
    "embedding": EMBEDDING,
    "of users": OF_USERS,
    "contextual": ContextualPropensity(max_epochs=2),
    "other": make_pipeline(OnFeatures(StandardScaler()), PowerLawPropensity()),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ranker", [UserAwareIPSRanker, IPSRanker, LambdaMARTRanker])
def test_propensities_of_any_source(ranker, source, log, dataset):
    X, clicks = log
    model = brief(ranker(propensity=SOURCES[source]))
    found, expected = clone(model).fit(dataset), clone(model).fit(X, clicks)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    assert hasattr(found, "propensity_") == hasattr(expected, "propensity_")


@pytest.mark.parametrize("ranker", [UserAwareIPSRanker, IPSRanker, HeckmanRanker, NaiveRanker])
def test_propensities_as_a_column(ranker, log, tmp_path_factory):
    X, clicks = log
    X = X.assign(propensity=1 / (X["position"] + X["user"] % 2))
    model = brief(ranker())
    expected = clone(model).fit(X, clicks).predict(X)
    found = clone(model).fit(write(X, clicks, tmp_path_factory)).predict(X)
    np.testing.assert_array_equal(found, expected)


def test_propensities_that_contradict_each_other_or_lack(log, dataset, tmp_path_factory):
    with pytest.raises(ValueError, match="X has no column 'propensity'"):
        IPSRanker(propensity="column").fit(dataset)
    with pytest.raises(ValueError, match="positions up to 4"):
        IPSRanker(propensity=[1.0, 0.5]).fit(dataset)
    both = write(*log, tmp_path_factory, propensity=0.5)
    with pytest.raises(ValueError, match="expected one of them"):
        IPSRanker(propensity=EMBEDDING).fit(both)
    contexts = ContextualPropensity(context=[dataset.feature_names[0]])
    with pytest.raises(ValueError, match="are features of the ranker in a ClickDataset"):
        IPSRanker(propensity=contexts).fit(dataset)


# What the log tells ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def apart(log, tmp_path_factory):
    """A log in which no document moved, and its dataset."""
    X, clicks = log
    X = X.assign(doc=X["doc"].astype(str) + "@" + X["position"].astype(str))
    return X, clicks, write(X, clicks, tmp_path_factory)


def test_graph(log, dataset, apart):
    for (X, clicks), of_disk in ((log, dataset), (apart[:2], apart[2])):
        expected = IdentifiabilityGraph.from_log(X, click=clicks)
        found = IdentifiabilityGraph.from_log(of_disk)
        assert found.n_components == expected.n_components
        assert_alike(found.labels, expected.labels)
        assert_alike(found.components, expected.components)
        assert_alike(found.bridges(), expected.bridges())
    with pytest.raises(ValueError, match=r"lacks the bias columns \['device'\]"):
        IdentifiabilityGraph.from_log(dataset, bias=["position", "device"])


@pytest.mark.parametrize("strategy", ["merge", "intervene"])
def test_repair_and_what_follows_it(strategy, apart):
    X, clicks, dataset = apart
    repair = IdentifiabilityRepair(strategy=strategy, random_state=0)
    expected, found = clone(repair).fit(X, clicks), clone(repair).fit(dataset)
    for name in ("factors_", "merges_", "interventions_"):
        assert_alike(getattr(found, name), getattr(expected, name))
    steps = make_pipeline(repair, brief(DLARanker()))
    of_disk = clone(steps).fit(dataset)
    np.testing.assert_array_equal(of_disk.predict(X), clone(steps).fit(X, clicks).predict(X))
    table = of_disk[-1].examination_
    assert len(table) == (1 if strategy == "merge" else 4)
    assert "bias" not in dataset.roles
    with pytest.raises(ValueError, match="bias factors of the dataset are its column 'position'"):
        IdentifiabilityRepair(bias=["position", "user"]).fit(X, clicks).transform(dataset)


def test_clusters_of_users(log, dataset):
    X, clicks = log
    steps = make_pipeline(
        UserClusters(2, propensity=OF_USERS, random_state=0),
        brief(UserAwareIPSRanker(propensity=OF_USERS)),
    )
    found, expected = clone(steps).fit(dataset), clone(steps).fit(X, clicks)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_tables_of_the_log(log, dataset):
    X, clicks = log
    # The prior of the intervals is fitted by an optimiser, which ends in other digits.
    for interval, rtol in ((False, 1e-9), (True, 1e-4)):
        arguments = {"propensity": EMBEDDING, "interval": interval}
        found = relevance_labels(dataset, **arguments)
        assert_alike(found, relevance_labels(X, clicks, **arguments), rtol)
    # A sample of lists, which are others where equal ones are merged.
    assert feature_overlap(dataset).overlap == feature_overlap(dataset.to_frame()[0]).overlap


def test_rows_in_memory_are_those_of_the_log(log, dataset):
    X, clicks = log
    rows, rate = dataset.to_frame()
    keys = ["qid", "doc", "position", "user"]
    expected = X.assign(n=1, c=clicks).groupby(keys)[["n", "c"]].sum()
    found = rows.assign(n=rows["impressions"], c=rate * rows["impressions"])
    assert_alike(found.groupby(keys)[["n", "c"]].sum(), expected)
    model = brief(DLARanker())
    np.testing.assert_array_equal(
        clone(model).fit(rows, rate).predict(X), clone(model).fit(dataset).predict(X)
    )


# Splits and searches -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "splitter",
    [
        QueryKFold(3),
        QueryKFold(3, shuffle=True, random_state=0),
        QueryShuffleSplit(2, random_state=0),
    ],
)
def test_splits_have_the_same_queries(splitter, log, dataset):
    X, _ = log
    pairs = zip(splitter.split(X), splitter.split(dataset), strict=True)
    for of_rows, of_disk in pairs:
        for rows, queries in zip(of_rows, of_disk, strict=True):
            found = dataset[queries].query_ids.tolist()
            assert found == np.unique(X["qid"].to_numpy()[rows]).tolist()


def test_train_test_queries(log, dataset):
    X, clicks = log
    train, test = train_test_queries(dataset, random_state=0)
    of_rows = train_test_queries(X, random_state=0)
    for part, rows in zip((train, test), of_rows, strict=True):
        assert part.query_ids.tolist() == np.unique(rows["qid"]).tolist()
        assert part.n_impressions == len(rows)
    with pytest.raises(TypeError, match="Pass it alone"):
        train_test_queries(dataset, clicks)
    with pytest.raises(TypeError, match="Got a ClickDataset and qid too"):
        train_test_queries(dataset, qid=X["qid"])


SEARCHES = {
    # Without the last training: rounding can tip whether clicks of 15 queries confirm a curve.
    "likelihood": (
        partial(DLARanker, examination="network"),
        ClickLikelihoodScorer(propensity=[1.0, 0.6, 0.4, 0.3]),
    ),
    "ips": (NaiveRanker, IPSScorer(propensity=[1.0, 0.6, 0.4, 0.3])),
    "own score": (PBMModel, None),
    "given clicks": (DBNModel, PerplexityScorer()),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_search_has_the_same_scores(name, log, dataset):
    X, clicks = log
    model, scorer = SEARCHES[name]
    grid = {"learning_rate": [0.001, 0.1]} if "learning_rate" in model().get_params() else {}
    search = GridSearchCV(
        brief(model()), grid, scoring=scorer, cv=QueryKFold(2), error_score="raise"
    )
    expected, found = clone(search).fit(X, clicks), clone(search).fit(dataset)
    for score in ("mean_test_score", "split1_test_score"):
        np.testing.assert_allclose(
            found.cv_results_[score], expected.cv_results_[score], rtol=1e-9
        )
    assert found.best_params_ == expected.best_params_


def test_search_in_processes_and_selection_off_policy(dataset):
    scorers = {
        "cmip": PerplexityScorer(),
        "perplexity": PerplexityScorer(),
    }
    search = GridSearchCV(
        brief(PBMModel()),
        {},
        scoring=scorers,
        cv=KFold(2),
        refit=OffPolicySelection({"cmip": 1}),
        error_score="raise",
    )
    alone = clone(search).fit(dataset)
    several = clone(search).set_params(n_jobs=2).fit(dataset)
    np.testing.assert_array_equal(
        alone.cv_results_["mean_test_perplexity"], several.cv_results_["mean_test_perplexity"]
    )
    sizes = Parallel(n_jobs=2)(delayed(len)(dataset[part]) for part in ([0, 1], [2]))
    assert sizes == [2, 1]


# Where a dataset is refused ----------------------------------------------------------------
def test_scores_of_relevance_and_predictions_need_rows(log, dataset):
    model = NaiveRanker(estimator=Ridge()).fit(dataset)
    with pytest.raises(TypeError, match=r"score needs graded relevance.*ClickLikelihoodScorer"):
        model.score(dataset)
    for call in (model.predict, model.rank, lambda X: RankingScorer()(model, X)):
        with pytest.raises(TypeError, match=r"dataset\.to_frame\(\)"):
            call(dataset)


def test_features_of_a_dataset_are_transformed(log, dataset):
    X, _ = log
    steps = make_pipeline(
        IdentifiabilityRepair(random_state=0), OnFeatures(StandardScaler()), brief(DLARanker())
    )
    model = clone(steps).fit(dataset)
    features = X[dataset.feature_names]
    center = features.groupby([X["qid"], X["doc"]]).first()  # each document once
    scale = model.named_steps["onfeatures"].transformer_
    np.testing.assert_allclose(scale.mean_, center.mean(), rtol=1e-5)
    scaled = ((X[dataset.feature_names] - scale.mean_) / scale.scale_).to_numpy(np.float32)
    np.testing.assert_allclose(
        model.predict(X),
        model[-1].predict(X.assign(**dict(zip(dataset.feature_names, scaled.T, strict=True)))),
        atol=1e-5,
    )
    transformed = OnFeatures(StandardScaler()).fit_transform(dataset)
    rows, rate = transformed.to_frame()
    learner = brief(DLARanker(examination="network"))  # without a test that digits may decide
    alone = clone(learner).fit(transformed)
    np.testing.assert_array_equal(
        alone.predict(rows), clone(learner).fit(rows, rate).predict(rows)
    )


def test_candidates_of_a_search_share_the_log_and_the_scaling_of_none(tmp_path):
    log, clicks = small_log()
    dataset = ClickDataset.from_parquet(log.assign(click=clicks), path=tmp_path / "shared")
    part = dataset[: dataset.n_queries - 1]
    assert part.log() is dataset[: dataset.n_queries - 1].log()
    assert part.log() is not dataset.log()
    settings = {"max_epochs": 2, "random_state": 0, "early_stopping": False}
    first, second = (NaiveRanker(**settings).fit(part).predict(log) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_sessions_that_showed_the_same_list_are_one_list_on_disk(tmp_path):
    one = pd.DataFrame({"doc": ["a", "b"], "position": [1, 2], "f": [0.1, 0.2]})
    sessions = [one.assign(qid=1, session=k, click=[k % 2, k % 3 == 0]) for k in range(12)]
    log = pd.concat(sessions).astype({"click": int})
    dataset = ClickDataset.from_parquet(log, path=tmp_path / "clicks")
    merged, detailed = dataset.log(detailed=False), dataset.log()
    assert (merged.n_lists, detailed.n_lists) == (1, 4)  # a list has four patterns of clicks
    np.testing.assert_array_equal(np.asarray(merged.weight), [12, 12])
    np.testing.assert_array_equal(np.asarray(merged.clicks), [6, 4])
    assert merged.fold() is merged
    alone = ClickDataset.from_parquet(log[:2].assign(click=[0, 1]), path=tmp_path / "alone")
    names = [
        {path.name.split("_")[0] for path in each.path.iterdir()} for each in (dataset, alone)
    ]
    assert [{"merged", "detailed"} & each for each in names] == [
        {"merged", "detailed"},
        {"merged"},
    ]


def test_lists_that_differ_only_in_what_they_did_not_show_are_one(tmp_path):
    log, clicks = random_lists(n_sessions=300, n_queries=10, n_shown=4)
    hidden = (log["position"] > 2).to_numpy()
    log = log.assign(position=log["position"].mask(hidden))
    clicks = np.where(hidden, 0.0, clicks)
    dataset = ClickDataset.from_parquet(log.assign(click=clicks), path=tmp_path / "candidates")
    for ranker in (NaiveRanker(max_epochs=1, random_state=0), brief(DLARanker())):
        expected = clone(ranker).fit(log, clicks).predict(log)
        np.testing.assert_array_equal(clone(ranker).fit(dataset).predict(log), expected)


def test_lists_that_differ_only_in_propensities_are_one_where_nobody_reads_these(tmp_path):
    log, clicks = random_lists(n_sessions=200)
    told = np.where(log["session"] % 2, 0.5, 0.9) / log["position"]
    log = log.assign(propensity=told)
    dataset = ClickDataset.from_parquet(log.assign(click=clicks), path=tmp_path / "told")
    trees = LambdaMARTRanker(debiasing="none", n_estimators=3, random_state=0)
    expected = clone(trees).fit(log, clicks).predict(log)
    np.testing.assert_array_equal(clone(trees).fit(dataset).predict(log), expected)
