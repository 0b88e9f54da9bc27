import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy.optimize import approx_fprime
from scipy.stats import binom

from skultr.exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableError
from skultr.identifiability import factor_rank
from skultr.identifiability._low_rank import RateTable, WithinDocuments, fit_low_rank, with_center
from skultr.simulation import TIANGONG_CLICK_MATRIX

EXAMINATION = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
POSITION = np.arange(1, 11)
GAIN = (2.0 ** np.arange(5) - 1) / 15
PLAIN = np.outer(0.1 + 0.9 * GAIN, EXAMINATION)
TRUST = EXAMINATION * (
    (1 - (POSITION + 1) / 100) * GAIN[:, None] + 0.65 / POSITION * (1 - GAIN[:, None])
)
TIANGONG = np.array(TIANGONG_CLICK_MATRIX)


def draw_log(matrix, n_sessions, policy="plackett-luce", n_queries=300, differ=0.0, seed=0):
    """Cells of (document, position) with click rates; documents of a grade may differ.

    Where they do, the policy ranks by it too: within a grade, the better stand higher.
    """
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, (n_queries, 15), p=[0.5, 0.2, 0.15, 0.1, 0.05])
    own = rng.uniform(1 - differ, 1 + differ, grade.shape)
    score = 0.5 * grade + rng.normal(size=grade.shape) + 3 * (own - 1)
    query = rng.integers(0, n_queries, n_sessions)
    noise = 0.0 if policy == "deterministic" else 0.5 * rng.gumbel(size=(n_sessions, 15))
    order = np.argsort(-(score[query] + noise), axis=1)[:, :10]
    rate = matrix[np.take_along_axis(grade[query], order, axis=1), np.arange(10)]
    rate = np.minimum(rate * np.take_along_axis(own[query], order, axis=1), 1)
    key = ((15 * query[:, None] + order) * 10 + np.arange(10)).ravel()
    found, cell = np.unique(key, return_inverse=True)
    n, doc = np.bincount(cell), found // 10
    log = {"qid": doc // 15, "doc": doc, "relevance": grade.ravel()[doc]}
    log = pd.DataFrame(log | {"position": found % 10 + 1, "impressions": n})
    return log, np.bincount(cell, (rng.random(rate.shape) < rate).ravel()) / n


def as_table(matrix, impressions, names=("relevance", "position")):
    """A log of a row a cell."""
    row, factor = np.indices(matrix.shape)
    log = {"qid": 0, names[0]: row.ravel(), names[1]: factor.ravel() + 1}
    return pd.DataFrame(log | {"impressions": np.broadcast_to(impressions, matrix.shape).ravel()})


def rejections(n, rows, *args, **params):
    """How often more than one product is found."""
    found = 0
    for seed in range(n):
        log, rate = draw_log(*args, seed=seed, **params)
        result = factor_rank(log, rate, rows=rows, n_resamples=39, random_state=seed)
        found += result.rank > 1
    return found


# The answer ---------------------------------------------------------------------------
def test_the_table_of_tiangong():
    million = 1_000_000
    log = as_table(TIANGONG, million)
    result = factor_rank(log, TIANGONG.ravel(), rows="relevance", random_state=0)
    values = result.singular_values
    assert_allclose(values["value"], [1.399, 0.151, 0.069, 0.057, 0.033], atol=6e-4)
    assert result.rank == 5
    assert_allclose(result.matrix, TIANGONG, atol=2e-6)
    assert (result.impressions == million).all(axis=None)
    assert_allclose(values["share"].sum(), 1)
    assert (values["p_value"].dropna() <= 0.005).all()
    assert values["floor"].iloc[1:].lt(values["value"].iloc[1:]).all()
    assert result.summary().startswith(
        "One number per document is NOT enough: the click rates need at least 5 products."
    )
    assert repr(result) == (
        "FactorRank(rank=5, rows='relevance', n_rows=5, n_factors=10, is_conclusive=True)"
    )


@pytest.mark.parametrize(
    ("matrix", "rank"), [(PLAIN, 1), (TRUST, 2), (TIANGONG, 5)], ids=["plain", "trust", "tiangong"]
)
@pytest.mark.filterwarnings("ignore:The matrix of click rates of rank")  # five are hard to find
def test_grades_of_any_policy(matrix, rank):
    results = [
        factor_rank(
            *draw_log(matrix, 60_000, "deterministic", seed=seed), rows="relevance", random_state=0
        )
        for seed in range(3)
    ]
    # The test finds a factor too many in one log in twenty, in two of three in .7 %.
    assert np.median([result.rank for result in results]) == rank
    assert all(result.is_conclusive for result in results)
    assert results[0].independent == "queries"


@pytest.mark.parametrize(("matrix", "rank"), [(PLAIN, 1), (TRUST, 2)], ids=["plain", "trust"])
def test_groups_of_documents(matrix, rank):
    log, rate = draw_log(matrix, 20_000)
    result = factor_rank(log.drop(columns="relevance"), rate, random_state=0)
    assert result.rank == rank
    assert result.matrix.shape == (5, 10)
    # The groups are what they say: at every position, the rate of the last is above the first.
    assert (result.matrix.loc[5] > result.matrix.loc[1]).all()


def test_the_summary_says_when_the_log_is_too_small():
    log, rate = draw_log(PLAIN, 500)
    result = factor_rank(log, rate, random_state=0)
    assert result.rank == 1
    assert not result.is_conclusive
    assert result.summary().startswith("The log is too small to decide")
    log, rate = draw_log(PLAIN, 20_000, "deterministic")
    result = factor_rank(log, rate, rows="relevance", random_state=0)
    assert result.detectable < 0.1
    assert result.summary().startswith("One number per document is enough")


# The level ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "args", "params"),
    [
        (None, (PLAIN, 1_000), {}),
        (None, (PLAIN, 4_000), {}),
        (None, (0.5 * PLAIN, 4_000), {"differ": 0.9}),
        ("relevance", (PLAIN, 300), {"policy": "deterministic"}),
        ("relevance", (PLAIN, 4_000), {}),
    ],
    ids=["few clicks", "groups", "better ones higher", "few sessions", "grades"],
)
def test_one_product_is_rejected_as_often_as_the_level_says(rows, args, params):
    n = 40
    assert rejections(n, rows, *args, **params) <= binom.ppf(0.995, n, 0.06)


