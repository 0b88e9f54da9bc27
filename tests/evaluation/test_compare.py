from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr.datasets import make_ltr
from skultr.evaluation import compare_rankers
from skultr.metrics import RankingScorer, ndcg_score
from skultr.preprocessing import OnFeatures

SETTINGS = {"random_state": 0, "n_resamples": 499}


@pytest.fixture
def X():
    return make_ltr(n_queries=40, n_documents=8, n_features=3, random_state=0)


@pytest.fixture
def scores(X):
    rng = np.random.default_rng(0)
    return {
        "old": X["relevance"] + rng.normal(0, 3, len(X)),
        "new": X["relevance"] + rng.normal(0, 1, len(X)),
        "worst": -X["relevance"].astype(float),
    }


def compare_values(a, b, **settings):
    """Compare two rankers by their values of each query."""
    qid = np.arange(len(a))
    rankers = {"a": a, "b": b}
    return compare_rankers(
        rankers, None, np.ones(len(a)), qid=qid, **SETTINGS | {"metric": value_as_score} | settings
    )


def value_as_score(relevance, scores):
    return scores[0]


# Values -------------------------------------------------------------------------------
def test_table(X, scores):
    found = compare_rankers(scores, X, k=5, **SETTINGS)
    a, b = (
        ndcg_score(X["relevance"], scores[name], qid=X["qid"], k=5, per_query=True)["ndcg@5"]
        for name in ("new", "old")
    )
    row = found.table.iloc[0]
    assert (row["ranker"], row["baseline"], row["verdict"]) == ("new", "old", "better")
    assert_allclose(row["value"], a.mean())
    assert_allclose(row["difference"], (a - b).mean())
    assert row["lower"] < row["difference"] < row["upper"]
    assert row["wins"] == (a > b).sum()
    assert row["losses"] == (a < b).sum()
    assert row["wins"] + row["ties"] + row["losses"] == row["n_queries"] == a.notna().sum()
    assert found.n_undefined == a.isna().sum() > 0
    assert found.metric == "ndcg@5"
    assert_allclose(found.per_query["new"], a.dropna())
    assert_allclose(found.values["value"], found.per_query.mean())
    assert (found.values["lower"] < found.values["value"]).all()


def test_repr_is_short(X, scores):
    found = compare_rankers(scores, X, **SETTINGS)
    n_queries = len(found.per_query)
    expected = f"RankerComparison(metric='ndcg@10', n_queries={n_queries}, verdicts=3 of 3)"
    assert repr(found) == expected


def test_all_pairs_or_one_baseline(X, scores):
    pairs = compare_rankers(scores, X, **SETTINGS).table[["ranker", "baseline"]]
    assert pairs.to_numpy().tolist() == [["new", "old"], ["worst", "old"], ["worst", "new"]]
    pairs = compare_rankers(scores, X, baseline="new", **SETTINGS).table[["ranker", "baseline"]]
    assert pairs.to_numpy().tolist() == [["old", "new"], ["worst", "new"]]


def test_the_same_seed_gives_the_same_table(X, scores):
    first, second = (compare_rankers(scores, X, **SETTINGS).table for _ in range(2))
    assert_frame_equal(first, second)


def test_kinds_of_input_and_order_of_rows(X, scores):
    expected = compare_rankers(scores, X, **SETTINGS).table
    arrays = {name: score.tolist() for name, score in scores.items()}
    for frame in (pl.from_pandas(X), pa.Table.from_pandas(X)):
        assert_frame_equal(compare_rankers(arrays, frame, **SETTINGS).table, expected)
    polars = {name: pl.Series(score) for name, score in arrays.items()}
    y, qid = pl.Series(X["relevance"].to_numpy()), pl.Series(X["qid"].to_numpy())
    for features in (None, X[["feature_000"]].to_numpy()):
        found = compare_rankers(polars, features, y, qid=qid, **SETTINGS)
        assert_frame_equal(found.table, expected)
    named = compare_rankers({name: name for name in scores}, X.assign(**scores), **SETTINGS)
    assert_frame_equal(named.table, expected)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = {name: score.iloc[order] for name, score in scores.items()}
    assert_frame_equal(compare_rankers(shuffled, X.iloc[order], **SETTINGS).table, expected)


