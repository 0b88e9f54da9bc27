"""The experiments of a plan, served in a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._typing import Floats
from ..simulation import DeterministicPolicy, Policy
from ._swap_design import SHUFFLE, Layout

__all__ = ["RankingsPolicy", "SwapsPolicy"]


@dataclass(frozen=True, eq=False)
class SwapsPolicy(Policy):
    """Serves layouts with the ``shares[query, layout]``; column ``arm`` as of ``SwapPolicy``."""

    shares: Floats
    layouts: list[Layout]
    depth: int
    production: Policy

    def rank(self, scores, offsets, query, n_positions, rng):
        return self.rank_with_arms(scores, offsets, query, n_positions, rng)[0]

    def rank_with_arms(self, scores, offsets, query, n_positions, rng):
        rows = self.production.rank(scores, offsets, query, n_positions, rng).copy()
        arm, drawn = np.full(rows.shape, np.nan, dtype=np.float32), _draw(self.shares, query, rng)
        for number, pairs in enumerate(self.layouts):
            chosen = np.flatnonzero(drawn == number)
            if pairs == SHUFFLE:
                page = rows[chosen, : self.depth]
                order = np.where(page >= 0, rng.random(page.shape), np.inf).argsort(axis=1)
                rows[chosen, : self.depth] = np.take_along_axis(page, order, axis=1)
                arm[chosen, : self.depth] = np.where(page >= 0, 0, np.nan)
            for i, j in (pair for pair in pairs if pair[1] < n_positions):
                of = chosen[rows[chosen, j] >= 0]
                arm[of, i] = arm[of, j] = i * self.depth + j
                of = of[rng.random(len(of)) < 0.5]
                rows[of, i], rows[of, j] = rows[of, j], rows[of, i]
        return rows, arm


@dataclass(frozen=True, eq=False)
class RankingsPolicy(Policy):
    """Serves the rankings a and b with the ``shares[query]``, else production (first scores)."""

    several_rankers: ClassVar[bool] = True

    shares: Floats

    def rank(self, scores, offsets, query, n_positions, rng):
        every, each = DeterministicPolicy(), np.arange(len(offsets) - 1)
        lists = [every.rank(of, offsets, each, n_positions, rng) for of in scores.T]
        return np.stack(lists)[[1, 2, 0], :][_draw(self.shares, query, rng), query]


def _draw(shares, query, rng):
    """Number of the action of each session; that of all actions where there is none."""
    ends = shares.cumsum(axis=1)
    return (rng.random((len(query), 1)) >= ends[query]).sum(axis=1)
