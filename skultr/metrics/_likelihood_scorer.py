"""How well scores explain where held-out clicks fell: model selection without annotation."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from .._log._roles import FIT_ROLES
from .._log._segments import encode
from .._models._click_choice import ClickChoice
from .._typing import ArrayLike, Column, Estimator, Floats, Predictor, Scope, Table
from ..exceptions import AssumptionWarning, warn_user
from ._held_out import HeldOut, ratio_of_sums
from ._scorers import request_roles

if TYPE_CHECKING:
    from sklearn.utils.metadata_routing import MetadataRequest

    from .._log._dataset import ClickDataset


class ClickLikelihoodEstimate(NamedTuple):
    """What :meth:`ClickLikelihoodScorer.estimate` returns.

    Parameters
    ----------
    value : float
        Log-likelihood gained per click over the baseline, in nats; greater is better.
    standard_error : float
        Standard error of ``value``, from the variance between queries; NaN for a single query.
        It does not include errors of the propensities, and is 0 where both scales are 0.
    scale : float
        Factor of the scores. 0 if a scale was fitted and the scores explain no clicks.
    n_clicks : float
        Number of clicks in lists of at least two shown rows.
    """

    value: float
    standard_error: float
    scale: float
    n_clicks: float


class ClickLikelihoodScorer:
    r"""Scorer: log-likelihood per held-out click gained by the scores of an estimator, in nats.

    Given that a click falls into a list, its row is i with the probability
    :math:`\mathrm{softmax}(w s + \log o)_i` over the shown rows of the list, for scores
    :math:`s`, examination probabilities :math:`o` and a scale :math:`w \geq 0`. The value is the
    mean log-likelihood of the clicks minus that of examination alone:

    .. math::
        \hat V = \frac{1}{\sum_i c_i} \sum_i c_i
        \bigl[\log \mathrm{softmax}(w s + \log o)_i - \log \mathrm{softmax}(\log o)_i\bigr]

    0 means that the scores explain no more than where users look; a ranker of value .1 makes
    the observed clicks :math:`e^{.1}`, 11 %, more likely each. If :math:`P(c = 1) = o\, r`, the
    expectation is greatest for :math:`w s = \log r` plus a constant per list, under any logging
    policy. No click is divided by a propensity, so that few clicks at the bottom cannot decide,
    as they can with :class:`IPSScorer`.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities: the role ``propensity`` of each row (also if
        None); one number per position, from position 1; or an estimator, which is cloned and
        fitted on the clicks that are scored. ``FrozenEstimator(fitted)`` uses a fitted estimator
        as it is, which is faster in a search and the same for all folds.
    scale : "fit" or float, default="fit"
        Factor :math:`w` of the scores. "fit" takes the likeliest, at least 0, because only the
        order of most rankers means something, not the unit of their scores. This one number is
        fitted on the scored clicks, by which the value is too high by about 1 / (2 n_clicks), for
        all estimators alike. ``scale=1.0`` judges the scores as log relevance.

    Raises
    ------
    ValueError
        By the constructor: if ``scale`` is neither "fit" nor positive. When called: if X has no
        ``qid`` or no propensities, every clicked list has one row, or predictions are missing or
        infinite.

    Warns
    -----
    AssumptionWarning
        If the fitted scale is 0: by these propensities the scores explain no clicks.

    See Also
    --------
    IPSScorer : A ranking metric, estimated from clicks; noisier.
    RankingScorer : Metrics by human annotation.

    Notes
    -----
    *The propensities decide.* Too steep ones explain the clicks alone: all values are near 0, and
    the pick is noise, or what undoes the old ranking. Too flat ones favour copies of the old
    ranking. Where the log shows each document at one position only, and the ranker that served
    it was good, curves estimated from the log are too steep: do not choose by clicks there. Take
    propensities from swaps or an experiment.

    *Steep propensities leave little to see*: if nearly all clicks fall on the first rows whatever
    stands there, the values of all rankers are close together. ``estimate`` with a ``baseline``
    has the standard error of a difference.

    *The standard error* is that of a mean over queries at a given scale. Where the scores explain
    hardly anything (a fitted scale near 0) it is too small.

    *Scores* count as logits, within lists: what all rows of a list share drops out, as does a
    factor common to all lists with ``scale="fit"``. Transform scores that are probabilities by
    their logarithm.

    Candidates that were never shown do not count, and neither do lists without a click or with one
    row. A row of several impressions counts like the sessions that it stands for.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``).

    References
    ----------
    McFadden (1974). Conditional logit analysis of qualitative choice behavior. In: Frontiers in
    Econometrics.

    Examples
    --------
    Users look at position 2 half as often as at 1. The document there is as often clicked, and
    thus twice as relevant; given the scores log 1 and log 2, clicks are as likely on either:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.metrics import ClickLikelihoodScorer
    >>> class Given:
    ...     def predict(self, X):
    ...         return X["score"]
    >>> X = pd.DataFrame({
    ...     "qid": [1, 1], "position": [1, 2], "score": np.log([1, 2]), "impressions": [100, 100],
    ... })
    >>> value = ClickLikelihoodScorer(propensity=[1.0, 0.5])(Given(), X, [0.2, 0.2])
    >>> expected = np.log(1 / 2) - np.mean(np.log([2 / 3, 1 / 3]))
    >>> round(value, 3), round(float(expected), 3)
    (0.059, 0.059)
    """

    def __init__(
        self,
        *,
        propensity: ArrayLike | Estimator | None = None,
        scale: float | Literal["fit"] = "fit",
    ) -> None:
        given = isinstance(scale, Real) and 0 < scale < np.inf
        if not given and not (isinstance(scale, str) and scale == "fit"):
            raise ValueError(
                f"scale must be 'fit' or a positive number, got {scale!r}: it multiplies the "
                "scores, of which higher must mean more relevant."
            )
        self.propensity = propensity
        self.scale = scale

    def __call__(
        self,
        estimator: Predictor,
        X: Table | ClickDataset,
        y: Column | None = None,
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
            In nats per click.
        """
        return self.estimate(estimator, X, y, **roles).value

    def estimate(
        self,
        estimator: Predictor,
        X: Table | ClickDataset,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        baseline: Predictor | None = None,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
        doc_scope: Scope | None = None,
    ) -> ClickLikelihoodEstimate:
        """The gain per click with its standard error, over examination or another estimator.

        Parameters
        ----------
        estimator : object
            With a method ``predict(X)`` that returns one score per row.
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A dataset has its own clicks and roles.
            Held-out rows of the log; rows that were not shown are ignored.
        y : array-like of shape (n_rows,)
            Clicks or click rates.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``.
        baseline : object, default=None
            Estimator to compare with. The value is then the difference of the two values, with
            the standard error of the difference, which is small where both score alike,
            because they are scored by the same clicks. By default the value is the gain over
            examination alone.
        qid, session, doc, position, bias, user, propensity, impressions, doc_scope : \
                array-like of shape (n_rows,), default=None
            Roles as keywords; they take precedence over columns.

        Returns
        -------
        estimate : ClickLikelihoodEstimate
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
        held_out = HeldOut.read(X, y, sample_weight, roles, caller="ClickLikelihoodScorer")
        rows = held_out.rows
        if not rows.clicks[rows.shown].any():  # the reader warned
            return ClickLikelihoodEstimate(np.nan, np.nan, np.nan, 0.0)
        choice = _clicked_lists(rows)
        # Expected clicks of a row grow with its impressions, which may differ within a list.
        weight = np.where(rows.shown, rows.weight, 1.0)
        log_examination = np.log(held_out.examination(self.propensity) * weight)
        gain, scale = self._gains(estimator, held_out, choice, log_examination)
        if baseline is not None:
            gain = gain - self._gains(baseline, held_out, choice, log_examination)[0]
        query, _ = encode(rows.query[choice.rows[choice.starts]])
        value, error = ratio_of_sums(gain, choice.total, query)
        return ClickLikelihoodEstimate(value, error, scale, choice.n_clicks)

    def get_metadata_routing(self) -> MetadataRequest:
        """Metadata request of the roles, for scikit-learn's routing.

        Returns
        -------
        request : MetadataRequest
        """
        return request_roles(self, (*FIT_ROLES, "sample_weight"))

    def __repr__(self) -> str:
        return f"ClickLikelihoodScorer(propensity={self.propensity!r}, scale={self.scale!r})"

    def _gains(self, estimator, held_out, choice, log_examination):
        """Log-likelihood gained over examination alone in each list, and the scale."""
        scores = _centered(held_out.predict(estimator), choice, estimator)
        scale = self.scale
        if isinstance(scale, str):
            scale = _likeliest_scale(scores, choice, log_examination)
        alone = choice.list_losses(log_examination)
        return alone - choice.list_losses(scale * scores + log_examination), float(scale)


def _clicked_lists(rows):
    """Clicks of the lists in which a click could have fallen elsewhere."""
    n_shown = np.bincount(rows.list_, rows.shown)[rows.list_]
    clicks = np.where(rows.shown & (n_shown > 1), rows.clicks, 0.0)
    if not clicks.any():
        raise ValueError(
            "Every list with a click has one shown row, so that its click could have fallen "
            "nowhere else; expected lists of at least two. The rows of one served list have the "
            "same 'session' (and 'qid'), and a split keeps them together: QueryKFold."
        )
    return ClickChoice.from_rows(rows.list_, clicks, rows.shown)


def _centered(scores: Floats, choice: ClickChoice, estimator: Predictor) -> Floats:
    """Scores minus their mean in the list, so that large offsets cost no precision."""
    used = scores[choice.rows]
    infinite = np.isinf(used)
    if infinite.any():
        raise ValueError(
            f"{type(estimator).__name__}.predict returned infinity in {int(infinite.sum())} of "
            f"{len(scores)} rows, first in row {int(choice.rows[infinite].min())}; expected "
            "finite scores, because a click on a row of score -inf is impossible."
        )
    mean = np.bincount(choice.list_, used) / np.bincount(choice.list_)
    centered = np.zeros(len(scores))
    centered[choice.rows] = used - mean[choice.list_]
    return centered


def _likeliest_scale(scores, choice, log_examination):
    spread = np.sqrt(np.mean(scores[choice.rows] ** 2))
    if spread <= 1e-12:
        return 0.0  # the scores are constant in each list
    (scale,) = choice.best_weights(scores[:, None] / spread, log_examination)
    if not scale:
        warn_user(
            "By these propensities the scores explain no held-out clicks: their likeliest scale "
            "is 0. Either the ranker has learned nothing, or the propensities are too steep and "
            "explain the clicks alone; then no choice by clicks can be trusted. Compare with "
            "propensities from swaps or an experiment.",
            AssumptionWarning,
        )
    return scale / spread
