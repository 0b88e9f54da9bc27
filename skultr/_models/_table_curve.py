"""Examination from comparisons within documents: by bias factor, with what a network adds where
there are none, and by rank and last click."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array, eye_array, hstack
from scipy.sparse.linalg import LinearOperator, cg
from scipy.stats import chi2

from .._base._typing import Floats, Ints
from .._log._cells import Cells
from .._log._clicklog import ClickLog
from .._log._segments import TINY
from ._solve import (
    FEW_FACTORS,
    MAX_DENSE,
    Eliminated,
    GroupedLogit,
    maximise,
    warn_unless_converged,
)
from ._tabular import TabularFit, fit_cells

#: Prior precision of the factor by which a network exaggerates log examination, around 1.
_SLOPE_PRECISION = 4.0


class CombinedCurve(NamedTuple):
    """A table's curve where documents moved, a network's where they did not."""

    log_examination: Floats  # (n_factors,)
    standard_error: Floats  # (n_factors,)
    p_value: float  # that the table and the network show one curve


@dataclass(frozen=True, eq=False)
class TableCurve:
    """Examination by bias factor as the same documents at several factors determine it."""

    fit: TabularFit

    @property
    def log_examination(self) -> Floats:
        """Shape (n_factors,); determined up to one constant for each component."""
        return self.fit.factor_logits

    @cached_property
    def information(self) -> Eliminated:
        """Fisher information of log examination with the documents eliminated.

        An operator of shape (n_factors, n_factors), because the matrix is dense where a document
        was shown under all factors. Rows sum to 0: the scale is not determined, and neither is
        the ratio of factors that no clicked document connects.
        """

        parts = []
        for _, part in self.fit.cells.parts():
            choice, shares = self._shares(part)
            factor = part.factor[choice.rows]
            parts.append(choice.information(shares, factor, part.n_factors))
        return reduce(add, parts)

    @cached_property
    def component(self) -> Ints:
        """Component of each factor, shape (n_factors,), equal where clicked documents connect."""

        def linked(part):
            choice, shares = self._shares(part)
            # A link with less than a thousandth of a click is rounding.
            return choice.rows[choice.expected(shares) > 1e-3]

        return self.fit.cells.components(linked)

    def _shares(self, part):
        """Where the clicks of each document fall, and the share of each cell in them."""
        choice = GroupedLogit.from_rows(part.doc, part.clicks)
        log_weight = np.log(part.weight[choice.rows])
        log_examination = self.log_examination[part.factor[choice.rows]]
        return choice, np.exp(choice.log_shares(log_weight + log_examination))

    def _posterior(self, mean, precision, reference):
        """Log examination given a normal prior, and its standard errors relative to one factor:
        NaN for more than 1,500 factors."""
        known = self.information.plus(precision)
        aim = self.information @ self.log_examination + precision * mean
        if len(mean) > MAX_DENSE:
            error = np.full(len(mean), np.nan)
            error[reference] = 0.0
            return known.solve(aim), error
        covariance = np.linalg.inv(known.dense())
        return covariance @ aim, relative_errors(covariance, reference)

    @property
    def is_connected(self) -> bool:
        """True if clicked documents connect all factors that have clicks."""
        has_clicks = self.fit.cells.clicks_of_factors > 0
        return len(np.unique(self.component[has_clicks])) <= 1

    def rough_error(self, reference: int) -> Floats:
        """Standard error of log examination relative to one factor; beyond 1,500 factors, as if
        all but the two that are compared were known."""
        if len(self.log_examination) <= MAX_DENSE:
            return self.fit.standard_error(reference)
        return _apart(self.fit.own_error(), reference)

    def combined(self, network: Floats, reference: int = 0) -> CombinedCurve:
        r"""The most plausible curve given this table and the log examination of a network.

        The network's curve :math:`n` is the prior mean of the true one, up to a factor
        :math:`a \approx 1` (a network attributes relevance to examination: too steep) and noise of
        variance :math:`\tau^2`, both estimated from the table. With the table's estimate
        :math:`b` and information :math:`B` the result solves :math:`(B + I / \tau^2)\, h = B b +
        a n / \tau^2`: the table where it is precise, the network where the table knows nothing,
        and between components the network alone.
        """
        table = self.log_examination  # b
        network = np.where(np.isfinite(network), network, table)
        network = network - network.mean()  # n
        information = self.information  # B
        trace = float(information.diagonal.sum())
        n_compared = len(table) - len(np.unique(self.component))
        if not n_compared or trace <= 0:
            error = np.full(len(table), np.inf)
            error[reference] = 0.0
            return CombinedCurve(network, error, 1.0)
        # Do both show one curve? A test by the information, as many degrees as comparisons.
        apart = table - network
        p_value = float(chi2.sf(apart @ (information @ apart), n_compared))
        # The factor a by which the network exaggerates: weighted least squares, pulled to 1.
        along = network @ (information @ table) + _SLOPE_PRECISION
        slope = along / (network @ (information @ network) + _SLOPE_PRECISION)
        slope = max(float(slope), 0.0)
        # The spread τ: what the differences have beyond the noise of the table.
        apart = table - slope * network
        excess = apart @ (information @ apart) - n_compared
        # A network's curve is not trusted beyond this standard deviation of log examination.
        spread = max(np.sqrt(max(excess, 0.0) / trace), 0.1)
        precision = np.full(len(table), spread**-2.0)
        curve, error = self._posterior(slope * network, precision, reference)
        return CombinedCurve(curve, error, p_value)

    def with_prior(self, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Posterior mean of log examination given a normal prior of each factor, with its error
        relative to the first: for more than 1,500 factors that of the prior alone."""
        found, error = self._posterior(mean, spread**-2.0, 0)
        error_of_prior = np.hypot(spread, spread[0])
        return found, np.where(np.isnan(error), error_of_prior, error)


