"""scikit-learn's private names, imported here only, and seeded clones."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_params,
)
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

from ._typing import RandomState

__all__ = [
    "BaseComposition",
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "check_sample_weight",
    "safe_indexing",
    "seeded_clone",
    "validate_params",
]


def seeded_clone(estimator: Any, random_state: RandomState) -> Any:
    """A clone, seeded (and the steps of a Pipeline) where it can be and is not."""
    estimator = clone(estimator)
    seeds = {
        name: random_state
        for name, value in estimator.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    estimator.set_params(**seeds)  # that of FrozenEstimator returns nothing
    return estimator
