"""Curves and tables that a user was given: as arrays, checked, and cut to the positions shown."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from .._typing import Floats


def as_floats(given: object) -> Floats:
    """The numbers as an array; an empty array, which every check refuses, if they are none."""
    try:
        return np.array(given, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def are_probabilities(values: Floats) -> bool:
    """True if there are values and all lie in [0, 1]."""
    return bool(values.size) and bool(((values >= 0) & (values <= 1)).all())


def check_probability(name: str, value: object) -> None:
    """Refuse what is no probability."""
    if isinstance(value, bool) or not (isinstance(value, Real) and 0 <= float(value) <= 1):
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}.")


def check_seed(value: object) -> None:
    """Refuse what is no seed of a frozen user."""
    if not (value is None or isinstance(value, Integral)):
        raise ValueError(f"random_state must be an int or None, got {value!r}.")


def cut(name: str, values: Floats, n_positions: int, instead: str = "one number") -> Floats:
    """The values of the first positions (last axis); an error if fewer are known."""
    known = values.shape[-1]
    if n_positions > known:
        raise ValueError(
            f"{name} is given for {known} positions, but the lists have n_positions="
            f"{n_positions}. Pass a value for each position, or {instead}; or show fewer "
            "positions."
        )
    return values[..., :n_positions]


def curve_at(name: str, given: object, n_positions: int) -> Floats:
    """One value per position, from a curve or from one number for all positions."""
    curve = as_floats(given)
    return cut(name, curve, n_positions) if curve.ndim else np.full(n_positions, curve)
