"""Losses of two towers, checked by enumeration of what is hidden."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit

from skultr._torch._joint import ExaminationModule, ExaminationStep, TowersLoss
from skultr._torch._lists import ListDataset

LINKS = ["product", "additive"]


class Batch:
    """Two lists of three and two rows; the last place of the second is padding."""

    mask = torch.tensor([[True, True, True], [True, True, False]])
    weight = torch.tensor([[4.0, 3.0, 7.0], [1.0, 2.0, 0.0]], dtype=torch.float64)
    clicks = torch.tensor([[1.0, 0.0, 7.0], [0.5, 2.0, 0.0]], dtype=torch.float64)

    def __len__(self):
        return 2


def _logits(seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (scale * torch.randn(2, 3, generator=generator, dtype=torch.float64)).requires_grad_()
        for _ in range(2)
    ]


def _probability(link, g, h):
    """P(click), summed over whether the row was examined and found relevant."""
    if link == "additive":
        return expit(g + h)
    hidden = itertools.product((0, 1), (0, 1))
    return sum(
        e * r * (expit(h) if e else expit(-h)) * (expit(g) if r else expit(-g)) for e, r in hidden
    )


@pytest.mark.parametrize("link", LINKS)
def test_value_by_enumeration_of_impressions(link):
    g, h = _logits()
    expected = 0.0
    for place in zip(*np.nonzero(Batch.mask.numpy()), strict=True):
        p = _probability(link, g[place].item(), h[place].item())
        clicks, weight = Batch.clicks[place].item(), Batch.weight[place].item()
        expected -= clicks * np.log(p) + (weight - clicks) * np.log(1 - p)
    loss = TowersLoss(3.0, link)((g, h), Batch())
    assert loss.item() == pytest.approx(expected * 3.0 / 2)


@pytest.mark.parametrize("link", LINKS)
def test_gradient_is_right(link):
    loss = TowersLoss(1.0, link)
    assert torch.autograd.gradcheck(lambda g, h: loss((g, h), Batch()), _logits())


@pytest.mark.parametrize("link", LINKS)
def test_padding_is_not_seen(link):
    g, h = _logits()
    loss = TowersLoss(1.0, link)
    expected = loss((g, h), Batch())
    dirty = [x.detach().masked_fill(~Batch.mask, 1e3).requires_grad_() for x in (g, h)]
    found = loss(dirty, Batch())
    torch.testing.assert_close(found, expected)
    found.backward()
    for x in dirty:
        assert (x.grad[~Batch.mask] == 0).all()


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", [0.0, 30.0, 1e3])
def test_extreme_logits_keep_loss_and_gradient_finite(link, scale):
    for signs in itertools.product((-1, 1), (-1, 1)):
        g, h = (
            torch.full((2, 3), sign * scale, dtype=torch.float64).requires_grad_()
            for sign in signs
        )
        loss = TowersLoss(1.0, link)((g, h), Batch())
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(g.grad).all()
        assert torch.isfinite(h.grad).all()


def test_miss_has_no_cancellation_where_both_parts_are_certain():
    """1 - σ(40)² is 8.5e-18, which the naive form in float64 rounds to 0."""
    g = h = torch.full((2, 3), 40.0, dtype=torch.float64)
    batch = Batch()
    batch.clicks, batch.weight = 0 * Batch.clicks, Batch.mask.double()
    loss = TowersLoss(1.0, "product")((g, h), batch).item()
    assert loss == pytest.approx(-5 * np.log(2 * np.exp(-40.0)) / 2)


def test_gradient_is_that_of_the_expected_likelihood():
    """Fisher's identity: one gradient step is a step of EM with expectations of its own."""
    (g, h), batch = _logits(1), Batch()
    TowersLoss(1.0, "product")((g, h), batch).backward()
    r, o = torch.sigmoid(g.detach()), torch.sigmoid(h.detach())
    joint = {(e, k): (o if e else 1 - o) * (r if k else 1 - r) for e in (0, 1) for k in (0, 1)}
    missed = joint[0, 0] + joint[0, 1] + joint[1, 0]  # what a missing click leaves open
    off = batch.weight - batch.clicks
    relevant = batch.clicks + off * joint[0, 1] / missed
    examined = batch.clicks + off * joint[1, 0] / missed
    for part, expected, chance in ((g, relevant, r), (h, examined, o)):
        slope = (batch.weight * chance - expected) / len(batch)
        torch.testing.assert_close(part.grad, slope.masked_fill(~batch.mask, 0.0))


