"""The log as the model that an experiment is planned with."""

from __future__ import annotations

import numpy as np

from .._log._roles import read_role
from ..propensity._source import row_propensities
from ..propensity._swap_model import SwapModel


def read_model(log, k, propensity):
    """The model of the first k positions."""
    positions = np.unique(log.slot_position).astype(int)[:k]
    n = len(positions)
    if n < 2 or (positions != np.arange(1, n + 1)).any():
        raise ValueError(
            f"The log has the positions {positions[:10].tolist()}; expected 1, 2, ... without "
            "gaps, and at least two. Pass k= to plan for the first ones."
        )
    place = log.slot_position[log.slot].astype(int) - 1
    inside = place < n
    cell = (log.pair[log.row] * n + place)[inside]
    shown, clicks = (
        np.bincount(cell, of[inside], minlength=len(log.pair_query) * n).reshape(-1, n)
        for of in (log.weight, log.weight * log.rate)
    )
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    if not rate.all():
        raise ValueError(
            f"The log has no click at position {positions[rate == 0][0]}, so that no experiment "
            "can be planned for it. Pass a smaller k, or a longer log."
        )
    given = None
    if propensity is not None or read_role(log.X, "propensity", None) is not None:
        given = _given(log, propensity, n)
    return SwapModel.of_counts(log.pair_query, log.query_pages, shown, clicks, given)


def _given(log, source, n):
    """Examination relative to the first position: means of propensities over impressions."""
    given, _ = row_propensities(source, log.X, log.y, log.sample_weight, log.roles, default=None)
    place = log.slot_position[log.slot].astype(int) - 1
    given = np.asarray(given, dtype=float)[log.row] * log.weight
    known = (np.bincount(place, given) / np.bincount(place, log.weight))[:n]
    if not (known > 0).all():
        raise ValueError("A propensity is 0 or missing; expected numbers above 0.")
    return known / known[0]
