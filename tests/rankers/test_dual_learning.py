import numpy as np
import pandas as pd
import pytest
import torch

from skultr._log._cells import loss_scale
from skultr._log._clicklog import make_click_log
from skultr._log._roles import read_features
from skultr._models._solve import GroupedLogit
from skultr._torch._joint import DualLoss, ExaminationModule
from skultr._torch._lists import LOSSES, ListDataset, ListLoss
from skultr._torch._networks import ListScores, scoring_network
from skultr.exceptions import ClickDataWarning
from skultr.rankers import DLARanker

from .._worlds import random_lists


def _gradients(log, module, criterion):
    """Full-batch loss and gradients in float64."""
    features = torch.from_numpy(log.features).double()
    dataset = ListDataset(log, features)
    dataset.clicks, dataset.weight = dataset.clicks.double(), dataset.weight.double()
    batch, _ = dataset.__getitems__(range(len(dataset)))
    module.zero_grad()
    # A batch means over its lists, so that the folded one, with fewer, is scaled back.
    loss = criterion(module(batch), batch) * len(batch)
    loss.backward()
    return loss.item(), [parameter.grad.clone() for parameter in module.parameters()]


@pytest.mark.parametrize("name", [*sorted(set(LOSSES) - {"lambda"}), "dual"])
def test_folded_log_has_the_objective_and_gradient_of_the_raw_log(name):
    frame, clicks = random_lists()
    raw = make_click_log(frame, read_features(frame).to_numpy(), clicks)
    folded = raw.fold()
    assert folded.n_lists < raw.n_lists
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Identity(), scoring_network(3, hidden_layer_sizes=(4,)))
    if name == "dual":
        module = ExaminationModule(network, 3, reference=0).double()
        module.examination.data.normal_()
        criterion = DualLoss(1.0)
    else:
        module, criterion = ListScores(network).double(), ListLoss(LOSSES[name], 1.0)
    loss, gradients = _gradients(raw, module, criterion)
    folded_loss, folded_gradients = _gradients(folded, module, criterion)
    assert folded_loss == pytest.approx(loss, rel=1e-6)
    for a, b in zip(gradients, folded_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_dual_loss_by_hand():
    clicks = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    g = torch.tensor([[0.5, -0.5]], dtype=torch.float64, requires_grad=True)
    h = torch.tensor([[0.0, -1.0]], dtype=torch.float64, requires_grad=True)

    class Batch:
        mask, weight = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)

        def __len__(self):
            return 1

    Batch.clicks = clicks
    loss = DualLoss(1.0)((g, h), Batch())
    log_g, log_h = (torch.log_softmax(x.detach(), dim=1)[0] for x in (g, h))
    rank = -(1 * log_g[0] + 2 * np.exp(0 - -1) * log_g[1])
    exam = -(1 * log_h[0] + 2 * np.exp(0.5 - -0.5) * log_h[1])
    assert loss.item() == pytest.approx((rank + exam).item())
    loss.backward()
    softmax = torch.softmax(g.detach(), dim=1)[0]
    weighted = torch.tensor([1.0, 2 * np.e])
    torch.testing.assert_close(g.grad[0], weighted.sum() * softmax - weighted)


def _shuffled_world(n_queries=150, n_documents=6, n_per_list=400, seed=0):
    """Aggregated log: each query served in six orders; relevance linear in the features."""
    rng = np.random.default_rng(seed)
    curve = np.array([1.0, 0.6, 0.4, 0.3, 0.2, 0.1])
    features = rng.normal(size=(n_queries, n_documents, 3))
    chance = 1 / (1 + np.exp(-(features @ np.array([1.5, -1.0, 0.5]) - 0.5)))
    rows = []
    for query in range(n_queries):
        for arm in range(6):
            order = rng.permutation(n_documents)
            clicks = rng.binomial(n_per_list, curve * chance[query, order]) / n_per_list
            for place, document in enumerate(order):
                rows.append(
                    (query, query * 6 + arm, query * 6 + document, place + 1, n_per_list,
                     *features[query, document], clicks[place], chance[query, document])
                )  # fmt: skip
    names = ["qid", "session", "doc", "position", "impressions", "f0", "f1", "f2", "click", "r"]
    log = pd.DataFrame(rows, columns=names)
    return log.drop(columns=["click", "r"]), log["click"].to_numpy(), log["r"].to_numpy(), curve


def test_dual_learning_recovers_examination_and_relevance():
    log, clicks, chance, curve = _shuffled_world()
    ranker = DLARanker(random_state=0, max_epochs=60).fit(log, clicks)
    np.testing.assert_allclose(ranker.examination_["examination"], curve, atol=0.03)
    truth = pd.Series(np.log(chance)).groupby(log["qid"]).transform(lambda x: x - x.mean())
    score = pd.Series(ranker.predict(log))
    score -= score.groupby(log["qid"]).transform("mean")
    assert np.corrcoef(score, truth)[0, 1] > 0.98


