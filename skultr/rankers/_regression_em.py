"""Regression-EM: expectations of hidden examination and relevance, refitted alternately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._base._typing import Floats
from .._torch._joint import fit_towers
from ._click_ranker import ClickRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


@dataclass(kw_only=True, eq=False, repr=False)
class RegressionEMRanker(ClickRanker):
    r"""Regression-EM: a position-based click model whose relevance is a function of the features.

    Examination :math:`e` and relevance :math:`r` of a result are hidden. Their expectations given
    the clicks train both parts (Wang et al. 2018):

    .. math::
        P(r = 1 | c = 0) = \frac{r (1 - o)}{1 - o r}, \qquad
        P(e = 1 | c = 0) = \frac{o (1 - r)}{1 - o r},

    and both are 1 after a click. Before each epoch examination is set to its maximum-likelihood
    value given the current relevance. Then the network learns the expected relevance of all
    impressions, also of lists without a click; the expectations are computed anew for every batch
    (Neal & Hinton 1998). Training on expectations that are fixed for an epoch, as published,
    approaches the same optimum far more slowly, because nearly all information is missing at
    positions that users seldom examine.

    Assumes :math:`P(c = 1) = o(\text{bias factor})\, r(x)`.

    Parameters
    ----------
    relevance : {"network", "embedding"}, default="network"
        A network of the features, or one number per document. The second needs neither features
        nor epochs: it is the maximum of a likelihood, found by Newton's method. EM converges
        to the maximum of the binomial likelihood, whose logarithm is concave in log relevance and
        log examination.
    variant : {"default", "published"}, default="default"
        Objective of the embedding. By default it is the conditional likelihood if documents have
        few clicks, and the binomial likelihood otherwise. The published objective is always the
        binomial likelihood, which is biased if documents have few clicks (see
        :ref:`embedding`).
    examination : {"auto", "table", "network"}, default="auto"
        Where examination comes from, for a network. "network" is the published method: what the
        network does not explain. If production ranked by more than the features, that is too
        steep, and the more so the more clicks there are. "table" compares the clicks of the same
        documents at several positions, and takes no features; the log must connect all bias
        factors. "auto" takes the table where documents moved and the network elsewhere, weighted
        by their precision. With "table", and with "auto" if documents moved, the network is then
        trained afresh, listwise with that examination (see Notes).
    examination_start : {"random", "ones"} or array-like of shape (n_factors,), default="random"
        Examination that the fit of an embedding starts from: uniform draws in [0, 1] by
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
        first factor, with ``impressions`` and ``clicks``. With an embedding or a table also the
        ``standard_error`` of log examination: infinite for a factor that is not connected with the
        first one, NaN for more than 1,500 factors.
    examination_comparison_
    relevance_ : Series
        Only with an embedding: relevance in [0, 1] of each document. The index is (``qid``,
        ``doc``), ``doc`` alone if ids are global, or a running number without the column
        ``doc``. Relevance is determined up to a common scale.
    network_, net_
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch, as
        cross-entropy of the clicks.
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
    Wang, Golbandi, Bendersky, Metzler & Najork (2018). Position bias estimation for unbiased
    learning to rank in personal search. WSDM. Neal & Hinton (1998). A view of the EM algorithm
    that justifies incremental, sparse, and other variants. Learning in Graphical Models.

    Examples
    --------
    >>> from skultr.rankers import RegressionEMRanker
    >>> from skultr.simulation import make_disconnected_log
    >>> log, clicks, truth = make_disconnected_log(1, random_state=0)
    >>> ranker = RegressionEMRanker(relevance="embedding").fit(log, clicks)
    >>> ranker.examination_["examination"].head(3).tolist()
    [1.00, 0.90, 0.71]
    """

    def _fit_network(self, log: ClickLog, task: FitTask) -> Floats:
        fit_towers(self, log, task)
        return self._fit_factors_again(log)
