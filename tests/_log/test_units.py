"""The table of units: each row on logs where it speaks, and on logs where it must be silent."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.tree import DecisionTreeRegressor

from skultr import aggregate_clicks, describe_log
from skultr._log._units import UNITS
from skultr.evaluation import compare_rankers, policy_difference, policy_value
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.metrics import RankingScorer
from skultr.rankers import EnsembleRanker, LambdaMARTRanker, NaiveRanker

from .._worlds import pages_by_chance

N_PAGES, N_DOCS, N_SHOWN = 400, 8, 5
STUDY = Path(__file__).parents[2] / "docs" / "studies" / "click_log.rst"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def log(rng):
    """Pages of 30 queries in an order by chance, with clicks of a position-based model."""
    return pages_by_chance(rng, N_PAGES, n_docs=N_DOCS, n_shown=N_SHOWN)


def ranker():
    return NaiveRanker(estimator=DecisionTreeRegressor(max_depth=4))


def said(log, y="click"):
    """What a fit says of a log: warnings, and the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ranker().fit(log, y)
        except ValueError as error:
            return [str(error), *(str(each.message) for each in caught)]
    return [str(each.message) for each in caught]


def is_said(words, log, y="click"):
    return any(words in text for text in said(log, y))


def test_a_plain_log_is_quiet(log):
    assert said(log) == []
    assert said(pl.from_pandas(log)) == []
    assert describe_log(log).faults == []


# y ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "places",
    [
        lambda position: position,
        lambda position: position - 1,
        lambda position: position / 10,
        lambda position: np.sqrt(position),
    ],
)
@pytest.mark.filterwarnings("ignore:y has values above 1:UserWarning")
def test_places_that_were_served_are_no_labels(places, log):
    with pytest.raises(ValueError, match="y grows with the position in every list"):
        ranker().fit(log.drop(columns="click"), places(log["position"]))


@pytest.mark.parametrize(
    "y",
    [
        lambda log: 1 / log["position"],
        lambda log: (log["position"] == 1) * 1.0,
        lambda log: 6 - log["position"],
        lambda log: log["position"].map({1: 0.4, 2: 0.6, 3: 0.2, 4: 0.3, 5: 0.1}),
    ],
)
def test_a_y_that_the_position_determines_is_said(y, log):
    assert is_said("The position determines y", log.drop(columns="click"), y(log))


def test_a_y_that_is_the_order_of_the_pages_is_said(log, rng):
    score = -np.cumsum(rng.random((N_PAGES, N_SHOWN)), axis=1).ravel()
    y = np.exp(score)
    assert is_said("it falls with the position", log.drop(columns="click"), y)
    one_list_differs = y.copy()
    one_list_differs[:2] = y[1::-1]
    assert said(log.drop(columns="click"), one_list_differs) == []


def test_precise_click_rates_may_fall_with_the_position(log):
    X = log.drop(columns="click").assign(impressions=1000)
    y = (1 / log["position"] + log["b"] / 1e3).clip(0, 1)
    assert not is_said("position", X, y)


@pytest.mark.parametrize("first", [1, 0])
def test_places_of_another_ranking_are_said_with_a_remedy_that_works(first, log):
    X = log.drop(columns="click")
    y = log.groupby("session")["b"].rank(ascending=False) - 1 + first
    (text,) = (text for text in said(X, y) if "places" in text)
    remedy = {1: "1 / y", 0: "1 / (1 + y)"}[first]
    assert remedy in text
    assert said(X, eval(remedy, {"y": y})) == []


def test_grades_and_counts_are_no_places(log, rng):
    X = log.drop(columns="click")
    assert not is_said("places", X, rng.integers(5, size=len(X)))
    assert not is_said("places", X, rng.poisson(200, size=len(X)))


def test_labels_of_minus_one_are_named(log):
    y = log["click"].where(log["position"] < 5, -1)
    assert is_said("found -1 in 400 rows", log.drop(columns="click"), y)


# Ids ----------------------------------------------------------------------------------------
BIG = 1_234_567_890_123_456_000


