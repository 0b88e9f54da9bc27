"""User-aware IPS: unbiased, less variable than the straightforward estimator, and its limits."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker
from sklearn.linear_model import Ridge

from skultr import UserAwareIPSRanker
from skultr._log._roles import FIT_ROLES
from skultr.exceptions import UnstableWeightsWarning
from skultr.propensity import PowerLawPropensity
from skultr.propensity._source import document_labels
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.rankers._pair_debias import _pairs_of_examples

from .._worlds import FEATURES, random_lists

FAST = {"max_epochs": 3, "random_state": 0}
#: Users who examine (almost) everything and users who stop at once.
TABLE = np.array([[1.0, 0.9, 0.8], [1.0, 0.3, 0.1]])
RELEVANCE = np.array([[0.9, 0.5, 0.7], [0.3, 0.8, 0.6]])
#: Sessions of each user (rows) by query: the patient ask the first, the hasty the second.
PERSONAL = np.array([[80, 10], [20, 90]])
ALIKE = np.array([[40, 40], [60, 60]])


def _world(sessions):
    """Cells (user, query, position) of a deterministic log with their click probability."""
    user, query, place = (axis.ravel() for axis in np.indices((2, 2, 3)))
    X = pd.DataFrame(
        {
            "qid": query,
            "session": user * 2 + query,
            "user": user,
            "doc": query * 3 + place,
            "position": place + 1,
            "impressions": sessions[user, query],
            "propensity": TABLE[user, place],
            "f0": (query * 3 + place) / 6,
        }
    )
    return X, TABLE[user, place] * RELEVANCE[query, place]


def _losses(ranker, sessions, n_repeats=400, seed=0):
    """Estimates of the ranking loss (1) of the paper, with λ = position, and the ideal one."""
    X, chance = _world(sessions)
    rng = np.random.default_rng(seed)
    losses = []
    for _ in range(n_repeats):
        rate = rng.binomial(X["impressions"], chance) / X["impressions"]
        labels = ranker.fit(X, rate).labels_["label"].to_numpy().reshape(2, 3)
        losses.append((labels * [1, 2, 3]).sum())
    return np.array(losses), (RELEVANCE * [1, 2, 3]).sum()


def _mean_and_error(losses):
    return losses.mean(), losses.std() / np.sqrt(len(losses))


def _pbm(sessions):
    return TABLE.T @ sessions.sum(axis=1) / sessions.sum()


@pytest.mark.parametrize("cls", [IPSRanker, UserAwareIPSRanker])
@pytest.mark.parametrize("sessions", [PERSONAL, ALIKE], ids=["personal", "alike"])
def test_estimates_of_the_loss_are_unbiased(cls, sessions):
    losses, ideal = _losses(cls(estimator=Ridge()), 6 * sessions, n_repeats=50)
    mean, error = _mean_and_error(losses)
    assert abs(mean - ideal) < 3 * error


def test_one_curve_for_all_is_biased_where_users_ask_differently_and_only_there():
    for sessions, biased in ((PERSONAL, True), (ALIKE, False)):
        X, chance = _world(5 * sessions)
        ranker = IPSRanker(propensity=_pbm(sessions), estimator=Ridge())
        rng = np.random.default_rng(0)
        losses = []
        for _ in range(40):
            rate = rng.binomial(X["impressions"], chance) / X["impressions"]
            labels = ranker.fit(X.drop(columns="propensity"), rate).labels_["label"]
            # Of one query: the errors of the two have opposite signs.
            losses.append(labels.to_numpy()[:3] @ [1, 2, 3])
        mean, error = _mean_and_error(np.array(losses))
        ideal = RELEVANCE[0] @ [1, 2, 3]
        assert (abs(mean - ideal) > 10 * error) == biased
        assert biased or abs(mean - ideal) < 3 * error


def test_variance_is_that_of_the_formulas_and_no_larger_than_straightforward():
    """Theorem 3.3, with c = e r for a relevance that is a probability."""
    X, chance = _world(PERSONAL)
    n, p = X["impressions"].to_numpy(), X["propensity"].to_numpy()
    served = X.groupby("doc")["impressions"].transform("sum")
    mean = (X["impressions"] * X["propensity"]).groupby(X["doc"]).transform("sum") / served
    weight = X["position"] / served
    noise = n * chance * (1 - chance)
    formula = {
        IPSRanker: (weight**2 / p**2 * noise).sum(),
        UserAwareIPSRanker: (weight**2 / mean**2 * noise).sum(),
    }
    variance = {}
    for cls, expected in formula.items():
        losses, _ = _losses(cls(estimator=Ridge()), PERSONAL, n_repeats=150, seed=1)
        variance[cls] = losses.var()
        # The variance of a sample variance of a normal is 2 σ⁴ / n: three errors are 35 %.
        assert variance[cls] == pytest.approx(expected, rel=0.35)
    assert variance[UserAwareIPSRanker] < 0.6 * variance[IPSRanker]


@pytest.mark.filterwarnings("ignore:.* lists of several rows have gaps")
def test_one_user_is_ips_pbm():
    log, clicks = random_lists()
    curve = [1.0, 0.5, 0.25]
    # Served in one order a query: the mean over a query's sessions is then the position's.
    log = log.assign(position=log["doc"] % 4 + 1)[lambda x: x["position"] <= 3]
    clicks = clicks[log.index]
    ips = IPSRanker(propensity=curve, **FAST).fit(log, clicks)
    aware = UserAwareIPSRanker(propensity=curve, **FAST).fit(log, clicks)
    np.testing.assert_array_equal(ips.predict(log), aware.predict(log))


def test_stochastic_logging_averages_over_the_positions_that_sessions_gave():
    X = pd.DataFrame(
        {
            "qid": 1,
            "session": [0, 0, 1, 1],
            "doc": ["a", "b", "b", "a"],
            "position": [1, 2, 1, 2],
            "impressions": [3.0, 3.0, 1.0, 1.0],
            "f0": [0.0, 1.0, 1.0, 0.0],
        }
    )
    ranker = UserAwareIPSRanker(propensity=[1.0, 0.5], estimator=Ridge())
    labels = ranker.fit(X, [1 / 3, 1 / 3, 1.0, 0.0]).labels_.set_index("doc")
    # a: three of four impressions at position 1; b the other way around.
    assert labels.loc["a", "label"] == pytest.approx(1 / 4 / (0.75 + 0.25 * 0.5))
    assert labels.loc["b", "label"] == pytest.approx(2 / 4 / (0.75 * 0.5 + 0.25))
    assert labels["clicks"].tolist() == [1.0, 2.0]
    assert labels["impressions"].tolist() == [4.0, 4.0]


def test_row_order_and_aggregation_do_not_matter():
    X, chance = _world(PERSONAL)
    rate = np.random.default_rng(0).binomial(X["impressions"], chance) / X["impressions"]
    ranker = UserAwareIPSRanker(**FAST).fit(X, rate)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = UserAwareIPSRanker(**FAST).fit(X.iloc[order], rate.iloc[order])
    np.testing.assert_array_equal(ranker.predict(X), shuffled.predict(X))


def test_diagnostics_are_those_of_the_weights():
    X, chance = _world(PERSONAL)
    rate = np.random.default_rng(0).binomial(X["impressions"], chance) / X["impressions"]
    clicks = (rate * X["impressions"]).to_numpy()
    ranker = IPSRanker(estimator=Ridge(), clip=0.2).fit(X, rate)
    weight = 1 / np.maximum(X["propensity"].to_numpy(), 0.2)
    total = clicks @ weight
    assert ranker.effective_sample_size_ == pytest.approx(total**2 / (clicks @ weight**2))
    assert ranker.largest_weight_ == pytest.approx(5 / (total / clicks.sum()))
    assert ranker.clipped_share_ == pytest.approx(
        clicks[X["propensity"] < 0.2].sum() / clicks.sum()
    )
    aware = UserAwareIPSRanker(estimator=Ridge()).fit(X, rate)
    assert (
        aware.effective_sample_size_
        > IPSRanker(estimator=Ridge()).fit(X, rate).effective_sample_size_
    )


def test_handful_of_clicks_that_carry_the_estimate_is_noticed():
    X = pd.DataFrame({"qid": 1, "doc": [0, 1], "position": [1, 2], "f0": [0.0, 1.0]})
    X["impressions"] = [10_000.0, 10_000.0]
    ranker = IPSRanker(propensity=[1.0, 1e-4], estimator=Ridge())
    with pytest.warns(UnstableWeightsWarning, match=r"2 of 1002 clicks carry half.*clip="):
        ranker.fit(X, [0.1, 2e-4])
    ranker.set_params(clip=0.05).fit(X, [0.1, 2e-4])
    assert ranker.clipped_share_ == pytest.approx(2 / 1_002)


def test_any_regressor_learns_the_labels():
    log, clicks = random_lists()
    curve = [1.0, 0.5, 0.25]
    ranker = IPSRanker(propensity=curve, estimator=Ridge(alpha=1e-3), traffic_exponent=1.0)
    labels = ranker.fit(log, clicks).labels_.set_index("doc")
    features = log.drop_duplicates("doc").set_index("doc")[FEATURES].loc[labels.index]
    by_hand = Ridge(alpha=1e-3).fit(
        features.to_numpy(), labels["label"], sample_weight=labels["impressions"]
    )
    np.testing.assert_allclose(
        ranker.predict(features), by_hand.predict(features.to_numpy()), rtol=1e-4
    )
    naive = NaiveRanker(estimator=Ridge()).fit(log, clicks)
    one = IPSRanker(propensity=[1.0, 1.0, 1.0], estimator=Ridge()).fit(log, clicks)
    np.testing.assert_array_equal(naive.predict(log), one.predict(log))


def test_column_beside_an_estimator_is_an_error():
    X, chance = _world(PERSONAL)
    with pytest.raises(ValueError, match="expected one of them"):
        UserAwareIPSRanker(propensity=PowerLawPropensity()).fit(X, chance)


def test_ranker_in_place_of_a_propensity_is_an_error():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="NaiveRanker, which predicts relevance"):
        IPSRanker(propensity=NaiveRanker()).fit(log, clicks)


def test_curves_of_users_come_from_a_mapping():
    X, chance = _world(PERSONAL)
    X = X.drop(columns="propensity")
    ranker = UserAwareIPSRanker(propensity=PowerLawPropensity({0: 0.0, 1: 1.0}), estimator=Ridge())
    labels = ranker.fit(X, chance).labels_
    of_first = labels[labels["qid"] == 0]["clicks"].to_numpy() / 100
    expected = of_first / (0.8 + 0.2 / np.arange(1, 4))
    np.testing.assert_allclose(labels[labels["qid"] == 0]["label"], expected)


# ---------------------------------------------------------------------------------- PRS
def _binary_world(n_queries=300, seed=0):
    """Documents that are relevant to everybody or nobody, which the features tell."""
    rng = np.random.default_rng(seed)
    n_rows = n_queries * 8
    values = rng.normal(size=(n_rows, 3))
    documents = pd.DataFrame(values, columns=FEATURES)
    documents["qid"], documents["doc"] = np.repeat(np.arange(n_queries), 8), np.arange(n_rows)
    documents["relevance"] = (values @ [1.0, 0.7, -0.7] > 0.8).astype(float)
    served = values[:, 0] + 0.5 * rng.normal(size=n_rows)
    documents["position"] = (
        pd.Series(-served).groupby(documents["qid"]).rank(method="first").astype(int)
    )
    examined = 1.0 / documents["position"].to_numpy()
    log = documents.assign(impressions=40.0)
    clicks = rng.binomial(40, examined * documents["relevance"]) / 40
    return log.drop(columns="relevance"), clicks, documents


def test_prs_finds_hard_relevance():
    log, clicks, documents = _binary_world()
    curve = 1.0 / np.arange(1, 9)
    ranker = PRSRanker(propensity=curve, max_epochs=60, random_state=0).fit(log, clicks)
    candidates = documents.drop(columns=["relevance", "position"])
    assert ranker.score(candidates, documents["relevance"]) > 0.97


def test_prs_weighs_pairs_by_click_role():
    """Against a plain loop over the pairs of a single session."""
    X = pd.DataFrame({"qid": 1, "doc": range(3), "position": [1, 2, 3], "f0": [0.0, 1.0, 2.0]})
    clicks, curve = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.5, 0.2])
    ranker = PRSRanker(propensity=curve, **FAST)
    log = ranker._read_log(X, clicks, None, dict.fromkeys(FIT_ROLES))
    _, hits, misses = ranker._pair_weights(log)
    for i in range(3):
        for j in range(3):
            expected = clicks[i] * (1 - clicks[j]) * curve[j] / curve[i]
            assert hits[i] * misses[j] == pytest.approx(expected)


def test_prs_wants_a_ranker_for_a_learner():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="cannot learn from pairs"):
        PRSRanker(propensity=[1.0, 0.5, 0.3], estimator=Ridge()).fit(log, clicks)


@pytest.mark.parametrize("random_order", [False, True])
def test_pairs_of_examples_are_those_of_the_lists(random_order):
    """What trees learn from, against a plain loop over lists."""
    log, clicks = random_lists(n_sessions=40)
    if not random_order:
        log = log[log["session"] % 5 == 0]
        clicks = clicks[log.index]
    ranker = PRSRanker(propensity=[1.0, 0.5, 0.2], **FAST)
    read = ranker._read_log(log, clicks, None, dict.fromkeys(FIT_ROLES))
    read, hits, misses = ranker._pair_weights(read)
    labels = document_labels(read)
    winner, loser, weight = _pairs_of_examples(read, hits, misses, labels.query, labels.doc)
    found = {
        (labels.doc[i], labels.doc[j]): value
        for i, j, value in zip(winner, loser, weight, strict=True)
    }
    expected = {}
    for start, end in zip(read.offsets[:-1], read.offsets[1:], strict=True):
        for i in range(start, end):
            for j in range(start, end):
                if i != j and hits[i] * misses[j] > 0:
                    pair = read.doc[i], read.doc[j]
                    expected[pair] = expected.get(pair, 0.0) + hits[i] * misses[j]
    assert found == pytest.approx(expected)


def test_prs_with_trees_finds_hard_relevance():
    log, clicks, documents = _binary_world()
    trees = LGBMRanker(n_estimators=60, num_leaves=15, n_jobs=1, verbosity=-1)
    ranker = PRSRanker(propensity=1.0 / np.arange(1, 9), estimator=trees, random_state=0)
    ranker.fit(log, clicks)
    candidates = documents.drop(columns=["relevance", "position"])
    assert ranker.score(candidates, documents["relevance"]) > 0.95
