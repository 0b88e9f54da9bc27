"""Relevance and examination learned together: dual learning, regression-EM and two towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import expit

from .._base._sklearn import StrOptions
from .._base._typing import Floats
from .._log._cells import examination_table
from .._models._solve import GroupedLogit
from .._models._tabular import fit_factors
from .._torch._joint import FACTOR_LEARNING_RATE, fit_dual
from ..propensity._known_curve import warn_about_unknown
from ._click_ranker import ClickRanker
from ._policy_weights import weighted_by_policy

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


@dataclass(kw_only=True, eq=False, repr=False)
class DLARanker(ClickRanker):
    r"""Learns from the same clicks what is relevant and which positions users look at.

    This is the dual learning algorithm (Ai et al. 2018). A network scores relevance; a table holds
    one examination logit per bias factor (by default, the position). Clicks weighted by inverse
    examination train relevance, and clicks weighted by inverse relevance train examination:

    .. math::
        L = -\sum_i c_i \frac{o_1}{o_i} \log \mathrm{softmax}(g)_i
            -\sum_i c_i \frac{r_1}{r_i} \log \mathrm{softmax}(h)_i ,

    with :math:`g = \log r` and :math:`h = \log o` up to constants, :math:`o_1` the examination of
    the most frequent bias factor (usually the first position) and :math:`r_1` the relevance of the
    first shown row of the list.

    Assumes two things:

    - Clicks follow the position-based model: :math:`P(c = 1) = o(\text{bias factor})\, r(x)`.
    - The log showed the same, or similar, documents under several bias factors. If it showed each
      document under one factor only, it determines neither part, and ``fit`` warns. The two are
      then separated only because the network cannot infer the bias factor from the features.

    The scores of the network are relative. ``predict_click`` adds one intercept per bias factor,
    the maximum-likelihood value on the training log: :math:`P(c = 1) = \sigma(g(x) + a_t)`.

    Parameters
    ----------
    relevance : {"network", "embedding"}, default="network"
        A network of the features, or one number per document. The second needs neither features
        nor epochs: it is the maximum of a likelihood, found by Newton's method. With
        ``variant="published"`` it is the fixed point of alternating least squares,
        :math:`r_d \leftarrow \sum c\,o / \sum o^2` and :math:`o_t \leftarrow \sum c\,r / \sum
        r^2` over impressions.
    variant : {"default", "published"}, default="default"
        "published" trains both parts together, once, and the network of this training ranks, as
        in the toolbox of the authors. By default this training only learns examination. The
        ranker is then trained anew with it, and depends less on when the training stops.
        {published}
        An embedding has the published least squares in place of a likelihood, which is the same
        for all rankers; they are biased if documents have few clicks (see :ref:`embedding`).
    {examination}
        trained afresh, listwise with that examination (see Notes).
    examination_start : {"random", "ones"} or array-like of shape (n_factors,), default="random"
        Examination that the fit of an embedding starts from: uniform draws in [0, 1] by
        ``random_state``, 1 for all bias factors, or one value above 0 and at most 1 for each, in
        the order of ``examination_``. If the log determines relevance, the start does not
        matter; if not, it decides the scale of each component of bias factors.
        In Chen et al. (2024), "ones" is DLA_I and "random" is DLA_R.
    {form}
    {correction}

    {network}
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        Estimated ``examination`` of each bias factor (index ``bias``), relative to that of the
        first factor, with ``impressions`` and ``clicks``. Also the ``standard_error`` of log
        examination: infinite for a factor that is not connected with the first one, NaN for more
        than 1,500 factors. With ``examination="network"`` there are no errors, and examination
        maximises the likelihood of the clicks given the learned relevance, because the logits
        after training have the noise of the last batches.
    examination_comparison_
    relevance_ : Series
        Only with an embedding: relevance in [0, 1] of each document. The index is (``qid``,
        ``doc``), ``doc`` alone if ids are global, or a running number without the column
        ``doc``. Relevance is determined up to a common scale.
    network_, net_, history_, n_iter_, n_features_in_, feature_names_in_

    {confounding}

    {refits}

    References
    ----------
    Ai, Bi, Luo, Guo & Croft (2018). Unbiased learning to rank with unbiased propensity
    estimation. SIGIR. The embedding is that of Chen et al. (2024), Identifiability matters:
    revealing the hidden recoverable condition in unbiased learning to rank, ICML, appendix C.3.

    Examples
    --------
    >>> from skultr import DLARanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = DLARanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> list(ranker.examination_.columns)
    ['examination', 'standard_error', 'impressions', 'clicks']
    """

    _published_loss = "squares"
    # Both parts are determined up to a constant each.
    _gives_probabilities = False

    def _fit_network(self, log: ClickLog, task: FitTask | None) -> Floats:
        # Two softmax losses, each weighted by what the other part has learned.
        logits = fit_dual(self, log, task)
        if self._earlier is None:
            warn_about_unknown(log, logits)
        self.examination_ = examination_table(log, np.exp(logits)[log.bias])
        self._fit_factors_again(log)
        return logits

    def _calibrate(self, log):
        """Set the scale of the scores so that the clicks of a list fall as they predict."""
        log = log.sample()
        score = self._outputs(self.network_, log.features)[log.version]
        log_examination = np.log(self._curve.propensity(log))
        weight, *_ = GroupedLogit.of_log(log).best_weights(score, log_examination)
        # Above 0, so that the order of documents remains.
        self._units = 0.0, max(float(weight), 0.01)

    def _fit_factors_again(self, log):
        """One intercept per bias factor, with which scores are logits of click probabilities."""
        log = log.sample()
        self._bias_values = log.bias_values
        self._factor_logits = fit_factors(
            self._score(log.features),
            log.version,
            log.bias,
            log.clicks,
            log.weight,
            link="additive",
            n_factors=len(log.bias_values),
        )

    def _click_probability(self, relevance, logits):
        if self.relevance == "network":
            return expit(relevance + logits)
        return super()._click_probability(relevance, logits)


@dataclass(kw_only=True, eq=False, repr=False)
class RegressionEMRanker(ClickRanker):
    r"""Learns relevance and position bias by EM, from all clicks and missing clicks.

    The position-based click model is fitted with a relevance that is a function of the features.
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
        "published" is EM alone: the network that it trains by the cross-entropy of single clicks
        ranks. By default that network only serves to learn examination, and the ranker is trained
        anew with that, listwise, which has less variance.
        {published}
        An embedding has the binomial likelihood, which is biased if documents have few clicks
        (see :ref:`embedding`); by default it then has the conditional likelihood. The
        expectations of a network are computed for each batch here, too.
    {examination}
        trained afresh, listwise with that examination (see Notes).
    examination_start : {"random", "ones"} or array-like of shape (n_factors,), default="random"
        Examination that the fit of an embedding starts from: uniform draws in [0, 1] by
        ``random_state``, 1 for all bias factors, or one value above 0 and at most 1 for each, in
        the order of ``examination_``. If the log determines relevance, the start does not
        matter; if not, it decides the scale of each component of bias factors.
    {form}
    {correction}

    {network}
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

    {confounding}

    {refits}

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


