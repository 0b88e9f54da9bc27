import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone

from skultr.exceptions import ClickDataWarning
from skultr.rankers import RegressionEMRanker, TwoTowerRanker

from .._worlds import FEATURES, random_lists

CURVE = np.array([1.0, 0.5, 0.25])
RANKERS = pytest.mark.parametrize(
    "ranker",
    [
        TwoTowerRanker(examination="network", random_state=0),
        TwoTowerRanker(link="additive", random_state=0),
        RegressionEMRanker(examination="network", random_state=0),
    ],
    ids=["product", "additive", "EM"],
)


def _world(link="product"):
    """Random lists whose clicks follow features and positions exactly, without noise."""
    log, _ = random_lists(n_sessions=300, n_queries=30, n_documents=5)
    score = log[FEATURES].to_numpy() @ [1.0, -1.0, 0.5] - 0.5
    exposure = CURVE[log["position"] - 1]
    rate = expit(score + np.log(exposure)) if link == "additive" else expit(score) * exposure
    return log.assign(impressions=100), rate, score


@RANKERS
def test_training_finds_the_optimum_of_the_log(ranker):
    """From the same linear world the three methods end at the truth, not only near it."""
    log, rate, score = _world(getattr(ranker, "link", "product"))
    ranker = clone(ranker).set_params(
        hidden_layer_sizes=(), scale_features=False, learning_rate=0.02, max_epochs=400,
        weight_decay=0.0,
    )  # fmt: skip
    ranker.fit(log, rate)
    np.testing.assert_allclose(ranker.examination_["examination"], CURVE, atol=0.03)
    # Regression-EM approaches the optimum slowly once relevance came first.
    np.testing.assert_allclose(ranker.predict_click(log), rate, atol=0.04)
    found = logit(ranker.predict(log))
    if ranker.link_ == "additive":  # where relevance ends and examination begins is free
        found += (score - found).mean()
    np.testing.assert_allclose(expit(found), expit(score), atol=0.06)


@RANKERS
def test_learning_curves_are_those_of_the_clicks(ranker):
    log, rate, _ = _world(getattr(ranker, "link", "product"))
    ranker = clone(ranker).set_params(max_epochs=8, early_stopping=True).fit(log, rate)
    assert ranker.history_.columns.tolist() == ["train_loss", "valid_loss"]
    assert ranker.history_["train_loss"].iloc[-1] < ranker.history_["train_loss"].iloc[0]
    assert ranker.history_["valid_loss"].iloc[-1] < ranker.history_["valid_loss"].iloc[0]


@RANKERS
def test_another_seed_gives_another_ranker(ranker):
    log, clicks = random_lists()
    first, other = (
        clone(ranker).set_params(max_epochs=2, random_state=seed).fit(log, clicks)
        for seed in (0, 1)
    )
    assert (other.predict(log) != first.predict(log)).any()


@RANKERS
def test_lists_without_a_click_count(ranker):
    """A listwise loss ignores them; here they say how rarely a document is clicked."""
    log, rate, _ = _world(getattr(ranker, "link", "product"))
    seldom = clone(ranker).set_params(max_epochs=30)
    rare = np.where(log["session"] % 2, 0.0, rate)
    often = clone(seldom).fit(log, rate).predict_click(log).mean()
    assert seldom.fit(log, rare).predict_click(log).mean() < 0.7 * often


@RANKERS
def test_log_without_clicks_predicts_none(ranker):
    log, clicks = random_lists()
    with pytest.warns(ClickDataWarning, match="The log has no click"):
        ranker = clone(ranker).set_params(max_epochs=3).fit(log, 0 * clicks)
    assert ranker.predict_click(log).max() < 1e-3
    assert np.isfinite(ranker.examination_["examination"]).all()


@RANKERS
def test_log_of_nothing_but_clicks_is_no_division_by_zero(ranker):
    log, clicks = random_lists(n_sessions=30)  # more rows would be an error
    ranker = clone(ranker).set_params(max_epochs=3).fit(log, 0 * clicks + 1)
    np.testing.assert_allclose(ranker.examination_["examination"], 1.0, atol=1e-6)


@RANKERS
def test_factor_that_was_never_clicked_stays_finite(ranker):
    log, clicks = random_lists()
    clicks[log["position"] == 2] = 0
    table = clone(ranker).set_params(max_epochs=3).fit(log, clicks).examination_
    assert np.isfinite(table["examination"]).all()
    assert table["examination"].iloc[1] < 1e-3


@RANKERS
def test_scale_of_impressions_does_not_matter(ranker):
    log, clicks = random_lists()
    few, many = (
        clone(ranker).set_params(max_epochs=2).fit(log.assign(impressions=n), n * clicks)
        for n in (1, 4096)
    )
    np.testing.assert_allclose(few.predict_click(log), many.predict_click(log), atol=1e-4)


@pytest.mark.parametrize("value", ["sum", None])
def test_link_is_checked(value):
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="'link' parameter of TwoTowerRanker"):
        TwoTowerRanker(link=value).fit(log, clicks)
