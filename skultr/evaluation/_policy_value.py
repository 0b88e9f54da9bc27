"""Clicks that a ranking would get, and the difference of two, from the log of another one."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from .._base._sklearn import HasMethods, Interval, StrOptions, validate_params
from .._base._typing import ArrayLike, Column, Estimator, Predictor, Table
from .._log._dataset import ClickDataset
from ..exceptions import ClickDataWarning, warn_user
from ..metrics._scorers import Scorer
from ..propensity._source import PROPENSITY_CONSTRAINT
from ._logged_pages import ROLES, LoggedPages
from ._policy_estimate import Context, Worth
from ._policy_methods import METHODS
from ._policy_verdict import doubt_after, doubt_before, verdict_of

_CONSTRAINTS = {
    "y": ["array-like", str, None],
    "method": [StrOptions({*METHODS})],
    "model": [HasMethods(["predict_click"]), None],
    "propensity": PROPENSITY_CONSTRAINT,
    "probability": ["array-like", None],
    "gain": [StrOptions({"clicks", "dcg"})],
    "k": [Interval(Integral, 1, None, closed="left"), None],
    "context": ["array-like", str, None],
    "cluster": ["array-like", str, None],
    "queries": [StrOptions({"new", "log"})],
    "n_candidates": [Interval(Integral, 1, None, closed="left")],
    "sample_weight": ["array-like", None],
}
_SCORES = ["array-like", str, HasMethods(["predict"])]
_Method = Literal["dr", "direct", "pbm", "item-position"]
_Gain = Literal["clicks", "dcg"]


class PolicyEstimate(NamedTuple):
    """Result of :func:`policy_value` or of :func:`policy_difference`.

    Parameters
    ----------
    value : float
        Expected clicks per page (DCG with ``gain="dcg"``), or the difference. If the log does not
        decide, it is NaN, and so are the next three.
    standard_error : float
        Standard error of ``value``. It does not include errors in the propensities or models you
        pass, nor the uncertainty about documents that were never shown.
    interval : tuple of float
        95 % interval of ``value``. Its lower end counts what was never shown as nothing, its upper
        end as the best.
    p_value : float
        Two-sided p-value of no difference between the two rankings, or between the ranking and
        the logged pages.
    logged : float
        Clicks (DCG) per page of the log.
    effective_sample_size : float
        Number of equally weighted clicks of the same precision (Kish), on documents that two
        rankings have at different places.
    support : float
        Share of the places that the log covers, positions weighted by their clicks; of two
        rankings where they differ, for the one that it covers less.
    verdict : str
        In words; begins with "cannot tell" if the log does not decide.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float
    logged: float
    effective_sample_size: float
    support: float
    verdict: str

    def __repr__(self) -> str:
        low, high = self.interval
        numbers = (
            f"value={self.value:.4g}, interval=({low:.4g}, {high:.4g}), p_value={self.p_value:.2g}"
        )
        return f"PolicyEstimate({numbers},\n    verdict={self.verdict!r})"


