"""Bias factors and positions that the training log showed, found again when predicting."""

from dataclasses import dataclass

import numpy as np

from .._log._cells import Cells
from .._log._factors import known_factor_codes
from ..exceptions import AssumptionWarning, python_value, warn_user

__all__ = ["KnownFactors", "count_cells", "known_codes", "warn_about_unknown"]


@dataclass(frozen=True, eq=False)
class KnownFactors:
    """The bias factors that a training log showed.

    Parameters
    ----------
    values : ndarray of shape (n_factors,)
    are_positions : bool
        Whether they are the positions of the log, as they are without a column ``bias``.
    """

    values: np.ndarray
    are_positions: bool

    @classmethod
    def of_log(cls, log):
        """Those of a log."""
        rows = log.shown_rows
        shown = log.bias_values[log.bias[rows]]
        return cls(log.bias_values, np.array_equal(shown, log.position[rows]))

    def codes(self, bias, inside):
        """Code of each bias factor; anything where a rectangle has no row."""
        if self.are_positions:
            return known_codes(self.values, bias, inside)
        codes = np.zeros(np.shape(bias), dtype=np.intp)
        codes[inside] = known_factor_codes(self.values, bias[inside])
        return codes


def count_cells(log):
    """Clicks and impressions of a log by document and bias factor."""
    rows = log.shown_rows
    return Cells.from_rows(
        log.doc[rows],
        log.bias[rows],
        log.clicks[rows],
        log.weight[rows],
        len(log.features),
        len(log.bias_values),
    )


def known_codes(known, values, inside=True):
    """Code of each position, that of the nearest known one above where it is not known.

    Parameters
    ----------
    known : ndarray of shape (n_known,)
        Positions of the training log, sorted.
    values : ndarray
        Positions.
    inside : ndarray of bool, default=True
        Where a row stands; what fills up rectangles is not warned about.

    Returns
    -------
    codes : ndarray of the shape of ``values``, intp
        0 above the first known position.
    """
    codes = np.maximum(np.searchsorted(known, values, side="right") - 1, 0)
    warn_about_unknown((known[codes] != values) & inside, values)
    return codes


def warn_about_unknown(unknown, position):
    """Warn that some positions are not those of the training log, if any."""
    if unknown.any():
        warn_user(
            f"{int(unknown.sum())} rows stand at a position that the training log did not show, "
            f"such as {python_value(position[unknown][0])!r}: they are taken to be browsed like "
            "the nearest known position above. Train on lists as long as those to predict.",
            AssumptionWarning,
        )
