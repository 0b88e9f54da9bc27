import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skultr
from skultr.exceptions import ClickDataWarning
from skultr.metrics import CMIPScorer, PerplexityScorer, cmip_score, perplexity_score
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures

BLIND_TEXT = "The scores of Column explain the clicks no better than position alone"


class Column(RegressorMixin, BaseEstimator):
    """Scores by a column, or the first one; clicks with its size times 1 / position."""

    def __init__(self, name="old"):
        self.name = name

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        column = X[self.name] if hasattr(X, "columns") else np.asarray(X)[:, 0]
        return np.asarray(column, dtype=float)

    def predict_click(self, X, *, position=None):
        position = X["position"] if position is None else position
        strength = 1 / (1 + np.exp(-self.predict(X)))
        return strength / np.nan_to_num(np.asarray(position, dtype=float), nan=1.0)


class Cascade(Column):
    """Records what a click model is asked."""

    def predict_click(self, X, y=None, *, conditional=True, session=None):
        self.asked_ = y, conditional, session
        return np.full(len(X), 0.9 if conditional else 0.5)


class Half(Column):
    """Forgets half of the rows."""

    def predict(self, X):
        return super().predict(X)[::2]

    def predict_click(self, X):
        return np.full(len(X) // 2, 0.5)


@pytest.fixture
def log():
    return draw_log(0)


def draw_log(seed):
    """Documents shown twice, the old ranking known by its positions; ``old`` copies it."""
    rng = np.random.default_rng(seed)
    n = 400
    documents = pd.DataFrame({"qid": np.repeat(np.arange(40), 10), "doc": np.arange(n)})
    documents["relevance"] = rng.integers(0, 3, n).astype(float)
    documents["mean"] = rng.uniform(2, 9, n).round()
    documents["old"] = -documents["mean"] + rng.normal(size=n)
    documents["fair"] = documents["relevance"] + rng.normal(size=n)
    shown = [documents.assign(position=documents["mean"] + shift) for shift in (-1, 1)]
    return pd.concat(shown, ignore_index=True).assign(impressions=1.0)


def expected_cmip(log, name, logging="mean"):
    documents = log[log["relevance"].notna()].drop_duplicates("doc")
    arrays = documents[name], documents[logging], documents["relevance"]
    return cmip_score(*arrays, estimator="knn", random_state=0)


# CMIP ------------------------------------------------------------------------------------
@pytest.mark.parametrize("convert", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_cmip_of_distinct_documents_and_their_mean_position(log, convert):
    scorer = CMIPScorer(estimator="knn")
    for name in ("old", "fair"):
        assert_allclose(scorer(Column(name), convert(log)), -expected_cmip(log, name))
    assert scorer(Column("old"), log) < scorer(Column("fair"), log) - 0.3


def test_cmip_by_default_is_the_classifier(log):
    documents = log.drop_duplicates("doc")
    expected = cmip_score(
        documents["old"], documents["mean"], documents["relevance"], random_state=0
    )
    assert CMIPScorer()(Column(), log) == -expected


def test_cmip_as_published(log):
    documents = log.drop_duplicates("doc")
    expected = cmip_score(
        documents["old"],
        documents["mean"],
        documents["relevance"],
        estimator="published",
        random_state=0,
    )
    assert CMIPScorer(estimator="published")(Column(), log) == -expected


def test_impressions_weigh_positions(log):
    """One row of 3 impressions and one of 1, and the rows that they stand for."""
    log["impressions"] = np.where(np.arange(len(log)) < 400, 3.0, 1.0)
    log["weighted"] = log["mean"] - 0.5
    value = CMIPScorer(estimator="knn")(Column(), log)
    assert_allclose(value, -expected_cmip(log, "old", "weighted"))
    as_weight = CMIPScorer(estimator="knn")(
        Column(), log.drop(columns="impressions"), sample_weight=log["impressions"]
    )
    assert value == as_weight


def test_a_column_for_the_logging_policy(log):
    log["production"] = -(log["mean"] ** 3)
    value = CMIPScorer(logging="production", estimator="knn")(
        Column(), log.drop(columns="position")
    )
    assert_allclose(value, -expected_cmip(log, "old", "production"))
    gaps = log.assign(production=log["production"].where(log["doc"] < 300))
    value = CMIPScorer(logging="production", estimator="knn")(Column(), gaps)
    assert_allclose(value, -expected_cmip(log[log["doc"] < 300], "old", "production"))


def test_rows_that_do_not_count(log):
    """Not annotated, never shown, or shown with no impression."""
    expected = -expected_cmip(log[log["doc"] >= 90], "old")
    log.loc[log["doc"] < 30, "relevance"] = np.nan
    log.loc[log["doc"].between(30, 59), "position"] = np.nan
    log.loc[log["doc"].between(60, 89), "impressions"] = 0
    assert_allclose(CMIPScorer(estimator="knn")(Column(), log), expected)


@pytest.mark.parametrize("ids", [["qid", "doc"], ["qid"]])
def test_annotation_in_one_row_is_annotation_of_the_document(log, ids):
    """The mean position is over all rows, whichever of them are annotated."""
    roles = [*ids, "relevance", "position", "impressions", "old"]
    scorer = CMIPScorer(estimator="knn")
    on_one_page = log.assign(relevance=log["relevance"].where(np.arange(len(log)) < 400))
    assert scorer(Column(), on_one_page[roles]) == scorer(Column(), log[roles])
    not_shown = on_one_page.assign(position=log["position"].where(np.arange(len(log)) >= 400))
    log["last"] = log["mean"] + 1
    assert_allclose(scorer(Column(), not_shown[roles]), -expected_cmip(log, "old", "last"))


def test_scores_that_explain_no_clicks_beyond_position(recwarn):
    """Whatever goes with position and nothing else, and noise, has learned nothing."""
    scorer = CMIPScorer(estimator="knn")
    worlds = []
    for seed in range(9):
        log, rng = draw_log(seed), np.random.default_rng(100 + seed)
        chance = (0.1 + 0.4 * log["relevance"]) / np.sqrt(log["position"])
        log["place"], log["noise"] = -log["position"], rng.normal(size=len(log))
        worlds.append((log, (rng.uniform(size=len(log)) < chance).to_numpy()))
    log, y = worlds[0]
    log["per query"] = log["fair"] + 1000 * log["qid"]
    for name in ("fair", "per query"):
        assert scorer(Column(name), log, y) == scorer(Column(name), log)
    scorer(Column("noise"), log)  # without clicks
    CMIPScorer(estimator="knn", logging="mean")(Column("noise"), log, y)
    assert not recwarn.list

    def is_blind(name, change=lambda log: log):
        """Chance passes for knowledge in a log in six at most, in most of nine in .3 %."""
        n_told = 0
        for log, y in worlds:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                scorer(Column(name), change(log), y)
            n_told += any(BLIND_TEXT in str(each.message) for each in told)
        return n_told >= 5

    assert not is_blind("fair")
    for name in ("place", "noise", "old"):
        assert is_blind(name)
    # Scores that are equal within each query say nothing at all.
    with pytest.warns(ClickDataWarning, match=BLIND_TEXT):
        scorer(Column("qid"), log, y)

    def some(log):
        """Documents that are not annotated need no score."""
        known = log["qid"] < 10
        relevance = log["relevance"].where(known)
        return log.assign(relevance=relevance, noise=log["noise"].where(known))

    assert is_blind("noise", some)
    # Rows without impressions do not count: what is left has nothing to learn from.
    assert is_blind("fair", lambda log: log.assign(impressions=1.0 * (log["relevance"] == 1)))


def test_cmip_without_doc_tells_documents_by_their_features(log):
    value = CMIPScorer(estimator="knn")(Column(), log.drop(columns="doc"))
    assert_allclose(value, -expected_cmip(log, "old"))


def test_cmip_errors(log):
    scorer = CMIPScorer()
    for role in ("qid", "relevance", "position"):
        with pytest.raises(ValueError, match=f"no column '{role}' .*: CMIPScorer needs it"):
            scorer(Column(), log.drop(columns=role))
    with pytest.raises(ValueError, match="None of the 800 rows is annotated"):
        scorer(Column(), log.assign(relevance=np.nan))
    with pytest.raises(ValueError, match="None of the 400 annotated documents was ranked"):
        scorer(Column(), log.assign(position=np.nan))
    with pytest.raises(ValueError, match="No two of the 400 documents share a grade"):
        scorer(Column(), log.assign(relevance=log["doc"] / 7))
    with pytest.raises(ValueError, match="scores of the estimator are NaN for 400 of 400"):
        scorer(Column(), log.assign(old=np.nan))
    with pytest.raises(ValueError, match="no column 'elo'"):
        CMIPScorer(logging="elo")(Column(), log)
    with pytest.raises(ValueError, match="no column 'elo': X is an array"):
        CMIPScorer(logging="elo")(
            Column(), log[["old"]].to_numpy(), qid=log["qid"], relevance=log["relevance"]
        )
    with pytest.raises(
        ValueError, match=r"shape \(400,\); expected one for each row of X, \(800,\)"
    ):
        scorer(Half(), log)
    with pytest.warns(ClickDataWarning, match="y_pred is 1 for all"):
        assert scorer(Column(), log.assign(old=1.0)) == 0
    for options, message in (
        ({"estimator": "mine"}, "'estimator' .* Got 'mine'"),
        ({"n_repeats": 0}, "'n_repeats' .* Got 0"),
        ({"logging": 3}, "'logging' .* Got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            CMIPScorer(**options)


# Perplexity --------------------------------------------------------------------------------
def clicks_of(log):
    return (np.arange(len(log)) % 3 == 0).astype(float)


@pytest.mark.parametrize("convert", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_perplexity_of_a_ranker(log, convert):
    log["impressions"] = 1.0 + np.arange(len(log)) % 4
    y = clicks_of(log)
    expected = perplexity_score(
        y,
        Column().predict_click(log),
        position=log["position"],
        sample_weight=log["impressions"],
    )
    clicks = y * log["impressions"].to_numpy()
    assert_allclose(PerplexityScorer()(Column(), convert(log), clicks), -expected)


def test_rows_that_were_not_shown_do_not_count(log):
    y = np.where(np.arange(len(log)) < 500, clicks_of(log), 0)
    expected = PerplexityScorer()(Column(), log[:500], y[:500])
    log.loc[500:, "position"] = np.nan
    assert PerplexityScorer()(Column(), log, y) == expected
    log.loc[500:, ["position", "impressions"]] = [4.0, 0.0]
    assert PerplexityScorer()(Column(), log, y) == expected


@pytest.mark.parametrize("conditional", [True, False])
def test_click_models_get_the_clicks_and_the_condition(log, conditional):
    model, y = Cascade(), clicks_of(log)
    session = np.arange(len(log))
    value = PerplexityScorer(conditional=conditional)(model, log, y, session=session)
    assert_allclose(model.asked_[0], y)
    assert model.asked_[1] is conditional
    assert_allclose(model.asked_[2], session)
    probability = np.full(len(log), 0.9 if conditional else 0.5)
    assert_allclose(value, -perplexity_score(y, probability, position=log["position"]))


def test_perplexity_through_pipelines_and_searches(log):
    y = clicks_of(log)
    scaled = make_pipeline(OnFeatures(StandardScaler()), make_pipeline(Column())).fit(log, y)
    expected = PerplexityScorer()(Column(), scaled[0].transform(log), y)
    assert PerplexityScorer()(scaled, log, y) == expected
    assert expected != PerplexityScorer()(Column(), log, y)
    assert PerplexityScorer()(FrozenEstimator(scaled), log, y) == expected
    assert PerplexityScorer()(make_pipeline(FrozenEstimator(scaled)), log, y) == expected
    search = GridSearchCV(scaled, {"onfeatures": ["passthrough"]}, cv=QueryKFold(2)).fit(log, y)
    assert PerplexityScorer()(search, log, y) == PerplexityScorer()(Column(), log, y)


def test_perplexity_errors(log):
    scorer, y = PerplexityScorer(), clicks_of(log)
    with pytest.raises(TypeError, match="StandardScaler has no predict_click"):
        scorer(StandardScaler(), log, y)
    with pytest.raises(TypeError, match="StandardScaler has no predict_click"):
        scorer(make_pipeline(StandardScaler()), log, y)
    with pytest.raises(ValueError, match=r"no column 'position' .*: PerplexityScorer needs it"):
        scorer(Column(), log.drop(columns="position"), y)
    with pytest.raises(ValueError, match=r"predict_click returned the shape \(400,\)"):
        scorer(Half(), log, y)
    with pytest.raises(ValueError, match=r"'conditional' .* Got"):
        PerplexityScorer(conditional="yes")


# Both ----------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:The scores of Column explain the clicks no better")
def test_metadata_is_routed_without_a_request(log):
    y = clicks_of(log)
    scoring = {"cmip": CMIPScorer(estimator="knn"), "perplexity": PerplexityScorer()}
    settings = {"cv": QueryKFold(2), "scoring": scoring, "refit": False}
    frame = log[["qid", "relevance", "doc", "position", "impressions", "old"]]
    by_frame = GridSearchCV(Column(), {"name": ["old"]}, **settings).fit(frame, y)
    roles = {role: frame[role].to_numpy() for role in frame if role != "old"}
    with sklearn.config_context(enable_metadata_routing=True):
        by_keyword = GridSearchCV(Column(), {"name": ["old"]}, **settings)
        by_keyword.fit(log[["old"]].to_numpy(), y, **roles)
    for name in scoring:
        key = f"mean_test_{name}"
        assert_allclose(by_keyword.cv_results_[key], by_frame.cv_results_[key])


def test_public_name():
    assert skultr.CMIPScorer is CMIPScorer