@validate_params(_CONSTRAINTS | {"scores": _SCORES}, prefer_skip_nested_validation=True)
def policy_value(
    X: Table | ClickDataset,
    y: Column | str | None,
    scores: Predictor | ArrayLike | str,
    *,
    method: _Method = "dr",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: _Gain = "clicks",
    k: int | None = None,
    context: Column | str | None = None,
    cluster: Column | str | None = None,
    queries: Literal["new", "log"] = "new",
    n_candidates: int = 1,
    sample_weight: Column | None = None,
    **roles: Any,
) -> PolicyEstimate:
    r"""Estimate the clicks per result page of a ranking from the log of another ranking.

    On every page of a query the new ranking shows the best documents by ``scores``. It chooses
    from *all* documents that the query has in X: shown on that page, shown on other pages, or
    never shown (rows without a position). It fills the positions that the logged page had.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns), or ClickDataset
        The log, raw or counted (``impressions``), with the roles ``qid``, ``doc``, ``position``,
        and ``session`` if it is raw.
    y : array-like of shape (n_rows,) or str
        Clicks, numbers of clicks or click rates, or the name of the column of X that holds them.
    scores : fitted ranker, array-like of shape (n_rows,), or str
        The new ranking: a ranker, scores, or their column of X. Greater is better; the same in all
        rows of a document of a query. Equal scores are ordered by chance, in the same way in every
        call.
    method : {"dr", "direct", "pbm", "item-position"}, default="dr"
        What is assumed of clicks on pages that the log does not have:

        - ``"dr"``: a click depends on the document, its position, and how good the documents above
          are (if the log has pages, not counts). A fitted formula, corrected by the click rate of
          each document at each position as far as the log shows that the formula errs.
        - ``"direct"``: the click ``model`` is right. Shrunk relevance is too high for documents
          that a ranking puts first because they are worst: take ``PBMModel(prior=None)``.
        - ``"pbm"``: a click at the position j counts o(new position) / o(j), with ``propensity``
          o.
        - ``"item-position"``: a document is clicked as on the logged pages that had it at the
          same position.
    model : object with a method ``predict_click``, default=None
        A click model; a clone is fitted on X if it is not yet fitted.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Examination, as for :class:`~skultr.metrics.IPSScorer`.
    probability : array-like of shape (n_rows,), default=None
        For ``"item-position"``: probability with which the logging policy showed the document of
        the row at its position, if it differs between pages of a query and is known.
    gain : {"clicks", "dcg"}, default="clicks"
        Value of a click: 1, or 1 / log2(1 + position).
    k : int or None, default=None
        Positions that count; None for all.
    context : array-like of shape (n_rows,) or str, default=None
        What differs between pages, such as the device: one value per page, or the name of a column
        of X. Clicks are estimated within each value and added up; scores may depend on it.
    cluster : array-like of shape (n_rows,) or str, default=None
        What depends on each other: queries, such as paraphrases of one need, or, with
        ``method="dr"``, pages, such as those of one user. One value per page, or the name of a
        column of X. Errors are those of independent clusters; if a query has several clusters,
        also of independent queries.
    queries : {"new", "log"}, default="new"
        What the interval is about: other queries like those of the log, or its own queries in
        other sessions. Only ``method="dr"`` knows the second, which is narrower.
    n_candidates : int, default=1
        Number of rankings that are compared on this log, of which one is chosen: intervals and
        p-values hold for all together (Bonferroni).
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    **roles : array-like of shape (n_rows,)
        ``qid``, ``session``, ``doc``, ``position``, ``impressions`` or ``doc_scope`` as keywords,
        which take precedence over columns.

    Returns
    -------
    estimate : PolicyEstimate
        Its verdict is "cannot tell" if

        - the log contradicts the method (see Notes), or the fit of the formula does not converge;
        - documents are away from their usual position in less than 1 % of the impressions;
        - documents that the log never showed decide which ranking wins;
        - the effective number of clicks is below 50, or that of queries or clusters below 10;
        - how deep users read depends on a column of X, and that column is not the ``context``;
        - the method is not "dr", and the log lacks documents (for ``"item-position"``: at their
          positions) of more than 10 % of the new pages.

    Raises
    ------
    ValueError
        If

        - a role, a score or what the method needs is missing or not valid;
        - scores differ for one document of a query (and context), or order no query;
        - a context or a cluster differs within a page, or, with a method other than "dr", a
          cluster within a query;
        - k is deeper than the log.

    Notes
    -----
    **"dr"** takes P(click) = :math:`(b_j (θ + κ (1 - 1/d_j) (θ - \bar θ)) + δ) f` for a document
    of the quality θ at the position j. The examination b comes from the moves of documents alone:
    at which positions the clicks of each fell, given their number. κ is trust in positions: at the
    top, users click bad documents as well (d is the depth of the position). f is the chance that
    no click above ended the visit, estimated from the clicks of whole pages. The deviations δ of a
    document at a position have a variance that the log determines: if it is large, click rates of
    documents at positions count, as for "item-position"; where it is 0, the formula alone. The
    interval includes the errors of all of these, and the whole difference that κ makes. Whole
    pages of the log must get the clicks that the formula predicts, compared with other pages of
    their query; if not, there is no verdict.

    **A document that the log never showed** may get no clicks, or as many as the best document
    ever got at that position. The interval covers both extremes, and there is a verdict only if
    both lead to the same winner.

    **Other methods** must predict the clicks on documents of the log that are higher or lower
    than they usually are. If they do, and still differ from "dr" (paired by query, p < 0.05), the
    two are said to disagree. Counts without pages cannot test whether the documents above matter:
    users who stop at a click are then judged as if positions made them.

    **How far it goes.** On a grid of simulated logs of 12,000 pages (seven kinds of users, eight
    ways to randomise, two production rankers, four new rankings; 556 pairs), "dr" gave a
    verdict on 343, named a winner in 98, and none wrongly; its intervals (``queries="log"``)
    held the truth in 98 %. It named the winner of 57 % of the pairs that differ by 1 % of the
    clicks or more, on logs that move documents and show all of them; with users who trust
    positions of 11 %, because trust is hard to measure. With users who leave when they are
    satisfied, or after the first click, few winners are named: the order hardly changes how often
    they click. If a document that was never shown is on top of 20 % of the queries, nearly all
    logs cannot tell. For other queries (``queries="new"``) intervals held
    the mean of all queries in 95 to 96 % of the logs of 40 and of 150 queries, with equal traffic
    and by Zipf's law, of position-based users (100 logs each; of 40 queries by Zipf's law 79 got a
    verdict). Where 60 users had habits in 40 queries, they held it in all of 100 logs with
    ``cluster``, in 85 without; those for own queries held in 98, without in 65. With satisfied
    users and 12 to 40 queries, intervals for own queries are 1.4 to 2 times too wide, and 58 of
    128 logs got a verdict. Logs of 2,000 sessions are too short. Trust that falls more steeply
    than as 1/d leaves an error: of 0.004 clicks per page where 0.6, 0.3 and 0.1 of the clicks at
    three positions are of trust.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay & Wen (2018). Offline evaluation of ranking
    policies with click models. KDD. Su, Dimakopoulou, Krishnamurthy & Dudík (2020). Doubly robust
    off-policy evaluation with shrinkage. ICML. Hausman (1978). Specification tests in
    econometrics. Econometrica 46. Vardasbi, Oosterhuis & de Rijke (2020). When inverse propensity
    scoring does not work. CIKM (trust).

    Examples
    --------
    Counts of 20 queries whose two documents change places in half of the pages:

    >>> import pandas as pd
    >>> from skultr.evaluation import policy_value
    >>> X = pd.DataFrame({"qid": range(20)}).merge(pd.DataFrame({
    ...     "doc": ["good", "good", "bad", "bad"], "position": [1, 2, 2, 1],
    ...     "impressions": 100, "rate": [0.5, 0.3, 0.1, 0.2],
    ... }), how="cross")
    >>> found = policy_value(X, "rate", scores=X["doc"] == "good", method="item-position")
    >>> round(found.value, 2), found.support, round(found.logged, 2)
    (0.6, 1.0, 0.55)
    """
    return _estimate(
        (X, y, sample_weight, roles),
        {"scores": scores},
        gain,
        k,
        method,
        given={"model": model, "propensity": propensity, "probability": probability},
        groups={"context": context, "cluster": cluster},
        options={"queries": queries, "n_candidates": n_candidates},
    )


