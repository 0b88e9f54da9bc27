"""Clicks that a ranking would get, and the difference of two, from the log of another one."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import HasMethods, Interval, StrOptions, safe_indexing, validate_params
from .._base._typing import ArrayLike, Bools, Column, Estimator, Floats, Predictor, Table
from .._log._reader import first_rows
from .._log._segments import TINY
from ..exceptions import ClickDataWarning, warn_user
from ..metrics._scorers import Scorer
from ..propensity._source import PROPENSITY_CONSTRAINT, propensities
from ._click_table import ROLES, ClickTable, LoggedPages, Pages

if TYPE_CHECKING:
    from .._log._dataset import ClickDataset

_ROUNDING = 1e-6
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
    "sample_weight": ["array-like", None],
}
_SCORES = ["array-like", HasMethods(["predict"])]
_Method = Literal["dr", "direct", "pbm", "item-position"]
_Gain = Literal["clicks", "dcg"]


class PolicyEstimate(NamedTuple):
    """What a log tells of a ranking, or of two; the first four are NaN where it cannot tell.

    Parameters
    ----------
    value : float
        Expected clicks per page, or DCG of the clicks with ``gain="dcg"``; or the difference.
    standard_error : float
        From the variance between queries; without errors of given propensities and models.
    interval : tuple of float
        95 % interval of ``value``.
    p_value : float
        Two-sided, of no difference between the rankings; for one ranking, from the logged pages.
    logged : float
        Clicks (DCG) per page of the log.
    effective_sample_size : float
        Number of equally weighted clicks of the same precision (Kish), on documents that two
        rankings have at different places.
    support : float
        Share of the places that the log can speak of, positions weighted by their clicks; of two
        rankings where they differ, for the one of which the log knows less.
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
    scores: Predictor | ArrayLike,
    *,
    method: _Method = "dr",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: _Gain = "clicks",
    k: int | None = None,
    sample_weight: Column | None = None,
    **roles: Any,
) -> PolicyEstimate:
    r"""Expected clicks per result page of a ranking, from the log of another ranking.

    On every page of a query the new ranking shows the best documents, by ``scores``, of *all*
    documents that the query has in X: shown on that page, shown on other pages of the query, or
    never shown (rows without a position). It fills the positions that the logged page had.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns), or ClickDataset
        The log, raw or counted (``impressions``), with the roles ``qid``, ``doc``, ``position``,
        and ``session`` if it is raw.
    y : array-like of shape (n_rows,) or str
        Clicks or click rates, or the name of the column of X that holds them.
    scores : fitted ranker, or array-like of shape (n_rows,)
        The new ranking, greater is better; the same in all rows of a document of a query.
        Equal scores are ordered by chance, in the same way in every call.
    method : {"dr", "direct", "pbm", "item-position"}, default="dr"
        What is assumed of clicks on pages that the log does not have:

        - ``"dr"``: a click depends on the document, its position, and how good the documents above
          are (if the log has pages, not counts). A fitted formula, corrected by the click rate of
          each document at each position as far as the log shows that the formula errs.
        - ``"direct"``: the click ``model`` is right.
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
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    **roles : array-like of shape (n_rows,)
        ``qid``, ``session``, ``doc``, ``position``, ``impressions`` or ``doc_scope`` as keywords,
        which take precedence over columns.

    Returns
    -------
    estimate : PolicyEstimate
        "cannot tell" if the log contradicts what the method assumes (see Notes); if it has
        documents away from their usual position in less than 1 % of the impressions; if it has the
        documents (for ``"item-position"``: at their positions) of less than 90 % of the new pages;
        if the clicks are worth fewer than 50, or the queries fewer than 10, of equal weight; or if
        the fit of the formula does not converge.

    Raises
    ------
    ValueError
        If a role, a score or what the method needs is missing or not valid, scores differ for one
        document of a query, or k is deeper than the log.

    Notes
    -----
    **"dr"** takes P(click) = :math:`(a_j + b_j θ + δ) e^{-γ (s - \bar s_j)}` for a document of the
    quality θ at the position j below documents whose :math:`-\log(1 - θ)` add to s. a is trust in
    positions; γ > 0 are users who stop after good documents; the deviations δ of a document at a
    position have a variance that the log tells. Where it is large, click rates of documents at
    positions count, as for "item-position"; where it is 0, the formula alone. The interval
    includes the errors of a, b, γ (sandwich) and the deviations that the log cannot know. Whole
    pages of the log must get the clicks that the formula predicts, compared with other pages of
    their query; if not, there is no verdict.

    **Test.** The estimate of any other method is compared with that of "dr", paired by query. If
    they differ (p < 0.05), the log contradicts what the method assumes; if the log is too small to
    show an error as large as the difference that it tells, there is no verdict either. Counts
    without pages cannot test whether the documents above matter: users who stop at a click are
    then judged as if positions made them.

    **How far it goes.** On 2,000 simulated pairs of rankers and Plackett-Luce logs of 50,000
    sessions, "dr" gave a winner in 519, and 99 % of these were right. Its intervals held the truth
    in 96 % where users follow positions or trust them, in 89 % with DBN users and in 81 % on
    carousels. It decided 73 % of the pairs that differ by 1 % of the clicks or more with users who
    follow or trust positions, 52 % with DBN users and 51 % on carousels; users who leave after the
    first click contradict it in nearly all logs. Logs of 2,000 sessions tell little. Intervals of
    "item-position" are two to four times as wide; the test finds the wrong assumption of "pbm" in
    a part of the logs only.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay & Wen (2018). Offline evaluation of ranking
    policies with click models. KDD. Su, Dimakopoulou, Krishnamurthy & Dudík (2020). Doubly robust
    off-policy evaluation with shrinkage. ICML. Hausman (1978). Specification tests in
    econometrics. Econometrica 46.

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
    given = {"model": model, "propensity": propensity, "probability": probability}
    log, rankings = (X, y, sample_weight, roles), {"scores": scores}
    return _estimate(log, rankings, gain, k, method, given)


@validate_params(
    _CONSTRAINTS | {"scores_a": _SCORES, "scores_b": _SCORES},
    prefer_skip_nested_validation=True,
)
def policy_difference(
    X: Table | ClickDataset,
    y: Column | str | None,
    scores_a: Predictor | ArrayLike,
    scores_b: Predictor | ArrayLike,
    *,
    method: _Method = "dr",
    model: Any = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    probability: ArrayLike | None = None,
    gain: _Gain = "clicks",
    k: int | None = None,
    sample_weight: Column | None = None,
    **roles: Any,
) -> PolicyEstimate:
    """Expected clicks per result page of one ranking minus those of another one, paired.

    Both rankings are judged by the same sessions. Places where they have the same document
    cancel, so that the difference has far less variance than its two terms.

    Parameters
    ----------
    X, y, method, model, propensity, probability, gain, k, sample_weight, **roles
        See :func:`policy_value`.
    scores_a, scores_b : fitted ranker, or array-like of shape (n_rows,)
        The two rankings.

    Returns
    -------
    estimate : PolicyEstimate
        "cannot tell" as from :func:`policy_value`, for the places where the rankings differ.

    Notes
    -----
    The interval is for queries like those of the log: the standard error is that of the mean of
    paired differences by query, weighted by traffic.

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
    given = {"model": model, "propensity": propensity, "probability": probability}
    log, rankings = (X, y, sample_weight, roles), {"scores_a": scores_a, "scores_b": scores_b}
    return _estimate(log, rankings, gain, k, method, given)


