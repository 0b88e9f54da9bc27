"""Where propensities come from: the role, a curve by position, or an estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_random_state

from .._base._sklearn import HasMethods, StrOptions, seeded_clone
from .._base._typing import Floats, RandomState
from .._log._cells import Cells, read_cells
from .._log._dataset_frames import places_of, rows_of
from .._log._documents import FeatureTable
from .._log._reader import read as read_rows
from .._log._roles import as_pandas, column_names, is_frame, read_role

#: Valid values of a parameter ``propensity``, for scikit-learn's check.
PROPENSITY_CONSTRAINT = [
    StrOptions({"column"}),
    "array-like",
    HasMethods(["fit", "predict"]),
    None,
]


_PREDICT_ROLES = ("position", "bias", "user")


class RowsOfLog:
    """Rows that need propensities, as ``fit`` was given them.

    A keyword in ``roles`` wins over a column of X.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any, roles: dict[str, Any]) -> None:
        self.X, self.y, self.sample_weight, self.roles = X, y, sample_weight, roles

    def place(self) -> None:
        """Take the order of the rows of a query as their positions, if these are missing."""
        X, roles = self.X, self.roles
        if read_role(X, "position", roles["position"]) is None:
            rows = read_rows(X, roles=roles, reads=("qid", "session", "position", "bias"))
            # The reader has warned about this order; with positions it does not warn again.
            position = np.where(rows.position > 0, rows.position, np.nan)
            own = {"qid": rows.query_ids[rows.query], "position": position}
            self.roles = {**roles, **own}

    @property
    def cells(self) -> Cells:
        """Clicks and impressions by document and bias factor."""
        return read_cells(self.X, self.y, self.sample_weight, self.roles)[0]

    @property
    def column(self) -> Floats | None:
        """The role ``propensity``."""
        return read_role(self.X, "propensity", self.roles.get("propensity"))

    def by_position(self, curve: Any) -> Floats:
        """The values of a curve by position."""
        position = read_role(self.X, "position", self.roles.get("position"))
        if position is None:
            raise ValueError(
                "propensity is a curve by position, but X has no column 'position' and no "
                "position was passed. Add the role."
            )
        return _at_positions(curve, np.where(position > 0, position, 0))

    def fit(self, estimator: Any) -> None:
        """Fit an estimator of examination to the rows."""
        given = {role: value for role, value in self.roles.items() if value is not None}
        if hasattr(estimator, "columns_read"):  # estimators of skultr.propensity, frozen or not
            estimator.fit(self.X, self.y, self.sample_weight, **given)
            return
        # Any other estimator reads its roles as columns. A Pipeline has no argument
        # sample_weight, so that None must not be passed.
        weight = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        estimator.fit(self._frame(given), self.y, **weight)

    def predict(self, estimator: Any) -> Floats:
        """Propensity of each row by a fitted estimator."""
        given = {role: value for role, value in self.roles.items() if value is not None}
        if hasattr(estimator, "columns_read"):
            of_rows = {role: given[role] for role in _PREDICT_ROLES if role in given}
            return np.asarray(estimator.predict(self.X, **of_rows), dtype=float)
        return np.asarray(estimator.predict(self._frame(given)), dtype=float)

    def _frame(self, given):
        """The rows as one frame, with keywords as columns, and features of ``documents``."""
        documents, X = given.pop("documents", None), self.X
        if documents is not None:
            X = FeatureTable(documents).joined(X, given.get("qid"), given.get("doc"))
        if not is_frame(X):
            X = pd.DataFrame(X.toarray() if sparse.issparse(X) else X)
            X.columns = [f"x{place}" for place in range(X.shape[1])]
        if not given:
            return X
        given = {role: read_role(X, role, value) for role, value in given.items()}
        return as_pandas(X, column_names(X)).assign(**given)


class RowsOfDataset:
    """The same of a log on disk, whose rows were shown."""

    def __init__(self, dataset: Any, log: Any) -> None:
        self.dataset, self.log = dataset, log

    def place(self) -> None:
        """A dataset has positions."""

    @property
    def cells(self) -> Cells:
        """Clicks and impressions by document and bias factor."""
        return self.log.cells

    @property
    def column(self) -> Floats | None:
        """The role ``propensity``."""
        return self.log.propensity

    def by_position(self, curve: Any) -> Floats:
        """The values of a curve by position."""
        return _at_positions(curve, self.log.position)

    def fit(self, estimator: Any) -> None:
        """Fit an estimator of examination to the rows."""
        read = sorted({*columns_of_source(estimator)} & {*self.dataset.feature_names})
        if read:
            raise ValueError(
                f"The propensity estimator reads the columns {read}, which are features of the "
                "ranker in a ClickDataset. Fit the estimator first, and make the dataset from a "
                "log with its predictions as the column 'propensity' and without these columns."
            )
        if hasattr(estimator, "columns_read"):
            estimator.fit(self.dataset)
        else:
            estimator.fit(*self.dataset.to_frame())

    def predict(self, estimator: Any) -> Floats:
        """Propensity of each row by a fitted estimator."""
        log, dataset = self.log, self.dataset
        is_own = hasattr(estimator, "columns_read")
        if is_own and not estimator._predicts_from_features:
            places, number = places_of(log, dataset.roles)
            found = np.asarray(estimator.predict(places), dtype=float)[number]
        else:
            X, _ = rows_of(log, dataset.roles, dataset.feature_names)
            found = np.asarray(estimator.predict(X), dtype=float)
            if not is_own:
                found = read_rows(X, roles={"propensity": found})["propensity"]
        return found


def propensities(
    source: Any,
    rows: RowsOfLog | RowsOfDataset,
    *,
    default: Callable[[], Any] | None = None,
    random_state: RandomState = None,
) -> tuple[Floats, Any]:
    """Examination probability of each row, from the parameter ``propensity`` of an estimator."""
    column = rows.column
    if takes_column(source, column is not None):
        return column, None
    if source is None and default is not None:
        source = default()
    if not hasattr(source, "fit"):
        return rows.by_position(source), None
    refuse_wrong_source(source)
    estimator = seeded_clone(source, check_random_state(random_state).randint(2**31 - 1))
    rows.fit(estimator)
    return rows.predict(estimator), estimator


def has_users(propensity: Any) -> bool:
    """Whether a propensity estimator holds one curve for each user."""
    # The column of users may have any name.
    return getattr(propensity, "user", None) is not None or getattr(
        propensity, "_reads_users", False
    )


def columns_of_source(source):
    """Names of columns without a role that the source reads: a ranker's features exclude them."""
    return set() if isinstance(source, type) else getattr(source, "columns_read", set)()


def columns_of_cells(source, names):
    """Columns that the source reads of a log in an engine with these columns."""
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


def _at_positions(curve, position):
    """Values of a curve at positions, 1 at position 0: not shown."""
    curve = check_curve(curve, int(position.max(initial=0)))
    return np.append(1.0, curve)[position.astype(np.intp)]


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
