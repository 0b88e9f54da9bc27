"""The distinct candidates of a query among rows that may repeat them, as the pages of a log do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from .._log._hashing import equal_rows, sums_of_rows
from .._log._reader import first_rows
from .._log._roles import read_role
from .._log._segments import encode


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
        """Mean of the rows of each candidate; exact where they are equal."""
        if isinstance(self.place, slice):
            return values
        first = values[self.first]
        apart = np.bincount(self.place, values - first[self.place])
        return first + apart / np.bincount(self.place)


#: Queries enter the sums of rows with this factor.
_ODD = np.uint64(0x9E3779B97F4A7C15)
