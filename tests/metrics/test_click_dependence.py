"""CMIP with clicks in the place of grades: its moments, level, power, and doors."""

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.stats import binom
from scipy.stats import t as student
from sklearn.base import BaseEstimator

from skultr.exceptions import ClickDataWarning
from skultr.metrics import CMIPScorer, cmip_score
from skultr.metrics._click_dependence import (
    _moments,
    elementary_polynomials,
    information_by_clicks,
)

EXAMINATION = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.2, 0.11, 0.1, 0.08, 0.06])
RELEVANCE = np.array([0.1, 0.16, 0.28, 0.52, 1.0])


def documents(seed, n_queries=100, n_impressions=50, copied=0.0, grades=True, known=False):
    """Score, production position, clicks, sums of examination, query, relevance; the score is log
    relevance, noise, and so much of the log examination at production's position."""
    rng = np.random.default_rng(seed)
    n = 10 * n_queries
    query = np.repeat(np.arange(n_queries), 10)
    relevance = (
        RELEVANCE[rng.choice(5, n, p=[0.5, 0.2, 0.15, 0.1, 0.05])]
        if grades
        else rng.beta(0.6, 2.5, n).clip(0.01)
    )
    order = (np.log(relevance) + 0.7 * rng.normal(size=n)).reshape(-1, 10)
    place = (-order).argsort(axis=1).argsort(axis=1).ravel()
    score = np.log(relevance) + 0.3 * rng.normal(size=n) + copied * np.log(EXAMINATION[place])
    served = rng.random((n_impressions, n_queries, 10)).argsort(axis=2).reshape(n_impressions, n)
    clicks = (rng.random(served.shape) < relevance * EXAMINATION[served]).sum(axis=0)
    examination = EXAMINATION[served] if known else np.ones(served.shape)
    return score, place + 1.0, clicks.astype(float), polynomials(examination), query, relevance


def polynomials(examination):
    """Of impressions in rows and documents in columns."""
    document = np.tile(np.arange(examination.shape[1]), len(examination))
    return elementary_polynomials(np.ones(examination.size), examination.ravel(), document)


def p_values(n_logs, **settings):
    return np.array(
        [information_by_clicks(*documents(seed, **settings)[:5])[2] for seed in range(n_logs)]
    )


def test_moments_are_unbiased_by_enumeration():
    """All outcomes of seven impressions with their own examination."""
    examination, relevance = np.array([0.9, 0.8, 0.5, 0.5, 0.3, 0.2, 0.7]), 0.37
    outcomes = np.array([[k >> i & 1 for i in range(7)] for k in range(2**7)])
    chance = np.where(outcomes, relevance * examination, 1 - relevance * examination).prod(axis=1)
    clicks = outcomes.sum(axis=1).astype(float)
    examined = polynomials(np.tile(examination / 0.9, (len(clicks), 1)).T)
    assert_allclose(_moments(clicks, examined) @ chance, (0.9 * relevance) ** np.arange(7))


def test_moments_of_equal_examination_are_binomial():
    clicks, shown = np.array([0.0, 1, 4, 9]), 9
    expected = [[comb(int(c), m) / comb(shown, m) for c in clicks] for m in range(7)]
    assert_allclose(_moments(clicks, polynomials(np.full((shown, 4), 0.3))), expected)
    counted = elementary_polynomials(np.full(4, 9.0), np.full(4, 0.3), np.arange(4))
    assert_allclose(_moments(clicks, counted), expected)


def test_elementary_polynomials_by_hand():
    examination = np.array([0.2, 0.5, 0.7, 0.4, 0.9, 0.6])
    found = elementary_polynomials(
        np.array([1.0, 2, 1, 1, 1, 1, 3]), np.append(examination, 0), np.zeros(7, int)
    )
    examination = np.insert(examination, 1, 0.5) / 0.9
    expected = [sum(map(np.prod, combinations(examination, m))) for m in range(7)]
    assert_allclose(found[:, 0], expected)
    tiny = np.append(np.full(40, 1e-5), 1.0)  # power sums cancel here
    found = polynomials(tiny[:, None])
    assert_allclose(found[6, 0], comb(40, 5) * 1e-25 + comb(40, 6) * 1e-30)


