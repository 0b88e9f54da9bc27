"""Roles and features of X: which column of a frame (or keyword) is what, and its values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from .._base._typing import Floats
from ..exceptions import python_value
from ._faults import IDS
from ._segments import as_array, as_index_values, naming_ids, sorting_order


class LogOnDisk:
    """Base of :class:`~skultr.ClickDataset`, below the readers that take rows from it."""


def is_on_disk(X: Any) -> bool:
    """True for a log on disk, whose rows are read when it is fitted to."""
    return isinstance(X, LogOnDisk)


def refuse_dataset(X: Any, why: str) -> None:
    """Raise an error that says why a method does not take a dataset, if X is one."""
    if isinstance(X, LogOnDisk):
        raise TypeError(why)


def log_and_clicks(given: Any, called: str) -> tuple[Any, Any]:
    """X and y of a pair (X, y), a frame with the column ``click``, or a dataset."""
    if isinstance(given, LogOnDisk):
        return given, None
    if is_frame(given) and "click" in column_names(given):
        return given, "click"
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise TypeError(
            f"{called} is of type {type(given).__name__}; expected a pair (X, y), a frame with "
            "the column 'click', or a ClickDataset."
        )
    return given[0], given[1]


def refuse_arguments(given: Mapping[str, Any]) -> None:
    """Refuse clicks, weights and roles that are passed beside a dataset, which has its own."""
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise TypeError(
            f"Got a ClickDataset and {', '.join(found)} too; a dataset holds the clicks and roles "
            "of its log. Pass the dataset alone, or make another one from a log with these values."
        )


def read_column(X: Any, name: str) -> NDArray[Any]:
    """A column of a frame by name, as an array."""
    columns = list(_frame_of(X).columns) if is_frame(X) else []
    if name not in columns:
        refuse_index(X, [name])
        found = f"X is an array and has no columns{DROPPED}"
        if columns:
            found = f"its columns are {columns}"
        raise ValueError(
            f"X has no column {name!r}: {found}. Add the column, or name another one."
        )
    # By number, because names of pandas columns need not be strings.
    return as_array(_frame_of(X)[:, columns.index(name)].to_numpy())


def as_pandas(X: Any, names: Iterable[str]) -> pd.DataFrame:
    """Some columns of a frame as a frame of pandas, with rows numbered from 0."""
    # Column by column, whatever kind of frame X is.
    columns = {name: as_index_values(read_column(X, name)) for name in names}
    for name, values in columns.items():
        if values.ndim > 1:  # one list per row
            columns[name] = [*values]
    return pd.DataFrame(columns)


ROLES = (
    "qid",
    "session",
    "doc",
    "position",
    "bias",
    "user",
    "propensity",
    "impressions",
    "doc_scope",
    "team",
    "click",
    "production",
    "relevance",
)
#: Columns whose names begin with it hold what followed the impression: a cart, a purchase.
OUTCOME = "outcome_"
#: Roles that every model reads: all except the teams of interleaved lists, which no model reads,
#: clicks where y is another outcome, the score of the ranker that served, which few ask for, and
#: the human annotation, which none may read.
FIT_ROLES = ROLES[: ROLES.index("team")]
_ROLES = frozenset(ROLES)
#: What pandas and Dask call the numbers of rows in Parquet; pandas alone reads them as an index.
_ROW_NUMBERS = re.compile(r"__(index_level_\d+|null_dask_index)__")
_NUMERIC_ROLES = (
    "position",
    "bias",
    "propensity",
    "impressions",
    "click",
    "production",
    "relevance",
)


#: Why a ranker in a pipeline may get an array.
DROPPED = (
    " (in a pipeline, a transformer dropped names and roles: use "
    "skultr.preprocessing.OnFeatures(transformer))"
)
#: Numbers, and those without an order, which are none here.
_NUMBERS = Real | Decimal | np.bool_
_COMPLEX = complex | np.complexfloating
#: Rows converted to float32 at a time, so that a frame is never held twice in float64.
CHUNK = 65_536
#: Cells of a frame that is converted in vain at no cost, should it hold other things than numbers.
_SMALL = 65_536


def is_frame(X: Any) -> bool:
    """True if X is a data frame (pandas, Polars, PyArrow, ...); a lazy frame is an error."""
    if type(X) is np.ndarray:
        return False
    if isinstance(X, pd.DataFrame) or nw.dependencies.is_into_dataframe(X):
        if isinstance(getattr(X, "columns", None), pd.MultiIndex):
            raise ValueError(
                "X has columns of several levels; expected one name per column. Flatten them, "
                "for example X.columns = ['_'.join(name) for name in X.columns]."
            )
        return True
    if isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame):
        raise TypeError(
            f"X is a lazy frame ({type(X).__module__}.{type(X).__name__}); expected a frame in "
            "memory. Reduce it first with skultr.aggregate_clicks(X), which runs in its engine, "
            "collect it, or write it to disk with skultr.ClickDataset.from_parquet(X, ...), from "
            "which fit(dataset) trains."
        )
    if isinstance(X, LogOnDisk):
        raise TypeError(
            "X is a ClickDataset; expected a frame or an array. Only fit, splitters and scorers "
            "of clicks take a dataset; elsewhere pass rows, such as those of dataset.to_frame()."
        )
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        raise TypeError(
            f"X is a {type(X).__module__}.{type(X).__name__}, which has named columns but is no "
            "frame that Narwhals reads: its roles would be read as features. Pass a pandas or "
            "Polars frame, or a pyarrow.Table."
        )
    return False


def column_names(X: Any) -> list[Any]:
    """Names of the columns of a frame."""
    # A request would wait for a closer look.
    if isinstance(X, pd.DataFrame) and X.columns.is_unique:
        return X.columns.tolist()
    return list(_frame_of(X).columns)


def is_role(name: Any) -> bool:
    """True for a name that is reserved: a column of this name is never a feature."""
    if name in _ROLES:
        return True
    return isinstance(name, str) and (name.startswith(OUTCOME) or is_row_number(name))


def is_row_number(name: str) -> bool:
    """True for a column in which pandas or Dask wrote the numbers of rows to Parquet."""
    return _ROW_NUMBERS.fullmatch(name) is not None


def role_columns(X: Any) -> list[str]:
    """Names of the role columns of a frame, in the frame's order."""
    return [name for name in column_names(X) if is_role(name)]