def test_power_against_trust():
    assert rejections(15, None, TRUST, 8_000) >= 13
    assert rejections(15, "relevance", TRUST, 1_000, policy="deterministic") >= 13


def test_raw_rates_of_a_grade_whose_better_documents_stand_higher_are_not_of_rank_one():
    # Why groups of documents are compared within documents. No rate would exceed 1.
    assert rejections(10, "relevance", 0.5 * PLAIN, 30_000, differ=0.9) >= 8


def test_noise_is_measured_between_queries():
    # All sessions of a query click alike: five times the impressions, and the same noise.
    found = 0
    for seed in range(30):
        log, rate = draw_log(PLAIN, 1_500, "deterministic", n_queries=3_000, seed=seed)
        copies = 5 * log["impressions"].to_numpy()
        result = factor_rank(
            log.assign(impressions=copies), rate, rows="relevance", n_resamples=39, random_state=0
        )
        found += result.rank > 1
    assert found <= binom.ppf(0.995, 30, 0.06)


# What does not matter -----------------------------------------------------------------
@pytest.mark.parametrize("rows", [None, "relevance"])
def test_the_kind_of_frame_and_the_order_of_rows(rows):
    log, rate = draw_log(TRUST, 2_000)
    params = {"rows": rows, "n_resamples": 19, "random_state": 3}
    expected = factor_rank(log, rate, **params)
    order = np.random.default_rng(0).permutation(len(log))
    raw_rows = np.repeat(np.arange(len(log)), log["impressions"])
    clicks = np.rint(rate * log["impressions"]).to_numpy()
    nth = (
        np.arange(len(raw_rows))
        - np.repeat(
            np.cumsum(log["impressions"]) - log["impressions"], log["impressions"]
        ).to_numpy()
    )
    raw = log.drop(columns="impressions").iloc[raw_rows]
    for X, y in (
        (pl.from_pandas(log), rate),
        (pa.Table.from_pandas(log), rate),
        (log.iloc[order], rate[order]),
        (raw, (nth < clicks[raw_rows]).astype(int)),
        (log.assign(doc=log["doc"].astype(str).str.zfill(6)), pl.Series(rate)),
    ):
        result = factor_rank(X, y, **params)
        assert_frame_equal(result.singular_values, expected.singular_values)
        assert_frame_equal(result.matrix, expected.matrix)
    # Rows that were not shown.
    unseen = log.head(50).assign(position=np.nan)
    more = pd.concat([log, unseen], ignore_index=True)
    result = factor_rank(more, np.concatenate([rate, np.zeros(50)]), **params)
    assert_frame_equal(result.singular_values, expected.singular_values)


