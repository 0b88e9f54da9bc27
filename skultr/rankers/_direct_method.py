"""Relevance by the features, of queries that the model was not fitted to: the direct method, which
the doubly robust correction corrects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_random_state

from .._base._progress import working
from .._base._typing import Floats, RandomState
from .._log._segments import TINY
from ._weights import parts_of_queries

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

#: Parts of the queries: the model of one is fitted to the others. With two, all models together
#: cost one training on the log.
N_PARTS = 2


def with_examinations(log: ClickLog) -> ClickLog:
    """The log whose weights are expected examinations, so that labels are clicks per examination.

    A regression on these labels is one of relevance, and a click where few look does not have the
    weight of many.
    """
    return replace(log, weight=log.weight * log.propensity)


def cross_fitted_relevance(
    log: ClickLog,
    fit: Callable[[ClickLog], Floats],
    random_state: RandomState,
) -> Floats:
    """Modelled relevance of each row, shape (n_rows,), by what was fitted without its query.

    ``fit`` is given the log of some queries, with propensities, and returns the relevance of each
    version, (n_versions,). A model that has seen the clicks of a row would repeat their noise, and
    its labels would not be corrected. Where too few queries have clicks, one number stands for
    all documents: their clicks per examination.
    """
    part = parts_of_queries(log, N_PARTS, check_random_state(random_state))
    if part is None:
        mean = log.clicks.sum() / max(log.weight @ log.propensity, TINY)
        return np.full(log.n_rows, min(mean, 1.0))
    found = np.empty(log.n_rows)
    for number in range(N_PARTS):
        is_held_out = part == number
        with working("direct method"):
            relevance = fit(log.select_queries(~is_held_out))
        rows = is_held_out[log.query]
        found[rows] = relevance[log.version[rows]]
    # A regression may be beyond what a probability can be.
    return np.clip(found, 0.0, 1.0)
