import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning
from skultr.metrics import ClickLikelihoodScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import IPSRanker, VectorizationRanker
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

from .._worlds import EXAMINATION, Linear, examined
from .._worlds import lists_of_three as world

ROLES = ["qid", "session", "position", "impressions"]


class Given:
    """Predicts the numbers that it was given."""

    def __init__(self, scores):
        self.scores = np.asarray(scores, dtype=float)

    def predict(self, X):
        return self.scores


def draw_rates(X, relevance, rng):
    return (rng.binomial(X["impressions"], relevance * examined(X)) / X["impressions"]).to_numpy()


def gain_by_enumeration(X, y, scores):
    """Mean gain per click, one row and one list at a time."""
    gain = clicks = 0.0
    log = X.assign(y=y, score=scores, o=examined(X))[X["position"].notna()]
    for _, rows in log.groupby(["qid", "session"]):
        logit = rows["score"] + np.log(rows["o"])
        for row in rows.index:
            share = np.exp(logit[row]) / np.exp(logit).sum()
            alone = rows["o"][row] / rows["o"].sum()
            n = rows["y"][row] * rows["impressions"][row]
            gain += n * (np.log(share) - np.log(alone))
            clicks += n
    return gain / clicks


# Values -----------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_the_value_by_enumeration(scale):
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION, scale=scale)
    expected = gain_by_enumeration(X, rate, scale * X["bm25"])
    assert_allclose(scorer(Linear(), X, rate), expected)
    assert scorer.estimate(Linear(), X, rate).scale == scale


def test_the_fitted_scale_is_the_likeliest():
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    found = ClickLikelihoodScorer(propensity=EXAMINATION).estimate(Linear(), X, rate)
    grid = np.linspace(0, 2, 21)
    gains = [gain_by_enumeration(X, rate, w * X["bm25"]) for w in grid]
    assert abs(found.scale - grid[np.argmax(gains)]) <= 0.1
    assert found.value >= max(gains) - 1e-9


def test_two_documents_by_hand():
    # Two thirds of the clicks on the second: w + log(1/2) must be log 2, so that w = log 4.
    X = pd.DataFrame({"qid": [1, 1], "position": [1, 2], "impressions": 90})
    scorer = ClickLikelihoodScorer(propensity=[1, 0.5])
    found = scorer.estimate(Given([0, 1]), X, [10 / 90, 20 / 90])
    assert_allclose(found.scale, np.log(4), rtol=1e-4)
    expected = (np.log(1 / 3) + 2 * np.log(2 / 3)) / 3 - (np.log(2 / 3) + 2 * np.log(1 / 3)) / 3
    assert_allclose(found.value, expected)
    assert_allclose(found.n_clicks, 30)
    assert np.isnan(found.standard_error)  # one query


def test_the_standard_error_is_that_of_a_ratio_over_queries():
    X = pd.DataFrame({"qid": [1, 1, 2, 2], "position": [1, 2, 1, 2]})
    scorer = ClickLikelihoodScorer(propensity=[1, 1], scale=1)
    found = scorer.estimate(Given([0, 1, 1, 0]), X, [1, 1, 1, 0])
    one, none = np.log(2 * np.e / (1 + np.e)), np.log(2 / (1 + np.e))
    value = (2 * one + none) / 3
    residual = np.array([one + none - 2 * value, one - value])
    assert_allclose(found.value, value)
    assert_allclose(found.standard_error, np.sqrt(2 * (residual**2).sum()) / 3)


def test_log_relevance_is_best_and_examination_is_no_relevance():
    X, relevance = world(n_queries=300)
    rate = relevance * examined(X)  # exact
    rng = np.random.default_rng(0)
    truth = np.log(relevance)
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    best = scorer.estimate(Given(truth), X, rate)
    assert_allclose(best.scale, 1, rtol=1e-3)
    for _ in range(5):
        noisy = Given(truth + 0.2 * rng.normal(size=len(X)))
        assert scorer(noisy, X, rate) < best.value
    # A copy of the old ranking explains raw clicks, and nothing beyond examination.
    copy = Given(-X["position"].fillna(9))
    raw = ClickLikelihoodScorer(propensity=np.ones(3))
    assert raw(copy, X, rate) > raw(Given(truth), X, rate)
    with warnings.catch_warnings():
        # Of which a warning tells in every second draw: the likeliest scale is 0.
        warnings.simplefilter("ignore", AssumptionWarning)
        beyond_examination = scorer(copy, X, rate)
    # What relevance and positions share by chance: of 200 other worlds at most .03 of the best.
    assert beyond_examination < 0.1 * best.value


class Coarse(Linear):
    """Scores by the sign of ``bm25``."""

    def predict(self, X):
        return np.sign(super().predict(X))