def test_examination_follows_the_bias_column():
    """Two devices with different curves: one factor a (device, position)."""
    log, clicks, _, curve = _shuffled_world(n_queries=60)
    log["bias"] = log["position"] + 100
    table = DLARanker(random_state=0, max_epochs=60).fit(log, clicks).examination_
    assert table.index.tolist() == [101, 102, 103, 104, 105, 106]
    np.testing.assert_allclose(table["examination"], curve, atol=0.06)
    assert table["impressions"].sum() == log["impressions"].sum()


def test_constant_of_the_loss_ignores_traffic():
    frame, clicks = random_lists()
    log = make_click_log(frame, read_features(frame).to_numpy(), clicks).fold()
    more = make_click_log(
        frame.assign(impressions=7), read_features(frame).to_numpy(), clicks
    ).fold()
    assert loss_scale(log, log.clicks) * log.clicks.sum() == pytest.approx(
        loss_scale(more, more.clicks) * more.clicks.sum()
    )
    assert loss_scale(log, 0 * log.clicks) == 1.0


def test_likeliest_examination_is_where_no_step_helps():
    frame, clicks = random_lists()
    log = make_click_log(frame, read_features(frame).to_numpy(), clicks).fold()
    relevance = np.random.default_rng(0).normal(size=log.n_rows)
    choice = GroupedLogit.from_rows(log.list_, log.clicks)
    best = choice.likeliest_examination(relevance, log.bias, np.zeros(3))

    def likelihood(logits):
        joint = pd.Series(relevance + logits[log.bias])
        norm = joint.groupby(log.list_).transform(lambda z: np.log(np.exp(z).sum()))
        return log.clicks @ (joint - norm)

    for step in np.vstack([np.eye(3), -np.eye(3)]) * 0.05:
        assert likelihood(best + step) < likelihood(best)


def test_factor_without_clicks_stays_finite():
    log, clicks = random_lists()
    clicks[log["position"] == 3] = 0
    ranker = DLARanker(examination="network", random_state=0, max_epochs=3)
    table = ranker.fit(log, clicks).examination_
    assert np.isfinite(table["examination"]).all()
    assert table["examination"].iloc[2] < 1e-3


def test_factors_without_any_clicked_list_are_unknown():
    log, clicks = random_lists()
    device = log["session"] % 2
    log["bias"] = log["position"] + 100 * device
    ranker = DLARanker(examination="network", random_state=0, max_epochs=3)
    with pytest.warns(ClickDataWarning, match="3 bias factors occur in no list with a click"):
        ranker.fit(log, clicks * (1 - device))
    known = np.isfinite(ranker.examination_["examination"])
    assert known.index[known].tolist() == [1, 2, 3]


@pytest.mark.parametrize("examination", [[1.0, 0.5, 0.25], [0.25, 0.5, 1.0]])
def test_embedding_is_the_fixed_point_of_alternating_least_squares(examination):
    log, clicks = random_lists()
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.3, 0.9, 12)[log["doc"]] * np.take(examination, log["position"] - 1)
    clicks = (rng.random(len(log)) < chance).astype(float)
    ranker = DLARanker(relevance="embedding", variant="published", random_state=0)
    ranker.fit(log, clicks)
    o = ranker.examination_["examination"].to_numpy()[log["position"] - 1]
    r = ranker.predict(log)
    # Each part is determined up to one constant, which both formulas share.
    frame = log.assign(cr=clicks * r, rr=r**2, co=clicks * o, oo=o**2)
    by_position = frame.groupby("position")[["cr", "rr"]].sum()
    curve = (by_position["cr"] / by_position["rr"]).to_numpy()
    np.testing.assert_allclose(curve / curve[0], ranker.examination_["examination"], rtol=1e-3)
    by_doc = frame.groupby(["qid", "doc"])[["co", "oo"]].sum()
    relevance = by_doc["co"] / by_doc["oo"]
    np.testing.assert_allclose(
        relevance / relevance.iloc[0], ranker.relevance_ / ranker.relevance_.iloc[0], rtol=1e-3
    )


def test_embedding_needs_no_epochs_and_no_network():
    log, clicks = random_lists()
    ranker = DLARanker(relevance="embedding", max_epochs=1, random_state=0).fit(log, clicks)
    assert not hasattr(ranker, "network_")
    assert ranker.n_iter_ > 1
    other = DLARanker(relevance="embedding", max_epochs=50, random_state=0).fit(log, clicks)
    pd.testing.assert_series_equal(ranker.relevance_, other.relevance_)


@pytest.mark.parametrize("value", ["table", None])
def test_relevance_is_checked(value):
    with pytest.raises(ValueError, match="'relevance' parameter of DLARanker"):
        DLARanker(relevance=value).fit(*random_lists())
