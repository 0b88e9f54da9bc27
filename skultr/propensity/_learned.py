"""Examination from models of clicks that learn relevance beside it, as rankers do."""

from __future__ import annotations

from dataclasses import dataclass, fields

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.utils import check_random_state

from .._base._shared_text import with_shared_text
from .._log._aggregate import count_lists_of
from .._log._clicklog import make_click_log
from .._log._counted import CellCount
from .._log._faults import count_of
from .._log._offsets import find_offsets, take_off
from .._log._roles import feature_names, is_frame, read_values, without_columns
from .._log._segments import TINY, encode, rank_in_segment
from .._models._tabular import LearnsRelevance
from .._torch._joint import fit_dual, fit_policy, fit_towers
from .._torch._net import NeuralEstimator
from ..exceptions import NotIdentifiableError, NotIdentifiableWarning, warn_user
from ._curves import CurvePropensity, Estimate
from ._thresholds import FEW_CLICKS_OF_A_USER

#: Passages of the docstrings of both classes.
_TEXTS = {
    "parameters": """\
user_shrinkage : "auto" or float, default="auto"
    How strongly curves of users are pulled toward the common curve. ``"auto"`` pulls noisy
    curves more than precise ones (empirical Bayes). A number is the weight of the common
    curve, in clicks; with 0 nothing is pulled.
relevance : {"network", "embedding"}, default="network"
    A network of the features, or one number per document. The network needs no document
    that was shown at two positions, but assumes that relevance is a function of the
    features. The embedding assumes nothing beyond the log, takes seconds, and has standard
    errors.
variant : {"default", "published"}, default="default"
    Objective that an embedding maximises; see :ref:`embedding`.
n_bootstrap : int, default=0
    Number of resamples of the queries for standard errors. Each takes a whole fit. With 0,
    standard errors follow from the information matrix (embedding) or are NaN (network).""",
    "attributes": """\
examination_ : DataFrame
    One row per bias factor (index ``bias``; with ``user``: ``user`` and ``bias``):
    ``examination`` relative to the first factor (of the mean user); ``standard_error`` of
    *log* examination; ``lower`` and ``upper``, the ends of the 95 % interval;
    ``impressions``, ``clicks`` and ``component``, equal where documents connect factors.
average_examination_ : DataFrame
    The same for all users together, which unknown users get; only with ``user``.
share_of_queries_ : float
    Share of the queries that were read; only if queries of a log in an engine were drawn.
n_features_in_ : int""",
}


