"""Rankers compared by few trusted labels and the cheap ones of a judge."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from sklearn.linear_model import LinearRegression

from skultr.datasets import make_ltr
from skultr.evaluation import compare_rankers
from skultr.exceptions import AssumptionWarning

SETTINGS = {"random_state": 0, "n_resamples": 499}


@pytest.fixture
def X():
    return make_ltr(n_queries=200, n_documents=8, n_features=3, random_state=0)


@pytest.fixture
def given(X):
    """People labelled every fifth query, and a judge with errors all of them."""
    rng = np.random.default_rng(0)
    scores = {
        "old": X["relevance"] + rng.normal(0, 3, len(X)),
        "new": X["relevance"] + rng.normal(0, 2, len(X)),
    }
    wrong = rng.random(len(X)) < 0.05
    judge = X["relevance"].clip(upper=3).where(~wrong, rng.integers(0, 4, len(X)))
    trusted = X["relevance"].where(X["qid"] % 5 == 0)
    return {"rankers": scores, "X": X, "y": trusted, "judge": judge}


def test_the_judge_narrows_the_interval(given):
    alone = compare_rankers(**{**given, "judge": None}, **SETTINGS)
    both = compare_rankers(**given, **SETTINGS)
    row = both.table.iloc[0]
    width = row["upper"] - row["lower"]
    of_alone = (alone.table["upper"] - alone.table["lower"]).item()
    assert row["width_ratio"] < 0.9
    assert_allclose(row["width_ratio"], width / of_alone)
    assert 0 < row["judge_weight"] < 2
    assert row["lower"] < row["difference"] < row["upper"]
    assert row["detectable"] < alone.table["detectable"].item()
    # What the trusted labels say is told as without the judge.
    same = ["n_queries", "wins", "ties", "losses"]
    assert_frame_equal(both.table[same], alone.table[same])
    assert_frame_equal(both.per_query, alone.per_query)
    assert row["n_judged"] == len(both.per_judged_query) > 4 * len(both.per_query)
    assert (both.values["width_ratio"] < 1).all()
    assert_allclose(row["value"], both.values.at["new", "value"])
    narrower = f"The judge narrows the interval by {1 - row['width_ratio']:.0%}."
    assert narrower in both.summary()
    assert both.summary().splitlines()[0].endswith(f"; by the judge {row['n_judged']}")


def test_the_estimate_is_that_of_prediction_powered_inference(given):
    found = compare_rankers(**given, **SETTINGS, no_relevant=0)
    trusted = found.per_query["new"] - found.per_query["old"]
    cheap = found.per_judged_query["new"] - found.per_judged_query["old"]
    both = cheap.loc[trusted.index]
    weight = found.table["judge_weight"].item()
    expected = (weight * cheap).mean() + (trusted - weight * both).mean()
    assert_allclose(found.table["difference"], expected)
    # The weight of the smallest variance, w. With the share f of trusted queries the estimate is
    # mean(trusted) - (1 - f) w (mean(both) - mean(others)): trusted queries tell the variance of
    # the former mean, and all queries that of the latter.
    share = len(trusted) / len(cheap)
    variance = (1 - share) * both.var() + share * cheap.var()
    assert_allclose(weight, np.cov(both, trusted)[0, 1] / variance)


def test_kinds_of_input(given):
    expected = compare_rankers(**given, **SETTINGS).table
    X = given["X"]
    labels = {"people": given["y"].to_numpy(), "llm": given["judge"].to_numpy()}
    frame = X.drop(columns="relevance").assign(**labels)
    arrays = {name: score.to_numpy() for name, score in given["rankers"].items()}
    for table in (frame, pl.from_pandas(frame)):
        found = compare_rankers(arrays, table, "people", judge="llm", **SETTINGS).table
        assert_frame_equal(found, expected)
    role = frame.rename(columns={"people": "relevance"})
    assert_frame_equal(compare_rankers(arrays, role, judge="llm", **SETTINGS).table, expected)
    bare = compare_rankers(
        arrays, None, labels["people"], judge=labels["llm"], qid=X["qid"], **SETTINGS
    )
    assert_frame_equal(bare.table, expected)
    texts = X.assign(qid=X["qid"].map("query {:04}".format))
    found = compare_rankers(**{**given, "X": texts}, **SETTINGS)
    assert_frame_equal(found.table, expected)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = {name: score.iloc[order] for name, score in given["rankers"].items()}
    labels = {name: given[name].iloc[order] for name in ("y", "judge")}
    found = compare_rankers(shuffled, X.iloc[order], **labels, **SETTINGS)
    assert_frame_equal(found.table, expected)


def test_rankers_do_not_see_the_judge(given):
    seen = []

    class Looks:
        def predict(self, X):
            seen.append([*X.columns])
            return X["feature_000"].to_numpy()

    X = given["X"].assign(llm=given["judge"], people=given["y"])
    compare_rankers({"looks": Looks(), "old": "feature_001"}, X, "people", judge="llm", **SETTINGS)
    # A model is asked once, although two judges read what it says.
    assert len(seen) == 1
    assert not {"llm", "people"} & {*seen[0]}
    features = ["feature_000", "feature_001", "feature_002"]
    model = LinearRegression().fit(X[features], X["relevance"])
    by_model = compare_rankers(
        {"model": model, "old": X["feature_001"]},
        X[[*features, "llm", "people"]],
        "people",
        judge="llm",
        qid=X["qid"],
        **SETTINGS,
    )
    scores = {"model": model.predict(X[features]), "old": X["feature_001"]}
    by_scores = compare_rankers(scores, X, "people", judge="llm", **SETTINGS)
    assert_frame_equal(by_model.table, by_scores.table)


@pytest.mark.parametrize("judge", ["noise", "reversed"])
def test_without_help_all_is_as_without_the_judge(given, judge):
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 4, len(given["X"])) if judge == "noise" else 4 - given["judge"]
    alone = compare_rankers(**{**given, "judge": None}, **SETTINGS)
    found = compare_rankers(**{**given, "judge": labels}, **SETTINGS)
    assert (found.table["judge_weight"] == 0).all()
    assert (found.table["width_ratio"] == 1).all()
    assert_frame_equal(
        found.table[alone.table.columns.drop("value")], alone.table.drop(columns="value")
    )
    cause = "The judge is no help: its differences do not follow those of people."
    assert cause in found.summary()


def test_a_judge_of_trusted_queries_alone_is_no_help(given):
    only = given["judge"].where(given["y"].notna())
    found = compare_rankers(**{**given, "judge": only}, **SETTINGS)
    assert (found.table["judge_weight"] == 0).all()
    assert (found.values["judge_weight"] == 0).all()
    assert "The judge is no help: it labelled no other queries." in found.summary()


def test_few_trusted_queries_that_differ_are_told(given):
    few = given["y"].where(given["X"]["qid"] < 40)
    found = compare_rankers(**{**given, "y": few}, **SETTINGS)
    assert "The judge is no help: fewer than 10 trusted queries differ." in found.summary()


def test_a_judge_that_is_right_stands_for_people(given):
    """All that is left is the error of the many queries."""
    everyone = given["X"]["relevance"]
    found = compare_rankers(**{**given, "judge": everyone}, **SETTINGS).table.iloc[0]
    full = compare_rankers(given["rankers"], given["X"], everyone, **SETTINGS).table.iloc[0]
    assert_allclose(found["difference"], full["difference"], atol=0.01)
    width = found["upper"] - found["lower"]
    assert_allclose(width, full["upper"] - full["lower"], rtol=0.25)


def test_queries_that_trusted_labels_leave_undefined_do_not_bias():
    """A judge finds something in each query: where people find nothing, its metric is low."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        is_defined = rng.random(300) < 0.5
        value = rng.normal(0, 0.2, 300) + np.where(is_defined, 1.0, 0.0)
        relevance = np.where(is_defined, 1.0, 0.0)
        trusted = np.where(np.arange(300) < 40, relevance, np.nan)
        judge = np.ones(300)
        qid = np.arange(300)

        def metric(labels, scores):
            return scores[0] if labels[0] else np.nan

        rankers = {"a": value, "b": np.zeros(300)}
        row = compare_rankers(
            rankers,
            None,
            trusted,
            judge=judge,
            qid=qid,
            metric=metric,
            n_resamples=99,
            random_state=0,
            baseline="b",
        ).table.iloc[0]
        found.append(row["difference"])
    # That of queries where it is defined; .5 were the mean of all.
    assert_allclose(np.mean(found), 1.0, atol=0.03)


