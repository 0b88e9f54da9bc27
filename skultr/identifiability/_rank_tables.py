"""From a click log to a table of click rates: few rows by bias factors, whose rank is tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._log._cells import READS, read_cells
from .._log._components import factor_components
from .._log._faults import count_of
from .._log._on_disk import LogOnDisk, refuse_arguments
from .._log._reader import take_clicks
from .._log._roles import is_frame, read_column, read_role
from .._log._segments import as_array, encode
from ..exceptions import ClickDataWarning, NotIdentifiableError, python_value, warn_user
from ._low_rank import RateTable, WithinDocuments, with_center

#: Rows are counted in all lists together.
_READS = tuple(role for role in READS if role != "session")
#: Least number of queries from which the variance between queries is estimated.
_LEAST_CLUSTERS = 30
#: Least number of queries in the mean cell, for the same reason.
_LEAST_IN_CELL = 10
#: Largest numbers of rows and of bias factors: a larger matrix is no summary of a log.
_MAX_ROWS, _MAX_FACTORS = 50, 300
#: How far a count may be from a whole number. Counts from 100 on need not be whole (rates may have
#: been rounded), because half a click is far below their noise.
_ROUNDING, _MANY = 1e-4, 100
#: Above it floating-point numbers skip whole ones.
_LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, eq=False)
class RowsByFactors:
    """A table of clicks, with the names of its rows and columns."""

    table: RateTable | WithinDocuments
    rows: pd.Index
    factors: pd.Index
    by_query: bool
    n_components: int


def read_table(X: Any, y: Any, rows: Any, bias: Any, n_groups: int, rng: Any) -> RowsByFactors:
    """Clicks and impressions of a log by bias factor, of named rows or of groups of documents."""
    if isinstance(X, LogOnDisk):
        refuse_arguments({"y": y})
        own = ["bias" if "bias" in X.roles else "position"]
        X, y = X.to_cells(own) if rows is None and bias is None else X.to_frame()
    if not is_frame(X):
        raise TypeError(
            f"X is a {type(X).__name__}; expected the log as a frame (pandas, Polars or "
            "PyArrow) with the columns 'qid' and 'position', and 'doc' or features."
        )
    X, y, _ = take_clicks(X, y, "factor_rank")
    if bias is None and read_role(X, "position") is None and read_role(X, "bias") is None:
        raise ValueError(
            "X has neither a column 'position' nor 'bias': there are no click rates to compare. "
            "Rename the column that holds the positions to 'position', or name columns in bias=."
        )
    codes, labels = bias_factors(X, bias)
    given = {} if codes is None else {"bias": codes}
    arm = None if rows is None else _read_rows(X, rows)
    cells, _ = read_cells(X, y, roles=given, arm=arm, reads=_READS)
    _check_counts(cells)
    factors = cells.factors.index
    if labels is not None:
        factors = labels[factors]
    elif read_role(X, "bias") is None:
        factors = factors.rename("position")
    if arm is None:
        return _groups_of_documents(cells, factors, n_groups, rng)
    return _named_rows(cells, factors, rows if isinstance(rows, str) else "row")


# Reading ------------------------------------------------------------------------------
def bias_factors(X, bias):
    """Code of the bias factor of each row, and labels of the codes; None without ``bias``."""
    if bias is None:
        return None, None
    names = [bias] if isinstance(bias, str) else bias
    if not isinstance(names, list | tuple) or not names or len(set(names)) < len(names):
        raise ValueError(
            f"bias is {bias!r}; expected the name of a column, or a list of different names."
        )
    columns = {name: read_column(X, name) for name in names}
    missing = np.zeros(X.shape[0], dtype=bool)
    for values in columns.values():
        missing |= pd.isna(values)
    unknown = missing & _shown(X)
    if unknown.any():
        raise ValueError(
            f"The bias columns {list(names)} are missing in "
            f"{count_of(int(unknown.sum()), 'shown row')}, first in row {int(unknown.argmax())}; "
            "expected a value in each. Use a separate value for unknown ones."
        )
    code, parts = np.zeros((~missing).sum(), dtype=np.int64), []
    for values in columns.values():
        own, ids = encode(values[~missing])
        # Renumbered after each column, so that only combinations that occur have a code.
        first, code = np.unique(code * len(ids) + own, return_index=True, return_inverse=True)[1:]
        parts.append(_plain(ids)[own])
    codes = np.full(len(missing), np.nan)
    codes[~missing] = code
    labels = pd.MultiIndex.from_arrays([part[first] for part in parts], names=names)
    return codes, labels if len(names) > 1 else labels.get_level_values(0)


def _shown(X):
    """True for rows with a position; for all rows if X has no positions."""
    position = read_role(X, "position")
    return np.ones(X.shape[0], dtype=bool) if position is None else ~np.isnan(position)


def _read_rows(X, rows):
    if isinstance(rows, str):
        values = read_column(X, rows)
    else:
        values = as_array(rows)
        if values.shape != (X.shape[0],):
            raise ValueError(
                f"rows has shape {values.shape}; expected the name of a column, or one value for "
                f"each row of X, that is ({X.shape[0]},)."
            )
    shown = _shown(X)
    missing = int((pd.isna(values) & shown).sum())
    if missing == shown.sum():
        raise ValueError(
            "rows is missing everywhere: no row of the log can be placed. Expected what the "
            "click rates are compared by, such as the grades of the column 'relevance'."
        )
    if missing:
        warn_user(
            f"rows is missing in {missing} of {int(shown.sum())} rows of X that were shown; they "
            "are left out, and the answer is about the others.",
            ClickDataWarning,
        )
    return values


def _check_counts(cells):
    for name, values in (("clicks", cells.clicks), ("impressions", cells.weight)):
        broken = np.abs(values - np.rint(values)) > _ROUNDING
        bad = np.flatnonzero(broken & (values < _MANY))
        if len(bad):
            raise ValueError(
                f"A document has {values[bad[0]]:g} {name} at one bias factor; expected whole "
                "numbers, because the noise of a click rate follows from counts. Pass clicks of "
                "0 or 1 (or clicks / impressions, with the column 'impressions'), unweighted; "
                "grades above 1 are no counts."
            )
    if cells.weight.max() >= _LARGEST_COUNT:
        raise ValueError(
            f"A document has {cells.weight.max():g} impressions at one bias factor; expected "
            f"fewer than {_LARGEST_COUNT:g}. Check the column 'impressions'."
        )
    if not cells.clicks.any():
        raise ValueError("y has no click: there is nothing to factorise. Check the clicks.")
    n_factors = len(cells.factors)
    if n_factors < 2:
        raise ValueError(
            "All rows were shown under one bias factor, so that click rates compare documents "
            "fairly and there is nothing to factorise. Expected at least 2 positions or factors."
        )
    if n_factors > _MAX_FACTORS:
        raise ValueError(
            f"The log has {n_factors:,} bias factors; expected at most {_MAX_FACTORS}. Name fewer "
            "columns in bias=, such as 'position', or put alike factors together."
        )


def _plain(ids):
    """Ids as labels: whole floats (as columns with missing values have them) as integers."""
    if ids.dtype.kind == "f" and np.all(ids == np.floor(ids)):
        return ids.astype(np.int64)
    return np.array([python_value(value) for value in ids], dtype=ids.dtype)


# Named rows ---------------------------------------------------------------------------
def _named_rows(cells, factors, name):
    row, ids = encode(cells.doc_ids)
    if not 2 <= len(ids) <= _MAX_ROWS:
        found = (
            f"one value, {python_value(ids[0])!r}"
            if len(ids) == 1
            else f"{len(ids):,} different values"
        )
        raise ValueError(
            f"rows has {found}; expected 2 to {_MAX_ROWS}. Name a column of few values, such as "
            "grades, or cut a number into classes with pandas.qcut(..., labels=False)."
        )
    shape = len(ids), len(factors)
    query = cells.doc_query[cells.doc]
    row = row[cells.doc]
    n_filled = len(np.unique(row * shape[1] + cells.factor))
    n_components, _ = factor_components(row, cells.factor, shape[1])
    if n_filled + n_components <= sum(shape):
        raise NotIdentifiableError(
            f"The {shape[0]} rows and {shape[1]} bias factors meet in {n_filled} cells, none of "
            "which closes a rectangle: any click rates are one product there. Expected rows that "
            "share at least two bias factors. Log rankings that vary, or compare fewer rows."
        )
    by_query = len(np.unique(query)) >= _LEAST_CLUSTERS
    by_query = by_query and len(row) >= _LEAST_IN_CELL * n_filled
    table = RateTable(
        row,
        cells.factor,
        encode(query)[0] if by_query else None,
        np.rint(cells.clicks),
        np.rint(cells.weight),
        shape,
    )
    rows = pd.Index(_plain(ids), name=name)
    return RowsByFactors(with_center(table), rows, factors, by_query, n_components)


# Groups of documents ------------------------------------------------------------------
def _groups_of_documents(cells, factors, n_groups, rng):
    """Groups formed by one half of each document's impressions, compared by the other half."""
    _check_shown_apart(cells)
    unit, factor, n_units = cells.doc, cells.factor, cells.n_docs
    first = _draw_half(cells, rng)
    second = np.rint(cells.clicks) - first[0], np.rint(cells.weight) - first[1]
    curve = _pooled_curve(cells)
    # Each document occurs twice: grouped by its second half, and by its first.
    groups = [
        _by_attractiveness(unit, factor, *known, other[1], curve, n_groups)
        for known, other in ((second, first), (first, second))
    ]
    n_found = int(max(group.max() for group in groups)) + 1
    if n_found < 2:
        raise ValueError(
            f"The clicks do not separate the {n_units} documents into at least two groups to "
            "compare. Collect more impressions, or name rows=."
        )
    clicks, weight = (np.concatenate(pair) for pair in zip(first, second, strict=True))
    shown = weight > 0
    query = encode(cells.doc_query)[0]
    by_query = int(query.max()) + 1 >= _LEAST_CLUSTERS
    table = WithinDocuments(
        unit=np.concatenate([unit, unit + n_units])[shown],
        factor=np.tile(factor, 2)[shown],
        clicks=clicks[shown],
        weight=weight[shown],
        group=np.concatenate(groups),
        cluster=np.tile(query if by_query else np.arange(n_units), 2),
        shape=(n_found, len(factors)),
    )
    rows = pd.RangeIndex(1, n_found + 1, name="attractiveness")
    n_components, _ = factor_components(unit, factor, len(factors))
    return RowsByFactors(with_center(table), rows, factors, by_query, n_components)


