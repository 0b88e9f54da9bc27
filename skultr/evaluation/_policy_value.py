"""Clicks that a ranking would get, and the difference of two, from the log of another one."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from .._sklearn import HasMethods, Interval, StrOptions, validate_params
from .._typing import ArrayLike, Column, Estimator, Floats, Table
from ..propensity._source import PROPENSITY_CONSTRAINT, row_propensities
from ._carried_clicks import Target, by_cell, by_pair, carried, corrected, modelled
from ._logged_pages import LoggedPages, Pages, read_pages

if TYPE_CHECKING:
    from .._log._dataset import ClickDataset

__all__ = ["PolicyDifference", "PolicyValue", "policy_difference", "policy_value"]

#: Below this share of the changed places that the log speaks of, it cannot tell.
_LEAST_SUPPORT = 0.8
#: Below so many equally weighted clicks, or queries of equal traffic, intervals are no use.
_LEAST_CLICKS = 50
_LEAST_QUERIES = 10
#: Share of impressions away from a document's usual position that a fitted model needs.
_LEAST_MOVED = 0.01

#: The arguments that each method reads, and what it assumes.
_METHODS = {
    "item-position": (
        {"probability"},
        "if a click depends on the document and its position only",
    ),
    "pbm": ({"propensity"}, "if a click needs an examination that depends on the position only"),
    "direct": ({"model"}, "if the click model is right on other pages too"),
    "dr": (
        {"model", "propensity", "probability"},
        "if the click model is right on other pages too, or its errors can be carried over",
    ),
}

_CONSTRAINTS = {
    "X": "no_validation",
    "y": ["array-like", str, None],
    "method": [StrOptions({*_METHODS})],
    "model": [HasMethods(["fit", "predict_click"]), HasMethods(["predict_click"]), None],
    "propensity": PROPENSITY_CONSTRAINT,
    "probability": ["array-like", None],
    "gain": [StrOptions({"clicks", "dcg"})],
    "k": [Interval(Integral, 1, None, closed="left"), None],
    "sample_weight": ["array-like", None],
    **dict.fromkeys(("qid", "session", "doc", "position", "impressions"), "no_validation"),
}


class PolicyValue(NamedTuple):
    """What :func:`policy_value` returns; NaN in the first three where the log cannot tell.

    Parameters
    ----------
    value : float
        Expected clicks per page, or DCG of the clicks with ``gain="dcg"``.
    standard_error : float
        From the variance between queries, without errors of the propensities and of what queries
        share in a click model.
    interval : tuple of float
        95 % interval.
    logged : float
        The same of the pages that the log shows.
    effective_sample_size : float
        Number of equally weighted clicks of the same precision (Kish).
    support : float
        Share of the pages that the log can speak of, positions weighted by their clicks.
    verdict : str
        In words; begins with "cannot tell" where the log cannot.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    logged: float
    effective_sample_size: float
    support: float
    verdict: str


