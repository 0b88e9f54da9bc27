"""RankingScorer by few trusted labels and the cheap ones of a judge."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.metrics import RankingScorer
from skultr.model_selection import QueryKFold

from .._worlds import Linear


def judged_world(n_queries):
    """People labelled every fourth query; a judge with errors, of another scale, all of them.

    Returns the frame and the label of each row.
    """
    X = make_ltr(n_queries=n_queries, n_documents=8, n_features=3, random_state=0)
    rng = np.random.default_rng(0)
    wrong = rng.random(len(X)) < 0.05
    llm = 0.5 * X["relevance"].where(~wrong, rng.integers(0, 5, len(X)))
    truth = X["relevance"].astype(float)
    bm25 = truth + rng.normal(0, 2, len(X))
    ids = X[["qid", "doc"]]
    judged = {"bm25": bm25, "relevance": truth.where(X["qid"] % 4 == 0), "outcome_llm": llm}
    return ids.assign(**judged, pagerank=X["feature_001"]), truth


@pytest.fixture
def frame():
    return judged_world(160)[0]


@pytest.fixture
def truth():
    return judged_world(160)[1]


def test_value(frame):
    """The trusted mean, moved by what the judge says of trusted queries and of all."""
    trusted = RankingScorer()(Linear(), frame)
    by_judge = frame.assign(relevance=frame["outcome_llm"])
    is_trusted = frame["relevance"].notna()
    of_trusted, of_all = (RankingScorer()(Linear(), X) for X in (by_judge[is_trusted], by_judge))
    value = RankingScorer(judge="outcome_llm")(Linear(), frame)
    weight = (value - trusted) / (of_all - of_trusted)
    assert 0.5 < weight < 1.5
    # The same for a candidate that ranks the other way round.
    backwards = Linear(factor=-1)
    trusted = RankingScorer()(backwards, frame)
    of_trusted, of_all = (RankingScorer()(backwards, X) for X in (by_judge[is_trusted], by_judge))
    value = RankingScorer(judge="outcome_llm")(backwards, frame)
    assert_allclose(value, trusted + weight * (of_all - of_trusted))


def test_a_judge_brings_differences_closer_to_the_truth():
    # So many queries that the judge errs about as often in each draw of the world.
    frame, truth = judged_world(800)
    rng = np.random.default_rng(1)
    apart = {"people": [], "both": []}
    everything = frame.assign(relevance=truth)
    other = frame["bm25"] + rng.normal(0, 2, len(frame))
    queries = frame["qid"].unique()
    true = RankingScorer()("bm25", everything) - RankingScorer()(other, everything)
    n_draws = 60
    for _ in range(n_draws):
        drawn = rng.choice(queries, 120, replace=False)
        given = frame.assign(relevance=truth.where(frame["qid"].isin(drawn)))
        for name, scorer in (
            ("people", RankingScorer()),
            ("both", RankingScorer(judge="outcome_llm")),
        ):
            found = scorer("bm25", given) - scorer(other, given)
            apart[name].append(found - true)
    # Three standard errors below 1: the log ratio of two deviations of n draws has the variance
    # 2 / (2 n) if they are independent, and less if they go together.
    assert np.std(apart["both"]) < np.exp(-3 / np.sqrt(n_draws)) * np.std(apart["people"])


def test_kinds_of_input(frame):
    expected = RankingScorer(judge="outcome_llm")(Linear(), frame)
    polars = pl.from_pandas(frame)
    assert_allclose(RankingScorer(judge="outcome_llm")(Linear(), polars), expected)
    renamed = frame.rename(columns={"outcome_llm": "llm"})
    assert_allclose(RankingScorer(judge="llm")(Linear(), renamed), expected)
    bare = frame.drop(columns="outcome_llm")
    assert_allclose(RankingScorer()(Linear(), bare, judge=frame["outcome_llm"]), expected)
    order = np.random.default_rng(0).permutation(len(frame))
    # Random rankings follow the order of the documents.
    shuffled = RankingScorer(judge="outcome_llm")(Linear(), frame.iloc[order])
    assert_allclose(shuffled, expected, atol=0.01)
    # A document counts once, however many rows show it, and which of them have labels.
    repeated = pd.concat([frame.assign(relevance=np.nan), frame, frame.assign(outcome_llm=np.nan)])
    again = RankingScorer(judge="outcome_llm")(Linear(), repeated)
    assert_allclose(again, expected, atol=0.01)


def test_noise_is_no_judge(frame):
    rng = np.random.default_rng(0)
    noise = frame.assign(outcome_llm=rng.integers(0, 3, len(frame)).astype(float))
    value = RankingScorer(judge="outcome_llm")(Linear(), noise)
    assert_allclose(value, RankingScorer()(Linear(), frame), atol=0.005)
    reverse = frame.assign(outcome_llm=2 - frame["outcome_llm"])
    value = RankingScorer(judge="outcome_llm")(Linear(), reverse)
    assert_allclose(value, RankingScorer()(Linear(), frame), rtol=1e-12)


# Searches --------------------------------------------------------------------------------
def test_search_over_a_frame_and_over_metadata(frame):
    grid = {"factor": [1, -1]}
    clicks = np.zeros(len(frame))
    scorer = RankingScorer(judge="outcome_llm")
    by_frame = GridSearchCV(Linear(), grid, cv=QueryKFold(3), scoring=scorer).fit(frame, clicks)
    assert by_frame.best_params_ == {"factor": 1}
    folds = QueryKFold(3).split(frame)
    expected = [scorer(Linear(), frame.iloc[test]) for _, test in folds]
    assert_allclose(by_frame.best_score_, np.mean(expected))
    roles = {name: frame[name].to_numpy() for name in ("qid", "relevance", "doc")}
    roles["judge"] = frame["outcome_llm"].to_numpy()
    X = frame[["bm25", "pagerank"]].to_numpy()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(Linear(), grid, cv=QueryKFold(3), scoring=RankingScorer())
        assert_allclose(search.fit(X, clicks, **roles).best_score_, by_frame.best_score_)
        scores = cross_val_score(
            Linear(), X, clicks, cv=QueryKFold(3), scoring=RankingScorer(), params=roles
        )
    assert_allclose(scores, expected)


def test_an_estimator_that_learned_from_the_judge_is_an_error(frame):
    renamed = frame.rename(columns={"outcome_llm": "llm"})
    features = renamed[["bm25", "llm"]]
    model = LinearRegression().fit(features, np.arange(len(frame)))
    with pytest.raises(ValueError, match=r"learned from the column 'llm'.*'outcome_llm'"):
        RankingScorer(judge="llm")(model, renamed)
    # An estimator that is not of skultr learns from outcomes too: another name is no help.
    model = LinearRegression().fit(frame[["bm25", "outcome_llm"]], np.arange(len(frame)))
    with pytest.raises(ValueError, match=r"pass its values as the metadata 'judge'\.$"):
        RankingScorer(judge="outcome_llm")(model, frame)


def test_missing_labels_filled_with_0_are_no_judge(frame):
    filled = frame.assign(outcome_llm=frame["relevance"].fillna(0))
    with pytest.warns(AssumptionWarning, match="were missing labels filled with 0"):
        found = RankingScorer(judge="outcome_llm")(Linear(), filled)
    assert found == RankingScorer()(Linear(), frame)


# Errors ----------------------------------------------------------------------------------
def test_errors(frame):
    scorer = RankingScorer(judge="outcome_llm")
    with pytest.raises(ValueError, match="no column 'outcome_llm'"):
        scorer(Linear(), frame.drop(columns="outcome_llm"))
    others = frame["outcome_llm"].where(frame["relevance"].isna())
    with pytest.raises(ValueError, match="none of the 40 with trusted labels"):
        scorer(Linear(), frame.assign(outcome_llm=others))
    with pytest.raises(ValueError, match="judge is negative or infinite"):
        scorer(Linear(), frame.assign(outcome_llm=-1.0))
    with pytest.raises(ValueError, match="None of the 1280 rows is annotated"):
        scorer(Linear(), frame.assign(relevance=np.nan))
    with pytest.raises(ValueError, match=r"undefined in all .* queries by the judge's labels"):
        scorer(Linear(), frame.assign(outcome_llm=0.0))
    with pytest.raises(ValueError, match="are one column, 'relevance'"):
        RankingScorer(judge="relevance")(Linear(), frame)
    with pytest.raises(TypeError, match="judge is of type Series; expected the name of a column"):
        RankingScorer(judge=frame["outcome_llm"])
    assert repr(RankingScorer(k=3, judge="llm")) == "RankingScorer('ndcg', k=3, judge='llm')"


def test_where_the_trusted_metric_is_undefined_no_judge_helps(frame):
    nothing = frame.assign(relevance=0 * frame["relevance"])
    with pytest.warns(UserWarning, match="undefined"):
        assert np.isnan(RankingScorer(judge="outcome_llm")(Linear(), nothing))
    with pytest.warns(ClickDataWarning, match="The estimator gives all documents"):
        RankingScorer(judge="outcome_llm")(np.zeros(len(frame)), frame)