def _estimate(log, rankings, gain, k, method, given):
    """The estimate of a ranking, or of the difference of two."""
    log = LoggedPages(*log, "policy_value")
    position = log.slot_position
    if k is not None and not position.min() <= k <= position.max():
        raise ValueError(
            f"k={k}, but the log has positions {int(position.min())} to {int(position.max())}, "
            "and tells clicks there only. Pass k in this range."
        )
    gains = np.ones(len(position)) if gain == "clicks" else 1 / np.log2(1 + position)
    if k is not None:
        gains = gains * (position <= k)
    pages, *others = (log.rank_by(scores, k, name) for name, scores in rankings.items())
    if not others:
        changed = np.ones(len(pages.slot), dtype=bool)
        return _judge(pages, changed, gains, ("the ranking", "the log"), method, given)
    changed = pages.changed(others[0])
    if not changed.any():
        per_page, _ = log.mean_per_page(_logged(log, gains))
        same = "no difference: both rankings show the same pages."
        return PolicyEstimate(0.0, 0.0, (0.0, 0.0), 1.0, per_page, 0.0, 1.0, same)
    return _judge(pages.and_of(others[0]), changed, gains, ("a", "b"), method, given)


def _logged(log, gains):
    """Clicks of each query in the log."""
    clicks = log.weight * log.rate * gains[log.slot]
    return np.bincount(log.slot_query[log.slot], clicks, minlength=len(log.query_pages))


