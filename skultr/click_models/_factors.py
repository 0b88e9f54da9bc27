"""Bias factors and positions that the training log showed, found again when predicting."""

import numpy as np
import pandas as pd

from ..exceptions import AssumptionWarning, python_value, warn_user
from ._cells import count_cells

__all__ = ["ReadsFactors", "known_codes", "warn_about_unknown"]


class ReadsFactors:
    """Mixin of models with a number a bias factor; positions, unless the log has a ``bias``."""

    def _remember_factors(self, log):
        rows = log.shown_rows
        self._bias_values = log.bias_values
        self._factor_is_position = np.array_equal(
            log.bias_values[log.bias[rows]], log.position[rows]
        )

    def _count_cells(self, log):
        rows = log.shown_rows
        return count_cells(
            log.doc[rows],
            log.bias[rows],
            log.clicks[rows],
            log.weight[rows],
            len(log.features),
            len(log.bias_values),
        )

    def _factor_codes(self, bias, inside):
        """Code of each bias factor; anything where a rectangle has no row."""
        if self._factor_is_position:
            return known_codes(self._bias_values, bias, inside)
        codes = pd.Index(self._bias_values).get_indexer(np.ravel(bias)).reshape(np.shape(bias))
        unknown = (codes < 0) & inside
        if unknown.any():
            raise ValueError(
                f"{int(unknown.sum())} rows have a bias factor that was not in the training log, "
                f"such as {python_value(bias[unknown][0])!r}: nothing is known of it. Map it to "
                "a known factor first, as IdentifiabilityRepair does."
            )
        return codes


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
