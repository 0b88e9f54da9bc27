"""Clicks that are an affine function of relevance: module, loss, likeliest coefficients."""

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid

from ._networks import ListScores

__all__ = ["AffineLoss", "AffineModule", "TrustStep", "fit_trust"]

#: Weight of the barrier that keeps coefficients off their bounds, as a share of a factor's clicks
#: (or of its missing clicks, where they are fewer), and the least such share of its impressions.
_BARRIER, _LEAST_SHARE = 1e-6, 1e-9
#: Half the range of click rates that training starts with, as a share of the rate.
_START = 0.1
_MAX_ITER = 100
#: Gain in likelihood that ends the fit, on the same scale as the barrier.
_TOL = 1e-10


class AffineModule(ListScores):
    """Relevance logits from a network, and two click probabilities a bias factor from a table.

    The table is not trained: :class:`TrustStep` sets it.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
    """

    def __init__(self, network, n_factors):
        super().__init__(network)
        self.register_buffer("low", torch.full((n_factors,), 0.01))
        self.register_buffer("high", torch.full((n_factors,), 0.5))

    def forward(self, batch):
        """Relevance logits, P(click | irrelevant), P(click | relevant): each (n_lists, width)."""
        return (
            super().forward(batch),
            batch.pad(self.low[batch.bias]),
            batch.pad(self.high[batch.bias]),
        )


class AffineLoss(nn.Module):
    r"""Cross-entropy of clicks, weighted by impressions, where relevance moves their probability.

    .. math:: P(c = 1) = \beta\,(1 - \sigma(g)) + (\alpha + \beta)\,\sigma(g).

    Parameters
    ----------
    scale : float
        One constant for the whole log.
    """

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, outputs, batch):
        """The loss of (relevance logits, low, high), each of shape (n_lists, width)."""
        # The rows alone: at padding both probabilities are 0.
        logits, low, high = (values[batch.mask] for values in outputs)
        clicks, weight = batch.clicks[batch.mask], batch.weight[batch.mask]
        hit = _log_mixture(logits, low, high)
        miss = _log_mixture(logits, 1 - low, 1 - high)
        return -(clicks * hit + (weight - clicks) * miss).sum() * (self.scale / len(batch))


def _log_mixture(logits, low, high):
    """log((1 - σ(g)) low + σ(g) high), without the rounding of σ(g) to 0 or 1."""
    return torch.logaddexp(logsigmoid(-logits) + low.log(), logsigmoid(logits) + high.log())


class TrustStep(Callback):
    """Before every epoch, the table at its best given relevance."""

    def on_epoch_begin(self, net, dataset_train=None, **kwargs):
        data, module = dataset_train, net.module_
        rows = [
            values.cpu().numpy()
            for values in (data.bias, data.clicks.double(), data.weight.double())
        ]
        if len(net.history) == 1:
            best = _cautious_start(*rows, n_factors=len(module.low))
        else:
            module.eval()
            with torch.inference_mode():
                logits = module.network[1](data.features).reshape(-1)[data.doc]
            relevance = torch.sigmoid(logits.double()).cpu().numpy()
            best = fit_trust(relevance, *rows, n_factors=len(module.low))
        for table, values in zip((module.low, module.high), best, strict=True):
            # Single precision takes what is closer to 1 for 1, and its logarithm is infinite.
            values = torch.from_numpy(np.minimum(values, 1 - 1e-6)).to(table)
            # A factor that only held-out lists show keeps what it has.
            table.copy_(torch.where(values.isnan(), table, values))


def _cautious_start(factor, clicks, weight, *, n_factors):
    """Where a network begins that knows nothing yet: relevance moves clicks a little everywhere.

    The likeliest table would follow the network's chance, and leave a factor's clicks to trust
    alone wherever they happen to contradict it. A narrow range makes the network spread its
    relevance, which keeps the later table away from the bound at 0.
    """
    with np.errstate(invalid="ignore"):
        rate = np.bincount(factor, clicks, n_factors) / np.bincount(factor, weight, n_factors)
    rate = np.clip(rate, 1e-4, 0.9)  # NaN stays
    return np.stack([(1 - _START) * rate, (1 + _START) * rate])


