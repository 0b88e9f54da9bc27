import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr

ROLES = ["qid", "doc", "relevance"]


def test_shape_names_and_types():
    documents = make_ltr(30, 7, 12, random_state=0)
    assert documents.shape == (30 * 7, 3 + 12)
    assert list(documents.columns) == ROLES + [f"feature_{j:03d}" for j in range(12)]
    assert documents["doc"].is_unique
    assert (documents.groupby("qid").size() == 7).all()
    assert documents["relevance"].dtype == np.int64
    features = documents.drop(columns=ROLES)
    assert (features.dtypes == np.float32).all()
    assert np.isfinite(features.to_numpy()).all()


def test_uneven_lists_stay_in_range():
    lengths = make_ltr(500, (2, 5), 4, random_state=0).groupby("qid").size()
    assert set(lengths) == {2, 3, 4, 5}
    assert len(lengths) == 500


@pytest.mark.parametrize("grades", [(0.5, 0.25, 0.15, 0.07, 0.03), (0.9, 0.1), (0.3, 0.0, 0.7)])
def test_grade_proportions_are_exact(grades):
    documents = make_ltr(100, 20, 5, grades=grades, random_state=0)
    counts = np.bincount(documents["relevance"], minlength=len(grades))
    np.testing.assert_allclose(counts, np.multiply(grades, 2000))


def test_some_queries_have_nothing_relevant():
    best = make_ltr(1000, 20, 2, random_state=0).groupby("qid")["relevance"].max()
    assert 0.01 < (best == 0).mean() < 0.2


def test_same_seed_same_documents():
    same = [make_ltr(20, (1, 9), 10, random_state=3) for _ in range(2)]
    pd.testing.assert_frame_equal(*same)
    other = make_ltr(20, (1, 9), 10, random_state=4)
    assert len(other) != len(same[0]) or not other.equals(same[0])


def test_features_have_the_scales_and_tails_of_letor():
    features = make_ltr(500, 20, 100, random_state=0).drop(columns=ROLES).to_numpy()
    qid = np.repeat(np.arange(500), 20)
    assert features.max() > 1e4
    scales = np.median(np.abs(features), axis=0)
    assert scales[scales > 0].max() / scales[scales > 0].min() > 1e4
    assert (np.mean(features == 0, axis=0) > 0.5).sum() >= 10  # sparse or nearly constant
    assert sum(set(np.unique(column)) <= {0, 1} for column in features.T) >= 5  # flags
    by_query = pd.DataFrame(features).groupby(qid)
    spread = (by_query.max() - by_query.min()).max()
    assert 4 <= (spread == 0).sum() <= 30  # known of the query alone


def test_nonlinearity_hides_relevance_from_a_line():
    def explained(nonlinearity):
        documents = make_ltr(
            300, 20, 40, nonlinearity=nonlinearity, noise=0.0, n_informative=40, random_state=0
        )
        ranks = documents.drop(columns=ROLES).rank(pct=True)
        design = np.column_stack([np.ones(len(ranks)), ranks])
        grade = documents["relevance"]
        fitted = design @ np.linalg.lstsq(design, grade, rcond=None)[0]
        return 1 - np.var(grade - fitted) / np.var(grade)

    assert explained(0.0) > explained(1.0) + 0.1


@pytest.mark.parametrize("n_features", [1, 2, 3, 7])
def test_few_features(n_features):
    assert make_ltr(5, 3, n_features, random_state=0).shape == (15, 3 + n_features)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_documents": (5, 2)}, "min <= max"),
        ({"n_documents": (0, 2)}, "from 1"),
        ({"n_documents": (1, 2, 3)}, "pair"),
        ({"n_documents": (1.5, 2)}, "whole number"),
        ({"n_queries": 0}, "n_queries"),
        ({"n_features": 3, "n_informative": 4}, "exceeds n_features"),
        ({"grades": (0.5, 0.4)}, "summing to 1"),
        ({"grades": (1.5, -0.5)}, "at least 0"),
        ({"nonlinearity": 2}, "nonlinearity"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_ltr(**{"n_queries": 3, "n_documents": 3, "n_features": 3, **arguments})
