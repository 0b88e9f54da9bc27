import hashlib

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import make_ltr
from skultr.simulation import (
    ClickMatrixUser,
    ContextualPositionBasedUser,
    DeterministicPolicy,
    PlackettLucePolicy,
    Policy,
    PositionBasedUser,
    TrustBiasUser,
    UniformPolicy,
    UserPopulation,
    _generate,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

POLICIES = [DeterministicPolicy(), PlackettLucePolicy(0.5), UniformPolicy()]


@pytest.fixture(scope="module")
def documents():
    return make_ltr(60, (3, 15), 8, random_state=0)


def test_columns_and_types(documents):
    X, clicks, truth = simulate_clicks(documents, n_sessions=200, random_state=0)
    features = [f"feature_{j:03d}" for j in range(8)]
    assert list(X.columns) == ["session", "qid", "doc", "position", "relevance", *features]
    assert clicks.shape == (len(X),)
    assert set(np.unique(clicks)) == {0, 1}
    assert truth.examination.shape == (10,)
    assert truth.scores.shape == truth.relevance_probability.shape == (len(documents),)
    np.testing.assert_allclose(
        truth.relevance_probability, relevance_probability(documents["relevance"])
    )
    lean, same, _ = simulate_clicks(documents, n_sessions=200, features=False, random_state=0)
    pd.testing.assert_frame_equal(lean, X[["session", "qid", "doc", "position"]])
    np.testing.assert_array_equal(same, clicks)


@pytest.mark.parametrize("policy", POLICIES)
def test_lists_are_whole_even_where_short(documents, policy):
    X, _, _ = simulate_clicks(documents, n_sessions=500, policy=policy, random_state=0)
    assert X["session"].nunique() == 500
    assert not X.duplicated(["session", "doc"]).any()
    assert (X.groupby("session")["qid"].nunique() == 1).all()
    lists = X.groupby("session").agg(qid=("qid", "first"), n=("doc", "size"))
    n_documents = documents.groupby("qid").size()
    np.testing.assert_array_equal(lists["n"], np.minimum(n_documents[lists["qid"]], 10))
    assert (X["position"] == X.groupby("session").cumcount() + 1).all()


def test_impressions_carry_what_the_documents_hold(documents):
    X, _, _ = simulate_clicks(documents, n_sessions=50, policy=UniformPolicy(), random_state=0)
    expected = documents.set_index("doc").loc[X["doc"]].reset_index()
    pd.testing.assert_frame_equal(
        X.drop(columns=["session", "position"]),
        expected[X.columns.drop(["session", "position"])],
        check_dtype=False,
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("examination", ["eye-tracking", 1.0])
def test_click_rates_match_the_truth(policy, examination):
    documents = make_ltr(3, 5, 4, random_state=1)
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=60_000,
        n_positions=4,
        policy=policy,
        scores=documents["relevance"],
        user=PositionBasedUser(examination),
        features=False,
        random_state=0,
    )
    cells = X.assign(click=clicks).groupby(["doc", "position"])["click"].agg(["mean", "size"])
    doc, position = (cells.index.get_level_values(i) for i in range(2))
    # The product by hand, not by the function that drew the clicks.
    p = truth.relevance_probability[doc] * np.asarray(truth.examination)[position - 1]
    error = (cells["mean"] - p) / np.sqrt(p * (1 - p) / cells["size"]).clip(lower=1e-12)
    error = error[cells["size"] > 100]
    assert np.abs(error).max() < 4.5
    assert 0.4 < np.mean(error**2) < 2.0


def test_deterministic_log_shows_the_best_scores_first(documents):
    X, _, truth = simulate_clicks(documents, n_sessions=300, n_positions=5, random_state=0)
    score = X["doc"].map(pd.Series(truth.scores, index=documents["doc"]))
    assert (score.groupby(X["session"]).diff().dropna() <= 0).all()
    best = pd.Series(truth.scores).groupby(documents["qid"]).max()
    first = X["position"] == 1
    np.testing.assert_array_equal(score[first], best[X.loc[first, "qid"]])


def test_same_seed_same_log_and_streams_apart(documents):
    policy = PlackettLucePolicy()
    one, two, noisy = (
        simulate_clicks(documents, n_sessions=400, policy=policy, noise=noise, random_state=7)
        for noise in (0.1, 0.1, 0.9)
    )
    pd.testing.assert_frame_equal(one.X, two.X)
    np.testing.assert_array_equal(one.clicks, two.clicks)
    pd.testing.assert_frame_equal(one.X, noisy.X)  # other clicks on the same lists
    assert noisy.clicks.sum() > one.clicks.sum()
    other = simulate_clicks(documents, n_sessions=400, policy=policy, random_state=8)
    assert not other.X["qid"].head(20).equals(one.X["qid"].head(20))


@pytest.mark.pinned  # hashes of logs of one seed
@pytest.mark.parametrize(
    ("arguments", "digest"),
    [
        ({}, "0c8289f96a4b7a0c"),
        ({"policy": PlackettLucePolicy(0.5)}, "d1aaa46033f65992"),
        ({"policy": UniformPolicy()}, "5fe7ab965965512c"),
        (
            {"user": ContextualPositionBasedUser(n_contexts=5, random_state=0)},
            "582f36dee11bd579",
        ),
        (
            {"query_weights": np.arange(1, 13), "user": PositionBasedUser(1.0)},
            "e10224d082aede94",
        ),
    ],
)
def test_published_logs_stay_as_they_are(arguments, digest):
    # Studies name a seed: a new feature must not draw from the streams of the old ones.
    sizes = np.arange(3, 15)
    number = np.arange(sizes.sum())
    documents = pd.DataFrame(
        {"qid": np.repeat(np.arange(12), sizes), "doc": number, "relevance": number % 5}
    )
    X, clicks, _ = simulate_clicks(
        documents,
        scores=number * 37 % 101 / 101,
        n_sessions=500,
        features=False,
        random_state=3,
        **arguments,
    )
    log = np.column_stack([X, clicks]).astype("<i8")
    assert hashlib.sha256(log.tobytes()).hexdigest()[:16] == digest


def test_linear_gain(documents):
    truth = simulate_clicks(documents, gain="linear", n_sessions=1, random_state=0).truth
    np.testing.assert_allclose(truth.relevance_probability, 0.1 + 0.9 * documents["relevance"] / 4)


def test_random_state_instance(documents):
    state = np.random.RandomState(0)
    one = simulate_clicks(documents, n_sessions=20, random_state=state)
    two = simulate_clicks(documents, n_sessions=20, random_state=state)
    again = simulate_clicks(documents, n_sessions=20, random_state=np.random.RandomState(0))
    pd.testing.assert_frame_equal(one.X, again.X)
    assert not two.X.equals(one.X)


def test_rows_of_documents_may_come_in_any_order(documents):
    scores = production_scores(documents, random_state=0)
    order = np.random.default_rng(0).permutation(len(documents))
    sorted_, shuffled = (
        simulate_clicks(documents.iloc[rows], scores=scores[rows], n_sessions=200, random_state=0)
        for rows in (np.arange(len(documents)), order)
    )
    pd.testing.assert_frame_equal(sorted_.X, shuffled.X)
    np.testing.assert_array_equal(sorted_.clicks, shuffled.clicks)


def test_string_ids(documents):
    named = documents.assign(
        qid="q" + documents["qid"].astype(str), doc="d" + documents["doc"].astype(str)
    )
    X, _, _ = simulate_clicks(named, n_sessions=50, random_state=0)
    assert X["qid"].str.startswith("q").all()
    assert X["doc"].isin(named["doc"]).all()


@pytest.mark.parametrize("frame", ["polars", "pyarrow"])
def test_other_frames(documents, frame):
    pytest.importorskip(frame, reason=f"{frame} is not installed")
    if frame == "polars":
        import polars

        other = polars.from_pandas(documents)
    else:
        import pyarrow

        other = pyarrow.Table.from_pandas(documents, preserve_index=False)
    expected = simulate_clicks(documents, n_sessions=50, random_state=0)
    got = simulate_clicks(other, n_sessions=50, random_state=0)
    pd.testing.assert_frame_equal(got.X, expected.X)
    np.testing.assert_array_equal(got.clicks, expected.clicks)


@pytest.mark.parametrize("kind", [dict, pd.Series, list])
def test_query_weights(documents, kind):
    weights = np.zeros(60)
    weights[[3, 5]] = 30, 10
    given = dict(enumerate(weights)) if kind is dict else kind(weights)
    X, _, _ = simulate_clicks(documents, n_sessions=4_000, query_weights=given, random_state=0)
    queries = X.groupby("session")["qid"].first()
    assert set(queries) == {3, 5}
    assert abs((queries == 3).mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4_000)


def test_queries_are_uniform_by_default(documents):
    X, _, _ = simulate_clicks(documents, n_sessions=60_000, features=False, random_state=0)
    counts = X.groupby("session")["qid"].first().value_counts()
    assert np.abs(counts - 1_000).max() < 5 * np.sqrt(1_000)


class FixedPolicy(Policy):
    def __init__(self, rows):
        self.rows = rows

    def rank(self, scores, offsets, query, n_positions, rng):
        return self.rows


def test_own_policy_may_count_without_signs(documents):
    rows = np.tile(np.arange(10), (4, 1))
    logs = [
        simulate_clicks(
            documents, n_sessions=4, policy=FixedPolicy(rows.astype(kind)), random_state=0
        )
        for kind in (np.int64, np.uint8, np.uint32)
    ]
    assert len(logs[0].X) == 40
    for log in logs[1:]:
        pd.testing.assert_frame_equal(log.X, logs[0].X)


def test_own_policy_shows_no_row_that_is_not_there(documents):
    policy = FixedPolicy(np.full((4, 10), len(documents)))
    with pytest.raises(IndexError, match="out of bounds"):
        simulate_clicks(documents, n_sessions=4, policy=policy)


def test_own_users_click_on_each_place(documents):
    class Careless(PositionBasedUser):
        def click(self, relevance_probability, rng):
            return super().click(relevance_probability, rng)[0]

    with pytest.raises(ValueError, match="click returned the shape"):
        simulate_clicks(documents, n_sessions=3, user=Careless())


def test_own_policy_is_read_not_written(documents):
    rows = np.full((4, 10), -1)
    rows[:, 0] = 2
    rows.flags.writeable = False
    X, clicks, _ = simulate_clicks(
        documents, n_sessions=4, policy=FixedPolicy(rows), random_state=0
    )
    assert X["doc"].tolist() == [2] * 4
    assert len(clicks) == 4
    with pytest.raises(ValueError, match="policy returned the shape"):
        simulate_clicks(documents, n_sessions=5, policy=FixedPolicy(rows))


class Duck:
    """All methods of a user and of a policy, without the optional ones of the base classes."""

    examination_at = PositionBasedUser.examination_at
    click = PositionBasedUser.click
    rank = DeterministicPolicy.rank


@pytest.mark.parametrize("name", ["user", "policy"])
@pytest.mark.parametrize(("given", "found"), [(Duck(), "Duck"), (Duck, "the class Duck")])
def test_users_and_policies_derive_from_the_base_classes(documents, name, given, found):
    base = {"user": "User", "policy": "Policy"}[name]
    message = rf"{name} is {found}; .*derived from skultr\.simulation\.{base}"
    with pytest.raises(TypeError, match=message):
        simulate_clicks(documents, n_sessions=1, **{name: given})


def test_defaults_of_contexts_and_of_several_users(documents):
    class Two(PositionBasedUser):
        def examination_table(self, n_positions):
            return np.tile(self.examination_at(n_positions), (2, 1))

        def click(self, relevance_probability, rng, about):
            assert set(np.unique(about)) == {0, 1}
            return super().click(relevance_probability, rng)

    class InTwoContexts(Two):
        context_vectors = np.array([[0.0], [1.0]])

    class TwoUsers(Two):
        user_weights = np.array([0.5, 0.5])

    X, _, truth = simulate_clicks(documents, n_sessions=500, user=InTwoContexts(), random_state=0)
    # Each of 5,000 impressions draws one of two contexts.
    assert abs(X["context"].mean() - 0.5) < 5 * 0.5 / np.sqrt(len(X))
    assert truth.examination_table.shape == (2, 10)
    X, _, truth = simulate_clicks(documents, n_sessions=500, user=TwoUsers(), random_state=0)
    np.testing.assert_array_equal(truth.query_weights[0], truth.query_weights[1])

    class WithoutTable(PositionBasedUser):
        user_weights = np.array([1.0])

    with pytest.raises(NotImplementedError, match="no examination_table"):
        simulate_clicks(documents, n_sessions=1, user=WithoutTable())


@pytest.mark.parametrize("role", ["qid", "doc", "relevance"])
def test_missing_role(documents, role):
    with pytest.raises(ValueError, match=f"no column '{role}'"):
        simulate_clicks(documents.drop(columns=role), n_sessions=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_sessions": 0}, "n_sessions"),
        ({"n_positions": 0}, "n_positions"),
        ({"n_positions": 11}, "given for 10 positions"),
        ({"noise": 2}, "noise"),
        ({"max_grade": 2}, "max_grade"),
        ({"gain": "log"}, "'gain' parameter .* Got 'log'"),
        ({"scores": [1.0, 2.0]}, r"shape \(2,\)"),
        ({"query_weights": [1.0, 2.0]}, "one weight for each of the 60"),
        ({"query_weights": {0: 1.0}}, "no weight for 59 of 60"),
        ({"query_weights": np.zeros(60)}, "not all 0"),
        ({"query_weights": -np.ones(60)}, "at least 0"),
    ],
)
def test_bad_arguments(documents, arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate_clicks(documents, **{"n_sessions": 10, **arguments})


def test_bad_documents(documents):
    with pytest.raises(ValueError, match="empty"):
        simulate_clicks(documents[:0])
    with pytest.raises(ValueError, match="several rows"):
        simulate_clicks(documents.assign(doc=0))
    unjudged = documents.assign(relevance=documents["relevance"].where(documents["doc"] != 4))
    with pytest.raises(ValueError, match=r"missing or no grade in 1 of .* first nan in row 4"):
        simulate_clicks(unjudged)
    with pytest.raises(ValueError, match="missing or infinite values"):
        simulate_clicks(documents, scores=np.full(len(documents), np.nan))
    with pytest.raises(ValueError, match="no feature column"):
        simulate_clicks(documents[["qid", "doc", "relevance"]])


def test_documents_without_features_need_scores(documents):
    roles = documents[["qid", "doc", "relevance"]]
    X, _, _ = simulate_clicks(roles, scores=documents["relevance"], n_sessions=10)
    assert list(X.columns) == ["session", "qid", "doc", "position", "relevance"]
    roles = roles.assign(production=2.0 * documents["doc"])
    X, _, _ = simulate_clicks(roles, scores=documents["relevance"], n_sessions=10)
    np.testing.assert_array_equal(X["production"], 2.0 * X["doc"])


# --------------------------------------------------------------------------------------
# Contexts
# --------------------------------------------------------------------------------------
def contextual(assign="impression", **arguments):
    return ContextualPositionBasedUser(
        **{"n_contexts": 5, "assign": assign, "random_state": 0, "scale": 1.0, **arguments}
    )


@pytest.mark.parametrize("assign", ["impression", "document"])
def test_contexts_come_along_on_the_same_sessions(documents, assign):
    user = contextual(assign)
    plain = simulate_clicks(documents, n_sessions=300, random_state=0)
    X, clicks, truth = simulate_clicks(documents, n_sessions=300, user=user, random_state=0)
    assert X.columns[4] == "context"
    assert X["context"].between(0, 4).all()
    pd.testing.assert_frame_equal(X.drop(columns="context"), plain.X)  # the same sessions
    lean, same, _ = simulate_clicks(
        documents, n_sessions=300, user=user, features=False, random_state=0
    )
    pd.testing.assert_frame_equal(lean, X[["session", "qid", "doc", "position", "context"]])
    np.testing.assert_array_equal(clicks, same)
    np.testing.assert_array_equal(truth.context_vectors, user.context_vectors)
    np.testing.assert_array_equal(truth.examination_table, user.examination_table(10))
    np.testing.assert_array_equal(truth.examination, plain.truth.examination)
    assert "context_vectors" not in plain.truth


def test_assignment_of_contexts(documents):
    by_row, by_doc = (
        simulate_clicks(
            documents, n_sessions=2_000, user=contextual(assign), features=False, random_state=0
        ).X
        for assign in ("impression", "document")
    )
    assert (by_doc.groupby("doc")["context"].nunique() == 1).all()
    assert by_doc.groupby("doc")["context"].first().nunique() == 5
    counts = by_row["context"].value_counts()
    assert np.abs(counts - len(by_row) / 5).max() < 5 * np.sqrt(len(by_row) / 5)
    assert by_row.groupby("session")["context"].nunique().max() > 1


@pytest.mark.parametrize("assign", ["impression", "document"])
def test_click_rates_match_the_truth_in_each_context(assign):
    documents = make_ltr(3, 5, 4, random_state=1)
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=60_000,
        n_positions=4,
        policy=UniformPolicy(),
        scores=documents["relevance"],
        user=contextual(assign),
        features=False,
        random_state=0,
    )
    cells = X.assign(click=clicks).groupby(["doc", "position", "context"])["click"]
    cells = cells.agg(["mean", "size"]).reset_index()
    examination = truth.examination_table[cells["context"], cells["position"] - 1]
    p = truth.relevance_probability[cells["doc"]] * examination
    error = (cells["mean"] - p) / np.sqrt(p * (1 - p) / cells["size"]).clip(lower=1e-12)
    error = error[(cells["size"] > 100) & (p < 1)]
    assert len(error) > 40
    assert np.abs(error).max() < 4.5
    assert 0.4 < np.mean(error**2) < 2.0


