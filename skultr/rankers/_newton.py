"""Newton's method for a maximum, damped, with curvature added where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .._typing import Floats

#: The method stops when a step would gain less than this.
_TOLERANCE = 1e-12
_MAX_ITER = 100
#: Curvature added for directions that are not determined, relative to each parameter's.
_JITTER = 1e-10


class Maximum(NamedTuple):
    """Where Newton's method stopped."""

    at: Floats  # (n_parameters,)
    value: float
    terms: list[Any]
    n_iter: int
    converged: bool


def maximise(
    objective: Callable[[Floats], tuple[float, Floats, Floats, Any]],
    start: Floats,
    *,
    longest_last_step: float = np.inf,
) -> Maximum:
    """Maximise a smooth function by damped Newton steps.

    A concave function is maximised from any start. Elsewhere a step takes as much curvature as
    makes it an ascent.
    """
    at = start
    value, gradient, curvature, terms = objective(at)
    history = [terms]
    for n_iter in range(_MAX_ITER):
        step = _solve(curvature, gradient)
        decrement = gradient @ step
        if decrement < _TOLERANCE:
            return Maximum(at, value, history, n_iter, True)
        length = 1.0 / max(1.0, abs(step[-1]) / longest_last_step)
        new = objective(at + length * step)
        while not new[0] >= value + 1e-4 * length * decrement:
            length /= 2
            if length < 1e-10:  # only rounding errors are left
                return Maximum(at, value, history, n_iter, decrement < 1e-8)
            new = objective(at + length * step)
        at = at + length * step
        value, gradient, curvature, terms = new
        history.append(terms)
    return Maximum(at, value, history, _MAX_ITER, False)


def _solve(curvature, gradient):
    scale = np.sqrt(np.maximum(np.diag(curvature), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    curvature, gradient = curvature / np.outer(scale, scale), gradient / scale
    eye, jitter = np.eye(len(curvature)), _JITTER
    while True:
        try:
            return cho_solve(cho_factor(curvature + jitter * eye), gradient) / scale
        except LinAlgError:
            jitter *= 100
