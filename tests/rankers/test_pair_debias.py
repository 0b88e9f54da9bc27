from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from skultr._log._clicklog import make_click_log
from skultr._log._roles import read_features
from skultr._torch._lists import ListDataset
from skultr.rankers import PairDebiasRanker
from skultr.rankers._pair_debias import PairDebiasLoss, PairDebiasModule, _pairs_won

from .._worlds import FEATURES, random_lists, small_log


def _log(frame, clicks):
    return make_click_log(frame, read_features(frame).to_numpy(), clicks)


def _batch(log):
    """All lists of a log in double precision."""
    data = ListDataset(log, torch.from_numpy(log.features).double())
    data.clicks, data.weight = data.clicks.double(), data.weight.double()
    return data.__getitems__(range(len(data)))[0]


def _module(p=0.0, n_factors=3, reference=0):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(3, 1))
    return PairDebiasModule(network, n_factors, reference, p).double()


def _pair_losses(module, log):
    """Every pair of a log of single sessions: its two rows and its loss, one by one."""
    scores = (
        module.network[1](torch.from_numpy(log.features).double()).detach().numpy()[log.doc, 0]
    )
    return [
        (i, j, np.log1p(np.exp(scores[j] - scores[i])))
        for i in range(log.n_rows)
        for j in range(log.n_rows)
        if log.list_[i] == log.list_[j] and log.clicks[i] == 1 and log.clicks[j] == 0
    ]


def test_loss_is_the_sum_over_pairs():
    log = _log(*random_lists(n_sessions=30))
    module = _module()
    module.ratios[:] = torch.tensor([[1.0, 0.5, 0.2], [1.0, 0.8, 0.9]])
    plus, minus = module.ratios.numpy()
    expected = sum(
        loss / (plus[log.bias[i]] * minus[log.bias[j]]) for i, j, loss in _pair_losses(module, log)
    )
    batch = _batch(log)
    outputs = module.eval()(batch)
    assert PairDebiasLoss(2.0).train()(outputs, batch).item() == pytest.approx(
        2 * expected / len(batch)
    )
    weights = sum(
        1 / (plus[log.bias[i]] * minus[log.bias[j]]) for i, j, _ in _pair_losses(module, log)
    )
    assert PairDebiasLoss(2.0).eval()(outputs, batch).item() == pytest.approx(expected / weights)


def test_gradient_is_right():
    batch = _batch(_log(*random_lists(n_sessions=10)))
    ratios = [batch.pad(torch.rand(len(batch.bias), dtype=torch.float64) + 0.5) for _ in range(2)]
    scores = torch.randn(batch.mask.shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: PairDebiasLoss(1.0)((s, *ratios), batch), scores)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_ratios_by_hand(p):
    """From one batch, where factors were shown equally often: the published formula."""
    log = _log(*random_lists(n_sessions=30))
    module = _module(p).train()
    before = np.array([[1.0, 0.5, 0.2], [1.0, 0.8, 0.9]])
    module.ratios[:] = torch.from_numpy(before)
    pairs = _pair_losses(module, log)
    module(_batch(log))
    sums = np.zeros((2, 3))
    for i, j, loss in pairs:
        sums[0, log.bias[i]] += loss / before[1, log.bias[j]]
        sums[1, log.bias[j]] += loss / before[0, log.bias[i]]
    np.testing.assert_allclose(module.ratios, (sums / sums[:, :1]) ** (1 / (p + 1)))


def test_ratios_are_those_of_an_impression():
    """A factor that was shown half as often does not look half as biased."""
    frame, clicks = random_lists(n_sessions=300)
    module = _module().train()
    module(_batch(_log(frame, clicks)))
    expected = module.ratios.clone()
    # Every third row moves to a code of its own, every other one of them to another.
    parts = frame.assign(
        bias=np.where(frame["position"] == 3, 3 + frame["session"] % 2, frame["position"])
    )
    split = _module(n_factors=4).train()
    split(_batch(_log(parts, clicks)))
    np.testing.assert_allclose(split.ratios[:, 2:].mean(axis=1), expected[:, 2], rtol=0.02)


def test_validation_leaves_the_ratios_alone():
    batch = _batch(_log(*random_lists(n_sessions=30)))
    module = _module().eval()
    module(batch)
    assert (module.ratios == 1).all()


def test_batch_without_a_pair_at_the_reference_leaves_the_ratios_alone():
    frame, clicks = random_lists(n_sessions=30)
    unclicked = _log(frame, np.where(frame["position"] == 1, 0.0, clicks))
    nothing = replace(unclicked, clicks=0 * unclicked.clicks)
    module = _module().train()
    module(_batch(nothing))
    assert (module.ratios == 1).all()  # 0 / 0
    module(_batch(unclicked))
    assert (module.ratios[0] == 1).all()  # by click 1 / 0; by missing click there are pairs
    assert (module.ratios[1] != 1).sum() == 2
    module(_batch(nothing))
    assert torch.isfinite(module.ratios).all()


