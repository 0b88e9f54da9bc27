import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit

from skultr._torch._joint import TowersLoss
from skultr._torch._lists import ListDataset
from skultr.rankers import AffineRanker
from skultr.rankers._affine import AffineLoss, AffineModule, TrustStep, fit_trust

from .._torch.test_joint import Batch
from .._worlds import random_lists

ALPHA = np.array([0.4, 0.3, 0.1])
BETA = np.array([0.4, 0.1, 0.02])


def _logits(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, generator=generator, dtype=torch.float64).requires_grad_()


def _table(*values):
    """A probability a row, 0 at padding, as the module gives it."""
    values = torch.tensor(values, dtype=torch.float64).expand(2, 3)
    return torch.where(Batch.mask, values, 0.0)


LOW, HIGH = _table(0.3, 0.1, 0.02), _table(0.8, 0.5, 0.1)


def _one_hot_world():
    """Documents as one-hot vectors in random orders, clicked exactly as trust bias has it."""
    log, _ = random_lists(n_sessions=400, n_queries=5, n_documents=5)
    log = log.drop(columns=["f0", "f1", "f2"])
    # At least .0375 apart, so that no two documents are nearly equal.
    relevance = np.random.default_rng(0).permutation(np.linspace(0.05, 0.95, 25))
    names = [f"d{i}" for i in range(25)]
    log = log.join(pd.DataFrame(np.eye(25, dtype=np.float32)[log["doc"]], columns=names))
    place = log["position"].to_numpy() - 1
    rate = ALPHA[place] * relevance[log["doc"]] + BETA[place]
    return log.assign(impressions=2_000), rate, relevance[log["doc"]]


def _table_ranker(**params):
    """A network that is a table of documents."""
    settings = {
        "hidden_layer_sizes": (), "scale_features": False, "learning_rate": 0.05,
        "max_epochs": 150, "batch_size": 4096, "weight_decay": 0.0, "random_state": 0,
    }  # fmt: skip
    return AffineRanker(**{**settings, **params})


# The likelihood ---------------------------------------------------------------------------
def test_value_by_enumeration_of_impressions():
    g = _logits()
    expected = 0.0
    for place in zip(*np.nonzero(Batch.mask.numpy()), strict=True):
        relevance = expit(g[place].item())
        p = (HIGH - LOW)[place].item() * relevance + LOW[place].item()
        clicks, weight = Batch.clicks[place].item(), Batch.weight[place].item()
        expected -= clicks * np.log(p) + (weight - clicks) * np.log(1 - p)
    assert AffineLoss(3.0)((g, LOW, HIGH), Batch()).item() == pytest.approx(expected * 3 / 2)


def test_gradient_is_right():
    loss = AffineLoss(1.0)
    assert torch.autograd.gradcheck(lambda g: loss((g, LOW, HIGH), Batch()), _logits())


def test_without_trust_it_is_the_position_based_model():
    """Value and gradient are those of regression-EM."""
    ours, theirs = _logits(), _logits()
    loss = AffineLoss(1.0)((ours, 0 * LOW, HIGH), Batch())
    loss.backward()
    examination = torch.where(Batch.mask, torch.logit(HIGH.clamp(min=1e-3)), 0.0)
    other = TowersLoss(1.0)((theirs, examination), Batch())
    other.backward()
    torch.testing.assert_close(loss, other)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_padding_is_not_seen():
    g = _logits()
    expected = AffineLoss(1.0)((g, LOW, HIGH), Batch())
    dirty = g.detach().masked_fill(~Batch.mask, 1e3).requires_grad_()
    found = AffineLoss(1.0)((dirty, LOW, HIGH), Batch())
    torch.testing.assert_close(found, expected)
    found.backward()
    assert (dirty.grad[~Batch.mask] == 0).all()


@pytest.mark.parametrize("extreme", [-1e3, 0.0, 1e3])
def test_certain_network_keeps_loss_and_gradient_finite(extreme):
    g = torch.full((2, 3), extreme, dtype=torch.float64).requires_grad_()
    loss = AffineLoss(1.0)((g, LOW, HIGH), Batch())
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(g.grad).all()


# The coefficients -------------------------------------------------------------------------
def _rows(seed=0, n_rows=3_000):
    rng = np.random.default_rng(seed)
    return (
        rng.random(n_rows),
        rng.integers(0, 3, n_rows),
        rng.integers(1, 50, n_rows).astype(float),
    )


def test_exact_clicks_give_the_exact_coefficients():
    relevance, factor, weight = _rows()
    clicks = weight * (ALPHA[factor] * relevance + BETA[factor])
    low, high = fit_trust(relevance, factor, clicks, weight, n_factors=3)
    np.testing.assert_allclose(low, BETA, atol=1e-4)
    np.testing.assert_allclose(high, ALPHA + BETA, atol=1e-4)


