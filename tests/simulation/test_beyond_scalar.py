import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.simulation import (
    EYE_TRACKING,
    TIANGONG_CLICK_MATRIX,
    ClickMatrixUser,
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    Policy,
    PositionBasedUser,
    ShufflePolicy,
    SwapPolicy,
    TrustBiasUser,
    UniformPolicy,
    User,
    simulate_clicks,
)

USERS = [TrustBiasUser(), ClickMatrixUser()]
POLICIES = [
    DeterministicPolicy(),
    PlackettLucePolicy(0.5),
    UniformPolicy(),
    SwapPolicy(),
    ShufflePolicy(0.5),
    MixturePolicy(),
]


@pytest.fixture(scope="module")
def documents():
    return make_ltr(60, (3, 15), 8, random_state=0)


def scores_for(policy, documents):
    grades = documents["relevance"].to_numpy(dtype=float)
    several = np.column_stack([grades, -grades])
    return several if getattr(policy, "several_rankers", False) else grades


def errors_of_rates(X, clicks, probability):
    """z values of the click rates of the cells (doc, position) with enough impressions."""
    cells = X.assign(click=clicks, p=probability).groupby(["doc", "position"])
    cells = cells.agg(rate=("click", "mean"), p=("p", "first"), n=("click", "size"))
    cells = cells[cells["n"] > 100]
    return (cells["rate"] - cells["p"]) / np.sqrt(cells["p"] * (1 - cells["p"]) / cells["n"])


def assert_like_noise(error):
    assert len(error) > 20
    assert np.abs(error).max() < 4.5
    assert 0.4 < np.mean(error**2) < 2.0


# --------------------------------------------------------------------------------------
# Both
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_same_sessions_as_another_user(documents, user, policy, seed):
    scores = scores_for(policy, documents)
    shared = {"policy": policy, "scores": scores, "n_sessions": 400, "random_state": seed}
    plain = simulate_clicks(documents, **shared)
    X, clicks, _ = simulate_clicks(documents, user=user, **shared)
    pd.testing.assert_frame_equal(X, plain.X)
    assert 0 < clicks.sum() != plain.clicks.sum()
    lean, same, _ = simulate_clicks(documents, user=user, features=False, **shared)
    pd.testing.assert_frame_equal(lean, X[lean.columns])
    np.testing.assert_array_equal(same, clicks)


# --------------------------------------------------------------------------------------
# Trust bias
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_without_trust_bias_click_for_click_position_based(documents, policy, seed):
    shared = {"policy": policy, "scores": scores_for(policy, documents)}
    shared |= {"n_sessions": 1_000, "random_state": seed}
    fair = TrustBiasUser(trust_positive=1.0, trust_negative=0.0)
    plain = simulate_clicks(documents, user=PositionBasedUser(), **shared)
    X, clicks, truth = simulate_clicks(documents, user=fair, **shared)
    pd.testing.assert_frame_equal(X, plain.X)
    np.testing.assert_array_equal(clicks, plain.clicks)
    np.testing.assert_array_equal(truth.alpha, EYE_TRACKING)
    np.testing.assert_array_equal(truth.beta, np.zeros(10))


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    "user", [TrustBiasUser(), TrustBiasUser(0.5, [0.9, 0.8, 0.7, 0.6], [0.4, 0.4, 0.1, 0.0])]
)
def test_click_rates_under_trust_bias(user, noise):
    documents = make_ltr(3, 5, 4, random_state=1)
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=60_000,
        n_positions=4,
        policy=UniformPolicy(),
        scores=documents["relevance"],
        user=user,
        noise=noise,
        random_state=0,
    )
    # By hand, from the definition: no function that drew the clicks takes part.
    k = X["position"].to_numpy()
    relevance = noise + (1 - noise) * (2.0 ** X["relevance"] - 1) / 15
    if user.trust_positive is None:
        positive, negative = 1 - (k + 1) / 100, 0.65 / k
        examination = np.array(EYE_TRACKING)[k - 1]
    else:
        positive = np.array([0.9, 0.8, 0.7, 0.6])[k - 1]
        negative = np.array([0.4, 0.4, 0.1, 0.0])[k - 1]
        examination = 1 / np.sqrt(k)
    p = examination * (positive * relevance + negative * (1 - relevance))
    possible = p > 0
    assert clicks[~possible].sum() == 0
    assert_like_noise(errors_of_rates(X[possible], clicks[possible], p[possible]))
    at_row = truth.alpha[k - 1] * relevance + truth.beta[k - 1]
    np.testing.assert_allclose(at_row, p)