def test_factor_that_was_never_clicked_keeps_finite_weights():
    log, clicks = random_lists()
    clicks[log["position"] == 2] = 0
    table = PairDebiasRanker(max_epochs=5, p=0.0, random_state=0).fit(log, clicks).bias_ratios_
    assert table.loc[2, "t_plus"] == pytest.approx(1e-3)
    assert np.isfinite(table).all(axis=None)


def test_factor_that_stood_in_no_pair_keeps_ratios_of_1():
    log, clicks = random_lists()
    lone = log.iloc[:1].assign(qid=1000, session=10_000, position=1)
    log["bias"] = log["position"]
    log = pd.concat([log, lone.assign(bias=9)], ignore_index=True).assign(doc_scope="global")
    ranker = PairDebiasRanker(max_epochs=3, random_state=0).fit(log, [*clicks, 1])
    assert ranker.bias_ratios_.loc[9, ["t_plus", "t_minus"]].tolist() == [1.0, 1.0]


def test_means_of_a_rare_factor_wait_for_its_next_batch():
    """In single precision they would fade to nothing, and its ratio with them."""
    frame, clicks = random_lists(n_sessions=30)
    module = _module().train()
    module(_batch(_log(frame, clicks)))
    losses, impressions = module.losses[:, 2].clone(), module.impressions[2].clone()
    others = frame["position"] < 3
    module(_batch(_log(frame[others], clicks[others])))
    assert (module.losses[:, 2] == losses).all()
    assert module.impressions[2] == impressions


def test_folded_list_has_the_pairs_of_independent_clicks():
    """Many sessions of one list, whose clicks are independent, and the list that they fold to."""
    rng = np.random.default_rng(0)
    frame, _ = small_log(n_queries=1, n_sessions=20_000)
    rate = np.array([0.6, 0.3, 0.2, 0.1])[frame["position"] - 1]
    log = _log(frame, (rng.random(len(frame)) < rate).astype(float))
    module, loss = _module(n_factors=4).eval(), PairDebiasLoss(1.0).train()
    found = []
    for some in (log, log.fold()):
        batch = _batch(some)
        found.append(loss(module(batch), batch).item() * len(batch))
    assert log.fold().n_lists == 1
    assert found[1] == pytest.approx(found[0], rel=0.01)
    assert _pairs_won(log.fold()).sum() == pytest.approx(_pairs_won(log).sum(), rel=0.01)


def test_large_p_is_pairwise_ranking_without_debiasing():
    log, clicks = random_lists()
    table = PairDebiasRanker(p=1e6, max_epochs=3, random_state=0).fit(log, clicks).bias_ratios_
    np.testing.assert_allclose(table[["t_plus", "t_minus"]], 1, atol=1e-4)


def test_learns_the_order_where_no_position_is_biased():
    log, _ = random_lists(n_sessions=600, n_queries=20, n_documents=5)
    score = log[FEATURES].to_numpy() @ [1.0, -1.0, 0.5]
    rate = 1 / (1 + np.exp(-score))
    ranker = PairDebiasRanker(max_epochs=30, random_state=0).fit(log.assign(impressions=50), rate)
    ratios = ranker.bias_ratios_[["t_plus", "t_minus"]]
    np.testing.assert_allclose(ratios, 1, atol=0.05)
    assert np.corrcoef(ranker.predict(log), score)[0, 1] > 0.95


def test_reference_is_the_most_frequent_factor():
    log, clicks = random_lists()
    frequent = log.assign(impressions=np.where(log["position"] == 2, 5, 1))
    ranker = PairDebiasRanker(max_epochs=3, random_state=0).fit(frequent, 0.8 * clicks)
    table = ranker.bias_ratios_
    assert table.loc[2, ["t_plus", "t_minus"]].tolist() == [1, 1]
    assert table.loc[1, "t_plus"] != 1


def test_tables_hold_what_they_say():
    log, clicks = random_lists()
    ranker = PairDebiasRanker(max_epochs=3, random_state=0).fit(log, clicks)
    table = ranker.bias_ratios_
    assert table.columns.tolist() == ["t_plus", "t_minus", "impressions", "clicks"]
    assert table["impressions"].sum() == len(log)
    assert table["clicks"].sum() == clicks.sum()
    relative = (table["t_plus"] / table["t_plus"].iloc[0]).rename("examination")
    pd.testing.assert_series_equal(ranker.examination_["examination"], relative)


@pytest.mark.parametrize("value", [-0.1, "a", None])
def test_p_is_checked(value):
    with pytest.raises(ValueError, match="'p' parameter of PairDebiasRanker"):
        PairDebiasRanker(p=value).fit(*random_lists())
