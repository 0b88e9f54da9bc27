"""Cells of a log that do not fit into memory: on disk, in shards of documents.

Relevance belongs to a document, and all rows of a document are in one shard, so that estimates of
examination need sums over shards alone (map and reduce).
"""

from __future__ import annotations

import pickle
import shutil
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .._progress import progress
from .._typing import Bools, Floats, Ints
from ._cells import Cells, Factors, read_cells
from ._clicklog import ClickLog
from ._counted import CellCount, count_of
from ._faults import NO_CLICKS, NO_ROW_SHOWN
from ._segments import encode

#: Cells that are collected at once; about 3 GB while the engine hands them over.
MAX_CELLS = 30_000_000


class _Folder:
    """A temporary folder that is deleted with the object, without the warning of the library's."""

    def __init__(self):
        self.path = Path(mkdtemp(prefix="skultr-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class CellShards:
    """Cells in files; each has all cells of some documents, and the factors are shared.

    Parameters
    ----------
    folder : _Folder
    files : list of Path
    factors : Factors
    docs : list of ndarray, default=None
        Code of each document of each shard among all documents.
    group : ndarray of shape (n_factors,), int, default=None
        Group of each factor, if groups take the place of factors.
    """

    folder: _Folder
    files: list[Path]
    factors: Factors
    docs: list[Ints] | None = None
    group: Ints | None = None

    @property
    def n_factors(self) -> int:
        """Number of bias factors, or of groups."""
        return len(self.factors) if self.group is None else int(self.group.max()) + 1

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        assert self.docs is not None
        return sum(map(len, self.docs))

    def __iter__(self) -> Iterator[Cells]:
        for file in self.files:
            cells: Cells = pickle.loads(file.read_bytes())
            code = np.searchsorted(self.factors.bias, cells.factors.bias)
            cells = replace(
                cells,
                factor=code[cells.factor],
                n_factors=len(self.factors),
                factors=self.factors,
            )
            yield cells if self.group is None else cells.pooled(self.group)

    def parts(self) -> Iterator[tuple[Ints, Cells]]:
        """Codes of the documents of each shard, and its cells."""
        assert self.docs is not None
        return zip(self.docs, self, strict=True)

    def pooled(self, group: Ints) -> CellShards:
        """The same clicks with one factor per group."""
        return replace(self, group=group)

    def joined(self, values: Iterable[Any]) -> Any:
        """Values of the documents of each shard as one array, in the order of their codes."""
        assert self.docs is not None
        values = np.concatenate(list(values))
        found = np.empty_like(values)
        found[np.concatenate(self.docs)] = values
        return found

    @cached_property
    def component_of_factors(self) -> Ints:
        """Component of each bias factor, shape (n_factors,); documents link their factors."""
        return components_of(self, self.n_factors)

    @cached_property
    def _totals(self):
        return sum(
            np.stack([cells.by_factor(cells.clicks), cells.by_factor(cells.weight)])
            for cells in self
        )

    @property
    def clicks_of_factors(self) -> Floats:
        """Clicks by factor, shape (n_factors,)."""
        return self._totals[0]

    @property
    def weight_of_factors(self) -> Floats:
        """Impressions by factor, shape (n_factors,)."""
        return self._totals[1]


def components_of(parts: Iterable[Cells], n_factors: int) -> Ints:
    """Connected component of each factor, from the factors that documents link."""
    links = csr_array((n_factors, n_factors))
    for cells in parts:
        shown = cells.matrix(np.ones(len(cells.doc)))
        links = links + shown.T @ shown
    return connected_components(links, directed=False)[1].astype(np.intp)


@dataclass(frozen=True, eq=False)
class ShardedLog:
    """A log whose cells do not fit into memory: what models of cells read of a :class:`ClickLog`.

    Parameters
    ----------
    cells : CellShards
    doc_ids : Index of shape (n_docs,)
    has_whole_queries : bool
        Whether all documents of a query are in one shard.
    kept : list
        What the estimator keeps of the log of each shard, beside its cells.
    features : ndarray of shape (n_docs, n_features), float32
    """

    cells: CellShards
    doc_ids: pd.Index
    has_whole_queries: bool
    kept: list[Any]
    features: Floats

    @property
    def bias_values(self) -> NDArray[Any]:
        """Bias factors, shape (n_factors,)."""
        return self.cells.factors.bias

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        return len(self.doc_ids)

    @property
    def doc_of_version(self) -> Ints:
        """Documents have one row of features each."""
        return np.arange(self.n_docs)

    @property
    def shown_docs(self) -> Bools:
        """All documents were shown."""
        return np.ones(self.n_docs, dtype=bool)

    @property
    def n_impressions(self) -> float:
        """Impressions, times sample weights."""
        return float(self.cells.weight_of_factors.sum())


# From engines ---------------------------------------------------------------------------
def count_or_shard(X: Any, click: str, by: list[str]) -> tuple[Any, Any]:
    """Cells of a log in an engine: a log in memory and click rates, or shards and None.

    Parameters
    ----------
    X, click, by
        See :func:`~skultr._log._counted.count_cells_of`; ``by`` names one bias column.

    Returns
    -------
    X : frame in memory, or CellShards if the log has more than ``MAX_CELLS`` cells
    click_rate : ndarray of shape (n_cells,) or None
    """
    count = count_of(X, click, by)
    n_shards = number_of_shards(count)
    if n_shards == 1:
        return count.cells()
    return _written(read_cells(*part)[0] for part in _parts(count, n_shards)), None


def log_or_shards(
    count: CellCount,
    read: Callable[[Any, Floats], ClickLog],
    keep: Callable[[ClickLog], Any],
) -> tuple[Any, Any]:
    """The same for estimators that keep documents: a log in memory, or a sharded one and None.

    Parameters
    ----------
    count : CellCount
    read : callable
        ``read(X, click_rate)`` is the log of a frame.
    keep : callable
        ``keep(log)`` is what is kept in memory of the log of a shard, beside its cells.

    Returns
    -------
    X : frame in memory, or ShardedLog if the log has more than ``MAX_CELLS`` cells
    click_rate : ndarray of shape (n_cells,) or None
    """
    n_shards = number_of_shards(count)
    if n_shards == 1:
        return count.cells(in_order=True)
    logs = (read(*part) for part in _parts(count, n_shards))
    return shard_log(logs, keep, count.shards_have_whole_queries), None


def number_of_shards(count: CellCount | _PartsOfLog) -> int:
    """Number of shards such that each has at most ``MAX_CELLS`` cells; 1 if all have."""
    n_shards = -(-count.n_rows // MAX_CELLS)
    if n_shards <= 1:
        return 1
    # There are fewer cells than rows: how many fewer, one shard says.
    n_cells = n_shards * len(count.cells((0, n_shards))[1])
    return 1 if n_cells <= 0.9 * MAX_CELLS else n_shards


def _parts(count, n_shards):
    """Frame and click rates of each shard that has rows."""
    for number in range(n_shards):
        X, rate = count.cells((number, n_shards))
        if len(rate):
            yield X, rate


# From a log on disk ---------------------------------------------------------------------
def whole_or_sharded(
    log: ClickLog, keep: Callable[[ClickLog], Any] = lambda log: None
) -> ClickLog | ShardedLog:
    """The log, or in shards if it is on disk and has more than ``MAX_CELLS`` cells.

    Documents that belong to several queries are counted at once: shards are of queries.
    """
    if not isinstance(log.doc_ids, pd.MultiIndex):
        return log
    # Documents go by their numbers, and no shard reads features.
    bare = log.with_features(np.empty((log.n_docs, 0), dtype=np.float32))
    numbers = pd.RangeIndex(log.n_docs, name="doc")
    parts = _PartsOfLog(replace(bare, doc_ids=numbers, all_lists_differ=False))
    n_shards = number_of_shards(parts)
    if n_shards == 1:
        return log
    found = shard_log((part for part, _ in _parts(parts, n_shards)), keep, True)
    docs = found.doc_ids.to_numpy()
    features = log.features if len(docs) == log.n_versions else log.features[docs]
    return replace(found, doc_ids=log.doc_ids[docs], features=features)


@dataclass(frozen=True, eq=False)
class _PartsOfLog:
    """Consecutive queries of a log on disk, in the place of a :class:`CellCount`."""

    log: ClickLog

    @property
    def n_rows(self):
        return self.log.n_rows

    def cells(self, shard):
        """The log of the queries of a shard, and the clicks of its cells."""
        number, n_shards = shard
        rows = np.bincount(
            self.log.query_of_list, np.diff(self.log.offsets), len(self.log.query_ids)
        )
        of_query = (np.cumsum(rows) - rows / 2) * n_shards // rows.sum()
        queries = np.flatnonzero((of_query == number) & (rows > 0))
        if not len(queries):
            return None, ()
        part = self.log.part_of(queries).without_never_shown()
        return part, part.cells.clicks if part.n_rows else ()


# To disk --------------------------------------------------------------------------------
def shard_log(
    logs: Iterable[ClickLog], keep: Callable[[ClickLog], Any], has_whole_queries: bool
) -> ShardedLog:
    """The sharded log of logs that have no document in common."""
    ids, kept = [], []

    def cells() -> Iterator[Cells]:
        for log in logs:
            ids.append(log.doc_ids)
            kept.append(keep(log))
            yield replace(log.cells, factors=Factors(log.bias_values, None))

    shards = _written(cells())
    doc_ids, docs = _united(ids)
    features = np.empty((len(doc_ids), 0), dtype=np.float32)
    return ShardedLog(replace(shards, docs=docs), doc_ids, has_whole_queries, kept, features)


def _written(parts: Iterable[Cells]) -> CellShards:
    """Shards on disk, of cells that are made one after the other."""
    folder = _Folder()
    files, factors = [], []
    with warnings.catch_warnings():  # of a part of the log
        warnings.simplefilter("ignore")
        for number, cells in enumerate(progress(parts, "shard")):
            factors.append(cells.factors.bias)
            files.append(folder.path / f"{number}.pickle")
            cells = replace(cells, doc_query=None, doc_row=None, doc_ids=None)
            files[-1].write_bytes(pickle.dumps(cells, protocol=5))
    if not files:
        NO_ROW_SHOWN.report(0, None, None)
    shards = CellShards(folder, files, Factors(np.unique(np.concatenate(factors)), None))
    if not shards.clicks_of_factors.any():
        NO_CLICKS.report(0, None, None)
    return shards


def _united(ids: list[pd.Index]) -> tuple[pd.Index, list[Ints]]:
    """All documents, sorted as in a log in memory, and the codes of those of each part."""
    names = list(ids[0].names)
    values = [[each.get_level_values(name).to_numpy() for each in ids] for name in names]
    codes, levels = zip(*(encode(np.concatenate(each)) for each in values), strict=True)
    order = np.lexsort(codes[::-1])
    code = np.empty(len(order), dtype=np.intp)
    code[order] = np.arange(len(order))
    index = [pd.Index(each, tupleize_cols=False) for each in levels]
    if len(names) == 1:
        united = index[0].rename(names[0])
    else:
        united = pd.MultiIndex(index, [each[order] for each in codes], names=names)
    return united, np.split(code, np.cumsum([len(each) for each in ids])[:-1])
