import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skultr.metrics import IPSScorer, dcg_score

from .._worlds import Linear

EXAMINATION = np.array([1.0, 0.6, 0.3])
ROLES = ["qid", "session", "position", "impressions"]


def world(n_queries=40, seed=0, n_sessions=10, n_candidates=1):
    """Aggregated lists of three shown documents, ``n_candidates`` more, and their relevance."""
    rng = np.random.default_rng(seed)
    size = 3 + n_candidates
    X = pd.DataFrame(
        {
            "qid": np.repeat([f"q{i}" for i in range(n_queries)], size),
            "session": np.repeat(np.arange(n_queries) % 2, size),
            "position": np.tile([1.0, 2.0, 3.0] + [np.nan] * n_candidates, n_queries),
            "impressions": np.repeat(rng.integers(1, n_sessions + 1, n_queries), size),
            "bm25": rng.normal(size=n_queries * size).round(1),
        }
    )
    # Documents at the top are more relevant, and good documents get high scores.
    relevance = rng.uniform(0, 1, len(X)) * np.tile(
        [0.9, 0.5, 0.5] + [0.0] * n_candidates, n_queries
    )
    X["bm25"] += relevance.round(1)
    return X, relevance


def examined(X):
    position = X["position"].fillna(1).astype(int)
    return np.where(X["position"].isna(), 0.0, EXAMINATION[position - 1])


def draw_rates(X, relevance, rng):
    return rng.binomial(X["impressions"], relevance * examined(X)) / X["impressions"]


def discounts(X, k=10, metric="dcg"):
    """What each row gives, by enumerating the orders of ties; one list at a time."""
    gives = np.empty(len(X))
    for _, rows in X.reset_index().groupby(["qid", "session"]):
        rank = np.arange(1, len(rows) + 1)
        value = {
            "dcg": (rank <= k) / np.log2(1 + rank),
            "precision": (rank <= k) / k,
            "arp": -1.0 * rank,
        }[metric]
        falling = np.sort(-rows["bm25"].to_numpy())
        for row, score in zip(rows.index, rows["bm25"], strict=True):
            gives[row] = value[falling == -score].mean()
    return gives


def true_value(X, relevance, *, normalize=False, **options):
    shown = X["position"].notna()
    gain = (X["impressions"] * relevance)[shown]
    total = gain.sum() if normalize else X["impressions"][X["position"] == 1].sum()
    return (gain * discounts(X, **options)[shown]).sum() / total


# Values -----------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", ["dcg", "precision", "arp"])
@pytest.mark.parametrize("normalize", [False, True])
def test_exact_click_rates_give_the_metric(metric, normalize):
    X, relevance = world()
    scorer = IPSScorer(metric, k=2, propensity=EXAMINATION, normalize=normalize)
    value = scorer(Linear(), X, relevance * examined(X))
    expected = true_value(X, relevance, metric=metric, k=2, normalize=normalize)
    assert_allclose(value, expected)


def test_ties_stay_in_their_list():
    X = pd.DataFrame({"qid": list("aaabbbbb"), "position": [1, 2, 3, 1, 2, 3, 4, 5], "bm25": 0.0})
    found = IPSScorer(propensity=np.ones(5))(Linear(), X, np.ones(8))
    gives = 1 / np.log2(1 + np.arange(1, 6))
    assert_allclose(found, (gives[:3].sum() + gives.sum()) / 2)
    found = IPSScorer(propensity=np.ones(5))(Linear(), X, [1, 0, 0, 0, 0, 0, 0, 0])
    assert_allclose(found, gives[:3].mean() / 2)


def test_precision_of_all_ranks_is_relevance_per_row():
    X, relevance = world()
    value = IPSScorer("precision", k=None, propensity=EXAMINATION)(
        Linear(), X, relevance * examined(X)
    )
    sessions = X["impressions"][X["position"] == 1].sum()
    assert_allclose(
        value, (relevance * X["impressions"] * X["position"].notna()).sum() / sessions / 4
    )


@pytest.mark.parametrize("k", [2, None])
def test_at_propensity_1_it_is_the_dcg_of_the_clicks(k):
    rng = np.random.default_rng(0)
    X = world(n_candidates=0)[0].drop(columns=["session", "impressions"])
    clicks = rng.integers(0, 2, len(X))
    expected = dcg_score(clicks, X["bm25"], qid=X["qid"], k=k, gain="linear")
    assert_allclose(IPSScorer(k=k, propensity=[1, 1, 1])(Linear(), X, clicks), expected)


@pytest.mark.parametrize("metric", ["dcg", "arp"])
@pytest.mark.parametrize("normalize", [False, True])
def test_unbiased_and_raw_clicks_are_not(metric, normalize):
    X, relevance = world(n_queries=200, n_sessions=40)
    rng = np.random.default_rng(0)
    right = IPSScorer(metric, propensity=EXAMINATION, normalize=normalize)
    wrong = IPSScorer(metric, propensity=[1, 1, 1], normalize=normalize)
    drawn = [draw_rates(X, relevance, rng) for _ in range(60)]
    expected = true_value(X, relevance, metric=metric, normalize=normalize)
    for scorer, inside in ((right, True), (wrong, False)):
        values = [scorer(Linear(), X, rate) for rate in drawn]
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert bool(abs(np.mean(values) - expected) < 3 * error) is inside


