"""What a log says of one ranking, or of two, in numbers: values, errors and their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import t as student

from .._base._typing import Floats
from .._log._segments import TINY
from ._click_table import ClickTable, ErrorsOfSum
from ._logged_pages import LoggedPages
from ._policy_methods import Evidence, Method, p_value_of
from ._thresholds import LEVEL


class Context:
    """What one ranking, or two, get on the pages of one context; sums are those of queries."""

    def __init__(
        self,
        log: LoggedPages,
        scores: Mapping[str, Floats],
        gain: str,
        k: int | None,
        method: Method,
    ) -> None:
        # One ranking, or two one after the other, and where they differ.
        pages, *others = (log.rank_by(values, k, name) for name, values in scores.items())
        self.is_alone = not others
        self.changed = np.ones(len(pages.slot), dtype=bool)
        if others:
            self.changed = pages.changed(others[0])
            pages = pages.and_of(others[0])
        position = log.slot_position
        self.gains = np.ones(len(position)) if gain == "clicks" else 1 / np.log2(1 + position)
        if k is not None:
            self.gains = np.where(position <= k, self.gains, 0.0)
        self.log = log
        self.pages = pages
        self.method = method
        # Of two, the clicks of the second count against the first.
        sign = np.where(pages.ranking == 0, 1, -1)
        #: What a click in each row is worth, and the size of that where the rankings differ.
        self.mass = sign * (log.slot_pages * self.gains)[pages.slot]
        self.due = np.where(self.changed, np.abs(self.mass), 0.0)
        clicks = log.weight * log.rate * self.gains[log.slot]
        self.logged = np.bincount(log.slot_query[log.slot], clicks, len(log.query_pages))

    @cached_property
    def table(self) -> ClickTable:
        """The formula of "dr"."""
        return ClickTable(self.log)

    @cached_property
    def evidence(self) -> Evidence:
        """P(click) of each row by the method, and where it was read."""
        return self.method.evidence(self.pages, self.table)

    @cached_property
    def support(self) -> Floats:
        """Clicks at the places that the method knows, and at all, by ranking."""
        return self.evidence.support(self.pages, self.due)

    @property
    def n_clicks(self) -> float:
        """Number of clicks of equal weight."""
        return self.evidence.n_clicks(self.pages, self.due)

    @cached_property
    def value(self) -> Floats:
        """Clicks by the method."""
        return self._by_query(self.evidence.click)

    @property
    def by_formula(self) -> Floats:
        """Clicks by the formula of "dr"."""
        return self._by_query(self.table.predict(self.pages))

    def end(self, levels: Sequence[float]) -> Floats:
        """Clicks if what the log never showed is as good, of the best, as this level of each
        ranking."""
        is_unseen = self.changed & self.table.never_shown[self.pages.pair]
        if not self.method.bounds_unseen or not is_unseen.any():
            return self.value
        level = np.array(levels)[self.pages.ranking]
        unseen = np.where(is_unseen, level, 0.0)
        return self._by_query(self.table.predict(self.pages, unseen))

    def errors(self) -> ErrorsOfSum:
        """Errors of the clicks by the formula."""
        return self.table.errors(self.pages, self.mass, self.gains)

    def moved(self) -> Floats:
        """Clicks by page that the method did not predict where documents are higher than they
        usually are, minus those where they are lower."""
        log = self.log
        pair = log.pair[log.row]
        n_pairs = len(log.pair_query)
        # How high a row is above the usual height of its document, in logs of clicks.
        height = np.log(np.maximum(self.table.slope, TINY))[log.slot]
        height_sum = np.bincount(pair, log.weight * height, n_pairs)
        shown = np.bincount(pair, log.weight, n_pairs)
        usual_height = (height_sum + TINY) / (shown + TINY)
        away = height - usual_height[pair]
        return log.of_pages(log.weight * away * (log.rate - self.evidence.logged_click))

    def _by_query(self, click):
        """Clicks from P(click) of the rows."""
        return self.pages.by_query(self.mass * click)


class Worth:
    """Clicks per page of one ranking or two, over all contexts, with errors and ends.

    ``value`` is that of the ranking, or of the difference of two; ``gained`` is what it is
    compared by: beyond the clicks of the log, or again the difference.
    """

    def __init__(
        self, log: LoggedPages, contexts: list[Context], method: Method, options: Mapping[str, Any]
    ) -> None:
        self.log = log
        self.contexts = contexts
        self.method = method
        self.is_alone = contexts[0].is_alone
        self._n_candidates = options["n_candidates"]
        self._new_queries = options["queries"] == "new" or not method.knows_pages
        self._logged = sum(context.logged for context in contexts)
        #: Clicks per page of the log.
        self.logged = log.per_page(self._logged)
        # What the log knows of the changed places, in equal queries, clicks and shares.
        due = sum(context.pages.by_query(context.due) for context in contexts)
        self.n_queries = log.n_equal(due)
        known, due_clicks = sum(context.support for context in contexts)
        #: Share of the changed clicks that the log knows, of the ranking that it knows less.
        self.support = float((known / np.maximum(due_clicks, TINY)).min())
        self.n_clicks = max(context.n_clicks for context in contexts)
        # Other methods are told without the formula, which only tests them.
        self.settled = all(context.table.converged for context in contexts)

    def measure(self) -> None:
        """Set the values, their errors and ends."""
        self._errors = self._summed_errors()
        by_query = sum(context.value for context in self.contexts)
        noise = self._errors.noise
        self.value, self.error = self._mean_and_error(by_query, noise)
        beyond = by_query
        if self.is_alone:
            beyond = by_query - self._logged
            # The ranking of the log itself gains nothing, but for the rounding of sums over the
            # same clicks in another order.
            is_same = np.isclose(by_query, self._logged, rtol=1e-9, atol=0)
            beyond = np.where(is_same, 0.0, beyond)
            noise = noise - self._errors.logged_noise
        self.gained, self.gained_error = self._mean_and_error(beyond, noise)
        self._by_query = by_query
        self._set_ends()

    def _summed_errors(self):
        """Errors of the formula, over all contexts; none where it did not converge."""
        if not self.settled:
            nothing = np.zeros(len(self.log.page_query))
            return ErrorsOfSum(nothing, nothing, nothing, 0.0)
        by_context = [context.errors() for context in self.contexts]
        return ErrorsOfSum(*(sum(parts) for parts in zip(*by_context, strict=True)))

    def _mean_and_error(self, by_query, noise):
        """Mean per page of sums over queries, and its standard error; ``noise`` is the chance
        of the clicks of each page in it."""
        log = self.log
        mean = log.per_page(by_query)
        by_page = noise
        if self._new_queries:
            # What queries differ by, their own chance included; the log's own are what they are.
            differs = by_query - mean * log.query_pages - log.of_queries(noise)
            by_page = log.over_pages(differs) + noise
        variance = 0.0
        if self.method.knows_pages:
            by_page = by_page + self._errors.curve
            variance = self._errors.variance
        return mean, log.error_per_page(by_page, variance, new=self._new_queries)

    def _set_ends(self):
        """Ends of the value, and of what is gained, by how good unseen documents may be."""
        n_rankings = 1 if self.is_alone else 2
        ends = []
        # Shares of the best of their position. Not 0 and 1 alone: users who leave after a click
        # may click most where these documents are neither bad nor best.
        for levels in product((0.0, 0.3, 0.6, 1.0), repeat=n_rankings):
            by_query = sum(context.end(levels) for context in self.contexts)
            ends.append(self.log.per_page(by_query))
        self.low = min(ends)
        self.high = max(ends)
        self.gained_low = self.gained + self.low - self.value
        self.gained_high = self.gained + self.high - self.value

    @property
    def has_ends(self) -> bool:
        """Whether documents that were never shown matter."""
        return self.low != self.high

    @property
    def is_agreed(self) -> bool:
        """Whether both ends lead to the same winner."""
        return self.gained_low * self.gained_high > 0 or not self.has_ends

    @property
    def p_value(self) -> float:
        """Two-sided p-value of nothing gained, by the end nearer to it, for all candidates."""
        nearer = min(abs(self.gained_low), abs(self.gained_high)) if self.is_agreed else 0.0
        alone = p_value_of(nearer, self.gained_error, self.n_queries)
        return min(self._n_candidates * alone, 1.0)

    @property
    def wins(self) -> bool:
        """Whether one ranking gets more than the other, or than the log."""
        return self.p_value < LEVEL.value

    @property
    def half_width(self) -> float:
        """Half-width of the interval around each end of the value."""
        tail = LEVEL.value / self._n_candidates / 2
        return student.ppf(1 - tail, self.n_queries - 1) * self.error

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the value, around both ends."""
        return float(self.low - self.half_width), float(self.high + self.half_width)

    def beyond_formula(self) -> tuple[float, float]:
        """Clicks per page beyond those of the formula of "dr", and the error of that, in which
        what queries differ by cancels."""
        log = self.log
        beyond = self._by_query - sum(context.by_formula for context in self.contexts)
        mean = log.per_page(beyond)
        differs = beyond - mean * log.query_pages
        # The formula is subtracted, and so are its errors through the curve.
        by_page = log.over_pages(differs) - self._errors.curve
        return mean, log.error_per_page(by_page, self._errors.variance)