# Estimates --------------------------------------------------------------------------------------
def _judge(pages, changed, gains, names, method, given):
    """The estimate of one ranking, or of two (``names``), in numbers and words."""
    log, table = pages.log, ClickTable(pages.log)
    mass = (1 - 2 * pages.ranking) * log.slot_pages[pages.slot] * gains[pages.slot]
    due = np.abs(mass) * changed
    clicks, support, effective = _clicks(pages, due, table, method, given)
    # Queries of equal weight that would be worth as much (Kish).
    changes = pages.by_query(due)
    n_queries = changes.sum() ** 2 / max((changes**2).sum(), TINY)
    logged = _logged(log, gains)
    per_page, _ = log.mean_per_page(logged)
    counts = (per_page, effective, support)
    doubt = doubt_of(pages, due, method, support, effective, n_queries)
    if doubt := doubt or doubt_of_formula(table, gains, method):
        return PolicyEstimate(*_NOTHING, *counts, f"cannot tell: {doubt}.")
    by_query, (influence, prior, untold) = pages.by_query(mass * clicks), table.errors(pages, mass)
    errors = (influence, prior + untold) if method == "dr" else ()
    value, error = log.mean_per_page(by_query, *errors)
    gained, p_value = value, p_value_of(value, error, n_queries)
    if names[1] == "the log":
        same = np.isclose(by_query, logged, rtol=1e-9, atol=0)  # but for rounding
        more = log.mean_per_page(np.where(same, 0.0, by_query - logged), *errors)
        gained, p_value = more[0], p_value_of(*more, n_queries)
    wins = p_value < LEVEL
    half = student.ppf(1 - LEVEL / 2, n_queries - 1) * error
    if method == "dr":
        width = (
            f"the interval is as wide as ±{half / per_page:.0%} of the clicks. Log more sessions"
        )
        doubt = width if half > _WIDEST * per_page else ""
    else:
        beyond = by_query - pages.by_query(mass * table.predict(pages))
        test = log.mean_per_page(beyond, -influence, prior)
        seen = abs(test[0]) > _ROUNDING * per_page
        doubt = seen and doubt_of_method(*test, gained if wins else None, n_queries)
    if doubt:
        return PolicyEstimate(*_NOTHING, *counts, f"cannot tell: {doubt}.")
    interval = (float(value - half), float(value + half))
    winner, other = names if gained > 0 else names[::-1]
    verdict = (
        f"{f'{winner} gets more than {other}' if wins else 'no difference seen'}: {value:.4g} per "
        f"page (95 % interval {interval[0]:.4g} to {interval[1]:.4g}), which is "
        f"{gained / per_page:+.1%} of the clicks in the log, if {_METHODS[method][1]}."
    )
    if not log.has_pages:
        verdict += " Counts without sessions cannot test whether the documents above matter."
    return PolicyEstimate(value, error, interval, p_value, *counts, verdict)


def _clicks(pages, due, table, method, given):
    """P(click) of each row of the pages, the support and the effective number of clicks."""
    log, (reads, _) = pages.log, _METHODS[method]
    wrong = [name for name, value in given.items() if value is not None and name != reads]
    if wrong or (method == "direct" and given["model"] is None):
        needs = " (a click model)" if method == "direct" else ""
        raise ValueError(
            f"method={method!r} reads {reads or 'the log only'}{needs}, and got {wrong or None}; "
            "pass what it reads, and nothing else."
        )
    clicks, shown, slope = table.predict(pages), log.weight, table.slope
    row_unit, unit = log.pair[log.row], pages.pair
    there = np.bincount(row_unit, minlength=len(log.pair_query))[unit] > 0
    if method == "direct":
        clicks = _by_model(pages, given["model"])
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
            exposure, slope = 1.0, np.ones(len(slope))
            (_, row_unit), (unit, there) = log.shown_cells, pages.cell()
        exposed, total = (np.bincount(row_unit, shown * factor) for factor in (exposure, log.rate))
        unit = np.where(there, unit, row_unit[0])
        # Where the log has nothing, the formula of "dr" fills the gap.
        clicks = np.where(
            there, slope[pages.slot] * (total / np.maximum(exposed, TINY))[unit], clicks
        )
    exposed, carried = shown * slope[log.slot], np.bincount(unit, due * there * slope[pages.slot])
    # Clicks of equal weight that tell as much, (Σ w)² / Σ w² (Kish).
    carried = np.append(carried, np.zeros(max(row_unit.max() + 1 - len(carried), 0)))
    told = carried / np.maximum(np.bincount(row_unit, exposed, len(carried)), TINY)
    weight, n_clicks = told[row_unit] * shown / log.weight, log.rate * log.weight
    effective = (weight * n_clicks).sum() ** 2 / max((weight**2 * n_clicks).sum(), TINY)
    return clicks, support_of(pages, due, there), float(effective)