def test_relevance_by_name_or_values(X, scores):
    expected = compare_rankers(scores, X, **SETTINGS).table
    labelled = X.rename(columns={"relevance": "label"})
    assert_frame_equal(compare_rankers(scores, labelled, "label", **SETTINGS).table, expected)
    wrong = X.assign(relevance=0)
    found = compare_rankers(scores, wrong, X["relevance"], **SETTINGS)
    assert_frame_equal(found.table, expected)


def test_fitted_rankers_do_not_see_the_annotation(X):
    features = X.drop(columns=["qid", "doc", "relevance"])
    linear = LinearRegression().fit(features, X["relevance"])
    model = make_pipeline(OnFeatures(StandardScaler()), Features(LinearRegression()))
    model.fit(X, X["relevance"])
    labelled = X.rename(columns={"relevance": "label"})
    rankers = {"scores": linear.predict(features), "model": model}
    found = compare_rankers(rankers, labelled, "label", **SETTINGS)
    assert found.table["ties"].item() == found.table["n_queries"].item()
    assert_allclose(found.values["value"], RankingScorer()(model, X))


class Features(RegressorMixin, BaseEstimator):
    """A regression of the columns that are no role."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.fitted_ = self.model.fit(X.filter(like="feature"), y)
        return self

    def predict(self, X):
        assert "label" not in X.columns
        return self.fitted_.predict(X.filter(like="feature"))


def test_ids_of_any_kind(X, scores):
    expected = compare_rankers(scores, X, **SETTINGS).table
    names = {q: f"q\"{i:03},é'\n" for i, q in enumerate(sorted(X["qid"].unique()))}
    found = compare_rankers(scores, X.assign(qid=X["qid"].map(names)), **SETTINGS)
    assert_frame_equal(found.table, expected)
    assert found.per_query.index[0] in names.values()
    pairs = pd.Series([("q", q) for q in X["qid"]], index=X.index)
    assert_frame_equal(compare_rankers(scores, X.assign(qid=pairs), **SETTINGS).table, expected)


def test_a_document_counts_once(X, scores):
    expected = compare_rankers(scores, X, **SETTINGS).table
    rows = np.r_[np.arange(len(X)), np.arange(25)]
    log = X.iloc[rows].reset_index(drop=True)
    repeated = {name: score.iloc[rows] for name, score in scores.items()}
    assert_frame_equal(compare_rankers(repeated, log, **SETTINGS).table, expected)
    repeated["new"] = repeated["new"].to_numpy() + (np.arange(len(log)) == len(X))
    with pytest.raises(ValueError, match=r"Rows 0 and 320 show one document .* 'new' gives them"):
        compare_rankers(repeated, log, **SETTINGS)


def test_scores_without_ids_of_documents_are_of_rows():
    # Equal features and scores, but two documents.
    X = pd.DataFrame({"qid": [1, 1, 1], "f": [5, 5, 0], "relevance": [1, 0, 0]})
    found = compare_rankers({"a": [1, 1, 0], "b": [0, 1, 2]}, X, k=1, **SETTINGS)
    assert_allclose(found.per_query, [[0.5, 0.0]])


def test_rows_without_annotation_do_not_count(X, scores):
    half = X.assign(relevance=X["relevance"].where(X.index % 2 == 0))
    even = {name: score[::2] for name, score in scores.items()}
    expected = compare_rankers(even, X[::2], **SETTINGS).table
    scores["old"] = scores["old"].where(X.index % 2 == 0)  # NaN where nobody asks
    assert_frame_equal(compare_rankers(scores, half, **SETTINGS).table, expected)


def test_options_and_functions_as_metrics(X, scores):
    linear = compare_rankers(scores, X, gain="linear", k=None, **SETTINGS)
    expected = ndcg_score(X["relevance"], scores["new"], qid=X["qid"], gain="linear")
    assert_allclose(linear.values.at["new", "value"], expected)
    assert linear.metric == "ndcg"
    counted = compare_rankers(scores, X, no_relevant=0, **SETTINGS)
    assert counted.n_undefined == 0

    def best_first(relevance, scores):
        best = relevance[scores.argmax()] == relevance.max()
        return float(best) if relevance.any() else np.nan

    found = compare_rankers(scores, X, metric=best_first, **SETTINGS)
    assert found.metric == "best_first"
    assert found.per_query.isin([0, 1]).all(axis=None)
    assert found.n_undefined == linear.n_undefined


# The test -----------------------------------------------------------------------------
@pytest.mark.parametrize("values", [[0.3, -0.1, 0.2, 0.4], [1, 1, -1, 0, 0, 1, 1], [0.5] * 8])
def test_p_value_counts_all_flips(values):
    means = [np.dot(signs, values) for signs in product([-1, 1], repeat=len(values))]
    expected = np.mean(np.abs(means) >= abs(sum(values)) - 1e-9)
    found = compare_values(np.array(values) + 1, np.ones(len(values)), baseline="b")
    assert_allclose(found.table["p_value"], expected)


def test_many_ties_leave_the_test_exact():
    values = np.zeros(300)
    values[:7] = 0.1
    found = compare_values(values, np.zeros(300), baseline="b").table
    assert_allclose(found["p_value"], 2 / 2**7)
    assert found["ties"].item() == 293


def test_level_of_equal_rankers():
    rng = np.random.default_rng(0)
    relevance = np.tile([0, 0, 1, 2], 15)
    qid = np.repeat(np.arange(15), 4)
    p_value, found = [], []
    for _ in range(80):
        rankers = {name: rng.normal(size=60) for name in "abc"}
        table = compare_rankers(rankers, None, relevance, qid=qid, **SETTINGS).table
        p_value.append(table["p_value"])
        found.append((table["verdict"] != "cannot tell").any())
    # 5 % of single tests, and at most 5 % of families; 3 standard errors of 80 are 0.07.
    assert_allclose(np.mean(np.array(p_value) <= 0.05), 0.05, atol=0.045)
    assert np.mean(found) < 0.12


def test_detectable_difference_is_found_in_80_of_100_samples():
    rng = np.random.default_rng(0)
    size, n_found = [], 0
    for _ in range(150):
        row = compare_values(rng.normal(0.53, 1, 30), np.zeros(30), baseline="b").table.iloc[0]
        size.append(row["detectable"])
        n_found += row["verdict"] == "better"
    assert_allclose(np.mean(size), 0.53, atol=0.02)
    assert_allclose(n_found / 150, 0.8, atol=0.1)


def test_interval_covers_the_mean_of_skewed_differences():
    rng = np.random.default_rng(0)
    covered, by_student, width = np.zeros((3, 150))
    for i in range(150):  # most queries tie, some gain much
        gain = np.where(rng.random(50) < 0.7, 0, rng.exponential(0.15, 50) - 0.03)
        row = compare_values(gain, np.zeros(50), baseline="b").table.iloc[0]
        covered[i] = row["lower"] <= 0.3 * 0.12 <= row["upper"]
        half = stats.t.ppf(0.975, 49) * gain.std(ddof=1) / np.sqrt(50)
        by_student[i] = abs(gain.mean() - 0.3 * 0.12) <= half
        width[i] = (row["upper"] - row["lower"]) / (2 * half)
    # Of 600 samples .97, and .88 by Student's; the former are 1.4 times as wide.
    assert covered.mean() > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150)
    assert covered.mean() > by_student.mean()
    assert width.mean() < 2


def test_level_of_the_verdict_for_rankers_that_are_equal_on_average_only():
    rng = np.random.default_rng(0)
    p_value, found = np.zeros(150), np.zeros(150)
    for i in range(150):
        gain = np.where(rng.random(20) < 0.7, 0, rng.exponential(0.15, 20) - 0.03) - 0.3 * 0.12
        row = compare_values(gain, np.zeros(20), baseline="b").table.iloc[0]
        p_value[i], found[i] = row["p_value"], row["verdict"] != "cannot tell"
    # 0.07 and 0.19 of many: a verdict needs the p-value and the interval.
    assert found.mean() < 0.07 + 3 * np.sqrt(0.07 * 0.93 / 150)
    assert found.sum() < np.sum(p_value <= 0.05)


def test_holm():
    rng = np.random.default_rng(0)
    qid, relevance = np.arange(40), np.ones(40)
    rankers = {"base": np.zeros(40)}
    rankers |= {f"r{i}": rng.normal(0.1 * i, 1, 40) for i in range(5)}
    settings = {"metric": value_as_score, "baseline": "base", "random_state": 0}
    table = compare_rankers(rankers, None, relevance, qid=qid, **settings).table
    ordered = table.sort_values("p_value")
    expected = np.maximum.accumulate(ordered["p_value"] * [5, 4, 3, 2, 1]).clip(upper=1)
    assert_allclose(ordered["p_adjusted"], expected)
    assert ordered["p_adjusted"].nunique() > 2


def test_verdict_needs_an_interval_without_zero():
    # Nearly always a little worse, rarely much better: unlike, but perhaps equal on average.
    values = np.r_[np.full(11, -0.1), 0.5]
    row = compare_values(values, np.zeros(12), baseline="b").table.iloc[0]
    assert row["lower"] < 0 < row["upper"]
    assert row["verdict"] == "cannot tell"


# Clusters ------------------------------------------------------------------------------
def test_level_in_clusters_of_five_equal_queries():
    """Paraphrases of one need: 37 % without clusters."""
    rng = np.random.default_rng(0)
    wrong = {"cluster": 0, None: 0}
    cluster = np.repeat(np.arange(12), 5)
    for _ in range(150):
        values = rng.normal(0, 0.1, 12)[cluster]
        for name in wrong:
            given = cluster if name else None
            table = compare_values(values, np.zeros(60), baseline="b", cluster=given).table
            wrong[name] += table["verdict"].item() != "cannot tell"
    assert wrong["cluster"] / 150 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)
    assert wrong[None] / 150 > 0.2


@pytest.mark.parametrize("n_clusters", [12, 40])
def test_clusters_of_unequal_size(n_clusters):
    """One to twenty queries each: the mean is that of queries, and its error a ratio's."""
    rng = np.random.default_rng(0)
    covered, found = np.zeros(150), np.zeros(150)
    for i in range(150):
        size = rng.choice([1, 2, 5, 20], n_clusters, p=[0.4, 0.3, 0.2, 0.1])
        cluster = np.repeat(np.arange(n_clusters), size)
        values = rng.normal(0, 0.1, n_clusters)[cluster]
        table = compare_values(values, np.zeros(len(values)), baseline="b", cluster=cluster).table
        row = table.iloc[0]
        assert_allclose(row["difference"], values.mean())
        covered[i] = row["lower"] <= 0 <= row["upper"]
        found[i] = row["verdict"] != "cannot tell"
    # .93 and .92 of 600.
    assert covered.mean() > 0.92 - 3 * np.sqrt(0.92 * 0.08 / 150)
    assert found.mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


