"""Cascade and dependent click models: users scan down and may stop.

All rows down to the last click were examined, so that they are counted once. The rows below it
are the tail of the list: the user stopped there at an unknown row. Tails with the same documents
and the same key of the last click are folded into one with a weight, whatever was above."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._log._segments import rectangles
from .._models._browsing import chain_click_probability, draw_chain_clicks
from ..exceptions import ClickDataWarning, warn_user
from ._em import WEAK, CountingModel, EMClickModel
from ._model import examination_by_position, known_codes, last_clicks

#: EM starts with attraction inside (0, 1): in logits, a probability of 0 or 1 would not move.
_START_OF_ATTRACTION = (0.02, 0.9)


class ChainMixin:
    """P(click) of users who scan down, from three probabilities per row.

    Subclasses write ``_transitions(parameters, position)``: attraction, and P(next row examined)
    after a skip and after a click.
    """

    _attraction = "relevance"

    def _probability(self, parameters, position, bias, clicks):
        return chain_click_probability(*self._transitions(parameters, position), clicks)

    def _draw(self, parameters, position, bias, rng):
        return draw_chain_clicks(*self._transitions(parameters, position), rng)

    def _remember_chain(self, log, means, tables):
        """Keep the tables of documents, and P(examined), not conditional on any click."""
        self._remember_documents(log, means, **tables)
        examined = log.by_chunk(lambda part: self._examined(part, tables))
        self.examination_ = examination_by_position(log, examined)

    def _examined(self, log, tables):
        examined = np.empty(log.n_rows)
        for _, place in rectangles(log.offsets):
            inside = place >= 0
            doc = log.doc[place]
            block = {name: np.where(inside, table[doc], 0.0) for name, table in tables.items()}
            attraction, *chances = self._transitions(block, log.position[place])
            # P(click) is attraction times P(examined).
            click = chain_click_probability(attraction, *chances)
            examined[place[inside]] = click[inside] / attraction[inside]
        return examined


def start_attraction(counts):
    """Initial attraction, shape (n_docs,): clicks over clicks plus skips above a click."""
    shown = counts.clicks + counts.skips
    mean = counts.clicks.sum() / max(shown.sum(), 1e-9)
    # One pseudo-impression at the mean of all documents.
    rate = (counts.clicks + mean) / (shown + 1.0)
    return np.clip(rate, *_START_OF_ATTRACTION)


@dataclass(kw_only=True, eq=False, repr=False)
class CascadeModel(ChainMixin, CountingModel):
    """Cascade model: the user scans down, clicks the first relevant document and leaves.

    Relevance is clicks over impressions, counted down to the first click, so that no EM is
    needed.

    Use it only for logs of at most one click per list: a second click has probability 0. With
    more clicks its perplexity is not comparable with that of other models. Given the clicks
    above, each second click counts as 33 bits, so that a single one in a thousand rows can decide
    a search. :func:`~skultr.metrics.perplexity_score` warns of it.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips of a document. By default they are those of the Beta
        distribution of click rates over documents, by maximum likelihood (empirical Bayes).
    {variant_of_counts}

    Attributes
    ----------
    {relevance}
    examination_ : DataFrame
        Share of impressions that were examined (``examination``) per position (index), with
        ``impressions`` and ``clicks``.
    prior_ : tuple of (float, float)
    {features}

    Warns
    -----
    ClickDataWarning
        If lists have more than one click: the model cannot explain them and uses the first.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import CascadeModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> clicks = [1, 0, 0, 1]
    >>> model = CascadeModel(prior=(1, 1)).fit(log, clicks)
    >>> model.predict_click(log, clicks).round(2)
    array([0.5 , 0.  , 0.5 , 0.67])
    """

    _reads_clicks = True

    def _fit(self, log, task):
        clicks, shown = np.zeros((2, log.n_docs))
        for part in log.chunks():
            examined = np.flatnonzero(_down_to_first_click(part))
            doc = part.doc[examined]
            clicks += np.bincount(doc, part.clicks[examined], minlength=len(clicks))
            shown += np.bincount(doc, part.weight[examined], minlength=len(shown))
        total = log.clicks.sum()
        below = total - clicks.sum()
        if below > 1e-9 * total:  # less is rounding
            warn_user(
                f"Found {below:g} of {total:g} clicks below another click of the same "
                "list. They are not used: the cascade model has at most one click per list. Use "
                "DCMModel or DBNModel, in which users may continue after a click.",
                ClickDataWarning,
            )
        self._remember_rates(log, clicks, shown)
        self.examination_ = examination_by_position(log, log.by_chunk(_down_to_first_click))

    def _transitions(self, parameters, position):
        return parameters["relevance"], 1.0, 0.0


def _down_to_first_click(log):
    """Mask of the rows that were examined: all of a list without a click."""
    place, _ = last_clicks(log)
    clicked = np.where(log.clicks > 0, place, log.n_rows + 1)
    first = np.minimum.reduceat(clicked, log.offsets[:-1])
    return place <= np.repeat(first, np.diff(log.offsets))


@dataclass(kw_only=True, eq=False, repr=False)
class DCMModel(ChainMixin, EMClickModel):
    r"""Dependent click model: P(continue) after a click depends on the position.

    The user scans down. After a skip they always continue with the next row; after a click at
    rank k they continue with probability :math:`\lambda_k`:

    .. math:: P(e_{k+1} = 1 \mid e_k = 1, c_k) = 1 - c_k (1 - \lambda_k), \qquad
              P(c_k = 1 \mid e_k = 1) = r_d.

    Parameters
    ----------
    {prior}
    {steps}
    {variant}

    Attributes
    ----------
    {relevance}
    continuation_ : Series
        :math:`\lambda` by position. Positions without a click that has a row below it, such as
        the deepest, get the value of the nearest position above with one.
    {examination}
    {rounds}
    {features}

    Notes
    -----
    The published estimate assumes that no row below the last click was examined. It therefore
    overestimates relevance and underestimates :math:`\lambda`. This model does not assume it: it
    sums over whether the user continued.

    References
    ----------
    Guo, Liu & Wang (2009). Efficient multiple-click models in web search. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import DCMModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = DCMModel(prior=(1, 1)).fit(log, [1, 1, 0, 1])
    >>> model.predict(log[:2]).round(2)
    array([0.5 , 0.75])
    """

    def _fit(self, log, task):
        self._positions = np.unique(log.position)
        counts = count_chain(
            log,
            key=lambda part: np.searchsorted(self._positions, part.position),
            n_keys=len(self._positions),
        )

        def expect(tables):
            seen = counts.visit(tables["relevance"], 1.0, tables["continuation"])
            continuation = seen.went_on, counts.open_end
            return {"relevance": seen.attraction, "continuation": continuation}, seen.value

        start = {
            "relevance": start_attraction(counts),
            # EM starts as if half of the users continued after a click.
            "continuation": np.full(len(self._positions), 0.5),
        }
        tables, means = self._solve(log, expect, start, {"continuation": WEAK}, ("relevance",))
        index = pd.Index(self._positions, name="position")
        # Values without support are those of the nearest positions above with support.
        supported = np.where(counts.open_end > 0, np.arange(len(index)), 0)
        nearest = np.maximum.accumulate(supported)
        continuation = tables.pop("continuation")[nearest]
        self.continuation_ = pd.Series(continuation, index, name="continuation")
        self._remember_chain(log, means, tables)

    def _transitions(self, parameters, position):
        relevance = parameters["relevance"]
        codes = known_codes(self._positions, position, relevance > 0)
        return relevance, 1.0, self.continuation_.to_numpy()[codes]


class Visit(NamedTuple):
    """Expected counts of a log, given its clicks and the parameters."""

    value: float  # log likelihood
    attraction: tuple  # counts of clicks and examinations of documents, see fit_em
    went_on: np.ndarray  # (n_keys,), after a click
    went_on_variance: np.ndarray  # (n_keys,)
    skips: float
    went_on_after_skip: float


@dataclass(frozen=True, eq=False)
class ChainCounts:
    """A click log as counts down to the last clicks, and tails below them.

    Keys are what P(continue | click) depends on: documents or positions; n_keys stands for lists
    without a click, and n_docs for no document.
    """

    clicks: np.ndarray  # (n_docs,)
    skips: np.ndarray  # (n_docs,), above a click: certainly examined
    clicks_above: np.ndarray  # (n_keys,), with a click below: the user continued
    open_end: np.ndarray  # (n_keys,), with a row below: whether the user continued may be unknown
    tails: list  # of (doc (width, n_tails), key (n_tails,), weight (n_tails,))

    def visit(self, attraction, after_skip, after_click):
        """Expected counts given the parameters, by an exact forward-backward pass."""
        # What is certain: clicks, and skips above a click.
        skips = went_on_after_skip = self.skips.sum()
        value = self.clicks @ np.log(attraction) + self.skips @ np.log1p(-attraction)
        value += skips * np.log(after_skip) + self.clicks_above @ np.log(after_click)
        # No document is never clicked. Without a click, the tail begins at the top of the list,
        # which is always examined.
        click_chance = np.append(attraction, 0.0)
        on_chance = np.append(after_click, 1.0)
        # What is expected of the tails.
        examined, examined_variance = np.zeros((2, len(click_chance)))
        went_on, went_on_variance = np.zeros((2, len(on_chance)))
        for doc, key, weight in self.tails:
            log_chance, reached = _forward_backward(click_chance[doc], after_skip, on_chance[key])
            value += weight @ log_chance
            variance = reached * (1 - reached) * weight
            reached *= weight
            below = doc[1:] < len(attraction)
            skips += float((reached[:-1] * below).sum())
            went_on_after_skip += float((reached[1:] * below).sum())
            _add_counts(examined, doc, reached)
            _add_counts(examined_variance, doc, variance)
            _add_counts(went_on, key, reached[0])
            _add_counts(went_on_variance, key, variance[0])
        sure = self.clicks, self.skips
        trials = self.clicks + self.skips + examined[:-1]
        missing = examined_variance[:-1] / (1 - attraction) ** 2
        return Visit(
            value,
            (self.clicks, trials, missing, sure),
            self.clicks_above + went_on[:-1],
            went_on_variance[:-1],
            skips,
            went_on_after_skip,
        )


def _add_counts(total, codes, values):
    """Add values to the totals of their codes, in place."""
    total += np.bincount(codes.ravel(), values.ravel(), minlength=len(total))


def _forward_backward(click, after_skip, after_click):
    """log P(no click in the tail), shape (n,), and P(examined | no click), shape (width, n)."""
    if after_skip == 1:
        return _all_or_none(click, after_click)
    # Products need no logarithms: none is much smaller than 1 - after_skip, because users stop.
    # Backward: from the last row of the tail to the first.
    width = len(click)
    unclicked = np.empty_like(click)  # P(no click from here | examined)
    onward = np.empty_like(click)  # P(no click below | examined and skipped)
    below = np.ones(click.shape[1])
    for k in range(width - 1, -1, -1):
        onward[k] = 1 - after_skip + after_skip * below
        below = unclicked[k] = (1 - click[k]) * onward[k]
    chance = 1 - after_click + after_click * below
    # Forward: a row is reached from the one above, by Bayes' rule.
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
        went_on = np.log(after_click) + unclicked
        log_chance = np.logaddexp(np.log1p(-after_click), went_on)
        reached = np.exp(went_on - log_chance)
    return log_chance, np.tile(reached, (len(click), 1))


def count_chain(log, key=attrgetter("doc"), n_keys=None):
    """Counts of a log of :func:`click_patterns`; ``key`` maps it to one code per row."""
    n_keys = log.n_docs if n_keys is None else n_keys
    clicks, skips = np.zeros((2, log.n_docs))
    clicks_above, open_end = np.zeros((2, n_keys))
    tails = []
    for part in log.chunks():
        keys = key(part)
        place, last = last_clicks(part)
        clicked = part.clicks > 0
        above = place < last
        lengths = np.diff(part.offsets)
        has_row_below = place < np.repeat(lengths, lengths)
        for total, rows, codes in (
            (clicks, clicked, part.doc),
            (skips, above & ~clicked, part.doc),
            (clicks_above, above & clicked, keys),
            (open_end, clicked & has_row_below, keys),
        ):
            _add_counts(total, codes[rows], part.weight[rows])
        # Lists without a click have the key n_keys.
        top = np.repeat(part.offsets[:-1], lengths)
        head = np.where(last > 0, keys[top + last - 1], n_keys)
        tails += _tails(part, place - last, head)
    return ChainCounts(clicks, skips, clicks_above, open_end, tails)


def _tails(log, place, head):
    """Blocks (doc, key, weight) of the distinct tails of lists, rows of a ``place`` above 0."""
    below = place > 0
    # Rows of a list have one weight, the number of sessions.
    tails = log.take_rows(below, log.list_[below])
    tails = replace(tails, position=place[below], bias=head[below]).fold()
    for chosen, rows in rectangles(tails.offsets):
        doc = np.where(rows >= 0, tails.doc[rows], log.n_docs)
        first = tails.offsets[chosen]
        yield np.ascontiguousarray(doc.T), tails.bias[first], tails.weight[first]
