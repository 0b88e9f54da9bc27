"""Logs of datasets that this process has open: the candidates of a search share them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._stored_log import StoredLog


#: Bytes that are kept in memory for the next candidate, beside the log in use.
_MOST_BYTES = 1 << 28
#: Bytes per row of a log whose equal lists were merged in memory.
_ROW_BYTES = 80

_logs: OrderedDict[Hashable, StoredLog] = OrderedDict()
_lock = Lock()


def shared_log(key: Hashable, make: Callable[[], StoredLog]) -> StoredLog:
    """The log of a key, made once as long as the logs in use fit into the memory for them.

    Parameters
    ----------
    key : hashable
        Equal for the same files, queries and values.
    make : callable
        Opens the log. Its arrays must not be written to.
    """
    with _lock:
        if key in _logs:
            _logs.move_to_end(key)
            return _logs[key]
    log = make()  # without the lock, because it may take seconds
    with _lock:
        _logs[key] = log
        while _logs and sum(map(_bytes_of, _logs.values())) > _MOST_BYTES:
            _logs.popitem(last=False)
    return log


def _bytes_of(log):
    """Memory of a log, without what is mapped from its files."""
    features = 0 if log.features_on_disk else log.features.nbytes
    merged = 0 if log.all_lists_differ else _ROW_BYTES * log.n_rows
    return features + merged + 4 * log.offsets.nbytes
