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


#: Queries enter the sums of rows with this factor.
_ODD = np.uint64(0x9E3779B97F4A7C15)


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
        sums = sums_of_rows(features) + query.astype(np.uint64) * _ODD
        if len(np.unique(sums)) == len(query):
            return cls(slice(None), slice(None))
        more = read_role(X, "doc")
        more = production if more is None else more
        keys = [query, equal_rows(features)[0], *([] if more is None else [encode(more)[0]])]
        place = keys[0]
        for key in keys[1:]:
            place = pd.factorize(place * (int(key.max()) + 1) + key)[0]
        return cls(first_rows(place, int(place.max()) + 1), place)

    def mean(self, values: Floats) -> Floats:
        """Mean of the rows of each candidate, for each row; exact where they are equal."""
        if isinstance(self.place, slice):
            return values
        first = values[self.first]
        apart = np.bincount(self.place, values - first[self.place])
        return (first + apart / np.bincount(self.place))[self.place]


def candidates_of(log: ClickLog) -> tuple[Ints, Ints]:
    """Codes of the pairs of query and version in a log, sorted, and the place of each row."""
    key = pair_codes(log.query, log.version, log.n_versions)
    return np.unique(key, return_inverse=True)


def standardized(
    scores: NDArray[np.float64], query: Ints, rounding: float = 1e-6
) -> NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1 in each query; 0 where they are constant."""
    apart, spread, _ = _within(scores, query, rounding)
    return apart / spread[query]


def typical_spread(scores: NDArray[np.float64], query: Ints, rounding: float = 1e-6) -> float:
    """Standard deviation of scores within a query, the median over queries where they vary.

    Infinite if they never do.
    """
    _, spread, largest = _within(scores, query, rounding)
    varies = np.isfinite(spread)
    return float(np.median(spread[varies] * largest[varies])) if varies.any() else np.inf


def _within(scores, query, rounding):
    """Deviations from the mean of the query, their standard deviation by query (infinite where
    scores are constant), both over the largest score of the query; and this."""
    n = np.maximum(np.bincount(query), 1)
    largest = largest_by_code(query, np.abs(scores), len(n))
    # Relative to the largest, so that nothing overflows.
    scores = scores / np.where(largest > 0, largest, 1.0)[query]
    apart = scores - (np.bincount(query, scores) / n)[query]
    spread = np.sqrt(np.bincount(query, apart**2) / n)
    return apart, np.where(spread > rounding, spread, np.inf), largest
