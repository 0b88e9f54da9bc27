"""Networks of relevance: trained listwise with examination that is known already, or together with
examination from the same clicks."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy.special import expit, logit, logsumexp
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import logsigmoid

from .._base._typing import Floats
from .._log._cells import loss_scale
from .._log._segments import TINY
from .._models._solve import GroupedLogit, maximise
from .._models._tabular import fit_factors
from ._lists import CLICK_ONLY, LOSSES, ListLoss, ScaledLoss, list_log_softmax, log_exposure
from ._net import NeuralEstimator
from ._networks import ListScores
from ._thresholds import RELEVANCE_FIRST

if TYPE_CHECKING:
    from skorch import NeuralNet

    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from ._lists import ListBatch, ListDataset


#: Step size of the logits of bias factors. It is larger than that of a network, because all lists
#: tell of them.
FACTOR_LEARNING_RATE = 0.05


def fit_dual(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None = None,
    policy: nn.Module | None = None,
) -> Floats:
    """Log examination by bias factor, learned with a network of relevance (Ai et al. 2018).

    The most likely one given the learned relevance: the logits after training have the noise of
    the last batches. The learner holds the network afterwards. With the network of the logging
    ``policy`` (:func:`fit_policy`) examination depends on it as well, and is that of the mean
    document (Luo et al. 2023).
    """
    module = _train_both(learner, log, task, policy)
    # From here on relevance is held fixed, and examination is solved for.
    part = log.sample()
    traffic = log.traffic_factors(learner.traffic_exponent)
    choice = GroupedLogit.of_log(part.times(traffic))
    # One score per version of a document, spread over the rows that show it.
    scores = learner._outputs(learner.network_, part.features)[:, 0]
    relevance = scores[part.version]
    start = module.examination.detach().double().cpu().numpy()
    start -= start.mean()
    if policy is None:
        return choice.likeliest_examination(relevance, part.bias, start)
    # What the policy thinks of a document has its own effect under each factor.
    served = learner._outputs(policy, part.features)[:, 0]
    slope = module.slope.detach().double().cpu().numpy()
    effect = slope[part.bias] * served[part.version]
    found = choice.likeliest_examination(relevance + effect, part.bias, start)
    return found + _mean_effect(slope, served, part)


def _train_both(learner, log, task, policy):
    """The module of relevance and examination, trained by dual learning."""
    training = log.tempered(learner.traffic_exponent).comparable()
    validation = learner._tempered_validation()
    if validation is not None:
        validation = validation.comparable()
    with learner._seeded():
        # A constant added to all scores cancels within each list.
        network = learner._network(log.features, constant=False)
        # Examination is relative to the factor that is known best.
        reference = int(np.bincount(log.bias, log.weight).argmax())
        module = ExaminationModule(
            network, len(log.bias_values), reference=reference, policy=policy
        )
        learner._train(
            module,
            DualLoss(loss_scale(training, training.clicks)),
            training,
            training.clicks,
            click_only=True,
            task=task,
            param_groups=_factor_settings(FACTOR_LEARNING_RATE),
            validation=validation,
            penalty=learner._penalty(log, click_only=True),
        )
    return module


def _mean_effect(slope, served, log):
    """Log of the mean effect of the policy's scores of documents, shape (n_factors,).

    The backdoor adjustment: the mean is over all documents of the log, wherever they were shown.
    """
    shown = np.bincount(log.version, log.weight, minlength=log.n_versions)
    return logsumexp(np.outer(slope, served), axis=1, b=shown / shown.sum())


def fit_policy(learner: NeuralEstimator, log: ClickLog) -> nn.Module:
    """The network of a logging policy: standardised scores of documents by where they were shown.

    Listwise: the softmax of the scores of a page is in proportion to the discounts of DCG at
    which its documents stood. Clicks are not read.
    """
    gain = log.weight / np.log2(1.0 + log.position)
    with learner._seeded():
        fit_listwise(learner, log, None, ListTarget(gain, learns_clicks=False))
    scores = learner._outputs(learner.network_, log.features)[:, 0]
    shown = np.bincount(log.version, log.weight, minlength=log.n_versions)
    center = np.average(scores, weights=shown)
    spread = np.sqrt(np.average((scores - center) ** 2, weights=shown))
    unit = Standardised(center, max(float(spread), TINY))
    # The scaling of features stays a step of its own: batches have passed it.
    scaling, scorer = learner.network_
    return nn.Sequential(scaling, nn.Sequential(scorer, unit))


class DualLearner(NeuralEstimator):
    """What trains the network beside which examination is learned, and is then thrown away."""

    # Half a training of a ranker, as its relevance ranks nothing.
    _length = 0.5

    @classmethod
    def like(cls, ranker: Any) -> DualLearner:
        """With the settings of a ranker; those of a network if it is none."""
        settings = {}
        # With a learner of its own, a ranker's settings of networks say nothing.
        if isinstance(ranker, NeuralEstimator) and getattr(ranker, "estimator", None) is None:
            settings = {field.name: getattr(ranker, field.name) for field in fields(cls)}
        settings["random_state"] = ranker.random_state
        # Callbacks report the training of the ranker.
        settings["verbose"] = 0
        settings["net_params"] = None
        return cls(**settings)


def fit_towers(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None = None,
    *,
    link: Literal["product", "additive"] = "product",
    learning_rate: float | None = None,
) -> None:
    """Train a network of relevance and a table of examination by the cross-entropy of all clicks.

    ``learning_rate`` is the step size of the examination logits. By default they take no steps:
    in the second half of the training they are set to their maximum-likelihood value given the
    current relevance before every epoch, which is regression-EM (Wang et al. 2018). The gradient
    of the expected complete-data likelihood at the current expectations equals that of the
    likelihood (Fisher's identity), so that no E-step is needed.
    """
    training = log.tempered(learner.traffic_exponent)
    by_steps = learning_rate is not None
    if by_steps:
        # Two ways to learn examination: by gradient steps, or by maximum likelihood between steps.
        groups = _factor_settings(learning_rate)
        callbacks = []
    else:
        groups = []
        callbacks = [("examination", ExaminationStep())]
    with learner._seeded():
        # The constant matters here: P(click) is a number and no comparison.
        network = learner._network(log.features)
        learner._train(
            ExaminationModule(network, len(log.bias_values), trained=by_steps),
            TowersLoss(loss_scale(training, training.weight), link),
            training,
            training.clicks,
            click_only=False,
            task=task,
            param_groups=groups,
            callbacks=callbacks,
            validation=learner._tempered_validation(),
            penalty=learner._penalty(log, click_only=False),
        )


def fit_relevance(learner: NeuralEstimator, log: ClickLog) -> None:
    """Train a network of relevance by the cross-entropy of all clicks, at known propensities.

    The tower of examination of :func:`fit_towers` is then a table of the propensities of the log.
    """
    values, factor = np.unique(log.propensity, return_inverse=True)
    bias = factor.astype(log.bias.dtype)
    training = replace(log, bias=bias, bias_values=values).tempered(learner.traffic_exponent)
    with learner._seeded():
        # The constant matters here: P(click) is a number and no comparison.
        module = ExaminationModule(learner._network(log.features), len(values), trained=False)
        with torch.no_grad():
            logits = logit(np.clip(values, *np.exp(_LOG_EXAMINATION)))
            module.examination.copy_(torch.from_numpy(logits))
        learner._train(
            module,
            TowersLoss(loss_scale(training, training.weight)),
            training,
            training.clicks,
            click_only=False,
            task=None,
            penalty=learner._penalty(log, click_only=False),
        )


def _factor_settings(learning_rate):
    """Optimizer settings of the logits of bias factors: a step size, and no weight decay."""
    return [("examination", {"lr": learning_rate, "weight_decay": 0.0})]


class ExaminationModule(ListScores):
    """Relevance logits from a network, examination logits from a table: two (n_lists, width).

    The table has one logit per bias factor, without a layer or an activation on top, which would
    bound the ratios that can be learned. They are relative to that of the factor ``reference``, if
    there is one. A table that is not ``trained`` is set by ``ExaminationStep``. With the network
    of a logging ``policy``, each factor has a slope by what the policy thinks of the document.
    """

    def __init__(
        self,
        network: nn.Sequential,
        n_factors: int,
        *,
        reference: int | None = None,
        trained: bool = True,
        policy: nn.Module | None = None,
    ) -> None:
        super().__init__(network)
        self.reference = reference
        # Behind the scaling, which the features of batches have passed; not trained.
        self.policy = None if policy is None else policy[1].requires_grad_(False)
        if policy is not None:
            self.slope = nn.Parameter(torch.zeros(n_factors))
        self.examination = nn.Parameter(torch.zeros(n_factors), requires_grad=trained)

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Relevance and examination logits."""
        logits = self.examination
        if self.reference is not None:
            # The reference keeps 0, and its steps move all others.
            logits = logits - logits[self.reference]
        examination = logits.index_select(0, batch.bias)
        if self.policy is not None:
            with torch.no_grad():
                # Without dropout, also while the rest is trained.
                served = self.policy.eval()(batch.features)[:, 0]
            examination = examination + self.slope.index_select(0, batch.bias) * served
        return super().forward(batch), batch.pad(examination)


class Standardised(nn.Module):
    """Outputs less their mean, in standard deviations."""

    def __init__(self, center: float, spread: float) -> None:
        super().__init__()
        self.center = center
        self.spread = spread

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        """Standardised outputs."""
        return (outputs - self.center) / self.spread


class DualLoss(ScaledLoss):
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
    """

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (relevance, examination) logits of shape (n_lists, width)."""
        relevance, examination = outputs
        exposure = log_exposure(batch.weight)
        if self.training:
            # Relative weights o_1 / o_i and r_1 / r_i.
            examined = _bounded_weights(-examination)
            relevant = _bounded_weights(relevance[:, :1] - relevance)
            # Each part learns from clicks that are divided by the other.
            gain = examined * list_log_softmax(relevance + exposure, batch.mask)
            gain = gain + relevant * list_log_softmax(examination + exposure, batch.mask)
        else:
            gain = list_log_softmax(relevance + examination + exposure, batch.mask)
        return (batch.clicks * gain).sum() * (-self.scale / len(batch))


#: A click times the exponential of this is still a number in single precision.
_LARGEST_LOG_WEIGHT = 30.0


def _bounded_weights(log_weights):
    # Before the exponential: infinity times 0 clicks would be NaN.
    return log_weights.detach().clamp(max=_LARGEST_LOG_WEIGHT).exp()


class TowersLoss(ScaledLoss):
    r"""Cross-entropy of clicks under two towers, weighted by impressions.

    .. math::
        P(c = 1) = \sigma(g)\,\sigma(h) \;\text{(product)}, \qquad
        P(c = 1) = \sigma(g + h) \;\text{(additive)}.
    """

    def __init__(self, scale: float, link: Literal["product", "additive"] = "product") -> None:
        super().__init__(scale)
        self.link = link

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (relevance, examination) logits of shape (n_lists, width)."""
        relevance, examination = outputs
        if self.link == "additive":
            logits = relevance + examination
            hit = logsigmoid(logits)
            miss = logsigmoid(-logits)
        else:
            # log P(c = 1) = log sigma(g) + log sigma(h)
            hit = logsigmoid(relevance) + logsigmoid(examination)
            miss = _log_of_neither(relevance, examination)
        # Impressions without a click.
        skips = batch.weight - batch.clicks
        loss = -(batch.clicks * hit + skips * miss)
        return loss[batch.mask].sum() * (self.scale / len(batch))


def _log_of_neither(g, h):
    """log(1 - σ(g) σ(h)), computed without cancellation."""
    # It is the logarithm of e^-g + e^-h + e^-(g + h) over 1 + the same.
    all_cases = torch.stack([torch.zeros_like(g), -g, -h, -g - h])
    total = torch.logsumexp(all_cases, dim=0)
    neither = torch.stack([-g, -h, -g - h])
    return torch.logsumexp(neither, dim=0) - total


#: With early stopping nobody knows the length beforehand: so many epochs of relevance alone
#: instead of a share of the training, at most.
FIRST_EPOCHS = 20


class TableStep(Callback):
    """Sets a table of bias factors to its most likely values given relevance, from time to time.

    In the first half of the steps all bias factors are alike, so that the network
    explains what it can. Subclasses write ``start(module, data)`` and ``update(module, data)``.
    """

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        self.n_done_ = 0

    def on_epoch_begin(
        self, net: NeuralNet, dataset_train: ListDataset | None = None, **kwargs: Any
    ) -> None:
        self.data_ = dataset_train
        # Steps are counted, as epochs are of any length.
        per_epoch = -(-len(dataset_train) // net.batch_size)  # rounded up
        n_steps = net.max_epochs * per_epoch
        self.n_first_ = int(RELEVANCE_FIRST.value * n_steps)
        # Later, the table is set every epoch, and at least so often that a whole training had this
        # many.
        self.interval_ = max(1, min(per_epoch, n_steps // 32))
        stop = dict(net.callbacks_).get("early_stopping")
        if stop is not None:
            self.n_first_ = min(self.n_first_, FIRST_EPOCHS * per_epoch)
            if self.n_done_ < self.n_first_:
                stop.on_train_begin(net)  # until now it was another model

    def on_batch_begin(self, net: NeuralNet, training: bool = False, **kwargs: Any) -> None:
        if not training:
            return
        # In the second part of the training, from time to time; before its first step, the start.
        later = self.n_done_ - self.n_first_
        if later >= 0 and later % self.interval_ == 0:
            # Without dropout, and with running moments: relevance as it will be predicted.
            net.module_.eval()
            self.update(net.module_, self.data_)
        elif self.n_done_ == 0:
            self.start(net.module_, self.data_)
        self.n_done_ += 1

    def on_train_end(self, net: NeuralNet, **kwargs: Any) -> None:
        self.data_ = None


#: Least and largest logarithm of an examination: its logit stays finite.
_LOG_EXAMINATION = (np.log(1e-6), np.log1p(-1e-6))


class ExaminationStep(TableStep):
    """Sets examination to its maximum-likelihood value given relevance."""

    def start(self, module: ExaminationModule, data: ListDataset) -> None:
        """All bias factors are examined alike."""
        with torch.no_grad():
            # Logit of the examination of all bias factors while relevance alone explains the
            # clicks: no click rate is above it but by chance.
            module.examination.fill_(2.0)

    def update(self, module: ExaminationModule, data: ListDataset) -> None:
        """The most likely examination of each bias factor."""
        # Behind the scaling, which the features of the data set have already passed.
        scores = data.outputs(module.network[1]).double()
        relevance = logsigmoid(scores).cpu().numpy()
        best = fit_factors(relevance, *data.rows(), n_factors=len(module.examination))
        # Logits from logarithms.
        # An examination of 0 or 1 has no finite logit.
        best = np.clip(best, *_LOG_EXAMINATION)
        best = best - np.log(-np.expm1(best))
        best = torch.from_numpy(best).to(module.examination)
        with torch.no_grad():
            # A bias factor that only occurs in held-out lists keeps its value.
            module.examination.copy_(torch.where(best.isnan(), module.examination, best))


#: Bounds of shift and scale: a scale of at least 0.01 keeps the order of the scores.
_LEAST_UNITS = np.array([-20.0, 0.01])
_MOST_UNITS = np.array([20.0, 20.0])
#: The search begins at a scale of the scores within these.
_START_OF_SCALE = (0.01, 3.0)


@dataclass(frozen=True, eq=False)
class ListTarget:
    """Target clicks of each row, with the offset and the loss that a network learns by."""

    clicks: Floats  # (n_rows,), debiased
    examination: Floats | None = None  # (n_rows,), an offset; None: clicks are divided by it
    loss: str = "softmax"
    validation: ListTarget | None = None
    naive_weight: float = 0.0  # share of the loss without the offset
    learns_clicks: bool = True  # their number says how noisy the target is

    def on(self, log: ClickLog, traffic_exponent: float) -> ClickLog:
        """The log with tempered traffic, the clicks of the target, and its examination.

        For a listwise loss, pages of one row are joined, and weights are exposures. With a
        ``naive_weight``, each list occurs twice: with the offset, and without it.
        """
        if self.naive_weight:
            # Joined before: the two kinds are never compared.
            joined = replace(log.comparable(), weight=log.weight)
            twice = np.tile(np.arange(joined.n_lists), 2)
            return self._of_both().on(joined.take_lists(twice), traffic_exponent)
        factor = log.traffic_factors(traffic_exponent)
        given = replace(log, clicks=self.clicks, propensity=self.examination)
        clicks = given.by_chunk(lambda part: part.clicks * factor[part.query], np.float32)
        is_listwise = self.loss == "softmax"
        log = replace(log.comparable() if is_listwise else log, clicks=clicks)
        if is_listwise and self.examination is None:
            return log

        def weights(part):
            weight = part.weight * factor[part.query]
            return weight if part.propensity is None else weight * part.propensity

        return replace(log, weight=given.by_chunk(weights, np.float32))

    def _of_both(self):
        """What lists that occur twice are fitted to."""
        # Shares of each click in the two lists add up to it.
        corrected = (1 - self.naive_weight) * self.clicks
        naive = self.naive_weight * self.clicks
        no_offset = np.ones_like(self.examination)
        return ListTarget(
            np.concatenate([corrected, naive]),
            np.concatenate([self.examination, no_offset]),
        )


def fit_listwise(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None,
    target: ListTarget,
) -> None:
    r"""Train a network of relevance, of which the learner then holds the result.

    The loss is one of the weighted clicks, or, with ``target.examination``, the conditional
    likelihood :math:`-\sum_i c_i \log \mathrm{softmax}(g + \log o)_i`. The caller has seeded
    torch's random stream (``learner._seeded()``).
    """
    # The mean is over clicks if only these enter the loss, else over impressions.
    click_only = target.loss in CLICK_ONLY
    penalty = learner._penalty(log, click_only=click_only) if target.learns_clicks else 0.0
    log = target.on(log, learner.traffic_exponent)
    scale = loss_scale(log, log.clicks if click_only else log.weight)
    validation = None
    if target.validation is not None:
        validation = target.validation.on(learner._validation, learner.traffic_exponent)
    module = ListScores(learner._network(log.features, constant=not click_only))
    learner._train(
        module,
        ListLoss(LOSSES[target.loss], scale),
        log,
        log.clicks,
        click_only=click_only,
        task=task,
        validation=validation,
        penalty=penalty,
    )


def fit_affine(
    scores: Floats, examination: Floats, clicks: Floats, weight: Floats
) -> tuple[float, float]:
    r"""Shift a and scale b of scores with which clicks are likeliest.

    Maximises the likelihood of :math:`P(c = 1) = o\,\sigma(a + b s)` with :math:`b \ge 0.01`, so
    that the order of the scores stays.
    """
    total = weight.sum()
    # Standardised, so that one start and one bound suit scores of any scale.
    center = weight @ scores / total
    variance = weight @ (scores - center) ** 2 / total
    spread = max(float(np.sqrt(variance)), 1e-9)
    standard = (scores - center) / spread
    powers = np.stack([np.ones(len(standard)), standard])

    def objective(point):
        shift, scale = point
        # P(c = 1) = o sigma(a + b s), away from 0 and 1 for the logarithms.
        relevance = expit(shift + scale * standard)
        chance = np.clip(examination * relevance, 1e-12, 1 - 1e-12)
        value = clicks @ np.log(chance) + (weight - clicks) @ np.log1p(-chance)
        # By the logit of relevance; for the curvature, clicks are what is expected of them.
        slope = (clicks - weight * chance) / (1 - chance) * (1 - relevance)
        bend = weight * chance * (1 - relevance) ** 2 / (1 - chance)
        return value / total, powers @ slope / total, powers * bend @ powers.T / total

    # The start: one relevance for all rows, at which expected clicks are those of the log.
    mean_relevance = clicks.sum() / (weight @ examination)
    shift = logit(float(np.clip(mean_relevance, 1e-6, 1 - 1e-6)))
    start = np.array([shift, np.clip(spread, *_START_OF_SCALE)])
    # Twice the log-likelihood per impression that a last step may gain: equal clicks in other rows
    # must give an equal result, to many digits.
    found = maximise(objective, start, bounds=(_LEAST_UNITS, _MOST_UNITS), tol=1e-16)
    shift, scale = found.at
    # Back to the scores as they were given: a + b (s - m) / d.
    return float(shift - scale * center / spread), float(scale / spread)