def _by_model(pages, model):
    """P(click) of each row by a click model, fitted to the log if it is not."""
    log = pages.log
    if hasattr(model, "fit"):
        try:
            check_is_fitted(model)
        except NotFittedError:
            roles = {name: values for name, values in log.roles.items() if values is not None}
            model = clone(model).fit(log.X, log.y, log.sample_weight, **roles)
    row = first_rows(log.pair, len(log.pair_query))[pages.pair]
    roles = {"qid": log.rows["qid"][row], "session": pages.ranking}
    roles["doc"] = None if log.rows["doc"] is None else log.rows["doc"][row]
    roles["position"] = log.slot_position[pages.slot]
    predicted = model.predict_click(safe_indexing(log.X, row), conditional=False, **roles)
    predicted = np.asarray(predicted, dtype=float)
    if not ((predicted >= 0) & (predicted <= 1)).all():  # also NaN
        raise ValueError(
            f"{type(model).__name__}.predict_click returned values that are no probabilities."
        )
    return predicted


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
#: With a larger error, that test would not see that the order of documents does not matter at all.
_BLIND = 0.5
#: Half-width of an interval, relative to the clicks, beyond which it does not hold, because the
#: errors of the curve are not small.
_WIDEST = 0.25
_UNSETTLED = (
    "what a position changes did not converge, because the clicks hardly determine it. Log more "
    "sessions, or more random pages"
)


def doubt_of(
    pages: Pages, due: Floats, method: str, support: float, effective: float, n_queries: float
) -> str:
    """Why the log has too little of what the rankings show."""
    if not pages.log.rate.any():
        return "the log has no click"
    new_places = support_of(pages, due, pages.cell()[1]) < _LEAST_SUPPORT
    if new_places and (moved := pages.log.moved()) < _LEAST_MOVED:
        return (
            f"documents stand at their usual position in {1 - moved:.1%} of the impressions, so "
            "that the log cannot test what another position changes, whatever propensities or "
            "models say. Log some pages with random swaps"
        )
    if support < _LEAST_SUPPORT:
        less = ", or use method='dr', which needs documents at any position"
        return (
            f"the log can speak of {support:.0%} of what the ranking shows, or changes, of "
            f"{_LEAST_SUPPORT:.0%} that are needed. Log more random pages"
            f"{less if method == 'item-position' else ''}"
        )
    for number, least, what in [
        (effective, _LEAST_CLICKS, "clicks"),
        (n_queries, LEAST_QUERIES, "queries"),
    ]:
        if number < least:
            return (
                f"the {what} are worth {number:.1f} of equal weight, and {least} are needed. Log "
                "more sessions"
            )
    return ""


def doubt_of_formula(table: ClickTable, gains: Floats, method: str) -> str:
    """Why the formula cannot be believed, if whole pages get other clicks than it predicts."""
    unsettled = "" if table.converged else _UNSETTLED
    if method not in ("dr", "pbm"):
        return unsettled
    excess, error = table.excess(gains)
    if _BLIND < error < np.inf:  # infinite for counts without pages
        return (
            "the log is too small to test the formula on whole pages. Log more sessions, or more "
            "random pages"
        )
    if excess > -_LEAST_WRONG * error:  # a ranking that is worth more than predicted does no harm
        return unsettled
    return (
        "the log contradicts the formula: between the pages of a query clicks differ by "
        f"{max(1 + excess, 0):.0%} of what it predicts, as when users leave after one click. Use "
        "method='item-position', or an experiment (plan_experiment, Interleaver)"
    )


def doubt_of_method(beyond: float, error: float, claimed: float | None, n_queries: float) -> str:
    """Why the test of a method against "dr" forbids to believe it; ``claimed`` if it would win."""
    if (p_value := p_value_of(beyond, error, n_queries)) < LEVEL:
        return (
            f"the log contradicts what the method assumes (p = {p_value:.2g}): its estimate "
            f"is {beyond:+.4g} per page off that of method='dr'. Use method='dr'"
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


def support_of(pages: Pages, due: Floats, there: Bools) -> float:
    """Share of the places, by their clicks, where the log is; of two rankings, the less."""
    clicks = due * pages.log.mean_by_position(pages.log.rate)[pages.slot]
    covered, whole = (np.bincount(pages.ranking, sums) for sums in (clicks * there, clicks))
    return float((covered / np.maximum(whole, TINY)).min())