@pytest.mark.parametrize("rate", [1e-2, 1e-4, 1e-6])
def test_rare_clicks_give_the_exact_coefficients_too(rate):
    clicks, weight = 1e12 * np.array([rate / 2, rate]), np.full(2, 1e12)
    low, high = fit_trust(np.array([0.0, 1.0]), np.zeros(2, int), clicks, weight, n_factors=1)
    np.testing.assert_allclose([low[0], high[0]], [rate / 2, rate], rtol=1e-4)


@pytest.mark.parametrize("rate", [1e-2, 1e-4])
def test_rare_missing_clicks_give_the_exact_coefficients_too(rate):
    clicks, weight = 1e12 * np.array([1 - rate, 1 - rate / 2]), np.full(2, 1e12)
    low, high = fit_trust(np.array([0.0, 1.0]), np.zeros(2, int), clicks, weight, n_factors=1)
    np.testing.assert_allclose([1 - low[0], 1 - high[0]], [rate, rate / 2], rtol=1e-4)


def test_no_step_within_the_bounds_helps():
    relevance, factor, weight = _rows()
    rng = np.random.default_rng(1)
    # Factor 1 is clicked less the more relevant: its best lies where alpha is 0.
    slope = np.array([0.4, -0.3, 0.1])[factor]
    chance = np.array([0.1, 0.5, 0.0])[factor] + slope * relevance
    clicks = rng.binomial(weight.astype(int), chance).astype(float)
    best = fit_trust(relevance, factor, clicks, weight, n_factors=3)

    def likelihood(low, high):
        p = low[factor] * (1 - relevance) + high[factor] * relevance
        values = clicks * np.log(p) + (weight - clicks) * np.log1p(-p)
        return np.bincount(factor, values) / np.bincount(factor, weight)

    top = likelihood(*best)
    for step in np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [1, -1], [-1, 1]]):
        low, high = best + 0.02 * step[:, None]
        inside = (low > 0) & (high < 1) & (low <= high)
        moved = likelihood(np.clip(low, 1e-9, 1), np.clip(high, 1e-9, 1 - 1e-9))
        assert (moved[inside] < top[inside]).all()
    assert best[1, 1] - best[0, 1] < 1e-3


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("relevance", [0.0, 0.5, 1.0])
def test_coefficients_stay_within_their_bounds(rate, relevance):
    _, factor, weight = _rows()
    constant = np.full(len(factor), relevance)
    low, high = fit_trust(constant, factor, rate * weight, weight, n_factors=4)
    assert (low[:3] >= 0).all()
    assert (low[:3] <= high[:3]).all()
    assert (high[:3] <= 1).all()
    chance = low * (1 - relevance) + high * relevance
    np.testing.assert_allclose(chance[:3], rate, atol=1e-4)
    assert np.isnan([low[3], high[3]]).all()  # without impressions


def test_training_begins_without_trust_and_with_bias_factors_alike():
    _, factor, impressions = _rows()

    class Data(ListDataset):
        def __init__(self):
            """Rows of one list."""

        bias = torch.from_numpy(factor)
        version = torch.zeros_like(bias)
        lengths, starts = torch.tensor([len(bias)]), torch.tensor([0])
        weight = torch.from_numpy(impressions)
        clicks = weight * 0.2

    module = AffineModule(torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity()), 4)
    TrustStep().start(module, Data())
    np.testing.assert_allclose(module.low, np.full(4, 0.02 * 0.2), rtol=1e-5)
    np.testing.assert_allclose(module.high, np.full(4, 2 * 0.2 + 0.1), rtol=1e-5)


# The ranker -------------------------------------------------------------------------------
def test_recovers_coefficients_and_relevance_up_to_an_affine_map():
    log, rate, relevance = _one_hot_world()
    ranker = _table_ranker(loss="likelihood").fit(log, rate)
    # The rates are exact: what is left is what 150 epochs leave, .011 with a standard deviation of
    # .004 in other worlds. Without trust the rates at position 1 of the worst are off by .1.
    np.testing.assert_allclose(ranker.predict_click(log), rate, atol=0.025)
    np.testing.assert_allclose(ranker.examination_["examination"], ALPHA / ALPHA[0], atol=0.05)
    slope, offset = np.polyfit(ranker.predict(log), relevance, 1)
    np.testing.assert_allclose(slope * ranker.predict(log) + offset, relevance, atol=0.05)
    # The same map takes the coefficients to the true ones.
    np.testing.assert_allclose(ranker.trust_["alpha"] / slope, ALPHA, atol=0.02)
    shifted = ranker.trust_["beta"] - offset / slope * ranker.trust_["alpha"]
    np.testing.assert_allclose(shifted, BETA, atol=0.02)


