"""Rankers fitted to weighted clicks: as they are, or divided by propensities."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from sklearn.utils import check_random_state

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval, StrOptions
from .._base._typing import Floats
from .._log._estimator import NotPickled
from .._torch._joint import ListTarget, fit_listwise
from .._torch._lists import LOSSES
from .._torch._shared_parameters import PUBLISHED_NETWORK
from ..propensity._source import (
    KindOfClicks,
    bounded_propensity,
    debias_clicks,
    examples_of_kinds,
    label_table,
    reads_pages,
    warn_about_weights,
)
from ._correction import FORMS, Correction, Form, mixed_clicks, modelled_relevance
from ._direct_method import cross_fitted_relevance, with_examinations
from ._learner_ranker import LearnerRanker
from ._learners import booster_columns, compares_documents, fit_learner, scores_of_learner
from ._propensity_ranker import PropensityRanker, warn_about_one_row_pages

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Losses that compare the rows of a page.
_PAIRWISE = ("pairwise", "lambda")


@dataclass(kw_only=True, eq=False, repr=False)
class _WeightedRanker(LearnerRanker):
    """A learner fitted to weighted clicks, which subclasses compute in ``_weighted_clicks``."""

    loss: Literal["softmax", "bce", "mse", "pairwise", "lambda"] = "softmax"

    _parameter_constraints = {
        **LearnerRanker._parameter_constraints,
        "loss": [StrOptions(set(LOSSES))],
    }

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        if self.loss in _PAIRWISE:
            warn_about_one_row_pages(log, f"loss={self.loss!r}", "loss='softmax'")
        # Labels of the rows first, then those of the log that stops the training.
        clicks = self._weighted_clicks(log)
        validation = None
        if self._validation is not None:
            validation = ListTarget(self._validation_clicks(self._validation), loss=self.loss)
        target = ListTarget(clicks, loss=self.loss, validation=validation)
        with self._seeded():
            fit_listwise(self, log, task, target)

    def _validation_clicks(self, log: ClickLog) -> Floats:
        """Weighted clicks of the log for early stopping."""
        return log.clicks

    def _fit_estimator(self, log: ClickLog, seed: int) -> Any:
        return self._fit_to_kinds(log, self._kinds_of_clicks(log), seed)

    def _fit_to_kinds(self, log: ClickLog, kinds: list[KindOfClicks], seed: int) -> Any:
        """The estimator, fitted to kinds of clicks of the log."""
        # A regressor compares nothing: a document then has one label in its query.
        groups = log.compared_groups() if compares_documents(self.estimator) else log.query
        version, labels, _ = examples_of_kinds(log, kinds, groups, self.traffic_exponent)
        return fit_learner(
            self.estimator,
            log.features[version],
            labels.label,
            labels.weight,
            labels.query,
            random_state=seed,
            columns=booster_columns(self),
        )

    def _kinds_of_clicks(self, log: ClickLog) -> list[KindOfClicks]:
        """Clicks whose labels an estimator learns from, each kind with its share of the loss."""
        return [KindOfClicks(1.0, self._weighted_clicks(log), None)]


@dataclass(kw_only=True, eq=False, repr=False)
class NaiveRanker(_WeightedRanker):
    r"""Baseline ranker with clicks as labels, which also learns the position bias of the log.

    Minimises the loss between scores :math:`f(x)` and uncorrected clicks, so that it estimates
    examination times relevance. It is unbiased only if all positions are examined equally often.

    Parameters
    ----------
    {learner}

    {network}
    device, random_state, verbose

    Attributes
    ----------
    estimator_, network_, net_, history_, n_iter_, n_features_in_, feature_names_in_

    See Also
    --------
    IPSRanker : Divides clicks by the probability that the row was examined.

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

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        super()._fit_network(self._scaled_in_place(log), task)

    def _weighted_clicks(self, log: ClickLog) -> Floats:
        return log.clicks


