"""Estimators of the clicks on pages that a log did not show, from the clicks that it has.

Each carries the click rate of a *unit* of the log to the pages: a document of a query
(position-based model), or a document at a position (item-position).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from .._typing import Bools, Floats, Ints
from ._logged_pages import LoggedPages, Pages

__all__ = [
    "Carrier",
    "Estimate",
    "Target",
    "by_cell",
    "by_pair",
    "carried",
    "corrected",
    "modelled",
]

#: Bound of the share of a click model's error that is no chance, in units of a click's variance.
_LARGEST_ERROR = 1e6


@dataclass(frozen=True, eq=False)
class Target:
    """Pages of one ranking, or of two of which the second is subtracted.

    Attributes
    ----------
    pages : Pages
    sign : ndarray of shape (n_placed,)
        1, or -1 for the second ranking.
    changed : ndarray of shape (n_placed,), bool
        Where the other ranking has another document, or there is none.
    gain : ndarray of shape (n_placed,)
        Value of one click.
    """

    pages: Pages
    sign: Ints
    changed: Bools
    gain: Floats

    @property
    def mass(self) -> Floats:
        """Gain of a click times the number of pages, negative for the second ranking."""
        return self.sign * self.gain * self.pages.log.slot_pages[self.pages.slot]

    def by_query(self, values: Floats) -> Floats:
        """Sums over each query."""
        return np.bincount(self.pages.query, values, minlength=self.pages.log.n_queries)


class Estimate(NamedTuple):
    """Clicks of each query on the pages of a target, and how much of the log tells them."""

    by_query: Floats
    support: float
    effective: float


@dataclass(frozen=True, eq=False)
class Carrier:
    """From the clicks of units to pages.

    Attributes
    ----------
    unit_row, exposure_row : ndarray of shape (n_shown,)
        Unit of each shown row, and the click probability that its place gives, up to a factor.
    inverse : ndarray of shape (n_shown,)
        Impressions of the row, divided by the probability of its place if that is known.
    unit, exposure : ndarray of shape (n_placed,)
        The same of the pages; the unit of a row of which the log has none is arbitrary.
    coverage : ndarray of shape (n_placed,)
        1 if the log has the unit, else 0; with known probabilities the share of the pages that
        the rows of the unit stand for, of which 1 is the expectation.
    """

    unit_row: Ints
    exposure_row: Floats
    inverse: Floats
    unit: Ints
    exposure: Floats
    coverage: Floats

    def total(self, values: Floats) -> Floats:
        """Sum of values of shown rows over each unit."""
        n_units = 1 + max(self.unit_row.max(), self.unit.max(initial=0))
        return np.bincount(self.unit_row, values, minlength=n_units)

    def seen(self) -> Floats:
        """Exposure of each unit in the log; 1 where it has none, and nothing is carried."""
        exposed = self.total(self.inverse * self.exposure_row)
        return np.where(exposed > 0, exposed, 1.0)

    def per_page(self, of_unit: Floats) -> Floats:
        """Values of units per unit of exposure, on the pages."""
        return self.coverage * self.exposure * of_unit[self.unit]


def by_pair(log: LoggedPages, pages: Pages, examination: Floats) -> Carrier:
    """Position-based: a click at position j counts o(new position) / o(j)."""
    unit_row = log.pair[log.row]
    shown = np.bincount(unit_row, log.weight, minlength=len(log.pair_query)) > 0
    return Carrier(
        unit_row=unit_row,
        exposure_row=examination,
        inverse=log.weight,
        unit=pages.pair,
        exposure=log.by_position(examination)[pages.slot],
        coverage=shown[pages.pair].astype(float),
    )


def by_cell(log: LoggedPages, pages: Pages, probability: Floats | None) -> Carrier:
    """Item-position: clicks of a document count where the new page has it at the same place."""
    _, unit_row = log.cells
    unit, there = pages.cell()
    inverse, coverage = log.weight, there.astype(float)
    if probability is not None:
        inverse = log.weight / probability
        coverage = there * np.bincount(unit_row, inverse)[unit] / log.slot_pages[pages.slot]
    return Carrier(
        unit_row=unit_row,
        exposure_row=np.ones(len(unit_row)),
        inverse=inverse,
        unit=unit,
        exposure=np.ones(len(unit)),
        coverage=coverage,
    )


def carried(target: Target, carrier: Carrier) -> Estimate:
    """Clicks carried over, divided by the share of the pages that they cover.

    Documents that the log cannot speak of are thereby taken to be clicked like the others on the
    changed places. What both rankings have at one place is left out.
    """
    log = target.pages.log
    rate = carrier.total(carrier.inverse * log.rate) / carrier.seen()
    value = target.mass * carrier.per_page(rate)
    due = np.abs(target.mass) * _click_rate(target)
    by_query = np.zeros(log.n_queries)
    for sign in (1, -1):
        rows = target.changed & (target.sign == sign)
        parts = (value * rows, due * carrier.coverage * rows, due * rows)
        clicks, covered, whole = (target.by_query(of) for of in parts)
        if covered.sum() > 0:
            # The ratio A W / C of three sums, as a sum over queries with the same variance.
            share = whole.sum() / covered.sum()
            level = clicks.sum() / covered.sum()
            by_query += clicks * share + level * (whole - share * covered)
    return Estimate(by_query, _support(target, carrier), _effective(target, carrier))


def modelled(target: Target, predicted: Floats, shown: Carrier) -> Estimate:
    """Clicks that a click model predicts; the log speaks of the documents that it showed."""
    by_query = target.by_query(target.mass * predicted)
    return Estimate(by_query, _support(target, shown), _effective(target, shown))


def corrected(
    target: Target, predicted: Floats, on_log: Floats, carrier: Carrier, shown: Carrier
) -> Estimate:
    """Predicted clicks plus the carried-over error of the model on the log (doubly robust).

    The error of a unit with few impressions is mostly chance, and is shrunk accordingly.
    """
    log = target.pages.log
    exposed = carrier.seen()
    error = carrier.total(carrier.inverse * (log.rate - on_log)) / exposed
    chance = carrier.inverse**2 / log.weight * on_log * (1 - on_log)
    variance = carrier.total(chance) / exposed**2
    spread = carrier.total(carrier.inverse * on_log * (1 - on_log)) / exposed
    asked = np.zeros(len(error), dtype=bool)
    asked[carrier.unit[target.changed & (carrier.coverage > 0)]] = True
    keep = _share_of_error(error, variance, spread, asked & (variance > 0))
    value = target.mass * (predicted + carrier.per_page(keep * error))
    return Estimate(target.by_query(value), _support(target, shown), _effective(target, carrier))


def _share_of_error(error, variance, spread, asked):
    """Share of each unit's error that is no chance: φ n / (1 + φ n) for n clicks' worth.

    The errors of a model have the variance φ times that of a click; φ is such that squared errors
    have their expectation (Paule and Mandel).
    """
    ratio = error[asked] ** 2 / variance[asked]
    worth = spread[asked] / variance[asked]

    def excess(phi):
        return np.mean(ratio / (1 + phi * worth)) - 1

    phi = 0.0
    if len(ratio) and excess(0.0) > 0:
        phi = _LARGEST_ERROR if excess(_LARGEST_ERROR) > 0 else brentq(excess, 0, _LARGEST_ERROR)
    worth = np.divide(spread, variance, out=np.zeros_like(spread), where=variance > 0)
    return phi * worth / (1 + phi * worth)


def _click_rate(target):
    """Click rate of the log at the position of each row of the pages."""
    log = target.pages.log
    return log.by_position(log.rate)[target.pages.slot]


def _support(target, carrier):
    """Share of the changed places, weighted by the clicks of their positions, that is covered."""
    due = np.abs(target.mass) * _click_rate(target) * target.changed
    shares = []
    for sign in np.unique(target.sign):
        whole = due[target.sign == sign].sum()
        covered = (due * carrier.coverage)[target.sign == sign].sum()
        shares.append(min(covered / whole, 1.0) if whole > 0 else 0.0)
    return float(min(shares))


def _effective(target, carrier):
    """Equally weighted clicks of the same precision, (Σ w)² / Σ w² (Kish)."""
    log = target.pages.log
    carried = np.abs(target.mass) * carrier.coverage * carrier.exposure * target.changed
    of_unit = np.bincount(carrier.unit, carried, minlength=len(carrier.seen())) / carrier.seen()
    weight = of_unit[carrier.unit_row] * carrier.inverse / log.weight
    clicks = log.rate * log.weight
    squares = (weight**2 * clicks).sum()
    return float((weight * clicks).sum() ** 2 / squares) if squares > 0 else 0.0