class PolicyDifference(NamedTuple):
    """What :func:`policy_difference` returns; NaN in the first four where the log cannot tell.

    Parameters
    ----------
    value : float
        Expected clicks per page of ``scores_a`` minus those of ``scores_b``.
    standard_error : float
        As that of :class:`PolicyValue`, of the paired difference.
    interval : tuple of float
        95 % interval.
    p_value : float
        Two-sided, of no difference.
    logged : float
        Clicks per page of the log.
    effective_sample_size : float
        Number of equally weighted clicks, where the rankings differ.
    support : float
        Share of the places where the rankings differ that the log can speak of, for the ranking
        of which it knows less.
    verdict : str
        In words; begins with "cannot tell" where the log cannot.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float
    logged: float
    effective_sample_size: float
    support: float
    verdict: str


@validate_params(_CONSTRAINTS | {"scores": ["array-like"]}, prefer_skip_nested_validation=True)
def policy_value(
    X: Table | ClickDataset,
    y: Column | str | None,
    scores: ArrayLike,
    *,
    method: Literal["item-position", "pbm", "direct", "dr"] = "item-position",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: Literal["clicks", "dcg"] = "clicks",
    k: int | None = None,
    sample_weight: Column | None = None,
    qid: Column | None = None,
    session: Column | None = None,
    doc: Column | None = None,
    position: Column | None = None,
    impressions: Column | None = None,
) -> PolicyValue:
    r"""Expected clicks per result page of a ranking, from the log of another ranking.

    On every page of a query the new ranking shows the best documents, by ``scores``, of *all*
    documents that the query has in X: shown on that page, shown on other pages of the query, or
    never shown (rows without a position). It fills the positions that the logged page had. A
    document that is not in X cannot be ranked.

    Parameters
    ----------
    X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
        The log, raw or counted (``impressions``), with the roles ``qid``, ``doc``, ``position``.
    y : array-like of shape (n_rows,) or str
        Clicks or click rates, or the name of the column of X that holds them.
    scores : array-like of shape (n_rows,)
        Of the new ranking, greater is better; the same in all rows of a document of a query.
        Equal scores are ordered by chance, in the same way in every call.
    method : {"item-position", "pbm", "direct", "dr"}, default="item-position"
        What is assumed of clicks on pages that the log does not have:

        - ``"item-position"``: a document is clicked as on the logged pages that had it at the
          same position. Needs a log that shows documents at several positions.
        - ``"pbm"``: a click at the position j counts o(new position) / o(j), with ``propensity``
          o. Logs that never moved a document will do if o is known from elsewhere.
        - ``"direct"``: the click ``model`` is right.
        - ``"dr"``: the ``model``, corrected by the errors that it makes on the log, which are
          carried over as by ``"pbm"`` if there is a ``propensity``, else as by
          ``"item-position"``, and shrunk where few impressions tell them (doubly robust).
    model : object with a method ``predict_click``, default=None
        A click model; fitted on X if it is not yet fitted.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Examination by position: as of :class:`~skultr.metrics.IPSScorer`.
    probability : array-like of shape (n_rows,), default=None
        Probability with which the logging policy showed the document of the row at its position,
        if it is known: in (0, 1] where shown. By default its frequency among the query's pages,
        which has less variance for queries with many pages.
    gain : {"clicks", "dcg"}, default="clicks"
        Value of a click: 1, or 1 / log2(1 + position).
    k : int or None, default=None
        Positions that count; None for all.
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    qid, session, doc, position, impressions : array-like of shape (n_rows,), default=None
        Roles as keywords; they take precedence over columns.

    Returns
    -------
    value : PolicyValue
        "cannot tell" if less than 80 % of the new pages have documents (with ``"item-position"``:
        at positions) that the log has; if the clicks are worth fewer than 50, or the queries
        fewer than 10, of equal weight; or if a model or propensities are fitted on a log that
        moved documents in less than 1 % of the impressions.

    Raises
    ------
    ValueError
        If a role, a score or what the method needs is missing or not valid, scores differ for one
        document of a query, or k is deeper than the log.

    See Also
    --------
    policy_difference : Two rankings, with far less variance than two values have.

    Notes
    -----
    With :math:`n_{qj}` pages of the query q that have the position j, :math:`d_{qj}` the document
    that the new ranking puts there and :math:`N` pages in all,

    .. math::
        \hat V = \frac 1 N \sum_{q,j} n_{qj}\, \hat P(\text{click} \mid d_{qj}, j),

    where :math:`\hat P` is the click rate :math:`C / n` of the document at that position
    ("item-position") or :math:`o_j \sum C / \sum o` over the document's impressions ("pbm"). Both
    have no bias, given where the log put the documents, if their assumption holds and all is
    covered. What is not covered is taken to be clicked like the rest (self-normalised).

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay & Wen (2018). Offline evaluation of ranking
    policies with click models. KDD.

    Swaminathan & Joachims (2015). The self-normalized estimator for counterfactual learning. NIPS.

    Oosterhuis (2023). Doubly robust estimation for correcting position bias in click feedback for
    unbiased learning to rank. TOIS.

    Su, Dimakopoulou, Krishnamurthy & Dudík (2020). Doubly robust off-policy evaluation with
    shrinkage. ICML.

    Examples
    --------
    Counts of 20 queries whose two documents change places in half of the pages:

    >>> import pandas as pd
    >>> from skultr.evaluation import policy_value
    >>> X = pd.DataFrame({"qid": range(20)}).merge(pd.DataFrame({
    ...     "doc": ["good", "good", "bad", "bad"], "position": [1, 2, 2, 1],
    ...     "impressions": 100, "rate": [0.5, 0.3, 0.1, 0.2],
    ... }), how="cross")
    >>> found = policy_value(X, "rate", scores=X["doc"] == "good")
    >>> round(found.value, 2), found.support, round(found.logged, 2)
    (0.6, 1.0, 0.55)
    """
    roles = _roles(qid, session, doc, position, impressions)
    log = _read(X, y, sample_weight, roles, k)
    pages = log.rank_by(scores, k, "scores")
    rows = len(pages.slot)
    target = Target(pages, np.ones(rows, dtype=int), np.ones(rows, dtype=bool), _gain(pages, gain))
    estimate, doubt = _estimate(log, target, method, model, propensity, probability)
    value, error, half, _ = _mean(log, estimate.by_query)
    doubt = doubt or _doubt(log, estimate)
    logged = _logged(log, gain, k)
    counts = (logged, estimate.effective, estimate.support)
    if doubt:
        return PolicyValue(np.nan, np.nan, (np.nan, np.nan), *counts, f"cannot tell: {doubt}")
    low, high = value - half, value + half
    words = (
        f"{value:.4g} per page (95 % interval {low:.4g} to {high:.4g}), {logged:.4g} in the log, "
        f"{_METHODS[method][1]}"
    )
    return PolicyValue(value, error, (low, high), *counts, words)


@validate_params(
    _CONSTRAINTS | {"scores_a": ["array-like"], "scores_b": ["array-like"]},
    prefer_skip_nested_validation=True,
)
def policy_difference(
    X: Table | ClickDataset,
    y: Column | str | None,
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    *,
    method: Literal["item-position", "pbm", "direct", "dr"] = "item-position",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: Literal["clicks", "dcg"] = "clicks",
    k: int | None = None,
    sample_weight: Column | None = None,
    qid: Column | None = None,
    session: Column | None = None,
    doc: Column | None = None,
    position: Column | None = None,
    impressions: Column | None = None,
) -> PolicyDifference:
    """Expected clicks per result page of one ranking minus those of another one, paired.

    Both rankings are judged by the same sessions. Places where they have the same document
    cancel, and the support is that of the other places.

    Parameters
    ----------
    X, y, method, model, propensity, probability, gain, k, sample_weight, qid, session, doc, \
            position, impressions
        See :func:`policy_value`.
    scores_a, scores_b : array-like of shape (n_rows,)
        Of the two rankings.

    Returns
    -------
    difference : PolicyDifference
        "cannot tell" under the conditions of :func:`policy_value`, applied to the places where
        the rankings differ.

    Raises
    ------
    ValueError
        See :func:`policy_value`.

    Notes
    -----
    The interval is for queries like those of the log: its standard error is that of the mean of
    paired differences by query, weighted by their traffic.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import policy_difference
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(100, n_features=5, random_state=0)
    >>> X, clicks, truth = simulate_clicks(documents, n_sessions=20_000, candidates=True,
    ...     policy=PlackettLucePolicy(temperature=1.0), random_state=0)
    >>> by_grade, by_chance = X["relevance"], np.sin(X["doc"])
    >>> found = policy_difference(X, clicks, by_grade, by_chance, method="pbm",
    ...     propensity=truth.examination)
    >>> found.verdict.split(":")[0], found.p_value < 0.001
    ('a gets more', True)
    """
    roles = _roles(qid, session, doc, position, impressions)
    log = _read(X, y, sample_weight, roles, k)
    a, b = log.rank_by(scores_a, k, "scores_a"), log.rank_by(scores_b, k, "scores_b")
    changed = np.concatenate([~np.isin(a.key, b.key), ~np.isin(b.key, a.key)])
    logged = _logged(log, gain, k)
    if not changed.any():
        same = "the two rankings show the same pages"
        return PolicyDifference(0.0, 0.0, (0.0, 0.0), 1.0, logged, 0.0, 1.0, same)
    pages = Pages(log, np.concatenate([a.pair, b.pair]), np.concatenate([a.slot, b.slot]), np.concatenate([a.ranking, b.ranking+1]))
    target = Target(pages, 1 - 2*pages.ranking, changed, _gain(pages, gain))
    estimate, doubt = _estimate(log, target, method, model, propensity, probability)
    value, error, half, p_value = _mean(log, estimate.by_query)
    doubt = doubt or _doubt(log, estimate)
    counts = (logged, estimate.effective, estimate.support)
    if doubt:
        nothing = (np.nan, np.nan, (np.nan, np.nan), np.nan)
        return PolicyDifference(*nothing, *counts, f"cannot tell: {doubt}")
    more = "no difference seen" if p_value >= 0.05 else f"{'ab'[value < 0]} gets more"
    low, high = value - half, value + half
    words = (
        f"{more}: {value:+.3g} per page (95 % interval {low:+.3g} to {high:+.3g}), that is "
        f"{value / logged:+.1%} of the clicks in the log, {_METHODS[method][1]}"
    )
    return PolicyDifference(value, error, (low, high), p_value, *counts, words)


def _roles(qid, session, doc, position, impressions):
    return {
        "qid": qid,
        "session": session,
        "doc": doc,
        "position": position,
        "impressions": impressions,
    }


def _read(X, y, sample_weight, roles, k) -> LoggedPages:
    log = read_pages(X, y, sample_weight, roles)
    deepest = int(log.slot_position.max())
    if k is not None and k > deepest:
        raise ValueError(
            f"k={k}, but the log has positions up to {deepest}: it cannot tell clicks on longer "
            f"lists. Pass k={deepest} or less."
        )
    return log


def _gain(pages, gain):
    position = pages.log.slot_position[pages.slot]
    return np.ones(len(position)) if gain == "clicks" else 1 / np.log2(1 + position)


def _logged(log, gain, k):
    """Clicks per page of the log."""
    position = log.slot_position[log.slot]
    value = np.ones(len(position)) if gain == "clicks" else 1 / np.log2(1 + position)
    counts = position <= (position.max() if k is None else k)
    return float((log.weight * log.rate * value * counts).sum() / log.query_pages.sum())


def _mean(log, by_query: Floats):
    """Mean per page, its standard error, half of its 95 % interval, and p-value."""
    pages = log.query_pages
    value = by_query.sum() / pages.sum()
    residual = (by_query - value * pages) / pages.sum()
    n_queries = np.count_nonzero(pages)
    if n_queries < 2:
        return float(value), np.nan, np.nan, np.nan
    error = float(np.sqrt(n_queries / (n_queries - 1) * (residual**2).sum()))
    freedom = max(_queries(log) - 1, 1)
    p_value = 2 * student.sf(abs(value) / error, freedom) if error > 0 else float(value == 0)
    return float(value), error, float(student.ppf(0.975, freedom) * error), float(p_value)


def _queries(log):
    """Number of queries of equal traffic that are worth as much (Kish)."""
    pages = log.query_pages
    return float(pages.sum() ** 2 / (pages**2).sum())


# --------------------------------------------------------------------------------------
# Methods
# --------------------------------------------------------------------------------------
def _estimate(log, target, method, model, propensity, probability):
    """The estimate, and why the log cannot tell, if the method says so."""
    _check_given(method, model=model, propensity=propensity, probability=probability)
    pages = target.pages
    # For a model the log speaks of each document that it showed.
    shown = by_pair(log, pages, np.ones(len(log.row)))
    fitted_on_log = method in ("direct", "dr")
    if method == "pbm" or propensity is not None:
        examination, known = _examination(log, propensity)
        fitted_on_log |= not known
        carrier = by_pair(log, pages, examination)
    else:
        carrier = by_cell(log, pages, _probability(log, probability))
    doubt = _not_moved(log) if fitted_on_log else ""
    if method in ("pbm", "item-position"):
        return carried(target, carrier), doubt
    model = _fitted(model, log)
    predicted = _checked(pages.predicted(model), model)
    if method == "direct":
        return modelled(target, predicted, shown), doubt
    on_log = _checked(log.predicted(model), model)
    return corrected(target, predicted, on_log, carrier, shown), doubt


def _check_given(method, **given):
    reads, _ = _METHODS[method]
    wrong = [name for name, value in given.items() if value is not None and name not in reads]
    if wrong:
        raise ValueError(f"method={method!r} does not read {wrong[0]}=; leave it out.")
    if "model" in reads and given["model"] is None:
        raise ValueError(
            f"method={method!r} needs a click model; pass model=, for example "
            "skultr.click_models.PBMModel()."
        )
    if given["propensity"] is not None and given["probability"] is not None:
        raise ValueError(
            "Both propensity= and probability= were given; expected one, since errors are carried "
            "over either by examination or by the probabilities of the logging policy."
        )


def _examination(log, source):
    """Examination of each shown row, and whether it is known from elsewhere."""
    propensity, estimator = row_propensities(
        source, log.X, log.y, log.sample_weight, log.roles, default=_refuse_to_assume
    )
    values = np.asarray(log.rows.replace("propensity", propensity)["propensity"], dtype=float)
    known = estimator is None or isinstance(estimator, FrozenEstimator)
    return _positive(values[log.row], "propensity"), known


def _refuse_to_assume():
    raise ValueError(
        "method='pbm' needs propensities, and an assumed curve would decide which ranking wins: "
        "found neither a role 'propensity' nor the argument. Pass propensity= one probability per "
        "position, or an estimator of skultr.propensity."
    )


def _probability(log, probability):
    if probability is None:
        return None
    probability = np.asarray(probability, dtype=float)
    if probability.shape != (log.rows.n_rows,):
        raise ValueError(
            f"probability has the shape {probability.shape}; expected one per row of X, that is "
            f"({log.rows.n_rows},)."
        )
    return _positive(probability[log.row], "probability")


def _positive(values, name):
    wrong = ~((values > 0) & (values <= 1))
    if wrong.any():
        raise ValueError(
            f"{name} is {values[wrong][0]:g} in a shown row; expected a number in (0, 1] wherever "
            "a document was shown, since what has no chance is not shown."
        )
    return values


def _fitted(model, log):
    try:
        check_is_fitted(model)
    except NotFittedError:
        roles = {name: of for name, of in log.roles.items() if of is not None}
        return clone(model).fit(log.X, log.y, log.sample_weight, **roles)
    except TypeError:  # not an estimator, but it predicts
        return model
    return model


def _checked(clicks, model):
    if not (np.isfinite(clicks).all() and (clicks >= 0).all() and (clicks <= 1).all()):
        raise ValueError(
            f"{type(model).__name__}.predict_click returned values that are no probabilities; "
            "expected numbers in [0, 1]."
        )
    return clicks


# --------------------------------------------------------------------------------------
# What a log cannot tell
# --------------------------------------------------------------------------------------
def _not_moved(log):
    moved = log.moved()
    if moved >= _LEAST_MOVED:
        return ""
    return (
        f"in {1 - moved:.1%} of the impressions a document stood at its usual position, so that "
        "only the assumption of the model says what another position changes. Log pages with "
        "random swaps, or pass examination that was measured elsewhere (method='pbm', one number "
        "per position)"
    )


def _doubt(log, estimate):
    """Why the log cannot tell; empty if it can."""
    if estimate.support < _LEAST_SUPPORT:
        return (
            f"the log speaks of {estimate.support:.0%} of what the ranking would change, and "
            f"{_LEAST_SUPPORT:.0%} are needed. Log more random pages, or use a method that "
            "assumes more ('pbm', 'dr')"
        )
    if estimate.effective < _LEAST_CLICKS:
        return (
            f"the clicks are worth {estimate.effective:.0f} of equal weight, and "
            f"{_LEAST_CLICKS} are needed. Log more sessions"
        )
    if (queries := _queries(log)) < _LEAST_QUERIES:
        return (
            f"the queries are worth {queries:.1f} of equal traffic, and {_LEAST_QUERIES} are "
            "needed for an interval"
        )
    return ""