def feature_columns(X: Any) -> list[str]:
    """Names of the columns of a frame without a role, in the frame's order."""
    return [name for name in column_names(X) if not is_role(name)]


def feature_names(names: Iterable[str], not_features: Iterable[Any] = ()) -> list[str]:
    """Those of some names of columns that are neither a role nor among ``not_features``."""
    return [name for name in names if not is_role(name) and name not in not_features]


def read_role(X: Any, role: str, value: Any = None) -> NDArray[Any] | None:
    """Values of a role (numbers as float64): the keyword ``value``, else a column, else None."""
    if value is None:
        value = _column_of_role(X, role)
        if value is None:
            return None
    elif type(value) is not np.ndarray and nw.dependencies.is_into_series(value):
        value = nw.from_native(value, series_only=True).to_numpy()
    value = as_array(value)
    n_rows = count_rows(X)
    if value.shape != (n_rows,):
        raise ValueError(
            f"The role {role!r} has shape {value.shape}; expected one value for each row of X, "
            f"that is ({n_rows},)."
        )
    return numbers(f"The role {role!r}", value) if role in _NUMERIC_ROLES else value


def _column_of_role(X, role):
    """The values of a role that is a column of X, or None."""
    if not is_frame(X):
        return None
    # To list the names of a request, and to wrap it, takes longer than to score it.
    if isinstance(X, pd.DataFrame):
        is_plain = X.columns.is_unique
    else:
        is_plain = nw.dependencies.is_polars_dataframe(X)
    if role not in (X.columns if is_plain else column_names(X)):
        refuse_index(X, [role])
        return None
    return _values_of(X[role] if is_plain else _frame_of(X)[role], X, role)


