"""Whether ratings of a query differ by more than chance."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from skultr.click_models import UBMModel
from skultr.command._rating_differences import chance_of_differences
from skultr.serving import click_judgments


def judged_pairs(clicks, examinations):
    """Judgments of several queries: clicks and examinations of shape (n_queries, n_docs)."""
    qid, _ = np.indices(clicks.shape)
    return pd.DataFrame(
        {
            "qid": qid.ravel(),
            "clicks": clicks.ravel(),
            "examinations": examinations.ravel(),
            "relevance": 0.1,
        }
    )


@pytest.mark.parametrize("n_clicks", [2, 5, 50])
def test_equally_good_documents_pass_as_often_as_the_chance_says(n_clicks):
    """Also where a document has less than one click, of which chi-squared knows nothing."""
    rng = np.random.default_rng(0)
    share = np.array([0.5, 0.25, 0.1, 0.1, 0.05])
    examinations = np.tile(40 * share, (20, 1))
    n_logs = 400
    chances = np.array(
        [
            chance_of_differences(
                judged_pairs(rng.multinomial(n_clicks, share, size=20), examinations)
            )
            for _ in range(n_logs)
        ]
    )
    for level in (0.05, 0.5):
        error = np.sqrt(level * (1 - level) / n_logs)
        assert np.mean(chances < level) == pytest.approx(level, abs=3.5 * error)


def test_with_many_clicks_it_is_the_test_of_pearson():
    clicks = np.array([[60_000, 60_400, 60_300]])
    expected = clicks.mean()
    statistic = np.sum((clicks - expected) ** 2) / expected
    found = chance_of_differences(judged_pairs(clicks, np.ones((1, 3))))
    assert found == pytest.approx(chi2.sf(statistic, 2), rel=1e-3)


def test_differences_between_queries_do_not_count():
    clicks = np.array([[5, 5], [500, 500]])
    assert chance_of_differences(judged_pairs(clicks, np.full((2, 2), 1000.0))) > 0.9


@pytest.mark.parametrize("clicks", [[[0, 0]], [[3], [9]], [[1, 0]]])
def test_what_cannot_differ_is_chance(clicks):
    clicks = np.array(clicks)
    assert chance_of_differences(judged_pairs(clicks, np.ones(clicks.shape))) == 1


def test_unrated_pairs_do_not_count():
    judged = judged_pairs(np.array([[90, 10]]), np.ones((1, 2)))
    assert chance_of_differences(judged) < 1e-9
    judged.loc[1, "relevance"] = np.nan
    assert chance_of_differences(judged) == 1


def _log(seed, spread):
    """400 pages of four queries of ten documents in any order; every fifth is clicked."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 4, 400)
    order = np.argsort(rng.random((400, 10)), axis=1)[:, :5]
    rate = 0.2 * np.exp(spread * rng.normal(size=(4, 10)))
    chance = np.minimum(rate, 0.9)[query[:, None], order]
    return pd.DataFrame(
        {
            "qid": np.repeat(query, 5),
            "session": np.repeat(np.arange(400), 5),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, 6), 400),
            "click": (rng.random(order.shape) < chance).astype(int).ravel(),
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_pure_noise_is_chance_and_documents_that_differ_are_not(seed):
    found = [
        chance_of_differences(click_judgments(_log(seed, spread), "click", propensity=UBMModel()))
        for spread in (0.0, 0.7)
    ]
    assert found[0] > 0.05
    assert found[1] < 1e-4
