"""The convex hull of points that may span any dimension."""

from __future__ import annotations

import numpy as np
from scipy.spatial import ConvexHull

from .._base._typing import Floats
from .._log._segments import TINY

#: Largest number of cells (points times facets) in memory at a time.
_MAX_CELLS = 1 << 22


class Hull:
    """The convex hull of points."""

    def __init__(self, points: Floats) -> None:
        self.center = points.mean(axis=0)
        _, size, axes = np.linalg.svd(points - self.center, full_matrices=False)
        self._axes = axes[size > 1e-6 * max(size[0], TINY)]
        flat = (points - self.center) @ self._axes.T
        if flat.shape[1] == 0:
            self._normals, self._bounds = np.empty((0, 0)), np.empty(0)
        elif flat.shape[1] == 1:  # Qhull begins at two dimensions
            self._normals = np.array([[1.0], [-1.0]])
            self._bounds = np.array([flat.max(), -flat.min()])
        else:
            facets = ConvexHull(flat, qhull_options="QJ Pp").equations
            self._normals, self._bounds = facets[:, :-1], -facets[:, -1]

    def pull_in(self, points: Floats) -> Floats:
        """The points; those outside move to the surface, straight toward the center of the hull.

        The center is the mean of the points that define the hull.
        """
        flat = (points - self.center) @ self._axes.T
        excess = np.ones(len(flat))
        chunk = max(1, _MAX_CELLS // max(len(self._bounds), 1))
        for start in range(0, len(flat), chunk):
            rows = slice(start, start + chunk)
            reach = flat[rows] @ self._normals.T / self._bounds
            excess[rows] = np.maximum(reach.max(axis=1, initial=0.0), 1.0)
        return self.center + (flat / excess[:, None]) @ self._axes
