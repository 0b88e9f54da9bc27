import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.simulation import (
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    UBMUser,
    UniformPolicy,
    noisy_oracle_scores,
    production_scores,
    simulate_clicks,
    simulate_shift,
)


@pytest.fixture(scope="module")
def documents():
    return make_ltr(60, 8, 5, random_state=0)


def agreement(log):
    return abs(log.X["relevance"].corr(log.X["position"]))


# --------------------------------------------------------------------------------------
# Logs in and out of distribution
# --------------------------------------------------------------------------------------
def test_only_the_policy_shifts(documents):
    train, same, shifted = simulate_shift(
        documents, n_sessions=5_000, scores=noisy_oracle_scores(documents, random_state=0),
        user=UBMUser(), n_positions=6, random_state=0,
    )  # fmt: skip
    assert [log.X["session"].nunique() for log in (train, same, shifted)] == [5_000, 1_000, 1_000]
    assert list(train.X) == list(same.X) == list(shifted.X)
    assert "relevance" in train.X
    assert agreement(train) > 0.3
    assert agreement(same) > 0.3
    assert agreement(shifted) < 0.05
    for log in (same, shifted):
        assert set(log.X["doc"]) <= set(documents["doc"])
        np.testing.assert_array_equal(
            log.truth.relevance_probability, train.truth.relevance_probability
        )
        np.testing.assert_array_equal(log.truth.examination_after, train.truth.examination_after)


def test_logs_are_independent_and_seeded(documents):
    def logs(seed):
        return simulate_shift(documents, n_sessions=300, n_test_sessions=300, random_state=seed)

    first, again, other = logs(0), logs(0), logs(1)
    for one, two in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one.X, two.X)
        np.testing.assert_array_equal(one.clicks, two.clicks)
    assert not first.train.X.equals(other.train.X)
    assert not first.train.X.equals(first.in_distribution.X)
    # One production ranker ranks in all of them.
    np.testing.assert_array_equal(first.train.truth.scores, first.in_distribution.truth.scores)


def test_each_log_is_one_of_simulate_clicks(documents):
    scores = noisy_oracle_scores(documents, random_state=0)
    seeds = np.random.RandomState(3).randint(2**31 - 1, size=4)
    logs = simulate_shift(documents, n_sessions=50, scores=scores, random_state=3)
    for log, policy, n, seed in zip(
        logs,
        [PlackettLucePolicy(0.1), PlackettLucePolicy(0.1), UniformPolicy()],
        [50, 10, 10],
        seeds[1:],
        strict=True,
    ):
        expected = simulate_clicks(
            documents, n_sessions=n, policy=policy, scores=scores, random_state=int(seed)
        )
        pd.testing.assert_frame_equal(log.X, expected.X)
        np.testing.assert_array_equal(log.clicks, expected.clicks)


def test_test_scores_bring_another_ranker(documents):
    grades = documents["relevance"].to_numpy(dtype=float)
    train, same, shifted = simulate_shift(
        documents, n_sessions=2_000, scores=grades, test_scores=-grades, random_state=0
    )

    def trend(log):
        return log.X["relevance"].corr(log.X["position"])

    # Scores that know nothing of the 480 grades correlate with them by 1 / sqrt(480) = .05 or so.
    least = 6 / np.sqrt(len(documents))
    assert trend(train) < -least
    assert trend(same) < -least
    assert trend(shifted) > least


@pytest.mark.parametrize("test_policy", [UniformPolicy(), MixturePolicy(), DeterministicPolicy()])
def test_several_rankers_in_production(documents, test_policy):
    grades = documents["relevance"].to_numpy(dtype=float)
    logs = simulate_shift(
        documents, n_sessions=50, policy=MixturePolicy(), scores=np.column_stack([grades, grades]),
        test_policy=test_policy, random_state=0,
    )  # fmt: skip
    assert len(logs.out_of_distribution.X) == 80


def test_what_simulate_clicks_refuses(documents):
    with pytest.raises(ValueError, match="examination"):
        simulate_shift(documents, n_sessions=5, n_positions=3, user=UBMUser([0.5]))
    with pytest.raises(ValueError, match="n_sessions"):
        simulate_shift(documents, n_sessions=0)
    with pytest.raises(TypeError, match="position_count"):
        simulate_shift(documents, n_sessions=5, position_count=3)


# --------------------------------------------------------------------------------------
# Production rankers
# --------------------------------------------------------------------------------------
def test_noisy_oracle(documents):
    grades = documents["relevance"].to_numpy()
    scores = noisy_oracle_scores(documents, random_state=0)
    noise = scores - grades
    # A variance is known up to its share sqrt(2 / n), a mean up to the root of variance / n.
    assert abs(noise.var() - 0.5) < 4 * 0.5 * np.sqrt(2 / len(noise))
    assert abs(noise.mean()) < 4 * np.sqrt(0.5 / len(noise))
    np.testing.assert_array_equal(noisy_oracle_scores(documents, variance=0.0), grades)
    np.testing.assert_array_equal(scores, noisy_oracle_scores(documents, random_state=0))
    with pytest.raises(ValueError, match="no column 'relevance'"):
        noisy_oracle_scores(documents.drop(columns="relevance"))
    with pytest.raises(ValueError, match="variance"):
        noisy_oracle_scores(documents, variance=-1)


def test_lambdamart_in_production(documents):
    shared = {"fraction": 0.5, "random_state": 0}
    scores = production_scores(documents, estimator="lambdamart", **shared)
    grades, qid = documents["relevance"], documents["qid"]
    random = np.random.default_rng(0).normal(size=len(qid))
    assert ndcg_score(grades, scores, qid=qid) > ndcg_score(grades, random, qid=qid) + 0.1
    same = production_scores(
        documents,
        estimator=LGBMRanker(n_estimators=100, num_leaves=31, n_jobs=1, verbosity=-1),
        **shared,
    )
    np.testing.assert_array_equal(same, scores)
    with pytest.raises(ValueError, match="estimator"):
        production_scores(documents, estimator="lambdarank")


def test_lambdamart_does_not_need_sorted_queries(documents):
    # Interleaved: the documents of a query are far apart.
    order = np.argsort(np.tile(np.arange(8), 60), kind="stable")
    shared = {"estimator": "lambdamart", "fraction": 1.0, "random_state": 0}
    sorted_ = production_scores(documents, **shared)
    mixed = production_scores(documents.iloc[order], **shared)
    np.testing.assert_allclose(mixed, sorted_[order])


def test_few_sessions_are_tested_on_one(documents):
    logs = simulate_shift(documents, n_sessions=3, random_state=0)
    assert [log.X["session"].nunique() for log in logs] == [3, 1, 1]


def test_one_ranker_in_the_test_ranks_by_the_mean_of_several(documents):
    scores = np.random.default_rng(0).normal(size=(len(documents), 3))
    logs = simulate_shift(
        documents,
        n_sessions=50,
        policy=MixturePolicy(),
        scores=scores,
        test_policy=DeterministicPolicy(),
        random_state=0,
    )
    np.testing.assert_allclose(logs.out_of_distribution.truth.scores, scores.mean(axis=1))