@validate_params(
    _CONSTRAINTS | {"scores_a": _SCORES, "scores_b": _SCORES, "names": ["array-like"]},
    prefer_skip_nested_validation=True,
)
def policy_difference(
    X: Table | ClickDataset,
    y: Column | str | None,
    scores_a: Predictor | ArrayLike | str,
    scores_b: Predictor | ArrayLike | str,
    *,
    method: _Method = "dr",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: _Gain = "clicks",
    k: int | None = None,
    names: tuple[str, str] = ("a", "b"),
    context: Column | str | None = None,
    cluster: Column | str | None = None,
    queries: Literal["new", "log"] = "new",
    n_candidates: int = 1,
    sample_weight: Column | None = None,
    **roles: Any,
) -> PolicyEstimate:
    """Estimate the clicks per result page of one ranking minus those of another one.

    Both rankings are judged by the same sessions. Places where they have the same document
    cancel, so that the difference has far less variance than its two terms.

    Parameters
    ----------
    X, y, method, model, propensity, probability, gain, k, sample_weight, **roles
        See :func:`policy_value`, also for ``context``, ``cluster``, ``queries`` and
        ``n_candidates``.
    scores_a, scores_b : fitted ranker, array-like of shape (n_rows,), or str
        The two rankings, such as a ranker and the column ``"production"``.
    names : tuple of (str, str), default=("a", "b")
        What the verdict calls them, such as ("new", "old").

    Returns
    -------
    estimate : PolicyEstimate
        "cannot tell" as from :func:`policy_value`, for the places where the rankings differ.

    Notes
    -----
    The standard error is that of the mean of paired differences by query, weighted by traffic; see
    ``queries``.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import policy_difference
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(100, n_features=5, random_state=0)
    >>> X, clicks, _ = simulate_clicks(documents, n_sessions=20_000, candidates=True,
    ...     policy=PlackettLucePolicy(temperature=1.0), random_state=0)
    >>> by_grade, by_chance = X["relevance"], np.sin(X["doc"])
    >>> found = policy_difference(X, clicks, by_grade, by_chance)
    >>> found.verdict.split(":")[0], found.p_value < 0.001
    ('a gets more than b', True)
    """
    return _estimate(
        (X, y, sample_weight, roles),
        {"scores_a": scores_a, "scores_b": scores_b},
        gain,
        k,
        method,
        given={"model": model, "propensity": propensity, "probability": probability},
        groups={"context": context, "cluster": cluster},
        options={"queries": queries, "n_candidates": n_candidates, "names": names},
    )


