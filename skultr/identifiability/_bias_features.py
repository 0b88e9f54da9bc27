"""Bias factors as vectors, whose distance measures similarity, and as codes of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Floats, Ints
from .._log._faults import IDS
from .._log._roles import read_column
from .._log._segments import as_index_values
from ..exceptions import ClickDataWarning, python_value, warn_user
from ._thresholds import MOST_CATEGORIES, MOST_WHOLE

#: Largest number of factors and documents that a message names.
MAX_NAMED = 3
#: Numbers up to this size have finite squares, and finite sums of squares.
_LARGEST = 1e150


@dataclass(eq=False)
class FactorVectors:
    """Vectors of bias factors: the smaller their distance, the more similar the factors."""

    factors: pd.DataFrame
    bias_features: Any
    position_weight: float
    merging: bool

    def of(self, factors: pd.DataFrame, rows: tuple[Any, Ints] | None = None) -> Floats:
        """Vector of each factor, NaN where its features are unknown; bias features that are
        columns are read from ``rows``: a frame, and the row of ``factors`` of each of its rows, or
        -1."""
        given = self.bias_features
        # Given vectors, or what the values of the factors say.
        if given is None:
            return self._by_default(factors)
        if callable(given):
            vectors = _from_callable(given, factors)
        elif isinstance(given, Mapping):
            vectors = _from_mapping(given, factors)
        else:
            vectors = _from_columns(self._column_names(), factors, *rows)
        if "position" in factors:
            # A position is one more feature, with a weight of its own.
            position = self.position_weight * _numbers(factors, "position")
            vectors = np.column_stack([vectors, position])
        return vectors

    def known(self, rows: tuple[Any, Ints] | None) -> Floats:
        """Vector of each factor of the log; an error if one is missing or not finite."""
        if rows is not None:
            self._require_columns(rows[0])
        vectors = self.of(self.factors, rows)
        is_finite = (np.abs(vectors) < _LARGEST).all(axis=1)
        # Squares of larger numbers would not be finite.
        bad = np.flatnonzero(~is_finite)
        if len(bad):
            first = bad[0]
            raise ValueError(
                f"The bias features of {len(bad)} of {len(vectors)} bias factors are missing or "
                f"not finite, first those of {factor_label(self.factors, first)!r}: "
                f"{vectors[first].tolist()}. Expected finite numbers for each factor that was "
                "shown; complete bias_features, or drop the rows of the factor."
            )
        return vectors

    def _require_columns(self, frame):
        columns = nw.from_native(frame, eager_only=True).columns
        lacking = [name for name in self._column_names() if name not in columns]
        if lacking:
            raise ValueError(
                f"X lacks the bias features {lacking}; found {columns}. Expected names of "
                "columns, a mapping from factor to vector, or a callable."
            )

    def _column_names(self):
        given = self.bias_features
        names = [given] if isinstance(given, str) else given
        # A position that is a bias column is appended with its own weight.
        return [name for name in names if name != "position" or name not in self.factors]

    def _by_default(self, factors):
        alone = self.factors.shape[1] == 1
        parts = []
        for name in self.factors:
            if name in self._categories:
                # One dimension per category, so that any two different ones are at distance 1.
                known = self._categories[name].to_numpy()
                is_known = factors[name].to_numpy()[:, None] == known
                parts.append(np.where(is_known, np.sqrt(0.5), 0.0))
            else:
                weight = 1.0
                if name == "position" and not alone:
                    weight = self.position_weight
                parts.append(weight * _numbers(factors, name)[:, None])
        return np.hstack(parts)

    @cached_property
    def _categories(self):
        """Values of the columns whose differences mean nothing, by column."""
        categories = {
            name: pd.Index(self.factors[name].unique())
            for name in self.factors
            if _is_category(name, self.factors[name])
        }
        n_values = sum(len(values) for values in categories.values())
        is_too_many = n_values > MOST_CATEGORIES.value
        if self.merging:
            _check_categories(categories, is_too_many)
        if is_too_many:
            # Nothing is merged: vectors without these values do no harm.
            return {name: values[:0] for name, values in categories.items()}
        return categories


def factor_label(factors: pd.DataFrame, code: int) -> Any:
    """Name of a factor: its value, or the tuple of its values in several columns."""
    values = tuple(plain(factors[name].iloc[code]) for name in factors)
    return values[0] if len(values) == 1 else values


def factor_labels(factors: pd.DataFrame, codes: Ints) -> NDArray[Any]:
    """Name of each factor: an array of values, or of tuples of values."""
    if factors.shape[1] == 1:
        return factors.iloc[codes, 0].to_numpy()
    columns = [factors[name].iloc[codes].tolist() for name in factors]
    labels = np.empty(len(codes), dtype=object)
    # Element by element: an array of tuples would have two dimensions.
    labels[:] = list(zip(*columns, strict=True))
    return labels


def factor_codes(factors: pd.DataFrame, values: Mapping[str, NDArray[Any]]) -> Ints:
    """Code of the factor of each row, -1 where the row has none of these factors."""
    # Row by row, in the columns of the factors.
    rows = pd.MultiIndex.from_arrays([as_index_values(values[name]) for name in factors])
    return pd.MultiIndex.from_frame(factors).get_indexer(rows)


def _from_callable(function, factors):
    vectors = np.asarray(function(factors.copy()), dtype=float)
    if vectors.ndim == 1:
        vectors = vectors[:, None]
    if vectors.ndim != 2 or len(vectors) != len(factors):
        raise ValueError(
            f"bias_features returned an array of shape {vectors.shape} for {len(factors)} bias "
            f"factors; expected one row per factor, that is ({len(factors)}, n_features)."
        )
    return vectors


def _from_mapping(mapping, factors):
    keys = [factor_label(factors, code) for code in range(len(factors))]
    given = {key: mapping[key] for key in keys if key in mapping}
    found = {key: np.asarray(vector, dtype=float).ravel() for key, vector in given.items()}
    sizes = {len(vector) for vector in found.values()}
    if len(sizes) > 1:
        raise ValueError(
            f"bias_features has vectors of different lengths {sorted(sizes)}; expected one length "
            "for all bias factors."
        )
    # A factor that the mapping lacks is refused, or, in transform, the most frequent one.
    unknown = np.full(sizes.pop() if sizes else 1, np.nan)
    return np.array([found.get(key, unknown) for key in keys])


def _from_columns(names, factors, frame, place):
    """Values of columns that are constant within each factor; NaN for a factor without a row."""
    columns = nw.from_native(frame, eager_only=True).columns
    # Rows that were not shown have no factor.
    rows = np.flatnonzero(place >= 0)
    place = place[rows]
    vectors = np.full((len(factors), len(names)), np.nan)
    for number, name in enumerate(names):
        if name not in columns:
            continue
        # A column of text may hold numbers; of others no distance is known.
        try:
            values = np.asarray(read_column(frame, name)[rows], dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The bias feature {name!r} does not hold numbers; expected a numeric column. "
                "Encode it, or leave it out of bias_features."
            ) from error
        # The last row of each factor wins; then every row must have the same value.
        vectors[place, number] = values
        is_equal = np.isclose(vectors[place, number], values, rtol=0, atol=0, equal_nan=True)
        if not is_equal.all():
            which = place[int(is_equal.argmin())]
            raise ValueError(
                f"The bias feature {name!r} has different values in rows of the bias factor "
                f"{factor_label(factors, which)!r}; expected one value per factor. Add its column "
                "to bias if it influences whether users look, or leave it out."
            )
    return vectors


def _is_category(name, known):
    # Ids may be numbers, but then their differences mean nothing.
    if name in IDS or not _is_numeric(known):
        return True
    if name == "position" or known.nunique() <= MOST_WHOLE.value:
        return False
    return bool((known % 1 == 0).all())


def _is_numeric(values):
    # True and False are two categories.
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _check_categories(categories, is_too_many):
    """Refuse merges by too many values without numeric meaning, and warn of ids that are numbers.

    Any two of these values are equally different, so that merges by them join any factors.
    """
    # Whole numbers may mean something, which only the user knows.
    whole = [name for name in categories if name not in IDS and _is_numeric(categories[name])]
    about = ""
    if whole:
        about = (
            f" The whole numbers of {_counted(categories, whole)} are read as ids, any two of "
            "which are equally different. If close numbers mean similar factors, say so: "
            f"bias_features={whole}."
        )
    if is_too_many:
        raise ValueError(
            f"Merging needs to know which bias factors are similar, and any two of the different "
            f"values of {_counted(categories, categories)} count as equally different: expected "
            f"at most {MOST_CATEGORIES.value} values. Describe which are similar with "
            "bias_features= (a mapping from factor to vector, a callable, or numeric columns of "
            f"X), or group rare values.{about}"
        )
    if about:
        warn_user(
            "Merging ids joins factors that need not be similar, which can be worse than no "
            f"repair.{about} Else say which are similar: bias_features= (mapping or callable).",
            ClickDataWarning,
        )


def _counted(categories, names):
    """Columns and their numbers of values, as messages name them."""
    return ", ".join(f"{name!r} ({len(categories[name])} different values)" for name in names)


def _numbers(factors, name):
    try:
        return np.asarray(factors[name], dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The bias column {name!r} held numbers in fit and holds {factors[name].iloc[0]!r} "
            "now; expected the same type of values."
        ) from error


def plain(value: Any) -> Any:
    """A value as messages show it: whole floats (positions, if some are missing) as integers."""
    value = python_value(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def name_some(names: Iterable[Any], total: int | None = None) -> str:
    """The first names as text, such as ``1, 2, 3, ...``."""
    names = list(names)
    if total is None:
        total = len(names)
    text = ", ".join(_name(name) for name in names[:MAX_NAMED])
    return f"{text}, ..." if total > MAX_NAMED else text


def _name(value):
    if isinstance(value, tuple):
        return f"({', '.join(map(_name, value))})"
    return str(value)