def _check_shown_apart(cells):
    """Refuse logs with too few clicked documents under several bias factors."""
    unit = cells.doc
    n_factors = np.bincount(unit, minlength=cells.n_docs)
    clicks = np.bincount(unit, cells.clicks, minlength=cells.n_docs)
    n_informative = int(((n_factors > 1) & (clicks > 0)).sum())
    if n_informative >= _LEAST_CLUSTERS:
        return
    if cells.n_docs < _LEAST_CLUSTERS:
        raise ValueError(
            f"The log has {cells.n_docs} documents; expected at least {_LEAST_CLUSTERS} to "
            "form groups of. If they are seen often, compare each by itself: rows='doc'."
        )
    raise NotIdentifiableError(
        f"The log has only {count_of(n_informative, 'document')} with clicks and with impressions "
        f"under more than one bias factor; expected at least {_LEAST_CLUSTERS}, because documents "
        "are compared with themselves. "
        "Compare named rows instead, such as rows='relevance' if documents are graded, or log "
        "rankings that vary."
    )


def _draw_half(cells, rng):
    """Clicks and impressions per cell in a random half of the impressions."""
    clicks = np.rint(cells.clicks).astype(np.int64)
    weight = np.rint(cells.weight).astype(np.int64)
    chosen = rng.binomial(clicks, 0.5)
    return chosen, chosen + rng.binomial(weight - clicks, 0.5)


