"""P(click) of a document at a position below other documents, and the pages that it is fitted
to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from .._base._typing import ArrayLike, Bools, Column, Floats, Ints, Predictor, Table
from .._log._reader import first_rows, pairs_of_codes, read, take_clicks
from .._log._roles import read_role
from .._log._segments import TINY, as_array, encode, mix, pair_codes
from ..exceptions import python_value, warn_user
from ..metrics._scorers import predict_within
from ..propensity._source import RowsOfLog

#: What a log may pass as keywords.
ROLES = ("qid", "session", "doc", "position", "impressions", "doc_scope")

#: Scores of one document may differ by this part, as those of float32 in batches do.
_SAME = 1e-5


class LoggedPages(RowsOfLog):
    """The shown rows of a log. A slot is a position of a query, a pair a document of a query.

    ``pair`` is that of each row of X, ``slot``, ``weight`` (impressions) and ``rate`` (clicks per
    impression) are those of each row that was shown, and ``slot_pages`` the pages of the query
    that had the position of the slot. ``roles`` are those passed as keywords.
    """

    def __init__(
        self,
        X: Table,
        y: Column | str | None,
        sample_weight: Column | None,
        roles: Mapping[str, Any],
        caller: str,
    ) -> None:
        unknown = sorted({*roles} - {*ROLES})
        if unknown:
            raise TypeError(f"Got the unknown argument {unknown[0]!r}; expected roles: {ROLES}.")
        X, y, _ = take_clicks(X, y, caller)
        super().__init__(X, y, sample_weight, dict.fromkeys(ROLES) | dict(roles))
        if read_role(X, "bias", None) is not None:
            raise ValueError(
                f"X has a column 'bias', and {caller} does not know which bias factors another "
                "ranking would have; expected a log whose bias is its position. Drop the column."
            )
        reads = ["qid", "doc", "position", "impressions", "doc_scope"]
        if read_role(X, "session", self.roles["session"]) is not None:
            reads.append("session")  # without, rows may be counts of several pages
        need = {
            "qid": "to rank the documents of a query",
            "position": "to compare where rankings put them",
        }
        self.rows = rows = read(
            X, y, sample_weight, self.roles, reads=reads, need=need, caller=caller
        )
        document = rows.documents().code
        self.pair, self.pair_query, _ = pairs_of_codes(
            rows.query, document, int(document.max()) + 1
        )
        self.row = row = np.flatnonzero(rows.shown)
        self.weight, self.rate = rows.weight[row], rows.rate[row]
        position, positions = encode(rows.position[row])
        self.slot, self.slot_query, place = pairs_of_codes(
            rows.query[row], position, len(positions)
        )
        self.slot_position = positions[place]
        self.slot_pages = np.bincount(self.slot, self.weight)

    @cached_property
    def query_pages(self) -> Floats:
        """Pages of each query."""
        pages = np.zeros(len(self.rows.query_ids))
        np.maximum.at(pages, self.slot_query, self.slot_pages)
        return pages

    @cached_property
    def shown_cells(self) -> tuple[Ints, Ints]:
        """Sorted keys of the pairs at slots that the log has, and the cell of each shown row."""
        cell, keys = encode(self.key(self.pair[self.row], self.slot))
        return keys, cell

    @cached_property
    def has_pages(self) -> bool:
        """True if rows of one list are one page, not counts of several."""
        seen = pair_codes(self.rows.list_[self.row], self.slot, len(self.slot_query))
        return len(np.unique(seen)) == len(seen)

    def key(self, pair: Ints, slot: Ints) -> Ints:
        """One number per pair at a slot."""
        return pair_codes(pair, slot, len(self.slot_query))

    def mean_by_position(self, values: Floats) -> Floats:
        """Mean of values of shown rows over the impressions at the position of each slot."""
        place, _ = encode(self.slot_position)
        total, weight = (np.bincount(place[self.slot], self.weight * of) for of in (values, 1.0))
        return (total / weight)[place]

    def mean_per_page(
        self, by_query: Floats, influence: Floats | float = 0.0, variance: float = 0.0
    ) -> tuple[float, float]:
        """Mean per page, and its standard error from the variance between queries.

        ``influence`` of each query on what was fitted, and a further ``variance``, are of sums.
        """
        pages = self.query_pages
        value = by_query.sum() / pages.sum()
        residual = by_query + influence - value * pages
        n_queries = max(np.count_nonzero(pages), 2)  # of one, no error is told
        variance += n_queries / (n_queries - 1) * (residual**2).sum()
        return float(value), float(np.sqrt(variance) / pages.sum())

    def moved(self) -> float:
        """Share of impressions at which a document was not at its usual position."""
        keys, cell = self.shown_cells
        shown = np.bincount(cell, self.weight)
        usual = np.zeros(len(self.pair_query))
        np.maximum.at(usual, keys // len(self.slot_query), shown)
        return float(1 - usual.sum() / shown.sum())

    def rank_by(self, scores: Predictor | ArrayLike, k: int | None, name: str) -> Pages:
        """The pages on which the documents of each query stand by falling score."""
        if isinstance(scores, type):
            raise TypeError(f"{name} is the class {scores.__name__}; expected a fitted ranker.")
        if hasattr(scores, "predict"):
            scores = predict_within(scores, self.X, self.rows["qid"], self.rows["doc"])
        score = self._pair_scores(scores, name)
        # Equal scores: an order that depends on the document only, not on where the log put it.
        chance = mix(np.arange(len(score), dtype=np.uint64))
        pair = np.lexsort((chance, -score, self.pair_query))
        query = self.pair_query[pair]
        rank = np.arange(len(pair)) - np.searchsorted(query, query)
        slot = np.searchsorted(self.slot_query, query) + rank
        fits = slot < np.searchsorted(self.slot_query, query, side="right")
        if k is not None:
            fits[fits] = self.slot_position[slot[fits]] <= k
        return Pages(self, pair[fits], slot[fits], np.zeros(fits.sum(), dtype=int))

    def _pair_scores(self, scores, name):
        scores = as_array(scores)
        n_rows, kind = self.rows.n_rows, scores.dtype.kind
        missing = int(np.isnan(scores).sum()) if kind == "f" else 0
        if scores.shape != (n_rows,) or kind not in "biuf" or missing:
            raise ValueError(
                f"{name} has the shape {scores.shape}, type {scores.dtype} and NaN in {missing} "
                f"rows; expected one number per row of X, that is ({n_rows},), and no NaN."
            )
        scores = scores.astype(float)
        of_pair = scores[first_rows(self.pair, len(self.pair_query))]
        first = of_pair[self.pair]
        differs = ~np.isclose(scores, first, rtol=_SAME, atol=0)
        if differs.any():
            row = int(np.argmax(differs))
            raise ValueError(
                f"{name} has different scores for one document of the query "
                f"{python_value(self.rows['qid'][row])!r}, such as {first[row]:g} and "
                f"{scores[row]:g} in row {row}; expected one score per query and document. For "
                "rankings that depend on the user, make the user's group a part of the qid."
            )
        return of_pair


@dataclass(frozen=True, eq=False)
class Pages:
    """Pairs at slots: the pages of ranking 0, or of the rankings 0 and 1 one after the other."""

    log: LoggedPages
    pair: Ints
    slot: Ints
    ranking: Ints

    @property
    def key(self) -> Ints:
        """One number per pair at a slot."""
        return self.log.key(self.pair, self.slot)

    def by_query(self, values: Floats) -> Floats:
        """Sums of values of rows over each query."""
        query = self.log.slot_query[self.slot]
        return np.bincount(query, values, minlength=len(self.log.query_pages))

    def changed(self, other: Pages) -> Bools:
        """True at rows of these pages, and then of another ranking's, that the other lacks."""
        return np.concatenate([~np.isin(self.key, other.key), ~np.isin(other.key, self.key)])

    def and_of(self, other: Pages) -> Pages:
        """These pages, and those of another ranking as number 1."""
        names = ("pair", "slot")
        joined = (np.concatenate([getattr(self, of), getattr(other, of)]) for of in names)
        return Pages(self.log, *joined, np.repeat([0, 1], [len(self.slot), len(other.slot)]))

    def cell(self) -> tuple[Ints, Bools]:
        """Cell of the log of each row, and whether there is one."""
        keys, _ = self.log.shown_cells
        place = np.minimum(np.searchsorted(keys, self.key), len(keys) - 1)
        return place, keys[place] == self.key


