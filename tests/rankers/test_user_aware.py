"""User-aware IPS: unbiased, less variable than the straightforward estimator, and its limits."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMRanker
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge

from skultr import ClickDataset, UserAwareIPSRanker
from skultr._log._roles import FIT_ROLES
from skultr.click_models import CascadeModel, DCMModel, DCTRModel, UBMModel
from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning, UnstableWeightsWarning
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity, relevance_labels
from skultr.propensity._source import document_labels
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.rankers._pair_debias import _pairs_of_examples
from skultr.simulation import DCMUser, PlackettLucePolicy, UBMUser, simulate_clicks

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


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
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
    ranker = IPSRanker(propensity=[1.0, 1e-4], estimator=Ridge(), clip=None)
    with pytest.warns(UnstableWeightsWarning, match=r"2 of 1002 carry half.*clip="):
        ranker.fit(X, [0.1, 2e-4])
    ranker.set_params(clip=0.05).fit(X, [0.1, 2e-4])
    assert ranker.clipped_share_ == pytest.approx(2 / 1_002)


def test_any_regressor_learns_the_labels():
    log, clicks = random_lists()
    curve = [1.0, 0.5, 0.25]
    ranker = IPSRanker(propensity=curve, estimator=Ridge(alpha=1e-3), traffic_exponent=1.0)
    labels = ranker.fit(log, clicks).labels_.set_index("doc")
    features = log.drop_duplicates("doc").set_index("doc")[FEATURES].loc[labels.index]
    # Impressions times the harmonic mean of the propensities: examinations.
    inverse = log["position"].map(dict(enumerate(curve, start=1))).rdiv(1)
    examinations = labels["impressions"] / inverse.groupby(log["doc"]).mean().loc[labels.index]
    by_hand = Ridge(alpha=1e-3).fit(
        features.to_numpy(), labels["label"], sample_weight=examinations
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


# ------------------------------------------------------------------- other click models
def _two_habits(n_sessions=600, seed=0):
    """Sessions of two users, who ask two queries unequally often, in random order."""
    rng = np.random.default_rng(seed)
    user = rng.integers(2, size=n_sessions)
    query = (rng.random(n_sessions) < np.where(user == 0, 0.8, 0.3)).astype(int)
    X = pd.DataFrame(
        {
            "qid": np.repeat(query, 3),
            "session": np.repeat(np.arange(n_sessions), 3),
            "user": np.repeat(np.array(["anna", "ben"])[user], 3),
            "doc": rng.permuted(np.tile([1, 2, 3], (n_sessions, 1)), axis=1).ravel(),
            "position": np.tile([1, 2, 3], n_sessions),
        }
    )
    X["f0"] = X["doc"] / 3 + X["qid"]
    return X, (rng.random(len(X)) < 0.3 + 0.1 * X["doc"]).to_numpy().astype(int)


def _mean_labels(X, clicks, examination):
    """Equation 9 with examination of each session: clicks over the sum of P(examined)."""
    sums = X.assign(clicks=clicks, examination=examination).groupby(["qid", "doc"])
    return (sums["clicks"].sum() / sums["examination"].sum()).to_numpy()


def test_weights_of_the_user_browsing_model_are_those_given_the_last_click():
    """P(e = 1 | k, last click, u), read from the table that each user's model has learned."""
    X, clicks = _two_habits()
    models = dict.fromkeys(["anna", "ben"], UBMModel(prior=(1, 1)))
    ranker = UserAwareIPSRanker(propensity=models, estimator=Ridge()).fit(X, clicks)
    page = clicks.reshape(-1, 3)
    last = np.zeros_like(page)
    last[:, 1] = page[:, 0]
    last[:, 2] = np.where(page[:, 1], 2, page[:, 0])
    examination = np.array(
        [
            ranker.propensity_[user].examination_.loc[(rank, above), "examination"]
            for user, rank, above in zip(X["user"], X["position"], last.ravel(), strict=True)
        ]
    )
    examination /= max(examination.max(), 1.0)
    expected = _mean_labels(X, clicks, examination)
    np.testing.assert_allclose(ranker.labels_["label"], expected, rtol=1e-6)