def _values_of(column, X, role):
    """A column of X as an array; ids that are whole numbers stay so where one is missing."""
    # Narwhals knows the missing values of extension types.
    if isinstance(column, pd.Series) and not isinstance(column.dtype, np.dtype):
        column = _frame_of(X)[role]
    if role in IDS and not isinstance(column, pd.Series):
        ids = nw.from_native(column, series_only=True)
        if ids.dtype.is_integer() and ids.is_null().any():  # to_numpy() would make floats of them
            return np.array(ids.to_list(), dtype=object)
    return column.to_numpy()


def read_scope(X: Any, value: Any = None) -> str:
    """Scope of the ids of documents: "query" if they are unique only within one, or "global"."""
    if value is None:
        if not is_frame(X) or "doc_scope" not in column_names(X):
            return "query"
        value = nw.from_native(X, eager_only=True)["doc_scope"].unique().to_list()
    found = {value} if isinstance(value, str) else set(pd.unique(as_array(value)))
    if found not in ({"query"}, {"global"}):
        raise ValueError(
            f"doc_scope holds {sorted(map(str, found))}; expected 'query' in every row (an id "
            "names a document of its query) or 'global' in every row (an id names the same "
            "document under all queries)."
        )
    return found.pop()


def refuse_index(X: Any, names: Iterable[str]) -> None:
    """An error if columns that X lacks are levels of its index (pandas), which nobody reads."""
    # Polars and Arrow have no index, and few frames of pandas have names there.
    levels = getattr(getattr(X, "index", None), "names", None) or []
    if not {*names} & {*levels}:
        return
    # Only levels that are no columns: pandas would insert the others twice.
    found = [name for name in levels if is_role(name) or name in names]
    found = [name for name in found if name not in X.columns]
    raise ValueError(
        f"X has no column {found[0]!r}: its index is called so, and roles are read from columns. "
        f"Make columns of the index: X = X.reset_index({found!r})."
    )


def check_container(X: Any) -> None:
    """Refuse an X whose column names or masks would be ignored: dicts and masked arrays."""
    if sparse.issparse(X):  # some of which are dicts
        return
    if X is None or isinstance(X, str) or hasattr(X, "__fspath__"):
        raise TypeError(
            f"X is {X!r}; expected a frame or an array, one row per shown document. Read a file "
            "first, for example with pandas.read_parquet; skultr.ClickDataset.from_parquet reads "
            "files that do not fit into memory."
        )
    _refuse_dicts(X)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            f"X is a masked array with {int(np.ma.count_masked(X))} masked values; expected a "
            "number in every cell. Fill them, for example with X.filled(0)."
        )


def _refuse_dicts(X):
    """Refuse a dict of columns and a list of rows as dicts: NumPy makes objects of them."""
    is_list_of_dicts = isinstance(X, list) and len(X) > 0 and isinstance(X[0], dict)
    if isinstance(X, dict) or is_list_of_dicts:
        kind = "list of dicts" if is_list_of_dicts else type(X).__name__
        raise TypeError(
            f"X is a {kind}; expected a frame or an array. Make a frame of it first: "
            "pandas.DataFrame(X)."
        )


def count_rows(X: Any) -> int:
    """Number of rows of a frame, an array, a list or a sparse matrix, which has no length."""
    check_container(X)
    is_frame(X)  # refuses lazy frames, which have no length
    if not (hasattr(X, "shape") or hasattr(X, "__len__")):
        X = np.asarray(X)
    return X.shape[0] if hasattr(X, "shape") else len(X)


def read_features(X: Any, takes: Takes = "numbers") -> Any:
    """Features for scikit-learn's ``validate_data``: of a frame in float32, else X itself."""
    if not is_frame(X):
        return X
    found = read_values(X, takes)
    return pd.DataFrame(found.values, columns=found.names, copy=False)


class FeatureValues(NamedTuple):
    """Features of a frame, C-ordered (n_rows, n_features), NaN where they are missing."""

    values: NDArray[np.float32]
    names: list[Any]
    categories: Categories


