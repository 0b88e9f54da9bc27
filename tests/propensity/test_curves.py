from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from scipy.special import polygamma
from sklearn.utils._param_validation import InvalidParameterError

from skultr._log._cells import read_cells
from skultr._log._roles import read_column
from skultr.exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning
from skultr.propensity import InterventionHarvesting, PowerLawPropensity
from skultr.propensity._comparisons import shrink
from skultr.propensity._curves import CurvePropensity, Estimate, resamples

CURVE = np.array([1.0, 0.5, 0.25, 0.2])


def _log(n_sessions=4_000, n_queries=40, users=1, seed=0):
    """Three documents a query in random order, over four positions of which one is empty."""
    rng = np.random.default_rng(seed)
    query = rng.integers(n_queries, size=n_sessions)
    place = np.argsort(rng.random((n_sessions, len(CURVE))), axis=1)[:, :3]
    X = pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_sessions), 3),
            "qid": np.repeat(query, 3),
            "doc": np.repeat(query * 3, 3) + np.tile(np.arange(3), n_sessions),
            "position": place.ravel() + 1,
            "user": np.repeat(rng.integers(users, size=n_sessions), 3),
        }
    )
    relevance = rng.uniform(0.2, 0.9, 3 * n_queries)[X["doc"]]
    clicks = rng.random(len(X)) < relevance * CURVE[X["position"] - 1]
    return X, clicks.astype(float)


