"""Trust bias: click probabilities that are an affine function of relevance."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn.functional import logsigmoid

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval, StrOptions
from .._base._typing import Column, Floats, Ints, Table
from .._log._cells import (
    examination_table,
    factor_codes,
    loss_scale,
)
from .._log._segments import TINY
from .._models._solve import maximise, warn_unless_converged
from .._torch._joint import TableStep
from .._torch._lists import ListLoss, ScaledLoss, softmax_loss
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from .._torch._shared_parameters import PUBLISHED_NETWORK
from ..identifiability._graph import warn_unless_identifiable
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._torch._lists import ListBatch, ListDataset


@dataclass(kw_only=True, eq=False, repr=False)
class AffineRanker(HasPublishedVariant, NeuralEstimator, BaseRanker):
    r"""Ranker for clicks with trust bias: users also click irrelevant documents that rank high.

    Users who trust the upper results click irrelevant documents by mistake, and more often at
    higher positions. Under a bias factor :math:`t` (the position, by default) the click
    probability is then an affine function of relevance (Agarwal et al. 2019; Vardasbi et al.
    2020):

    .. math::
        P(c = 1 \mid x, t) = \alpha_t\, r(x) + \beta_t, \qquad
        \alpha_t, \beta_t \ge 0, \quad \alpha_t + \beta_t \le 1 .

    No division of clicks by a propensity removes :math:`\beta_t`, the clicks that irrelevant
    documents get. A first network therefore learns :math:`r = \sigma(g)` together with the
    coefficients, by maximising the likelihood of all clicks. In the first half of its training all
    bias factors are alike; then, before each epoch, the coefficients are set to their
    maximum-likelihood values given the current relevance. Coefficients that are learned first
    take what relevance is, wherever production ranks well. Then a second network learns to rank
    by the labels

    .. math::
        \hat r = r(x) + \frac{c - \alpha_t\, r(x) - \beta_t}{\max(\alpha_t, \tau)}

    with the listwise softmax loss. Without the bound :math:`\tau` the label is the published
    :math:`(c - \beta_t) / \alpha_t`. It is unbiased, and negative for a row without a click;
    negative labels are kept, because the loss is linear in the labels.

    Assumes that the coefficients depend on the bias factor alone, and that the log showed similar
    documents under several bias factors.

    Parameters
    ----------
    loss : {"softmax", "likelihood"}, default="softmax"
        "softmax" trains a second network on the labels above, and that network ranks. With
        "likelihood" there is no second network: the first one ranks. The softmax loss only
        compares documents of a list; under trust bias its nDCG was higher (see Notes).
    clip : float in (0, 1], default=0.3
        :math:`\tau` as a share of the largest :math:`\alpha + \beta`, the click rate of a
        relevant document under the bias factor where it is highest: a click weighs at most
        1 / :math:`\tau`. The modelled relevance :math:`r(x)` in the label keeps the mean label of
        a bias factor unchanged by the bound (Oosterhuis 2022). None gives the published label; a
        bias factor whose :math:`\alpha` is close to 0 can then dominate the training.
    variant : {"default", "published"}, default="default"
        "published" has the label without a bound, by the network of later comparisons. That is
        unbiased, and reversed the ranking where alpha came close to 0 (see Notes).
        {published}

    {network}
    device, random_state, verbose

    Attributes
    ----------
    trust_ : DataFrame
        Coefficients ``alpha`` and ``beta`` of each bias factor (index ``bias``), for the learned
        relevance in (0, 1); with ``impressions`` and ``clicks``.
    examination_ : DataFrame
        ``examination`` of each bias factor (index ``bias``): its alpha, relative to that of the
        first factor, with ``impressions`` and ``clicks``. Without trust bias it is the
        examination of the position-based model. If trust alone explains the clicks under the
        first factor, its alpha is near 0 and the ratios are huge: then read ``trust_``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the network that ranks.
    click_network_ : torch.nn.Sequential
        Scaling of the features, then the network that explains the clicks. With
        ``loss="likelihood"`` it is ``network_``.
    net_
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves of ``network_``: training and, with ``early_stopping``, validation loss
        by epoch.
    click_history_ : DataFrame
        Learning curves of ``click_network_``: cross-entropy of the clicks by epoch.
    n_iter_ : int
        Number of epochs that ``network_`` was trained for.
    n_features_in_, feature_names_in_

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.

    See Also
    --------
    RegressionEMRanker : The same model without trust bias (beta = 0).
    VectorizationRanker : Click logits, or probabilities, that are inner products of vectors.

    Notes
    -----
    Relevance is determined up to an affine map: :math:`r' = (r - a) / b` with :math:`\alpha' = b
    \alpha` and :math:`\beta' = \beta + a \alpha` has the same likelihood. Rankings and ratios of
    alpha do not depend on the map; beta and the scale of alpha do.

    nDCG@10 was 0.795 on 2,000 queries of ``make_ltr`` with 200,000 sessions under trust bias and
    ten positions of a fixed ranking (means over five logs, none of which served to choose a
    default). It was 0.770 with ``loss="likelihood"`` and 0.794 with ``clip=None``, against 0.780
    for dual learning and 0.755 for regression-EM. In the click matrix of TianGong-ST, clicks are
    not an affine function of relevance: there nDCG@10 was higher with ``loss="likelihood"``
    (0.703 against 0.684, four logs), and ``clip=None`` reversed the ranking.

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

    _published = {**PUBLISHED_NETWORK, "clip": None}
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **NeuralEstimator._parameter_constraints,
        "loss": [StrOptions({"softmax", "likelihood"})],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    }

    def predict_click(
        self, X: Table, *, bias: Column | None = None, position: Column | None = None
    ) -> Floats:
        """P(click) of each row if it is shown under its bias factor.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else ``position``.
        bias, position : array-like of shape (n_rows,), default=None
            The same roles, for arrays.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 for a row without a bias factor, because it was not shown.

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

    #: Trust and relevance learn from each other. In six logs 2.5 was better than 1 and 5.
    _length = 2.5
    _refuses_outcomes = "learns from the clicks alone how far users trust a position"

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=True)
        training = log.tempered(self.traffic_exponent)
        with self._seeded():
            # Only the last training is the ranker that callbacks watch.
            ranks_apart = self.loss == "softmax"
            self._fit_clicks(training, None if ranks_apart else task)
            self._remember_trust(log)
            if ranks_apart:
                self._fit_ranking(training, task)

    @property
    def _gives_probabilities(self):
        return self.loss == "likelihood"

    def _fit_clicks(self, log, task):
        """Train the network that explains the clicks, with the coefficients of trust."""
        module = AffineModule(self._network(log.features), len(log.bias_values))
        loss = AffineLoss(loss_scale(log, log.weight))
        # The gradient of the likelihood equals that of the expected complete-data likelihood
        # (Fisher's identity), so that no E-step is needed.
        steps = [("trust", TrustStep())]
        self._train(module, loss, log, log.clicks, click_only=False, task=task, callbacks=steps)
        self.click_network_ = self.network_
        self.click_history_ = self.history_

    def _remember_trust(self, log):
        """Refit the coefficients on all queries; those of the last epoch lack held-out queries."""
        relevance = self._relevance(log.features)[log.version]
        low, high = fit_trust(
            relevance,
            log.bias,
            log.clicks,
            log.weight,
            n_factors=len(log.bias_values),
        )
        alpha = high - low
        self.examination_ = examination_table(log, alpha[log.bias])
        counts = self.examination_[["impressions", "clicks"]]
        self.trust_ = pd.DataFrame({"alpha": alpha, "beta": low}, index=counts.index).join(counts)

    def _fit_ranking(self, log, task):
        relevance = self._relevance(log.features)[log.version]
        labels = self._labels(log, relevance)
        # Their sum may be 0 or negative; that of modelled clicks is positive.
        lists = log.comparable()
        loss = ListLoss(softmax_loss, loss_scale(lists, log.weight * relevance))
        module = ListScores(self._network(log.features))
        self._train(module, loss, lists, labels, click_only=False, task=task)

    def _labels(self, log, relevance):
        """Debiased clicks of each row: its label (see the class), times its impressions."""
        alpha = self.trust_["alpha"].to_numpy()
        beta = self.trust_["beta"].to_numpy()
        # Relative to alpha + beta, a click weighs little where trust took what relevance was.
        least = 0.0 if self.clip is None else self.clip * (alpha + beta).max()
        divisor = np.maximum(alpha, least)[log.bias]
        residual = log.clicks - log.weight * self._click_chance(relevance, log.bias)
        return log.weight * relevance + residual / divisor

    def _relevance(self, features):
        return expit(self._outputs(self.click_network_, features)[:, 0])

    def _click_chance(self, relevance, codes):
        alpha = self.trust_["alpha"].to_numpy()
        beta = self.trust_["beta"].to_numpy()
        return alpha[codes] * relevance + beta[codes]


#: Slopes of the slacks l, h - l and 1 - h of the bounds 0 <= l <= h <= 1 in l and h.
_GAPS = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
#: Least share of clicked (or of unclicked) impressions of a bias factor: with 0 there would be no
#: barrier at the bounds of its coefficients.
_LEAST_SHARE = 1e-9
#: Distance of click probabilities from 0 and 1 in the table, in single precision: closer values
#: round to 1, and log(1 - 1) is infinite.
_FROM_BOUND = 1e-6


class AffineModule(ListScores):
    """Relevance logits from a network, and two click probabilities per bias factor from a table.

    The table is not trained by gradient: :class:`TrustStep` sets it.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
    """

    def __init__(self, network: nn.Sequential, n_factors: int) -> None:
        super().__init__(network)
        # The step before the first epoch sets both.
        self.register_buffer("low", torch.full((n_factors,), 0.01))
        self.register_buffer("high", torch.full((n_factors,), 0.5))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Relevance logits, P(click | irrelevant), P(click | relevant): each (n_lists, width)."""
        logits = super().forward(batch)
        low = batch.pad(self.low[batch.bias])
        high = batch.pad(self.high[batch.bias])
        return logits, low, high


