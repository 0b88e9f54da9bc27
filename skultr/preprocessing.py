"""Transformers of features that leave the role columns of a click log unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted, validate_data

from ._base._callbacks import CallbackSupportMixin, with_callbacks
from ._base._sklearn import HasPage
from ._base._threads import ALL, few_threads
from ._base._typing import Column, Table
from ._log._estimator import FrameOutput, afresh, output_kind
from ._log._read_log import features_to_transform
from ._log._roles import (
    FIT_ROLES,
    ROLES,
    check_container,
    count_rows,
    feature_plan,
    is_frame,
    is_role,
    knows_names,
    numbers_of,
    only_features,
    open_frame,
    places_of_fit,
    read_column,
    read_role,
    role_columns,
    without_roles,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["OnFeatures"]

#: Transformers to which columns are numbers, whatever their names.
_SCALERS = (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)


class OnFeatures(
    HasPage,
    FrameOutput,
    CallbackSupportMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,
):
    """Apply a transformer to the features and pass the role columns through.

    Role columns (``qid``, ``position``, ``impressions``, ...) are neither scaled nor lost, and
    may be absent at serving time. There ``ColumnTransformer(remainder="passthrough")`` would raise
    an error, because columns of the training log are missing.

    Parameters
    ----------
    transformer : transformer or "passthrough"
        Any transformer of scikit-learn. "passthrough" leaves the features as they are.

        - It gets the columns without a role: as a pandas or Polars frame, as pandas for a PyArrow
          table.
        - It must return as many rows, in the same order. The output must be dense if X is a frame.
        - If it requests roles as metadata in ``fit``, such as ``RFE(ranker)``, it gets those of X.

    passthrough : list of str, default=None
        Columns without a role that are passed through like roles. Name those that a later step
        reads by name, such as the ``arm`` of a :class:`~skultr.propensity.RandomizedPropensity`.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of ``transformer``.
    n_features_in_ : int
        Number of columns without a role.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if X has names that are strings.

    Notes
    -----
    The output is a frame of the same kind as the input (unless ``set_output`` says otherwise):
    first the role columns, unchanged, then the transformed features. Features are named ``f0``,
    ``f1``, ... if the transformer gives no names. In arrays and sparse matrices every column is a
    feature, and the output is that of ``transformer``.

    From a :class:`~skultr.ClickDataset` the transformer gets the features of each document once,
    however often it was shown. The output is that dataset with the transformed features, which
    are in memory.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skultr.preprocessing import OnFeatures
    >>> log = pd.DataFrame({"qid": [7, 7], "position": [1, 2], "bm25": [2.0, 4.0]})
    >>> scale = OnFeatures(StandardScaler()).fit(log)
    >>> scale.transform(log)
       qid  position  bm25
    0    7         1  -1.0
    1    7         2   1.0
    >>> scale.transform(pd.DataFrame({"bm25": [3.0]}))
       bm25
    0   0.0
    """

    def __init__(self, transformer: Any, *, passthrough: Sequence[str] | None = None) -> None:
        self.transformer = transformer
        self.passthrough = passthrough

    @with_callbacks
    @afresh
    def fit(self, X: Table, y: Column | None = None, **params: Any) -> Self:
        """Fit the transformer to the features.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or str, default=None
            Clicks, or the name of the column of X that holds them, which is then no feature.
        **params : dict
            Passed to the transformer's ``fit``.

        Returns
        -------
        self : OnFeatures
        """
        self._fitted("fit", X, y, params)
        return self

    @with_callbacks
    @afresh
    def fit_transform(self, X: Table, y: Column | None = None, **params: Any) -> Any:
        """Fit the transformer and transform X by its own ``fit_transform``.

        (Some transformers, such as ``TargetEncoder``, treat their training rows differently.)

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or str, default=None
            Clicks, or the name of the column of X that holds them, which is then no feature.
        **params : dict
            Passed to the transformer's ``fit_transform``.

        Returns
        -------
        X_new : frame, ndarray or sparse matrix
        """
        rows, back, values = self._fitted("fit_transform", X, y, params)
        return back(self._with_roles(rows, values))

    def _fitted(self, method, X, y, params):
        """Fit the transformer: the rows, the way back to X, and what its method returns."""
        task = self._init_callback_context().call_on_fit_task_begin(estimator=self, X=X, y=y)
        # Rows to transform (of a dataset, documents once each), and the way back to X.
        rows, back = features_to_transform(X, y)
        # Clicks that are a column are no feature, in later frames neither.
        self._click_column = y if isinstance(y, str) else None
        clicks = y if self._click_column is None else read_column(rows, y)
        features = self._features(rows, reset=True)
        # The transformer that was passed stays as it is.
        self.transformer_ = clone(self._inner())
        roles = _roles_requested(rows, self.transformer_)
        # Some pass metadata on only where it is routed.
        routing = config_context(enable_metadata_routing=True) if roles else nullcontext()
        fit = getattr(self.transformer_, method)
        try:
            with few_threads(ALL), routing:
                # What the caller passes wins over what the frame holds.
                values = fit(features, clicks, **(roles | params))
        except (TypeError, ValueError, OverflowError) as error:
            self._refuse_words(features, error)
            raise
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return rows, back, values

    def transform(self, X: Table) -> Any:
        """X with transformed features; role columns of X are kept.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
            The features seen in ``fit``, with or without role columns.

        Returns
        -------
        X_new : frame, ndarray or sparse matrix
        """
        # Asked first, because `check_is_fitted` reads tags, which takes long in a request.
        if not hasattr(self, "transformer_"):
            check_is_fitted(self)
        rows, back = features_to_transform(X)
        # Checked against the names of fit, without roles.
        features = self._features(rows, reset=False)
        values = _transformed(self.transformer_, features)
        return back(self._with_roles(rows, values))

    def get_feature_names_out(
        self, input_features: Sequence[str] | None = None
    ) -> NDArray[np.object_]:
        """Names of the transformed features, without the role columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input features; needed only if X had none.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        return self.transformer_.get_feature_names_out(input_features)

    def __sklearn_tags__(self) -> Tags:
        # What it accepts is what the transformer accepts.
        tags = super().__sklearn_tags__()
        inner = get_tags(self._inner())
        # Searches and pipelines ask these before they pass data on.
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.target_tags.required = inner.target_tags.required
        return tags

    def _inner(self):
        """The transformer, not fitted."""
        inner = self.transformer
        # It keeps names and sparse matrices.
        if isinstance(inner, str) and inner == "passthrough":
            return FunctionTransformer(accept_sparse=True, feature_names_out="one-to-one")
        if not (hasattr(inner, "fit") and hasattr(inner, "transform")):
            raise TypeError(
                f"transformer must have fit and transform, or be 'passthrough'; got {inner!r}."
            )
        return inner

    def _not_features(self):
        """Names of the columns that are kept as they are."""
        return {*ROLES, *(self.passthrough or ()), self._click_column}

    def _features(self, X, reset):
        """The input of the transformer; checks the number and names of the features."""
        if is_frame(X):
            # The plan says which columns are features; None of frames that need a closer look.
            plan = feature_plan(X, self._not_features())
            if plan is None:
                frame = without_roles(open_frame(X), self._not_features()).to_native()
            else:
                frame = _another(only_features(X, plan), deep=bool(plan.others))
            X = self._readable(frame, plan)
            # The quick way of a request: names are those of `fit`, perhaps in another order.
            if not reset and plan is not None:
                if knows_names(self, plan.names):
                    return X
                # The same names in another order: put into that of fit.
                places = places_of_fit(self, plan.names)
                if places is not None:
                    return X.iloc[:, places] if isinstance(X, pd.DataFrame) else X[:, places]
        elif getattr(X, "ndim", 2) == 1:
            raise ValueError(
                "Expected a 2D array or a frame, got a 1D array. Reshape your data: one row per "
                "document, one column per feature."
            )
        else:
            check_container(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _refuse_words(self, features, error):
        """An error that names the columns without numbers, which the transformer did not read."""
        # Arrays have no names to tell.
        frame = nw.from_native(features, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            return
        words = []
        for place, name in enumerate(frame.columns):
            if numbers_of(frame[:, place]) is None:
                words.append(name)
        if words:
            raise ValueError(
                f"{type(self.transformer_).__name__} cannot read the feature columns {words}, "
                f"which hold no numbers: {error}. Drop them, or encode them first, as "
                "TableVectorizer of skrub does, or a ColumnTransformer with an encoder."
            ) from error

    def _readable(self, native, plan):
        """A frame of features as the kind of frame that the transformer reads."""
        if isinstance(native, pd.DataFrame):
            return native
        frame = nw.from_native(native, eager_only=True)
        if frame.implementation.is_pyarrow():
            return frame.to_pandas()
        if not frame.implementation.is_polars() or _may_read_polars(self._inner()):
            return native
        # Only scikit-learn reads it, and of numbers it would copy each column.
        if plan is not None and plan.is_floating:
            return pd.DataFrame(native.to_numpy(), columns=plan.names, copy=False)
        return _convert(frame, "pandas").to_native()

    def _with_roles(self, X, values):
        """The transformed features behind the roles of X, as the kind of frame to return."""
        # Only features of the same rows may stand beside the roles.
        _check_rows(X, values, self.transformer_)
        kind = output_kind(self)
        if kind == "default" and not is_frame(X):
            return values
        if sparse.issparse(values):
            raise ValueError(
                f"{type(self.transformer_).__name__} gave a sparse matrix, which a frame cannot "
                "hold. Set sparse_threshold=0 of a ColumnTransformer, or sparse_output=False."
            )
        roles = self._not_features()
        if not is_frame(X):
            return _framed(values, self.transformer_, roles, kind).to_native()
        # An array beside pandas, as in most requests, needs no conversion.
        if isinstance(X, pd.DataFrame) and kind != "polars" and type(values) is np.ndarray:
            return _beside_pandas(X, values, self.transformer_, roles)
        return _beside_frame(X, values, self.transformer_, roles, kind)


def _transformed(transformer, features):
    """What a fitted transformer makes of features, whose names are those of its fit."""
    gives_array = type(transformer) in _SCALERS and output_kind(transformer) == "default"
    if gives_array and isinstance(features, pd.DataFrame):
        values = features.to_numpy()
        if values.dtype.kind == "f":
            # A copy without names reads the same numbers. scikit-learn's look at each column of a
            # frame would take half of the time of a request.
            nameless = copy(transformer)
            vars(nameless).pop("feature_names_in_", None)
            return nameless.transform(values)
    return transformer.transform(features)


def _beside_pandas(X, values, transformer, roles):
    """Roles of a pandas frame, and an array of transformed features."""
    names = _names_of(values, transformer, roles)
    out = pd.DataFrame(values, columns=names, index=X.index, copy=False)
    # Roles come first, and then the new features.
    kept = _places_of_roles(X.columns.tolist(), roles)
    return pd.concat([X.iloc[:, kept], out], axis=1) if kept else out


def _beside_frame(X, values, transformer, roles, kind):
    """Roles of any frame, and transformed features as an array or a frame."""
    X = nw.from_native(X, eager_only=True)
    # The kind of frame that came in, unless set_output asks for another.
    backend = X.implementation if kind == "default" else kind
    out = _framed(values, transformer, roles, backend)
    kept = _places_of_roles(X.columns, roles)
    if kept:
        kept_roles = _convert(X[:, kept], backend)
        # pandas would align rows by index, and a transformer may have numbered them anew.
        parts = [nw.maybe_reset_index(part) for part in (kept_roles, out)]
        out = nw.concat(parts, how="horizontal")
    out = out.to_native()
    index = nw.maybe_get_index(X)
    if index is not None and isinstance(out, pd.DataFrame):
        # A new frame: this may be one of the transformer's.
        out = out.set_axis(index, axis=0)
    return out


def _places_of_roles(names, roles):
    """Places of the columns that are kept as they are."""
    return [place for place, name in enumerate(names) if is_role(name) or name in roles]


def _roles_requested(X, transformer):
    """Roles of a frame that the transformer requests, such as a selection by a ranker."""
    if not is_frame(X):
        return {}
    # Roles that some fit may take, of those that the frame has.
    roles = [name for name in role_columns(X) if name in FIT_ROLES]
    if not roles:
        return {}
    # Most transformers request none.
    requested = get_routing_for_object(transformer).consumes("fit", roles)
    return {name: read_role(X, name) for name in roles if name in requested}


def _another(X, *, deep):
    """Another frame of the same data: a function may add or drop columns of what it gets.

    It may write to the values, too, if the copy is deep.
    """
    return X.copy(deep=deep) if isinstance(X, pd.DataFrame) else X.clone()


def _may_read_polars(transformer):
    """False if only scikit-learn reads the frame, of which it makes float64 unless it is
    pandas; functions and classes of the user get it as it is."""
    # The transformer, and all transformers inside of it.
    parts = [transformer, *transformer.get_params(deep=True).values()]
    # Steps of pipelines and column transformers stand in lists and tuples.
    parts += [part for value in parts if isinstance(value, list | tuple) for part in value]
    return any(_is_of_the_user(part) for part in parts)


def _is_of_the_user(part):
    """True for a transformer that runs code which is not scikit-learn's."""
    if isinstance(part, FunctionTransformer):
        return True
    return hasattr(part, "transform") and not type(part).__module__.startswith("sklearn.")


def _check_rows(X, values, transformer):
    """Refuse features that would stand beside the roles of other rows."""
    name = type(transformer).__name__
    # Numbers of rows first; then their labels, where the output has some.
    n_rows = count_rows(X)
    n_out = count_rows(values)
    if n_out != n_rows:
        raise ValueError(
            f"{name} gave {n_out} rows for the {n_rows} rows of X; expected one row "
            "for each, in the same order. Leave rows out before the pipeline, with their roles "
            "and clicks."
        )
    if not isinstance(values, pd.DataFrame):
        return
    anew = pd.RangeIndex(n_rows)
    # Frames of other kinds, and arrays, have no labels: their rows are numbered.
    given = X.index if isinstance(X, pd.DataFrame) else anew
    found = values.index
    # An index 0, 1, ... means that the transformer knows no labels, and kept the order.
    numbered_anew = isinstance(found, pd.RangeIndex) and found.equals(anew)
    if not numbered_anew and not found.equals(given):
        raise ValueError(
            f"{name} gave the rows of X in another order or under other labels: its index begins "
            f"with {found[:3].tolist()}, that of X with {given[:3].tolist()}. Expected the rows "
            "in the order of X, which is that of roles and clicks."
        )


def _framed(values, transformer, roles, backend):
    """The transformed features as a frame of the backend."""
    if is_frame(values):
        frame = nw.from_native(values, eager_only=True)
        _refuse_roles(frame.columns, transformer, roles)
        return _convert(frame, backend)
    values = np.asarray(values)
    names = _names_of(values, transformer, roles)
    backend = nw.Implementation.from_backend(backend)
    # Polars reads objects from pandas alone.
    if backend.is_polars() and values.dtype != object:
        texts = [str(name) for name in names]
        return nw.from_numpy(values, schema=texts, backend=backend)
    frame = pd.DataFrame(values, columns=names, copy=False)
    return _convert(nw.from_native(frame, eager_only=True), backend)


def _names_of(values, transformer, roles):
    """Names of the columns of an array that a transformer gave."""
    if hasattr(transformer, "get_feature_names_out"):
        names = transformer.get_feature_names_out()
    else:
        names = [f"f{i}" for i in range(values.shape[1])]
    _refuse_roles(names, transformer, roles)
    return names


def _refuse_roles(names, transformer, roles):
    taken = [name for name in names if name in roles]
    if taken:
        raise ValueError(
            f"{type(transformer).__name__} gave the column {taken[0]!r}, which is the name of a "
            "role or of a column that is passed along; expected features only. Rename it in the "
            "transformer."
        )


def _convert(frame, backend):
    """The frame in the given backend; the same object if it is in it already."""
    backend = nw.Implementation.from_backend(backend)
    if frame.implementation is backend:
        return frame
    # By way of arrays, one column at a time.
    arrays = {}
    for name in frame.columns:
        values = frame[name].to_numpy()
        # Cells of lists or structs, which are flattened here, are objects in pandas.
        arrays[name] = values if values.ndim == 1 else frame[name].to_list()
    return nw.from_dict(arrays, backend=backend)
