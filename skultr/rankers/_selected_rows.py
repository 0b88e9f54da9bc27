"""Rows of features of which a part was selected and has a label, and their standard units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from .._typing import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Rows of features, of which the selected ones have a label."""

    features: Floats  # (n_rows, n_features)
    label: Floats  # (n_rows,)
    selected: Bools  # (n_rows,)
    weight: Floats  # (n_rows,)
    noise: Floats | None = None  # (n_rows,), known part of the variance of each label
    query: Ints | None = None  # (n_rows,), rows of which may depend on each other

    @cached_property
    def design(self) -> Floats:
        """The features and a column of ones."""
        return np.column_stack([self.features, np.ones(len(self.features))])

    @cached_property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Designs and weights of the selected rows, then of the others."""
        rows = self.selected
        return self.design[rows], self.weight[rows], self.design[~rows], self.weight[~rows]

    @cached_property
    def known(self) -> tuple[Floats, Floats]:
        """Labels of the selected rows, and the known part of their variances."""
        label = self.label[self.selected]
        return label, np.zeros(len(label)) if self.noise is None else self.noise[self.selected]

    @cached_property
    def label_spread(self) -> float:
        """Standard deviation of the labels; 1 if they do not vary."""
        rows = self.selected
        return float(_standardise(self.label[rows], self.weight[rows])[1])

    @property
    def threshold(self) -> float:
        """Intercept of a probit of the selection without features."""
        share = self.weight[self.selected].sum() / self.weight.sum()
        return float(ndtri(np.clip(share, 1e-3, 1 - 1e-3)))

    @cached_property
    def standard(self) -> StandardRows:
        """The same rows with standardised features and labels, for Newton's method."""
        rows, weight = self.selected, self.weight
        center, spread, features = _standardise(self.features, weight)
        label_center, label_spread, known = _standardise(self.label[rows], weight[rows])
        label = np.full(len(rows), np.nan)
        label[rows] = known
        noise = None if self.noise is None else self.noise / label_spread**2
        standard = SelectedRows(features, label, rows, weight, noise, self.query)
        return StandardRows(standard, center, spread, float(label_center), float(label_spread))


class StandardRows(NamedTuple):
    """Rows with standardised features and known labels, and the conversion of parameters.

    A penalised likelihood is unchanged: a coefficient is multiplied by the spread of its
    feature, and its penalty is divided by the square of that spread.
    """

    rows: SelectedRows
    center: Floats  # (n_features,)
    spread: Floats  # (n_features,)
    label_center: float
    label_spread: float

    def inward(self, coef: Floats, intercept: float) -> Floats:
        """Coefficients and intercept of an index of the features, in standardised features."""
        return np.append(coef * self.spread, intercept + coef @ self.center)

    def outward(self, at: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept, in the features as they came."""
        coef = at[:-1] / self.spread
        return coef, float(at[-1] - coef @ self.center)


def _standardise(values, weight):
    """Weighted mean and standard deviation of columns, and the standardised columns.

    A constant column becomes 0.
    """
    total = weight.sum()
    center = weight @ values / total
    values = values - center
    spread = np.sqrt(weight @ values**2 / total)
    constant = spread <= 1e-12 * np.abs(center)  # otherwise rounding errors would be scaled up
    spread = np.where(constant, 1.0, spread)
    return center, spread, np.where(constant, 0.0, values / spread)