@dataclass(kw_only=True, eq=False, repr=False)
class _LearnedPropensity(LearnsRelevance, NeuralEstimator, CurvePropensity):
    """Examination from a model of clicks, with relevance a network or one number per document.

    Subclasses name the published loss of the table, and fit a network in ``_network_estimate``.
    """

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **CurvePropensity._parameter_constraints,
        **LearnsRelevance._parameter_constraints,
    }

    def _count(self, X, click, names):
        if self.relevance == "embedding" and self.user is None:
            return super()._count(X, click, names)
        features = self._features_among(names)
        return CellCount.of(X, click, self._factor_columns(names), features=features).cells()

    def _features_among(self, names):
        """Columns of a log in an engine that the network reads; none without a network."""
        if self.relevance == "embedding":
            return []
        return feature_names(names, {*self.columns_read(), self._click_column})

    @property
    def _reads_rows(self):
        return self.relevance == "network"

    def _fit(self, X, y, sample_weight, roles):
        if self.relevance == "embedding":
            super()._fit(X, y, sample_weight, roles)
            return
        # With a network the rows are read, for features.
        cells, row_factor = self._read_cells(X, y, sample_weight, roles)
        estimate = self._network_estimate(X, y, sample_weight, roles, cells, row_factor)
        self._tabulate(cells, estimate)
        # Documents that several users saw connect the users, but not the bias factors.
        table = self.examination_ if self.user is None else self.average_examination_
        n_components = table["component"].nunique()
        if n_components > 1:
            warn_user(
                f"The {len(table)} bias factors fall into {n_components} components that no "
                "document connects. Only the network compares factors of different components: it "
                "gives documents with similar features similar relevance, which the log cannot "
                "confirm. Serve some documents at several positions, as IdentifiabilityRepair "
                "plans it.",
                NotIdentifiableWarning,
            )

    def _fit_cells(self, cells):
        component = cells.of_all_users().component_of_factors
        n_factors = len(component)
        if len(np.unique(component)) == n_factors > 1:
            raise NotIdentifiableError(
                f"No document was shown under two of the {n_factors} bias factors: with one "
                "number per document as relevance, nothing compares the factors. Serve some "
                "documents at several positions, as IdentifiabilityRepair(strategy='intervene') "
                "plans it, or use relevance='network', which compares them by the features."
            )
        self._tabulate(cells, self._estimate)

    def _estimate(self, cells):
        # As for tables of clicks: a factor without any is half a click.
        cells = cells.with_half_clicks()
        fit = self._fit_table(cells)
        # Of those factors alone that documents connect to the first one, of any user.
        bias = cells.factors.bias
        component = cells.component_of_factors
        linked = np.isin(component, component[bias == bias.min()])
        log_examination = np.where(linked, fit.factor_logits, np.nan)
        error = fit.standard_error(0) if cells.factors.user is None else fit.own_error()
        return Estimate(log_examination, error)

    def _on_common_scale(self, own, cells, common):
        factors = cells.factors
        component = cells.component_of_factors
        if self.relevance == "network" or not component.any():
            return own
        # Nothing compares users who share no document: each component gets the mean scale of the
        # common curve.
        _, bias = np.unique(factors.bias, return_inverse=True)
        gap = own.log_examination - common.log_examination[bias]
        is_known = np.isfinite(gap)
        # A component without clicks has a scale all the same.
        weight = np.where(is_known, cells.by_factor(cells.clicks) + 1e-9, 0.0)
        scale = np.bincount(component, weight * np.where(is_known, gap, 0.0))
        scale /= np.maximum(np.bincount(component, weight), TINY)
        if len(np.unique(component[is_known])) > 1:
            largest = np.bincount(component).argmax()
            apart = np.unique(factors.user[component != largest].astype(str))
            warn_user(
                f"No document connects some bias factors of {count_of(len(apart), 'user')}, such "
                f"as {', '.join(apart[:3])}, to those of the other users. The log determines how "
                "their examination falls with the position, but not its scale. The scale is that "
                "of the common curve. Group users with UserClusters, or use relevance='network'.",
                NotIdentifiableWarning,
            )
        return own._replace(log_examination=own.log_examination - scale[component])

    def _learner(self):
        """What trains and holds the network of one fit, with the settings of this estimator."""
        settings = {field.name: getattr(self, field.name) for field in fields(NeuralEstimator)}
        # Resamples are trained with different seeds only if the whole fit is not seeded.
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return NeuralEstimator(**{**settings, "random_state": seed})


@with_shared_text(**_TEXTS)
@dataclass(kw_only=True, eq=False, repr=False)
class RegressionEMPropensity(_LearnedPropensity):
    r"""Estimate examination by regression-EM: one curve for all users, or one for each user.

    The log shows neither whether a row was examined nor whether it was relevant. Regression-EM
    chooses examination and relevance so that they maximise the likelihood of all clicks and
    missing clicks, :math:`P(c = 1) = o_k\, r(x)` (Wang et al. 2018). With ``user``, examination is
    one number per user and position: the personalised variant of Niu et al. (2025).

    Parameters
    ----------
    user : str, default=None
        Column of X (usually the role ``"user"``): each of its values has a curve. By default all
        users have one curve.
    {parameters}

    {network}
    device, random_state, verbose

    Attributes
    ----------
    {attributes}

    References
    ----------
    Wang, Golbandi, Bendersky, Metzler & Najork (2018). Position bias estimation for unbiased
    learning to rank in personal search. WSDM. Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025).
    Addressing personalized bias for unbiased learning to rank.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.propensity import RegressionEMPropensity
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=20_000, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> propensity = RegressionEMPropensity(relevance="embedding").fit(log, clicks)
    >>> propensity.examination_["examination"].head(3).round(1).tolist()
    [1.0, 0.9, 0.7]
    """

    def _network_estimate(self, X, y, sample_weight, roles, cells, row_factor):
        # The likelihood is a sum over cells, which any lists of the same cells have.
        features = _features_of(X, self.columns_read(), self._refuses_missing, cells.doc_row)

        def estimate(cells):
            # A factor without clicks would have examination 0, and drive the training.
            cells = cells.with_half_clicks()
            learner = self._learner()
            fit_towers(learner, _cells_as_lists(cells, features))
            # Given relevance, expected clicks are examination times the sum of n r over cells.
            relevance = expit(learner._score(features))
            expected = cells.by_factor(cells.weight * relevance[cells.doc])
            # A factor without clicks has no estimate.
            with np.errstate(divide="ignore", invalid="ignore"):
                return Estimate(np.log(cells.by_factor(cells.clicks) / expected))

        return estimate


