"""Labels by an engine are those of relevance_labels, in every engine, and stay there."""

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.utils.validation import NotFittedError

from skultr import UserAwareIPSRanker
from skultr._log import _counted
from skultr.click_models import UBMModel
from skultr.exceptions import ClickDataWarning
from skultr.propensity import (
    InterventionHarvesting,
    PowerLawPropensity,
    _debiased_table,
    debiased_table,
    relevance_labels,
)

from .._log.test_aggregate import ENGINES, synchronous_dask  # noqa: F401

CURVE = [1.0, 0.6, 0.4, 0.25]
LAZY = ("polars-lazy", "duckdb", "dask")
CASES = {
    "curve": {},
    "clip": {"clip": 0.5},
    "of rows": {"user_aware": False},
    "of rows, clip": {"user_aware": False, "clip": 0.3},
}


def make_log(n_sessions=150, *, strings=True, seed=0):
    """Impressions of 12 queries by three users, with rows that were not shown."""
    rng = np.random.default_rng(seed)
    session = np.repeat(np.arange(n_sessions), 6)
    place = np.tile(np.arange(6), n_sessions)
    log = pd.DataFrame(
        {
            "qid": rng.integers(12, size=n_sessions)[session],
            "session": session,
            "doc": rng.permuted(np.tile(np.arange(6), (n_sessions, 1)), axis=1).ravel(),
            "position": np.where(place < 4, place + 1.0, np.nan),
            "user": np.array(["u0", "u1", "u2"])[session % 3],
        }
    )
    log["click"] = np.where(place < 4, rng.random(len(log)) < 0.4, 0).astype(int)
    log["noise"] = rng.random(len(log))
    if strings:
        log["qid"], log["doc"] = "q" + log["qid"].astype(str), "d" + log["doc"].astype(str)
    return log


def in_memory(frame):
    """A table as pandas, sorted, with types that do not depend on the engine."""
    frame = nw.from_native(frame)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    table = pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
    return table.sort_values(["qid", "doc"], ignore_index=True)


def assert_like_labels(table, log, propensity, user_aware=True, clip=None):
    """The table has the labels of the function in memory, and weights by their definition.

    ``propensity`` has one number per row of the log.
    """
    impressions = log["impressions"] if "impressions" in log else np.ones(len(log))
    rate = np.divide(log["click"], impressions, out=np.zeros(len(log)), where=impressions > 0)
    rows = log.drop(columns="click").assign(propensity=propensity)
    expected = relevance_labels(rows, rate, user_aware=user_aware, clip=clip)
    table = in_memory(table)
    assert table.columns.tolist() == ["qid", "doc", "label", "weight", "group"]
    assert table[["qid", "doc"]].values.tolist() == expected[["qid", "doc"]].values.tolist()
    np.testing.assert_allclose(table["label"], expected["label"], rtol=1e-12)
    rows = log.assign(n=impressions, p=propensity)
    rows = rows[rows["position"].notna() & (rows["n"] > 0)]
    values = rows["p"] if user_aware else 1 / np.maximum(rows["p"], clip or 0)
    sums = rows.assign(values=values * rows["n"]).groupby(["qid", "doc"])[["n", "values"]].sum()
    mean = sums["values"] / sums["n"]
    weight = sums["n"] * (np.maximum(mean, clip or 0) if user_aware else 1 / mean)
    np.testing.assert_allclose(table["weight"], weight, rtol=1e-12)
    return table


def of_positions(log):
    return np.array([*CURVE, 1.0])[log["position"].fillna(5).astype(int) - 1]


# Every engine -------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree_with_the_labels_in_memory(engine, case):
    log = make_log()
    frame = ENGINES[engine](log)
    found = debiased_table(frame, CURVE, **CASES[case])
    assert type(found) is type(frame)
    table = assert_like_labels(found, log, of_positions(log), **CASES[case])
    numbers = table.groupby("qid")["group"].unique()
    assert sorted(map(int, numbers.explode())) == list(range(12))
    if engine != "dask":
        assert numbers.explode().is_monotonic_increasing


class Asked(InterventionHarvesting):
    """Records how many rows it was asked about."""

    def predict(self, X):
        self.asked_ = nw.from_native(X).shape[0]
        return super().predict(X)


@pytest.mark.parametrize("engine", ENGINES)
def test_estimators_of_users_are_asked_once_per_user_and_position(engine):
    log = make_log()
    estimator = Asked(user="user").fit(log, "click")
    found = debiased_table(ENGINES[engine](log), estimator)
    assert estimator.asked_ == 12
    assert_like_labels(found, log, estimator.predict(log))


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_with_impressions_bias_and_a_column_of_propensities(engine):
    log = make_log(strings=False)
    rng = np.random.default_rng(1)
    # Whole pages: with a number for each row, pages would have gaps, of which the door warns.
    log["impressions"] = rng.integers(0, 5, size=150)[log["session"]]
    clicks = rng.binomial(log["impressions"], 0.3)
    log["click"] = np.where(log["position"].notna(), clicks, 0)
    log["bias"] = log["position"] + 10
    rate = log["click"] / log["impressions"].clip(lower=1)
    estimator = InterventionHarvesting().fit(log.drop(columns="click"), rate)
    found = debiased_table(ENGINES[engine](log), estimator)
    of_rows = estimator.predict(log)
    assert_like_labels(found, log, of_rows)
    log["propensity"] = of_rows
    assert_like_labels(debiased_table(ENGINES[engine](log)), log, of_rows)


