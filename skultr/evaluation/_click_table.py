"""P(click) of a document at a position below other documents, and the pages that it is fitted
to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import brentq, minimize, nnls
from scipy.sparse import csr_array

from .._base._typing import ArrayLike, Bools, Column, Floats, Ints, Predictor, Table
from .._log._reader import first_rows, pairs_of_codes, read, take_clicks
from .._log._roles import read_role
from .._log._segments import TINY, as_array, encode, mix, pair_codes
from .._models._solve import gram, solve_scaled
from ..exceptions import python_value
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
        total, weight = (
            np.bincount(place[self.slot], self.weight * factor) for factor in (values, 1.0)
        )
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
        scores = as_array(scores)
        n_rows, kind = self.rows.n_rows, scores.dtype.kind
        missing = int(np.isnan(scores).sum()) if kind == "f" else 0
        if scores.shape != (n_rows,) or kind not in "biuf" or missing:
            raise ValueError(
                f"{name} has the shape {scores.shape}, type {scores.dtype} and NaN in {missing} "
                f"rows; expected one number per row of X, that is ({n_rows},), and no NaN."
            )
        scores = scores.astype(float)
        score = scores[first_rows(self.pair, len(self.pair_query))]
        first = score[self.pair]
        differs = ~np.isclose(scores, first, rtol=_SAME, atol=0)
        if differs.any():
            row = int(np.argmax(differs))
            raise ValueError(
                f"{name} has different scores for one document of the query "
                f"{python_value(self.rows['qid'][row])!r}, such as {first[row]:g} and "
                f"{scores[row]:g} in row {row}; expected one score per query and document. For "
                "rankings that depend on the user, make the user's group a part of the qid."
            )
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
        joined = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        return Pages(self.log, *joined, np.repeat([0, 1], [len(self.slot), len(other.slot)]))

    def cell(self) -> tuple[Ints, Bools]:
        """Cell of the log of each row, and whether there is one."""
        keys, _ = self.log.shown_cells
        place = np.minimum(np.searchsorted(keys, self.key), len(keys) - 1)
        return place, keys[place] == self.key


#: Rounds of the curve and of what it takes for given. They have converged where the squared move
#: of the curve in standard errors, and so that of any value, is as small as this. Each round ends
#: where no standard error is worth more than so much log-likelihood.
_ROUNDS, _MOVE, _TOL = 100, 1e-3, 1e-2
#: Precision of each value around its start; that of the step to the next position is 1.
_LEVEL = 0.01
_DIFFERENCE = 1e-4  # of numeric derivatives
_FLAT = 1e-6  # least information in a direction, relative to that on single values
_REACHES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # around the last context, where the next is sought
_ROUNDING = 1e-12  # of squared predictions
_LEAST = 1e-3  # slope of a position at the start, or probability
_SINGLE, _BLOCKS = 20, 8  # positions of their own, and blocks of each doubling after them
_UNKNOWN = 1e-9  # share of the prior in predictions: of documents that the log never had
_SPREAD = 0.04  # variance of qualities at the start


class _Curve(NamedTuple):
    """What all documents share, and click rates as below average documents."""

    start: Floats  # by position, of clicks that any document gets
    slope: Floats  # by position
    context: float
    rate: Floats  # by cell


class ClickTable:
    r"""P(click) of a document at the position j is

    .. math:: (a_j + b_j θ + δ) \exp(-γ (s - \bar s_j))

    with its quality θ, the sum s of -log(1 - θ) above it on the page, and a deviation δ of this
    document here, of variance :math:`c_j^2 τ^2` with the click rate c of the position, relative to
    the best. γ = τ = 0 is a position-based user if a = 0, and one who trusts positions if not; γ >
    0 a user who stops reading after good documents; a large τ lets each document have click rates
    of its own at each position.

    Qualities have a normal prior whose mean and variance depend on the usual position of the
    document, so that only documents that moved tell a and b apart from the order of the log. Where
    none moved, a weak prior decides: values of neighbouring positions differ by about the best
    click rate, or by a factor of e. Errors have its variance as well.
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
        self._exposed = np.bincount(self._cell, log.weight)  # times the factor of the context
        self._clicks = np.bincount(self._cell, log.weight * log.rate)
        shown = self._by_pair(self._exposed)
        usual = self._by_pair(self._exposed * self._place) / np.maximum(shown, TINY)
        usual = np.where(shown > 0, usual, usual.max())
        # Times the prior of each position, that of each pair: linear between positions.
        deepest, pair = self._slot_place.max(), np.arange(len(usual))
        above = np.minimum(usual.astype(int), max(deepest - 1, 0))
        between, knots = usual - above, np.append(above, np.minimum(above + 1, deepest))
        shares = np.append(1 - between, between)
        self._usual = csr_array((shares, (np.tile(pair, 2), knots)), (len(usual), deepest + 1))
        # Where a matrix of pairs by values has numbers: the same place in each.
        self._usual_pair = np.repeat(pair, np.diff(self._usual.indptr))
        rows = np.concatenate([self._pair, self._pair, self._usual_pair, self._usual_pair])
        n = deepest + 1
        knots = self._usual.indices
        self._order = np.argsort(rows, kind="stable")
        columns = [self._place, self._place + n, knots + 2 * n, knots + 3 * n]
        self._columns = np.concatenate(columns)[self._order]
        self._row_starts = np.searchsorted(rows[self._order], np.arange(len(usual) + 1))
        rates = np.bincount(self._place, self._clicks) / np.bincount(self._place, self._exposed)
        self._noise = np.maximum(rates * (1 - rates), _LEAST**2)[self._place]  # of a click
        # By position: a, log b, prior mean and log variance of qualities. Their scale is free, so
        # that a is 0 and b is 1 at one position.
        most = max(rates.max(), _LEAST)
        self._scale = np.maximum(rates / most, _LEAST) ** 2  # of variances of deviations
        self._centre = np.repeat([0.0, 0.0, most, np.log(_SPREAD)], n)
        self._values = self._centre.copy()
        self._values[n : 2 * n] = np.log(np.maximum(rates / most, _LEAST))
        first, steps = rates.argmax(), np.diff(np.eye(n), axis=0)
        self._free = np.delete(np.arange(4 * n), [first, n + first])
        unit = np.array([most, 1.0, most, 1.0])
        self._precision = np.kron(np.diag(unit**-2), steps.T @ steps + _LEVEL * np.eye(n))
        self._own = self._context = 0.0  # τ², γ
        self._times = 1.0  # that each click counts
        self._stops = np.zeros(len(log.query_pages))  # influence of queries on γ
        self.converged = self._fit()

    @property
    def slope(self) -> Floats:
        """Click probability that the place of each slot gives, up to one factor."""
        return self._curve.slope[self._slot_place]

    def predict(self, pages: Pages, curve: _Curve | None = None) -> Floats:
        """P(click) of each row of the pages, by the curve that was found or another one."""
        curve = curve or self._curve
        quality, place = self._quality(curve), self._slot_place[pages.slot]
        cell, there = pages.cell()
        formula = curve.start[place] + curve.slope[place] * quality[pages.pair]
        p = np.where(there, self._of_cells(curve, quality)[cell], formula)
        if not curve.context:
            return p
        page = pages.ranking * len(self._stops) + self._log.slot_query[pages.slot]
        above = _sum_above(self._read[pages.pair], page, pages.slot)
        return p * np.exp(-curve.context * (above - self._above[place]))

    def errors(self, pages: Pages, mass: Floats) -> tuple[Floats, float, float]:
        """Influence of each query, through the curve, on the sum of mass times P(click), and its
        variances by the prior of the curve and by deviations that no clicks determine."""
        curve, n = self._curve, len(self._curve.start)
        total, gains = mass @ self.predict(pages, curve), np.zeros(4 * n)
        for place in range(2 * n):
            values = self._values.copy()
            values[place] += _DIFFERENCE
            moved = self._curve_at(values, curve.context)
            gains[place] = mass @ self.predict(pages, moved) - total
        information, scores = self._information()
        effect = np.zeros(4 * n)
        effect[self._free] = solve_scaled(information, gains[self._free] / _DIFFERENCE)
        by_query = np.bincount(self._log.pair_query, scores @ effect, len(self._stops))
        if self._stops.any():
            moved = self._curve_at(self._values, curve.context + _DIFFERENCE)
            by_query += self._stops * (mass @ self.predict(pages, moved) - total) / _DIFFERENCE
        cell, there = pages.cell()
        deviation = (
            (1 - there * self._own_share[cell])
            * self._own
            * self._scale[self._slot_place[pages.slot]]
        )
        by_prior = float(effect @ self._precision @ effect)
        return by_query, by_prior, float(mass**2 @ deviation)

    def excess(self, gains: Floats) -> tuple[float, float]:
        """How far clicks differ more between the pages of a query than predicted, and its error.

        Slope of the clicks of a page beyond their prediction on that prediction, within queries:
        0 if the formula holds, -1 if the order of the documents does not matter at all. Users who
        leave after one click make it -1, although each document is predicted well.
        """
        log = self._log
        if not log.has_pages:
            return 0.0, np.inf
        p = self._of_cells(self._curve, self._quality(self._curve))[self._cell]
        if self._curve.context:
            p = p * np.exp(-self._curve.context * self._above_row)
        page, first = np.unique(log.rows.list_[log.row], return_index=True)
        page = np.searchsorted(page, log.rows.list_[log.row])
        query, weight = log.slot_query[log.slot][first], log.weight * gains[log.slot]
        told, more = (np.bincount(page, weight * rate) for rate in (p, log.rate - p))
        n_pages = np.maximum(np.bincount(query), 1)
        told, more = (sums - (np.bincount(query, sums) / n_pages)[query] for sums in (told, more))
        squares, products = (np.bincount(query, told * sums) for sums in (told, more))
        if squares.sum() <= _ROUNDING * (weight @ p**2):
            return 0.0, np.inf
        slope = products.sum() / squares.sum()
        return float(slope), float(np.linalg.norm(products - slope * squares) / squares.sum())

    # Fit ----------------------------------------------------------------------------------------
    def _fit(self):
        """Fit the curve, and what it takes for given, in turns; whether they converged."""
        for _ in range(_ROUNDS):
            deviation = self._own * self._scale[self._place]
            self._weight = 1 / (self._times * self._noise / self._exposed + deviation)
            move, slope = self._climb()
            self._curve = self._curve_at(self._values, self._context)
            if move @ move < _MOVE and np.abs(slope).max() < 10 * _TOL:
                return True
            self._noise = (self._noise + self._chance()) / 2  # else it may go to and fro
            self._own = self._deviation()
            if self._log.has_pages and not self._fit_context():
                return False
        return False

    def _climb(self):
        """Set the values to the likeliest; how far they moved, and the slope that is left, both in
        standard errors that are independent, in which no direction is much longer than another."""
        start, (information, _) = self._values[self._free], self._information()
        unit = np.maximum(np.diag(information), TINY) ** -0.5
        sizes, axes = np.linalg.eigh(information * unit * unit[:, None])
        axes = unit[:, None] * axes / np.sqrt(np.maximum(sizes, _FLAT))

        def loss(move):
            value, gradient = self._posterior(start + axes @ move)
            return -value, -gradient @ axes

        found = minimize(loss, 0 * start, jac=True, options={"gtol": _TOL})
        self._values[self._free] = start + axes @ found.x
        return found.x, found.jac

    def _curve_at(self, values, context):
        start, log_slope, *_ = np.split(values, 4)
        exposed = self._exposed
        if context != self._context:
            weight = self._log.weight * np.exp(-context * self._above_row)
            exposed = np.bincount(self._cell, weight)
        return _Curve(start, np.exp(log_slope), context, self._clicks / exposed)

    def _posterior(self, at):
        """Log posterior of the free values, and its gradient."""
        values = self._values.copy()
        values[self._free] = at
        value, (start, log_slope, mean, log_spread), _ = self._likelihood(values)
        apart = values - self._centre
        pull = self._precision @ apart
        by_place = [np.bincount(self._place, part) for part in (start, log_slope)]
        by_usual = [self._usual.T @ part for part in (mean, log_spread)]
        gradient = np.concatenate(by_place + by_usual) - pull
        return value - 0.5 * apart @ pull, gradient[self._free]

    def _likelihood(self, values):
        """Log-likelihood of values by position; its slopes, in a and log b by cell and in the
        prior by pair; variances of qualities.

        With y - a = b θ + noise of the precision w, and θ ~ N(m, s), θ has the precision A = 1/V =
        Σ w b² + 1/s and the mean B / A, and -2 log L is Σ w (y - a)² + m²/s + log(A s) - B²/A.
        """
        curve, (mean, spread) = self._curve_at(values, self._context), self._prior(values)
        pair, weight, slope = self._pair, self._weight, curve.slope[self._place]
        precision, told, gap = self._told(curve)
        unknown = 1 / (precision + 1 / spread)
        quality = (told + mean / spread) * unknown
        off, left = (quality - mean) / spread, gap - slope * quality[pair]
        value = -0.5 * ((weight * left * gap).sum() - off @ mean + np.log(spread / unknown).sum())
        slopes = (
            weight * left,
            weight * slope * (left * quality[pair] - slope * unknown[pair]),
            off,
            (off**2 * spread + unknown / spread - 1) / 2,
        )
        return value, slopes, unknown

    def _information(self):
        """Information about the free values, and scores of pairs.

        It is the expected Hessian for known qualities less what is missing (Louis 1982).
        """
        _, slopes, unknown = self._likelihood(self._values)
        scores = self._parts(*slopes)
        curve, (mean, spread) = (
            self._curve_at(self._values, self._context),
            self._prior(self._values),
        )
        weight, slope = self._weight, curve.slope[self._place]
        seen, squares = weight * slope, weight * slope**2
        usual_mean, varies = mean[self._pair], (spread - unknown)[self._pair]
        a, both, b = (
            np.diag(np.bincount(self._place, each))
            for each in (weight, seen * usual_mean, squares * (usual_mean**2 + varies))
        )
        usual = (
            gram(self._usual, each) for each in (1 / spread, (1 - (unknown / spread) ** 2) / 2)
        )
        information = self._precision + block_diag(np.block([[a, both], [both, b]]), *usual)
        shift = self._parts(-seen, -squares * usual_mean, 1 / spread, 0 * spread)
        bend = self._parts(0 * seen, squares, 0 * spread, -1 / spread)
        own = self._parts(0 * seen, squares, 0 * spread, 0 * spread)
        information -= gram(shift, unknown) + gram(bend, unknown * (spread - unknown))
        information += gram(own, unknown**2)
        return information[np.ix_(self._free, self._free)], scores

    def _prior(self, values):
        """Prior mean and variance of the quality of each pair."""
        *_, mean, log_spread = np.split(values, 4)
        return self._usual @ mean, np.exp(self._usual @ log_spread)

    def _parts(self, start, log_slope, mean, log_spread):
        """Matrix of pairs by values: parts of cells at their places, of pairs at usual ones."""
        by_pair = [self._usual.data * part[self._usual_pair] for part in (mean, log_spread)]
        data = np.concatenate([start, log_slope, *by_pair])[self._order]
        return csr_array((data, self._columns, self._row_starts), (len(mean), len(self._centre)))

    def _by_pair(self, values):
        return np.bincount(self._pair, values, minlength=len(self._log.pair_query))

    def _told(self, curve):
        """Precision of each pair by its clicks, times its quality; clicks of cells beyond a."""
        slope = curve.slope[self._place]
        beyond = curve.rate - curve.start[self._place]
        precision = self._by_pair(self._weight * slope**2)
        return precision, self._by_pair(self._weight * slope * beyond), beyond

    def _chance(self):
        """Variance of a click in each cell, by the prior; by its own clicks, weights would err."""
        slope, (mean, spread) = self._curve.slope[self._place], self._prior(self._values)
        mean = self._curve.start[self._place] + slope * mean[self._pair]
        mean = np.clip(mean, _LEAST, 1 - _LEAST)
        varies = slope**2 * spread[self._pair]
        return np.maximum(mean * (1 - mean) - varies, mean * (1 - mean) / 4)

    def _deviation(self):
        """τ², by how far click rates are from what the other positions of a document say.

        Counts without pages may be of repeated clicks: what is more at few impressions than at
        many is then chance, and not τ². So it is estimated how many times a click counts.
        """
        pair, slope = self._pair, self._curve.slope[self._place]
        mean, spread = self._prior(self._values)
        precision, told, beyond = self._told(self._curve)
        own = self._weight * slope
        left = np.maximum(precision[pair] - own * slope, 0) + 1 / spread[pair]
        quality = (told[pair] - own * beyond + (mean / spread)[pair]) / left
        chance, scale = self._times * self._noise / self._exposed, self._scale[self._place]
        excess = (beyond - slope * quality) ** 2 - slope**2 / left
        weight = 1 / (chance + slope**2 / left + self._own * scale)
        if self._log.has_pages:
            due = weight**2 * scale
            return max(float(due @ (excess - chance) / (due @ scale)), 0.0)
        parts = weight[:, None] * np.column_stack([chance, scale])
        (times, deviation), _ = nnls(parts, weight * excess)
        # Half a step at most: each round changes what the next one takes for chance.
        self._times = max(self._times * np.clip(times, 0.5, 2), 1.0)
        return deviation

    def _fit_context(self):
        """γ, by the clicks of one document at one position below others; whether it was found."""
        log, curve = self._log, self._curve
        self._read = self._quality(curve, share=1.0)
        above = _sum_above(self._read[log.pair[log.row]], log.rows.list_[log.row], log.slot)
        place = self._slot_place[log.slot]
        self._above = np.bincount(place, log.weight * above) / np.bincount(place, log.weight)
        self._above_row = above = above - self._above[place]
        base = curve.start[self._place] + curve.slope[self._place] * self._read[self._pair]
        base = np.clip(base, _LEAST, 1)[self._cell]

        def scores(context):
            p = base * np.exp(-context * above)
            factor = log.weight / np.maximum(1 - p, 0.05)
            parts = (np.bincount(self._cell, factor * p * values) for values in (above, 1.0))
            away = above - np.divide(*parts)[self._cell]
            return factor * away * (log.rate - p), (factor * p * away**2).sum()

        def total(context):
            # The prior decides where always the same documents stand above.
            return scores(context)[0].sum() + _LEVEL * context

        # Far from its root the sum may change its sign again: the nearest one is meant.
        for reach in _REACHES:
            ends = self._context - reach, self._context + reach
            if total(ends[0]) < 0 < total(ends[1]):
                self._context = brentq(total, *ends)
                break
        else:
            return False
        score, information = scores(self._context)
        by_query = np.bincount(log.slot_query[log.slot], score, len(self._stops))
        self._stops = -by_query / (information + _LEVEL)
        self._exposed = np.bincount(self._cell, log.weight * np.exp(-self._context * above))
        return True

    # Predictions --------------------------------------------------------------------------------
    @property
    def _own_share(self):
        """Share of the residual of each cell that is its deviation, not chance."""
        return self._own * self._scale[self._place] * self._weight

    def _quality(self, curve, share=_UNKNOWN):
        """Quality of each pair by its clicks and a share of the prior."""
        (mean, spread), (precision, told, _) = self._prior(self._values), self._told(curve)
        return (told + share / spread * mean) / (precision + share / spread)

    def _of_cells(self, curve, quality):
        """P(click) of each cell below average documents."""
        p = curve.start[self._place] + curve.slope[self._place] * quality[self._pair]
        return p + self._own_share * (curve.rate - p)


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