def test_trusted_queries_that_were_not_drawn_at_random_are_told(given):
    """People judged the queries where production is good."""
    cheap = compare_rankers(**given, **SETTINGS).per_judged_query["old"]
    easy = cheap.index[cheap > cheap.quantile(0.7)]
    trusted = given["X"]["relevance"].where(given["X"]["qid"].isin(easy))
    with pytest.warns(AssumptionWarning, match=r"standard errors above .* not drawn at random"):
        compare_rankers(**{**given, "y": trusted}, **SETTINGS)


def test_missing_labels_filled_with_0_are_no_judge(given):
    """As after a left merge: the metric is undefined where the judge said nothing."""
    alone = compare_rankers(**{**given, "judge": None}, **SETTINGS)
    filled = given["judge"].where(given["y"].notna(), 0)
    with pytest.warns(AssumptionWarning, match=r"defined in \d+% of trusted and 0% of other"):
        found = compare_rankers(**{**given, "judge": filled}, **SETTINGS)
    assert (found.table["judge_weight"] == 0).all()
    assert (found.values["judge_weight"] == 0).all()
    intervals = ["difference", "lower", "upper", "p_value", "detectable", "verdict"]
    assert_frame_equal(found.table[intervals], alone.table[intervals])
    assert "The judge is no help: its metric is undefined in trusted" in found.summary()


