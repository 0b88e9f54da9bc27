"""Each number that decides something, on both sides."""

import numpy as np
import pandas as pd
import pytest

from skultr.exceptions import ClickDataWarning
from skultr.metrics import (
    CMIPResult,
    CMIPScorer,
    _click_dependence,
    _click_scorers,
    cmip_score,
)
from skultr.metrics._click_dependence import _partial_correlation
from skultr.metrics._dependence import cmip_by_clicks
from skultr.metrics._query_means import ratio_interval
from skultr.metrics._two_judges import JudgedQueries, two_judges


def _randomised(n_queries, n_impressions=200):
    """Score, position, clicks, sums of examination, impressions, query: ten documents each."""
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(n_queries), 10)
    relevance = np.tile(np.linspace(0.05, 0.9, 10), n_queries)
    position = rng.normal(size=len(query)) - 8 * relevance
    clicks = np.round(n_impressions * relevance)
    examined = np.ones((7, len(query)))
    for power in range(6):
        examined[power + 1] = examined[power] * (n_impressions - power) / (power + 1)
    shown = np.full(len(query), float(n_impressions))
    score = np.log(relevance) + rng.normal(size=len(query))
    return score, position, clicks, examined, shown, query


def _documents_of_grades(*sizes):
    rng = np.random.default_rng(0)
    grade = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=len(grade)), rng.normal(size=len(grade)), grade


def test_clicks_of_ten_queries_are_needed():
    assert np.isfinite(cmip_by_clicks(*_randomised(10)).value)
    with pytest.raises(ValueError, match=r"Only 9 queries .* at least 10"):
        cmip_by_clicks(*_randomised(9))


def test_more_than_ten_clusters_give_an_interval():
    lead = np.tile([1.0, -1.0], 6)
    for n, known in ((10, False), (11, True)):
        low, high = ratio_interval(lead[:n], np.ones(n), 2.0, np.inf)
        assert np.isfinite([low, high]).all() == known


@pytest.mark.parametrize(("p_value", "verdict"), [(0.05, "depend"), (0.051, "No dependence")])
def test_a_summary_calls_five_percent_significant(p_value, verdict):
    none = pd.Series(0, pd.Index([], name="grade"), int, "n")
    result = CMIPResult(0.1, 0.02, p_value, none, 0, 0, "knn", 199)
    found = "depend" if "The scores depend" in result.summary() else "No dependence"
    assert found == verdict


@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
@pytest.mark.parametrize(("n_small", "n_left_out"), [(19, 19), (20, 0)])
def test_a_grade_of_twenty_documents_stands_alone(n_small, n_left_out):
    documents = _documents_of_grades(40, n_small)
    result = cmip_score(*documents, estimator="knn", n_permutations=1, return_result=True)
    assert result.n_left_out == n_left_out


@pytest.mark.parametrize(("n_documents", "estimator"), [(199, "knn"), (200, "classifier")])
@pytest.mark.filterwarnings("ignore:CMIP by a classifier")
def test_a_classifier_needs_two_hundred_documents(n_documents, estimator):
    documents = _documents_of_grades(n_documents)
    result = cmip_score(*documents, n_repeats=1, n_permutations=1, return_result=True)
    assert result.estimator == estimator


@pytest.mark.parametrize(("n_impressions", "n_left_out"), [(5, 1), (6, 0)])
def test_a_document_counts_from_six_impressions(n_impressions, n_left_out):
    score, position, clicks, _, shown, query = _randomised(12)
    shown[0] = n_impressions
    clicks[0] = 1
    result = cmip_score(
        score, position, clicks / shown, qid=query, impressions=shown, return_result=True
    )
    assert result.n_left_out == n_left_out


@pytest.mark.parametrize(("polynomial", "n_left_out"), [(0.9e-3, 1), (1.1e-3, 0)])
def test_a_document_counts_that_was_examined(polynomial, n_left_out):
    log = _randomised(12)
    examined = log[3]
    examined[:, 0] *= polynomial / examined[-1, 0]
    log[2][0] = 0
    assert cmip_by_clicks(*log).n_left_out == n_left_out


@pytest.mark.parametrize(
    ("cube", "square", "line", "degree"),
    [
        (2.1, 0.0, 0.0, 3),
        (1.9, 1.1, 0.0, 2),
        (1.9, 0.9, 2.1, 1),
        (1.9, 0.9, 1.9, None),
    ],
)
def test_the_powers_that_clicks_show_are_given(monkeypatch, cube, square, line, degree):
    spreads = {3: cube, 2: square, 1: line}

    def jackknife(statistics, sums):
        power = statistics.keywords["degree"]
        return (power, spreads[power]), (0.5, 1.0)

    monkeypatch.setattr(_click_dependence, "_jackknife", jackknife)
    sums = np.full((20, 5, 5), 100.0)
    if degree is None:
        with pytest.raises(ValueError, match="do not show how relevance varies"):
            _partial_correlation(sums, np.ones(20))
    else:
        assert _partial_correlation(sums, np.ones(20)) == (degree, 0.5)


@pytest.mark.parametrize(("variance", "refused"), [(28.0, True), (30.0, False)])
def test_a_square_that_clicks_do_not_show_is_no_line(monkeypatch, variance, refused):
    """The square may have 0.9 + 2 of the variance: a tenth is 29."""

    def jackknife(statistics, sums):
        return (0.1, 5.0 if statistics.keywords["degree"] == 1 else 0.9), (0.5, 1.0)

    monkeypatch.setattr(_click_dependence, "_jackknife", jackknife)
    sums = np.zeros((1, 5, 5))
    sums[0, 3, 3] = variance
    if refused:
        with pytest.raises(ValueError, match="do not show how relevance varies"):
            _partial_correlation(sums, np.ones(20))
    else:
        assert _partial_correlation(sums, np.ones(20)) == (0.1, 0.5)


@pytest.mark.parametrize("errors", [0.99, 1.01])
@pytest.mark.filterwarnings("ignore:Grades of fewer than 20", "ignore:CMIP by a classifier")
def test_scores_that_explain_clicks_by_less_than_an_error_are_blind(monkeypatch, errors, recwarn):
    monkeypatch.setattr(_click_scorers, "ratio_of_sums", lambda *_: (errors, 1.0))
    X = pd.DataFrame({"qid": np.repeat(np.arange(20), 5), "doc": np.arange(100)})
    X["session"] = X["qid"]
    X["position"] = X["doc"] % 5 + 1
    X["relevance"] = X["doc"] % 2
    X["score"] = np.random.default_rng(0).normal(size=100)
    CMIPScorer(estimator="knn")("score", X, X["doc"] % 3 == 0)
    told = [each for each in recwarn if "no better than position" in str(each.message)]
    assert len(told) == (errors < 1)
    assert all(each.category is ClickDataWarning for each in told)


@pytest.mark.parametrize(("n_differing", "helps"), [(9, False), (10, True)])
def test_a_second_judge_needs_ten_trusted_queries_that_differ(n_differing, helps):
    trusted = np.full(300, np.nan)
    trusted[:30] = 0.0
    # Ties are the most frequent value.
    trusted[:n_differing] = np.linspace(0.1, 0.5, n_differing)
    cheap = np.random.default_rng(0).permutation(np.nan_to_num(trusted))
    cheap[:30] = trusted[:30]
    queries = JudgedQueries(trusted[:, None], cheap[:, None], ~np.isnan(trusted))
    found = two_judges(queries, 0.95, 199, np.random.RandomState(0))
    wide = np.array([1.0])
    assert found.helps(-wide, wide).item() == helps
