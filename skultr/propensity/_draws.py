"""How many queries of a log in an engine a curve is estimated from.

The cells of a log may grow with its rows, and those of some queries determine the curve: whole
queries are drawn until the standard errors are small enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .._log._counted import CellCount
from .._log._drawn_ids import can_draw
from ..exceptions import AssumptionWarning, warn_user
from ._thresholds import (
    LARGEST_ERROR,
    LARGEST_RELATIVE_ERROR,
    MOST_DRAWN,
    RARE_FACTOR,
    ROWS_OF_FIRST_DRAW,
)

#: Queries of a further draw, relative to what the errors of the last one ask for: these vary.
_MARGIN = 1.2
#: Times the queries of the last draw, at least: each draw is a pass over the log.
_LEAST_GROWTH = 2.0
#: Times the queries of the last draw, at most: errors of few queries say little.
_MOST_GROWTH = 16.0


def first_share(count: CellCount) -> float:
    """Share of the queries of a log that are drawn first; 1 for all."""
    if not can_draw(count.rows):
        return 1.0
    return _rounded(ROWS_OF_FIRST_DRAW.value / max(count.n_rows, 1))


def next_share(share: float, excess: float) -> float:
    """Share of the queries to draw next, where errors are too large by the factor ``excess``."""
    # Errors fall with the root of the number of queries.
    growth = np.clip(_MARGIN * excess**2, _LEAST_GROWTH, _MOST_GROWTH)
    return _rounded(share * float(growth))


def _rounded(share):
    """The share, or 1 where all queries cost hardly more."""
    return share if share <= MOST_DRAWN.value else 1.0


def excess_of_error(table: pd.DataFrame) -> float:
    """The largest error of examination relative to the largest that is small enough; infinite
    where the examination of a factor with clicks is not known."""
    clicks = table["clicks"].to_numpy()
    table = table[clicks >= RARE_FACTOR.value * clicks.sum()]
    relative = table["standard_error"].to_numpy()
    error = relative * table["examination"].to_numpy()
    excess = np.maximum(relative / LARGEST_RELATIVE_ERROR.value, error / LARGEST_ERROR.value)
    return float(np.nan_to_num(excess, nan=np.inf).max(initial=0.0))


def tell_draw(estimator: Any, share: float, what: str) -> None:
    """Warn that some queries (or documents) were read."""
    table = estimator.examination_
    error = (table["standard_error"] * table["examination"]).max()
    warn_user(
        f"{type(estimator).__name__} read {share:.2%} of the {what} of the log, drawn by a hash "
        "of their ids, and assumes that examination is the same in the others. Standard errors "
        f"of examination are at most {error:.4f}; impressions and clicks in examination_ are "
        f"those of the {what} that were read. To read all, make a ClickDataset of the log.",
        AssumptionWarning,
    )
