"""Two logs as one, so that a table of counts learns of a new day what it would from both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..exceptions import python_value
from ._clicklog import ClickLog
from ._deferred import lookup
from ._hashing import equal_rows
from ._reader import first_rows, pairs_of_codes
from ._segments import encode


def join_logs(first: ClickLog, second: ClickLog) -> ClickLog:
    """The log of the lists of both, in memory, as if it had been read from both at once.

    Documents, queries, users and bias factors with equal ids are the same. Lists of the two are
    different ones, also where their sessions have equal ids.

    Parameters
    ----------
    first, second : ClickLog

    Returns
    -------
    log : ClickLog
        Without propensities.

    Raises
    ------
    ValueError
        If only one of the logs names its documents (or the scores of production).
    """
    columns = _join_documents(first, second)
    logs = (first, second)
    names = {"query": "query_ids", "bias": "bias_values", "user": "user_ids"}
    ids = {}
    for name, of_codes in names.items():
        codes, ids[of_codes] = _union(getattr(first, of_codes), getattr(second, of_codes))
        # Rows that were not shown have the bias -1, which stays.
        n_first = len(getattr(first, of_codes))
        parts = np.append(codes[:n_first], -1), np.append(codes[n_first:], -1)
        columns[name] = np.concatenate(
            [part[np.asarray(getattr(log, name))] for part, log in zip(parts, logs, strict=True)]
        )
    for name in ("position", "clicks", "weight", "shown"):
        columns[name] = _both(getattr(first, name), getattr(second, name))
    log = ClickLog(
        **columns,
        **ids,
        production=_join_production(first, second),
        propensity=None,
        offsets=np.append(first.offsets, first.n_rows + second.offsets[1:]),
    )
    order = np.argsort(log.query[log.offsets[:-1]], kind="stable")
    return log._take_lists(order)


def with_bias_values(log: ClickLog, known: NDArray[Any]) -> ClickLog:
    """The log with the codes of ``known`` bias factors, which must include its own.

    Parameters
    ----------
    log : ClickLog
    known : ndarray of shape (n_factors,), sorted

    Raises
    ------
    ValueError
        If the log has another bias factor.
    """
    code = pd.Index(known, tupleize_cols=False).get_indexer(
        pd.Index(log.bias_values, tupleize_cols=False)
    )
    if (code < 0).any():
        unknown = [python_value(each) for each in log.bias_values[code < 0][:3]]
        raise ValueError(
            f"{int((code < 0).sum())} bias factor(s) of the log, such as "
            f"{', '.join(map(repr, unknown))}, were not in the log that the estimator was fitted "
            "to, which has no examination for them. Fit to a log that shows all bias factors, or "
            "leave out these rows."
        )
    # Rows that were not shown have the code -1, the last element.
    return replace(log, bias=lookup(np.append(code, -1), log.bias), bias_values=known)


def _join_documents(first, second):
    """Version of each row, and versions, features and ids of the documents of both logs."""
    levels = [0 if log.doc_ids is None else log.doc_ids.nlevels for log in (first, second)]
    if levels[0] != levels[1]:
        names = ["the values of the features", "doc alone", "the pair (qid, doc)"]
        raise ValueError(
            f"The documents of this log are identified by {names[levels[1]]}, and those of the "
            f"earlier ones by {names[levels[0]]}. Pass qid, doc and doc_scope as before."
        )
    features = np.concatenate([first.features, second.features])
    vector, place = equal_rows(features)
    if levels[0] == 0:
        version, doc, ids = vector, np.arange(len(place)), None
    else:
        code, ids = _join_ids(first, second)
        # Code of the document of each version of the first log, then of the second.
        of_versions = np.append(first.doc_of_version, second.doc_of_version + first.n_docs)
        n_vectors = len(place)
        version, key = encode(code[of_versions] * np.int64(n_vectors) + vector)
        doc, place = key // n_vectors, first_rows(version, len(key))
    rows = _both(first.version, np.asarray(second.version) + first.n_versions)
    return {
        "version": version[rows],
        "doc_of_version": doc,
        "features": features[place],
        "doc_ids": ids,
    }


def _join_ids(first, second):
    """Code of each document of the first log and then of the second, and ids of the codes."""
    if first.doc_ids.nlevels == 1:
        code, ids = _union(first.doc_ids, second.doc_ids)
        return code, pd.Index(ids, name="doc", tupleize_cols=False)
    (query, queries), (doc, docs) = (
        _union(*(log.doc_ids.get_level_values(name) for log in (first, second)))
        for name in ("qid", "doc")
    )
    code, query, doc = pairs_of_codes(query, doc, len(docs))
    values = (pd.Index(each, tupleize_cols=False) for each in (queries, docs))
    return code, pd.MultiIndex([*values], [query, doc], names=["qid", "doc"])


def _join_production(first, second):
    if first.production is None and second.production is None:
        return None
    if first.production is None or second.production is None:
        raise ValueError(
            "Only one of the logs has the role 'production'. Pass it with every log, or with none."
        )
    return _both(first.production, second.production)


def _union(first, second):
    """Code of each value of both, and their distinct values, sorted."""
    first, second = (pd.Index(each, tupleize_cols=False) for each in (first, second))
    return encode(first.append(second).to_numpy())


def _both(first, second):
    return np.concatenate([np.asarray(first), np.asarray(second)])