def test_the_same_share_in_all_clusters_is_sure():
    """What sizes of clusters add to the spread of their sums is no error of the mean."""
    cluster = np.repeat(np.arange(9), np.arange(1, 10))
    row = compare_values(np.full(45, 0.6), np.full(45, 0.5), baseline="b", cluster=cluster)
    assert row.table["verdict"].item() == "better"
    assert np.isnan(row.table["lower"].item())


def test_equal_queries_count_as_one(X, scores):
    """Five copies of each query say as much as the query."""
    noise = np.random.default_rng(3).normal(0, 0.3, len(X))
    scores = {"old": scores["old"], "alike": scores["old"] + noise}
    expected = compare_rankers(scores, X, **SETTINGS)
    copies = pd.concat([X.assign(need=X["qid"], qid=[(q, i) for q in X["qid"]]) for i in range(5)])
    repeated = {name: np.tile(score, 5) for name, score in scores.items()}
    found = compare_rankers(repeated, copies, cluster="need", **SETTINGS)
    columns = ["difference", "lower", "upper", "p_value", "detectable"]
    assert_allclose(found.table[columns], expected.table[columns], rtol=1e-9)
    assert_allclose(found.values, expected.values, rtol=1e-9)
    n_needs = len(expected.per_query)
    assert (found.n_clusters, expected.n_clusters) == (n_needs, None)
    assert (found.table["n_queries"] == 5 * n_needs).all()
    assert f"Queries: {5 * n_needs} in {n_needs} clusters" in found.summary()
    unsure, in_clusters = expected.summary().splitlines()[1], found.summary().splitlines()[1]
    assert "queries can detect differences above" in unsure
    assert (
        unsure.split("Cannot tell")[1].replace("queries", "clusters")
        == (in_clusters.split("Cannot tell")[1])
    )