def read_values(
    X: Any,
    takes: Takes = "numbers",
    known: Categories | None = None,
    why_no_missing: str | None = None,
) -> FeatureValues:
    """The features of a frame; ``known`` are the categories that a fit has found."""
    found = None if known else _numbers_of_request(X)
    if found is None:
        found = _values_by_type(X, takes, known)
    if why_no_missing:
        refuse_missing(found.values, found.names, why_no_missing)
    return found


def _numbers_of_request(X):
    """The features of a small pandas frame of one type of numbers; None of any other frame.

    The types of its columns would cost more to ask than all of its numbers to convert.
    """
    if not isinstance(X, pd.DataFrame) or X.size > _SMALL:
        return None
    plan = _plan_of_names(tuple(X.columns.tolist()), frozenset(_ROLES))
    if plan is None or not plan.names or "team" in plan.others:
        return None
    features = only_features(X, plan)
    values = features.to_numpy()
    if values.dtype.kind not in "iuf":
        return None
    # Columns of one type are seen as they lie in memory. Of several types a new array is made each
    # time, in which categories that are numbers look like numbers.
    if not np.may_share_memory(values, features.to_numpy()):
        return None
    with np.errstate(over="ignore"):  # values beyond the range of float32 become infinite
        values = values.astype(np.float32, order="C")
    refuse_infinity(values, plan.names)
    return FeatureValues(values, plan.names, {})


def _values_by_type(X, takes, known):
    """The features of a frame, read by the types of its columns."""
    plan = feature_plan(X, _ROLES)
    others = column_names(X) if plan is None else plan.others
    # Teams are text; a column of numbers would be a feature under any other name.
    if "team" in others:
        check_team(_frame_of(X)["team"].dtype)
    if plan is not None and plan.is_plain and plan.names:
        chosen = only_features(X, plan)
        names = plan.names
        kinds = None  # all are numbers
    else:
        chosen, kinds = _features_and_kinds(X)
        names = chosen.columns
    # Numbers go all at once, and others column by column: codes, or lists that are taken apart.
    is_coded = not {*names}.isdisjoint(known or ())
    if is_coded or kinds is not None:
        return _read_columns(_frame_of(X), names, kinds, takes, known)
    return FeatureValues(_read_numbers(chosen, names), names, {})


def _features_and_kinds(X):
    """The features of a frame, and what each of them holds: None if all hold numbers."""
    chosen = without_roles(_frame_of(X))
    if not chosen.columns:
        raise ValueError(
            f"X has 0 feature columns: its columns {column_names(X)} all have a role. "
            "Expected at least one column to rank by; join the documents' features to the "
            "log first."
        )
    # By number, because names of pandas columns need not be strings.
    kinds = [kind_of(chosen[:, place]) for place in range(len(chosen.columns))]
    return chosen, None if set(kinds) == {"number"} else kinds


def _read_numbers(chosen, names):
    """Features of a frame of numbers, a part of the rows at a time."""
    values = np.empty((chosen.shape[0], len(names)), dtype=np.float32)
    for start in range(0, len(values), CHUNK):
        part = chosen
        out = values[start : start + CHUNK]
        if len(out) < len(values):
            part = nw.from_native(chosen, eager_only=True, pass_through=True)
            part = part[start : start + CHUNK, :]
        try:
            with np.errstate(over="ignore"):  # values beyond the range of float32 become infinite
                out[:] = part.to_numpy()
        except (TypeError, ValueError, OverflowError):
            # Slower, column by column: it succeeds, or names the column that cannot be converted.
            part = nw.from_native(part, eager_only=True, pass_through=True)
            for place, name in enumerate(names):
                out[:, place] = _as_floats(part[:, place].to_numpy(), name)
        refuse_infinity(out, names, start)
    return values


def check_team(dtype: nw.dtypes.DType) -> None:
    """Refuse a column ``team`` of numbers, which would be a feature under any other name."""
    if dtype.is_numeric():
        raise ValueError(
            f"The role 'team' must hold text, the ranking that placed the document in an "
            f"interleaved list; got {dtype} values. Rename the column if it is a feature, or drop "
            "it."
        )


