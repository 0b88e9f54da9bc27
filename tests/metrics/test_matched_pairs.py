"""Pairs of documents at the same position: values by enumeration, doors, faults."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV, cross_validate

from skultr import aggregate_clicks
from skultr.click_models import PBMModel
from skultr.metrics import MatchedPairsScorer, matched_pairs_score
from skultr.model_selection import LayoutSplit

from .._worlds import Linear, shuffled_log

ROLES = ["qid", "session", "doc", "position"]


def draw_log(seed=0, n_pages=400, n_documents=5):
    """Pages of three of some documents in random order, their clicks, and a score per document;
    one query has one row."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"q{page % 3}", f"s{page}", f"d{doc}", position)
        for page in range(n_pages)
        for position, doc in enumerate(rng.permutation(n_documents)[:3], start=1)
    ]
    log = pd.DataFrame([*rows, ("one row", "s", "d", 1)], columns=ROLES)
    relevance = {f"d{doc}": (doc + 1) / (n_documents + 2) for doc in range(n_documents)} | {"d": 0}
    log["click"] = (rng.random(len(log)) < log["doc"].map(relevance) / log["position"]).astype(int)
    return log.assign(bm25=log["doc"].map(relevance).round(1))


def by_enumeration(log, scores, least, level):
    """Pairs in the right order and all pairs of each query, one pair at a time."""
    log = log.assign(score=scores)
    found = {}
    for (qid, _), cell in log.groupby(["qid", "position"]):
        documents = [rows for _, rows in cell.groupby("doc") if len(rows) >= least]
        for a, b in combinations(documents, 2):
            difference = a["click"].mean() - b["click"].mean()
            p = pd.concat([a, b])["click"].mean()
            error = np.sqrt(p * (1 - p) * (1 / len(a) + 1 / len(b)))
            if abs(difference) <= norm.isf(level / 2) * error or not difference:
                continue
            order = (a["score"].iloc[0] - b["score"].iloc[0]) * difference
            right, n = found.get(qid, (0, 0))
            found[qid] = right + (1 if order > 0 else 0.5 if order == 0 else 0), n + 1
    return pd.DataFrame(found, index=["right", "n"]).T


def score_of(log, scores, **settings):
    ids = {role: log[role] for role in ("qid", "doc", "position")}
    return matched_pairs_score(log["click"], scores, **ids, **settings)


# Values -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("least", "level"), [(1, 1.0), (5, 0.3), (10, 0.05), (25, 1.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_value_by_enumeration(seed, least, level):
    log = draw_log(seed)
    settings = {"min_impressions": least, "level": level}
    for scores in (log["bm25"], -log["bm25"], log["bm25"].round(), log["bm25"] * 0):
        expected = by_enumeration(log, scores, least, level)
        assert_allclose(
            score_of(log, scores, **settings), expected["right"].sum() / expected["n"].sum()
        )
        table = score_of(log, scores, **settings, per_query=True)
        assert list(table.index) == list(expected.index)
        assert "one row" not in table.index
        assert_allclose(table["matched_pairs"], expected["right"] / expected["n"])
        assert_allclose(table["n_pairs"], expected["n"])


def test_a_good_order_is_near_one_and_none_is_a_half():
    log = draw_log(n_pages=6_000)
    assert score_of(log, log["bm25"]) > 0.95
    assert score_of(log, -log["bm25"]) < 0.05
    assert score_of(log, np.zeros(len(log))) == 0.5


def test_rows_of_several_impressions_and_rows_that_were_not_shown():
    log = draw_log()
    cells = log.groupby(["qid", "doc", "position"], as_index=False).agg(
        click=("click", "mean"), n=("click", "size"), bm25=("bm25", "first")
    )
    expected = score_of(log, log["bm25"], min_impressions=10)
    assert_allclose(
        score_of(cells, cells["bm25"], min_impressions=10, sample_weight=cells["n"]), expected
    )
    hidden = log.assign(position=np.nan, click=0, bm25=5.0)[:50]
    both = pd.concat([log, hidden], ignore_index=True)
    assert_allclose(score_of(both, both["bm25"], min_impressions=10), expected)
    weightless = log.assign(click=1 - log["click"], bm25=-log["bm25"])
    both = pd.concat([log, weightless], ignore_index=True)
    weight = np.repeat([1.0, 0.0], len(log))
    assert_allclose(
        score_of(both, both["bm25"], min_impressions=10, sample_weight=weight), expected
    )


