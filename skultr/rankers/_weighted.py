"""One weighted fit with different weights: clicks as they are, or divided by propensities."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone

from .._browsing import power_law_examination
from .._constraints import HasMethods, Interval, StrOptions
from .._roles import is_frame, read_features, read_role, role_columns
from .._torch._losses import CLICK_ONLY, LOSSES, ListLoss
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from ..exceptions import AssumptionWarning, warn_user
from ._base import BaseRanker, examination_table, lists_per_unit

__all__ = ["IPSRanker", "NaiveRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class _WeightedRanker(NeuralEstimator, BaseRanker):
    """A network fitted to (re)weighted clicks; subclasses say which."""

    loss: str = "softmax"

    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's protocol
        **NeuralEstimator._parameter_constraints,
        "loss": [StrOptions(set(LOSSES))],
    }

    def _fit(self, log, task):
        clicks = self._weighted_clicks(log)
        log, factor = log.tempered(self.traffic_exponent)
        clicks = clicks * factor
        click_only = self.loss in CLICK_ONLY
        mass = clicks if click_only else np.where(log.shown, log.weight, 0.0)
        criterion = ListLoss(self.loss, lists_per_unit(log, mass))
        with self._seeded():
            module = ListScores(self._network(log.shown_features()))
            self._train(module, criterion, log, clicks, click_only=click_only, task=task)


@dataclass(kw_only=True, eq=False, repr=False)
class NaiveRanker(_WeightedRanker):
    r"""Clicks as labels: the baseline that learns the old ranking.

    Minimises the loss between scores :math:`f(x)` and clicks as they came, so that it estimates
    examination times relevance. It is unbiased only where every position is examined equally.

    Parameters
    ----------
    loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
        Listwise, pointwise (two) or pairwise (two) loss.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, max_grad_norm, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
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
    IPSRanker : Divides clicks by the probability that they could have happened.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import NaiveRanker
    >>> from skultr.simulation import simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=500, random_state=0)
    >>> ranker = NaiveRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    """

    def _weighted_clicks(self, log):
        return log.clicks


@dataclass(kw_only=True, eq=False, repr=False)
class IPSRanker(_WeightedRanker):
    r"""Inverse propensity scoring: a click counts one over its chance of being examined.

    If :math:`P(c = 1 \mid x, k) = o(k)\, r(x)`, then :math:`E[c / o(k)] = r(x)`: every loss
    that is linear in the clicks becomes, in expectation, the loss on relevance itself.

    Assumes that the propensities are right up to one factor, and positive wherever a document
    was shown. A propensity that is too small for a position makes its clicks too heavy, and the
    ranker then prefers what stood there.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where the examination probabilities come from: the role ``propensity`` of each row; one
        number a position, from position 1; or an estimator, which is cloned, fitted on the log
        and asked to ``predict`` a probability a row. None takes the role where there is one,
        else assumes examination 1 / position, with a warning.
    clip : float in (0, 1], default=None
        Propensities below it are raised to it, so that no click weighs more than ``1 / clip``:
        less variance, at the price of bias in favour of the old ranking.
    normalize : bool, default=False
        Divide the weights by their mean over the clicks (self-normalised IPS). It keeps
        pointwise labels at the level of the click rate; listwise losses do not change.
    loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
        Listwise, pointwise (two) or pairwise (two) loss.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, max_grad_norm, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    examination_ : DataFrame
        Bias factor (index ``bias``) to the propensity used (``examination``, relative to the
        first factor), with ``impressions`` and ``clicks``. The mean, weighted by impressions,
        where the propensity varies within a factor.
    propensity_ : estimator
        The fitted clone, where ``propensity`` is an estimator.
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

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.
    Swaminathan & Joachims (2015). The self-normalized estimator for counterfactual learning. NIPS.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import IPSRanker
    >>> from skultr.simulation import EYE_TRACKING, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=500, random_state=0)
    >>> ranker = IPSRanker(propensity=EYE_TRACKING, max_epochs=2, random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    propensity: object = None
    clip: float | None = None
    normalize: bool = False

    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's protocol
        **_WeightedRanker._parameter_constraints,
        "propensity": [
            StrOptions({"column"}),
            "array-like",
            HasMethods(["fit", "predict"]),
            None,
        ],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
        "normalize": ["boolean"],
    }

    def _complete_roles(self, X, y, sample_weight, roles):
        column = read_role(X, "propensity", roles["propensity"])
        source = self.propensity
        if source is None or (isinstance(source, str) and column is not None):
            return roles
        if isinstance(source, str):
            raise ValueError(
                "propensity='column', but X has no column 'propensity' and no propensity was "
                "passed to fit. Add the role, or give the propensities by position."
            )
        if column is not None:
            raise ValueError(
                "The log has the role 'propensity' and the parameter propensity is "
                f"{type(source).__name__}: two answers to one question. Drop the column, or set "
                "propensity='column'."
            )
        if not hasattr(source, "fit"):
            return roles
        log = _one_frame(X, roles)
        self.propensity_ = clone(source).fit(log, y, sample_weight=sample_weight)
        return {**roles, "propensity": self.propensity_.predict(log)}

    def _weighted_clicks(self, log):
        propensity = self._propensities(log)
        self.examination_ = examination_table(log, propensity)
        if self.clip is not None:
            propensity = np.maximum(propensity, self.clip)
        clicks = log.clicks / propensity
        if self.normalize:
            clicks *= log.clicks.sum() / max(clicks.sum(), 1e-12)
        return clicks

    def _propensities(self, log):
        """Examination probability of each row of the log, 1 where not shown."""
        if log.propensity is not None:
            return log.propensity
        deepest = log.position.max()
        if self.propensity is None:
            curve = power_law_examination(deepest, 1.0)
            warn_user(
                "No propensities given: examination is assumed to fall as 1 / position. Pass "
                "propensity=, or add the column 'propensity'.",
                AssumptionWarning,
            )
        else:
            curve = _check_curve(self.propensity, deepest)
        return np.where(log.shown, curve[log.position - 1], 1.0)


def _one_frame(X, roles):
    """X with the roles that came as keywords as columns, for estimators that read columns."""
    given = {role: read_role(X, role, value) for role, value in roles.items() if value is not None}
    if is_frame(X) and not given:
        return X
    if is_frame(X):
        columns = {role: read_role(X, role) for role in role_columns(X)}
        features = read_features(X)
    else:
        columns, features = {}, pd.DataFrame(X.toarray() if sparse.issparse(X) else X)
        features.columns = [f"x{place}" for place in range(features.shape[1])]
    return pd.concat([pd.DataFrame({**columns, **given}), features], axis=1)


def _check_curve(curve, deepest):
    curve = np.asarray(curve, dtype=float)
    if curve.ndim != 1 or len(curve) < deepest:
        raise ValueError(
            f"propensity has shape {curve.shape}; expected one examination probability a position "
            f"and the log shows positions up to {deepest}."
        )
    bad = np.flatnonzero(~((curve > 0) & (curve <= 1)))
    if len(bad):
        raise ValueError(
            f"propensity must lie in (0, 1] at every position, got {curve[bad[0]]:g} at position "
            f"{bad[0] + 1}."
        )
    return curve