def with_column(X: Any, name: str, values: NDArray[Any]) -> Any:
    """A frame with a column added or replaced; ``bias`` as integers."""
    is_whole = name == "bias"
    has_missing = np.isnan(values).any()
    if is_whole and not has_missing:
        values = values.astype(np.int64)
    if isinstance(X, pd.DataFrame):
        return X.assign(**{name: values})  # Narwhals would align by the index
    frame = nw.from_native(X, eager_only=True)
    column = nw.new_series(name, values, backend=frame.implementation)
    if is_whole and has_missing:
        codes = nw.col(name).fill_nan(None).cast(nw.Int64)
        column = column.to_frame().select(codes)[name]
    return frame.with_columns(column).to_native()


def without_column(X: Any, name: str) -> Any:
    """A frame of any kind without one of its columns."""
    return without_columns(nw.from_native(X, eager_only=True), {name}).to_native()


def without_columns(frame: Any, names: Iterable[Any]) -> Any:
    """A frame of Narwhals without some of its columns."""
    # By number, because names of pandas columns need not be strings.
    return frame[:, [i for i, name in enumerate(frame.columns) if name not in names]]


def without_roles(frame: Any, not_features: Collection[Any] = ()) -> Any:
    """A frame of Narwhals without its role columns, and without those in ``not_features``."""
    return without_columns(frame, {*filter(is_role, frame.columns), *not_features})


def refuse_infinity(values: NDArray[Any], names: Sequence[Any], start: int = 0) -> None:
    """An error if features, shape (n_rows, n_features), are infinite; ``start`` is their row."""
    if not np.isfinite(values).all() and np.isinf(values).any():
        row, place = np.argwhere(np.isinf(values))[0]
        raise ValueError(
            "Input X contains infinity or a value too large for float32 in the feature column "
            f"{names[place]!r}, row {start + row}; expected finite or missing values. Replace it, "
            "or drop the row."
        )


def refuse_missing(values: NDArray[np.float32], names: Sequence[Any], why: str) -> None:
    """An error if features, shape (n_rows, n_features), have missing values."""
    missing = np.isnan(values)
    if not missing.any():
        return
    # Ten columns are enough to see what happened.
    places = np.flatnonzero(missing.any(axis=0))
    shown = [
        f"{names[place]!r} ({missing[:, place].mean():.2%} of the rows)" for place in places[:10]
    ]
    columns = ", ".join(shown)
    if len(places) > 10:
        columns += f" and {len(places) - 10} more"
    first = int(missing.any(axis=1).argmax())
    raise ValueError(
        f"Input X contains NaN in the feature columns {columns}, first in row {first}, and {why}. "
        "Fill them, in a pipeline with OnFeatures(SimpleImputer(add_indicator=True))."
    )


def _read_columns(frame, names, kinds, takes, known):
    """Features of columns of which some hold lists, or values that are coded."""
    kinds = kinds or ["number"] * len(names)
    columns = [frame[:, frame.columns.index(name)] for name in names]
    _refuse_columns(columns, kinds, takes, known)
    known = known or {}
    parts = []
    expanded = []  # one name per feature: those of a list are numbered
    categories = {}
    for name, column, kind in zip(names, columns, kinds, strict=True):
        if kind == "list":
            part = list_values(column)
            expanded += [f"{name}[{place}]" for place in range(part.shape[1])]
            parts.append(part)
            continue
        # What was a category in training is coded again, whatever it holds here.
        if kind == "number" and name not in known:
            part = _as_floats(column.to_numpy(), name)
        else:
            part, categories[name] = encode_categories(column, known.get(name))
        expanded.append(name)
        parts.append(part[:, None])
    values = np.concatenate(parts, axis=1)
    refuse_infinity(values, expanded)
    if len(set(expanded)) < len(expanded):
        raise ValueError(
            f"Two feature columns are called alike after lists were taken apart: {expanded}. "
            "Rename one of them."
        )
    return FeatureValues(values, expanded, categories)


def _refuse_columns(columns, kinds, takes, known):
    """An error with all feature columns that are not taken."""
    faults = []
    for column, kind in zip(columns, kinds, strict=True):
        fault = fault_of_column(column, kind, takes, known)
        if fault:
            faults.append(fault)
    if faults:
        raise ValueError(text_of_faults(faults))