@pytest.mark.parametrize(
    ("role", "dtype", "first"),
    [
        ("doc", "float64", BIG),
        ("qid", "float64", 2**53),
        ("session", "float32", 2**24),
        ("user", "float32", 2**30),
        ("qid", "float64", -BIG),
    ],
)
def test_floats_that_lost_digits_of_ids_are_an_error(role, dtype, first, log):
    base = log["session"] if role == "user" else log[role]
    bad = log.assign(**{role: (base + first).astype(dtype)})
    for frame in (bad, pl.from_pandas(bad)):
        with pytest.raises(ValueError, match=f"role '{role}' holds whole numbers as floats"):
            ranker().fit(frame, "click")
    fine = log.assign(**{role: base + first})
    assert said(fine) == []
    assert said(fine.astype({role: "Int64"})) == []
    assert said(fine.astype({role: str})) == []
    assert said(log.assign(**{role: base.astype(dtype)})) == []


def test_engines_refuse_them_too(log):
    duckdb = pytest.importorskip("duckdb")
    bad = log.assign(doc=(log["doc"] + BIG).astype(float)).drop(columns=["a", "b"])
    for frame in (bad, pl.from_pandas(bad).lazy(), duckdb.from_df(bad)):
        with pytest.raises(ValueError, match="'doc' holds whole numbers as floats"):
            aggregate_clicks(frame)
    single = pl.from_pandas(bad).lazy().with_columns(pl.col("doc").cast(pl.Float32) / 2**30)
    with pytest.raises(ValueError, match="from 16,777,216 on"):
        aggregate_clicks(single)


@pytest.mark.parametrize("how", ["csv", "parquet", "polars", "join"])
def test_the_remedy_for_lost_ids_keeps_them_whole(how, log, tmp_path):
    whole = log.assign(doc=log["doc"] + BIG).astype({"doc": "Int64"})
    whole.loc[7, "doc"] = pd.NA
    whole.to_csv(tmp_path / "log.csv", index=False)
    whole.to_parquet(tmp_path / "log.parquet")
    lost = whole.astype({"doc": "float64"})
    with pytest.raises(ValueError, match=r"dtype_backend='numpy_nullable'.*astype") as caught:
        ranker().fit(lost, "click")
    for part in ("dtype={'doc': 'Int64'}", "schema_overrides={'doc': pl.Int64}"):
        assert part in str(caught.value)
    read = {
        "csv": lambda: pd.read_csv(tmp_path / "log.csv", dtype={"doc": "Int64"}),
        "parquet": lambda: pd.read_parquet(
            tmp_path / "log.parquet", dtype_backend="numpy_nullable"
        ),
        "polars": lambda: pl.read_csv(tmp_path / "log.csv", schema_overrides={"doc": pl.Int64}),
        "join": lambda: log[["qid", "session", "position", "a", "b", "click"]].join(
            whole[["doc"]].drop(index=7)
        ),
    }[how]()
    with pytest.raises(ValueError, match="'doc' is missing in 1 row") as caught:
        ranker().fit(read, "click")
    assert "floats" not in str(caught.value)
    read = read.drop_nulls(["doc"]) if how == "polars" else read.dropna(subset=["doc"])
    assert said(read) == []
    assert len(set(read["doc"].to_list())) == N_DOCS


def test_a_document_twice_on_a_page_is_said_with_a_remedy_that_works(log):
    bad = log.copy()
    bad.loc[1, "doc"] = bad.loc[0, "doc"]
    bad.loc[8, "doc"] = bad.loc[5, "doc"]
    assert is_said("2 rows of 2 result pages show a document that an earlier row", bad)
    assert is_said("first in row 1 (doc ", bad)
    assert any("an earlier row" in each for each in describe_log(bad).remarks)
    assert said(bad.drop_duplicates(["qid", "session", "doc"])) == []


def test_pages_that_share_their_documents_are_no_pages_that_repeat_them(log):
    candidates = log[:3].assign(position=np.nan)  # never shown on this page
    assert not is_said("an earlier row", pd.concat([log, candidates], ignore_index=True))
    cells, rate = aggregate_clicks(
        log.drop(columns=["a", "b"]), log.drop_duplicates(["qid", "doc"])[["qid", "doc", "a", "b"]]
    )
    assert said(cells, rate) == []