def test_rows_by_array_and_bias_by_columns():
    log, rate = draw_log(TRUST, 3_000, "deterministic")
    log["device"] = np.where(log["doc"] % 2, "phone", "desktop")
    expected = factor_rank(log, rate, rows="relevance", n_resamples=19, random_state=0)
    result = factor_rank(
        log, rate, rows=list(log["relevance"]), bias="position", n_resamples=19, random_state=0
    )
    assert_frame_equal(result.singular_values, expected.singular_values)
    assert result.matrix.index.name == "row"
    assert result.matrix.columns.name == "position"
    both = factor_rank(log, rate, rows="relevance", bias=["position", "device"], n_resamples=19)
    assert both.matrix.shape == (5, 20)
    assert both.matrix.columns.names == ["position", "device"]
    cell = (log["relevance"] == 1) & (log["position"] == 2) & (log["device"] == "phone")
    n = log.loc[cell, "impressions"]
    assert both.impressions.at[1, (2, "phone")] == n.sum()
    assert_allclose(both.matrix.at[1, (2, "phone")], (n * rate[cell]).sum() / n.sum(), atol=0.01)


def test_empty_cells_are_no_rates_of_zero():
    impressions = np.full(PLAIN.shape, 100_000)
    impressions[0, 0] = impressions[4, 9] = 0
    log = as_table(PLAIN, impressions)
    rate = np.where(impressions > 0, np.round(PLAIN, 5), 0).ravel()
    result = factor_rank(log, rate, rows="relevance", random_state=0)
    assert result.rank == 1
    assert np.isnan(result.matrix.at[0, 1])
    assert np.isnan(result.matrix.at[4, 10])
    expected = np.linalg.svd(PLAIN, compute_uv=False)[0]
    assert_allclose(result.singular_values["value"], [expected, 0, 0, 0, 0], atol=2e-4)


@pytest.mark.parametrize(
    ("matrix", "rank"),
    [
        ([[1, 1], [1, 1]], 1),
        ([[0, 0], [0.5, 0.2]], 1),
        ([[1, 0.5], [0.5, 0.25]], 1),
        ([[0, 0.5], [0.5, 0]], 2),
        ([[1, 0], [0, 1]], 2),
    ],
)
def test_rates_of_zero_and_one(matrix, rank):
    matrix = np.array(matrix, dtype=float)
    log = as_table(matrix, 1_000_000)
    clicks = matrix.ravel() * 1_000_000  # rates of 0 and 1 alone may be numbers of clicks
    result = factor_rank(log, clicks, rows="relevance", random_state=0)
    assert result.rank == rank
    assert_allclose(result.matrix, matrix, atol=2e-6)


# The fit ------------------------------------------------------------------------------
def tables():
    rng = np.random.default_rng(0)
    unit, factor = (values.ravel() for values in np.indices((40, 4)))
    weight = rng.integers(0, 30, 160).astype(float)
    shown = weight > 0
    unit, factor, weight = unit[shown], factor[shown], weight[shown]
    group = np.arange(40) % 3
    rate = rng.uniform(0.1, 0.6, (3, 4))
    clicks = rng.binomial(weight.astype(int), rate[group[unit], factor]).astype(float)
    cluster = np.arange(40) // 2
    cell = group[unit] * 4 + factor
    given = {"cell": cell, "clicks": clicks, "weight": weight, "shape": (3, 4)}
    named = RateTable(cluster=cluster[unit], **given)
    within = WithinDocuments(unit=unit, cluster=cluster, **given)
    return [with_center(named), with_center(within)]