@pytest.mark.parametrize("engine", LAZY)
def test_what_is_collected_is_small(engine, monkeypatch):
    collected = []

    def counted(frame, collect=_counted.collect):
        frame = collect(frame)
        collected.append(len(frame))
        return frame

    for module in (_counted, _debiased_table):
        monkeypatch.setattr(module, "collect", counted)
    debiased_table(ENGINES[engine](make_log()), CURVE)
    assert sorted(collected) == [1, len(CURVE)]


def test_the_row_order_and_number_of_partitions_change_nothing():
    log = make_log()
    expected = debiased_table(log, CURVE)
    shuffled = log.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(debiased_table(shuffled, CURVE), expected)
    dask = ENGINES["dask"](log).repartition(npartitions=40)  # more than queries: some are empty
    found = debiased_table(dask, CURVE)
    parts = dask.map_partitions(len).compute(), found.map_partitions(lambda p: p["qid"].nunique())
    assert parts[1].compute().sum() == 12  # no query in two partitions
    table = in_memory(found)
    assert sorted(table["group"].unique()) == list(range(12))
    np.testing.assert_allclose(table["label"], expected["label"], rtol=1e-12)


def test_frozen_estimators_and_user_aware_labels_of_rankers():
    log = make_log()
    estimator = PowerLawPropensity({"u0": 1.0, "u1": 0.5, "u2": 0.0}).fit(log, "click")
    table = debiased_table(log, FrozenEstimator(estimator))
    features = log.assign(noise=log.groupby(["qid", "doc"])["noise"].transform("first"))
    ranker = UserAwareIPSRanker(propensity=estimator, estimator=Ridge()).fit(features, "click")
    np.testing.assert_allclose(table["label"], ranker.labels_["label"], rtol=1e-12)


def test_a_relation_of_another_connection():
    log = make_log()
    connection = duckdb.connect()
    found = debiased_table(connection.from_df(log), CURVE)
    assert_like_labels(found, log, of_positions(log))
    connection.close()


# What is wrong ------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["pandas", "pyarrow", *LAZY])
def test_zeros(engine):
    # What u0 alone saw was never examined, so that others must see all 72 documents. One of their
    # 300 pages shows a document with probability 4/6 / 12: that one is missing has a probability
    # of 72 (1 - 1/18)^300 = 3e-6.
    log = make_log(450)
    log["click"] = np.where(log["user"] == "u0", 0, log["click"])
    log["propensity"] = np.where(log["user"] == "u0", 0.0, 0.5)
    frame = ENGINES[engine](log)
    assert_like_labels(debiased_table(frame), log, log["propensity"])
    with pytest.raises(ValueError, match=r"propensity is 0 in 600 rows.*user_aware=True"):
        debiased_table(frame, user_aware=False)
    log["propensity"] = np.where(log["doc"] == "d3", 0.0, log["propensity"])
    log["click"] = np.where(log["doc"] == "d3", 0, log["click"])
    with pytest.raises(ValueError, match=r"mean propensity.*is 0 in 12 rows, such as .*'d3'"):
        debiased_table(ENGINES[engine](log))
    log["click"] = log["position"].notna().astype(int)
    with pytest.raises(ValueError, match="who clicked a row has examined it"):
        debiased_table(ENGINES[engine](log))


class Half(PowerLawPropensity):
    """Predicts what is no probability."""

    def predict(self, X):
        return np.full(len(X), 1.5)


def test_faults_are_named():
    log = make_log()
    with pytest.raises(ValueError, match=r"lacks the columns .*'position'"):
        debiased_table(log.drop(columns="position"), CURVE)
    with pytest.raises(ValueError, match="must hold numbers"):
        debiased_table(log.astype({"position": str}), CURVE)
    with pytest.raises(ValueError, match="found -1 in 1 row"):
        debiased_table(log.assign(click=np.where(log.index == 0, -1, 0)), CURVE)
    with pytest.raises(ValueError, match="No propensities given"):
        debiased_table(log)
    with pytest.raises(ValueError, match="expected one of them"):
        debiased_table(log.assign(propensity=0.5), CURVE)
    with pytest.raises(ValueError, match="positions up to 4"):
        debiased_table(log, CURVE[:3])
    with pytest.raises(ValueError, match="predicts relevance"):
        debiased_table(log, UserAwareIPSRanker())
    for source in ({"u0": PowerLawPropensity()}, UBMModel(), FrozenEstimator(UBMModel())):
        with pytest.raises(ValueError, match=r"propensity is a .*or use relevance_labels"):
            debiased_table(log, source)
    with pytest.raises(NotFittedError):
        debiased_table(log, PowerLawPropensity())
    with pytest.raises(ValueError, match=r"Half predicts 1\.5 for {'position': 1}"):
        debiased_table(log[log["position"] == 1], Half().fit(log, "click"))
    with pytest.raises(ValueError, match="No row was shown"):
        debiased_table(log[log["position"].isna()], CURVE)
    with pytest.warns(ClickDataWarning, match="no click"):
        debiased_table(log.assign(click=0), CURVE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("source", ["column", CURVE])
def test_rates_and_numbers_of_clicks_give_one_table(engine, source):
    log = make_log()
    counts = log.assign(impressions=4, click=log["click"] * 3)
    if isinstance(source, str):
        counts["propensity"] = 0.5
    rates = counts.assign(click=counts["click"] / 4)
    tables = [in_memory(debiased_table(ENGINES[engine](each), source)) for each in (counts, rates)]
    pd.testing.assert_frame_equal(*tables)