@pytest.mark.parametrize(
    "world",
    [{}, {"n_impressions": 20}, {"grades": False}, {"known": True}, {"n_queries": 30}],
    ids=str,
)
def test_level(world):
    """Unbiased scores, of 200 logs: more than .08 would be 17."""
    found = []
    for seed in range(200):
        try:
            found.append(information_by_clicks(*documents(seed, **world)[:5])[2])
        except ValueError:
            assert world == {"n_impressions": 20}
    assert len(found) > 100
    assert np.mean(np.array(found) <= 0.05) <= 0.08


def test_two_levels_of_relevance_have_no_square():
    """Few levels are no want of clicks, of which 100 impressions per document leave none."""
    found = []
    n_logs = 100
    for seed in range(n_logs):
        rng = np.random.default_rng(seed)
        query, relevance = np.repeat(np.arange(100), 10), rng.choice([0.1, 0.5], 1000)
        position = rng.normal(size=1000) - 8 * relevance
        clicks = rng.binomial(100, 0.4 * relevance).astype(float)
        score = relevance + 0.1 * rng.normal(size=1000)
        examined = polynomials(np.ones((100, 1000)))
        found.append(
            [
                information_by_clicks(each, position, clicks, examined, query)[2] <= 0.05
                for each in (score, score - 0.1 * position)
            ]
        )
    n_false, n_right = np.sum(found, axis=0)
    # More false findings have a probability of 1 in 5,000.
    assert n_false <= binom.isf(1 / 5_000, n_logs, 0.05)
    # Of 300 other logs all but one are found.
    assert n_right > 0.8 * n_logs


def test_power():
    # .92 of 120 other logs: the bound is four standard errors of 80 logs below.
    assert np.mean(p_values(80, copied=0.3) <= 0.05) > 0.8
    assert np.mean(p_values(40, copied=1.0) <= 0.05) > 0.95
    assert np.mean(p_values(40, copied=1.0, n_queries=30) <= 0.05) > 0.7


def test_clicks_as_grades_would_find_what_is_not_there():
    """Why clicks are no grades: of an unbiased model all p-values are small."""
    small = {"clicks": 0, "relevance": 0}
    for seed in range(4):
        score, position, clicks, _, query, relevance = documents(seed, n_impressions=20)
        options = {"qid": query, "estimator": "knn", "random_state": 0, "return_result": True}
        for name, grade in (("clicks", np.minimum(clicks, 4)), ("relevance", relevance)):
            small[name] += cmip_score(score, position, grade, **options).p_value < 0.02
    assert small == {"clicks": 4, "relevance": 0}


def test_standard_errors_are_those_of_repetition():
    values = np.array(
        [information_by_clicks(*documents(s, copied=1.0)[:5])[:2] for s in range(60)]
    )
    assert_allclose(values[:, 1].mean(), values[:, 0].std(), rtol=0.3)