def test_a_metric_that_is_undefined_as_often_elsewhere_counts(given):
    """The judge finds nothing relevant in each third query, whoever labelled it."""
    found_nothing = given["X"]["qid"] % 3 == 0
    labels = given["judge"].where(~found_nothing, 0)
    found = compare_rankers(**{**given, "judge": labels}, **SETTINGS)
    assert (found.table["judge_weight"] > 0).all()


# Clusters ------------------------------------------------------------------------------
def test_equal_queries_count_as_one(given):
    expected = compare_rankers(**given, **SETTINGS)
    copies = pd.concat(
        [
            given["X"].assign(need=given["X"]["qid"], qid=4 * given["X"]["qid"] + i)
            for i in range(4)
        ]
    )
    repeated = {
        "rankers": {name: np.tile(score, 4) for name, score in given["rankers"].items()},
        "y": np.tile(given["y"], 4),
        "judge": np.tile(given["judge"], 4),
    }
    found = compare_rankers(X=copies, cluster="need", **repeated, **SETTINGS)
    columns = ["difference", "lower", "upper", "p_value", "detectable", "judge_weight"]
    assert_allclose(found.table[columns], expected.table[columns], rtol=1e-6)
    assert (found.table["n_judged"] == 4 * expected.table["n_judged"]).all()


# Errors ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judge": [1, -1, 1, 0]}, "judge is negative or infinite in 1 of 4 rows, first in row 1"),
        ({"judge": [1, np.inf, 1, 0]}, "judge is negative or infinite"),
        ({"judge": ["a", "b", "a", "b"]}, "judge must hold numbers"),
        ({"judge": [1, 0]}, r"'judge' has shape \(2,\)"),
        ({"judge": [np.nan] * 4}, "labelled none of the 4 rows"),
        ({"judge": [np.nan, np.nan, 1, 0]}, "none of the 1 with trusted labels"),
        ({"judge": [0, 0, 0, 0]}, "undefined in all 2 queries by the judge's labels"),
        ({"judge": "click"}, "labels are the clicks"),
        ({"judge": [0, 1, 0, 0]}, "labels are the clicks"),
        ({"judge": "nobody"}, "no column 'nobody'"),
        ({"judge": "relevance"}, "one column, 'relevance'"),
        ({"judge": "llm", "y": "llm"}, "one column, 'llm'"),
        (
            {"judge": "llm", "doc": [1, 1, 2, 3]},
            "with the judge's label 1 and 2; expected one ann",
        ),
        ({"rankers": {"a": [1, 2, np.nan, 1], "b": [2, 1, 2, 1]}}, "scores of 'a' are NaN for 1"),
    ],
)
def test_errors(change, message):
    X = pd.DataFrame(
        {
            "qid": [1, 1, 2, 2],
            "click": [0, 1, 0, 0],
            "relevance": [1.0, 1.0, np.nan, np.nan],
            "llm": [1, 2, 1, 0],
        }
    )
    rankers = {"a": [1.0, 2.0, 2.0, 1.0], "b": [2.0, 1.0, 1.0, 2.0]}
    given = {"rankers": rankers, "X": X, "judge": "llm", **change}
    with pytest.raises(ValueError, match=message):
        compare_rankers(**given)