def _as_floats(values, name):
    """Values as float32; an error with the name of their column if they are no numbers."""
    if values.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    try:
        # Beyond the range of float32 values become infinite, which is refused with their row.
        with np.errstate(over="ignore"):
            return to_float64(values).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"The feature column {name!r} holds {values.dtype} values such as {values[0]!r}; "
            "expected numbers that a float can hold. Encode or drop it."
        ) from error


def as_numbers(raw: NDArray[Any]) -> Floats:
    """Numbers as float64, NaN where they are missing."""
    return raw.astype(float) if raw.dtype.kind != "O" else to_float64(raw)


def to_float64(values):
    """Values as float64, NaN where they are missing; an error if they are no real numbers."""
    if any(isinstance(value, _COMPLEX) for value in values.tolist()):
        raise TypeError("complex numbers have no order")  # pandas would drop the imaginary part
    series = pd.Series(values)
    try:
        return pd.to_numeric(series).to_numpy(dtype=float, na_value=np.nan)
    except TypeError:  # pandas knows no fractions of Python
        return series.astype(object).where(series.notna(), np.nan).to_numpy().astype(float)


def numbers_of(column: nw.Series[Any]) -> Floats | None:
    """The values of a column as float64; None if it holds others than numbers."""
    if kind_of(column) != "number":
        return None
    try:
        return as_numbers(column.to_numpy())
    except (TypeError, ValueError, OverflowError):
        return None


def open_frame(X: Any, called: str = "X") -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """A frame, in memory or of an engine, as one of Narwhals; an error if it is none."""
    check_container(X)
    if isinstance(X, pd.DataFrame):
        is_frame(X)  # refuses columns of several levels
    frame = wrapped(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        raise TypeError(
            f"{called} is a {type(X).__module__}.{type(X).__name__}, which has no names of "
            "columns; expected a frame of pandas, Polars, PyArrow, DuckDB, Dask or PySpark. Make "
            "a frame of it first: pandas.DataFrame(X, columns=[...])."
        )
    try:
        frame.collect_schema()
    except Exception as error:  # of whatever engine holds it, such as a connection that is closed
        raise ValueError(
            f"The columns of {called}, a {type(X).__module__}.{type(X).__name__}, cannot be read: "
            f"{error}."
        ) from error
    return frame


def _frame_of(X):
    return wrapped(X, eager_only=True)


def wrapped(X: Any, **kinds: bool) -> Any:
    """A frame of Narwhals, whose names of columns must be distinct; ``kinds`` are its settings."""
    try:
        return nw.from_native(X, **kinds)
    except nw.exceptions.DuplicateError as error:
        names = pd.Index(X.columns)
        twice = names[names.duplicated()].unique().tolist()
        raise ValueError(
            f"X has several columns with the same name: {twice}. Expected one column per name; "
            "rename or drop the others."
        ) from error


def text_of_faults(faults: Sequence[str]) -> str:
    """The message about feature columns that an estimator does not read."""
    return (
        f"These feature columns hold no numbers: {'; '.join(faults)}. A column is a feature "
        f"unless its name is a role ({', '.join(ROLES)}): rename it to its role, or drop it. "
        "Text, categories and dates become numbers in a pipeline: make_pipeline("
        "OnFeatures(TableVectorizer()), ranker), with TableVectorizer from skrub. Trees of "
        "LightGBM (LambdaMARTRanker) take categories as they are, and text that is declared as "
        "such: X[name].astype('category') in pandas, pl.col(name).cast(pl.Categorical) in Polars."
    )


def numbers(what: str, value: NDArray[Any]) -> Floats:
    """The values of a column as float64; an error about ``what`` if they are no numbers."""
    if value.dtype.kind in "iufb":
        return value.astype(float)
    # Object columns hold None or pandas.NA for missing values. Text is an error even if it could
    # be read as a number, because it is more often an id than a position.
    present = value[~pd.isna(value)]
    wrong = [item for item in present if not isinstance(item, _NUMBERS)]
    if value.dtype.kind != "O" or wrong:
        example = (wrong or list(present) or [None])[0]
        raise ValueError(
            f"{what} must hold numbers, got {value.dtype} values such as "
            f"{python_value(example)!r}. Convert them, or rename the column if it holds something "
            "else."
        )
    try:
        nullable = pd.Series(value, dtype=object).astype("Float64")
        return nullable.to_numpy(float, na_value=np.nan)
    except OverflowError as error:
        raise ValueError(
            f"{what} holds whole numbers beyond the range of float64 (1.8e308), and is read as "
            "numbers. If they are ids, rename the column; otherwise divide them."
        ) from error


# Plans of columns ------------------------------------------------------------------------
# Which columns are features, and of which kind, is kept by schema: a request of 100 rows costs
# less to score than its columns cost to look at one by one.


class NamePlan(NamedTuple):
    """What the names of a frame's columns determine."""

    names: list[str]
    places: slice | list[int]  # a slice copies nothing
    others: list[str]


class FeaturePlan(NamedTuple):
    """What the names and types of a frame's columns determine."""

    names: list[str]
    places: slice | list[int]
    others: list[str]
    is_plain: bool  # all features are numbers
    is_floating: bool  # and of one type of floats


def feature_plan(X: Any, left_out: Collection[Any]) -> FeaturePlan | None:
    """The plan of a pandas or Polars frame whose columns have distinct strings as names."""
    if isinstance(X, pd.DataFrame):
        names = X.columns.tolist()
        # Not other types: the hash of a categorical one is computed from all of its categories.
        types = [each if isinstance(each, np.dtype) else None for each in X.dtypes.to_numpy()]
    elif nw.dependencies.is_polars_dataframe(X):
        names = X.columns
        types = [str(t) if t.is_float() or t.is_integer() else None for t in X.dtypes]
    else:
        return None
    return _plan(tuple(names), tuple(types), frozenset(left_out))


def only_features(X: Any, plan: NamePlan | FeaturePlan) -> Any:
    """The features as a frame of the same kind; the same object if X has no other columns."""
    if not plan.others:
        return X
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, plan.places if plan.names else slice(0)]
    if plan.names:  # a request would wait for the threads of Polars' drop()
        return X[:, plan.places]
    return X.drop(plan.others)


