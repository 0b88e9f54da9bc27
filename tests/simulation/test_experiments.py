import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr
from skultr.simulation import (
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    ShufflePolicy,
    SwapPolicy,
    UniformPolicy,
    UserPopulation,
    _policies,
    simulate_clicks,
)

EXPERIMENTS = [SwapPolicy(), SwapPolicy("adjacent"), ShufflePolicy()]
SCORES = np.array([0.5, 0.9, 0.1, 1, 2, 3, 4, 5.0, 7.0])
OFFSETS = np.array([0, 3, 3, 8, 9])  # queries of 3, 0, 5 and 1 documents
LENGTHS = np.diff(OFFSETS)


def rng(seed=0):
    return np.random.default_rng(seed)


def run(policy, query, n_positions=4, seed=0):
    return policy.rank_with_arms(SCORES, OFFSETS, query, n_positions, rng(seed))


@pytest.fixture(scope="module")
def documents():
    return make_ltr(40, (1, 9), 4, random_state=0)


# --------------------------------------------------------------------------------------
# Experiments
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [*EXPERIMENTS, SwapPolicy(share=0.3), ShufflePolicy(0.3)])
@pytest.mark.parametrize("n_positions", [1, 2, 4, 9])
def test_same_documents_in_another_order(policy, n_positions):
    query = rng(1).integers(4, size=500)
    rows, arm = run(policy, query, n_positions)
    base = DeterministicPolicy().rank(SCORES, OFFSETS, query, n_positions)
    assert rows.dtype == base.dtype
    assert rows.shape == arm.shape == base.shape
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.sort(base, axis=1))
    np.testing.assert_array_equal(rows < 0, base < 0)
    # What has no arm stands where it always does.
    np.testing.assert_array_equal(rows[np.isnan(arm)], base[np.isnan(arm)])
    assert np.isnan(arm[rows < 0]).all()
    assert np.isnan(arm[LENGTHS[query] < 2]).all()
    np.testing.assert_array_equal(rows, policy.rank(SCORES, OFFSETS, query, n_positions, rng()))


