"""Examination that is known, not estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from .._base._sklearn import Interval
from .._log._cells import read_cells
from .._log._counted import count_cells_of
from .._log._roles import read_role
from .._log._segments import encode
from .._models._browsing import power_law_at
from ..exceptions import python_value
from ._propensity import LEAST, BasePropensity


@dataclass(eq=False, repr=False)
class PowerLawPropensity(BasePropensity):
    r"""Examination that falls as a power of the position, :math:`o(k) = (1 / k)^\eta`.

    Nothing is estimated: ``fit`` only counts impressions and clicks at each position. Use it for
    a known curve, or as a stated assumption.

    Parameters
    ----------
    eta : float or mapping of user to float, default=1.0
        Exponent, at least 0; with 0 every position is examined. A mapping holds one exponent
        per user (role ``user``).

    Attributes
    ----------
    examination_ : DataFrame
        ``examination``, ``impressions`` and ``clicks`` by position (index ``bias``; with a
        mapping ``user`` and ``bias``).
    n_features_in_ : int

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.propensity import PowerLawPropensity
    >>> X = pd.DataFrame({"qid": [1, 1], "doc": ["a", "b"], "position": [1, 2]})
    >>> PowerLawPropensity(eta=1.0).fit(X, [1, 0]).predict(X)
    array([1. , 0.5])
    """

    eta: float | Mapping[Any, float] = 1.0

    _parameter_constraints = {
        "eta": [Interval(Real, 0, None, closed="left"), Mapping],
    }

    @property
    def _reads_users(self):
        return isinstance(self.eta, Mapping)

    def _fit(self, X, y, sample_weight, roles):
        for user, eta in self.eta.items() if self._reads_users else ():
            if not (isinstance(eta, Real) and 0 <= eta < np.inf):
                raise ValueError(
                    f"eta of the user {user!r} is {eta!r}; expected a number of at least 0."
                )
        users = self._users(X, roles)
        # The curve is one of positions, so that a column ``bias`` and documents are not read.
        roles = {**roles, "bias": self._read_bias(X, roles)}
        one = np.zeros(len(y), dtype=int)
        cells, _ = read_cells(X, y, sample_weight, roles, user=users, arm=one)
        factors = cells.factors
        self.examination_ = pd.DataFrame(
            {
                "examination": self._curve(factors.bias, factors.user),
                "impressions": cells.by_factor(cells.weight),
                "clicks": cells.by_factor(cells.clicks),
            },
            index=factors.index,
        )

    def _predict(self, X, values, shown, roles):
        users = self._users(X, roles)
        users = None if users is None else users[shown]
        return np.maximum(self._curve(values[shown], users), LEAST)

    def _factor_columns(self, names):
        return ["position", "user"] if self._reads_users else ["position"]

    def _count(self, X, click, names):
        return count_cells_of(X, click, self._factor_columns(names), documents=False)

    def _users(self, X, roles):
        if not self._reads_users:
            return None
        return self._read_users(X, roles, "eta is a mapping from users", "eta to one number")

    def _curve(self, position, users):
        if users is None:
            return power_law_at(position, self.eta)
        code, ids = encode(users)
        unknown = [user for user in ids.tolist() if user not in self.eta]
        if unknown:
            raise ValueError(
                f"eta has no value for {len(unknown)} of {len(ids)} users, such as "
                f"{python_value(unknown[0])!r}; expected one value per user. Add the missing ones."
            )
        eta = np.array([self.eta[user] for user in ids.tolist()])
        return power_law_at(position, eta[code])

    def _read_bias(self, X, roles):
        return read_role(X, "position", roles["position"])
