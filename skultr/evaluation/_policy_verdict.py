"""What is said of a ranking: its verdict in words, or why the log cannot tell."""

from __future__ import annotations

import numpy as np

from .._log._segments import TINY
from ..exceptions import python_value
from ._click_table import ClickTable
from ._logged_pages import LoggedPages
from ._policy_estimate import Worth
from ._policy_methods import support_of
from ._thresholds import (
    LEAST_CLICKS,
    LEAST_MOVED,
    LEAST_QUERIES,
    LEAST_SUPPORT,
    STEEPER,
    STEEPER_ERRORS,
)


def verdict_of(worth: Worth, names: tuple[str, str]) -> str:
    """Who wins, by how much, and what that assumes."""
    low, high = worth.interval
    head = "no difference seen"
    if worth.wins:
        winner, other = names if worth.gained_low > 0 else names[::-1]
        head = f"{winner} gets more than {other}"
    share = worth.gained / worth.logged
    verdict = (
        f"{head}: {worth.value:.4g} per page (95 % interval {low:.4g} to {high:.4g}), which is "
        f"{share:+.1%} of the clicks in the log, if {worth.method.assumption}."
    )
    if worth.method.bounds_unseen and worth.has_ends:
        verdict += (
            f" {1 - worth.support:.0%} of the clicks are at places of documents that the log "
            "never showed. Such a document may get no clicks, or as many as the best one at its "
            "position; the interval covers both."
        )
    if not worth.log.has_pages:
        verdict += " Counts without sessions cannot test whether the documents above matter."
    return verdict


# Doubts -----------------------------------------------------------------------------------------
def doubt_before(worth: Worth) -> str:
    """Why the log has too little of what the rankings show, or contradicts the method."""
    doubt = _doubt_of_log(worth) or doubt_of_formula(worth)
    # With a context, each of its values has a fit of its own.
    if not doubt and worth.log.context is None:
        doubt = _doubt_of_columns(worth.log, worth.contexts[0].table)
    return doubt


def doubt_of_formula(worth: Worth) -> str:
    """Why the clicks of the log contradict the method."""
    return worth.method.contradiction(worth.log, worth.contexts)


def doubt_after(worth: Worth, names: tuple[str, str]) -> str:
    """Why the numbers do not decide."""
    # Documents that were never shown decide who wins, unless both ends agree.
    if worth.is_agreed:
        return worth.method.doubt(worth)
    low = worth.gained_low / worth.logged
    high = worth.gained_high / worth.logged
    first, second = names
    return (
        f"{1 - worth.support:.0%} of the clicks are at places of documents that the log never "
        f"showed, so that {first} gets from {low:+.1%} to {high:+.1%} of the clicks more than "
        f"{second}. Show these documents on some pages"
    )


def _doubt_of_log(worth):
    """Why the log has too few clicks, queries, or moves of documents."""
    log = worth.log
    if not log.rate.any():
        return "the log has no click"
    # Places that the log has, and moves of documents: without both, nothing tests a method.
    known, due = sum(map(_support_of_cells, worth.contexts))
    moved = _moved_share(worth)
    if (known < LEAST_SUPPORT.value * due).any() and moved < LEAST_MOVED.value:
        return (
            f"documents are at their usual position in {1 - moved:.1%} of the impressions, so "
            "that the log cannot test the effect of another position, whatever propensities or "
            "models say. Log some pages with random swaps"
        )
    if worth.support < LEAST_SUPPORT.value and not worth.method.bounds_unseen:
        return (
            f"the log has {worth.support:.0%} of the documents that the ranking shows, or moves, "
            f"and {LEAST_SUPPORT.value:.0%} are needed. Log more random pages, or use method='dr'"
        )
    if worth.n_clicks < LEAST_CLICKS.value:
        return _too_few("clicks", worth.n_clicks, LEAST_CLICKS.value)
    if worth.n_queries < LEAST_QUERIES.value:
        groups = "queries" if log.cluster is None else "queries or clusters"
        return _too_few(groups, worth.n_queries, LEAST_QUERIES.value)
    return ""


def _support_of_cells(context):
    """Clicks at places that the log has with the same document, and at all, by ranking."""
    _, is_known = context.pages.cell()
    return support_of(context.pages, context.due, is_known)


def _moved_share(worth):
    """Share of the impressions of all contexts at which a document was not at its usual place."""
    moved = 0.0
    for context in worth.contexts:
        share = context.log.weight.sum() / worth.log.weight.sum()
        moved += share * context.log.moved()
    return moved


def _too_few(what, number, least):
    return (
        f"the effective number of {what} is {number:.1f}, and {least} are needed. Log more "
        "sessions"
    )


def _doubt_of_columns(log: LoggedPages, table: ClickTable) -> str:
    """Why pages of different columns of the log must not be taken together.

    Each value of a column is compared with each other one: two that differ from their mean by as
    much in opposite directions differ twice as much from each other.
    """
    for name, codes, values in log.page_columns():
        steeper, influence = _steeper(log, table, codes, len(values))
        apart = np.subtract.outer(steeper, steeper)
        # Variance of each difference: both variances, less twice what queries share.
        shared = influence @ influence.T
        own = np.diag(shared)
        error = np.sqrt(np.maximum(np.add.outer(own, own) - 2 * shared, TINY))
        differs = (apart > STEEPER.value) & (apart > STEEPER_ERRORS.value * error)
        if not differs.any():
            continue
        # The pair that differs most.
        most = np.where(differs, apart, 0.0).argmax()
        pair = np.unravel_index(most, apart.shape)
        deeper, other = (python_value(values[code]) for code in pair)
        return (
            f"how deep users read depends on the column {name!r} "
            f"(examination at {deeper!r} is that at {other!r} times the position to the power of "
            f"{apart[pair]:.2f} ± {error[pair]:.2f}). Pass context={name!r}"
        )
    return ""


def _steeper(log, table, codes, n_values):
    """Exponent of the position by which the examination of each value of a column differs from the
    predicted one, and what each query moves it by, (n_values, n_queries).

    With clicks y and their predictions p, the sum of (y - p) times the log of the position, for
    the pages of one value, is 0 if their users read as deep as predicted.
    """
    depth = np.log(log.slot_position)[log.slot]
    predicted = log.weight * table.predict_logged()
    clicks = log.weight * log.rate
    query = log.slot_query[log.slot]
    steeper = np.full(n_values, np.nan)  # where clicks at several positions are missing
    influence = np.zeros((n_values, len(log.query_pages)))
    for code in range(n_values):
        inside = codes == code
        n_predicted = predicted[inside].sum()
        mean_depth = depth[inside] @ predicted[inside] / n_predicted
        away = np.where(inside, depth - mean_depth, 0.0)
        # Values may differ in how often they click; only the fall with the position matters.
        level = clicks[inside].sum() / n_predicted
        information = level * (predicted @ away**2)
        if information > 0:
            left = away * (clicks - level * predicted)
            influence[code] = np.bincount(query, left, influence.shape[1]) / information
            steeper[code] = influence[code].sum()
    return steeper, influence
