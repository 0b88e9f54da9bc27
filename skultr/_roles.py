"""Roles and features of X: what each column of a frame (or keyword) is, and reading it."""

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

__all__ = [
    "CHUNK",
    "FIT_ROLES",
    "ROLES",
    "feature_columns",
    "is_frame",
    "read_features",
    "read_role",
    "role_columns",
]

ROLES = (
    "qid",
    "session",
    "doc",
    "position",
    "bias",
    "user",
    "propensity",
    "impressions",
    "relevance",
)
#: What a model may read: all roles but the human annotation.
FIT_ROLES = ROLES[:-1]

_NUMERIC_ROLES = ("position", "bias", "propensity", "impressions", "relevance")
#: Rows converted to float32 at a time, so that a frame is never held twice in float64.
CHUNK = 65_536


def is_frame(X):
    """Whether X is a data frame (pandas, Polars, PyArrow, ...); a lazy one is an error."""
    if nw.dependencies.is_into_dataframe(X):
        return True
    native = nw.from_native(X, pass_through=True)
    if isinstance(native, nw.LazyFrame):
        raise TypeError(
            f"X is a lazy frame ({type(X).__module__}.{type(X).__name__}); expected a frame in "
            "memory. Reduce it first with skultr.aggregate_clicks(X), which runs in its engine, "
            "or collect it."
        )
    return False


def role_columns(X):
    """Names of the role columns of a frame, in the frame's order."""
    return [name for name in _columns(X) if name in ROLES]


def feature_columns(X):
    """Names of the columns of a frame without a role, in the frame's order."""
    return [name for name in _columns(X) if name not in ROLES]


def read_role(X, role, value=None):
    """One role as an array: the keyword ``value`` where given, else the column of a frame.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    role : str
        One of :data:`ROLES`.
    value : array-like of shape (n_rows,), default=None
        The keyword metadata, which wins over a column.

    Returns
    -------
    values : ndarray of shape (n_rows,) or None
        None where the role is absent. Numeric roles come as float64, missing as NaN.
    """
    if value is None:
        if not is_frame(X) or role not in _columns(X):
            return None
        value = nw.from_native(X, eager_only=True)[role].to_numpy()
    elif nw.dependencies.is_into_series(value):
        value = nw.from_native(value, series_only=True).to_numpy()
    value = np.asarray(value)
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if value.shape != (n_rows,):
        raise ValueError(
            f"The role {role!r} has shape {value.shape}; expected one value for each row of X, "
            f"that is ({n_rows},)."
        )
    return _numeric_role(role, value) if role in _NUMERIC_ROLES else _id_role(role, value)


def read_features(X):
    """The feature part of X: what scikit-learn's ``validate_data`` should see.

    Parameters
    ----------
    X : frame, array-like or sparse matrix

    Returns
    -------
    features : pandas.DataFrame of float32 (from a frame), else X as it came

    Raises
    ------
    ValueError
        If a frame has no feature column, or one that does not hold numbers.
    """
    if not is_frame(X):
        return X
    frame = nw.from_native(X, eager_only=True)
    names = feature_columns(X)
    if not names:
        raise ValueError(
            f"X has 0 feature columns: its columns {_columns(X)} all have a role. Expected at "
            "least one column to rank by; join the documents' features to the log first."
        )
    # By number, because pandas columns may have names that are no strings.
    frame = frame[:, [i for i, name in enumerate(frame.columns) if name not in ROLES]]
    _check_numeric_columns(frame)
    values = np.empty((X.shape[0], len(names)), dtype=np.float32)
    for start in range(0, len(values), CHUNK):
        rows = slice(start, start + CHUNK)
        # A value beyond float32 becomes infinite here and is named by the check behind.
        with np.errstate(over="ignore"):
            values[rows] = frame[rows, :].to_numpy()
    return pd.DataFrame(values, columns=names, copy=False)


def _columns(X):
    return list(nw.from_native(X, eager_only=True).columns)


def _check_numeric_columns(frame):
    for name, dtype in frame.schema.items():
        if dtype.is_numeric() or dtype in (nw.Boolean, nw.Object, nw.Unknown):
            continue
        raise ValueError(
            f"The feature column {name!r} has type {dtype}; expected numbers. A column is a "
            f"feature unless its name is a role ({', '.join(ROLES)}): rename it to its role, "
            "encode it as numbers, or drop it."
        )


def _numeric_role(role, value):
    if value.dtype.kind in "iufb":
        return value.astype(float)
    try:
        # Object columns hold None or pandas.NA where a value is missing.
        return pd.to_numeric(pd.Series(value)).to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The role {role!r} must hold numbers, got {value.dtype} values such as "
            f"{value[0]!r}. Convert the column, or rename it if it is not a {role!r}."
        ) from error


def _id_role(role, value):
    missing = pd.isna(value)
    if missing.any():
        raise ValueError(
            f"The role {role!r} is missing in {int(missing.sum())} of {len(value)} rows, first "
            f"in row {int(missing.argmax())}; expected an id in every row. Fill or drop them."
        )
    return value