@pytest.mark.parametrize("normalize", [False, True])
def test_intervals_cover_what_queries_in_general_give(normalize):
    scorer = IPSScorer(propensity=EXAMINATION, normalize=normalize)
    expected = true_value(*world(n_queries=8_000, seed=1), normalize=normalize)
    covered = []
    for seed in range(200):
        X, relevance = world(n_queries=60, seed=1_000 + seed)
        rate = draw_rates(X, relevance, np.random.default_rng(seed))
        found = scorer.estimate(Linear(), X, rate)
        covered.append(abs(found.value - expected) < 1.96 * found.standard_error)
    assert 0.90 <= np.mean(covered) <= 0.99


def test_diagnostics():
    X = pd.DataFrame({"qid": [1, 1, 2, 2], "position": [1, 2, 1, 2], "bm25": [2, 1, 1, 2.0]})
    found = IPSScorer(propensity=[1, 0.25]).estimate(Linear(), X, [1, 0, 1, 1])
    assert found.n_clicks == 3
    assert_allclose(found.effective_sample_size, (1 + 1 + 4) ** 2 / (1 + 1 + 16))
    assert_allclose(found.largest_weight, 4 / 2)
    per_query = np.array([1.0, 4 + 1 / np.log2(3)])
    assert_allclose(found.value, per_query.mean())
    assert_allclose(found.standard_error, per_query.std(ddof=1) / np.sqrt(2))
    one = IPSScorer(propensity=[1, 0.25]).estimate(
        Linear(), X.assign(qid=1, session=[0, 0, 1, 1]), [1, 0, 1, 1]
    )
    assert np.isnan(one.standard_error)


def test_clip():
    X, relevance = world()
    rate = relevance * examined(X)
    clipped = IPSScorer(propensity=EXAMINATION, clip=0.5)(Linear(), X, rate)
    assert_allclose(clipped, IPSScorer(propensity=[1, 0.6, 0.5])(Linear(), X, rate))


def test_one_factor_of_the_propensities_goes_when_normalised():
    X, relevance = world()
    rate = relevance * examined(X)
    for normalize, factor in ((True, 1), (False, 2)):
        whole = IPSScorer(propensity=EXAMINATION, normalize=normalize)(Linear(), X, rate)
        half = IPSScorer(propensity=EXAMINATION / 2, normalize=normalize)(Linear(), X, rate)
        assert_allclose(half, factor * whole)


def test_impressions_are_repeated_sessions():
    rng = np.random.default_rng(0)
    X, relevance = world(n_queries=10)
    X["impressions"] = 3
    clicks = (rng.random((3, len(X))) < relevance * examined(X)).astype(float)
    raw = pd.concat([X.assign(session=i, impressions=1) for i in range(3)], ignore_index=True)
    scorer = IPSScorer(propensity=EXAMINATION)
    aggregated = scorer.estimate(Linear(), X, clicks.mean(axis=0))
    single = scorer.estimate(Linear(), raw, clicks.ravel())
    assert_allclose(aggregated, single)
    once = X.drop(columns="impressions")
    weighted = scorer.estimate(Linear(), once, clicks.mean(axis=0), np.full(len(X), 3))
    assert_allclose(weighted, scorer.estimate(Linear(), once, clicks.mean(axis=0)))


# Where propensities come from ----------------------------------------------------------------
# Bad input ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ndcg"}, "'metric' .* Got 'ndcg'"),
        ({"k": 0}, "'k' .* must be an int"),
        ({"k": [1, 5]}, "'k' .* must be an int"),
        ({"clip": 0}, r"'clip' .* range \(0.0, 1.0\].* Got 0 "),
        ({"clip": 20}, r"'clip' .* range \(0.0, 1.0\].* Got 20 "),
        ({"clip": np.nan}, r"'clip' .* range \(0.0, 1.0\]"),
    ],
)
def test_parameters_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        IPSScorer(**options)


def test_propensities_that_are_none():
    X, relevance = world()
    with pytest.raises(
        ValueError, match="propensity is 0 in 120 rows with a click, first in row 0"
    ):
        IPSScorer()(Linear(), X.assign(propensity=0.0), relevance * examined(X))
    # Where nothing was shown, nothing is needed.
    propensity = np.where(X["position"].isna(), np.nan, 0.5)
    assert IPSScorer()(Linear(), X.assign(propensity=propensity), relevance * examined(X)) > 0


def test_the_largest_weight_is_that_of_a_click():
    """Nobody clicked at position 3, whose weight would be 100."""
    X = pd.DataFrame({"qid": 1, "session": 1, "doc": range(3), "position": [1, 2, 3]})
    scorer = IPSScorer(propensity=[1.0, 0.5, 0.01])
    found = scorer.estimate([3.0, 2.0, 1.0], X, [1, 1, 0])
    assert found.largest_weight == pytest.approx(2 / 1.5)
    assert found.effective_sample_size == pytest.approx(9 / 5)
