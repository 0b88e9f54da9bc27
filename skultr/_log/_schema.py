"""Plans of a frame's columns, kept by schema: which are features, and of which kind.

A request of 100 rows costs less to score than its columns cost to look at one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Plans that are kept; one takes some kilobytes.
_N_PLANS = 128


class FeaturePlan(NamedTuple):
    """What the names and types of a frame's columns determine.

    Parameters
    ----------
    names : list of str
        Names of the features, in the frame's order.
    index : pandas.Index of shape (n_features,)
        The same names.
    places : ndarray of shape (n_features,), int
        Their places among the columns.
    others : list of str
        Names of the columns that are no features.
    is_plain : bool
        Whether all features are numbers of fixed width, so that they make one array.
    is_floating : bool
        Whether all features have one floating-point type.
    """

    names: list[str]
    index: pd.Index
    places: NDArray[np.intp]
    others: list[str]
    is_plain: bool
    is_floating: bool


def feature_plan(X: Any, left_out: Collection[Any]) -> FeaturePlan | None:
    """The plan of a pandas or Polars frame whose columns have distinct strings as names.

    Parameters
    ----------
    X : frame
    left_out : collection of str
        Names of columns that are no features.

    Returns
    -------
    plan : FeaturePlan or None
        None for other frames.
    """
    if isinstance(X, pd.DataFrame):
        names = X.columns.tolist()
        # Not other types: the hash of a categorical one is computed from all of its categories.
        types = [each if isinstance(each, np.dtype) else None for each in X.dtypes.to_numpy()]
    elif nw.dependencies.is_polars_dataframe(X):
        names = X.columns
        types = [_type_of_polars(each) for each in X.dtypes]
    else:
        return None
    return _plan(tuple(names), tuple(types), frozenset(left_out))


def only_features(X: Any, plan: FeaturePlan) -> Any:
    """The features as a frame of the same kind; the same object if X has no other columns."""
    if not plan.others:
        return X
    return X.iloc[:, plan.places] if isinstance(X, pd.DataFrame) else X.drop(plan.others)


def knows_names(estimator: Any, names: list[Any]) -> bool:
    """True if these are the features of ``fit``, in their order."""
    fitted = getattr(estimator, "feature_names_in_", None)
    return fitted is not None and fitted.tolist() == names


def is_checked(estimator: Any, features: Any) -> bool:
    """True if ``validate_data`` would return this array as it is, without a warning.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    features : object
    """
    return (
        type(features) is np.ndarray
        and features.dtype == np.float32
        and features.ndim == 2
        and features.flags.c_contiguous
        and features.shape[1] == estimator.n_features_in_
        and features.size > 0
        and not hasattr(estimator, "feature_names_in_")
        and bool(np.isfinite(features).all())
    )


def _type_of_polars(dtype):
    """The type of numbers of a column that makes an array of them, else None."""
    return str(dtype) if dtype.is_float() or dtype.is_integer() else None


@lru_cache(maxsize=_N_PLANS)
def _plan(columns, types, left_out):
    if len(set(columns)) < len(columns) or not all(type(name) is str for name in columns):
        return None
    places = [i for i, name in enumerate(columns) if name not in left_out]
    names = [columns[i] for i in places]
    found = {str(types[i]) for i in places if _is_plain(types[i])}
    is_plain = all(_is_plain(types[i]) for i in places)
    return FeaturePlan(
        names,
        pd.Index(names),
        np.array(places, dtype=np.intp),
        [name for name in columns if name in left_out],
        is_plain,
        is_plain and len(found) == 1 and found.pop().lower().startswith("float"),
    )


def _is_plain(dtype):
    return isinstance(dtype, str) or (dtype is not None and dtype.kind in "iufb")
