"""Rows of relevance, scores and query ids: checks, and rectangles of ranked lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import UndefinedMetricWarning

from .._log._segments import as_array, encode, rectangles
from .._typing import Column, Floats, Ints
from ..exceptions import warn_user

Cutoffs: TypeAlias = int | Sequence[int] | None
Gain: TypeAlias = Literal["exponential", "linear"]
Ties: TypeAlias = Literal["average", "stable"]
NoRelevant: TypeAlias = Literal["skip", 0, 1]
#: float; an array if k is a list; a frame with per_query=True.
Score: TypeAlias = Any


def values_per_query(
    value: Callable[..., Floats],
    y_true: NDArray[Any],
    y_score: NDArray[Any],
    qid: NDArray[Any],
    cutoffs: list[int | None],
    ties: str,
) -> tuple[Floats, Ints, NDArray[Any]]:
    """Values of a metric for each query and cutoff; rows may be in any order."""
    codes, ids = encode(qid)
    order, offsets = _group(codes, len(ids))
    lengths = np.diff(offsets)
    values = np.empty((len(ids), len(cutoffs)))
    for queries, place in rectangles(offsets):
        relevance, leads = _rank(y_true, y_score, order, place, ties)
        values[queries] = value(relevance, leads, lengths[queries], cutoffs)
    return values, lengths, ids


def _group(codes, n_codes):
    """Indices of the rows in the order of their codes, and the offsets of the codes."""
    # Transposing a sparse matrix with one entry per row is a stable counting sort in linear time.
    shape = (len(codes), n_codes)
    one_per_row = (np.ones(len(codes), dtype=np.int8), codes, np.arange(len(codes) + 1))
    by_code = sparse.csr_array(one_per_row, shape=shape).tocsc()
    return by_code.indices, by_code.indptr.astype(np.int64)


def _rank(y_true, y_score, order, place, ties):
    """Relevance in rank order, and the mask of the starts of runs of equal scores."""
    absent = place < 0
    rows = order[place]
    falling = -y_score[rows].astype(float, copy=False)
    falling[absent] = np.inf
    # The sort is stable, so that absent cells, which are last already, stay behind scores of -inf.
    ranking = np.argsort(falling, axis=1, kind="stable")
    relevance = y_true[rows].astype(float, copy=False)
    relevance[absent] = 0
    relevance = np.take_along_axis(relevance, ranking, axis=1)
    leads = np.ones(place.shape, dtype=bool)
    if ties == "average":
        falling = np.take_along_axis(falling, ranking, axis=1)
        leads[:, 1:] = falling[:, 1:] != falling[:, :-1]
        leads |= absent
    return relevance, leads


def mean_of_defined(values: Floats, name: str) -> Floats:
    """Mean of each column over the queries without NaN; warns if all are NaN."""
    defined = ~np.isnan(values)
    if not defined.any():
        warn_user(
            f"{name} is undefined: none of the {len(values)} queries has a relevant document, so "
            "all are skipped and the mean is NaN. Check the annotation (and the threshold), or "
            "pass no_relevant=0 or 1.",
            UndefinedMetricWarning,
        )
        return np.full(values.shape[1], np.nan)
    return values.mean(axis=0, where=defined)


# --------------------------------------------------------------------------------------
# Checks
# --------------------------------------------------------------------------------------
def check_rows(
    y_true: Column, y_score: Column, qid: Column
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Relevance, scores and query ids as arrays, after their checks."""
    y_true, y_score = as_numbers(y_true, "y_true"), as_numbers(y_score, "y_score")
    qid = as_array(qid)
    lengths = {"y_true": y_true.shape, "y_score": y_score.shape, "qid": qid.shape}
    if any(len(shape) != 1 for shape in lengths.values()) or len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in lengths.items())
        raise ValueError(
            f"y_true, y_score and qid must be flat and of one length, one value per row; got the "
            f"shapes {found}."
        )
    if not len(y_true):
        raise ValueError("y_true, y_score and qid are empty; expected at least one row.")
    _check_relevance(y_true)
    missing = np.isnan(y_score)
    if missing.any():
        raise ValueError(
            f"y_score contains NaN in {int(missing.sum())} of {len(y_score)} rows, first in row "
            f"{int(missing.argmax())}; expected a score in every row."
        )
    missing = pd.isna(qid)
    if missing.any():
        raise ValueError(
            f"qid is missing in {int(missing.sum())} of {len(qid)} rows, first in row "
            f"{int(missing.argmax())}; expected a query id in every row."
        )
    return y_true, y_score, qid


def as_numbers(values: Column, name: str) -> NDArray[Any]:
    """The values as an array of numbers, NaN if missing; booleans and integers keep their type."""
    values = np.asarray(values)
    if values.dtype.kind in "iufb":
        return values
    try:
        # Object arrays hold None or pandas.NA where a value is missing.
        return pd.to_numeric(pd.Series(values)).to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {values.dtype} values.") from error


def _check_relevance(y_true):
    # The sum is NaN or infinite if a value is: one pass, no mask.
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(y_true.sum(dtype=float)) or y_true.min() < 0
    if not suspect:
        return
    missing = np.isnan(y_true)
    if missing.any():
        raise ValueError(
            f"y_true contains NaN in {int(missing.sum())} of {len(y_true)} rows, first in row "
            f"{int(missing.argmax())}: these documents are not annotated. Drop those rows from "
            "y_true, y_score and qid (or give them 0, if not annotated means not relevant)."
        )
    bad = np.flatnonzero((y_true < 0) | ~np.isfinite(y_true))
    if len(bad):
        raise ValueError(
            f"y_true must be finite and at least 0; y_true[{bad[0]}] is {y_true[bad[0]]:g}. "
            "Shift or clip the relevance."
        )
