"""Clicks that a ranking would get, and the difference of two, from the log of another one."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import product
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import HasMethods, Interval, StrOptions, safe_indexing, validate_params
from .._base._typing import ArrayLike, Bools, Column, Estimator, Floats, Predictor, Table
from .._log._dataset import ClickDataset
from .._log._reader import first_rows
from .._log._segments import TINY
from ..exceptions import ClickDataWarning, python_value, warn_user
from ..metrics._scorers import Scorer
from ..propensity._source import PROPENSITY_CONSTRAINT, propensities
from ._click_table import ClickTable
from ._logged_pages import ROLES, LoggedPages, Pages

_ROUNDING = 1e-6
#: How good documents that were never shown may be, relative to the best of their position.
_LEVELS = (0.0, 0.3, 0.6, 1.0)
_NOTHING = (np.nan, np.nan, (np.nan, np.nan), np.nan)

#: The argument that each method reads, and what it assumes.
_METHODS = {
    "dr": (None, "a click depends on the document, its position and the documents above"),
    "direct": ("model", "the click model is right on these pages too"),
    "pbm": ("propensity", "a click needs examination, which depends on the position only"),
    "item-position": ("probability", "a click depends on the document and its position only"),
}
_CONSTRAINTS = {
    "y": ["array-like", str, None],
    "method": [StrOptions({*_METHODS})],
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
        Expected clicks per page (DCG with ``gain="dcg"``), or the difference; NaN, as the next
        three, if the log does not decide.
    standard_error : float
        Without errors of given propensities and models, and of documents that were never shown.
    interval : tuple of float
        95 % interval of ``value``; its ends count what was never shown as nothing and as the best.
    p_value : float
        Two-sided, of no difference between the rankings; for one ranking, from the logged pages.
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

    On every page of a query the new ranking shows the best documents, by ``scores``, of *all*
    documents that the query has in X: shown on that page, shown on other pages of the query, or
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
        What depends on each other: queries, such as paraphrases of one need, or with
        ``method="dr"`` pages, such as those of one user; one value per page, or the name of a
        column of X. Errors are those of independent clusters, and of independent queries if a
        query has several clusters.
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
        "cannot tell" if the log contradicts the method (see Notes); if it has documents away from
        their usual position in less than 1 % of the impressions; if documents that it never showed
        decide which ranking wins; if the clicks are worth fewer than 50, or the queries fewer than
        10, of equal weight; if users read to another depth where a column of X has another value,
        and it is not the ``context``; or if the fit of the formula does not converge. Methods
        other than "dr" need the documents (for ``"item-position"``: at their positions) of 90 % of
        the new pages.

    Raises
    ------
    ValueError
        If a role, a score or what the method needs is missing or not valid, scores differ for one
        document of a query (and context) or order the documents of no query, a context or a
        cluster differs within a page (a cluster with a method other than "dr" within a query), or
        k is deeper than the log.

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

    **Documents that the log never showed** count from nothing to the best that their position ever
    had; the interval goes from one end to the other, and a verdict needs both ends to agree.

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
    # Method "dr" knows what each page adds, others what each query does.
    log = LoggedPages(*log, "policy_value", **groups, several=method == "dr")
    position = log.slot_position
    if k is not None and not position.min() <= k <= position.max():
        raise ValueError(
            f"k={k}, but the log has positions {int(position.min())} to {int(position.max())}, "
            "and has clicks there only. Pass k in this range."
        )
    reads, _ = _METHODS[method]
    wrong = [name for name, value in given.items() if value is not None and name != reads]
    if wrong or (method == "direct" and given["model"] is None):
        needs = " (a click model)" if method == "direct" else ""
        raise ValueError(
            f"method={method!r} reads {reads or 'the log only'}{needs}, and got "
            f"{wrong or None}; pass what it reads, and nothing else."
        )
    scores = {name: log.scores_of(values, name) for name, values in rankings.items()}
    for (name, values), called in zip(scores.items(), options.get("names", scores), strict=True):
        log.check_order(values, name if called == name else f"{name} ({called!r})")
    parts = [_Part(part, scores, gain, k, method, given) for part in log.parts()]
    if not any(part.changed.any() for part in parts):
        logged = log.per_page(sum(part.logged for part in parts))
        same = "no difference: both rankings show the same pages."
        return PolicyEstimate(0.0, 0.0, (0.0, 0.0), 1.0, logged, 0.0, 1.0, same)
    return _judge(log, parts, method, options)


# Estimates --------------------------------------------------------------------------------------
class _Part:
    """What one ranking, or two, get on the pages of one context; sums are those of queries."""

    def __init__(self, log, scores, gain, k, method, given):
        pages, *others = (log.rank_by(values, k, name) for name, values in scores.items())
        changed = np.ones(len(pages.slot), dtype=bool)
        self.alone = not others
        if others:
            changed = pages.changed(others[0])
            pages = pages.and_of(others[0])
        position = log.slot_position
        self.gains = np.ones(len(position)) if gain == "clicks" else 1 / np.log2(1 + position)
        if k is not None:
            self.gains = self.gains * (position <= k)
        self.log = log
        self.pages = pages
        self.changed = changed
        self.method = method
        #: What a click in each row is worth, and the size of that where the rankings differ.
        self.mass = (1 - 2 * pages.ranking) * (log.slot_pages * self.gains)[pages.slot]
        self.due = np.abs(self.mass) * changed
        clicks = log.weight * log.rate * self.gains[log.slot]
        self.logged = np.bincount(log.slot_query[log.slot], clicks, len(log.query_pages))
        self.given = given

    @cached_property
    def table(self):
        """The formula of "dr"."""
        return ClickTable(self.log)

    @cached_property
    def clicks(self):
        """P(click) of each row by the method, and what it rests on."""
        return _clicks(self.pages, self.due, self.table, self.method, self.given)

    @cached_property
    def value(self):
        return self.by_query(self.clicks.p)

    def by_query(self, p):
        """Clicks from P(click) of the rows."""
        return self.pages.by_query(self.mass * p)

    def end(self, levels):
        """Clicks if what the log never showed is as good, of the best, as this level of each
        ranking."""
        unseen = self.changed & self.table.never_shown[self.pages.pair]
        if self.method != "dr" or not unseen.any():
            return self.value
        level = np.array(levels)[self.pages.ranking]
        return self.by_query(self.table.predict(self.pages, np.where(unseen, level, 0.0)))

    def errors(self):
        """See :meth:`ClickTable.errors`; the last is that of clicks in the log."""
        return self.table.errors(self.pages, self.mass, self.gains)

    def moved(self):
        """Clicks that the method did not predict where documents are higher than they usually are,
        minus those where they are lower."""
        log = self.log
        n = len(self.log.pair_query)
        height = np.log(np.maximum(self.table.slope, TINY))[log.slot]
        pair = log.pair[log.row]
        weighed = (np.bincount(pair, log.weight * values, n) for values in (height, 1.0))
        away = height - np.divide(*(sums + TINY for sums in weighed))[pair]
        return log.of_pages(log.weight * away * (log.rate - self.clicks.logged))


def _judge(log, parts, method, options):
    """The estimate of one ranking, or of two, in numbers and words."""

    def total(part_sums):
        return sum(part_sums(part) for part in parts)

    alone = parts[0].alone
    dr = method == "dr"
    logged = total(lambda part: part.logged)
    per_page = log.per_page(logged)
    n_queries = log.n_equal(total(lambda part: part.pages.by_query(part.due)))
    covered, whole = (total(lambda part, n=n: part.clicks.support[n]) for n in (0, 1))
    support = float((covered / np.maximum(whole, TINY)).min())
    effective = float(max(part.clicks.effective for part in parts))
    counts = (per_page, effective, support)
    doubt = doubt_of(log, parts, method, support, effective, n_queries)
    if doubt := doubt or doubt_of_formula(log, parts, method):
        return PolicyEstimate(*_NOTHING, *counts, f"cannot tell: {doubt}.")
    # Other methods are told without the formula, which only tests them.
    settled = all(part.table.converged for part in parts)
    curve, noise, own_noise, variance = (
        (sum(sums) for sums in zip(*(part.errors() for part in parts), strict=True))
        if settled
        else (*np.zeros((3, len(log.page_query))), 0.0)
    )
    influence, prior = (curve, variance) if dr else (0.0, 0.0)
    new = options["queries"] == "new" or not dr

    def measured(by_query, noise):
        value = log.per_page(by_query)
        # What queries differ by, their own chance included; the log's own are what they are.
        beyond = new * (by_query - value * log.query_pages - log.of_queries(noise))
        by_page = log.over_pages(beyond) + noise + influence
        return value, log.error_per_page(by_page, prior, new=new)

    by_query = total(lambda part: part.value)
    (value, error), base = measured(by_query, noise), logged if alone else 0.0
    same = np.isclose(by_query, base, rtol=1e-9, atol=0) & alone  # but for rounding
    own = own_noise if alone else 0.0
    gained, gained_error = measured(np.where(same, 0.0, by_query - base), noise - own)
    # Documents that the log never showed: from the least to the greatest clicks. Users who leave
    # after a click may click most where these are neither bad nor best.
    ends = [
        log.per_page(total(lambda part, levels=levels: part.end(levels)))
        for levels in product(_LEVELS, repeat=1 if alone else 2)
    ]
    low = min(ends)
    high = max(ends)
    gained_low = gained + low - value
    gained_high = gained + high - value
    agree = gained_low * gained_high > 0 or low == high
    near = min(abs(gained_low), abs(gained_high)) if agree else 0.0
    n = options["n_candidates"]
    p_value = min(n * p_value_of(near, gained_error, n_queries), 1.0)
    wins = p_value < LEVEL
    half = student.ppf(1 - LEVEL / n / 2, n_queries - 1) * error
    names = ("the ranking", "the log") if alone else options["names"]
    if not agree:
        doubt = (
            f"{1 - support:.0%} of the clicks are at places of documents that the log never "
            f"showed, so that {names[0]} gets from {gained_low / per_page:+.1%} to "
            f"{gained_high / per_page:+.1%} of the clicks more than {names[1]}. Show these "
            "documents on some pages"
        )
    elif dr:
        width = (
            f"the interval is as wide as ±{half / per_page:.0%} of the clicks. Log more sessions"
        )
        doubt = width if half > _WIDEST * per_page else ""
    else:
        beyond = by_query - total(lambda part: part.by_query(part.table.predict(part.pages)))
        off = log.per_page(beyond)
        residual = log.over_pages(beyond - off * log.query_pages) - curve
        test_error = log.error_per_page(residual, variance)
        seen = settled and abs(off) > _ROUNDING * per_page
        claimed = gained if wins else None
        doubt = seen and doubt_of_method(off, test_error, claimed, n_queries, method)
    if doubt:
        return PolicyEstimate(*_NOTHING, *counts, f"cannot tell: {doubt}.")
    interval = (float(low - half), float(high + half))
    winner, other = names if gained_low > 0 else names[::-1]
    verdict = (
        f"{f'{winner} gets more than {other}' if wins else 'no difference seen'}: {value:.4g} per "
        f"page (95 % interval {interval[0]:.4g} to {interval[1]:.4g}), which is "
        f"{gained / per_page:+.1%} of the clicks in the log, if {_METHODS[method][1]}."
    )
    if dr and low != high:
        verdict += (
            f" {1 - support:.0%} of the clicks are at places of documents that the log never "
            "showed; the interval counts them from nothing to the best of their position."
        )
    if not log.has_pages:
        verdict += " Counts without sessions cannot test whether the documents above matter."
    return PolicyEstimate(value, error, interval, p_value, *counts, verdict)


class _Clicks(NamedTuple):
    """P(click) by a method, and what it rests on."""

    p: Floats  # of each row of the pages
    logged: Floats  # of each row of the log
    support: tuple[Floats, Floats]  # clicks at places that it can speak of, and all, by ranking
    effective: float  # number of clicks


def _clicks(pages, due, table, method, given):
    """P(click) of each row of the pages, and what it rests on."""
    log = pages.log
    clicks = table.predict(pages)
    logged = log.rate
    shown = log.weight
    slope = table.slope
    row_unit = log.pair[log.row]
    unit = pages.pair
    there = np.bincount(row_unit, minlength=len(log.pair_query))[unit] > 0
    if method == "direct":
        clicks, logged = _by_model(pages, given["model"])
    elif method != "dr":
        if method == "pbm":
            values, _ = propensities(given["propensity"], log, default=_refuse_to_assume)
            values = log.rows.replace("propensity", values)["propensity"]
            exposure = _positive(values, log, "propensity")
            slope = log.mean_by_position(exposure)
        else:
            if given["probability"] is not None:
                values = np.asarray(given["probability"], dtype=float)
                shown = shown / _positive(values, log, "probability")
            exposure = 1.0
            slope = np.ones(len(slope))
            (_, row_unit), (unit, there) = log.shown_cells, pages.cell()
        exposed, total = (np.bincount(row_unit, shown * factor) for factor in (exposure, log.rate))
        unit = np.where(there, unit, row_unit[0])
        rate = total / np.maximum(exposed, TINY)
        # Where the log has nothing, the formula of "dr" fills the gap.
        clicks = np.where(there, slope[pages.slot] * rate[unit], clicks)
        logged = exposure * rate[row_unit]
    exposed = shown * slope[log.slot]
    carried = np.bincount(unit, due * there * slope[pages.slot])
    # Clicks of equal weight that tell as much, (Σ w)² / Σ w² (Kish).
    carried = np.append(carried, np.zeros(max(row_unit.max() + 1 - len(carried), 0)))
    told = carried / np.maximum(np.bincount(row_unit, exposed, len(carried)), TINY)
    weight = told[row_unit] * shown / log.weight
    n_clicks = log.rate * log.weight
    effective = (weight * n_clicks).sum() ** 2 / max((weight**2 * n_clicks).sum(), TINY)
    return _Clicks(clicks, logged, support_of(pages, due, there), float(effective))


def _by_model(pages, model):
    """P(click) of rows of pages, and of the log, by a click model, fitted if it is not."""
    log = pages.log
    if hasattr(model, "fit"):
        try:
            check_is_fitted(model)
        except NotFittedError:
            roles = {name: values for name, values in log.roles.items() if values is not None}
            model = clone(model).fit(log.X, log.y, log.sample_weight, **roles)
    row = first_rows(log.pair, len(log.pair_query))[pages.pair]
    places = (
        (row, pages.ranking, log.slot_position[pages.slot]),
        (log.row, log.rows.choice[log.row], log.slot_position[log.slot]),
    )
    found = []
    for rows, session, position in places:
        roles = {"qid": log.rows["qid"][rows], "session": session, "position": position}
        roles["doc"] = None if log.rows["doc"] is None else log.rows["doc"][rows]
        predicted = model.predict_click(safe_indexing(log.X, rows), conditional=False, **roles)
        found.append(np.asarray(predicted, dtype=float))
        if not ((found[-1] >= 0) & (found[-1] <= 1)).all():  # also NaN
            raise ValueError(
                f"{type(model).__name__}.predict_click has values outside [0, 1]; expected none."
            )
    return found


def _refuse_to_assume():
    raise ValueError(
        "method='pbm' needs propensities, and an assumed curve would decide which ranking wins. "
        "Pass propensity= one probability per position or an estimator of skultr.propensity, or "
        "add the role 'propensity'; or use method='dr'."
    )


def _positive(values, log, name):
    """The numbers of the shown rows, after their checks."""
    if values.shape != (log.rows.n_rows,):
        raise ValueError(f"{name} has the shape {values.shape}; expected one per row of X.")
    wrong = ~((values[log.row] > 0) & (values[log.row] <= 1))
    if wrong.any():
        row = log.row[wrong.argmax()]
        raise ValueError(
            f"{name} is {values[row]:g} in row {row}, which was shown; expected a number in "
            "(0, 1] there."
        )
    return values[log.row]


@dataclass(eq=False, repr=False)
class PolicyValueScorer(Scorer):
    """Scorer: expected clicks per page if the estimator ranked the documents of each query.

    Its parameters are those of :func:`policy_value`, by which it judges ``estimator.predict(X)``.
    A search scores by the clicks of a fold, to which ``model`` and ``propensity`` are fitted if
    they are not. If these cannot tell, the score is NaN, ranked last, with a ClickDataWarning.

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


