from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch.nn.functional import logsigmoid

from skultr._torch._lists import ListBatch, softmax_loss
from skultr.rankers._cld_losses import (
    ListwiseLoss,
    PairLoss,
    TobitLoss,
    expected_error,
    expected_gap,
)
from skultr.rankers._tobit import (
    Candidates,
    SelectedRows,
    TobitModel,
    selected_terms,
    tobit_likelihood,
)


@dataclass(frozen=True, eq=False)
class BatchOfCandidates(ListBatch):
    shown: torch.Tensor

    @property
    def rows_shown(self):
        return self.shown[self.mask].numpy()

    @property
    def candidates(self):
        list_, _ = np.nonzero(self.mask.numpy())
        label, weight = (self.clicks / self.weight)[self.mask].numpy(), self.weight[self.mask]
        rows = np.arange(len(list_))
        return Candidates(list_, rows, self.rows_shown, label, weight.numpy(), None, list_)


def batch_of(lists):
    """A batch of lists of (label, shown) rows of weight 1, those that were shown first."""
    width = max(map(len, lists))
    mask = torch.zeros(len(lists), width, dtype=torch.bool)
    clicks = torch.zeros(len(lists), width, dtype=torch.float64)
    shown = torch.zeros_like(mask)
    for i, rows in enumerate(lists):
        mask[i, : len(rows)] = True
        clicks[i, : len(rows)] = torch.tensor([float(label) for label, _ in rows])
        shown[i, : len(rows)] = torch.tensor([bool(each) for _, each in rows])
    n_rows = int(mask.sum())
    rows = torch.arange(n_rows)
    return BatchOfCandidates(torch.zeros(n_rows, 1), rows, mask, clicks, mask.double(), shown)


LISTS = [
    [(0.9, 1), (0.2, 1), (0.2, 1), (0, 0), (0, 0)],
    [(0.3, 1), (0.1, 1)],
    [(0.5, 1), (0, 0), (0, 0)],
]


def random_scores(batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, *batch.mask.shape)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


# ------------------------------------------------------------------------ pointwise
@pytest.mark.parametrize("published", [False, True])
def test_tobit_terms_are_those_of_newtons_method(published):
    batch = batch_of(LISTS)
    scores = random_scores(batch)
    scale = 1.0 if published else 0.6
    gamma, center, spread = 0.35, 0.2, 1.5
    fixed, noise = ("published", None) if published else (None, np.linspace(0, 2, 10))
    loss = TobitLoss(1.0, batch.rows_shown, gamma, fixed, center, spread, noise).double()
    relevance = (scores[0] - center) / spread
    log_scale = torch.tensor(np.log(scale / spread))
    terms = loss.terms((relevance, scores[1], log_scale), batch)
    mask = batch.mask
    shown = batch.rows_shown
    # One column a row, so that any scores are linear.
    n_rows = int(mask.sum())
    label = batch.clicks[mask].numpy()
    rows = SelectedRows(np.eye(n_rows), label, shown, np.ones(n_rows), noise)
    index = scores.detach()[:, mask].numpy()
    at = np.concatenate([index[0], [0.0], index[1], [0.0, np.log(scale)]])
    model = TobitModel(gamma, "published" if published else "estimate")
    _, gradient, _, expected = tobit_likelihood(rows, model, at)
    np.testing.assert_allclose(terms.detach().numpy()[:3], n_rows * expected, atol=1e-10)
    terms[:3].sum().backward()
    slopes = scores.grad[:, mask].numpy()
    np.testing.assert_allclose(slopes[0], n_rows * gradient[:n_rows], atol=1e-10)
    np.testing.assert_allclose(
        slopes[1], n_rows * gradient[n_rows + 1 : 2 * n_rows + 1], atol=1e-10
    )


def test_gradients_against_finite_differences():
    batch = batch_of(LISTS)
    scores = random_scores(batch)
    log_scale = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    loss = TobitLoss(1.0, batch.rows_shown, 0.4, None, 0.1, 1.5).double()

    def value(*outputs):
        return loss.terms(outputs, batch).sum()

    assert torch.autograd.gradcheck(value, (scores[0], scores[1], log_scale))


@pytest.mark.parametrize("index", [-40.0, 40.0])
def test_tobit_is_stable_far_out(index):
    batch = batch_of([[(0, 1), (0, 0)]])
    loss = TobitLoss(1.0, batch.rows_shown, 0.3, None, 0.0, 1.0)
    selection = torch.full((1, 2), index, requires_grad=True)
    terms = loss.terms((torch.zeros(1, 2), selection, torch.zeros(())), batch)
    terms[:3].sum().backward()
    expected = [40.0 / 0.91, 0.0] if index < 0 else [0.0, -40.0]
    np.testing.assert_allclose(selection.grad.numpy()[0], expected, rtol=2e-3, atol=1e-6)
    far = selected_terms(*torch.tensor([0.0, index, 0.0]), 0.3, torch.tensor(0.0))[1]
    assert torch.isfinite(far)


