"""What happened below the last click: the hidden part of users who read down and may stop.

All rows down to the last click were examined, so that they are counted once. Below it the user
stopped somewhere unseen. Sessions whose last clicked row and rows below are the same fold
together, whatever stood or was clicked above.
"""

from dataclasses import dataclass

import numpy as np

from .._hashing import hash_columns, mix
from .._segments import offsets_from_counts, rectangles
from ._patterns import last_clicks

__all__ = ["ChainCounts", "Visit", "count_chain"]


@dataclass(frozen=True, eq=False)
class Visit:
    """Expectations over the rows below the last clicks.

    Parameters
    ----------
    log_likelihood : float
    examined : ndarray of shape (n_docs,)
        Expected number of examinations of each document.
    went_on : ndarray of shape (n_keys,)
        Expected number of times that the user went on after the last click, by its key.
    skips, went_on_after_skip : float
        Expected number of skips with a row below them, and after how many the user went on.
    """

    log_likelihood: float
    examined: np.ndarray
    went_on: np.ndarray
    skips: float
    went_on_after_skip: float


@dataclass(frozen=True, eq=False)
class ChainCounts:
    """A click log as what models of the cascade family read.

    Parameters
    ----------
    clicks : ndarray of shape (n_docs,)
        Clicks of each document.
    skips : ndarray of shape (n_docs,)
        Skips above a click, which were surely examined.
    clicks_above : ndarray of shape (n_keys,)
        Clicks by key (document, or position) with a click below: the user went on.
    last_clicks : ndarray of shape (n_keys,)
        Last clicks by key that are not the end of their list: open whether the user went on.
    tails : list of (doc, key, weight)
        Rectangles of documents (width, n_tails), the last clicked (or none) first; the key of
        the first, shape (n_tails,); and weights. Documents have the code n_docs, and keys
        n_keys, where there is none.
    """

    clicks: np.ndarray
    skips: np.ndarray
    clicks_above: np.ndarray
    last_clicks: np.ndarray
    tails: list

    def visit(self, attraction, after_skip, after_click):
        """Expectations given the parameters: an exact forward-backward pass.

        Parameters
        ----------
        attraction : ndarray of shape (n_docs,)
        after_skip : float
        after_click : ndarray of shape (n_keys,)
            P(next row examined | clicked), by key.

        Returns
        -------
        visit : Visit
        """
        # Where there is no document, nobody clicks; who clicked nothing begins at the top.
        attraction = np.append(attraction, 0.0)
        after_click = np.append(after_click, 1.0)
        value = skips = went_on_after_skip = 0.0
        examined = np.zeros(len(attraction))
        went_on = np.zeros(len(after_click))
        for doc, key, weight in self.tails:
            click = attraction[doc[1:]]
            chance, reached = _forward_backward(click, after_skip, after_click[key])
            value += weight @ np.log(chance)
            reached *= weight
            went_on += np.bincount(key, reached[0], minlength=len(went_on))
            below = doc[2:] < len(attraction) - 1
            skips += float((reached[:-1] * below).sum())
            went_on_after_skip += float((reached[1:] * below).sum())
            examined += np.bincount(doc[1:].ravel(), reached.ravel(), minlength=len(examined))
        return Visit(value, examined[:-1], went_on[:-1], skips, went_on_after_skip)


def _forward_backward(click, after_skip, after_click):
    """P(no click below), shape (n,), and P(examined | no click below), shape (width, n)."""
    width = len(click)
    silent = np.empty_like(click)  # P(no click from here | examined)
    onward = np.empty_like(click)  # P(no click below | examined and skipped)
    below = np.ones(click.shape[1])
    for k in range(width - 1, -1, -1):
        onward[k] = 1 - after_skip + after_skip * below
        below = silent[k] = (1 - click[k]) * onward[k]
    chance = 1 - after_click + after_click * below
    reached = np.empty_like(click)
    reached[0] = after_click * below / chance
    for k in range(1, width):
        reached[k] = reached[k - 1] * after_skip * silent[k] / onward[k - 1]
    return chance, reached


def count_chain(log, key=None, n_keys=None):
    """Count a log for models of the cascade family.

    Parameters
    ----------
    log : ClickLog
        As :func:`click_patterns` gives it.
    key : ndarray of shape (n_rows,), default=None
        What the chance to go on after a click depends on; by default the document.
    n_keys : int, default=None

    Returns
    -------
    counts : ChainCounts
    """
    n_docs = len(log.features)
    if key is None:
        key, n_keys = log.doc, n_docs
    place, last = last_clicks(log)
    clicked = log.clicks > 0
    above = place < last
    lengths = np.diff(log.offsets)
    open_end = clicked & (place == last) & (last < np.repeat(lengths, lengths))

    def count(rows, of, size):
        return np.bincount(of[rows], log.weight[rows], minlength=size)

    return ChainCounts(
        clicks=count(clicked, log.doc, n_docs),
        skips=count(above & ~clicked, log.doc, n_docs),
        clicks_above=count(above & clicked, key, n_keys),
        last_clicks=count(open_end, key, n_keys),
        tails=_tails(log, place, last, key, n_docs, n_keys),
    )


def _tails(log, place, last, key, n_docs, n_keys):
    # A list without a click begins with a row of nothing, which was "clicked" at the top.
    starts = log.offsets[:-1]
    last = last[starts]
    n_below = np.diff(log.offsets) - last
    some = n_below > 0
    if not some.any():
        return []
    begin, n_below, last = (starts + last - 1)[some], n_below[some], last[some]
    offsets = offsets_from_counts(n_below + 1)
    rows = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], n_below + 1)
    first = offsets[:-1]
    rows[first[last == 0]] = 0
    doc = log.doc[rows]
    doc[first[last == 0]] = n_docs
    head = np.where(last == 0, n_keys, key[begin])
    weight = log.weight[starts[some]]
    tails, weight = _fold(doc, head, offsets, weight)
    first, head = first[tails], head[tails]
    blocks = []
    for chosen, place in rectangles(offsets_from_counts(n_below[tails] + 1)):
        inside = place >= 0
        rows = first[chosen, None] + np.arange(place.shape[1])
        block = np.where(inside, doc[np.where(inside, rows, 0)], n_docs)
        blocks.append((np.ascontiguousarray(block.T), head[chosen], weight[chosen]))
    return blocks


def _fold(doc, head, offsets, weight):
    """One of each set of equal tails, and their weights together."""
    place = np.arange(len(doc)) - np.repeat(offsets[:-1], np.diff(offsets))
    row = hash_columns([place, doc])
    keys = np.array([np.add.reduceat(row, offsets[:-1]), np.add.reduceat(mix(row), offsets[:-1])])
    keys[0] ^= hash_columns([head])
    order = np.lexsort(keys)
    new = np.ones(len(order), dtype=bool)
    new[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    group = np.cumsum(new) - 1
    return order[new], np.bincount(group, weight[order])
