"""Where propensities come from: the role, a curve by position, or an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_random_state

from .._log._dataset_frames import places_of, rows_of
from .._log._feature_table import FeatureTable
from .._log._reader import read as read_rows
from .._log._roles import as_pandas, feature_columns, is_frame, read_role, role_columns
from .._sklearn import HasMethods, StrOptions, seeded_clone
from .._typing import Floats, Table

#: Valid values of a parameter ``propensity``, for scikit-learn's check.
PROPENSITY_CONSTRAINT = [
    StrOptions({"column"}),
    "array-like",
    HasMethods(["fit", "predict"]),
    None,
]


_PREDICT_ROLES = ("position", "bias", "user")


def row_propensities(source, X, y, sample_weight, roles, *, default, random_state=None):
    """Examination probability of each row, from the parameter ``propensity`` of an estimator.

    Parameters
    ----------
    source : "column", array-like of shape (n_positions,), estimator or None
        None takes the role if the log has it, else the ``default``.
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    y : ndarray of shape (n_rows,)
    sample_weight : ndarray of shape (n_rows,) or None
    roles : dict of str to array-like
        Keyword metadata, which wins over columns.
    default : callable
        Returns the estimator (or raises) if there is no other source.
    random_state : int, RandomState instance or None, default=None
        Seeds an estimator whose ``random_state`` is None.

    Returns
    -------
    propensity : ndarray of shape (n_rows,)
        Not checked here; undefined where a row was not shown.
    estimator : estimator or None
        The fitted clone of the source, if it is an estimator.

    Raises
    ------
    ValueError
        If the role is requested but absent, or present although another source is given, or if
        the curve does not cover the positions.
    """
    column = read_role(X, "propensity", roles.get("propensity"))
    if takes_column(source, column is not None):
        return column, None
    source = default() if source is None else source
    if not hasattr(source, "fit"):
        return _from_curve(source, X, roles), None
    estimator = _clone(source, random_state)
    given = {role: value for role, value in roles.items() if value is not None}
    if hasattr(estimator, "columns_read"):  # estimators of skultr.propensity, frozen or not
        estimator.fit(X, y, sample_weight, **given)
    else:
        # Any other estimator reads its roles as columns. A Pipeline has no argument
        # sample_weight, so that None must not be passed.
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        documents = given.pop("documents", None)
        X = X if documents is None else FeatureTable(documents).joined(X)
        estimator.fit(_one_frame(X, given), y, **weight)
    return predicted_propensities(estimator, X, roles), estimator


def predicted_propensities(estimator: Any, X: Table, roles: dict[str, Any]) -> Floats:
    """Propensity of each row by a fitted estimator, shape (n_rows,)."""
    given = {role: value for role, value in roles.items() if value is not None}
    if hasattr(estimator, "columns_read"):
        of_rows = {role: given[role] for role in _PREDICT_ROLES if role in given}
        return np.asarray(estimator.predict(X, **of_rows), dtype=float)
    return np.asarray(estimator.predict(_one_frame(X, given)), dtype=float)


def dataset_propensities(source, dataset, log, *, default, random_state=None):
    """As :func:`row_propensities`, for the rows of a log on disk.

    Parameters
    ----------
    source, default, random_state
        See :func:`row_propensities`.
    dataset : ClickDataset
    log : ClickLog
        Its log.

    Returns
    -------
    propensity : ndarray of shape (n_rows,)
        1 where a row was not shown.
    estimator : estimator or None
    """
    if takes_column(source, log.propensity is not None):
        return log.propensity, None
    source = default() if source is None else source
    if not hasattr(source, "fit"):
        curve = check_curve(source, int(log.position.max(initial=0)))
        # Rows that were not shown have the position -1.
        return np.concatenate([[1.0], curve, [1.0]])[log.position], None
    read = sorted({*columns_of_source(source)} & {*dataset.feature_names})
    if read:
        raise ValueError(
            f"The propensity estimator reads the columns {read}, which are features of the "
            "ranker in a ClickDataset. Fit the estimator first, and make the dataset from a log "
            "with its predictions as the column 'propensity' and without these columns."
        )
    estimator = _clone(source, random_state)
    if hasattr(estimator, "columns_read"):
        estimator.fit(dataset)
    else:
        estimator.fit(*dataset.to_frame())
    return predicted_in_dataset(estimator, dataset, log), estimator


def predicted_in_dataset(estimator: Any, dataset: Any, log: Any) -> Any:
    """As :func:`predicted_propensities`, for the rows of a log on disk."""
    if not hasattr(estimator, "columns_read"):
        X, _ = rows_of(log, dataset.roles, dataset.feature_names)
        propensity = np.asarray(estimator.predict(X), dtype=float)
        checked = read_rows(X, roles={"propensity": propensity})["propensity"]
        return np.where(np.asarray(log.shown), checked, 1.0)
    if estimator._predicts_from_features:
        propensity = estimator.predict(rows_of(log, dataset.roles, dataset.feature_names)[0])
    else:
        places, number = places_of(log, dataset.roles)
        propensity = np.asarray(estimator.predict(places), dtype=float)[number]
    return np.where(log.shown, propensity, 1.0)


def has_users(propensity: Any) -> bool:
    """Whether a propensity estimator holds one curve for each user."""
    own = getattr(propensity, "user", None) is not None  # from a column of any name
    return own or bool(getattr(propensity, "_reads_users", False))


def columns_of_source(source):
    """Names of columns without a role that the source reads: a ranker's features exclude them."""
    if isinstance(source, type) or not hasattr(source, "columns_read"):
        return set()
    return source.columns_read()