def test_what_noise_alone_explains_is_none():
    """A search must not choose the noisiest estimate: less than one standard error is 0."""
    values, p = np.array(
        [information_by_clicks(*documents(seed, n_queries=60)[:5])[::2] for seed in range(40)]
    ).T
    noise = p > 0.33  # of .7 of the logs: of 40 never all
    assert 0 < noise.sum() < len(noise)
    assert (values[noise] == 0).all()
    assert (values[p < 0.31] > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_p_values_are_those_of_t_with_a_query_less(seed):
    # So much is copied that the value is not cut at 0, from which no ratio could be found.
    log = documents(seed, n_queries=12, n_impressions=500, copied=0.5)[:5]
    value, error_of_value, p_value = information_by_clicks(*log)
    beyond = -np.expm1(-2 * value)  # the squared correlation less that of noise

    def too_much(error):
        square = beyond + error**2
        return np.sqrt(square + error**2 / 2) * error / (1 - square) - error_of_value

    error = brentq(too_much, 1e-9, np.sqrt(0.999 - beyond))
    ratio = np.sqrt(beyond + error**2) / error
    assert p_value == pytest.approx(2 * student.sf(ratio, 11), rel=1e-6)


def test_queries_that_were_served_more_often_count_more():
    """Half of the queries copy production: more so, if these are the ones that are served."""
    rare, often = (documents(0, n_impressions=n, copied=1.0) for n in (40, 400))
    fair_rare, fair_often = (documents(1, n_impressions=n) for n in (40, 400))

    def value(copied, fair):
        columns = [
            np.concatenate(pair, axis=-1) for pair in zip(copied[:4], fair[:4], strict=True)
        ]
        return information_by_clicks(*columns, np.append(copied[4], fair[4] + 100))[0]

    assert value(often, fair_rare) > 0.01 + 2 * value(rare, fair_often)


def test_public_function():
    score, position, clicks, examined, query, _ = documents(0, copied=1.0)
    shown = examined[1]
    options = {"qid": query, "impressions": shown}
    found = cmip_score(score, position, clicks / shown, return_result=True, **options)
    value, error, p_value = information_by_clicks(score, position, clicks, examined, query)
    assert (found.value, found.standard_error, found.p_value) == (value, error, p_value)
    assert (found.estimator, found.n_left_out, found.n_permutations) == ("clicks", 0, 0)
    assert cmip_score(score, position, clicks / shown, **options) == value
    assert "t test by query). The scores depend" in found.summary()
    assert "grade" not in found.summary()
    order = np.random.default_rng(0).permutation(len(score))
    names = np.array([f"q{each}" for each in query])
    again = cmip_score(
        np.exp(score[order]),
        pd.Series(position[order]),
        (clicks / shown)[order],
        qid=names[order],
        impressions=list(shown[order]),
    )
    assert_allclose(again, value)


def test_documents_with_few_impressions_do_not_count():
    score, position, clicks, examined, query, _ = documents(1, copied=0.5)
    rate, shown = clicks / examined[1], examined[1].copy()
    expected = cmip_score(
        score[8:], position[8:], rate[8:], qid=query[8:], impressions=shown[8:], return_result=True
    )
    shown[:8], rate[:8] = 5, 0.2
    found = cmip_score(score, position, rate, qid=query, impressions=shown, return_result=True)
    assert found.n_left_out == 8
    assert_allclose(found.value, expected.value)


def test_queries_with_one_document_do_not_count():
    score, position, clicks, examined, query, _ = documents(1, n_queries=12, copied=0.3)
    rate, shown = clicks / 50, examined[1]
    expected = cmip_score(score, position, rate, qid=query, impressions=shown, return_result=True)
    alone = np.random.default_rng(0).normal(size=(2, 600))
    found = cmip_score(
        np.append(score, alone[0]),
        np.append(position, alone[1]),
        np.append(rate, np.full(600, 0.1)),
        qid=np.append(query, np.arange(1000, 1600)),
        impressions=np.full(720, 50),
        return_result=True,
    )
    assert found.n_left_out == 600
    assert (found.value, found.p_value) == (expected.value, expected.p_value)


@pytest.mark.parametrize("seed", range(4))
def test_constants_copy_nobody(seed):
    """Divided by the standard deviation that rounding leaves, they had p-values of any size."""
    score, position, clicks, examined, query, _ = documents(seed)
    for given in ((np.zeros(len(score)), position), (score, np.ones(len(score)))):
        with pytest.warns(ClickDataWarning, match="so CMIP is 0"):
            found = cmip_score(
                *given,
                clicks / examined[1],
                qid=query,
                impressions=examined[1],
                return_result=True,
            )
        assert (found.value, found.p_value) == (0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qid": None}, "impressions= needs qid="),
        ({"impressions": [3.5] * 1000}, "must be whole numbers"),
        ({"impressions": [49] * 1000}, "must be whole numbers"),
        ({"impressions": [np.nan] * 1000}, "impressions holds NaN"),
        ({"impressions": [50, 50]}, r"of one length, one value per document"),
        ({"y_true": [-0.02] * 1000}, "clicks no more than"),
        ({"y_true": [1.02] * 1000}, "clicks no more than"),
        ({"y_true": [0.0] * 1000}, "do not show how relevance varies"),
        ({"y_true": [1.0] * 1000}, "do not show how relevance varies"),
        ({"impressions": [5] * 1000, "y_true": [0.2] * 1000}, "Only 0 queries have two"),
        ({"qid": range(1000)}, "Only 0 queries have two"),
    ],
)
def test_bad_input(change, message):
    score, position, clicks, examined, query, _ = documents(0)
    given = {
        "y_pred": score,
        "y_logging": position,
        "y_true": clicks / 50,
        "qid": query,
        "impressions": examined[1],
    }
    with pytest.raises(ValueError, match=message):
        cmip_score(**(given | change))