@dataclass(kw_only=True, eq=False, repr=False)
class IPSRanker(HasPublishedVariant, PropensityRanker, _WeightedRanker):
    r"""Corrects position bias with the probability that users look at a position.

    This is inverse propensity scoring (Joachims et al. 2017). A click on a position that few users
    examine counts for more. If :math:`P(c = 1 \mid x, k) = o(k)\, r(x)`, then
    :math:`E[c / o(k)] = r(x)`: a loss that is linear in the clicks has the expectation of the same
    loss with relevance in place of clicks.

    Assumes that the propensities are correct up to a common scale, and positive wherever a
    document was shown. If the propensity of a position is too small, its clicks weigh too much,
    and the ranker prefers the documents that were shown there.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities: the role ``propensity`` of each row; one number
        per position, from position 1; or an estimator, which is cloned, fitted to the log and
        asked to ``predict`` one probability per row (``FrozenEstimator`` keeps a fitted one as it
        is).
        {source}
    {form}
    {correction}
    normalize : bool, default=False
        Divide the weights by their mean over the clicks (self-normalised IPS). Pointwise labels
        then have the scale of click rates; listwise losses do not change.
    {learner}
    variant : {"default", "published"}, default="default"
        "published" divides by propensities without a bound (Joachims et al. 2017), so that small
        propensities have a large variance. The network is that of later comparisons; their own
        learner was a linear SVM of pairs.
        {published}

    {network}
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        Propensity used for each bias factor (index ``bias``): ``examination``, relative to that
        of the first factor, with ``impressions`` and ``clicks``; where it was learned, also the
        ``standard_error`` of its logarithm. If the propensity varies within a factor, it is the
        mean over impressions.
    labels_ : DataFrame
        Label of each document: ``qid``, ``doc`` (a running number if the log has no such
        column), ``clicks``, ``impressions`` and ``label``, the debiased clicks per impression.
        Pickles leave it out.
    {corrections}
    effective_sample_size_ : float
        Number of equally weighted clicks with the same precision as those of ``labels_``: (Σ w)² /
        Σ w² with the weights 1 over (clipped) propensity.
    largest_weight_, clipped_share_, estimator_, network_, net_, history_, n_iter_
    n_features_in_, feature_names_in_

    See Also
    --------
    UserAwareIPSRanker : Averages the propensities of a query's users, which has less variance.
    EnsembleRanker : Decides by held-out clicks how much a correction weighs; this ranker always
        corrects.

    Notes
    -----
    With propensities per user (an estimator with ``user="user"``, or the role), each click is
    divided by the propensity of the user who clicked: the "straightforward" estimator of Niu et
    al. (2025). With one curve for all users it is their "IPS-PBM", which is biased if users who
    examine more positions ask other queries.

    The offset form maximises :math:`\sum_i c_i \log \mathrm{softmax}(s + \log o)_i`, the
    likelihood of where the clicks of a list fell. Expected clicks :math:`o_i r_i` have their
    optimum at :math:`e^s \propto r`, which is also that of the clicks over propensities. That
    needs propensities which do not depend on the clicks of the list. Those of click models such as
    :class:`~skultr.click_models.DCMModel` do: "auto" divides by them, and "offset" is refused. The
    mean over sessions, by which :class:`UserAwareIPSRanker` corrects, is an offset again, and has
    less variance.

    If all propensities are equal, the ranker is :class:`NaiveRanker`.

    Where most clicks of a query fell on pages of one row, as in feeds and bandit logs, its rows
    are compared across pages, with the logarithm of their impressions as a further offset.

    Doubly robust labels are :math:`c / b + (1 - o / b)\, \hat r` per impression, with b the larger
    of ``clip_`` and the propensity o, and relevance :math:`\hat r` by a model that was fitted to
    the clicks of other queries. They need the right propensities, as all forms do, and any
    ``loss`` takes them. With an ``estimator``, which must be a regressor, a clone is that model.

    Warns
    -----
    UnstableWeightsWarning
        If clicks are divided and a few of them carry half of the weight, or less than 70 % of them
        and fewer than five per query with clicks are left as effective sample.
    AssumptionWarning
        If the clicks contradict the propensities. Where they are learned, if those of documents
        that moved differ from those of dual learning, as in :class:`DLARanker`.
    NotIdentifiableWarning
        If the curve has to be learned, and no clicked document connects some bias factors.
    ClickDataWarning
        With ``loss="pairwise"`` or ``"lambda"``, if most clicks fell on pages of one row.

    References
    ----------
    Oosterhuis (2023). Doubly robust estimation for correcting position bias in click feedback for
    unbiased learning to rank. ACM Transactions on Information Systems 41(3).
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

    correction: Form = "auto"
    clip: float | None = 0.1
    naive_weight: float = 0.0
    normalize: bool = False

    labels_ = NotPickled("a label for each document of the log")
    _published = {**PUBLISHED_NETWORK, "correction": "divide", "clip": None}

    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **_WeightedRanker._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "correction": [StrOptions(FORMS)],
        "naive_weight": [Interval(Real, 0, 1, closed="both")],
        "normalize": ["boolean"],
    }

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        if self.loss != "softmax":
            super()._fit_network(log, task)
            return
        # With a softmax the correction may be an offset, and the target holds it.
        correction = self._correction(log)
        relevance = self._modelled_relevance(log)
        self._labelled(log, relevance)
        with self._seeded():
            target = correction.target(log, self._validation, relevance)
            fit_listwise(self, log, task, target)

    def _weighted_clicks(self, log: ClickLog) -> Floats:
        return mixed_clicks(log.clicks, self._corrected_clicks(log), self.naive_weight)

    def _kinds_of_clicks(self, log: ClickLog) -> list[KindOfClicks]:
        labelled = self._corrected_clicks(log)
        # Both kinds are examples, with their shares of the loss as weights.
        kinds = [
            KindOfClicks(1 - self.naive_weight, labelled, self._divisors),
            KindOfClicks(self.naive_weight, log.clicks, None),
        ]
        return [kind for kind in kinds if kind.share]

    def _corrected_clicks(self, log: ClickLog) -> Floats:
        """Debiased clicks of each row; sets the form of the correction and its diagnostics."""
        self._correction(log)
        return self._labelled(log, self._modelled_relevance(log))

    def _validation_clicks(self, log: ClickLog) -> Floats:
        debiased = debias_clicks(log, clip=self.clip_, normalize=self.normalize)
        return mixed_clicks(log.clicks, debiased.clicks, self.naive_weight)

    def _correction(self, log: ClickLog) -> Correction:
        """What the clicks of a log are corrected by; sets the form that was used."""
        correction = Correction.of(
            log, form=self._form(), least=self.clip_, naive_weight=self.naive_weight
        )
        self.correction_ = correction.form
        return correction

    def _form(self) -> Form:
        """How clicks are corrected; "auto" if their number decides."""
        if self.correction == "doubly_robust":
            self._require_regressor()
            return "doubly_robust"
        # An offset is a part of the softmax.
        if self.estimator is None and self.loss == "softmax":
            if self._earlier is not None:
                # A further log does not change the form that the first one had.
                return self.correction_
            if reads_pages(self.propensity) and not self._averages:
                # P(examined | clicks above) says what the session clicked: that is no offset.
                self._refuse_offset_of_clicks()
                return "divide"
            return self.correction
        if self.correction == "offset":
            raise ValueError(
                "correction='offset' is a loss of the network with loss='softmax', got "
                f"loss={self.loss!r} and estimator={self.estimator!r}. Use "
                "correction='divide'; or, for trees, LambdaMARTRanker."
            )
        return "divide"

    def _refuse_offset_of_clicks(self):
        """Raise if an offset was asked for, where propensities depend on the clicks of a page."""
        if self.correction == "offset":
            raise ValueError(
                "correction='offset' needs propensities that do not depend on the clicks of a "
                f"page, got propensity={self.propensity!r}. Use correction='divide'; or "
                "UserAwareIPSRanker, which takes their mean over the sessions of a query."
            )

    def _require_regressor(self):
        """Raise if an estimator, which is to model relevance, predicts an order alone."""
        if self.estimator is not None and compares_documents(self.estimator):
            raise ValueError(
                "correction='doubly_robust' needs a model of relevance on the scale of clicks, "
                f"got estimator={self.estimator!r}, whose predictions only order the documents of "
                "a query. Use a regressor, or LambdaMARTRanker(correction='doubly_robust')."
            )

    def _modelled_relevance(self, log: ClickLog) -> Floats | None:
        """Relevance of the rows by a model of other queries, if the correction needs it."""
        # Without a bound the model cancels.
        if self.correction_ != "doubly_robust" or self.clip_ is None:
            return None
        if self.estimator is None:
            return modelled_relevance(self, log)
        return cross_fitted_relevance(log, self._regressed_relevance, self.random_state)

    def _regressed_relevance(self, log: ClickLog) -> Floats:
        """Relevance of each version by the estimator: a regression of clicks per examination."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        clicks = KindOfClicks(1.0, log.clicks, None)
        fitted = self._fit_to_kinds(with_examinations(log), [clicks], seed)
        return scores_of_learner(fitted, log.features)

    def _labelled(self, log: ClickLog, relevance: Floats | None) -> Floats:
        """The debiased clicks of each row; sets what describes them."""
        divisor = bounded_propensity(log, self.clip_)
        # With an offset no click has a large weight.
        if self.correction_ != "offset":
            warn_about_weights(log, divisor)
        debiased = debias_clicks(
            log, divisor=divisor, normalize=self.normalize, relevance=relevance
        )
        clicks = self._describe(log, debiased)
        self.labels_ = label_table(log, clicks)
        return clicks


