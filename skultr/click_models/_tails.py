"""Counts of a log for models of the cascade family, whose users scan down and may stop.

All rows down to the last click were examined, so that they are counted once. The rows below it
are the tail of the list: the user stopped there at an unknown row. Tails with the same documents
and the same key of the last click are folded into one with a weight, whatever was above.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from .._log._hashing import hash_columns, mix
from .._log._segments import offsets_from_counts, rectangles
from ._patterns import last_clicks


@dataclass(frozen=True, eq=False)
class Visit:
    """Expected counts below the last clicks, given all clicks."""

    log_likelihood: float
    examined: np.ndarray  # (n_docs,)
    went_on: np.ndarray  # (n_keys,)
    skips: float
    went_on_after_skip: float
    examined_variance: np.ndarray  # (n_docs,)
    went_on_variance: np.ndarray  # (n_keys,)


@dataclass(frozen=True, eq=False)
class ChainCounts:
    """A click log as counts down to the last clicks, and tails below them.

    Keys are what P(continue | click) depends on: documents or positions; n_keys stands for lists
    without a click, and n_docs for no document.
    """

    clicks: np.ndarray  # (n_docs,)
    skips: np.ndarray  # (n_docs,), above a click: certainly examined
    clicks_above: np.ndarray  # (n_keys,), with a click below: the user continued
    last_clicks: np.ndarray  # (n_keys,), with a row below: whether the user continued is unknown
    tails: list  # of (doc (width, n_tails), key (n_tails,), weight (n_tails,))

    def visit(self, attraction, after_skip, after_click):
        """Expected counts given the parameters, by an exact forward-backward pass."""
        # No document is never clicked. Without a click, the tail begins at the top of the list,
        # which is always examined.
        attraction = np.append(attraction, 0.0)
        after_click = np.append(after_click, 1.0)
        value = skips = went_on_after_skip = 0.0
        examined, examined_variance = np.zeros((2, len(attraction)))
        went_on, went_on_variance = np.zeros((2, len(after_click)))
        for doc, key, weight in self.tails:
            click = attraction[doc]
            log_chance, reached = _forward_backward(click, after_skip, after_click[key])
            value += weight @ log_chance
            variance = reached * (1 - reached) * weight
            went_on_variance += np.bincount(key, variance[0], minlength=len(went_on))
            examined_variance += np.bincount(
                doc.ravel(), variance.ravel(), minlength=len(examined)
            )
            reached *= weight
            went_on += np.bincount(key, reached[0], minlength=len(went_on))
            below = doc[1:] < len(attraction) - 1
            skips += float((reached[:-1] * below).sum())
            went_on_after_skip += float((reached[1:] * below).sum())
            examined += np.bincount(doc.ravel(), reached.ravel(), minlength=len(examined))
        return Visit(
            value,
            examined[:-1],
            went_on[:-1],
            skips,
            went_on_after_skip,
            examined_variance[:-1],
            went_on_variance[:-1],
        )

    def variance_after_last(self, visit, on, off):
        """Variance of the number of hidden events after last clicks, shape (n_keys,).

        Let g_i = P(user continued after last click i | all clicks). The event after click i has
        the probability p_i = off + (on - off) g_i, and the variance is Σ p_i (1 - p_i) with

            Σ p_i  = n off + (on - off) Σ g_i,
            Σ p_i² = n off² + 2 off (on - off) Σ g_i + (on - off)² Σ g_i².

        ``visit`` holds Σ g_i and Σ g_i (1 - g_i), whose difference is Σ g_i².
        """
        n, went_on = self.last_clicks, visit.went_on
        mean = n * off + (on - off) * went_on
        squares = (on - off) ** 2 * (went_on - visit.went_on_variance)
        return mean - (n * off**2 + 2 * off * (on - off) * went_on + squares)


def _forward_backward(click, after_skip, after_click):
    """log P(no click in the tail), shape (n,), and P(examined | no click), shape (width, n)."""
    if after_skip == 1:
        return _all_or_none(click, after_click)
    # Products need no logarithms: none is much smaller than 1 - after_skip, because users stop.
    width = len(click)
    unclicked = np.empty_like(click)  # P(no click from here | examined)
    onward = np.empty_like(click)  # P(no click below | examined and skipped)
    below = np.ones(click.shape[1])
    for k in range(width - 1, -1, -1):
        onward[k] = 1 - after_skip + after_skip * below
        below = unclicked[k] = (1 - click[k]) * onward[k]
    chance = 1 - after_click + after_click * below
    reached = np.empty_like(click)
    reached[0] = after_click * below / chance
    for k in range(1, width):
        reached[k] = reached[k - 1] * after_skip * unclicked[k] / onward[k - 1]
    return np.log(chance), reached


def _all_or_none(click, after_click):
    """Results of :func:`_forward_backward` if a skip never ends the visit, by logarithms.

    A user who continues examines the whole tail, and the product of many skips may underflow.
    """
    unclicked = np.log1p(-click).sum(axis=0)
    with np.errstate(divide="ignore"):  # after_click is 1 for lists without a click
        log_chance = np.logaddexp(np.log1p(-after_click), np.log(after_click) + unclicked)
        reached = np.exp(np.log(after_click) + unclicked - log_chance)
    return log_chance, np.tile(reached, (len(click), 1))


def count_chain(log, key=attrgetter("doc"), n_keys=None):
    """Counts of a log of :func:`click_patterns`; ``key`` maps it to one code per row."""
    n_docs = log.n_docs
    n_keys = n_docs if n_keys is None else n_keys
    counts = {
        "clicks": np.zeros(n_docs),
        "skips": np.zeros(n_docs),
        "clicks_above": np.zeros(n_keys),
        "last_clicks": np.zeros(n_keys),
    }
    tails, first_row = [], 0
    for part in log.chunks():
        keys = key(part)
        place, last = last_clicks(part)
        clicked, above = part.clicks > 0, place < last
        bottom = np.repeat(np.diff(part.offsets), np.diff(part.offsets))
        for name, rows, codes in (
            ("clicks", clicked, part.doc),
            ("skips", above & ~clicked, part.doc),
            ("clicks_above", above & clicked, keys),
            ("last_clicks", clicked & (place == last) & (last < bottom), keys),
        ):
            total = counts[name]
            total += np.bincount(codes[rows], part.weight[rows], minlength=len(total))
        found = _tails(part, last[part.offsets[:-1]], keys, n_keys)
        tails.append((found[0] + first_row, *found[1:]))
        first_row += part.n_rows
    return ChainCounts(**counts, tails=list(_blocks(log.doc, n_docs, *_fold(tails))))


def _tails(log, last, key, n_keys):
    """Per tail: first row, number of rows, key of the last click, weight, and two hashes."""
    starts = log.offsets[:-1]
    lengths = np.diff(log.offsets) - last
    some = lengths > 0
    begin, lengths = (starts + last)[some], lengths[some]
    # Tails of lists without a click have the key n_keys.
    head = np.where(last[some] > 0, key[begin - 1], n_keys)
    offsets = offsets_from_counts(lengths)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    row = hash_columns([place, log.doc[place + np.repeat(begin, lengths)]])
    hashes = np.array([np.add.reduceat(of, offsets[:-1]) for of in (row, mix(row))])
    hashes[0] ^= hash_columns([head])
    return begin, lengths, head, log.weight[starts[some]], *hashes


def _fold(tails):
    """Distinct tails: first row, number of rows, key, and the sum of the weights of equal ones."""
    begin, lengths, head, weight, *hashes = (np.concatenate(of) for of in zip(*tails, strict=True))
    order = np.lexsort(hashes)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([of[order[1:]] != of[order[:-1]] for of in hashes], axis=0)
    group = np.cumsum(new) - 1
    first = order[new]
    return begin[first], lengths[first], head[first], np.bincount(group, weight[order])


def _blocks(doc, n_docs, begin, lengths, head, weight):
    """Blocks of tails (doc, key, weight), padded with the document ``n_docs``."""
    for chosen, place in rectangles(offsets_from_counts(lengths)):
        inside = place >= 0
        rows = begin[chosen, None] + np.arange(place.shape[1])
        block = np.where(inside, doc[np.where(inside, rows, 0)], n_docs)
        yield np.ascontiguousarray(block.T), head[chosen], weight[chosen]