def table_curve(log: ClickLog) -> TableCurve:
    """Examination of the bias factors of a log by comparisons within documents alone.

    It takes no features and is consistent however few clicks a document has. A factor without
    clicks is given half a click, so that its examination is small and finite.
    """
    return table_of_cells(log.cells)


def table_of_cells(cells: Cells) -> TableCurve:
    """The same from the cells of a log."""
    start = np.full(cells.n_factors, 0.5)
    return TableCurve(fit_cells(cells.with_half_clicks(), loss="poisson", start=start))


def relative_errors(covariance: Floats, reference: int) -> Floats:
    """Standard errors relative to one factor, from the covariance of all, shape (n_factors,)."""
    shared = covariance[reference]
    variance = np.diag(covariance) - 2 * shared + shared[reference]
    return np.sqrt(np.maximum(variance, 0.0))


def _apart(error, reference):
    """Standard errors relative to one factor, if estimates are independent."""
    apart = np.hypot(error, error[reference])
    apart[reference] = 0.0
    return apart


# By rank and last click -------------------------------------------------------------
#: Its range: below, pairs have no deviation; above, effects tell nothing of them.
_SPREADS = (0.02, 5.0)


class PairCurve(NamedTuple):
    """Log examination of pairs of factors."""

    log_examination: Floats  # (n_factors,)
    standard_error: Floats  # (n_factors,)
    n_iter: int


