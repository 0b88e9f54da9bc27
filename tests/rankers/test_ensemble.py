"""EnsembleRanker: its weights, its members, what it refuses, and the order of many candidates."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import LinearRegression

from skultr._log._clicklog import make_click_log
from skultr._models._free_effects import FreeEffects
from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning
from skultr.propensity import PowerLawPropensity
from skultr.rankers import (
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    RankAggRanker,
    _ensemble,
    _weights,
)
from skultr.rankers._candidates import DistinctCandidates, standardized, typical_spread
from skultr.rankers._members import scores_of
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    production_scores,
    simulate_clicks,
)


class OneFeature(RegressorMixin, BaseEstimator):
    """The first feature is the score."""

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return X[:, 0]


LEAST = LinearRegression()
MEMBERS = [
    ("naive", NaiveRanker(estimator=LEAST)),
    ("ips", IPSRanker(estimator=LEAST, clip=0.1)),
]


def served_log(n_queries=60, n_sessions=3000, policy=None, seed=0, production=None):
    documents = make_ltr(n_queries, n_features=8, random_state=seed)
    if production is None:
        production = production_scores(documents, random_state=seed)
    documents["production"] = np.asarray(production)
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy() if policy is None else policy,
        scores=documents["production"],
        user=PositionBasedUser(1.0),
        random_state=seed,
    )
    return documents, log, clicks, truth


def scaled_by_log(documents, log, score):
    """Scores less their mean over the log, over the median deviation within its queries."""
    shown = documents.merge(log[["qid", "doc"]].drop_duplicates(), on=["qid", "doc"])
    known = pd.Series(np.asarray(score(shown)))
    spread = known.groupby(shown["qid"].to_numpy()).std(ddof=0).median()
    return (np.asarray(score(documents)) - known.mean()) / spread


def test_scores_are_the_weighted_mean_of_scaled_scores():
    documents, log, clicks, _ = served_log()
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    weights, query = ranker.weights_["weight"], documents["qid"]
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    served = scaled_by_log(documents, log, lambda rows: rows["production"])
    expected = weights["production"] * served
    for name, member in ranker.named_estimators_.items():
        of_member = scaled_by_log(
            documents,
            log,
            lambda rows, member=member: member.predict(rows.filter(like="feature").to_numpy()),
        )
        expected = expected + weights[name] * of_member
    np.testing.assert_allclose(ranker.predict(documents), expected, atol=1e-6)
    np.testing.assert_allclose(ranker.explain(documents).sum(axis=1), expected, atol=1e-6)
    by_keyword = ranker.predict(
        documents.filter(like="feature"), qid=query, production=documents["production"]
    )
    np.testing.assert_allclose(by_keyword, expected, atol=1e-6)
    mixed = documents.sample(frac=1, random_state=0)
    np.testing.assert_allclose(ranker.predict(mixed), expected[mixed.index], atol=1e-6)
    one = documents.iloc[[7]]
    np.testing.assert_allclose(ranker.predict(one), expected[[7]], atol=1e-6)


def test_typical_spread():
    query = np.array([0, 0, 0, 1, 2, 2, 3, 3, 4, 4])
    scores = np.array([1.0, 2.0, 3.0, 7.0, 5.0, 9.0, 4.0, 4.0, 0.0, 100.0])
    # Queries 0, 2 and 4; the score is constant in 1 and 3.
    assert typical_spread(scores, query) == pytest.approx(2)
    assert typical_spread(1e200 * scores, query) == pytest.approx(2e200)
    scores[-1] = 1e30  # an outlier is one query of three
    assert typical_spread(scores, query) == pytest.approx(2)
    assert typical_spread(np.array([3.0, 3.0, 8.0]), np.array([0, 0, 1])) == np.inf
    assert typical_spread(np.zeros(2), np.zeros(2, int)) == np.inf


def test_a_member_that_scores_all_alike_adds_nothing():
    documents, log, clicks, _ = served_log(n_sessions=300)
    log["production"] = 3.0
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    assert ranker.weights_.loc["production", "scale"] == np.inf
    parts = ranker.explain(documents)
    assert (parts["production"] == 0).all()
    assert np.isfinite(parts.to_numpy()).all()


def test_standardised_scores():
    query = np.array([0, 0, 0, 1, 2, 2])
    found = standardized(np.array([1.0, 2.0, 3.0, 7.0, 5.0, 5.0]), query)
    step = 1 / np.sqrt(2 / 3)
    np.testing.assert_allclose(found, [-step, 0, step, 0, 0, 0])
    np.testing.assert_allclose(standardized(np.array([1e200, 3e200]), np.zeros(2, int)), [-1, 1])
    apart = standardized(1e9 + np.array([1.0, 3.0]), np.zeros(2, int), 1e-12)
    np.testing.assert_allclose(apart, [-1, 1])


def weights_with_useless_production(seed, **settings):
    """Weights from 20,000 sessions whose order was noise, which has nothing to do with clicks."""
    n_documents = 20 * settings.get("n_queries", 60)
    noise = np.random.default_rng(seed).normal(size=n_documents)
    _, log, clicks, truth = served_log(n_sessions=20_000, production=noise, seed=seed, **settings)
    ranker = EnsembleRanker(MEMBERS, propensity=truth.examination, random_state=0)
    return ranker.fit(log, clicks).weights_


def test_useless_production_has_no_more_weight_than_its_error():
    """Over logs of 60 queries in an order that hardly changes.

    Where it must be 0, the logit of production is a normal variable, of which the part below 0 is
    cut off. Standard errors away, it is the odds w / (1 - w) over their error, which is that of
    the weight over (1 - w)^2. The weight itself is not: its error shrinks as it grows.
    """
    n_logs = 4
    away = np.zeros(n_logs)
    for seed in range(n_logs):
        weight, error = weights_with_useless_production(seed).loc["production"].iloc[:2]
        if weight:
            away[seed] = weight * (1 - weight) / error
    # A normal variable, cut off at 0, has the mean .40 and the standard deviation .58. The prior
    # adds up to .2 to the mean, and errors are up to a seventh too small.
    largest_mean = 1.14 * (0.4 + 0.58 * 3.5 / np.sqrt(n_logs)) + 0.2
    assert away.mean() < largest_mean
    assert away.max() < 1.14 * 3.9 + 0.2


def test_useless_production_loses_its_weight_if_queries_are_many_and_documents_move():
    """Its logit then has an error of .06 of that of the other members together."""
    policy = PlackettLucePolicy(temperature=1.0)
    n_logs = 2
    found = np.zeros(n_logs)
    for seed in range(n_logs):
        weights = weights_with_useless_production(seed, n_queries=400, policy=policy)
        assert weights["loss"].idxmax() == "production"
        estimated = weights.query("0 < weight < 1")
        assert (estimated["standard_error"] > 0).all()
        found[seed] = weights.loc["production", "weight"]
    # A weight is less than its odds: .06 times a normal variable that is cut off at 0, with the
    # mean .40 and the standard deviation .58. The prior adds up to .01.
    largest_mean = 0.06 * (0.4 + 0.58 * 3.5 / np.sqrt(n_logs)) + 0.01
    assert found.mean() < largest_mean


def test_few_clicks_hardly_move_the_weights():
    """Over logs of 60 sessions, production keeps near the half that it starts with."""
    weights = []
    for seed in range(8):
        _, log, clicks, truth = served_log(n_sessions=60, seed=seed)
        ranker = EnsembleRanker(MEMBERS, propensity=truth.examination, random_state=0)
        weights.append(ranker.fit(log, clicks).weights_["weight"])
    np.testing.assert_allclose(np.median(weights, axis=0), [0.25, 0.25, 0.5], atol=0.1)


@pytest.mark.parametrize("has_production", [True, False])
def test_weights_where_clicks_confirm_no_mixture(has_production):
    """All members have the first feature as score, and few users click where it is smallest."""
    _, log, _, truth = served_log(n_sessions=100)
    feature = log.drop(columns=["qid", "session", "doc", "position", "production"]).iloc[:, 0]
    log = log.assign(production=feature) if has_production else log.drop(columns="production")
    clicks = feature == feature.groupby(log["session"]).transform("min")
    members = [
        ("naive", NaiveRanker(estimator=OneFeature())),
        ("ips", IPSRanker(estimator=OneFeature(), clip=0.1)),
    ]
    ranker = EnsembleRanker(members, propensity=truth.examination, random_state=0)
    weights = ranker.fit(log, clicks.astype(float)).weights_["weight"]
    expected = [0.125, 0.125, 0.75] if has_production else [0.5, 0.5]
    np.testing.assert_allclose(weights, expected, atol=0.03)


class ByWholeQuery(NaiveRanker):
    """Scores that only the hook for whole queries knows."""

    def _scores_within(self, X, qid):
        return super()._scores_within(X, qid) + 1000.0 * np.arange(len(X))


class OneNumber(NaiveRanker):
    def _score(self, features):
        return super()._score(features)[:1]


@pytest.mark.parametrize(
    "propensity",
    [
        None,
        "column",
        1 / np.arange(1.0, 11),
        PowerLawPropensity(),
        PBMModel(),
        {"a": PowerLawPropensity(), "b": PowerLawPropensity(eta=0.5)},
    ],
    ids=["none", "column", "array", "estimator", "click model", "users"],
)
def test_a_member_brings_its_own_propensities(propensity):
    _, log, clicks, _ = served_log(n_sessions=300)
    log["user"] = np.where(log["session"] % 2, "a", "b")
    own = LambdaMARTRanker(propensity=propensity, n_estimators=5)
    naive = LambdaMARTRanker(naive_weight=1.0, n_estimators=5)
    ranker = EnsembleRanker([("naive", naive), ("own", own)], random_state=0).fit(log, clicks)
    fitted = ranker.named_estimators_["own"]
    is_estimated = isinstance(propensity, dict) or hasattr(propensity, "fit")
    assert hasattr(fitted, "propensity_") == is_estimated
    assert np.isfinite(ranker.weights_["weight"]).all()


def test_members_have_their_own_hooks_and_checks():
    documents, log, clicks, truth = served_log()
    members = [("naive", NaiveRanker(estimator=LEAST)), ("hook", ByWholeQuery(estimator=LEAST))]
    ranker = EnsembleRanker(members, propensity=truth.examination, random_state=0)
    hook = ranker.fit(log, clicks).estimators_[1]
    names = [name for name in documents if name.startswith("feature")]
    features = documents[names].to_numpy(dtype=np.float32)
    found = scores_of(hook, features, documents["qid"].to_numpy())
    own = hook._score(features) + 1000.0 * np.arange(len(features))
    np.testing.assert_allclose(found, own)
    members[1] = ("wrong", OneNumber(estimator=LEAST))
    with pytest.raises(ValueError, match=r"OneNumber._score returned the shape \(1,\)"):
        EnsembleRanker(members, propensity=truth.examination).fit(log, clicks)


def test_cross_fitted_members_train_half_as_long(monkeypatch):
    """Trees after the best one are lost, and what is weighed need not be the best."""
    _, log, clicks, _ = served_log(n_sessions=300)
    seen, fit = [], _weights.fit_member

    def spy(ranker, part):
        seen.append((ranker.n_iter_no_change, getattr(ranker, "_length", None)))
        return fit(ranker, part)

    monkeypatch.setattr(_weights, "fit_member", spy)
    trees = LambdaMARTRanker(naive_weight=1.0, n_estimators=5, n_iter_no_change=7)
    network = NaiveRanker(max_epochs=1)
    members = [("trees", trees), ("network", network)]
    ranker = EnsembleRanker(members, propensity=[1.0] * 10).fit(log, clicks)
    assert seen == [(4, None), (4, None), (5, 0.5), (5, 0.5)]
    assert trees.n_iter_no_change == 7
    assert ranker.named_estimators_["network"]._length == 1


class Patient(BaseEstimator):
    """A ranker whose patience may be anything."""

    def __init__(self, n_iter_no_change):
        self.n_iter_no_change = n_iter_no_change


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (7, 4),
        (1, 1),
        (0, 0),
        (np.uint8(7), 4),
        (None, None),
        ("auto", "auto"),
        (2.5, 2.5),
        (-5, -5),
    ],
)
def test_half_of_a_patience_that_is_no_number_is_itself(monkeypatch, given, kept):
    monkeypatch.setattr(_weights, "fit_member", lambda ranker, part: ranker)
    monkeypatch.setattr(_weights, "scores_of", lambda ranker, *rows: ranker.n_iter_no_change)
    log = SimpleNamespace(part_of=lambda others: None)
    assert _weights._fitted_elsewhere(Patient(given), log, None, None, None) == kept


def test_production_that_knows_the_labels_has_nearly_all_weight(monkeypatch):
    documents = make_ltr(60, n_features=8, random_state=0)
    _, log, clicks, truth = served_log(n_sessions=20_000, production=documents["relevance"])
    ranker = EnsembleRanker(MEMBERS, propensity=truth.examination, random_state=0)
    weights = ranker.fit(log, clicks).weights_["weight"]
    assert 0.8 < weights["production"] <= 0.9
    # Its labels may be those of the log alone: the others keep a part.
    monkeypatch.setattr(_ensemble, "MOST", _ensemble.MOST._replace(value=0.7))
    less = ranker.fit(log, clicks).weights_["weight"]
    assert less["production"] == pytest.approx(0.7)
    assert less.sum() == pytest.approx(1)
    assert (less > weights).tolist() == [True, True, False]


def test_weights_do_not_depend_on_the_curve_that_is_told():
    """The effects of positions are free; the members are fitted to other clicks than these."""
    _, log, clicks, truth = served_log(n_sessions=20_000)
    members = [("first", NaiveRanker(estimator=LEAST)), ("second", NaiveRanker(random_state=0))]
    found = [
        EnsembleRanker(members, propensity=curve, random_state=0).fit(log, clicks).weights_
        for curve in (truth.examination, np.ones(len(truth.examination)))
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_fixed_order_of_production_that_knows_the_labels():
    """The clicks within a position are unrelated to what the members learned."""
    documents = make_ltr(60, n_features=8, random_state=0)
    documents, log, clicks, _ = served_log(
        n_sessions=2_000, production=documents["relevance"], policy=DeterministicPolicy()
    )
    with pytest.warns(NotIdentifiableWarning, match="does not determine relevance"):
        ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    assert ranker.weights_["weight"].idxmax() == "production"


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_fixed_order_of_weak_production():
    noise = np.random.default_rng(0).normal(size=200 * 20)
    _, log, clicks, truth = served_log(
        n_queries=200, n_sessions=20_000, policy=DeterministicPolicy(), production=noise
    )
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    # How they share the rest is not determined: both members are linear in the same features.
    assert ranker.weights_.loc["production", "weight"] < 0.5
    learned = np.log(ranker.examination_["examination"].to_numpy()[:5])
    np.testing.assert_allclose(learned, np.log(truth.examination[:5]), atol=0.5)
    assert "network" in ranker.examination_comparison_


def test_without_production_all_members_weigh_alike():
    _, log, clicks, _ = served_log(n_sessions=300)
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log.drop(columns="production"), clicks)
    assert ranker.weights_["weight"].tolist() == [0.5, 0.5]
    assert ranker.weights_["loss"].isna().all()


def test_one_word_makes_all_members_trees():
    """They take categories and missing values, as each of them does."""
    _, log, clicks, _ = served_log(n_sessions=300)
    names = [name for name in log if name.startswith("feature")]
    log[names[0]] = pd.Series(np.where(log["doc"] % 2, "a", "b"), log.index, dtype="category")
    log.loc[log["doc"] % 3 == 0, names[1]] = np.nan
    ranker = EnsembleRanker("trees", random_state=0).set_params(trees__n_estimators=5)
    ranker = clone(ranker).fit(log, clicks)
    assert [*ranker.named_estimators_] == ["naive", "trees"]
    assert ranker.named_estimators_["trees"].n_estimators == 5
    again = pickle.loads(pickle.dumps(ranker)).predict(log)
    np.testing.assert_array_equal(again, ranker.predict(log))


def test_production_is_needed_where_it_has_a_weight():
    documents, log, clicks, _ = served_log(n_sessions=300)
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    with pytest.raises(ValueError, match=r"no column 'production'.*has the weight"):
        ranker.predict(documents.drop(columns="production"))
    documents.loc[0, "production"] = np.nan
    with pytest.raises(ValueError, match="production must be a finite score"):
        ranker.predict(documents)
    ranker.fit(log.drop(columns="production"), clicks)
    assert ranker.weights_.index.tolist() == ["naive", "ips"]
    assert len(ranker.predict(documents.drop(columns="production"))) == len(documents)
    whole = ranker.predict(documents)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # without production a score needs no query
        alone = ranker.predict(documents.drop(columns=["qid", "production"]).iloc[:1])
    np.testing.assert_allclose(alone, whole[:1])


def test_members_that_need_the_query_ask_for_it():
    documents, log, clicks, _ = served_log(n_queries=20, n_sessions=300)
    members = [("naive", MEMBERS[0][1]), ("ranks", RankAggRanker(MEMBERS))]
    ranker = EnsembleRanker(members, random_state=0).fit(log.drop(columns="production"), clicks)
    ranker.predict(documents)
    with pytest.warns(MissingRoleWarning, match="no query ids"):
        ranker.predict(documents.drop(columns="qid"))


def test_few_queries():
    _, log, clicks, truth = served_log(n_queries=4, n_sessions=200)
    ranker = EnsembleRanker(MEMBERS, propensity=truth.examination, random_state=0)
    with pytest.warns(ClickDataWarning, match="Fewer than 10 queries have clicks"):
        ranker.fit(log, clicks)
    np.testing.assert_allclose(ranker.weights_["weight"], [0.25, 0.25, 0.5])


def test_names_of_members():
    _, log, clicks, _ = served_log(n_queries=4, n_sessions=50)
    with pytest.raises(ValueError, match="is called 'production'"):
        EnsembleRanker([("production", NaiveRanker())]).fit(log, clicks)
    with pytest.raises(ValueError, match=r"expected at least one \(name, ranker\) pair"):
        EnsembleRanker([]).fit(log, clicks)


def test_beyond_what_the_log_showed_production_decides():
    """Queries with far more candidates than the log showed are only reranked at the top."""
    documents = make_ltr(n_queries=30, n_documents=41, n_features=5, random_state=0)
    served = production_scores(documents, random_state=0)
    documents = documents.assign(production=served)
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=600, n_positions=10, scores=served, random_state=0
    )
    ranker = EnsembleRanker(MEMBERS, propensity=np.linspace(1, 0.3, 10), random_state=0)
    ranker.fit(log, clicks)
    assert ranker.depth_ == 10
    rank = ranker.rank(documents)
    by_production = documents.groupby("qid")["production"].rank(ascending=False, method="first")
    below = (by_production > 10).to_numpy()
    np.testing.assert_array_equal(rank[below], by_production[below])
    assert (rank[~below] <= 10).all()
    assert (rank[~below] != by_production[~below]).any()
    parts = ranker.explain(documents)
    np.testing.assert_allclose(parts.sum(axis=1), ranker.predict(documents))
    few = documents[by_production <= 40]  # no more than four times as many
    assert (ranker.rank(few)[by_production[by_production <= 40] > 10] <= 10).any()


@pytest.mark.parametrize("named", [True, False], ids=["with doc", "without doc"])
def test_a_document_of_a_log_counts_once(named):
    """Many pages of few documents are no long list of candidates, and do not shift scores."""
    documents = make_ltr(n_queries=30, n_documents=12, n_features=5, random_state=0)
    served = production_scores(documents, random_state=0)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=600,
        n_positions=10,
        scores=served,
        policy=PlackettLucePolicy(),
        random_state=0,
    )
    documents = documents.assign(production=served)
    log = log.merge(documents[["qid", "doc", "production"]], on=["qid", "doc"])
    ranker = EnsembleRanker(MEMBERS, propensity=np.linspace(1, 0.3, 10), random_state=0)
    ranker.fit(log.assign(click=clicks), "click")
    assert ranker.weights_.loc["production", "weight"] > 0
    assert log.groupby("qid").size().max() > 3 * ranker.depth_
    X = log if named else log.drop(columns="doc")
    once = ~log.duplicated(["qid", "doc"]).to_numpy()
    code = log.groupby(["qid", "doc"], sort=False).ngroup().to_numpy()
    np.testing.assert_array_equal(ranker.predict(X), ranker.predict(X[once])[code])
    np.testing.assert_array_equal(ranker.explain(X), ranker.explain(X[once]).to_numpy()[code])


def test_different_documents_with_equal_features_count_each():
    """Ids tell them apart, and without ids the score of production does."""
    documents = make_ltr(n_queries=40, n_documents=26, n_features=3, random_state=0)
    documents["production"] = -documents.groupby("qid").cumcount().to_numpy(float)
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=600, n_positions=5, scores=documents["production"], random_state=0
    )
    ranker = EnsembleRanker(MEMBERS, propensity=np.linspace(1, 0.3, 5), random_state=0)
    ranker.fit(log, clicks)
    assert ranker.depth_ == 5
    many = documents[documents["qid"] == documents["qid"].iloc[0]].drop(columns="relevance")
    many = many.iloc[: 5 * 4]

    def follows_production(rows):
        """Whether all but the first five keep their order."""
        return (np.diff(ranker.predict(rows)[5 : len(many)]) < 0).all()

    assert not follows_production(many)  # as many candidates as are ranked anew
    twin = many.iloc[[0]].assign(doc=-5)
    assert follows_production(pd.concat([many, twin]))  # one too many
    # The same twin without ids is a repeated row, unless production tells it apart.
    rows = pd.concat([many, twin]).drop(columns="doc")
    assert not follows_production(rows)
    rows["production"] = [*many["production"], many["production"].min() - 1]
    assert follows_production(rows)


def test_rows_of_a_document_have_its_mean_production():
    documents, log, clicks, _ = served_log(n_sessions=300)
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    assert ranker.weights_.loc["production", "weight"] > 0
    rows = documents[documents["qid"] == documents["qid"].iloc[0]]
    noise = np.random.default_rng(0).normal(size=len(rows))
    both = [rows.assign(production=rows["production"] + sign * noise) for sign in (1, -1)]
    for few in (1, 20):  # with the rule for many candidates, and without
        ranker.depth_ = few
        found = ranker.predict(pd.concat(both))
        np.testing.assert_allclose(found, np.tile(ranker.predict(rows), 2), atol=1e-9)
        backwards = ranker.predict(pd.concat(both)[::-1])
        np.testing.assert_allclose(backwards[::-1], found, atol=1e-9)


def test_repeated_rows_do_not_call_for_production():
    documents, log, clicks, _ = served_log(n_sessions=300)
    ranker = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    ranker.weights_.loc["production", "weight"] = 0.0
    rows = pd.concat([documents.drop(columns="production")] * 9)
    assert rows.groupby("qid").size().max() > 5 * ranker.depth_
    assert len(ranker.predict(rows)) == len(rows)
    ranker.depth_ = 3
    with pytest.raises(ValueError, match="selects which of 20 candidates"):
        ranker.predict(rows)


def test_scales_are_of_all_queries():
    """A member that scores all alike in most parts of the queries keeps its weight."""
    _, log, clicks, _ = served_log(n_queries=20, n_sessions=3000)
    changes = log["qid"] % 10 == 0
    log["feature_000"] = log["feature_000"].where(changes, 0.5)
    members = [*MEMBERS, ("one", NaiveRanker(estimator=OneFeature()))]
    ranker = EnsembleRanker(members, propensity=np.ones(20), cv=10, random_state=0)
    assert np.isfinite(ranker.fit(log, clicks).weights_.loc["one", "scale"])


def test_a_sentinel_of_production_changes_little():
    _, log, clicks, _ = served_log(n_sessions=3000)
    plain = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    lost = (log["doc"] == log["doc"].iloc[0]) & (log["qid"] == log["qid"].iloc[0])
    log["production"] = log["production"].where(~lost, np.finfo(np.float32).min)
    found = EnsembleRanker(MEMBERS, random_state=0).fit(log, clicks)
    scales = [each.weights_.loc["production", "scale"] for each in (plain, found)]
    assert scales[0] == pytest.approx(scales[1], rel=0.05)


def test_standard_errors_of_weights_are_those_of_leaving_out_each_query():
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(80), 5)
    position = np.array([rng.permutation(5) + 1 for _ in range(80)]).ravel()
    quality = rng.normal(size=400)
    scores = quality[:, None] + rng.normal(size=(400, 2)) * [0.8, 1.2]
    clicks = rng.binomial(40, np.minimum(np.exp(0.5 * quality) / 8 / position, 1)) / 40
    document = np.arange(400, dtype=np.float32)[:, None]
    halves = np.full(2, 0.5)

    def weigh(kept):
        roles = {
            "qid": query[kept],
            "position": position[kept],
            "propensity": 1 / position[kept],
            "impressions": np.full(kept.sum(), 40.0),
        }
        log = make_click_log(document[kept], document[kept], clicks[kept], roles=roles)
        row = log.features[log.doc, 0].astype(int)
        return _weights.likeliest_weights(FreeEffects(log, scores[row]), halves, halves)

    weights, errors = weigh(query >= 0)
    assert weights.sum() == pytest.approx(1)
    without_one = np.array([weigh(query != left_out)[0] for left_out in range(80)])
    jackknife = np.sqrt(79 * without_one.var(axis=0))
    np.testing.assert_allclose(errors, jackknife, rtol=0.1)


def test_depth_is_the_median_over_impressions():
    """Of ten queries that show 1 to 10 documents, at the top of their pages."""
    n_shown = np.arange(1, 11)
    query = np.repeat(np.arange(10), n_shown)
    document = np.arange(len(query), dtype=np.float32)[:, None]
    roles = {"qid": query, "session": np.arange(len(query)), "position": np.ones(len(query))}
    for often, depth in ((None, (5, 6)), (0, (1, 1)), (9, (10, 10))):
        impressions = 60 / n_shown[query]
        if often is not None:
            impressions = np.where(query == often, 100, 1) * impressions
        log = make_click_log(
            document, document, np.ones(len(query)), roles=roles | {"impressions": impressions}
        )
        assert depth[0] <= _ensemble.shown_depth(log) <= depth[1]


@pytest.mark.parametrize("reverse", [False, True])
def test_candidates_of_two_queries_are_two(reverse):
    """Whatever the codes of their features and ids; the last row repeats the first."""
    features = np.array([[1.0], [0.0], [1.0]], dtype=np.float32)
    if reverse:
        features = 1 - features
    found = DistinctCandidates.of_rows(features, features, np.array([0, 1, 0]))
    assert found.place.tolist() == [0, 1, 0]
    assert found.first.tolist() == [0, 1]
    by_production = DistinctCandidates.of_rows(
        np.zeros((3, 1)), np.zeros((3, 1), dtype=np.float32), np.array([0, 1, 0]), features[:, 0]
    )
    assert by_production.place.tolist() == [0, 1, 0]