def test_too_few_clicks_are_refused():
    refused = 0
    for seed in range(10):
        score, position, clicks, examined, query, _ = documents(seed, n_impressions=6)
        try:
            information_by_clicks(score, position, clicks, examined, query)
        except ValueError as error:
            refused += "do not show how relevance varies" in str(error)
    # 93 % of such logs are: fewer than 6 of 10 have a chance of 3e-4.
    assert refused >= 6


# The scorer ---------------------------------------------------------------------------
def rows(seed, n_impressions=50, **settings):
    """A log of the same documents, production's lists and as many shuffled ones."""
    score, position, *_, query, relevance = documents(seed, **settings)
    rng = np.random.default_rng(seed)
    n_queries = query[-1] + 1
    served = rng.random((n_impressions, n_queries, 10)).argsort(axis=2).reshape(n_impressions, -1)
    places = np.concatenate([np.tile(position - 1, (n_impressions, 1)).astype(int), served])
    clicks = rng.random(places.shape) < relevance * EXAMINATION[places]
    n = len(places)
    X = pd.DataFrame(
        {
            "session": np.add.outer(np.arange(n) * n_queries, query).ravel(),
            "qid": np.tile(query, n),
            "doc": np.tile(np.arange(len(query)), n),
            "position": places.ravel() + 1,
            "arm": np.repeat([np.nan, 0.0], places.size // 2),
            "score": np.tile(score, n),
        }
    )
    return X, clicks.ravel().astype(int)


class Shown(BaseEstimator):
    def predict(self, X):
        return np.asarray(X["score"])


@pytest.fixture(scope="module")
def log():
    return rows(0, copied=1.0)


def by_hand(X, clicks):
    table = X.assign(click=clicks, production=X["position"].where(X["arm"].isna()))
    keys = ["qid", "doc", "score"]
    shuffled = table[table["arm"].notna()].groupby(keys)["click"].agg(["mean", "size"])
    shuffled = shuffled.join(table.groupby(keys)["production"].mean()).reset_index()
    return cmip_score(
        shuffled["score"],
        shuffled["production"],
        shuffled["mean"],
        qid=shuffled["qid"],
        impressions=shuffled["size"],
    )


def test_scorer_counts_documents(log):
    X, clicks = log
    value = CMIPScorer(arm="arm")(Shown(), X, clicks)
    assert_allclose(-value, by_hand(X, clicks))
    assert value < -0.1
    assert_allclose(CMIPScorer(arm="arm")("score", X.assign(click=clicks), "click"), value)
    order = np.random.default_rng(0).permutation(len(X))
    assert_allclose(CMIPScorer(arm="arm")(Shown(), X.iloc[order], clicks[order]), value)


def test_other_frames_ids_and_rows_that_do_not_count(log):
    X, clicks = log
    value = CMIPScorer(arm="arm")(Shown(), X, clicks)
    names = X.assign(qid="q" + X["qid"].astype(str), arm=X["arm"].map({0.0: "shuffled"}))
    for frame in (pl.from_pandas(X), names, pl.from_pandas(names)):
        assert_allclose(CMIPScorer(arm="arm")(Shown(), frame, clicks), value)
    not_shown = X.iloc[:10].assign(session=-1, doc=range(-10, 0), position=np.nan, arm=0.0)
    alone = X.iloc[[0]].assign(session=-2, qid=-2, doc=-20, position=1, arm=0.0)
    more = pd.concat([X, not_shown, alone])
    again = CMIPScorer(arm="arm")(Shown(), more, np.append(clicks, [0] * 11))
    assert_allclose(again, value)


def test_scorer_reads_aggregated_rows_and_a_score_of_production(log):
    X, clicks = log
    value = CMIPScorer(arm="arm")(Shown(), X, clicks)
    keys = ["qid", "doc", "position", "arm", "score"]
    table = X.assign(click=clicks).groupby(keys, dropna=False)["click"].agg(["mean", "size"])
    table = table.reset_index().rename(columns={"size": "impressions"})
    rate = table.pop("mean").to_numpy()
    table["session"] = table["position"]  # positions differ within what has one id
    assert_allclose(CMIPScorer(arm="arm")(Shown(), table, rate), value)
    old = X.groupby("doc")["position"].transform("first")
    scored = CMIPScorer(arm="arm", logging="old")
    assert_allclose(scored(Shown(), X.assign(old=-old), clicks), value)


def test_known_examination(log):
    """Rows of any order, if the curve is right; with a wrong one an unbiased model is refused."""
    X, clicks = rows(1)
    old = X.groupby("doc")["position"].transform("first")
    X = X.assign(arm=X["position"], old=-old, propensity=EXAMINATION[X["position"] - 1])
    scorer = CMIPScorer(arm="arm", logging="old")
    assert -scorer(Shown(), X, clicks) < 0.02
    X["propensity"] = 1.0 - 1e-6 * X["position"]
    # In ten other draws .1 with a standard deviation of .02.
    assert -scorer(Shown(), X, clicks) > 0.04


def test_documents_that_nobody_examined_are_left_out(log):
    """Their impressions tell nothing, be the propensity 0 or next to it, on any scale."""
    X, clicks = log
    X = X.assign(propensity=EXAMINATION[X["position"] - 1])
    value = CMIPScorer(arm="arm")(Shown(), X, clicks)
    assert_allclose(
        CMIPScorer(arm="arm")(Shown(), X.assign(propensity=X["propensity"] / 1e5), clicks), value
    )
    hidden = X["doc"] < 10
    expected = CMIPScorer(arm="arm")(Shown(), X[~hidden], clicks[~hidden])
    clicks = np.where(hidden, 0, clicks)
    for least in (0.0, 1e-5):
        seen = X.assign(propensity=X["propensity"].mask(hidden, least))
        assert_allclose(CMIPScorer(arm="arm")(Shown(), seen, clicks), expected)


def test_logging_replaces_positions(log):
    X, clicks = log
    X = X.assign(old=-X.groupby("doc")["position"].transform("first"))
    scorer = CMIPScorer(arm="arm", logging="old")
    without = X.drop(columns="position")
    assert_allclose(scorer(Shown(), without, clicks), scorer(Shown(), X, clicks))


@pytest.mark.parametrize("kind", [list, pd.Series, pl.Series])
def test_arms_of_other_types(log, kind):
    X, clicks = log
    value = CMIPScorer(arm="arm")(Shown(), X, clicks)
    shuffled = X["arm"].notna()
    text = X.assign(arm=kind(np.where(shuffled, "s", "")))
    assert_allclose(CMIPScorer(arm="arm")(Shown(), text, clicks), value)
    flags = X.assign(arm=kind(shuffled.to_numpy()))
    with pytest.raises(ValueError, match=r"holds False, which is a value.*where\(X\['arm'\]\)"):
        CMIPScorer(arm="arm")(Shown(), flags, clicks)
    flags["arm"] = flags["arm"].where(flags["arm"])
    assert_allclose(CMIPScorer(arm="arm")(Shown(), flags, clicks), value)


def test_scorer_errors(log):
    X, clicks = log
    scorer = CMIPScorer(arm="arm")
    missing = np.append(clicks[:-1], np.nan)
    with pytest.raises(ValueError, match=rf"y is missing in 1 of {len(X)} rows, first in row"):
        scorer(Shown(), X, missing)
    with pytest.raises(ValueError, match=r"of 1000 documents, first .* in document"):
        scorer(Shown(), X, clicks, sample_weight=np.where(X["qid"] == X["qid"].iloc[0], 1e-3, 1))
    with pytest.raises(ValueError, match="needs y"):
        scorer(Shown(), X)
    with pytest.raises(ValueError, match="missing in all"):
        scorer(Shown(), X.assign(arm=np.nan), clicks)
    with pytest.raises(ValueError, match="several arms"):
        scorer(Shown(), X.assign(arm=X["position"]), clicks)
    with pytest.raises(ValueError, match="no position in lists without an arm"):
        scorer(Shown(), X.assign(arm=1), clicks)
    with pytest.raises(ValueError, match="ids in the column 'doc'"):
        scorer(Shown(), X.drop(columns="doc"), clicks)
    with pytest.raises(ValueError, match="whole numbers"):
        scorer(Shown(), X, clicks, sample_weight=np.where(X["qid"] == X["qid"].iloc[0], 1e-3, 1))
    with pytest.raises(ValueError, match="nothing"):
        CMIPScorer(arm="nothing")(Shown(), X, clicks)