@pytest.mark.parametrize("baseline", [None, Coarse()])
def test_intervals_cover_what_queries_in_general_give(baseline):
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    # So many queries that their own error is an eleventh of that of the logs.
    X, relevance = world(n_queries=64_000, seed=1)
    rate = relevance * examined(X)
    expected = scorer.estimate(Linear(), X, rate, baseline=baseline).value
    covered = []
    for seed in range(200):
        # The error of a ratio is that of its linear part: of 60 queries, .92 are covered.
        X, relevance = world(n_queries=500, seed=1_000 + seed)
        rate = draw_rates(X, relevance, np.random.default_rng(seed))
        found = scorer.estimate(Linear(), X, rate, baseline=baseline)
        covered.append(abs(found.value - expected) < 1.96 * found.standard_error)
    # Of 200 logs .95 are covered: fewer or more have a probability of 1 in 5,000.
    fewest, most = binom.interval(1 - 1 / 5_000, 200, 0.95)
    assert fewest <= np.sum(covered) <= most


def test_a_baseline_is_the_difference_of_two_values():
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    near = Given(X["bm25"] + 0.1 * np.random.default_rng(1).normal(size=len(X)))
    one, other = scorer.estimate(Linear(), X, rate), scorer.estimate(near, X, rate)
    found = scorer.estimate(Linear(), X, rate, baseline=near)
    assert_allclose(found.value, one.value - other.value)
    # Two estimators that score nearly alike err together.
    assert found.standard_error < 0.3 * one.standard_error
    same = scorer.estimate(Linear(), X, rate, baseline=Linear())
    assert (same.value, same.standard_error) == (0, 0)


# What does not matter -------------------------------------------------------------------------
def test_what_all_rows_of_a_list_share_drops_out():
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    offset = 1e6 * X["qid"].str[1:].astype(int)
    for scale in ("fit", 1.0):
        scorer = ClickLikelihoodScorer(propensity=EXAMINATION, scale=scale)
        found = scorer(Given(X["bm25"] + offset), X, rate)
        assert_allclose(found, scorer(Linear(), X, rate), rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-9, 7.0, 1e9])
def test_the_unit_of_scores_does_not_matter_if_the_scale_is_fitted(factor):
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    one, other = scorer.estimate(Linear(), X, rate), scorer.estimate(Linear(factor), X, rate)
    assert_allclose(other.value, one.value, rtol=1e-6)
    assert_allclose(other.standard_error, one.standard_error, rtol=1e-4)
    assert_allclose(other.scale * factor, one.scale, rtol=1e-4)


def test_one_factor_of_the_propensities_does_not_matter():
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    whole = ClickLikelihoodScorer(propensity=EXAMINATION)(Linear(), X, rate)
    half = ClickLikelihoodScorer(propensity=EXAMINATION / 2)(Linear(), X, rate)
    assert_allclose(half, whole, rtol=1e-6)


def test_an_aggregated_log_is_the_raw_one():
    documents = make_ltr(n_queries=10, n_documents=4, n_features=3, random_state=0)
    X, clicks, truth = simulate_clicks(
        documents, n_sessions=300, n_positions=3, features=False, random_state=0
    )
    features = documents[["doc"]].assign(bm25=documents["relevance"])
    rows, rate = aggregate_clicks(X.assign(click=clicks), features)
    raw = X.merge(features, on="doc", how="left")
    assert len(rows) < len(raw)
    scorer = ClickLikelihoodScorer(propensity=truth.examination)
    expected = scorer.estimate(Linear(), raw, clicks)
    assert_allclose(scorer.estimate(Linear(), rows, rate), expected, rtol=1e-5)
    weighted = rows.drop(columns="impressions")
    found = scorer.estimate(Linear(), weighted, rate, rows["impressions"])
    # Weights are relative: they are no number of clicks.
    assert_allclose(found[:3], expected[:3], rtol=1e-5)


def test_rows_of_a_list_may_have_different_impressions():
    # As many clicks each, of twice as many impressions: half as relevant.
    X = pd.DataFrame({"qid": [1, 1], "position": [1, 2], "impressions": [100, 200]})
    scorer = ClickLikelihoodScorer(propensity=[1, 1])
    found = scorer.estimate(Given([1, 0]), X, [0.2, 0.1])
    assert_allclose(found.scale, np.log(2), rtol=1e-4)


def test_rows_that_nobody_saw_and_lists_without_choice_do_not_count():
    X, relevance = world()
    rate = draw_rates(X, relevance, np.random.default_rng(0))
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    expected = scorer.estimate(Linear(), X, rate)
    shown = X["position"].notna().to_numpy()
    assert_allclose(scorer.estimate(Linear(), X[shown], rate[shown]), expected)
    single = pd.DataFrame({"qid": ["alone"], "session": 0, "position": 1.0, "impressions": 5})
    longer = pd.concat([X, single.assign(bm25=3.0)], ignore_index=True)
    assert_allclose(scorer.estimate(Linear(), longer, [*rate, 1.0]), expected)