def _table(cells):
    ids = cells.doc_ids[cells.doc], cells.factors.bias[cells.factor]
    return pd.DataFrame(
        {"clicks": cells.clicks, "weight": cells.weight},
        index=pd.MultiIndex.from_arrays(ids),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class _ClickShare(CurvePropensity):
    """Click rates as examination, with a formula for errors that no resample would give."""

    def _estimate(self, cells):
        clicks, weight = (
            cells.by_factor(cells.clicks),
            cells.by_factor(cells.weight),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.log(clicks / weight)
        return Estimate(np.where(clicks > 0, rate, np.nan), np.full(len(rate), 7.0))


# Reading --------------------------------------------------------------------------------
def test_cells_are_sums_over_rows():
    X, clicks = _log(500)
    X["impressions"] = np.random.default_rng(1).integers(1, 5, len(X))
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(X))
    cells, row_factor = read_cells(X, clicks, weight)
    mean = (weight * X["impressions"]).sum() / X["impressions"].sum()
    total = weight / mean * X["impressions"]
    expected = (
        pd.DataFrame({"clicks": clicks * total, "weight": total})
        .groupby([X["doc"], X["position"]])
        .sum()
    )
    np.testing.assert_allclose(_table(cells).to_numpy(), expected.to_numpy(), rtol=1e-6)
    assert (cells.factors.bias[row_factor] == X["position"]).all()


def test_rows_that_were_not_shown_have_no_exposure():
    X, clicks = _log(50)
    X["position"] = X["position"].where(X.index % 3 > 0)
    clicks[X["position"].isna()] = 0.0
    cells, row_factor = read_cells(X, clicks)
    assert cells.weight.sum() == X["position"].notna().sum()
    assert ((row_factor < 0) == X["position"].isna()).all()


def test_a_document_of_two_queries_is_two_units():
    X = pd.DataFrame({"qid": [1, 2], "doc": "a", "position": [1, 2]})
    cells, _ = read_cells(X, np.ones(2))
    assert cells.n_docs == 2
    assert cells.doc_query.tolist() == [0, 1]


def test_arms_stand_for_documents():
    X, clicks = _log(50)
    arm = np.where(X["position"] < 3, 1.0, np.nan)
    cells, row_factor = read_cells(X, clicks, arm=arm)
    assert cells.n_docs == X.loc[X["position"] < 3, "qid"].nunique()
    assert (cells.by_factor(cells.weight) > 0).tolist() == [True, True, False, False]
    assert ((row_factor >= 0) == (X["position"] < 3)).all()


def test_lists_of_different_length_are_different_arms():
    X = pd.DataFrame(
        {"qid": 1, "session": [1, 1, 2, 2, 2], "doc": list("ababc"), "position": [1, 2, 1, 2, 3]}
    )
    cells, _ = read_cells(X, np.ones(5), arm="list length")
    assert cells.doc_ids.tolist() == [2, 3]
    assert np.bincount(cells.doc, cells.weight).tolist() == [2.0, 3.0]


def test_users_are_told_apart_and_merged_again():
    X, clicks = _log(users=3)
    own, _ = read_cells(X, clicks, user=X["user"].to_numpy())
    assert len(own.factors) == 12
    merged = own.of_all_users()
    pd.testing.assert_frame_equal(_table(merged), _table(read_cells(X, clicks)[0]))


def test_a_column_that_is_not_there_is_named():
    X, _ = _log(5)
    with pytest.raises(ValueError, match=r"no column 'arm'.*'session'"):
        read_column(X, "arm")
    with pytest.raises(ValueError, match=r"no column 'arm'.*X is an array"):
        read_column(X.to_numpy(), "arm")


# One face for all logs ------------------------------------------------------------------
def test_raw_shuffled_aggregated_and_keyword_logs_agree():
    X, clicks = _log()
    raw = InterventionHarvesting(random_state=0).fit(X, clicks)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = InterventionHarvesting(random_state=0).fit(X.iloc[order], clicks[order])
    cells = X.assign(click=clicks).groupby(["qid", "doc", "position"], as_index=False)
    cells = cells["click"].agg(["mean", "size"]).rename(columns={"size": "impressions"})
    cells["session"] = np.arange(len(cells))  # rows of a session are no list any more
    folded = InterventionHarvesting(random_state=0).fit(cells.drop(columns="mean"), cells["mean"])
    arrays = InterventionHarvesting(random_state=0).fit(
        np.zeros((len(X), 1)), clicks, **{role: X[role].to_numpy() for role in X}
    )
    for other in (shuffled, folded, arrays):
        pd.testing.assert_frame_equal(raw.examination_, other.examination_, rtol=1e-9)


def test_the_table_counts_and_brackets():
    X, clicks = _log()
    table = InterventionHarvesting(random_state=0).fit(X, clicks).examination_
    assert table["impressions"].tolist() == X["position"].value_counts().sort_index().tolist()
    assert table["clicks"].sum() == clicks.sum()
    assert table["component"].nunique() == 1
    assert table.loc[1, ["examination", "lower", "upper"]].tolist() == [1.0, 1.0, 1.0]
    half = np.log(table["upper"] / table["examination"])
    np.testing.assert_allclose(half, 1.959964 * table["standard_error"], atol=1e-12)


# Errors ---------------------------------------------------------------------------------
def test_resamples_have_a_seed_and_agree_with_the_formula():
    X, clicks = _log()
    first, again, other = (
        InterventionHarvesting(random_state=seed).fit(X, clicks).examination_["standard_error"]
        for seed in (0, 0, 1)
    )
    assert first.equals(again)
    assert not first.equals(other)
    formula = InterventionHarvesting(n_bootstrap=0).fit(X, clicks).examination_["standard_error"]
    np.testing.assert_allclose(first[1:], formula[1:], rtol=0.3)


def test_resamples_draw_queries_but_documents_where_queries_are_few():
    X, clicks = _log(300, n_queries=40)
    cluster, draws = resamples(read_cells(X, clicks)[0], 3, 0)
    assert len(np.unique(cluster)) == 40
    assert [times.sum() for times in draws] == [40, 40, 40]
    X, clicks = _log(300, n_queries=10)
    cluster, draws = resamples(read_cells(X, clicks)[0], 3, 0)
    assert [len(times) for times in draws] == [30, 30, 30]


def test_resampled_errors_are_the_spread_of_estimates():
    X, clicks = _log()
    table = _ClickShare(n_bootstrap=400, random_state=0).fit(X, clicks).examination_
    rates = []
    rng = np.random.default_rng(1)
    by_query = pd.DataFrame({"c": clicks, "n": 1.0}).groupby([X["qid"], X["position"]]).sum()
    by_query = by_query.unstack("position")
    for _ in range(400):
        total = by_query.iloc[rng.integers(40, size=40)].sum()
        rate = np.log(total["c"] / total["n"])
        rates.append(rate - rate[1])
    np.testing.assert_allclose(
        table["standard_error"], np.std(rates, axis=0), rtol=0.15, atol=1e-9
    )


def test_users_of_few_queries_have_errors_by_formula():
    X, clicks = _log(users=2)
    X.loc[X["qid"] < 3, "user"] = 2
    estimator = _ClickShare(user="user", user_shrinkage=0, n_bootstrap=20, random_state=0)
    error = estimator.fit(X, clicks).examination_["standard_error"]
    assert (error.loc[2] == 7.0).all()
    assert (error.loc[[0, 1]] < 1.0).all()
    assert (estimator.average_examination_["standard_error"] < 1.0).all()


# Predicting -----------------------------------------------------------------------------
def test_predictions_are_the_curve_with_the_best_factor_at_one():
    X, clicks = _log()
    estimator = InterventionHarvesting(n_bootstrap=0).fit(X, clicks)
    curve = estimator.examination_["examination"]
    np.testing.assert_allclose(estimator.predict(X), curve[X["position"]])
    later = X.assign(position=5 - X["position"])  # now the last position is seen best
    turned = InterventionHarvesting(n_bootstrap=0).fit(later, clicks)
    np.testing.assert_allclose(turned.predict(later), curve[X["position"]], rtol=1e-6)
    assert turned.examination_.loc[1, "examination"] == 1.0


def test_positions_that_no_one_saw_are_an_error():
    X, clicks = _log()
    estimator = InterventionHarvesting(n_bootstrap=0).fit(X, clicks)
    with pytest.raises(ValueError, match=r"1 row is unknown.*position.*9.*\[1, 2, 3, 4\]"):
        estimator.predict(X.head(2).assign(position=[1, 9]))
    with pytest.raises(ValueError, match="neither a column 'bias' nor 'position', and nei"):
        estimator.predict(X.drop(columns="position"))


def test_a_log_without_positions_tells_no_rows_apart():
    X, clicks = _log(100)
    with pytest.warns(MissingRoleWarning, match="take all rows as examined alike"):
        estimator = InterventionHarvesting(n_bootstrap=0).fit(
            X.drop(columns=["position", "session"]), clicks
        )
    assert (estimator.predict(X) == 1).all()


def test_users_who_were_not_there_get_the_common_curve():
    X, clicks = _log(users=2)
    estimator = InterventionHarvesting(user="user").fit(X, clicks)
    with pytest.warns(ClickDataWarning, match="2 rows of users.*such as 9"):
        found = estimator.predict(pd.DataFrame({"position": [1, 2], "user": 9}))
    common = estimator.average_examination_["examination"]
    own = estimator.examination_["examination"]
    np.testing.assert_allclose(found, common[[1, 2]] / max(common.max(), own.max()))
    known = estimator.predict(pd.DataFrame({"position": [1, 2], "user": 1}))
    np.testing.assert_allclose(known[1] / known[0], own[1, 2])


def test_users_may_be_any_column_and_it_is_no_feature():
    X, clicks = _log(users=2)
    by_role = InterventionHarvesting(user="user").fit(X, clicks)
    renamed = X.rename(columns={"user": "device"}).assign(feature=0.0)
    by_column = InterventionHarvesting(user="device").fit(renamed, clicks)
    assert by_column.columns_read() == {"device"}
    assert by_role.columns_read() == set()
    assert by_column.feature_names_in_.tolist() == ["feature"]
    np.testing.assert_allclose(
        by_role.examination_["examination"], by_column.examination_["examination"]
    )


def test_users_who_are_asked_for_must_be_there():
    X, clicks = _log(100)
    with pytest.raises(ValueError, match=r"no column 'user'.*user=None"):
        InterventionHarvesting(user="user").fit(X.drop(columns="user"), clicks)


# What the log does not say --------------------------------------------------------------
def test_factors_without_a_link_are_nan_and_named():
    X, clicks = _log()
    apart = X.assign(doc=X["doc"] + 1_000 * (X["position"] == 4))
    estimator = InterventionHarvesting(n_bootstrap=5, random_state=0)
    with pytest.warns(NotIdentifiableWarning, match="1 of 4 bias factors.*: 4. No document"):
        estimator.fit(apart, clicks)
    assert np.isnan(estimator.examination_.loc[4, ["examination", "standard_error"]]).all()
    assert estimator.examination_.loc[:3].notna().all(axis=None)
    with pytest.raises(ValueError, match=r"examination of .* is unknown"):
        estimator.predict(apart)


@pytest.mark.parametrize("n_bootstrap", [0, 20])
def test_factors_without_a_click_are_small_and_finite(n_bootstrap):
    X, clicks = _log()
    silent = np.where(X["position"] == 3, 0.0, clicks)
    estimator = InterventionHarvesting(n_bootstrap=n_bootstrap, random_state=0)
    with pytest.warns(ClickDataWarning, match="no click under 1 of 4 bias factors: 3"):
        table = estimator.fit(X, silent).examination_
    assert 0 < table.loc[3, "examination"] < 0.01
    assert (table["upper"] < 1.2).all()
    full = InterventionHarvesting(n_bootstrap=0).fit(X, clicks).examination_["examination"]
    assert abs(table.loc[4, "examination"] / full[4] - 1) < 0.15


@pytest.mark.parametrize(
    "parameters", [{"n_bootstrap": -1}, {"user_shrinkage": -1.0}, {"user": 3}]
)
def test_bad_parameters_are_refused(parameters):
    with pytest.raises(InvalidParameterError):
        InterventionHarvesting(**parameters).fit(*_log(5))


# Shrinkage ------------------------------------------------------------------------------
def test_a_strength_weighs_as_much_as_so_many_clicks():
    """Twelve clicks of the common curve beside four of the user, who is expected to have two."""
    own = np.log(0.1 * 4 / 2)
    theta, error = shrink(
        np.array([own]),
        np.array([0.5]),
        np.array([4.0]),
        np.array([0]),
        np.log([0.1]),
        np.array([0.0]),
        12.0,
    )
    np.testing.assert_allclose(np.exp(theta), 0.1 * (4 + 12) / (2 + 12))
    np.testing.assert_allclose(error, np.sqrt(polygamma(1, 16)))


@pytest.mark.parametrize("spread", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("n_sessions", [3, 10, 100])
def test_shrunk_curves_beat_own_and_common_and_know_their_error(spread, n_sessions):
    """Users who fall more or less steeply than 1 / k."""
    rng = np.random.default_rng(0)
    n_users, position = 300, np.arange(1, 6)
    eta = np.maximum(1 + spread * rng.normal(size=n_users), 0)
    truth = position ** -eta[:, None]
    common = truth.mean(axis=0)
    expected = n_sessions * common
    clicks = rng.poisson(n_sessions * truth).astype(float)
    own = np.maximum(clicks, 0.5) / expected * common
    found, error = shrink(
        np.log(own).ravel(),
        1 / np.sqrt(np.maximum(clicks, 0.5)).ravel(),
        clicks.ravel(),
        np.tile(np.arange(5), n_users),
        np.log(common),
        np.zeros(5),
    )
    off = [
        np.abs(guess - truth)[:, 1:].mean()
        for guess in (np.exp(found).reshape(truth.shape), own, common)
    ]
    assert off[0] < 1.05 * off[1]
    assert off[0] < off[2] + 0.02
    held = np.abs(found - np.log(truth).ravel()) < 1.96 * error
    assert held.mean() > 0.88


def test_user_with_nearly_all_clicks_does_not_hide_that_users_differ():
    common = np.log([1.0, 0.3])
    found, error = shrink(
        np.array([*common, *common + np.log([1.0, 3.0])]),
        np.array([0.01, 0.02, 0.25, 0.3]),
        np.array([10_000.0, 3_000.0, 16.0, 12.0]),
        np.array([0, 1, 0, 1]),
        common,
        np.zeros(2),
    )
    assert found[3] - common[1] > 0.4
    assert error[3] > 0.2


def test_users_of_whom_nothing_is_known_get_the_common_curve():
    own = np.array([np.nan, -1.0, -1.2])
    noise = np.array([np.nan, np.inf, 0.1])
    clicks = np.array([0.0, 1.0, 100.0])
    found, _ = shrink(
        own, noise, clicks, np.zeros(3, dtype=int), np.array([-2.0]), np.array([0.1]), 1.0
    )
    np.testing.assert_allclose(found[:2], -2.0)
    assert found[2] > -1.3


def test_a_power_law_is_one_of_positions_whatever_the_bias():
    X = pd.DataFrame({"qid": 1, "doc": ["a", "b"], "position": [1, 2], "bias": [7, 3]})
    assert PowerLawPropensity().fit(X, [1, 0]).predict(X).tolist() == [1.0, 0.5]
