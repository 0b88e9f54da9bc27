"""What happened below the last click: the hidden part of users who read down and may stop.

All rows down to the last click were examined, so that they are counted once. Below it the user
stopped somewhere unseen. Sessions with the same rows below the last click, of the same key, fold
together, whatever stood or was clicked above.
"""

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from .._log._hashing import hash_columns, mix
from .._log._segments import offsets_from_counts, rectangles
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
    examined_variance : ndarray of shape (n_docs,)
        Variance of the number of examinations, given the clicks.
    went_on_variance : ndarray of shape (n_keys,)
    """

    log_likelihood: float
    examined: np.ndarray
    went_on: np.ndarray
    skips: float
    went_on_after_skip: float
    examined_variance: np.ndarray
    went_on_variance: np.ndarray


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
        Rectangles of the documents below (width, n_tails); the key of the last click, shape
        (n_tails,); and weights. Documents have the code n_docs, and keys n_keys, where there is
        none.
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
        examined, examined_variance = np.zeros((2, len(attraction)))
        went_on, went_on_variance = np.zeros((2, len(after_click)))
        for doc, key, weight in self.tails:
            click = attraction[doc]
            log_chance, reached = _forward_backward(click, after_skip, after_click[key])
            value += weight @ log_chance
            open_ = reached * (1 - reached) * weight
            went_on_variance += np.bincount(key, open_[0], minlength=len(went_on))
            examined_variance += np.bincount(doc.ravel(), open_.ravel(), minlength=len(examined))
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
        """Variance of the number of hidden events after last clicks, given all clicks, by key.

        Parameters
        ----------
        visit : Visit
        on, off : ndarray of shape (n_keys,)
            Chance of the event where the user went on, and where not.
        """
        n, went_on = self.last_clicks, visit.went_on
        mean = n * off + (on - off) * went_on
        squares = (on - off) ** 2 * (went_on - visit.went_on_variance)
        return mean - (n * off**2 + 2 * off * (on - off) * went_on + squares)


def _forward_backward(click, after_skip, after_click):
    """log P(no click below), shape (n,), and P(examined | no click below), shape (width, n)."""
    if after_skip == 1:
        return _all_or_none(click, after_click)
    # No product here falls far below 1 - after_skip: users stop long before.
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
    return np.log(chance), reached


def _all_or_none(click, after_click):
    """As :func:`_forward_backward` where a skip never ends the visit: by logarithms.

    Who goes on examines all rows below, and in a long list a product of so many skips is 0.
    """
    silent = np.log1p(-click).sum(axis=0)
    with np.errstate(divide="ignore"):  # who begins at the top certainly goes on
        log_chance = np.logaddexp(np.log1p(-after_click), np.log(after_click) + silent)
        reached = np.exp(np.log(after_click) + silent - log_chance)
    return log_chance, np.tile(reached, (len(click), 1))


def count_chain(log, key=attrgetter("doc"), n_keys=None):
    """Count a log for models of the cascade family.

    Parameters
    ----------
    log : ClickLog
        As :func:`click_patterns` gives it.
    key : callable, default=attrgetter("doc")
        The code of what the chance to go on after a click depends on, for each row of a log.
    n_keys : int, default=None
        By default the number of documents.

    Returns
    -------
    counts : ChainCounts
    """
    n_docs = len(log.features)
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
    """First rows below the last clicks, how many follow, keys, weights, and two hashes."""
    starts = log.offsets[:-1]
    lengths = np.diff(log.offsets) - last
    some = lengths > 0
    begin, lengths = (starts + last)[some], lengths[some]
    # Who clicked nothing begins at the top.
    head = np.where(last[some] > 0, key[begin - 1], n_keys)
    offsets = offsets_from_counts(lengths)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    row = hash_columns([place, log.doc[place + np.repeat(begin, lengths)]])
    hashes = np.array([np.add.reduceat(of, offsets[:-1]) for of in (row, mix(row))])
    hashes[0] ^= hash_columns([head])
    return begin, lengths, head, log.weight[starts[some]], *hashes


def _fold(tails):
    """One of each set of equal tails: first row, length, key; and their weights together."""
    begin, lengths, head, weight, *hashes = (np.concatenate(of) for of in zip(*tails, strict=True))
    order = np.lexsort(hashes)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([of[order[1:]] != of[order[:-1]] for of in hashes], axis=0)
    group = np.cumsum(new) - 1
    first = order[new]
    return begin[first], lengths[first], head[first], np.bincount(group, weight[order])


def _blocks(doc, n_docs, begin, lengths, head, weight):
    """Tails as rectangles (doc, key, weight), whose ends hold the document ``n_docs``."""
    for chosen, place in rectangles(offsets_from_counts(lengths)):
        inside = place >= 0
        rows = begin[chosen, None] + np.arange(place.shape[1])
        block = np.where(inside, doc[np.where(inside, rows, 0)], n_docs)
        yield np.ascontiguousarray(block.T), head[chosen], weight[chosen]
