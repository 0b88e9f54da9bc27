import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest

from skultr.exceptions import ClickDataWarning
from skultr.metrics import CMIPResult, _dependence, cmip_score
from skultr.metrics._dependence import _groups_of_grades
from skultr.metrics._information import knn_information

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
def test_independence_in_small_grades(n_a_grade):
    """Grades below 20 are merged, and neighbours do not tie."""
    rng = np.random.default_rng(n_a_grade)
    x, y = rng.normal(size=(2, 2_000))
    grade = np.arange(2_000) // n_a_grade
    for estimator in ("knn", "classifier"):
        options = {"estimator": estimator, "n_repeats": 1, "random_state": 0}
        if n_a_grade < 20:
            with pytest.warns(ClickDataWarning, match="fewer than 20 documents"):
                value = cmip_score(x, y, grade, **options)
        else:
            value = cmip_score(x, y, grade, **options)
        assert_allclose(value, 0, atol=0.03)


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("n_a_grade", [5, 20, 100])
def test_neighbors_have_no_bias_around_zero(n_a_grade, rho):
    """Before merging: the mean over many grades, of the estimator alone."""
    rng = np.random.default_rng(0)
    grade = np.repeat(np.arange(20_000 // n_a_grade), n_a_grade)
    x, noise = rng.normal(size=(2, len(grade)))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    value = knn_information(x, y, grade, 1, np.random.RandomState(0)).mean()
    # Towards 0, never beyond.
    assert -0.01 < value < truth(rho) + 0.01


@pytest.mark.parametrize("n_a_grade", [2, 5, 9])
def test_strong_dependence_in_small_grades(n_a_grade):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 1_000))
    expected = 0.5 * np.log(1 + 1 / 0.2**2)
    for estimator in ("knn", "classifier"):
        with pytest.warns(ClickDataWarning, match="merged with the nearest grade"):
            value = cmip_score(
                x,
                x + 0.2 * noise,
                np.arange(1_000) // n_a_grade,
                estimator=estimator,
                n_repeats=1,
                random_state=0,
            )
        assert 0.5 * expected < value < expected


def test_fine_grades_are_merged_into_bands():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 500))
    grade = rng.random(500).round(3)
    with pytest.warns(ClickDataWarning, match=r"of \d+ grades have fewer than 20 documents"):
        result = cmip_score(x, y, grade, estimator="knn", random_state=0, return_result=True)
    assert_allclose(result.value, 0, atol=0.06)
    assert result.n_per_grade.min() >= 20
    assert result.n_per_grade.max() < 60
    assert result.n_per_grade.sum() == 500
    assert result.n_per_grade.index.is_monotonic_increasing


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_runs_of_grades_large_enough(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 40, rng.integers(1, 15))
    values = np.cumsum(rng.uniform(0.1, 2, len(counts)))
    group = _groups_of_grades(values, counts)
    assert group[0] == 0
    assert set(np.diff(group)) <= {0, 1}
    size = np.bincount(group, counts)
    assert size.min() >= 20 or len(size) == 1
    # Grades that are large enough are only merged by small ones.
    for run in range(len(size)):
        assert (group == run).sum() == 1 or (counts[group == run] < 20).any()


def test_a_small_grade_joins_the_nearest():
    rng = np.random.default_rng(0)
    grade = np.repeat([0.0, 1, 2, 3, 3.2, 9], [100, 19, 50, 8, 6, 40])
    x, y = rng.normal(size=(2, len(grade)))
    with pytest.warns(ClickDataWarning, match="3 of 6 grades .* leaves 3"):
        result = cmip_score(x, y, grade, estimator="knn", return_result=True)
    counts = result.n_per_grade
    # 3.2 joins 3, both join 2, and then 0 is nearer to 1 than they are.
    assert list(counts) == [119, 64, 40]
    assert counts.index[2] == 9
    assert_allclose(counts.index[:2], [19 / 119, grade[119:183].mean()])


def test_p_value_is_uniform_under_independence():
    p_values = []
    for seed in range(200):
        pred, logging, grade = normal_documents(300, 0.0, seed)
        kept = grade < 3  # the others are too small, and merging them would be dependence
        pred, logging, grade = pred[kept], logging[kept], grade[kept]
        result = cmip_score(
            pred, logging, grade, estimator="knn", random_state=seed, return_result=True
        )
        p_values.append(result.p_value)
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_p_value_of_dependence():
    for rho in (0.3, 0.9):
        result = cmip_score(
            *normal_documents(600, rho), estimator="knn", random_state=0, return_result=True
        )
        assert result.p_value == 1 / 200


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
def test_standard_error_covers_the_truth(rho):
    """95 % intervals of nearest neighbours, not shorter than they say and not twice as long."""
    results = [
        cmip_score(
            *normal_documents(1_000, rho, seed),
            estimator="knn",
            n_repeats=1,
            n_permutations=1,
            random_state=seed,
            return_result=True,
        )
        for seed in range(60)
    ]
    values = np.array([result.value for result in results])
    errors = np.array([result.standard_error for result in results])
    assert np.mean(abs(values - truth(rho)) <= 1.96 * errors) >= 0.9
    assert 0.8 < errors.mean() / values.std(ddof=1) < 1.7


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
    pred, logging, grade = normal_documents(500, 0.6)
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


def test_a_grade_of_one_document_joins_its_neighbor():
    pred, logging, grade = normal_documents(1_000, 0.5)
    expected = cmip_score(pred, logging, grade, estimator="knn", random_state=0)
    more = np.append(pred, 0.0), np.append(logging, 1.0), np.append(grade, 9)
    with pytest.warns(ClickDataWarning, match="1 of 6 grades have fewer"):
        result = cmip_score(*more, estimator="knn", random_state=0, return_result=True)
    assert_allclose(result.value, expected, atol=0.03)
    assert result.n_per_grade.sum() == 1_001


def test_one_grade_and_tiny_data():
    pred, logging, _ = normal_documents(300, 0.6)
    assert cmip_score(pred, logging, np.ones(300), estimator="knn") > 0.05
    assert np.isfinite(cmip_score([1.0, 2.0], [2.0, 1.0], [1, 1], estimator="knn"))
    with pytest.warns(ClickDataWarning, match="4 of 4 grades .* leaves 1"):
        assert np.isfinite(
            cmip_score(np.arange(8), np.arange(8), np.arange(8) // 2, estimator="knn")
        )


@pytest.mark.parametrize("n", [40, 150, 199])
def test_too_few_for_a_classifier_are_for_neighbors(n):
    """Never a 0 that nothing estimated, and the result says who did."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, n))
    arguments = x, x + 0.1 * noise, np.zeros(n)
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
        ({"y_pred": [1.0, np.nan, 2.0]}, "y_pred holds NaN or infinity in 1 of 3 rows, first nan"),
        ({"y_logging": [1.0, np.inf, 2.0]}, "y_logging holds NaN or infinity"),
        ({"y_true": [1.0, None, 2.0]}, "y_true holds NaN or infinity"),
        ({"y_true": [0.1, 0.2, 0.3]}, "No two of the 3 documents share a grade"),
        ({"y_pred": [1.0, 2.0]}, r"shapes y_pred \(2,\)"),
        ({"y_pred": [[1.0, 2.0, 3.0]]}, "must be flat"),
        ({"y_pred": [], "y_logging": [], "y_true": []}, "No two of the 0 documents"),
        ({"y_pred": ["a", "b", "c"]}, "y_pred must hold numbers"),
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
