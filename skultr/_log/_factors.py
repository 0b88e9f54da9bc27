"""Bias factors of a log: codes and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Column, Floats, Ints
from ._faults import count_of
from ._reader import read
from ._roles import read_role

if TYPE_CHECKING:
    from ._clicklog import ClickLog


def factor_codes(
    known: NDArray[Any], X: Any, bias: Column | None, position: Column | None
) -> Ints:
    """Code of the bias factor of each row, -1 where it was not shown."""
    return known_factor_codes(known, bias_values(X, bias, position))


def bias_values(
    X: Any, bias: Column | None = None, position: Column | None = None
) -> NDArray[Any]:
    """Bias factor of each row, NaN where it is not shown; an error if X has no bias factors."""
    roles = {"bias": bias, "position": position}
    if all(read_role(X, role, value) is None for role, value in roles.items()):
        raise ValueError(
            "X has neither a column 'bias' nor 'position', and neither was passed: expected the "
            "bias factor that each row is shown under, as in fit."
        )
    rows = read(X, roles=roles, reads=("position", "bias"))
    values = rows.position if rows["bias"] is None else rows["bias"]
    return np.where(rows.position > 0, values, np.nan)


def known_factor_codes(known: NDArray[Any], values: NDArray[Any]) -> Ints:
    """Code of each value in an index of bias factors, -1 for NaN; an error for unknown values."""
    codes = pd.Index(known).get_indexer(values)
    unknown = (codes < 0) & ~np.isnan(values)
    n_unknown = int(unknown.sum())
    if n_unknown:
        raise ValueError(
            f"{count_of(n_unknown, 'row')} {'has' if n_unknown == 1 else 'have'} a bias factor "
            f"that was not in the training log, such as {values[unknown][0]:g}: its examination "
            "is unknown. Map it to a known factor first, as IdentifiabilityRepair does."
        )
    return codes


def loss_scale(log: ClickLog, mass: NDArray[Any]) -> float:
    """Number of lists with positive ``mass``, divided by the total mass; multiplies a loss.

    ``mass`` has one number per row. With this scale the loss of a mean list is of order one,
    however often pages were served or clicked, so that a learning rate has the same effect on
    every log.
    """
    total = mass.sum(dtype=float)
    n_lists = np.count_nonzero(np.add.reduceat(mass, log.offsets[:-1]))
    return float(n_lists / total) if total > 0 else 1.0


def examination_table(
    log: ClickLog, examination: NDArray[Any], standard_error: NDArray[Any] | None = None
) -> pd.DataFrame:
    """Examination by bias factor, relative to the first known one, with impressions and clicks."""
    count = {
        name: np.bincount(log.bias, values, minlength=len(log.bias_values))
        for name, values in (
            ("examination", examination * log.weight),
            ("impressions", log.weight),
            ("clicks", log.clicks),
        )
    }
    mean = count.pop("examination") / count["impressions"]
    return factor_table(log.bias_values, mean, **count, standard_error=standard_error)


def factor_table(
    values: NDArray[Any],
    examination: Floats,
    impressions: Floats,
    clicks: Floats,
    standard_error: Floats | None = None,
) -> pd.DataFrame:
    """The table of :func:`examination_table` from arrays of shape (n_factors,)."""
    known = examination[np.isfinite(examination)]
    if len(known):
        examination = examination / known[0]
    columns = {"examination": examination, "impressions": impressions, "clicks": clicks}
    table = pd.DataFrame(columns, index=pd.Index(values, name="bias"))
    if standard_error is not None:
        table.insert(1, "standard_error", standard_error)
    return table
