"""Lists with what was clicked together: from logs, and from rows to predict."""

from dataclasses import replace

import numpy as np

from .._log._segments import offsets_from_counts, rectangles
from ..exceptions import ClickDataWarning, warn_user

__all__ = ["click_patterns", "last_clicks"]


#: Cells of one rectangle when lists are split, whose patterns are as many as their rows.
_MAX_CELLS = 1 << 16


#: Distinct rates of a list, at most: each is one more copy of its rows.
_MAX_LEVELS = 16


def click_patterns(log):
    """A log in which every row was clicked or not: what models of whole lists read.

    A list with click rates c is split into the lists clicked where c > u, u uniform over [0, 1]:
    as many as it has distinct rates, weighted by the gaps between them. The click rate of every
    row stays what it was; which rows were clicked *together* is lost with aggregation, and this
    choice takes them to be clicked together as often as the rates allow. A list of more than 16
    distinct rates is split into 17 patterns: rows of neighbouring rates get their mean, so that
    its clicks stay what they were and those of a row only about.

    Parameters
    ----------
    log : ClickLog

    Returns
    -------
    log : ClickLog
        Shown rows only, one weight per list, ``clicks`` 0 or the weight.
    """
    log = _shown_rows(log)
    weight = _list_weights(log)
    clicked = log.clicks > 0
    partly = clicked & (log.clicks < log.weight)
    if partly.any():
        split = np.logical_or.reduceat(partly, log.offsets[:-1])
        warn_user(
            f"{int(split.sum())} of {log.n_lists} lists have click rates between 0 and 1 (an "
            "aggregated or graded log): which rows were clicked together is not known, and they "
            "are taken to be clicked together as often as their rates allow (in lists of more "
            f"than {_MAX_LEVELS} rates, about so). Models of whole lists need one row a shown "
            "document of each session, with clicks 0 or 1.",
            ClickDataWarning,
        )
        log, clicked, weight = _split(log, weight, split)
    weight = np.repeat(weight, np.diff(log.offsets))
    if np.array_equal(weight, log.weight):
        weight = log.weight  # one copy
    return replace(
        log,
        clicks=np.where(clicked, weight, 0.0),
        weight=weight,
    )


def last_clicks(log):
    """Place (from 1) of each row in its list, and of the list's last click, 0 without one."""
    lengths = np.diff(log.offsets)
    place = np.arange(log.n_rows) - np.repeat(log.offsets[:-1], lengths) + 1
    clicked = np.where(log.clicks > 0, place, 0)
    last = np.maximum.reduceat(clicked, log.offsets[:-1])
    return place, np.repeat(last, lengths)


def _shown_rows(log):
    return log if log.shown.all() else log.take_rows(log.shown, log.list_[log.shown])


def _list_weights(log):
    """Impressions of each list: the mean of its rows."""
    starts = log.offsets[:-1]
    mean = np.add.reduceat(log.weight, starts) / np.diff(log.offsets)
    low, high = (f.reduceat(log.weight, starts) for f in (np.minimum, np.maximum))
    uneven = int(np.count_nonzero(high > low))
    if uneven:
        warn_user(
            f"{uneven} of {log.n_lists} lists have rows of different impressions (or sample "
            "weights), first of list 1: a list is seen as a whole, and counts as their mean.",
            ClickDataWarning,
        )
    return np.where(high > low, mean, low)


def _split(log, weight, split):
    """The log with each list of ``split`` once a pattern; what is clicked; weights by list."""
    rate = log.click_rate
    whole = np.flatnonzero(~split[log.list_])
    parts = [(whole, log.list_[whole], rate[whole] > 0)]
    weights = [weight[~split]]
    n_lists = log.n_lists
    lengths = np.where(split, np.diff(log.offsets), 0)
    rows_of = np.flatnonzero(split[log.list_])
    for segments, place in rectangles(offsets_from_counts(lengths), _MAX_CELLS):
        inside = place >= 0
        rows = np.where(inside, rows_of[place], 0)
        rates = _few_levels(np.where(inside, rate[rows], 0.0))
        levels = np.column_stack([np.ones(len(rates)), -np.sort(-rates, axis=1)])
        gaps = np.column_stack([levels[:, :-1] - levels[:, 1:], levels[:, -1]])
        # Between one rate and the next, the same rows are clicked.
        one, level = np.nonzero(gaps > 0)
        clicked = (rates[one] >= levels[one, level][:, None]) & (rates[one] > 0)
        keep = inside[one]
        number = n_lists + np.arange(len(one))
        n_lists += len(one)
        parts.append(
            (rows[one][keep], np.broadcast_to(number[:, None], keep.shape)[keep], clicked[keep])
        )
        weights.append(weight[segments[one]] * gaps[one, level])
    rows, list_, clicked = (np.concatenate(part) for part in zip(*parts, strict=True))
    return log.take_rows(rows, list_), clicked, np.concatenate(weights)


def _few_levels(rates):
    """Rates of lists (n_lists, width) with at most ``_MAX_LEVELS`` above 0 in each.

    Neighbours in the order of the rates share their mean; a rate of 0 stays 0.
    """
    order = np.argsort(-rates, axis=1)
    falling = np.take_along_axis(rates, order, axis=1)
    level = np.cumsum(np.diff(falling, axis=1, prepend=falling[:, :1]) < 0, axis=1)
    n_levels = level.max(axis=1, where=falling > 0, initial=0, keepdims=True) + 1
    level = np.where(n_levels > _MAX_LEVELS, level * _MAX_LEVELS // n_levels, level)
    level[falling == 0] = rates.shape[1]
    key = level + np.arange(len(rates))[:, None] * (rates.shape[1] + 1)
    total, count = np.bincount(key.ravel(), falling.ravel()), np.bincount(key.ravel())
    mean = total[key] / count[key]
    few = np.empty_like(rates)
    np.put_along_axis(few, order, np.where(n_levels > _MAX_LEVELS, mean, falling), axis=1)
    return few