def _pooled_curve(cells):
    """Examination relative to the best factor, if all documents have the same curve."""
    n_units = cells.n_docs
    everything = WithinDocuments(
        cells.doc,
        cells.factor,
        np.rint(cells.clicks),
        np.rint(cells.weight),
        np.zeros(n_units, dtype=np.intp),
        np.zeros(n_units, dtype=np.intp),
        (1, len(cells.factors)),
    )
    curve = with_center(everything).center[0]
    return curve / curve.max()


def _by_attractiveness(unit, factor, clicks, weight, other_weight, curve, n_groups):
    """Bin documents by estimated relevance; bins hold equal numbers of expected clicks."""
    n_units = int(unit.max()) + 1
    clicks = np.bincount(unit, clicks, n_units)
    seen, other_seen = (
        np.bincount(unit, curve[factor] * part, n_units) for part in (weight, other_weight)
    )
    # One click at the mean rate is added; else one lucky impression would give the first rank.
    attraction = (clicks + 1) / (seen + seen.sum() / clicks.sum())
    order = np.argsort(attraction, kind="stable")
    expected = np.cumsum((attraction * other_seen)[order])
    cuts = np.searchsorted(expected, expected[-1] * np.arange(1, n_groups) / n_groups)
    cuts = np.unique(attraction[order][np.minimum(cuts, n_units - 1)])
    return np.unique(np.searchsorted(cuts, attraction), return_inverse=True)[1]
