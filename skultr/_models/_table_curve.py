"""Examination from comparisons within documents, and what a network adds where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple

import numpy as np
from scipy.sparse import diags_array
from scipy.sparse.linalg import cg
from scipy.stats import chi2

from .._base._typing import Floats, Ints
from .._log._cells import Cells
from .._log._clicklog import ClickLog
from ._click_choice import ClickChoice
from ._solve import Eliminated
from ._tabular import TabularFit, fit_cells

#: Prior precision of the factor by which a network exaggerates log examination, around 1.
_SLOPE_PRECISION = 4.0
#: A network's curve is not trusted beyond this standard deviation of log examination.
_LEAST_SPREAD = 0.1
#: Standard errors are computed for at most so many factors.
_MAX_INVERTED = 1_500


class CombinedCurve(NamedTuple):
    """A table's curve where documents moved, a network's where they did not."""

    log_examination: Floats  # (n_factors,)
    standard_error: Floats  # (n_factors,)
    slope: float
    spread: float
    p_value: float


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

        def of_part(part):
            choice, shares = self._shares(part)
            return choice.information(shares, part.factor[choice.rows], part.n_factors)

        return reduce(add, (of_part(part) for _, part in self.fit.cells.parts()))

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
        choice = ClickChoice.from_rows(part.doc, part.clicks)
        weight, examination = part.weight[choice.rows], self.log_examination[part.factor]
        return choice, np.exp(choice.log_shares(np.log(weight) + examination[choice.rows]))

    def _solve(self, precision, aim, start):
        """Solution of the information plus a diagonal of prior precisions."""
        known = self.information.plus(precision)
        return cg(known, aim, x0=start, rtol=1e-10, M=diags_array(1 / known.diagonal))[0]

    @property
    def is_connected(self) -> bool:
        """True if clicked documents connect all factors that have clicks."""
        clicked = self.fit.cells.clicks_of_factors > 0
        return len(np.unique(self.component[clicked])) <= 1

    def standard_error(self, reference: int) -> Floats:
        """Standard error of log examination relative to one factor; infinite if not connected."""
        return self.fit.standard_error(reference)

    def rough_error(self, reference: int) -> Floats:
        """The same; beyond 1,500 factors, as if all but the two that are compared were known."""
        if len(self.log_examination) <= _MAX_INVERTED:
            return self.standard_error(reference)
        own = self.fit.own_error()
        return np.where(np.arange(len(own)) == reference, 0.0, np.hypot(own, own[reference]))

    def combined(self, network: Floats, reference: int = 0) -> CombinedCurve:
        r"""The most plausible curve given this table and the log examination of a network.

        The network's curve :math:`n` is the prior mean of the true one, up to a factor
        :math:`a \approx 1` (a network attributes relevance to examination: too steep) and noise of
        variance :math:`\tau^2`, both estimated from the table. With the table's estimate
        :math:`b` and information :math:`B` the result solves :math:`(B + I / \tau^2)\, h = B b +
        a n / \tau^2`: the table where it is precise, the network where the table knows nothing,
        and between components the network alone.
        """
        b, known = self.log_examination, np.isfinite(network)
        prior = np.where(known, network, b)
        prior = prior - prior.mean()
        information = self.information
        trace = float(information.diagonal.sum())
        n_compared = len(b) - len(np.unique(self.component))
        if not n_compared or trace <= 0:
            error = np.where(np.arange(len(b)) == reference, 0.0, np.inf)
            return CombinedCurve(prior, error, 1.0, np.inf, 1.0)
        apart = b - prior
        p_value = float(chi2.sf(apart @ (information @ apart), n_compared))
        slope = (prior @ (information @ b) + _SLOPE_PRECISION) / (
            prior @ (information @ prior) + _SLOPE_PRECISION
        )
        slope = max(float(slope), 0.0)
        apart = b - slope * prior
        excess = apart @ (information @ apart) - n_compared
        spread = max(np.sqrt(max(excess, 0.0) / trace), _LEAST_SPREAD)
        precision = np.full(len(b), spread**-2.0)
        aim = information @ b + precision * slope * prior
        found = self._solve(precision, aim, slope * prior)
        if len(b) > _MAX_INVERTED:
            error = np.where(np.arange(len(b)) == reference, 0.0, np.nan)
        else:
            error = relative_errors(np.linalg.inv(information.plus(precision).dense()), reference)
        return CombinedCurve(found, error, slope, float(spread), p_value)

    def with_prior(self, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Posterior mean of log examination given a normal prior of each factor."""
        precision = spread**-2.0
        aim = self.information @ self.log_examination + precision * mean
        if len(mean) > _MAX_INVERTED:
            error = np.hypot(spread, spread[0])
            error[0] = 0.0
            return self._solve(precision, aim, mean), error
        covariance = np.linalg.inv(self.information.plus(precision).dense())
        return covariance @ aim, relative_errors(covariance, 0)


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
