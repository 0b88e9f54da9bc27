"""Rankers made of other rankers: what their members must be, the fits and scores of these."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray
from sklearn.utils import Bunch

from .._base._progress import progress
from .._base._sklearn import BaseComposition
from .._base._typing import Floats, Ints
from ..exceptions import UnstableWeightsWarning, warn_user
from ..propensity._source import columns_of_source
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._roles import Takes


class HoldsMembers(BaseComposition):
    """Mixin of rankers whose parameter ``estimators`` lists other rankers by name.

    Subclasses write ``_members()``, the pairs of a name and a ranker. Their ``fit`` sets
    ``estimators_``, and the names of these as ``_names``.
    """

    @property
    def _has_default_members(self):
        """True if ``estimators`` lists no members."""
        return self.estimators is None

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
            Where ``estimators`` is None, those of the default members are among them.
        """
        params = self._get_params("estimators", deep=deep)
        if deep and self._has_default_members:
            # As scikit-learn lists them for an ensemble that was given the default members.
            given = type(self)(estimators=self._members())
            params = {**given.get_params(), **params}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a member by ``name__parameter``.

        Parameters
        ----------
        **params : dict
            A name of a default member makes ``estimators`` the list of these.

        Returns
        -------
        self : object
        """
        if self._has_default_members:
            members = self._members()
            names = {name for name, _ in members}
            if any(parameter.partition("__")[0] in names for parameter in params):
                self.estimators = members
        return self._set_params("estimators", **params)

    @property
    def _learns_from_never_shown(self):
        return self._any_member("_learns_from_never_shown")

    @property
    def _takes(self) -> Takes:
        """Categories, if all members take them."""
        # A ranker from elsewhere is taken to read numbers.
        members = [ranker for _, ranker in self._members()]
        taken = {getattr(ranker, "_takes", "numbers") for ranker in members}
        return "numbers" if "numbers" in taken else "categories"

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
        names = [member[0] for member in members if _is_named(member)]
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


def fit_members(rankers: Iterable[Any], log: ClickLog, *, is_told: bool) -> list[Any]:
    """The rankers fitted to the log; what several warn of is said once.

    They compare propensities with the clicks where these were told.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = [
            fit_member(ranker, log, checks=is_told)
            for ranker in progress(rankers, "member", alike=False)
        ]
    # Texts of several members differ in their numbers, which follow the first colon.
    said = {}
    for warning in caught:
        text = str(warning.message)
        subject, _, _ = text.partition(":")
        said.setdefault((warning.category, subject), text)
    for (category, _), text in said.items():
        warn_user(text, category)
    return fitted


def fit_member(ranker: Any, log: ClickLog, *, checks: bool = False) -> Any:
    """The ranker fitted to the log, with its propensities if it takes them."""
    source = ranker.get_params(deep=False).get("propensity", False)
    takes_shared = source is None or isinstance(source, str)
    if not takes_shared:
        log = log.without_propensity()
    with warnings.catch_warnings():
        # Held-out clicks judge the members.
        warnings.simplefilter("ignore", UnstableWeightsWarning)
        return fit_to_log(ranker, log, checks=checks)


def scores_of(ranker: Any, features: NDArray[Any], query: Ints) -> Floats:
    """Scores of a ranker, higher is better, for documents of several queries.

    The features were read already.
    """
    if not isinstance(ranker, BaseRanker):
        return -ranker.rank(features, qid=query)  # other rankers need not have scores
    cls = type(ranker)
    by_features = cls.predict is BaseRanker.predict
    if by_features and cls._scores_within is BaseRanker._scores_within:
        return ranker._scores_of_features(features)  # predict would read them again
    return ranker._scores_within(features, query)


def _is_named(member: Any) -> bool:
    """True for a pair of a string and something else."""
    return isinstance(member, tuple) and len(member) == 2 and isinstance(member[0], str)


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
    # Also those of nested rankers and propensities.
    for parameter, value in ranker.get_params().items():
        columns = sorted(name for name in columns_of_source(value) if isinstance(name, str))
        if columns:
            raise ValueError(
                f"{parameter} of the member {name!r} is a {type(value).__name__} that reads the "
                f"columns {columns}, but members get the features as an array without names. Fit "
                "it first, replace these columns of the log by its predictions as the column "
                "'propensity', and give the member propensity='column'."
            )
