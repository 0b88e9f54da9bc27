"""Trust bias: click probabilities that are an affine function of relevance."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from .._constraints import Interval, StrOptions
from .._torch._affine import AffineLoss, AffineModule, TrustStep, fit_trust
from .._torch._losses import ListLoss, softmax_loss
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from ..exceptions import ClickDataWarning, warn_user
from ._base import (
    BaseRanker,
    examination_table,
    factor_codes,
    lists_per_unit,
    warn_unless_identifiable,
)

__all__ = ["AffineRanker"]

#: Share of the clicks that relevance must move, below which trust explains them all.
_LEAST_EFFECT = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class AffineRanker(NeuralEstimator, BaseRanker):
    r"""Trust bias: users also click what is not relevant, because it stands high.

    Where users trust the upper results, they click irrelevant ones by mistake, and more so the
    higher they stand. The click probability is then an affine function of relevance (Agarwal et
    al. 2019; Vardasbi et al. 2020):

    .. math::
        P(c = 1 \mid x, t) = \alpha_t\, r(x) + \beta_t, \qquad
        \alpha_t, \beta_t \ge 0, \quad \alpha_t + \beta_t \le 1 .

    Dividing clicks by any propensity cannot remove :math:`\beta_t`, the clicks that irrelevant
    documents get. Here a network first learns :math:`r = \sigma(g)` together with the
    coefficients, by the likelihood of all clicks: before each epoch they are set to their best
    values given the relevance so far. Then a second network learns to rank by the labels

    .. math::
        \hat r = r(x) + \frac{c - \alpha_t\, r(x) - \beta_t}{\max(\alpha_t, \tau)}

    with the listwise softmax loss. Without a bound :math:`\tau` that is the published
    :math:`(c - \beta_t) / \alpha_t`, which is unbiased, and negative where a click was missing:
    labels are not clipped, because the loss is linear in them.

    Assumes that the coefficients depend on the bias factor alone, and a log that showed similar
    documents under several factors.

    Parameters
    ----------
    loss : {"softmax", "likelihood"}, default="softmax"
        What the ranking network is trained by: the labels above, or nothing more, so that the
        network of the likelihood ranks. The listwise loss only compares documents of a list;
        under trust bias it ended higher (see Notes).
    clip : float in (0, 1], default=0.3
        :math:`\tau` as a share of the largest :math:`\alpha`: no click weighs more than
        ``1 / clip`` times one where relevance matters most. What the bound takes from a click is
        filled up by the model, so that the mean label of a factor stays (Oosterhuis 2022). None
        is the published label; a factor where relevance hardly matters can then ruin training.
    check_identifiability : bool, default=True
        Warn where the log does not determine relevance.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The networks and their input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, max_grad_norm, net_params
        Their training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    trust_ : DataFrame
        Bias factor (index ``bias``) to ``alpha`` and ``beta``, with ``impressions`` and
        ``clicks``: the coefficients for the relevance in (0, 1) that the network learned.
    examination_ : DataFrame
        Bias factor (index ``bias``) to ``examination``, which is alpha relative to the first
        factor: how much less a difference in relevance shows there. Without trust bias it is the
        examination of the position-based model. With ``impressions`` and ``clicks``. Where
        trust alone explains the first factor, its alpha is near 0 and the ratios are huge: then
        read ``trust_``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the network that ranks.
    click_network_ : torch.nn.Sequential
        The same for the relevance that explains the clicks; with ``loss="likelihood"`` it is
        ``network_``.
    net_ : skorch.NeuralNet
        What trained ``network_``.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves of ``network_``: training and, with ``early_stopping``, validation loss
        by epoch.
    click_history_ : DataFrame
        The same of ``click_network_``, as cross-entropy of the clicks.
    n_iter_ : int
        Epochs run by ``network_``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    ClickDataWarning
        If relevance moves click probabilities by less than 1 %: trust then explains all clicks,
        and scores mean nothing.

    See Also
    --------
    RegressionEMRanker : The same without trust, beta = 0.
    VectorizationRanker : Clicks that are products of vectors.

    Notes
    -----
    Relevance is determined up to an affine map: :math:`r' = (r - a) / b` with :math:`\alpha' = b
    \alpha` and :math:`\beta' = \beta + a \alpha` explains the clicks as well. Rankings and ratios
    of alpha do not depend on it; beta and the level of alpha do.

    nDCG@10 on 2,000 queries of ``make_ltr``, 200,000 sessions under trust bias, ten positions of
    a fixed ranking (means of five logs, none of which chose a default): 0.795, with
    ``loss="likelihood"`` 0.770, with ``clip=None`` 0.794, against 0.780 of dual learning and 0.755
    of regression-EM. Where clicks are no affine function of relevance, as in the click matrix of
    TianGong-ST, the likelihood ended higher (0.703 against 0.684, four logs), and ``clip=None``
    ranked in reverse.

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

    loss: str = "softmax"
    clip: float | None = 0.3
    check_identifiability: bool = True

    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's protocol
        **NeuralEstimator._parameter_constraints,
        "loss": [StrOptions({"softmax", "likelihood"})],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
        "check_identifiability": ["boolean"],
    }

    def predict_click(self, X, *, bias=None, position=None):
        """P(click) of each row, shown under its bias factor.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else ``position``.
        bias, position : array-like of shape (n_rows,), default=None
            The same for arrays.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 where a row has no bias factor, because it was not shown.

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

    def _fit(self, log, task):
        if self.check_identifiability:
            warn_unless_identifiable(log, network=True)
        training, _ = log.tempered(self.traffic_exponent)
        with self._seeded():
            self._fit_clicks(training, task)
            self._remember_trust(log)
            if self.loss == "softmax":
                self._fit_ranking(training, task)

    def _n_subtasks(self):
        return super()._n_subtasks() * (2 if self.loss == "softmax" else 1)

    def _score(self, features):
        scores = super()._score(features)
        return expit(scores) if self.loss == "likelihood" else scores

    def _fit_clicks(self, log, task):
        module = AffineModule(self._network(log.shown_features()), len(log.bias_values))
        loss = AffineLoss(lists_per_unit(log, log.weight))
        # The gradient of the likelihood is that of the expected one (Fisher's identity), so that
        # no E-step is written out.
        steps = [("trust", TrustStep())]
        self._train(module, loss, log, log.clicks, click_only=False, task=task, callbacks=steps)
        self.click_network_, self.click_history_ = self.network_, self.history_

    def _remember_trust(self, log):
        """The coefficients once more, from all queries and without the noise of last batches."""
        rows = log.shown
        relevance = self._relevance(log.features)[log.doc]
        low, high = fit_trust(
            relevance[rows],
            log.bias[rows],
            log.clicks[rows],
            log.weight[rows],
            n_factors=len(log.bias_values),
        )
        alpha = high - low
        self.examination_ = examination_table(log, alpha[log.bias])
        counts = self.examination_[["impressions", "clicks"]]
        self.trust_ = pd.DataFrame({"alpha": alpha, "beta": low}, index=counts.index).join(counts)
        self._warn_if_only_trust(log, relevance)

    def _warn_if_only_trust(self, log, relevance):
        rows = log.shown
        weight, clicks = log.weight[rows], log.clicks[rows].sum()
        alpha = self.trust_["alpha"].to_numpy()[log.bias[rows]]
        moved = weight @ (
            alpha * np.abs(relevance[rows] - np.average(relevance[rows], weights=weight))
        )
        if 0 < clicks < weight.sum() and moved < _LEAST_EFFECT * clicks:
            warn_user(
                f"Relevance moves the click probabilities of AffineRanker by {moved / clicks:.1e} "
                "of their mean: trust in the position explains all clicks, and the scores mean "
                "little. The log may be too small, or show each factor documents of one kind; "
                "try RegressionEMRanker, which knows no trust.",
                ClickDataWarning,
            )

    def _fit_ranking(self, log, task):
        relevance = self._relevance(log.features)[log.doc]
        labels = np.where(log.shown, self._labels(log, relevance), 0.0)
        # Debiased clicks may add up to nothing; what they estimate does not.
        unit = np.where(log.shown, log.weight * relevance, 0.0)
        module = ListScores(self._network(log.shown_features()))
        loss = ListLoss(softmax_loss, lists_per_unit(log, unit))
        self._train(module, loss, log, labels, click_only=False, task=task)

    def _labels(self, log, relevance):
        """Debiased clicks of each row, summed over its impressions."""
        alpha = self.trust_["alpha"].to_numpy()
        least = 0.0 if self.clip is None else self.clip * alpha.max()
        surprise = log.clicks - log.weight * self._click_chance(relevance, log.bias)
        return log.weight * relevance + surprise / np.maximum(alpha, least)[log.bias]

    def _relevance(self, features):
        return expit(self._outputs(self.click_network_, features)[:, 0])

    def _click_chance(self, relevance, codes):
        alpha, beta = self.trust_["alpha"].to_numpy(), self.trust_["beta"].to_numpy()
        return alpha[codes] * relevance + beta[codes]
