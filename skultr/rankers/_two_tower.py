"""Two towers, for relevance and for examination, trained together by gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from scipy.special import expit

from .._base._sklearn import StrOptions
from .._base._typing import Floats
from .._torch._joint import fit_towers
from ._click_ranker import ClickRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Step size of the examination logits of a network.
_EXAMINATION_LEARNING_RATE = 0.05


@dataclass(kw_only=True, eq=False, repr=False)
class TwoTowerRanker(ClickRanker):
    r"""Ranker with two towers, for relevance and for examination, that explain clicks together.

    .. math::
        P(c = 1) = \sigma(g(x))\,\sigma(h_t) \;\text{(product)}, \qquad
        P(c = 1) = \sigma(g(x) + h_t) \;\text{(additive)},

    trained by the cross-entropy of the clicks of all lists, also of those without a click. The
    product is the examination hypothesis. In the additive form (Zhao et al. 2019; Yan et al. 2022)
    a document that is relevant enough is likely to be clicked even if it is hardly examined; it
    suits logs in which bias multiplies the odds of a click rather than its probability.

    Parameters
    ----------
    link : {"product", "additive"}, default="product"
        How the outputs of the towers are combined.
    relevance : {"network", "embedding"}, default="network"
        A network of the features, or one number per document. The second needs neither features
        nor epochs: it is the maximum of a likelihood, found by Newton's method.
    variant : {"default", "published"}, default="default"
        Objective of the embedding. By default it is the conditional likelihood if documents have
        few clicks, and the binomial likelihood otherwise. The published objective is always the
        binomial likelihood, which is biased if documents have few clicks (see
        :ref:`embedding`). With the additive link it is always the binomial likelihood.
    examination : {"auto", "table", "network"}, default="auto"
        Where examination comes from, for a network. "network" is the published method: what the
        network does not explain. If production ranked by more than the features, that is too
        steep, and the more so the more clicks there are. "table" compares the clicks of the same
        documents at several positions, and takes no features; the log must connect all bias
        factors. "auto" takes the table where documents moved and the network elsewhere, weighted
        by their precision. With "table", and with "auto" if documents moved, the network is then
        trained afresh, listwise with that examination (see Notes). The additive link knows the
        network only.
    examination_start : {"random", "ones"} or array-like of shape (n_factors,), default="random"
        Examination that the fit of an embedding starts from: normal logits drawn by
        ``random_state``, 1 for all bias factors, or one value above 0 and at most 1 for each, in
        the order of ``examination_``. If the log determines relevance, the start does not
        matter; if not, it decides the scale of each component of bias factors.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping by the cross-entropy of the clicks of held-out queries.
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        Estimated ``examination`` of each bias factor (index ``bias``), relative to that of the
        first factor, with ``impressions`` and ``clicks``; the additive link has odds in place of
        probabilities. With an embedding or a table also the ``standard_error`` of the logarithm:
        infinite for a factor that is not connected with the first one, NaN for more than 1,500
        factors.
    examination_comparison_
    relevance_ : Series
        Only with an embedding: relevance in [0, 1] of each document. The index is (``qid``,
        ``doc``), ``doc`` alone if ids are global, or a running number without the column
        ``doc``. Relevance is determined up to a common scale (with the additive link, up to a
        shift of the logits).
    network_, net_, history_
    n_iter_ : int
        Number of epochs run, or of Newton steps.
    n_features_in_, feature_names_in_

    Raises
    ------
    NotIdentifiableError
        With ``examination="table"``, if no clicked document connects some bias factors.

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.
    AssumptionWarning
        If production knew more than the features: the examination of the network differs from
        that of the documents that moved, by more than chance and by 15 % on average.

    Notes
    -----
    Held-out clicks choose between three refits, as in :class:`IPSRanker`: examination as an
    offset, :math:`-\sum_i c_i \log \mathrm{softmax}(g + \log o)_i`, as it is or raised to at least
    0.1, and clicks as they are, which stay unless a correction is better by one standard error.
    If documents do not connect all bias factors, the raised offset is taken, because held-out
    clicks would confirm any examination. If no document moved, there is no refit.

    Where most clicks of a query fell on pages of one row, as in feeds and bandit logs, its rows
    are compared across pages, with the logarithm of their impressions as a further offset.

    References
    ----------
    Guo, Yu, Liu, Tang & Zhang (2019). PAL: a position-bias aware learning framework for CTR
    prediction in live recommender systems. RecSys. Zhao et al. (2019). Recommending what video to
    watch next. RecSys. Yan, Qin, Zhuang, Wang, Bendersky & Najork (2022). Revisiting two-tower
    models for unbiased learning to rank. SIGIR.

    Examples
    --------
    >>> from skultr.rankers import TwoTowerRanker
    >>> from skultr.simulation import make_disconnected_log
    >>> log, clicks, truth = make_disconnected_log(1, random_state=0)
    >>> ranker = TwoTowerRanker(relevance="embedding").fit(log, clicks)
    >>> ranker.predict_click(log)[:3].shape
    (3,)
    """

    link: Literal["product", "additive"] = "product"

    _parameter_constraints = {
        **ClickRanker._parameter_constraints,
        "link": [StrOptions({"product", "additive"})],
    }

    @property
    def _table_link(self):
        return self.link

    @property
    def _refuses_outcomes(self):
        additive = "adds relevance to examination (link='additive'): no curve holds for both"
        return additive if self.link == "additive" else None

    def _random_examination(self, random, n_factors):
        return expit(random.normal(size=n_factors))  # random logits, as for a network

    def _refits_with(self, log):
        # Comparisons within documents and lists need a product of relevance and examination.
        return self.link == "product" and super()._refits_with(log)

    def _fit_network(self, log: ClickLog, task: FitTask) -> Floats:
        fit_towers(self, log, task, link=self.link, learning_rate=_EXAMINATION_LEARNING_RATE)
        return self._fit_factors_again(log, self.link)