def pair_curve(cells: Cells, effects: csr_array, mean: Floats, spread: Floats) -> PairCurve:
    r"""Log examination as a sum of effects, plus what the log tells of each pair.

    .. math:: h = h_0 + Z \theta + \delta, \qquad \theta \sim N(0, \operatorname{diag}(s^2)),
              \quad \delta \sim N(0, \tau^2)

    It maximises the product of this prior and the conditional likelihood of where the clicks of
    each document fell, in which relevance does not appear. :math:`\tau` is learned, by MacKay's
    fixed point: if pairs follow no pattern they are shrunk little, and with few clicks much.
    """
    seen, factor = np.unique(cells.factor, return_inverse=True)
    choice = GroupedLogit.from_rows(cells.doc, cells.clicks)
    factor = factor[choice.rows]
    log_weight = np.log(cells.weight[choice.rows])

    def information(shares):
        return choice.information(shares, factor, len(seen))

    def objective(point):
        log_examination = mean[seen] + design @ point
        log_shares = choice.log_shares(log_weight + log_examination[factor])
        shares = np.exp(log_shares)
        surplus = np.bincount(factor, choice.clicks - choice.expected(shares), len(seen))
        value = choice.clicks @ log_shares - 0.5 * point @ point
        return value, design.T @ surplus - point, information(shares), shares

    def newton_step(known, gradient):
        if len(seen) <= FEW_FACTORS:
            return solve(_precision(design, known), gradient, assume_a="pos")

        def product(x):
            return design.T @ (known @ (design @ x)) + x

        # Exact enough for a step, after which there are others.
        precision = LinearOperator((len(gradient), len(gradient)), matvec=product)
        step, _ = cg(precision, gradient, rtol=1e-3)
        return step

    n_effects = effects.shape[1]
    # Standard deviation of a pair about the sum of its effects, at the start.
    tau = 0.5
    # Start: no effects and no deviations, in units of their standard deviations a priori.
    point = np.zeros(n_effects + len(seen))
    n_iter = 0
    # Most rounds of examination and spread.
    for _ in range(100):
        # Effects and deviations, given the spread.
        scale = np.concatenate([spread, np.full(len(seen), tau)])
        columns = hstack([effects[seen], eye_array(len(seen))])
        design = csr_array(columns @ diags_array(scale))
        # Twice the log posterior that a last step may still gain: coefficients, which are standard
        # normal a priori, are then as exact as its root.
        found = maximise(objective, point, solve=newton_step, tol=1e-8)
        n_iter += found.n_iter
        (shares,) = found.history[-1]
        known = information(shares)
        # The spread, given the deviations: their square sum over how many the log determines.
        last = tau
        apart = tau * found.at[n_effects:]
        own = known.diagonal * tau**2
        n_determined = np.sum(own / (1 + own))
        tau = np.sqrt((apart @ apart) / max(n_determined, TINY))
        tau = float(np.clip(tau, *_SPREADS))
        # The relative change of the spread that ends them: it moves no pair by a fiftieth of its
        # error.
        if abs(np.log(tau / last)) < 0.02:
            break
        # The next round starts at the same deviations, in its units.
        point = np.append(found.at[:n_effects], found.at[n_effects:] * last / tau)
    else:
        found = found._replace(converged=False)
    warn_unless_converged(found, "Examination by pairs of ranks")
    # A pair that was never shown has its effects alone.
    result = mean + effects @ (spread * found.at[:n_effects])
    error = np.full(len(result), np.hypot(last, spread.mean()))
    result[seen] = mean[seen] + design @ found.at
    error[seen] = _standard_error(known, design, last)
    return PairCurve(result, error, n_iter)


def _standard_error(known, design, spread):
    """Standard error of log examination relative to the first factor."""
    if len(known.own) <= FEW_FACTORS:
        covariance = np.linalg.inv(_precision(design, known))
        return relative_errors(design @ (design @ covariance).T, 0)
    # The information about each factor, as if relevance were known by the others, but effects are
    # not: factors of one rank or distance err together, and the inverse is only of effects.
    effects = design[:, : -len(known.own)]
    noise = 1 + known.diagonal * spread**2
    by_effects = diags_array(1 / noise) @ effects
    own = diags_array(known.diagonal / noise)
    precision = (effects.T @ (own @ effects)).toarray() + np.eye(effects.shape[1])
    moved = by_effects @ np.linalg.inv(precision)
    variance = spread**2 / noise + by_effects.multiply(moved).sum(axis=1)
    shared = by_effects @ moved[0]
    error = np.sqrt(np.maximum(variance + variance[0] - 2 * shared, 0.0))
    error[0] = 0.0
    return error


def _precision(design, known):
    """Z' I Z + 1 of a sparse design Z and the information I about factors, a dense matrix."""
    matrix = design.T @ (design.T @ known.dense()).T
    return matrix + np.eye(len(matrix))
