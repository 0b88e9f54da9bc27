"""Several logs as one: equal ids, documents and versions get one code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Ints
from ._clicklog import BY_ROW, ClickLog
from ._segments import encode, offsets_from_counts, pair_codes


class Union:
    """The ids that several logs have together, sorted as in one log, and the codes of each log.

    With ``hashes`` of the features of its versions, shape (2, n_versions), for each log, logs may
    have documents in common; without ids, documents are those of equal hashes.
    """

    def __init__(
        self, logs: Sequence[ClickLog], hashes: Sequence[NDArray[np.uint64]] | None = None
    ) -> None:
        self.query_ids, self._query = _encoded([log.query_ids for log in logs])
        self.bias_values, self._bias = _encoded([log.bias_values for log in logs])
        self.user_ids, self._user = _encoded([log.user_ids for log in logs])
        self.doc_ids, docs = _united_documents(logs)
        doc = np.concatenate([docs[i][log.doc_of_version] for i, log in enumerate(logs)])
        keys = [doc] if hashes is None else [*np.concatenate(hashes, axis=1), doc]
        order = np.lexsort(keys)
        new = np.ones(len(order), dtype=bool)
        if hashes is not None:
            new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
        code = np.empty(len(order), dtype=np.int32)
        code[order] = np.cumsum(new) - 1
        self._version = _split(code, [log.doc_of_version for log in logs])
        self.doc_of_version = doc[order[new]]
        if self.doc_ids is None:
            self.doc_of_version = np.arange(len(self.doc_of_version), dtype=np.int32)

    def codes(self, name: str, number: int) -> Ints:
        """The code in the union for each code of ``name`` (such as "query") in one of the logs."""
        return getattr(self, f"_{name}")[number]

    def recoded(self, log: ClickLog, number: int) -> ClickLog:
        """One of the logs, by its number, with the codes and ids of the union."""
        # Rows that were not shown have the bias factor -1, which is the last.
        bias = np.append(self._bias[number], np.int32(-1))
        return replace(
            log,
            version=self._version[number][log.version],
            query=self._query[number][log.query],
            user=self._user[number][log.user],
            bias=bias[log.bias],
            doc_of_version=self.doc_of_version,
            query_ids=self.query_ids,
            bias_values=self.bias_values,
            user_ids=self.user_ids,
            doc_ids=self.doc_ids,
        )


def joined(logs: Sequence[ClickLog]) -> ClickLog:
    """The log of logs without a document in common; it has no features."""
    union = Union(logs)
    parts = [union.recoded(log, number) for number, log in enumerate(logs)]
    names = [name for name in (*BY_ROW, "production") if getattr(parts[0], name) is not None]
    log = replace(
        parts[0],
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        features=np.empty((len(union.doc_of_version), 0), dtype=np.float32),
        propensity=None,
        offsets=offsets_from_counts(np.concatenate([np.diff(part.offsets) for part in parts])),
    )
    return log._take_lists(np.argsort(log.query[log.offsets[:-1]], kind="stable"))


def _encoded(values: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], list[Ints]]:
    """The distinct values of several arrays, sorted, and the codes of those of each array."""
    code, found = encode(np.concatenate(values))
    return found, _split(code.astype(np.int32), values)


def _split(code: Ints, like: Sequence[Any]) -> list[Ints]:
    return np.split(code, np.cumsum([len(each) for each in like])[:-1])


def _united_documents(logs: Sequence[ClickLog]) -> tuple[pd.Index | None, list[Ints]]:
    """All documents, sorted as in one log, and the codes of those of each log; 0 without ids."""
    ids = [log.doc_ids for log in logs]
    if ids[0] is None:
        return None, [np.zeros(log.n_docs, dtype=np.int32) for log in logs]
    names = list(ids[0].names)
    levels, codes = zip(
        *(_encoded([each.get_level_values(name).to_numpy() for each in ids]) for name in names),
        strict=True,
    )
    index = [pd.Index(level, tupleize_cols=False) for level in levels]
    if len(names) == 1:
        return index[0].rename(names[0]), codes[0]
    n_ids = len(levels[1])
    keys, code = _encoded([pair_codes(*pair, n_ids) for pair in zip(*codes, strict=True)])
    return pd.MultiIndex(index, [*np.divmod(keys, n_ids)], names=names), code