@pytest.mark.parametrize("swaps", ["pivot", "adjacent"])
def test_arms_of_swaps(swaps):
    n = 40_000
    query = np.repeat([0, 2], n // 2)
    rows, arm = run(SwapPolicy(swaps), query)
    base = DeterministicPolicy().rank(SCORES, OFFSETS, query, 4)
    deeper = np.nanmax(arm, axis=1).astype(int)
    assert (np.count_nonzero(~np.isnan(arm), axis=1) == 2).all()
    for q, n_shown in ((0, 3), (2, 4)):
        of_query = query == q
        arms, counts = np.unique(deeper[of_query], return_counts=True)
        assert arms.tolist() == list(range(2, n_shown + 1))
        p = 1 / (n_shown - 1)
        assert np.abs(counts - n / 2 * p).max() < 4.5 * np.sqrt(n / 2 * p * (1 - p))
        for k in arms:
            upper = 1 if swaps == "pivot" else k - 1
            session = np.flatnonzero(of_query & (deeper == k))
            with_arm = np.flatnonzero(~np.isnan(arm[session[0]])) + 1
            assert with_arm.tolist() == [upper, k]
            assert (arm[session][:, [upper - 1, k - 1]] == k).all()
            swapped = rows[session, upper - 1] == base[session, k - 1]
            np.testing.assert_array_equal(
                swapped, rows[session, k - 1] == base[session, upper - 1]
            )
            assert abs(swapped.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(len(session))


def test_every_order_of_a_shuffle_is_as_likely():
    n = 60_000
    rows, arm = run(ShufflePolicy(), np.zeros(n, dtype=int), 3)
    assert (arm == 0).all()
    orders, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(orders) == 6
    assert np.abs(counts - n / 6).max() < 4.5 * np.sqrt(n * 5 / 36)


@pytest.mark.parametrize("policy", [SwapPolicy, ShufflePolicy])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_share_of_the_sessions(policy, share):
    n = 20_000
    _, arm = run(policy(share=share), np.full(n, 2))
    found = (~np.isnan(arm)).any(axis=1).mean()
    assert abs(found - share) <= 4.5 * np.sqrt(share * (1 - share) / n)


def test_chunks_leave_no_seam(monkeypatch):
    query = rng(1).integers(4, size=500)
    whole = run(ShufflePolicy(share=0.8), query)
    monkeypatch.setattr(_policies, "PAGES_AT_ONCE", 7)
    parts = run(ShufflePolicy(share=0.8), query)
    np.testing.assert_array_equal(parts[0], whole[0])
    np.testing.assert_array_equal(parts[1], whole[1])


@pytest.mark.parametrize("policy", EXPERIMENTS)
def test_arm_in_the_log(documents, policy):
    X, _, _ = simulate_clicks(
        documents, policy=policy, user=UserPopulation(5), n_sessions=2_000, random_state=0
    )
    expected = ["session", "user", "qid", "doc", "position", "arm", "relevance"]
    assert X.columns[:7].tolist() == expected
    sizes = documents.groupby("qid").size()
    alone = X["qid"].map(sizes) == 1
    assert alone.any()
    np.testing.assert_array_equal(X["arm"].isna()[alone], True)
    if isinstance(policy, ShufflePolicy):
        assert (X.loc[~alone, "arm"] == 0).all()
        return
    arms = (
        X[X["arm"].notna()]
        .groupby("session")
        .agg(
            arm=("arm", "first"),
            upper=("position", "min"),
            deeper=("position", "max"),
            n=("qid", len),
        )
    )
    assert len(arms) == X.loc[~alone, "session"].nunique()
    assert (arms["n"] == 2).all()
    assert (arms["arm"] == arms["deeper"]).all()
    upper = 1 if policy.swaps == "pivot" else arms["deeper"] - 1
    assert (arms["upper"] == upper).all()


@pytest.mark.parametrize("swaps", ["pivot", "adjacent"])
def test_click_rates_of_an_arm_differ_by_the_examination_alone(swaps):
    X, clicks, _ = simulate_clicks(
        make_ltr(50, 5, 4, random_state=0),
        policy=SwapPolicy(swaps, share=0.9),
        user=PositionBasedUser(1.0),
        n_sessions=150_000,
        n_positions=5,
        features=False,
        random_state=0,
    )
    rows = X.assign(click=clicks)[X["arm"].notna()]
    for k, of_arm in rows.groupby("arm"):
        by_position = of_arm.groupby("position")["click"]
        mean, error = by_position.mean(), by_position.sem()
        upper, deeper = mean.index
        ratio = mean[deeper] / mean[upper]
        error = ratio * np.hypot(error[deeper] / mean[deeper], error[upper] / mean[upper])
        assert (upper, deeper) == (1 if swaps == "pivot" else k - 1, k)
        assert abs(ratio - upper / deeper) < 4 * error < 0.15
    # The ranking orders by relevance, so that the whole log says something else.
    naive = X.assign(click=clicks).groupby("position")["click"].mean()
    assert naive[5] / naive[1] < 0.18


def test_log_without_experiment_has_no_arm(documents):
    X, _, _ = simulate_clicks(documents, n_sessions=20, random_state=0)
    assert "arm" not in X


def test_arm_of_documents_is_refused(documents):
    taken = documents.assign(arm=1)
    with pytest.raises(ValueError, match="documents has a column 'arm'"):
        simulate_clicks(taken, policy=ShufflePolicy(), n_sessions=1)
    simulate_clicks(taken, n_sessions=1, random_state=0)


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan, "all", None])
@pytest.mark.parametrize("policy", [SwapPolicy, ShufflePolicy])
def test_bad_share(policy, share):
    with pytest.raises(ValueError, match="'share' parameter"):
        policy(share=share)


def test_bad_swaps():
    with pytest.raises(ValueError, match=r"'swaps' parameter of SwapPolicy .* Got 'top'"):
        SwapPolicy("top")