@pytest.mark.parametrize("scale", [None, 0.6, "published"])
def test_weight_of_labels_is_how_much_their_likelihood_bends(scale):
    """For a scale of 1 standard deviation, without chance, and without selection."""
    batch = batch_of(LISTS)
    spread = 1.5
    loss = TobitLoss(1.0, batch.rows_shown, 0.0, scale, 0.2, spread).double()

    def likelihood(shift):
        scores = shift + torch.zeros_like(batch.clicks)
        return loss.terms((scores, torch.zeros_like(scores), torch.tensor(0.0)), batch)[0]

    bend = torch.autograd.functional.hessian(likelihood, torch.tensor(0.3, dtype=torch.float64))
    assert loss.weight_of_labels(batch.candidates) == pytest.approx(-float(bend))


# ------------------------------------------------------------------------ listwise
def test_expected_error_is_the_mean_gumbel_error_of_a_choice():
    rng = np.random.default_rng(0)
    utility = np.array([0.0, 1.0, -0.5])
    errors = rng.gumbel(size=(400_000, 3)) - np.euler_gamma
    chosen = (utility + errors).argmax(axis=1)
    log_share = torch.log_softmax(torch.from_numpy(utility), 0)
    for choice in range(3):
        clicks = torch.eye(3, dtype=torch.float64)[choice]
        mean = errors[chosen == choice].mean(axis=0) / (np.pi / np.sqrt(6))
        np.testing.assert_allclose(expected_error(log_share, clicks), mean, atol=0.02)


def test_clicks_as_expected_leave_no_error():
    log_share = torch.log_softmax(torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64), 0)
    np.testing.assert_allclose(expected_error(log_share, log_share.exp()), 0, atol=1e-12)


def test_listwise_without_gamma_has_the_gradient_of_the_softmax_loss():
    batch = batch_of(LISTS)
    relevance, selection = scores = random_scores(batch)
    labels, shown, *_ = ListwiseLoss(1.0, batch.rows_shown).terms(
        (relevance, selection, None), batch
    )
    found = torch.autograd.grad(-(labels + shown), scores)[0][0]
    softmax = softmax_loss(relevance, batch.clicks, batch.weight, batch.shown)
    np.testing.assert_allclose(found, torch.autograd.grad(softmax, scores)[0][0], atol=1e-12)


def test_listwise_terms_by_hand():
    """Scores of 0: shares are those of the weights, here 1 of each shown row."""
    batch = batch_of([[(0.5, 1), (0.0, 1), (0, 0)]])
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    found = ListwiseLoss(1.0, batch.rows_shown, gamma=0.6).terms((zeros, zeros, None), batch)
    error = np.sqrt(6) / np.pi * np.log(2)  # of the clicked row; the other has the opposite
    shown = sum(norm.logcdf(sign * 0.6 * error / 0.8) for sign in (1, -1))
    expected = [0.5 * np.log(0.5), shown, np.log(0.5), 2 * np.log(0.5)]
    np.testing.assert_allclose(found, expected)
    loss = ListwiseLoss(1.0, batch.rows_shown)
    assert loss.weight_of_labels(batch.candidates) == 0.5
    alone = ListwiseLoss(1.0, batch.rows_shown, gamma=0.6, selects=False)
    np.testing.assert_allclose(alone((zeros, zeros, None), batch), -expected[0])
    np.testing.assert_allclose(alone.eval()((zeros, zeros, None), batch), -expected[0])


# ------------------------------------------------------------------------ pairwise
def objective(f, g, s, i, j):
    """Equation 12 for one ordered pair, in three parts: preference, shown, never shown."""
    gap, sigmoid = f[i] - f[j], torch.special.expit
    zero = torch.zeros((), dtype=torch.float64)
    return torch.stack(
        [
            torch.log(sigmoid(gap)) if s[i] and s[j] else zero,
            sum((torch.log(sigmoid(g[k] + gap)) for k in (i, j) if s[k]), zero),
            sum((torch.log(1 - sigmoid(g[k])) for k in (i, j) if not s[k]), zero),
        ]
    )


def sets_of_pairs(s, y):
    """Ordered pairs of different rows: with a preference, and the others."""
    pairs = list(permutations(range(len(y)), 2))
    chosen = [(i, j) for i, j in pairs if s[i] and s[j] and y[i] > y[j]]
    return chosen, [pair for pair in pairs if pair not in chosen]


