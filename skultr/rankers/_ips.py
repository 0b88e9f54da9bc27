"""One weighted fit with different weights: clicks as they are, or divided by propensities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._log._factors import lists_per_unit
from .._sklearn import StrOptions
from .._torch._losses import CLICK_ONLY, LOSSES, ListLoss
from .._torch._networks import ListScores
from .._typing import Floats
from ..propensity._weights import average_propensities, document_labels, label_table
from ._learner_ranker import LearnerRanker
from ._learners import fit_learner
from ._propensity_ranker import PropensityRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask

__all__ = ["IPSRanker", "NaiveRanker", "UserAwareIPSRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class _WeightedRanker(LearnerRanker):
    """A learner fitted to (re)weighted clicks; subclasses say which."""

    loss: Literal["softmax", "bce", "mse", "pairwise", "lambda"] = "softmax"

    _parameter_constraints = {
        **LearnerRanker._parameter_constraints,
        "loss": [StrOptions(set(LOSSES))],
    }

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        clicks = self._weighted_clicks(log)
        log, factor = log.tempered(self.traffic_exponent)
        clicks = clicks * factor
        click_only = self.loss in CLICK_ONLY
        mass = clicks if click_only else np.where(log.shown, log.weight, 0.0)
        criterion = ListLoss(LOSSES[self.loss], lists_per_unit(log, mass))
        with self._seeded():
            module = ListScores(self._network(log.shown_features()))
            self._train(module, criterion, log, clicks, click_only=click_only, task=task)

    def _fit_estimator(self, log: ClickLog, seed: int) -> Any:
        clicks = self._weighted_clicks(log)
        log, factor = log.tempered(self.traffic_exponent)
        labels = document_labels(log, clicks * factor)
        return fit_learner(
            self.estimator,
            log.features[labels.doc],
            labels.label,
            labels.weight,
            labels.query,
            random_state=seed,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class NaiveRanker(_WeightedRanker):
    r"""Clicks as labels: the baseline that learns the old ranking.

    Minimises the loss between scores :math:`f(x)` and clicks as they came, so that it estimates
    examination times relevance. It is unbiased only where every position is examined equally.

    Parameters
    ----------
    loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
        Listwise, pointwise (two) or pairwise (two) loss of the network.
    estimator : estimator, default=None
        What learns instead of a network: a LightGBM ranker, or any regressor whose ``fit`` takes
        ``sample_weight``. See :ref:`learners`.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone of ``estimator``; the next four are absent then.
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

    def _weighted_clicks(self, log: ClickLog) -> Floats:
        return log.clicks


@dataclass(kw_only=True, eq=False, repr=False)
class IPSRanker(PropensityRanker, _WeightedRanker):
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
        and asked to ``predict`` a probability a row (``FrozenEstimator`` keeps one that is
        fitted). None takes the role where there is one, else
        ``PowerLawPropensity(eta=1.0)``, with a warning that it is assumed.
    clip : float in (0, 1], default=None
        Propensities below it are raised to it, so that no click weighs more than ``1 / clip``:
        less variance, at the price of bias in favour of the old ranking.
    normalize : bool, default=False
        Divide the weights by their mean over the clicks (self-normalised IPS). It keeps
        pointwise labels at the level of the click rate; listwise losses do not change.
    loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
        Listwise, pointwise (two) or pairwise (two) loss of the network.
    estimator : estimator, default=None
        What learns instead of a network: a LightGBM ranker, or any regressor whose ``fit`` takes
        ``sample_weight``. See :ref:`learners`.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
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
    labels_ : DataFrame
        What the clicks say of each document: ``qid``, ``doc`` (by number where the log has no
        such column), ``clicks``, ``impressions`` and ``label``, the debiased clicks an impression.
    propensity_ : estimator
        The fitted clone, where ``propensity`` is an estimator (or assumed).
    effective_sample_size_ : float
        How many equally weighted clicks would estimate as precisely: (Σ w)² / Σ w².
    largest_weight_ : float
        Weight of the heaviest click, where the mean click weighs 1.
    clipped_share_ : float
        Share of the clicks whose propensity was raised to ``clip``.
    estimator_ : estimator
        The fitted clone of ``estimator``; the next four are absent then.
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
    UserAwareIPSRanker : Averages the propensities of a query's users: less variance.

    Notes
    -----
    With a propensity for every user (an estimator with ``user="user"``, or the role) each click
    is divided by that of the user who clicked: the "straightforward" estimator of Niu et al.
    (2025). With one curve for all it is their "IPS-PBM", which is biased where users who look
    further down ask other queries.

    Warns
    -----
    UnstableWeightsWarning
        If a handful of clicks carry half of the weight.

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

    normalize: bool = False

    _parameter_constraints = {
        **_WeightedRanker._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "normalize": ["boolean"],
    }

    def _weighted_clicks(self, log: ClickLog) -> Floats:
        clicks = self._debiased_clicks(log, self.normalize)
        self.labels_ = label_table(log, clicks)
        return clicks


