"""Members of rankers that hold other rankers: what they must be, their fits, their scores, and the
distinct candidates that they score."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import Bunch

from .._base._progress import progress
from .._base._sklearn import BaseComposition
from .._base._typing import Floats, Ints
from .._log._hashing import equal_rows, sums_of_rows
from .._log._reader import first_rows
from .._log._roles import read_role
from .._log._segments import encode
from ..exceptions import AssumptionWarning, UnstableWeightsWarning, warn_user
from ..propensity._source import columns_of_source
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


class HoldsMembers(BaseComposition):
    """Mixin of rankers whose parameter ``estimators`` lists other rankers by name.

    Subclasses write ``_members()``, the pairs of a name and a ranker. Their ``fit`` sets
    ``estimators_``, and the names of these as ``_names``.
    """

    @property
    def named_estimators_(self) -> Bunch:
        """The fitted members by name."""
        return Bunch(**dict(zip(self._names, self.estimators_, strict=True)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this ranker and, with ``deep``, of its members.

        Parameters
        ----------
        deep : bool, default=True

        Returns
        -------
        params : dict
        """
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a member by ``name__parameter``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self : object
        """
        return self._set_params("estimators", **params)

    @property
    def _learns_from_never_shown(self):
        return self._any_member("_learns_from_never_shown")

    @property
    def _refuses_missing(self):
        """Why missing values are an error, if they are for a member."""
        for name, ranker in self._members():
            if why := getattr(ranker, "_refuses_missing", None):
                return f"of the member {name!r} it is true that {why}"
        return None

    def _validate_params(self):
        super()._validate_params()
        members = self._members()
        names = [
            member[0]
            for member in members
            if isinstance(member, tuple) and len(member) == 2 and isinstance(member[0], str)
        ]
        if not members or len({*names}) < len(members):
            raise ValueError(
                f"estimators is {members!r}; expected at least one (name, ranker) pair, with "
                "names that are different strings, such as [('ips', IPSRanker()), ('heckman', "
                "HeckmanRanker())]."
            )
        self._validate_names(names)
        for name, ranker in members:
            _check_member(name, ranker)

    def _any_member(self, flag):
        return any(getattr(ranker, flag, False) for _, ranker in self._members())


def scores_of(ranker: Any, features: NDArray[Any], query: Ints) -> Floats:
    """Scores of a member, higher is better, for documents of several queries."""
    if isinstance(ranker, BaseRanker):
        return ranker._scores_within(features, query)
    return -ranker.rank(features, qid=query)  # other rankers need not have scores


def _check_member(name: str, ranker: Any) -> None:
    """Refuse what is no ranker, or reads columns that members do not get."""
    if isinstance(ranker, type):
        raise ValueError(
            f"The member {name!r} is the class {ranker.__name__}; expected an instance. Use "
            f"{ranker.__name__}()."
        )
    if not (hasattr(ranker, "fit") and hasattr(ranker, "rank")):
        raise ValueError(
            f"The member {name!r} is {ranker!r}; expected a ranker of skultr.rankers."
        )
    for parameter, value in ranker.get_params().items():
        columns = sorted(name for name in columns_of_source(value) if isinstance(name, str))
        if columns:
            raise ValueError(
                f"{parameter} of the member {name!r} is a {type(value).__name__} that reads the "
                f"columns {columns}, but members get the features as an array without names. Fit "
                "it first, replace these columns of the log by its predictions as the column "
                "'propensity', and give the member propensity='column'."
            )


def fit_members(rankers: Iterable[Any], log: ClickLog, is_told: bool) -> list[Any]:
    """The rankers fitted to the log; what several warn of is said once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not is_told:
            text = "The clicks contradict the propensities"
            warnings.filterwarnings("ignore", text, AssumptionWarning)
        fitted = [_fit_member(ranker, log) for ranker in progress(rankers, "member")]
    said = {}
    for each in caught:
        text = str(each.message)
        said.setdefault((each.category, text.partition(":")[0]), text)
    for (category, _), text in said.items():
        warn_user(text, category)
    return fitted


def _fit_member(ranker, log):
    """The ranker fitted to the log, with its propensities if it takes them."""
    takes = ranker.get_params(deep=False).get("propensity", False) in (None, "column")
    with warnings.catch_warnings():
        # Held-out clicks judge the members.
        warnings.simplefilter("ignore", UnstableWeightsWarning)
        return fit_to_log(ranker, log if takes else log.without_propensity())


def fitted_elsewhere(
    ranker: Any, log: ClickLog, others: Ints, features: NDArray[Any], query: Ints
) -> Floats:
    """Scores by a clone that is fitted to a part of a log, that of ``others`` of its queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to the whole log warns
        return scores_of(_fit_member(clone(ranker), log.part_of(others)), features, query)


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