def default_pair(f, g, s, y, i, j, gamma):
    """The three parts for an unordered pair with y[i] >= y[j]."""
    zero = torch.zeros((), dtype=torch.float64)
    h = gamma / np.sqrt(2) * expected_gap(f[i] - f[j]) if s[i] and s[j] and y[i] > y[j] else 0.0
    shown = sum((logsigmoid(g[k] + sign * h) for k, sign in ((i, 1), (j, -1)) if s[k]), zero)
    never = sum((logsigmoid(-g[k]) for k in (i, j) if not s[k]), zero)
    preference = (y[i] - y[j]) * logsigmoid(f[i] - f[j]) if s[i] and s[j] else zero
    return torch.stack([preference, shown, never])


def all_pairs(scores, batch, variant, gamma):
    """The sum over all pairs in plain loops; of the published forms divided by their number."""
    total, n_pairs = torch.zeros(3, dtype=torch.float64), 0.0
    lists = []
    for k, mask in enumerate(batch.mask):
        f, g = scores[:, k, mask]
        lists.append((f, g, batch.shown[k, mask], batch.clicks[k, mask]))
    if variant == "default":
        for f, g, s, y in lists:
            for i, j in permutations(range(len(y)), 2):
                if y[i] > y[j] or (y[i] == y[j] and i < j):
                    total += default_pair(f, g, s, y, i, j, gamma) / (len(y) - 1)
        return total
    sets = [sets_of_pairs(s, y) for _, _, s, y in lists]
    n_chosen, n_others = (sum(map(len, part)) for part in zip(*sets, strict=True))
    for (f, g, s, y), (chosen, others) in zip(lists, sets, strict=True):
        for i, j in chosen:
            weight = torch.ones(3, dtype=torch.float64)
            if variant == "program":
                weight[0] = y[i] - y[j]
            total, n_pairs = total + weight * objective(f, g, s, i, j), n_pairs + 1
        for i, j in others:
            # Algorithm 2 has no pairs of shown rows but preferences; the program draws as many
            # others as there are preferences.
            times = n_chosen / n_others if variant == "program" else not (s[i] and s[j])
            total = total + times * torch.tensor([0, 1, 1]) * objective(f, g, s, i, j)
            n_pairs += times
    return total / n_pairs


def test_weight_of_labels_is_that_of_all_preferences():
    """With equal scores each has the logarithm of one half."""
    batch = batch_of(LISTS)
    weight = PairLoss(1.0, batch.candidates).weight_of_labels(batch.candidates)
    equal = torch.zeros(2, *batch.mask.shape, dtype=torch.float64)
    assert weight * np.log(0.5) == pytest.approx(float(all_pairs(equal, batch, "default", 0.0)[0]))
    for variant in ("published", "program"):
        loss = PairLoss(1.0, batch.candidates, variant=variant)
        assert loss.weight_of_labels(batch.candidates) == 0


@pytest.mark.parametrize("variant", ["default", "published", "program"])
def test_drawn_pairs_are_unbiased(variant):
    """Means over 1,000 draws against all pairs; the bound is five standard errors."""
    batch = batch_of(LISTS)
    scores = random_scores(batch).detach()
    loss = PairLoss(1.0, batch.candidates, 0.4, variant=variant)
    torch.manual_seed(0)
    outputs = (scores[0], scores[1], None)
    drawn = torch.stack([loss.terms(outputs, batch)[:3] for _ in range(1_000)])
    if variant != "default":
        drawn = drawn * loss.scale / 10  # rows
    error = drawn.std(dim=0) / np.sqrt(len(drawn))
    expected = all_pairs(scores, batch, variant, 0.4)
    assert ((drawn.mean(dim=0) - expected).abs() <= 5 * error + 1e-7).all()


