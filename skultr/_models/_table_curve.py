"""Examination from comparisons within documents, and what a network adds where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg
from scipy.stats import chi2

from .._log._cells import Cells
from .._log._clicklog import ClickLog
from .._log._segments import TINY
from .._typing import Floats, Ints
from ._tabular import TabularFit, fit_tabular

__all__ = ["CombinedCurve", "TableCurve", "table_curve"]

#: Prior precision of the factor by which a network exaggerates log examination, around 1.
_SLOPE_PRECISION = 4.0
#: A network's curve is not trusted beyond this standard deviation of log examination.
_LEAST_SPREAD = 0.1
#: Standard errors are computed for at most so many factors.
_MAX_INVERTED = 1_500


class CombinedCurve(NamedTuple):
    """A table's curve where documents moved, a network's where they did not.

    Parameters
    ----------
    log_examination : ndarray of shape (n_factors,)
    standard_error : ndarray of shape (n_factors,)
        Of log examination relative to the mean over the factors; NaN beyond 1,500 factors.
    slope : float
        Factor by which the network's log examination is multiplied.
    spread : float
        Standard deviation of its further error.
    p_value : float
        Of the hypothesis that both curves are equal; small if production knew more than the
        features, or if examination depends on more than the bias factor.
    """

    log_examination: Floats
    standard_error: Floats
    slope: float
    spread: float
    p_value: float


@dataclass(frozen=True, eq=False)
class TableCurve:
    """Examination by bias factor as the same documents at several factors determine it.

    Parameters
    ----------
    fit : TabularFit
        Conditional likelihood of where the clicks of each document fell, in which relevance does
        not appear.
    """

    fit: TabularFit

    @property
    def log_examination(self) -> Floats:
        """Shape (n_factors,); determined up to one constant for each component."""
        return self.fit.factor_logits

    @cached_property
    def information(self) -> csr_array:
        """Fisher information of log examination with the documents eliminated.

        Shape (n_factors, n_factors). Rows sum to 0: the scale is not determined, and neither is
        the ratio of factors that no clicked document connects.
        """
        cells, log_share = self.fit.cells, self.fit.factor_logits
        expected = cells.weight * np.exp(log_share)[cells.factor]
        share = expected / np.maximum(cells.by_doc(expected), TINY)[cells.doc]
        clicks = cells.by_doc(cells.clicks)
        coupling = cells.matrix(share)
        joint = (coupling.T @ (diags_array(clicks) @ coupling)).tocsr()
        return (diags_array(np.asarray(joint.sum(axis=1)).ravel()) - joint).tocsr()

    @cached_property
    def component(self) -> Ints:
        """Component of each factor, shape (n_factors,), equal where clicked documents connect."""
        # A link with less information than a thousandth of a click is rounding.
        return connected_components(abs(self.information) > 1e-3, directed=False)[1]

    @property
    def is_connected(self) -> bool:
        """True if clicked documents connect all factors that have clicks."""
        clicked = self.fit.cells.by_factor(self.fit.cells.clicks) > 0
        return len(np.unique(self.component[clicked])) <= 1

    def standard_error(self, reference: int) -> Floats:
        """Standard error of log examination relative to one factor; infinite if not connected."""
        return self.fit.standard_error(reference)

    def combined(self, network: Floats) -> CombinedCurve:
        r"""The most plausible curve given this table and the log examination of a network.

        The network's curve :math:`n` is the prior mean of the true one, up to a factor
        :math:`a \approx 1` (a network attributes relevance to examination: too steep) and noise of
        variance :math:`\tau^2`, both estimated from the table. With the table's estimate
        :math:`b` and information :math:`B` the result solves :math:`(B + I / \tau^2)\, h = B b +
        a n / \tau^2`: the table where it is precise, the network where the table knows nothing,
        and between components the network alone.

        Parameters
        ----------
        network : ndarray of shape (n_factors,)
            NaN for a factor that the network does not know.

        Returns
        -------
        combined : CombinedCurve
        """
        b, known = self.log_examination, np.isfinite(network)
        prior = np.where(known, network, b)
        prior = prior - prior.mean()
        information = self.information
        trace = float(information.diagonal().sum())
        n_compared = len(b) - len(np.unique(self.component))
        if not n_compared or trace <= 0:
            return CombinedCurve(prior, np.full(len(b), np.inf), 1.0, np.inf, 1.0)
        apart = b - prior
        p_value = float(chi2.sf(apart @ (information @ apart), n_compared))
        slope = (prior @ (information @ b) + _SLOPE_PRECISION) / (
            prior @ (information @ prior) + _SLOPE_PRECISION
        )
        slope = max(float(slope), 0.0)
        apart = b - slope * prior
        excess = apart @ (information @ apart) - n_compared
        spread = max(np.sqrt(max(excess, 0.0) / trace), _LEAST_SPREAD)
        precision = (information + eye_array(len(b)) / spread**2).tocsr()
        aim = information @ b + slope * prior / spread**2
        inverse = diags_array(1 / precision.diagonal())
        found, _ = cg(precision, aim, x0=slope * prior, rtol=1e-10, M=inverse)
        return CombinedCurve(found, _errors_of_mean(precision), slope, float(spread), p_value)

    def with_prior(self, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Posterior mean of log examination given a normal prior of each factor.

        Parameters
        ----------
        mean, spread : ndarray of shape (n_factors,)
            Mean and standard deviation of the prior; the spread is above 0.

        Returns
        -------
        log_examination : ndarray of shape (n_factors,)
        standard_error : ndarray of shape (n_factors,)
            Relative to the first factor; those of the prior beyond 1,500 factors.
        """
        information = self.information
        precision = (information + diags_array(spread**-2.0)).tocsr()
        aim = information @ self.log_examination + mean / spread**2
        if len(mean) > _MAX_INVERTED:
            found, _ = cg(
                precision, aim, x0=mean, rtol=1e-10, M=diags_array(1 / precision.diagonal())
            )
            error = np.hypot(spread, spread[0])
            error[0] = 0.0
            return found, error
        covariance = np.linalg.inv(precision.toarray())
        variance = np.diag(covariance) + covariance[0, 0] - 2 * covariance[0]
        return covariance @ aim, np.sqrt(np.maximum(variance, 0.0))


def table_curve(log: ClickLog) -> TableCurve:
    """Examination of the bias factors of a log by comparisons within documents alone.

    It takes no features and is consistent however few clicks a document has. A factor without
    clicks is given half a click, so that its examination is small and finite.
    """
    rows = log.shown_rows
    cells = Cells.from_rows(
        log.doc[rows],
        log.bias[rows],
        log.clicks[rows],
        log.weight[rows],
        len(log.features),
        len(log.bias_values),
    ).with_half_clicks()
    return TableCurve(
        fit_tabular(
            cells.doc,
            cells.factor,
            cells.clicks,
            cells.weight,
            loss="poisson",
            n_docs=cells.n_docs,
            n_factors=cells.n_factors,
            start=np.full(cells.n_factors, 0.5),
        )
    )


def _errors_of_mean(precision):
    """Standard errors relative to the mean of all factors, from a regular precision matrix."""
    n = precision.shape[0]
    if n > _MAX_INVERTED:
        return np.full(n, np.nan)
    covariance = np.linalg.inv(precision.toarray())
    mean = covariance.mean(axis=1)
    return np.sqrt(np.maximum(np.diag(covariance) - 2 * mean + mean.mean(), 0.0))