@dataclass(kw_only=True, eq=False, repr=False)
class UserAwareIPSRanker(IPSRanker):
    r"""Inverse propensity scoring by query, for users who differ in what they ask and examine.

    Where people who ask other queries also examine result pages in another way, one curve for all
    is biased, and dividing each click by its own user's propensity has a large variance. Here a
    click of a document is divided by the document's *mean* propensity among the users who asked
    its query (Niu et al. 2025):

    .. math::
        y_{q,d} = \frac{\mathrm{clicks}(q, d)}{N_q \sum_u P(e = 1 \mid k(d), u)\, P(u \mid q)},

    with :math:`P(u \mid q)` the users' shares of the query's :math:`N_q` sessions. It is unbiased
    wherever the straightforward estimator is, with no larger a variance. Where a query was served
    in several orders, the mean runs over the impressions of the document, at the positions they
    gave it.

    Assumes :math:`P(c = 1 \mid x, k, u) = o(k, u)\, r(x)`: users differ in what they examine, not
    in what they find relevant. With users who are all alike it equals :class:`IPSRanker`.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where the examination probabilities of the *sessions* come from: the role ``propensity``
        of each row; an estimator with curves of its own for each user, such as
        ``RegressionEMPropensity(user="user")``, which is cloned, fitted on the log and asked to
        ``predict``; or one number a position. None takes the role where there is one, else
        ``PowerLawPropensity(eta=1.0)``, with a warning that it is assumed.
    clip : float in (0, 1], default=None
        Mean propensities below it are raised to it: less variance, at the price of bias.
    normalize : bool, default=False
        Divide the weights by their mean over the clicks (self-normalised IPS).
    loss : {"softmax", "bce", "mse", "pairwise", "lambda"}, default="softmax"
        Listwise, pointwise (two) or pairwise (two) loss of the network.
    estimator : estimator, default=None
        What learns instead of a network: a LightGBM ranker, or any regressor whose ``fit`` takes
        ``sample_weight``. See :ref:`learners`.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input; shared by all neural rankers, see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Its training.
    traffic_exponent
        How much more a frequent query counts than a rare one; the paper has 0.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    labels_ : DataFrame
        What the clicks say of each document: ``qid``, ``doc`` (by number where the log has no
        such column), ``clicks``, ``impressions`` and ``label``, the estimate of :math:`P(r = 1)`.
    examination_ : DataFrame
        Bias factor (index ``bias``) to the mean propensity used (``examination``, relative to the
        first factor), with ``impressions`` and ``clicks``.
    propensity_ : estimator
        The fitted clone, where ``propensity`` is an estimator (or assumed).
    effective_sample_size_ : float
        How many equally weighted clicks would estimate as precisely: (Σ w)² / Σ w².
    largest_weight_ : float
        Weight of the heaviest click, where the mean click weighs 1.
    clipped_share_ : float
        Share of the clicks whose propensity was raised to ``clip``.
    estimator_ : estimator
        The fitted clone of ``estimator``; the next four are absent then.
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

    Warns
    -----
    UnstableWeightsWarning
        If a handful of clicks carry half of the weight.

    References
    ----------
    Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased learning
    to rank.

    Examples
    --------
    >>> from skultr import UserAwareIPSRanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.propensity import PowerLawPropensity
    >>> from skultr.simulation import UserPopulation, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, user=UserPopulation(etas=[2.0, 0.5]), random_state=0
    ... )
    >>> propensity = PowerLawPropensity(eta={0: 2.0, 1: 0.5})
    >>> ranker = UserAwareIPSRanker(propensity=propensity, max_epochs=2, random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    def _before_folding(self, log: ClickLog) -> ClickLog:
        # Then lists of different users have equal propensities, and fold together.
        return average_propensities(log)
