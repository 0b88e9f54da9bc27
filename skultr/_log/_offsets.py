"""Offsets of features, taken off in float64 before the features are rounded to float32.

float32 has 24 bits: of a time stamp of 1.7e9 seconds it keeps 128 seconds, and the logarithm that
networks take of their input keeps less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from .._base._typing import Floats, Ints
from ..exceptions import ClickDataWarning, warn_user
from ._roles import feature_columns, is_frame

#: A column has an offset if its values are this many times larger than their range.
_RATIO = 100.0
#: Offsets are rounded to this part of the range, so that subtracting them loses no digits.
_STEPS = 1024


class FeatureOffsets(NamedTuple):
    """What is taken off some columns."""

    columns: Ints  # (n_columns,)
    values: Floats  # (n_columns,)


#: For features without offsets.
NO_OFFSETS = FeatureOffsets(np.empty(0, dtype=int), np.empty(0))


def find_offsets(
    X: Any, features: NDArray[np.float32], names: Sequence[Any] | None = None
) -> FeatureOffsets:
    """Offsets of the features whose values are much larger than their range.

    Columns without an offset keep their values to the bit. An offset is about the smallest value
    of its column: where the logarithm of a network resolves most, and many features have their
    mode. It does not depend on how often a row occurs.
    """
    columns, values = [], []
    if not features.size:
        return NO_OFFSETS
    names = _names_of(X, names)
    low, high = features.min(axis=0), features.max(axis=0)
    if np.isnan(low).any():
        low, high = np.fmin.reduce(features), np.fmax.reduce(features)
    for place in np.flatnonzero(is_far(low, high)):
        raw = _column(X, place, names)
        if raw is None:
            continue
        exact = as_exact(raw)
        least, most = np.nanmin(exact), np.nanmax(exact)
        if least == most:
            _warn_if_varying(raw, place)
        elif is_far(least, most):
            unit = 2.0 ** np.floor(np.log2(most - least)) / _STEPS
            columns.append(place)
            values.append(np.rint(least / unit) * unit)
    return FeatureOffsets(np.array(columns, dtype=int), np.array(values, dtype=float))


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
    names = _names_of(X, names)
    for place, value in zip(*offsets, strict=True):
        features[:, place] = as_exact(_column(X, place, names)) - value
    return features


def is_far(low, high):
    """Whether values between these are much larger than their range, by column."""
    low, high = np.float64(low), np.float64(high)
    return (low != 0) & (low * high > 0) & (np.abs(low) > _RATIO * (high - low))


def as_exact(raw: NDArray[Any]) -> Floats:
    """Numbers as float64, NaN where they are missing."""
    if raw.dtype.kind != "O":
        return raw.astype(float)
    return pd.to_numeric(pd.Series(raw)).to_numpy(dtype=float, na_value=np.nan)


def _names_of(X, names):
    if not is_frame(X):
        return None
    return feature_columns(X) if names is None else names


def _column(X, place, names):
    """A feature of X in its own precision, shape (n_rows,); None if it is part of a list.

    ``names`` are those of a frame's features.
    """
    if names is not None:
        frame = nw.from_native(X, eager_only=True)
        if names[place] not in frame.columns:
            return None
        return frame[:, frame.columns.index(names[place])].to_numpy()
    if sparse.issparse(X):
        return X.tocsc()[:, [place]].toarray()[:, 0]
    return np.asarray(X)[:, place]


def _warn_if_varying(raw, place):
    raw = raw[~pd.isna(raw)]
    if (raw != raw[0]).any():
        warn_user(
            f"Feature {place} varies, but its values differ by less than float64 resolves "
            f"(they begin {raw[0]}): it is constant for the ranker. If it is an id, drop it; "
            "otherwise subtract its smallest value first.",
            ClickDataWarning,
        )
