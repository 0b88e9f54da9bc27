import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest

from skultr.exceptions import ClickDataWarning
from skultr.metrics import CMIPResult, _dependence, cmip_score
from skultr.metrics._dependence import _permutations
from skultr.metrics._information import _correlations, _with_nearest_grade, knn_information

SHARES = [0.5, 0.2, 0.15, 0.1, 0.05]


def normal_documents(n, rho, seed=0):
    """Scores and logged positions of correlation rho in every grade; both rise with the grade."""
    rng = np.random.default_rng(seed)
    grade = rng.choice(len(SHARES), n, p=SHARES)
    x, noise = rng.normal(size=(2, n))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    return x + grade, y - 2 * grade, grade


def truth(rho):
    return -0.5 * np.log(1 - rho**2)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_knn_finds_the_known_answer(rho):
    for n, error in ((20_000, 0.03), (5_000, 0.05)):
        value = cmip_score(*normal_documents(n, rho), estimator="knn", random_state=0)
        assert_allclose(value, truth(rho), atol=error)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_classifier_finds_the_known_answer(rho):
    documents = normal_documents(5_000, rho)
    value = cmip_score(*documents, estimator="classifier", n_repeats=1, random_state=0)
    assert_allclose(value, truth(rho), atol=0.08)


@pytest.mark.parametrize(("estimator", "n"), [("knn", 4_000), ("classifier", 4_000)])
def test_information_of_tied_values(estimator, n):
    """Discrete scores and positions: the information of a 2 × 5 table."""
    rng = np.random.default_rng(0)
    table = np.array([[0.18, 0.14, 0.10, 0.06, 0.02], [0.02, 0.06, 0.10, 0.14, 0.18]])
    cell = rng.choice(10, n, p=table.ravel())
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    expected = (table * np.log(table / independent)).sum()
    grade = rng.integers(0, 2, n)
    value = cmip_score(
        cell // 5, cell % 5, grade, estimator=estimator, n_repeats=2, random_state=0
    )
    assert_allclose(value, expected, atol=0.04)


def test_dependence_that_is_no_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3_000)
    y = x**2 + 0.5 * rng.normal(size=3_000)
    for estimator in ("knn", "classifier"):
        value = cmip_score(x, y, np.zeros(3_000), estimator=estimator, n_repeats=1, random_state=0)
        assert value > 0.3


def test_grades_weigh_by_their_documents():
    """What relevance explains does not count, and a grade counts by its share."""
    rng = np.random.default_rng(0)
    grade = np.repeat([0, 1], [3_000, 1_000])
    x, noise = rng.normal(size=(2, 4_000))
    y = np.where(grade == 1, 0.9 * x + np.sqrt(1 - 0.81) * noise, noise)
    value = cmip_score(x, y, grade, estimator="knn")
    assert_allclose(value, truth(0.9) / 4, atol=0.02)


@pytest.mark.parametrize("estimator", ["knn", "classifier"])
def test_increasing_functions_change_nothing(estimator):
    pred, logging, grade = normal_documents(1_000, 0.6)
    options = {"estimator": estimator, "n_repeats": 1, "random_state": 0}
    value = cmip_score(pred, logging, grade, **options)
    assert cmip_score(np.exp(pred), logging**3, grade * 10, **options) == value
    reversed_ = cmip_score(pred, -logging, grade, **options)
    assert_allclose(reversed_, value, atol=0.02 if estimator == "knn" else 0.1)


@pytest.mark.parametrize("estimator", ["knn", "classifier"])
def test_same_seed_same_value_in_any_row_order(estimator):
    pred, logging, grade = normal_documents(1_000, 0.6)
    logging = np.round(logging)  # ties
    options = {"estimator": estimator, "n_repeats": 2, "random_state": 3}
    value = cmip_score(pred, logging, grade, **options)
    assert cmip_score(pred, logging, grade, **options) == value
    order = np.random.default_rng(0).permutation(len(pred))
    assert cmip_score(pred[order], logging[order], grade[order], **options) == value


