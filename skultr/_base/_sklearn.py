"""scikit-learn's private names, imported here only, and seeded clones."""
# ruff: noqa: F401 (names for the rest of the package)

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

from ._typing import RandomState

Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:

    def validate_params(
        constraints: dict[str, Any], *, prefer_skip_nested_validation: bool
    ) -> Callable[[Function], Function]:
        """The decorator as a type checker should see it: signatures stay what they are."""
        ...
else:
    from sklearn.utils._param_validation import validate_params


def seeded_clone(estimator: Any, random_state: RandomState) -> Any:
    """A clone whose parameters ``random_state`` (also those of its parts) are set where None."""
    estimator = clone(estimator)
    seeds = {
        name: random_state
        for name, value in estimator.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    estimator.set_params(**seeds)  # FrozenEstimator.set_params returns None
    return estimator
