"""Model selection by held-out clicks, without annotation: weighted metrics, where clicks fell, and
documents that were shown at the same position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.exceptions import UndefinedMetricWarning

from .._base._sklearn import Interval, StrOptions, validate_params
from .._base._typing import (
    AnyFrame,
    ArrayLike,
    Column,
    Estimator,
    Floats,
    Predictor,
    Scope,
    Table,
)
from .._log._aggregate import count_lists_of
from .._log._click_units import as_known_rates
from .._log._counted import counted
from .._log._dataset import ClickDataset
from .._log._faults import count_of
from .._log._reader import Rows, read, take_clicks
from .._log._roles import FIT_ROLES, feature_names, open_frame, read_role
from .._log._segments import encode, rank_in_segment
from .._models._solve import GroupedLogit
from ..exceptions import AssumptionWarning, warn_user
from ..propensity._source import PROPENSITY_CONSTRAINT, RowsOfLog, propensities
from ._query_means import ratio_of_sums
from ._ranking import flat_columns, refuse_where
from ._scorers import Scorer, describes_a_scorer, scores_of_rows


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


class EstimateScorer(Scorer):
    """Scorers whose score is the ``value`` of what ``estimate`` returns."""

    @describes_a_scorer
    def __call__(
        self,
        estimator: Predictor | Column | str,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | None = None,
        **roles: Column | None,
    ) -> float:
        """The value of :meth:`estimate`; greater is better.

        Parameters
        ----------
        {estimator}
        X, y, **roles
            See :meth:`estimate`.

        Returns
        -------
        score : float
            As ``value`` of the estimate.
        """
        return self.estimate(estimator, X, y, **roles).value


@describes_a_scorer
@dataclass(eq=False, repr=False)
class IPSScorer(EstimateScorer):
    r"""Estimate a ranking metric from clicks, without annotation.

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
    {propensity}
    clip : float in (0, 1], default=None
        Lower propensities are raised to this value. This takes variance, and adds a bias towards
        the old ranking.
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
    documents were shown. If the logging policy left out good documents, no weight corrects that.

    Propensities are often known up to one factor only, as all estimates from clicks are. Without
    ``normalize`` the value is off by that factor, but the order of models is not affected.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``). A row of several impressions counts as so many
    sessions.

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

    metric: Literal["arp", "dcg", "precision"] = "dcg"
    _: KW_ONLY
    k: int | None = 10
    propensity: ArrayLike | Estimator | None = None
    clip: float | None = None
    normalize: bool = False

    _constraints = {
        "metric": [StrOptions({"arp", "dcg", "precision"})],
        "k": [Interval(Integral, 1, None, closed="left"), None],
        "propensity": PROPENSITY_CONSTRAINT,
        "clip": [Interval(Real, 0, 1, closed="right"), None],
        "normalize": ["boolean"],
    }

    @describes_a_scorer
    def estimate(
        self,
        estimator: Predictor | Column | str,
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
        {estimator}
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A dataset has its own clicks and roles.
            Held-out rows of the log: shown documents, and candidates that were not shown. Also a
            frame of an engine (lazy Polars, DuckDB, Dask, PySpark) without such candidates: the
            engine adds up equal lists, and their documents are predicted in memory.
        y : array-like of shape (n_rows,) or str
            Clicks or click rates, or the name of the column of X that holds them.
        {sample_weight}
        {roles}

        Returns
        -------
        estimate : IPSEstimate
        """
        roles = {name: value for name, value in locals().items() if name in FIT_ROLES}
        X, y = counted(X, y, sample_weight, roles, "IPSScorer", _count_lists)
        held_out = HeldOut(X, y, sample_weight, roles, caller="IPSScorer")
        rows = held_out.rows
        clicks, sessions = _served(rows)
        # An estimate of nothing is no error: a search goes on.
        if not clicks.any():  # the reader warned
            return IPSEstimate(np.nan, np.nan, np.nan, np.nan, 0.0)
        _refuse_lists_of_one_row(rows, clicks)
        examination = held_out.examination(self.propensity)
        weight = 1 / np.maximum(examination, self.clip or 0.0)
        credit = self._credits(rows.list_, held_out.scores(estimator))
        # Inverse propensity scoring: a click counts as often as its position is overlooked.
        debiased = clicks * weight
        total = debiased if self.normalize else sessions
        value, error = ratio_of_sums(debiased * credit, total, rows.query)
        n_clicks = clicks.sum()
        carried = debiased.sum()
        # Kish: the number of clicks of equal weight that tell as much.
        effective = carried**2 / (debiased @ weight)
        largest = weight[clicks > 0].max() * n_clicks / carried
        return IPSEstimate(
            value=value,
            standard_error=error,
            effective_sample_size=float(effective),
            largest_weight=float(largest),
            n_clicks=float(n_clicks),
        )

    def _credits(self, list_, scores):
        """Value of a relevant document at the rank of each row, averaged over ties."""
        rank = rank_in_segment(list_, scores)
        length = np.bincount(list_)[list_]
        cutoff = length if self.k is None else self.k
        if self.metric == "arp":
            credit = -rank.astype(float)
        else:
            # A relevant document is worth 1 / log2(1 + rank), or 1 / k.
            divisor = np.log2(1 + rank) if self.metric == "dcg" else cutoff
            credit = np.where(rank <= cutoff, 1 / divisor, 0.0)
        tied = pd.Series(credit).groupby([list_, scores], sort=False)
        return tied.transform("mean").to_numpy()


def _count_lists(X, click):
    """The distinct lists of a log in an engine, with features, and their click rates."""
    names = open_frame(X).collect_schema().names()
    # Equal lists are added up in the engine, where the log stays.
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


def _refuse_lists_of_one_row(rows, clicks):
    """An error if no list has a rank that could be better, as in a table counted over pages."""
    n_rows = np.bincount(rows.list_)[rows.list_]
    if not clicks[n_rows > 1].any():
        raise ValueError(
            "Every list with a click has one row, which every ranker puts first. Expected served "
            "lists, with their 'session'. Where rows were counted over pages that are not known, "
            "use skultr.evaluation.policy_value or ClickLikelihoodScorer, which read counts."
        )


def _served(rows):
    """Clicks of each row, and its part of the sessions of its list."""
    shown = rows.shown
    # The rows of a list stand for equally many sessions; where they do not, their mean counts.
    n_shown = np.bincount(rows.list_, shown)[rows.list_]
    clicks = np.where(shown, rows.clicks, 0.0)
    weight = np.where(shown, rows.weight, 0.0)
    return clicks, weight / np.maximum(n_shown, 1)


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


@describes_a_scorer
@dataclass(eq=False, repr=False)
class ClickLikelihoodScorer(EstimateScorer):
    r"""Score how well a ranker explains where held-out clicks fell: nats gained per click.

    Given that a click falls into a list, its row is i with the probability
    :math:`\mathrm{softmax}(w s + \log o)_i` over the shown rows of the list, for scores
    :math:`s`, examination probabilities :math:`o` and a scale :math:`w \geq 0`. The value is the
    mean log-likelihood of the clicks minus that of examination alone:

    .. math::
        \hat V = \frac{1}{\sum_i c_i} \sum_i c_i
        \bigl[\log \mathrm{softmax}(w s + \log o)_i - \log \mathrm{softmax}(\log o)_i\bigr]

    0 means that the scores explain no more than where users look; a ranker of value 0.1 makes
    the observed clicks :math:`e^{0.1}`, 11 %, more likely each. If :math:`P(c = 1) = o\, r`, the
    expectation is greatest for :math:`w s = \log r` plus a constant per list, under any logging
    policy. No click is divided by a propensity, so that few clicks at the bottom cannot decide,
    as they can with :class:`IPSScorer`.

    Parameters
    ----------
    {propensity}
    scale : "fit" or float, default="fit"
        Factor :math:`w` of the scores. "fit" takes the likeliest one, at least 0, because the
        scores of most rankers have no unit. It is fitted to the scored clicks, and makes the value
        too high by about 1 / (2 n_clicks), for all estimators alike. ``scale=1.0`` judges the
        scores as log relevance.

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
    *The propensities decide.* If they are too steep, they explain the clicks alone: all values are
    near 0, and the best model is chance, or reverses the old ranking. If they are too flat, copies
    of the old ranking win. Curves estimated from the log are too steep where it shows each
    document at one position only and the ranker that served it was good. Do not choose by clicks
    there, or take propensities from swaps or an experiment.

    *Steep propensities leave little to see*: if nearly all clicks fall on the first rows whatever
    is shown there, the values of all rankers are close together. ``estimate`` with a ``baseline``
    has the standard error of a difference.

    *The standard error* is that of a mean over queries at a given scale. Where the scores explain
    hardly anything (a fitted scale near 0) it is too small.

    *Scores* count as logits, within lists: what all rows of a list share drops out, as does a
    factor common to all lists with ``scale="fit"``. Transform scores that are probabilities by
    their logarithm.

    Candidates that were never shown do not count, and neither do lists without a click or with one
    row. A row of several impressions counts as so many sessions.

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

    _: KW_ONLY
    propensity: ArrayLike | Estimator | None = None
    scale: float | Literal["fit"] = "fit"

    _constraints = {
        "propensity": PROPENSITY_CONSTRAINT,
        "scale": [StrOptions({"fit"}), Interval(Real, 0, None, closed="neither")],
    }

    @describes_a_scorer
    def estimate(
        self,
        estimator: Predictor | Column | str,
        X: Table | ClickDataset,
        y: Column | str | None = None,
        sample_weight: Column | None = None,
        *,
        baseline: Predictor | Column | str | None = None,
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
        {estimator}
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A dataset has its own clicks and roles.
            Held-out rows of the log; rows that were not shown are ignored.
        y : array-like of shape (n_rows,) or str
            Clicks or click rates, or the name of the column of X that holds them.
        {sample_weight}
        baseline : estimator, array-like of shape (n_rows,) or str, default=None
            What to compare with, as ``estimator``. The value is then the difference of the two
            values, with the standard error of the difference, which is small where both score
            alike, because they are scored by the same clicks. By default the value is the gain
            over examination alone.
        {roles}

        Returns
        -------
        estimate : ClickLikelihoodEstimate
        """
        roles = {name: value for name, value in locals().items() if name in FIT_ROLES}
        held_out = HeldOut(X, y, sample_weight, roles, caller="ClickLikelihoodScorer")
        rows = held_out.rows
        if not rows.clicks[rows.shown].any():  # the reader warned
            return ClickLikelihoodEstimate(np.nan, np.nan, np.nan, 0.0)
        choice = _clicked_lists(rows)
        # Expected clicks of a row grow with its impressions, which may differ within a list.
        weight = np.where(rows.shown, rows.weight, 1.0)
        log_examination = np.log(held_out.examination(self.propensity) * weight)
        gain, scale = self._gains(estimator, "the estimator", held_out, choice, log_examination)
        if baseline is not None:
            baseline_gain, _ = self._gains(
                baseline, "the baseline", held_out, choice, log_examination
            )
            gain -= baseline_gain
        # Errors are those of sums over queries, whose lists go together.
        first_row = choice.rows[choice.starts]
        query, _ = encode(rows.query[first_row])
        value, error = ratio_of_sums(gain, choice.total, query)
        return ClickLikelihoodEstimate(value, error, scale, choice.n_clicks)

    def _gains(self, ranker, name, held_out, choice, log_examination):
        """Log-likelihood gained over examination alone in each list, and the scale."""
        scores = _centered(held_out.scores(ranker, name), choice, name)
        scale = self.scale
        if isinstance(scale, str):  # "fit"
            scale = _likeliest_scale(scores, choice, log_examination)
        loss_alone = choice.list_losses(log_examination)
        loss = choice.list_losses(scale * scores + log_examination)
        return loss_alone - loss, float(scale)


def _clicked_lists(rows):
    """Clicks of the lists in which a click could have fallen elsewhere."""
    n_shown = np.bincount(rows.choice, rows.shown)[rows.choice]
    # A click on the only row of a list says nothing.
    clicks = np.where(rows.shown & (n_shown > 1), rows.clicks, 0.0)
    if not clicks.any():
        raise ValueError(
            "Every list with a click has one shown row, so that its click could have fallen "
            "nowhere else; expected lists of at least two. The rows of one served list have the "
            "same 'session' (and 'qid'), and a split keeps them together: QueryKFold."
        )
    return GroupedLogit.from_rows(rows.choice, clicks, rows.shown)


def _centered(scores: Floats, choice: GroupedLogit, name: str) -> Floats:
    """Scores minus their mean in the list, so that large offsets cost no precision."""
    # Rows that were not shown may have any score.
    used = scores[choice.rows]
    infinite = np.zeros(len(scores), dtype=bool)
    infinite[choice.rows] = np.isinf(used)
    refuse_where(
        infinite,
        f"The scores of {name} are infinite",
        "expected finite scores, because a click on a row of score -inf is impossible.",
    )
    length = np.bincount(choice.list_)
    mean = np.bincount(choice.list_, used) / length
    centered = np.zeros(len(scores))
    centered[choice.rows] = used - mean[choice.list_]
    return centered


def _likeliest_scale(scores, choice, log_examination):
    spread = np.sqrt(np.mean(scores[choice.rows] ** 2))
    # The scores are constant in each list, up to rounding.
    if spread <= 1e-12:
        return 0.0
    # Divided by their size, which the solver need not know.
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


# Documents at the same position ---------------------------------------------------------
#: Constraints of what makes a pair count.
_PAIR_CONSTRAINTS = {
    "min_impressions": [Interval(Real, 0, None, closed="neither")],
    "level": [Interval(Real, 0, 1, closed="right")],
}


@validate_params(
    _PAIR_CONSTRAINTS | {"per_query": ["boolean"]}, prefer_skip_nested_validation=True
)
def matched_pairs_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    doc: Column,
    position: Column,
    sample_weight: Column | None = None,
    min_impressions: float = 40,
    level: float = 0.05,
    per_query: bool = False,
) -> float | pd.DataFrame:
    r"""Share of document pairs, shown at the same position, that scores order as clicks do.

    A pair is two documents of one query that different pages showed at the same position. The one
    with the higher click rate there is the better one, however many users look at that position.
    Only pairs that clicks decide count: both documents have ``min_impressions`` impressions at the
    position, and their click rates :math:`p` differ at the ``level`` of the two-sided test of two
    proportions,

    .. math::
        \frac{|p_1 - p_2|}{\sqrt{p (1 - p) (1 / n_1 + 1 / n_2)}} > z_{1 - \mathrm{level} / 2}

    with :math:`p` the click rate of both. Two documents count once for each position at which they
    meet; equal scores count 1/2.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Clicks, or click rates in [0, 1] of rows that count several impressions.
    y_score : array-like of shape (n_rows,)
        Scores or labels; higher is more relevant. If rows of a document at a position differ,
        their median counts.
    qid, doc, position : array-like of shape (n_rows,)
        Query, document and position of each row. Rows without a position were not shown.
    sample_weight : array-like of shape (n_rows,), default=None
        Impressions of each row. Rows of weight 0 do not count.
    min_impressions : float, default=40
        Least impressions of a document at the position.
    level : float in [0, 1], default=0.05
        Level of the test. With 1, all pairs of different click rates count: many more, of which
        clicks put a good part in the wrong order, so that all scores are nearer to 1/2.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float or pandas.DataFrame
        In [0, 1]; 1/2 for scores that say nothing. All pairs weigh the same. With ``per_query``, a
        frame indexed by ``qid`` with the columns ``"matched_pairs"`` and ``"n_pairs"``, of the
        queries that have pairs: for a mean over queries, or intervals by a bootstrap of queries.

    Raises
    ------
    ValueError
        If inputs are empty or differ in length, if a click, score, query or document is missing,
        or if a click is negative.

    Warns
    -----
    UndefinedMetricWarning
        If there is no pair; the score is then NaN.

    See Also
    --------
    MatchedPairsScorer : The same as a scorer, for searches.
    skultr.model_selection.LayoutSplit : Pages in an order that training did not see.

    Notes
    -----
    The order is a fact of the log only as far as pages differ by chance: if one document is shown
    at a position to users who click more, it looks better. Other documents on the page differ
    too, which matters to users who compare.

    Pairs share documents and a query, so that they are not independent: intervals are those of a
    bootstrap of queries. With half of the layouts held out 16 times, a log of Yandex (20 queries)
    has 305 to 441 pairs per split, about half of them of one query; one of Sogou (7,627 pages of
    1,051 queries) has none to 3, which say nothing. On Yandex
    :class:`~skultr.click_models.PBMModel` orders 92.8 % right, clicks over expected clicks
    91.3 %, click rates 84.0 %. The lead of 0.015 has the interval [-0.018, 0.040]; in 5 of the 16
    splits PBM is behind, by 0.020 at most
    (``examples/1_start/plot_real_rerankings.py``).

    Examples
    --------
    Document "b" was shown below "a" and, on other pages, in its place, where users clicked it
    more often:

    >>> from skultr.metrics import matched_pairs_score
    >>> log = {"qid": [1, 1, 1], "doc": ["a", "b", "b"], "position": [1, 2, 1]}
    >>> impressions, click_rate = [100, 100, 100], [0.3, 0.2, 0.6]
    >>> matched_pairs_score(click_rate, [0.3, 0.4, 0.4], **log, sample_weight=impressions)
    1.0
    >>> matched_pairs_score(
    ...     click_rate, [0.3, 0.2, 0.2], **log, sample_weight=impressions, per_query=True
    ... )
         matched_pairs  n_pairs
    qid
    1              0.0        1
    """
    y_true, scores = flat_columns(y_true=y_true, y_score=y_score)
    refuse_where(np.isnan(scores), "y_score contains NaN", "expected a score in every row.")
    roles = {"qid": qid, "doc": doc, "position": position}
    if sample_weight is not None:
        # The weights are impressions, with click rates beside them; a rate of none is no number.
        weight, _ = flat_columns(sample_weight=sample_weight, y_score=scores)
        roles["impressions"] = weight
        y_true = as_known_rates(np.where(weight == 0, 0.0, y_true))
    rows = read(np.empty((len(scores), 0)), y_true, None, roles, reads=roles)
    table = _matched_pairs(rows, scores, min_impressions, level)
    if per_query:
        ids = pd.Index(rows.query_ids, name="qid", tupleize_cols=False)
        return table.set_axis(ids[table.index])
    return _mean_over_pairs(table)


@describes_a_scorer
@dataclass(eq=False, repr=False)
class MatchedPairsScorer(Scorer):
    """Score how often a model orders two documents, shown at the same position, as clicks do.

    Of two documents that held-out pages showed at the same position, is the one that users clicked
    more often scored higher? The value is :func:`matched_pairs_score` of ``estimator.predict(X)``
    on the shown rows of X. It needs neither propensities nor annotation, but pages of a query in
    different orders, best in orders that training did not see:
    :class:`~skultr.model_selection.LayoutSplit`.

    Parameters
    ----------
    min_impressions : float, default=40
        Least impressions of a document at the position.
    level : float in [0, 1], default=0.05
        Level at which the two click rates must differ; see :func:`matched_pairs_score`.

    Raises
    ------
    ValueError
        By the constructor: if a parameter has a wrong type or value. When called: if y is None, X
        has no ``qid`` or no ``position``, no row was shown, or predictions are missing.

    Warns
    -----
    UndefinedMetricWarning
        If there is no pair; the score is then NaN.

    See Also
    --------
    matched_pairs_score : The metric, also by query.
    ClickLikelihoodScorer : Uses all clicks, but needs propensities.

    Notes
    -----
    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``). Without ``doc``, rows of a query with equal
    features are one document.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.metrics import MatchedPairsScorer
    >>> class Given:
    ...     def predict(self, X):
    ...         return X["score"]
    >>> X = pd.DataFrame({
    ...     "qid": 1, "session": [1, 1, 2], "doc": ["a", "b", "b"], "position": [1, 2, 1],
    ...     "impressions": 100, "score": [0.3, 0.4, 0.4],
    ... })
    >>> MatchedPairsScorer()(Given(), X, [0.3, 0.2, 0.6])
    1.0
    """

    _: KW_ONLY
    min_impressions: float = 40
    level: float = 0.05

    _constraints = _PAIR_CONSTRAINTS

    @describes_a_scorer
    def __call__(
        self,
        estimator: Predictor | Column | str,
        X: Table | ClickDataset,
        y: Column | None = None,
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
    ) -> float:
        """Share of pairs in the right order; greater is better.

        Parameters
        ----------
        {estimator}
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            Held-out rows of the log. A dataset has its own clicks and roles.
        y : array-like of shape (n_rows,)
            Clicks or click rates.
        {sample_weight}
        {roles}

        Returns
        -------
        score : float
        """
        roles = {name: value for name, value in locals().items() if name in FIT_ROLES}
        need = {"position": "to compare documents at the same position"}
        held_out = HeldOut(X, y, sample_weight, roles, caller="MatchedPairsScorer", need=need)
        scores = held_out.scores(estimator)
        table = _matched_pairs(held_out.rows, scores, self.min_impressions, self.level)
        return _mean_over_pairs(table)


def _matched_pairs(rows: Rows, scores: Floats, least: float, level: float) -> pd.DataFrame:
    """Share of pairs in the right order and their number, by code of the query."""
    columns = {
        "query": rows.query,
        "position": rows.position,
        "doc": rows.documents().code,
        "clicks": rows.clicks,
        "n": rows.weight,
        "score": scores,
    }
    shown = pd.DataFrame(columns)[rows.shown]
    cells = shown.groupby(["query", "position", "doc"])
    cells = cells.agg({"clicks": "sum", "n": "sum", "score": "median"}).reset_index()
    # Few impressions decide no pair.
    cells = cells[cells["n"] >= least]
    # Each pair once, of documents at one position of one query.
    pairs = cells.merge(cells, on=["query", "position"], suffixes=("", "_2"))
    pairs = pairs[pairs["doc"] < pairs["doc_2"]]
    n = pairs["n"]
    n_2 = pairs["n_2"]
    clicks = pairs["clicks"]
    clicks_2 = pairs["clicks_2"]
    # The z test of two proportions, with their pooled variance.
    lead = clicks / n - clicks_2 / n_2
    pooled = (clicks + clicks_2) / (n + n_2)
    variance = np.maximum(pooled * (1 - pooled), 0) * (1 / n + 1 / n_2)
    least_lead = norm.isf(level / 2) * np.sqrt(variance)
    # Equal rates may differ by rounding.
    decided = np.abs(lead) > np.maximum(least_lead, 1e-9)
    score = pairs["score"]
    score_2 = pairs["score_2"]
    right = np.where(lead > 0, score > score_2, score < score_2).astype(float)
    # Equal scores are right by half.
    pairs["right"] = np.where(score == score_2, 0.5, right)
    by_query = pairs[decided].groupby("query")["right"]
    return pd.DataFrame({"matched_pairs": by_query.mean(), "n_pairs": by_query.size()})


def _mean_over_pairs(table: pd.DataFrame) -> float:
    if table.empty:
        warn_user(
            "No two documents of a query shown at the same position have enough impressions "
            "there and click rates that differ significantly: the score is NaN. Expected pages of "
            "a query in different orders, and many of them. Lower min_impressions, or raise "
            "level, which makes the order of a pair less certain.",
            UndefinedMetricWarning,
        )
        return np.nan
    return float(np.average(table["matched_pairs"], weights=table["n_pairs"]))


class HeldOut(RowsOfLog):
    """Rows of a log to score estimators by; ``caller`` is the scorer that errors name."""

    def __init__(
        self,
        X: Table,
        y: Column,
        sample_weight: Column | None,
        roles: dict[str, Any],
        *,
        caller: str,
        need: Mapping[str, str] | None = None,
    ) -> None:
        X, y, _ = take_clicks(X, y, caller, roles)
        super().__init__(X, y, sample_weight, roles)
        self.caller = caller
        need = {"qid": "to compare the rows of a query with each other", **(need or {})}
        reads = set(FIT_ROLES)
        # Rows with propensities need no place.
        if read_role(X, "position", roles.get("position")) is None:
            reads.discard("position")
        self.rows = read(X, y, sample_weight, roles, reads=reads, need=need, caller=caller)

    def examination(self, source: ArrayLike | Estimator | None) -> Floats:
        """Examination probability of each row by the parameter ``propensity``; 1 if not shown."""
        propensity, _ = propensities(source, self, default=self._refuse_to_assume)
        # Numbers of an estimator are checked as those of a column are.
        checked = self.rows.replace("propensity", propensity)["propensity"]
        examination = np.where(self.rows.shown, checked, 1.0)
        n_unseen = int((examination == 0).sum())
        if n_unseen:
            raise ValueError(
                f"propensity is 0 in {count_of(n_unseen, 'shown row')}, first in row "
                f"{int(np.argmin(examination))}; expected a number in (0, 1] wherever a document "
                "was shown. A row that nobody could examine should have no position."
            )
        return examination

    def scores(self, ranker: Predictor | Column | str, name: str = "the estimator") -> Floats:
        """Scores of the rows by an estimator, or as given."""
        scores = scores_of_rows(ranker, self.X, self.rows, name).astype(float)
        refuse_where(
            np.isnan(scores), f"The scores of {name} are NaN", "expected a score in every row."
        )
        return scores

    def _refuse_to_assume(self):
        raise ValueError(
            f"{self.caller} needs propensities, and an assumed curve would decide which model is "
            "best: found neither a role 'propensity' nor the parameter. Pass propensity= one "
            "probability per position, or an estimator of skultr.propensity, such as "
            'RegressionEMPropensity(relevance="embedding").'
        )