# Propensities ---------------------------------------------------------------------------
def test_probabilities_of_actions_are_no_examination(log, rng):
    logits = rng.normal(size=N_DOCS)[log["doc"]]
    weight = np.exp(logits)
    of_list = weight / np.bincount(log["session"], weight)[log["session"]]
    of_document = weight / np.exp(rng.normal(size=N_DOCS)).sum() / 4
    of_chance = np.full(len(log), 1 / N_DOCS)
    for propensity in (of_list, of_list.round(3), of_document.clip(0, 1), of_chance):
        with pytest.warns(AssumptionWarning, match="probability with which a policy chose"):
            ranker().fit(log.assign(propensity=propensity), "click")


def test_examination_is_no_probability_of_actions(log, rng):
    curve = (1 / log["position"]).to_numpy()
    user = rng.integers(3, size=N_PAGES)[log["session"]]
    for propensity in (curve, curve / curve[:5].sum(), curve**0.5, curve ** (user + 0.5)):
        assert not is_said("propensity", log.assign(propensity=propensity))
    assert not is_said("chose", log.assign(propensity=1.0))


# Features -------------------------------------------------------------------------------
TIMES = {
    "seen": lambda log, rng: 1.7e9 + log["session"] * 60,
    "made": lambda log, rng: 1.6e12 + rng.integers(10**10, size=len(log)),
    "day": lambda log, rng: 20_240_100 + rng.integers(1, 29, size=len(log)),
    "created_at": lambda log, rng: 19_000 + rng.integers(900, size=len(log)),
}
NAMED = {
    "product_id": lambda log, rng: rng.integers(5000, size=len(log)),
    "customerId": lambda log, rng: rng.integers(5000, size=len(log)),
    "code": lambda log, rng: rng.integers(2**40, 2**62, size=len(log)),
    "number": lambda log, rng: np.arange(len(log)),
    "page_number": lambda log, rng: log["session"] + 17,
}
FINE = {
    "age": lambda log, rng: rng.integers(3000, size=len(log)),
    "price": lambda log, rng: np.exp(rng.normal(3, 1, len(log))).round(2),
    "views": lambda log, rng: np.exp(rng.normal(20, 2, len(log))).round(),
    "bytes": lambda log, rng: np.exp(rng.normal(24, 2, len(log))).round(),
    "brand_id": lambda log, rng: rng.integers(40, size=len(log)),
    "response_time": lambda log, rng: rng.integers(20_000, size=len(log)),
    "year": lambda log, rng: rng.integers(1990, 2025, size=len(log)),
    "chat": lambda log, rng: rng.integers(1000, 9000, size=len(log)),
}


@pytest.mark.parametrize("name", [*TIMES, *NAMED])
def test_features_that_name_rows_are_said(name, log, rng):
    odd = log.assign(**{name: (TIMES | NAMED)[name](log, rng)})
    what = "a time stamp" if name in TIMES else "(an id|the number of the row)"
    with pytest.warns(ClickDataWarning, match=f"feature '{name}' looks like {what}"):
        ranker().fit(odd, "click")
    with pytest.warns(ClickDataWarning, match=f"feature '{name}' looks like {what}"):
        ranker().fit(pl.from_pandas(odd), "click")


@pytest.mark.parametrize("name", FINE)
def test_quantities_name_no_rows(name, log, rng):
    assert said(log.assign(**{name: FINE[name](log, rng)})) == []


def test_reports_name_them_and_their_code_drops_them(log, rng):
    odd = log.assign(product_id=rng.integers(5000, size=len(log)))
    report = describe_log(odd, rename={"doc": "doc"})
    assert any("'product_id' looks like an id" in each for each in report.remarks)
    assert "log.drop(columns=['product_id'])" in report.code


