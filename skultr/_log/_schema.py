"""Plans of a frame's columns, kept by schema: which are features, and of which kind.

A request of 100 rows costs less to score than its columns cost to look at one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..exceptions import python_value

#: Plans that are kept; one takes some kilobytes.
_N_PLANS = 128


class FeaturePlan(NamedTuple):
    """What the names and types of a frame's columns determine."""

    names: list[str]
    index: pd.Index  # (n_features,)
    places: NDArray[np.intp]  # (n_features,)
    others: list[str]
    is_plain: bool
    is_floating: bool


def feature_plan(X: Any, left_out: Collection[Any]) -> FeaturePlan | None:
    """The plan of a pandas or Polars frame whose columns have distinct strings as names."""
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
    """True if ``validate_data`` would return this array as it is, without a warning."""
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


#: What the columns of features may hold: numbers (and lists of them); categories, too; or, where
#: features only tell documents apart, anything.
Takes = Literal["numbers", "categories", "anything"]
#: Values of the categories of each column that has them, in the order of their codes.
Categories = dict[str, list[Any]]


def kind_of(column: nw.Series[Any]) -> str:
    """What a column holds: "number", "list", "category", "text" or "other"."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "number"
    if isinstance(dtype, nw.Array | nw.List):
        return "list"
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return "category"
    if dtype == nw.String:
        return "number" if column.null_count() == len(column) else "text"
    if dtype not in (nw.Object, nw.Unknown):
        return "other"
    present = column.drop_nulls()
    if not len(present):
        return "number"  # all are missing
    if isinstance(present[0], list | tuple | np.ndarray):
        return "list"
    return "text" if isinstance(present[0], str) else "number"


def fault_of_column(
    column: nw.Series[Any], kind: str, takes: Takes, known: Categories | None
) -> str | None:
    """What a column holds that is not taken, in some words; None if there is nothing to say."""
    if known is not None and column.name in known and kind != "list":
        return None
    described = f"{column.name!r} ({column.dtype})"
    if kind == "list":
        inner = getattr(column.dtype, "inner", None)
        plain = inner is None or inner.is_numeric()
        return None if plain else f"{described}, lists of other things than numbers"
    if known is not None and kind != "number":
        return f"{described}, in training numbers"
    if kind == "number" or takes == "anything" or (takes == "categories" and kind == "category"):
        return None
    present = column.drop_nulls()
    return (
        f"{described[:-1]}, such as {python_value(present[0])!r})" if len(present) else described
    )


def encode_categories(
    column: nw.Series[Any], known: list[Any] | None
) -> tuple[NDArray[np.float32], list[Any]]:
    """Code of each value among the known ones (or all), NaN if it is none; and these values."""
    if column.implementation.is_pyarrow() and kind_of(column) == "category":
        native = column.to_native()  # its to_numpy takes a missing category for the last one
        column = nw.from_native(native.cast(native.type.value_type), series_only=True)
    values, given = column.to_numpy().astype(object), known
    if known is None:
        present = pd.unique(values[~pd.isna(values)])
        known = sorted(map(python_value, present), key=lambda each: (str(type(each)), each))
    place = {value: number for number, value in enumerate(known)}
    code = np.array([place.get(value, np.nan) for value in values.tolist()], dtype=np.float32)
    if given and np.isnan(code).all():
        present = values[~pd.isna(values)]
        if len(present) and isinstance(present[0], str) != isinstance(given[0], str):
            raise ValueError(
                f"The feature column {column.name!r} ({column.dtype}) holds values such as "
                f"{python_value(present[0])!r}, in training categories such as {given[:2]}. "
                "Convert it."
            )
    return code, known


def list_values(column: nw.Series[Any]) -> NDArray[np.float32]:
    """The numbers of cells that hold lists of one length, shape (n_rows, length)."""
    cells = column.to_numpy()
    if cells.ndim == 1:
        there = np.array([np.ndim(cell) > 0 for cell in cells], dtype=bool)
        lengths = sorted({len(cell) for cell in cells[there]})
        if len(lengths) != 1:
            raise ValueError(
                f"The feature column {column.name!r} holds lists of {len(lengths)} different "
                f"lengths, such as {lengths[:1]} and {lengths[-1:]}; expected one length."
            )
        values = np.full((len(cells), lengths[0]), np.nan, dtype=np.float32)
        values[there] = np.stack(cells[there]).astype(np.float32)
        return values
    return cells.astype(np.float32)


def _type_of_polars(dtype):
    """The type of numbers of a column that makes an array of them, else None."""
    return str(dtype) if dtype.is_float() or dtype.is_integer() else None


@lru_cache(maxsize=_N_PLANS)
def _plan(columns, types, left_out):
    if len(set(columns)) < len(columns) or not all(type(name) is str for name in columns):
        return None
    # With roles go the outcomes, whose names are many.
    left_out = {n for n in columns if n in left_out or (left_out and n.startswith("outcome_"))}
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