@pytest.mark.parametrize(
    "user",
    [
        PositionBasedUser(),
        contextual("impression"),
        contextual("document"),
        UserPopulation(),
        TrustBiasUser(),
        ClickMatrixUser(),
    ],
    ids=lambda user: type(user).__name__,
)
def test_chunks_leave_no_seam(documents, user, monkeypatch):
    whole = simulate_clicks(documents, n_sessions=1_000, user=user, random_state=0)
    monkeypatch.setattr(_generate, "PAGES_AT_ONCE", 64)
    parts = simulate_clicks(documents, n_sessions=1_000, user=user, random_state=0)
    pd.testing.assert_frame_equal(parts.X, whole.X)
    np.testing.assert_array_equal(parts.clicks, whole.clicks)


def test_bad_contexts(documents):
    with pytest.raises(ValueError, match="documents has a column 'context'"):
        simulate_clicks(documents.assign(context=1), user=contextual(), n_sessions=1)
    simulate_clicks(documents.assign(context=1), n_sessions=1, random_state=0)

    class Careless(ContextualPositionBasedUser):
        def draw_contexts(self, shown, rng):
            return np.zeros(len(shown), dtype=int)

    with pytest.raises(ValueError, match="draw_contexts returned the shape"):
        simulate_clicks(documents, user=Careless(n_contexts=5), n_sessions=3)