@pytest.mark.parametrize("n_a_grade", [2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize("estimator", ["knn", "classifier"])
def test_independence_in_small_grades(n_a_grade, estimator):
    """A good model under a good logger: grades differ in both, and that does not count."""
    rng = np.random.default_rng(n_a_grade)
    grade = np.arange(2_000) // n_a_grade
    x, y = rng.normal(size=(2, 2_000))
    arguments = x + grade, y - grade, grade
    options = {"estimator": estimator, "n_repeats": 1, "random_state": 0}
    if n_a_grade < 20:
        with pytest.warns(ClickDataWarning, match="fewer than 20 .*2000 documents compared"):
            value = cmip_score(*arguments, **options)
    else:
        value = cmip_score(*arguments, **options)
    # Four standard errors of neighbors: over draws they are .3 to .66 / sqrt(2000), the most in
    # grades of 50. A classifier that found nothing is at 0 but for a few thousandths.
    atol = {"knn": 4 * 0.66 / np.sqrt(2_000), "classifier": 0.03}[estimator]
    assert_allclose(value, 0, atol=atol)


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("n_a_grade", [5, 20, 100])
def test_neighbors_have_no_bias_around_zero(n_a_grade, rho):
    """The mean over many grades, of the estimator alone."""
    rng = np.random.default_rng(0)
    grade = np.repeat(np.arange(20_000 // n_a_grade), n_a_grade)
    x, noise = rng.normal(size=(2, len(grade)))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    value = knn_information(x, y, grade, grade, 1, np.random.RandomState(0)).mean()
    # Towards 0, never beyond.
    assert -0.01 < value < truth(rho) + 0.01


@pytest.mark.parametrize(("n_a_grade", "share"), [(2, 0.2), (5, 0.35), (9, 0.4)])
@pytest.mark.parametrize("estimator", ["knn", "classifier"])
def test_strong_dependence_in_small_grades(n_a_grade, share, estimator):
    """Two documents can say no more than their order, ln 2 without noise."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 1_000))
    expected = 0.5 * np.log(1 + 1 / 0.2**2)
    with pytest.warns(ClickDataWarning, match="compared by ranks within the grade"):
        value = cmip_score(
            x,
            x + 0.2 * noise,
            np.arange(1_000) // n_a_grade,
            estimator=estimator,
            n_repeats=1,
            random_state=0,
        )
    assert share * expected < value < expected


def test_grades_of_different_small_sizes_are_compared_alike():
    """Ranks of a large grade are finer than those of a small one; that is no dependence."""
    values = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        grade = np.repeat(np.arange(100), np.repeat([2, 18], 50))
        x, y = rng.normal(size=(2, len(grade)))
        with pytest.warns(ClickDataWarning):
            values.append(cmip_score(x, y, grade, estimator="knn", random_state=seed))
    assert_allclose(np.mean(values), 0, atol=0.015)


def test_which_documents_are_compared():
    """Alone: left out. Small grades: together, or left out if they have fewer than 20 even so."""
    large, alone = np.repeat([0.0, 3.0], 50), [9.0]
    cases = [
        (np.repeat([1.0, 2.0, 4.0], [12, 7, 2]), 21, 1),
        (np.repeat([1.0, 2.0], [12, 7]), 0, 20),
    ]
    rng = np.random.default_rng(0)
    for small, together, left_out in cases:
        grade = np.concatenate([large, small, alone])
        x, y = rng.normal(size=(2, len(grade)))
        with pytest.warns(ClickDataWarning, match=f"{left_out} documents? left out"):
            result = cmip_score(x, y, grade, estimator="knn", return_result=True)
        assert (result.n_together, result.n_left_out) == (together, left_out)
        assert list(result.n_per_grade) == list(np.unique(grade, return_counts=True)[1])
        assert f"Left out of the value: {left_out}" in result.summary()


def test_documents_that_are_left_out_do_not_count():
    pred, logging, grade = normal_documents(1_000, 0.5)
    expected = cmip_score(pred, logging, grade, estimator="knn", random_state=0)
    more = np.append(pred, 0.0), np.append(logging, 1.0), np.append(grade, 9)
    with pytest.warns(ClickDataWarning, match="1 document left out"):
        assert cmip_score(*more, estimator="knn", random_state=0) == expected


def independent_documents(n_grades, n_a_grade, seed):
    """A good model under a good logger, independent given the grade."""
    rng = np.random.default_rng(seed)
    grade = np.repeat(np.arange(n_grades), n_a_grade)
    noise = rng.normal(size=(2, len(grade)))
    return grade + 0.5 * noise[0], -grade + 0.5 * noise[1], grade


def p_value_of(pred, logging, grade, seed, n_permutations=99, qid=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickDataWarning)  # of small grades
        return cmip_score(
            pred,
            logging,
            grade,
            estimator="knn",
            n_repeats=1,
            n_permutations=n_permutations,
            random_state=seed,
            qid=qid,
            return_result=True,
        ).p_value


@pytest.mark.parametrize(("n_grades", "n_a_grade"), [(5, 15), (5, 5), (3, 25), (40, 2)])
def test_p_value_is_uniform_under_independence(n_grades, n_a_grade):
    """Whatever the size of the grades; they are never merged."""
    p_values = np.array(
        [p_value_of(*independent_documents(n_grades, n_a_grade, s), s) for s in range(100)]
    )
    if n_a_grade > 2:  # two documents have two orders, so that p-values tie
        assert kstest(p_values, "uniform").pvalue > 0.01
    # Three standard deviations of a share of 100.
    assert np.mean(p_values <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


def test_p_value_finds_dependence_in_small_grades():
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        grade = np.repeat(np.arange(5), 15)
        x, noise = rng.normal(size=(2, 75))
        found.append(p_value_of(grade + x, -grade + 0.8 * x + 0.6 * noise, grade, seed) <= 0.05)
    assert sum(found) >= 19


# Queries ------------------------------------------------------------------------------
def documents_of_queries(n_each, shares, seed, rho=0.0, effect=1.0):
    """300 documents whose scores and logged positions differ between queries, independently."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(300 // n_each), n_each)
    effects = effect * rng.normal(size=(2, 300 // n_each))[:, query]
    grade = rng.choice(len(shares), 300, p=shares)
    x, noise = rng.normal(size=(2, 300))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    return grade + 0.5 * x + effects[0], 0.5 * y - grade + effects[1], grade, query


def share_found(qid=True, **settings):
    """Share of 100 logs with a p-value of at most .05; its standard error is .02 at .05."""
    found = []
    for seed in range(100):
        *documents, query = documents_of_queries(seed=seed, **settings)
        p_value = p_value_of(*documents, seed, qid=query if qid else None)
        found.append(p_value <= 0.05)
    return np.mean(found)


@pytest.mark.parametrize("n_each", [4, 10, 30])
@pytest.mark.parametrize("shares", [[0.7, 0.3], SHARES])
def test_level_where_queries_differ(n_each, shares):
    # Three standard errors.
    assert share_found(n_each=n_each, shares=shares) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


def test_without_queries_their_differences_are_dependence():
    assert share_found(qid=False, n_each=10, shares=SHARES) > 0.4


def test_queries_cost_no_power_where_they_do_not_differ():
    settings = {"n_each": 10, "shares": SHARES, "rho": 0.25, "effect": 0.0}
    assert share_found(**settings) > share_found(qid=False, **settings) - 0.15


@pytest.mark.parametrize("shares", [[0.7, 0.3], SHARES])
def test_power_where_queries_differ(shares):
    assert share_found(n_each=10, shares=shares, rho=0.4) > 0.9


def test_one_document_per_grade_and_query():
    """Nothing to permute within: whole queries of the same grades are exchanged."""
    p_values = {0.0: [], 0.5: []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        grade, query = np.tile([0, 1, 2], 50), np.repeat(np.arange(50), 3)
        x, noise, shift = rng.normal(size=(3, 150))
        for rho, found in p_values.items():
            y = rho * x + np.sqrt(1 - rho**2) * noise
            found.append(p_value_of(x, y + shift[query], grade, seed, qid=query))
    assert np.mean(np.array(p_values[0.0]) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert np.mean(np.array(p_values[0.5]) <= 0.05) > 0.9


def test_permutations_keep_queries_and_grades():
    """Documents go to documents of their grade; those of a query stay together; queries go to
    queries of the same grades, and all that is allowed occurs."""
    query = np.repeat(np.arange(6), [1, 2, 2, 3, 3, 2])
    grade = np.array([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1])
    orders = np.array([*_permutations(grade, query, 400, np.random.RandomState(0))])
    assert (np.sort(orders, axis=1) == np.arange(13)).all()
    assert (grade[orders] == grade).all()
    for start, stop, targets in [(0, 1, {0}), (1, 3, {1, 2}), (5, 8, {3, 4}), (11, 13, {5})]:
        came = query[orders[:, start:stop]]
        assert (came == came[:, :1]).all()
        assert set(came[:, 0]) == targets
    assert len(np.unique(orders, axis=0)) == 2 * 2 * 2 * 2 * 2 * 2  # pairs of queries, and within


def test_no_permutation_no_finding():
    """One query with one document of each grade but one."""
    x = np.arange(6.0)
    with pytest.warns(ClickDataWarning, match="fewer than 20"):
        result = cmip_score(
            x, x, [0, 0, 1, 2, 3, 4], qid=[0, 1, 1, 1, 1, 1], estimator="knn", return_result=True
        )
    assert result.p_value == 1


def test_names_of_queries_and_order_of_rows_change_nothing():
    order = np.random.default_rng(0).permutation(300)
    p_values = []
    for seed in range(4):
        *documents, query = documents_of_queries(10, SHARES, seed, rho=0.0)
        expected = p_value_of(*documents, 0, qid=query)
        names = np.array([f"query {i:02}" for i in query])
        assert p_value_of(*(each[order] for each in documents), 0, qid=names[order]) == expected
        p_values.append(expected)
    # Without dependence one of 100 values is as likely as another: that four are the same has a
    # probability of 1e-6.
    assert len(set(p_values)) > 1


def test_standard_error_between_queries():
    """Copies of a document say as much as one; without qid the error is that of 900."""
    pred, noise = np.random.default_rng(0).normal(size=(2, 300))
    logging = 0.5 * pred + np.sqrt(0.75) * noise
    # Of fixed sizes: a random grade may have too few documents, of which a warning tells.
    grade = np.arange(300) % 3
    options = {"estimator": "knn", "n_repeats": 1, "random_state": 0, "return_result": True}
    rows = np.repeat(np.arange(300), 3)
    documents = (
        pred[rows] + 1e-9 * np.arange(900),
        logging[rows] + 1e-9 * np.arange(900),
        grade[rows],
    )
    within, alone = (
        cmip_score(*documents, qid=qid, **options).standard_error for qid in (rows, None)
    )
    # The terms of copies differ by a neighbour or two: the ratio is 1.70 in 40 draws, with a
    # standard deviation of .004.
    assert_allclose(within / alone, np.sqrt(3), rtol=0.05)
    assert np.isnan(cmip_score(*documents, qid=np.zeros(900), **options).standard_error)


def test_p_value_of_dependence():
    # Of 600 documents, one permutation in 200 may beat a correlation of .3.
    for rho in (0.3, 0.9):
        result = cmip_score(
            *normal_documents(2_400, rho), estimator="knn", random_state=0, return_result=True
        )
        assert result.p_value == 1 / 200


@pytest.mark.parametrize(
    ("estimator", "rho", "n"),
    [("knn", 0.0, 1_000), ("knn", 0.3, 1_000), ("knn", 0.6, 1_000), ("classifier", 0.6, 500)],
)
@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
def test_standard_error_covers_the_truth(estimator, rho, n):
    """95 % intervals, not shorter than they say and not twice as long."""
    results = [
        cmip_score(
            *normal_documents(n, rho, seed),
            estimator=estimator,
            n_repeats=1,
            n_permutations=1,
            random_state=seed,
            return_result=True,
        )
        for seed in range(30)
    ]
    values = np.array([result.value for result in results])
    errors = np.array([result.standard_error for result in results])
    assert np.mean(abs(values - truth(rho)) <= 1.96 * errors) >= 0.9
    assert 0.8 < np.median(errors) / values.std(ddof=1) < 1.7


def test_standard_error_knows_what_the_classifier_missed():
    """A parabola: the copula says nothing, trees of 300 documents find .57 of .80 nats."""
    values = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=500)
        result = cmip_score(
            x,
            x**2 + 0.5 * rng.normal(size=500),
            np.zeros(500),
            n_repeats=1,
            random_state=seed,
            return_result=True,
        )
        assert result.value + 1.96 * result.standard_error > 0.8
        values.append(result.value)
    # Of 43 draws the standard deviation is .05: the bound is more than four errors of the mean.
    assert np.mean(values) < 0.7


@pytest.mark.parametrize(
    ("rhos", "n", "error"), [([0, 0.3, 0.6, 0.9], 500, 0.05), ([0.8, -0.8], 2_000, 0.03)]
)
def test_classifier_has_little_bias(rhos, n, error):
    """-.17 and -.12 without the copula."""
    values = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        grade = rng.integers(0, len(rhos), n)
        rho = np.array(rhos)[grade]
        x, noise = rng.normal(size=(2, n))
        y = rho * x + np.sqrt(1 - rho**2) * noise
        value = cmip_score(x, y, grade, n_repeats=1, random_state=seed)
        values.append(value - truth(rho).mean())
    assert_allclose(np.mean(values), 0, atol=error)


@pytest.mark.parametrize("n_cells", [1, 4])
def test_correlations_are_shrunk_by_what_cells_differ(n_cells):
    """Equal cells get the pooled correlation, different ones keep their own."""
    rng = np.random.default_rng(0)
    cell = np.repeat(np.arange(n_cells), 400)
    x, noise = rng.normal(size=(2, len(cell)))
    equal = _correlations(x, 0.6 * x + 0.8 * noise, cell, n_cells)
    assert_allclose(equal, 0.6, atol=0.05)
    assert np.ptp(equal) < 0.03
    if n_cells > 1:
        rho = np.array([0, 0.3, 0.6, 0.9])[cell]
        own = _correlations(x, rho * x + np.sqrt(1 - rho**2) * noise, cell, n_cells)
        assert_allclose(own, [0, 0.3, 0.6, 0.9], atol=0.1)


def test_published_estimator():
    """Figures of a published implementation: -.274 for 0 and .172 for .511."""
    for rho, published in ((0.0, -0.274), (0.8, 0.172)):
        documents = normal_documents(5_000, rho)
        result = cmip_score(
            *documents, estimator="published", random_state=0, n_permutations=9, return_result=True
        )
        assert_allclose(result.value, published, atol=0.06)
        assert result.estimator == "published"
        assert np.isnan(result.standard_error)
    assert cmip_score(*documents, estimator="published", random_state=0) == result.value
    assert cmip_score(*documents, estimator="published", random_state=1) != result.value


@pytest.mark.parametrize("n_documents", [400, 401, 402, 403])
def test_published_estimator_takes_any_number_of_documents(n_documents):
    documents = normal_documents(n_documents, 0.5)
    assert np.isfinite(cmip_score(*documents, estimator="published", random_state=0))


def test_published_estimator_takes_the_nearest_grade():
    others = np.array([3.0, 0.0, 3.0, 1.0])
    found = _with_nearest_grade(
        np.array([0.0, 0.4, 0.6, 2.5, 9.0]), others, np.random.RandomState(0)
    )
    assert list(others[found]) == [0, 0, 1, 3, 3]


def test_the_estimator_depends_on_documents_only():
    """Candidates that vary in few documents, or in all, are compared by one estimator."""
    _, logging, grade = normal_documents(400, 0.5)
    grade = np.minimum(grade, 2)
    for rare in (0, 1, 2):
        pred = np.where(grade == rare, logging, 0.0)
        result = cmip_score(pred, logging, grade, random_state=0, return_result=True)
        assert result.estimator == "classifier"
        assert result.value > 0.5 * np.mean(grade == rare)


@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
@pytest.mark.parametrize("n_varying", [2, 3, 4, 5])
def test_a_candidate_that_varies_in_a_few_documents_only(n_varying):
    """Too few for a fold each: 0, and no other estimator than that of the other candidates."""
    grade = np.repeat([0, 1, 2], [n_varying, 20 - n_varying, 480])
    logging = np.random.default_rng(0).normal(size=500)
    pred = np.where(grade == 0, logging, 0.0)
    result = cmip_score(pred, logging, grade, random_state=0, return_result=True)
    assert (result.estimator, result.value) == ("classifier", pytest.approx(0, abs=0.01))


@pytest.mark.filterwarnings("ignore:y_pred is 0 for all")
def test_published_has_the_same_bias_for_constants():
    rng = np.random.default_rng(0)
    logging, grade = rng.normal(size=1_000), rng.integers(0, 3, 1_000)
    values = [
        cmip_score(pred, logging, grade, estimator="published", random_state=0)
        for pred in (np.zeros(1_000), rng.normal(size=1_000))
    ]
    assert max(values) < -0.1


def test_numbers_near_the_largest():
    x, y = np.random.default_rng(0).normal(size=(2, 300))
    signs = np.sign(x)
    assert cmip_score(1.7e308 * signs, y, np.zeros(300), estimator="knn", random_state=0) == (
        cmip_score(signs, y, np.zeros(300), estimator="knn", random_state=0)
    )


@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
def test_standard_error_by_hand(monkeypatch):
    """Documents of information 0.1, 0.2, 0.6: their mean 0.3, the variance of which is
    ((0.2)^2 + (0.1)^2 + (0.3)^2) / 2 / 3.
    """
    monkeypatch.setattr(_dependence, "knn_information", lambda *_: np.array([0.1, 0.2, 0.6]))
    result = cmip_score(
        [1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [1, 1, 1], estimator="knn", return_result=True
    )
    assert result.value == pytest.approx(0.3)
    factor = _dependence.KNN_ERROR_FACTOR
    assert result.standard_error == pytest.approx(factor * np.sqrt(0.14 / 2 / 3))


def test_result():
    # The rarest grade has 50 documents with a standard deviation of 7: of fewer than 20 a warning
    # would tell.
    pred, logging, grade = normal_documents(1_000, 0.6)
    result = cmip_score(pred, logging, grade, estimator="knn", random_state=0, return_result=True)
    assert isinstance(result, CMIPResult)
    assert result.value == cmip_score(pred, logging, grade, estimator="knn", random_state=0)
    assert list(result.n_per_grade) == list(np.bincount(grade))
    assert result.n_per_grade.index.name == "grade"
    text = result.summary()
    assert f"CMIP {result.value:.3f} nats" in text
    assert "depend on the logging policy beyond relevance" in text
    assert f"0: {np.sum(grade == 0)}" in text
    assert pickle.loads(pickle.dumps(result)).value == result.value
    with pytest.raises(AttributeError):
        result.value = 0.0


@pytest.mark.parametrize("estimator", ["knn", "classifier"])
def test_the_truth_has_none(estimator):
    """Scores that are a function of the grade; no warning, they do rank."""
    _, logging, grade = normal_documents(1_000, 0.0)
    options = {"estimator": estimator, "random_state": 0, "return_result": True}
    result = cmip_score(2.0 * grade, logging, grade, **options)
    assert (result.value, result.standard_error, result.p_value) == (0, 0, 1)


@pytest.mark.parametrize("constant", ["y_pred", "y_logging"])
def test_constants_are_zero_with_a_warning(constant):
    pred, logging, grade = normal_documents(400, 0.5)
    grade = np.minimum(grade, 2)
    pred, logging = (np.full(400, 0.3), logging) if constant == "y_pred" else (pred, np.ones(400))
    with pytest.warns(ClickDataWarning, match=f"{constant} is .* for all 400 documents"):
        assert cmip_score(pred, logging, grade, estimator="knn") == 0


def test_one_grade_and_tiny_data():
    pred, logging, _ = normal_documents(300, 0.6)
    assert cmip_score(pred, logging, np.ones(300), estimator="knn") > 0.05
    with pytest.warns(ClickDataWarning, match="2 documents compared by ranks"):
        assert np.isfinite(cmip_score([1.0, 2.0], [2.0, 1.0], [1, 1], estimator="knn"))
    with pytest.warns(ClickDataWarning, match="8 documents compared by ranks"):
        assert np.isfinite(
            cmip_score(np.arange(8), np.arange(8), np.arange(8) // 2, estimator="knn")
        )


@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
@pytest.mark.parametrize(("n", "n_alone"), [(40, 0), (150, 0), (199, 0), (199, 50)])
def test_too_few_for_a_classifier_are_for_neighbors(n, n_alone):
    """Never a 0 that nothing estimated, and the result says who did; nobody learns from documents
    that are alone in their grade."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, n + n_alone))
    arguments = x, x + 0.1 * noise, np.maximum(np.arange(1 - n, 1 + n_alone), 0)
    with pytest.warns(ClickDataWarning, match=f"only {n} documents to learn from"):
        result = cmip_score(*arguments, random_state=0, return_result=True)
    assert result.value == cmip_score(*arguments, estimator="knn", random_state=0)
    assert result.value > 0.5
    assert result.estimator == "knn"


def test_no_cliff_where_the_classifier_starts():
    """Copies in a large grade and one of just enough: all documents are tested."""
    for n in (200, 205, 250):
        x = np.random.default_rng(0).normal(size=n)
        grade = np.repeat([0, 1], [n - 20, 20])
        result = cmip_score(x, x, grade, random_state=0, return_result=True)
        assert result.estimator == "classifier"
        assert result.value > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"y_pred": [1.0, np.nan, 2.0]},
            "NaN or infinity in 1 of 3 documents, first nan",
        ),
        ({"y_logging": [1.0, np.inf, 2.0]}, "y_logging holds NaN or infinity"),
        ({"y_true": [1.0, None, 2.0]}, "y_true holds NaN or infinity"),
        ({"y_true": [0.1, 0.2, 0.3]}, "No two of the 3 documents share a grade"),
        ({"y_pred": [1.0, 2.0]}, r"shapes y_pred \(2,\)"),
        ({"y_pred": [[1.0, 2.0, 3.0]]}, "must be flat"),
        (
            {"y_pred": [], "y_logging": [], "y_true": []},
            "are empty; expected at least one document",
        ),
        ({"y_pred": ["a", "b", "c"]}, "y_pred must hold numbers"),
        ({"qid": [1, 1]}, r"qid must have one value .* 3 rows; got the shape \(2,\)"),
        ({"qid": [1, None, 1]}, "qid must have one value .* 1 missing values"),
        ({"estimator": "mine"}, "'estimator' parameter"),
        ({"n_repeats": 0}, "'n_repeats' parameter"),
    ],
)
def test_bad_input(change, message):
    arguments = {"y_pred": [1.0, 2.0, 3.0], "y_logging": [1, 2, 3], "y_true": [0, 0, 1]}
    with pytest.raises(ValueError, match=message):
        cmip_score(**arguments | change)


def test_series_are_arrays():
    pred, logging, grade = normal_documents(1_000, 0.6)
    value = cmip_score(pred, logging, grade, estimator="knn", random_state=0)
    frame = pd.DataFrame({"p": pred, "l": logging, "g": grade}).sample(frac=1, random_state=0)
    assert cmip_score(frame["p"], frame["l"], frame["g"], estimator="knn", random_state=0) == value