def fit_trust(relevance, factor, clicks, weight, *, n_factors):
    r"""The likeliest click probabilities of irrelevant and relevant documents, by bias factor.

    Maximises the concave :math:`\sum c \log p + (w - c) \log(1 - p)` with
    :math:`p = l_t (1 - r) + h_t r` under :math:`0 \le l_t \le h_t \le 1`, all factors at once, by
    Newton's method with a logarithmic barrier so slight that it shows from the sixth digit on.

    Parameters
    ----------
    relevance : ndarray of shape (n_rows,)
        In [0, 1].
    factor : ndarray of shape (n_rows,), int
    clicks, weight : ndarray of shape (n_rows,)
    n_factors : int

    Returns
    -------
    low, high : ndarray of shape (n_factors,)
        :math:`\beta` and :math:`\alpha + \beta`; NaN for a factor without impressions. Where
        relevance does not vary within a factor, any two with the same mean are as likely, and
        the barrier chooses.
    """
    problem = _Trust(relevance, factor, clicks, weight, n_factors)
    point = problem.start()
    value = problem.value(point)
    for _ in range(_MAX_ITER):
        step, gain = problem.newton_step(point)
        if (gain < problem.tol).all():
            break
        point, value = problem.advance(point, value, step, gain)
    return np.where(problem.seen, point, np.nan)


class _Trust:
    """Mean log-likelihood of each factor, with its barrier; points have shape (2, n_factors)."""

    def __init__(self, relevance, factor, clicks, weight, n_factors):
        self.factor, self.n_factors = factor, n_factors
        impressions = np.bincount(factor, weight, minlength=n_factors)
        self.seen = impressions > 0
        mass = np.maximum(impressions, 1e-300)[factor]
        self.hits, self.misses = clicks / mass, (weight - clicks) / mass
        self.shares = np.stack([1 - relevance, relevance])
        # What is rare must outweigh the barrier too: a position that is clicked once in 10⁵.
        rate = self._sum(self.hits)
        self.scale = np.maximum(np.minimum(rate, 1 - rate), _LEAST_SHARE)
        self.barrier, self.tol = _BARRIER * self.scale, _TOL * self.scale

    def start(self):
        """A point inside the bounds, on either side of the click rate."""
        rate = np.clip(self._sum(self.hits), _LEAST_SHARE, 1 - _LEAST_SHARE)
        return np.stack([0.5 * rate, 0.5 * (rate + np.minimum(2 * rate, 1.0))])

    def value(self, point):
        """Of each factor; minus infinity outside the bounds."""
        gaps = _gaps(point)
        inside = (gaps > 0).all(axis=0)
        chance = self._chance(np.where(inside, point, 0.5))
        total = self._sum(self.hits * np.log(chance) + self.misses * np.log1p(-chance))
        barrier = self.barrier * np.log(np.where(inside, gaps, 1.0)).sum(axis=0)
        return np.where(inside, total + barrier, -np.inf)

    def newton_step(self, point):
        """The step (2, n_factors) and what it promises to gain, twice over."""
        chance, gaps = self._chance(point), _gaps(point)
        slope = self.hits / chance - self.misses / (1 - chance)
        bend = self.hits / chance**2 + self.misses / (1 - chance) ** 2
        push, stiff = self.barrier / gaps, self.barrier / gaps**2
        gradient = np.stack([self._sum(slope * share) for share in self.shares])
        gradient += push[:2] - push[1:]
        a, c = (self._sum(bend * share**2) for share in self.shares)
        b = self._sum(bend * self.shares[0] * self.shares[1]) - stiff[1]
        a, c = a + stiff[0] + stiff[1], c + stiff[1] + stiff[2]
        step = np.stack([c * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]])
        step /= a * c - b**2
        return step, (step * gradient).sum(axis=0)

    def advance(self, point, value, step, gain):
        """The point after the longest step, halved as often as needed, that gains enough."""
        length = np.ones(self.n_factors)
        for _ in range(60):
            tried = point + length * step
            found = self.value(tried)
            short = ~(found >= value + 0.1 * length * gain) & (gain >= self.tol)
            if not short.any():
                break
            length[short] *= 0.5
        better = found > value
        return np.where(better, tried, point), np.where(better, found, value)

    def _chance(self, point):
        return (self.shares * point[:, self.factor]).sum(axis=0)

    def _sum(self, values):
        return np.bincount(self.factor, values, minlength=self.n_factors)


def _gaps(point):
    """What is left of each of 0 <= low <= high <= 1."""
    return np.stack([point[0], point[1] - point[0], 1 - point[1]])
