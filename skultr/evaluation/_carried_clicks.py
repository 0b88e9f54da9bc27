"""Estimators of the clicks on pages that a log did not show, from the clicks that it has.

Each carries the click rates of *units* of the log to the pages: of a document of a query
(position-based model), or of a document at a position (item-position).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._typing import Bools, Floats, Ints
from ._logged_pages import LoggedPages, Pages

__all__ = [
    "Carrier",
    "Estimate",
    "Target",
    "by_cell",
    "by_pair",
    "carried",
    "modelled",
]


@dataclass(frozen=True, eq=False)
class Target:
    """The pages to tell the clicks of; those of a second ranking are subtracted."""

    pages: Pages
    changed: Bools  # where the other ranking, if there is one, has another document
    mass: Floats  # number of pages times the gain of a click; negative for the second ranking

    def by_query(self, values: Floats) -> Floats:
        """Sums over each query."""
        log = self.pages.log
        query = log.slot_query[self.pages.slot]
        return np.bincount(query, values, minlength=len(log.rows.query_ids))


class Estimate(NamedTuple):
    """Clicks of each query on the pages, and how much of the log tells them."""

    by_query: Floats
    support: float
    effective: float


@dataclass(frozen=True, eq=False)
class Carrier:
    """From the clicks of units to pages."""

    unit_row: Ints  # of each shown row
    exposure_row: Floats  # click probability that the place of the shown row gives, up to a factor
    inverse: Floats  # impressions, divided by the probability of the place if it is known
    unit: Ints  # of each row of the pages; arbitrary where the log has none
    exposure: Floats
    #: 1 if the log has the unit, else 0. With known probabilities the share of the pages that the
    #: rows of the unit stand for; its expectation is 1.
    coverage: Floats

    def total(self, values: Floats) -> Floats:
        """Sum of values of shown rows over each unit."""
        n_units = 1 + max(self.unit_row.max(), self.unit.max(initial=0))
        return np.bincount(self.unit_row, values, minlength=n_units)

    def exposed(self) -> Floats:
        """Exposure of each unit in the log; 1 where it has none, and nothing is carried."""
        exposed = self.total(self.inverse * self.exposure_row)
        return np.where(exposed > 0, exposed, 1.0)

    def to_pages(self, of_unit: Floats) -> Floats:
        """Click probability on the pages, from that of units at exposure 1."""
        return self.coverage * self.exposure * of_unit[self.unit]


def by_pair(pages: Pages, examination: Floats) -> Carrier:
    """Position-based: a click at position j counts o(new position) / o(j)."""
    log = pages.log
    unit_row = log.pair[log.row]
    shown = np.bincount(unit_row, log.weight, minlength=len(log.pair_query)) > 0
    exposure, coverage = log.by_position(examination)[pages.slot], shown[pages.pair].astype(float)
    return Carrier(unit_row, examination, log.weight, pages.pair, exposure, coverage)


def by_cell(pages: Pages, probability: Floats | None) -> Carrier:
    """Item-position: a click counts where the new page has the document at the same position."""
    log = pages.log
    _, unit_row = log.cells
    unit, there = pages.cell()
    inverse, coverage = log.weight, there.astype(float)
    if probability is not None:
        inverse = log.weight / probability
        coverage = there * np.bincount(unit_row, inverse)[unit] / log.slot_pages[pages.slot]
    return Carrier(unit_row, np.ones(len(unit_row)), inverse, unit, np.ones(len(unit)), coverage)


def carried(target: Target, carrier: Carrier) -> Estimate:
    """Clicks carried over, divided by the share of the pages that they cover.

    Documents that the log cannot speak of are thereby taken to be clicked like the others at the
    changed places. What two rankings have at the same place is left out.
    """
    log = target.pages.log
    rate = carrier.total(carrier.inverse * log.rate) / carrier.exposed()
    value, due = target.mass * carrier.to_pages(rate), _due(target)
    by_query = np.zeros(len(log.query_pages))
    for number in (0, 1):
        rows = target.changed & (target.pages.ranking == number)
        parts = (value * rows, due * carrier.coverage * rows, due * rows)
        clicks, covered, whole = (target.by_query(of) for of in parts)
        if covered.sum() > 0:
            # The ratio A W / C of three sums, as a sum over queries of the same variance.
            share, level = whole.sum() / covered.sum(), clicks.sum() / covered.sum()
            by_query += clicks * share + level * (whole - share * covered)
    return Estimate(by_query, _support(target, carrier), _effective(target, carrier))


def modelled(target: Target, predicted: Floats, shown: Carrier) -> Estimate:
    """Clicks that a click model predicts; the log speaks of the documents that it showed."""
    by_query = target.by_query(target.mass * predicted)
    return Estimate(by_query, _support(target, shown), _effective(target, shown))


def mean_per_page(log: LoggedPages, by_query: Floats) -> tuple[float, float]:
    """Mean per page, and its standard error from the variance between queries."""
    pages = log.query_pages
    value = by_query.sum() / pages.sum()
    residual = (by_query - value * pages) / pages.sum()
    n_queries = max(np.count_nonzero(pages), 2)  # of one, no error is told
    return float(value), float(np.sqrt(n_queries / (n_queries - 1) * (residual**2).sum()))


def _due(target):
    """What each row of the pages counts in the support: the click rate of its position."""
    log = target.pages.log
    return np.abs(target.mass) * log.by_position(log.rate)[target.pages.slot]


def _support(target, carrier):
    """Share of the changed places that is covered, for the ranking of which it is less."""
    due, shares = _due(target) * target.changed, []
    for number in np.unique(target.pages.ranking):
        of = due * (target.pages.ranking == number)
        shares.append(min((of * carrier.coverage).sum() / of.sum(), 1.0) if of.any() else 0.0)
    return float(min(shares))


def _effective(target, carrier):
    """Equally weighted clicks of the same precision, (Σ w)² / Σ w² (Kish)."""
    log, exposed = target.pages.log, carrier.exposed()
    carried = np.abs(target.mass) * carrier.coverage * carrier.exposure * target.changed
    of_unit = np.bincount(carrier.unit, carried, minlength=len(exposed)) / exposed
    weight = of_unit[carrier.unit_row] * carrier.inverse / log.weight  # of one click
    clicks = log.rate * log.weight
    squares = (weight**2 * clicks).sum()
    return float((weight * clicks).sum() ** 2 / squares) if squares > 0 else 0.0