def _estimate(log, rankings, gain, k, method, given, groups, options):
    """The estimate of a ranking, or of the difference of two."""
    kind = METHODS[method]
    log = LoggedPages(*log, "policy_value", **groups, several=kind.knows_pages)
    # What was asked must be in the log.
    position = log.slot_position
    if k is not None and not position.min() <= k <= position.max():
        raise ValueError(
            f"k={k}, but the log has positions {int(position.min())} to {int(position.max())}, "
            "and has clicks there only. Pass k in this range."
        )
    # Arguments that the method cannot read are an error before anything is estimated.
    method = kind(given)
    scores = {name: log.scores_of(values, name) for name, values in rankings.items()}
    names = options.get("names", tuple(scores))
    for (argument, values), called in zip(scores.items(), names, strict=True):
        log.check_order(values, argument if called == argument else f"{argument} ({called!r})")
    # Clicks are estimated in each context, and added up.
    contexts = [Context(part, scores, gain, k, method) for part in log.parts()]
    # Two rankings with the same pages need no estimate.
    if not any(context.changed.any() for context in contexts):
        logged = log.per_page(sum(context.logged for context in contexts))
        same = "no difference: both rankings show the same pages."
        return PolicyEstimate(0.0, 0.0, (0.0, 0.0), 1.0, logged, 0.0, 1.0, same)
    worth = Worth(log, contexts, method, options)
    return _judged(worth, options.get("names", ("the ranking", "the log")))


def _judged(worth, names):
    """The numbers and the verdict; without numbers where the log cannot tell."""
    doubt = doubt_before(worth)
    if not doubt:
        worth.measure()
        doubt = doubt_after(worth, names)
    # What the log has is told even where it does not decide.
    counts = (worth.logged, worth.n_clicks, worth.support)
    if doubt:
        no_interval = (np.nan, np.nan)
        verdict = f"cannot tell: {doubt}."
        return PolicyEstimate(np.nan, np.nan, no_interval, np.nan, *counts, verdict)
    verdict = verdict_of(worth, names)
    return PolicyEstimate(
        worth.value, worth.error, worth.interval, worth.p_value, *counts, verdict
    )


@dataclass(eq=False, repr=False)
class PolicyValueScorer(Scorer):
    """Scorer: expected clicks per page if the estimator ranked the documents of each query.

    Its parameters are those of :func:`policy_value`, by which it judges ``estimator.predict(X)``.
    A search scores by the clicks of a fold; ``model`` and ``propensity`` are fitted to the fold
    unless they are fitted already. If the clicks cannot tell, the score is NaN, ranked last, with
    a ClickDataWarning.

    The best of many candidates owes a part of its score to luck: of 10 equal ones whose scores
    have independent errors it is 1.5 standard errors too high, of 100 2.5. Judge the winner on
    other queries, or call :func:`policy_difference` with ``n_candidates``.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import PolicyValueScorer
    >>> from skultr.simulation import UniformPolicy, simulate_clicks
    >>> class ByGrade:
    ...     def predict(self, X):
    ...         return X["relevance"]
    >>> X, clicks, truth = simulate_clicks(make_ltr(100, n_documents=5, random_state=0),
    ...     n_positions=5, n_sessions=20_000, policy=UniformPolicy(), random_state=0)
    >>> bool(PolicyValueScorer()(ByGrade(), X, clicks) > clicks.sum() / 20_000)
    True
    """

    method: str = "dr"
    _: KW_ONLY
    model: Any = None
    propensity: Any = None
    gain: str = "clicks"
    k: int | None = None
    context: Column | str | None = None

    _constraints = _CONSTRAINTS
    _roles = (*ROLES, "sample_weight")

    def __call__(
        self, estimator: Predictor, X: Table, y: Column | str | None = None, **roles: Column | None
    ) -> float:
        """Value by the clicks ``y`` of X; ``roles`` are those of the log, and sample_weight."""
        found = policy_value(X, y, estimator, **vars(self), **roles)
        if np.isnan(found.value):
            warn_user(f"The score is NaN: {found.verdict}", ClickDataWarning)
        return found.value
