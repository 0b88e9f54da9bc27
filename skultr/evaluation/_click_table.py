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

# Convergence ------------------------------------------------------------------------------------
#: Rounds of the curve and of what it takes for given, at most; some 30 are usual.
_MOST_ROUNDS = 100
#: Squared move of the curve in standard errors, and so of any value, in the last round.
_LARGEST_MOVE = 2.5e-3
# Prior of the curve -----------------------------------------------------------------------------
#: Widths of κ, of which the likeliest is taken.
_TRUSTS = (0.03, 0.3, 1.0)
#: Widths of the walk of log b off its line where the position is e times as deep.
_BENDS = (0.03, 0.1, 0.3, 1.0)
# Prior of qualities -----------------------------------------------------------------------------
#: Share of the prior in predictions: of documents that the log never had.
_UNKNOWN = 1e-9
# Guards -----------------------------------------------------------------------------------------
#: Step of numeric derivatives.
_DIFFERENCE = 1e-4
#: Smallest relative click rate, probability and slope: none of them divides by 0.
_SMALLEST = 1e-3
#: Smallest P(click), relative to that of a document of typical quality.
_LEAST_CONTRAST = 0.05


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
        # Cells are documents at slots that the log has.
        keys, self._cell = log.shown_cells
        self._log = log
        self._pair, self._slot = np.divmod(keys, len(log.slot_query))
        position = log.slot_position
        # 20 positions of their own, and 8 blocks for each doubling after them: each place costs
        # time, and few clicks tell the curve of deep ones.
        n_single = 20
        block = np.ceil(8 * np.log2(np.maximum(position / n_single, 1)))
        self._slot_place, _ = encode(np.minimum(position, n_single) + block.astype(int))
        self._place = self._slot_place[self._slot]
        # Users who leave after a click see less of what is below.
        self._leaving = fit_leaving(log, self._slot_place[log.slot])
        leaves = self._leaving and self._leaving.chance
        self._clicks = np.bincount(self._cell, log.weight * log.rate)
        self._exposed, self._mean_stay, self._row_stay = self._exposure(leaves)
        shown = np.bincount(self._cell, log.weight)
        shown_pair = self._by_pair(shown)
        # The usual place of a document tells its quality before its clicks do.
        usual = self._by_pair(shown * self._place) / np.maximum(shown_pair, TINY)
        self.never_shown = shown_pair == 0
        #: Of each pair; what was never shown is like what stands last.
        self._usual = np.rint(np.where(self.never_shown, usual.max(), usual)).astype(int)
        # Start: the curve is the fall of click rates.
        clicks_of_place = np.bincount(self._place, self._clicks)
        rates = clicks_of_place / np.bincount(self._place, self._exposed)
        rates = np.maximum(rates / max(rates.max(), TINY), _SMALLEST)
        self._scale = rates**2  # of variances of deviations
        n_pages = np.bincount(self._slot_place, log.slot_pages)
        mean_position = np.bincount(self._slot_place, log.slot_pages * position) / n_pages
        self._depth = np.log(mean_position) - np.log(mean_position)[0]
        self._doubt = 1 - np.exp(-self._depth)  # 1 - 1/d
        self._curve = _Curve(np.append(np.log(rates), 0.0), self._clicks / self._exposed)
        #: 1 - θ̄/θ of each pair, as its clicks and a prior tell it.
        self._rich = np.zeros(len(usual))
        #: P(click) of the typical quality θ̄ on top.
        self._typical = 0.0
        #: Variance τ² of deviations.
        self._own = 0.0
        #: How many times each click counts.
        self._times = 1.0
        #: By usual place: the variance of qualities, relative to their squared mean.
        self._share = np.full(len(rates), 0.3)
        self.converged = self._fit()
        #: By place: the best P(click) of a document, which bounds what was never shown.
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
        steeper = np.maximum(curve.logs[-1] * self._doubt[place], _SMALLEST - 1)
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
        # The formula, and where the log has the cell its deviation as well.
        quality = self._quality(curve)
        cell, there = pages.cell()
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
        relevance = self._leaving.relevance[pages.pair]
        square = self._leaving.square[pages.pair]
        if unseen is not None:
            never = self.never_shown[pages.pair]
            relevance = np.where(never, unseen, relevance)
            square = np.where(never, unseen**2, square)
        place = self._slot_place[pages.slot]
        # One page of each ranking and query.
        page = pages.ranking * len(self._log.query_pages) + self._log.slot_query[pages.slot]
        if leaves is None:
            leaves = self._leaving.chance
            mean = self._mean_stay
        else:
            _, mean, _ = self._exposure(leaves)
        return self._leaving.stay(relevance, square, place, page, leaves) / mean[place]

    def _exposure(self, leaves):
        """Impressions of each cell times their chance to be reached, relative to the mean of
        each place; that mean; and the relative chance of each row."""
        log = self._log
        place = self._slot_place[self._log.slot]
        if leaves is None:
            # Nobody leaves: all that is shown is reached.
            shown = np.bincount(self._cell, log.weight)
            return shown, np.ones(place.max() + 1), np.ones(len(log.row))
        page = log.rows.choice[log.row]
        pair = log.pair[log.row]
        # Down each page, and back to the order of the log.
        order = np.lexsort((log.slot, page))
        relevance = self._leaving.relevance[pair[order]]
        square = self._leaving.square[pair[order]]
        stay = np.empty(len(order))
        stay[order] = self._leaving.stay(relevance, square, place[order], page[order], leaves)
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
        curve_influence, variance = self._curve_errors(pages, mass)
        share = self._own_share_at(pages)
        place = self._slot_place[pages.slot]
        deviation = (1 - share) * self._own * self._scale[place]
        variance += float(mass**2 @ deviation)
        chance = self._chance_of_clicks()
        moves = self._moves_of_clicks(pages, mass, share)
        log = self._log
        noise = log.of_pages(chance * (moves / self._exposed)[self._cell])
        logged_noise = log.of_pages(chance * gains[log.slot])
        return ErrorsOfSum(curve_influence, noise, logged_noise, variance)

    def _curve_errors(self, pages, mass):
        """Influence of each page of the log, and the variance by the prior, through the curve and
        the users."""
        log = self._log
        curve = self._curve
        # What was never shown has its own ends.
        nothing = np.zeros(len(mass))

        def moved(curve, leaves=None):
            return mass @ self.predict(pages, nothing, curve, leaves)

        # Through the curve: slopes of the sum, times how each click moves the curve.
        total = moved(curve)
        slopes = np.empty(len(curve.logs))
        steps = _DIFFERENCE * np.eye(len(slopes))
        for number, step in enumerate(steps):
            beside = curve._replace(logs=curve.logs + step)
            slopes[number] = (moved(beside) - total) / _DIFFERENCE
        effect = solve_scaled(self._information, slopes)
        worth, expected = self._scores(effect)
        clicks = log.weight * log.rate
        exposed = log.weight * self._row_stay
        due = (expected / self._exposed)[self._cell] * exposed
        influence = log.of_pages(worth[self._cell] * clicks - due)
        # Through P(leave after a click).
        if self._leaving is not None:
            for number, leaving_influence in enumerate(self._leaving.influence.T):
                leaves = self._leaving.chance.copy()
                step = _DIFFERENCE if leaves[number] < 0.5 else -_DIFFERENCE  # stays in [0, 1]
                leaves[number] += step
                rate = self._clicks / self._exposure(leaves)[0]
                beside = moved(curve._replace(rate=rate), leaves)
                influence += leaving_influence * (beside - total) / step
        variance = float(effect @ self._precision @ effect)
        # Trust that is hardly known bends what is told of good and bad documents.
        variance += (moved(self._without_trust()) - total) ** 2
        return influence, variance

    def _own_share_at(self, pages):
        """Share of the residual of each row's cell that is a deviation; 0 without a cell."""
        cell, there = pages.cell()
        return np.where(there, self._own_share[cell], 0.0)

    def _moves_of_clicks(self, pages, mass, share):
        """How far the click rate of each cell moves the sum: by the quality of its document, and
        by the deviation of the cell."""
        place = self._slot_place[pages.slot]
        stay = mass * self._stay(pages)
        precision, _ = self._told(self._curve)
        _, slope = self._line(self._curve, place)
        by_pair = np.bincount(pages.pair, stay * (1 - share) * slope, len(precision))
        _, logged_slope = self._line(self._curve, self._place)
        _, spread = self._prior
        prior_precision = _UNKNOWN / spread
        moves = self._weight * logged_slope / (precision + prior_precision)[self._pair]
        moves *= by_pair[self._pair]
        cell, there = pages.cell()
        moves += np.bincount(cell[there], (stay * share)[there], len(moves))
        return moves

    def _chance_of_clicks(self):
        """Clicks of each row of the log beyond their prediction, as if it had not seen them."""
        log = self._log
        precision, _ = self._told(self._curve)
        _, slope = self._line(self._curve, self._place)
        exposed = log.weight * self._row_stay
        # The part of the prediction that is the row's own click makes residuals too small.
        _, spread = self._prior
        own = self._weight * slope * slope / (precision + 1 / spread)[self._pair]
        own = self._own_share + (1 - self._own_share) * own
        own_of_row = own[self._cell] * exposed / self._exposed[self._cell]
        p = self._of_cells(self._curve, self._quality(self._curve, share=1.0))
        residual = log.weight * log.rate - p[self._cell] * exposed
        return residual / np.sqrt(np.maximum(1 - own_of_row, _SMALLEST))

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
        query = log.page_query
        # A page that was seen several times counts so often; it is not one of as many clicks.
        weight = log.page_weight
        n_pages = np.maximum(log.of_queries(weight), TINY)

        def within_query(by_row):
            sums = log.of_pages(gains[log.slot] * by_row)
            return sums - (np.bincount(query, weight * sums) / n_pages)[query]

        told = within_query(p)
        beyond = within_query(log.rate - p)
        # Sums over queries of the regression of what is beyond on what was told.
        squares = np.bincount(query, weight * told * told)
        products = np.bincount(query, weight * told * beyond)
        # Pages of a query that are all alike, but for rounding, test nothing.
        if squares.sum() <= 1e-6 * (log.weight * gains[log.slot] @ p**2):
            return 0.0, np.inf
        slope = products.sum() / squares.sum()
        # Queries are independent: the error is by what each leaves.
        left = products - slope * squares
        return float(slope), float(np.linalg.norm(left) / squares.sum())

    # Fit ----------------------------------------------------------------------------------------
    def _fit(self):
        """Fit the curve, and what it takes for given, in turns; whether they converged."""
        self._gain = 1.0
        self._set_prior()
        self._noise = self._chance()
        shares = np.zeros(len(self._pair))
        # Rounds that choose the widths of the prior. Counts must tell first how often a click
        # counts, and so choose anew when that is better known.
        choices = (0,) if self._log.has_pages else (0, 5, 15)
        for number in range(_MOST_ROUNDS):
            # What is taken for given goes half of its way, and half of that after 16 rounds: with
            # a full step the curve and the qualities go to and fro.
            self._gain = 0.5 / (1 + number / 16)
            # 1. The curve, given how much each click counts.
            self._weigh_cells()
            if not self._moves.n_clicks:
                return False
            if number in choices:
                self._climb(self._prior_precision(_TRUSTS[-1], _BENDS[-1]))
                self._widths = max(product(_TRUSTS, _BENDS), key=self._evidence)
            move, is_highest = self._climb(self._prior_precision(*self._widths))
            change = np.average(np.abs(self._own_share - shares), weights=self._exposed)
            squared_move = move @ self._information @ move
            is_still = change < 1e-3 and squared_move < _LARGEST_MOVE
            if number > choices[-1] and is_highest and is_still:
                return True
            shares = self._own_share
            # 2. What it takes for given: qualities, users who leave, chance and deviations.
            self._set_prior()
            self._set_leaving()
            self._noise += self._gain * (self._chance() - self._noise)
            self._own += self._gain * (self._deviation() - self._own)
        return False

    def _weigh_cells(self):
        """Set the precision of the click rate of each cell, and the moves that tell the curve."""
        deviation = self._own * self._scale[self._place]
        self._weight = 1 / (self._times * self._noise / self._exposed + deviation)
        moves = GroupedLogit.from_rows(self._pair, self._worth * self._clicks)
        offset = np.log(np.maximum(self._worth * self._exposed, TINY)[moves.rows])
        self._moves = replace(moves, offset=offset)

    def _without_trust(self):
        """The likeliest curve of users who trust no position."""
        other = copy(self)
        no_trust = _TRUSTS[0] / 100  # κ is 0 with this width
        other._climb(self._prior_precision(no_trust, self._widths[1]))
        return other._curve

    def _set_leaving(self):
        """Let documents end visits by the relevance that their moves show, not by their place."""
        if self._leaving is None:
            return
        precision, told = self._told(self._curve)
        height = np.exp(self._curve.logs[:-1])
        level, slope = self._line(self._curve, 0)
        quality = np.where(self.never_shown, self._prior[0], told / np.maximum(precision, TINY))
        relevance = np.clip(level + slope * quality, 0, 1)
        # The square of an estimate is too high by its variance.
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
            shares = np.exp(log_shares)
            expected = moves.expected(shares)
            pull = precision @ logs
            # Means of the design over the moves of each document, by the expected clicks.
            offsets = np.append(moves.starts, len(expected))
            means = csr_array((shares, np.arange(len(expected)), offsets)) @ design
            known = gram(design, expected) - gram(means, moves.total)
            value = moves.clicks @ log_shares - logs @ pull / 2
            return value, design.T @ (moves.clicks - expected) - pull, known + precision

        # The level of all of log b tells nothing, and may move: still is only what separates.
        found = maximise(objective, start, tol=_LARGEST_MOVE**2, longest=2.0, still=0.5)
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
        # The derivative of the log of `_contrast`, by its smooth value.
        steeper *= contrast / (contrast**2 + _LEAST_CONTRAST**2)
        values = np.append(np.ones(len(place)), steeper)
        columns = np.append(place, np.full(len(place), n))
        slopes = csr_array((values, (np.tile(row, 2), columns)), (len(place), n + 1))
        return logs[place] + np.log(contrast), slopes

    def _evidence(self, widths):
        """Log-likelihood of the widths of the prior, by Laplace's approximation of the clicks'."""
        # The clicks as a normal distribution around the curve that was found.
        clicks = self._information - self._precision
        prior = self._prior_precision(*widths)
        slope = self._information @ self._curve.logs
        _, log_det_before = np.linalg.slogdet(prior)
        _, log_det_after = np.linalg.slogdet(prior + clicks)
        return slope @ solve_scaled(prior + clicks, slope) + log_det_before - log_det_after

    def _prior_precision(self, trust, bend):
        """Precision of log b, a straight line on the log of the position with a random walk, and
        of κ."""
        # Each place may be off the walk by .03, so that the matrix stays regular.
        walk = np.minimum.outer(self._depth, self._depth) + 1e-3 * np.eye(len(self._depth))
        # The level is free: clicks cannot tell it. The slope has the variance 4: examination
        # falls as the position to the power 0 to 4.
        line = 1e4 + 4 * np.outer(self._depth, self._depth)
        return block_diag(np.linalg.inv(line + bend**2 * walk), trust**-2)

    def _scores(self, effect):
        """What each click of each cell, and all that are due in it, move by the curve's effect."""
        moves = self._moves
        # Scores of the clicks in the curve: design less its mean over the moves of a document.
        heights, design = self._design(self._curve.logs)
        shares = np.exp(moves.log_shares(heights))
        moved = design @ effect
        pair = self._pair[moves.rows]
        moved -= np.bincount(pair, shares * moved)[pair]
        worth = np.zeros(len(self._pair))
        expected = np.zeros(len(self._pair))
        worth[moves.rows] = self._worth[moves.rows] * moved
        expected[moves.rows] = moves.expected(shares) * moved
        return worth, expected

    def _set_prior(self):
        """Mean and variance of the quality of each pair, by its usual position."""
        level, slope = self._line(self._curve, self._place)
        exposed = self._by_pair(self._exposed * slope)
        base = self._by_pair(self._exposed * level)
        total = self._by_pair(self._clicks)
        clicks = total - base
        n_places = len(self._depth)
        # Mean, by usual place.
        clicks_of_place = np.bincount(self._usual, clicks, n_places) + TINY
        exposed_of_place = np.bincount(self._usual, exposed, n_places) + TINY
        mean = np.maximum(clicks_of_place / exposed_of_place, _SMALLEST)[self._usual]
        # Variance relative to the squared mean, by moments: what squares are beyond chance.
        p = np.clip(level + slope * mean[self._pair], _SMALLEST, 1 - _SMALLEST)
        chance = self._times * self._by_pair(self._exposed * p * (1 - p))
        due = exposed * mean
        known = exposed > 0
        squares = (clicks[known] / due[known] - 1) ** 2
        noise = chance[known] / due[known] ** 2
        weight = 1 / (1 + noise) ** 2
        excess = weight * (squares - noise)
        # By usual place, shrunk to all as by 20 pairs that are told exactly.
        share_of_all = weight @ (squares - noise) / weight.sum()
        excess_of_place = np.bincount(self._usual[known], excess, n_places)
        weight_of_place = np.bincount(self._usual[known], weight, n_places)
        share = (excess_of_place + 20 * share_of_all) / (weight_of_place + 20)
        # Documents are neither all alike nor a few good ones among many of no quality.
        share = np.clip(share, 1e-2, 10.0)
        self._share *= (share / self._share) ** self._gain
        spread = self._share[self._usual] * mean**2
        self._prior = mean, spread
        # Quality given the number of clicks, beside that of the mean click.
        shrinkage = spread * exposed / np.maximum(spread * exposed**2 + chance, TINY)
        quality = np.maximum(mean + shrinkage * (clicks - due), _LEAST_CONTRAST * mean)
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
        mean, spread = self._prior
        level, slope = self._line(self._curve, self._place)
        mean = np.clip(level + slope * mean[self._pair], _SMALLEST, 1 - _SMALLEST)
        # Of the variance m (1 - m), what documents differ by is no chance; a quarter at least is.
        whole = mean * (1 - mean)
        between = slope**2 * spread[self._pair]
        return np.maximum(whole - between, whole / 4)

    def _deviation(self):
        """τ², by how far click rates are from what the other positions of a document say.

        Counts without pages may be of repeated clicks: what is more at few impressions than at
        many is then chance, and not τ². So it is estimated how many times a click counts.
        """
        pair = self._pair
        level, slope = self._line(self._curve, self._place)
        mean, spread = self._prior
        precision, told = self._told(self._curve)
        # Quality by the other cells of the document, and what is left of each rate beside it.
        own = self._weight * slope
        rate = self._curve.rate - level
        left = np.maximum(precision[pair] - own * slope, 0) + 1 / spread[pair]
        quality = (told[pair] - own * rate + (mean / spread)[pair]) / left
        chance = self._times * self._noise / self._exposed
        scale = self._scale[self._place]
        excess = (rate - slope * quality) ** 2 - slope**2 / left
        weight = 1 / (chance + slope**2 / left + self._own * scale)
        if self._log.has_pages:
            # The regression of the excess beyond chance on the scale.
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
        mean, spread = self._prior
        precision, told = self._told(curve)
        return (told + share / spread * mean) / (precision + share / spread)

    def _of_cells(self, curve, quality):
        """P(click) of each cell below average documents."""
        level, slope = self._line(curve, self._place)
        p = level + slope * quality[self._pair]
        return p + self._own_share * (curve.rate - p)