def mean_pair(variant, rows, relevance, selection):
    """The three terms per pair of one list, whose pairs can be drawn in one way only."""
    batch = batch_of([rows])
    loss = PairLoss(1.0, batch.candidates, variant=variant)
    scores = [torch.tensor([each], dtype=torch.float64) for each in (relevance, selection)]
    terms = loss.terms((*scores, None), batch)
    return (terms * loss.scale / len(rows))[:3].tolist()


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def test_equation_12_by_hand():
    f, g = (0.3, -0.5), (0.2, 0.1)
    chosen = log_sigmoid(0.8), log_sigmoid(0.2 + 0.8) + log_sigmoid(0.1 + 0.8), 0.0
    # The size of a preference does not matter.
    for label in (0.9, 0.3):
        assert mean_pair("published", [(label, 1), (0.2, 1)], f, g) == pytest.approx(chosen)
    # No pair of shown rows without a preference.
    assert mean_pair("published", [(0.2, 1), (0.2, 1)], f, g) == [0.0, 0.0, 0.0]
    both_orders = [0.0, (log_sigmoid(0.2 + 0.8) + log_sigmoid(0.2 - 0.8)) / 2, log_sigmoid(-0.1)]
    assert mean_pair("published", [(0.2, 1), (0.0, 0)], f, g) == pytest.approx(both_orders)
    # One preference, and four ordered pairs with the row that was not shown.
    rows, half = [(0.9, 1), (0.2, 1), (0.0, 0)], np.log(0.5)
    found = mean_pair("published", rows, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert found == pytest.approx([half / 5, 6 * half / 5, 4 * half / 5])


def test_the_program_by_hand():
    f, g = (0.3, -0.5), (0.2, 0.1)
    ahead = log_sigmoid(0.2 + 0.8) + log_sigmoid(0.1 + 0.8)
    behind = log_sigmoid(0.2 - 0.8) + log_sigmoid(0.1 - 0.8)
    # One preference, weighted by its size, and one pair in the other order.
    expected = [0.7 * log_sigmoid(0.8) / 2, (ahead + behind) / 2, 0.0]
    assert mean_pair("program", [(0.9, 1), (0.2, 1)], f, g) == pytest.approx(expected)
    # Five pairs that are no preference weigh as much as the one that is.
    rows, half = [(0.9, 1), (0.2, 1), (0.0, 0)], np.log(0.5)
    found = mean_pair("program", rows, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    expected = [0.7 * half / 2, (2 + 0.2 * (2 + 4)) * half / 2, 0.2 * 4 * half / 2]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("variant", ["default", "published", "program"])
def test_pair_gradients_against_finite_differences(variant):
    label = torch.tensor([0.5, 0.2, 0.2, 0.0], dtype=torch.float64)
    shown = torch.tensor([True, True, True, False])
    other = torch.tensor([1, 2, 3, 0])
    scores = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    loss = PairLoss(1.0, batch_of(LISTS).candidates, 0.4, variant=variant)

    def value(scores):
        columns = [scores[0], scores[1], label, shown]
        partners = [values[other] for values in columns]
        return sum(term.sum() for term in loss.pair_terms(columns, partners))

    assert torch.autograd.gradcheck(value, (scores,))


def test_expected_gap_is_a_truncated_mean():
    def numeric(difference):
        def density(d):
            return np.exp(-abs(d)) / (1 + np.exp(-abs(d))) ** 2

        mass = quad(density, -difference, 60)[0]
        return quad(lambda d: d * density(d), -difference, 60)[0] / mass

    points = [-14.0, -2.0, 0.0, 0.5, 5.0]
    values = expected_gap(torch.tensor(points, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(values, [numeric(point) for point in points], rtol=1e-6)
    far = torch.tensor([-200.0, 200.0], requires_grad=True)
    expected_gap(far).sum().backward()
    assert expected_gap(far)[0].item() == pytest.approx(201.0)
    assert torch.isfinite(far.grad).all()


def test_tobit_shift_is_that_of_drawn_errors():
    """Monte-Carlo: mean error of selection given who won, for normal errors.

    A logistic variable has heavier tails than a normal one: within 15 %.
    """
    rng = np.random.default_rng(0)
    gamma, difference, spread = 0.5, 0.8, np.pi / np.sqrt(3)
    first, second = rng.normal(size=(2, 400_000))
    own = gamma * first + np.sqrt(1 - gamma**2) * rng.normal(size=400_000)
    # Errors of relevance whose difference has the spread of a logistic variable.
    won = difference + (first - second) * spread / np.sqrt(2) > 0
    shift = gamma / np.sqrt(2) * expected_gap(torch.tensor(difference)).item() / spread
    assert own[won].mean() == pytest.approx(shift, rel=0.15)


def test_partners_are_others_of_the_right_kind():
    batch = batch_of(LISTS)
    shown = batch.shown
    loss = PairLoss(1.0, batch.candidates)
    n_shown, n_rows = shown.sum(dim=1), batch.mask.sum(dim=1)
    for _ in range(50):
        for kind, (partner, count) in enumerate(loss._partners(batch.mask, n_shown, n_rows)):
            place = torch.arange(batch.mask.shape[1]).expand(partner.shape)
            used = count > 0
            assert (partner != place)[used].all()
            assert (shown.gather(1, partner) == (kind == 0))[used].all()
            assert batch.mask.gather(1, partner)[used].all()


def test_validation_draws_the_same_pairs_each_time():
    batch = batch_of(LISTS)
    scores = random_scores(batch).detach()
    loss = PairLoss(1.0, batch.candidates).eval()
    first = loss((scores[0], scores[1], None), batch)
    torch.rand(7)
    assert loss((scores[0], scores[1], None), batch) == first