LEVEL = 0.05
#: Below this share of the changed places that the log speaks of, it cannot tell.
_LEAST_SUPPORT = 0.9
#: Below so many clicks of equal weight, or queries of equal traffic, intervals are no use.
_LEAST_CLICKS = 50
LEAST_QUERIES = 10
#: Share of impressions away from a document's usual position that a test of users needs.
_LEAST_MOVED = 0.01
#: Standard errors by which pages must differ less than by the formula to refute it.
_LEAST_WRONG = 2.6
#: Exponent of the position by which examination must differ between two values of a column, and
#: its standard errors (many columns are tried), before they must not be taken together.
_LEAST_STEEPER, _LEAST_Z = 0.25, 4.0
#: Half-width of an interval, relative to the clicks, beyond which it does not hold, because the
#: errors of the curve are not small.
_WIDEST = 0.25


def doubt_of(
    log: LoggedPages,
    parts: list[_Part],
    method: str,
    support: float,
    effective: float,
    n_queries: float,
) -> str:
    """Why the log has too little of what the rankings show."""
    if not log.rate.any():
        return "the log has no click"
    cells = np.sum([support_of(p.pages, p.due, p.pages.cell()[1]) for p in parts], axis=0)
    shares = [part.log.weight.sum() / log.weight.sum() for part in parts]
    moved = sum(share * part.log.moved() for share, part in zip(shares, parts, strict=True))
    if (cells[0] < _LEAST_SUPPORT * cells[1]).any() and moved < _LEAST_MOVED:
        return (
            f"documents are at their usual position in {1 - moved:.1%} of the impressions, so "
            "that the log cannot test the effect of another position, whatever propensities or "
            "models say. Log some pages with random swaps"
        )
    if support < _LEAST_SUPPORT and method != "dr":  # which counts the rest from none to best
        return (
            f"the log has {support:.0%} of the documents that the ranking shows, or moves, and "
            f"{_LEAST_SUPPORT:.0%} are needed. Log more random pages, or use method='dr'"
        )
    for number, least, what in [
        (effective, _LEAST_CLICKS, "clicks"),
        (n_queries, LEAST_QUERIES, "queries" if log.cluster is None else "queries or clusters"),
    ]:
        if number < least:
            return (
                f"the {what} are worth {number:.1f} of equal weight, and {least} are needed. Log "
                "more sessions"
            )
    return ""