@pytest.mark.parametrize("table", tables(), ids=["rates", "within"])
def test_score_against_finite_differences(table):
    rate = np.random.default_rng(1).uniform(0.1, 0.5, table.shape)

    def value(log_rate):
        return table.score(np.exp(log_rate).reshape(table.shape))[0]

    _, gradient, information = table.score(rate)
    assert_allclose(gradient.ravel(), approx_fprime(np.log(rate).ravel(), value, 1e-7), rtol=1e-3)
    # Without the prior, the score is what the clusters contributed.
    clusters = np.asarray(table.contributions(rate).sum(axis=0)).reshape(table.shape)
    assert np.abs(gradient - clusters).max() < 3
    for block in information:
        assert_allclose(block, block.T)
        assert np.linalg.eigvalsh(block).min() > -1e-9


@pytest.mark.parametrize("table", tables(), ids=["rates", "within"])
def test_fits_of_rising_rank_end_at_the_saturated_one(table):
    best = table.saturated()
    value, gradient, _ = table.score(best)
    assert_allclose(gradient, 0, atol=1e-2)
    fit, last = None, -np.inf
    for rank in (1, 2, 3):
        fit = fit_low_rank(table, rank, fit)
        assert np.linalg.matrix_rank(fit.rate) == rank
        assert fit.value > last
        last = fit.value
        # Optimal: no small change within the rank raises the likelihood.
        left = np.einsum("gt,tk->gk", fit.gradient / fit.rate, fit.right)
        right = np.einsum("gt,gk->tk", fit.gradient / fit.rate, fit.left)
        assert np.abs(left * fit.left).max() < 0.05
        assert np.abs(right * fit.right).max() < 0.05
    # Nothing is left that a rank of 3 does not explain.
    assert_allclose(fit.residuals(fit.gradient[None]), 0, atol=1e-2)
    assert_allclose(last, value, atol=1e-3)


def test_groups_within_documents_share_one_curve_whatever_their_mix():
    # Expected clicks as the data: the better documents of each group stand higher.
    rng = np.random.default_rng(0)
    unit, factor = (values.ravel() for values in np.indices((60, 5)))
    group, relevance = np.arange(60) % 3, rng.uniform(0.1, 0.9, 60)
    weight = 100 * rng.uniform(0, 1, (60, 5)) ** (3 * relevance[:, None] * np.arange(5))
    clicks = weight.ravel() * relevance[unit] * EXAMINATION[factor]
    cell, weight = group[unit] * 5 + factor, weight.ravel()
    given = {"cell": cell, "clicks": clicks, "weight": weight, "shape": (3, 5)}
    table = with_center(WithinDocuments(unit=unit, cluster=group, **given))
    best = table.saturated()
    assert_allclose(best / best[:, :1], np.tile(EXAMINATION[:5] / 0.68, (3, 1)), rtol=1e-3)
    clicks, weight = table.sums
    assert np.linalg.svd(clicks / weight, compute_uv=False)[1] > 0.02


# Bad input ----------------------------------------------------------------------------
def test_what_cannot_be_compared():
    log, rate = draw_log(PLAIN, 300, n_queries=20)
    with pytest.raises(ValueError, match="one bias factor"):
        factor_rank(log.assign(position=1), rate)
    with pytest.raises(ValueError, match="rows has one value, 2; expected 2 to 50"):
        factor_rank(log, rate, rows=np.full(len(log), 2))
    with pytest.raises(ValueError, match=r"rows has 2\d\d different values; expected 2 to 50"):
        factor_rank(log, rate, rows="doc")
    with pytest.raises(ValueError, match=r"1 documents; expected at least 30 .* rows='doc'"):
        factor_rank(log.assign(doc=0, qid=0), rate)
    with (
        pytest.warns(ClickDataWarning, match="The log has no click"),
        pytest.raises(ValueError, match="y has no click"),
    ):
        factor_rank(log, 0 * rate)
    with pytest.raises(NotIdentifiableError, match="only 0 documents with clicks and with"):
        factor_rank(*draw_log(PLAIN, 2_000, "deterministic"))
    with pytest.raises(ValueError, match="400 bias factors; expected at most 300"):
        factor_rank(
            pd.DataFrame({"qid": 0, "doc": np.arange(400) % 40, "position": np.arange(400) + 1}),
            np.arange(400) % 2,
        )


