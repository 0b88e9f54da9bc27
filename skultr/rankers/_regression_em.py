"""Regression-EM: hidden examination and relevance, expected and refitted in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._torch._joint import fit_towers
from ._click_ranker import ClickRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask

__all__ = ["RegressionEMRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class RegressionEMRanker(ClickRanker):
    r"""Regression-EM: a position-based click model whose relevance is a function of the features.

    Whether a result was examined and whether it was relevant are hidden; what is expected of them
    given the clicks trains both parts (Wang et al. 2018):

    .. math::
        P(r = 1 | c = 0) = \frac{r (1 - o)}{1 - o r}, \qquad
        P(e = 1 | c = 0) = \frac{o (1 - r)}{1 - o r},

    and both are 1 after a click. Before each epoch examination is set to its best value given the
    relevance so far; then the network learns the expected relevance of all impressions, those of
    lists without a click included, with expectations taken anew for every batch (Neal & Hinton
    1998). An epoch of training on fixed expectations, as published, approaches the same optimum
    far more slowly: what is missing at a position that few examine is nearly everything.

    Assumes :math:`P(c = 1) = o(\text{bias factor})\, r(x)`.

    Parameters
    ----------
    relevance : {"network", "embedding"}, default="network"
        A network of the features, or one number a document, which needs neither features nor
        epochs: the optimum of a likelihood, found by Newton's method. The fixed point of EM is
        that of the binomial likelihood, which is convex in the logarithms.
    variant : {"default", "published"}, default="default"
        What an embedding is fitted by: the conditional likelihood where documents have few clicks,
        else the binomial; or the published binomial likelihood, which is biased where they have
        few (see :ref:`embedding`).

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the cross-entropy of their clicks.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    examination_ : DataFrame
        Bias factor (index ``bias``) to estimated ``examination``, relative to the first factor,
        with ``impressions`` and ``clicks``; with an embedding also ``standard_error``, that of log
        examination (infinite where it is not connected with the first factor, NaN for more than
        1,500 factors).
    relevance_ : Series
        Only with an embedding: relevance in [0, 1] by ``doc`` (by number where the log has no
        such column), up to one factor.
    network_ : torch.nn.Sequential
        Scaling of the features, then the scoring network.
    net_ : skorch.NeuralNet
        What trained it.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch, as
        cross-entropy of the clicks.
    n_iter_ : int
        Epochs run, or Newton steps.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.

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

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        fit_towers(self, log, task)
        self._fit_factors_again(log)
