"""Relevance and examination, learned together from the same clicks by gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid

from .._base._typing import Floats
from .._log._cells import loss_scale
from .._models._click_choice import ClickChoice
from .._models._tabular import fit_factors
from ._losses import list_log_softmax, log_exposure
from ._networks import ListScores

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from ._lists import ListBatch, ListDataset
    from ._net import NeuralEstimator


#: Bound on log weights, so that no weight overflows.
_MAX_LOG_WEIGHT = 30.0


def fit_dual(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None = None,
    *,
    learning_rate: float = 0.05,
    max_weight: float | None = None,
) -> Floats:
    """Log examination by bias factor, learned with a network of relevance (Ai et al. 2018).

    Parameters
    ----------
    learner : NeuralEstimator
        Holds the parameters of the training, and afterwards the network, as every neural
        estimator does.
    log : ClickLog
    task : FitTask, default=None
        The fit that scikit-learn's callbacks are informed about.
    learning_rate : float, default=0.05
        Step size of the examination logits.
    max_weight : float, default=None
        Upper bound on the inverse weights of both parts.

    Returns
    -------
    log_examination : ndarray of shape (n_factors,)
        The most likely one given the learned relevance: the logits after training have the noise
        of the last batches.
    """
    impressions = np.bincount(log.bias, log.weight)
    training = log.tempered(learner.traffic_exponent)[0].comparable()
    validation = learner._tempered_validation()
    if validation is not None:
        validation = validation.comparable()
    with learner._seeded():
        network = learner._network(log.features, constant=False)
        module = DualModule(network, len(log.bias_values), int(impressions.argmax()))
        learner._train(
            module,
            DualLoss(loss_scale(training, training.clicks), max_weight),
            training,
            training.clicks,
            click_only=True,
            task=task,
            param_groups=_factor_settings(learning_rate),
            validation=validation,
        )
    part = log.sample().times(log.traffic_factors(learner.traffic_exponent))
    relevance = learner._outputs(learner.network_, part.features)[:, 0][part.version]
    start = module.examination.detach().double().cpu().numpy()
    choice = ClickChoice.of_log(part)
    return choice.likeliest_examination(relevance, part.bias, start - start.mean())


def fit_towers(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None = None,
    *,
    link: Literal["product", "additive"] = "product",
    learning_rate: float | None = None,
) -> None:
    """Train a network of relevance and a table of examination by the cross-entropy of all clicks.

    Parameters
    ----------
    learner, log, task
        As in :func:`fit_dual`.
    link : {"product", "additive"}, default="product"
    learning_rate : float, default=None
        Step size of the examination logits. By default they take no steps: before every epoch
        they are set to their maximum-likelihood value given the current relevance, which is
        regression-EM (Wang et al. 2018). The gradient of the expected complete-data likelihood
        at the current expectations equals that of the likelihood (Fisher's identity), so that no
        E-step is needed.
    """
    training, _ = log.tempered(learner.traffic_exponent)
    by_steps = learning_rate is not None
    with learner._seeded():
        network = learner._network(log.features)
        learner._train(
            TowersModule(network, len(log.bias_values), trained=by_steps),
            TowersLoss(loss_scale(training, training.weight), link),
            training,
            training.clicks,
            click_only=False,
            task=task,
            param_groups=_factor_settings(learning_rate) if by_steps else [],
            callbacks=[] if by_steps else [("examination", ExaminationStep())],
            validation=learner._tempered_validation(),
        )


def _factor_settings(learning_rate):
    """Optimizer settings of the logits of bias factors: a step size, and no weight decay."""
    return [("examination", {"lr": learning_rate, "weight_decay": 0.0})]


class DualModule(ListScores):
    """Relevance logits from a network, examination logits from a table.

    The table has one logit per bias factor, without a layer or an activation on top, which would
    bound the ratios that can be learned.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
        Number of bias factors.
    reference : int
        Code of the factor that examination is relative to.
    """

    def __init__(self, network: nn.Sequential, n_factors: int, reference: int) -> None:
        super().__init__(network)
        self.reference = reference
        self.examination = nn.Parameter(torch.zeros(n_factors))

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Relevance and (relative) examination logits, each of shape (n_lists, width)."""
        relative = self.examination - self.examination[self.reference]
        return super().forward(batch), batch.pad(relative.index_select(0, batch.bias))


class DualLoss(nn.Module):
    r"""The dual learning objective (Ai et al. 2018) in its listwise form.

    .. math::
        L = -\sum_i c_i \frac{o_1}{o_i} \log \mathrm{softmax}(g)_i
            -\sum_i c_i \frac{r_1}{r_i} \log \mathrm{softmax}(h)_i

    with :math:`o = \exp h` relative to a fixed reference factor and :math:`r = \exp g` relative
    to the first shown row. The weights carry no gradient.

    On validation lists (in evaluation mode) it is the cross-entropy of the uncorrected clicks
    under :math:`\mathrm{softmax}(g + h)`, which is the prediction of both parts together. It has
    no weights, which would change from epoch to epoch and add variance.

    The weight of a row is its exposure, whose logarithm is added to the logits of each softmax.

    Parameters
    ----------
    scale : float
        Constant factor of the loss, the same for the whole log.
    max_weight : float or None
        Upper bound on both weights.
    """

    def __init__(self, scale: float, max_weight: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.max_weight = max_weight

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (relevance, examination) logits of shape (n_lists, width)."""
        relevance, examination = outputs
        exposure = log_exposure(batch.weight)
        if not self.training:
            return self._click_loss(relevance + examination + exposure, batch)
        examined = self._weights(-examination)
        relevant = self._weights(relevance[:, :1] - relevance)
        rank = examined * list_log_softmax(relevance + exposure, batch.mask)
        exam = relevant * list_log_softmax(examination + exposure, batch.mask)
        return (batch.clicks * (rank + exam)).sum() * (-self.scale / len(batch))

    def _click_loss(self, logits, batch):
        return -(batch.clicks * list_log_softmax(logits, batch.mask)).sum() * (
            self.scale / len(batch)
        )

    def _weights(self, log_weights):
        # Bounded before the exponential: infinity times 0 clicks would be NaN.
        weights = log_weights.detach().clamp(max=_MAX_LOG_WEIGHT).exp()
        return weights if self.max_weight is None else weights.clamp(max=self.max_weight)


class TowersModule(ListScores):
    """Relevance logits from a network, examination logits from a table, none of them relative.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
    trained : bool
        If False, the table is set by ``ExaminationStep``.
    """

    def __init__(self, network: nn.Sequential, n_factors: int, trained: bool) -> None:
        super().__init__(network)
        self.examination = nn.Parameter(torch.zeros(n_factors), requires_grad=trained)

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Relevance and examination logits, each of shape (n_lists, width)."""
        return super().forward(batch), batch.pad(self.examination.index_select(0, batch.bias))


class TowersLoss(nn.Module):
    r"""Cross-entropy of clicks under two towers, weighted by impressions.

    .. math::
        P(c = 1) = \sigma(g)\,\sigma(h) \;\text{(product)}, \qquad
        P(c = 1) = \sigma(g + h) \;\text{(additive)}.

    Parameters
    ----------
    scale : float
        Constant factor of the loss, the same for the whole log.
    link : {"product", "additive"}
    """

    def __init__(self, scale: float, link: Literal["product", "additive"] = "product") -> None:
        super().__init__()
        self.scale = scale
        self.link = link

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (relevance, examination) logits of shape (n_lists, width)."""
        relevance, examination = outputs
        if self.link == "additive":
            hit, miss = _log_sigmoids(relevance + examination)
        else:
            hit = logsigmoid(relevance) + logsigmoid(examination)
            miss = _log_of_neither(relevance, examination)
        loss = -(batch.clicks * hit + (batch.weight - batch.clicks) * miss)
        return loss[batch.mask].sum() * (self.scale / len(batch))


def _log_sigmoids(logits):
    return logsigmoid(logits), logsigmoid(-logits)


def _log_of_neither(g, h):
    """log(1 - σ(g) σ(h)), computed without cancellation."""
    both = torch.logsumexp(torch.stack([torch.zeros_like(g), -g, -h, -g - h]), dim=0)
    return torch.logsumexp(torch.stack([-g, -h, -g - h]), dim=0) - both


class ExaminationStep(Callback):
    """Sets examination to its maximum-likelihood value given relevance, before every epoch."""

    def on_epoch_begin(
        self, net: NeuralNet, dataset_train: ListDataset | None = None, **kwargs: Any
    ) -> None:
        data, module = dataset_train, net.module_
        module.eval()
        version, *rows = data.rows()
        relevance = logsigmoid(data.outputs(module.network[1]).double()).cpu().numpy()[version]
        best = fit_factors(relevance, *rows, n_factors=len(module.examination))
        best = np.clip(best, np.log(1e-6), np.log1p(-1e-6))
        best = torch.from_numpy(best - np.log(-np.expm1(best))).to(module.examination)
        with torch.no_grad():
            # A bias factor that only occurs in held-out lists keeps its value.
            module.examination.copy_(torch.where(best.isnan(), module.examination, best))
