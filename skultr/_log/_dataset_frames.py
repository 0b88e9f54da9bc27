"""A log on disk as frames in memory: all its rows, or clicks and impressions of cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._typing import Floats
from ._cells import Cells, distinct
from ._deferred import lookup
from ._hashing import hash_columns
from ._stored_log import StoredLog


def rows_of(
    log: StoredLog, roles: Iterable[str], names: Sequence[str]
) -> tuple[pd.DataFrame, Floats]:
    """All rows of a log, with its roles and features.

    Parameters
    ----------
    log : StoredLog
    roles : iterable of str
        Roles that the log had when it was read.
    names : sequence of str of length n_features

    Returns
    -------
    X : DataFrame of shape (n_rows, n_columns)
    click_rate : ndarray of shape (n_rows,)
    """
    shown = np.asarray(log.shown)
    columns: dict[str, Any] = {"qid": log.query_ids[np.asarray(log.query)]}
    columns["session"] = np.asarray(log.list_)
    if log.doc_ids is not None:
        columns["doc"] = log.doc_ids.get_level_values(-1).to_numpy()[np.asarray(log.doc)]
        if not isinstance(log.doc_ids, pd.MultiIndex):
            columns["doc_scope"] = "global"
    columns["position"] = _where_shown(np.asarray(log.position), shown)
    if "bias" in roles:
        columns["bias"] = _where_shown(log.bias_values[np.asarray(log.bias)], shown)
    if "user" in roles:
        columns["user"] = log.user_ids[np.asarray(log.user)]
    columns["impressions"] = np.asarray(log.weight)
    for name in ("propensity", "production"):
        if getattr(log, name) is not None:
            columns[name] = np.asarray(getattr(log, name))
    features = pd.DataFrame(log.features[np.asarray(log.version)], columns=list(names), copy=False)
    return pd.concat([pd.DataFrame(columns), features], axis=1), np.asarray(log.click_rate)


def cells_of(log: StoredLog, by: Iterable[str]) -> tuple[pd.DataFrame, Floats]:
    """One row per cell of a log, counted part by part.

    Estimates that read a log through its cells alone read such a frame as they read the log.

    Parameters
    ----------
    log : StoredLog
    by : iterable of {"bias", "position", "user"}
        What tells the cells of a document apart.

    Returns
    -------
    X : DataFrame of shape (n_cells, n_columns)
        ``qid``, ``doc`` (a hash of the features where documents have no ids), the columns of
        ``by``, ``impressions``, and ``session``, the number of the row: a cell is no result page.
    click_rate : ndarray of shape (n_cells,)
    """
    log = log.without_never_shown()
    tables = {name: _codes(log, name) for name in by}
    factor, n_factors = _combined(tables)
    cells = Cells.from_rows(log.doc, factor, log.clicks, log.weight, log.n_docs, n_factors)
    query, doc = _query_of_doc(log), _doc_ids(log)
    columns = {"qid": query[cells.doc], "doc": doc[cells.doc]}
    if not isinstance(log.doc_ids, pd.MultiIndex):
        columns["doc_scope"] = "global"
    columns |= _split(tables, cells.factor)
    columns["impressions"] = cells.weight
    columns["session"] = np.arange(len(cells.doc))
    # Sums of rates may be a rounding error above the impressions.
    return pd.DataFrame(columns, copy=False), np.minimum(cells.clicks / cells.weight, 1.0)


def places_of(log: StoredLog, roles: Iterable[str]) -> tuple[pd.DataFrame, Any]:
    """The distinct places of a log: where rows were shown, and to whom.

    Parameters
    ----------
    log : StoredLog
    roles : iterable of str
        Roles that the log had when it was read.

    Returns
    -------
    places : DataFrame of shape (n_places, n_columns)
        Those of ``position``, ``bias`` and ``user`` that the log has; NaN where not shown.
    number : DeferredArray of shape (n_rows,), int
        Place of each row.
    """
    # The first value stands for rows that were not shown.
    highest = int(log.position.max(initial=0))
    tables = {"position": (np.maximum(log.position, 0), np.arange(highest + 1.0))}
    tables["position"][1][0] = np.nan
    if "bias" in roles:
        tables["bias"] = (log.bias + 1, np.append(np.nan, log.bias_values))
    if "user" in roles:
        tables["user"] = (log.user, log.user_ids)
    code, n_codes = _combined(tables)
    found, number = distinct(code, n_codes)
    return pd.DataFrame(_split(tables, found)), number


def _combined(tables):
    """One code for the codes of several columns, and the number of these codes."""
    code, n_codes = 0, 1
    for codes, values in tables.values():
        code, n_codes = code * len(values) + codes, n_codes * len(values)
    return code, n_codes


def _split(tables, code):
    """The values that a code of :func:`_combined` stands for, by column."""
    columns = {}
    for name, (_, values) in reversed(tables.items()):
        code, own = np.divmod(code, len(values))
        columns[name] = values[own]
    return columns


def _where_shown(values, shown):
    return values if shown.all() else np.where(shown, values, np.nan)


def _codes(log: StoredLog, name: str) -> tuple[Any, NDArray[Any]]:
    """Codes of a column by row, and the values that they stand for."""
    if name == "user":
        return log.user, log.user_ids
    if name == "bias":
        return log.bias, log.bias_values
    values = np.arange(int(log.position.max()) + 1)
    return lookup(values, log.position), values


def _doc_ids(log: StoredLog) -> NDArray[Any]:
    """What names each document within its query; a hash of its features without ids."""
    if log.doc_ids is not None:
        return log.doc_ids.get_level_values(-1).to_numpy()
    columns = np.ascontiguousarray(log.features.T) + np.float32(0)  # -0.0 and 0.0 are equal
    return hash_columns(columns.view(np.uint32)).view(np.int64)


def _query_of_doc(log: StoredLog) -> NDArray[Any]:
    """Id of a query of each document."""
    if isinstance(log.doc_ids, pd.MultiIndex):
        return log.doc_ids.get_level_values(0).to_numpy()
    query = np.zeros(log.n_docs, dtype=np.intp)
    for part in log.chunks():
        query[part.doc[::-1]] = part.query[::-1]
    return log.query_ids[query]