def test_clusters_by_column_by_row_and_in_any_order(X, scores):
    X["need"] = X["qid"] % 9
    X["text"] = X["need"].map("need {}".format)
    expected = compare_rankers(scores, X, cluster=X["need"].to_numpy(), **SETTINGS).table
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = {name: score.iloc[order] for name, score in scores.items()}
    for rankers, frame in [(scores, X), (shuffled, X.iloc[order])]:
        for cluster in ("need", "text", frame["need"]):
            found = compare_rankers(rankers, frame, cluster=cluster, **SETTINGS).table
            assert_frame_equal(found, expected)
    arrays = {name: score.to_numpy() for name, score in scores.items()}
    found = compare_rankers(
        arrays, None, X["relevance"].to_numpy(), qid=X["qid"], cluster=X["need"], **SETTINGS
    )
    assert_frame_equal(found.table, expected)
    # By query, in other words.
    by_query = compare_rankers(scores, X, cluster="qid", **SETTINGS).table
    assert_frame_equal(by_query, compare_rankers(scores, X, **SETTINGS).table)


def test_clusters_of_queries_that_do_not_count(X, scores):
    """Queries without annotation, and those whose metric is undefined, leave no trace."""
    X["need"] = X["qid"] % 7
    X.loc[X["qid"] < 10, "relevance"] = np.nan
    found = compare_rankers(scores, X, cluster="need", **SETTINGS)
    kept = X["qid"].isin(found.per_query.index)
    rest = {name: score[kept] for name, score in scores.items()}
    expected = compare_rankers(rest, X[kept], cluster="need", **SETTINGS)
    assert found.n_undefined > 0 == expected.n_undefined
    assert_frame_equal(found.table, expected.table)
    # One ranker has no value.
    a, b = np.random.default_rng(0).random((2, 14))
    a[3], group, kept = -1.0, np.arange(14) // 2, np.arange(14) != 3
    found = compare_values(a, b, cluster=group, metric=lambda _, s: s[0] if s[0] > 0 else np.nan)
    expected = compare_values(a[kept], b[kept], cluster=group[kept])
    assert (found.n_undefined, found.n_clusters) == (1, 7)
    assert_frame_equal(found.table, expected.table)