def test_rows_that_share_no_two_factors():
    """Nothing can contradict one product where no four cells close a rectangle."""
    log = pd.DataFrame({"qid": np.arange(400), "position": np.tile([1, 2, 3, 4], 100)})
    with pytest.raises(NotIdentifiableError, match="4 rows and 4 bias factors meet in 4 cells"):
        factor_rank(log, log.index % 3 == 0, rows=log["position"])


def test_factors_that_were_never_compared():
    """Two parts of one product each: the log does not say that one product is enough."""
    rng = np.random.default_rng(0)
    row = rng.integers(0, 4, 40_000)
    position = 2 * (row // 2) + rng.integers(1, 3, 40_000)
    log = pd.DataFrame({"qid": np.arange(40_000), "relevance": row, "position": position})
    clicks = rng.random(40_000) < PLAIN[row, position - 1]
    result = factor_rank(log, clicks, rows="relevance", random_state=0)
    assert (result.rank, result.n_components, result.is_conclusive) == (1, 2, False)
    assert "fall into 2 components" in result.summary()


def test_what_is_missing():
    log, rate = draw_log(PLAIN, 2_000)
    grades = log["relevance"].astype(float)
    grades[:7] = np.nan
    with pytest.warns(ClickDataWarning, match="rows is missing in 7 of"):
        some = factor_rank(log, rate, rows=grades, n_resamples=19, random_state=0)
    rest = factor_rank(log[7:], rate[7:], rows="relevance", n_resamples=19, random_state=0)
    assert_frame_equal(some.singular_values, rest.singular_values)
    with pytest.raises(ValueError, match="rows is missing everywhere"):
        factor_rank(log, rate, rows=np.full(len(log), np.nan))
    with pytest.raises(ValueError, match="no column 'grade': its columns are"):
        factor_rank(log, rate, rows="grade")
    with pytest.raises(ValueError, match=r"rows has shape \(3,\)"):
        factor_rank(log, rate, rows=[1, 2, 3])
    with pytest.raises(ValueError, match="no column 'device'"):
        factor_rank(log, rate, bias=["position", "device"])
    with pytest.raises(ValueError, match=r"bias is \[\]; expected the name"):
        factor_rank(log, rate, bias=[])
    log["device"] = np.where(np.arange(len(log)) == 4, None, "phone")
    with pytest.raises(ValueError, match="missing in 1 shown row, first in row 4"):
        factor_rank(log, rate, bias=["position", "device"])
    with pytest.warns(MissingRoleWarning, match="no column 'qid'"):
        factor_rank(log.drop(columns=["qid", "device"]), rate, n_resamples=19)


def test_what_is_no_log():
    log, rate = draw_log(PLAIN, 2_000)
    with pytest.raises(TypeError, match="X is a ndarray; expected the log as a frame"):
        factor_rank(log.to_numpy(), rate)
    with pytest.raises(ValueError, match="neither a column 'position' nor 'bias'"):
        factor_rank(log.drop(columns="position"), rate, rows="relevance")
    with pytest.raises(ValueError, match=r"0\.5 clicks at one bias factor; expected whole"):
        factor_rank(log.assign(impressions=1), np.full(len(log), 0.5))
    with pytest.raises(ValueError, match="1e\\+19 impressions at one bias factor; expected fewer"):
        factor_rank(log.assign(impressions=1e19), np.arange(len(log)) % 2 * 1e19)
    many = np.arange(2_000)  # as many combinations, not their product
    names = {f"part_{place}": many for place in range(5)}
    X = pd.DataFrame({"qid": 0, "doc": many % 40, "position": many + 1, **names})
    with pytest.raises(ValueError, match="2,000 bias factors; expected at most 300"):
        factor_rank(X, np.arange(2_000) % 2, bias=list(names))
    with (
        pytest.warns(ClickDataWarning, match="The log has no click"),
        pytest.raises(ValueError, match=r"0\.5 impressions at one bias factor"),
    ):
        factor_rank(log.assign(impressions=0.5), np.zeros(len(log)))
    with pytest.raises(ValueError, match="n_groups"):
        factor_rank(log, rate, n_groups=1)
    with pytest.raises(ValueError, match="level"):
        factor_rank(log, rate, level=0)