#: Rounds of chance and context, and steps of EM in each. EM has not converged then: with 2,000
#: sessions a value moves by 6 % after 4,000 steps. No prior yet holds the curve of so few clicks.
_ROUNDS, _STEPS = 5, 30
#: Most steps of Newton's method, the change of the context that ends them, and its bounds.
_NEWTON, _CLOSE, _STOPS = 50, 1e-6, (-5.0, 10.0)
_DIFFERENCE = 1e-4  # of numeric derivatives
_LEAST = 1e-3  # slope of a position, or probability
_SINGLE, _BLOCKS = 20, 8  # positions of their own, and blocks of each doubling after them
_UNKNOWN = 1e-9  # precision of a document that the log never had; it has no other influence


class _Curve(NamedTuple):
    """What all documents share."""

    start: Floats  # by position, of clicks that any document gets
    slope: Floats  # by position
    context: float


class ClickTable:
    r"""P(click) of a document at the position j is

    .. math:: (a_j + b_j θ + δ) \exp(-γ (s - \bar s_j))

    with its quality θ, the sum s of -log(1 - θ) above it on the page, and a deviation δ of this
    document here, of variance :math:`b_j^2 τ^2`. γ = τ = 0 is a position-based user if a = 0, and
    one who trusts positions if not; γ > 0 a user who stops reading after good documents; a large
    τ lets each document have click rates of its own at each position.

    Qualities have a normal prior whose mean depends on the usual position of the document, so that
    only documents that moved tell a and b apart from the order of the log.
    """

    def __init__(self, log: LoggedPages) -> None:
        keys, self._cell = log.shown_cells
        self._log = log
        self._pair, slot = np.divmod(keys, len(log.slot_query))
        # Deep positions in blocks: each costs time, and few clicks tell their curve.
        position = log.slot_position
        deep = np.ceil(_BLOCKS * np.log2(np.maximum(position / _SINGLE, 1)))
        self._slot_place, _ = encode(np.minimum(position, _SINGLE) + deep.astype(int))
        self._place = self._slot_place[slot]
        self._shown = np.bincount(self._cell, log.weight)
        self._clicks = np.bincount(self._cell, log.weight * log.rate)
        self._exposed = self._shown  # impressions, times the factor of the context
        shown = self._by_pair(self._shown)
        self._seen = shown > 0
        usual = self._by_pair(self._shown * self._place) / np.maximum(shown, TINY)
        usual = np.where(self._seen, usual, usual[self._seen].max())
        # Times the prior mean of each position, that of each pair: linear between positions.
        deepest, pair = self._slot_place.max(), np.arange(len(usual))
        above = np.minimum(usual.astype(int), max(deepest - 1, 0))
        between, knots = usual - above, np.append(above, np.minimum(above + 1, deepest))
        shares = np.append(1 - between, between)
        self._usual = csr_array((shares, (np.tile(pair, 2), knots)), (len(usual), deepest + 1))
        rates = self._by_place(self._clicks) / self._by_place(self._shown)
        self._first = int(rates.argmax())  # the position where a is 0, and b is 1
        self._n_places = len(rates)
        self._noise = np.maximum(rates * (1 - rates), _LEAST**2)[self._place]  # of a click
        known = self._usual[self._seen]
        self._to_prior = np.linalg.pinv((known.T @ known).toarray())
        slope = np.maximum(rates / max(rates.max(), TINY), _LEAST)
        self._curve = _Curve(np.zeros(len(rates)), slope, 0.0)
        self._prior, self._spread = np.full(len(rates), rates.max()), np.full(len(rates), 0.04)
        self._own = 0.0  # τ²
        self._stops = np.zeros(len(log.query_pages))  # influence of queries on γ
        for _ in range(_ROUNDS):
            for _ in range(_STEPS):
                self._improve()
            self._noise = self._chance()
            self._own = self._deviation()
            self._fit_context()

    @property
    def slope(self) -> Floats:
        """Click probability that the place of each slot gives, up to one factor."""
        return self._curve.slope[self._slot_place]

    def predict(self, pages: Pages) -> Floats:
        """P(click) of each row of the pages."""
        return self._predict(pages, self._curve)

    def influence(self, pages: Pages, mass: Floats) -> Floats:
        """Of each query, through the curve, on the sum of mass times P(click): sandwich."""
        curve = self._curve
        total = float(mass @ self._predict(pages, curve))
        gains = [mass @ self._predict(pages, other) - total for other in self._moved()]
        by_query = self._per_gain @ np.array(gains)
        if self._stops.any():
            other = curve._replace(context=curve.context + _DIFFERENCE)
            more = mass @ self._predict(pages, other) - total
            by_query += self._stops * more / _DIFFERENCE
        return by_query

    def excess(self, gains: Floats) -> tuple[float, float]:
        """How far clicks differ more between the pages of a query than predicted, and its error.

        Slope of the clicks of a page beyond their prediction on that prediction, within queries:
        0 if the formula holds, -1 if the order of the documents does not matter at all. Users who
        leave after one click make it -1, although each document is predicted well.
        """
        log = self._log
        if not log.has_pages:
            return 0.0, np.inf
        p = self._of_cells(self._curve)[self._cell]
        if self._curve.context:
            p = p * np.exp(-self._curve.context * self._above_row)
        page, first = np.unique(log.rows.list_[log.row], return_index=True)
        page = np.searchsorted(page, log.rows.list_[log.row])
        query, weight = log.slot_query[log.slot][first], log.weight * gains[log.slot]
        told, more = (np.bincount(page, weight * of) for of in (p, log.rate - p))
        n_pages = np.maximum(np.bincount(query), 1)
        told, more = (of - (np.bincount(query, of) / n_pages)[query] for of in (told, more))
        squares, products = (np.bincount(query, told * of) for of in (told, more))
        if squares.sum() <= TINY:
            return 0.0, np.inf
        slope = products.sum() / squares.sum()
        return float(slope), float(np.linalg.norm(products - slope * squares) / squares.sum())

    def variance(self, pages: Pages, mass: Floats) -> float:
        """Of the sum of mass times P(click), by deviations of documents that are not told."""
        cell, there = pages.cell()
        untold = 1 - there * self._own_share(self._curve)[cell]
        deviation = self._own * self._curve.slope[self._slot_place[pages.slot]] ** 2
        return float((mass**2 * untold * deviation).sum())

    def _moved(self):
        """The curve with each of its free values a little greater."""
        for name in ("start", "slope"):
            for place in np.flatnonzero(np.arange(self._n_places) != self._first):
                values = getattr(self._curve, name).copy()
                values[place] += _DIFFERENCE
                yield self._curve._replace(**{name: values})

    @cached_property
    def _per_gain(self):
        """Influence of each query on each free value of the curve."""
        scores = self._scores(self._curve)
        bend = np.array([(self._scores(of) - scores).sum(axis=0) for of in self._moved()])
        if not len(bend):
            return np.zeros((len(scores), 0))
        scale = np.sqrt(np.abs(np.diag(bend)) + TINY)
        # What the log does not tell at all is told with a huge error.
        bend = (bend + bend.T) / 2 / scale / scale[:, None] - 1e-6 * np.eye(len(scale))
        return -(scores / scale) @ np.linalg.inv(bend) / scale

    # Sums and cells -----------------------------------------------------------------------------
    def _by_place(self, values):
        return np.bincount(self._place, values, minlength=1 + self._slot_place.max())

    def _by_pair(self, values):
        return np.bincount(self._pair, values, minlength=len(self._log.pair_query))

    def _error(self, curve):
        """Variance of the click rate of each cell, given the quality."""
        return self._noise / self._exposed + self._own * curve.slope[self._place] ** 2

    def _own_share(self, curve):
        """Share of the residual of each cell that is its deviation, not chance."""
        return self._own * curve.slope[self._place] ** 2 / self._error(curve)

    def _sums(self, curve):
        """Precision of each pair, times its quality by its clicks, and the part of each cell."""
        slope = curve.slope[self._place]
        weight = slope / self._error(curve)
        told = weight * (self._clicks / self._exposed - curve.start[self._place])
        return self._by_pair(weight * slope), self._by_pair(told), weight * slope, told

    def _quality(self, curve, prior=1.0):
        """Quality of each pair and its variance; with the prior, or without."""
        precision, told, *_ = self._sums(curve)
        extra = prior / (self._usual @ self._spread) + _UNKNOWN
        precision = precision + extra
        return (told + extra * (self._usual @ self._prior)) / precision, 1 / precision

    # Fit ----------------------------------------------------------------------------------------
    def _improve(self):
        """One step of EM: the prior, a and b, given the qualities."""
        quality, variance = self._quality(self._curve)
        of, square = quality[self._pair], (quality**2 + variance)[self._pair]
        weight, rate = 1 / self._error(self._curve), self._clicks / self._exposed
        sums = [weight, weight * of, weight * square, weight * rate, weight * rate * of]
        n, x, xx, y, xy = map(self._by_place, sums)
        seen = self._seen
        prior = self._to_prior @ (self._usual.T @ (seen * quality))
        around = (quality - (self._usual @ prior)) ** 2 + variance
        spread = self._to_prior @ (self._usual.T @ (seen * around))
        bend = n * xx - x**2
        varies = bend > _UNKNOWN * n * xx
        slope = np.where(varies, (n * xy - x * y) / np.where(varies, bend, 1), xy / xx)
        slope = np.maximum(slope, _LEAST)
        start = np.where(varies, (y - slope * x) / n, 0.0)
        # The scale of qualities is free.
        zero, unit = start[self._first], slope[self._first]
        self._prior, self._spread = zero + unit * prior, np.maximum(spread * unit**2, _LEAST)
        slope = slope / unit
        self._curve = self._curve._replace(start=start - slope * zero, slope=slope)

    def _chance(self):
        """Variance of a click in each cell, by the prior; by its own clicks, weights would err."""
        slope = self._curve.slope[self._place]
        mean = self._curve.start[self._place] + slope * (self._usual @ self._prior)[self._pair]
        mean = np.clip(mean, _LEAST, 1 - _LEAST)
        varies = slope**2 * (self._usual @ self._spread)[self._pair]
        return np.maximum(mean * (1 - mean) - varies, mean * (1 - mean) / 4)

    def _deviation(self):
        """τ², by how far click rates are from what the other positions of a document say."""
        curve, slope = self._curve, self._curve.slope[self._place]
        precision, told, own_precision, own_told = self._sums(curve)
        spread = (self._usual @ self._spread)[self._pair]
        left = np.maximum(precision[self._pair] - own_precision, 0) + 1 / spread
        prior = (self._usual @ self._prior)[self._pair] / spread
        quality = (told[self._pair] - own_told + prior) / left
        residual = self._clicks / self._exposed - curve.start[self._place] - slope * quality
        chance = self._noise / self._exposed + slope**2 / left
        weight = slope**2 / (chance + self._own * slope**2) ** 2
        excess = (weight * (residual**2 - chance)).sum() / (weight * slope**2).sum()
        return max(float(excess), 0.0)

    def _fit_context(self):
        """γ, by the clicks of one document at one position below others (Newton)."""
        log, curve = self._log, self._curve
        if not log.has_pages:
            return
        self._read, _ = self._quality(curve)
        above = _sum_above(self._read[log.pair[log.row]], log.rows.list_[log.row], log.slot)
        place = self._slot_place[log.slot]
        self._above = np.bincount(place, log.weight * above) / np.bincount(place, log.weight)
        above = above - self._above[place]
        base = curve.start[self._place] + curve.slope[self._place] * self._read[self._pair]
        base, context = np.clip(base, _LEAST, 1)[self._cell], curve.context
        low, high = _STOPS
        for _ in range(_NEWTON):
            p = base * np.exp(-context * above)
            factor = log.weight / np.maximum(1 - p, 0.05)
            parts = (np.bincount(self._cell, factor * p * of) for of in (above, 1.0))
            away = above - np.divide(*parts)[self._cell]
            information = (factor * p * away**2).sum()
            if information < _LEAST:  # always the same documents above: nothing to see
                return
            score = factor * away * (log.rate - p)
            # Certain clicks bend the score: a step beyond what is known to bracket 0 is halved.
            low, high = (context, high) if score.sum() < 0 else (low, context)
            last, context = context, float(context - score.sum() / information)
            context = context if low <= context <= high else (low + high) / 2
            if abs(context - last) < _CLOSE:
                break
        else:
            warn_user(
                f"The effect of documents above a document did not converge in {_NEWTON} steps: "
                "the clicks hardly determine it. Log more sessions.",
                ConvergenceWarning,
            )
        self._stops = -np.bincount(log.slot_query[log.slot], score, len(self._stops)) / information
        self._curve, self._above_row = curve._replace(context=context), above
        self._exposed = self._exposure(context)

    def _exposure(self, context):
        return np.bincount(self._cell, self._log.weight * np.exp(-context * self._above_row))

    def _scores(self, curve):
        """Score of a and b by query, of shape (n_queries, 2 (n_positions - 1))."""
        quality, variance = self._quality(curve)
        of, slope = quality[self._pair], curve.slope[self._place]
        weight = 1 / self._error(self._curve)
        residual = self._clicks / self._exposed - curve.start[self._place] - slope * of
        of_slope = weight * (residual * of - slope * variance[self._pair])
        shape = (len(self._log.query_pages), self._n_places)
        place = np.ravel_multi_index((self._log.pair_query[self._pair], self._place), shape)
        parts = (weight * residual, of_slope)
        sums = [np.bincount(place, part, shape[0] * shape[1]) for part in parts]
        return np.hstack([np.delete(part.reshape(shape), self._first, axis=1) for part in sums])

    def _of_cells(self, curve):
        """P(click) of each cell below average documents."""
        quality, _ = self._quality(curve, prior=0.0)
        p = curve.start[self._place] + curve.slope[self._place] * quality[self._pair]
        return p + self._own_share(curve) * (self._clicks / self._exposed - p)

    def _predict(self, pages, curve):
        exposed = self._exposed
        if curve.context != self._curve.context:
            self._exposed = self._exposure(curve.context)
        quality, _ = self._quality(curve, prior=0.0)
        place = self._slot_place[pages.slot]
        cell, there = pages.cell()
        formula = curve.start[place] + curve.slope[place] * quality[pages.pair]
        p = np.where(there, self._of_cells(curve)[cell], formula)
        self._exposed = exposed
        if not curve.context:
            return p
        page = pages.ranking * len(self._stops) + self._log.slot_query[pages.slot]
        above = _sum_above(self._read[pages.pair], page, pages.slot)
        return p * np.exp(-curve.context * (above - self._above[place]))


def _sum_above(quality: Floats, page: Ints, slot: Ints) -> Floats:
    """Sum of -log(1 - quality) above each row on its page: of users who stop, P(stopped) grows."""
    order = np.lexsort((slot, page))
    value = -np.log1p(-np.clip(quality[order], 0, 0.95))
    before = np.cumsum(value) - value
    page = page[order]
    first = np.concatenate([[True], page[1:] != page[:-1]])
    start = np.maximum.accumulate(np.where(first, np.arange(len(page)), 0))
    above = np.empty(len(page))
    above[order] = before - before[start]
    return above