@pytest.mark.parametrize("clip", [None, 0.8])
def test_labels_of_the_ranking_network_are_unbiased(clip):
    """Over draws of the clicks their mean is relevance, where a bound does not need the model."""
    ranker = AffineRanker(clip=clip)
    ranker.trust_ = pd.DataFrame({"alpha": ALPHA, "beta": BETA})
    rng = np.random.default_rng(0)
    truth = np.array([0.2, 0.9, 0.5])
    believed = truth if clip else np.array([0.6, 0.1, 0.3])  # unclipped labels need no model

    class Log:
        bias = np.tile(np.arange(3), 40_000)
        weight = np.ones(120_000)
        clicks = (rng.random(120_000) < (ALPHA * truth + BETA)[bias]).astype(float)

    draws = ranker._labels(Log, believed[Log.bias]).reshape(-1, 3)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - truth) < 3 * error).all()
    assert draws.min() < 0  # what is not clicked counts below nothing
    if clip is None:
        published = ((Log.clicks - BETA[Log.bias]) / ALPHA[Log.bias]).reshape(-1, 3)
        np.testing.assert_allclose(draws, published)


def test_bound_limits_what_a_click_weighs():
    ranker = AffineRanker(clip=0.3)
    ranker.trust_ = pd.DataFrame({"alpha": [0.4, 0.3, 1e-9], "beta": BETA})

    class Log:
        weight, bias = np.ones(2), np.array([2, 2])
        clicks = np.array([0.0, 1.0])

    def weight_of_click():
        return np.diff(ranker._labels(Log, np.zeros(2)))[0]

    # Of the first factor a relevant document is clicked with probability 0.4 + 0.4.
    assert weight_of_click() == pytest.approx(1 / (0.3 * 0.8))
    ranker.set_params(clip=None)
    assert weight_of_click() > 1e8


def test_both_losses_put_documents_in_their_true_order():
    log, rate, relevance = _one_hot_world()
    for loss in ("softmax", "likelihood"):
        score = _table_ranker(loss=loss, max_epochs=600).fit(log, rate).predict(log)
        for _, rows in pd.DataFrame({"s": score, "r": relevance}).groupby(log["qid"]):
            assert rows.corr(method="spearman").iloc[0, 1] > 0.99


def test_ranking_network_stands_beside_that_of_the_clicks():
    log, rate, _ = _one_hot_world()
    ranker = _table_ranker(max_epochs=3).fit(log, rate)
    assert ranker.network_ is not ranker.click_network_
    assert len(ranker.history_) == len(ranker.click_history_) == 3
    # Labels of the mean list, of three documents, add up to about 1 once they are scaled.
    assert ranker.history_.iloc[0]["train_loss"] == pytest.approx(np.log(3), rel=0.1)
    alone = _table_ranker(max_epochs=3, loss="likelihood").fit(log, rate)
    assert alone.network_ is alone.click_network_
    np.testing.assert_array_equal(alone.predict_click(log), ranker.predict_click(log))
    assert ((alone.predict(log) > 0) & (alone.predict(log) < 1)).all()


def test_tables_hold_what_they_say():
    log, rate, _ = _one_hot_world()
    ranker = _table_ranker(max_epochs=3).fit(log, rate)
    assert ranker.trust_.columns.tolist() == ["alpha", "beta", "impressions", "clicks"]
    assert ranker.trust_["impressions"].sum() == log["impressions"].sum()
    assert ranker.trust_["clicks"].sum() == pytest.approx((rate * log["impressions"]).sum())
    alpha = ranker.trust_["alpha"]
    np.testing.assert_allclose(ranker.examination_["examination"], alpha / alpha.iloc[0])


def test_click_probability_of_rows_that_were_not_shown_is_0():
    log, rate, _ = _one_hot_world()
    ranker = _table_ranker(max_epochs=3).fit(log, rate)
    hidden = log.assign(position=log["position"].where(log.index > 0).astype(float))
    found = ranker.predict_click(hidden)
    assert found[0] == 0
    np.testing.assert_array_equal(found[1:], ranker.predict_click(log)[1:])
    with pytest.raises(
        ValueError, match="bias factor that was not in the training log, such as 9"
    ):
        ranker.predict_click(log.assign(position=9))


def test_factor_that_was_never_clicked_ruins_nothing():
    log, rate, relevance = _one_hot_world()
    rate = np.where(log["position"] == 3, 0.0, rate)
    ranker = _table_ranker().fit(log, rate)
    assert ranker.trust_.loc[3, ["alpha", "beta"]].max() < 1e-3
    by_doc = pd.DataFrame({"s": ranker.predict(log), "r": relevance}).groupby(log["qid"])
    assert (by_doc.corr(method="spearman").iloc[::2, 1] > 0.95).all()


@pytest.mark.parametrize("value", [0, 1.5, "a"])
def test_clip_is_checked(value):
    with pytest.raises(ValueError, match="'clip' parameter of AffineRanker"):
        AffineRanker(clip=value).fit(*random_lists())


def test_loss_is_checked():
    with pytest.raises(ValueError, match="'loss' parameter of AffineRanker"):
        AffineRanker(loss="bce").fit(*random_lists())
