"""Types of arguments and results that occur in several public folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoFrame
    from scipy.sparse import sparray, spmatrix


#: A frame in memory: pandas, Polars, PyArrow or another that Narwhals reads.
Frame: TypeAlias = "IntoDataFrame"
#: A frame in memory or in an engine: also lazy Polars, DuckDB, Dask and PySpark.
AnyFrame: TypeAlias = "IntoFrame"
#: What X may be.
Table: TypeAlias = "Frame | ArrayLike | sparray | spmatrix"
#: One value per row, of any type; a list may hold None.
Column: TypeAlias = "ArrayLike | Sequence[Any]"
#: What ids of documents identify: a document of the query, or the same document in all queries.
Scope: TypeAlias = Literal["query", "global"]
#: A seed in scikit-learn's convention.
RandomState: TypeAlias = "int | np.random.RandomState | None"

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]


class Predictor(Protocol):
    """A fitted model: ``predict(X)`` returns one number per row."""

    def predict(self, X: Any, /) -> Any: ...


class Estimator(Protocol):
    """An estimator in scikit-learn's convention, or anything with these methods."""

    def fit(self, X: Any, y: Any, /) -> Any: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...


class Simulated(Protocol):
    """A simulated log: its frame and its clicks, as :class:`~skultr.simulation.SimulatedLog`."""

    @property
    def X(self) -> Any: ...
    @property
    def clicks(self) -> Any: ...
