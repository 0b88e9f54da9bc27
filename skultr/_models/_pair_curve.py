"""Examination by rank and last click, from comparisons within documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array, eye_array, hstack
from scipy.sparse.linalg import LinearOperator, cg

from .._base._typing import Floats, Ints
from .._log._cells import Cells
from .._log._segments import TINY

#: Standard deviation of a pair about the sum of its effects: start, least and greatest.
_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 0.5, 0.02, 5.0
#: Most rounds of examination and spread, and the relative change of the spread that ends them.
_ROUNDS, _LEAST_CHANGE = 12, 0.02
#: Up to so many pairs the Hessian is a dense matrix; beyond, Newton steps are by conjugate
#: gradients, and standard errors are as if the effects were known.
_MAX_DENSE = 1_500
#: Numbers of a block of the matrix of documents by pairs, and the share of pairs that a document
#: was shown under up to which it stays sparse: most documents of long lists have few of the pairs.
_BLOCK, _SPARSE = 4_000_000, 0.1
#: Largest gradient of coefficients that are standard normal a priori: they are as exact.
_LEAST_GRADIENT = 1e-3
#: Most Newton steps, and the least part of a step.
_MAX_STEPS, _LEAST_LENGTH = 50, 1e-6


class PairCurve(NamedTuple):
    """Log examination of pairs of factors."""

    log_examination: Floats  # (n_factors,)
    standard_error: Floats  # (n_factors,)
    effects: Floats  # (n_factors,), alone: log examination of a pair that was never shown
    spread: float
    n_iter: int


def pair_curve(cells: Cells, effects: csr_array, mean: Floats, spread: Floats) -> PairCurve:
    r"""Log examination as a sum of effects, plus what the log tells of each pair.

    .. math:: h = h_0 + Z \theta + \delta, \qquad \theta \sim N(0, \operatorname{diag}(s^2)),
              \quad \delta \sim N(0, \tau^2)

    It maximises the conditional likelihood of where the clicks of each document fell, in which
    relevance does not appear, times this prior. :math:`\tau` is learned, by MacKay's fixed point:
    pairs that follow no pattern are shrunk little, and few clicks tell little of a pair.
    """
    seen, factor = np.unique(cells.factor, return_inverse=True)
    likelihood = _WithinDocuments(cells, factor, len(seen))
    n_effects = effects.shape[1]
    tau, point, n_iter = _SPREAD, np.zeros(n_effects + len(seen)), 0
    for _ in range(_ROUNDS):
        scale = np.concatenate([spread, np.full(len(seen), tau)])
        design = csr_array(hstack([effects[seen], eye_array(len(seen))]) @ diags_array(scale))
        point, n_steps = likelihood.maximise(mean[seen], design, point)
        n_iter += n_steps
        coefficients = point
        last, apart = tau, tau * point[n_effects:]
        known = likelihood.own_information(mean[seen] + design @ point) * tau**2
        tau = np.sqrt((apart @ apart) / max(np.sum(known / (1 + known)), TINY))
        tau = float(np.clip(tau, _LEAST_SPREAD, _MOST_SPREAD))
        if abs(np.log(tau / last)) < _LEAST_CHANGE:
            break
        point = np.append(point[:n_effects], point[n_effects:] * last / tau)
    total = mean + effects @ (spread * coefficients[:n_effects])
    result, error = total.copy(), np.full(len(total), np.hypot(last, spread.mean()))
    result[seen] = mean[seen] + design @ coefficients
    error[seen] = likelihood.standard_error(result[seen], design, last)
    return PairCurve(result, error, total, last, n_iter)


class _WithinDocuments:
    """Conditional likelihood of where the clicks of each document fell."""

    def __init__(self, cells: Cells, factor: Ints, n_factors: int):
        self.n_factors = n_factors
        # A document without clicks tells nothing of where they fall.
        rows = np.flatnonzero(cells.by_doc(cells.clicks)[cells.doc] > 0)
        self.factor, self.clicks = factor[rows], cells.clicks[rows]
        self.log_weight = np.log(cells.weight[rows])
        doc = cells.doc[rows]
        self.starts = np.flatnonzero(np.diff(doc, prepend=-1))
        self.doc = np.cumsum(np.diff(doc, prepend=-1) != 0) - 1
        self.total = np.bincount(self.doc, self.clicks)
        self.by_factor = np.bincount(self.factor, self.clicks, n_factors)

    def maximise(self, mean, design, point):
        """Posterior mode of standard normal coefficients of a design, and the number of steps."""

        def objective(point):
            value, gradient = self._loss(mean + design @ point)
            return value + 0.5 * point @ point, design.T @ gradient + point

        value, gradient = objective(point)
        for n_steps in range(_MAX_STEPS):  # noqa: B007
            if np.abs(gradient).max() < _LEAST_GRADIENT:
                break
            step = self._newton_step(mean + design @ point, design, gradient)
            length, slope = 1.0, step @ gradient
            reached, there = objective(point - step)
            while reached > value - 1e-4 * length * slope and length > _LEAST_LENGTH:
                length /= 2
                reached, there = objective(point - length * step)
            point, value, gradient = point - length * step, reached, there
        return point, n_steps

    def _newton_step(self, log_examination, design, gradient):
        share = self._share(log_examination)
        if self.n_factors <= _MAX_DENSE:
            hessian = _congruent(design, self._dense_information(share)) + np.eye(len(gradient))
            return solve(hessian, gradient, assume_a="pos")

        def product(direction):
            return design.T @ self._information(share, design @ direction) + direction

        shape = (len(gradient), len(gradient))
        return cg(LinearOperator(shape, matvec=product, dtype=float), gradient, rtol=1e-3)[0]

    def _loss(self, log_examination):
        logits = self.log_weight + log_examination[self.factor]
        highest = np.maximum.reduceat(logits, self.starts)
        mass = np.exp(logits - highest[self.doc])
        of_doc = np.bincount(self.doc, mass)
        value = self.total @ (np.log(of_doc) + highest) - self.by_factor @ log_examination
        expected = mass * (self.total / of_doc)[self.doc]
        return value, np.bincount(self.factor, expected, self.n_factors) - self.by_factor

    def _share(self, log_examination):
        """Share of each cell in the clicks of its document."""
        logits = self.log_weight + log_examination[self.factor]
        mass = np.exp(logits - np.maximum.reduceat(logits, self.starts)[self.doc])
        return mass / np.bincount(self.doc, mass)[self.doc]

    def _information(self, share, values):
        of_row = values[self.factor]
        centre = np.bincount(self.doc, share * of_row)[self.doc]
        surplus = self.total[self.doc] * share * (of_row - centre)
        return np.bincount(self.factor, surplus, self.n_factors)

    def _dense_information(self, share):
        """Matrix (n_factors, n_factors)."""
        information = np.diag(
            np.bincount(self.factor, self.total[self.doc] * share, self.n_factors)
        )
        root = share * np.sqrt(self.total)[self.doc]
        shape = (len(self.total), self.n_factors)
        documents = csr_array((root, (self.doc, self.factor)), shape)
        if len(root) < _SPARSE * len(self.total) * self.n_factors:
            return information - (documents.T @ documents).toarray()
        n_block = max(_BLOCK // self.n_factors, 1)
        for first in range(0, len(self.total), n_block):
            block = documents[first : first + n_block].toarray()
            information -= block.T @ block
        return information

    def own_information(self, log_examination):
        """Information of each factor, as if all others were known, shape (n_factors,)."""
        share = self._share(log_examination)
        return np.bincount(self.factor, self.total[self.doc] * share * (1 - share), self.n_factors)

    def standard_error(self, log_examination, design, spread):
        """Standard error of log examination relative to the first factor."""
        if self.n_factors > _MAX_DENSE:
            error = 1 / np.sqrt(self.own_information(log_examination) + spread**-2.0)
            error = np.hypot(error, error[0])
            error[0] = 0.0
            return error
        information = self._dense_information(self._share(log_examination))
        precision = _congruent(design, information) + np.eye(design.shape[1])
        covariance = design @ (design @ np.linalg.inv(precision)).T
        variance = np.diag(covariance) - 2 * covariance[0] + covariance[0, 0]
        return np.sqrt(np.maximum(variance, 0.0))


def _congruent(design, matrix):
    """Z' A Z of a sparse Z and a symmetric dense A."""
    return design.T @ (design.T @ matrix).T