def test_rankers_do_not_see_the_column_of_clusters(X):
    labelled, seen = X.assign(need=X["qid"] % 9), []

    class Looks:
        def predict(self, X):
            seen.extend(X.columns)
            return np.arange(len(X))

    rankers = {"looks": Looks(), "other": labelled["feature_000"]}
    compare_rankers(rankers, labelled, cluster="need", **SETTINGS)
    assert "need" not in seen
    assert "feature_000" in seen
    compare_rankers(rankers, X.assign(user=X["qid"] % 9), cluster="user", **SETTINGS)
    assert "user" in seen  # a role, which rankers of users read


@pytest.mark.parametrize("bad", ["b", None])
def test_a_query_is_of_one_cluster(bad):
    X = pd.DataFrame({"qid": [1, 1, 2], "need": ["a", bad, "c"], "relevance": [0, 1, 1]})
    rankers = {"a": [1.0, 2.0, 0.0], "b": [2.0, 1.0, 0.0]}
    message = (
        "cluster is missing or has several values in one query in 1 of 3 rows, first in row 1"
    )
    with pytest.raises(ValueError, match=f"{message}; expected one value .* Give gaps ids"):
        compare_rankers(rankers, X, cluster="need")
    with pytest.raises(ValueError, match="in 1 of 3 rows, first in row 2"):
        compare_rankers(rankers, X, cluster=["a", "a", np.nan if bad else None])
    with pytest.raises(ValueError, match="no column 'user'"):
        compare_rankers(rankers, X, cluster="user")
    with pytest.raises(ValueError, match=r"'cluster' has shape \(2,\)"):
        compare_rankers(rankers, X, cluster=[1, 2])


