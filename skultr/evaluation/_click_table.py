"""P(click) of a document at a position below other documents, from the log of other pages."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import nnls
from scipy.sparse import csr_array

from .._base._typing import Floats
from .._log._segments import TINY, encode, largest_by_code
from .._models._solve import GroupedLogit, gram, maximise, solve_scaled
from ._leaving import fit_leaving
from ._logged_pages import LoggedPages, Pages

#: Rounds of the curve and of what it takes for given. They have converged where the squared move
#: of the curve in standard errors, and so that of any value, is as small as this, and the mean
#: share of a residual that is a deviation moves by as little as that.
_ROUNDS, _MOVE, _STILL = 100, 2.5e-3, 1e-3
#: Widths of κ, and of the walk of log b off its line where the position is e times as deep; the
#: likeliest are taken. Variances of the line's slope, of a place alone, and of what is free.
_TRUSTS = (0.03, 0.3, 1.0)
_BENDS = (0.03, 0.1, 0.3, 1.0)
_TILT, _NEAR, _ANY = 4.0, 1e-3, 1e4
_DIFFERENCE = 1e-4  # of numeric derivatives
_ALIKE = 1e-6  # share of squared predictions by which pages of a query must differ
_LEAST = 1e-3  # slope of a position at the start, relative deviation, or probability
_LEAST_CONTRAST = 0.05  # P(click), relative to that of a document of typical quality
_SINGLE, _BLOCKS = 20, 8  # positions of their own, and blocks of each doubling after them
_UNKNOWN = 1e-9  # share of the prior in predictions: of documents that the log never had
_POOLED = 20  # documents that the variance of all is worth
_SHARES = (1e-2, 10.0)  # of the variance of qualities, relative to their squared mean


class _Curve(NamedTuple):
    """Examination, and click rates as on pages that nobody leaves sooner than usual."""

    logs: Floats  # log b by place, and κ
    rate: Floats  # by cell


class ErrorsOfSum(NamedTuple):
    """Errors of a sum of clicks on other pages."""

    curve: Floats  # influence of each page of the log through the curve and the users
    noise: Floats  # chance of the clicks of each page, in this sum
    logged_noise: Floats  # and in the sum of the clicks of the log
    variance: float  # by the prior, and by deviations that no clicks determine


class ClickTable:
    r"""P(click) of a document at the position j is

    .. math:: (b_j (θ + κ (1 - 1/d_j) (θ - \bar θ)) + δ) f / f_j

    with its quality θ, which is :math:`\bar θ` where the average click fell; the depth d of the
    position, relative to the first; the chance f that no click above ended the visit
    (:class:`Leaving`), whose mean at the position is :math:`f_j`; and a deviation δ of this
    document here, of variance :math:`c_j^2 τ^2` with the click rate c of the position, relative to
    the best. Users of a position-based model have f = 1 and κ = τ = 0. κ > 0 are users who trust
    positions: at the top they click bad documents as well, with a chance that falls as 1/d
    (Vardasbi, Oosterhuis & de Rijke, 2020), so that quality matters more below. With a large τ,
    each document has click rates of its own at each position.

    b comes from the moves of documents alone: from the positions at which the clicks of a document
    fell, given their number. Where documents are usually, and how good they are there, does not
    matter, so that no prior of qualities can bend the curve. Its own prior is a straight line of
    log b on the log of the position, with a random walk around it, as wide as the clicks make
    likeliest (empirical Bayes).
    """

    def __init__(self, log: LoggedPages) -> None:
        keys, self._cell = log.shown_cells
        self._log = log
        self._pair, self._slot = np.divmod(keys, len(log.slot_query))
        # Deep positions in blocks: each costs time, and few clicks tell their curve.
        position = log.slot_position
        deep = np.ceil(_BLOCKS * np.log2(np.maximum(position / _SINGLE, 1)))
        self._slot_place, _ = encode(np.minimum(position, _SINGLE) + deep.astype(int))
        self._place = self._slot_place[self._slot]
        self._leaving = fit_leaving(log, self._slot_place[log.slot])
        leaves = self._leaving and self._leaving.chance
        self._clicks = np.bincount(self._cell, log.weight * log.rate)
        self._exposed, self._mean_stay, self._row_stay = self._exposure(leaves)
        shown = np.bincount(self._cell, log.weight)
        usual = self._by_pair(shown * self._place) / np.maximum(self._by_pair(shown), TINY)
        self.never_shown = self._by_pair(shown) == 0
        #: Of each pair; what was never shown is like what stands last.
        self._usual = np.rint(np.where(self.never_shown, usual.max(), usual)).astype(int)
        rates = np.bincount(self._place, self._clicks) / np.bincount(self._place, self._exposed)
        rates = np.maximum(rates / max(rates.max(), TINY), _LEAST)
        self._scale = rates**2  # of variances of deviations
        depth = np.bincount(self._slot_place, log.slot_pages * position)
        depth = np.log(depth / np.bincount(self._slot_place, log.slot_pages))
        self._depth = depth - depth[0]
        self._doubt = 1 - np.exp(-self._depth)  # 1 - 1/d
        self._curve = _Curve(np.append(np.log(rates), 0.0), self._clicks / self._exposed)
        # 1 - θ̄/θ of each pair, as its clicks and a prior tell it, and P(click) of θ̄ on top.
        self._rich = np.zeros(len(usual))
        self._typical = 0.0
        self._own, self._times = 0.0, 1.0  # τ², and how many times each click counts
        # By usual place: the variance of qualities, relative to their squared mean.
        self._share = np.full(len(rates), 0.3)
        self.converged = self._fit()
        #: By place: the best P(click) of a document.
        likely = self._of_cells(self._curve, self._quality(self._curve, share=1.0))
        self._best = largest_by_code(self._place, likely, len(rates))

    @property
    def slope(self) -> Floats:
        """Click probability that the place of each slot gives, up to one factor."""
        return np.exp(self._curve.logs[self._slot_place])

    def _line(self, curve, place):
        """P(click) at places without deviations: a level, and a slope in the quality."""
        height = np.exp(curve.logs[place])
        typical = self._typical * np.exp(-curve.logs[0])
        steeper = np.maximum(curve.logs[-1] * self._doubt[place], _LEAST - 1)
        return -height * steeper * typical, height * (1 + steeper)

    def _contrast(self, logs, pair, place):
        """P(click) of pairs at places, relative to that of a document of typical quality."""
        contrast = 1 + logs[-1] * self._doubt[place] * self._rich[pair]
        # Never 0, and smooth: a kink would make Newton's steps creep.
        return (contrast + np.sqrt(contrast**2 + 4 * _LEAST_CONTRAST**2)) / 2

    def predict(
        self,
        pages: Pages,
        unseen: Floats | None = None,
        curve: _Curve | None = None,
        leaves: Floats | None = None,
    ) -> Floats:
        """P(click) of each row of the pages, by the curve and users that were found or others.

        ``unseen`` counts documents that the log never had as such a share of the best of their
        place; without, they are what documents usually are at the last position.
        """
        curve = curve or self._curve
        place = self._slot_place[pages.slot]
        quality, (cell, there) = self._quality(curve), pages.cell()
        level, slope = self._line(curve, place)
        formula = level + slope * quality[pages.pair]
        p = np.where(there, self._of_cells(curve, quality)[cell], formula)
        if unseen is not None:
            p = np.where(self.never_shown[pages.pair], unseen * self._best[place], p)
        return p * self._stay(pages, unseen, leaves)

    def _stay(self, pages, unseen=None, leaves=None):
        """P(no click above ended the visit) at rows of pages, relative to the mean of the log."""
        if self._leaving is None:
            return np.ones(len(pages.slot))
        qualities = [table[pages.pair] for table in self._leaving[1:3]]
        if unseen is not None:
            never = self.never_shown[pages.pair]
            qualities = [
                np.where(never, unseen**power, values)
                for power, values in enumerate(qualities, start=1)
            ]
        place = self._slot_place[pages.slot]
        page = pages.ranking * len(self._log.query_pages) + self._log.slot_query[pages.slot]
        chance = self._leaving.chance
        mean = self._mean_stay
        if leaves is not None:
            chance, (_, mean, _) = leaves, self._exposure(leaves)
        return self._leaving.stay(*qualities, place, page, chance) / mean[place]

    def _exposure(self, leaves):
        """Impressions of each cell times their chance to be reached, relative to the mean of
        each place; that mean; and the relative chance of each row."""
        log = self._log
        place = self._slot_place[self._log.slot]
        if leaves is None:
            even = np.ones(len(log.row))
            return np.bincount(self._cell, log.weight), np.ones(place.max() + 1), even
        page = log.rows.choice[log.row]
        pair = log.pair[log.row]
        order = np.lexsort((log.slot, page))
        stay = np.empty(len(order))
        qualities = (table[pair[order]] for table in self._leaving[1:3])
        stay[order] = self._leaving.stay(*qualities, place[order], page[order], leaves)
        mean = np.bincount(place, log.weight * stay) / np.bincount(place, log.weight)
        stay /= mean[place]
        return np.bincount(self._cell, log.weight * stay), mean, stay

    def predict_logged(self) -> Floats:
        """P(click) of each row of the log by the formula alone, without deviations."""
        quality = self._quality(self._curve, share=1.0)
        level, slope = self._line(self._curve, self._place)
        return (level + slope * quality[self._pair])[self._cell] * self._row_stay

    def errors(self, pages: Pages, mass: Floats, gains: Floats) -> ErrorsOfSum:
        """Errors of the sum of mass times P(click); ``gains`` are those of slots in the log."""
        # What was never shown has its own ends.
        curve = self._curve
        known = np.zeros(len(mass))

        def moved(curve, leaves=None):
            return mass @ self.predict(pages, known, curve, leaves)

        total = moved(curve)
        slopes = np.empty(len(curve.logs))
        for number, step in enumerate(_DIFFERENCE * np.eye(len(slopes))):
            slopes[number] = (moved(curve._replace(logs=curve.logs + step)) - total) / _DIFFERENCE
        effect = solve_scaled(self._information, slopes)
        log = self._log
        cell = self._cell
        clicks = log.weight * log.rate
        exposed = log.weight * self._row_stay
        worth, expected = self._scores(effect)
        by_page = log.of_pages(worth[cell] * clicks - (expected / self._exposed)[cell] * exposed)
        if self._leaving is not None:
            for number, influence in enumerate(self._leaving.influence.T):
                leaves = self._leaving.chance.copy()
                step = _DIFFERENCE if leaves[number] < 0.5 else -_DIFFERENCE
                leaves[number] += step
                rate = self._clicks / self._exposure(leaves)[0]
                by_page += influence * (moved(curve._replace(rate=rate), leaves) - total) / step
        shown, there = pages.cell()
        share = np.where(there, self._own_share[shown], 0.0)
        place = self._slot_place[pages.slot]
        deviation = (1 - share) * self._own * self._scale[place]
        variance = float(effect @ self._precision @ effect + mass**2 @ deviation)
        # Trust that is hardly known bends what is told of good and bad documents.
        variance += (moved(self._without_trust()) - total) ** 2
        # What a click changes: the quality of its document, and the deviation of its cell.
        stay = mass * self._stay(pages)
        precision, _ = self._told(curve)
        _, slope = self._line(curve, place)
        by_pair = np.bincount(pages.pair, stay * (1 - share) * slope, len(precision))
        _, slope = self._line(curve, self._place)
        weight = self._weight * slope
        spread = self._prior[1]
        moves = weight / (precision + _UNKNOWN / spread)[self._pair] * by_pair[self._pair]
        moves += np.bincount(shown[there], (stay * share)[there], len(moves))
        # Its own part of the prediction that it is compared with.
        own = weight * slope / (precision + 1 / spread)[self._pair]
        own = self._own_share + (1 - self._own_share) * own
        own = own[cell] * exposed / self._exposed[cell]
        p = self._of_cells(curve, self._quality(curve, share=1.0))
        chance = (clicks - p[cell] * exposed) / np.sqrt(np.maximum(1 - own, _LEAST))
        noise = log.of_pages(chance * (moves / self._exposed)[cell])
        return ErrorsOfSum(by_page, noise, log.of_pages(chance * gains[log.slot]), variance)

    def excess(self, gains: Floats) -> tuple[float, float]:
        """How far clicks differ more between the pages of a query than predicted, and its error.

        Slope of the clicks of a page beyond their prediction on that prediction, within queries:
        0 if the formula holds, -1 if the order of the documents does not matter at all. Users who
        leave after one click make it -1, although each document is predicted well.
        """
        log = self._log
        if not log.has_pages:
            return 0.0, np.inf
        p = self._of_cells(self._curve, self._quality(self._curve))[self._cell] * self._row_stay
        told, more = (log.of_pages(gains[log.slot] * rate) for rate in (p, log.rate - p))
        # A page that was seen several times counts so often; it is not one of as many clicks.
        query = log.page_query
        weight = log.page_weight
        n_pages = np.maximum(log.of_queries(weight), TINY)
        told, more = (
            sums - (np.bincount(query, weight * sums) / n_pages)[query] for sums in (told, more)
        )
        squares, products = (np.bincount(query, weight * told * sums) for sums in (told, more))
        if squares.sum() <= _ALIKE * (log.weight * gains[log.slot] @ p**2):
            return 0.0, np.inf
        slope = products.sum() / squares.sum()
        return float(slope), float(np.linalg.norm(products - slope * squares) / squares.sum())

    # Fit ----------------------------------------------------------------------------------------
    def _fit(self):
        """Fit the curve, and what it takes for given, in turns; whether they converged."""
        self._gain = 1.0
        self._set_prior()
        self._noise = self._chance()
        shares = np.zeros(len(self._pair))
        choices = (0,) if self._log.has_pages else (0, 5, 15)
        for number in range(_ROUNDS):
            # What is taken for given moves by a share, or it may go to and fro.
            self._gain = 1 / (2 + number / 8)
            deviation = self._own * self._scale[self._place]
            self._weight = 1 / (self._times * self._noise / self._exposed + deviation)
            clicks = GroupedLogit.from_rows(self._pair, self._worth * self._clicks)
            if not clicks.n_clicks:
                return False
            offset = np.log(np.maximum(self._worth * self._exposed, TINY)[clicks.rows])
            self._moves = replace(clicks, offset=offset)
            # Counts must tell first how often a click counts.
            if number in choices:
                self._climb(self._prior_precision(_TRUSTS[-1], _BENDS[-1]))
                self._widths = max(product(_TRUSTS, _BENDS), key=self._evidence)
            move, converged = self._climb(self._prior_precision(*self._widths))
            still = np.average(np.abs(self._own_share - shares), weights=self._exposed) < _STILL
            moved = move @ self._information @ move
            if number > choices[-1] and converged and still and moved < _MOVE:
                return True
            shares = self._own_share
            self._set_prior()
            self._set_leaving()
            self._noise += self._gain * (self._chance() - self._noise)
            self._own += self._gain * (self._deviation() - self._own)
        return False

    def _without_trust(self):
        """The likeliest curve of users who trust no position."""
        other = copy(self)
        other._climb(self._prior_precision(_TRUSTS[0] / 100, self._widths[1]))
        return other._curve

    def _set_leaving(self):
        """Let documents end visits by the relevance that their moves show, not by their place."""
        if self._leaving is None:
            return
        precision, told = self._told(self._curve)
        height, (level, slope) = np.exp(self._curve.logs[:-1]), self._line(self._curve, 0)
        quality = np.where(self.never_shown, self._prior[0], told / np.maximum(precision, TINY))
        relevance = np.clip(level + slope * quality, 0, 1)
        square = np.maximum(relevance**2 - slope**2 / np.maximum(precision, TINY), 0)
        look = np.minimum(height / (height[0] * self._mean_stay * self._leaving.kept), 1)
        self._leaving = self._leaving._replace(relevance=relevance, square=square, look=look)
        self._exposed, self._mean_stay, self._row_stay = self._exposure(self._leaving.chance)
        self._curve = self._curve._replace(rate=self._clicks / self._exposed)

    @property
    def _worth(self):
        """Share of the clicks of each cell that count beside deviations and repeated clicks."""
        return self._weight * self._noise / self._exposed

    def _climb(self, precision):
        """Set the curve to the likeliest with this prior; how far it moved."""
        moves = self._moves
        start = self._curve.logs

        def objective(logs):
            heights, design = self._design(logs)
            log_shares = moves.log_shares(heights)
            expected = moves.expected(np.exp(log_shares))
            pull = precision @ logs
            offsets = np.append(moves.starts, len(expected))
            means = csr_array((np.exp(log_shares), np.arange(len(expected)), offsets)) @ design
            known = gram(design, expected) - gram(means, moves.total)
            value = moves.clicks @ log_shares - logs @ pull / 2
            return value, design.T @ (moves.clicks - expected) - pull, known + precision

        # The level of all of log b tells nothing, and may move: still is only what separates.
        found = maximise(objective, start, tol=_MOVE**2, longest=2.0, still=0.5)
        self._precision = precision
        self._information = objective(found.at)[2]
        self._curve = self._curve._replace(logs=found.at)
        return found.at - start, found.converged

    def _design(self, logs):
        """Log P(click) of each row of the moves but for quality, and its slopes in the curve."""
        place = self._place[self._moves.rows]
        pair = self._pair[self._moves.rows]
        row = np.arange(len(place))
        n = len(self._depth)
        contrast = self._contrast(logs, pair, place)
        steeper = self._doubt[place] * self._rich[pair]
        steeper *= contrast / (contrast**2 + _LEAST_CONTRAST**2)
        values = np.append(np.ones(len(place)), steeper)
        columns = np.append(place, np.full(len(place), n))
        slopes = csr_array((values, (np.tile(row, 2), columns)), (len(place), n + 1))
        return logs[place] + np.log(contrast), slopes

    def _evidence(self, widths):
        """Log-likelihood of the widths of the prior, by Laplace's approximation of the clicks'."""
        clicks = self._information - self._precision
        prior = self._prior_precision(*widths)
        slope = self._information @ self._curve.logs
        before, after = (np.linalg.slogdet(matrix)[1] for matrix in (prior, prior + clicks))
        return slope @ solve_scaled(prior + clicks, slope) + before - after

    def _prior_precision(self, trust, bend):
        """Precision of log b, a straight line on the log of the position with a random walk, and
        of κ."""
        walk = np.minimum.outer(self._depth, self._depth) + _NEAR * np.eye(len(self._depth))
        line = _ANY + _TILT * np.outer(self._depth, self._depth)
        return block_diag(np.linalg.inv(line + bend**2 * walk), trust**-2)

    def _scores(self, effect):
        """What each click of each cell, and all that are due in it, move by the curve's effect."""
        moves, (heights, design) = self._moves, self._design(self._curve.logs)
        shares = np.exp(moves.log_shares(heights))
        moved = design @ effect
        pair = self._pair[moves.rows]
        moved -= np.bincount(pair, shares * moved)[pair]
        worth, expected = np.zeros((2, len(self._pair)))
        worth[moves.rows] = self._worth[moves.rows] * moved
        expected[moves.rows] = moves.expected(shares) * moved
        return worth, expected

    def _set_prior(self):
        """Mean and variance of the quality of each pair, by its usual position."""
        level, slope = self._line(self._curve, self._place)
        exposed, base = (self._by_pair(self._exposed * part) for part in (slope, level))
        total = self._by_pair(self._clicks)
        n = len(self._depth)
        clicks = total - base
        by_usual = (np.bincount(self._usual, count, n) for count in (clicks, exposed))
        mean = np.maximum(np.divide(*(sums + TINY for sums in by_usual)), _LEAST)[self._usual]
        known = exposed > 0
        p = np.clip(level + slope * mean[self._pair], _LEAST, 1 - _LEAST)
        chance = self._times * self._by_pair(self._exposed * p * (1 - p))
        due = exposed * mean
        beyond = (clicks[known] / due[known] - 1) ** 2
        noise = chance[known] / due[known] ** 2
        weight = 1 / (1 + noise) ** 2
        # By usual place, shrunk to all.
        all_ = weight @ (beyond - noise) / weight.sum()
        sums = [
            np.bincount(self._usual[known], count, n)
            for count in (weight * (beyond - noise), weight)
        ]
        share = (sums[0] + _POOLED * all_) / (sums[1] + _POOLED)
        self._share *= (np.clip(share, *_SHARES) / self._share) ** self._gain
        spread = self._share[self._usual] * mean**2
        self._prior = mean, spread
        # Quality given the number of clicks, beside that of the mean click.
        gain = spread * exposed / np.maximum(spread * exposed**2 + chance, TINY)
        quality = np.maximum(mean + gain * (clicks - due), _LEAST_CONTRAST * mean)
        typical = total @ quality / max(total.sum(), TINY)
        self._typical += self._gain * (np.exp(self._curve.logs[0]) * typical - self._typical)
        self._rich += self._gain * (1 - typical / quality - self._rich)

    def _by_pair(self, values):
        return np.bincount(self._pair, values, minlength=len(self._log.pair_query))

    def _told(self, curve):
        """Precision of each pair by its clicks, and times its quality."""
        level, slope = self._line(curve, self._place)
        told = self._by_pair(self._weight * slope * (curve.rate - level))
        return self._by_pair(self._weight * slope**2), told

    def _chance(self):
        """Variance of a click in each cell, by the prior; by its own clicks, weights would err."""
        (mean, spread), (level, slope) = self._prior, self._line(self._curve, self._place)
        mean = np.clip(level + slope * mean[self._pair], _LEAST, 1 - _LEAST)
        varies = slope**2 * spread[self._pair]
        return np.maximum(mean * (1 - mean) - varies, mean * (1 - mean) / 4)

    def _deviation(self):
        """τ², by how far click rates are from what the other positions of a document say.

        Counts without pages may be of repeated clicks: what is more at few impressions than at
        many is then chance, and not τ². So it is estimated how many times a click counts.
        """
        pair, (level, slope) = self._pair, self._line(self._curve, self._place)
        (mean, spread), (precision, told) = self._prior, self._told(self._curve)
        own = self._weight * slope
        rate = self._curve.rate - level
        left = np.maximum(precision[pair] - own * slope, 0) + 1 / spread[pair]
        quality = (told[pair] - own * rate + (mean / spread)[pair]) / left
        chance = self._times * self._noise / self._exposed
        scale = self._scale[self._place]
        excess = (rate - slope * quality) ** 2 - slope**2 / left
        weight = 1 / (chance + slope**2 / left + self._own * scale)
        if self._log.has_pages:
            due = weight**2 * scale
            return max(float(due @ (excess - chance) / (due @ scale)), 0.0)
        parts = weight[:, None] * np.column_stack([chance, scale])
        (times, deviation), _ = nnls(parts, weight * excess)
        # Half a step at most: each round changes what the next one takes for chance.
        self._times = max(self._times * np.clip(times, 0.5, 2), 1.0)
        return deviation

    # Predictions --------------------------------------------------------------------------------
    @property
    def _own_share(self):
        """Share of the residual of each cell that is its deviation, not chance."""
        return self._own * self._scale[self._place] * self._weight

    def _quality(self, curve, share=_UNKNOWN):
        """Quality of each pair by its clicks and a share of the prior."""
        (mean, spread), (precision, told) = self._prior, self._told(curve)
        return (told + share / spread * mean) / (precision + share / spread)

    def _of_cells(self, curve, quality):
        """P(click) of each cell below average documents."""
        level, slope = self._line(curve, self._place)
        p = level + slope * quality[self._pair]
        return p + self._own_share * (curve.rate - p)