@dataclass(kw_only=True, eq=False, repr=False)
class UserAwareIPSRanker(IPSRanker):
    r"""Corrects position bias where users differ in what they ask and in how far they look.

    One examination curve for all users is then biased. Dividing each click by the propensity of
    its own user is unbiased, but has a large variance. This ranker divides the clicks of a
    document by its *mean* propensity over the users who asked its query (Niu et al. 2025):

    .. math::
        y_{q,d} = \frac{\mathrm{clicks}(q, d)}{N_q \sum_u P(e = 1 \mid k(d), u)\, P(u \mid q)},

    with :math:`P(u \mid q)` the users' shares of the :math:`N_q` sessions of the query. It is
    unbiased wherever that mean is positive, even if some users never examine the position (no
    click can be divided by their propensity of 0). Its variance is not larger. If a query was
    served in several orders, the mean is taken over the impressions of the document, with the
    position of each.

    Assumes :math:`P(c = 1 \mid x, k, u) = o(k, u)\, r(x)`: users differ in what they examine, not
    in what they find relevant. If all users are alike, it equals :class:`IPSRanker`.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or dict, default=None
        Source of the examination probabilities of the *sessions*: the role ``propensity`` of each
        row; an estimator with one curve per user, such as ``RegressionEMPropensity(user="user")``,
        which is cloned, fitted to the log and asked to ``predict``; one number per position; a
        click model; or a dict with an estimator or click model for each user (see Notes).
        {source}
        It is one curve for all users.
    {form}
    {correction}
        Both concern mean propensities.
    normalize : bool, default=False
        Divide the weights by their mean over the clicks (self-normalised IPS).
    {learner}
    variant : {"default", "published"}, default="default"
        "published" divides by mean propensities as they are, and all queries weigh the same,
        because a query has one label per document (eq. 13).
        {published}

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
    device, random_state, verbose

    Attributes
    ----------
    labels_ : DataFrame
        Label of each document: ``qid``, ``doc`` (a running number if the log has no such
        column), ``clicks``, ``impressions`` and ``label``, the estimate of :math:`P(r = 1)`.
        Pickles leave it out.
    examination_ : DataFrame
        Mean propensity used for each bias factor (index ``bias``): ``examination``, relative to
        that of the first factor, with ``impressions`` and ``clicks``; where it was learned, also
        the ``standard_error`` of its logarithm.
    {corrections}
    effective_sample_size_ : float
        Number of equally weighted clicks with the same precision as those of ``labels_``: (Σ w)² /
        Σ w² with the weights 1 over (clipped) propensity.
    largest_weight_, clipped_share_, estimator_, network_, net_, history_, n_iter_
    n_features_in_, feature_names_in_

    See Also
    --------
    IPSRanker : Divides each click by the propensity of its own user.
    EnsembleRanker : Decides by held-out clicks how much a correction weighs; this ranker always
        corrects.

    Warns
    -----
    UnstableWeightsWarning
        If clicks are divided and a few of them carry half of the weight, or less than 70 % of them
        and fewer than five per query with clicks are left as effective sample.
    AssumptionWarning
        If the clicks contradict the propensities. Where they are learned, if those of documents
        that moved differ from those of dual learning, as in :class:`DLARanker`.
    NotIdentifiableWarning
        If the curve has to be learned, and no clicked document connects some bias factors.
    ClickDataWarning
        With ``loss="pairwise"`` or ``"lambda"``, if most clicks fell on pages of one row.

    Raises
    ------
    ValueError
        If the mean propensity of a document that was shown is 0, or if a row with a click has
        propensity 0.

    Notes
    -----
    The mean propensity of a document is the right offset if the sessions of a query show the same
    documents, in any order.

    *Users of other click models* (section 3.1 of the paper). With
    :class:`~skultr.click_models.UBMModel` or :class:`~skultr.click_models.DCMModel` examination
    depends on the clicks above, and the sum over users is one over the sessions s of the query:

    .. math::
        y_{q,d} = \mathrm{clicks}(q, d) \Big/
            \sum_s P\big(e = 1 \mid k_s(d), c_{s, <k}, u_s\big) .

    It is unbiased as well, because :math:`P(c = 1 \mid c_{<k}, u) = P(e = 1 \mid k, c_{<k}, u)\,
    r(x)`. A dict such as ``{"anna": UBMModel(), "ben": DCMModel()}``, or
    ``dict.fromkeys(users, DCMModel())``, fits the model of each user to the user's sessions alone,
    relative to the first rank, which all are taken to examine alike; group users of few sessions
    with :class:`~skultr.propensity.UserClusters` first. Where a log holds rates in place of
    clicks, the probabilities are not conditional on clicks.

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

    One click model per user:

    >>> from skultr.click_models import DCMModel
    >>> propensity = dict.fromkeys([0, 1], DCMModel())
    >>> ranker = UserAwareIPSRanker(propensity=propensity, max_epochs=2, random_state=0)
    >>> sorted(ranker.fit(log, clicks).propensity_)
    [0, 1]
    """

    _averages = True
    _published = {**IPSRanker._published, "traffic_exponent": 0.0}