def test_default_trust_is_the_published_one():
    alpha, beta = TrustBiasUser(examination=0.0).affine_at(98)
    k = np.arange(1, 99)
    np.testing.assert_allclose(beta, 0.65 / k)
    np.testing.assert_allclose(alpha + beta, 1 - (k + 1) / 100)
    np.testing.assert_array_equal(TrustBiasUser().examination_at(10), EYE_TRACKING)
    with pytest.raises(ValueError, match=r"At position 99 trust_positive is 0 .*fewer positions"):
        TrustBiasUser(examination=0.0).affine_at(99)


def test_trust_ends_where_it_is_known():
    user = TrustBiasUser(1.0, trust_positive=[0.9, 0.8, 0.7])
    assert user.affine_at(3)[0].shape == (3,)
    with pytest.raises(
        ValueError, match=r"trust_positive is given for 3 positions.*n_positions=4"
    ):
        user.affine_at(4)
    with pytest.raises(ValueError, match="examination is given for 10 positions"):
        TrustBiasUser().affine_at(11)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trust_positive": 1.1}, "trust_positive must be one probability"),
        ({"trust_positive": []}, "trust_positive must be one probability"),
        ({"trust_positive": "high"}, "trust_positive must be one probability"),
        ({"trust_negative": [0.1, -0.1]}, "trust_negative must be one probability"),
        ({"trust_negative": [np.nan]}, "trust_negative must be one probability"),
        ({"trust_negative": [[0.5]]}, "trust_negative must be one probability"),
        ({"trust_negative": [[0.5], [0.1, 0.2]]}, "trust_negative must be one probability"),
        ({"trust_positive": 0.5}, r"At position 1 trust_positive is 0.5 and .* 0.65"),
        (
            {"trust_positive": [0.9, 0.2, 0.9], "trust_negative": [0.1, 0.3]},
            r"At position 2 trust_positive is 0.2 and .* 0.3",
        ),
        ({"examination": [2.0]}, "examination must be"),
    ],
)
def test_bad_trust(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrustBiasUser(**arguments)


# --------------------------------------------------------------------------------------
# Click matrices
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 1])
def test_click_rates_are_those_of_the_matrix(documents, seed):
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=60_000,
        policy=UniformPolicy(),
        scores=documents["relevance"],
        user=ClickMatrixUser(),
        random_state=seed,
    )
    np.testing.assert_array_equal(truth.click_matrix, TIANGONG_CLICK_MATRIX)
    cells = X.assign(click=clicks).groupby(["relevance", "position"])["click"]
    cells = cells.agg(["mean", "size"])
    grade, position = (cells.index.get_level_values(i).astype(int) for i in range(2))
    p = np.array(TIANGONG_CLICK_MATRIX)[grade, position - 1]
    error = (cells["mean"] - p) / np.sqrt(p * (1 - p) / cells["size"])
    assert len(error) == 50
    assert_like_noise(error[cells["size"] * p > 5])


def test_noise_and_gain_have_no_effect_on_a_matrix(documents):
    plain, other = (
        simulate_clicks(
            documents, n_sessions=500, user=ClickMatrixUser(), random_state=0, **arguments
        )
        for arguments in ({}, {"noise": 0.7, "gain": "linear", "max_grade": 9})
    )
    np.testing.assert_array_equal(plain.clicks, other.clicks)


def test_matrix_of_rank_one_is_position_based(documents):
    relevance = 0.1 + 0.9 * (2.0 ** np.arange(5) - 1) / 15
    user = ClickMatrixUser(np.outer(relevance, EYE_TRACKING))
    plain, same = (
        simulate_clicks(documents, n_sessions=2_000, user=who, random_state=0)
        for who in (PositionBasedUser(), user)
    )
    np.testing.assert_array_equal(same.clicks, plain.clicks)
    np.testing.assert_allclose(same.truth.examination, plain.truth.examination / EYE_TRACKING[0])


def test_examination_of_a_matrix_is_its_best_scalar_fit():
    matrix = np.array(TIANGONG_CLICK_MATRIX)
    curve = ClickMatrixUser().examination_at(10)
    assert curve[0] == curve.max() == 1
    assert curve.min() > 0
    np.testing.assert_array_equal(ClickMatrixUser().examination_at(4), curve[:4])

    def loss(curve):
        # For a curve, the best factor of the grades is a projection.
        return np.sum((matrix - np.outer(matrix @ curve / (curve @ curve), curve)) ** 2)

    best = loss(curve)
    assert best == pytest.approx(np.sum(np.linalg.svd(matrix, compute_uv=False)[1:] ** 2))
    rng = np.random.default_rng(0)
    assert all(loss(curve + rng.normal(0, 0.05, 10)) > best for _ in range(100))


