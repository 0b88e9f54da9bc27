"""Convex hulls of points that span any number of dimensions."""

import numpy as np
import pytest
from scipy.optimize import linprog

from skultr.rankers._vectorization import Hull


def is_inside(points, vector):
    """Whether weights of at least 0 that sum to 1 mix the points to the vector."""
    equations = np.vstack([points.T, np.ones(len(points))])
    found = linprog(np.zeros(len(points)), A_eq=equations, b_eq=[*vector, 1.0])
    return found.status == 0


@pytest.mark.parametrize("n_dimensions", [1, 2, 3, 5])
def test_points_end_inside_and_those_inside_stay(n_dimensions):
    rng = np.random.default_rng(n_dimensions)
    points = rng.normal(size=(12, n_dimensions))
    outside = rng.normal(scale=10, size=(20, n_dimensions))
    pulled = Hull(points).pull_in(outside)
    center = points.mean(axis=0)
    for before, after in zip(outside, pulled, strict=True):
        assert is_inside(points, center + (after - center) * (1 - 1e-6))
        # On the way to the center, and no further than it had to.
        share = np.dot(after - center, before - center) / np.sum((before - center) ** 2)
        np.testing.assert_allclose(after - center, share * (before - center), atol=1e-9)
        if share < 1 - 1e-9:
            assert not is_inside(points, center + (after - center) * (1 + 1e-6))
    inside = rng.dirichlet(np.ones(12), size=20) @ points
    np.testing.assert_allclose(Hull(points).pull_in(inside), inside)


@pytest.mark.parametrize(
    "points",
    [
        np.ones((1, 3)),
        np.ones((4, 3)),
        np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]),
        np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]),
    ],
    ids=["one", "equal", "line", "plane"],
)
def test_points_of_fewer_dimensions(points):
    """A hull without volume: what lies beside it ends on it."""
    pulled = Hull(points).pull_in(np.array([[5.0, -7.0, 9.0], points.mean(axis=0)]))
    for vector in pulled:
        center = points.mean(axis=0)
        nearly = center + (vector - center) * (1 - 1e-6)
        # Within rounding of the space that the points span.
        residual = np.linalg.lstsq(
            np.vstack([points.T, np.ones(len(points))]), [*nearly, 1.0], rcond=None
        )[0]
        np.testing.assert_allclose(points.T @ residual, nearly, atol=1e-9)
    np.testing.assert_allclose(pulled[1], points.mean(axis=0), atol=1e-12)
