"""The same log as rows, as counts and as rates: one model at every door."""

import re
import warnings

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr import ClickDataset, DLARanker, aggregate_clicks, describe_log
from skultr._log._click_units import ClickRates, as_known_rates, as_rates, lists_of_counted
from skultr.click_models import PBMModel
from skultr.evaluation import policy_value
from skultr.exceptions import ClickDataWarning
from skultr.identifiability import IdentifiabilityGraph
from skultr.metrics import ClickLikelihoodScorer, IPSScorer, PerplexityScorer
from skultr.propensity import (
    InterventionHarvesting,
    RegressionEMPropensity,
    debiased_table,
    relevance_labels,
)
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker, PairDebiasRanker

CURVE = [1.0, 1 / 2, 1 / 3, 1 / 4]
KEYS = ["qid", "doc", "position", "a", "b"]


def impressions_of_pages(n_queries=12, n_docs=6, n_pages=300, n_places=4, noise=0.7, seed=0):
    """Pages of a log as rows, with their sessions."""
    rng = np.random.default_rng(seed)
    query = rng.integers(n_queries, size=n_pages)
    a, b = rng.normal(size=(2, n_queries, n_docs))
    order = np.argsort(-(a[query] + noise * rng.gumbel(size=(n_pages, n_docs))), axis=1)
    doc = order[:, :n_places]
    relevance = 1 / (1 + np.exp(-b[query[:, None], doc]))
    click = rng.random(doc.shape) < relevance / np.arange(1, n_places + 1)
    qid, doc = np.repeat(query, n_places), doc.ravel()
    return pd.DataFrame(
        {
            "qid": qid,
            "session": np.repeat(np.arange(n_pages), n_places),
            "doc": doc,
            "position": np.tile(np.arange(1, n_places + 1), n_pages),
            "a": a[qid, doc],
            "b": b[qid, doc],
            "click": click.ravel().astype(int),
        }
    )


PAGES = impressions_of_pages()
#: The pages forgotten: each row is a list of its own, as those of a counted table.
ROWS = PAGES.assign(session=np.arange(len(PAGES)))
SUMS = {"impressions": ("click", "size"), "click": ("click", "sum")}
COUNTS = PAGES.groupby(KEYS, as_index=False).agg(**SUMS)
RATES = COUNTS.assign(click=COUNTS["click"] / COUNTS["impressions"])
FORMS = {"rows": ROWS, "counts": COUNTS, "rates": RATES}
#: The same pages with their sessions: one by one, and counted list by list.
DISTINCT, RATE = aggregate_clicks(PAGES)
LISTS = {
    "rows": PAGES,
    "counts": DISTINCT.assign(click=np.rint(RATE * DISTINCT["impressions"])),
    "rates": DISTINCT.assign(click=RATE),
}
CANDIDATES = PAGES.drop_duplicates(["qid", "doc"])[["qid", "a", "b"]]