class AffineLoss(ScaledLoss):
    r"""Cross-entropy of clicks under the affine model, weighted by impressions.

    .. math:: P(c = 1) = \beta\,(1 - \sigma(g)) + (\alpha + \beta)\,\sigma(g).
    """

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (relevance logits, low, high), each of shape (n_lists, width)."""
        # Without the padding, where both probabilities are 0.
        logits, low, high = (values[batch.mask] for values in outputs)
        clicks = batch.clicks[batch.mask]
        weight = batch.weight[batch.mask]
        log_click = _log_mixture(logits, low, high)
        log_miss = _log_mixture(logits, 1 - low, 1 - high)
        likelihood = (clicks * log_click + (weight - clicks) * log_miss).sum()
        return -likelihood * (self.scale / len(batch))


def _log_mixture(logits, low, high):
    """log((1 - σ(g)) low + σ(g) high), computed without rounding σ(g) to 0 or 1."""
    irrelevant = logsigmoid(-logits) + low.log()
    relevant = logsigmoid(logits) + high.log()
    return torch.logaddexp(irrelevant, relevant)


class TrustStep(TableStep):
    """Sets the table to its maximum-likelihood values given relevance."""

    def start(self, module: AffineModule, data: ListDataset) -> None:
        """No trust, and all bias factors alike."""
        _, _, clicks, weight = data.rows()
        rate = float(clicks.sum() / max(weight.sum(), TINY))
        # While relevance alone explains the clicks, an irrelevant document has this share of the
        # click rate.
        module.low.fill_(np.clip(0.02 * rate, _FROM_BOUND, 0.1))
        # A relevant document has twice the click rate and 0.1 more: a narrow range makes the
        # network spread its relevance over (0, 1), which keeps alpha off its bound at 0 later.
        # Below 1, where a missing click would be impossible.
        module.high.fill_(np.clip(2 * rate + 0.1, 0.1, 0.95))

    def update(self, module: AffineModule, data: ListDataset) -> None:
        """The most likely click probabilities of irrelevant and of relevant documents."""
        version, factor, clicks, weight = data.rows()
        logits = data.outputs(module.network[1])
        relevance = torch.sigmoid(logits.double()).cpu().numpy()[version]
        best = fit_trust(relevance, factor, clicks, weight, n_factors=len(module.low))
        for table, values in zip((module.low, module.high), best, strict=True):
            values = np.minimum(values, 1 - _FROM_BOUND)
            values = torch.from_numpy(values).to(table)
            # A bias factor that only occurs in held-out lists keeps its values.
            table.copy_(torch.where(values.isnan(), table, values))


#: Share of the way to a bound that one step takes at most.
_MOST_OF_THE_WAY = 0.99


def fit_trust(
    relevance: Floats, factor: Ints, clicks: Floats, weight: Floats, *, n_factors: int
) -> Floats:
    r"""Maximum-likelihood P(click) of irrelevant and of relevant documents, by bias factor.

    Maximises the concave :math:`\sum c \log p + (w - c) \log(1 - p)` with
    :math:`p = l_t (1 - r) + h_t r` under :math:`0 \le l_t \le h_t \le 1`, by Newton's method for
    all bias factors at once. A logarithmic barrier keeps the bounds; it is small enough to leave
    the first five digits unchanged.

    The rows of the result are :math:`l = \beta` and :math:`h = \alpha + \beta`, NaN for a factor
    without impressions. If relevance does not vary within a factor, all pairs with the same mean
    have the same likelihood, and the barrier chooses among them.
    """

    def by_factor(values):
        return np.bincount(factor, values, minlength=n_factors)

    # Clicks and missing clicks as shares of the impressions of their factor.
    impressions = by_factor(weight)
    total = np.maximum(impressions, TINY)[factor]
    hits = clicks / total
    misses = (weight - clicks) / total
    # What l and h contribute to the chance of each row.
    shares = np.stack([1 - relevance, relevance])
    rate = by_factor(hits)
    # The barrier must stay small against rare clicks too, such as one per 10⁵ impressions.
    scale = np.maximum(np.minimum(rate, 1 - rate), _LEAST_SHARE)
    # Small enough to leave the first five digits of the coefficients unchanged.
    barrier = 1e-6 * scale

    # Where rounding reaches a bound, the value is no number, and the step is halved.
    @np.errstate(divide="ignore", invalid="ignore")
    def objective(point):
        gaps = _GAPS @ point.T + [[0], [0], [1]]
        chance = (shares * point.T[:, factor]).sum(axis=0)
        value = by_factor(hits * np.log(chance) + misses * np.log1p(-chance))
        value += barrier * np.log(gaps).sum(axis=0)
        slope = hits / chance - misses / (1 - chance)
        gradient = np.stack([by_factor(slope * share) for share in shares])
        gradient += _GAPS.T @ (barrier / gaps)
        bend = hits / chance**2 + misses / (1 - chance) ** 2
        curvature = np.array(
            [[by_factor(bend * one * other) for other in shares] for one in shares]
        )
        curvature += np.einsum("ki,kt,kj->ijt", _GAPS, barrier / gaps**2, _GAPS)
        # The solver also needs the gaps.
        return value, gradient.T, (np.moveaxis(curvature, -1, 0), gaps)

    def newton_step(curvature, gradient):
        curvature, gaps = curvature
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        # Share of the way to the nearest bound that the whole step would take.
        used = np.max(-(_GAPS @ step.T) / gaps, axis=0)
        # At a bound the barrier is infinite: a step goes no further than most of the way.
        shorten = np.maximum(used / _MOST_OF_THE_WAY, 1.0)
        return step / shorten[:, None]

    # Half of the rate for irrelevant documents, and up to twice as much for relevant ones.
    rate = np.clip(rate, _LEAST_SHARE, 1 - _LEAST_SHARE)
    highest = np.minimum(2 * rate, 1.0)
    start = np.stack([0.5 * rate, 0.5 * (rate + highest)], axis=1)
    # The fit ends when a step is expected to gain less likelihood; relative, as the barrier is.
    found = maximise(objective, start, solve=newton_step, tol=1e-10 * scale)
    warn_unless_converged(found, "Trust bias")
    return np.where(impressions > 0, found.at.T, np.nan)
