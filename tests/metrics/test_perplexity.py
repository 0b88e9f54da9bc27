import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skultr.exceptions import ClickDataWarning
from skultr.metrics import click_log_likelihood, perplexity_score


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    n = 400
    probability = rng.uniform(0.05, 0.9, n)
    return pd.DataFrame(
        {
            "position": rng.integers(1, 6, n),
            "session": rng.integers(0, 90, n),
            "click": (rng.random(n) < probability).astype(float),
            "probability": probability,
            "impressions": rng.integers(0, 4, n).astype(float),
        }
    )


def by_the_book(part):
    likelihood = np.where(part["click"] == 1, part["probability"], 1 - part["probability"])
    return 2 ** -np.mean(np.log2(likelihood))


def test_perplexity_is_the_mean_over_positions(rows):
    expected = rows.groupby("position")[["click", "probability"]].apply(by_the_book)
    args = rows["click"], rows["probability"]
    assert_allclose(perplexity_score(*args, position=rows["position"]), expected.mean())
    assert_allclose(perplexity_score(*args), by_the_book(rows))
    table = perplexity_score(*args, position=rows["position"], per_position=True)
    assert_allclose(table["perplexity"], expected)
    assert list(table.index) == [1, 2, 3, 4, 5]
    assert_allclose(table["weight"], rows["position"].value_counts().sort_index())


def test_weights_repeat_rows(rows):
    repeated = rows.loc[rows.index.repeat(rows["impressions"].astype(int))]
    assert_allclose(
        perplexity_score(
            rows["click"],
            rows["probability"],
            position=rows["position"],
            sample_weight=rows["impressions"],
        ),
        perplexity_score(
            repeated["click"], repeated["probability"], position=repeated["position"]
        ),
    )
    assert_allclose(
        click_log_likelihood(
            rows["click"], rows["probability"], sample_weight=rows["impressions"]
        ),
        click_log_likelihood(repeated["click"], repeated["probability"]),
    )


def test_a_click_rate_is_its_clicks(rows):
    """A row of 4 impressions with 3 clicks, and its 4 rows."""
    whole = {"sample_weight": [4.0, 1.0], "position": [1, 2]}
    single = {"position": [1, 1, 1, 1, 2]}
    for metric, drop in ((perplexity_score, ()), (click_log_likelihood, ("position",))):
        value, expected = (
            metric(y, p, **{k: v for k, v in options.items() if k not in drop})
            for y, p, options in (
                ([0.75, 0.0], [0.6, 0.2], whole),
                ([1, 1, 0, 1, 0], [0.6] * 4 + [0.2], single),
            )
        )
        assert_allclose(value, expected)


def test_the_truth_has_the_least_perplexity():
    rng = np.random.default_rng(0)
    probability = rng.uniform(0.1, 0.9, 20_000)
    clicks = rng.random(20_000) < probability
    truth = perplexity_score(clicks, probability)
    assert truth < perplexity_score(clicks, np.clip(probability + 0.1, 0, 1))
    assert truth < perplexity_score(clicks, np.full(20_000, probability.mean()))
    assert_allclose(perplexity_score(clicks, np.full(20_000, 0.5)), 2)


def test_likelihood_by_session_is_of_whole_patterns(rows):
    likelihood = np.where(rows["click"] == 1, rows["probability"], 1 - rows["probability"])
    pattern = pd.Series(likelihood).groupby(rows["session"]).prod()
    value = click_log_likelihood(rows["click"], rows["probability"], session=rows["session"])
    assert_allclose(value, np.log(pattern).mean())
    # A session that stands for several weighs as much.
    weight = 1.0 + rows["session"] % 3
    value = click_log_likelihood(
        rows["click"], rows["probability"], session=rows["session"], sample_weight=weight
    )
    expected = np.average(np.log(pattern), weights=1.0 + pattern.index % 3)
    assert_allclose(value, expected)


def test_impossible_clicks_cost_a_finite_amount():
    with pytest.warns(ClickDataWarning, match="1 of 1 clicks impossible"):
        assert_allclose(perplexity_score([1], [0.0]), 1e10)
    assert_allclose(perplexity_score([0], [1.0]), 1e10, rtol=1e-6)
    assert_allclose(perplexity_score([0, 1], [0.0, 1.0]), 1)


@pytest.mark.parametrize("metric", [perplexity_score, click_log_likelihood])
@pytest.mark.parametrize(
    ("y", "p", "options", "message"),
    [
        ([0, np.nan], [0.5, 0.5], {}, r"y_true must be in \[0, 1\]"),
        ([0, 2], [0.5, 0.5], {}, r"first 2 in row 1"),
        ([0, 1], [0.5, np.inf], {}, r"y_prob must be in \[0, 1\]"),
        ([0, 1], [-0.1, 0.5], {}, r"y_prob must be in \[0, 1\]"),
        ([0, 1], [0.5], {}, r"shapes y_true \(2,\), y_prob \(1,\)"),
        ([], [], {}, "empty"),
        ([0, 1], [0.5, 0.5], {"sample_weight": [1, -1]}, "at least 0"),
        ([0, 1], [0.5, 0.5], {"sample_weight": [0, 0]}, "0 in every row"),
    ],
)
def test_bad_input(metric, y, p, options, message):
    with pytest.raises(ValueError, match=message):
        metric(y, p, **options)


def test_bad_positions_and_sessions():
    with pytest.raises(ValueError, match=r"position must have one value .* 1 missing"):
        perplexity_score([0, 1], [0.5, 0.5], position=[1, None])
    with pytest.raises(ValueError, match=r"session must have .* the shape \(1,\)"):
        click_log_likelihood([0, 1], [0.5, 0.5], session=["a"])
    with pytest.raises(ValueError, match="per_position=True needs position="):
        perplexity_score([0, 1], [0.5, 0.5], per_position=True)