@with_shared_text(**_TEXTS)
@dataclass(kw_only=True, eq=False, repr=False)
class DualLearningPropensity(_LearnedPropensity):
    r"""Estimate examination by dual learning, as :class:`~skultr.DLARanker` does.

    With a network, examination and relevance are trained together: each on the clicks of a list,
    weighted by the inverse of the other (Ai et al. 2018). At the end examination is fitted once
    more to all clicks. With an embedding, the estimate is the fixed point of alternating least
    squares.

    Parameters
    ----------
    user : str, default=None
        Column of X (usually the role ``"user"``): each of its values has a curve. By default all
        users have one curve. Requires ``relevance="embedding"``.
    {parameters}
    unconfounded : bool, default=False
        Let examination depend on what the logging policy thinks of a document as well, and take
        its mean over documents (Luo et al. 2023); see Notes. Requires ``relevance="network"``,
        whose training takes twice as long.

    {network}
    device, random_state, verbose

    Attributes
    ----------
    {attributes}

    Notes
    -----
    A strong logging policy puts what is relevant at the top, and what the network of relevance has
    not learned is taken for examination: the curve is too steep. With ``unconfounded=True`` a
    network :math:`m(x)` is first trained to order documents as they were served, without their
    clicks. Examination is then learned as :math:`\log o(k, x) = h_k + v_k\, m(x)`, and
    ``examination_`` is its mean over all documents of the log, wherever they were shown (the
    backdoor adjustment): :math:`o(k) = \mathrm{E}_x[o(k, x)]`. Any ranker takes it, such as
    ``IPSRanker(propensity=DualLearningPropensity(unconfounded=True))``. It does not help where the
    policy used signals that the features lack; comparisons of documents that moved do
    (:class:`InterventionHarvesting`). See :ref:`unconfounded`.

    References
    ----------
    Ai, Bi, Luo, Guo & Croft (2018). Unbiased learning to rank with unbiased propensity
    estimation. SIGIR. Luo, Zou, Ai, Chen, Li, Yin & Davison (2023). Unconfounded propensity
    estimation for unbiased learning to rank. arXiv:2305.09818.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.propensity import DualLearningPropensity
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=20_000, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> propensity = DualLearningPropensity(relevance="embedding").fit(log, clicks)
    >>> propensity.examination_["examination"].head(3).round(1).tolist()
    [1.0, 0.9, 0.7]
    """

    unconfounded: bool = False

    _published_loss = "squares"
    _parameter_constraints = {
        **_LearnedPropensity._parameter_constraints,
        "unconfounded": ["boolean"],
    }

    def _fit(self, X, y, sample_weight, roles):
        if self.unconfounded and self.relevance == "embedding":
            raise ValueError(
                "unconfounded=True and relevance='embedding': what the logging policy thinks of a "
                "document is learned from its features, which an embedding does not read. Use "
                "relevance='network', or unconfounded=False."
            )
        super()._fit(X, y, sample_weight, roles)

    def _count(self, X, click, names):
        if self.relevance == "embedding":
            return super()._count(X, click, names)
        self._refuse_users()
        return count_lists_of(X, click, self._features_among(names))

    def _refuse_users(self):
        if self.user is not None:
            raise ValueError(
                "DualLearningPropensity with a network has no curves of users: it compares the "
                "rows of a list, which belong to one user. Set relevance='embedding', or use "
                "RegressionEMPropensity(user=...)."
            )

    def _network_estimate(self, X, y, sample_weight, roles, cells, row_factor):
        self._refuse_users()
        features = _features_of(X, self.columns_read(), self._refuses_missing)
        bias = np.where(row_factor >= 0, row_factor, np.nan)
        log = make_click_log(X, features, y, sample_weight, {**roles, "bias": bias})

        def estimate(cells):
            drawn = _drawn_queries(log, cells)
            policy = fit_policy(self._learner(), drawn) if self.unconfounded else None
            log_examination = np.full(len(cells.factors), np.nan)
            found = fit_dual(self._learner(), drawn, policy=policy)
            log_examination[drawn.bias_values] = found
            return Estimate(log_examination)

        return estimate