def test_equal_scores_of_many_rows_are_equal():
    """The mean of .1 three times is not .1."""
    log = pd.DataFrame({
        "qid": 1, "doc": ["a"] * 3 + ["b"] * 4, "position": 1, "click": [1, 1, 1, 0, 0, 0, 0],
    })  # fmt: skip
    assert score_of(log, np.full(7, 0.1), min_impressions=1) == 0.5


def test_rates_that_differ_by_rounding_are_equal():
    assert sum([0.3 * 7] * 3) / 21 != 0.3
    log = pd.DataFrame({"qid": 1, "doc": [*"abbb"], "position": 1, "click": 0.3})
    settings = {"sample_weight": [7] * 4, "min_impressions": 7, "level": 1.0}
    assert score_of(log, [1, 2, 2, 2], **settings, per_query=True).empty


def test_infinite_scores_have_an_order():
    log = draw_log()
    scores = np.where(log["bm25"] > 0.5, np.inf, np.where(log["bm25"] > 0.2, 0, -np.inf))
    assert_allclose(
        score_of(log, scores, min_impressions=10),
        score_of(log, np.sign(scores), min_impressions=10),
    )


def test_order_of_rows_and_names_do_not_matter():
    log = draw_log().sample(frac=1, random_state=0)
    renamed = log.assign(qid=log["qid"].map(hash), doc=log["doc"].str[1:].replace("", "9"))
    expected = score_of(draw_log(), draw_log()["bm25"], min_impressions=10)
    assert_allclose(score_of(renamed, renamed["bm25"], min_impressions=10), expected)
    polars = pytest.importorskip("polars").from_pandas(log)
    assert_allclose(score_of(polars, polars["bm25"], min_impressions=10), expected)


# The scorer -------------------------------------------------------------------------------
def test_scorer_is_the_metric_of_predictions():
    log = draw_log()
    expected = score_of(log, log["bm25"], min_impressions=10, level=0.2)
    scorer = MatchedPairsScorer(min_impressions=10, level=0.2)
    X, y = log.drop(columns="click"), log["click"]
    assert_allclose(scorer(Linear(), X, y), expected)
    assert_allclose(scorer(Linear(), pytest.importorskip("polars").from_pandas(X), y), expected)
    assert repr(scorer) == "MatchedPairsScorer(min_impressions=10, level=0.2)"
    clicked = scorer(Linear(), X[["bm25"]].to_numpy(), y, **{role: X[role] for role in ROLES})
    assert_allclose(clicked, expected)
    without_ids = X.drop(columns="doc")  # in which equal features are one document
    assert_allclose(scorer(Linear(), without_ids, y), scorer(Linear(), X, y))


def test_scorer_of_an_aggregated_log():
    log = draw_log()
    cells, rate = aggregate_clicks(
        log.drop(columns="bm25"), log[["qid", "doc", "bm25"]].drop_duplicates()
    )
    scorer = MatchedPairsScorer(min_impressions=10)
    assert_allclose(
        scorer(Linear(), cells, rate), scorer(Linear(), log.drop(columns="click"), log["click"])
    )


def test_grid_search_over_layouts():
    log = draw_log(n_pages=1_500)
    X, y = log.drop(columns=["click", "bm25"]), log["click"]
    scorer, splits = MatchedPairsScorer(), LayoutSplit(2, random_state=0)
    grid = {"prior": ["logged", (1.0, 1.0)]}
    search = GridSearchCV(PBMModel(), grid, cv=splits, scoring=scorer).fit(X, y)
    found = search.cv_results_["mean_test_score"]
    assert (found > 0.9).all()
    expected = [
        scorer(PBMModel().fit(X.iloc[train], y[train]), X.iloc[test], y[test])
        for train, test in splits.split(X)
    ]
    assert_allclose(found[0], np.mean(expected))