@pytest.mark.parametrize("trained", [True, False])
def test_table_of_examination_is_learned_where_it_shall_be(trained):
    module = ExaminationModule(
        torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(2, 1)), 3, trained=trained
    )
    batch = Batch()
    batch.features, batch.bias = torch.ones(5, 2), torch.tensor([0, 1, 2, 0, 1])
    batch.pad = lambda x: x.new_zeros(2, 3).masked_scatter(batch.mask, x)
    relevance, examination = module(batch)
    assert relevance.shape == examination.shape == (2, 3)
    TowersLoss(1.0)((relevance, examination), batch).backward()
    assert module.network[1].weight.grad.abs().sum() > 0
    assert (module.examination.grad is not None) == trained


def _net(network, n_factors=3, seed=0):
    """What the callback sees of a net and its training lists."""
    rng = np.random.default_rng(seed)
    n_rows = 60

    class Data(ListDataset):
        def __init__(self):
            """Rows of one list."""

        features = torch.from_numpy(rng.normal(size=(10, 2))).float()
        version = torch.from_numpy(rng.integers(0, 10, n_rows))
        bias = torch.from_numpy(rng.integers(0, n_factors, n_rows))
        weight = torch.full((n_rows,), 5.0)
        lengths, starts = torch.tensor([n_rows]), torch.tensor([0])
        clicks = torch.from_numpy(rng.binomial(5, 0.3, n_rows)).float()

    class Net:
        module_ = ExaminationModule(
            torch.nn.Sequential(torch.nn.Identity(), network), n_factors, trained=False
        )

    return Net(), Data()


def test_examination_step_is_where_no_change_of_a_factor_helps():
    network = torch.nn.Linear(2, 1)
    # More relevant than clicked, so that no factor's best lies at the bound.
    torch.nn.init.constant_(network.weight, 0.2)
    torch.nn.init.constant_(network.bias, 0.5)
    net, data = _net(network)
    ExaminationStep().update(net.module_, data)
    table = net.module_.examination
    g = net.module_.network[1](data.features).reshape(-1)[data.version].detach().double()

    class Rows:
        mask = torch.ones(1, 60, dtype=torch.bool)
        clicks, weight = data.clicks.double()[None], data.weight.double()[None]

        def __len__(self):
            return 1

    def loss(logits):
        return TowersLoss(1.0)((g[None], logits[data.bias][None]), Rows()).item()

    best = table.detach().double()
    for step in torch.cat([torch.eye(3), -torch.eye(3)]).double() * 0.05:
        assert loss(best + step) > loss(best)


@pytest.mark.parametrize("extreme", [-1e3, 1e3])
def test_examination_step_bears_a_network_that_is_certain(extreme):
    network = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.constant_(network.bias, extreme)
    net, data = _net(network)
    ExaminationStep().update(net.module_, data)
    assert torch.isfinite(net.module_.examination).all()


class _Steps(ExaminationStep):
    """Notes what it would do at each step."""

    def __init__(self):
        self.done = []

    def start(self, module, data):
        self.done.append("start")

    def update(self, module, data):
        self.done.append("update")


def _schedule(*, n_lists, max_epochs, batch_size=10, callbacks=()):
    """What a step does in each batch of a training: its first letter, or a point for nothing."""

    class Net:
        module_ = torch.nn.Identity()
        callbacks_ = list(callbacks)

    Net.max_epochs, Net.batch_size = max_epochs, batch_size
    step, found = _Steps(), ""
    step.on_train_begin(Net)
    for _ in range(max_epochs):
        step.on_epoch_begin(Net, dataset_train=range(n_lists))
        for _ in range(-(-n_lists // batch_size)):
            step.on_batch_begin(Net, training=True)
            step.on_batch_begin(Net, training=False)
            found += step.done.pop()[0] if step.done else "."
    return found


def test_relevance_comes_first_and_then_a_table_is_set_before_each_epoch():
    expected = "s." + ".." * 19 + "u." * 20
    assert _schedule(n_lists=15, max_epochs=40) == expected


def test_table_is_set_within_epochs_where_there_are_few():
    found = _schedule(n_lists=640, max_epochs=1)
    assert found == "s" + "." * 31 + "u." * 16


def test_table_of_a_training_of_one_step_is_set_once():
    assert _schedule(n_lists=5, max_epochs=1) == "u"


def test_early_stopping_begins_when_the_table_moves():
    class Stop:
        n_begun = 0

        def on_train_begin(self, net):
            self.n_begun += 1

    stop = Stop()
    found = _schedule(n_lists=10, max_epochs=100, callbacks=[("early_stopping", stop)])
    assert found.index("u") == 20
    assert stop.n_begun == 20