# Where propensities come from ----------------------------------------------------------------
@pytest.fixture(scope="module")
def log():
    documents = make_ltr(n_queries=60, n_documents=6, n_features=4, random_state=0)
    return simulate_clicks(
        documents,
        n_sessions=2_000,
        policy=PlackettLucePolicy(temperature=0.3),
        n_positions=6,
        user=PositionBasedUser(1.0),
        random_state=0,
    )[:2]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.filterwarnings("ignore:By these propensities:skultr.exceptions.AssumptionWarning")
def test_a_search_over_a_pipeline(log, library):
    X, clicks = log
    X = X if library == "pandas" else pytest.importorskip("polars").from_pandas(X)
    curve = 1 / np.arange(1, 7)
    search = GridSearchCV(
        make_pipeline(
            OnFeatures(StandardScaler()),
            IPSRanker(propensity=curve, max_epochs=5, early_stopping=False, random_state=0),
        ),
        {"ipsranker__learning_rate": [1e-5, 0.01]},
        cv=QueryKFold(3),
        scoring=ClickLikelihoodScorer(propensity=curve),
    ).fit(X, clicks)
    assert search.best_params_ == {"ipsranker__learning_rate": 0.01}
    annotated = log[0]
    best = RankingScorer(k=3)(search, X)
    assert search.best_score_ > 0.01
    assert best > RankingScorer(k=3)(Given(-annotated["position"]), annotated)


def test_rankers_that_score_lists_as_a_whole_get_the_query(log):
    X, clicks = log
    ranker = VectorizationRanker(max_epochs=1, random_state=0).fit(X, clicks)
    scorer = ClickLikelihoodScorer(propensity=1 / np.arange(1, 7))
    roles = {role: X[role].to_numpy() for role in ("qid", "session", "doc", "position")}
    features = X[[name for name in X if name.startswith("feature_")]].to_numpy()
    arrays = VectorizationRanker(max_epochs=1, random_state=0).fit(features, clicks, **roles)
    assert_allclose(
        scorer(arrays, features, clicks, **roles), scorer(ranker, X, clicks), rtol=1e-4
    )


@pytest.mark.parametrize("given", [lambda X: X["old"].to_numpy(), lambda X: "old"])
def test_baseline_of_scores(given):
    """An array or a column, as the ranking of a production ranker often is."""
    X, relevance = world()
    # It explains clicks: the likeliest scale of noise alone is 0 in every second draw.
    X = X.assign(old=X["bm25"] + np.random.default_rng(1).normal(size=len(X)))

    class Old:
        def predict(self, X):
            return X["old"]

    scorer, clicks = ClickLikelihoodScorer(propensity=EXAMINATION), relevance * examined(X)
    found = scorer.estimate(Linear(), X, clicks, baseline=given(X))
    assert_allclose(found, scorer.estimate(Linear(), X, clicks, baseline=Old()))
    assert found.value != scorer.estimate(Linear(), X, clicks).value
    with pytest.raises(ValueError, match="scores of the baseline are NaN in 1 of 160 rows"):
        scorer.estimate(Linear(), X, clicks, baseline=X["old"].where(X.index != 3))


# Bad input ------------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [0, -1.0, np.nan, np.inf, "auto", None])
def test_scales_that_are_none(scale):
    with pytest.raises(ValueError, match=r"'scale' .* must be a str among {'fit'} or a float"):
        ClickLikelihoodScorer(scale=scale)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.assign(session=range(len(X))), "Every list with a click has one shown row"),
        (
            lambda X: X.assign(bm25=np.where(np.arange(len(X)) == 2, -np.inf, X["bm25"])),
            "the estimator are infinite in 1 of 160 rows, first in row 2",
        ),
    ],
)
def test_logs_that_are_none(change, message):
    X, relevance = world()
    with pytest.raises(ValueError, match=message):
        ClickLikelihoodScorer(propensity=EXAMINATION)(Linear(), change(X), relevance * examined(X))


def test_scores_that_explain_no_click():
    X, relevance = world()
    rate = relevance * examined(X)
    scorer = ClickLikelihoodScorer(propensity=EXAMINATION)
    with pytest.warns(AssumptionWarning, match="the scores explain no held-out clicks"):
        found = scorer.estimate(Linear(-1.0), X, rate)
    assert (found.value, found.standard_error, found.scale) == (0, 0, 0)
    constant = scorer.estimate(Given(np.ones(len(X))), X, rate)  # no warning: nothing was fitted
    assert (constant.value, constant.scale) == (0, 0)
    # Too steep a curve explains the clicks alone.
    steep = ClickLikelihoodScorer(propensity=EXAMINATION**4)
    with pytest.warns(AssumptionWarning, match="propensities are too steep"):
        assert steep(Given(-X["position"].fillna(9)), X, rate) == 0