def _cells_as_lists(cells, features):
    """A log whose rows are cells, merged where they are alike, for a loss that sums over rows."""
    doc = cells.doc
    query = cells.doc_query[doc]
    in_order = np.zeros(len(doc))
    # The first cell of each document of a query goes to one list, the second to the next.
    list_ = rank_in_segment(doc, in_order)
    list_of_query = query * (list_.max() + 1) + list_
    click_rate = np.zeros(len(doc))
    np.divide(cells.clicks, cells.weight, out=click_rate, where=cells.weight > 0)
    roles = {
        "qid": query,
        "session": list_,
        "doc": doc,
        "position": rank_in_segment(list_of_query, in_order),
        "bias": _factors_of_training(cells)[cells.factor],
        "impressions": cells.weight,
    }
    cell_features = features[doc]
    log = make_click_log(cell_features, cell_features, click_rate, None, roles)
    return log.fold()


def _features_of(X, not_features, why, rows=None):
    """Features of some rows of X as an array, shape (n_rows, n_features)."""
    framed = is_frame(X)
    # Columns that are read otherwise are no features.
    if framed:
        X = without_columns(nw.from_native(X, eager_only=True), not_features)
    if rows is not None:
        X = X[rows]
    values, _ = without_offsets(X.to_native() if framed else X, why)
    return values


def without_offsets(X, why, offsets=None):
    """Values of X, of shape (n_rows, n_columns), less offsets, by default its own, and these.

    ``why`` missing values of a frame are an error, if they are; arrays were checked before."""
    if is_frame(X):
        values, names, _ = read_values(X, why_no_missing=why)
    else:
        if sparse.issparse(X):
            X = X.toarray()
        names = None
        values = np.asarray(X, dtype=np.float32)
    if offsets is None:
        # Large offsets would take the digits of single precision; those of fit are taken off
        # later.
        offsets = find_offsets(X, values, names)
    return take_off(offsets, X, values, names), offsets


def _factors_of_training(cells):
    """Codes of the factors in training, shape (n_factors,): users of few clicks are one user.

    A curve for each user who came once would explain their clicks without any relevance.
    """
    factors = cells.factors
    if factors.user is None:
        return np.arange(len(factors))
    # The code after the last user is that of all users of few clicks.
    user, ids = encode(factors.user)
    clicks = np.bincount(user, cells.by_factor(cells.clicks))
    is_rare = clicks[user] < FEW_CLICKS_OF_A_USER.value
    user = np.where(is_rare, len(ids), user)
    _, bias = np.unique(factors.bias, return_inverse=True)
    code, _ = encode(user * (bias.max() + 1) + bias)
    return code


def _drawn_queries(log, cells):
    """The merged log with each query weighted by its number of draws in a resample."""
    if cells.doc_weight is None:
        return log.fold()
    times = np.zeros(len(log.query_ids))
    times[cells.doc_query] = cells.doc_weight
    return log.times(times).fold().part_of(np.flatnonzero(times))