# What cannot be told -------------------------------------------------------------------
def test_one_query(X, scores):
    one = X["qid"] == X["qid"].iloc[0]
    found = compare_rankers({n: s[one] for n, s in scores.items()}, X[one], **SETTINGS)
    assert (found.table["verdict"] == "cannot tell").all()
    assert (found.table["p_value"] == 1).all()
    assert found.table[["lower", "upper", "detectable"]].isna().all(axis=None)
    assert found.summary().count("Cannot tell: too few queries differ.") == 3


@pytest.mark.parametrize(("n", "verdict"), [(5, "cannot tell"), (6, "better")])
def test_fewer_than_six_queries_never_tell(n, verdict):
    found = compare_values(np.arange(n) / 10 + 1, np.zeros(n), baseline="b").table.iloc[0]
    assert found["verdict"] == verdict
    assert np.isnan(found["detectable"]) == (n == 5)


def test_rankers_that_order_alike(X, scores):
    same = {"old": scores["old"], "scaled": 3 * scores["old"] + 1}
    found = compare_rankers(same, X, **SETTINGS)
    row = found.table.iloc[0]
    assert row["ties"] == row["n_queries"]
    assert (row["difference"], row["p_value"]) == (0, 1)
    assert np.isnan(row["lower"])
    assert "Cannot tell: too few queries differ." in found.summary()


def test_rounding_is_a_tie():
    row = compare_values(np.full(9, 0.1 + 0.2), np.full(9, 0.3)).table.iloc[0]
    assert (row["ties"], row["difference"]) == (9, 0)


def test_the_same_difference_in_every_query_is_found():
    row = compare_values(np.linspace(1, 2, 9), np.linspace(1, 2, 9) - 0.1, baseline="b").table
    assert row["verdict"].item() == "better"
    assert np.isnan(row["lower"].item())


def test_summary_says_what_so_many_queries_would_show(X, scores):
    rng = np.random.default_rng(3)
    scores["alike"] = scores["old"] + rng.normal(0, 0.3, len(X))
    found = compare_rankers(scores, X, baseline="old", **SETTINGS)
    head, new, worst, alike = found.summary().splitlines()
    counts = (
        f"Queries: {len(found.per_query)} (and {found.n_undefined} where it is undefined, left"
    )
    assert head == f"ndcg@10 by query. {counts} out)"
    assert new.endswith("new is better.")
    assert worst.endswith("worst is worse.")
    row = found.table.set_index("ranker").loc["alike"]
    assert f"can detect differences above {row['detectable']:.2g}. Detecting" in alike


