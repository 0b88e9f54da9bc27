"""Bias factors and positions of the training log, looked up when predicting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._log._deferred import lookup
from .._log._factors import known_factor_codes
from .._log._faults import count_of
from ..exceptions import AssumptionWarning, python_value, warn_user


@dataclass(frozen=True, eq=False)
class KnownFactors:
    """The bias factors of a training log."""

    values: np.ndarray  # (n_factors,)
    are_positions: bool

    @classmethod
    def of_log(cls, log):
        """The bias factors of the shown rows of a log."""
        rows = log.shown_rows
        same = lookup(log.bias_values, log.bias[rows]) == log.position[rows]
        return cls(log.bias_values, bool(same.all()))

    def codes(self, bias, inside):
        """Code of each bias factor, of the shape of ``bias``; undefined outside the lists."""
        if self.are_positions:
            return known_codes(self.values, bias, inside)
        codes = np.zeros(np.shape(bias), dtype=np.intp)
        codes[inside] = known_factor_codes(self.values, bias[inside])
        return codes


def known_codes(known, values, inside=True):
    """Code of each position; unknown ones get that of the nearest known one above, or 0."""
    codes = np.maximum(np.searchsorted(known, values, side="right") - 1, 0)
    warn_about_unknown((known[codes] != values) & inside, values)
    return codes


def warn_about_unknown(unknown, position):
    """Warn that some positions are not those of the training log, if any."""
    if unknown.any():
        warn_user(
            f"Found {count_of(int(unknown.sum()), 'row')} at a position that is not in the "
            f"training log, such as {python_value(position[unknown][0])!r}: users are assumed to "
            "browse there as at the nearest known position above. Train on lists as long as those "
            "to predict.",
            AssumptionWarning,
        )