def knows_names(estimator: Any, names: list[Any]) -> bool:
    """True if these are the features of ``fit``, in their order."""
    fitted = getattr(estimator, "feature_names_in_", None)
    return fitted is not None and fitted.tolist() == names


def places_of_fit(estimator: Any, names: Sequence[Any]) -> list[int] | None:
    """Place of each feature of ``fit`` among ``names``; None if they are other names."""
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is None or {*fitted.tolist()} != {*names} or len(fitted) != len(names):
        return None
    place = {name: number for number, name in enumerate(names)}
    return [place[name] for name in fitted.tolist()]


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
    return _kind_of_objects(column) if dtype in (nw.Object, nw.Unknown) else "other"


def _kind_of_objects(column):
    """As :func:`kind_of`, by the first object that is there; others fail when they are read."""
    present = column.drop_nulls()
    if not len(present):
        return "number"  # all are missing
    if isinstance(present[0], list | tuple | np.ndarray):
        return "list"
    if isinstance(present[0], str):
        return "text"
    return "number" if isinstance(present[0], _NUMBERS) else "other"


def fault_of_column(
    column: nw.Series[Any], kind: str, takes: Takes, known: Categories | None
) -> str | None:
    """What a column holds that is not taken, in some words; None if there is nothing to say."""
    described = f"{column.name!r} ({column.dtype})"
    if kind == "list":
        return _fault_of_lists(column, described)
    if known is not None:  # by a fit
        if column.name in known or kind == "number":
            return None
        return f"{described}, in training numbers, or absent"
    if kind == "number" or takes == "anything":
        return None
    if kind == "category" and takes == "categories":
        return None
    present = column.drop_nulls()
    if not len(present):
        return described
    return f"{described[:-1]}, such as {python_value(present[0])!r})"


