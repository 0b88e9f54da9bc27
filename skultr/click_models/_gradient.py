"""Click models with a table over documents by EM, or a network of features by gradient; of them
the dynamic Bayesian network: attraction, satisfaction, continuation."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np
import torch
from scipy.special import expit
from torch import nn

from .._base._sklearn import Interval, StrOptions
from .._log._cells import loss_scale
from .._torch._joint import fit_towers
from .._torch._lists import ScaledLoss
from .._torch._net import NeuralEstimator
from ._cascade import ChainMixin, count_chain, start_attraction
from ._em import WEAK, EMClickModel

#: Step size of parameters that all documents share: every list tells of them, so that they may
#: move faster than the network.
SHARED_LEARNING_RATE = 0.05
#: Smallest distance of an output of a network from 0 and 1: logarithms stay finite.
_FROM_ENDS = 1e-6
#: EM and training start as if 8 of 10 users continued, and half of the clicks satisfied.
_START_OF_CONTINUATION = 0.8


@dataclass(kw_only=True, eq=False, repr=False)
class GradientClickModel(NeuralEstimator, EMClickModel):
    """Click models with ``solver="em"`` over documents, or ``"gradient"`` over features.

    The network is trained together with the parameters that all documents share. These are then
    fitted once more by EM, which removes the noise of the last batches.
    """

    solver: Literal["em", "gradient"] = "em"

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **EMClickModel._parameter_constraints,
        "solver": [StrOptions({"em", "gradient"})],
    }
    #: Names of the outputs of the network.
    _outputs_of_network = ("relevance",)

    @property
    def _needs_features(self):
        return self.solver == "gradient"

    def _network_parameters(self, features):
        """Outputs of the network as probabilities, a dict of arrays of shape (n_rows,)."""
        outputs = expit(self._outputs(self.network_, features)).T
        outputs = np.clip(outputs, _FROM_ENDS, 1 - _FROM_ENDS)
        return dict(zip(self._outputs_of_network, outputs, strict=True))

    def _document_parameters(self, log):
        """The same by document: means over its versions."""
        tables = self._network_parameters(log.features)
        return {name: log.by_document(values) for name, values in tables.items()}

    def _train_towers(self, log, task):
        """Relevance by document, trained as in :class:`TwoTowerRanker`."""
        fit_towers(self, log, task, learning_rate=SHARED_LEARNING_RATE)
        return self._document_parameters(log)


@dataclass(kw_only=True, eq=False, repr=False)
class DBNModel(ChainMixin, GradientClickModel):
    r"""Dynamic Bayesian network: users scan down until a clicked document satisfies them.

    .. math:: P(c_k = 1 \mid e_k = 1) = a_d, \qquad
              P(e_{k+1} = 1 \mid e_k = 1, c_k) = \gamma (1 - c_k s_d)

    with attraction :math:`a_d` (of the result on the page), satisfaction :math:`s_d` (by the
    document itself) and continuation :math:`\gamma`. Relevance is :math:`a_d s_d`.

    Parameters
    ----------
    continuation : float or None, default=None
        :math:`\gamma`, estimated if None. With 1, users leave only when satisfied (the simplified
        model).
    prior : "empirical", (float, float) or None, default="empirical"
        Pseudo-counts of successes and failures, for both attraction and satisfaction.

        - ``"empirical"``: those of the Beta distribution of each over documents, by maximum
          likelihood (empirical Bayes). The prior of satisfaction depends on attraction (see
          Notes).
        - None: no prior; documents are fitted by maximum likelihood, too, as in
          :class:`PBMModel`.

    {steps}
    {variant}
    {solver}

    Attributes
    ----------
    documents_ : DataFrame
        ``attraction``, ``satisfaction`` and ``relevance`` by ``doc`` (by number where the log
        has no such column).
    continuation_ : float
        :math:`\gamma`.
    {examination}
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls. With
        ``solver="gradient"`` this is the EM over the parameters that all documents share. With
        ``solver="gradient"`` and a given continuation there is no EM, and no such attribute.
    n_iter_ : int
        Number of EM steps; with ``solver="gradient"``, of epochs.
    network_, net_, history_
        Only with ``solver="gradient"``: scaling and network, the skorch net that trained it
        (which pickles leave out), and the learning curves by epoch.
    prior_ : dict of str to (float, float)
        Pseudo-counts of each parameter of documents (means over documents); empty with
        ``solver="gradient"``.
    {features}

    Notes
    -----
    *Below the last click* the model sums exactly over the rows at which the user may have stopped,
    also in lists without clicks. The end of a list is not evidence about continuation. The
    published counts of the simplified model treat every last click as satisfaction, and all rows
    below as not examined. They estimate the model only if users always stop at a click.

    *Satisfaction* is known much less well than attraction, because only clicks tell of it. With
    one prior for all documents its errors would decide the order by :math:`a_d s_d`. Its prior is
    therefore that of documents of the same attraction: the logit of the prior mean is a line in
    the logit of :math:`a_d`, and its slope is estimated from the clicks. In logs of such users
    (``make_ltr``, 100,000 sessions over 150 queries, three seeds) the rank correlation of
    relevance is 0.79, against 0.68 with one prior for all documents. With 3,000 sessions it is
    0.45 against 0.42.

    References
    ----------
    Chapelle & Zhang (2009). A dynamic Bayesian network click model for web search ranking. WWW.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import DBNModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = DBNModel(continuation=1, prior=(1, 1)).fit(log, [1, 1, 0, 1])
    >>> model.documents_.columns.tolist()
    ['attraction', 'satisfaction', 'relevance']
    """

    continuation: float | None = None

    _parameter_constraints = {
        **GradientClickModel._parameter_constraints,
        "continuation": [Interval(Real, 0, 1, closed="right"), None],
    }
    _outputs_of_network = ("attraction", "satisfaction")
    _attraction = "attraction"

    def _fit(self, log, task):
        counts = count_chain(log)
        known = self._train_chain(log, task) if self.solver == "gradient" else {}
        if self.continuation is not None:
            known["continuation"] = np.array([float(self.continuation)])
        start = {
            "attraction": start_attraction(counts),
            "satisfaction": np.full(len(counts.clicks), 0.5),
            "continuation": np.array([_START_OF_CONTINUATION]),
        }
        tables, means = self._solve(
            log,
            lambda tables: _dbn_counts(counts, **tables),
            start,
            {"continuation": WEAK},
            self._outputs_of_network,
            known,
            follows={"satisfaction": "attraction"},
        )
        self.continuation_ = float(tables.pop("continuation")[0])
        self._remember_chain(log, means, tables)

    def _train_chain(self, log, task):
        """Attraction and satisfaction by document, from a trained network."""
        training = log.tempered(self.traffic_exponent)
        criterion = ChainLoss(loss_scale(training, training.weight))
        shared = {"lr": SHARED_LEARNING_RATE, "weight_decay": 0.0}
        with self._seeded():
            network = self._network(log.features, n_out=2)
            self._train(
                ChainModule(network, self.continuation),
                criterion,
                training,
                training.clicks,
                click_only=False,
                task=task,
                param_groups=[("continuation", shared)],
            )
        return self._document_parameters(log)

    def _relevance(self, parameters):
        return parameters["attraction"] * parameters["satisfaction"]

    def _transitions(self, parameters, position):
        after_click = self.continuation_ * (1 - parameters["satisfaction"])
        return parameters["attraction"], self.continuation_, after_click


def _dbn_counts(counts, attraction, satisfaction, continuation):
    """E-step: expected numbers of examined rows, satisfied users and continuations."""
    go_on = continuation[0]
    after_click = go_on * (1 - satisfaction)
    seen = counts.visit(attraction, go_on, after_click)
    # Users who continued were not satisfied; of the others, the share s / (1 - γ (1 - s)) was.
    left = counts.open_end - seen.went_on
    if_left = satisfaction / (1 - after_click)
    satisfied = left * if_left
    # The sum of p (1 - p), with p = P(satisfied) after each last click.
    hidden = satisfied - if_left**2 * (left - seen.went_on_variance)
    missing = hidden / (satisfaction * (1 - satisfaction)) ** 2
    sure = np.zeros_like(satisfaction), counts.clicks_above
    # The same user decides after each click and skip whether to go on.
    went_on = seen.went_on.sum() + seen.went_on_after_skip
    chances = (counts.open_end - satisfied).sum() + seen.skips
    expected = {
        "attraction": seen.attraction,
        "satisfaction": (satisfied, counts.open_end, missing, sure),
        "continuation": (np.array([went_on]), np.array([chances])),
    }
    return expected, seen.value


class ChainModule(nn.Module):
    """Attraction and satisfaction per row, and one continuation."""

    def __init__(self, network, continuation):
        super().__init__()
        self.network = network
        start = _START_OF_CONTINUATION if continuation is None else continuation
        logit = torch.logit(torch.tensor(start), _FROM_ENDS)
        self.continuation = nn.Parameter(logit, requires_grad=continuation is None)

    def forward(self, batch):
        """Attraction and satisfaction, each of shape (n_lists, width), and continuation."""
        outputs = torch.sigmoid(self.network[1](batch.features))
        if outputs.shape != (len(batch.features), 2):
            raise ValueError(
                f"The network gave outputs of shape {tuple(outputs.shape)} for "
                f"{len(batch.features)} documents; expected attraction and satisfaction of each, "
                f"({len(batch.features)}, 2). Check the last layer of the module."
            )
        attraction, satisfaction = outputs.clamp(_FROM_ENDS, 1 - _FROM_ENDS).T
        continuation = torch.sigmoid(self.continuation)
        return batch.pad(attraction), batch.pad(satisfaction), continuation


class ChainLoss(ScaledLoss):
    """Minus the log likelihood of the clicks of lists, a sum over rows given the clicks above."""

    def forward(self, outputs, batch):
        """Loss of a batch, given the output of :class:`ChainModule`."""
        attraction, satisfaction, go_on = outputs
        clicked = batch.clicks > 0
        examined = torch.ones_like(attraction[:, 0])
        loss = 0.0
        for k in range(attraction.shape[1]):
            click = (examined * attraction[:, k]).clamp(_FROM_ENDS, 1 - _FROM_ENDS)
            chance = torch.where(clicked[:, k], click, 1 - click)
            loss = loss - (batch.weight[:, k] * chance.log()).sum()
            # P(examined | what was done at this row), by Bayes' rule after a skip.
            after_skip = (examined - click).clamp(min=0) / (1 - click)
            after_click = 1 - satisfaction[:, k]
            examined = go_on * torch.where(clicked[:, k], after_click, after_skip)
        return loss * (self.scale / len(batch))