def test_metadata_is_routed_without_a_request():
    log = draw_log()
    settings = {
        "cv": LayoutSplit(2, random_state=0), "scoring": MatchedPairsScorer(min_impressions=10)
    }  # fmt: skip
    frames = cross_validate(Linear(), log.drop(columns="click"), log["click"], **settings)
    with sklearn.config_context(enable_metadata_routing=True):
        params = {role: log[role].to_numpy() for role in ROLES}
        matrix = log[["bm25"]].to_numpy()
        arrays = cross_validate(Linear(), matrix, log["click"], **settings, params=params)
    assert_allclose(arrays["test_score"], frames["test_score"])


# Bad input --------------------------------------------------------------------------------
def test_without_pairs_the_score_is_nan_and_says_why():
    log = draw_log()
    with pytest.warns(UndefinedMetricWarning, match="No two documents of a query .* impressions"):
        assert np.isnan(score_of(log, log["bm25"], min_impressions=5_000))
    one_layout = pd.DataFrame({"qid": 1, "doc": [*"ab"] * 9, "position": [1, 2] * 9, "click": 1})
    with pytest.warns(UndefinedMetricWarning, match="Expected pages of a query in different"):
        assert np.isnan(score_of(one_layout, np.ones(18), min_impressions=1, level=1))
    table = score_of(one_layout, np.ones(18), per_query=True)
    assert table.empty
    assert list(table) == ["matched_pairs", "n_pairs"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"click": np.nan}, "contains NaN"),
        ({"click": -1.0}, "holds negative values"),
        ({"qid": None}, "The role 'qid' is missing in 1 row, first in row 2"),
        ({"doc": None}, "The role 'doc' is missing in 1 row, first in row 2"),
        ({"position": 1.5}, "position must be a whole number from 1"),
        ({"bm25": np.nan}, "y_score contains NaN in 1 of 301 rows, first in row 2"),
    ],
)
def test_bad_input(change, message):
    log = draw_log(n_pages=100).astype({"click": float, "position": float})
    log.loc[2, [*change]] = [*change.values()]
    with pytest.raises(ValueError, match=message):
        score_of(log, log["bm25"])


def test_lengths_must_agree():
    log = draw_log()
    with pytest.raises(ValueError, match=r"shapes y_true \(1201,\), y_score \(1200,\)"):
        score_of(log, log["bm25"][:-1])
    ids = {"qid": log["qid"][1:], "doc": log["doc"], "position": log["position"]}
    with pytest.raises(ValueError, match=r"'qid' has shape \(1200,\); expected .* \(1201,\)"):
        matched_pairs_score(log["click"], log["bm25"], **ids)


@pytest.mark.parametrize("settings", [{"min_impressions": 0}, {"level": 1.5}, {"level": "all"}])
def test_parameters(settings):
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"The '{name}' parameter of MatchedPairsScorer"):
        MatchedPairsScorer(**settings)
    log = draw_log(n_pages=9)
    with pytest.raises(ValueError, match=f"The '{name}' parameter of matched_pairs_score"):
        score_of(log, log["bm25"], **settings)


@pytest.mark.parametrize("role", ["qid", "position"])
def test_the_scorer_needs_roles(role):
    log = draw_log().drop(columns=role)
    with pytest.raises(ValueError, match=f"no column '{role}' .*: MatchedPairsScorer needs it"):
        MatchedPairsScorer()(Linear(), log.drop(columns="click"), log["click"])


def test_a_log_of_a_simulation():
    """A model of the users' own kind finds the order of pairs on layouts that it did not see."""
    _, X, clicks = shuffled_log(5, 8_000, n_documents=6, n_features=3)
    X, clicks = X[ROLES].reset_index(drop=True), np.asarray(clicks)
    ((train, test),) = LayoutSplit(1, random_state=0).split(X)
    model = PBMModel().fit(X.iloc[train], clicks[train])
    # Documents may be equally relevant. Of 450 comparisons (5 queries, 15 pairs, 6 positions) less
    # than .01 is then counted by chance; at the default level of .05 these are 20 of 60 to 160.
    scorer = MatchedPairsScorer(level=1e-5)
    assert scorer(model, X.iloc[test], clicks[test]) > 0.95
