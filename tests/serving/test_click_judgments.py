"""Judgments to compare rankings by: the better of two rankings wins."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr.click_models import UBMModel
from skultr.evaluation import compare_rankers
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.serving import click_judgments

CURVE = 1 / np.arange(1, 6)
COLUMNS = [
    "qid",
    "doc",
    "clicks",
    "impressions",
    "examinations",
    "relevance",
    "standard_error",
    "prior_share",
]


def shop(seed=0, n_queries=100, n_sessions=4_000, trust=0.0):
    """A log of few examinations behind good production, the truth, and production's scores."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.6, 1.0, (n_queries, 20))
    production = odds + rng.normal(0, 0.9, odds.shape)
    query = rng.integers(0, n_queries, n_sessions)
    noisy = production[query] + 0.35 * rng.gumbel(size=(n_sessions, 20))
    order = np.argsort(-noisy, axis=1)[:, :5]
    relevance = 1 / (1 + np.exp(-odds))
    chance = CURVE * ((1 - trust) * relevance[query[:, None], order] + trust)
    log = pd.DataFrame(
        {
            "qid": np.repeat(query, 5),
            "session": np.repeat(np.arange(n_sessions), 5),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, 6), n_sessions),
            "click": (rng.random(order.shape) < chance).astype(int).ravel(),
        }
    )
    return log, relevance, production


def gained(judged, rating, relevance, production):
    """By how much a rating prefers the best possible ranking to production."""
    places = judged["qid"].to_numpy(), judged["doc"].to_numpy()
    values = [
        ndcg_score(rating, scores[places], qid=places[0], k=5, gain="linear")
        for scores in (relevance, production)
    ]
    return values[0] - values[1]


@pytest.mark.parametrize("seed", range(3))
def test_the_best_possible_ranking_beats_production_and_labels_to_train_by_say_the_opposite(seed):
    log, *rankings = shop(seed)
    judged = click_judgments(log, "click", propensity=CURVE).dropna()
    labels = relevance_labels(log, "click", propensity=CURVE, interval=True)
    assert gained(judged, judged["relevance"], *rankings) > 0.03
    assert gained(labels, labels["lower"], *rankings) < -0.03


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_the_better_of_production_and_a_rival_wins_or_nobody_does(noise):
    """Rivals that know nothing of production: much better than it, and much worse."""
    log, relevance, production = shop(n_queries=200, n_sessions=10_000)
    rng = np.random.default_rng(1)
    rival = np.log(relevance) + noise * rng.normal(size=relevance.shape)

    def verdict(table):
        places = table["qid"].to_numpy(), table["doc"].to_numpy()
        X = table[["qid", "doc", "relevance"]]
        X = X.assign(rival=rival[places], production=production[places])
        names = {"rival": "rival", "production": "production"}
        found = compare_rankers(
            names, X, k=5, gain="linear", baseline="production", n_resamples=499, random_state=0
        )
        return found.table["verdict"].item()

    judged = click_judgments(log, "click", propensity=CURVE)
    labels = relevance_labels(log, "click", propensity=CURVE, interval=True)
    qid, doc = (each.ravel() for each in np.indices(relevance.shape))
    truth = pd.DataFrame({"qid": qid, "doc": doc, "relevance": relevance.ravel()})
    expected = "better" if noise < 1 else "worse"
    assert verdict(truth) == verdict(judged) == expected
    # By labels to train by production wins against the better one, too.
    assert verdict(labels.rename(columns={"label": "relevance"})) == "worse"


def test_ratings_are_unbiased_and_stay_so_where_users_trust_the_order():
    trust = 0.3
    log, relevance, _ = shop(n_queries=20, n_sessions=40_000, trust=trust)
    known = click_judgments(log, "click", propensity=(1 - trust) * CURVE, trust=trust * CURVE)
    naive = click_judgments(log, "click", propensity=CURVE)
    sure = known["examinations"] > 50
    true = relevance[known["qid"], known["doc"]]
    error = (known["relevance"] - true)[sure]
    # A rating is c / (E + 1) and constants, and the variance of c is less than its mean.
    known = known[sure]
    variance = known["clicks"] / (known["examinations"] + 1) ** 2
    by_chance = 4 * np.sqrt(variance.sum()) / len(known)
    assert abs(error.mean()) < by_chance
    assert (naive["relevance"] - true)[sure].mean() > 0.1 > 4 * by_chance
    # Of a unimodal distribution, 8 / 9 lie within two root mean squares.
    held = np.mean(np.abs(error) < 2 * known["standard_error"])
    assert held > 8 / 9 - 4 * np.sqrt(8 / 81 / len(known))