def test_examination_of_a_matrix_without_clicks_at_the_first_position():
    curve = ClickMatrixUser([[0.0, 0.2, 0.1], [0.0, 0.4, 0.2]]).examination_at(3)
    np.testing.assert_allclose(curve, [0, 1, 0.5], atol=1e-12)


def test_own_matrix_with_fewer_grades(documents):
    binary = documents.assign(relevance=(documents["relevance"] > 2).astype(int))
    certain = ClickMatrixUser([[0.0] * 3, [1.0] * 3])
    X, clicks, truth = simulate_clicks(
        binary, n_sessions=200, n_positions=2, user=certain, random_state=0
    )
    np.testing.assert_array_equal(clicks, X["relevance"])
    assert truth.click_matrix.shape == (2, 2)


@pytest.mark.parametrize(
    ("grades", "message"),
    [
        ([0, 1, 5], r"grade is 5, but the click matrix has 5 rows: .*from 0 to 4.*matrix="),
        ([0, 2.5, 1], r"grade is 2.5, .*expected whole grades"),
    ],
)
def test_grades_that_no_row_stands_for(grades, message):
    documents = pd.DataFrame({"qid": 0, "doc": range(3), "relevance": grades})
    # Whether or not the document is shown: a log must not fail by chance.
    with pytest.raises(ValueError, match=message):
        simulate_clicks(
            documents,
            scores=[3, 2, 1],
            n_positions=1,
            n_sessions=1,
            user=ClickMatrixUser(),
            max_grade=9,
        )


@pytest.mark.parametrize(
    "bad", ["yahoo", [], [0.5], [[1.1]], [[np.nan]], [[-0.1]], [[0.0]], [[1], [0, 1]], None, 3]
)
def test_bad_matrix(bad):
    with pytest.raises(ValueError, match="matrix must be 'tiangong' or a table"):
        ClickMatrixUser(bad)


def test_matrix_ends_where_it_is_known(documents):
    with pytest.raises(ValueError, match=r"given for 10 positions.*n_positions=11"):
        simulate_clicks(documents, n_positions=11, n_sessions=1, user=ClickMatrixUser())


def test_own_user_who_reads_grades(documents):
    class Picky(User):
        def examination_at(self, n_positions):
            return np.ones(n_positions)

        def click_probability(self, judged):
            return np.maximum(judged, 0.0)

        def read_grades(self, grade):
            return grade == 4

        def click(self, judged, rng):
            assert set(np.unique(judged)) == {-1, 0, 1}
            return judged == 1

        def truth_at(self, n_positions):
            return {"threshold": 4}

    X, clicks, truth = simulate_clicks(documents, n_sessions=300, user=Picky(), random_state=0)
    np.testing.assert_array_equal(clicks, X["relevance"] == 4)
    assert truth.threshold == 4

    class Careless(Picky):
        def read_grades(self, grade):
            return grade[1:]

    with pytest.raises(ValueError, match="read_grades returned the shape"):
        simulate_clicks(documents, n_sessions=3, user=Careless())


def test_empty_places_are_never_relevant():
    class Watchful(PositionBasedUser):
        def click(self, relevance_probability, rng):
            np.testing.assert_array_equal(relevance_probability, [[1.0, 0.1], [1.0, 0.0]])
            return super().click(relevance_probability, rng)

    class InTurn(Policy):
        def rank(self, scores, offsets, query, n_positions, rng):
            return np.array([[1, 0], [1, -1]])

    documents = pd.DataFrame({"qid": 0, "doc": [0, 1], "relevance": [0, 4]})
    X, _, _ = simulate_clicks(
        documents, scores=[1, 2], n_sessions=2, policy=InTurn(), user=Watchful(), random_state=0
    )
    assert X["doc"].tolist() == [1, 0, 1]


