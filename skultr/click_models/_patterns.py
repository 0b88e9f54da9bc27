"""Lists in which every row was clicked or not, for models of whole lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._log._segments import offsets_from_counts, rectangles
from ..exceptions import ClickDataWarning, warn_user

#: Largest number of cells of a rectangle when lists are split: each yields one pattern per row.
_MAX_CELLS = 1 << 16


#: Largest number of distinct rates of a list: each is one more copy of its rows.
_MAX_RATES = 16


def click_patterns(log):
    """A log in which every row was clicked or not, as models of whole lists need it.

    Draw u ~ U(0, 1); row i is clicked if rate_i > u. Each distinct pattern of clicks becomes one
    list, weighted by its probability: the gap between neighbouring rates. The click rate of every
    row is preserved. An aggregated log does not contain which rows were clicked *together*; this
    choice assumes that they were as often as the rates allow. A list with more than 16 distinct
    rates is split into 17 patterns: rows with neighbouring rates get their mean, which preserves
    the clicks of the list, and those of a row approximately.
    """
    log = _shown_rows(log)
    weight = _list_weights(log)
    clicked = log.clicks > 0
    partly = clicked & (log.clicks < log.weight)
    if partly.any():
        split = np.logical_or.reduceat(partly, log.offsets[:-1])
        warn_user(
            f"Found click rates between 0 and 1 in {int(split.sum())} of {log.n_lists} lists (an "
            "aggregated or graded log): which rows were clicked together is not known. They are "
            "assumed to be clicked together as often as their rates allow (approximately, in "
            f"lists of more than {_MAX_RATES} rates). Models of whole lists need one row per "
            "shown document of each session, with clicks 0 or 1.",
            ClickDataWarning,
        )
        log, clicked, weight = _split(log, weight, split)
    weight = np.repeat(weight, np.diff(log.offsets))
    if np.array_equal(weight, log.weight):
        weight = log.weight  # saves memory
    return replace(
        log,
        clicks=np.where(clicked, weight, 0.0),
        weight=weight,
    )


def last_clicks(log):
    """Place of each row in its list, from 1, and of the last click of the list, 0 if none."""
    lengths = np.diff(log.offsets)
    place = np.arange(log.n_rows) - np.repeat(log.offsets[:-1], lengths) + 1
    clicked = np.where(log.clicks > 0, place, 0)
    last = np.maximum.reduceat(clicked, log.offsets[:-1])
    return place, np.repeat(last, lengths)


def _shown_rows(log):
    return log if log.shown.all() else log.take_rows(log.shown, log.list_[log.shown])


def _list_weights(log):
    """Impressions per list: the mean over its rows."""
    starts = log.offsets[:-1]
    mean = np.add.reduceat(log.weight, starts) / np.diff(log.offsets)
    low, high = (f.reduceat(log.weight, starts) for f in (np.minimum, np.maximum))
    uneven = int(np.count_nonzero(high > low))
    if uneven:
        warn_user(
            f"Found rows with different impressions (or sample weights) in {uneven} of "
            f"{log.n_lists} lists. A list is seen as a whole: it gets the mean of its rows as "
            "weight. Give all rows of a list the same number of impressions.",
            ClickDataWarning,
        )
    return np.where(high > low, mean, low)


def _split(log, weight, split):
    """The log with one list per pattern of the lists in ``split``; clicked rows; list weights."""
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
        rates = _few_rates(np.where(inside, rate[rows], 0.0))
        ends = np.column_stack([np.ones(len(rates)), -np.sort(-rates, axis=1)])
        gaps = np.column_stack([ends[:, :-1] - ends[:, 1:], ends[:, -1]])
        # For u between one rate and the next, the same rows are clicked.
        one, end = np.nonzero(gaps > 0)
        clicked = (rates[one] >= ends[one, end][:, None]) & (rates[one] > 0)
        keep = inside[one]
        number = n_lists + np.arange(len(one))
        n_lists += len(one)
        parts.append(
            (rows[one][keep], np.broadcast_to(number[:, None], keep.shape)[keep], clicked[keep])
        )
        weights.append(weight[segments[one]] * gaps[one, end])
    rows, list_, clicked = (np.concatenate(part) for part in zip(*parts, strict=True))
    return log.take_rows(rows, list_), clicked, np.concatenate(weights)


def _few_rates(rates):
    """Rates of lists (n_lists, width), with at most ``_MAX_RATES`` distinct rates above 0 each.

    Neighbours in the order of the rates get their mean; a rate of 0 stays 0.
    """
    order = np.argsort(-rates, axis=1)
    falling = np.take_along_axis(rates, order, axis=1)
    group = np.cumsum(np.diff(falling, axis=1, prepend=falling[:, :1]) < 0, axis=1)
    n_rates = group.max(axis=1, where=falling > 0, initial=0, keepdims=True) + 1
    group = np.where(n_rates > _MAX_RATES, group * _MAX_RATES // n_rates, group)
    group[falling == 0] = rates.shape[1]
    key = group + np.arange(len(rates))[:, None] * (rates.shape[1] + 1)
    total, count = np.bincount(key.ravel(), falling.ravel()), np.bincount(key.ravel())
    mean = total[key] / count[key]
    few = np.empty_like(rates)
    np.put_along_axis(few, order, np.where(n_rates > _MAX_RATES, mean, falling), axis=1)
    return few
