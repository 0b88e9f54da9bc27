"""Trust bias: click probabilities that are an affine function of relevance."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid

from .._log._factors import (
    examination_table,
    factor_codes,
    lists_per_unit,
    warn_unless_identifiable,
)
from .._log._segments import TINY
from .._sklearn import Interval, StrOptions
from .._torch._losses import ListLoss, softmax_loss
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from .._typing import Column, Floats, Ints, Table
from ..exceptions import ClickDataWarning, warn_user
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._torch._lists import ListBatch, ListDataset

__all__ = ["AffineLoss", "AffineModule", "AffineRanker", "TrustStep", "fit_trust"]


#: Share of the clicks that relevance must move, below which trust explains them all.
_LEAST_EFFECT = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class AffineRanker(NeuralEstimator, BaseRanker):
    r"""Trust bias: users also click what is not relevant, because it stands high.

    Where users trust the upper results, they click irrelevant ones by mistake, and more so the
    higher they stand. The click probability is then an affine function of relevance (Agarwal et
    al. 2019; Vardasbi et al. 2020):

    .. math::
        P(c = 1 \mid x, t) = \alpha_t\, r(x) + \beta_t, \qquad
        \alpha_t, \beta_t \ge 0, \quad \alpha_t + \beta_t \le 1 .

    Dividing clicks by any propensity cannot remove :math:`\beta_t`, the clicks that irrelevant
    documents get. Here a network first learns :math:`r = \sigma(g)` together with the
    coefficients, by the likelihood of all clicks: before each epoch they are set to their best
    values given the relevance so far. Then a second network learns to rank by the labels

    .. math::
        \hat r = r(x) + \frac{c - \alpha_t\, r(x) - \beta_t}{\max(\alpha_t, \tau)}

    with the listwise softmax loss. Without a bound :math:`\tau` that is the published
    :math:`(c - \beta_t) / \alpha_t`, which is unbiased, and negative where a click was missing:
    labels are not clipped, because the loss is linear in them.

    Assumes that the coefficients depend on the bias factor alone, and a log that showed similar
    documents under several factors.

    Parameters
    ----------
    loss : {"softmax", "likelihood"}, default="softmax"
        What the ranking network is trained by: the labels above, or nothing more, so that the
        network of the likelihood ranks. The listwise loss only compares documents of a list;
        under trust bias it ended higher (see Notes).
    clip : float in (0, 1], default=0.3
        :math:`\tau` as a share of the largest :math:`\alpha`: no click weighs more than
        ``1 / clip`` times one where relevance matters most. What the bound takes from a click is
        filled up by the model, so that the mean label of a factor stays (Oosterhuis 2022). None
        is the published label; a factor where relevance hardly matters can then ruin training.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The networks and their input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Their training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    trust_ : DataFrame
        Bias factor (index ``bias``) to ``alpha`` and ``beta``, with ``impressions`` and
        ``clicks``: the coefficients for the relevance in (0, 1) that the network learned.
    examination_ : DataFrame
        Bias factor (index ``bias``) to ``examination``, which is alpha relative to the first
        factor: how much less a difference in relevance shows there. Without trust bias it is the
        examination of the position-based model. With ``impressions`` and ``clicks``. Where
        trust alone explains the first factor, its alpha is near 0 and the ratios are huge: then
        read ``trust_``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the network that ranks.
    click_network_ : torch.nn.Sequential
        The same for the relevance that explains the clicks; with ``loss="likelihood"`` it is
        ``network_``.
    net_ : skorch.NeuralNet
        What trained ``network_``.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves of ``network_``: training and, with ``early_stopping``, validation loss
        by epoch.
    click_history_ : DataFrame
        The same of ``click_network_``, as cross-entropy of the clicks.
    n_iter_ : int
        Epochs run by ``network_``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.
    ClickDataWarning
        If relevance moves click probabilities by less than 1 %: trust then explains all clicks,
        and scores mean nothing.

    See Also
    --------
    RegressionEMRanker : The same without trust, beta = 0.
    VectorizationRanker : Clicks that are products of vectors.

    Notes
    -----
    Relevance is determined up to an affine map: :math:`r' = (r - a) / b` with :math:`\alpha' = b
    \alpha` and :math:`\beta' = \beta + a \alpha` explains the clicks as well. Rankings and ratios
    of alpha do not depend on it; beta and the level of alpha do.

    nDCG@10 on 2,000 queries of ``make_ltr``, 200,000 sessions under trust bias, ten positions of
    a fixed ranking (means of five logs, none of which chose a default): 0.795, with
    ``loss="likelihood"`` 0.770, with ``clip=None`` 0.794, against 0.780 of dual learning and 0.755
    of regression-EM. Where clicks are no affine function of relevance, as in the click matrix of
    TianGong-ST, the likelihood ended higher (0.703 against 0.684, four logs), and ``clip=None``
    ranked in reverse.

    References
    ----------
    Vardasbi, Oosterhuis & de Rijke (2020). When inverse propensity scoring does not work: affine
    corrections for unbiased learning to rank. CIKM. Agarwal, Wang, Li, Bendersky & Najork (2019).
    Addressing trust bias for unbiased learning-to-rank. WWW. Oosterhuis (2022). Doubly-robust
    estimation for correcting position-bias in click feedback for unbiased learning to rank.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import AffineRanker
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = AffineRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> list(ranker.trust_.columns)
    ['alpha', 'beta', 'impressions', 'clicks']
    """

    loss: Literal["softmax", "likelihood"] = "softmax"
    clip: float | None = 0.3

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        "loss": [StrOptions({"softmax", "likelihood"})],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    }

    def predict_click(
        self, X: Table, *, bias: Column | None = None, position: Column | None = None
    ) -> Floats:
        """P(click) of each row, shown under its bias factor.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else ``position``.
        bias, position : array-like of shape (n_rows,), default=None
            The same for arrays.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 where a row has no bias factor, because it was not shown.

        Raises
        ------
        ValueError
            If a bias factor was not in the training log.
        """
        check_is_fitted(self)
        codes = factor_codes(self.trust_.index, X, bias, position)
        relevance = self._relevance(self._read_features(X, reset=False))
        chance = self._click_chance(relevance, codes)
        return np.where(codes >= 0, chance, 0.0)

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=True)
        training, _ = log.tempered(self.traffic_exponent)
        with self._seeded():
            self._fit_clicks(training, task)
            self._remember_trust(log)
            if self.loss == "softmax":
                self._fit_ranking(training, task)

    def _n_subtasks(self) -> int:
        return super()._n_subtasks() * (2 if self.loss == "softmax" else 1)

    def _score(self, features: NDArray[np.float32]) -> Floats:
        scores = super()._score(features)
        return expit(scores) if self.loss == "likelihood" else scores

    def _fit_clicks(self, log, task):
        module = AffineModule(self._network(log.shown_features()), len(log.bias_values))
        loss = AffineLoss(lists_per_unit(log, log.weight))
        # The gradient of the likelihood is that of the expected one (Fisher's identity), so that
        # no E-step is written out.
        steps = [("trust", TrustStep())]
        self._train(module, loss, log, log.clicks, click_only=False, task=task, callbacks=steps)
        self.click_network_, self.click_history_ = self.network_, self.history_

    def _remember_trust(self, log):
        """The coefficients once more, from all queries and without the noise of last batches."""
        rows = log.shown
        relevance = self._relevance(log.features)[log.doc]
        low, high = fit_trust(
            relevance[rows],
            log.bias[rows],
            log.clicks[rows],
            log.weight[rows],
            n_factors=len(log.bias_values),
        )
        alpha = high - low
        self.examination_ = examination_table(log, alpha[log.bias])
        counts = self.examination_[["impressions", "clicks"]]
        self.trust_ = pd.DataFrame({"alpha": alpha, "beta": low}, index=counts.index).join(counts)
        self._warn_if_only_trust(log, relevance)

    def _warn_if_only_trust(self, log, relevance):
        rows = log.shown
        weight, clicks = log.weight[rows], log.clicks[rows].sum()
        alpha = self.trust_["alpha"].to_numpy()[log.bias[rows]]
        moved = weight @ (
            alpha * np.abs(relevance[rows] - np.average(relevance[rows], weights=weight))
        )
        if 0 < clicks < weight.sum() and moved < _LEAST_EFFECT * clicks:
            warn_user(
                f"Relevance moves the click probabilities of AffineRanker by {moved / clicks:.1e} "
                "of their mean: trust in the position explains all clicks, and the scores mean "
                "little. The log may be too small, or show each factor documents of one kind; "
                "try RegressionEMRanker, which knows no trust.",
                ClickDataWarning,
            )

    def _fit_ranking(self, log, task):
        relevance = self._relevance(log.features)[log.doc]
        labels = np.where(log.shown, self._labels(log, relevance), 0.0)
        # Debiased clicks may add up to nothing; what they estimate does not.
        unit = np.where(log.shown, log.weight * relevance, 0.0)
        module = ListScores(self._network(log.shown_features()))
        loss = ListLoss(softmax_loss, lists_per_unit(log, unit))
        self._train(module, loss, log, labels, click_only=False, task=task)

    def _labels(self, log, relevance):
        """Debiased clicks of each row, summed over its impressions."""
        alpha = self.trust_["alpha"].to_numpy()
        least = 0.0 if self.clip is None else self.clip * alpha.max()
        surprise = log.clicks - log.weight * self._click_chance(relevance, log.bias)
        return log.weight * relevance + surprise / np.maximum(alpha, least)[log.bias]

    def _relevance(self, features):
        return expit(self._outputs(self.click_network_, features)[:, 0])

    def _click_chance(self, relevance, codes):
        alpha, beta = self.trust_["alpha"].to_numpy(), self.trust_["beta"].to_numpy()
        return alpha[codes] * relevance + beta[codes]


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

    def __init__(self, network: nn.Sequential, n_factors: int) -> None:
        super().__init__(network)
        self.register_buffer("low", torch.full((n_factors,), 0.01))
        self.register_buffer("high", torch.full((n_factors,), 0.5))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
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

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
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

    def on_epoch_begin(
        self, net: NeuralNet, dataset_train: ListDataset | None = None, **kwargs: Any
    ) -> None:
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


def fit_trust(
    relevance: Floats, factor: Ints, clicks: Floats, weight: Floats, *, n_factors: int
) -> Floats:
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
        mass = np.maximum(impressions, TINY)[factor]
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