# A matrix that is counted from a log ---------------------------------------------------
def test_matrix_of_a_log_is_the_one_that_clicked(documents):
    """Figure 1 of the paper: 95 % of the click rates lie within 1.96 standard errors."""
    errors = []
    for seed in range(4):
        log, clicks, truth = simulate_clicks(
            documents,
            n_sessions=10_000,
            user=ClickMatrixUser(),
            policy=UniformPolicy(),
            random_state=seed,
        )
        user = ClickMatrixUser.from_log(log, clicks)
        counts = user.counts
        assert user.matrix.shape == (5, 10)
        assert counts["impressions"].sum() == len(log)
        assert counts["clicks"].sum() == clicks.sum()
        errors += [(counts["click_rate"] - truth.click_matrix.ravel()) / counts["standard_error"]]
    z = np.concatenate(errors)
    assert (np.abs(z) < 1.96).mean() > 0.9
    assert np.sqrt((z**2).mean()) == pytest.approx(1.0, abs=0.15)
    # It is an input of another simulation.
    again, more, _ = simulate_clicks(
        documents, n_sessions=10_000, user=user, policy=UniformPolicy(), random_state=4
    )
    recounted = ClickMatrixUser.from_log(again, more).counts
    gap = (recounted["click_rate"] - counts["click_rate"]) / recounted["standard_error"]
    assert (gap.abs() < 1.96).mean() > 0.85


def test_matrix_of_an_aggregated_log_is_that_of_the_raw_one(documents):
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=2_000,
        user=ClickMatrixUser(),
        policy=UniformPolicy(),
        random_state=0,
    )
    raw = log.assign(click=clicks).drop(columns="relevance")
    X, rate = aggregate_clicks(raw, documents)
    X = X.assign(rate=rate)
    expected = ClickMatrixUser.from_log(log, clicks).counts
    for frame in (X, pl.from_pandas(X)):
        pd.testing.assert_frame_equal(ClickMatrixUser.from_log(frame, "rate").counts, expected)
    equal = ClickMatrixUser.from_log(log, clicks, sample_weight=np.full(len(log), 2.0))
    pd.testing.assert_frame_equal(equal.counts, expected)  # a common factor changes nothing
    # Rows without a grade, and rows that were not shown, count for nothing.
    blank = log.assign(relevance=np.where(log.index < 10, np.nan, log["relevance"]))
    hidden = log.assign(position=np.where(log.index < 10, np.nan, log["position"]))
    silent = np.where(log.index < 10, 0, clicks)
    pd.testing.assert_frame_equal(
        ClickMatrixUser.from_log(blank, clicks).counts,
        ClickMatrixUser.from_log(hidden, silent).counts,
    )


def test_pairs_that_were_never_shown_get_a_product():
    X = pd.DataFrame({"position": [1, 1, 2], "relevance": [0, 1, 0], "impressions": [100] * 3})
    user = ClickMatrixUser.from_log(X, [0.2, 0.6, 0.1])
    # Grade 1 has 60 clicks where average documents have 40, and the second position 10 %.
    np.testing.assert_allclose(user.matrix, [[0.2, 0.1], [0.6, 0.15]])
    assert user.counts.loc[(1, 2)].isna().tolist() == [False, False, True, True]
    assert np.isfinite(user.click_probability(np.array([[0, 1]]))).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relevance": [0.5, 1, 0]}, "found the grade 0.5; expected whole grades from 0"),
        (
            {"relevance": [np.nan] * 3},
            "found no graded row; .* of rows that were shown",
        ),
        ({"relevance": [0, 2, 0]}, "No graded row of the log has the grade 1; .* up to 2"),
        ({"position": [1, 3, 1]}, "No graded row of the log has the position 2; .* up to 3"),
        ({"relevance": [-1, 0, 0]}, "relevance must be finite and at least 0"),
    ],
)
def test_logs_of_which_no_matrix_can_be_counted(changes, message):
    X = pd.DataFrame({"position": [1, 2, 1], "relevance": [0, 1, 0]}).assign(**changes)
    with pytest.raises(ValueError, match=message):
        ClickMatrixUser.from_log(X, [1, 0, 0])
    for role in ("position", "relevance"):
        with pytest.raises(ValueError, match="needs a frame with the columns 'position'"):
            ClickMatrixUser.from_log(X.drop(columns=role), [1, 0, 0])
    with pytest.raises(ValueError, match="needs a frame with the columns 'position'"):
        ClickMatrixUser.from_log(np.zeros((3, 2)), [1, 0, 0])


def test_a_pair_that_was_never_shown_is_clicked_always_at_most():
    """Grade 1 has ten times the clicks of average documents at position 2."""
    X = pd.DataFrame(
        {"relevance": [0, 0, 1], "position": [1, 2, 2], "impressions": [100, 98, 2]}
    ).assign(qid=0, doc=range(3))
    user = ClickMatrixUser.from_log(X, [0.9, 18 / 98, 1.0])
    assert user.matrix[1, 0] == 1