# Errors -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["qid", "doc"], r"clicks are none: .*policy_difference.*ClickLikelihoodScorer\.$"),
        (["qid"], r"clicks are none: .* Name different documents in a column 'doc'\.$"),
    ],
)
def test_clicks_that_differ_within_a_document_are_no_annotation(columns, message):
    log = pd.DataFrame({"qid": [1, 1], "doc": [7, 7], "bm25": [0.5, 0.5]})[[*columns, "bm25"]]
    rankers = {"old": LinearRegression().fit([[0.0]], [0.0]), "new": "bm25"}
    with pytest.raises(ValueError, match=message):
        compare_rankers(rankers, log, [0, 1], **SETTINGS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rankers": {"old": [1.0, 2.0]}}, "expected at least two"),
        ({"rankers": {0: [1.0, 2.0], 1: [2.0, 1.0]}}, "expected at least two, of text"),
        ({"rankers": [[1.0, 2.0], [2.0, 1.0]]}, "'rankers' parameter .* must be an instance"),
        ({"rankers": {"a": [1.0, 2.0], "b": [1.0]}}, r"scores of 'b' have the shape \(1,\)"),
        ({"rankers": {"a": [1.0, 2.0], "b": None}}, "scores of 'b' .* Got a NoneType"),
        ({"rankers": {"a": [1.0, 2.0], "b": ["x", "y"]}}, "scores of 'b' must hold numbers"),
        ({"rankers": {"a": [1.0, 2.0], "b": [np.nan, 1]}}, "scores of 'b' are NaN for 1 of 2"),
        ({"rankers": {"a": [1, 2], "b": LinearRegression()}, "X": None}, "X is None"),
        ({"X": None, "y": None}, "X is None"),
        ({"X": pd.DataFrame({"relevance": [0, 1]})}, "'qid'"),
        ({"X": pd.DataFrame({"qid": [1, 1]})}, "no annotation; .* clicks with .*policy_differ"),
        (
            {"X": pd.DataFrame({"qid": [1, 1], "click": [0, 1]}), "y": "click"},
            "no annotation; .* Clicks are no annotation: .*baseline=",
        ),
        ({"X": pd.DataFrame({"qid": [], "relevance": []})}, "X has no rows"),
        ({"y": "label"}, "X has no column 'label'"),
        ({"y": [0, -1]}, "relevance must be finite and at least 0"),
        ({"y": [0, np.inf]}, "relevance must be finite and at least 0"),
        ({"y": [np.nan, np.nan]}, "None of the 2 rows is annotated"),
        ({"y": ["no", "yes"]}, "'relevance' must hold numbers"),
        ({"y": [0, 0]}, r"ndcg@10 is undefined in all 1 queries"),
        ({"baseline": "c"}, "baseline='c' is none of the rankers; expected one of"),
        ({"metric": "mrr"}, "'metric' parameter"),
        ({"threshold": 2}, "'ndcg' has no option 'threshold'"),
        ({"metric": value_as_score, "gain": "linear"}, "takes no options"),
        ({"metric": lambda relevance, scores: np.inf}, "is infinite for some query"),
        ({"n_resamples": 18}, "expected at least 20"),
        ({"confidence_level": 1.0}, "'confidence_level' parameter"),
    ],
)
def test_errors(change, message):
    given = {
        "rankers": {"a": [1.0, 2.0], "b": [2.0, 1.0]},
        "X": pd.DataFrame({"qid": [1, 1], "relevance": [0, 1]}),
    }
    with pytest.raises((ValueError, TypeError), match=message):
        compare_rankers(**given | change)
