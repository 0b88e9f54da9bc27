"""A network of relevance trained listwise on clicks, with examination that is known already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit, logit

from .._log._factors import loss_scale
from .._models._click_choice import ClickChoice
from .._typing import Bools, Floats
from ._losses import CLICK_ONLY, LOSSES, ListLoss, exposure_loss
from ._networks import ListScores

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from ._net import NeuralEstimator

__all__ = ["ListTarget", "fit_affine", "fit_best_of", "fit_listwise"]

#: Attributes that a training sets.
_TRAINED = ("network_", "net_", "history_", "n_iter_")


@dataclass(frozen=True, eq=False)
class ListTarget:
    """What a network of relevance is fitted to.

    Parameters
    ----------
    clicks : ndarray of shape (n_rows,)
        (Debiased) number of clicks of each row.
    examination : ndarray of shape (n_rows,), default=None
        Examination probability of each row, an offset of the listwise loss; None if the clicks
        are divided by it already.
    loss : str, default="softmax"
        Name of the loss; with ``examination`` it must be "softmax".
    """

    clicks: Floats
    examination: Floats | None = None
    loss: str = "softmax"


def fit_listwise(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None,
    target: ListTarget,
    *,
    held_out: Bools | None = None,
) -> None:
    r"""Train a network of relevance, of which the learner then holds the result.

    The loss is one of the weighted clicks, or, with ``target.examination``, the conditional
    likelihood :math:`-\sum_i c_i \log \mathrm{softmax}(g + \log o)_i`. The caller has seeded
    torch's random stream (``learner._seeded()``).

    Parameters
    ----------
    learner : NeuralEstimator
        Holds the parameters of the training, and afterwards the network.
    log : ClickLog
        With its own traffic, which ``learner.traffic_exponent`` tempers here.
    task : FitTask or None
        The fit that scikit-learn's callbacks are informed about.
    target : ListTarget
    held_out : ndarray of shape (n_queries,), bool, default=None
        Queries for early stopping; by default they are drawn.
    """
    log, factor = log.tempered(learner.traffic_exponent)
    clicks = target.clicks * factor
    click_only = target.loss in CLICK_ONLY
    scale = loss_scale(log, clicks if click_only else np.where(log.shown, log.weight, 0.0))
    if target.examination is None:
        criterion = ListLoss(LOSSES[target.loss], scale)
    else:
        criterion = ListLoss(exposure_loss, scale)
        log = replace(log, weight=log.weight * target.examination)
    module = ListScores(learner._network(log.shown_features()))
    learner._train(
        module, criterion, log, clicks, click_only=click_only, task=task, held_out=held_out
    )


def fit_best_of(
    learner: NeuralEstimator,
    log: ClickLog,
    task: FitTask | None,
    examination: Floats,
    targets: Mapping[str, ListTarget],
) -> tuple[str, dict[str, float]]:
    """Train a network for each target, and keep that of the likeliest held-out clicks.

    The queries that early stopping holds out are the same for all targets, and so are the initial
    weights. Their clicks are compared by :class:`ClickChoice`, with one free scale of the scores.
    Without held-out queries only the first target is trained.

    Parameters
    ----------
    learner, log, task
        As in :func:`fit_listwise`.
    examination : ndarray of shape (n_rows,)
        Examination probability of each row, up to a constant.
    targets : dict of str to ListTarget

    Returns
    -------
    name : str
        Of the target whose network the learner holds.
    losses : dict of str to float
        Held-out loss per click of each target that was trained, in nats.
    """
    with learner._seeded():
        held_out = learner._held_out_queries(log, log.clicks)
        stream = torch.get_rng_state()
        if not held_out.any() or len(targets) == 1:
            name, target = next(iter(targets.items()))
            fit_listwise(learner, log, task, target, held_out=held_out)
            return name, {}
        log_examination = np.log(np.maximum(examination, 1e-12))
        choice = _clicks_of(log.tempered(learner.traffic_exponent)[0], held_out)
        trained, losses = {}, {}
        for name, target in targets.items():
            torch.set_rng_state(stream)
            fit_listwise(learner, log, task, target, held_out=held_out)
            score = learner._outputs(learner.network_, log.features)[:, 0][log.doc]
            weight = choice.best_weights(score[:, None], log_examination)
            losses[name] = choice.loss(score * weight[0] + log_examination)
            trained[name] = {key: getattr(learner, key) for key in _TRAINED}
    best = min(losses, key=losses.__getitem__)
    vars(learner).update(trained[best])
    return best, losses


def fit_affine(
    scores: Floats, examination: Floats, clicks: Floats, weight: Floats
) -> tuple[float, float]:
    r"""Shift a and scale b of scores with which clicks are likeliest.

    Maximises the likelihood of :math:`P(c = 1) = o\,\sigma(a + b s)` with :math:`b \ge 0.01`, so
    that the order of the scores stays.

    Parameters
    ----------
    scores, examination, clicks, weight : ndarray of shape (n_rows,)
        Examination is at most 1; ``weight`` is the number of impressions.

    Returns
    -------
    shift, scale : float
    """
    total = weight.sum()
    center = weight @ scores / total
    spread = max(float(np.sqrt(weight @ (scores - center) ** 2 / total)), 1e-9)
    standard = (scores - center) / spread

    def objective(point):
        relevance = expit(point[0] + point[1] * standard)
        chance = np.clip(examination * relevance, 1e-12, 1 - 1e-12)
        loss = -(clicks @ np.log(chance) + (weight - clicks) @ np.log1p(-chance))
        slope = (weight * chance - clicks) / (1 - chance) * (1 - relevance)
        return loss / total, np.array([slope.sum(), slope @ standard]) / total

    rate = float(np.clip(clicks.sum() / (weight @ examination), 1e-6, 1 - 1e-6))
    start = [logit(rate), min(spread, 3.0)]
    bounds = [(-20.0, 20.0), (0.01, 20.0)]
    # Equal clicks in other rows must give an equal result, to more digits than by default.
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxls": 50}
    shift, scale = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    return float(shift - scale * center / spread), float(scale / spread)


def _clicks_of(log, queries):
    """The choice of clicks in the lists of some queries."""
    return ClickChoice.from_rows(log.list_, log.clicks * queries[log.query], log.shown)