def test_columns_counts_and_what_is_unrated():
    log, *_ = shop()
    judged = click_judgments(log, "click", propensity=CURVE)
    assert [*judged] == COLUMNS
    assert judged["clicks"].sum() == log["click"].sum()
    assert judged["impressions"].sum() == len(log)
    by_row = CURVE[log["position"] - 1].sum()
    assert judged["examinations"].sum() == pytest.approx(by_row)
    # What was never shown has no row.
    assert len(judged) == len(log.drop_duplicates(["qid", "doc"]))
    unrated = judged["examinations"] < 1
    assert 0 < unrated.sum() < len(judged)
    of_rating = judged[["relevance", "standard_error", "prior_share"]].isna()
    assert of_rating.eq(unrated, axis=0).all(axis=None)
    assert judged["prior_share"].max() <= 0.5


def test_neither_production_nor_position_moves_a_rating_beyond_examination():
    log, *_ = shop()
    plain = click_judgments(log, "click", propensity=CURVE)
    with_production = log.assign(production=log["doc"] / 3.0)
    found = click_judgments(with_production, "click", propensity=CURVE)
    pd.testing.assert_frame_equal(found, plain)


def test_a_query_without_clicks_has_ratings_of_0():
    columns = {"qid": [1, 1, 2], "doc": ["a", "b", "a"], "position": [1, 2, 1]}
    X = pd.DataFrame(columns).assign(impressions=9)
    judged = click_judgments(X, [0, 0, 3], propensity=CURVE)
    assert judged["relevance"].tolist()[:2] == [0, 0]


def relevances_and_judgments(n_examinations, n_queries=1_500, n_docs=10):
    """Clicks of documents examined equally often, of relevances of mean 1 / 7."""
    rng = np.random.default_rng(0)
    n_pairs = n_queries * n_docs
    relevance = rng.beta(1, 6, n_pairs)
    rate = rng.binomial(n_examinations, relevance) / n_examinations
    X = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries), n_docs),
            "doc": np.tile(np.arange(n_docs), n_queries),
            "position": 1,
            "impressions": n_examinations,
        }
    )
    return relevance, click_judgments(X, rate, propensity=[1.0])


@pytest.mark.parametrize(("n_examinations", "measured"), [(1, 90), (2, 91), (5, 94), (20, 95)])
def test_two_standard_errors_hold_the_relevance(n_examinations, measured):
    """Of a unimodal distribution, 8 / 9 lie within two root mean squares about any point."""
    relevance, judged = relevances_and_judgments(n_examinations)
    distance = (judged["relevance"] - relevance).abs()
    error = judged["standard_error"]
    held = np.mean(distance < 2 * error)
    by_chance = 3 * np.sqrt(8 / 81 / len(relevance))
    assert held > 8 / 9 - by_chance
    # As the docstring says, in whole percents: half of one, and three standard errors.
    apart = 0.005 + 3 * np.sqrt(measured * (100 - measured)) / 100 / np.sqrt(len(relevance))
    assert abs(held - measured / 100) < apart
    # On average it is as large as it says, within a seventh.
    ratio = np.sqrt(np.mean(error**2) / np.mean(distance**2))
    assert 6 / 7 < ratio < 7 / 6
    assert error.min() > 0


def test_the_standard_error_is_the_one_of_the_notes():
    X = pd.DataFrame({"qid": [1, 1, 2], "doc": ["a", "b", "a"], "position": 1, "impressions": 4})
    judged = click_judgments(X, [0.5, 0.0, 0.0], propensity=[0.8], trust=[0.1])
    of_log = 2 / (3 * 3.2)
    of_query = np.array([2.6, 2.6, 1.0]) * of_log / (1 + of_log * np.array([6.4, 6.4, 3.2]))
    scale = of_query / (1 + of_query * 3.2)
    shape = np.array([2.6, 1.0, 1.0])
    distance = judged["relevance"] - shape * scale
    expected = np.sqrt((shape + 0.4) * scale**2 + distance**2)
    np.testing.assert_allclose(judged["standard_error"], expected)


