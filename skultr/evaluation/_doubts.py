"""Why a log cannot tell what a ranking is worth, in words; empty where it can."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

from .._log._segments import TINY
from .._typing import Bools, Floats
from ._click_table import ClickTable
from ._logged_pages import Pages

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
    if method not in ("dr", "pbm"):
        return ""
    excess, error = table.excess(gains)
    if _BLIND < error < np.inf:  # infinite for counts without pages
        return (
            "the log is too small to test the formula on whole pages. Log more sessions, or more "
            "random pages"
        )
    if excess > -_LEAST_WRONG * error:  # a ranking that is worth more than predicted does no harm
        return ""
    return (
        "the log contradicts the formula: between the pages of a query clicks differ by "
        f"{max(1 + excess, 0):.0%} of what it predicts, as when users leave after one click. Use "
        "method='item-position', or an experiment (plan_experiment, Interleaver)"
    )


def doubt_of_width(half: float) -> str:
    """Why an interval is no use, by its half-width relative to the clicks."""
    if half <= _WIDEST:
        return ""
    return f"the interval is as wide as ±{half:.0%} of the clicks. Log more sessions"


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
    clicks = due * pages.log.by_position(pages.log.rate)[pages.slot]
    covered, whole = (np.bincount(pages.ranking, of) for of in (clicks * there, clicks))
    return float((covered / np.maximum(whole, TINY)).min())