def doubt_of_formula(log: LoggedPages, parts: list[_Part], method: str) -> str:
    """Why the method cannot be believed, if the log itself contradicts it."""
    if method == "dr" and not all(part.table.converged for part in parts):
        return (
            "the effect of positions did not converge, because the clicks hardly determine it. "
            "Log more sessions, or more random pages"
        )
    if method in ("pbm", "direct"):
        moved = sum(part.moved() for part in parts)
        error = log.error_per_page(moved) * log.query_pages.sum()
        if abs(moved.sum()) > _LEAST_WRONG * error:
            way = "more" if moved.sum() > 0 else "fewer"
            return (
                f"the log contradicts method={method!r}: documents that are higher than usual "
                f"get {way} clicks than it predicts (p = {p_value_of(moved.sum(), error, 1e9):.2g}"
                "). Use method='dr'"
            )
    if method in ("dr", "pbm"):
        for part in parts:
            excess, error = part.table.excess(part.gains)
            # A ranking that is worth more than predicted does no harm.
            if excess <= -_LEAST_WRONG * error:
                return (
                    "the log contradicts the formula: between the pages of a query clicks differ "
                    f"by {max(1 + excess, 0):.0%} of what it predicts. Use method="
                    "'item-position', or an experiment (plan_experiment, Interleaver)"
                )
    return "" if log.context is not None else doubt_of_contexts(log, parts[0].table)


