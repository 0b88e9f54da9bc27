"""Offsets of features: what is taken off values that are far from 0 beside their range.

float32 has 24 bits: of a time stamp of 1.7e9 seconds it keeps 128 seconds, and the logarithm that
networks take of their input keeps less. Offsets are taken off in float64 before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from .._base._typing import Floats, Ints
from ..exceptions import ClickDataWarning, warn_user
from ._roles import as_numbers, feature_columns, is_frame, wrapped


class FeatureOffsets(NamedTuple):
    """What is taken off some columns."""

    columns: Ints  # (n_columns,)
    values: Floats  # (n_columns,)
    #: Numbers of different values in the training log, and of those that float32 tells apart.
    distinct: Ints  # (n_columns, 2)


#: For features without offsets.
NO_OFFSETS = FeatureOffsets(np.empty(0, dtype=int), np.empty(0), np.empty((0, 2), dtype=int))


def find_offsets(
    X: Any, features: NDArray[np.float32], names: Sequence[Any] | None = None
) -> FeatureOffsets:
    """Offsets of the features whose values are much larger than their range.

    Columns without an offset keep their values to the bit. An offset is about the smallest value
    of its column: where the logarithm of a network resolves most, and many features have their
    mode. It does not depend on how often a row occurs.
    """
    if not features.size:
        return NO_OFFSETS
    columns = []
    values = []
    distinct = []
    # First in single precision, for all columns at once; then the few that may have an offset.
    may_be_far = is_far(np.fmin.reduce(features), np.fmax.reduce(features))
    for place in np.flatnonzero(may_be_far):
        raw = _feature(X, place, names)
        if raw is None:
            continue
        exact = as_numbers(raw)
        least = np.nanmin(exact)
        most = np.nanmax(exact)
        if least == most:
            _warn_if_varying(raw, place)
        elif is_far(least, most):
            # In steps of a 1024th of the range, so that subtracting it loses no digits.
            unit = 2.0 ** np.floor(np.log2(most - least)) / 1024
            columns.append(place)
            values.append(np.rint(least / unit) * unit)
            different = np.unique(exact[~np.isnan(exact)])
            different_in_single = np.unique(different.astype(np.float32))
            distinct.append((len(different), len(different_in_single)))
    if not columns:
        return NO_OFFSETS
    return FeatureOffsets(
        np.array(columns, dtype=int), np.array(values, dtype=float), np.array(distinct, dtype=int)
    )


def take_off(
    offsets: FeatureOffsets,
    X: Any,
    features: NDArray[np.float32],
    names: Sequence[Any] | None = None,
) -> NDArray[np.float32]:
    """The features without their offsets; the same array if there are none."""
    if not len(offsets.columns):
        return features
    features = features.copy()
    for place, value in zip(offsets.columns, offsets.values, strict=True):
        features[:, place] = as_numbers(_feature(X, place, names)) - value
    return features


def is_far(low, high):
    """Whether values between these are much larger than their range, by column."""
    low = np.float64(low)
    high = np.float64(high)
    # A range with 0 in it is never small beside its values.
    is_one_sign = (low != 0) & (low * high > 0)
    # float32 keeps 24 bits of a value, and thereby 17 of a range that is a hundredth of it.
    return is_one_sign & (np.abs(low) > 100 * (high - low))


def _feature(X, place, names):
    """A feature of X in its own precision, shape (n_rows,); None if it is part of a list."""
    if is_frame(X):
        frame = wrapped(X, eager_only=True)
        name = (feature_columns(X) if names is None else names)[place]
        if name not in frame.columns:
            return None
        return frame[:, frame.columns.index(name)].to_numpy()
    if sparse.issparse(X):
        return X.tocsc()[:, [place]].toarray()[:, 0]
    return np.asarray(X)[:, place]


def _warn_if_varying(raw, place):
    """Warn of whole numbers, say, that differ and are equal as floats."""
    raw = raw[~pd.isna(raw)]
    if (raw != raw[0]).any():
        warn_user(
            f"Feature {place} varies, but its values differ by less than float64 resolves "
            f"(they begin {raw[0]}): it is constant for the ranker. If it is an id, drop it; "
            "otherwise subtract its smallest value first.",
            ClickDataWarning,
        )