def assert_all_equal(of_form, logs=FORMS):
    """A function of a log gives the same numbers for rows, counts and rates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, *others = (np.asarray(of_form(log), dtype=float) for log in logs.values())
    for found in others:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


# One model ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "ranker",
    [
        NaiveRanker(max_epochs=2, random_state=0),
        IPSRanker(propensity=CURVE, max_epochs=2, random_state=0),
        DLARanker(max_epochs=2, random_state=0),
        PairDebiasRanker(max_epochs=2, random_state=0),
        LambdaMARTRanker(n_estimators=5, random_state=0),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
@pytest.mark.parametrize("logs", [FORMS, LISTS], ids=["table", "lists"])
def test_rankers_give_one_model(ranker, logs):
    assert_all_equal(lambda log: ranker.fit(log, "click").predict(CANDIDATES), logs)


def test_click_models_that_count_give_one_model():
    assert_all_equal(lambda log: PBMModel().fit(log, "click").documents_["relevance"])


@pytest.mark.parametrize(
    "estimator", [InterventionHarvesting(), RegressionEMPropensity(relevance="embedding")]
)
def test_propensities_are_the_same(estimator):
    places = pd.DataFrame({"qid": 0, "doc": 0, "position": [1, 2, 3, 4], "a": 0.0, "b": 0.0})
    assert_all_equal(lambda log: estimator.fit(log, "click").predict(places))


DOORS = {
    "labels": lambda log: relevance_labels(log, "click", propensity=CURVE),
    "table": lambda log: debiased_table(log, propensity=CURVE).sort_values(["qid", "doc"])[
        ["label", "weight"]
    ],
    "graph": lambda log: IdentifiabilityGraph.from_log(log).pairs.clicks,
    "report": lambda log: describe_log(log).clicks,
    "aggregate": lambda log: _cells(*aggregate_clicks(log)),
    "polars": lambda log: _cells(*aggregate_clicks(pl.from_pandas(log).lazy())),
    "duckdb": lambda log: _cells(*aggregate_clicks(duckdb.from_df(log))),
}


def _cells(X, rate):
    table = pd.DataFrame({name: np.asarray(X[name]) for name in (*KEYS, "impressions")})
    table["clicks"] = rate * table["impressions"]
    return table.groupby(KEYS)[["impressions", "clicks"]].sum()


@pytest.mark.parametrize("door", DOORS)
def test_doors_give_the_same_numbers(door):
    assert_all_equal(DOORS[door])


def test_values_of_rankings_are_the_same():
    logs = {form: FORMS[form] for form in ("counts", "rates")}  # rows of pages tell more
    assert_all_equal(lambda log: policy_value(log, "click", log["b"]).value, logs)


@pytest.mark.parametrize("engine", [lambda log: pl.from_pandas(log).lazy(), duckdb.from_df])
def test_fits_in_engines_give_the_same(engine):
    curve = InterventionHarvesting()
    labels = DOORS["labels"]
    assert_all_equal(lambda log: curve.fit(engine(log), "click").examination_["examination"])
    assert_all_equal(lambda log: labels(engine(log)).sort_index())
    assert_all_equal(lambda log: PBMModel().fit(engine(log), "click").examination_["examination"])


def test_scorers_give_the_same():
    ranker = NaiveRanker(max_epochs=2, random_state=0)
    model = PBMModel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker.fit(ROWS, "click")
        model.fit(ROWS, "click")
    counted = {form: FORMS[form] for form in ("counts", "rates")}
    likelihood = ClickLikelihoodScorer(propensity=CURVE)
    assert_all_equal(
        lambda log: likelihood(ranker, log.drop(columns="click"), log["click"]), counted
    )
    with pytest.raises(ValueError, match=r"with their 'session'.*ClickLikelihoodScorer"):
        IPSScorer(propensity=CURVE)(ranker, COUNTS.drop(columns="click"), COUNTS["click"])
    ips = IPSScorer(propensity=CURVE)
    assert_all_equal(lambda log: ips(ranker, log.drop(columns="click"), log["click"]), LISTS)
    perplexity = PerplexityScorer()
    assert_all_equal(lambda log: perplexity(model, log.drop(columns="click"), log["click"]))
    assert_all_equal(lambda log: model.score(log.drop(columns="click"), log["click"]))


def test_datasets_give_the_same(tmp_path):
    def clicks(log):
        path = tmp_path / str(len([*tmp_path.iterdir()]))
        cells, rate = ClickDataset.from_parquet(log, path=path).to_cells(["position"])
        cells = cells.assign(clicks=rate * cells["impressions"])
        return cells.sort_values(["qid", "doc", "position"])[["impressions", "clicks"]]

    assert_all_equal(clicks)


def test_arrays_with_keywords_give_the_same():
    def scores(log):
        roles = {name: log[name] for name in ("qid", "doc", "position")}
        more = [name for name in ("session", "impressions") if name in log]
        roles |= {name: log[name] for name in more}
        ranker = NaiveRanker(max_epochs=2, random_state=0)
        return ranker.fit(log[["a", "b"]].to_numpy(), log["click"], **roles).predict(
            CANDIDATES[["a", "b"]].to_numpy()
        )

    assert_all_equal(scores)


def test_arrays_of_a_graph_may_hold_counts_or_rates():
    def clicks(values):
        graph = IdentifiabilityGraph(
            COUNTS["doc"], COUNTS["position"], impressions=COUNTS["impressions"], clicks=values
        )
        return graph.pairs.clicks

    np.testing.assert_allclose(clicks(RATES["click"]), clicks(COUNTS["click"]))


def test_outcomes_are_counted_as_the_clicks_are():
    bought = (PAGES["click"] * (np.arange(len(PAGES)) % 3 == 0)).astype(float)
    keys = PAGES.assign(outcome_purchase=bought).groupby(KEYS, as_index=False)
    counts = keys.agg(**SUMS, outcome_purchase=("outcome_purchase", "sum"))
    rates = counts.assign(
        click=counts["click"] / counts["impressions"],
        outcome_purchase=counts["outcome_purchase"] / counts["impressions"],
    )
    rows = ROWS.assign(outcome_purchase=bought)

    def labels(log):
        return relevance_labels(log, "outcome_purchase", propensity=CURVE)["label"]

    assert_all_equal(labels, {"rows": rows, "counts": counts, "rates": rates})


# Lists ----------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["counts", "rates"])
def test_a_query_that_was_served_as_one_list_stays_one(form):
    pages = impressions_of_pages(noise=0)
    counts = pages.groupby(KEYS, as_index=False).agg(**SUMS)
    if form == "rates":
        counts["click"] = counts["click"] / counts["impressions"]
    ranker = DLARanker(max_epochs=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (ranker.fit(log, "click").predict(CANDIDATES) for log in (counts, pages))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_lists_of_counted_rows():
    group = np.array([0, 0, 1, 1, 2, 2, 2, 3])
    position = np.array([2, 1, 1, 1, 1, 2, 0, 1])
    impressions = np.array([5, 5, 3, 3, 9, 4, 1, 2.0])
    code = lists_of_counted(group, position, impressions, position > 0)
    assert code.tolist() == [0, 0, 1, 2, 3, 4, 3, 5]


def test_a_log_of_rows_still_needs_sessions():
    with pytest.raises(ValueError, match="aggregate_clicks") as error:
        NaiveRanker().fit(PAGES.drop(columns="session"), "click")
    assert "without 'session'" in str(error.value)
    with pytest.warns(UserWarning, match="pages are not known"):
        X, rate = aggregate_clicks(PAGES.drop(columns="session"))
    NaiveRanker(max_epochs=1).fit(X, rate)


# What y is read as ------------------------------------------------------------------------
def read_as(y, impressions, **columns):
    """Numbers of clicks that are read."""
    X = pd.DataFrame({"qid": 0, "doc": np.arange(len(y)), "impressions": impressions} | columns)
    return (as_rates(X, np.array(y, dtype=float), {}) * X["impressions"]).tolist()


def test_whole_numbers_are_counts():
    assert read_as([3, 0, 1], [10, 10, 10]) == [3, 0, 1]
    assert read_as([2, 0], [2, 1]) == [2, 0]
    assert read_as([2.5, 0], [2.5, 1]) == [2.5, 0]  # both are weighted


def test_fractions_are_rates():
    np.testing.assert_allclose(read_as([0.3, 0, 1], [10, 10, 10]), [3, 0, 10])


def test_one_click_is_likelier_than_a_click_in_each_impression():
    with pytest.warns(ClickDataWarning, match=r"in 1 row of several .* \(up to 500\).*as counts"):
        assert read_as([1, 0], [500, 400]) == [1, 0]


def test_the_advice_for_rows_that_were_clicked_in_all_impressions_works():
    y, impressions = np.array([1, 0]), np.array([500, 400])
    assert read_as(y * impressions, impressions) == [500, 0]


#: Rows that were counted by the click as well: without pages, on pages, and on pages of documents
#: without ids.
BY_CLICK = {
    "rows": {"doc": [1, 1, 2, 2], "position": [1, 1, 2, 2], "impressions": [5, 2, 3, 3]},
    "sessions of one row": {
        "session": [1, 2, 3, 4],
        "doc": [1, 1, 2, 2],
        "position": [1, 1, 2, 2],
        "impressions": [5, 2, 3, 3],
    },
    "pages": {"session": [1, 2, 2, 1], "doc": [1, 1, 2, 2], "impressions": [5, 3, 3, 5]},
    "pages without ids": {"session": [1, 1, 2, 2], "impressions": [5, 5, 3, 3], "doc": None},
}


@pytest.mark.parametrize("form", BY_CLICK)
def test_pages_and_rows_counted_by_their_clicks_hold_rates(form):
    columns = BY_CLICK[form]
    X = pd.DataFrame({"qid": 0, **columns}).dropna(axis=1)
    with pytest.warns(ClickDataWarning, match=r"read as click rates.*y \* impressions"):
        rates = as_rates(X, np.array([1.0, 0, 1, 0]), {})
    assert rates.tolist() == [1, 0, 1, 0]
    counts = rates * X["impressions"].to_numpy()
    assert as_rates(X, counts, {}).tolist() == [1, 0, 1, 0]  # and says nothing
    once = np.asarray(rates) / X["impressions"].to_numpy()
    assert as_rates(X, once, {}).tolist() == once.tolist()


#: Clicks that are rare, in a table of rows with sessions that tell nothing of the click.
SPARSE = {
    "a session per row": {"session": [1, 2, 3, 4], "doc": [1, 2, 3, 4]},
    "a session per query": {"session": [1, 1, 2, 2], "doc": [1, 2, 3, 4]},
    "a session per query and day": {"session": [1, 1, 2, 2], "doc": [1, 2, 1, 2]},
}


@pytest.mark.parametrize("form", SPARSE)
def test_rare_clicks_of_a_table_with_sessions_are_counts(form):
    y = [1, 0, 1, 0]
    with pytest.warns(ClickDataWarning, match=r"read as counts.*y / impressions"):
        assert read_as(y, [30, 30, 40, 40], **SPARSE[form]) == y


def test_two_readings_that_hardly_differ_are_not_worth_a_warning():
    pages = {"session": [1, 1, 2, 2], "doc": [1, 2, 1, 2]}
    assert read_as([1, 0, 0, 1], [2, 2, 1, 1], **pages) == [2, 0, 0, 1]


@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb"])
def test_rates_of_0_and_1_are_told_apart_in_engines(engine):
    patterns = PAGES.merge(
        PAGES.groupby("session")["click"].agg(tuple).rename("pattern"), on="session"
    )
    patterns["shown"] = patterns["session"].map(PAGES.groupby("session")["doc"].agg(tuple))
    first = patterns.groupby(["qid", "shown", "pattern"])["session"].transform("min")
    folded = PAGES.assign(impressions=4)[PAGES["session"] == first]
    with pytest.warns(ClickDataWarning, match="is read as click rates"):
        X, rate = aggregate_clicks(ENGINES[engine](folded))
    clicks = (rate * np.asarray(X["impressions"])).sum()
    assert clicks == pytest.approx(4 * folded["click"].sum())


@pytest.mark.parametrize("door", ["fit", "polars", "duckdb", "dataset"])
def test_a_counted_table_of_one_impression_per_row_fits(door, tmp_path):
    once = COUNTS.assign(impressions=1, click=(COUNTS["click"] > 1).astype(int))
    fits = {
        "fit": lambda: NaiveRanker(max_epochs=1).fit(once, "click"),
        "polars": lambda: aggregate_clicks(pl.from_pandas(once).lazy()),
        "duckdb": lambda: aggregate_clicks(duckdb.from_df(once)),
        "dataset": lambda: NaiveRanker(max_epochs=1).fit(
            ClickDataset.from_parquet(once, path=tmp_path / "log")
        ),
    }
    fits[door]()


def test_rows_of_pages_need_sessions_whatever_their_impressions():
    log = PAGES.drop(columns="session").assign(impressions=1)
    with pytest.raises(ValueError, match="aggregate_clicks"):
        NaiveRanker().fit(log, "click")
    NaiveRanker(max_epochs=1).fit(*aggregate_clicks(log))


@pytest.mark.parametrize("least", [0.5, 1.5])
def test_clicks_of_0_and_1_beside_fractions_are_no_counts(least):
    assert read_as([1, 0], [least, 2 + least]) == [least, 0]
    log = pd.concat([PAGES, PAGES.assign(session=PAGES["session"] + 1000)], ignore_index=True)
    log["impressions"] = least + log["doc"] % 3
    with pytest.raises(ValueError, match=r"holds fractions.*rename\(columns="):
        NaiveRanker().fit(log, "click")
    feature = log.rename(columns={"impressions": "impressions_feature"})
    NaiveRanker(max_epochs=1).fit(feature, "click")


def test_more_clicks_than_impressions_are_not_possible():
    assert read_as([1, 0, 1], [0.5, 2, 3]) == [0.5, 0, 3]


def test_grades_stay_grades():
    grades = np.array([0, 2, 1.0])
    X = pd.DataFrame({"impressions": [5, 5, 5], "relevance": grades})
    assert as_rates(X, grades, {}).tolist() == [0, 2, 1]
    assert as_rates(X[["relevance"]], grades + 1, {}).tolist() == [1, 3, 2]


def test_rates_are_told_once():
    rates = as_known_rates(np.array([1.0, 0.0]))
    assert read_as([1, 0], [1, 1]) == [1, 0]
    X = pd.DataFrame({"impressions": [9, 9]})
    assert as_rates(X, rates[::-1], {}).tolist() == [0, 1]
    assert type(rates[:1]) is ClickRates
    assert type(rates * 2) is np.ndarray
    assert isinstance(rates.sum(), float)


ENGINES = {
    "pandas": lambda log: log,
    "polars": lambda log: pl.from_pandas(log).lazy(),
    "duckdb": duckdb.from_df,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_more_clicks_than_impressions_are_an_error_with_the_row_the_value_and_a_remedy(engine):
    wrong = COUNTS.copy()
    wrong.loc[3, "click"] = 2 + wrong.loc[3, "impressions"]
    message = f"found {wrong.loc[3, 'click']} in 1 row.*add the clicks"
    with pytest.raises(ValueError, match=message):
        aggregate_clicks(ENGINES[engine](wrong))
    mended = wrong.assign(impressions=wrong["impressions"] + wrong["click"])
    aggregate_clicks(ENGINES[engine](mended))


def test_a_fit_names_the_row_with_more_clicks_than_impressions():
    wrong = COUNTS.copy()
    wrong.loc[3, "click"] = 2 + wrong.loc[3, "impressions"]
    with pytest.raises(ValueError, match=re.escape("'click' is missing, or is not")) as error:
        NaiveRanker().fit(wrong, "click")
    assert "first in row 3" in str(error.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_percentages_are_neither_counts_nor_rates(engine):
    percent = RATES.assign(click=100 * RATES["click"] + 0.25 * (RATES["click"] > 0))
    with pytest.raises(ValueError, match=r"neither numbers of clicks nor click rates.*by 100"):
        aggregate_clicks(ENGINES[engine](percent))
    aggregate_clicks(ENGINES[engine](percent.assign(click=percent["click"] / 101)))


@pytest.mark.parametrize("engine", ENGINES)
def test_clicks_of_0_and_1_are_told_apart_in_engines(engine):
    sparse = COUNTS.assign(click=np.arange(len(COUNTS)) % 5 == 0).astype({"click": int})
    with pytest.warns(ClickDataWarning, match="is read as counts"):
        X, rate = aggregate_clicks(ENGINES[engine](sparse))
    assert (rate * np.asarray(X["impressions"])).sum() == pytest.approx(sparse["click"].sum())


@pytest.mark.parametrize("engine", ["pandas", "polars"])
def test_roles_say_that_clicks_are_counted(engine):
    told = {}
    for form, log in FORMS.items():
        told[form] = PBMModel().fit(ENGINES[engine](log), "click").roles_["click"]
    assert told == {
        "rows": "y",
        "counts": "y (clicks of several impressions)",
        "rates": "y (click rates of several impressions)",
    }


def test_roles_say_that_an_array_of_clicks_is_counted():
    X = COUNTS.drop(columns="click")
    roles = LambdaMARTRanker(n_estimators=2, propensity=CURVE).fit(X, COUNTS["click"]).roles_
    assert roles["y"] == "y (clicks of several impressions)"


def test_the_report_says_how_clicks_are_read():
    for log, unit in ((COUNTS, "numbers of clicks"), (RATES, "click rates")):
        report = describe_log(log)
        assert not report.faults
        assert any(f"read as {unit}" in remark for remark in report.remarks)
        assert report.clicks["impressions"].sum() == len(PAGES)
    assert "'click'" in describe_log(COUNTS.assign(click=10**6)).faults[0]


def test_the_report_of_an_export_of_impressions_clicks_and_their_rate():
    table = COUNTS.rename(columns={"qid": "query", "click": "clicks"}).drop(columns="doc")
    table["page"] = "https://example.test/" + COUNTS["doc"].astype(str)
    table["ctr"] = table["clicks"] / table["impressions"]
    report = describe_log(table)
    assert report.rename == {
        "query": "qid",
        "clicks": "click",
        "page": "doc",
        "ctr": "outcome_ctr",
    }
    assert not report.faults
