"""Pairwise debiasing: ratios of bias for clicks and for missing clicks."""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from .._constraints import Interval
from .._torch._net import NeuralEstimator
from .._torch._pair_debias import PairDebiasLoss, PairDebiasModule
from ._base import BaseRanker, examination_table, lists_per_unit, warn_unless_identifiable

__all__ = ["PairDebiasRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class PairDebiasRanker(NeuralEstimator, BaseRanker):
    r"""Pairwise debiasing, the idea of unbiased LambdaMART, with a network.

    Each clicked row :math:`i` is compared with each row :math:`j` of the list that was not
    clicked. Clicks and missing clicks have a ratio of bias each, :math:`t^+` and :math:`t^-`, and
    the loss divides by both (Hu et al. 2019):

    .. math::
        L = \sum_{c_i = 1, c_j = 0} \frac{L_{ij}}{t^+_i\, t^-_j}, \qquad
        L_{ij} = \log(1 + e^{s_j - s_i}) .

    The ratios are estimated meanwhile: a bias factor whose pairs cause more loss has more bias,

    .. math::
        t^+_k = \left[\frac{\sum_{i \text{ at } k} \sum_j L_{ij} / t^-_j}
                           {\sum_{i \text{ at } 1} \sum_j L_{ij} / t^-_j}\right]^{1 / (p + 1)},
        \qquad
        t^-_k = \left[\frac{\sum_{j \text{ at } k} \sum_i L_{ij} / t^+_i}
                           {\sum_{j \text{ at } 1} \sum_i L_{ij} / t^+_i}\right]^{1 / (p + 1)},

    relative to the most frequent factor (usually position 1), as running means over batches and
    for each impression, so that rarely shown factors do not look unbiased.

    **Its limit.** The method assumes that a missing click is as much a sign of irrelevance as a
    click is of relevance. Under a position-based model most clicks are missing because nobody
    looked; :math:`t^-` then absorbs relevance, and the ranker can end below the naive one. It is
    here for comparison; see Notes for figures, and prefer :class:`DLARanker` or
    :class:`AffineRanker`.

    Parameters
    ----------
    p : float, default=2.0
        Regularisation: the larger, the closer all ratios are to 1. Published implementations take
        0, with which the two ratios can run apart.
    check_identifiability : bool, default=True
        Warn where the log does not determine relevance.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, max_grad_norm, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the mean loss of a weighted pair.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    position_ratios_ : DataFrame
        Bias factor (index ``bias``) to ``t_plus`` and ``t_minus``, with ``impressions`` and
        ``clicks``; both are 1 for the reference, and for a factor that stood in no pair.
    examination_ : DataFrame
        ``t_plus`` as ``examination``, relative to the first factor, with ``impressions`` and
        ``clicks``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the scoring network.
    net_ : skorch.NeuralNet
        What trained it.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch.
    n_iter_ : int
        Epochs run.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    See Also
    --------
    PRSRanker : Pairs weighted by known propensities.

    Notes
    -----
    Sessions that saw the same list are one list: the expected number of its sessions in which
    :math:`i` was clicked and :math:`j` was not is the product of their rates, clicks of a list
    being taken as independent.

    nDCG@10 on 2,000 queries of ``make_ltr``, 200,000 sessions, ten positions of a fixed ranking:
    under trust bias 0.683 (p = 0: 0.663), where pairs without debiasing reach 0.687, the naive
    softmax 0.685 and dual learning 0.780 (means of five logs); under position bias 0.710 (p = 0:
    0.658) against 0.718, 0.723 and 0.807 (three logs). The default was the best of p = 0, 0.5, 1
    and 2 on three other logs of both kinds.

    References
    ----------
    Hu, Wang, Peng & Li (2019). Unbiased LambdaMART: an unbiased pairwise learning-to-rank
    algorithm. WWW.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import PairDebiasRanker
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = PairDebiasRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> list(ranker.position_ratios_.columns)
    ['t_plus', 't_minus', 'impressions', 'clicks']
    """

    p: float = 2.0
    check_identifiability: bool = True

    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's protocol
        **NeuralEstimator._parameter_constraints,
        "p": [Interval(Real, 0, None, closed="left")],
        "check_identifiability": ["boolean"],
    }

    def _fit(self, log, task):
        if self.check_identifiability:
            warn_unless_identifiable(log, network=True)
        rows = log.shown
        reference = int(np.bincount(log.bias[rows], log.weight[rows]).argmax())
        training, _ = log.tempered(self.traffic_exponent)
        with self._seeded():
            network = self._network(log.shown_features())
            module = PairDebiasModule(network, len(log.bias_values), reference, self.p)
            loss = PairDebiasLoss(lists_per_unit(training, _pairs_won(training)))
            self._train(module, loss, training, training.clicks, click_only=True, task=task)
        self._remember_ratios(log)

    def _remember_ratios(self, log):
        plus, minus = self.net_.module_.ratios.double().cpu().numpy()
        self.examination_ = examination_table(log, plus[log.bias])
        table = self.examination_.drop(columns="examination")
        table.insert(0, "t_plus", plus)
        table.insert(1, "t_minus", minus)
        self.position_ratios_ = table


def _pairs_won(log):
    """How many pairs each row wins by its clicks."""
    missing = np.where(log.shown, 1 - log.click_rate, 0.0)
    others = np.bincount(log.list_, missing, minlength=log.n_lists)[log.list_] - missing
    return log.clicks * others
