"""The distinct candidates among rows, and scores that are standardised over those of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from .._log._reader import first_rows
from .._log._roles import read_role
from .._log._segments import encode, equal_rows, largest_by_code, pair_codes, sums_of_rows

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Relative spread within a query up to which scores count as constant: rounding errors of scores
#: that were computed in float32, such as those of rankers.
_ROUNDING_OF_SINGLE = 1e-6
#: The same of scores that were computed in float64.
ROUNDING_OF_DOUBLE = 1e-12


class DistinctCandidates(NamedTuple):
    """Candidates, each once, in the order in which they first occur."""

    first: Ints | slice  # (n_candidates,)
    place: Ints | slice  # (n_rows,)

    @classmethod
    def of_rows(
        cls,
        X: Any,
        features: NDArray[np.float32],
        query: Ints,
        production: NDArray[Any] | None = None,
    ) -> DistinctCandidates:
        """The candidates among rows: equal features, and equal ids where X has ``doc``.

        Without ids, ``production`` tells apart candidates with equal features.
        """
        # Lists of candidates rarely hold a row twice, and this is quicker to see than to resolve.
        # Queries enter the sums of rows with this factor: odd, so that no two queries add the
        # same, and with the bits of the golden ratio, which spread them over all numbers
        # (Fibonacci hashing).
        sums = sums_of_rows(features) + query.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        if len(np.unique(sums)) == len(query):
            return cls(slice(None), slice(None))
        keys = [equal_rows(features)[0]]
        ids = read_role(X, "doc")
        if ids is None:
            ids = production
        if ids is not None:
            keys.append(encode(ids)[0])
        place = query
        for key in keys:
            # Numbered anew each time, so that products of codes stay small.
            codes = place * (int(key.max()) + 1) + key
            place, _ = pd.factorize(codes)
        return cls(first_rows(place, int(place.max()) + 1), place)

    def mean(self, values: Floats) -> Floats:
        """Mean of the rows of each candidate, for each row; exact where they are equal."""
        if isinstance(self.place, slice):
            return values
        first = values[self.first]
        # By differences from the first row: those of equal values are 0.
        total_difference = np.bincount(self.place, values - first[self.place])
        mean = first + total_difference / np.bincount(self.place)
        return mean[self.place]


def candidates_of(log: ClickLog) -> tuple[Ints, Ints]:
    """Codes of the pairs of query and version in a log, sorted, and the place of each row."""
    key = pair_codes(log.query, log.version, log.n_versions)
    return np.unique(key, return_inverse=True)


def standardized(
    scores: NDArray[np.float64], query: Ints, rounding: float = _ROUNDING_OF_SINGLE
) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1 in each query; 0 where they are constant."""
    deviation, spread, _ = _within_queries(scores, query, rounding)
    return deviation / spread[query]


def typical_spread(
    scores: NDArray[np.float64], query: Ints, rounding: float = _ROUNDING_OF_SINGLE
) -> float:
    """Standard deviation of scores within a query, the median over queries where they vary.

    Infinite if they never do.
    """
    _, spread, largest = _within_queries(scores, query, rounding)
    varies = np.isfinite(spread)
    if not varies.any():
        return np.inf
    return float(np.median(spread[varies] * largest[varies]))


def _within_queries(scores, query, rounding):
    """Deviations from the mean of the query, their standard deviation by query (infinite where
    scores are constant), both over the largest score of the query; and this."""
    n_rows = np.maximum(np.bincount(query), 1)
    largest = largest_by_code(query, np.abs(scores), len(n_rows))
    # Relative to the largest, so that no square overflows.
    unit = np.where(largest > 0, largest, 1.0)
    scores = scores / unit[query]
    mean = np.bincount(query, scores) / n_rows
    deviation = scores - mean[query]
    spread = np.sqrt(np.bincount(query, deviation**2) / n_rows)
    # A division by infinity makes constant scores 0.
    return deviation, np.where(spread > rounding, spread, np.inf), largest
