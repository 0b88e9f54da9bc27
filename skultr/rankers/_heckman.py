"""Removes selection bias in two steps: a probit of what was shown, then least squares."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._sklearn import Interval
from .._torch._networks import ScaleFeatures
from .._typing import Floats, Table
from ..exceptions import ClickDataWarning, warn_user
from ._candidates import find_candidates
from ._propensity_ranker import PropensityRanker
from ._tobit import SelectedRows, fit_probit, mills_ratio

__all__ = ["HeckmanRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class HeckmanRanker(PropensityRanker):
    r"""Heckman's two-step correction, for logs that show only the top documents of a query.

    A probit model over all candidates estimates the probability that each was shown,
    :math:`P(s = 1 \mid x) = \Phi(x\omega)`. If the errors of selection and of the label are
    correlated, the mean label of a *shown* document is

    .. math::
        E[y \mid x, s = 1] = x\beta + c\,\lambda(x), \qquad
        \lambda(x) = \varphi(x\omega) / \Phi(x\omega),

    with :math:`\lambda` the inverse Mills ratio. Least squares of the labels of the documents
    shown on :math:`[x, \lambda]` therefore estimates :math:`\beta` without selection bias.
    Documents are ranked by :math:`x\beta`, without the term of :math:`\lambda`.

    Assumes normal errors and linear models. **Identification depends on these assumptions**:
    without a variable that affects selection but not relevance (an *exclusion restriction*),
    :math:`\lambda` is a function of the same features as relevance, and only its curvature
    separates the two. ``mills_collinearity_`` measures how weak that is. If it is near 1, a single
    fit can be far worse than the mean over many logs, above all with a negative ``mills_coef_``.

    Parameters
    ----------
    debias : bool, default=False
        Divide clicks by propensities. The published method does not, and keeps position bias;
        :class:`RankAggRanker` combines it with a ranker that removes position bias.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities, as in :class:`IPSRanker`; used
        with ``debias``.
    clip : float in (0, 1], default=None
        Lower bound: smaller propensities are replaced by it.
    alpha : float, default=0.001
        Penalty on squared coefficients, relative to the mean loss per row.
    traffic_exponent : float in [0, 1], default=0.5
        A query weighs as much as its number of page impressions to this power.
    scale_features : bool, default=True
        Scale the features by signed logarithm and standardisation, see
        :ref:`network_parameters`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature in the relevance model.
    intercept_ : float
    mills_coef_ : float
        Coefficient c of the inverse Mills ratio, which is the covariance of the errors of label
        and selection; 0 if every candidate was shown.
    mills_collinearity_ : float
        R² of the inverse Mills ratio of the documents shown, regressed on their features. If it
        is near 1, the log does not determine ``mills_coef_``.
    selection_coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature in the probit model.
    selection_intercept_ : float
    examination_ : DataFrame
        Propensity used for each bias factor (index ``bias``); with ``debias``.
    propensity_ : estimator
        The fitted clone, if ``propensity`` is an estimator (or the assumed curve); with
        ``debias``.
    effective_sample_size_, largest_weight_, clipped_share_ : float
        Diagnostics of the weights of clicks, as in :class:`IPSRanker`; with ``debias``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    See Also
    --------
    CLDRanker : The same model in one step, by maximum likelihood.

    Warns
    -----
    ClickDataWarning
        If every candidate was shown: the fit is then ordinary least squares.
    ConvergenceWarning
        If the probit model did not converge.

    Notes
    -----
    A document that was shown with no weight (its ``impressions`` or ``sample_weight`` are 0)
    counts as never shown.

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
    >>> ranker = HeckmanRanker().fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> bool(0 < ranker.mills_collinearity_ < 1)
    True
    """

    debias: bool = False
    alpha: float = 0.001
    traffic_exponent: float = 0.5
    scale_features: bool = True

    _parameter_constraints = {
        **PropensityRanker._parameter_constraints,
        "debias": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "traffic_exponent": [Interval(Real, 0, 1, closed="both")],
        "scale_features": ["boolean"],
    }
    _learns_from_never_shown = True
    #: The fit is not random; a propensity estimator has a seed of its own.
    random_state = None

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

    def _fit_propensity(self, X, y, sample_weight, roles):
        return super()._fit_propensity(X, y, sample_weight, roles) if self.debias else roles

    def _fit(self, log, task):
        clicks = self._debiased_clicks(log) if self.debias else log.clicks
        rows = find_candidates(log, clicks, self.traffic_exponent)
        known = torch.from_numpy(log.features[np.unique(rows.doc)])
        self._scaling = ScaleFeatures(known) if self.scale_features else nn.Identity()
        features = self._scaled(log.features[rows.doc])
        weight = rows.weight / rows.weight.mean()
        shown = rows.shown
        mills = np.zeros(len(shown))
        if shown.all():
            warn_user(
                "Every candidate was shown: there is no selection to correct. If the log omits "
                "the candidates that were not shown, add them to each query as rows without a "
                "position.",
                ClickDataWarning,
            )
            self.selection_coef_ = np.zeros(features.shape[1])
            self.selection_intercept_ = np.inf
        else:
            selection = SelectedRows(features, rows.label, shown, weight)
            self._fit_selection(selection)
            mills = mills_ratio(features @ self.selection_coef_ + self.selection_intercept_)
        design, weight = features[shown], weight[shown]
        mills, label = mills[shown], rows.label[shown]
        self.mills_collinearity_ = _explained(design, mills, weight)
        design = np.column_stack([design, mills])
        coef, self.intercept_ = _least_squares(design, label, weight, self.alpha)
        self.coef_, self.mills_coef_ = coef[:-1], float(coef[-1])

    def _fit_selection(self, rows):
        fit = fit_probit(rows, self.alpha)
        self.selection_coef_, self.selection_intercept_ = fit.coef, fit.intercept
        if not fit.converged:
            warn_user(
                "The probit model of what was shown did not converge, so that the inverse Mills "
                "ratio is not that of the maximum-likelihood model. This happens if the features "
                "(nearly) determine which documents were shown: raise alpha.",
                ConvergenceWarning,
            )

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return self._scaled(features) @ self.coef_ + self.intercept_

    def _scaled(self, features):
        with torch.inference_mode():
            return self._scaling(torch.tensor(features, dtype=torch.float64)).numpy()


def _least_squares(design, label, weight, alpha):
    """Ridge coefficients and intercept; the last column and the intercept are not penalised."""
    total = weight.sum()
    center, mean = weight @ design / total, weight @ label / total
    design, label = design - center, label - mean
    penalty = np.full(design.shape[1], alpha)
    penalty[-1] = 0.0
    gram = design.T @ (design * weight[:, None]) / total + np.diag(penalty)
    # The solution of least norm, if columns (or the Mills ratio) are constant.
    coef = np.linalg.lstsq(gram, design.T @ (weight * label) / total, rcond=None)[0]
    return coef, float(mean - center @ coef)


def _explained(design, values, weight):
    """R² of a weighted regression of the values on the design."""
    mean = weight @ values / weight.sum()
    variance = weight @ (values - mean) ** 2
    if variance <= 1e-12 * weight.sum():
        return 1.0
    design = np.column_stack([design, np.ones(len(design))]) * np.sqrt(weight)[:, None]
    target = values * np.sqrt(weight)
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - np.sum((target - fitted) ** 2) / variance)