@dataclass(kw_only=True, eq=False, repr=False)
class TwoTowerRanker(ClickRanker):
    r"""Learns relevance and position bias together, by a network of two towers.

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
    policy_weights : bool, default=False
        Weigh each row of the training of both towers by the inverse of the chance that the logging
        policy showed its document there (Hager et al. 2025), estimated from counts and features.
        It is for networks that cannot learn relevance behind a strong policy; see
        :ref:`policy_weights`. With ``examination="auto"`` they have no effect where documents that
        moved determine examination, because both towers are then not trained together.
    relevance : {"network", "embedding"}, default="network"
        A network of the features, or one number per document. The second needs neither features
        nor epochs: it is the maximum of a likelihood, found by Newton's method.
    variant : {"default", "published"}, default="default"
        "published" trains both towers together by the cross-entropy of all clicks, and the tower
        of relevance ranks. By default, with the product, it only serves to learn examination, and
        the ranker is trained anew with that, listwise, which has less variance.
        {published}
        An embedding has the binomial likelihood, which is biased if documents have few clicks
        (see :ref:`embedding`); by default it then has the conditional likelihood, but for the
        additive link.
    {examination}
        trained afresh, listwise with that examination (see Notes). The additive link knows the
        network only.
    examination_start : {"random", "ones"} or array-like of shape (n_factors,), default="random"
        Examination that the fit of an embedding starts from: normal logits drawn by
        ``random_state``, 1 for all bias factors, or one value above 0 and at most 1 for each, in
        the order of ``examination_``. If the log determines relevance, the start does not
        matter; if not, it decides the scale of each component of bias factors.
    {form}
    {correction}

    {network}
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

    {confounding}

    {refits}

    References
    ----------
    Guo, Yu, Liu, Tang & Zhang (2019). PAL: a position-bias aware learning framework for CTR
    prediction in live recommender systems. RecSys. Zhao et al. (2019). Recommending what video to
    watch next. RecSys. Yan, Qin, Zhuang, Wang, Bendersky & Najork (2022). Revisiting two-tower
    models for unbiased learning to rank. SIGIR. Hager, Zoeter & de Rijke (2025). Unidentified and
    confounded? Understanding two-tower models for unbiased learning to rank. arXiv:2506.20501.

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
    policy_weights: bool = False

    _parameter_constraints = {
        **ClickRanker._parameter_constraints,
        "link": [StrOptions({"product", "additive"})],
        "policy_weights": ["boolean"],
    }

    _examination_learning_rate = FACTOR_LEARNING_RATE

    @property
    def _table_link(self):
        return self.link

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        if self.policy_weights and self.relevance == "embedding":
            raise ValueError(
                "policy_weights=True and relevance='embedding': weights are for towers that are "
                "trained by their features. Use relevance='network', or policy_weights=False."
            )
        if self.policy_weights and self.examination == "table":
            raise ValueError(
                "policy_weights=True and examination='table': weights are for the training of "
                "both towers together. Use examination='network', or policy_weights=False."
            )
        super()._fit(log, task)

    def _fit_network(self, log: ClickLog, task: FitTask | None) -> Floats:
        if not self.policy_weights:
            return super()._fit_network(log, task)
        logits = super()._fit_network(weighted_by_policy(log, self), task)
        # With the counts of the log as it is.
        self.examination_ = examination_table(log, np.exp(logits)[log.bias])
        return logits

    @property
    def _refuses_outcomes(self):
        additive = "adds relevance to examination (link='additive'): no curve holds for both"
        return additive if self.link == "additive" else None

    def _random_examination(self, random, n_factors):
        return expit(random.normal(size=n_factors))  # random logits, as for a network

    def _refits_with(self, log):
        # Comparisons within documents and lists need a product of relevance and examination.
        return self.link == "product" and super()._refits_with(log)