# --------------------------------------------------------------------------------------
# Several rankers
# --------------------------------------------------------------------------------------
def test_each_session_is_ranked_by_one_ranker():
    scores = np.column_stack([SCORES, -SCORES, SCORES * [1, -1, 1, 1, 1, -1, 1, 1, 1]])
    n = 30_000
    query = rng(1).integers(4, size=n)
    rows = MixturePolicy([5, 3, 2]).rank(scores, OFFSETS, query, 4, rng())
    lists = [DeterministicPolicy().rank(column, OFFSETS, query, 4) for column in scores.T]
    shown_by = np.array([(rows == one).all(axis=1) for one in lists])
    assert shown_by.any(axis=0).all()
    of_long = query == 2  # where the three rankers all differ
    assert (shown_by[:, of_long].sum(axis=0) == 1).all()
    p = np.array([0.5, 0.3, 0.2])
    error = (shown_by[:, of_long].mean(axis=1) - p) / np.sqrt(p * (1 - p) / of_long.sum())
    assert np.abs(error).max() < 4.5


def test_shares_of_rankers_by_query():
    scores, query = np.column_stack([SCORES, -SCORES]), np.repeat([1, 2], 1_000)
    shares = np.zeros((4, 2))
    shares[:, 0] = 1
    shares[2] = 1, 3
    rows = MixturePolicy(shares).rank(scores, OFFSETS, query, 4, rng())
    first = DeterministicPolicy().rank(SCORES, OFFSETS, query, 4)
    of_first = (rows == first).all(axis=1)
    assert of_first[query == 1].all()
    assert abs(of_first[query == 2].mean() - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / 1_000)
    with pytest.raises(ValueError, match="weights of 3 queries, but there are 4"):
        MixturePolicy(shares[:3]).rank(scores, OFFSETS, query, 4, rng())


def test_even_traffic_by_default_and_one_ranker_is_deterministic(documents):
    scores = rng().normal(size=(len(documents), 2))
    X, _, truth = simulate_clicks(
        documents, scores=scores, policy=MixturePolicy(), n_sessions=4_000, random_state=0
    )
    np.testing.assert_array_equal(truth.scores, scores)
    best = pd.DataFrame(scores).groupby(documents["qid"].to_numpy()).idxmax()
    first = X[X["position"] == 1]
    best = best.loc[first["qid"]].to_numpy()
    differ = best[:, 0] != best[:, 1]
    share = (first["doc"].to_numpy() == best[:, 0])[differ].mean()
    assert abs(share - 0.5) < 4.5 * 0.5 / np.sqrt(differ.sum())
    alone = simulate_clicks(
        documents, scores=scores[:, :1], policy=MixturePolicy(), n_sessions=99, random_state=0
    )
    plain = simulate_clicks(documents, scores=scores[:, 0], n_sessions=99, random_state=0)
    pd.testing.assert_frame_equal(alone.X, plain.X)
    np.testing.assert_array_equal(alone.clicks, plain.clicks)


@pytest.mark.parametrize(
    "policy", [None, PlackettLucePolicy(), UniformPolicy(), SwapPolicy(), ShufflePolicy()]
)
def test_other_policies_refuse_several_rankers(documents, policy):
    scores = np.zeros((len(documents), 2))
    with pytest.raises(ValueError, match=r"ranks by one ranker.*policy=MixturePolicy\(\)"):
        simulate_clicks(documents, scores=scores, policy=policy, n_sessions=9)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (None, "pass scores= with one column per ranker"),
        (np.zeros(7), "pass scores= with one column per ranker"),
        (np.zeros((3, 2)), r"each ranker, got the shape \(3, 2\)\. .* use np.column_stack"),
        (np.zeros((0, 2)), r"got the shape \(0, 2\)"),
        (np.inf, "missing or infinite values"),
        (3, "2 weights, but scores has 3 columns"),
    ],
)
def test_bad_scores_of_several_rankers(documents, scores, message):
    n = len(documents)
    if np.ndim(scores) == 0 and scores is not None:
        scores = np.zeros((n, 3)) if scores == 3 else np.full((n, 2), scores)
    with pytest.raises(ValueError, match=message):
        simulate_clicks(documents, scores=scores, policy=MixturePolicy([1, 2]), n_sessions=9)


@pytest.mark.parametrize(
    "weights", [[], [0, 0], [1, -1], [1, np.nan], [[1, 1], [0, 0]], [[[1]]], 3]
)
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="weights must be the shares"):
        MixturePolicy(weights)