def test_the_standard_error_is_0_only_in_a_log_without_clicks():
    X = pd.DataFrame({"qid": [1, 1, 2], "doc": ["a", "b", "a"], "position": 1, "impressions": 9})
    by_trust_alone = click_judgments(X, [0.1, 0.0, 0.0], propensity=[0.5], trust=[0.5])
    assert by_trust_alone["standard_error"].min() > 0
    with pytest.warns(ClickDataWarning, match="no click"):
        without = click_judgments(X, [0.0, 0.0, 0.0], propensity=[0.5])
    assert without["standard_error"].tolist() == [0, 0, 0]


def test_fewer_clicks_than_by_trust_alone_are_a_rating_of_0():
    X = pd.DataFrame({"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": 100})
    judged = click_judgments(X, [0.5, 0.01], propensity=[0.6, 0.4], trust=[0.2, 0.1])
    assert judged["relevance"].iloc[1] == 0 < judged["relevance"].iloc[0]


def test_grades_are_no_clicks_in_engines_either():
    log = shop(n_sessions=20)[0].assign(relevance=1)
    with pytest.raises(ValueError, match="name of another role"):
        click_judgments(pl.from_pandas(log).lazy(), "relevance", propensity=CURVE)


def test_clicks_may_have_another_name():
    log, *_ = shop(n_sessions=500)
    expected = click_judgments(log, "click", propensity=CURVE)
    found = click_judgments(log.rename(columns={"click": "opened"}), "opened", propensity=CURVE)
    pd.testing.assert_frame_equal(found, expected)


def test_half_of_all_propensities_double_ratings_and_halve_examinations():
    log, *_ = shop(n_queries=5, n_sessions=20_000)
    whole = click_judgments(log, "click", propensity=CURVE)
    half = click_judgments(log, "click", propensity=CURVE / 2)
    assert half["relevance"].count() < whole["relevance"].count()
    np.testing.assert_allclose(half["examinations"], whole["examinations"] / 2)
    sure = whole["examinations"] > 200
    ratio = half["relevance"][sure] / whole["relevance"][sure]
    assert ratio.between(1.9, 2.1).all()


@pytest.mark.parametrize("frame", [pl.from_pandas, lambda X: pl.from_pandas(X).lazy()])
def test_frames_of_polars_and_of_engines(frame):
    log, *_ = shop(n_sessions=500)
    expected = click_judgments(log, "click", propensity=CURVE, trust=CURVE / 10)
    found = click_judgments(frame(log), "click", propensity=CURVE, trust=CURVE / 10)
    by = ["qid", "doc"]
    found = found.sort_values(by, ignore_index=True)
    expected = expected.sort_values(by, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize("source", [UBMModel(), RegressionEMPropensity(relevance="embedding")])
def test_examination_of_models(source):
    log, *rankings = shop()
    judged = click_judgments(log, "click", propensity=source).dropna()
    assert gained(judged, judged["relevance"], *rankings) > 0.02


def test_weights_multiply_impressions_as_for_labels():
    log, *_ = shop(n_sessions=300)
    weight = np.arange(len(log)) % 3 + 1.0
    judged = click_judgments(log, "click", propensity=CURVE, sample_weight=weight)
    labels = relevance_labels(log, "click", propensity=CURVE, sample_weight=weight)
    counts = ["clicks", "impressions"]
    pd.testing.assert_frame_equal(judged[counts], labels[counts])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trust": [0.1]}, "at each of the 2 positions"),
        ({"trust": [0.1, np.nan]}, "from 0 to below 1"),
        ({"trust": [0.1, 1.0]}, "from 0 to below 1"),
        ({"propensity": None}, "No propensities given"),
        ({"propensity": [1.0]}, "positions up to 2"),
        ({"trust": [0.1, 0.1], "propensity": UBMModel()}, r"learns examination by UBMModel\(\)"),
        ({"trust": [0.1, 0.1], "propensity": {1: UBMModel()}}, "learns examination by"),
        ({"y": "outcome_x"}, "another outcome than the click"),
        ({"y": "relevance"}, "'relevance', the name of another role"),
        ({"y": "production"}, "'production', the name of another role"),
        ({"X": pd.DataFrame({"qid": [1], "position": [1]}), "y": [1]}, "column 'doc'"),
    ],
)
def test_wrong_input_says_what_was_expected(wrong, message):
    columns = {"qid": 1, "doc": ["a", "b"], "position": [1, 2], "click": [1, 0]}
    X = pd.DataFrame({**columns, "outcome_x": [3.0, 0.0]})
    given = {"X": X, "y": "click", "propensity": CURVE, **wrong}
    with pytest.raises(ValueError, match=message):
        click_judgments(given.pop("X"), given.pop("y"), **given)