def doubt_of_contexts(log: LoggedPages, table: ClickTable) -> str:
    """Why pages of different columns of the log must not be taken together.

    Each value of a column is compared with each other one: two that differ from their mean by as
    much in opposite directions differ twice as much from each other.
    """
    for name, codes, values in log.page_columns():
        steeper, influence = _steeper(log, table, codes, len(values))
        apart = np.subtract.outer(steeper, steeper)
        shared = influence @ influence.T
        own = np.diag(shared)
        error = np.sqrt(np.maximum(np.add.outer(own, own) - 2 * shared, TINY))
        differs = (apart > _LEAST_STEEPER) & (apart > _LEAST_Z * error)
        if not differs.any():
            continue
        deeper, other = np.unravel_index(np.where(differs, apart, 0.0).argmax(), apart.shape)
        return (
            f"users read to another depth where the column {name!r} has another value "
            f"(examination at {python_value(values[deeper])!r} is that at "
            f"{python_value(values[other])!r} times the position to the power of "
            f"{apart[deeper, other]:.2f} ± {error[deeper, other]:.2f}). Pass context={name!r}"
        )
    return ""


def _steeper(log, table, codes, n_values):
    """Exponent of the position by which the examination of each value of a column differs from the
    predicted one, and what each query moves it by, (n_values, n_queries).

    With clicks y and their predictions p, the sum of (y - p) times the log of the position, for
    the pages of one value, is 0 if their users read as deep as predicted.
    """
    depth = np.log(log.slot_position)[log.slot]
    p = log.weight * table.predict_logged()
    clicks = log.weight * log.rate
    query = log.slot_query[log.slot]
    steeper = np.full(n_values, np.nan)  # where clicks at several positions are missing
    influence = np.zeros((n_values, len(log.query_pages)))
    for code in range(n_values):
        inside = codes == code
        away = np.where(inside, depth - depth[inside] @ p[inside] / p[inside].sum(), 0.0)
        level = clicks[inside].sum() / p[inside].sum()
        known = level * (p @ away**2)
        if known > 0:
            by_query = np.bincount(query, away * (clicks - level * p), influence.shape[1])
            influence[code] = by_query / known
            steeper[code] = influence[code].sum()
    return steeper, influence


def doubt_of_method(
    beyond: float, error: float, claimed: float | None, n_queries: float, method: str
) -> str:
    """Why two methods forbid to believe one; ``claimed`` if it would win."""
    if (p_value := p_value_of(beyond, error, n_queries)) < LEVEL:
        return (
            f"method={method!r} and method='dr' disagree by {beyond:+.4g} per page (p = "
            f"{p_value:.2g}), and the clicks of the log contradict neither. Log more random pages"
        )
    if claimed is not None and p_value_of(claimed, error, n_queries) >= LEVEL:
        return (
            "the log is too small to test what the method assumes: an error as large as the "
            "difference would not be seen. Log more random pages"
        )
    return ""


def p_value_of(value: float, error: float, n_queries: float) -> float:
    """Two-sided, of a value of 0."""
    return float(2 * student.sf(abs(value) / error, n_queries - 1)) if error else float(value == 0)


def support_of(pages: Pages, due: Floats, there: Bools) -> tuple[Floats, Floats]:
    """Clicks at the places where the log is, and at all, of each ranking."""
    clicks = due * pages.log.mean_by_position(pages.log.rate)[pages.slot]
    return tuple(np.bincount(pages.ranking, sums) for sums in (clicks * there, clicks))
