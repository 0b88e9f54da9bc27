"""The four methods of policy_value: what each assumes of clicks on pages that nobody saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import safe_indexing
from .._base._typing import Bools, Floats, Ints
from .._log._reader import first_rows
from .._log._segments import TINY
from ..propensity._source import propensities
from ._click_table import ClickTable
from ._logged_pages import LoggedPages, Pages
from ._thresholds import CONTRADICTION, LEVEL, WIDEST


class Evidence(NamedTuple):
    """P(click) by a method, and where it was read.

    A unit is what has one click rate: a document of a query, or that at one position.
    """

    click: Floats  # P(click) of each row of the pages
    logged_click: Floats  # P(click) of each row of the log
    unit: Ints  # of each row of the pages
    logged_unit: Ints  # of each row of the log
    is_known: Bools  # whether the log has the unit of each row of the pages
    shown: Floats  # impressions of each row of the log, as the method weighs them
    slope: Floats  # clicks that the position of each slot gives, up to one factor

    def support(self, pages: Pages, due: Floats) -> Floats:
        """Clicks at the places that the log knows, and at all, by ranking: shape (2, n)."""
        return support_of(pages, due, self.is_known)

    def n_clicks(self, pages: Pages, due: Floats) -> float:
        """Number of clicks of equal weight that tell as much (Kish).

        Where the log showed a unit more often than the rankings do, each of its clicks counts
        less.
        """
        log = pages.log
        # Clicks that the rankings want of each unit, and that the log has of it.
        n_units = max(self.unit.max(), self.logged_unit.max()) + 1
        due_of_known = due * self.is_known * self.slope[pages.slot]
        wanted = np.bincount(self.unit, due_of_known, n_units)
        told_by_log = self.shown * self.slope[log.slot]
        logged = np.bincount(self.logged_unit, told_by_log, n_units)
        told = wanted / np.maximum(logged, TINY)
        weight = told[self.logged_unit] * self.shown / log.weight
        clicks = log.rate * log.weight
        # (Σ w)² / Σ w² over clicks of the weight w.
        squares = (weight**2 * clicks).sum()
        return float((weight * clicks).sum() ** 2 / max(squares, TINY))


class Method:
    """What is assumed of clicks on pages that the log does not have.

    Subclasses say which argument they read, predict clicks (``evidence``), and say why the log
    contradicts them, before (``contradiction``) and after they have an estimate (``doubt``).
    """

    name: ClassVar[str]
    #: The argument that it reads, if any; and what it is, where the name does not say it.
    reads: ClassVar[str | None] = None
    reads_what: ClassVar[str] = ""
    #: Completes "..., if".
    assumption: ClassVar[str]
    #: Whether it knows what each page adds; others know what each query does.
    knows_pages: ClassVar[bool] = False
    #: Whether it bounds documents that were never shown, and so needs no support.
    bounds_unseen: ClassVar[bool] = False

    def __init__(self, given: Mapping[str, Any]) -> None:
        # An argument that the method does not read would seem to count.
        wrong = [name for name, value in given.items() if value is not None and name != self.reads]
        if wrong or self._lacks(given):
            raise ValueError(
                f"method={self.name!r} reads {self.reads or 'the log only'}{self.reads_what}, "
                f"and got {wrong or None}; pass what it reads, and nothing else."
            )
        self._given = given.get(self.reads) if self.reads else None

    def _lacks(self, given):
        """Whether an argument that it cannot do without is missing."""
        return False

    def evidence(self, pages: Pages, table: ClickTable) -> Evidence:
        """P(click) of the rows of pages, and where it was read."""
        raise NotImplementedError

    def contradiction(self, log: LoggedPages, contexts: list[Any]) -> str:
        """Why the clicks of the log contradict the method; "" if they do not."""
        return ""

    def doubt(self, estimate: Any) -> str:
        """Why an estimate is not believed; "" if it is.

        It differs from that of "dr" by more than chance, or the log could not tell.
        """
        beyond, error = estimate.beyond_formula()
        # A difference up to a millionth of the clicks is rounding.
        is_seen = estimate.settled and abs(beyond) > 1e-6 * estimate.logged
        if not is_seen:
            return ""
        claimed = estimate.gained if estimate.wins else None
        return doubt_of_method(beyond, error, claimed, estimate.n_queries, self.name)


class DoublyRobust(Method):
    """A fitted formula, corrected by click rates of documents at positions."""

    name = "dr"
    assumption = "a click depends on the document, its position and the documents above"
    knows_pages = True
    bounds_unseen = True

    def evidence(self, pages: Pages, table: ClickTable) -> Evidence:
        """By the formula of :class:`ClickTable`."""
        return _by_document(pages, table, table.predict(pages), pages.log.rate)

    def contradiction(self, log: LoggedPages, contexts: list[Any]) -> str:
        """The formula has no fit, or pages differ from it."""
        if not all(context.table.converged for context in contexts):
            return (
                "the effect of positions did not converge, because the clicks hardly determine "
                "it. Log more sessions, or more random pages"
            )
        return _doubt_of_pages(contexts)

    def doubt(self, estimate: Any) -> str:
        """The interval is too wide for the errors to be small."""
        half_width = estimate.half_width
        if half_width <= WIDEST.value * estimate.logged:
            return ""
        return (
            f"the interval is as wide as ±{half_width / estimate.logged:.0%} of the clicks. "
            "Log more sessions"
        )


class ByModel(Method):
    """A click model that was passed."""

    name = "direct"
    reads = "model"
    reads_what = " (a click model)"
    assumption = "the click model is right on these pages too"

    def _lacks(self, given):
        return given["model"] is None

    def evidence(self, pages: Pages, table: ClickTable) -> Evidence:
        """By the model, which is fitted to the log if it is not."""
        log = pages.log
        model = self._fitted(log)
        # Models read rows of X: a row of the document, at its new place.
        first_row_of_pair = first_rows(log.pair, len(log.pair_query))
        click = _predicted(model, log, first_row_of_pair[pages.pair], pages.ranking, pages.slot)
        logged = _predicted(model, log, log.row, log.rows.choice[log.row], log.slot)
        return _by_document(pages, table, click, logged)

    def _fitted(self, log):
        model = self._given
        # What cannot be fitted is taken as it is.
        if not hasattr(model, "fit"):
            return model
        try:
            check_is_fitted(model)
        except NotFittedError:
            roles = {name: values for name, values in log.roles.items() if values is not None}
            return clone(model).fit(log.X, log.y, log.sample_weight, **roles)
        return model

    def contradiction(self, log: LoggedPages, contexts: list[Any]) -> str:
        """Documents that are higher than usual get more or fewer clicks than predicted."""
        return _doubt_of_moves(log, contexts, self.name)


class PositionBased(Method):
    """Inverse propensity scoring of a position-based model."""

    name = "pbm"
    reads = "propensity"
    assumption = "a click needs examination, which depends on the position only"

    def evidence(self, pages: Pages, table: ClickTable) -> Evidence:
        """By the clicks of each document per examination."""
        log = pages.log
        values, _ = propensities(self._given, log, default=_refuse_to_assume)
        values = log.rows.replace("propensity", values)["propensity"]
        examination = _positive(values, log, "propensity")
        by_document = _by_document(pages, table, table.predict(pages), log.rate)
        slope = log.mean_by_position(examination)
        return _by_rates(pages, by_document._replace(slope=slope), examination)

    def contradiction(self, log: LoggedPages, contexts: list[Any]) -> str:
        """Documents that moved differ from the prediction, or whole pages from the formula."""
        return _doubt_of_moves(log, contexts, self.name) or _doubt_of_pages(contexts)


class ItemPosition(Method):
    """Click rates of each document at each position."""

    name = "item-position"
    reads = "probability"
    assumption = "a click depends on the document and its position only"

    def evidence(self, pages: Pages, table: ClickTable) -> Evidence:
        """By the clicks of each document at the position, per impression."""
        log = pages.log
        shown = log.weight
        # A page that was unlikely stands for more pages.
        if self._given is not None:
            probability = np.asarray(self._given, dtype=float)
            shown = shown / _positive(probability, log, "probability")
        _, logged_cell = log.shown_cells
        cell, is_known = pages.cell()
        slope = np.ones(len(table.slope))
        at_position = Evidence(
            table.predict(pages), log.rate, cell, logged_cell, is_known, shown, slope
        )
        return _by_rates(pages, at_position, np.ones(len(log.row)))


METHODS: dict[str, type[Method]] = {
    method.name: method for method in (DoublyRobust, ByModel, PositionBased, ItemPosition)
}


# Clicks -----------------------------------------------------------------------------------------
def _by_document(pages, table, click, logged_click):
    """Evidence whose units are the documents of queries."""
    log = pages.log
    logged_unit = log.pair[log.row]
    # Documents that were candidates only have no clicks to read.
    n_rows = np.bincount(logged_unit, minlength=len(log.pair_query))
    is_known = n_rows[pages.pair] > 0
    return Evidence(
        click, logged_click, pages.pair, logged_unit, is_known, log.weight, table.slope
    )


def _by_rates(pages, evidence, exposure):
    """The same with click rates of the units, per exposure of each row of the log."""
    clicks = np.bincount(evidence.logged_unit, evidence.shown * pages.log.rate)
    exposed = np.bincount(evidence.logged_unit, evidence.shown * exposure)
    rate = clicks / np.maximum(exposed, TINY)
    # A unit that the log lacks has no rate: any other one stands in, and is not used.
    known_unit = np.where(evidence.is_known, evidence.unit, evidence.logged_unit[0])
    click = evidence.slope[pages.slot] * rate[known_unit]
    return evidence._replace(
        # Where the log has nothing, the formula of "dr" fills the gap.
        click=np.where(evidence.is_known, click, evidence.click),
        logged_click=exposure * rate[evidence.logged_unit],
    )


def _predicted(model, log, row, session, slot):
    """P(click) by a click model of rows of X, as pages that have them at other slots."""
    rows = log.rows
    document = None if rows["doc"] is None else rows["doc"][row]
    click = model.predict_click(
        safe_indexing(log.X, row),
        conditional=False,
        qid=rows["qid"][row],
        session=session,
        doc=document,
        position=log.slot_position[slot],
    )
    click = np.asarray(click, dtype=float)
    is_probability = (click >= 0) & (click <= 1)  # False for NaN, too
    if not is_probability.all():
        raise ValueError(
            f"{type(model).__name__}.predict_click has values outside [0, 1]; expected none."
        )
    return click


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
    shown = values[log.row]
    is_wrong = ~((shown > 0) & (shown <= 1))
    if is_wrong.any():
        row = log.row[is_wrong.argmax()]
        raise ValueError(
            f"{name} is {values[row]:g} in row {row}, which was shown; expected a number in "
            "(0, 1] there."
        )
    return shown


# Support ----------------------------------------------------------------------------------------
def support_of(pages: Pages, due: Floats, is_known: Bools) -> Floats:
    """Clicks at the places that the log knows, and at all, of each ranking: shape (2, n)."""
    # Places count by the mean click rate of their position.
    rate = pages.log.mean_by_position(pages.log.rate)
    clicks = due * rate[pages.slot]
    known = np.bincount(pages.ranking, clicks * is_known)
    return np.stack([known, np.bincount(pages.ranking, clicks)])


# Doubts -----------------------------------------------------------------------------------------
def _doubt_of_moves(log, contexts, name):
    """Why documents away from their usual position refute a method."""
    moved = sum(context.moved() for context in contexts)
    error = log.error_per_page(moved) * log.query_pages.sum()
    if abs(moved.sum()) <= CONTRADICTION.value * error:
        return ""
    # Pages are so many that Student's distribution is the normal one.
    p_value = p_value_of(moved.sum(), error, n_queries=1e9)
    way = "more" if moved.sum() > 0 else "fewer"
    return (
        f"the log contradicts method={name!r}: documents that are higher than usual get {way} "
        f"clicks than it predicts (p = {p_value:.2g}). Use method='dr'"
    )


def _doubt_of_pages(contexts):
    """Why whole pages refute the formula: their clicks differ less than it predicts.

    A ranking that is worth more than predicted does no harm.
    """
    for context in contexts:
        excess, error = context.table.excess(context.gains)
        if excess <= -CONTRADICTION.value * error:
            return (
                "the log contradicts the formula: between the pages of a query clicks differ by "
                f"{max(1 + excess, 0):.0%} of what it predicts. Use method='item-position', or "
                "an experiment (plan_experiment, Interleaver)"
            )
    return ""


def doubt_of_method(
    beyond: float, error: float, claimed: float | None, n_queries: float, method: str
) -> str:
    """Why two methods forbid to believe one; ``claimed`` if it would win."""
    # Where two methods differ by more than chance, one is wrong, and the clicks do not say which.
    p_value = p_value_of(beyond, error, n_queries)
    if p_value < LEVEL.value:
        return (
            f"method={method!r} and method='dr' disagree by {beyond:+.4g} per page (p = "
            f"{p_value:.2g}), and the clicks of the log contradict neither. Log more random pages"
        )
    if claimed is not None and p_value_of(claimed, error, n_queries) >= LEVEL.value:
        return (
            "the log is too small to test what the method assumes: an error as large as the "
            "difference would not be seen. Log more random pages"
        )
    return ""


def p_value_of(value: float, error: float, n_queries: float) -> float:
    """Two-sided, of a value of 0."""
    # Without an error, a value is 0 or is not.
    if not error:
        return float(value == 0)
    return float(2 * student.sf(abs(value) / error, n_queries - 1))
