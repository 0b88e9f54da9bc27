"""A ranking metric estimated from held-out clicks: model selection without annotation."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from .._log._aggregate import count_lists_of
from .._log._counted import check_given
from .._log._engine import is_in_engine
from .._log._faults import count_of
from .._log._roles import FIT_ROLES, feature_names, read_role
from .._log._segments import offsets_from_sorted, sort_in_segment
from .._typing import AnyFrame, ArrayLike, Column, Estimator, Predictor, Scope, Table
from ._held_out import HeldOut, ratio_of_sums
from ._scorers import request_roles

if TYPE_CHECKING:
    from sklearn.utils.metadata_routing import MetadataRequest

    from .._log._dataset import ClickDataset


_METRICS = ("arp", "dcg", "precision")


class IPSEstimate(NamedTuple):
    """What :meth:`IPSScorer.estimate` returns.

    Parameters
    ----------
    value : float
        The estimated metric; greater is better.
    standard_error : float
        Standard error of ``value``, from the variance between queries; NaN for a single query. It
        does not include errors of the propensities.
    effective_sample_size : float
        Number of equally weighted clicks of the same precision, (Σ w)² / Σ w² (Kish).
    largest_weight : float
        Largest weight of a click, relative to the mean weight.
    n_clicks : float
        Number of clicks on shown rows.
    """

    value: float
    standard_error: float
    effective_sample_size: float
    largest_weight: float
    n_clicks: float


class IPSScorer:
    r"""Scorer: a ranking metric of an estimator's predictions, estimated from clicks.

    A click on a document that was examined with probability :math:`p` has the weight
    :math:`1 / p`, which compensates for the few clicks at positions that few users examine:

    .. math::
        \hat V = \frac{1}{n} \sum_{\text{sessions}} \sum_i \frac{c_i}{p_i} \lambda(\mathrm{rank}_i)

    with the rank of row i among the rows of its list by decreasing prediction; for equal
    predictions :math:`\lambda` is averaged over their ranks. If :math:`P(c = 1) = p\, r`, the
    expectation is the metric with the relevance :math:`r` of the shown documents, under any
    logging policy. Raw clicks, in contrast, favour the model that is closest to the old ranking.

    Parameters
    ----------
    metric : {"dcg", "precision", "arp"}, default="dcg"
        Value :math:`\lambda` of a relevant document at a rank:
        :math:`1 / \log_2(1 + \mathrm{rank})` or :math:`1 / k` down to rank k, or
        :math:`-\mathrm{rank}` (average relevance position).
    k : int or None, default=10
        Ranks that count; None for all. "arp" always counts all.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities: the role ``propensity`` of each row (also if
        None); one number per position, from position 1; or an estimator, which is cloned and
        fitted on the clicks that are scored. ``FrozenEstimator(fitted)`` uses a fitted estimator
        as it is, which is faster in a search and the same for all folds.
    clip : float in (0, 1], default=None
        Lower propensities are raised to this value: less variance, and a bias towards the old
        ranking.
    normalize : bool, default=False
        Divide by :math:`\sum c_i / p_i`, the estimated relevance in all sessions, instead of by
        their number (self-normalised, SNIPS). The value is then the mean :math:`\lambda` of a
        relevant document (with "arp", minus its mean rank). It has less variance and a small
        bias, and does not change if all propensities are off by the same factor.

    Raises
    ------
    ValueError
        By the constructor: if a parameter has a wrong type or value. When called: if X has no
        ``qid`` or no propensities, no shown row has a click, or predictions are missing.

    See Also
    --------
    ClickLikelihoodScorer : Less noisy, but no ranking metric.
    RankingScorer : Metrics by human annotation.

    Notes
    -----
    Candidates that were never shown (no position) take ranks and contribute 0, because nobody
    could click them. A model that ranks them high is underestimated, the more so the fewer
    documents were shown; if the logging policy left out good documents, no weighting corrects it.

    Propensities are often known up to one factor only, as all estimates from clicks are. Without
    ``normalize`` the value is off by that factor, but the order of models is not affected.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``). A row of several impressions counts like the
    sessions that it stands for.

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.

    Swaminathan & Joachims (2015). The self-normalized estimator for counterfactual learning. NIPS.

    Examples
    --------
    The second document was examined half as often as the first one and is as relevant:

    >>> import pandas as pd
    >>> from sklearn.dummy import DummyRegressor
    >>> from skultr.metrics import IPSScorer
    >>> X = pd.DataFrame({
    ...     "qid": [1, 1], "position": [1, 2], "bm25": [0.3, 0.1], "impressions": [100, 100],
    ... })
    >>> click_rate = [0.4, 0.2]
    >>> model = DummyRegressor().fit(X, click_rate)
    >>> round(IPSScorer("precision", k=1, propensity=[1.0, 0.5])(model, X, click_rate), 3)
    0.4
    """

    def __init__(
        self,
        metric: Literal["arp", "dcg", "precision"] = "dcg",
        *,
        k: int | None = 10,
        propensity: ArrayLike | Estimator | None = None,
        clip: float | None = None,
        normalize: bool = False,
    ) -> None:
        if metric not in _METRICS:
            raise ValueError(
                f"There is no metric {metric!r} that is linear in clicks; expected one of "
                f"{sorted(_METRICS)}."
            )
        if not (k is None or (isinstance(k, Integral) and k >= 1)):
            raise ValueError(f"k must be a whole number of ranks from 1, or None, got {k!r}.")
        if not (clip is None or (isinstance(clip, Real) and 0 < clip <= 1)):
            raise ValueError(
                f"clip must lie in (0, 1], got {clip!r}: it is the smallest propensity, and no "
                "click then weighs more than 1 / clip. None clips nothing."
            )
        self.metric = metric
        self.k = k
        self.propensity = propensity
        self.clip = clip
        self.normalize = normalize

    def __call__(
        self,
        estimator: Predictor,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | None = None,
        **roles: Column | None,
    ) -> float:
        """The value of :meth:`estimate`; greater is better.

        Parameters
        ----------
        estimator : object
            With a method ``predict(X)`` that returns one score per row.
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A dataset has its own clicks and roles.
        y : array-like of shape (n_rows,)
            Clicks or click rates.
        **roles
            See :meth:`estimate`.

        Returns
        -------
        score : float
        """
        return self.estimate(estimator, X, y, **roles).value

    def estimate(
        self,
        estimator: Predictor,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | None = None,
        sample_weight: Column | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
        doc_scope: Scope | None = None,
    ) -> IPSEstimate:
        """The estimated metric with its standard error and the spread of the click weights.

        Parameters
        ----------
        estimator : object
            With a method ``predict(X)`` that returns one score per row.
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A dataset has its own clicks and roles.
            Held-out rows of the log: shown documents, and candidates that were not shown. Also a
            frame of an engine (lazy Polars, DuckDB, Dask, PySpark) without such candidates: the
            engine adds up equal lists, and their documents are predicted in memory.
        y : array-like of shape (n_rows,) or str
            Clicks or click rates, or the name of the column of X that holds them.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``.
        qid, session, doc, position, bias, user, propensity, impressions, doc_scope : \
                array-like of shape (n_rows,), default=None
            Roles as keywords; they take precedence over columns.

        Returns
        -------
        estimate : IPSEstimate
        """
        roles = {
            "qid": qid,
            "session": session,
            "doc": doc,
            "position": position,
            "bias": bias,
            "user": user,
            "propensity": propensity,
            "impressions": impressions,
            "doc_scope": doc_scope,
        }
        if is_in_engine(X):
            check_given(X, y, sample_weight, roles, "IPSScorer")
            X, y = _counted(X, y)
        held_out = HeldOut.read(X, y, sample_weight, roles, caller="IPSScorer")
        rows = held_out.rows
        served = _served(rows)
        if not served.clicks.any():  # the reader warned
            return IPSEstimate(np.nan, np.nan, np.nan, np.nan, 0.0)
        weight = self._click_weights(held_out.examination(self.propensity))
        credit = self._credits(rows.list_, held_out.predict(estimator))
        debiased = served.clicks * weight
        total = debiased if self.normalize else served.sessions
        value, error = ratio_of_sums(debiased * credit, total, rows.query)
        n_clicks, carried = served.clicks.sum(), debiased.sum()
        return IPSEstimate(
            value=value,
            standard_error=error,
            effective_sample_size=float(carried**2 / (debiased @ weight)),
            largest_weight=float(weight[served.clicks > 0].max() * n_clicks / carried),
            n_clicks=float(n_clicks),
        )

    def get_metadata_routing(self) -> MetadataRequest:
        """Metadata request of the roles, for scikit-learn's routing.

        Returns
        -------
        request : MetadataRequest
        """
        return request_roles(self, (*FIT_ROLES, "sample_weight"))

    def __repr__(self) -> str:
        return (
            f"IPSScorer({self.metric!r}, k={self.k!r}, propensity={self.propensity!r}, "
            f"clip={self.clip!r}, normalize={self.normalize!r})"
        )

    def _click_weights(self, propensity):
        return 1 / (propensity if self.clip is None else np.maximum(propensity, self.clip))

    def _credits(self, list_, scores):
        """Value of a relevant document at the rank of each row, averaged over ties."""
        order = sort_in_segment(list_, scores)
        list_, scores = list_[order], scores[order]
        offsets = offsets_from_sorted(list_)
        length = np.diff(offsets)
        rank = np.arange(len(order)) - np.repeat(offsets[:-1], length) + 1
        credit = self._credit_of_rank(rank, np.repeat(length, length))
        leads = np.ones(len(order), dtype=bool)
        leads[1:] = (list_[1:] != list_[:-1]) | (scores[1:] != scores[:-1])
        start = np.flatnonzero(leads)
        size = np.diff(start, append=len(order))
        shared = np.empty(len(order))
        shared[order] = np.repeat(np.add.reduceat(credit, start) / size, size)
        return shared

    def _credit_of_rank(self, rank, length):
        if self.metric == "arp":
            return -rank.astype(float)
        cutoff = length if self.k is None else self.k
        counts = rank <= cutoff
        return counts / (np.log2(1 + rank) if self.metric == "dcg" else cutoff)


def _counted(X, click):
    """The distinct lists of a log in an engine, with features, and their click rates."""
    names = nw.from_native(X).collect_schema().names()
    X, rate = count_lists_of(X, click, feature_names(names, {click}))
    position = read_role(X, "position")
    never = int(np.isnan(position).sum())
    if never:
        raise ValueError(
            f"The log in the engine has {count_of(never, 'candidate')} that "
            f"{'was' if never == 1 else 'were'} never shown. In which lists they were is lost "
            "where equal lists are added up, and their ranks count. Drop the rows without a "
            "position, or collect the log, query by query."
        )
    return X, rate


class _Served(NamedTuple):
    """Clicks of each row, and its part of the sessions of its list."""

    clicks: np.ndarray
    sessions: np.ndarray


def _served(rows):
    shown = rows.shown
    # The rows of a list stand for equally many sessions; where they do not, their mean counts.
    n_shown = np.bincount(rows.list_, shown)[rows.list_]
    return _Served(
        clicks=np.where(shown, rows.clicks, 0.0),
        sessions=np.where(shown, rows.weight, 0.0) / np.maximum(n_shown, 1),
    )