def test_weights_of_the_dependent_click_model_by_bayes():
    """P(e = 1 | clicks above) in a list of two: 1, then λ after a click and 1 after a skip."""
    X, clicks = _two_habits()
    keep = (X["position"] < 3).to_numpy()
    X, clicks = X[keep], clicks[keep]
    ranker = UserAwareIPSRanker(propensity=DCMModel(), estimator=Ridge()).fit(X, clicks)
    examination = np.ones((len(X) // 2, 2))
    on = ranker.propensity_.continuation_[1]
    examination[clicks.reshape(-1, 2)[:, 0] == 1, 1] = on
    expected = _mean_labels(X, clicks, examination.ravel())
    np.testing.assert_allclose(ranker.labels_["label"], expected, rtol=1e-6)


def test_one_model_of_all_users_is_no_mapping_and_each_user_may_have_another():
    X, clicks = _two_habits()
    settings = {"estimator": Ridge()}
    one = UserAwareIPSRanker(propensity=UBMModel(), **settings).fit(X, clicks)
    assert isinstance(one.propensity_, UBMModel)
    models = {"anna": UBMModel(), "ben": PowerLawPropensity(0.0)}
    both = UserAwareIPSRanker(propensity=models, **settings).fit(X, clicks)
    assert isinstance(both.propensity_["ben"], PowerLawPropensity)
    alike = X.assign(user="anna")
    labels = [
        UserAwareIPSRanker(propensity=source, **settings).fit(alike, clicks).labels_
        for source in (UBMModel(), {"anna": UBMModel()})
    ]
    pd.testing.assert_frame_equal(*labels)


def test_click_models_of_users_read_frames_arrays_datasets_and_rates(tmp_path):
    X, clicks = _two_habits()
    models = dict.fromkeys(["anna", "ben"], DCMModel())
    ranker = UserAwareIPSRanker(propensity=models, estimator=Ridge())
    expected = ranker.fit(X, clicks).labels_["label"].to_numpy()
    shuffled = np.random.default_rng(1).permutation(len(X))
    roles = {name: X[name].to_numpy() for name in X if name != "f0"}
    dataset = ClickDataset.from_parquet(X.assign(click=clicks), path=tmp_path / "log")
    for log in (
        (pl.from_pandas(X), clicks),
        (X.iloc[shuffled], clicks[shuffled]),
        (X[["f0"]].to_numpy(), clicks, roles),
        (dataset,),
    ):
        keywords = log[2] if len(log) == 3 else {}
        found = ranker.fit(*log[:2], **keywords).labels_["label"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    rate = np.where(clicks == 1, 0.9, 0.0)
    with pytest.warns(ClickDataWarning, match="click rates between 0 and 1"):
        labels = ranker.fit(X, rate).labels_["label"]
    np.testing.assert_allclose(labels, 0.9 * expected, rtol=0.05)


@pytest.mark.parametrize("users", [False, True])
def test_a_dataset_keeps_the_clicks_of_identical_pages(tmp_path, users):
    """Examination is conditional on the clicks of a page, which rates of many pages lack."""
    X, clicks = _two_habits()
    X = X if users else X.drop(columns="user")
    dataset = ClickDataset.from_parquet(X.assign(click=clicks), path=tmp_path / "log")
    assert dataset.log(detailed=False).n_lists < dataset.log().n_lists
    for model in (DCMModel(), FrozenEstimator(DCMModel().fit(X, clicks))):
        ranker = UserAwareIPSRanker(propensity=model, estimator=Ridge())
        expected = ranker.fit(X, clicks).labels_["label"].to_numpy()
        np.testing.assert_allclose(ranker.fit(dataset).labels_["label"], expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
def test_propensities_given_the_clicks_above_are_no_offset():
    """An offset is a factor of what a list is expected to click; these follow from its clicks."""
    X, clicks = _two_habits(n_sessions=60)
    X = X.drop(columns="user")
    frozen = FrozenEstimator(DCMModel().fit(X, clicks))
    for propensity in (DCMModel(), frozen):
        assert IPSRanker(propensity=propensity, **FAST).fit(X, clicks).correction_ == "divide"
    # Few clicks of a curve, and of means over sessions, have one.
    for ranker in (
        IPSRanker(propensity=[1.0, 0.5, 0.3], **FAST),
        UserAwareIPSRanker(propensity=DCMModel(), **FAST),
    ):
        assert ranker.fit(X, clicks).correction_ == "offset"


def test_a_cascade_model_has_no_second_click():
    X, clicks = _two_habits()
    ranker = UserAwareIPSRanker(propensity=CascadeModel(), estimator=Ridge())
    with (
        pytest.warns(ClickDataWarning, match="below another click"),
        pytest.raises(ValueError, match=r"has one click per page\. Use DCMModel or DBNModel"),
    ):
        ranker.fit(X, clicks)
    page = clicks.reshape(-1, 3)
    ranker.fit(X, (page * (page.cumsum(axis=1) == 1)).ravel())


def test_click_models_that_are_no_propensities():
    X, clicks = _two_habits()
    for propensity, message in (
        ({"anna": UBMModel()}, "no estimator for 1 of 2 users, such as 'ben'"),
        ({"anna": UBMModel(), "ben": 0.5}, "propensity has 0.5 for a user; expected a click"),
        ({"anna": NaiveRanker(), "ben": UBMModel()}, "NaiveRanker, which predicts relevance"),
        (DCTRModel(), "DCTRModel gives no propensities"),
        (UBMModel, "is the class UBMModel"),
    ):
        with pytest.raises(ValueError, match=message):
            UserAwareIPSRanker(propensity=propensity, estimator=Ridge()).fit(X, clicks)
    ranker = UserAwareIPSRanker(propensity={"anna": UBMModel()}, estimator=Ridge())
    with pytest.raises(ValueError, match="X has no column 'user'"):
        ranker.fit(X.drop(columns="user"), clicks)
    pickled = pickle.loads(pickle.dumps(ranker.fit(X.assign(user="anna"), clicks)))
    with pytest.raises(AttributeError, match="without propensity_"):
        _ = pickled.propensity_


@pytest.mark.filterwarnings("ignore::skultr.exceptions.UnstableWeightsWarning")
@pytest.mark.parametrize(
    ("users", "model"),
    [([DCMUser(0.9), DCMUser(0.1)], DCMModel()), ([UBMUser(0.3), UBMUser(2.0)], UBMModel())],
    ids=["dcm", "ubm"],
)
def test_models_of_users_are_nearer_to_relevance_than_a_common_curve(users, model):
    """Two users who ask different queries, of whom one stops early."""
    documents = make_ltr(n_queries=40, n_documents=10, n_features=4, random_state=0)
    rng, logs = np.random.default_rng(0), []
    for number, user in enumerate(users):
        # At least half as often as others: the label of one page is 0 or many times relevance.
        weights = rng.uniform(0.5, 1, 40) * (rng.random(40) < 0.5)
        X, clicks, truth = simulate_clicks(
            documents,
            n_sessions=6_000,
            policy=PlackettLucePolicy(temperature=0.3),
            user=user,
            query_weights=weights / weights.sum(),
            gain="linear",
            random_state=number,
        )
        logs.append(X.assign(click=clicks, user=number, session=X["session"] + 10_000 * number))
    log = pd.concat(logs, ignore_index=True)
    relevance = pd.Series(truth.relevance_probability, documents["doc"])
    errors = {}
    for name, propensity in {
        "common curve": RegressionEMPropensity(relevance="embedding"),
        "curve per user": RegressionEMPropensity(relevance="embedding", user="user"),
        "model per user": dict.fromkeys([0, 1], model),
    }.items():
        labels = relevance_labels(log, "click", propensity=propensity)
        target, label = labels["doc"].map(relevance), labels["label"]
        scale = (label @ target) / (label @ label)  # of examination, which clicks do not tell
        errors[name] = ((scale * label - target) ** 2).mean()
    assert errors["model per user"] < 0.6 * errors["common curve"]
    assert errors["model per user"] < 0.8 * errors["curve per user"]


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