def columns_of_cells(source, names):
    """Columns that the source reads of a log in an engine with these columns.

    Raises
    ------
    TypeError
        If the source reads more than clicks and impressions by values of columns.
    """
    if source is None or not hasattr(source, "fit"):
        return []
    reads = getattr(source, "columns_of_cells", lambda names: None)(names)
    if reads is None:
        raise TypeError(
            f"X is a lazy frame, and the propensity {source!r} reads more of a log than counts "
            "by document and bias factor. Reduce X first with skultr.aggregate_clicks(X, "
            "documents), or pass an estimator of skultr.propensity with relevance='embedding'."
        )
    return reads


def takes_column(source, has_column):
    """True if propensities are those of the role; an error if there are two sources or none."""
    if isinstance(source, str) and not has_column:
        raise ValueError(
            "propensity='column', but X has no column 'propensity' and no propensity was passed. "
            "Add the role, or give the propensities by position."
        )
    if has_column and not (source is None or isinstance(source, str)):
        raise ValueError(
            "The log has the role 'propensity' and the parameter propensity is "
            f"{type(source).__name__}: two answers to one question. Drop the column, or set "
            "propensity='column'."
        )
    return has_column


def no_propensities():
    """Raise the error of a log without propensities, given or estimated."""
    raise ValueError(
        "No propensities given: X has no column 'propensity'. Add it, or pass propensity= with "
        "one number per position or an estimator of skultr.propensity."
    )


def refuse_wrong_source(source):
    """Raise if a source with ``fit`` is a class, or an estimator of relevance."""
    if isinstance(source, type):
        raise ValueError(
            f"propensity is the class {source.__name__}; expected an estimator. Call it: "
            f"{source.__name__}()."
        )
    if hasattr(source, "rank"):
        raise ValueError(
            f"propensity is a {type(source).__name__}, which predicts relevance; expected an "
            "estimator that predicts examination, such as those of skultr.propensity "
            "(RegressionEMPropensity, DualLearningPropensity, ...)."
        )


def _clone(source, random_state):
    """A clone of an estimator of examination."""
    refuse_wrong_source(source)
    return seeded_clone(source, check_random_state(random_state).randint(2**31 - 1))


def _from_curve(curve, X, roles):
    position = read_role(X, "position", roles.get("position"))
    if position is None:
        raise ValueError(
            "propensity is a curve by position, but X has no column 'position' and no position "
            "was passed. Add the role."
        )
    shown = position > 0
    curve = check_curve(curve, int(position[shown].max(initial=0)))
    propensity = np.ones(len(position))
    propensity[shown] = curve[position[shown].astype(np.intp) - 1]
    return propensity


def check_curve(curve, deepest):
    """A curve by position as an array; an error if it does not cover the log or is none."""
    curve = np.asarray(curve, dtype=float)
    if curve.ndim != 1 or len(curve) < deepest:
        raise ValueError(
            f"propensity has shape {curve.shape}; expected one examination probability per "
            f"position. The log has positions up to {deepest}: give at least so many."
        )
    bad = np.flatnonzero(~((curve > 0) & (curve <= 1)))
    if len(bad):
        raise ValueError(
            f"propensity must lie in (0, 1] at every position, got {curve[bad[0]]:g} at position "
            f"{bad[0] + 1}."
        )
    return curve


def _one_frame(X, given):
    """X as a frame in which roles given as keywords are columns."""
    given = {role: read_role(X, role, value) for role, value in given.items()}
    if is_frame(X) and not given:
        return X
    if is_frame(X):
        columns = {role: read_role(X, role) for role in role_columns(X)}
        features = as_pandas(X, feature_columns(X))
    else:
        columns, features = {}, pd.DataFrame(X.toarray() if sparse.issparse(X) else X)
        features.columns = [f"x{place}" for place in range(features.shape[1])]
    return pd.concat([pd.DataFrame({**columns, **given}), features], axis=1)
