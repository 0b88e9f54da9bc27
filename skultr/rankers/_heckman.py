"""Removes selection bias in two steps: a probit of what was shown, then a model of clicks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval
from .._base._typing import Floats, Table
from .._log._cells import loss_scale
from .._log._segments import TINY
from .._torch._lists import ListLoss, softmax_loss
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores, ScaleFeatures
from ..exceptions import warn_user
from ._propensity_ranker import PropensityRanker
from ._tobit import (
    SelectedRows,
    TobitModel,
    find_candidates,
    fit_tobit,
    is_selection,
    mills_ratio,
)


@dataclass(kw_only=True, eq=False, repr=False)
class HeckmanRanker(HasPublishedVariant, NeuralEstimator, PropensityRanker):
    r"""Corrects selection bias in two steps, where only the top documents were shown.

    First, a probit model over all candidates estimates the probability that each was shown,
    :math:`P(s = 1 \mid x) = \Phi(x\omega)` (Heckman 1979). If the errors of selection and of the
    label are correlated, the mean label of a *shown* document is

    .. math::
        E[y \mid x, s = 1] = x\beta + c\,\lambda(x), \qquad
        \lambda(x) = \varphi(x\omega) / \Phi(x\omega),

    with :math:`\lambda` the inverse Mills ratio. Second, least squares of the labels of the
    documents shown on :math:`[x, \lambda]` therefore estimate :math:`\beta` without selection
    bias. With ``hidden_layer_sizes=()`` documents are ranked by :math:`x\beta`, without the term
    of :math:`\lambda`: the published method. By default a network replaces :math:`x\beta`. It has
    the softmax loss of the clicks, with :math:`\lambda c / \bar y` added to the scores of the
    documents shown, :math:`\bar y` their mean label.

    Assumes normal errors and linear models of selection and of :math:`c`. **Identification depends
    on these assumptions.** Unless a variable affects selection but not relevance (an *exclusion
    restriction*), :math:`\lambda` is a function of the same features as relevance, and only its
    curvature separates the two. ``mills_collinearity_`` measures how weak that is. If it is near
    1, a single fit can be far worse than the mean over many logs, above all with a negative
    ``mills_coef_``.

    Parameters
    ----------
    debias : bool, default=False
        Divide clicks by propensities. The published method does not, and keeps position bias;
        :class:`RankAggRanker` combines it with a ranker that removes position bias.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities, as in :class:`IPSRanker`; used with ``debias``.
    clip : float in (0, 1] or None, default=None
        Lower bound on propensities, relative to the largest one: smaller ones are replaced by it.
    alpha : float, default=0.001
        Penalty on squared coefficients, relative to the mean loss per row.
    variant : {"default", "published"}, default="default"
        "published" is linear least squares of the clicks of the documents shown; a session weighs
        the same wherever it is.
        {published}
    traffic_exponent : float in [0, 1], default=0.5
        A query weighs as much as its number of page impressions to this power.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
        ``hidden_layer_sizes=()`` is linear least squares, without training.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping by the likelihood of the clicks of held-out queries.
    device, random_state, verbose

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature, then of each indicator of missing values, in
        the relevance model, if that is linear.
    intercept_ : float
        Only of a linear relevance model.
    mills_coef_ : float
        Coefficient c of the inverse Mills ratio in the linear model, which is the covariance of
        the errors of label and selection; 0 if every candidate was shown. A negative one is not
        used by the network.
    mills_collinearity_ : float
        R² of the inverse Mills ratio of the documents shown, regressed on their features. If it
        is near 1, the log does not determine ``mills_coef_``.
    selection_coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature, then of each indicator of missing values, in
        the probit model.
    selection_intercept_ : float
    examination_ : DataFrame
        Propensity used for each bias factor (index ``bias``); with ``debias``.
    examination_comparison_ : DataFrame
        Curves that were compared, as in :class:`IPSRanker`; with ``debias``.
    propensity_ : estimator
        The fitted clone, if ``propensity`` is an estimator; with ``debias``. Pickles leave out
        curves of users.
    effective_sample_size_, largest_weight_, clipped_share_ : float
        Diagnostics of the weights of clicks, as in :class:`IPSRanker`; with ``debias``.
    network_ : torch.nn.Sequential
        Scaling of the features, then the relevance model, if that is a network.
    net_ : skorch.NeuralNet
    history_, n_iter_, n_features_in_, feature_names_in_

    See Also
    --------
    CLDRanker : The same model in one step, by maximum likelihood.

    Warns
    -----
    AssumptionWarning
        If the clicks contradict the propensities; with ``debias``.
    ClickDataWarning
        If every candidate was shown: there is then no selection to correct.
    ConvergenceWarning
        If the probit model did not converge.

    Notes
    -----
    A document that was shown with no weight (its ``impressions`` or ``sample_weight`` are 0)
    counts as never shown.

    *The network takes c from the linear model*, because a network of the features can learn
    :math:`\lambda`, which is a function of them: a coefficient trained together with it stayed
    near 0.

    The second step uses only the documents shown. Published code uses all rows, with 0 clicks for
    those that were never shown, and so learns selection a second time.

    References
    ----------
    Heckman (1979). Sample selection bias as a specification error. Econometrica.
    Ovaisi, Ahsan, Zhang, Vasilaky & Zheleva (2020). Correcting for selection bias in
    learning-to-rank systems. WWW.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import HeckmanRanker
    >>> from skultr.simulation import simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, n_positions=5, candidates=True, random_state=0
    ... )
    >>> ranker = HeckmanRanker(random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> bool(0 < ranker.mills_collinearity_ < 1)
    True
    """

    debias: bool = False
    alpha: float = 0.001

    _published = {"hidden_layer_sizes": (), "traffic_exponent": 1.0}
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **NeuralEstimator._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "debias": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }
    _learns_from_never_shown = True

    def predict_selection(self, X: Table) -> Floats:
        """P(shown) of each row, by the probit model.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only; role columns are ignored.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        features = self._scaled(self._read_features(X, reset=False))
        return ndtr(features @ self.selection_coef_ + self.selection_intercept_)

    @property
    def _uses_propensities(self):
        return self.debias

    def _is_linear(self):
        return not len(self.hidden_layer_sizes) and self.module is None

    def _fit(self, log, task):
        # Selection is corrected in any case, and position only if asked for.
        clicks = self._debiased_clicks(log) if self.debias else log.clicks
        rows = find_candidates(log, clicks, self.traffic_exponent)
        known = log.features[np.unique(rows.version)]
        self._scaling = ScaleFeatures(known) if self.scale_features else nn.Identity()
        features = self._scaled(log.features[rows.version])
        weight = rows.weight / rows.weight.mean()
        # 1. A probit of what was shown, and its inverse Mills ratios.
        mills = self._fit_selection(rows, features, weight)
        # 2. Least squares of the labels of documents shown, on their features and these ratios.
        shown = rows.shown
        # A ratio that the features explain nearly has no coefficient of its own.
        self.mills_collinearity_ = _explained(features[shown], mills[shown], weight[shown])
        design = np.column_stack([features, mills])[shown]
        coef, intercept = _least_squares(design, rows.label[shown], weight[shown], self.alpha)
        self.mills_coef_ = float(coef[-1])
        if self._is_linear():
            self.coef_ = coef[:-1]
            self.intercept_ = intercept
        else:
            self._fit_network(log, rows, mills, known, task)

    def _fit_selection(self, rows, features, weight):
        """Fit the probit model of what was shown; returns the inverse Mills ratio of each row."""
        if not is_selection(rows):
            # Everything was shown, whatever the features.
            self.selection_coef_ = np.zeros(features.shape[1])
            self.selection_intercept_ = np.inf
            return np.zeros(len(features))
        # Without a correlation of the errors, the part of selection is a probit.
        selected = SelectedRows(features, rows.label, rows.shown, weight)
        fit = fit_tobit(selected, TobitModel(gamma=0.0, scale=1.0, penalty=self.alpha))
        self.selection_coef_ = fit.selection_coef
        self.selection_intercept_ = fit.selection_intercept
        if not fit.converged:
            warn_user(
                "The probit model of what was shown did not converge, so that the inverse "
                "Mills ratio is not that of the maximum-likelihood model. This happens if the "
                "features (nearly) determine which documents were shown: raise alpha.",
                ConvergenceWarning,
            )
        return mills_ratio(features @ self.selection_coef_ + self.selection_intercept_)

    def _fit_network(self, log, rows, mills, known, task):
        batches = self._shown_lists(log, rows, mills)
        scale = loss_scale(batches, batches.clicks)
        with self._seeded():
            self._train(
                ListScores(self._network(known, constant=False)),
                ListLoss(softmax_loss, scale),
                batches,
                batches.clicks,
                click_only=True,
                task=task,
                penalty=self._penalty(log, click_only=True, by_document=True),
            )

    def _shown_lists(self, log, rows, mills):
        """The rows shown as lists, whose weights hold what being shown adds to a score."""
        shown = rows.shown
        mean_label = np.average(rows.label[shown], weights=rows.weight[shown])
        # A negative coefficient is most often an error of a weak identification.
        mills_coef = max(self.mills_coef_, 0.0)
        # Its logarithm is bounded, so that no weight overflows.
        added = np.minimum(mills_coef / max(mean_label, TINY) * mills, 50.0)
        candidates = rows.as_log(log)
        weighted = replace(candidates, weight=candidates.weight * np.exp(added))
        return weighted.take_rows(shown, weighted.list_[shown])

    def _score(self, features: NDArray[np.float32]) -> Floats:
        if "coef_" not in vars(self):
            return super()._score(features)
        return self._scaled(features) @ self.coef_ + self.intercept_

    def _scaled(self, features):
        with torch.inference_mode():
            return self._scaling(torch.tensor(features, dtype=torch.float64)).numpy()


def _least_squares(design, label, weight, alpha):
    """Ridge coefficients and intercept; the last column and the intercept are not penalised."""
    total = weight.sum()
    # Centred, so that the intercept needs no column and no penalty.
    center = weight @ design / total
    mean = weight @ label / total
    design = design - center
    label = label - mean
    # A penalised Mills ratio would leave a part of the selection bias.
    penalty = np.full(design.shape[1], alpha)
    penalty[-1] = 0.0
    gram = design.T @ (design * weight[:, None]) / total + np.diag(penalty)
    moment = design.T @ (weight * label) / total
    # The solution of least norm, if columns (or the Mills ratio) are constant.
    coef, *_ = np.linalg.lstsq(gram, moment, rcond=None)
    return coef, float(mean - center @ coef)


def _explained(design, values, weight):
    """R² of a weighted regression of the values on the design."""
    # R^2 = 1 - residual variance / variance, which needs a variance.
    mean = weight @ values / weight.sum()
    variance = weight @ (values - mean) ** 2
    if variance <= 1e-12 * weight.sum():
        return 1.0  # a constant, up to rounding errors, is explained by the intercept
    regression = LinearRegression().fit(design, values, weight)
    return float(regression.score(design, values, weight))