@pytest.mark.parametrize(
    "forms",
    [
        {"a": 0.0, "b": 0.0},
        {"a": 1.0, "b": np.nan},
        {"a": np.nan, "b": np.nan},
        {"a": 3.0, "b": -1.0},
    ],
)
@pytest.mark.parametrize("kind", [LambdaMARTRanker, EnsembleRanker, NaiveRanker])
@pytest.mark.filterwarnings("ignore:In .* rows:UserWarning")
def test_constant_features_are_an_error_before_any_learner(kind, forms, log):
    with pytest.raises(ValueError, match="All 2 features are constant"):
        kind().fit(log.assign(**forms), "click")
    assert any(
        "All 2 features are constant" in each for each in describe_log(log.assign(**forms)).faults
    )


def test_one_document_that_differs_is_as_good_as_none(log):
    rare = log.assign(a=0.0, b=(log.index == 7) * 1.0)
    with pytest.raises(ValueError, match=r"but for 1 of \d+ documents"):
        LambdaMARTRanker().fit(rare, "click")
    few = log.assign(a=0.0, b=((log["qid"] % 3 == 0) & (log["doc"] == 1)) * 1.0)
    assert not is_said("constant", few)
    assert not is_said("constant", log.assign(a=0.0))


def test_trees_that_see_no_feature_say_so_in_our_words(log):
    held = log.assign(a=0.0, b=(log["qid"] * 10 + log["doc"]).isin([1, 12, 23]) * 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            LambdaMARTRanker(random_state=0, debiasing="none").fit(held, "click")
        except ValueError as error:
            assert "No feature has two values" in str(error)  # noqa: PT017


# Rankings -------------------------------------------------------------------------------
def test_a_ranker_that_learned_nothing_is_named(log):
    with pytest.warns(ClickDataWarning, match="LambdaMARTRanker gives all documents of a query"):
        LambdaMARTRanker(debiasing="none", min_child_samples=5000, n_estimators=2).fit(
            log, "click"
        )


@pytest.fixture
def judged(log):
    documents = log.drop_duplicates(["qid", "doc"])[["qid", "doc", "a", "b"]]
    return documents.assign(relevance=(documents["b"] > 0) * 1.0)


NOTHING = {
    "zero": lambda qid: qid * 0.0,
    "one number per query": lambda qid: qid * 1.0,
    "rounding": lambda qid: 0.3 + 1e-17 * np.arange(len(qid)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_constant_rankings_are_not_compared(name, judged, log):
    scores = NOTHING[name]
    with pytest.raises(ValueError, match="'new' gives all documents of each of the"):
        compare_rankers({"old": "a", "new": scores(judged["qid"])}, judged)
    X = log.drop(columns="click")
    for given in ((scores(log["qid"]), log["a"]), (log["a"], scores(log["qid"]))):
        if name != "rounding":  # there scores differ between rows of a document
            with pytest.raises(ValueError, match=r"scores_[ab] \('[ab]'\) gives all documents"):
                policy_difference(X, log["click"], *given)
    if name != "rounding":
        with pytest.raises(ValueError, match="scores gives all documents"):
            policy_value(X, log["click"], scores(log["qid"]))


def test_rankings_without_scores_of_some_queries_are_named(judged):
    for share in (0.2, 0.5):
        some = judged["b"].where(judged["qid"] >= 30 * share, 0.0)
        with pytest.warns(ClickDataWarning, match="'new' gives all documents of a query"):
            compare_rankers({"old": "a", "new": some}, judged)
    one = judged["b"].where(judged["qid"] > 0, 0.0)
    compare_rankers({"old": "a", "new": one}, judged)  # no warning
    grades = some.round()  # which tie everywhere
    compare_rankers({"old": "a", "new": grades}, judged)


def test_scorers_warn_of_constant_estimators_and_score_them(judged):
    with pytest.warns(ClickDataWarning, match="The estimator gives all documents"):
        score = RankingScorer()(np.zeros(len(judged)), judged)
    assert 0 < score < 1
    RankingScorer()("b", judged)  # no warning


# The table ------------------------------------------------------------------------------
def test_the_study_prints_the_table():
    text = " ".join(STUDY.read_text().split())
    for unit in UNITS:
        assert unit.instead in text
