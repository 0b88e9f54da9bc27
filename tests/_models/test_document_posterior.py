"""Relevance of documents given clicks, with a prior from where production put them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from benchmarks.studies.labels import coverage, intervals, small_log
from skultr import aggregate_clicks
from skultr._log._cells import Cells
from skultr._models._document_posterior import document_posterior
from skultr.click_models import PBMModel
from skultr.propensity import InterventionHarvesting, relevance_labels

CURVE = 1 / np.arange(1.0, 6.0)
COLUMNS = ["label", "lower", "upper", "effective_sample", "prior_mean"]


def made(n_queries, impressions, *, seed=0, noise=1.0):
    """Rows by document and position, their click rates, and relevance by row.

    Each query has 5 documents. One list has the order of production, another the order in which
    the documents move down by one place, so that all positions are compared.
    """
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1.5, 4.0, (n_queries, 5))
    score = relevance + rng.normal(0, 0.1 * noise, relevance.shape)
    order = np.argsort(-score, axis=1)
    lists = np.concatenate([order, np.roll(order, 1, axis=1)])
    query = np.repeat(np.tile(np.arange(n_queries), 2), 5)
    doc, position = lists.ravel(), np.tile(np.arange(1, 6), 2 * n_queries)
    true = relevance[query, doc]
    clicks = rng.binomial(impressions, true * CURVE[position - 1]) / impressions
    X = pd.DataFrame(
        {
            "qid": query,
            "session": np.repeat(np.arange(2 * n_queries), 5),
            "doc": doc,
            "position": position,
            "impressions": impressions,
        }
    )
    return X, clicks, true, score[query, doc]


def labels_of(X, clicks, **settings):
    return relevance_labels(X, clicks, propensity=CURVE, interval=True, **settings)


def relevance_of(labels, X, true):
    key = pd.MultiIndex.from_frame(X[["qid", "doc"]])
    by_doc = pd.Series(true, key).groupby(level=[0, 1]).first()
    return by_doc.reindex(pd.MultiIndex.from_frame(labels[["qid", "doc"]])).to_numpy()


@pytest.mark.parametrize("impressions", [5, 500])
def test_intervals_cover_the_true_relevance(impressions):
    # 5,000 documents: the standard error of the coverage is sqrt(.95 * .05 / 5000) = .003.
    X, clicks, true, _ = made(1_000, impressions)
    labels = labels_of(X, clicks)
    relevance = relevance_of(labels, X, true)
    covered = labels["lower"].le(relevance) & labels["upper"].ge(relevance)
    assert 0.9 < covered.mean() < 0.98
    model = PBMModel().fit(X, clicks)
    found = model.documents_
    covered = (found["lower"].to_numpy() <= relevance) & (found["upper"].to_numpy() >= relevance)
    assert 0.9 < covered.mean() < 0.98


@pytest.mark.parametrize("curve", ["known", "PBMModel", "harvested"])
@pytest.mark.parametrize("impressions", [2, 40])
@pytest.mark.parametrize("production", ["weak", "strong"])
@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
def test_intervals_know_that_prior_and_curve_are_estimated(production, impressions, curve):
    # Six logs of 1,000 documents that share a prior and a curve: over 30 logs coverage has a
    # standard deviation of .015 at most, and that of the some 190 hardly examined documents of a
    # log with 40 pages a query one of .037. Three standard errors of the mean below .95:
    cell = {"production": production, "impressions": impressions, "curve": curve, "world": "own"}
    found = pd.DataFrame([row for seed in range(6) for row in intervals(cell, None, seed)])
    assert len(found) > 3  # harvesting may find a position that no click compares
    assert found["cover"].mean() > 0.95 - 3 * 0.015 / np.sqrt(len(found))
    assert found["few"].mean() > 0.95 - 3 * 0.037 / np.sqrt(len(found))
    # As wide as the clicks of a document by themselves they would be of no use.
    known = curve == "known" or impressions == 40
    assert found["width"].mean() < found["exact"].mean() * (0.8 if known else 1.0)


def test_rounds_that_undo_each_other_converge():
    """In this log, whole rounds of the spread and the factors of queries go back and forth."""
    log, _ = small_log(np.random.default_rng(3003), "weak", 2, "own")
    # A warning that they did not converge would be an error.
    relevance_labels(log, "click", propensity=1 / np.arange(1.0, 11.0), interval=True)


def test_many_clicks_leave_nothing_of_the_prior():
    X, clicks, true, _ = made(200, 1_000_000)
    labels = labels_of(X, clicks)
    np.testing.assert_allclose(labels["label"], relevance_of(labels, X, true), atol=0.01)


def test_few_clicks_leave_the_place():
    X, clicks, true, score = made(2_000, 2)
    labels = labels_of(X.assign(production=score), clicks)
    relevance = relevance_of(labels, X, true)
    by_score = labels.assign(score=relevance_of(labels, X, score)).sort_values("score")
    best, worst = by_score.groupby("qid").tail(1), by_score.groupby("qid").head(1)
    assert best["label"].mean() > 3 * worst["label"].mean()
    # In four impressions clicks over examinations are worth less than a fifth of the prior, and
    # together they are worth more than either. (In two the label's error is that of the prior.)
    labels["rate"] = labels["clicks"] / labels["effective_sample"]
    error = {
        name: np.mean((labels[name] - relevance) ** 2) for name in ("label", "prior_mean", "rate")
    }
    assert error["label"] < error["prior_mean"] < error["rate"] / 5


def test_production_is_read_in_any_unit_and_only_by_the_prior():
    X, clicks, _, score = made(100, 3)
    served = labels_of(X.assign(production=score), clicks)
    for other in (10 * score - 7.0, score + X["qid"].to_numpy()):  # also one offset per query
        again = labels_of(X.assign(production=other), clicks)
        np.testing.assert_allclose(again[COLUMNS], served[COLUMNS], rtol=1e-4)
    assert np.abs(served["label"] - labels_of(X, clicks)["label"]).max() > 0.01
    plain = relevance_labels(X.assign(production=score), clicks, propensity=CURVE)
    assert "lower" not in plain
    pd.testing.assert_frame_equal(plain, relevance_labels(X, clicks, propensity=CURVE))
    logged = PBMModel().fit(X.assign(production=score), clicks).documents_
    assert (
        np.abs(logged["relevance"] - PBMModel().fit(X, clicks).documents_["relevance"]).max() > 0
    )


def test_raw_rows_aggregated_rows_and_polars_give_the_same_labels():
    X, clicks, _, _ = made(30, 1)
    X = X.drop(columns="impressions")
    X = pd.concat([X, X.assign(session=X["session"] + 1000)], ignore_index=True)
    clicks = np.append(clicks, clicks[::-1])
    expected = labels_of(X, clicks)
    lists, rates = aggregate_clicks(X.assign(click=clicks))
    strings = X.assign(doc="d" + X["doc"].astype(str), qid="q" + X["qid"].map("{:04d}".format))
    for log, y in ((lists, rates), (pl.from_pandas(X), clicks), (strings, clicks)):
        found = labels_of(log, y)
        np.testing.assert_allclose(found[COLUMNS], expected[COLUMNS], rtol=1e-4)
    raw, total = PBMModel().fit(X, clicks), PBMModel().fit(lists, rates)
    np.testing.assert_allclose(raw.documents_, total.documents_, rtol=1e-3)
    np.testing.assert_allclose(raw.examination_, total.examination_, rtol=1e-5)


@pytest.mark.parametrize(
    ("qid", "doc", "position", "clicks"),
    [
        ([1], ["a"], [1], [1.0]),
        ([1], ["a"], [1], [0.0]),
        ([1, 1], ["a", "b"], [1, 2], [0.0, 0.0]),
        ([1, 2, 3], ["a", "b", "c"], [1, 1, 1], [1.0, 0.0, 1.0]),
        ([1, 2, 3], ["a", "b", "c"], [4, 4, 4], [1.0, 0.5, 1.0]),
    ],
    ids=["one document", "one without click", "no clicks", "one position", "one deep position"],
)
@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
def test_labels_of_next_to_nothing(qid, doc, position, clicks):
    X = pd.DataFrame({"qid": qid, "doc": doc, "position": position, "impressions": 10})
    labels = labels_of(X, clicks)
    model = PBMModel().fit(X, clicks)
    for table in (labels[COLUMNS[:3]], model.documents_[["relevance", "lower", "upper"]]):
        values = table.to_numpy()
        assert np.isfinite(values).all()
        assert ((values >= 0) & (values <= 1)).all()
        assert (values[:, 1] <= values[:, 0] + 1e-9).all()
        assert (values[:, 0] <= values[:, 2] + 1e-9).all()
    np.testing.assert_allclose(labels["effective_sample"], 10 * CURVE[np.array(position) - 1])
    assert np.isfinite(model.predict_click(X)).all()


def test_a_document_learns_from_the_others_of_its_query():
    # Ten documents a query, all at the first position; in odd queries the others are clicked.
    query = np.repeat(np.arange(40), 10)
    clicks = np.where(query % 2, 30.0, 5.0)
    clicks[::10] = 0.0
    weight = np.full(400, 100.0)
    weight[::10] = 1e-9  # the first of each query is hardly examined
    cells = Cells(np.arange(400), np.zeros(400, dtype=int), clicks, weight, 400, 1)
    found = document_posterior(cells, np.ones(1), query=query, place=np.ones(400))
    unseen = found.mean[::10]
    # 9 documents with 30 or 5 clicks in 100 examinations each: .30 and .05, but for the prior.
    np.testing.assert_allclose(unseen[1::2], 0.30, atol=0.02)
    np.testing.assert_allclose(unseen[::2], 0.05, atol=0.01)
    np.testing.assert_allclose(unseen, found.prior_mean[::10])


def test_labels_read_the_errors_of_an_estimated_curve():
    X, clicks, _, _ = made(50, 20)
    harvesting = InterventionHarvesting(n_bootstrap=0).fit(X, clicks)
    curve = harvesting.predict(pd.DataFrame({"position": np.arange(1, 6)}))
    known = relevance_labels(X, clicks, propensity=curve, interval=True)
    found = relevance_labels(
        X, clicks, propensity=InterventionHarvesting(n_bootstrap=0), interval=True
    )
    np.testing.assert_allclose(found["label"], known["label"])
    # Squares of the log of the upper end over the label add up with those of 1.96 standard errors,
    # for documents that were at the first two positions equally often the mean over examinations.
    error = 1.96 * harvesting.examination_["standard_error"].to_numpy()
    above, alone = (np.log(table["upper"] / table["label"]) ** 2 for table in (found, known))
    inside = found["upper"] < 1
    added = np.sqrt((above - alone)[inside])
    moved = X.loc[X["position"].eq(1), ["qid", "doc"]].merge(
        X.loc[X["position"].eq(2), ["qid", "doc"]]
    )
    pair = found.reset_index().merge(moved)["index"]
    weight = curve[1] / (1 + curve[1])
    np.testing.assert_allclose(added.reindex(pair).dropna(), weight * error[1], rtol=1e-6)


def test_an_error_of_examination_widens_the_interval():
    arguments = Cells.from_rows(*np.tile(np.arange(4), (2, 1)), np.full(4, 1e6), np.full(4, 4e6))
    place = {"query": np.zeros(4, dtype=int), "place": np.arange(4.0)}
    narrow = document_posterior(arguments, np.ones(4), **place)
    wide = document_posterior(arguments, np.ones(4), **place, error=np.full(4, 0.1))
    np.testing.assert_allclose(wide.mean, narrow.mean)
    # Relevance .25 with a relative error of .1: about .25 +- 1.96 * .025.
    np.testing.assert_allclose(wide.upper - wide.lower, 2 * 1.96 * 0.025, rtol=0.02)
    assert (narrow.upper - narrow.lower).max() < 0.002


def test_intervals_need_user_aware_labels():
    X, clicks, _, _ = made(3, 2)
    with pytest.raises(ValueError, match="user_aware"):
        labels_of(X, clicks, user_aware=False)


@pytest.mark.parametrize("production", ["weak", "strong"])
def test_intervals_of_users_who_repeat_their_clicks(production):
    # Each of 400 users repeats his page and its clicks five times: a fifth of it is evidence.
    once, relevance = small_log(np.random.default_rng(0), production, 4, "own")
    pages = [once.assign(session=5 * once["session"] + k, who=once["session"]) for k in range(5)]
    X = pd.concat(pages, ignore_index=True)

    def found(**cluster):
        curve = 1 / np.arange(1.0, 11.0)
        table = relevance_labels(X, "click", propensity=curve, interval=True, **cluster)
        return table, coverage(table, relevance[table["qid"], table["doc"]])

    (alone, covered), (table, with_users) = found(), found(cluster="who")
    assert covered < 0.75
    assert with_users > 0.93
    # Clicks that labels follow disperse a little less.
    factor = alone["effective_sample"] / table["effective_sample"]
    np.testing.assert_allclose(factor, factor[0])
    assert 3.5 < factor[0] < 5.2
    # Pages of users who decide anew are independent.
    once["who"] = once["session"] % 20
    free = relevance_labels(once, "click", propensity=1 / np.arange(1.0, 11.0), interval=True)
    again = relevance_labels(
        pl.from_pandas(once).lazy(),
        "click",
        propensity=1 / np.arange(1.0, 11.0),
        interval=True,
        cluster="who",
    )
    both = free.merge(again, on=["qid", "doc"])
    np.testing.assert_allclose(both["effective_sample_y"], both["effective_sample_x"], rtol=0.1)
    with pytest.raises(ValueError, match="no click model"):
        relevance_labels(X, "click", propensity=PBMModel(), interval=True, cluster="who")
    gaps = once["who"].where(once["who"] > 0)
    with pytest.raises(ValueError, match=r"cluster is missing in \d+ rows, first in row"):
        relevance_labels(once, "click", propensity="column", interval=True, cluster=gaps)