def _fault_of_lists(column, described):
    """As :func:`fault_of_column`, for a column of lists."""
    inner = getattr(column.dtype, "inner", None)
    if inner is None or inner.is_numeric():  # lists that are objects fail when they are read
        return None
    return f"{described}, lists of other things than numbers"


def encode_categories(
    column: nw.Series[Any], known: list[Any] | None
) -> tuple[NDArray[np.float32], list[Any]]:
    """Code of each value among the known ones (or all), NaN if it is none; and these values."""
    if column.implementation.is_pyarrow() and kind_of(column) == "category":
        native = column.to_native()  # its to_numpy takes a missing category for the last one
        column = nw.from_native(native.cast(native.type.value_type), series_only=True)
    values = column.to_numpy().astype(object)
    present = values[~pd.isna(values)]
    categories = known
    if categories is None:
        with naming_ids(f"The column {column.name!r}", values):
            distinct = pd.unique(present)
        categories = [python_value(distinct[place]) for place in sorting_order(distinct)]
    code_of = {value: code for code, value in enumerate(categories)}
    code = np.array([code_of.get(value, np.nan) for value in values.tolist()], dtype=np.float32)
    if known and len(present) and np.isnan(code).all():
        _refuse_other_kind(column, present[0], known)
    return code, categories


def _refuse_other_kind(column, value, known):
    """Refuse numbers where a fit had text, or text where it had numbers: none is ever known."""
    if isinstance(value, str) != isinstance(known[0], str):
        raise ValueError(
            f"The feature column {column.name!r} ({column.dtype}) holds values such as "
            f"{python_value(value)!r}, in training categories such as {known[:2]}. "
            "Convert it."
        )


def list_values(column: nw.Series[Any]) -> NDArray[np.float32]:
    """The numbers of cells that hold lists of one length, shape (n_rows, length)."""
    cells = column.to_numpy()
    if cells.ndim > 1:
        return cells.astype(np.float32)
    is_there = np.array([np.ndim(cell) > 0 for cell in cells], dtype=bool)
    # Missing lists have no length, and become rows of NaN.
    lengths = sorted({len(cell) for cell in cells[is_there]})
    if len(lengths) != 1:
        raise ValueError(
            f"The feature column {column.name!r} holds lists of {len(lengths)} different "
            f"lengths, such as {lengths[:1]} and {lengths[-1:]}; expected one length."
        )
    values = np.full((len(cells), lengths[0]), np.nan, dtype=np.float32)
    values[is_there] = np.stack(cells[is_there]).astype(np.float32)
    return values


@lru_cache(maxsize=128)  # a plan takes some kilobytes
def _plan(columns, types, left_out):
    plan = _plan_of_names(columns, left_out)
    if plan is None:
        return None
    type_of = dict(zip(columns, types, strict=True))
    types_of_features = [type_of[name] for name in plan.names]
    is_plain = all(map(_is_plain, types_of_features))
    return FeaturePlan(*plan, is_plain, _are_of_one_float(types_of_features))


@lru_cache(maxsize=128)
def _plan_of_names(columns, left_out):
    if len(set(columns)) < len(columns) or not all(type(name) is str for name in columns):
        return None
    left_out = _with_outcomes(left_out, columns)
    places = [place for place, name in enumerate(columns) if name not in left_out]
    return NamePlan(
        names=[columns[place] for place in places],
        places=_as_slice(places),
        others=[name for name in columns if name in left_out],
    )


def _with_outcomes(left_out, columns):
    """Names that are left out; with roles go the outcomes, whose names are many."""
    if not left_out:  # all columns are asked for
        return left_out
    return left_out | {name for name in columns if name.startswith(OUTCOME)}


def _are_of_one_float(kinds):
    """Whether all columns are of one type of floats."""
    return len({*map(str, kinds)}) == 1 and str(kinds[0]).lower().startswith("float")


def _as_slice(places):
    """Rising numbers as a slice if none is missing between them."""
    if not places or len(places) <= places[-1] - places[0]:
        return places
    return slice(places[0], places[-1] + 1)


def _is_plain(dtype):
    return isinstance(dtype, str) or (dtype is not None and dtype.kind in "iufb")
